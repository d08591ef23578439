"""Figures 1 to 6 and Table 1: width, γ and step size of implicit networks on two classes of images."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot._core import charts

from .draws import repeat_generator
from .implicit_data import FILES, PAPER, TwoClass, available, described, draw
from .implicit_runs import INCREMENT, LIMIT, Setting, Training, trainings
from .result import Cell, Experiment, Finding, Plot, Progress, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALL = tuple(FILES)
GAMMA, ETA, WIDTH = 0.1, 1e-3, 1000
"""What the paper keeps fixed where it varies something else."""
GAMMAS = (0.1, 0.3, 0.5, 0.8)
SMALLER = 1e-4
"""A step with which γ = .8 can be trained."""
REFERENCE = 0.5
"""The γ at whose step and curvature the others are compared at equal ηλ_max."""
PAPER_ITERATIONS = {0.1: 6.0, 0.3: 9.0, 0.5: 15.0, 0.8: 47.5}
CLEAR = 0.8
"""A loss counts as clearly lower where it is at most this part of the other."""
NEAR = 0.2
"""Iteration counts within this part of the paper's count as equal."""
FLAT = 0.1
"""γ‖A‖ counts as about constant where it stays within this part of γ."""

Runs = dict[str, dict[str, Training]]
"""By data set, then by label of the curve."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """What all of these experiments have in common; the defaults are the paper's.

    Attributes:
        samples: to train on, at most, of each data set.
        epochs: steps of every run.
        seed: of the drawn samples and the initial weights.
        progress: told what runs.
        data: directory of the image files.
        cache: directory that keeps finished runs.
    """

    samples: int = 1000
    epochs: int = 500
    seed: int = 0
    progress: Progress = lambda text: None
    data: Path | None = None
    cache: Path | None = None

    def setting(self, width: int, gamma: float, eta: float) -> Setting:
        """Of one run."""
        return Setting(width, gamma, eta, self.epochs, self.seed)

    def by_gamma(self, width: int) -> dict[str, Setting]:
        """Every γ with the paper's step, and the largest with a smaller one, by label."""
        settings = {f"gamma = {gamma:g}": self.setting(width, gamma, ETA) for gamma in GAMMAS}
        largest = GAMMAS[-1]
        return {**settings, f"gamma = {largest:g}, eta = {SMALLER:g}": self.setting(width, largest, SMALLER)}

    def run(self, sets: Sequence[str], settings: Mapping[str, Setting]) -> tuple[Runs, dict[str, Any]]:
        """The runs of every setting on every data set that is there, and what fixes their numbers."""
        used = available(sets, self.data)
        runs: Runs = {}
        drawn: list[TwoClass] = []
        for name in used:
            data = draw(name, self.data, self.samples, repeat_generator(self.seed, 0))
            drawn.append(data)
            trained = trainings(data, list(settings.values()), self.cache, self.progress)
            runs[name] = dict(zip(settings, trained, strict=True))
        return runs, {
            "data": described(sets, used),
            "N": ", ".join(f"{len(data.X)} ({data.name})" for data in drawn),
            "test samples": ", ".join(f"{len(data.X_test)} ({data.name})" for data in drawn),
            "epochs": self.epochs,
            "width": sorted({setting.width for setting in settings.values()}),
            "initialisation": "W ~ N(0, 1/m), A = I, b = 0; the factor beta of the paper is 1",
            "loss": "summed for the gradient, per sample in tables and plots",
        }


def widths(
    name: str,
    sets: Sequence[str] = ALL,
    *,
    widths: Sequence[int] = (200, 500, 1000, 2000),
    **shared: Any,
) -> Experiment:
    """Figures 1 and 4: γ = .1, η = 1e-3, several widths; ``shared`` is that of ``Study``."""
    study = Study(**shared)
    runs, about = study.run(sets, {f"m = {m}": study.setting(m, GAMMA, ETA) for m in widths})
    findings: list[Finding] = [_ordered("the width", name, runs, test) for test in (False, True)]
    deviation = max(abs(c / GAMMA - 1.0) for run in _flat(runs) for c in run.contraction)
    findings.append(
        Finding(
            "The operator norm stays about what it was at the start, gamma.",
            f"gamma |A(k)| differs from {GAMMA:g} by at most {deviation:.1%}",
            deviation <= FLAT,
            f"Agreement means at most {FLAT:.0%} at every epoch, width and data set.",
        )
    )
    return _experiment(name, "The width of an implicit network", "section 7.1", runs, findings, about, "width")


