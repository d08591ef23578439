"""A noise level by maximum likelihood: parts of a picture are noise and a signal whose spectrum is known up to its strength.

The signal of a part is c |k̂(f)|² / |f|^(2a), possibly along one axis only (an edge), with k the blur's kernel: sharp photographs
have spectra of about that form (Field, JOSA A 4(12), 1987). Each part has a strength c and a form of its own. How often each
occurs is estimated with the noise level (nonparametric maximum likelihood of a mixture: Laird, JASA 73(364), 1978), so that flat
parts and frequencies that the blur has removed decide where there are such, and nothing has to be thresholded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

EXPONENTS = (1.0, 1.75)
"""a: of edges and detail, and of smooth shading."""
AXES = ("both", "rows", "columns")
ISOTROPIC = 0.03
"""Of the spectrum of an edge: what is left across it."""
GRID = 128
"""Frequencies a side of the spectra."""
STRENGTHS = 20
"""Logarithmic steps of c, over eight decades below what the strongest part needs."""
DECADES = 8.0
PASSES = 30
"""Of expectation and maximisation; more change the level by less than 1 %."""
HALVINGS = 3
"""Of the grid of noise levels around the best one; then a parabola."""
CREDIBLE = 2.0
"""Levels whose log-likelihood is this near to the largest are as good: about two standard errors."""


@dataclass(frozen=True)
class Fit:
    """The most likely noise level, those that are nearly as likely, and the share (components,) of each signal."""

    level: float
    low: float
    high: float
    shares: Tensor


def spectra(kernel: Tensor) -> list[Tensor]:
    """Power spectra (N, N) of blurred photographs, one for each form, up to their strength; kernel (kh, kw), float64."""
    size = max(GRID, *kernel.shape)
    transfer = torch.fft.fft2(kernel, (size, size)).abs().square()
    axis = torch.fft.fftfreq(size, dtype=torch.float64)
    rows, columns = axis[:, None].square(), axis.square()
    total = rows + columns
    total[0, 0] = 1.0 / size**2  # the mean is left out later
    along = {"both": 1.0, "rows": (rows / total) ** 4 + ISOTROPIC, "columns": (columns / total) ** 4 + ISOTROPIC}
    return [transfer * along[name] * (4.0 * total) ** -a for a in EXPONENTS for name in AXES]


def strengths(power: Tensor, forms: Tensor) -> Tensor:
    """Values of c to try for each form (forms, STRENGTHS), from the power of the parts (parts, n) and the forms (forms, n)."""
    largest = 4.0 * power.mean(1).max().clamp(min=1e-12) / forms.mean(1)
    return largest[:, None] * torch.logspace(-DECADES, 0.0, STRENGTHS, dtype=torch.float64)


def signals(strength: Tensor, forms: Tensor) -> Tensor:
    """The components' spectra (components, n): every form (forms, n) at each of its strengths."""
    return (strength[..., None] * forms[:, None]).flatten(0, 1)


def most_likely(likelihood: Callable[[float], Tensor], low: float, high: float) -> Fit:
    """The noise level between ``low`` and ``high`` that maximises the likelihood, with the shares of the signals.

    Args:
        likelihood: log-likelihood (parts, components) of every part under every signal, at a noise variance.
    """
    values: dict[float, float] = {}

    def value(log_level: float) -> None:
        values[log_level] = _shared(likelihood(math.exp(2.0 * log_level)))[0]

    count = max(2, math.ceil((math.log(high) - math.log(low)) / 0.6))
    for i in range(count + 1):
        value(math.log(low) + i * (math.log(high) - math.log(low)) / count)
    for _ in range(HALVINGS):
        tried = sorted(values)
        best = max(range(len(tried)), key=lambda i: values[tried[i]])
        for neighbour in (best - 1, best + 1):
            if 0 <= neighbour < len(tried):
                value(0.5 * (tried[best] + tried[neighbour]))
    tried = sorted(values)
    best = max(range(len(tried)), key=lambda i: values[tried[i]])
    top = _vertex(tried, values, best)
    near = [x for x in tried if values[x] >= values[tried[best]] - CREDIBLE]
    shares = _shared(likelihood(math.exp(2.0 * top)))[1]
    return Fit(math.exp(top), math.exp(near[0]), math.exp(near[-1]), shares)


def _vertex(tried: list[float], values: dict[float, float], best: int) -> float:
    """The largest value of a parabola through the best level and its neighbours, which are equally far."""
    if best in (0, len(tried) - 1):
        return tried[best]
    before, here, after = tried[best - 1 : best + 2]
    left, right = values[here] - values[before], values[here] - values[after]
    slopes = left / (here - before), right / (after - here)
    if sum(slopes) <= 0.0:
        return here
    return here + 0.5 * (slopes[0] * (after - here) - slopes[1] * (here - before)) / sum(slopes)


def _shared(likelihood: Tensor) -> tuple[float, Tensor]:
    """The log-likelihood at the most likely shares, and the shares."""
    largest = likelihood.amax(1, keepdim=True)
    density = (likelihood - largest).exp()
    shares = torch.full((density.shape[1],), 1.0 / density.shape[1], dtype=density.dtype)
    for _ in range(PASSES):
        joint = density * shares
        shares = (joint / joint.sum(1, keepdim=True)).mean(0)
    return float((largest[:, 0] + (density @ shares).log()).sum()), shares
