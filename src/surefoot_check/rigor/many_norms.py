"""Upper bounds of the spectral norms of many small matrices at once, by powers of their Gram matrices.

With G = AAᵀ or AᵀA, the smaller, and p = 2^SQUARINGS, λ_max(G) ≤ ‖G^p‖_F^{1/p}: the Schatten norm of order 4p of A, which exceeds
the spectral norm by a factor of r^{1/(4p)} at most, r the rank, and by far less where singular values decay. No decomposition is
computed, and no candidate has to be verified.
"""

from __future__ import annotations

import numpy as np

from .bounds import ETA, FAST, UNIT_ROUNDOFF, Array, Level, array_up, gamma, rescaled, scaled, witnesses
from .gram import norm_bounds
from .intervals import TINY

SQUARINGS = 2
"""Order 16: within 1.33 of the norm of any matrix of rank 100, and typically within 1.05."""
LARGEST = 1 << 30
"""Multiplications up to which ``weighted_norms`` takes powers; without them its bounds are some tenth larger."""
CHUNK = 1 << 20
"""Entries of matrices that are held at once."""


def frobenius_norms(A: Array) -> Array:
    """Upper bounds (m,) of the Frobenius norms of A (m, rows, columns)."""
    size = A.shape[1] * A.shape[2]
    return array_up(np.sqrt(np.einsum("ijk,ijk->i", A, A) + TINY * size), size + 4)


def norms_of_rows(A: Array) -> Array:
    """Upper bounds of the norms of the rows."""
    return array_up(np.sqrt((A * A).sum(axis=1) + TINY * A.shape[1]), A.shape[1] + 4)


def spectral_norms(A: Array, level: Level) -> Array:
    """Upper bounds (m,) of the spectral norms of A (m, rows, columns), which is finite."""
    B = A if A.shape[1] <= A.shape[2] else A.transpose(0, 2, 1)
    with np.errstate(under="ignore"):  # what underflows is covered by the constants below
        sizes = frobenius_norms(B)
        if B.shape[1] == 1:
            return sizes
        exponents = np.frexp(sizes)[1]
        B = B * np.ldexp(1.0, -exponents)[:, None, None]  # sizes are above √TINY, and these of norm 1 at most
        G, error = _products(B, B.transpose(0, 2, 1), level, np.ones(len(B)))
        size = frobenius_norms(G)
        for _ in range(SQUARINGS):
            G, rounding = _products(G, G, level, size * size)
            error = array_up(rounding + error * (2.0 * size + error), 6)
            size = frobenius_norms(G)
        bounds = array_up(size + error, 1)
        for _ in range(SQUARINGS + 1):
            bounds = array_up(np.sqrt(bounds), 1)
        return array_up(np.ldexp(array_up(bounds + TINY * B[0].size, 1), exponents), 1)


def symmetric_norms(M: Array) -> Array:
    """Upper bounds (k,) of the spectral norms of exactly symmetric M (k, m, m), sharp to rounding: with M = V D Vᵀ + R from
    computed eigenvectors, which are witnesses, ‖M‖ ≤ max|d| ‖VᵀV‖ + ‖R‖. Frobenius norms where LAPACK fails."""
    found = witnesses(np.linalg.eigh, M)
    if found is None or M.shape[1] == 1:
        return frobenius_norms(M)
    d, V = found
    T, size = V.transpose(0, 2, 1), frobenius_norms(V)
    slip = gamma(M.shape[1] + 1)
    stretch = array_up(1.0 + frobenius_norms(entrywise_product(T, V) - np.eye(M.shape[1])) + slip * size * size, 6)
    scaled = V * d[:, None, :]
    rest = frobenius_norms(M - entrywise_product(scaled, T)) + 2.0 * slip * frobenius_norms(scaled) * size
    # entries of V D, and of the differences, are rounded once
    rest = rest + 2.0 * UNIT_ROUNDOFF * frobenius_norms(M)
    return array_up(np.abs(d).max(axis=1) * stretch + rest + TINY, 12)


def entrywise_product(A: Array, B: Array) -> Array:
    """C = A B (..., rows, columns) by single operations on entries, within γ_k |A| |B| + k eta at every level."""
    C = A[..., :, :1] * B[..., :1, :]
    for k in range(1, A.shape[-1]):
        C += A[..., :, k : k + 1] * B[..., k : k + 1, :]
    return C


def _products(A: Array, B: Array, level: Level, sizes: Array) -> tuple[Array, Array]:
    """One by one, with bounds (m,) of their errors in Frobenius norm; ``sizes`` (m,) are products of those norms of A and B."""
    if level is not FAST:
        found = [level.product(np.ascontiguousarray(left), right) for left, right in zip(A, B, strict=True)]
        return np.array([value for value, _ in found]), np.array([error for _, error in found])
    C, inner = np.matmul(A, B), A.shape[2]
    return C, array_up(gamma(inner) * sizes + 2.0 * ETA * inner * C[0].size, 4)


def weighted_norms(weights: Array, A: Array, level: Level) -> Array:
    """Upper bounds (J,) of ‖diag(w)A‖ for the columns w of ``weights`` (N, J), not negative, and A (N, d)."""
    least = _cheap_weighted_norms(weights, A, level)
    fewer, more = sorted(A.shape)
    if weights.shape[1] * fewer * fewer * (more + SQUARINGS * fewer) > LARGEST:
        return least
    found = []
    step = max(1, CHUNK // A.size)
    for start in range(0, weights.shape[1], step):
        with np.errstate(under="ignore"):
            scaled = weights.T[start : start + step, :, None] * A
        # an entry is rounded once, by u‖diag(w)A‖_F together, which is at most √r u times the norm; TINY covers underflow
        found.append(array_up(spectral_norms(scaled, level) + TINY, min(A.shape) + 1))
    return np.minimum(least, np.concatenate(found))


def _cheap_weighted_norms(weights: Array, A: Array, level: Level) -> Array:
    """The same from √(‖·‖₁‖·‖_∞), the Frobenius norm, and ‖A‖ times the largest weight."""
    (w, of_w), (B, of_B) = scaled(weights), scaled(A)  # no entry is above 1; TINY covers what underflows here and below
    magnitudes = np.abs(B)
    with np.errstate(under="ignore"):
        sums, error = level.product(np.ascontiguousarray(magnitudes.T), w)
        squares, rounding = level.product((magnitudes**2).sum(axis=1)[None, :], w**2)
        rows = (w * magnitudes.sum(axis=1)[:, None]).max(axis=0)
        bounds = [
            np.sqrt((sums + error).max(axis=0) + TINY * B.size) * np.sqrt(rows + TINY * B.size),
            np.sqrt(squares[0] + rounding + TINY * B.size),
            w.max(axis=0) * norm_bounds(B, level)[1] + TINY * B.size,
        ]
    return rescaled(array_up(np.min(bounds, axis=0), sum(A.shape) + 16), of_w + of_B, np.inf)