def gammas(
    name: str,
    sets: Sequence[str] = ALL,
    matched: bool = False,
    *,
    width: int = WIDTH,
    **shared: Any,
) -> Experiment:
    """Figures 2 and 6: η = 1e-3 for all γ, and 1e-4 for γ = .8; with ``matched`` also steps of equal ηλ_max(H) at the start.

    ``shared`` is that of ``Study``.
    """
    study = Study(**shared)
    settings = study.by_gamma(width)
    curvature = {
        gamma: ((1.0 - gamma) / (1.0 - REFERENCE)) ** 2 for gamma in GAMMAS
    }  # Z = Φ/(1-γ), H = ZZᵀ at the start
    equal = {
        f"gamma = {gamma:g}": study.setting(width, gamma, ETA * curvature[gamma])
        for gamma in (GAMMAS if matched else ())
    }
    both = {**settings, **{f"{label}, matched step": setting for label, setting in equal.items()}}
    runs, about = study.run(sets, both)
    same = {data_set: {label: by_label[label] for label in settings} for data_set, by_label in runs.items()}
    at_equal = {
        data_set: {label: by_label[f"{label}, matched step"] for label in equal} for data_set, by_label in runs.items()
    }
    one_step = {data_set: _one_step(by_label) for data_set, by_label in same.items()}
    findings = [_ordered("gamma", name, one_step, test) for test in (False, True)]
    findings.append(_collapse(same))
    if matched:
        findings.append(_at_equal_curvature(at_equal))
    experiment = _experiment(
        name, "The factor gamma of an implicit network", "section 7.2", same, findings, about, "gamma"
    )
    if not matched:
        return experiment
    return _with(experiment, at_equal, "matched step", "gamma-matched", "Equal eta lambda_max(H) at the start")


def steps(
    name: str,
    sets: Sequence[str] = ALL,
    *,
    etas: Sequence[float] = (1e-2, 1e-3, 1e-4),
    width: int = WIDTH,
    **shared: Any,
) -> Experiment:
    """Figures 3 and 5: γ = .1, several step sizes; ``shared`` is that of ``Study``."""
    study = Study(**shared)
    runs, about = study.run(sets, {f"eta = {eta:g}": study.setting(width, GAMMA, eta) for eta in etas})
    large = {data_set: next(iter(by_label.values())) for data_set, by_label in runs.items()}
    middle = {data_set: list(by_label.values())[1] for data_set, by_label in runs.items()}
    growth = {d: (max(run.contraction) / GAMMA, max(middle[d].contraction) / GAMMA) for d, run in large.items()}
    limits = {d: 2.0 / run.sharpness for d, run in large.items()}
    findings = [
        Finding(
            f"With eta = {etas[0]:g} the loss does not consistently decrease; with {etas[1]:g} it does.",
            "; ".join(
                f"{d}: rises in {large[d].rises} epochs{_ended(large[d])}, in {middle[d].rises} with {etas[1]:g}"
                for d in runs
            ),
            all((large[d].rises > 0 or large[d].ended != "") and middle[d].rises == 0 for d in runs),
            "Agreement means on every data set. A run that ends early has lost its equilibrium or all its units.",
        ),
        Finding(
            f"With eta = {etas[0]:g} the operator norm rises fast.",
            "; ".join(f"{d}: to {a:.2f} gamma, {b:.2f} gamma with {etas[1]:g}" for d, (a, b) in growth.items()),
            all(a > 1.0 + FLAT and a > b for a, b in growth.values()),
            f"Agreement means above {1.0 + FLAT:g} gamma, and above that of the smaller step. lambda_max(H) grows with the "
            "number of samples, so that the same step is a smaller one where there are fewer than the paper's 1000.",
        ),
        Finding(
            "eta = 1/N is about the largest step (Theorem 4.4 is tight).",
            "; ".join(f"{d}: 2/lambda_max(H) = {limit:.1e}" for d, limit in limits.items()) + f"; N = {about['N']}",
            None,
            "A step above 2/lambda_max(H) cannot settle. lambda_max(H) is measured by power iteration before the first step; "
            "on rows of norm 1 without negative entries it is proportional to N, with a factor that depends on gamma and the "
            "data. The theorem itself allows no such step: see implicit/certificates.",
        ),
    ]
    return _experiment(name, "The step size for an implicit network", "section 7.3", runs, findings, about, "step")


