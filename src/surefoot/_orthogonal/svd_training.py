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
from .._core.shared_sum import SharedSum, Terms, assign, flat
from .._core.team import Message
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
    """Algorithm 3: minimise the mean loss of all layers over ``net.steps``; the network is changed in place. The ranks of a job
    share the batch, with the same result up to the rounding of sums; Algorithm 1 inside it runs on rank 0 alone.

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
        The run. A non-finite loss ends it with status "diverged", Ctrl-C, SIGTERM and SIGHUP with "interrupted".

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
        facts = {
            "loss": loss,
            "size": [net.rows, net.columns, net.rank],
            "layers": net.layers,
            "inverse": "exact" if net.exact else list(net.coefficients.shape[2:]),
        }
        common = Message(facts, {"start_U": net.start_U, "start_V": net.start_V})
        training = SharedSum(LayerTerms, common, held)
        held_out = None if validation is None else SharedSum(LayerTerms, common, held)
        if held_out is not None and validation is not None:
            held_out.take(len(validation), {}, {"M": validation})
        at = Fitting(flat((net.steps, net.coefficients)), method, iterations, patience, files, held)
        first = at.epoch
        while at.status is TrainStatus.RUNNING:
            w, M = at.weights, _drawn(matrices, batch, seed, at.epoch)
            if inner:  # on rank 0 alone, as each of its steps is of all matrices
                assign((trained.steps, trained.coefficients), w)
                train_inverses(trained, M, inner, inner_rate)
                w = flat((trained.steps, trained.coefficients))
            if at.epoch == first or len(M) < len(matrices):
                training.take(len(M), {}, {"M": M})
            value, gradient = training.value_and_gradient(w)
            measure = None if held_out is None else held_out.measure(w)
            if at.record(w, float(value), gradient, measure):
                at.move(method.step(w, gradient))
        assign((trained.steps, trained.coefficients), at.best_weights)
        at.finish(trained.save)
        assign((net.steps, net.coefficients), at.best_weights)
    return SVDTrainRun(tuple(at.losses), tuple(at.validation), at.best_epoch, at.best, at.status, at.stopped_by)


class LayerTerms(Terms):
    """Mean loss of the layers on some of the matrices; w has ``steps`` and ``coefficients``, of which steps are trained."""

    def __init__(self, common: Message) -> None:
        facts = common.facts
        self._net = LearnedSVD(*facts["size"], layers=facts["layers"], inverse=facts["inverse"])
        self._net.to(common.tensors["start_U"]).load_state_dict(common.tensors, strict=False)
        self._loss: Loss = facts["loss"]

    def take(self, data: Message, part: slice, count: int) -> None:
        self._M = data.tensors["M"]
        self._share = len(self._M) / count

    def value_and_gradient(self, w: Tensor) -> tuple[Tensor, Tensor]:
        assign((self._net.steps, self._net.coefficients), w)
        value = self._share * layer_losses(self._net, self._M, self._loss)
        (slope,) = torch.autograd.grad(value, self._net.steps)
        return value.detach(), flat((slope, torch.zeros_like(self._net.coefficients)))

    @torch.no_grad()
    def measure(self, w: Tensor) -> float:
        assign((self._net.steps, self._net.coefficients), w)
        return self._share * float(layer_losses(self._net, self._M, self._loss))


def _drawn(matrices: Tensor, batch: int, seed: int, iteration: int) -> Tensor:
    """The matrices of an iteration: a function of it and the seed alone."""
    count = matrices.shape[0]
    if count <= batch:
        return matrices
    generator = torch.Generator().manual_seed(1_000_003 * seed + iteration)
    return matrices[torch.randperm(count, generator=generator)[:batch].to(matrices.device)]


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
