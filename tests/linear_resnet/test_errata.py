"""Every erratum of the linear ResNet paper as an executable counterexample (docs/errata.md names these tests).

Paper: On the Global Convergence of Training Deep Linear ResNets.
Nothing of the package is used: the few formulas needed stand below, written from the statements. Samples are columns, as in
the paper: X (d, n), Y (k, n), f(X) = B (I + W_L) … (I + W_1) A X, loss ½‖f(X) − Y‖²_F, W (L, m, m).
"""

import math
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

Array = NDArray[np.float64]
E = math.e


def norm(a: Array) -> float:
    return float(np.linalg.norm(a, 2))


def last_singular_value(a: Array) -> float:
    return float(np.linalg.svd(a, compute_uv=False)[-1])


def features(A: Array, X: Array, W: Array) -> list[Array]:
    """A X, (I + W_1) A X, …, (I + W_L) … A X."""
    outputs = [A @ X]
    for layer in W:
        outputs.append(outputs[-1] + layer @ outputs[-1])
    return outputs


def loss_and_gradient(A: Array, B: Array, W: Array, X: Array, Y: Array) -> tuple[float, Array]:
    outputs = features(A, X, W)
    residual = B @ outputs[-1] - Y
    gradient, back = np.empty_like(W), B.T @ residual
    for layer in range(len(W) - 1, -1, -1):
        gradient[layer] = back @ outputs[layer].T
        back = back + W[layer].T @ back
    return float((residual**2).sum()) / 2, gradient


def descend(
    A: Array, B: Array, X: Array, Y: Array, depth: int, eta: float, steps: int
) -> Iterator[tuple[float, Array]]:
    """Losses and weights of gradient descent from zero weights."""
    W = np.zeros((depth, len(A), len(A)))
    for _ in range(steps):
        loss, gradient = loss_and_gradient(A, B, W, X, Y)
        yield loss, W
        W = W - eta * gradient


def optimal_loss(X: Array, Y: Array) -> float:
    return float(((Y - Y @ np.linalg.pinv(X) @ X) ** 2).sum()) / 2


def gains(A: Array, B: Array, X: Array) -> tuple[float, float]:
    """J̲ = σ_min(A) σ_min(B) σ_r(X) and J̄ = ‖A‖‖B‖‖X‖ for data of full row rank."""
    low = last_singular_value(A) * last_singular_value(B) * last_singular_value(X)
    return low, norm(A) * norm(B) * norm(X)


def theorem_3_1_step(high: float, depth: int, loss: float) -> float:
    return 1 / (2 * depth * high * (math.sqrt(E * loss) + E * high / 2))


def random_ball_point(rng: np.random.Generator, depth: int, width: int) -> Array:
    """Weights with ‖W_l‖_F = .5/L, many of them of rank one."""
    W = rng.normal(size=(depth, width, width))
    if rng.random() < 0.5:
        W = rng.normal(size=(depth, width, 1)) * rng.normal(size=(depth, 1, width))
    return W * (0.5 / depth / np.linalg.norm(W, axis=(1, 2)))[:, None, None]


def test_lemma_b2_needs_symmetric_matrices() -> None:
    """λ_min(U) tr V ≤ tr UV ≤ λ_max(U) tr V: for other matrices with positive eigenvalues, or xᵀUx > 0, it is false."""
    for t in (3.0, 1.9):
        U, V = np.array([[1.0, t], [0.0, 1.0]]), np.array([[1.0, 0.0], [-t, 1.0]])
        assert np.linalg.eigvals(U).tolist() == [1.0, 1.0] == np.linalg.eigvals(V).tolist()
        assert (np.linalg.eigvalsh(U + U.T)[0] > 0) == (t < 2)
        assert np.trace(V) == 2.0
        assert np.trace(U @ V) == pytest.approx(2 - t**2)
        assert np.trace(U @ V) < 0
    rng = np.random.default_rng(0)
    for _ in range(50):
        U, V = (f @ f.T for f in rng.normal(size=(2, 4, 3)))
        low, high = np.linalg.eigvalsh(U)[[0, -1]]
        assert low * np.trace(V) - 1e-9 <= np.trace(U @ V) <= high * np.trace(V) + 1e-9


