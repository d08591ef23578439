"""Functions of one real variable and their first and second divided differences, accurate at every distance of the nodes.

f[a, b] = (f(a) − f(b))/(a − b) = ∫ f′(a + t(b − a)) dt over 0 ≤ t ≤ 1, which is f′(a) at a = b, and for a ≤ b ≤ c

    f[a, b, c] = (f[a, b] − f[b, c])/(a − c) = w ∫ t f″(a + t(b − a)) dt + (1 − w) ∫ t f″(c + t(b − c)) dt,
    w = (b − a)/(c − a)

(the mean of f″/2 under the hat function with knots a, b, c; any w serves where all three are equal). Both are symmetric.

**Where a closed form has no difference that cancels**, it is used: square roots, logarithm by log1p, exponential and
powers by expm1. **Elsewhere** the quotient loses the digits that f(a) and f(b) share, and the integral by
Gauss–Legendre loses none: the integral where the nodes are within 1/8 of their scale (1/32 for f[a, b]), the quotient
from there on. The scale is the distance of the singularity of f, or for the exponential 1; then the error of the
quadrature with 6 (4) points is below 30⁻¹² (120⁻⁸), less than rounding, and the quotient loses a factor of 8 (32).

**A function that the caller gives** has no known scale. Nodes that are so close, compared with the largest node,
are candidates; of these the integral is taken where it agrees with the quotient to the rounding error of f (then it is
the better one), and the quotient where it does not (then f bends within the gap, and the quotient is right to that
rounding error over the gap). Within √ε of the nodes' own size the quotient has less than half of the digits, and the
integral is always taken: so f must not bend within √ε of its argument. The error is that of f′ at ties, and else at
most about √ε, and some 100ε where f bends on the scale of its argument.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from .operator import may_branch, plain_eager, without_hooks

Map = Callable[[Tensor], Tensor]

NEAR_PAIR, PAIR_POINTS = 1 / 32, 4
"""Where f[a, b] is an integral, and of how many points."""
NEAR_TRIPLE, TRIPLE_POINTS = 1 / 8, 6
"""The same of f[a, b, c], whose quotient starts from rounded differences."""


class Elementwise(ABC):
    """A function f on real tensors, entry by entry."""

    @abstractmethod
    def value(self, x: Tensor) -> Tensor:
        """f(x)."""

    def slope(self, x: Tensor) -> Tensor:
        """f′(x)."""
        return self.first(x, x).diagonal(dim1=-2, dim2=-1)

    @abstractmethod
    def first(self, x: Tensor, y: Tensor) -> Tensor:
        """The table f[x_i, y_j] (..., k, l) of nodes x (..., k) and y (..., l)."""

    def second(self, x: Tensor, table: Tensor, rows: slice, odd: bool = False) -> Tensor:
        """f[x_i, x_j, x_k] (..., r, n, n) for i in ``rows``, from nodes x (..., n) and their table f[x_i, x_j] (..., n, n).

        With ``odd``, of the function sign(x)·f(|x|). Non-finite where it does not exist. Here from quotients with the
        two nodes that are farthest apart.
        """
        a, b, c = _triples(x, rows)
        ab, ac, bc = table[..., rows, :, None], table[..., rows, None, :], table[..., None, :, :]
        # f[a, b, c] = (f[a, b] − f[b, c])/(a − c) = (f[a, c] − f[b, c])/(a − b) = (f[a, b] − f[a, c])/(b − c)
        gaps = torch.stack(torch.broadcast_tensors(a - c, a - b, b - c))
        changes = torch.stack(torch.broadcast_tensors(ab - bc, ac - bc, ab - ac))
        widest = gaps.abs().argmax(0, keepdim=True)
        return _quotient(changes.gather(0, widest), gaps.gather(0, widest))[0]

    def steepest(self, low: Tensor, high: Tensor) -> Tensor:
        """An upper bound of |f′| on [low, high], infinite where none is known."""
        return torch.full_like(low, torch.inf)


class Smooth(Elementwise):
    """A function with f″: ``second`` is an integral where nodes are near."""

    @abstractmethod
    def curvature(self, x: Tensor) -> Tensor:
        """f″(x)."""

    def scale(self, local: Tensor, largest: Tensor) -> Tensor:
        """What distances are compared with, from the largest magnitude of the nodes in question and of all.

        Here the distance of 0.
        """
        return local

    def choose(self, integral: Tensor, change: Tensor, gap: Tensor, noise: Tensor, local: Tensor) -> Tensor:
        """The integral, or change/gap, for near nodes; ``noise`` is the size of what rounds in ``change``."""
        return integral

    def second(self, x: Tensor, table: Tensor, rows: slice, odd: bool = False) -> Tensor:
        """As above."""
        a, b, c = _triples(x, rows)
        low, high = torch.minimum(torch.minimum(a, b), c), torch.maximum(torch.maximum(a, b), c)
        middle = torch.maximum(torch.minimum(a, b), torch.minimum(torch.maximum(a, b), c))
        local = torch.maximum(low.abs(), high.abs())
        largest = _largest(x)[..., None, None, None]
        size = table.abs()
        noise = 8 * (size[..., rows, :, None] + size[..., rows, None, :] + size[..., None, :, :])

        def near(low: Tensor, middle: Tensor, high: Tensor, local: Tensor, noise: Tensor, quotient: Tensor) -> Tensor:
            gap = high - low
            mean = hat_integral(self._odd_curvature if odd else self.curvature, low, middle, high)
            return self.choose(mean, quotient * gap, gap, noise, local)

        quotient = super().second(x, table, rows, odd)
        return _replaced(
            high - low <= NEAR_TRIPLE * self.scale(local, largest), near, (low, middle, high, local, noise, quotient)
        )

    def _odd_curvature(self, x: Tensor) -> Tensor:
        return x.sgn() * self.curvature(x.abs())


def _triples(x: Tensor, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
    return x[..., rows, None, None], x[..., None, :, None], x[..., None, None, :]


def _largest(x: Tensor) -> Tensor:
    return x.abs().amax(-1) if x.shape[-1] else x.sum(-1)


def _quotient(change: Tensor, gap: Tensor) -> Tensor:
    """change/gap, and 0 where both are, so that what f depends on gets finite gradients where another value is taken."""
    return change / torch.where(gap == 0, 1, gap)


def _replaced(near: Tensor, build: Callable[..., Tensor], arguments: tuple[Tensor, ...]) -> Tensor:
    """``build(*arguments)`` where ``near`` (and only there, where values may be looked at), else the last argument."""
    arguments = torch.broadcast_tensors(*arguments)
    other = arguments[-1]
    near = near.expand(other.shape)
    if not may_branch(other):
        return torch.where(near, build(*arguments), other)
    places = near.nonzero(as_tuple=True)
    return other.index_put(places, build(*(argument[places] for argument in arguments)))


def integral(slope: Map, a: Tensor, b: Tensor) -> Tensor:
    """∫ f′(a + t(b − a)) dt over 0 ≤ t ≤ 1."""
    points, weights = _gauss(PAIR_POINTS, a)
    return (weights * slope(a + points * (b - a))).sum(0)


def hat_integral(curvature: Map, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """f[a, b, c] of a ≤ b ≤ c by the formula of this module."""
    points, weights = _gauss(TRIPLE_POINTS, a)
    width = c - a
    w = torch.where(width > 0, (b - a) / width, 0.5)
    low, high = curvature(torch.stack((a + points * (b - a), c + points * (b - c))))
    return (weights * points * (w * low + (1 - w) * high)).sum(0)


def _gauss(count: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Points and weights of Gauss–Legendre quadrature on [0, 1], before the dimensions of ``like``."""
    shape = (count, *[1] * like.ndim)
    points, weights = (like.new_tensor(list).reshape(shape) for list in _LEGENDRE[count])
    return points, weights


