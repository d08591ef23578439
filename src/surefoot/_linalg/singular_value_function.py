"""Functions of a matrix through its singular values: two derivatives, exact at ties and at deficient rank.

F = U·diag(f(s))·Vᴴ depends on A alone where f(0) = 0: vectors of singular values 0 are arbitrary, and their part of F
is 0. Where f(0) ≠ 0 or f′(0) is infinite, singular values that are 0 to rounding are taken for 0, and f(0) counts as 0.
Then F is the same for every choice of vectors, but not continuous where the rank drops (or has no derivative there):
the status says so, and the derivative is that along changes that keep the rank. ``spectral_operator`` derives the
derivatives, ``function_bounds`` the bounds.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

from . import norms
from .arguments import compute_dtype, first_place, matrix_argument, refuse_non_finite, sums_are_finite, tolerance
from .divided_differences import Custom, Elementwise, Map, Power, SoftThreshold, Step
from .function_bounds import function_bounds
from .info import Info, Status
from .operator import (
    apply,
    batch_first,
    may_branch,
    may_differentiate,
    own_precision,
    plain_eager,
    refuse_nested_forward,
)
from .spectral import adjoint, describe, extremes, rank_tolerance
from .spectral_operator import spectral_operator
from .svd import factors, svd_ex


def singular_value_function(A: Tensor, f: Map, df: Map | None = None) -> Tensor:
    """U·diag(f(s))·Vᴴ of A = U·diag(s)·Vᴴ, with derivatives that do not see ties.

    The first two derivatives in A exist in forward and reverse mode wherever f, extended by f(−s) = −f(s), has them: at
    equal and nearly equal singular values, and where some are 0 if f(0) = 0. Where f(0) ≠ 0 or f′(0) is infinite,
    values that are 0 to rounding give 0, and the derivative is that along changes that keep the rank. Tensors that f closes
    over get their gradient, once.

    Args:
        A: (..., m, n). float16 and bfloat16 are computed in float32.
        f: maps real tensors of any shape to real ones, entry by entry, for entries at least 0. It must not bend within
            √ε of its argument.
        df: its derivative, likewise; found by automatic differentiation if it is not given (not inside torch.export).

    Returns:
        (..., m, n).

    Raises:
        TypeError, ValueError: A is no batch of floating-point matrices, or f and df are no such functions.
        torch.linalg.LinAlgError: an entry of A is infinite or NaN, or f is not finite at a singular value
            (``singular_value_function_ex`` does not raise). Where a transform hides the values, the value is NaN
            instead.

    Source:
        Noferini, A formula for the Fréchet derivative of a generalized matrix function (2017); ``spectral_operator``
        derives it.

    Example:
        >>> A = torch.ones(3, 3, requires_grad=True)  # singular values 3, 0, 0
        >>> shrunk = sf.linalg.singular_value_function(A, lambda s: s**3 / (s**2 + 1.0))
        >>> shrunk.sum().backward()  # with torch.linalg.svd: NaN
        >>> torch.allclose(shrunk, torch.tensor(0.9)), A.grad.isfinite().all()
        (True, tensor(True))
    """
    return _plain("singular_value_function", A, Custom(f, df))


def singular_value_function_ex(A: Tensor, f: Map, df: Map | None = None) -> tuple[Tensor, Info]:
    """``singular_value_function`` with a record of each matrix; one without a value is NaN, and does not fail the others.

    ``status`` is ``RANK_DEFICIENT`` where the rank is and f(0) ≠ 0 or f′(0) is infinite. ``residual`` is an upper bound
    of ‖A − U·diag(s)·Vᴴ‖_F, ``rank`` counts singular values above max(m, n)·ε·s_1, ``condition`` is that of the
    function at A, max|f[x, y]|·‖A‖_F/‖F‖_F over ±s and 0. ``error_bound`` is infinite: of f nothing is known.

    Raises:
        TypeError, ValueError: as ``singular_value_function``.

    Example:
        >>> value, info = sf.linalg.singular_value_function_ex(torch.ones(3, 3), torch.cos)
        >>> info, info.rank.item()  # cos 0 ≠ 0: it jumps where the rank drops
        (Info(rank_deficient, ...), 1)
    """
    return _evaluate(A, Custom(f, df))


def singular_power(A: Tensor, p: float) -> Tensor:
    """U·diag(sᵖ)·Vᴴ: A for p = 1, the polar factor for 0, (A⁺)ᴴ for −1; (AAᴴ)ᵏA for p = 2k + 1.

    Derivatives, dtypes and errors as ``singular_value_function``; for p < 1 singular values that are 0 to rounding give
    0.

    Args:
        A: (..., m, n).
        p: a finite number.

    Raises:
        TypeError, ValueError, torch.linalg.LinAlgError: as there; ValueError for p that is no finite number.

    Example:
        >>> A = torch.diag(torch.tensor([4.0, 1.0, 0.0, 0.0])).requires_grad_()
        >>> root = sf.linalg.singular_power(A, 0.5)
        >>> torch.allclose(root, torch.diag(torch.tensor([2.0, 1.0, 0.0, 0.0])))
        True
        >>> root.sum().backward()  # finite at singular values 0
    """
    return _plain("singular_power", A, Power(_exponent(p)))


def singular_power_ex(A: Tensor, p: float) -> tuple[Tensor, Info]:
    """``singular_power`` with a record of each matrix, as ``singular_value_function_ex``.

    ``error_bound`` bounds ‖F − U·diag(sᵖ)·Vᴴ‖_F (``function_bounds``); for p < 1 it is infinite at deficient rank.

    Raises:
        TypeError, ValueError: as ``singular_power``.

    Example:
        >>> A = torch.ones(2, 2)
        >>> [sf.linalg.singular_power_ex(A, p)[1] for p in (3.0, 0.5)]
        [Info(ok, ...), Info(rank_deficient, ...)]
    """
    return _evaluate(A, Power(_exponent(p)))


def svt(A: Tensor, threshold: float | Tensor) -> Tensor:
    """Singular value thresholding, U·diag(max(s − τ, 0))·Vᴴ: the proximal map of τ‖·‖_*.

    Derivatives, dtypes and errors as ``singular_value_function``, to the second order also in τ. Where s_i = τ there is
    a kink, and the derivative is the one-sided one for s_i rising.

    Args:
        A: (..., m, n).
        threshold: τ ≥ 0, a number or a real tensor that broadcasts to the batch dimensions of A.

    Raises:
        TypeError, ValueError, torch.linalg.LinAlgError: as there, and for a threshold that is no such tensor.

    Example:
        >>> A = torch.diag(torch.tensor([3.0, 1.0, 0.0, 0.0])).requires_grad_()
        >>> tau = torch.tensor(0.5, requires_grad=True)
        >>> sf.linalg.svt(A, tau).trace().backward()  # with torch.linalg.svd: NaN
        >>> tau.grad.round(decimals=4), A.grad.isfinite().all()
        (tensor(-2.), tensor(True))
    """
    value, _, parts, _ = _threshold(A, threshold)
    _refuse("svt", A, parts)
    return value


def svt_ex(A: Tensor, threshold: float | Tensor) -> tuple[Tensor, Info]:
    """``svt`` with a record of each matrix, as ``singular_value_function_ex``.

    ``error_bound`` bounds ‖F − svt(A)‖_F (``function_bounds``) at any rank: the map is a contraction.

    Raises:
        TypeError, ValueError: as ``svt``.

    Example:
        >>> value, info = sf.linalg.svt_ex(torch.ones(3, 3, dtype=torch.float64), 1.0)
        >>> info.rank.item(), bool((value - 2 / 3).norm() <= info.error_bound < 1e-12)
        (1, True)
    """
    value, f, parts, moved = _threshold(A, threshold)
    info = _describe(f, parts, value.detach())
    # each value of f changes by at most as much as the threshold
    return value, info._replace(error_bound=norms.up(info.error_bound + parts.s.shape[-1] ** 0.5 * moved))


def svdvals(A: Tensor) -> Tensor:
    """The singular values of A (..., m, n), descending (..., min(m, n)), with a gradient that is right at ties.

    The gradient of a loss that is symmetric in tied values is U·diag(g)·Vᴴ; of one that is not, like the first of two
    equal values alone, none exists, and the backward pass is an error (``svd`` has more about ties).

    Raises:
        TypeError, ValueError: A is no batch of floating-point matrices.
        torch.linalg.LinAlgError: an entry is infinite or NaN (``svdvals_ex`` does not raise); in the derivative, as
            above.

    Example:
        >>> A = (2 * torch.eye(2)).requires_grad_()
        >>> sf.linalg.svdvals(A).log().sum().backward()  # the same of tied values
        >>> A.grad.diagonal()
        tensor([0.5000, 0.5000])
        >>> sf.linalg.svdvals(A)[0].backward()  # a kink, like max(a, b) at a = b
        Traceback (most recent call last):
        torch._C._LinAlgError: singular values 0 and 1 are equal to rounding ...
    """
    if may_differentiate(matrix_argument(A)):
        return factors(A, full_matrices=False, ties="raise", method="auto", refuse="svdvals")[0].S
    return _values_alone("svdvals", A)


def _values_alone(name: str, A: Tensor) -> Tensor:
    """The singular values where no derivative is asked for."""
    if not sums_are_finite(A):
        refuse_non_finite(A, name)
    return torch.linalg.svdvals(A.to(compute_dtype(A.dtype))).to(A.real.dtype)


def svdvals_ex(A: Tensor) -> tuple[Tensor, Info]:
    """``svdvals`` with a record of each matrix, as ``svd_ex``: ``error_bound`` bounds the error of every value.

    Raises:
        TypeError, ValueError: as ``svdvals``.

    Example:
        >>> S, info = sf.linalg.svdvals_ex(torch.ones(3, 2, dtype=torch.float64))
        >>> info.rank.item(), bool((S[0] - 6**0.5).abs() <= info.error_bound < 1e-12)
        (1, True)
    """
    value, info = svd_ex(A, full_matrices=False, ties="raise")
    return value.S, info


def nuclear_norm(A: Tensor) -> Tensor:
    """‖A‖_* = Σ s_i (...) of A (..., m, n), with the gradient U·Vᴴ over the singular values that are not 0.

    That is the polar factor where A has full rank, with derivatives of the first and second order that do not see ties.
    Where it has not, the norm has no derivative, and this is the subgradient of least norm (``nuclear_norm_ex`` says
    so).

    Raises:
        TypeError, ValueError: A is no batch of floating-point matrices.
        torch.linalg.LinAlgError: an entry is infinite or NaN (``nuclear_norm_ex`` does not raise).

    Source:
        Watson, Characterization of the subdifferential of some matrix norms (1992).

    Example:
        >>> A = torch.ones(3, 2, requires_grad=True)  # of rank 1
        >>> sf.linalg.nuclear_norm(A).backward()
        >>> torch.allclose(A.grad, A.detach() / 6**0.5)  # the subgradient of least norm
        True
    """
    if not may_differentiate(matrix_argument(A)):
        return _values_alone("nuclear_norm", A).sum(-1)
    value, parts = _nuclear_norm(A)
    _refuse("nuclear_norm", A, parts)
    return value


def nuclear_norm_ex(A: Tensor) -> tuple[Tensor, Info]:
    """``nuclear_norm`` with a record of each matrix; one with non-finite entries is NaN and does not fail the others.

    ``status`` is ``RANK_DEFICIENT`` where the gradient is one of several subgradients. ``residual`` is an upper bound
    of ‖A − U·diag(s)·Vᴴ‖_F, ``error_bound`` of the error of the norm, rounding included: with Δ of ``function_bounds``,
    √k·Δ, k = min(m, n). ``condition`` is √k‖A‖_F/‖A‖_*.

    Raises:
        TypeError, ValueError: as ``nuclear_norm``.

    Example:
        >>> A = torch.stack([torch.eye(2), torch.ones(2, 2)])
        >>> value, info = sf.linalg.nuclear_norm_ex(A)
        >>> info  # of the second the gradient is one of several subgradients
        Info(1 ok, 1 rank_deficient, ...)
        >>> bool((info.error_bound < 1e-5).all())
        True
    """
    value, parts = _nuclear_norm(A)
    s = parts.s.detach().double()
    k = s.shape[-1]
    # of A itself as a function of A
    residual, change, _ = function_bounds(
        parts.A.detach(), parts.U, parts.s, parts.Vh, parts.s, parts.A.detach(), Power(1.0)
    )
    total = s.sum(-1)
    # the sum, and its rounding to the dtype of A
    rounding = total * (k * torch.finfo(parts.s.dtype).eps + 2 * torch.finfo(A.dtype).eps)
    info = _record(parts, value.isfinite(), residual, change * k**0.5 + rounding)
    size = torch.linalg.vector_norm(s, dim=-1)
    return value, info._replace(condition=(k**0.5 * size / total).nan_to_num(nan=torch.inf))


class _Factored(NamedTuple):
    """Tall A = U·diag(s)·Vᴴ, and what f makes of it; all but A without derivatives in A."""

    A: Tensor
    U: Tensor
    s: Tensor
    """singular values; 0 where they are so to rounding and f is not regular there"""
    Vh: Tensor
    gram: Tensor
    """where the Gram matrix was used (...)"""
    regular: Tensor | None
    """whether f(0) = 0 and f′(0) is finite (..., 1); None if it is known that no singular value is 0 to rounding"""
    values: Tensor
    """f(s), NaN throughout a matrix where one is not finite"""


def _factor(A: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The tall matrix that is computed with, its U, s and Vᴴ without derivatives, and where the Gram matrix was used."""
    work = matrix_argument(A).to(compute_dtype(A.dtype))
    tall = work if A.shape[-2] >= A.shape[-1] else work.mH
    (U, s, Vh), gram = factors(tall.detach(), full_matrices=False, ties="mask", method="auto")
    return tall, U, s, Vh, gram


