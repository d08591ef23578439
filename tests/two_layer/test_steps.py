"""Every step rule on every kind of loss, and each rule against its own definition."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import surefoot as sf
from surefoot._core.registry import system_of
from surefoot._two_layer import planner
from surefoot._two_layer.engines import Engine
from surefoot._two_layer.iterate import Quartic
from surefoot._two_layer.steps import DRIFT, PAPER, first_critical_point
from surefoot._two_layer.system import TwoLayerSystem

KINDS = ["squared", "sensing", "sensing-deficient", "softmax"]
RULES = [name for name in TwoLayerSystem.rules if name != "prescribed"]
"""All but the one that needs a start of its own (``test_prescribed.py``)."""
CERTIFIED = ["certified-bb", "contraction", "sharp"]
PRINTED = ["paper-rho", "paper-rho-bar"]


def close(expected: Any, rel: float) -> Any:
    """Relative agreement alone; by default pytest would also allow an absolute 1e-12."""
    return pytest.approx(expected, rel=rel, abs=0.0)


def build(kind: str, seed: int = 0, std: float = 1.0) -> tuple[sf.nn.TwoLayerLinear, sf.Loss]:
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    net = sf.nn.TwoLayerLinear.gaussian(3, 2, 8, std, generator=g)
    if kind == "squared":
        return net, sf.SquaredLoss(normal(12, 3), normal(12, 2))
    if kind == "softmax":
        return net, sf.SoftmaxRegression(normal(20, 3), torch.arange(20) % 2, 0.5)
    count = 10 if kind == "sensing" else 5
    return net, sf.MatrixSensing(normal(count, 3, 2), normal(count))


def certificate_for(rule: str, net: sf.nn.TwoLayerLinear, loss: sf.Loss) -> sf.Certificate:
    return sf.certify(net, loss, theorem="two-layer/corrected" if rule in PRINTED else None)


def argument(rule: str, net: sf.nn.TwoLayerLinear, loss: sf.Loss) -> str | float:
    """What ``descend`` takes for the rule: its name; for a constant step the number, here 1/K' at the start."""
    if rule != "constant":
        return rule
    return planner.cubic_root(*engine_of(net, loss).iterate.sharp)


def engine_of(net: sf.nn.TwoLayerLinear, loss: sf.Loss, name: str = "weights") -> Engine:
    engine = system_of(net).engine(net, loss, name)
    assert isinstance(engine, Engine)
    return engine


def rule_of(rule: str, net: sf.nn.TwoLayerLinear, loss: sf.Loss) -> sf.steps.StepRule:
    certificate = certificate_for(rule, net, loss)
    made = system_of(net).rule(argument(rule, net, loss), certificate)
    made.start(loss.reduced, certificate)
    return made


def admits(rule: str, kind: str) -> bool:
    """The printed rules need a unique minimiser for their certificate."""
    return not (rule in PRINTED and kind == "sensing-deficient")


DRIFT_THEOREMS = ("two-layer/drift", "two-layer/contraction", "two-layer/sharp")
PAIRS = [(rule, kind) for rule in RULES for kind in KINDS if admits(rule, kind)]


@pytest.mark.parametrize(("rule", "kind"), PAIRS)
def test_every_rule_runs_on_every_loss(rule: str, kind: str) -> None:
    net, loss = build(kind)
    certificate = certificate_for(rule, net, loss)
    assert certificate.holds
    run = sf.descend(net, loss, argument(rule, net, loss), 60, certificate=certificate, progress=False)
    assert all(math.isfinite(x) for row in run.rows for x in row.values())
    assert run.iterations >= 1 and len(run.gaps) == run.iterations + 1
    assert run.status in (sf.RunStatus.CONVERGED, sf.RunStatus.MAX_ITERATIONS)
    assert run.gaps[-1] < run.gaps[0]
    lines = {line.name.split(":")[0]: line for line in run.audit().lines}
    # what holds for every step of whatever size
    assert lines["descent of Theorem I"].checked == run.iterations and lines["descent of Theorem I"].holds
    if loss.quadratic:
        assert lines["contraction of Theorem III"].checked == run.iterations
        assert lines["contraction of Theorem III"].holds


