"""What the commands print, on terminals of several widths and without one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from surefoot._cli import layout
from surefoot._cli.screen import PLAIN_WIDTH, Screen
from surefoot.cli import main

WIDTHS = (44, 80, 200)
LONG = "runs/a-directory-with-a-name-that-is-longer-than-a-narrow-terminal-is-wide/report.html"


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What a function prints at a width."""

    def at(width: int, show: Callable[[], object]) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        capsys.readouterr()
        show()
        return capsys.readouterr().out

    return at


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a table and a short run on it."""
    place = tmp_path_factory.mktemp("trained")
    random = np.random.default_rng(0)
    X = random.standard_normal((40, 4))
    np.savetxt(place / "table.csv", np.column_stack([X, X.sum(1) + random.standard_normal(40)]), delimiter=",")
    data, out = str(place / "table.csv"), str(place / "run")
    assert main(["train", "two-layer", "--data", data, "--width", "20", "--out", out, "--quiet"]) == 0
    return place


def whole(text: str) -> set[str]:
    """The words of a text, without what a record puts behind them."""
    return {word.removesuffix(";") for word in text.split() if set(word) != {"─"}}


@pytest.mark.parametrize(
    "command",
    [
        "certify two-layer --data {place}/table.csv --width 20",
        "train two-layer --data {place}/table.csv --width 20 --max-iterations 3 --out {out}",
        "train inverse --size 3x4 --count 3 --epochs 2 --out {out}",
        "list",
    ],
)
def test_no_word_is_broken_at_any_width(
    shown: Callable[..., str], trained: Path, tmp_path: Path, command: str, without_report: None
) -> None:
    def run(width: int) -> str:
        given = command.format(place=trained, out=tmp_path / f"{width:03}")
        return shown(width, lambda: main(given.split()))

    said = {width: run(width).replace(str(tmp_path / f"{width:03}"), "OUT") for width in (*WIDTHS, 1000)}
    seconds = {
        word for text in said.values() for word in whole(text) if word.replace(".", "").isdigit() and "." in word
    }
    for width in WIDTHS:
        missing = whole(said[1000]) - whole(said[width])
        assert missing <= seconds, (width, missing)
        for line in said[width].splitlines():
            assert line == line.rstrip()
            assert len(line) <= width or line.startswith("  surefoot ") or " " not in line.strip() or "OUT" in line


@pytest.mark.parametrize("width", WIDTHS)
def test_a_command_is_one_line_and_a_path_stays_whole(shown: Callable[..., str], width: int) -> None:
    command = f"surefoot train two-layer --out {LONG} --resume --max-iterations 100000"

    def show() -> None:
        screen = Screen()
        screen.following("", {command: "go on with the run that was interrupted, with more iterations than before"})
        screen.pairs({"report": LONG})
        screen.table(("name", "report"), [("first", LONG), ("second", "none")])
        screen.say(f"the report is {LONG} and nothing else")

    text = shown(width, show)
    assert f"  {command}" in text.splitlines()
    assert text.count(LONG) == 4


@pytest.mark.parametrize(("width", "records"), [(44, True), (80, False)])
def test_a_table_without_room_becomes_records(shown: Callable[..., str], width: int, records: bool) -> None:
    columns = ("", "hypothesis", "left", "", "right", "margin")
    rows = [("holds", "the residual is small: 2 Lambda r0 < sigma_min(J)^2", "0.0473", "<", "0.1113", "×2.352")]
    text = shown(width, lambda: Screen().table(columns, rows, numeric=(2, 4, 5)))
    assert ("  left 0.0473 < right 0.1113; margin ×2.352\n" in text) == records
    assert text.startswith("hypothesis\nholds  the residual is small:") == records


def test_numbers_stay_whole() -> None:
    text = "weights moved by 9.55 % of their norm, the gap to 2.3 × 10⁻³ of the first in 12.4 s"
    for width in range(8, 60):
        lines = ["".join(part for part, _ in line) for line in layout.paragraph(text, width)]
        assert " ".join(line.strip() for line in lines) == text
        assert all(any(number in line for line in lines) for number in ("9.55 %", "2.3 × 10⁻³", "12.4 s"))


def test_wide_characters_count_as_two_cells() -> None:
    lines = layout.table(("数据", "n"), [[("漢字漢字", ""), ("1", "")]], [1], 80)
    assert "".join(part for part, _ in lines[2]) == "漢字漢字   1"
    assert "".join(part for part, _ in lines[0]) == "数据       n"


def test_without_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert Screen().console.width == PLAIN_WIDTH
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)
        screen = Screen()
        screen.heading("Result", "converged")
        screen.table(("", "n"), [("holds", "1")])
        assert "\x1b" not in capsys.readouterr().out


def test_names_from_files_draw_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    screen.say("[red]a[/red] :smile: \x1b[31mb")
    screen.table(("name",), [("\x1b[2J",)])
    text = capsys.readouterr().out
    assert "[red]a[/red] :smile: \\x1b[31mb" in text
    assert "\x1b" not in text
