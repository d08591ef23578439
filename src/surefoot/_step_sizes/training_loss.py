"""The training loss Σ_p F_p(x_T) and its gradient, the fastest way there is."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._core.team import Memory, Message, team
from .._learning.fit import Objective
from .._learning.shared_sum import SharedSum, Terms, assign, flat
from .._problems import LeastSquares, Problems
from .network import StepSizeNet, check_problems
from .smoothness import Smoothness, inverse_smoothness, smoothness_of
from .system import KINDS
from .unrolled import (
    Gradient,
    final_objective,
    final_objective_and_gradient,
)

Fresh = Callable[[int], Problems]
"""The problems of an epoch, the same ones whenever it is called with that epoch."""


class RunLoss(Objective):
    """The losses of one run as functions of the vector of all weights; the ranks of a job share the problems.

    ``held`` is closed by the caller.
    """

    def __init__(
        self,
        net: StepSizeNet,
        problems: Problems,
        iterations: int,
        smoothness: Smoothness,
        fresh: Fresh | None,
        validation: Problems | None,
        gradient: Gradient,
        held: ExitStack,
    ) -> None:
        self._net, self._smoothness, self._fresh = net, smoothness, fresh
        self._epoch = -1
        facts = {"shapes": [list(W.shape) for W in net.weights], "range": net.range}
        common = Message({**facts, "iterations": iterations, "gradient": gradient})
        self._training = SharedSum(ProblemTerms, common, held)
        if fresh is None:
            self._take(self._training, problems)
        self._validation = None if validation is None else SharedSum(ProblemTerms, common, held)
        if self._validation is not None and validation is not None:
            self._take(self._validation, validation)

    def evaluate(self, epoch: int, w: Tensor) -> tuple[Tensor, Tensor]:
        self._select(epoch)
        return self._training.value_and_gradient(w)

    def measure(self, w: Tensor) -> float | None:
        return None if self._validation is None else self._validation.measure(w)

    def value(self, epoch: int, w: Tensor) -> float:
        self._select(epoch)
        return self._training.measure(w)

    def _select(self, epoch: int) -> None:
        """The problems of the epoch."""
        if self._fresh is not None and epoch != self._epoch:
            problems = self._fresh(epoch)
            check_problems(self._net, problems, f"fresh({epoch})")
            self._take(self._training, problems)
            self._epoch = epoch

    def _take(self, loss: SharedSum, problems: Problems) -> None:
        share_singular_values(problems)
        beta = smoothness_of(problems, self._smoothness)
        loss.take(problems.count, {"kind": problems.kind}, {**problems.data(), "beta": beta})


# weights that overflow end the run with a status of its own; numpy need not warn of them
_quiet = np.errstate(over="ignore", invalid="ignore")


class ProblemTerms(Terms):
    """F_p(x_T) of some problems; w is the vector of all weights of a ``StepSizeNet``."""

    def __init__(self, common: Message) -> None:
        facts = common.facts
        self._net = StepSizeNet([torch.zeros(shape) for shape in facts["shapes"]], *facts["range"])
        self._iterations: int = facts["iterations"]
        self._gradient: Gradient = facts["gradient"]

    def take(self, data: Message, part: slice, count: int) -> None:
        arrays = dict(data.tensors)
        self._beta = arrays.pop("beta")
        kind: Any = KINDS[data.facts["kind"]]
        self._problems: Problems = kind(**arrays)
        self._net.to(self._problems.M)

    @_quiet
    def value_and_gradient(self, w: Tensor) -> tuple[Tensor, Tensor]:
        assign(self._net.weights, w)
        value, parts = training_loss(self._net, self._problems, self._iterations, self._beta, self._gradient)
        return torch.tensor(value, dtype=torch.float64), flat(parts)

    @_quiet
    def measure(self, w: Tensor) -> float:
        """With the rounding of the value, so that line searches may compare the two."""
        assign(self._net.weights, w)
        return final_loss(self._net, self._problems, self._iterations, self._beta)


def share_singular_values(problems: Problems) -> None:
    """Bound the singular values, on which the smoothness of problems rests, with all ranks of a job, a share on each.

    For small problems this takes longer than some epochs of training.
    """
    ranks, M = team(), problems.M
    one_for_all = M.stride(0) == 0
    if ranks is None or M.device.type != "cpu" or one_for_all or "singular_values" in vars(problems):
        return
    parts = [M[part] for part in ranks.shares(problems.count)]
    answers = ranks.call(bound_singular_values, [Message({}, {"M": part} if len(part) else {}) for part in parts])
    problems.singular_values = torch.cat([answer.tensors["bounds"] for answer in answers if answer.tensors])


def bound_singular_values(request: Message, _: Memory) -> Message:
    """A rank's share of ``share_singular_values``."""
    if not request.tensors:
        return Message()
    M = request.tensors["M"]
    return Message({}, {"bounds": LeastSquares(M, M.new_zeros(M.shape[:2])).singular_values})


def training_loss(
    net: StepSizeNet, problems: Problems, iterations: int, beta: Tensor, gradient: Gradient = "exact"
) -> tuple[float, list[Tensor]]:
    """Σ_p F_p(x_T) from x_0 = 0 and its gradient, the fastest way there is: compiled for least squares in float64 on the CPU
    with two hidden layers, as ``final_objective_and_gradient`` otherwise. NaN where a weight is not finite."""
    if not _finite(net):
        return math.nan, [torch.full_like(W, math.nan) for W in net.matrices]
    if _compiled(net, problems):
        from .sectors import forward_and_gradient

        W1, W2, W3 = net.matrices
        value, parts = forward_and_gradient(
            problems.M, problems.Y, beta, W1, W2, W3, net.low, net.high, iterations, gradient
        )
        return value, list(parts)
    inverse = inverse_smoothness(problems, beta)
    loss, parts = final_objective_and_gradient(net, problems, iterations, inverse, problems.start(), gradient)
    return float(loss), parts


def final_loss(net: StepSizeNet, problems: Problems, iterations: int, beta: Tensor) -> float:
    """Σ_p F_p(x_T) from x_0 = 0, with the rounding of ``training_loss``, so that line searches may compare the two."""
    if not _finite(net):
        return math.nan
    if _compiled(net, problems):
        return training_loss(net, problems, iterations, beta)[0]
    return float(final_objective(net, problems, iterations, inverse_smoothness(problems, beta), problems.start()))


def _finite(net: StepSizeNet) -> bool:
    return all(bool(W.isfinite().all()) for W in net.matrices)


def _compiled(net: StepSizeNet, problems: Problems) -> bool:
    M = problems.M
    return (
        isinstance(problems, LeastSquares)
        and len(net.weights) == 3
        and M.dtype == torch.float64
        and M.device.type == "cpu"
    )
