"""The guarantee for a constant step of one's own: of every system that has one, and of those that have none."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import surefoot as sf
from surefoot._core.admission import least_admitting
from surefoot._core.plans import LIMIT, OWN_STEP, PLANS
from surefoot._implicit import planner as implicit
from surefoot_check.checker import check
from surefoot_check.implicit import spectral
from surefoot_check.systems import SYSTEMS as CHECKED

FACTORS = (1e-3, 0.5, 1.0, 1.2, 2.0, 1e3)
"""Steps that are asked about, relative to the theorem's own."""


def numbers(seed: int, *sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@dataclass(frozen=True)
class Case:
    """A network and a loss, where the theorem holds at its own step."""

    net: Any
    loss: Any
    data: tuple[torch.Tensor, ...] = ()

    def certify(self, theorem: str, step: float | None = None) -> sf.Certificate:
        return sf.certify(self.net, self.loss, theorem, step=step)


def two_layer(loss: sf.Loss, outputs: int) -> Case:
    return Case(sf.nn.TwoLayerLinear.gaussian(3, outputs, 10, std=0.5, seed=1), loss, (X, Y))


def resnet(gap: float) -> Case:
    X, Y = torch.eye(3, dtype=torch.float64), gap * numbers(2, 3, 3)
    return Case(sf.nn.LinearResNet.modified_identity(3, 3, 6, 3, 30.0), sf.SquaredLoss(X, Y), (X, Y))


def infinite(scale: float) -> Case:
    X = numbers(3, 4, 6)
    X, y = X / X.norm(dim=1, keepdim=True), torch.ones(4, 1, dtype=torch.float64)
    net = sf.nn.ImplicitReLU.certifiable(X, y, 16, seed=0)
    W, A, b = (scale * getattr(net, name).detach() for name in ("W", "A", "b"))
    return Case(sf.nn.ImplicitReLU(W, A, b, net.gamma / scale), sf.SquaredLoss(X, y), (X, y))


def fitted(net: torch.nn.Sequential, X: torch.Tensor) -> sf.SquaredLoss:
    with torch.no_grad():
        return sf.SquaredLoss(X, net(X) + 1e-3)


def dense() -> Case:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        net = torch.nn.Sequential(torch.nn.Linear(3, 30), torch.nn.Tanh(), torch.nn.Linear(30, 1)).double()
    return Case(net, fitted(net, numbers(4, 3, 3)))


def logistic() -> Case:
    net = torch.nn.Sequential(torch.nn.Linear(2, 3)).double()
    with torch.no_grad():
        for weights in net.parameters():
            weights.zero_()
    X, labels = 0.1 * numbers(5, 12, 2), torch.arange(12) % 3
    return Case(net, sf.TorchLoss(torch.nn.CrossEntropyLoss(), X, labels, weight_decay=0.5))


X, Y = numbers(6, 12, 3), numbers(7, 12, 2)
CASES: dict[str, tuple[str, Callable[[], Case]]] = {
    "two-layer": ("two-layer/constant", lambda: two_layer(sf.SquaredLoss(X, Y), 2)),
    "softmax": ("two-layer/constant", lambda: two_layer(sf.SoftmaxRegression(X, torch.arange(12) % 3, 0.1), 3)),
    "sensing": (
        "two-layer/constant",
        lambda: two_layer(sf.MatrixSensing(numbers(8, 4, 3, 2), numbers(9, 4)), 2),
    ),
    "resnet": ("linear-resnet/local", lambda: resnet(1.0)),
    "paper's resnet": ("linear-resnet/gd", lambda: resnet(0.1)),
    "implicit": ("implicit/spectral", lambda: infinite(1.0)),
    "implicit, measured": ("implicit/measured", lambda: infinite(1.0)),
    "paper's implicit": ("implicit/gd", lambda: infinite(1e4)),
    "feed-forward": ("feed-forward/local", dense),
    "minimum": ("feed-forward/minimum", logistic),
}


@cache
def case(name: str) -> Case:
    return CASES[name][1]()


@cache
def asked(name: str) -> tuple[sf.Certificate, dict[float, sf.Certificate]]:
    """The theorem's own certificate, and those for multiples of its step."""
    own = case(name).certify(CASES[name][0])
    assert own.holds and own.step_size is not None, str(own)
    return own, {factor: case(name).certify(CASES[name][0], factor * own.step_size) for factor in FACTORS}


every_case = pytest.mark.parametrize("name", list(CASES))


@every_case
def test_every_step_up_to_the_largest_is_certified(name: str) -> None:
    own, found = asked(name)
    held = [found[factor].holds for factor in FACTORS]
    assert held == sorted(held, reverse=True) and held[:3] == [True] * 3 and not held[-1]
    assert found[1.0].bound(1) <= own.bound(1) * (1.0 + 1e-3)
    for factor, certificate in found.items():
        if certificate.holds:
            assert certificate.rule == "constant" and "constant step" in str(certificate)
            assert {segment.step for segment in certificate.schedule} == {factor * (own.step_size or 0.0)}
        else:
            failed = [condition for condition in certificate.conditions if not condition.holds]
            assert [condition.name for condition in failed] == [LIMIT]
            assert failed[0].left == factor * (own.step_size or 0.0) and certificate.step_size is None


@every_case
def test_the_largest_step_that_is_named_is_the_largest(name: str) -> None:
    certificate = asked(name)[1][1e3]
    limit = certificate.conditions[-1].right
    assert limit >= (asked(name)[0].step_size or math.inf)
    said = float(certificate.suggestion.removeprefix("step=").partition(",")[0])
    assert 0.998 * limit <= said < limit
    theorem = CASES[name][0]
    assert case(name).certify(theorem, said).holds and case(name).certify(theorem, 0.5 * limit).holds
    assert not case(name).certify(theorem, 1.01 * limit).holds


def test_rates_of_small_steps_follow_from_the_theorems() -> None:
    """To first order in η: 2μ(1-θ)α1, (2-γ)μ with γ at its least, 2m, η Lσ².../e, 2σ*² and 2m*."""
    for name in CASES:
        own, found = asked(name)
        small, half = found[1e-3], found[0.5]
        for certificate, at_most in ((small, 1e-3), (half, 0.5)):
            assert certificate.claim.final <= at_most * 2.5 * own.claim.final
        q, eta = small.quantities, small.step_size or math.nan
        expected = {
            "two-layer/constant": lambda q: 2.0 * q["strong_convexity"] * q["guaranteed_sigma"],
            "linear-resnet/local": lambda q: (2.0 - q["gamma"]) * q["pl_constant"],
            "implicit/measured": lambda q: 2.0 * q["descent"],
            "implicit/spectral": lambda q: 2.0 * (q["node_min"] - q["epsilon"]),
            "feed-forward/local": lambda q: 2.0 * q["sigma_star"] ** 2,
            "feed-forward/minimum": lambda q: 2.0 * q["m_star"],
        }.get(small.theorem)
        if expected is not None:
            assert small.claim.final == pytest.approx(eta * expected(q), rel=5e-3)
        else:  # the paper's theorems are linear in the step
            assert small.claim.final == pytest.approx(1e-3 * own.claim.final, rel=1e-6)


@every_case
@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_runs_with_that_step_are_certified(name: str, factor: float, tmp_path: Path) -> None:
    step = factor * (asked(name)[0].step_size or math.nan)
    net, loss = copy.deepcopy(case(name).net), case(name).loss
    certificate = asked(name)[1][factor]
    run = sf.descend(net, loss, step, 12, 0.0, certificate=certificate, directory=tmp_path / "run", progress=False)
    assert run.rule == "constant" and run.certified and set(run.step_sizes) == {step}
    assert run.audit().holds, str(run.audit())
    assert all(gap <= certificate.bound(t) + run.resolution for t, gap in enumerate(run.gaps))
    report = check(tmp_path / "run")
    assert report.outcome.value == "accept", str(report)


@pytest.mark.parametrize(
    ("name", "theorem"),
    [
        ("two-layer", "two-layer/constant"),
        ("resnet", "linear-resnet/local"),
        ("implicit", "implicit/spectral"),
        ("feed-forward", "feed-forward/local"),
        ("minimum", "feed-forward/minimum"),
    ],
)
def test_a_number_for_steps_is_certified_by_itself(name: str, theorem: str) -> None:
    usual = sf.certify(case(name).net, case(name).loss).step_size
    assert usual is not None
    for step, holds in ((0.5 * usual, True), (usual, True), (1e3 * usual, False)):
        run = sf.descend(copy.deepcopy(case(name).net), case(name).loss, step, 1, 0.0, progress=False)
        assert (run.certificate.theorem, run.certificate.rule) == (theorem, "constant")
        assert run.certificate.holds is holds and run.certified is holds


@pytest.mark.parametrize("name", ["two-layer", "resnet", "implicit"])
def test_a_loop_of_ones_own_is_audited(name: str) -> None:
    certificate = asked(name)[1][0.5]
    net, loss, step = copy.deepcopy(case(name).net), case(name).loss, certificate.step_size
    inputs, targets = case(name).data
    assert step is not None
    optimizer, trace = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=step), sf.Trace(loss)
    for _ in range(5):
        trace.record(net, step)
        optimizer.zero_grad()
        (0.5 * (net(inputs).reshape(targets.shape) - targets).square().sum()).backward()
        optimizer.step()
    trace.record(net)
    assert sf.audit(trace, certificate).holds, str(sf.audit(trace, certificate))


