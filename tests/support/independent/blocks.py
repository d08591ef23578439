"""Theorem B and Corollary D as docs/theorems/two-layer-prescribed-blocks.md writes them, without rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mpmath import fprod, fsum, mp, mpf


@dataclass(frozen=True)
class State:
    """ρ, ϵ, ω, X1, X2, Γ, l, p."""

    rho: mpf
    epsilon: mpf
    omega: mpf
    X1: mpf
    X2: mpf
    gamma: mpf
    low: mpf
    high: mpf


def with_edges(rho: mpf, epsilon: mpf, omega: mpf, X1: mpf, X2: mpf, gamma: mpf) -> State:
    """The state whose edges follow from Lemma 2."""
    half = (X1 + X2) / 2
    return State(rho, epsilon, omega, X1, X2, gamma, 1 - gamma - half, 1 + omega**2 / 2 + half)


@dataclass(frozen=True)
class Outcome:
    """ρ_0 … ρ_T, ϵ_T, the state at the end, and Δ1, Δ2, Δ, δ_T + ½(Δ1 + Δ2)."""

    rho: list[mpf]
    end: State
    drift: tuple[mpf, mpf, mpf, mpf]


class Suprema:
    """Of x^power |Q| for Q = Π_{j≤i<t}(1 - τ_i x): the largest value on 16(T+1) Chebyshev points over cos(πd/2M)."""

    def __init__(self, tau: Sequence[mpf], low: mpf, high: mpf) -> None:
        self.tau, self.M = tau, 16 * (len(tau) + 1)
        angles = (mp.pi * (2 * k + 1) / (2 * self.M) for k in range(self.M))
        self.points = [(low + high) / 2 + (high - low) / 2 * mp.cos(angle) for angle in angles]

    def of(self, power: float, t: int, j: int) -> mpf:
        """``power`` is 0, ½ or 1."""
        largest = max(x ** mpf(power) * abs(fprod(1 - self.tau[i] * x for i in range(j, t))) for x in self.points)
        degree = 2 * (t - j) + 1 if power == 0.5 else t - j + int(power)
        share = mp.cos(mp.pi * degree / (2 * self.M))
        return largest / (mp.sqrt(share) if power == 0.5 else share)


def block(s: State, tau: Sequence[mpf], mu: mpf, K: mpf, star: mpf) -> Outcome:
    """Theorem B, of a problem with this μ, K and ω*."""
    sup = Suprema(tau, s.low * mu, s.high * K).of
    rho, epsilon, omega = [s.rho], s.epsilon, s.omega
    D = d1 = d2 = dg = path = mpf(0)
    N: list[mpf] = []
    for t, step in enumerate(tau):
        free = min(sup(0.5, t, 0) * s.rho / mp.sqrt(s.low), sup(1, t, 0) * s.epsilon / s.low)
        g = step / 2 * (free + fsum(sup(1, t, j + 1) * N[j] for j in range(t)) / s.low)
        k1, k2 = (max(omega**2 / 2, s.gamma + dg) + X for X in (s.X1 + d1, s.X2 + d2))
        N.append((2 * (D * (omega + s.omega) / 2 + dg) + d1 + d2 + omega * g) * g)
        full = (k1 + k2 + omega * g) * g
        driven = fsum(sup(0.5, t + 1, j + 1) * N[j] for j in range(t + 1)) / mp.sqrt(s.low)
        rho.append(sup(0, t + 1, 0) * s.rho + driven)
        plain = sup(0, t + 1, 0) * s.epsilon + fsum(sup(0, t + 1, j + 1) * N[j] for j in range(t + 1))
        epsilon = min(mp.sqrt(s.high / s.low) * plain, rho[-1] / mp.sqrt(mu))
        path += 2 * g + full
        D, omega = min(epsilon + s.epsilon, path), min(star + epsilon, omega + 2 * g + full)
        d1, d2 = (d + g**2 * k + full * omega + full**2 / 2 for d, k in ((d1, k2), (d2, k1)))
        dg += g**2
    edges = D * (omega + s.omega) / 2 + dg + (d1 + d2) / 2
    end = with_edges(rho[-1], epsilon, omega, s.X1 + d1, s.X2 + d2, s.gamma + dg)
    end = replace(end, low=max(end.low, s.low - edges), high=min(end.high, s.high + edges))
    return Outcome(rho, end, (d1, d2, dg, edges))


def cycle(s: State, tau: Sequence[mpf], mu: mpf, K: mpf, star: mpf) -> tuple[list[mpf], mpf]:
    """Corollary D: ρ_0 … ρ_T of a repetition, and c; with room for twice the drift that the block seems to leave behind."""
    s = replace(s, omega=star + s.epsilon)
    first = block(s, tau, mu, K, star)
    room = [2 * d / (1 - _factor(s, first)) for d in first.drift]
    wide = replace(
        s,
        X1=s.X1 + room[0],
        X2=s.X2 + room[1],
        gamma=s.gamma + room[2],
        low=s.low - room[3],
        high=s.high + room[3],
    )
    found = block(wide, tau, mu, K, star)
    c = _factor(wide, found)
    assert c < 1 and all(d <= (1 - c) * kept for d, kept in zip(found.drift, room, strict=True))
    return found.rho, c


def _factor(s: State, outcome: Outcome) -> mpf:
    return max(outcome.rho[-1] / s.rho, outcome.end.epsilon / s.epsilon)
