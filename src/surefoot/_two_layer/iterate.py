"""Everything a step rule or an audit asks of one iterate of a two-layer linear network; computed on first use.

Symbols: g = ∇ℓ(W), G1 = gW2, G2 = gᵀW1, B = gW2W2ᵀ + W1W1ᵀg, C = gWᵀg; a step η moves W to W - ηB + η²C.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.linalg import svdvals

from surefoot_check.two_layer import constants as tl

from .._core.losses import LinearMapLoss
from .._core.small_losses import Array, SmallQuadratic
from . import planner

EPSILON = float(np.finfo(np.float64).eps)

GRAM_LIMIT = 1e-7
"""eigvalsh of a Gram loses σ²_min below about eps · σ²_max; below this ratio the layers' singular values are used instead."""

LARGE = 100
"""Rows of a layer from which its W_iW_iᵀ is formed only where its exact spectrum is needed: that costs more than all the rest."""

OVERFLOWING = np.errstate(over="ignore", invalid="ignore")
"""For what a step far too long may overflow: the caller sees an infinite or NaN gap instead of a warning."""


def squared_extremes(layer: Tensor) -> tuple[float, float]:
    """σ²_min (0 if the layer has more rows than columns) and σ²_max, by singular values."""
    s = svdvals(
        layer.T
    )  # LAPACK takes a wide row-major matrix as a tall one: up to ten times faster than svdvals(layer)
    return (float(s[-1]) ** 2 if layer.shape[0] <= layer.shape[1] else 0.0), float(s[0]) ** 2


def _extreme_eigenvalues(*matrices: Array) -> list[tuple[float, float]]:
    """The least and the largest eigenvalue of symmetric matrices of one size."""
    stacked = np.empty((len(matrices), *matrices[0].shape))  # np.stack without its overhead
    for i, matrix in enumerate(matrices):
        stacked[i] = matrix
    values = np.linalg.eigvalsh(stacked)
    return list(zip(values[:, 0].tolist(), values[:, -1].tolist(), strict=True))


def _host(product: Any) -> Array:
    """Of arrays or of tensors, on any device, as an array."""
    return product.cpu().numpy() if isinstance(product, Tensor) else product


class Quartic(NamedTuple):
    """L(η) - L = c1 η + c2 η² + c3 η³ + c4 η⁴ along the step, exactly (quadratic losses) or as an upper bound."""

    c1: float
    c2: float
    c3: float
    c4: float

    def at(self, eta: float) -> float:
        """The value at η."""
        return eta * (self.c1 + eta * (self.c2 + eta * (self.c3 + eta * self.c4)))


class Extremes(NamedTuple):
    """Bounds at an iterate, from the exact values at an earlier one and how far each step since has moved the matrices (Weyl)."""

    low1: float
    """σ_min of W1 is at least this."""
    low2: float
    high1: float
    """‖W1‖ is at most this."""
    high2: float
    map: float
    """‖W‖ is at most this."""

    def moved(self, first: float, second: float, product: float) -> Extremes:
        """Where W1, W2 and W have moved by at most so much, in spectral norm."""
        return Extremes(
            max(self.low1 - first, 0.0),
            max(self.low2 - second, 0.0),
            self.high1 + first,
            self.high2 + second,
            self.map + product,
        )


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
        least: the s- from which on ``measurements`` need not hold it exactly: a lower bound that is at least this may take its
            place, with upper bounds of s+, ‖W‖ and the k's. Infinite until a rule says so. The next iterate inherits it.
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
    least: float = math.inf

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

    @property
    def measurements(self) -> dict[str, float]:
        """What the trace records of this iterate, by the names an audit reads."""
        return self.exact_measurements

    @cached_property
    def exact_measurements(self) -> dict[str, float]:
        """The same without any of the bounds that ``least`` allows."""
        return self._measured(self.sigma_min_squared, self.sigma_max_squared, self.sharp, self.map_norm)

    def _measured(
        self, s_minus: float, s_plus: float, k: tuple[float, float, float], map_norm: float
    ) -> dict[str, float]:
        values = {
            "gap": self.gap,
            "gradient_squared": self.gradient_squared,
            "drift_per_step": self.drift_per_step,
            "sigma_min_squared": s_minus,
            "sigma_max_squared": s_plus,
            "k0": k[0],
            "k1": k[1],
            "k2": k[2],
            "map_norm": map_norm,
        }
        return values if self.curvature is None else {**values, "curvature": self.curvature}