def _with_function(f: Elementwise, factored: tuple[Tensor, Tensor, Tensor, Tensor, Tensor]) -> _Factored:
    tall, U, s, Vh, gram = factored
    zero = s <= rank_tolerance(s, *tall.shape[-2:])
    regular = None
    if not may_branch(zero) or bool(zero.any()):
        at_zero = s.new_zeros(1)
        regular = ((f.value(at_zero) == 0) & f.slope(at_zero).isfinite()).expand(*s.shape[:-1], 1)
        s = s.masked_fill(zero & ~regular, 0)
    values = f.value(s)
    if regular is not None:
        values = values.masked_fill((s == 0) & ~regular, 0)
    # the power 0 of NaN is 1
    if not (sums_are_finite(s) and sums_are_finite(values)):
        defined = (values.detach().isfinite() & s.isfinite()).all(-1, keepdim=True)
        values = values.masked_fill(~defined, torch.nan)
        # a matrix without a value has the gradient 0
        U, Vh = (M.masked_fill(~defined.unsqueeze(-1), 0) for M in (U, Vh))
    return _Factored(tall, U, s, Vh, gram, regular, values)


def _value(f: Elementwise, parts: _Factored, like: Tensor) -> Tensor:
    """F of the shape and dtype of ``like``."""
    F = _operator(f, parts.A, parts.U, parts.s, parts.Vh, parts.values, parts.regular)
    return (F if like.shape[-2] >= like.shape[-1] else adjoint(F)).to(like.dtype)


