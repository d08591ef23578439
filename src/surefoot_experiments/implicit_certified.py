"""Guaranteed iterations by three theorems, and what a guarantee costs in feature movement."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from surefoot._core.certificate import Certificate, evaluate
from surefoot._core.descent import certify, descend
from surefoot._core.run import Run
from surefoot._core.samples import SampleLoss
from surefoot._implicit.network import ImplicitReLU
from surefoot._implicit.scale import NotCertifiable
from surefoot._implicit.system import step_choices
from surefoot._report import charts
from surefoot_check.theorems import implicit_gd, implicit_measured, implicit_spectral
from surefoot_check.theorems.statement import Theorem, iterations_to

from .draws import repeat_generator
from .finished import Part, kept_all
from .implicit_data import DIGITS, PAPER, TwoClass, available, described, draw
from .result import Cell, Experiment, Finding, Plot, Progress, Table
from .summaries import median

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPECTRAL, MEASURED, GD = implicit_spectral.THEOREM, implicit_measured.THEOREM, implicit_gd.THEOREM
LABELS = {SPECTRAL.id: "implicit/spectral", MEASURED.id: "implicit/measured", GD.id: "paper, implicit/gd"}
RATIO = 1e-3
"""Loss relative to the initial one to which iterations are counted."""
PAPER_CONTRACTION = 0.1
"""γ‖A‖ for the paper's theorem: that of its experiments."""
LARGEST = 40
"""log2 of the scale that stands for an infinite one."""
LOOSE = 1.01
"""Counts this close to that of an infinite scale are taken as equal."""
RESOLUTION = 2.0**-4
"""Of log2 of a least scale."""
POWERS = {"gamma": -1, "norm_A": 1, "norm_W": 1, "sigma_min_Z": 1, "norm_Z": 1}
"""How base quantities depend on β where W and A are multiplied by it, γ is divided by it, and b = 0."""

Size = tuple[int, int]

DIGITS_SIZE: Size = (10, 40)
"""Largest N and m of ``tradeoff`` on digits: their 64 pixels make rows so alike that runs of 50 samples take minutes each."""


@dataclass(frozen=True)
class _Draw:
    """One draw of data and weights.

    Attributes:
        counts, scales: guaranteed iterations and β by theorem; ``None`` where it fails for every β.
        executed: whether the run under ``implicit/spectral`` was made.
        needed: its iterations; ``None`` if it did not reach the ratio in the guaranteed ones.
        violations: found by its audit.
    """

    counts: dict[str, float | None]
    scales: dict[str, float | None]
    executed: bool = False
    needed: int | None = None
    violations: int = 0


def certificates(
    sizes: Sequence[Size] = ((20, 80), (50, 200), (100, 400), (200, 800), (500, 2000), (1000, 2000), (1000, 4000)),
    repeats: int = 5,
    executed: int = 200,
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
    data: Path | None = None,
    cache: Path | None = None,
) -> Experiment:
    """Guaranteed iterations to a loss ratio of 1e-3 on MNIST 0 and 1; runs up to ``executed`` samples."""
    wanted = ["MNIST"]
    used = available(wanted, data)
    counts: list[Size] = []

    def parts() -> Iterator[Part]:
        for samples, width in sizes:
            for repeat in range(repeats):
                generator = repeat_generator(seed, repeat)
                drawn = draw(used[0], data, samples, generator, unseen=2)
                counts.append((len(drawn.X), width))
                choices = {"width": width, "seed": _seed(generator), "executed": samples <= executed}
                yield Part(
                    f"N = {samples}, m = {width}: draw {repeat + 1} of {repeats}",
                    {"data": drawn.digest, **choices},
                    {"name": drawn.name, **choices},
                    {"X": drawn.X, "Y": drawn.Y, "X_test": drawn.X_test, "Y_test": drawn.Y_test},
                )

    rows: dict[Size, list[_Draw]] = {}
    found = kept_all(cache, "certificates", parts(), computed_draw, progress)
    for size, result in zip(counts, found, strict=True):
        rows.setdefault(size, []).append(_Draw(**result))
    table = Table(
        "guaranteed iterations",
        ("N", "m", *LABELS.values(), "needed", "runs", "violations", "scale", "scale, paper"),
        tuple(_cells(size, draws) for size, draws in rows.items()),
    )
    return Experiment(
        name="implicit/certificates",
        title=f"Iterations guaranteed to a loss ratio of {RATIO:g}, {used[0]} 0 and 1",
        reference=f"{PAPER}, Theorem 4.4, beside the theorems of this project",
        tables=(table,),
        figures=(Plot("certificates.png", lambda: _draw_certificates(table)),),
        findings=_certificate_findings(rows),
        settings={
            "data": described(wanted, used),
            "repeats": f"{repeats}; medians over them",
            "initialisation": "W ~ N(0, 1/m), A = I, b = 0, times beta",
            "beta": f"the least at which the count is within {LOOSE - 1.0:.0%} of that for an infinite beta",
            "gamma|A| of implicit/gd": PAPER_CONTRACTION,
            "executed": f"up to N = {executed}",
        },
    )


