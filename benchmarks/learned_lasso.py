"""LASSO: products with M or Mᵀ until (F - F*)/F* ≤ 1e-4 on held-out problems, our solver beside (restarted) FISTA.

``--train`` finds the weights for each λ anew, by seed, and prints them before the table, and what training on a mix of all λ
gains. ``lasso_time.py`` is about time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from report import Report, Shown, parser
from torch import Tensor

from surefoot._lasso.learned_solver import LassoSolver
from surefoot._problems import Lasso
from surefoot_experiments.step_sizes_lasso import LAMBDAS, OURS, TRAINED, TRAINED_FOR

ACCURACY = 1e-4
BLOCK = 32
"""Problems held at once."""
TRAINING_SEED, HELD_OUT_SEED = 1, 10_000
STARTS = 2
"""Trainings for each λ, of which the best is kept."""


Shape = tuple[int, int]
FULL: Shape = (250, 500)
SMOKE: Shape = (20, 40)
"""Rows and columns."""


def problems(lam: str, count: int, shape: Shape, seed: int, device: str) -> Lasso:
    """Unit columns, 10 % non-zeros, noise .01, a fresh M for each."""
    drawn = Lasso.random(count, *shape, lam=0.01 if lam == "0.01" else 0.1, seed=seed).to(device=device)
    if lam == LAMBDAS[1]:
        drawn = Lasso(drawn.M, drawn.Y, 0.1 * torch.bmm(drawn.Y[:, None], drawn.M).squeeze(1).abs().amax(1))
    return drawn


def proximal_gradient(p: Lasso, best: Tensor, momentum: bool, restart: str, limit: int) -> Tensor:
    """Products (N,) of ISTA, FISTA, or FISTA restarted by the gradient or the function rule, step 1/β; two an iteration, F for no
    more: images of combinations are combinations of images."""
    step = (1.0 / p.smoothness)[:, None].expand(-1, p.columns)
    x = y = p.start()
    tau, last = x.new_ones(len(x)), x.new_full((len(x),), math.inf)
    hit = last.clone()
    image = y_image = torch.zeros_like(p.Y)
    for t in range(1, limit + 1):
        new = p.prox(y - step * p.adjoint(y_image - p.Y), step)
        new_image = p.forward(new)
        value = p.smooth_value(new_image) + p.penalty(new)
        uphill = ((y - new) * (new - x)).sum(1) > 0.0 if restart == "gradient" else value > last
        tau = torch.where(uphill, 1.0, tau) if restart else tau
        following = 0.5 * (1.0 + (1.0 + 4.0 * tau**2).sqrt())
        weight = (tau - 1.0) / following if momentum else torch.zeros_like(tau)
        weight = torch.where(uphill, 0.0, weight)[:, None] if restart else weight[:, None]
        y, y_image = new + weight * (new - x), new_image + weight * (new_image - image)
        x, image, tau, last = new, new_image, following, value
        hit = torch.where((value - best <= ACCURACY * best) & hit.isinf(), 2.0 * t, hit)
        if bool(hit.isfinite().all()):
            break
    return hit


@dataclass(frozen=True)
class Learned:
    """Products (N,) at the first accurate iterate and at the end, where the duality gap is as small; proposals until then."""

    products: Tensor
    certified: Tensor
    proposals: float
    accepted: float


def learned(p: Lasso, best: Tensor, solver: LassoSolver) -> Learned:
    """Until the solver's certificate, the duality gap, which is later than the first accurate iterate."""
    solved = solver.solve(p, 1000, tolerance=ACCURACY / (1.0 + ACCURACY))
    reached = solved.objectives - best <= ACCURACY * best
    assert bool(reached[-1].all()) and bool((solved.objectives.diff(dim=0) <= 0.0).all())
    first = solved.products.gather(0, reached.int().argmax(0)[None]).squeeze(0)
    return Learned(first, solved.products[-1], float(solved.proposals.sum()), float(solved.accepted.sum()))