def test_lemmas_a1_and_a2_hold_with_half_the_constant_of_the_residual() -> None:
    """A.2 has √(2eL); √(eL/2) suffices, above and below, since Σ_{l>s} a_l a_s ≤ ½ (Σ a_l)²."""
    rng = np.random.default_rng(1)
    largest = 0.0
    for _ in range(400):
        depth = int(rng.integers(1, 6))
        A, B, X = rng.normal(size=(4, 2)), rng.normal(size=(3, 4)), rng.normal(size=(2, 5))
        Y = 10 ** rng.uniform(-1, 2) * rng.normal(size=(3, 5))
        low, high = gains(A, B, X)
        W, V = random_ball_point(rng, depth, 4), random_ball_point(rng, depth, 4)
        if rng.random() < 0.5:
            V = W + 0.01 * (V - W)
        loss, gradient = loss_and_gradient(A, B, W, X, Y)
        squares = (gradient**2).sum((1, 2))
        gap = loss - optimal_loss(X, Y)
        assert (squares >= 2 / E * low**2 * gap * (1 - 1e-9)).all()
        assert (squares <= 2 * E * high**2 * gap * (1 + 1e-9)).all()
        excess = loss_and_gradient(A, B, V, X, Y)[0] - loss - float((gradient * (V - W)).sum())
        moved = float(((V - W) ** 2).sum())
        bilinear = depth * high * math.sqrt(E * loss / 2) * moved
        assert -bilinear <= excess * (1 + 1e-9) <= bilinear + depth * high**2 * E / 2 * moved + 1e-9 * loss
        largest = max(largest, excess / bilinear)
    assert largest > 0.01


def test_step_of_theorem_3_1_does_not_follow_from_lemma_a2_as_printed() -> None:
    """The proof needs η L J̄ (c √L + ½ e J̄) ≤ ½, where c = √(2e) is what A.2 has and c = √e what the proof uses."""
    high, depth, loss = 2.0, 3, 7.0
    eta = theorem_3_1_step(high, depth, loss)

    def left(c: float) -> float:
        return eta * depth * high * (c * math.sqrt(loss) + E * high / 2)

    assert left(math.sqrt(2 * E)) > 0.5
    assert left(math.sqrt(E)) == pytest.approx(0.5)
    assert left(math.sqrt(E / 2)) < 0.5


@pytest.mark.parametrize("depth", [1, 4, 9])
def test_theorem_3_1_holds_with_its_constants(depth: int) -> None:
    rng = np.random.default_rng(depth)
    A, B, X = rng.normal(size=(5, 2)), rng.normal(size=(2, 5)), rng.normal(size=(2, 6))
    low, high = gains(A, B, X)
    direction = rng.normal(size=(2, 2)) @ X
    allowed = (low**2 / high / (4 * math.sqrt(2 * E**3))) ** 2  # of the gap
    Y = B @ A @ X + math.sqrt(2 * allowed / (direction**2).sum()) * direction
    loss = allowed
    eta = theorem_3_1_step(high, depth, loss)
    factor = 1 - eta * depth * low**2 / E
    for t, (value, W) in enumerate(descend(A, B, X, Y, depth, eta, 60)):
        assert value <= loss * factor**t * (1 + 1e-9)
        assert np.linalg.norm(W, axis=(1, 2)).max() <= 0.5 / depth


