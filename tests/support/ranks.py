"""Python processes as the ranks of one job: what ``torchrun`` starts on one machine, without its own start-up time."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO


class Ranks:
    """The processes of a job, in the order of their ranks, until the end of the context; ``processes[1].kill()`` loses one.

    Args:
        arguments: of ``python``, the same for every rank: a script, or ``-m`` or ``-c``, and its arguments.
        size: number of ranks.
        env: variables beyond those of this process.
    """

    def __init__(self, arguments: Sequence[str], size: int, env: Mapping[str, str] | None = None) -> None:
        self.arguments = [sys.executable, *arguments]
        common = {
            **os.environ,
            "OMP_NUM_THREADS": "1",  # as torchrun does
            "WORLD_SIZE": str(size),
            "LOCAL_WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(_free_port()),
            # a test module that is its own program imports what lies here
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]),
            **(env or {}),
        }
        # files, not pipes: a rank whose pipe is full would wait for the reader, and the other ranks for it
        self._output = [(_kept(), _kept()) for _ in range(size)]
        self.processes = [
            subprocess.Popen(
                self.arguments,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            )
            for rank, (out, err) in enumerate(self._output)
        ]

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill what still runs."""
        for process in self.processes:
            process.kill()
            process.wait()
        for files in self._output:
            for file in files:
                file.close()

    def wait(self, timeout: float) -> list[subprocess.CompletedProcess[str]]:
        """The results of all ranks, in order.

        Raises:
            TimeoutError: they did not all end within so many seconds; they are killed, and the message has what they wrote.
        """
        end = time.monotonic() + timeout
        late = []
        for rank, process in enumerate(self.processes):
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                late.append(rank)
        for rank in late:
            self.processes[rank].kill()
            self.processes[rank].wait()
        results = [
            subprocess.CompletedProcess(self.arguments, process.returncode, _text(out), _text(err))
            for process, (out, err) in zip(self.processes, self._output, strict=True)
        ]
        if late:
            written = "\n".join(f"rank {i}:\n{result.stdout}{result.stderr}" for i, result in enumerate(results))
            raise TimeoutError(f"ranks {late} still ran after {timeout} s; what the ranks wrote:\n{written}")
        return results


def run_ranks(
    arguments: Sequence[str], size: int, timeout: float, env: Mapping[str, str] | None = None
) -> list[subprocess.CompletedProcess[str]]:
    """Run a job to its end; see ``Ranks`` and ``Ranks.wait``."""
    with Ranks(arguments, size, env) as job:
        return job.wait(timeout)


def _kept() -> IO[str]:
    return TemporaryFile("w+")


def _text(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
