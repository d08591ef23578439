"""The problem of one layer: convex (docs/theorems/layers.md, section 3), or with steps ahead that have a prox (section 4)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from surefoot_check.rigor.bounds import Array

from .._problems import LeastSquares, Problems
from .network import layer, points
from .schedules import residual_after
from .simplices import minimise

SOLVED = 1e-9
"""Gap relative to Φ at which it is at its minimum."""


@dataclass(frozen=True)
class At:
    """What the problem is at some weights.

    Attributes:
        value: Φ(w).
        terms: what Φ changes by to first order as all of a sector goes to a grid point (K, m), up to a number a sector.
        gap: Σ_s [Σ_j w_sj terms_sj - min_j terms_sj]: of a convex Φ, an upper bound of Φ(w) less its least value.
    """

    value: float
    terms: Tensor
    gap: float

    @classmethod
    def of(cls, value: Tensor, terms: Tensor, w: Tensor) -> At:
        """With its gap."""
        return cls(float(value), terms, float(((w * terms).sum(1) - terms.amin(1)).sum()))

    @property
    def lower(self) -> float:
        """Of a convex Φ: a lower bound, and so one of the objective at every choice of one grid point per sector."""
        return self.value - self.gap


@dataclass(frozen=True)
class Input:
    """What enters a layer.

    Attributes:
        problems: summed over.
        x: (N, d).
        v: ∇f/β there.
        inverse: 1/β (N, 1).
        sectors: of the coordinates (N, d), 0 … K-1.
        count: K.
        grid: (m,).
    """

    problems: Problems
    x: Tensor
    v: Tensor
    inverse: Tensor
    sectors: Tensor
    count: int
    grid: Tensor

    @cached_property
    def points(self) -> Tensor:
        """y(P_j) (m, N, d)."""
        return points(self.problems, self.x, self.v, self.inverse, self.grid)

    @property
    def masks(self) -> list[Tensor]:
        """Of the sectors, each (N, d)."""
        return [self.sectors == s for s in range(self.count)]

    @cached_property
    def moves(self) -> Tensor:
        """What the weights of all grid points but the first move the output by (N, d, K (m-1))."""
        return torch.stack([(y - self.points[0]) * mask for mask in self.masks for y in self.points[1:]], dim=2)

    def output(self, w: Tensor) -> Tensor:
        """x (N, d) after the layer."""
        return layer(self.problems, self.x, self.v, self.inverse, self.sectors, w, self.grid)


class LayerProblem(ABC):
    """Φ over one simplex per sector, lowered by Newton's method."""

    newton: ClassVar[int]
    """Steps, at most."""
    halvings: ClassVar[int]
    """Of a step, at most."""

    @abstractmethod
    def at(self, w: Tensor) -> At:
        """Φ at w (K, m)."""

    @abstractmethod
    def images(self, w: Tensor) -> Tensor:
        """Columns (N, b, K (m-1)) C with CᵀC the curvature of Φ at w, for the weights of all grid points but the first."""

    def minimised(self, w: Tensor, tolerance: float, least: float) -> Tensor:
        """Weights whose Φ is not above that of w: w itself where the gap is at most ``tolerance`` (Φ - ``least``), otherwise the
        best that steps and rounding admit."""
        here = self.at(w)
        if here.gap <= tolerance * (here.value - least):
            return w
        for _ in range(self.newton):
            if here.gap <= SOLVED * here.value:
                break
            slope, start = here.terms.cpu().numpy(), w.cpu().numpy()
            target = torch.from_numpy(minimise(self._hessian(w), slope, start)).to(w)
            better = self._on_the_way(w, target, here)
            if better is None:
                break
            w, here = better
        return w

    def _on_the_way(self, w: Tensor, target: Tensor, here: At) -> tuple[Tensor, At] | None:
        """The first of w + (target - w)/2^k with a lower Φ; ``None`` where none is."""
        length = 1.0
        for _ in range(self.halvings):
            candidate = target if length == 1.0 else w + length * (target - w)
            there = self.at(candidate)
            if there.value < here.value:
                return candidate, there
            length *= 0.5
        return None

    def _hessian(self, w: Tensor) -> Array:
        """(K m, K m); the weight of the first grid point of a sector is what the others leave."""
        images = self.images(w)
        flat, (count, m) = images.reshape(-1, images.shape[2]), w.shape
        full = flat.new_zeros(count, m, count, m)
        full[:, 1:, :, 1:] = (flat.T @ flat).reshape(count, m - 1, count, m - 1)
        return full.reshape(count * m, count * m).cpu().numpy()

    def _terms(self, slopes: Tensor, w: Tensor) -> Tensor:
        """Those (K, m) of slopes (K (m-1),) against the first grid point."""
        return torch.nn.functional.pad(slopes.reshape(len(w), -1), (1, 0))


