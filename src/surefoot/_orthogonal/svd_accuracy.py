"""How good and how fast a singular value decomposition is."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Decomposition = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
"""U (..., m, r), S (..., r) and Vh (..., r, n) of M (..., m, n)."""


@dataclass(frozen=True)
class Accuracy:
    """The largest errors over a batch.

    Attributes:
        seconds: for each matrix.
        residual: (‖MV − US‖²_F + ‖MᵀU − VS‖²_F)^½ / ‖M‖_F.
        orthogonality: the larger of ‖UᵀU − I‖_F and ‖VᵀV − I‖_F.
        values: error of a singular value relative to the largest one, against torch.linalg.svdvals.
    """

    seconds: float
    residual: float
    orthogonality: float
    values: float


def decomposition(net: nn.Module) -> Decomposition:
    """What a ``LearnedSVD`` computes."""

    def run(M: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        decomposed = net(M)
        return decomposed.U, decomposed.S, decomposed.Vh

    return run


@torch.no_grad()
def accuracy(method: Decomposition, M: Tensor) -> Accuracy:
    """Time and errors of ``method`` on M (N, m, n); nothing else is running in the time."""
    method(M[:1])
    begin = time.perf_counter()
    U, S, Vh = method(M)
    seconds = (time.perf_counter() - begin) / len(M)
    sigma = torch.linalg.svdvals(M)[..., : S.shape[-1]]
    largest = torch.where(sigma[..., :1] > 0.0, sigma[..., :1], 1.0)
    errors = (*defects(M, U, S, Vh.mT), (S - sigma).abs() / largest)
    return Accuracy(seconds, *(float(error.max()) for error in errors))


@torch.no_grad()
def defects(M: Tensor, U: Tensor, S: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
    """Residual and orthogonality as in ``Accuracy``, for each matrix of M (..., m, n); of any scale."""
    scale = torch.linalg.vector_norm(M, ord=torch.inf, dim=(-2, -1), keepdim=True)
    scale = torch.where(scale > 0.0, scale, 1.0)
    M, S = M / scale, S[..., None, :] / scale
    size = _size(M)
    both = torch.stack([_size(M @ V - U * S), _size(M.mT @ U - V * S)])
    residual = torch.linalg.vector_norm(both, dim=0) / torch.where(size > 0.0, size, 1.0)
    identity = torch.eye(S.shape[-1], dtype=M.dtype, device=M.device)
    return residual, torch.maximum(_size(U.mT @ U - identity), _size(V.mT @ V - identity))


def lapack(M: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """torch.linalg.svd."""
    U, S, Vh = torch.linalg.svd(M, full_matrices=False)
    return U, S, Vh


def _size(A: Tensor) -> Tensor:
    return torch.linalg.vector_norm(A, dim=(-2, -1))
