"""Training of D-NbD: against sharp images, or on the objective (paper, equation (15) and algorithm 4)."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from surefoot_check.arrays import digest

from ..._core.callbacks import Callback
from ..._core.progress import progress_line
from ..._core.team import Message
from ..._core.validate import integer, positive_integer
from ..._learning.fit import Course, Objective, fit
from ..._learning.optimizers import Adam
from ..._learning.run import TrainRun
from ..._learning.shared_sum import SharedSum, Terms, assign, flat
from .network import GRADIENT_WIENER, LearnedDeconvolution, Penalised
from .stored import as_vectors
from .training_data import NOISE, Batch, TrainingData

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
    callbacks: Iterable[Callback] = (),
) -> TrainRun:
    """Adam on fresh random batches; the learning rate falls along a cosine over the steps or minutes. In place.

    The supervised loss is the squared error of each layer's image relative to that of the start, averaged over images, with
    weight 2^-j for the j-th layer from the end. The loss ``"objective"`` is (15), the mean of the objective over all layers, each
    image relative to that of the start: so no image counts for more because it is hard. Where the network has LD-Minv
    coefficients, each step first moves them down their own loss (4) with the rest fixed, then the rest (algorithm 4).
    Coefficients that require no gradient stay as they are: with D-Minv they are 1.
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
        progress: a progress line on a terminal or in a notebook.
        callbacks: told of every step at which the loss is measured, and able to stop the training: see ``sf.callbacks``.

    Returns:
        The run. Its ``validation`` is the loss of the network's output on crops that are not trained on, relative to that of its
        start; its ``losses`` are empty, as each would wait for the device.

    Raises:
        TypeError, ValueError: bad arguments.
        RunDirectoryError: a directory that exists, that cannot be resumed, or in use by another run.
        OSError: a failed write; checkpoints written before are kept.

    Example:
        >>> from surefoot import deconvolution as dc
        >>> pictures = torch.randint(256, (4, 180, 180), dtype=torch.uint8)
        >>> kernels = torch.full((1, 37, 37), 1 / 37**2)
        >>> data = dc.TrainingData(pictures, kernels, "my own pictures")
        >>> net = sf.nn.LearnedDeconvolution(layers=1, filters=0)
        >>> run = dc.train(net, data, steps=2, batch=2, crop=40)  # of use: thousands
        >>> run.status.value, run.epochs
        ('finished', 2)
    """
    if loss not in ("supervised", "objective"):
        raise ValueError(f"loss is {loss!r}; it must be 'supervised' or 'objective'")
    course = Course.of(
        positive_integer("steps", steps), None, directory, resume, "steps", minutes=minutes, callbacks=callbacks
    )
    batch, seed = positive_integer("batch", batch), integer("seed", seed, 0)
    if not 0.0 < learning_rate < math.inf:
        raise ValueError(f"learning_rate is {learning_rate!r}; it must be a positive number")
    network = {"layers": len(net.layers), "filters": net.filters, "wavelet": net.wavelet, "inverse": net.inverse}
    if net.start != GRADIENT_WIENER:  # the only one of runs whose settings do not name it
        network["start"] = net.start
    settings = {
        "format": FORMAT,
        "loss": loss,
        "batch": batch,
        "crop": crop,
        "learning_rate": learning_rate,
        "seed": seed,
        "network": network,
        "data": {
            "source": data.source,
            "tiles": digest(data.tiles.cpu().numpy()),
            "kernels": digest(data.kernels.cpu().numpy()),
        },
    }
    net.noise_range = NOISE
    weights, coefficients = parameters(net)
    trained = copy.deepcopy(net)

    def save(path: Path, w: Tensor) -> None:
        assign(_all(trained), w)
        trained.save(path)

    with ExitStack() as held:
        objective = _Losses(net, loss, data, batch, crop, seed, held)
        what, layout = (
            "training of a deconvolution network",
            partial(as_vectors, weights=weights, coefficients=coefficients),
        )
        files = course.files(settings, what, held, layout)
        total = course.epochs if minutes is None else 10**9
        show = held.enter_context(progress_line(progress, total, 1.0, 0.05))
        best, run = fit(objective, flat(_all(net)), _Method(learning_rate), course, files, save, held, show)
        assign(_all(net), best)
    return run


class _Method(Adam):
    """Adam on clipped gradients; the rate grows, then falls along a cosine. A weight without gradient stays where it is."""

    def __init__(self, rate: float) -> None:
        super().__init__(rate)
        self._largest = rate

    def rate_at(self, epoch: int, share: float) -> float:
        cosine = 0.5 * (1.0 + math.cos(math.pi * min(share, 1.0)))
        return self._largest * min(1.0, (epoch + 1) / WARM_UP) * (LEAST_RATE + (1.0 - LEAST_RATE) * cosine)

    def step(self, w: Tensor, gradient: Tensor, /, *_: object) -> Tensor:
        return super().step(w, gradient * (CLIP / (gradient.norm() + 1e-6)).clamp(max=1.0))


class _Task(Terms):
    """The loss of a step, a mean over crops; w has all parameters of the network, the coefficients of LD-Minv last. Of these the
    loss has no gradient: they have their own. A rank draws all crops and keeps its own."""

    def __init__(self, common: Message) -> None:
        facts, tensors = common.facts, common.tensors
        self.net = LearnedDeconvolution(*facts["size"], **facts["options"])
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
        assign(_all(self.net), w)
        value = self._share * self.evaluate(self._batch)[0]
        weights, coefficients = parameters(self.net)
        slopes = torch.autograd.grad(value, list(weights.values()), allow_unused=True, materialize_grads=True)
        return value.detach(), flat([*slopes, *map(torch.zeros_like, coefficients.values())])

    @torch.no_grad()
    def measure(self, w: Tensor) -> float:
        assign(_all(self.net), w)
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
        assign(_all(self.net), w)
        value = self._share * self.net.inverse_loss(self._batch.blur, self._batch.noise)
        weights, coefficients = parameters(self.net)
        slopes = torch.autograd.grad(value, list(coefficients.values()))
        return value.detach(), flat([*map(torch.zeros_like, weights.values()), *slopes])


class _Losses(Objective):
    """The losses of a run; w as ``_Task`` has it. The ranks of a job share the crops until ``held`` is closed."""

    look_every = LOOK_EVERY
    validate_every = VALIDATE_EVERY

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
        self._batch = batch
        size = [len(net.layers), net.filters]
        options = {"wavelet": net.wavelet, "inverse": net.inverse, "start": net.start}
        facts = {"loss": loss, "size": size, "options": options, "crop": crop, "seed": seed}
        parts: list[Message] = []
        for part in data.split():
            part = part.to(net.log_gradient.device)
            tensors = {"tiles": part.tiles, "kernels": part.kernels, "like": net.log_gradient.detach()}
            parts.append(Message({**facts, "source": part.source}, tensors))
        self._training = SharedSum(_Task, parts[0], held)
        self._validation = SharedSum(_Task, parts[1], held)
        self._validation.take(VALIDATION, {}, {})
        self._inverse = None
        if any(C.requires_grad for C in parameters(net)[1].values()):
            self._inverse, self.inner = SharedSum(_InverseTask, parts[0], held), Adam(INVERSE_RATE)

    def prepare(self, epoch: int, w: Tensor) -> Tensor:
        """One step of algorithm 1 on every layer's C, at the α of this step's batch."""
        if self._inverse is None or self.inner is None:
            return w
        return self.inner.step(w, self._of_batch(self._inverse, epoch, w)[1])

    def evaluate(self, epoch: int, w: Tensor) -> tuple[Tensor, Tensor]:
        return self._of_batch(self._training, epoch, w)

    def measure(self, w: Tensor) -> float:
        """Loss of the output on crops that are not trained on."""
        return self._validation.measure(w)

    def _of_batch(self, loss: SharedSum, epoch: int, w: Tensor) -> tuple[Tensor, Tensor]:
        loss.take(self._batch, {"step": epoch}, {})
        return loss.value_and_gradient(w)


def parameters(net: LearnedDeconvolution) -> tuple[dict[str, nn.Parameter], dict[str, nn.Parameter]]:
    """The weights by name, and the coefficients of LD-Minv apart."""
    named = dict(net.named_parameters())
    coefficients = {name: named.pop(name) for name in list(named) if name.endswith("coefficients")}
    return named, coefficients


def _all(net: LearnedDeconvolution) -> list[nn.Parameter]:
    """In the order that they have in w."""
    weights, coefficients = parameters(net)
    return [*weights.values(), *coefficients.values()]


def measures(net: LearnedDeconvolution, batch: Batch, loss: Loss) -> Tensor:
    """(K + 1, N), of the start and every layer, per pixel: squared error under the observed picture, or the objective."""
    iterates = net.iterates(batch.observed, batch.blur, batch.noise)
    if loss == "supervised":
        sharp = batch.blur.crop(batch.sharp)
        return torch.stack([(batch.blur.crop(x.image) - sharp).square().mean((1, 2)) for x in iterates])
    problem = Penalised(batch.observed, batch.blur, batch.noise, net.wavelet)
    return torch.stack([problem.objective(x.image) for x in iterates]) / batch.sharp[0].numel()
