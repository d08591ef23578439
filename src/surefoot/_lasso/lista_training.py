"""Training of the networks that unroll ISTA."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from .._core.callbacks import Callback
from .._core.team import Message, member, name_of
from .._core.validate import nonnegative
from .._learning.fit import Course, Objective, fit
from .._learning.optimizers import Adam
from .._learning.run import TrainRun
from .._learning.shared_sum import SharedSum, Terms, assign, flat
from .._problems.lasso import Lasso
from .lista import UnrolledISTA, check_unrolled, targets_of

Fresh = Callable[[int], tuple[Lasso, Tensor]]
"""Problems and their x* of an epoch, the same ones whenever it is called with that epoch."""


def train_lista(
    net: UnrolledISTA,
    problems: Lasso,
    targets: Any = None,
    epochs: int = 1000,
    learning_rate: float = 1e-3,
    *,
    fresh: Fresh | None = None,
    callbacks: Iterable[Callback] = (),
) -> TrainRun:
    """Minimise the mean of ‖x_T - x*‖² with Adam; one step an epoch on all problems. The network is changed in place.
    The ranks of a job share the problems, with the same result up to the rounding of sums.

    Args:
        net: trained in place.
        problems: of the network's matrix.
        targets: x* (N, d): the signals that the problems were made of; by default their minimisers.
        epochs: steps.
        learning_rate: of Adam.
        fresh: other problems and x* each epoch, a function of the epoch; the best weights are those on ``problems``.
        callbacks: told of every epoch as it comes, and able to stop the training: see ``sf.callbacks``.

    Returns:
        The run. With ``fresh``, its losses are those on the fresh problems and its validation that on ``problems``. A non-finite
        loss ends it with status "diverged", Ctrl-C, SIGTERM and SIGHUP with "interrupted".

    Raises:
        TypeError, ValueError: bad arguments.

    Example:
        >>> M = torch.randn(10, 20, dtype=torch.float64)
        >>> x = torch.randn(32, 20, dtype=torch.float64) * (torch.rand(32, 20) < 0.1)  # sparse signals
        >>> problems = sf.learned.Lasso.from_matrix(M, M @ x.T, lam=0.1)
        >>> net = sf.nn.ALISTA(M, layers=4, lam=0.1)
        >>> run = sf.learned.train_lista(net, problems, x, epochs=20, learning_rate=0.01)
        >>> run.best < run.losses[0]
        True
    """
    check_unrolled(net)
    pairs = net.check(problems).Y, targets_of(problems, targets)
    course, rate = Course.of(epochs, callbacks=callbacks), nonnegative("learning_rate", learning_rate)
    parameters = list(net.parameters())
    with ExitStack() as held:
        objective = _Errors(net, pairs, fresh, held)
        best, run = fit(objective, flat(parameters), Adam(rate), course, None, lambda path, w: None, held)
        assign(parameters, best)
    return run


class _Errors(Objective):
    """The mean error on the problems of the epoch, and that on those of all epochs; w is the vector of all parameters."""

    def __init__(self, net: UnrolledISTA, pairs: tuple[Tensor, Tensor], fresh: Fresh | None, held: ExitStack) -> None:
        self._net, self._fresh = net, fresh
        common = Message({"kind": name_of(type(net)), **net.options}, {"M": net.M})
        self._fixed = SharedSum(ErrorTerms, common, held)
        self._training = self._fixed if fresh is None else SharedSum(ErrorTerms, common, held)
        _take(self._fixed, *pairs)

    def evaluate(self, epoch: int, w: Tensor) -> tuple[Tensor, Tensor]:
        if self._fresh is not None:
            problems, signals = self._fresh(epoch)
            _take(self._training, self._net.check(problems).Y, targets_of(problems, signals))
        return self._training.value_and_gradient(w)

    def measure(self, w: Tensor) -> float | None:
        return None if self._fresh is None else self._fixed.measure(w)


class ErrorTerms(Terms):
    """‖x_T - x*‖²/N of some of N problems; w is the vector of all parameters of the network."""

    def __init__(self, common: Message) -> None:
        options = dict(common.facts)
        self._net: UnrolledISTA = member(options.pop("kind"))(common.tensors["M"], **options)

    def take(self, data: Message, part: slice, count: int) -> None:
        self._Y, self._targets = data.tensors["Y"], data.tensors["targets"]
        self._share = len(self._Y) / count

    def value_and_gradient(self, w: Tensor) -> tuple[Tensor, Tensor]:
        parameters = list(self._net.parameters())
        assign(parameters, w)
        loss = self._loss()
        return loss.detach(), flat(torch.autograd.grad(loss, parameters))

    @torch.no_grad()
    def measure(self, w: Tensor) -> float:
        assign(self._net.parameters(), w)
        return float(self._loss())

    def _loss(self) -> Tensor:
        return self._share * (self._net(self._Y) - self._targets).square().sum(1).mean()


def _take(loss: SharedSum, Y: Tensor, targets: Tensor) -> None:
    loss.take(len(Y), {}, {"Y": Y, "targets": targets})
