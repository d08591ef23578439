"""``linear-resnet/sgd-local``: certificates of mini-batches, their runs, what is sure of them, and the lemmas they rest on."""

from __future__ import annotations

import json
import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from batches import fitted, graded
from draws import normal

import surefoot as sf
from surefoot._core.sgd import audit
from surefoot._linear_resnet.engine import Iterate
from surefoot._linear_resnet.minibatch import FittedLoss
from surefoot_check.checker import check
from surefoot_check.verdict import Outcome

THEOREM = "linear-resnet/sgd-local"
SIZE = 3


def instance() -> tuple[sf.nn.LinearResNet, torch.Tensor, torch.Tensor]:
    """Nine rows of two inputs, near a fit."""
    net, loss = fitted(9, 2, 1, 2, 30.0, SIZE)
    return net, loss.rows, loss.rows @ loss.reduced.optimum


def certified(delta: float = 0.05) -> sf.Certificate:
    certificate = sf.sgd.certify(*instance(), SIZE, theorem=THEOREM, delta=delta)
    assert isinstance(certificate, sf.Certificate) and certificate.holds, str(certificate)
    return certificate


def test_however_small_delta_is_nothing_is_said_to_be_sure(tmp_path: Path) -> None:
    certificate, (net, X, Y) = certified(1e-20), instance()
    assert certificate.probability < 1.0 and "with probability 1 - 1.12e-16 over the batches" in str(certificate)
    assert "with probability 1 - 1e-07 over the batches" in str(certified(1e-7))
    sf.sgd.descend(net, X, Y, SIZE, certificate, 3, directory=tmp_path / "run")
    report = check(tmp_path / "run")
    assert report.outcome is Outcome.ACCEPT and not any(line.claim == "L2" for line in report.lines)
    assert any("neither L2 nor L3" in note for note in report.notes)


def test_a_run_is_accepted_and_the_checker_says_what_chance_leaves_open(tmp_path: Path) -> None:
    certificate, (net, X, Y) = certified(), instance()
    run = sf.sgd.descend(net, X, Y, SIZE, certificate, tolerance=1e-7, directory=tmp_path / "run")
    assert run.certified and run.status is sf.RunStatus.CONVERGED
    assert run.iterations <= certificate.iterations_to(1e-7) < 300
    for level in ("fast", "exact"):
        report = check(tmp_path / "run", level)
        assert report.outcome is Outcome.ACCEPT and {line.claim for line in report.lines} == {"L1"}
        assert ["probability 0.95" in note and "neither L2 nor L3" in note for note in report.notes] == [True]
    assert check(tmp_path / "run", replay=True).outcome is Outcome.UNDECIDED
    again = sf.Run.load(tmp_path / "run")
    assert again.gaps == run.gaps and again.certificate.probability == 0.95
    found = again.audit()
    assert found.holds and found.notes == (
        "the gap stayed under the bound that holds with probability 0.95 over the batches",
    )
    assert float((net(X) - Y).detach().norm()) < 1e-3 * float(Y.norm())


def test_the_probability_is_said() -> None:
    certificate = certified()
    assert "with probability 0.95 over the batches: constant step" in str(certificate)
    assert sf.Certificate.from_json(certificate.to_json()).probability == 0.95
    assert sf.certify(*fitted(9, 2, 1, 2, 30.0, SIZE)[:1], sf.SquaredLoss(*instance()[1:])).probability == 1.0


def test_the_seed_decides_and_a_resumed_run_is_the_same(tmp_path: Path) -> None:
    certificate, whole = certified(), instance()
    run = sf.sgd.descend(*whole, SIZE, certificate, 30, seed=2)
    part = tmp_path / "run"
    sf.sgd.descend(*instance(), SIZE, certificate, 11, seed=2, directory=part)
    with pytest.raises(sf.RunDirectoryError, match="seed 2, this call of seed 3"):
        sf.sgd.descend(*instance(), SIZE, certificate, 30, seed=3, directory=part, resume=True)
    net, X, Y = instance()
    again = sf.sgd.descend(net, X, Y, SIZE, certificate, 30, seed=2, directory=part, resume=True)
    assert again.gaps == run.gaps and torch.equal(net.W, whole[0].W)
    other = sf.sgd.descend(*instance(), SIZE, certificate, 30, seed=3)
    assert other.gaps[:1] == run.gaps[:1] and other.gaps != run.gaps


