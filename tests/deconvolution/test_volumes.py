"""Stacks are restored by what restores pictures: an unknown border along three axes, a kernel that varies with depth."""

from __future__ import annotations

import math

import pytest
import torch
from deconvolution_pictures import DOUBLE, counted
from torch import Tensor

from surefoot import RunStatus
from surefoot.deconvolution import (
    Blur,
    PeriodicBlur,
    SpatiallyVaryingBlur,
    ValidBlur,
    gradient_wiener,
    normalised_kernel,
    poisson_tv,
    richardson_lucy,
)

SHAPE = (6, 20, 20)


def gaussian(planes: int, size: int, depth: float, width: float) -> Tensor:
    """A separable kernel: the outer product of three."""
    along = [torch.arange(n, dtype=DOUBLE) - n // 2 for n in (planes, size, size)]
    factors = [torch.exp(-0.5 * (x / spread) ** 2) for x, spread in zip(along, (depth, width, width), strict=True)]
    return normalised_kernel(torch.einsum("i,j,k->ijk", *factors), 3)


def blurs() -> dict[str, Blur]:
    kernel = gaussian(3, 5, 1.0, 1.2)
    grid = torch.stack([gaussian(3, 5, 1.0, width) for width in (0.8, 1.6)])[:, None, None]
    return {
        "valid": ValidBlur.observing(kernel, SHAPE),
        "periodic": PeriodicBlur(kernel, SHAPE),
        "varying with depth": SpatiallyVaryingBlur.from_grid(grid, SHAPE),
    }


def blocks(blur: Blur) -> Tensor:
    """Bright boxes on a dark ground, over the border too."""
    z = torch.full(blur.domain, 10.0, dtype=DOUBLE)
    z[:4, 3:9, 3:9], z[2:, 10:, 12:], z[3:6, 4:12, 14:17] = 200.0, 120.0, 300.0
    return z


def error(found: Tensor, truth: Tensor) -> float:
    """Root mean square."""
    return float((found - truth).square().mean().sqrt())


@pytest.mark.parametrize("blur", blurs().values(), ids=list(blurs()))
def test_stacks_of_counts_are_restored(blur: Blur) -> None:
    z = blocks(blur)
    truth, y = blur.crop(z), counted(blur, z, 3.0)
    lucy, tv = richardson_lucy(blur, y, background=3.0), poisson_tv(blur, y, background=3.0)
    linear = blur.crop(gradient_wiener(blur, y - 3.0, math.sqrt(float(y.mean())), 40.0))
    before = error(y - 3.0, truth)
    for found in (lucy, tv):
        assert found.image.shape == SHAPE and found.status is RunStatus.CONVERGED and found.audit.holds
    assert error(lucy.image, truth) < 0.85 * before
    assert error(linear, truth) < 0.9 * before
    assert error(tv.image, truth) < 0.5 * before


def test_one_plane_is_a_picture() -> None:
    """A kernel of one plane restores each plane of a stack by itself."""
    flat = gaussian(1, 5, 1.0, 1.2)
    stack, picture = ValidBlur.observing(flat, (2, 20, 20)), ValidBlur.observing(flat[0], (20, 20))
    y = counted(stack, 100.0 * torch.rand(stack.domain, dtype=DOUBLE, generator=torch.Generator().manual_seed(2)))
    together = richardson_lucy(stack, y, 10, discrepancy=0).image
    # the starts differ, as each plane has its own number of counts: after a step that is forgotten where B1 = 1
    alone = richardson_lucy(picture, y, 10, discrepancy=0).image
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-9)


def test_a_stack_is_restored_better_than_its_planes() -> None:
    blur = blurs()["valid"]
    z = blocks(blur)
    y = counted(blur, z, 3.0)
    planes = ValidBlur.observing(gaussian(3, 5, 1.0, 1.2).sum(0), SHAPE[1:])
    truth = blur.crop(z)
    together, apart = (poisson_tv(b, y, background=3.0).image for b in (blur, planes))
    assert error(together, truth) < 0.8 * error(apart, truth)
