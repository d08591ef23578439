"""The weights of ALISTA: optimal in the sum of squares, and with the coherence where it is said to be."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import Tensor

from surefoot.learned import analytic_weights

F64 = torch.float64


def gaussian(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, dtype=F64, generator=torch.Generator().manual_seed(seed))


def least_of_all(M: Tensor) -> float:
    """min over W, W_iᵀM_i = 1, of max |W_iᵀM_j|, i ≠ j: one linear program a column."""
    A = M.numpy()
    rows, columns = A.shape
    values = []
    for i in range(columns):
        others = np.delete(A, i, axis=1).T
        below = np.block([[others, -np.ones((columns - 1, 1))], [-others, -np.ones((columns - 1, 1))]])
        found = linprog(
            np.append(np.zeros(rows), 1.0),
            A_ub=below,
            b_ub=np.zeros(len(below)),
            A_eq=np.append(A[:, i], 0.0)[None],
            b_eq=[1.0],
            bounds=[(None, None)] * rows + [(0.0, None)],
        )
        values.append(float(found.fun))
    return max(values)


@pytest.mark.parametrize(("rows", "columns"), [(4, 7), (3, 4), (2, 6), (1, 3)])
def test_the_least_coherence_lies_between_the_bounds(rows: int, columns: int) -> None:
    for seed in range(3):
        M = gaussian(rows, columns, seed) * torch.logspace(-1, 1, columns, dtype=F64)
        found = analytic_weights(M)
        least = least_of_all(M)
        assert 0.0 < found.least_coherence <= least * (1.0 + 1e-9) <= found.coherence * (1.0 + 1e-8)
        product = (found.W.T @ M).numpy()
        assert np.diagonal(product) == pytest.approx(np.ones(columns), abs=1e-9)
        np.fill_diagonal(product, 0.0)
        assert np.abs(product).max() == pytest.approx(found.coherence, rel=1e-9)


def test_the_lower_bound_is_attained() -> None:
    """Three unit columns, 60° apart: a tight frame, whose other columns are all as far away."""
    angles = torch.arange(3, dtype=F64) * (np.pi / 3.0)
    found = analytic_weights(torch.stack([angles.cos(), angles.sin()]))
    assert found.least_coherence == pytest.approx(0.5, rel=1e-9) and found.coherence == pytest.approx(0.5, rel=1e-9)


def test_no_other_weights_have_a_smaller_sum_of_squares() -> None:
    M = gaussian(4, 7)
    W = analytic_weights(M).W
    least = float((W.T @ M).square().sum())
    generator = torch.Generator().manual_seed(1)
    for size in (1e-3, 1e-1, 10.0):
        moved = W + size * torch.randn(4, 7, dtype=F64, generator=generator)
        moved = moved / (moved * M).sum(0)
        assert float((moved.T @ M).square().sum()) > least


def test_matrices_of_any_rank() -> None:
    tall = analytic_weights(gaussian(6, 3))
    assert tall.coherence < 1e-12 and tall.least_coherence == 0.0
    deficient = torch.cat([gaussian(2, 5)] * 2)
    found = analytic_weights(deficient)
    assert found.least_coherence == 0.0  # no u is known to be one within rounding
    assert torch.allclose((found.W * deficient).sum(0), torch.ones(5, dtype=F64))
    parallel = torch.tensor([[1.0, 1.0, 0.0], [0.0, 1e-7, 1.0]], dtype=F64)
    assert 0.0 <= analytic_weights(parallel).least_coherence <= least_of_all(parallel) * (1.0 + 1e-9)
    assert analytic_weights(gaussian(4, 7).float()).W.dtype == torch.float32
    one = analytic_weights(torch.tensor([[2.0]], dtype=F64))
    assert one.W.tolist() == [[0.5]] and one.coherence < 1e-300 and one.least_coherence == 0.0


def test_bad_matrices_are_refused() -> None:
    with pytest.raises(ValueError, match="only zeros in column 1"):
        analytic_weights(torch.tensor([[1.0, 0.0]], dtype=F64))
    with pytest.raises(ValueError, match="M has shape"):
        analytic_weights(torch.ones(3))
