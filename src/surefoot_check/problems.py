"""The problems a certificate can speak of: rigorous constants of the loss, and rigorous gaps at given weights.

A stored witness Ŵ (``optimum``) is never trusted: it enters only through the residual of its stationarity,
‖W* - Ŵ‖_F ≤ ‖∇ℓ(Ŵ)‖_F / μ. Every float here is rounded outwards; products and their errors are those of the problem's level.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .arrays import FormatError, within
from .rigor.bounds import FAST, Level, difference_with_error, down, frobenius_upper, up
from .rigor.gram import singular_extremes

Array = np.ndarray
Interval = tuple[float, float]
"""Rigorous (lower, upper) enclosure of a real number."""

ULP = 2.0**-53
LARGEST = 1e50
"""Largest magnitude of an entry of any array: products of the arrays and the squares of their norms do not overflow."""
LARGEST_PRODUCT = 1 << 28
"""Most entries of an array that is computed and can be much larger than those it is computed from: 2 GiB."""
TINY = 1e-300
"""Covers the underflow of elementwise products and quotients: a few times 2^-1074 for each entry of an array."""


Shape = tuple[int | None, ...]
"""Of an array; ``None`` for any length."""


def read_arrays(
    arrays: Mapping[str, Array], shapes: Mapping[str, Shape], file: str, largest: float = LARGEST
) -> dict[str, Array]:
    """Those of these shapes among the arrays of the file of that name: float64, not empty, with entries of at most that size."""
    found: dict[str, Array] = {}
    for name, shape in shapes.items():
        array = arrays.get(name)
        if array is None or array.dtype != np.float64 or array.size == 0 or not _fits(array.shape, shape):
            raise FormatError(f"{file}: {name} is missing or malformed, or does not fit the problem")
        within(f"{file}: {name}", array, largest)
        found[name] = array
    return found


def _fits(found: tuple[int, ...], shape: Shape) -> bool:
    return len(found) == len(shape) and all(
        wanted in (None, length) for length, wanted in zip(found, shape, strict=True)
    )


def root_down(x: float) -> float:
    """Lower bound of the square root of x ≥ 0."""
    return max(0.0, down(float(np.sqrt(max(x, 0.0)))))


def squared(low: float, high: float) -> Interval:
    """Enclosure of x² for 0 ≤ low ≤ x ≤ high; an overflow is infinite, where ** would raise."""
    return max(0.0, down(low * low)), up(high * high)


@dataclass(frozen=True)
class Product:
    """The end-to-end matrix W = W1 W2ᵀ as computed, with a bound on its error in Frobenius norm."""

    value: Array
    error: float


def product_of(W1: Array, W2: Array, level: Level = FAST) -> Product:
    """W1 W2ᵀ with its rounding error."""
    return Product(*level.product(W1, W2.T))


class Problem:
    """What every kind of problem shares; each system says which kinds it reads."""

    kind: str
    level: Level = FAST
    """What is trusted of everything that is computed from the problem."""


class Samples(Problem):
    """Inputs X (N, d) and targets Y (N, p) of a network that is not a linear map of its inputs."""

    kind = "samples"

    def __init__(self, X: Array, Y: Array, level: Level = FAST) -> None:
        self.X, self.Y, self.level = X, Y, level


class LinearMapProblem(Problem, ABC):
    """One loss of a linear map W on concrete arrays; ``shape`` is that of W."""

    shape: tuple[int, int]
    quadratic: bool
    unique_optimum: bool
    """Whether the minimiser is unique, so that (A3) of the proofs holds."""

    @abstractmethod
    def smoothness(self) -> Interval:
        """K."""

    @abstractmethod
    def strong_convexity(self) -> Interval:
        """μ: of strong convexity where the minimiser is unique, else the PL constant."""

    @abstractmethod
    def gap_upper(self, W: Product) -> float:
        """Rigorous upper bound of loss(W) - optimal value."""

    @abstractmethod
    def gap_exact(self, W: Product, exact: Callable[[], Any]) -> tuple[Any, Any]:
        """A ball-arithmetic lower bound (``None`` where there is none) and upper bound of the gap at W, which ``exact`` gives as
        an ``arb_mat``. Slower than ``gap_upper`` and with smaller rounding errors; for what that leaves undecided.
        """

    @abstractmethod
    def optimum(self) -> Product:
        """The witness Ŵ with a bound on ‖Ŵ - W*‖_F."""

    def optimum_singular_values(self) -> tuple[Interval, Interval]:
        """Enclosures of σ_{min(n,m)}(W*) and ‖W*‖, by Weyl from the witness."""
        witness = self.optimum()
        smallest, norm = singular_extremes(witness.value, self.level)
        e = witness.error
        return (max(0.0, down(smallest[0] - e)), up(smallest[1] + e)), (max(0.0, down(norm[0] - e)), up(norm[1] + e))

    def distance(self, W: Product) -> Interval:
        """Enclosure of ‖W - W*‖_F."""
        witness = self.optimum()
        difference, rounding = difference_with_error(W.value, witness.value)
        norm = frobenius_upper(difference)
        error = up(W.error + witness.error + rounding, 2)
        return max(0.0, down(norm * (1.0 - 1e-12) - error)), up(norm + error)


class LinearLeastSquares:
    """½‖Xw - y‖² for X of full rank: what squared loss and matrix sensing share."""

    def __init__(self, X: Array, Y: Array, witness: Array, level: Level = FAST) -> None:
        if X.size == 0:
            raise FormatError("the design matrix is empty")
        self.X, self.Y, self.witness, self.level = level.operand(X), Y, witness, level
        self.design = X
        self.smallest, self.norm = singular_extremes(X, level)
        self.unique = X.shape[0] >= X.shape[1]

    @property
    def curvature(self) -> tuple[Interval, Interval]:
        """Enclosures of the squares of the smallest and the largest singular value of X."""
        return squared(*self.smallest), squared(*self.norm)

    def image_norm(self, V: Array, error: float) -> float:
        """Upper bound of ‖X V'‖_F over all ‖V' - V‖_F ≤ error."""
        image, rounding = self.level.product(self.X, V)
        return up(frobenius_upper(image) + rounding + self.norm[1] * error, 4)

    def residual(self, V: Array) -> tuple[Array, float]:
        """X V - Y and its error."""
        image, rounding = self.level.product(self.X, V)
        value, error = difference_with_error(image, self.Y)
        return value, up(rounding + error)

    def residual_norm(self, V: Array, error: float) -> float:
        """Upper bound of ‖X V' - Y‖_F over all ‖V' - V‖_F ≤ error."""
        value, rounding = self.residual(V)
        return up(frobenius_upper(value) + rounding + self.norm[1] * error, 4)

    @cached_property
    def stationarity(self) -> float:
        """Upper bound of ‖Xᵀ(XŴ - Y)‖_F."""
        value, error = self.residual(self.witness)
        gradient, rounding = self.level.product(self.X.T, value)
        return up(frobenius_upper(gradient) + rounding + self.norm[1] * error, 4)

    def gap_upper(self, V: Array, error: float) -> float:
        """Upper bound of the gap at V: sqrt(gap) ≤ ‖X(V-Ŵ)‖/√2 + ‖Xᵀ(XŴ-Y)‖/√(2μ); no cancellation near the optimum."""
        mu = self.curvature[0][0]
        if mu <= 0.0:
            return float("inf")
        difference, rounding = difference_with_error(V, self.witness)
        image = self.image_norm(difference, up(error + rounding))
        root = up(image / root_down(2.0) + self.stationarity / root_down(down(2.0 * mu)), 6)
        if not self.unique:  # full row rank: the optimal value is 0, and the residual itself bounds the gap
            root = min(root, up(self.residual_norm(V, error) / root_down(2.0), 2))
        return up(root * root)

    def gap_exact(self, V: Any) -> tuple[Any, Any]:
        """Lower and upper bound of the gap at an exactly given V (``arb_mat``), as balls."""
        mu = self.curvature[0][0]
        if mu <= 0.0:
            return None, float("inf")
        X, witness = arb_matrix(self.design), arb_matrix(self.witness)
        near, far = _norm_bounds(X * (V - witness))
        residual = _norm_bounds(X.transpose() * (X * witness - arb_matrix(self.Y)))[1]
        moved = residual / (2 * ball(mu)).sqrt()
        low, high = near / ball(2.0).sqrt() - moved, far / ball(2.0).sqrt() + moved
        return (low * low if low > 0 else None), high * high


def ball(x: float) -> Any:
    """The float as an exact ball."""
    from flint import arb

    return arb(x)


def arb_matrix(A: Array) -> Any:
    """The array (rows, columns) as an exact ``arb_mat``."""
    from flint import arb_mat

    return arb_mat(A.shape[0], A.shape[1], [float(x) for x in A.reshape(-1)])


def _norm_bounds(A: Any) -> tuple[Any, Any]:
    """Lower and upper bound of the Frobenius norm; the ball of the sum of squares may reach below zero."""
    total: Any = sum((x * x for x in A.entries()), ball(0.0))
    return total.abs_lower().sqrt(), total.abs_upper().sqrt()


class Quadratic(LinearMapProblem):
    """½‖𝒳W - Y‖² as one least-squares problem in the entries of W."""

    quadratic = True
    _system: LinearLeastSquares

    def smoothness(self) -> Interval:
        return self._system.curvature[1]

    def strong_convexity(self) -> Interval:
        return self._system.curvature[0]

    def optimum(self) -> Product:
        mu = self.strong_convexity()[0]
        error = up(self._system.stationarity / mu, 2) if mu > 0.0 else float("inf")
        return Product(self._system.witness.reshape(self.shape), error)


class Squared(Quadratic):
    """½‖XW - Y‖²_F with X of full column rank."""

    kind = "squared"
    unique_optimum = True

    def __init__(self, X: Array, Y: Array, optimum: Array, level: Level = FAST) -> None:
        if X.shape[0] < X.shape[1]:
            raise FormatError("X must have full column rank; a rank-deficient problem is stored reduced")
        self.shape = (X.shape[1], Y.shape[1])
        self.design, self.level = X, level
        self._system = LinearLeastSquares(X, Y, optimum, level)

    def gap_upper(self, W: Product) -> float:
        return self._system.gap_upper(W.value, W.error)

    def gap_exact(self, W: Product, exact: Callable[[], Any]) -> tuple[Any, Any]:
        return self._system.gap_exact(exact())


class Sensing(Quadratic):
    """½ Σ_k (⟨A_k, W⟩ - y_k)² with linearly independent measurements, or at least nm of them of rank nm."""

    kind = "sensing"

    def __init__(self, A: Array, y: Array, optimum: Array, level: Level = FAST) -> None:
        measurements, n, m = A.shape
        self.shape, self.level = (n, m), level
        self._system = LinearLeastSquares(A.reshape(measurements, n * m), y[:, None], optimum.reshape(n * m, 1), level)
        self.unique_optimum = self._system.unique

    def gap_upper(self, W: Product) -> float:
        return self._system.gap_upper(W.value.reshape(-1, 1), W.error)

    def gap_exact(self, W: Product, exact: Callable[[], Any]) -> tuple[Any, Any]:
        from flint import arb_mat

        return self._system.gap_exact(arb_mat(W.value.size, 1, exact().entries()))


class Softmax(LinearMapProblem):
    """(1/N) Σ cross-entropy(softmax(XW), labels) + (l2/2)‖W‖²_F."""

    kind = "softmax"
    quadratic = False
    unique_optimum = True

    def __init__(self, X: Array, labels: Array, l2: float, optimum: Array, level: Level = FAST) -> None:
        self.X, self.labels, self.l2, self.witness, self.level = level.operand(X), labels, l2, optimum, level
        rows, n = X.shape
        self.shape = (n, optimum.shape[1])
        if labels.shape != (rows,) or labels.min(initial=0) < 0 or labels.max(initial=0) >= self.shape[1]:
            raise FormatError("labels must hold one class index for each row of X")
        if rows * self.shape[1] > LARGEST_PRODUCT:
            raise FormatError(f"{rows} rows of {self.shape[1]} classes: at most {LARGEST_PRODUCT} logits are computed")
        self._norm = singular_extremes(X, level)[1]
        self._targets = np.zeros((rows, self.shape[1]))
        self._targets[np.arange(rows), labels] = 1.0

    def smoothness(self) -> Interval:
        low, high = self._norm
        scale = 2.0 * len(self.labels)
        return down(low * low / scale + self.l2, 4), up(high * high / scale + self.l2, 4)

    def strong_convexity(self) -> Interval:
        return self.l2, self.l2

    def _logits(self, W: Product) -> tuple[Array, float]:
        """XW and a bound on its error in Frobenius norm."""
        logits, rounding = self.level.product(self.X, W.value)
        return logits, up(rounding + self._norm[1] * W.error, 2)

    def _probabilities(self, W: Product) -> tuple[Array, float]:
        """Softmax of the logits and a bound on its error in Frobenius norm (softmax is ½-Lipschitz row by row)."""
        logits, error = self._logits(W)
        p, rounding = self.level.softmax(logits)
        return p, up(0.5 * error + rounding, 2)

    def _gradient_norm(self, W: Product) -> float:
        """Upper bound of ‖∇ℓ(W)‖_F: of N∇ℓ(W) = Xᵀ(p - targets) + N l2 W, over N."""
        rows, level = len(self.labels), self.level
        p, error = self._probabilities(W)
        residual, rounding = difference_with_error(p, self._targets)
        data, data_error = level.product(self.X.T, residual)
        data_error = up(data_error + self._norm[1] * up(error + rounding), 2)
        weight = rows * self.l2
        penalty, penalty_error = level.scaled_columns(W.value, np.full(self.shape[1], -weight))
        # N l2 is rounded, by at most u
        penalty_error = up(penalty_error + weight * (W.error + ULP * frobenius_upper(W.value)), 6)
        gradient, rounding = difference_with_error(data, penalty)
        return up((frobenius_upper(gradient) + data_error + penalty_error + rounding) / rows, 5)

    @cached_property
    def stationarity(self) -> float:
        """Upper bound of ‖∇ℓ(Ŵ)‖_F."""
        return self._gradient_norm(Product(self.witness, 0.0))

    def _loss(self, W: Product) -> Interval:
        """Enclosure of the loss."""
        rows = len(self.labels)
        logits, error = self._logits(W)
        low, high = self.level.cross_entropy(logits, self.labels)
        # the cross-entropy of a row is √2-Lipschitz in its logits; the mean over rows gives 1/√N by Cauchy-Schwarz
        size = frobenius_upper(W.value)
        penalty = 0.5 * self.l2 * size * size
        rounding = (
            1.5 * error / float(np.sqrt(rows))
            + self.l2 * size * W.error
            + 0.5 * self.l2 * W.error * W.error
            + 1e-13 * penalty
        )
        rounding = up(rounding, 16)
        return down(down(down(low / rows) + penalty, 2) - rounding), up(up(up(high / rows) + penalty, 2) + rounding)

    def gap_upper(self, W: Product) -> float:
        if self.l2 <= 0.0:
            return self._loss(W)[1]  # the optimal value is at least 0
        s = self.stationarity
        below = up(s * s / down(2.0 * self.l2), 4)  # ℓ(Ŵ) - ℓ* ≤ ‖∇ℓ(Ŵ)‖²/(2μ)
        through_values = up(up(self._loss(W)[1] - self._loss(Product(self.witness, 0.0))[0]) + below)
        distance = self.distance(W)[1]
        through_distance = up(0.5 * self.smoothness()[1] * distance * distance, 4)
        gradient = self._gradient_norm(W)
        through_gradient = up(gradient * gradient / down(2.0 * self.l2), 4)
        return max(0.0, min(through_values, through_distance, through_gradient))

    def gap_exact(self, W: Product, exact: Callable[[], Any]) -> tuple[Any, Any]:
        lower = down(self._loss(W)[0] - self._loss(Product(self.witness, 0.0))[1])  # ℓ* ≤ ℓ(Ŵ)
        return (ball(lower) if lower > 0.0 else None), self.gap_upper(W)

    def optimum(self) -> Product:
        error = up(self.stationarity / self.l2, 2) if self.l2 > 0.0 else float("inf")
        return Product(self.witness, error)


def load_linear_map(kind: object, arrays: dict[str, Array], level: Level = FAST) -> LinearMapProblem:
    """``load_problem`` for systems whose networks are linear maps; ``FormatError`` for a problem of another kind too."""
    problem = load_problem(kind, arrays, level)
    if not isinstance(problem, LinearMapProblem):
        raise FormatError(f"linear maps do not solve a problem of kind {problem.kind!r}")
    return problem


def load_problem(kind: object, arrays: dict[str, Array], level: Level = FAST) -> Problem:
    """The problem of these arrays at this level; ``FormatError`` where they do not fit together.

    Arrays by kind: squared X (N, n), Y (N, m), optimum (n, m); sensing A (M, n, m), y (M,), optimum (n, m);
    softmax X (N, n), labels (N,), l2 (), optimum (n, m); samples
    X (N, d), Y (N, p).
    """

    def take(name: str, dimensions: int, dtype: type = np.float64) -> Array:
        array = arrays[name]
        if array.ndim != dimensions or array.dtype != dtype or array.size == 0:
            raise FormatError(f"array {name!r} has shape {array.shape} and dtype {array.dtype}")
        if dtype is np.float64:
            within(f"array {name!r}", array, LARGEST)
        return array

    names = {
        "squared": {"X", "Y", "optimum"},
        "sensing": {"A", "y", "optimum"},
        "softmax": {"X", "labels", "l2", "optimum"},
        "samples": {"X", "Y"},
    }
    if not isinstance(kind, str) or kind not in names:
        raise FormatError(f"unknown problem kind {kind!r}")
    if arrays.keys() != names[kind]:
        raise FormatError(f"the problem has arrays {', '.join(sorted(arrays))}; they are not those of kind {kind!r}")
    if kind == "samples":
        X, Y = take("X", 2), take("Y", 2)
        if len(X) != len(Y):
            raise FormatError("X and Y do not fit together")
        return Samples(X, Y, level)
    optimum = take("optimum", 2)
    if kind == "squared":
        X, Y = take("X", 2), take("Y", 2)
        if X.shape[0] != Y.shape[0] or optimum.shape != (X.shape[1], Y.shape[1]):
            raise FormatError("X, Y and optimum do not fit together")
        return Squared(X, Y, optimum, level)
    if kind == "sensing":
        A, y = take("A", 3), take("y", 1)
        if A.shape[0] != len(y) or optimum.shape != A.shape[1:]:
            raise FormatError("A, y and optimum do not fit together")
        return Sensing(A, y, optimum, level)
    X, labels = take("X", 2), take("labels", 1, np.int64)
    l2 = float(take("l2", 0))
    if optimum.shape[0] != X.shape[1] or not l2 >= 0.0:
        raise FormatError("X, l2 and optimum do not fit together")
    return Softmax(X, labels, l2, optimum, level)
