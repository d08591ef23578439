"""Gradient descent on the factors of a map of which only some entries are observed; nothing of the size of the map is formed.

With the notation of ``iterate``: g is 0 but at the observed entries, so that G1 = gW2 and G2 = gᵀW1 are sparse products. A step η
moves the entries of W to those of W - ηB + η²C, B = G1W2ᵀ + W1G2ᵀ and C = G1G2ᵀ: along it the loss is a quartic, exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import torch
from torch import Tensor
from torch.linalg import eigh, eigvalsh

from .._core.completion import MatrixCompletion
from .._core.engine import AlignedEngine
from .iterate import Measurable, Quartic, squared_extremes


class EntriesIterate(Measurable):
    """One iterate, at W1 (n, h) and W2 (m, h).

    ‖g‖_F stands for ‖g‖, whose computation would need g as a matrix: so ``sharp`` is an upper bound of the K'(η) that
    ``Iterate`` has, as Theorem I allows. ``curvature``, of no use without a unique minimiser, is not computed.
    """

    curvature = None

    def __init__(self, loss: MatrixCompletion, W1: Tensor, W2: Tensor) -> None:
        self.loss, self.W1, self.W2 = loss, W1, W2
        self.smoothness = loss.smoothness

    @cached_property
    def residual(self) -> Tensor:
        """W - W* at the observed entries."""
        return self.loss.entries(self.W1, self.W2) - self.loss.values

    @cached_property
    def gap(self) -> float:
        """L; infinite or NaN where float64 overflows."""
        return 0.5 * self.loss.size(self.residual)

    @cached_property
    def slopes(self) -> Tensor:
        """g at the observed entries."""
        return self.loss.slopes(self.residual)

    @cached_property
    def G1(self) -> Tensor:
        """(n, h)."""
        return self.loss.times(self.slopes, self.W2)

    @cached_property
    def G2(self) -> Tensor:
        """(m, h)."""
        return self.loss.transposed_times(self.slopes, self.W1)

    @cached_property
    def gradient_squared(self) -> float:
        """‖∇L‖²."""
        return self.along(self)

    def along(self, other: EntriesIterate) -> float:
        """The inner product of the two gradients."""
        return float((self.G1 * other.G1).sum() + (self.G2 * other.G2).sum())

    def after(self, eta: float) -> EntriesIterate:
        """The iterate a step η on."""
        return EntriesIterate(self.loss, self.W1 - eta * self.G1, self.W2 - eta * self.G2)

    @cached_property
    def _line(self) -> tuple[Tensor, Tensor]:
        """The observed entries of B and C."""
        first, second = torch.cat([self.G1, self.W1], 1), torch.cat([self.W2, self.G2], 1)
        return self.loss.entries(first, second), self.loss.entries(self.G1, self.G2)

    def trial(self, eta: float) -> float:
        """The gap after a step η, exactly (no difference of losses); infinite or NaN where float64 overflows."""
        B, C = self._line
        return 0.5 * self.loss.size(self.residual - eta * (B - eta * C))

    @cached_property
    def quartic(self) -> Quartic:
        """The loss along the step."""
        B, C = self._line
        weighted = self.loss.slopes(B)
        return Quartic(
            -self.gradient_squared,
            0.5 * float((weighted * B).sum()) + float((self.slopes * C).sum()),
            -float((weighted * C).sum()),
            0.5 * self.loss.size(C),
        )

    @cached_property
    def drift_per_step(self) -> float:
        """‖G1‖² + ‖G2‖²."""
        return _norm_squared(self.G1) + _norm_squared(self.G2)

    @cached_property
    def sigma_min_squared(self) -> float:
        """s-; a layer with more rows than columns adds 0."""
        return sum(squared_extremes(W)[0] for W in (self.W1, self.W2) if W.shape[0] <= W.shape[1])

    @cached_property
    def sigma_max_squared(self) -> float:
        """s+."""
        return _norm_squared(self.W1) + _norm_squared(self.W2)

    @cached_property
    def gradient_frobenius(self) -> float:
        """‖g‖_F."""
        return float(self.slopes.norm())

    @property
    def gradient_norm(self) -> float:
        """‖g‖_F, an upper bound of ‖g‖."""
        return self.gradient_frobenius

    @cached_property
    def map_norm(self) -> float:
        """‖W‖: that of W2 Rᵀ, RᵀR = W1ᵀW1."""
        W1 = self.W1
        if W1.shape[0] > W1.shape[1]:
            values, vectors = eigh(W1.T @ W1)
            W1 = (vectors * values.clamp(min=0.0).sqrt()).T
        return _norm_squared(self.W2 @ W1.T) ** 0.5


class EntriesEngine(AlignedEngine):
    """Gradient descent on W1 and W2 themselves."""

    name = "weights"
    iterate: EntriesIterate

    def __init__(self, loss: MatrixCompletion, W1: Tensor, W2: Tensor) -> None:
        self._loss = loss
        self.iterate = EntriesIterate(loss, W1.clone(), W2.clone())

    def weights(self) -> dict[str, Tensor]:
        """W1 (n, h), W2 (m, h)."""
        return {"W1": self.iterate.W1, "W2": self.iterate.W2}

    def restore(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint."""
        self.iterate = EntriesIterate(self._loss, weights["W1"], weights["W2"])
        self.alignment = float(state["alignment"])


def _norm_squared(A: Tensor) -> float:
    """‖A‖², from the smaller Gram matrix."""
    return max(float(eigvalsh(A.T @ A if A.shape[0] > A.shape[1] else A @ A.T)[-1]), 0.0)