def test_equation_a3_lacks_the_square_of_sigma_r() -> None:
    """Two scalar layers, y = −x: (1 + w)² never turns negative, though (A.3) as printed holds for small data."""
    constant, c = 4 * math.sqrt(2 * E**3), 0.01
    gap = 2 * c**2
    assert constant * (c / c) * math.sqrt(gap) <= 1
    assert constant * (c / c**2) * math.sqrt(gap) > 1
    eta, p = theorem_3_1_step(c, 2, gap), 1.0  # p = 1 + w, the same in both layers by symmetry
    for _ in range(20_000):
        p -= eta * p * (p**2 + 1) * c**2
    assert c**2 / 2 <= (p**2 + 1) ** 2 * c**2 / 2 < 0.26 * gap  # a saddle, reached and not left
    # the corrected condition does not change with the unit of the data, as the end-to-end map does not
    assert constant * (c / c**2) * math.sqrt(gap) == pytest.approx(constant * math.sqrt(2))


def test_proofs_of_corollaries_3_7_and_3_9_turn_the_batch_ratio_around() -> None:
    """With σ²_min(A)σ²_min(B)/(‖A‖‖B‖) = m and √L(0) = √(m q), condition (A.17) reads m ≥ (n/B) √(m q)."""
    samples, batch, q = 1000, 10, 3.0

    def holds(m: float) -> bool:
        return m >= samples / batch * math.sqrt(m * q) * (1 - 1e-12)

    assert not holds(q * batch / samples)
    assert not holds(q)
    assert holds(q * samples**2 / batch**2)
    assert not holds(0.99 * q * samples**2 / batch**2)


def theorem_3_6_step(
    ratio: float, depth: int, samples: int, batch: int, start: float, delta: float
) -> tuple[float, float]:
    """Fixed point (η, T) of Theorem 3.6 for L* = 0, J̄ = 1, J̲ = ``ratio``, log(L(0)/ε') = ``start``."""
    eta, iterations = 0.0, 1.0
    for _ in range(200):
        logs = math.log(iterations / delta) * start
        eta = math.log(2) ** 2 * batch**2 * ratio**2 / (18 * E**3 * depth * samples**2 * logs)
        iterations = E / (eta * depth * ratio**2) * start
    return eta, iterations


def test_equation_a16_has_the_root_of_a_negative_number() -> None:
    depth, samples, batch, delta = 3, 8, 2, 1 / 6
    eta, iterations = theorem_3_6_step(0.5, depth, samples, batch, math.log(30), delta)
    assert math.log(delta / iterations) < 0
    bound = math.log(2) * batch / (3 * E * depth * samples)
    assert math.sqrt(iterations) * eta <= bound / math.sqrt(2 * math.log(iterations / delta)) * (1 + 1e-9)
    # an equality only at the largest step: half of it, with its own T, is below
    smaller, more = eta / 2, 2 * iterations
    assert math.sqrt(more) * smaller < 0.8 * bound / math.sqrt(2 * math.log(more / delta))


def test_one_sided_azuma_fails_for_increments_bounded_only_above() -> None:
    """Increments 1 with probability 1 − p, −(1 − p)/p otherwise: a martingale that rises by n with probability (1 − p)ⁿ."""
    n, p, delta = 100, 1e-4, 0.01
    assert (1 - p) * 1 + p * (-(1 - p) / p) == pytest.approx(0.0, abs=1e-12)
    claimed = math.sqrt(2 * n * math.log(1 / delta))
    assert n > 3 * claimed
    assert (1 - p) ** n > 0.99 > delta


