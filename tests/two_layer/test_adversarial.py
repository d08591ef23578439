"""A hunt for violations of every shipped theorem, end to end: certify, take the worst steps that are accepted, audit.

Networks of all shapes up to 4 × 4 and width 8, random, of low rank or nearly balanced, over six decades of scale;
losses of every kind, with data of any rank. Examples that once failed stay as explicit ones.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from torch import Tensor

import surefoot as sf
from surefoot._core.plans import PLANS
from surefoot._two_layer import planner
from surefoot._two_layer.engines import Engine

KINDS = ["squared", "squared-low-rank", "sensing", "sensing-deficient", "softmax"]
WEIGHTS = ["gaussian", "low-rank", "nearly-balanced", "one-layer-small", "near-optimum"]
PROPOSALS = ["tiny", "huge", "alternating", "random", "growing", "longest", "shortest", "bb"]


class Case(NamedTuple):
    """One problem, by the numbers that make it, so that a failing example can be read and repeated."""

    kind: str
    weights: str
    n: int
    m: int
    width: int
    log_std: float
    log_scale: float
    log_target: float
    seed: int

    def build(self) -> tuple[sf.nn.TwoLayerLinear, sf.Loss]:
        g = torch.Generator().manual_seed(self.seed)
        n, m, h, std, scale = self.n, self.m, self.width, 10.0**self.log_std, 10.0**self.log_scale

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=g, dtype=torch.float64)

        W1, W2 = std * normal(n, h), std * normal(m, h)
        if self.weights == "low-rank":
            W1 = std * normal(n, 1) @ normal(1, h)
        elif self.weights == "nearly-balanced":
            common = torch.linalg.qr(normal(h, h))[0]
            first, second = torch.linalg.qr(normal(n, n))[0], torch.linalg.qr(normal(m, m))[0]
            r = min(n, m, h)
            W1 = std * (first[:, :r] @ common[:r] + 1e-4 * normal(n, h))
            W2 = std * (second[:, :r] @ common[:r] + 1e-4 * normal(m, h))
        elif self.weights == "one-layer-small":
            W2 = 1e-3 * W2
        net = sf.nn.TwoLayerLinear(W1, W2)

        W = net.end_to_end().detach()
        if self.weights == "near-optimum":
            target = W + 10.0 ** (self.log_target - 2.0) * std * std * normal(n, m)
        else:
            target = 10.0**self.log_target * std * std * normal(n, m)
        if self.kind.startswith("squared"):
            X = scale * normal(2 * n, n)
            if self.kind == "squared-low-rank":
                X = X[:, : max(1, n - 1)] @ normal(max(1, n - 1), n)
            return net, sf.SquaredLoss(X, X @ target + 0.1 * scale * std * std * normal(2 * n, m))
        if self.kind == "softmax":
            X, labels = normal(3 * n, n) / max(std * std, 1.0), torch.arange(3 * n) % m
            return net, sf.SoftmaxRegression(X, labels, min(scale, 10.0), m)
        count = 2 * n * m if self.kind == "sensing" else max(1, n * m - 1)
        A = scale * normal(count, n, m)
        return net, sf.MatrixSensing(A, (A * target).sum((1, 2)))


def cases(width_from: int = 1) -> st.SearchStrategy[Case]:
    return st.builds(
        Case,
        st.sampled_from(KINDS),
        st.sampled_from(WEIGHTS),
        st.integers(1, 4),
        st.integers(1, 4),
        st.integers(width_from, 8),
        st.floats(-3.0, 3.0),
        st.floats(-3.0, 3.0),
        st.floats(-2.0, 2.0),
        st.integers(0, 10**6),
    )


class Bad(sf.steps.StepRule):
    """Proposals meant to do harm; the certificate must not mind."""

    name = "bad"

    def __init__(self, kind: str, seed: int) -> None:
        self.kind, self.t = kind, 0
        self.random = torch.Generator().manual_seed(seed)

    def step(self, engine: Engine) -> float:
        unit = planner.cubic_root(*engine.iterate.sharp)
        self.t += 1
        match self.kind:
            case "tiny":
                return 1e-9 * unit
            case "huge":
                return 1e9 * unit
            case "alternating":
                return unit * (1e-6 if self.t % 2 else 1e6)
            case "growing":
                return unit * 1.5**self.t
            case _:
                return unit * 10.0 ** float(8.0 * torch.rand((), generator=self.random) - 4.0)


class Longest(sf.steps.Certified):
    """The longest step, or the shortest, or the one with the least progress, of a fine grid that the rule accepts."""

    def __init__(self, kind: str) -> None:
        super().__init__(sf.steps.Constant(1.0))
        self.kind = kind

    def _accepted(self, engine: Engine, smallest: float) -> float | None:
        unit = planner.cubic_root(*engine.iterate.sharp)
        grid = [unit * 1.2**k for k in range(30, -40, -1)]
        if self.kind == "shortest":
            grid.reverse()
        for eta in grid:
            self.proposal = sf.steps.Constant(eta)
            # ``smallest`` at the proposal itself: it is accepted as it is or not at all
            if super()._accepted(engine, eta) is not None:
                return eta
        return None


def rule_for(proposal: str, seed: int) -> sf.steps.StepRule:
    if proposal in ("longest", "shortest"):
        return Longest(proposal)
    return sf.steps.Certified(sf.steps.BarzilaiBorwein() if proposal == "bb" else Bad(proposal, seed))


def noise(gap: float, resolution: float) -> float:
    return 2.0 * math.sqrt(gap * resolution) + resolution


def hunt_drift(case: Case, proposal: str, theorem: str, iterations: int, engine: str) -> None:
    net, loss = case.build()
    certificate = sf.certify(net, loss, theorem=theorem)
    rule = rule_for(proposal, case.seed)
    run = sf.descend(net, loss, rule, iterations, certificate=certificate, engine=engine, progress=False)
    audit = run.audit()
    assert run.status is not sf.RunStatus.DIVERGED
    if run.iterations:
        assert audit.holds, str(audit)
    if not certificate.holds:
        return
    for t, gap in enumerate(run.gaps):
        assert gap <= certificate.bound(t) * (1.0 + 1e-9) + noise(gap, run.resolution), t
    if "guaranteed_sigma" in certificate.quantities:
        # a floor step always exists, so that only the rounding level can stall the run
        assert run.status is not sf.RunStatus.STALLED or run.gaps[-1] <= run.resolution
        lowest = certificate.quantities["guaranteed_sigma"]
        assert all(row["sigma_min_squared"] >= lowest * (1.0 - 1e-9) for row in run.rows)


QUICK: dict[str, Any] = {"suppress_health_check": [HealthCheck.filter_too_much, HealthCheck.too_slow]}
DRIFT = given(
    cases(),
    st.sampled_from(PROPOSALS),
    st.sampled_from(["two-layer/drift", "two-layer/contraction", "two-layer/sharp"]),
    st.sampled_from(["gram", "weights"]),
)


@settings(max_examples=35, **QUICK)
@DRIFT
def test_no_accepted_step_breaks_a_drift_certificate(case: Case, proposal: str, theorem: str, engine: str) -> None:
    hunt_drift(case, proposal, theorem, 25, engine)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(max_examples=700, **QUICK)
@example(Case("squared", "low-rank", 2, 3, 1, 0.0, 0.0, 0.0, 0), "huge", "two-layer/drift", "gram")
@example(Case("squared", "gaussian", 2, 3, 1, 0.0, 0.0, 0.0, 0), "tiny", "two-layer/drift", "gram")
@example(Case("sensing", "gaussian", 2, 2, 1, 0.0, 0.0, 0.0, 2), "huge", "two-layer/drift", "gram")
@DRIFT
def test_no_accepted_step_breaks_a_drift_certificate_deep(case: Case, proposal: str, theorem: str, engine: str) -> None:
    hunt_drift(case, proposal, theorem, 120, engine)


class NearlyTwice(sf.steps.StepRule):
    """The root of η K'(η) = 2(1 - c): the longest step for which Theorem I promises a decrease, for small c."""

    name = "nearly-twice"

    def __init__(self, c: float) -> None:
        self.c = c

    def step(self, engine: Engine) -> float:
        share = 2.0 * (1.0 - self.c)
        return planner.cubic_root(*(k / share for k in engine.iterate.sharp))


