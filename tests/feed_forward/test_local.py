"""The theorem feed-forward/local: what it says of random networks, at its sharp example, and where it fails."""

from __future__ import annotations

import itertools
import math
from functools import partial
from pathlib import Path
from typing import Any

import flint
import numpy as np
import pytest
import torch
from draws import normal
from good_runs import nearly_fitted, sequential
from hypothesis import given, settings
from hypothesis import strategies as st
from independent import feed_forward as exact
from mpmath import mpf
from torch import Tensor, nn

import surefoot as sf
from surefoot._core.near_a_fit.planner import choose_ball, floor_step, schedule
from surefoot._core.registry import system_of
from surefoot._core.schedule import gap_at
from surefoot._feed_forward.engine import distance
from surefoot_check import check
from surefoot_check.feed_forward import enclosures, local
from surefoot_check.feed_forward.activations import ACTIVATIONS
from surefoot_check.feed_forward.network import Network
from surefoot_check.rigor.bounds import FAST
from surefoot_check.rigor.exact import EXACT
from surefoot_check.rigor.pivots import is_below
from surefoot_check.verdict import Outcome

F64 = torch.float64
GIVEN = {3: (1.7, 0.0), 6: (-0.6, 0.0), 8: (-1.5, 0.0), 9: (-0.7, 1.2)}
"""Settings by code."""
MODULES = (
    *(nn.Tanh, nn.Sigmoid, nn.Softplus, nn.SiLU, nn.GELU, nn.ELU, nn.ReLU, nn.LeakyReLU, nn.Hardtanh, nn.Identity),
    *(partial(nn.Softplus, 2.5), partial(nn.ELU, 0.4), partial(nn.ELU, -1.5)),
)


def drawn(seed: int, error: float) -> tuple[nn.Sequential, sf.SquaredLoss]:
    """A network of two to four layers of random widths, with targets that it fits up to the error."""
    draw = np.random.default_rng(seed)
    widths = [int(draw.integers(1, 4)), *(int(draw.integers(3, 9)) for _ in range(int(draw.integers(1, 4))))]
    modules: list[nn.Module] = []
    for before, width in itertools.pairwise(widths):
        kind = MODULES[int(draw.integers(len(MODULES)))]
        modules += [nn.Linear(before, width, bias=bool(draw.integers(2))), kind()]
    k, N = int(draw.integers(1, 3)), int(draw.integers(1, 4))
    net = sequential(*modules, nn.Linear(widths[-1], k), seed=seed)
    X = normal(N, widths[0], seed=seed + 1)
    return net, sf.SquaredLoss(X, net(X).detach() + error * normal(N, k, seed=seed + 2))


