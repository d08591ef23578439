"""A LASSO solver with working sets whose sizes and accuracies can be trained, safeguarded by a provable decrease."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._core.validate import finite, integer, kind_of, nonnegative, positive_integer, real
from .._learning.solve_status import SolveStatus
from .._problems.lasso import Lasso
from .solution import LassoSolution
from .solve_each import solve_each

WEIGHTS = (0.0, 0.0, 0.0)
"""What the solver comes with: weights trained for a kind of problems gain products there, and lose some elsewhere."""
POLICY = (0.75, 0.3, 0.16)
"""What weights of 0 stand for."""
LIMITS = ((0.05, 20.0), (1e-3, 1.0), (1e-3, 1.0))


class LassoSolver:
    """Minimises ½‖Mx - Y‖² + λ‖x‖₁ on working sets of columns; what it does is safe whatever the weights.

    Each iteration proposes a point that differs from x in the columns of a working set, the non-zeros and those that violate
    optimality most: cycles of coordinate descent over the set and conjugate gradients over its non-zeros. Three weights, 0 by
    default, are logarithms of factors: of how many columns enter, of how accurate a proposal is made, and of how accurate its
    conjugate gradients. ``train`` fits them to problems of one kind. Columns that are 0 at every minimiser, by the gap-safe
    sphere test, are left out from then on. The computation is in float64 and on the CPU, whatever the dtype and device.

    Guarantee, for any weights: x_{t+1} is the proposal if F(x_{t+1}) ≤ F(x_t) - Q is proved in spite of rounding, Q the model
    decrease of a proximal step of length 1/β_t; otherwise that step, with β_t doubled until the same is proved of it. So F never
    increases, and F(x_t) - F* is at most ``bounds``: but for rounding at most 8‖M‖²R²/(t+3) for t ≥ 1, R = 2F(x_0)/λ
    (``_learning/proved_decrease.py``: no bound of ‖M‖ is needed, for β_0 ≤ 4‖M‖²). A problem ends when its duality gap is at
    most ``tolerance`` F; when nothing can be proved any more it stalls, and says so.

    Cost: counted in products with M or Mᵀ, k/d for k of the d columns. Not counted: the norms of the columns, which take as long
    as one. The duality gap comes with the gradient.

    Args:
        weights: 3 numbers; 0 by default.

    Raises:
        TypeError, ValueError: bad arguments.

    Example:
        >>> problems = sf.learned.Lasso.random(32, 50, 100, lam=0.1, seed=0)
        >>> solver = sf.learned.LassoSolver()  # untrained; its first call on a machine compiles
        >>> found = solver.solve(problems, tolerance=1e-8)  # doctest: +SKIP
        >>> found.status.value, bool((found.gap <= 1e-8 * found.objectives[-1]).all())  # doctest: +SKIP
        ('solved', True)
    """

    def __init__(self, weights: Any = WEIGHTS) -> None:
        self.weights = real("weights", weights, 1).double()
        if len(self.weights) != len(WEIGHTS):
            raise ValueError(f"weights has {len(self.weights)} entries; pass {len(WEIGHTS)}")
        finite("weights", self.weights)

    def __repr__(self) -> str:
        return f"LassoSolver({[round(w, 4) for w in self.weights.tolist()]})"

    @property
    def _policy(self) -> tuple[float, float, float]:
        """Columns that enter and the two accuracies, within ``LIMITS`` whatever the weights."""
        low, high = torch.tensor(LIMITS, dtype=torch.float64).T
        entering, inner, accuracy = (
            (torch.tensor(POLICY, dtype=torch.float64) * self.weights.exp()).clamp(low, high).tolist()
        )
        return entering, inner, accuracy

    def solve(
        self, problems: Lasso, iterations: int = 1000, start: Any = None, *, tolerance: float | None = None
    ) -> LassoSolution:
        """At most ``iterations`` iterations on each problem.

        Args:
            problems: a batch of LASSO problems with λ > 0.
            iterations: T ≥ 0.
            start: first iterate (N, d); zero by default.
            tolerance: a problem ends when its duality gap is at most this share of F. By default it goes on as long as a decrease
                can be proved, and the result has T+1 rows.

        Raises:
            TypeError, ValueError: bad arguments, or a problem with λ = 0, for which no bound holds.
        """
        iterations = integer("iterations", iterations, 0)
        share = None if tolerance is None else nonnegative("tolerance", tolerance)
        problems = _checked(problems)
        x = problems.start(start).detach().cpu().double().numpy()
        runs = solve_each(problems, x, self._policy, iterations, share or 0.0)
        device = problems.M.device

        def course(values: np.ndarray) -> Tensor:
            rows = torch.from_numpy(values).to(device)
            waiting = 0 if share is not None else iterations + 1 - len(rows)
            return torch.cat([rows, rows[-1:].expand(waiting, -1)])

        solution = torch.from_numpy(runs.x).to(problems.M)
        gap, statuses = torch.from_numpy(runs.gap).to(device), runs.statuses
        if problems.M.dtype != torch.float64:
            gap = problems.gap_bound(solution)  # of what is returned, which was rounded
            reached = gap <= (share or 0.0) * problems.double._value(solution.double())
            statuses = tuple(
                SolveStatus.STALLED if status is SolveStatus.SOLVED and not good else status
                for status, good in zip(statuses, reached.tolist(), strict=True)
            )
        return LassoSolution(
            solution=solution,
            objectives=course(runs.values),
            products=course(runs.spent),
            bounds=course(runs.bounds),
            gap=gap,
            proposals=torch.from_numpy(runs.made).to(device),
            accepted=torch.from_numpy(runs.accepted).to(device),
            statuses=statuses,
        )

    def cost(self, problems: Lasso, iterations: int = 100, accuracy: float = 1e-4) -> Tensor:
        """Products (N,) float64 until (F - F*)/F* ≤ ``accuracy``, interpolated in log(F - F*) between iterations; a problem that
        does not get there counts twice its products, and more the farther it is away."""
        return self._costs(problems, iterations, accuracy)[0]

    def _costs(self, problems: Lasso, iterations: int, accuracy: float) -> tuple[Tensor, Tensor]:
        """``cost``, and the products (N,) until the duality gap is as small."""
        best = problems.optimal_value
        solution = self.solve(problems, iterations, tolerance=accuracy / (1.0 + accuracy))
        relative = ((solution.objectives - best) / best).nan_to_num(nan=0.0, posinf=math.inf)  # 0/0: at F* = 0
        excess = (relative / accuracy).clamp(min=1e-6).log()
        reached = excess <= 0.0
        index = torch.where(reached.any(0), reached.int().argmax(0), len(excess) - 1)
        products = solution.products

        def entry(rows: Tensor, i: Tensor) -> Tensor:
            return rows.gather(0, i[None]).squeeze(0)

        before = (index - 1).clamp(min=0)
        high, low = entry(excess, before), entry(excess, index)
        span = entry(products, index) - entry(products, before)
        crossing = entry(products, index) - span * (low / (low - high)).nan_to_num(nan=0.0)
        until = torch.where(reached.any(0), crossing, products[-1] * (2.0 + excess[-1].clamp(min=0.0)))
        return until, products[-1]

    def train(
        self,
        batches: Sequence[Lasso],
        rounds: int = 100,
        *,
        scale: float = 0.5,
        iterations: int = 100,
        accuracy: float = 1e-4,
        seed: int = 0,
    ) -> list[float]:
        """Lower the mean logarithm of the products by an evolution strategy, (1+1) with the success rule of one fifth: the loss
        is no differentiable function of the weights. Half of it are the products until F is accurate, ``cost``, half those until
        the duality gap is as small. The solver is changed in place.

        Args:
            batches: problems of equal weight per batch, for instance one for each λ.
            rounds: candidates to try.
            scale: first standard deviation of a change.
            iterations: that each problem may use.
            accuracy: relative gap aimed at.
            seed: of the changes.

        Returns:
            The best loss before and after each round.
        """
        if not batches:
            raise ValueError("batches is empty; pass at least one batch of problems")
        generator = torch.Generator().manual_seed(integer("seed", seed, 0))

        def loss() -> float:
            costs = [torch.stack(self._costs(p, iterations, accuracy)).clamp(min=1.0).log().mean() for p in batches]
            return float(torch.stack(costs).mean())

        best, losses = self.weights, [loss()]
        for _ in range(positive_integer("rounds", rounds)):
            self.weights = best + scale * torch.randn(len(best), generator=generator, dtype=torch.float64)
            tried = loss()
            better = tried < losses[-1]
            best = self.weights if better else best
            scale *= math.exp(0.4 if better else -0.1)
            losses.append(min(tried, losses[-1]))
        self.weights = best
        return losses


def _checked(problems: Any) -> Lasso:
    if not isinstance(problems, Lasso):
        raise TypeError(f"problems is {kind_of(problems)}; pass sf.learned.Lasso")
    if not bool((problems.lam > 0.0).all()):
        raise ValueError("problems.lam has a zero; no bound on the distance to a minimiser holds there: pass lam > 0")
    return problems
