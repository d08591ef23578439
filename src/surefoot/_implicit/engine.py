"""Gradient descent on the weights of an implicit ReLU network, with what its theorems ask of every step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from .._core.samples import SampleLoss
from .._core.status import RunStatus
from .._core.steps import armijo_from_polyak
from .adjoint import Adjoint, absolute_norm_upper, active_units, adjoint
from .equilibrium import EquilibriumStatus, solve
from .norms import LOOSE, NormWatch, accumulated, frobenius_upper, product_row_errors, unit_roundoff
from .solvers import SolverMemory

TOLERANCE = 1e-13
"""Of the equilibrium, relative to its norm: the output step must be accurate to a small part of σ_min(Z)² (Theorems 1 and 2)."""
LOWER = 1.0 - 1e-12
UPPER = 1.0 + 1e-12
"""Beyond the rounding of a norm, in either direction."""


@dataclass(frozen=True)
class Weights:
    """W (d, m), A (m, m), b (m, p)."""

    W: Tensor
    A: Tensor
    b: Tensor

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Weights:
        """From a mapping by name; copies."""
        return cls(*(tensors[name].detach().clone() for name in ("W", "A", "b")))

    def after(self, eta: float, gradient: Weights) -> Weights:
        """θ - η g."""
        return Weights(self.W - eta * gradient.W, self.A - eta * gradient.A, self.b - eta * gradient.b)

    @property
    def squared(self) -> float:
        """‖·‖_F² of all weights together."""
        return sum(float(torch.linalg.vector_norm(x)) ** 2 for x in (self.W, self.A, self.b))


class Iterate:
    """The network at one set of weights: equilibrium with its error, residual, gradient.

    Args:
        loss: X (N, d), Y (N, p).
        weights: float64.
        gamma: γ.
        norm_A: upper bound of ‖A‖.
        memory: where to start the equilibrium; left as it is, see ``memory`` for what the next iterate starts from.
        adjoint_start: where to start the adjoint (N, m).
    """

    def __init__(
        self,
        loss: SampleLoss,
        weights: Weights,
        gamma: float,
        norm_A: float,
        memory: SolverMemory,
        adjoint_start: Tensor | None = None,
    ) -> None:
        self.loss, self.at, self.gamma, self.norm_A = loss, weights, gamma, norm_A
        self.started_from, self.adjoint_start = memory, adjoint_start
        self.memory = replace(memory)
        self.contraction = gamma * norm_A * UPPER
        X, W = loss.X, weights.W
        self.XW = X @ W
        self.Phi = self.XW.relu()
        self.equilibrium = solve(
            weights.A,
            self.Phi,
            gamma,
            norm_A=norm_A,
            tolerance=TOLERANCE,
            phi_error=product_row_errors(X, W),
            memory=self.memory,
        )
        self.Z = self.equilibrium.Z
        self.residual = self.Z @ weights.b - loss.Y
        self.gap = 0.5 * float(torch.linalg.vector_norm(self.residual)) ** 2

    @cached_property
    def adjoint(self) -> Adjoint:
        """V (N, m)."""
        active = active_units(self.at.A, self.Phi, self.Z, self.gamma)
        return adjoint(
            self.at.A, active, self.residual, self.at.b, self.gamma, norm_A=self.norm_A, start=self.adjoint_start
        )

    @cached_property
    def gradient(self) -> Weights:
        """Of W, A and b, relu'(0) = 0."""
        V = self.adjoint.V
        return Weights(self.loss.X.T @ (V * (self.XW > 0)), self.gamma * (self.Z.T @ V), self.Z.T @ self.residual)

    @cached_property
    def gradient_squared(self) -> float:
        """‖∇‖_F²."""
        return self.gradient.squared

    @cached_property
    def residual_error(self) -> float:
        """Bound on ‖r̂ - (Zb - Y)‖_F for the exact equilibrium Z: ω_r + ε‖b‖ (Lemma 5)."""
        b = self.at.b
        products = frobenius_upper(self.Z.abs() @ b.abs())
        rounding = accumulated(len(b) + 2, unit_roundoff(b.dtype)) * products
        rounding += 2.0 * unit_roundoff(b.dtype) * frobenius_upper(self.residual)
        return (rounding + self.equilibrium.error * frobenius_upper(b)) * UPPER

    def output_defect(self, eta: float, after: Tensor) -> float:
        """Bound on ‖h‖_F, where b' = b - η(Zᵀr + h) for the exact Z and r (Lemma 5), rounding of the step included."""
        u, gradient, error = unit_roundoff(after.dtype), self.gradient.b, self.equilibrium.error
        r = self.residual
        step = (1.0 + 2.0 * u) * u * (frobenius_upper(after) + eta * frobenius_upper(gradient)) / eta
        product = accumulated(len(r) + 1, u) * frobenius_upper(self.Z.abs().T @ r.abs())
        size = absolute_norm_upper(self.Z) + error
        return (step + product + error * frobenius_upper(r) + size * self.residual_error) * UPPER

    def norm_after(self, eta: float) -> float:
        """Upper bound of ‖A‖ a step η on: ‖A‖ + η‖∂A‖_F."""
        return (self.norm_A + eta * frobenius_upper(self.gradient.A)) * UPPER

    def trial(self, eta: float) -> float:
        """The gap after a step η; infinite where that may not be well posed."""
        norm = self.norm_after(eta)
        if not self.gamma * norm < 1.0:
            return math.inf
        weights = self.at.after(eta, self.gradient)
        return Iterate(self.loss, weights, self.gamma, norm, self.memory).gap

    @cached_property
    def safe_step(self) -> float:
        """See ``_core.steps.armijo_from_polyak``."""
        return armijo_from_polyak(self)

    @cached_property
    def measurements(self) -> dict[str, float]:
        """What the trace records of this iterate."""
        residual = float(torch.linalg.vector_norm(self.residual))
        return {
            "gap": self.gap,
            "gradient_squared": self.gradient_squared,
            "contraction": self.contraction,
            "equilibrium_error": self.equilibrium.error,
            "output_norm": float(torch.linalg.matrix_norm(self.at.b, 2)),
            "residual_lower": max(0.0, residual * LOWER - self.residual_error),
        }


