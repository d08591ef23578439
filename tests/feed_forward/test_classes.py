"""Class weights and label smoothing are torch's: value, gradient, Hessian, runs, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from draws import normal
from good_runs import sequential, shift
from torch import nn

import surefoot as sf
from surefoot._core.registry import system_of
from surefoot_check import Outcome, check
from surefoot_check.feed_forward.classes import Classes
from surefoot_check.feed_forward.gradient import gradient
from surefoot_check.feed_forward.hessian import Curvature

W = torch.tensor([0.25, 3.0, 1.1], dtype=torch.float64)
CRITERIA = {
    f"{'weights' if weights is not None else 'equal'}, {smoothing}, {how}": nn.CrossEntropyLoss(
        weights, reduction=how, label_smoothing=smoothing
    )
    for weights in (None, W)
    for smoothing in (0.0, 0.15, 1.0)
    for how in ("mean", "sum")
}
X, LABELS = normal(9, 3, seed=4), normal(9, 3, seed=5).argmax(dim=1)


def network(seed: int = 4) -> nn.Sequential:
    return sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3), seed=seed)


@pytest.mark.parametrize("criterion", CRITERIA.values(), ids=CRITERIA)
def test_value_gradient_and_hessian_are_those_of_torch(criterion: nn.CrossEntropyLoss) -> None:
    net, system = network(), None
    loss = sf.TorchLoss(criterion, X, LABELS, 0.3)
    system = system_of(net)
    problem = system.problem(net, loss)
    weights = system.reduced(net, problem)

    def value(parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        f = torch.func.functional_call(net, parameters, (X,))
        return criterion(f, LABELS) + 0.15 * sum(W.square().sum() for W in parameters.values())

    parameters = {name: parameter.detach() for name, parameter in net.named_parameters()}
    assert float(problem.value(weights)) == pytest.approx(float(value(parameters)), rel=1e-14)
    stored, at = system.stored_at(problem, weights)  # pyright: ignore[reportAttributeAccessIssue]
    slopes = torch.func.grad(value)(parameters)
    ours = gradient(stored, at)
    for name, place in zip(parameters, at, strict=True):
        exact = np.array([float(x) for x in ours[place].entries()])
        assert np.allclose(exact, slopes[name].reshape(-1).numpy(), rtol=1e-12, atol=1e-14)
    H = torch.func.jacrev(torch.func.jacrev(value))(parameters)
    rows = [torch.cat([H[a][b].reshape(parameters[a].numel(), -1) for b in parameters], dim=1) for a in parameters]
    found = Curvature(stored, at).hessian
    assert np.linalg.norm(found.value - torch.cat(rows).numpy()) <= found.error + 1e-12 * np.linalg.norm(found.value)
    assert found.error < 1e-10


@pytest.mark.parametrize("criterion", CRITERIA.values(), ids=CRITERIA)
def test_minima_are_certified_and_checked(criterion: nn.CrossEntropyLoss, tmp_path: Path) -> None:
    net, loss = network(), sf.TorchLoss(criterion, X, LABELS, 0.5)
    sf.newton(net, loss)
    shift(net, 1e-8)
    run = sf.descend(net, loss, max_iterations=20, directory=tmp_path, progress=False)
    assert run.certificate.holds and run.certified and run.audit().holds
    assert check(tmp_path).outcome is Outcome.ACCEPT
    plain = criterion.weight is None and criterion.label_smoothing == 0.0
    assert run.certificate.problem["kind"] == ("network-cross-entropy" if plain else "network-weighted-cross-entropy")
    again, problem = system_of(net).rebuild(str(run.certificate.problem["kind"]), run.problem, run.final)
    assert sf.certify(again, problem).arrays == sf.certify(net, loss).arrays


def test_targets_and_masses_are_those_of_the_formula() -> None:
    classes = Classes(np.array([2, 0]), np.array([1.0, 2.0, 4.0]), 0.5)
    targets, masses = classes.targets, classes.masses
    wanted = [[1 / 6, 1 / 3, 2.0 + 2 / 3], [0.5 + 1 / 6, 1 / 3, 2 / 3]], [[19 / 6] * 3, [10 / 6] * 3]
    for found, rows in zip((targets, masses), wanted, strict=True):
        assert np.allclose(found.value, rows, rtol=1e-15) and 0.0 < found.error < 1e-14
    assert classes.total == 5 and 19 / 6 <= classes.largest_mass <= 19 / 6 * (1.0 + 1e-15)


def test_a_class_weight_for_each_output() -> None:
    for weights, message in (
        ([1.0, 2.0], "criterion has 2 class weights, and net 3 outputs"),
        ([1.0, -1.0, 1.0], r"criterion\.weight has -1\.0; class weights are not negative"),
        ([1.0, float("nan"), 1.0], r"criterion\.weight has nan at index \(1,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            sf.certify(network(), sf.TorchLoss(nn.CrossEntropyLoss(torch.tensor(weights).double()), X, LABELS, 0.1))
    none = nn.CrossEntropyLoss(torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64))
    with pytest.raises(ValueError, match="0 for the class of every row, and their mean is taken"):
        sf.certify(network(), sf.TorchLoss(none, X, LABELS % 2, 0.1))
    with pytest.raises(TypeError, match=r"criterion\.weight has dtype float16"):
        sf.TorchLoss(nn.CrossEntropyLoss(W.half()), X, LABELS)
    with pytest.raises(ValueError, match="ignore_index=1; leave out those rows"):
        sf.TorchLoss(nn.CrossEntropyLoss(ignore_index=1), X, LABELS)
