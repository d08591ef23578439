"""The page of the five papers: complete, and whatever it names exists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from paper_items import ITEMS

from surefoot._core.registry import SYSTEMS
from surefoot._core.system import Certifiable
from surefoot_experiments import EXPERIMENTS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "papers.md").read_text()
VERDICTS = ("holds", "corrected", "false", "run again", "not computed")
Row = tuple[str, str, str, str, str]


def rows() -> dict[str, list[Row]]:
    """The rows of each paper's table: item, about, verdict, code, evidence."""
    found: dict[str, list[Row]] = {}
    for section in PAGE.split("\n## ")[1:]:
        lines = re.findall(r"^\| (.*) \|$", section, re.MULTILINE)[2:]
        cells = [[cell.strip() for cell in line.split("|")] for line in lines]
        found[section.partition("\n")[0]] = [(c[0], c[1], c[2], c[3], c[4]) for c in cells]
    return found


ROWS = rows()


def exists(name: str) -> bool:
    """Whether this is a module, or an attribute of one."""
    module, attributes = name.replace("sf.", "surefoot.", 1) if name.startswith("sf.") else name, list[str]()
    while module:
        try:
            value = importlib.import_module(module)
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            attributes.insert(0, last)
        else:
            for attribute in attributes:
                value = getattr(value, attribute, None)
            return value is not None
    return False


def test_no_item_of_a_paper_is_missing() -> None:
    assert {paper: sorted(row[0] for row in found) for paper, found in ROWS.items()} == {
        paper: sorted(items) for paper, items in ITEMS.items()
    }


@pytest.mark.parametrize("paper", ITEMS)
def test_every_verdict_is_one_and_rests_on_something(paper: str) -> None:
    for item, _, verdict, code, evidence in ROWS[paper]:
        assert verdict.startswith(VERDICTS), item
        assert evidence or code or verdict.startswith("not computed:"), item
        if verdict.startswith(("false", "corrected")):
            assert "test_" in evidence, f"{item} needs its counterexample"
        if verdict.startswith("not computed"):
            assert ": " in verdict, f"{item} needs a reason"


def test_what_the_page_names_exists() -> None:
    tests = set(
        re.findall(r"^def (test_\w+)", "\n".join(p.read_text() for p in ROOT.glob("tests/**/*.py")), re.MULTILINE)
    )
    theorems = {id for system in SYSTEMS if isinstance(system, Certifiable) for id in system.theorems()}
    unknown = []
    for name in re.findall(r"`([^` ]+)`", "\n".join(" ".join(row) for found in ROWS.values() for row in found)):
        known = (
            name in tests
            if name.startswith("test_")
            else name in theorems or name in EXPERIMENTS
            if "/" in name
            else exists(name)
        )
        if not known:
            unknown.append(name)
    assert not unknown


def outputs() -> dict[str, str]:
    """What follows the command of each experiment on the page of experiments."""
    page = (ROOT / "docs" / "experiments.md").read_text()
    parts = re.split(r"^(?=surefoot reproduce )|^#+ ", page, flags=re.MULTILINE)
    return {match[1]: part for part in parts if (match := re.match(r"surefoot reproduce (\S+)", part))}


def counted(output: str) -> tuple[int, int]:
    """How many claims of the paper agree, and how many were decided."""
    lines = re.findall(r"^\| (.*) \|$", output, re.MULTILINE)
    claims = [line for line in lines if not re.match(r"\(Not in the paper|.*\((our goal|not in the paper)\)", line)]
    agree = sum(" | agrees |" in line for line in claims)
    return agree, agree + sum(" | **differs** |" in line for line in claims)


def test_counts_of_claims_are_those_of_the_page_of_experiments() -> None:
    pages, seen = outputs(), 0
    for paper, found in ROWS.items():
        for item, _, verdict, _, evidence in found:
            if not verdict.startswith("run again"):
                continue
            said = re.search(r"\[(\d+) of (\d+) claims\]", verdict)
            assert said, item
            counts = [counted(pages[name]) for name in re.findall(r"`([^`]+)`", evidence) if name in pages]
            assert (int(said[1]), int(said[2])) == (sum(a for a, _ in counts), sum(n for _, n in counts)), (paper, item)
            seen += 1
    assert seen >= 25
