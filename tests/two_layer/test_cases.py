"""Every value of the 40-digit reference cases (tests/cases/two_layer_linear.json), in both engines.

Constants agree to 1e-8 and trajectories to 1e-6 relative, the tolerances that the cases state.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import surefoot as sf
from surefoot._core.certificate import publish
from surefoot._core.measuring import stored
from surefoot._core.plans import PLANS
from surefoot._two_layer import planner
from surefoot._two_layer.engines import ENGINES, Engine
from surefoot._two_layer.iterate import Iterate
from surefoot._two_layer.system import TwoLayerSystem, reduced_weights
from surefoot_check.two_layer import SYSTEM
from surefoot_check.two_layer.corrected import barred
from surefoot_check.two_layer.drift import DECREASE, KAPPA

Case = dict[str, Any]
CONSTANT, TRAJECTORY = 1e-8, 1e-6
NOISE = 1e-18
"""Relative gap below which a float64 trajectory is rounding noise."""

with (Path(__file__).resolve().parents[1] / "cases" / "two_layer_linear.json").open() as _file:
    CASES: dict[str, Case] = {case["name"]: case for case in json.load(_file)["cases"]}


def having(key: str) -> list[str]:
    """Names of the cases with a value for ``key``."""
    return [name for name, case in CASES.items() if case["expected"].get(key) is not None]


@cache
def problem(name: str) -> tuple[sf.nn.TwoLayerLinear, sf.Loss]:
    case = CASES[name]
    data = case["loss"]
    net = sf.nn.TwoLayerLinear(case["W1_0"], case["W2_0"])
    if data["kind"] == "softmax":
        return net, sf.SoftmaxRegression(data["X"], data["labels"], data["lam"], data["m"])
    return net, sf.SquaredLoss(data["X"], data["Y"])


@cache
def quantities(name: str, theorem: str = "two-layer/corrected") -> dict[str, float]:
    """Base quantities without slack, the cases' c and d, and what ``theorem`` derives from them."""
    case, (net, loss) = CASES[name], problem(name)
    checked, weights = stored(SYSTEM, loss, TwoLayerSystem().reduced(net, loss))
    rigorous = SYSTEM.enclosures
    measured = publish(rigorous.base_quantities(checked, weights, {}), SYSTEM.directions, slack=0.0)
    q = {**measured, **rigorous.sizes(checked, weights), "c": case["c"], "d": case["d"]}
    # λ_min(WWᵀ) is 0 if W has more rows than columns; no theorem asks for it
    smallest = [np.linalg.svd(W)[1][-1] if W.shape[0] <= W.shape[1] else 0.0 for W in weights.values()]
    q["sigma_min_squared"] = float(np.square(smallest).sum())
    q |= PLANS[theorem].parameters(q)
    return {**q, **PLANS[theorem].theorem.derived(q)}


def start(name: str, engine: str) -> Engine:
    net, loss = problem(name)
    return ENGINES[engine](loss.reduced, *reduced_weights(net, loss))


def iterate(name: str) -> Iterate:
    return start(name, "weights").iterate


def close(expected: Any, rel: float) -> Any:
    """Relative agreement alone; by default pytest would also allow an absolute 1e-12."""
    return pytest.approx(expected, rel=rel, abs=0.0)


def agree(value: float, expected: float, scale: float, tolerance: float = CONSTANT) -> bool:
    """Relative agreement; where 0 is expected, up to the rounding of numbers of size ``scale``."""
    return math.isclose(value, expected, rel_tol=tolerance, abs_tol=1e-13 * scale if expected == 0.0 else 0.0)


@pytest.mark.parametrize("name", CASES)
def test_problem_constants(name: str) -> None:
    net, loss = problem(name)
    expected = CASES[name]["expected"]
    assert (loss.shape, net.width) == ((CASES[name]["n"], CASES[name]["m"]), CASES[name]["h"])
    assert agree(loss.smoothness, expected["K"], 1.0)
    assert agree(loss.strong_convexity, expected["mu"], 1.0)
    assert agree(loss.optimal_value, expected["l_star"], 1.0)
    torch.testing.assert_close(
        loss.optimum, torch.tensor(expected["W_star"], dtype=torch.float64), rtol=CONSTANT, atol=1e-13
    )
    assert agree(loss.gap(net.end_to_end().detach()), expected["loss_gap_0"], 1.0)


