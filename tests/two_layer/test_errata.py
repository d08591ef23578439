"""Every erratum of the two-layer paper as an executable counterexample (docs/errata.md names these tests).

Paper: A Local Polyak-Łojasiewicz and Descent Lemma of Gradient Descent For Overparametrized Linear Models.
Each test shows on a concrete instance that the printed claim fails and that the corrected claim holds there.
Nothing of the package is used: the few formulas needed stand below, written from the statements.
"""

import math
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def matrix(rows: ArrayLike) -> Array:
    return np.atleast_2d(np.asarray(rows, dtype=np.float64))


def norm(a: Array) -> float:
    return float(np.linalg.norm(a, 2))


def frobenius(a: Array) -> float:
    return float(np.linalg.norm(a))


def lambda_min(a: Array) -> float:
    """λ_min(A Aᵀ): 0 when A has more rows than columns."""
    if a.shape[0] > a.shape[1]:
        return 0.0
    return float(np.linalg.svd(a, compute_uv=False)[-1] ** 2)


def last_singular_value(a: Array) -> float:
    """The last of min(rows, columns) singular values: the other reading of σ_min."""
    return float(np.linalg.svd(a, compute_uv=False)[-1])


def s_min(w1: Array, w2: Array) -> float:
    return lambda_min(w1) + lambda_min(w2)


def s_max(w1: Array, w2: Array) -> float:
    return norm(w1) ** 2 + norm(w2) ** 2


def f_root(a: float, lam: float, beta: float) -> float:
    return (a - lam + math.sqrt((a + lam) ** 2 + 4 * beta**2)) / 2


def h_root(lam: float, beta: float) -> float:
    return (lam + math.sqrt(lam**2 + 4 * beta**2)) / 2


def spectrum(w1: Array, w2: Array) -> tuple[float, float, float, float]:
    """(λ+, λ−, a, b) of the imbalance D = W1ᵀW1 − W2ᵀW2."""
    eigenvalues = np.linalg.eigvalsh(w1.T @ w1 - w2.T @ w2)[::-1]
    n, m, h = w1.shape[0], w2.shape[0], w1.shape[1]
    a = max(eigenvalues[n - 1], 0.0) if n <= h else 0.0
    b = max(-eigenvalues[h - m], 0.0) if m <= h else 0.0
    return float(max(eigenvalues[0], 0.0)), float(max(-eigenvalues[-1], 0.0)), float(a), float(b)


def alpha1(w1: Array, w2: Array, beta1: float, *, printed: bool = False) -> float:
    lam_plus, lam_minus, a, b = spectrum(w1, w2)
    n, m = w1.shape[0], w2.shape[0]
    beta_n = beta1 if printed or n <= m else 0.0
    beta_m = beta1 if printed or m <= n else 0.0
    return f_root(a, lam_minus, beta_n) + f_root(b, lam_plus, beta_m)


def alpha2(w1: Array, w2: Array, beta2: float) -> float:
    lam_plus, lam_minus, _, _ = spectrum(w1, w2)
    return h_root(lam_plus, beta2) + h_root(lam_minus, beta2)


def descend(w1: Array, w2: Array, x: Array, y: Array, eta: float, steps: int) -> Iterator[tuple[Array, Array]]:
    """Gradient descent on ½‖X W1 W2ᵀ − Y‖²_F with a constant step; yields the iterates 0..steps."""
    yield w1, w2
    for _ in range(steps):
        g = x.T @ (x @ w1 @ w2.T - y)
        w1, w2 = w1 - eta * g @ w2, w2 - eta * g.T @ w1
        yield w1, w2


def local_smoothness(w1: Array, w2: Array, smoothness: float, gap: float, eta: float) -> float:
    """The paper's K_t, equation (12)."""
    r = math.sqrt(2 * smoothness * gap)
    s = s_max(w1, w2)
    curvature = 6 * smoothness**2 * norm(w1 @ w2.T) * gap
    return smoothness * s + r + 3 * smoothness * s * r * eta + curvature * eta**2


