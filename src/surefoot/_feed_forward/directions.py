"""Where steps lead that see further than the gradient: J⁺r by the Jacobian of a fit, |H|⁻¹∇L by the Hessian of an objective.

In floats: what a step is good for is tested where it ends.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from .loss import NetworkLoss
from .objective import NetworkObjective

Weights = Mapping[str, Tensor]
ROWS = 2**24
"""Entries of the Jacobian that are computed at once, about."""
COLUMNS = 2**20
"""The same of the Hessian, counted as rows of X times units: more are not faster."""
SWEEPS = 3
"""Of iterative refinement."""
REFINED = 1e-6
"""Relative size of the last correction of it, above which singular values are taken instead."""
FLAT = 1e-10
"""Eigenvalues below this share of the largest are lifted to it."""


def flat(parts: Weights) -> Tensor:
    """All entries (p,), in the order of the names."""
    return torch.cat([part.reshape(-1) for part in parts.values()])


def parted(vector: Tensor, like: Weights) -> dict[str, Tensor]:
    """The inverse of ``flat``."""
    parts = vector.split([weight.numel() for weight in like.values()])
    return {name: part.reshape(weight.shape) for part, (name, weight) in zip(parts, like.items(), strict=True)}


def jacobian(loss: NetworkLoss, at: Weights) -> Tensor:
    """J (n, p) of the residual, row by row."""
    weights = dict(at)
    p = sum(weight.numel() for weight in weights.values())

    def of_row(x: Tensor, y: Tensor, root: Tensor) -> Tensor:
        parts = torch.func.jacrev(lambda w: loss.of_rows(x[None], y[None], root, w)[0])(weights)
        return torch.cat([parts[name].reshape(len(y), -1) for name in weights], dim=1)

    chunk = max(1, ROWS // (p * loss.Y.shape[1]))
    return torch.func.vmap(of_row, chunk_size=chunk)(*loss.merged).reshape(-1, p)


class PseudoInverse:
    """J⁺ of J (n, p), n ≤ p: by JJᵀ and iterative refinement; by singular values where the rank is not full, or nearly not."""

    def __init__(self, J: Tensor) -> None:
        self._J = J
        self._factor, failed = torch.linalg.cholesky_ex(J @ J.T)
        self._by_values: tuple[Tensor, Tensor, Tensor] | None = self._decomposed() if int(failed) else None

    def _decomposed(self) -> tuple[Tensor, Tensor, Tensor]:
        U, s, Vh = torch.linalg.svd(self._J, full_matrices=False)
        return U, s, Vh

    def __call__(self, r: Tensor) -> Tensor:
        """J⁺r (p,): of least norm among those with the least ‖r - Jd‖."""
        if self._by_values is None:
            d = more = torch.zeros_like(self._J[0])
            for _ in range(SWEEPS):
                more = self._J.T @ torch.cholesky_solve((r - self._J @ d)[:, None], self._factor)[:, 0]
                d = d + more
            if float(torch.linalg.vector_norm(more)) <= REFINED * float(torch.linalg.vector_norm(d)):
                return d
            self._by_values = self._decomposed()
        U, s, Vh = self._by_values
        kept = s > max(self._J.shape) * torch.finfo(s.dtype).eps * s.max()
        return Vh.T @ torch.where(kept, (U.T @ r) / torch.where(kept, s, 1.0), 0.0)


def hessian(loss: NetworkObjective, at: Weights) -> Tensor:
    """∇²L (p, p)."""
    leaves = {name: weight.detach().requires_grad_() for name, weight in at.items()}
    p = sum(weight.numel() for weight in at.values())
    chunk = max(1, COLUMNS // (len(loss.X) * int(loss.layers[:, 0].max())))
    with torch.enable_grad():
        slope = flat(
            dict(
                zip(
                    leaves,
                    torch.autograd.grad(loss.value(leaves), list(leaves.values()), create_graph=True),
                    strict=True,
                )
            )
        )
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
