"""The lemmas of the paper on learned step sizes, one by one: which hold, on which condition, and what refutes the others."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from surefoot._step_sizes import as_printed as printed
from surefoot._step_sizes.as_printed_initialisation import initialisation

Array = np.ndarray
CASES = {
    case["name"]: case
    for case in json.loads((Path(__file__).parents[1] / "cases" / "learned_steps.json").read_text())["cases"]
}
ROUNDING = 1.0 + 1e-9


def norm(A: Array) -> float:
    return float(np.linalg.norm(A, 2))


@dataclass(frozen=True)
class Run:
    """T steps on one problem.

    Attributes:
        X: X_0 … X_T.
        gradients: Γ_0 … Γ_T, Γ_t = Mᵀ(MX_t - Y).
        G: of each step the layers' inputs, (X_{t-1}, Γ_{t-1}) first, (n_ℓ, d).
        P: of each step.
    """

    M: Array
    Y: Array
    weights: list[Array]
    X: list[Array]
    gradients: list[Array]
    G: list[list[Array]]
    P: list[Array]

    @property
    def beta(self) -> float:
        return norm(self.M) ** 2

    @property
    def T(self) -> int:
        return len(self.P)

    @property
    def residual(self) -> float:
        return norm(self.M @ self.X[-1] - self.Y)

    def q(self, t: int) -> Array:
        """∂F/∂z of step t, with the network's inputs held fixed."""
        a = self.gradients[-1]
        for j in range(self.T, t, -1):
            a = a - self.M.T @ (self.M @ (self.P[j - 1] * a)) / self.beta
        P = self.P[t - 1]
        return -a * self.gradients[t - 1] * P * (1.0 - P / 2.0) / self.beta

    def weight_gradients(self) -> list[Array]:
        """∂F/∂W_ℓ with the inputs held fixed, by backpropagation."""
        sums = [np.zeros_like(W) for W in self.weights]
        for t in range(1, self.T + 1):
            delta = self.q(t)[None]
            for layer in reversed(range(len(sums))):
                inputs = self.G[t - 1][layer]
                sums[layer] += delta @ inputs.T
                delta = (self.weights[layer].T @ delta) * (inputs > 0.0)
        return sums


def run(M: Array, Y: Array, weights: list[Array], x: Array, T: int) -> Run:
    beta = norm(M) ** 2
    X, gradients, G, P = [x], [M.T @ (M @ x - Y)], [], []
    for _ in range(T):
        layers = [np.stack([X[-1], gradients[-1]])]
        for W in weights[:-1]:
            layers.append(np.maximum(W @ layers[-1], 0.0))
        P.append(1.0 + np.tanh(0.5 * (weights[-1] @ layers[-1])[0]))
        G.append(layers)
        X.append(X[-1] - P[-1] * gradients[-1] / beta)
        gradients.append(M.T @ (M @ X[-1] - Y))
    return Run(M, Y, weights, X, gradients, G, P)


def drawn(seed: int, T: int, start: float = 0.0, layers: int = 3) -> Run:
    """Sizes, scales, conditioning and weights all vary; every other network saturates."""
    g = np.random.default_rng(seed)
    d = int(g.integers(1, 6))
    M = 10.0 ** g.uniform(-2, 2) * g.standard_normal((int(g.integers(1, d + 1)), d)) * 10.0 ** g.uniform(-1, 1, d)
    Y = 10.0 ** g.uniform(-2, 2) * g.standard_normal(len(M))
    widths = [2, *(int(g.integers(1, 5)) for _ in range(layers - 1)), 1]
    weights = [10.0 ** g.uniform(-2, 1) * g.standard_normal((b, a)) for a, b in pairwise(widths)]
    return run(M, Y, weights, start * g.standard_normal(d), T)


