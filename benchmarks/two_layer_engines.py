"""Seconds a step: Gram space against weight space with singular values of the layers, and against a bare autograd step."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from report import Report, Shown, orthogonal_problem, parser, seconds

import surefoot as sf
from surefoot._two_layer.engines import GramEngine, WeightEngine

STEPS = 20


@dataclass(frozen=True)
class Sizes:
    """Widths, numbers of rows, and inputs and outputs, of the three tables, and the rows of the last."""

    widths: tuple[int, ...]
    counts: tuple[int, ...]
    spaces: tuple[tuple[int, int], ...]
    rows: tuple[int, int]


# digits have 61 inputs and 10 outputs after standardising
FULL = Sizes(
    (500, 4000, 20_000),
    (2_000, 20_000, 100_000),
    ((5, 5), (10, 10), (61, 10), (200, 10), (579, 2)),
    (2_000, 100),
)
SMOKE = Sizes((50,), (100,), ((3, 2),), (20, 10))


def engine_steps(
    engine_type: type[GramEngine] | type[WeightEngine],
    loss: sf.Loss,
    net: sf.nn.TwoLayerLinear,
    certificate: sf.Certificate | None = None,
) -> float:
    """Seconds a step of the rule 1/K', or of a certificate's own, with everything a trace records; setting the engine up is not
    counted."""
    rule = sf.steps.Sharp() if certificate is None else sf.steps.CertifiedBB()
    times: list[float] = []
    for _ in range(6):
        engine = engine_type(loss, net.W1.detach(), net.W2.detach())
        rule.start(loss, certificate)
        start = time.perf_counter()
        for _ in range(STEPS):
            engine.move(rule.step(engine))
        times.append((time.perf_counter() - start) / STEPS)
    return statistics.median(times[1:])


def plain_steps(
    X: torch.Tensor,
    Y: torch.Tensor,
    start: sf.nn.TwoLayerLinear,
    spectrum: Callable[[torch.Tensor], object] | None,
) -> float:
    """Seconds a step of torch.optim.SGD on the plain module, with ``spectrum`` of each layer at each step (``None``: without)."""

    def work() -> None:
        net = copy.deepcopy(start)
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
        for _ in range(STEPS):
            if spectrum is not None:
                spectrum(net.W1.detach())
                spectrum(net.W2.detach())
            optimizer.zero_grad()
            (0.5 * (net(X) - Y).square().sum()).backward()
            optimizer.step()

    return seconds(work, 3) / STEPS


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
        X = torch.randn(sizes.rows[0], n, generator=g, dtype=torch.float64)
        Y = torch.randn(sizes.rows[0], m, generator=g, dtype=torch.float64)
        loss, net = sf.SquaredLoss(X, Y), sf.nn.TwoLayerLinear.gaussian(n, m, 2 * (n + m), std=(n + m) ** -0.5, seed=1)
        ours = engine_steps(GramEngine, loss, net, sf.certify(net, loss))
        many, few = (plain_steps(X[:count], Y[:count], net, None) for count in sizes.rows)
        ratios = (Shown(ours / autograd, "{:.2g}x") for autograd in (many, few))
        rows.append([f"{n} + {m}", ours * 1e3, many * 1e3, few * 1e3, *ratios])
    report.table(
        "Milliseconds a step by n + m, h = 2 (n + m)",
        ["n + m", "certified-bb", *(f"autograd, {count:,} rows" for count in sizes.rows), "ratio", "ratio"],
        rows,
        "Ratio: certified-bb / bare autograd. A step of certified-bb costs O((n + m)^3), whatever width and rows; that of "
        "autograd grows with both.",
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