def scaled(net: ImplicitReLU, factor: float, contraction: float | None = None) -> ImplicitReLU:
    """Weights times ``factor`` (b = 0), γ divided by it, or such that γ‖A‖ is ``contraction``, for A a multiple of I."""
    A = factor * net.A.detach()
    gamma = net.gamma / factor if contraction is None else contraction / float(A.diagonal().max())
    return ImplicitReLU(factor * net.W.detach(), A, torch.zeros_like(net.b), gamma)


def least_scale(statement: Theorem, base: Mapping[str, float]) -> float | None:
    """The least factor of the weights at which the theorem's count is about that of an infinite one, to 2^(1/16)."""

    def count(exponent: float) -> float:
        at = {name: value * 2.0 ** (exponent * POWERS.get(name, 0)) for name, value in base.items()}
        found = [evaluate(statement, {**at, **choices})[2] for choices in step_choices(statement.id, at)]
        return min((iterations_to(schedule, RATIO) for schedule in found if schedule), default=math.inf)

    limit = count(LARGEST)
    if not math.isfinite(limit):
        return None
    low, high = -float(LARGEST), float(LARGEST)
    while high - low > RESOLUTION:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if count(middle) <= LOOSE * limit else (middle, high)
    return 2.0**high


def smallest_certified(net: ImplicitReLU, loss: SampleLoss) -> float | None:
    """The least factor of the weights at which ``implicit/spectral`` holds, to 2^(1/16); ``None`` where it fails at 1."""
    low, high = -1.0, 0.0
    if not certify(net, loss, SPECTRAL.id).holds:
        return None
    while certify(scaled(net, 2.0**low), loss, SPECTRAL.id).holds:
        low, high = 2.0 * low, low
    while high - low > RESOLUTION:
        middle = 0.5 * (low + high)
        holds = certify(scaled(net, 2.0**middle), loss, SPECTRAL.id).holds
        low, high = (low, middle) if holds else (middle, high)
    return 2.0**high


def _seed(generator: torch.Generator) -> int:
    """Of the weights, after the data."""
    return int(torch.randint(2**31, (1,), generator=generator))


def computed_draw(name: str, width: int, seed: int, executed: bool, **data: Tensor) -> dict[str, Any]:
    """What a file keeps of a draw; ``data`` are the tensors of ``TwoClass``."""
    return asdict(_one_draw(TwoClass(name, **data), width, seed, executed))