# -- nothing is violated -----------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from((1e-1, 1e-2, 1e-3, 1e-5, 1e-8)))
def test_no_run_violates_what_is_guaranteed(seed: int, error: float) -> None:
    net, loss = drawn(seed, error)
    certificate = sf.certify(net, loss)
    if not certificate.holds:
        return
    rule = ("certified-bb", "floor")[seed % 2]
    run = sf.descend(net, loss, rule, 60, certificate=certificate, progress=False)
    assert run.certified
    audit = run.audit()
    assert audit.holds, audit
    assert max(row["distance"] for row in run.rows) <= certificate.quantities["radius"] * (1.0 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_the_jacobian_changes_at_most_that_much(seed: int) -> None:
    """Also between two points of the ball of which neither is its centre."""
    net, loss = drawn(seed, 1e-4)
    certificate = sf.certify(net, loss)
    q = certificate.quantities
    if "lipschitz_J" not in q or q.get("kink_margin", 2.0) <= 1.0:
        return
    system = system_of(net)
    problem = system.problem(net, loss)
    start, generator = system.reduced(net, problem), torch.Generator().manual_seed(seed)

    def jacobian(weights: dict[str, Tensor]) -> Tensor:
        parts = torch.func.jacrev(lambda w: problem.residual(w).reshape(-1))(weights)
        return torch.cat([parts[name].reshape(len(parts[name]), -1) for name in weights], dim=1)

    def point() -> dict[str, Tensor]:
        step = {name: torch.randn(w.shape, generator=generator, dtype=F64) for name, w in start.items()}
        size = distance(step, {name: 0.0 * s for name, s in step.items()})
        return {name: start[name] + 0.999 * q["ball"] / size * s for name, s in step.items()}

    for a, b in ((start, point()), (point(), point())):
        change = float(torch.linalg.matrix_norm(jacobian(a) - jacobian(b), 2))
        assert change <= q["lipschitz_J"] * distance(a, b) + 1e-12


def test_the_exact_steps_keep_the_state_test_at_its_sharp_example() -> None:
    """f(θ) = σθ - ½Λθ², y at distance r0: V is constant along infinitesimal steps, and no step exceeds the bound."""
    sigma, bend = 1.0, 1.0
    for r0 in (0.3, 0.45, 0.4999):
        q: dict[str, Any] = {"initial_gap": 0.5 * r0 * r0, "sigma_min_J": sigma, "norm_J": sigma, "lipschitz_J": bend}
        q |= {"ball": 1.0, "N": 1, "k": 1, "p": 1}
        q |= floor_step(local.THEOREM, q)
        assert all(condition.certain for condition in local.THEOREM.conditions(q))
        segments = schedule(local.THEOREM, q)
        theta = 0.0
        for t in range(2000):
            residual = theta - 0.5 * theta * theta - r0
            segment = [s for s in segments if s.start <= t][-1]
            assert 0.5 * residual * residual <= gap_at(segment, t) * (1.0 + 1e-9) + 1e-30
            assert abs(residual) + float(local.THEOREM.reach(q, theta)) <= r0 * (1.0 + 1e-12)
            theta -= q["eta"] * (1.0 - theta) * residual
        assert theta <= local.THEOREM.derived(q)["radius"] * (1.0 + 1e-12)


# -- the numbers it rests on -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [FAST, EXACT], ids=lambda level: level.name)
@pytest.mark.parametrize("activation", ACTIVATIONS.values(), ids=lambda activation: activation.name)
def test_activations_and_their_derivatives_are_enclosed(activation: Any, level: Any) -> None:
    given = GIVEN.get(activation.code, (0.0, 0.0))
    Z = np.concatenate([np.linspace(-6.0, 6.0, 41), [-800.0, -40.0, -1e-9, 1e-9, 40.0, 800.0]])[None]
    V = activation.value(Z, given, level)
    with flint.ctx.workprec(200):
        true = [activation.exact(flint.arb(z), given) for z in Z[0].tolist()]
        apart = [v - flint.arb(x) for v, x in zip(true, V.value[0].tolist(), strict=True)]
        assert sum((x * x for x in apart), flint.arb(0)) <= V.error * V.error
        D = activation.derivative(Z, given, level)
        inside = [i for i, z in enumerate(Z[0]) if all(abs(z - kink) > 1e-12 for kink in activation.kinks(given))]
        h = flint.arb(2) ** -60
        for i in inside:  # a quotient of differences is off by at most Φ2 h
            z = flint.arb(float(Z[0, i]))
            slope = (activation.exact(z + h, given) - activation.exact(z, given)) / h
            assert abs(slope - float(D.value[0, i])) <= D.error + activation.bend(given) * h + 1e-15
    assert np.abs(D.value).max() <= activation.slope(given) * (1.0 + 1e-15) + D.error


@pytest.mark.parametrize("activation", ACTIVATIONS.values(), ids=lambda activation: activation.name)
def test_constants_of_activations_are_rounded_up(activation: Any) -> None:
    given, true = GIVEN.get(activation.code, (0.0, 0.0)), exact.ACTIVATIONS[activation.code]
    for ours, theirs in (
        (activation.slope(given), true.largest_slope(tuple(map(mpf, given)))),
        (activation.bend(given), true.largest_bend(tuple(map(mpf, given)))),
    ):
        assert theirs <= ours <= theirs * (1.0 + 1e-14)
    assert activation.kinks(given) == true.kinks(given)


def test_a_margin_is_that_of_the_nearest_kink() -> None:
    net, loss = nearly_fitted()
    system = system_of(net)
    problem = system.problem(net, loss)
    at = enclosures.Measured(*system._stored(net, problem))  # pyright: ignore[reportAttributeAccessIssue]
    radius = 1e-4
    margins = at.kink_margins(radius)
    assert [m is None for m in margins] == [True, False, True]
    least = margins[1]
    assert least is not None and least.shape == (4, 5)
    assert at.kink_margin(radius)[0] == least.min()
    assert 2.0 * at.kink_margin(2.0 * radius)[0] < at.kink_margin(radius)[0] * (1.0 + 1e-12)


def test_the_largest_eigenvalue_is_bounded_by_pivots() -> None:
    S = [[2.0, 1.0], [1.0, 2.0]]
    assert is_below(S, 3.0 + 1e-12) and not is_below(S, 3.0) and not is_below(S, 1.5)


@pytest.mark.parametrize("r0", [1e-9, 0.1, 0.49])
def test_the_ball_is_the_least_that_will_do(r0: float) -> None:
    rho = choose_ball(lambda radius: 1.0, 1.0, r0)
    least = 1.0 - math.sqrt(1.0 - 2.0 * r0)
    assert least <= rho <= least * (1.0 + 2e-6)
    assert choose_ball(lambda radius: 1.0 + radius, 1.0, 0.6) > 0.0  # where none will do


# -- where it fails ----------------------------------------------------------------------------------------------------


def failing(net: nn.Sequential, X: Tensor, error: float) -> sf.Certificate:
    certificate = sf.certify(net, sf.SquaredLoss(X, net(X).detach() + error * normal(len(X), 1, seed=9)))
    assert not certificate.holds
    return certificate


def test_a_residual_that_is_too_large_says_how_far_to_train() -> None:
    net, X = sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1), seed=1), normal(3, 2, seed=1)
    certificate = failing(net, X, 1.0)
    assert "train on with any optimiser, until the norm of the residual is about" in certificate.suggestion
    needed = float(certificate.suggestion.split("about ")[1].split(" ")[0])
    direction = normal(3, 1, seed=9)
    Y = net(X).detach() + 0.5 * needed * direction / direction.norm()
    assert sf.certify(net, sf.SquaredLoss(X, Y)).holds


