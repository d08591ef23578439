"""The chart of margins: how far each hypothesis of a theorem is from failing, or from holding."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from surefoot_check.text import visible

from .._core.certificate import Certificate, Condition
from .canvas import BAD, FAINT, GOOD, INK, WIDTH
from .wording import distance, margin, sides, symbolic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW = 0.56
"""Height of a hypothesis, in inches."""
CHART = 0.52
"""Part of the width that the chart has; the rest is for both sides."""
LEAST = 1.0
"""Powers of ten that the axis has to each side that is used, at least."""


def draw(certificate: Certificate, symbols: Mapping[str, tuple[str, str]]) -> Figure:
    """A row for each hypothesis: its name, a mark at its margin in powers of ten, both sides with their numbers.

    A disc at the right of 0 holds, a cross at the left fails; where the other side is 0 no ratio is finite, and an
    arrow stands at the end of the axis.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    hypotheses = certificate.conditions
    count = max(len(hypotheses), 1)
    figure = Figure(figsize=(WIDTH, 1.25 + ROW * count), layout="constrained")
    axes: Axes = figure.add_subplot()
    axes.set_title(f"Hypotheses of {visible(certificate.theorem, 60)}")
    left, right = limits(hypotheses)
    for row, condition in enumerate(hypotheses):
        _row(axes, row, condition, symbols, left, right)
    axes.set_ylim(len(hypotheses) - 0.1 if hypotheses else 1.0, -0.35)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False, axis="y")
    # the axis has the left part of the width: what is right of it is words
    axes.set_xlim(left, left + (right - left) / CHART)
    axes.set_xticks([t for t in axes.get_xticks() if left <= t <= right])
    axes.spines["bottom"].set_bounds(left, right)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))
    axes.set_xlabel(
        "margin in powers of ten: right of 0 holds, left of it fails; an arrow: no finite ratio", loc="left"
    )
    if not hypotheses:
        axes.text(0.02, 0.5, "this theorem has no hypotheses", transform=axes.transAxes)
    return figure


def description(certificate: Certificate, symbols: Mapping[str, tuple[str, str]]) -> str:
    """What is to be seen, in words."""
    failed = sum(not c.holds for c in certificate.conditions)
    said = (
        f"{len(certificate.conditions)} hypotheses, of which {failed} fail."
        if failed
        else f"All {len(certificate.conditions)} hypotheses hold."
    )
    rows = (f" {symbolic(c.name, symbols)}: {sides(c)}, {margin(c)}." for c in certificate.conditions)
    return said + "".join(rows)


def limits(hypotheses: Sequence[Condition]) -> tuple[float, float]:
    """Ends of the axis, with 0 inside."""
    margins = [distance(c) for c in hypotheses]
    finite = [m for m in margins if math.isfinite(m)]
    widest = max([LEAST, *(abs(m) for m in finite)])
    least, most = min(finite, default=0.0), max(finite, default=0.0)
    left = (
        -1.12 * max(-least, LEAST)
        if least < 0.0 or -math.inf in margins or any(math.isnan(m) for m in margins)
        else -0.03 * widest
    )
    right = 1.12 * max(most, LEAST)
    return left, right


def _row(
    axes: Axes, row: int, condition: Condition, symbols: Mapping[str, tuple[str, str]], left: float, right: float
) -> None:
    """One hypothesis."""
    place = distance(condition)
    colour = GOOD if condition.holds else BAD
    y = row + 0.42
    end = min(max(0.0 if math.isnan(place) else place, left), right)
    mark = "o" if condition.holds else "X"
    axes.plot([left, right], [y, y], color=FAINT, linewidth=0.6, alpha=0.5, zorder=0.5)
    axes.plot([0.0, 0.0], [y - 0.17, y + 0.17], color=INK, linewidth=1.2, zorder=1.0)
    axes.plot([0.0, end], [y, y], color=colour, linewidth=5.0, alpha=0.45, solid_capstyle="butt")
    if math.isinf(place):
        mark = ">" if place > 0.0 else "<"
    axes.plot([end], [y], mark, color=colour, markersize=9, clip_on=False, zorder=3)
    if math.isinf(place) and not condition.holds:
        axes.plot([0.5 * end], [y], "X", color=colour, markersize=9, zorder=3)
    name = symbolic(condition.name, symbols)
    axes.annotate(
        f"{'✓' if condition.holds else '✗'} {visible(name, 95)}", (0.0, row), xycoords=("axes fraction", "data"),
        xytext=(2, 0), textcoords="offset points", va="center", fontsize=9.5, color=INK, annotation_clip=False,
    )  # fmt: skip
    axes.annotate(
        f"{sides(condition)}\n{margin(condition)}", (CHART, y), xycoords=("axes fraction", "data"), xytext=(16, 0),
        textcoords="offset points", va="center", fontsize=9.5, color=INK if condition.holds else BAD,
        annotation_clip=False, linespacing=1.15,
    )  # fmt: skip
