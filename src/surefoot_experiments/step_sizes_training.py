"""Figures 3 to 9 and Table 1 of the paper on learned step sizes: training by problem size, beside methods without learning."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot._report import charts
from surefoot._step_sizes.compare import Comparison
from surefoot_check.theorems.step_sizes_as_printed import layer_quantities, log10, right_sides

from .result import Cell, Experiment, Finding, Plot, Progress, Table
from .step_sizes_runs import (
    COLUMNS,
    FORMAT,
    GD,
    ITERATIONS,
    PAPER,
    Run,
    Setting,
    Size,
    beside,
    best_constant,
    gradient_descent,
    marks,
    percent,
    rows,
    run,
    run_all,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CONSTANT = "GD 1.98/β"
LEARNED = "learned"
CLEAR = 0.5
"""The paper's 'around 50 %' improvement."""


def training(
    name: str,
    size: Size,
    epochs: int = 50_000,
    sets: int = 20,
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
    cache: Path | None = None,
) -> Experiment:
    """Figures 3 to 5 (512/400) and 6 to 9: the objective at T and along the iterations with training, and the improvement."""
    numbers = marks(epochs)
    found, net = run(Setting(size, seed=seed), numbers, cache, progress)
    comparison = beside({LEARNED: net}, size, seed, sets, progress)
    figure = name.split("/")[1]
    return Experiment(
        name=name,
        title=f"Training of learned step sizes, x in R^{size.columns}, y in R^{size.rows}",
        reference=f"{PAPER}, {_place(figure)}",
        tables=(_epochs(found), Table("methods", COLUMNS, rows(comparison))),
        figures=(Plot(f"{figure}-training.png", lambda: _draw({str(size): found}, seed)),),
        findings=(
            _falls(found),
            _half([(size, found)], epochs),
            _early(found, seed),
            _fresh([(size, comparison)]),
        ),
        settings=about(found.setting, sets) | {"epochs": epochs},
    )


def table1(
    sizes: Sequence[Size],
    epochs: Mapping[int, int],
    sets: int = 20,
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
    cache: Path | None = None,
) -> Experiment:
    """The configurations of Table 1 trained, beside methods without learning, and the conditions of Theorem 4.7 there.

    Args:
        sizes: the rows of the table.
        epochs: by the number of entries of x.
        sets: fresh sets of problems for each.
        seed, progress, cache: as for every experiment.
    """
    runs: list[tuple[Size, Run]] = []
    comparisons: list[tuple[Size, Comparison]] = []
    wanted = [(Setting(size, seed=seed), (0, epochs[size.columns])) for size in sizes]
    for size, (found, net) in zip(sizes, run_all(wanted, cache, progress), strict=True):
        runs.append((size, found))
        comparisons.append((size, beside({LEARNED: net}, size, seed, sets, progress)))
    conditions = [(size, e, shortfalls(Setting(size, expansion=e, seed=seed))) for size in sizes for e in (1.0, 100.0)]
    configurations = tuple(
        (str(size), size.hidden, size.count, found.last.epochs, found.last.at_end, found.last.mean, found.last.worse)
        for size, found in runs
    )
    return Experiment(
        name="step-sizes/table1",
        title="Learned step sizes at the sizes of Table 1",
        reference=f"{PAPER}, Table 1, Figures 6 to 9 and Theorem 4.7",
        tables=(
            Table(
                "training",
                ("x/y", "width of layer 2", "problems", "epochs", "at T", "mean t <= T", "problems worse than GD"),
                configurations,
            ),
            Table(
                "methods",
                ("x/y", *COLUMNS),
                tuple(row for size, comparison in comparisons for row in rows(comparison, str(size))),
            ),
            Table(
                "Theorem 4.7 as printed",
                ("x/y", "e", *(f"({name}) falls short by decades" for name in CONDITIONS)),
                tuple((str(size), e, *short.values()) for size, e, short in conditions),
            ),
        ),
        figures=(Plot("table1-methods.png", lambda: _draw_methods(comparisons)),),
        findings=(
            _half(runs, max(epochs.values())),
            _fresh(comparisons),
            _krylov(comparisons),
            _conditions([(f"{size}, e = {e:g}", short) for size, e, short in conditions]),
            _larger(conditions),
        ),
        settings=about(runs[0][1].setting, sets) | {"epochs": {str(size): epochs[size.columns] for size in sizes}},
    )


