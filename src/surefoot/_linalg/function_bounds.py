"""Rigorous bounds of the error of a computed function of a matrix.

Let F = Q·diag(f(x))·Qᴴ be computed for Hermitian A, δ ≥ ‖A − Q·diag(x)·Qᴴ‖_F measured, and η ≥ ‖QᴴQ − I‖_F. The polar
factor W of Q is at most η from it, so Â = W·diag(x)·Wᴴ is within Δ = δ + 3η·max|x| of A (for η ≤ 1). By Weyl, the
eigenvalues of both lie in [min x − Δ, max x + Δ]; with L ≥ |f′| there, ‖f(A) − f(Â)‖_F ≤ LΔ: in the two eigenbases the
difference has the entries f[x_i, y_j]·(A − Â)_ij. What is left is ‖F − Q·diag(f(x))·Qᴴ‖_F, measured, 3η·max|f(x)|, and
four units of rounding of each f(x), or what it loses by underflow.

For F = U·diag(f(s))·Vᴴ the same holds of the dilations [[0, A], [Aᴴ, 0]] and [[0, F], [Fᴴ, 0]], whose norms are √2 times
those of A and F; L then bounds |f[x, y]| for x and y in ±[min s − Δ, max s + Δ] and, where A is not square, 0.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from . import norms
from .arguments import double_dtype
from .divided_differences import Elementwise
from .spectral import extremes


def function_bounds(
    A: Tensor, left: Tensor, x: Tensor, right: Tensor | None, values: Tensor, F: Tensor, f: Elementwise
) -> tuple[Tensor, Tensor, Tensor]:
    """δ, Δ and the bound of ‖F − f(A)‖_F, each float64 of the batch's shape; infinite where none is known.

    ``left``, ``x``, ``right`` as in ``spectral_operator``, ``values`` = f(x), F as it is returned.
    """
    wide = double_dtype(F.dtype)
    units, tiny = 4 * torch.finfo(x.dtype).eps, torch.finfo(x.dtype).tiny
    A, left, F, x, values = A.to(wide), left.to(wide), F.to(wide), x.double(), values.double()
    right = left.mH if right is None else right.to(wide)
    n = x.shape[-1]
    largest, greatest = (extremes(v.abs())[0] for v in (x, values))
    identity = torch.eye(n, dtype=wide, device=A.device)
    eta = torch.maximum(norms.defect(identity, left.mH, left), norms.defect(identity, right, right.mH))
    # the columns of left·diag(x) are rounded, and no longer than √(1 + η)
    rounding = 2.0**-52 * math.sqrt(n) * (1 + eta)
    residual = norms.up(norms.defect(A, left * x.unsqueeze(-2), right) + rounding * largest)
    change = norms.up(residual + 3 * eta * largest)
    low, high = (x.amin(-1), x.amax(-1)) if n else (largest, largest)
    bound = norms.up(
        # twice, so that rounding of the ends does not matter
        f.steepest(low - 2 * change, high + 2 * change) * change
        + norms.defect(F, left * values.unsqueeze(-2), right)
        + (rounding + 3 * eta) * greatest
        + math.sqrt(n) * (1 + eta) * (units * greatest + tiny)
    )
    return residual, change, torch.where((eta <= 1) & bound.isfinite(), bound, torch.inf)
