"""Audits of training loops of one's own, and of runs: what holds passes, what was tampered with is named."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import surefoot as sf
from surefoot._core.registry import system_of
from surefoot._two_layer import planner
from surefoot._two_layer.engines import WeightEngine
from surefoot._two_layer.system import reduced_weights

MONOTONE = "the gap never increases"
DESCENT = "descent of Theorem I: L' <= L - (eta - eta^2 K'(eta)/2) |grad L|^2"
CONTRACTION = "contraction of Theorem III"
BUDGET = "drift budget (T): d <= kappa (theta alpha1 - Q)(1 - L'/L)"
PROGRESS = "progress: the gap falls as far as the floor step guarantees, or is on schedule"
SIGMA = "s-(t) stays at least (1-theta) alpha1"
BOUND = "the gap stays under the guaranteed bound"
DEFECT = "each iterate is a gradient step from the one before (relative defect)"
SUFFICIENT = "sufficient decrease (S): L' <= L - c eta |grad L|^2"
PAPER = "steps lie between eta0 and min((1+eta0^d)^(t/2) eta0, 1/K_t)"


class Setting:
    """Raw data, the loss that speaks of it, and a plain module to train on it."""

    def __init__(self, seed: int = 0, n: int = 4, m: int = 2, width: int = 30) -> None:
        g = torch.Generator().manual_seed(seed)
        orthonormal = torch.linalg.qr(torch.randn(40, n, generator=g, dtype=torch.float64))[0]
        self.X = orthonormal * torch.linspace(2.0, 3.0, n, dtype=torch.float64)
        self.net = sf.nn.TwoLayerLinear.gaussian(n, m, width, generator=g)
        noise = torch.randn(40, m, generator=g, dtype=torch.float64)
        self.Y = self.net(self.X).detach() + 3.0 * noise
        self.loss = sf.SquaredLoss(self.X, self.Y)
        W1, W2 = reduced_weights(self.net, self.loss)
        # 1/K' is the step of a guarantee in one step; the schedule expects a little more of a constant one
        self.eta = 1.4 * planner.cubic_root(*WeightEngine(self.loss.reduced, W1, W2).iterate.sharp)

    def train(
        self,
        steps: int,
        lr: float,
        *,
        recorded: Callable[[int], float] | None = None,
        before_step: Callable[[int, torch.optim.SGD], None] | None = None,
        after_step: Callable[[int], None] | None = None,
        momentum: float = 0.0,
    ) -> sf.Trace:
        """The user's loop: record, backward, step."""
        trace = sf.Trace(self.loss)
        optimiser = torch.optim.SGD(self.net.parameters(), lr=lr, momentum=momentum)
        for t in range(steps):
            if before_step is not None:
                before_step(t, optimiser)
            rate = optimiser.param_groups[0]["lr"]
            trace.record(self.net, rate if recorded is None else recorded(t))
            optimiser.zero_grad()
            (0.5 * ((self.net(self.X) - self.Y) ** 2).sum()).backward()
            optimiser.step()
            if after_step is not None:
                after_step(t)
        trace.record(self.net)
        return trace


def lines(audit: sf.Audit) -> dict[str, sf.AuditLine]:
    return {line.name: line for line in audit.lines}


def violated(audit: sf.Audit) -> dict[str, int | None]:
    """Name and first violation of each line that does not hold."""
    return {line.name: line.first_violation for line in audit.lines if not line.holds}


def test_a_loop_of_ones_own_passes() -> None:
    setting = Setting()
    certificate = sf.certify(setting.net, setting.loss)
    assert certificate.holds
    trace = setting.train(25, setting.eta)
    audit = sf.audit(trace, certificate)
    assert audit.holds and audit.violations == 0, str(audit)
    by_name = lines(audit)
    assert set(by_name) == {MONOTONE, DESCENT, CONTRACTION, BUDGET, PROGRESS, SIGMA, BOUND, DEFECT}
    assert all(line.checked >= 20 for line in by_name.values())
    worst = by_name[DEFECT].worst
    assert worst is not None and worst < 1e-3  # far below what the audit allows
    assert trace.gaps[-1] < 1e-6 * trace.gaps[0] and len(trace.step_sizes) == 25
    assert "no violation" in str(audit)


