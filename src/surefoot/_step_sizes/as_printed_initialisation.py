"""δ5, δ6 and δ7 of the paper's appendix B, with which it argues that an expansion meets the conditions of its Theorem 4.7: as
printed, and as the argument needs them. Evaluated only; nothing is concluded from them (docs/errata.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .as_printed import Log, log10, log_sigmoid_slope

Array = np.ndarray


@dataclass(frozen=True)
class Initialisation:
    """The quantities for X_0 = 0 and W_L = 0.

    Attributes:
        delta5: base-10 logarithm of σ(u)^-2 σ(1 - σ(u))^-2, as printed, with u = (2T-1 + (2T-2)/β) ‖MᵀY‖ Θ_L: never above that of
            16.
        delta5_needed: that of δ4^-2 = σ(u)^-2 (1 - σ(u))^-2, which the lemmas substitute.
        delta6: the smaller singular value of [s, Mᵀ(Ms - Y)], s = Σ_{t<T} (I - MᵀM/β)^{T-t} MᵀY.
        delta7: the smallest singular value of Σ_{t<T} (I - MᵀM/β)^{T-t}; 0 where β = ‖MᵀM‖.
        delta7_needed: the same with the exponent T-1-t of the iteration.
    """

    delta5: Log
    delta5_needed: Log
    delta6: float
    delta7: float
    delta7_needed: float


def initialisation(M: Array, Y: Array, T: int, theta: float) -> Initialisation:
    """The quantities of one problem, M (b, d) and Y (b,), with β = ‖MᵀM‖, for T ≥ 2 iterations and Θ_L = ``theta``."""
    beta, back = float(np.linalg.norm(M, 2) ** 2), M.T @ Y
    u = (2 * T - 1 + (2 * T - 2) / beta) * float(np.linalg.norm(back)) * theta
    sigma = 1.0 / (1.0 + math.exp(-u))
    printed = -2.0 * (log10(sigma) + log10(1.0 / (1.0 + math.exp(sigma - 1.0))))
    step = np.eye(M.shape[1]) - M.T @ M / beta
    needed = sum(np.linalg.matrix_power(step, k) for k in range(T - 1))
    s = step @ needed @ back
    columns = np.stack([s, M.T @ (M @ s - Y)], axis=1)
    return Initialisation(
        delta5=printed,
        delta5_needed=-2.0 * log_sigmoid_slope(u),
        delta6=_smallest(columns),
        delta7=_smallest(step @ needed),
        delta7_needed=_smallest(np.asarray(needed)),
    )


def _smallest(A: Array) -> float:
    return float(np.linalg.svd(A, compute_uv=False)[-1])