def test_smaller_steps_of_resnets_have_smaller_balls() -> None:
    own, found = asked("resnet")
    radii = [found[factor].quantities["radius"] for factor in (1e-3, 0.5, 1.0)]
    assert radii == sorted(radii) and radii[-1] <= own.quantities["radius"] * 1.01
    eta, half = own.step_size or math.nan, found[0.5]
    factor = (2.0 - own.quantities["gamma"]) * own.quantities["pl_constant"]
    assert half.claim.final > 0.5 * eta * factor  # better than with γ = 1


def test_the_sum_of_residuals_falls_with_the_step() -> None:
    """So that of Theorem 2 a smaller step is admitted where a larger one is."""
    q = dict(asked("implicit")[0].quantities)
    sums: list[tuple[float, float]] = []
    for halvings in range(8):
        eta = implicit.largest_spectral(q) * 2.0**-halvings
        model = spectral.model({**q, "eta": eta, "horizon": implicit.horizon({**q, "eta": eta})})
        assert model is not None
        sums.append((float(model.total), float(model.nu)))
    assert sums == sorted(sums, reverse=True)


def test_a_step_above_what_radii_allow_is_answered_with_a_smaller_one() -> None:
    """Of implicit networks that are hardly certified, the limit is that of the radii and not that of the spectrum."""
    low, high = 0.05, 1.0
    for _ in range(8):
        middle = math.sqrt(low * high)
        found = sf.certify((edge := infinite(middle)).net, edge.loss).holds
        low, high = (low, middle) if found else (middle, high)
    edge = infinite(high)
    step = sf.certify(edge.net, edge.loss).step_size
    assert step is not None and sf.certify(edge.net, edge.loss, step=0.5 * step).holds
    cap = implicit.largest_spectral(sf.certify(edge.net, edge.loss).quantities)
    above = sf.certify(edge.net, edge.loss, step=0.999 * cap)
    assert above.conditions[-1].name == LIMIT and 0.9999 * step <= above.conditions[-1].right < 0.999 * cap


