"""Figure 1 of the paper on the differentiable inverse: test loss by the number K of layers and their order L."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from surefoot._core import charts
from surefoot._inverse import coefficients
from surefoot._inverse.network import LearnedInverse
from surefoot._inverse.spectra import Spectra

from .draws import repeat_generator
from .finished import Part, completed, kept_all
from .result import Cell, Experiment, Finding, Plot, Progress, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT = 1
"""Of the files of finished parts; raised whenever the same settings would give other numbers."""
PAPER = "Fast and Differentiable Matrix Inverse and Its Extension to SVD"
SIZE = 100
READINGS = {"standard deviation": 0.5, "variance": 0.25}
"""Exponents a of the standard deviations d^-a that N(0, 1/√d) can mean."""
RULES = {"‖A‖²": "svd", "‖A‖_F²": "frobenius"}
"""The paper's c0 > ‖A‖²/2, and a bound of it that needs no decomposition."""
READING, RULE = "variance", "‖A‖_F²"
"""Those that explain the paper's numbers."""
BOUND = "gram4"
"""c0 of the Chebyshev coefficients, which need an upper bound of ‖A‖², and profit from a close one."""
PRINTED = {(7, 4): -1.0, (7, 9): -4.6, (2, 9): 0.32}
"""log10 of the test loss of LD-Minv at (K, L), from the text to Figure 1(a)."""
NEAR = 0.5
"""Decades within which a printed number counts as explained."""

Points = Sequence[tuple[int, int]]


def sweep(
    name: str,
    points: Points,
    epochs: int = 1200,
    train: int = 100,
    test: int = 100,
    size: int = SIZE,
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
    cache: Path | None = None,
) -> Experiment:
    """D-Minv, LD-Minv trained from it, and Chebyshev coefficients at each (K, L) of ``points``; panel a, b or c by ``name``."""
    panel = name[-1]
    drawn = [gaussian_matrices(READING, count, size, seed, part) for part, count in enumerate((train, test))]
    spectra = [Spectra.of(A, RULES[RULE]) for A in drawn]
    bounded = [Spectra.of(A, BOUND) for A in drawn]
    rows: list[tuple[int, int, float, float, float, float]] = []
    parts = (
        Part(
            f"K = {K}, L = {L}",
            {"inverse": FORMAT, "K": K, "L": L, "epochs": epochs, "train": train, "size": size, "seed": seed},
            {"rule": RULES[RULE], "layers": K, "terms": L, "epochs": epochs},
            {"matrices": drawn[0]},
        )
        for K, L in points
    )
    results = kept_all(cache, "inverse", parts, computed, progress)
    for (K, L), result in zip(points, results, strict=True):
        ones, learned = coefficients.ones(K, L), torch.tensor(result["C"], dtype=torch.float64)
        tuned = chebyshev(bounded[0], K, L)
        losses = [logarithm(spectra[1], ones), logarithm(spectra[1], learned)]
        losses += [logarithm(bounded[1], ones), logarithm(bounded[1], tuned)]
        rows.append((K, L, losses[0], losses[1], losses[2], losses[3]))
    title = {
        "a": "Test loss of LD-Minv by K and L",
        "b": "D-Minv and LD-Minv by K",
        "c": "D-Minv and LD-Minv by L",
    }[panel]
    readings = _by_reading(test, size, seed)
    return Experiment(
        name=name,
        title=title,
        reference=f"{PAPER}, Figure 1({panel})",
        tables=(Table("log10 of the test loss", COLUMNS, tuple(rows)), readings),
        figures=(Plot(f"{name.split('/')[1]}-loss.png", lambda: _draw(rows, panel, title)),),
        findings=(*FINDINGS[panel](rows), _explained(readings), _chebyshev(rows)),
        settings={
            "matrices": f"{size}x{size}, entries N(0, 1/√d) read as {READING}, {train} for training and {test} others",
            "c0": f"{RULE} for D-Minv and LD-Minv, an upper bound of ‖A‖² ({BOUND}) for the others",
            "training": f"Adam on the loss (4), from coefficients 1, in the spectral domain, {epochs:,} epochs",
            "Chebyshev": "one number, the lower end of the interval, tuned on the training matrices, the least one where several "
            "leave rounding alone; no training",
            "dtype": "float64",
            "files": FORMAT,
        },
    )


