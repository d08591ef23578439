"""OptISTA, the proximal counterpart of OGM.

Jang, Das Gupta and Ryu, *Computer-Assisted Design of Accelerated Composite Optimization Methods: OptISTA* (2023).

With the θ of OGM, whose last one is θ_T, and γ_t = 2θ_t(θ_T² - 2θ_t² + θ_t)/θ_T², from x_0 = y_0 = z_0:

    y_{t+1} = prox(y_t - (γ_t/β)∇f(x_t), γ_t/β),    z_{t+1} = x_t + (y_{t+1} - y_t)/γ_t,
    x_{t+1} = z_{t+1} + (θ_t - 1)/θ_{t+1} (z_{t+1} - z_t) + θ_t/θ_{t+1} (z_{t+1} - x_t).

Rate: F(y_T) - F* ≤ β‖x*‖²/(2(θ_T² - 1)), half of FISTA's; no method of its kind has a better one for all problems. See
docs/theorems/schedules.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor

from ..._problems import LeastSquares, Problems
from .ogm import momenta
from .schedule import Schedule, rounded_up


class OptISTA(Schedule):
    """Optimal for T proximal gradient steps; the iterates are y_t."""

    name: ClassVar[str] = "OptISTA"

    @classmethod
    def refusal(cls, problems: Problems) -> str | None:
        return "is for proximal steps: use OGM for least squares" if isinstance(problems, LeastSquares) else None

    def _iterates(self, problems: Problems) -> Iterator[Tensor]:
        x = y = z = problems.start()
        unit = (1.0 / problems.smoothness).to(x)[:, None].expand_as(x)
        theta = momenta(self.horizon)
        square = theta[-1] ** 2
        yield y
        for this, following in pairwise(theta):
            length = 2.0 * this * (square - 2.0 * this * this + this) / square
            step = length * unit
            new = problems.prox(y - step * problems.gradient(x), step)
            moved = x + (new - y) / length
            x = moved + (this - 1.0) / following * (moved - z) + this / following * (moved - x)
            y, z = new, moved
            yield y

    def _bound(self, problems: Problems, radius: Tensor) -> Tensor:
        divisor = 2.0 * (momenta(self.horizon)[-1] ** 2 - 1.0)
        square = problems.smoothness * radius.square()
        return (
            square / divisor * rounded_up(problems, self.horizon)
            if divisor > 0.0
            else torch.full_like(square, torch.inf)
        )
