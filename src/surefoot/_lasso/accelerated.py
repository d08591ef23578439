"""Accelerated proximal gradient that may take any proposed point which is as good as its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .safeguard import Point, Rounding, accepted, proximal_point

Propose = Callable[[Tensor, Tensor], Tensor]
"""A proposed point (N, d) from an iterate x and the accelerated step z (N, d)."""


@dataclass(frozen=True)
class AcceleratedRun:
    """What ``accelerated`` found.

    Attributes:
        last: x_T.
        objectives: F_p(x_t) (T+1, N).
        bounds: F_p(x_0) for t = 0, then min{F_p(x_0), 2β_p R_p²/(t+1)²} (T+1, N) with R_p = 2F_p(x_0)/λ_p ≥ ‖x_0 - x*‖.
        share: accepted proposals among those made; 1 where there were none.
    """

    last: Point
    objectives: Tensor
    bounds: Tensor
    share: float


def accelerated(
    rounding: Rounding,
    iterations: Tensor,
    start: Point,
    *,
    tolerance: float | None = None,
    propose: Propose | None = None,
) -> AcceleratedRun:
    """Monotone accelerated proximal gradient: F(x_t) - F* ≤ 2β‖x_0 - x*‖²/(t+1)², whatever is proposed.

    z_t is the proximal step from y_t. x_t is the proposal where F(proposal) ≤ F(z_t) is proved, else z_t, or x_{t-1} where that
    is lower; y_{t+1} = x_t + (τ_t/τ_{t+1})(z_t - x_t) + ((τ_t - 1)/τ_{t+1})(x_t - x_{t-1}). Two products an iteration, one more
    with a proposal: images of combinations are combinations of images.

    Args:
        rounding: of the problems.
        iterations: of each problem (N,); one that has done its own waits.
        start: x_0.
        tolerance: stop when the duality gap of every problem is at most this share of F, looked at every 10 iterations.
        propose: makes a proposal from x_{t-1} and z_t.
    """
    problems = rounding.problems
    radius = 2.0 * start.value / problems.lam
    x, y, residual, tau = start, start.x, start.residual, 1.0
    objectives, made, taken = [x.value], 0, 0
    none = torch.zeros_like(x.value)
    for t in range(int(iterations.max())):
        if tolerance is not None and t % 10 == 0 and bool((problems.gap_bound(x.x) <= tolerance * x.value).all()):
            break
        z = proximal_point(rounding, y, problems.adjoint(residual))
        step = new = rounding.imaged(z, problems.forward(z))
        active = t < iterations
        if propose is not None:
            w = propose(x.x, z)
            proposal = rounding.imaged(w, problems.forward(w))
            good = accepted(proposal, step, none)
            made, taken = made + int(active.sum()), taken + int((good & active).sum())
            new = proposal.where(good, step)
        new = new.where(active & (new.value <= x.value), x)
        following = 0.5 * (1.0 + (1.0 + 4.0 * tau**2) ** 0.5)
        forth, back = tau / following, (tau - 1.0) / following
        y = new.x + forth * (step.x - new.x) + back * (new.x - x.x)
        residual = new.residual + forth * (step.residual - new.residual) + back * (new.residual - x.residual)
        x, tau = new, following
        objectives.append(x.value)
    steps = torch.arange(len(objectives), dtype=radius.dtype, device=radius.device)[:, None]
    done = steps.minimum(iterations.to(steps))
    bounds = (2.0 * rounding.smoothness * radius.square() / (done + 1.0).square()).minimum(start.value)
    bounds = torch.where(done > 0.0, bounds, start.value)  # the theorem is about one step and more
    return AcceleratedRun(x, torch.stack(objectives), bounds, taken / made if made else 1.0)