def iterations(
    *,
    width: int = WIDTH,
    **shared: Any,
) -> Experiment:
    """Table 1: iterations of the forward pass by γ on MNIST; ``shared`` is that of ``Study``."""
    study = Study(**shared)
    runs, about = study.run(ALL[:1], study.by_gamma(width))
    ((name, by_label),) = runs.items()
    rows = tuple(_iteration_row(run) for run in by_label.values())
    table = Table("forward iterations", ("gamma", "step", "mean", "first", "last", "paper", "epochs", "ended"), rows)
    trained = [run for run in by_label.values() if not run.ended]
    near = [abs(run.mean_forward / PAPER_ITERATIONS[run.setting.gamma] - 1.0) for run in trained]
    growth = [run.forward[-1] - run.forward[0] for run in trained]
    findings = (
        Finding(
            "The forward pass takes 6, 9, 15 and 47.5 iterations for gamma = .1, .3, .5 and .8.",
            ", ".join(f"{run.mean_forward:.1f} ({_label(run)})" for run in trained),
            max(near, default=math.inf) <= NEAR,
            f"Agreement means within {NEAR:.0%}, for the runs that last. The rule |dZ| <= {INCREMENT:g} speaks of the "
            "Frobenius norm over all samples, so that fewer samples take fewer iterations.",
        ),
        Finding(
            "Later in training the forward pass takes more iterations, as the operator norm grows.",
            ", ".join(f"{run.forward[0]} to {run.forward[-1]} ({_label(run)})" for run in trained),
            min(growth, default=0) >= 0 and max(growth, default=0) > 0,
            "Agreement means that no run takes fewer at the last epoch than at the first, and some run more.",
        ),
        _collapse(runs),
    )
    return Experiment(
        name="implicit/table1",
        title=f"Forward iterations of an implicit network, {name}",
        reference=f"{PAPER}, Table 1",
        tables=(table,),
        figures=(Plot("table1-iterations.png", lambda: _draw_iterations(by_label)),),
        findings=findings,
        settings={**about, "stop": f"|dZ| <= {INCREMENT:g}, or {LIMIT} iterations; from Z = 0 at every epoch"},
    )


def _flat(runs: Runs) -> list[Training]:
    return [run for by_label in runs.values() for run in by_label.values()]


def _label(run: Training) -> str:
    setting = run.setting
    return f"gamma = {setting.gamma:g}" + (f", eta = {setting.eta:g}" if setting.eta != ETA else "")


def _ended(run: Training) -> str:
    return f", {run.ended} after {len(run.train) - 1}" if run.ended else ""


def _one_step(by_label: Mapping[str, Training]) -> dict[str, Training]:
    """The runs with the paper's step."""
    return {label: run for label, run in by_label.items() if run.setting.eta == ETA}


def _last(run: Training, test: bool) -> float:
    """Loss at the end; infinite where the run ended early."""
    return math.inf if run.ended else (run.test if test else run.train)[-1]


def _ordered(what: str, name: str, runs: Runs, test: bool) -> Finding:
    """Whether the loss at the end falls with every larger value of what was varied."""
    kind = "test" if test else "training"
    falls = all(
        b < a for by_label in runs.values() for a, b in pairwise([_last(run, test) for run in by_label.values()])
    )
    ends = {d: [_last(run, test) for run in by_label.values()] for d, by_label in runs.items()}
    clear = [values[-1] <= CLEAR * values[0] for values in ends.values()]
    labels = [label.split(" = ")[1] for label in next(iter(runs.values()))]
    return Finding(
        f"The {kind} loss is lower for a larger value of {what}.",
        f"last {kind} loss for {', '.join(labels)}: "
        + "; ".join(f"{d}: " + ", ".join(_loss(value) for value in values) for d, values in ends.items()),
        falls and all(clear),
        f"Agreement means that it falls with every larger value, to {CLEAR:g} of that for the smallest or less, on every data "
        "set. A run that lost its equilibrium counts as the worst.",
    )


def _loss(value: float) -> str:
    return f"{value:.2e}" if math.isfinite(value) else "none"


def _collapse(runs: Runs) -> Finding:
    """γ = .8 with η = 1e-3."""
    pairs = {d: list(by_label.values())[-2:] for d, by_label in runs.items()}
    texts = [
        f"{d}: lambda_max(H) = {paper.sharpness:.0f} (2/eta = {paper.stability:.0f}), "
        + (f"{paper.ended} after {len(paper.train) - 1} epochs" if paper.ended else "trained to the end")
        + f"; with eta = {smaller.setting.eta:g} training loss {_loss(_last(smaller, False))}"
        for d, (paper, smaller) in pairs.items()
    ]
    return Finding(
        f"gamma = {GAMMAS[-1]:g} can be trained with eta = {ETA:g}.",
        "; ".join(texts),
        all(not paper.ended for paper, _ in pairs.values()),
        "A step above 2/lambda_max(H) makes the loss grow along the top eigenvector, and |A| with it, until gamma |A| < 1 is "
        "lost. H = Z Zᵀ before the first step, with Z = relu(XW)/(1-gamma): on rows without negative entries all features point "
        "one way, and lambda_max is at least about N/(2 pi (1-gamma)^2). Measured by power iteration.",
    )


