"""Sparse deconvolution by the linearised ADMM: an exact iteration from a stored iterate, and the constants of the problem.

The change of z solves (αM + I) dz = -αr, and (αM + I)⁻¹ ⪯ I makes the residual of a witness a bound of its error. The rest of
an iteration is convolutions, wavelet transforms, and a soft threshold that moves no two points apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property

import numpy as np

from ..arrays import FormatError, numbers
from ..rigor.approximation import Approximation
from ..rigor.bounds import Array, Level, down, up
from ..rigor.intervals import Interval, around, joined, product_of, quotient_of, squared, sum_of, sum_up
from .operators import Blur, Wavelet, outwards, shrunk
from .pictures import GREATEST_TAP, Picture, integer

MAX_TAPS = 256
"""Of a wavelet filter; the longest of PyWavelets has 102."""


class Sparse(Picture):
    """y = Bz + noise, z = Wᵀx with sparse x.

    Its arrays are those of ``Picture``, and wavelet (its name, not used), filters (2, n), levels (1,).
    """

    kind = "deconvolution"
    names = Picture.names | {"wavelet", "filters", "levels"}
    parameters = ("alpha", "beta", "gamma")
    flags = ("adaptive", "inexact")
    sizes_of_start = ("start_latent", "start_coefficients", "start_multiplier")

    def __init__(self, arrays: Mapping[str, Array], level: Level) -> None:
        super().__init__(arrays, level)
        name, self.levels = arrays["wavelet"], integer(arrays, "levels")
        if name.dtype != np.uint8 or name.ndim != 1 or name.size > MAX_TAPS:
            raise FormatError("wavelet is malformed")
        self.filters = numbers(arrays["filters"], "array 'filters'", GREATEST_TAP, 2)
        if len(self.filters) != 2 or self.filters.shape[1] % 2 or self.filters.shape[1] > MAX_TAPS:
            raise FormatError(
                f"filters has shape {self.filters.shape}; it must be (2, n), n even and at most {MAX_TAPS}"
            )
        if not 1 <= self.levels < min(self.domain).bit_length():
            raise FormatError(f"levels is {self.levels}; images of {self.domain} cannot be split so often")

    @cached_property
    def wavelet(self) -> Wavelet:
        """W."""
        return Wavelet(self.filters, self.domain, self.levels, self.level)

    def constants(self, chosen: Mapping[str, float]) -> dict[str, Interval]:
        """‖W‖, and ‖S‖ = 1/α - β where M = BᵀB; else the largest M is added to the upper bound."""
        low, high = _between(chosen["alpha"], chosen["beta"])
        excess = self.excess
        return {
            "transform_norm": self.wavelet.norm,
            "majorizer_excess": (low, up(high + excess) if excess > 0.0 else high),
        }

    def one_iteration(
        self,
        blur: Blur,
        y: Approximation,
        z: Approximation,
        x: Approximation,
        mu: Approximation,
        parameters: list[float],
    ) -> tuple[Interval, float]:
        alpha, beta, gamma = parameters[:3]
        apart = z - self.wavelet.synthesis(x)
        residual = blur.observed(blur.convolved(z)) - y
        slope = blur.adjoint(residual) + mu + apart.times(beta)
        # B at Wᵀx differs from B at z by at most ‖B‖ times what lies between
        misfit = up(residual.norm() + up(blur.norm * apart.norm()))
        size = sum_up(np.abs(x.value).ravel().tolist())
        objective = up(up(0.5 * misfit * misfit, 2) + up(size * self.penalty))
        return self._change(blur, x, mu, apart, slope, alpha, beta, gamma), objective

    def _change(
        self,
        blur: Blur,
        x: Approximation,
        mu: Approximation,
        apart: Approximation,
        slope: Approximation,
        alpha: float,
        beta: float,
        gamma: float,
    ) -> Interval:
        """Enclosure of V of one image, from x, μ, z - Wᵀx and Bᵀ(Bz - y) + μ + β(z - Wᵀx)."""
        # dz = -α(αM + I)⁻¹ slope from a witness; (αM + I)⁻¹ ⪯ I makes its residual a bound of its error
        witness = Approximation(blur.solved(slope.value, 1.0 / alpha))
        if not np.isfinite(witness.value).all():
            return 0.0, math.inf
        layers = blur.convolved(witness)
        defect = (blur.majorized(layers).times(alpha) + witness + slope.times(alpha)).norm()
        ahead = apart + Approximation(witness.value, defect)
        dx = shrunk(x + self.wavelet.analysis(mu + ahead.times(beta)).times(gamma), self.penalty, gamma) - x
        dmu = (ahead - self.wavelet.synthesis(dx)).times(beta)
        low, high = sum_of(
            [
                product_of(squared(*witness.bounds()), _between(alpha, beta)),
                blur.hidden(layers),
                quotient_of(squared(*dx.bounds()), gamma),
                quotient_of(squared(*dmu.bounds()), beta),
            ]
        )
        # the error of dz is at most defect/√α in the seminorm of S; that of the layers enters there, too
        error = joined(
            [
                up(up(defect / down(math.sqrt(alpha))) + blur.moved(layers)),
                up(dx.error / down(math.sqrt(gamma))),
                up(dmu.error / down(math.sqrt(beta))),
            ]
        )
        return squared(*around((down(math.sqrt(low)), up(math.sqrt(high))), error))


def _between(alpha: float, beta: float) -> Interval:
    """Enclosure of 1/α - β, of 0 where that is negative: the theorem does not hold there, and there is no norm."""
    exact = max(Fraction(0), 1 / Fraction(alpha) - Fraction(beta))
    return max(0.0, outwards(exact, -1)), outwards(exact, 1)
