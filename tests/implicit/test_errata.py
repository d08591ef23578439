"""Errata of the implicit ReLU paper about the forward pass, the backward pass and the Gram matrix, as counterexamples.

Paper: On the Global Convergence of Training Infinite-Depth ReLU Networks (docs/errata.md names these tests).
Nothing of the package is used: the few formulas needed stand below, written from the statements. Samples are rows; vec stacks
columns, as in the paper, so that vec(ZA) = (Aᵀ ⊗ I_N) vec(Z).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

Array = NDArray[np.float64]


def norm(M: Array) -> float:
    return float(np.linalg.norm(M, 2))


def last_singular_value(M: Array) -> float:
    return float(np.linalg.svd(M, compute_uv=False)[-1])


def relu(M: Array) -> Array:
    return np.maximum(M, 0.0)


@dataclass
class Network:
    """The matrices of the paper at given weights, b (m,)."""

    X: Array
    W: Array
    A: Array
    b: Array
    gamma: float

    def __post_init__(self) -> None:
        self.N, self.m = len(self.X), len(self.A)
        Z = Phi = relu(self.X @ self.W)
        for _ in range(400):
            Z = relu(self.gamma * Z @ self.A + Phi)
        self.Z = Z
        self.D = np.diag((self.gamma * Z @ self.A + Phi > 0).astype(float).flatten(order="F"))
        self.E = np.diag((self.X @ self.W > 0).astype(float).flatten(order="F"))
        self.Q = linear(self.gamma, self.D, self.A, self.N)
        outputs = np.kron(self.b[None, :], np.eye(self.N)) @ np.linalg.inv(self.Q) @ self.D
        self.M = self.gamma * outputs @ np.kron(np.eye(self.m), Z)
        self.Pi = outputs @ self.E @ np.kron(np.eye(self.m), self.X)
        self.active = min(self.D.diagonal().min(), self.E.diagonal().min()) == 1.0


def linear(gamma: float, D: Array, A: Array, N: int) -> Array:
    """Q = I - γD(Aᵀ ⊗ I_N)."""
    return np.eye(len(D)) - gamma * D @ np.kron(A.T, np.eye(N))


def test_lemma_3_2_is_not_strict() -> None:
    """λ_min(Q) > 1 - γ0 fails at A = I with all units active: λ_min(Q) = 1 - γ0."""
    Q = linear(0.5, np.eye(4), np.eye(2), 2)
    assert np.linalg.eigvals(Q).real.min() == 0.5 == 1.0 - 0.5 * norm(np.eye(2))


def test_lemma_3_2_compares_complex_eigenvalues() -> None:
    """A rotation by 90°: the eigenvalues of Q are 1 ± γi, which have no smallest one."""
    Q = linear(0.5, np.eye(2), np.array([[0.0, -1.0], [1.0, 0.0]]), 1)
    np.testing.assert_allclose(sorted(np.linalg.eigvals(Q).imag), [-0.5, 0.5], atol=1e-12)


@settings(max_examples=100)
@given(st.integers(0, 2**31), st.integers(1, 3), st.integers(1, 4), st.floats(0.01, 0.99))
def test_lemma_3_2_corrected(seed: int, N: int, m: int, gamma0: float) -> None:
    """σ_min(Q) ≥ 1 - γ0 and Re λ ≥ 1 - γ0 for every pattern D."""
    generator = np.random.default_rng(seed)
    A, D = generator.normal(size=(m, m)), np.diag(generator.integers(0, 2, N * m).astype(float))
    Q = linear(gamma0 / norm(A), D, A, N)
    assert last_singular_value(Q) >= (1.0 - gamma0) * (1.0 - 1e-12)
    assert np.linalg.eigvals(Q).real.min() >= (1.0 - gamma0) * (1.0 - 1e-9)


def test_section_4_1_lower_bounds_at_one_unit() -> None:
    """N = m = 1, x = 1, W = 2, A = -1, b = 1, γ = ½: σ_min(M) = 4/9, not at least 4/3; σ_min(Π) = 2/3, not at least 2."""
    one = np.ones((1, 1))
    net = Network(one, 2.0 * one, -one, np.ones(1), 0.5)
    assert net.active and net.Z.item() == pytest.approx(4.0 / 3.0)
    assert last_singular_value(net.M) == pytest.approx(4.0 / 9.0)
    assert last_singular_value(net.Pi) == pytest.approx(2.0 / 3.0)
    claimed_M, claimed_Pi = 0.5 / (1.0 - 0.5) * net.Z.item(), 1.0 / (1.0 - 0.5)
    assert (claimed_M, claimed_Pi) == pytest.approx((4.0 / 3.0, 2.0))
    # with 1/(1 + γ0) they hold, here with equality
    assert last_singular_value(net.M) == pytest.approx(0.5 / 1.5 * net.Z.item())
    assert last_singular_value(net.Pi) == pytest.approx(1.0 / 1.5)


@settings(max_examples=100)
@given(st.integers(0, 2**31), st.integers(1, 3), st.integers(1, 4), st.floats(0.01, 0.9), st.booleans())
def test_section_4_1_lower_bounds_corrected(seed: int, N: int, m: int, gamma0: float, negative: bool) -> None:
    """With 1/(1 + γ0): all units active, or the right sides are 0."""
    generator = np.random.default_rng(seed)
    X, W, A = (generator.uniform(size=size) for size in ((N, 3), (3, m), (m, m)))
    A = -0.3 * A if negative else A
    net = Network(X, W, A, generator.normal(size=m), gamma0 / norm(A))
    bound = net.active * float(np.linalg.norm(net.b)) / (1.0 + gamma0)
    rows = min(N, m)  # σ_min of M over its N rows needs Z of full row rank, m ≥ N
    sigma_Z = last_singular_value(net.Z) if rows == N else 0.0
    sigma_X = last_singular_value(X)
    assert last_singular_value(net.M) >= net.gamma * bound * sigma_Z * (1.0 - 1e-9) - 1e-14
    assert last_singular_value(net.Pi) >= bound * sigma_X * (1.0 - 1e-9) - 1e-14


def test_the_examples_of_the_corrected_bounds_include_active_networks() -> None:
    """Else the test above would compare with 0 only."""
    active = 0
    for seed in range(50):
        generator = np.random.default_rng(seed)
        X, W, A = (generator.uniform(size=size) for size in ((2, 3), (3, 3), (3, 3)))
        active += Network(X, W, -0.3 * A, np.ones(3), 0.5 / norm(A)).active
    assert active >= 25


@settings(max_examples=50)
@given(st.integers(0, 2**31), st.integers(1, 3), st.integers(1, 4), st.floats(0.01, 0.9))
def test_gram_matrix_without_kronecker_products(seed: int, N: int, m: int, gamma0: float) -> None:
    """MMᵀ = γ²(ZZᵀ) ∘ (KKᵀ) and ΠΠᵀ = (XXᵀ) ∘ ((E∘K)(E∘K)ᵀ), with rows k_i = D_i ∘ (b + γAk_i)."""
    generator = np.random.default_rng(seed)
    X, W, A = (generator.normal(size=size) for size in ((N, 2), (2, m), (m, m)))
    net = Network(X, W, A, generator.normal(size=m), gamma0 / norm(A))
    D = net.D.diagonal().reshape((N, m), order="F")
    E = net.E.diagonal().reshape((N, m), order="F")
    K = np.stack([np.linalg.solve(np.eye(m) - net.gamma * np.diag(d) @ A, d * net.b) for d in D])
    np.testing.assert_allclose(net.M @ net.M.T, net.gamma**2 * (net.Z @ net.Z.T) * (K @ K.T), atol=1e-9)
    np.testing.assert_allclose(net.Pi @ net.Pi.T, (X @ X.T) * ((E * K) @ (E * K).T), atol=1e-9)


def test_lemma_3_2_proof_bounds_the_largest_singular_value() -> None:
    """(29) bounds ‖Q‖ from below, which every singular Q with ‖Q‖ = 1 satisfies; ‖Qx‖ ≥ (1 - γ0)‖x‖ is what is needed."""
    singular = np.diag([1.0, 0.0])
    assert norm(singular) > 1.0 - 0.5
    assert last_singular_value(singular) == 0.0


def test_theorem_4_2_proof_has_the_wrong_sign() -> None:
    """dL/dt is +(ŷ - y)ᵀ dŷ/dt, not -(ŷ - y)ᵀ dŷ/dt, which is positive by (10); the line after it is right."""
    generator = np.random.default_rng(4)
    X, W, A, y = (generator.uniform(size=size) for size in ((2, 3), (3, 4), (4, 4), (2,)))
    net = Network(X, W, A, generator.normal(size=4), 0.5 / norm(A))
    assert net.active  # differentiable here
    H = net.Z @ net.Z.T + net.M @ net.M.T + net.Pi @ net.Pi.T
    r = net.Z @ net.b - y
    velocity = -H @ r  # (10)
    gradient_b, gradient_A, gradient_W = net.Z.T @ r, net.M.T @ r, net.Pi.T @ r
    step = 1e-7
    moved = Network(
        X,
        W - step * gradient_W.reshape(W.shape, order="F"),
        A - step * gradient_A.reshape(A.shape, order="F"),
        net.b - step * gradient_b,
        net.gamma,
    )
    r_moved = moved.Z @ moved.b - y
    slope = 0.5 * float((r_moved - r) @ (r_moved + r)) / step
    assert slope == pytest.approx(float(r @ velocity), rel=1e-4)
    assert slope < 0.0 < -float(r @ velocity)


def test_theorem_4_2_proof_differentiates_at_a_kink() -> None:
    """A = I, one active and one inactive unit: U = 0 at the second, and the output has two different one-sided slopes in A."""
    outputs = {}
    for h in (-1e-6, 0.0, 1e-6):
        A = np.array([[1.0, h], [0.0, 1.0]])
        net = Network(np.ones((1, 1)), np.array([[1.0, -1.0]]), A, np.ones(2), 0.5)
        outputs[h] = float((net.Z @ net.b).item())
    assert outputs[-1e-6] == outputs[0.0]
    assert (outputs[1e-6] - outputs[0.0]) / 1e-6 == pytest.approx(2.0, rel=1e-4)


def test_lemma_4_3_proof_bounds_the_wrong_difference() -> None:
    """Its first term Z_aA_a - Z_bA_b is not bounded by ‖Z_a‖‖A_a - A_b‖ (at A_a = A_b, W_a ≠ W_b); Z_aA_a - Z_aA_b is."""
    one = np.ones((1, 1))
    a, b = Network(one, one, one, np.ones(1), 0.5), Network(one, 2.0 * one, one, np.ones(1), 0.5)
    assert norm(a.Z @ a.A - b.Z @ b.A) == pytest.approx(2.0)
    assert norm(a.Z) * norm(a.A - b.A) == 0.0
    assert norm(a.Z @ a.A - a.Z @ b.A) == 0.0


def test_lemma_4_3_proof_takes_the_norms_of_the_wrong_factors() -> None:
    """‖Z‖‖ΔA‖_F ≤ ‖Z‖_F‖ΔA‖ fails for one sample, ‖ΔZ‖‖A‖_F ≤ λ2‖ΔZ‖ for A = I; what is bounded is ‖ZΔA‖_F ≤ ‖Z‖_F‖ΔA‖."""
    Z, difference = np.ones((1, 3)), np.eye(3)
    assert norm(Z) * float(np.linalg.norm(difference)) > float(np.linalg.norm(Z)) * norm(difference)
    assert float(np.linalg.norm(Z @ difference)) <= float(np.linalg.norm(Z)) * norm(difference)
    assert float(np.linalg.norm(np.eye(3))) > norm(np.eye(3))


@settings(max_examples=50)
@given(st.integers(0, 2**31), st.floats(0.01, 0.9), st.floats(1e-6, 1.0))
def test_lemma_4_3_holds(seed: int, gamma0: float, distance: float) -> None:
    """Its statement is right, with spectral norms of the changes and even ‖ΔZ‖_F."""
    generator = np.random.default_rng(seed)
    X, W, A = (generator.normal(size=size) for size in ((3, 2), (2, 4), (4, 4)))
    W2, A2 = (M + distance * generator.normal(size=M.shape) for M in (W, A))
    l1, l2 = max(norm(W), norm(W2)), max(norm(A), norm(A2))
    a, b = (Network(X, *weights, np.ones(4), gamma0 / l2) for weights in ((W, A), (W2, A2)))
    change = gamma0 / (1.0 - gamma0) * l1 / l2 * norm(A - A2) + norm(W - W2)
    assert float(np.linalg.norm(a.Z - b.Z)) <= float(np.linalg.norm(X)) / (1.0 - gamma0) * change + 1e-10


def test_relu_can_enlarge_a_spectral_norm() -> None:
    """(38) with spectral norms is false: X = I, W = [[1, 1], [1, -1]]: 1.618 > 1.414; with ‖X‖_F it holds."""
    X, W = np.eye(2), np.array([[1.0, 1.0], [1.0, -1.0]])
    Phi = relu(X @ W)
    assert norm(Phi) == pytest.approx(0.5 * (1.0 + 5.0**0.5))
    assert norm(X) * norm(W) == pytest.approx(2.0**0.5)
    assert norm(Phi) <= float(np.linalg.norm(X)) * norm(W)
    # at A = 0, Z is Φ: so too with the ‖X‖ that stands for ‖X‖_F in the bounds of A(k + 1) - A(0) and Z(k) - Z(0)
    assert norm(Network(X, W, np.zeros((2, 2)), np.ones(2), 0.5).Z) > norm(X) * norm(W)


@pytest.mark.parametrize("m", [50, 400])
def test_section_5_2_half_normal_matrices_have_norm_of_order_m(m: int) -> None:
    """‖A(0)‖ is about m√(2/π), not O(√m)."""
    A = np.abs(np.random.default_rng(0).normal(size=(m, m)))
    assert norm(A) >= A.sum() / m >= 0.95 * m * (2.0 / np.pi) ** 0.5


def test_section_5_2_equilibrium_is_not_of_the_order_of_the_inputs() -> None:
    """‖Φ(I - γA)⁻¹‖/‖X‖_F grows with the width like √m: 16 times the width, about 4 times the ratio."""
    X = np.random.default_rng(1).normal(size=(5, 10))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    ratios = []
    for m in (50, 800):
        generator = np.random.default_rng(2)
        W, A = generator.normal(size=(10, m)), np.abs(generator.normal(size=(m, m)))
        Z = relu(X @ W) @ np.linalg.inv(np.eye(m) - 0.5 / norm(A) * A)
        ratios.append(norm(Z) / float(np.linalg.norm(X)))
    assert 3.0 < ratios[1] / ratios[0] < 5.0


def test_section_5_2_trace_of_the_limit_gram_matrix() -> None:
    """relu(t)² + relu(-t)² = t², so E‖relu(Xw)‖² = ½ E‖Xw‖²: tr(G*)/N is ½ for unit rows, half of the stated bound."""
    generator = np.random.default_rng(3)
    X = generator.normal(size=(6, 4))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    w = generator.normal(size=(4, 200_000))
    pairs = 0.5 * (relu(X @ w) ** 2 + relu(-X @ w) ** 2)
    np.testing.assert_allclose(pairs, 0.5 * (X @ w) ** 2, atol=1e-12)
    assert float(pairs.sum(axis=0).mean()) / len(X) == pytest.approx(0.5, rel=0.02)


def test_section_5_2_initial_outputs_are_of_the_order_of_the_inputs() -> None:
    """What (28) needs is right all the same: E‖Zb‖² = ‖Z‖_F²/m, and ‖Z‖_F ≤ 2‖Φ‖_F at γ0 = ½ is of the order √m ‖X‖_F."""
    X = np.random.default_rng(1).normal(size=(5, 10))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    for m in (50, 800):
        generator = np.random.default_rng(2)
        W, A = generator.normal(size=(10, m)), np.abs(generator.normal(size=(m, m)))
        Z = relu(X @ W) @ np.linalg.inv(np.eye(m) - 0.5 / norm(A) * A)
        outputs = Z @ generator.normal(size=(m, 200)) / m**0.5
        expected = float(np.linalg.norm(Z)) ** 2 / m
        assert float((outputs**2).sum(axis=0).mean()) == pytest.approx(expected, rel=0.3)
        assert expected <= 4.0 * float(np.linalg.norm(X)) ** 2


def test_section_7_scaling_with_a_fixed_gamma_loses_the_equilibrium() -> None:
    """θ → βθ at A = I and γ = 0.1: from β = 10 on no z ≥ 0 solves z = γβz + φ, φ > 0."""
    phi = 0.3
    for beta in (10.0, 100.0):
        z = np.linspace(0.0, 1e3, 1001)
        assert (relu(0.1 * beta * z + phi) > z).all()


@settings(max_examples=100)
@given(
    st.floats(0.01, 0.99),
    st.floats(1.0, 1e3),
    st.floats(0.0, 10.0),
    st.integers(1, 1000),
    st.floats(0.1, 30.0),
    st.floats(1e-3, 1.0),
    st.floats(1.0, 10.0),
)
def test_section_7_step_one_over_n_does_not_follow(
    g0: float, Q: float, b0: float, N: int, R: float, alpha_share: float, room: float
) -> None:
    """Unit rows: (17), (19) and (20) force η < (1 - γ0)/(256 N³ ‖r0‖), far below 1/N.

    α0² ≤ ‖Z‖_F²/N ≤ λ1²/(1 - γ0)²; (19) gives λ1² ≥ 16 N Q λ3², (17) gives λ3 ≥ 8 √N ‖r0‖ (1 - γ0)/λ1.
    """
    # C3 ≥ k/λ1 is the part λ1/C3 of (17) at α0 = alpha_share λ1/(1 - γ0), and λ1 ≥ c(‖b0‖ + k/λ1) is (19)
    k, c = 8.0 * N**0.5 * R * (1.0 - g0) / alpha_share**2, 4.0 * (N * Q) ** 0.5 / alpha_share
    l1 = room * 0.5 * (c * b0 + (c * c * b0 * b0 + 4.0 * c * k) ** 0.5)
    alpha, C3, F_squared = alpha_share * l1 / (1.0 - g0), k / l1, float(N)
    l3 = b0 + C3
    assert alpha**2 >= 8.0 * (l1 / C3) * F_squared**0.5 * R / (1.0 - g0) * (1.0 - 1e-9)
    assert alpha**2 >= 16.0 * Q * l3**2 * F_squared / (1.0 - g0) ** 2 * (1.0 - 1e-9)
    bar = Q * (Q / l1**2 + 1.0 / l3**2) ** -2
    step = min(4.0 / alpha**2, 2.0 * (1.0 - g0) ** 2 * bar / (l1**4 * l3**2 * F_squared))
    assert step <= (1.0 - g0) / (256.0 * N**3 * R) * (1.0 + 1e-9)


@dataclass
class Descent:
    """Gradient descent from A = I, b = 0 with the adjoint instead of Kronecker products; stops where γ‖A‖ ≥ 1."""

    X: Array
    W: Array
    y: Array
    gamma: float

    def __post_init__(self) -> None:
        self.A, self.b = np.eye(self.W.shape[1]), np.zeros(self.W.shape[1])

    @property
    def posed(self) -> bool:
        return self.gamma * norm(self.A) < 1.0

    def features(self) -> Array:
        Z = Phi = relu(self.X @ self.W)
        for _ in range(300):
            Z = relu(self.gamma * Z @ self.A + Phi)
        return Z

    def step(self, eta: float) -> float:
        """The loss before a step η."""
        Z, XW = self.features(), self.X @ self.W
        r, D = Z @ self.b - self.y, self.gamma * Z @ self.A + relu(XW) > 0
        K = np.zeros_like(Z)
        for _ in range(300):
            K = D * (self.b + self.gamma * K @ self.A.T)
        V = r[:, None] * K
        gradient_A, gradient_W = self.gamma * Z.T @ V, self.X.T @ ((XW > 0) * V)
        self.A, self.W, self.b = self.A - eta * gradient_A, self.W - eta * gradient_W, self.b - eta * Z.T @ r
        return 0.5 * float(r @ r)


@pytest.mark.parametrize("orthogonal", [False, True])
def test_section_7_gamma_08_with_step_one_over_n_is_unstable(orthogonal: bool) -> None:
    """Non-negative unit rows, W ~ N(0, 1/m), A = I, b = 0, γ = .8, η = 1/N: λ_max(H) > 2/η, the first step multiplies the
    loss, and soon γ‖A‖ ≥ 1. At γ = .5 the same step descends.

    The mean of ΦΦᵀ has entries of at least 1/2π there, and Z = Φ/(1 - γ): λ_max(H) is about 4 N or more, at γ = .5 about 2 N at
    most. b = 0, so that H = ZZᵀ.
    """
    N, m = 10, 120
    generator = np.random.default_rng(5)
    X = np.eye(N) if orthogonal else np.abs(generator.normal(size=(N, 30)))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    W, y = generator.normal(size=(X.shape[1], m)) / m**0.5, np.array([0.0, 1.0] * (N // 2))
    collapsing, descending = (Descent(X, W, y, gamma) for gamma in (0.8, 0.5))
    eta = 1.0 / N
    assert norm(collapsing.features()) ** 2 > 1.5 * 2.0 / eta
    first, second = collapsing.step(eta), collapsing.step(eta)
    assert second > 4.0 * first
    for _ in range(3):
        if collapsing.posed:
            collapsing.step(eta)
    assert not collapsing.posed
    losses = [descending.step(eta) for _ in range(20)]
    assert descending.posed
    assert losses[-1] < 0.5 * losses[0]
