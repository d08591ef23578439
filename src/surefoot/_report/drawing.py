"""A figure of matplotlib as part of a page: for broad and narrow screens, with its legend and numbers as HTML."""

from __future__ import annotations

import io
import json
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from .iterations import Iterations
from .markup import Cell, Label, Markup, folded, table, text
from .wording import number

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

POINTS = 72.0
"""Units of an SVG file in an inch."""
NARROW = 3.9
"""Inches that are as wide as a narrow screen."""
PANEL = 2.3
"""Inches of height of each of several panels there."""
LETTERS = 36
"""Of a line in the narrow drawing."""
LEGEND = "legend"
"""The gid of axes that name the curves of the others."""
ROWS = 12
"""Of the table of a drawing's numbers, at most."""


def drawing(
    figure: Figure, name: str, variables: Mapping[str, str], narrow: bool, title: str = "", description: str = ""
) -> Markup:
    """A figure that is laid out, as part of a page; its legends are taken out of it.

    Args:
        figure: panels one above the other where there are several. What has the label of a line of a legend, or this label as
            its gid, is one curve, which the reader can hide.
        name: what the ids in it start with; ``NAME-caption`` is that of its caption.
        variables: colours of the figure, and the variables of the page in their place.
        narrow: whether it can be laid out for a narrow screen; if not, it scrolls there.
        title, description: what is to be seen, for readers who do not see it.
    """
    labels = _labels(figure)
    numbers = _numbers(figure, labels)
    _without_legends(figure)
    for axes in figure.axes:
        _mark(axes, labels)
    said = (title, description)
    parts = [_svg(figure, name, variables, "broad" if narrow else "broad fixed", said)]
    legend = _legend(labels, parts[0])
    if narrow:
        _narrow(figure)
        parts.append(_svg(figure, f"{name}-narrow", variables, "narrow", said, caption=name))
    drawn = "".join(parts)
    stage = drawn if narrow else f'<div class="wide" role="group" tabindex="0" aria-label="plot">{drawn}</div>'
    return Markup(f'<div class="stage">{stage}</div>{legend}{numbers}')


def _labels(figure: Figure) -> list[str]:
    """What the legends name, in order; axes with the gid ``LEGEND`` are a legend, too."""
    rows = [line.get_label() for axes in figure.axes if axes.get_gid() == LEGEND for line in axes.lines]
    legends = [*figure.legends, *(legend for axes in figure.axes if (legend := axes.get_legend()) is not None)]
    return list(
        dict.fromkeys([*map(str, rows), *(said.get_text() for legend in legends for said in legend.get_texts())])
    )


def _without_legends(figure: Figure) -> None:
    """Legends stand beside the drawing; it is as much lower as they were high."""
    rows = [axes for axes in figure.axes if axes.get_gid() == LEGEND]
    height = sum(legend.get_window_extent().height for legend in [*figure.legends, *rows]) / figure.dpi
    figure.legends.clear()
    for axes in rows:  # below the other axes, which have the same iterations, and then all of the room
        axes.remove()
        (left,) = figure.axes
        left.set_subplotspec(figure.add_gridspec(1, 1)[0])
        left.tick_params(labelbottom=True)
        left.set_xlabel(axes.get_xlabel())
    for axes in figure.axes:
        if (legend := axes.get_legend()) is not None:
            legend.remove()
    width, before = figure.get_size_inches()
    figure.set_size_inches(width, max(before - height, 0.5 * before))


def _narrow(figure: Figure) -> None:
    """Lay the figure out for a narrow screen: fewer ticks, words in more lines."""
    from matplotlib.ticker import MaxNLocator

    height = figure.get_figheight()
    figure.set_size_inches(NARROW, min(height, max(0.8 * NARROW, PANEL * len(figure.axes))))
    for axes in figure.axes:
        axes.set_title(_wrapped(axes.get_title(loc="left"), LETTERS), loc="left", fontsize=11.0)
        for said in axes.texts:
            said.set_text(_wrapped(said.get_text(), LETTERS))
        locator = axes.xaxis.get_major_locator()
        if isinstance(locator, MaxNLocator):
            locator.set_params(nbins=4)