class Convex(LayerProblem):
    """Φ(w) = f(Σ_j w_{s(i),j} y_ij) + Σ_ij w_{s(i),j} h(y_ij), f the smooth part; or for least squares f after further steps
    ``ahead`` (k,) that are the same for all coordinates. M and those steps are applied once, to all that weights can mix.
    """

    newton = 30
    halvings = 40

    def __init__(self, entering: Input, ahead: Tensor) -> None:
        problems, self.entering = entering.problems, entering
        penalties = [[problems.penalty(y * mask).sum() for y in entering.points] for mask in entering.masks]
        self._penalties = torch.stack([torch.stack(line) for line in penalties])
        images = problems.M @ torch.cat([entering.points[0].unsqueeze(2), entering.moves], dim=2)
        if len(ahead):  # residuals take the place of images, as rounding shrinks with them
            images[:, :, 0] -= problems.Y
            images = residual_after(problems, images, entering.inverse, ahead)
            problems = LeastSquares(problems.M, torch.zeros_like(problems.Y))
        self._problems, self._first, self._others = problems, images[:, :, 0], images[:, :, 1:]

    def at(self, w: Tensor) -> At:
        image = self._image(w)
        outer = self._problems.outer_gradient(image)
        terms = self._terms(torch.einsum("nbk,nb->k", self._others, outer), w) + self._penalties
        return At.of(self._problems.smooth_value(image).sum() + (w * self._penalties).sum(), terms, w)

    def images(self, w: Tensor) -> Tensor:
        if self._problems.quadratic:
            return self._others
        return self._others * self._problems.outer_curvature(self._image(w)).sqrt().unsqueeze(2)

    def _image(self, w: Tensor) -> Tensor:
        return self._first + self._others @ w[:, 1:].reshape(-1)


class Ahead(LayerProblem):
    """Φ(w) = F after the layer and the proximal steps ``ahead`` (k,): not convex. Newton's method is that of Gauss and Newton, on
    the pieces where those steps are smooth; there is no lower bound, only that Φ never increases."""

    newton = 6
    halvings = 6

    def __init__(self, entering: Input, ahead: Tensor) -> None:
        self._problems, self._entering = entering.problems, entering
        self._steps = ahead[:, None, None] * entering.inverse

    def at(self, w: Tensor) -> At:
        problems, path = self._problems, self._path(w)
        product = problems.forward(path[-1])
        value = problems.smooth_value(product) + problems.penalty(path[-1])
        adjoint = problems.adjoint(problems.outer_gradient(product))
        kink = problems.penalty_gradient(path[-1])
        if kink is not None:
            adjoint = adjoint + kink
        for step, before, after in zip(reversed(self._steps), path[-2::-1], path[:0:-1], strict=True):
            step = step.expand_as(before)
            adjoint, _ = problems.prox_pullback(after, step, adjoint)
            adjoint = adjoint - problems.curvature(step * adjoint, self._product(before))
        return At.of(value.sum(), self._terms(torch.einsum("ndk,nd->k", self._entering.moves, adjoint), w), w)

    def images(self, w: Tensor) -> Tensor:
        problems, path, columns = self._problems, self._path(w), self._entering.moves
        for step, before, after in zip(self._steps, path, path[1:], strict=False):
            step = step.expand_as(before)
            passed, _ = problems.prox_pullback(after, step, torch.ones_like(after))
            columns = columns - step.unsqueeze(2) * (problems.M.mT @ self._curved(problems.M @ columns, before, 1.0))
            columns = columns * passed.unsqueeze(2)
        return self._curved(problems.M @ columns, path[-1], 0.5)

    def _path(self, w: Tensor) -> list[Tensor]:
        """The layer's output and what the steps make of it."""
        problems, path = self._problems, [self._entering.output(w)]
        for step in self._steps:
            step = step.expand_as(path[-1])
            path.append(problems.prox(path[-1] - step * problems.gradient(path[-1]), step))
        return path

    def _product(self, x: Tensor) -> Tensor | None:
        return None if self._problems.quadratic else self._problems.forward(x)

    def _curved(self, images: Tensor, x: Tensor, power: float) -> Tensor:
        """Images (N, b, c) times a power of the loss's curvature at x."""
        product = self._product(x)
        return images if product is None else images * self._problems.outer_curvature(product).pow(power).unsqueeze(2)
