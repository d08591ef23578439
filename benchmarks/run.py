"""All benchmarks, or those named, each in a process of its own: ``make bench``. One that fails does not stop the others.

``gpu_*`` measure nothing without a CUDA device; ``ranks`` has one rank here. CONTRIBUTING.md and README.md in this folder say
more.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
HELPERS = {"run", "report", "page", "memory_cases", "deblur_problems"}


def benchmarks(folder: Path = FOLDER) -> dict[str, Path]:
    """Every benchmark by name: all files but the helpers."""
    return {file.stem: file for file in sorted(folder.glob("*.py")) if file.stem not in HELPERS}


def failed(files: Sequence[Path], smoke: bool, results: Path | None) -> list[str]:
    """Run them in turn; the names of those that ended with an error."""
    if results is not None:
        results.mkdir(parents=True, exist_ok=True)
    names: list[str] = []
    for file in files:
        command = [sys.executable, str(file), *(["--smoke"] if smoke else [])]
        if results is not None:
            command += ["--json", str(results / f"{file.stem}.json")]
        if subprocess.run(command, check=False).returncode:
            names.append(file.stem)
    return names


def main(arguments: Sequence[str] | None = None) -> int:
    """Print every table; 1 if a benchmark failed."""
    known = benchmarks()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: shows that they run, and measures nothing")
    parser.add_argument("--json", type=Path, metavar="FOLDER", help="write NAME.json there for each")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - set(known)):
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(known)}")
    errors = failed([known[name] for name in options.names or known], options.smoke, options.json)
    if errors:
        print(f"failed: {', '.join(errors)}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
