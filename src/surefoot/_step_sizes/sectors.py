"""Exact fast evaluation of a bias-free ReLU network with two inputs and two hidden layers.

z = W3 relu(W2 relu(W1 (x, g))) is linear on each of finitely many angular sectors of the plane, so the network is a table of
one slope per sector and a value costs a search and a scalar product, whatever the widths. The gradient with respect to the
weights needs of all points only the sums of ∂L/∂z·(x, g) over each sector. Values are those of the dense form up to rounding.
With relu'(0) = 0 a point where a unit is exactly 0 has slopes of its own: every boundary is an entry of the table.

The table is built on the CPU in float64 (compiled, O(n1·n2) for the widths n1, n2 of the hidden layers, with a constant that
grows with the number of sign changes of the second layer's units); points may be on any device and of any float type.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class _Lookup:
    """What a search needs, on one device: sorted boundary keys (K,) int64 and slopes (2K+1, 2) float64."""

    keys: Tensor
    rows: Tensor


class Table:
    """The sectors of z = W3 relu(W2 relu(W1 (x, g))).

    Args:
        W1: (n1, 2), first hidden layer; column 0 multiplies x, column 1 multiplies g.
        W2: (n2, n1), second hidden layer.
        W3: (1, n2), output.

    Weights may have any float dtype and device; they are copied to float64, a later change of them does not reach the table.

    Raises:
        ValueError: a weight has a wrong shape or dtype, is empty or not finite.
    """

    def __init__(self, W1: Tensor, W2: Tensor, W3: Tensor) -> None:
        from . import sectors_numba as kernels

        _check_weights(W1, W2, W3)
        self._like = (W1.detach(), W2.detach(), W3.detach())
        # by powers of two, so exactly: no product of weights overflows, and none is lost that matters beside the others
        (first, e1), (second, e2), (third, e3) = (scaled(W) for W in self._like)
        self._exponents = (e1, e2, e3)
        a, b = first[:, 0], first[:, 1]
        live = np.flatnonzero((a != 0) | (b != 0))
        a, b = a[live], b[live]
        # a row (a, b) turns on, counter-clockwise, at the direction (b, -a); the axis makes ray 0 the smallest key
        x, y = np.concatenate([b, -b, [-1.0, 1.0]]), np.concatenate([-a, a, [0.0, 0.0]])
        every, positions = kernels.rings(x, y)
        rays, chosen, ray_of = np.unique(every, return_index=True, return_inverse=True)
        size = np.maximum(abs(x[chosen]), abs(y[chosen]))
        on = ray_of[: live.size]
        order = np.argsort(on, kind="stable")
        self._units = (live[order], on[order], a[order], b[order])
        self._second, self._third = second, third[0]
        slopes, self._states = np.zeros((2 * rays.size, 2)), np.zeros((len(second), 2 * rays.size), np.int8)
        ends = rays, x[chosen] / size, y[chosen] / size
        *switches, count = kernels.build(second, self._third, *self._units, *ends, slopes, self._states)
        which, where, step = (values[:, :count].copy() for values in switches)
        keys, picked = np.unique(np.concatenate([rays, which[0]]), return_index=True)
        self._rays = np.append(np.searchsorted(keys, rays), keys.size)
        self._switches = np.searchsorted(keys, which[0])
        rows = kernels.spread(slopes, self._rays, keys.size, self._switches, where[1], step)
        bins = 1 << math.ceil(math.log2(4 * keys.size))
        self._starts = kernels.bins(np.concatenate([positions[chosen], where[0]])[picked], bins)
        folded, self.factor = _folded(rows, e1 + e2 + e3)
        host = _Lookup(torch.from_numpy(keys), torch.from_numpy(folded))
        self._lookups = {torch.device("cpu"): host}
        self._host = host

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For compiled searches: boundary keys, how many of them lie before each bin, and rows: slopes without ``factor``
        squared, which is 1 unless slopes overflow."""
        return self._host.keys.numpy(), self._starts, self._host.rows.numpy()

    def evaluate(self, x: Tensor, g: Tensor) -> Tensor:
        """z at the points (x, g), two tensors of one shape; same shape, dtype and device. NaN where an input is not finite.

        Raises:
            ValueError: x and g differ in shape, dtype or device, or are not of a real float type.
        """
        lookup, elements = self._find(x, g)
        rows = lookup.rows[elements]
        return self._unfolded(rows[..., 0] * x + rows[..., 1] * g).to(x.dtype)

    def slopes(self, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """∂z/∂x and ∂z/∂g at the points, with relu'(0) = 0; shapes, dtype and errors as in :meth:`evaluate`."""
        lookup, elements = self._find(x, g)
        rows = self._unfolded(lookup.rows[elements]).to(x.dtype)
        return rows[..., 0], rows[..., 1]

    def accumulator(self) -> Accumulator:
        """An empty accumulator of weight gradients."""
        return Accumulator(self)

    def gradient(self, x: Tensor, g: Tensor, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of Σ q·z(x, g) with respect to W1, W2, W3 (dtype and device of each), where q does not depend on them.

        For sums over many calls use :meth:`accumulator`: the conversion to weight gradients is then paid once.
        """
        sums = self.accumulator()
        sums.add(x, g, q)
        return sums.weight_gradients()

    def _unfolded(self, values: Tensor) -> Tensor:
        """What the stored slopes give, with the factor that would have made them overflow."""
        return values if self.factor == 1.0 else values * self.factor * self.factor

    def _find(self, x: Tensor, g: Tensor) -> tuple[_Lookup, Tensor]:
        """Lookup on the points' device, and the row of each point."""
        _check_points(x, g)
        lookup = self._lookups.get(x.device)
        if lookup is None:
            lookup = _Lookup(self._host.keys.to(x.device), self._host.rows.to(x.device))
            self._lookups[x.device] = lookup
        if x.device.type != "cpu":
            return lookup, locate(x.detach(), g.detach(), lookup.keys)
        from . import sectors_numba as kernels

        flat_x, flat_g = (v.detach().to(torch.float64).reshape(-1).numpy() for v in (x, g))
        elements = kernels.locate_all(flat_x, flat_g, self._host.keys.numpy(), self._starts)
        return lookup, torch.from_numpy(elements).reshape(x.shape)

    def _weight_gradients(self, sums: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of W1, W2, W3 from the sums of q·(x, g) over each row (2K+1, 2)."""
        from . import sectors_numba as kernels

        gradients = np.zeros((self._second.shape[1], 2)), np.zeros_like(self._second), np.zeros_like(self._third)
        weights = self._second, self._third, *self._units
        kernels.weight_gradients(sums, *weights, self._states, self._rays, self._switches, *gradients)
        total = sum(self._exponents)
        with np.errstate(over="ignore"):  # a derivative that overflows is infinite
            return tuple(  # pyright: ignore[reportReturnType]
                torch.from_numpy(np.ldexp(gradient, total - exponent) if total != exponent else gradient)
                .reshape(W.shape)
                .to(W)
                for gradient, exponent, W in zip(gradients, self._exponents, self._like, strict=True)
            )


class Accumulator:
    """Gradient of a sum of many terms: adds points to the sectors of one table, converts to weight gradients at the end."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._sums: dict[torch.device, Tensor] = {}

    def add(self, x: Tensor, g: Tensor, q: Tensor) -> None:
        """Add the points (x, g) with q = ∂L/∂z; three tensors of one shape, dtype and device.

        Raises:
            ValueError: they differ, or are not of a real float type.
        """
        _check_points(x, q, "q")
        lookup, elements = self._table._find(x, g)
        q = q.detach().to(torch.float64)
        terms = torch.stack([q * x.detach(), q * g.detach()], -1).reshape(-1, 2)
        sums = self._sums.setdefault(x.device, torch.zeros_like(lookup.rows))
        sums.index_add_(0, elements.reshape(-1), terms)

    def weight_gradients(self) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of W1, W2, W3 of everything added so far, each with its weight's dtype and device."""
        total = torch.zeros_like(self._table._host.rows)
        for sums in self._sums.values():
            total += sums.cpu()
        return self._table._weight_gradients(total.numpy())


def locate(x: Tensor, g: Tensor, keys: Tensor) -> Tensor:
    """Row of each point (x, g) in the table with boundary ``keys``; the same integers as the compiled search, on any device.

    Row 2m is boundary m, 2m+1 the open sector after it, the last one is for the origin and for inputs that are not finite.
    """
    opposite, quarter, smallest = -(2**63), 2**62, 513 << 52
    x, g = x.to(torch.float64), g.to(torch.float64)
    usual = torch.isfinite(x) & torch.isfinite(g) & ((x != 0) | (g != 0))
    x = torch.where(usual, x, 1.0)  # any direction will do
    near = g.abs() <= x.abs()
    ratio = torch.where(near, g / x, -x / g)
    key = (ratio.abs().view(torch.int64) - smallest).clamp(min=0)
    key = torch.where(ratio < 0, -key, key) + torch.where(near, 0, quarter)
    key = torch.where(torch.where(near, x < 0, g < 0), key ^ opposite, key)
    below = torch.searchsorted(keys, key, right=True) - 1
    # an input that is not finite may leave a key before all boundaries
    rows = 2 * below + (keys[below.clamp(min=0)] != key)
    return torch.where(usual, rows, 2 * keys.numel())


def forward_and_gradient(
    M: Tensor,
    Y: Tensor,
    beta: Tensor,
    W1: Tensor,
    W2: Tensor,
    W3: Tensor,
    lo: float,
    hi: float,
    T: int,
    gradient: Literal["exact", "detached"] = "exact",
) -> tuple[float, tuple[Tensor, Tensor, Tensor]]:
    """Loss of T learned steps on least squares and its gradient with respect to the weights, compiled, in float64 on the CPU.

    From x = 0: x ← x - (1/β_p) P⊙g, g = M_pᵀ(M_p x - Y_p), P = lo + (hi-lo) sigmoid(z(x, g)); the loss is
    F = ½ Σ_p ‖M_p x_T - Y_p‖². Problem after problem, so memory is O(T·d + n1·n2).

    Args:
        M: (N, b, d).
        Y: (N, b).
        beta: (N,), positive.
        W1: (n1, 2).
        W2: (n2, n1).
        W3: (1, n2).
        lo: lower end of the steps.
        hi: upper end of the steps, at least lo.
        T: number of steps, at least 0.
        gradient: ``"exact"`` differentiates F; ``"detached"`` holds the network's inputs fixed, which is not the gradient of F
            for T ≥ 2.

    Returns:
        F and the gradients of W1, W2, W3, each with its weight's dtype and device. All are NaN where the weights are not
        finite; a loss that overflows is returned as it is.

    Raises:
        ValueError: a shape, ``beta``, the range, T or ``gradient`` is not as described.
    """
    from . import sectors_numba as kernels

    if gradient not in ("exact", "detached"):
        raise ValueError(f"gradient is {gradient!r}; it must be 'exact' or 'detached'")
    if M.ndim != 3 or Y.shape != M.shape[:2] or beta.shape != M.shape[:1]:
        raise ValueError(
            f"M, Y and beta have shapes {tuple(M.shape)}, {tuple(Y.shape)} and {tuple(beta.shape)}; "
            "give (N, b, d), (N, b) and (N,)"
        )
    if not bool((beta > 0).all()):
        raise ValueError(
            "beta has an entry that is not positive; give the Lipschitz constant of each problem's gradient"
        )
    if not (math.isfinite(lo) and math.isfinite(hi) and lo <= hi):
        raise ValueError(f"lo, hi are {lo}, {hi}; they must be finite with lo <= hi")
    if T < 0:
        raise ValueError(f"T is {T}; the number of steps must be at least 0")
    _check_weights(W1, W2, W3, finite=False)
    if not all(_is_finite(W) for W in (W1, W2, W3)):
        dW1, dW2, dW3 = (torch.full_like(W, math.nan, requires_grad=False) for W in (W1, W2, W3))
        return math.nan, (dW1, dW2, dW3)
    table = Table(W1, W2, W3)
    matrices, targets, constants = (v.detach().to("cpu", torch.float64).contiguous() for v in (M, Y, beta))
    sums = np.zeros((2 * len(table.arrays[0]) + 1, 2))
    loss = kernels.unrolled(
        matrices.numpy(),
        matrices.mT.contiguous().numpy(),
        targets.numpy(),
        constants.numpy(),
        *table.arrays,
        table.factor,
        float(lo),
        float(hi),
        T,
        gradient == "exact",
        sums,
    )
    return float(loss), table._weight_gradients(sums)


def scaled(W: Tensor) -> tuple[np.ndarray, int]:
    """A copy of W in float64, divided by a power of two that brings its largest entry near 1 if it is far; the exponent."""
    values = W.to("cpu", torch.float64, copy=True, memory_format=torch.contiguous_format).numpy()
    exponent = 256 * round(int(np.frexp(max(values.max(), -values.min()))[1]) / 256)
    return (np.ldexp(values, -exponent) if exponent else values), exponent


def _folded(rows: np.ndarray, exponent: int) -> tuple[np.ndarray, float]:
    """Slopes times 2^exponent, or a smaller power where they would overflow, and the factor that is then still to be applied,
    twice. It is at most 2^1023: whatever a finite point meets beyond that overflows, or is 0."""
    largest = int(np.frexp(np.abs(rows).max())[1])
    half = min(max(-(-(largest + exponent - 1023) // 2), 0), 1023)
    within = min(exponent - 2 * half, 1023 - largest)
    return (np.ldexp(rows, within) if within else rows), 2.0**half


def _is_finite(W: Tensor) -> bool:
    """Whether all entries are finite, in one pass: the extremes are NaN where an entry is."""
    low, high = torch.aminmax(W.detach())
    return math.isfinite(low) and math.isfinite(high)


def _check_weights(W1: Tensor, W2: Tensor, W3: Tensor, finite: bool = True) -> None:
    """Refuse weights that are no network with two inputs, two hidden layers and one output."""
    for name, W in (("W1", W1), ("W2", W2), ("W3", W3)):
        if W.ndim != 2 or 0 in W.shape:
            raise ValueError(f"{name} has shape {tuple(W.shape)}; give a matrix with at least one row and one column")
        if not W.is_floating_point():
            raise ValueError(f"{name} has dtype {W.dtype}; give a real floating-point tensor")
        if finite and not _is_finite(W):
            raise ValueError(f"{name} has an entry that is not finite; a table needs finite weights")
    if W1.shape[1] != 2 or W2.shape[1] != W1.shape[0] or W3.shape != (1, W2.shape[0]):
        raise ValueError(
            f"W1, W2, W3 have shapes {tuple(W1.shape)}, {tuple(W2.shape)}, {tuple(W3.shape)}; give (n1, 2), (n2, n1), (1, n2)"
        )


def _check_points(x: Tensor, other: Tensor, name: str = "g") -> None:
    """Refuse two coordinates that do not go together."""
    if not x.is_floating_point():
        raise ValueError(f"x has dtype {x.dtype}; give a real floating-point tensor")
    if x.shape != other.shape or x.dtype != other.dtype or x.device != other.device:
        raise ValueError(
            f"x is {tuple(x.shape)} {x.dtype} on {x.device}, {name} is {tuple(other.shape)} {other.dtype} on {other.device}; "
            "they must agree"
        )
