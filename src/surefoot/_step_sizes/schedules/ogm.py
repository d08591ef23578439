"""The optimized gradient method of Kim and Fessler, *Optimized First-Order Methods for Smooth Convex Minimization* (2016).

    y_{t+1} = x_t - ∇f(x_t)/β,    x_{t+1} = y_{t+1} + (θ_t - 1)/θ_{t+1} (y_{t+1} - y_t) + θ_t/θ_{t+1} (y_{t+1} - x_t),

y_0 = x_0, θ_0 = 1, θ_{t+1} = (1 + √(1 + 4θ_t²))/2, and 8 in place of 4 in the last step.

Rate: f(x_T) - f* ≤ β‖x*‖²/(2θ_T²), which no first-order method beats on all smooth convex functions of high dimension (Drori,
2017). It is attained: on βx²/2 the method is as slow as that. See docs/theorems/schedules.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import ClassVar

from torch import Tensor

from ..._problems import Problems
from .schedule import Schedule, rounded_up, smooth_only


class OGM(Schedule):
    """The optimized gradient method, with its factor of the last step."""

    name: ClassVar[str] = "OGM"

    @classmethod
    def refusal(cls, problems: Problems) -> str | None:
        return smooth_only(problems)

    def _iterates(self, problems: Problems) -> Iterator[Tensor]:
        x = y = problems.start()
        unit = (1.0 / problems.smoothness).to(x)[:, None]
        theta = momenta(self.horizon)
        yield x
        for this, following in pairwise(theta):
            new = x - unit * problems.gradient(x)
            x = new + (this - 1.0) / following * (new - y) + this / following * (new - x)
            y = new
            yield x

    def _bound(self, problems: Problems, radius: Tensor) -> Tensor:
        theta = momenta(self.horizon)[-1]
        return problems.smoothness * radius.square() / (2.0 * theta * theta) * rounded_up(problems, self.horizon)


def momenta(count: int) -> list[float]:
    """θ_0 … θ_count."""
    theta = [1.0]
    for t in range(count):
        last = t == count - 1
        theta.append(0.5 * (1.0 + math.sqrt(1.0 + (8.0 if last else 4.0) * theta[-1] ** 2)))
    return theta
