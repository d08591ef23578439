"""Training of D-NbD: against sharp images, or on the objective (paper, equation (15) and algorithm 4)."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from surefoot_check.arrays import digest

from .._core import checkpoints
from .._core.interrupts import StopRequest
from .._core.progress import progress_line
from .._core.team import Message
from .._core.validate import integer, positive_integer
from .._learning.directory import TrainingDirectory, run_path
from .._learning.run import TrainRun, TrainStatus
from .._learning.shared_sum import SharedSum, Terms, assign, flat
from .learned import LearnedDeconvolution, Penalised
from .training_data import Batch, TrainingData

FORMAT = "surefoot-deconvolution/1"
Loss = Literal["supervised", "objective"]
WARM_UP = 50
"""Steps in which the learning rate grows from 0."""
LEAST_RATE = 0.01
"""Of the learning rate, at the end of its cosine."""
LOOK_EVERY = 10
"""Steps between two looks at the loss: each waits for the device."""
VALIDATE_EVERY = 200
VALIDATION = 32
"""Crops in the validation batch."""
VALID_EVERY = 4
"""Every fourth batch is observed without its border, the others are periodic."""
CLIP = 1.0
INVERSE_RATE = 1e-2
"""Learning rate of the coefficients C of LD-Minv (algorithm 1 inside algorithm 4)."""


@dataclass
class _Progress:
    step: int
    seconds: float
    best_step: int
    best: dict[str, Tensor]
    validation: list[tuple[int, float]] = field(default_factory=list)

    @property
    def least(self) -> float:
        """The least validation loss."""
        return min((loss for _, loss in self.validation), default=math.inf)


def train(
    net: LearnedDeconvolution,
    data: TrainingData,
    loss: Loss = "supervised",
    *,
    steps: int = 2000,
    minutes: float | None = None,
    batch: int = 16,
    crop: int = 128,
    learning_rate: float = 2e-3,
    seed: int = 0,
    directory: str | Path | None = None,
    resume: bool = False,
    progress: bool = False,
) -> TrainRun:
    """Adam on fresh random batches; the learning rate falls along a cosine over the steps or minutes. In place.

    The supervised loss is the squared error of each layer's image relative to that of the start, averaged over images, with
    weight 2^-j for the j-th layer from the end. The loss ``"objective"`` is (15), the mean of the objective over all layers, each
    image relative to that of the start: so no image counts for more because it is hard. Where the network has LD-Minv
    coefficients, each step first moves them down their own loss (4) with the rest fixed, then the rest (algorithm 4).
    The ranks of a job share the crops of a batch, with the same result up to the rounding of sums.

    Args:
        net: trained on its device; at the end it holds the best weights.
        data: where the batches come from; a share of the tiles only validates.
        loss: "supervised" or "objective".
        steps: at most so many in total, those before a resume included.
        minutes: and at most so long in total, likewise. Then the schedule follows the clock and a run cannot be repeated exactly.
        batch, crop: crops in a batch, and their pixels a side.
        learning_rate: the largest.
        seed: of the batches.
        directory: write checkpoints and the best network there; must not exist or be empty, unless ``resume``.
        resume: continue from the newest checkpoint, with the same batches as if the run had not been cut off.
        progress: a progress line on a terminal.

    Returns:
        The run. Its ``validation`` is the loss of the network's output on crops that are not trained on, relative to that of its
        start, the gradient-Wiener restoration; its ``losses`` are empty, as each would wait for the device.

    Raises:
        TypeError, ValueError: bad arguments.
        RunDirectoryError: a directory that exists, that cannot be resumed, or in use by another run.
        OSError: a failed write; checkpoints written before are kept.
    """
    if loss not in ("supervised", "objective"):
        raise ValueError(f"loss is {loss!r}; it must be 'supervised' or 'objective'")
    steps, batch = positive_integer("steps", steps), positive_integer("batch", batch)
    seed = integer("seed", seed, 0)
    for name, value in (("minutes", minutes), ("learning_rate", learning_rate)):
        if value is not None and not 0.0 < value < math.inf:
            raise ValueError(f"{name} is {value!r}; it must be a positive number")
    path = run_path(directory, resume)
    settings = {
        "format": FORMAT,
        "loss": loss,
        "batch": batch,
        "crop": crop,
        "learning_rate": learning_rate,
        "seed": seed,
        "network": {"layers": len(net.layers), "filters": net.filters, "wavelet": net.wavelet, "inverse": net.inverse},
        "data": {
            "source": data.source,
            "tiles": digest(data.tiles.cpu().numpy()),
            "kernels": digest(data.kernels.cpu().numpy()),
        },
    }
    with ExitStack() as held:
        losses = _Losses(net, loss, data, batch, crop, seed, held)
        optimizer = torch.optim.Adam(losses.weights, learning_rate)
        optimizers = {"weights": optimizer} | losses.optimizers
        what = "training of a deconvolution network"
        files = None if path is None else TrainingDirectory(path, settings, what, resume, held)
        at = _Progress(0, 0.0, 0, _copied(net)) if files is None else _restored(files, net, optimizers)
        stop = held.enter_context(StopRequest())
        total = steps if minutes is None else 10**9
        show = held.enter_context(progress_line(progress, total, 1.0, 0.05))
        status = _run(losses, optimizers, at, steps, minutes, learning_rate, files, stop, show)
        net.load_state_dict(at.best)
        if files is not None:
            numbers = {"steps": at.step, "seconds": at.seconds, "best_step": at.best_step, "validation": at.validation}
            files.finish(net.save, {"status": status, **numbers})
    return TrainRun(
        epochs=at.step,
        losses=(),
        validation=tuple(loss for _, loss in at.validation),
        best_epoch=at.best_step,
        best=at.least,
        status=status,
        stopped_by=stop.signal_number if status is TrainStatus.INTERRUPTED else None,
        validation_epochs=tuple(step for step, _ in at.validation),
        seconds=at.seconds,
    )


class _Task(Terms):
    """The loss of a step, a mean over crops; w has all parameters of the network. A rank draws them all and keeps its own."""

    def __init__(self, common: Message) -> None:
        facts, tensors = common.facts, common.tensors
        self.net = LearnedDeconvolution(*facts["size"], wavelet=facts["wavelet"], inverse=facts["inverse"])
        self.net.to(tensors["like"].device, tensors["like"].dtype)
        self.loss: Loss = facts["loss"]
        self._data = TrainingData(tensors["tiles"], tensors["kernels"], facts["source"])
        self._crop, self._seed = facts["crop"], facts["seed"]
        self._generator = torch.Generator(device=tensors["tiles"].device)

    def take(self, data: Message, part: slice, count: int) -> None:
        self._count = count
        batch = self.drawn(data.facts["step"]) if "step" in data.facts else self._held_out()
        kind: Any = type(batch.blur)
        blur = kind(batch.blur.kernel[part], batch.blur.domain)
        self._batch = Batch(batch.sharp[part], batch.observed[part], blur, batch.noise[part])
        self._share = len(self._batch.sharp) / count

    def drawn(self, step: int) -> Batch:
        """The batch of a step, the same whenever it is drawn."""
        self._generator.manual_seed((self._seed << 32) + step + 2)
        valid = step % VALID_EVERY == VALID_EVERY - 1
        return self._data.draw(self._count, self._crop, self._generator, valid=valid)

    def _held_out(self) -> Batch:
        return self._data.draw(self._count, self._crop, self._generator.manual_seed(self._seed + 1))

    def value_and_gradient(self, w: Tensor) -> tuple[Tensor, Tensor]:
        assign(self.net.parameters(), w)
        value = self._share * self.evaluate(self._batch)[0]
        return value.detach(), flat(torch.autograd.grad(value, _parameters(self.net)[0]))

    @torch.no_grad()
    def measure(self, w: Tensor) -> float:
        assign(self.net.parameters(), w)
        return self._share * float(self.evaluate(self._batch)[1])

    def evaluate(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss, and that of the output alone (both relative to the start)."""
        measured = measures(self.net, batch, self.loss)
        relative = (measured[1:] / measured[0].detach()).mean(1)
        layers = len(relative)
        powers = 0.5 ** torch.arange(layers - 1, -1, -1, device=relative.device)
        weights = powers / powers.sum() if self.loss == "supervised" else torch.full_like(powers, 1.0 / layers)
        return (weights * relative).sum(), relative[-1]


