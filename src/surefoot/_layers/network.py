"""The network of layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .._core.io import reading, write_tensors
from .._core.validate import as_tensor, kind_of, real
from .._problems import LeastSquares, Problems
from .._step_sizes.smoothness import Smoothness, inverse_smoothness, smoothness_of
from .._step_sizes.unrolled import Solution
from .sectors import even, sectors_of

ROUNDING = 16.0
"""Units of rounding by which the weights of a simplex may sum to something else than 1."""


class LayeredSteps(nn.Module):
    """T layers x_i ← Σ_j w_{t,s(i),j} y_i(P_j): convex combinations of proximal steps y(P) = prox_{(P/β)h}(x - (P/β)∇f(x)), with
    weights by the sector s(i) of (x_i, ∇_i f(x)/β).

    Whatever weights in the simplices, no layer increases the objective of any problem where the grid ends at 2 or below
    (docs/theorems/layers.md, Theorem 1).

    Args:
        weights: (T, K, m) float64 or float32, each w_{t,s} ≥ 0 with sum 1; T, K ≥ 1, m ≥ 2.
        grid: P (m,), 0 ≤ P_1 < … < P_m ≤ 2.
        boundaries: of the sectors (K-1,), increasing, in (0, 2); by default of equal width.

    Raises:
        TypeError: integer, half-precision or complex arrays.
        ValueError: shapes that do not fit, non-finite entries, weights outside the simplices, or no such grid or boundaries.

    Example:
        >>> problems = sf.learned.LeastSquares.random(4, 6, 8)
        >>> net = sf.nn.LayeredSteps(torch.full((10, 1, 2), 0.5, dtype=torch.float64), grid=(0.0, 2.0))  # P = 1 in 10 layers
        >>> objectives = net.solve(problems).objectives
        >>> objectives.shape, bool((objectives[1:] <= objectives[:-1]).all())  # as with any other weights
        (torch.Size([11, 4]), True)
    """

    weights: Tensor
    grid: Tensor
    boundaries: Tensor

    def __init__(self, weights: Any, grid: Any, boundaries: Any = None) -> None:
        super().__init__()
        weights = real("weights", weights, 3)
        self.register_buffer("weights", weights.clone())
        self.register_buffer("grid", real("grid", grid, 1).to(weights))
        edges = even(weights.shape[1]) if boundaries is None else as_tensor("boundaries", boundaries)
        self.register_buffer("boundaries", edges.to(weights))
        self._check()

    @property
    def layers(self) -> int:
        """T."""
        return self.weights.shape[0]

    @property
    def sectors(self) -> int:
        """K."""
        return self.weights.shape[1]

    @property
    def range(self) -> tuple[float, float]:
        """(lo, hi), the ends of the grid."""
        return float(self.grid[0]), float(self.grid[-1])

    @property
    def steps(self) -> Tensor:
        """Σ_j w_{t,s,j} P_j (T, K): the step size of a coordinate where there is no penalty."""
        return mean_steps(self.weights, self.grid)

    def extra_repr(self) -> str:
        return f"layers={self.layers}, sectors={self.sectors}, range={self.range}"

    def solve(
        self,
        problems: Problems,
        start: Any = None,
        smoothness: Smoothness = None,
        *,
        trajectory: bool = False,
    ) -> Solution:
        """All layers, once.

        Args:
            problems: of the network's dtype and device.
            start: first iterate (N, d); zero by default.
            smoothness: β, as in ``StepSizeNet.solve``.
            trajectory: keep all iterates.

        Raises:
            TypeError, ValueError: bad arguments, a dtype or device that differs, or weights that have left the simplices.
        """
        self._check()
        if not isinstance(problems, Problems):
            raise TypeError(f"problems is {kind_of(problems)}; pass sf.learned.LeastSquares, Lasso or Logistic")
        if self.weights.dtype != problems.M.dtype or self.weights.device != problems.M.device:
            raise TypeError(
                f"net is {self.weights.dtype} on {self.weights.device}, problems are {problems.M.dtype} on {problems.M.device}; "
                "convert one with .to"
            )
        beta = smoothness_of(problems, smoothness)
        inverse = inverse_smoothness(problems, beta)
        x, before = problems.start(start), problems.products
        objectives, lowest, highest, kept = [], [], [], [x]
        for weights in self.weights:
            value, gradient = problems.evaluate(x)
            v = gradient * inverse
            sectors = sectors_of(x, v, self.boundaries)
            # the least and the largest step that enters the combination of each coordinate
            used = torch.where(weights > 0.0, self.grid, torch.inf).amin(1), (self.grid * (weights > 0.0)).amax(1)
            if isinstance(problems, LeastSquares):
                used = (mean_steps(weights, self.grid),) * 2
            lowest.append(used[0][sectors].amin(1))
            highest.append(used[1][sectors].amax(1))
            x = layer(problems, x, v, inverse, sectors, weights, self.grid)
            objectives.append(value)
            if trajectory:
                kept.append(x)
        objectives.append(problems.objective(x))
        return Solution(
            solution=x,
            objectives=torch.stack(objectives),
            lowest=torch.stack(lowest),
            highest=torch.stack(highest),
            smoothness=beta,
            products=problems.products - before,
            trajectory=torch.stack(kept) if trajectory else None,
        )

    def save(self, path: str | Path) -> None:
        """Write weights, grid and boundaries to a safetensors file, atomically."""
        write_tensors(Path(path), {name: buffer.detach() for name, buffer in self.named_buffers()})

    @classmethod
    def load(cls, path: str | Path) -> LayeredSteps:
        """The network that ``save`` wrote, or ``LayersRun.save`` as layers.safetensors.

        Raises:
            RunDirectoryError: missing, damaged, or no such network.
        """
        with reading(path, "network of layers") as stored:
            return cls(stored["weights"], stored["grid"], stored["boundaries"])

    def _check(self) -> None:
        weights, grid, edges = self.weights, self.grid, self.boundaries
        layers, sectors, steps = weights.shape
        if min(layers, sectors) < 1 or steps < 2:
            raise ValueError(f"weights has shape {tuple(weights.shape)}; it must be (T, K, m), T and K >= 1, m >= 2")
        if grid.shape != (steps,) or edges.shape != (sectors - 1,):
            raise ValueError(
                f"weights has shape {tuple(weights.shape)}, grid {tuple(grid.shape)}, boundaries {tuple(edges.shape)}; "
                f"grid must be {(steps,)}, boundaries {(sectors - 1,)}"
            )
        if not (bool((grid.diff() > 0.0).all()) and float(grid[0]) >= 0.0 and float(grid[-1]) <= 2.0):
            raise ValueError(f"grid is {grid.tolist()}; it must increase from at least 0 to at most 2")
        if sectors > 1 and not (bool((edges.diff() > 0.0).all()) and float(edges[0]) > 0.0 and float(edges[-1]) < 2.0):
            raise ValueError(f"boundaries is {edges.tolist()}; it must increase, strictly between 0 and 2")
        room = ROUNDING * steps * torch.finfo(weights.dtype).eps
        outside = ~((weights >= 0.0).all(2) & ((weights.sum(2) - 1.0).abs() <= room))  # what is no number is outside
        if bool(outside.any()):
            t, s = outside.nonzero()[0].tolist()
            raise ValueError(
                f"weights[{t}, {s}] is {weights[t, s].tolist()}; it must be at least 0 and sum to 1: divide it by its sum"
            )


def mean_steps(weights: Tensor, grid: Tensor) -> Tensor:
    """Σ_j w_j P_j over the last dimension, never outside the grid by rounding."""
    return (grid[0] + weights[..., 1:] @ (grid[1:] - grid[0])).clamp(grid[0], grid[-1])


def points(problems: Problems, x: Tensor, v: Tensor, inverse: Tensor, grid: Tensor) -> Tensor:
    """y(P_j) (m, N, d)."""
    return torch.stack([problems.prox(x - P * v, (P * inverse).expand_as(x)) for P in grid])


def layer(
    problems: Problems, x: Tensor, v: Tensor, inverse: Tensor, sectors: Tensor, weights: Tensor, grid: Tensor
) -> Tensor:
    """The next iterate (N, d) by ``weights`` (K, m), for v = ∇f/β and ``inverse`` = 1/β (N, 1)."""
    if isinstance(problems, LeastSquares):
        return x - mean_steps(weights, grid)[sectors] * v
    return combined(points(problems, x, v, inverse, grid), weights[sectors])


def combined(points: Tensor, weights: Tensor) -> Tensor:
    """Σ_j w_j y_j for y (m, N, d) and w (N, d, m), exact where all points are the same."""
    return points[0] + ((points[1:] - points[0]) * weights[..., 1:].movedim(2, 0)).sum(0)
