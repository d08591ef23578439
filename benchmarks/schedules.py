"""Step schedules without training: gaps beside other methods, and worst cases beside their formulas.

The gaps are (F - F*)/(F(0) - F*), averaged over fresh problems. The worst cases are solved by PEPit as semidefinite programmes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from report import Report, Shown, parser

import surefoot as sf
from surefoot._step_sizes.baselines import trace
from surefoot._step_sizes.compare import learned_trace
from surefoot._step_sizes.rates import proved_bound
from surefoot._step_sizes.schedules.ogm import momenta
from surefoot._step_sizes.schedules.silver import silver_steps

PEERS = ("PEPit",)
ROWS, COLUMNS = 20, 32
REFERENCE, LEARNED = "GD 1/β_p", "learned"
METHODS = (REFERENCE, LEARNED, "silver", "OGM", "subgame-perfect", "FISTA", "Chebyshev", "CGLS")
LASSO_METHODS = ("ISTA 1/β_p", "silver", "FISTA", "restarted FISTA", "OptISTA")
RANGE = (1.0, 1.95)
TRAINED, FRESH = 0, 1000
"""Seeds of the problems that the network was trained on, and of the first fresh set."""
PENALISED = ("ISTA 1/β", "silver with a penalty", "OptISTA")
WORST = ("GD 1/β", "silver", "OGM", *PENALISED)


@dataclass(frozen=True)
class Sizes:
    """Steps, problems of a set, fresh sets, epochs of L-BFGS, and steps of the worst cases."""

    steps: Sequence[int]
    problems: int
    sets: int
    epochs: int
    worst: Sequence[int]


FULL, SMOKE = Sizes((63, 255), 32, 10, 50, (1, 2, 3, 4, 5, 6, 7)), Sizes((3,), 2, 1, 1, (1,))


def network(steps: int, sizes: Sizes) -> sf.nn.StepSizeNet:
    """Trained for that many steps."""
    net = sf.nn.StepSizeNet.orthogonal(range=RANGE)
    problems = sf.learned.LeastSquares.random(sizes.problems, ROWS, COLUMNS, seed=TRAINED)
    sf.learned.train(net, problems, "lbfgs", epochs=sizes.epochs, iterations=steps)
    return net


@cache
def fresh(sizes: Sizes, lasso: bool) -> list[sf.learned.Problems]:
    """Sets that nothing was trained on."""
    seeds = range(FRESH, FRESH + sizes.sets)
    if lasso:
        return [sf.learned.Lasso.random(sizes.problems, 2 * ROWS, 2 * COLUMNS, seed=seed) for seed in seeds]
    return [sf.learned.LeastSquares.random(sizes.problems, ROWS, COLUMNS, seed=seed) for seed in seeds]


def relative_gaps(method: str, steps: int, sizes: Sizes, lasso: bool = False) -> tuple[float, float | None]:
    """Mean relative gap after ``steps``, and the mean of its proved bound from the reference minimiser's distance."""
    net = network(steps, sizes) if method == LEARNED else None
    gaps, bounds = [], []
    for problems in fresh(sizes, lasso):
        found = trace(method, problems, steps) if net is None else learned_trace(net, problems, steps)
        bound = None if net is not None else proved_bound(method, problems, steps, problems.optimum().norm(dim=1))
        gaps.append(found.gaps[-1] / found.gaps[0])
        if bound is not None:
            bounds.append(bound / found.gaps[0])
    return float(torch.cat(gaps).mean()), float(torch.cat(bounds).mean()) if bounds else None


