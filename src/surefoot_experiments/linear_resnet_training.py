"""Figure 1: input and output transformations (a, b), and ResNets beside standard deep linear networks (c, d)."""

from __future__ import annotations

from collections.abc import Sequence

from .finished import Part, kept_all
from .linear_resnet_instances import (
    FACTORS,
    PAPER,
)
from .linear_resnet_training_plots import draw_gaps
from .linear_resnet_training_runs import (
    GAUSSIAN,
    GRID,
    IDENTITY,
    MODIFIED,
    PLATEAU,
    THEOREM,
    Runs,
    Search,
    collected,
    common_settings,
    control,
    deepened,
    escape,
    residual_label,
    standard_label,
    transformed,
)
from .linear_resnet_training_verdict import depth_findings, transformation_findings
from .result import Experiment, Plot, Progress, Table
from .summaries import median


def _table(runs: Runs) -> Table:
    rows = tuple(
        (label, step, median(s.factors), median(s.counts), s.final, median([float(len(g) - 1) for g in s.gaps]))
        for (label, step), s in runs.items()
    )
    return Table("runs", ("network", "step", "step / unit step", "iterations", "last relative gap", "run for"), rows)


def transformations(
    name: str,
    width: int,
    repeats: int = 5,
    limit: int = 50_000,
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
    d: int = 10,
    depth: int = 10,
    samples: int = 1000,
    factors: Sequence[float] = FACTORS,
    tuning: int = 500,
) -> Experiment:
    """Three input and output transformations of a ResNet of the given width, with α = sqrt(m/k) for both identities."""
    search: Search = {"factors": list(factors), "tuning": tuning, "limit": limit}
    common = {"width": width, "d": d, "depth": depth, "samples": samples, "seed": seed, "search": search}
    parts = [
        Part(f"width {width}: repeat {repeat + 1} of {repeats}", {}, {**common, "repeat": repeat})
        for repeat in range(repeats)
    ]
    results = kept_all(None, "", parts, transformed, progress)
    runs = collected(results)
    losses = {label: [repeat["losses"][label] for repeat in results] for label in (IDENTITY, MODIFIED, GAUSSIAN)}
    controls = _controls(seed, width, d, depth, samples, limit, progress)
    starts = Table("initial loss", ("network", "initial loss"), tuple((k, median(v)) for k, v in losses.items()))
    return Experiment(
        name=name,
        title=f"Input and output transformations, width {width}",
        reference=f"{PAPER}, section 5.1, Figure 1({name[-1]})",
        tables=(_table(runs), starts, controls),
        figures=(
            Plot(f"{name.split('/')[1]}-transformations.png", lambda: draw_gaps(runs, f"m = {width}, L = {depth}")),
        ),
        findings=transformation_findings(runs, losses, controls),
        settings={
            **common_settings(repeats, **search),
            "d = k": d,
            "samples": samples,
            "width": width,
            "depth": depth,
            "scale of B": "sqrt(m/k) for both identities (open in the paper for the modified one)",
        },
    )


def _controls(seed: int, width: int, d: int, depth: int, samples: int, limit: int, progress: Progress) -> Table:
    """The identity transformation without noise, and in an odd dimension: there it has no way out."""
    rows: list[tuple[int, float, float | None, float | None, float]] = []
    common = {"seed": seed, "width": width, "depth": depth, "samples": samples, "limit": limit}
    parts = [
        Part(f"identity, d = {size}, noise {noise:g}", {}, {**common, "size": size, "noise": noise})
        for size, noise in ((d, 0.1), (d, 0.0), (d - 1, 0.1))
    ]
    for part, result in zip(parts, kept_all(None, "", parts, control, progress), strict=True):
        size, noise, gaps = part.arguments["size"], part.arguments["noise"], result["gaps"]
        plateau = gaps[PLATEAU] / gaps[0] if len(gaps) > PLATEAU else None
        rows.append((size, noise, plateau, median([escape(gaps)]), gaps[-1] / gaps[0]))
    columns = ("d = k", "noise", f"relative gap at {PLATEAU}", "left the plateau at", "last relative gap")
    return Table("identity with the unit step", columns, tuple(rows))


def depths(
    name: str,
    width: int,
    layers: Sequence[int],
    repeats: int = 3,
    limit: int = 1500,
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
    d: int = 10,
    samples: int = 1000,
    factors: Sequence[float] = FACTORS,
    tuning: int = 300,
) -> Experiment:
    """A ResNet beside standard networks of several depths, all with Gaussian A and B of the same distribution."""
    search: Search = {"factors": list(factors), "tuning": tuning, "limit": limit}
    common = {"width": width, "d": d, "samples": samples, "seed": seed, "search": search}
    parts = [
        Part(
            f"width {width}, depth {depth}: repeat {repeat + 1} of {repeats}",
            {},
            {**common, "depth": depth, "repeat": repeat},
        )
        for repeat in range(repeats)
        for depth in layers
    ]
    runs = collected(kept_all(None, "", parts, deepened, progress))
    labels = [residual_label(layers[-1]), *map(standard_label, layers)]
    shown = {(label, step): runs[label, step] for label in labels for step in (THEOREM, GRID)}
    return Experiment(
        name=name,
        title=f"ResNets and standard deep linear networks, width {width}",
        reference=f"{PAPER}, section 5.2, Figure 1({name[-1]})",
        tables=(_table(runs),),
        figures=(Plot(f"{name.split('/')[1]}-depths.png", lambda: draw_gaps(shown, f"m = {width}")),),
        findings=depth_findings(runs, layers),
        settings={
            **common_settings(repeats, **search),
            "d = k": d,
            "samples": samples,
            "width": width,
            "depths": list(layers),
            "standard network": "W_l ~ N(0, 1/m), the same A and B, and the formula of Theorem 3.1 with its own initial loss",
        },
    )
