"""Bounds against 60-digit arithmetic, exact rational arithmetic and matrices with known spectra."""

import math
import platform
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import mpmath
import numpy as np
import pytest
from adversarial_matrices import (
    QUICK,
    REFERENCE_ERROR,
    hadamard,
    matrix,
    orthogonal,
    reference_eigenvalues,
    reference_singular_values,
    violations,
    with_condition,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from named import named

from surefoot_check.rigor import bounds, gram, spectra
from surefoot_check.rigor.bounds import FAST, Level
from surefoot_check.rigor.exact import EXACT
from surefoot_check.rigor.gram import norm_bounds, symmetric_extremes


@pytest.mark.parametrize("name", QUICK)
def test_singular_values_lie_within_their_bounds(name: str) -> None:
    for seed in QUICK[name]:
        with named(f"seed {seed}"):
            A = matrix(name, seed)
            lower, upper = spectra.singular_value_bounds(A)
            values = reference_singular_values(A)
            assert violations(lower, upper, values) == 0
            assert (lower >= 0).all() and (np.diff(lower) <= 0).all() and (np.diff(upper) <= 0).all()

            norm, exact = bounds.frobenius_upper(A), mpmath.norm(mpmath.matrix(values), 2)
            with mpmath.workdps(60):
                assert exact * (1 - REFERENCE_ERROR) <= norm <= exact * (1 + mpmath.mpf(2) ** -40) + 2 * bounds.ETA
            if name != "subnormal":  # there the step of one float is already a large relative slack
                assert np.all(np.ldexp(upper, -2) - np.ldexp(lower, -2) <= 6e-14 * np.ldexp(upper[0], -2))


def test_plain_svd_fails_the_check_that_the_bounds_pass() -> None:
    failures, matrices = 0, [(name, seed) for name, seeds in QUICK.items() for seed in seeds]
    for name, seed in matrices:
        A = matrix(name, seed)
        s = np.linalg.svd(A, compute_uv=False)
        failures += violations(s, s, reference_singular_values(A)) > 0
    assert failures > len(matrices) // 2


def test_condition_1e13_still_has_a_positive_lower_bound() -> None:
    for seed in range(10):
        lower, upper = spectra.singular_value_bounds(matrix("condition 1e13", seed))
        assert 0 < upper[-1] < 1.5 * lower[-1]


@pytest.mark.parametrize("name", QUICK)
def test_eigenvalues_lie_within_their_bounds(name: str) -> None:
    for seed in QUICK[name]:
        with named(f"seed {seed}"):
            A = matrix(name, seed)
            size = min(A.shape)
            S = A[:size, :size] / 2 + A[:size, :size].T / 2
            lower, upper = spectra.symmetric_eigenvalue_bounds(S)
            values = reference_eigenvalues(mpmath.matrix(S.tolist()))
            assert violations(lower, upper, values) == 0
            if name != "subnormal":
                norm = np.ldexp(np.maximum(abs(upper), abs(lower)).max(), -2)
                assert np.all(np.ldexp(upper, -2) - np.ldexp(lower, -2) <= 6e-14 * norm)


@pytest.mark.parametrize("level", [FAST, EXACT], ids=lambda level: level.name)
@pytest.mark.parametrize("name", QUICK)
def test_extreme_eigenvalues_lie_within_their_bounds(name: str, level: Level, monkeypatch: pytest.MonkeyPatch) -> None:
    """By shifts, where they are sharp, and of matrices within an error of the one that is known."""
    monkeypatch.setattr(gram, "SMALL", 0)
    for seed in QUICK[name]:
        with named(f"seed {seed}"):
            A = matrix(name, seed)
            size = min(A.shape)
            S = A[:size, :size] / 2 + A[:size, :size].T / 2
            values = reference_eigenvalues(mpmath.matrix(S.tolist()))
            ends = [max(values), min(values)]
            for error in (0.0, 0.25 * bounds.frobenius_upper(S)):
                (low, high), (lowest, highest) = symmetric_extremes(S, level, error)
                assert violations(np.array([lowest + error, low + error]), np.array([highest, high]), ends) == 0
                assert violations(np.array([lowest, low]), np.array([highest - error, high - error]), ends) == 0


def test_extreme_eigenvalues_by_shifts_are_sharp(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    Q, values = orthogonal(rng, 200), np.linspace(-1.0, 3.0, 200)
    S = (Q * values) @ Q.T
    S = 0.5 * (S + S.T)
    witness = spectra.symmetric_eigenvalue_bounds(S)

    def unwanted(*arguments: object) -> None:
        raise AssertionError("eigenvectors were asked for")

    monkeypatch.setattr(gram, "symmetric_eigenvalue_bounds", unwanted)
    for (low, high), k in zip(symmetric_extremes(S), (-1, 0), strict=True):
        assert low <= witness[1][k] and witness[0][k] <= high and high - low < 1e-6
        assert low > (-1.0, 3.0)[k + 1] - 1e-6 if k else low > 3.0 - 1e-6
    with pytest.raises(AssertionError, match="eigenvectors"):  # 1e-12 beside 1: no shift is sharp
        symmetric_extremes(np.diag(np.geomspace(1e-12, 1.0, 200)))


def exact_imbalance(W1: np.ndarray, W2: np.ndarray) -> Any:
    with mpmath.workdps(60):
        first, second = mpmath.matrix(W1.tolist()), mpmath.matrix(W2.tolist())
        return first.T * first - second.T * second


@pytest.mark.parametrize(("n", "m", "h"), [(2, 1, 7), (1, 3, 5), (3, 2, 5), (4, 4, 3), (6, 1, 4), (1, 1, 1)])
def test_imbalance_eigenvalues_lie_within_their_bounds(n: int, m: int, h: int) -> None:
    for ratio, scale, seed in product([1.0, 1e-5], [1.0, 2.0**-250, 2.0**250], range(4)):
        with named((ratio, scale, seed)):
            rng = np.random.default_rng(seed)
            W1, W2 = scale * rng.standard_normal((n, h)), scale * ratio * rng.standard_normal((m, h))
            lower, upper = spectra.imbalance_eigenvalue_bounds(W1, W2)
            assert violations(lower, upper, reference_eigenvalues(exact_imbalance(W1, W2))) == 0
            assert (upper - lower).max() <= 1e-13 * np.abs(upper).max()
            assert (np.diff(lower) <= 0).all() and (np.diff(upper) <= 0).all()
            if h > n + m:
                assert not lower[n : h - m].any() and not upper[n : h - m].any()


def test_balanced_and_rank_deficient_weights() -> None:
    rng = np.random.default_rng(0)
    W = rng.standard_normal((2, 6))
    lower, upper = spectra.imbalance_eigenvalue_bounds(W, orthogonal(rng, 2) @ W)
    assert (lower <= 0).all() and (upper >= 0).all() and (upper - lower).max() < 1e-12
    W1, W2 = np.ones((3, 8)), np.vstack([np.ones(8), np.eye(8)[0]])
    bound = spectra.imbalance_eigenvalue_bounds(W1, W2)
    assert violations(*bound, reference_eigenvalues(exact_imbalance(W1, W2))) == 0
    lower, upper = spectra.imbalance_eigenvalue_bounds(np.zeros((0, 4)), np.eye(2, 4))
    assert (lower[:2] == 0).all() and (upper[:2] == 0).all()
    assert (lower[2:] <= -1).all() and (upper[2:] >= -1).all()


def test_hadamard_spectra_are_enclosed_tightly_at_size_256() -> None:
    """The singular values of H diag(2^k), H a Hadamard matrix of order 256, are exactly 16 * 2^k."""
    H = hadamard(256)
    powers = np.sort(2.0 ** (np.arange(256) % 6))[::-1]
    lower, upper = spectra.singular_value_bounds(H * powers)
    assert (lower <= 16 * powers).all() and (16 * powers <= upper).all()
    assert (upper - lower).max() <= 1e-11 * upper[0]

    # H is symmetric, H^2 = 256 I and its trace is 0: eigenvalues 16 and -16, 128 times each.
    lower, upper = spectra.symmetric_eigenvalue_bounds(H)
    values = np.repeat([16.0, -16.0], 128)
    assert (lower <= values).all() and (values <= upper).all() and (upper - lower).max() < 1e-9

    # Rows of H are orthogonal with square norm 256.
    W1, W2 = H[:70] * powers[:70, None], H[70:80]
    lower, upper = spectra.imbalance_eigenvalue_bounds(W1, W2)
    values = np.concatenate([256 * powers[:70] ** 2, np.zeros(256 - 80), np.full(10, -256.0)])
    assert (lower <= values).all() and (values <= upper).all()
    assert (upper - lower).max() <= 1e-11 * upper[0]


def test_well_conditioned_size_200_has_relative_slack_below_1e_10() -> None:
    lower, upper = spectra.singular_value_bounds(with_condition(np.random.default_rng(0), 200, 10.0))
    assert (upper / lower).max() - 1 < 1e-10


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(finite, st.integers(0, 1000))
def test_up_and_down_move_outwards_by_the_stated_amount(x: float, operations: int) -> None:
    exact, relative = Fraction(x), Fraction(operations, 2**52)
    above, below = bounds.up(x, operations), bounds.down(x, operations)
    assert above == math.inf or Fraction(above) >= exact + abs(exact) * relative
    assert below == -math.inf or Fraction(below) <= exact - abs(exact) * relative
    assert below < x < above
    if math.isfinite(above) and abs(x) > 1e-290:
        assert Fraction(above) <= exact + abs(exact) * Fraction(operations + 3, 2**52)


def test_up_and_down_at_infinity_and_nan() -> None:
    assert bounds.up(math.inf) == math.inf and bounds.down(-math.inf) == -math.inf
    assert bounds.up(-math.inf) == -sys.float_info.max and bounds.down(math.inf) == sys.float_info.max
    with pytest.raises(ValueError, match="NaN"):
        bounds.up(math.nan)
    with pytest.raises(ValueError, match="operations"):
        bounds.down(1.0, -1)


@settings(max_examples=60, deadline=None)
@given(st.lists(finite, min_size=1, max_size=40))
def test_frobenius_norm_is_not_below_the_exact_one(entries: list[float]) -> None:
    norm = bounds.frobenius_upper(np.array(entries))
    assert norm == math.inf or Fraction(norm) ** 2 >= sum(Fraction(x) ** 2 for x in entries)


@pytest.mark.parametrize("exponent", [0, -530, 400])
def test_product_error_covers_the_exact_error(exponent: int) -> None:
    for seed in range(20):
        with named(f"seed {seed}"):
            rng = np.random.default_rng(seed)
            m, k, p = rng.integers(1, 9, 3)
            A = np.ldexp(rng.standard_normal((m, k)), exponent)
            B = np.ldexp(rng.standard_normal((k, p)) * np.geomspace(1, 1e-9, k)[:, None], exponent)
            product, bound = bounds.product_with_error(A, B)
            square = Fraction(0)
            for i in range(m):
                for j in range(p):
                    exact = sum(Fraction(A[i, r]) * Fraction(B[r, j]) for r in range(k))
                    square += (Fraction(product[i, j]) - exact) ** 2
            assert square <= Fraction(bound) ** 2
            norm = np.ldexp(
                np.linalg.norm(np.ldexp(A, -exponent)) * np.linalg.norm(np.ldexp(B, -exponent)), 2 * exponent
            )
            assert bound <= (k + 1) * 2.0**-53 * norm + int(2 * m * k * p + 8) * 2.0**-1074


def test_product_that_may_overflow_has_infinite_error() -> None:
    huge = np.full((2, 2), 1e200)
    with np.errstate(over="ignore"):
        assert bounds.product_with_error(huge, huge)[1] == math.inf


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_input_is_refused(bad: float) -> None:
    A = np.eye(3)
    A[1, 1] = bad
    for call in (
        bounds.frobenius_upper,
        spectra.singular_value_bounds,
        spectra.symmetric_eigenvalue_bounds,
        lambda M: bounds.product_with_error(M, np.eye(3)),
        lambda M: spectra.imbalance_eigenvalue_bounds(M, np.eye(3)),
        lambda M: spectra.imbalance_eigenvalue_bounds(np.eye(3), M),
    ):
        with pytest.raises(ValueError, match="NaN or infinity"), np.errstate(invalid="ignore"):
            call(A)


def test_wrong_dtype_shape_and_asymmetry_are_refused() -> None:
    with pytest.raises(ValueError, match="float32"):
        spectra.singular_value_bounds(np.eye(3, dtype=np.float32))
    with pytest.raises(ValueError, match="two dimensions"):
        spectra.singular_value_bounds(np.ones(3))
    with pytest.raises(ValueError, match="widths"):
        spectra.imbalance_eigenvalue_bounds(np.ones((2, 3)), np.ones((2, 4)))
    A = np.eye(3)
    A[0, 1] = bounds.ETA
    for asymmetric in (A, np.ones((2, 3))):
        with pytest.raises(ValueError, match="symmetric"):
            spectra.symmetric_eigenvalue_bounds(asymmetric)


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_empty_matrices(shape: tuple[int, int]) -> None:
    A = np.zeros(shape)
    lower, upper = spectra.singular_value_bounds(A)
    assert lower.shape == upper.shape == (0,)
    assert norm_bounds(A) == (0.0, 0.0) and bounds.frobenius_upper(A) == 0.0
    lower, upper = spectra.imbalance_eigenvalue_bounds(A, A)
    assert lower.shape == (shape[1],) and not lower.any() and not upper.any()
    assert bounds.product_with_error(A, A.T)[1] < 1e-300


FIXED = with_condition(np.random.default_rng(3), 5, 100.0)  # spectral norm 1


LEVELS = pytest.mark.parametrize("level", [bounds.FAST, EXACT], ids=["fast", "exact"])


def check_all_bounds_of_a_fixed_matrix(level: bounds.Level) -> None:
    A, S = FIXED, FIXED + FIXED.T
    assert violations(*spectra.singular_value_bounds(A, level), reference_singular_values(A)) == 0
    eigenvalues = reference_eigenvalues(mpmath.matrix(S.tolist()))
    assert violations(*spectra.symmetric_eigenvalue_bounds(S, level), eigenvalues) == 0
    for W1, W2 in ((A[:1], A[1:3]), (A[:2], A[2:3]), (A[:3], A[3:])):
        imbalance = reference_eigenvalues(exact_imbalance(W1, W2))
        assert violations(*spectra.imbalance_eigenvalue_bounds(W1, W2, level), imbalance) == 0
    assert 1.0 - 1e-12 <= norm_bounds(A, level)[1] <= 1.001 * np.linalg.norm(A)


@LEVELS
@pytest.mark.parametrize(
    ("orthogonal_factor", "value_factor"),
    [
        (1.04, 1 / 1.04),  # no residual, defect 8 %: the defect alone must widen the bounds
        (1 / 1.04, 1.04),
        (1.0, 0.97),  # no defect: the residual alone must widen them
        (1.0, 1.03),
        (1.1, 1.3),
        (3.0, 1 / 3),  # unusable: the fallback
        (0.0, 1.0),
        (math.nan, 1.0),
        (1.0, math.nan),
    ],
)
def test_false_witnesses_give_valid_bounds(
    monkeypatch: pytest.MonkeyPatch, level: bounds.Level, orthogonal_factor: float, value_factor: float
) -> None:
    svd, eigh, qr = np.linalg.svd, np.linalg.eigh, np.linalg.qr

    def false_svd(B: np.ndarray, full_matrices: bool) -> tuple[np.ndarray, ...]:
        U, s, Vt = svd(B, full_matrices=full_matrices)
        return U * orthogonal_factor, s * value_factor, Vt

    def false_eigh(B: np.ndarray) -> tuple[np.ndarray, ...]:
        w, V = eigh(B)
        return w * value_factor**2, V * orthogonal_factor

    def false_qr(B: np.ndarray) -> tuple[np.ndarray, ...]:
        Q, R = qr(B)
        return Q * orthogonal_factor, R * value_factor

    for name, witness in (("svd", false_svd), ("eigh", false_eigh), ("qr", false_qr)):
        with monkeypatch.context() as patch:  # one at a time, so that no other slack hides a gap
            patch.setattr(np.linalg, name, witness)
            check_all_bounds_of_a_fixed_matrix(level)


@LEVELS
def test_lapack_failure_gives_valid_bounds(monkeypatch: pytest.MonkeyPatch, level: bounds.Level) -> None:
    def fail(*_: object, **__: object) -> None:
        raise np.linalg.LinAlgError("did not converge")

    for name in ("svd", "eigh", "qr"):
        with monkeypatch.context() as patch:
            patch.setattr(np.linalg, name, fail)
            A = np.diag([2.0, 1.0, -1.0])
            assert spectra.singular_value_bounds(A, level)[1][0] >= 2.0
            lower, upper = spectra.symmetric_eigenvalue_bounds(A, level)
            assert (lower <= [2.0, 1.0, -1.0]).all()
            assert (upper >= [2.0, 1.0, -1.0]).all()
            lower, upper = spectra.imbalance_eigenvalue_bounds(A[:1], A[1:2], level)
            assert (lower <= [4.0, 0.0, -1.0]).all()
            assert (upper >= [4.0, 0.0, -1.0]).all()


@LEVELS
def test_error_of_forming_the_imbalance_widens_its_bounds(level: bounds.Level) -> None:
    for shift in (0.01, -0.01):

        def shifted(X: np.ndarray, signs: np.ndarray, shift: float = shift) -> tuple[np.ndarray, float]:
            S, error = level.signed_gram(X, signs)
            return S + shift * np.eye(len(S)), error + abs(shift) * math.sqrt(len(S))

        check_all_bounds_of_a_fixed_matrix(replace(level, signed_gram=shifted))


@pytest.mark.parametrize("inner", [1, 3, 64, 65, 150])
def test_blocked_products_err_by_no_more_than_stated(inner: int) -> None:
    rng = np.random.default_rng(inner)
    A, B = rng.standard_normal((3, inner)), rng.standard_normal((inner, 3))
    signs = np.where(rng.random(inner) < 0.5, -1.0, 1.0)
    for (C, error), right in (
        (bounds.product_with_error(A, B), B),
        (bounds.signed_gram(A, signs), signs[:, None] * A.T),
    ):
        square = sum(
            (Fraction(C[i, j]) - sum(Fraction(A[i, r]) * Fraction(right[r, j]) for r in range(inner))) ** 2
            for i in range(3)
            for j in range(3)
        )
        assert 0 < square <= Fraction(error) ** 2
        assert error <= 80 * bounds.UNIT_ROUNDOFF * np.linalg.norm(A) * np.linalg.norm(right)


def test_self_test_passes_here() -> None:
    bounds.self_test()


@pytest.mark.parametrize("mode", ["FE_DOWNWARD", "FE_UPWARD", "FE_TOWARDZERO"])
def test_self_test_refuses_another_rounding_mode(mode: str) -> None:
    # x86-64 encodings of <fenv.h>; in a process of its own, as the mode would break everything after.
    code = {"FE_DOWNWARD": 0x400, "FE_UPWARD": 0x800, "FE_TOWARDZERO": 0xC00}[mode]
    if platform.machine() not in {"x86_64", "AMD64"} or sys.platform != "linux":
        pytest.skip("the rounding mode is set through the C library of x86-64 Linux only")
    script = (
        "import ctypes, numpy\nfrom surefoot_check.rigor import bounds\n"
        f"assert ctypes.CDLL('libm.so.6').fesetround({code}) == 0\n"
        "try:\n    bounds.self_test()\nexcept RuntimeError:\n    print('refused')\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "refused"


def test_self_test_refuses_flushed_subnormals() -> None:
    pytest.importorskip("torch")
    script = (
        "import torch\nfrom surefoot_check.rigor import bounds\n"
        "supported = torch.set_flush_denormal(True)\n"
        "try:\n    bounds.self_test()\n    print('passed' if supported else 'unsupported')\n"
        "except RuntimeError as error:\n    print('refused' if 'subnormal' in str(error) else error)\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    if result.stdout.strip() == "unsupported":
        pytest.skip("this processor cannot flush subnormal numbers")
    assert result.stdout.strip() == "refused"
