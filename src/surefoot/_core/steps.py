"""What a step-size rule is; each system brings its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from .certificate import Certificate
from .losses import Loss


class StepRule(ABC):
    """Chooses the step size at each iterate.

    ``certified_by`` names the theorems under whose certificate every step of the rule carries the guarantee.
    """

    name: ClassVar[str]
    certified_by: ClassVar[frozenset[str]] = frozenset()

    def certifies(self, certificate: Certificate) -> bool:
        """Whether its steps satisfy the step conditions of this certificate's theorem."""
        return certificate.theorem in self.certified_by

    def start(self, loss: Loss, certificate: Certificate | None) -> None:  # noqa: B027 - most rules remember nothing
        """Called once before the first step; forgets any earlier run."""

    def adopt(self, loss: Loss, certificate: Certificate) -> None:
        """Follow a new certificate from the current iterate on, keeping what the rule has learned of the trajectory."""
        self.start(loss, certificate)

    @abstractmethod
    def step(self, engine: Any) -> float:
        """The step size at the engine's current iterate. Called once an iteration, in order."""

    def state(self) -> dict[str, float]:
        """What a checkpoint keeps; ``restore`` continues from it exactly."""
        return {}

    def restore(self, state: dict[str, float]) -> None:  # noqa: B027 - see start
        """Continue from a checkpoint."""