def test_the_recorded_loop_equals_descend() -> None:
    setting = Setting(1)
    other = copy.deepcopy(setting.net)
    trace = setting.train(12, setting.eta)
    run = sf.descend(other, setting.loss, setting.eta, 12, tolerance=0.0, engine="weights", progress=False)
    assert trace.gaps == pytest.approx(run.gaps, rel=1e-9, abs=0.0)
    assert trace.step_sizes == run.step_sizes
    for name, value in trace.rows[5].items():
        if name != "defect":
            assert value == pytest.approx(run.rows[5][name], rel=1e-8, abs=0.0), name


def test_constant_steps_audited_against_the_drift_theorem() -> None:
    """The drift theorem says nothing of a constant step in advance; the audit shows that this run kept every inequality."""
    setting = Setting(2)
    certificate = sf.certify(setting.net, setting.loss)
    run = sf.descend(setting.net, setting.loss, setting.eta, 200, certificate=certificate, progress=False)
    assert run.status is sf.RunStatus.CONVERGED and run.certificate.theorem == "two-layer/drift"
    assert not run.certified and run.certified_from is None
    assert run.guaranteed_iterations(1e-3) == float("inf")
    assert run.audit().holds, str(run.audit())


def test_sgd_at_the_certified_learning_rate() -> None:
    """The theorem of a constant step speaks of a loop of one's own, and of no longer step."""
    setting = Setting(4)
    certificate = sf.certify(setting.net, setting.loss, theorem="two-layer/constant")
    rate = certificate.step_size
    assert certificate.holds and rate is not None
    start = copy.deepcopy(setting.net)
    audit = sf.audit(setting.train(25, rate), certificate)
    assert audit.holds, str(audit)
    assert {BUDGET, SIGMA, BOUND, DEFECT} <= set(lines(audit))
    for factor in (1.01, 0.99):
        setting.net = copy.deepcopy(start)
        audit = sf.audit(setting.train(10, rate * factor), certificate)
        broken = {name: first for name, first in violated(audit).items() if "constant" in name or "step" in name}
        assert list(broken.values()) == [0], str(audit)


def test_a_tiny_constant_step_falls_behind_the_floor() -> None:
    """Too small a step keeps the budget but not the progress: only the promise about time is broken."""
    setting = Setting(2)
    certificate = sf.certify(setting.net, setting.loss)
    run = sf.descend(setting.net, setting.loss, 1e-3 * setting.eta, 50, certificate=certificate, progress=False)
    assert violated(run.audit()) == {PROGRESS: 0, BOUND: 1}


@pytest.mark.parametrize("factor", [2.0, 0.5, 1.0 + 1e-6])
def test_a_step_recorded_wrongly_is_caught(factor: float) -> None:
    setting = Setting()
    certificate = sf.certify(setting.net, setting.loss)
    eta = setting.eta
    trace = setting.train(8, eta, recorded=lambda t: eta * factor if t == 3 else eta)
    assert violated(sf.audit(trace, certificate))[DEFECT] == 4


@pytest.mark.parametrize("size", [1e-2, 1e-6, 1e-8])
def test_a_move_that_is_no_gradient_step_is_caught(size: float) -> None:
    setting = Setting()
    certificate = sf.certify(setting.net, setting.loss)

    def push(t: int) -> None:
        if t == 5:
            with torch.no_grad():
                setting.net.W2.mul_(1.0 + size)

    assert violated(sf.audit(setting.train(9, setting.eta, after_step=push), certificate))[DEFECT] == 6


def test_momentum_is_no_gradient_descent() -> None:
    """The first step of SGD with momentum is a plain one."""
    setting = Setting()
    certificate = sf.certify(setting.net, setting.loss)
    audit = sf.audit(setting.train(6, 0.2 * setting.eta, momentum=0.9), certificate)
    assert violated(audit)[DEFECT] == 2
    assert "no gradient steps" in audit.notes[0] and "sf.watch" in str(audit)


def test_weight_decay_is_caught_at_the_first_step() -> None:
    setting = Setting()
    certificate = sf.certify(setting.net, setting.loss)
    trace = sf.Trace(setting.loss)
    optimiser = torch.optim.SGD(setting.net.parameters(), lr=setting.eta, weight_decay=1e-4)
    for _ in range(3):
        trace.record(setting.net, setting.eta)
        optimiser.zero_grad()
        (0.5 * ((setting.net(setting.X) - setting.Y) ** 2).sum()).backward()
        optimiser.step()
    trace.record(setting.net)
    assert violated(sf.audit(trace, certificate))[DEFECT] == 1


