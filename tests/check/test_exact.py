"""Level ``exact`` against rational arithmetic, and every method for singular values against 60 and more digits."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from adversarial_matrices import (
    MATRICES,
    QUICK,
    decades,
    hadamard,
    matrix,
    orthogonal,
    reference_eigenvalues,
    reference_singular_values,
    with_condition,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from named import named

from surefoot_check.rigor import exact
from surefoot_check.rigor.bounds import FAST, Level, difference_with_error
from surefoot_check.rigor.gram import (
    _by_cholesky,
    extreme_bounds,
    inverse_bound,
    margin,
    norm_at_most,
    singular_extremes,
)
from surefoot_check.rigor.spectra import singular_value_bounds

LEVELS = pytest.mark.parametrize("level", [FAST, exact.EXACT], ids=["fast", "exact"])
finite = st.floats(allow_nan=False, allow_infinity=False)
moderate = st.floats(-1e100, 1e100)


@given(arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 4)), elements=finite))
def test_integers_are_the_floats(A: np.ndarray) -> None:
    entries, exponent = exact.integers(A)
    assert [Fraction(n) * Fraction(2) ** exponent for n in entries] == [Fraction(x) for x in A.ravel()]
    assert not any(entries) or any(n % 2 for n in entries)
    M = exact.operand(A)
    assert [int(n) for n in M.integers.entries()] == entries and M.error == 0.0
    assert M.exponent == exponent


@pytest.mark.parametrize("spread", [3, 20, 35, 80, 400])
def test_large_operands_are_cut_off_by_no_more_than_stated(spread: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "SMALL", 10)
    rng = np.random.default_rng(spread)
    A = np.ldexp(rng.standard_normal((9, 7)), rng.integers(-spread, spread, (9, 7)))
    for exactly in (False, True):
        M = exact.fixed(A, exactly)
        entries = [Fraction(int(n)) * Fraction(2) ** M.exponent for n in M.entries.ravel()]
        square = sum(((x - Fraction(y)) ** 2 for x, y in zip(entries, A.ravel(), strict=True)), Fraction(0))
        assert square <= Fraction(M.error) ** 2
        assert M.error <= (0.0 if exactly else 2.0**-58 * np.abs(A).max())
    assert exact.operand(A).T.error == exact.operand(A).error == exact.fixed(A).error


@pytest.mark.parametrize("seed", range(8))
def test_residuals_and_defects_include_what_is_cut_off(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Residuals that are 0 but for the cut: a bound that forgot it would be smaller than the truth."""
    rng = np.random.default_rng(seed)

    def wide(*shape: int) -> np.ndarray:
        return np.ldexp(rng.integers(1, 1 << 30, shape).astype(float), -20 * np.arange(shape[1]))

    A, B = wide(3, 4), wide(4, 4)
    exact_product = exact.product(A, B)
    Q = np.ldexp(np.eye(4), -rng.integers(0, 3, 4)) + 2.0**-70 * rng.integers(-9, 9, (4, 4))
    full = exact.defect(Q)
    monkeypatch.setattr(exact, "SMALL", 4)
    monkeypatch.setattr(exact, "THIN", 0)
    cut = exact.operand(A)
    assert cut.error > 0.0
    C, error = exact.product(cut, B)
    assert np.array_equal(C, exact_product[0]) and error >= exact_product[1] * (1.0 - 1e-14)
    assert error <= exact_product[1] + 2.0**-58 * np.linalg.norm(A) * np.linalg.norm(B)
    # the product of the cut matrices themselves, with no error of its own
    seen = exact.residual(C, A, B)
    assert seen >= exact_product[1] * (1.0 - 1e-14)
    assert full * (1.0 - 1e-14) <= exact.defect(Q) <= full * (1.0 + 1e-14) + 2.0**-55


def distance(C: np.ndarray, left: np.ndarray, right: np.ndarray) -> Fraction:
    """‖C - left right‖_F²."""
    F = np.vectorize(Fraction, otypes=[object])
    return sum(((x) ** 2 for x in (F(C) - F(left) @ F(right)).ravel()), Fraction(0))


