"""Plain ``torch.nn.Sequential`` networks, read into a table of layers and built from one: what knows torch's modules is here.

A layer is a ``Linear``, or what ``maps`` has in place of one, and the activation behind it. Tables are those of files
(``surefoot_check.feed_forward.network``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils.parametrize import is_parametrized

from surefoot_check.feed_forward.activations import ACTIVATIONS, IDENTITY
from surefoot_check.feed_forward.geometry import COLUMNS, Geometry
from surefoot_check.feed_forward.network import OPTIONAL

from .._core.validate import kind_of, network_weight
from .fixed import batch_norm, fixed_linear
from .maps import (
    CONVOLUTIONS,
    MAXIMA,
    MEANS,
    Shape,
    geometry_in,
    geometry_of,
    mapped,
    mean_of,
    module_of,
    obstacle,
    shape_behind,
)
from .refusals import require_own, require_unchanged
from .residual import Residual

NAMES = {"W": "weight", "b": "bias"}
"""Of parameters of torch, by those of weights in files."""
Settings = tuple[float, float]
NONE: Settings = (0.0, 0.0)
LEAST_THRESHOLD = 20.0
"""Of a softplus, from which on torch's function is the true one up to 2e-9/β."""
SUPPORTED = (
    "Linear, Conv1d, Conv2d, AvgPool1d, AvgPool2d, MaxPool1d, MaxPool2d, Flatten, Unflatten, Identity, Tanh, Sigmoid, Softplus, "
    "SiLU, GELU, ELU, ReLU, LeakyReLU, Hardtanh, Dropout and frozen BatchNorm1d and BatchNorm2d in evaluation mode, and "
    "Sequential and sf.nn.Residual of these"
)