def of_every_rule_and_loss() -> list[Any]:
    """Rules, losses and theorems; every rule meets every loss with one of the theorems, and with all in the slow tests."""
    return [
        pytest.param(rule, kind, theorem, marks=() if (i + j) % len(DRIFT_THEOREMS) == k else pytest.mark.slow)
        for i, rule in enumerate(CERTIFIED)
        for j, kind in enumerate(KINDS)
        for k, theorem in enumerate(DRIFT_THEOREMS)
    ]


@pytest.mark.parametrize(("rule", "kind", "theorem"), of_every_rule_and_loss())
def test_certified_rules_never_violate_the_drift_theorems(rule: str, kind: str, theorem: str) -> None:
    for std in (0.5, 2.0):
        net, loss = build(kind, 1, std)
        certificate = sf.certify(net, loss, theorem=theorem)
        if theorem == "two-layer/contraction" and kind in ("softmax", "sensing-deficient"):
            assert not certificate.holds
        if theorem == "two-layer/sharp":  # the contraction needs mu, which this theorem does not
            assert "strong_convexity" not in certificate.quantities
        run = sf.descend(net, loss, rule, 60, certificate=certificate, progress=False)
        assert run.certified == certificate.holds
        audit = run.audit()
        assert audit.violations == 0 and audit.holds, str(audit)


@pytest.mark.parametrize("kind", ["squared", "sensing", "softmax"])
@pytest.mark.parametrize("rule", PRINTED)
def test_the_paper_rules_never_violate_the_corrected_theorem(rule: str, kind: str) -> None:
    for seed in range(3):
        net, loss = build(kind, seed)
        certificate = certificate_for(rule, net, loss)
        run = sf.descend(net, loss, rule, 100, certificate=certificate, progress=False)
        assert run.certified and run.audit().holds, str(run.audit())


def test_which_rules_carry_which_guarantee() -> None:
    for name in RULES:
        net, loss = build("squared")
        expected = DRIFT if name in CERTIFIED else PAPER if name in PRINTED else frozenset()
        assert rule_of(name, net, loss).certified_by == expected


@pytest.mark.parametrize(("rule", "kind"), PAIRS)
@pytest.mark.parametrize("engine", ["gram", "weights"])
def test_a_restored_state_continues_exactly(rule: str, kind: str, engine: str) -> None:
    net, loss = build(kind)
    first, moving = rule_of(rule, net, loss), engine_of(net, loss, engine)
    for _ in range(4):
        moving.move(first.step(moving))
    weights = {k: v.clone() for k, v in moving.weights().items()}
    state, inner = {k: v.clone() for k, v in moving.state().items()}, dict(first.state())
    assert all(isinstance(value, float) for value in inner.values())
    steps = []
    for _ in range(5):
        steps.append(first.step(moving))
        moving.move(steps[-1])

    second, again = rule_of(rule, net, loss), engine_of(net, loss, engine)
    again.restore(weights, state)
    second.restore(inner)
    for expected in steps:
        assert second.step(again) == expected
        again.move(expected)
    assert all(torch.equal(v, moving.weights()[k]) for k, v in again.weights().items())


@pytest.mark.parametrize("rule", RULES)
def test_start_forgets_the_run_before(rule: str) -> None:
    net, loss = build("squared")
    made, moving = rule_of(rule, net, loss), engine_of(net, loss)
    fresh = made.step(moving)
    for _ in range(3):
        moving.move(made.step(moving))
    made.start(loss.reduced, certificate_for(rule, net, loss))
    assert made.step(engine_of(net, loss)) == fresh


# -- arguments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [("certified-b", "certified-bb"), ("exact_line_search", "exact-line-search"), ("papper-rho", "paper-rho")],
)
def test_unknown_rules_suggest_the_nearest(wrong: str, nearest: str) -> None:
    net, loss = build("squared")
    with pytest.raises(ValueError, match=rf"unknown step rule '{wrong}'; did you mean '{nearest}'\?"):
        sf.descend(net, loss, wrong, progress=False)


