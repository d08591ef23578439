"""Derivatives of the singular value decomposition, at ties as well.

Let A = U·diag(s)·Vᴴ with k = min(m, n) columns in U and V, dP = Uᴴ dA V, and write skew(M) = (M − Mᴴ)/2, herm(M) = (M +
Mᴴ)/2. The skew-Hermitian Ω = UᴴdU and Ψ = VᴴdV satisfy dP = Ω·diag(s) + diag(ds) − diag(s)·Ψ. Its skew and Hermitian
parts decouple:

    (Ω − Ψ)_ij = 2 skew(dP)_ij / (s_i + s_j)        (Ω + Ψ)_ij = 2 herm(dP)_ij / (s_j − s_i)        ds_i = Re dP_ii.

The first never sees a tie, the second does. With X = skew(UᴴgU) and Y = skew(VᴴgV) for the gradients gU, gV of the
loss, the gradient is gA = UKVᴴ + (I − UUᴴ)gU·diag(1/s)·Vᴴ + U·diag(1/s)·gVᴴ(I − VVᴴ) with

    K_ij = (X − Y)_ij / (s_i + s_j) + (X + Y)_ij / (s_j − s_i) + δ_ij gS_i.

**At a tie** s_i = s_j the second term is 0/0. Take ℓ(A) = φ(F), F = U·h(diag s)·Vᴴ, M = UᴴCV, C = ∂φ/∂F. Then gU =
CVh, gV = CᴴUh, and

    (X + Y)_ij = herm(M)_ij (h_j − h_i)      so      (X + Y)_ij / (s_j − s_i) → h'(s) herm(M)_ij,
    gS_i = h'(s_i) Re M_ii,      W := herm(UᴴgU + VᴴgV) has W_ij = herm(M)_ij (h_i + h_j).

The same holds for F = U h Uᴴ and F = V h Vᴴ. ``tied_pairs`` says what of the limit the gradients determine, and what
happens where they do not.

**At zero** each of U and V may turn its null vectors by itself, so X, Y, (I − UUᴴ)gU and (I − VVᴴ)gV vanish there for
a function of A, and terms with 1/(s_i + s_j) or 1/s_i are 0/0 where s_i = s_j = 0, or s_i = 0, to ``rank_tolerance``.
They are dropped. That is exact for a loss that does not use S (for the reason of ``tied_pairs``), and for one with
h(0) = h'(0) = 0, like a low-rank part. A slope h'(0) shows as gS_i ≠ 0: with ``ties="mask"`` alone it is not refused,
unless only one real value is 0 and m = n, where nothing is dropped. A loss of S alone with a slope at 0, like the
nuclear norm, has a kink there and gets a subgradient, as in torch.

**Null vectors** (``full_matrices=True``). U⊥ moves by dU⊥ = −U(dUᴴU⊥), so ⟨g⊥, dU⊥⟩ = −⟨U⊥g⊥ᴴU, dU⟩: its gradient is
added to gU. torch.linalg.svd ignores it, so that a loss of the projector U⊥U⊥ᴴ has gradient 0 there.

**Phases** of complex vectors are ties of a vector with itself: Ω_ii + Ψ_ii is free, (X + Y)_ii must vanish, and is
dropped if it does not.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .operator import may_branch, own_precision
from .spectral import rank_tolerance
from .tie_errors import first_order, refuse
from .tied_pairs import (
    Limits,
    Spectrum,
    herm,
    kinks,
    largest_of_columns,
    limits,
    reciprocal,
    skew,
    turning,
)

_WHAT = "singular values"


class Differences(NamedTuple):
    """The reciprocals of a decomposition, with 0 where they do not exist."""

    of_sums: Tensor
    """1/(s_i + s_j) (..., k, k)"""
    of_gaps: Tensor
    """1/(s_j − s_i) (..., k, k), 0 at ties"""
    of_values: Tensor
    """1/s_i (..., k)"""


def spectrum(S: Tensor, m: int, n: int) -> Spectrum:
    """The singular values S (..., k) of m×n matrices."""
    S = S.detach()
    return Spectrum.of(S, rank_tolerance(S, m, n) >= S, max(m, n))


def differences(S: Tensor, s: Spectrum) -> Differences:
    """The reciprocals of sums, gaps and values of S (..., k), a multiple of the values of ``s``; differentiable."""
    sums, gaps = S.unsqueeze(-2) + S.unsqueeze(-1), S.unsqueeze(-2) - S.unsqueeze(-1)
    if s.distinct:
        # masks of the size of the matrices cost as much as products
        gaps.diagonal(dim1=-2, dim2=-1).fill_(torch.inf)
        return Differences(sums.reciprocal(), gaps.reciprocal(), S.reciprocal())
    return Differences(reciprocal(sums, s.both_zero), reciprocal(gaps, s.tied), reciprocal(S, s.zero))


@own_precision
def gradient(
    U: Tensor, S: Tensor, Vh: Tensor, gU: Tensor | None, gS: Tensor | None, gVh: Tensor | None, ties: str
) -> Tensor:
    """The gradient of A; an error where it is not determined, by the rules of ``ties`` (``tied_pairs``).

    ``U`` (..., m, k or m), ``S`` (..., k), ``Vh`` (..., k or n, n); gradients are None where the loss does not use the
    factor, not all of them.
    """
    m, n, k = U.shape[-2], Vh.shape[-1], S.shape[-1]
    if 0 in (m, n):
        return U.new_zeros(*S.shape[:-1], m, n)
    s = spectrum(S, m, n)
    if gU is None and gVh is None:
        assert gS is not None
        gA = (U[..., :k] * gS.unsqueeze(-2)) @ Vh[..., :k, :]
        return refuse(gA, kinks(ties, s, gS), s, _WHAT, "backward")
    gU, U = _with_null_vectors(torch.zeros_like(U) if gU is None else gU, U, k)
    gV, V = _with_null_vectors(torch.zeros_like(Vh).mH if gVh is None else gVh.mH, Vh.mH, k)
    UgU, VgV = U.mH @ gU, V.mH @ gV
    total, difference = UgU + VgV, UgU - VgV
    # of 2s, because the skew parts of total and difference have a factor ½
    d = differences(2 * S, s)
    with torch.no_grad():
        c, undefined, limited = limits(ties, s, gS, total, (gU, gV), difference)
        if ties != "mask":
            null = _null_limits(s, gS, ((U, gU, UgU), (V, gV, VgV)))
            undefined, limited = _either(undefined, null.undefined), _either(limited, null.first_order)
    # both quotients with one transposition: skew(M)∘F + skew(N)∘E for symmetric F and skew E
    by_sums = difference * d.of_sums
    by_gaps = total * (d.of_gaps if c is None else d.of_gaps.masked_fill(~c.isnan(), 0.0))
    K = by_gaps + by_sums + (by_gaps - by_sums).mH
    if c is not None:
        K = K + c.nan_to_num(nan=0.0) * herm(total)
    if gS is not None:
        K = K + torch.diag_embed(gS)
    # the parts outside the spans of U and V, merged with the product by the other factor
    inverse = 2 * d.of_values
    if m > k:
        gA = (U @ (K - UgU * inverse.unsqueeze(-2)) + gU * inverse.unsqueeze(-2)) @ V.mH
    elif n > k:
        gA = U @ ((K - (VgV * inverse.unsqueeze(-2)).mH) @ V.mH + gV.mH * inverse.unsqueeze(-1))
    else:
        gA = U @ K @ V.mH
    return first_order(refuse(gA, undefined, s, _WHAT, "backward"), limited, s, _WHAT)


def _null_limits(s: Spectrum, gS: Tensor | None, sides: tuple[tuple[Tensor, Tensor, Tensor], ...]) -> Limits:
    """What is not determined of the terms that are dropped at singular values 0.

    ``sides`` are (Q, g, QᴴgQ) for U and V.
    """
    if s.apart > 0 or (may_branch(s.zero) and not bool(s.zero.any())):
        return Limits(None, None, None)
    columns = largest_of_columns(*(g for _, g, _ in sides))
    noise = s.noise(columns.amax(-1, keepdim=True))
    # a wide or tall matrix has null vectors outside of the span, and complex vectors a phase of their own on each side
    alone = s.zero.sum(-1, keepdim=True).unsqueeze(-1) <= 1
    undefined = torch.zeros_like(s.both_zero)
    for Q, g, QgQ in sides:
        undefined = undefined | (s.both_zero & (skew(QgQ).abs() > noise.unsqueeze(-1)))
        if Q.shape[-2] > Q.shape[-1]:
            undefined = undefined | torch.diag_embed(s.zero & (largest_of_columns(g - Q @ QgQ) > noise))
            alone = torch.zeros_like(alone)
    if gS is None:
        return Limits(None, undefined, None)
    dropped = s.both_zero if sides[0][0].is_complex() else s.both_zero & ~alone
    slope = gS.abs() > s.noise_of_values(gS, None)
    return Limits(None, undefined | (dropped & torch.diag_embed(slope)), dropped)


def _either(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """Where one of two masks holds; None stands for nowhere."""
    if first is None or second is None:
        return second if first is None else first
    return first | second


def _with_null_vectors(g: Tensor, Q: Tensor, k: int) -> tuple[Tensor, Tensor]:
    if Q.shape[-1] == k:
        return g, Q
    thin, null = Q[..., :k], Q[..., k:]
    return g[..., :k] - null @ (g[..., k:].mH @ thin), thin


@own_precision
def tangent(U: Tensor, S: Tensor, Vh: Tensor, dA: Tensor, ties: str) -> tuple[Tensor, Tensor, Tensor]:
    """The tangents of U, S, Vh along ``dA``, with (Ω + Ψ)_ij = 0 at ties; an error where ``ties`` does not allow that."""
    m, n, k = U.shape[-2], Vh.shape[-1], S.shape[-1]
    s = spectrum(S, m, n)
    d = differences(S, s)
    thin_U, thin_V = U[..., :k], Vh[..., :k, :].mH
    dAV, dAU = dA @ thin_V, dA.mH @ thin_U
    dP = thin_U.mH @ dAV
    difference, total = 2 * skew(dP) * d.of_sums, 2 * herm(dP) * d.of_gaps
    dU = thin_U @ ((total + difference) / 2)
    dV = thin_V @ ((total - difference) / 2)
    if m > k:
        dU = dU + (dAV - thin_U @ dP) * d.of_values.unsqueeze(-2)
    if n > k:
        dV = dV + (dAU - thin_V @ dP.mH) * d.of_values.unsqueeze(-2)
    dS = dP.diagonal(dim1=-2, dim2=-1).real
    if k:
        dU = refuse(dU, turning(ties, s, dP), s, _WHAT, "forward")
    return _complete(dU, U, k), dS, _complete(dV, Vh.mH, k).mH


def _complete(dQ: Tensor, Q: Tensor, k: int) -> Tensor:
    """The tangent of all columns from that of the first k: dQ⊥ = −Q(dQᴴQ⊥)."""
    if Q.shape[-1] == k:
        return dQ
    return torch.cat((dQ, -Q[..., :k] @ (dQ.mH @ Q[..., k:])), -1)