def test_logarithm_of_the_loss_has_increments_bounded_on_both_sides() -> None:
    """What repairs 3.6 and 3.8: |log L(t) − log L(t−1)| ≤ u/(1−u), u = 3eηL n J̄²/B, by A.2 from below as well.

    The printed process is log 0 once the target is reached, and its next difference is not a number; stopped, it is finite.
    """
    rng = np.random.default_rng(2)
    depth, samples, batch = 3, 8, 2
    A, X = rng.normal(size=(4, 2)), rng.normal(size=(2, samples))
    B = 40 * rng.normal(size=(2, 4))
    Y = (B @ A + 0.05 * rng.normal(size=(2, 2))) @ X
    _, high = gains(A, B, X)
    W = np.zeros((depth, 4, 4))
    loss = loss_and_gradient(A, B, W, X, Y)[0]
    assert high >= 2 * math.sqrt(2 * loss / E)
    eta = 0.05 * batch / (3 * E * depth * samples * high**2)
    u, target = 0.05, loss / 3
    process = [math.log(loss)]
    for _ in range(2000):
        rows = rng.choice(samples, batch, replace=False)
        W = W - eta * samples / batch * loss_and_gradient(A, B, W, X[:, rows], Y[:, rows])[1]
        assert np.linalg.norm(W, axis=(1, 2)).max() <= 0.5 / depth
        following = loss_and_gradient(A, B, W, X, Y)[0]
        assert -u / (1 - u) <= math.log(following / loss) <= u
        loss = following
        process.append(math.log(loss))
        if loss <= target:
            break
    assert loss <= target
    with np.errstate(divide="ignore", invalid="ignore"):
        printed = np.log(np.array([0.0, 0.0]))
        assert printed[0] == -math.inf and math.isnan(printed[1] - printed[0])
    assert np.isfinite(process).all()


def test_theorem_3_8_holds_with_either_constant() -> None:
    """−at + b√t ≤ b²/(4a), so 24 would do with increments 4eηLnJ̄²/B; the paper's b²/a gives 96, and 54 with 3e for 4e."""
    ratio, depth, samples, batch, logarithm = 0.4, 5, 30, 3, 6.0  # J̄ = 1, J̲ = ratio

    def needed(c: float, eta: float, share: float) -> float:
        """share · b²/a for a = ηLJ̲²/(3e), b = c η L n/B √(2 log(T/δ)), over ηLn² log/(B²J̲²)."""
        a = eta * depth * ratio**2 / (3 * E)
        b = c * eta * depth * samples / batch * math.sqrt(2 * logarithm)
        return share * b**2 / a / (eta * depth * samples**2 * logarithm / (batch**2 * ratio**2))

    eta = 1e-3
    assert needed(4 * E, eta, 1.0) == pytest.approx(96 * E**3)
    assert needed(3 * E, eta, 1.0) == pytest.approx(54 * E**3)
    assert needed(4 * E, eta, 0.25) == pytest.approx(24 * E**3)
    a, b = 0.7, 3.0
    t = np.linspace(0, 50, 100_001)
    assert (-a * t + b * np.sqrt(t)).max() == pytest.approx(b**2 / (4 * a))


def test_equation_a19_does_not_give_the_printed_power() -> None:
    """e^{−tx} is more than (1 − x)^t; the power follows from log(1 − 4x/3) ≤ log(1 − x) − x/3, kept to the end."""
    for x in (0.01, 0.2, 0.5):
        assert math.exp(-200 * x) > 1.01 * (1 - x) ** 200
    for x in np.linspace(1e-6, 0.749, 500):
        assert math.log1p(-4 * x / 3) <= math.log1p(-x) - x / 3


def test_theorem_3_8_is_void_for_one_step_and_delta_near_one() -> None:
    """log(T/δ) → 0 admits any step; one full-batch step on one sample then leaves the bound for certain."""
    one, delta, depth = np.ones((1, 1)), 1 - 1e-4, 1
    Y = 1 + np.full((1, 1), 0.02)
    losses = []
    eta = math.log(2) / (96 * E**3 * math.log(1 / delta))
    for loss, _ in descend(one, one, one, Y, depth, eta, 2):
        losses.append(loss)
    assert 4 * math.sqrt(2 * E**3) * math.sqrt(2 * losses[0]) <= 1
    assert losses[1] > 2 * losses[0]
    assert losses[1] > 2 * losses[0] * (1 - eta / E)
    assert eta > 1 / (6 * E * depth)  # which the proof says that it has excluded