class _InverseTask(_Task):
    """The loss of every layer's C on the same crops, at the α that they lead to."""

    def value_and_gradient(self, w: Tensor) -> tuple[Tensor, Tensor]:
        assign(self.net.parameters(), w)
        value = self._share * self.net.inverse_loss(self._batch.blur, self._batch.noise)
        return value.detach(), flat(torch.autograd.grad(value, _parameters(self.net)[1]))


class _Losses:
    """The losses of a run at the present weights of its network; the ranks of a job share the crops until ``held`` is closed."""

    def __init__(
        self,
        net: LearnedDeconvolution,
        loss: Loss,
        data: TrainingData,
        batch: int,
        crop: int,
        seed: int,
        held: ExitStack,
    ) -> None:
        self.net, self._batch = net, batch
        self.weights, self._coefficients = _parameters(net)
        size = [len(net.layers), net.filters]
        facts = {"loss": loss, "size": size, "wavelet": net.wavelet, "inverse": net.inverse, "crop": crop, "seed": seed}
        parts: list[Message] = []
        for part in data.split():
            part = part.to(net.log_gradient.device)
            tensors = {"tiles": part.tiles, "kernels": part.kernels, "like": net.log_gradient.detach()}
            parts.append(Message({**facts, "source": part.source}, tensors))
        self._training = SharedSum(_Task, parts[0], held)
        self._validation = SharedSum(_Task, parts[1], held)
        self._validation.take(VALIDATION, {}, {})
        self._inverse: tuple[SharedSum, torch.optim.Adam] | None = None
        if self._coefficients:
            self._inverse = SharedSum(_InverseTask, parts[0], held), torch.optim.Adam(self._coefficients, INVERSE_RATE)

    @property
    def optimizers(self) -> dict[str, torch.optim.Adam]:
        """Those that move the coefficients of LD-Minv, if there are any."""
        return {} if self._inverse is None else {"inverse": self._inverse[1]}

    def improve_inverse(self, step: int) -> None:
        """One step of algorithm 1 on every layer's C, at the α of this step's batch."""
        if self._inverse is None:
            return
        total, optimizer = self._inverse
        total.take(self._batch, {"step": step}, {})
        _, gradient = total.value_and_gradient(self._vector())
        _set_gradient(self._coefficients, gradient)
        optimizer.step()

    def gradient(self, step: int) -> Tensor:
        """The loss of this step's batch, its gradient in that of ``weights``."""
        self._training.take(self._batch, {"step": step}, {})
        value, gradient = self._training.value_and_gradient(self._vector())
        _set_gradient(self.weights, gradient)
        return value

    def validation(self) -> float:
        """Loss of the output on crops that are not trained on."""
        return self._validation.measure(self._vector())

    def _vector(self) -> Tensor:
        return flat(self.net.parameters())


