"""The training loss Σ_p F_p(x_T) and its gradient, the fastest way there is."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .network import Smoothness, StepSizeNet
from .problems import LeastSquares, Problems
from .unrolled import (
    Gradient,
    check_problems,
    final_objective,
    final_objective_and_gradient,
    inverse_smoothness,
    smoothness_of,
)

Fresh = Callable[[int], Problems]
"""The problems of an epoch, the same ones whenever it is called with that epoch."""


class RunLoss:
    """The losses of one run as functions of the vector of all weights."""

    def __init__(
        self,
        net: StepSizeNet,
        problems: Problems,
        iterations: int,
        smoothness: Smoothness,
        fresh: Fresh | None,
        validation: Problems | None,
        gradient: Gradient,
    ) -> None:
        self._net, self._iterations, self._smoothness, self._fresh = net, iterations, smoothness, fresh
        self._gradient: Gradient = gradient
        self._epoch = -1
        self._problems = problems
        if fresh is None:
            self._beta = smoothness_of(problems, smoothness)
        self.validation = validation
        if validation is not None:
            self._validation_beta = smoothness_of(validation, smoothness)

    def evaluate(self, w: Tensor, epoch: int) -> tuple[float, Tensor, float]:
        """Training loss, its gradient, and what decides which weights are best."""
        self._select(w, epoch)
        value, parts = training_loss(self._net, self._problems, self._iterations, self._beta, self._gradient)
        slope = torch.cat([part.reshape(-1) for part in parts])
        if self.validation is None:
            return value, slope, value
        return value, slope, final_loss(self._net, self.validation, self._iterations, self._validation_beta)

    def value(self, w: Tensor, epoch: int) -> float:
        """Training loss."""
        self._select(w, epoch)
        return final_loss(self._net, self._problems, self._iterations, self._beta)

    def _select(self, w: Tensor, epoch: int) -> None:
        """Weights and problems."""
        assign(self._net, w)
        if self._fresh is not None and epoch != self._epoch:
            self._problems = self._fresh(epoch)
            check_problems(self._net, self._problems, f"fresh({epoch})")
            self._beta = smoothness_of(self._problems, self._smoothness)
            self._epoch = epoch


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


def assign(net: StepSizeNet, w: Tensor) -> None:
    """Set the weights from the vector of all of them."""
    with torch.no_grad():
        for W, part in zip(net.weights, w.split([W.numel() for W in net.weights]), strict=True):
            W.copy_(part.view_as(W))
