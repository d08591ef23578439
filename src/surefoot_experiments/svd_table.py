"""Table 3 of the paper on the differentiable inverse: D-SVD by depth, before and after training, and beside LAPACK."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from surefoot._core import charts
from surefoot._orthogonal.learned_svd import LearnedSVD
from surefoot._orthogonal.svd_accuracy import Decomposition, accuracy, decomposition, lapack
from surefoot._orthogonal.svd_objective import cayley_step, objective, step_of
from surefoot._orthogonal.svd_start import normalised

from .draws import repeat_generator
from .finished import Part, completed, kept_all
from .result import Cell, Experiment, Finding, Plot, Progress, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT = 2
"""Of the files of finished parts; raised whenever the same settings would give other numbers."""
PAPER = "Fast and Differentiable Matrix Inverse and Its Extension to SVD"
ROWS, COLUMNS = 50, 100
DEPTHS = (1, 5, 10, 20, 30, 40, 60)
PRINTED = {
    "before": {
        "loss": (44.9983, 35.8998, 26.6607, 15.6132, 10.3556, 7.7057, 5.0146),
        "mse": (0.8782, 0.5721, 0.3373, 0.1502, 0.0879, 0.0568, 0.0274),
    },
    "after": {
        "loss": (23.1838, 0.9565, 0.4043, 0.2694, 0.2018, 0.1243, 0.0305),
        "mse": (0.2528, 0.0711, 0.0626, 0.0167, 0.0064, 0.0052, 0.0029),
    },
}
RATE = 0.05
"""Of Adam; the paper's 1e-2 is slow for steps that are counted for matrices of norm 1, and .2 raises the loss of 20 layers."""
READINGS = {"standard deviation": COLUMNS**-0.5, "variance": COLUMNS**-0.25}
"""Standard deviations that N(0, 1/√d) can mean."""
SETTLED = 10
"""From this depth on the start, which the paper does not give, hardly matters."""
MATCH = 0.1
"""A relative difference that still counts as the paper's number."""
ANGLES = tuple(math.pi * k / 24 for k in range(-11, 12))
"""Largest angles that the first factor (1 + tP/2)⁻¹ of a Cayley step turns by; they cover its steps of every length and sign."""
SEARCHED = 8
"""Matrices of the search over the step sizes of one layer, and of the inexact inverses."""
ITERATIONS = 200
"""Of the paper's training."""
INEXACT = ((6, 4), (3, 4), (2, 4), (1, 4))
"""K and L of LD-Minv, from the paper's down; the residual has the exponent L^K."""
COURSE = tuple(f"quarter {k}" for k in range(1, 5))
"""Of the iterations of a training."""
INNER = (6, 4)
"""K and L of the LD-Minv in the paper's layers."""
TIES = {"identity, 4x4": torch.eye(4), "ones, 5x5": torch.ones(5, 5)}