def _parameters(net: LearnedDeconvolution) -> tuple[list[Tensor], list[Tensor]]:
    """The weights, and the coefficients of LD-Minv apart."""
    named = dict(net.named_parameters())
    return (
        [p for name, p in named.items() if not name.endswith("coefficients")],
        [p for name, p in named.items() if name.endswith("coefficients")],
    )


def _set_gradient(parameters: list[Tensor], gradient: Tensor) -> None:
    for parameter, part in zip(parameters, gradient.split([p.numel() for p in parameters]), strict=True):
        parameter.grad = part.view_as(parameter)


def measures(net: LearnedDeconvolution, batch: Batch, loss: Loss) -> Tensor:
    """(K + 1, N), of the start and every layer, per pixel: squared error under the observed picture, or the objective."""
    iterates = net.iterates(batch.observed, batch.blur, batch.noise)
    if loss == "supervised":
        sharp = batch.blur.crop(batch.sharp)
        return torch.stack([(batch.blur.crop(one.image) - sharp).square().mean((1, 2)) for one in iterates])
    problem = Penalised(batch.observed, batch.blur, batch.noise, net.wavelet)
    return torch.stack([problem.objective(one.image) for one in iterates]) / batch.sharp[0].numel()


def _run(
    losses: _Losses,
    optimizers: Mapping[str, torch.optim.Adam],
    at: _Progress,
    steps: int,
    minutes: float | None,
    rate: float,
    files: TrainingDirectory | None,
    stop: StopRequest,
    show: Any,
) -> TrainStatus:
    due, optimizer = checkpoints.Schedule(), optimizers["weights"]
    begin = time.monotonic() - at.seconds
    least = at.least
    value = torch.ones(())
    while True:
        at.seconds = time.monotonic() - begin
        done = max(at.step / steps, 0.0 if minutes is None else at.seconds / (60.0 * minutes))
        status = TrainStatus.RUNNING
        if done >= 1.0:
            status = TrainStatus.FINISHED
        elif stop.signal_number is not None:
            status = TrainStatus.INTERRUPTED
        looked = at.step % LOOK_EVERY == 0
        if looked and not math.isfinite(float(value)):
            status = TrainStatus.DIVERGED
        # not where the run is cut off: which weights are best must not depend on that
        if status is TrainStatus.FINISHED or (at.step % VALIDATE_EVERY == 0 and status is not TrainStatus.DIVERGED):
            measured = losses.validation()
            if not at.validation or at.validation[-1][0] != at.step:
                at.validation.append((at.step, measured))
            if measured < least:
                least, at.best_step, at.best = measured, at.step, _copied(losses.net)
        if looked and at.validation:
            show(at.step, at.validation[-1][1], rate * _schedule(at.step, done))
        if (
            files is not None
            and status is not TrainStatus.DIVERGED
            and (at.step == 0 or status is not TrainStatus.RUNNING or due.due(at.step))
        ):
            files.save(_checkpoint(at, losses.net, optimizers))
        if status is not TrainStatus.RUNNING:
            return status
        losses.improve_inverse(at.step)
        value = losses.gradient(at.step)
        torch.nn.utils.clip_grad_norm_(losses.weights, CLIP)
        for group in optimizer.param_groups:
            group["lr"] = rate * _schedule(at.step, done)
        optimizer.step()
        at.step += 1