@pytest.mark.parametrize("eta", [0.0, -0.1, math.nan, math.inf, -math.inf])
def test_a_constant_step_must_be_positive_and_finite(eta: float) -> None:
    net, loss = build("squared")
    with pytest.raises(ValueError, match="eta is"):
        sf.steps.Constant(eta)
    with pytest.raises(ValueError, match="steps is"):
        sf.descend(net, loss, steps=eta, progress=False)


def test_a_constant_step_needs_its_number() -> None:
    net, loss = build("squared")
    with pytest.raises(ValueError, match=r"steps=0\.01"):
        sf.descend(net, loss, "constant", progress=False)
    with pytest.raises(TypeError, match="bool"):
        sf.descend(net, loss, True, progress=False)


@pytest.mark.parametrize(
    "arguments",
    [{"initial": 0.0}, {"initial": math.nan}, {"shrink": 1.0}, {"shrink": 0.0}, {"decrease": 0.0}, {"decrease": 1.0}],
)
def test_backtracking_checks_its_arguments(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="backtracking needs"):
        sf.steps.Backtracking(**arguments)


@pytest.mark.parametrize("rule", PRINTED)
def test_the_paper_rules_need_their_certificate(rule: str) -> None:
    net, loss = build("squared")
    with pytest.raises(ValueError, match="two-layer/corrected"):
        sf.descend(net, loss, rule, progress=False)  # the default certificate is of the drift theorem
    net, loss = build("sensing-deficient")
    failed = sf.certify(net, loss, theorem="two-layer/corrected")
    assert not failed.holds
    with pytest.raises(ValueError, match="positive first step"):
        sf.descend(net, loss, rule, certificate=failed, progress=False)


# -- rules against their definitions -----------------------------------------------------------------------------------


def slopes(net: sf.nn.TwoLayerLinear, loss: sf.Loss, etas: Tensor) -> Tensor:
    """d/dη of the loss along -∇L at each η, from the weights alone: -⟨∇L(θ - η∇L), ∇L⟩."""
    W1, W2 = net.W1.detach(), net.W2.detach()
    g = loss.gradient(W1 @ W2.T)
    G1, G2 = g @ W2, g.T @ W1
    result = []
    for eta in etas.tolist():
        V1, V2 = W1 - eta * G1, W2 - eta * G2
        moved = loss.gradient(V1 @ V2.T)
        result.append(-float((moved @ V2 * G1).sum() + (moved.T @ V1 * G2).sum()))
    return torch.tensor(result, dtype=torch.float64)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["squared", "sensing", "sensing-deficient"])
def test_exact_line_search_stops_at_the_first_critical_point(kind: str, seed: int) -> None:
    """Against a scan of the slope along the gradient, then bisection."""
    net, loss = build(kind, seed, 0.3 + 0.4 * seed)
    eta = sf.steps.ExactLineSearch().step(engine_of(net, loss))
    grid = torch.linspace(0.0, 3.0 * eta, 1500, dtype=torch.float64)
    after = int((slopes(net, loss, grid) >= 0.0).nonzero()[0, 0])
    low, high = float(grid[after - 1]), float(grid[after])
    for _ in range(50):
        middle = 0.5 * (low + high)
        below = float(slopes(net, loss, torch.tensor([middle], dtype=torch.float64))[0]) < 0.0
        low, high = (middle, high) if below else (low, middle)
    assert eta == close(low, 1e-8)


def test_exact_line_search_on_other_losses_minimises_the_majoriser() -> None:
    net, loss = build("softmax", 3)
    iterate = engine_of(net, loss).iterate
    eta = sf.steps.ExactLineSearch().step(engine_of(net, loss))
    for share in (0.1, 0.5, 1.0, 2.0):
        assert iterate.trial(share * eta) - iterate.gap <= iterate.quartic.at(share * eta) * (1.0 - 1e-12) + 1e-14
    assert iterate.quartic.at(eta) < min(iterate.quartic.at(0.99 * eta), iterate.quartic.at(1.01 * eta))


def quartic_with(roots: tuple[complex, complex, complex], size: float) -> Quartic:
    """A quartic whose derivative has these roots and the value -size at 0."""
    a, b, c = roots
    lead = size / (a * b * c).real
    return Quartic(-size, 0.5 * lead * (a * b + a * c + b * c).real, -lead * (a + b + c).real / 3.0, 0.25 * lead)


