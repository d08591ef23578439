"""Batches of independent problems that learned step sizes solve, with rigorous gaps.

M (N, b, d) float64 throughout; problem p is M[p]. Three kinds:

- ``least-squares-batch``: ½‖M_p x - Y_p‖², Y (N, b);
- ``lasso-batch``: ½‖M_p x - Y_p‖² + lam_p‖x‖₁, lam (N,) ≥ 0;
- ``logistic-batch``: Σ_i log(1 + exp(-s_pi⟨m_pi, x⟩)) + lam_p‖x‖₁ + (l2_p/2)‖x‖², labels s (N, b) of ±1, lam, l2 (N,) ≥ 0.

Each stores approximate minimisers ``optimum`` (N, d). They are witnesses, never trusted: for least squares they enter
through their stationarity, else through a feasible dual point made from them (docs/theorems/step-sizes.md, sections 5
and 6). Every float is rounded outwards.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ..arrays import FormatError
from ..problems import LeastSquares, Problem
from ..rigor.approximation import Approximation
from ..rigor.balls import arb_matrix, ball, float_above, float_below
from ..rigor.bounds import EXP_ERROR, FAST, UNIT_ROUNDOFF, Array, Level, down, frobenius_upper, up
from ..rigor.gram import extreme_bounds, norm_bounds
from ..rigor.intervals import TINY, Interval, around, squared

LARGEST = 1e40
"""Largest magnitude of an entry: the squares of the norms of Mᵀ(Mx - Y) do not overflow."""
MOST = 100_000
"""Problems of a batch: each costs some milliseconds."""
SHRINK = 1.0 - 1e-14
"""A dual point that is not certainly feasible is scaled back onto the constraint, and by this."""
ROUNDS = 4
"""Times that this is tried; then the dual point is 0, which is feasible."""


@dataclass(frozen=True)
class Dual:
    """A dual point, exactly as stored, with a bound of what it leaves: optimal value ≥ ``value``, rounded down."""

    point: Array
    value: float


class Batch(Problem, ABC):
    """N problems of the same shape."""

    largest: ClassVar[float] = LARGEST
    proximal: bool
    """Whether a step is a proximal one."""

    def __init__(self, M: Array, optimum: Array, level: Level, **others: Array) -> None:
        self.M, self.optimum, self.level = M, optimum, level
        self.count, self.rows, self.columns = N, b, d = M.shape
        if N > MOST:
            raise FormatError(f"the batch has {N} problems; at most {MOST} are checked")
        shapes = {"Y": (N, b), "labels": (N, b), "lam": (N,), "l2": (N,), "optimum": (N, d)}
        wrong = [name for name, array in {**others, "optimum": optimum}.items() if array.shape != shapes[name]]
        if wrong:
            raise FormatError(f"{', '.join(wrong)} and M do not fit together")

    def image(self, p: int, x: Array) -> Approximation:
        """M_p x."""
        value, error = self.level.product(self.M[p], x[:, None])
        return Approximation(value[:, 0], error)

    def adjoint(self, p: int, v: Array) -> Approximation:
        """M_pᵀ v."""
        value, error = self.level.product(self.M[p].T, v[:, None])
        return Approximation(value[:, 0], error)

    @cached_property
    def norms(self) -> list[Interval]:
        """Enclosures of ‖M_p‖."""
        return [norm_bounds(M, self.level) for M in self.M]

    @property
    def smoothness(self) -> list[Interval]:
        """Enclosures of the Lipschitz constants of the gradients of the smooth parts."""
        return [squared(*norm) for norm in self.norms]

    @cached_property
    def smallest_singular(self) -> list[Interval]:
        """Enclosures of the smallest nonzero singular value of M_p, from 0 where a full rank is not certain."""
        return [_smallest_singular_value(M, self.level) for M in self.M]

    @property
    def smallest(self) -> list[Interval]:
        """Enclosures of the smallest nonzero eigenvalue of M_p M_pᵀ: of its square."""
        return [squared(*bounds) for bounds in self.smallest_singular]

    @abstractmethod
    def objective(self, p: int, x: Array) -> Interval:
        """Enclosure of F_p(x)."""

    @abstractmethod
    def gap_bound(self, p: int, x: Array) -> float:
        """Rigorous upper bound of objective - optimal value of problem p at x (d,)."""

    @abstractmethod
    def gap_balls(self, p: int, x: Array) -> tuple[Any, Any]:
        """Lower and upper bound of it in ball arithmetic."""


class LeastSquaresBatch(Batch):
    """F_p - F_p* = ½‖Π_p(M_p x - Y_p)‖², Π_p the projector onto the range of M_p; F_p* may be positive."""

    kind = "least-squares-batch"
    proximal = False
    dimensions: ClassVar = {"M": 3, "Y": 2, "optimum": 2}

    def __init__(self, M: Array, Y: Array, optimum: Array, level: Level = FAST) -> None:
        super().__init__(M, optimum, level, Y=Y)
        self.Y = Y

    @cached_property
    def _systems(self) -> list[LeastSquares]:
        """The problems, each as one of vectors."""
        columns = self.Y[:, :, None], self.optimum[:, :, None]
        each = zip(self.M, *columns, self.smallest_singular, self.norms, strict=True)
        return [LeastSquares(*arrays, self.level, interpolates=True) for arrays in each]

    def objective(self, p: int, x: Array) -> Interval:
        return _half_square(Approximation(self.Y[p]) - self.image(p, x))

    def gap_bound(self, p: int, x: Array) -> float:
        return self._systems[p].gap_upper(Approximation(x[:, None]))

    def gap_balls(self, p: int, x: Array) -> tuple[Any, Any]:
        _, low, high = self._systems[p].exact().at(arb_matrix(x))
        return low.max(ball(0.0)), high


class PenalisedBatch(Batch):
    """A smooth convex loss of M_p x plus lam_p‖x‖₁ + (l2_p/2)‖x‖²: its gaps come from dual points."""

    proximal = True

    def __init__(self, M: Array, lam: Array, l2: Array, optimum: Array, level: Level, **others: Array) -> None:
        super().__init__(M, optimum, level, lam=lam, l2=l2, **others)
        for name, array in (("lam", lam), ("l2", l2)):
            if not (array >= 0.0).all():
                raise FormatError(f"{name} has negative entries")
        self.lam, self.l2 = lam, l2

    @property
    @abstractmethod
    def strong_convexity(self) -> list[float]:
        """Lower bounds of the strong convexity of the smooth parts."""

    def objective(self, p: int, x: Array) -> Interval:
        if self.level is FAST:
            return self._objective(p, x)
        value = self._objective_ball(p, x)
        return float_below(value), float_above(value)

    @abstractmethod
    def _objective(self, p: int, x: Array) -> Interval:
        """The same in floats."""

    @abstractmethod
    def _residual(self, p: int, x: Array) -> Array:
        """A dual point (b,), not feasible yet: minus the gradient of the loss at M_p x, as float64."""

    @abstractmethod
    def _signed(self, p: int, point: Array) -> Array:
        """What M_pᵀ is applied to, exactly."""

    @abstractmethod
    def _dual_value(self, p: int, point: Array) -> float:
        """Lower bound of the dual objective of problem p without its penalty term."""

    def dual(self, p: int, x: Array) -> Dual:
        """A feasible dual point made from x: scaled back onto the constraint, or as it is where l2 > 0 and that is better."""
        scaled = self._scaled_back(p, self._residual(p, x))
        lam, l2 = float(self.lam[p]), float(self.l2[p])
        if not l2 > 0.0:
            return scaled
        point = self._residual(p, x)
        v = self.adjoint(p, self._signed(p, point))
        excess = np.maximum(np.abs(v.value) - lam, 0.0)
        norm = up(frobenius_upper(excess) * (1.0 + 2.0 * UNIT_ROUNDOFF) + v.error, 3)
        # the quotient first: the square of a small norm underflows, and a small l2 would bring it back
        value = down(self._dual_value(p, point) - up(norm * up(norm / down(2.0 * l2))))
        return Dual(point, value) if value > scaled.value else scaled

    def _scaled_back(self, p: int, point: Array) -> Dual:
        """The point scaled until ‖Mᵀ(...)‖_∞ ≤ lam is certain."""
        lam = float(self.lam[p])
        for _ in range(ROUNDS):
            v = self.adjoint(p, self._signed(p, point))
            largest = up(float(np.abs(v.value).max()) + v.error)
            if largest <= lam:
                return Dual(point, self._dual_value(p, point))
            point = point * (lam / largest * SHRINK)
        point = np.zeros_like(point)
        return Dual(point, self._dual_value(p, point))

    @cached_property
    def duals(self) -> list[Dual]:
        """The dual points of the witnesses."""
        return [self.dual(p, witness) for p, witness in enumerate(self.optimum)]

    def gap_bound(self, p: int, x: Array) -> float:
        return self._gap_bound(p, x) if self.level is FAST else float_above(self.gap_balls(p, x)[1])

    def _gap_bound(self, p: int, x: Array) -> float:
        """The smaller of the duality gaps to the witness's dual point and to that of x, in floats."""
        value = max(self.duals[p].value, self.dual(p, x).value)
        return max(0.0, up(self.objective(p, x)[1] - value))

    def gap_balls(self, p: int, x: Array) -> tuple[Any, Any]:
        """From above as ``gap_bound``; from below by F_p(x) - F_p(ŵ)."""
        value = self._objective_ball(p, x)
        duals = [self._dual_ball(p, self.duals[p].point), self._dual_ball(p, self.dual(p, x).point)]
        high = (value - duals[0].max(duals[1])).upper().max(ball(0.0))
        low = (value - self._objective_ball(p, self.optimum[p])).lower().max(ball(0.0))
        return low, high

    def _dual_ball(self, p: int, point: Array) -> Any:
        """The dual objective at a point that is feasible, in ball arithmetic."""
        total = self._dual_loss_ball(p, point)
        lam, l2 = ball(float(self.lam[p])), ball(float(self.l2[p]))
        if l2 > 0:
            zero = ball(0.0)
            for v in (arb_matrix(self.M[p]).transpose() * arb_matrix(self._signed(p, point))).entries():
                excess = (abs(v) - lam).max(zero)
                total -= excess * excess / (2 * l2)
        return total

    def _objective_ball(self, p: int, x: Array) -> Any:
        """F_p(x) in ball arithmetic."""
        entries = [ball(float(v)) for v in x]
        size = sum((abs(v) for v in entries), ball(0.0))
        square = sum((v * v for v in entries), ball(0.0))
        penalty = ball(float(self.lam[p])) * size + ball(float(self.l2[p])) * square / 2
        return self._loss_ball(p, (arb_matrix(self.M[p]) * arb_matrix(x)).entries()) + penalty

    @abstractmethod
    def _loss_ball(self, p: int, images: list[Any]) -> Any:
        """The loss at the entries of M_p x."""

    @abstractmethod
    def _dual_loss_ball(self, p: int, point: Array) -> Any:
        """The dual objective without its penalty term."""

    def _penalty(self, p: int, x: Array) -> Interval:
        """Enclosure of lam_p‖x‖₁ + (l2_p/2)‖x‖²."""
        value = float(self.lam[p]) * math.fsum(np.abs(x)) + 0.5 * float(self.l2[p]) * math.fsum(x * x)
        return max(0.0, down(value - TINY * self.columns, 6)), up(value + TINY * self.columns, 6)


