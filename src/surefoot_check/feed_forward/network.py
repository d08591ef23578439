"""What a feed-forward network is trained with: its data, how its layers are made, and the weights that fit them."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ..arrays import FormatError, TooLargeError, numbers
from ..problems import LARGEST_PRODUCT, Problem, one_of
from ..rigor.approximation import Approximation
from ..rigor.balls import arb_matrix
from ..rigor.bounds import FAST, Array, Level
from ..rigor.intervals import Interval
from .activations import ACTIVATIONS, IDENTITY, Activation, Settings
from .classes import Classes
from .geometry import COLUMNS, LARGEST_MATRIX, MAXIMUM, Geometry
from .groups import Groups
from .smooth import SMOOTH

NAMED = re.compile("[Wb][0-9]+")
"""Names of weights."""
OPTIONAL = ("geometry", "skips")
"""Arrays that networks of plain dense layers do without."""
LARGEST = 1e20
"""Largest magnitude of an entry of data or weights."""
MOST = 1 << 40
"""Largest numerator and denominator of a multiple."""
LARGEST_DERIVATIVES = 1 << 30
"""Most entries of the derivatives of the outputs of a layer by all weights, of which a Hessian is made: 8 GiB."""
DEEPEST = 64
"""Most layers; the bounds of rounding rely on it."""


@dataclass(frozen=True)
class LayerKind:
    """How a layer is made: φ(a Wᵀ + 1bᵀ) with W (outputs, inputs), or what ``geometry`` has in place of aWᵀ + 1bᵀ; plus the
    outputs of the layer of the number ``skip``, 0 for X itself, where that is not negative."""

    inputs: int
    outputs: int
    bias: bool
    activation: Activation
    settings: Settings
    geometry: Geometry | None = None
    skip: int = -1
    trains_W: bool = True
    trains_b: bool = True

    @property
    def plain(self) -> bool:
        """Whether it is a dense layer and nothing is added to its outputs."""
        return self.geometry is None and self.skip < 0

    @property
    def parameters(self) -> int:
        """How many numbers are trained."""
        return self.units * (self.seen * self.trains_W + self.trains_b)

    @property
    def units(self) -> int:
        """Rows of W: outputs, or of a convolution output channels."""
        return self.outputs if self.geometry is None else self.outputs // self.geometry.positions

    @property
    def seen(self) -> int:
        """Columns of W: what a unit sees of the inputs."""
        return self.inputs if self.geometry is None else self.geometry.shared

    @property
    def weighted(self) -> bool:
        """Whether it has weights."""
        return self.geometry is None or self.geometry.kind != MAXIMUM

    def shapes(self, number: int) -> dict[str, tuple[int, ...]]:
        """The shapes of W and, where there is one, b by their names, of the layer of that number."""
        if not self.weighted:
            return {}
        W: dict[str, tuple[int, ...]] = {f"W{number}": (self.units, self.seen)}
        return W | ({f"b{number}": (self.units,)} if self.bias else {})

    def matrix(self, W: Array) -> Array:
        """W as a matrix (outputs, inputs)."""
        return W if self.geometry is None else self.geometry.matrix(W)

    def shift(self, b: Array) -> Array:
        """b as a vector (outputs,)."""
        return b if self.geometry is None else np.repeat(b, self.geometry.positions)


class Network(Problem):
    """½‖f(X) - Y‖²_F of a network f of these layers; X (N, d), Y (N, k); ``frozen`` are the weights that are not trained."""

    kind = "network-squared"
    multiple = Fraction(1)
    """The loss is that many times the one above."""
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
        geometry: np.ndarray | None = None,
        skips: np.ndarray | None = None,
    ) -> None:
        """Of layers (L, 3), settings (L, 2) and frozen weights, named as ``read_weights`` names the others.

        A row of ``layers`` is outputs, whether there is a bias (0 or 1), and the code of the activation behind, which is that of
        the identity in the last; a row of ``settings`` the numbers of that activation. Networks of plain dense layers have
        neither geometry (L, 12), a row of which is one of ``Geometry`` or zeros, nor skips (L, 1), -1 where nothing is added.
        """
        self.X, self.Y, self.level, self.frozen = X, Y, level, frozen or {}
        if len(X) != len(Y):
            raise FormatError("X and Y do not fit together")
        if layers.shape != (len(layers), 3) or settings.shape != (len(layers), 2):
            raise FormatError("layers and settings do not fit together")
        if len(layers) > DEEPEST:
            raise TooLargeError(f"there are {len(layers)} layers; at most {DEEPEST} are bounded")
        extra = _extra(len(layers), geometry, skips)
        kinds = _layers(X.shape[1], Y.shape[1], list(zip(layers.tolist(), settings.tolist(), *extra, strict=True)))
        shapes = _shapes(kinds)
        _require(self.frozen, {name: shapes.get(name) for name in self.frozen}, "the problem")
        if self.frozen.keys() == shapes.keys():
            raise FormatError("no weight is trained")
        self.layers = tuple(
            replace(
                layer,
                trains_W=layer.weighted and f"W{number}" not in self.frozen,
                trains_b=layer.bias and f"b{number}" not in self.frozen,
            )
            for number, layer in enumerate(kinds, 1)
        )

    @property
    def plain(self) -> bool:
        """Whether all layers are dense, and nothing is added to their outputs."""
        return all(layer.plain for layer in self.layers)

    @cached_property
    def groups(self) -> Groups:
        """Of equal rows of X."""
        return Groups(self.X, self.Y, self.multiple)

    @property
    def least(self) -> Interval:
        """Enclosure of the value that gaps are measured from."""
        return self.groups.scatter_bounds

    @property
    def rows(self) -> int:
        """How many there are; equal ones count once."""
        return len(self.groups.first)

    @property
    def parameters(self) -> int:
        """How many numbers are trained."""
        return sum(layer.parameters for layer in self.layers)

    def computed(self) -> Iterator[tuple[str, int, int]]:
        """The arrays that can be much larger than those they are computed from, their entries, of all layers together where each
        has one, and how many there may be: a file of a few numbers must not fill the memory."""
        outputs = len(self.X) * self.Y.shape[1]
        maps = [(layer, layer.geometry) for layer in self.layers if layer.geometry is not None]
        windows = sum(windows_of.positions * windows_of.shared for _, windows_of in maps)
        matrices = sum(layer.inputs * layer.outputs for layer, _ in maps if layer.weighted)
        yield "the Gram matrix of the Jacobian", outputs**2, LARGEST_PRODUCT
        yield "the derivatives of the outputs", outputs * sum(v.outputs for v in self.layers), LARGEST_PRODUCT
        yield "all windows of maps", len(self.X) * windows, LARGEST_PRODUCT
        yield "the matrices of all convolutions", matrices, LARGEST_PRODUCT


class MultipleOfSquares(Network):
    """The same times ``multiple`` (1, 2), the numerator and the denominator: a mean squared error without weight decay."""

    kind = "network-squared-multiple"
    dimensions: ClassVar = {**Network.dimensions, "multiple": 2}
    integers = ("layers", "multiple")

    def __init__(self, X: Array, Y: Array, multiple: np.ndarray, **more: Any) -> None:
        super().__init__(X, Y, **more)
        if multiple.shape != (1, 2) or multiple.min() < 1 or multiple.max() > MOST:
            raise FormatError("the multiple has no numerator and denominator")
        self.multiple = Fraction(*multiple[0].tolist())


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
            if not layer.plain:
                raise FormatError(f"layer {number} is not dense: there is no theorem on minima of such networks")
            if layer.activation.code not in SMOOTH:
                raise FormatError(f"layer {number}: {layer.activation.name} has no third derivative")
        self.decay, self.mean = float(objective[0, 0]), bool(objective[0, 1])

    @property
    def least(self) -> Interval:
        return 0.0, 0.0

    @property
    def rows(self) -> int:
        return len(self.X)

    def computed(self) -> Iterator[tuple[str, int, int]]:
        yield from super().computed()
        widest = max(layer.outputs for layer in self.layers)
        yield "the Hessian", self.parameters**2, LARGEST_PRODUCT
        yield "the derivatives of a layer", len(self.X) * widest * self.parameters, LARGEST_DERIVATIVES

    @property
    @abstractmethod
    def count(self) -> int | Fraction:
        """What a mean divides by."""

    @property
    def scale(self) -> Fraction:
        """c."""
        return Fraction(self.factor) / self.count if self.mean else Fraction(self.factor)

    @property
    def targets(self) -> Approximation:
        """What ∇ℓ subtracts (N, k)."""
        return Approximation(self.Y)

    @property
    def masses(self) -> Approximation | None:
        """What the softmax is multiplied by in it (N, k); ``None`` for 1."""
        return None

    @property
    def largest_mass(self) -> float:
        """Upper bound of those."""
        return 1.0

    def exact_slope(self, outcome: Any) -> Any:
        """∇ℓ (N, k) in ball arithmetic, of f or its softmax."""
        return outcome - arb_matrix(self.Y)


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
    def count(self) -> int | Fraction:
        return len(self.Y)


class WeightedEntropyObjective(EntropyObjective):
    """The same with weights of the classes, ``classes`` (1, k), and label smoothing, the third entry of ``objective`` (1, 3)."""

    kind = "network-weighted-cross-entropy"
    dimensions: ClassVar = {**EntropyObjective.dimensions, "classes": 2}

    def __init__(
        self, X: Array, labels: np.ndarray, layers: np.ndarray, objective: Array, classes: Array, **more: Any
    ) -> None:
        if objective.shape != (1, 3) or not 0.0 <= objective[0, 2] <= 1.0:
            raise FormatError("the objective has no label smoothing between 0 and 1")
        super().__init__(X, labels, layers, objective=objective[:, :2], **more)
        if classes.shape != (1, self.Y.shape[1]) or (classes < 0.0).any():
            raise FormatError("the weights of the classes are not one of each output, and none negative")
        self.classes = Classes(labels, classes[0], float(objective[0, 2]))
        if self.mean and self.classes.total == 0:
            raise FormatError("all labels are of classes of weight 0, and their mean is taken")

    @property
    def count(self) -> Fraction:
        return self.classes.total

    @property
    def targets(self) -> Approximation:
        return self.classes.targets

    @property
    def masses(self) -> Approximation | None:
        return self.classes.masses

    @property
    def largest_mass(self) -> float:
        return self.classes.largest_mass

    def exact_slope(self, outcome: Any) -> Any:
        return self.classes.exact_slope(outcome)


KINDS: tuple[type[Network], ...] = (
    Network,
    MultipleOfSquares,
    SquaredObjective,
    EntropyObjective,
    WeightedEntropyObjective,
)


def load_problem(kind: object, arrays: Mapping[str, Array], level: Level = FAST) -> Network:
    """A network and its data."""
    frozen = {name: array for name, array in arrays.items() if NAMED.fullmatch(name)}
    extra = {
        name: numbers(arrays[name], f"array {name!r}", LARGEST, 2, np.int64) for name in OPTIONAL if name in arrays
    }
    others = {name: array for name, array in arrays.items() if name not in frozen and name not in extra}
    return one_of(KINDS, kind, others, level, "feed-forward networks", frozen=frozen, **extra)


def _shapes(layers: tuple[LayerKind, ...]) -> dict[str, tuple[int, ...]]:
    """Of all weights by their names."""
    return {name: shape for number, layer in enumerate(layers, 1) for name, shape in layer.shapes(number).items()}


def _require(arrays: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...] | None], where: str) -> None:
    """Raise ``FormatError`` unless the arrays have these shapes, and entries that are not too large."""
    for name, shape in shapes.items():
        if numbers(arrays.get(name), f"{where}: {name}", LARGEST).shape != shape:
            raise FormatError(f"{where}: {name} does not fit the layers")


def _extra(
    count: int, geometry: np.ndarray | None, skips: np.ndarray | None
) -> tuple[list[Geometry | None], list[int]]:
    """For each layer its geometry, and the number of the layer whose outputs are added."""
    if (geometry is not None and geometry.shape != (count, COLUMNS)) or (
        skips is not None and skips.shape != (count, 1)
    ):
        raise FormatError("geometry and skips do not fit the layers")
    rows = [[0]] * count if geometry is None else geometry.tolist()
    return [Geometry.of(row) for row in rows], [-1] * count if skips is None else skips[:, 0].tolist()


Row = tuple[list[int], list[float], Geometry | None, int]


def _layers(inputs: int, outputs: int, table: list[Row]) -> tuple[LayerKind, ...]:
    layers: list[LayerKind] = []
    widths = [inputs]
    for (width, bias, code), (first, second), geometry, skip in table:
        where = f"layer {len(layers) + 1}"
        if width < 1 or bias not in (0, 1) or code not in ACTIVATIONS:
            raise FormatError(f"{where}: {width}, {bias}, {code} are no width, bias and activation")
        activation = ACTIVATIONS[code]
        if not activation.possible((first, second)):
            raise FormatError(f"{where}: {first:g} and {second:g} are no settings of {activation.name}")
        layer = LayerKind(widths[-1], width, bool(bias), activation, (first, second), geometry, skip)
        if geometry is not None:
            _require_geometry(layer, geometry, where)
        if not -1 <= skip < len(widths) or (skip >= 0 and widths[skip] != width):
            raise FormatError(f"{where}: outputs of layer {skip} cannot be added")
        layers.append(layer)
        widths.append(width)
    last = layers[-1]
    if last.activation is not IDENTITY or last.outputs != outputs or last.skip >= 0:
        raise FormatError("the last layer does not end in the outputs")
    return tuple(layers)


def _require_geometry(layer: LayerKind, geometry: Geometry, where: str) -> None:
    if geometry.inputs != layer.inputs or layer.units * geometry.positions != layer.outputs:
        raise FormatError(f"{where}: the geometry does not fit inputs and outputs")
    if not layer.weighted and (layer.bias or layer.units != geometry.channels):
        raise FormatError(f"{where}: a maximum has as many channels as its inputs, and no bias")
    if layer.weighted and layer.inputs * layer.outputs > LARGEST_MATRIX:
        raise TooLargeError(
            f"{where}: the matrix of the convolution has more than {LARGEST_MATRIX:,} entries; take smaller maps"
        )


def read_weights(arrays: Mapping[str, Array], problem: Network, name: str) -> dict[str, Array]:
    """Those that are trained of W1 (outputs, inputs) and, where the layer has a bias, b1 (outputs,), and so on, of the arrays of
    the file ``name``."""
    shapes = {key: shape for key, shape in _shapes(problem.layers).items() if key not in problem.frozen}
    _require(arrays, shapes, name)
    unknown = [key for key in arrays if NAMED.fullmatch(key) and key not in shapes]
    if unknown:
        raise FormatError(f"{name}: {', '.join(sorted(unknown))} are no trained weights of a layer")
    for what, entries, most in problem.computed():
        if entries > most:
            raise TooLargeError(f"{name}: {what} would have {entries:,} entries; at most {most:,} are computed")
    return {key: arrays[key] for key in shapes}


def sizes(problem: Network, weights: Mapping[str, Array]) -> dict[str, int | bool]:
    """Rows N, inputs d, outputs k of a row, layers, parameters p."""
    N, d, k = problem.rows, problem.X.shape[1], problem.Y.shape[1]
    return {"N": N, "d": d, "k": k, "depth": len(problem.layers), "p": problem.parameters}


def moving_kinks(problem: Network) -> tuple[bool, ...]:
    """For each layer, whether it has kinks: of its activation or of a maximum, where something moves that reaches them."""
    trained = [layer.trains_W or layer.trains_b for layer in problem.layers]
    return tuple(
        bool(layer.activation.kinks(layer.settings) or not layer.weighted) and any(trained[: index + 1])
        for index, layer in enumerate(problem.layers)
    )
