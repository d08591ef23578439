"""The LASSO solver, trained or not, against FISTA, restarted FISTA and coordinate descent on held-out problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from surefoot._core import charts
from surefoot._lasso.learned_solver import LassoSolver
from surefoot._problems import Lasso
from surefoot._step_sizes.baselines import Trace, trace
from surefoot._step_sizes.schedules import SCHEDULES

from .finished import Part, kept_all
from .result import Experiment, Finding, Plot, Progress, Table
from .step_sizes_runs import FORMAT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACCURACY = 1e-4
LAMBDAS = ("0.1", "0.1 max|M'y|", "0.01")
METHODS = ("ISTA 1/β_p", "FISTA", "restarted FISTA", "silver", "OptISTA", "scikit-learn Lasso")
OURS, TRAINED_FOR = "LassoSolver", "trained for this λ"
TRAINED = {"0.1": (0.29, -0.44, 0.45), "0.1 max|M'y|": (0.94, -1.63, 1.75), "0.01": (-0.32, 0.07, 0.8)}
"""Weights for each λ, by benchmarks/learned_lasso.py --train."""
HELD_OUT = 2_000_000
"""Seed of the problems, far from those that the solver's weights were trained on."""
BLOCK = 20
"""Problems held at once."""
FIRST, LIMIT = 60, 16_000
"""Iterations to try first, four times as many each time, and the most."""
TARGETS = {"FISTA": 2.0, "restarted FISTA": 1.5, "scikit-learn Lasso": 1.0}
"""How many times fewer products ours is to need."""
ROUNDS = 200
"""Of ours; a problem takes far fewer iterations."""


@dataclass(frozen=True)
class Reached:
    """A method on problems of one λ.

    Attributes:
        products: until (F - F*)/F* ≤ ``ACCURACY``, of each problem.
        spent, gaps: products and relative gaps (geometric mean over the problems of the first block) along the iterations.
        rejected: share of the proposals that the safeguard rejected, of those made until every problem of a block has an accurate
            iterate; ``None`` for methods that make none.
    """

    products: list[float]
    spent: list[float]
    gaps: list[float]
    rejected: float | None = None

    @property
    def mean(self) -> float:
        """Products on average."""
        return sum(self.products) / len(self.products)


def lasso(
    count: int = 100,
    methods: Sequence[str] = METHODS,
    rows: int = 250,
    columns: int = 500,
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
    cache: Path | None = None,
) -> Experiment:
    """Products with M or Mᵀ to a relative gap of 1e-4; a fresh matrix for each problem, 10 % non-zeros, noise .01."""
    names = (*methods, TRAINED_FOR, OURS)
    choices = {"count": count, "rows": rows, "columns": columns, "seed": seed}
    parts = [
        Part(
            f"lambda = {lam}: {name} on {count} problems",
            {"lasso": FORMAT, "lambda": lam, "method": name, **choices}
            | {"weights": list(TRAINED[lam]) if name == TRAINED_FOR else [], "solver": "working sets"},
            {"name": name, "lam": lam, **choices},
        )
        for lam in LAMBDAS
        for name in names
    ]
    results = iter(kept_all(cache, "lasso", parts, measured, progress))
    costs = {lam: {name: Reached(**next(results)) for name in names} for lam in LAMBDAS}
    return Experiment(
        name="step-sizes/lasso",
        title="LASSO: working sets with a safeguard on held-out problems",
        reference="not in the paper: its framework with a proximal step, where conjugate gradients do not apply",
        tables=(
            Table(
                "products with M or M' to a relative gap of 1e-4",
                ("lambda", "method", "mean", "largest", "mean / ours", "fewer than ours", "proposals rejected"),
                tuple(
                    (
                        lam,
                        name,
                        cost.mean,
                        max(cost.products),
                        cost.mean / by_method[OURS].mean,
                        sum(a < b for a, b in zip(cost.products, by_method[OURS].products, strict=True)) / count,
                        cost.rejected,
                    )
                    for lam, by_method in costs.items()
                    for name, cost in by_method.items()
                ),
            ),
        ),
        figures=(Plot("lasso-products.png", lambda: _draw(costs)),),
        findings=(*(_finding(costs, name) for name in TARGETS if name in methods), _training(costs)),
        settings={
            "problems": f"{count} for each lambda, {rows}x{columns}, unit columns, 10 % non-zeros, noise 0.01, a matrix for each",
            "accuracy": ACCURACY,
            "step of the others": "1/beta of each problem",
            "schedules": "a schedule of its own for each number of steps, which are 5 % apart; its end counts",
            "cost": "products with M or M', k/d for k of d columns; a sweep of scikit-learn's counts as two",
            "proposals": "those made until every problem of a block has its first accurate iterate",
            "weights": "0; or trained on 8 problems of the same lambda and other seeds (benchmarks/learned_lasso.py)",
        },
    )


def problems(lam: str, count: int, rows: int, columns: int, seed: int) -> Lasso:
    """A block of problems."""
    drawn = Lasso.random(count, rows, columns, lam=0.01 if lam == "0.01" else 0.1, seed=seed)
    if lam == LAMBDAS[1]:
        return Lasso(drawn.M, drawn.Y, 0.1 * drawn.adjoint(drawn.Y).abs().amax(1))
    return drawn


