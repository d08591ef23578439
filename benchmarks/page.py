"""The page of the benchmarks, docs/benchmarks.md, from the JSON that ``make bench`` has written: ``make bench-page``.

``results`` beside this file keeps the tables of each benchmark's last whole run; a smoke run is refused, as it measures nothing.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from run import FOLDER, benchmarks

RESULTS = FOLDER / "results"
PAGE = FOLDER.parent / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

<!-- Written by `make bench-page` from benchmarks/results; do not edit. -->

Each table is what its command printed in one run on the machine that stands below it: in one thread, unless it says
otherwise, and beside the peers named there. Compare the numbers of a row or of a column, which were measured in one run,
and not those of different runs. `make bench` runs all of them, `make bench-peers` installs what ours is compared with,
and `make bench-page` writes this page.
"""


def adopted(source: Path, results: Path = RESULTS) -> list[str]:
    """Copy the tables of whole runs from a folder of ``make bench`` into ``results``; their names.

    Raises:
        ValueError: if a file there is of a smoke run, or of no benchmark.
    """
    results.mkdir(exist_ok=True)
    names: list[str] = []
    for file in sorted(source.glob("*.json")):
        if file.stem not in benchmarks():
            raise ValueError(f"{file}: there is no benchmark {file.stem}")
        if json.loads(file.read_text())["smoke"]:
            raise ValueError(f"{file} is of a smoke run, which measures nothing; run it without --smoke")
        (results / file.name).write_text(file.read_text())
        names.append(file.stem)
    return names


def page(results: Path = RESULTS) -> str:
    """The whole page; benchmarks without a result stand in its last section."""
    parts, missing = [HEAD], []
    for name, file in benchmarks().items():
        about = " ".join((ast.get_docstring(ast.parse(file.read_text())) or "").split("\n\n")[0].split())
        result = results / f"{name}.json"
        if result.exists():
            parts.append(_section(name, about, json.loads(result.read_text())))
        else:
            missing.append(f"* `benchmarks/{name}.py`: {about.replace('``', '`')}")
    if missing:
        parts.append(
            "\n".join(["## Not on this page", "", "These take longer, or need data or a GPU:", "", *missing, ""])
        )
    return "\n".join(parts)


def _section(name: str, about: str, record: dict[str, Any]) -> str:
    peers = [f"{peer} {version or 'not installed'}" for peer, version in record["peers"].items()]
    machine = "; ".join([record["machine"], *(["peers: " + ", ".join(peers)] if peers else [])])
    lines = [f"## {name}", "", about.replace("``", "`"), "", f"`benchmarks/{name}.py`", ""]
    for table in record["tables"]:
        lines += [f"**{_cell(table['title'])}**", "", _row(table["columns"])]
        lines.append(_row(["---:"] * len(table["columns"])))
        lines += [_row(row) for row in table["shown"]]
        lines += ["", *([_cell(table["note"]), ""] if table["note"] else [])]
    return "\n".join([*lines, f"<small>{_cell(machine)}</small>", ""])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell if cell == '---:' else _cell(cell) for cell in cells)} |"


def _cell(text: str) -> str:
    """Text that Markdown and its tables leave as it is."""
    for sign in "\\|*_<$`[":
        text = text.replace(sign, f"\\{sign}" if sign != "<" else "&lt;")
    return " ".join(text.split())


def main(arguments: Sequence[str] | None = None) -> int:
    """Adopt a folder's results, if one is named, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "folder", nargs="?", type=Path, help="where make bench wrote its JSON; its whole runs are kept in results"
    )
    options = parser.parse_args(arguments)
    if options.folder is not None:
        print(f"kept: {', '.join(adopted(options.folder)) or 'nothing'}")
    PAGE.write_text(page())
    print(f"wrote {PAGE.relative_to(FOLDER.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