def worst_case(method: str, steps: int) -> tuple[float, float]:
    """The largest F(x_T) - F* for β = 1 and ‖x_0 - x*‖ ≤ 1 that PEPit finds, and the formula of docs/theorems/schedules.md."""
    from PEPit import PEP  # pyright: ignore[reportMissingImports]
    from PEPit.functions import ConvexFunction, SmoothConvexFunction  # pyright: ignore[reportMissingImports]

    problem = PEP()
    f = problem.declare_function(SmoothConvexFunction, L=1.0)
    h = problem.declare_function(ConvexFunction) if method in PENALISED else None
    whole: Any = f if h is None else f + h
    best = whole.stationary_point()
    x = problem.set_initial_point()
    problem.set_initial_condition((x - best) ** 2 <= 1)
    if method == "OGM":
        value, formula = f(_ogm(f, x, steps)), 0.5 / momenta(steps)[-1] ** 2
    elif method == "OptISTA":
        value, formula = _optista(f, h, x, steps), 0.5 / (momenta(steps)[-1] ** 2 - 1.0)
    else:
        lengths = silver_steps(steps) if "silver" in method else (1.0,) * steps
        value, formula = _descent(f, h, x, lengths), 1.0 / (4.0 * sum(lengths) + (2.0 if h is None else 0.0))
    problem.set_performance_metric(value - whole(best))
    return float(problem.solve(solver="CLARABEL", verbose=0)), formula


def _descent(f: Any, h: Any, x: Any, lengths: Sequence[float]) -> Any:
    from PEPit.primitive_steps import proximal_step  # pyright: ignore[reportMissingImports]

    penalty: Any = 0.0
    for step in lengths:
        x = x - step * f.gradient(x)
        if h is not None:
            x, _, penalty = proximal_step(x, h, step)
    return f(x) + penalty


def _ogm(f: Any, x: Any, steps: int) -> Any:
    theta, y = momenta(steps), x
    for this, following in pairwise(theta):
        new = x - f.gradient(x)
        x = new + (this - 1.0) / following * (new - y) + this / following * (new - x)
        y = new
    return x


def _optista(f: Any, h: Any, x: Any, steps: int) -> Any:
    from PEPit.primitive_steps import proximal_step  # pyright: ignore[reportMissingImports]

    theta, y, z, penalty = momenta(steps), x, x, 0.0
    square = theta[-1] ** 2
    for this, following in pairwise(theta):
        length = 2.0 * this * (square - 2.0 * this**2 + this) / square
        new, _, penalty = proximal_step(y - length * f.gradient(x), h, length)
        moved = x + (new - y) / length
        x = moved + (this - 1.0) / following * (moved - z) + this / following * (moved - x)
        y, z = new, moved
    return f(y) + penalty


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    report = Report(parser(__doc__), arguments, PEERS)
    sizes = SMOKE if report.smoke else FULL
    for lasso, methods in ((False, METHODS), (True, LASSO_METHODS)):
        rows: list[list[object]] = []
        for method in methods:
            row: list[object] = [method]
            for steps in sizes.steps:
                row += [
                    "-" if value is None else Shown(value, "{:.1e}")
                    for value in relative_gaps(method, steps, sizes, lasso)
                ]
            rows.append(row)
        kind = f"LASSO {2 * ROWS}x{2 * COLUMNS}" if lasso else f"Least squares {ROWS}x{COLUMNS}"
        report.table(
            f"{kind}: mean relative gap on {sizes.sets * sizes.problems} fresh problems",
            ["method", *(text for steps in sizes.steps for text in (f"T = {steps}", f"proved, T = {steps}"))],
            rows,
            ""
            if lasso
            else f"learned: range {RANGE}, {sizes.epochs} epochs of L-BFGS for that T on {sizes.problems} other problems",
        )
    if report.has("PEPit"):
        report.table(
            "Worst F - F* over all convex functions with β = 1 at distance 1",
            ["method", "T", "PEPit", "formula", "ratio"],
            [
                [method, steps, found, formula, Shown(found / formula, "{:.6f}")]
                for method in WORST
                for steps in sizes.worst
                for found, formula in (worst_case(method, steps),)
            ],
        )


if __name__ == "__main__":
    main()
