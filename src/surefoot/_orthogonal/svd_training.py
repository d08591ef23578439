"""Training of D-SVD: Algorithm 3, with Algorithm 1 inside it where that is asked for."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from surefoot_check.arrays import digest

from .._core.callbacks import Callback
from .._core.team import Message, member, name_of
from .._core.validate import finite, integer, kind_of, nonnegative, positive_integer
from .._learning.fit import Course, Objective, fit
from .._learning.optimizers import FIRST_ORDER
from .._learning.run import TrainRun
from .._learning.shared_sum import SharedSum, Terms, assign, flat
from .svd_losses import Layered, Loss, layer_losses, train_inverses

FORMAT = "surefoot-svd/1"
RATE = 1e-2


def train_svd(
    net: Layered,
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
    callbacks: Iterable[Callback] = (),
) -> TrainRun:
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
        callbacks: told of every iteration as it comes, and able to stop the training: see ``sf.callbacks``.

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
    course = Course.of(iterations, patience, directory, resume, "iterations", callbacks=callbacks)
    batch = positive_integer("batch", batch)
    inner = integer("inverse_iterations", inverse_iterations, 0)
    if inner and net.exact:
        raise ValueError("inverse_iterations trains LD-Minv, and the network's inverse is exact; leave one of them out")
    if loss not in ("objective", "singular-values"):
        raise ValueError(f"loss is {loss!r}; it must be 'objective' or 'singular-values'")
    if optimizer not in FIRST_ORDER:
        raise ValueError(f"optimizer is {optimizer!r}; it must be 'adam' or 'sgd'")
    rate, inner_rate = nonnegative("learning_rate", learning_rate), nonnegative("inverse_rate", inverse_rate)
    seed = integer("seed", seed, 0)
    settings = {
        "format": FORMAT,
        "loss": loss,
        "batch": batch,
        "optimizer": optimizer,
        "learning_rate": rate,
        "inverse_iterations": inner,
        "inverse_rate": inner_rate,
        "patience": course.patience,
        "seed": seed,
        "network": [net.rows, net.columns, net.rank, *net.coefficients.shape, net.seed, str(net.steps.dtype)],
        "matrices": digest(matrices.cpu().numpy()),
        "validation": None if validation is None else digest(validation.cpu().numpy()),
    }
    trained, method = copy.deepcopy(net), FIRST_ORDER[optimizer](rate)

    def save(path: Path, w: Tensor) -> None:
        assign((trained.steps, trained.coefficients), w)
        trained.save(path)

    with ExitStack() as held:
        files = course.files(settings, "training of a learned SVD", held)
        objective = _Batches(trained, matrices, validation, loss, batch, seed, (inner, inner_rate), held)
        best, run = fit(objective, flat((net.steps, net.coefficients)), method, course, files, save, held)
        assign((net.steps, net.coefficients), best)
    return run


class _Batches(Objective):
    """The mean loss of the layers on the batch of each iteration; w has ``steps`` and ``coefficients``.

    Args:
        net: a copy that Algorithm 1 may change.
        inverses: its iterations and its rate.
        held: until it is closed, the ranks of a job share each batch.
    """

    def __init__(
        self,
        net: Layered,
        matrices: Tensor,
        validation: Tensor | None,
        loss: Loss,
        batch: int,
        seed: int,
        inverses: tuple[int, float],
        held: ExitStack,
    ) -> None:
        self._net, self._matrices, self._batch, self._seed, self._inverses = net, matrices, batch, seed, inverses
        facts = {
            "kind": name_of(type(net)),
            "loss": loss,
            "size": [net.rows, net.columns, net.rank],
            "layers": net.layers,
            "inverse": "exact" if net.exact else list(net.coefficients.shape[2:]),
        }
        common = Message(facts, {"start_U": net.start_U, "start_V": net.start_V})
        self._training = SharedSum(LayerTerms, common, held)
        if len(matrices) <= batch:
            _take(self._training, matrices)
        self._validation = None if validation is None else SharedSum(LayerTerms, common, held)
        if self._validation is not None and validation is not None:
            _take(self._validation, validation)

    def prepare(self, epoch: int, w: Tensor) -> Tensor:
        """On rank 0 alone, as each step of Algorithm 1 is of all matrices."""
        iterations, rate = self._inverses
        if not iterations:
            return w
        assign((self._net.steps, self._net.coefficients), w)
        train_inverses(self._net, self._drawn(epoch), iterations, rate)
        return flat((self._net.steps, self._net.coefficients))

    def evaluate(self, epoch: int, w: Tensor) -> tuple[Tensor, Tensor]:
        if len(self._matrices) > self._batch:
            _take(self._training, self._drawn(epoch))
        return self._training.value_and_gradient(w)

    def measure(self, w: Tensor) -> float | None:
        return None if self._validation is None else self._validation.measure(w)

    def _drawn(self, iteration: int) -> Tensor:
        """The matrices of an iteration: a function of it and the seed alone."""
        count = len(self._matrices)
        if count <= self._batch:
            return self._matrices
        generator = torch.Generator().manual_seed(1_000_003 * self._seed + iteration)
        return self._matrices[torch.randperm(count, generator=generator)[: self._batch].to(self._matrices.device)]


def _take(total: SharedSum, M: Tensor) -> None:
    total.take(len(M), {}, {"M": M})


class LayerTerms(Terms):
    """Mean loss of the layers on some of the matrices; w has ``steps`` and ``coefficients``, of which steps are trained."""

    def __init__(self, common: Message) -> None:
        facts = common.facts
        kind = member(facts["kind"])  # not by name: that module imports this one
        self._net = kind(*facts["size"], layers=facts["layers"], inverse=facts["inverse"])
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


def _matrices(net: Layered, name: str, value: Any) -> Tensor:
    shape = (net.rows, net.columns)
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} is {kind_of(value)}; pass a tensor (N, {shape[0]}, {shape[1]})")
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
