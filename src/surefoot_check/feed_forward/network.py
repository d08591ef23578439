"""The squared loss of a feed-forward network: its data, how its layers are made, and the weights that fit them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..arrays import FormatError, within
from ..problems import LARGEST_PRODUCT, Array, Problem
from ..rigor.bounds import FAST, Level
from .activations import ACTIVATIONS, IDENTITY, Activation, Settings

FIXED: tuple[str, ...] = ()
"""Weights that training does not change."""
LARGEST = 1e20
"""Largest magnitude of an entry of data or weights."""
DEEPEST = 64
"""Most layers; the bounds of rounding rely on it."""
ARRAYS = {"X": np.float64, "Y": np.float64, "layers": np.int64, "settings": np.float64}


@dataclass(frozen=True)
class LayerKind:
    """How a layer is made: φ(a Wᵀ + 1bᵀ) with W (outputs, inputs)."""

    inputs: int
    outputs: int
    bias: bool
    activation: Activation
    settings: Settings

    @property
    def parameters(self) -> int:
        """How many numbers are trained."""
        return self.outputs * (self.inputs + self.bias)


class Network(Problem):
    """½‖f(X) - Y‖²_F of a network f of these layers; X (N, d), Y (N, k)."""

    kind = "network-squared"

    def __init__(self, X: Array, Y: Array, layers: tuple[LayerKind, ...], level: Level = FAST) -> None:
        self.X, self.Y, self.layers, self.level = X, Y, layers, level


def load(kind: object, arrays: dict[str, Array], level: Level = FAST) -> Problem:
    """The problem of X (N, d), Y (N, k), layers (L, 3) and settings (L, 2); ``FormatError`` where they do not fit.

    A row of ``layers`` is outputs, whether there is a bias (0 or 1), and the code of the activation behind, which is that of the
    identity in the last; a row of ``settings`` the numbers of that activation.
    """
    if kind != Network.kind:
        raise FormatError(f"unknown problem kind {kind!r}")
    if arrays.keys() != ARRAYS.keys():
        raise FormatError(f"the problem has arrays {', '.join(sorted(arrays))}; they are not those of kind {kind!r}")
    for name, dtype in ARRAYS.items():
        array = arrays[name]
        if array.ndim != 2 or array.dtype != dtype or array.size == 0:
            raise FormatError(f"array {name!r} has shape {array.shape} and dtype {array.dtype}")
        if dtype is np.float64:
            within(f"array {name!r}", array, LARGEST)
    X, Y, table, settings = (arrays[name] for name in ARRAYS)
    if len(X) != len(Y):
        raise FormatError("X and Y do not fit together")
    if table.shape != (len(table), 3) or settings.shape != (len(table), 2) or len(table) > DEEPEST:
        raise FormatError("layers and settings do not fit together")
    return Network(X, Y, _layers(X.shape[1], Y.shape[1], table.tolist(), settings.tolist()), level)


def _layers(inputs: int, outputs: int, table: list[list[int]], settings: list[list[float]]) -> tuple[LayerKind, ...]:
    layers: list[LayerKind] = []
    for (width, bias, code), (first, second) in zip(table, settings, strict=True):
        if width < 1 or bias not in (0, 1) or code not in ACTIVATIONS:
            raise FormatError(f"layer {len(layers) + 1}: {width}, {bias}, {code} are no width, bias and activation")
        activation = ACTIVATIONS[code]
        if not activation.possible((first, second)):
            raise FormatError(f"layer {len(layers) + 1}: {first:g} and {second:g} are no settings of {activation.name}")
        layers.append(LayerKind(inputs, width, bool(bias), activation, (first, second)))
        inputs = width
    if layers[-1].activation is not IDENTITY or layers[-1].outputs != outputs:
        raise FormatError("the last layer does not end in the outputs")
    return tuple(layers)


def read_weights(arrays: Mapping[str, Array], problem: Problem, name: str) -> dict[str, Array]:
    """W1 (outputs, inputs) and, where the layer has a bias, b1 (outputs,), and so on, of the arrays of the file ``name``."""
    assert isinstance(problem, Network)
    weights: dict[str, Array] = {}
    for number, layer in enumerate(problem.layers, 1):
        shapes: dict[str, tuple[int, ...]] = {f"W{number}": (layer.outputs, layer.inputs)}
        if layer.bias:
            shapes[f"b{number}"] = (layer.outputs,)
        for key, shape in shapes.items():
            array = arrays.get(key)
            if array is None or array.dtype != np.float64 or array.shape != shape:
                raise FormatError(f"{name}: {key} is missing or does not fit the layers")
            within(f"{name}: {key}", array, LARGEST)
            weights[key] = array
    unknown = [key for key in arrays if re.fullmatch("[Wb][0-9]+", key) and key not in weights]
    if unknown:
        raise FormatError(f"{name}: {', '.join(sorted(unknown))} belong to no layer")
    entries = len(problem.X) * problem.Y.shape[1] * max(layer.outputs for layer in problem.layers)
    if entries > LARGEST_PRODUCT or (len(problem.X) * problem.Y.shape[1]) ** 2 > LARGEST_PRODUCT:
        raise FormatError(f"{name}: the Jacobian of so many outputs is too large")
    return weights


def sizes(problem: Problem, weights: Mapping[str, Array]) -> dict[str, int | bool]:
    """Rows N, inputs d, outputs k of a row, layers, parameters p."""
    assert isinstance(problem, Network)
    (N, d), k = problem.X.shape, problem.Y.shape[1]
    return {"N": N, "d": d, "k": k, "depth": len(problem.layers), "p": sum(v.parameters for v in problem.layers)}


def smooth(problem: Network) -> bool:
    """Whether no activation has kinks."""
    return not any(layer.activation.kinks(layer.settings) for layer in problem.layers)
