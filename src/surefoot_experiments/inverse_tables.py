"""Tables 1 and 2 of the paper on the differentiable inverse: time by size, and test loss by condition number."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from surefoot._core import charts
from surefoot._inverse import coefficients
from surefoot._inverse.spectra import Spectra
from surefoot._linalg.pinv import pinv

from .draws import repeat_generator
from .finished import Part, kept_all
from .inverse_figures import BOUND, FORMAT, PAPER, RULES, chebyshev, computed, logarithm
from .result import Cell, Experiment, Finding, Plot, Progress, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = ((10, 15), (50, 75), (100, 150), (200, 300), (500, 750), (1000, 1500))
BATCH = 100
"""Matrices that the paper's times are for."""
SETTINGS = ((4, 4), (4, 8), (4, 12), (4, 5), (8, 5), (12, 5))
"""(L, K) of the rows of Table 1."""
PRINTED_TIMES = {
    "D-Minv, L = 4, K = 4": (0.0030, 0.0070, 0.010, 0.025, 0.40, 1.23),
    "D-Minv, L = 4, K = 8": (0.0052, 0.0088, 0.016, 0.047, 0.56, 2.22),
    "D-Minv, L = 4, K = 12": (0.0083, 0.0133, 0.019, 0.055, 0.64, 3.08),
    "D-Minv, L = 4, K = 5": (0.0035, 0.0050, 0.013, 0.025, 0.38, 1.38),
    "D-Minv, L = 8, K = 5": (0.0058, 0.0076, 0.014, 0.051, 0.55, 2.42),
    "D-Minv, L = 12, K = 5": (0.0084, 0.013, 0.020, 0.059, 0.68, 3.53),
    "torch.linalg.pinv": (0.46, 0.58, 1.21, 2.60, 11.39, 39.49),
}
PEER = "torch.linalg.pinv"
OURS = "sf.linalg.pinv"
REPEATS, SHORT = 5, 0.3
"""A call is timed this often at most, as long as all calls together take fewer seconds."""
ACCURATE = 1e-3
"""A residual ‖AXA − A‖_F/‖A‖_F up to which a float32 inverse is called one."""

CONDITIONS = (1, 2, 3, 4, 5, 10, 50, 100, 1000)
PRINTED_LOSSES = {
    "D-Minv": (7.64, 2.83, 2.49, 2.36, 2.30, 2.27, 2.26, 2.26, 2.25),
    "LD-Minv": (5.95, 5.01, 4.19, 3.62, 3.49, 3.30, 3.21, 3.22, 3.21),
}
LAYERS, TERMS, SIZE = 4, 10, 100
"""Of Table 2."""
NEAR = 0.5
"""Decades within which a printed number counts as explained."""
ROUNDED = 29.0
"""−log10 of a test loss that is rounding: which of two such losses is lower says nothing."""


def table1(
    settings: tuple[tuple[int, int], ...] = SETTINGS,
    sizes: tuple[tuple[int, int], ...] = SIZES,
    counts: tuple[int, ...] = (BATCH,) * len(SIZES),
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
) -> Experiment:
    """Seconds for 100 matrices of each size, float32, and how good the inverses are."""
    methods = _methods(settings)
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    residuals: dict[str, list[float]] = {name: [] for name in methods}
    for (m, n), count in zip(sizes, counts, strict=True):
        progress(f"{m}x{n}, {count} matrices")
        generator = repeat_generator(seed, m)
        A = max(m, n) ** -0.25 * torch.randn(count, m, n, generator=generator, dtype=torch.float32)
        for name, method in methods.items():
            taken, X = _timed(method, A)
            seconds[name].append(taken * BATCH / count)
            residuals[name].append(_residual(A, X))
    labels = tuple(f"{m}x{n}" for m, n in sizes)
    work = _work(sizes[-1], seconds)
    printed = {
        name: tuple(values[SIZES.index(size)] if size in SIZES else None for size in sizes)
        for name, values in PRINTED_TIMES.items()
    }
    return Experiment(
        name="inverse/table1",
        title="Time of the inverse by size",
        reference=f"{PAPER}, Table 1",
        tables=(
            Table(
                f"seconds for {BATCH} matrices",
                ("method", *labels),
                tuple((name, *values) for name, values in seconds.items()),
            ),
            Table("paper", ("method", *labels), tuple((name, *values) for name, values in printed.items())),
            Table(
                "largest ‖AXA − A‖_F/‖A‖_F",
                ("method", *labels),
                tuple((name, *values) for name, values in residuals.items()),
            ),
            work,
        ),
        figures=(Plot("table1-times.png", lambda: _draw_times(labels, seconds)),),
        findings=_speed(labels, seconds, residuals, work),
        settings={
            "matrices": "entries N(0, 1/√max(m, n)), the variance; the same distribution as in Figure 1",
            "measured": ", ".join(f"{count} of {label}" for count, label in zip(counts, labels, strict=True)),
            "threads": torch.get_num_threads(),
            "clock": "processor time on one thread, wall-clock time on several",
            "device": "CPU",
            "dtype": "float32",
            "D-Minv": "equation (2) as printed: every power by a product, all layers, c0 = ‖A‖_F²",
        },
    )