def test_proposition_3_3_takes_too_large_a_deviation() -> None:
    """The printed width leaves room for t = √(2 log(12/δ)), whose probability is the one that is used, not for 2√log(12/δ)."""
    for delta, size in ((0.5, 1), (0.01, 1), (0.01, 100)):
        logarithm = math.log(12 / delta)
        root = 10 * (math.sqrt(size) + math.sqrt(2 * logarithm))  # √m
        assert math.sqrt(size) + 2 * math.sqrt(logarithm) > 0.1 * root
        t = math.sqrt(2 * logarithm)
        assert math.sqrt(size) + t <= 0.1 * root * (1 + 1e-12)
        assert 4 * math.exp(-(t**2) / 2) == pytest.approx(delta / 3)  # two matrices, two sides each


def test_proposition_3_3_needs_three_n_over_delta() -> None:
    """δ' = δ/(3n): 1 + 2√ℓ + 2ℓ ≤ 5ℓ for ℓ = log(3n/δ) ≥ 1, not ≤ 5 log(2n/δ)."""
    for samples, delta in ((1, 0.9), (2, 0.9), (1, 0.5)):
        ell = math.log(3 * samples / delta)
        left = 1 + 2 * math.sqrt(ell) + 2 * ell
        assert left > 5 * math.log(2 * samples / delta)
        assert left <= 5 * ell


class Identity:
    """The identity transformations on the paper's data, in the 10 coordinates that ever move: U = √(m/k) P_L … P_1."""

    def __init__(self, dimension: int, noise: float, seed: int, width: int = 40, depth: int = 10) -> None:
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(dimension, 1000))
        Y = -X + noise * rng.normal(size=X.shape)
        self.second_moment = X @ X.T
        self.root = np.linalg.cholesky(self.second_moment)
        self.optimum = np.linalg.solve(self.second_moment, X @ Y.T).T
        self.scale, self.depth, self.dimension = math.sqrt(width / dimension), depth, dimension
        self.norm_X = norm(X)
        self.step = theorem_3_1_step(self.scale * self.norm_X, depth, float(((self.scale * X - Y) ** 2).sum()) / 2)

    def run(self, eta: float, steps: int) -> Iterator[tuple[float, Array]]:
        """(gap, U) of gradient descent."""
        layers = [np.eye(self.dimension)] * self.depth
        for _ in range(steps):
            before = [np.eye(self.dimension)]
            for P in layers:
                before.append(P @ before[-1])
            U = self.scale * before[-1]
            yield float((((U - self.optimum) @ self.root) ** 2).sum()) / 2, U
            back = self.scale * (U - self.optimum) @ self.second_moment
            for index in range(self.depth - 1, -1, -1):
                P = layers[index]
                layers[index] = P - eta * back @ before[index].T
                back = P.T @ back


def test_identity_transformations_escape_in_ten_dimensions() -> None:
    """Not stuck: a plateau for some thousand iterations, then convergence (16 times the theorem's step)."""
    problem = Identity(10, 0.1, seed=1)
    gaps = []
    for gap, _ in problem.run(16 * problem.step, 7000):
        gaps.append(gap)
        if gap <= 1e-6 * gaps[0]:
            break
    assert gaps[500] > 0.1 * gaps[0]
    assert 5000 < len(gaps) < 6500
    assert gaps[-1] <= 1e-6 * gaps[0]


def test_identity_transformations_stay_without_noise() -> None:
    """Y = −X: every layer is the same polynomial in XXᵀ with positive eigenvalues, so ⟨UX, Y⟩ ≤ 0 and the loss is ≥ ½‖Y‖²."""
    problem = Identity(10, 0.0, seed=1)
    last, end = math.inf, np.eye(10)
    for last, end in problem.run(16 * problem.step, 2500):
        assert last >= np.trace(problem.second_moment) / 2 * (1 - 1e-9)
        assert np.abs(end - end.T).max() <= 1e-12
    assert last <= np.trace(problem.second_moment) / 2 * 1.01
    assert np.linalg.eigvalsh(end)[0] > -1e-9