def test_an_audit_refutes_what_is_sure_and_notes_what_is_rare() -> None:
    certificate = certified()
    run = sf.sgd.descend(*instance(), SIZE, certificate, 20)
    q = certificate.quantities
    assert run.iterations == 20 and q["epoch"] >= 8
    for name, value in (("distance", 1.1 * q["sure_distance"]), ("gap", 1.1 * q["sure_gap"]), ("batch", 2.0)):
        rows = [dict(row) for row in run.rows]
        rows[7][name] = value
        found = audit(rows, certificate, run.resolution)
        assert found.violations == 1 and [line.first_violation for line in found.lines if not line.holds] == [7]
    rows = [dict(row) for row in run.rows]
    rows[-1]["iteration"], rows[-1]["gap"] = int(q["epoch"]) + 500, q["sure_gap"]
    found = audit(rows, certificate, run.resolution)
    assert found.holds and "probability at most 0.05, no violation" in found.notes[0]


def test_what_is_sure_holds_for_greedy_batches() -> None:
    """Each of the batches is tried, and that is taken which leaves the largest gap."""
    certificate, (net, X, Y) = certified(), instance()
    q, A, B = certificate.quantities, net.A.numpy(), net.B.numpy()
    W, inputs, targets = net.W.detach().numpy().copy(), X.T.numpy(), Y.T.numpy()
    batches = [np.arange(9)[np.roll(np.arange(9) % 3 == 0, k)] for k in range(3)] + [
        np.arange(k, k + 3) for k in range(7)
    ]
    start, farthest, largest = W.copy(), 0.0, 0.0
    for _ in range(int(q["epoch"])):
        tried = []
        for rows in batches:
            gradient = Iterate(inputs[:, rows].copy(), targets[:, rows].copy(), A, B, W).gradient
            tried.append(W - q["batch_step"] * gradient)
        W = max(tried, key=lambda candidate: Iterate(inputs, targets, A, B, candidate).gap)
        farthest = max(farthest, float(np.linalg.norm(W - start)))
        largest = max(largest, Iterate(inputs, targets, A, B, W).gap)
    assert 0.0 < farthest <= q["sure_distance"] and largest <= q["sure_gap"]


def test_the_bound_is_kept_by_runs_on_random_problems() -> None:
    kept = []
    for number, (net, loss) in enumerate((fitted(7, 2, 2, 2, 40.0, 2), graded(7, 2, 3), fitted(6, 2, 1, 3, 60.0, 1))):
        assert loss.draws is not None
        arguments = (loss.rows, loss.rows @ loss.reduced.optimum, loss.draws.size)
        certificate = sf.sgd.certify(net, *arguments, theorem=THEOREM, delta=0.2)
        assert certificate.holds
        for seed in range(4):
            fresh = sf.nn.LinearResNet(net.A, net.B, torch.zeros_like(net.W))
            run = sf.sgd.descend(fresh, *arguments, certificate, 60, seed=10 * number + seed)
            found = run.audit()
            assert found.holds
            kept.append("stayed under" in found.notes[0])
    assert sum(kept) >= 0.8 * len(kept) - 2


def test_arguments_that_do_not_fit() -> None:
    certificate, (net, X, Y) = certified(), instance()
    with pytest.raises(ValueError, match=r"batch_size is 4, and the certificate's 3"):
        sf.sgd.descend(net, X, Y, 4, certificate)
    with pytest.raises(ValueError, match="other arrays"):
        sf.sgd.descend(net, 2.0 * X, Y, SIZE, certificate)
    with pytest.raises(ValueError, match="rows: use at most 9"):
        sf.sgd.certify(net, X, Y, 10, theorem=THEOREM)
    with pytest.raises(ValueError, match="delta is 1"):
        sf.sgd.certify(net, X, Y, SIZE, theorem=THEOREM, delta=1.0)
    with pytest.raises(TypeError, match="iterations is 5"):
        sf.sgd.certify(net, X, Y, SIZE, theorem=THEOREM, iterations=5)
    with pytest.raises(ValueError, match=r"sf\.sgd\.certify"):
        sf.certify(net, sf.SquaredLoss(X, Y), THEOREM)


def test_targets_that_cannot_be_fitted_and_weights_far_from_a_fit() -> None:
    net, X, Y = instance()
    noisy = sf.sgd.certify(net, X, Y + 1e-3 * normal(9, 1, seed=3), SIZE, theorem=THEOREM)
    assert [c.name for c in noisy.conditions] == ["the data can be fitted: L* <= rounding"] and not noisy.holds
    assert "project the targets" in noisy.suggestion
    far = sf.sgd.certify(sf.nn.LinearResNet.modified_identity(2, 1, 3, 2, 0.5), X, Y, SIZE, theorem=THEOREM)
    assert not far.holds and "too far from a fit" in far.suggestion
    with pytest.raises(ValueError, match="does not hold"):
        sf.sgd.descend(net, X, Y, SIZE, far)
    json.loads(far.to_json())


