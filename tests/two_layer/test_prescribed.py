"""Prescribed steps: the recursion against 40 digits and against descent, and certificate, rule, audit, resume and check."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tamper
import torch
from draws import normal
from hypothesis import given, settings
from hypothesis import strategies as st
from instances.two_layer import orthonormal, prescribed_families
from torch import Tensor

import surefoot as sf
from surefoot._two_layer.prescribed_plan import TARGET
from surefoot_check import Outcome, check
from surefoot_check.problems import Squared
from surefoot_check.rigor.bounds import FAST, Array, Level
from surefoot_check.rigor.exact import EXACT
from surefoot_check.two_layer import path
from surefoot_check.two_layer.path_enclosures import start_of
from surefoot_check.two_layer.prescribed import step_at, steps_of

THEOREM = "two-layer/prescribed"
with (Path(__file__).resolve().parents[1] / "cases" / "prescribed_two_layer.json").open() as _file:
    CASES: dict[str, dict[str, Any]] = {case["name"]: case for case in json.load(_file)["cases"]}


def problem_of(eigenvalues: Array, optimum: Array, level: Level = FAST) -> Squared:
    """Squared loss with this diagonal Gram matrix of the data, up to the rounding of roots, and this minimiser."""
    X = np.diag(np.sqrt(eigenvalues))
    return Squared(X, X @ optimum, optimum, level)


def rows(n: int, m: int, s: float) -> dict[str, Array]:
    Z = s * np.eye(n + m)
    return {"W1": Z[:n].copy(), "W2": Z[n:].copy()}


@pytest.mark.parametrize("level", [FAST, EXACT], ids=lambda level: level.name)
@pytest.mark.parametrize("name", CASES)
def test_bounds_are_those_of_40_digits_rounded_up(name: str, level: Level) -> None:
    case = CASES[name]
    lam, s, tau = np.array(case["eigenvalues"]), case["s"], np.array(case["tau"])
    optimum = np.array(case["W_star"]).reshape(len(lam), -1)
    start = path.Start(lam, optimum / s**2, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.5 * s**4)
    found = path.follow(start, tau, level)
    expected, gaps = (np.array([float(x) for x in case["expected"][key]]) for key in ("bound", "gap"))
    count = len(expected)  # of a case that blows up, those before
    assert (found.gaps[:count] >= expected).all() and (found.gaps[:count] >= gaps[:count]).all()
    assert found.gaps[:count] == pytest.approx(expected, rel=1e-6, abs=1e-20 * expected[0])
    measured = start_of(problem_of(lam, optimum, level), rows(*optimum.shape, s), s * s)
    assert measured is not None
    from_arrays = path.follow(measured, tau / (2.0 * s * s), level).gaps[:count]
    assert (from_arrays >= expected * (1.0 - 1e-12)).all()
    assert from_arrays == pytest.approx(expected, rel=1e-6, abs=1e-20 * expected[0])


def test_a_recursion_that_blows_up_bounds_nothing() -> None:
    case = CASES["too_small_s"]
    lam, s = np.array(case["eigenvalues"]), case["s"]
    start = path.Start(lam, np.array(case["W_star"]) / s**2, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.5 * s**4)
    found = path.follow(start, np.array(case["tau"]))
    assert found.end is None and math.isinf(found.gaps[-1])
    assert np.isinf(path.follow(start, np.array([1e200])).gaps).all()


@pytest.mark.parametrize("scale", [0.0, -1.0, 1e-200, 1e200, math.inf, math.nan])
def test_units_whose_powers_vanish_or_overflow_bound_nothing(scale: float) -> None:
    lam, optimum = np.array([2.0, 1.0]), np.array([[1.0], [2.0]])
    weights = rows(2, 1, 1.0)
    assert start_of(problem_of(lam, optimum), weights, 1.0) is not None
    assert start_of(problem_of(lam, optimum), weights, scale) is None
    assert start_of(problem_of(1e-160 * lam, 1e80 * optimum), weights, 1.0) is None  # ½ s⁴ times the size of the data


def test_frobenius_norms_in_place_of_spectral_ones_are_larger() -> None:
    case = CASES["kappa_100"]
    lam, s, tau = np.array(case["eigenvalues"]), case["s"], np.array(case["tau"])
    start = path.Start(lam, np.array(case["W_star"]) / s**2, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.5 * s**4)
    for level in (FAST, EXACT):
        sharp, cheap = (path.follow(start, tau, level, spectral=spectral).gaps for spectral in (True, False))
        assert (cheap >= sharp * (1.0 - 1e-9)).all() and cheap[-1] < 1.5 * sharp[-1]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 3), st.floats(0.5, 4.0), st.floats(-9.0, 0.0))
def test_descent_with_any_steps_stays_below_the_bounds(seed: int, n: int, m: int, size: float, noise: float) -> None:
    """Spectra, minimisers, steps and defects of the start are random."""
    draw = np.random.default_rng(seed)
    lam = 10.0 ** draw.uniform(-1.5, 0.5, n)
    optimum = draw.standard_normal((n, m))
    s = size * math.sqrt(np.linalg.norm(optimum, 2))
    rotation = np.linalg.qr(draw.standard_normal((n, n)))[0]
    X = np.sqrt(lam)[:, None] * rotation
    Z = s * np.linalg.qr(draw.standard_normal((n + m, n + m)))[0] + 10.0**noise * draw.standard_normal((n + m, n + m))
    steps = draw.uniform(0.05, 1.9, draw.integers(1, 9)) / draw.choice(lam) / (2.0 * s * s)
    problem = Squared(X, X @ optimum, optimum)
    weights = {"W1": Z[:n].copy(), "W2": Z[n:].copy()}
    start = start_of(problem, weights, s * s)
    assert start is not None
    W1, W2 = weights["W1"], weights["W2"]
    for t, bound in enumerate(path.follow(start, steps).gaps):
        if bound == math.inf:
            break
        E = W1 @ W2.T - optimum
        gap = 0.5 * float(np.vdot(X @ E, X @ E))
        assert gap <= bound * (1.0 + 1e-12) + 1e-26 * s**4
        if t < len(steps):
            g = X.T @ (X @ E)
            W1, W2 = W1 - steps[t] * g @ W2, W2 - steps[t] * g.T @ W1


def certified(s: float = 4.0) -> tuple[sf.nn.TwoLayerLinear, sf.SquaredLoss, sf.Certificate]:
    weights, loss = prescribed_families()["orthonormal"]()
    net = sf.nn.TwoLayerLinear(*(s / 4.0 * W for W in weights))
    assert isinstance(loss, sf.SquaredLoss)
    return net, loss, sf.certify(net, loss)


def test_it_is_the_default_where_the_start_is_orthonormal_and_the_loss_squared() -> None:
    net, loss, certificate = certified()
    assert certificate.theorem == THEOREM and certificate.holds and "orthonormal" in certificate.why
    assert certificate.iterations_to(TARGET) <= sf.certify(net, loss, "two-layer/drift").iterations_to(TARGET)
    assert "in the end, relative gap 1e-10 within" in str(certificate) and certificate.claim.kind == "rate"
    moved = sf.nn.TwoLayerLinear(net.W1 + 1e-3, net.W2)
    assert sf.certify(moved, loss).theorem == "two-layer/drift"
    sensing = sf.MatrixSensing(normal(8, 3, 2), normal(8))
    assert sf.certify(net, sensing).theorem == "two-layer/drift"
    small = certified(0.3)[2]  # the recursion blows up
    assert small.theorem == "two-layer/drift" and small.holds


def test_where_it_fails_it_says_what_to_do() -> None:
    loss, net = certified()[1], sf.nn.TwoLayerLinear.gaussian(3, 2, 6, seed=0)
    failing = sf.certify(net, loss, THEOREM)
    assert not failing.holds and failing.schedule == () and "orthonormal rows" in failing.suggestion
    entropy = sf.SoftmaxRegression(normal(9, 3), torch.arange(9) % 2, 0.1)
    assert "two-layer/drift" in sf.certify(net, entropy, THEOREM).suggestion
    badly = sf.SquaredLoss(torch.diag(torch.tensor([1.0, 1e-5, 1.0], dtype=torch.float64)), normal(3, 2))
    assert "whiten" in sf.certify(net, badly, THEOREM).suggestion
    for certificate in (None, failing):
        with pytest.raises(
            ValueError, match="steps='prescribed' needs a certificate of 'two-layer/prescribed' that holds"
        ):
            sf.descend(net, loss, "prescribed", certificate=certificate or sf.certify(net, loss, "two-layer/drift"))


@pytest.mark.parametrize("engine", ["gram", "weights"])
def test_the_rule_takes_the_steps_and_then_those_that_are_repeated(engine: str) -> None:
    net, loss, certificate = certified()
    run = sf.descend(net, loss, certificate=certificate, tolerance=0.0, engine=engine, progress=False)
    assert run.rule == "prescribed" and run.certified
    first, cycled = steps_of(certificate.quantities)
    assert len(run.step_sizes) > len(first)
    assert list(run.step_sizes) == [step_at(first, cycled, t) for t in range(len(run.step_sizes))]
    assert run.gaps[int(certificate.iterations_to(TARGET))] <= TARGET * certificate.initial_gap
    audit = run.audit()
    assert audit.holds and len(audit.lines) == 3, str(audit)


def test_other_rules_are_certified_by_the_theorem_of_their_own() -> None:
    for rule in ("certified-bb", sf.steps.Polyak(), 0.001):
        net, loss, _ = certified()
        run = sf.descend(net, loss, rule, 5, progress=False)
        assert run.certificate.theorem == ("two-layer/constant" if rule == 0.001 else "two-layer/drift")
        assert run.certified == (not isinstance(rule, sf.steps.StepRule))
    net, loss, certificate = certified()
    run = sf.descend(net, loss, "certified-bb", 5, certificate=certificate, progress=False)
    assert not run.certified and not run.audit().holds


def loop(steps: list[float]) -> sf.Audit:
    """The audit of a loop of one's own."""
    net, loss, certificate = certified()
    trace = sf.Trace(loss)
    for step in steps:
        trace.record(net, step)
        with torch.no_grad():
            g = loss.gradient(net.end_to_end())
            for W, G in ((net.W1, g @ net.W2), (net.W2, g.T @ net.W1)):
                W -= step * G
    trace.record(net)
    return sf.audit(trace, certificate)