@dataclass(frozen=True)
class Constants:
    """(12), from numbers λ̄ that bound the norms of the weights."""

    lambdas: list[float]
    phis: list[float]
    theta: float
    bars: list[float]

    def drift(self, beta: float, last: int, upto: int) -> float:
        """Σ_{s≤last} Π_{s<j≤upto} (1 + (1+β)/2 Θ Φ_j) Λ_s."""
        total = 0.0
        for s in range(1, last + 1):
            growth = math.prod(1.0 + 0.5 * (1.0 + beta) * self.theta * phi for phi in self.phis[s:upto])
            total += growth * self.lambdas[s - 1]
        return total


def constants(at: Run, *others: Run) -> Constants:
    x0, back, beta = norm(at.X[0]), norm(at.M.T @ at.Y), at.beta
    lambdas = [
        (1.0 + beta) * x0**2
        + ((4 * j - 3) * (1.0 + beta) + beta) / beta * x0 * back
        + (2 * j - 1) * (beta * (2 * j - 1) + 2 * j - 2) / beta**2 * back**2
        for j in range(1, at.T + 1)
    ]
    phis = [x0 + (2 * j - 1) / beta * back for j in range(1, at.T + 1)]
    bars = [max(norm(W) for W in group) for group in zip(at.weights, *(o.weights for o in others), strict=True)]
    return Constants(lambdas, phis, math.prod(bars), bars)


def moved(at: Run, seed: int, size: float) -> Run:
    """The same problem with other weights."""
    g = np.random.default_rng(10_000 + seed)
    weights = [W + size * norm(W) * g.standard_normal(W.shape) for W in at.weights]
    return run(at.M, at.Y, weights, at.X[0], at.T)


def trained(at: Run, rate: float) -> Run:
    """After a step of training with the gradient that the paper trains with."""
    steps = zip(at.weights, at.weight_gradients(), strict=True)
    return run(at.M, at.Y, [W - rate * G for W, G in steps], at.X[0], at.T)


# -- the gradient: (6), (7), (30) ---------------------------------------------------------------------------------------


def test_the_gradient_has_the_gradient_before_the_step_and_the_maps_in_order() -> None:
    """(6) with diag(Γ_{t-1}) in place of diag(Γ_T), and (7) with I - diag(P)MᵀM/β in place of I - MᵀM diag(P)/β, are the gradient
    with the inputs held fixed; as printed they are not. At T = 1 that is the gradient of F."""
    at = drawn(3, 4)
    H = at.M.T @ at.M / at.beta

    def of_last_layer(used: list[Array], maps: list[Array]) -> Array:
        total = np.zeros_like(at.weights[-1])
        for t in range(1, at.T + 1):
            row = at.gradients[-1]
            for j in range(at.T, t, -1):
                row = row @ maps[j - 1]
            P = at.P[t - 1]
            total -= (row * used[t - 1] * P * (1.0 - P / 2.0))[None] @ at.G[t - 1][-1].T / at.beta
        return total

    maps = [np.eye(len(P)) - P[:, None] * H for P in at.P]
    exact = at.weight_gradients()[-1]
    assert of_last_layer(at.gradients, maps) == pytest.approx(exact, rel=1e-9)
    assert of_last_layer([at.gradients[-1]] * at.T, maps) != pytest.approx(exact, rel=0.1)  # (6)
    assert of_last_layer(at.gradients[1:], maps) != pytest.approx(exact, rel=0.1)  # (7): Γ_t
    assert of_last_layer(at.gradients, [B.T for B in maps]) != pytest.approx(exact, rel=1e-3)  # (7): the order
    one, size = drawn(3, 1), 1e-6
    for layer, gradient in enumerate(one.weight_gradients()):
        shifted = []
        for sign in (1.0, -1.0):
            weights = [W + sign * size * (k == layer) for k, W in enumerate(one.weights)]
            shifted.append(0.5 * run(one.M, one.Y, weights, one.X[0], 1).residual ** 2)
        assert (shifted[0] - shifted[1]) / (2.0 * size) == pytest.approx(float(gradient.sum()), rel=1e-4)


# -- bounds that hold from X_0 = 0 --------------------------------------------------------------------------------------


