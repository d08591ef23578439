"""Provable decrease: what a proposed point must reach to be accepted, with every rounding error on the safe side."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from .._problems.lasso import Lasso

LONGEST = 4.0
"""Of the multiples of a proposed direction that are tried."""


@dataclass(frozen=True)
class Point:
    """Iterates of LASSO problems with what is known of them.

    Attributes:
        x: (N, d).
        residual: Mx - Y (N, b), as computed.
        residual_error: bound (N,) of its Euclidean distance from that of x.
        value: F (N,) as computed.
        value_error: bound (N,) of |value - F(x)|.
    """

    x: Tensor
    residual: Tensor
    residual_error: Tensor
    value: Tensor
    value_error: Tensor

    def where(self, condition: Tensor, other: Point) -> Point:
        """This point in the problems where ``condition`` (N,), ``other`` elsewhere."""
        column = condition[:, None]
        return Point(
            torch.where(column, self.x, other.x),
            torch.where(column, self.residual, other.residual),
            torch.where(condition, self.residual_error, other.residual_error),
            torch.where(condition, self.value, other.value),
            torch.where(condition, self.value_error, other.value_error),
        )


class Rounding:
    """A-priori bounds of the errors of computed quantities, from |fl(Mv) - Mv| ≤ γ_d |M||v| and ‖|M||v|‖₂ ≤ c‖v‖₁, c the largest
    norm of a column (Higham, Accuracy and Stability of Numerical Algorithms, section 3.5).

    The constants are rounded up generously, by factors that also cover the rounding of the bounds themselves. ``underflow``
    bounds what products of small numbers lose beyond that, subnormal numbers flushed or not.
    """

    def __init__(self, problems: Lasso) -> None:
        self.problems = problems
        self.unit = float(torch.finfo(problems.M.dtype).eps)  # twice the unit roundoff
        # the conversion may round down
        self.smoothness = problems.smoothness.to(problems.M) * (1.0 + 2.0 * self.unit)
        self.sum_rows = (problems.rows + 8) * self.unit
        self.sum_columns = (problems.columns + 8) * self.unit
        self.column_norms = problems.M.norm(dim=1).amax(1)
        self.norm = self.smoothness.sqrt()  # of M
        self.absolute_norm = problems.M.flatten(1).norm(dim=1)  # of |M|
        self.tiny = 4.0 * problems.rows * problems.columns * float(torch.finfo(problems.M.dtype).tiny)
        self.underflow = self.tiny * (1.0 + self.absolute_norm)

    def select(self, index: Tensor) -> Rounding:
        """Of the problems at ``index``, without computing their smoothness again."""
        part = copy(self)
        part.problems = self.problems.select(index)
        for name in ("smoothness", "column_norms", "norm", "absolute_norm", "underflow"):
            setattr(part, name, getattr(self, name)[index])
        return part

    def start(self, x: Tensor) -> Point:
        """The point x (N, d), by one product; none where x = 0."""
        problems = self.problems
        image = problems.forward(x) if bool(x.any()) else torch.zeros_like(problems.Y)
        return self.imaged(x, image)

    def imaged(self, x: Tensor, image: Tensor) -> Point:
        """The point x (N, d) with ``image`` (N, b) = Mx as computed."""
        residual = image - self.problems.Y
        error = self.sum_columns * self.column_norms * x.abs().sum(1) + self.unit * residual.norm(dim=1)
        return self.point(x, residual, error + self.underflow)

    def point(self, x: Tensor, residual: Tensor, residual_error: Tensor) -> Point:
        """x with F and the bound of its error, from a residual and the bound of its own error."""
        loss = 0.5 * residual.square().sum(1)
        penalty = self.problems.penalty(x)
        value = loss + penalty
        error = (
            residual_error * (residual.norm(dim=1) + residual_error)
            + self.sum_rows * loss
            + (self.sum_columns + self.unit) * penalty
            + self.unit * value
            + self.tiny
        )
        return Point(x, residual, residual_error, value, error)

    def move(self, point: Point, direction: Tensor, image: Tensor, length: Tensor) -> Point:
        """``point`` + ``length`` (N,) · ``direction`` (N, d) with ``image`` (N, b) = M ``direction`` as computed; no product."""
        step, change = length[:, None] * direction, length[:, None] * image
        x, residual = point.x + step, point.residual + change
        error = (
            point.residual_error
            + (self.sum_columns + 2.0 * self.unit) * self.column_norms * step.abs().sum(1)
            + self.unit * (self.column_norms * x.abs().sum(1) + 2.0 * change.norm(dim=1) + residual.norm(dim=1))
            + self.underflow
        )
        return self.point(x, residual, error)

    def pullback_error(self, vector: Tensor, error: Tensor) -> Tensor:
        """Bound (N,) of ‖fl(Mᵀ v̂) - Mᵀ v‖ for ``vector`` v̂ (N, b) with ‖v̂ - v‖ ≤ ``error``."""
        return self.norm * error + self.sum_rows * self.absolute_norm * vector.norm(dim=1) + self.underflow


def proximal_point(rounding: Rounding, x: Tensor, gradient: Tensor) -> Tensor:
    """The proximal gradient step of length 1/β_p from x (N, d)."""
    step = (1.0 / rounding.smoothness)[:, None].expand_as(x)
    return rounding.problems.prox(x - step * gradient, step)


def required_decrease(rounding: Rounding, x: Tensor, gradient: Tensor, gradient_error: Tensor, safe: Tensor) -> Tensor:
    """Upper bound (N,) of the model decrease Q at x of the safe proximal step, for P = 1.

    Q = -min_y {⟨g, y-x⟩ + (β/2)‖y-x‖² + h(y) - h(x)} is convex in g with the slopes x - y, and y is (1/β)-Lipschitz in g; so a
    gradient with error ε changes Q by at most ε(‖d‖ + ε/β). The computed minimiser differs from the exact one by a few units
    in the last place of its terms, which costs at most 2λ + β/2 times that.

    Args:
        rounding: of the problems.
        x: (N, d).
        gradient: ∇f(x) (N, d) as computed.
        gradient_error: bound (N,) of its Euclidean error.
        safe: ``proximal_point`` (N, d).
    """
    problems, unit = rounding.problems, rounding.unit
    beta, lam = rounding.smoothness[:, None], problems.lam[:, None]
    d = safe - x
    change = lam * (safe.abs() - x.abs())
    model = (gradient * d + 0.5 * beta * d.square() + change).sum(1)
    magnitudes = (gradient * d).abs() + 0.5 * beta * d.square() + lam * (safe.abs() + x.abs())
    misplaced = 8.0 * unit * (x.abs() + (gradient.abs() + lam) / beta)
    allowance = (
        rounding.sum_columns * magnitudes.sum(1)
        + (misplaced * (2.0 * lam + beta * misplaced)).sum(1)
        + gradient_error * (d.norm(dim=1) + 2.0 * gradient_error / beta.squeeze(1))
        + rounding.tiny * (1.0 + beta + lam).squeeze(1)
    )
    return (-model).clamp(min=0.0) + 2.0 * allowance


def accepted(new: Point, old: Point, decrease: Tensor) -> Tensor:
    """Where F(new) ≤ F(old) - decrease is proved (N,), in spite of rounding; the rule of the safeguard with ϑ = 1.

    Acceptance is proved, rejection is not: a point that is lower by less than the rounding errors is rejected, and so is every
    one where something overflowed.
    """
    unit = float(torch.finfo(new.value.dtype).eps)
    margin = new.value_error + old.value_error + decrease
    left = new.value + margin * (1.0 + 4.0 * unit) + 4.0 * unit * (new.value.abs() + old.value.abs())
    return left.isfinite() & (left <= old.value)


def line_minimum(problems: Lasso, point: Point, direction: Tensor, image: Tensor) -> Tensor:
    """The length (N,) in [0, ``LONGEST``] with the smallest F along ``direction`` (N, d) of ``image`` (N, b); no product.

    F is a parabola plus a convex piecewise linear function there. Its slope is followed from kink to kink, where a coordinate
    changes its sign, until it is no longer negative. Directions that are not finite have length 0.
    """
    x, lam = point.x, problems.lam[:, None]
    curvature, slope = image.square().sum(1, keepdim=True), (point.residual * image).sum(1, keepdim=True)
    size = direction.abs()
    slope = slope + lam * torch.where(x == 0.0, size, x.sign() * direction).sum(1, keepdim=True)
    kinks = torch.where(x * direction < 0.0, -x / direction, torch.inf)
    kinks, order = kinks.sort(dim=1)
    jumps = (2.0 * lam * size.gather(1, order)).cumsum(1)
    # slopes without the parabola's part, before each kink and after the last, which counts as a kink at infinity
    before = slope + torch.cat([torch.zeros_like(slope), jumps], dim=1)
    stops = torch.cat([before[:, 1:] + kinks * curvature >= 0.0, torch.ones_like(slope, dtype=torch.bool)], dim=1)
    kinks = torch.cat([kinks, torch.full_like(slope, torch.inf)], dim=1)
    first = stops.int().argmax(1, keepdim=True)
    inside = -before.gather(1, first) / curvature
    length = torch.minimum(kinks.gather(1, first), inside).squeeze(1)
    return length.nan_to_num(nan=0.0, posinf=LONGEST, neginf=0.0).clamp(0.0, LONGEST)