def test_a_loop_of_ones_own_is_audited_for_exactly_these_steps() -> None:
    steps = [segment.main_step for segment in certified()[2].schedule[:-1]]
    assert loop(steps).holds and loop(steps[:3]).holds
    for wrong in ([steps[0], 1.001 * steps[1]], steps[1::-1], [*steps, steps[-1]]):
        audit = loop(wrong)
        assert not audit.holds and any("prescribed" in line.name and not line.holds for line in audit.lines)


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    net, loss, certificate = certified()
    whole = sf.descend(net, loss, certificate=certificate, tolerance=0.0, progress=False)
    net, loss, certificate = certified()
    sf.descend(net, loss, None, 2, 0.0, certificate=certificate, directory=tmp_path, progress=False)
    net, loss, certificate = certified()
    resumed = sf.descend(
        net, loss, tolerance=0.0, certificate=certificate, directory=tmp_path, resume=True, progress=False
    )
    assert resumed.gaps == whole.gaps and resumed.step_sizes == whole.step_sizes
    assert all(torch.equal(whole.final[name], resumed.final[name]) for name in whole.final)
    for level in ("fast", "exact"):
        assert check(tmp_path, level=level, replay=True).outcome is Outcome.ACCEPT


def test_a_run_whose_sequence_ends_says_so() -> None:
    """So near to where the recursion blows up no repetition contracts, and the sequence goes as far as its bound falls."""
    loss = sf.SquaredLoss(normal(12, 4, seed=1) * torch.tensor([1.0, 2.0, 4.0, 8.0]), normal(12, 2, seed=2))
    net = sf.nn.TwoLayerLinear.certifiable(loss, scale=1.1 * float(loss.optimum.norm()) ** 0.5)
    certificate = sf.certify(net, loss, THEOREM)
    first, cycled = steps_of(certificate.quantities)
    assert certificate.holds and first and not cycled
    run = sf.descend(net, loss, certificate=certificate, tolerance=0.0, progress=False)
    assert run.step_sizes == first and run.gaps[-1] > 1e-6 * run.gaps[0]
    assert run.status == "stalled" and "the rule has taken its last step" in run.status.text
    assert run.audit().holds