@dataclass(frozen=True)
class ActivationModule:
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
    ActivationModule(nn.Tanh, 1, lambda z, settings: torch.tanh(z)),
    ActivationModule(nn.Sigmoid, 2, lambda z, settings: torch.sigmoid(z)),
    ActivationModule(
        nn.Softplus,
        3,
        _softplus,
        lambda module: (float(module.beta), 0.0),
        lambda settings: nn.Softplus(settings[0]),
        _threshold,
    ),
    ActivationModule(nn.SiLU, 4, lambda z, settings: functional.silu(z)),
    ActivationModule(
        nn.GELU, 5, lambda z, settings: functional.gelu(z), obstacle=partial(_only, "approximate", "none")
    ),
    ActivationModule(
        nn.ELU,
        6,
        lambda z, settings: functional.elu(z, settings[0]),
        lambda module: (float(module.alpha), 0.0),
        lambda settings: nn.ELU(settings[0]),
    ),
    ActivationModule(nn.ReLU, 7, lambda z, settings: torch.relu(z)),
    ActivationModule(
        nn.LeakyReLU,
        8,
        lambda z, settings: functional.leaky_relu(z, settings[0]),
        lambda module: (float(module.negative_slope), 0.0),
        lambda settings: nn.LeakyReLU(settings[0]),
    ),
    ActivationModule(
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
    """A linear module, or a fixed map in place of one, its name in the network, and the activation behind it.

    Attributes:
        inputs, outputs: numbers of a row.
        geometry: of the windows of a convolution or of a maximum.
        skip: the number of the layer whose outputs are added behind the activation, 0 for the rows of X; -1 for none.
    """

    name: str
    linear: nn.Module
    inputs: int
    outputs: int
    geometry: Geometry | None = None
    code: int = IDENTITY.code
    settings: Settings = NONE
    skip: int = -1

    @property
    def plain(self) -> bool:
        """Whether it is a dense layer and nothing is added to its outputs."""
        return self.geometry is None and self.skip < 0

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """Weights and biases by ``W`` and ``b``."""
        found = {"W": getattr(self.linear, "weight", None), "b": getattr(self.linear, "bias", None)}
        return {name: parameter for name, parameter in found.items() if parameter is not None}


def dense(name: str, linear: nn.Linear) -> Layer:
    """A layer without geometry."""
    return Layer(name, linear, linear.in_features, linear.out_features)


def applied(code: int, z: Tensor, settings: Settings) -> Tensor:
    """φ(z)."""
    return z if code == IDENTITY.code else BY_CODE[code].function(z, settings)


def forward(X: Tensor, layers: Tensor, settings: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
    """f(X) (N, k) of a table of layers; among the weights are the arrays of ``extra``, where there are any."""
    geometry, skips = (weights[name].tolist() if name in weights else None for name in OPTIONAL)
    outputs = [X]
    for number, ((_, _, code), (first, second)) in enumerate(zip(layers.tolist(), settings.tolist(), strict=True), 1):
        windows = None if geometry is None else geometry_in(tuple(geometry[number - 1]))
        W, b = weights.get(f"W{number}"), weights.get(f"b{number}")
        z = (
            functional.linear(outputs[-1], weights[f"W{number}"], b)
            if windows is None
            else mapped(outputs[-1], windows, W, b)
        )
        a, skip = applied(code, z, (first, second)), -1 if skips is None else skips[number - 1][0]
        outputs.append(a if skip < 0 else a + outputs[skip])
    return outputs[-1]


def layers_of(net: nn.Sequential) -> list[Layer]:
    """The layers of a network.

    Raises:
        TypeError: a module that is not supported; the error names it and what is.
        ValueError: a supported module of settings or at a place that are not, weights that two layers share, or all frozen.
    """
    reader = _Reader(next((tensor.device for tensor in (*net.parameters(), *net.buffers())), torch.device("cpu")))
    reader.read(net, "")
    layers = reader.layers
    if not layers:
        raise ValueError("net has no Linear module; there is nothing to train")
    if reader.shape is not None:
        raise ValueError(f"net ends in maps of shape {reader.shape}; put nn.Flatten() at its end")
    if layers[-1].skip >= 0:
        raise ValueError("net ends in Residual; it must end in a Linear module")
    if layers[-1].code != IDENTITY.code:
        raise ValueError(f"net ends in {ACTIVATIONS[layers[-1].code].name}; it must end in a Linear module")
    require_own({f"net[{layer.name}].{NAMES[name]}": W for layer in layers for name, W in layer.parameters.items()})
    return layers


def flat(net: nn.Sequential, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The modules of a network with their names, those of nested ones in their place."""
    for name, module in net._modules.items():  # children() leaves out a module that is there twice
        assert module is not None
        if isinstance(module, nn.Sequential):
            require_unchanged(module, f"net[{prefix}{name}], {type(module).__name__},")
            yield from flat(module, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", module


class _Reader:
    """Reads modules one after the other.

    Attributes:
        layers: those read.
        shape: of the maps behind the last of them; ``None`` for rows.
    """

    def __init__(self, device: torch.device) -> None:
        self.layers: list[Layer] = []
        self.shape: Shape | None = None
        self._device = device
        self._closed = 0  # how many layers must be left as they are: a block begins or ends behind them

    def read(self, net: nn.Sequential, prefix: str) -> None:
        """All modules of a network."""
        place = f"net[{prefix[:-1]}]" if prefix else "net"
        require_unchanged(net, f"{place}, {type(net).__name__},")
        for name, module in flat(net, prefix):
            what = f"net[{name}], {type(module).__name__},"
            if isinstance(module, LazyModuleMixin):
                raise TypeError(f"{what} has no weights yet; call net on some data once, so that it has")
            require_unchanged(module, what)
            if type(module) is Residual:
                self._block(name, module, what)
            elif type(module) in BY_MODULE:
                self._activate(name, BY_MODULE[type(module)], module, what)
            else:
                self._map(name, module, what)

    def _map(self, name: str, module: nn.Module, what: str) -> None:
        """A module that is linear, or none that changes numbers."""
        if type(module) in (*CONVOLUTIONS, *MAXIMA, *MEANS):
            self._windows(name, module, what)
        elif type(module) is nn.Linear:
            if self.shape is not None:
                raise ValueError(f"{what} follows maps of shape {self.shape}; put nn.Flatten() before it")
            self.layers.append(dense(name, module))
        elif type(module) in (nn.BatchNorm1d, nn.BatchNorm2d):
            self._fixed(name, batch_norm(module, self.shape, what))  # pyright: ignore[reportArgumentType]
        elif isinstance(module, nn.Unflatten):
            self._unflatten(module, what)
        else:
            _pass(module, what)
            if isinstance(module, nn.Flatten):
                self.shape = None

    def _fixed(self, name: str, linear: nn.Linear) -> None:
        self.layers.append(dense(name, linear.to(self._device)))

    def _unflatten(self, module: nn.Unflatten, what: str) -> None:
        size = tuple(module.unflattened_size) if isinstance(module.unflattened_size, (tuple, list)) else ()
        whole = all(isinstance(n, int) and n > 0 for n in size)
        if self.shape is not None or module.dim != 1 or len(size) not in (2, 3) or not whole:
            raise ValueError(
                f"{what} is not supported at this place or with these sizes; make maps of rows with nn.Unflatten(1, (channels, "
                "height, width)) or nn.Unflatten(1, (channels, length))"
            )
        self.shape = tuple(int(n) for n in size)
        if self.layers and self.layers[-1].outputs != math.prod(self.shape):
            raise ValueError(
                f"{what} makes maps of shape {self.shape} of {self.layers[-1].outputs} numbers; they must agree"
            )

    def _windows(self, name: str, module: nn.Module, what: str) -> None:
        """A convolution, or pooling."""
        problem = obstacle(module)
        if problem:
            raise ValueError(f"{what} {problem}")
        if self.shape is None:
            raise ValueError(
                f"{what} needs maps, and here are rows: put nn.Unflatten(1, (channels, height, width)) before it, at the "
                "beginning of net, and pass the loss X.flatten(1)"
            )
        geometry = geometry_of(module, self.shape, what)
        channels = module.out_channels if isinstance(module, CONVOLUTIONS) else geometry.channels
        if type(module) in MEANS:
            self._fixed(name, mean_of(geometry))
        else:
            self.layers.append(Layer(name, module, geometry.inputs, channels * geometry.positions, geometry))
        self.shape = shape_behind(module, geometry, channels)

    def _activate(self, name: str, kind: ActivationModule, module: nn.Module, what: str) -> None:
        """Put an activation behind the last layer; where that is closed, behind a fixed one that changes nothing."""
        obstacle = kind.obstacle(module)
        if obstacle:
            raise ValueError(f"{what} {obstacle}")
        if self.layers and len(self.layers) == self._closed:
            self._fixed(name, fixed_linear(torch.ones(self.layers[-1].outputs, dtype=torch.float64)))
        if len(self.layers) == self._closed or self.layers[-1].code != IDENTITY.code:
            raise ValueError(f"{what} does not follow a Linear module; put one before it")
        settings = kind.settings(module)
        if not ACTIVATIONS[kind.code].possible(settings):
            raise ValueError(f"{what} has settings {settings}, which are none")
        self.layers[-1].code, self.layers[-1].settings = kind.code, settings

    def _block(self, name: str, module: Residual, what: str) -> None:
        """A residual block: the outputs of the layer before it are added to those of its last."""
        start, shape = len(self.layers), self.shape
        if not isinstance(module.inner, nn.Sequential):
            raise TypeError(f"{what} has {kind_of(module.inner)} as its inner; build it by sf.nn.Residual(*modules)")
        self._closed = start
        self.read(module.inner, f"{name}.inner.")
        if len(self.layers) == start:
            raise ValueError(f"{what} has no Linear module; put one into it")
        first, last = self.layers[start], self.layers[-1]
        if (first.inputs, shape) != (last.outputs, self.shape):
            raise ValueError(
                f"{what} takes {first.inputs} numbers (maps: {shape}) and gives {last.outputs} (maps: {self.shape}); they must "
                "agree"
            )
        if last.skip >= 0:
            self._fixed(name, fixed_linear(torch.ones(last.outputs, dtype=torch.float64)))
        self.layers[-1].skip = start
        self._closed = len(self.layers)


def _pass(module: nn.Module, what: str) -> None:
    """Accept a module that leaves numbers as they are; an error for every other."""
    if isinstance(module, nn.Dropout) and module.training and module.p > 0.0:
        raise ValueError(f"{what} is in training mode, where it draws at random; call net.eval()")
    flat = isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) == (1, -1)
    if is_parametrized(module):
        raise TypeError(
            f"{what} is parametrized, which is not supported; use torch.nn.utils.parametrize.remove_parametrizations, which "
            "leaves its weights as they are"
        )
    if not (flat or type(module) in (nn.Identity, nn.Dropout)):
        raise TypeError(f"{what} is not supported; supported are {SUPPORTED}")


def table(layers: list[Layer]) -> tuple[Tensor, Tensor]:
    """Their rows (L, 3), int64, and settings (L, 2), float64, on the CPU."""
    rows = [[layer.outputs, int("b" in layer.parameters), layer.code] for layer in layers]
    return torch.tensor(rows), torch.tensor([layer.settings for layer in layers], dtype=torch.float64)


def extra(layers: list[Layer]) -> dict[str, Tensor]:
    """What tables leave out: ``geometry`` (L, 12) and ``skips`` (L, 1), int64, on the CPU, where some layer has any."""
    found: dict[str, Tensor] = {}
    if any(layer.geometry is not None for layer in layers):
        rows = [(0,) * COLUMNS if layer.geometry is None else layer.geometry.row for layer in layers]
        found["geometry"] = torch.tensor(rows)
    if any(layer.skip >= 0 for layer in layers):
        found["skips"] = torch.tensor([[layer.skip] for layer in layers])
    return found


def weights_of(layers: list[Layer], trained: bool = True) -> dict[str, nn.Parameter]:
    """Those weights themselves that are trained, or those that are frozen, by their names in files: W1 (outputs, inputs), or of
    a convolution as torch has them, b1 (outputs,), and so on."""
    return {
        f"{name}{number}": parameter
        for number, layer in enumerate(layers, 1)
        for name, parameter in layer.parameters.items()
        if parameter.requires_grad == trained
    }


def in_float32(layers: list[Layer]) -> bool:
    """Whether some trained weights are."""
    return any(weight.dtype is torch.float32 for weight in weights_of(layers).values())


def linear_product(layers: list[Layer]) -> list[Tensor]:
    """The weights of layers that fit together without biases or activations, all trained; empty of any other."""
    weights: list[Tensor] = list(weights_of(layers).values())
    plain = all(layer.plain and layer.code == IDENTITY.code and "b" not in layer.parameters for layer in layers)
    if not plain or len(weights) < len(layers):
        return []
    return weights if all(a.shape[0] == b.shape[1] for a, b in pairwise(weights)) else []


def exactly(layers: list[Layer], trained: bool = True) -> dict[str, Tensor]:
    """Copies of ``weights_of`` in float64, which holds every float32 number exactly; of a convolution (outputs, inputs seen).

    Raises:
        TypeError: another dtype.
        ValueError: an entry that is not finite.
    """
    copies: dict[str, Tensor] = {}
    for name, weight in weights_of(layers, trained).items():
        values = weight.detach()
        copies[name] = values.double() if values.dtype is torch.float32 else values.clone()
        layer = layers[int(name[1:]) - 1]
        network_weight(f"net[{layer.name}].{NAMES[name[0]]}", copies[name])
        if values.ndim > 2:
            copies[name] = copies[name].flatten(1)
    return copies


def put_back(layers: list[Layer], weights: Mapping[str, Tensor]) -> None:
    """Into the network, those of ``exactly`` that are trained."""
    with torch.no_grad():
        for name, weight in weights_of(layers).items():
            weight.copy_(weights[name].reshape(weight.shape))


def build(rows: Tensor, settings: Tensor, trained: Mapping[str, Tensor], frozen: Mapping[str, Tensor]) -> nn.Sequential:
    """The network of a table with these weights; among the frozen ones are the arrays of ``extra``.

    Raises:
        KeyError: weights that are missing, a geometry that no module has, or layers that are added to others but no block.
    """
    modules: list[nn.Module] = []
    weights = {**frozen, **trained}
    geometry, skips = (weights[name].tolist() if name in weights else None for name in OPTIONAL)
    ends = {0: 0}  # how many modules there are behind each layer that is in no block
    for number, ((outputs, bias, code), numbers) in enumerate(zip(rows.tolist(), settings.tolist(), strict=True), 1):
        windows = None if geometry is None else geometry_in(tuple(geometry[number - 1]))
        if windows is None:
            W = weights[f"W{number}"]
            linear: nn.Module = nn.Linear(W.shape[1], W.shape[0], bool(bias), dtype=torch.float64)
            modules.append(linear)
        else:
            linear = module_of(windows, outputs // windows.positions, bool(bias))
            modules += [nn.Unflatten(1, (windows.channels, windows.height, windows.width)), linear, nn.Flatten()]
        for name, parameter in list(linear.named_parameters()):
            key = f"{name[0].replace('w', 'W')}{number}"
            new = nn.Parameter(weights[key].reshape(parameter.shape).clone(), requires_grad=key in trained)
            setattr(linear, name, new)
        if code != IDENTITY.code:
            modules.append(BY_CODE[code].built((numbers[0], numbers[1])))
        if skips is not None and skips[number - 1][0] >= 0:
            start = ends[skips[number - 1][0]]
            modules[start:] = [Residual(*modules[start:])]
            ends = {layer: end for layer, end in ends.items() if end <= start}
        ends[number] = len(modules)
    return nn.Sequential(*modules)
