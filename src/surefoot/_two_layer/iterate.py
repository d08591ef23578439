"""Everything a step rule or an audit asks of one iterate, from W1W1ᵀ, W = W1W2ᵀ and W2W2ᵀ alone; computed on first use.

Symbols: g = ∇ℓ(W), G1 = gW2, G2 = gᵀW1, B = gW2W2ᵀ + W1W1ᵀg, C = gWᵀg; a step η moves W to W - ηB + η²C.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from surefoot_check.theorems import two_layer as tl

from .._core.losses import Loss, QuadraticLoss

GRAM_LIMIT = 1e-7
"""eigh of a Gram loses σ²_min below about eps · σ²_max; below this ratio the layers' singular values are used instead."""


def squared_extremes(layer: Tensor) -> tuple[float, float]:
    """σ²_min (0 if the layer has more rows than columns) and σ²_max, by singular values."""
    s = torch.linalg.svdvals(layer)
    return (float(s[-1]) ** 2 if layer.shape[0] <= layer.shape[1] else 0.0), float(s[0]) ** 2


class Quartic(NamedTuple):
    """L(η) - L = c1 η + c2 η² + c3 η³ + c4 η⁴ along the step, exactly (quadratic losses) or as an upper bound."""

    c1: float
    c2: float
    c3: float
    c4: float

    def at(self, eta: float) -> float:
        """The value at η."""
        return eta * (self.c1 + eta * (self.c2 + eta * (self.c3 + eta * self.c4)))


def _top(symmetric: Tensor) -> float:
    """Largest eigenvalue of a positive semidefinite matrix, 0 at least."""
    return max(float(torch.linalg.eigvalsh(symmetric)[-1]), 0.0)


