"""How many lines there are: ``python tests/support/lines.py``.

Of each part all lines, and those of code: without comments, docstrings and blank lines. Of the checker also each file, and what a
certificate of each system needs at level fast: its own folder, and the shared files but for those that are ``ASIDE``.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from surefoot_check.systems import SYSTEMS

ROOT = Path(__file__).resolve().parents[2]
PARTS = {
    "library": "src/surefoot",
    "experiments": "src/surefoot_experiments",
    "checker": "src/surefoot_check",
    "tests": "tests",
    "benchmarks": "benchmarks",
}
ASIDE = {
    "rigor/exact.py": "level exact",
    "rigor/cross_entropy.py": "claim L3",
    "descent.py": "claim L3",
    "replay.py": "claim L3",
    "tracing.py": "a theorem as data",
    "minibatch.py": "mini-batches",
    "rigor/batch_norms.py": "mini-batches",
    "rigor/functions.py": "feed-forward",
    "rigor/many_norms.py": "feed-forward, implicit",
    "rigor/normal.py": "feed-forward",
    "rigor/pivots.py": "feed-forward, implicit",
    "linear_maps.py": "two-layer",
}
"""Shared files that only this needs; ``replay.py`` of a folder is of claim L3 too."""
NEAR_A_FIT = "feed-forward, implicit"
"""What needs the folder ``near_a_fit``."""
SILENT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


@cache
def lines_of_code(source: str) -> int:
    """Lines that hold more than a comment or a docstring; of a text over several lines each one."""
    docstrings = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    tokens = (token for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type not in SILENT)
    return len({line for token in tokens for line in range(token.start[0], token.end[0] + 1)} - docstrings)


def counted(files: Iterable[Path]) -> tuple[int, int]:
    """All lines of these files, and those of code."""
    sources = [file.read_text() for file in files]
    return sum(len(source.splitlines()) for source in sources), sum(map(lines_of_code, sources))


def files_of_checker() -> dict[str, tuple[int, int]]:
    """All lines and those of code of every file, by its place in the package."""
    root = ROOT / PARTS["checker"]
    return {file.relative_to(root).as_posix(): counted([file]) for file in sorted(root.rglob("*.py"))}


def behind(system: str) -> list[str]:
    """The files that a certificate of the system rests on at level fast."""
    folder = f"{system.replace('-', '_')}/"
    own = {"", "rigor/", folder, *(["near_a_fit/"] if system in NEAR_A_FIT else [])}
    return [
        name
        for name in files_of_checker()
        if name.removesuffix(name.rsplit("/", 1)[-1]) in own
        and not name.endswith("replay.py")
        and system in ASIDE.get(name, system)
    ]


def table(parts: Mapping[str, str] = PARTS) -> dict[str, tuple[int, int]]:
    """All lines and those of code, by part."""
    counts = {name: counted((ROOT / place).rglob("*.py")) for name, place in parts.items()}
    root = ROOT / PARTS["checker"]
    return counts | {f"behind {name}": counted(root / file for file in behind(name)) for name in SYSTEMS}


if __name__ == "__main__":
    print(f"{'':38}{'lines':>9}{'of code':>9}")
    for part, (every, code) in {**table(), **files_of_checker()}.items():
        print(f"{part:38}{every:>9,}{code:>9,}")