def _legendre(count: int) -> tuple[list[float], list[float]]:
    points, weights = np.polynomial.legendre.leggauss(count)
    return ((points + 1) / 2).tolist(), (weights / 2).tolist()


# torch.compile does not trace the polynomials of numpy
_LEGENDRE = {count: _legendre(count) for count in (PAIR_POINTS, TRIPLE_POINTS)}


class Custom(Smooth):
    """The caller's f with its derivative ``df``; what is not given is found by automatic differentiation."""

    def __init__(self, f: Map, df: Map | None = None) -> None:
        for name, function in (("f", f), ("df", df)):
            if not (callable(function) or (name == "df" and function is None)):
                raise TypeError(f"{name} is {function!r}: it must be a function of real tensors, entry by entry")
        self._f, self._df = f, df

    def value(self, x: Tensor) -> Tensor:
        """f(x); TypeError or ValueError if f is no function of real tensors, entry by entry."""
        return _checked(self._f, x, "f")

    def slope(self, x: Tensor) -> Tensor:
        """f′(x)."""
        return _derivative(self.value, x, "f") if self._df is None else _checked(self._df, x, "df")

    def curvature(self, x: Tensor) -> Tensor:
        """f″(x)."""
        return _derivative(self.slope, x, "f" if self._df is None else "df")

    def first(self, x: Tensor, y: Tensor) -> Tensor:
        """As above."""
        fx = self.value(x)
        self._refuse_mixed(x, fx)
        fy = fx if y is x else self.value(y)
        nodes = x.unsqueeze(-1), y.unsqueeze(-2), fx.unsqueeze(-1), fy.unsqueeze(-2)
        a, b, fa, fb = nodes
        gap = a - b
        quotient = _quotient(fa - fb, gap)
        near = gap.abs() <= NEAR_PAIR * torch.maximum(_largest(x), _largest(y))[..., None, None]
        if not may_branch(gap):
            return torch.where(near, self._near(*nodes), quotient)
        *batch, i, j = (near.triu() if y is x else near).nonzero(as_tuple=True)
        values = self._near(x[(*batch, i)], y[(*batch, j)], fx[(*batch, i)], fy[(*batch, j)])
        if y is x:
            quotient = quotient.index_put((*batch, j, i), values)
        return quotient.index_put((*batch, i, j), values)

    def _refuse_mixed(self, x: Tensor, fx: Tensor) -> None:
        """ValueError if f(x) is not found again from the lower and the upper half of the nodes, each in reverse order."""
        if x.numel() == 0 or x.shape[-1] < 2 or not plain_eager(x) or x.requires_grad:
            return
        with torch.no_grad():
            again = torch.cat([self.value(half.flip(-1)).flip(-1) for half in x.tensor_split(2, -1)], -1)
            # f may round otherwise in a shorter vector, and may itself be of single precision
            size = fx.abs().amax().nan_to_num(nan=0.0, posinf=0.0)
            same = ((again - fx).abs() <= 2.0**-10 * size) | again.isclose(fx, equal_nan=True)
        if not bool(same.all()):
            raise ValueError(
                "f has other values for the same entries in another place or at another time: it must act entry by entry, "
                "without randomness; sums over the eigenvalues belong outside (traces, norms)"
            )

    def _near(self, a: Tensor, b: Tensor, fa: Tensor, fb: Tensor) -> Tensor:
        mean = integral(self.slope, a, b)
        return self.choose(mean, fa - fb, a - b, fa.abs() + fb.abs(), torch.maximum(a.abs(), b.abs()))

    def scale(self, local: Tensor, largest: Tensor) -> Tensor:
        """All near nodes are candidates, those near 0 too, where f need not have a singularity."""
        return largest

    def choose(self, integral: Tensor, change: Tensor, gap: Tensor, noise: Tensor, local: Tensor) -> Tensor:
        """The integral where it agrees with the quotient, and where that has lost half of the digits."""
        eps = torch.finfo(gap.dtype).eps
        agrees = (change - integral * gap).abs() <= 8 * eps * (noise + 2 * local * integral.abs())
        return torch.where(agrees | (gap.abs() <= eps**0.5 * local), integral, _quotient(change, gap))


