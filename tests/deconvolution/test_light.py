"""The encoding of sRGB, and blurs that act on light."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from deconvolution_pictures import DOUBLE
from torch import Tensor

from surefoot._deconvolution.photo.light import decode, decoding_slope, encode
from surefoot.deconvolution import ValidBlur, deblur, motion_kernel, psnr

NOISE = 0.005


def test_the_curve_of_the_standard() -> None:
    """Values of IEC 61966-2-1, and of everybody's tables."""
    samples = torch.tensor([0.0, 0.04045, 0.5, 0.735357, 1.0], dtype=DOUBLE)
    light = torch.tensor([0.0, 0.0031308, 0.21404114, 0.5, 1.0], dtype=DOUBLE)
    torch.testing.assert_close(decode(samples), light, atol=1e-6, rtol=0.0)
    torch.testing.assert_close(encode(light), samples, atol=1e-6, rtol=0.0)
    assert float(decode(torch.tensor(1.5))) > 1.0 and float(decode(torch.tensor(-0.2))) < 0.0


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
def test_encoding_is_the_inverse(dtype: torch.dtype) -> None:
    samples = torch.linspace(-0.5, 2.0, 20001, dtype=DOUBLE).to(dtype)
    torch.testing.assert_close(encode(decode(samples)), samples, atol=4.0 * torch.finfo(dtype).eps, rtol=0.0)
    assert bool((decode(samples).diff() >= 0.0).all())
    steps = torch.arange(65536, dtype=torch.float32) / 65535.0
    assert torch.equal((encode(decode(steps)) * 65535.0).round(), (steps * 65535.0).round())


def test_the_slope_is_the_derivative() -> None:
    samples = torch.linspace(-0.2, 1.3, 151, dtype=DOUBLE)
    samples = samples[(samples.abs() - 0.04045).abs() > 1e-3].requires_grad_()
    (slope,) = torch.autograd.grad(decode(samples).sum(), samples)
    torch.testing.assert_close(decoding_slope(samples.detach()), slope)


def photo(light: bool) -> tuple[np.ndarray, Tensor, Tensor]:
    """One of scikit-learn's photographs in 8 bits, blurred in linear light or as it is, with the kernel and the sharp samples."""
    from sklearn.datasets import load_sample_images

    sharp = torch.from_numpy(load_sample_images().images[1][150:270, 60:190] / 255.0).movedim(-1, 0)
    kernel = motion_kernel(11, 20)
    scene = decode(sharp) if light else sharp
    blur = ValidBlur(kernel, tuple(scene.shape[1:]))
    seen = blur.forward(scene)
    seen = seen + NOISE * torch.randn(seen.shape, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)
    samples = encode(seen.clamp(0.0, 1.0)) if light else seen
    return (samples * 255.0).round().clamp(0.0, 255.0).byte().movedim(0, -1).numpy(), kernel, blur.crop(sharp)


@pytest.mark.parametrize(("light", "right", "wrong"), [(True, "srgb", "linear"), (False, "linear", "srgb")])
def test_the_light_in_which_a_photo_was_blurred_matters(light: bool, right: str, wrong: str) -> None:
    """``auto`` takes 8 bits as sRGB and 16 bits as they are, and says where the photo speaks against that."""
    samples, kernel, sharp = photo(light)
    found, other = deblur(samples, kernel, gamma=right), deblur(samples, kernel, gamma=wrong)
    gain = float(psnr(found.image.double(), sharp).mean() - psnr(other.image.double(), sharp).mean())
    assert gain > 2.0
    assert found.estimated and 0.6 * NOISE < found.noise < 1.6 * NOISE  # where the noise was added
    short, deep = (deblur(given, kernel, NOISE, gamma="auto") for given in (samples, samples.astype(np.uint16) * 257))
    assert (short.light, deep.light) == ("srgb", "linear")
    for automatic in (short, deep):
        said = [notice for notice in automatic.notices if "try gamma" in notice]
        assert [notice.endswith(f"try gamma {right}") for notice in said] == [True] * (automatic.light != right)


def test_floats_and_arrays_are_taken_as_they_are() -> None:
    """Unless the caller says otherwise."""
    samples, kernel, _ = photo(True)
    assert deblur(samples, kernel, NOISE).light == "linear"
    floats = torch.from_numpy(samples).movedim(-1, 0) / 255.0
    assert deblur(floats, kernel, NOISE, gamma="auto").light == "linear"
    whole, decoded = deblur(samples, kernel, NOISE, gamma="srgb"), deblur(decode(floats), kernel, NOISE)
    torch.testing.assert_close(whole.image, encode(decoded.image).clamp(0.0, 1.0), atol=1e-3, rtol=0.0)


def test_other_gammas_are_refused() -> None:
    with pytest.raises(ValueError, match=r"gamma is 'rgb'; pass one of 'auto', 'srgb', 'linear'"):
        deblur(torch.rand(20, 20), torch.ones(3, 3), NOISE, gamma="rgb")
