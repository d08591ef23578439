"""Everything a step rule or an audit asks of one iterate, from W1W1ᵀ, W = W1W2ᵀ and W2W2ᵀ alone; computed on first use.

Symbols: g = ∇ℓ(W), G1 = gW2, G2 = gᵀW1, B = gW2W2ᵀ + W1W1ᵀg, C = gWᵀg; a step η moves W to W - ηB + η²C.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor
from torch.linalg import svdvals

from surefoot_check.two_layer import constants as tl

from .._core.losses import LinearMapLoss
from .._core.small_losses import Array, SmallQuadratic
from . import planner

EPSILON = float(np.finfo(np.float64).eps)

GRAM_LIMIT = 1e-7
"""eigvalsh of a Gram loses σ²_min below about eps · σ²_max; below this ratio the layers' singular values are used instead."""

OVERFLOWING = np.errstate(over="ignore", invalid="ignore")
"""For what a step far too long may overflow: the caller sees an infinite or NaN gap instead of a warning."""


def squared_extremes(layer: Tensor) -> tuple[float, float]:
    """σ²_min (0 if the layer has more rows than columns) and σ²_max, by singular values."""
    s = svdvals(
        layer.T
    )  # LAPACK takes a wide row-major matrix as a tall one: up to ten times faster than svdvals(layer)
    return (float(s[-1]) ** 2 if layer.shape[0] <= layer.shape[1] else 0.0), float(s[0]) ** 2


def _stack(*matrices: Array) -> Array:
    """np.stack of square matrices, without its overhead."""
    result = np.empty((len(matrices), *matrices[0].shape))
    for i, matrix in enumerate(matrices):
        result[i] = matrix
    return result


class Quartic(NamedTuple):
    """L(η) - L = c1 η + c2 η² + c3 η³ + c4 η⁴ along the step, exactly (quadratic losses) or as an upper bound."""

    c1: float
    c2: float
    c3: float
    c4: float

    def at(self, eta: float) -> float:
        """The value at η."""
        return eta * (self.c1 + eta * (self.c2 + eta * (self.c3 + eta * self.c4)))


class _Spectra(NamedTuple):
    """Extreme eigenvalues of the small matrices of an iterate."""

    layer1: tuple[float, float]
    layer2: tuple[float, float]
    gradient: float
    map: float
    step1: float
    step2: float


class Measurable:
    """What theorems and step rules derive from the measurements of an iterate, however these are computed.

    Attributes:
        smoothness: K of the loss.
        gap: L.
        gradient_squared: ‖∇L‖² = ‖G1‖_F² + ‖G2‖_F².
        drift_per_step: ‖G1‖² + ‖G2‖² in spectral norms; η² times it bounds the drift of the imbalance in one step.
        sigma_min_squared, sigma_max_squared: s- = λ_min(W1W1ᵀ) + λ_min(W2W2ᵀ) and s+ = ‖W1‖² + ‖W2‖².
        gradient_norm, gradient_frobenius: ‖g‖, or a bound of it, and ‖g‖_F.
        map_norm: ‖W‖.
        curvature: ‖𝒳C‖_F / ‖𝒳(W-W*)‖_F of Theorem III, where it is recorded.
    """

    smoothness: Any
    gap: Any
    gradient_squared: Any
    drift_per_step: Any
    sigma_min_squared: Any
    sigma_max_squared: Any
    gradient_norm: Any
    gradient_frobenius: Any
    map_norm: Any
    curvature: Any

    @property
    def stationary(self) -> bool:
        """Whether ‖∇L‖² = ⟨g, B⟩ is the rounding of its terms, as at a critical point that is not a minimum (g ≠ 0)."""
        g = self.gradient_frobenius
        return self.gradient_squared <= EPSILON * self.sigma_max_squared * g * g

    @cached_property
    def sharp(self) -> tuple[float, float, float]:
        """Coefficients of K'(η), Theorem I."""
        k = tl.sharp_coefficients(
            self.smoothness, self.sigma_max_squared, self.gradient_norm, self.gradient_frobenius, self.map_norm
        )
        return float(k[0]), float(k[1]), float(k[2])

    @property
    def safe_step(self) -> float:
        """1/K': the root of η K'(η) = 1, below which the gap falls by η‖∇L‖²/2 at least."""
        return planner.cubic_root(*self.sharp)

    @cached_property
    def printed(self) -> tuple[float, float, float]:
        """Coefficients of the paper's local smoothness K_t(η)."""
        k = planner.printed_coefficients(self.smoothness, self.sigma_max_squared, self.gap, self.map_norm)
        return float(k[0]), float(k[1]), float(k[2])

    @cached_property
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
        return values if self.curvature is None else {**values, "curvature": self.curvature}


