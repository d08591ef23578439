"""Trainings of learned solvers, small, in one process or under a job of several ranks.

``python shared_trainings.py DIR``: rank 0 writes to DIR/found.json the losses and weights of each training, and what every rank
still held of it at its end; then it resumes the run in DIR/begun, to DIR/resumed.json, and starts one in DIR/lost, of which
rank 1 ends without a word.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import surefoot as sf
from surefoot._core.team import Memory, Message, team
from surefoot._deconvolution.learned.training import train as train_deconvolution
from surefoot._deconvolution.learned.training_data import TILE, TrainingData
from surefoot._deconvolution.learned.training_kernels import shake_kernels
from surefoot._lasso.lista_training import train_lista
from surefoot._learning import shared_sum
from surefoot._step_sizes.training_loss import ProblemTerms
from surefoot.learned import Lasso, LeastSquares, Logistic, Problems, train

Run = dict[str, list[float]]
EPOCHS, BEGUN, LOST = 6, 3, 2
"""Of ``kept_run``, of the run that is resumed, and those before a rank is lost."""
DOUBLE = torch.float64


def step_sizes(problems: Problems, optimizer: str = "adam", **options: Any) -> Run:
    net = sf.nn.StepSizeNet.orthogonal((2, 2, 8), expansion=3.0)
    rate = 1e-2 if optimizer == "adam" else None
    run = train(net, problems, optimizer, epochs=8, learning_rate=rate, iterations=6, **options)
    return found(net, run.losses, run.validation)


def inverse(matrices: Tensor, **options: Any) -> Run:
    net = sf.nn.LearnedInverse.ones(3, 4)
    run = net.fit(matrices, epochs=6, **options)
    return found(net, run.losses, run.validation)


def svd(**options: Any) -> Run:
    net = sf.nn.LearnedSVD(6, 8, layers=2, inverse=(2, 3))
    held_out = drawn(3, 6, 8, seed=1)
    run = net.fit(drawn(7, 6, 8), validation=held_out, iterations=4, learning_rate=0.1, **options)
    return found(net, run.losses, run.validation)


def lista() -> Run:
    M = drawn(1, 10, 16)[0]

    def problems(seed: int) -> tuple[Lasso, Tensor]:
        return Lasso.from_matrix(M, count=5, lam=0.1, seed=seed), drawn(1, 5, 16, seed)[0]

    net = sf.nn.LISTACPSS(M, 4)
    run = train_lista(net, *problems(0), 6, 3e-3, fresh=lambda epoch: problems(1 + epoch))
    return found(net, run.losses)


def kept_run(directory: Path | None, epochs: int, resume: bool = False) -> Run:
    """A run whose optimiser compares losses and remembers gradients."""
    net = sf.nn.StepSizeNet.orthogonal((2, 2, 8), expansion=3.0)
    problems = LeastSquares.random(5, 5, 8)
    run = train(net, problems, "lbfgs", epochs=epochs, iterations=6, directory=directory, resume=resume)
    return found(net, run.losses)


def deconvolution(loss: Any) -> Run:
    net = sf.nn.LearnedDeconvolution(2, 4 if loss == "supervised" else 0, inverse=(1, 2))
    generator = torch.Generator().manual_seed(0)
    tiles = torch.randint(256, (5, TILE, TILE), dtype=torch.uint8, generator=generator)
    data = TrainingData(tiles, shake_kernels(6, generator), "noise")
    run = train_deconvolution(net, data, loss, steps=4, batch=3, crop=48)
    return found(net, run.validation)


def drawn(count: int, rows: int, columns: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, rows, columns, dtype=DOUBLE, generator=generator) / columns**0.5


def zeros_first() -> Tensor:
    """Matrices of which a rank may hold none but zeros."""
    return torch.cat([torch.zeros(3, 6, 8, dtype=DOUBLE), drawn(2, 6, 8)])


def found(net: nn.Module, *losses: Any) -> Run:
    weights = torch.cat([parameter.detach().reshape(-1) for parameter in net.state_dict().values()])
    return {"losses": [float(value) for group in losses for value in group], "weights": weights.tolist()}


TRAININGS: dict[str, Callable[[], Run]] = {
    "least squares, validation": lambda: step_sizes(
        LeastSquares.random(7, 5, 8), validation=LeastSquares.random(4, 5, 8)
    ),
    "least squares, detached": lambda: step_sizes(
        LeastSquares.random(7, 5, 8), gradient="detached", smoothness="common"
    ),
    "lasso, armijo": lambda: step_sizes(Lasso.random(5, 6, 9, sparsity=0.8, lam=0.05), "armijo"),
    "logistic, lbfgs": lambda: step_sizes(Logistic.random(5, 9, 4, lam=0.2), "lbfgs", smoothness="authors"),
    "least squares, one for two ranks": lambda: step_sizes(LeastSquares.random(1, 5, 8), "lbfgs"),
    "fresh": lambda: step_sizes(
        LeastSquares.random(4, 5, 8), fresh=lambda e: LeastSquares.random(3 + e, 5, 8, seed=9 + e)
    ),
    "lista": lista,
    "inverse": lambda: inverse(drawn(5, 6, 8), validation=drawn(4, 8, 6, seed=1)),
    "inverse, a share of zeros": lambda: inverse(zeros_first()),
    "inverse, matrices": lambda: inverse(zeros_first(), domain="matrices", objective="last"),
    "svd": lambda: svd(batch=4),
    "svd, all matrices, inner training": lambda: svd(inverse_iterations=3),
    "deconvolution": lambda: deconvolution("supervised"),
    "deconvolution, objective": lambda: deconvolution("objective"),
}


def held(_: Message, memory: Memory) -> Message:
    """What this rank keeps."""
    return Message({"names": list(memory)})


# a job is found by its module and name; this one only the tests have
held.__module__, held.__qualname__ = shared_sum.__name__, "held_for_tests"
shared_sum.held_for_tests = held  # pyright: ignore[reportAttributeAccessIssue]


def main(out: Path) -> None:
    results: dict[str, Any] = {}
    ranks = team()
    assert ranks is not None
    for name, training in TRAININGS.items():
        results[name] = training()
        results[name]["held"] = [answer.facts["names"] for answer in ranks.call(held, Message())]
    out.write_text(json.dumps(results))


def resume_and_lose(directory: Path) -> None:
    """See the module."""
    (directory / "resumed.json").write_text(json.dumps(kept_run(directory / "begun", EPOCHS, resume=True)))
    kept_run(directory / "lost", EPOCHS)


def end_after(calls: int) -> None:
    """End this process when it is to evaluate its share of the problems so many times more."""
    original, count = ProblemTerms.value_and_gradient, 0

    def value_and_gradient(self: ProblemTerms, w: Tensor) -> tuple[Tensor, Tensor]:
        nonlocal count
        count += 1
        if count > calls:
            os._exit(9)
        return original(self, w)

    ProblemTerms.value_and_gradient = value_and_gradient


if __name__ == "__main__":
    torch.set_num_threads(1)
    place = Path(sys.argv[1])
    sf.distributed.run(lambda: main(place / "found.json"))
    if os.environ["RANK"] == "1":
        end_after(EPOCHS - BEGUN + 1 + LOST)  # a resumed run evaluates where it was cut off once more
    sf.distributed.run(lambda: resume_and_lose(place))
