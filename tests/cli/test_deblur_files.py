"""``surefoot deblur`` with files of every format, and with many of them."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from surefoot._data.pictures import Picture, read_picture, write_png
from surefoot._deconvolution import command_deblur_run

RANDOM = np.random.default_rng(0)
SMOOTH = np.add.outer(np.linspace(0.1, 0.7, 12), np.linspace(0.0, 0.25, 15))
GREY = (SMOOTH + 0.01 * RANDOM.standard_normal((12, 15))).astype(np.float32)
COLOUR = np.stack([GREY, 0.5 * GREY, GREY**2], axis=-1)
FEW = ("--noise", "0.001")


@pytest.fixture
def k(tmp_path: Path) -> Path:
    (tmp_path / "k.txt").write_text("1")  # a blur that is none, so that what comes out can be told
    return tmp_path / "k.txt"


@pytest.fixture
def deblur(run, k: Path) -> Callable[..., Any]:
    return lambda *arguments: run("deblur", *arguments, "--kernel", k, *FEW)


def png(path: Path, shift: int = 0) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(write_png(Picture(np.rint(255 * GREY).astype(np.uint8) + np.uint8(shift))))
    return path


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


# -- formats -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("planar", [False, True])
@pytest.mark.parametrize("scale", [1.0, 2.3, 4095.0, 1e-9])
def test_floats_of_any_unit_are_not_clipped(deblur, tmp_path: Path, scale: float, planar: bool) -> None:
    pixels = COLOUR.copy()
    pixels[5, 6] = 1.62  # a highlight
    array = (np.moveaxis(pixels, -1, 0) if planar else pixels) * np.float32(scale)
    np.save(tmp_path / "in.npy", array)
    outcome = deblur(tmp_path / "in.npy", "--out", tmp_path / "o.npy")
    assert outcome.code == 0, outcome.err
    after = np.load(tmp_path / "o.npy")
    assert after.shape == array.shape and after.dtype == np.float32
    assert np.abs(after - array).max() < 0.05 * scale and after.max() > 1.55 * scale
    assert ("is taken as white; nothing is clipped" in " ".join(outcome.out.split())) == (scale != 1.0)
    given = deblur(tmp_path / "in.npy", "--out", tmp_path / "given.npy", "--white", scale, "--json").json
    assert given["photo"]["white"] == scale and given["photo"]["floats"] is True


def test_an_archive_names_its_photo(deblur, tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", a=GREY, b=np.rint(65535 * COLOUR).astype(np.uint16))
    assert deblur(f"{tmp_path}/two.npz:b", "--out", tmp_path / "o.png").code == 0
    assert read_picture(tmp_path / "o.png").pixels.dtype == np.uint16
    assert deblur(f"{tmp_path}/two.npz:a", "--out", tmp_path).code == 0
    assert np.load(tmp_path / "two-a.npy").dtype == np.float32
    for name, message in (("", "name one: two.npz:NAME, of a, b"), (":c", "has no array 'c'")):
        outcome = deblur(f"{tmp_path}/two.npz{name}", "--out", tmp_path / "p.png")
        assert outcome.code == 2 and message in outcome.err


def test_an_archive_cannot_choose_where_its_photo_goes(deblur, tmp_path: Path) -> None:
    np.savez(tmp_path / "evil.npz", **{"../../x": GREY})
    (tmp_path / "a").mkdir()
    assert deblur(f"{tmp_path}/evil.npz:../../x", "--out", tmp_path / "a").code == 0
    assert names(tmp_path / "a") == ["evil-_x-before-after.png", "evil-_x.npy"]


def test_exif_is_kept_and_the_picture_upright(deblur, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "a camera"
    exif.get_ifd(0x8769)[0x829A] = (1, 100)
    for suffix in ("png", "jpg"):
        Image.fromarray(np.rint(255 * COLOUR).astype(np.uint8)).save(tmp_path / f"in.{suffix}", exif=exif)
        assert deblur(tmp_path / f"in.{suffix}", "--out", tmp_path / f"{suffix}.png").code == 0
        with Image.open(tmp_path / f"{suffix}.png") as image:
            assert image.size == (12, 15)
            found = image.getexif()
            assert (found[0x0112], found[0x010F], found.get_ifd(0x8769)[0x829A]) == (1, "a camera", (1, 100))


@pytest.mark.parametrize(
    "block", [b"", b"junk", b"II*\0", b"II*\0\xff\xff\xff\xff", b"MM\0*\0\0\0\x08\xff\xff" + b"\0" * 40]
)
def test_damaged_exif_does_no_harm(deblur, tmp_path: Path, block: bytes) -> None:
    (tmp_path / "in.png").write_bytes(write_png(Picture(np.rint(255 * GREY).astype(np.uint8), exif=block)))
    assert deblur(tmp_path / "in.png", "--out", tmp_path / "o.png").code == 0
    assert read_picture(tmp_path / "o.png").exif is None


def test_floats_are_not_squeezed_into_png(deblur, tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", GREY)
    outcome = deblur(tmp_path / "in.npy", "--out", tmp_path / "o.png")
    assert (
        outcome.code == 2 and "which PNG would clip and round; end the name in one of .tif, .npy, .fits" in outcome.err
    )


ARRAYS = {
    "nan": (np.full((9, 9), np.nan), "is nan at index [0, 0]"),
    "infinite": (np.full((9, 9), np.inf), "is inf at index"),
    "complex": (np.full((9, 9), 1j), "dtype complex128"),
    "truth values": (np.ones((9, 9), bool), "only true and false"),
    "text": (np.array([["a"]]), "dtype <U1"),
    "objects": (np.array([[None]]), "never unpickled"),
    "huge": (np.full((9, 9), 1e300), "beyond the range of float32"),
    "ambiguous": (np.ones((3, 9, 3)), "the first axis or the last"),
    "stack": (np.ones((4, 9, 9)), "pass grey (rows, columns), or colour"),
    "empty": (np.ones((0, 9)), "holds no rows"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_that_are_refused(deblur, tmp_path: Path, name: str) -> None:
    array, message = ARRAYS[name]
    np.save(tmp_path / "in.npy", array)
    outcome = deblur(tmp_path / "in.npy", "--out", tmp_path / "o.npy")
    assert outcome.code == 2 and message in outcome.err and outcome.err.count("\n") == 1


def test_a_header_that_claims_too_much(deblur, tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", GREY)
    content = (tmp_path / "in.npy").read_bytes()
    (tmp_path / "in.npy").write_bytes(content.replace(b"(12, 15), }    ", b"(1200000, 15)} "))
    outcome = deblur(tmp_path / "in.npy", "--out", tmp_path / "o.npy")
    assert outcome.code == 2 and "may be truncated" in outcome.err


@pytest.mark.parametrize(("suffix", "library"), [("tif", "tifffile"), ("fits", "astropy")])
def test_a_library_that_is_missing_is_named(deblur, tmp_path: Path, monkeypatch, suffix: str, library: str) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setitem(sys.modules, "astropy.io", None)
    extra = "tiff" if suffix == "tif" else suffix
    for photo, out in ((png(tmp_path / "in.png"), f"o.{suffix}"), (tmp_path / f"in.{suffix}", "o.npy")):
        photo.touch()
        outcome = deblur(photo, "--out", tmp_path / out)
        assert outcome.code == 2 and f"pip install 'surefoot[{extra}]'" in outcome.err and outcome.err.count("\n") == 1


# -- many photos -----------------------------------------------------------------------------------------------------------


def test_a_folder_keeps_its_names_and_one_bad_photo_stops_no_other(deblur, k: Path, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    for i, name in enumerate(("b.png", "a.PNG", ".hidden.png")):
        png(folder / name, i)
    Image.fromarray(np.rint(255 * GREY).astype(np.uint8)).save(folder / "c.jpg")
    np.save(folder / "d.npy", GREY)
    (folder / "e.png").write_bytes(b"nothing")
    (folder / "notes.txt").write_text("not a photo")
    out = tmp_path / "new" / "out"
    outcome = deblur(folder, "--out", out)
    assert outcome.code == 1
    assert outcome.err.splitlines()[-1] == "surefoot: 1 of 5 photos failed"
    assert outcome.err.count("\n") == 2 and "e.png: not a readable PNG" in outcome.err
    assert "4 of 5 written" in " ".join(outcome.out.split())
    photos = ["a.PNG", "b.png", "c.png", "d.npy"]
    assert names(out) == sorted([*photos, *(f"{name[0]}-before-after.png" for name in photos)])
    first = (out / "b.png").read_bytes()
    assert first != (out / "a.PNG").read_bytes()

    again = deblur(folder, "--out", out)
    assert again.code == 2 and "exists (8 of 10 files do)" in again.err and "--skip-existing" in again.err
    (out / "b.png").unlink()  # as an interruption leaves it: the comparison is there and the photo is not
    records = deblur(folder, "--out", out, "--skip-existing", "--json").json
    assert [record.get("skipped", False) for record in records] == [True, False, True, True, False]
    assert ["error" in record and record["error"] is not None for record in records] == [False] * 4 + [True]
    assert (out / "b.png").read_bytes() == first


def test_the_kernel_in_the_folder_is_no_photo(run, tmp_path: Path) -> None:
    png(tmp_path / "in" / "a.png")
    np.save(tmp_path / "in" / "k.npy", np.ones((1, 3)))
    out = tmp_path / "out"
    assert run("deblur", tmp_path / "in", "--kernel", tmp_path / "in" / "k.npy", "--out", out, *FEW).code == 0
    assert names(out) == ["a-before-after.png", "a.png"]


def test_quiet_is_a_line_for_each_photo(deblur, tmp_path: Path) -> None:
    photos = [png(tmp_path / "in" / name) for name in ("a.png", "b.png")]
    outcome = deblur(*photos, "--out", tmp_path / "out", "--quiet")
    assert outcome.code == 0 and [line.partition(":")[0] for line in outcome.out.splitlines()] == [
        str(tmp_path / "out" / photo.name) for photo in photos
    ]


def test_what_is_refused_before_any_work(deblur, k: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_deblur_run, "deblur", lambda *_, **__: pytest.fail("the solver ran"))
    a, b = png(tmp_path / "in" / "a.png"), png(tmp_path / "other" / "a.png")
    c = png(tmp_path / "in" / "a-before-after.png")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").touch()
    out = tmp_path / "out"
    for photos, place, message in (
        ((a, b), out, "would both be written to"),
        ((a, c), out, "would both be written to"),
        ((a, tmp_path / "none.png"), out, "none.png: no such file"),
        ((tmp_path / "empty",), out, "holds no photos"),
        ((a, c), tmp_path / "o.png", "there are several photos; name a directory"),
        ((tmp_path / "other",), a, "a file; for several photos it is a directory"),
        ((a,), tmp_path / ("long" * 70 + ".png"), "File name too long"),
        ((a,), Path("/proc/o.png"), "/proc/o-before-after.png: cannot be written"),
        ((tmp_path / "other",), Path("/proc/out"), "--out cannot be made"),
        ((tmp_path / "in",), tmp_path / "in", "in/a-before-after.png exists"),
        ((), out, "there is no photo"),
    ):
        outcome = deblur(*photos, "--out", place)
        assert outcome.code == 2 and message in outcome.err + outcome.out, (photos, outcome.err)
    assert not out.exists() and not list(tmp_path.glob("o*.png"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_permission(deblur, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    outcome = deblur(png(tmp_path / "a.png"), "--out", tmp_path / "closed" / "o.png")
    assert outcome.code == 2 and "Permission denied" in outcome.err


def test_nothing_is_left_where_all_fail(deblur, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").write_bytes(b"nothing")
    assert deblur(tmp_path / "in", "--out", tmp_path / "out").code == 1
    assert not (tmp_path / "out").exists()


def test_ctrl_c_names_what_is_done(deblur, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos = [png(tmp_path / "in" / name) for name in ("a.png", "b.png", "c.png")]
    real, calls = command_deblur_run.deblur, 0

    def interrupted(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(command_deblur_run, "deblur", interrupted)
    outcome = deblur(*photos, "--out", tmp_path / "out")
    assert outcome.code == 130 and names(tmp_path / "out") == ["a-before-after.png", "a.png"]
    assert "1 of 3 photos done, the last" in outcome.err and "--skip-existing goes on" in outcome.err
    assert deblur(*photos, "--out", tmp_path / "out", "--skip-existing").code == 0
    assert len(names(tmp_path / "out")) == 6


# -- TIFF and FITS, where their libraries are ------------------------------------------------------------------------------

needs_tiff = pytest.mark.skipif(importlib.util.find_spec("tifffile") is None, reason="tifffile is not installed")
needs_fits = pytest.mark.skipif(importlib.util.find_spec("astropy") is None, reason="astropy is not installed")


@needs_tiff
@pytest.mark.parametrize("kind", ["uint8", "uint16", "float32", ">u2", "int16"])
@pytest.mark.parametrize("colour", [False, True])
def test_tiff(deblur, tmp_path: Path, kind: str, colour: bool) -> None:
    import tifffile

    dtype = np.dtype(kind)
    largest = {"u": np.iinfo(dtype).max if dtype.kind == "u" else 0, "i": 4095, "f": 1.5}[dtype.kind]
    pixels = ((COLOUR if colour else GREY) * largest).astype(dtype)
    options: dict[str, Any] = {"photometric": "rgb" if colour else "minisblack"}
    tifffile.imwrite(
        *(tmp_path / "in.tif", pixels),
        resolution=((300, 1), (200, 7)),
        resolutionunit="CENTIMETER",
        description=f"µm {kind}".encode(),
        metadata=None,
        extratags=[(34675, 7, 9, b"a profile", True)],
        **options,
    )
    outcome = deblur(tmp_path / "in.tif", "--out", tmp_path / "o.tiff")
    assert outcome.code == 0, outcome.err
    with tifffile.TiffFile(tmp_path / "o.tiff") as file:
        page = file.pages[0]
        after, tags = page.asarray(), {tag.name: tag.value for tag in page.tags}
    assert after.shape == pixels.shape and after.dtype == (
        np.float32 if dtype.kind in "if" else dtype.newbyteorder("=")
    )
    assert abs(after.mean(dtype=float) / pixels.mean(dtype=float) - 1.0) < 0.05
    assert tags["XResolution"] == (300, 1) and tags["YResolution"] == (200, 7) and tags["ResolutionUnit"] == 3
    assert tags["ImageDescription"] == f"µm {kind}" and tags["InterColorProfile"] == b"a profile"


@needs_tiff
def test_tiff_files_that_are_refused_or_turned(deblur, tmp_path: Path) -> None:
    import tifffile

    from surefoot._data.tiff import read_tiff

    deep = np.rint(65535 * COLOUR).astype(np.uint16)
    good = tmp_path / "good.tif"
    tifffile.imwrite(good, deep, photometric="rgb")
    whole = good.read_bytes()
    stack = np.stack([deep[..., 0]] * 3)
    alpha = np.concatenate([deep, np.full_like(deep[..., :1], 9)], axis=-1)

    def wrong(name: str, message: str, *arguments: Any, **options: Any) -> None:
        if arguments or options:
            tifffile.imwrite(tmp_path / name, *arguments, **options)
        outcome = deblur(tmp_path / name, "--out", tmp_path / "o.npy")
        assert outcome.code == 2 and message in outcome.err and outcome.err.count("\n") == 1, outcome.err

    wrong("pages.tif", "holds 3 pages", stack[..., :14], photometric="minisblack")
    wrong("imagej.tif", "holds 3 pages", stack, imagej=True)
    wrong("alpha.tif", "has transparent pixels", alpha, photometric="rgb", extrasamples=["unassalpha"])
    wrong("nan.tif", "is nan at index", np.full((9, 9), np.nan, np.float32))
    wrong(
        "palette.tif",
        "has a palette",
        np.zeros((9, 9), np.uint8),
        photometric="palette",
        colormap=np.zeros((3, 256), "u2"),
    )
    for name, content in (("cut.tif", whole[: len(whole) // 2]), ("empty.tif", b""), ("text.tif", b"II*\0hello")):
        (tmp_path / name).write_bytes(content)
        wrong(name, "not a readable TIFF image")
    width = whole.index(b"\x00\x01\x04\x00\x01\x00\x00\x00\x0f\x00\x00\x00")
    for claimed, message in ((10**9, "would take"), (10**6, "not a readable TIFF image")):
        huge = bytearray(whole)
        huge[width + 8 : width + 12] = claimed.to_bytes(4, "little")
        (tmp_path / "huge.tif").write_bytes(huge)
        wrong("huge.tif", message)
    opaque = np.concatenate([deep, np.full_like(deep[..., :1], 65535)], axis=-1)
    tifffile.imwrite(tmp_path / "opaque.tif", opaque, photometric="rgb", extrasamples=["unassalpha"])
    assert np.array_equal(read_tiff(tmp_path / "opaque.tif").pixels, deep)
    tifffile.imwrite(tmp_path / "white.tif", 65535 - deep[..., 0], photometric="miniswhite")
    assert np.array_equal(read_tiff(tmp_path / "white.tif").pixels, deep[..., 0])
    for turn in range(1, 9):
        tifffile.imwrite(tmp_path / "turned.tif", deep, photometric="rgb", extratags=[(274, 3, 1, turn, True)])
        ways = (deep, deep[:, ::-1], deep[::-1, ::-1], deep[::-1])
        turns = (np.swapaxes(deep, 0, 1), np.rot90(deep, -1), np.swapaxes(np.rot90(deep, 2), 0, 1), np.rot90(deep))
        picture = read_tiff(tmp_path / "turned.tif")
        assert np.array_equal(picture.pixels, (*ways, *turns)[turn - 1]) and picture.turned == (turn != 1)


@needs_fits
@pytest.mark.parametrize("kind", ["uint8", "uint16", ">i2", ">f4", ">f8"])
@pytest.mark.parametrize("axes", [(12, 15), (1, 12, 15), (3, 12, 15)])
def test_fits(deblur, tmp_path: Path, kind: str, axes: tuple[int, ...]) -> None:
    from astropy.io import fits

    dtype = np.dtype(kind)
    planes = np.moveaxis(COLOUR, -1, 0) if axes[0] == 3 else GREY.reshape(axes)
    pixels = (planes * {1: 255, 2: 30000}.get(dtype.itemsize, 4e5)).astype(dtype)
    header = fits.Header([("OBJECT", "M 31"), ("EXPTIME", 30.0, "s"), ("CRVAL1", 12.5)])
    fits.PrimaryHDU(pixels, header).writeto(tmp_path / "in.fits")
    outcome = deblur(tmp_path / "in.fits", "--out", tmp_path / "o.fits")
    assert outcome.code == 0, outcome.err
    with fits.open(tmp_path / "o.fits") as units:
        units.verify("exception")
        after, kept = units[0].data, units[0].header
    assert after.shape == axes and after.dtype.kind == ("u" if dtype.kind == "u" else "f")
    assert abs(after.mean() / pixels.mean() - 1.0) < 0.05
    assert (kept["OBJECT"], kept["EXPTIME"], kept["CRVAL1"]) == ("M 31", 30.0, 12.5)
    assert "surefoot deblur: prior" in str(kept["HISTORY"]) and "k.txt" in str(kept["HISTORY"])


@needs_fits
def test_fits_files_that_are_refused_or_named(deblur, tmp_path: Path) -> None:
    import gzip

    from astropy.io import fits

    units = [fits.PrimaryHDU(), fits.ImageHDU(GREY, name="SCI"), fits.ImageHDU(GREY, name="ERR")]
    fits.HDUList(units).writeto(tmp_path / "two.fits")
    assert deblur(f"{tmp_path}/two.fits:sci", "--out", tmp_path / "sci.fits").code == 0
    assert deblur(f"{tmp_path}/two.fits:2", "--out", tmp_path).code == 0 and (tmp_path / "two-2.fits").exists()
    fits.PrimaryHDU(GREY).writeto(tmp_path / "good.fits")
    whole = (tmp_path / "good.fits").read_bytes()
    fits.PrimaryHDU(np.ones((60, 60))).writeto(tmp_path / "long.fits")
    long = (tmp_path / "long.fits").read_bytes()
    fits.PrimaryHDU(np.full((9, 9), np.nan)).writeto(tmp_path / "nan.fits")
    fits.PrimaryHDU().writeto(tmp_path / "none.fits")
    claims = whole.replace(b"NAXIS1  =                   15", b"NAXIS1  =            150000000")
    for name, content, message in (
        ("two.fits", None, "holds 2 pictures; name one: two.fits:NAME, of SCI, ERR"),
        ("two.fits:DQ", None, "has no picture 'DQ'; pictures found: SCI, ERR"),
        ("nan.fits", None, "is nan at index"),
        ("none.fits", None, "holds 0 pictures"),
        ("cut.fits", whole[:2900], "not a readable FITS file"),
        ("cut-off.fits", long[:4000], "the file is truncated"),
        ("claims.fits", claims, "would take"),
        ("empty.fits", b"", "not a FITS file"),
        ("packed.fits", gzip.compress(whole), "expand it first if it is compressed"),
        ("broken.fits", whole.replace(b"BITPIX", b"BITPIE"), "not a readable FITS file"),
    ):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        outcome = deblur(f"{tmp_path}/{name}", "--out", tmp_path / "o.fits")
        assert outcome.code == 2 and message in outcome.err and outcome.err.count("\n") == 1, outcome.err


@needs_fits
def test_a_kernel_from_fits(run, tmp_path: Path) -> None:
    from astropy.io import fits

    fits.PrimaryHDU(np.ones((1, 3))).writeto(tmp_path / "k.fits")
    photo = png(tmp_path / "a.png")
    assert run("deblur", photo, "--kernel", tmp_path / "k.fits", "--out", tmp_path / "o.png", *FEW).code == 0