def test_lemma_4_3_holds_from_zero_and_in_a_sharper_form_from_everywhere() -> None:
    """‖a_t‖ ≤ sqrt(β)‖r_T‖, since I - M diag(P)Mᵀ/β has norm at most 1: the gradient is at most
    ½Θ/(λ̄ sqrt(β)) ‖r_T‖ Σ ‖Γ_{t-1}‖_∞ ‖(X_{t-1}, Γ_{t-1})‖_F for every X_0."""
    closest = sharpest = 0.0
    for seed in range(150):
        at = drawn(seed, 1 + seed % 6, float(seed % 2))
        c = constants(at)
        spent = sum(float(np.abs(at.gradients[t]).max()) * norm(at.G[t][0].ravel()) for t in range(at.T))
        for gradient, bar in zip(at.weight_gradients(), c.bars, strict=True):
            sharp = 0.5 * c.theta / bar / math.sqrt(at.beta) * at.residual * spent
            assert norm(gradient) <= sharp * ROUNDING + 1e-300
            sharpest = max(sharpest, norm(gradient) / sharp if sharp > 0.0 else 0.0)
            if seed % 2 == 0:
                bound = 0.5 * math.sqrt(at.beta) * c.theta / bar * sum(c.lambdas) * at.residual
                assert norm(gradient) <= bound * ROUNDING + 1e-300
                closest = max(closest, norm(gradient) / bound if bound > 0.0 else 0.0)
    assert closest > 0.1 and sharpest > 0.9


def test_lemma_4_5_was_not_violated_from_zero() -> None:
    closest = 0.0
    for seed in range(150):
        at = drawn(seed, 1 + seed % 5)
        other = moved(at, seed, 10.0 ** (-seed % 4))
        c = constants(at, other)
        change = sum(norm(V - W) / bar for W, V, bar in zip(at.weights, other.weights, c.bars, strict=True))
        for t in range(1, at.T + 1):
            bound = 0.5 * c.theta * c.drift(at.beta, t, t) * change
            assert norm(at.X[t] - other.X[t]) <= bound * ROUNDING + 1e-300
            closest = max(closest, norm(at.X[t] - other.X[t]) / bound if bound > 0.0 else 0.0)
    assert closest > 0.1


def test_lemmas_a7_and_a9_hold_if_both_sets_of_weights_are_bounded() -> None:
    closest = [0.0, 0.0]
    for seed in range(120):
        at = drawn(seed, 3, float(seed % 2))
        other = moved(at, seed, 10.0 ** (-seed % 4))
        c = constants(at, other)
        changes = [norm(V - W) / bar for W, V, bar in zip(at.weights, other.weights, c.bars, strict=True)]
        for t in range(at.T):
            apart = (1.0 + at.beta) * norm(at.X[t] - other.X[t])
            inputs = norm(at.X[t]) + norm(at.gradients[t])
            pairs = [(0, len(changes), 0.5 * c.theta, float(np.abs(at.P[t] - other.P[t]).max()))]
            for layer in range(1, len(changes)):
                difference = norm(at.G[t][layer] - other.G[t][layer])
                pairs.append((1, layer, math.prod(c.bars[:layer]), difference))
            for which, layers, factor, difference in pairs:
                bound = factor * (apart + inputs * sum(changes[:layers]))
                assert difference <= bound * ROUNDING
                closest[which] = max(closest[which], difference / bound)
    assert min(closest) > 0.5


def test_lemma_a7_needs_both_sets_of_weights_bounded() -> None:
    """The lemma bounds W^{k+1} alone. With W^k = 1 and W^{k+1} = λ̄ = ε the right side falls like ε, and P^k stays."""
    x, epsilon = 1.0, 1e-6
    before, after = (1.0 + math.tanh(0.5 * w * w * x) for w in (1.0, epsilon))
    bound = 0.5 * x * epsilon**2 * 2.0 * (1.0 - epsilon) / epsilon  # M = Y = 0 but for rounding: one coordinate, Γ = 0
    assert abs(before - after) > 0.4 > 1e5 * bound


