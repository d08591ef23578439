"""When a problem counts as solved: bounds of its gap, against one that is relative to its optimum, to its start, or absolute."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from .._problems import LeastSquares, Problems
from .._problems.batch import EPS

RelativeTo = Literal["optimum", "start"]
FINE = 1e-10
"""Largest relative gap of the reference minimisers."""
SMALLEST = 100.0
"""Smallest gap relative to F*, in units of the rounding of F, where F - F* is a difference."""
MARGIN = 1e-6
"""Share of the gap by which a bound must be below it, so that one in other arithmetic, such as the checker's, is too."""


class Target:
    """The gaps that the problems of a batch may have, with F* between F(x̂) - gap bound and F(x̂) of reference minimisers x̂.

    Args:
        problems: a batch.
        gap: what the gap may be, positive, as a share of F*, or of F(0) - F*, or absolute for ``None``.

    Attributes:
        possible: whether float64 can tell so small a gap, at the reference minimiser of some problem at least.

    Raises:
        ValueError: a problem for which the share is of 0, as far as that can be told, or a gap below rounding.
        RuntimeError: no reference minimisers were found.
    """

    def __init__(self, problems: Problems, gap: float, relative_to: RelativeTo | None, first: int = 0) -> None:
        self.problems, self._first = problems.double, first
        least = SMALLEST * self._unit
        if relative_to == "optimum" and gap < least and not isinstance(problems, LeastSquares):
            raise ValueError(
                f"gap is {gap:g}; relative to F* it must be at least {least:.2g}, what float64 can tell of it here"
            )
        best = self.problems.optimum(min(FINE, 0.1 * gap) if relative_to == "optimum" else FINE)
        value, rounding = self._value(best)
        self._least = (value - rounding - self.problems.gap_bound(best)).clamp(min=0.0)
        if relative_to is None:
            self.allowed = torch.full_like(value, gap)
        elif relative_to == "optimum":
            self.allowed = gap * self._least
        else:
            start, error = self._value(torch.zeros_like(best))
            self.allowed = gap * (start - error - value - rounding).clamp(min=0.0)
        if not bool((self.allowed > 0.0).all()):
            p = first + int((self.allowed <= 0.0).nonzero()[0])
            what = {
                "optimum": "its optimal value F* is 0 within rounding: pass relative_to='start', or None for an absolute gap",
                "start": "x = 0 is optimal within rounding: pass relative_to='optimum', or None for an absolute gap",
                None: "",
            }[relative_to]
            raise ValueError(f"gap cannot be relative to the {relative_to} of problem {p}, as {what}")
        self.allowed = self.allowed * (1.0 - MARGIN)
        self.possible = bool(self.reached(best).any())

    def reached(self, x: Tensor) -> Tensor:
        """Whether each problem is solved at x (N, d); never where x is not finite."""
        x = x.double()
        if isinstance(self.problems, LeastSquares):
            return self.problems.gap_bound(x) <= self.allowed
        value, rounding = self._value(x)
        return value + rounding - self._least <= self.allowed

    def reached_value(self, value: Tensor) -> Tensor:
        """The same of a point of which only F (N,) is known, up to the rounding of its dtype.

        Raises:
            ValueError: it is less than F* by more than the gap.
        """
        unit = self._unit * torch.finfo(value.dtype).eps / EPS
        value = value.double()
        below = value * (1.0 + 2.0 * unit) < self._least - self.allowed
        if bool(below.any()):
            p = int(below.nonzero()[0])
            raise ValueError(
                f"solver shows the objective {float(value[p]):.6g} of problem {self._first + p}, where F* is at least "
                f"{float(self._least[p]):.6g}; it must be F of sf.learned.Problems.objective"
            )
        return value * (1.0 + unit) - self._least <= self.allowed

    @property
    def _unit(self) -> float:
        return 4.0 * (self.problems.rows + self.problems.columns) * EPS

    def _value(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """F (N,) and a bound of its rounding: that of M x moves the loss by ‖∇ℓ‖δ + δ²/2 at most."""
        p = self.problems
        image = p._image(x)
        value = p.smooth_value(image) + p.penalty(x)
        moved = self._unit * p._frobenius * x.norm(dim=1)
        return value, self._unit * value + moved * p.outer_gradient(image).norm(dim=1) + 0.5 * moved.square()
