"""Seconds a step: Gram space against weight space with singular values of the layers, and against a bare autograd step."""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from report import Report, Shown, orthogonal_problem, parser, seconds

import surefoot as sf
from surefoot._two_layer.engines import GramEngine, WeightEngine

STEPS = 20
ROUNDS = 5


@dataclass(frozen=True)
class Sizes:
    """Widths, numbers of rows, and inputs and outputs, of the three tables, and the rows of the last."""

    widths: tuple[int, ...]
    counts: tuple[int, ...]
    spaces: tuple[tuple[int, int], ...]
    rows: int


# digits have 61 inputs and 10 outputs after standardising
FULL = Sizes(
    (500, 4000, 20_000),
    (2_000, 20_000, 100_000),
    ((10, 10), (61, 10), (200, 10), (579, 2), (300, 300)),
    2_000,
)
SMOKE = Sizes((50,), (100,), ((3, 2),), 20)


def engine_steps(
    engine_type: type[GramEngine] | type[WeightEngine],
    loss: sf.SquaredLoss,
    net: sf.nn.TwoLayerLinear,
) -> float:
    """Seconds a step of the rule 1/K', with everything a trace records; setting the engine up is not counted."""
    rule = sf.steps.Sharp()
    times: list[float] = []
    for _ in range(6):
        engine = engine_type(loss, net.W1.detach(), net.W2.detach())
        rule.start(loss, None)
        start = time.perf_counter()
        for _ in range(STEPS):
            engine.move(rule.step(engine))
        times.append((time.perf_counter() - start) / STEPS)
    return statistics.median(times[1:])


def plain_work(
    X: torch.Tensor,
    Y: torch.Tensor,
    start: sf.nn.TwoLayerLinear,
    spectrum: Callable[[torch.Tensor], object] | None = None,
) -> None:
    """Steps of torch.optim.SGD on the plain module, with ``spectrum`` of each layer at each step (``None``: without)."""
    net = copy.deepcopy(start)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
    for _ in range(STEPS):
        if spectrum is not None:
            spectrum(net.W1.detach())
            spectrum(net.W2.detach())
        optimizer.zero_grad()
        (0.5 * (net(X) - Y).square().sum()).backward()
        optimizer.step()


def plain_steps(
    X: torch.Tensor,
    Y: torch.Tensor,
    start: sf.nn.TwoLayerLinear,
    spectrum: Callable[[torch.Tensor], object] | None,
) -> float:
    """Seconds a step of ``plain_work``."""
    return seconds(lambda: plain_work(X, Y, start, spectrum), 3) / STEPS


def run_of(loss: sf.SquaredLoss, net: sf.nn.TwoLayerLinear, certificate: sf.Certificate) -> float:
    """Processor seconds of the first steps of certified-bb, with what a trace records; without the engine's setting up."""
    engine, rule = GramEngine(loss, net.W1.detach(), net.W2.detach()), sf.steps.CertifiedBB()
    rule.start(loss, certificate)
    start = time.process_time()
    for _ in range(STEPS):
        _ = engine.iterate.measurements
        engine.move(rule.step(engine))
    return time.process_time() - start


def interleaved(*works: Callable[[], float | None]) -> list[float]:
    """Processor milliseconds a step of each: the least of rounds taken in turn, which a busy machine disturbs alike. A work may
    say itself how many seconds counted."""
    least = [math.inf] * len(works)
    for _ in range(ROUNDS):
        for i, work in enumerate(works):
            start = time.process_time()
            counted = work()
            spent = time.process_time() - start if counted is None else counted
            least[i] = min(least[i], 1e3 * spent / STEPS)
    return least


