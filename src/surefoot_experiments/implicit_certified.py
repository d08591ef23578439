"""Guaranteed iterations by three theorems, and what a guarantee costs in feature movement."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from surefoot._core.certificate import Certificate
from surefoot._core.descent import certify, descend
from surefoot._core.run import Run
from surefoot._implicit.network import ImplicitReLU

from .draws import repeat_generator
from .finished import Part, kept_all
from .implicit_certified_plots import draw_certificates, draw_tradeoff
from .implicit_certified_runs import (
    DIGITS_SIZE,
    GD,
    LABELS,
    LOOSE,
    PAPER_CONTRACTION,
    RATIO,
    SPECTRAL,
    Draw,
    Size,
    computed_draw,
    draw_seed,
    scale_of,
    scaled,
    smallest_certified,
)
from .implicit_certified_verdict import certificate_findings, tradeoff_findings
from .implicit_data import DIGITS, PAPER, available, described, draw
from .result import Cell, Experiment, Plot, Progress, Table
from .summaries import median


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
                choices = {"width": width, "seed": draw_seed(generator), "executed": samples <= executed}
                yield Part(
                    f"N = {samples}, m = {width}: draw {repeat + 1} of {repeats}",
                    {"data": drawn.digest, **choices},
                    {"name": drawn.name, **choices},
                    {"X": drawn.X, "Y": drawn.Y, "X_test": drawn.X_test, "Y_test": drawn.Y_test},
                )

    rows: dict[Size, list[Draw]] = {}
    results = kept_all(cache, "certificates", parts(), computed_draw, progress)
    for size, result in zip(counts, results, strict=True):
        rows.setdefault(size, []).append(Draw(**result))
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
        figures=(Plot("certificates.png", lambda: draw_certificates(table)),),
        findings=certificate_findings(rows),
        settings={
            "data": described(wanted, used),
            "repeats": f"{repeats}; medians over them",
            "initialisation": "W ~ N(0, 1/m), A = I, b = 0, times beta",
            "beta": f"the least at which the count is within {LOOSE - 1.0:.0%} of that for an infinite beta",
            "gamma|A| of implicit/gd": PAPER_CONTRACTION,
            "executed": f"up to N = {executed}",
        },
    )


def _cells(size: Size, draws: Sequence[Draw]) -> tuple[Cell, ...]:
    counts = (median(d.counts[name] for d in draws) for name in LABELS)
    run = [d for d in draws if d.executed]
    needed = median(d.needed for d in run) if run else None
    runs, violations = (len(run), sum(d.violations for d in run)) if run else (None, None)
    scales = (median(d.scales[name] for d in draws) for name in (SPECTRAL.id, GD.id))
    return *size, *counts, needed, runs, violations, *scales


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
    start = ImplicitReLU.certifiable(drawn.X, drawn.Y, width, seed=draw_seed(generator))
    progress("the least certified scale")
    factor = smallest_certified(start, drawn.loss)
    assert factor is not None
    least = scaled(start, factor)
    far = certify(scaled(start, 2.0**10), drawn.loss, SPECTRAL.id)
    most = int(limit * far.iterations_to(RATIO))
    # η of the certificate at every scale, continued below the least
    step = float(far.step_size or 0.0) * scale_of(start) ** 2 * 4.0**10
    rows: list[tuple[Cell, ...]] = []
    for octave in octaves:
        net = scaled(least, 2.0**octave)
        beta = scale_of(net)
        progress(f"beta = {beta:.3g}")
        certificate = certify(net, drawn.loss, SPECTRAL.id)
        size_Z = float(torch.linalg.vector_norm(net.equilibrium(drawn.X).Z))
        run = descend(
            net,
            drawn.loss,
            steps=None if certificate.holds else step / beta**2,
            max_iterations=most,
            tolerance=RATIO,
            certificate=certificate,
            progress=False,
        )
        rows.append((beta, certificate.holds, *_outcome(certificate, run, size_Z)))
    table = Table("scale", COLUMNS, tuple(rows))
    a = start.gamma * scale_of(start)
    return Experiment(
        name="implicit/tradeoff",
        title="Guarantee and feature movement against the scale of the weights",
        reference=f"implicit/spectral on the initialisation of {PAPER}, section 7",
        tables=(table,),
        figures=(Plot("tradeoff.png", lambda: draw_tradeoff(table, len(drawn.X), width)),),
        findings=tradeoff_findings(table, far.iterations_to(RATIO)),
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