BASE = {
    "K": "smoothness",
    "mu": "strong_convexity",
    "loss_gap_0": "initial_gap",
    "lambda_plus": "lambda_plus",
    "lambda_minus": "lambda_minus",
    "sigma_min2_T0": "sigma_min_squared",
    "sigma_max2_T0": "sigma_max_squared",
    "beta_1": "beta1",
    "beta_2": "beta2",
    "alpha_1_corrected": "alpha1",
    "alpha_2": "alpha2",
}


@pytest.mark.parametrize("symbol", BASE)
@pytest.mark.parametrize("name", CASES)
def test_quantities(name: str, symbol: str) -> None:
    q = quantities(name)
    assert agree(q[BASE[symbol]], CASES[name]["expected"][symbol], q["sigma_max_squared"])


@pytest.mark.parametrize("name", CASES)
def test_imbalance_spectrum(name: str) -> None:
    q, expected = quantities(name), CASES[name]["expected"]
    scale = q["sigma_max_squared"]
    assert agree(q["lambda_plus"] - q["lambda_n"], expected["Delta_plus"], scale)
    assert agree(q["lambda_minus"] - q["lambda_m"], expected["Delta_minus"], scale)
    assert agree(q["lambda_n"] + q["lambda_m"], expected["underline_Delta"], scale)


@pytest.mark.parametrize("name", CASES)
def test_published_quantities_err_on_the_safe_side(name: str) -> None:
    q, expected = quantities(name), CASES[name]["expected"]
    assert q["alpha1"] <= expected["alpha_1_corrected"]
    assert q["beta1"] <= expected["beta_1"]
    assert q["beta2"] >= expected["beta_2"] and q["alpha2"] >= expected["alpha_2"]
    assert q["smoothness"] >= expected["K"] * (1.0 - 1e-15) and q["strong_convexity"] <= expected["mu"] * (1.0 + 1e-15)
    assert q["initial_gap"] >= expected["loss_gap_0"]


@pytest.mark.parametrize("name", CASES)
def test_printed_alpha1(name: str) -> None:
    q, expected = quantities(name, "two-layer/as-printed"), CASES[name]["expected"]
    assert agree(q["alpha1"], expected["alpha_1_as_printed"], q["sigma_max_squared"])


def test_printed_alpha1_exceeds_the_true_value_in_the_counterexample() -> None:
    name = "n2_m1_counterexample_printed_alpha1"
    s_minus = quantities(name)["sigma_min_squared"]
    assert quantities(name, "two-layer/as-printed")["alpha1"] > 1.9 * s_minus
    assert quantities(name)["alpha1"] <= s_minus


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_local_smoothness_of_the_paper(name: str, engine: str) -> None:
    expected = CASES[name]["expected"]
    point = start(name, engine).iterate
    k0, k1, k2 = point.printed
    assert agree(problem(name)[1].strong_convexity * point.sigma_min_squared, expected["mu_0"], point.sigma_max_squared)
    assert point.printed == close(expected["K_0_coefficients"], CONSTANT)
    for eta, value in expected["K_0_at_eta"].items():
        assert k0 + float(eta) * (k1 + float(eta) * k2) == close(value, CONSTANT)
    assert planner.cubic_root(k0, k1, k2) == close(expected["root_eta_times_K0_eq_1"], CONSTANT)
    # d/dη (-2μη + μη²K(η)) = 0 is the same kind of cubic
    assert planner.cubic_root(k0, 1.5 * k1, 2.0 * k2) == close(expected["argmin_of_rho_in_eta"], CONSTANT)


def coarser_sharp(point: Iterate) -> tuple[float, float, float]:
    """K' as the cases have it: its last coefficient has ‖g‖_F² where Theorem I has the smaller ‖g‖‖g‖_F."""
    k0, k1, _ = point.sharp
    return k0, k1, 0.5 * point.loss.smoothness * point.map_norm * point.gradient_frobenius**2


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_sharper_smoothness(name: str, engine: str) -> None:
    expected = CASES[name]["expected"]
    point = start(name, engine).iterate
    coarse = coarser_sharp(point)
    assert coarse == close(expected["Kprime_0_coefficients_improved"], CONSTANT)
    assert planner.cubic_root(*coarse) == close(expected["root_eta_times_Kprime0_eq_1"], CONSTANT)
    assert point.sharp[2] <= coarse[2] * (1.0 + 1e-14)
    rank_one = point.gradient_norm / point.gradient_frobenius
    assert point.sharp[2] == close(coarse[2] * rank_one, CONSTANT)