def _wrapped(said: str, letters: int) -> str:
    return "\n".join(textwrap.wrap(said, letters))


def _mark(axes: Axes, labels: Sequence[str]) -> None:
    """Say in the SVG what belongs to which curve, and what moves as the reader zooms."""
    for artist in [*axes.lines, *axes.collections, *axes.patches]:
        key = _key(artist, labels)
        artist.set_gid("mark" if key is None else f"curve-{key}")
    for said in axes.texts:
        said.set_gid(f"moves-{_moves(said, axes)}")


def _key(artist: Artist, labels: Sequence[str]) -> int | None:
    for said in (artist.get_label(), artist.get_gid()):
        if said in labels:
            return labels.index(cast(str, said))
    return None


def _moves(said: Artist, axes: Axes) -> str:
    """The directions in which a text is tied to the data."""
    coordinates = getattr(said, "xycoords", None)
    if coordinates is None:
        return "xy" if said.get_transform() == axes.transData else ""
    pair = coordinates if isinstance(coordinates, tuple) else (coordinates, coordinates)
    return "".join(direction for direction, of in zip("xy", pair, strict=True) if of == "data")


def _svg(
    figure: Figure, name: str, variables: Mapping[str, str], kind: str, said: tuple[str, str], caption: str = ""
) -> str:
    svg = io.StringIO()
    figure.set_layout_engine("constrained")
    figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None})
    panels = [_panel(axes, float(figure.get_figheight()) * POINTS) for axes in figure.axes if axes.lines]
    axes = "" if len(panels) < len(figure.axes) or kind.endswith("fixed") else json.dumps(panels, ensure_ascii=False)
    return embeddable(svg.getvalue(), name, variables, kind, axes, caption or name, said)


def _panel(axes: Axes, height: float) -> dict[str, Any]:
    """Where the axes are in the SVG, and what their ends are."""
    box = axes.get_window_extent()
    scale = POINTS / cast(Any, axes.figure).dpi
    corners = [box.x0 * scale, height - box.y1 * scale, box.x1 * scale, height - box.y0 * scale]
    return {"box": [round(at, 2) for at in corners], "x": _axis(axes.xaxis), "y": _axis(axes.yaxis)}


def _axis(axis: Axis) -> dict[str, Any]:
    formatter = axis.get_major_formatter()
    return {
        "limits": [float(end) for end in axis.get_view_interval()],
        "log": axis.get_scale() == "log",
        **_turn(axis),
        "named": any(label.get_visible() for label in axis.get_ticklabels()),
        "percent": "%" in formatter(0.5, 0),
    }


def _turn(axis: Axis) -> dict[str, list[float]]:
    """Of an axis that is linear first and logarithmic then: where it turns, as a part of its length and as a number."""
    iterations = getattr(axis.get_major_locator(), "iterations", None)
    if not isinstance(iterations, Iterations):
        return {}
    low, turn, high = (float(iterations.place(t)) for t in (iterations.limits[0], iterations.ran, iterations.limits[1]))
    return {"turn": [(turn - low) / (high - low), float(iterations.ran)]}