class PrintedConstants:
    """μ̄, K̄_0, ρ̄, Δ of Theorem E.1 for K = μ = 1 (X = I), with exp(η^c) throughout."""

    def __init__(self, w1: Array, w2: Array, w_star: Array, eta: float, d: float, *, printed: bool) -> None:
        radius = frobenius(w1 @ w2.T - w_star)
        self.gap = radius**2 / 2
        self.beta1 = max(0.0, last_singular_value(w_star) - radius)
        self.beta2 = norm(w_star) + radius
        self.alpha1 = alpha1(w1, w2, self.beta1, printed=printed)
        self.alpha2 = alpha2(w1, w2, self.beta2)
        self.eta, self.d = eta, d
        self.mu_bar, self.k_bar, self.rho_bar = self.at(eta)
        self.delta = (1 + eta**d) * self.rho_bar

    def at(self, eta: float) -> tuple[float, float, float]:
        growth = math.exp(math.sqrt(eta))
        mu_bar = self.alpha1 + 2 * self.alpha2 * (1 - growth)
        r0 = math.sqrt(2 * self.gap)
        k_bar = r0 + 6 * self.beta2 * self.gap * eta**2 + growth * self.alpha2 * (1 + 3 * r0 * eta)
        return mu_bar, k_bar, 1 - 2 * mu_bar * eta + mu_bar * k_bar * eta**2

    def k_bar_at(self, t: int) -> float:
        r = math.sqrt(2 * self.gap * self.rho_bar**t)
        r_delta = math.sqrt(2 * self.gap * self.delta**t)
        growth = math.exp(math.sqrt(self.eta))
        quadratic = 6 * self.beta2 * self.gap * self.eta**2 * self.delta**t
        return r + quadratic + growth * self.alpha2 * (1 + 3 * r_delta * self.eta)

    def step_is_admissible(self) -> bool:
        """η_0 < min(e1, e2): ηK̄_0 < 1, and no root of (88) on (0, η_0] (geometric grid)."""
        for eta in np.geomspace(1e-12 * self.eta, self.eta, 2000):
            mu_bar, k_bar, _ = self.at(float(eta))
            x = 2 * mu_bar * eta - mu_bar * k_bar * eta**2
            slack = x - eta**self.d * (1 - x)
            if not 4 * self.gap * eta**2 < -math.expm1(-math.sqrt(eta)) * slack:
                return False
        return self.eta * self.k_bar < 1


def test_lemma_a1_25_has_a_square_too_many() -> None:
    a = c = 0.1
    b = d = 1.0
    left = (a * b + c * d) ** 2
    assert left > 49 * (a**2 + c**2) ** 2 * (b**2 + d**2)
    assert left <= (a**2 + c**2) * (b**2 + d**2) * (1 + 1e-15)


def test_lemma_a1_26_has_the_sides_exchanged() -> None:
    a = matrix([[1, 2], [3, 4]])
    b = -a
    assert frobenius(a) ** 2 + frobenius(b) ** 2 > 2 * frobenius(a + b) ** 2
    assert frobenius(a + b) ** 2 <= 2 * (frobenius(a) ** 2 + frobenius(b) ** 2)


def test_proposition_2_1_survives_the_error_in_26() -> None:
    """Scalar ½(w1w2 − 1)²: no PL constant at the saddle 0, no smoothness constant along w1 → ∞."""
    gap_at_zero, gradient_at_zero = 0.5, 0.0
    assert gradient_at_zero == 0 and gap_at_zero > 0
    quotients = []
    for w1 in (1e1, 1e3, 1e5):
        start, end = (w1, 1 / w1), (w1, 1 / w1 + 1)
        slopes = [(w[0] * w[1] - 1) * np.array([w[1], w[0]]) for w in (start, end)]
        quotients.append(frobenius(slopes[1] - slopes[0]))
    assert quotients[0] >= 1e2 and quotients[1] >= 1e6 and quotients[2] >= 1e10


