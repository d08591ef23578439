"""Trace maximisation on the Stiefel manifold to a gap of 1e-6, beside geoopt, pymanopt and torch's parametrization; then the
time of one step of CayleySGD beside geoopt's RiemannianSGD, and of one Cayley step by each way to apply the inverse.

Each method is run to its first iterate with
f − f* ≤ 1e-6 (f* from eigh), then timed on exactly that many iterations, all methods in turn for each seed. Times are those of
the processor (one thread), which other programs disturb less than those of the clock.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from report import Report, Shown, parser
from torch import Tensor
from torch.nn.utils import parametrizations

from surefoot._orthogonal.cayley_steps import STEPS, components
from surefoot.optim import CayleySGD, minimize_stiefel

GAP = 1e-6
F64 = torch.float64
LIMIT = 1000
PEERS = ("geoopt", "pymanopt")
FULL = ((50, 10), ((1000, 10), (50, 10), (200, 200), (256, 20, 5)))
SMOKE = ((8, 2), ((8, 2), (2, 6, 3)))
"""Rows and columns of the maximisation, and the shapes of one step."""
STEPPED = ((10, 5, 1), (50, 10, 1), (128, 64, 1), (512, 64, 1), (512, 512, 1), (50, 10, 20))
SMOKE_STEPPED = ((8, 2, 1), (6, 3, 2))
"""Rows, columns and number of parameters of a step of the optimisers."""


@dataclass(frozen=True)
class Problem:
    """min −tr UᵀAU over m×r orthonormal U, A = (B + Bᵀ)/2 with Gaussian B."""

    A: Tensor
    start: Tensor
    best: float

    @classmethod
    def draw(cls, seed: int, m: int, r: int) -> Problem:
        g = torch.Generator().manual_seed(seed)
        B = torch.randn(m, m, generator=g, dtype=F64)
        A = (B + B.mT) / 2
        start = torch.linalg.qr(torch.randn(m, r, generator=g, dtype=F64))[0]
        return cls(A, start, -float(torch.linalg.eigvalsh(A)[-r:].sum()))

    def value(self, U: Tensor) -> Tensor:
        return -(U * (self.A @ U)).sum()

    def near(self, value: float) -> bool:
        return value - self.best <= GAP


@dataclass(frozen=True)
class Run:
    """Iterations to the gap, evaluations of f where they are counted, and processor seconds."""

    iterations: int
    evaluations: int | None
    seconds: float


def ours(p: Problem) -> Run:
    begin = time.process_time()
    solved = minimize_stiefel(p.value, p.start, target=p.best + GAP)
    duration = time.process_time() - begin
    assert solved.status == "target"
    return Run(solved.iterations, solved.evaluations, duration)


def stepped(p: Problem, make: Callable[[], tuple[Any, Callable[[], Tensor]]]) -> Run:
    """An optimiser with closure: the loss it sees at the start of a step decides; the timed run stops there without looking."""

    def steps(limit: int, stop: bool) -> tuple[int, int]:
        optimizer, point = make()
        calls = 0

        def closure() -> Tensor:
            nonlocal calls
            calls += 1
            optimizer.zero_grad()
            loss = p.value(point())
            loss.backward()
            return loss

        for index in range(limit):
            loss = optimizer.step(closure)
            if stop and loss is not None and p.near(loss.item()):
                return index, calls
        return limit, calls

    iterations, _ = steps(LIMIT, True)
    begin = time.process_time()
    _, calls = steps(iterations, False)
    return Run(iterations, calls, time.process_time() - begin)


def searched(p: Problem) -> Run:
    def make() -> tuple[Any, Callable[[], Tensor]]:
        U = torch.nn.Parameter(p.start.clone())
        return CayleySGD([U], lr=0.1, line_search="nonmonotone"), lambda: U

    return stepped(p, make)


def parametrized(p: Problem, rate: float) -> Run:
    """parametrizations.orthogonal with Adam; torch's start is set through the parametrization."""

    def make() -> tuple[Any, Callable[[], Tensor]]:
        layer = torch.nn.Linear(p.start.shape[1], p.start.shape[0], bias=False, dtype=F64)
        parametrizations.orthogonal(layer)
        with torch.no_grad():
            layer.weight = p.start.clone()
        return torch.optim.Adam(layer.parameters(), lr=rate), lambda: layer.weight

    return stepped(p, make)


