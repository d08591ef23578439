"""One problem from start to end: proposals, and the safe step where a proposal has no proved decrease."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._learning.solve_status import SolveStatus
from . import kernels
from .instance import UNIT, Array, Instance
from .proposals import Proposals, proposals

HALVINGS = 20
"""Of a proposed step that is too long."""


def minimise(
    instance: Instance,
    start: Array,
    iterations: int = 1000,
    tolerance: float = 0.0,
    *,
    memory: int = 20,
    keep: bool = False,
) -> Run:
    """A run of the proposals that fit the problem; see ``LogisticSolver.solve``."""
    with np.errstate(all="ignore"):
        return Run(instance, proposals(instance, memory), start, iterations, tolerance, keep=keep)


class Run:
    """Minimises F from ``start`` on, until the duality gap is at most ``tolerance`` times F.

    Attributes:
        point: x_T.
        first: F(x_0) is at most this.
        gap: bound of F(x_T) - F*.
        objectives: F(x_t), t = 0 … T, never increasing.
        products: until F(x_t) was known.
        iterates: x_t, if they are to be kept.
        constants: β_t, t = 0 … T-1, of the decreases that were proved (``_learning.proved_decrease``).
        proposals: how many were made.
        accepted: how many of them were accepted.
        status: how it ended.
    """

    def __init__(
        self, instance: Instance, proposals: Proposals, start: Array, iterations: int, tolerance: float, *, keep: bool
    ) -> None:
        self._instance, self._proposals = instance, proposals
        self._safe = np.empty(instance.columns)
        before = instance.products
        self.point = instance.start(start)
        self.first = (self.point.value + self.point.value_error) * (1.0 + UNIT)
        self.objectives, self.products = [self.point.value], [instance.products - before]
        self.iterates = [start]
        self.constants: list[float] = []
        self.proposals = self.accepted = 0
        self.status = SolveStatus.ITERATIONS
        while True:
            gradient, error = instance.gradient(self.point)
            self.gap = instance.gap(self.point, gradient)
            if self.gap <= tolerance * self.point.value:
                self.status = SolveStatus.SOLVED
                return
            if len(self.constants) == iterations:
                return
            if not self._move(gradient, error):
                self.status = SolveStatus.STALLED
                return
            self.point = instance.refreshed(self.point)
            # what was computed may rise by rounding where F is proved to fall
            self.objectives.append(min(self.point.value, self.objectives[-1]))
            self.products.append(instance.products - before)
            if keep:
                self.iterates.append(self.point.x)

    def _move(self, gradient: Array, error: float) -> bool:
        """To a point with a proved decrease, if there is one."""
        problem, old = self._instance, self.point
        needed = kernels.model_decrease(
            old.x,
            gradient,
            error,
            problem.column_norms,
            problem.smoothness,
            problem.lam,
            problem.l2,
            UNIT,
            problem.tiny,
            self._safe,
        )
        step = self._proposals.step(old, gradient)
        if step is not None and np.isfinite(step).all():
            self.proposals += 1
            if self._try(old.x + step, needed, self._proposals.image, shorten=True):
                self.accepted += 1
                return True
            self._proposals.rejected()
        return self._try(self._safe.copy(), needed, problem.image, shorten=False)

    def _try(self, x: Array, needed: float, image: Callable[[Array], Array], *, shorten: bool) -> bool:
        """Move to x, or a shorter way in its direction, if that lowers F by ``needed``."""
        problem, old = self._instance, self.point
        step = x - old.x
        change = image(step)
        new = problem.moved(old, x, change)
        known = problem.proved(old, new, change, needed)
        if known >= needed:
            self.point = new
            # β Q(β) does not fall as β grows: so Q(β') ≤ known for the smaller β' = β Q(β)/known
            self.constants.append(problem.smoothness * min(1.0, needed / known * (1.0 + 4.0 * UNIT)))
            return True
        if not shorten:
            return False
        lengths = (0.5**k for k in range(1, HALVINGS))
        wanted = old.value - needed
        length = next((a for a in lengths if problem.moved(old, old.x + a * step, a * change).value <= wanted), None)
        return length is not None and self._try(old.x + length * step, needed, image, shorten=False)
