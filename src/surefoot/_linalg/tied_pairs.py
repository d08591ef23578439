"""What a loss of a decomposition says about its derivative where values are tied: once, for ``svd`` and ``eigh``.

A loss is written as φ(vectors, values); autograd brings the gradients of φ in both, at one choice of the vectors. In
the basis of the vectors let L_ij be the limit, as values i and j close up, of

    X_ij / (s_j − s_i),    X = skew(total),    total = UᴴgU + VᴴgV  (svd),  QᴴgQ  (eigh).

L is the part of the gradient that a tie leaves 0/0; its diagonal is known, L_ii = gS_i. (``svd_derivative`` and
``eigh`` derive it.)

What is determined at ties
--------------------------
*Any loss that is a function of A has X_ij = 0 at a tie*: a common rotation of the tied vectors does not change A. If
X_ij ≠ 0 (beyond rounding), the loss sees the arbitrary choice of the vectors, and has no derivative.

*A loss that does not use the values* (their gradient is None: they are not in its graph) *has L_ij = 0.* Proof: φ of
the vectors alone does not know that values i and j are equal; its invariance under the rotation of the pair at a tie
is invariance at the same vectors for any values. So X_ij is 0 along U·diag(s(t))·Vᴴ for every path s(t) of values, and
the quotient is 0 before the limit. This takes in the polar factor UVh, projectors on groups that hold tied values
together, and all that is made of those.

*A loss that does not use the vectors* has L_ij = 0 if it is symmetric in the tied values (so that gS_i = gS_j): its
gradient U·diag(gS)·Vᴴ is then the same in every basis. If gS_i ≠ gS_j it has a kink, like max(a, b) at a = b.

*A loss that uses both is not determined.* For U·h(S)·Vᴴ (or U·h(S)·Uᴴ) with weights M in the basis, total_ij =
2h·herm(M)_ij and L_ij = h′·herm(M)_ij, so a sum of such terms with two functions h has gradients that fit many L.
Nothing that could be computed from the gradients tells them apart: at A = 2I with M = [[1, 2], [2, 1]], U·S²·Vᴴ alone
and with log S added have the same ratios of gS and diag(total), and different L_12/total_12. Three choices remain.

``"raise"``
    An error, unless total_ij = 0 (beyond rounding; both parts, both ways) and gS_i = gS_j: then the loss uses the tied
    vectors in no way that can be seen, and L_ij = 0. (Only terms whose functions vanish or cancel at the tied value, h
    = 0 with h′ ≠ 0, can hide here, and only with weights whose diagonal is constant in the basis at hand, which a
    fixed reflection makes unlikely.)
``"one-function"``
    By promise all terms share one h. Then with W = herm(total), gS_i = cW_ii and L_ij = cW_ij with c = h′/(2h): the
    diagonal, which is known, gives c. A function Σf(s_i) added to the loss adds one constant to gS over the group, so
    that gS = cW_ii + d is fitted as well where three or more values are tied (two would fit anything). An error where
    neither fit is good.
``"mask"``
    L_ij = 0. Always finite; right where L_ij = 0.

All of this speaks of one call. A loss that takes vectors from one call and values from another, or values as the
diagonal of UᴴAV, is differentiable as a whole, but not call by call, and no call can notice: take both from the same.

**Near ties** the quotient loses digits: its error is about ε·s/gap beside the largest entry of the gradient. A loss
that does not use the values gets 0 where X_ij is rounding alone; ``"one-function"`` uses the fit below gap = √ε·s_1 if
it is good and agrees with the quotient (error about gap/s: the worst of both is √ε). Otherwise the quotient stands as
long as its error is estimated to be below 1e-4 in double precision; beyond that the pair counts as tied. In single
precision the limit is one half: there large matrices without structure have such pairs by chance.

**Second derivatives** are those of the formula, in which L_ij at a tie is a constant. That is right where it is 0 for
every A (the loss does not use the values); elsewhere an error says so, except with ``"mask"``, and near ties as well,
where their error is about ε(s/gap)².

**Forward mode** follows one direction dA without knowing the loss. Along it tied vectors have a derivative only if
herm(UᴴdAV)_ij (QᴴdAQ) = 0 for the pair; if not, an error (up to a gap of about 1e-11 in double precision), and with
``"mask"`` the tangent in which the tied vectors do not turn.

**Under torch.compile** an output that the loss does not use has a gradient of zeros in place of None, so all count as
used: the polar factor and projectors at a tie are errors there, by ``svd``; the operators made for them (``polar``,
...) are not. The same holds wherever zeros are passed as gradients, as in ``torch.func.vjp``.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .operator import may_branch
from .spectral import tie_distance, tie_tolerance

Ties = Literal["raise", "one-function", "mask"]
TIES = ("raise", "one-function", "mask")

# How well a group must fit, relative to its largest entry: √ε of rounding and drift of c over the group, with room.
_FIT = 30.0
# The largest relative error of a quotient that passes. Large matrices of single precision have such pairs by chance.
_LOSS = {torch.float64: 2.0**-13, torch.float32: 0.5}
# √ε
_NEAR = {torch.float64: 2.0**-26, torch.float32: 2.0**-11.5}
# The relative gap at which second derivatives, with an error of ε/gap², lose about as much; √ε in single precision.
_SECOND = {torch.float64: 2.0**-18, torch.float32: 2.0**-11.5}


def _blur(dtype: torch.dtype) -> float:
    """The relative gap at which quotients lose as much as passes."""
    return 8 * torch.finfo(dtype).eps / _LOSS[dtype]


def _rounding(largest: Tensor) -> Tensor:
    """The usual rounding error of X_ij for gradients of vectors whose largest entry is ``largest``."""
    return 4 * torch.finfo(largest.dtype).eps * largest


def least_gap(values: Tensor) -> float:
    """A lower bound of the gaps of sorted values (..., k), relative to the largest one, over the whole batch."""
    if values.numel() == 0 or values.shape[-1] == 1:
        return math.inf
    low, high = values.aminmax()
    largest = max(abs(float(low)), abs(float(high)))
    return float(values.diff(dim=-1).abs().amin()) / largest if largest > 0 else 0.0


def check_ties(ties: Any) -> None:
    """A ValueError where ``ties`` is no member of ``TIES``."""
    if ties not in TIES:
        raise ValueError(f"ties is {ties!r}; choose one of {', '.join(TIES)}")


def skew(M: Tensor) -> Tensor:
    """The skew-Hermitian part."""
    return (M - M.mH) / 2


def herm(M: Tensor) -> Tensor:
    """The Hermitian part."""
    return (M + M.mH) / 2


def reciprocal(x: Tensor, zero: Tensor) -> Tensor:
    """1/x, and 0 where ``zero`` with all its derivatives."""
    return x.masked_fill(zero, torch.inf).reciprocal()


class Spectrum(NamedTuple):
    """Sorted values of a batch of decompositions, and when they count as equal and as zero."""

    values: Tensor
    """(..., k), ascending or descending"""
    zero: Tensor
    """(..., k): values of which the vectors on both sides turn freely: singular values 0, not eigenvalues"""
    size: int
    """the length of the vectors"""
    apart: float
    """all gaps exceed this many times the largest value; 0 where a value is 0, or values cannot be looked at"""

    @classmethod
    def of(cls, values: Tensor, zero: Tensor | None, size: int) -> Spectrum:
        """The spectrum of sorted values (..., k); ``zero`` None for nowhere."""
        nowhere = torch.zeros_like(values, dtype=torch.bool) if zero is None else zero
        known = may_branch(values) and (zero is None or not bool(zero.any()))
        return cls(values, nowhere, size, least_gap(values) if known else 0.0)

    @property
    def distinct(self) -> bool:
        """Whether it is known that no values are equal or 0."""
        return self.apart > tie_distance(self.values.dtype, self.size)

    def rows(self, index: Tensor) -> Spectrum:
        """Those of the matrices ``index``."""
        return Spectrum(self.values[index], self.zero[index], self.size, 0.0)

    @property
    def largest(self) -> Tensor:
        """The largest magnitude (..., 1)."""
        return torch.maximum(self.values[..., :1].abs(), self.values[..., -1:].abs())

    @property
    def tolerance(self) -> Tensor:
        """The distance (..., 1) to which values are tied."""
        return tie_tolerance(self.largest, self.size, self.size)

    @property
    def near(self) -> Tensor:
        """The distance (..., 1) below which the quotient may lose more digits than the fit."""
        return _NEAR[self.values.dtype] * self.largest

    @property
    def steps(self) -> Tensor:
        """The distances (..., k − 1) of neighbours."""
        return self.values.diff(dim=-1).abs()

    @property
    def blurred(self) -> Tensor:
        """The distance (..., 1) at which quotients of entries of their own size lose too much, at least the tolerance."""
        return torch.maximum(self.tolerance, _blur(self.values.dtype) * self.largest)

    @property
    def gaps(self) -> Tensor:
        """s_j − s_i (..., k, k)."""
        return self.values.unsqueeze(-2) - self.values.unsqueeze(-1)

    @property
    def both_zero(self) -> Tensor:
        """(..., k, k)"""
        return self.zero.unsqueeze(-2) & self.zero.unsqueeze(-1)

    @property
    def tied(self) -> Tensor:
        """Pairs (..., k, k) that are equal, each value with itself included."""
        return (self.gaps.abs() <= self.tolerance.unsqueeze(-1)) | self.both_zero

    @property
    def itself(self) -> Tensor:
        """(k, k): the pairs (i, i)."""
        return torch.eye(self.values.shape[-1], dtype=torch.bool, device=self.values.device)

    def noise(self, largest: Tensor) -> Tensor:
        """The rounding error of inner products with gradients whose largest entry is ``largest``."""
        return 4 * (self.size + 16) * torch.finfo(self.values.dtype).eps * largest

    def noise_of_phases(self, largest: Tensor) -> Tensor:
        """The same, but no less than for entries of 1: where the whole gradient is rounding, phases show in it.

        torch.linalg allows 0.01, whatever the size of the gradient.
        """
        return self.noise(largest.clamp_min(1.0))

    def noise_of_values(self, g: Tensor, columns: Tensor | None) -> Tensor:
        """The rounding error (..., 1) of g: entries of the gradient are at least g, and gU (gQ) over the largest value."""
        largest = g.abs().amax(-1, keepdim=True)
        if columns is not None:
            largest = torch.maximum(
                largest, columns.amax(-1, keepdim=True) * reciprocal(self.largest, self.largest == 0)
            )
        return self.noise(largest)


class Limits(NamedTuple):
    """What replaces the quotients X_ij/(s_j − s_i), of the matrices that have any such pair; None for nothing."""

    c: Tensor | None
    """(..., k, k): cW_ij is used in place of the quotient; NaN where it is not"""
    undefined: Tensor | None
    """(..., k, k): the derivative is not determined; (i, i) is the phase of complex vectors i, or value i at 0"""
    first_order: Tensor | None
    """(..., k, k): the limit is known at this A alone, so that its derivative is not"""


_NOTHING = Limits(None, None, None)


def limits(
    ties: str,
    s: Spectrum,
    g: Tensor | None,
    total: Tensor,
    vectors: tuple[Tensor, ...],
    difference: Tensor | None = None,
) -> Limits:
    """The limits at the ties of ``s``, by the rules of this module's docstring.

    ``g`` (..., k) is the gradient of the values, None where the loss does not use them, ``vectors`` (..., m, k) those
    of the vectors, ``difference`` (..., k, k) UᴴgU − VᴴgV for singular vectors. Only matrices with ties, near ties or
    visible phases are looked into where that may be asked.
    """
    # whether second derivatives may be asked for
    recorded = torch.is_grad_enabled() or forward_ad._current_level >= 0
    least = _SECOND[s.values.dtype] if recorded else _NEAR[s.values.dtype]
    if s.apart > least and not total.is_complex():
        return _NOTHING
    with torch.no_grad():
        return _of_rows(ties, s, g, total, largest_of_columns(*vectors), difference, recorded)


def _of_rows(
    ties: str,
    s: Spectrum,
    g: Tensor | None,
    total: Tensor,
    columns: Tensor,
    difference: Tensor | None,
    recorded: bool,
) -> Limits:
    """``_limits`` of the matrices that may have any."""
    if not may_branch(total):
        return _limits(ties, s, g, total, columns, difference)
    least = s.near
    if g is not None and ties != "one-function":
        # no quotient of wider gaps has too large an error, beside the gradient of the values alone
        lost = _rounding(columns.amax(-1, keepdim=True)) / (_LOSS[g.dtype] * g.abs().amax(-1, keepdim=True))
        least = torch.maximum(s.tolerance, torch.fmin(s.near, lost))
    if recorded:
        least = torch.maximum(least, _SECOND[s.values.dtype] * s.largest)
    rows = (s.steps <= least).any(-1) | s.zero.any(-1)
    if total.is_complex():
        largest = columns.amax(-1, keepdim=True)
        rows = rows | (total.diagonal(dim1=-2, dim2=-1).imag.abs() > s.noise_of_phases(largest)).any(-1)
    if not bool(rows.any()):
        return _NOTHING
    g, difference = (None if x is None else x[rows] for x in (g, difference))
    part = _limits(ties, s.rows(rows), g, total[rows], columns[rows], difference)

    def whole(x: Tensor | None, empty: float | bool) -> Tensor | None:
        if x is None or (x.dtype == torch.bool and not bool(x.any())):
            return None
        filled = torch.full((*rows.shape, *x.shape[1:]), empty, dtype=x.dtype, device=x.device)
        filled[rows] = x
        return filled

    return Limits(whole(part.c, torch.nan), whole(part.undefined, False), whole(part.first_order, False))


def largest_of_columns(*matrices: Tensor) -> Tensor:
    """The largest magnitude in each column (..., k) of matrices (..., m, k)."""
    largest = [matrix.abs().amax(-2) for matrix in matrices]
    return largest[0] if len(largest) == 1 else torch.maximum(*largest)


def _limits(
    ties: str, s: Spectrum, g: Tensor | None, total: Tensor, columns: Tensor, difference: Tensor | None
) -> Limits:
    X, gaps, tied = skew(total), s.gaps.abs(), s.tied
    largest = columns.amax(-1, keepdim=True).unsqueeze(-1)
    noise = s.noise(largest)
    either_zero = s.zero.unsqueeze(-2) | s.zero.unsqueeze(-1)
    group = (gaps <= s.near.unsqueeze(-1)) & ~either_zero
    near = group & ~s.itself
    turns = X.abs() > torch.where(s.itself, s.noise_of_phases(largest), noise)
    if g is None:
        c = torch.where(near & ~turns, torch.zeros_like(gaps), torch.nan)
        return Limits(c, None if ties == "mask" else tied & turns, None)
    if ties == "mask":
        return _NOTHING
    pairs = tied & ~s.itself & ~s.both_zero
    if ties == "one-function":
        W = herm(total)
        c, known = _fit(group, g, W.masked_fill(W.abs() <= noise, 0.0), s.noise_of_values(g, columns))
        # an accidental fit would contradict the quotient by more than its rounding error
        used = near & known & ((X - c * W * s.gaps).abs() <= noise)
        c, unknown = torch.where(used, c, torch.nan), pairs & ~known
    else:
        c, used = None, torch.zeros_like(pairs)
        unknown = pairs & ((total.abs() > noise) | ~_even(s, g, columns))
    # the error of the quotient beside the largest entry of the gradient, at least half of which these are
    rounding = _rounding(torch.maximum(columns.unsqueeze(-2), columns.unsqueeze(-1)))
    entries = [X] if difference is None else [X, skew(difference)]
    entry = torch.stack([M.abs().amax((-2, -1), keepdim=True) for M in entries]).amax(0) / (2 * s.largest.unsqueeze(-1))
    entry = torch.maximum(g.abs().amax(-1)[..., None, None], entry)
    drowned = near & ~tied & ~used & (rounding > _LOSS[gaps.dtype] * torch.maximum(entry * gaps, X.abs()))
    close = (gaps <= _SECOND[gaps.dtype] * s.largest.unsqueeze(-1)) & ~either_zero & ~s.itself
    return Limits(c, (tied & turns) | unknown | drowned, pairs | close)


def _even(s: Spectrum, g: Tensor, columns: Tensor | None) -> Tensor:
    """g_i = g_j (..., k, k), as for a smooth symmetric function of values that agree to rounding."""
    sizes = g.abs()
    allowed = torch.finfo(g.dtype).eps ** 0.5 * torch.maximum(sizes.unsqueeze(-2), sizes.unsqueeze(-1))
    return (g.unsqueeze(-2) - g.unsqueeze(-1)).abs() <= allowed + s.noise_of_values(g, columns).unsqueeze(-1)


def _fit(group: Tensor, g: Tensor, W: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """c of the fit g = cW_ii (+ d) over the group (..., k, k) of each value, and whether there is one; both (..., k,
    k).

    ``noise`` (..., 1) is the rounding error of g.
    """
    tolerance = _FIT * torch.finfo(g.dtype).eps ** 0.5
    w = W.diagonal(dim1=-2, dim2=-1).real
    weight = group.to(g.dtype)

    def summed(x: Tensor) -> Tensor:
        return (weight @ x.unsqueeze(-1)).squeeze(-1)

    def largest(x: Tensor) -> Tensor:
        return torch.where(group, x, 0.0).amax(-1)

    allowed = tolerance * largest(g.abs().unsqueeze(-2)) + noise

    def fits(c: Tensor, shift: Tensor) -> Tensor:
        return largest((g.unsqueeze(-2) - c.unsqueeze(-1) * w.unsqueeze(-2) - shift.unsqueeze(-1)).abs()) <= allowed

    # The diagonal must be large enough beside the rest of W in the group to speak for it.
    W_size = largest(largest(W.abs()).unsqueeze(-2))
    count, w_sum, g_sum, ww, wg = summed(torch.ones_like(w)), summed(w), summed(g), summed(w * w), summed(w * g)
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
    known = is_proportional | is_affine | is_spectral
    return (c.unsqueeze(-1) + c.unsqueeze(-2)) / 2, known.unsqueeze(-1) & known.unsqueeze(-2)


@torch.no_grad()
def kinks(ties: str, s: Spectrum, g: Tensor) -> Tensor | None:
    """The pairs (..., k, k) of tied nonzero values at which a loss that uses the values alone has a kink; None for no pair."""
    if ties == "mask" or s.distinct:
        return None
    return s.tied & ~s.itself & ~s.both_zero & ~_even(s, g, None)


@torch.no_grad()
def turning(ties: str, s: Spectrum, dP: Tensor) -> Tensor | None:
    """The tied pairs (..., k, k) whose vectors have no derivative along UᴴdAV = ``dP`` (..., k, k); None for no pair."""
    dtype = dP.real.dtype
    if ties == "mask" or s.apart > max(tie_distance(dtype, s.size), _blur(dtype)):
        return None
    noise = s.noise(dP.abs().amax((-2, -1), keepdim=True))
    # both ways of null vectors are free
    moved = torch.where(s.both_zero, dP, herm(dP)).abs() > noise
    close = (s.gaps.abs() <= s.blurred.unsqueeze(-1)) | s.both_zero
    return close & ~s.itself & moved
