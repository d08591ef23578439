"""Silver steps: proximal gradient descent that is accelerated by its step sizes alone.

Altschuler and Parrilo, *Acceleration by Stepsize Hedging II* (2023): the step h_t/β, h_t = 1 + ϱ^(ν(t)-1), ϱ = 1 + √2 and ν(t)
the number of times that 2 divides t, for T = 2^k - 1. Between these T the join of Grimmer, Shu and Wang, *Composing Optimized
Stepsize Schedules* (2024), and of Zhang and Jiang, *Accelerated Gradient Descent by Concatenation of Stepsize Schedules* (2024):
of schedules a and b with sums A - 1 and B - 1, in the order a, μ, b,

    μ = 1 + (√(A² + 6AB + B²) - A - B)/2,

with a and b of the lengths that make the sum S of all T steps largest. For T = 2^k - 1 that is the silver schedule, S = ϱ^k - 1.

Rate: f(x_T) - f* ≤ β‖x*‖²/(2 + 4S) without a penalty (Wang, Ma, Yang and Zhou, *Relaxed Proximal Point Algorithm*, 2024, for
T = 2^k - 1; Grimmer, Shu and Wang between), attained by a Huber function. With a penalty the order T^(-log2 ϱ) is proved (Bok and
Altschuler, *Accelerating Proximal Gradient Descent via Silver Stepsizes*, 2024), and no constant is claimed here. See
docs/theorems/schedules.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ..._problems import LeastSquares, Problems
from ..._problems.batch import proximal_step
from .schedule import Schedule, rounded_up

LEAST = 1e-12
"""What a split must win by, so that rounding does not choose between equal ones."""


class Silver(Schedule):
    """Gradient descent, or proximal gradient descent, with silver steps."""

    name: ClassVar[str] = "silver"

    @property
    def steps(self) -> tuple[float, ...]:
        """h_1 … h_T, in units of 1/β."""
        return silver_steps(self.horizon)

    @classmethod
    def refusal(cls, problems: Problems) -> str | None:
        return None

    def _iterates(self, problems: Problems) -> Iterator[Tensor]:
        x = problems.start()
        unit = (1.0 / problems.smoothness).to(x)[:, None].expand_as(x)
        yield x
        for h in self.steps:
            x = proximal_step(problems, x, problems.gradient(x), h * unit)
            yield x

    def _bound(self, problems: Problems, radius: Tensor) -> Tensor:
        if not isinstance(problems, LeastSquares):
            return torch.full_like(radius, torch.inf)
        return (
            problems.smoothness * radius.square() / (2.0 + 4.0 * sum(self.steps)) * rounded_up(problems, self.horizon)
        )


@cache
def silver_steps(count: int) -> tuple[float, ...]:
    """h_1 … h_count."""
    split = _splits(count)
    steps: dict[int, tuple[float, ...]] = {0: ()}

    def of(n: int) -> tuple[float, ...]:
        if n not in steps:
            a, b = of(split[n]), of(n - 1 - split[n])
            A, B = 1.0 + sum(a), 1.0 + sum(b)
            steps[n] = (*a, 1.0 + 0.5 * (math.sqrt(A * A + 6.0 * A * B + B * B) - A - B), *b)
        return steps[n]

    return of(count)


def _splits(count: int) -> list[int]:
    """The length of a for every number of steps from 0 to ``count``; b is as long or longer."""
    sums, splits = np.ones(count + 1), [0]  # 1 + S
    for n in range(1, count + 1):
        half = (n + 1) // 2
        A, B = sums[:half], sums[n - half : n][::-1]
        totals = 0.5 * (A + B + np.sqrt(A * A + 6.0 * A * B + B * B))
        splits.append(int(np.flatnonzero(totals >= totals.max() * (1.0 - LEAST))[-1]))
        sums[n] = totals.max()
    return splits
