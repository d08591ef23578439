"""The matrix iteration X_{k+1} = X_k p_k(I − AX_k) with all-ones or Chebyshev coefficients (equation (3) of the paper)."""

from __future__ import annotations

from itertools import islice

import torch
from torch import Tensor

from . import chebyshev, matrix_polynomial, norms
from .operator import may_branch


def chebyshev_layers(ratio: float, order: int, tolerance: float, limit: int) -> list[list[float]]:
    """The optimal coefficients for singular values in [ratio·h, h], X_0 = Aᴴ/h²: one list a layer, lowest power first.

    As many layers as bring the worst residual under ``tolerance``, at most ``limit``.
    """
    result: list[list[float]] = []
    for row, residual in islice(chebyshev.layers(order, ratio**2, 1.0), limit):
        result.append(row)
        if residual <= tolerance:
            break
    return result


def iterate(A: Tensor, upper: Tensor, ratio: float, order: int, limit: int) -> tuple[Tensor, Tensor, Tensor]:
    """X, the number of layers used and whether the residual reached rounding level, for each matrix of A (..., m, n), m ≤ n.

    X_0 = Aᴴ/c0. ``ratio`` = 0: all-ones coefficients, c0 a rigorous bound of ‖A‖². Otherwise the Chebyshev ones for singular
    values in [ratio·upper, upper], c0 = upper², followed by all-ones layers.

    A matrix stops when ‖AXA − A‖_F ≤ eps ‖A‖_F² ‖X‖_F, the size of the rounding error of that residual, and the last layer
    changed X so little that the next would change nothing: beyond that, a matrix with null spaces on both sides only loses
    accuracy, by the factor p_k(1) a layer (order, for all-ones). Differentiable as it is written. Where the values of A may not
    be looked at, all ``limit`` layers are computed, and those after the stop are not used.
    """
    look = may_branch(A)
    eps = torch.finfo(A.dtype).eps
    identity = torch.eye(A.shape[-2], dtype=A.dtype, device=A.device)
    ones = [[1.0] * order] * limit
    layers = [*chebyshev_layers(ratio, order, eps, limit), *ones] if ratio else ones
    norm = upper.expand(A.shape[:-2]) if ratio else norms.spectral(A.detach())
    # the matrices of a batch are scaled to about 1, so that a bound as small as this is that of a zero matrix
    c0 = torch.where(norm > 1e-10, norm, 1.0).square().to(A.real.dtype)
    X = A.mT.conj().resolve_conj() / c0[..., None, None]
    size = torch.linalg.vector_norm(A.detach(), dim=(-2, -1))
    converged = torch.zeros(A.shape[:-2], dtype=torch.bool, device=A.device)
    iterations = torch.zeros(A.shape[:-2], dtype=torch.int64, device=A.device)
    settled = torch.zeros_like(converged)
    for k in range(limit + 1):
        E = identity - A @ X
        with torch.no_grad():
            residual = torch.linalg.vector_norm(E @ A, dim=(-2, -1))
            norm = torch.linalg.vector_norm(X, dim=(-2, -1))
            # NaN is not called converged
            converged = converged | (settled & (residual <= eps * size**2 * norm))
        if k == limit or (look and bool(converged.all())):
            break
        iterations = iterations + ~converged
        following = X @ matrix_polynomial.evaluate(layers[k], E)
        with torch.no_grad():
            # an error of δ becomes δ^order; rounding in E alone changes X by eps κ
            change = torch.linalg.vector_norm(following - X, dim=(-2, -1))
            settled = change <= torch.clamp(10 * eps * size * norm, min=eps ** (1 / order)) * norm
        X = torch.where(converged[..., None, None], X, following)
    return X, iterations, converged
