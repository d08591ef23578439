"""The recursion of ``two-layer/prescribed``: upper bounds of the gap along gradient descent with prescribed steps.

In units w = W/s², e = w - w*, τ = 2s²η, and in a basis in which XᵀX = 2^p(Λ + E) with Λ diagonal and E small, the *frozen run*
e^L_t = -P_t(Λ)w̃, P_t(x) = Π_{j<t}(1 - τ_j x), is known before training. The recursion bounds row by row how far descent is from
it, and how far the Gram matrix of the weights has moved.

Every number below is an upper bound of a sum of products of numbers that are not negative, and does not decrease as they grow: a
step evaluated in floats from upper bounds, and enlarged by what its own rounding can be, gives upper bounds again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..rigor.bounds import FAST, UNIT_ROUNDOFF, Array, Level, NotFiniteError, array_up, gamma, up
from ..rigor.intervals import TINY
from ..rigor.many_norms import entrywise_product, symmetric_norms
from .blocks import State

MOST_PRODUCTS = 1 << 28
"""Multiplications up to which products of frozen gradients have their spectral norms bounded; beyond, their Frobenius norms."""
CHUNK = 1 << 22
"""Entries of matrices that are held at once."""
VANISHED = 1e-288
"""Covers rows whose squares underflow."""
LONGEST = 1e20
"""Longest step τ: what underflows stays below ``TINY`` when it is multiplied by it."""
LARGEST = 1e8
"""A recursion that grows beyond this has blown up, and bounds nothing; below, no product of a step overflows."""
TAU_ERROR = 8.0 * UNIT_ROUNDOFF
"""Relative error granted to τ as a float, beside that of the operations on it."""


@dataclass(frozen=True)
class Start:
    """Where the recursion starts, scaled; every number is exact or an upper bound.

    Attributes:
        eigenvalues: Λ (n,), not negative, exact.
        rows: w̃ (n, m), near w*, exact.
        off_diagonal: of ‖E‖_F.
        target_error: of ‖w* - w̃‖_F.
        map: of ‖w_0‖_F.
        kernel1, kernel2: of ‖R1‖_F, R1 = W1W1ᵀ/s² - I - ½w_0w_0ᵀ, and of ‖R2‖_F.
        step_unit: 2s²2^p, exact: τ in the units of the scaled eigenvalues is that times η.
        gap_unit: of ½ s⁴ 2^p.
    """

    eigenvalues: Array
    rows: Array
    off_diagonal: float
    target_error: float
    map: float
    kernel1: float
    kernel2: float
    step_unit: float
    gap_unit: float


@dataclass(frozen=True)
class Path:
    """Upper bounds of the gaps after 0, 1, …, T steps, infinite from where the recursion blew up; and the states until then, in
    units of s and of 2^p."""

    gaps: Array
    states: tuple[State, ...]

    @property
    def end(self) -> State | None:
        """The last state; ``None`` where the recursion blew up."""
        return self.states[-1] if len(self.states) == len(self.gaps) else None


@dataclass(frozen=True)
class Frozen:
    """The frozen run of T steps: upper bounds of |1 - τ_tλ_i| (T, n), |P_t(λ_i)| and |1 - P_t(λ_i)| (T+1, n), ‖row_i w̃‖ (n,);
    ‖w^L_t‖ (T+1,), ‖γ^L_t‖ and ‖w^Lᵀ_tγ^L_t‖ (T,), ‖γ^Lᵀ_jγ^L_t‖ (T, T)."""

    factor: Array
    left: Array
    taken: Array
    rows: Array
    map: Array
    gradient: Array
    cross: Array
    products: Array


def frozen(start: Start, tau: Array, level: Level = FAST, spectral: bool = True) -> Frozen:
    """The frozen run of the steps τ (T,), with spectral norms of its products unless these are too many, or not asked for."""
    lam, count = start.eigenvalues, len(tau)
    T = tau[:, None]
    factor = 1.0 - T * lam
    slip = TAU_ERROR * (1.0 + T * lam)  # of the factor, whose τ, product and difference are rounded
    size = array_up(np.abs(factor) + slip, 2)
    P, error = np.ones((count + 1, len(lam))), np.zeros((count + 1, len(lam)))
    for t in range(count):
        P[t + 1] = P[t] * factor[t]
        grown = size[t] * error[t] + slip[t] * np.abs(P[t]) + UNIT_ROUNDOFF * np.abs(P[t + 1]) + TINY
        error[t + 1] = array_up(grown, 8)
    left = array_up(np.abs(P) + error, 2)
    taken = array_up(np.abs(1.0 - P) + error, 3)
    norms = _Norms(start.rows, level, spectral)
    # γ^L = -½ τ Λ P w̃, w^L = (1 - P) w̃
    gradient, gradient_error = 0.5 * T * lam * P[:-1], array_up(0.5 * T * lam * error[:-1], 5)
    gradient_error = array_up(gradient_error + 2.0 * TAU_ERROR * np.abs(gradient) + TINY, 3)
    map_, map_error = 1.0 - P, array_up(error + UNIT_ROUNDOFF * taken, 2)
    first, second = np.triu_indices(count)
    of_products = norms.of(gradient, gradient_error, gradient, gradient_error, first, second)
    products = np.zeros((count, count))
    products[first, second] = of_products
    each, all_ = np.arange(count), np.arange(count + 1)
    return Frozen(
        size,
        left,
        taken,
        norms.rows,
        array_up(np.sqrt(norms.of(map_, map_error, map_, map_error, all_, all_)), 1),
        array_up(np.sqrt(np.diag(products)), 1),
        norms.of(map_[:-1], map_error[:-1], gradient, gradient_error, each, each),
        products,
    )


class _Norms:
    """Upper bounds of ‖w̃ᵀ diag(c) w̃‖ = ‖Σ c_i ρ_i² ŵ_i ŵ_iᵀ‖ for many c, where w̃_i = ρ_i ŵ_i are the rows."""

    def __init__(self, rows: Array, level: Level, spectral: bool) -> None:
        self._level, self._most, self._m = level, MOST_PRODUCTS if spectral else 0, rows.shape[1]
        squares = (rows * rows).sum(axis=1)
        lengths = np.sqrt(squares)
        self.rows = array_up(np.sqrt(array_up(squares + TINY * self._m, self._m + 2)), 1)
        self._squares = lengths * lengths
        self._units = rows / np.where(lengths > 0.0, lengths, 1.0)[:, None]
        self._slip = (self._m + 16) * UNIT_ROUNDOFF
        """Of ρ_i² ŵ_i ŵ_iᵀ as computed, relative to ρ_i²."""

    def of(
        self, A: Array, of_A: Array, B: Array, of_B: Array, first: NDArray[np.intp], second: NDArray[np.intp]
    ) -> Array:
        """Of c = A[first] B[second], of factors known up to the errors ``of_A`` and ``of_B``."""
        n, m = self._units.shape
        norm = self._spectral if len(first) * m * m * (n + 2 * m) <= self._most else self._frobenius
        found, step = [np.zeros(0)], max(1, CHUNK // max(m * m, n))
        for at in range(0, len(first), step):
            i, j = first[at : at + step], second[at : at + step]
            raw = A[i] * B[j]
            c = raw * self._squares
            slip = np.abs(A[i]) * of_B[j] + of_A[i] * np.abs(B[j]) + of_A[i] * of_B[j] + TINY
            size = array_up(np.abs(c).sum(axis=1) + TINY, n + 2)
            moved = (slip * self._squares).sum(axis=1) + self._slip * size + VANISHED * np.abs(raw).sum(axis=1)
            moved = array_up(moved, n + 12)
            # scaled to one size, so that the error of the product of all of them is small beside each
            exponents = np.frexp(size)[1]
            bounds = norm(np.ldexp(c, -exponents[:, None]))
            found.append(array_up(np.minimum(np.ldexp(bounds, exponents), size) + moved + TINY, 3))
        return np.concatenate(found)

    def _spectral(self, c: Array) -> Array:
        n, m = self._units.shape
        row, column = np.triu_indices(m)
        M = np.empty((len(c), m, m))
        M[:, row, column] = M[:, column, row] = entrywise_product(c, self._units[:, row] * self._units[:, column])
        return array_up(symmetric_norms(M) + gamma(n + 8), 1)

    def _frobenius(self, c: Array) -> Array:
        """‖Σ c_i ŵ_iŵ_iᵀ‖_F² = Σ c_i c_j ⟨ŵ_i, ŵ_j⟩²."""
        cosines, error = self._level.product(self._units, np.ascontiguousarray(self._units.T))
        form, of_form = self._level.product(c, cosines * cosines)
        terms = form * c
        squares = np.maximum(terms, 0.0).sum(axis=1) - np.maximum(-terms, 0.0).sum(axis=1)
        slip = up(of_form + 3.0 * error + 2.0 * (len(self._units) + 8) * UNIT_ROUNDOFF, 8)
        return array_up(np.sqrt(array_up(np.maximum(squares, 0.0) + slip, 2)), 1)


def follow(start: Start, steps: Array, level: Level = FAST, spectral: bool = True) -> Path:
    """The bounds along the steps η (T,), positive; see ``frozen``."""
    tau = start.step_unit * steps
    nothing = Path(np.full(len(tau) + 1, math.inf), ())
    if not (tau <= LONGEST).all():
        return nothing
    try:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return _follow(start, frozen(start, tau, level, spectral), tau)
    except NotFiniteError:
        return nothing


def _follow(start: Start, run: Frozen, tau: Array) -> Path:
    lam, rho, eps, apart = start.eigenvalues, run.rows, start.off_diagonal, start.target_error
    (count, n), scale = (len(tau), len(lam)), start.gap_unit
    rounding = count + 4 * n + 64  # a norm is rounded n + 3 times, and enters as a square at most
    gaps, states = np.full(count + 1, math.inf), []
    g, a, d = np.zeros((count, n)), np.zeros(count), np.zeros(count)
    u, x = np.full(n, up(start.map + apart)), np.full(n, start.kernel1)
    X1, X2, gamma = start.kernel1, start.kernel2, 0.0
    for t in range(count + 1):
        rest = run.left[t] * rho + u
        moved = _norm(u)
        size, omega = _norm(rest), run.map[t] + moved + apart
        square = float((lam * rest * rest).sum()) + eps * size * size + TINY * n
        if not max(size, omega, X1, X2, gamma) < LARGEST:
            break
        gaps[t] = up(scale * square, rounding)
        states.append(State.of(up(math.sqrt(square), rounding), up(size, n + 8), up(omega, n + 8), X1, X2, gamma))
        if t == count:
            break
        half, stray = 0.5 * float(tau[t]), eps * size
        g[t] = array_up(half * (lam * rest + stray) + TINY, rounding)
        d[t] = up(half * (_norm(lam * u) + stray) + TINY, rounding)
        a[t] = up(run.gradient[t] + d[t])
        v = run.taken[t] * rho + u + apart
        curl = max(0.5 * omega * omega, gamma)
        k1, k2 = curl + X1, curl + X2
        q = min(omega * a[t], run.cross[t] + run.map[t] * d[t] + (moved + apart) * a[t])
        h = np.minimum(a[:t] * a[t], run.products[:t, t] + run.gradient[:t] * d[t] + d[:t] * a[t])
        N = g[t] * (k2 + q) + 0.5 * v * q + (h[:, None] * g[:t]).sum(axis=0) + x * a[t]
        N = array_up(N + TINY, rounding)
        total = up(_norm(N), n + 8)
        u = array_up(run.factor[t] * u + N + 2.0 * half * stray + TINY, rounding)
        omega = run.map[t + 1] + _norm(u) + apart
        v = run.taken[t + 1] * rho + u + apart
        x = array_up(x + g[t] * k2 * a[t] + 0.5 * (N * omega + v * total + N * total) + TINY, rounding)
        pushed = total * omega + 0.5 * total * total
        X1, X2 = (up(X + a[t] * a[t] * k + pushed, rounding) for X, k in ((X1, k2), (X2, k1)))
        gamma = up(gamma + a[t] * a[t], 2)
    return Path(gaps, tuple(states))


def _norm(x: Array) -> float:
    """The Euclidean norm of numbers that are not negative, rounded n + 3 times; squares may underflow."""
    return math.sqrt(float((x * x).sum()) + TINY * len(x))
