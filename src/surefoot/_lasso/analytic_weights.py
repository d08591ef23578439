"""Weights of ALISTA, which a matrix alone determines, with bounds of how incoherent they and all others are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surefoot_check.rigor.bounds import down, gamma, up
from surefoot_check.rigor.gram import extreme_bounds

from .._core.brief import brief
from .._core.validate import as_tensor, real

Array = np.ndarray


@dataclass(frozen=True)
class AnalyticWeights:
    """W for a matrix M, and where its coherence lies.

    Attributes:
        W: (b, d), of the dtype of M, with W_iᵀM_i = 1.
        coherence: max |W_iᵀM_j|/|W_iᵀM_i| over i ≠ j, rounded up.
        least_coherence: what no weights with W_iᵀM_i = 1 go below in max |W_iᵀM_j|, the generalised mutual coherence of M,
            rounded down; 0 where nothing better is proved.
    """

    W: Tensor
    coherence: float
    least_coherence: float

    __repr__ = brief


def analytic_weights(M: Any) -> AnalyticWeights:
    """The W that minimises ‖WᵀM‖_F among those with W_iᵀM_i = 1 (Liu, Chen, Wang and Yin, 2019), in closed form.

    With the projector Q = M⁺M it is W_i = (M⁺)ᵢᵀ/Q_ii, so W_iᵀM_j = Q_ij/Q_ii: MMᵀW_i = M_i/Q_ii is the condition of optimality.
    From the same numbers follows what no weights can do: u = (Q_ij)_{j≠i}/(1 - Q_ii) has Σ u_j M_j = M_i, so that with any w,
    wᵀM_i = 1, 1 = Σ u_j wᵀM_j ≤ ‖u‖₁ max_{j≠i} |wᵀM_j|.

    Args:
        M: (b, d) float64 or float32, of any rank.

    Raises:
        TypeError, ValueError: no such matrix, or one with a column of zeros.

    Example:
        >>> M = torch.randn(10, 20, dtype=torch.float64)
        >>> found = sf.learned.analytic_weights(M)
        >>> torch.allclose((found.W * M).sum(0), torch.ones(20, dtype=torch.float64)), found.least_coherence <= found.coherence
        (True, True)
    """
    matrix = real("M", M, 2)
    zero = (matrix == 0.0).all(0)
    if bool(zero.any()):
        index = int(zero.nonzero()[0])
        raise ValueError(f"M has only zeros in column {index}; no weights fit it: remove the column")
    inverse = torch.linalg.pinv(matrix)
    share = (inverse * matrix.T).sum(1)
    W = (inverse / share[:, None]).T.to(as_tensor("M", M).dtype).contiguous()
    A, B = (np.ascontiguousarray(v.double().cpu().numpy()) for v in (matrix, W))
    coherences = _coherences(A, B)
    return AnalyticWeights(W, max(coherences, default=0.0), _least(A, inverse.cpu().numpy() @ A, coherences))


def _coherences(A: Array, B: Array) -> list[float]:
    """Upper bounds of max_{j≠i} |B_iᵀA_j|/|B_iᵀA_i|; infinite where B_iᵀA_i may be 0."""
    product, error = np.abs(B.T @ A), 2.0 * gamma(len(A) + 2) * (np.abs(B.T) @ np.abs(A))
    own = np.diagonal(product - error)
    others = product + error
    np.fill_diagonal(others, 0.0)
    return [
        up(up(float(o), 4) / down(float(s), 4)) if s > 0.0 else math.inf
        for o, s in zip(others.max(1), own, strict=True)
    ]


def _least(A: Array, Q: Array, coherences: list[float]) -> float:
    """The best lower bound that a column's u gives. With e = Σ u_jM_j - M_i, which need not be 0, 1 ≤ ‖u‖₁ v + ‖w‖‖e‖ for a
    best w, which lies in the range of M: σ_min‖w‖ ≤ ‖Mᵀw‖ ≤ sqrt(d) max{1, v}, and v is at most the coherence of W_i."""
    rows, columns = A.shape
    (low, _), _ = extreme_bounds(A if rows <= columns else np.ascontiguousarray(A.T))
    if low <= 0.0 or rows > columns:
        return 0.0
    U = Q / np.maximum(1.0 - np.diagonal(Q), np.finfo(np.float64).tiny)[:, None]
    np.fill_diagonal(U, 0.0)
    missing = np.abs(U @ A.T - A.T) + 2.0 * gamma(columns + 2) * (np.abs(U) @ np.abs(A.T) + np.abs(A.T))
    errors, sizes = np.linalg.norm(missing, axis=1), np.abs(U).sum(1)
    best = 0.0
    for error, size, coherence in zip(errors.tolist(), sizes.tolist(), coherences, strict=True):
        slack = up(up(error, rows + 2) * math.sqrt(columns) * max(1.0, coherence) / low, 6)
        if slack < 1.0 and 0.0 < size < math.inf:
            best = max(best, down(down(1.0 - slack) / up(size, columns), 2))
    return best