@settings(max_examples=150)
@given(
    st.floats(-8, 8), st.floats(0.01, 3.0), st.floats(0.01, 3.0), st.floats(-9, 9), st.booleans(), st.floats(-2.0, 2.0)
)
def test_first_critical_point_of_a_known_quartic(
    log_first: float, second: float, third: float, log_size: float, simple: bool, real: float
) -> None:
    """Three positive roots, or one beside a complex pair, over sixteen decades of the step."""
    first = 10.0**log_first
    if simple:
        roots = (complex(first), complex(first * (1.0 + second)), complex(first * (1.0 + second + third)))
    else:
        pair = complex(first * real, first * second)
        roots = (complex(first), pair, pair.conjugate())
    assert first_critical_point(quartic_with(roots, 10.0**log_size)) == close(first, 1e-7)


def test_first_critical_point_where_there_is_none() -> None:
    assert first_critical_point(Quartic(0.0, 1.0, 0.0, 0.0)) == 0.0  # at a critical point already
    assert first_critical_point(Quartic(-1.0, 0.0, 0.0, 0.0)) == 0.0  # falls for ever
    assert first_critical_point(Quartic(-1.0, -1.0, 0.0, 0.0)) == 0.0
    assert first_critical_point(Quartic(-2.0, 0.5, 0.0, 0.0)) == close(2.0, 1e-12)  # C = 0: a parabola


@pytest.mark.parametrize("warm_start", [False, True])
@pytest.mark.parametrize("initial", [1e-6, 1.0, 1e12])
@pytest.mark.parametrize("kind", KINDS)
def test_backtracking_ends_with_the_decrease_it_promises(kind: str, initial: float, warm_start: bool) -> None:
    net, loss = build(kind, 2, 3.0)
    rule, engine = sf.steps.Backtracking(initial, 0.5, 0.3, warm_start), engine_of(net, loss)
    rule.start(loss, None)
    last = initial
    for _ in range(10):
        iterate = engine.iterate
        eta = rule.step(engine)
        assert iterate.trial(eta) <= iterate.gap - 0.3 * eta * iterate.gradient_squared
        larger, begin = eta / 0.5, last / 0.5 if warm_start else initial
        assert eta == begin or iterate.trial(larger) > iterate.gap - 0.3 * larger * iterate.gradient_squared
        last = eta
        engine.move(eta)


def test_backtracking_ends_at_the_rounding_level() -> None:
    net, loss = build("squared")
    run = sf.descend(net, loss, sf.steps.Backtracking(1.0, 0.5), 3000, tolerance=0.0, progress=False)
    assert run.status is sf.RunStatus.STALLED
    assert run.gaps[-1] <= 1e-24 * run.gaps[0]


def test_barzilai_borwein_is_the_quotient_of_differences() -> None:
    net, loss = build("squared", 4)
    rule, engine = sf.steps.BarzilaiBorwein(), engine_of(net, loss)
    rule.start(loss, None)
    points: list[tuple[Tensor, Tensor]] = []
    for t in range(6):
        W1, W2 = (W.clone() for W in engine.weights().values())
        g = loss.gradient(W1 @ W2.T)
        theta, gradient = torch.cat([W1, W2]), torch.cat([g @ W2, g.T @ W1])
        eta = rule.step(engine)
        if t == 0:
            assert eta == close(planner.cubic_root(*engine.iterate.sharp), 1e-15)
        else:
            s, y = theta - points[-1][0], gradient - points[-1][1]
            assert eta == close(float((s * s).sum() / (s * y).sum()), 1e-8)
        points.append((theta, gradient))
        engine.move(eta)


def test_polyak_is_the_gap_over_the_squared_gradient() -> None:
    net, loss = build("softmax", 1)
    W1, W2 = net.W1.detach(), net.W2.detach()
    g = loss.gradient(W1 @ W2.T)
    squared = float(((g @ W2) ** 2).sum() + ((g.T @ W1) ** 2).sum())
    assert sf.steps.Polyak().step(engine_of(net, loss)) == close(loss.gap(W1 @ W2.T) / squared, 1e-12)


