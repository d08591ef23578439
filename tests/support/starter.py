"""Starts Python programs without their imports: those are made here once, and each program is a fork of this process.

It reads one JSON object a line: the ``arguments`` of ``python``, the ``env`` and the ``folder`` of the program, and the files of
its three ``streams``. Each program writes a line ``started PID``, and this process a line ``ended PID CODE``. A program ends with
its interpreter, as any other does.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

import surefoot  # noqa: F401  # pyright: ignore[reportUnusedImport] (what the programs share)


def tell(*words: object) -> None:
    """In one piece: several processes write."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def tell_ends(*_: object) -> None:
    while True:
        try:
            process, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not process:
            return
        tell("ended", process, os.waitstatus_to_exitcode(status))


def become(program: dict[str, Any]) -> None:
    """The program, from its streams to its last line."""
    tell("started", os.getpid())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for stream, name in enumerate(program["streams"]):
        file = os.open(name, os.O_RDWR | os.O_CREAT)
        os.dup2(file, stream)
        os.close(file)
    os.environ.clear()
    os.environ.update(program["env"])
    os.chdir(program["folder"])
    what, *rest = program["arguments"]
    if what == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    elif what == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [what, *rest]
        sys.path.insert(0, str(Path(what).parent))
        runpy.run_path(what, run_name="__main__")


def main() -> None:
    signal.signal(signal.SIGCHLD, tell_ends)
    for line in sys.stdin:
        if os.fork() == 0:
            become(json.loads(line))
            return


if __name__ == "__main__":
    main()
