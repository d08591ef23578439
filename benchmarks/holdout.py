"""Holdout certificates: iterations claimed of each solver, and how many new problems they cover; how often statements are true
over recalibrations; and what a shift of the problems does.

Least squares to 1e-4 of the first gap. The methods whose steps depend on the number of iterations take the fewest, of a few
numbers, that solve as many other problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from report import Report, Shown, parser
from scipy.stats import binom

import surefoot as sf
from surefoot._holdout.counting import Counter, Drawn
from surefoot._step_sizes.baselines import names
from surefoot._step_sizes.schedules import SCHEDULES
from surefoot_check.holdout import binomial

GAP = 1e-4
FIXED = ("GD 1/β_p", "Nesterov", "FISTA", "strongly convex Nesterov", "CGLS")
"""Methods without learning that go on for ever."""
TRAINING, TUNING, HELD_OUT, NEW, POPULATION, SHIFTED = 0, 50, 100, 200, 1000, 3
"""Seeds."""


@dataclass(frozen=True)
class Sizes:
    """Rows and columns, those of shifted problems, numbers of problems, epochs of the training, limit, recalibrations; coverages
    and confidences, of which the first are those of the certificates."""

    shape: tuple[int, int]
    shifts: tuple[tuple[int, int], ...]
    training: int
    held_out: int
    new: int
    population: int
    epochs: int
    limit: int
    horizons: tuple[int, ...]
    recalibrations: int
    levels: tuple[tuple[float, float], ...]


FULL = Sizes(
    (20, 32),
    ((20, 32), (20, 28), (20, 24), (24, 32), (40, 64)),
    *(32, 600, 2000, 20_000),
    50,
    500,
    (31, 63, 127, 255, 511),
    400,
    ((0.99, 0.99), (0.95, 0.95), (0.9, 0.9)),
)
SMOKE = Sizes((4, 8), ((4, 6),), *(4, 40, 20, 60), 2, 60, (63,), 10, ((0.9, 0.9),))


def problems(count: int, shape: tuple[int, int], seed: int) -> sf.learned.LeastSquares:
    """Unit columns, y = Mx̂ with Gaussian x̂."""
    return sf.learned.LeastSquares.random(count, *shape, seed=seed)


def trained(sizes: Sizes) -> sf.nn.StepSizeNet:
    """The network of README and the guide."""
    net = sf.nn.StepSizeNet.orthogonal(range=(1.0, 1.95))
    sf.learned.train(net, problems(sizes.training, sizes.shape, TRAINING), "lbfgs", epochs=sizes.epochs, iterations=100)
    return net


def certified(
    solver: Any, held_out: sf.learned.Problems, limit: int, level: tuple[float, float]
) -> sf.learned.HoldoutCertificate:
    """The certificate of a coverage and a confidence."""
    coverage, confidence = level
    return sf.learned.certify_holdout(
        solver,
        held_out,
        gap=GAP,
        relative_to="start",
        coverage=coverage,
        confidence=confidence,
        iterations=limit,
        progress=False,
    )


def horizon(name: str, sizes: Sizes) -> int | None:
    """The fewest iterations after which a schedule of so many has solved all of other problems."""
    tuning = problems(sizes.held_out, sizes.shape, TUNING)
    for limit in sizes.horizons:
        if (counts(name, tuning, limit) >= 0).all():
            return limit
    return None


def counts(solver: Any, p: sf.learned.Problems, limit: int) -> np.ndarray:
    """Iterations of each problem, -1 beyond the limit."""
    return Counter(solver, GAP, "start", limit).count(Drawn.of(p), progress=False).counts.numpy()


def claims(report: Report, sizes: Sizes, net: sf.nn.StepSizeNet) -> dict[str, Any]:
    """The first table; the solvers by name."""
    held_out, new = (problems(n, sizes.shape, seed) for n, seed in ((sizes.held_out, HELD_OUT), (sizes.new, NEW)))
    admitted = names(held_out)
    solvers: dict[str, tuple[Any, int]] = {"learned": (net, sizes.limit)}
    solvers |= {name: (name, sizes.limit) for name in FIXED if name in admitted}
    for name in SCHEDULES:
        if name in admitted and (limit := horizon(name, sizes)) is not None:
            solvers[f"{name}, {limit} steps"] = name, limit
    worst = sf.certify(net, held_out, "step-sizes/rate").iterations_to(GAP)
    rows: list[list[object]] = []
    for name, (solver, limit) in solvers.items():
        certificate = certified(solver, held_out, limit, sizes.levels[0])
        k, found = certificate.iterations, counts(solver, new, limit)
        rows.append(
            [
                name,
                "-" if k is None else k,
                Shown(float(np.median(certificate.counts)), "{:.0f}"),
                "-" if k is None else Shown(100.0 * float(((found >= 0) & (found <= k)).mean()), "{:.2f} %"),
                Shown(certificate.order_test, "{:.2f}"),
                Shown(worst, "{:.0f}") if name in ("learned", "GD 1/β_p") else "-",
            ]
        )
    columns = ("solver", "claimed", "median", f"covered of {sizes.new:,} new", "order test p", "worst case")
    note = (
        "worst case: what step-sizes/rate guarantees for these very problems; its bound is that of steps 1/β, where the range of "
        "the network begins"
    )
    rows_, columns_ = sizes.shape
    wanted = f"iterations to {GAP:g} on {sizes.levels[0][0]:.0%}, confidence {sizes.levels[0][1]:.0%}"
    report.table(f"{sizes.held_out} held-out problems {rows_}x{columns_}: {wanted}", columns, rows, note)
    return {name: solver for name, (solver, _) in solvers.items()}


def recalibrations(report: Report, sizes: Sizes, solvers: dict[str, Any]) -> None:
    """The second table. The population is finite, and drawn from with replacement: each statement is true or false, exactly."""
    population = problems(sizes.population, sizes.shape, POPULATION)
    rng = np.random.default_rng(0)
    rows: list[list[object]] = []
    for name, solver in solvers.items():
        found = counts(solver, population, sizes.limit)
        found = np.where(found < 0, sizes.limit + 1, found)
        drawn = np.sort(rng.choice(found, (sizes.recalibrations, sizes.held_out)), axis=1)
        for coverage, confidence in sizes.levels:
            rank = binomial.rank(sizes.held_out, coverage, confidence)
            if rank is None:
                continue
            true = np.array([(found <= k).mean() >= coverage for k in drawn[:, rank - 1]])
            p = float(binom.cdf(true.sum(), len(true), confidence))
            rows.append(
                [
                    name,
                    Shown(coverage, "{:.0%}"),
                    Shown(confidence, "{:.0%}"),
                    f"{rank} of {sizes.held_out}",
                    f"{true.sum()} of {len(true)}",
                    Shown(100.0 * float(true.mean()), "{:.2f} %"),
                    Shown(p, "{:.3g}"),
                ]
            )
    note = (
        "p: of so few true statements or fewer, if each were true with the stated confidence only (exact binomial test)"
    )
    columns = ("solver", "coverage", "confidence", "rank", "true statements", "share", "p")
    report.table(f"Recalibrations on problems drawn from {sizes.population:,}", columns, rows, note)


def shifts(report: Report, sizes: Sizes, net: sf.nn.StepSizeNet) -> None:
    """The third table."""
    certificate = certified(net, problems(sizes.held_out, sizes.shape, HELD_OUT), sizes.limit, sizes.levels[0])
    rows: list[list[object]] = []
    for shape in sizes.shifts:
        test = certificate.shift_test(problems(sizes.held_out, shape, SHIFTED))
        covered = 1.0 - test.exceeding / test.problems
        rows.append(
            [
                f"{shape[0]}x{shape[1]}",
                Shown(100.0 * covered, "{:.1f} %"),
                Shown(test.p_value, "{:.2g}"),
                "yes" if test.shifted() else "no",
            ]
        )
    k = "-" if certificate.iterations is None else f"{certificate.iterations:,}"
    report.table(
        f"Problems of other sizes, under the certificate of {sizes.shape[0]}x{sizes.shape[1]} and learned steps",
        ("size", f"within {k}", "shift test p", "detected"),
        rows,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    report = Report(parser(__doc__), arguments)
    sizes = SMOKE if report.smoke else FULL
    net = trained(sizes)
    solvers = claims(report, sizes, net)
    recalibrations(report, sizes, {name: solvers[name] for name in ("learned", "GD 1/β_p", "FISTA")})
    shifts(report, sizes, net)


if __name__ == "__main__":
    main()