def measured(**arguments: Any) -> dict[str, Any]:
    """What a file keeps of a method on the problems of one λ."""
    return vars(_measure(**arguments))


def _measure(name: str, lam: str, count: int, rows: int, columns: int, seed: int) -> Reached:
    solvers = {OURS: LassoSolver(), TRAINED_FOR: LassoSolver(TRAINED[lam])}
    products: list[float] = []
    curve: tuple[list[float], list[float]] | None = None
    made = accepted = 0.0
    for begin in range(0, count, BLOCK):
        p = problems(lam, min(BLOCK, count - begin), rows, columns, HELD_OUT + 100_000 * seed + begin)
        best = p.objective(p.optimum(1e-7))
        solver = solvers.get(name)
        if solver is not None:
            # stops at the duality gap, which is later than the first accurate iterate
            solution = solver.solve(p, ROUNDS, tolerance=0.1 * ACCURACY)
            gaps, spent = (solution.objectives - best) / best, solution.products
        else:
            gaps, spent = _until_reached(name, p, best)
        reached = gaps <= ACCURACY
        if not bool(reached.any(0).all()):
            raise RuntimeError(f"{name} does not reach {ACCURACY:g} at lambda = {lam}")
        first = reached.int().argmax(0)
        products += spent.gather(0, first[None])[0].tolist()
        if solver is not None:
            # the gap's certificate comes later, and closer to a minimiser more proposals are rejected
            until = solver.solve(p, int(first.max()))
            made, accepted = made + float(until.proposals.sum()), accepted + float(until.accepted.sum())
        if curve is None:
            curve = spent.double().mean(1).tolist(), gaps.clamp(min=1e-12).log().mean(1).exp().tolist()
    assert curve is not None
    return Reached(products, *curve, None if made == 0.0 else 1.0 - accepted / made)


def _until_reached(name: str, p: Lasso, best: Tensor) -> tuple[Tensor, Tensor]:
    """Relative gaps and products (T+1, N), T large enough for all problems if ``LIMIT`` is."""
    if name in SCHEDULES:
        return _by_horizon(name, p, best)
    iterations = FIRST
    while True:
        solved = trace(name, p, iterations)
        gaps = solved.gaps / best
        if bool((gaps[-1] <= ACCURACY).all()) or iterations >= LIMIT:
            return gaps, solved.products[:, None].expand_as(gaps)
        iterations = min(4 * iterations, LIMIT)


def _by_horizon(name: str, p: Lasso, best: Tensor) -> tuple[Tensor, Tensor]:
    """The same of x_T of the schedule for T steps, a schedule of its own for each of many T, 5 % apart."""
    ends: list[Trace] = []
    horizon = 0
    while not ends or (bool((ends[-1].gaps[-1] > ACCURACY * best).any()) and horizon < LIMIT):
        ends.append(trace(name, p, horizon))
        horizon += max(1, horizon // 20)
    gaps = torch.stack([end.gaps[-1] for end in ends]) / best
    return gaps, torch.stack([end.products[-1] for end in ends])[:, None].expand_as(gaps)


def _finding(costs: Mapping[str, Mapping[str, Reached]], name: str) -> Finding:
    ratios = {lam: by_method[name].mean / by_method[OURS].mean for lam, by_method in costs.items()}
    return Finding(
        f"(Not in the paper: {name} needs {TARGETS[name]:g} times the products of LassoSolver, or more.)",
        ", ".join(f"lambda = {lam}: {ratio:.2f}" for lam, ratio in ratios.items()),
        min(ratios.values()) >= TARGETS[name],
        "Ratio of the means over held-out problems, for every lambda. The objective never increases and a worst-case bound holds "
        "whatever the weights.",
    )


def _training(costs: Mapping[str, Mapping[str, Reached]]) -> Finding:
    ratios = {lam: by_method[TRAINED_FOR].mean / by_method[OURS].mean for lam, by_method in costs.items()}
    return Finding(
        "(Not in the paper: what training adds to the solver.)",
        ", ".join(f"lambda = {lam}: {ratio:.2f}" for lam, ratio in ratios.items())
        + " times the products with weights of 0, which the solver comes with",
        None,
        "The advantage is that of working sets and conjugate gradients, which are not learned.",
    )


def _draw(costs: Mapping[str, Mapping[str, Reached]]) -> Figure:
    figure, axes = charts.grid(1, len(costs), panel=(4.0, 3.3))
    for ax, (lam, by_method) in zip(axes[0], costs.items(), strict=True):
        for colour, (name, cost) in zip(charts.COLOURS, by_method.items(), strict=False):
            style, width = ("-", 2.4) if name == OURS else ("--", 1.4)
            ax.plot(cost.spent, cost.gaps, style, color=colour, linewidth=width, label=name)
        ax.axhline(ACCURACY, color="#999999", linewidth=0.8)
        ax.set_yscale("log")
        ax.set_ylim(1e-7, None)
        ax.set_xlim(0.0, 1.1 * max(cost.mean for name, cost in by_method.items() if not name.startswith("ISTA")))
        ax.set_xlabel("products with M or Mᵀ")
        charts.style(ax, f"λ = {lam}")
    return charts.finish(figure, axes, "Held-out LASSO problems", "(F - F*)/F*, geometric mean")