class Iterate(Measurable):
    """One iterate of gradient descent on a reduced loss, as float64 arrays.

    Args:
        loss: the reduced loss; its W is (n, m).
        W1 (n, h), W2 (m, h): the layers, both arrays or both tensors. σ²_min of one with more rows than columns is 0.
        exact: take singular values from the layers in any case, instead of from their Grams where these are accurate enough.
        known: bounds at this iterate.
        least: see ``Measurable``.
    """

    def __init__(
        self,
        loss: LinearMapLoss,
        W1: Any,
        W2: Any,
        exact: bool = False,
        known: Extremes | None = None,
        least: float = math.inf,
    ) -> None:
        self.loss, self._of, self.W1, self.W2 = loss.small, loss, W1, W2
        self._exact, self.known, self.least = exact, known, least
        self.W = _host(W1 @ W2.T)
        self.smoothness = self.loss.smoothness

    @property
    def bounded(self) -> bool:
        """Whether ``measurements`` has bounds: they reach ``least``, and the exact values are not known anyway."""
        exact = "layer1" in self.__dict__ and "layer2" in self.__dict__
        return self.known is not None and not exact and self._bounds[0] >= self.least

    @property
    def _bounds(self) -> tuple[float, float]:
        """A lower bound of s- and an upper bound of s+; what a small layer adds is exact."""
        assert self.known is not None
        low1, high1 = self.layer1 if len(self.W1) <= LARGE else (self.known.low1**2, self.known.high1**2)
        low2, high2 = self.layer2 if len(self.W2) <= LARGE else (self.known.low2**2, self.known.high2**2)
        return low1 + low2, high1 + high2

    @property
    def measurements(self) -> dict[str, float]:
        """See ``Measurable.least``. The k's are then of upper bounds of s+ and ‖W‖, and of ‖g‖_F for ‖g‖, as Theorem I allows."""
        if not self.bounded:
            return self.exact_measurements
        assert self.known is not None
        s_minus, s_plus = self._bounds
        size = self.gradient_frobenius
        k0, k1, k2 = tl.sharp_coefficients(self.smoothness, s_plus, size, size, self.known.map)
        return self._measured(s_minus, s_plus, (float(k0), float(k1), float(k2)), self.known.map)

    def next(self, eta: float) -> Iterate:
        """The iterate that a step η leads to."""
        W1, W2 = self.W1 - eta * self._pop("G1"), self.W2 - eta * self._pop("G2")
        after = Iterate(self._of, W1, W2, self._exact, least=self.least)
        if not self._small and "drift_per_step" in self.__dict__:  # else nothing was measured here
            known = self.known
            if known is None or not self.bounded:
                (low1, high1), (low2, high2) = self.layer1, self.layer2
                known = Extremes(low1**0.5, low2**0.5, high1**0.5, high2**0.5, self.map_norm)
            first, second = self._steps
            moved = float(np.linalg.norm(after.W - self.W))
            after.known = known.moved(eta * first**0.5, eta * second**0.5, moved)
        return after

    def _pop(self, name: str) -> Any:
        """G1 or G2, the largest matrices, for the last time: it is not kept."""
        value = getattr(self, name)
        delattr(self, name)
        return value

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint needs so that the measurements come out as they are."""
        return {} if self.known is None else {"known": torch.tensor([*self.known, self.least], dtype=torch.float64)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take up the ``state`` of a checkpoint; one that has none leads to exact measurements."""
        if "known" in state:
            *known, self.least = state["known"].tolist()
            self.known = Extremes(*known)

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
    def G1(self) -> Any:
        """gW2 (n, h), of the kind of the layers."""
        return self._like_layers(self.gradient) @ self.W2

    @cached_property
    def G2(self) -> Any:
        """gᵀW1 (m, h)."""
        return self._like_layers(self.gradient).T @ self.W1

    def _like_layers(self, g: Array) -> Any:
        """As a tensor it is a copy: torch's memory is aligned, and products repeat."""
        return torch.tensor(g, device=self.W1.device) if isinstance(self.W1, Tensor) else g

    @cached_property
    def P11(self) -> Array:
        """W1W1ᵀ (n, n)."""
        return _host(self.W1 @ self.W1.T)

    @cached_property
    def P22(self) -> Array:
        """W2W2ᵀ (m, m)."""
        return _host(self.W2 @ self.W2.T)

    @cached_property
    def gP22(self) -> Array:
        """gW2W2ᵀ (n, m)."""
        return self.gradient @ self.P22 if len(self.W2) <= LARGE else _host(self.G1 @ self.W2.T)

    @cached_property
    def P11g(self) -> Array:
        """W1W1ᵀg (n, m)."""
        return self.P11 @ self.gradient if len(self.W1) <= LARGE else _host(self.W1 @ self.G2.T)

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
    def _fewer(self) -> tuple[Array, Array]:
        """Eigenvalues and vectors of the smaller of P11 and P22."""
        return np.linalg.eigh(self.P22 if len(self.W2) < len(self.W1) else self.P11)

    def _step_grams(self) -> tuple[Array, Array]:
        """Of the smaller of n and m rows, with the largest eigenvalues ‖G1‖² and ‖G2‖²."""
        g = self.gradient
        n, m = g.shape
        if n == m:
            return self.gP22 @ g.T, g.T @ self.P11g
        values, vectors = self._fewer
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        if n > m:
            return root.T @ (g.T @ g) @ root, g.T @ self.P11g
        return self.gP22 @ g.T, root.T @ (g @ g.T) @ root

    def _norm_grams(self) -> tuple[Array, Array]:
        """The same with ‖g‖² and ‖W‖²."""
        g, W = (self.gradient, self.W) if len(self.W1) >= len(self.W2) else (self.gradient.T, self.W.T)
        return g.T @ g, W.T @ W

    @property
    def _small(self) -> bool:
        return max(self.W.shape) <= LARGE

    @cached_property
    def _spectra(self) -> list[tuple[float, float]]:
        """All that an iterate is asked for at small sizes in one call, whose overhead is as large as the work."""
        layers = (self.P11, self.P22) if len(self.W1) == len(self.W2) else ()
        return _extreme_eigenvalues(*self._step_grams(), *self._norm_grams(), *layers)

    @cached_property
    def _steps(self) -> tuple[float, float]:
        """‖G1‖² and ‖G2‖²."""
        found = self._spectra if self._small else _extreme_eigenvalues(*self._step_grams())
        return max(found[0][1], 0.0), max(found[1][1], 0.0)

    @cached_property
    def _norms(self) -> tuple[float, float]:
        """‖g‖² and ‖W‖²."""
        found = self._spectra[2:] if self._small else _extreme_eigenvalues(*self._norm_grams())
        return max(found[0][1], 0.0), max(found[1][1], 0.0)

    @cached_property
    def drift_per_step(self) -> float:
        """‖G1‖² + ‖G2‖² in spectral norms; η² times it bounds the drift of the imbalance in one step."""
        return sum(self._steps)

    @cached_property
    def layer1(self) -> tuple[float, float]:
        """σ²_min and σ²_max of W1."""
        return self._extremes(0)

    @cached_property
    def layer2(self) -> tuple[float, float]:
        """σ²_min and σ²_max of W2."""
        return self._extremes(1)

    def _extremes(self, index: int) -> tuple[float, float]:
        layer = (self.W1, self.W2)[index]
        if not self._exact:
            low, high = self._gram_extremes(index)
            if len(layer) > layer.shape[1]:
                return 0.0, max(high, 0.0)
            if low >= GRAM_LIMIT * high:
                return max(low, 0.0), max(high, 0.0)
        return squared_extremes(torch.as_tensor(layer))

    def _gram_extremes(self, index: int) -> tuple[float, float]:
        n, m = self.W.shape
        if n == m and self._small:
            return self._spectra[4 + index]
        if (n, m)[index] < max(n, m):
            values = self._fewer[0]
            return float(values[0]), float(values[-1])
        return _extreme_eigenvalues(self.P22 if index else self.P11)[0]

    @property
    def sigma_min_squared(self) -> float:
        """s- = λ_min(W1W1ᵀ) + λ_min(W2W2ᵀ)."""
        return self.layer1[0] + self.layer2[0]

    @property
    def sigma_max_squared(self) -> float:
        """s+ = ‖W1‖² + ‖W2‖²."""
        return self.layer1[1] + self.layer2[1]

    @property
    def gradient_norm(self) -> float:
        """‖g‖."""
        return self._norms[0] ** 0.5

    @property
    def gradient_frobenius(self) -> float:
        """‖g‖_F."""
        return float(np.vdot(self.gradient, self.gradient)) ** 0.5

    @property
    def map_norm(self) -> float:
        """‖W‖."""
        return self._norms[1] ** 0.5

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