def _operator(
    f: Elementwise, A: Tensor, U: Tensor, s: Tensor, Vh: Tensor, values: Tensor, regular: Tensor | None
) -> Tensor:
    """U·diag(values)·Vᴴ, values = f(s), as a function of A."""
    if not may_differentiate(A, values):
        return (U * values.unsqueeze(-2)) @ Vh
    table = _table(f, s, values, regular, null=A.shape[-2] > A.shape[-1])
    return spectral_operator(A, U, s, Vh, values, table, f)


def _table(f: Elementwise, s: Tensor, values: Tensor, regular: Tensor | None, null: bool) -> Tensor:
    """f[s_i, s_j], f[s_i, −s_j] and, with null vectors, f[s_i, 0]; 0 where they do not exist."""
    minus = f.first(s, s)
    sums = s.unsqueeze(-1) + s.unsqueeze(-2)
    plus = values.unsqueeze(-1) + values.unsqueeze(-2)
    if regular is None:
        plus, column = plus / sums, values / s
    else:
        zero = s == 0
        plus, column = (v / torch.where(w == 0, 1, w) for v, w in ((plus, sums), (values, s)))
        # f(0) counts as 0 where f is not regular there, and f[0, 0] too
        irregular = (zero.unsqueeze(-1) | zero.unsqueeze(-2)) & ~regular.unsqueeze(-1)
        minus = torch.where(irregular, plus, minus)
        plus = torch.where(sums == 0, minus, plus)
        column = torch.where(zero, minus.diagonal(dim1=-2, dim2=-1), column)
    table = torch.cat((minus, plus, column.unsqueeze(-1)) if null else (minus, plus), -1)
    return table if sums_are_finite(table) else table.masked_fill(~table.isfinite(), 0)