def _one_draw(drawn: TwoClass, width: int, seed: int, executed: bool) -> _Draw:
    counts: dict[str, float | None] = dict.fromkeys(LABELS)
    scales: dict[str, float | None] = dict.fromkeys(LABELS)
    try:
        spectral = ImplicitReLU.certifiable(drawn.X, drawn.Y, width, seed=seed)
    except NotCertifiable:
        return _Draw(counts, scales)
    networks: dict[str, ImplicitReLU | None] = {SPECTRAL.id: spectral}
    for statement, contraction in ((MEASURED, None), (GD, PAPER_CONTRACTION)):
        start = scaled(spectral, 1.0, contraction)
        quantities = certify(start, drawn.loss, statement.id).quantities
        factor = least_scale(statement, {name: quantities[name] for name in statement.base})
        networks[statement.id] = None if factor is None else scaled(start, factor * (1.0 + 1e-3))
    for name, net in networks.items():
        certificate = None if net is None else certify(net, drawn.loss, name)
        if net is not None and certificate is not None and certificate.holds:
            counts[name], scales[name] = certificate.iterations_to(RATIO), _beta(net)
    guaranteed = counts[SPECTRAL.id]
    if not executed or guaranteed is None:
        return _Draw(counts, scales)
    run = descend(spectral, drawn.loss, max_iterations=int(guaranteed), tolerance=RATIO, progress=False)
    needed = run.iterations if run.gaps[-1] <= RATIO * run.gaps[0] else None
    return _Draw(counts, scales, True, needed, sum(not line.holds for line in run.audit().lines))


def _cells(size: Size, draws: Sequence[_Draw]) -> tuple[Cell, ...]:
    counts = (median(d.counts[name] for d in draws) for name in LABELS)
    run = [d for d in draws if d.executed]
    needed = median(d.needed for d in run) if run else None
    runs, violations = (len(run), sum(d.violations for d in run)) if run else (None, None)
    scales = (median(d.scales[name] for d in draws) for name in (SPECTRAL.id, GD.id))
    return *size, *counts, needed, runs, violations, *scales


def _certificate_findings(rows: Mapping[Size, Sequence[_Draw]]) -> tuple[Finding, ...]:
    run = [draw for draws in rows.values() for draw in draws if draw.executed]
    within = [draw for draw in run if draw.needed is not None]
    violations = sum(draw.violations for draw in run)
    excess = [(draw.counts[SPECTRAL.id] or 0.0) / draw.needed for draw in within if draw.needed]
    scales = {size: median(draw.scales[GD.id] for draw in draws) for size, draws in rows.items()}
    held = {size: scale for size, scale in scales.items() if scale is not None}
    counts: list[str] = []
    for size in held:
        paper, ours = (median(draw.counts[name] for draw in rows[size]) for name in (GD.id, SPECTRAL.id))
        if paper is not None and ours is not None:
            counts.append(f"N = {size[0]}, m = {size[1]}: {paper:.1e}, {paper / ours:.0e} times implicit/spectral's")
    return (
        Finding(
            "The conditions (17) to (19) can be satisfied by a large beta (section 7).",
            f"for {len(held)} of {len(rows)} sizes"
            + (", with beta " + ", ".join(f"{scale:.0f}" for scale in held.values()) if held else ""),
            len(held) == len(rows),
            "Agreement means a finite median at every size. sigma_min(Z) must be positive, which takes a width of about 2 N on "
            "images: with m = N dead units leave sigma_min(Z) = 0, and then no beta helps.",
        ),
        Finding(
            "(Not in the paper: how many iterations Theorem 4.4 guarantees.)",
            "; ".join(counts) or "none",
            None,
            "C1, C2 and C3 are chosen for the largest step that the theorem allows. The step is limited by the norms of all "
            "weights, the rate by the smallest eigenvalue of Z Zᵀ; the count hardly depends on beta.",
        ),
        Finding(
            "(Not in the paper: certified runs keep their guarantee.)",
            f"{len(within)} of {len(run)} runs reach {RATIO:g} within the guaranteed iterations; {violations} audit violations"
            + (f"; guaranteed over needed {min(excess):.3f} to {max(excess):.3f}" if excess else ""),
            len(within) == len(run) and violations == 0 if run else None,
            "Every inequality of the certificate is checked at every step of the runs.",
        ),
    )


def _draw_certificates(table: Table) -> Figure:
    figure, axes = charts.grid(1, 1, panel=(5.2, 3.6))
    ax = axes[0][0]
    markers = {**dict(zip(LABELS.values(), ("o-", "s-", "^-"), strict=True)), "needed": "x"}
    for (column, style), colour in zip(markers.items(), (*charts.COLOURS[:3], "k"), strict=True):
        values = [(place, value) for place, value in enumerate(table.column(column)) if isinstance(value, int | float)]
        ax.plot(*zip(*values, strict=True), style, color=colour, label=column, linewidth=1.4)
    ax.set_yscale("log")
    ax.set_xticks(range(len(table.rows)), [f"{row[0]}\n{row[1]}" for row in table.rows])
    ax.set_xlabel("N (above) and m (below)")
    charts.style(ax, f"iterations to a loss ratio of {RATIO:g}")
    return charts.finish(figure, axes, "Guaranteed iterations, medians", "iterations")


