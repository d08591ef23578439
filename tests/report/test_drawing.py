"""A figure as part of a page: two widths, a legend and numbers as HTML, and what its script reads."""

from __future__ import annotations

import html
import json
import re

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from surefoot._report.canvas import VARIABLES, rendered
from surefoot._report.drawing import embeddable


def _two_panels() -> Figure:
    figure = Figure(figsize=(7.4, 5.0), layout="constrained")
    above, below = figure.subplots(2, 1)
    for axes in (above, below):
        axes.plot([0, 1, 2, 3], [1.0, 10.0, 100.0, 1000.0], color="#0072b2", label="this <run>")
    above.plot([0, 1, 2, 3], [4.0, 3.0, 2.0, 1.0], color="#d55e00", linestyle="--", gid="this <run>")
    above.plot([0, 3], [2.0, 2.0], color="#8a9099")
    above.set(title="Above", yscale="log", ylim=(1.0, 1000.0), xlim=(0.0, 3.0))
    below.set(xlabel="iteration", ylabel="gap")
    below.annotate("from here on", (1.0, 1.0), xycoords=("data", "axes fraction"))
    figure.legend(*above.get_legend_handles_labels(), loc="outside lower left")
    return figure


@pytest.fixture(scope="module")
def drawn() -> str:
    return rendered("two", _two_panels, "Two", "said")[1]


def test_a_drawing_is_there_for_broad_and_narrow_screens_with_ids_of_its_own(drawn: str) -> None:
    sizes = re.findall(
        r'<svg class="(\w+)" viewBox="0 0 ([\d.]+) ([\d.]+)" role="img" aria-labelledby="([^"]*)"', drawn
    )
    assert [(kind, caption) for kind, _, _, caption in sizes] == [("broad", "two-caption"), ("narrow", "two-caption")]
    assert float(sizes[0][1]) == pytest.approx(7.4 * 72.0)
    assert float(sizes[1][1]) == pytest.approx(3.9 * 72.0)
    ids = re.findall(r' id="([^"]*)"', drawn)
    assert len(set(ids)) == len(ids)
    assert set(re.findall(r"url\(#([^)]*)\)", drawn)) <= set(ids)


def test_the_legend_names_curves_with_the_dashes_and_colours_that_are_drawn(drawn: str) -> None:
    legend = drawn[drawn.index('<ul class="legend">') : drawn.index("</ul>")]
    assert legend.count("<li") == 1
    assert "<span>this &lt;run&gt;</span>" in legend
    assert "stroke: var(--blue)" in legend
    assert drawn.count('data-mark data-curve="0"') == 6  # three lines in each of two drawings
    assert "this <run>" not in drawn
    assert "legend_" not in drawn


def test_the_script_is_told_where_the_axes_are(drawn: str) -> None:
    panels = json.loads(html.unescape(re.findall(r'data-axes="([^"]*)"', drawn)[0]))
    assert len(panels) == 2
    left, top, right, bottom = panels[0]["box"]
    assert 0.0 < left < right < 7.4 * 72.0 and 0.0 < top < bottom < panels[1]["box"][1]
    assert panels[0]["y"] == {"limits": [1.0, 1000.0], "log": True, "named": True, "percent": False}
    assert panels[0]["x"]["limits"] == [0.0, 3.0]
    frame = re.search(r'<path d="M ([\d.]+) ([\d.]+) \s*L ([\d.]+) ([\d.]+) \s*L ([\d.]+) ([\d.]+)', drawn)
    assert frame is None or left > 0.0
    assert 'data-moves="x"' in drawn


def test_the_numbers_are_those_of_the_lines(drawn: str) -> None:
    numbers = drawn[drawn.index("<details>") :]
    assert numbers.count("<table>") == 2
    rows = re.findall(r"<tr>(<th scope=\"row\".*?)</tr>", numbers)
    assert [re.findall(r">([^<]+)<", row) for row in rows[:4]] == [
        ["0", "1", "4"], ["1", "10", "3"], ["2", "100", "2"], ["3", "1,000", "1"],
    ]  # fmt: skip


def test_a_drawing_of_fixed_size_scrolls_and_does_not_zoom() -> None:
    _, fixed = rendered("one", _two_panels, "One", "said", narrow=False)
    assert fixed.count("<svg class=") == 1
    assert '<svg class="broad fixed"' in fixed
    assert 'tabindex="0"' in fixed
    assert "data-axes" not in fixed


def test_drawings_keep_only_ids_that_are_used() -> None:
    drawing = '<metadata>m</metadata><g id="a"><use xlink:href="#b"/></g><p id="b"/></svg>'
    embedded = embeddable(f'<?xml?><svg viewBox="0 0 1 1" xmlns="x">{drawing}', "n", VARIABLES)
    assert embedded.startswith('<svg class="broad" viewBox="0 0 1 1" role="img" aria-labelledby="n-caption">')
    assert embedded.endswith('><g><use href="#n-b"/></g><p id="n-b"/></svg>')


def test_a_name_in_a_figure_does_not_become_markup() -> None:
    evil = '</text><script>alert(1)</script>" id="curve-0" onload="x'

    def draw() -> Figure:
        figure = Figure(figsize=(7.4, 3.0), layout="constrained")
        axes: Axes = figure.add_subplot()
        axes.plot([0, 1, 2], [1.0, 2.0, 3.0], label=evil)
        axes.set(title=evil, xlabel=evil, ylabel=evil)
        figure.legend(loc="outside lower left")
        return figure

    _, drawn = rendered("evil", draw, evil, evil)
    assert "<script" not in drawn
    assert set(re.findall(r"<(\w+)", drawn)) <= {
        "div", "svg", "title", "desc", "defs", "style", "g", "path", "use", "text", "clipPath", "rect", "ul", "li", "span",
        "circle",
        "details", "summary", "table", "caption", "thead", "tbody", "tr", "th", "td", "tspan",
    }  # fmt: skip
    assert not re.search(r'<[^>]* onload="', re.sub(r'"[^"]*"', '""', drawn))
