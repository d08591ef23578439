"""Figures 10 and 11 of the paper on learned step sizes, expansion and learning rate, and what the range of P changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot._core import charts

from .result import Cell, Experiment, Finding, Plot, Progress, Table
from .step_sizes_runs import COLUMNS, GD, PAPER, SIZES, Run, Setting, Size, beside, marks, percent, rows, run_all
from .step_sizes_training_plots import draw_course
from .step_sizes_training_runs import about
from .step_sizes_training_verdict import CLEAR

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPANSIONS = (1.0, 5.0, 25.0, 50.0, 100.0)
RATES = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
CHOSEN = 1e-6
"""The rate that the paper settles on for 256/200."""
RANGES = ((0.0, 2.0), (1.5, 1.95))
NOTHING = 0.01
"""An improvement below this counts as none."""
SAME = 0.02
"""Improvements closer than this count as equal."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """What the experiments on training have in common; the defaults are the paper's.

    Attributes:
        sets: number of fresh sets of problems.
        size: of the problems.
        seed: of the problems and the initial weights.
        progress: told what runs.
        cache: directory that keeps finished runs.
    """

    sets: int = 20
    size: Size = SIZES[0]
    seed: int = 0
    progress: Progress = lambda text: None
    cache: Path | None = None

    @property
    def base(self) -> Setting:
        """A run as in the paper."""
        return Setting(self.size, seed=self.seed)

    def run(self, settings: Mapping[str, Setting], epochs: int) -> tuple[dict[str, Run], tuple[tuple[Cell, ...], ...]]:
        """The runs, and the rows of all methods."""
        wanted = [(setting, marks(epochs, 6)) for setting in settings.values()]
        trained = dict(zip(settings, run_all(wanted, self.cache, self.progress), strict=True))
        nets = {label: net for label, (_, net) in trained.items()}
        comparison = beside(nets, self.size, self.seed, self.sets, self.progress)
        return {label: training for label, (training, _) in trained.items()}, rows(comparison)


def expansions(epochs: int = 50_000, **shared: Any) -> Experiment:
    """Figure 10: five expansions e at the learning rate 1e-7, and e = 50 at the rate with which lr·e⁴ is that of e = 100.

    ``shared`` is that of ``Study``, here and below.
    """
    study = Study(**shared)
    base = study.base
    settings = {f"e = {e:g}": replace(base, expansion=e) for e in EXPANSIONS}
    rescaled = "e = 50, rate 1.6e-6"
    settings[rescaled] = replace(base, expansion=50.0, rate=1.6e-6)
    runs, methods = study.run(settings, epochs)
    ends = {label: run.last.at_end for label, run in runs.items()}
    fifty, hundred = ends["e = 50"], ends["e = 100"]
    difference = abs(ends[rescaled] - hundred)
    findings = (
        Finding(
            "With e = 1 or 5 training leads to no improvement.",
            f"e = 1: {percent(ends['e = 1'])}, e = 5: {percent(ends['e = 5'])}",
            max(ends["e = 1"], ends["e = 5"]) < NOTHING,
            f"Agreement means less than {percent(NOTHING)} at T.",
        ),
        Finding(
            "With e = 50 the improvement is about 60 %.",
            percent(fifty),
            True if fifty >= CLEAR else None if epochs < 50_000 else False,
            f"Agreement means at least {percent(CLEAR)}; fewer than the paper's 50,000 epochs decide nothing against it.",
        ),
        Finding(
            "e = 50 does better than e = 100.",
            f"e = 50: {percent(fifty)}, e = 100: {percent(hundred)} after {epochs:,} epochs",
            fifty > hundred,
            "The improvement at T on the training problems.",
        ),
        Finding(
            "(Not in the paper: e only rescales the learning rate, to rate e^4.)",
            f"e = 50 at 16 times the rate {percent(ends[rescaled])}, e = 100 {percent(hundred)}",
            difference < SAME,
            f"Agreement means that they differ by less than {percent(SAME)}. Only the last layer is trained to "
            "speak of: the rate of the others falls like e^-2.",
        ),
    )
    return _experiment("fig10", "Expansion e of the first layers", runs, methods, findings, study.sets, epochs)


def rates(epochs: Mapping[int, int], sizes: Sequence[Size] = (SIZES[0], SIZES[3]), **shared: Any) -> Experiment:
    """Figure 11: learning rates at e = 100, at each size; ``epochs`` by number of columns."""
    parts = [_rates(Study(size=size, **shared), epochs[size.columns]) for size in sizes]
    first = parts[0]
    if len(parts) == 1:
        return first
    tables = [
        Table(
            tables[0].title,
            ("problems", *tables[0].columns),
            tuple((str(size), *row) for size, table in zip(sizes, tables, strict=True) for row in table.rows),
        )
        for tables in zip(*(part.tables for part in parts), strict=True)
    ]
    findings = [
        finding._replace(measured=f"{size}: {finding.measured}")
        for size, part in zip(sizes, parts, strict=True)
        for finding in part.findings
    ]
    return replace(
        first,
        title="Learning rates at e = 100",
        tables=tuple(tables),
        figures=tuple(figure for part in parts for figure in part.figures),
        findings=tuple(findings),
        settings={
            name: value
            if all(part.settings[name] == value for part in parts)
            else "; ".join(f"{size}: {part.settings[name]}" for size, part in zip(sizes, parts, strict=True))
            for name, value in first.settings.items()
        },
    )


def _rates(study: Study, epochs: int) -> Experiment:
    settings = {f"rate {rate:g}": replace(study.base, rate=rate) for rate in RATES}
    runs, methods = study.run(settings, epochs)
    ends = {label: run.last.at_end for label, run in runs.items()}
    means = {label: run.last.mean for label, run in runs.items()}
    first, chosen, last = (f"rate {rate:g}" for rate in (RATES[0], CHOSEN, RATES[-1]))
    best = max(ends, key=lambda label: ends[label])
    better = [label for label in runs if ends[label] > ends[chosen] and means[label] > means[chosen]]
    rising = {label: sum(b > a for a, b in pairwise(run.losses)) for label, run in runs.items()}
    fresh = {str(row[0]): float(row[3] or 0.0) for row in methods}
    findings = (
        Finding(
            "The learning rate .001 gives the largest improvement of the final objective.",
            ", ".join(f"{label}: {percent(value)} ({percent(fresh[label])} fresh)" for label, value in ends.items()),
            best == first,
            "The best network of so many epochs, at T on the training problems.",
        ),
        Finding(
            "At the rate .001 the mean improvement over the iterations gets worse.",
            f"{percent(means[first])} at .001, {percent(means[last])} at {RATES[-1]:g}",
            means[first] < means[last],
            "Mean over t <= T at the end of training.",
        ),
        Finding(
            f"Considering both, {CHOSEN:g} is the learning rate (said of 256/200).",
            f"better at T and on average: {', '.join(better) or 'none'}",
            not better,
            "Agreement means that no other rate is better in both.",
        ),
        Finding(
            "(Not in the paper: whether training is stable.)",
            "epochs that raised the objective: "
            + ", ".join(f"{label}: {rising[label]} of {epochs:,}" for label in runs),
            None,
            "The sigmoid bounds what a large step can do: after the first few, most outputs are saturated.",
        ),
    )
    name = f"fig11-{study.size.columns}"
    return _experiment("fig11", "Learning rates at e = 100", runs, methods, findings, study.sets, epochs, name)


def ranges(epochs: int = 500, **shared: Any) -> Experiment:
    """What the range of P changes on problems that nothing was trained on; Adam and L-BFGS with the exact gradient."""
    study = Study(**shared)
    settings = {
        f"{name}, P in [{low:g}, {high:g}]": Setting(
            study.size, expansion, rate, optimizer, "exact", low, high, study.seed
        )
        for optimizer, name, expansion, rate in (("adam", "Adam", 1.0, 1e-2), ("lbfgs", "L-BFGS", 10.0, None))
        for low, high in RANGES
    }
    runs, methods = study.run(settings, epochs)
    fresh = {str(row[0]): row for row in methods}

    def text(label: str) -> str:
        row = fresh[label]
        return f"{label}: {_cell(row[1])} in training, {_cell(row[3])} fresh, {_cell(row[5])} of fresh problems worse"

    labels = list(settings)
    narrow, wide = labels[1::2], labels[::2]
    gaps = {label: float(fresh[label][1] or 0.0) - float(fresh[label][3] or 0.0) for label in labels}
    findings = (
        Finding(
            "(Not in the paper: a range inside (0, 2) does as well on fresh problems as in training.)",
            "; ".join(text(label) for label in narrow),
            all(gaps[label] < 0.1 for label in narrow),
            "Agreement means less than 10 points of difference at T.",
        ),
        Finding(
            "(Not in the paper: P in [0, 2] overfits.)",
            "; ".join(text(label) for label in wide),
            all(gaps[w] > gaps[n] for w, n in zip(wide, narrow, strict=True)),
            "Agreement means a larger difference between training and fresh problems than in the narrow range, for each "
            "optimiser. In both ranges the objective never increases (step-sizes/monotone); the narrow one has a rate as well.",
        ),
    )
    return _experiment("ranges", "The range of P", runs, methods, findings, study.sets, epochs)


def _experiment(
    part: str,
    title: str,
    runs: Mapping[str, Run],
    methods: tuple[tuple[Cell, ...], ...],
    findings: tuple[Finding, ...],
    sets: int,
    epochs: int,
    figure: str = "",
) -> Experiment:
    first = next(iter(runs.values())).setting
    varied = {"e": "as stated", "learning rate": "as stated"} | ({"training": "as stated"} if part == "ranges" else {})
    lines = tuple(
        (label, m.epochs, m.objectives[-1], m.at_end, m.mean, m.worse, run.ended)
        for label, run in runs.items()
        for m in (run.last,)
    )
    place = {"fig10": "Figure 10, appendix C.2", "fig11": "Figure 11, appendix C.3", "ranges": "not in the paper"}[part]
    columns = ("run", "epochs", "F - F* at T, summed", "at T", "mean t <= T", "problems worse than GD", "ended")
    return Experiment(
        name=f"step-sizes/{part}",
        title=f"{title}, x in R^{first.size.columns}, y in R^{first.size.rows}",
        reference=f"{PAPER}, {place}",
        tables=(Table("improvement on the training problems", columns, lines), Table("methods", COLUMNS, methods)),
        figures=(Plot(f"{figure or part}-improvement.png", partial(_draw, title, runs)),),
        findings=findings,
        settings=about(first, sets) | varied | {"epochs": epochs},
    )


def _draw(title: str, runs: Mapping[str, Run]) -> Figure:
    figure, axes = charts.grid(1, 2, panel=(4.6, 3.4))
    for ax, mean in zip(axes[0], (False, True), strict=True):
        for index, (label, run) in enumerate(runs.items()):
            values = [100.0 * (mark.mean if mean else mark.at_end) for mark in run.marks]
            # every other one thin and dashed, so that equal neighbours both show
            line, width = ("o--", 1.4) if index % 2 else ("o-", 3.2)
            if not mean:
                draw_course(ax, run, charts.COLOURS[index])
            epochs = [mark.epochs for mark in run.marks]
            ax.plot(
                epochs, values, line, color=charts.COLOURS[index], markersize=width + 2.0, linewidth=width, label=label
            )
        ax.axhline(0.0, color="black", linestyle="--", linewidth=1.0, label=GD)
        ax.set_xlabel("epoch")
        charts.style(ax, "mean over t ≤ T, best network so far" if mean else "at T; thin: the network of the epoch")
    return charts.finish(figure, axes, f"{title}: training problems", "improvement, %")


def _cell(value: Cell) -> str:
    assert isinstance(value, float)
    return percent(value)
