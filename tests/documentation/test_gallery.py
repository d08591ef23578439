"""Script, page and files have the same pictures."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "gallery" / "make.py"
PAGE = (ROOT / "docs" / "gallery.md").read_text()
FILES = sorted((ROOT / "docs" / "images" / "gallery").iterdir())


def listed() -> dict[str, ast.expr]:
    """The names of the script's list, and how each is made, without running it."""
    for statement in ast.parse(SCRIPT.read_text()).body:
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == "PICTURES":
            assert isinstance(statement.value, ast.Dict)
            keys = [ast.literal_eval(key) for key in statement.value.keys if key]
            return dict(zip(keys, statement.value.values, strict=True))
    raise AssertionError("the script has no list of pictures")


def test_the_script_the_page_and_the_files_agree() -> None:
    shown = re.findall(r"^!\[[^\]]{20,}\]\(images/gallery/([\w-]+)\.png\)$", PAGE, re.MULTILINE)
    assert sorted(shown) == sorted(listed()) == [file.stem for file in FILES]


def test_pictures_are_small_and_whole() -> None:
    for file in FILES:
        assert file.suffix == ".png" and file.stat().st_size <= 60_000, file.name
        with Image.open(file) as image:
            image.load()
            assert image.width >= 400, file.name


def test_commands_of_the_page_are_those_that_made_its_figures() -> None:
    made = {
        call.args[0] for call in listed().values() if isinstance(call, ast.Call) and "reproduced" in ast.unparse(call)
    }
    assert {ast.literal_eval(name) for name in made} == set(re.findall(r"`surefoot reproduce (\S+)`", PAGE))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_script_makes_every_picture(tmp_path: Path) -> None:
    runpy.run_path(str(SCRIPT))["main"]([], tmp_path)
    assert [file.name for file in sorted(tmp_path.iterdir())] == [file.name for file in FILES]
