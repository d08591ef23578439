"""The objectives that people train with: a criterion of torch on all rows, with weight decay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from surefoot_check.feed_forward.network import EntropyObjective, SquaredObjective

from .._core.losses import Loss
from .._core.samples import SampleLoss
from .._core.validate import class_numbers, nonnegative, real
from .modules import forward

IGNORED = -100
"""What a criterion leaves out by default; no label is negative here."""


class TorchLoss(Loss):
    """``criterion(net(X), targets)`` + ½ ``weight_decay`` ‖θ‖², θ all weights that are trained: one's own training objective.

    This is what ``torch.optim.SGD(..., weight_decay=...)`` descends. Certificates are about a strict local minimum
    (``feed-forward/minimum``), and gaps are ½‖∇L‖², as the value at that minimum is not known.

    Args:
        criterion: ``nn.MSELoss`` or ``nn.CrossEntropyLoss``, of reduction "mean" or "sum", without class weights or label
            smoothing.
        X: (N, d) float64.
        targets: (N, k) or (N,) float64 for ``nn.MSELoss``; (N,) class numbers for ``nn.CrossEntropyLoss``.
        weight_decay: ≥ 0.

    Raises:
        TypeError: another criterion, or arrays of another dtype.
        ValueError: settings or shapes that do not fit, entries that are not finite, or class numbers below 0.
    """

    optimal_value = 0.0

    def __init__(self, criterion: nn.Module, X: Any, targets: Any, weight_decay: float = 0.0) -> None:
        if type(criterion) not in (nn.MSELoss, nn.CrossEntropyLoss):
            raise TypeError(f"criterion is a {type(criterion).__name__}; pass nn.MSELoss() or nn.CrossEntropyLoss()")
        if criterion.reduction not in ("mean", "sum"):
            raise ValueError(f'criterion has reduction={criterion.reduction!r}; use reduction="mean" or "sum"')
        self.entropy, self.mean = isinstance(criterion, nn.CrossEntropyLoss), criterion.reduction == "mean"
        self.weight_decay = nonnegative("weight_decay", weight_decay)
        self.kind = (EntropyObjective if self.entropy else SquaredObjective).kind
        if isinstance(criterion, nn.CrossEntropyLoss):
            _plain(criterion)
            self.X = real("X", X, 2)
            self.targets = class_numbers("targets", targets, self.X)
            if int(self.targets.min()) < 0:
                raise ValueError(f"targets has the class number {int(self.targets.min())}; they count from 0")
        else:
            samples = SampleLoss(X, targets)
            self.X, self.targets = samples.X, samples.Y

    def arrays(self) -> dict[str, Tensor]:
        settings = torch.tensor([[self.weight_decay, float(self.mean)]], dtype=torch.float64)
        of = {"labels": self.targets} if self.entropy else {"Y": self.targets}
        return {"X": self.X.contiguous(), **{name: A.contiguous() for name, A in of.items()}, "objective": settings}


def _plain(criterion: nn.CrossEntropyLoss) -> None:
    if criterion.weight is not None:
        raise ValueError("criterion has class weights, which are not supported; leave weight out")
    if criterion.label_smoothing != 0.0:
        raise ValueError(f"criterion has label_smoothing={criterion.label_smoothing}; only 0 is supported")
    if criterion.ignore_index != IGNORED:
        raise ValueError(f"criterion has ignore_index={criterion.ignore_index}; leave out those rows instead")


class NetworkObjective(Loss):
    """A ``TorchLoss`` of a network, and how its layers are made; as ``loss.NetworkLoss``."""

    optimal_value = 0.0

    def __init__(self, loss: TorchLoss, layers: Tensor, settings: Tensor, frozen: Mapping[str, Tensor]) -> None:
        self.loss, self.kind = loss, loss.kind
        self.layers, self.settings, self.frozen = layers, settings, frozen

    @property
    def X(self) -> Tensor:
        """(N, d)."""
        return self.loss.X

    def arrays(self) -> dict[str, Tensor]:
        return {**self.loss.arrays(), "layers": self.layers, "settings": self.settings, **self.frozen}

    def value(self, trained: Mapping[str, Tensor]) -> Tensor:
        """The objective, a scalar."""
        f = forward(self.X, self.layers, self.settings, {**self.frozen, **trained})
        how = "mean" if self.loss.mean else "sum"
        criterion = functional.cross_entropy if self.loss.entropy else functional.mse_loss
        fit = criterion(f, self.loss.targets, reduction=how)
        return fit + 0.5 * self.loss.weight_decay * sum(weight.square().sum() for weight in trained.values())
