"""Matrix completion: descent on the factors with sparse gradients, what is certified, and maps too large to be formed."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from draws import normal
from torch import Tensor

import surefoot as sf
from surefoot._core.completion import MatrixCompletion
from surefoot._core.registry import system_of
from surefoot._two_layer.entries import EntriesEngine, EntriesIterate
from surefoot._two_layer.iterate import Iterate
from surefoot._two_layer.system import TwoLayerSystem
from surefoot_check.checker import check
from surefoot_check.verdict import Outcome

SHAPE = (5, 4)
ROWS = torch.tensor([0, 4, 2, 0, 3, 1, 4, 2, 2, 0])
COLUMNS = torch.tensor([1, 3, 0, 2, 3, 1, 0, 0, 2, 1])  # (0, 1) and (2, 0) twice
VALUES = normal(10, seed=3)


def loss() -> MatrixCompletion:
    """Ten observations of eight entries of a 5 x 4 matrix."""
    return sf.MatrixCompletion(ROWS, COLUMNS, VALUES, SHAPE)


def plain(W1: Tensor, W2: Tensor) -> Tensor:
    """The loss from its formula."""
    return 0.5 * (((W1[ROWS] * W2[COLUMNS]).sum(1) - VALUES) ** 2).sum()


@pytest.mark.parametrize("width", [1, 2, 4, 6, 12])
def test_the_sparse_iterate_is_the_dense_one(width: int) -> None:
    W1, W2 = normal(5, width, seed=1), normal(4, width, seed=2)
    sparse, dense = EntriesIterate(loss(), W1, W2), Iterate(loss(), W1, W2, exact=True)
    for name in ("gap", "gradient_squared", "drift_per_step", "sigma_max_squared", "map_norm", "gradient_frobenius"):
        assert getattr(sparse, name) == pytest.approx(getattr(dense, name), rel=1e-12), name
    assert sparse.sigma_min_squared == pytest.approx(dense.sigma_min_squared, rel=1e-9, abs=1e-14)
    assert tuple(sparse.quartic) == pytest.approx(tuple(dense.quartic), rel=1e-11)
    for eta in (1e-3, 0.1, 1.0):
        assert sparse.trial(eta) == pytest.approx(dense.trial(eta), rel=1e-11)
        assert sparse.after(eta).gap == pytest.approx(sparse.trial(eta), rel=1e-11)
    # ‖g‖_F stands for ‖g‖: a larger K', a shorter safe step
    assert all(a >= b * (1.0 - 1e-12) for a, b in zip(sparse.sharp, dense.sharp, strict=True))
    assert sparse.safe_step <= dense.safe_step * (1.0 + 1e-12)


@pytest.mark.parametrize("width", [2, 12])
def test_gradients_and_their_alignment_are_those_of_autograd(width: int) -> None:
    first = [normal(5, width, seed=1).requires_grad_(), normal(4, width, seed=2).requires_grad_()]
    value = plain(*first)
    G = torch.autograd.grad(value, first)
    second = [(W - 0.01 * g).detach().requires_grad_() for W, g in zip(first, G, strict=True)]
    H = torch.autograd.grad(plain(*second), second)
    net = sf.nn.TwoLayerLinear(*(W.detach() for W in first))
    of_system = system_of(net).gradient(net, loss())
    torch.testing.assert_close(of_system["W1"], G[0])
    torch.testing.assert_close(of_system["W2"], G[1])
    engine = EntriesEngine(loss(), net.W1.detach(), net.W2.detach())
    assert engine.iterate.gap + loss().optimal_value == pytest.approx(value.item(), rel=1e-12)
    engine.move(0.01)
    torch.testing.assert_close(engine.weights()["W1"], second[0].detach())
    assert engine.alignment == pytest.approx(float((G[0] * H[0]).sum() + (G[1] * H[1]).sum()), rel=1e-11)


@pytest.mark.parametrize("engine", ["gram", "weights"])
@pytest.mark.parametrize(
    "rule", [rule for rule in TwoLayerSystem.rules if not rule.startswith(("paper", "prescribed"))]
)
def test_every_rule_lowers_the_loss(rule: str, engine: str) -> None:
    net = sf.nn.TwoLayerLinear.gaussian(*SHAPE, 12, seed=1)
    steps = 0.01 if rule == "constant" else rule
    certificate = sf.certify(net, loss())
    run = sf.descend(net, loss(), steps, 40, certificate=certificate, engine=engine, progress=False)
    assert run.engine == engine and run.gaps[-1] < run.gaps[0]
    audit = run.audit()
    assert audit.holds or not run.certified, str(audit)
    assert next(line for line in audit.lines if line.name.startswith("descent of Theorem I")).holds


def test_a_wide_network_is_certified_and_a_sparse_run_of_it_checked(tmp_path: Path) -> None:
    net = sf.nn.TwoLayerLinear.gaussian(*SHAPE, 20, seed=1)
    certificate = sf.certify(net, loss())
    assert certificate.holds and certificate.problem["kind"] == "completion"
    assert certificate.quantities["smoothness"] == pytest.approx(2.0) and certificate.quantities[
        "strong_convexity"
    ] == pytest.approx(1.0)
    assert "10 observations of 8 entries merged into their means" in str(certificate)
    run = sf.descend(net, loss(), tolerance=1e-8, engine="weights", directory=tmp_path / "run", progress=False)
    assert run.certified and run.status is sf.RunStatus.CONVERGED and run.audit().holds
    for level in ("fast", "exact"):
        assert check(tmp_path / "run", level=level).outcome is Outcome.ACCEPT
    report = check(tmp_path / "run", replay=True)
    assert report.outcome is Outcome.ACCEPT and any(line.claim == "L3" for line in report.lines)
    again = sf.Run.load(tmp_path / "run")
    torch.testing.assert_close(again.problem["values"], loss().values, rtol=0.0, atol=0.0)


def test_a_run_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    def descend(directory: str, limit: int, resume: bool) -> sf.Run:
        net = sf.nn.TwoLayerLinear.gaussian(*SHAPE, 3, seed=1)
        return sf.descend(
            net,
            loss(),
            "barzilai-borwein",
            limit,
            directory=tmp_path / directory,
            resume=resume,
            tolerance=0.0,
            progress=False,
        )

    whole = descend("whole", 30, False)
    descend("parts", 13, False)
    parts = descend("parts", 30, True)
    assert parts.gaps == whole.gaps


def test_nothing_of_the_size_of_a_large_map_is_formed() -> None:
    """The map would take 480 GB; the observations and the factors take 4 MB."""
    shape, count = (300_000, 200_000), 500
    g = torch.Generator().manual_seed(0)
    rows, columns = (torch.randint(0, size, (count,), generator=g) for size in shape)
    net = sf.nn.TwoLayerLinear.gaussian(*shape, 1, std=1.0, generator=g)
    large = sf.MatrixCompletion(rows, columns, normal(count), shape)
    certificate = sf.certify(net, large)
    assert not certificate.holds and "below min(n, m) = 200000" in certificate.suggestion
    run = sf.descend(net, large, max_iterations=4, certificate=certificate, progress=False)
    assert run.engine == "weights" and run.gaps[-1] < run.gaps[0] and not run.certified
    assert all(math.isfinite(x) for row in run.rows for x in row.values())
    with pytest.raises(ValueError, match=r"engine='gram' forms matrices of n \+ m = 500000 .* use engine='weights'"):
        sf.descend(net, large, engine="gram", progress=False)
    audit = run.audit()
    assert audit.holds and "guarantees nothing" in str(audit)


def test_a_loop_of_ones_own_is_recorded() -> None:
    net = sf.nn.TwoLayerLinear.gaussian(*SHAPE, 12, seed=1)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01)
    certificate, trace = sf.certify(net, loss()), sf.Trace(loss())
    for _ in range(5):
        trace.record(net, 0.01)
        optimiser.zero_grad()
        plain(net.W1, net.W2).backward()
        optimiser.step()
    trace.record(net)
    audit = sf.audit(trace, certificate)
    assert any("gradient step" in line.name and line.holds and line.checked for line in audit.lines), str(audit)
    assert trace.gaps[-1] < trace.gaps[0]