class Iterate(Measurable):
    """One iterate of gradient descent on a reduced loss, as float64 arrays.

    Args:
        loss: the reduced loss; its W is (n, m).
        P11, W, P22: W1W1ᵀ (n, n), W1W2ᵀ (n, m), W2W2ᵀ (m, m).
        width: h; σ²_min of a layer with more rows than columns is 0.
        weights: gives W1 and W2, for singular values where those of the Grams have lost their accuracy.
        exact: take them from the weights in any case.
    """

    def __init__(
        self,
        loss: LinearMapLoss,
        P11: Array,
        W: Array,
        P22: Array,
        width: int,
        weights: Callable[[], tuple[Tensor, ...]],
        exact: bool = False,
    ) -> None:
        self.loss, self.P11, self.W, self.P22, self.width = loss.small, P11, W, P22, width
        self._weights, self._exact = weights, exact
        self.smoothness = self.loss.smoothness

    @classmethod
    def of(cls, loss: LinearMapLoss, W1: Tensor, W2: Tensor) -> Iterate:
        """The iterate at explicit (reduced) weights W1 (n, h), W2 (m, h), with singular values by SVD."""
        P11, W, P22 = (product.cpu().numpy() for product in (W1 @ W1.T, W1 @ W2.T, W2 @ W2.T))
        return cls(loss, P11, W, P22, W1.shape[1], lambda: (W1, W2), exact=True)

    @cached_property
    @OVERFLOWING
    def gap(self) -> float:
        """L; infinite or NaN where float64 overflows."""
        return self.loss.gap(self.W)

    @cached_property
    def gradient(self) -> Array:
        """g (n, m)."""
        return self.loss.gradient(self.W)

    @cached_property
    def gP22(self) -> Array:
        """gW2W2ᵀ (n, m)."""
        return self.gradient @ self.P22

    @cached_property
    def P11g(self) -> Array:
        """W1W1ᵀg (n, m)."""
        return self.P11 @ self.gradient

    @cached_property
    def B(self) -> Array:
        """(n, m)."""
        return self.gP22 + self.P11g

    @cached_property
    def C(self) -> Array:
        """(n, m)."""
        return self.gradient @ (self.W.T @ self.gradient)

    @cached_property
    def gradient_squared(self) -> float:
        """‖∇L‖² = ‖G1‖_F² + ‖G2‖_F² = ⟨g, B⟩."""
        return max(float(np.vdot(self.gradient, self.B)), 0.0)

    @cached_property
    def _spectra(self) -> _Spectra:
        """One batched eigenvalue problem of the smaller of n, m where they agree, one more of the larger otherwise."""
        g, W, P11, P22 = self.gradient, self.W, self.P11, self.P22
        n, m = g.shape
        if n == m:
            values = np.linalg.eigvalsh(_stack(P11, P22, g.T @ g, W.T @ W, self.gP22 @ g.T, g.T @ self.P11g))
            low, high = values[:, 0].tolist(), values[:, -1].tolist()
            return _Spectra((low[0], high[0]), (low[1], high[1]), *(max(x, 0.0) for x in high[2:]))
        wide = n < m
        if wide:  # exchange the layers, so that the first has more rows
            g, W, P11, P22 = g.T, W.T, P22, P11
        values, vectors = np.linalg.eigh(P22)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        gg = g.T @ g
        high = np.linalg.eigvalsh(_stack(gg, W.T @ W, root.T @ gg @ root, g.T @ P11 @ g))[:, -1].tolist()
        large = np.linalg.eigvalsh(P11)
        first, second = (float(large[0]), float(large[-1])), (float(values[0]), float(values[-1]))
        step1, step2 = high[2:]
        if wide:
            first, second, step1, step2 = second, first, step2, step1
        return _Spectra(first, second, *(max(x, 0.0) for x in (high[0], high[1], step1, step2)))

    @property
    def drift_per_step(self) -> float:
        """‖G1‖² + ‖G2‖² in spectral norms; η² times it bounds the drift of the imbalance in one step."""
        return self._spectra.step1 + self._spectra.step2

    @cached_property
    def _extremes(self) -> tuple[float, float, float, float]:
        """σ²_min, σ²_max of W1 and of W2."""
        result: list[float] = []
        if not self._exact:
            for (low, high), P in ((self._spectra.layer1, self.P11), (self._spectra.layer2, self.P22)):
                if len(P) > self.width:
                    low = 0.0
                elif low < GRAM_LIMIT * high:
                    break
                result += [max(low, 0.0), max(high, 0.0)]
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

    @property
    def gradient_norm(self) -> float:
        """‖g‖."""
        return self._spectra.gradient**0.5

    @property
    def gradient_frobenius(self) -> float:
        """‖g‖_F."""
        return float(np.vdot(self.gradient, self.gradient)) ** 0.5

    @property
    def map_norm(self) -> float:
        """‖W‖."""
        return self._spectra.map**0.5

    @cached_property
    def curvature(self) -> float | None:
        """‖𝒳C‖_F / ‖𝒳(W-W*)‖_F of Theorem III; ``None`` for a loss that is not quadratic."""
        if not isinstance(self.loss, SmallQuadratic):
            return None
        size = (2.0 * self.gap) ** 0.5
        XC = self.loss.image(self.C)
        return float(np.vdot(XC, XC)) ** 0.5 / size if size > 0.0 else 0.0

    @OVERFLOWING
    def trial(self, eta: float) -> float:
        """The gap after a step η, exactly (no difference of losses); infinite or NaN where float64 overflows."""
        return self.loss.gap(self.after(eta))

    def after(self, eta: float) -> Array:
        """W after a step η."""
        return self.W - eta * (self.B - eta * self.C)

    @cached_property
    def quartic(self) -> Quartic:
        """The loss along the step: exact for quadratic losses, the majoriser q of Theorem I otherwise."""
        if isinstance(self.loss, SmallQuadratic):
            E = self.loss.image(self.W - self.loss.optimum)
            XB, XC, K = self.loss.image(self.B), self.loss.image(self.C), 1.0
            tilt = float(np.vdot(E, XC))
        else:
            XB, XC, K = self.B, self.C, self.loss.smoothness
            tilt = float(np.vdot(self.gradient, self.C))
        return Quartic(
            -self.gradient_squared,
            0.5 * K * float(np.vdot(XB, XB)) + tilt,
            -K * float(np.vdot(XB, XC)),
            0.5 * K * float(np.vdot(XC, XC)),
        )