def check_path(
    engine: Engine,
    expected: Case,
    rule: Callable[[Engine], float],
    each: Callable[[int, float, Engine], None] | None = None,
) -> None:
    """Follow ``rule`` and compare every step and gap with the case."""
    gaps = expected["loss_gap"]
    for t, eta in enumerate(expected["eta"]):
        step = rule(engine)
        assert step == close(eta, TRAJECTORY), f"step {t}"
        if each is not None:
            each(t, step, engine)
        engine.move(step)
        if gaps[t + 1] > NOISE * gaps[0]:
            assert engine.iterate.gap == close(gaps[t + 1], TRAJECTORY), f"gap {t + 1}"
        else:
            assert engine.iterate.gap <= 10.0 * NOISE * gaps[0]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", having("uncapped_1_over_Kt"))
def test_local_rule(name: str, engine: str) -> None:
    check_path(start(name, engine), CASES[name]["expected"]["uncapped_1_over_Kt"], sf.steps.Local().step)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", having("improved_1_over_Kprime_t"))
def test_sharper_steps(name: str, engine: str) -> None:
    expected = CASES[name]["expected"]["improved_1_over_Kprime_t"]
    moving = start(name, engine)

    def rule(current: Engine) -> float:
        return planner.cubic_root(*coarser_sharp(current.iterate))

    check_path(moving, expected, rule)
    for _ in range(10 - len(expected["eta"])):
        moving.move(rule(moving))
    for layer, weights in moving.weights().items():
        target = torch.tensor(expected[f"{layer}_10"], dtype=torch.float64)
        torch.testing.assert_close(weights, target, rtol=TRAJECTORY, atol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", having("exact_line_search_first_positive_root"))
def test_exact_line_search(name: str, engine: str) -> None:
    expected = CASES[name]["expected"]["exact_line_search_first_positive_root"]
    check_path(start(name, engine), expected, sf.steps.ExactLineSearch().step)


@pytest.mark.parametrize("name", having("eta_max"))
def test_largest_first_step(name: str) -> None:
    q, expected = quantities(name), CASES[name]["expected"]
    assert agree(q["e1"], expected["eta_0_1_eq87"], 1.0)
    assert agree(q["e3"], expected["eta_0_3_log"], 1.0)
    assert agree(q["eta_max"], expected["eta_max"], 1.0)
    second = expected["eta_0_2_eq88_if_smaller_than_the_others"]
    if second is None:
        assert q["e2"] >= q["eta_max"]
    else:
        assert agree(q["e2"], second, 1.0)


def test_no_first_step_without_alpha1() -> None:
    q = quantities("alpha1_zero")
    assert CASES["alpha1_zero"]["expected"]["eta_max"] is None
    assert q["initial_step"] == 0.0 and "eta_max" not in q
    failed = [c.name for c in PLANS["two-layer/corrected"].theorem.conditions(q) if not c.certain]
    assert failed == ["imbalance and margin: alpha1 > 0", "first step: eta0 > 0"]


@cache
def paper_certificate(name: str) -> sf.Certificate:
    """A certificate of the corrected theorem with the case's η0, c and d."""
    theorem, expected = PLANS["two-layer/corrected"].theorem, CASES[name]["expected"]
    q = {**quantities(name), "initial_step": expected["eta_0_used"]}
    q |= theorem.derived(q)
    schedule = tuple(PLANS[theorem.id].schedule(q))
    return dataclasses.replace(sf.certify(*problem(name), theorem=theorem.id), quantities=q, schedule=schedule)


@pytest.mark.parametrize("name", having("eta_0_used"))
def test_rate_of_the_linear_theorem(name: str) -> None:
    certificate, expected = paper_certificate(name), CASES[name]["expected"]
    q = certificate.quantities
    assert q["mu_bar"] == close(expected["mu_bar"], CONSTANT)
    assert q["K_bar0"] == close(expected["Kbar_0"], CONSTANT)
    bars = barred(q, expected["eta_0_used"])
    assert bars["rate_loss"] == close(1.0 - expected["rho_bar_0"], CONSTANT)
    assert bars["delta_loss"] == close(1.0 - expected["Delta"], CONSTANT)
    assert (q["rho_bar"], q["delta"]) == close((expected["rho_bar_0"], expected["Delta"]), CONSTANT)
    assert all(c.certain for c in PLANS["two-layer/corrected"].theorem.conditions(q))


@pytest.mark.parametrize("name", having("Kbar_t"))
def test_global_smoothness_by_iteration(name: str) -> None:
    rule = sf.steps.PaperRhoBar()
    rule.start(problem(name)[1], paper_certificate(name))
    for t, value in enumerate(CASES[name]["expected"]["Kbar_t"]):
        assert 1.0 / rule._limit(iterate(name), t) == close(value, CONSTANT)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", having("scheduler_eq19_rho"))
def test_paper_schedule_rho(name: str, engine: str) -> None:
    expected = CASES[name]["expected"]["scheduler_eq19_rho"]
    certificate = paper_certificate(name)
    rule = sf.steps.PaperRho()
    rule.start(problem(name)[1], certificate)
    product = [expected["loss_gap"][0]]

    def each(t: int, eta: float, moving: Engine) -> None:
        point = moving.iterate
        k0, k1, k2 = point.printed
        smoothness = k0 + eta * (k1 + eta * k2)
        mu = problem(name)[1].strong_convexity * point.sigma_min_squared
        assert mu == close(expected["mu_t"][t], TRAJECTORY)
        assert smoothness == close(expected["K_t"][t], TRAJECTORY)
        product.append(product[-1] * (1.0 - 2.0 * mu * eta + mu * smoothness * eta * eta))
        assert point.gap <= certificate.bound(t) * (1.0 + 1e-12)
        assert certificate.bound(t) == close(expected["bound_eq17"][t], TRAJECTORY)

    check_path(start(name, engine), expected, rule.step, each)
    assert product == close(expected["bound_eq20_product_rho"], TRAJECTORY)
    assert certificate.bound(len(expected["eta"])) == close(expected["bound_eq17"][-1], TRAJECTORY)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", having("scheduler_eq19_rhobar"))
def test_paper_schedule_rho_bar(name: str, engine: str) -> None:
    expected = CASES[name]["expected"]["scheduler_eq19_rhobar"]
    certificate = paper_certificate(name)
    rule = sf.steps.PaperRhoBar()
    rule.start(problem(name)[1], certificate)
    mu_bar = certificate.quantities["mu_bar"]
    product = [expected["loss_gap"][0]]

    def each(t: int, eta: float, moving: Engine) -> None:
        k_bar = 1.0 / rule._limit(moving.iterate, t)
        product.append(product[-1] * (1.0 - 2.0 * mu_bar * eta + mu_bar * k_bar * eta * eta))

    check_path(start(name, engine), expected, rule.step, each)
    assert product == close(expected["bound_eq20_product_rhobar"], TRAJECTORY)


@pytest.mark.parametrize("name", having("improved_step_cap_theta_half"))
def test_cap_of_the_drift_budget(name: str) -> None:
    """κcθα1/L0 with θ = κ = c = ½ (Theorem 5, closed form); the cases take α1 with the printed radius."""
    q = quantities(name)
    cap = KAPPA * DECREASE * 0.5 * q["alpha1"] / q["initial_gap"]
    assert agree(cap, CASES[name]["expected"]["improved_step_cap_theta_half"], 1.0)
    # the drift theorem's own α1 has the smaller radius sqrt(2L0/μ), so its cap is at least that
    drift = PLANS["two-layer/drift"].theorem.derived({**q, "budget": 0.5})
    assert drift["alpha1"] >= q["alpha1"] * (1.0 - 1e-12)


def test_every_expected_value_is_used() -> None:
    elsewhere = """
        l_star W_star Delta_plus Delta_minus underline_Delta alpha_1_as_printed mu_0 K_0_coefficients K_0_at_eta
        root_eta_times_K0_eq_1 argmin_of_rho_in_eta Kprime_0_coefficients_improved root_eta_times_Kprime0_eq_1
        uncapped_1_over_Kt improved_1_over_Kprime_t exact_line_search_first_positive_root eta_0_1_eq87
        eta_0_2_eq88_if_smaller_than_the_others eta_0_3_log eta_max eta_0_used mu_bar Kbar_0 rho_bar_0 Delta Kbar_t
        scheduler_eq19_rho scheduler_eq19_rhobar improved_step_cap_theta_half
    """
    assert {key for case in CASES.values() for key in case["expected"]} == {*BASE, *elsewhere.split()}
