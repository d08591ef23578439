"""Upper bounds of norms are upper bounds, and close ones."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from surefoot._implicit import norms


def exact_frobenius(A: Tensor) -> mpmath.mpf:
    with mpmath.workprec(400):
        return mpmath.sqrt(mpmath.fsum(mpmath.mpf(float(x)) ** 2 for x in A.flatten()))


def random_matrix(seed: int, rows: int, columns: int, kind: str, exponent: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    A = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    if kind == "identity":
        A = torch.eye(rows, columns, dtype=torch.float64)
    elif kind == "near identity":
        A = torch.eye(rows, columns, dtype=torch.float64) + 1e-6 * A
    elif kind == "rank one":
        A = A[:, :1] @ A[:1]
    elif kind == "zero rows":
        A[::2] = 0.0
    return (A * 2.0**exponent).to(dtype)


matrices = st.builds(
    random_matrix,
    st.integers(0, 2**31),
    st.integers(1, 12),
    st.integers(1, 12),
    st.sampled_from(["random", "identity", "near identity", "rank one", "zero rows"]),
    st.sampled_from([0, 0, 60, -60, 100, -100]),
    st.sampled_from([torch.float64, torch.float32]),
)


@settings(max_examples=150)
@given(matrices)
def test_norms_are_bounded_from_above_and_closely(A: Tensor) -> None:
    exact = exact_frobenius(A)
    assert exact <= norms.frobenius_upper(A) <= float(exact) * (1 + 1e-12) + 5e-324
    with mpmath.workprec(200):
        s = mpmath.svd_r(mpmath.matrix(A.double().tolist()), compute_uv=False)[0]
    bound = norms.spectral_norm_upper(A)
    assert s <= bound <= float(s) * (1 + 1e-7)


@settings(max_examples=60)
@given(matrices)
def test_row_norms(A: Tensor) -> None:
    bounds = norms.row_norms_upper(A)
    for row, bound in zip(A, bounds, strict=True):
        assert exact_frobenius(row) <= float(bound)
    assert exact_frobenius(A) <= norms.matrix_norm_upper(A)


@pytest.mark.parametrize("exponent", [1000, -1060])
def test_spectral_norm_at_the_ends_of_the_range(exponent: int) -> None:
    A = torch.tensor([[1.0, 0.5], [0.0, 1.0]], dtype=torch.float64)
    exact = float(np.linalg.norm(A.numpy(), 2))
    bound = math.ldexp(norms.spectral_norm_upper(norms.shift(A, exponent)), -exponent)
    assert exact * (1 - 1e-15) <= bound <= exact * (1 + (1e-7 if exponent > 0 else 1e-2))


def test_a_large_matrix_is_bounded_closely_by_the_cholesky_test() -> None:
    generator = torch.Generator().manual_seed(3)
    A = torch.eye(300, dtype=torch.float64) + 0.01 * torch.randn(300, 300, generator=generator, dtype=torch.float64)
    largest = float(torch.linalg.svdvals(A)[0])
    bound = norms.spectral_norm_upper(A)
    assert largest * (1 - 1e-12) <= bound <= largest * (1 + 1e-3)
    assert bound < 0.5 * norms.frobenius_upper(A)


def test_the_cholesky_test_refuses_a_shift_below_the_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    A = torch.diag(torch.arange(1.0, 21.0, dtype=torch.float64)) / 20
    monkeypatch.setattr(norms, "_largest_eigenvalue", lambda gram: 0.5)  # a wrong estimate must not give a wrong bound
    assert norms._cholesky_bound(A) == math.inf
    assert norms.spectral_norm_upper(A) >= 1.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_non_finite_entries_give_an_infinite_bound(value: float) -> None:
    A = torch.ones(3, 3, dtype=torch.float64)
    A[1, 2] = value
    assert norms.spectral_norm_upper(A) == math.inf
    assert norms.frobenius_upper(A) == math.inf


def test_zero_and_empty() -> None:
    assert norms.spectral_norm_upper(torch.zeros(3, 4)) == 0.0
    assert norms.frobenius_upper(torch.zeros(0, 4)) == 0.0
    with pytest.raises(ValueError, match="two dimensions"):
        norms.spectral_norm_upper(torch.zeros(3))


def test_shorter_products_are_known() -> None:
    """By the newer settings too, after which torch.get_float32_matmul_precision raises."""
    X, W = torch.ones(2, 3), torch.ones(3, 2)
    exact = norms.product_row_errors(X.double(), W.double())
    matmul = torch.backends.mkldnn.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "bf16"
    try:
        assert (norms.product_row_errors(X, W) > 2.0**-8).all()
        assert norms.product_row_errors(X.double(), W.double()).equal(exact)
    finally:
        matmul.fp32_precision = before


def test_product_row_errors_enclose_the_rounding() -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(40, 300, generator=generator)
    W = torch.randn(300, 50, generator=generator)
    errors = torch.linalg.vector_norm((X @ W).double() - X.double() @ W.double(), dim=1)
    bounds = norms.product_row_errors(X, W)
    assert (errors > 0).all()
    assert (errors <= bounds).all()


@settings(max_examples=30)
@given(st.integers(0, 2**31), st.sampled_from([torch.float64, torch.float32]))
def test_the_watch_never_falls_below_the_norm(seed: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(seed)
    A = torch.eye(6, dtype=dtype)
    watch = norms.NormWatch(A, slack=0.05)
    for _ in range(12):
        A += 0.004 * torch.randn(6, 6, generator=generator, dtype=dtype)
        largest = float(torch.linalg.svdvals(A.double())[0])
        assert largest * (1 - 1e-12) <= watch.bound(A) <= largest * 1.12
    assert 1 < watch.recomputed < 13


def test_the_watch_computes_again_before_a_limit_is_reached() -> None:
    A = torch.eye(4, dtype=torch.float64)
    watch = norms.NormWatch(A, slack=1.0)
    A[0, 0] = 0.5
    assert watch.bound(A) > 1.4
    assert watch.bound(A, limit=1.2) < 1.0 + 1e-6
    assert watch.recomputed == 2
    A[0, 0] = math.nan
    assert watch.bound(A) == math.inf


def test_the_watch_may_spend_a_share_of_the_distance_to_the_limit() -> None:
    A = torch.eye(4, dtype=torch.float64)
    watch = norms.NormWatch(A)
    A[0, 0] = 1.4
    assert 1.4 <= watch.bound(A, limit=10.0, share=0.05) <= 1.4 + 1e-6
    A[1, 1] = 1.3
    assert watch.bound(A, limit=10.0, share=0.05) >= 1.4
    assert watch.recomputed == 2  # moved by .5, and allowed .45
    A[2, 2] = 1.1
    assert watch.bound(A, limit=10.0, share=0.05) >= 1.5
    assert watch.recomputed == 2
    assert 1.4 <= watch.bound(A, limit=10.0) <= 1.4 + 1e-6
    assert watch.recomputed == 3
