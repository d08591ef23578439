"""Pixels that are not believed: operators with a mask, and highlights brighter than white."""

from __future__ import annotations

import math
from io import BytesIO

import numpy as np
import pytest
import torch
from deconvolution_pictures import DOUBLE, kernel, photos
from PIL import Image
from torch import Tensor

from surefoot._deconvolution.masked import filled
from surefoot._deconvolution.photo.highlights import clipped
from surefoot.deconvolution import MaskedBlur, ValidBlur, deblur, motion_kernel, prepared_kernel

NOISE = 0.01


def test_masks_that_do_not_fit_are_refused() -> None:
    blur = ValidBlur(kernel(3, 3), (10, 12))
    mask = torch.ones(8, 10, dtype=torch.bool)
    with pytest.raises(TypeError, match="mask has dtype float32; pass bool"):
        MaskedBlur(blur, mask.float())
    with pytest.raises(ValueError, match=r"mask has shape \(8, 9\); this blur makes images \(8, 10\)"):
        MaskedBlur(blur, mask[:, 1:])
    with pytest.raises(TypeError, match="masked already"):
        MaskedBlur(MaskedBlur(blur, mask), mask)


def test_gaps_are_filled_from_what_is_nearest() -> None:
    image = torch.arange(20.0, dtype=DOUBLE).expand(2, 15, 20).clone()
    mask = torch.ones(15, 20, dtype=torch.bool)
    mask[4:9, 8:13] = False
    image[:, ~mask] = math.nan
    found = filled(image, mask)
    assert torch.equal(found[:, mask], image[:, mask])
    assert float((found - torch.arange(20.0)).abs().max()) < 4.0
    assert torch.equal(filled(image, torch.zeros_like(mask)), torch.zeros_like(image))


def lights(brightness: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A dim photograph with three lights, blurred and clipped in 8 bits; its kernel, the truth, and what lies far from lights."""
    scene = 0.4 * photos(1, 140)[0]
    rows, columns = torch.meshgrid(torch.arange(140.0), torch.arange(140.0), indexing="ij")
    far = torch.ones(140, 140, dtype=torch.bool)
    for row, column in ((30, 40), (70, 100), (110, 50)):
        distance = torch.hypot(rows - row, columns - column)
        scene[distance < 2.5] = brightness
        far &= distance > 12
    k = prepared_kernel(motion_kernel(11, 30))[0]
    blur = ValidBlur(k, (140, 140))
    seen = blur.forward(scene)
    seen = seen + NOISE * torch.randn(seen.shape, generator=torch.Generator().manual_seed(4), dtype=DOUBLE)
    return (seen.clamp(0.0, 1.0) * 255.0).round().byte(), k, blur.crop(scene), blur.crop(far)


def error(image: Tensor, scene: Tensor, where: Tensor) -> float:
    return float((image.double() - scene)[where].square().mean().sqrt())


def test_highlights_leave_no_stripes_and_stay() -> None:
    seen, k, scene, far = lights(15.0)
    dim, _, without, _ = lights(0.4)
    found, usual = deblur(seen, k, NOISE), deblur(dim, k, NOISE)
    # floats just off one another are not clipped
    floats = seen.double() / 255.0 + 1e-6 * torch.rand(seen.shape, dtype=DOUBLE)
    striped = deblur(floats, k, NOISE)
    assert error(found.image, scene, far) < 1.05 * error(usual.image, without, far)
    assert error(striped.image, scene, far) > 2.0 * error(usual.image, without, far)
    assert all(float(found.image[r - 8 : r + 1, c - 9 : c].max()) > 0.95 for r, c in ((30, 40), (70, 100), (110, 50)))
    assert any("brighter than white" in notice for notice in found.notices)


def test_highlights_of_a_jpeg_are_found_too() -> None:
    """Compression makes holes in them."""
    samples, k, scene, far = lights(15.0)
    stream = BytesIO()
    Image.fromarray(samples.numpy()).save(stream, "JPEG", quality=80)
    pixels = np.asarray(Image.open(stream))
    found = deblur(pixels, k, NOISE)
    assert any("left out" in notice for notice in found.notices)
    believed = deblur(pixels / 255.0, k, NOISE)  # of floats only those at the very top count
    assert error(found.image, scene, far) < 0.5 * error(believed.image, scene, far)


def test_white_that_is_no_highlight_is_believed() -> None:
    """White paper: the blurred edge of a page fits to white, so nothing is left out."""
    page = torch.ones(120, 120, dtype=DOUBLE)
    page[20:100:9, 15:105] = 0.1
    page[22:100:9, 20:70] = 0.3
    k = motion_kernel(7, 60)
    blur = ValidBlur(k, (120, 120))
    seen = (blur.forward(page) * 255.0).round().byte()
    assert float(clipped(seen[None] / 255.0, 1 / 255).double().mean()) > 0.1
    found = deblur(seen, k, 0.004)
    assert not any("brighter" in notice for notice in found.notices)
    assert float((found.image - blur.crop(page)).square().mean()) < 0.5 * float(
        (seen / 255.0 - blur.crop(page)).square().mean()
    )


def test_clipped_parts_are_solid_and_of_any_white() -> None:
    photo = 0.5 * torch.rand(1, 40, 40, generator=torch.Generator().manual_seed(0))
    photo[0, 5, 5] = 0.8  # noise
    photo[0, 20:25, 10:30] = 0.8  # a sensor that is full before the format is
    top = clipped(photo, 0.0)
    assert int(top.sum()) == 100 and bool(top[0, 20:25, 10:30].all())


@pytest.mark.parametrize("prior", ["wavelet", "tv"])
def test_the_theorem_holds_without_the_highlights(prior: str) -> None:
    seen, k, scene, far = lights(15.0)
    dim, _, without, _ = lights(0.4)
    found, usual = deblur(seen, k, NOISE, prior=prior), deblur(dim, k, NOISE, prior=prior)
    assert found.certified and any("left out" in notice for notice in found.notices)
    assert error(found.image, scene, far) < 1.05 * error(usual.image, without, far)


@pytest.mark.parametrize("brightness", [1.7, 1.0])
def test_overexposed_parts_are_raised_and_white_ones_believed(brightness: float) -> None:
    """A third of the picture: too much to leave out. At 1.7 times white it is raised; white with noise is not."""
    scene = 0.5 * photos(1, 110)[0]
    scene[20:70, 25:90] = brightness * (1.0 if brightness == 1.0 else 0.75 + 0.5 * photos(1, 110)[0][20:70, 25:90])
    k = prepared_kernel(motion_kernel(9, 25))[0]
    blur = ValidBlur(k, (110, 110))
    light = blur.forward(scene)
    light = light + NOISE * torch.randn(light.shape, generator=torch.Generator().manual_seed(5), dtype=DOUBLE)
    seen = (light.clamp(0.0, 1.0) * 255.0).round().byte()
    found = deblur(seen, k, NOISE)
    raised = [notice for notice in found.notices if "brighter than white" in notice]
    assert len(raised) == (brightness > 1.0)
    below = blur.crop(scene) < 1.0
    floats = seen.double() / 255.0 + 1e-6 * torch.rand(seen.shape, dtype=DOUBLE)  # nothing counts as clipped
    usual = error(deblur(floats, k, NOISE).image, blur.crop(scene), below)
    assert error(found.image, blur.crop(scene), below) < (0.8 if raised else 1.01) * usual
    assert 0.3 < found.misfit < 1.3
