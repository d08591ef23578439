"""The curve of a holdout certificate: which share of problems needs at most k iterations, counted and proved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from surefoot_check.holdout.record import Record
from surefoot_check.holdout.statement import percent

from .._core.charts import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COUNTED, CLAIMED, POINTWISE, OTHER, BAND = COLOURS[:5]
FAINT = "#8a9099"
FAR = 8.0
"""A worst-case bound beyond this multiple of the largest count is not drawn."""


class Line(NamedTuple):
    """A step function of the iterations k: shares of the problems."""

    label: str
    colour: str
    style: str
    width: float
    iterations: Sequence[float]
    shares: Sequence[float]


def draw(
    record: Record, counts: np.ndarray, others: Mapping[str, np.ndarray] | None = None, bound: float | None = None
) -> Figure:
    """Two panels: the share of problems that is solved, and the share that is not, on a logarithmic scale.

    Args:
        record: the certificate.
        counts: its counts (n,), -1 where a problem was not solved within the limit.
        others: counts on other problems, by what these are called.
        bound: iterations that a theorem guarantees for every one of the held-out problems.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    others = others or {}
    last = max(1.0, float(counts.max()))  # others may need many times as many
    near = bound if bound is not None and bound <= FAR * last else None
    lines = [_line(f"counted, on {len(counts):,} held-out problems", COUNTED, counts, width=2.4)]
    k = [0.0, *(float(point.iterations) for point in record.curve)]
    pointwise = [0.0, *(point.pointwise for point in record.curve)]
    band = [0.0, *(point.simultaneous for point in record.curve)]
    lines.append(Line("at least, for one k chosen in advance", POINTWISE, "--", 1.8, k, pointwise))
    lines.append(Line("at least, for all k at once", BAND, ":", 1.8, k, band))
    lines += [_line(name, OTHER, values) for name, values in others.items()]

    figure = Figure(figsize=(7.4, 7.6 + 0.2 * len(lines)), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    end = 1.05 * max(last, near or 0.0)
    for axes, missing in ((above, False), (below, True)):
        for line in lines:
            _draw(axes, line, end, missing)
        _mark(axes, record, near, missing)
    above.set(title="Share of problems solved within k iterations", xlim=(0.0, end), ylim=(0.0, 1.04))
    below.set(title="Share not solved within k iterations", xlabel="iterations k", yscale="log")
    for axes in (above, below):
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100.0 * share:g} %"))
    figure.legend(*above.get_legend_handles_labels(), loc="outside lower left", frameon=False)
    return figure


def _line(name: str, colour: str, counts: np.ndarray, width: float = 1.6) -> Line:
    """The empirical distribution function."""
    values, numbers = np.unique(counts[counts >= 0], return_counts=True)
    shares = np.cumsum(numbers) / len(counts)
    return Line(name, colour, "-", width, [0.0, *values.tolist()], [0.0, *shares.tolist()])


def _draw(axes: Axes, line: Line, end: float, missing: bool) -> None:
    x, shares = [*line.iterations, max(end, line.iterations[-1])], [*line.shares, line.shares[-1]]
    y = [1.0 - share or np.nan for share in shares] if missing else shares  # 0 has no place on a logarithmic axis
    axes.step(x, y, where="post", label=line.label, color=line.colour, linestyle=line.style, linewidth=line.width)


def _mark(axes: Axes, record: Record, bound: float | None, missing: bool) -> None:
    """What is claimed, and the worst-case bound."""
    level = 1.0 - record.coverage if missing else record.coverage
    axes.axhline(level, color=FAINT, linewidth=1.0, linestyle=":")
    if record.iterations is not None:
        label = f"claimed: {percent(record.coverage)} within {record.iterations:,}"
        axes.plot([record.iterations], [level], "o", markersize=8, color=CLAIMED, zorder=5, label=label, clip_on=False)
    if bound is not None:
        label = f"worst case, by a theorem: {bound:,.0f}"
        axes.axvline(bound, color=FAINT, linewidth=1.6, linestyle="-.", label=label)
