"""One line search along the joint curve of all parameters of an optimiser, through its closure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .cayley_steps import components, inner, move, reach, slope, squared_norm, velocity
from .matrices import placed, tall_matrix
from .nonmonotone import SHORTEN, TRIALS, NonmonotoneSearch


def descent_gradient(parameter: Tensor, group: dict[str, Any]) -> Tensor:
    """The gradient of what the group minimises; the parameter must have one.

    Raises:
        RuntimeError: it is sparse.
    """
    gradient = parameter.grad
    assert gradient is not None  # the callers pass over parameters without gradient
    if gradient.is_sparse:
        raise RuntimeError(
            f"the gradient of a parameter of shape {tuple(parameter.shape)} is sparse; orthonormal steps need dense gradients"
        )
    return -gradient if group["maximize"] else gradient


@dataclass(frozen=True)
class _Curve:
    """Where one parameter is, and where it goes: U(t·lr) on the manifold, p − t·lr·g outside."""

    parameter: Tensor
    group: dict[str, Any]
    start: Tensor
    """a copy of the parameter, tall if orthonormal"""
    velocity: Tensor
    """minus the derivative of the curve at 0, for lr = 1"""
    A: Tensor
    N: Tensor
    """components of P; of an ordinary parameter N is the gradient and A is empty"""

    @classmethod
    def at(cls, parameter: Tensor, group: dict[str, Any]) -> _Curve:
        """The curve from where the parameter is now, along the gradient it holds."""
        gradient = descent_gradient(parameter, group)
        if not group["orthonormal"]:
            return cls(parameter, group, parameter.clone(), gradient, gradient.new_empty(0), gradient)
        start = tall_matrix(parameter.clone(), group["flatten"])
        A, N = components(start, tall_matrix(gradient, group["flatten"]))
        return cls(parameter, group, start, velocity(start, A, N), A, N)

    @property
    def lr(self) -> float:
        """Rate of the group: its share of the common length."""
        return float(self.group["lr"])

    @property
    def slope(self) -> float:
        """Rate at which the loss falls at t = 0."""
        return self.lr * slope(self.A, self.N)

    @property
    def longest(self) -> float:
        """The largest common length that the step formula takes."""
        if not self.group["orthonormal"]:
            return math.inf
        norm = self.lr * math.sqrt(2.0 * slope(self.A, self.N))
        return reach(self.start.dtype, self.group["inverse"]) / norm if norm > 0.0 else math.inf

    def move(self, length: float) -> None:
        """Put the parameter at the point of the curve with that common length."""
        if length == 0.0:
            self._put(self.start)
        elif self.group["orthonormal"]:
            self._put(move(self.group["inverse"], self.start, self.A, self.N, length * self.lr))
        else:
            self._put(self.start - (length * self.lr) * self.N)

    def _put(self, value: Tensor) -> None:
        self.parameter.copy_(placed(value, self.parameter, self.group["orthonormal"] and self.group["flatten"]))


class SearchedStep:
    """One step of ``CayleySGD(line_search="nonmonotone")``.

    The state of the search is kept beside the parameters: for each its last point and velocity, and with the first one the
    reference value.
    """

    def __init__(
        self, groups: list[dict[str, Any]], state: dict[Tensor, dict[str, Any]], closure: Callable[[], Any]
    ) -> None:
        self.moving = [(p, group) for group in groups for p in group["params"] if p.grad is not None]
        self.state = state
        self.closure = closure
        senses = {group["maximize"] for group in groups}
        if len(senses) > 1:
            raise ValueError(
                "maximize differs between the groups; a line search compares one loss: set it for all or for none"
            )
        self.sign = -1.0 if senses == {True} else 1.0

    def run(self, loss: Any) -> float:
        """Move all parameters, and return the common length t; 0 and no motion where no trial is accepted.

        Raises:
            FloatingPointError: the loss or a gradient at the start is not finite.
            BaseException: whatever the closure raises, after the parameters are back where they were.
        """
        if not self.moving:
            return 0.0
        curves = self._curves()
        value = self._value(loss)
        decrease = math.fsum(curve.slope for curve in curves)
        if not math.isfinite(value) or not math.isfinite(decrease):
            raise FloatingPointError(
                "the loss or its gradient at the start of the step is not finite; nothing has moved"
            )
        if decrease == 0.0:
            return 0.0
        search = self._search(value, curves)
        length = min(search.first_trial(*self._changes(curves), 1.0), *(curve.longest for curve in curves))
        for _ in range(TRIALS):
            trial = self._trial(curves, length)
            if search.accepts(trial, length, decrease):
                search.accept(trial)
                self._remember(curves, search)
                return length
            length *= SHORTEN
        for curve in curves:
            curve.move(0.0)
            self.state[curve.parameter].clear()
        return 0.0

    def _value(self, loss: Any) -> float:
        return self.sign * (loss.item() if isinstance(loss, Tensor) else float(loss))

    def _curves(self) -> list[_Curve]:
        return [_Curve.at(parameter, group) for parameter, group in self.moving]

    def _trial(self, curves: list[_Curve], length: float) -> float:
        """The loss at that length, NaN where a gradient is not finite; the parameters stay there."""
        try:
            for curve in curves:
                curve.move(length)
            with torch.enable_grad():
                loss = self.closure()
        except BaseException:  # an interrupt too must not leave the parameters at a rejected point
            for curve in curves:
                curve.move(0.0)
            raise
        finite = all(bool(torch.isfinite(p.grad).all()) for p, _ in self.moving if p.grad is not None)
        return self._value(loss) if finite else math.nan

    def _search(self, value: float, curves: list[_Curve]) -> NonmonotoneSearch:
        unit = max(torch.finfo(curve.start.dtype).eps for curve in curves)
        stored = self.state[curves[0].parameter].get("search")
        if stored is None:
            return NonmonotoneSearch(value, unit)
        # a closure that changed (a new batch) may start above the old reference
        return NonmonotoneSearch(max(value, stored["reference"]), unit, stored["weight"], stored["accepted"])

    def _changes(self, curves: list[_Curve]) -> tuple[float, float, float]:
        """⟨s,s⟩, ⟨s,y⟩, ⟨y,y⟩ of the last step, in the metric in which the rates lr are 1; zeros if a parameter is new."""
        ss = sy = yy = 0.0
        for curve in curves:
            if curve.lr == 0.0:  # a scheduler may set it; the parameter rests
                continue
            stored = self.state[curve.parameter]
            if "point" not in stored:
                return 0.0, 0.0, 0.0
            s, y = curve.start - stored["point"], curve.velocity - stored["velocity"]
            ss += squared_norm(s) / curve.lr
            sy += inner(s, y)
            yy += squared_norm(y) * curve.lr
        return ss, sy, yy

    def _remember(self, curves: list[_Curve], search: NonmonotoneSearch) -> None:
        for curve in curves:
            self.state[curve.parameter].update(point=curve.start, velocity=curve.velocity)
        record = {"reference": search.reference, "weight": search.weight, "accepted": search.accepted}
        self.state[curves[0].parameter]["search"] = record