def _checked(function: Map, x: Tensor, name: str) -> Tensor:
    version = x._version if plain_eager(x) and not x.is_inference() else None
    # an in-place operation on a leaf would be an error of autograd's, on anything else wrong nodes
    value = function(x.view_as(x) if x.requires_grad else x)
    if version is not None and x._version != version:
        raise ValueError(f"{name} changes its argument in place: let it return a new tensor")
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} returned {type(value).__name__}: it must map real tensors to tensors, entry by entry")
    if value.shape != x.shape:
        raise ValueError(
            f"{name} returned shape {tuple(value.shape)} for shape {tuple(x.shape)}: it must act entry by entry "
            "on any shape"
        )
    if value.is_complex():
        raise TypeError(f"{name} returned {value.dtype}: it must be real, so that the result is Hermitian")
    return value.to(x.dtype)


@without_hooks()
def _derivative(function: Map, x: Tensor, name: str) -> Tensor:
    """The derivative of an elementwise function, made from the caller's ``name``; 0 where it does not depend on x."""
    if torch.compiler.is_exporting():
        # torch.func would leave constants in the place of operations
        raise NotImplementedError("torch.export cannot trace the derivative of f: pass it as df")
    nested = x.requires_grad
    if plain_eager(x) and (nested or not function(x.flatten()[:0]).requires_grad):
        # a third of the time of torch.func, but blind to other tensors on which f depends
        with torch.enable_grad():
            x = x if nested else x.detach().requires_grad_()
            total = function(x).sum()
        if not total.requires_grad:
            _refuse_detached(function, x.detach(), name)
            return torch.zeros_like(x)
        return torch.autograd.grad(total, x, create_graph=nested, materialize_grads=True)[0]
    return torch.func.grad(lambda x: function(x).sum())(x)


