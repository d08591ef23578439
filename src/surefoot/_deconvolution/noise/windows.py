"""The noise of a picture that was not compressed, from the periodograms of its windows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .mixture import Fit, most_likely, signals, spectra, strengths

SIDES = (32, 16, 8)
"""Pixels a side of a window; the largest of which a picture has enough is taken."""
ENOUGH = 8
"""Windows without a clipped pixel that a size must have, where a smaller one can still be tried."""
MOST = 600
"""Windows of a large picture, spread over it."""
LOWEST = 2.5
"""Cycles a window: below, the taper mixes a frequency with the mean."""


@dataclass(frozen=True)
class Periodograms:
    """Of the windows of a picture.

    A window tapered by Hann's function has a periodogram P whose expectation is known for every component v = σ² + cT, with T the
    signal's spectrum convolved with the taper's; its likelihood is Whittle's, ∏ exp(-P/v)/v.

    Attributes:
        power: (windows, n).
        forms: (forms, n), the expectations of signals.
        frequency: (n,), cycles a pixel.
    """

    power: Tensor
    forms: Tensor
    frequency: Tensor

    @classmethod
    def of(cls, levels: Tensor, clipped: Tensor, kernel: Tensor) -> Periodograms:
        """Of a picture (h, w), float64, at least 8 x 8.

        Args:
            levels: pixels.
            clipped: (h, w), pixels that show no noise.
            kernel: (kh, kw), float64, sum 1.
        """
        windows, side = _windows(levels, clipped)
        taper = _taper(side)
        centred = windows - (windows * taper).sum((1, 2), keepdim=True) / taper.sum()
        axis = torch.fft.fftfreq(side, dtype=torch.float64)
        frequency = torch.hypot(axis[:, None].expand(side, side), axis.expand(side, side))
        used = frequency > LOWEST / side
        used[:, side // 2 + 1 :] = False  # the same numbers again
        power = torch.fft.fft2(centred * taper).abs().square()[:, used]
        forms = torch.stack([_tapered(spectrum, taper)[used] for spectrum in spectra(kernel)])
        return cls(power, forms, frequency[used])

    def fit(self, low: float, high: float, between: tuple[float, float] = (0.0, 1.0)) -> Fit:
        """The noise, from ``low`` to ``high``, at frequencies of at least and less than those ``between``."""
        used = (self.frequency >= between[0]) & (self.frequency < between[1])
        power, forms = self.power[:, used], self.forms[:, used]
        signal = signals(strengths(power, forms), forms)

        def likelihood(variance: float) -> Tensor:
            total = signal + variance
            return -(total.log().sum(1) + power @ (1.0 / total).mT)

        return most_likely(likelihood, low, high)


def _windows(levels: Tensor, clipped: Tensor) -> tuple[Tensor, int]:
    """Windows (count, side, side), overlapping by half, without clipped pixels; of a picture that has no such ones, those with
    the fewest."""
    for side in SIDES:
        if min(levels.shape) < side:
            continue
        places = [_starts(size, side) for size in levels.shape]
        corners = torch.cartesian_prod(*places)
        if len(corners) > MOST:
            corners = corners[torch.linspace(0, len(corners) - 1, MOST).long()]
        span = torch.arange(side)
        index = (corners[:, 0, None, None] + span[:, None], corners[:, 1, None, None] + span)
        bad = clipped[index].double().mean((1, 2))
        if int((bad == 0.0).sum()) >= ENOUGH or side == SIDES[-1] or min(levels.shape) < 2 * side:
            fewest = bad <= max(0.0, float(bad.sort().values[min(ENOUGH, len(bad)) - 1]))
            kept = bad == 0.0 if int((bad == 0.0).sum()) >= ENOUGH else fewest
            return levels[index][kept], side
    raise ValueError(f"a picture {tuple(levels.shape)} is smaller than {SIDES[-1]} pixels")


def _starts(size: int, side: int) -> Tensor:
    count = max(1, -(-(size - side) // (side // 2)) + 1)
    return torch.linspace(0, size - side, count).round().long()


def _taper(side: int) -> Tensor:
    """Hann's window (side, side), of 2-norm 1: then white noise of variance σ² has an expected periodogram of σ²."""
    one = torch.hann_window(side + 2, periodic=False, dtype=torch.float64)[1:-1]
    taper = torch.outer(one, one)
    return taper / taper.norm()


def _tapered(spectrum: Tensor, taper: Tensor) -> Tensor:
    """The expected periodogram (side, side) of a tapered window of a stationary signal."""
    side = len(taper)
    covariance = torch.fft.ifft2(spectrum).real
    overlap = torch.fft.ifft2(torch.fft.fft2(taper, (2 * side, 2 * side)).abs().square()).real
    lags = ((torch.arange(2 * side) + side) % (2 * side) - side) % len(spectrum)
    expected = torch.fft.fft2(covariance[lags[:, None], lags] * overlap).real
    return expected[::2, ::2].clamp(min=1e-14 * float(expected.max()))