SHARP = given(cases(), st.sampled_from([1e-6, 0.01, 0.25, 0.5]), st.sampled_from(["gram", "weights"]))


def hunt_sharp(case: Case, c: float, iterations: int, engine: str) -> None:
    net, loss = case.build()
    certificate = sf.certify(net, loss, theorem="two-layer/sharp")
    assert certificate.holds
    run = sf.descend(net, loss, NearlyTwice(c), iterations, certificate=certificate, engine=engine, progress=False)
    if run.iterations:
        assert run.audit().holds, str(run.audit())
    for a, b in pairwise(run.rows):
        promised = a["gap"] - c * a["step"] * a["gradient_squared"] * (1.0 - 1e-9)
        assert b["gap"] <= promised * (1.0 + 1e-12) + noise(a["gap"], run.resolution)


@settings(max_examples=40, **QUICK)
@SHARP
def test_steps_up_to_twice_the_sharp_one_keep_their_decrease(case: Case, c: float, engine: str) -> None:
    hunt_sharp(case, c, 25, engine)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(max_examples=700, **QUICK)
@SHARP
def test_steps_up_to_twice_the_sharp_one_keep_their_decrease_deep(case: Case, c: float, engine: str) -> None:
    hunt_sharp(case, c, 100, engine)


CONSTANT = given(cases(2), st.sampled_from(["gram", "weights"]))


