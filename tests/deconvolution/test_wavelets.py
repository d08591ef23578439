"""The wavelet transform is orthonormal for every size, and it is the one of PyWavelets where that has one."""

from __future__ import annotations

import numpy as np
import pytest
import pywt
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.deconvolution import OrthonormalWavelet

DOUBLE = torch.float64
NAMES = ("haar", "db2", "db4", "sym8", "coif1")


@given(
    rows=st.integers(2, 21),
    columns=st.integers(2, 21),
    name=st.sampled_from(NAMES),
    levels=st.integers(1, 4),
    data=st.data(),
)
@settings(max_examples=60)
def test_orthonormal_and_adjoint_for_every_size(
    rows: int, columns: int, name: str, levels: int, data: st.DataObject
) -> None:
    levels = min(levels, min(rows, columns).bit_length() - 1)
    W = OrthonormalWavelet((rows, columns), name, levels)
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    z, x = (torch.randn(2, rows, columns, generator=generator, dtype=DOUBLE) for _ in range(2))
    torch.testing.assert_close(W.synthesis(W.analysis(z)), z, rtol=0, atol=1e-10)
    torch.testing.assert_close(W.analysis(W.synthesis(x)), x, rtol=0, atol=1e-10)
    assert float(((W.analysis(z) * x).sum() - (z * W.synthesis(x)).sum()).abs()) <= 1e-12 * float(z.norm() * x.norm())


@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_pywavelets_where_sizes_are_even(name: str) -> None:
    z = torch.randn(16, 24, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)
    coarse, details = pywt.dwt2(z.numpy(), name, mode="periodization")
    coarse, deeper = pywt.dwt2(coarse, name, mode="periodization")
    W = OrthonormalWavelet((16, 24), name, 2)
    expected = np.abs(np.block([[coarse, deeper[1]], [deeper[0], deeper[2]]]))
    expected = np.block([[expected, np.abs(details[1])], [np.abs(details[0]), np.abs(details[2])]])
    # the two libraries start their filters at different samples, and may give a band the other sign
    level_one = [_agrees(W.analysis(z.roll((r, r), (0, 1))).abs().numpy(), expected, 8, 12) for r in range(48)]
    level_two = [_agrees(W.analysis(z.roll((r, r), (0, 1))).abs().numpy(), expected, 0, 0) for r in range(48)]
    assert any(level_one)
    assert any(level_two)


def _agrees(found: np.ndarray, expected: np.ndarray, row: int, column: int) -> bool:
    """In the diagonal band of the first level (8, 12), or in the bands of the second (0, 0)."""
    return bool(np.abs(found - expected)[row : row + 8, column : column + 12].max() < 1e-10)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_norm_bound_is_above_the_norm_and_near_one(name: str, dtype: torch.dtype) -> None:
    W = OrthonormalWavelet((7, 12), name, 2, dtype=dtype)
    stored = OrthonormalWavelet((7, 12), name, 2)
    stored.filters = W.filters.double()  # the filters as stored, applied without float32 rounding
    matrix = stored.analysis(torch.eye(84, dtype=DOUBLE).reshape(84, 7, 12)).flatten(-2)
    norm = float(torch.linalg.matrix_norm(matrix, ord=2))
    assert norm <= W.norm_bound * (1.0 + 1e-14)  # the SVD's own rounding
    assert W.norm_bound <= 1.0 + (1e-10 if dtype == DOUBLE else 2e-6)


def test_a_constant_picture_has_coarse_coefficients_only() -> None:
    W = OrthonormalWavelet((16, 16), "db4", 2)
    x = W.analysis(torch.ones(16, 16, dtype=DOUBLE))
    torch.testing.assert_close(x[:4, :4], torch.full((4, 4), 4.0, dtype=DOUBLE), rtol=0, atol=1e-10)
    x[:4, :4] = 0.0
    assert float(x.abs().max()) < 1e-10


def test_default_levels_keep_a_coarse_part() -> None:
    assert OrthonormalWavelet((160, 200)).levels == 4
    assert OrthonormalWavelet((3, 2)).levels == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((8, 8), "db44"), "unknown wavelet 'db44'"),
        (((8, 8), "bior2.2"), "not orthogonal"),
        (((8, 8), "haar", 4), "at most 3 times"),
        (((8, 8), "haar", 0), "levels is 0"),
        (((0, 8),), "positive integers"),
    ],
)
def test_bad_arguments(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OrthonormalWavelet(*arguments)  # type: ignore[arg-type]
