"""One page over several runs: its rows and links, its plot, its differences, and what is no run."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import surefoot as sf
from surefoot._core.recertification import Recertification
from surefoot._report import comparison, write
from surefoot._report.comparison import write_comparison
from surefoot._report.entries import entries
from surefoot._report.facts import Facts
from surefoot._report.page import page as page_of

EVIL = '<script>alert("x")</script>&'


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of one network, a learned inverse's certificate, and a training without a certificate."""
    place = tmp_path_factory.mktemp("several")
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    loss = sf.SquaredLoss(X, X @ torch.ones(3, 2, dtype=torch.float64))
    for name, steps, limit in (("fast", None, 200), ("slow", 1e-5, 40)):
        net = sf.nn.TwoLayerLinear.gaussian(3, 2, 12, std=0.3, seed=1)
        sf.descend(
            net,
            loss,
            steps=steps,
            max_iterations=limit,
            tolerance=1e-8,
            certificate=sf.certify(net, loss),
            directory=place / "runs" / name,
            config={"data": {"data": EVIL, "width": 12}},
        )
    sf.nn.LearnedInverse.chebyshev(3, 4, (0.1, 1.0)).save_certificate(place / "inverse", (0.1, 1.0))
    (place / "trained").mkdir()
    (place / "trained" / "settings.json").write_text(json.dumps({"system": "svd", "options": {"seed": 3}}))
    return place


@pytest.fixture(scope="module")
def page(several: Path) -> str:
    """The page over all of it."""
    return write_comparison([several], several / "index.html").read_text()


def rows_of(page: str) -> list[str]:
    """Those of the first table, without markup."""
    body = page[page.index("<tbody>") : page.index("</tbody>")]
    return [" ".join(re.sub(r"<[^>]*>", " ", row).replace("&nbsp;", " ").split()) for row in body.split("</tr>")[:-1]]


def test_the_table(several: Path, page: str) -> None:
    inverse, fast, slow, trained = rows_of(page)
    assert inverse.startswith("1 inverse inverse/interval a certificate; no run ✓ holds – – – – ✓ accept")
    run = sf.Run.load(several / "runs" / "fast")
    guaranteed = int(run.guaranteed_iterations(1e-8))
    assert fast.startswith(f"2 runs/fast two-layer/drift ✓ holds {guaranteed:,} {run.iterations:,} ")
    assert fast.endswith("✓ holds ✓ accept")
    assert slow.startswith("3 runs/slow two-layer/drift ✓ holds none 40 ")
    assert slow.endswith("not certified ✗ reject")  # its steps are none of the theorem's, and it is above the bound
    assert trained.startswith("4 trained svd ") and trained.endswith("– – – – – –")


