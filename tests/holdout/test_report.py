"""The report of a holdout certificate: what it says, what it draws, and what it does with damaged files."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest

import surefoot as sf
from surefoot._holdout.plot import draw
from surefoot._holdout.report import write
from surefoot._holdout.report_context import Context, Others
from surefoot.cli import main

COUNTS = [int(k) for k in np.random.default_rng(0).integers(5, 50, 100)]


def certificate(counts: list[int], limit: int = 60) -> sf.learned.HoldoutCertificate:
    """Of a solver whose problems are their counts."""
    return sf.learned.certify_holdout(
        lambda count: count,
        counts,
        gap=1e-3,
        coverage=0.9,
        confidence=0.95,
        iterations=limit,
        name="<own> solver",
        progress=False,
    )


def read(directory: Path) -> str:
    """The text of the page."""
    return " ".join(unescape(re.sub("<[^>]*>", " ", (directory / "report.html").read_text())).split())


def test_the_statement_and_what_it_rests_on(tmp_path: Path) -> None:
    found = certificate(COUNTS)
    found.save(tmp_path)
    assert write(tmp_path) == tmp_path / "report.html"
    text = read(tmp_path)
    assert "✓ GUARANTEED WITH CONFIDENCE 95 %" in text
    assert found.statement in text
    assert all(said in text for said in found.hypotheses)
    assert "no difference found" in text and "✗" not in text
    source = (tmp_path / "report.html").read_text()
    assert "<own>" not in source and "http" not in source.replace("http-equiv", "")
    assert (tmp_path / "plots" / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert main(["report", str(tmp_path)]) == 0


def test_the_table_is_that_of_the_curve(tmp_path: Path) -> None:
    found = certificate(COUNTS)
    found.save(tmp_path)
    write(tmp_path)
    rows = re.findall(r"(\d+) (\d+) of 100 ([\d.]+) % ([\d.]+) %", read(tmp_path))
    assert str(found.iterations) in [row[0] for row in rows]
    for k, solved, alone, together in rows:
        assert int(solved) == sum(count <= int(k) for count in COUNTS)
        assert 100.0 * found.coverage_at(int(k)) >= float(alone) >= float(together)


def test_problems_in_an_order_are_no_guarantee(tmp_path: Path) -> None:
    certificate(sorted(COUNTS)).save(tmp_path)
    write(tmp_path)
    text = read(tmp_path)
    assert "✗ THE ORDER OF THE PROBLEMS MATTERS" in text and "GUARANTEED" not in text


def test_less_than_was_asked_for(tmp_path: Path) -> None:
    found = certificate(COUNTS, limit=20)
    found.save(tmp_path)
    write(tmp_path)
    text = read(tmp_path)
    assert "✗ LESS IS PROVED THAN WAS ASKED FOR" in text and found.statement in text


def test_what_stands_beside_the_certificate(tmp_path: Path) -> None:
    certificate(COUNTS).save(tmp_path)
    Context("100 problems", 80, "step-sizes/rate", Others("slow ones", (40, 59, -1, 10), 1e-9)).write(tmp_path)
    write(tmp_path)
    text = read(tmp_path)
    assert "100 problems" in text and "Worst case 80" in text
    assert re.search(r"against slow ones 4 50 % .*✗ differ", text)
    (tmp_path / "context.json").write_text('{"data": "", "bound": "many", "theorem": "", "others": null}')
    with pytest.raises(sf.RunDirectoryError, match=r"context\.json is damaged"):
        write(tmp_path)


@pytest.mark.parametrize(
    ("counts", "p_value", "bound"),
    [((), 0.5, None), ((-7, 3), 0.5, None), ((10**30,), 0.5, None), ((3,), float("nan"), None), ((3,), 0.5, -4)],
)
def test_numbers_that_stand_beside_it_and_cannot_be_are_an_error(
    counts: tuple[int, ...], p_value: float, bound: int | None, tmp_path: Path
) -> None:
    Context("", bound, "", Others("others", counts, p_value)).write(tmp_path)
    with pytest.raises(sf.RunDirectoryError, match=r"context\.json is damaged"):
        Context.read(tmp_path)


@pytest.mark.parametrize("name", ["certificate.json", "counts.safetensors"])
def test_damaged_files_are_an_error(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    certificate(COUNTS).save(tmp_path)
    file = tmp_path / name
    file.write_bytes(file.read_bytes()[:-20])
    assert main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "report.html").exists()


def test_the_curve_that_is_drawn() -> None:
    found = certificate(COUNTS)
    figure = draw(found.record, found.counts.numpy(), {"others": np.array([3, -1])}, 70.0)
    above, below = figure.axes
    lines = {str(line.get_label()): np.asarray(line.get_xydata()) for line in above.lines}
    k = found.iterations
    assert lines[f"claimed: 90 % within {k}"].tolist() == [[k, 0.9]]
    counted = lines["counted, on 100 held-out problems"]
    assert counted[counted[:, 0] <= 20][-1, 1] == np.mean(np.array(COUNTS) <= 20)
    assert lines["others"][-1, 1] == 0.5
    proved = lines["at least, for one k chosen in advance"]
    assert proved[proved[:, 0] <= 20][-1, 1] == pytest.approx(found.coverage_at(20))
    assert lines["worst case, by a theorem: 70"][0, 0] == 70.0
    assert below.get_yscale() == "log"
    far = draw(found.record, found.counts.numpy(), bound=10_000.0)
    assert not any("worst case" in str(line.get_label()) for line in far.axes[0].lines)
    assert far.axes[0].get_xlim()[1] < 60.0
