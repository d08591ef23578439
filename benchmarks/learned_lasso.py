"""LASSO: products with A or Aᵀ until (F - F*)/F* ≤ 1e-4 on held-out problems, the learned solver beside (restarted) FISTA, and
the time of coordinate descent, by scikit-learn and celer.

``--train`` finds the weights anew, by seed, and prints them before the table.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from report import Report, Shown, parser
from torch import Tensor

from surefoot._lasso.learned_solver import WEIGHTS, LassoSolver
from surefoot._problems import Lasso

ACCURACY = 1e-4
LAMBDAS = ("0.1", "0.1 max|A'b|", "0.01")
BLOCK = 32
"""Problems held at once."""
TRAINING_SEED, HELD_OUT_SEED = 1, 10_000
PEERS = ("celer",)
TOLERANCES = tuple(10.0**-k for k in range(1, 13))
"""Of the coordinate descents, whose stopping rules differ: each problem takes the loosest that is accurate."""
START = (0.0,) * 8
"""κ = 1, and the metric of the columns' norms."""


Shape = tuple[int, int]
FULL: Shape = (250, 500)
SMOKE: Shape = (20, 40)
"""Rows and columns."""


def problems(lam: str, count: int, shape: Shape, seed: int, device: str) -> Lasso:
    """Unit columns, 10 % non-zeros, noise .01, a fresh A for each."""
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


def coordinate_descents(peers: Mapping[str, str | None]) -> dict[str, Callable[[Lasso, float], Tensor]]:
    """Those that are installed: the solution x (d,) of a batch of one problem to a tolerance."""
    from sklearn.linear_model import Lasso as ScikitLearn

    classes: dict[str, Callable[..., Any]] = {"scikit-learn": ScikitLearn}
    if peers["celer"] is not None:
        from celer import Lasso as Celer  # pyright: ignore[reportMissingImports]

        classes["celer"] = Celer

    def solve(make: Callable[..., Any], p: Lasso, tolerance: float) -> Tensor:
        M, y = p.M[0].cpu().numpy(), p.Y[0].cpu().numpy()
        alpha = float(p.lam[0]) / len(y)  # theirs is a mean over the rows
        return torch.as_tensor(make(alpha=alpha, fit_intercept=False, tol=tolerance, max_iter=10_000).fit(M, y).coef_)

    return {name: partial(solve, make) for name, make in classes.items()}


def accurate(p: Lasso, best: Tensor, solve: Callable[[Lasso, float], Tensor]) -> float:
    """Seconds, in all, of each problem's loosest accurate tolerance."""
    total = 0.0
    for index in range(len(p.Y)):
        single = Lasso(p.M[index : index + 1], p.Y[index : index + 1], p.lam[index : index + 1])
        for tolerance in TOLERANCES:
            begin = time.perf_counter()
            x = solve(single, tolerance)
            seconds = time.perf_counter() - begin
            if float(single.objective(x.to(single.Y)[None])) <= (1.0 + ACCURACY) * float(best[index]):
                break
        else:
            raise RuntimeError(f"no tolerance down to {TOLERANCES[-1]:g} is accurate")
        total += seconds
    return total


@dataclass(frozen=True)
class Learned:
    """Products (N,) at the first accurate iterate, proposals made and accepted until all have one, and the time of that."""

    products: Tensor
    proposals: float
    accepted: float
    seconds: float


def learned(p: Lasso, best: Tensor, solver: LassoSolver) -> Learned:
    """The solver stops at its certificate, the duality gap, which is later; it runs again up to the first accurate iterate."""
    certified = solver.solve(p, 200, tolerance=ACCURACY / (1.0 + ACCURACY))
    reached = certified.objectives - best <= ACCURACY * best
    assert bool(reached[-1].all()) and bool((certified.objectives.diff(dim=0) <= 0.0).all())
    index = reached.int().argmax(0)
    begin = time.perf_counter()
    solved = solver.solve(p, int(index.max()))
    seconds = time.perf_counter() - begin
    first = solved.products.gather(0, index[None]).squeeze(0)
    return Learned(first, float(solved.proposals.sum()), float(solved.accepted.sum()), seconds)