def _schedule(step: int, done: float) -> float:
    """Of the learning rate, after this share of the training."""
    cosine = 0.5 * (1.0 + math.cos(math.pi * min(done, 1.0)))
    return min(1.0, (step + 1) / WARM_UP) * (LEAST_RATE + (1.0 - LEAST_RATE) * cosine)


def _copied(net: LearnedDeconvolution) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in net.state_dict().items()}


def _restored(
    files: TrainingDirectory, net: LearnedDeconvolution, optimizers: Mapping[str, torch.optim.Adam]
) -> _Progress:
    """Where to continue from; then the network and the optimizers have that state."""
    weights = _copied(net)
    found = files.latest(weights | {f"best.{name}": value for name, value in weights.items()})
    if found is None:
        return _Progress(0, 0.0, 0, weights)
    net.load_state_dict({name: found.weights[name] for name in weights})
    moments: dict[str, dict[int, dict[str, Tensor]]] = {name: {} for name in optimizers}
    for name, value in found.engine.items():
        if name != "validation":
            whose, index, part = name.split(".")
            moments[whose].setdefault(int(index), {})[part] = value.cpu() if part == "step" else value
    for name, optimizer in optimizers.items():
        optimizer.load_state_dict({**optimizer.state_dict(), "state": moments[name]})
    best = {name: found.weights[f"best.{name}"] for name in weights}
    pairs = [(int(step), value) for step, value in found.engine["validation"].tolist()]
    return _Progress(found.iteration, found.rule["seconds"], int(found.rule["best_step"]), best, pairs)


def _checkpoint(
    at: _Progress, net: LearnedDeconvolution, optimizers: Mapping[str, torch.optim.Adam]
) -> checkpoints.Checkpoint:
    """What ``_restored`` needs to continue before the step at ``at.step``."""
    weights = net.state_dict() | {f"best.{name}": value for name, value in at.best.items()}
    engine = {
        f"{name}.{index}.{part}": value
        for name, optimizer in optimizers.items()
        for index, one in optimizer.state_dict()["state"].items()
        for part, value in one.items()
    }
    engine["validation"] = torch.tensor(at.validation, dtype=torch.float64).reshape(-1, 2)
    rule = {"seconds": at.seconds, "best_step": float(at.best_step)}
    return checkpoints.Checkpoint(at.step, weights, engine, rule, 0)
