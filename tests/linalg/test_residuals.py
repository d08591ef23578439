"""Residuals of products with their error bounds, against rational arithmetic."""

from __future__ import annotations

import flint
import pytest
import torch
from torch import Tensor

from surefoot._linalg import norms

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def rational(M: Tensor) -> flint.fmpq_mat:
    """M as it is stored; a complex matrix as a real one of twice the size."""
    if M.is_complex():
        M = torch.cat((torch.cat((M.real, -M.imag), -1), torch.cat((M.imag, M.real), -1)), -2)
    return flint.fmpq_mat(M.shape[0], M.shape[1], [flint.fmpq(*x.as_integer_ratio()) for x in M.flatten().tolist()])


def squared_error(R: Tensor, C: Tensor, A: Tensor, B: Tensor) -> flint.fmpq:
    """‖R − (C − AB)‖_F²."""
    difference = rational(R) - rational(C) + rational(A) * rational(B)
    total = sum((x * x for x in difference.entries()), flint.fmpq(0))
    return total / 2 if R.is_complex() else total


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_error_of_a_residual_is_within_its_bound(dtype: torch.dtype) -> None:
    """Of rows, columns and entries of every size, down to what underflows; where C is near AB and where not."""
    g = torch.Generator().manual_seed(1)
    double = dtype in (torch.float64, torch.complex128)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    for case in range(40):
        m, k, p = torch.randint(1, 7, (3,), generator=g).tolist()
        k = 40 if case % 8 == 0 else k
        A, B = (torch.randn(shape, generator=g, dtype=wide) for shape in ((m, k), (k, p)))
        if case % 4 == 1:
            A = A * 10.0 ** torch.randint(-12, 12, (m, 1), generator=g).double()
        if case % 4 == 2:
            A, B = (M * 10.0 ** -(case * (4 if double else 0.5)) for M in (A, B))
        if case % 4 == 3:
            A = A * (torch.rand(m, k, generator=g) < 0.5) * (1e-308 if double else 1e-38)
        A, B = A.to(dtype), B.to(dtype)
        C = (A.to(wide) @ B.to(wide)).to(dtype) if case % 3 else torch.randn(m, p, generator=g, dtype=wide).to(dtype)
        R, error = norms.residual(C, A, B)
        assert R.dtype == wide
        allowed = flint.fmpq(*float(error).as_integer_ratio())
        assert squared_error(R, C, A, B) <= allowed * allowed, (case, A, B)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_a_residual_of_rounding_size_is_resolved(dtype: torch.dtype) -> None:
    A = torch.randn(2, 100, 100, dtype=dtype, generator=torch.Generator().manual_seed(3))
    X = torch.linalg.inv(A)
    R, error = norms.residual(torch.eye(100, dtype=dtype), A, X)
    assert (error < 1e-3 * torch.linalg.vector_norm(R, dim=(-2, -1))).all()


def test_matrices_without_entries_have_no_residual() -> None:
    for m, k, p in ((0, 3, 2), (2, 3, 0), (0, 0, 0)):
        R, error = norms.residual(torch.zeros(m, p).double(), torch.zeros(m, k).double(), torch.zeros(k, p).double())
        assert R.shape == (m, p) and error == 0.0
    R, error = norms.residual(torch.ones(2, 2).double(), torch.zeros(2, 0).double(), torch.zeros(0, 2).double())
    assert R.equal(torch.ones(2, 2).double()) and 0.0 <= error < 1e-14