def test_rank_deficient_rows_are_reduced() -> None:
    net, X, Y = instance()
    wide = torch.cat([X, X @ normal(2, 1, seed=4)], 1)
    start = sf.nn.LinearResNet(torch.cat([net.A, torch.zeros(3, 1, dtype=torch.float64)], 1), net.B, net.W)
    certificate = sf.sgd.certify(start, wide, Y, SIZE, theorem=THEOREM)
    assert certificate.holds and certificate.problem["d"] == 2 and certificate.cut is not None
    run = sf.sgd.descend(start, wide, Y, SIZE, certificate, tolerance=1e-6)
    assert run.status is sf.RunStatus.CONVERGED and run.audit().holds


@pytest.mark.parametrize(
    "problem", [fitted(6, 2, 2, 3, 10.0, 2, off=0.05), graded(6, 2, 3)], ids=["whitened", "graded"]
)
def test_constants_on_the_ball_hold_at_points_of_it(problem: tuple[sf.nn.LinearResNet, FittedLoss]) -> None:
    """Of the Jacobian of the residual on the samples, whose last singular values are 0 where X tells nothing apart."""
    (net, loss), draw = problem, torch.Generator().manual_seed(0)
    assert loss.draws is not None
    size, samples, outputs = loss.draws.size, len(loss.rows), net.B.shape[0]
    q = sf.sgd.certify(net, loss.rows, loss.rows @ loss.optimum, size, theorem=THEOREM).quantities
    rank = loss.rows.shape[1] * outputs

    def jacobian(W: torch.Tensor) -> torch.Tensor:
        f = torch.func.jacrev(lambda W: torch.func.functional_call(net, {"W": W}, loss.rows))
        return f(W).detach().reshape(samples, outputs, -1)

    centre, start = jacobian(net.W.detach()), net.W.detach()
    for _ in range(2):
        step = torch.randn(start.shape, generator=draw, dtype=torch.float64)
        J = jacobian(start + q["ball"] / step.norm() * step)
        values = torch.linalg.svdvals(J.flatten(0, 1))
        assert values[0] <= q["norm_J_ball"] and values[rank - 1] >= q["sigma_ball"]
        assert torch.linalg.matrix_norm((J - centre).flatten(0, 1), 2) <= q["lipschitz_J"] * q["ball"]
        mean, batches = (
            torch.zeros(2 * (samples * outputs,), dtype=torch.float64),
            [*combinations(range(samples), size)],
        )
        for batch in map(list, batches):
            rows = J[batch].flatten(0, 1)
            assert torch.linalg.matrix_norm(rows, 2) <= q["norm_batch"]
            moved = torch.linalg.matrix_norm(rows - centre[batch].flatten(0, 1), 2)
            assert moved <= q["lipschitz_batch"] * q["ball"]
            chosen = torch.zeros(samples, outputs, J.shape[2], dtype=torch.float64)
            chosen[batch] = J[batch]
            mean += chosen.flatten(0, 1) @ chosen.flatten(0, 1).T
        range_of = torch.linalg.svd(J.flatten(0, 1), full_matrices=False)[0][:, :rank]
        moment = torch.linalg.matrix_norm(range_of.T @ mean @ range_of / len(batches), 2)
        assert moment <= size / samples * q["second_moment"]


def test_lemma_1_is_sharp() -> None:
    """r(θ) = σθ_1 - ½Λθ_2², every γ, as E → 0."""
    sigma, bend = 1.0, 0.7
    for gamma in (0.3, 1.0, 1.9):
        h = gamma / sigma**2
        nu, far = h * bend**2 / (4.0 * (2.0 - gamma)), 1e-3
        residual = bend * far**2 / (2.0 * (2.0 - gamma))
        theta = np.array([0.0, far])
        theta[0] = (residual + 0.5 * bend * far**2) / sigma
        far = float(np.linalg.norm(theta))
        after = theta - h * residual * np.array([sigma, -bend * theta[1]])
        ratio = (float(after @ after) / far**2 - 1.0) / (nu * far**2)
        assert ratio == pytest.approx(1.0, abs=1e-2)


def test_the_dependence_on_delta_is_attained() -> None:
    """N orthonormal rows, batches of one, γ = 1, r along one row: missed where that row is not drawn up to the first t at which
    (1-c)^t < δ, with probability (1-c)^t."""
    samples, runs = 32, 4000
    draw = np.random.default_rng(0)
    for delta in (0.5, 0.1):
        first = math.ceil(math.log(delta) / math.log1p(-1.0 / samples))
        expected = (1.0 - 1.0 / samples) ** first
        missed = float((draw.integers(samples, size=(runs, first)) != 0).all(axis=1).mean())
        assert abs(missed - expected) <= 4.0 * math.sqrt(expected / runs) and 0.9 * delta < expected <= delta