def _refuse(name: str, A: Tensor, parts: _Factored) -> None:
    lost = parts.values.isnan().any(-1)
    if may_branch(lost) and bool(lost.any()):
        refuse_non_finite(A, name)
        raise LinAlgError(
            f"{name}: the function is not finite at a singular value of {first_place(lost)}: scale the matrix, or "
            f"use {name}_ex, which marks such matrices and returns the others"
        )


@own_precision
def _plain(name: str, A: Tensor, f: Elementwise) -> Tensor:
    parts = _with_function(f, _factor(A))
    _refuse(name, A, parts)
    return _value(f, parts, A)


@own_precision
def _evaluate(A: Tensor, f: Elementwise) -> tuple[Tensor, Info]:
    parts = _with_function(f, _factor(A))
    value = _value(f, parts, A)
    return value, _describe(f, parts, value.detach())


@own_precision
def _threshold(A: Tensor, threshold: float | Tensor) -> tuple[Tensor, Elementwise, _Factored, Tensor]:
    """The value, its function, what it is made of, and by how much the threshold was rounded."""
    factored = _factor(A)
    if threshold is None:
        raise TypeError("threshold is None: it must be a number or a tensor of numbers, at least 0")
    given = tolerance(threshold, 0.0, A, "threshold")
    fixed = given.to(factored[2].dtype).unsqueeze(-1)
    f = SoftThreshold(fixed)
    parts = _with_function(f, factored)
    value = _value(f, parts, A)
    if isinstance(threshold, Tensor) and (threshold.requires_grad or not plain_eager(threshold)):
        # the derivative in the threshold is a function of A of the same kind: so second derivatives are right too
        step = Step(fixed)
        moved = threshold.to(fixed.dtype).unsqueeze(-1) - fixed
        value = value - (_value(step, _with_function(step, factored), A) * moved.unsqueeze(-1)).to(A.dtype)
    return value, f, parts, (given - fixed.squeeze(-1).double()).abs()


