"""The derivatives of A ↦ f(A), by divided differences: exact at ties and at deficient rank.

**Hermitian A** = Q·diag(x)·Qᴴ, F = Q·diag(f(x))·Qᴴ. With Ê = QᴴEQ (Daleckii and Krein)

    DF(A)[E] = Q(Ê∘T)Qᴴ, T_ij = f[x_i, x_j];   D²F(A)[E, G] = QMQᴴ, M_ij = Σ_k (Ê_ik Ĝ_kj + Ĝ_ik Ê_kj) f[x_i, x_k, x_j].

No eigenvalue is divided by a gap, and no choice of eigenvectors matters. DF(A) is its own adjoint, and the form ⟨G,
D²F(A)[E, ·]⟩ has the gradient D²F(A)[Eᴴ, G]; so forward and reverse mode are the same maps.

**Any A** = U·diag(s)·Vᴴ, m ≥ n (a wide A is treated as Aᴴ), F = U·diag(f(s))·Vᴴ. The dilation [[0, A], [Aᴴ, 0]] has the
eigenvalues ±s_i with the vectors (u_i, ±v_i)/√2, and 0 with (u⊥, 0), and its odd function is the dilation of F: f
extended by f(−s) = −f(s). With P = UᴴEV the formulas above become

    DF(A)[E] = U(herm(P)∘T⁻ + skew(P)∘T⁺)Vᴴ + (I − UUᴴ)EV·diag(T⁰)Vᴴ,
    T⁻_ij = f[s_i, s_j],  T⁺_ij = f[s_i, −s_j] = (f(s_i) + f(s_j))/(s_i + s_j),  T⁰_i = f[s_i, 0] = f(s_i)/s_i,

and D²F the block of the dilation's, in which the null vectors u⊥ enter through the projector I − UUᴴ.

The Functions below take the tables T as tensors: whatever tensors f depends on get their gradients through values and
tables. Vectors and values of the decomposition are constants, A is an input only to receive the derivative. Third
derivatives in A are an error.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .divided_differences import Elementwise
from .operator import apply, batch_first, own_precision, refuse_nested_forward
from .tied_pairs import herm, skew

# Entries of a table of second divided differences that are formed at a time.
_BLOCK = 1 << 22


def spectral_operator(
    A: Tensor, left: Tensor, x: Tensor, right: Tensor | None, values: Tensor, table: Tensor, f: Elementwise
) -> Tensor:
    """left·diag(values)·right, the value of a spectral function at A, differentiable twice in A and once in values and table.

    Args:
        A: (..., n, n), Hermitian or its lower triangle, with ``right`` None (derivatives are those of the Hermitian part,
            as in torch.linalg.eigh); or (..., m, n), m ≥ n.
        left, x, right: Q (..., n, n), the eigenvalues (..., n), None; or U (..., m, n), s (..., n), Vᴴ (..., n, n); without
            derivatives.
        values: f(x).
        table: T (..., n, n); or (T⁻, T⁺) side by side (..., n, 2n), and the column T⁰ (..., n, 2n + 1) where m > n.
        f: for the second derivative.
    """
    rule = None if torch.compiler.is_compiling() else f
    return apply(_Operator, _CompiledOperator, A, left, x, right, values, table, rule)


class _CompiledOperator(torch.autograd.Function):
    @staticmethod
    @own_precision
    def forward(
        A: Tensor, left: Tensor, x: Tensor, right: Tensor | None, values: Tensor, table: Tensor, f: Elementwise | None
    ) -> Tensor:
        return _compose(left, right, values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        A, left, x, right, _, table, ctx.f = inputs
        # a zero for what has no tangent would count as a dependence
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(A, left, x, right, table)
        ctx.save_for_forward(A, left, x, right, table)

    @staticmethod
    @own_precision
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        g = grad_outputs[0]
        if g is None:
            return (None,) * 7
        A, left, x, right, table = ctx.saved_tensors
        gA = gv = None
        if ctx.needs_input_grad[0]:
            gA = _symmetric(_derivative(g, A, left, x, right, table, ctx.f), right)
        if ctx.needs_input_grad[4]:
            gv = _inner(_frozen(left, A), right, g).diagonal(dim1=-2, dim2=-1).real
        return gA, None, None, None, gv, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return batch_first(lambda *moved: apply(_Operator, _CompiledOperator, *moved), info, in_dims, args)


class _Operator(_CompiledOperator):
    """The same with forward-mode derivatives."""

    @staticmethod
    @own_precision
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        refuse_nested_forward("a spectral function")
        A, left, x, right, table = ctx.saved_tensors
        dA, dv = grad_inputs[0], grad_inputs[4]
        dF = 0 if dA is None else _derivative(_symmetric(dA, right), A, left, x, right, table, ctx.f)
        return dF if dv is None else dF + _compose(_frozen(left, A), right, dv)


def _derivative(*args: Any) -> Tensor:
    """DF(A)[E] from E and the arguments of ``spectral_operator`` without values."""
    return apply(_Derivative, _CompiledDerivative, *args)


class _CompiledDerivative(torch.autograd.Function):
    @staticmethod
    @own_precision
    def forward(
        E: Tensor, A: Tensor, left: Tensor, x: Tensor, right: Tensor | None, table: Tensor, f: Elementwise | None
    ) -> Tensor:
        return _apply_table(E, left, right, table)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        E, A, left, x, right, table, ctx.f = inputs
        # a zero for what has no tangent would count as a dependence
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(E, A, left, x, right, table)
        ctx.save_for_forward(E, A, left, x, right, table)

    @staticmethod
    @own_precision
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        g = grad_outputs[0]
        if g is None:
            return (None,) * 7
        E, A, left, x, right, table = ctx.saved_tensors
        gE = _derivative(g, A, left, x, right, table, ctx.f) if ctx.needs_input_grad[0] else None
        gA = None
        if ctx.needs_input_grad[1]:
            gA = _second(E.mH if right is None else E, g, A, left, x, right, table, ctx.f)
            gA = _symmetric(gA, right)
        gT = _table_gradient(E, g, _frozen(left, A), right, table) if ctx.needs_input_grad[5] else None
        return gE, gA, None, None, None, gT, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return batch_first(lambda *moved: apply(_Derivative, _CompiledDerivative, *moved), info, in_dims, args)


class _Derivative(_CompiledDerivative):
    """The same with forward-mode derivatives."""

    @staticmethod
    @own_precision
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        refuse_nested_forward("a spectral function")
        E, A, left, x, right, table = ctx.saved_tensors
        dE, dA, dT = grad_inputs[0], grad_inputs[1], grad_inputs[5]
        result = 0 if dE is None else _derivative(dE, A, left, x, right, table, ctx.f)
        if dA is not None:
            result = result + _second(E, _symmetric(dA, right), A, left, x, right, table, ctx.f)
        return result if dT is None else result + _apply_table(E, _frozen(left, A), right, dT)


class _CompiledFrozen(torch.autograd.Function):
    """``left`` itself, as a function of A that refuses to be differentiated."""

    @staticmethod
    def forward(left: Tensor, A: Tensor) -> Tensor:
        return left.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        raise NotImplementedError(_TOO_MANY)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return batch_first(_frozen, info, in_dims, args)


class _Frozen(_CompiledFrozen):
    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        raise NotImplementedError(_TOO_MANY)


_TOO_MANY = (
    "spectral functions have derivatives to the second order in A, and to the first in tensors on which f depends, once "
    "in the value and once in the gradient: take further ones by finite differences"
)


def _frozen(left: Tensor, A: Tensor) -> Tensor:
    return apply(_Frozen, _CompiledFrozen, left, A)


def _symmetric(E: Tensor, right: Tensor | None) -> Tensor:
    """The Hermitian part, where A stands for a Hermitian matrix."""
    return herm(E) if right is None else E


def _compose(left: Tensor, right: Tensor | None, values: Tensor) -> Tensor:
    return (left * values.unsqueeze(-2)) @ (left.mH if right is None else right)


def _inner(left: Tensor, right: Tensor | None, E: Tensor) -> Tensor:
    """leftᴴ E rightᴴ."""
    return left.mH @ E @ (left if right is None else right.mH)


def _tables(table: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Of P and of Pᴴ in herm(P)∘T⁻ + skew(P)∘T⁺."""
    minus, plus = table[..., :n], table[..., n : 2 * n]
    return (minus + plus) / 2, (minus - plus) / 2


