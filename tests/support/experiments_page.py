"""docs/experiments.md against what an experiment prints: every row of a table on the page, and every verdict."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from surefoot_experiments.result import Experiment, Table

PAGE = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text()
VERDICTS = {True: "agrees", False: "**differs**", None: "–"}
NUMBER = re.compile(r"(?<![\w.^])-?\d[\d,]*\.?\d*(?:e[+-]?\d+)?")
ROUNDING = 1e-6
"""Numbers below this are equal: what rounding leaves."""


def section(name: str) -> str:
    """What the page has between the command of an experiment and the next one, or the next heading."""
    begin = re.search(rf"^surefoot reproduce {name}\b", PAGE, re.MULTILINE)
    assert begin is not None, name
    return re.split(r"^surefoot reproduce|^#", PAGE[begin.end() :], maxsplit=1, flags=re.MULTILINE)[0]


def tables(name: str) -> list[list[dict[str, str]]]:
    """The tables of that section, each row by column name."""
    found: list[list[list[str]]] = [[]]
    for line in section(name).splitlines():
        if line.startswith("|"):
            cells = line.replace("\\|", "\0").strip("|").split("|")
            found[-1].append([cell.replace("\0", "|").strip() for cell in cells])
        elif found[-1]:
            found.append([])
    return [[dict(zip(table[0], row, strict=True)) for row in table[2:]] for table in found if table]


def compare(experiment: Experiment, relative: float = 0.02, measured: float = 0.1) -> None:
    """Assert that the page has what the program printed.

    Columns that the page leaves out are not compared; ``data`` on the page is the title of a table. ``relative``: of numbers in
    tables; ``measured``: of those in the words beside a claim.
    """
    seen: set[str] = set()
    claims: list[dict[str, str]] = []
    for rows in tables(experiment.name):
        if "claim" in rows[0]:
            claims += rows
            continue
        for row in rows:
            title = next((t.title for t in experiment.tables if _has(t, row, relative)), None)
            assert title is not None, f"{experiment.name}: the program has no row {row}"
            seen.add(title)
    assert seen, experiment.name
    assert [row["claim"] for row in claims] == [finding.claim for finding in experiment.findings]
    for row, finding in zip(claims, experiment.findings, strict=True):
        assert row[""] == VERDICTS[finding.agrees], row
        assert NUMBER.sub("#", row["measured"]) == NUMBER.sub("#", finding.measured)
        numbers = [[_number(text) for text in NUMBER.findall(said)] for said in (row["measured"], finding.measured)]
        assert numbers[0] == pytest.approx(numbers[1], rel=measured, abs=ROUNDING), row


def _has(table: Table, row: dict[str, str], relative: float) -> bool:
    wanted = dict(row)
    if wanted.pop("data", table.title) != table.title or not wanted.keys() <= set(table.columns):
        return False
    return any(all(_same(record[name], cell, relative) for name, cell in wanted.items()) for record in table.records())


def _same(value: str | float | None, cell: str, relative: float) -> bool:
    if value is None or isinstance(value, str | bool):
        return cell == {None: "–", True: "yes", False: "no"}.get(value, value)
    return bool(NUMBER.fullmatch(cell)) and _number(cell) == pytest.approx(value, rel=relative, abs=ROUNDING)


def _number(text: str) -> float:
    return float(text.replace(",", ""))
