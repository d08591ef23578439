"""Figures 3 and 4: what a larger width does to the conditioning and to the rate."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from .draws import repeat_generator
from .finished import Part, kept_all
from .result import Experiment, Plot, Progress, Table
from .summaries import mean
from .two_layer_instances import (
    CORRECTED,
    DRIFT,
    OPEN,
    PAPER,
    conditioning,
    final_factor,
    noisy_teacher,
    orthogonal,
)
from .two_layer_width_lemmas import lemmas_findings, lemmas_table
from .two_layer_width_plots import draw_figure3, draw_figure4
from .two_layer_width_runs import DELTA, PLAIN, RELATIVE, RULES, conditioned, plain_descent
from .two_layer_width_verdict import figure3_findings, figure4_findings


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
    lemmas: dict[tuple[float, int], list[dict[str, float]]] = {key: [] for key in kappas}
    parts = [
        Part(
            f"width {width}: repeat {repeat + 1} of {repeats}, {len(exponents)} exponents",
            {},
            {"width": width, "exponents": list(exponents), "n": n, "seed": seed, "repeat": repeat},
        )
        for width in widths
        for repeat in range(repeats)
    ]
    for part, result in zip(parts, kept_all(None, "", parts, conditioned, progress), strict=True):
        for i, p in enumerate(exponents):
            key = p, part.arguments["width"]
            kappas[key].append(result["kappas"][i])
            ratios[key].append(result["ratios"][i])
            lemmas[key].append(result["lemmas"][i])
    rows = tuple((p, h, mean(kappas[p, h]), mean([k * k for k in kappas[p, h]]), mean(ratios[p, h])) for p, h in kappas)
    columns = ("p", "width", "kappa(T_0)", "s+/s-", "alpha1/alpha2")
    return Experiment(
        name="two-layer/fig3",
        title="Width and the conditioning of the initial weights",
        reference=f"{PAPER}, appendix G.1, Figure 3",
        tables=(Table("conditioning", columns, rows), lemmas_table(lemmas)),
        figures=(Plot("fig3-conditioning.png", lambda: draw_figure3(kappas, ratios, list(exponents), list(widths))),),
        findings=(*figure3_findings(kappas, ratios, list(exponents), list(widths)), *lemmas_findings(lemmas)),
        settings={
            "n = m": n,
            "widths": list(widths),
            "p": list(exponents),
            "repeats": repeats,
            "theta and noise": "variance .1",
            "bounds in probability": f"at delta = {DELTA:g}",
            "repeats use": "the same X, theta and noise at every width; every p scales the same draw",
        },
    )


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
        figures=(Plot("fig4-rates.png", lambda: draw_figure4(gaps, list(variances), list(widths))),),
        findings=figure4_findings(table, list(variances), list(widths)),
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
