"""Functions of Hermitian matrices: value, two derivatives that are exact at ties, and an error bound.

``spectral_operator`` derives the derivatives, ``function_bounds`` the bounds.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

from .arguments import (
    all_finite,
    compute_dtype,
    first_place,
    hermitian_part,
    matrix_argument,
    refuse_non_finite,
    sums_are_finite,
)
from .divided_differences import Custom, Elementwise, Exp, InverseSqrt, Log, Map, Sqrt
from .function_bounds import function_bounds
from .info import Info, Method, Status
from .operator import may_branch, may_differentiate, own_precision
from .spectral import extremes
from .spectral_operator import spectral_operator


def matrix_function(A: Tensor, f: Map, df: Map | None = None) -> Tensor:
    """f(A) = Q·diag(f(x))·Qᴴ of Hermitian A = Q·diag(x)·Qᴴ, with derivatives that do not see ties.

    The first two derivatives in A exist in forward and reverse mode wherever f has them, at equal and nearly equal
    eigenvalues too. Tensors that f closes over get their gradient, once. An infinite derivative of f (√ at 0) counts
    as 0.

    Args:
        A: (..., n, n); the lower triangle is read, and the gradient is Hermitian, as in torch.linalg.eigh. float16 and
            bfloat16 are computed in float32.
        f: maps real tensors of any shape to real ones, entry by entry. It must not bend within √ε of its argument.
        df: its derivative, likewise; found by automatic differentiation if it is not given (not inside torch.export).
            Second derivatives differentiate it.

    Returns:
        (..., n, n), Hermitian to rounding.

    Raises:
        TypeError, ValueError: A is no batch of square floating-point matrices, or f and df are no such functions.
        torch.linalg.LinAlgError: an entry of A is infinite or NaN, or f is not finite at an eigenvalue
            (``matrix_function_ex`` does not raise). Where a transform hides the values, the value is NaN instead.

    Source:
        Higham, Functions of Matrices (2008), theorem 3.11 (Daleckii and Krein); ``spectral_operator`` has the formulas.

    Example:
        >>> A = (2 * torch.eye(3)).requires_grad_()  # a triple eigenvalue
        >>> t = torch.tensor(0.5, requires_grad=True)
        >>> heat = sf.linalg.matrix_function(A, lambda x: torch.exp(-t * x))
        >>> heat.sum().backward()  # with torch.linalg.eigh: NaN
        >>> A.grad.allclose(torch.tensor(-0.5 / np.e)), round(t.grad.item(), 4)
        (True, -2.2073)
    """
    return _plain("matrix_function", A, Custom(f, df))


def matrix_function_ex(A: Tensor, f: Map, df: Map | None = None) -> tuple[Tensor, Info]:
    """``matrix_function`` with a record of each matrix; one without a value is NaN, has gradient 0 and does not fail the others.

    ``residual`` is an upper bound of ‖A − Q·diag(x)·Qᴴ‖_F, ``rank`` the number of eigenvalues beyond n·ε·max|x|,
    ``condition`` that of f at A, max|f[x_i, x_j]|·‖A‖_F/‖f(A)‖_F. ``error_bound`` is infinite: of f nothing is known.

    Raises:
        TypeError, ValueError: as ``matrix_function``.

    Example:
        >>> eigenvalues = torch.tensor([[1.0, 2.0], [1.0, 1.001]], dtype=torch.float64)
        >>> value, info = sf.linalg.matrix_function_ex(torch.diag_embed(eigenvalues), torch.log)
        >>> info.condition.round().tolist()  # near log I = 0 relative changes are magnified
        [3.0, 1416.0]
    """
    return _evaluate(A, Custom(f, df))


def sqrtm(A: Tensor) -> Tensor:
    """A^½ of Hermitian positive semidefinite A (..., n, n); derivatives, dtypes and errors as ``matrix_function``.

    Eigenvalues down to −n·ε·max|x| are taken for 0. A singular A has a root without a derivative (``sqrtm_ex`` says
    so); the gradient is that along changes that keep the rank.

    Raises:
        TypeError, ValueError, torch.linalg.LinAlgError: as ``matrix_function``; the last for negative eigenvalues too.

    Example:
        >>> A = (4 * torch.eye(2)).requires_grad_()
        >>> sf.linalg.sqrtm(A)[0, 1].backward()  # with torch.linalg.eigh: NaN
        >>> A.grad[0, 1], A.grad[1, 0]  # half of 1/(2·√4) each
        (tensor(0.1250), tensor(0.1250))
    """
    return _plain("sqrtm", A, Sqrt())


def sqrtm_ex(A: Tensor) -> tuple[Tensor, Info]:
    """``sqrtm`` with a record of each matrix, as ``matrix_function_ex``.

    ``error_bound`` bounds ‖F − A^½‖_F (``function_bounds``); ``status`` is ``RANK_DEFICIENT`` where A is singular to rounding,
    and ``OUTSIDE_DOMAIN``, with the value NaN, where an eigenvalue is negative.

    Raises:
        TypeError, ValueError: as ``matrix_function``.

    Example:
        >>> A = torch.stack([torch.eye(2), torch.ones(2, 2), -torch.eye(2)])
        >>> root, info = sf.linalg.sqrtm_ex(A)
        >>> info
        Info(1 ok, 1 rank_deficient, 1 outside_domain, ...)
    """
    return _evaluate(A, Sqrt())


def inv_sqrt(A: Tensor) -> Tensor:
    """A^−½ of Hermitian positive definite A (..., n, n); derivatives, dtypes and errors as ``matrix_function``.

    Raises:
        TypeError, ValueError, torch.linalg.LinAlgError: as ``matrix_function``; the last for
            eigenvalues that are not positive too.

    Example:
        >>> X = torch.randn(100, 3, dtype=torch.float64).cumsum(1)  # correlated features
        >>> white = X @ sf.linalg.inv_sqrt(torch.cov(X.T))
        >>> torch.allclose(torch.cov(white.T), torch.eye(3, dtype=torch.float64))
        True
    """
    return _plain("inv_sqrt", A, InverseSqrt())


def inv_sqrt_ex(A: Tensor) -> tuple[Tensor, Info]:
    """``inv_sqrt`` with a record of each matrix, as ``sqrtm_ex``; one with an eigenvalue that is not positive is NaN.

    ``INACCURATE`` where the least eigenvalue is not certainly positive.

    Raises:
        TypeError, ValueError: as ``matrix_function``.

    Example:
        >>> C = torch.diag_embed(torch.tensor([[2.0, 1.0], [1.0, 0.0]]))
        >>> W, info = sf.linalg.inv_sqrt_ex(C)
        >>> info  # the second has a feature without variance
        Info(1 ok, 1 outside_domain, ...)
        >>> W.isnan().any((-2, -1)), bool(info.error_bound[0] < 1e-5)
        (tensor([False,  True]), True)
    """
    return _evaluate(A, InverseSqrt())


def logm(A: Tensor) -> Tensor:
    """log A of Hermitian positive definite A (..., n, n); derivatives, dtypes and errors as ``matrix_function``.

    Raises:
        TypeError, ValueError, torch.linalg.LinAlgError: as ``matrix_function``; the last for
            eigenvalues that are not positive too.

    Example:
        >>> A = torch.diag(torch.tensor([1.0, 1.0, 2.0])).requires_grad_()
        >>> sf.linalg.logm(A)[0, 1].backward()  # with torch.linalg.eigh: NaN
        >>> A.grad[0, 1], A.grad[1, 0]
        (tensor(0.5000), tensor(0.5000))
    """
    return _plain("logm", A, Log())


def logm_ex(A: Tensor) -> tuple[Tensor, Info]:
    """``logm`` with a record of each matrix, as ``sqrtm_ex``; one with an eigenvalue that is not positive is NaN.

    ``INACCURATE`` where the least eigenvalue is not certainly positive.

    Raises:
        TypeError, ValueError: as ``matrix_function``.

    Example:
        >>> A = torch.diag_embed(torch.tensor([[1.0, 2.0], [1.0, -2.0]]))
        >>> value, info = sf.linalg.logm_ex(A)
        >>> info
        Info(1 ok, 1 outside_domain, ...)
    """
    return _evaluate(A, Log())


def expm(A: Tensor) -> Tensor:
    """eᴬ of Hermitian A (..., n, n); derivatives, dtypes and errors as ``matrix_function``. torch.linalg.matrix_exp takes any A.

    Raises:
        TypeError, ValueError, torch.linalg.LinAlgError: as ``matrix_function``; the last where eᴬ overflows too.

    Example:
        >>> A = torch.zeros(2, 2, requires_grad=True)  # equal eigenvalues
        >>> sf.linalg.expm(A)[0, 1].backward()  # with torch.linalg.eigh: NaN
        >>> A.grad[0, 1], A.grad[1, 0]
        (tensor(0.5000), tensor(0.5000))
    """
    return _plain("expm", A, Exp())


def expm_ex(A: Tensor) -> tuple[Tensor, Info]:
    """``expm`` with a record of each matrix, as ``sqrtm_ex``; ``OUT_OF_RANGE`` where eᴬ overflows.

    Raises:
        TypeError, ValueError: as ``matrix_function``.

    Example:
        >>> A = torch.diag_embed(torch.tensor([[0.0, 1.0], [0.0, 100.0]]))
        >>> value, info = sf.linalg.expm_ex(A)
        >>> info.messages[1]
        'the value overflows this precision although the input is finite; scale the input or use float64'
    """
    return _evaluate(A, Exp())


class _Decomposed(NamedTuple):
    """Hermitian A = Q·diag(x)·Qᴴ and what f makes of it; all but A without derivatives in A."""

    A: Tensor
    """of which the lower triangle counts"""
    x: Tensor
    Q: Tensor
    values: Tensor
    """f(x), NaN throughout a matrix where one is not finite"""
    lost: Tensor | None
    """where they are NaN (...); None if it is known that they nowhere are"""


def _decompose(A: Tensor, f: Elementwise) -> _Decomposed:
    matrix = matrix_argument(A, square=True).to(compute_dtype(A.dtype))
    fixed = matrix.detach()
    finite = None
    if not sums_are_finite(fixed):
        fixed = fixed.tril()
        finite = all_finite(fixed)
        fixed = fixed.masked_fill(~finite[..., None, None], 0)
    x, Q = torch.linalg.eigh(fixed)
    values = f.value(x)
    if finite is None and sums_are_finite(values):
        return _Decomposed(matrix, x, Q, values, None)
    if isinstance(f, Sqrt):
        x = x.masked_fill((x < 0) & (x >= -_tolerance(x)), 0)
        values = f.value(x)
    lost = ~values.detach().isfinite().all(-1)
    if finite is not None:
        lost = lost | ~finite
    return _Decomposed(matrix, x, Q, values.masked_fill(lost.unsqueeze(-1), torch.nan), lost)


def _tolerance(x: Tensor) -> Tensor:
    """n·ε·max|x| (..., 1)."""
    largest, _ = extremes(x.abs())
    return (x.shape[-1] * torch.finfo(x.dtype).eps * largest).unsqueeze(-1)


def _nodes(f: Elementwise, x: Tensor) -> Tensor:
    """The eigenvalues of the derivatives: for the root, those that are 0 to rounding are 0."""
    return x.masked_fill(x <= _tolerance(x), 0) if isinstance(f, Sqrt) else x


def _table(f: Elementwise, parts: _Decomposed, nodes: Tensor) -> Tensor:
    """f[x_i, x_j], 0 where it does not exist."""
    table = f.first(nodes, nodes)
    if parts.lost is None and sums_are_finite(table):
        return table
    absent = ~table.isfinite()
    return table.masked_fill(absent if parts.lost is None else absent | parts.lost[..., None, None], 0)


def _value(f: Elementwise, parts: _Decomposed) -> Tensor:
    A, x, Q, values, _ = parts
    if not may_differentiate(A, values):
        return (Q * values.unsqueeze(-2)) @ Q.mH
    nodes = _nodes(f, x)
    return spectral_operator(A, Q, nodes, None, values, _table(f, parts, nodes), f)


@own_precision
def _plain(name: str, A: Tensor, f: Elementwise) -> Tensor:
    parts = _decompose(A, f)
    if parts.lost is not None and may_branch(parts.lost) and bool(parts.lost.any()):
        refuse_non_finite(A.tril(), name)
        x = parts.x[parts.lost][0]
        worst = x[~f.value(x).isfinite()][0]
        raise LinAlgError(
            f"{name}: {first_place(parts.lost)} has the eigenvalue {worst:.6g}, where the function is not finite: "
            f"shift or scale the matrix, or use {name}_ex, which marks such matrices and returns the others"
        )
    return _value(f, parts).to(A.dtype)


@own_precision
def _evaluate(A: Tensor, f: Elementwise) -> tuple[Tensor, Info]:
    parts = _decompose(A, f)
    value = _value(f, parts).to(A.dtype)
    return value, _describe(f, parts, value.detach())


def _describe(f: Elementwise, parts: _Decomposed, value: Tensor) -> Info:
    A, x, values = hermitian_part(parts.A.detach()), parts.x, parts.values.detach()
    finite = all_finite(A)
    rank = (x.abs() > _tolerance(x)).sum(-1)
    residual, _, bound = function_bounds(A, parts.Q, x, None, values, value, f)
    size = torch.linalg.vector_norm(values, dim=-1).double()
    steepest, _ = extremes(_table(f, parts, _nodes(f, x)).detach().abs().flatten(-2))
    condition = steepest * torch.linalg.vector_norm(x, dim=-1).double() / size
    status = torch.zeros_like(rank)
    if not isinstance(f, Custom):
        status = torch.where(bound.isfinite(), status, int(Status.INACCURATE))
    if isinstance(f, Sqrt):
        status = torch.where((x > _tolerance(x)).all(-1), status, int(Status.RANK_DEFICIENT))
    status = torch.where(all_finite(value), status, int(Status.OUT_OF_RANGE))
    if parts.lost is not None and not isinstance(f, Exp):
        status = torch.where(parts.lost, int(Status.OUTSIDE_DOMAIN), status)
    return Info(
        status=torch.where(finite, status, int(Status.NON_FINITE)),
        rank=torch.where(finite, rank, 0),
        iterations=torch.zeros_like(rank),
        residual=torch.where(finite, residual, torch.inf),
        error_bound=bound,
        condition=condition.nan_to_num(nan=torch.inf, posinf=torch.inf),
        method_code=torch.where(finite, int(Method.EIGH), int(Method.NONE)),
    )