def table3(
    depths: tuple[int, ...] = DEPTHS,
    iterations: int = ITERATIONS,
    train: int = 300,
    test: int = 100,
    batch: int = 15,
    size: tuple[int, int] = (ROWS, COLUMNS),
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
    cache: Path | None = None,
) -> Experiment:
    """Test loss and MSE of the singular values by depth, both readings of the distribution, then training of the steps."""
    readings: dict[str, dict[str, dict[str, list[float]]]] = {}
    for reading in READINGS:
        progress(f"{reading} 1/√d: without training")
        M = _draw(reading, test, size, seed, 1)
        # without training a network is the beginning of every deeper one
        readings[reading] = {"before": _collected(_measured(_net(size, max(depths), seed), M, depths))}
    M = _draw("variance", test, size, seed, 1)
    choices = {"iterations": iterations, "train": train, "test": test, "batch": batch, "size": list(size), "seed": seed}
    parts = (
        Part(
            f"K_svd = {depth}: {iterations:,} iterations of training",
            {"svd": FORMAT, "depth": depth, **choices, "rate": RATE},
            {"depth": depth, **choices},
        )
        for depth in depths
    )
    training = kept_all(cache, "svd", parts, trained, progress)
    readings["variance"]["after"] = _collected(training)
    progress("one layer: all step sizes")
    single = _one_layer(M[:SEARCHED], seed)
    progress("inexact inverses")
    inner = _inexact(M[:SEARCHED], depths[-1], seed)
    progress("beside torch.linalg.svd")
    peers = _peers(M[: min(test, 30)], depths[-1], seed)
    ties = tuple(_ties(name, A, seed) for name, A in TIES.items())
    return Experiment(
        name="svd/table3",
        title="D-SVD by depth, before and after training",
        reference=f"{PAPER}, Table 3",
        tables=(
            _by_depth(depths, readings["variance"]),
            _courses(depths, training),
            single,
            inner,
            _by_reading(depths, readings),
            peers,
            Table("errors of gradients at equal singular values", TIE_COLUMNS, ties),
        ),
        figures=(Plot("table3-depth.png", lambda: _draw_depths(depths, readings["variance"])),),
        findings=_findings(depths, readings, training, single, inner, peers, ties, iterations),
        settings={
            "matrices": f"{size[0]}x{size[1]}, entries N(0, 1/√{max(size)}); training in the reading variance",
            "training": f"Adam, rate {RATE:g}, objective of all layers, {iterations:,} iterations of {batch} matrices of "
            f"{train}, in float32",
            "test": f"{test} other matrices; loss + sum of the singular values",
            "MSE": "mean over matrices and singular values; the paper prints a sum of squares",
            "start": "one random pair of orthonormal factors for all matrices",
            "step": "guarded where f'' <= 0, M divided by an upper bound of its norm",
            "inverse": "exact; the last layer of the comparison also with K = 6, L = 4",
            "dtype": "float64",
            "files": FORMAT,
        },
    )


def _draw(reading: str, count: int, size: tuple[int, int], seed: int, part: int) -> Tensor:
    generator = repeat_generator(seed, part)
    return READINGS[reading] * torch.randn(count, *size, dtype=torch.float64, generator=generator)


def _net(size: tuple[int, int], depth: int, seed: int, inverse: Any = "exact") -> LearnedSVD:
    return LearnedSVD(*size, layers=depth, seed=seed, inverse=inverse)