def geoopt_rows() -> dict[str, Callable[[Problem], Run]]:
    import geoopt  # pyright: ignore[reportMissingImports]

    def parameter(p: Problem) -> Any:
        return geoopt.ManifoldParameter(p.start.clone(), manifold=geoopt.Stiefel(canonical=False))

    def adam(p: Problem, rate: float) -> Run:
        def make() -> tuple[Any, Callable[[], Tensor]]:
            U = parameter(p)
            return geoopt.optim.RiemannianAdam([U], lr=rate), lambda: U

        return stepped(p, make)

    def sgd(p: Problem, rate: float, momentum: float) -> Run:
        def make() -> tuple[Any, Callable[[], Tensor]]:
            U = parameter(p)
            return geoopt.optim.RiemannianSGD([U], lr=rate, momentum=momentum), lambda: U

        return stepped(p, make)

    rates = (0.02, 0.05, 0.1)
    return {
        "geoopt RiemannianSGD, best rate": lambda p: fastest([lambda r=r: sgd(p, r, 0.0) for r in rates]),
        "geoopt RiemannianSGD, momentum .8, best rate": lambda p: fastest([lambda r=r: sgd(p, r, 0.8) for r in rates]),
        "geoopt RiemannianAdam, best rate": lambda p: fastest([lambda r=r: adam(p, r) for r in rates]),
    }


def pymanopt_rows() -> dict[str, Callable[[Problem], Run]]:
    import autograd.numpy as anp
    import pymanopt
    from pymanopt.manifolds import Stiefel
    from pymanopt.optimizers import ConjugateGradient

    def run(p: Problem, hand_written: bool) -> Run:
        A, shape = p.A.numpy(), p.start.shape
        manifold = Stiefel(*shape)
        if hand_written:
            cost = pymanopt.function.numpy(manifold)(lambda U: -(U * (A @ U)).sum())
            gradient = pymanopt.function.numpy(manifold)(lambda U: -2.0 * A @ U)
            problem = pymanopt.Problem(manifold, cost, euclidean_gradient=gradient)
        else:
            problem = pymanopt.Problem(manifold, pymanopt.function.autograd(manifold)(lambda U: -anp.sum(U * (A @ U))))

        def solve(limit: int, log: int) -> Any:
            optimizer = ConjugateGradient(verbosity=0, log_verbosity=log, max_iterations=limit, min_gradient_norm=1e-12)
            return optimizer.run(problem, initial_point=p.start.numpy())

        costs = solve(300, 1).log["iterations"]["cost"]
        iterations = next(index for index, cost in enumerate(costs) if p.near(float(cost)))
        begin = time.process_time()
        solve(iterations, 0)
        return Run(iterations, None, time.process_time() - begin)

    return {
        "pymanopt CG, autograd": lambda p: run(p, False),
        "pymanopt CG, gradient by hand": lambda p: run(p, True),
    }


def fastest(runs: list[Callable[[], Run]]) -> Run:
    """The best of several settings that reached the gap, chosen for each problem with hindsight."""
    done = [run() for run in runs]
    reached = [run for run in done if run.iterations < LIMIT]
    return min(reached or done, key=lambda run: run.seconds)  # iterations = LIMIT where none did


def methods(report: Report) -> dict[str, Callable[[Problem], Run]]:
    """The methods whose packages are installed."""
    rows: dict[str, Callable[[Problem], Run]] = {
        "surefoot minimize_stiefel": ours,
        "surefoot CayleySGD, line search": searched,
    }
    for name, load in (("geoopt", geoopt_rows), ("pymanopt", pymanopt_rows)):
        if report.has(name):
            rows |= load()
    rows["torch orthogonal + Adam, best rate"] = lambda p: fastest([lambda r=r: parametrized(p, r) for r in (0.1, 0.2)])
    return rows