COLUMNS = ("K", "L", "D-Minv", "LD-Minv", "D-Minv, c0 near ‖A‖²", "Chebyshev, c0 near ‖A‖²")


def gaussian_matrices(reading: str, count: int, size: int, seed: int, part: int) -> Tensor:
    """Square matrices of the paper's distribution (count, size, size), in a reading of it."""
    generator = repeat_generator(seed, part)
    return size ** -READINGS[reading] * torch.randn(count, size, size, dtype=torch.float64, generator=generator)


def trained(matrices: Tensor, rule: str, layers: int, terms: int, epochs: int) -> Tensor:
    """Coefficients (K, L) after training from ones."""
    net = LearnedInverse.ones(layers, terms, c0=rule)
    completed(net.fit(matrices, epochs=epochs))
    return net.coefficients.detach()


def computed(matrices: Tensor, **arguments: Any) -> dict[str, Any]:
    """What a file keeps of ``trained``."""
    return {"C": trained(matrices, **arguments).tolist()}


def chebyshev(spectra: Spectra, layers: int, terms: int) -> Tensor:
    """Chebyshev coefficients on [l, 1] with the l that has the lowest test loss on these matrices; c0 bounds ‖A‖².

    Of several whose loss is rounding, the least l: which of them is lowest says nothing, and others than these matrices may have
    smaller singular values.
    """
    candidates = _candidates(layers, terms)
    losses = [spectra.test_loss(C) for C in candidates]
    rounding = torch.finfo(torch.float64).eps ** 2 * float(spectra.squared.sum()) / spectra.count
    done = [C for C, loss in zip(candidates, losses, strict=True) if loss <= rounding]
    return done[0] if done else candidates[losses.index(min(losses))]


@cache
def _candidates(layers: int, terms: int) -> list[Tensor]:
    """By l, the least first."""
    ends = torch.logspace(-9.0, -0.3, 59, dtype=torch.float64).tolist()
    return [coefficients.chebyshev(layers, terms, lower, 1.0) for lower in ends]


def logarithm(spectra: Spectra, C: Tensor) -> float:
    """log10 of the paper's test loss, not below -30."""
    return math.log10(max(spectra.test_loss(C), 1e-30))


def _by_reading(count: int, size: int, seed: int) -> Table:
    """D-Minv at the printed points, in every reading of the settings."""
    rows: list[tuple[Cell, ...]] = []
    for reading in READINGS:
        A = gaussian_matrices(reading, count, size, seed, 1)
        for label, rule in RULES.items():
            spectra = Spectra.of(A, rule)
            losses = [logarithm(spectra, coefficients.ones(K, L)) for K, L in (*PRINTED, (15, 4))]
            rows.append((reading, label, *losses))
    return Table("D-Minv by reading of N(0, 1/√d) and c0, log10 of the test loss", READING_COLUMNS, tuple(rows))


READING_COLUMNS = ("reading", "c0", *(f"K = {K}, L = {L}" for K, L in PRINTED), "K = 15, L = 4")


def _explained(readings: Table) -> Finding:
    def far(row: tuple[Cell, ...]) -> float:
        # of the numbers that training hardly changes
        values = zip(row[2:4], list(PRINTED.values())[:2], strict=True)
        return max(abs(float(value or 0.0) - printed) for value, printed in values)

    best = min(readings.rows, key=far)
    return Finding(
        "(Not in the paper: which reading of its settings explains its numbers.)",
        "; ".join(f"{row[0]}, c0 = {row[1]}: off by {far(row):.1f} decades" for row in readings.rows),
        (best[0], best[1]) == (READING, RULE) and far(best) <= NEAR,
        f"D-Minv at K = 7 with L = 4 and 9 beside the paper's -1.0 and -4.6. Agreement means that {READING} with c0 = {RULE} is "
        f"closest, within {NEAR:g} decades.",
    )


def _chebyshev(rows: list[tuple[int, int, float, float, float, float]]) -> Finding:
    better = sum(row[5] <= row[3] for row in rows)
    gain = [row[4] - row[5] for row in rows]
    return Finding(
        "(Not in the paper: coefficients without training.)",
        f"Chebyshev coefficients with a close bound of ‖A‖² are better than the trained ones at {better} of {len(rows)} points; "
        f"with the same c0 they gain {min(gain):.1f} to {max(gain):.1f} decades over coefficients 1",
        better == len(rows),
        "Agreement means at all points. No coefficients have a smaller worst case on an interval.",
    )


