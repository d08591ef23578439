"""Networks and losses that are refused, each with what was wrong and what to do; and what is no obstacle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from draws import normal
from good_runs import sequential
from torch import nn
from torch.nn.utils import parametrizations, prune

import surefoot as sf
from surefoot._core.validate import kind_of

X, Y, LABELS = normal(4, 3, seed=1), normal(4, 2, seed=2), torch.tensor([0, 1, 1, 0])
LOSS = sf.SquaredLoss(X, Y)


class Named(nn.Sequential):
    """Nothing but a name."""


class Doubled(nn.Sequential):
    """Another function."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2.0 * super().forward(x)


class Called(nn.Sequential):
    """Another function, in another way."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return 2.0 * super().__call__(x)


def network() -> nn.Sequential:
    return sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


def changed(change: Callable[[Any], object]) -> Callable[[], nn.Module]:
    """A network after a change."""

    def make() -> nn.Module:
        net = network()
        change(net)
        return net

    return make


def _set(name: str, value: Callable[[Any], object]) -> Callable[[], nn.Module]:
    """With another attribute of the first layer."""

    def change(net: Any) -> None:
        other = value(net)
        if name == "weight":
            del net[0].weight
        setattr(net[0], name, other)

    return changed(change)


def _same_memory(net: Any) -> None:
    net[2].weight.data = net[0].weight.data.view(-1)[4:20].view(2, 8)


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "forward of a subclass": (lambda: Doubled(*network()), ValueError, "net, Doubled, has a forward of its own"),
    "call of a subclass": (lambda: Called(*network()), ValueError, "net, Called, has a forward of its own"),
    "forward of a nested one": (
        lambda: nn.Sequential(Doubled(nn.Linear(3, 2))).double(),
        ValueError,
        r"net\[0\], Doubled, has a forward of its own",
    ),
    "forward of a layer": (
        _set("forward", lambda net: lambda x: 2.0 * x),
        ValueError,
        r"net\[0\], Linear, has a forward of its own.*use the module as torch has it",
    ),
    "forward of the network": (
        changed(lambda net: setattr(net, "forward", lambda x: x)),
        ValueError,
        "net, Sequential, has a forward",
    ),
    "hook of the network": (
        changed(lambda net: net.register_forward_hook(lambda module, inputs, output: 2.0 * output)),
        ValueError,
        "net, Sequential, has hooks, which may change",
    ),
    "hook before a layer": (
        changed(lambda net: net[0].register_forward_pre_hook(lambda module, inputs: inputs)),
        ValueError,
        r"net\[0\], Linear, has hooks",
    ),
    "pruned": (
        changed(lambda net: prune.l1_unstructured(net[0], "weight", 0.5)),
        ValueError,
        r"net\[0\], Linear, has hooks",
    ),
    "parametrized": (
        changed(lambda net: parametrizations.spectral_norm(net[0])),
        TypeError,
        r"net\[0\], ParametrizedLinear, is parametrized, .*remove_parametrizations",
    ),
    "computed weight": (
        _set("weight", lambda net: 1.0 * net[0].weight),
        ValueError,
        r"net\[0\]\.weight is a tensor and no nn\.Parameter.*nn\.Parameter\(tensor",
    ),
    "same memory": (
        changed(_same_memory),
        ValueError,
        r"net\[0\]\.weight and net\[2\]\.weight share memory; layers that share weights",
    ),
    "too deep": (
        lambda: sequential(*(nn.Linear(3, 3) for _ in range(64)), nn.Linear(3, 2)),
        ValueError,
        "there are 65 layers; at most 64 are bounded; use fewer rows, or fewer and smaller layers",
    ),
    "expanded": (
        _set("weight", lambda net: nn.Parameter(torch.ones(1, 1, dtype=torch.float64).expand(8, 3))),
        ValueError,
        r"net\[0\]\.weight has entries that share memory, as expand\(\) makes them; clone it first",
    ),
    "no units": (
        lambda: nn.Sequential(nn.Linear(3, 0), nn.Tanh(), nn.Linear(0, 2)).double(),
        ValueError,
        r"net\[0\]\.weight is empty \(shape \(0, 3\)\); use at least one unit",
    ),
    "lazy": (
        lambda: nn.Sequential(nn.LazyLinear(2)),
        TypeError,
        "LazyLinear, has no weights yet; call net on some data",
    ),
    "on the device meta": (lambda: network().to("meta"), ValueError, "net is on the device meta, and has no entries"),
    "bfloat16": (lambda: network().bfloat16(), TypeError, r"net\[0\]\.weight has dtype bfloat16; use float64"),
    "frozen and not finite": (
        changed(lambda net: net[0].bias.requires_grad_(False).data.fill_(torch.inf)),
        ValueError,
        r"net\[0\]\.bias has non-finite entries",
    ),
    "parallel": (
        lambda: nn.DataParallel(network()),
        TypeError,
        "net is a DataParallel around a Sequential; pass net.module",
    ),
    "a layer alone": (
        lambda: nn.Linear(3, 2).double(),
        TypeError,
        r"net is a Linear; pass one of .*torch\.nn\.Sequential",
    ),
    "a class": (lambda: nn.Sequential, TypeError, "net is the class Sequential; pass one of"),
    "None": (lambda: None, TypeError, "net is None; pass one of"),
}


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize(("make", "kind", "message"), REFUSED.values(), ids=REFUSED)
def test_networks_that_are_refused(make: Callable[[], Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        sf.certify(make(), LOSS)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_network_names_the_one_inside() -> None:
    with pytest.raises(TypeError, match=r"net is an OptimizedModule around a Sequential; pass net\._orig_mod"):
        sf.certify(torch.compile(network()), LOSS)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Named(*network()),
        lambda: nn.Sequential(Named(*network())),
        changed(lambda net: net[0].register_full_backward_hook(lambda module, a, b: None)),
        changed(
            lambda net: nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(net.parameters()), net.parameters())
        ),
    ],
    ids=["a subclass", "one inside", "backward hook", "one vector of all weights"],
)
def test_what_changes_no_function_is_no_obstacle(make: Callable[[], Any]) -> None:
    assert sf.certify(make(), LOSS).quantities == sf.certify(network(), LOSS).quantities


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (
            nn.MSELoss(),
            r"loss is an MSELoss, which has no data; wrap it: sf\.TorchLoss\(loss, X, targets, weight_decay\)",
        ),
        (nn.CrossEntropyLoss(), "loss is a CrossEntropyLoss, which has no data; wrap it"),
        (nn.L1Loss(), r"loss is an L1Loss; pass sf\.SquaredLoss\(X, Y\) for an exact fit, or sf\.TorchLoss"),
        (lambda a, b: a - b, r"loss is a function; pass sf\.SquaredLoss"),
        (None, r"loss is None; pass sf\.SquaredLoss"),
        (3, r"loss is an int; pass sf\.SquaredLoss"),
        ((X, Y), r"loss is a tuple; pass sf\.SquaredLoss"),
        (sf.SoftmaxRegression(X, LABELS, 0.1), r"loss is a SoftmaxRegression; pass sf\.SquaredLoss"),
    ],
    ids=["MSELoss", "CrossEntropyLoss", "L1Loss", "function", "None", "int", "tuple", "softmax"],
)
def test_losses_that_cannot_be_placed(loss: Any, message: str) -> None:
    for call in (sf.certify, lambda net, loss: sf.descend(net, loss, progress=False)):
        with pytest.raises(TypeError, match=message):
            call(network(), loss)


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: sf.TorchLoss(nn.MSELoss, X, Y), TypeError, "criterion is the class MSELoss; pass nn"),  # type: ignore[arg-type]
        (lambda: sf.TorchLoss(nn.BCEWithLogitsLoss(), X, Y), TypeError, "criterion is a BCEWithLogitsLoss; pass nn"),
        (lambda: sf.TorchLoss(nn.MSELoss(), X, None), TypeError, "targets is None; pass a tensor"),
        (lambda: sf.TorchLoss(nn.MSELoss(), X, Y[:3]), ValueError, r"X has shape \(4, 3\) and targets \(3, 2\)"),
        (lambda: sf.TorchLoss(nn.MSELoss(), X[:0], Y[:0]), ValueError, r"\w+ is empty"),
        (lambda: sf.TorchLoss(nn.MSELoss(), X.long(), Y), TypeError, r"X has dtype int64; pass float64"),
        (lambda: sf.TorchLoss(nn.CrossEntropyLoss(), X.long(), LABELS), TypeError, r"X has dtype int64; pass float64"),
        (lambda: sf.TorchLoss(nn.CrossEntropyLoss(), X[:0], LABELS[:0]), ValueError, "X is empty"),
        (lambda: sf.TorchLoss(nn.CrossEntropyLoss(), X, LABELS[:3]), ValueError, r"targets have shape \(3,\)"),
        (lambda: sf.TorchLoss(nn.MSELoss(), X * torch.nan, Y), ValueError, r"X has nan at index \(0, 0\)"),
        (lambda: sf.TorchLoss(nn.MSELoss(), X, Y, -1.0), ValueError, "weight_decay is -1.0; it must be"),
    ],
)
def test_data_that_is_refused(make: Callable[[], Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        make()


def test_values_are_said_by_their_type() -> None:
    said = [
        kind_of(value)
        for value in (None, 3, 0.5, "x", nn.MSELoss(), nn.ELU(), nn.Tanh(), int, nn.Identity(), nn.SELU())
    ]
    assert said == [
        "None",
        "an int",
        "a float",
        "a str",
        "an MSELoss",
        "an ELU",
        "a Tanh",
        "the class int",
        "an Identity",
        "an SELU",
    ]
