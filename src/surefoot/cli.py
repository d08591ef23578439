"""The program ``surefoot``: one command line over the library.

Exit codes: 0 yes, accept or done; 1 no or reject; 2 bad usage or input; 3 undecided; 4 diverged, collapsed, ill posed or no
progress; 130, 143 and 129 after Ctrl-C, SIGTERM and SIGHUP.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from io import TextIOWrapper
from threading import Timer
from typing import TextIO, cast

from ._cli.commands import asked_for, chosen
from ._cli.errors import Exit, UsageError, message_of
from ._cli.options import Runnable, TrainOptions
from ._cli.plugins import program, with_systems

NOTICE = 20.0
"""Seconds after which a program that waits for the other ranks of its job says so."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments without the program's name; by default those of the process.

    Returns:
        The exit code. Nothing is raised: an error is one line on standard error.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without κ shows a question mark
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            code = _shared(lambda: _program(arguments))
            print(end="", flush=True)  # not sys.stdout.flush(): that is None in a process started with it closed
            return code
        except SystemExit as stop:
            return stop.code if isinstance(stop.code, int) else int(Exit.USAGE)
        except KeyboardInterrupt:
            _complain("interrupted")
            return int(Exit.CTRL_C)
        except BrokenPipeError:
            # whoever read the output has left; what is still buffered must not fail again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return int(Exit.BROKEN_PIPE)
        except UsageError as error:
            return _failed(error, f"error: {error}")
        except (ValueError, OSError, MemoryError) as error:
            return _failed(error, f"error: {message_of(error)}")
        except Exception as error:
            return _failed(
                error, f"unexpected {type(error).__name__}: {message_of(error)}; SUREFOOT_DEBUG=1 shows where"
            )


def _shared(program: Callable[[], int]) -> int:
    """Run it on rank 0 of those that ``torchrun`` started, the others helping; without torchrun, run it."""
    size = os.environ.get("WORLD_SIZE", "1")
    if "RANK" not in os.environ or size == "1":
        return program()
    from ._core.team import RankLostError, together

    text = f"waiting for the other ranks of a job of {size} processes, as RANK and WORLD_SIZE are set"
    waiting = Timer(NOTICE, _complain, [text])
    waiting.daemon = True

    def begun() -> int:
        waiting.cancel()
        return program()

    try:
        if os.environ["RANK"] == "0":
            waiting.start()
        return together(begun) or int(Exit.YES)
    except RankLostError as error:
        return _failed(error, f"error: {message_of(error)}", Exit.FAILED)
    finally:
        waiting.cancel()


def _program(arguments: Sequence[str]) -> int:
    tail = with_systems(arguments)  # first: they have commands of their own
    command = _parse(tail)
    if isinstance(command, str):
        print(command)
        return int(Exit.USAGE if asked_for(tail) is None else Exit.YES)
    return int(_run(command, tail))


def _parse(arguments: Sequence[str]) -> Runnable | str:
    """The command with its options; or a text, where that is asked for."""
    found = chosen(arguments)
    if isinstance(found, str):
        return found
    from ._cli.usage import parsed

    name, kind, tail = found
    return parsed(kind, _called(name), tail)


def _called(name: str) -> str:
    return f"{program(name.rpartition(' ')[2])} {name}"


def _run(command: Runnable, arguments: Sequence[str]) -> int:
    """A run directory is this process's own until the command has ended."""
    with ExitStack() as held:
        if getattr(command, "resume", False):
            command = _resumed(cast(TrainOptions, command), arguments)
        return command.run(held)


def _resumed(given: TrainOptions, arguments: Sequence[str]) -> TrainOptions:
    """The options of the run that is resumed. They are the defaults of a second parse, so that whatever then differs
    was given on the command line."""
    from ._cli.training import refuse_changes, stored_options
    from ._cli.usage import parsed

    stored = stored_options(given)
    tail = list(arguments)[2:]  # after "train SYSTEM"
    resumed = parsed(type(stored), _called(f"train {given.system}"), tail, stored)
    refuse_changes(resumed, stored)
    return resumed


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    _complain(f"warning: {' '.join(str(message).split())}")


def _complain(text: str) -> None:
    rank = os.environ.get("RANK", "0")
    who = "surefoot" if rank == "0" else f"surefoot (rank {rank})"
    if sys.stderr is not None:  # else print would take standard output
        print(f"{who}: {text}", file=sys.stderr)


def _failed(error: Exception, text: str, code: Exit = Exit.USAGE) -> int:
    if os.environ.get("SUREFOOT_DEBUG"):
        raise error
    _complain(text)
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
