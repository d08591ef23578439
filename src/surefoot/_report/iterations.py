"""The iteration axis of a plot that reaches beyond its run, up to what is guaranteed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .wording import power_of_ten

if TYPE_CHECKING:
    from matplotlib.ticker import Locator

STRETCH = 3.0
"""Up to so many times the run's length, the whole axis is linear."""
HALF = 0.5
"""Part of the axis that the run has, where the rest is logarithmic: at e times its length both parts are equally fine."""
POINTS = 600
"""Points of a drawn bound."""
ENDS = (-0.015, 1.03)
"""The axis in sight, in units of its length."""
LABEL = 0.62
"""Inches between two ticks at least, so that labels do not touch."""


class Iterations:
    """Iterations 0 … ``end`` of a run of ``ran``: linear along the run, and logarithmic from its end on where the axis goes much
    farther. So run and guarantee are as well seen at every ratio of the two."""

    def __init__(self, ran: int, end: float) -> None:
        self.ran = max(ran, 1)
        self.end = max(end, self.ran)
        self.linear = self.end <= STRETCH * self.ran

    def place(self, iteration: Any) -> Any:
        """Where an iteration lies on the axis: 0 at its start, 1 at its end."""
        t = np.asarray(iteration, dtype=float)
        if self.linear:
            return t / self.end
        beyond = np.log(np.maximum(t, self.ran) / self.ran) / math.log(self.end / self.ran)
        return HALF * np.minimum(t, self.ran) / self.ran + (1.0 - HALF) * beyond

    def at(self, place: Any) -> Any:
        """The iteration at a place: the inverse of ``place``."""
        u = np.asarray(place, dtype=float)
        if self.linear:
            return u * self.end
        beyond = np.maximum(u - HALF, 0.0) / (1.0 - HALF)
        return np.where(u <= HALF, u / HALF * self.ran, self.ran * np.exp(beyond * math.log(self.end / self.ran)))

    @property
    def limits(self) -> tuple[float, float]:
        """First and last iteration in sight, with a little room."""
        return float(self.at(ENDS[0])), float(self.at(ENDS[1]))

    def grid(self, start: float, end: float) -> list[int]:
        """Whole iterations from ``start`` to ``end``, evenly spread over the axis."""
        first, last = int(start), int(end)
        places = np.linspace(self.place(start), self.place(end), POINTS)
        return sorted({first, last, *(min(max(round(float(t)), first), last) for t in self.at(places))})

    def ticks(self, gap: float) -> list[float]:
        """Round numbers along the run, its end, and round numbers beyond, at least ``gap`` of the axis from each other."""
        middle = float(self.place(self.ran))
        step = next(s for s in _round(max(gap / HALF * self.ran, 1.0)) if s >= gap / HALF * self.ran)
        found = [float(t) for t in np.arange(0.0, self.ran, step) if middle - self.place(t) >= gap] + [float(self.ran)]
        beyond = [10.0**k for k in range(math.ceil(math.log10(self.end)) + 1)]
        if self.end < 100.0 * self.ran:
            beyond = sorted({*beyond, *(s * t for t in beyond for s in (2.0, 5.0))})
        last = middle
        for t in beyond:
            if last + gap <= self.place(t) <= 1.0:
                found.append(t)
                last = float(self.place(t))
        return found


def _round(least: float) -> list[float]:
    """Steps of 1, 2, 5 times powers of ten from about ``least`` on, whole ones."""
    power = 10.0 ** math.floor(math.log10(least))
    return [s * power for s in (1.0, 2.0, 5.0, 10.0) if s * power >= 1.0]


def locator(iterations: Iterations) -> Locator:
    """What finds the ticks, as many as the axes have room for in inches; ``iterations`` is an attribute of it."""
    from matplotlib.ticker import Locator

    class Ticks(Locator):
        def __init__(self) -> None:
            self.iterations = iterations

        def __call__(self) -> Any:
            axes: Any = getattr(self.axis, "axes")  # noqa: B009 - matplotlib's types know stand-ins without axes
            inches = axes.get_window_extent().width / axes.figure.dpi
            return iterations.ticks(LABEL / max(inches, LABEL))

        def tick_values(self, vmin: float, vmax: float) -> Any:
            return self()

    return Ticks()


def name(iteration: float) -> str:
    """The label of an iteration on the axis."""
    if iteration < 1e5:
        return f"{iteration:,.0f}"
    power = math.floor(math.log10(iteration) + 1e-9)
    times = round(iteration / 10.0**power)
    return power_of_ten(power) if times == 1 else f"{times}·{power_of_ten(power)}"