def test_lemma_a10_and_the_bounds_a19_and_a20_were_not_violated_from_zero() -> None:
    """Certain is Σ_{j<t} sqrt(j) for t-1, and sqrt(t) for 2t-1 (Theorem 7), in the Frobenius norm."""
    closest = 0.0
    for seed in range(150):
        at = drawn(seed, 1 + seed % 8)
        c, back = constants(at), norm(at.M.T @ at.Y)
        for t in range(1, at.T + 1):
            reach = (2 * t - 1 + (2 * t - 2) / at.beta) * back
            certain = (2.0 / at.beta * sum(math.sqrt(j) for j in range(1, t)) + math.sqrt(t)) * back
            for layer in range(1, len(c.bars)):
                bound = reach * math.prod(c.bars[:layer])
                assert norm(at.G[t - 1][layer]) <= bound * ROUNDING
                assert norm(at.G[t - 1][layer].ravel()) <= certain * math.prod(c.bars[:layer]) * ROUNDING
                closest = max(closest, norm(at.G[t - 1][layer]) / bound)
            z = at.weights[-1] @ at.G[t - 1][-1]
            assert float(np.abs(z).max()) <= reach * c.theta * ROUNDING
    assert closest > 0.5
    A = np.array([[1.0, 1.0], [1.0, -1.0]])
    assert norm(np.maximum(A, 0.0)) > 1.1 * norm(A)  # so spectral norms do not multiply through a ReLU


def test_lemma_a10_is_false_from_another_start() -> None:
    """M = ε(1, -1), Y = 0, X_0 = (1, 0): with W_1 = (1, 0) and W_2 → -∞ the first step has P = (0, 1)."""
    epsilon = 1e-3
    M, x = epsilon * np.array([[1.0, -1.0]]), np.array([1.0, 0.0])
    at = run(M, np.zeros(1), [np.array([[1.0, 0.0]]), np.array([[-1e3]])], x, 2)
    assert at.P[0] == pytest.approx([0.0, 1.0], abs=1e-12)
    assert norm(at.G[1][1]) == pytest.approx(math.sqrt(1.25))
    assert norm(at.G[1][1]) > 1.1 * (1.0 + at.beta) * norm(x)


# -- one step of training: Lemmas A.12, A.14, A.15, A.16 ----------------------------------------------------------------


def test_lemmas_a14_and_a15_hold_from_zero_with_the_norm_squared() -> None:
    """(39) ends in ‖MX_T - Y‖; its proof gives the square, and the printed power is refuted by the scale."""
    closest, refuted = [0.0, 0.0], False
    for seed in range(0, 300, 2):
        at, scale = drawn(seed, 1 + seed % 4), 1e4 if seed % 4 == 0 else 1.0
        at = run(at.M, scale * at.Y, [*at.weights[:-1], at.weights[-1] / scale], at.X[0], at.T)
        rate = 10.0 ** np.random.default_rng(seed).uniform(-6, 0) / scale**2
        after = trained(at, rate)
        c, beta, loss = constants(at, after), at.beta, 0.5 * at.residual**2
        total, inverse = sum(c.lambdas), sum(bar**-2 for bar in c.bars)
        change = norm(at.M @ (after.X[-1] - at.X[-1]))
        coefficient = beta**2 * rate**2 / 16.0 * (c.drift(beta, at.T, at.T) * total * c.theta**2 * inverse) ** 2
        assert 0.5 * change**2 <= coefficient * loss * ROUNDING + 1e-300
        refuted = refuted or 0.5 * change**2 > 1.01 * coefficient * 0.5 * at.residual
        # Z has the new last layer on the old inputs
        P = 1.0 + np.tanh(0.5 * (after.weights[-1] @ at.G[-1][-1])[0])
        Z = at.X[-2] - P * at.gradients[-2] / beta
        left = abs(float((after.X[-1] - Z) @ at.gradients[-1]))  # its proof bounds the size
        bound = (
            0.5 * beta * rate * (c.lambdas[-1] + c.drift(beta, at.T - 1, at.T)) * c.theta**2 * inverse * total * loss
        )
        assert left <= bound * ROUNDING + 1e-300
        closest[0] = max(closest[0], 0.5 * change**2 / (coefficient * loss) if coefficient * loss > 0.0 else 0.0)
        closest[1] = max(closest[1], left / bound if bound > 0.0 else 0.0)
    assert refuted and closest[0] > 0.1 and closest[1] > 1e-6


