"""The SGD theorems on a small instance: Theorem 3.8's bound against runs with other minibatches, Theorem 3.6's step and count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from surefoot._core import charts
from surefoot._linear_resnet.network import LinearResNet
from surefoot._linear_resnet.sgd import INTERPOLATION_ID, SGD_ID, SGDGuarantee, certify_sgd, descend_sgd

from .draws import gaussian
from .linear_resnet_instances import PAPER
from .result import Experiment, Finding, Plot, Progress, Table
from .summaries import median

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def sgd(
    seeds: int = 32,
    iterations: int = 2000,
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
    samples: int = 8,
    batch: int = 4,
    depth: int = 3,
    alpha: float = 2000.0,
) -> Experiment:
    """Few samples of 2 inputs and 2 outputs, modified identity with a large α; noise .1, and ten times the α, for Theorem 3.6."""
    generator = torch.Generator().manual_seed(seed)
    X = gaussian(samples, 2, generator=generator)
    Y = X @ gaussian(2, 2, generator=generator)
    noisy = Y + 0.1 * gaussian(samples, 2, generator=generator)

    def net(scale: float) -> LinearResNet:
        return LinearResNet.modified_identity(2, 2, 4, depth, scale)

    interpolation = certify_sgd(net(alpha), X, Y, batch, theorem=INTERPOLATION_ID, iterations=iterations)
    general = certify_sgd(net(10.0 * alpha), X, noisy, batch, theorem=SGD_ID)
    runs: list[list[float]] = []
    for number in range(seeds):
        progress(f"Theorem 3.8: minibatches {number + 1} of {seeds}")
        runs.append(descend_sgd(net(alpha), X, Y, batch, interpolation, seed=number).losses)
    kept = sum(all(loss <= interpolation.bound(t) for t, loss in enumerate(losses)) for losses in runs)
    last = median([losses[-1] / losses[0] for losses in runs])
    share = kept / seeds
    return Experiment(
        name="linear-resnet/sgd",
        title="Minibatch SGD on a small instance",
        reference=f"{PAPER}, Theorems 3.6 and 3.8",
        tables=(
            Table(
                "theorems",
                ("theorem", "hypotheses hold", "step", "iterations", "probability", "bound / initial loss at the end"),
                tuple(_row(guarantee) for guarantee in (interpolation, general)),
            ),
            Table(
                "Theorem 3.8 against runs",
                ("seeds", "bound kept by", "median loss / initial loss at the end"),
                ((seeds, kept, last),),
            ),
        ),
        figures=(Plot("sgd-interpolation.png", lambda: _draw(runs, interpolation)),),
        findings=(
            Finding(
                "With probability 1 - delta the loss stays under 2 L0 (1 - rate)^t for all t <= T (Theorem 3.8).",
                f"{kept} of {seeds} runs kept it; delta = {interpolation.quantities['delta']:g}",
                share >= interpolation.probability,
                "the share of runs against 1 - delta",
            ),
            Finding(
                "SGD reaches L* + epsilon within T iterations (Theorem 3.6).",
                f"the theorem's step is {general.step_size:.2g} and T = {general.iterations:,}",
                None,
                "the count is too large to be run here; step and T solve their two equations",
            ),
        ),
        settings={
            "n": samples,
            "batch": batch,
            "L": depth,
            "alpha": alpha,
            "alpha of Theorem 3.6": 10.0 * alpha,
            "seeds": seeds,
            "T of Theorem 3.8": iterations,
        },
    )


def _row(guarantee: SGDGuarantee) -> tuple[str, bool, float, int, float, float]:
    end = guarantee.bound(guarantee.iterations) / guarantee.quantities["initial_loss"]
    return (
        guarantee.theorem,
        guarantee.holds,
        guarantee.step_size,
        guarantee.iterations,
        guarantee.probability,
        float(end),
    )


def _draw(runs: list[list[float]], guarantee: SGDGuarantee) -> Figure:
    figure, axes = charts.grid(1, 1, panel=(5.0, 3.4))
    bound = [guarantee.bound(t) for t in range(len(runs[0]))]
    curves = [
        charts.Curve(f"SGD, {len(runs)} draws of minibatches", charts.COLOURS[0], runs),
        charts.Curve("bound of Theorem 3.8", charts.COLOURS[1], [bound], marker="o"),
    ]
    n, depth = guarantee.quantities["samples"], guarantee.quantities["depth"]
    charts.draw(axes[0][0], curves, title=f"Theorem 3.8, n = {n:g}, L = {depth:g}", logarithmic=False)
    return charts.finish(figure, axes, "Minibatch SGD with the theorem's step", "loss")
