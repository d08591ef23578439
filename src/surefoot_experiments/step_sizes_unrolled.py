"""LISTA, LISTA-CP and ALISTA beside methods without training: problems as in training, others, and another matrix."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from surefoot._core import charts
from surefoot._lasso.learned_solver import LassoSolver
from surefoot._lasso.lista import ALISTA, LISTA, LISTACPSS, UnrolledISTA
from surefoot._lasso.lista_training import train_lista
from surefoot._problems import Lasso
from surefoot._problems.draws import matrices
from surefoot._step_sizes.baselines import method, trace

from .finished import Part, completed, kept_all
from .result import Experiment, Finding, Plot, Progress, Table
from .step_sizes_runs import FORMAT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAM = 0.1
TOLERANCE = 1e-8
NETWORKS: dict[str, tuple[Callable[[Tensor, int], UnrolledISTA], float]] = {
    "LISTA": (lambda M, layers: LISTA(M, layers, LAM), 1e-3),
    "LISTA-CP": (lambda M, layers: LISTACPSS(M, layers, LAM, selection=0.0), 1e-3),
    "ALISTA": (lambda M, layers: ALISTA(M, layers, LAM, selection=0.0), 1e-2),
}
"""Each network and its rate of Adam. Without support selection, which leaves entries unshrunk that a minimiser has shrunk."""
SETS: dict[str, dict[str, Any]] = {
    "as in training": {},
    "noise x 10": {"noise": 0.1},
    "non-zeros x 2": {"sparsity": 0.2},
    "another matrix": {"other": True},
}
SOLVER = "LassoSolver"
BASELINES = {"ISTA": ("ISTA 1/β", 1), "FISTA": ("FISTA", 1), "FISTA, 2T": ("FISTA", 2)}
"""Each method, and its iterations in units of the layers."""
REPEATS = 20


def unrolled(
    rows: int = 250,
    columns: int = 500,
    layers: int = 16,
    epochs: int = 10_000,
    batch: int = 64,
    pool: int = 4096,
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
    cache: Path | None = None,
) -> Experiment:
    """Relative gaps after T layers or iterations, and the time of a batch."""
    choices = {"rows": rows, "columns": columns, "layers": layers, "batch": batch, "seed": seed}
    training = {**choices, "epochs": epochs, "pool": pool}
    parts = [
        *(
            Part(
                f"{name}: {epochs:,} epochs", {"unrolled": FORMAT, "name": name, **training}, {"name": name, **training}
            )
            for name in NETWORKS
        ),
        Part("methods without training", {"unrolled": FORMAT, "name": "", **choices}, {"name": "", **choices}),
    ]
    *networks, others = kept_all(cache, "unrolled", parts, measured, progress)
    gaps = {**others["gaps"], **{name: result["gaps"] for name, result in zip(NETWORKS, networks, strict=True)}}
    # in this order, whatever that of a file is
    found = {name: {kind: gaps[name][kind] for kind in SETS} for name in (*BASELINES, SOLVER, *NETWORKS)}
    milliseconds, products = others["milliseconds"], others["products"]
    return Experiment(
        name="step-sizes/lista",
        title=f"LISTA and ALISTA: {layers} layers for one {rows}x{columns} matrix",
        reference="not in the paper; Gregor and LeCun 2010, Chen et al. 2018, Liu et al. 2019",
        tables=(
            Table(
                "(F - F*)/F*, mean",
                ("method", "products", *SETS, "ms a batch"),
                tuple((name, products[name], *gaps.values(), milliseconds[name]) for name, gaps in found.items()),
            ),
            Table(
                "training",
                ("network", "learned numbers", "error before", "after"),
                tuple(
                    (name, result["numbers"], result["first"], result["best"])
                    for name, result in zip(NETWORKS, networks, strict=True)
                ),
            ),
        ),
        figures=(Plot("lista-gaps.png", lambda: _draw(found)),),
        findings=_findings(found, milliseconds, others),
        settings={
            "problems": f"one Gaussian {rows}x{columns} matrix, unit columns; 10 % non-zeros, noise 0.01",
            "layers": layers,
            "lambda": LAM,
            "training": f"Adam on mean |x_T - x*|^2, x* the minimisers, {batch} of {pool} an epoch; no support selection",
            "epochs": epochs,
            "measured on": f"{batch} problems of each kind; times: one thread, least of {REPEATS}, in turn",
        },
    )


def _problems(M: Tensor, count: int, seed: int, sparsity: float = 0.1, noise: float = 0.01) -> Lasso:
    generator = torch.Generator().manual_seed(seed)
    rows, columns = M.shape
    x = torch.randn(count, columns, generator=generator, dtype=torch.float64)
    x = x * (torch.rand(count, columns, generator=generator, dtype=torch.float64) < sparsity)
    error = noise * torch.randn(count, rows, generator=generator, dtype=torch.float64)
    return Lasso.from_matrix(M, (x @ M.T + error).T, lam=LAM)


def measured(name: str, rows: int, columns: int, layers: int, batch: int, seed: int, **training: int) -> dict[str, Any]:
    """What a file keeps of a trained network, or of all methods without training for the name ""."""
    M, other = matrices(2, rows, columns, torch.Generator().manual_seed(seed), unit_columns=True)
    first = 1_000_003 * (seed + 1)
    sets = {
        label: _problems(other if change.pop("other", False) else M, batch, first + index, **change)
        for index, (label, change) in enumerate((label, dict(change)) for label, change in SETS.items())
    }
    if not name:
        return _without_training(M, sets, layers)
    make, rate = NETWORKS[name]
    net, count = make(M, layers), training["pool"]
    pool, held_out = _problems(M, count, first - 1), _problems(M, batch, first - 2)
    best = pool.optimum(TOLERANCE)

    def fresh(epoch: int) -> tuple[Lasso, Tensor]:
        begin = epoch * batch % (count - batch + 1)
        return pool.select(slice(begin, begin + batch)), best[begin : begin + batch]

    run = completed(train_lista(net, held_out, held_out.optimum(TOLERANCE), training["epochs"], rate, fresh=fresh))
    with torch.no_grad():
        gaps = {label: _gap(problems, net(problems.Y)) for label, problems in sets.items()}
    numbers = sum(parameter.numel() for parameter in net.parameters())
    return {"gaps": gaps, "first": run.initial, "best": run.best, "numbers": numbers}


def _gap(problems: Lasso, x: Tensor) -> float:
    best = problems.objective(problems.optimum(TOLERANCE))
    return float(((problems.objective(x) - best) / best).mean())


def _without_training(M: Tensor, sets: Mapping[str, Lasso], layers: int) -> dict[str, Any]:
    gaps = {
        label: {kind: _gap(problems, trace(name, problems, times * layers).solution) for kind, problems in sets.items()}
        for label, (name, times) in BASELINES.items()
    }
    solver, usual = LassoSolver(), next(iter(sets.values()))
    gaps[SOLVER] = {kind: _gap(problems, solver.solve(problems, layers).solution) for kind, problems in sets.items()}
    nets = {name: make(M, layers) for name, (make, _) in NETWORKS.items()}

    def iterate(name: str, count: int) -> None:
        for _ in islice(method(name, usual)(usual, count), count + 1):
            pass

    work: dict[str, Callable[[], object]] = {
        **{label: lambda n=name, k=times * layers: iterate(n, k) for label, (name, times) in BASELINES.items()},
        SOLVER: lambda: solver.solve(usual, layers),
        **{name: lambda net=net: net(usual.Y) for name, net in nets.items()},
    }
    products = {label: float(2 * times * layers) for label, (_, times) in BASELINES.items()}
    products[SOLVER] = float(solver.solve(usual, layers).products[-1].double().mean())
    alista = nets["ALISTA"]
    assert isinstance(alista, ALISTA)
    return {
        "gaps": gaps,
        "products": products | dict.fromkeys(nets, float(2 * layers)),
        "milliseconds": _least_times(work),
        "coherence": [alista.coherence, alista.least_coherence],
    }


def _least_times(work: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Milliseconds on one thread, the least of several, each taken after the others."""
    least = dict.fromkeys(work, float("inf"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            for _ in range(REPEATS):
                for name, run in work.items():
                    begin = time.perf_counter()
                    run()
                    least[name] = min(least[name], 1e3 * (time.perf_counter() - begin))
    finally:
        torch.set_num_threads(threads)
    return least


def _findings(
    found: Mapping[str, Mapping[str, float]], milliseconds: Mapping[str, float], others: Mapping[str, Any]
) -> tuple[Finding, ...]:
    usual, *shifted = SETS

    def of_networks(kind: str, reference: str) -> str:
        return ", ".join(f"{name}: {found[name][kind]:.2g}" for name in NETWORKS) + (
            f"; {reference}: {found[reference][kind]:.2g}"
        )

    coherence, least = others["coherence"]
    slower = {name: milliseconds[SOLVER] / milliseconds[name] for name in NETWORKS}
    return (
        Finding(
            "(Not in the paper: on problems as in training the networks end closer than FISTA after as many iterations.)",
            of_networks(usual, "FISTA"),
            all(found[name][usual] < found["FISTA"][usual] for name in NETWORKS),
            "Mean relative gap. A layer costs two products, as an iteration does.",
        ),
        Finding(
            "(Not in the paper: with more noise or more non-zeros than in training they still do.)",
            "; ".join(f"{kind}: {of_networks(kind, 'FISTA')}" for kind in shifted[:2]),
            all(found[name][kind] < found["FISTA"][kind] for name in NETWORKS for kind in shifted[:2]),
            "The same networks. The number of layers is fixed: none of them gets closer by running longer.",
        ),
        Finding(
            "(Not in the paper: a network is for one matrix.)",
            of_networks(shifted[2], "ISTA"),
            all(found[name][shifted[2]] > found["ISTA"][shifted[2]] for name in NETWORKS),
            "Agreement means that for another matrix of the same law all of them end farther than ISTA. Nothing warns of it "
            "where only Y is passed; solvers and compare refuse other matrices.",
        ),
        Finding(
            "(Not in the paper: the solver with a safeguard ends closer after as many iterations, in more time.)",
            f"{SOLVER}: {found[SOLVER][usual]:.2g}, in "
            + ", ".join(f"{ratio:.0f} times the time of {name}" for name, ratio in slower.items()),
            all(found[SOLVER][usual] < found[name][usual] and slower[name] > 1.0 for name in NETWORKS),
            "It takes any matrix, never raises the objective, and knows its gap.",
        ),
        Finding(
            "(Not in the paper: where the coherence of the analytic weights lies.)",
            f"{coherence:.3f}; no weights have less than {least:.3f}",
            None,
            "Both are certain. The weights minimise the sum of squares of W_i'M_j, which is not the largest of them.",
        ),
    )


def _draw(found: Mapping[str, Mapping[str, float]]) -> Figure:
    figure, axes = charts.grid(1, 1, panel=(7.0, 3.6))
    ax = axes[0][0]
    for index, (colour, (name, gaps)) in enumerate(zip(charts.COLOURS, found.items(), strict=False)):
        places = [place + 0.1 * (index - len(found) / 2) for place in range(len(gaps))]
        ax.plot(places, list(gaps.values()), "o" if name in NETWORKS else "D", color=colour, markersize=6, label=name)
    ax.set_xticks(range(len(SETS)), list(SETS))
    ax.set_yscale("log")
    charts.style(ax, "networks are round")
    return charts.finish(figure, axes, "LISTA and ALISTA beside methods without training", "(F - F*)/F*, mean")