def test_lemma_a1_27_needs_lambda_min() -> None:
    a, b = matrix([[1, 0]]), matrix([[0], [1]])
    assert last_singular_value(a) ** 2 * frobenius(b) ** 2 > frobenius(a @ b) ** 2
    assert lambda_min(a.T) * frobenius(b) ** 2 <= frobenius(a @ b) ** 2
    # (28) is the transposed statement
    assert last_singular_value(a.T) ** 2 * frobenius(b.T) ** 2 > frobenius(b.T @ a.T) ** 2
    assert lambda_min(a.T) * frobenius(b.T) ** 2 <= frobenius(b.T @ a.T) ** 2


def test_local_pl_needs_lambda_min_for_tall_weights() -> None:
    w1, w2, g = matrix([[1], [0]]), matrix([[1]]), matrix([[0], [1]])
    squared = frobenius(g @ w2) ** 2 + frobenius(g.T @ w1) ** 2
    printed = last_singular_value(w1) ** 2 + last_singular_value(w2) ** 2
    assert printed * frobenius(g) ** 2 > squared
    assert s_min(w1, w2) * frobenius(g) ** 2 == squared == 1.0


def test_lemma_a2_34_takes_the_last_nonzero_singular_value() -> None:
    """(34) ends at σ_rank, which is not the minimum for rank-deficient weights."""
    w1, w2 = matrix([[2, 0], [0, 0]]), matrix([[3, 0]])
    operator = np.kron(w2 @ w2.T, np.eye(2)) + np.kron(np.eye(1), w1 @ w1.T)
    smallest = np.linalg.eigvalsh(operator)[0]
    assert smallest == pytest.approx(s_min(w1, w2), abs=1e-14)
    assert smallest < 2**2 + 3**2 - 1


def test_lemma_a3_tail_needs_delta_squared_over_two() -> None:
    """One by one: P(|z| > 2 + δ) = erfc((2 + δ)/√2) for a standard normal z."""

    def exceeds(delta: float) -> float:
        return math.erfc((2 + delta) / math.sqrt(2))

    for delta in (6.0, 8.0, 10.0):
        assert exceeds(delta) > 2 * math.exp(-(delta**2))
    for delta in np.linspace(0.0, 20.0, 201):
        assert exceeds(float(delta)) <= 2 * math.exp(-(float(delta) ** 2) / 2)


def test_equation_77_drops_the_smoothness() -> None:
    smoothness, w1, w2, target = 10.0, 1.0, 1.0, 0.9
    slope = smoothness * (w1 * w2 - target)
    gradient = slope * np.array([w2, w1])
    cross = smoothness * w1 * w2 + slope
    hessian = np.array([[smoothness * w2**2, cross], [cross, smoothness * w1**2]])
    curvature = gradient @ hessian @ gradient / (gradient @ gradient)
    s, r = w1**2 + w2**2, math.sqrt(2 * smoothness * slope**2 / (2 * smoothness))
    assert curvature > r + s
    assert curvature <= smoothness * s + r + 1e-12


def test_equation_69_squares_the_gradient() -> None:
    w1 = w2 = matrix([[1.0]])
    for size, middle_fails in ((0.1, True), (0.5, True), (10.0, False)):
        g = matrix([[size]])
        left = frobenius(g @ w2 @ w2.T + w1 @ w1.T @ g)
        assert (left > s_max(w1, w2) * frobenius(g) ** 2) == middle_fails
        assert left <= s_max(w1, w2) * frobenius(g) * (1 + 1e-15)
    # for ‖g‖_F > 1 it is the next step of (69) that fails: ‖g‖²_F ≤ √(2KL) = ‖g‖_F for ½(w − w*)²
    assert 10.0**2 > 10.0


