"""The three plots of a run: gap, step sizes, margins of the hypotheses.

``draw(facts, what)`` is the figure of one of them (``what`` in ``DRAWN``), with ``facts = Facts.of(run)``; ``gap``, ``steps`` and
``conditions`` render them for files and pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._core.certificate import Certificate
from .._core.registry import system_named
from . import gap_plot, margins, steps_plot
from .canvas import rendered, styled
from .facts import Facts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWN = ("gap", "steps", "conditions")
"""The plots by name."""


def draw(facts: Facts, what: str) -> Figure:
    """The plot of that name as a matplotlib figure, in the style of the reports and without pyplot.

    Args:
        facts: ``Facts.of(run)``.
        what: ``gap``, ``steps`` (of a method that has steps of its own there are none), or ``conditions``.

    Raises:
        ValueError: another name.
    """
    match what:
        case "gap":
            return styled(lambda: gap_plot.draw(facts))
        case "steps":
            return styled(lambda: steps_plot.draw(facts))
        case "conditions":
            return margins_of(facts.run.certificate)
        case _:
            raise ValueError(f"what is {what!r}; pass one of {', '.join(DRAWN)}")


def margins_of(certificate: Certificate) -> Figure:
    """The chart of the hypotheses of a certificate, whether or not there is a run of it."""
    symbols = system_named(certificate.system).words.symbols
    return styled(lambda: margins.draw(certificate, symbols))


def gap(facts: Facts) -> tuple[bytes, str]:
    """Gap against iteration with every guaranteed bound: PNG and SVG."""
    return rendered("gap", lambda: gap_plot.draw(facts), facts.gap_named[1], gap_plot.description(facts))


def steps(facts: Facts) -> tuple[bytes, str]:
    """Step sizes against iteration with the guaranteed floor step: PNG and SVG."""
    return rendered("steps", lambda: steps_plot.draw(facts), "Step sizes", steps_plot.description(facts))


def conditions(facts: Facts) -> tuple[bytes, str]:
    """Margins of the hypotheses of the run's theorem: PNG and SVG."""
    certificate, symbols = facts.run.certificate, facts.words.symbols
    title = f"Margins of the hypotheses of {certificate.theorem}"
    return rendered(
        "conditions",
        lambda: margins.draw(certificate, symbols),
        title,
        margins.description(certificate, symbols),
        False,
    )
