"""What counts as a line of code in the counts that CONTRIBUTING and the guide to the checker name."""

from __future__ import annotations

import re
from pathlib import Path

from lines import PARTS, ROOT, behind, counted, files_of_checker, lines_of_code, table

GUIDE = (ROOT / "docs" / "checker.md").read_text()
NEAR = 0.1
"""How far, relatively, the numbers of the guide may be from those counted; and by five lines, of small files."""

SOURCE = '''"""Of a module,
two lines."""

# a comment
TEXT = """of two
lines"""  # both count
"""Of a value."""


def f(x):
    """Of a function."""
    return [
        x,

        # another comment
        x,
    ]
'''


def test_comments_docstrings_and_blank_lines_are_no_code() -> None:
    assert lines_of_code(SOURCE) == 2 + 1 + 4


def test_every_part_is_counted(tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    file.write_text(SOURCE)
    assert counted([file, file]) == (2 * len(SOURCE.splitlines()), 14)
    found = table({"checker": PARTS["checker"]})
    assert all(1000 < code < every for every, code in found.values())
    behind = [found[name] for name in found if name not in PARTS]
    assert behind and all(numbers < found["checker"] for numbers in behind)


def said(row: str) -> list[int]:
    """The numbers of a row of the guide."""
    return [int(number.replace(",", "")) for number in re.findall(r"\| ([\d,]+) (?=\|)", row)]


def near(stated: int, counted: int) -> bool:
    return abs(stated - counted) <= NEAR * counted + 5


def test_the_guide_to_the_checker_names_every_file_with_its_lines() -> None:
    """In reading order: the shared files and those of two-layer networks; what only something else needs comes last."""
    rows = {name: said(row) for row, name in re.findall(r"^(\| `([\w/]+\.py)` \|.*)$", GUIDE, re.MULTILINE)}
    files = files_of_checker()
    assert rows.keys() == {name for name in files if "/" not in name or name.startswith(("rigor/", "two_layer/"))}
    wrong = {name: files[name] for name, stated in rows.items() if not all(map(near, stated, files[name]))}
    assert not wrong
    needed = behind("two-layer")
    assert set(list(rows)[: len(needed)]) == set(needed)


def test_the_guide_says_how_much_there_is_to_read_of_every_system() -> None:
    counts, files = table({"checker": PARTS["checker"]}), files_of_checker()
    reading, _, _ = GUIDE.partition("## The certificate file")
    for system in (name.removeprefix("behind ") for name in counts if name != "checker"):
        (row,) = re.findall(rf"^(\| {system} \| [\d,]+ \| [\d,]+ \| [\d,]+ \|)$", reading, re.MULTILINE)
        own = sum(files[name][0] for name in behind(system) if name.startswith(f"{system.replace('-', '_')}/"))
        assert all(map(near, said(row), (*counts[f"behind {system}"], own))), (row, counts[f"behind {system}"], own)
    (whole,) = re.findall(r"The whole checker has ([\d,]+) lines, ([\d,]+) of code", GUIDE)
    assert all(near(int(text.replace(",", "")), number) for text, number in zip(whole, counts["checker"], strict=True))
