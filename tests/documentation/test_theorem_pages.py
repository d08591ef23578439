"""Each page on a theorem says when it says nothing, with numbers that stand where they are linked to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from markdown.extensions.toc import slugify, unique

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted((DOCS / "theorems").glob("*.md"))
HEADING = "\n## When it says nothing\n"


def sections(page: Path) -> dict[str, str]:
    """The text under each heading, by the anchor that mkdocs gives it."""
    found: dict[str, str] = {}
    used: set[str] = set()
    for part in re.split(r"^#{1,4} ", page.read_text(), flags=re.MULTILINE)[1:]:
        title, _, text = part.partition("\n")
        found[unique(slugify(re.sub(r"[`*$]", "", title), "-"), used)] = text
    return found


def said(page: Path) -> str:
    """The section, up to the next one."""
    return page.read_text().partition(HEADING)[2].partition("\n## ")[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_says_when_its_theorem_says_nothing(page: Path) -> None:
    assert page.read_text().count(HEADING) == 1
    assert len(said(page).split()) > 30


def test_numbers_stand_where_they_are_linked_to() -> None:
    known = {name: sections(DOCS / name) for name in ("experiments.md", "learned.md")}
    numbers = 0
    for page in PAGES:
        for text, name, anchor in re.findall(r"\[(\d[^\]]*)\]\(\.\./(\w+\.md)#([^)]+)\)", said(page)):
            section = known[name][anchor]
            assert re.search(rf"(?<![\d.,]){re.escape(text)}(?![\d]|[.,]\d)", section), (page.name, text, anchor)
            numbers += 1
    assert numbers > 30
