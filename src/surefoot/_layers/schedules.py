"""What training starts from: steps that are the same for all coordinates, and the best of them."""

from __future__ import annotations

import torch
from torch import Tensor

from .._problems import LeastSquares, Problems
from .._problems.batch import proximal_step

SWEEPS = 50
"""Over the layers, at most; the first few do nearly all."""
HALVINGS = 100


def follow(problems: Problems, x: Tensor, inverse: Tensor, schedule: Tensor) -> Tensor:
    """x after the steps of ``schedule`` (k,), each the same P for all coordinates; ``inverse`` = 1/β (N, 1)."""
    for P in schedule:
        x = proximal_step(problems, x, problems.gradient(x), (P * inverse).expand_as(x))
    return x


def residual_after(problems: Problems, r: Tensor, inverse: Tensor, schedule: Tensor) -> Tensor:
    """Residuals (N, b, c) of least squares after these steps from some (N, b, c); rounding shrinks with them."""
    for P in schedule:
        r = r - (P * inverse).unsqueeze(2) * (problems.M @ (problems.M.mT @ r))
    return r


def objective_after(problems: Problems, x: Tensor, inverse: Tensor, schedule: Tensor) -> float:
    """F, summed over the problems, after these steps."""
    return float(problems.objective(follow(problems, x, inverse, schedule)).sum())


def course(problems: Problems, inverse: Tensor, schedule: Tensor) -> list[float]:
    """F, summed over the problems, before the first step from 0 and after each."""
    x = problems.start()
    objectives = [float(problems.objective(x).sum())]
    for P in schedule:
        x = follow(problems, x, inverse, P[None])
        objectives.append(float(problems.objective(x).sum()))
    return objectives


def best_schedule(problems: Problems, inverse: Tensor, grid: Tensor, layers: int) -> tuple[Tensor, float]:
    """A schedule (T,) of one P a layer, of steps from 0, and the best constant P.

    Of least squares both are found in the spectral basis of M: the constant by bisection, as F_T is convex in P, then one P after
    the other, in each of which F_T is a convex quadratic. Of other problems both are the best P of the grid.
    """
    if isinstance(problems, LeastSquares):
        low, high = float(grid[0]), float(grid[-1])
        basis, values, _ = torch.linalg.svd(problems.M, full_matrices=False)
        energy = torch.bmm(problems.Y.unsqueeze(1), basis).squeeze(1).square().reshape(-1)
        rate = (values.square() * inverse).reshape(-1)
        constant = _best_constant(energy, rate, low, high, layers)
        return _coordinate_descent(energy, rate, low, high, torch.full((layers,), constant).double()), constant
    start = problems.start()
    reached = [objective_after(problems, start, inverse, P.expand(layers)) for P in grid]
    constant = grid[int(torch.tensor(reached).argmin())]
    return constant.expand(layers).clone(), float(constant)


def _best_constant(energy: Tensor, rate: Tensor, low: float, high: float, layers: int) -> float:
    """Of Σ energy (1 - P rate)^(2T)."""
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if float((energy * rate * (1.0 - middle * rate) ** (2 * layers - 1)).sum()) > 0.0:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


def _coordinate_descent(energy: Tensor, rate: Tensor, low: float, high: float, schedule: Tensor) -> Tensor:
    """The least of Σ energy Π(1 - P_t rate)² over one P_t after the other, until no sweep changes any."""
    schedule, layers = schedule.clone(), len(schedule)
    for _ in range(SWEEPS):
        before = schedule.clone()
        factors = (1.0 - schedule[:, None] * rate).square()
        after = [energy]
        for t in range(layers - 1, 0, -1):
            after.append(after[-1] * factors[t])
        passed = torch.ones_like(rate)
        for t in range(layers):
            weight = after[layers - 1 - t] * passed * rate
            curvature = float((weight * rate).sum())
            if curvature > 0.0:
                schedule[t] = min(max(float(weight.sum()) / curvature, low), high)
            passed = passed * (1.0 - schedule[t] * rate).square()
        if bool((schedule - before).abs().max() <= 1e-9 * high):
            break
    return schedule