@pytest.mark.parametrize("panel", [1, 2, 3, 256])
@pytest.mark.parametrize("seed", range(6))
def test_symmetric_residuals_are_those_of_the_whole(seed: int, panel: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By parts of the lower triangle, of triangular factors, of factors with signs, and of factors that are cut off."""
    monkeypatch.setattr(exact, "PANEL", panel)
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((5, 4))
    signs = np.where(rng.random(4) < 0.5, -1.0, 1.0)
    L = np.tril(rng.standard_normal((5, 5)))
    wide = np.ldexp(X, rng.integers(-90, 0, X.shape))
    for left, right, lower in ((X, X, False), (X * signs, X, False), (L, L, True), (wide * signs, wide, False)):
        for S in (left @ right.T, rng.standard_normal((5, 5)), np.zeros((5, 5))):
            S = 0.5 * (S + S.T)
            true = distance(S, left, right.T)
            residual = exact.symmetric_residual(S, left, right, lower)
            assert true <= Fraction(residual) ** 2 <= true * (1 + Fraction(1, 2**46))
            with monkeypatch.context() as patch:
                patch.setattr(exact, "SMALL", 4)
                residual = exact.symmetric_residual(S, left, right, lower)
            assert true <= Fraction(residual) ** 2
            assert residual <= math.sqrt(true) * (1 + 1e-14) + 2.0**-54 * np.linalg.norm(left) * np.linalg.norm(right)


@pytest.mark.parametrize("seed", range(8))
def test_hostile_exponents_make_no_long_integers_and_no_false_bound(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "SMALL", 4)
    rng = np.random.default_rng(seed)

    def hostile(*shape: int) -> np.ndarray:
        return np.ldexp(rng.standard_normal(shape), rng.integers(-1000, 166, shape))

    A, B, C = hostile(4, 3), hostile(3, 5), hostile(4, 5)
    scale = rng.integers(-400, 400, 3)
    graded = np.ldexp(rng.standard_normal((4, 3)), scale), np.ldexp(rng.standard_normal((3, 5)), -scale[:, None])
    tiny = np.ldexp(rng.standard_normal((3, 5)), -1000)
    for left, right in ((A, B), graded, (A, tiny), (np.ldexp(tiny.T, -30), tiny)):
        target = C if len(left) == 4 else hostile(5, 5)
        assert exact.fixed(left).entries.dtype == exact.fixed(right).entries.dtype == np.int64
        for bound in (exact.residual, exact.sharp_residual):
            residual = bound(target, left, right)
            assert residual == math.inf or distance(target, left, right) <= Fraction(residual) ** 2
    # columns of one size each: what is cut off is relative to |left||right|
    product = graded[0] @ graded[1]
    size = np.linalg.norm(np.abs(graded[0]) @ np.abs(graded[1]))
    assert exact.sharp_residual(product, *graded) <= 1e-14 * size < exact.residual(product, *graded)


@given(st.integers(0, 1 << 300), st.integers(-1400, 1100))
def test_roots_are_rounded_upwards(square: int, exponent: int) -> None:
    root = exact.root_above(square, exponent)
    true = Fraction(square) * Fraction(2) ** (2 * exponent)
    assert root == math.inf or Fraction(root) ** 2 >= true
    if root == math.inf:
        assert true > Fraction(2) ** 2047
    elif root > 1e-290:
        assert Fraction(root) ** 2 <= true * (1 + Fraction(1, 2**49))


@LEVELS
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_primitives_bound_their_errors(level: Level, data: st.DataObject) -> None:
    """Every primitive, against rational arithmetic; a norm of errors is never below the true one."""
    m, k, n = (data.draw(st.integers(1, 4)) for _ in range(3))
    draw = lambda *shape: data.draw(arrays(np.float64, shape, elements=moderate))  # noqa: E731
    A, B, C, s = draw(m, k), draw(k, n), draw(m, n), draw(k)
    signs = np.where(s < 0.0, -1.0, 1.0)

    def covers(error: float, value: np.ndarray, truth: Any) -> bool:
        square = sum((Fraction(value[i]) - truth(*i)) ** 2 for i in np.ndindex(value.shape))
        return error == math.inf or square <= Fraction(error) ** 2

    def product(i: int, j: int) -> Fraction:
        return sum((Fraction(A[i, r]) * Fraction(B[r, j]) for r in range(k)), Fraction(0))

    value, error = level.product(A, B)
    assert covers(error, value, product)
    assert covers(level.residual(C, A, B), C, product)
    assert covers(level.sharp_residual(C, A, B), C, product)
    D = draw(m, k)
    value, error = difference_with_error(A, D)
    assert covers(error, value, lambda i, j: Fraction(A[i, j]) - Fraction(D[i, j]))
    value, error = level.scaled_columns(A, s)
    assert covers(error, value, lambda i, j: Fraction(A[i, j]) * Fraction(s[j]))
    value, error = level.signed_gram(A, signs)
    assert np.array_equal(value, value.T)
    assert covers(
        error, value, lambda i, j: sum(Fraction(A[i, r]) * int(signs[r]) * Fraction(A[j, r]) for r in range(k))
    )
    Q = level.witness(A / max(np.abs(A).max(), 1e-300))
    assert covers(level.defect(Q), np.eye(k), lambda i, j: sum(Fraction(Q[r, i]) * Fraction(Q[r, j]) for r in range(m)))


def scaled(A: np.ndarray) -> np.ndarray:
    """M1's input: largest entry in [1/2, 1), no more rows than columns."""
    B = np.ldexp(A, -math.frexp(np.abs(A).max())[1])
    return B if B.shape[0] <= B.shape[1] else np.ascontiguousarray(B.T)


def check_methods(name: str, seed: int) -> dict[str, float]:
    """Every method on one matrix: no bound is wrong. Relative slack of σ_min by method, where it is positive."""
    A = matrix(name, seed)
    digits = 60 + 2 * decades(A)
    with mpmath.workdps(digits):
        values = reference_singular_values(A, digits)
        error = mpmath.mpf(10) ** (10 - digits) * values[0]
        lowest, largest = values[-1], values[0]
        slack: dict[str, float] = {}

        def holds(method: str, smallest: tuple[float, float] | None, norm: tuple[float, float] | None) -> None:
            if smallest is not None:
                assert smallest[0] - error <= lowest <= smallest[1] + error, method
                if smallest[0] > 0.0:
                    slack[method] = float(lowest / smallest[0] - 1)
            if norm is not None:
                assert norm[0] - error <= largest <= norm[1] + error, method

        for level in (FAST, exact.EXACT):
            lower, upper = singular_value_bounds(A, level)
            for low, high, value in zip(lower, upper, values, strict=True):
                assert float(low) - error <= value <= float(high) + error
            holds(f"M3 {level.name}", (float(lower[-1]), float(upper[-1])), (float(lower[0]), float(upper[0])))
            holds(f"chosen {level.name}", *singular_extremes(A, level))
            # M4 is never asked about a matrix that vanishes or underflows
            wide = A if A.shape[0] <= A.shape[1] else np.ascontiguousarray(A.T)
            holds(f"M4 {level.name}", (inverse_bound(wide, level), math.inf), None)
        if A.any():
            B = scaled(A)
            if np.array_equal(np.ldexp(B, 1) != 0.0, (A if A.shape == B.shape else A.T) != 0.0):
                exponent = math.frexp(np.abs(A).max())[1]
                unit = mpmath.mpf(2) ** exponent
                vanished = mpmath.mpf(2) ** -1074 * A.size * unit
                for level in (FAST, exact.EXACT):
                    smallest, norm = _by_cholesky(B, level.signed_gram(B), level, True)
                    if smallest is not None:
                        assert smallest[0] * unit - vanished <= lowest <= smallest[1] * unit + vanished
                        slack[f"M1 {level.name}"] = float(lowest / (smallest[0] * unit) - 1)
                    if norm is not None:
                        assert norm[0] * unit - vanished <= largest <= norm[1] * unit + vanished
        return slack


@pytest.mark.parametrize("name", QUICK)
def test_no_method_overstates_a_bound(name: str) -> None:
    for seed in QUICK[name]:
        with named(f"seed {seed}"):
            check_methods(name, seed)


@pytest.mark.slow
def test_no_method_overstates_a_bound_of_500_matrices() -> None:
    assert len(MATRICES) >= 500
    for name, seed in MATRICES:
        check_methods(name, seed)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("name", "method", "slack"),
    [
        ("gaussian square", "M1 fast", 1e-7),
        ("gaussian square", "M1 exact", 1e-9),
        ("gaussian square", "M3 fast", 1e-11),
        ("gaussian square", "M4 fast", 1e-12),
        ("gaussian square", "chosen exact", 1e-12),
        ("condition 1e6", "chosen fast", 1e-7),
        ("condition 1e6", "chosen exact", 1e-10),
        ("condition 1e9, wide", "chosen exact", 1e-8),
        ("condition 1e13", "M3 fast", 0.1),
        ("condition 1e13", "chosen fast", 0.03),
        ("condition 1e13", "chosen exact", 1e-3),
        ("one small value", "chosen exact", 1e-3),
        ("graded rows", "chosen fast", 1e-12),
        ("graded rows", "chosen exact", 1e-12),
        ("graded columns", "chosen fast", 1e-12),
    ],
)
def test_slack_of_the_methods(name: str, method: str, slack: float, seed: int) -> None:
    """How far below σ_min the lower bounds lie, at most."""
    slacks = check_methods(name, seed)
    assert slacks.get(method, math.inf) <= slack


