"""Kernels as people have them: margins, even sides, off-centre; each notice is measured."""

from __future__ import annotations

import math
import re

import pytest
import torch
from deconvolution_pictures import DOUBLE, kernel, photos
from torch import Tensor
from torch.nn.functional import pad

from surefoot._deconvolution.kernels import fast_valid_blur
from surefoot.deconvolution import PeriodicBlur, ValidBlur, deblur, prepared_kernel


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