def stuck() -> tuple[Run, float]:
    """The instance of ``test_theorem_4_7_as_printed_is_false``, where the gradient is zero, and α0."""
    M, scale, size = np.array([[1.0, 9 / 25, 12 / 25], [0.0, 12 / 25, 16 / 25]]), 2.0**-60, 1e5
    x = scale * np.array([0.0, 1.0, -1.0])
    Y = M @ x - scale * np.array([4 / 5, -3 / 5])
    last = math.log(4.0) / (size * 0.8 * scale)
    weights = [size * np.array([[0.0, 1.0], [1.0, 0.0], [-1.0, 0.0]]), np.array([[last, 0.0, 0.0]])]
    at = run(M, Y, weights, x, 1)
    return at, float(np.linalg.svd(at.G[0][1], compute_uv=False)[-1])


def test_lemma_a16_and_corollary_a17_are_false_and_so_is_a12() -> None:
    """Z = X_T where the gradient is zero, and both claim that (Z - X_T)ᵀMᵀ(MX_T - Y) is negative; A.12 that F falls."""
    at, alpha0 = stuck()
    c, beta0 = constants(at), float(np.linalg.eigvalsh(at.M @ at.M.T)[0])
    assert alpha0 > 0.0 and at.residual > 0.0
    sizes = [norm(G) * bar for G, bar in zip(at.weight_gradients(), c.bars, strict=True)]
    assert max(sizes) < 1e-12 * at.residual**2
    slope = 10.0 ** (printed.log_sigmoid_slope(0.8 * 2.0**-60 * c.theta))
    claimed = -8.0 * slope**2 * beta0**2 / at.beta**2 * alpha0**2 * 0.5 * at.residual**2  # T = 1: nothing is added
    P = at.P[0]
    lost = at.q(1)[None] @ at.G[0][1].T @ at.G[0][1]
    measured = float((lost[0] * P * (1.0 - P / 2.0) * at.gradients[0]) @ at.gradients[1]) / at.beta
    assert claimed < 0.0 and abs(measured) < 1e-9 * abs(claimed)


def test_lemma_a18_holds() -> None:
    """2σ(1 - σ) is least at an end of an interval."""
    g = np.random.default_rng(0)
    for _ in range(200):
        b, B = sorted(g.uniform(-8.0, 8.0, 2))
        values = 0.5 / np.cosh(0.5 * np.append(np.linspace(b, B, 300), [b, B])) ** 2
        assert values[:-2].min() >= values[-2:].min() * (1.0 - 1e-12)


def test_equation_33_lacks_the_last_layer() -> None:
    """P → 2 for a large W_L, where the right side is 1 and a little; with ‖W_L‖ it holds."""
    at = run(np.array([[1.0]]), np.array([0.01]), [np.array([[0.0, -1.0]]), np.array([[1e3]])], np.zeros(1), 1)
    reach = 0.5 * (norm(at.X[0]) + norm(at.gradients[0])) * norm(at.weights[0])
    assert float(at.P[0].max()) > 1.9 > 1.2 > reach + 1.0
    for seed in range(60):
        at = drawn(seed, 2, 1.0)
        bound = 1.0 + 0.5 * (norm(at.X[1]) + norm(at.gradients[1])) * math.prod(norm(W) for W in at.weights)
        assert float(at.P[1].max()) <= bound * ROUNDING


def test_equation_10_has_the_start_on_the_right() -> None:
    """For gradient descent F(X_T) ≤ (β/T)‖X_0 - X*‖²; with X_T on the right it fails for a small singular value."""
    M = np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.0]])
    x, best, loss = np.zeros(3), np.array([1.0, 2.0, 0.0]), math.inf
    for T in range(1, 31):
        x = x - M.T @ (M @ x - M @ best)
        loss = 0.5 * norm(M @ (x - best)) ** 2
        assert loss <= norm(best) ** 2 / T
    assert loss > 2.0 * norm(x - best) ** 2 / 30


