"""Mini-batch descent that is certified: what its certificates, engines, runs and audits share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from surefoot_check.text import chance

from .audit import Audit, Check, Rows, audited, constant_step, each, line, noise
from .callbacks import Callback
from .certificate import Certificate
from .descent import certify as certify_loss
from .descent import descend as descend_loss
from .draws import AIM, Draws, drawing
from .io import RunDirectoryError
from .minibatch import DELTA
from .registry import system_of
from .run import Run
from .system import Stochastic
from .validate import kind_of

NAME = "minibatch"
"""Of the engines."""
SURELY = "up to step T, whatever the batches"


@dataclass(frozen=True)
class BatchIterate:
    """Weights, as their engine has them, their gap on all samples, and what the trace records of them."""

    weights: Any
    gap: float
    measurements: Mapping[str, float]


class BatchEngine(ABC):
    """Moves weights by the gradient of one batch an iteration, scaled by N/B.

    Args:
        draws: of the batches.
    """

    iterate: BatchIterate

    name = NAME
    failure = None

    def __init__(self, draws: Draws) -> None:
        self.draws, self.iteration = draws, 0

    @abstractmethod
    def take(self, step: float, rows: Any) -> None:
        """A step along the gradient of ½‖r_S‖² of the samples with these indices."""

    @abstractmethod
    def weights(self) -> Mapping[str, Tensor]:
        """The current (reduced) weights by name."""

    @abstractmethod
    def go_to(self, weights: Mapping[str, Tensor]) -> None:
        """Be at these weights."""

    def be_at(self, weights: Any, gap: float, distance: float) -> None:
        """Be at weights of this gap on all samples, so far from the first ones."""
        measurements = {"gap": gap, "distance": distance, "batch": float(self.draws.size)}
        self.iterate = BatchIterate(weights, gap, measurements)

    def move(self, eta: float) -> None:
        """One step on the batch of the iteration."""
        self.take(eta * self.draws.samples / self.draws.size, self.draws.rows(self.iteration))
        self.iteration += 1

    def state(self) -> dict[str, Tensor]:
        """The iteration, which decides the batches to come, and the seed."""
        return {"iteration": torch.tensor(self.iteration), "seed": torch.tensor(self.draws.seed)}

    def restore(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint."""
        if int(state["seed"]) != self.draws.seed:
            raise RunDirectoryError(
                f"the run has batches of seed {int(state['seed'])}, this call of seed {self.draws.seed}; resume with the same one"
            )
        self.iteration = int(state["iteration"])
        self.go_to(weights)


def stochastic(net: object) -> Stochastic[Any, Any]:
    """The system of a network; ``TypeError`` where no theorem speaks of its mini-batches."""
    system = system_of(net)
    if not isinstance(system, Stochastic):
        raise TypeError(f"net is {kind_of(net)}; no theorem speaks of mini-batches of {system.network_name}")
    return system


def certify(
    net: Any,
    X: Any,
    Y: Any,
    batch_size: int,
    delta: float | None = None,
    target: float | None = None,
) -> Certificate:
    """The certificate of mini-batch descent from the network's weights; see ``surefoot.sgd.certify``."""
    system = stochastic(net)
    loss = _loss(net, X, Y, batch_size, DELTA if delta is None else delta, AIM if target is None else target, 0)
    return certify_loss(net, loss, system.of_batches)


def descend(
    net: Any,
    X: Any,
    Y: Any,
    batch_size: int,
    certificate: Certificate,
    max_iterations: int | None,
    tolerance: float,
    seed: int,
    directory: str | Path | None,
    resume: bool,
    callbacks: Iterable[Callback] = (),
) -> Run:
    """A run with the certificate's step; see ``surefoot.sgd.descend``."""
    if not certificate.holds:
        raise ValueError(
            f"step is a certificate of {certificate.theorem} that does not hold; pass a number as the step"
        )
    certified = certificate.quantities["batch"]
    if certified != batch_size:
        raise ValueError(
            f"batch_size is {batch_size}, and the certificate's {certified:g}; call sf.sgd.certify(net, X, Y, batch_size) again"
        )
    delta = certificate.quantities["delta"]
    loss = _loss(net, X, Y, batch_size, delta, AIM, seed)
    if max_iterations is None:
        max_iterations = int(min(certificate.iterations_to(tolerance or AIM), 1e9))
    return descend_loss(
        net,
        loss,
        max_iterations=max_iterations,
        tolerance=tolerance,
        certificate=certificate,
        directory=directory,
        resume=resume,
        progress=False,
        callbacks=callbacks,
        config={"batch_size": batch_size, "seed": seed},
    )


def _loss(net: Any, X: Any, Y: Any, batch_size: int, delta: float, aim: float, seed: int) -> Any:
    """The problem of which batches are drawn."""
    return stochastic(net).drawn(net, X, Y, drawing(batch_size, delta, aim, seed))


def audit(trace: Rows, certificate: Certificate, resolution: float) -> Audit:
    """Check what a certificate of mini-batches says of any run, whatever the batches; that its bound of some probability is
    exceeded is noted, and no violation."""
    if not certificate.holds:
        return audited(certificate, trace, (), resolution)
    size = certificate.quantities["batch"]
    checks: list[Check] = [
        constant_step(trace, certificate.schedule[0].step),
        (
            "every batch is of the certified size (difference)",
            each(trace, "batch", lambda batch: (abs(batch - size), 0.0)),
        ),
    ]
    found = audited(certificate, trace, checks, resolution)
    sure = tuple(line(*check) for check in _sure(trace, certificate.quantities, resolution))
    return replace(found, lines=found.lines + sure, notes=(_of_chance(trace, certificate, resolution),))


def _sure(trace: Rows, q: Mapping[str, float], resolution: float) -> Iterator[Check]:
    """What holds of the first steps whatever the batches, of Theorem S."""
    if "sure_gap" not in q:
        return
    first = [row for row in trace if row["iteration"] <= q["epoch"]]
    distance, gap = q["sure_distance"], q["sure_gap"]
    yield f"{SURELY}: |theta - theta0| <= (1+g) R0", each(first, "distance", lambda x: (x, distance))
    rows = each(first, "gap", lambda x: (x, gap + noise(x, resolution)))
    yield f"{SURELY}: the gap is at most b^2 g^2 R0^2 / 2", rows


def _of_chance(trace: Rows, certificate: Certificate, resolution: float) -> str:
    """Whether the run kept the bound that holds with some probability."""
    bound = f"the bound that holds with probability {chance(certificate.probability)} over the batches"
    allowed = ((int(row["iteration"]), row["gap"], noise(row["gap"], resolution)) for row in trace)
    above = [t for t, gap, rounding in allowed if not gap <= certificate.bound(t) + rounding]
    if not above:
        return f"the gap stayed under {bound}"
    rare = f"an event of probability at most {certificate.quantities['delta']:g}, no violation"
    return f"the gap exceeded {bound}, first at iteration {above[0]}: {rare}"
