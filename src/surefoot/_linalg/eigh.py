"""The eigenvalues and eigenvectors of Hermitian matrices, with derivatives that are right at ties, or an error there.

Let A = Q·diag(l)·Qᴴ and dP = Qᴴ dA Q. Then Ω = QᴴdQ is skew-Hermitian with

    Ω_ij = dP_ij / (l_j − l_i)        dl_i = dP_ii,

and with X = skew(QᴴgQ) the gradient of a loss is gA = QKQᴴ, K_ij = X_ij / (l_j − l_i) + δ_ij gl_i, a Hermitian matrix.
At a tie the quotient is 0/0, as for the singular value decomposition with X + Y for X, and so is the loss of a
spectral function: for F = Q·h(l)·Qᴴ, C = ∂φ/∂F, M = herm(QᴴCQ), QᴴgQ = 2M·diag(h), so X_ij = M_ij (h_j − h_i) and W_ij
:= herm(QᴴgQ)_ij = M_ij (h_i + h_j), gl_i = h'(l_i) M_ii. ``tied_pairs`` says what of the limit is determined.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from . import norms
from .arguments import (
    all_finite,
    compute_dtype,
    double_dtype,
    hermitian_part,
    isolated,
    matrix_argument,
    refuse_non_finite,
)
from .info import Info, Method
from .operator import apply, batch_first, may_differentiate, own_precision, plain_eager, refuse_nested_forward
from .spectral import adjoint, describe, tie_distance, tie_reflections, values_between
from .tie_errors import first_order, refuse
from .tied_pairs import (
    Spectrum,
    Ties,
    check_ties,
    herm,
    kinks,
    least_gap,
    limits,
    reciprocal,
    turning,
)

_WHAT = "eigenvalues"


class Eigh(NamedTuple):
    """A = Q·diag(l)·Qᴴ."""

    eigenvalues: Tensor
    """l (..., n), ascending"""
    eigenvectors: Tensor
    """Q (..., n, n)"""


def eigh(A: Tensor, UPLO: Literal["L", "U"] = "L", ties: Ties = "raise") -> Eigh:
    """A = Q·diag(l)·Qᴴ for Hermitian A, l ascending, Q unitary; called like ``torch.linalg.eigh``.

    **At ties** of eigenvalues (equal to rounding) torch.linalg.eigh returns NaN or garbage as soon as the loss uses
    the vectors. Here a loss of the vectors alone that is a function of A (projectors on whole groups of eigenvalues,
    like those of principal components, with ties inside or outside) and a loss of the eigenvalues alone that is
    symmetric in the tied ones (traces, log-determinants) get their derivative. Of a loss that combines functions of
    the eigenvalues with vectors the gradients in l and Q do not determine it: an error in the backward pass names the
    pair, unless the loss does not see it, and ``matrix_function`` and the operators made from it are exact.
    ``tied_pairs`` has the proofs; what ``svd`` says of kinks, second derivatives, forward mode, ``torch.compile`` and
    of several calls holds here too.

    Vectors of tied eigenvalues are turned by a fixed reflection, so that they are aligned with no coordinates.

    Args:
        A: (..., n, n), of which one triangle is read, and the real part of the diagonal. float16 and bfloat16 are
            computed in float32.
        UPLO: which triangle: ``"L"`` the lower, ``"U"`` the upper one.
        ties: ``"raise"``: as above; ``"one-function"``: you promise that the loss is made of Q·h(l)·Qᴴ of one h (plus a
            function of l alone where three or more values tie), an error if no h fits; ``"mask"``: terms that are not
            determined are 0, so that the gradient is always finite, and wrong without a word where they matter.

    Raises:
        TypeError, ValueError: A is no batch of square floating-point matrices; ``UPLO`` or ``ties`` is unknown.
        torch.linalg.LinAlgError: an entry is infinite or NaN (``eigh_ex`` does not raise); in the derivative, which
            names the pair, where ties leave it undetermined.

    Example:
        >>> A = torch.diag(torch.tensor([1.0, 1.0, 2.0, 2.0])).requires_grad_()
        >>> Q = sf.linalg.eigh(A).eigenvectors[:, 2:]  # two principal components, tied
        >>> (Q @ Q.T)[0, 3].backward()  # with torch.linalg.eigh: NaN
        >>> A.grad[0, 3], A.grad[3, 0]
        (tensor(0.5000), tensor(0.5000))
    """
    return _decompose(A, UPLO, ties, refuse=True)[0]


def eigh_ex(A: Tensor, UPLO: Literal["L", "U"] = "L", ties: Ties = "raise") -> tuple[Eigh, Info]:
    """``eigh`` with a record of each matrix; one with non-finite entries has NaN results and does not fail the others.

    ``residual`` is an upper bound of ‖AQ − Q·diag(l)‖_F. ``error_bound`` bounds the error of every eigenvalue,
    rounding included: with δ = ‖QᴴQ − I‖_F, |λ_i(Q·diag(l)·Qᴴ) − l_i| ≤ δ·max|l| (Ostrowski), and Weyl's inequality
    adds ‖A − Q·diag(l)·Qᴴ‖_F. ``rank`` counts eigenvalues above n·ε·max|l| in magnitude; ``condition`` is
    max|l|/min|l|, from above where min|l| > ``error_bound``.

    Raises:
        TypeError, ValueError: as ``eigh``.

    Example:
        >>> A = torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
        >>> (values, Q), info = sf.linalg.eigh_ex(torch.stack([A, torch.ones_like(A)]))
        >>> info.rank.tolist(), bool((info.error_bound < 1e-12).all())  # of eigenvalues
        ([2, 1], True)
    """
    value, work = _decompose(A, UPLO, ties, refuse=False)
    triangle = work.detach() if UPLO == "L" else adjoint(work.detach())
    return value, _info(hermitian_part(triangle), Eigh(*(factor.detach() for factor in value)))


@own_precision
def _decompose(A: Tensor, UPLO: str, ties: str, refuse: bool) -> tuple[Eigh, Tensor]:
    if UPLO not in ("L", "U"):
        raise ValueError(f"UPLO is {UPLO!r}; choose L for the lower triangle or U for the upper one")
    check_ties(ties)
    work = matrix_argument(A, square=True).to(compute_dtype(A.dtype))
    if not refuse:
        # of the other triangle nothing is read
        work = isolated(work, work.tril() if UPLO == "L" else work.triu())
    if may_differentiate(work):
        values, vectors = apply(_Eigh, _CompiledEigh, work, UPLO, ties, refuse)
    else:
        values, vectors = _compute(work, UPLO, refuse)
    return Eigh(values, vectors) if work is A else Eigh(values.to(A.real.dtype), vectors.to(A.dtype)), work


def _info(A: Tensor, value: Eigh) -> Info:
    wide = double_dtype(A.dtype)
    n = A.shape[-1]
    values, Q = value.eigenvalues.double(), value.eigenvectors.to(wide)
    magnitudes = values.abs().sort(descending=True).values
    scaled = Q * values.unsqueeze(-2)
    orthogonality = norms.defect(torch.eye(n, dtype=wide, device=A.device).expand(A.shape), Q.mH, Q)
    largest = magnitudes.amax(-1) if n else magnitudes.new_zeros(magnitudes.shape[:-1])
    # the product Q·diag(l) was rounded, and its columns are no longer than max|l|(1 + δ)
    rounding = 2.0**-52 * n * largest * (1 + orthogonality)
    residual = norms.up(norms.defect(scaled, A, Q) + rounding)
    bound = norms.up(norms.defect(A, scaled, Q.mH) + rounding + orthogonality * largest)
    gram = torch.zeros(A.shape[:-2], dtype=torch.bool, device=A.device)
    info = describe(
        A,
        magnitudes.to(A.real.dtype),
        torch.isfinite(values).all(-1),
        gram,
        residual,
        bound,
        values_between(magnitudes, bound),
    )
    none = int(Method.NONE)
    return info._replace(method_code=torch.where(info.method_code == none, none, int(Method.EIGH)))


def _compute(A: Tensor, UPLO: str, refuse: bool) -> tuple[Tensor, Tensor]:
    total = A.sum().item()
    # NaN where the sum is not finite: an entry is not, perhaps of the triangle that is not read, or the sum overflows
    if total - total == 0:
        values, Q = torch.linalg.eigh(A, UPLO=UPLO)
        return values, _turned(values, Q)
    A = A.tril() if UPLO == "L" else A.triu()
    if refuse:
        refuse_non_finite(A, "eigh")
    finite = all_finite(A)
    values, Q = torch.linalg.eigh(A.where(finite[..., None, None], 0), UPLO=UPLO)
    Q = _turned(values, Q).where(finite[..., None, None], torch.nan)
    return values.where(finite[..., None], torch.nan), Q


def _turned(values: Tensor, Q: Tensor) -> Tensor:
    """Q with the vectors of each group of tied eigenvalues turned together."""
    n = values.shape[-1]
    if least_gap(values) > tie_distance(values.dtype, n):
        return Q
    values, rows = values.reshape(-1, n), Q.reshape(-1, n, n)
    turned, reflections = tie_reflections(values, values.diff(dim=-1) <= _spectrum(values).tolerance, Q.dtype)
    return rows.index_put((turned,), rows[turned] @ reflections).reshape(Q.shape) if len(turned) else Q


@torch.library.custom_op("surefoot::eigh", mutates_args=())
def _kernel(A: Tensor, UPLO: str, refuse: bool) -> tuple[Tensor, Tensor]:
    values, Q = _compute(A, UPLO, refuse)
    return values.contiguous(), Q.contiguous()


@_kernel.register_fake
def _(A: Tensor, UPLO: str, refuse: bool) -> tuple[Tensor, Tensor]:
    return A.new_empty(A.shape[:-1], dtype=A.real.dtype), A.new_empty(A.shape)


def _spectrum(values: Tensor) -> Spectrum:
    return Spectrum.of(values.detach(), None, values.shape[-1])


def _inverse_gaps(values: Tensor, s: Spectrum) -> Tensor:
    """1/(l_j − l_i) (..., n, n), 0 at ties; differentiable."""
    gaps = values.unsqueeze(-2) - values.unsqueeze(-1)
    if s.distinct:
        gaps.diagonal(dim1=-2, dim2=-1).fill_(torch.inf)
        return gaps.reciprocal()
    return reciprocal(gaps, s.tied)


@own_precision
def _gradient(values: Tensor, Q: Tensor, gl: Tensor | None, gQ: Tensor | None, ties: str) -> Tensor:
    """The gradient of A; gradients are None where the loss does not use a factor, not both."""
    if Q.shape[-1] == 0:
        return torch.zeros_like(Q)
    s = _spectrum(values)
    if gQ is None:
        assert gl is not None
        return refuse((Q * gl.unsqueeze(-2)) @ Q.mH, kinks(ties, s, gl), s, _WHAT, "backward")
    total = Q.mH @ gQ
    c, undefined, limited = limits(ties, s, gl, total, (gQ,))
    # of 2l, because the skew part of total has a factor ½, which then needs one transposition
    inverse = _inverse_gaps(2 * values, s)
    K = total * (inverse if c is None else inverse.masked_fill(~c.isnan(), 0.0))
    if c is not None:
        K = K + c.nan_to_num(nan=0.0) * total / 2
    if gl is not None:
        K = K + torch.diag_embed(gl / 2)
    K = K + K.mH
    return first_order(refuse(Q @ K @ Q.mH, undefined, s, _WHAT, "backward"), limited, s, _WHAT)


@own_precision
def _tangent(values: Tensor, Q: Tensor, dA: Tensor, ties: str) -> tuple[Tensor, Tensor]:
    """The tangents of eigenvalues and vectors along the Hermitian part of ``dA``; tied vectors do not turn within their group."""
    s = _spectrum(values)
    dP = Q.mH @ herm(dA) @ Q
    dQ = Q @ (dP * _inverse_gaps(values, s))
    if Q.shape[-1]:
        dQ = refuse(dQ, turning(ties, s, dP), s, _WHAT, "forward")
    return dP.diagonal(dim1=-2, dim2=-1).real, dQ


class _CompiledEigh(torch.autograd.Function):
    """A (..., n, n) -> eigenvalues and eigenvectors of the Hermitian matrix of one triangle."""

    @staticmethod
    def forward(A: Tensor, UPLO: str, ties: str, refuse: bool) -> Any:
        return (_compute if plain_eager(A) else _kernel)(A, UPLO, refuse)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.set_materialize_grads(False)
        ctx.ties = inputs[2]
        ctx.save_for_backward(*output)
        ctx.save_for_forward(*output)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        gl, gQ = grad_outputs
        if gl is None and gQ is None:
            return None, None, None, None
        values, Q = ctx.saved_tensors
        return _gradient(values, Q, gl, gQ, ctx.ties), None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return batch_first(lambda *moved: apply(_Eigh, _CompiledEigh, *moved), info, in_dims, args)


class _Eigh(_CompiledEigh):
    """The same with forward-mode derivatives."""

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        refuse_nested_forward("eigh")
        values, Q = ctx.saved_tensors
        tangents = _tangent(values, Q, grad_inputs[0], ctx.ties)
        # autograd refuses tangents that are views, or conjugated, where the values are not
        return tuple(d.resolve_conj().clone(memory_format=torch.contiguous_format) for d in tangents)