def about(setting: Setting, sets: int) -> dict[str, Any]:
    """What fixes the numbers of the trained networks."""
    return {
        "problems": "published code: Gaussian M with unit columns, Y = M x̂, x̂ Gaussian",
        "T": ITERATIONS,
        "beta": "the largest of all problems, for learned and constant steps",
        "layers": f"2 -> 2 -> {setting.size.hidden} -> 1, relu, no biases; the first two orthogonal times e, the last 0",
        "e": setting.expansion,
        "learning rate": setting.rate,
        "training": f"{setting.optimizer}, {setting.gradient} gradient of the summed objective; the best network counts",
        "improvement": "(F_GD - F)/F_GD with F the sum over the problems of F - F*, GD with 1/beta",
        "fresh sets": sets,
        "files": FORMAT,
    }


# -- findings ----------------------------------------------------------------------------------------------------------


def _falls(found: Run) -> Finding:
    losses = found.losses
    rises = sum(b > a for a, b in pairwise(losses))
    return Finding(
        "The objective at T falls consistently with training.",
        f"{rises} of {len(losses) - 1} epochs raised it; {losses[0]:.3g} to {losses[-1]:.3g}"
        + (f"; ended: {found.ended}" if found.ended else ""),
        rises <= 0.01 * len(losses) and losses[-1] < losses[0],
        "Agreement means a lower objective at the end, and at most one epoch in a hundred that raises it.",
    )


def _half(runs: Sequence[tuple[Size, Run]], epochs: int) -> Finding:
    short = epochs < 50_000
    reached = all(found.last.at_end >= CLEAR for _, found in runs)
    return Finding(
        "Learned step sizes improve on gradient descent by around 50 %.",
        "; ".join(
            f"{size}: {percent(found.last.at_end)} at T, {percent(found.last.mean)} on average, after "
            f"{found.last.epochs:,} epochs"
            for size, found in runs
        ),
        True if reached else None if short else False,
        "Agreement means 50 % or more at T on the training problems."
        + (
            ""
            if reached or not short
            else " The paper trains for 50,000 epochs, so that fewer decide nothing against it."
        ),
    )


def _early(found: Run, seed: int) -> Finding:
    reference = gradient_descent(found.setting.size.problems(seed))
    worst = max(
        (objective / plain, t, mark.epochs)
        for mark in found.marks[1:]
        for t, (objective, plain) in enumerate(zip(mark.objectives, reference, strict=True))
        if t > 0
    )
    small = found.setting.size.columns <= 64
    return Finding(
        "For small problems the first few iterations get worse with training while the last improves."
        if small
        else "The whole trajectory converges stably, though only its end is trained.",
        f"largest objective relative to gradient descent's: {worst[0]:.3g} at t = {worst[1]} after {worst[2]:,} epochs",
        worst[0] > 1.0 + 1e-6 if small else worst[0] < 2.0,
        "Agreement means an objective above that of gradient descent at some iteration."
        if small
        else "Agreement means that no iterate has twice the objective of gradient descent. It never increases: "
        "P <= 2 suffices (step-sizes/monotone).",
    )


def _fresh(found: Sequence[tuple[Size, Comparison]]) -> Finding:
    texts = []
    for size, comparison in found:
        learned = comparison[LEARNED]
        assert learned.fresh is not None
        best, value = best_constant(comparison)
        texts.append(
            f"{size}: {percent(learned.training.improvement)} in training, {percent(learned.fresh.improvement)} on fresh "
            f"problems ({percent(learned.fresh.worse)} of them worse than gradient descent); {best} {percent(value)}"
        )
    return Finding(
        "(Not in the paper: problems that nothing was trained on, and constant steps.)",
        "; ".join(texts),
        None,
        "On unstructured least squares a learned step size is about a better constant one, which needs no training. Beyond "
        "1.5/beta a constant step depends on how close each problem is to the largest curvature.",
    )


