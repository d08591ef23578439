"""From which step of a stock optimiser on an exact fit of a plain network is guaranteed: by itself, and with a finish."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from surefoot._core.near_a_fit.training import METHODS
from surefoot_check.arrays import digest

from .feed_forward_cases import FINISHED, NETWORKS, Kind, left_out, usable
from .feed_forward_plots import draw_training
from .feed_forward_runs import FALL, TARGET, Draw, Fit, computed_draw
from .feed_forward_verdict import finish_findings, fit_findings
from .finished import Part, kept_all
from .result import Cell, Experiment, Plot, Progress, Table
from .summaries import median

REFERENCE = "surefoot, docs/theorems/feed-forward.md, Theorem A (no paper)"
FIT = (
    "network",
    "certified",
    "step",
    "prototype's",
    "guaranteed",
    "prototype's count",
    "radius/|theta|",
    "moved",
    "checker",
)
FITS, WITH_FINISH, DESCENTS = "guaranteed fits", "with the finish", "descent from there"
Found = Sequence[tuple[Kind, list[Draw]]]


def certified(
    networks: Sequence[Kind] = NETWORKS,
    repeats: int = 3,
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
    data: Path | None = None,
    cache: Path | None = None,
    limit: int = 5000,
    steps: int = 5,
) -> Experiment:
    """Plain training until ``feed-forward/local`` holds, beside the first step at which it holds after a finish; for some
    networks descent from there."""
    used = usable(networks, data)
    found = _drawn(used, repeats, seed, limit, steps, False, data, cache, progress)
    shown = [(kind, draws) for kind, draws in found if kind.descends]
    descents = Table(
        DESCENTS,
        ("network", "guaranteed", "floor steps", "guaranteed/floor steps", "certified-bb steps", "audit violations"),
        tuple(_descent_row(kind, draws) for kind, draws in shown),
    )
    return Experiment(
        name="feed-forward/certified",
        title="From which step on an exact fit is guaranteed",
        reference=REFERENCE,
        tables=(
            Table(FITS, FIT, tuple(_row(kind, [draw.plain for draw in draws]) for kind, draws in found)),
            Table(WITH_FINISH, FIT, tuple(_row(kind, [draw.finished for draw in draws]) for kind, draws in found)),
            descents,
        ),
        figures=tuple(
            Plot(f"training-{number}.png", lambda kind=kind, draws=draws: draw_training(kind.label, draws[0].history))
            for number, (kind, draws) in enumerate(shown, 1)
        ),
        findings=fit_findings(found),
        settings=_settings(networks, used, repeats, steps)
        | {"guaranteed, steps of the descents": f"iterations to a gap of {TARGET:g} of that where it was certified"},
    )


def finish(
    networks: Sequence[Kind] = FINISHED,
    repeats: int = 3,
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
    data: Path | None = None,
    cache: Path | None = None,
    limit: int = 2000,
    steps: int = 10,
) -> Experiment:
    """Training until ``feed-forward/local`` holds after a few Gauss-Newton steps."""
    used = usable(networks, data)
    found = _drawn(used, repeats, seed, limit, steps, True, data, cache, progress)
    return Experiment(
        name="feed-forward/finish",
        title="From which step on Gauss-Newton steps lead to a guaranteed fit",
        reference=REFERENCE,
        tables=(
            Table(WITH_FINISH, FIT, tuple(_row(kind, [draw.finished for draw in draws]) for kind, draws in found)),
        ),
        figures=(),
        findings=finish_findings(found),
        settings=_settings(networks, used, repeats, steps)
        | {
            "images": "the first N rows of the training part, ±1 for the two classes, rows of norm 1",
            "tables": "the first N distinct rows, inputs and target standardised over them",
            "first layer": "weights N(0, 1), for tables N(0, 9), apart from ReLU and leaky ReLU; digits then have rows of norm 1",
            "guaranteed": f"iterations to a gap of {TARGET:g} of that after the finish",
        },
    )


def _settings(networks: Sequence[Kind], used: Sequence[Kind], repeats: int, steps: int) -> dict[str, Cell]:
    return {
        "data": "digits, the first N rows, columns standardised over those rows (constant ones dropped)"
        + left_out(networks, used),
        "targets": "1 for odd digits and -1 for even ones, or one-hot",
        "loss": "½‖f - Y‖², full batch but where said; Adam with 1e-3",
        "initial weights": "torch's, in float64 but where said",
        "repeats": f"{repeats}; medians over them"
        + ("; of the largest one" if any(kind.once for kind in used) else ""),
        "looked at": f"every {METHODS['adam'].every} steps (lbfgs: {METHODS['lbfgs'].every}), once the residual is {FALL} "
        "of that at the last look",
        "finish": f"at each look, at most {steps} Gauss-Newton steps on a copy, each halved until it lowers the residual",
        "moved": "‖a - a(0)‖_F/‖a(0)‖_F of each hidden layer",
        "checker": "draws whose certificate it accepts at level fast, in a run of one step",
    }


def _drawn(
    kinds: Sequence[Kind],
    repeats: int,
    seed: int,
    limit: int,
    steps: int,
    only_finish: bool,
    data: Path | None,
    cache: Path | None,
    progress: Progress,
) -> list[tuple[Kind, list[Draw]]]:
    def parts() -> Iterator[Part]:
        for kind in kinds:
            X, Y = kind.data(data)
            arrays = digest(X.numpy()) + digest(Y.numpy())
            for repeat in range(1 if kind.once else repeats):
                choices = {
                    "kind": list(kind),
                    "seed": seed + repeat,
                    "limit": limit,
                    "steps": steps,
                    "only_finish": only_finish,
                }
                text = f"{kind.label}: seed {seed + repeat}"
                yield Part(text, {"data": arrays, **choices}, choices, {"X": X, "Y": Y})

    results = kept_all(cache, "finish" if only_finish else "certified", parts(), computed_draw, progress)
    draws = iter([Draw.of(result) for result in results])
    return [(kind, list(itertools.islice(draws, 1 if kind.once else repeats))) for kind in kinds]


def _row(kind: Kind, fits: Sequence[Fit | None]) -> tuple[Cell, ...]:
    there = [fit for fit in fits if fit is not None]
    layers = zip(*(fit.moved for fit in there), strict=True)
    return (
        kind.label,
        f"{len(there)} of {len(fits)}",
        median(None if fit is None else fit.step for fit in fits),
        kind.latest,
        median(None if fit is None else fit.guaranteed for fit in fits),
        kind.most,
        median(fit.radius for fit in there) if there else None,
        ", ".join(f"{median(layer):.2g}" for layer in layers),
        f"{sum(fit.accepted for fit in there)} of {len(there)}",
    )


def _descent_row(kind: Kind, draws: Sequence[Draw]) -> tuple[Cell, ...]:
    guaranteed = median(None if draw.plain is None else draw.plain.guaranteed for draw in draws)
    return (
        kind.label,
        guaranteed,
        median(draw.floor for draw in draws),
        median(draw.looseness for draw in draws),
        median(draw.certified for draw in draws),
        sum(draw.violations for draw in draws),
    )
