"""The report of a directory of layers: what it says, and what it does with damaged files."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest

import surefoot as sf
from surefoot._layers.report import draw, write
from surefoot.cli import main
from surefoot_check.rigor.bounds import FAST
from surefoot_check.run_files import Content
from surefoot_check.step_sizes.layers.files import read


@pytest.fixture(scope="module")
def run() -> sf.learned.LayersRun:
    return sf.learned.train_layers(sf.learned.LeastSquares.random(3, 4, 6), 4)


def text_of(directory: Path) -> str:
    """The text of the page."""
    return " ".join(unescape(re.sub("<[^>]*>", " ", (directory / "report.html").read_text())).split())


def test_what_the_page_says(run: sf.learned.LayersRun, tmp_path: Path) -> None:
    run.save(tmp_path)
    assert write(tmp_path) == tmp_path / "report.html"
    text = text_of(tmp_path)
    # both from the directory above
    assert (
        f"surefoot check {tmp_path.name}" in text and f"LayeredSteps.load('{tmp_path.name}/layers.safetensors')" in text
    )
    assert run.not_worse and "✓ NOT WORSE THAN THE BEST CONSTANT STEP" in text
    falls = re.search(r"to ([\d.]+) in 4 layers;.*leave at least ([\d.]+)\.", text)
    assert falls is not None
    final, least = map(float, falls.groups())
    assert run.objectives[-1] <= final == pytest.approx(run.objectives[-1], rel=1e-5)
    assert run.constant >= least == pytest.approx(run.constant, rel=1e-5)
    assert "Beside other methods" not in text
    assert not re.search("https?://(?!www.w3.org)", (tmp_path / "report.html").read_text())
    assert (tmp_path / "plots" / "layers.png").read_bytes().startswith(b"\x89PNG")
    rows = re.findall(r" (\d) ([\d.]+) ([\d.]+) ([\d.]+) ", text)
    assert [float(row[1]) for row in rows[-4:]] == pytest.approx(run.objectives[1:], rel=1e-5)


def test_layers_that_were_not_kept_are_said_so(run: sf.learned.LayersRun, tmp_path: Path) -> None:
    """The best constant step was better, or training was interrupted."""
    replace(run, trained=0).save(tmp_path)
    write(tmp_path)
    assert "Trained and kept: 0 layers of 4; the others are those of the schedule." in text_of(tmp_path)


def test_a_table_of_methods_is_shown_as_it_is(run: sf.learned.LayersRun, tmp_path: Path) -> None:
    run.save(tmp_path)
    (tmp_path / "comparison.txt").write_text("method <b> & gap\nGD  1\n")
    write(tmp_path)
    assert "method &lt;b&gt; &amp; gap\nGD  1" in (tmp_path / "report.html").read_text()


def test_what_is_drawn(run: sf.learned.LayersRun, tmp_path: Path) -> None:
    run.save(tmp_path)
    stored = read(tmp_path, Content.read(tmp_path / "certificate.json").record, FAST)
    left, right = draw(stored, {"other": [1.0] * 5}).axes
    assert np.asarray(left.lines[0].get_ydata()).tolist() == list(run.objectives)
    assert [line.get_label() for line in left.lines] == ["trained layers", "other"]
    assert np.asarray(right.lines[0].get_ydata()).tolist() == [g / v for g, v in zip(run.gaps, run.values, strict=True)]


@pytest.mark.parametrize("name", ["certificate.json", "layers.safetensors", "iterates.safetensors"])
def test_damaged_files_are_an_error(
    name: str, run: sf.learned.LayersRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run.save(tmp_path)
    file = tmp_path / name
    content = bytearray(file.read_bytes())
    content[-20 if name != "certificate.json" else 0] ^= 1
    file.write_bytes(content)
    assert main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "report.html").exists()
