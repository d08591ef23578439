"""Mini-batches of feed-forward networks: what ``feed-forward/sgd`` is evaluated at, and the engine that steps on them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from surefoot_check.feed_forward import SYSTEM as CHECKED
from surefoot_check.feed_forward import network, sgd
from surefoot_check.feed_forward.enclosures import Measured as OfFit
from surefoot_check.feed_forward.quantities import enclosed

from .._core.certificate import Condition, publish
from .._core.draws import Draws
from .._core.engine import Weights
from .._core.minibatch import choose
from .._core.sgd import BatchEngine
from .engine import backward, distance, leaves_of
from .loss import NetworkLoss
from .measuring import MeasuredAt

DIFFER = "no two rows of X are equal"


def measured(at: OfFit, draws: Draws) -> MeasuredAt:
    """Base quantities and choices for batches that are drawn so."""
    sizes, directions = network.sizes(at.problem, at.weights), {**CHECKED.directions, "sigma": "lower"}
    start = publish(enclosed(at, {"newton_step": math.nan}), directions)
    batches = at.batches(draws.size)
    if batches is None:
        missing = Condition(DIFFER, float(at.problem.rows), ">=", float(len(at.problem.X)), False, None)
        return MeasuredAt(start, sizes, missing=missing, at=at)
    if "newton_step" not in start:
        missing = Condition("the Jacobian has full row rank: sigma_min(J) > 0", 0.0, ">", 0.0, False, None)
        return MeasuredAt(start, sizes, missing=missing, at=at)

    def on_ball(radius: float) -> dict[str, float]:
        return publish(batches.on_ball(radius), directions)

    found = choose(sgd.THEOREM, start | sizes, on_ball, draws.size, draws.samples, draws.sampling.delta, draws.aim)
    choices = {name: found[name] for name in sgd.THEOREM.choices}
    return MeasuredAt(publish(enclosed(at, {**start, **choices}), directions), sizes, [choices], at=at)


def suggestion(failed: Sequence[str], quantities: Mapping[str, float], finish: str) -> str:
    """What would make the theorem hold of a Jacobian of full row rank."""
    if DIFFER in failed:
        return "drop the rows of X that are there already: batches are drawn of rows that all differ"
    sigma, bend, step = (quantities[name] for name in ("sigma_min_J", "lipschitz_fit", "newton_step"))
    return (
        f"train on, with any optimiser, and certify again: 2 Lambda d is {2.0 * bend * step / sigma:.3g} of sigma_min(J), and "
        f"mini-batches need about a quarter or less; {finish}"
    )


class MinibatchEngine(BatchEngine):
    """Steps of all weights on batches of rows."""

    def __init__(self, loss: NetworkLoss, start: Weights) -> None:
        if loss.draws is None:
            raise ValueError("the loss draws no batches; call sf.sgd.descend with its data")
        super().__init__(loss.draws)
        self._loss, self._start = loss, start
        self._move_to(start)

    def _move_to(self, weights: Weights) -> None:
        self.be_at(weights, float(self._loss.value(weights)), distance(weights, self._start))

    def take(self, step: float, rows: Any) -> None:
        chosen = torch.from_numpy(rows).to(self._loss.X.device)
        leaves = leaves_of(self.iterate.weights)
        with torch.enable_grad():
            X, Y, roots = (part[chosen] for part in self._loss.merged)
            residual = self._loss.of_rows(X, Y, roots, leaves)
            gradient = backward(leaves, 0.5 * residual.square().sum())
        self._move_to({name: W - step * gradient[name] for name, W in self.iterate.weights.items()})

    def weights(self) -> Weights:
        return self.iterate.weights

    def go_to(self, weights: Mapping[str, Tensor]) -> None:
        self._move_to({name: weights[name].to(start.device) for name, start in self._start.items()})
