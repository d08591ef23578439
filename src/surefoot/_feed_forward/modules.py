"""Plain ``torch.nn.Sequential`` networks, read into a table of layers and built from one: what knows torch's modules is here.

A layer is a ``Linear`` and the activation behind it. Tables are those of files (``surefoot_check.feed_forward.network``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from surefoot_check.feed_forward.activations import ACTIVATIONS, IDENTITY

from .._core.validate import network_weight
from .fixed import batch_norm

Settings = tuple[float, float]
NONE: Settings = (0.0, 0.0)
LEAST_THRESHOLD = 20.0
"""Of a softplus, from which on torch's function is the true one up to 2e-9/β."""
SUPPORTED = (
    "Linear, Flatten, Identity, Tanh, Sigmoid, Softplus, SiLU, GELU, ELU, ReLU, LeakyReLU, Hardtanh, "
    "Dropout and frozen BatchNorm1d in evaluation mode, and Sequential of these"
)


@dataclass(frozen=True)
class Kind:
    """An activation as torch has it.

    Attributes:
        module: its class.
        code: of the file format.
        function: on tensors, given its settings.
        settings: those of a module.
        build: a module of these settings.
        obstacle: why a module of the class is another function; empty where it is not.
    """

    module: type[nn.Module]
    code: int
    function: Callable[[Tensor, Settings], Tensor]
    settings: Callable[[Any], Settings] = lambda module: NONE
    build: Callable[[Settings], nn.Module] | None = None
    obstacle: Callable[[Any], str] = lambda module: ""

    def built(self, settings: Settings) -> nn.Module:
        """A module of these settings."""
        return self.module() if self.build is None else self.build(settings)


def _softplus(z: Tensor, settings: Settings) -> Tensor:
    return functional.softplus(z, settings[0], threshold=40.0)  # from there on z itself is the nearest float


def _only(name: str, value: object, module: Any) -> str:
    setting = getattr(module, name)
    return "" if setting == value else f"has {name}={setting!r}; only {name}={value!r} is supported"


def _threshold(module: Any) -> str:
    if module.threshold < LEAST_THRESHOLD:
        return f"has threshold={module.threshold!r}; at least {LEAST_THRESHOLD:g} is needed, so that it is a softplus"
    return ""


KINDS = (
    Kind(nn.Tanh, 1, lambda z, settings: torch.tanh(z)),
    Kind(nn.Sigmoid, 2, lambda z, settings: torch.sigmoid(z)),
    Kind(
        nn.Softplus,
        3,
        _softplus,
        lambda module: (float(module.beta), 0.0),
        lambda settings: nn.Softplus(settings[0]),
        _threshold,
    ),
    Kind(nn.SiLU, 4, lambda z, settings: functional.silu(z)),
    Kind(nn.GELU, 5, lambda z, settings: functional.gelu(z), obstacle=partial(_only, "approximate", "none")),
    Kind(
        nn.ELU,
        6,
        lambda z, settings: functional.elu(z, settings[0]),
        lambda module: (float(module.alpha), 0.0),
        lambda settings: nn.ELU(settings[0]),
    ),
    Kind(nn.ReLU, 7, lambda z, settings: torch.relu(z)),
    Kind(
        nn.LeakyReLU,
        8,
        lambda z, settings: functional.leaky_relu(z, settings[0]),
        lambda module: (float(module.negative_slope), 0.0),
        lambda settings: nn.LeakyReLU(settings[0]),
    ),
    Kind(
        nn.Hardtanh,
        9,
        lambda z, settings: functional.hardtanh(z, *settings),
        lambda module: (float(module.min_val), float(module.max_val)),
        lambda settings: nn.Hardtanh(*settings),
    ),
)
"""In the order of their codes."""
BY_CODE = {kind.code: kind for kind in KINDS}
BY_MODULE = {kind.module: kind for kind in KINDS}
assert {IDENTITY.code, *BY_CODE} == set(ACTIVATIONS)


@dataclass
class Layer:
    """A linear module, or a fixed map in place of one, its name in the network, and the activation behind it."""

    name: str
    linear: nn.Linear
    code: int = IDENTITY.code
    settings: Settings = NONE


def applied(code: int, z: Tensor, settings: Settings) -> Tensor:
    """φ(z)."""
    return z if code == IDENTITY.code else BY_CODE[code].function(z, settings)


