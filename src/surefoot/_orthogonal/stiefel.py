"""Minimisation over matrices with orthonormal columns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import torch
from torch import Tensor

from .._core.brief import brief
from .._core.validate import kind_of
from .cayley_steps import (
    components,
    corrects_itself,
    inner,
    move,
    polar_correction,
    reach,
    squared_norm,
    tall,
    velocity,
)
from .feasible import require_orthonormal
from .nonmonotone import SHORTEN, TRIALS, NonmonotoneSearch

Objective = Callable[[Tensor], Tensor]
PATIENCE = 50
"""Steps without a lower value, rounding aside, or a smaller gradient after which the search has stalled."""


class StiefelStatus(StrEnum):
    """Which stopping criterion fired."""

    GRADIENT = "gradient"
    TARGET = "target"
    STALLED = "stalled"
    NON_FINITE = "non_finite"
    MAX_ITERATIONS = "max_iterations"

    @property
    def converged(self) -> bool:
        """Whether the search reached what it was asked for."""
        return self in (StiefelStatus.GRADIENT, StiefelStatus.TARGET)

    @property
    def text(self) -> str:
        """What happened and what to do."""
        return {
            "gradient": "the gradient norm fell to gradient_tolerance times the largest Euclidean gradient norm seen",
            "target": "the value reached target",
            "stalled": "steps along the gradient no longer lower the value: it is at rounding level, or the gradient is not "
            "the one of the value; loosen gradient_tolerance, use float64, or check the objective with torch.autograd.gradcheck",
            "non_finite": "every step tried had a non-finite value or gradient; U is the last good point: keep the objective "
            "finite around it",
            "max_iterations": "the iteration limit came first; raise max_iterations or start from U",
        }[self.value]


class StiefelTrace(NamedTuple):
    """One entry for each point visited, the start first."""

    values: Tensor
    """(iterations + 1,) f, float64"""
    gradient_norms: Tensor
    """(iterations + 1,) ‖PU‖_F, float64"""
    step_lengths: Tensor
    """(iterations,) t, float64"""

    __repr__ = brief


@dataclass(frozen=True)
class StiefelResult:
    """The best point found, and how the search ended."""

    U: Tensor
    """of the shape and dtype of the start, orthonormal to rounding"""
    value: float
    gradient_norm: float
    """‖PU‖_F at U, P = GUᴴ − UGᴴ"""
    iterations: int
    evaluations: int
    """of f with its gradient"""
    status: StiefelStatus
    trace: StiefelTrace

    __repr__ = brief

    @property
    def converged(self) -> bool:
        """Whether the search reached what it was asked for."""
        return self.status.converged


class _Point(NamedTuple):
    U: Tensor
    value: float
    A: Tensor
    N: Tensor
    gradient: Tensor
    """Euclidean gradient of f"""
    velocity: Tensor
    """PU, minus the velocity of the step"""
    gradient_norm: float
    """‖PU‖_F"""
    slope: float
    """½‖P‖²_F, the rate at which f falls at length 0"""
    scale: float
    """‖∇f‖_F"""

    @property
    def finite(self) -> bool:
        return math.isfinite(self.value) and math.isfinite(self.gradient_norm) and math.isfinite(self.scale)


def minimize_stiefel(
    f: Objective,
    U0: Tensor,
    *,
    gradient_tolerance: float | None = None,
    target: float | None = None,
    max_iterations: int = 1000,
) -> StiefelResult:
    """A local minimum of f subject to UᴴU = I (to UUᴴ = I for wide U), from U0.

    Gradient descent along Cayley curves (equation (6)) with Barzilai–Borwein step lengths and a nonmonotone line search: values
    may rise for a few steps, their weighted mean may not. Each step costs one r×r solve and about one evaluation of f with its
    gradient; a Newton–Schulz step keeps the point orthonormal to rounding. Deterministic. The constraint set is not convex: the
    result is a local minimum at best, and for square U of the sign of det U0.

    Args:
        f: maps a tensor like U0 to a real scalar, differentiable by autograd. A batch (..., m, r) is one joint problem.
        U0: (..., m, r), float32, float64 or complex, orthonormal columns (rows if m < r); it is not changed.
        gradient_tolerance: stop when ‖PU‖_F ≤ gradient_tolerance · max ‖∇f‖_F over the points so far; by default the square
            root of the rounding unit: 1.5e-8 in double, 3.5e-4 in single precision.
        target: stop when f ≤ target.
        max_iterations: limit of accepted steps.

    Returns:
        ``StiefelResult``. Where the gradient criterion did not fire, ``U`` is the point of lowest value.

    Raises:
        TypeError: U0 or f(U) has the wrong type or dtype.
        ValueError: U0 is not orthonormal, non-finite or less than two-dimensional; f(U0) or its gradient is not finite; f(U) is
            no scalar or does not depend on U; an option is out of range.

    Source:
        Equations (5) and (6) of the learning-based matrix inverse paper; step lengths and search: Wen and Yin (2013).

    Example:
        >>> A = torch.diag(torch.arange(1.0, 7.0, dtype=torch.float64))
        >>> U0 = torch.linalg.qr(torch.randn(6, 2, dtype=torch.float64)).Q
        >>> result = sf.optim.minimize_stiefel(lambda U: -(U.T @ A @ U).trace(), U0)
        >>> round(result.value, 6), result.converged  # minus the sum of the two largest eigenvalues
        (-11.0, True)
    """
    start = _start(U0)
    unit, longest = torch.finfo(start.dtype).eps, reach(start.dtype)
    tolerance, goal = _options(unit, gradient_tolerance, target, max_iterations)
    adjoint = U0.shape[-2] < U0.shape[-1]
    point = _evaluate(f, start, adjoint)
    _require_usable(point)
    best, scale, evaluations = point, point.scale, 1
    search = NonmonotoneSearch(point.value, unit)
    values, norms, lengths = [point.value], [point.gradient_norm], []
    ss = sy = yy = 0.0
    smallest, waited = point.gradient_norm, 0
    while True:
        if point.gradient_norm <= tolerance * scale:
            best, status = point, StiefelStatus.GRADIENT
            break
        if point.value <= goal:
            best, status = point, StiefelStatus.TARGET
            break
        if len(lengths) == max_iterations:
            status = StiefelStatus.MAX_ITERATIONS
            break
        if waited == PATIENCE:
            status = StiefelStatus.STALLED
            break
        length = search.first_trial(ss, sy, yy, 1.0 / point.gradient_norm)
        length = min(length, longest / math.sqrt(2.0 * point.slope))
        finite = False
        for _ in range(TRIALS):
            short = corrects_itself(length * math.sqrt(2.0 * point.slope), length * point.scale)
            trial = _evaluate(f, move("reduced", point.U, point.A, point.N, length, correct=not short), adjoint)
            evaluations += 1
            finite |= trial.finite
            if trial.finite and search.accepts(trial.value, length, point.slope):
                break
            length *= SHORTEN
        else:
            status = StiefelStatus.STALLED if finite else StiefelStatus.NON_FINITE
            break
        s, y = trial.U - point.U, trial.velocity - point.velocity
        ss, sy, yy = squared_norm(s), inner(s, y), squared_norm(y)
        search.accept(trial.value)
        point = trial
        scale = max(scale, point.scale)
        values.append(point.value)
        norms.append(point.gradient_norm)
        lengths.append(length)
        improved = search.below(point.value, best.value) or point.gradient_norm < smallest
        waited = 0 if improved else waited + 1
        smallest = min(smallest, point.gradient_norm)
        if point.value < best.value:
            best = point
    return StiefelResult(
        U=(best.U.mH if adjoint else best.U).contiguous(),
        value=best.value,
        gradient_norm=best.gradient_norm,
        iterations=len(lengths),
        evaluations=evaluations,
        status=status,
        trace=StiefelTrace(*(torch.tensor(column, dtype=torch.float64) for column in (values, norms, lengths))),
    )


def _options(
    unit: float, gradient_tolerance: float | None, target: float | None, max_iterations: int
) -> tuple[float, float]:
    """The relative gradient norm and the value at which to stop."""
    tolerance = math.sqrt(unit) if gradient_tolerance is None else float(gradient_tolerance)
    if not 0.0 <= tolerance < 1.0:
        raise ValueError(f"gradient_tolerance is {gradient_tolerance!r}; it must be at least 0 and below 1")
    if isinstance(max_iterations, bool) or not isinstance(max_iterations, int) or max_iterations < 0:
        raise ValueError(f"max_iterations is {max_iterations!r}; it must be an integer of at least 0")
    if target is not None and math.isnan(target):
        raise ValueError("target is NaN; pass the value at which to stop, or None")
    return tolerance, -math.inf if target is None else float(target)


def _start(U0: Tensor) -> Tensor:
    if not isinstance(U0, Tensor):
        raise TypeError(f"U0 is {kind_of(U0)}; pass a torch.Tensor")
    require_orthonormal("U0", U0)
    return polar_correction(tall(U0.detach()).contiguous())


def _require_usable(point: _Point) -> None:
    """Raise unless the first point is finite, and squares of its gradient neither overflow nor underflow on the way down."""
    if not math.isfinite(point.value):
        raise ValueError(f"f(U0) is {point.value}; start where the objective is finite")
    limits = torch.finfo(point.U.dtype)
    largest = float(point.gradient.abs().max()) if point.gradient.numel() else 0.0
    if not math.isfinite(largest):
        raise ValueError("the gradient of f at U0 is not finite; start where the objective is differentiable")
    if largest != 0.0 and not math.sqrt(limits.tiny / limits.eps) <= largest <= 1e-3 * math.sqrt(limits.max):
        raise ValueError(
            f"the gradient of f at U0 has entries up to {largest:.3g}, whose squares are out of range; scale f"
        )


def _evaluate(f: Objective, U: Tensor, adjoint: bool) -> _Point:
    """f and its gradient at U, which is passed to f as it was given (``adjoint``: wide)."""
    variable = (U.mH.resolve_conj() if adjoint else U).detach().requires_grad_()
    with torch.enable_grad():
        value = f(variable)
    if not isinstance(value, Tensor):
        raise TypeError(f"f(U) is {kind_of(value)}; it must be a torch.Tensor computed from U")
    if value.numel() != 1 or value.is_complex():
        kind = "complex " if value.is_complex() else ""
        raise ValueError(f"f(U) has {kind}shape {tuple(value.shape)}; it must be one real number: sum over the batch")
    if not value.requires_grad:
        raise ValueError(
            "f(U) does not depend on U through autograd; use torch operations on U, without detach or item"
        )
    (gradient,) = torch.autograd.grad(value.reshape(()), variable)
    G = gradient.mH if adjoint else gradient
    A, N = components(U, G)
    squares_A, squares_N = squared_norm(A), squared_norm(N)
    return _Point(
        U=U,
        value=value.item(),
        A=A,
        N=N,
        gradient=G,
        velocity=velocity(U, A, N),
        gradient_norm=math.sqrt(squares_A + squares_N),
        slope=0.5 * squares_A + squares_N,
        scale=math.sqrt(squared_norm(G)),
    )