@pytest.mark.parametrize("step", [0.0, -1.0, math.nan, math.inf])
def test_a_step_must_be_positive_and_finite(step: float) -> None:
    with pytest.raises(ValueError, match="step is"):
        sf.certify(case("two-layer").net, case("two-layer").loss, step=step)


@pytest.mark.parametrize("step", [True, "0.1", torch.ones(2)])
def test_a_step_must_be_a_number(step: Any) -> None:
    with pytest.raises(TypeError, match="step is"):
        sf.certify(case("two-layer").net, case("two-layer").loss, step=step)


def test_theorems_and_systems_without_constant_steps_say_so() -> None:
    with pytest.raises(ValueError, match=r"two-layer/drift does not speak .* use two-layer/constant"):
        case("two-layer").certify("two-layer/drift", 1e-3)
    with pytest.raises(ValueError, match="use feed-forward/local or feed-forward/minimum"):
        case("feed-forward").certify("feed-forward/exact-fit", 1e-3)
    with pytest.raises(TypeError, match=r"LearnedInverse takes no step"):
        sf.certify(sf.nn.LearnedInverse([[1.0]], 0.5), interval=(0.5, 1.0), step=0.1)


def test_other_hypotheses_that_fail_are_said_as_without_a_step() -> None:
    narrow = Case(sf.nn.TwoLayerLinear.gaussian(3, 2, 1, seed=0), sf.SquaredLoss(X, Y))
    usual, own = narrow.certify("two-layer/constant"), narrow.certify("two-layer/constant", 1e-3)
    assert usual.status is own.status is sf.CertificateStatus.FAILS
    assert own.conditions == usual.conditions and own.suggestion == usual.suggestion != ""


