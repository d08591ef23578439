"""Gradient descent on the reduced network, with prefix and suffix products: O(L) small products an iteration."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from .._core.engine import AlignedEngine
from .._core.losses import SquaredLoss
from .._core.small_losses import Array
from .._core.steps import armijo_from_polyak

QUIET = np.errstate(over="ignore", invalid="ignore")
"""A step that is too large overflows: the gap then is not finite, which is what callers ask for; NumPy need not warn too."""


class Iterate:
    """One iterate: residual, gap and gradient, computed on first use.

    Args:
        inputs: X̃ (d, r) of the reduced data, or a batch of samples as columns.
        targets: Ỹ (k, r), what the network should map them to.
        A (q, d), B (k, q), W (L, q, q): the reduced network.
    """

    def __init__(self, inputs: Array, targets: Array, A: Array, B: Array, W: Array) -> None:
        self.inputs, self.targets, self.A, self.B, self.W = inputs, targets, A, B, W

    @cached_property
    def layers(self) -> Array:
        """P_l = I + W_l (L, q, q)."""
        return self.W + np.eye(self.W.shape[1])

    @cached_property
    @QUIET
    def forward(self) -> Array:
        """P_{l-1} … P_1 A X̃ for l = 1 … L+1 (L+1, q, r)."""
        first = self.A @ self.inputs
        result = np.empty((len(self.W) + 1, *first.shape))
        result[0] = first
        for layer, P in enumerate(self.layers):
            np.dot(P, result[layer], out=result[layer + 1])
        return result

    @cached_property
    @QUIET
    def residual(self) -> Array:
        """R = U X̃ - Ỹ (k, r)."""
        return self.B @ self.forward[-1] - self.targets

    @cached_property
    def gap(self) -> float:
        """½‖R‖_F²."""
        return 0.5 * float(np.vdot(self.residual, self.residual))

    @cached_property
    @QUIET
    def gradient(self) -> Array:
        """B_lᵀ R A_lᵀ for every layer (L, q, q)."""
        backward = np.empty((len(self.W), *self.B.shape))
        backward[-1] = self.B
        for layer in range(len(self.W) - 1, 0, -1):
            np.dot(backward[layer], self.layers[layer], out=backward[layer - 1])
        depth, q, r = self.forward[:-1].shape
        seen = (self.forward[:-1].reshape(-1, r) @ self.residual.T).reshape(
            depth, q, -1
        )  # A_l Rᵀ, all layers in one product
        return backward.transpose(0, 2, 1) @ seen.transpose(0, 2, 1)

    @cached_property
    def gradient_squared(self) -> float:
        """‖∇‖_F²."""
        return self.along(self)

    def along(self, other: Iterate) -> float:
        """The inner product of the two gradients."""
        return float(np.vdot(other.gradient, self.gradient))

    @QUIET
    def after(self, eta: float) -> Iterate:
        """The iterate a step η on."""
        return Iterate(self.inputs, self.targets, self.A, self.B, self.W - eta * self.gradient)

    @QUIET
    def trial(self, eta: float) -> float:
        """The gap after a step η."""
        value = self.A @ self.inputs
        for layer in self.layers - eta * self.gradient:
            value = layer @ value
        E = self.B @ value - self.targets
        return 0.5 * float(np.vdot(E, E))

    @cached_property
    def safe_step(self) -> float:
        """See ``_core.steps.armijo_from_polyak``."""
        return armijo_from_polyak(self)

    @cached_property
    def measurements(self) -> dict[str, float]:
        """What the trace records of this iterate."""
        return {"gap": self.gap, "gradient_squared": self.gradient_squared}


class SubspaceEngine(AlignedEngine):
    """Gradient descent on the reduced weights Ŵ (L, q, q)."""

    name = "subspace"
    iterate: Iterate

    def __init__(self, loss: SquaredLoss, A: Tensor, B: Tensor, W: Tensor) -> None:
        self._device = W.device
        self._A, self._B = (np.array(tensor.cpu().numpy()) for tensor in (A, B))
        small = loss.small
        self._inputs, self._targets = np.ascontiguousarray(small.design.T), (small.design @ small.optimum).T
        self.iterate = self._at(np.array(W.cpu().numpy()))

    def _at(self, W: Array) -> Iterate:
        return Iterate(self._inputs, self._targets, self._A, self._B, W)

    def weights(self) -> dict[str, Tensor]:
        """A (q, r), B (k, q), W (L, q, q)."""
        arrays = {"A": self._A, "B": self._B, "W": self.iterate.W}
        return {name: torch.from_numpy(array.copy()).to(self._device) for name, array in arrays.items()}

    def restore(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint."""
        W = np.array(weights["W"].cpu().numpy())
        self.iterate = self._at(W)
        self.alignment = float(state["alignment"])