class WeightEngine:
    """Gradient descent on W, A and b (float64, any device)."""

    name = "weights"

    def __init__(self, loss: SampleLoss, weights: Weights, gamma: float) -> None:
        self._loss, self._gamma = loss, gamma
        self._watch = NormWatch(weights.A)
        self.iterate = self._at(weights, self._watch.bound(weights.A), SolverMemory())
        self.alignment = 0.0
        self._first = self.iterate.Z
        self._step: dict[str, float] = {}
        self._record()

    def _at(self, weights: Weights, norm_A: float, memory: SolverMemory, start: Tensor | None = None) -> Iterate:
        return Iterate(self._loss, weights, self._gamma, norm_A, memory, start)

    def _record(self) -> None:
        """Complete the measurements with those that compare with the first iterate, and of the step that led here."""
        moved = float(torch.linalg.vector_norm(self.iterate.Z - self._first))
        self.iterate.measurements.update({"feature_movement": moved, **self._step})

    @property
    def failure(self) -> RunStatus | None:
        """Whether the equilibrium may not exist any more, or every unit is dead."""
        found = self.iterate
        if not found.contraction < 1.0 or found.equilibrium.status is EquilibriumStatus.NOT_CONTRACTING:
            return RunStatus.ILL_POSED
        if found.gap > 0.0 and not bool(found.Z.any()):
            return RunStatus.COLLAPSED
        return None

    def move(self, eta: float) -> None:
        """One step; ``alignment`` becomes the inner product of the gradients of the iterate left and the one reached."""
        before, gradient = self.iterate, self.iterate.gradient
        weights = before.at.after(eta, gradient)
        # a nearest number to a - t is no farther from a than 2|t|
        self._step = {
            "output_defect": before.output_defect(eta, weights.b),
            "hidden_A": 2.0 * frobenius_upper(gradient.A) * UPPER,
            "hidden_W": 2.0 * frobenius_upper(gradient.W) * UPPER,
        }
        last = before.Z
        norm = self._watch.bound(weights.A, 1.0 / self._gamma, LOOSE)
        self.iterate = self._at(weights, norm, before.memory, before.adjoint.V)
        self._step["feature_step"] = float(torch.linalg.vector_norm(self.iterate.Z - last))
        if self.failure is None:
            after = self.iterate.gradient
            pairs = ((gradient.W, after.W), (gradient.A, after.A), (gradient.b, after.b))
            self.alignment = sum(float((x * y).sum()) for x, y in pairs)
        self._record()

    def weights(self) -> dict[str, Tensor]:
        """W, A, b and γ."""
        at = self.iterate.at
        return {
            "W": at.W,
            "A": at.A,
            "b": at.b,
            "gamma": torch.tensor(self._gamma, dtype=torch.float64).to(at.A.device),
        }

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint needs beyond the weights: all that the iterate was computed from."""
        found = self.iterate
        numbers = {"alignment": self.alignment, "norm_A": found.norm_A}
        numbers |= {f"step.{name}": value for name, value in self._step.items()}
        tensors = {
            "Z": found.started_from.Z,
            "basis": found.started_from.basis,
            "adjoint": found.adjoint_start,
            **{f"watch.{name}": value for name, value in self._watch.state().items()},
        }
        state = {name: torch.tensor(value, dtype=torch.float64) for name, value in numbers.items()}
        return state | {name: tensor for name, tensor in tensors.items() if tensor is not None}

    def restore(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint."""
        self._watch.restore({k.removeprefix("watch."): v for k, v in state.items() if k.startswith("watch.")})
        memory = SolverMemory(state.get("Z"), state.get("basis"))
        self.iterate = self._at(Weights.of(weights), float(state["norm_A"]), memory, state.get("adjoint"))
        self.alignment = float(state["alignment"])
        self._step = {k.removeprefix("step."): float(v) for k, v in state.items() if k.startswith("step.")}
        self._record()
