"""Eigenvalues of the imbalance from one Gram matrix against 60-digit arithmetic; no bound follows a wrong estimate."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from adversarial_matrices import orthogonal, reference_eigenvalues

from surefoot_check.rigor.bounds import FAST, Level
from surefoot_check.rigor.exact import EXACT
from surefoot_check.rigor.spectra import imbalance_eigenvalue_bounds
from surefoot_check.two_layer import imbalance

LEVELS = pytest.mark.parametrize("level", [FAST, EXACT], ids=["fast", "exact"])
NAMES = ("plus", "nth", "minus", "mth")
Ends = dict[str, tuple[float, float]]


def factors(seed: int, n: int, m: int, h: int, exponent: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return np.ldexp(rng.standard_normal((n, h)), exponent), np.ldexp(rng.standard_normal((m, h)), exponent)


def truth(W1: np.ndarray, W2: np.ndarray) -> list[mpmath.mpf]:
    """λ_1(D), λ_n(D), λ_1(-D), λ_m(-D)."""
    (n, h), m = W1.shape, len(W2)
    A, B = (mpmath.matrix(W.tolist()) for W in (W1, W2))
    values = reference_eigenvalues(A.T * A - B.T * B)
    return [values[0], values[n - 1], -values[h - 1], -values[h - m]]


def from_gram(W1: np.ndarray, W2: np.ndarray, level: Level) -> imbalance.Imbalance:
    """The route for large factors, at any size."""
    bounds = imbalance._of_gram(W1, W2, level)
    assert isinstance(bounds, imbalance.Imbalance)
    return bounds


@LEVELS
@pytest.mark.parametrize("exponent", [-150, 0, 90])
@pytest.mark.parametrize(("n", "m", "h"), [(3, 2, 7), (1, 1, 2), (2, 4, 11), (5, 1, 12)])
def test_eigenvalues_lie_within_their_bounds(n: int, m: int, h: int, exponent: int, level: Level) -> None:
    for seed in range(2):
        W1, W2 = factors(seed, n, m, h, exponent)
        bounds = from_gram(W1, W2, level)
        with mpmath.workdps(60):
            for name, value in zip(NAMES, truth(W1, W2), strict=True):
                low, high = getattr(bounds, name)
                assert low <= value <= high, name
                published = high if name in ("plus", "minus") else low
                assert abs(published / value - 1) < (1e-6 if level is FAST else 1e-9), name
            for W, (low, high) in zip((W1, W2), bounds.norms, strict=True):
                norm = mpmath.sqrt(reference_eigenvalues(mpmath.matrix(W.tolist()) * mpmath.matrix(W.tolist()).T)[0])
                assert low <= norm <= high


@LEVELS
@pytest.mark.parametrize("sign", [1, -1])
def test_a_wrong_estimate_is_not_confirmed(sign: int, level: Level) -> None:
    """An eigenvalue moved past the truth by 1e-5, in the direction of a false bound, has no proof; one before it has."""
    for seed in range(2):
        W1, W2 = factors(seed, 4, 2, 9)
        Z = np.concatenate([W1, W2])
        G, error = level.signed_gram(Z)
        P, N, C = G[:4, :4], G[4:, 4:], G[:4, 4:]
        with mpmath.workdps(60):
            values = [float(value) for value in truth(W1, W2)]
        for own, other, cross, (top, last) in ((P, N, C, values[:2]), (N, P, C.T, values[2:])):
            value, norm = (last if sign > 0 else top), float(np.linalg.norm(own, 2))
            arguments = (own, other, level.operand(other), cross, error, norm)
            for shift in (1e-5, 1e-3, 0.1, 0.5):
                wrong, right = value * (1.0 + sign * shift), value * (1.0 - sign * shift)
                assert imbalance._confirmed(*arguments, wrong, sign, level) is None
                assert imbalance._confirmed(*arguments, right, sign, level) is not None
            # an error of the Gram matrix of the size of the gap takes the proof away
            worse = (own, other, level.operand(other), cross, 0.6 * abs(value), norm)
            assert imbalance._confirmed(*worse, value * (1.0 - sign * 0.5), sign, level) is None


@LEVELS
@pytest.mark.parametrize("factor", [0.5, 1.01, 1.0 + 1e-7])
def test_a_wrong_solution_takes_the_proof_of_a_lower_bound_away_or_leaves_it_true(
    factor: float, level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    solve = np.linalg.solve
    W1, W2 = factors(0, 4, 2, 9)
    with mpmath.workdps(60):
        values = truth(W1, W2)
    monkeypatch.setattr(np.linalg, "solve", lambda A, b: factor * solve(A, b))
    bounds = imbalance._of_gram(W1, W2, level)
    if factor > 1.001 or factor < 0.999:
        assert not isinstance(bounds, imbalance.Imbalance)
    if isinstance(bounds, imbalance.Imbalance):
        for name, value in zip(NAMES, values, strict=True):
            low, high = getattr(bounds, name)
            assert low <= value <= high, name


def test_large_factors_take_the_gram_matrix_and_agree_with_the_eigenvectors() -> None:
    W1, W2 = factors(0, 140, 8, 200)
    bounds = imbalance.measure(W1, W2)
    assert bounds == from_gram(W1, W2, FAST)
    lower, upper = imbalance_eigenvalue_bounds(W1, W2)
    pairs = [(lower[0], upper[0]), (lower[139], upper[139]), (-upper[-1], -lower[-1]), (-upper[-8], -lower[-8])]
    for name, (low, high) in zip(NAMES, pairs, strict=True):
        other_low, other_high = getattr(bounds, name)
        assert low <= other_high and other_low <= high, name
    assert bounds.plus[1] == pytest.approx(upper[0], rel=2e-6) and bounds.nth[0] == pytest.approx(lower[139], rel=2e-6)


@LEVELS
def test_what_has_no_sharp_proof_falls_back(level: Level, monkeypatch: pytest.MonkeyPatch) -> None:
    """Balanced, singular and underflowing factors: the eigenvectors decide, as for small ones."""
    rng = np.random.default_rng(0)
    Q = orthogonal(rng, 9)
    balanced = Q[:4] * 1.0, (1.0 + 1e-13) * orthogonal(rng, 4) @ Q[:4]
    singular = np.vstack([Q[:3], Q[:1]]), Q[4:6]
    tiny = Q[:4].copy(), Q[4:6] * 2.0**-1060
    monkeypatch.setattr(imbalance, "SMALL", 2)
    for W1, W2 in (balanced, singular, tiny):
        assert not isinstance(imbalance._of_gram(W1, W2, level), imbalance.Imbalance)
        bounds = imbalance.measure(W1, W2, level)
        with mpmath.workdps(60):
            for name, value in zip(NAMES, truth(W1, W2), strict=True):
                low, high = getattr(bounds, name)
                assert low <= max(value, 0) <= high, name
                assert math.isfinite(high)


def test_an_eigenvalue_below_the_range_of_floats_is_not_zero() -> None:
    """2^-1080, exactly known: its upper bound is the least float."""
    W1, W2 = np.eye(2, 5) * 2.0**-150, np.zeros((1, 5))
    W2[0, 3] = 2.0**-540
    bounds = from_gram(W1, W2, EXACT)
    for low, high in (bounds.minus, bounds.mth):
        assert low == 0.0 < high
