"""How drawings look: colours, axes, and the files that they become."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .drawing import drawing
from .wording import number, power_of_ten

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, PAPER = "#1f2328", "#8a9099", "#fefefe"
RUN, LATER, GOOD, BAD = "#0072b2", "#56b4e9", "#0072b3", "#d55e01"
BOUNDS = ("#d55e00", "#009e73", "#cc79a7", "#e69f00")
DASHES = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1, 2)), (0, (1, 3)))
"""Colours of Okabe and Ito, distinct for colour-blind readers; each bound also has its own dashes, the fifth
other ones than the first, whose colour it has."""
VARIABLES = {
    INK: "--ink", FAINT: "--faint", PAPER: "--paper", RUN: "--blue", LATER: "--sky", GOOD: "--blue", BAD: "--red",
    BOUNDS[0]: "--red", BOUNDS[1]: "--green", BOUNDS[2]: "--pink", BOUNDS[3]: "--orange",
}  # fmt: skip
"""Colours of the plots and the style variables of the page that stand for them, so that they follow light and dark."""
LOWEST, HIGHEST = 1e-300, 1e300
"""Limits of a logarithmic axis, within which it can be laid out."""
WIDTH = 7.4
"""Of a drawing, in inches."""
STYLE = {
    "text.parse_math": False,  # names come from files: a dollar sign is a dollar sign
    "svg.fonttype": "none",
    "svg.hashsalt": "surefoot",
    "font.family": "DejaVu Sans",
    "font.size": 10.0,
    "axes.titlesize": 12.0,
    "axes.titlelocation": "left",
    "axes.titlepad": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.grid": True,
    "grid.color": FAINT,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "legend.frameon": False,
    "legend.fontsize": 9.0,
}


def styled(draw: Callable[[], Figure]) -> Figure:
    """What ``draw`` draws, in the style of the reports; the settings of matplotlib stay as they are."""
    import matplotlib

    with matplotlib.rc_context(cast(Any, STYLE)):
        return draw()


def rendered(
    name: str, draw: Callable[[], Figure], title: str, description: str, narrow: bool = True
) -> tuple[bytes, str]:
    """What ``draw`` draws in the style of the reports: a PNG, and markup for ``figure``.

    Args:
        name: what the ids of the markup start with.
        draw: makes the figure.
        title: what it shows, in a few words.
        description: what is to be seen, in a sentence with its numbers; for readers who do not see it.
        narrow: whether it can be laid out for a narrow screen; if not, it scrolls there.
    """
    import matplotlib

    png = io.BytesIO()
    # ticks out of sight may overflow
    with warnings.catch_warnings(), matplotlib.rc_context(cast(Any, STYLE)), np.errstate(over="ignore"):
        warnings.filterwarnings("ignore", message="Glyph")  # a name in a script that the font lacks
        figure = draw()
        figure.savefig(png, format="png", dpi=160, metadata={"Software": None})
        return png.getvalue(), drawing(figure, name, VARIABLES, narrow, title, description)


def labelled(artists: Iterable[Artist], label: str) -> None:
    """One label for all that is one curve: on a page the reader can hide it."""
    for artist in artists:
        artist.set_label(label)


def panel(title: str, height: float) -> tuple[Figure, Axes]:
    """A figure of one panel with its title."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes: Axes = figure.add_subplot()
    axes.set_title(title)
    return figure, axes


def logarithmic(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic axis over these positive values; lines may leave it: a far one does not press the others."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(numticks=9))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
    axes.yaxis.set_minor_locator(NullLocator())
    low, high = (min(values), max(values)) if values else (1.0, 1.0)
    room = max(1.0, 10.0 * low / high) ** 0.5 * (high / low) ** 0.06  # at least one power of ten in sight
    axes.set_ylim(max(low / room / 1.1, LOWEST), min(high * room * 1.1, HIGHEST))
    if high / low < 100.0:  # name values between powers of ten, too
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))


def tick(value: float) -> str:
    """The label of a value on a logarithmic axis."""
    if not 0.0 < value < math.inf:  # a tick out of sight, beyond what a float can hold
        return ""
    exponent = math.log10(value)
    return power_of_ten(round(exponent)) if abs(exponent - round(exponent)) < 1e-9 else number(value, 2)


def iteration_axis(axes: Axes, last: int) -> None:
    """Label and lay out the x axis of a plot over the iterations 0 … ``last``, with whole numbers as ticks."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_xlabel("iteration")
    axes.set_xlim(-0.015 * max(last, 1), 1.03 * max(last, 1))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def level(axes: Axes, value: float, said: str, colour: str = FAINT, dashes: Any = ":") -> None:
    """A horizontal line with its name above its left end."""
    axes.axhline(value, color=colour, linewidth=1.2, linestyle=dashes, zorder=1.5)
    axes.annotate(
        said, (0.0, value), xycoords=("axes fraction", "data"), xytext=(6, 3), textcoords="offset points", color=INK,
        fontsize=9, zorder=5,
    )  # fmt: skip
