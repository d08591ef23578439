"""What a feed-forward network is trained with: its data, how its layers are made, and the weights that fit them."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ..arrays import FormatError, numbers
from ..problems import LARGEST_PRODUCT, Problem, one_of
from ..rigor.bounds import FAST, Array, Level
from ..rigor.intervals import Interval
from .activations import ACTIVATIONS, IDENTITY, Activation, Settings
from .groups import Groups
from .smooth import SMOOTH

NAMED = re.compile("[Wb][0-9]+")
"""Names of weights."""
LARGEST = 1e20
"""Largest magnitude of an entry of data or weights."""
DEEPEST = 64
"""Most layers; the bounds of rounding rely on it."""


@dataclass(frozen=True)
class LayerKind:
    """How a layer is made: φ(a Wᵀ + 1bᵀ) with W (outputs, inputs)."""

    inputs: int
    outputs: int
    bias: bool
    activation: Activation
    settings: Settings
    trains_W: bool = True
    trains_b: bool = True

    @property
    def parameters(self) -> int:
        """How many numbers are trained."""
        return self.outputs * (self.inputs * self.trains_W + self.trains_b)

    def shapes(self, number: int) -> dict[str, tuple[int, ...]]:
        """The shapes of W and, where there is one, b by their names, of the layer of that number."""
        W: dict[str, tuple[int, ...]] = {f"W{number}": (self.outputs, self.inputs)}
        return W | ({f"b{number}": (self.outputs,)} if self.bias else {})


class Network(Problem):
    """½‖f(X) - Y‖²_F of a network f of these layers; X (N, d), Y (N, k); ``frozen`` are the weights that are not trained."""

    kind = "network-squared"
    dimensions: ClassVar = {"X": 2, "Y": 2, "layers": 2, "settings": 2}
    integers = ("layers",)
    largest: ClassVar = LARGEST

    def __init__(
        self,
        X: Array,
        Y: Array,
        layers: np.ndarray,
        settings: Array,
        level: Level = FAST,
        frozen: Mapping[str, Array] | None = None,
    ) -> None:
        """Of layers (L, 3), settings (L, 2) and frozen weights, named as ``read_weights`` names the others.

        A row of ``layers`` is outputs, whether there is a bias (0 or 1), and the code of the activation behind, which is that of
        the identity in the last; a row of ``settings`` the numbers of that activation.
        """
        self.X, self.Y, self.level, self.frozen = X, Y, level, frozen or {}
        if len(X) != len(Y):
            raise FormatError("X and Y do not fit together")
        if layers.shape != (len(layers), 3) or settings.shape != (len(layers), 2) or len(layers) > DEEPEST:
            raise FormatError("layers and settings do not fit together")
        kinds = _layers(X.shape[1], Y.shape[1], layers.tolist(), settings.tolist())
        shapes = _shapes(kinds)
        _require(self.frozen, {name: shapes.get(name) for name in self.frozen}, "the problem")
        if self.frozen.keys() == shapes.keys():
            raise FormatError("no weight is trained")
        self.layers = tuple(
            replace(
                layer, trains_W=f"W{number}" not in self.frozen, trains_b=layer.bias and f"b{number}" not in self.frozen
            )
            for number, layer in enumerate(kinds, 1)
        )

    @cached_property
    def groups(self) -> Groups:
        """Of equal rows of X."""
        return Groups(self.X, self.Y)

    @property
    def least(self) -> Interval:
        """Enclosure of the value that gaps are measured from."""
        return self.groups.scatter_bounds

    @property
    def rows(self) -> int:
        """How many there are; equal ones count once."""
        return len(self.groups.first)


class Objective(Network):
    """c Σ_i ℓ(f(x_i), y_i) + ½ decay ‖θ‖², θ the weights that are trained, of smooth activations: one's own training objective.

    ``objective`` (1, 2) is the decay, and 1 where c is divided by ``count``, so that the sum is a mean, else 0.
    """

    factor: ClassVar[int]
    """c of the sum."""
    entropy: ClassVar[bool]
    """Whether ℓ is the cross-entropy of the softmax of f, with Y 1 at the label and 0 elsewhere; ½‖f - y‖² otherwise."""

    def __init__(self, X: Array, Y: Array, objective: Array, **more: Any) -> None:
        super().__init__(X, Y, **more)
        if objective.shape != (1, 2) or objective[0, 0] < 0.0 or objective[0, 1] not in (0.0, 1.0):
            raise FormatError("the objective is no weight decay beside a 0 or 1")
        for number, layer in enumerate(self.layers, 1):
            if layer.activation.code not in SMOOTH:
                raise FormatError(f"layer {number}: {layer.activation.name} has no third derivative")
        self.decay, self.mean = float(objective[0, 0]), bool(objective[0, 1])

    @property
    def least(self) -> Interval:
        return 0.0, 0.0

    @property
    def rows(self) -> int:
        return len(self.X)

    @property
    @abstractmethod
    def count(self) -> int:
        """What a mean divides by."""

    @property
    def parts(self) -> tuple[int, int]:
        """Numerator and denominator of c."""
        return self.factor, self.count if self.mean else 1


class SquaredObjective(Objective):
    """c = 2, of Y (N, k); the mean is one of its entries."""

    kind = "network-mse"
    dimensions: ClassVar = {**Network.dimensions, "objective": 2}
    factor = 2
    entropy = False

    @property
    def count(self) -> int:
        return self.Y.size


class EntropyObjective(Objective):
    """c = 1, of labels (N,); the mean is one of rows."""

    kind = "network-cross-entropy"
    dimensions: ClassVar = {"X": 2, "labels": 1, "layers": 2, "settings": 2, "objective": 2}
    integers = ("layers", "labels")
    factor = 1
    entropy = True

    def __init__(self, X: Array, labels: np.ndarray, layers: np.ndarray, **more: Any) -> None:
        k = int(layers[-1, 0]) if layers.shape[1] else 0
        if not 1 <= k <= LARGEST_PRODUCT // len(labels) or labels.min() < 0 or labels.max() >= k:
            raise FormatError("the labels are none of outputs of the last layer")
        Y = np.zeros((len(labels), k))
        Y[np.arange(len(labels)), labels] = 1.0
        super().__init__(X, Y, layers=layers, **more)

    @property
    def count(self) -> int:
        return len(self.Y)


KINDS: tuple[type[Network], ...] = (Network, SquaredObjective, EntropyObjective)


def load_problem(kind: object, arrays: Mapping[str, Array], level: Level = FAST) -> Network:
    """A network and its data."""
    frozen = {name: array for name, array in arrays.items() if NAMED.fullmatch(name)}
    others = {name: array for name, array in arrays.items() if name not in frozen}
    return one_of(KINDS, kind, others, level, "feed-forward networks", frozen=frozen)


def _shapes(layers: tuple[LayerKind, ...]) -> dict[str, tuple[int, ...]]:
    """Of all weights by their names."""
    return {name: shape for number, layer in enumerate(layers, 1) for name, shape in layer.shapes(number).items()}


def _require(arrays: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...] | None], where: str) -> None:
    """Raise ``FormatError`` unless the arrays have these shapes, and entries that are not too large."""
    for name, shape in shapes.items():
        if numbers(arrays.get(name), f"{where}: {name}", LARGEST).shape != shape:
            raise FormatError(f"{where}: {name} does not fit the layers")


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


def read_weights(arrays: Mapping[str, Array], problem: Network, name: str) -> dict[str, Array]:
    """Those that are trained of W1 (outputs, inputs) and, where the layer has a bias, b1 (outputs,), and so on, of the arrays of
    the file ``name``."""
    shapes = {key: shape for key, shape in _shapes(problem.layers).items() if key not in problem.frozen}
    _require(arrays, shapes, name)
    unknown = [key for key in arrays if NAMED.fullmatch(key) and key not in shapes]
    if unknown:
        raise FormatError(f"{name}: {', '.join(sorted(unknown))} are no trained weights of a layer")
    entries = len(problem.X) * problem.Y.shape[1] * max(layer.outputs for layer in problem.layers)
    if entries > LARGEST_PRODUCT or (len(problem.X) * problem.Y.shape[1]) ** 2 > LARGEST_PRODUCT:
        raise FormatError(f"{name}: the Jacobian of so many outputs is too large")
    return {key: arrays[key] for key in shapes}


def sizes(problem: Network, weights: Mapping[str, Array]) -> dict[str, int | bool]:
    """Rows N, inputs d, outputs k of a row, layers, parameters p."""
    N, d, k = problem.rows, problem.X.shape[1], problem.Y.shape[1]
    return {"N": N, "d": d, "k": k, "depth": len(problem.layers), "p": sum(v.parameters for v in problem.layers)}


def moving_kinks(problem: Network) -> tuple[tuple[float, ...], ...]:
    """For each layer, the kinks of its activation; none where nothing is trained in it or before, so that nothing moves."""
    trained = [layer.trains_W or layer.trains_b for layer in problem.layers]
    return tuple(
        layer.activation.kinks(layer.settings) if any(trained[: index + 1]) else ()
        for index, layer in enumerate(problem.layers)
    )
