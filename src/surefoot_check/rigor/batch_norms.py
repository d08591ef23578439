"""Mini-batches: rigorous bounds of the norms of the rows of a Jacobian J that belong to B of N samples.

With K = JJᵀ, in blocks of k rows a sample, ‖C_SJ‖² = λ_max(K_SS) for the rows C_S of a batch S. The largest over all batches is
combinatorial; each of these bounds it, and the least is taken:

- λ_max(K);
- the sum of the B largest λ_max(K_ii);
- for any d > 0 (Gershgorin, for blocks, after the similarity by diag(d)) the largest over i of ‖K_ii‖ plus the B - 1 largest of
  ‖K_ij‖d_j/d_i, j ≠ i; the d that equalises them is approached by powers of that map, whose Perron vector it is;
- for any W of m columns λ_max(K - WWᵀ) plus the B largest squared norms of the rows of W of one sample, as ‖W_S‖ ≤ ‖W_S‖_F: the
  leading eigenvectors times the roots of their eigenvalues, m = 1, 2.

Batches drawn without replacement, each as likely as any other, have E[G_SKG_S] = (B/N)Ω with G_S = C_SᵀC_S, g_i = C_iᵀC_i and

    Ω = (B-1)/(N-1) K + (N-B)/(N-1) Σ_i g_iKg_i.

What is searched for is found in floats, and proved afterwards.
"""

from __future__ import annotations

import math

import numpy as np

from .approximation import Approximation
from .bounds import Array, Level, array_up, difference_with_error, frobenius_upper, up, witnesses
from .gram import symmetric_extremes
from .intervals import TINY, sum_up
from .many_norms import frobenius_norms, spectral_norms

POWERS = 30
"""Of the map that equalises the sums of rows."""
LEADING = (1, 2)
"""Eigenvectors that are taken out."""


def largest_norm_square(K: Approximation, rows: int, batch: int, largest: float, level: Level) -> float:
    """Upper bound of λ_max(K_SS) over the batches S of so many samples.

    Args:
        K: (N k, N k), exactly symmetric as computed; what it stands for is positive semidefinite.
        rows: k, of one sample.
        batch: B, from 1 to N.
        largest: upper bound of λ_max of what K stands for.
    """
    sizes = _block_norms(K.value, rows, level)
    if batch >= len(sizes):
        return largest
    # the errors of the blocks of a batch add up to at most √B times their joint one
    apart = up(_most(np.diag(sizes), batch) + math.sqrt(batch) * K.error, 3)
    # of a symmetric matrix within that distance: Weyl
    joint = up(min(_by_rows(sizes, batch), _without_leading(K.value, rows, batch, level)) + K.error)
    return min(largest, apart, joint)


def second_moment(
    K: Approximation, apart: Approximation, samples: int, batch: int, largest: float, level: Level
) -> float:
    """Upper bound of λ_max(Ω), which is at most λ_max(K).

    Args:
        K: (q, q), exactly symmetric as computed.
        apart: Σ_i g_iKg_i (q, q), the same; of samples with rows of their own the blocks of K on its diagonal.
        samples: N ≥ 2.
        batch: B, from 1 to N.
        largest: upper bound of λ_max of what K stands for.
    """
    together, alone = (batch - 1) / (samples - 1), (samples - batch) / (samples - 1)
    mixed = K.times(together) + apart.times(alone)
    size = up(frobenius_upper(K.value) + K.error + frobenius_upper(apart.value) + apart.error, 3)
    error = up(mixed.error + 2.0**-52 * size, 2)  # of the two weights, at most 1, each rounded once
    return min(largest, max(0.0, _largest_eigenvalue(mixed.value, error, level)))


def blocks_on_diagonal(K: Approximation, rows: int) -> Approximation:
    """K with 0 outside its blocks of so many rows and columns on the diagonal: no farther from what it stands for."""
    sample = np.arange(len(K.value)) // rows
    return Approximation(np.where(sample[:, None] == sample, K.value, 0.0), K.error)


def _largest_eigenvalue(A: Array, error: float, level: Level) -> float:
    """Upper bound of that of every symmetric matrix within the error of A."""
    return symmetric_extremes(A, level, error)[1][1]


def _block_norms(K: Array, rows: int, level: Level) -> Array:
    """Upper bounds (N, N) of the spectral norms of the blocks."""
    samples = len(K) // rows
    blocks = K.reshape(samples, rows, samples, rows).transpose(0, 2, 1, 3)
    magnitudes = np.abs(blocks)
    if rows == 1:
        return magnitudes[:, :, 0, 0]
    lines = magnitudes.sum(axis=2).max(axis=2), magnitudes.sum(axis=3).max(axis=2)
    sums = array_up(np.sqrt(lines[0]) * np.sqrt(lines[1]) + TINY, 2 * rows + 4)
    found = np.minimum(sums, frobenius_norms(blocks.reshape(-1, rows, rows)).reshape(samples, samples))
    own = np.arange(samples)
    found[own, own] = np.minimum(found[own, own], spectral_norms(np.ascontiguousarray(blocks[own, own]), level))
    return found


def _most(sizes: Array, count: int) -> float:
    """Upper bound of the sum of so many of the largest."""
    return sum_up(np.sort(sizes)[len(sizes) - count :].tolist())


def _by_rows(sizes: Array, batch: int) -> float:
    """Gershgorin's bound from norms of blocks (N, N), with the best d that was seen."""
    others = sizes.copy()
    np.fill_diagonal(others, 0.0)
    scale, least = np.ones(len(sizes)), math.inf
    first = len(sizes) - batch + 1
    for _ in range(POWERS):
        terms = others * scale
        largest = np.partition(terms, first - 1, axis=1)[:, first:]
        sums = np.diag(sizes) * scale + largest.sum(axis=1)
        # a product with d_j and the sum, a product and a sum of the diagonal, the quotient
        bounds = array_up(sums / scale + TINY / scale * batch, batch + 6)
        least = min(least, float(bounds.max()))
        top = float(sums.max())
        if not top > 0.0:
            break
        scale = np.maximum(sums / top, 2.0**-100)
    return least


def _without_leading(K: Array, rows: int, batch: int, level: Level) -> float:
    """The bound by leading eigenvectors, of the better of their numbers in floats; infinite where there are none."""
    found = witnesses(np.linalg.eigh, K)
    if found is None:
        return math.inf
    values, vectors = found
    least, chosen = math.inf, None
    for count in LEADING:
        if count < len(values) and values[-count] > 0.0:
            W = vectors[:, -count:] * np.sqrt(values[-count:])
            estimate = max(0.0, float(values[-count - 1])) + _most(_squares(W, rows), batch)
            if estimate < least:
                least, chosen = estimate, W
    if chosen is None:
        return math.inf
    W = level.witness(chosen)
    product, error = level.signed_gram(W)
    rest, rounding = difference_with_error(K, product)
    left = max(0.0, _largest_eigenvalue(rest, up(error + rounding), level))
    return up(left + _most(_squares(W, rows), batch))


def _squares(W: Array, rows: int) -> Array:
    """Upper bounds (N,) of the squared norms of the rows of one sample."""
    squares = np.square(W).reshape(-1, rows * W.shape[1])
    return array_up(squares.sum(axis=1) + TINY * squares.shape[1], squares.shape[1] + 2)
