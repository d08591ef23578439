"""What counts as a line of code in the counts that CONTRIBUTING and the guide to the checker name."""

from __future__ import annotations

from lines import PARTS, counted, lines_of_code, table

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


def test_every_part_is_counted(tmp_path) -> None:
    file = tmp_path / "one.py"
    file.write_text(SOURCE)
    assert counted([file, file]) == (2 * len(SOURCE.splitlines()), 14)
    found = table({"checker": PARTS["checker"]})
    assert all(1000 < code < every for every, code in found.values())
    behind = [found[name] for name in found if name not in PARTS]
    assert behind and all(numbers < found["checker"] for numbers in behind)