def _refuse_detached(function: Map, x: Tensor, name: str) -> None:
    """TypeError if a function that autograd takes for constant changes in both directions; steps change in one only."""
    if x.numel() == 0:
        return
    step = torch.finfo(x.dtype).eps ** 0.5 * x.abs().amax().clamp_min(torch.finfo(x.dtype).tiny ** 0.5)
    here, below, above = function(x), function(x - step), function(x + step)
    if bool((here.isfinite() & (below != here) & (above != here) & below.isfinite() & above.isfinite()).any()):
        raise TypeError(
            f"{name} has no derivative for autograd although it is not constant (detached, or computed outside of torch): "
            f"{'pass df, or ' if name == 'f' else ''}write it with torch operations"
        )


class Sqrt(Elementwise):
    """√x: f[a, b] = 1/(p + q) with the roots p, q, r of a, b, c."""

    def value(self, x: Tensor) -> Tensor:
        """√x."""
        return x.sqrt()

    def first(self, x: Tensor, y: Tensor) -> Tensor:
        """As above."""
        return 1 / (x.sqrt().unsqueeze(-1) + y.sqrt().unsqueeze(-2))

    def second(self, x: Tensor, table: Tensor, rows: slice, odd: bool = False) -> Tensor:
        """−1/((p + q)(q + r)(r + p)); with two nodes 0 from the table, where the caller has decided about f[0, 0]."""
        p, q, r = _triples(x.sqrt(), rows)
        product = (p + q) * (q + r) * (r + p)
        return torch.where(product > 0, -1 / product, super().second(x, table, rows))

    def steepest(self, low: Tensor, high: Tensor) -> Tensor:
        """As above."""
        return torch.where(low > 0, low.clamp_min(0).rsqrt() / 2, torch.inf)


class InverseSqrt(Elementwise):
    """1/√x: f[a, b] = −1/(pq(p + q)) with the roots p, q, r of a, b, c."""

    def value(self, x: Tensor) -> Tensor:
        """1/√x; NaN at 0."""
        return torch.where(x > 0, x.rsqrt(), torch.nan)

    def first(self, x: Tensor, y: Tensor) -> Tensor:
        """As above."""
        p, q = x.sqrt().unsqueeze(-1), y.sqrt().unsqueeze(-2)
        return -1 / (p * q * (p + q))

    def second(self, x: Tensor, table: Tensor, rows: slice, odd: bool = False) -> Tensor:
        """(p + q + r)/(pqr(p + q)(q + r)(r + p))."""
        p, q, r = _triples(x.sqrt(), rows)
        return (p + q + r) / (p * q * r * (p + q) * (q + r) * (r + p))

    def steepest(self, low: Tensor, high: Tensor) -> Tensor:
        """As above."""
        return torch.where(low > 0, low.clamp_min(0).pow(-1.5) / 2, torch.inf)