def test_equation_64_exchanges_the_gradient_blocks() -> None:
    rng = np.random.default_rng(3)
    w1, w2, g = rng.normal(size=(3, 4)), rng.normal(size=(2, 4)), rng.normal(size=(3, 2))
    g1, g2, s = g @ w2, g.T @ w1, 0.1
    with pytest.raises(ValueError):
        np.add(g2 @ w2.T, w1 @ g1.T)  # (2, 2) and (3, 3)
    moved = (w1 - s * g1) @ (w2 - s * g2).T
    right = w1 @ w2.T - s * (g1 @ w2.T + w1 @ g2.T) + s**2 * g1 @ g2.T
    np.testing.assert_allclose(moved, right, rtol=0, atol=1e-13)


COUNTEREXAMPLE = (matrix([[1, 0], [0, 0]]), matrix([[1, 0]]))


def test_printed_alpha1_exceeds_the_singular_values() -> None:
    w1, w2 = COUNTEREXAMPLE
    beta1 = last_singular_value(w1 @ w2.T)
    assert alpha1(w1, w2, beta1, printed=True) == 2.0
    assert s_min(w1, w2) == 1.0
    assert alpha1(w1, w2, beta1) == 1.0


@pytest.mark.parametrize(("n", "m", "at_least"), [(3, 1, 100), (1, 3, 100), (4, 2, 20), (2, 4, 20)])
def test_printed_alpha1_fails_for_random_rectangular_networks(n: int, m: int, at_least: int) -> None:
    """How often (of 200) depends on the shape: nearly always beside a single row, rarely for n = m ± 1."""
    rng = np.random.default_rng(n * 10 + m)
    violated = 0
    for _ in range(200):
        w1, w2 = rng.normal(size=(n, 5)), rng.normal(size=(m, 5))
        beta1 = last_singular_value(w1 @ w2.T)
        violated += alpha1(w1, w2, beta1, printed=True) > s_min(w1, w2) * (1 + 1e-9)
        assert alpha1(w1, w2, beta1) <= s_min(w1, w2) * (1 + 1e-9) + 1e-12
    assert violated >= at_least


def test_theorem_3_2_rate_is_false_for_rectangular_targets() -> None:
    w1, w2 = COUNTEREXAMPLE
    target, eta = matrix([[1], [0.001]]), 1e-4
    printed = PrintedConstants(w1, w2, target, eta, 2.0, printed=True)
    corrected = PrintedConstants(w1, w2, target, eta, 2.0, printed=False)
    assert printed.step_is_admissible() and corrected.step_is_admissible()
    gaps = [frobenius(u @ v.T - target) ** 2 / 2 for u, v in descend(w1, w2, np.eye(2), target, eta, 1)]
    ratio = gaps[1] / gaps[0]
    assert ratio == pytest.approx(0.999800, abs=1e-6)
    assert printed.rho_bar == pytest.approx(0.999608, abs=1e-6)
    assert corrected.rho_bar == pytest.approx(0.999808, abs=1e-6)
    assert printed.rho_bar < ratio <= corrected.rho_bar


SCALAR_RUN = (matrix([[2]]), matrix([[1]]), matrix([[0]]))


def test_equation_112_loses_the_drift() -> None:
    w1, w2, target = SCALAR_RUN
    eta = 0.02
    constants = PrintedConstants(w1, w2, target, eta, 2.0, printed=True)
    assert constants.step_is_admissible()
    assert constants.alpha1 == 3.0
    singular = [s_min(u, v) for u, v in descend(w1, w2, np.eye(1), target, eta, 400)]
    assert min(singular) < 3.0 - 0.03
    assert min(singular) >= constants.mu_bar
    # the sharper floor of the corrected theorem
    assert min(singular) >= 3.0 - constants.alpha2 * math.expm1(math.sqrt(eta)) / 2