# -- guarantee and feature movement ---------------------------------------------------------------------------------

COLUMNS = ("beta", "certified", "guaranteed", "needed", "feature movement", "ended")


def tradeoff(
    size: Size = (100, 400),
    octaves: Sequence[float] = (-7, -6, -5, -4, -3, -2, -1, -0.5, 0, 0.1, 0.25, 0.5, 1, 1.5, 2, 3, 4, 6),
    *,
    limit: int = 5,
    seed: int = 0,
    progress: Progress = lambda text: None,
    data: Path | None = None,
) -> Experiment:
    """Guaranteed iterations and ‖Z-Z0‖/‖Z0‖ against β at fixed γβ: from the least certified β upwards, and uncertified below.

    Args:
        size: N and m; at most ``DIGITS_SIZE`` where MNIST is absent.
        octaves: log2 of β over the least certified one.
        limit: runs end after so many times the iterations that an infinite β guarantees.
        seed, progress, data: as for the other experiments.
    """
    wanted = ["MNIST"]
    used = available(wanted, data)
    samples, width = map(min, size, DIGITS_SIZE) if used[0] == DIGITS else size
    generator = repeat_generator(seed, 0)
    drawn = draw(used[0], data, samples, generator, unseen=2)
    start = ImplicitReLU.certifiable(drawn.X, drawn.Y, width, seed=_seed(generator))
    progress("the least certified scale")
    factor = smallest_certified(start, drawn.loss)
    assert factor is not None
    least = scaled(start, factor)
    far = certify(scaled(start, 2.0**10), drawn.loss, SPECTRAL.id)
    most = int(limit * far.iterations_to(RATIO))
    # η of the certificate at every scale, continued below the least
    step = float(far.step_size or 0.0) * _beta(start) ** 2 * 4.0**10
    rows: list[tuple[Cell, ...]] = []
    for octave in octaves:
        at = scaled(least, 2.0**octave)
        beta = _beta(at)
        progress(f"beta = {beta:.3g}")
        certificate = certify(at, drawn.loss, SPECTRAL.id)
        size_Z = float(torch.linalg.vector_norm(at.equilibrium(drawn.X).Z))
        run = descend(
            at,
            drawn.loss,
            steps=None if certificate.holds else step / beta**2,
            max_iterations=most,
            tolerance=RATIO,
            certificate=certificate,
            progress=False,
        )
        rows.append((beta, certificate.holds, *_outcome(certificate, run, size_Z)))
    table = Table("scale", COLUMNS, tuple(rows))
    a = start.gamma * _beta(start)
    return Experiment(
        name="implicit/tradeoff",
        title="Guarantee and feature movement against the scale of the weights",
        reference=f"implicit/spectral on the initialisation of {PAPER}, section 7",
        tables=(table,),
        figures=(Plot("tradeoff.png", lambda: _draw_tradeoff(table, len(drawn.X), width)),),
        findings=_tradeoff_findings(table, far.iterations_to(RATIO)),
        settings={
            "data": described(wanted, used),
            "N": len(drawn.X),
            "m": width,
            "gamma beta": round(a, 4),
            "initialisation": "W ~ N(0, 1/m), A = I, b = 0, times beta",
            "step": "that of the certificate; below the least certified beta the same multiple of 1/beta^2",
            "runs end": f"at the loss ratio {RATIO:g}, or after {most} iterations",
        },
    )


def _beta(net: ImplicitReLU) -> float:
    return float(net.A.detach().diagonal()[0])


def _outcome(certificate: Certificate, run: Run, size_Z: float) -> tuple[Cell, ...]:
    """Guaranteed and needed iterations, feature movement at the end of a run that reached the ratio, and how it ended."""
    guaranteed = certificate.iterations_to(RATIO)
    reached = run.gaps[-1] <= RATIO * run.gaps[0]
    return (
        guaranteed if math.isfinite(guaranteed) else None,
        run.iterations if reached else None,
        run.rows[-1]["feature_movement"] / size_Z if reached else None,
        "reached" if reached else run.status.value,
    )


