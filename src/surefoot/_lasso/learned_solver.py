"""A learned LASSO solver: quasi-Newton proposals with a learned metric and threshold, safeguarded by a provable decrease."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .._core.validate import finite, integer, kind_of, nonnegative, positive_integer, real
from .._problems.batch import soft
from .._problems.lasso import Lasso
from .accelerated import accelerated
from .quasi_newton import Memory
from .safeguard import Point, Rounding, accepted, line_minimum, proximal_point, required_decrease

WEIGHTS = (0.01, 0.356, -0.157, -0.291, -0.007, -0.099, 0.06, -0.296)
"""Trained by benchmarks/learned_lasso.py --train."""
THRESHOLD_LIMITS, METRIC_LIMITS = (-6.0, 1.5), (-3.0, 3.0)
"""Of logarithms, so that no weights make the model degenerate."""
SHRINK, GROW = 0.5, 2.0
"""Factors of κ after a rejection and an acceptance; it never exceeds the learned one."""


@dataclass(frozen=True)
class LassoSolution:
    """What ``LassoSolver.solve`` found.

    Attributes:
        solution: x_T (N, d).
        objectives: F_p(x_t) (T+1, N), never increasing.
        products: multiplications with M_p or M_pᵀ until F_p(x_t) was known (T+1, N).
        bounds: F_p(x_t) - F_p* is at most this (T+1, N), by the theorems alone: a worst case, known before the run but for F(x_0)
            and the iteration at which a problem left the proposals.
        gap: duality gap bounds (N,) float64 at the solution.
        proposals: how many were made in each problem (N,).
        accepted: how many of them were accepted (N,).
    """

    solution: Tensor
    objectives: Tensor
    products: Tensor
    bounds: Tensor
    gap: Tensor
    proposals: Tensor
    accepted: Tensor

    @property
    def accepted_share(self) -> float:
        """Accepted proposals among all."""
        return float(self.accepted.sum() / self.proposals.sum().clamp(min=1))

    def __repr__(self) -> str:
        """What the run came to, in place of its tensors."""
        count, columns = self.solution.shape
        problems = f"{count} problem{'s' * (count != 1)} of {columns} columns"
        return (
            f"LassoSolution({problems} after {len(self.objectives) - 1} iterations: "
            f"mean F {self.objectives[-1].mean():.6g}, duality gap at most {self.gap.max():.3g}, "
            f"{self.products[-1].mean():.4g} products a problem, {self.accepted_share:.1%} of the proposals accepted)"
        )


class LassoSolver:
    """Minimises ½‖Mx - Y‖² + λ‖x‖₁ with a learned quasi-Newton model; what it does is safe whatever the weights.

    Each iteration proposes w = x + αd: d minimises ⟨g, d⟩ + ½⟨d, Bd⟩ + Σλ_i|x_i + d_i| up to a few inner steps, and α the true F
    along d. B agrees with MᵀM on the directions of earlier steps and is a diagonal S elsewhere (``quasi_newton.Memory``). The
    thresholds λ_i = max{λ, κ_i‖e‖/√b}, e the proximal residual, keep out coordinates that only errors elsewhere push in; they
    fall to λ at a minimiser. Learned are, by 8 weights on features without units: log κ_i, linear in 1, the share of non-zeros,
    the progress made and whether x_i ≠ 0; and log(S_ii/‖m_i‖²), linear in 1, whether x_i ≠ 0, the share of non-zeros and
    log(|g_i|/λ). κ is halved after a rejection, and recovers.

    Guarantee, for any weights: w is accepted if F(w) ≤ F(x) - Q is proved in spite of rounding, Q the model decrease of the
    proximal step of length 1/β; otherwise that step, or a better one along it, is taken. So F never increases, and
    F(x_t) - F* ≤ 2βR²/(t+3) for t ≥ 1, R = 2F(x_0)/λ. After ``patience`` rejections in all, or ``limit`` iterations, a problem
    goes on from its best point with monotone accelerated steps: F(x_t) - F* ≤ 2βR²/(t-K+1)² after leaving at K. Near rounding
    level no decrease can be proved, so problems leave then; in float32 that is early: use float64.

    Cost: two products with M or Mᵀ an iteration, three where a proposal is rejected. Not counted, as for FISTA: β; nor the norms
    of the columns. The model costs 4 · memory · d multiplications for each inner step.

    Args:
        weights: 8 numbers; the trained ones by default.
        memory: directions kept.
        inner: steps on the model.
        patience: rejections after which a problem leaves the proposals.
        limit: iterations after which every problem does.

    Raises:
        TypeError, ValueError: bad arguments.
    """

    def __init__(
        self, weights: Any = WEIGHTS, *, memory: int = 40, inner: int = 20, patience: int = 10, limit: int = 1000
    ) -> None:
        self.weights = real("weights", weights, 1).double()
        if len(self.weights) != len(WEIGHTS):
            raise ValueError(f"weights has {len(self.weights)} entries; pass {len(WEIGHTS)}")
        finite("weights", self.weights)
        self.memory, self.inner = positive_integer("memory", memory), positive_integer("inner", inner)
        self.patience, self.limit = positive_integer("patience", patience), integer("limit", limit, 0)

    def __repr__(self) -> str:
        return f"LassoSolver({[round(w, 4) for w in self.weights.tolist()]})"

    def solve(
        self, problems: Lasso, iterations: int, start: Any = None, *, tolerance: float | None = None
    ) -> LassoSolution:
        """At most ``iterations`` iterations on all problems at once.

        Args:
            problems: a batch of LASSO problems with λ > 0.
            iterations: T ≥ 0.
            start: first iterate (N, d); zero by default.
            tolerance: stop when the duality gap of every problem is at most this share of F; never by default.

        Raises:
            TypeError, ValueError: bad arguments, or a problem with λ = 0, for which no bound holds.
        """
        iterations = integer("iterations", iterations, 0)
        tolerance = None if tolerance is None else nonnegative("tolerance", tolerance)
        return _Run(self, _checked(problems), problems.start(start)).solve(iterations, tolerance)

    def cost(self, problems: Lasso, iterations: int = 60, accuracy: float = 1e-4) -> Tensor:
        """Products (N,) float64 until (F - F*)/F* ≤ ``accuracy``, interpolated in log(F - F*) between iterations; a problem that
        does not get there counts twice its products, and more the farther it is away."""
        best = problems.optimal_value
        solution = self.solve(problems, iterations, tolerance=accuracy / (1.0 + accuracy))
        relative = ((solution.objectives.double() - best) / best).nan_to_num(nan=0.0, posinf=math.inf)  # 0/0: at F* = 0
        excess = (relative / accuracy).clamp(min=1e-6).log()
        reached = excess <= 0.0
        index = torch.where(reached.any(0), reached.int().argmax(0), len(excess) - 1)
        products = solution.products.double()

        def entry(rows: Tensor, i: Tensor) -> Tensor:
            return rows.gather(0, i[None]).squeeze(0)

        before = (index - 1).clamp(min=0)
        high, low = entry(excess, before), entry(excess, index)
        span = entry(products, index) - entry(products, before)
        crossing = entry(products, index) - span * (low / (low - high)).nan_to_num(nan=0.0)
        return torch.where(reached.any(0), crossing, products[-1] * (2.0 + excess[-1].clamp(min=0.0)))

    def train(
        self,
        batches: Sequence[Lasso],
        rounds: int = 100,
        *,
        scale: float = 0.3,
        iterations: int = 40,
        accuracy: float = 1e-4,
        seed: int = 0,
    ) -> list[float]:
        """Lower the mean logarithm of ``cost`` by an evolution strategy, (1+1) with the success rule of one fifth: the loss is no
        differentiable function of the weights. The solver is changed in place.

        Args:
            batches: problems of equal weight per batch, for instance one for each λ.
            rounds: candidates to try.
            scale: first standard deviation of a change.
            iterations: that ``cost`` may use.
            accuracy: relative gap aimed at.
            seed: of the changes.

        Returns:
            The best loss before and after each round.
        """
        if not batches:
            raise ValueError("batches is empty; pass at least one batch of problems")
        generator = torch.Generator().manual_seed(integer("seed", seed, 0))

        def loss() -> float:
            return sum(float(self.cost(p, iterations, accuracy).log().mean()) for p in batches) / len(batches)

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


class _Run:
    """One call of ``solve``: what is fixed, and what changes from iteration to iteration."""

    def __init__(self, solver: LassoSolver, problems: Lasso, start: Tensor) -> None:
        self.solver, self.problems = solver, problems
        self.rounding = Rounding(problems)
        self.weights = solver.weights.to(problems.M)
        squares = problems.M.square().sum(1)
        self.squares = squares.maximum(torch.finfo(squares.dtype).eps * squares.amax(1, keepdim=True))
        self.point = self.rounding.start(start)
        self.gradient = problems.adjoint(self.point.residual)
        self.gradient_error = self.rounding.pullback_error(self.point.residual, self.point.residual_error)
        self.memory = Memory(problems.M, solver.memory)
        self.first_residual = self._residual()

    def solve(self, iterations: int, tolerance: float | None) -> LassoSolution:
        limit, zero = min(iterations, self.solver.limit), torch.zeros_like(self.point.value)
        spent = zero + (1.0 if bool(self.point.x.any()) else 0.0)
        objectives, products = [self.point.value], [spent]
        proposals, rejections, left, shrink = zero, zero, zero + limit, zero + 1.0
        for t in range(limit):
            active = rejections < self.solver.patience
            if bool((self._finished(tolerance) | ~active).all()):
                break
            rejected = active & ~self._step(shrink, active)
            shrink = torch.where(rejected, SHRINK * shrink, GROW * shrink).clamp(max=1.0)
            proposals, rejections = proposals + active.to(zero), rejections + rejected.to(zero)
            left = torch.where(rejected & (rejections >= self.solver.patience), t + 1.0, left)
            spent = torch.where(active, spent + torch.where(rejected, 3.0, 2.0), spent)
            objectives.append(self.point.value)
            products.append(spent)
        solution = LassoSolution(
            solution=self.point.x,
            objectives=torch.stack(objectives),
            products=torch.stack(products),
            bounds=self._bounds(objectives, left),
            gap=zero.double(),
            proposals=proposals,
            accepted=proposals - rejections,
        )
        remaining = (left < iterations) & ~self._finished(tolerance)
        solution = self._accelerate(solution, iterations, tolerance, left, remaining.nonzero().squeeze(1))
        return replace(solution, gap=self.problems.gap_bound(solution.solution))

    def _step(self, shrink: Tensor, active: Tensor) -> Tensor:
        """Move the active problems; returns where the proposal was accepted (N,)."""
        problems, rounding, point = self.problems, self.rounding, self.point
        safe = proximal_point(rounding, point.x, self.gradient)
        decrease = required_decrease(rounding, point.x, self.gradient, self.gradient_error, safe)
        direction = self._direction(shrink)
        image = problems.forward(direction)
        length = line_minimum(problems, point, direction, image)
        new = rounding.move(point, direction, image, length)
        good = accepted(new, point, decrease)
        if bool((active & ~good).any()):
            safe_direction = safe - point.x
            safe_image = problems.forward(safe_direction)
            direction = torch.where(good[:, None], direction, safe_direction)
            image = torch.where(good[:, None], image, safe_image)
            # no worse than the plain step of length 1, for no product
            longer = line_minimum(problems, point, safe_direction, safe_image)
            plain = rounding.move(point, safe_direction, safe_image, torch.ones_like(longer))
            better = rounding.move(point, safe_direction, safe_image, longer).value <= plain.value
            length = torch.where(good, length, torch.where(better, longer, 1.0))
            new = rounding.move(point, direction, image, length)
        moved = active & (new.value <= point.value)
        length = torch.where(moved, length, 0.0)
        pulled = problems.adjoint(image)
        self.memory.add(direction, image, pulled)
        self.point = new.where(moved, point)
        image_error = rounding.sum_columns * rounding.column_norms * direction.abs().sum(1)
        error = (
            self.gradient_error
            + length * rounding.pullback_error(image, image_error)
            + rounding.unit * (self.gradient.norm(dim=1) + 2.0 * length * pulled.norm(dim=1))
            + rounding.unit * rounding.smoothness * (self.point.x.norm(dim=1) + length * direction.norm(dim=1))
        )
        self.gradient_error = torch.where(moved, error, self.gradient_error)
        self.gradient = torch.where(moved[:, None], self.gradient + length[:, None] * pulled, self.gradient)
        return good

    def _residual(self) -> Tensor:
        """‖e‖ (N,) for e = S(soft(x - g/S, λ/S) - x), S the squared norms of the columns: of the scale of the gradient, and 0 at
        minimisers alone."""
        x, S = self.point.x, self.squares
        return (S * (soft(x - self.gradient / S, self.problems.lam[:, None] / S) - x)).norm(dim=1)

    def _direction(self, shrink: Tensor) -> Tensor:
        """The learned proposal d (N, d); ``shrink`` (N,) multiplies κ."""
        x, lam, w = self.point.x, self.problems.lam, self.weights
        nonzero = (x != 0.0).to(x)
        share = (nonzero.sum(1) / self.problems.rows).clamp(max=2.0)
        residual = self._residual()
        progress = 0.25 * (residual / self.first_residual).log().nan_to_num(nan=0.0, neginf=-20.0).clamp(-20.0, 5.0)
        log_kappa = ((w[0] + w[1] * share + w[2] * progress)[:, None] + w[7] * nonzero).clamp(*THRESHOLD_LIMITS)
        noise = shrink * residual / math.sqrt(self.problems.rows)
        threshold = torch.maximum(lam[:, None], log_kappa.exp() * noise[:, None])
        excess = (self.gradient.abs() / lam[:, None]).log().clamp(-3.0, 3.0)
        log_metric = (w[3] + (w[5] * share)[:, None] + w[4] * nonzero + w[6] * excess).clamp(*METRIC_LIMITS)
        model = self.memory.model(self.squares * log_metric.exp())
        return model.minimise(x, self.gradient, threshold, self.rounding.smoothness, self.solver.inner)

    def _finished(self, tolerance: float | None) -> Tensor:
        """Where the duality gap, from the gradient at hand, is at most ``tolerance`` F (N,)."""
        if tolerance is None:
            return torch.zeros_like(self.gradient_error, dtype=torch.bool)
        point, lam = self.point, self.problems.lam
        c = (lam / (self.gradient.abs().amax(1) + self.gradient_error)).clamp(max=1.0)
        gap = (
            0.5 * ((1.0 - c) * point.residual.norm(dim=1)).square()
            + (lam[:, None] * point.x.abs() + c[:, None] * self.gradient * point.x).sum(1)
            + 4.0 * point.value_error
            + self.gradient_error * point.x.norm(dim=1)
        )
        return gap <= tolerance * point.value

    def _bounds(self, objectives: list[Tensor], left: Tensor) -> Tensor:
        """F(x_0), then min{F(x_0), 2βR²/(t+3)} with R = 2F(x_0)/λ, by the rate of monotone proximal steps for ω = ϑ = 1; a
        problem stays where it is from iteration ``left`` (N,) on."""
        first = objectives[0]
        steps = torch.arange(len(objectives), dtype=first.dtype, device=first.device)[:, None].minimum(left)
        radius = 2.0 * first / self.problems.lam
        bounds = (2.0 * self.rounding.smoothness * radius.square() / (steps + 3.0)).minimum(first)
        return torch.where(steps > 0.0, bounds, first)  # the theorem is about one step and more

    def _accelerate(
        self, reached: LassoSolution, iterations: int, tolerance: float | None, left: Tensor, index: Tensor
    ) -> LassoSolution:
        """Go on with the problems at ``index``, which left the proposals at iteration ``left`` < T."""
        if not len(index):
            return reached
        rounding = self.rounding.select(index)
        begin = left[index].long()
        start = _rows(self.point, index)
        run = accelerated(rounding, iterations - begin, start, tolerance=tolerance)
        self.problems.products += rounding.problems.products
        length = max(len(reached.objectives), int(begin.max()) + len(run.objectives))
        length = min(length, iterations + 1)
        steps = torch.arange(length, device=index.device)[:, None]
        later = (steps - begin).clamp(min=0)
        kept = later.clamp(max=len(run.objectives) - 1)

        def joined(first: Tensor, then: Tensor) -> Tensor:
            """First (T+1, N) in the other problems and up to ``begin``, from there ``then`` (length, len(index))."""
            padded = torch.cat([first, first[-1:].expand(length - len(first), -1)])
            padded[:, index] = torch.where(later > 0, then, padded[:, index])
            return padded

        first_bounds = reached.bounds[begin, index]
        spent = reached.products[begin, index]
        solution = reached.solution.clone()
        solution[index] = run.last.x
        return replace(
            reached,
            solution=solution,
            objectives=joined(reached.objectives, run.objectives.gather(0, kept)),
            products=joined(reached.products, spent + 1.0 + 2.0 * kept),
            bounds=joined(reached.bounds, run.bounds.gather(0, kept).minimum(first_bounds)),
        )


def _rows(point: Point, index: Tensor) -> Point:
    """The points of the problems at ``index``."""
    return Point(
        point.x[index],
        point.residual[index],
        point.residual_error[index],
        point.value[index],
        point.value_error[index],
    )


def _checked(problems: Any) -> Lasso:
    if not isinstance(problems, Lasso):
        raise TypeError(f"problems is {kind_of(problems)}; pass sf.learned.Lasso")
    if not bool((problems.lam > 0.0).all()):
        raise ValueError("problems.lam has a zero; no bound on the distance to a minimiser holds there: pass lam > 0")
    return problems
