"""Command line of the checker: ``surefoot-check DIR`` or ``python -m surefoot_check DIR``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path

from .checker import check
from .systems import with_modules
from .text import visible
from .tracing import graph_of
from .verdict import lines

CTRL_C = 130
BROKEN_PIPE = 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Check a run directory; returns 0 accept, 1 reject, 2 no verdict (usage, failed self-test, failed output), 3 undecided."""
    parser = argparse.ArgumentParser(
        prog="surefoot-check",
        description="Check the certificate and the checkpoints of a run directory with rigorous arithmetic.",
        epilog="exit codes: 0 accept, 1 reject, 2 bad usage or failed self-test, 3 undecided",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("directory", metavar="DIR", nargs="?", help="the run directory")
    what.add_argument(
        "--obligations",
        metavar="FILE",
        help="check nothing, and print as JSON the arithmetic of a certificate file, or of the first certificate in a directory: "
        "a graph of what has to be true of its numbers, for other programs (docs/checker.md)",
    )
    parser.add_argument(
        "--level",
        choices=["fast", "exact"],
        default="fast",
        help="fast: trusts numpy's matrix products within their a-priori error; exact: trusts FLINT and integers instead, some "
        "twenty times as slow",
    )
    parser.add_argument(
        "--data", metavar="FILE", help="safetensors file of the arrays of a large problem, which the run does not hold"
    )
    parser.add_argument(
        "--replay",
        action="store_true",
        help="also replay exact gradient descent of a linear network with the steps of trace.jsonl, and compare the stored "
        "weights (claim L3)",
    )
    parser.add_argument(
        "--time-limit",
        metavar="SECONDS",
        type=float,
        help="after so many seconds what is not decided is undecided; by default there is no limit",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="print every check, also those of each stored checkpoint"
    )
    parser.add_argument(
        "--system",
        metavar="MODULE",
        action="append",
        default=[],
        help="also check runs of the SYSTEM of this module, whose code is then run; may be given again",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    options = parser.parse_args(arguments)
    given = {name for name, value in vars(options).items() if value != parser.get_default(name)}
    if "obligations" in given and not given <= {"obligations", "system"}:
        parser.error("argument --obligations: checks nothing, so that of the other options only --system goes with it")
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a directory's name need not fit the terminal's encoding
    try:
        if options.obligations is not None:
            print(json.dumps(graph_of(Path(options.obligations), with_modules(options.system))), flush=True)
            return 0
        report = check(
            options.directory, options.level, options.data, options.replay, options.time_limit, options.system
        )
        print(
            json.dumps(report.to_dict(), indent=1) if options.json else "\n".join(lines(report, options.verbose)),
            flush=True,
        )
    except BrokenPipeError:
        # whoever read the output has left: an exit code of 1 would say that the run is rejected
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        print("surefoot-check: interrupted", file=sys.stderr)
        return CTRL_C
    except (OSError, ValueError, RuntimeError, MemoryError) as error:
        print(f"surefoot-check: {visible(str(error) or type(error).__name__)}", file=sys.stderr)
        return 2
    except (
        Exception
    ):  # of this checker or of a module that was named: an exit code of 1 would say that the run is rejected
        traceback.print_exc()
        print("surefoot-check: no verdict: the code that checks has failed", file=sys.stderr)
        return 2
    return report.outcome.exit_code


if __name__ == "__main__":
    sys.exit(main())