def measure(report: Report, lam: str, count: int, shape: Shape, solver: LassoSolver) -> tuple[list[list[object]], str]:
    """Rows of the table for one λ, and a line on the proposals."""
    fixed: dict[str, Callable[[Lasso, Tensor], Tensor]] = {
        "ISTA": lambda p, best: proximal_gradient(p, best, False, "", 5000),
        "FISTA": lambda p, best: proximal_gradient(p, best, True, "", 1000),
        "FISTA, gradient restart": lambda p, best: proximal_gradient(p, best, True, "gradient", 1000),
        "FISTA, function restart": lambda p, best: proximal_gradient(p, best, True, "function", 1000),
    }
    ours = {TRAINED_FOR: solver, OURS: LassoSolver()}
    hits: dict[str, list[Tensor]] = {name: [] for name in [*fixed, *ours]}
    certified: dict[str, list[Tensor]] = {name: [] for name in ours}
    made = taken = 0.0
    for block in range(0, count, BLOCK):
        p = problems(lam, min(BLOCK, count - block), shape, HELD_OUT_SEED + block, report.options.device)
        best = p.objective(p.optimum(1e-6))
        for name, method in fixed.items():
            hits[name].append(method(p, best))
        for name, candidate in ours.items():
            run = learned(p, best, candidate)
            hits[name].append(run.products)
            certified[name].append(run.certified)
            if name == OURS:
                made, taken = made + run.proposals, taken + run.accepted
    products = {name: torch.cat(counts) for name, counts in hits.items()}
    rows: list[list[object]] = [
        [
            lam,
            name,
            Shown(float(counts.mean()), "{:.1f}"),
            Shown(float(counts.max()), "{:.0f}"),
            Shown(float(torch.cat(certified[name]).mean()), "{:.1f}") if name in certified else "-",
            Shown(float(counts.mean() / products[OURS].mean()), "{:.2f}"),
            Shown(float((counts / products[OURS]).min()), "{:.2f}"),
        ]
        for name, counts in products.items()
    ]
    return rows, f"λ = {lam}: {1.0 - taken / made:.1%} of the {made:.0f} proposals rejected"


def train(batches: Sequence[Lasso], rounds: int, what: str) -> LassoSolver:
    """The best of ``STARTS`` trainings."""
    tried: list[tuple[list[float], LassoSolver]] = []
    for seed in range(STARTS):
        solver = LassoSolver()
        tried.append((solver.train(batches, rounds, seed=seed), solver))
    losses, solver = min(tried, key=lambda pair: pair[0][-1])
    weights = [round(w, 2) for w in solver.weights.tolist()]
    gained = f"geometric mean of the products {math.exp(losses[0]):.2f} -> {math.exp(losses[-1]):.2f}"
    print(f"trained for {what}: {weights}, {gained}", flush=True)
    return LassoSolver(weights)


def trained(count: int, shape: Shape, rounds: int, device: str) -> dict[str, LassoSolver]:
    """A solver for each λ, from ``count`` problems, none of them held out; and, only printed, what one for all would gain."""
    batches = {lam: problems(lam, count, shape, TRAINING_SEED + n, device) for n, lam in enumerate(LAMBDAS)}
    train(list(batches.values()), rounds, "a mix")
    return {lam: train([batch], rounds, f"λ = {lam}") for lam, batch in batches.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    asked = parser(__doc__)
    asked.add_argument("--count", type=int, default=100, help="held-out problems for each λ")
    asked.add_argument("--device", default="cpu")
    asked.add_argument("--train", action="store_true")
    asked.add_argument("--training-count", type=int, default=8)
    asked.add_argument("--rounds", type=int, default=200)
    report = Report(asked, arguments)
    options = report.options
    shape, count = (SMOKE, 2) if report.smoke else (FULL, options.count)
    solvers = {lam: LassoSolver(weights) for lam, weights in TRAINED.items()}
    if options.train:
        solvers = trained(options.training_count, shape, options.rounds, options.device)
    rows: list[list[object]] = []
    lines: list[str] = []
    for lam in LAMBDAS:
        measured, line = measure(report, lam, count, shape, solvers[lam])
        rows += measured
        lines.append(line)
    header = ["λ", "method", "products", "worst", "certified", "mean / ours", "least ratio"]
    ratio = "least ratio: the smallest, over the problems, of the products of the method / those of LassoSolver"
    note = "\n".join(
        [
            *lines,
            ratio,
            "certified: products until the duality gap is that small, so that no reference is needed",
            "a product with k of the d columns counts k/d; β and the norms of the columns are not counted",
        ]
    )
    report.table(
        f"LASSO {shape[0]}x{shape[1]}, {count} held-out problems for each λ: products to 1e-4", header, rows, note
    )


if __name__ == "__main__":
    main()
