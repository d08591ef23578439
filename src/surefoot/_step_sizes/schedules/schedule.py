"""What a step schedule without training is: a method for a fixed number of steps, with its proved rate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import islice
from typing import ClassVar

import torch
from torch import Tensor

from ..._core.validate import as_tensor, finite, integer
from ..._problems import Lasso, LeastSquares, Logistic, Problems
from ..unrolled import Solution

UNIT = torch.finfo(torch.float64).eps


class Schedule(ABC):
    """T steps on problems min f(x) + h(x), from 0, with 1/β_p of each problem; ``schedule`` makes one.

    Args:
        horizon: T, an integer ≥ 0. What is proved speaks of x_T; the iterates before it are those of a longer way there.

    Raises:
        TypeError, ValueError: another horizon.

    Example:
        >>> problems = sf.learned.LeastSquares.random(4, 20, 8)
        >>> ogm = sf.learned.schedule("OGM", 30)
        >>> found = ogm.solve(problems)
        >>> bool((problems.gap(found.solution) <= ogm.bound(problems)).all())
        True
    """

    name: ClassVar[str]
    """In tables."""

    def __init__(self, horizon: int) -> None:
        self.horizon = integer("horizon", horizon, 0)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.horizon})"

    @classmethod
    @abstractmethod
    def refusal(cls, problems: Problems) -> str | None:
        """Why nothing is proved of the schedule on these problems; ``None`` where something is."""

    @abstractmethod
    def _iterates(self, problems: Problems) -> Iterator[Tensor]:
        """x_0 = 0 … x_T (N, d), at least."""

    @abstractmethod
    def _bound(self, problems: Problems, radius: Tensor) -> Tensor:
        """``bound``, for a checked radius (N,)."""

    def iterates(self, problems: Problems) -> Iterator[Tensor]:
        """x_0 = 0 … x_T (N, d), in the problems' dtype; two products a step.

        Raises:
            ValueError: problems of which nothing is proved.
        """
        self._admit(problems)
        return islice(self._iterates(problems), self.horizon + 1)

    def solve(self, problems: Problems) -> Solution:
        """The T steps, with every objective and iterate; ``lowest`` and ``highest`` are empty: no step is chosen.

        Raises:
            ValueError: problems of which nothing is proved.
        """
        before = problems.products
        kept = list(self.iterates(problems))
        none = problems.M.new_zeros(0, problems.count)
        products = problems.products - before
        objectives = torch.stack([problems.objective(x) for x in kept])
        return Solution(kept[-1], objectives, none, none, problems.smoothness, products, torch.stack(kept))

    def bound(self, problems: Problems, radius: Tensor | None = None) -> Tensor:
        """Upper bounds (N,) float64 of F_p(x_T) - F_p*, known before a step is taken, in exact arithmetic of the steps.

        Args:
            problems: that ``refusal`` has nothing against.
            radius: bounds (N,) of ‖x_p*‖, the distance of some minimiser from 0; by default ``a_priori_radius``, which needs no
                minimiser. Infinite entries give infinite bounds; a schedule with an order of convergence and no constant has no
                finite ones.

        Raises:
            TypeError, ValueError: problems of which nothing is proved, or a radius of another shape, negative or NaN.
        """
        self._admit(problems)
        return self._bound(problems, self._radius(problems, radius))

    def bound_after(self, problems: Problems, radius: Tensor | None = None) -> Tensor:
        """What the T steps proved: at most ``bound``, and less only for the subgame-perfect method, which takes them for it.

        Args:
            problems: as of ``bound``.
            radius: as of ``bound``.

        Raises:
            TypeError, ValueError: as ``bound``.
        """
        return self.bound(problems, radius)

    def _radius(self, problems: Problems, radius: Tensor | None) -> Tensor:
        """Checked, or the default."""
        if radius is None:
            return a_priori_radius(problems)
        radius = as_tensor("radius", radius).to(device=problems.M.device, dtype=torch.float64)
        if radius.shape != (problems.count,):
            raise ValueError(
                f"radius has shape {tuple(radius.shape)}; pass one number for each of {problems.count} problems"
            )
        finite("radius", radius.nan_to_num(nan=torch.nan, posinf=0.0))
        if bool((radius < 0.0).any()):
            raise ValueError("radius has a negative entry; it bounds the distance of a minimiser from 0")
        return radius

    def _admit(self, problems: Problems) -> None:
        reason = self.refusal(problems)
        if reason is not None:
            raise ValueError(f"problems is {problems!r}; the schedule {self.name!r} {reason}")


def smooth_only(problems: Problems) -> str | None:
    """A refusal of problems with a proximal step."""
    return None if isinstance(problems, LeastSquares) else "is proved for smooth problems only: pass least squares"


def a_priori_radius(problems: Problems) -> Tensor:
    """Upper bounds (N,) float64 of ‖x_p*‖ without a minimiser; infinite where none is known.

    Least squares: ‖Y‖/√β0 for the minimiser of least norm. With F(x*) ≤ F(0): F(0)/λ for a penalty λ‖x‖₁, and √(2F(0)/μ) for an
    objective that is μ-strongly convex.
    """
    p = problems.double
    convexity = p.strong_convexity
    if isinstance(problems, LeastSquares):
        radius = p.Y.norm(dim=1) / convexity.sqrt()
    else:
        assert isinstance(p, Lasso | Logistic)
        value = p.smooth_value(torch.zeros_like(p.Y))
        radius = torch.minimum(value / p.lam, (2.0 * value / convexity).sqrt())
    return radius.nan_to_num(nan=torch.inf, posinf=torch.inf) * rounded_up(problems)


def rounded_up(problems: Problems, horizon: int = 0) -> float:
    """More than the relative rounding of a sum over a row or a column, of a recursion of ``horizon`` steps each of which moves
    its result by a few units, and of a few operations after it."""
    return 1.0 + 8.0 * (problems.rows + problems.columns + horizon) * UNIT
