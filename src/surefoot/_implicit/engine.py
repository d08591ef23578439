"""Gradient descent on the weights of an implicit ReLU network, with what its theorems ask of every step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Generic, Self, TypeVar

import torch
from torch import Tensor

from .._core.near_a_fit.pseudo_inverse import PseudoInverse, parted
from .._core.samples import SampleLoss
from .._core.status import RunStatus
from .._core.steps import armijo_from_polyak
from .jacobian import Jacobian
from .norms import LOOSE, NormWatch, accumulated, frobenius_upper, spectral_norm_upper, unit_roundoff
from .share import Share, Summary, Weights
from .solvers import SolverMemory

LOWER = 1.0 - 1e-12
UPPER = 1.0 + 1e-12
"""Beyond the rounding of a norm, in either direction."""


class NetworkIterate(ABC):
    """The network at one set of weights, from sums over its rows.

    Attributes:
        at: the weights.
        gamma: γ.
        norm_A: upper bound of ‖A‖.
        residual_norm: ‖Zb - Y‖_F as computed.
    """

    at: Weights
    gamma: float
    norm_A: float
    residual_norm: float
    start: Weights
    """From where distances are measured; engines set it."""
    turned: Weights | None = None
    """What the next step is taken against, in place of the gradient."""

    @property
    @abstractmethod
    def count(self) -> int:
        """N."""

    @cached_property
    @abstractmethod
    def summary(self) -> Summary:
        """Of all rows."""

    @cached_property
    @abstractmethod
    def gradient(self) -> Weights:
        """Of W, A and b, relu'(0) = 0."""

    @property
    @abstractmethod
    def output_terms(self) -> Tensor:
        """|Z|ᵀ|r| (m, p): the sizes of the terms of ∂b."""

    @abstractmethod
    def residual_norm_at(self, weights: Weights, norm_A: float) -> float:
        """‖r‖_F at weights that are only tried."""

    @abstractmethod
    def after(self, weights: Weights, norm_A: float) -> Self:
        """The next iterate, whose equations are started from the solutions of this one."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """All that this iterate was computed from, beyond the weights."""

    @abstractmethod
    def restored(self, weights: Weights, norm_A: float, state: Mapping[str, Tensor]) -> Self:
        """The iterate that had this ``state``; movements are measured from the same first iterate as here."""

    @property
    def gap(self) -> float:
        """½‖r‖²."""
        return 0.5 * self.residual_norm**2

    @property
    def contraction(self) -> float:
        """Upper bound of γ‖A‖."""
        return self.gamma * self.norm_A * UPPER

    @cached_property
    def gradient_squared(self) -> float:
        """‖∇‖_F²."""
        return self.gradient.squared

    @property
    def direction(self) -> Weights:
        """What steps are taken against: the gradient, unless ``turned``."""
        return self.gradient if self.turned is None else self.turned

    def distance_after(self, eta: float) -> float:
        """D of the weights after a step η: to those of the start."""
        return self.at.after(eta, self.direction).distance(self.start)

    @cached_property
    def residual_error(self) -> float:
        """Bound on ‖r̂ - (Zb - Y)‖_F for the exact equilibrium Z: ω_r + ε‖b‖ (Lemma 5)."""
        b, rows = self.at.b, self.summary
        rounding = accumulated(len(b) + 2, unit_roundoff(b.dtype)) * rows.output_upper
        rounding += 2.0 * unit_roundoff(b.dtype) * rows.residual_upper
        return (rounding + rows.error * frobenius_upper(b)) * UPPER

    def output_defect(self, eta: float, after: Tensor) -> float:
        """Bound on ‖h‖_F, where b' = b - η(Zᵀr + h) for the exact Z and r (Lemma 5), rounding of the step included."""
        u, gradient, rows = unit_roundoff(after.dtype), self.gradient.b, self.summary
        step = (1.0 + 2.0 * u) * u * (frobenius_upper(after) + eta * frobenius_upper(gradient)) / eta
        # of a sum of N products in any order, so in shares too
        product = accumulated(self.count + 1, u) * frobenius_upper(self.output_terms)
        size = rows.features_upper + rows.error
        return (step + product + rows.error * rows.residual_upper + size * self.residual_error) * UPPER

    def measured_step(self, eta: float, after: Self) -> dict[str, float]:
        """What the audit asks of a step η to an iterate that was reached with gradients computed elsewhere.

        The output step then differs from the one that ``output_defect`` bounds, and the hidden weights moved as far as they did.
        """
        old, new = self.at, after.at
        other = frobenius_upper(old.b - new.b - eta * self.gradient.b) / eta
        return {
            "output_defect": (self.output_defect(eta, new.b) + other) * UPPER,
            "hidden_A": 2.0 * frobenius_upper(old.A - new.A) / eta * UPPER,
            "hidden_W": 2.0 * frobenius_upper(old.W - new.W) / eta * UPPER,
            "feature_step": after.summary.step,
        }

    def norm_after(self, eta: float) -> float:
        """Upper bound of ‖A‖ a step η on: ‖A‖ + η‖∂A‖_F."""
        return (self.norm_A + eta * frobenius_upper(self.direction.A)) * UPPER

    def trial(self, eta: float) -> float:
        """The gap after a step η; infinite where that may not be well posed."""
        norm = self.norm_after(eta)
        if not self.gamma * norm < 1.0:
            return math.inf
        return 0.5 * self.residual_norm_at(self.at.after(eta, self.direction), norm) ** 2

    @cached_property
    def safe_step(self) -> float:
        """See ``_core.steps.armijo_from_polyak``."""
        return armijo_from_polyak(self)

    @cached_property
    def measurements(self) -> dict[str, float]:
        """What the trace records of this iterate."""
        return {
            "gap": self.gap,
            "gradient_squared": self.gradient_squared,
            "contraction": self.contraction,
            "equilibrium_error": self.summary.error,
            "output_norm": float(torch.linalg.matrix_norm(self.at.b, 2)),
            "residual_lower": max(0.0, self.residual_norm * LOWER - self.residual_error),
        }


