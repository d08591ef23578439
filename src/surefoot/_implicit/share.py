"""Rows of the data at one set of weights: all that is computed row by row, and its sums over these rows.

``engine.Iterate`` has all rows in one share, ``ranks.SharedIterate`` one share on each rank.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from .._core.samples import SampleLoss
from .adjoint import Adjoint, absolute_norm_upper, active_units, adjoint
from .equilibrium import EquilibriumStatus, solve
from .norms import frobenius_upper, product_row_errors, stacked_upper
from .solvers import SolverMemory

TOLERANCE = 1e-13
"""Of the equilibrium, relative to its norm: the output step must be accurate to a small part of σ_min(Z)² (Theorems 1 and 2)."""


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

    def distance(self, other: Weights) -> float:
        """‖·‖_F of the difference of all weights together."""
        return math.sqrt(self.after(1.0, other).squared)

    @property
    def squared(self) -> float:
        """‖·‖_F² of all weights together."""
        return sum(float(torch.linalg.vector_norm(x)) ** 2 for x in (self.W, self.A, self.b))


@dataclass(frozen=True)
class Rows:
    """X (N, d) and Y (N, p); unlike the rows of a loss, there may be none."""

    X: Tensor
    Y: Tensor


@dataclass(frozen=True)
class Summary:
    """Numbers about rows, from which those about all rows follow.

    Attributes:
        residual_upper: upper bound of ‖r̂‖_F.
        output_upper: upper bound of the computed ‖|Z||b|‖_F.
        error: bound of the error of the equilibrium, ‖·‖_F.
        features_upper: upper bound of ‖Z‖.
        movement: ‖Z - Z_0‖_F, Z_0 that of the first iterate.
        step: ‖Z - Z'‖_F, Z' that of the iterate before; 0 where there was none.
        contracting: whether the equilibrium certainly exists.
        alive: whether a unit is active.
    """

    residual_upper: float
    output_upper: float
    error: float
    features_upper: float
    movement: float
    step: float
    contracting: bool
    alive: bool

    @classmethod
    def combined(cls, parts: Sequence[Summary]) -> Summary:
        """Of all rows, from those of shares that have each row once: squares of norms add up, those of spectral norms at most."""
        return cls(
            residual_upper=stacked_upper([part.residual_upper for part in parts]),
            output_upper=stacked_upper([part.output_upper for part in parts]),
            error=stacked_upper([part.error for part in parts]),
            features_upper=stacked_upper([part.features_upper for part in parts]),
            movement=math.hypot(*(part.movement for part in parts)),
            step=math.hypot(*(part.step for part in parts)),
            contracting=all(part.contracting for part in parts),
            alive=any(part.alive for part in parts),
        )


class Share:
    """Rows at one set of weights: equilibrium with its error, residual, adjoint, and their parts of the gradient.

    The tolerances of both equations are relative to norms of these rows, so that the squares of what is left over all
    shares add up to no more than all rows in one share would be allowed.

    Args:
        rows: X (N, d), Y (N, p), float64.
        weights: float64.
        gamma: γ.
        norm_A: upper bound of ‖A‖.
        memory: where to start the equilibrium; left as it is, see ``memory`` for what the next iterate starts from.
        adjoint_start: where to start the adjoint (N, m).
        first: Z (N, m) of the first iterate; this one by default.
    """

    def __init__(
        self,
        rows: Rows | SampleLoss,
        weights: Weights,
        gamma: float,
        norm_A: float,
        memory: SolverMemory,
        adjoint_start: Tensor | None = None,
        first: Tensor | None = None,
    ) -> None:
        self.rows, self.at, self.gamma, self.norm_A = rows, weights, gamma, norm_A
        self.started_from, self.adjoint_start = memory, adjoint_start
        self.memory = replace(memory)
        X, W = rows.X, weights.W
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
        self.first = self.Z if first is None else first
        self.residual = self.Z @ weights.b - rows.Y
        self.residual_norm = float(torch.linalg.vector_norm(self.residual))

    def after(self, weights: Weights, norm_A: float) -> Self:
        """The same rows at the next iterate, which starts from this one."""
        return type(self)(self.rows, weights, self.gamma, norm_A, self.memory, self.adjoint.V, self.first)

    def residual_norm_at(self, weights: Weights, norm_A: float) -> float:
        """‖r‖_F of the same rows at weights that are only tried."""
        return Share(self.rows, weights, self.gamma, norm_A, self.memory).residual_norm

    def restored(self, weights: Weights, norm_A: float, state: Mapping[str, Tensor]) -> Self:
        """The same rows at the iterate that had this ``state``."""
        memory = SolverMemory(state.get("Z"), state.get("basis"))
        return type(self)(self.rows, weights, self.gamma, norm_A, memory, state.get("adjoint"), self.first)

    def state(self) -> dict[str, Tensor]:
        """All that this iterate was computed from, beyond the weights."""
        tensors = {"Z": self.started_from.Z, "basis": self.started_from.basis, "adjoint": self.adjoint_start}
        return {name: tensor for name, tensor in tensors.items() if tensor is not None}

    @cached_property
    def adjoint(self) -> Adjoint:
        """V (N, m)."""
        active = active_units(self.at.A, self.Phi, self.Z, self.gamma)
        return adjoint(
            self.at.A, active, self.residual, self.at.b, self.gamma, norm_A=self.norm_A, start=self.adjoint_start
        )

    @cached_property
    def gradient(self) -> Weights:
        """Of ½‖r‖² of these rows in W, A and b, relu'(0) = 0."""
        V = self.adjoint.V
        return Weights(self.rows.X.T @ (V * (self.XW > 0)), self.gamma * (self.Z.T @ V), self.Z.T @ self.residual)

    @property
    def output_terms(self) -> Tensor:
        """|Z|ᵀ|r| (m, p): the sizes of the terms of ∂b."""
        return self.Z.abs().T @ self.residual.abs()

    @cached_property
    def summary(self) -> Summary:
        """See ``Summary``."""
        last = self.started_from.Z
        return Summary(
            residual_upper=frobenius_upper(self.residual),
            output_upper=frobenius_upper(self.Z.abs() @ self.at.b.abs()),
            error=self.equilibrium.error,
            features_upper=absolute_norm_upper(self.Z),
            movement=float(torch.linalg.vector_norm(self.Z - self.first)),
            step=0.0 if last is None else float(torch.linalg.vector_norm(self.Z - last)),
            contracting=self.equilibrium.status is not EquilibriumStatus.NOT_CONTRACTING,
            alive=bool(self.Z.any()),
        )