def _panel_a(rows: list[tuple[int, int, float, float, float, float]]) -> tuple[Finding, ...]:
    losses = {(row[0], row[1]): row[3] for row in rows}
    pairs = {point: printed for point, printed in PRINTED.items() if point in losses}
    K, L = sorted({row[0] for row in rows}), sorted({row[1] for row in rows})
    corners = [losses.get(point) for point in ((K[-1], L[0]), (K[-1], L[-1]), (K[0], L[-1]))]
    matters = None
    if None not in corners:
        low_order, best, shallow = (float(value or 0.0) for value in corners)
        matters = shallow - best > low_order - best
    return (
        Finding(
            "log10 of the test loss of LD-Minv: -1.0 at K = 7, L = 4; -4.6 at K = 7, L = 9; 0.32 at K = 2, L = 9.",
            ", ".join(f"K = {point[0]}, L = {point[1]}: {losses[point]:.2f}" for point in pairs)
            or "not among these points",
            all(abs(losses[point] - printed) <= NEAR for point, printed in pairs.items()) if pairs else None,
            f"Agreement means within {NEAR:g} decades. The trainings differ: the paper takes 1,200 steps of SGD at 1e-4.",
        ),
        Finding(
            "K matters more than L.",
            f"from (K, L) = ({K[-1]}, {L[0]}) to ({K[-1]}, {L[-1]}): {corners[0]:.2f} to {corners[1]:.2f}; "
            f"from ({K[0]}, {L[-1]}): {corners[2]:.2f}"
            if matters is not None
            else "these points have no corners",
            matters,
            "The residual of D-Minv has the exponent L^K.",
        ),
    )


def _panel_b(rows: list[tuple[int, int, float, float, float, float]]) -> tuple[Finding, ...]:
    deep = [row for row in rows if row[0] > 15]
    return (
        _learned(rows),
        Finding(
            "Beyond K = 15 both have a similar precision, of the order of 1e-8.",
            ", ".join(f"K = {row[0]}: D-Minv {row[2]:.1f}, LD-Minv {row[3]:.1f}" for row in deep) or "no such K",
            all(row[2] <= -8.0 + NEAR for row in deep) if deep else None,
            "log10 of the test loss; agreement means that D-Minv is there. Float64 goes on to fall, float32 would not.",
        ),
    )


def _panel_c(rows: list[tuple[int, int, float, float, float, float]]) -> tuple[Finding, ...]:
    return (_learned(rows),)


def _learned(rows: list[tuple[int, int, float, float, float, float]]) -> Finding:
    gain = [row[2] - row[3] for row in rows]
    return Finding(
        "LD-Minv has a lower test loss than D-Minv.",
        f"by {min(gain):.2f} to {max(gain):.2f} decades, lower at {sum(g > 0.0 for g in gain)} of {len(gain)} points",
        all(g > 0.0 for g in gain),
        "Agreement means at every point, on matrices that nothing was trained on.",
    )


FINDINGS = {"a": _panel_a, "b": _panel_b, "c": _panel_c}


def _draw(rows: list[tuple[int, int, float, float, float, float]], panel: str, title: str) -> Figure:
    figure, axes = charts.grid(1, 1, panel=(5.2, 3.6))
    ax = axes[0][0]
    if panel == "a":
        for colour, L in zip(charts.COLOURS, sorted({row[1] for row in rows}), strict=False):
            line = [row for row in rows if row[1] == L]
            ax.plot([row[0] for row in line], [row[3] for row in line], "o-", color=colour, label=f"LD-Minv, L = {L}")
    else:
        x = 0 if panel == "b" else 1
        for colour, index in zip(charts.COLOURS, range(2, 6), strict=False):
            values = [row[index] for row in rows]
            ax.plot([row[x] for row in rows], values, "o-", color=colour, markersize=3.5, label=COLUMNS[index])
    ax.set_xlabel("L" if panel == "c" else "K")
    charts.style(ax, title)
    return charts.finish(figure, axes, "Matrix inverse by layers", "log10 of the test loss")