def test_local_solves_its_equation() -> None:
    for kind in KINDS:
        net, loss = build(kind, 2)
        engine = engine_of(net, loss)
        eta = sf.steps.Local().step(engine)
        k0, k1, k2 = engine.iterate.printed
        assert eta * (k0 + eta * (k1 + eta * k2)) == close(1.0, 1e-11)
        assert eta <= planner.cubic_root(*engine.iterate.sharp)  # K' ≤ K_t


@pytest.mark.parametrize("seed", range(4))
def test_xu2023_minimises_its_rate_within_its_limit(seed: int) -> None:
    net, loss = build("squared", seed, 0.2 + seed)
    engine = engine_of(net, loss)
    it, K, mu = engine.iterate, loss.smoothness, loss.strong_convexity
    low, high, p = it.sigma_min_squared, it.sigma_max_squared, it.map_norm * it.gradient_frobenius
    rule = sf.steps.Xu2023()
    rule.start(loss, None)
    eta = rule.step(engine)
    slope = -2 * mu * low + 2 * (K * mu * high**2 + 2 * mu * p) * eta + 6 * mu * K * high * p * eta**2
    slope += 4 * mu * K * p**2 * eta**3
    limit = low - eta * p - 0.5 * K * eta * (high + eta * p) ** 2
    tight = (abs(slope) <= 1e-10 * mu * low, abs(limit) <= 1e-10 * low)
    assert any(tight) and slope <= 1e-10 * mu * low and limit >= -1e-10 * low


def test_xu2023_stops_where_the_smallest_singular_value_is_zero() -> None:
    net = sf.nn.TwoLayerLinear(torch.zeros(2, 4).double(), torch.zeros(2, 4).double())
    loss = sf.SquaredLoss(torch.eye(2).double(), torch.eye(2).double())
    assert sf.descend(net, loss, "xu2023", progress=False).status is sf.RunStatus.STALLED


@pytest.mark.parametrize("rule", PRINTED)
def test_the_paper_steps_grow_until_they_meet_their_limit(rule: str) -> None:
    net, loss = build("squared", 0)
    certificate = certificate_for(rule, net, loss)
    q = certificate.quantities
    run = sf.descend(net, loss, rule, 30, certificate=certificate, progress=False)
    for t, (step, row) in enumerate(zip(run.step_sizes, run.rows, strict=False)):
        growth = (1.0 + q["initial_step"] ** q["d"]) ** (0.5 * t) * q["initial_step"]
        k = planner.printed_coefficients(q["smoothness"], row["sigma_max_squared"], row["gap"], row["map_norm"])
        limit = planner.cubic_root(*k)
        assert step <= growth * (1.0 + 1e-12) and step <= limit * (1.0 + 1e-8)
        if rule == "paper-rho":
            assert step == close(min(growth, limit), 1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_a_certified_proposal_may_be_any_rule(kind: str) -> None:
    for inner in (sf.steps.Constant(1e9), sf.steps.Constant(1e-9), sf.steps.Polyak(), sf.steps.ExactLineSearch(), None):
        net, loss = build(kind, 5)
        certificate = sf.certify(net, loss)
        run = sf.descend(
            net, loss, sf.steps.Certified(copy.deepcopy(inner)), 40, certificate=certificate, progress=False
        )
        assert run.certified and run.audit().holds, str(run.audit())
        assert all(gap <= certificate.bound(t) for t, gap in enumerate(run.gaps))


def test_an_uncertified_run_stalls_where_the_gradient_is_rounding() -> None:
    """Width 1 ends at a critical point with a positive gap; a long step along rounding errors would leave it uphill."""
    g = torch.Generator().manual_seed(2)
    net = sf.nn.TwoLayerLinear.gaussian(2, 2, 1, generator=g)
    A = torch.randn(8, 2, 2, generator=g, dtype=torch.float64)
    loss = sf.MatrixSensing(A, torch.randn(8, generator=g, dtype=torch.float64))
    run = sf.descend(net, loss, sf.steps.Certified(sf.steps.Constant(1e9)), 400, progress=False)
    assert not run.certificate.holds and run.status is sf.RunStatus.STALLED
    assert run.gaps[-1] > 1e6 * run.resolution and run.audit().violations == 0