class Iterate(Share, NetworkIterate):
    """An iterate whose rows are all in one share."""

    @property
    def count(self) -> int:
        return len(self.residual)

    @cached_property
    def inverse(self) -> PseudoInverse:
        """J⁺ here."""
        return Jacobian(self).inverse()

    def newton_step(self, inverse: PseudoInverse) -> Weights:
        """J⁺r of the residual here with a J⁺, here or elsewhere: the least step to a fit of the linear model."""
        return Weights(**parted(inverse(self.residual.reshape(-1)), vars(self.at)))


AnyIterate = TypeVar("AnyIterate", bound=NetworkIterate)


class DescentEngine(Generic[AnyIterate]):
    """Gradient descent on W, A and b.

    Args:
        A: of the first iterate.
        gamma: γ.
        begin: the first iterate, given an upper bound of ‖A‖.
        resolution: the gap that rounding alone can cause, evaluated where it is asked for.
    """

    name = "weights"
    iterate: AnyIterate

    def __init__(
        self,
        A: Tensor,
        gamma: float,
        begin: Callable[[float], AnyIterate],
        resolution: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._gamma, self._resolution = gamma, resolution
        self._watch = NormWatch(A)
        self.iterate = begin(self._watch.bound(A))
        self.start, self._anchored = self.iterate.at, False
        self.alignment = 0.0
        self._step: dict[str, float] = {}
        self._record()

    def _record(self) -> None:
        """Complete the measurements with those that compare with the first iterate, and of the step that led here."""
        self.iterate.start = self.start
        moved = {"feature_movement": self.iterate.summary.movement, "distance": self.iterate.at.distance(self.start)}
        self.iterate.measurements.update({**moved, **self._step})

    @cached_property
    def resolution(self) -> float:
        """The gap that rounding alone can cause."""
        return self._resolution()

    def anchor(self) -> None:
        """Measure distances from here on."""
        self.start, self._anchored = self.iterate.at, True
        self._record()

    def turn(self, direction: Weights | None) -> None:
        """Take the next step against a direction, ``None`` for the gradient; those after it are along gradients again."""
        self.iterate.turned = direction

    @property
    def failure(self) -> RunStatus | None:
        """Whether the equilibrium may not exist any more, or every unit is dead."""
        iterate = self.iterate
        if not (iterate.contraction < 1.0 and iterate.summary.contracting):
            return RunStatus.ILL_POSED
        if iterate.gap > 0.0 and not iterate.summary.alive:
            return RunStatus.COLLAPSED
        return None

    def move(self, eta: float) -> None:
        """One step; ``alignment`` becomes the inner product of the gradients of the iterate left and the one reached."""
        before, gradient = self.iterate, self.iterate.gradient
        weights = before.at.after(eta, before.direction)
        self._step = {}
        if before.turned is None:
            # a nearest number to a - t is no farther from a than 2|t|
            self._step = {
                "output_defect": before.output_defect(eta, weights.b),
                "hidden_A": 2.0 * frobenius_upper(gradient.A) * UPPER,
                "hidden_W": 2.0 * frobenius_upper(gradient.W) * UPPER,
            }
        self.iterate = before.after(weights, self._watch.bound(weights.A, 1.0 / self._gamma, LOOSE))
        self._step["feature_step"] = self.iterate.summary.step
        if self.failure is None:
            after = self.iterate.gradient
            pairs = ((gradient.W, after.W), (gradient.A, after.A), (gradient.b, after.b))
            self.alignment = sum(float((x * y).sum()) for x, y in pairs)
        self._record()

    def weights(self) -> dict[str, Tensor]:
        """W, A, b and γ."""
        weights = self.iterate.at
        return {
            "W": weights.W,
            "A": weights.A,
            "b": weights.b,
            "gamma": torch.tensor(self._gamma, dtype=torch.float64).to(weights.A.device),
        }

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint needs beyond the weights: all that the iterate was computed from."""
        numbers = {"alignment": self.alignment, "norm_A": self.iterate.norm_A}
        numbers |= {f"step.{name}": value for name, value in self._step.items()}
        state = {name: torch.tensor(value, dtype=torch.float64) for name, value in numbers.items()}
        if self._anchored:
            state |= {f"start.{name}": tensor for name, tensor in vars(self.start).items()}
        return state | self.iterate.state() | {f"watch.{name}": value for name, value in self._watch.state().items()}

    def restore(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint."""
        self._watch.restore({k.removeprefix("watch."): v for k, v in state.items() if k.startswith("watch.")})
        self.iterate = self.iterate.restored(Weights.of(weights), float(state["norm_A"]), state)
        self.alignment = float(state["alignment"])
        self._step = {k.removeprefix("step."): float(v) for k, v in state.items() if k.startswith("step.")}
        start = {k.removeprefix("start."): v for k, v in state.items() if k.startswith("start.")}
        if start:
            self.start, self._anchored = Weights.of(start), True
        self._record()


class WeightEngine(DescentEngine[Iterate]):
    """With all rows in this process, on any device.

    Args:
        loss: X (N, d), Y (N, p).
        weights: float64.
        gamma: γ.
        resolution: see ``DescentEngine``.
    """

    def __init__(
        self, loss: SampleLoss, weights: Weights, gamma: float, resolution: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._loss = loss
        super().__init__(weights.A, gamma, lambda norm_A: self._at(weights, norm_A), resolution)

    def _at(self, weights: Weights, norm_A: float) -> Iterate:
        return Iterate(self._loss, weights, self._gamma, norm_A, memory=SolverMemory())

    def require_fit(self, rule: str) -> None:
        """``ValueError`` where there are fewer weights than outputs on all rows."""
        n, p = self._loss.Y.numel(), sum(weight.numel() for weight in vars(self.start).values())
        if n > p:
            raise ValueError(
                f"steps={rule!r} needs at most as many outputs (rows times outputs of a row) as trained numbers, here {n} "
                f"and {p}; use a larger width"
            )

    def inverse_at_start(self) -> PseudoInverse:
        """J⁺ at the weights from which distances are measured."""
        return self._at(self.start, spectral_norm_upper(self.start.A)).inverse