def compare(report: Report, size: tuple[int, int], seeds: int, repeats: int) -> None:
    """Iterations and times to the gap."""
    rows = methods(report)
    runs: dict[str, list[Run]] = {name: [] for name in rows}
    for seed in range(seeds):
        p = Problem.draw(seed, *size)
        tries: dict[str, list[Run]] = {name: [] for name in rows}
        for index in range(repeats + 1):
            for name, method in rows.items():
                run = method(p)
                if index > 0:  # the first is a warm-up
                    tries[name].append(run)
        for name, done in tries.items():
            runs[name].append(sorted(done, key=lambda run: run.seconds)[len(done) // 2])
    ours_ms = [run.seconds for run in runs["surefoot minimize_stiefel"]]
    cells: list[list[object]] = []
    for name, done in runs.items():
        ratios = [run.seconds / base for run, base in zip(done, ours_ms, strict=True)]
        evaluations = [run.evaluations for run in done if run.evaluations is not None]
        cells.append(
            [
                name,
                Shown(statistics.median(run.iterations for run in done), "{:.0f}"),
                Shown(statistics.median(evaluations), "{:.0f}") if evaluations else "",
                Shown(statistics.median(run.seconds for run in done) * 1e3, "{:.1f}"),
                *(Shown(ratio, "{:.2f}") for ratio in (statistics.median(ratios), min(ratios), max(ratios))),
            ]
        )
    note = f"medians over {seeds} seeds of medians over {repeats} runs; time / ours within a seed"
    header = ["method", "iterations", "evaluations", "ms", "time / ours", "least", "most"]
    report.table(f"trace maximisation on St{size}, gap {GAP:g}", header, cells, note)


def one_step(report: Report, shapes: Sequence[tuple[int, ...]]) -> None:
    """Processor milliseconds of one Cayley step."""
    times: dict[str, list[Shown]] = {name: [] for name in STEPS}
    for shape in shapes:
        g = torch.Generator().manual_seed(0)
        U = torch.linalg.qr(torch.randn(*shape, generator=g, dtype=F64))[0]
        D = torch.randn(*shape, generator=g, dtype=F64)
        A, N = components(U, D)
        t = 0.1 / float((A.square().sum((-2, -1)) + 2.0 * N.square().sum((-2, -1))).max().sqrt())
        for name, step in STEPS.items():
            step(U, *components(U, D), t)
            tries: list[float] = []
            for _ in range(5):
                begin = time.process_time()
                step(U, *components(U, D), t)
                tries.append(time.process_time() - begin)
            duration = statistics.median(tries)
            times[name].append(Shown(duration * 1e3, "{:.3f}"))
    header = ["inverse", *("x".join(str(size) for size in shape) for shape in shapes)]
    rows = [[name, *cells] for name, cells in times.items()]
    report.table("one Cayley step with t‖P‖_F = .1, milliseconds", header, rows)


def optimiser_steps(report: Report, cases: Sequence[tuple[int, int, int]], rounds: int) -> None:
    """Processor time of a step of CayleySGD and of geoopt's RiemannianSGD on the same gradients, by momentum.

    Single steps in turn, so that other code has run before each, as in a training.
    """
    header = ["rows", "columns", "parameters", "momentum", "ours, µs", "geoopt, µs", "ours / geoopt"]
    rows: list[list[object]] = []
    for m, r, count in cases:
        for momentum in (0.0, 0.9):
            optimizers = _two_optimisers(report, m, r, count, momentum)
            times: dict[str, list[float]] = {name: [] for name in optimizers}
            for _ in range(rounds * min(5, max(1, 2**16 // (m * r * count)))):
                for name, optimizer in optimizers.items():
                    begin = time.process_time()
                    optimizer.step()
                    times[name].append(time.process_time() - begin)
            medians = {name: statistics.median(tries) for name, tries in times.items()}
            shown = [Shown(medians[name] * 1e6, "{:.0f}") if name in medians else "" for name in ("ours", "geoopt")]
            ratio = Shown(medians["ours"] / medians["geoopt"], "{:.2f}") if "geoopt" in medians else ""
            rows.append([m, r, count, momentum, *shown, ratio])
    report.table("one step of CayleySGD beside geoopt's RiemannianSGD, lr = 1e-3", header, rows)


def _two_optimisers(report: Report, m: int, r: int, count: int, momentum: float) -> dict[str, Any]:
    g = torch.Generator().manual_seed(0)
    starts = [torch.linalg.qr(torch.randn(m, r, generator=g, dtype=F64))[0] for _ in range(count)]
    ours = [torch.nn.Parameter(U.clone()) for U in starts]
    lists, optimizers = [ours], {"ours": CayleySGD(ours, lr=1e-3, momentum=momentum)}
    if report.has("geoopt"):
        import geoopt  # pyright: ignore[reportMissingImports]

        manifold = geoopt.Stiefel(canonical=False)
        theirs = [geoopt.ManifoldParameter(U.clone(), manifold=manifold) for U in starts]
        lists.append(theirs)
        optimizers["geoopt"] = geoopt.optim.RiemannianSGD(theirs, lr=1e-3, momentum=momentum)
    for index in range(count):
        gradient = torch.randn(m, r, generator=g, dtype=F64)
        for parameters in lists:
            parameters[index].grad = gradient.clone()
    return optimizers


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    options = parser(__doc__)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--repeats", type=int, default=3)
    report = Report(options, arguments, PEERS)
    size, shapes = SMOKE if report.smoke else FULL
    seeds, repeats = (1, 1) if report.smoke else (report.options.seeds, report.options.repeats)
    compare(report, size, seeds, repeats)
    optimiser_steps(report, SMOKE_STEPPED if report.smoke else STEPPED, 2 if report.smoke else 40)
    one_step(report, shapes)


if __name__ == "__main__":
    main()