def test_lemma_e4_constant_two_suffices_and_is_sharp() -> None:
    rng = np.random.default_rng(5)
    worst = 0.0
    for delta in (1e-6, 0.1, 0.5, 1.0):
        scale = math.sqrt(1 - delta)
        start = matrix([[1, 0]]), matrix([[0, 1]])
        end = scale * start[0], scale * start[1]
        drift = norm((end[0].T @ end[0] - end[1].T @ end[1]) - np.diag([1.0, -1.0]))
        lost = alpha1(*start, 0.0) - s_min(*end)
        assert drift == pytest.approx(delta)
        assert lost == pytest.approx(2 * drift)
        # 4 is never needed: arbitrary pairs, margins measured at the later point
        w1, w2 = rng.normal(size=(2, 5)), rng.normal(size=(3, 5))
        v1, v2 = w1 + delta * rng.normal(size=(2, 5)), w2 + delta * rng.normal(size=(3, 5))
        shift = norm(v1.T @ v1 - v2.T @ v2 - w1.T @ w1 + w2.T @ w2)
        worst = max(worst, (alpha1(w1, w2, last_singular_value(v1 @ v2.T)) - s_min(v1, v2)) / shift)
        assert s_max(v1, v2) <= alpha2(w1, w2, norm(v1 @ v2.T)) + 2 * shift
    assert worst <= 2


def test_equation_114_exponent_needs_c_at_least_one_half() -> None:
    """The last line of (114) puts exp(√η_0) for exp(η_0^c): for η_0 < 1 a smaller number when c < ½."""
    eta = 0.01
    assert math.exp(math.sqrt(eta)) < math.exp(eta**0.25)
    for c in (0.5, 0.75, 0.99):
        assert math.exp(math.sqrt(eta)) >= math.exp(eta**c)


def test_equation_92_divides_by_the_wrong_factor() -> None:
    """(88) divided by η^(1+c): the first factor is (1 − e^{−η^c})/η^c, which tends to 1 as the text says."""
    eta, c, tail = 1e-6, 0.5, 1.7
    right_side = -math.expm1(-(eta**c)) * eta * tail
    printed = -math.expm1(-(eta**c)) / math.exp(-(eta**c)) * tail
    corrected = -math.expm1(-(eta**c)) / eta**c * tail
    assert corrected * eta ** (1 + c) == pytest.approx(right_side)
    assert printed * eta ** (1 + c) < right_side / 100
    assert corrected / tail == pytest.approx(1.0, abs=1e-3)


def test_equation_14_needs_squared_singular_values() -> None:
    w1 = w2 = matrix([[0.1]])
    target = matrix([[0.01 + 1e-9]])
    s = s_min(w1, w2)
    sigma = math.sqrt(s)
    eta = 1 / sigma
    gaps = [frobenius(u @ v.T - target) ** 2 / 2 for u, v in descend(w1, w2, np.eye(1), target, eta, 1)]
    printed_rho = 1 - 2 * sigma * eta + sigma * sigma * eta**2
    k_t = local_smoothness(w1, w2, 1.0, gaps[0], eta)
    corrected_rho = 1 - 2 * s * eta + s * k_t * eta**2
    assert printed_rho == pytest.approx(0.0, abs=1e-12)
    assert gaps[1] / gaps[0] > 0.7 > printed_rho
    assert gaps[1] / gaps[0] <= corrected_rho + 1e-6


def test_section_3_2_optimal_factor_has_no_second_condition_number() -> None:
    smoothness, strong_convexity, s_low, s_high = 4.0, 1.0, 2.0, 3.0
    mu_t, k_t = strong_convexity * s_low, smoothness * s_high
    factors = [1 - 2 * mu_t * eta + mu_t * k_t * eta**2 for eta in np.linspace(0, 2 / k_t, 20001)]
    assert min(factors) == pytest.approx(1 - mu_t / k_t, abs=1e-9)
    assert 1 - strong_convexity / smoothness * mu_t / k_t > min(factors) + 0.1
    # Table 3 squares the ratio for the paper's own row; (53) and the minimum above do not
    assert 1 - strong_convexity / smoothness * (s_low / s_high) ** 2 > min(factors) + 0.05