class LassoBatch(PenalisedBatch):
    """The dual objective is ½‖Y‖² - ½‖Y - θ‖² over ‖Mᵀθ‖_∞ ≤ lam."""

    kind = "lasso-batch"
    dimensions: ClassVar = {"M": 3, "Y": 2, "lam": 1, "optimum": 2}

    def __init__(self, M: Array, Y: Array, lam: Array, optimum: Array, level: Level = FAST) -> None:
        super().__init__(M, lam, np.zeros_like(lam), optimum, level, Y=Y)
        self.Y = Y

    @property
    def strong_convexity(self) -> list[float]:
        # the smallest nonzero eigenvalue is that of MᵀM where M has full column rank: no column is zero, and as many rows as
        # there are columns are not (rows of zeros are left out of ``smallest``, and what remains may be wide)
        full = [bool(M.any(axis=0).all()) and int(M.any(axis=1).sum()) >= M.shape[1] for M in self.M]
        return [low if ok else 0.0 for ok, (low, _) in zip(full, self.smallest, strict=True)]

    def _residual_vector(self, p: int, x: Array) -> Approximation:
        """Y_p - M_p x."""
        return Approximation(self.Y[p]) - self.image(p, x)

    def _objective(self, p: int, x: Array) -> Interval:
        loss, penalty = _half_square(self._residual_vector(p, x)), self._penalty(p, x)
        return max(0.0, down(loss[0] + penalty[0])), up(loss[1] + penalty[1])

    def _residual(self, p: int, x: Array) -> Array:
        return self._residual_vector(p, x).value

    def _signed(self, p: int, point: Array) -> Array:
        return point

    def _dual_value(self, p: int, point: Array) -> float:
        # ⟨Y, θ⟩ - ½‖θ‖²; u per product, and fsum
        products, squares = self.Y[p] * point, point * point
        value = math.fsum(products) - 0.5 * math.fsum(squares)
        rounding = 4.0 * UNIT_ROUNDOFF * (math.fsum(np.abs(products)) + math.fsum(squares)) + TINY * self.rows
        return down(value - up(rounding, 4))

    def _gap_bound(self, p: int, x: Array) -> float:
        """½‖ρ-θ‖² + Σ(lam|x_i| - x_i(Mᵀθ)_i), ρ = Y - Mx: the duality gap in a form whose terms are not negative."""
        residual = self._residual_vector(p, x)
        bounds = [super()._gap_bound(p, x)]
        size = frobenius_upper(x)
        for point in (self.duals[p].point, self.dual(p, x).point):
            half = (residual - Approximation(point)).norm()
            v = self.adjoint(p, point)
            first, second = float(self.lam[p]) * np.abs(x), x * v.value
            value = math.fsum(first - second)
            rounding = (
                4.0 * UNIT_ROUNDOFF * (math.fsum(first) + math.fsum(np.abs(second)))
                + size * v.error
                + TINY * self.columns
            )
            bounds.append(max(0.0, up(up(0.5 * half * half, 2) + up(value + up(rounding, 6)))))
        return min(bounds)

    def _loss_ball(self, p: int, images: list[Any]) -> Any:
        differences = [v - ball(float(y)) for v, y in zip(images, self.Y[p], strict=True)]
        return sum((v * v for v in differences), ball(0.0)) / 2

    def _dual_loss_ball(self, p: int, point: Array) -> Any:
        pairs = [(ball(float(y)), ball(float(t))) for y, t in zip(self.Y[p], point, strict=True)]
        return sum((t * (y - t / 2) for y, t in pairs), ball(0.0))


