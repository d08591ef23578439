"""Training of D-SVD: Algorithm 3, with Algorithm 1 inside it where that is asked for."""

from __future__ import annotations

import copy
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from surefoot_check.arrays import digest

from .._core.fitting import Fitting, TrainingDirectory, TrainStatus, run_path
from .._core.optimizers import FIRST_ORDER
from .._core.validate import finite, integer, nonnegative, positive_integer
from .learned_svd import LearnedSVD
from .svd_losses import Loss, layer_losses, train_inverses

FORMAT = "surefoot-svd/1"
RATE = 1e-2


@dataclass(frozen=True)
class SVDTrainRun:
    """What ``train_svd`` did; the network holds the best parameters.

    Attributes:
        losses: on the batch of each iteration, and on that of the last parameters.
        validation: on the validation matrices; empty where there are none.
        best_iteration: with the lowest validation loss (training loss where there are no validation matrices).
        best: that loss.
        status: how it ended.
        stopped_by: number of the signal that interrupted it.
    """

    losses: tuple[float, ...]
    validation: tuple[float, ...]
    best_iteration: int
    best: float
    status: TrainStatus
    stopped_by: int | None = None

    @property
    def iterations(self) -> int:
        """Steps taken."""
        return max(0, len(self.losses) - 1)

    def __str__(self) -> str:
        start = (self.validation or self.losses)[0]
        return (
            f"{self.status}: {self.status.text}\n"
            f"  {self.iterations:,} iterations, loss {start:.6g} -> {self.best:.6g} (best, iteration {self.best_iteration:,})"
        )


def train_svd(
    net: LearnedSVD,
    matrices: Tensor,
    *,
    loss: Loss = "objective",
    iterations: int = 200,
    batch: int = 30,
    optimizer: Literal["adam", "sgd"] = "adam",
    learning_rate: float = RATE,
    inverse_iterations: int = 0,
    inverse_rate: float = 1e-4,
    validation: Tensor | None = None,
    patience: int | None = None,
    seed: int = 0,
    directory: str | Path | None = None,
    resume: bool = False,
) -> SVDTrainRun:
    """Algorithm 3: minimise the mean loss of all layers over ``net.steps``; the network is changed in place.

    Args:
        net: trained in place; at the end it holds the best parameters, not the last.
        matrices: (N, m, n), of the network's dtype and device, finite.
        loss: "objective" needs no decomposition (unsupervised; the paper's); "singular-values" compares with torch's.
        iterations: steps, those before a resume included; each on ``batch`` matrices.
        batch: drawn without replacement in each iteration; all of them where there are not more.
        optimizer: "adam" or "sgd" (the paper's).
        learning_rate: of the steps; the paper's is the default.
        inverse_iterations: gradient steps of Algorithm 1 on the coefficients of each layer's LD-Minv in each iteration; the paper
            takes 100. With ones, K = 6 and L = 4 it is exact to rounding already, so the default is 0.
        inverse_rate: their step size.
        validation: matrices whose loss decides which parameters are best; without them it is the batch's.
        patience: stop after this many iterations without a lower such loss.
        seed: of the batches.
        directory: write checkpoints and the best network there; must not exist or be empty, unless ``resume``.
        resume: continue from the newest checkpoint, exactly as if the run had not been cut off.

    Returns:
        The run. A non-finite loss ends it with status "diverged", Ctrl-C and SIGTERM with "interrupted", no exception.

    Raises:
        TypeError, ValueError: bad arguments, a network without layers, or inner training of an exact inverse.
        RunDirectoryError: a directory that exists, that cannot be resumed, or in use by another run.
        OSError: a failed write; checkpoints written before are kept and the network is unchanged.
    """
    if net.layers == 0:
        raise ValueError("the network has no layers, so there is nothing to train; make it with layers of at least 1")
    matrices = _matrices(net, "matrices", matrices)
    validation = None if validation is None else _matrices(net, "validation", validation)
    iterations, batch = integer("iterations", iterations, 0), positive_integer("batch", batch)
    inner = integer("inverse_iterations", inverse_iterations, 0)
    if inner and net.exact:
        raise ValueError("inverse_iterations trains LD-Minv, and the network's inverse is exact; leave one of them out")
    if loss not in ("objective", "singular-values"):
        raise ValueError(f"loss is {loss!r}; it must be 'objective' or 'singular-values'")
    if optimizer not in FIRST_ORDER:
        raise ValueError(f"optimizer is {optimizer!r}; it must be 'adam' or 'sgd'")
    rate, inner_rate = nonnegative("learning_rate", learning_rate), nonnegative("inverse_rate", inverse_rate)
    patience = None if patience is None else positive_integer("patience", patience)
    seed = integer("seed", seed, 0)
    path = run_path(directory, resume)
    settings = {
        "format": FORMAT,
        "loss": loss,
        "batch": batch,
        "optimizer": optimizer,
        "learning_rate": rate,
        "inverse_iterations": inner,
        "inverse_rate": inner_rate,
        "patience": patience,
        "seed": seed,
        "network": [net.rows, net.columns, net.rank, *net.coefficients.shape, net.seed, str(net.steps.dtype)],
        "matrices": digest(matrices.cpu().numpy()),
        "validation": None if validation is None else digest(validation.cpu().numpy()),
    }
    trained, method = copy.deepcopy(net), FIRST_ORDER[optimizer](rate)
    with ExitStack() as held:
        files = None if path is None else TrainingDirectory(path, settings, "training of a learned SVD", resume, held)
        at = Fitting(_flat(net.steps, net.coefficients), method, iterations, patience, files, held)
        while at.status is TrainStatus.RUNNING:
            _assign(trained, at.weights)
            M = _drawn(matrices, batch, seed, at.epoch)
            if inner:
                train_inverses(trained, M, inner, inner_rate)
            value = layer_losses(trained, M, loss)
            (slope,) = torch.autograd.grad(value, trained.steps)
            with torch.no_grad():
                measure = None if validation is None else float(layer_losses(trained, validation, loss))
            w, gradient = _flat(trained.steps, trained.coefficients), _flat(slope, torch.zeros_like(net.coefficients))
            if at.record(w, float(value.detach()), gradient, measure):
                at.move(method.step(w, gradient))
        _assign(trained, at.best_weights)
        at.finish(trained.save)
        _assign(net, at.best_weights)
    return SVDTrainRun(tuple(at.losses), tuple(at.validation), at.best_epoch, at.best, at.status, at.stopped_by)