class Iterate:
    """One iterate of gradient descent on a reduced loss.

    Args:
        loss: the reduced loss; its W is (n, m).
        P11, W, P22: W1W1ᵀ (n, n), W1W2ᵀ (n, m), W2W2ᵀ (m, m).
        width: h; σ²_min of a layer with more rows than columns is 0.
        weights: gives W1 and W2, for singular values where those of the Grams have lost their accuracy.
        exact: take them from the weights in any case.
    """

    def __init__(
        self,
        loss: Loss,
        P11: Tensor,
        W: Tensor,
        P22: Tensor,
        width: int,
        weights: Callable[[], tuple[Tensor, ...]],
        exact: bool = False,
    ) -> None:
        self.loss, self.P11, self.W, self.P22, self.width = loss, P11, W, P22, width
        self._weights, self._exact = weights, exact

    @classmethod
    def of(cls, loss: Loss, W1: Tensor, W2: Tensor) -> Iterate:
        """The iterate at explicit (reduced) weights W1 (n, h), W2 (m, h), with singular values by SVD."""
        return cls(loss, W1 @ W1.T, W1 @ W2.T, W2 @ W2.T, W1.shape[1], lambda: (W1, W2), exact=True)

    @cached_property
    def gap(self) -> float:
        """L."""
        return self.loss.gap(self.W)

    @cached_property
    def gradient(self) -> Tensor:
        """g (n, m)."""
        return self.loss.gradient(self.W)

    @cached_property
    def B(self) -> Tensor:
        return self.gradient @ self.P22 + self.P11 @ self.gradient

    @cached_property
    def C(self) -> Tensor:
        return self.gradient @ (self.W.T @ self.gradient)

    @cached_property
    def gradient_squared(self) -> float:
        """‖∇L‖² = ‖G1‖_F² + ‖G2‖_F² = ⟨g, B⟩."""
        return max(float((self.gradient * self.B).sum()), 0.0)

    @cached_property
    def drift_per_step(self) -> float:
        """‖G1‖² + ‖G2‖² in spectral norms; η² times it bounds the drift of the imbalance in one step."""
        g = self.gradient
        n, m = g.shape
        values, vectors = self._spectrum2
        if m <= n:
            root = vectors * values.clamp(min=0.0).sqrt()
            first = _top(root.T @ (g.T @ g) @ root)
            second = _top(g.T @ self.P11 @ g)
        else:
            first = _top(g @ self.P22 @ g.T)
            values, vectors = self._spectrum1
            root = vectors * values.clamp(min=0.0).sqrt()
            second = _top(root.T @ (g @ g.T) @ root)
        return first + second

    @cached_property
    def _spectrum1(self) -> tuple[Tensor, Tensor]:
        return torch.linalg.eigh(self.P11)

    @cached_property
    def _spectrum2(self) -> tuple[Tensor, Tensor]:
        return torch.linalg.eigh(self.P22)

    @cached_property
    def _extremes(self) -> tuple[float, float, float, float]:
        """σ²_min, σ²_max of W1 and of W2."""
        result: list[float] = []
        if not self._exact:
            for (values, _), P in ((self._spectrum1, self.P11), (self._spectrum2, self.P22)):
                low, high = max(float(values[0]), 0.0), max(float(values[-1]), 0.0)
                if len(P) > self.width:
                    low = 0.0
                elif low < GRAM_LIMIT * high:
                    break
                result += [low, high]
        if len(result) < 4:
            result = [x for layer in self._weights() for x in squared_extremes(layer)]
        return result[0], result[1], result[2], result[3]

    @property
    def sigma_min_squared(self) -> float:
        """s- = λ_min(W1W1ᵀ) + λ_min(W2W2ᵀ)."""
        return self._extremes[0] + self._extremes[2]

    @property
    def sigma_max_squared(self) -> float:
        """s+ = ‖W1‖² + ‖W2‖²."""
        return self._extremes[1] + self._extremes[3]

    @cached_property
    def gradient_norm(self) -> float:
        """‖g‖."""
        return self._norm(self.gradient)

    @cached_property
    def gradient_frobenius(self) -> float:
        """‖g‖_F."""
        return float(torch.linalg.vector_norm(self.gradient))

    @cached_property
    def map_norm(self) -> float:
        """‖W‖."""
        return self._norm(self.W)

    @staticmethod
    def _norm(A: Tensor) -> float:
        return _top(A.T @ A if A.shape[0] >= A.shape[1] else A @ A.T) ** 0.5

    @cached_property
    def sharp(self) -> tuple[float, float, float]:
        """Coefficients of K'(η), Theorem I."""
        k = tl.sharp_coefficients(
            self.loss.smoothness, self.sigma_max_squared, self.gradient_norm, self.gradient_frobenius, self.map_norm
        )
        return float(k[0]), float(k[1]), float(k[2])

    @cached_property
    def printed(self) -> tuple[float, float, float]:
        """Coefficients of the paper's local smoothness K_t(η)."""
        k = tl.printed_coefficients(self.loss.smoothness, self.sigma_max_squared, self.gap, self.map_norm)
        return float(k[0]), float(k[1]), float(k[2])

    @cached_property
    def curvature(self) -> float | None:
        """‖𝒳C‖_F / ‖𝒳(W-W*)‖_F of Theorem III; ``None`` for a loss that is not quadratic."""
        if not isinstance(self.loss, QuadraticLoss):
            return None
        size = (2.0 * self.gap) ** 0.5
        return float(torch.linalg.vector_norm(self.loss.image(self.C))) / size if size > 0.0 else 0.0

    def trial(self, eta: float) -> float:
        """The gap after a step η, exactly (no difference of losses)."""
        return self.loss.gap(self.W - eta * (self.B - eta * self.C))

    @cached_property
    def quartic(self) -> Quartic:
        """The loss along the step: exact for quadratic losses, the majoriser q of Theorem I otherwise."""
        if isinstance(self.loss, QuadraticLoss):
            E = self.loss.image(self.W - self.loss.optimum)
            XB, XC = self.loss.image(self.B), self.loss.image(self.C)
            return Quartic(
                -self.gradient_squared,
                0.5 * float((XB**2).sum()) + float((E * XC).sum()),
                -float((XB * XC).sum()),
                0.5 * float((XC**2).sum()),
            )
        K = self.loss.smoothness
        return Quartic(
            -self.gradient_squared,
            0.5 * K * float((self.B**2).sum()) + float((self.gradient * self.C).sum()),
            -K * float((self.B * self.C).sum()),
            0.5 * K * float((self.C**2).sum()),
        )

    def measurements(self) -> dict[str, float]:
        """What the trace records of this iterate, by the names an audit reads."""
        k = self.sharp
        values = {
            "gap": self.gap,
            "gradient_squared": self.gradient_squared,
            "drift_per_step": self.drift_per_step,
            "sigma_min_squared": self.sigma_min_squared,
            "sigma_max_squared": self.sigma_max_squared,
            "k0": k[0],
            "k1": k[1],
            "k2": k[2],
            "map_norm": self.map_norm,
        }
        if self.curvature is not None:
            values["curvature"] = self.curvature
        return values