def hunt_constant(case: Case, iterations: int, engine: str) -> None:
    net, loss = case.build()
    certificate = sf.certify(net, loss, theorem="two-layer/constant")
    assume(certificate.holds)
    run = sf.descend(net, loss, None, iterations, certificate=certificate, engine=engine, progress=False)
    assert run.certified and set(run.step_sizes) <= {certificate.step_size}
    if run.iterations:
        assert run.audit().holds, str(run.audit())
    for t, gap in enumerate(run.gaps):
        assert gap <= certificate.bound(t) * (1.0 + 1e-9) + noise(gap, run.resolution)


@settings(max_examples=30, **QUICK)
@CONSTANT
def test_the_constant_step_keeps_its_rate(case: Case, engine: str) -> None:
    hunt_constant(case, 25, engine)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(max_examples=700, **QUICK)
@CONSTANT
def test_the_constant_step_keeps_its_rate_deep(case: Case, engine: str) -> None:
    hunt_constant(case, 150, engine)


class PaperSteps(sf.steps.PaperRho):
    """Any steps that the linear theorem admits: between η0 and the scheduled ones."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind, self.random = kind, torch.Generator().manual_seed(seed)

    def step(self, engine: Engine) -> float:
        longest, eta0 = super().step(engine), self._q["initial_step"]
        if self.kind == "random":
            return eta0 + float(torch.rand((), generator=self.random, dtype=torch.float64)) * (longest - eta0)
        if self.kind == "alternating":
            return longest if self._t % 2 else eta0
        return longest if self.kind == "longest" else eta0


PAPER = given(
    cases(2),
    st.sampled_from(["longest", "shortest", "random", "alternating"]),
    st.floats(0.05, 0.95),
    st.floats(1.01, 3.0),
    st.floats(0.05, 0.999),
)


def hunt_corrected(case: Case, steps: str, c: float, d: float, share: float, iterations: int) -> None:
    """With any exponents, and η0 any share of the largest admissible one."""
    net, loss = case.build()
    theorem = PLANS["two-layer/corrected"].theorem
    certificate = sf.certify(net, loss, theorem=theorem.id)
    assume(certificate.quantities.get("alpha1", 0.0) > 0.0)
    sizes = {k: v for k, v in certificate.problem.items() if k != "kind"}
    q = {**{k: v for k, v in certificate.quantities.items() if k in theorem.base}, **sizes, "c": c, "d": d}
    q |= PLANS[theorem.id].parameters(q)
    q["initial_step"] *= share
    assume(q["initial_step"] > 0.0 and all(x.certain for x in theorem.conditions(q)))
    schedule = tuple(PLANS[theorem.id].schedule(q))
    q |= theorem.derived(q)
    certificate = replace(certificate, quantities=q, schedule=schedule, status=sf.CertificateStatus.HOLDS)
    run = sf.descend(net, loss, PaperSteps(steps, case.seed), iterations, certificate=certificate, progress=False)
    if run.iterations:
        assert run.audit().holds, str(run.audit())
    for t, gap in enumerate(run.gaps):
        assert gap <= certificate.bound(t) * (1.0 + 1e-9) + noise(gap, run.resolution)
    growth = math.exp(q["initial_step"] ** c)
    lowest = q["alpha1"] - 0.5 * q["alpha2"] * (growth - 1.0)
    for row in run.rows:  # Theorem 8: s- and s+ along the run
        assert row["sigma_min_squared"] >= lowest * (1.0 - 1e-9)
        assert row["sigma_max_squared"] <= q["alpha2"] * growth * (1.0 + 1e-9)


@settings(max_examples=30, **QUICK)
@PAPER
def test_the_corrected_rate_holds_for_all_admitted_steps(
    case: Case, steps: str, c: float, d: float, share: float
) -> None:
    hunt_corrected(case, steps, c, d, share, 25)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(max_examples=700, **QUICK)
@PAPER
def test_the_corrected_rate_holds_for_all_admitted_steps_deep(
    case: Case, steps: str, c: float, d: float, share: float
) -> None:
    hunt_corrected(case, steps, c, d, share, 150)