def test_one_step_too_long_is_named_with_its_iteration() -> None:
    setting = Setting()
    certificate = sf.certify(setting.net, setting.loss)
    eta = setting.eta

    def lengthen(t: int, optimiser: torch.optim.SGD) -> None:
        optimiser.param_groups[0]["lr"] = 9.0 * eta if t == 4 else eta

    audit = sf.audit(setting.train(8, eta, before_step=lengthen), certificate)
    first = violated(audit)
    assert first[MONOTONE] == 4 and first[BUDGET] == 4 and first[PROGRESS] == 4
    assert DEFECT not in first and DESCENT not in first and CONTRACTION not in first  # still gradient descent, and true
    assert "VIOLATED first at iteration 4" in str(audit)


def test_a_diverging_loop() -> None:
    setting = Setting()
    certificate = sf.certify(setting.net, setting.loss)
    trace = setting.train(4, 6.0 * setting.eta)
    audit = sf.audit(trace, certificate)
    first = violated(audit)
    assert not audit.holds and first[MONOTONE] == 0 and first[BOUND] == 1 and first[BUDGET] == 0
    assert trace.gaps[-1] > 100.0 * trace.gaps[0]
    with pytest.raises(ValueError, match="the run diverged"):
        setting.train(40, 6.0 * setting.eta)


@pytest.mark.parametrize("engine", ["gram", "weights"])
@pytest.mark.parametrize("eta", [1e3, 1e80, 1e300])
def test_a_step_that_overflows_is_a_divergence(eta: float, engine: str) -> None:
    setting = Setting()
    run = sf.descend(setting.net, setting.loss, eta, engine=engine, progress=False)
    assert run.status is sf.RunStatus.DIVERGED
    wild = sf.steps.Certified(sf.steps.Constant(eta))
    assert sf.descend(setting.net, setting.loss, wild, engine=engine, progress=False).audit().holds


def test_a_diverging_run_is_audited_to_its_end() -> None:
    setting = Setting()
    start = {k: v.detach().clone() for k, v in setting.net.named_parameters()}
    run = sf.descend(setting.net, setting.loss, 6.0 * setting.eta, 100, progress=False)
    assert run.status is sf.RunStatus.DIVERGED
    assert not run.audit().holds and violated(run.audit())[MONOTONE] == 0
    # the last weights that can be trusted are left in the network
    for name, parameter in setting.net.named_parameters():
        torch.testing.assert_close(parameter.detach(), start[name], rtol=1e-12, atol=1e-12)


# -- each line answers to its own tampering ----------------------------------------------------------------------------


def run_with(theorem: str, rule: str | None = None, loss: sf.Loss | None = None) -> sf.Run:
    setting = Setting(3)
    loss = setting.loss if loss is None else loss
    certificate = sf.certify(setting.net, loss, theorem=theorem)
    assert certificate.holds
    run = sf.descend(setting.net, loss, rule, 30, certificate=certificate, tolerance=1e-11, progress=False)
    assert run.audit().holds and run.iterations > 8
    return run


def tamper(run: sf.Run, iteration: int, **factors: float) -> dict[str, int | None]:
    rows = copy.deepcopy(run.rows)
    for name, factor in factors.items():
        rows[iteration][name] *= factor
    audit = system_of(sf.nn.TwoLayerLinear([[1.0]], [[1.0]])).audit(rows, run.certificate, run.resolution)
    return violated(audit)


@pytest.mark.parametrize(
    ("name", "iteration", "factors", "first"),
    [
        (MONOTONE, 5, {"gap": 1e3}, 4),
        (DESCENT, 5, {"gradient_squared": 1e3}, 5),
        (CONTRACTION, 5, {"gap": 1e3}, 4),
        (BUDGET, 5, {"drift_per_step": 1e9}, 5),
        (PROGRESS, 6, {"gap": 1e6}, 5),
        (SIGMA, 6, {"sigma_min_squared": 1e-3}, 6),
        (BOUND, 7, {"gap": 1e9}, 7),
    ],
)
def test_every_line_of_the_drift_audit_can_fail(
    name: str, iteration: int, factors: dict[str, float], first: int
) -> None:
    assert tamper(run_with("two-layer/drift"), iteration, **factors)[name] == first


