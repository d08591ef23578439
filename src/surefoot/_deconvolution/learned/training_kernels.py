"""Generated blur kernels for training: camera shake, motion along a line, a lens out of focus, and Gaussians."""

from __future__ import annotations

import math

import torch
from torch import Tensor

KERNEL = 37
"""Pixels a side of every kernel, smaller ones embedded: the largest of the CSF kernels."""
LENGTHS = (3.0, 21.0)
"""Least and largest length of a motion, in pixels."""
RADII = (1.0, 6.0)
"""Of the disc of a lens out of focus."""
SPREADS = (0.6, 3.0)
"""Standard deviations of a Gaussian."""
POINTS = 2048
"""Points that a line or a disc is drawn with."""


def shake_kernels(count: int, generator: torch.Generator) -> Tensor:
    """Simulated camera shake (count, 37, 37): paths of a particle with inertia and random jerks, 5 to 29 pixels across.

    In the manner of Boracchi and Foi (IEEE TIP 21(8), 2012): each path is drawn with bilinear weights and slightly blurred.
    """
    points = 512
    walk = torch.randn(count, points, 2, generator=generator, dtype=torch.float64) * 0.15
    jerks = torch.rand(count, points, 1, generator=generator, dtype=torch.float64) < 0.01
    walk = walk + jerks * 4.0 * torch.randn(count, points, 2, generator=generator, dtype=torch.float64)
    velocity = torch.randn(count, 2, generator=generator, dtype=torch.float64)
    places: list[Tensor] = []
    place = torch.zeros(count, 2, dtype=torch.float64)
    for t in range(points):
        velocity = 0.985 * velocity + 0.25 * walk[:, t]
        place = place + velocity
        places.append(place)
    path = torch.stack(places, dim=1)
    low, high = path.amin(1, keepdim=True), path.amax(1, keepdim=True)
    extent = 5.0 + 24.0 * torch.rand(count, 1, 1, generator=generator, dtype=torch.float64)
    across = (high - low).amax(2, keepdim=True)
    kernels = _drawn((path - 0.5 * (low + high)) * (extent - 1.0) / across)
    offsets = torch.arange(-2, 3, dtype=torch.float64)
    taps = torch.exp(-0.5 * (offsets / 0.6).square())
    window = (taps[:, None] * taps)[None, None]
    return _scaled(torch.nn.functional.conv2d(kernels[:, None], window, padding=2)[:, 0])


def motion_kernels(count: int, generator: torch.Generator) -> Tensor:
    """Straight motion (count, 37, 37) in random directions, 3 to 21 pixels long."""
    length, turn = _uniform(LENGTHS, count, generator), _uniform((0.0, math.pi), count, generator)
    along = length * ((torch.arange(POINTS, dtype=torch.float64) + 0.5) / POINTS - 0.5)
    return _scaled(_drawn(torch.stack([along * turn.sin(), along * turn.cos()], dim=-1)))


def defocus_kernels(count: int, generator: torch.Generator) -> Tensor:
    """Discs (count, 37, 37) with radii of 1 to 6 pixels."""
    radius = _uniform(RADII, count, generator)
    index = torch.arange(POINTS, dtype=torch.float64)
    # a spiral with the golden angle between its points covers the disc evenly
    distance, turn = ((index + 0.5) / POINTS).sqrt(), index * math.pi * (3.0 - math.sqrt(5.0))
    return _scaled(_drawn(torch.stack([radius * distance * turn.sin(), radius * distance * turn.cos()], dim=-1)))


def gaussian_kernels(count: int, generator: torch.Generator) -> Tensor:
    """Gaussians (count, 37, 37) with standard deviations of 0.6 to 3 pixels."""
    spread = _uniform(SPREADS, count, generator)[..., None]
    offsets = torch.arange(KERNEL, dtype=torch.float64) - KERNEL // 2
    return _scaled(torch.exp(-0.5 * (offsets[:, None].square() + offsets.square()) / spread.square()))


def mixed_kernels(count: int, generator: torch.Generator) -> Tensor:
    """(count, 37, 37): a ninth each of straight motion, defocus and Gaussians, the others camera shake."""
    few = count // 9
    simple = [make(few, generator) for make in (motion_kernels, defocus_kernels, gaussian_kernels)]
    return torch.cat([shake_kernels(count - 3 * few, generator), *simple])


def _uniform(limits: tuple[float, float], count: int, generator: torch.Generator) -> Tensor:
    """(count, 1) numbers between the limits."""
    low, high = limits
    return low + (high - low) * torch.rand(count, 1, generator=generator, dtype=torch.float64)


def _drawn(paths: Tensor) -> Tensor:
    """Points (count, P, 2), in pixels from the middle, drawn with bilinear weights into (count, 37, 37)."""
    count = len(paths)
    paths = paths + KERNEL // 2
    floor = paths.floor()
    part = paths - floor
    kernels = torch.zeros(count, KERNEL * KERNEL, dtype=torch.float64)
    for i in (0, 1):
        for j in (0, 1):
            weight = (part[..., 0] if i else 1.0 - part[..., 0]) * (part[..., 1] if j else 1.0 - part[..., 1])
            index = (floor[..., 0] + i) * KERNEL + floor[..., 1] + j
            kernels.scatter_add_(1, index.long(), weight)
    return kernels.reshape(count, KERNEL, KERNEL)


def _scaled(kernels: Tensor) -> Tensor:
    return (kernels / kernels.sum(dim=(1, 2), keepdim=True)).float()