def test_a_kink_is_named() -> None:
    net = sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 1), seed=3)
    certificate = failing(net, normal(3, 2, seed=1), 0.02)
    assert "nearest to a kink is layer 1, row" in certificate.suggestion
    zero = torch.cat([normal(2, 2, seed=1), torch.zeros(1, 2, dtype=F64)])
    net = sequential(nn.Linear(2, 6, bias=False), nn.LeakyReLU(0.5), nn.Linear(6, 1), seed=3)
    assert "row 2 of X" in failing(net, zero, 1e-6).suggestion


def test_nearly_equal_rows_are_named() -> None:
    net = sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1), seed=3)
    X = normal(4, 2, seed=1)[[0, 1, 2, 1]]
    X[3, 0] *= 1.0 + 1e-12
    assert "rows 1 and 3 of X are nearly equal (relative distance 1e-13)" in failing(net, X, 1e-6).suggestion


@pytest.mark.parametrize(
    ("net", "rank"),
    [
        (sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1), seed=3), 13 - 3),
        (sequential(nn.Linear(2, 3), nn.LeakyReLU(), nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1), seed=3), 20 - 3),
        (sequential(nn.Linear(2, 9), nn.Identity(), nn.Linear(9, 1), seed=3), 3),
        (sequential(nn.Linear(2, 9, bias=False), nn.Linear(9, 1, bias=False), nn.Linear(1, 1, bias=False), seed=3), 2),
    ],
    ids=["ReLU", "leaky ReLU", "linear", "linear without bias"],
)
def test_a_rank_that_no_weights_exceed_is_named(net: nn.Sequential, rank: int) -> None:
    """And the Jacobian of random weights on many rows has it, or units that are dead on them."""
    X = normal(rank + 1, 2, seed=2)
    found = failing(net, X, 1e-6)
    assert f"there are {rank + 1} outputs" in found.suggestion and f"rank {rank} at most" in found.suggestion
    assert "sf.TorchLoss" in found.suggestion
    weights = dict(net.named_parameters())
    parts = torch.func.jacrev(lambda w: torch.func.functional_call(net, w, (normal(60, 2, seed=5),))[:, 0])(weights)
    J = torch.cat([part.reshape(60, -1) for part in parts.values()], dim=1)
    assert int(torch.linalg.matrix_rank(J, rtol=1e-10)) == rank