def _drawn(matrices: Tensor, batch: int, seed: int, iteration: int) -> Tensor:
    """The matrices of an iteration: a function of it and the seed alone."""
    count = matrices.shape[0]
    if count <= batch:
        return matrices
    generator = torch.Generator().manual_seed(1_000_003 * seed + iteration)
    return matrices[torch.randperm(count, generator=generator)[:batch].to(matrices.device)]


def _flat(steps: Tensor, coefficients: Tensor) -> Tensor:
    """Both in one vector."""
    return torch.cat([steps.detach().reshape(-1), coefficients.reshape(-1)])


@torch.no_grad()
def _assign(net: LearnedSVD, w: Tensor) -> None:
    """Set both from such a vector."""
    for target, part in zip(
        (net.steps, net.coefficients), w.split([net.steps.numel(), net.coefficients.numel()]), strict=True
    ):
        target.copy_(part.view_as(target))


def _matrices(net: LearnedSVD, name: str, value: Any) -> Tensor:
    shape = (net.rows, net.columns)
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} is a {type(value).__name__}; pass a tensor (N, {shape[0]}, {shape[1]})")
    if value.dtype != net.steps.dtype or value.device != net.steps.device:
        raise TypeError(
            f"{name} is {value.dtype} on {value.device}; convert it to the network's {net.steps.dtype} and device"
        )
    if value.ndim != 3 or value.shape[1:] != shape or value.shape[0] == 0:
        raise ValueError(
            f"{name} has shape {tuple(value.shape)}; it must be (N, {shape[0]}, {shape[1]}) with N of at least 1"
        )
    finite(name, value)
    return value.detach()
