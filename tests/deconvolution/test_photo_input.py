"""Photographs as callers have them, and back: PIL images, arrays, tensors, in any unit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from deconvolution_pictures import kernel
from PIL import Image

from surefoot._deconvolution.photo.form import photo_input
from surefoot._deconvolution.photo.kernel_grid import prepared
from surefoot.deconvolution import deblur

RANDOM = np.random.default_rng(0)
COLOUR = RANDOM.integers(0, 256, (12, 17, 3), dtype=np.uint8)
FORMS: dict[str, Callable[[], Any]] = {
    "PIL grey": lambda: Image.fromarray(COLOUR[..., 0]),
    "PIL colour": lambda: Image.fromarray(COLOUR),
    "PIL floats": lambda: Image.fromarray(COLOUR[..., 0] / np.float32(255)),
    "PIL 16 bits": lambda: Image.fromarray(COLOUR[..., 0].astype(np.uint16) * 257),
    "PIL, three rows": lambda: Image.fromarray(COLOUR[:3]),
    "bytes HWC": lambda: COLOUR,
    "bytes CHW": lambda: np.moveaxis(COLOUR, -1, 0),
    "read-only, big-endian": lambda: np.frombuffer(COLOUR[..., 0].astype(">u2").tobytes(), ">u2").reshape(12, 17),
    "one colour": lambda: COLOUR[..., :1],
    "deep": lambda: COLOUR.astype(np.uint16) * 257,
    "floats HWC": lambda: COLOUR / 255.0,
    "tensor CHW": lambda: torch.from_numpy(np.moveaxis(COLOUR, -1, 0) / np.float32(255)),
    "tensor HWC": lambda: torch.from_numpy(COLOUR),
    "deep tensor": lambda: torch.from_numpy(COLOUR.astype(np.uint16) * 257),
}


@pytest.mark.parametrize("name", FORMS)
def test_what_goes_in_comes_back(name: str) -> None:
    photo = FORMS[name]()
    given = photo_input(photo)
    values = given.intensities
    assert values.dtype in (torch.float32, torch.float64) and 0.9 < float(values.max()) <= 1.0
    if values.ndim == 3:
        rows = values.shape[1]
        expected = torch.from_numpy(np.moveaxis(COLOUR[:rows] / 255.0, -1, 0))
        torch.testing.assert_close(values.double(), expected, atol=1e-6, rtol=0.0)
    back = given.form.of(values)
    assert type(back) is (Image.Image if isinstance(photo, Image.Image) else type(photo))
    if isinstance(photo, torch.Tensor):
        assert back.dtype == photo.dtype and torch.equal(back.double(), photo.double())
    else:
        a, b = np.asarray(photo), np.asarray(back)
        assert a.shape == b.shape and b.dtype == a.dtype.newbyteorder("=") and np.array_equal(a, b)


@pytest.mark.parametrize(
    ("mode", "notice"),
    [
        ("RGBA", "its mode RGBA became RGB, without its alpha channel, which is opaque"),
        ("LA", "its mode LA became grey, without its alpha channel, which is opaque"),
        ("CMYK", "its mode CMYK became RGB"),
        ("P", "its mode P became RGB"),
        ("1", "its mode 1 became grey"),
    ],
)
def test_pil_images_of_other_modes_say_what_they_became(mode: str, notice: str) -> None:
    photo = Image.fromarray(COLOUR).convert(mode)
    given = photo_input(photo)
    expected = "L" if "grey" in notice else "RGB"
    assert given.notices == (notice,) and given.form.of(given.intensities).mode == expected
    same = photo_input(photo.convert(expected))
    assert torch.equal(given.intensities, same.intensities) and same.notices == ()


def test_the_notice_is_that_of_the_result() -> None:
    found = deblur(Image.fromarray(COLOUR).convert("LA"), np.ones((3, 3), np.uint8), 0.01)
    assert found.notices[0].startswith("its mode LA became grey") and found.like_input.mode == "L"


def test_pil_images_of_32_bits_that_hold_16() -> None:
    samples = COLOUR[..., 0].astype(np.int32) * 257
    given = photo_input(Image.fromarray(samples))
    assert (
        given.form.of(given.intensities).mode == "I;16"
        and "its 32-bit numbers were taken as 16-bit" in given.notices[0]
    )
    assert np.array_equal(np.asarray(given.form.of(given.intensities)), samples)
    for wrong in (samples - 1, samples + 65536):
        with pytest.raises(ValueError, match="image mode I is not supported"):
            photo_input(Image.fromarray(wrong))


def test_kernels_of_any_numbers() -> None:
    k = np.array([[0, 1, 0], [1, 4, 1], [0, 1, 0]])
    expected = prepared(k / 8.0, (12, 17))[1]
    for given in (
        *(k, k.astype(np.uint8), k.astype(np.float16), k.tolist()),
        *(torch.from_numpy(k), torch.from_numpy(k).half(), Image.fromarray(k.astype(np.uint8))),
    ):
        assert torch.equal(prepared(given, (12, 17))[1], expected)
    for wrong in (k * 1j, k.astype(str)):
        with pytest.raises(TypeError, match="kernel has dtype"):
            prepared(wrong, (12, 17))


def test_floats_are_not_clipped_and_whole_numbers_are() -> None:
    photo = np.full((9, 9), 0.5, np.float32)
    photo[4, 4] = 1.62
    one = torch.ones(1, 1, dtype=torch.float64)
    assert np.allclose(deblur(photo, one, 1e-4).like_input, photo, atol=2e-3)  # not 1.0
    form = photo_input(COLOUR).form
    assert form.of(torch.full((3, 12, 17), 1.3)).max() == 255 and form.of(torch.full((3, 12, 17), -0.3)).min() == 0


def test_the_unit_does_not_matter() -> None:
    k, photo = kernel(3, 3), RANDOM.random((20, 24)) * 0.9
    plain = deblur(photo, k, 0.01).like_input
    counts = deblur(photo * 4095.0, k, 0.01, white=4095.0)
    assert np.allclose(counts.like_input / 4095.0, plain, atol=1e-4) and counts.form.white == 4095.0
    guessed = deblur(photo * 4095.0, k, 0.01, white="auto")
    assert 0.8 * 4095.0 < guessed.form.white < 4095.0 and "is taken as white" in guessed.notices[0]
    with pytest.raises(ValueError, match="or pass that as white"):
        deblur(photo * 4095.0, k, 0.01)


@pytest.mark.parametrize(
    ("photo", "white"),
    [
        (np.array([[0.0, 0.2], [0.5, 1.62]]), 1.0),
        (np.zeros((4, 4)), 1.0),
        (np.full((4, 4), -3.0), 3.0),
        (np.full((4, 4), 1e-12), 1e-12),
        (np.full((4, 4), 4000, np.uint16), 4095.0),
        (np.full((4, 4), 200, np.uint16), 255.0),
        (np.full((4, 4), 30000, np.uint16), 65535.0),
        (np.zeros((4, 4), np.uint16), 65535.0),
        (np.full((4, 4), 200, np.uint8), 255.0),
    ],
)
def test_white_is_guessed(photo: np.ndarray, white: float) -> None:
    given = photo_input(photo, "auto")
    assert given.form.white == pytest.approx(white)
    assert bool(given.notices) == (white not in (1.0, 65535.0) and photo.dtype != np.uint8)


def test_a_few_stars_do_not_decide_about_white() -> None:
    sky = RANDOM.normal(100.0, 5.0, (200, 200))
    sky[::67, ::67] = 60000.0
    assert 100.0 < photo_input(sky, "auto").form.white < 130.0


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "ambiguous": (
        np.zeros((3, 9, 3)),
        ValueError,
        r"shape \(3, 9, 3\): its colours could be the first axis or the last",
    ),
    "batch": (np.zeros((2, 3, 9, 9)), ValueError, r"shape \(2, 3, 9, 9\); pass grey"),
    "alpha": (np.zeros((9, 9, 4), np.uint8), ValueError, r"shape \(9, 9, 4\); pass grey.*leave its alpha channel out"),
    "empty": (np.zeros((0, 9), np.uint8), ValueError, "non-empty"),
    "integers": (np.zeros((9, 9), np.int32), TypeError, "photo has dtype int32; pass uint8, uint16, or float32"),
    "truth values": (np.zeros((9, 9), bool), TypeError, "photo has dtype bool"),
    "half": (np.zeros((9, 9), np.float16), TypeError, "photo has dtype float16"),
    "name": ("photo.png", TypeError, "photo is 'photo.png', a name; open the file first"),
    "transparent": (Image.new("RGBA", (9, 9)), ValueError, "has transparent pixels"),
    "thin": (np.zeros((1, 9), np.uint8), ValueError, "at least 2 a side"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name: str) -> None:
    photo, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        photo_input(photo)


@pytest.mark.parametrize("white", [0.0, -1.0, float("nan"), float("inf")])
def test_a_white_that_is_none(white: float) -> None:
    with pytest.raises(ValueError, match="white is"):
        photo_input(np.zeros((4, 4)), white)