def _at_equal_curvature(runs: Runs) -> Finding:
    ratios = {d: [_last(run, False) for run in by_label.values()] for d, by_label in runs.items()}
    return Finding(
        "(Not in the paper: gamma at equal eta lambda_max(H).)",
        f"last training loss for gamma = {', '.join(f'{gamma:g}' for gamma in GAMMAS)}: "
        + "; ".join(f"{d}: " + ", ".join(_loss(value) for value in values) for d, values in ratios.items()),
        None,
        "At the start a larger gamma only multiplies all features by 1/(1-gamma), which is a larger step. With the step divided "
        "by the same square, only an advantage that is due to gamma itself is left.",
    )


# -- tables and figures ------------------------------------------------------------------------------------------------

COLUMNS = (
    "run",
    "epochs",
    "train loss",
    "test loss",
    "test accuracy",
    "largest gamma|A|",
    "lambda_max(H)",
    "2/eta",
    "ended",
)


def _experiment(
    name: str, title: str, place: str, runs: Runs, findings: Sequence[Finding], about: Mapping[str, Any], what: str
) -> Experiment:
    figure = name.split("/")[1]
    where = f"{title}: {', '.join(runs)}"
    return Experiment(
        name=name,
        title=where,
        reference=f"{PAPER}, {place}, Figure {figure.removeprefix('fig')}",
        tables=tuple(_table(data_set, by_label) for data_set, by_label in runs.items()),
        figures=(Plot(f"{figure}-{what}.png", lambda: _draw(runs, title)),),
        findings=tuple(findings),
        settings=dict(about),
    )


def _with(experiment: Experiment, runs: Runs, table: str, file: str, title: str) -> Experiment:
    """The experiment with more runs."""
    figure = experiment.name.split("/")[1]
    return Experiment(
        experiment.name,
        experiment.title,
        experiment.reference,
        (*experiment.tables, *(_table(f"{data_set}, {table}", by_label) for data_set, by_label in runs.items())),
        (*experiment.figures, Plot(f"{figure}-{file}.png", lambda: _draw(runs, title))),
        experiment.findings,
        experiment.settings,
    )


def _table(title: str, by_label: Mapping[str, Training]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for label, run in by_label.items():
        numbers = (run.train[-1], run.test[-1], run.accuracy[-1], max(run.contraction), run.sharpness, run.stability)
        rows.append((label, len(run.train) - 1, *numbers, run.ended))
    return Table(title, COLUMNS, tuple(rows))


def _iteration_row(run: Training) -> tuple[Cell, ...]:
    gamma = run.setting.gamma
    ends = run.forward[0], run.forward[-1]
    return gamma, run.setting.eta, run.mean_forward, *ends, PAPER_ITERATIONS[gamma], len(run.train) - 1, run.ended


def _draw(runs: Runs, title: str) -> Figure:
    from matplotlib.ticker import MaxNLocator

    figure, axes = charts.grid(len(runs), 3, panel=(3.5, 2.6))
    for (data_set, by_label), line in zip(runs.items(), axes, strict=True):
        for (label, run), colour in zip(by_label.items(), charts.COLOURS, strict=False):
            for ax, values in zip(line, (run.train, run.test, run.contraction), strict=True):
                ax.plot(values, color=colour, label=label, linewidth=1.5)
                if run.ended:
                    ax.plot(len(values) - 1, values[-1], "x", color=colour, markersize=8, markeredgewidth=2)
        for ax, what in zip(line, ("training loss", "test loss", "gamma |A(k)|"), strict=True):
            ax.set_xlabel("epoch")
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
            if what != "gamma |A(k)|":
                ax.set_yscale("log")
                ax.tick_params(which="minor", labelsize=6)
            charts.style(ax, f"{data_set}: {what}")
    note = " (x: the run ended)" if any(run.ended for run in _flat(runs)) else ""
    return charts.finish(figure, axes, title + note, "loss per sample")


def _draw_iterations(by_label: Mapping[str, Training]) -> Figure:
    from matplotlib.ticker import MaxNLocator

    figure, axes = charts.grid(1, 1, panel=(5.0, 3.4))
    ax = axes[0][0]
    for (label, run), colour in zip(by_label.items(), charts.COLOURS, strict=False):
        ax.plot(run.forward, color=colour, label=label, linewidth=1.5)
        if run.ended:
            ax.plot(len(run.forward) - 1, run.forward[-1], "x", color=colour, markersize=8, markeredgewidth=2)
        else:
            ax.axhline(PAPER_ITERATIONS[run.setting.gamma], color=colour, linestyle=":", linewidth=1.0)
    ax.set_xlabel("epoch")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_ylim(0, None)
    charts.style(ax, f"until |dZ| <= {INCREMENT:g} (dotted: the paper's mean; x: the run ended)")
    return charts.finish(figure, axes, "Iterations of the forward pass", "iterations")
