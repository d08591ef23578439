"""What a training of layers did, and what of it is certified."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from surefoot_check.arrays import digest
from surefoot_check.run_files import CERTIFICATE
from surefoot_check.step_sizes.layers import FORMAT
from surefoot_check.text import counted

from .._core.io import run_directory, write_json, write_tensors
from .._core.validate import folder
from .._learning.run import TrainStatus
from .._problems import Problems
from .bounds import Bounds
from .network import LayeredSteps
from .problem import At, Convex

EQUAL = 1e-8
"""Relative difference of two bounds that may be one number."""


@dataclass(frozen=True)
class Passed:
    """What passed through the layers: x (T+1, N, d), and for each layer its problem and what that is at its weights."""

    x: Tensor
    problems: tuple[Convex, ...]
    outcomes: tuple[At, ...]


@dataclass(frozen=True, repr=False)
class LayersRun:
    """A training of layers; all objectives are sums over the training problems, rounded to the side that makes them bounds.

    Attributes:
        net: the trained ``sf.nn.LayeredSteps``.
        status: ``finished``, or ``interrupted``: then the layers from ``trained`` on are those of the schedule.
        trained: layers that were trained and kept: 0 where the best constant steps were better (``objective`` "next").
        objectives: upper bounds of F(x_t), t = 0 … T.
        values: upper bounds of what each layer lowers: F(x_{t+1}), or F after the remaining steps of the schedule as well
            (``ahead``).
        lower: lower bounds of what any choice of one grid point per sector would have made of it; for least squares, of one P of
            the range per sector. Constant steps are among them.
        schedule: P (T,) that training started from.
        scheduled: upper bound of F after T steps of the schedule.
        constant: lower bound of the least F after T constant steps; over all P in the range for least squares, else of the grid.
        step: the best constant P.
        ahead: see ``values``.
        smoothness: the β (N,) that steps are divided by.
    """

    net: LayeredSteps
    status: TrainStatus
    trained: int
    objectives: tuple[float, ...]
    values: tuple[float, ...]
    lower: tuple[float, ...]
    schedule: Tensor
    scheduled: float
    constant: float
    step: float
    ahead: bool
    smoothness: Tensor = field(compare=False)
    problems: Problems = field(compare=False)
    passed: Passed = field(compare=False)

    @classmethod
    def of(
        cls,
        net: LayeredSteps,
        status: TrainStatus,
        trained: int,
        problems: Problems,
        beta: Tensor,
        schedule: Tensor,
        step: float,
        ahead: bool,
        passed: Passed,
    ) -> LayersRun:
        """The run whose layers are what ``passed`` through them, with room for rounding in every bound."""
        bounds = Bounds(problems, beta)
        none = schedule[:0]
        layers = zip(passed.problems, passed.outcomes, passed.x[1:], strict=True)
        pairs = [
            bounds.layer(problem, at, x, schedule[t + 1 :] if ahead else none)
            for t, (problem, at, x) in enumerate(layers)
        ]
        return cls(
            net=net,
            status=status,
            trained=trained,
            objectives=tuple(bounds.above(x, none) for x in passed.x),
            values=tuple(value for value, _ in pairs),
            lower=tuple(lower for _, lower in pairs),
            schedule=schedule,
            scheduled=bounds.above(problems.start(), schedule),
            constant=bounds.least_constant(net.grid, step, len(schedule)),
            step=step,
            ahead=ahead,
            smoothness=beta,
            problems=problems,
            passed=passed,
        )

    @property
    def layers(self) -> int:
        """T."""
        return len(self.values)

    @property
    def gaps(self) -> tuple[float, ...]:
        """Certified duality gaps: no choice of one step per sector would have been better by more."""
        return tuple(max(0.0, value - low) for value, low in zip(self.values, self.lower, strict=True))

    @property
    def not_worse(self) -> bool:
        """Whether F(x_T) is certainly at most that of the best constant step, or above it by rounding at most (1e-8 of it)."""
        return self.objectives[-1] <= self.constant * (1.0 + EQUAL)

    @cached_property
    def certificate(self) -> dict[str, Any]:
        """certificate.json of ``save``, as docs/theorems/layers.md describes it."""
        N, b, d = self.problems.M.shape
        low, high = self.net.range
        layers = zip(self.objectives[1:], self.values, self.lower, self.gaps, strict=True)
        return {
            "format": FORMAT,
            "kind": self.problems.kind,
            "sizes": {
                **{"problems": N, "rows": b, "columns": d, "layers": self.layers, "trained": self.trained},
                **{"sectors": self.net.sectors, "steps": len(self.net.grid)},
            },
            "range": [low.hex(), high.hex()],
            "ahead": self.ahead,
            "layers": [
                {"objective": F.hex(), "value": value.hex(), "lower": lower.hex(), "gap": gap.hex()}
                for F, value, lower, gap in layers
            ],
            "conclusion": {
                "start": self.objectives[0].hex(),
                "final": self.objectives[-1].hex(),
                "schedule": self.scheduled.hex(),
                "constant": self.constant.hex(),
                "step": self.step.hex(),
            },
            "sha256": {
                name: {key: digest(array.numpy()) for key, array in arrays.items()}
                for name, arrays in self._files.items()
            },
        }

    def save(self, directory: str | Path) -> None:
        """Write certificate.json, problem.safetensors, layers.safetensors (``LayeredSteps.load`` reads it) and
        iterates.safetensors, which ``surefoot check`` verifies.

        Raises:
            RunDirectoryError: a directory that is not empty.
            OSError: a failed write.
        """
        path = folder("directory", directory)
        with run_directory(path, resume=False):
            for name, arrays in self._files.items():
                write_tensors(path / name, arrays)
            write_json(path / CERTIFICATE, self.certificate)

    @cached_property
    def _files(self) -> dict[str, dict[str, Tensor]]:
        layers = {**dict(self.net.named_buffers()), "beta": self.smoothness, "schedule": self.schedule}
        iterates = {
            "x": self.passed.x,
            "sectors": torch.stack([layer.entering.sectors for layer in self.passed.problems]).to(torch.uint8),
        }
        return {
            "problem.safetensors": self.problems.arrays(),
            "layers.safetensors": {name: value.detach().cpu().contiguous() for name, value in layers.items()},
            "iterates.safetensors": {name: value.cpu().contiguous() for name, value in iterates.items()},
        }

    def table(self) -> str:
        """Layers side by side with their gaps, and the conclusion."""
        widths = (5, 12, 12, 12, 8)
        lines = [
            "  ".join([*(text.rjust(width) for text, width in zip(cells[:-1], widths, strict=True)), cells[-1]])
            for cells in self.rows()
        ]
        return "\n".join([*lines, *self.conclusion])

    def rows(self) -> list[list[str]]:
        """The cells of that table, those of its head first."""
        what = "F at the end" if self.ahead else "F after it"
        rows = [["layer", "F", what, "lower bound", "gap", "steps by sector"]]
        for t in sorted({round(k * (self.layers - 1) / 9) for k in range(10)}):
            steps = " ".join(f"{P:.2f}" for P in self.net.steps[t, :8].tolist()) + " …" * (self.net.sectors > 8)
            numbers = (self.objectives[t + 1], self.values[t], self.lower[t])
            rows.append([f"{t + 1}", *(f"{value:.6g}" for value in numbers), f"{self.gaps[t]:.1e}", steps])
        return rows

    @property
    def conclusion(self) -> list[str]:
        """What the training led to."""
        relation = "<=" if self.not_worse else "not certainly <="
        return [
            f"F from {self.objectives[0]:.6g} to {self.objectives[-1]:.6g} in {counted(self.layers, 'layer')} "
            f"({self.trained} trained, {self.status})",
            f"{self.objectives[-1]:.6g} {relation} {self.constant:.6g}, the best constant step's (P = {self.step:.4g}); "
            f"the schedule it started from: {self.scheduled:.6g}",
        ]

    def plot(self, path: str | Path) -> None:
        """F by layer as a PNG, beside the schedule and the best constant step.

        Raises:
            OSError: a failed write.
        """
        from .._core.charts import COLOURS, Curve, draw, finish, grid, save
        from .schedules import course

        inverse = (1.0 / self.smoothness)[:, None]
        constant = torch.full_like(self.schedule, self.step)
        curves = {
            "trained layers": list(self.objectives),
            "schedule": course(self.problems, inverse, self.schedule),
            f"constant P = {self.step:.4g}": course(self.problems, inverse, constant),
        }
        figure, axes = grid(1, 1, panel=(6.0, 4.2))
        draw(
            axes[0][0],
            [Curve(name, COLOURS[index], [values]) for index, (name, values) in enumerate(curves.items())],
            title=f"{self.layers} layers, {self.net.sectors} sectors",
        )
        finish(figure, axes, "Training objective by layer", "F")
        save(figure, path)

    def __repr__(self) -> str:
        """The conclusion in a line."""
        return (
            f"<LayersRun {self.status}: {self.layers} layers, F {self.objectives[0]:.6g} -> {self.objectives[-1]:.6g}>"
        )

    def __str__(self) -> str:
        return "\n".join(self.conclusion)