def by_width(report: Report, sizes: Sizes) -> None:
    """Print the table by width."""
    forms: dict[str, Callable[[torch.Tensor], object] | None] = {
        "autograd + svd": lambda W: torch.linalg.svd(W, full_matrices=False),
        "autograd + svdvals": torch.linalg.svdvals,
        "autograd + svdvals(W.T)": lambda W: torch.linalg.svdvals(W.T),
        "bare autograd": None,
    }
    rows: list[list[object]] = []
    for width in sizes.widths:
        X, Y, W1, W2 = orthogonal_problem(width, 10.0, seed=0)
        loss, net = sf.SquaredLoss(X, Y), sf.nn.TwoLayerLinear(W1, W2)
        gram = engine_steps(GramEngine, loss, net)
        for name, spectrum in forms.items():
            took = plain_steps(X, Y, net, spectrum)
            rows.append([width, name, took * 1e3, gram * 1e3, Shown(took / gram, "{:.1f}x")])
        took = engine_steps(WeightEngine, loss, net)
        rows.append([width, "our weight engine", took * 1e3, gram * 1e3, Shown(took / gram, "{:.1f}x")])
    report.table(
        "Milliseconds a step in weight space against Gram space, n = m = 10, N = 10",
        ["width", "weight space", "ms", "Gram ms", "ratio"],
        rows,
        "Our two engines also choose the step and measure everything a trace records; the plain forms do not.",
    )


def by_rows(report: Report, sizes: Sizes) -> None:
    """Print the table by number of rows."""
    rows: list[list[object]] = []
    for count in sizes.counts:
        g = torch.Generator().manual_seed(0)
        X = torch.randn(count, 10, generator=g, dtype=torch.float64)
        Y = torch.randn(count, 10, generator=g, dtype=torch.float64)
        net = sf.nn.TwoLayerLinear.gaussian(10, 10, 500, seed=1)
        reduction = seconds(lambda X=X, Y=Y: sf.SquaredLoss(X, Y), 3)
        gram = engine_steps(GramEngine, sf.SquaredLoss(X, Y), net)
        plain = plain_steps(X, Y, net, None)
        rows.append([count, reduction * 1e3, gram * 1e3, plain * 1e3, Shown(plain / gram, "{:.0f}x")])
    report.table(
        "Milliseconds by number of rows, n = m = 10, h = 500",
        ["rows", "reduction, once", "Gram, a step", "bare autograd, a step", "autograd / Gram"],
        rows,
    )


def by_size(report: Report, sizes: Sizes) -> None:
    """Print the table by n + m."""
    rows: list[list[object]] = []
    for n, m in sizes.spaces:
        g = torch.Generator().manual_seed(0)
        X = torch.randn(sizes.rows, n, generator=g, dtype=torch.float64)
        Y = torch.randn(sizes.rows, m, generator=g, dtype=torch.float64)
        loss, net = sf.SquaredLoss(X, Y), sf.nn.TwoLayerLinear.gaussian(n, m, 2 * (n + m), std=(n + m) ** -0.5, seed=1)
        certificate, R = sf.certify(net, loss), loss.image(torch.eye(n, dtype=torch.float64))
        ours, reduced, full = interleaved(
            lambda loss=loss, net=net, certificate=certificate: run_of(loss, net, certificate),
            lambda R=R, target=R @ loss.optimum, net=net: plain_work(R, target, net),
            lambda X=X, Y=Y, net=net: plain_work(X, Y, net),
        )
        rows.append([f"{n} + {m}", ours, reduced, full, *(Shown(ours / plain, "{:.2g}x") for plain in (reduced, full))])
    report.table(
        "Processor milliseconds a step by n + m, h = 2 (n + m)",
        [
            "n + m",
            "certified-bb",
            "autograd, n rows",
            f"autograd, {sizes.rows:,} rows",
            "ours / n rows",
            f"ours / {sizes.rows:,} rows",
        ],
        rows,
        f"The first {STEPS} steps, each chosen, tested and measured as in a trace, against as many of torch.optim.SGD on "
        "the plain module, with X and Y reduced to n rows (the least that have this loss) and as they are; the quickest of "
        f"{ROUNDS} rounds, taken in turn.",
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    report = Report(parser(__doc__), arguments)
    sizes = SMOKE if report.smoke else FULL
    by_width(report, sizes)
    by_rows(report, sizes)
    by_size(report, sizes)


if __name__ == "__main__":
    main()