def _ordered(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The smaller and the larger node of each pair, and their difference."""
    a, b = x.unsqueeze(-1), y.unsqueeze(-2)
    return torch.minimum(a, b), torch.maximum(a, b), (a - b).abs()


class Log(Smooth):
    """The natural logarithm: f[a, b] = log1p(d/a)/d, d = b − a ≥ 0."""

    def value(self, x: Tensor) -> Tensor:
        """log x; NaN at 0."""
        return torch.where(x > 0, x.log(), torch.nan)

    def curvature(self, x: Tensor) -> Tensor:
        """−1/x²."""
        return -x.pow(-2)

    def first(self, x: Tensor, y: Tensor) -> Tensor:
        """As above."""
        low, _, gap = _ordered(x, y)
        return torch.where(gap == 0, 1 / low, (gap / low).log1p() / gap)

    def steepest(self, low: Tensor, high: Tensor) -> Tensor:
        """As above."""
        return torch.where(low > 0, 1 / low, torch.inf)


class Exp(Smooth):
    """The exponential: f[a, b] = eᵇ(1 − e⁻ᵈ)/d, d = b − a ≥ 0."""

    def value(self, x: Tensor) -> Tensor:
        """eˣ."""
        return x.exp()

    def curvature(self, x: Tensor) -> Tensor:
        """eˣ."""
        return x.exp()

    def first(self, x: Tensor, y: Tensor) -> Tensor:
        """As above."""
        _, high, gap = _ordered(x, y)
        return high.exp() * torch.where(gap == 0, 1, -torch.expm1(-gap) / gap)

    def scale(self, local: Tensor, largest: Tensor) -> Tensor:
        """It bends on the scale of 1 everywhere."""
        return torch.ones_like(local)

    def steepest(self, low: Tensor, high: Tensor) -> Tensor:
        """As above."""
        return high.exp()


class Power(Smooth):
    """xᵖ for x ≥ 0: f[a, b] = bᵖ(1 − (a/b)ᵖ)/d, d = b − a ≥ 0; where p ≤ 0, f(0) counts as 0."""

    def __init__(self, p: float) -> None:
        self._p = p

    def value(self, x: Tensor) -> Tensor:
        """xᵖ."""
        return x.pow(self._p)

    def curvature(self, x: Tensor) -> Tensor:
        """p(p − 1)xᵖ⁻²."""
        return self._p * (self._p - 1) * x.pow(self._p - 2)

    def first(self, x: Tensor, y: Tensor) -> Tensor:
        """As above."""
        low, high, gap = _ordered(x, y)
        p = self._p
        if p == 1:
            return torch.ones_like(gap)
        ratio = torch.where(gap < high / 2, (-gap / high).log1p(), (low / high).log())
        share = torch.where(low > 0, -torch.expm1(p * ratio), 1)
        return torch.where(gap == 0, p * high.pow(p - 1), high.pow(p) * share / gap)

    def steepest(self, low: Tensor, high: Tensor) -> Tensor:
        """Of the odd extension, nodes on both sides of 0 and 0 itself included: f[s, −t] and f[s, 0] are at most sᵖ⁻¹."""
        slope = max(1.0, abs(self._p)) * (high if self._p >= 1 else low.clamp_min(0)).pow(self._p - 1)
        return torch.where((low > 0) | (self._p >= 1), slope, torch.inf)


class SoftThreshold(Elementwise):
    """max(x − τ, 0) for x ≥ 0, of slope 1 at τ; τ (..., 1) broadcasts against nodes (..., n)."""

    def __init__(self, threshold: Tensor) -> None:
        self._threshold = threshold

    def value(self, x: Tensor) -> Tensor:
        """max(x − τ, 0)."""
        return (x - self._threshold).clamp_min(0)

    def slope(self, x: Tensor) -> Tensor:
        """1 from τ on, else 0."""
        return Step(self._threshold).value(x)

    def first(self, x: Tensor, y: Tensor) -> Tensor:
        """As above."""
        low, high, gap = _ordered(x, y)
        threshold = self._threshold.unsqueeze(-1)
        across = _quotient(high - threshold, gap).clamp_min(0)
        return torch.where(low >= threshold, 1, across)

    def steepest(self, low: Tensor, high: Tensor) -> Tensor:
        """1."""
        return torch.ones_like(low)


class Step(Elementwise):
    """1 from τ on, else 0: minus the derivative of ``SoftThreshold`` in τ."""

    def __init__(self, threshold: Tensor) -> None:
        self._threshold = threshold

    def value(self, x: Tensor) -> Tensor:
        """1 or 0."""
        return (x >= self._threshold).to(x.dtype)

    def slope(self, x: Tensor) -> Tensor:
        """0."""
        return torch.zeros_like(self.value(x))

    def first(self, x: Tensor, y: Tensor) -> Tensor:
        """As above."""
        return _quotient(self.value(x).unsqueeze(-1) - self.value(y).unsqueeze(-2), x.unsqueeze(-1) - y.unsqueeze(-2))
