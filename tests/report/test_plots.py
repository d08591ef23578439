"""The drawings of a report."""

from __future__ import annotations

import dataclasses
import math
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from reported_runs import again, certified, deconvolution, implicit, lasso, lasso_rate, paper, unmoved

import surefoot as sf
from surefoot._report import drawing, plots
from surefoot._report.facts import Facts
from surefoot._report.gap_plot import promises
from surefoot._report.iterations import Iterations
from surefoot._report.margins import limits
from surefoot._report.wording import sides, symbolic

SVG = "{http://www.w3.org/2000/svg}"


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
    for promise in promises(facts):
        assert any(promise.label == text for text, _ in boxes)
        for end, reached in zip(promise.ends, promise.reached, strict=True):
            assert end <= above.get_xlim()[1] == below.get_xlim()[1]
            if reached < math.inf:
                marks = [line for line in above.lines if line.get_marker() == "D"]
                at = [line.get_ydata()[0] for line in marks if line.get_xdata()[0] == reached]
                assert at and above.get_ylim()[0] <= min(at) <= facts.target * (1.0 + 1e-9)


def test_the_bound_that_a_run_follows_is_wider_than_the_run_and_below_it(reports) -> None:
    above = plots.draw(facts_of(reports, implicit), "gap").axes[0]
    run = next(line for line in above.lines if line.get_gid() == "series-run")
    bounds = [line for line in above.lines if (line.get_gid() or "") == "series-bound-implicit-spectral"]
    assert max(line.get_linewidth() for line in bounds) >= 2.0 * run.get_linewidth()
    assert all(line.get_zorder() < run.get_zorder() for line in bounds if line.get_marker() == "None")


def test_every_phase_of_a_run_is_drawn_and_the_bound_is_that_of_its_certificate(reports) -> None:
    facts = facts_of(reports, again)
    assert len(facts.run.adopted) > 1
    above = plots.draw(facts, "gap").axes[0]
    starts = {
        int(line.get_xdata()[0])
        for line in above.lines
        if line.get_gid() == "series-again" and len(line.get_xdata()) > 1
    }
    assert starts == {phase.iteration for phase in facts.run.adopted}
    for line in above.lines:
        if line.get_gid() == "series-bound-two-layer-drift" and len(line.get_xdata()) > 1:
            certificate = facts.run.certificate
            assert list(line.get_ydata()) == [certificate.bound(int(t)) for t in line.get_xdata()]


def test_a_sublinear_bound_is_drawn_as_it_falls(reports) -> None:
    facts = facts_of(reports, deconvolution)
    above = plots.draw(facts, "gap").axes[0]
    curve = next(line for line in above.lines if line.get_gid() == "series-bound-deconvolution-ladmm")
    times, values = curve.get_xdata(), curve.get_ydata()
    assert len({*values}) > 30 and values[-1] <= min(facts.run.gaps)
    assert all(
        value >= 0.99 * facts.run.certificate.claim.constant / t
        for t, value in zip(times, values, strict=True)
        if t and value < values[0]
    )


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
        ticks = [float(axis.place(t)) for t in axis._ticks()]
        assert min(b - a for a, b in pairwise(ticks)) > 0.08
        assert len(ticks) >= 3


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
        marks = [
            line
            for line in figure.axes[0].lines
            if line.get_gid() == f"series-hypothesis-{row}" and line.get_marker() != "None"
        ]
        place = marks[0].get_xdata()[0]
        assert left <= place <= right
        assert {line.get_color() for line in marks} == {drawing.GOOD if condition.holds else drawing.BAD}
        assert any(line.get_marker() == "X" for line in marks) is not condition.holds
        if condition.margin is not None:
            assert place == pytest.approx(condition.margin)


@pytest.mark.parametrize("make", [paper, lasso_rate], ids=lambda make: make.__name__)
def test_a_drawing_says_what_is_to_be_seen_and_names_its_curves(reports, make) -> None:
    facts = facts_of(reports, make)
    for name in ("gap", "conditions"):
        root = ElementTree.fromstring(
            getattr(plots, name)(facts)[1].replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
        )
        ids = [node.get("id") for node in root.iter() if node.get("id")]
        assert len({*ids}) == len(ids)
        title, said = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
        assert root.get("role") == "img" and root.get("aria-labelledby") == f"{title.get('id')} {said.get('id')}"
        groups = {g.get("data-series"): g for g in root.iter(f"{SVG}g") if g.get("data-series")}
        assert all(g.get("data-label") for g in groups.values())
        assert {f"{name}-{key}" for key in groups} <= {*ids}
        if name == "gap":
            assert {"run", *(promise.key.replace("/", "-") for promise in promises(facts))} <= {*groups}
            assert all(promise.label in said.text for promise in promises(facts))
        else:
            assert len(groups) == len(facts.run.certificate.conditions)


def test_another_plot_is_an_error(reports) -> None:
    with pytest.raises(ValueError, match="what is 'loss'; pass one of gap, steps, conditions"):
        plots.draw(facts_of(reports, certified), "loss")


def test_drawings_keep_only_ids_that_are_used() -> None:
    drawn = '<metadata>m</metadata><g id="a"><use xlink:href="#b"/></g><p id="b"/></svg>'
    embedded = drawing.embeddable(f'<?xml?><svg viewBox="0 0 1 1" xmlns="x">{drawn}', "n", "a < b", "said")
    assert embedded.startswith(
        '<svg viewBox="0 0 1 1" role="img" aria-labelledby="n-title n-desc"><title id="n-title">a &lt; b<'
    )
    assert embedded.endswith('><g><use href="#n-b"/></g><p id="n-b"/></svg>')


def test_bounds_look_different() -> None:
    """All that a report can have: colours or dashes of each two differ."""
    assert (
        len({(drawing.BOUNDS[i % len(drawing.BOUNDS)], drawing.DASHES[i % len(drawing.DASHES)]) for i in range(12)})
        == 12
    )