def test_every_family_is_accepted(tmp_path: Path) -> None:
    for name, build in prescribed_families().items():
        weights, loss = build()
        net = sf.nn.TwoLayerLinear(*weights)
        certificate = sf.certify(net, loss, THEOREM)
        assert certificate.holds, name
        run = sf.descend(net, loss, certificate=certificate, directory=tmp_path / name, progress=False)
        assert run.audit().holds, name
        assert check(tmp_path / name).outcome is Outcome.ACCEPT, name


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("prescribed") / "run"
    net, loss, certificate = certified()
    sf.descend(net, loss, certificate=certificate, directory=directory, progress=False)
    return directory


def changed(key: str, factor: float) -> Callable[[tamper.StoredRun], None]:
    """One published number times a factor, and the conditions and the schedule recomputed."""

    def change(run: tamper.StoredRun) -> None:
        old = float.fromhex(run.certificate["quantities"][key])
        base, choices = (
            ({key: old * factor}, {}) if key.startswith(("bound", "cycle_factor")) else ({}, {key: old * factor})
        )
        run.certificates["certificate.json"] = tamper.reevaluated(run.certificate, base, choices)

    return change


def without(key: str) -> Callable[[tamper.StoredRun], None]:
    return lambda run: run.certificate["quantities"].pop(key)


