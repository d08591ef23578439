"""Corollary C: its constants by their definition, and runs at the scale that it names."""

from __future__ import annotations

import math

import numpy as np
import pytest

from surefoot._two_layer.closed_form import SHARES, closed_form
from surefoot._two_layer.sequences import Array, calm_orders, chebyshev_count
from surefoot_check.two_layer.path import Start, follow

TARGET = 1e-10
CONDITION = 10.0
TAU = calm_orders(22, 1.0, CONDITION)[0]
GRID = np.linspace(1.0, CONDITION, 4001)


def sup(tau: Array, power: float, j: int, t: int) -> float:
    """The largest x^power |Π_{j≤i<t}(1 - τ_i x)| on a grid: a little too low."""
    return float((GRID**power * np.abs(np.prod(1.0 - tau[j:t, None] * GRID, axis=0))).max())


def by_definition(tau: Array, theta: float) -> tuple[float, float]:
    """r_1 by bisection over the three conditions, and Γ."""
    T, q = len(tau), 1.0 + theta
    c = max(float(np.abs(1.0 - np.prod(1.0 - tau[:t, None] * GRID, axis=0)).max()) for t in range(1, T + 1))
    b = [0.5 * tau[t] * sup(tau, 1.0, 0, t) for t in range(T)]
    k = [q * max(0.5 * q**2 * c**2, q**2 * sum(x * x for x in b[:t])) for t in range(T)]
    C = [(2.0 * k[t] + q**2 * c * b[t]) * q * b[t] for t in range(T)]

    def holds(r: float) -> bool:
        first = all(r**2 * sum(sup(tau, 0.0, j + 1, t) * C[j] for j in range(t)) <= theta * c for t in range(1, T + 1))
        second = all(
            r**2 * 0.5 * tau[t] * sum(sup(tau, 1.0, j + 1, t) * C[j] for j in range(t)) <= theta * b[t]
            for t in range(T)
        )
        third = all(
            sum(r**2 * (q**2 * b[j] ** 2 * k[j] + q * c * C[j]) + 0.5 * r**4 * C[j] ** 2 for j in range(t))
            <= theta / q * k[t]
            for t in range(T)
        )
        return first and second and third

    low, high = 0.0, 1.0
    for _ in range(12):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, sum(sup(tau, 0.5, j + 1, T) * C[j] for j in range(T))


def test_the_constants_are_those_of_the_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    tau = calm_orders(6, 1.0, CONDITION)[0]
    for theta in (0.05, 1.0):
        monkeypatch.setattr("surefoot._two_layer.closed_form.SHARES", (theta,))
        found = closed_form(tau, CONDITION, TARGET)
        radius, perturbation = by_definition(tau, theta)
        assert 0.96 * radius <= found.radius <= radius * 1.01 + 1e-3  # suprema are bounded from above, within 2 %
        assert perturbation * 0.999 <= found.perturbation <= 1.06 * perturbation


def test_runs_at_the_scale_of_the_corollary_keep_its_bound() -> None:
    rng = np.random.default_rng(0)
    found = closed_form(TAU, CONDITION, TARGET)
    scale = found.scale(TARGET)
    for n, m in ((1, 1), (3, 2), (6, 2)):
        lam = np.sort(rng.uniform(1.0, CONDITION, n))
        lam[0], lam[-1] = (1.0, CONDITION) if n > 1 else (3.0, 3.0)
        target = rng.standard_normal((n, m))
        target /= scale**2 * np.linalg.norm(target)  # in units of s, at ‖W*‖_F = s²/scale²
        Z = np.linalg.qr(rng.standard_normal((n + m, n + m)))[0]
        W1, W2 = Z[:n], Z[n:]
        start = math.sqrt(float((lam[:, None] * target**2).sum()))
        for tau in TAU:
            gamma = 0.5 * tau * lam[:, None] * (W1 @ W2.T - target)
            W1, W2 = W1 - gamma @ W2, W2 - gamma.T @ W1
        reached = math.sqrt(float((lam[:, None] * (W1 @ W2.T - target) ** 2).sum())) / start
        assert reached <= found.final + found.perturbation / scale**4
        assert found.final + found.perturbation / scale**4 <= math.sqrt(TARGET) * (1.0 + 1e-12)


def test_theorem_a_guarantees_the_gap_at_the_scale_of_the_corollary() -> None:
    rng = np.random.default_rng(1)
    scale = closed_form(TAU, CONDITION, TARGET).scale(TARGET)
    for n, m in ((2, 1), (5, 3), (12, 2)):
        lam = np.sort(np.concatenate([[1.0, CONDITION], rng.uniform(1.0, CONDITION, n - 2)]))
        rows = rng.standard_normal((n, m))
        rows /= scale**2 * np.linalg.norm(rows)
        start = Start(
            lam,
            rows,
            off_diagonal=0.0,
            target_error=0.0,
            map=0.0,
            kernel1=0.0,
            kernel2=0.0,
            step_unit=1.0,
            gap_unit=1.0,
        )
        gaps = follow(start, TAU).gaps
        assert gaps[-1] <= TARGET * gaps[0]


def test_a_sequence_that_is_too_short_has_no_scale() -> None:
    short = chebyshev_count(1.0, CONDITION, TARGET) - 1
    assert closed_form(calm_orders(short, 1.0, CONDITION)[0], CONDITION, TARGET).scale(TARGET) == math.inf
    assert closed_form(np.array([1.0]), 1.0, TARGET).scale(TARGET) < math.inf
    assert len(SHARES) > 1
