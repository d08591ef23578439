"""The public logistic solver: proposals in each problem, safeguarded by a provable decrease."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._core.validate import integer, kind_of, nonnegative, positive_integer
from .._learning.proved_decrease import guaranteed
from .._learning.safeguarded_solution import SafeguardedSolution
from .._problems import Logistic


@dataclass(frozen=True, repr=False)
class LogisticSolution(SafeguardedSolution):
    """What ``LogisticSolver.solve`` found.

    Attributes:
        solution: x_T (N, d), in the dtype of the problems.
        objectives: F_p(x_t) (T+1, N) float64 as computed, never increasing.
        products: multiplications with M_p or M_pᵀ until F_p(x_t) was known (T+1, N) float64.
        bounds: F_p(x_t) - F_p* is at most this (T+1, N) float64, by what was proved of the steps alone: a worst case.
        gap: duality gap bounds (N,) float64 at the solution.
        proposals, accepted: how many were made in each problem (N,) int64, and how many of them were accepted.
        statuses: how each problem ended; ``status`` is that of all.
        trajectory: x_t (T+1, N, d) where it was asked for.
    """

    trajectory: Tensor | None = None


class LogisticSolver:
    """Minimises Σ log(1 + exp(-s_i⟨m_i, x⟩)) + λ‖x‖₁ + ½μ‖x‖², λ or μ > 0, with proposals that are safe whatever they are.

    For λ = 0 it proposes the steps of L-BFGS and, where these become many, of Newton's method. For λ > 0 it proposes proximal
    Newton steps on a working set, by coordinate descent, and by a factorisation once they change no sign. A step that is too long
    is halved. Nothing is trained.

    Guarantee: a step is taken only where F(x_{t+1}) ≤ F(x_t) - Q_t is proved in spite of rounding, Q_t the model decrease of the
    proximal step of length 1/β, β = ‖M‖_F²/4; that step is tried where a proposal fails. So F never increases, and
    F(x_t) - F* ≤ 2βR²/(t+3) for t ≥ 1, R = min{2F(x_0)/λ, √(8F(x_0)/μ)} (Theorem 5); ``bounds`` is sharper, as the decreases that
    were proved are larger. Where no decrease can be proved, a problem has stalled; that is at the rounding level of its steps.

    It computes in float64 on the processor, whatever the dtype of the problems, and in each problem up to its own tolerance.

    Args:
        memory: pairs of vectors that L-BFGS keeps.

    Raises:
        TypeError, ValueError: bad arguments.

    Example:
        >>> problems = sf.learned.Logistic.random(32, 50, 100, lam=1.0, seed=0)
        >>> solver = sf.learned.LogisticSolver()  # its first call on a machine compiles
        >>> found = solver.solve(problems, tolerance=1e-8)  # doctest: +SKIP
        >>> found.status.value, bool((found.gap <= 1e-8 * found.objectives[-1]).all())  # doctest: +SKIP
        ('solved', True)
    """

    def __init__(self, *, memory: int = 20) -> None:
        self.memory = positive_integer("memory", memory)

    def __repr__(self) -> str:
        return f"LogisticSolver(memory={self.memory})"

    def solve(
        self,
        problems: Logistic,
        iterations: int = 1000,
        start: Any = None,
        *,
        tolerance: float | None = None,
        trajectory: bool = False,
    ) -> LogisticSolution:
        """At most ``iterations`` iterations in each problem.

        Args:
            problems: a batch of logistic regressions on the CPU, each with λ > 0 or μ > 0.
            iterations: T ≥ 0.
            start: first iterate (N, d); zero by default.
            tolerance: a problem is solved when its duality gap is at most this share of F; by default it goes on until it stalls.
            trajectory: keep all iterates.

        Raises:
            TypeError: other problems.
            ValueError: bad arguments; problems on another device, without a penalty, or with ‖M‖² out of the range of float64.
        """
        iterations = integer("iterations", iterations, 0)
        tolerance = 0.0 if tolerance is None else nonnegative("tolerance", tolerance)
        _check(problems)
        begin = problems.start(start)
        from .run import minimise

        runs = [
            minimise(instance, x, iterations, tolerance, memory=self.memory, keep=trajectory)
            for instance, x in zip(problems.double._instances, begin.double().numpy(), strict=True)
        ]
        length = max(len(run.objectives) for run in runs)
        objectives = _columns([run.objectives for run in runs], length)
        constants = _columns([[*run.constants, 0.0] for run in runs], length)[:-1]
        first = torch.tensor([run.first for run in runs], dtype=torch.float64)
        radius = (2.0 * first / problems.lam.double()).minimum((8.0 * first / problems.l2.double()).sqrt())

        def batch(points: Sequence[Any]) -> Tensor:
            return torch.from_numpy(np.stack(points)).to(problems.M)

        def iterates() -> Tensor:
            return torch.stack(
                [batch([run.iterates[min(t, len(run.iterates) - 1)] for run in runs]) for t in range(length)]
            )

        return LogisticSolution(
            solution=batch([run.point.x for run in runs]),
            objectives=objectives,
            products=_columns([run.products for run in runs], length),
            bounds=guaranteed(first, constants, radius),
            gap=torch.tensor([run.gap for run in runs], dtype=torch.float64),
            proposals=torch.tensor([run.proposals for run in runs]),
            accepted=torch.tensor([run.accepted for run in runs]),
            statuses=tuple(run.status for run in runs),
            trajectory=iterates() if trajectory else None,
        )


def _check(problems: Any) -> None:
    """Raise unless these are problems that the solver takes."""
    if not isinstance(problems, Logistic):
        raise TypeError(f"problems is {kind_of(problems)}; pass sf.learned.Logistic")
    if problems.M.device.type != "cpu":
        raise ValueError(
            f"problems are on {problems.M.device}; the solver is compiled for the CPU: problems.to(device='cpu')"
        )
    problems.require_penalty()
    info = torch.finfo(torch.float64)
    for p, instance in enumerate(problems.double._instances):
        if not 4.0 * info.tiny <= instance.smoothness <= info.max / 4.0:
            raise ValueError(
                f"M[{p}] has the squared norm {4.0 * instance.smoothness:.3g}, out of range of float64; rescale M"
            )


def _columns(rows: Sequence[Sequence[float]], length: int) -> Tensor:
    """Rows as the columns of a tensor (length, N) float64, each going on with its last number."""
    return torch.tensor([[*row, *[row[-1]] * (length - len(row))] for row in rows], dtype=torch.float64).T.contiguous()
