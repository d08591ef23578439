"""Mini-batches of linear ResNets: data that can be fitted, its rows, and the engine that steps on batches of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surefoot_check.linear_resnet.batches import Batches
from surefoot_check.linear_resnet.constants import DIRECTIONS as OF_LAYERS
from surefoot_check.linear_resnet.sgd_local import THEOREM
from surefoot_check.minibatch import DIRECTIONS as OF_BATCHES
from surefoot_check.problems import Fitted
from surefoot_check.rigor.intervals import bounded

from .._core.certificate import Condition, publish
from .._core.draws import Draws
from .._core.losses import SquaredLoss
from .._core.minibatch import choose
from .._core.sgd import BatchEngine
from .._core.small_losses import Array
from .._core.statistics import LeastSquaresStatistics
from .._core.system import Measured
from .engine import Iterate

FITTED = "the data can be fitted: L* <= rounding"
PROJECT = (
    "project the targets onto what X can fit, Y = X @ torch.linalg.lstsq(X, Y).solution, as the theorem needs an exact fit; with "
    "L* > 0 its bound holds only down to a floor (docs/theorems/sgd.md, remark 2), which is not certified, and the theorem "
    "linear-resnet/sgd speaks of the best iterate"
)
"""What to do about data that cannot be fitted."""


class FittedLoss(SquaredLoss):
    """½‖XW - XŴ‖² with the rows X (N, d) themselves: the part of the targets Y (N, k) that X can fit.

    Attributes:
        rows: X, of full column rank; reduced where the given one is not.
        draws: of batches of them; ``None`` for one read from a run directory.
        left_over: L* of the targets as given, which are taken for XŴ.
        rounding: what L* may be of targets that can be fitted.
    """

    kind = Fitted.kind

    def __init__(self, X: Tensor, Y: Tensor, draws: Draws | None = None) -> None:
        super().__init__(X, Y)
        self.rows = X if self.basis is None else X @ self.basis
        self.draws, self.left_over, self.rounding = draws, self.optimal_value, self.gap_resolution
        self.optimal_value = 0.0

    @classmethod
    def stored(cls, X: Tensor, optimum: Tensor) -> FittedLoss:
        """That of a run directory."""
        loss = cls(X, X @ optimum)
        loss.optimum = optimum  # to the bit
        return loss

    @cached_property
    def reduced(self) -> FittedLoss:
        if self.basis is None:
            return self
        loss, s = FittedLoss.__new__(FittedLoss), self.statistics
        loss._set(LeastSquaresStatistics(s.design, s.target, 0.0, None, s.rows, s.design.shape[1]))
        loss.rows, loss.draws, loss.left_over, loss.rounding = self.rows, self.draws, self.left_over, self.rounding
        return loss

    def arrays(self) -> dict[str, Tensor]:
        return {"X": self.rows.contiguous(), "optimum": self.reduced.optimum.contiguous()}

    @property
    def unfitted(self) -> Condition | None:
        """The condition that fails where the targets are not those that X can fit."""
        if self.left_over <= self.rounding:
            return None
        return Condition(FITTED, self.left_over, "<=", self.rounding, False, None)


def measured(
    loss: FittedLoss, problem: Fitted, arrays: Mapping[str, Array], sizes: Mapping[str, int | bool]
) -> Measured:
    """Base quantities and choices of ``linear-resnet/sgd-local`` for the batches of a loss.

    Raises:
        ValueError: a loss without batches.
    """
    if loss.draws is None:
        raise ValueError("the loss of a run directory draws no batches; call sf.sgd.certify(net, X, Y, batch_size)")
    at, draws = Batches(problem, arrays), loss.draws
    directions = OF_LAYERS | OF_BATCHES | {"sigma": "lower"}
    start = publish(bounded(at.at_start()), directions)
    missing = loss.unfitted
    if missing is None and len(start) < 3:
        missing = Condition("a fit is near: |J^+ r| has a bound", math.inf, "<", math.inf, False, None)
    if missing is not None:
        return Measured(start, sizes, missing=missing)

    def on_ball(radius: float) -> dict[str, float]:
        return publish(at.on_ball(radius, draws.size), directions)

    found = choose(THEOREM, start, on_ball, draws.size, draws.samples, draws.sampling.delta, draws.aim)
    choices = {name: found[name] for name in THEOREM.choices}
    return Measured(publish(bounded(at.enclosures(choices)), directions), sizes, [choices])


def suggestion(batch: int, samples: int) -> str:
    """What would make the theorem hold where the data can be fitted."""
    larger = f", or a larger batch (now {batch} of {samples})" if batch < samples else ""
    return (
        "the weights are too far from a fit for these batches: train first, with sf.descend, and certify there; or use the "
        f"modified identity with a larger alpha, a larger delta{larger}"
    )


class MinibatchEngine(BatchEngine):
    """Steps of the reduced weights Ŵ (L, q, q) on batches of rows."""

    def __init__(self, loss: FittedLoss, A: Tensor, B: Tensor, W: Tensor) -> None:
        if loss.draws is None:
            raise ValueError("the loss of a run directory draws no batches; call sf.sgd.descend with its data")
        super().__init__(loss.draws)
        self._device = W.device
        self._A, self._B, self._start = (np.array(tensor.cpu().numpy()) for tensor in (A, B, W))
        reduced = loss.reduced
        self._X = reduced.rows.cpu().numpy()
        self._optimum = reduced.optimum.cpu().numpy()
        design = reduced.small.design
        self._inputs, self._targets = np.ascontiguousarray(design.T), (design @ self._optimum).T
        self._move_to(self._start)

    def _move_to(self, W: Array) -> None:
        gap = Iterate(self._inputs, self._targets, self._A, self._B, W).gap
        self.be_at(W, gap, float(np.linalg.norm(W - self._start)))

    def take(self, step: float, rows: Any) -> None:
        X = self._X[rows]
        W = self.iterate.weights
        batch = Iterate(np.ascontiguousarray(X.T), (X @ self._optimum).T, self._A, self._B, W)
        with np.errstate(over="ignore", invalid="ignore"):
            self._move_to(W - step * batch.gradient)

    def weights(self) -> dict[str, Tensor]:
        arrays = {"A": self._A, "B": self._B, "W": self.iterate.weights}
        return {name: torch.from_numpy(array.copy()).to(self._device) for name, array in arrays.items()}

    def go_to(self, weights: Mapping[str, Tensor]) -> None:
        self._move_to(np.array(weights["W"].cpu().numpy()))