def test_level_exact_is_at_least_as_sharp() -> None:
    rng = np.random.default_rng(7)
    for condition in (1.0, 1e3, 1e6, 1e9):
        A = with_condition(rng, 60, condition)
        fast, best = singular_value_bounds(A), singular_value_bounds(A, exact.EXACT)
        assert (best[1] - best[0]).max() < 0.2 * (fast[1] - fast[0]).max()


@LEVELS
@pytest.mark.parametrize(("lost", "gap"), [(60, 20), (58, 16), (64, 22), (70, 22)])
def test_factorisations_that_complete_by_rounding_alone(level: Level, lost: int, gap: int) -> None:
    """An eigenvalue a little below 0: the error of M1 covers it.

    Cholesky completes with any kernel: its numbers are powers of 2 or sums of two, and exact but for 1 - 2^-lost = 1. The
    relative error 2^-lost of that pivot is 2^(gap - lost) in the next, and more than all of the last, which is
    2^(gap - lost - 1) instead of -2^(gap - lost - 1).
    """
    off = np.diag([2.0 ** -(lost // 2), 1.0, 2.0 ** -(gap // 2)], 1)
    M = np.diag([1.0, 1.0, 1.0 + 2.0**-gap, 1.0 + 2.0 ** (gap - lost - 1)]) + off + off.T
    lowest = reference_eigenvalues(mpmath.matrix(M.tolist()))[-1]
    error = level.indefiniteness(M)
    assert lowest < 0.0
    assert error is not None and lowest >= -error


@LEVELS
def test_factorisations_that_may_complete_by_rounding(level: Level) -> None:
    """Which of them complete, depends on the kernel; the error covers the eigenvalue of each that does."""
    rng = np.random.default_rng(0)
    for power in np.linspace(-18.0, -14.0, 100):
        Q = orthogonal(rng, 6)
        M = (Q * np.array([3.0, 2.0, 1.0, 0.5, 0.1, -(10.0**power)])) @ Q.T
        M = 0.5 * (M + M.T)
        lowest = reference_eigenvalues(mpmath.matrix(M.tolist()))[-1]
        error = level.indefiniteness(M)
        assert error is None or lowest >= -error


@LEVELS
@pytest.mark.parametrize("seed", range(4))
def test_m1_believes_no_estimate(level: Level, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimates that make the shifts pass the true eigenvalues by a hair: no bound follows them."""
    rng = np.random.default_rng(seed)
    B = scaled(orthogonal(rng, 5) * np.array([1.0, 0.9, 0.8, 0.7, 0.01]) @ orthogonal(rng, 5))
    G, gram = B @ B.T, level.signed_gram(B)
    with mpmath.workdps(60):
        values = reference_singular_values(B)
        lowest, largest = float(values[-1] ** 2), float(values[0] ** 2)
        for excess in (*np.geomspace(1e-17, 1e-10, 100), 0.01):
            # the shifts that M1 makes of these two are lowest (1 + excess) and largest (1 - excess)
            last = (largest * (1.0 - excess) - margin(largest, largest * 5, 5, level)) / (1.0 + 1e-9)
            first = lowest * (1.0 + excess) + margin(last, float(np.trace(G)), 5, level)
            first /= 1.0 - (1e-7 if level is FAST else 1e-10)
            monkeypatch.setattr(np.linalg, "eigvalsh", lambda _, ends=(first, last): np.array([*ends]))
            smallest, norm = _by_cholesky(B, gram, level, True)
            assert smallest is None or smallest[0] <= values[-1] <= smallest[1]
            assert norm is None or norm[0] <= values[0] <= norm[1]
            assert excess < 0.01 or (smallest is None and norm is None)


@LEVELS
def test_known_extremes_at_size_256(level: Level) -> None:
    """The singular values of H diag(2^k), H a Hadamard matrix of order 256, are 16 * 2^k: large enough for M1 to be tried."""
    powers = 2.0 ** (np.arange(256) % 6)
    for A in (hadamard(256) * powers, (hadamard(256) * powers)[:, :200].T):
        smallest, norm = singular_extremes(A, level)
        if A.shape == (256, 256):
            assert smallest[0] <= 16.0 <= smallest[1] <= 16.0 * (1 + 1e-5)
            assert norm[0] <= 512.0 <= norm[1] <= 512.0 * (1 + 1e-8)
        assert smallest[0] >= 16.0 * (1 - 1e-7)


@LEVELS
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("exponent", [-300, 0, 300])
def test_claimed_norms(level: Level, exponent: int, seed: int) -> None:
    """A claim above the norm is confirmed nearly as it is, one below it is not."""
    rng = np.random.default_rng(seed)
    A = np.ldexp(rng.standard_normal((5, 3) if seed % 2 else (4, 6)), exponent)
    with mpmath.workdps(60):
        norm = reference_singular_values(A)[0]
        claim = float(norm) * (1.0 + 1e-9)
        assert norm <= norm_at_most(A, claim, level) <= claim * (1.0 + 1e-9)
        assert norm_at_most(A, float(norm) * (1.0 - 1e-9), level) == math.inf
        assert norm_at_most(A, 0.0, level) == norm_at_most(A, 1e200, level) == math.inf


@LEVELS
def test_extremes_follow_the_convention_of_rows(level: Level) -> None:
    A = np.random.default_rng(0).standard_normal((5, 3))
    assert extreme_bounds(A, level)[0] == (0.0, 0.0)
    assert singular_extremes(A, level)[0][0] > 0.0
    assert extreme_bounds(np.zeros((2, 3)), level) == ((0.0, 0.0), (0.0, 0.0))


def test_products_of_a_broken_blas_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """At level exact a wrong product of numpy only widens the bound by its error."""
    A = with_condition(np.random.default_rng(1), 6, 10.0)

    class Broken(np.ndarray):
        def __matmul__(self, other: np.ndarray) -> np.ndarray:
            return np.asarray(self) @ np.asarray(other) + 0.25

    C, error = exact.product(A.view(Broken), A)
    assert error == pytest.approx(1.5, rel=1e-9)
    assert np.abs(C - A @ A).max() == pytest.approx(0.25)
