"""Mini-batches of the rows of J, K = JJᵀ: what is documented as a bound of the norms of all batches, and the norms themselves."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import mpmath
from mpmath import mp, mpf

from .reference import Matrix, eigenvalues, frobenius

POWERS = 30
"""Of the map that approaches the best scaling."""


def part(K: Matrix, rows: Sequence[int], columns: Sequence[int]) -> Matrix:
    """Some rows and columns."""
    return mpmath.matrix([[K[i, j] for j in columns] for i in rows])


def of_sample(sample: int, rows: int) -> list[int]:
    """The rows of a sample."""
    return list(range(sample * rows, (sample + 1) * rows))


def every_batch(K: Matrix, rows: int, batch: int) -> Iterator[list[int]]:
    """The rows of each batch."""
    for chosen in itertools.combinations(range(K.rows // rows), batch):
        yield [row for sample in chosen for row in of_sample(sample, rows)]


def largest_norm_square(K: Matrix, rows: int, batch: int) -> mpf:
    """λ_max(K_SS), at most."""
    return max(eigenvalues(part(K, S, S))[0] for S in every_batch(K, rows, batch))


def mean_square(K: Matrix, rows: int, batch: int) -> mpf:
    """(N/B) λ_max of the mean of G_SKG_S over all batches."""
    total, count = mpmath.zeros(K.rows), 0
    for S in every_batch(K, rows, batch):
        count += 1
        for i in S:
            for j in S:
                total[i, j] += K[i, j]
    return eigenvalues(total)[0] * K.rows / (rows * batch * count)


def bound_of_norm_square(K: Matrix, rows: int, batch: int) -> mpf:
    """The least of the four bounds."""
    samples = K.rows // rows
    values, vectors = mpmath.eigsy(K)
    order = sorted(range(K.rows), key=lambda i: values[i], reverse=True)
    if batch == samples:
        return values[order[0]]
    sizes = _block_norms(K, rows)
    bounds = [values[order[0]], _most([sizes[i, i] for i in range(samples)], batch), _by_rows(sizes, batch)]
    for count in range(1, min(2, K.rows - 1) + 1):
        taken = order[:count]
        squares = [
            mpmath.fsum(values[j] * vectors[i, j] ** 2 for i in of_sample(sample, rows) for j in taken)
            for sample in range(samples)
        ]
        bounds.append(max(values[order[count]], mpf(0)) + _most(squares, batch))
    return min(bounds)


def _most(sizes: list[mpf], count: int) -> mpf:
    return mpmath.fsum(sorted(sizes, reverse=True)[:count])


def _block_norms(K: Matrix, rows: int) -> Matrix:
    """Bounds of the norms of blocks: √(‖·‖₁‖·‖_∞) or Frobenius' norm; on the diagonal also Schatten's of order 16."""
    samples = K.rows // rows
    found = mpmath.zeros(samples)
    for i in range(samples):
        for j in range(samples):
            A = part(K, of_sample(i, rows), of_sample(j, rows))
            lines = [max(mpmath.fsum(abs(x) for x in B[r, :]) for r in range(rows)) for B in (A, A.T)]
            found[i, j] = min(frobenius(A), mp.sqrt(lines[0] * lines[1]))
            if i == j and rows > 1:
                sixteenth = mpmath.fsum(max(v, mpf(0)) ** 8 for v in eigenvalues(A * A.T)) ** (mpf(1) / 16)
                found[i, j] = min(found[i, j], sixteenth)
    return found


def _by_rows(sizes: Matrix, batch: int) -> mpf:
    """Gershgorin's bound with the best scaling that was seen."""
    samples = sizes.rows
    scale, least = [mpf(1)] * samples, mp.inf
    for _ in range(POWERS):
        sums = [
            sizes[i, i] * scale[i] + _most([sizes[i, j] * scale[j] for j in range(samples) if j != i], batch - 1)
            for i in range(samples)
        ]
        least = min(least, max(total / d for total, d in zip(sums, scale, strict=True)))
        scale = [total / max(sums) for total in sums]
    return least