def _methods(settings: tuple[tuple[int, int], ...]) -> dict[str, Callable[[Tensor], Tensor]]:
    methods: dict[str, Callable[[Tensor], Tensor]] = {}
    for terms, layers in settings:
        methods[f"D-Minv, L = {terms}, K = {layers}"] = _iteration(layers, terms)
    return methods | {PEER: torch.linalg.pinv, OURS: pinv, "Cholesky of AAᵀ": _cholesky, "QR of Aᵀ": _qr}


def operations(name: str, m: int, n: int) -> float | None:
    """Floating point operations of a method on one m×n matrix, m ≤ n, to leading order; ``None`` where the method is chosen."""
    if name.startswith("D-Minv"):
        terms, layers = (int(number) for number in re.findall(r"\d+", name))
        # AX, the powers from the second on, and the product with X
        return layers * (4.0 * m * m * n + 2.0 * (terms - 2) * m**3)
    return {
        # Golub and Van Loan: both factors of a decomposition that begins with QR; and their product
        PEER: 6.0 * n * m**2 + 20.0 * m**3 + 2.0 * n * m**2,
        "Cholesky of AAᵀ": 2.0 * n * m**2 + m**3 / 3.0 + 2.0 * n * m**2,
        "QR of Aᵀ": 4.0 * n * m**2 - 4.0 / 3.0 * m**3 + n * m**2,
    }.get(name)


def _rates(size: tuple[int, int], name: str, seconds: float) -> tuple[float, float] | None:
    """Operations of a method, and 10⁹ of them a second, if ``BATCH`` matrices take that long."""
    work = operations(name, *size)
    return None if work is None else (work, BATCH * work / seconds / 1e9)


def _work(size: tuple[int, int], seconds: dict[str, list[float]]) -> Table:
    """What explains the times of the largest size."""
    rows: list[tuple[Cell, ...]] = []
    peer = operations(PEER, *size) or 1.0
    for name, taken in seconds.items():
        own = _rates(size, name, taken[-1])
        if own is None:
            continue
        known = PRINTED_TIMES.get(name) if size == SIZES[-1] else None
        printed = None if known is None else _rates(size, name, known[-1])
        rows.append((name, own[0] / peer, own[1], None if printed is None else printed[1]))
    return Table(f"operations at {size[0]}x{size[1]}", WORK_COLUMNS, tuple(rows))


WORK_COLUMNS = ("method", f"operations / {PEER}", "10⁹ a second", "10⁹ a second in the paper")


def _explained(work: Table) -> str:
    """Why it is slower here, and how it can be faster in the paper."""
    iterations = [row for row in work.rows if str(row[0]).startswith("D-Minv")]
    (peer,) = (row for row in work.rows if row[0] == PEER)
    shares = [float(row[1] or 0.0) for row in iterations]
    here = max(float(row[2] or 0.0) for row in iterations) / float(peer[2] or 1.0)
    text = f"It takes {min(shares):.2g} to {max(shares):.2g} times the operations, products run {here:.2g} times as fast here"
    known = [float(row[3]) for row in iterations if row[3] is not None]
    if known and peer[3] is not None:
        text += f" and {max(known) / float(peer[3]):.2g} times in the paper, whose decomposition has the speed of a CPU"
    return text + "."