def embeddable(
    svg: str,
    name: str,
    variables: Mapping[str, str],
    kind: str = "broad",
    axes: str = "",
    caption: str = "",
    said: tuple[str, str] = ("", ""),
) -> str:
    """An SVG file as an element of a page.

    It has no header and no metadata; ids that are used only, unique by ``name``; colours that are variables of the page;
    and for the page's script what is a curve, a panel, a tick.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, count=1, flags=re.DOTALL)
    opening, rest = svg.split(">", 1)
    size = re.search(r'viewBox="[^"]*"', opening)
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', rest))
    panels = iter(range(rest.count('id="axes_')))

    def identified(found: re.Match[str]) -> str:
        if found[1] in used:
            return f' id="{name}-{found[1]}"'
        if found[1].startswith("axes_"):
            return f' data-panel="{next(panels)}"'
        role, _, of = found[1].partition("-")
        return {
            "mark": " data-mark", "curve": f' data-mark data-curve="{of}"', "moves": f' data-moves="{of}"',
        }.get(role, " data-tick" if re.fullmatch(r"[xy]tick_\d+", found[1]) else "")  # fmt: skip

    rest = re.sub(r' id="([^"]*)"', identified, rest)
    rest = re.sub(r'(url\(#|xlink:href="#)', lambda m: f"{m[1].replace('xlink:', '')}{name}-", rest)
    for colour, variable in variables.items():
        rest = rest.replace(colour, f"var({variable})")
    rest = rest.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
    data = f' data-axes="{text(axes, len(axes))}"' if axes else ""
    title, description = said
    seen = f' aria-describedby="{name}-desc"' if description else ""
    opening = f'<svg class="{kind}" {size[0] if size else ""} role="img" aria-labelledby="{caption or name}-caption"{seen}{data}>'
    words = (
        f'<title>{text(title)}</title><desc id="{name}-desc">{text(description, 4000)}</desc>' if description else ""
    )
    return f"{opening}{words}{rest.strip()}"


def _legend(labels: Sequence[str], svg: str) -> str:
    """Each curve's name with a sample of it, in the very style that the SVG has."""
    items = "".join(
        f'<li data-curve="{key}"><svg viewBox="0 0 36 12" aria-hidden="true">{_sample(key, svg)}</svg>'
        f"<span>{text(label)}</span></li>"
        for key, label in enumerate(labels)
    )
    return f'<ul class="legend">{items}</ul>' if items else ""


def _sample(key: int, svg: str) -> str:
    drawn = "".join(re.findall(rf' data-curve="{key}">(.*?)(?= data-(?:mark|tick|panel)|$)', svg, re.DOTALL))
    lines = dict.fromkeys(re.findall(r'<path [^>]*clip-path[^>]* style="([^"]*)"', drawn))
    marker = re.search(r'<use [^>]*style="([^"]*)"', drawn)
    return "".join(f'<path d="M0 6H36" style="{style}"/>' for style in lines) + (
        f'<circle cx="18" cy="6" r="3" style="{marker[1]}"/>' if marker else ""
    )


def _numbers(figure: Figure, labels: Sequence[str]) -> str:
    """Points of every line as a table, for readers who do not see the drawing."""
    tables = []
    for axes in figure.axes:
        lines = [line for line in axes.lines if len(_points(line)) > 2 and line.get_linestyle() != "None"]
        if lines:
            tables.append(_table(axes, lines, labels))
    return folded("Numbers of this plot", *tables) if tables else ""


def _points(line: Line2D) -> dict[float, float]:
    x, y = line.get_xdata(orig=False), line.get_ydata(orig=False)
    return {float(a): float(b) for a, b in zip(cast(Any, x), cast(Any, y), strict=True) if math.isfinite(float(b))}


def _table(axes: Axes, lines: Sequence[Line2D], labels: Sequence[str]) -> Markup:
    curves: dict[str, dict[float, float]] = {}  # what has one label is one curve
    for index, line in enumerate(lines):
        label = str(line.get_label())
        curves.setdefault(label if label in labels else f"_{index}", {}).update(_points(line))
    points = list(curves.values())
    shared = set.intersection(*(set(of) for of in points)) or set.union(*(set(of) for of in points))
    known = sorted(shared)
    shown = sorted({round(k * (len(known) - 1) / (ROWS - 1)) for k in range(ROWS)})
    across = axes.get_xlabel() or next((of for other in axes.figure.axes if (of := other.get_xlabel())), "x")
    named = [label if label in labels else axes.get_ylabel() or "value" for label in curves]
    rows = [[Label(_written(known[k]), "n"), *(Cell(_at(of, known[k]), "n") for of in points)] for k in shown]
    return table([f"#{across}", *(f"#{name}" for name in named)], rows, axes.get_title(loc="left"))


def _written(value: float) -> str:
    return number(int(value) if value.is_integer() else value)


def _at(points: Mapping[float, float], place: float) -> str:
    return number(points[place]) if place in points else ""
