"""One logistic regression in float64: points with what is proved of them in spite of rounding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import kernels

UNIT = 2.0**-52
"""Twice the unit roundoff, so that (n + 8) UNIT is far above γ_n."""
DRIFT = 64.0
"""How many times the error of a fresh product an image may have."""
Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Point:
    """An iterate with what is known of it.

    Attributes:
        x: (d,).
        image: Mx (b,) as computed.
        image_error: bound of ‖image - Mx‖.
        slopes: first derivatives of the loss at ``image`` (b,).
        curvatures: second ones (b,).
        value: F as computed.
        value_error: bound of |value - F(x)|.
    """

    x: Array
    image: Array
    image_error: float
    slopes: Array
    curvatures: Array
    value: float
    value_error: float


class Instance:
    """min Σ log(1 + exp(-s_i⟨m_i, x⟩)) + λ‖x‖₁ + ½μ‖x‖², with bounds of the errors of what is computed.

    The bounds follow from |fl(Mv) - Mv| ≤ γ_n|M||v| for v with n non-zeros (Higham, Accuracy and Stability of Numerical
    Algorithms, section 3.5), for any order of the sums; and from elementary functions that are right to 4 units in the last
    place. The constants are rounded up generously, by factors that also cover the rounding of the bounds themselves.

    Args:
        M: (b, d), contiguous.
        labels: s (b,), each +1 or -1.
        lam: λ ≥ 0.
        l2: μ ≥ 0.

    Attributes:
        smoothness: ‖M‖_F²/4, which is at least the Lipschitz constant of the gradient, and takes no decomposition of M.
        products: multiplications with entries of M so far, as a share of their number: one product with M counts 1.
        tiny: bound of what products of small numbers lose beyond their relative errors, subnormal numbers flushed or not.
    """

    def __init__(self, M: Array, labels: Array, lam: float, l2: float) -> None:
        self.M, self.labels, self.lam, self.l2 = M, labels, lam, l2
        self.rows, self.columns = M.shape
        columns = np.zeros(self.columns)
        kernels.squares(M, columns)
        self._sum_rows, self._sum_columns = (self.rows + 16) * UNIT, (self.columns + 16) * UNIT
        square = float(columns.sum()) * (1.0 + self._sum_rows + self._sum_columns)
        self._norm = math.sqrt(square)
        self.column_norms = np.sqrt(columns) * (1.0 + self._sum_rows)
        self.smoothness = 0.25 * square
        self.tiny = 4.0 * self.rows * self.columns * float(np.finfo(np.float64).tiny) * (1.0 + self._norm)
        self.products = 0.0

    def image(self, x: Array) -> Array:
        """Mx, by one product."""
        self.products += 1.0
        return self.M @ x

    def start(self, x: Array) -> Point:
        """The point x, by one product; none where x = 0."""
        if not x.any():
            return self._point(x, np.zeros(self.rows), 0.0)
        return self._point(x, self.image(x), self._image_error(x))

    def moved(self, point: Point, x: Array, change: Array) -> Point:
        """The point x with ``change`` (b,) = M(x - point.x) as computed; no product."""
        step = x - point.x
        image = point.image + change
        error = point.image_error + self._image_error(step) + UNIT * math.sqrt(float(image @ image))
        return self._point(x, image, error)

    def refreshed(self, point: Point) -> Point:
        """The point with its image by a new product, if what was large on the way made the one that it has much worse."""
        return self.start(point.x) if point.image_error > DRIFT * self._image_error(point.x) else point

    def _image_error(self, x: Array) -> float:
        """Bound of ‖fl(Mx) - Mx‖, for an x with its own relative rounding: γ ‖|M||x|‖."""
        return (self._sum_columns + UNIT) * float(np.abs(x) @ self.column_norms) + self.tiny

    def _point(self, x: Array, image: Array, image_error: float) -> Point:
        slopes, curvatures = np.empty(self.rows), np.empty(self.rows)
        loss = kernels.losses(self.labels, image, slopes, curvatures)
        penalty = 0.5 * self.l2 * float(x @ x)
        if self.lam > 0.0:
            penalty += self.lam * float(np.abs(x).sum())
        # |ℓ(z + δ) - ℓ(z)| ≤ ⟨|ℓ'(z)|, |δ|⟩ + ‖δ‖²/8
        size = math.sqrt(float(slopes @ slopes))
        error = (
            image_error * (size * (1.0 + self._sum_rows) + image_error)
            + self._sum_rows * loss
            + self._sum_columns * penalty
            + UNIT * (loss + penalty)
            + self.tiny * (1.0 + self.lam + self.l2)
        )
        return Point(x, image, image_error, slopes, curvatures, loss + penalty, error)

    def proved(self, old: Point, new: Point, change: Array, wanted: float) -> float:
        """F(old) - F(new) is at least this, in spite of rounding.

        By the values and their errors; where that is less than ``wanted``, by the difference term by term, whose error falls with
        the step: log(1 + exp(m + δ)) - log(1 + exp(m)) = log(1 + θ(exp(δ) - 1)) for θ = 1/(1 + exp(-m)).
        """
        margin = (new.value_error + old.value_error) * (1.0 + 4.0 * UNIT)
        known = old.value - new.value - margin - 4.0 * UNIT * (abs(new.value) + abs(old.value))
        # with images that are far off, the derivatives at them say nothing of a difference
        if known >= wanted or not known > -math.inf or not new.image_error <= 0.25:
            return known
        loss, magnitude, size = kernels.loss_change(old.slopes, change)
        penalty, more = kernels.penalty_change(old.x, new.x, self.lam, self.l2)
        error = (
            4.0 * self._sum_rows * magnitude
            + self._sum_columns * more
            # a term moves by |term| at most, relative to 1, with m; and by θ(new) with δ
            + 3.0 * size * old.image_error
            + self._image_error(new.x - old.x) * math.sqrt(float(new.slopes @ new.slopes)) * 2.0
            + self.tiny * (1.0 + self.lam + self.l2)
        )
        sharp = -(loss + penalty) - error * (1.0 + 8.0 * UNIT) - UNIT * (abs(loss) + abs(penalty))
        return max(known, sharp)

    def gradient(self, point: Point) -> tuple[Array, float]:
        """∇f at a point, by one product, and ε, so that its entries are wrong by ε‖m_j‖ + tiny at most, m_j the columns of M."""
        self.products += 1.0
        size = math.sqrt(float(point.slopes @ point.slopes))
        return point.slopes @ self.M, 0.25 * point.image_error + self._sum_rows * size

    def gap(self, point: Point, gradient: Array) -> float:
        """Upper bound of F(x) - F*: the duality gap (docs/theorems/step-sizes.md, section 6), its rounding allowed for."""
        size = math.sqrt(float(point.slopes @ point.slopes))
        # ∇_j f is wrong by slack ‖m_j‖ + tiny, the rounding of the product alone: every θ is a dual point
        slack = self._sum_rows * size
        c = 1.0
        if self.l2 == 0.0:
            c = min(c, self.lam / float((np.abs(gradient) + slack * self.column_norms + self.tiny).max()))
        most = point.value + point.value_error  # F* >= 0
        if c == 0.0:
            return most
        gap, magnitude = kernels.duality_gap(
            self.labels, point.image, point.slopes, point.x, gradient, c, self.lam, self.l2
        )
        # the gradient moves its terms by |x| or, of the square, by |off|/μ; the image those of the rows by (1 - c)θ
        sizes = np.abs(point.x)
        error = (
            (self._sum_rows + self._sum_columns) * (gap + magnitude)
            + slack * float(sizes @ self.column_norms)
            + self.tiny * float(sizes.sum())
            + point.image_error * ((1.0 - c) * size + point.image_error)
        )
        if self.l2 > 0.0:
            spread = slack * self._norm + self.tiny * math.sqrt(self.columns)
            error += spread * (math.sqrt(2.0 * max(gap, 0.0) / self.l2) + spread / self.l2)
        return min(most, gap + 2.0 * error + self.tiny)
