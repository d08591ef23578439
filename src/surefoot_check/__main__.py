"""Command line of the checker: ``surefoot-check DIR`` or ``python -m surefoot_check DIR``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from .checker import check, lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Check a run directory; returns 0 accept, 1 reject, 2 usage or failed self-test, 3 undecided."""
    parser = argparse.ArgumentParser(
        prog="surefoot-check",
        description="Check the certificate and the checkpoints of a run directory with rigorous arithmetic.",
        epilog="exit codes: 0 accept, 1 reject, 2 bad usage or failed self-test, 3 undecided",
    )
    parser.add_argument("directory", metavar="DIR", help="the run directory")
    parser.add_argument(
        "--level",
        choices=["fast"],
        default="fast",
        help="fast: trusts numpy's matrix products within their a-priori error",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    options = parser.parse_args(arguments)
    try:
        report = check(options.directory)
    except (OSError, RuntimeError) as error:
        print(f"surefoot-check: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(report.to_dict(), indent=1))
    else:
        print("\n".join(lines(report)))
    return report.outcome.exit_code


if __name__ == "__main__":
    sys.exit(main())