class LogisticBatch(PenalisedBatch):
    """The dual objective is -Σ(θ_i log θ_i + (1-θ_i) log(1-θ_i)), θ in [0, 1]^b, ‖Mᵀ(s⊙θ)‖_∞ ≤ lam, minus the term of
    l2."""

    kind = "logistic-batch"
    dimensions: ClassVar = {"M": 3, "labels": 2, "lam": 1, "l2": 1, "optimum": 2}

    def __init__(self, M: Array, labels: Array, lam: Array, l2: Array, optimum: Array, level: Level = FAST) -> None:
        super().__init__(M, lam, l2, optimum, level, labels=labels)
        if not (np.abs(labels) == 1.0).all():
            raise FormatError("labels must be 1 or -1")
        self.labels = labels

    @property
    def smoothness(self) -> list[Interval]:
        return [(max(0.0, down(0.25 * low, 0)), up(0.25 * high, 0)) for low, high in super().smoothness]

    @property
    def strong_convexity(self) -> list[float]:
        return [0.0] * self.count

    def _margins(self, p: int, x: Array) -> Approximation:
        """s⊙(M_p x); the product with ±1 is exact."""
        image = self.image(p, x)
        return Approximation(self.labels[p] * image.value, image.error)

    def _objective(self, p: int, x: Array) -> Interval:
        margins = self._margins(p, x)
        terms = np.maximum(-margins.value, 0.0) + np.log1p(np.exp(-np.abs(margins.value)))
        loss = math.fsum(terms)
        # each term is 1-Lipschitz in its margin
        error = math.sqrt(self.rows) * margins.error + (2.0 * EXP_ERROR + 4.0 * UNIT_ROUNDOFF) * loss + TINY * self.rows
        low, high = self._penalty(p, x)
        error = up(error, 8)
        return max(0.0, down(down(loss - error) + low)), up(up(loss + error) + high)

    def _residual(self, p: int, x: Array) -> Array:
        margins = self._margins(p, x).value
        small = np.exp(-np.abs(margins))
        return np.clip(np.where(margins >= 0.0, small, 1.0) / (1.0 + small), 0.0, 1.0)

    def _signed(self, p: int, point: Array) -> Array:
        return self.labels[p] * point

    def _dual_value(self, p: int, point: Array) -> float:
        inner = point[(point > 0.0) & (point < 1.0)]
        terms = -inner * np.log(inner) - (1.0 - inner) * np.log1p(-inner)
        value = math.fsum(terms)  # of positive terms
        return down(value * (1.0 - 2.0 * EXP_ERROR) - TINY * self.rows, 8)

    def _loss_ball(self, p: int, images: list[Any]) -> Any:
        margins = [ball(float(s)) * v for s, v in zip(self.labels[p], images, strict=True)]
        return sum(((-t).exp().log1p() if t > 0 else t.exp().log1p() - t for t in margins), ball(0.0))

    def _dual_loss_ball(self, p: int, point: Array) -> Any:
        inner = [ball(float(t)) for t in point if 0.0 < t < 1.0]
        return -sum((t * t.log() + (1 - t) * (-t).log1p() for t in inner), ball(0.0))


def _half_square(v: Approximation) -> Interval:
    """Enclosure of ½‖v‖²."""
    low, high = around(v.bounds(), v.error)
    return max(0.0, down(0.5 * low * low, 2)), up(0.5 * high * high, 2)


def _smallest_singular_value(M: Array, level: Level) -> Interval:
    """Enclosure of the smallest nonzero singular value of M; rows and columns of zeros do not change it."""
    kept = M[M.any(axis=1)][:, M.any(axis=0)]
    if kept.size == 0:
        return 0.0, 0.0
    (low, high), norm = extreme_bounds(np.ascontiguousarray(kept if kept.shape[0] <= kept.shape[1] else kept.T), level)
    return low, high if low > 0.0 else norm[1]  # of deficient rank, it exceeds the last singular value
