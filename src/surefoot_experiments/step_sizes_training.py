"""Figures 3 to 9 and Table 1 of the paper on learned step sizes: training by problem size, beside methods without learning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from surefoot._step_sizes.compare import Comparison

from .result import Cell, Experiment, Plot, Progress, Table
from .step_sizes_runs import (
    COLUMNS,
    PAPER,
    Run,
    Setting,
    Size,
    beside,
    marks,
    rows,
    run,
    run_all,
)
from .step_sizes_training_plots import draw_methods, draw_training
from .step_sizes_training_runs import CONDITIONS, LEARNED, about, place_in_paper, shortfalls
from .step_sizes_training_verdict import (
    conditions_finding,
    early_finding,
    expansion_finding,
    falls_finding,
    fresh_finding,
    half_finding,
    krylov_finding,
)


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
    trained, net = run(Setting(size, seed=seed), numbers, cache, progress)
    comparison = beside({LEARNED: net}, size, seed, sets, progress)
    figure = name.split("/")[1]
    return Experiment(
        name=name,
        title=f"Training of learned step sizes, x in R^{size.columns}, y in R^{size.rows}",
        reference=f"{PAPER}, {place_in_paper(figure)}",
        tables=(_epochs(trained), Table("methods", COLUMNS, rows(comparison))),
        figures=(Plot(f"{figure}-training.png", lambda: draw_training({str(size): trained}, seed)),),
        findings=(
            falls_finding(trained),
            half_finding([(size, trained)], epochs),
            early_finding(trained, seed),
            fresh_finding([(size, comparison)]),
        ),
        settings=about(trained.setting, sets) | {"epochs": epochs},
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
    for size, (trained, net) in zip(sizes, run_all(wanted, cache, progress), strict=True):
        runs.append((size, trained))
        comparisons.append((size, beside({LEARNED: net}, size, seed, sets, progress)))
    conditions = [(size, e, shortfalls(Setting(size, expansion=e, seed=seed))) for size in sizes for e in (1.0, 100.0)]
    configurations = tuple(
        (
            str(size),
            size.hidden,
            size.count,
            trained.last.epochs,
            trained.last.at_end,
            trained.last.mean,
            trained.last.worse,
        )
        for size, trained in runs
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
        figures=(Plot("table1-methods.png", lambda: draw_methods(comparisons)),),
        findings=(
            half_finding(runs, max(epochs.values())),
            fresh_finding(comparisons),
            krylov_finding(comparisons),
            conditions_finding([(f"{size}, e = {e:g}", short) for size, e, short in conditions]),
            expansion_finding(conditions),
        ),
        settings=about(runs[0][1].setting, sets) | {"epochs": {str(size): epochs[size.columns] for size in sizes}},
    )


def _epochs(trained: Run) -> Table:
    lines: list[tuple[Cell, ...]] = [(m.epochs, m.objectives[-1], m.at_end, m.mean, m.worse) for m in trained.marks]
    columns = ("epochs", "F - F* at T, summed", "at T", "mean t <= T", "problems worse than GD")
    return Table("improvement on the training problems", columns, tuple(lines))