def test_identity_transformations_stay_in_nine_dimensions() -> None:
    """det U stays positive and det of the optimum is negative, so that a singular matrix lies between (Eckart–Young)."""
    problem = Identity(9, 0.1, seed=0)
    assert np.linalg.det(problem.optimum) < 0
    floor = last_singular_value(problem.optimum @ problem.root) ** 2 / 2
    last = math.inf
    for last, U in problem.run(8 * problem.step, 6000):
        assert np.linalg.det(U) > 0
        assert last >= floor
    assert last <= 3 * floor


def additive(radius: Array | float, gain: Array) -> tuple[Array, float]:
    """(z, μ) of Lemma 3 with additive deflation only, at A = B = I_2, X = diag(1, ½), W = 0: per layer or joint radius."""
    depth = len(gain)
    forward, backward = np.ones(depth), np.ones(depth)
    for layer in range(1, depth):
        inner = forward[:layer]
        forward[layer] += radius[:layer] @ inner if isinstance(radius, np.ndarray) else radius * norm(inner[:, None])
        outer = backward[depth - layer :]
        moved = radius[depth - layer :] @ outer if isinstance(radius, np.ndarray) else radius * norm(outer[:, None])
        backward[depth - layer - 1] += moved
    w = np.maximum(2 - backward, 0) * np.maximum(gain - (forward - 1), 0)
    return forward * backward, float((w**2).sum())


def test_additive_deflation_does_not_give_theorem_3_1() -> None:
    """With the gap at the edge of the paper's condition the least per-layer radii diverge; the product form closes at 1/(2L)."""
    depth = 10
    gain = np.full(depth, 0.5)
    root_gap = 0.25 / (4 * math.sqrt(2) * E**1.5)
    radius = np.zeros(depth)
    mu = 1.0
    for _ in range(50):  # increases to the least feasible radii, if there are any
        z, mu = additive(radius, gain)
        if mu == 0:
            break
        following = 2 * math.sqrt(2) * root_gap * z / mu
        assert (following > radius).all()
        radius = following
    assert mu == 0
    rho = 1 / (2 * depth)
    z_product, mu_product = (1 + rho) ** (depth - 1), depth * (0.5 * (1 - rho) ** (depth - 1)) ** 2
    assert 2 * math.sqrt(2) * root_gap * z_product / mu_product <= rho
    # the joint radius does not need the product form here
    joint = 0.0
    for _ in range(200):
        joint = 2 * math.sqrt(2) * root_gap / math.sqrt(additive(joint, gain)[1])
    assert 2 * math.sqrt(2) * root_gap / math.sqrt(additive(1.001 * joint, gain)[1]) <= 1.001 * joint


def test_corollary_2_covers_ill_conditioned_data() -> None:
    """J̲ ≥ 8√2 √gap without the condition number: X = diag(1, .01) is far outside Theorem 3.1 and converges at the rate."""
    depth, low, high = 5, 0.01, 1.0
    X = np.diag([high, low])
    root_gap = low / (8 * math.sqrt(2))
    direction = np.array([[0.0, 1.0], [1.0, 0.0]])
    Y = X + root_gap * direction  # ½‖·‖²_F = root_gap²
    assert low**2 / high < 0.03 * 4 * math.sqrt(2) * E**1.5 * root_gap
    eta = 1 / (depth * high * (E * high + math.sqrt(2 * E) * root_gap))
    factor = 1 - eta * depth * low**2 / 4
    for t, (loss, _) in enumerate(descend(np.eye(2), np.eye(2), X, Y, depth, eta, 2000)):
        assert loss <= root_gap**2 * factor**t * (1 + 1e-9)
