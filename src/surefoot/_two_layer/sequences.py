"""Step sequences fixed before training: inverse roots of a Chebyshev polynomial, in orders along which no partial product grows.

τ_1..τ_T are the inverse roots of the polynomial of degree T on [low, high]; Π(1 - τ_i x) is as small there as it can be. Their
order does not matter to the last iterate of a quadratic, in exact arithmetic; it matters to those between, and to a factorised
map. Lebedev's order of 2^k indices (Lebedev and Finogenov 1971), *reversed*, has the small steps first.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Order = NDArray[np.intp]

FINER = 3
"""Orders of up to 2^FINER times as many indices as the next power of two are sampled."""
CALM = 1e-6
"""Candidates whose partial products grow by at most so much more than the best's, relatively, are kept."""


def chebyshev(count: int, low: float, high: float) -> Array:
    """τ (count,), the largest first."""
    angles = np.pi * (np.arange(count) + 0.5) / count
    return 1.0 / (0.5 * (low + high) - 0.5 * (high - low) * np.cos(angles))


def chebyshev_count(low: float, high: float, relative_gap: float) -> int:
    """The least degree of a Chebyshev polynomial that brings the gap of a quadratic down to ``relative_gap``."""
    if not high > low:
        return 1
    ratio = (high + low) / (high - low)
    return max(1, int(np.ceil(np.arccosh(relative_gap**-0.5) / np.arccosh(ratio))))


def orders(count: int) -> list[Order]:
    """Candidates: permutations of range(count), each once."""
    found: dict[bytes, Order] = {}
    for order in _candidates(count):
        if len(np.unique(order)) == count:
            found.setdefault(order.tobytes(), order)
    return list(found.values())


def calm_orders(count: int, low: float, high: float) -> list[Array]:
    """Of the candidates, the sequences τ (count,) whose partial products stay smallest on [low, high], the calmest first."""
    tau = chebyshev(count, low, high)
    sizes = [(tau[order], growth(tau[order], low, high)) for order in orders(count)]
    least = min(size.max() for _, size in sizes)
    kept = [(sequence, size) for sequence, size in sizes if size.max() <= least * (1.0 + CALM)]
    return [sequence for sequence, _ in sorted(kept, key=lambda entry: float(entry[1].sum()))]


def growth(tau: Array, low: float, high: float) -> Array:
    """Entry t: the largest |Π_{i<t}(1 - τ_i x)| on [low, high] (T+1,), in floats, on a grid."""
    points = 8 * (len(tau) + 1)
    x = 0.5 * (low + high) + 0.5 * (high - low) * np.cos(np.pi * np.arange(points + 1) / points)
    products = np.cumprod(1.0 - tau[:, None] * x, axis=0)
    return np.concatenate([[1.0], np.abs(products).max(axis=1)])


def _lebedev(doublings: int) -> Order:
    """Lebedev's order of 2^doublings indices, which are 0 for the largest step: v becomes v, 2N - 1 - v."""
    order = np.zeros(1, dtype=np.intp)
    for _ in range(doublings):
        order = np.stack([order, 2 * len(order) - 1 - order], axis=1).ravel()
    return order


def _candidates(count: int) -> Iterator[Order]:
    doublings = max(0, int(count - 1).bit_length())
    first = _lebedev(doublings)
    yield first[first < count][::-1]
    middle = 2.0 * np.arange(count) + 1.0
    for size in range(doublings, doublings + FINER + 1):
        place = np.argsort(_lebedev(size))
        for sampled in (np.ceil(middle * 2**size / (2 * count)) - 1.0, np.floor(middle * 2**size / (2 * count)) - 1.0):
            yield np.argsort(place[np.maximum(sampled, 0.0).astype(np.intp)], kind="stable")[::-1]
