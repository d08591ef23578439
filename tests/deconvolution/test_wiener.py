"""Wiener filters, noise estimates and quality measures against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from deconvolution_pictures import DOUBLE, blurs, kernel, noisy, photos, stacks

from surefoot.deconvolution import (
    Blur,
    PeriodicBlur,
    ValidBlur,
    aligned_psnr,
    best_shift,
    gradient_wiener,
    psnr,
    ssim,
    wiener,
)

BLURS = blurs() | stacks()
every = pytest.mark.parametrize("blur", BLURS.values(), ids=list(BLURS))


@every
def test_gradient_wiener_minimises_its_objective(blur: Blur) -> None:
    """The gradient of ‖Bz - y‖² + τ Σ_i ‖∂_i z‖² vanishes at the result."""
    y = torch.rand(2, 3, *blur.range, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)
    z = gradient_wiener(blur, y, 0.05, 0.1)
    laplacian = sum(2.0 * z - z.roll(1, axis) - z.roll(-1, axis) for axis in blur.axes)
    gradient = blur.gram(z) - blur.adjoint(y) + 0.25 * laplacian
    assert float(gradient.norm()) <= 2e-4 * float(blur.adjoint(y).norm())


@every
def test_wiener_minimises_its_objective_and_keeps_the_mean(blur: Blur) -> None:
    y = torch.rand(2, 3, *blur.range, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)
    z = wiener(blur, y, 0.05, 0.1)
    mean = y.mean(blur.axes, keepdim=True)
    gradient = blur.adjoint(blur.forward(z - mean) - (y - mean)) + 0.25 * (z - mean)
    assert float(gradient.norm()) <= 2e-4 * float(blur.adjoint(y).norm())
    if isinstance(blur, PeriodicBlur):
        torch.testing.assert_close(z.mean(blur.axes, keepdim=True), mean)


@pytest.mark.parametrize("kind", [PeriodicBlur, ValidBlur])
def test_wiener_filters_restore_photographs(kind: type[PeriodicBlur] | type[ValidBlur]) -> None:
    sharp = photos(4, 96)
    blur = kind(kernel(7, 7), (96, 96))
    observed, truth = noisy(blur, sharp, 0.01), blur.crop(sharp)
    before = psnr(observed, truth).mean()
    plain = psnr(blur.crop(wiener(blur, observed, 0.01)), truth).mean()
    gradient = psnr(blur.crop(gradient_wiener(blur, observed, 0.01)), truth).mean()
    assert before + 1.0 < plain < gradient


def test_noiseless_limit_of_an_invertible_blur() -> None:
    k = torch.zeros(3, 3, dtype=DOUBLE)
    k[1, 1], k[1, 2] = 0.8, 0.2
    blur, z = PeriodicBlur(k, (16, 16)), torch.rand(16, 16, dtype=DOUBLE)
    torch.testing.assert_close(gradient_wiener(blur, blur.forward(z), 1e-9), z, rtol=0, atol=1e-8)


def test_psnr_by_hand() -> None:
    a, b = torch.zeros(2, 4, 4, dtype=DOUBLE), torch.zeros(2, 4, 4, dtype=DOUBLE)
    b[0] += 0.1
    b[1, 0, 0] = 0.4
    assert psnr(a, b).tolist() == pytest.approx([20.0, 20.0])
    assert psnr(a, b, peak=10.0)[0].item() == pytest.approx(40.0)
    assert psnr(a, b, border=1)[1].item() == float("inf")
    with pytest.raises(ValueError, match="nothing left"):
        psnr(a, b, border=2)
    with pytest.raises(ValueError, match="images of one size"):
        psnr(a, b[:, :3])


def gaussian_ssim(a: np.ndarray, b: np.ndarray) -> float:
    """SSIM window by window, from the definition."""
    offsets = np.arange(-5, 6)
    taps = np.exp(-(offsets**2) / 4.5)
    window = np.outer(taps, taps) / taps.sum() ** 2
    values = []
    for i in range(a.shape[0] - 10):
        for j in range(a.shape[1] - 10):
            p, q = a[i : i + 11, j : j + 11], b[i : i + 11, j : j + 11]
            mp, mq = (window * p).sum(), (window * q).sum()
            vp, vq = (window * (p - mp) ** 2).sum(), (window * (q - mq) ** 2).sum()
            cov = (window * (p - mp) * (q - mq)).sum()
            values.append((2 * mp * mq + 1e-4) * (2 * cov + 9e-4) / ((mp**2 + mq**2 + 1e-4) * (vp + vq + 9e-4)))
    return float(np.mean(values))


def test_ssim_is_that_of_the_definition() -> None:
    a = photos(2, 20)
    b = a + 0.05 * torch.randn(a.shape, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)
    found = ssim(a, b)
    assert found.tolist() == pytest.approx([gaussian_ssim(x.numpy(), y.numpy()) for x, y in zip(a, b, strict=True)])
    assert ssim(a, a).tolist() == pytest.approx([1.0, 1.0])
    with pytest.raises(ValueError, match="at least 11"):
        ssim(a[:, :8], b[:, :8])


@pytest.mark.parametrize("shift", [(0, 0), (2, -3), (-5, 5)])
def test_best_shift_is_found(shift: tuple[int, int]) -> None:
    wide = photos(1, 64)[0]
    reference = wide[8:56, 8:56]
    image = wide[8 + shift[0] : 56 + shift[0], 8 + shift[1] : 56 + shift[1]]
    assert best_shift(image, reference) == shift
    assert aligned_psnr(image + 0.01, reference, border=2) == pytest.approx(40.0)


def test_bad_arguments() -> None:
    blur, picture = PeriodicBlur(kernel(3, 3), (8, 8)), torch.rand(8, 8, dtype=DOUBLE)
    for arguments, name in (((0.0, 1.0), "noise"), ((0.1, -1.0), "signal")):
        with pytest.raises(ValueError, match=f"{name} is"):
            wiener(blur, picture, *arguments)
    with pytest.raises(ValueError, match="gradient is nan"):
        gradient_wiener(blur, picture, 0.1, float("nan"))
    picture[3, 4] = torch.nan
    with pytest.raises(ValueError, match=r"pixel \(3, 4\)"):
        gradient_wiener(blur, picture, 0.1)
