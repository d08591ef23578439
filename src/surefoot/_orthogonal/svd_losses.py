"""What the training of D-SVD minimises: the loss of its layers, and the loss (4) of the inverses inside them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .svd_objective import cayley_step, half_step, half_turn, objective, step_of
from .svd_start import normalised

Loss = Literal["objective", "singular-values"]
KEPT = 2**30
"""Bytes up to which the graph of all layers is kept; of a larger one each layer is computed again in the backward pass."""


class Layered(Protocol):
    """A ``LearnedSVD``, as its losses and its training know it."""

    rows: int
    columns: int
    rank: int
    layers: int
    seed: int
    exact: bool
    steps: nn.Parameter
    coefficients: Tensor
    start_U: Tensor
    start_V: Tensor

    def inner(self, layer: int, side: int) -> Tensor | None:
        """Coefficients (K, L) of an inverse."""
        ...

    def orthonormal_start(self, M: Tensor) -> tuple[Tensor, Tensor]:
        """U_0 and V_0 for M."""
        ...

    def save(self, path: str | Path) -> None:
        """To a file."""
        ...


def layer_losses(net: Layered, M: Tensor, loss: Loss = "objective") -> Tensor:
    """Mean over matrices and layers of the loss of each layer's factors, M divided by its norm bound; a scalar with gradient.

    Args:
        net: at least one layer.
        M: (N, m, n).
        loss: "objective", f of equation (7) plus the sum of the r leading singular values, so that 0 is the optimum; or
            "singular-values", the mean squared error of the sorted diagonal of UᵀMV.
    """
    scaled = normalised(M)
    sigma = singular_values(scaled, net.rank)
    total = torch.zeros((), dtype=M.dtype, device=M.device)
    U, V = net.orthonormal_start(M)
    # some fifteen square matrices of each side, for each layer and each of M
    size = 15 * net.layers * len(M) * (net.rows**2 + net.columns**2) * M.element_size()
    step: Any = half_step if size <= KEPT else partial(checkpoint, half_step, use_reentrant=False)
    for k in range(net.layers):
        U = step(scaled, U, V, net.steps[k, 0], net.inner(k, 0))
        V = step(scaled.mT, V, U, net.steps[k, 1], net.inner(k, 1))
        if loss == "objective":
            total = total + (objective(scaled, U, V) + sigma.sum(-1)).mean()
        else:
            measured = (U.mT @ scaled @ V).diagonal(dim1=-2, dim2=-1).abs().sort(dim=-1, descending=True).values
            total = total + (measured - sigma).square().mean()
    return total / net.layers


def singular_values(M: Tensor, rank: int) -> Tensor:
    """The leading singular values (..., rank), without gradient."""
    with torch.no_grad():
        return torch.linalg.svdvals(M)[..., :rank]


@torch.no_grad()
def train_inverses(net: Layered, M: Tensor, iterations: int, rate: float) -> None:
    """Algorithm 2: in each layer, Algorithm 1 on the coefficients of its LD-Minv, for the matrices I + tP/2 that M leads to
    there; then the step with the new ones.

    Loss (4) depends on the squared singular values alone, which are 1 + τ² for the eigenvalues ±iτ of tP/2.
    """
    scaled = normalised(M)
    factors = list(net.orthonormal_start(M))
    for k in range(net.layers):
        for side in (0, 1):
            A = scaled if side == 0 else scaled.mT
            step = step_of(A, factors[side], factors[1 - side], net.steps[k, side])
            Q = 0.5 * step.t[..., None, None] * step.P
            squares = 1.0 + torch.linalg.svdvals(Q).square()
            c0 = 1.0 + half_turn(step.t, step.bound).square()
            with torch.enable_grad():
                C = net.coefficients[k, side].clone().requires_grad_()
                for _ in range(iterations):
                    (slope,) = torch.autograd.grad(spectral_loss(C, squares, c0), C)
                    C = (C - rate * slope).detach().requires_grad_()
            net.coefficients[k, side] = C.detach()
            factors[side] = cayley_step(step.P, factors[side], step.t, step.bound, net.coefficients[k, side])


def spectral_loss(C: Tensor, squares: Tensor, c0: Tensor) -> Tensor:
    """Loss (4) of coefficients C (K, L) on n matrices with squared singular values (n, d) and start Aᵀ/c0 (n,)."""
    w = squares / c0[:, None]
    total = torch.zeros((), dtype=C.dtype, device=C.device)
    for row in C:
        e = 1.0 - w
        value = row[-1] * torch.ones_like(e)
        for c in row[:-1].flip(0):
            value = value * e + c
        w = w * value
        total = total + (squares * (1.0 - w).square()).sum()
    return total / (2 * squares.shape[0] * C.shape[0])
