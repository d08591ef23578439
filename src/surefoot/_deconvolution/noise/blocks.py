"""The noise of a picture that was compressed as JPEG, from the quantised coefficients of its blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .jpeg_steps import JPEG, SIDE, cosines
from .mixture import Fit, most_likely, signals, spectra, strengths

MULTIPLES = 32
"""Multiples of a step that are told apart; larger coefficients only count as such."""
QUADRATURE = 161
"""Points over four standard deviations to either side, for the error of rounding a normal variable."""


@dataclass(frozen=True)
class Compressed:
    """The noise before compression, and the root mean square error that compression alone makes in the blurred picture."""

    noise: Fit
    error: float


def noise_of_blocks(jpeg: JPEG, kernel: Tensor, low: float, high: float) -> Compressed:
    """Noise and error of compression, in levels of 255.

    A coefficient is known up to its step: it was between (q - ½)s and (q + ½)s. So its likelihood is the probability of that
    interval under N(0, σ² + cT), with T the variance of the coefficient for the signal's spectrum. The mean and the two slopes of
    a block are left out: they are those of the scene.

    Args:
        jpeg: at least one block.
        kernel: (kh, kw), float64, sum 1.
        low, high: the least and largest level to find.
    """
    order = torch.arange(SIDE)
    used = ((order[:, None] + order) > 1) & ~jpeg.steps.isnan()
    steps = jpeg.steps[used]
    values = jpeg.coefficients[:, used]
    whole = torch.stack([_variances(spectrum) for spectrum in spectra(kernel)])
    strength = strengths(values.square(), whole[:, used])
    signal = signals(strength, whole[:, used])
    multiples = (values / steps).round().abs().clamp(max=MULTIPLES - 1).long()
    chosen = torch.nn.functional.one_hot(multiples, MULTIPLES).flatten(1).float()
    borders = (torch.arange(MULTIPLES, dtype=torch.float64) - 0.5) * steps[:, None]

    def likelihood(variance: float) -> Tensor:
        table = _log_probability(borders, (signal + variance).sqrt())
        return (chosen @ table.flatten(1).float().mT).double()

    fit = most_likely(likelihood, low, high)
    filled = jpeg.steps.nan_to_num(float(jpeg.steps[~jpeg.steps.isnan()].max())).flatten()
    error = float(fit.shares @ _rounding(signals(strength, whole.flatten(1)).sqrt(), filled))
    return Compressed(fit, math.sqrt(error + 1.0 / 12.0))  # and that of rounding to 8 bits


def _variances(spectrum: Tensor) -> Tensor:
    """Variances (8, 8) of a block's coefficients for a stationary signal."""
    covariance = torch.fft.ifft2(spectrum).real
    n = torch.arange(SIDE)
    lags = (n[:, None] - n) % len(spectrum)
    between = covariance[lags[:, None, :, None], lags[None, :, None, :]]
    basis = cosines()
    variances = torch.einsum("ai,bj,ijkl,ak,bl->ab", basis, basis, between, basis, basis)
    return variances.clamp(min=1e-14 * float(variances.max()))


def _log_probability(borders: Tensor, spread: Tensor) -> Tensor:
    """Of each multiple (components, n, MULTIPLES) under normal variables: ``borders`` (n, MULTIPLES) are their lower ends,
    ``spread`` (components, n) the standard deviations. Of 0 both signs count together, of others one of them."""
    beyond = torch.special.log_ndtr(-borders / spread[..., None])
    after = torch.cat([beyond[..., 1:], torch.full_like(beyond[..., :1], -math.inf)], -1)
    between = beyond + torch.log1p(-(after - beyond).exp().clamp(max=1.0 - 1e-15))
    between[..., 0] = torch.log1p(-2.0 * after[..., 0].exp().clamp(max=0.5 - 1e-15))
    return between


def _rounding(spread: Tensor, steps: Tensor) -> Tensor:
    """Mean square error (components,) that rounding to multiples makes in blocks of normal coefficients (components, 64)."""
    z = torch.linspace(-4.0, 4.0, QUADRATURE, dtype=torch.float64)
    weight = (-0.5 * z.square()).exp()
    value = spread[..., None] * z
    off = value - steps[:, None] * (value / steps[:, None]).round()
    error = off.square() @ (weight / weight.sum())
    error[:, 0] = steps[0].square() / 12.0  # the mean of a block may be anything
    return error.mean(1)