def _describe(f: Elementwise, parts: _Factored, value: Tensor) -> Info:
    A, U, s, Vh, values = (part.detach() for part in (parts.A, parts.U, parts.s, parts.Vh, parts.values))
    F = value if value.shape == A.shape else value.mH
    residual, _, bound = function_bounds(A, U, s, Vh, values, F, f)
    info = _record(parts, value.isfinite().flatten(-2).all(-1), residual, bound)
    status = info.status
    if isinstance(f, Custom):
        status = torch.where(status == int(Status.OUT_OF_RANGE), int(Status.OUTSIDE_DOMAIN), status)
    else:
        uncertain = (status == int(Status.OK)) & ~bound.isfinite()
        status = torch.where(uncertain, int(Status.INACCURATE), status)
    table = _table(f, s, values, parts.regular, null=A.shape[-2] > A.shape[-1])
    largest, _ = extremes(table.detach().abs().flatten(-2))
    sizes = [torch.linalg.vector_norm(x, dim=-1).double() for x in (s, values)]
    condition = (largest * sizes[0] / sizes[1]).nan_to_num(nan=torch.inf, posinf=torch.inf)
    return info._replace(status=status, condition=condition)


def _record(parts: _Factored, in_range: Tensor, residual: Tensor, bound: Tensor) -> Info:
    """The record of A; a deficient rank counts where f is not regular at 0."""
    info = describe(parts.A.detach(), parts.s.detach(), in_range, parts.gram, residual, bound)
    if parts.regular is None:
        return info
    harmless = (info.status == int(Status.RANK_DEFICIENT)) & parts.regular[..., 0]
    return info._replace(status=torch.where(harmless, int(Status.OK), info.status))


