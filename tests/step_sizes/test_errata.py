"""What is wrong in the paper on learned step sizes, each with its counterexample, and what holds instead."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot._core.evaluation import evaluate
from surefoot._core.plans import PLANS
from surefoot._step_sizes import as_printed as printed

Array = np.ndarray
CASES = {
    case["name"]: case
    for case in json.loads((Path(__file__).parents[1] / "cases" / "learned_steps.json").read_text())["cases"]
}
STATEMENT = PLANS["step-sizes/as-printed"].theorem


def relative_steps(weights: list[Array], x: Array, g: Array) -> tuple[Array, Array]:
    """P (d,) = 2σ(W_L h), and h (n_{L-1}, d), of the network without biases."""
    h = np.stack([x, g])
    for W in weights[:-1]:
        h = np.maximum(W @ h, 0.0)
    z = (weights[-1] @ h)[0]
    return 1.0 + np.tanh(0.5 * z), h


def solve(M: Array, Y: Array, weights: list[Array], x: Array, beta: float, T: int) -> tuple[Array, Array]:
    """x_T and the last inner output."""
    h = np.zeros(0)
    for _ in range(T):
        g = M.T @ (M @ x - Y)
        P, h = relative_steps(weights, x, g)
        x = x - P * g / beta
    return x, h


def quantities(
    M: Array, Y: Array, weights: list[Array], x: Array, T: int, C: list[float] | None = None
) -> dict[str, float]:
    """The base quantities of ``step-sizes/as-printed``."""
    eigenvalues = np.linalg.eigvalsh(M @ M.T)
    beta = float(eigenvalues[-1])
    at, h = solve(M, Y, weights, x, beta, T)
    rank_is_possible = h.shape[0] >= h.shape[1]
    norms = [float(np.linalg.norm(W, 2)) for W in weights]
    return {
        "initial_gap": 0.5 * float(np.sum((M @ at - Y) ** 2)),
        "beta": beta,
        "beta0": float(eigenvalues[0]),
        "norm_X0": float(np.linalg.norm(x)),
        "norm_Y": float(np.linalg.norm(Y)),
        "norm_MtY": float(np.linalg.norm(M.T @ Y)),
        "alpha0": float(np.linalg.svd(h, compute_uv=False)[-1]) if rank_is_possible else 0.0,
        "T": float(T),
        **printed.layer_quantities(norms, C),
    }


def array(value: Any) -> Array:
    return np.array(value, dtype=np.float64)


# -- Theorem 4.7 -------------------------------------------------------------------------------------------------------


def test_the_printed_scalars_agree_with_the_case() -> None:
    case = CASES["theory_generic_T5"]
    given, expected = case["input"], case["expect"]
    weights = [array(W) for W in given["W0"]]
    q = quantities(array(given["M"][0]), array(given["Y"][0]), weights, array(given["X0"][0]), given["T"], given["C"])
    for name in ("beta", "beta0", "norm_MtY", "alpha0"):
        assert q[name] == pytest.approx(expected[name], rel=1e-7)
    assert q["theta"] == pytest.approx(expected["Theta_L"])
    at = printed.scalars(q)
    assert [10.0**v for v in at.lambdas] == pytest.approx(expected["Lambda"], rel=1e-9)
    assert [10.0**v for v in at.phis] == pytest.approx(expected["Phi"], rel=1e-9)
    assert at.delta1 == pytest.approx(expected["log10_delta1_T"], rel=1e-9)
    assert at.delta2 == pytest.approx(expected["log10_delta2"], rel=1e-9)
    assert 10.0**at.delta3 == pytest.approx(expected["delta3"], rel=1e-9)
    assert at.delta4 == pytest.approx(expected["log10_delta4"], rel=1e-9)
    right = printed.right_sides(q)
    names = {"13a": "a", "13b": "b", "13c": "c_printed", "13d": "d_printed", "13d-needed": "d_with_ThetaLm1"}
    for name, key in names.items():
        assert right[name] == pytest.approx(expected["log10_rhs"][key], abs=1e-7)
    assert right["14a"] == pytest.approx(expected["log10_eta_14a_printed"], abs=1e-7)
    assert right["14b"] == pytest.approx(expected["log10_eta_14b"], abs=1e-7)
    decrease = printed.claimed_decrease({**q, "log10_learning_rate": 0.0})
    assert decrease == pytest.approx(expected["log10_rate_coeff_printed_delta4"], abs=1e-7)
    _, conditions, schedule = evaluate(STATEMENT, q)
    assert [c.certain for c in conditions] == [False] * 4 + [True] * 2
    assert schedule == []


def test_theorem_4_7_as_printed_is_false() -> None:
    """All hypotheses hold, the claimed decrease is positive, and the gradient is zero: training stays where it is.

    The residual r is orthogonal to all columns of M but the first, so that only the first coordinate moves; its step is such
    that the first entry of the next gradient vanishes. So a_T⊙g_0 = 0, and with it every entry of the gradient, detached or
    not (T = 1), while F > 0. The proof loses the factor diag(g)² between its (48) and (49).
    """
    M = array([[1.0, 9 / 25, 12 / 25], [0.0, 12 / 25, 16 / 25]])
    scale, size = 2.0**-60, 1e5
    x = array([0.0, scale, -scale])
    residual = scale * array([4 / 5, -3 / 5])
    Y = M @ x - residual
    g = M.T @ residual
    assert g == pytest.approx([0.8 * scale, 0.0, 0.0], abs=1e-15 * scale)
    beta = 1.6  # ‖MᵀM‖, and the first column has norm 1: P_1 = beta makes a_1 vanish
    last = math.log(1.6 / 0.4) / (size * g[0])
    weights = [size * array([[0.0, 1.0], [1.0, 0.0], [-1.0, 0.0]]), array([[last, 0.0, 0.0]])]
    q = quantities(M, Y, weights, x, 1, C=[0.1 * size, 0.1 * last])
    assert (q["beta"], q["beta0"]) == pytest.approx((1.6, 0.4))
    assert q["alpha0"] > 0.0
    full, conditions, schedule = evaluate(STATEMENT, q)
    assert all(c.certain for c in conditions), [str(c) for c in conditions if not c.certain]
    assert all(abs(float(c.left) - float(c.right)) > 1e-10 for c in conditions)
    # the loss is that after the step; it is far from 0, and its gradient is zero
    at, h = solve(M, Y, weights, x, beta, 1)
    a = M.T @ (M @ at - Y)
    P, _ = relative_steps(weights, x, g)
    loss = 0.5 * float(np.sum((M @ at - Y) ** 2))
    assert loss == pytest.approx(0.18 * scale**2, rel=1e-9)
    at_z = -a * g * P * (1.0 - P / 2.0) / beta  # ∂F/∂z_i
    gradients = [weights[-1].T @ at_z[None] * (h > 0.0) @ np.stack([x, g]).T, at_z[None] @ h.T]
    movement = 10.0 ** full["log10_learning_rate"] * sum(float(np.sum(G**2)) for G in gradients)
    claimed = schedule[0].decrease * loss
    assert claimed > 0.0
    assert movement < 1e-12 * claimed  # to first order the true decrease of F in a step


@pytest.mark.parametrize("T", [2, 20, 100])
@pytest.mark.parametrize("start", [0.0, 1.0])
def test_13d_as_the_proof_needs_it_cannot_be_met(T: int, start: float) -> None:
    """σ_min(G) ≤ ‖G‖_F/sqrt(d) ≤ Θ_{L-1}‖(x, g)‖/sqrt(d), far below 8(1+β)Θ_{L-1}(‖X_0‖ + (2T-2)/β‖MᵀY‖)."""
    for seed in range(30):
        g = np.random.default_rng(seed)
        M, Y, x = g.standard_normal((2, 3)), g.standard_normal(2), start * g.standard_normal(3)
        weights = [10.0 ** g.uniform(-2, 2) * g.standard_normal(s) for s in ((4, 2), (6, 4), (1, 6))]
        q = quantities(M, Y, weights, x, T, C=[1e-9] * 3)
        assert printed.log10(q["alpha0"]) < printed.right_sides(q)["13d-needed"]


def test_a_larger_expansion_makes_the_conditions_worse() -> None:
    """At the paper's kind of initialisation the right sides grow faster with e than the left ones."""
    g = np.random.default_rng(0)
    M, Y = g.standard_normal((2, 3)), g.standard_normal(2)
    M = M / np.linalg.norm(M, axis=0)
    orthogonal = [np.linalg.qr(g.standard_normal(s))[0] for s in ((2, 2), (6, 2))]
    missing: list[float] = []
    for e in (1.0, 5.0, 25.0, 100.0):
        q = quantities(M, Y, [*(e * W for W in orthogonal), np.zeros((1, 6))], np.zeros(3), 5)
        q["alpha0"] = max(q["alpha0"], 1e-6 * e * e)  # as if the inner output had full rank
        missing.append(printed.right_sides(q)["13a"] - 2.0 * printed.log10(q["alpha0"]))
    assert missing == sorted(missing)
    assert missing[0] > 4.0


