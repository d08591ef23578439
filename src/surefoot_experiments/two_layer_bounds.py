"""Figure 1: the guaranteed bounds beside the loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from surefoot._core import charts
from surefoot._core.run import Run
from surefoot._two_layer.planner import smoothness_ahead

from .draws import repeat_generator
from .result import Experiment, Finding, Plot, Progress, Table
from .summaries import mean, rank_correlation
from .two_layer_instances import (
    CORRECTED,
    DRIFT,
    PAPER,
    TARGET,
    conditioning,
    guaranteed,
    local_smoothness,
    noisy_settings,
    reached,
    section_4,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RULES = {"paper-rho": CORRECTED, "paper-rho-bar": CORRECTED, "certified-bb": DRIFT}
"""The rules of the figure, each with the theorem whose bound it keeps."""
LOOSE = 3.0
"""A bound that needs at most this many times the iterations of the run counts as following it well."""


def bound_along(run: Run) -> list[float]:
    """The bound (20), L(0) Π h(η_k, k), at every iterate of a run: h = ρ for ``paper-rho``, ρ̄ for ``paper-rho-bar``."""
    q = run.certificate.quantities
    values = [q["initial_gap"]]
    for t, row in enumerate(run.rows[:-1]):
        eta = row["step"]
        if run.rule == "paper-rho":
            pl = q["strong_convexity"] * row["sigma_min_squared"]
            smoothness = local_smoothness(row, q["smoothness"], eta)
        else:
            pl, smoothness = q["mu_bar"], smoothness_ahead(q, t)
        values.append(values[-1] * (1.0 - pl * eta * (2.0 - smoothness * eta)))
    return values


@dataclass
class _Series:
    """One rule in one setting, over the repeats."""

    gaps: list[list[float]] = field(default_factory=list)
    ahead: list[list[float]] = field(default_factory=list)
    along: list[list[float]] = field(default_factory=list)
    executed: list[float] = field(default_factory=list)
    promised: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    compared: int = 0
    violations: int = 0

    def add(self, run: Run, ratio: float) -> None:
        certificate = run.certificate
        along = bound_along(run) if run.rule.startswith("paper") else []
        promised = guaranteed(certificate)
        horizon = max(len(run.gaps), min(int(promised) + 1, 50_000) if math.isfinite(promised) else 0)
        ahead = [certificate.bound(t) for t in range(horizon)]
        for bound in (ahead, along) if along else (ahead,):
            self.compared += len(run.gaps)
            self.violations += sum(gap > limit for gap, limit in zip(run.gaps, bound, strict=False))
        self.gaps.append(run.gaps)
        self.ahead.append(ahead)
        if along:
            self.along.append(along)
        self.executed.append(reached(run))
        self.promised.append(promised)
        self.ratios.append(ratio)

    @property
    def looseness_along(self) -> float | None:
        """Decades the run gained per decade that (20) gives it, on average over the repeats."""
        pairs = zip(self.gaps, self.along, strict=True) if self.along else ()
        values = [math.log(g[0] / g[-1]) / math.log(b[0] / b[-1]) for g, b in pairs if b[-1] < b[0] and g[-1] > 0.0]
        return mean(values) if values else None


def figure1(
    widths: Sequence[int] = (500, 1000, 4000),
    noises: Sequence[float] = (1.0, 10.0, 50.0),
    repeats: int = 30,
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
    n: int = 10,
) -> Experiment:
    """Bound against loss for the paper's two schedules and for certified Barzilai-Borwein steps under the drift bound.

    X is a random orthogonal (n, n) matrix, Y = X W1(0) W2(0)ᵀ + noise·N(0, 1), W1, W2 (n, width) with N(0, 1) entries.
    """
    settings: dict[tuple[float, int], dict[str, _Series]] = {}
    for noise in noises:
        for width in widths:
            progress(f"width {width}, noise {noise:g}: {repeats} repeats")
            series = {rule: _Series() for rule in RULES}
            for repeat in range(repeats):
                instance = section_4(width, noise, repeat_generator(seed, repeat), n=n)
                certificates = {theorem: instance.certify(theorem) for theorem in (CORRECTED, DRIFT)}
                for rule, theorem in RULES.items():
                    run = instance.run(rule, certificates[theorem])
                    series[rule].add(run, conditioning(certificates[theorem]))
            settings[noise, width] = series
    rows = tuple(_row(width, noise, rule, s) for (noise, width), by in settings.items() for rule, s in by.items())
    columns = (
        "width",
        "noise sd",
        "rule",
        "alpha1/alpha2",
        "iterations",
        "guaranteed",
        "guaranteed / iterations",
        "decades run / decades of (20)",
        "bounds compared",
        "violations",
    )
    table = Table("bounds and runs", columns, rows)
    return Experiment(
        name="two-layer/fig1",
        title="Guaranteed bounds against the loss",
        reference=f"{PAPER}, section 4.1, Figure 1",
        tables=(table,),
        figures=(Plot("fig1-bounds.png", lambda: _draw(settings, list(noises), list(widths))),),
        findings=_findings(table),
        settings={
            **noisy_settings(n, widths, noises, repeats),
            "comparison": "every iterate, without a tolerance",
        },
    )


def _row(width: int, noise: float, rule: str, s: _Series) -> tuple[str | int | float | None, ...]:
    executed, promised = mean(s.executed), mean(s.promised)
    loose = promised / executed if executed and promised else None
    return width, noise, rule, mean(s.ratios), executed, promised, loose, s.looseness_along, s.compared, s.violations


def _findings(table: Table) -> tuple[Finding, ...]:
    records = table.records()
    compared, violations = (sum(int(r[k] or 0) for r in records) for k in ("bounds compared", "violations"))
    paper = [r for r in records if str(r["rule"]).startswith("paper")]
    ours = [r for r in records if r["rule"] == "certified-bb"]

    def numbers(rows: list[dict[str, str | int | float | bool | None]], column: str) -> list[float]:
        return [math.inf if r[column] is None else float(r[column] or 0.0) for r in rows]

    loose = numbers(paper, "guaranteed / iterations")
    along = [x for x in numbers(paper, "decades run / decades of (20)") if math.isfinite(x)]
    findings = [
        Finding(
            "The loss stays under the bounds (17) and (20).",
            f"{violations} violations in {compared:,} comparisons",
            violations == 0,
            "Every iterate of every run is compared with every bound that its rule keeps. The certificate is that of "
            "the corrected theorem; for n = m it has the printed alpha1.",
        ),
        Finding(
            "The theoretical upper bound follows the actual loss well in all cases.",
            f"(17) needs {min(loose):.2f} to {max(loose):.2f} times the iterations of the run"
            + (f"; a run gains {min(along):.2f} to {max(along):.2f} decades per decade of (20)" if along else ""),
            max(loose) <= LOOSE,
            f"Agreement means at most {LOOSE:g} times the iterations, our reading of 'well'.",
        ),
    ]
    if len(paper) >= 6:
        ratios = numbers(paper, "alpha1/alpha2")
        runs, bounds = (rank_correlation(ratios, numbers(paper, k)) for k in ("iterations", "guaranteed"))
        findings.append(
            Finding(
                "Bounds and runs become slower as alpha1/alpha2 decreases.",
                f"rank correlation of alpha1/alpha2 with iterations {runs:.2f}, with guaranteed ones {bounds:.2f}",
                max(runs, bounds) <= -0.8,
                "Agreement means a rank correlation of at most -0.8 over the settings and both schedules.",
            )
        )
    executed, promised = numbers(ours, "iterations"), numbers(ours, "guaranteed")
    ahead = numbers([r for r in paper if r["rule"] == "paper-rho"], "guaranteed")
    findings.append(
        Finding(
            "(Not in the paper: the drift bound with certified Barzilai-Borwein steps.)",
            f"guaranteed {min(promised):.0f} to {max(promised):.0f} iterations where the paper's bound needs "
            f"{min(ahead):.0f} to {max(ahead):.0f}; executed {min(executed):.0f} to {max(executed):.0f}",
            None,
            "The drift budget limits the sum of the drifts instead of fixing a schedule in advance, so that a small "
            "alpha1/alpha2 costs little.",
        )
    )
    return tuple(findings)


def _draw(settings: dict[tuple[float, int], dict[str, _Series]], noises: list[float], widths: list[int]) -> Figure:
    figure, axes = charts.grid(len(noises), len(widths))
    for line, noise in zip(axes, noises, strict=True):
        for ax, width in zip(line, widths, strict=True):
            curves: list[charts.Curve] = []
            for colour, (rule, s) in zip(charts.COLOURS, settings[noise, width].items(), strict=False):
                curves.append(charts.Curve(rule, colour, s.gaps))
                if s.along:
                    curves.append(charts.Curve(f"bound (20) of {rule}", colour, s.along, marker="v"))
                if rule == "certified-bb":
                    curves.append(charts.Curve("drift bound", colour, s.ahead, marker="^"))
                elif rule == "paper-rho":
                    curves.append(charts.Curve("bound (17), both schedules", "#000000", s.ahead, marker="^"))
            ratio = mean(settings[noise, width]["paper-rho"].ratios) or 0.0
            charts.draw(ax, curves, title=f"h = {width}, noise sd {noise:g}, α₁/α₂ = {ratio:.2g}", floor=TARGET)
    return charts.finish(figure, axes, "Guaranteed bounds (dashed) and gaps (solid)", "gap L(t)")
