"""What the core needs to know of a system, and the registry that maps a network to its system."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from surefoot_check.statement import SLACK

from .audit import Audit
from .certificate import Certificate
from .losses import LinearMapLoss, Loss
from .status import RunStatus
from .steps import StepRule
from .validate import unknown


class Engine(Protocol):
    """Moves a network's reduced weights; ``name`` is what ``descend(engine=...)`` calls it."""

    name: str
    iterate: Any

    @property
    def failure(self) -> RunStatus | None:
        """Why the current iterate is useless, beyond what its gap shows; ``None`` where it is not."""
        ...

    def move(self, eta: float) -> None:
        """One step of gradient descent."""
        ...

    def weights(self) -> Mapping[str, Tensor]:
        """The current (reduced) weights by name."""
        ...

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint needs beyond the weights."""
        ...

    def restore(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint."""
        ...


class System(Protocol):
    """One kind of network with its theorems, engines and rules."""

    name: str

    @property
    def network(self) -> type[nn.Module]:
        """The class of its networks."""
        ...

    default_theorem: str
    rules: dict[str, type[StepRule]]

    def problem(self, loss: Any) -> Any:
        """The loss as this system works with it; ``TypeError`` for a kind of loss that it cannot minimise."""
        ...

    def certify(self, net: Any, loss: Any, theorem: str) -> Certificate:
        """Evaluate a theorem at the network's current weights."""
        ...

    def advice(self, net: Any, loss: Any, certificate: Certificate) -> str:
        """Why a certificate that holds guarantees a count of no practical use, as measured, and what lowers it."""
        ...

    def rule(self, steps: StepRule | str | float | None, certificate: Certificate | None) -> StepRule:
        """The step rule for ``descend``'s argument."""
        ...

    def engine(self, net: Any, loss: Any, name: str) -> Engine:
        """An engine at the network's current weights."""
        ...

    def reduced(self, net: Any, loss: Any) -> dict[str, Tensor]:
        """Copies of the weights that the certificate speaks of."""
        ...

    def at(self, net: Any, weights: Mapping[str, Tensor]) -> Any:
        """A new reduced network of the kind of ``net`` at these (reduced) weights."""
        ...

    def write(self, net: Any, loss: Any, weights: Mapping[str, Tensor]) -> None:
        """Put (reduced) weights back into the network."""
        ...

    def measure(self, net: Any, loss: Any) -> dict[str, float]:
        """What a trace records at the network's current weights."""
        ...

    def resolution(self, net: Any, loss: Any) -> float:
        """The gap that rounding alone can cause at the network's weights: smaller values are noise."""
        ...

    def recorded(self, net: Any, loss: Any) -> dict[str, Tensor]:
        """Copies of the network's own weights, which a trace compares from row to row: the trained ones, none left out by a
        reduction, and those that must stay as they are."""
        ...

    def measure_step(self, net: Any, loss: Any, before: Mapping[str, Tensor], step: float) -> dict[str, float]:
        """What a trace records of the step that led to the current weights from those ``recorded`` a row earlier, where the audit
        asks for it."""
        ...

    def gradient(self, net: Any, loss: Any) -> dict[str, Tensor]:
        """The gradient of the loss in those recorded weights that are trained."""
        ...

    def rebuild(self, kind: str, problem: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> tuple[Any, Loss]:
        """The (reduced) network and loss from the arrays of a run directory."""
        ...

    def audit(self, trace: list[dict[str, float]], certificate: Certificate, resolution: float) -> Audit:
        """Check every inequality of the certificate's theorem along a trace."""
        ...


PRODUCT_ROUNDING = 16 * torch.finfo(torch.float64).eps
"""Relative error, in Frobenius norm, granted to a product of layers against the product of their spectral norms."""

SYSTEMS: list[System] = []


def register(system: System) -> None:
    """Make a system known to ``certify``, ``descend`` and ``audit``."""
    SYSTEMS.append(system)


def linear_map(loss: object) -> LinearMapLoss:
    """The loss, for a system whose networks are linear maps; ``TypeError`` otherwise."""
    if not isinstance(loss, LinearMapLoss):
        raise TypeError(f"loss is a {type(loss).__name__}; pass a loss, for example sf.SquaredLoss(X, Y)")
    return loss


def map_resolution(loss: LinearMapLoss, scale: float) -> float:
    """The gap that rounding can cause near W*, and by a product of layers whose spectral norms have the product ``scale``."""
    error = PRODUCT_ROUNDING * scale
    return max(loss.gap_resolution, 0.5 * loss.smoothness * error * error)


def rule_names() -> list[str]:
    """The step rules of all systems, each name once."""
    return list(dict.fromkeys(name for system in SYSTEMS for name in system.rules))


def system_of(net: object) -> System:
    """The system of a network; ``TypeError`` that lists the known networks otherwise."""
    for system in SYSTEMS:
        if isinstance(net, system.network):
            return system
    known = ", ".join(f"sf.nn.{s.network.__name__}" for s in SYSTEMS)
    raise TypeError(f"net is a {type(net).__name__}; pass one of {known}")


def system_named(name: str) -> System:
    """The system with that name; ``ValueError`` otherwise."""
    for system in SYSTEMS:
        if system.name == name:
            return system
    raise unknown("system", name, [s.name for s in SYSTEMS])


@dataclass(frozen=True)
class Recertification:
    """The theorem evaluated again at iterate ``iteration`` of a run."""

    iteration: int
    certificate: Certificate

    def iterations_to(self, absolute_gap: float) -> float:
        """Total guaranteed iterations of the run to an absolute gap, counted from its start; ``inf`` to a gap of 0."""
        gap = self.certificate.initial_gap
        if gap <= absolute_gap:
            return self.iteration
        relative = absolute_gap / gap
        return self.iteration + self.certificate.iterations_to(relative) if relative > 0.0 else math.inf

    def bound(self, iteration: int) -> float:
        """Guaranteed upper bound on the gap at an iteration of the run, not before its own."""
        return self.certificate.bound(iteration - self.iteration)

    def promises_at_most(self, earlier: Recertification, floor: float) -> bool:
        """Whether the bound lies under that of an earlier one from here on, until that one guarantees a gap of ``floor``.

        Between the ends of segments both bounds are geometric, so that the ends decide.
        """
        end = earlier.iterations_to(floor)
        starts = {phase.iteration + s.start for phase in (self, earlier) for s in phase.certificate.schedule}
        compared = {t for t in starts | {t - 1 for t in starts} if self.iteration <= t <= end}
        if end < math.inf:
            compared.add(max(self.iteration, int(end)))
        elif self.certificate.schedule[-1].decrease < earlier.certificate.schedule[-1].decrease:
            return False
        return all(self.bound(t) <= (1.0 - SLACK) * earlier.bound(t) for t in compared)