def _iteration(layers: int, terms: int) -> Callable[[Tensor], Tensor]:
    """Equation (2): L products with matrices of the small size, and one with X, for each layer."""

    def run(A: Tensor) -> Tensor:
        identity = torch.eye(A.shape[-2], dtype=A.dtype)
        X = A.mT / A.square().sum((-2, -1), keepdim=True)
        for _ in range(layers):
            E = identity - A @ X
            power, total = E, identity + E
            for _ in range(terms - 2):
                power = power @ E
                total = total + power
            X = X @ total
        return X

    return run


def _timed(method: Callable[[Tensor], Tensor], A: Tensor) -> tuple[float, Tensor]:
    """Seconds of one call, the fastest of up to ``REPEATS`` of those that are short; and the result.

    On one thread of the processor's time, which other processes change little.
    """
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    X = method(A[:1])
    times: list[float] = []
    while not times or (sum(times) < SHORT and len(times) < REPEATS):
        begin = clock()
        X = method(A)
        times.append(clock() - begin)
    return min(times), X


def _cholesky(A: Tensor) -> Tensor:
    """Aᵀ(AAᵀ)⁻¹ for wide A of full rank."""
    return torch.cholesky_solve(A, torch.linalg.cholesky(A @ A.mT)).mT


def _qr(A: Tensor) -> Tensor:
    """QR⁻ᵀ of Aᵀ = QR for wide A of full rank."""
    Q, R = torch.linalg.qr(A.mT)
    return torch.linalg.solve_triangular(R, Q.mT, upper=True).mT


def _residual(A: Tensor, X: Tensor) -> float:
    A, X = A.double(), X.double()
    defects = torch.linalg.matrix_norm(A @ (X @ A) - A) / torch.linalg.matrix_norm(A)
    return float(defects.max())


def _speed(
    labels: tuple[str, ...], seconds: dict[str, list[float]], residuals: dict[str, list[float]], work: Table
) -> tuple[Finding, ...]:
    iterations = [name for name in seconds if name.startswith("D-Minv")]
    ratio = {name: [s / p for s, p in zip(seconds[name], seconds[PEER], strict=True)] for name in seconds}
    every = [r for name in iterations for r in ratio[name]]
    at_end = {name: ratio[name][-1] for name in iterations}
    accurate = {name: [r <= ACCURATE for r in residuals[name]] for name in iterations}
    fastest = [min(seconds[name][k] for name in iterations) for k in range(len(labels))]
    cheaper = [own / other for own, other in zip(seconds["Cholesky of AAᵀ"], fastest, strict=True)]
    return (
        Finding(
            "D-Minv is faster than the exact pseudo-inverse in all cases.",
            f"faster in {sum(r < 1.0 for r in every)} of {len(every)} cases; "
            f"time over that of {PEER}: {min(every):.2g} to {max(every):.2g}",
            all(r < 1.0 for r in every),
            "On one thread of a CPU; the paper does not say what its times are of.",
        ),
        Finding(
            "At the largest size D-Minv takes less than a tenth of the time of the exact pseudo-inverse.",
            f"{labels[-1]}: "
            + ", ".join(f"{name.removeprefix('D-Minv, ')}: {value:.2g}" for name, value in at_end.items()),
            all(value < 0.1 for value in at_end.values()),
            f"Time over that of {PEER}. {_explained(work)}",
        ),
        Finding(
            "(Not in the paper: whether the result is an inverse.)",
            "; ".join(
                f"{name.removeprefix('D-Minv, ')}: {sum(accurate[name])} of {len(labels)} sizes" for name in iterations
            ),
            None,
            f"Sizes with a residual of at most {ACCURATE:g}. The others are polynomials that have not converged.",
        ),
        Finding(
            "(Not in the paper: one Cholesky factorisation is faster than any D-Minv.)",
            ", ".join(f"{label}: {value:.2g}" for label, value in zip(labels, cheaper, strict=True)),
            all(value < 1.0 for value in cheaper),
            "Its time over that of the fastest D-Minv; agreement means less than 1 at every size, and it is accurate here.",
        ),
        Finding(
            f"(Not in the paper: {OURS}, which chooses the method and reports what it did.)",
            ", ".join(f"{label}: {1.0 / value:.1f}" for label, value in zip(labels, ratio[OURS], strict=True)),
            None,
            f"Times as fast as {PEER}.",
        ),
    )