def level_times(index: int, factor: float) -> Callable[[tamper.StoredRun], None]:
    def change(run: tamper.StoredRun) -> None:
        segment = run.certificate["conclusion"]["schedule"][index]
        segment[2] = (float.fromhex(segment[2]) * factor).hex()

    return change


TAMPERINGS = {
    "a longer step": changed("step[0]", 1.01),
    "a shorter step": changed("step[2]", 0.5),
    "a negative step": changed("step[1]", -1.0),
    "a step left out": without("step[1]"),
    "the last step left out": without("step[5]"),
    "a lower bound": changed("bound[3]", 1.0 - 1e-6),
    "a much lower bound": changed("bound[5]", 1e-3),
    "a longer repeated step": changed("cycle[1]", 1.01),
    "a repeated step left out": without("cycle[2]"),
    "no steps that are repeated": without("cycle[0]"),
    "a lower factor of a repetition": changed("cycle_factor", 1.0 - 1e-6),
    "no factor": without("cycle_factor"),
    "another unit": changed("scale", 1.01),
    "no unit": without("scale"),
    "a negative unit": changed("scale", -1.0),
    "a lower level": level_times(2, 1.0 - 1e-6),
    "a lower last level": level_times(-1, 0.5),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_what_is_published_cannot_be_bettered(name: str, good: Path, tmp_path: Path) -> None:
    tamper.Tampering(name, "prescribed", TAMPERINGS[name]).apply(good, tmp_path / "run")
    assert check(tmp_path / "run").outcome is not Outcome.ACCEPT


def test_weaker_bounds_are_accepted(good: Path, tmp_path: Path) -> None:
    tamper.Tampering("", "prescribed", changed("bound[3]", 1.5)).apply(good, tmp_path / "run")
    assert check(tmp_path / "run").outcome is Outcome.ACCEPT


def test_iterates_of_other_steps_are_refused(good: Path, tmp_path: Path) -> None:
    """The bound holds for these steps, and replay asks for them; weights above it are rejected without a replay."""

    def change(run: tamper.StoredRun) -> None:
        for name in ("W1", "W2"):
            run.final[name][:] = 1.01 * run.final[name]

    tamper.Tampering("", "prescribed", change).apply(good, tmp_path / "run")
    assert check(tmp_path / "run").outcome is Outcome.REJECT


def _orthonormal(n: int, m: int) -> tuple[Tensor, Tensor]:
    return orthonormal(n, m, n + m, 3.0)


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_longer_sequence_of_an_ill_conditioned_problem(outputs: int) -> None:
    X = normal(40, 4, seed=7) * torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=torch.float64)
    loss = sf.SquaredLoss(X, X @ normal(4, outputs, seed=8))
    net = sf.nn.TwoLayerLinear(*(3.0 * W for W in _orthonormal(4, outputs)))
    certificate = sf.certify(net, loss)
    assert certificate.theorem == THEOREM
    run = sf.descend(net, loss, certificate=certificate, tolerance=TARGET, progress=False)
    assert run.iterations <= certificate.iterations_to(TARGET) <= 1.5 * run.iterations
    assert run.audit().holds
