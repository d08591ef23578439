"""Where steps lead that see further than the gradient: J⁺r by the Jacobian of a fit, |H|⁻¹∇L by the Hessian of an objective.

In floats: what a step is good for is tested where it ends.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from surefoot_check.feed_forward import SYSTEM as CHECKED
from surefoot_check.feed_forward.enclosures import Measured

from .._core.measuring import stored
from .._core.near_a_fit.pseudo_inverse import PseudoInverse, flat, parted
from .loss import NetworkLoss
from .objective import NetworkObjective

Weights = Mapping[str, Tensor]
ROWS = 2**24
"""Entries of the Jacobian that are computed at once, about."""
COLUMNS = 2**20
"""The same of the Hessian, counted as rows of X times units: more are not faster."""
FLAT = 1e-10
"""Eigenvalues below this share of the largest are lifted to it."""


def jacobian(loss: NetworkLoss, at: Weights) -> Tensor:
    """J (n, p) of the residual, row by row."""
    weights = dict(at)
    p = sum(weight.numel() for weight in weights.values())

    def of_row(x: Tensor, y: Tensor, root: Tensor) -> Tensor:
        parts = torch.func.jacrev(lambda w: loss.of_rows(x[None], y[None], root, w)[0])(weights)
        return torch.cat([parts[name].reshape(len(y), -1) for name in weights], dim=1)

    chunk = max(1, ROWS // (p * loss.Y.shape[1]))
    return torch.func.vmap(of_row, chunk_size=chunk)(*loss.merged).reshape(-1, p)


def inverse_at(loss: NetworkLoss, weights: Weights) -> PseudoInverse:
    """That of the Jacobian of the residual at weights, of which JJᵀ is known layer by layer."""
    gram = torch.from_numpy(Measured(*stored(CHECKED, loss, weights)).gram.value)
    vector = flat(weights).detach().requires_grad_()
    with torch.enable_grad():
        r = loss.residual(parted(vector, weights)).reshape(-1)
        x = torch.zeros_like(r, requires_grad=True)
        (pulled,) = torch.autograd.grad(r, vector, x, create_graph=True)  # linear in x, with the derivative J
    return PseudoInverse(
        gram.to(r.device),
        lambda d: torch.autograd.grad(pulled, x, d, retain_graph=True)[0],
        lambda x: torch.autograd.grad(r, vector, x, retain_graph=True)[0],
        lambda: jacobian(loss, weights),
    )


def hessian(loss: NetworkObjective, at: Weights) -> Tensor:
    """∇²L (p, p)."""
    leaves = {name: weight.detach().requires_grad_() for name, weight in at.items()}
    p = sum(weight.numel() for weight in at.values())
    chunk = max(1, COLUMNS // (len(loss.X) * int(loss.layers[:, 0].max())))
    with torch.enable_grad():
        parts = torch.autograd.grad(loss.value(leaves), list(leaves.values()), create_graph=True)
        slope = torch.cat([part.reshape(-1) for part in parts])
        rows = []
        for start in range(0, p, chunk):
            units = torch.eye(p, dtype=slope.dtype, device=slope.device)[start : start + chunk]
            found = torch.autograd.grad(slope, list(leaves.values()), units, retain_graph=True, is_grads_batched=True)
            rows.append(torch.cat([part.reshape(len(units), -1) for part in found], dim=1))
    H = torch.cat(rows)
    return 0.5 * (H + H.T)


def newton(H: Tensor, slope: Tensor) -> Tensor:
    """|H|⁻¹ times the gradient (p,), the absolute value taken of the eigenvalues of H, so that it leads away from saddles."""
    floor = FLAT * float(torch.linalg.matrix_norm(H))
    factor, failed = torch.linalg.cholesky_ex(H - floor * torch.eye(len(H), dtype=H.dtype, device=H.device))
    if not int(failed):  # no eigenvalue is below the floor: much cheaper than finding all
        factor = torch.linalg.cholesky(H)
        return torch.cholesky_solve(slope[:, None], factor)[:, 0]
    values, Q = torch.linalg.eigh(H)
    return Q @ ((Q.T @ slope) / values.abs().clamp_min(floor))
