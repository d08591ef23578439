"""Derivatives of the singular value decomposition, at ties as well.

Let A = U·diag(s)·Vᴴ with k = min(m, n) columns in U and V, dP = Uᴴ dA V, and write skew(M) = (M − Mᴴ)/2, herm(M) = (M +
Mᴴ)/2. The skew-Hermitian Ω = UᴴdU and Ψ = VᴴdV satisfy dP = Ω·diag(s) + diag(ds) − diag(s)·Ψ. Its skew and Hermitian
parts decouple:

    (Ω − Ψ)_ij = 2 skew(dP)_ij / (s_i + s_j)        (Ω + Ψ)_ij = 2 herm(dP)_ij / (s_j − s_i)        ds_i = Re dP_ii.

The first never sees a tie, the second does. With X = skew(UᴴgU) and Y = skew(VᴴgV) for the gradients gU, gV of the
loss, the gradient is gA = UKVᴴ + (I − UUᴴ)gU·diag(1/s)·Vᴴ + U·diag(1/s)·gVᴴ(I − VVᴴ) with

    K_ij = (X − Y)_ij / (s_i + s_j) + (X + Y)_ij / (s_j − s_i) + δ_ij gS_i.

**At a tie** s_i = s_j a loss that is a differentiable function of A does not notice a common rotation of the two pairs
of vectors, so (X + Y)_ij = 0: the second term is 0/0, with a limit that (gU, gV) alone do not determine. Take ℓ(A) =
φ(F), F = U·h(diag s)·Vᴴ, M = UᴴCV, C = ∂φ/∂F. Then gU = CVh, gV = CᴴUh, and

    (X + Y)_ij = herm(M)_ij (h_j − h_i)      so      (X + Y)_ij / (s_j − s_i) → h'(s) herm(M)_ij,
    gS_i = h'(s_i) Re M_ii,      W := herm(UᴴgU + VᴴgV) has W_ij = herm(M)_ij (h_i + h_j).

Hence within a group of tied values the limit is c·W_ij with c = h'/(2h), *and gS_i = c·W_ii*: the diagonal, which is
known, gives c. The same holds for F = U h Uᴴ and F = V h Vᴴ; a spectral function Σf(s_i) added to the loss adds one
constant to all gS_i of the group. So the rule is: fit gS = cW_ii over the group, else gS = cW_ii + d (three or more
tied values: two would fit anything), and use cW_ij if the fit is good. For polar factors and projectors h' = 0 and c =
0; for low-rank approximations h = s and c = 1/(2s). A loss that fits neither is not in that class (it is not
differentiable there, or combines several h; or the diagonal of W vanishes in the basis at hand, which ``spectral`` turns to make
that unlikely): its term is 0 (``ties="mask"``) or an error (``"raise"``).

The same formula serves *near* ties, where the quotient loses digits: its error is about ε·s/gap, that of cW_ij, with c
the mean over the group, about gap/s. Below gap = √ε·s_1 the fit is used if it is good, and the quotient otherwise; so
the relative error is at most about √ε (1.5e-8 in double, 3.5e-4 in single precision), and for h' = 0 and h = s it is of
rounding size at exact ties.

**At zero.** Terms with 1/(s_i + s_j) or 1/s_i are dropped where s_i = s_j = 0, or s_i = 0, to ``rank_tolerance``: what
remains is exact for losses that are differentiable there and see the null vectors only through their projector.

**Null vectors** (``full_matrices=True``). U⊥ moves by dU⊥ = −U(dUᴴU⊥), so ⟨g⊥, dU⊥⟩ = −⟨U⊥g⊥ᴴU, dU⟩: its gradient is
added to gU. torch.linalg.svd ignores it, so that a loss of the projector U⊥U⊥ᴴ has gradient 0 there.

**Phases** of complex vectors are ties of a vector with itself: Ω_ii + Ψ_ii is free, (X + Y)_ii must vanish, and is
dropped if it does not.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor  # pyright: ignore[reportMissingModuleSource]

from .operator import may_branch, own_precision
from .spectral import rank_tolerance, tie_tolerance

# How well a group must fit, relative to its largest entry: √ε of rounding and drift of c over the group, with room.
_FIT = 30.0


def skew(M: Tensor) -> Tensor:
    """The skew-Hermitian part."""
    return (M - M.mH) / 2


def herm(M: Tensor) -> Tensor:
    """The Hermitian part."""
    return (M + M.mH) / 2


def reciprocal(x: Tensor, zero: Tensor) -> Tensor:
    """1/x, and 0 where ``zero`` with all its derivatives."""
    return x.masked_fill(zero, torch.inf).reciprocal()


class Differences(NamedTuple):
    """The reciprocals of a decomposition, with 0 where they do not exist."""

    of_sums: Tensor
    """1/(s_i + s_j) (..., k, k)"""
    of_gaps: Tensor
    """1/(s_j − s_i) (..., k, k), 0 at ties"""
    of_values: Tensor
    """1/s_i (..., k)"""
    zero: Tensor
    """s_i = 0 (..., k)"""
    tied: Tensor
    """s_i = s_j, i = j included; (..., k, k), or (k, k) without ties"""


def differences(S: Tensor, m: int, n: int) -> Differences:
    """The reciprocals of sums, gaps and values of S (..., k), the singular values of an m×n matrix; differentiable."""
    sums, gaps = S.unsqueeze(-2) + S.unsqueeze(-1), S.unsqueeze(-2) - S.unsqueeze(-1)
    with torch.no_grad():
        zero = rank_tolerance(S, m, n) >= S
        tolerance = tie_tolerance(S, m, n)
        close = S[..., :-1] - S[..., 1:] <= tolerance
    if may_branch(S) and not bool(zero.any()) and not bool(close.any()):
        # masks of the size of the matrices cost as much as products
        gaps.diagonal(dim1=-2, dim2=-1).fill_(torch.inf)
        itself = torch.eye(S.shape[-1], dtype=torch.bool, device=S.device)
        return Differences(sums.reciprocal(), gaps.reciprocal(), S.reciprocal(), zero, itself)
    with torch.no_grad():
        both_zero = zero.unsqueeze(-2) & zero.unsqueeze(-1)
        tied = (gaps.abs() <= tolerance.unsqueeze(-1)) | both_zero
    return Differences(reciprocal(sums, both_zero), reciprocal(gaps, tied), reciprocal(S, zero), zero, tied)


@own_precision
def gradient(
    U: Tensor, S: Tensor, Vh: Tensor, gU: Tensor | None, gS: Tensor | None, gVh: Tensor | None, report: bool = False
) -> tuple[Tensor, Tensor | None]:
    """The gradient of A, and with ``report`` the pairs (..., k, k) whose dropped term the loss depends on, else None.

    ``U`` (..., m, k or m), ``S`` (..., k), ``Vh`` (..., k or n, n); gradients may be None for 0, not all of them. In
    the second result (i, i) stands for the phase of pair i of complex vectors.
    """
    m, n, k = U.shape[-2], Vh.shape[-1], S.shape[-1]
    if gU is None and gVh is None:
        assert gS is not None
        return (U[..., :k] * gS.unsqueeze(-2)) @ Vh[..., :k, :], None
    gU, U = _with_null_vectors(torch.zeros_like(U) if gU is None else gU, U, k)
    gV, V = _with_null_vectors(torch.zeros_like(Vh).mH if gVh is None else gVh.mH, Vh.mH, k)
    UgU, VgV = U.mH @ gU, V.mH @ gV
    total, difference = UgU + VgV, UgU - VgV
    # of 2s, because the skew parts of total and difference have a factor ½
    d = differences(2 * S, m, n)
    with torch.no_grad():
        c, undefined = _limits(S, gS, gU, gV, total, difference, d, max(m, n), report)
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
        left = U @ (K - UgU * inverse.unsqueeze(-2)) + gU * inverse.unsqueeze(-2)
        return left @ V.mH, undefined
    if n > k:
        right = (K - (VgV * inverse.unsqueeze(-2)).mH) @ V.mH + gV.mH * inverse.unsqueeze(-1)
        return U @ right, undefined
    return U @ K @ V.mH, undefined


def _limits(
    S: Tensor,
    gS: Tensor | None,
    gU: Tensor,
    gV: Tensor,
    total: Tensor,
    difference: Tensor,
    d: Differences,
    size: int,
    report: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """The coefficients c of tied and nearly tied pairs (``_coefficients``), and with ``report`` the undefined pairs.

    ``total`` is UᴴgU + VᴴgV, ``difference`` UᴴgU − VᴴgV, ``size`` max(m, n). None instead of c if there are no such
    pairs.
    """
    gS = torch.zeros_like(S) if gS is None else gS
    if not report and may_branch(S) and not is_legacy_batchedtensor(total):
        # only the few matrices that have nearly tied values
        close = (S[..., :-1] - S[..., 1:] <= _near(S)) & ~d.zero[..., 1:]
        rows = close.any(-1)
        if not bool(rows.any()):
            return None, None
        c = torch.full(total.shape, torch.nan, dtype=S.dtype, device=S.device)
        noise = _noise(gU[rows], gV[rows], size)
        c[rows] = _coefficients(S[rows], gS[rows], total[rows], noise, d.zero[rows])[0]
        return c, None
    noise = _noise(gU, gV, size)
    c, known = _coefficients(S, gS, total, noise, d.zero)
    if not report:
        return c, None
    both_zero = d.zero.unsqueeze(-2) & d.zero.unsqueeze(-1)
    itself = torch.eye(S.shape[-1], dtype=torch.bool, device=S.device)
    rotates = skew(total).abs() > noise
    unfitted = d.tied & ~both_zero & ~itself & ~known
    return c, (d.tied & rotates) | unfitted | (both_zero & (skew(difference).abs() > noise))


def _noise(gU: Tensor, gV: Tensor, size: int) -> Tensor:
    """The rounding error (..., 1, 1) of the entries of UᴴgU + VᴴgV: 4·size·ε times the largest entry of the gradients."""
    largest = torch.maximum(gU.abs().amax((-2, -1)), gV.abs().amax((-2, -1)))
    return 4 * size * torch.finfo(largest.dtype).eps * largest[..., None, None]


def _near(S: Tensor) -> Tensor:
    """The distance (..., 1) below which the quotient may lose more digits than the fit: √ε·s_1."""
    return torch.finfo(S.dtype).eps ** 0.5 * S[..., :1]


def _coefficients(S: Tensor, gS: Tensor, total: Tensor, noise: Tensor, zero: Tensor) -> tuple[Tensor, Tensor]:
    """c of the term c·W_ij that replaces the quotient (NaN where it does not), and where the groups have a fit; both (..., k, k).

    ``noise`` is the rounding error of X + Y.
    """
    gaps = S.unsqueeze(-2) - S.unsqueeze(-1)
    W = herm(total)
    group = (gaps.abs() <= _near(S).unsqueeze(-1)) & ~(zero.unsqueeze(-2) | zero.unsqueeze(-1))
    c, known = _group_coefficient(group, gS, W, _FIT * torch.finfo(S.dtype).eps ** 0.5)
    c = (c.unsqueeze(-1) + c.unsqueeze(-2)) / 2
    known = known.unsqueeze(-1) & known.unsqueeze(-2)
    itself = torch.eye(S.shape[-1], dtype=torch.bool, device=S.device)
    # an accidental fit would contradict the quotient by more than its rounding error
    used = group & known & ~itself & ((skew(total) - c * W * gaps).abs() <= noise)
    return torch.where(used, c, torch.nan), known


def _group_coefficient(group: Tensor, gS: Tensor, W: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    """c of the fit gS = cW_ii (+ d) over the group (..., k, k) of each value, and whether there is a fit; both (..., k)."""
    w = W.diagonal(dim1=-2, dim2=-1).real
    weight = group.to(gS.dtype)

    def total(x: Tensor) -> Tensor:
        return (weight @ x.unsqueeze(-1)).squeeze(-1)

    def largest(x: Tensor) -> Tensor:
        return torch.where(group, x, 0.0).amax(-1)

    allowed = tolerance * largest(gS.abs().unsqueeze(-2))

    def fits(c: Tensor, shift: Tensor) -> Tensor:
        return largest((gS.unsqueeze(-2) - c.unsqueeze(-1) * w.unsqueeze(-2) - shift.unsqueeze(-1)).abs()) <= allowed

    # The diagonal must be large enough beside the rest of W in the group to speak for it.
    W_size = largest(largest(W.abs()).unsqueeze(-2))
    count, w_sum, g_sum, ww, wg = total(torch.ones_like(w)), total(w), total(gS), total(w * w), total(w * gS)
    seen = ww > (tolerance * W_size).square()
    proportional = wg * reciprocal(ww, ~seen)
    is_proportional = seen & fits(proportional, torch.zeros_like(w))
    spread = ww - w_sum.square() / count
    seen = (spread > (tolerance * W_size).square()) & (count >= 3)
    affine = (wg - w_sum * g_sum / count) * reciprocal(spread, ~seen)
    is_affine = seen & fits(affine, (g_sum - affine * w_sum) / count)
    # a spectral function alone
    is_spectral = (W_size == 0) & fits(torch.zeros_like(w), g_sum / count)
    c = torch.where(is_proportional, proportional, torch.where(is_affine, affine, 0.0))
    return c, is_proportional | is_affine | is_spectral


def _with_null_vectors(g: Tensor, Q: Tensor, k: int) -> tuple[Tensor, Tensor]:
    if Q.shape[-1] == k:
        return g, Q
    thin, null = Q[..., :k], Q[..., k:]
    return g[..., :k] - null @ (g[..., k:].mH @ thin), thin


@own_precision
def tangent(U: Tensor, S: Tensor, Vh: Tensor, dA: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The tangents of U, S, Vh along ``dA``; at a tie, those of the basis at hand, with (Ω + Ψ)_ij = 0."""
    m, n, k = U.shape[-2], Vh.shape[-1], S.shape[-1]
    d = differences(S, m, n)
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
    return _complete(dU, U, k), dS, _complete(dV, Vh.mH, k).mH


def _complete(dQ: Tensor, Q: Tensor, k: int) -> Tensor:
    """The tangent of all columns from that of the first k: dQ⊥ = −Q(dQᴴQ⊥)."""
    if Q.shape[-1] == k:
        return dQ
    return torch.cat((dQ, -Q[..., :k] @ (dQ.mH @ Q[..., k:])), -1)