def _tradeoff_findings(table: Table, limit: float) -> tuple[Finding, ...]:
    records = table.records()
    certified = [r for r in records if r["certified"]]
    below = [r for r in records if not r["certified"] and r["feature movement"] is not None]
    least = min(certified, key=lambda r: float(r["beta"] or 0))
    moving = [r for r in certified if r["feature movement"] is not None]
    finished = [r for r in certified if r["needed"] is not None]  # an interrupted run shows nothing
    within = all(float(r["needed"] or 0) <= float(r["guaranteed"] or 0) for r in finished)
    largest = max((float(r["feature movement"] or 0) for r in moving), default=0.0)
    smallest = min((float(r["feature movement"] or 0) for r in moving), default=0.0)
    free = max(below, key=lambda r: float(r["feature movement"] or 0), default=None)
    return (
        Finding(
            "(Not in the paper: what the least certified beta costs.)",
            f"beta = {float(least['beta'] or 0):.3g}: guaranteed {float(least['guaranteed'] or 0):.0f} iterations, needed "
            f"{float(least['needed'] or 0):.0f}; an infinite beta guarantees {limit:.0f}",
            None,
            "Near the least beta the perturbation allowed for takes up part of the rate, and only a smaller step may be "
            "certified; about twice that beta suffices for the count of the frozen features.",
        ),
        Finding(
            "(Not in the paper: certified runs keep their guarantee.)",
            f"{len(finished)} certified scales run to the end, all within the guaranteed iterations"
            if within
            else "a certified run needed more iterations than guaranteed",
            within,
            "Needed at most guaranteed, at every certified beta.",
        ),
        Finding(
            "(Not in the paper: how far the features move.)",
            f"relative movement {smallest:.1e} to {largest:.1e} where certified"
            + (
                f"; up to {float(free['feature movement'] or 0):.1e} below (beta = {float(free['beta'] or 0):.3g}, where the run "
                f"needs {float(free['needed'] or 0):.0f} iterations)"
                if free is not None
                else ""
            ),
            None,
            "A certificate proves the convergence of what is in effect a linear readout of random equilibrium features. Movement "
            "falls like 1/beta^4; where features are learnt, nothing is certified from the start.",
        ),
    )


def _draw_tradeoff(table: Table, N: int, m: int) -> Figure:
    figure, axes = charts.grid(1, 2, panel=(4.4, 3.4))
    records = table.records()
    least = min(float(r["beta"] or 0) for r in records if r["certified"])

    def points(column: str, certified: bool | None = None) -> tuple[list[float], list[float]]:
        kept = [r for r in records if r[column] is not None and (certified is None or r["certified"] is certified)]
        return [float(r["beta"] or 0) for r in kept], [float(r[column] or 0) for r in kept]

    left, right = axes[0]
    left.plot(*points("guaranteed"), "o-", color=charts.COLOURS[0], markersize=4, label="guaranteed")
    left.plot(*points("needed"), "x-", color=charts.COLOURS[1], markersize=5, linewidth=1.0, label="needed by the run")
    left.set_ylabel("iterations", fontsize=8)
    right.plot(
        *points("feature movement", True), "o", color=charts.COLOURS[2], markersize=4, label="movement, certified"
    )
    right.plot(
        *points("feature movement", False), "o", color=charts.COLOURS[2], mfc="white", label="movement, not certified"
    )
    for ax, title in (
        (left, f"iterations to a loss ratio of {RATIO:g}"),
        (right, "relative feature movement |Z-Z0|/|Z0|"),
    ):
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.axvline(least, color="#7F7F7F", linestyle=":", label="least certified beta")
        ax.set_xlabel("beta")
        ax.tick_params(which="minor", labelsize=7)
        charts.style(ax, title)
    return charts.finish(
        figure, axes, f"Scale of the initial weights, N = {N}, m = {m}, gamma beta fixed", "iterations"
    )
