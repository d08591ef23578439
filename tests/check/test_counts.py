"""The numbers of changed run directories that the guide to the checker names are those that the tests make."""

from __future__ import annotations

import re
from pathlib import Path

from counts import by_generators, by_hand, two_of_each

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "checker.md").read_text()
NEAR = 0.05
"""Relatively; fields and files come and go with the systems."""


def test_the_guide_says_how_many_changes_are_tried(tmp_path: Path) -> None:
    changes, additions = by_generators(two_of_each(tmp_path))
    hand = by_hand()
    counted = {name: [hand.get(name, 0), changes[name], additions[name]] for name in changes}
    counted["all"] = [sum(column) for column in zip(*counted.values(), strict=True)]
    _, _, tested = GUIDE.partition("## How it is tested")
    rows = re.findall(r"^\| ([\w-]+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|$", tested, re.MULTILINE)
    stated = {name: [int(text.replace(",", "")) for text in numbers] for name, *numbers in rows}
    assert stated.keys() == counted.keys()
    for name, numbers in counted.items():
        assert all(abs(a - b) <= NEAR * b for a, b in zip(stated[name], numbers, strict=True)), (name, numbers)