def _apply_table(E: Tensor, left: Tensor, right: Tensor | None, table: Tensor) -> Tensor:
    """DF(A)[E]."""
    if right is None:
        return left @ (_inner(left, None, E) * table) @ left.mH
    n = table.shape[-2]
    EV = E @ right.mH
    P = left.mH @ EV
    direct, adjoint = _tables(table, n)
    K = P * direct + P.mH * adjoint
    if table.shape[-1] == 2 * n:
        return left @ K @ right
    null = table[..., 2 * n].unsqueeze(-2)
    return (left @ (K - P * null) + EV * null) @ right


def _table_gradient(E: Tensor, g: Tensor, left: Tensor, right: Tensor | None, table: Tensor) -> Tensor:
    """The gradient in the table of ⟨g, DF(A)[E]⟩."""
    P, R = _inner(left, right, E), _inner(left, right, g)
    if right is None:
        return (P * R.conj()).real
    direct, adjoint = (P * R.conj()).real, (P.mH * R.conj()).real
    parts = [(direct + adjoint) / 2, (direct - adjoint) / 2]
    if table.shape[-1] > 2 * table.shape[-2]:
        EV, gV = E @ right.mH, g @ right.mH
        parts.append(((EV - left @ P) * gV.conj()).sum(-2).real.unsqueeze(-1))
    return torch.cat(parts, -1)


