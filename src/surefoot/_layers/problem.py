"""The convex problem of one layer (docs/theorems/layers.md, section 3)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from surefoot_check.rigor.bounds import Array

from .._problems import LeastSquares, Problems
from .network import points
from .schedules import residual_after
from .simplices import minimise

NEWTON = 30
"""Steps of Newton's method, at most. Of a quadratic the second removes what rounding left of the first."""
HALVINGS = 40


@dataclass(frozen=True)
class At:
    """What the problem is at some weights.

    Attributes:
        value: Φ(w), never below the objective of the layer's output x.
        terms: by sector and grid point (K, m), Σ_{i in s} [u_i (y_ij - x_i) + h(y_ij)], u the gradient of the smooth part at x.
        lower: the lower bound of the objective at every choice of one grid point per sector.
        image: what the smooth part and its curvature are functions of (N, b).
    """

    value: float
    terms: Tensor
    lower: float
    image: Tensor


class LayerProblem:
    """min Φ(w) = f(Σ_j w_{s(i),j} y_ij) + Σ_ij w_{s(i),j} h(y_ij) over one simplex per sector, f the smooth part; or for least
    squares f after further steps that are the same for all coordinates.

    M and those steps are applied once, to the first grid point's step and to what the others differ from it by on each sector.

    Args:
        problems: summed over.
        x: the layer's input (N, d).
        v: ∇f/β there.
        inverse: 1/β (N, 1).
        sectors: of the coordinates (N, d), 0 … K-1.
        count: K.
        grid: (m,).
        ahead: P (k,) of the further steps; none where the problems are not least squares.
    """

    def __init__(
        self,
        problems: Problems,
        x: Tensor,
        v: Tensor,
        inverse: Tensor,
        sectors: Tensor,
        count: int,
        grid: Tensor,
        ahead: Tensor,
    ) -> None:
        self.sectors = sectors
        self.points = points(problems, x, v, inverse, grid)
        masks = [sectors == s for s in range(count)]
        moves = self.points[1:] - self.points[0]
        columns = torch.stack([self.points[0], *(move * mask for mask in masks for move in moves)], dim=2)
        images = problems.M @ columns
        penalties = [[problems.penalty(y * mask).sum() for y in self.points] for mask in masks]
        self._penalties = torch.stack([torch.stack(line) for line in penalties])
        if len(ahead):  # residuals take the place of images, as rounding shrinks with them
            images[:, :, 0] -= problems.Y
            images = residual_after(problems, images, inverse, ahead)
            problems = LeastSquares(problems.M, torch.zeros_like(problems.Y))
        self.problems = problems
        self._first, self._images = images[:, :, 0], images[:, :, 1:]

    def at(self, w: Tensor) -> At:
        """Φ and its bound at w (K, m)."""
        problems = self.problems
        image = self._first + self._images @ w[:, 1:].reshape(-1)
        outer = problems.outer_gradient(image)
        slopes = torch.zeros_like(w)
        slopes[:, 1:] = torch.einsum("nbk,nb->k", self._images, outer).reshape(len(w), -1)
        terms = slopes - (w * slopes).sum(1, keepdim=True) + self._penalties
        smooth = problems.smooth_value(image).sum()
        value = float(smooth + (w * self._penalties).sum())
        return At(value, terms, float(smooth + terms.amin(1).sum()), image)

    def minimised(self, w: Tensor, tolerance: float) -> tuple[Tensor, At]:
        """Weights whose Φ is not above that of w, and within ``tolerance`` Φ of the least where rounding admits it."""
        here = self.at(w)
        for _ in range(NEWTON):
            if here.value - here.lower <= tolerance * here.value:
                break
            slope, start = here.terms.cpu().numpy(), w.cpu().numpy()
            target = torch.from_numpy(minimise(self._hessian(here.image), slope, start)).to(w)
            better = self._on_the_way(w, target, here)
            if better is None:
                break
            w, here = better
        return w, here

    def _on_the_way(self, w: Tensor, target: Tensor, here: At) -> tuple[Tensor, At] | None:
        """The first of w + (target - w)/2^k with a lower Φ; ``None`` where rounding hides them all."""
        length = 1.0
        for _ in range(1 if self.problems.quadratic else HALVINGS):
            candidate = target if length == 1.0 else w + length * (target - w)
            there = self.at(candidate)
            if there.value < here.value:
                return candidate, there
            length *= 0.5
        return None

    def _hessian(self, image: Tensor) -> Array:
        """Of Φ (K m, K m), where the weight of the first grid point of a sector is what the others leave."""
        images = self._images
        if not self.problems.quadratic:
            images = images * self.problems.outer_curvature(image).sqrt().unsqueeze(2)
        flat = images.reshape(-1, images.shape[2])
        count, m = len(self._penalties), len(self.points)
        full = flat.new_zeros(count, m, count, m)
        full[:, 1:, :, 1:] = (flat.T @ flat).reshape(count, m - 1, count, m - 1)
        return full.reshape(count * m, count * m).cpu().numpy()
