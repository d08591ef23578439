"""Figures 3 and 4: what a larger width does to the conditioning and to the rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from surefoot._core.losses import SquaredLoss
from surefoot._report import charts
from surefoot._two_layer.iterate import squared_extremes

from .draws import repeat_generator
from .finished import Part, kept_all
from .result import Experiment, Finding, Plot, Progress, Table
from .summaries import mean
from .two_layer_instances import (
    CORRECTED,
    DRIFT,
    OPEN,
    PAPER,
    Instance,
    conditioning,
    final_factor,
    gaussian,
    noisy_teacher,
    orthogonal,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RELATIVE = 1e-12
"""Relative gap at which the runs of figure 4 end."""
ALMOST = 1.5
"""At most this many times the iterations of plain gradient descent is 'almost matching' it."""


def condition_number(instance: Instance) -> float:
    """κ(T_0) = σ_max(T_0)/σ_min(T_0) = sqrt(s+/s-)."""
    low, high = zip(*(squared_extremes(W) for W in (instance.W1, instance.W2)), strict=True)
    return math.sqrt(sum(high) / sum(low))


def figure3(
    widths: Sequence[int] = (500, 750, 1000, 1250, 1500, 1750, 2000),
    exponents: Sequence[float] = (0.275, 0.375, 0.475),
    repeats: int = 30,
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
    n: int = 10,
) -> Experiment:
    """κ(T_0) and α1/α2 by width for weights N(0, h^(-2p)); the p share their Gaussian draws.

    X is a random orthogonal (n, n) matrix, Y = XΘ + noise; Θ and the noise have N(0, .1) entries (variance .1).
    """
    kappas: dict[tuple[float, int], list[float]] = {(p, h): [] for p in exponents for h in widths}
    ratios: dict[tuple[float, int], list[float]] = {key: [] for key in kappas}
    parts = [
        Part(
            f"width {width}: repeat {repeat + 1} of {repeats}, {len(exponents)} exponents",
            {},
            {"width": width, "exponents": list(exponents), "n": n, "seed": seed, "repeat": repeat},
        )
        for width in widths
        for repeat in range(repeats)
    ]
    for part, found in zip(parts, kept_all(None, "", parts, conditioned, progress), strict=True):
        for p, kappa, ratio in zip(exponents, found["kappas"], found["ratios"], strict=True):
            kappas[p, part.arguments["width"]].append(kappa)
            ratios[p, part.arguments["width"]].append(ratio)
    rows = tuple((p, h, mean(kappas[p, h]), mean([k * k for k in kappas[p, h]]), mean(ratios[p, h])) for p, h in kappas)
    columns = ("p", "width", "kappa(T_0)", "s+/s-", "alpha1/alpha2")
    return Experiment(
        name="two-layer/fig3",
        title="Width and the conditioning of the initial weights",
        reference=f"{PAPER}, appendix G.1, Figure 3",
        tables=(Table("conditioning", columns, rows),),
        figures=(Plot("fig3-conditioning.png", lambda: _draw3(kappas, ratios, list(exponents), list(widths))),),
        findings=_findings3(kappas, ratios, list(exponents), list(widths)),
        settings={
            "n = m": n,
            "widths": list(widths),
            "p": list(exponents),
            "repeats": repeats,
            "theta and noise": "variance .1",
            "repeats use": "the same X, theta and noise at every width; every p scales the same draw",
        },
    )


def conditioned(width: int, exponents: Sequence[float], n: int, seed: int, repeat: int) -> dict[str, list[float]]:
    """κ(T_0) and α1/α2 of one repeat by exponent."""
    generator = repeat_generator(seed, repeat)
    X = orthogonal(n, generator)
    target = X @ gaussian(n, n, generator) + gaussian(n, n, generator)
    loss = SquaredLoss(X, math.sqrt(0.1) * target)
    W1, W2 = gaussian(n, width, generator), gaussian(n, width, generator)
    instances = [Instance(width**-p * W1, width**-p * W2, loss) for p in exponents]
    return {
        "kappas": [condition_number(instance) for instance in instances],
        "ratios": [conditioning(instance.certify(CORRECTED)) for instance in instances],
    }


def _findings3(
    kappas: dict[tuple[float, int], list[float]],
    ratios: dict[tuple[float, int], list[float]],
    exponents: list[float],
    widths: list[int],
) -> tuple[Finding, ...]:
    def average(values: list[float]) -> float:
        return sum(values) / len(values)

    first, last, low, high = widths[0], widths[-1], min(exponents), max(exponents)
    by_width = [average(kappas[low, h]) for h in widths]
    differences = [
        abs(kappa / same - 1.0)
        for p in exponents
        for h in widths
        for kappa, same in zip(kappas[p, h], kappas[low, h], strict=True)
    ]
    decided = [(average(ratios[low, h]), average(ratios[high, h])) for h in widths]
    ordered = all(a < b for a, b in decided)
    holds = [ratio <= kappa**-2 for key in kappas for kappa, ratio in zip(kappas[key], ratios[key], strict=True)]
    return (
        Finding(
            "For fixed p, a larger width leads to a well-conditioned T_0.",
            f"kappa(T_0) {by_width[0]:.2f} at h = {first}, {by_width[-1]:.2f} at h = {last}",
            all(a > b for a, b in pairwise(by_width)),
            "The mean falls at every width.",
        ),
        Finding(
            "T_0 is well-conditioned under suitable choices of p; Figure 3 has one curve of kappa(T_0) for each p.",
            f"for the same draw, kappa(T_0) differs between the p by {max(differences):.0e} of itself",
            max(differences) > 1e-6,
            "Scaling all weights by h^(-p) scales every singular value of T_0 alike: no p changes kappa(T_0), and "
            "separate curves can only come from separate random draws.",
        ),
        Finding(
            "For a fixed width, a smaller p leads to a smaller alpha1/alpha2.",
            f"at h = {last}: {decided[-1][0]:.3f} for p = {low:g}, {decided[-1][1]:.3f} for p = {high:g}",
            ordered,
            "Backwards: Theorem 3.3 gives 1 - O(h^(2p-1)), which grows as p falls; larger weights make the imbalance "
            "large beside the margin's radius (docs/errata.md).",
        ),
        Finding(
            "1/kappa(T_0)^2 is at least alpha1/alpha2 (21), squares corrected.",
            f"holds in {sum(holds)} of {len(holds)} cases",
            all(holds),
            "alpha1 and alpha2 bound the squared singular values s- and s+.",
        ),
    )


def _draw3(
    kappas: dict[tuple[float, int], list[float]],
    ratios: dict[tuple[float, int], list[float]],
    exponents: list[float],
    widths: list[int],
) -> Figure:
    figure, axes = charts.grid(1, 2, panel=(4.6, 3.4))
    for index, p in enumerate(exponents):
        for ax, values in zip(axes[0], (kappas, ratios), strict=True):
            data = torch.tensor([values[p, h] for h in widths], dtype=torch.float64)
            centre, spread = data.mean(1), data.std(1, correction=0)
            ax.plot(
                widths,
                centre.tolist(),
                color=charts.COLOURS[index],
                label=f"p = {p:g}",
                marker="osv^D"[index % 5],
                markersize=9 - 2 * index,
                linewidth=3.0 - 0.8 * index,
            )
            ax.fill_between(
                widths,
                (centre - spread).tolist(),
                (centre + spread).tolist(),
                color=charts.COLOURS[index],
                alpha=0.15,
                linewidth=0,
            )
    for ax, title in zip(axes[0], ("κ(T₀): the same for every p", "α₁/α₂"), strict=True):
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xticks(widths, [str(h) for h in widths])
        ax.minorticks_off()
        low, high = ax.get_ylim()
        candidates = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 1.1, 1.15, 1.2, 1.25, 1.3, 1.4, 1.6, 2.0, 3.0)
        ticks = [t for t in candidates if low < t < high]
        ax.set_yticks(ticks, [f"{t:g}" for t in ticks])
        ax.set_xlabel("width h")
        charts.style(ax, title)
    return charts.finish(figure, axes, "Conditioning of the initial weights N(0, h^(-2p))", "")


RULES = {"paper-rho": CORRECTED, "exact-line-search": DRIFT, "certified-bb": DRIFT}
PLAIN = "plain gradient descent"


def figure4(
    widths: Sequence[int] = (100, 500, 1000, 4000),
    variances: Sequence[float] = (0.1, 0.01),
    repeats: int = 30,
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
    n: int = 5,
) -> Experiment:
    """Overparametrised training beside plain gradient descent with step 1/σ²_max(X) from the same W(0).

    Weights N(0, 1/h), singular values of X (n, n) uniform in [1.8, 2.3], Y = X W1(0) W2(0)ᵀ + noise of each variance.
    """
    gaps: dict[tuple[float, int], dict[str, list[list[float]]]] = {}
    ratios: dict[tuple[float, int], list[float]] = {}
    for variance in variances:
        for width in widths:
            progress(f"width {width}, noise variance {variance:g}: {repeats} repeats")
            key = (variance, width)
            gaps[key], ratios[key] = {PLAIN: [], **{rule: [] for rule in RULES}}, []
            for repeat in range(repeats):
                generator = repeat_generator(seed, repeat)
                singular = 1.8 + 0.5 * torch.rand(n, dtype=torch.float64, generator=generator)
                X = orthogonal(n, generator) * singular @ orthogonal(n, generator)
                instance = noisy_teacher(X, width, math.sqrt(variance), generator, width**-0.5)
                gaps[key][PLAIN].append(plain_descent(instance))
                certificates = {theorem: instance.certify(theorem) for theorem in (CORRECTED, DRIFT)}
                ratios[key].append(conditioning(certificates[CORRECTED]))
                for rule, theorem in RULES.items():
                    run = instance.run(rule, certificates[theorem], tolerance=RELATIVE, absolute_tolerance=0.0)
                    gaps[key][rule].append(run.gaps)
    rows = tuple(
        (
            variance,
            width,
            mean(ratios[variance, width]),
            name,
            mean([float(len(run) - 1) if run[-1] <= RELATIVE * run[0] else math.inf for run in runs]),
            mean([final_factor(run) for run in runs]),
        )
        for (variance, width), by in gaps.items()
        for name, runs in by.items()
    )
    columns = ("noise variance", "width", "alpha1/alpha2", "method", "iterations", "final factor")
    table = Table("rates", columns, rows)
    return Experiment(
        name="two-layer/fig4",
        title="Overparametrised training beside plain gradient descent",
        reference=f"{PAPER}, appendix G.2, Figure 4",
        tables=(table,),
        figures=(Plot("fig4-rates.png", lambda: _draw4(gaps, list(variances), list(widths))),),
        findings=_findings4(table, list(variances), list(widths)),
        settings={
            **OPEN,
            "n = m": n,
            "widths": f"{list(widths)} (open in the paper)",
            "noise variance": f"{list(variances)}; N(0, 0.1) in the paper means .1, or .01 if .1 is an sd",
            "repeats": repeats,
            "relative gap reached": RELATIVE,
            "plain gradient descent": "from W1(0) W2(0)^T, step 1/K",
            "final factor": "mean factor of the gap per iteration over the last quarter of a run",
        },
    )


def plain_descent(instance: Instance) -> list[float]:
    """Gaps of gradient descent on W itself with step 1/K from W1(0) W2(0)ᵀ, to the relative gap of figure 4."""
    loss, W = instance.loss, instance.W1 @ instance.W2.T
    gaps = [loss.gap(W)]
    while gaps[-1] > RELATIVE * gaps[0]:
        W = W - loss.gradient(W) / loss.smoothness
        gaps.append(loss.gap(W))
    return gaps


def _findings4(table: Table, variances: list[float], widths: list[int]) -> tuple[Finding, ...]:
    cells = {(r["noise variance"], r["width"], r["method"]): r for r in table.records()}

    def count(variance: float, width: int, method: str) -> float:
        value = cells[variance, width, method]["iterations"]
        return math.inf if value is None else float(value)

    found: list[Finding] = []
    last = widths[-1]
    for variance in variances:
        ours, plain = count(variance, last, "paper-rho"), count(variance, last, PLAIN)
        found.append(
            Finding(
                f"Steps (19) almost match plain gradient descent at large width (noise variance {variance:g}).",
                f"h = {last}: {ours:.1f} iterations beside {plain:.1f}",
                ours <= ALMOST * plain,
                f"Agreement means at most {ALMOST:g} times the iterations. The schedule stays near .999 eta_max, far "
                "below 1/K_t, because the noise makes L(0) large beside alpha1.",
            )
        )
        factors = [float(cells[variance, h, "paper-rho"]["final factor"] or 1.0) for h in widths]
        wider = [float(cells[variance, h, "paper-rho"]["alpha1/alpha2"] or 0.0) for h in widths]
        found.append(
            Finding(
                f"As the width grows, alpha1/alpha2 grows and the rate comes closer (noise variance {variance:g}).",
                f"h = {widths[0]} to {last}: alpha1/alpha2 {wider[0]:.2f} to {wider[-1]:.2f}, "
                f"final factor {factors[0]:.3f} to {factors[-1]:.3f}",
                wider[-1] > wider[0] and factors[-1] < factors[0],
                "Smallest against largest width.",
            )
        )
    bb = [count(v, last, "certified-bb") for v in variances]
    search = [count(v, last, "exact-line-search") for v in variances]
    plain = [count(v, last, PLAIN) for v in variances]
    found.append(
        Finding(
            "(Not in the paper: rules without a schedule at the largest width.)",
            f"iterations: certified-bb {min(bb):.1f} to {max(bb):.1f}, exact line search {min(search):.1f} to "
            f"{max(search):.1f}, plain gradient descent {min(plain):.1f} to {max(plain):.1f}",
            None,
            "The network itself is not slower: with steps that follow its current weights it matches plain gradient "
            "descent.",
        )
    )
    return tuple(found)


def _draw4(
    gaps: dict[tuple[float, int], dict[str, list[list[float]]]], variances: list[float], widths: list[int]
) -> Figure:
    figure, axes = charts.grid(len(variances), len(widths), panel=(3.1, 2.7))
    for line, variance in zip(axes, variances, strict=True):
        for ax, width in zip(line, widths, strict=True):
            curves = [
                charts.Curve(name, colour, runs)
                for colour, (name, runs) in zip(
                    (charts.COLOURS[1], charts.COLOURS[0], charts.COLOURS[2], charts.COLOURS[6]),
                    gaps[variance, width].items(),
                    strict=True,
                )
            ]
            charts.draw(ax, curves, title=f"h = {width}, noise variance {variance:g}")
    return charts.finish(figure, axes, "Overparametrised training beside plain gradient descent", "gap L(t)")
