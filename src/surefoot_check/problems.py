"""The problems a certificate can speak of: rigorous constants of the loss, and rigorous gaps at given weights.

A stored witness Ŵ (``optimum``) is never trusted: it enters only through the residual of its stationarity,
‖W* - Ŵ‖_F ≤ ‖∇ℓ(Ŵ)‖_F / μ. Every float here is rounded outwards; products and their errors are those of the problem's level.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np

from .arrays import FormatError, numbers
from .rigor.approximation import Approximation
from .rigor.balls import arb_matrix, ball, frobenius
from .rigor.bounds import FAST, UNIT_ROUNDOFF, Array, Level, down, frobenius_upper, up
from .rigor.cross_entropy import ExactSoftmax
from .rigor.gram import singular_extremes
from .rigor.intervals import Interval, around, squared
from .rigor.least_squares import ExactEntries, ExactLeastSquares, ExactSensing

LARGEST = 1e50
"""Largest magnitude of an entry of any array: products of the arrays and the squares of their norms do not overflow."""
LARGEST_PRODUCT = 1 << 28
"""Most entries of an array that is computed and can be much larger than those it is computed from: 2 GiB."""


class Problem:
    """What every kind of problem shares; each system says which kinds it reads. Made from the arrays of these names."""

    kind: ClassVar[str]
    dimensions: ClassVar[Mapping[str, int]] = {}
    """Arrays and their numbers of dimensions; of float64 but for ``integers``."""
    integers: ClassVar[tuple[str, ...]] = ()
    largest: ClassVar[float] = LARGEST
    level: Level = FAST
    """What is trusted of everything that is computed from the problem."""

    def __init__(self, **arrays: Any) -> None:
        raise NotImplementedError


P = TypeVar("P", bound=Problem)


def one_of(
    kinds: Sequence[type[P]], kind: object, arrays: Mapping[str, Array], level: Level, solver: str, **more: Any
) -> P:
    """The problem of these arrays at this level; ``FormatError`` where they do not fit together, or it is of none of the kinds,
    which are those of ``solver``; ``more`` is passed on."""
    problem_type = next((candidate for candidate in kinds if candidate.kind == kind), None)
    if problem_type is None:
        raise FormatError(f"{solver} do not solve a problem of kind {kind!r}")
    if arrays.keys() != problem_type.dimensions.keys():
        raise FormatError(f"the problem has arrays {', '.join(sorted(arrays))}; they are not those of kind {kind!r}")
    read = {
        name: numbers(
            arrays[name],
            f"array {name!r}",
            problem_type.largest,
            count,
            np.int64 if name in problem_type.integers else np.float64,
        )
        for name, count in problem_type.dimensions.items()
    }
    return problem_type(**read, level=level, **more)


class Samples(Problem):
    """Inputs X (N, d) and targets Y (N, p) of a network that is not a linear map of its inputs."""

    kind = "samples"
    dimensions: ClassVar = {"X": 2, "Y": 2}

    def __init__(self, X: Array, Y: Array, level: Level = FAST) -> None:
        if len(X) != len(Y):
            raise FormatError("X and Y do not fit together")
        self.X, self.Y, self.level = X, Y, level


class LinearMapProblem(Problem, ABC):
    """One loss of a linear map W on concrete arrays; ``shape`` is that of W."""

    shape: tuple[int, int]
    design: Array
    """The data, one row for each of its equations; not there where that is not formed."""
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
    def gap_upper(self, W: Approximation) -> float:
        """Rigorous upper bound of loss(W) - optimal value."""

    @abstractmethod
    def gap_exact(self, W: Approximation, exact: Callable[[], Any]) -> tuple[Any, Any]:
        """A ball-arithmetic lower bound (``None`` where there is none) and upper bound of the gap at W, which ``exact`` gives as
        an ``arb_mat``. Slower than ``gap_upper`` and with smaller rounding errors; for what that leaves undecided.
        """

    @abstractmethod
    def exact_loss(self) -> ExactLeastSquares | ExactEntries | ExactSoftmax:
        """The loss in ball arithmetic, for the replay."""

    @abstractmethod
    def optimum(self) -> Approximation:
        """The witness Ŵ with a bound on ‖Ŵ - W*‖_F."""

    def optimum_singular_values(self) -> tuple[Interval, Interval]:
        """Enclosures of σ_{min(n,m)}(W*) and ‖W*‖, by Weyl from the witness."""
        witness = self.optimum()
        smallest, norm = singular_extremes(witness.value, self.level)
        return around(smallest, witness.error), around(norm, witness.error)

    def distance(self, W: Approximation) -> Interval:
        """Enclosure of ‖W - W*‖_F."""
        apart = W - self.optimum()
        return around(apart.bounds(), apart.error)


class LeastSquares:
    """½‖XV - Y‖² of V (columns, k): squared loss, matrix sensing, and each of a batch of problems.

    With Π the projector onto the range of X, the gap is ½‖Π(XV - Y)‖² ≤ ½(‖X(V - Ŵ)‖ + ‖Π(XŴ - Y)‖)², without the cancellation
    of loss - optimal value, and ‖Π(XŴ - Y)‖ ≤ ‖Xᵀ(XŴ - Y)‖/σ for the smallest nonzero singular value σ.

    Args:
        smallest, norm: enclosures of σ, from 0 where the rank is not certain, and of ‖X‖.
        interpolates: whether the loss itself is tried as a bound of the gap; sharp where the optimal value is 0.
    """

    def __init__(
        self, X: Array, Y: Array, witness: Array, smallest: Interval, norm: Interval, level: Level, interpolates: bool
    ) -> None:
        self.smallest, self.norm, self.level, self.interpolates = smallest, norm, level, interpolates
        self.design, self.targets, self.witness = X, Y, Approximation(witness)
        self._X = level.operand(X)

    def _residual(self, V: Approximation) -> Approximation:
        """XV - Y."""
        return V.image(self._X, self.norm[1], self.level) - Approximation(self.targets)

    @cached_property
    def stationarity(self) -> float:
        """Upper bound of ‖Xᵀ(XŴ - Y)‖_F."""
        return self._residual(self.witness).image(self._X.T, self.norm[1], self.level).norm()

    @cached_property
    def _unexplained(self) -> float:
        """Upper bound of ‖Π(XŴ - Y)‖."""
        bound = up(self.stationarity / self.smallest[0]) if self.smallest[0] > 0.0 else float("inf")
        return min(bound, self._residual(self.witness).norm()) if self.interpolates else bound

    def gap_upper(self, V: Approximation) -> float:
        """Upper bound of the gap at V."""
        image = (V - self.witness).image(self._X, self.norm[1], self.level)
        root = up(image.norm() + self._unexplained)
        if self.interpolates:
            root = min(root, self._residual(V).norm())
        return up(0.5 * root * root, 2)

    def exact(self, kind: type[ExactLeastSquares] = ExactLeastSquares) -> ExactLeastSquares:
        """The same in ball arithmetic."""
        return kind(self.design, self.targets, self.witness.value, squared(*self.smallest)[0])


class Quadratic(LinearMapProblem):
    """½‖𝒳W - Y‖² as one least-squares problem in the entries of W."""

    quadratic = True

    def __init__(self, X: Array, Y: Array, witness: Array, level: Level) -> None:
        self.level, self.design, self.unique_optimum = level, X, X.shape[0] >= X.shape[1]
        extremes = singular_extremes(X, level)
        self._system = LeastSquares(X, Y, witness, *extremes, level, interpolates=not self.unique_optimum)

    def smoothness(self) -> Interval:
        return squared(*self._system.norm)

    def strong_convexity(self) -> Interval:
        return squared(*self._system.smallest)

    def gap_upper(self, W: Approximation) -> float:
        return self._system.gap_upper(Approximation(W.value.reshape(self._system.witness.value.shape), W.error))

    def gap_exact(self, W: Approximation, exact: Callable[[], Any]) -> tuple[Any, Any]:
        _, low, high = self.exact_loss().at(exact())
        return (low if low > 0 else None), high

    def exact_loss(self) -> ExactLeastSquares:
        return self._system.exact()

    def optimum(self) -> Approximation:
        mu = self.strong_convexity()[0]
        error = up(self._system.stationarity / mu, 2) if mu > 0.0 else float("inf")
        return Approximation(self._system.witness.value.reshape(self.shape), error)


class Squared(Quadratic):
    """½‖XW - Y‖²_F with X (N, n) of full column rank and Y (N, m)."""

    kind = "squared"
    dimensions: ClassVar = {"X": 2, "Y": 2, "optimum": 2}

    def __init__(self, X: Array, Y: Array, optimum: Array, level: Level = FAST) -> None:
        if len(X) != len(Y) or optimum.shape != (X.shape[1], Y.shape[1]):
            raise FormatError("X, Y and optimum do not fit together")
        if X.shape[0] < X.shape[1]:
            raise FormatError("X must have full column rank; a rank-deficient problem is stored reduced")
        self.shape = (X.shape[1], Y.shape[1])
        super().__init__(X, Y, optimum, level)


class Fitted(Problem):
    """½‖X(W - Ŵ)‖²_F with N rows X (N, d) of full column rank, of which batches are drawn, and Ŵ (d, k), exactly as stored: the
    targets are XŴ, which X can fit."""

    kind = "fitted"
    dimensions: ClassVar = {"X": 2, "optimum": 2}
    quadratic = True

    def __init__(self, X: Array, optimum: Array, level: Level = FAST) -> None:
        if X.shape[1] != len(optimum):
            raise FormatError("X and optimum do not fit together")
        if X.shape[0] < X.shape[1]:
            raise FormatError("X must have full column rank; a rank-deficient problem is stored reduced")
        self.X, self.optimum, self.shape, self.level = X, Approximation(optimum), optimum.shape, level

    def gap_upper(self, W: Approximation) -> float:
        """Rigorous upper bound of the gap at W."""
        norm = singular_extremes(self.X, self.level)[1][1]
        size = (W - self.optimum).image(self.X, norm, self.level).norm()
        return up(0.5 * size * size, 2)

    def gap_exact(self, W: Approximation, exact: Callable[[], Any]) -> tuple[Any, Any]:
        """Bounds of the gap in ball arithmetic at W, which ``exact`` gives as an ``arb_mat``."""
        low, high = frobenius(arb_matrix(self.X) * (exact() - arb_matrix(self.optimum.value)))
        return low * low / 2, high * high / 2


class Sensing(Quadratic):
    """½ Σ_k (⟨A_k, W⟩ - y_k)² with linearly independent measurements A (M, n, m), or at least nm of them of rank nm."""

    kind = "sensing"
    dimensions: ClassVar = {"A": 3, "y": 1, "optimum": 2}

    def __init__(self, A: Array, y: Array, optimum: Array, level: Level = FAST) -> None:
        if len(A) != len(y) or optimum.shape != A.shape[1:]:
            raise FormatError("A, y and optimum do not fit together")
        self.shape = (A.shape[1], A.shape[2])
        super().__init__(A.reshape(len(A), optimum.size), y[:, None], optimum.reshape(-1, 1), level)

    def exact_loss(self) -> ExactLeastSquares:
        return self._system.exact(ExactSensing)


class Softmax(LinearMapProblem):
    """(1/N) Σ cross-entropy(softmax(XW), labels) + (l2/2)‖W‖²_F, X (N, n), labels (N,)."""

    kind = "softmax"
    dimensions: ClassVar = {"X": 2, "labels": 1, "l2": 0, "optimum": 2}
    integers = ("labels",)
    quadratic = False
    unique_optimum = True
    offset: Array | None = None
    """What is added to the logits XW (N, m)."""

    def __init__(self, X: Array, labels: np.ndarray, l2: Array | float, optimum: Array, level: Level = FAST) -> None:
        self.X, self.labels, self.l2, self.witness, self.level = level.operand(X), labels, float(l2), optimum, level
        (rows, n), self.shape, self.design = X.shape, (X.shape[1], optimum.shape[1]), X
        if len(optimum) != n or not self.l2 >= 0.0:
            raise FormatError("X, l2 and optimum do not fit together")
        if labels.shape != (rows,) or labels.min(initial=0) < 0 or labels.max(initial=0) >= self.shape[1]:
            raise FormatError("labels must hold one class index for each row of X")
        if rows * self.shape[1] > LARGEST_PRODUCT:
            raise FormatError(f"{rows} rows of {self.shape[1]} classes: at most {LARGEST_PRODUCT} logits are computed")
        self._norm = singular_extremes(X, level)[1]
        targets = np.zeros((rows, self.shape[1]))
        targets[np.arange(rows), labels] = 1.0
        self._targets = Approximation(targets)

    def smoothness(self) -> Interval:
        low, high = self._norm
        scale = 2.0 * len(self.labels)
        return down(low * low / scale + self.l2, 4), up(high * high / scale + self.l2, 4)

    def strong_convexity(self) -> Interval:
        return self.l2, self.l2

    def _logits(self, W: Approximation) -> Approximation:
        """XW, and the offset."""
        image = W.image(self.X, self._norm[1], self.level)
        return image if self.offset is None else image + Approximation(self.offset)

    def _probabilities(self, W: Approximation) -> Approximation:
        """Softmax of the logits, which is ½-Lipschitz row by row."""
        logits = self._logits(W)
        p, rounding = self.level.softmax(logits.value)
        return Approximation(p, up(0.5 * logits.error + rounding, 2))

    def _gradient_norm(self, W: Approximation) -> float:
        """Upper bound of ‖∇ℓ(W)‖_F: of N∇ℓ(W) = Xᵀ(p - targets) + N l2 W, over N."""
        residual, rows = self._probabilities(W) - self._targets, len(self.labels)
        data = residual.image(self.X.T, self._norm[1], self.level)
        penalty = W.times(rows * self.l2)
        of_product = 2.0 * UNIT_ROUNDOFF * penalty.norm()  # N l2 is rounded, by at most u
        return up(((data + penalty).norm() + of_product) / rows, 5)

    @cached_property
    def stationarity(self) -> float:
        """Upper bound of ‖∇ℓ(Ŵ)‖_F."""
        return self._gradient_norm(Approximation(self.witness))

    def _loss(self, W: Approximation) -> Interval:
        """Enclosure of the loss."""
        rows = len(self.labels)
        logits = self._logits(W)
        low, high = self.level.cross_entropy(logits.value, self.labels)
        # the cross-entropy of a row is √2-Lipschitz in its logits; the mean over rows gives 1/√N by Cauchy-Schwarz
        size = frobenius_upper(W.value)
        penalty = 0.5 * self.l2 * size * size
        rounding = (
            1.5 * logits.error / float(np.sqrt(rows))
            + self.l2 * size * W.error
            + 0.5 * self.l2 * W.error * W.error
            + 1e-13 * penalty
        )
        rounding = up(rounding, 16)
        return down(down(down(low / rows) + penalty, 2) - rounding), up(up(up(high / rows) + penalty, 2) + rounding)

    @cached_property
    def _best(self) -> Interval:
        """Enclosure of the loss at the witness."""
        return self._loss(Approximation(self.witness))

    def gap_upper(self, W: Approximation) -> float:
        if self.l2 <= 0.0:
            return self._loss(W)[1]  # the optimal value is at least 0

        def gap_of(gradient: float) -> float:
            """Upper bound of the gap at a point: ‖∇ℓ‖²/(2μ)."""
            return up(gradient * gradient / down(2.0 * self.l2), 4)

        through_values = up(up(self._loss(W)[1] - self._best[0]) + gap_of(self.stationarity))
        distance = self.distance(W)[1]
        through_distance = up(0.5 * self.smoothness()[1] * distance * distance, 4)
        return max(0.0, min(through_values, through_distance, gap_of(self._gradient_norm(W))))

    def gap_exact(self, W: Approximation, exact: Callable[[], Any]) -> tuple[Any, Any]:
        lower = down(self._loss(W)[0] - self._best[1])  # ℓ* ≤ ℓ(Ŵ)
        return (ball(lower) if lower > 0.0 else None), self.gap_upper(W)

    def exact_loss(self) -> ExactSoftmax:
        return ExactSoftmax(self.design, self.labels, self.l2, self.witness, self.offset)

    def optimum(self) -> Approximation:
        error = up(self.stationarity / self.l2, 2) if self.l2 > 0.0 else float("inf")
        return Approximation(self.witness, error)


class OffsetSoftmax(Softmax):
    """The same of softmax(offset + XW), offset (N, m): K, μ and the penalty are those without one."""

    kind = "softmax-offset"
    dimensions: ClassVar = {**Softmax.dimensions, "offset": 2}

    def __init__(
        self,
        X: Array,
        labels: np.ndarray,
        l2: Array | float,
        optimum: Array,
        offset: Array,
        level: Level = FAST,
    ) -> None:
        super().__init__(X, labels, l2, optimum, level)
        if offset.shape != (len(X), optimum.shape[1]):
            raise FormatError("offset must have a row for each of X and a column for each class")
        self.offset = offset
