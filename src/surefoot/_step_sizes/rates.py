"""What is proved of the methods without learning: bounds of F - F* after T iterations, from the distance of a minimiser.

Statements and sources: docs/theorems/schedules.md. Restarted FISTA, scikit-learn and skglm have no entry.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .._problems import LeastSquares, Problems
from .baselines import constant_steps
from .schedules import SCHEDULES
from .schedules.chebyshev import Chebyshev


def proved_bound(method: str, problems: Problems, iterations: int, radius: Tensor) -> Tensor | None:
    """Upper bounds (N,) float64 of F_p(x_T) - F_p*, in exact arithmetic of the method; ``None`` where nothing is listed.

    Args:
        method: a name out of ``baselines.names(problems)``.
        problems: that it is for.
        iterations: T ≥ 1.
        radius: bounds (N,) float64 of ‖x_p*‖; for least squares x_p* is the minimiser of least norm.
    """
    if method in SCHEDULES:
        bound = SCHEDULES[method](iterations).bound(problems, radius)
        return bound if bool(bound.isfinite().all()) else None
    energy = problems.smoothness * radius.square()
    steps = constant_steps(problems)
    if method in steps:
        if isinstance(problems, LeastSquares):
            return _of_a_polynomial(problems, steps[method], iterations) * radius.square()
        return radius.square() / (4.0 * iterations * steps[method])
    if method in ("FISTA", "Nesterov"):
        return 2.0 * energy / (iterations + 1.0) ** 2
    if method == "strongly convex Nesterov":
        ratio = problems.strong_convexity / problems.smoothness
        return (1.0 - ratio.sqrt()) ** iterations * 0.5 * (1.0 + ratio) * energy
    if method in ("CGLS", "LSQR"):  # the least F in the Krylov space
        best = SCHEDULES["OGM"](iterations).bound(problems, radius)
        admitted = Chebyshev.refusal(problems) is None
        return torch.minimum(best, Chebyshev(iterations).bound(problems, radius)) if admitted else best
    return None


def _of_a_polynomial(problems: LeastSquares, step: Tensor, iterations: int) -> Tensor:
    """½ max λ(1 - λs)^{2T} (N,) over λ in [β0, β]: at an end, or at λ = 1/(s(2T + 1))."""
    low, high = problems.strong_convexity, problems.smoothness
    inner = torch.minimum(torch.maximum(1.0 / (step * (2.0 * iterations + 1.0)), low), high)
    spectrum = torch.stack([low, inner, high])
    return 0.5 * (spectrum * (1.0 - spectrum * step) ** (2 * iterations)).amax(0)