@own_precision
def _nuclear_norm(A: Tensor) -> tuple[Tensor, _Factored]:
    factored = _factor(A)
    sign = Power(0.0)
    parts = _with_function(sign, factored)
    total = factored[2].sum(-1)
    # the gradient is that function's value
    slopes = parts.values.nan_to_num(nan=0.0)
    value = apply(_Sum, _CompiledSum, parts.A, parts.U, parts.s, parts.Vh, total, slopes, parts.regular, sign)
    return value.to(A.real.dtype), parts


class _CompiledSum(torch.autograd.Function):
    """``total`` = Σ h(s_i) as a function of A, with the gradient U·diag(h′(s))·Vᴴ; ``slopes`` = h′(s), ``f`` is h′."""

    @staticmethod
    def forward(
        A: Tensor,
        U: Tensor,
        s: Tensor,
        Vh: Tensor,
        total: Tensor,
        slopes: Tensor,
        regular: Tensor | None,
        f: Elementwise,
    ) -> Tensor:
        return total.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        A, U, s, Vh, _, slopes, regular, ctx.f = inputs
        ctx.save_for_backward(A, U, s, Vh, slopes, regular)
        ctx.save_for_forward(A, U, s, Vh, slopes, regular)

    @staticmethod
    @own_precision
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        return grad_outputs[0][..., None, None] * _operator(ctx.f, *ctx.saved_tensors), *[None] * 7

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return batch_first(lambda *moved: apply(_Sum, _CompiledSum, *moved), info, in_dims, args)


class _Sum(_CompiledSum):
    """The same with forward-mode derivatives."""

    @staticmethod
    @own_precision
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        refuse_nested_forward("nuclear_norm")
        gradient = _operator(ctx.f, *ctx.saved_tensors)
        return (gradient.conj() * grad_inputs[0]).sum((-2, -1)).real


def _exponent(p: float) -> float:
    if not isinstance(p, Real):
        raise TypeError(f"p is {p!r}: it must be a number; for a tensor use singular_value_function")
    if not abs(p) < math.inf:
        raise ValueError(f"p is {p!r}: it must be a finite number")
    return float(p)