def _second(
    E: Tensor,
    G: Tensor,
    A: Tensor,
    left: Tensor,
    x: Tensor,
    right: Tensor | None,
    table: Tensor,
    f: Elementwise | None,
) -> Tensor:
    """D²F(A)[E, G]."""
    if f is None:
        raise NotImplementedError("second derivatives of spectral functions inside torch.compile: take them outside")
    left = _frozen(left, A)
    if right is None:
        E, G = _inner(left, None, E), _inner(left, None, G)
        return left @ _contract(f, x, table, E, G, x.shape[-1], odd=False) @ left.mH
    return _second_of_dilation(f, x, table, left, right, E, G)


def _second_of_dilation(
    f: Elementwise, s: Tensor, table: Tensor, left: Tensor, right: Tensor, E: Tensor, G: Tensor
) -> Tensor:
    """The upper right block of D²F at the dilation of A.

    In the vectors of ±s the dilation of E has the blocks herm(P), −skew(P); skew(P), −herm(P), and so has every
    dilation, so that the rows of +s say all. The null vectors enter as k = 0 in the sum (C), and as rows of their own
    (the last term).
    """
    n = s.shape[-1]
    EV, GV = E @ right.mH, G @ right.mH
    P, R = left.mH @ EV, left.mH @ GV
    nodes, table = _dilated(s, table)
    E2, G2 = (torch.cat((torch.cat((herm(M), -skew(M)), -1), torch.cat((skew(M), -herm(M)), -1)), -2) for M in (P, R))
    M = _contract(f, nodes[..., : 2 * n], table[..., : 2 * n, : 2 * n], E2, G2, n, odd=True)
    if table.shape[-1] == 2 * n:
        return left @ (M[..., :n] - M[..., n:]) @ right
    through_zero = _finite(f.second(nodes, table, slice(2 * n, 2 * n + 1), odd=True))[..., 0, :n, : 2 * n]
    plus, minus = through_zero[..., :n], through_zero[..., n:]
    EN, GN = EV - left @ P, GV - left @ R
    C = herm(EN.mH @ GN)
    K = M[..., :n] - M[..., n:] + C * (plus + minus)
    rows = EN @ (herm(R) * plus + skew(R) * minus) + GN @ (herm(P) * plus + skew(P) * minus)
    return (left @ K + rows) @ right


def _dilated(s: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """The nodes s, −s, and 0 if the table has its column, and the table of them all; f[0, 0] is not used."""
    n = s.shape[-1]
    minus, plus, null = table[..., :n], table[..., n : 2 * n], table[..., 2 * n :]
    square = torch.cat((torch.cat((minus, plus, null), -1), torch.cat((plus, minus, null), -1)), -2)
    if null.shape[-1] == 0:
        return torch.cat((s, -s), -1), square
    row = torch.cat((null.mT, null.mT, torch.zeros_like(null[..., :1, :])), -1)
    return torch.cat((s, -s, torch.zeros_like(s[..., :1])), -1), torch.cat((square, row), -2)


def _contract(f: Elementwise, x: Tensor, table: Tensor, E: Tensor, G: Tensor, rows: int, odd: bool) -> Tensor:
    """M_ij = Σ_k (E_ik G_kj + G_ik E_kj) f[x_i, x_k, x_j] for the first ``rows`` rows, a block of them at a time."""
    step = max(1, _BLOCK // max(1, x.numel() * x.shape[-1]))
    blocks = []
    for start in range(0, rows, step):
        block = slice(start, min(start + step, rows))
        terms = E[..., block, :, None] * G[..., None, :, :] + G[..., block, :, None] * E[..., None, :, :]
        blocks.append((_finite(f.second(x, table, block, odd)) * terms).sum(-2))
    return torch.cat(blocks, -2) if blocks else E[..., :0, :]


def _finite(table: Tensor) -> Tensor:
    """The table with 0 for entries that do not exist."""
    return table.masked_fill(~table.isfinite(), 0)
