"""Python programs as the ranks of one job: what ``torchrun`` starts on one machine, without its own start-up time."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from programs import Program


class Ranks:
    """The processes of a job, in the order of their ranks, until the end of the context; ``processes[1].kill()`` loses one.

    Args:
        arguments: of ``python``, the same for every rank: a script, or ``-m`` or ``-c``, and its arguments.
        size: number of ranks.
        env: variables beyond those of this process.
    """

    def __init__(self, arguments: Sequence[str], size: int, env: Mapping[str, str] | None = None) -> None:
        job = {
            "WORLD_SIZE": str(size),
            "LOCAL_WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(_free_port()),
            **(env or {}),
        }
        self.processes = [Program(arguments, {**job, "RANK": str(r), "LOCAL_RANK": str(r)}) for r in range(size)]

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill what still runs."""
        with ExitStack() as stack:
            for process in self.processes:
                stack.push(process)

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
            except TimeoutError:
                late.append(rank)
        for rank in late:
            self.processes[rank].kill()
        results = [process.result() for process in self.processes]
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


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
