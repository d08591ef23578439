"""Figures and tables of papers, reproduced: the numbers, the plots, and ours beside the paper's."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from surefoot._core.validate import unknown

from .deconvolution_table4 import table4 as deconvolution_solvers
from .feed_forward_cases import FINISHED, QUICK
from .feed_forward_certified import certified as guaranteed_fits
from .feed_forward_certified import finish
from .feed_forward_minimum import CASES, minimum
from .feed_forward_sgd import QUESTIONS
from .feed_forward_sgd import sgd as batches
from .feed_forward_width import width
from .implicit_certified import certificates, tradeoff
from .implicit_figures import ALL, gammas, iterations, steps, widths
from .implicit_initialisation import initialisation
from .implicit_lemmas import lemmas
from .inverse_figures import sweep
from .inverse_tables import table1 as inverse_times
from .inverse_tables import table2 as inverse_conditions
from .linear_resnet_certified import NETWORKS, certified
from .linear_resnet_instances import FACTORS
from .linear_resnet_sgd import sgd
from .linear_resnet_sgd_local import ALPHAS, BATCHES, sgd_local
from .linear_resnet_training import depths, transformations
from .result import Cell, Experiment, Finding, Plot, Progress, Table
from .step_sizes_ablation import expansions, ranges, rates
from .step_sizes_lasso import METHODS, lasso
from .step_sizes_lista import figure2 as lista
from .step_sizes_runs import LARGE, SIZES
from .step_sizes_training import table1, training
from .step_sizes_unrolled import unrolled
from .svd_table import table3 as svd_depths
from .two_layer_bounds import figure1
from .two_layer_closed_form import CONDITIONS, closed_forms
from .two_layer_prescribed import prescribed
from .two_layer_rates import table3
from .two_layer_rules import figure2
from .two_layer_width import figure3, figure4

__all__ = ["Cell", "Experiment", "Finding", "Plot", "Progress", "Table", "names", "reproduce", "shared"]


@dataclass(frozen=True)
class _Entry:
    """An experiment, and the arguments of its quick form; its defaults are those of the paper.

    ``data``: takes a directory of data files. ``cache``: takes a directory where it keeps finished runs. ``weights``: takes a
    trained network. ``shared``: the ranks of a job share its parts, or its training.
    """

    run: Callable[..., Experiment]
    quick: dict[str, Any]
    data: bool = False
    cache: bool = False
    weights: bool = False
    shared: bool = True


TRANSFORMATIONS: dict[str, Any] = {"repeats": 2, "limit": 10_000, "tuning": 300}
SMALL: dict[str, Any] = {"samples": 400, "epochs": 20}
SPECTRAL: dict[str, Any] = {"epochs": 300, "train": 30}
MNIST, FASHION = ALL[:1], ALL[1:2]
RUNS = "runs"
"""Where finished runs are kept, in the directory of the figures."""

EXPERIMENTS: dict[str, _Entry] = {
    "two-layer/fig1": _Entry(figure1, {"repeats": 3}, shared=False),
    "two-layer/fig2": _Entry(figure2, {"repeats": 2}, shared=False),
    "two-layer/fig3": _Entry(figure3, {"widths": (500, 1000, 2000), "repeats": 5}),
    "two-layer/fig4": _Entry(figure4, {"repeats": 5}, shared=False),
    "two-layer/table3": _Entry(table3, {"repeats": 2}),
    "two-layer/closed-form": _Entry(closed_forms, {"conditions": CONDITIONS[:2]}, shared=False),
    "two-layer/prescribed": _Entry(prescribed, {}, data=True, shared=False),
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
    "linear-resnet/sgd": _Entry(sgd, {"seeds": 32, "iterations": 500}, shared=False),
    "linear-resnet/sgd-local": _Entry(sgd_local, {"alphas": ALPHAS[::3], "batches": BATCHES[::2]}, shared=False),
    "linear-resnet/certified": _Entry(certified, {"networks": NETWORKS, "repeats": 2}, shared=False),
    "implicit/fig1": _Entry(
        partial(widths, "implicit/fig1", MNIST), {**SMALL, "widths": (200, 500, 1000)}, data=True, cache=True
    ),
    "implicit/fig2": _Entry(
        partial(gammas, "implicit/fig2", MNIST, matched=True), {**SMALL, "width": 500}, data=True, cache=True
    ),
    "implicit/fig3": _Entry(partial(steps, "implicit/fig3", FASHION), {**SMALL, "width": 500}, data=True, cache=True),
    "implicit/fig4": _Entry(
        partial(widths, "implicit/fig4"), {**SMALL, "widths": (100, 200, 500)}, data=True, cache=True
    ),
    "implicit/fig5": _Entry(partial(steps, "implicit/fig5"), {**SMALL, "width": 200}, data=True, cache=True),
    "implicit/fig6": _Entry(partial(gammas, "implicit/fig6"), {**SMALL, "width": 200}, data=True, cache=True),
    "implicit/table1": _Entry(iterations, {**SMALL, "width": 500}, data=True, cache=True),
    "implicit/certificates": _Entry(
        certificates,
        {"sizes": ((20, 80), (50, 200), (100, 400), (200, 800)), "repeats": 3, "executed": 50},
        data=True,
        cache=True,
    ),
    "implicit/tradeoff": _Entry(
        tradeoff,
        {"size": (50, 200), "octaves": (-7, -6, -5, -4, -2, -1, 0, 0.1, 0.5, 1, 2, 4)},
        data=True,
        shared=False,
    ),
    "implicit/lemmas": _Entry(lemmas, {"draws": 20}, shared=False),
    "implicit/initialisation": _Entry(initialisation, {"widths": (100, 200, 400, 800), "draws": 5}, shared=False),
    "feed-forward/certified": _Entry(guaranteed_fits, {"networks": QUICK, "repeats": 1}, data=True, cache=True),
    "feed-forward/finish": _Entry(finish, {"networks": FINISHED[:7], "repeats": 1}, data=True, cache=True),
    "feed-forward/width": _Entry(width, {"repeats": 1}, shared=False),
    "feed-forward/sgd": _Entry(batches, {"questions": QUESTIONS[2:4], "runs": 3}, shared=False),
    "feed-forward/minimum": _Entry(minimum, {"cases": CASES[::3], "repeats": 1}, data=True, cache=True),
    "step-sizes/fig2": _Entry(
        lista, {"rows": 50, "columns": 100, "layers": 12, "epochs": 300, "batch": 32}, cache=True
    ),
    **{
        f"step-sizes/fig{number}": _Entry(
            partial(training, f"step-sizes/fig{number}", size, epochs=full),
            {"epochs": epochs, "sets": sets},
            cache=True,
        )
        for number, size, full, epochs, sets in (
            (3, LARGE, 5000, 100, 1),
            (4, LARGE, 5000, 100, 1),
            (5, LARGE, 5000, 100, 1),
            (6, SIZES[0], 50_000, 2000, 10),
            (7, SIZES[1], 50_000, 1000, 5),
            (8, SIZES[2], 5000, 200, 2),
            (9, SIZES[3], 5000, 80, 1),
        )
    },
    "step-sizes/table1": _Entry(
        partial(table1, SIZES, epochs={32: 50_000, 64: 50_000, 128: 5000, 256: 5000}),
        {"epochs": {32: 500, 64: 300, 128: 150, 256: 60}, "sets": 1},
        cache=True,
    ),
    "step-sizes/fig10": _Entry(expansions, {"epochs": 500, "sets": 4}, cache=True),
    "step-sizes/fig11": _Entry(
        partial(rates, epochs={32: 50_000, 256: 5000}), {"epochs": {32: 500, 256: 20}, "sets": 2}, cache=True
    ),
    "step-sizes/ranges": _Entry(ranges, {"epochs": 150, "sets": 10}, cache=True),
    "step-sizes/lista": _Entry(
        unrolled, {"rows": 50, "columns": 100, "layers": 12, "epochs": 300, "batch": 32, "pool": 512}, cache=True
    ),
    "step-sizes/lasso": _Entry(lasso, {"count": 8, "methods": METHODS[1:]}, cache=True),
    "inverse/fig1a": _Entry(
        partial(sweep, "inverse/fig1a", points=[(K, L) for K in range(2, 8) for L in range(4, 10)]),
        {**SPECTRAL, "points": [(K, L) for K in (2, 3, 5, 7) for L in (4, 6, 9)]},
        cache=True,
    ),
    "inverse/fig1b": _Entry(
        partial(sweep, "inverse/fig1b", points=[(K, 4) for K in range(2, 21)]),
        {**SPECTRAL, "points": [(K, 4) for K in (2, 3, 5, 7, 10, 13, 16, 20)]},
        cache=True,
    ),
    "inverse/fig1c": _Entry(
        partial(sweep, "inverse/fig1c", points=[(5, L) for L in range(4, 13)]),
        {**SPECTRAL, "points": [(5, L) for L in (4, 5, 6, 8, 10, 12)]},
        cache=True,
    ),
    "inverse/table1": _Entry(
        inverse_times, {"settings": ((4, 4), (4, 8), (8, 5)), "counts": (100, 100, 40, 10, 1, 1)}, shared=False
    ),
    "inverse/table2": _Entry(inverse_conditions, SPECTRAL, cache=True),
    "svd/table3": _Entry(
        svd_depths, {"depths": (1, 5, 10, 20), "iterations": 15, "train": 40, "test": 10, "batch": 4}, cache=True
    ),
    "deconvolution/table4": _Entry(
        deconvolution_solvers,
        {
            "images": 20,
            "valid": 2,
            "real": 2,
            "kernels": 1,
            "crop": 192,
            "steps": 200,
            "batch": 8,
            "patch": 80,
            "unrolled": 100,
        },
        data=True,
        cache=True,
        weights=True,
    ),
}


def names() -> list[str]:
    """The experiments by name, such as ``"two-layer/fig1"``."""
    return list(EXPERIMENTS)


def shared() -> list[str]:
    """Those of ``names()`` whose work the ranks of a job share; the others run on rank 0 alone."""
    return [name for name, entry in EXPERIMENTS.items() if entry.shared]


def reproduce(
    name: str,
    *,
    full: bool = False,
    directory: str | Path | None = None,
    progress: Progress | None = None,
    seed: int = 0,
    data: str | Path | None = None,
    weights: str | Path | None = None,
) -> Experiment:
    """Reproduce a figure or table of a paper.

    Args:
        name: one of ``names()``.
        full: as many repeats and settings as the paper; otherwise a quick form of well under a minute.
        directory: write the figures there as PNG; made if absent, files of the same name are replaced. Experiments on implicit
            networks and on anything learned keep each finished part there too, and read those of the same settings again.
        progress: called with one line of text before each part.
        seed: of all random draws.
        data: directory with the files of the experiments that take one (docs/experiments.md); those
            absent are left out, and for implicit networks scikit-learn's digits 0 and 1 stand in where none is there.
        weights: a trained network for the deconvolution table, as ``surefoot train deconvolution`` writes it, or ``bundled``;
            without one it trains its own.

    Raises:
        ValueError: an unknown name, ``data`` for an experiment that draws its own data, or ``weights`` where no network is used.
        OSError: the directory cannot be written, or ``data`` is no directory.
    """
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    entry = EXPERIMENTS[name]
    if data is not None and not entry.data:
        raise ValueError(f"data is given, but {name} draws its own; leave it out")
    if weights is not None and not entry.weights:
        raise ValueError(f"weights is given, but {name} takes no trained network; leave it out")
    if directory is not None:
        Path(directory).mkdir(parents=True, exist_ok=True)  # before the work, not after
    given: dict[str, Any] = {} if full else dict(entry.quick)
    if entry.data:
        given["data"] = None if data is None else Path(data)
    if entry.weights:
        given["weights"] = None if weights is None else Path(weights)
    if entry.cache:
        given["cache"] = None if directory is None else Path(directory) / RUNS
    begin = time.perf_counter()
    experiment = entry.run(**given, seed=seed, progress=progress or (lambda text: None))
    experiment = replace(
        experiment,
        settings={**experiment.settings, "seed": seed, "full": full},
        seconds=time.perf_counter() - begin,
    )
    if directory is not None:
        for plot in experiment.figures:
            plot.save(Path(directory))
    return experiment