def trained(
    depth: int, iterations: int, train: int, test: int, batch: int, size: tuple[int, int], seed: int
) -> dict[str, float]:
    """Test loss and MSE after training, and the mean loss of training in each quarter of its iterations."""
    net, single = _net(size, depth, seed), _net(size, depth, seed).float()
    data = _draw("variance", train, size, seed, 0)
    run = completed(single.fit(data.float(), iterations=iterations, batch=batch, learning_rate=RATE, seed=seed))
    net.load_state_dict({**net.state_dict(), "steps": single.steps.detach().double()})
    edges = [len(run.losses) * k // 4 for k in range(5)]
    means = [sum(run.losses[a:b]) / max(1, b - a) for a, b in pairwise(edges)]
    (found,) = _measured(net, _draw("variance", test, size, seed, 1), (depth,))
    return {**found, **dict(zip(COURSE, means, strict=True))}


def _courses(depths: tuple[int, ...], training: list[dict[str, float]]) -> Table:
    return Table(
        "mean loss of training in each quarter of its iterations, M over its norm bound",
        ("K_svd", *COURSE),
        tuple((depth, *(found[name] for name in COURSE)) for depth, found in zip(depths, training, strict=True)),
    )


@torch.no_grad()
def _one_layer(M: Tensor, seed: int) -> Table:
    """The least loss, and the least MSE, that any step sizes of one layer reach: what training at K_svd = 1 can hope for."""
    unit, sigma = normalised(M), torch.linalg.svdvals(M)
    U0, V0 = _net((M.shape[-2], M.shape[-1]), 1, seed).orthonormal_start(M)
    still = torch.zeros((), dtype=M.dtype)
    lengths = 2.0 * torch.tensor(ANGLES, dtype=M.dtype).tan()[:, None]
    losses, errors = [], []
    of_U = step_of(unit, U0, V0, still)
    for length in lengths:
        U = cayley_step(of_U.P, U0, length / of_U.bound, of_U.bound, None)
        of_V = step_of(unit.mT, V0, U, still)
        V = cayley_step(of_V.P, V0, lengths / of_V.bound, of_V.bound, None)
        values = (U.mT @ M @ V).diagonal(dim1=-2, dim2=-1).abs().sort(dim=-1, descending=True).values
        losses.append(objective(M, U, V) + sigma.sum(-1))
        errors.append((values - sigma).square().mean(-1))
    loss, error = torch.cat(losses), torch.cat(errors)
    return Table(
        "one layer, all pairs of step sizes",
        ("steps", "least loss", "least MSE"),
        (
            ("one pair for all matrices", float(loss.mean(1).min()), float(error.mean(1).min())),
            ("a pair for each matrix", float(loss.amin(0).mean()), float(error.amin(0).mean())),
            ("paper, trained", PRINTED["after"]["loss"][0], PRINTED["after"]["mse"][0]),
        ),
    )


@torch.no_grad()
def _inexact(M: Tensor, depth: int, seed: int) -> Table:
    """What an inexact inverse inside the layers does to the result, without training."""
    rows: list[tuple[Cell, ...]] = []
    for inverse in ("exact", *INEXACT):
        net = _net((M.shape[-2], M.shape[-1]), depth, seed, inverse)
        *_, (U, V) = net.iterates(normalised(M), net.orthonormal_start(M))
        identity = torch.eye(net.rank, dtype=M.dtype)
        lost = max(float(torch.linalg.matrix_norm(X.mT @ X - identity).max()) for X in (U, V))
        name = inverse if isinstance(inverse, str) else f"K = {inverse[0]}, L = {inverse[1]}"
        rows.append((name, _errors(M, U, V)["mse"], lost))
    return Table(f"LD-Minv inside, K_svd = {depth}, without training", INEXACT_COLUMNS, tuple(rows))


INEXACT_COLUMNS = ("inverse", "MSE", "orthogonality")


@torch.no_grad()
def _measured(net: LearnedSVD, M: Tensor, depths: Sequence[int]) -> list[dict[str, float]]:
    """The paper's test loss and MSE of the factors after each of these numbers of layers, the first ones of the network."""
    found = {}
    for k, (U, V) in enumerate(net.iterates(normalised(M), net.orthonormal_start(M)), 1):
        if k in depths:
            found[k] = _errors(M, U, V)
    return [found[depth] for depth in depths]


def _errors(M: Tensor, U: Tensor, V: Tensor) -> dict[str, float]:
    """Test loss and MSE of factors, columns of U turned so that no diagonal entry of UᵀMV is negative."""
    sigma = torch.linalg.svdvals(M)
    values = (U.mT @ M @ V).diagonal(dim1=-2, dim2=-1)
    loss = objective(M, torch.where(values < 0.0, -1.0, 1.0)[..., None, :] * U, V) + sigma.sum(-1)
    error = values.abs().sort(dim=-1, descending=True).values - sigma
    return {"loss": float(loss.mean()), "mse": float(error.square().mean())}


def _collected(measured: list[dict[str, float]]) -> dict[str, list[float]]:
    return {name: [losses[name] for losses in measured] for name in ("loss", "mse")}


def _printed(when: str, name: str, depth: int) -> float | None:
    return PRINTED[when][name][DEPTHS.index(depth)] if depth in DEPTHS else None


def _by_depth(depths: tuple[int, ...], curves: dict[str, dict[str, list[float]]]) -> Table:
    columns = ["K_svd"]
    for when in ("before", "after"):
        for name in ("loss", "MSE"):
            columns += [f"{name} {when} training", f"{name} {when}, paper"]
    rows = []
    for index, depth in enumerate(depths):
        row: list[float | int | None] = [depth]
        for when in ("before", "after"):
            for name in ("loss", "mse"):
                row += [curves[when][name][index], _printed(when, name, depth)]
        rows.append(tuple(row))
    return Table("by depth", tuple(columns), tuple(rows))


def _by_reading(depths: tuple[int, ...], readings: dict[str, dict[str, dict[str, list[float]]]]) -> Table:
    return Table(
        "without training, by reading of N(0, 1/√d)",
        ("reading", "K_svd", "loss", "MSE", "MSE, paper"),
        tuple(
            (reading, depth, curves["before"]["loss"][k], curves["before"]["mse"][k], _printed("before", "mse", depth))
            for reading, curves in readings.items()
            for k, depth in enumerate(depths)
        ),
    )


PEER_COLUMNS = (
    "method",
    "seconds a matrix",
    "time / torch.linalg.svd",
    "residual",
    "orthogonality",
    "singular values",
)


def _peers(M: Tensor, depth: int, seed: int) -> Table:
    """D-SVD of the largest depth beside LAPACK, float64."""
    size = (M.shape[-2], M.shape[-1])

    methods: dict[str, Decomposition] = {
        "torch.linalg.svd": lapack,
        f"D-SVD, K_svd = {depth}, exact inverse": decomposition(_net(size, depth, seed, "exact")),
        f"D-SVD, K_svd = {depth}, LD-Minv {INNER[0]}x{INNER[1]}": decomposition(_net(size, depth, seed, INNER)),
    }
    errors = {name: accuracy(method, M) for name, method in methods.items()}
    first = errors["torch.linalg.svd"].seconds
    rows: list[tuple[Cell, ...]] = [
        (name, error.seconds, error.seconds / first, error.residual, error.orthogonality, error.values)
        for name, error in errors.items()
    ]
    return Table("beside torch.linalg.svd, largest errors", PEER_COLUMNS, tuple(rows))


NOT_FINITE = "not finite"
TIE_COLUMNS = ("matrix", "torch.linalg.svd", "layers of D-SVD", "result of D-SVD")
TIE_MATCH = 1e-6
"""Up to this relative error a gradient counts as right: central differences are good to 1e-9."""


def _ties(name: str, A: Tensor, seed: int) -> tuple[str, str | float, str | float, str | float]:
    """Errors of the gradient of ⟨W, A_k⟩, A_k the nearest matrix of rank k = rank A, relative to its largest entry.

    It is differentiable at A whatever the multiplicities of singular values, and central differences of its values need no
    derivative of any decomposition.
    """
    A = A.double()
    W = torch.randn(A.shape, dtype=A.dtype, generator=repeat_generator(seed, 2))
    rank = int(torch.linalg.matrix_rank(A))

    def value(method: Decomposition, A: Tensor) -> Tensor:
        U, S, Vh = method(A)
        return ((U[..., :rank] * S[..., None, :rank]) @ Vh[..., :rank, :] * W).sum((-2, -1))

    step = 1e-5
    moved = step * torch.eye(A.numel(), dtype=A.dtype).reshape(-1, *A.shape)
    expected = ((value(lapack, A + moved) - value(lapack, A - moved)) / (2.0 * step)).reshape(A.shape)

    def error(method: Decomposition) -> str | float:
        variable = A.clone().requires_grad_()
        (slope,) = torch.autograd.grad(value(method, variable), variable)
        found = float((slope - expected).abs().max() / expected.abs().max())
        return found if math.isfinite(found) else NOT_FINITE

    layers, result = (
        LearnedSVD(*A.shape, layers=30, seed=seed, backward=backward, ties="one-function")
        for backward in ("unroll", "implicit")
    )
    return name, error(lapack), error(decomposition(layers)), error(decomposition(result))


def _shown(error: str | float) -> str:
    return error if isinstance(error, str) else f"{error:.1e}"


def _findings(
    depths: tuple[int, ...],
    readings: dict[str, dict[str, dict[str, list[float]]]],
    training: list[dict[str, float]],
    single: Table,
    inner: Table,
    peers: Table,
    ties: tuple[tuple[str, str | float, str | float, str | float], ...],
    iterations: int,
) -> tuple[Finding, ...]:
    before, after = readings["variance"]["before"], readings["variance"]["after"]
    settled = [k for k, depth in enumerate(depths) if depth >= SETTLED and depth in DEPTHS]
    differences = {
        reading: max(
            (
                abs(curves["before"]["mse"][k] / PRINTED["before"]["mse"][DEPTHS.index(depths[k])] - 1.0)
                for k in settled
            ),
            default=None,
        )
        for reading, curves in readings.items()
    }
    closest = {name: value for name, value in differences.items() if value is not None}
    deepest = depths[-1]
    ratios, errors = ([float(x or 0.0) for x in peers.column(PEER_COLUMNS[k])] for k in (2, 5))
    return (
        Finding(
            "MSE without training (Table 3, second row).",
            "; ".join(f"{name}: off by up to {100 * value:.0f} %" for name, value in closest.items())
            or "no depth to compare",
            min(closest.values()) <= MATCH if closest else None,
            f"For K_svd of {SETTLED} or more; agreement means {100 * MATCH:.0f} % or less in one reading. The printed definition "
            "is a sum of squares, and its numbers are means over the singular values.",
        ),
        Finding(
            "Loss without training falls with the depth (Table 3, first row).",
            ", ".join(f"K_svd = {depth}: {value:.3g}" for depth, value in zip(depths, before["loss"], strict=True)),
            all(b < a for a, b in zip(before["loss"], before["loss"][1:], strict=False)),
            "Agreement means that it falls with every depth. The first layers depend on the start, which the paper leaves open.",
        ),
        *_after_training(depths, before, after, training, single, iterations),
        _robust(inner),
        Finding(
            "(Not in the paper: what it costs.)",
            f"{ratios[1]:.0f} (exact inverse) and {ratios[2]:.0f} (LD-Minv) times the time of torch.linalg.svd; errors of "
            f"singular values up to {errors[1]:.1g}, torch {errors[0]:.1g}",
            None,
            f"K_svd = {deepest} without training, one run. For a decomposition use sf.linalg.svd.",
        ),
        Finding(
            "SVD becomes differentiable.",
            "; ".join(
                f"{name}: torch {_shown(peer)}, layers of D-SVD {_shown(layers)}, their result {_shown(result)}"
                for name, peer, layers, result in ties
            ),
            all(not isinstance(layers, str) and layers <= TIE_MATCH for _, _, layers, _ in ties),
            f"Errors at exactly equal singular values against central differences; agreement means {TIE_MATCH:g} or less through "
            "the layers, which the paper differentiates. sf.nn.LearnedSVD takes that of the decomposition at the result.",
        ),
    )


def _after_training(
    depths: tuple[int, ...],
    before: dict[str, list[float]],
    after: dict[str, list[float]],
    training: list[dict[str, float]],
    single: Table,
    iterations: int,
) -> tuple[Finding, ...]:
    """The third and fourth row: one depth, trained as long as the paper's, decides that they differ; agreement takes all."""
    whole = depths[-1] == DEPTHS[-1]

    def decided(holds: Iterable[bool]) -> bool | None:
        """``holds`` at each depth."""
        every = all(holds)
        return every if iterations >= ITERATIONS and (depths == DEPTHS or not every) else None

    changes = [100.0 * (found[COURSE[3]] / found[COURSE[2]] - 1.0) for found in training]
    settled = f"From the third to the last quarter the loss of training changes by {min(changes):+.1f} to {max(changes):+.1f} %."
    _, loss, error = single.rows[1]
    causes = {
        "loss": f"{settled} With one layer the least over a grid of all step sizes, other ones for each matrix, is {loss:.3g}.",
        "mse": f"{settled} With one layer the least is {error:.2g}.",
    }
    rows = {"loss": ("Test loss", "third"), "mse": ("MSE", "fourth")}
    last = len(depths) - 1
    return (
        Finding(
            "Training of the steps lowers loss and MSE at every depth.",
            "; ".join(
                f"K_svd = {depth}: {before['loss'][k]:.3g} to {after['loss'][k]:.3g}, "
                f"{before['mse'][k]:.2g} to {after['mse'][k]:.2g}"
                for k, depth in enumerate(depths)
            ),
            decided(after[name][k] < before[name][k] for name in rows for k in range(len(depths))),
            "On other matrices than those of training. Training is on M over its norm bound; the test loss, of M itself, "
            "weighs the off-diagonal part more.",
        ),
        *(
            Finding(
                f"{title} after training (Table 3, {row} row).",
                ", ".join(
                    f"K_svd = {depth}: {after[name][k]:.3g} ({after[name][k] / printed:.2g} times the paper's)"
                    for k, depth in enumerate(depths)
                    if (printed := _printed("after", name, depth)) is not None
                )
                or "no depth to compare",
                decided(
                    after[name][k] <= (1.0 + MATCH) * printed
                    for k, depth in enumerate(depths)
                    if (printed := _printed("after", name, depth)) is not None
                ),
                f"Agreement means at most {100 * MATCH:.0f} % above the paper's at every depth. {causes[name]} The paper says "
                "that it measures these rows after training on the same test data.",
            )
            for name, (title, row) in rows.items()
        ),
        Finding(
            "Training reduces the loss at K_svd = 60 to one thousandth of that of one untrained layer.",
            f"K_svd = {depths[-1]}: to {after['loss'][last] / before['loss'][0]:.1g}, without training to "
            f"{before['loss'][last] / before['loss'][0]:.1g}",
            after["loss"][last] <= 2e-3 * before["loss"][0] if whole and iterations >= ITERATIONS else None,
            "Decided at K_svd = 60 only.",
        ),
    )


def _robust(inner: Table) -> Finding:
    exact, *others = (float(x or 0.0) for x in inner.column("MSE"))
    changes = [error / exact - 1.0 for error in others]
    return Finding(
        "The results are robust to K and L of LD-Minv; D-SVD converges with very inexact inverses.",
        "MSE against that of an exact inverse: "
        + ", ".join(
            f"{name} {100.0 * change:+.2f} %" for name, change in zip(inner.column("inverse")[1:], changes, strict=True)
        ),
        max(abs(change) for change in changes) <= MATCH,
        f"Agreement means {100 * MATCH:.0f} % or less. The layers lose orthogonality, which nothing restores, as the residual of "
        "the inverse grows.",
    )


def _draw_depths(depths: tuple[int, ...], curves: dict[str, dict[str, list[float]]]) -> Figure:
    figure, axes = charts.grid(1, 2)
    for ax, (name, label) in zip(
        axes[0], {"loss": "test loss", "mse": "MSE of the singular values"}.items(), strict=True
    ):
        for colour, when in zip(charts.COLOURS, ("before", "after"), strict=False):
            ax.plot(depths, curves[when][name], "o-", color=colour, markersize=3.5, label=f"{when} training")
            ax.plot(DEPTHS, PRINTED[when][name], "--", color=colour, linewidth=1.0, label=f"{when} training, paper")
        ax.set_yscale("log")
        ax.set_xlabel("K_svd")
        charts.style(ax, label)
    return charts.finish(figure, axes, "D-SVD by depth", "mean over the test matrices")
