"""Where the logistic solver proposes to go: coordinate descent on a working set, Newton's method on a support, L-BFGS."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from . import kernels
from .instance import Array, Instance, Point

LARGEST = 2000
"""Unknowns of a linear system that is solved directly."""
FRESH, SWEEPS, SHARE = 16, 20, 0.1
"""See ``Sparse``."""


class Proposals(Protocol):
    """What proposes points; it may remember what it saw."""

    def step(self, point: Point, gradient: Array) -> Array | None:
        """d (d,), so that x + d is proposed; ``None`` for no proposal."""
        ...

    def image(self, step: Array) -> Array:
        """M times a proposed step, or a multiple of it."""
        ...

    def rejected(self) -> None:
        """The last proposal was rejected."""
        ...


def proposals(instance: Instance, memory: int) -> Proposals:
    """Those that fit the penalty."""
    return Sparse(instance, FRESH, SWEEPS, SHARE) if instance.lam > 0.0 else Smooth(instance, memory)


class Smooth:
    """For λ = 0: L-BFGS; Newton's method by a factorisation, on min(b, d) unknowns, once L-BFGS has taken half as many steps as
    there are unknowns, about when the work of both is the same.

    Args:
        instance: with λ = 0, so that μ > 0.
        memory: pairs that L-BFGS keeps.
    """

    def __init__(self, instance: Instance, memory: int) -> None:
        self._instance = instance
        self._unknowns = min(instance.rows, instance.columns)
        self._patience = 0.5 * self._unknowns if self._unknowns <= LARGEST else np.inf
        self._gram: Array | None = None
        self._steps, self._changes = np.empty((2, memory, instance.columns))
        self._products = np.empty(memory)
        self._newest, self._pairs, self._taken = -1, 0, 0
        self._last: tuple[Array, Array] | None = None
        self._first: tuple[Array, Array] | None = None

    def step(self, point: Point, gradient: Array) -> Array | None:
        """-H ∇F."""
        slope = gradient + self._instance.l2 * point.x
        self._remember(point.x, slope)
        if self._taken >= self._patience:
            return self._newton(point, slope)
        self._taken += 1
        return self._quasi_newton(point, slope)

    def image(self, step: Array) -> Array:
        """By the whole of M, but for the first step from 0, where it is known."""
        first, self._first = self._first, None
        if first is not None and np.array_equal(first[0], step):
            return first[1]
        return self._instance.image(step)

    def rejected(self) -> None:
        """A factorisation of a matrix that is too ill-conditioned is not tried again."""
        if self._taken >= self._patience:
            self._patience = np.inf

    def _remember(self, x: Array, slope: Array) -> None:
        if self._last is not None:
            step, change = x - self._last[0], slope - self._last[1]
            product = float(step @ change)
            if product > 0.0:
                self._newest = (self._newest + 1) % len(self._products)
                self._pairs = min(self._pairs + 1, len(self._products))
                self._steps[self._newest], self._changes[self._newest] = step, change
                self._products[self._newest] = product
        self._last = x, slope

    def _quasi_newton(self, point: Point, slope: Array) -> Array | None:
        if self._pairs:
            return kernels.two_loops(self._steps, self._changes, self._products, self._newest, self._pairs, slope)
        # the first step is the minimum of the quadratic model along -∇F
        image = self._instance.image(slope)
        square = float(slope @ slope)
        bend = float(point.curvatures @ (image * image)) + self._instance.l2 * square
        if bend == 0.0:  # by underflow
            return None
        length = -square / bend
        first = length * slope
        if abs(length) <= 1.0:  # what was lost by underflow does not grow
            self._first = first, length * image
        return first

    def _newton(self, point: Point, slope: Array) -> Array | None:
        """-(MᵀDM + μI)⁻¹ ∇F; for b < d with (MᵀDM + μI)⁻¹ = (I - Mᵀ√D (μI + √D MMᵀ √D)⁻¹ √D M)/μ."""
        problem, roots = self._instance, np.sqrt(point.curvatures)
        if problem.columns <= problem.rows:
            scaled = roots[:, None] * problem.M
            problem.products += 0.5 * problem.columns
            return _solved(scaled.T @ scaled, problem.l2, -slope)
        if self._gram is None:
            self._gram = problem.M @ problem.M.T
            problem.products += 0.5 * problem.rows
        problem.products += 2.0
        inner = _solved(roots[:, None] * self._gram * roots, problem.l2, roots * (problem.M @ slope))
        return None if inner is None else ((roots * inner) @ problem.M - slope) / problem.l2


class Sparse:
    """For λ > 0: proximal Newton steps on a working set, by coordinate descent; where that changes no sign, by a factorisation.

    The working set are the coordinates that are not 0 and those with the largest |∇_j f| > λ: as many as the others, and at least
    ``fresh``. Columns of M that were in it are kept.

    Args:
        instance: with λ > 0.
        fresh: the least number of coordinates that may come in.
        sweeps: of coordinate descent at most.
        share: the model is solved until a sweep lowers it by this share of what the first did.
    """

    def __init__(self, instance: Instance, fresh: int, sweeps: int, share: float) -> None:
        self._instance, self._fresh, self._sweeps, self._share = instance, fresh, sweeps, share
        self._places = np.full(instance.columns, -1)
        self._kept = np.empty((0, instance.rows))
        self._count = 0
        self._working = np.empty(0, np.intp)

    def step(self, point: Point, gradient: Array) -> Array | None:
        """To the minimiser of the quadratic model on the working set, more or less."""
        x, problem = point.x, self._instance
        support = np.flatnonzero(x)
        excess = np.abs(gradient) - problem.lam
        excess[support] = 0.0
        entering = np.flatnonzero(excess > 0.0)
        most = max(self._fresh, len(support))
        if len(entering) > most:
            entering = entering[np.argpartition(-excess[entering], most)[:most]]
        self._working = working = np.concatenate([support, entering])
        if not len(working):
            return None
        chosen = self._columns(working)
        before, after = x[working], x[working]
        passes = kernels.coordinate_descent(
            self._kept,
            chosen,
            point.curvatures,
            gradient[working],
            before,
            problem.lam,
            problem.l2,
            after,
            self._sweeps,
            self._share,
        )
        problem.products += passes / problem.columns
        signs = np.sign(before)
        if len(support) <= LARGEST and (np.sign(after) == signs).all():
            exact = self._newton(point, gradient, signs)
            if exact is not None:
                after = exact
        step = np.zeros_like(x)
        step[working] = after - before
        return step

    def image(self, step: Array) -> Array:
        """By the columns of the working set."""
        self._instance.products += len(self._working) / self._instance.columns
        return step[self._working] @ self._kept[self._places[self._working]]

    def rejected(self) -> None:
        """More coordinates come in."""
        self._fresh *= 2

    def _columns(self, working: np.ndarray) -> np.ndarray:
        """Places in ``_kept`` of the columns ``working`` of M."""
        new = working[self._places[working] < 0]
        if len(new):
            count = self._count + len(new)
            if count > len(self._kept):
                larger = np.empty((min(2 * count, self._instance.columns), self._instance.rows))
                larger[: self._count] = self._kept[: self._count]
                self._kept = larger
            self._kept[self._count : count] = self._instance.M[:, new].T
            self._places[new] = np.arange(self._count, count)
            self._count = count
        return self._places[working]

    def _newton(self, point: Point, gradient: Array, signs: Array) -> Array | None:
        """The minimiser of the model where the signs are ``signs`` and zeros stay, if it keeps them."""
        problem, support = self._instance, signs != 0.0
        if not support.any():
            return None
        chosen = self._working[support]
        x = point.x[chosen]
        scaled = self._kept[self._places[chosen]] * np.sqrt(point.curvatures)
        problem.products += 0.5 * len(chosen) * len(chosen) / problem.columns
        step = _solved(
            scaled @ scaled.T, problem.l2, -(gradient[chosen] + problem.lam * signs[support] + problem.l2 * x)
        )
        if step is None or not (np.sign(x + step) == signs[support]).all():
            return None
        after = np.zeros_like(signs)
        after[support] = x + step
        return after


def _solved(matrix: Array, shift: float, right: Array) -> Array | None:
    """(matrix + shift I)⁻¹ right by Cholesky's factorisation; ``None`` where that breaks down."""
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    matrix.flat[:: len(matrix) + 1] += shift
    try:
        factor = cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return None
    return cho_solve(factor, right, check_finite=False)