def _krylov(found: Sequence[tuple[Size, Comparison]]) -> Finding:
    texts = []
    for size, comparison in found:
        fresh = {name: comparison[name].fresh for name in ("FISTA", "CGLS")}
        gaps = {name: value.gap for name, value in fresh.items() if value is not None}
        reference = comparison[GD].fresh
        assert reference is not None
        texts.append(f"{size}: " + ", ".join(f"{name} {gap / reference.gap:.1e}" for name, gap in gaps.items()))
    return Finding(
        "(Not in the paper: accelerated and conjugate gradients.)",
        f"mean F - F* on fresh problems relative to gradient descent's, after {ITERATIONS} iterations: "
        + "; ".join(texts),
        None,
        "The same two products with M or Mᵀ an iteration. On least squares nothing learned here comes near CGLS.",
    )


CONDITIONS = ("13a", "13b", "13c", "13d")
POWERS = {"13a": 2.0, "13b": 3.0, "13c": 2.0, "13d": 1.0}


def shortfalls(setting: Setting) -> dict[str, float]:
    """Decades by which α0² (13a, 13c), α0³ (13b) and α0 (13d) are at least too small at the start of training.

    σ_min of the last inner output is at most its Frobenius norm, which stands for it: the true shortfall is larger. C_ℓ = 1.
    """
    problems, net = setting.size.problems(setting.seed), setting.network()
    solution = net.solve(problems, ITERATIONS - 1, smoothness="common").solution
    gradient = problems.gradient(solution)
    inputs, squares = [solution.reshape(-1), gradient.reshape(-1)], 0.0
    W1, W2, _ = net.matrices
    hidden = (W1[:, :1] * inputs[0] + W1[:, 1:] * inputs[1]).relu()
    for block in W2.split(512):
        squares += float((block @ hidden).relu().square().sum())
    norms = [float(W.norm() if not bool(W.any()) else W.svd().S[0]) for W in net.matrices]
    q = {
        "T": float(ITERATIONS),
        "beta": problems.common_smoothness,
        "beta0": float(problems.strong_convexity.min()),
        "norm_X0": 0.0,
        "norm_Y": float(problems.Y.norm()),
        "norm_MtY": float(problems.adjoint(problems.Y).norm()),
        "alpha0": math.sqrt(squares),
        **layer_quantities(norms),
    }
    right = right_sides(q)
    return {name: right[name] - POWERS[name] * log10(q["alpha0"]) for name in CONDITIONS}


def _conditions(found: Sequence[tuple[str, Mapping[str, float]]]) -> Finding:
    worst = {label: max(short.values()) for label, short in found}
    return Finding(
        "The conditions (13) of Theorem 4.7 can be met by the proposed initialisation (section 5).",
        "; ".join(
            f"{label}: short by 10^{math.log10(value):.1f} decades" for label, value in worst.items() if value > 0.0
        ),
        all(value <= 0.0 for value in worst.values()),
        "Agreement means that all of them hold. The printed statement has a counterexample, and with (13d) as its proof needs "
        "it the conditions cannot be met for T >= 2 (step-sizes/as-printed).",
    )


def _larger(found: Sequence[tuple[Size, float, Mapping[str, float]]]) -> Finding:
    pairs: dict[str, list[float]] = {}
    for size, _, short in found:
        pairs.setdefault(str(size), []).append(max(short.values()))
    return Finding(
        "A larger expansion e brings the conditions closer (Lemmas 5.1 to 5.4).",
        "; ".join(
            f"{size}: 10^{math.log10(a):.1f} decades at e = 1, 10^{math.log10(b):.1f} at e = 100"
            for size, (a, b) in pairs.items()
        ),
        all(b < a for a, b in pairs.values()),
        "delta4 has exp(-delta3 Theta_L), and Theta_L grows with e as alpha0 does.",
    )