def forward(X: Tensor, layers: Tensor, settings: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
    """f(X) (N, k) of a table of layers."""
    a = X
    for number, ((_, _, code), (first, second)) in enumerate(zip(layers.tolist(), settings.tolist(), strict=True), 1):
        z = functional.linear(a, weights[f"W{number}"], weights.get(f"b{number}"))
        a = applied(code, z, (first, second))
    return a


def layers_of(net: nn.Sequential) -> list[Layer]:
    """The layers of a network.

    Raises:
        TypeError: a module that is not supported; the error names it and what is.
        ValueError: a supported module of settings or at a place that are not, weights that two layers share, or all frozen.
    """
    layers: list[Layer] = []
    for name, module in flat(net):
        what = f"net[{name}], {type(module).__name__},"
        if isinstance(module, nn.LazyLinear):
            raise TypeError(f"{what} has no weights yet; call net on some data once, so that it becomes a Linear")
        if module._forward_hooks or module._forward_pre_hooks:
            raise ValueError(f"{what} has hooks, which may change what it computes; remove them")
        if type(module) is nn.Linear:
            layers.append(Layer(name, module))
        elif type(module) is nn.BatchNorm1d:
            layers.append(Layer(name, batch_norm(module, what)))
        elif type(module) in BY_MODULE:
            _activate(layers, BY_MODULE[type(module)], module, what)
        else:
            _pass(module, what)
    if not layers:
        raise ValueError("net has no Linear module; there is nothing to train")
    if layers[-1].code != IDENTITY.code:
        raise ValueError(f"net ends in {ACTIVATIONS[layers[-1].code].name}; it must end in a Linear module")
    _check_parameters(layers)
    return layers


def flat(net: nn.Sequential, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The modules of a network with their names, those of nested ones in their place."""
    for name, module in net._modules.items():  # children() leaves out a module that is there twice
        assert module is not None
        if type(module) is nn.Sequential:
            yield from flat(module, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", module


def _activate(layers: list[Layer], kind: Kind, module: nn.Module, what: str) -> None:
    """Put an activation behind the last layer."""
    obstacle = kind.obstacle(module)
    if obstacle:
        raise ValueError(f"{what} {obstacle}")
    if not layers or layers[-1].code != IDENTITY.code:
        raise ValueError(f"{what} does not follow a Linear module; put one before it")
    settings = kind.settings(module)
    if not ACTIVATIONS[kind.code].possible(settings):
        raise ValueError(f"{what} has settings {settings}, which are none")
    layers[-1].code, layers[-1].settings = kind.code, settings


def _pass(module: nn.Module, what: str) -> None:
    """Accept a module that leaves rows as they are; an error for every other."""
    if isinstance(module, nn.Dropout) and module.training and module.p > 0.0:
        raise ValueError(f"{what} is in training mode, where it draws at random; call net.eval()")
    flat = isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) == (1, -1)
    if not (flat or type(module) in (nn.Identity, nn.Dropout)):
        raise TypeError(f"{what} is not supported; supported are {SUPPORTED}")


def _check_parameters(layers: list[Layer]) -> None:
    owner: dict[int, str] = {}
    for layer in layers:
        for name, parameter in layer.linear.named_parameters():
            what = f"net[{layer.name}].{name}"
            if id(parameter) in owner:
                raise ValueError(
                    f"{what} is that of {owner[id(parameter)]}; layers that share weights are not supported"
                )
            owner[id(parameter)] = what
    if not any(parameter.requires_grad for layer in layers for parameter in layer.linear.parameters()):
        raise ValueError("every weight of net is frozen (requires_grad=False); there is nothing to train")


def table(layers: list[Layer]) -> tuple[Tensor, Tensor]:
    """Their rows (L, 3), int64, and settings (L, 2), float64, on the CPU."""
    rows = [[layer.linear.out_features, int(layer.linear.bias is not None), layer.code] for layer in layers]
    return torch.tensor(rows), torch.tensor([layer.settings for layer in layers], dtype=torch.float64)


def weights_of(layers: list[Layer], trained: bool = True) -> dict[str, Tensor]:
    """Those weights themselves that are trained, or those that are frozen, by their names in files: W1 (outputs, inputs),
    b1 (outputs,), and so on."""
    weights: dict[str, Tensor] = {}
    for number, layer in enumerate(layers, 1):
        weights[f"W{number}"] = layer.linear.weight
        if layer.linear.bias is not None:
            weights[f"b{number}"] = layer.linear.bias
    return {name: weight for name, weight in weights.items() if weight.requires_grad == trained}


def linear_product(layers: list[Layer]) -> list[Tensor]:
    """The weights of layers that fit together without biases or activations, all trained and in float64; empty of any other."""
    weights = list(weights_of(layers).values())
    plain = all(layer.code == IDENTITY.code and layer.linear.bias is None for layer in layers)
    if not plain or len(weights) < len(layers) or any(W.dtype is not torch.float64 for W in weights):
        return []
    return weights if all(a.shape[0] == b.shape[1] for a, b in pairwise(weights)) else []


def exactly(layers: list[Layer], trained: bool = True) -> dict[str, Tensor]:
    """Copies of ``weights_of`` in float64, which holds every float32 number exactly.

    Raises:
        TypeError: another dtype.
        ValueError: an entry that is not finite.
    """
    copies: dict[str, Tensor] = {}
    for name, weight in weights_of(layers, trained).items():
        values = weight.detach()
        copies[name] = values.double() if values.dtype is torch.float32 else values.clone()
        layer = layers[int(name[1:]) - 1]
        network_weight(f"net[{layer.name}].{'weight' if name[0] == 'W' else 'bias'}", copies[name])
    return copies


def build(rows: Tensor, settings: Tensor, trained: Mapping[str, Tensor], frozen: Mapping[str, Tensor]) -> nn.Sequential:
    """The network of a table with these weights."""
    modules: list[nn.Module] = []
    weights = {**frozen, **trained}
    for number, ((_, bias, code), of) in enumerate(zip(rows.tolist(), settings.tolist(), strict=True), 1):
        W = weights[f"W{number}"]
        linear = nn.Linear(W.shape[1], W.shape[0], bool(bias), dtype=W.dtype, device=W.device)
        with torch.no_grad():
            linear.weight.copy_(W)
            if bias:
                linear.bias.copy_(weights[f"b{number}"])
        linear.weight.requires_grad_(f"W{number}" in trained)
        if bias:
            linear.bias.requires_grad_(f"b{number}" in trained)
        modules.append(linear)
        if code != IDENTITY.code:
            modules.append(BY_CODE[code].built((of[0], of[1])))
    return nn.Sequential(*modules)
