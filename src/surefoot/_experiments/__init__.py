"""Figures and tables of papers, reproduced: the numbers, the plots, and ours beside the paper's."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from .._core.validate import unknown
from .linear_resnet_certified import NETWORKS, certified
from .linear_resnet_instances import FACTORS
from .linear_resnet_sgd import sgd
from .linear_resnet_training import depths, transformations
from .result import Cell, Experiment, Finding, Plot, Progress, Table
from .two_layer_bounds import figure1
from .two_layer_rates import table3
from .two_layer_rules import figure2
from .two_layer_width import figure3, figure4

__all__ = ["Cell", "Experiment", "Finding", "Plot", "Progress", "Table", "names", "reproduce"]


@dataclass(frozen=True)
class _Entry:
    """An experiment, and the arguments of its quick form; its defaults are those of the paper."""

    run: Callable[..., Experiment]
    quick: dict[str, Any]


TRANSFORMATIONS: dict[str, Any] = {"repeats": 2, "limit": 10_000, "tuning": 300}

EXPERIMENTS: dict[str, _Entry] = {
    "two-layer/fig1": _Entry(figure1, {"repeats": 3}),
    "two-layer/fig2": _Entry(figure2, {"repeats": 2}),
    "two-layer/fig3": _Entry(figure3, {"widths": (500, 1000, 2000), "repeats": 5}),
    "two-layer/fig4": _Entry(figure4, {"repeats": 5}),
    "two-layer/table3": _Entry(table3, {"repeats": 2}),
    "linear-resnet/fig1a": _Entry(partial(transformations, "linear-resnet/fig1a", 40), TRANSFORMATIONS),
    "linear-resnet/fig1b": _Entry(partial(transformations, "linear-resnet/fig1b", 200), TRANSFORMATIONS),
    "linear-resnet/fig1c": _Entry(
        partial(depths, "linear-resnet/fig1c", 40, (1, 5, 10, 20)),
        {"repeats": 2, "limit": 1500, "factors": FACTORS[::2]},
    ),
    "linear-resnet/fig1d": _Entry(
        partial(depths, "linear-resnet/fig1d", 200, (10, 20, 100)),
        {"repeats": 1, "limit": 150, "tuning": 150, "factors": FACTORS[6:11:2]},
    ),
    "linear-resnet/sgd": _Entry(sgd, {"seeds": 32, "iterations": 500}),
    "linear-resnet/certified": _Entry(certified, {"networks": NETWORKS, "repeats": 2}),
}


def names() -> list[str]:
    """The experiments by name, such as ``"two-layer/fig1"``."""
    return list(EXPERIMENTS)


def reproduce(
    name: str,
    *,
    full: bool = False,
    directory: str | Path | None = None,
    progress: Progress | None = None,
    seed: int = 0,
) -> Experiment:
    """Reproduce a figure or table of a paper.

    Args:
        name: one of ``names()``.
        full: as many repeats and settings as the paper; otherwise a quick form of well under a minute.
        directory: write the figures there as PNG; made if absent, files of the same name are replaced.
        progress: called with one line of text before each part.
        seed: of all random draws.

    Raises:
        ValueError: an unknown name.
        OSError: the directory cannot be written.
    """
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    if directory is not None:
        Path(directory).mkdir(parents=True, exist_ok=True)  # before the work, not after
    entry = EXPERIMENTS[name]
    begin = time.perf_counter()
    experiment = entry.run(**({} if full else entry.quick), seed=seed, progress=progress or (lambda text: None))
    experiment = replace(
        experiment,
        settings={**experiment.settings, "seed": seed, "full": full},
        seconds=time.perf_counter() - begin,
    )
    if directory is not None:
        for plot in experiment.figures:
            plot.save(Path(directory))
    return experiment