def test_only_sensible_layers_are_accepted() -> None:
    for norms, C in (([1.0], None), ([1.0, 2.0], [1.0]), ([1.0, 2.0], [1.0, 0.0])):
        with pytest.raises(ValueError, match="positive C for each of at least two layers"):
            printed.layer_quantities(norms, C)


# -- lemmas ------------------------------------------------------------------------------------------------------------


def test_lemma_A_3_is_false_and_what_holds() -> None:
    case = CASES["lemmaA3_norms"]
    M, beta = array(case["input"]["M"]), case["input"]["beta"]
    for P, on_x, on_r in zip(case["input"]["P"], case["expect"]["norm_x"], case["expect"]["norm_r"], strict=True):
        P = array(P)
        map_x, map_r = np.eye(2) - P[:, None] * (M.T @ M) / beta, np.eye(1) - M @ (P[:, None] * M.T) / beta
        assert np.linalg.norm(map_x, 2) == pytest.approx(on_x, abs=1e-12)
        assert np.linalg.norm(map_r, 2) == pytest.approx(on_r, abs=1e-12)
        assert on_x <= math.sqrt(1.0 + float(np.abs(P - 1.0).max()) ** 2) + 1e-12
        assert on_r < 1.0
    assert max(case["expect"]["norm_x"]) > 1.4  # the lemma says below 1
    at_the_end = np.eye(2) - np.array([2.0, 0.0])[:, None] * (M.T @ M) / beta
    assert np.linalg.norm(at_the_end, 2) == pytest.approx(case["expect"]["sup_over_P"], abs=1e-12)


