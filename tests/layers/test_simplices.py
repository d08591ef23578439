"""Quadratic programs over a product of simplices."""

from __future__ import annotations

import numpy as np
import pytest

from surefoot._layers.simplices import minimise


def problem(seed: int, blocks: int, m: int, rank: int, scale: float):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((rank, blocks * m)) * scale ** rng.random(blocks * m)
    w = rng.dirichlet(np.ones(m), blocks)
    return A.T @ A, rng.standard_normal((blocks, m)), w


@pytest.mark.parametrize(
    "blocks, m, rank, scale", [(1, 2, 9, 1.0), (6, 2, 30, 1.0), (4, 9, 60, 1e3), (5, 4, 3, 1.0), (30, 3, 200, 1e4)]
)
@pytest.mark.parametrize("seed", range(3))
def test_minimisers(blocks: int, m: int, rank: int, scale: float, seed: int) -> None:
    """The Frank-Wolfe gap bounds the distance to the least value, full rank or not."""
    H, slope, w = problem(seed, blocks, m, rank, scale)
    size = np.abs(H).max()  # rounding is that of the products with H
    for _ in range(2):  # from the first answer the second removes its rounding
        new = minimise(H, slope, w)
        assert new.min() >= 0.0
        np.testing.assert_allclose(new.sum(1), 1.0, rtol=1e-14)
        step = (new - w).reshape(-1)
        decrease = slope.reshape(-1) @ step + 0.5 * step @ H @ step
        assert decrease <= 1e-14 * size
        w, slope = new, slope + (H @ step).reshape(slope.shape)
    gap = ((w * slope).sum(1) - slope.min(1)).sum()
    assert gap <= 1e-12 * size


def test_vertices_and_empty_sectors() -> None:
    """A linear objective is least at vertices; a block without any slope stays as it is."""
    slope = np.array([[3.0, 1.0, 2.0], [0.0, 0.0, 0.0]])
    start = np.array([[0.2, 0.3, 0.5], [0.1, 0.9, 0.0]])
    np.testing.assert_allclose(minimise(np.zeros((6, 6)), slope, start), [[0.0, 1.0, 0.0], [0.1, 0.9, 0.0]], atol=1e-12)