# -- tables and figures ------------------------------------------------------------------------------------------------


def _epochs(found: Run) -> Table:
    lines: list[tuple[Cell, ...]] = [(m.epochs, m.objectives[-1], m.at_end, m.mean, m.worse) for m in found.marks]
    columns = ("epochs", "F - F* at T, summed", "at T", "mean t <= T", "problems worse than GD")
    return Table("improvement on the training problems", columns, tuple(lines))


def _draw(runs: Mapping[str, Run], seed: int) -> Figure:
    figure, axes = charts.grid(len(runs), 3, panel=(4.0, 3.3))
    for line, (label, found) in zip(axes, runs.items(), strict=True):
        _panels(line, label, found, seed)
    return charts.finish(
        figure, axes, "Training of learned step sizes (best network so far)", "F - F*, summed over the problems"
    )


def _panels(line: Sequence[Axes], label: str, found: Run, seed: int) -> None:
    reference = gradient_descent(found.setting.size.problems(seed))
    last, trajectories, ratio = line
    last.plot(range(len(found.losses)), found.losses, color=charts.COLOURS[0], label="training", linewidth=1.6)
    last.axhline(reference[-1], color="black", linestyle="--", linewidth=1.2, label="gradient descent, 1/β")
    last.set_yscale("log")
    last.set_xlabel("epoch")
    charts.style(last, f"{label}: objective at T = {ITERATIONS}")
    shown = found.marks[1:][:: max(1, (len(found.marks) - 1) // 4)]
    if shown[-1] is not found.last:
        shown = [*shown, found.last]
    trajectories.plot(range(len(reference)), reference, color="black", linestyle="--", linewidth=1.2)
    for colour, mark in zip(charts.COLOURS[1:], shown, strict=False):
        trajectories.plot(
            range(len(mark.objectives)),
            mark.objectives,
            color=colour,
            linewidth=1.4,
            label=f"epoch {mark.epochs:,}",
        )
    trajectories.set_yscale("log")
    trajectories.set_xlabel("iteration t")
    charts.style(trajectories, f"{label}: objective along the iterations")
    x = [mark.epochs for mark in found.marks]
    ratio.plot(x, [100.0 * m.at_end for m in found.marks], "o-", color=charts.COLOURS[0], markersize=4, label="at T")
    ratio.plot(
        x, [100.0 * m.mean for m in found.marks], "s-", color=charts.COLOURS[2], markersize=4, label="mean over t ≤ T"
    )
    ratio.axhline(0.0, color="black", linestyle="--", linewidth=1.2)
    ratio.set_xlabel("epoch")
    charts.style(ratio, f"{label}: improvement over gradient descent, %")


def _draw_methods(found: Sequence[tuple[Size, Comparison]]) -> Figure:
    figure, axes = charts.grid(1, len(found), panel=(3.7, 3.4))
    for ax, (size, comparison) in zip(axes[0], found, strict=True):
        wanted = [GD, "GD 1.5/β", CONSTANT, "FISTA", "CGLS", LEARNED]
        curves = []
        for colour, name in zip(charts.COLOURS, wanted, strict=False):
            fresh = comparison[name].fresh
            assert fresh is not None
            lowest = 1e-8 * float(fresh.curves[:, 0].mean())  # where the rest is still told apart
            curves.append(charts.Curve(name, colour, fresh.curves.clamp(min=lowest).tolist()))
        charts.draw(ax, curves, title=str(size), logarithmic=False)
    return charts.finish(figure, axes, "Fresh problems, mean over them", "F - F*")


def _place(figure: str) -> str:
    number = int(figure.removeprefix("fig"))
    return f"Figure {number}" + (" and section 6" if number <= 5 else ", appendix C.1")
