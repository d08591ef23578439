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


def test_lemma_4_3_proof_bounds_the_wrong_difference() -> None:
    """Its first term Z_aA_a - Z_bA_b is not bounded by ‖Z_a‖‖A_a - A_b‖ (at A_a = A_b, W_a ≠ W_b); Z_aA_a - Z_aA_b is."""
    one = np.ones((1, 1))
    a, b = Network(one, one, one, np.ones(1), 0.5), Network(one, 2.0 * one, one, np.ones(1), 0.5)
    assert norm(a.Z @ a.A - b.Z @ b.A) == pytest.approx(2.0)
    assert norm(a.Z) * norm(a.A - b.A) == 0.0
    assert norm(a.Z @ a.A - a.Z @ b.A) == 0.0


@settings(max_examples=50)
@given(st.integers(0, 2**31), st.floats(0.01, 0.9), st.floats(1e-6, 1.0))
def test_lemma_4_3_holds(seed: int, gamma0: float, distance: float) -> None:
    """Its statement is right (the spectral norm of X would do)."""
    generator = np.random.default_rng(seed)
    X, W, A = (generator.normal(size=size) for size in ((3, 2), (2, 4), (4, 4)))
    W2, A2 = (M + distance * generator.normal(size=M.shape) for M in (W, A))
    l1, l2 = max(norm(W), norm(W2)), max(norm(A), norm(A2))
    a, b = (Network(X, *weights, np.ones(4), gamma0 / l2) for weights in ((W, A), (W2, A2)))
    change = gamma0 / (1.0 - gamma0) * l1 / l2 * float(np.linalg.norm(A - A2)) + float(np.linalg.norm(W - W2))
    assert norm(a.Z - b.Z) <= float(np.linalg.norm(X)) / (1.0 - gamma0) * change + 1e-10


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