def _draw_times(labels: tuple[str, ...], seconds: dict[str, list[float]]) -> Figure:
    figure, axes = charts.grid(1, 1, panel=(5.6, 3.8))
    for colour, (name, values) in zip(charts.COLOURS, seconds.items(), strict=False):
        axes[0][0].plot(range(len(labels)), values, "o-", color=colour, markersize=3.5, linewidth=1.2, label=name)
    axes[0][0].set_yscale("log")
    axes[0][0].set_xticks(range(len(labels)), labels)
    charts.style(axes[0][0], "float32, CPU")
    return charts.finish(figure, axes, "Time of the inverse by size", f"seconds for {BATCH} matrices")


def table2(
    conditions: tuple[int, ...] = CONDITIONS,
    epochs: int = 1200,
    train: int = 100,
    test: int = 100,
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
    cache: Path | None = None,
) -> Experiment:
    """−log10 of the test loss by condition number: coefficients 1, trained, Chebyshev."""
    rows: list[tuple[int, float, float, float, float]] = []
    ones = coefficients.ones(LAYERS, TERMS)
    parts = (
        Part(
            f"condition number {kappa}",
            {"inverse": FORMAT, "kappa": kappa, "epochs": epochs, "train": train, "seed": seed},
            {"rule": RULES["‖A‖_F²"], "layers": LAYERS, "terms": TERMS, "epochs": epochs},
            {"matrices": _conditioned(kappa, train, seed, 0)},
        )
        for kappa in conditions
    )
    results = kept_all(cache, "condition", parts, computed, progress)
    for kappa, result in zip(conditions, results, strict=True):
        data, fresh = (_conditioned(kappa, count, seed, part) for part, count in enumerate((train, test)))
        learned = torch.tensor(result["C"], dtype=torch.float64)
        loose, close = (Spectra.of(fresh, rule) for rule in (RULES["‖A‖_F²"], BOUND))
        best = chebyshev(Spectra.of(data, BOUND), LAYERS, TERMS)
        measured = (logarithm(loose, ones), logarithm(loose, learned), logarithm(close, ones), logarithm(close, best))
        rows.append((kappa, -measured[0], -measured[1], -measured[2], -measured[3]))
    return Experiment(
        name="inverse/table2",
        title="Test loss by condition number",
        reference=f"{PAPER}, Table 2",
        tables=(Table("-log10 of the test loss", CONDITION_COLUMNS, tuple(_beside(row) for row in rows)),),
        figures=(Plot("table2-condition.png", lambda: _draw_conditions(rows)),),
        findings=_conditions(rows),
        settings={
            "matrices": f"{SIZE}x{SIZE}, singular values uniform in [1/κ, 1]; diagonal, as only these count",
            "K, L": f"{LAYERS}, {TERMS}",
            "c0": f"‖A‖_F² for D-Minv and LD-Minv, an upper bound of ‖A‖² ({BOUND}) for the others",
            "training": f"Adam on the loss (4), from coefficients 1, {epochs:,} epochs, {train} matrices; {test} others to test",
            "smallest loss": "1e-30, which rounding in float64 gives",
            "dtype": "float64",
            "files": FORMAT,
        },
    )


CONDITION_COLUMNS = (
    "condition number",
    "D-Minv",
    "D-Minv, paper",
    "LD-Minv",
    "LD-Minv, paper",
    "D-Minv, c0 near ‖A‖²",
    "Chebyshev, c0 near ‖A‖²",
)


