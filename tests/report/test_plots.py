"""The drawings of a report."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from reported_runs import PLOTS, certified, paper

import surefoot as sf
from surefoot._report import plots
from surefoot._report.facts import Facts
from surefoot._report.page import page as document


def test_margins_are_drawn_where_there_are_any(reports) -> None:
    _, _, page = reports(paper)
    assert 'id="conditions-caption"' in page
    assert "margin in powers of ten" in page
    assert 'id="conditions-caption"' not in reports(certified)[2]  # every side there is beside a zero


def test_margins_too_small_to_see_are_not_drawn(tmp_path: Path, reports) -> None:
    run, directory, _ = reports(paper)
    shown = 'id="conditions-caption"'
    for size, drawn in ((0.02, True), (0.005, False)):
        near = [dataclasses.replace(c, margin=size) for c in run.certificate.conditions]
        changed = dataclasses.replace(run, certificate=dataclasses.replace(run.certificate, conditions=tuple(near)))
        facts = dataclasses.replace(Facts.of(sf.Run.load(directory)), run=changed)
        assert (shown in document(facts, dict.fromkeys(PLOTS, ""), "0")) is drawn


@pytest.mark.parametrize("widest", [0.3, 4.0])
def test_words_of_a_bar_stand_inside_the_drawing_and_do_not_leave_their_bar(reports, widest: float) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # not above: heavy at every collection

    certificate = reports(paper)[0].certificate
    margins = [-widest, widest, -0.4 * widest, 0.6 * widest, -0.05 * widest, 0.9 * widest]
    like = next(c for c in certificate.conditions if c.margin is not None)
    conditions = tuple(
        dataclasses.replace(like, left=1.23456e-11, right=9.87654e12, margin=m, holds=m > 0.0) for m in margins
    )
    figure = plots._conditions(dataclasses.replace(certificate, conditions=conditions))
    figure.set_dpi(100)
    FigureCanvasAgg(figure).draw()
    axes = figure.axes[0]
    words = [t for t in axes.texts if t.get_fontsize() == 8.5]
    assert len(words) == len(margins)
    for said, bar in zip(words, axes.patches, strict=True):
        box, drawn = said.get_window_extent(), bar.get_window_extent()
        assert box.x0 >= 0.0
        assert box.x1 <= figure.bbox.x1
        inside = said.get_color() == plots.PAPER
        overlap = min(box.x1, drawn.x1) - max(box.x0, drawn.x0)
        assert overlap == pytest.approx(box.width) if inside else overlap <= 0.0


def test_bounds_look_different() -> None:
    """All that a report can have: colours or dashes of each two differ."""
    assert len({(plots.BOUNDS[i % len(plots.BOUNDS)], plots.DASHES[i % len(plots.DASHES)]) for i in range(12)}) == 12