def test_conditions_13c_and_14a_are_not_what_equation_52_gives() -> None:
    """(52) subtracts both drifts, so (13c) has a plus; and bounds η by 8/(β δ1 ΣΛ Θ² Σλ̄^-2), δ1 = δ2 + Λ_T."""
    case = CASES["theory_generic_T5"]
    given, expected = case["input"], case["expect"]
    beta, theta, bars = expected["beta"], expected["Theta_L"], expected["lam_bar"]
    delta1, delta2 = (10.0 ** expected[name] for name in ("log10_delta1_T", "log10_delta2"))
    lambdas, inverse = expected["Lambda"], sum(bar**-2 for bar in bars)
    assert delta1 == pytest.approx(delta2 + lambdas[-1], rel=1e-9)
    drift = theta**2 * inverse * delta1 * sum(lambdas)
    inner = 0.5 * (theta / bars[-1]) ** 2 * lambdas[-1] * sum(lambdas[:-1])
    front = (
        3.0 * math.log10(beta) - 2.0 * math.log10(expected["beta0"]) - math.log10(4.0) - 2.0 * expected["log10_delta4"]
    )
    for name, sign in (("c_printed", -1.0), ("c_sign_fixed", 1.0)):
        assert front + math.log10(drift + sign * inner) == pytest.approx(expected["log10_rhs"][name], abs=1e-7)
    needed = math.log10(8.0 / (beta * delta1 * sum(lambdas) * theta**2 * inverse))
    assert needed == pytest.approx(expected["log10_eta_14a_derived"], abs=1e-7)
    assert needed < expected["log10_eta_14a_printed"] - 2.0  # the printed condition admits steps 200 times too long
    assert given["T"] == 5


# -- appendix B ---------------------------------------------------------------------------------------------------------


def test_delta_5_to_7_agree_with_the_case() -> None:
    case = CASES["theory_generic_T5"]
    given, expected = case["input"], case["expect"]
    M, Y = np.array(given["M"][0]), np.array(given["Y"][0])
    found = initialisation(M, Y, given["T"], expected["Theta_L"])
    assert found.delta5_needed == pytest.approx(expected["log10_delta5_as_delta4_inv2"], rel=1e-9)
    assert found.delta6 == pytest.approx(expected["delta6_printed"], rel=1e-7)
    assert expected["delta7_printed_is_zero"] and found.delta7 < 1e-14
    assert found.delta7_needed == pytest.approx(expected["delta7_exponent_fixed"], rel=1e-9)
    assert found.delta5 <= math.log10(16.0) < found.delta5_needed


def test_delta_5_as_printed_is_bounded_and_what_the_lemmas_need_is_not() -> None:
    """σ(1 - σ(u)) in place of 1 - σ(u): "the numerical stability of δ5" is that of the misprint."""
    M, Y = np.array([[1.0, 1.0]]), np.array([1.0])
    for theta in (1e-3, 1.0, 1e2):
        found = initialisation(M, Y, 4, theta)
        assert 0.6 < found.delta5 <= math.log10(16.0)
    assert found.delta5_needed > 500.0


def test_delta_7_is_zero_with_the_printed_exponent_of_equation_54() -> None:
    """X_{T-1} has the powers T-1-t: with T-t the direction of the largest singular value is lost."""
    at = drawn(7, 6)
    M, Y, beta = at.M, at.Y, at.beta
    step = np.eye(M.shape[1]) - M.T @ M / beta
    x = np.zeros(M.shape[1])
    for _ in range(5):
        x = x - M.T @ (M @ x - Y) / beta
    powers = [np.linalg.matrix_power(step, k) @ M.T @ Y / beta for k in range(6)]
    assert sum(powers[:5]) == pytest.approx(x, rel=1e-9)
    assert sum(powers[1:]) != pytest.approx(x, rel=1e-3)
    assert initialisation(M, Y, 6, 1.0).delta7 < 1e-12


