"""Plain modules become arrays and a table of layers, and back; what is not supported is named."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from draws import normal
from good_runs import nearly_fitted, sequential
from torch import nn

import surefoot as sf
from surefoot._core.registry import system_of
from surefoot._feed_forward.modules import KINDS, applied, build, layers_of, table, weights_of
from surefoot_check import Outcome, check

F64 = torch.float64
X, Y = normal(4, 3, seed=1), normal(4, 2, seed=2)
ACTIVATIONS = [
    *(kind.module() for kind in KINDS),
    nn.LeakyReLU(-0.4),
    nn.Hardtanh(-0.3, 2.0),
    nn.Softplus(threshold=90),
    nn.Softplus(0.5, threshold=30),
    nn.ELU(-0.7),
]


def certified(*modules: nn.Module) -> sf.Certificate:
    return sf.certify(sequential(*modules), sf.SquaredLoss(X, Y))


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_the_loss_is_that_of_the_module(activation: nn.Module) -> None:
    net = sequential(nn.Linear(3, 5), activation, nn.Linear(5, 2, bias=False))
    system = system_of(net)
    loss = system.problem(net, sf.SquaredLoss(X, Y))
    residual = loss.residual(system.reduced(net, loss))
    rounding = 32 * torch.finfo(F64).eps  # of two products of numbers of order 1, each summed in any order
    off = 1e-8 if isinstance(activation, nn.Softplus) else rounding
    assert torch.allclose(residual, net(X) - Y, rtol=rounding, atol=off)
    again, _ = system.rebuild(loss.kind, loss.arrays(), system.reduced(net, loss))
    assert torch.equal(again(X), net(X)) or isinstance(activation, nn.Softplus)
    assert torch.equal(table(layers_of(again))[0], loss.layers)
    assert torch.equal(table(layers_of(again))[1], loss.settings)


def test_softplus_is_the_true_function() -> None:
    """Beyond its threshold torch's returns its argument, which is off by 2e-9."""
    z = torch.tensor([20.5], dtype=F64)
    assert float(applied(3, z, (1.0, 0.0)) - z) == pytest.approx(1.25e-9, rel=1e-2)
    assert float(nn.Softplus()(z) - z) == 0.0


def test_nested_networks_and_modules_that_leave_rows_as_they_are() -> None:
    inner = nn.Sequential(OrderedDict(hidden=nn.Linear(3, 4), act=nn.Tanh()))
    net = nn.Sequential(nn.Flatten(), inner, nn.Dropout(0.5), nn.Identity(), nn.Sequential(nn.Linear(4, 2))).double()
    layers = layers_of(net.eval())
    assert [layer.name for layer in layers] == ["1.hidden", "4.0"]
    assert list(weights_of(layers)) == ["W1", "b1", "W2", "b2"]
    rows, settings = table(layers)
    assert rows.tolist() == [[4, 1, 1], [2, 1, 0]] and not settings.any()
    assert torch.equal(build(rows, settings, weights_of(layers), {})(X), net(X))


def _shared() -> nn.Sequential:
    linear = nn.Linear(3, 3)
    return nn.Sequential(linear, nn.Tanh(), linear, nn.Tanh(), nn.Linear(3, 2)).double()


def _shared_weight() -> nn.Sequential:
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    net[2].weight = net[0].weight
    return net


def _frozen() -> nn.Sequential:
    return sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2)).requires_grad_(False)


def _hooked() -> nn.Sequential:
    net = sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))
    net[1].register_forward_hook(lambda module, inputs, output: 2.0 * output)
    return net


def _broken() -> nn.Sequential:
    net = sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))
    with torch.no_grad():
        net[2].weight[1, 1] = torch.nan  # pyright: ignore[reportIndexIssue]
    return net


class _OfOnesOwn(nn.Linear):
    pass