def test_at_the_optimum_every_step_is_certified() -> None:
    plan, q = (
        PLANS["two-layer/constant"],
        {**asked("two-layer")[0].quantities, "initial_gap": 0.0, "quadratic": True, "n": 3, "m": 2, "h": 10},
    )
    assert plan.largest is not None and plan.largest(q) == math.inf
    assert plan.schedule({**q, **plan.parameters({**q, OWN_STEP: 7.0}), OWN_STEP: 7.0})[0].step == 7.0


def test_a_count_that_a_small_step_makes_vacuous_names_the_step() -> None:
    own = asked("two-layer")[0]
    tiny = case("two-layer").certify("two-layer/constant", 1e-6 * (own.step_size or math.nan))
    assert own.practical and tiny.holds and tiny.practical is False
    assert tiny.advice == f"the step is small: this theorem guarantees the step {own.step_size}, too"


def test_certificates_along_a_run_are_of_its_step() -> None:
    step = 1.1 * asked("resnet")[1][1e3].conditions[-1].right
    net = copy.deepcopy(case("resnet").net)
    run = sf.descend(net, case("resnet").loss, step, 6, 0.0, certify_every=2, progress=False)
    assert not run.certificate.holds and run.adopted and set(run.step_sizes) == {step}
    assert {phase.certificate.step_size for phase in run.adopted} == {step}
    assert run.certified and run.certified_from == run.adopted[0].iteration and run.audit().holds


def test_the_checker_knows_which_theorems_speak_of_constant_steps() -> None:
    theorems = [theorem for system in CHECKED.values() for theorem in system.theorems]
    speak = {theorem.id for theorem in theorems if theorem.constant_steps}
    assert speak == {name for name, plan in PLANS.items() if plan.largest is not None}


@pytest.mark.parametrize(
    ("step", "found"),
    [(1e-9, 0.01), (0.5, 0.5), (1.0, 1.0), (2.0, 1.9 - 1e-9)],
)
def test_the_least_choice_that_admits_a_step(step: float, found: float) -> None:
    """What a choice x < 1.9 admits is x, and 0 from there on."""

    def admits(choice: float) -> float:
        return choice if choice < 1.9 else 0.0

    assert least_admitting(admits, step, 0.01, 1.0, 1.99) == pytest.approx(found, rel=2e-2)