def test_a_count_is_of_the_run_s_own_target_and_names_its_probability(
    several: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fast = shutil.copytree(several / "runs" / "fast", tmp_path / "fast")
    first = sf.Run.load(fast)
    config = json.loads((fast / "config.json").read_text())
    (fast / "config.json").write_text(json.dumps({**config, "absolute_tolerance": 1e-2 * first.gaps[0]}))
    fewer = int(first.guaranteed_iterations(1e-2))
    assert fewer < first.guaranteed_iterations(1e-8)
    monkeypatch.setattr(sf.Run, "probability", 0.99)
    page = write_comparison([fast], tmp_path / "page.html").read_text()
    assert f" ✓ holds {fewer:,} with probability 0.99 " in rows_of(page)[0]


def test_a_certificate_that_does_not_hold_has_no_count_along_a_run(several: Path) -> None:
    """A refuted theorem keeps its schedule, so that an audit can show where a run breaks it."""
    run = sf.Run.load(several / "runs" / "fast")
    refuted = dataclasses.replace(run.certificate, status=sf.CertificateStatus.REFUTED)
    assert refuted.schedule
    again = dataclasses.replace(run, recertified=[Recertification(1, refuted)])
    text = page_of(Facts.of(again), {"gap": "", "steps": "", "conditions": ""}, "0")
    (row,) = [row for row in rows_of(text[text.index('id="certificates-along-the-run"') :]) if row.startswith("1 ")]
    assert row.startswith("1 ✗ fails ") and row.endswith(" none no")


def test_links_are_relative_and_lead_to_reports(several: Path, page: str, tmp_path: Path) -> None:
    assert re.findall(r'href="([^"#]*)"', page) == ["runs/fast/report.html", "runs/slow/report.html"]
    assert all((several / link).is_file() for link in ("runs/fast/report.html", "runs/slow/report.html"))
    away = write_comparison([several / "runs" / "fast", several / "inverse"], tmp_path / "a" / "page.html")
    links = re.findall(r'href="([^"#]*)"', away.read_text())
    assert [(away.parent / link).resolve() for link in links] == [(several / "runs/fast/report.html").resolve()]


def test_the_page_stands_alone_and_names_are_escaped(several: Path, page: str, tmp_path: Path) -> None:
    assert page.count("<script") == 1  # that of every report
    assert not re.search(r'(src|@import|url)\s*[=(]\s*["\']?https?:', page)
    evil = tmp_path / "<img src=x>"
    shutil.copytree(several / "runs", evil)
    (tmp_path / "own").mkdir()
    shutil.copytree(several / "runs" / "fast", tmp_path / "own" / "run")
    config = json.loads((tmp_path / "own" / "run" / "config.json").read_text())
    (tmp_path / "own" / "run" / "config.json").write_text(json.dumps({**config, "data": {"data": EVIL + "2"}}))
    text = write_comparison([tmp_path], tmp_path / "index.html").read_text()
    assert "<img" not in text and text.count("<script") == 1
    assert "&lt;img src=x&gt;/fast" in text and "&lt;script&gt;alert(&quot;x&quot;)" in text
    assert 'href="%3Cimg%20src%3Dx%3E/fast/report.html"' in text


def test_one_plot_for_gaps_that_mean_the_same(page: str) -> None:
    assert page.count("<figure") == 1
    assert "2 runs/fast" in page[page.index("<figcaption") :] and "3 runs/slow" in page[page.index("<figcaption") :]
    assert re.search(r"2 runs/fast: [^;]* after \d+, guaranteed by \d+", page)
    assert not re.search(r"3 runs/slow: [^;.]*guaranteed", page)


def test_the_bound_is_relative_and_above_the_run(several: Path) -> None:
    _, fast, slow, _ = entries([several])
    assert fast.gaps[0] == 1.0 and len(fast.gaps) == len(slow.gaps) + fast.run.iterations - 40  # pyright: ignore[reportOptionalMemberAccess]
    assert all(gap <= fast.bound(t) * (1.0 + 1e-9) for t, gap in enumerate(fast.gaps))
    assert slow.bound(0) != slow.bound(0)  # nothing is guaranteed of it


def test_differences(page: str) -> None:
    shown = page[page.index('<h2 id="differences"') :]
    assert "<code>rule</code>" in shown and "<code>max_iterations</code>" in shown
    assert "<code>tolerance</code>" not in shown and "<code>data.width</code>" not in shown
    assert "certified-bb" in shown and "constant" in shown


def test_known_checks_are_not_repeated(several: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    def check(directory: Path, **options: object) -> object:
        asked.append(directory)
        raise AssertionError

    monkeypatch.setattr(comparison, "check", check)
    known = {several / "runs" / name: "undecided" for name in ("fast", "slow")}
    text = write_comparison([several / "runs"], tmp_path / "page.html", known).read_text()
    assert asked == [] and text.count("✗ undecided") == 2


def test_a_report_older_than_its_run_is_written_again(several: Path, tmp_path: Path) -> None:
    shutil.copytree(several / "runs" / "fast", tmp_path / "fast")
    report = write(tmp_path / "fast")
    report.write_text("old")
    (entry,) = entries([tmp_path])
    assert entry.report() == report and report.read_text() == "old"
    later = report.stat().st_mtime + 1.0  # clocks of files are coarse
    os.utime(tmp_path / "fast" / "config.json", (later, later))
    assert entry.report() == report and report.read_text() != "old"


def test_what_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(sf.RunDirectoryError, match="holds no run, and none below it"):
        entries([tmp_path])
    with pytest.raises(sf.RunDirectoryError, match="absent is not a directory"):
        entries([tmp_path / "absent"])


def test_one_run_twice_is_one_row(several: Path) -> None:
    assert [entry.name for entry in entries([several / "runs", several / "runs" / "fast"])] == ["fast", "slow"]


def test_from_python(several: Path, tmp_path: Path) -> None:
    fast = sf.Run.load(several / "runs" / "fast")
    page = sf.compare_runs([fast, str(several / "runs" / "slow")], tmp_path / "page.html")
    assert page == tmp_path / "page.html"
    assert [row.split()[0] for row in rows_of(page.read_text())] == ["1", "2"]
    with pytest.raises(sf.RunDirectoryError, match="in memory only; write it first"):
        sf.compare_runs([dataclasses.replace(fast, directory=None)], page)
    with pytest.raises(sf.RunDirectoryError, match="no directory is given"):
        sf.compare_runs([], page)
    wrong: Any
    for wrong in (fast, str(several), several, None, 3):
        with pytest.raises(TypeError, match=r"runs is .*; pass a list of runs or directories"):
            sf.compare_runs(wrong, page)
    with pytest.raises(TypeError, match="runs is 3"):
        sf.compare_runs([3], page)  # type: ignore[list-item]