def late_phase() -> tuple[PrintedConstants, float, float, int]:
    """A run so late that the growth cap of (15) no longer binds: (constants, K_t, K̄_t, t)."""
    w1, w2, target = SCALAR_RUN
    constants = PrintedConstants(w1, w2, target, 0.02, 1.5, printed=True)
    assert constants.step_is_admissible()
    t = 3000
    *_, (u, v) = descend(w1, w2, np.eye(1), target, constants.eta, t)
    gap = frobenius(u @ v.T - target) ** 2 / 2
    k_t = local_smoothness(u, v, 1.0, gap, 1 / s_max(u, v))
    assert (1 + constants.eta**constants.d) ** (t / 2) * constants.eta > 1 / k_t
    return constants, k_t, constants.k_bar_at(t), t


def test_equation_19_second_case_is_one_over_k_bar() -> None:
    constants, k_t, k_bar, _ = late_phase()
    assert k_t < k_bar

    def bound(eta: float) -> float:
        return 1 - 2 * constants.mu_bar * eta + constants.mu_bar * k_bar * eta**2

    candidates = np.linspace(0, 1 / k_t, 100001)
    best = candidates[int(np.argmin([bound(float(eta)) for eta in candidates]))]
    assert best == pytest.approx(1 / k_bar, rel=1e-3)
    assert bound(1 / k_bar) < bound(1 / k_t)


def test_equation_90_middle_inequality_fails_beyond_one_over_k_bar() -> None:
    """ρ̄(η_t, t) ≤ ρ̄(η_0, 0) needs η_t ≤ 1/K̄_t; what the proof shows is ρ(η_t, t) ≤ ρ̄(η_0, 0)."""
    constants, k_t, k_bar, _ = late_phase()
    eta = 1 / k_t
    assert 1 - 2 * constants.mu_bar * eta + constants.mu_bar * k_bar * eta**2 > 1 > constants.rho_bar
    assert 1 - 2 * constants.mu_bar * eta + constants.mu_bar * k_t * eta**2 <= constants.rho_bar


def test_equation_89_exponent_is_half_the_iteration() -> None:
    """(103) uses η_k ≤ (1 + η_0^d)^(k/2) η_0; exponent 1/d breaks it at k = 0 and stops growth later."""
    eta, d = 0.1, 2.0
    printed = (1 + eta**d) ** (1 / d) * eta
    assert printed > (1 + eta**d) ** (0 / 2) * eta
    assert printed < (1 + eta**d) ** (100 / 2) * eta
    # the sum that (103) bounds by η_0²/(1 − Δ), with one step at the printed cap and a tiny ρ̄
    rho_bar = 1e-3
    steps = [printed] + [0.0] * 9
    partial = sum(step**2 * rho_bar**k for k, step in enumerate(steps))
    assert partial > eta**2 / (1 - (1 + eta**d) * rho_bar)
    steps = [(1 + eta**d) ** (k / 2) * eta for k in range(3)]
    partial = sum(step**2 * rho_bar**k for k, step in enumerate(steps))
    assert partial <= eta**2 / (1 - (1 + eta**d) * rho_bar)


