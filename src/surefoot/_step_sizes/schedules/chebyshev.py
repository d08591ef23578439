"""The Chebyshev semi-iteration: Golub and Varga, *Chebyshev Semi-Iterative Methods* (1961).

For least squares whose MᵀM has its nonzero eigenvalues in [β0, β], c = (β + β0)/2 and ε = (β - β0)/(β + β0):

    x_{t+1} = x_{t-1} + ω_{t+1}(x_t - ∇f(x_t)/c - x_{t-1}),    ω_1 = 1,  ω_2 = 2/(2 - ε²),  ω_{t+1} = 4/(4 - ε²ω_t).

x_t is what t gradient steps with the inverse Chebyshev nodes as step sizes give, for every t at once, and stable in any order of
magnitude of T, which the steps themselves are only if they are sorted for that T (Lebedev and Finogenov, 1971).

Rate: x_t - x* = p_t(MᵀM)(x_0 - x*) with |p_t| ≤ 1/T_t(1/ε) on [β0, β], T_t the Chebyshev polynomial; so ‖∇f(x_t)‖ falls by that
factor and f(x_t) - f* by its square. No polynomial has a smaller maximum there. See docs/theorems/schedules.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor

from ..._problems import LeastSquares, Problems
from .schedule import UNIT, Schedule, rounded_up


class Chebyshev(Schedule):
    """The Chebyshev semi-iteration on the bounds β0_p and β_p of each problem."""

    name: ClassVar[str] = "Chebyshev"

    @classmethod
    def refusal(cls, problems: Problems) -> str | None:
        if not isinstance(problems, LeastSquares):
            return "is a polynomial of MᵀM: pass least squares"
        if not bool((problems.strong_convexity > 0.0).all()):
            return "needs β0 > 0, which is not certified: a matrix has deficient rank"
        return None

    def _iterates(self, problems: Problems) -> Iterator[Tensor]:
        x = before = problems.start()
        beta, beta0 = problems.smoothness, problems.strong_convexity
        unit = (2.0 / (beta + beta0)).to(x)[:, None]
        square = ((beta - beta0) / (beta + beta0)).square()
        omega = torch.ones_like(square)
        yield x
        for t in range(self.horizon):
            x, before = before + omega.to(x)[:, None] * (x - unit * problems.gradient(x) - before), x
            omega = 2.0 / (2.0 - square) if t == 0 else 4.0 / (4.0 - square * omega)
            yield x

    def factor(self, problems: Problems) -> Tensor:
        """1/T_T(1/ε) (N,) float64: how much of ‖∇f‖ and of ‖x - x*‖ is left at most."""
        ratio = (problems.strong_convexity / problems.smoothness).sqrt() * (1.0 - 4.0 * UNIT)  # q falls in it
        q = (1.0 - ratio) / (1.0 + ratio)
        power = q**self.horizon
        return (2.0 * power / (1.0 + power.square())).clamp(max=1.0) * rounded_up(problems, self.horizon)

    def _bound(self, problems: Problems, radius: Tensor) -> Tensor:
        # f(0) - f* is at most β‖x*‖²/2, and at most f(0)
        start = torch.minimum(0.5 * problems.smoothness * radius.square(), 0.5 * problems.double.Y.square().sum(1))
        bound = start * self.factor(problems).square() * rounded_up(problems)
        return bound.clamp(min=torch.finfo(torch.float64).tiny)  # a power may underflow; a bound is not 0