def test_lemma_4_2_is_false_for_another_start_than_zero_and_what_holds() -> None:
    case = CASES["lemma42_counterexample"]
    given = case["input"]
    M, Y, x = array(given["M"][0]), array(given["Y"][0]), array(given["X0"][0])
    at, _ = solve(M, Y, [array(W) for W in given["W"]], x, given["beta"], given["T"])
    assert at == pytest.approx(case["expect"]["X_T"][0], abs=1e-12)
    norm, bound = float(np.linalg.norm(at)), float(np.linalg.norm(x))
    assert norm > 1.41 * bound  # ‖MᵀY‖ = 0
    assert norm <= math.sqrt(2.0) * bound * (1.0 + 1e-12)


@pytest.mark.parametrize("start", [0.0, 1.0])
def test_the_iterates_stay_below_the_corrected_bound(start: float) -> None:
    """‖X_t‖ ≤ sqrt(t+1)‖X_0‖ + (1 + sqrt(t))‖ΠY‖/sqrt(β), for P chosen to make ‖X_t‖ large."""
    closest = 0.0
    for seed in range(200):
        g = np.random.default_rng(seed)
        d = int(g.integers(1, 5))
        M = g.standard_normal((int(g.integers(1, d + 2)), d)) * 10.0 ** g.uniform(-1, 1, d)
        Y = g.standard_normal(len(M)) * g.integers(0, 2)
        x = x0 = start * g.standard_normal(d)
        beta = float(np.linalg.norm(M, 2) ** 2)
        explained = float(np.linalg.norm(M @ np.linalg.lstsq(M, Y, rcond=None)[0]))
        for t in range(1, 8):
            gradient = M.T @ (M @ x - Y)
            choices = [g.integers(0, 2, d) * 2.0 for _ in range(6)]
            x = max((x - P * gradient / beta for P in choices), key=lambda v: float(np.linalg.norm(v)))
            bound = math.sqrt(t + 1) * np.linalg.norm(x0) + (1.0 + math.sqrt(t)) * explained / math.sqrt(beta)
            assert np.linalg.norm(x) <= bound * (1.0 + 1e-9) + 1e-12
            closest = max(closest, float(np.linalg.norm(x)) / bound if bound > 0.0 else 0.0)
    assert closest > 0.5


