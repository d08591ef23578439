"""The polar decomposition, with derivatives of every order that do not see ties.

Let A = UH be m×n with m ≥ n, UᴴU = I, H Hermitian positive definite, and Ω = UᴴdU. From UᴴdA = ΩH + dH, with dH
Hermitian and Ω skew,

    HΩ + ΩH = UᴴdA − dAᴴU,   dU = UΩ + (I − UUᴴ) dA H⁻¹,   dH = UᴴdA − ΩH.

With L the solution operator of the Sylvester equation, L(R)H + HL(R) = R, which is self-adjoint, and gH Hermitian, the
gradient of a loss is

    gA = U(gH + 2L(skew(UᴴgU − gH H))) + (gU − UUᴴgU) H⁻¹.

In the eigenvectors Q of H, L divides entry (i, j) of QᴴRQ by s_i + s_j: no differences, so a tie of singular values is
nothing special. L has the derivative dL(R) = L(dR − dH L(R) − L(R) dH), and H⁻¹ = L(2I), so that every higher
derivative is again made of L.

Where A is singular, U is not unique and neither it nor H is differentiable. The returned U is one that has orthonormal
columns; entries of L with s_i = s_j = 0 (to rounding) are set to 0, so that gradients are finite, and right for losses
that do not see the null space.

A wide A is treated as Aᴴ. Error bound of U, for A = UH + E with UᴴU = I, H positive definite with least eigenvalue σ >
‖E‖_F: the formula for dU gives ‖dU‖_F ≤ ‖dA‖_F/σ_n(A), and along A − tE the least singular value is at least σ − ‖E‖_F,
so U is at most ‖E‖_F/(σ − ‖E‖_F) from the unitary factor of A.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from . import norms
from .arguments import all_finite, compute_dtype, double_dtype, isolated, matrix_argument
from .info import Info
from .operator import apply, batch_first, own_precision, plain_eager, refuse_nested_forward
from .spectral import (
    METHODS,
    adjoint,
    describe,
    extremes,
    rank_tolerance,
    spectral_factors,
)
from .tied_pairs import herm, reciprocal, skew


class Polar(NamedTuple):
    """A = UH (side right) or A = HU (side left), A (..., m, n)."""

    U: Tensor
    """(..., m, n), orthonormal columns or rows"""
    H: Tensor
    """(..., n, n) or (..., m, m), Hermitian positive semidefinite"""


def polar(A: Tensor, side: Literal["right", "left"] = "right", method: Literal["auto", "svd"] = "auto") -> Polar:
    """A = UH with H = (AᴴA)^½, or A = HU with H = (AAᴴ)^½ for ``side="left"``; U is the same for both.

    U has orthonormal columns (m ≥ n) or rows (m ≤ n); it is the nearest such matrix to A. Where A has full rank it is
    unique, and derivatives of every order exist in forward and reverse mode, at ties of singular values too. Where A
    has not, U is one of several, and the derivative is finite: its terms along the null space are 0.

    Args:
        A: (..., m, n). float16 and bfloat16 are computed in float32.
        side: where H (..., n, n) or (..., m, m) stands.
        method: ``"auto"``: from the Gram matrix where that is accurate, else from LAPACK's singular values; ``"svd"``: always
            from these.

    Returns:
        U (..., m, n) and H.

    Raises:
        TypeError, ValueError: A is no batch of floating-point matrices; ``side`` or ``method`` is unknown.
        torch.linalg.LinAlgError: an entry is infinite or NaN (``polar_ex`` does not raise).

    Source:
        Higham, Functions of Matrices (2008), chapter 8; the derivative by HΩ + ΩH = UᴴdA − dAᴴU, Ω = UᴴdU.

    Example:
        >>> A = (2 * torch.eye(2)).requires_grad_()
        >>> U, H = sf.linalg.polar(A)  # U is the nearest orthogonal matrix
        >>> U[0, 1].backward()  # with U @ Vh of torch.linalg.svd: NaN
        >>> A.grad[0, 1], A.grad[1, 0]
        (tensor(0.2500), tensor(-0.2500))
    """
    return _decompose(A, side, method, refuse=True)[0]


def polar_ex(
    A: Tensor, side: Literal["right", "left"] = "right", method: Literal["auto", "svd"] = "auto"
) -> tuple[Polar, Info]:
    """``polar`` with a record of each matrix; one with non-finite entries has NaN factors and does not fail the others.

    ``residual`` is an upper bound of ‖A − UH‖_F (‖A − HU‖_F); ``error_bound`` bounds the Frobenius distance of U from
    the exact factor: ‖E‖_F/(σ − ‖E‖_F) with E = A − UH and a lower bound σ of the least singular value of H, and its own
    defect ‖UᴴU − I‖_F; infinite where the rank is not certain. ``rank`` counts singular values above max(m, n)·ε·s_1;
    ``condition`` is s_1/s_k, from above where ``error_bound`` is finite.

    Raises:
        TypeError, ValueError: as ``polar``.

    Example:
        >>> (U, H), info = sf.linalg.polar_ex(torch.ones(2, 2, dtype=torch.float64))
        >>> info, torch.allclose(U.T @ U, torch.eye(2, dtype=torch.float64))
        (Info(rank_deficient, ...), True)
        >>> info.error_bound.item()  # U is orthonormal, but one of several
        inf
    """
    value, (tall, U, H, Q, S, gram) = _decompose(A, side, method, refuse=False)
    left = value.H.detach(), value.U.detach()
    residual = norms.defect(A.detach(), *(left if side == "left" else reversed(left)))
    # of U as it is returned: half precision rounds it
    U = U.detach().to(A.dtype)
    return value, _info(tall.detach(), U, H.detach(), Q.detach(), S.detach(), gram, residual)


@own_precision
def _decompose(A: Tensor, side: str, method: str, refuse: bool) -> tuple[Polar, tuple[Tensor, ...]]:
    if side not in ("right", "left"):
        raise ValueError(f"side is {side!r}; choose right (A = UH) or left (A = HU)")
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; choose one of {', '.join(METHODS)}")
    work = matrix_argument(A).to(compute_dtype(A.dtype))
    if not refuse:
        work = isolated(work)
    is_tall = A.shape[-2] >= A.shape[-1]
    tall = work if is_tall else work.mH
    U, H, Q, S, gram = apply(_Polar, _CompiledPolar, tall, method, refuse)
    at_hand = side == ("right" if is_tall else "left")
    if at_hand:
        value = Polar(U if is_tall else adjoint(U), H)
    else:
        half = U @ (H / 2) @ U.mH
        value = Polar(U if is_tall else adjoint(U), half + half.mH)
    if work is not A:
        value = Polar(*(factor.to(A.dtype) for factor in value))
    return value, (tall, U, H, Q, S, gram)


def _info(A: Tensor, U: Tensor, H: Tensor, Q: Tensor, S: Tensor, gram: Tensor, residual: Tensor) -> Info:
    """The record of the tall decomposition A = UH with H = Q·diag(S)·Qᴴ."""
    m, n = A.shape[-2:]
    wide = double_dtype(A.dtype)
    A, U, H, Q = (matrix.to(wide) for matrix in (A, U, H, Q))
    identity = torch.eye(n, dtype=wide, device=A.device)
    defect_U, defect_Q = norms.defect(identity, U.mH, U), norms.defect(identity, Q.mH, Q)
    largest, smallest = extremes(S)
    QS = Q * S.double().unsqueeze(-2)
    rounding = 2.0**-52 * norms.frobenius(QS) * (1 + defect_Q)
    change = norms.defect(H, QS, Q.mH) + rounding
    # the last term exceeds the rounding of these differences
    lowest = smallest * (1 - defect_Q) - change - 2.0**-50 * smallest
    E = norms.up(norms.defect(A, U, H) + defect_U * norms.frobenius(H))
    bound = norms.up(defect_U + E / (lowest - E))
    certain = (rank_tolerance(S, m, n) < S).all(-1) & (lowest > E)
    bound = torch.where(certain, bound, torch.inf)
    between = norms.up(largest * (1 + defect_Q) + change + E), (lowest - E) * (1.0 - 2.0**-50)
    return describe(A, S, all_finite(H), gram, residual, bound, between)


def _compute(A: Tensor, method: str, refuse: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    P, S, Qh, gram = spectral_factors(A, method, full_matrices=False, refuse="polar" if refuse else "")
    Q = adjoint(Qh).contiguous()
    # halved first: the sum of two entries may overflow where their mean does not
    half = (Q * (S / 2).unsqueeze(-2)) @ Qh
    return P @ Qh, half + adjoint(half), Q, S, gram


_kernel = torch.library.custom_op("surefoot::polar", mutates_args=())(_compute)


@_kernel.register_fake
def _(A: Tensor, method: str, refuse: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    *batch, m, n = A.shape
    return (
        A.new_empty(*batch, m, n),
        A.new_empty(*batch, n, n),
        A.new_empty(*batch, n, n),
        A.new_empty(*batch, n, dtype=A.real.dtype),
        A.new_empty(batch, dtype=torch.bool),
    )


class _CompiledPolar(torch.autograd.Function):
    """Tall A (..., m, n) -> U, H; and Q, S of H = Q·diag(S)·Qᴴ and where the Gram matrix was used, not differentiable."""

    @staticmethod
    def forward(A: Tensor, method: str, refuse: bool) -> Any:
        return (_compute if plain_eager(A) else _kernel)(A, method, refuse)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        U, H, Q, S, gram = output
        ctx.mark_non_differentiable(Q, S, gram)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(U, H, Q, S)
        ctx.save_for_forward(U, H, Q, S)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        gU, gH = grad_outputs[:2]
        if gU is None and gH is None:
            return None, None, None
        U, H, Q, S = ctx.saved_tensors
        return _gradient(U, H, Q, S, gU, gH), None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return batch_first(lambda *moved: apply(_Polar, _CompiledPolar, *moved), info, in_dims, args)


class _Polar(_CompiledPolar):
    """The same with forward-mode derivatives."""

    @staticmethod
    @own_precision
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        refuse_nested_forward("polar")
        U, H, Q, S = ctx.saved_tensors
        dA = grad_inputs[0]
        UdA = U.mH @ dA
        Omega = _sylvester(2 * skew(UdA), H, Q, S)
        dU = U @ Omega
        if U.shape[-2] > U.shape[-1]:
            dU = dU + (dA - U @ UdA) @ _inverse(H, Q, S)
        return dU, herm(UdA - Omega @ H), None, None, None


@own_precision
def _gradient(U: Tensor, H: Tensor, Q: Tensor, S: Tensor, gU: Tensor | None, gH: Tensor | None) -> Tensor:
    """The gradient of tall A = UH, H = Q·diag(S)·Qᴴ; a gradient of None is 0."""
    gH = torch.zeros_like(H) if gH is None else herm(gH)
    UgU = torch.zeros_like(H) if gU is None else U.mH @ gU
    gA = U @ (gH + 2 * _sylvester(skew(UgU - gH @ H), H, Q, S))
    if gU is not None and U.shape[-2] > U.shape[-1]:
        gA = gA + (gU - U @ UgU) @ _inverse(H, Q, S)
    return gA


def _sylvester(R: Tensor, H: Tensor, Q: Tensor, S: Tensor) -> Tensor:
    return apply(_Sylvester, _CompiledSylvester, R, H, Q, S)


def _inverse(H: Tensor, Q: Tensor, S: Tensor) -> Tensor:
    """H⁻¹ = L(2I)."""
    return _sylvester(2 * torch.eye(H.shape[-1], dtype=H.dtype, device=H.device).expand(H.shape), H, Q, S)


class _CompiledSylvester(torch.autograd.Function):
    """R, H = Q·diag(S)·Qᴴ -> X with HX + XH = R; Q and S are constants, the derivative in H is the closed form."""

    @staticmethod
    @own_precision
    def forward(R: Tensor, H: Tensor, Q: Tensor, S: Tensor) -> Tensor:
        n = S.shape[-1]
        zero = rank_tolerance(S, n, n) >= S
        inverse_sums = reciprocal(S.unsqueeze(-2) + S.unsqueeze(-1), zero.unsqueeze(-2) & zero.unsqueeze(-1))
        return Q @ ((Q.mH @ R @ Q) * inverse_sums) @ Q.mH

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, H, Q, S = inputs
        ctx.save_for_backward(H, Q, S, output)
        ctx.save_for_forward(H, Q, S, output)

    @staticmethod
    @own_precision
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        H, Q, S, X = ctx.saved_tensors
        gR = _sylvester(grad_outputs[0], H, Q, S)
        gH = -(gR @ X.mH + X.mH @ gR) if ctx.needs_input_grad[1] else None
        return gR, gH, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return batch_first(lambda *moved: apply(_Sylvester, _CompiledSylvester, *moved), info, in_dims, args)


class _Sylvester(_CompiledSylvester):
    """The same with forward-mode derivatives."""

    @staticmethod
    @own_precision
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        refuse_nested_forward("polar")
        H, Q, S, X = ctx.saved_tensors
        dR, dH = grad_inputs[:2]
        if dH is not None:
            dR = (0 if dR is None else dR) - dH @ X - X @ dH
        return _sylvester(dR, H, Q, S)
