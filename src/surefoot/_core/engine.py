"""What an engine and its iterates are, and the engines that no system alone has: gradient descent on the weights as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from .status import RunStatus
from .steps import armijo_from_polyak

Weights = Mapping[str, Tensor]


@runtime_checkable
class Iterate(Protocol):
    """Where a run is. Step rules may ask for more of it: ``StepRule.needs``."""

    @property
    def gap(self) -> float:
        """The gap, which decides when a run ends."""
        ...

    @property
    def measurements(self) -> Mapping[str, float]:
        """What the trace records of it, the gap among them."""
        ...


class Engine(Protocol):
    """Moves a network's reduced weights; ``name`` is what ``descend(engine=...)`` calls it."""

    name: str

    @property
    def iterate(self) -> Any:
        """An ``Iterate``. Not typed as one: to type checkers a cached property is no property of a protocol."""
        ...

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


@runtime_checkable
class Anchored(Protocol):
    """An engine whose iterates measure how far they are from where the newest certificate began."""

    def anchor(self) -> None:
        """Measure from the current iterate on."""
        ...


class WeightsIterate:
    """Weights by name with their gap and its gradient, on first use: what the step rules that are no system's own ask for.

    Args:
        at: the weights.
        gap: loss minus optimal value at weights.
        gradient: of the loss, in the weights that are trained; others stay as they are.

    Example:
        >>> at = {"w": torch.ones(2, dtype=torch.float64)}
        >>> gap = lambda at: float(at["w"] @ at["w"]) / 2
        >>> iterate = sf.extending.WeightsIterate(at, gap, lambda at: {"w": at["w"]})
        >>> iterate.gap, iterate.gradient_squared, iterate.trial(0.5), iterate.after(0.5).gap
        (1.0, 2.0, 0.25, 0.25)
    """

    def __init__(
        self, weights: Weights, gap: Callable[[Weights], float], gradient: Callable[[Weights], Weights]
    ) -> None:
        self.at, self._gap, self._gradient = weights, gap, gradient

    @cached_property
    def gap(self) -> float:
        """Infinite or NaN where it overflows."""
        return self._gap(self.at)

    @cached_property
    def gradient(self) -> Weights:
        """Of the weights that are trained."""
        return self._gradient(self.at)

    @cached_property
    def gradient_squared(self) -> float:
        """‖∇‖_F² of all of them."""
        return self.along(self)

    def along(self, other: WeightsIterate) -> float:
        """The inner product of the two gradients."""
        return sum(float((g * other.gradient[name]).sum()) for name, g in self.gradient.items())

    def after(self, eta: float) -> WeightsIterate:
        """The iterate a step η on."""
        moved = {name: self.at[name] - eta * g for name, g in self.gradient.items()}
        return WeightsIterate({**self.at, **moved}, self._gap, self._gradient)

    def trial(self, eta: float) -> float:
        """The gap after a step η."""
        return self.after(eta).gap

    @cached_property
    def safe_step(self) -> float:
        """See ``steps.armijo_from_polyak``."""
        return armijo_from_polyak(self)

    @cached_property
    def measurements(self) -> dict[str, float]:
        """What the trace records: the gap and ‖∇‖²."""
        return {"gap": self.gap, "gradient_squared": self.gradient_squared}


class AlignedEngine:
    """What moves to ``iterate.after(eta)``, and remembers how the gradients of the last two iterates are aligned.

    Attributes:
        iterate: where it is; has ``after(eta)``, an iterate, and ``along(other)``, the inner product of two gradients.
        alignment: of the gradients of the iterate left and the one reached.
    """

    failure = None
    iterate: Any
    alignment: float = 0.0

    def move(self, eta: float) -> None:
        """One step."""
        before = self.iterate
        self.iterate = before.after(eta)
        self.alignment = self.iterate.along(before)

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint needs beyond the weights."""
        return {"alignment": torch.tensor(self.alignment, dtype=torch.float64)}


class WeightsEngine(AlignedEngine):
    """Gradient descent on weights by name, as tensors; its name is "weights".

    Args:
        weights: where it starts, as copies of its own.
        gap: loss minus optimal value at weights; in a form that keeps its relative accuracy near the optimum.
        gradient: of the loss, in the weights that are trained; others stay as they are.

    Example:
        >>> start = {"w": torch.ones(2, dtype=torch.float64)}
        >>> gap = lambda at: float(at["w"] @ at["w"]) / 2
        >>> engine = sf.extending.WeightsEngine(start, gap, lambda at: {"w": at["w"]})
        >>> engine.move(0.5)
        >>> engine.weights()["w"].tolist(), engine.iterate.gap
        ([0.5, 0.5], 0.25)
    """

    name = "weights"
    iterate: WeightsIterate

    def __init__(
        self, weights: Weights, gap: Callable[[Weights], float], gradient: Callable[[Weights], Weights]
    ) -> None:
        self.iterate = WeightsIterate(weights, gap, gradient)
        self._gap, self._gradient = gap, gradient

    def weights(self) -> Weights:
        """The current ones."""
        return self.iterate.at

    def restore(self, weights: Weights, state: Weights) -> None:
        """Continue from a checkpoint."""
        self.iterate = WeightsIterate(weights, self._gap, self._gradient)
        self.alignment = float(state["alignment"])