def test_products_of_the_maps_stay_below_the_root() -> None:
    """‖B_t⋯B_1‖ ≤ sqrt(t+1), nearly attained at t = 1."""
    largest = 0.0
    for seed in range(300):
        g = np.random.default_rng(seed)
        d = int(g.integers(2, 5))
        M = g.standard_normal((int(g.integers(1, d + 1)), d))
        H = M.T @ M / np.linalg.norm(M, 2) ** 2
        product = np.eye(d)
        for t in range(1, 7):
            maps = [(np.eye(d) - (g.integers(0, 2, d) * 2.0)[:, None] * H) @ product for _ in range(8)]
            product = max(maps, key=lambda B: float(np.linalg.norm(B, 2)))
            ratio = float(np.linalg.norm(product, 2)) / math.sqrt(t + 1)
            assert ratio <= 1.0 + 1e-12
            largest = max(largest, ratio)
    assert largest > 0.95


def test_a_rate_for_the_objective_itself_would_be_false() -> None:
    """With F* > 0 the theorem must speak of F - F*: here ϱ = 0 and F does not change."""
    M, Y = array([[1.0], [0.0]]), array([0.0, 1.0])
    x = array([0.0])
    after = x - M.T @ (M @ x - Y)
    assert 0.5 * np.sum((M @ after - Y) ** 2) == 0.5 == 0.5 * np.sum((M @ x - Y) ** 2)


# -- the proximal step -------------------------------------------------------------------------------------------------


def soft(x: Array, threshold: Array | float) -> Array:
    return np.sign(x) * np.maximum(np.abs(x) - threshold, 0.0)


def test_beyond_two_the_lasso_objective_increases() -> None:
    P, lam, x = 2.5, 0.1, array([1.0])
    after = soft(x - P * x, P * lam)
    assert after == pytest.approx([-1.25])
    values = [0.5 * float(v[0]) ** 2 + lam * abs(float(v[0])) for v in (x, after)]
    assert values == pytest.approx([0.6, 0.90625])


def test_beyond_two_the_logistic_loss_increases() -> None:
    """Samples m and -m with equal labels: f = 2 log(2 cosh(x/2)), f''(0) = ½ = β."""
    M, x, P = array([1.0, -1.0]), 0.1, 2.1
    gradient = float(-np.sum(M / (1.0 + np.exp(M * x))))
    after = x - P * gradient / 0.5
    assert after == pytest.approx(-0.1098, abs=1e-4)
    loss = [float(np.sum(np.log1p(np.exp(-M * v)))) for v in (x, after)]
    assert loss[1] > loss[0]


def test_step_and_threshold_must_share_their_factor() -> None:
    """At the minimiser, a threshold of twice the step's moves away."""
    lam, x = 0.5, array([0.5])
    after = soft(x - (x - 1.0), 2.0 * lam)
    values = [0.5 * float(v[0] - 1.0) ** 2 + lam * abs(float(v[0])) for v in (x, after)]
    assert values == pytest.approx([0.375, 0.5])
    assert soft(x - (x - 1.0), lam) == pytest.approx(x)
