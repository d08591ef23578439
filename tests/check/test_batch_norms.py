"""Bounds over all mini-batches, against every batch there is."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from surefoot_check.checker import LEVELS
from surefoot_check.rigor.approximation import Approximation
from surefoot_check.rigor.batch_norms import blocks_on_diagonal, largest_norm_square, second_moment
from surefoot_check.rigor.bounds import FAST, Level

LEADING = "a common direction"


def _jacobian(kind: str, samples: int, rows: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    J = generator.standard_normal((samples * rows, samples * rows + 3))
    if kind == "graded":
        J *= np.logspace(0.0, -3.0, len(J))[:, None]
    if kind == LEADING:
        J += 20.0 * generator.standard_normal((len(J), 1)) * J[:1]
    if kind == "nearly apart":
        J = np.eye(*J.shape) + 1e-3 * J
    return J


def _every_batch(K: np.ndarray, samples: int, rows: int, batch: int) -> tuple[float, float]:
    """The largest λ_max(K_SS), and (N/B) λ_max of the mean of G_SKG_S, by counting."""
    norms, total = [], np.zeros_like(K)
    batches = list(itertools.combinations(range(samples), batch))
    for chosen in batches:
        taken = np.repeat(np.isin(np.arange(samples), chosen), rows)
        part = np.where(taken[:, None] & taken, K, 0.0)
        norms.append(np.linalg.eigvalsh(part)[-1])
        total += part
    return max(norms), samples / batch * np.linalg.eigvalsh(total / len(batches))[-1]


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize("kind", ["full", "graded", LEADING, "nearly apart"])
def test_bounds_hold_for_every_batch(kind: str, level: Level) -> None:
    ratios = []
    for samples, rows in ((2, 1), (5, 1), (6, 2), (4, 3)):
        J = _jacobian(kind, samples, rows, samples)
        K = J @ J.T
        gram = Approximation(0.5 * (K + K.T), 1e-12 * float(np.linalg.norm(K)))
        largest = np.linalg.eigvalsh(K)[-1] * (1.0 + 1e-9)
        for batch in range(1, samples + 1):
            norm, moment = _every_batch(K, samples, rows, batch)
            bound = largest_norm_square(gram, rows, batch, largest, level)
            mixed = second_moment(gram, blocks_on_diagonal(gram, rows), samples, batch, largest, level)
            assert norm <= bound <= largest
            assert moment <= mixed <= moment * (1.0 + 2e-4)
            ratios.append(bound / norm)
    # of one sample, and of all, the bounds are the norms themselves; between them none is far
    assert max(ratios) < 2.0 and min(ratios) < 1.0 + 1e-6


def test_each_bound_is_the_sharp_one_somewhere() -> None:
    """Batches of 2 of 6: apart, in pairs, and along one direction."""
    apart = np.diag([4.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    pair = np.eye(6)
    pair[0, 1] = pair[1, 0] = 0.9
    graded = np.diag([100.0, 1.0, 1.0, 1.0, 1.0, 1.0])  # 100 and 1 lie apart: the sum of squares is not sharp here
    graded[0, 1] = graded[1, 0] = 1.0
    direction = np.full((6, 6), 9.0) + np.eye(6)
    for K, batch in ((apart, 2), (pair, 2), (graded, 2), (direction, 2)):
        norm, _ = _every_batch(K, 6, 1, batch)
        largest = np.linalg.eigvalsh(K)[-1] * (1.0 + 1e-12)
        assert norm <= largest_norm_square(Approximation(K), 1, batch, largest, FAST) <= norm * (1.0 + 1e-4)


def test_errors_of_the_matrix_count() -> None:
    K = np.eye(4)
    exact = largest_norm_square(Approximation(K), 1, 2, 10.0, FAST)
    assert largest_norm_square(Approximation(K, 0.5), 1, 2, 10.0, FAST) >= exact + 0.5
    moved = second_moment(Approximation(K, 0.5), Approximation(K, 0.5), 4, 2, 10.0, FAST)
    assert math.isclose(moved, 1.5, rel_tol=1e-9) and moved >= 1.5


def test_errors_of_the_blocks_of_a_batch_add_up() -> None:
    """Batches of 2 of 4 with one direction, each diagonal entry computed too small: the sum of norms is off twice."""
    K, error = np.zeros((4, 4)), 0.125
    K[:2, :2] = 1.0
    computed = K - error * np.diag([1.0, 1.0, 0.0, 0.0])
    found = largest_norm_square(Approximation(computed, math.sqrt(2.0) * error), 1, 2, 10.0, FAST)
    assert _every_batch(K, 4, 1, 2)[0] <= found
