"""Inverses and gradients in ball arithmetic of 300 bits, to compare the functions of ``surefoot.linalg`` with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flint
import torch

BITS = 300


def _precise(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*args: Any) -> Any:
        with flint.ctx.workprec(BITS):
            return function(*args)

    return wrapped


def _exact(A: torch.Tensor) -> flint.acb_mat:
    """A tensor (m, n) as it is stored."""
    m, n = A.shape
    return flint.acb_mat(m, n, A.detach().to(torch.complex128).flatten().tolist())


def _adjoint(M: flint.acb_mat) -> flint.acb_mat:
    entries = [M[i, j] for j in range(M.ncols()) for i in range(M.nrows())]
    return flint.acb_mat(M.ncols(), M.nrows(), [flint.acb(z.real, -z.imag) for z in entries])


def _identity(n: int) -> flint.acb_mat:
    return flint.acb_mat(n, n, [int(i == j) for i in range(n) for j in range(n)])


def _rounded(M: flint.acb_mat, like: torch.Tensor) -> torch.Tensor:
    values = [complex(z.mid()) for z in M.entries()]
    result = torch.tensor(values, dtype=torch.complex128).reshape(M.nrows(), M.ncols())
    return result if like.is_complex() else result.real


def _pinv(M: flint.acb_mat) -> flint.acb_mat:
    H = _adjoint(M)
    return H * (M * H).inv() if M.nrows() <= M.ncols() else (H * M).inv() * H


@_precise
def true_pinv(A: torch.Tensor) -> torch.Tensor:
    """A⁺ of a batch (..., m, n) of full-rank matrices, rounded to double precision."""
    flat = [_rounded(_pinv(_exact(matrix)), A) for matrix in A.reshape(-1, *A.shape[-2:])]
    return torch.stack(flat).reshape(*A.shape[:-2], A.shape[-1], A.shape[-2])


@_precise
def spectral_error(X: torch.Tensor, A: torch.Tensor) -> float:
    """‖X − A⁺‖ of a full-rank A (m, n), for X exactly as stored: the difference is formed in 300 bits, its norm in doubles.

    Entries that 300 bits cannot tell from 0 are 0.
    """
    difference = _exact(X) - _pinv(_exact(A))
    seen = torch.tensor([not z.contains(0) for z in difference.entries()]).reshape(X.shape)
    return float(torch.linalg.matrix_norm(_rounded(difference, X) * seen, ord=2))


def product_error(C: torch.Tensor, A: torch.Tensor, B: torch.Tensor) -> float:
    """‖C − AB‖_F for matrices exactly as stored: the difference is formed in 300 bits, its norm in doubles."""
    with flint.ctx.workprec(BITS):
        difference = _rounded(_exact(C) - _exact(A) * _exact(B), C.to(torch.complex128))
    return float(torch.linalg.vector_norm(difference))


def solution_error(X: torch.Tensor, A: torch.Tensor, B: torch.Tensor, ridge: float = 0.0) -> float:
    """‖X − A⁺B‖_F of a full-rank A (m, n), or ‖X − (AᴴA + ridge·I)⁻¹AᴴB‖_F, for X exactly as stored.

    The difference is formed in 1,200 bits, enough for entries of any size, and its norm in doubles.
    """
    with flint.ctx.workprec(4 * BITS):
        M, right = _exact(A), _exact(B)
        if ridge:
            H = _adjoint(M)
            true = (H * M + _identity(M.ncols()) * flint.acb(ridge)).solve(H * right)
        else:
            true = M.solve(right) if M.nrows() == M.ncols() else _pinv(M) * right
        difference = _exact(X) - true
        largest = max(float(abs(z).upper()) for z in difference.entries())
        # a norm that neither overflows nor underflows where the entries are of any size
        return largest * float(torch.linalg.vector_norm(_rounded(difference / largest, X))) if largest else 0.0


@_precise
def true_gradient(A: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """The gradient at a full-rank A (m, n) of Re⟨g, A⁺⟩, rounded to double precision."""
    M, G = _exact(A), _exact(g)
    X = _pinv(M)
    H, GH = _adjoint(X), _adjoint(G)
    left, right = _identity(M.nrows()) - M * X, _identity(M.ncols()) - X * M
    return _rounded(-(H * G * H) + left * GH * X * H + H * X * GH * right, A)
