"""Two plain linear layers without biases are a two-layer linear network; anything else is a feed-forward one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from draws import normal
from good_runs import sequential
from torch import nn

import surefoot as sf
from surefoot_check import Outcome, check

X, Y, LABELS = normal(8, 3, seed=1), normal(8, 2, seed=2), torch.tensor([0, 1, 1, 0, 1, 0, 0, 1])
LOSS = sf.SquaredLoss(X, Y)


def linear(seed: int = 3) -> nn.Sequential:
    return sequential(nn.Linear(3, 9, bias=False), nn.Identity(), nn.Sequential(nn.Linear(9, 2, bias=False)), seed=seed)


def twin(net: nn.Sequential) -> sf.nn.TwoLayerLinear:
    first, second = (parameter.detach() for parameter in net.parameters())
    return sf.nn.TwoLayerLinear(first.T, second)


@pytest.mark.parametrize("loss", [LOSS, sf.SoftmaxRegression(X, LABELS, 0.1)], ids=["squared", "softmax"])
def test_the_certificate_is_that_of_the_two_layer_network(loss: sf.Loss) -> None:
    net = linear()
    certificate = sf.certify(net, loss)
    assert certificate.theorem == "two-layer/drift"
    assert certificate == sf.certify(twin(net), loss)
    assert sf.certify(net, loss, "two-layer/corrected") == sf.certify(twin(net), loss, "two-layer/corrected")


def test_a_run_trains_the_module_itself(tmp_path: Path) -> None:
    net = linear()
    other, parameters = twin(net), [*net.parameters()]
    run = sf.descend(net, LOSS, max_iterations=40, directory=tmp_path, progress=False)
    again = sf.descend(other, LOSS, max_iterations=40, progress=False)
    assert run.config["system"] == "two-layer" and run.gaps == again.gaps
    assert all(a is b for a, b in zip(net.parameters(), parameters, strict=True))
    assert torch.equal(parameters[0].detach().T, run.final["W1"]) and torch.equal(
        parameters[1].detach(), run.final["W2"]
    )
    value = 0.5 * float((net(X) - Y).square().sum().detach())
    assert value == pytest.approx(run.gaps[-1] + run.certificate.optimal_value, rel=1e-9)
    assert run.audit().holds and check(tmp_path).outcome is Outcome.ACCEPT


def test_a_run_is_resumed(tmp_path: Path) -> None:
    net = linear()
    start = copy.deepcopy(net)
    whole = sf.descend(copy.deepcopy(net), LOSS, max_iterations=30, tolerance=0.0, progress=False)
    sf.descend(net, LOSS, max_iterations=10, tolerance=0.0, directory=tmp_path, progress=False)
    rest = sf.descend(start, LOSS, max_iterations=30, tolerance=0.0, directory=tmp_path, resume=True, progress=False)
    assert rest.gaps == whole.gaps


def test_a_loop_of_ones_own_is_recorded() -> None:
    net = linear()
    certificate, trace = sf.certify(net, LOSS), sf.Trace(LOSS)
    optimizer = torch.optim.SGD(net.parameters(), lr=certificate.step_size or 0.0)
    for _ in range(10):
        trace.record(net, certificate.step_size)
        optimizer.zero_grad()
        (0.5 * (net(X) - Y).square().sum()).backward()
        optimizer.step()
    trace.record(net)
    assert sf.audit(trace, certificate).holds


def test_a_theorem_of_this_system_may_be_asked_for(tmp_path: Path) -> None:
    net = linear()
    few = sf.SquaredLoss(X[:2], net(X[:2]).detach() + 1e-3 * normal(2, 2, seed=4))
    certificate = sf.certify(net, few, "feed-forward/local")
    assert certificate.system == "feed-forward" and certificate.holds
    run = sf.descend(net, few, certificate=certificate, max_iterations=20, directory=tmp_path, progress=False)
    assert run.config["system"] == "feed-forward" and check(tmp_path).outcome is Outcome.ACCEPT
    watch = sf.watch(net, few, every=1, report=None)
    assert watch.step() is not None and watch.certificate is not None
    assert watch.certificate.theorem == "feed-forward/local"


def test_anything_else_is_a_feed_forward_network() -> None:
    frozen = linear()
    frozen[0].requires_grad_(False)
    for net in (
        linear().float(),
        frozen,
        sequential(nn.Linear(3, 9), nn.Linear(9, 2, bias=False)),
        sequential(nn.Linear(3, 9, bias=False), nn.Tanh(), nn.Linear(9, 2, bias=False)),
        sequential(nn.Linear(3, 2, bias=False)),
        sequential(*(nn.Linear(3, 3, bias=False) for _ in range(2)), nn.Linear(3, 2, bias=False)),
    ):
        assert sf.certify(net, LOSS).system == "feed-forward"
    objective = sf.TorchLoss(nn.MSELoss(), X, Y, 0.1)
    assert sf.certify(linear(), objective).theorem == "feed-forward/minimum"


def test_float32_weights_that_are_not_certified_are_told_of_double() -> None:
    narrow = linear().float()
    certificate = sf.certify(narrow, LOSS)
    assert not certificate.holds and "call .double() on the network" in certificate.suggestion
    assert "wider" not in certificate.suggestion
    assert sf.certify(narrow.double(), LOSS).theorem == "two-layer/drift"
    curved = sequential(nn.Linear(3, 9), nn.Tanh(), nn.Linear(9, 2))
    assert ".double()" not in sf.certify(curved, LOSS).suggestion
    assert "call .double() on the network" in sf.certify(curved.float(), LOSS).suggestion


def test_errors_name_the_modules() -> None:
    broken = linear()
    with torch.no_grad():
        broken[0].weight[0, 0] = torch.nan  # pyright: ignore[reportIndexIssue]
    with pytest.raises(ValueError, match=r"net\[0\].weight has non-finite entries"):
        sf.certify(broken, LOSS)
    with pytest.raises(ValueError, match=r"net\[1\] takes 4 inputs, and the layer before gives 9"):
        sf.certify(sequential(nn.Linear(3, 9, bias=False), nn.Linear(4, 2, bias=False)), LOSS)
    with pytest.raises(ValueError, match="net maps 4 inputs to 2 outputs, the loss has 3 inputs"):
        sf.certify(sequential(nn.Linear(4, 9, bias=False), nn.Linear(9, 2, bias=False)), LOSS)


@pytest.mark.parametrize(
    "call",
    [
        sf.certify,
        lambda net, loss: sf.descend(net, loss, progress=False),
        lambda net, loss: sf.Trace(loss).record(net),
    ],
    ids=["certify", "descend", "record"],
)
def test_frozen_weights_of_networks_that_train_all_are_refused(call: Callable[..., object]) -> None:
    net = twin(linear())
    net.W1.requires_grad_(False)
    with pytest.raises(ValueError, match=r"net\.W1 is frozen \(requires_grad=False\).*call net\.requires_grad_\(\)"):
        call(net, LOSS)
    X, Y = normal(5, 4, seed=0), normal(5, seed=1).sign()
    implicit = sf.nn.ImplicitReLU.certifiable(X / X.norm(dim=1, keepdim=True), Y, 20, seed=0).requires_grad_(False)
    with pytest.raises(ValueError, match=r"net\.\w+ is frozen"):
        sf.gradient_flow(implicit, sf.SquaredLoss(X, Y), [0.0, 1.0])
    deep = sf.nn.LinearResNet.modified_identity(2, 2, 4, 2, 60.0).requires_grad_(False)
    with pytest.raises(ValueError, match=r"net\.W is frozen"):
        sf.sgd.certify(deep, normal(8, 2, seed=0), normal(8, 2, seed=1), 4)
    with pytest.raises(ValueError, match=r"net\.W is frozen"):
        call(deep, sf.SquaredLoss(normal(8, 2, seed=0), normal(8, 2, seed=1)))