def test_dead_units_are_a_failure() -> None:
    net = sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1), seed=3)
    with torch.no_grad():
        net[0].bias.fill_(-100.0)  # pyright: ignore[reportArgumentType]
    certificate = failing(net, normal(3, 2, seed=1), 1e-6)
    assert certificate.quantities["sigma_min_J"] == 0.0 and "dead or saturated" in certificate.suggestion


# -- runs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["certified-bb", "floor", "barzilai-borwein", "backtracking"])
def test_a_run_is_accepted_or_says_that_nothing_was_guaranteed(rule: str, tmp_path: Path) -> None:
    net, loss = nearly_fitted(1)
    run = sf.descend(net, loss, rule, 40, directory=tmp_path, progress=False)
    assert run.certified == (rule in ("certified-bb", "floor"))
    assert check(tmp_path).outcome is Outcome.ACCEPT or not run.certified


def test_steps_of_a_failing_certificate_go_down_all_the_same() -> None:
    net, loss = drawn(3, 3.0)
    assert not sf.certify(net, loss).holds
    run = sf.descend(net, loss, max_iterations=20, progress=False)
    assert run.gaps[-1] < run.gaps[0] and not run.certified


def test_a_larger_network_is_accepted_at_both_levels(tmp_path: Path) -> None:
    """Two outputs, 40 rows, certified where a few Gauss-Newton steps have brought it."""
    X, Y = normal(20, 5, seed=1), normal(20, 2, seed=2)
    net = sequential(nn.Linear(5, 24), nn.Softplus(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 2), seed=4)
    system = system_of(net)
    problem = system.problem(net, sf.SquaredLoss(X, Y))
    weights = system.reduced(net, problem)
    for _ in range(30):
        parts = torch.func.jacrev(lambda w: problem.residual(w).reshape(-1))(weights)
        J = torch.cat([parts[name].reshape(40, -1) for name in weights], dim=1)
        step = J.T @ torch.linalg.solve(
            J @ J.T + 1e-6 * torch.eye(40, dtype=F64), problem.residual(weights).reshape(-1)
        )
        pieces = torch.split(step, [w.numel() for w in weights.values()])
        weights = {name: w - 0.5 * s.reshape(w.shape) for (name, w), s in zip(weights.items(), pieces, strict=True)}
    system.write(net, problem, weights)
    certificate = sf.certify(net, sf.SquaredLoss(X, Y))
    assert certificate.holds, certificate
    assert certificate.quantities["radius"] < 1e-2 * math.sqrt(sum(float(w.square().sum()) for w in weights.values()))
    run = sf.descend(net, sf.SquaredLoss(X, Y), max_iterations=30, directory=tmp_path, progress=False)
    assert run.audit().holds
    for level in ("fast", "exact"):
        assert check(tmp_path, level).outcome is Outcome.ACCEPT


def test_a_change_of_the_jacobian_below_the_range_of_floats_is_not_none() -> None:
    """Inputs of 1e-200 before a tanh and a frozen layer: Λ is some 1e-400, which no float but 0 is near."""
    X, layers = np.full((1, 1), 1e-200), np.array([[1, 0, 1], [1, 0, 0]])
    problem = Network(X, np.ones((1, 1)), layers, np.zeros((2, 2)), frozen={"W2": np.ones((1, 1))})
    assert enclosures.Measured(problem, {"W1": np.ones((1, 1))}).lipschitz(1.0) > 0.0
    linear = Network(X, np.ones((1, 1)), np.array([[1, 0, 0]]), np.zeros((1, 2)))
    assert enclosures.Measured(linear, {"W1": np.ones((1, 1))}).lipschitz(1.0) == 0.0
