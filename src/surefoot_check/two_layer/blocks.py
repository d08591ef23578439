"""Blocks of prescribed steps of the squared loss from any state, W1W1ᵀ = s²(I + K1), W2W2ᵀ = s²(I + K2): Theorem B, and one block
repeated for ever (Corollary D).

In units of s: w = W1W2ᵀ/s², e = w - w*, τ = 2s²η, γ = ½τΛe with Λ = XᵀX, and the gap is ½s⁴‖Λ^½e‖_F². Between the start of a
run and this block K1 = ½wwᵀ - G1 + R1 with G1 the sum of all γγᵀ, and K2 alike.
Reference: docs/theorems/two-layer-prescribed-blocks.md (a theorem of the project; no counterpart in the paper).

Every number is an upper bound (``lower``, and what is divided by, a lower one), rounded outwards: the recursion does not fall
with any of its arguments, so that it may go on from rounded ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..rigor.bounds import UNIT_ROUNDOFF, Array, NotFiniteError, array_up, down, up
from ..rigor.intervals import TINY

LIMIT = 10.0
"""Once one step may move the kernel by so much, the recursion claims nothing."""
LEAST = 1e-6
"""Least edge of the spectrum of a kernel that is looked at: what underflows stays below ``TINY`` when it is divided by it."""
DENSITY = 16
"""Points per degree on which polynomials are bounded."""
ROOM = 2.0
"""A repeated block is evaluated with so many times the drift that it seems to leave behind in all."""


@dataclass(frozen=True)
class State:
    """What Theorem B needs to know of the weights at the start of a block, and says of them at its end; in units of s."""

    residual: float
    """≥ ‖Λ^½e‖_F, so that the gap is at most ½s⁴ times its square."""
    distance: float
    """≥ ‖e‖_F."""
    size: float
    """≥ ‖w‖."""
    remainder1: float
    """≥ ‖R1‖."""
    remainder2: float
    """≥ ‖R2‖."""
    gram: float
    """≥ ‖G1‖ and ‖G2‖."""
    lower: float
    """≤ 1 + ½(λ_min(K1) + λ_min(K2))."""
    upper: float
    """≥ 1 + ½(λ_max(K1) + λ_max(K2))."""

    @classmethod
    def of(
        cls, residual: float, distance: float, size: float, remainder1: float, remainder2: float, gram: float
    ) -> State:
        """With the edges by Lemma 2: -(‖G_i‖ + ‖R_i‖) ≤ K_i ≤ ½‖w‖² + ‖R_i‖."""
        half = up(0.5 * up(remainder1 + remainder2))
        lower, upper = down(1.0 - up(gram + half)), up(1.0 + up(0.5 * size * size + half, 4))
        return cls(residual, distance, size, remainder1, remainder2, gram, lower, upper)


@dataclass(frozen=True)
class Problem:
    """Strong convexity (from below), smoothness (from above) and ‖w*‖ (from above, in units of s)."""

    strong_convexity: float
    smoothness: float
    optimum: float


@dataclass(frozen=True)
class Drift:
    """By how much a block moves the upper bounds of a state: Δ1, Δ2, Δ, and both edges δ_T + ½(Δ1 + Δ2)."""

    remainder1: float
    remainder2: float
    gram: float
    edges: float


@dataclass(frozen=True)
class Block:
    """``residuals[t]`` ≥ ‖Λ^½e_t‖_F for t = 0..T (``inf`` where nothing is claimed); the state after the last step, and the drift
    on the way there, where something is."""

    residuals: Array
    end: State | None
    drift: Drift | None


@dataclass(frozen=True)
class Cycle:
    """T steps repeated for ever: ‖Λ^½e‖_F ≤ ``factor``^k ``residuals[t]`` after kT + t of them, ``factor`` < 1."""

    residuals: Array
    factor: float


@dataclass(frozen=True)
class Suprema:
    """Entry [t, j], j ≤ t ≤ T (0 elsewhere): upper bounds of the suprema over an interval of |Q|, √x|Q| and
    x|Q|, Q = Π_{j≤i<t}(1 - τ_i x)."""

    plain: Array
    root: Array
    linear: Array


def suprema(tau: Array, low: float, high: float) -> Suprema:
    """On M Chebyshev points of [low, high]. A polynomial of degree d < M is at most its largest value there over cos(πd/2M)
    (Ehlich and Zeller 1964); that of √x|Q| is the root of the one of xQ²."""
    T = len(tau)
    M = DENSITY * (T + 1)
    x = nodes(low, high, M)
    error = (
        64.0 * UNIT_ROUNDOFF
    )  # of x beside ``high``, and of a factor beside 1 + τx: cos is within 16, few operations follow
    degree = np.arange(float(T), -1.0, -1.0)
    plain, root, linear = np.zeros((3, T + 1, T + 1))
    Q, x = np.ones((T + 1, M)), x + error * high
    for t in range(T + 1):
        if t:
            Q[:t] *= np.abs(1.0 - tau[t - 1] * x) + error * (1.0 + 2.0 * tau[t - 1] * high)
            Q[:t] += TINY  # for what underflows
        here, d = Q[: t + 1], degree[T - t :]
        weighted = x * here
        plain[t, : t + 1] = here.max(axis=1) / share(d, M)
        linear[t, : t + 1] = weighted.max(axis=1) / share(d + 1, M)
        root[t, : t + 1] = np.sqrt(((weighted * here).max(axis=1) + TINY) / share(2 * d + 1, M))
    return Suprema(*(np.tril(array_up(values, 3 * T + 64)) for values in (plain, root, linear)))


def nodes(low: float, high: float, M: int) -> Array:
    """M Chebyshev points of [low, high]."""
    return 0.5 * (low + high) + 0.5 * (high - low) * np.cos(np.pi * (np.arange(M) + 0.5) / M)


def share(degree: Array, M: int) -> Array:
    """cos(πd/2M), within 16 units of roundoff."""
    return np.cos(np.pi * degree / (2 * M))


def block(problem: Problem, state: State, tau: Array) -> Block:
    """Theorem B: the steps τ (T,), all positive, from a state whose ``lower`` is not below ``LEAST``."""
    nothing = Block(np.concatenate([[state.residual], np.full(len(tau), np.inf)]), None, None)
    if not all(map(math.isfinite, (*vars(problem).values(), *vars(state).values()))):
        return nothing
    try:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return _Recursion(problem, state, tau).run()
    except NotFiniteError:  # numbers that overflowed cancel
        return nothing


def cycle(problem: Problem, state: State, tau: Array) -> Cycle | None:
    """Corollary D: the same block for ever, where it contracts by so much that all that its repetitions move the kernel is within
    what it was evaluated with; ``None`` where that is not so."""
    if not state.lower >= LEAST:
        return None
    start = replace(state, size=up(problem.optimum + state.distance))
    first = block(problem, start, tau)
    rest = _rest(start, first)
    if first.drift is None or not rest > 0.0:
        return None
    room, drift = ROOM / rest, first.drift
    wide = replace(
        start,
        remainder1=up(start.remainder1 + room * drift.remainder1, 2),
        remainder2=up(start.remainder2 + room * drift.remainder2, 2),
        gram=up(start.gram + room * drift.gram, 2),
        lower=down(start.lower - up(room * drift.edges)),
        upper=up(start.upper + room * drift.edges, 2),
    )
    if not wide.lower >= LEAST:
        return None
    repeated = block(problem, wide, tau)
    rest = _rest(wide, repeated)
    if repeated.drift is None or not rest > 0.0:
        return None
    moved = (
        (repeated.drift.remainder1, wide.remainder1 - start.remainder1),
        (repeated.drift.remainder2, wide.remainder2 - start.remainder2),
        (repeated.drift.gram, wide.gram - start.gram),
        (repeated.drift.edges, start.lower - wide.lower),
        (repeated.drift.edges, wide.upper - start.upper),
    )
    fits = all(drift <= down(rest * down(kept)) for drift, kept in moved)
    factor = up(1.0 - rest)
    return Cycle(repeated.residuals, factor) if fits and factor < 1.0 else None


def _rest(start: State, result: Block) -> float:
    """Lower bound of 1 - c where c ‖Λ^½e‖_F and c ‖e‖_F bound both at the end; 0 where they do not fall."""
    if result.end is None or not (start.residual > 0.0 and start.distance > 0.0):
        return 0.0
    return down(1.0 - up(max(result.end.residual / start.residual, result.end.distance / start.distance)))


class _Recursion:
    """The recursion of Theorem B; names as on its page."""

    def __init__(self, problem: Problem, state: State, tau: Array) -> None:
        self.problem, self.state, self.tau = problem, state, tau
        self.sup = suprema(
            tau, max(0.0, down(state.lower * problem.strong_convexity)), up(state.upper * problem.smoothness)
        )
        self.N = np.zeros(len(tau))
        self.residual, self.distance, self.size = state.residual, state.distance, state.size
        self.path = self.moved = self.gram = self.delta1 = self.delta2 = 0.0

    def run(self) -> Block:
        """Step by step, until nothing can be claimed."""
        residuals = np.full(len(self.tau) + 1, np.inf)
        residuals[0] = self.residual
        if not all(np.isfinite(values).all() for values in (self.sup.plain, self.sup.root, self.sup.linear)):
            return Block(residuals, None, None)
        for t in range(len(self.tau)):
            if not self._step(t):
                return Block(residuals, None, None)
            residuals[t + 1] = self.residual
        edges = up(self._drift() + up(0.5 * (self.delta1 + self.delta2), 2))
        return Block(residuals, self._end(edges), Drift(self.delta1, self.delta2, self.gram, edges))

    def _step(self, t: int) -> bool:
        s, sup, done = self.state, self.sup, slice(0, t)
        free = min(sup.root[t, 0] * s.residual / math.sqrt(s.lower), sup.linear[t, 0] * s.distance / s.lower)
        driven = float(sup.linear[t, 1 : t + 1] @ self.N[done]) / s.lower
        g = _above(0.5 * self.tau[t] * (free + driven), t + 16)
        gram, half = s.gram + self.gram, 0.5 * self.size * self.size
        k1 = up(max(half, gram) + s.remainder1 + self.delta1, 8)
        k2 = up(max(half, gram) + s.remainder2 + self.delta2, 8)
        self.N[t] = _above((2.0 * self._drift() + self.delta1 + self.delta2 + self.size * g) * g, 12)
        full = _above((k1 + k2 + self.size * g) * g, 8)
        if not (full < LIMIT and g < LIMIT):
            return False
        self._move(t)
        self.path = up(self.path + 2.0 * g + full, 4)
        self.moved = min(up(self.distance + s.distance), self.path)
        self.size = min(up(self.problem.optimum + self.distance), up(self.size + 2.0 * g + full, 4))
        shared = full * self.size + 0.5 * full * full
        self.delta1 = _above(self.delta1 + g * g * k2 + shared, 12)
        self.delta2 = _above(self.delta2 + g * g * k1 + shared, 12)
        self.gram = _above(self.gram + g * g, 4)
        return True

    def _move(self, t: int) -> None:
        """``residual`` and ``distance`` after step t."""
        s, sup = self.state, self.sup
        N = self.N[: t + 1]
        driven = float(sup.root[t + 1, 1 : t + 2] @ N) / math.sqrt(s.lower)
        self.residual = _above(sup.plain[t + 1, 0] * s.residual + driven, t + 16)
        plain = sup.plain[t + 1, 0] * s.distance + float(sup.plain[t + 1, 1 : t + 2] @ N)
        by_residual = up(self.residual / math.sqrt(self.problem.strong_convexity), 4)
        self.distance = min(_above(math.sqrt(s.upper / s.lower) * plain, t + 16), by_residual)

    def _drift(self) -> float:
        """δ."""
        return up(0.5 * self.moved * (self.size + self.state.size) + self.gram, 6)

    def _end(self, edges: float) -> State:
        s = self.state
        X1, X2 = up(s.remainder1 + self.delta1), up(s.remainder2 + self.delta2)
        end = State.of(self.residual, self.distance, self.size, X1, X2, up(s.gram + self.gram))
        return replace(end, lower=max(end.lower, down(s.lower - edges)), upper=min(end.upper, up(s.upper + edges)))


def _above(x: float, operations: int) -> float:
    """``up``, of what is not negative and of which parts may have vanished."""
    return up(x + TINY, operations)
