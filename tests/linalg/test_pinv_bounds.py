"""The error bounds of ``pinv_ex`` hold, and are close."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from pinv_matrices import draw, with_singular_values
from pinv_reference import spectral_error, true_pinv

from surefoot._linalg.info import Status
from surefoot._linalg.inverse import inv_ex
from surefoot._linalg.pinv import Method, pinv_ex
from surefoot.linalg import SVD, eigh_ex, polar_ex, svd_ex

EXPLICIT = ["cholesky", "qr", "svd", "iteration"]


def adversarial(dtype: torch.dtype) -> list[torch.Tensor]:
    """Graded, nearly singular, badly scaled and structured matrices of full rank."""
    result = []
    limit = -math.log10(torch.finfo(dtype).eps)
    for seed in range(6):
        for m, n in ((4, 4), (3, 6), (6, 3)):
            G = draw(m, n, seed=seed)
            rows = torch.logspace(0, -min(3.0 * seed, limit - 3), m, dtype=torch.float64)[:, None]
            columns = torch.logspace(0, -min(2.0 * seed, limit - 3), n, dtype=torch.float64)
            k = min(m, n)
            result += [
                G,
                rows * G,
                G * columns,
                with_singular_values([1.0] * (k - 1) + [10.0 ** -(seed * limit / 6)], m, n, seed=seed),
                with_singular_values([1.0] + [10.0 ** -(seed * limit / 7)] * (k - 1), m, n, seed=seed),
                G * 10.0 ** (6 * seed - 15),
                G.round(decimals=0) + torch.eye(m, n, dtype=torch.float64) * 10.0**-seed,
            ]
    result += [1.0 / (torch.arange(k)[:, None] + torch.arange(k) + 1.0).double() for k in (3, 5, 7, 9)]
    result += [
        torch.triu(-torch.ones(k, k, dtype=torch.float64), 1) + torch.eye(k, dtype=torch.float64) for k in (5, 12)
    ]
    return [A.to(dtype) for A in result]


@pytest.mark.parametrize("method", ["auto", *EXPLICIT])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_no_error_exceeds_its_bound(dtype: torch.dtype, method: str) -> None:
    """Bounds against 300 bits. Copies of each matrix, so that the fast methods of "auto" are used."""
    finite = 0
    matrices = adversarial(torch.float64 if dtype == torch.float64 else torch.float32)
    matrices = matrices[::4] if method == "iteration" else matrices
    for A in matrices:
        A = (A * (1 + 0.5j)).to(dtype) if dtype.is_complex else A
        copies = 1 if method != "auto" else 20_000 // (min(A.shape) * A.numel()) + 1
        X, info = pinv_ex(A.expand(copies, *A.shape), method=method)
        bound = float(info.error_bound[0])
        if math.isfinite(bound):
            finite += 1
            assert spectral_error(X[0], A) <= bound, (A, method)
            assert info.status[0] == Status.OK
        else:
            assert info.status[0] != Status.OK
    assert finite >= 0.6 * len(matrices)


@pytest.mark.parametrize("shape", [(5, 5), (4, 7), (7, 4)])
def test_the_bound_is_close_to_the_error_of_a_spoiled_inverse(shape: tuple[int, int]) -> None:
    """What the bound is made of, at an X that is far from the result, where rounding plays no part."""
    from surefoot._linalg import norms

    A = draw(*shape)
    A = A if shape[0] <= shape[1] else A.mT
    X = true_pinv(A) + 1e-4 * draw(*A.mT.shape, seed=9)
    bound = float(norms.pinv_error(A, X, X.mT @ X).error)
    error = spectral_error(X, A)
    assert error <= bound <= 30 * error


def conditions(A: torch.Tensor) -> Iterator[tuple[float, float, bool]]:
    """The exact condition number, the one that a function says, and whether it is said to be from above."""

    def exact(A: torch.Tensor) -> float:
        norms = (torch.linalg.matrix_norm(M.to(torch.complex128), ord=2) for M in (A, true_pinv(A)))
        return float(math.prod(norms))

    true = exact(A)
    methods: tuple[Method, ...] = ("auto", "cholesky", "qr")
    for method in methods:
        info = pinv_ex(A, method=method)[1]
        yield true, float(info.condition), math.isfinite(info.error_bound)
    for function in (svd_ex, polar_ex):
        value, info = function(A)
        certain = info.error_bound < (value.S[-1] if isinstance(value, SVD) else math.inf)
        yield true, float(info.condition), bool(certain)
    if A.shape[0] == A.shape[1]:
        info = inv_ex(A)[1]
        yield true, float(info.condition), math.isfinite(info.error_bound)
        value, info = eigh_ex(A + A.mH)
        certain = info.error_bound < value.eigenvalues.abs().min()
        yield exact(A + A.mH), float(info.condition), bool(certain)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
def test_certain_condition_numbers_are_upper_bounds(dtype: torch.dtype) -> None:
    """Up to 1/eps, of every shape, method and precision; against 300 bits."""
    limit = -math.log10(torch.finfo(dtype).eps)
    seen = 0
    for seed in range(8):
        kappa = 10.0 ** (limit * seed / 8)
        for m, n in ((5, 5), (3, 7), (6, 2)):
            A = with_singular_values(torch.logspace(0, -math.log10(kappa), min(m, n)).tolist(), m, n, seed=seed)
            A = (A * (0.6 + 0.8j if dtype.is_complex else 1.0)).to(dtype)
            for true, found, certain in conditions(A):
                if certain:
                    seen += 1
                    assert true * (1 - 1e-14) <= found <= 40 * true
    assert seen >= 100


@pytest.mark.parametrize("shape", [(60, 60), (60, 90)])
def test_bounds_in_double_precision_are_near_the_error(shape: tuple[int, int]) -> None:
    A = with_singular_values(torch.logspace(0, -5, 60).tolist(), *shape, seed=1)
    X, info = pinv_ex(A)
    assert 1.0 <= info.error_bound / spectral_error(X, A) <= 100.0