def test_the_budget_line_remembers_what_was_spent() -> None:
    """One huge drift early leaves nothing for the later steps."""
    run = run_with("two-layer/drift")
    rows = copy.deepcopy(run.rows)
    q = run.certificate.quantities
    share = q["budget"] * q["alpha1"] / (rows[2]["step"] ** 2 * rows[2]["drift_per_step"])
    first = tamper(run, 2, drift_per_step=1.01 * share)
    assert first[BUDGET] == 2
    later = [t for t in range(3, 8) if tamper(run, t, drift_per_step=0.0).get(BUDGET) is not None]
    assert later == []


def test_the_path_form_audits_sufficient_decrease() -> None:
    g = torch.Generator().manual_seed(1)
    loss = sf.MatrixSensing(torch.randn(6, 4, 2, generator=g, dtype=torch.float64), torch.ones(6, dtype=torch.float64))
    run = run_with("two-layer/drift", loss=loss)
    assert not loss.unique_optimum and SUFFICIENT in lines(run.audit())
    assert tamper(run, 4, gradient_squared=10.0)[SUFFICIENT] == 4


@pytest.mark.parametrize(("factor", "first"), [(1.001, 6), (0.5, 6)])
def test_the_steps_of_the_paper_have_two_sides(factor: float, first: int) -> None:
    run = run_with("two-layer/corrected", "paper-rho")
    assert tamper(run, 6, step=factor) == {PAPER: first}


def test_nan_is_a_violation() -> None:
    assert tamper(run_with("two-layer/drift"), 3, gap=float("nan"))[MONOTONE] == 2


# -- the recorder ------------------------------------------------------------------------------------------------------


def test_the_recorder_checks_its_arguments() -> None:
    setting = Setting()
    certificate = sf.certify(setting.net, setting.loss)
    with pytest.raises(ValueError, match="the trace is empty"):
        sf.audit(sf.Trace(setting.loss), certificate)
    trace = sf.Trace(setting.loss)
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="step_size is"):
            trace.record(setting.net, bad)
    with pytest.raises(TypeError, match="TwoLayerLinear"):
        trace.record(torch.nn.Linear(2, 2), 0.1)
    trace.record(setting.net)
    with pytest.raises(ValueError, match="closed by record"):
        trace.record(setting.net, 0.1)
    wrong: Any = sf.nn.TwoLayerLinear.gaussian(3, 2, 8)
    with pytest.raises(ValueError, match="3 inputs"):
        sf.Trace(setting.loss).record(wrong, 0.1)


def test_a_trace_of_other_weights_or_data_is_refused() -> None:
    """Its inequalities could hold by chance, and would say nothing of what the certificate guarantees."""
    setting, other = Setting(), Setting(1)
    certificate = sf.certify(setting.net, setting.loss)
    with pytest.raises(ValueError, match=r"speaks of other arrays \(.*initial/W1.*problem/X.* differ\)"):
        sf.audit(other.train(2, other.eta), certificate)
    setting.train(1, setting.eta)  # the network has moved on
    with pytest.raises(ValueError, match=r"speaks of other arrays \(initial/W1, initial/W2 differ\)"):
        sf.audit(setting.train(2, setting.eta), certificate)


def test_a_rank_deficient_problem_is_recorded_reduced() -> None:
    """Zero and repeated columns: the loop moves the full weights, the audit speaks of the reduced ones."""
    g = torch.Generator().manual_seed(5)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    setting = Setting(5)
    base = normal(40, 2)
    setting.X = torch.cat([base, base[:, :1] - base[:, 1:], torch.zeros(40, 1, dtype=torch.float64)], 1)
    setting.Y = normal(40, 2)
    setting.loss = sf.SquaredLoss(setting.X, setting.Y)
    assert setting.loss.reduced.shape == (2, 2)
    W1, W2 = reduced_weights(setting.net, setting.loss)
    eta = planner.cubic_root(*WeightEngine(setting.loss.reduced, W1, W2).iterate.sharp)
    certificate = sf.certify(setting.net, setting.loss)
    audit = sf.audit(setting.train(20, eta), certificate)
    assert DEFECT not in violated(audit) and DESCENT not in violated(audit) and MONOTONE not in violated(audit)
