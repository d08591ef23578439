"""Python programs in processes of their own, without the seconds of their imports.

A process beside the tests has imported surefoot once, and forks for each program: see ``starter``. Tests of what an interpreter
loads, or of a program that is started in a shell, start one anew instead.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory


def wait_until(true: Callable[[], object], timeout: float = 240.0) -> None:
    """
    Raises:
        TimeoutError: it is not true within so many seconds.
    """
    end = time.monotonic() + timeout
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {timeout} s")
        time.sleep(0.05)


class Starter:
    """The process that forks for each program.

    Attributes:
        codes: exit codes of the programs started, by process; ``None`` of those that have not ended.
    """

    def __init__(self) -> None:
        self.codes: dict[int, int | None] = {}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("starter.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input, self._told = self._process.stdin, self._process.stdout.fileno()

    def start(self, **program: object) -> int:
        """The process of a program; see ``starter``."""
        self._input.write(json.dumps(program).encode() + b"\n")
        self._input.flush()
        while True:
            for started in self.hear(None):
                return started

    def hear(self, timeout: float | None) -> list[int]:
        """Take what is told within so many seconds, and return the processes that started."""
        if not select.select([self._told], [], [], timeout)[0]:
            return []
        lines = os.read(self._told, 1 << 16).decode().splitlines()
        if not lines:
            raise RuntimeError("the process that starts programs has ended")
        told = [line.split() for line in lines]
        self.codes |= {int(process): int(code[0]) if code else None for _, process, *code in told}
        return [int(process) for word, process, *_ in told if word == "started"]

    def close(self) -> None:
        self._input.close()
        self._process.wait()


@functools.cache
def starter() -> Starter:
    """That of all programs of this process."""
    result = Starter()
    atexit.register(result.close)
    return result


class Program:
    """A program that runs until it ends or the context does.

    Args:
        arguments: of ``python``: a script, or ``-m`` or ``-c``, and its arguments.
        env: variables beyond those of this process.
        folder: where it runs; by default where this process does.
    """

    def __init__(self, arguments: Sequence[str], env: Mapping[str, str], folder: Path | None = None) -> None:
        self.arguments = list(arguments)
        # files, not pipes: a program whose pipe is full would wait for the reader, and others for it
        self._streams = TemporaryDirectory()
        self._out, self._err = (Path(self._streams.name, name) for name in ("out", "err"))
        self.pid = starter().start(
            arguments=self.arguments,
            env={**os.environ, "OMP_NUM_THREADS": "1", **env},
            folder=str(folder or Path.cwd()),
            streams=[os.devnull, str(self._out), str(self._err)],
        )

    @property
    def returncode(self) -> int | None:
        return starter().codes[self.pid]

    def poll(self) -> int | None:
        starter().hear(0.0)
        return self.returncode

    def wait(self, timeout: float) -> None:
        """
        Raises:
            TimeoutError: it still runs after so many seconds.
        """
        end = time.monotonic() + timeout
        while self.poll() is None:
            left = end - time.monotonic()
            if left < 0.0:
                raise TimeoutError(f"process {self.pid} still runs after {timeout} s")
            starter().hear(left)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """And wait for the end."""
        self.send_signal(signal.SIGKILL)
        self.wait(60.0)

    def result(self) -> subprocess.CompletedProcess[str]:
        """What it wrote, and the exit code; of one that has ended."""
        assert self.returncode is not None
        return subprocess.CompletedProcess(
            self.arguments, self.returncode, self._out.read_text(), self._err.read_text()
        )

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._streams.cleanup()


def run_program(
    arguments: Sequence[str], timeout: float, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    with Program(arguments, {}, folder) as program:
        program.wait(timeout)
        return program.result()
