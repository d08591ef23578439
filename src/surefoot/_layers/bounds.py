"""Rounding of the numbers of a certificate, to the side that makes them bounds."""

from __future__ import annotations

import torch
from torch import Tensor

from .._problems import LeastSquares, Problems
from .._problems.batch import EPS
from .problem import At, Convex
from .schedules import follow, residual_after

ROOM = 4.0
"""Times the a-priori rounding errors, so that a checker with its own finds the bounds true."""
TINY = 1e-290
"""What underflow may hide."""
NEGLIGIBLE = 1e-148
"""The same of a norm: the squares of its entries may underflow."""


class Bounds:
    """Objectives of float64 problems with room for the rounding of their evaluation, after steps with P/β.

    A residual M x - Y is computed to within δ = c eps (‖M‖_F‖x‖ + ‖Y‖), c of the order of the sizes, and a further step adds
    c eps ‖M‖_F²/β times the residual's size; steps do not amplify what was there, as P/β ≤ 2/‖MᵀM‖.
    """

    def __init__(self, problems: Problems, beta: Tensor) -> None:
        self.problems, self.beta = problems, beta
        self.inverse = (1.0 / beta)[:, None]
        self._unit = ROOM * EPS * (problems.rows + problems.columns)
        self._frobenius = problems.M.flatten(1).norm(dim=1)
        self._a_step = self._unit * self._frobenius.square() / beta

    def above(self, x: Tensor, schedule: Tensor) -> float:
        """Upper bound of F after the schedule's steps from x."""
        value, slack, _ = self._after(x, x, schedule)
        return float((value + slack).sum()) + TINY

    def layer(self, problem: Convex, at: At, x: Tensor, schedule: Tensor) -> tuple[float, float]:
        """Upper bound of F after a layer's output x and the schedule ahead of it, and the certified lower bound of what F could
        be there, less the rounding of both."""
        # the bound at x is one at the points that x is a combination of
        entering = problem.entering
        largest = entering.points.abs().amax(0)
        value, slack, delta = self._after(x, largest, schedule)
        spread = (entering.points - x).norm(dim=2).amax(0)
        steepest = self._frobenius * self._slope(value) + self._penalty_slope(largest)
        moved = self._step_error(entering.x)  # the points themselves
        uncertain = float((slack + self._frobenius * delta * spread + moved * steepest).sum())
        uncertain += self._unit * float(at.terms.abs().sum()) + TINY
        return float((value + slack).sum()) + TINY, max(0.0, at.lower - uncertain)

    def least_constant(self, grid: Tensor, step: float, layers: int) -> float:
        """Lower bound of the least F_T(P), T constant steps from 0: over the range by the tangent at ``step`` for least squares,
        as F_T is convex in P, over the grid for others."""
        problems, start = self.problems, self.problems.start()
        if not isinstance(problems, LeastSquares):
            return min(self._below(start, P.expand(layers)) for P in grid)
        schedule = start.new_full((layers,), step)
        r, delta = self._residual(start, start, schedule[1:])
        last = residual_after(problems, r.unsqueeze(2), self.inverse, schedule[:1]).squeeze(2)
        before, after = problems.adjoint(r), problems.adjoint(last)
        slope = -layers * float(((before * after).sum(1) / self.beta).sum())
        error = self._frobenius * (delta + self._a_step * r.norm(dim=1))
        uncertain = layers * float((error * (before.norm(dim=1) + after.norm(dim=1) + error) / self.beta).sum())
        low, high = float(grid[0]), float(grid[-1])
        reach = max(slope * (step - low), slope * (step - high)) + uncertain * (high - low)
        return max(0.0, self._below(start, schedule) - reach)

    def _below(self, x: Tensor, schedule: Tensor) -> float:
        value, slack, _ = self._after(x, x, schedule)
        return max(0.0, float((value - slack).sum()) - TINY)

    def _after(self, x: Tensor, largest: Tensor, schedule: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """F (N,) after the steps from x; what rounding moves it by, δ ‖∇ℓ‖ + δ²/2 and the evaluation of F itself; and δ (N,).
        ``largest`` has the magnitudes that entered x."""
        problems, moved = self.problems, torch.zeros_like(self.beta)
        if isinstance(problems, LeastSquares):
            r, delta = self._residual(x, largest, schedule)
            value = 0.5 * r.square().sum(1)
        else:
            for P in schedule:
                moved = moved + self._step_error(x)
                x = follow(problems, x, self.inverse, P[None])
                largest = torch.maximum(largest, x.abs())
            value, delta = problems.objective(x), self._unit * self._size(largest)
        steepest = self._frobenius * self._slope(value) + self._penalty_slope(largest)
        return value, delta * (self._slope(value) + delta) + moved * steepest + self._unit * value, delta

    def _step_error(self, x: Tensor) -> Tensor:
        """What rounding moves a step from x by (N,)."""
        sizes = self._frobenius * self._size(x) + self._penalty_slope(x)
        return self._unit * (x.norm(dim=1) + 2.0 * sizes / self.beta)

    def _slope(self, value: Tensor) -> Tensor:
        """Bounds of ‖∇ℓ‖ (N,) where F is ``value``."""
        return (2.0 * value).sqrt() if self.problems.quadratic else torch.full_like(value, self.problems.rows**0.5)

    def _penalty_slope(self, largest: Tensor) -> Tensor:
        """Bounds of ‖∂h‖ (N,) at points of at most these magnitudes."""
        slopes = self.problems.penalty_gradient(largest.clamp(min=TINY))
        return torch.zeros_like(self.beta) if slopes is None else slopes.norm(dim=1)

    def _residual(self, x: Tensor, largest: Tensor, schedule: Tensor) -> tuple[Tensor, Tensor]:
        """M x - Y (N, b) of least squares after the steps from x, and δ."""
        r = (self.problems.forward(x) - self.problems.Y).unsqueeze(2)
        delta = self._unit * self._size(largest) + NEGLIGIBLE
        for P in schedule:
            delta = delta + NEGLIGIBLE + self._a_step * r.norm(dim=(1, 2))
            r = residual_after(self.problems, r, self.inverse, P[None])
        return r.squeeze(2), delta

    def _size(self, x: Tensor) -> Tensor:
        return self._frobenius * x.norm(dim=1) + self.problems.Y.norm(dim=1)
