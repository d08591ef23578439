"""Kernels as people have them: margins, even sides, off-centre; each notice is measured."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
import torch
from deconvolution_pictures import DOUBLE, kernel, photos
from torch import Tensor
from torch.nn.functional import pad

from surefoot._deconvolution.photo.kernel_makers import kernel_by_formula
from surefoot._deconvolution.photo.kernels import fast_valid_blur
from surefoot.deconvolution import (
    PeriodicBlur,
    ValidBlur,
    airy_kernel,
    deblur,
    defocus_kernel,
    gaussian_kernel,
    motion_kernel,
    prepared_kernel,
)


def displacement(k: Tensor) -> tuple[float, float]:
    """How far Bz lies below and right of z, by the phase of a slow wave: a blur moves that by the place of its centre of mass."""
    found, size = [], 2048
    for turned in (k, k.T):
        blur = PeriodicBlur(turned, (size, turned.shape[1]))
        wave = torch.cos(2.0 * math.pi / size * torch.arange(size, dtype=DOUBLE))
        first = torch.fft.fft(blur.forward(wave[:, None].expand(blur.domain))[:, 0])[1]
        found.append(float(-torch.angle(first)) * size / (2.0 * math.pi))
    return found[0], found[1]


def said(notice: str) -> tuple[float, float]:
    """The same, of the opposite sign, from a notice on where the sharp picture lies."""
    directions = {"down": (1.0, 0.0), "up": (-1.0, 0.0), "right": (0.0, 1.0), "left": (0.0, -1.0)}
    moves = [(float(n), *directions[word]) for n, word in re.findall(r"([0-9.]+) (up|down|left|right)", notice)]
    return -sum(n * down for n, down, _ in moves), -sum(n * right for n, _, right in moves)


@pytest.mark.parametrize(
    ("margin", "words", "size"),
    [
        ((0, 1, 0, 1), "row 3, column 3 was taken as that", (5, 5)),  # padded to 6 x 6
        ((1, 0, 1, 0), "row 4, column 4 was taken as that", (5, 5)),
        ((0, 20, 0, 0), "off-centre", (5, 5)),
        ((3, 9, 15, 2), "off-centre", (5, 5)),
        ((12, 12, 12, 12), "was zero and was trimmed: 29 x 29 became 5 x 5", (5, 5)),
        ((0, 0, 0, 0), "", (5, 5)),
    ],
)
def test_padding_and_place_of_a_kernel_do_not_matter(
    margin: tuple[int, int, int, int], words: str, size: tuple[int, int]
) -> None:
    """However a symmetric kernel lies in its array, the same is used, and the picture moves by nothing."""
    rows = torch.tensor([1.0, 3.0, 7.0, 3.0, 1.0], dtype=DOUBLE)
    k = torch.outer(rows, rows.sqrt())
    ready, notices = prepared_kernel(pad(k, margin))
    assert ready.shape == size
    torch.testing.assert_close(ready, k / k.sum())
    assert words in " ".join(notices)
    assert max(map(abs, displacement(ready))) < 1e-6
    assert not any("but for" in notice for notice in notices)


@pytest.mark.parametrize("shape", [(4, 4), (6, 5), (2, 1), (7, 7), (1, 8), (9, 9)])
@pytest.mark.parametrize("margin", [(0, 0, 0, 0), (0, 1, 0, 1), (9, 0, 0, 6), (1, 4, 0, 0)])
def test_the_notice_says_by_how_much_the_picture_moves(shape: tuple[int, int], margin: tuple[int, ...]) -> None:
    """Of kernels without any symmetry."""
    k = kernel(*shape, seed=sum(shape)) ** 3 + (kernel(*shape) > 0.0) * 0.02
    ready, notices = prepared_kernel(pad(k, margin))
    down, right = displacement(ready)
    places = [notice for notice in notices if "sharp picture lies" in notice]
    if not places:
        assert math.hypot(down, right) < 1.01
        return
    assert said(places[0]) == pytest.approx((down, right), abs=0.06)
    if "off-centre" in places[0]:
        assert max(abs(down), abs(right)) <= 0.51  # the nearest pixel, but for a trimmed margin


def test_a_deblurred_picture_lies_where_the_blurred_one_does() -> None:
    """An off-centre kernel, and a wide margin, cost nothing."""
    k = torch.zeros(9, 9, dtype=DOUBLE)
    k[4, :] = 1.0 / 9.0
    sharp = photos(1, 96)[0]
    observed = ValidBlur(k, (96, 96)).forward(sharp)
    sharp = sharp[4:-4, 4:-4]
    usual = deblur(observed, k, 0.01)
    for margin in ((30, 0, 0, 22), (15, 15, 15, 15), (0, 1, 0, 1)):
        found = deblur(observed, pad(k, margin), 0.01)
        torch.testing.assert_close(found.image, usual.image)
    assert float((usual.image - sharp).square().mean()) < 0.5 * float((observed - sharp).square().mean())


def test_a_faint_margin_is_trimmed_and_its_share_is_said() -> None:
    spread = torch.arange(-20, 21, dtype=DOUBLE)
    profile = torch.exp(-0.5 * (spread / 3.0) ** 2)
    k = torch.outer(profile, profile)
    k = k / k.sum()
    ready, notices = prepared_kernel(k)
    side = ready.shape[0]
    assert ready.shape == (side, side) and 19 <= side < 30
    reach = (41 - side) // 2
    held = 100.0 * (1.0 - float(k[reach:-reach, reach:-reach].sum()))
    assert f"held {held:.2g} %" in notices[0] and held <= 0.1
    assert float(ready.sum()) == pytest.approx(1.0, abs=1e-12)
    wide = torch.full((41, 41), 1e-4, dtype=DOUBLE)  # faint, but too many to be spared
    wide[20, 20] = 1.0
    assert prepared_kernel(wide)[0].shape == (41, 41)


def test_kernels_of_camera_shake_keep_their_middle() -> None:
    """Their centre of mass lies off it, and pictures are compared with their truth by it."""
    k = torch.zeros(13, 13, dtype=DOUBLE)
    k[2:11, 4] = torch.arange(9, 0, -1, dtype=DOUBLE)
    k[10, 4:9] += 1.0
    ready, notices = prepared_kernel(k / k.sum())
    assert displacement(ready) == pytest.approx(displacement(k / k.sum()), abs=1e-6)
    assert "its middle, which was kept" in notices[-1]


@pytest.mark.parametrize("size", [(5, 3), (4, 6), (1, 1), (12, 11)])
@pytest.mark.parametrize("shape", [(12, 11), (31, 43)])
def test_a_margin_of_zeros_makes_the_latent_grid_fast_and_leaves_the_blur_as_it_is(
    size: tuple[int, int], shape: tuple[int, int]
) -> None:
    taps = kernel(*size)
    plain, fast = ValidBlur.observing(taps, shape), fast_valid_blur(taps, shape)
    assert fast.range == shape and all(a <= b for a, b in zip(plain.domain, fast.domain, strict=True))
    assert all(set(primes(side)) <= {2, 3, 5} for side in fast.domain)
    latent = torch.randn(fast.domain, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    inner = latent
    for axis, (a, b, side) in enumerate(zip(taps.shape, fast.kernel.shape, plain.domain, strict=True)):
        first = (b - 1 - b // 2) - (a - 1 - a // 2)  # where the observed pixel 0 lies, in either latent grid
        inner = inner.narrow(axis, first, side)
    assert torch.allclose(fast.forward(latent), plain.forward(inner), atol=1e-13)


def primes(number: int) -> list[int]:
    """Its prime factors."""
    for factor in range(2, number + 1):
        if number % factor == 0:
            return [factor, *primes(number // factor)]
    return []


# -- by formula --------------------------------------------------------------------------------------------------------


def spread(k: Tensor) -> tuple[float, float]:
    """The variance down and across."""
    rows, columns = (torch.arange(size, dtype=DOUBLE) - size // 2 for size in k.shape)
    return float((k.sum(1) * rows.square()).sum()), float((k.sum(0) * columns.square()).sum())


@pytest.mark.parametrize(
    ("k", "variances"),
    [
        (motion_kernel(9, 0), (0.0, 80.0 / 12.0)),  # nine ninths
        (motion_kernel(9, 90), (80.0 / 12.0, 0.0)),
        (
            motion_kernel(20, 45),
            (200.0 / 12.0 + 1.0 / 6.0, 200.0 / 12.0 + 1.0 / 6.0),
        ),  # that of the band, and a pixel's
        (defocus_kernel(4), (4.0 + 1.0 / 12.0, 4.0 + 1.0 / 12.0)),  # r²/4, and a pixel's
        (gaussian_kernel(1.5), (2.25 + 1.0 / 12.0, 2.25 + 1.0 / 12.0)),
    ],
)
def test_made_kernels_are_odd_centred_and_of_their_size(k: Tensor, variances: tuple[float, float]) -> None:
    assert k.dtype == DOUBLE and all(size % 2 for size in k.shape)
    assert float(k.sum()) == pytest.approx(1.0, abs=1e-12) and float(k.min()) >= 0.0
    assert max(map(abs, displacement(k))) < 1e-6
    torch.testing.assert_close(k, k.flip(0, 1), atol=1e-12, rtol=0.0)
    assert spread(k) == pytest.approx(variances, rel=0.01, abs=1e-9)


def test_nine_pixels_of_motion_are_nine_ninths() -> None:
    torch.testing.assert_close(motion_kernel(9, 0), torch.full((1, 9), 1.0 / 9.0, dtype=DOUBLE))


def test_motion_goes_counter_clockwise() -> None:
    k = motion_kernel(9, 30)
    rows, columns = (torch.arange(size, dtype=DOUBLE) - size // 2 for size in k.shape)
    assert float((k * rows[:, None] * columns).sum()) < -1.0  # up to the right


def test_the_first_dark_ring_of_a_microscope() -> None:
    """At 0.61 λ/NA, between 5 and 6 pixels here; inside lies 84 % of the light (Born and Wolf, section 8.5)."""
    k = airy_kernel(0.5, 0.5, 0.61 * 0.5 / 0.5 / 5.5)
    middle = k.shape[0] // 2
    line = k[middle, middle:]
    assert int(line[:10].argmin()) in (5, 6) and float(line[5:7].min()) < 0.01 * float(line[0])
    rows = torch.arange(k.shape[0], dtype=DOUBLE) - middle
    inside = torch.hypot(rows[:, None], rows) < 5.5
    assert 0.82 < float(k[inside].sum()) < 0.88


@pytest.mark.parametrize("make", [motion_kernel, defocus_kernel, gaussian_kernel])
def test_made_kernels_without_extent_or_with_too_much(make: Callable[..., Tensor]) -> None:
    assert torch.equal(prepared_kernel(make(0.01))[0], torch.ones(1, 1, dtype=DOUBLE))
    for wrong in (0.0, -2.0, math.nan):
        with pytest.raises(ValueError, match="must be a positive number"):
            make(wrong)
    with pytest.raises(ValueError, match="pixels a side; at most"):
        make(9999.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("motion:9", r"kernel is 'motion:9'; write motion:LENGTH,ANGLE, for example motion:9,30"),
        ("motion:9,x", "write motion:LENGTH,ANGLE"),
        ("defocus:-1", "radius is -1.0.*write defocus:RADIUS"),
        ("airy:1.4,0.5", "write airy:NA,WAVELENGTH,PIXEL"),
        ("gaussian:inf", "write gaussian:SIGMA"),
    ],
)
def test_formulas_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kernel_by_formula(text)


def test_formulas_name_kernels() -> None:
    found = kernel_by_formula("motion:9,30")
    assert found is not None
    torch.testing.assert_close(found, prepared_kernel(motion_kernel(9, 30))[0])
    assert kernel_by_formula("k.npy") is None and kernel_by_formula("file.npz:motion") is None


def test_a_kernel_of_one_pixel_says_that_it_blurs_nothing() -> None:
    for formula in ("defocus:1e-9", "gaussian:1e-9"):
        k = kernel_by_formula(formula)
        assert k is not None and k.shape == (1, 1)
        assert prepared_kernel(k)[1] == ("the kernel is one pixel, which blurs nothing: only noise is taken away",)
