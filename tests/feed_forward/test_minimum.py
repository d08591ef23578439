"""The theorem feed-forward/minimum: what it says of trained networks, at its sharp example, and where it fails."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import flint
import numpy as np
import pytest
import torch
from draws import normal
from good_runs import near_a_minimum, sequential, shift
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from independent import feed_forward as exact
from mpmath import mpf
from torch import nn

import surefoot as sf
from surefoot._core.near_a_fit.planner import schedule
from surefoot._core.registry import system_of
from surefoot._core.schedule import gap_at
from surefoot._feed_forward.planner import floor_step_of_minimum
from surefoot._feed_forward.system import FeedForwardSystem
from surefoot_check import check
from surefoot_check.feed_forward import minimum
from surefoot_check.feed_forward.hessian import Curvature
from surefoot_check.feed_forward.network import Objective
from surefoot_check.feed_forward.smooth import SMOOTH
from surefoot_check.rigor.bounds import FAST
from surefoot_check.verdict import Outcome

F64 = torch.float64
MODULES = (nn.Tanh, nn.Sigmoid, nn.Softplus, nn.SiLU, nn.GELU, nn.Identity)


def drawn(seed: int, decay: float) -> tuple[nn.Sequential, sf.TorchLoss]:
    """A network of two or three layers of random widths, with an objective."""
    draw = np.random.default_rng(seed)
    widths = [int(draw.integers(1, 4)), *(int(draw.integers(1, 5)) for _ in range(int(draw.integers(1, 3))))]
    modules: list[nn.Module] = []
    for before, width in itertools.pairwise(widths):
        modules += [nn.Linear(before, width, bias=bool(draw.integers(2))), MODULES[int(draw.integers(len(MODULES)))]()]
    k, N, how = int(draw.integers(2, 4)), int(draw.integers(2, 8)), ("mean", "sum")[int(draw.integers(2))]
    net, X = sequential(*modules, nn.Linear(widths[-1], k), seed=seed), normal(N, widths[0], seed=seed + 1)
    Y = normal(N, k, seed=seed + 2)
    if draw.integers(2):
        return net, sf.TorchLoss(nn.CrossEntropyLoss(reduction=how), X, Y.argmax(dim=1), decay)
    return net, sf.TorchLoss(nn.MSELoss(reduction=how), X, Y, decay)


def objective(net: nn.Sequential, loss: sf.TorchLoss) -> torch.Tensor:
    """The objective as people write it."""
    how = "mean" if loss.mean else "sum"
    criterion = nn.CrossEntropyLoss(reduction=how) if loss.entropy else nn.MSELoss(reduction=how)
    decayed = sum(p.square().sum() for p in net.parameters() if p.requires_grad)
    return criterion(net(loss.X), loss.targets) + 0.5 * loss.weight_decay * decayed


def curvature(net: nn.Sequential, loss: sf.TorchLoss) -> Curvature:
    system = FeedForwardSystem()
    problem, weights = system.stored_at(system.problem(net, loss), system.reduced(net, loss))  # pyright: ignore[reportArgumentType]
    assert isinstance(problem, Objective)
    return Curvature(problem, weights)


def trained(net: nn.Sequential, loss: sf.TorchLoss, steps: int = 300) -> None:
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=steps, history_size=50, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        value = objective(net, loss)
        value.backward()
        return value

    optimizer.step(closure)  # pyright: ignore[reportArgumentType]


# -- what people train -------------------------------------------------------------------------------------------------


def test_a_classifier_of_digits_has_converged(tmp_path: Path) -> None:
    """64-8-10 with tanh, cross-entropy and weight decay, trained by L-BFGS, then brought to its minimum."""
    data = sf.data.load("digits")
    assert isinstance(data.X, torch.Tensor) and data.labels is not None
    X = data.X[:200]
    spread = X.std(0)
    X = (X - X.mean(0)) / torch.where(spread > 0.0, spread, 1.0) / 8.0
    net = sequential(nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 10))
    loss = sf.TorchLoss(nn.CrossEntropyLoss(), X, data.labels[:200], weight_decay=1e-3)
    trained(net, loss)
    norms = sf.newton(net, loss)
    assert norms[-1] < 1e-15
    certificate = sf.certify(net, loss)
    assert certificate.holds and certificate.theorem == "feed-forward/minimum", str(certificate)
    size = math.sqrt(sum(float(p.detach().square().sum()) for p in net.parameters()))
    assert certificate.radius is not None and 0.0 < certificate.radius < 1e-9 * size
    assert 1e-5 < certificate.quantities["lambda_min_H"] < 1e-3
    sf.descend(net, loss, max_iterations=3, certificate=certificate, directory=tmp_path, progress=False)
    assert check(tmp_path).outcome is Outcome.ACCEPT
    assert sf.Run.load(tmp_path).audit().holds


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from((0.02, 0.1, 0.5)), st.sampled_from((1e-4, 1e-6, 1e-8)))
def test_no_run_violates_what_is_guaranteed(seed: int, decay: float, error: float) -> None:
    net, loss = drawn(seed, decay)
    sf.newton(net, loss)
    shift(net, error, seed)
    certificate = sf.certify(net, loss)
    assume(certificate.holds)
    before = float(objective(net, loss).detach())
    run = sf.descend(net, loss, ("certified-bb", "floor")[seed % 2], 60, 0.0, certificate=certificate, progress=False)
    assert run.certified
    audit = run.audit()
    assert audit.holds, audit
    q = certificate.quantities
    assert max(row["distance"] for row in run.rows) <= q["radius"] * (1.0 + 1e-9) + 1e-14
    after = float(objective(net, loss).detach())
    assert -1e-14 * abs(before) <= before - after <= q["loss_gap"] + 1e-14 * abs(before)


@pytest.mark.parametrize("steps", ["certified-bb", "floor"])
def test_a_run_ends_before_rounding_puts_it_above_its_bound(steps: str, tmp_path: Path) -> None:
    """The guaranteed rate is that of the smallest eigenvalue, which the run has in the end: nothing is left for rounding."""
    net, loss = drawn(938, 0.02)
    sf.newton(net, loss)
    shift(net, 1e-8, 938)
    run = sf.descend(net, loss, steps, 60, 0.0, directory=tmp_path, progress=False)
    assert run.status == "stalled" and 0 < run.iterations < 60
    assert run.certificate.bound(run.iterations + 1) > run.resolution
    assert check(tmp_path).outcome is Outcome.ACCEPT
    assert run.audit().holds
    assert replace(run, resolution=0.5 * run.gaps[-1]).outcome[0] == "stalled"
    at_rounding = replace(run, resolution=run.gaps[-1])
    assert at_rounding.outcome[0] == "at the minimum, to rounding"
    assert replace(at_rounding, rows=run.rows[-1:]).outcome[1].startswith("the gap began at the rounding level")
    assert replace(at_rounding, rule_certified=False).outcome[0] == "stalled"  # a small gradient is no proof


def test_the_exact_steps_keep_the_state_test_at_its_sharp_example() -> None:
    """A gradient g_0 - P(x) on a line: V is constant, the minimum lies at the radius, and the schedule bounds every step."""
    q: dict[str, Any] = {
        "initial_gap": 0.5 * 0.2**2,
        "lambda_min_H": 1.0,
        "norm_H": 100.0,
        "lipschitz_H": 2.0,
        "ball": 0.5,
    }
    q |= floor_step_of_minimum(q)
    theorem = minimum.THEOREM
    assert all(condition.certain for condition in theorem.conditions(q))
    found, segments = theorem.derived(q), schedule(theorem, q)
    assert all(o.certain for o in theorem.obligations(q, segments)) and len(segments) > 2
    x, g0 = 0.0, found["g0"]
    for t in range(3000):
        gradient = g0 - theorem.reach(q, x)
        segment = [s for s in segments if s.start <= t][-1]
        assert 0.5 * gradient**2 <= gap_at(segment, t) * (1.0 + 1e-9) + 1e-30
        x += q["eta"] * gradient
    assert x == pytest.approx(found["radius"], rel=1e-9)


# -- what it is made of ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_the_objective_and_its_hessian_are_those_of_torch(seed: int) -> None:
    net, loss = drawn(seed, 0.3)
    system = system_of(net)
    problem = system.problem(net, loss)
    assert float(problem.value(system.reduced(net, problem))) == pytest.approx(
        float(objective(net, loss).detach()), rel=1e-14
    )
    weights = system.reduced(net, problem)
    sizes = [W.numel() for W in weights.values()]

    def value(flat: torch.Tensor) -> torch.Tensor:
        parts = zip(weights.items(), flat.split(sizes), strict=True)
        return problem.value({name: part.reshape(W.shape) for (name, W), part in parts})

    flat = torch.cat([W.reshape(-1) for W in weights.values()])
    H = torch.autograd.functional.hessian(value, flat)
    found = curvature(net, loss).hessian
    assert isinstance(H, torch.Tensor) and found.error < 1e-9
    assert np.linalg.norm(found.value - H.numpy()) <= found.error + 1e-12 * float(H.norm())


def test_frozen_weights_are_not_decayed() -> None:
    net, loss = near_a_minimum()
    net[0].weight.requires_grad_(False)  # pyright: ignore[reportCallIssue]
    sf.newton(net, loss)
    certificate = sf.certify(net, loss)
    assert certificate.holds and certificate.problem["p"] == 19
    objective(net, loss).backward()
    assert net[0].weight.grad is None
    assert max(float(p.grad.abs().max()) for p in net.parameters() if p.grad is not None) < 1e-15


@pytest.mark.parametrize("code", SMOOTH)
def test_bounds_of_the_third_derivatives(code: int) -> None:
    """They are the largest values, to 15 digits; for SiLU also by interval arithmetic."""
    given = {3: (1.7, 0.0)}.get(code, (0.0, 0.0))
    third = exact.ACTIVATIONS[code].largest_third
    assert third is not None
    true, ours = third(tuple(map(mpf, given))), SMOOTH[code].third(given)
    assert true <= ours <= float(true) * (1.0 + 2e-15)
    Z = np.linspace(-9.0, 9.0, 20001)
    second = SMOOTH[code].second(Z, given, FAST).value
    assert np.abs(np.diff(second) / np.diff(Z)).max() <= ours * (1.0 + 1e-9)


def test_the_third_derivative_of_silu_in_intervals() -> None:
    """f = φ''' = 3ς'' + zς''' on [0, 16]; beyond, (3 + z)exp(-z) is less. It is small, or monotone, or next to where f' = 0, with
    |f''| ≤ 4: the derivatives of ς are at most 1/4."""

    def f(z: flint.arb) -> flint.arb:
        s = 1 / (1 + (-z).exp())
        p = s * (1 - s)
        return abs(3 * p * (1 - 2 * s) + z * p * (1 - 6 * p))

    def slope(z: flint.arb) -> flint.arb:
        s = 1 / (1 + (-z).exp())
        p = s * (1 - s)
        return 4 * p * (1 - 6 * p) + z * p * (1 - 2 * s) * (1 - 12 * p)

    def bounded(low: float, high: float) -> bool:
        middle, bound = (low + high) / 2, SMOOTH[4].third((0.0, 0.0))
        z = flint.arb(middle, (high - low) / 2)
        if f(z) <= bound:
            return True
        if not slope(z).contains(0):
            return bool(f(flint.arb(low)) <= bound and f(flint.arb(high)) <= bound)
        if high - low < 1e-9:
            return bool(f(flint.arb(middle)) + 4 * (high - low) ** 2 <= bound)
        return bounded(low, middle) and bounded(middle, high)

    with flint.ctx.workprec(128):
        assert bounded(0.0, 16.0)
    assert 19.0 * math.exp(-16.0) < SMOOTH[4].third((0.0, 0.0))


# -- where it fails ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [nn.ReLU(), nn.LeakyReLU(), nn.Hardtanh(), nn.ELU()])
def test_kinks_are_refused_with_the_alternative(module: nn.Module) -> None:
    net = sequential(nn.Linear(2, 3), module, nn.Linear(3, 2))
    loss = sf.TorchLoss(nn.MSELoss(), normal(4, 2, seed=0), normal(4, 2, seed=1), 0.1)
    for act in (sf.certify, sf.newton):
        with pytest.raises(ValueError, match=r"second derivative jumps.*GELU.*sf.SquaredLoss"):
            act(net, loss)


def undecayed(bias: bool, label_smoothing: float = 0.0) -> tuple[nn.Sequential, sf.TorchLoss]:
    """Softmax regression without decay, on labels drawn at random, which no linear map learns."""
    draw = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 3, (30,), generator=draw)
    criterion = nn.CrossEntropyLoss(label_smoothing=label_smoothing)
    return sequential(nn.Linear(2, 3, bias=bias), seed=2), sf.TorchLoss(criterion, normal(30, 2, seed=1), labels)


@pytest.mark.parametrize("bias", [True, False])
def test_without_decay_minima_are_those_up_to_shifts_of_all_outputs(bias: bool, tmp_path: Path) -> None:
    net, loss = undecayed(bias)
    sf.newton(net, loss)
    shift(net, 1e-7)
    start = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
    run = sf.descend(net, loss, max_iterations=200, directory=tmp_path, progress=False)
    assert run.certificate.holds and run.certified and run.audit().holds
    for level in ("fast", "exact"):
        assert check(tmp_path, level).outcome is Outcome.ACCEPT
    moved = max(
        float((parameter.detach() - start[name]).sum(0).abs().max()) for name, parameter in net.named_parameters()
    )
    assert moved < 1e-13  # descent keeps the sums over the outputs


@pytest.mark.parametrize("bias", [True, False])
def test_the_least_eigenvalue_is_that_on_what_the_loss_sees(bias: bool) -> None:
    net, loss = undecayed(bias, 0.1)
    system = FeedForwardSystem()
    problem = system.problem(net, loss)
    at = Curvature(*system.stored_at(problem, system.reduced(net, problem)))  # type: ignore[arg-type]
    values, vectors = np.linalg.eigh(at.hessian.value)
    seen = 2 + bias
    assert np.abs(values[:seen]).max() < 1e-15 < 1e-3 < values[seen]
    assert at.eigenvalues[0] == pytest.approx((values[seen], values[seen]), rel=1e-9)
    assert at.eigenvalues[1] == pytest.approx((values[-1], values[-1]), rel=1e-9)
    W = vectors[:6, :seen].reshape(3, 2, seen)
    assert np.allclose(W[0], W[1]) and np.allclose(W[1], W[2])


def test_labels_that_can_be_learned_have_no_minimum_without_decay() -> None:
    net, loss = near_a_minimum()
    found = sf.certify(net, sf.TorchLoss(nn.CrossEntropyLoss(), loss.X, loss.targets))
    assert not found.holds and "where all labels can be learned the minimum is at infinity" in found.suggestion


def test_what_is_to_be_done_far_from_a_minimum() -> None:
    net, loss = near_a_minimum(error=1e-2)
    found = sf.certify(net, loss)
    assert not found.holds and "sf.newton(net, loss)" in found.suggestion
    sf.newton(net, loss)
    assert sf.certify(net, loss).holds


def test_losses_and_theorems_that_do_not_fit() -> None:
    net, loss = near_a_minimum()
    X, labels = loss.X, loss.targets
    Y = normal(9, 3, seed=0)
    with pytest.raises(ValueError, match=r"sf\.TorchLoss"):
        sf.certify(net, sf.SquaredLoss(X, Y), theorem="feed-forward/minimum")
    with pytest.raises(TypeError, match="criterion is an L1Loss"):
        sf.TorchLoss(nn.L1Loss(), X, Y)
    for criterion, match in (
        (nn.MSELoss(reduction="none"), "reduction='none'"),
        (nn.CrossEntropyLoss(ignore_index=0), "ignore_index=0"),
    ):
        with pytest.raises(ValueError, match=match):
            sf.TorchLoss(criterion, X, labels)
    with pytest.raises(TypeError, match="targets have dtype float64"):
        sf.TorchLoss(nn.CrossEntropyLoss(), X, Y[:, 0])
    with pytest.raises(ValueError, match="class number -1"):
        sf.TorchLoss(nn.CrossEntropyLoss(), X, labels - 1 - labels.min())
    with pytest.raises(ValueError, match="class number 3, and net 3 outputs"):
        sf.certify(net, sf.TorchLoss(nn.CrossEntropyLoss(), X, labels + 3 - labels.max()))
    with pytest.raises(ValueError, match="weight_decay"):
        sf.TorchLoss(nn.MSELoss(), X, Y, -1.0)
    with pytest.raises(TypeError, match=r"pass sf\.TorchLoss"):
        sf.newton(net, sf.SquaredLoss(X, Y))
    with pytest.raises(ValueError, match="at most 5000"):
        big = sequential(nn.Linear(3, 1000), nn.Tanh(), nn.Linear(1000, 3))
        sf.newton(big, loss)