def test_appendix_g_smaller_p_gives_a_larger_ratio() -> None:
    rng = np.random.default_rng(11)
    h = 300
    a1, a2 = rng.normal(size=(10, h)), rng.normal(size=(10, h))
    target = rng.normal(size=(10, 10)) * math.sqrt(0.1) + rng.normal(size=(10, 10)) * math.sqrt(0.1)
    ratios, conditions = [], []
    for p in (0.275, 0.375, 0.475):
        w1, w2 = a1 * h**-p, a2 * h**-p
        radius = frobenius(w1 @ w2.T - target)
        low = alpha1(w1, w2, max(0.0, last_singular_value(target) - radius))
        ratios.append(low / alpha2(w1, w2, norm(target) + radius))
        conditions.append(s_max(w1, w2) / s_min(w1, w2))
    assert ratios[0] > ratios[1] > ratios[2]
    np.testing.assert_allclose(conditions, conditions[0], rtol=1e-12)


def test_backtracking_as_printed_never_terminates() -> None:
    """The printed test asks for a decrease γ‖∇L‖² whatever η is; here that exceeds the whole gap."""
    w1, w2, target, tau, gamma = 2.0, 1.0, 3.0, 0.1, 0.9
    slope = w1 * w2 - target
    gap, squared = slope**2 / 2, slope**2 * (w1**2 + w2**2)

    def loss(eta: float) -> float:
        return ((w1 - eta * slope * w2) * (w2 - eta * slope * w1) - target) ** 2 / 2

    assert gap < gamma * squared  # so every η ≥ 0 is refused, since the loss is nonnegative
    etas = [tau**k for k in range(300)]
    assert all(loss(eta) > gap - gamma * squared for eta in etas)
    accepted = [eta for eta in etas if loss(eta) <= gap - gamma * eta * squared]
    assert accepted and accepted[0] >= 1e-3


def test_rank_deficient_data_needs_the_reduction() -> None:
    x, y = matrix([[1, 0]]), matrix([[1]])
    w1, w2 = matrix([[3, 0], [9, 9]]), matrix([[0, 0]])
    pseudo = np.linalg.pinv(x) @ y
    gap = frobenius(x @ w1 @ w2.T - y) ** 2 / 2
    beta2 = norm(pseudo) + math.sqrt(2 * gap)
    assert beta2 == pytest.approx(2.0)
    norms, reduced = [], []
    for u, v in descend(w1, w2, x, y, 1e-2, 3000):
        norms.append(norm(u @ v.T))
        reduced.append(norm(u[:1] @ v.T))
        assert np.array_equal(u[1], w1[1])  # the null-space row never moves
    assert norms[-1] == pytest.approx(3.1, abs=0.1)
    assert norms[-1] > beta2 + 1
    assert max(reduced) <= beta2


def decrease_ratio(w1: Array, w2: Array, x: Array, target: Array) -> float:
    """−φ(x1)/(x1‖G‖²) at the first positive critical point x1 of the exact quartic φ."""
    residual = x @ (w1 @ w2.T - target)
    g = x.T @ residual
    g1, g2 = g @ w2, g.T @ w1
    squared = frobenius(g1) ** 2 + frobenius(g2) ** 2
    xb, xc = x @ (g1 @ w2.T + w1 @ g2.T), x @ g1 @ g2.T
    inner = float(np.sum(residual * xc))
    quartic = [frobenius(xc) ** 2 / 2, -float(np.sum(xb * xc)), frobenius(xb) ** 2 / 2 + inner, -squared, 0.0]
    roots = np.roots(np.polyder(np.array(quartic)))
    real = roots[np.abs(roots.imag) <= 1e-9 * np.abs(roots.real)].real
    first = float(real[real > 0].min())
    return -float(np.polyval(quartic, first)) / (first * squared)


def test_one_sixth_is_the_right_constant_for_the_first_critical_point() -> None:
    """A diagonal network within 1e-6 of the infimum: no constant above 1/6 can replace it."""
    w1, w2 = np.diag([0.0606473, -0.0405539]), np.diag([0.2939611, 0.1838421])
    target, x = np.diag([-0.0648772, 0.2530211]), np.diag([0.4652926, 0.2159956])
    ratio = decrease_ratio(w1, w2, x, target)
    assert 1 / 6 <= ratio < 1 / 6 + 1e-6
