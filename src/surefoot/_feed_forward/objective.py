"""The objectives that people train with: a criterion of torch on all rows, with weight decay."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from surefoot_check.feed_forward.network import EntropyObjective, SquaredObjective, WeightedEntropyObjective

from .._core.brief import size
from .._core.losses import Loss
from .._core.samples import SampleLoss
from .._core.validate import class_numbers, kind_of, nonnegative, real
from .modules import forward

IGNORED = -100
"""What a criterion leaves out by default; no label is negative here."""


class TorchLoss(Loss):
    """``criterion(net(X), targets)`` + ½ ``weight_decay`` ‖θ‖², θ all weights that are trained: one's own training objective.

    This is what ``torch.optim.SGD(..., weight_decay=...)`` descends. An ``nn.MSELoss`` without weight decay, of no more outputs
    (on all rows) than trained numbers, has exact fits, and is certified as ``sf.SquaredLoss`` is (``feed-forward/local``); gaps
    are its own values. Certificates of every other one are about a strict local minimum (``feed-forward/minimum``), and gaps are
    ½‖∇L‖², as the value at that minimum is not known.

    Args:
        criterion: ``nn.MSELoss`` or ``nn.CrossEntropyLoss``, of reduction "mean" or "sum"; the latter also with class weights and
            label smoothing, but with torch's own ``ignore_index``.
        X: (N, d) float64.
        targets: (N, k) or (N,) float64 for ``nn.MSELoss``; (N,) class numbers for ``nn.CrossEntropyLoss``.
        weight_decay: ≥ 0.

    Raises:
        TypeError: another criterion, or arrays of another dtype.
        ValueError: settings or shapes that do not fit, entries that are not finite, or class numbers below 0.

    Example:
        >>> X, criterion = torch.randn(20, 3).double(), torch.nn.MSELoss()
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 1)).double()
        >>> optimizer = torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=0.1)
        >>> for _ in range(200):
        ...     optimizer.zero_grad()
        ...     criterion(net(X)[:, 0], X.sum(1)).backward()
        ...     optimizer.step()
        >>> loss = sf.TorchLoss(criterion, X, X.sum(1), weight_decay=0.1)  # has it converged?
        >>> sf.certify(net, loss).radius < 1e-3  # a minimum is as near as that
        True
    """

    optimal_value = 0.0

    def __init__(self, criterion: nn.Module, X: Any, targets: Any, weight_decay: float = 0.0) -> None:
        if type(criterion) not in (nn.MSELoss, nn.CrossEntropyLoss):
            raise TypeError(f"criterion is {kind_of(criterion)}; pass nn.MSELoss() or nn.CrossEntropyLoss()")
        if criterion.reduction not in ("mean", "sum"):
            raise ValueError(f'criterion has reduction={criterion.reduction!r}; use reduction="mean" or "sum"')
        self.entropy, self.mean = isinstance(criterion, nn.CrossEntropyLoss), criterion.reduction == "mean"
        self.weight_decay = nonnegative("weight_decay", weight_decay)
        self.kind = (EntropyObjective if self.entropy else SquaredObjective).kind
        self.class_weights: Tensor | None = None
        self.label_smoothing = 0.0
        if isinstance(criterion, nn.CrossEntropyLoss):
            self.X = real("X", X, 2)
            self._read(criterion)
            self.targets = class_numbers("targets", targets, self.X)
            if int(self.targets.min()) < 0:
                raise ValueError(f"targets has the class number {int(self.targets.min())}; they count from 0")
        else:
            samples = SampleLoss(X, targets, "targets")
            self.X, self.targets = samples.X, samples.Y

    def _read(self, criterion: nn.CrossEntropyLoss) -> None:
        """Its settings."""
        if criterion.ignore_index != IGNORED:
            raise ValueError(f"criterion has ignore_index={criterion.ignore_index}; leave out those rows instead")
        self.label_smoothing = nonnegative("criterion.label_smoothing", criterion.label_smoothing)
        if self.label_smoothing > 1.0:
            raise ValueError(f"criterion.label_smoothing is {self.label_smoothing}; it must lie between 0 and 1")
        if criterion.weight is not None:
            self.class_weights = real("criterion.weight", criterion.weight, 1).to(self.X.device)
            if bool((self.class_weights < 0.0).any()):
                raise ValueError(
                    f"criterion.weight has {float(self.class_weights.min())}; class weights are not negative"
                )
        if self.class_weights is not None or self.label_smoothing > 0.0:
            self.kind = WeightedEntropyObjective.kind

    def _sizes(self) -> str:
        criterion = "CrossEntropyLoss" if self.entropy else "MSELoss"
        return f"{criterion}, X {size(self.X)}, targets {size(self.targets)}, weight_decay={self.weight_decay:g}"

    def require_classes(self, outputs: int) -> None:
        """``ValueError`` where there is a label without an output, or not a class weight for each."""
        if not self.entropy:
            return
        if int(self.targets.max()) >= outputs:
            raise ValueError(
                f"targets has the class number {int(self.targets.max())}, and net {outputs} outputs; they are counted from 0"
            )
        weights = self.class_weights
        if weights is None:
            return
        if len(weights) != outputs:
            raise ValueError(
                f"criterion has {len(weights)} class weights, and net {outputs} outputs; they must be as many"
            )
        if self.mean and not bool(weights[self.targets].any()):
            raise ValueError(
                "criterion.weight is 0 for the class of every row, and their mean is taken; use other weights"
            )

    def stored(self, outputs: int) -> dict[str, Tensor]:
        """``arrays``, of a network of so many outputs."""
        settings = [self.weight_decay, float(self.mean)]
        arrays = {"X": self.X, "labels" if self.entropy else "Y": self.targets}
        if self.kind == WeightedEntropyObjective.kind:
            settings.append(self.label_smoothing)
            weights = self.class_weights
            arrays["classes"] = self.X.new_ones(1, outputs) if weights is None else weights[None]
        arrays["objective"] = torch.tensor([settings], dtype=torch.float64)
        return {name: array.contiguous() for name, array in arrays.items()}

    def arrays(self) -> dict[str, Tensor]:
        """See ``stored``."""
        return self.stored(int(self.targets.max()) + 1 if self.entropy else self.targets.shape[1])

    @property
    def multiple(self) -> Fraction:
        """c of an ``nn.MSELoss``, which is ½c‖f(X) - Y‖², and the weight decay."""
        return Fraction(2, self.targets.numel() if self.mean else 1)


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
        return {
            **self.loss.stored(int(self.layers[-1, 0])),
            "layers": self.layers,
            "settings": self.settings,
            **self.frozen,
        }

    def value(self, trained: Mapping[str, Tensor]) -> Tensor:
        """The objective, a scalar."""
        f = forward(self.X, self.layers, self.settings, {**self.frozen, **trained})
        loss, how = self.loss, "mean" if self.loss.mean else "sum"
        if loss.entropy:
            fit = functional.cross_entropy(
                f, loss.targets, loss.class_weights, reduction=how, label_smoothing=loss.label_smoothing
            )
        else:
            fit = functional.mse_loss(f, loss.targets, reduction=how)
        return fit + 0.5 * self.loss.weight_decay * sum(weight.square().sum() for weight in trained.values())
