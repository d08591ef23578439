"""Figures and tables of papers, reproduced: the numbers, the plots, and ours beside the paper's."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .._core.validate import unknown
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


EXPERIMENTS: dict[str, _Entry] = {
    "two-layer/fig1": _Entry(figure1, {"repeats": 3}),
    "two-layer/fig2": _Entry(figure2, {"repeats": 2}),
    "two-layer/fig3": _Entry(figure3, {"widths": (500, 1000, 2000), "repeats": 5}),
    "two-layer/fig4": _Entry(figure4, {"repeats": 5}),
    "two-layer/table3": _Entry(table3, {"repeats": 2}),
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
