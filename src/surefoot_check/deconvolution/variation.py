"""Total variation by ADMM: an exact iteration from a stored iterate, and the constants of the problem.

The change of z solves (M + βDᵀD) dz = -r. Of the error e of a witness with the residual ρ only ‖e‖_M and √β‖De‖ matter, and
‖e‖_M² + β‖De‖² = ⟨ρ, (M + βDᵀD)⁻¹ρ⟩ ≤ ‖ρ‖²/ℓ. Both matrices are Fourier multipliers: M is at least b² = (‖B1‖/‖1‖)² on constants,
and DᵀD at least 16/n² on what is orthogonal to them, n the longer side; ℓ is the least of b² and 16β/n². The rest of an iteration
is convolutions, differences, and a threshold that moves no two points apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ..rigor.approximation import Approximation
from ..rigor.bounds import UNIT_ROUNDOFF, Array, down, frobenius_upper, up
from ..rigor.intervals import Interval, around, joined, product_of, quotient_of, root_down, squared, sum_of, sum_up
from .operators import Blur
from .pictures import Picture

NORM = 2.8284271247461907
"""Of D: above √8."""
LENGTH = 8
"""Rounded operations that a length takes at most, and more."""


class Variation(Picture):
    """y = Bz + noise, z of small total variation; its arrays are those of ``Picture``."""

    kind = "total-variation"
    parameters = ("beta",)
    layers = (2,)
    sizes_of_start = ("start_latent", "start_differences", "start_multiplier")

    def constants(self, chosen: Mapping[str, float]) -> dict[str, Interval]:
        """b, ‖S‖ ≤ max M, ‖y‖, N and a."""
        pixels = float(len(self.pictures) * math.prod(self.domain))
        longer, shorter = float(max(self.domain)), float(min(self.domain))
        lows, highs = zip(*(blur.gain for blur in self.blurs), strict=True)
        return {
            "constant_gain": (min(lows), min(highs)),
            "majorizer_excess": (0.0, self.excess),
            "pixels": (pixels, pixels),
            "aspect": quotient_of((longer, longer), shorter),
            "observed_norm": Approximation(self.observed).bounds(),
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
        (beta,) = parameters
        slopes = differences(z)
        apart = slopes - x
        residual = blur.observed(blur.convolved(z)) - y
        slope = blur.adjoint(residual) + differences_adjoint(mu + apart.times(beta))
        misfit = residual.norm()
        variation = up(sum_up(up(length, LENGTH) for length in lengths(slopes.value).ravel().tolist()))
        variation = up(variation + up(slopes.error * up(math.sqrt(z.value.size))))  # Cauchy and Schwarz
        objective = up(up(0.5 * misfit * misfit, 2) + up(variation * self.penalty))
        return self._change(blur, x, mu, apart, slope, beta), objective

    def _change(
        self, blur: Blur, x: Approximation, mu: Approximation, apart: Approximation, slope: Approximation, beta: float
    ) -> Interval:
        """Enclosure of V of one image, from x, μ, Dz - x and Bᵀ(Bz - y) + Dᵀ(μ + β(Dz - x))."""
        witness = Approximation(blur.solved(slope.value, beta * _laplacian(self.domain)))
        if not np.isfinite(witness.value).all():
            return 0.0, math.inf
        layers, moved = blur.convolved(witness), differences(witness)
        defect = (blur.majorized(layers) + differences_adjoint(moved).times(beta) + slope).norm()
        gain, longest = blur.gain[0], float(max(self.domain))
        least = min(down(gain * gain), down(16.0 * beta / (longest * longest), 2))
        if not least > 0.0:
            return 0.0, math.inf
        error, root = up(defect / root_down(least)), root_down(beta)
        ahead = apart + Approximation(moved.value, up(moved.error + up(error / root)))
        dx = shortened(x + ahead + divided(mu, beta), self.penalty, beta) - x
        dmu = (ahead - dx).times(beta)
        low, high = sum_of(
            [
                blur.hidden(layers),
                product_of(squared(*dx.bounds()), (beta, beta)),
                quotient_of(squared(*dmu.bounds()), beta),
            ]
        )
        # ‖e‖_S ≤ ‖e‖_M
        total = joined([up(error + blur.moved(layers)), up(dx.error * up(math.sqrt(beta))), up(dmu.error / root)])
        return squared(*around((root_down(low), up(math.sqrt(high))), total))


def differences(z: Approximation) -> Approximation:
    """Dz (2, H, W) of z (H, W): periodic forward differences down the columns and along the rows."""
    value = np.stack([np.roll(z.value, -1, 0) - z.value, np.roll(z.value, -1, 1) - z.value])
    return Approximation.rounded(value, NORM * z.error)


def differences_adjoint(x: Approximation) -> Approximation:
    """Dᵀx (H, W) of x (2, H, W)."""
    down_columns, along_rows = (Approximation(layer) for layer in x.value)
    first = Approximation(np.roll(down_columns.value, 1, 0)) - down_columns
    second = Approximation(np.roll(along_rows.value, 1, 1)) - along_rows
    exact = first + second
    return Approximation(exact.value, up(exact.error + up(NORM * x.error)))


def divided(x: Approximation, divisor: float) -> Approximation:
    """x over a positive number."""
    return Approximation.rounded(x.value / divisor, x.error / divisor, underflow=True)


def lengths(x: Array) -> Array:
    """‖x_i‖ (H, W) of x (2, H, W), as computed: within ``LENGTH`` rounded operations, but for an underflow."""
    first, second = np.abs(x)
    longer, shorter = np.maximum(first, second), np.minimum(first, second)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(longer > 0.0, shorter / longer, 0.0)
    return longer * np.sqrt(1.0 + ratio * ratio)


def shortened(v: Approximation, penalty: float, beta: float) -> Approximation:
    """argmin λ Σ_i ‖x_i‖ + β/2 ‖x - v‖², which moves no two points apart: v less its projection on the balls of radius λ/β.

    The factor min{1, λ/(β‖v_i‖)} of the projection has a relative error of less than 16u: a length has 6 roundings, threshold and
    quotient one each, and the minimum with 1 moves no two numbers apart in their ratio. Where the length is so small that
    underflow matters, the quotient is above 1 and the factor is 1: thresholds are at least 1e-60.
    """
    threshold = penalty / beta
    with np.errstate(divide="ignore", over="ignore"):
        factor = np.minimum(1.0, threshold / lengths(v.value))
    inside = Approximation.rounded(factor * v.value, 0.0, underflow=True)
    inexact = up(16.0 * UNIT_ROUNDOFF * frobenius_upper(inside.value), 2)
    return Approximation(v.value, v.error) - Approximation(inside.value, up(inside.error + inexact))


def _laplacian(shape: tuple[int, int]) -> Array:
    """The multiplier DᵀD (H, W//2+1)."""
    rows, columns = np.fft.fftfreq(shape[0]), np.fft.rfftfreq(shape[1])
    return 4.0 * (np.sin(np.pi * rows)[:, None] ** 2 + np.sin(np.pi * columns) ** 2)