def inner(e: float, T: int, seed: int = 0) -> tuple[Run, float]:
    """The paper's kind of initialisation on 2x3, L = 3 with a wide second layer; α0."""
    g = np.random.default_rng(seed)
    M = g.standard_normal((2, 3))
    weights = [
        e * np.linalg.qr(g.standard_normal((40, 2)))[0],
        e * np.linalg.qr(g.standard_normal((40, 40)))[0],
        np.zeros((1, 40)),
    ]
    at = run(M, g.standard_normal(2), weights, np.zeros(3), T)
    return at, float(np.linalg.svd(at.G[-1][2], compute_uv=False)[-1])


def test_the_smallest_singular_value_grows_like_e_to_the_inner_layers() -> None:
    """(60) claims e^{TL-1}. With W_L = 0 the iterates do not depend on e, and α0 is exactly e^{L-1} times that of e = 1."""
    for T in (2, 5):
        one = inner(1.0, T)[1]
        assert one > 0.0
        for e in (2.0, 100.0):
            assert inner(e, T)[1] == pytest.approx(e**2 * one, rel=1e-9)


def test_equation_55_is_false() -> None:
    """A first layer that is off everywhere has inner outputs of 0, whatever the singular values of its matrix."""
    M, Y = np.eye(2, 3), np.array([1.0, 2.0])
    first = np.array([[-1.0, 1.0], [-1.0, 2.0]])  # X ≥ 0 and Γ ≤ 0
    at = run(M * np.array([1.0, 0.5, 1.0]), Y, [first, np.eye(2), np.zeros((1, 2))], np.zeros(3), 3)
    columns = np.linalg.svd(at.G[-1][0], compute_uv=False)
    assert columns[-1] > 0.01 and np.linalg.svd(first, compute_uv=False)[-1] > 0.1
    assert norm(at.G[-1][2]) == 0.0


@pytest.mark.parametrize("condition", ["13a", "13b", "13c", "13d-needed"])
def test_lemmas_5_1_to_5_3_go_the_other_way(condition: str) -> None:
    """The right sides hold δ4^-2, which grows like exp(2 δ3 Θ_L), or Θ_{L-1}: a larger e is farther from the conditions."""
    power = {"13a": 2.0, "13b": 3.0, "13c": 2.0, "13d-needed": 1.0}[condition]
    missing = []
    for e in (1.0, 5.0, 25.0, 100.0):
        at, alpha0 = inner(e, 5)
        q = {
            "beta": at.beta,
            "beta0": float(np.linalg.eigvalsh(at.M @ at.M.T)[0]),
            "norm_X0": 0.0,
            "norm_Y": norm(at.Y),
            "norm_MtY": norm(at.M.T @ at.Y),
            "alpha0": alpha0,
            "T": 5.0,
            **printed.layer_quantities([norm(W) for W in at.weights]),
        }
        missing.append(printed.right_sides(q)[condition] - power * math.log10(alpha0))
    assert min(missing) > 0.0
    if condition != "13d-needed":
        assert missing == sorted(missing)


def test_lemma_5_4_needs_an_expansion_that_grows_geometrically() -> None:
    """(13d) as printed has no e on its right, so that some e meets it for a given T; but α0 falls as the gradient does, and the
    needed e^{L-1}/T grows without bound, where T^{1/(L-1)} is claimed."""
    needed = []
    for T in (10, 20, 40, 80):
        at, alpha0 = inner(1.0, T, 1)
        right = 8.0 * (1.0 + at.beta) * (2 * T - 2) / at.beta * norm(at.M.T @ at.Y)
        needed.append(right / alpha0 / T)
        e = 1.01 * math.sqrt(right / alpha0)
        assert inner(e, T, 1)[1] > right
    ratios = [b / a for a, b in pairwise(needed)]
    assert min(ratios) > 1.5 and ratios == sorted(ratios)
