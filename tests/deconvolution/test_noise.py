"""Noise levels of blurred photographs whose kernel is known: PNG, JPEG, colour, clipped and clean pictures."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
import torch
from deconvolution_pictures import DOUBLE
from torch import Tensor

from surefoot._deconvolution.noise.estimate import QUANTISATION
from surefoot._deconvolution.noise.jpeg_steps import jpeg_of, table
from surefoot.deconvolution import PeriodicBlur, ValidBlur, deblur, estimate_noise

DIAGONAL = torch.eye(9, dtype=DOUBLE) / 9.0
ROW = torch.full((1, 7), 1.0 / 7.0, dtype=DOUBLE)
DISC = (torch.hypot(*torch.meshgrid(torch.arange(-4.0, 5.0), torch.arange(-4.0, 5.0), indexing="ij")) <= 4.2).double()
KERNELS = {"diagonal": DIAGONAL, "row": ROW, "disc": DISC / DISC.sum()}


def photo(side: int = 128, colour: bool = False) -> Tensor:
    """Part of a photograph of scikit-learn."""
    from sklearn.datasets import load_sample_image

    image = torch.tensor(load_sample_image("china.jpg")[150 : 150 + side, 250 : 250 + side] / 255.0).movedim(-1, 0)
    return image if colour else image.mean(0)


def blurred(k: Tensor, noise: float, *, colour: bool = False, side: int = 128, seed: int = 0) -> Tensor:
    """An observed picture, rounded to 8 bits."""
    sharp = photo(side, colour)
    clean = ValidBlur(k, (side, side)).forward(sharp)
    drawn = torch.randn(clean.shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)
    return (255.0 * (clean + noise * drawn)).round().clamp(0.0, 255.0) / 255.0


def through_jpeg(picture: Tensor, quality: int) -> Tensor:
    from PIL import Image

    pixels = (255.0 * picture).round().to(torch.uint8)
    file = io.BytesIO()
    Image.fromarray((pixels if pixels.ndim == 2 else pixels.movedim(0, -1)).numpy()).save(file, "JPEG", quality=quality)
    read = torch.from_numpy(np.asarray(Image.open(file)) / 255.0)
    return read if read.ndim == 2 else read.movedim(-1, 0)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("noise", [0.004, 0.01, 0.04])
def test_noise_of_blurred_photographs(name: str, noise: float) -> None:
    found = estimate_noise(blurred(KERNELS[name], noise), KERNELS[name])
    assert found.level == pytest.approx(math.hypot(noise, QUANTISATION), rel=0.25)
    assert (found.level, found.compression, found.quality) == (found.noise, 0.0, None)
    assert float(found) == found.level


def test_the_kernel_tells_detail_from_noise() -> None:
    """A diagonal blur leaves detail across it, in which an estimate that does not know of the blur sees noise."""
    observed = blurred(DIAGONAL, 0.01)
    assert abs(estimate_noise(observed, DIAGONAL).level / 0.01 - 1.0) < 0.1
    assert estimate_noise(observed).level > estimate_noise(observed, DIAGONAL).level


@pytest.mark.parametrize("quality", [60, 75, 90, 95])
def test_noise_of_jpeg_is_that_before_compression(quality: int) -> None:
    k = KERNELS["disc"]
    found = estimate_noise(through_jpeg(blurred(k, 0.015), quality), k)
    assert found.quality == quality
    assert found.noise == pytest.approx(0.015, rel=0.2)
    clean = blurred(k, 0.0)
    error = float((through_jpeg(clean, quality) - ValidBlur(k, (128, 128)).forward(photo())).square().mean().sqrt())
    assert found.compression == pytest.approx(error, rel=0.25)
    assert found.level == pytest.approx(math.hypot(found.noise, found.compression))


def test_jpeg_in_colour_and_cropped() -> None:
    k = KERNELS["disc"]
    file = through_jpeg(blurred(k, 0.02, colour=True), 80)
    for picture in (file, file[:, 3:, 5:].contiguous()):
        found = estimate_noise(picture, k)
        assert found.quality == 80
        assert found.noise == pytest.approx(0.02, rel=0.2)


def test_what_compression_hides_is_said() -> None:
    k = KERNELS["row"]
    found = estimate_noise(through_jpeg(blurred(k, 0.002), 60), k)
    assert found.unsure and "JPEG of quality 60" in found.reasons[0]
    assert found.level >= found.compression > 0.002


def test_jpeg_is_not_seen_where_there_is_none() -> None:
    for noise in (0.0, 0.002, 0.02):
        for side in (24, 128):
            levels = 255.0 * blurred(DIAGONAL, noise, side=side + 8)
            assert jpeg_of(levels, torch.zeros(levels.shape, dtype=torch.bool)) is None


def test_other_tables_of_jpeg_are_read_from_the_picture() -> None:
    from PIL import Image

    steps = [int(n) for n in (3 + 2 * torch.arange(64) // 7)]
    pixels = (255.0 * blurred(ROW, 0.03)).to(torch.uint8).numpy()
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", qtables=[steps])
    picture = torch.from_numpy(np.asarray(Image.open(file)) / 255.0)
    found = estimate_noise(picture, ROW)
    assert found.quality is None and found.compression > 0.0
    assert found.noise == pytest.approx(0.03, rel=0.2)


def test_the_standard_table() -> None:
    assert table(50)[0].tolist() == [16.0, 11.0, 10.0, 16.0, 24.0, 40.0, 51.0, 61.0]
    assert table(90)[7, 7] == 20.0 and table(10)[0, 0] == 80.0 and bool((table(100) == 1.0).all())


def test_colours_share_a_level() -> None:
    found = estimate_noise(blurred(DIAGONAL, 0.02, colour=True), DIAGONAL)
    assert found.level == pytest.approx(0.02, rel=0.1) and not found.unsure


def test_noise_of_a_clean_picture_is_that_of_rounding() -> None:
    assert estimate_noise(torch.full((16, 16), 0.2, dtype=DOUBLE)).level == pytest.approx(QUANTISATION)
    k = KERNELS["disc"]
    assert estimate_noise(blurred(k, 0.0), k).level == pytest.approx(QUANTISATION, rel=0.25)


def test_a_picture_in_floats_can_have_less_noise_than_rounding() -> None:
    k = KERNELS["disc"]
    clean = ValidBlur(k, (128, 128)).forward(photo())
    found = estimate_noise(clean + 0.001 * torch.randn(clean.shape, dtype=DOUBLE), k)
    assert found.level == pytest.approx(0.001, rel=0.25) and not found.unsure
    even = estimate_noise(torch.full((16, 16), 0.123, dtype=DOUBLE))
    assert even.level < 1e-4 and "no noise can be seen" in even.reasons[-1]


def test_noise_that_is_coarser_than_white_is_taken_where_it_matters() -> None:
    """As of a camera that smooths its pictures: fine detail is nearly free of noise, what is restored is not."""
    k = KERNELS["disc"]
    clean = ValidBlur(k, (128, 128)).forward(photo())
    taps = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0], dtype=DOUBLE) / 16.0
    grain = PeriodicBlur(torch.outer(taps, taps), (120, 120)).forward(torch.randn(120, 120, dtype=DOUBLE))
    found = estimate_noise(clean + 0.03 * grain, k)
    assert "coarser than white" in found.reasons[0]
    assert 0.002 < found.level < 0.03  # 0.0082 over all frequencies, 0.03 at the lowest, 0 at the highest


def test_saturated_pixels_do_not_hide_the_noise() -> None:
    picture = (0.5 + 0.02 * torch.randn(64, 64, dtype=DOUBLE)).clone()
    picture[:48] = 1.0
    found = estimate_noise(picture)
    assert found.level == pytest.approx(0.02, rel=0.2)
    assert found.unsure and "black or white" in found.reasons[0]
    assert math.isfinite(estimate_noise(torch.ones(16, 16, dtype=DOUBLE)).level)


def test_a_small_picture_is_unsure() -> None:
    found = estimate_noise(0.5 + 0.02 * torch.randn(9, 9, dtype=DOUBLE))
    assert 0.005 < found.level < 0.05
    assert any("parts of the picture only" in reason for reason in found.reasons)


def test_deblurring_takes_the_estimate_and_its_doubts() -> None:
    observed = through_jpeg(blurred(ROW, 0.002), 60)
    found = deblur(observed, ROW)
    assert found.estimated and found.noise == estimate_noise(observed, ROW).level
    assert any("the noise level is unsure: the picture was compressed" in notice for notice in found.notices)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="at least 8 x 8"):
        estimate_noise(torch.ones(7, 8))
    with pytest.raises(ValueError, match="channels, rows"):
        estimate_noise(torch.ones(1, 1, 16, 16))
    with pytest.raises(ValueError, match="one kernel"):
        estimate_noise(torch.ones(16, 16), torch.ones(2, 3, 3))
    with pytest.raises(ValueError, match="negative"):
        estimate_noise(torch.ones(16, 16), -torch.ones(3, 3))
    with pytest.raises(TypeError, match="image"):
        estimate_noise("photo.png")


def test_floats_beyond_black_and_white_are_not_clipped() -> None:
    """Such as where a background was subtracted."""
    noisy = blurred(DIAGONAL, 0.01) + 1e-4 * torch.rand(
        120, 120, generator=torch.Generator().manual_seed(1), dtype=DOUBLE
    )
    usual = estimate_noise(noisy, DIAGONAL)
    for offset in (-3.0, -0.3, 2.0):
        moved = estimate_noise(noisy + offset, DIAGONAL)
        assert moved.level == pytest.approx(usual.level, rel=1e-6) and moved.reasons == usual.reasons