def _beside(row: tuple[int, float, float, float, float]) -> tuple[Cell, ...]:
    printed = [values[CONDITIONS.index(row[0])] if row[0] in CONDITIONS else None for values in PRINTED_LOSSES.values()]
    return row[0], row[1], printed[0], row[2], printed[1], row[3], row[4]


def _conditioned(kappa: int, count: int, seed: int, part: int) -> Tensor:
    """Diagonal matrices (count, d, d): the orthogonal factors change neither the layers nor the loss."""
    generator = repeat_generator(seed, 2 * kappa + part)
    values = 1.0 / kappa + (1.0 - 1.0 / kappa) * torch.rand(count, SIZE, dtype=torch.float64, generator=generator)
    return torch.diag_embed(values)


def _conditions(rows: list[tuple[int, float, float, float, float]]) -> tuple[Finding, ...]:
    printed: dict[int, float] = dict(zip(CONDITIONS, PRINTED_LOSSES["D-Minv"], strict=True))
    high = [row for row in rows if row[0] >= 50 and row[0] in printed]
    low = [row for row in rows if 1 < row[0] <= 10 and row[0] in printed]
    return (
        Finding(
            "D-Minv at large condition numbers: 2.26, 2.26, 2.25 at 50, 100, 1000.",
            ", ".join(f"{row[0]}: {row[1]:.2f}" for row in high) or "no such condition number",
            all(abs(row[1] - printed[row[0]]) <= NEAR for row in high) if high else None,
            f"Agreement means within {NEAR:g}: c0 = ‖A‖_F² explains them.",
        ),
        Finding(
            "D-Minv at small condition numbers: 2.83, 2.49, 2.36, 2.30, 2.27 at 2, 3, 4, 5, 10.",
            ", ".join(f"{row[0]}: {row[1]:.2f}" for row in low) or "no such condition number",
            all(abs(row[1] - printed[row[0]]) <= NEAR for row in low) if low else None,
            "By Lemma 1 the residual is e0^(L^K), with the exponent 10,000 here: no c0 that gives the numbers at 50 and above "
            "gives these too.",
        ),
        Finding(
            "D-Minv is better at κ = 1, LD-Minv for κ > 1.",
            ", ".join(f"{row[0]}: {row[2] - row[1]:+.2f}" for row in rows),
            all((row[2] > row[1]) == (row[0] > 1) for row in rows),
            "LD-Minv minus D-Minv. Where D-Minv is below 1e-10 already, the gradient is too, and training changes nothing.",
        ),
        Finding(
            "(Not in the paper: Chebyshev coefficients, without training.)",
            ", ".join(f"{row[0]}: {row[4] - row[2]:+.2f}" for row in rows),
            all(row[4] >= min(row[2], ROUNDED) for row in rows),
            f"Minus LD-Minv; agreement means better or equal everywhere, where beyond {ROUNDED:g} both are rounding. A bound "
            "close to ‖A‖² alone does much of it.",
        ),
    )


def _draw_conditions(rows: list[tuple[int, float, float, float, float]]) -> Figure:
    figure, axes = charts.grid(1, 1, panel=(5.2, 3.6))
    labels = ("D-Minv", "LD-Minv", "D-Minv, c0 near ‖A‖²", "Chebyshev, c0 near ‖A‖²")
    for index, (colour, label) in enumerate(zip(charts.COLOURS, labels, strict=False), 1):
        axes[0][0].plot([row[0] for row in rows], [row[index] for row in rows], "o-", color=colour, label=label)
        if label in PRINTED_LOSSES:
            axes[0][0].plot(CONDITIONS, PRINTED_LOSSES[label], "--", color=colour, label=f"{label}, paper")
    axes[0][0].set_xscale("log")
    axes[0][0].set_xlabel("condition number")
    charts.style(axes[0][0], f"K = {LAYERS}, L = {TERMS}")
    return charts.finish(figure, axes, "Test loss by condition number", "-log10 of the test loss")
