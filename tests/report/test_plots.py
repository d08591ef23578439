"""The drawings of a report."""

from __future__ import annotations

import dataclasses
import html
import math
import re
from itertools import combinations, pairwise

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from reported_runs import again, certified, deconvolution, implicit, lasso, lasso_rate, unmoved

import surefoot as sf
from surefoot._report import canvas, plots
from surefoot._report.drawing import LEGEND
from surefoot._report.facts import Facts
from surefoot._report.gap_plot import promises
from surefoot._report.iterations import Iterations
from surefoot._report.margins import limits
from surefoot._report.wording import number, sides, symbolic


def laid_out(figure):
    """The figure with its layout done, and the boxes of its visible texts."""
    figure.set_dpi(100)
    FigureCanvasAgg(figure).draw()
    texts = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    axes = [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
    ticks = [label for axis in axes for label in axis.get_ticklabels(which="both")]
    inside = {id(label) for axis in axes for label in _ticks_in_sight(axis)}
    return [(t.get_text(), t.get_window_extent()) for t in texts if id(t) in inside or t not in ticks]


def _ticks_in_sight(axis):
    low, high = sorted(axis.get_view_interval())
    return [
        tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high and tick.label1.get_visible()
    ]


def overlapping(boxes):
    return [(a, b) for (a, first), (b, second) in combinations(boxes, 2) if first.shrunk(0.98, 0.9).overlaps(second)]


def facts_of(reports, make) -> Facts:
    return Facts.of(sf.Run.load(reports(make)[1]))


@pytest.mark.parametrize(
    "make", [certified, again, implicit, deconvolution, lasso, unmoved], ids=lambda make: make.__name__
)
def test_the_gap_plot_reaches_what_is_guaranteed_and_its_words_do_not_touch(reports, make) -> None:
    facts = facts_of(reports, make)
    figure = plots.draw(facts, "gap")
    boxes = laid_out(figure)
    above, below = figure.axes
    assert not overlapping(boxes)
    assert all(box.x0 >= 0.0 and box.x1 <= figure.bbox.x1 for _, box in boxes)
    assert below.get_gid() == LEGEND
    for promise in promises(facts):
        assert any(promise.label == text for text, _ in boxes)
        for end, reached in zip(promise.ends, promise.reached, strict=True):
            assert end <= above.get_xlim()[1] == below.get_xlim()[1]
            if reached < math.inf:
                marks = [line for line in above.lines if line.get_marker() == "D"]
                at = [line.get_ydata()[0] for line in marks if line.get_xdata()[0] == reached]
                assert at and above.get_ylim()[0] <= min(at) <= facts.target * (1.0 + 1e-9)


def lines_of(axes, label: str):
    return [line for line in axes.lines if str(line.get_label()).startswith(label) and len(line.get_xdata()) > 1]


def test_the_bound_that_a_run_follows_has_a_halo_below_the_run(reports) -> None:
    above = plots.draw(facts_of(reports, implicit), "gap").axes[0]
    (run,), (bound,), (other,) = (
        lines_of(above, label) for label in ("this run", "implicit/spectral", "implicit/measured")
    )
    assert len(bound.get_path_effects()) == 2 and len(other.get_path_effects()) == 1
    assert bound.get_zorder() < run.get_zorder()


def test_every_phase_of_a_run_is_drawn_and_the_bound_is_that_of_its_certificate(reports) -> None:
    facts = facts_of(reports, again)
    assert len(facts.run.adopted) > 1
    above = plots.draw(facts, "gap").axes[0]
    drawn = [(int(line.get_xdata()[0]), int(line.get_xdata()[-1])) for line in lines_of(above, "certified again")]
    starts = [phase.iteration for phase in facts.run.adopted]
    assert {*starts} <= {start for start, _ in drawn}
    assert {*pairwise(starts)} <= {*drawn}  # a halo as far as each is followed
    certificate = facts.run.certificate
    (own,) = lines_of(above, "two-layer/drift")
    assert list(own.get_ydata()) == [certificate.bound(int(t)) for t in own.get_xdata()]


def test_a_sublinear_bound_is_drawn_as_it_falls(reports) -> None:
    facts = facts_of(reports, deconvolution)
    (curve,) = lines_of(plots.draw(facts, "gap").axes[0], "deconvolution/ladmm")
    times, values = curve.get_xdata(), curve.get_ydata()
    constant = facts.run.certificate.claim.constant
    assert len({*values}) > 30 and values[-1] <= min(facts.run.gaps)
    falling = [(t, value) for t, value in zip(times, values, strict=True) if t and value < values[0]]
    assert all(value >= 0.99 * constant / t for t, value in falling)


@pytest.mark.parametrize("ratio", [1.01, 2.9, 3.1, 42.0, 1e3, 1e6, 1e13])
@pytest.mark.parametrize("ran", [1, 7, 164, 50_000])
def test_the_iteration_axis_shows_run_and_guarantee_at_every_ratio(ratio: float, ran: int) -> None:
    axis = Iterations(ran, ratio * ran)
    places = [float(axis.place(t)) for t in (0.0, ran, ratio * ran)]
    assert places[0] == 0.0 and places[2] == pytest.approx(1.0)
    assert places[1] >= 0.3
    for place in (0.0, 0.1, 0.45, 0.55, 0.9, 1.0):
        assert float(axis.place(axis.at(place))) == pytest.approx(place)
    grid = axis.grid(0, ratio * ran)
    assert grid == sorted({*grid}) and grid[0] == 0 and grid[-1] == int(ratio * ran)
    if not axis.linear:
        for gap in (0.09, 0.2):
            ticks = [float(axis.place(t)) for t in axis.ticks(gap)]
            assert min(b - a for a, b in pairwise(ticks)) >= 0.999 * gap
            assert len(ticks) >= 3 and max(ticks) <= 1.0


LIKE = sf.Condition("imbalance: alpha1 < sigma_min(J)^2", 1.23456e-11, "<", 9.87654e12, True, 1.0)
MARGINS = [1.0, -1.0, 12.0, -12.0, 1e-9, 300.0]
ODD = [
    sf.Condition("no ratio: mu > 0", 3.0, ">", 0.0, True, None),
    sf.Condition("no ratio: mu > 0", -3.0, ">", 0.0, False, None),
    sf.Condition("none: mu <= 0", 0.0, "<=", 0.0, True, None),
    sf.Condition("not a number: mu > 0", math.nan, ">", 0.0, False, None),
    sf.Condition("infinite: mu <= 1", math.inf, "<=", 1.0, False, None),
]


@pytest.mark.parametrize(
    "conditions",
    [[], [LIKE], ODD[:1], MARGINS, ODD, [LIKE] * 30 + ODD],
    ids=["none", "one", "arrow", "wide", "odd", "many"],
)
def test_every_hypothesis_is_in_the_chart_with_both_sides(reports, conditions) -> None:
    facts = facts_of(reports, certified)
    conditions = [
        c if isinstance(c, sf.Condition) else dataclasses.replace(LIKE, margin=c, holds=c > 0.0) for c in conditions
    ]
    certificate = dataclasses.replace(facts.run.certificate, conditions=tuple(conditions))
    run = dataclasses.replace(facts.run, certificate=certificate)
    figure = plots.draw(dataclasses.replace(facts, run=run), "conditions")
    boxes = laid_out(figure)
    assert not overlapping(boxes)
    assert all(box.x0 >= 0.0 and box.x1 <= figure.bbox.x1 for _, box in boxes)
    said = [text for text, _ in boxes]
    left, right = limits(conditions)
    for row, condition in enumerate(conditions, 1):
        name = symbolic(condition.name, facts.words.symbols)
        assert f"{'✓' if condition.holds else '✗'} {name}" in said
        assert any(text.startswith(sides(condition)) for text in said)
        lines = [line for line in figure.axes[0].lines if row - 1 < line.get_ydata()[0] < row]
        marks = [line for line in lines if line.get_marker() != "None"]
        place = marks[0].get_xdata()[0]
        assert left <= place <= right
        assert {line.get_color() for line in marks} == {canvas.GOOD if condition.holds else canvas.BAD}
        assert any(line.get_marker() == "X" for line in marks) is not condition.holds
        if condition.margin is not None:
            assert place == pytest.approx(condition.margin)


@pytest.mark.parametrize("make", [again, lasso_rate], ids=lambda make: make.__name__)
def test_a_drawing_says_what_is_to_be_seen_and_names_its_curves(reports, make) -> None:
    facts = facts_of(reports, make)
    labels = [promise.label for promise in promises(facts)]
    for name, drawings, words in (
        ("gap", 2, [number(facts.final_gap), *labels]),
        ("conditions", 1, [sides(c) for c in facts.run.certificate.conditions]),
    ):
        drawn = getattr(plots, name)(facts)[1]
        svgs = re.findall(r"<svg class.*?</svg>", drawn, re.DOTALL)
        assert len(svgs) == drawings
        for svg in svgs:
            said = re.match(
                r'<svg [^>]*role="img" [^>]*describedby="([^"]*)"[^>]*><title>.+?</title><desc id="\1">(.*?)<', svg
            )
            assert said
            assert all(word in html.unescape(said[2]).replace("Certified", "certified") for word in words)
        if name == "gap":
            legend = [html.unescape(said) for said in re.findall(r"<li data-curve.*?<span>(.*?)</span>", drawn)]
            assert legend[0] == "this run" and legend[-len(labels) :] == labels
            assert all(f'data-curve="{key}"' in svg for key in range(len(legend)) for svg in svgs)


def test_another_plot_is_an_error(reports) -> None:
    with pytest.raises(ValueError, match="what is 'loss'; pass one of gap, steps, conditions"):
        plots.draw(facts_of(reports, certified), "loss")


def test_bounds_look_different() -> None:
    """All that a report can have: colours or dashes of each two differ."""
    assert (
        len({(canvas.BOUNDS[i % len(canvas.BOUNDS)], canvas.DASHES[i % len(canvas.DASHES)]) for i in range(12)}) == 12
    )
