"""Pictures and stacks of counts: y ~ Poisson(Bz + b) in units of a gain, its likelihood, and how large the misfit is to be."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..._core.validate import as_tensor, finite, positive
from ..operators import Blur, described, held, image_norm
from ..problem import checked_image

LARGE = 30.0
"""From this mean on the series of the expected deviance is exact to 1e-4."""
MOST = 1.17
"""Above the expected deviance of one count, whatever its mean (largest, 1.161, at 1.34)."""
NODES = 256
"""Means at which the expected deviance is summed below that."""


class Counts:
    """Observed counts y (..., h, w) whose expectation is Bz + b, and y/gain is Poisson distributed.

    All is kept in units of one event: ``observed``, ``background`` and latent images z are divided by the gain.

    Args:
        blur: B, with ``range`` (h, w), or (d, h, w) for stacks.
        observed: y, not negative.
        gain: what one event (photon, electron) adds to y, positive.
        background: b ≥ 0 in the unit of y, a number or an array that broadcasts to y: expected counts that were not blurred, such
            as dark current or diffuse light.

    Raises:
        TypeError: not an array of floats, or of another dtype or device than the blur.
        ValueError: NaN or infinite or negative counts, shapes that do not fit, a gain that is not positive, or a background that
            is negative.
    """

    def __init__(self, blur: Blur, observed: Any, gain: float = 1.0, background: Any = 0.0) -> None:
        y = checked_image("observed", observed)
        least = float(y.min())
        if least < 0.0:
            raise ValueError(
                f"observed has negative counts (the least is {least:.6g}); where an offset was subtracted, add it back and pass "
                "it as background, or use observed.clamp(min=0)"
            )
        self.blur, self.gain = blur, positive("gain", gain)
        self.seen = blur.adjoint(torch.ones_like(y))
        """Bᵀ1 (..., H, W): how much of each latent pixel is observed."""
        shape = (*self.seen.shape[: -len(blur.domain)], *blur.range)
        b = _background(background, y).expand(shape)
        self.faint = math.sqrt(torch.finfo(y.dtype).eps)
        """Of B1 and Bᵀ1: less is rounding, and nothing was observed there."""
        # what no latent pixel reaches, a masked pixel, says nothing
        reached = blur.forward(torch.ones_like(self.seen)) > self.faint
        self.observed = torch.where(reached, y / self.gain, 0.0)
        self.background = torch.where(reached, b / self.gain, 0.0)
        self.axes = blur.axes

    def expected(self, z: Tensor) -> Tensor:
        """Bz + b (..., h, w) of z ≥ 0; what the rounding of transforms makes negative is 0."""
        return self.blur.forward(z).clamp(min=0.0) + self.background

    def ratio(self, expected: Tensor) -> Tensor:
        """y/(Bz + b), 0 where y is 0."""
        return torch.where(self.observed > 0.0, self.observed / expected, 0.0)

    def deviance(self, z: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
        """2 Σ y log(y/m) - y + m (...,) of m = Bz + b, and a bound, to first order, of its rounding error; both float64.

        That is twice what the log-likelihood lacks of the largest one, of m = y.
        """
        y, m = self.observed.double(), expected.double()
        ratio = torch.where(y > 0.0, y / m, 1.0)
        logarithms = y * ratio.log()
        terms = 8.0 * torch.finfo(torch.float64).eps * (logarithms.abs() + y + m).sum(self.axes)
        # of m: the deviance's gradient times its error
        error = self.blur.forward_error(image_norm(z, self.axes)).double()
        error = error + torch.finfo(z.dtype).eps * image_norm(m, self.axes)
        slope = image_norm(torch.where(y > 0.0, 1.0 - ratio, 1.0), self.axes)
        return 2.0 * (logarithms - y + m).sum(self.axes), 2.0 * slope * error + terms

    def discrepancy(self, deviance: Tensor, expected: Tensor) -> Tensor:
        """The deviance (...,) over its average where m is the true mean: below 1 the misfit is that of the noise."""
        return deviance / expected_deviance(expected).sum(self.axes)

    def fits(self, deviance: Tensor, expected: Tensor, factor: float) -> Tensor:
        """Whether the discrepancy (...,) is at most ``factor``; its denominator is summed only where that can be."""
        least = deviance / (MOST * math.prod(self.blur.range))
        if not bool((least <= factor).any()):
            return torch.zeros_like(deviance, dtype=torch.bool)
        return self.discrepancy(deviance, expected) <= factor

    def wide(self, each: Tensor) -> Tensor:
        """A number for each image (...,) as (..., 1, 1), to combine with images."""
        return each.reshape(*each.shape, *(1 for _ in self.axes))

    @property
    def level(self) -> Tensor:
        """The mean of the counts above the background (..., 1, 1), at least .001 of the mean of all, positive."""
        mean = self.observed.mean(self.axes, keepdim=True)
        above = (self.observed - self.background).mean(self.axes, keepdim=True)
        return above.maximum(1e-3 * mean).clamp(min=torch.finfo(mean.dtype).tiny)

    @property
    def brightness(self) -> Tensor:
        """Σc²/Σc (..., 1, 1) of the counts c above the background, at least ``level``: where most of the light is, not most
        pixels."""
        squares = (self.observed - self.background).clamp(min=0.0).square().mean(self.axes, keepdim=True)
        return (squares / self.level).maximum(self.level)

    def flat(self) -> Tensor:
        """The constant latent image (..., H, W) of this level."""
        return self.level.expand(*self.observed.shape[: -len(self.axes)], *self.blur.domain).clone()

    def double(self) -> Counts:
        """The same in float64."""
        blur = self.blur.to(torch.float64)
        return Counts(blur, self.observed.double(), 1.0, self.background.double())


def expected_deviance(mean: Tensor) -> Tensor:
    """E 2(Y log(Y/μ) - Y + μ) of Y ~ Poisson(μ), float64, for each μ ≥ 0: near 1 from μ = .5 on, 0 at 0.

    By its sum at some means and linear interpolation between their logarithms; 1 + 1/(6μ) + 1/(6μ²) from μ = 30 on.
    """
    mean = mean.double()
    large = mean.clamp(min=LARGE)
    series = 1.0 + (1.0 + 1.0 / large) / (6.0 * large)
    few = mean <= LARGE
    if not bool(few.any()):
        return series
    logarithms, values = (table.to(mean.device) for table in _table())
    place = (mean.clamp(1e-6, LARGE).log() - logarithms[0]) / (logarithms[1] - logarithms[0])
    index = place.floor().clamp(max=NODES - 2.0).long()
    part = place - index
    return torch.where(few, (1.0 - part) * values[index] + part * values[index + 1], series)


@cache
def _table() -> tuple[Tensor, Tensor]:
    """The logarithms (NODES,) of some means from 1e-6 to 30, evenly spaced, and the expected deviances there."""
    logarithms = torch.linspace(math.log(1e-6), math.log(LARGE), NODES, dtype=torch.float64)
    nodes = logarithms.exp()[:, None]
    events = torch.arange(0.0, 5.0 * LARGE, dtype=torch.float64)
    probability = (torch.xlogy(events, nodes) - nodes - torch.lgamma(events + 1.0)).exp()
    return logarithms, (probability * 2.0 * (torch.xlogy(events, events / nodes) - events + nodes)).sum(1)


def _background(background: Any, observed: Tensor) -> Tensor:
    """b as a tensor that broadcasts to the observed counts."""
    if isinstance(background, int | float):
        array = observed.new_tensor(float(background))
    else:
        array = held("background", as_tensor("background", background)).to(observed)
    finite("background", array)
    try:
        fits = torch.broadcast_shapes(array.shape, observed.shape) == observed.shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"background has shape {tuple(array.shape)}; pass a number, or an array that broadcasts to the observed "
            f"counts {described(tuple(observed.shape[-2:]))}"
        )
    least = float(array.min())
    if least < 0.0:
        raise ValueError(f"background has negative entries (the least is {least:.6g}); it is an expected count")
    return array