def measure(report: Report, lam: str, count: int, shape: Shape, solver: LassoSolver) -> tuple[list[list[object]], str]:
    """Rows of the table for one λ, and a line on the proposals."""
    device, descents = report.options.device, coordinate_descents(report.peers)
    fixed: dict[str, Callable[[Lasso, Tensor], Tensor]] = {
        "ISTA": lambda p, best: proximal_gradient(p, best, False, "", 5000),
        "FISTA": lambda p, best: proximal_gradient(p, best, True, "", 1000),
        "FISTA, gradient restart": lambda p, best: proximal_gradient(p, best, True, "gradient", 1000),
        "FISTA, function restart": lambda p, best: proximal_gradient(p, best, True, "function", 1000),
    }
    ours = {"learned, weights 0": LassoSolver(START), "learned": solver}
    hits: dict[str, list[Tensor]] = {name: [] for name in [*fixed, *ours]}
    seconds = dict.fromkeys([*hits, *descents], 0.0)
    made = taken = 0.0
    for block in range(0, count, BLOCK):
        p = problems(lam, min(BLOCK, count - block), shape, HELD_OUT_SEED + block, device)
        best = p.objective(p.optimum(1e-6))
        for name, method in fixed.items():
            begin = time.perf_counter()
            hits[name].append(method(p, best))
            seconds[name] += time.perf_counter() - begin
        for name, solve in descents.items():
            seconds[name] += accurate(p, best, solve)
        for name, candidate in ours.items():
            run = learned(p, best, candidate)
            hits[name].append(run.products)
            seconds[name] += run.seconds
            if name == "learned":
                made, taken = made + run.proposals, taken + run.accepted
    products = {name: torch.cat(counts) for name, counts in hits.items()}
    rows: list[list[object]] = [
        [
            lam,
            name,
            Shown(float(counts.mean()), "{:.1f}"),
            Shown(float(counts.max()), "{:.0f}"),
            Shown(float(counts.mean() / products["learned"].mean()), "{:.2f}"),
            Shown(float((counts / products["learned"]).min()), "{:.2f}"),
            Shown(seconds[name] / count * 1e3, "{:.1f}"),
        ]
        for name, counts in products.items()
    ]
    rows += [[lam, name, *"----", Shown(seconds[name] / count * 1e3, "{:.1f}")] for name in descents]
    until = "until every problem of a block has its first accurate iterate"
    return rows, f"λ = {lam}: {1.0 - taken / made:.1%} of the {made:.0f} proposals made {until} rejected"


def train(count: int, shape: Shape, rounds: int, device: str) -> LassoSolver:
    """The solver trained on ``count`` problems for each λ, none of them held out."""
    batches = [problems(lam, count, shape, TRAINING_SEED + index, device) for index, lam in enumerate(LAMBDAS)]
    solver = LassoSolver(START)
    losses = solver.train(batches, rounds)
    print(f"geometric mean of the products: {math.exp(losses[0]):.2f} -> {math.exp(losses[-1]):.2f}")
    print(f"WEIGHTS = {tuple(round(w, 3) for w in solver.weights.tolist())}")
    return LassoSolver([round(w, 3) for w in solver.weights.tolist()])


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    asked = parser(__doc__)
    asked.add_argument("--count", type=int, default=100, help="held-out problems for each λ")
    asked.add_argument("--device", default="cpu")
    asked.add_argument("--train", action="store_true")
    asked.add_argument("--training-count", type=int, default=8)
    asked.add_argument("--rounds", type=int, default=40)
    report = Report(asked, arguments, PEERS)
    options = report.options
    shape, count = (SMOKE, 2) if report.smoke else (FULL, options.count)
    solver = LassoSolver(WEIGHTS)
    if options.train:
        solver = train(options.training_count, shape, options.rounds, options.device)
    rows: list[list[object]] = []
    lines: list[str] = []
    for lam in LAMBDAS:
        measured, line = measure(report, lam, count, shape, solver)
        rows += measured
        lines.append(line)
    header = ["λ", "method", "products", "worst", "mean / ours", "least ratio", "ms a problem"]
    ratio = "least ratio: the smallest, over the problems, of the products of the method / those of the learned solver"
    note = "\n".join(
        [
            *lines,
            ratio,
            "β and the norms of the columns are not counted; coordinate descent makes no products to count, and needs no β",
        ]
    )
    report.table(
        f"LASSO {shape[0]}x{shape[1]}, {count} held-out problems for each λ: products to 1e-4", header, rows, note
    )


if __name__ == "__main__":
    main()