LAST = nn.Linear(4, 2)
REFUSED: list[tuple[Callable[[], nn.Sequential], type[Exception], str]] = [
    (
        lambda: nn.Sequential(nn.Conv3d(3, 3, 1), LAST),
        TypeError,
        r"net\[0\], Conv3d, is not supported; supported are Lin",
    ),
    (
        lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), LAST),
        TypeError,
        r"net\[1\], LayerNorm, is not supported",
    ),
    (lambda: nn.Sequential(_OfOnesOwn(3, 4), LAST), TypeError, r"net\[0\], _OfOnesOwn, is not supported"),
    (lambda: nn.Sequential(nn.Sequential(nn.Mish()), LAST), TypeError, r"net\[0\.0\], Mish, is not supported"),
    (lambda: nn.Sequential(nn.Flatten(0), LAST), TypeError, r"net\[0\], Flatten, is not supported"),
    (lambda: nn.Sequential(nn.Linear(3, 4), nn.Dropout(), LAST), ValueError, r"net\[1\], Dropout, .*call net.eval\(\)"),
    (lambda: nn.Sequential(), ValueError, "net has no Linear module"),
    (lambda: nn.Sequential(nn.Tanh(), LAST), ValueError, r"net\[0\], Tanh, does not follow a Linear module"),
    (lambda: nn.Sequential(nn.Linear(3, 2), nn.Tanh()), ValueError, "net ends in tanh; it must end in a Linear"),
    (
        lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.ReLU(), LAST),
        ValueError,
        r"net\[2\], ReLU, does not follow",
    ),
    (
        lambda: nn.Sequential(nn.Linear(3, 4), nn.Softplus(-2.0), LAST),
        ValueError,
        r"Softplus, has settings \(-2.0, 0.0\), which are none",
    ),
    (
        lambda: nn.Sequential(nn.Linear(3, 4), nn.Softplus(1.0, 5.0), LAST),
        ValueError,
        r"has threshold=5.0; at least 20",
    ),
    (lambda: nn.Sequential(nn.Linear(3, 4), nn.GELU("tanh"), LAST), ValueError, r"has approximate='tanh'; only"),
    (lambda: nn.Sequential(nn.Linear(3, 5), nn.Tanh(), LAST), ValueError, r"net\[2\] takes 4 inputs, and .* gives 5"),
    (
        lambda: nn.Sequential(nn.Linear(2, 4), nn.Tanh(), LAST),
        ValueError,
        "net maps 2 inputs to 2 outputs, the loss has 3",
    ),
    (lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), ValueError, "to 1 outputs, .* and 2 outputs"),
    (_shared, ValueError, r"net\[2\].weight is that of net\[0\].weight; layers that share weights"),
    (_shared_weight, ValueError, r"net\[2\].weight is that of net\[0\].weight"),
    (_frozen, ValueError, r"every weight of net is frozen \(requires_grad=False\)"),
    (_hooked, ValueError, r"net\[1\], Tanh, has hooks"),
    (_broken, ValueError, r"net\[2\].\w+ has non-finite entries"),
    (lambda: nn.Sequential(nn.LazyLinear(2)), TypeError, r"net\[0\], LazyLinear, has no weights yet"),
    (lambda: nn.Sequential(nn.Linear(3, 2)).half(), TypeError, r"net\[0\].weight has dtype float16; use float64"),
]


@pytest.mark.parametrize(("make", "kind", "message"), REFUSED, ids=[message for _, _, message in REFUSED])
def test_what_is_not_supported_is_named(make: Callable[[], nn.Sequential], kind: type[Exception], message: str) -> None:
    net = make()
    net = net if "float16" in message else net.double()
    with pytest.raises(kind, match=message):
        sf.certify(net, sf.SquaredLoss(X, Y))


def test_weights_in_float32_are_certified_as_their_copy_in_float64() -> None:
    net, loss = nearly_fitted()
    narrow = copy.deepcopy(net).float()
    certificate = sf.certify(narrow, loss)
    assert certificate == sf.certify(copy.deepcopy(narrow).double(), loss)
    assert certificate.arrays != sf.certify(net, loss).arrays
    with pytest.raises(TypeError, match=r"a run is of that copy: pass copy.deepcopy\(net\).double\(\)"):
        sf.descend(narrow, loss, progress=False)


def test_frozen_weights_stay_and_belong_to_the_problem(tmp_path: Path) -> None:
    net, loss = nearly_fitted()
    net[0].requires_grad_(False)
    net[2].bias.requires_grad_(False)  # pyright: ignore[reportAttributeAccessIssue]
    before, certificate = copy.deepcopy(net), sf.certify(net, loss)
    assert certificate.holds and certificate.problem["p"] == 6 * 5 + 5 * 2
    run = sf.descend(net, loss, max_iterations=30, certificate=certificate, directory=tmp_path, progress=False)
    assert set(run.final) == {"W2", "W3"} and {"W1", "b1", "b2"} < set(run.problem)
    for place, stays in (
        ("0.weight", True),
        ("0.bias", True),
        ("2.weight", False),
        ("2.bias", True),
        ("4.weight", False),
    ):
        assert torch.equal(net.state_dict()[place], before.state_dict()[place]) == stays
    assert run.audit().holds and check(tmp_path).outcome is Outcome.ACCEPT
    again, _ = system_of(net).rebuild(certificate.problem["kind"], run.problem, run.final)
    assert [p.requires_grad for p in again.parameters()] == [p.requires_grad for p in net.parameters()]


def test_a_loss_that_has_no_rows() -> None:
    net, loss = sequential(nn.Linear(3, 2)), sf.SquaredLoss.from_statistics(sf.SquaredLoss(X, Y).statistics)
    with pytest.raises(TypeError, match="this network needs the rows"):
        sf.certify(net, loss)
    with pytest.raises(TypeError, match="loss is a SoftmaxRegression"):
        sf.certify(net, sf.SoftmaxRegression(X, torch.tensor([0, 1, 0, 1]), 0.1))


def test_a_run_ends_in_the_network_itself(tmp_path: Path) -> None:
    """The weights are written back, and a run directory is enough to build the network again."""
    net, loss = nearly_fitted()
    start = copy.deepcopy(net)
    run = sf.descend(net, loss, max_iterations=20, directory=tmp_path, progress=False)
    assert not torch.equal(net[0].weight, start[0].weight)  # pyright: ignore[reportArgumentType]
    stored = sf.Run.load(tmp_path)
    again, problem = system_of(net).rebuild(run.certificate.problem["kind"], stored.problem, stored.final)
    assert torch.equal(again(X), net(X))
    assert problem.residual(dict(stored.final)).norm() == pytest.approx((2.0 * run.gaps[-1]) ** 0.5)
    assert [type(module) for module in again] == [type(module) for module in net]
