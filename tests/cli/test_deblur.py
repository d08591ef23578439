"""``surefoot deblur``: files in, files out, and what is refused."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from deconvolution_pictures import kernel, noisy, photos
from PIL import Image

from surefoot._data.kernel_files import read_kernel
from surefoot._data.picture_files import WRITTEN
from surefoot._data.pictures import Picture, read_picture, write_png
from surefoot._deconvolution.command_deblur import Deblur
from surefoot._deconvolution.photo.kernel_makers import FORMS
from surefoot._deconvolution.photo.priors import PRIORS
from surefoot._deconvolution.photo.tiles import TILE
from surefoot.deconvolution import LADMM, ValidBlur
from surefoot.nn import LearnedDeconvolution

NOISE = "0.01"
FEW = ("--gamma", "linear", "--prior", "wavelet", "--noise", NOISE, "--iterations", "3")


@pytest.fixture
def k(tmp_path: Path) -> Path:
    np.save(tmp_path / "k.npy", kernel(5, 5).numpy())
    return tmp_path / "k.npy"


def picture(shape: tuple[int, ...], kind: type = np.uint8) -> np.ndarray:
    """A part of a blurred photograph (rows, columns) or (rows, columns, 3)."""
    blur = ValidBlur(kernel(5, 5), (shape[0] + 4, shape[1] + 4))
    grey = noisy(blur, photos(1, 90)[0, : shape[0] + 4, : shape[1] + 4].contiguous(), 0.01).clamp(0.0, 1.0)
    planes = grey if len(shape) == 2 else torch.stack([grey, 0.5 * grey, grey.square()])
    pixels = planes.numpy() if len(shape) == 2 else np.moveaxis(planes.numpy(), 0, -1)
    return np.rint(pixels * np.iinfo(kind).max).astype(kind)


def saved(path: Path, pixels: np.ndarray) -> Path:
    path.write_bytes(write_png(Picture(pixels)))
    return path


def test_the_help_names_the_formats_and_kernels_that_there_are(run) -> None:
    """In words of its own, as it is read without what restores photographs."""
    said = " ".join(run("deblur", "--help").out.replace("│", " ").split())
    assert f"a new file that ends in {', '.join(WRITTEN)}, or" in said and f"or a formula: {FORMS}. It is" in said
    assert Deblur.tile == TILE


# -- what comes out ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
@pytest.mark.parametrize("shape", [(31, 40), (31, 40, 3)])
def test_writes_a_png_as_deep_as_the_photo(run, tmp_path: Path, k: Path, shape: tuple[int, ...], kind: type) -> None:
    before = picture(shape, kind)
    out = tmp_path / "out.png"
    outcome = run("deblur", saved(tmp_path / "in.png", before), "--kernel", k, "--out", out, *FEW)
    assert outcome.code == 0, outcome.err
    after = read_picture(out).pixels
    assert after.shape == before.shape and after.dtype == before.dtype and not np.array_equal(after, before)
    beside = read_picture(tmp_path / "out-before-after.png").pixels
    assert beside.shape[:2] == (31, 40 + 4 + 40)
    assert np.array_equal(beside[:, :40], before) and np.array_equal(beside[:, 44:], after)
    assert "every hypothesis holds" in outcome.out and "duality gap" in outcome.out and "3" in outcome.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.png", "k.npy", "out-before-after.png", "out.png"]


def test_json_says_everything(run, tmp_path: Path, k: Path) -> None:
    photo = saved(tmp_path / "in.png", picture((31, 40, 3)))
    record = run(
        "deblur",
        photo,
        "--kernel",
        k,
        "--out",
        tmp_path / "o.png",
        "--gamma",
        "linear",
        "--prior",
        "wavelet",
        "--iterations",
        "3",
        "--json",
    ).json
    assert record["guarantee"] == "solver" and record["certificate"]["holds"] is True  # the gap is wide
    assert record["noise_estimated"] is True and 0.005 < record["noise"] < 0.02
    assert record["iterations"] == 3 and 0.0 < record["relative_duality_gap"] < 1.0 and record["seconds"] > 0.0
    assert record["photo"] == {
        "file": str(photo),
        "rows": 31,
        "columns": 40,
        "channels": 3,
        "bits": 8,
        "floats": False,
        "white": 255.0,
        "turned_upright": False,
    }
    assert (record["tiles"], record["tiles_certified"], record["network_kept"]) == (1, 1, None)


def test_a_page_shows_and_says_everything(run, tmp_path: Path, k: Path) -> None:
    """And needs nothing else: pictures are inside, and nothing is fetched."""
    photo = saved(tmp_path / "a <b> & c.png", picture((31, 40, 3)))
    arguments = ("deblur", photo, "--kernel", k, "--out", tmp_path / "o.png", *FEW, "--page")
    record = run(*arguments, "--json").json
    text = (tmp_path / "o.html").read_text()
    assert record["page"] == str(tmp_path / "o.html") and record["misfit"] == pytest.approx(0.9, abs=0.25)
    assert text.count('<img alt="') == text.count('src="data:image/png;base64,') == 4  # before, after, residual, kernel
    assert "http" not in text.replace("http-equiv", "") and "a &lt;b&gt; &amp; c.png" in text and "<b> &" not in text
    assert (
        "CERTIFIED SOLVER" in text and "deconvolution/ladmm: holds for 1 of 1 tile" in text and "0.01 of white" in text
    )
    for name in ("o.png", "o-before-after.png"):
        (tmp_path / name).unlink()
    refused = run(*arguments)
    assert refused.code == 2 and "o.html exists" in refused.err


def test_quiet_prints_one_line(run, tmp_path: Path, k: Path) -> None:
    photo = saved(tmp_path / "in.png", picture((31, 40)))
    outcome = run("deblur", photo, "--kernel", k, "--out", tmp_path / "o.png", *FEW, "--quiet")
    assert outcome.out.count("\n") == 1 and outcome.err == ""
    assert ": the solver is certified, not this picture: its objective may fall by " in outcome.out


def test_a_heuristic_says_what_was_checked(run, tmp_path: Path, k: Path) -> None:
    photo = saved(tmp_path / "in.png", picture((31, 40)))
    arguments = ("deblur", photo, "--kernel", k, "--noise", NOISE)
    outcome = run(*arguments, "--out", tmp_path / "a.png")
    text = " ".join(outcome.out.split())
    assert "no theorem covers the prior hyper-laplacian as a whole" in text and "Certificate" not in text
    assert "the inner problem's value fell" in text and "certified" not in text
    record = run(*arguments, "--out", tmp_path / "b.png", "--power", "0.9", "--gap", "--json").json
    assert record["guarantee"] == "heuristic" and record["inner_values_fell"] is True
    assert 0.0 < record["relative_duality_gap"] < 1.0 and 0.3 < record["misfit"] < 1.2
    assert (tmp_path / "a.png").read_bytes() != (tmp_path / "b.png").read_bytes()


def test_a_power_chooses_its_prior_in_strong_noise_too(run, tmp_path: Path, k: Path) -> None:
    photo = saved(tmp_path / "in.png", picture((31, 40)))
    arguments = ("deblur", photo, "--kernel", k, "--noise", "0.2", "--json")
    methods = [
        run(*arguments, "--out", tmp_path / f"{name}.png", *more).json["method"]
        for name, more in (("a", ()), ("b", ("--power", "0.9")))
    ]
    assert methods == ["tv", "hyper-laplacian"]


def test_turning_the_kernel(run, tmp_path: Path, k: Path) -> None:
    photo = saved(tmp_path / "in.png", picture((31, 40)))
    np.save(tmp_path / "turned.npy", np.load(k)[::-1, ::-1])
    for name, arguments in (("a", (k,)), ("b", (tmp_path / "turned.npy", "--turn-kernel"))):
        assert run("deblur", photo, "--kernel", *arguments, "--out", tmp_path / f"{name}.png", *FEW).code == 0
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_a_network_is_labelled_and_guarded(run, tmp_path: Path, k: Path) -> None:
    photo = saved(tmp_path / "in.png", picture((31, 40, 3)))
    net = LearnedDeconvolution(1, 0)
    net.save(tmp_path / "net.safetensors")
    arguments = ("deblur", photo, "--kernel", k, *FEW, "--weights", tmp_path / "net.safetensors")
    outcome = run(*arguments, "--out", tmp_path / "a.png")
    assert outcome.code == 0 and "Heuristic" in outcome.out and "heuristic" in outcome.out
    assert "Certificate" not in outcome.out
    record = run(*arguments[:-1], "bundled", "--out", tmp_path / "bundled.png", "--json").json
    assert record["guarantee"] == "heuristic" and record["network_kept"]["of"] == 3
    with torch.no_grad():
        net.log_gradient.fill_(30.0)  # finite weights, useless pictures
        for layer in net.layers:
            layer.alpha.log.fill_(20.0)
    net.save(tmp_path / "net.safetensors")
    record = run(*arguments, "--out", tmp_path / "b.png", "--json").json
    assert record["guarantee"] == "heuristic" and record["certificate"] is None
    assert record["network_kept"] == {"kept": 0, "of": 3} and record["iterations"] > 0


def test_a_diverged_run_writes_nothing(run, tmp_path: Path, k: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    step = LADMM.step

    def broken(self, problem, state, iteration=0):
        after = step(self, problem, state, iteration)
        return replace(after, x=after.x * np.nan) if iteration == 1 else after

    monkeypatch.setattr(LADMM, "step", broken)
    photo = saved(tmp_path / "in.png", picture((31, 40)))
    outcome = run("deblur", photo, "--kernel", k, "--out", tmp_path / "o.png", *FEW)
    assert outcome.code == 4 and "nothing was written" in outcome.err
    assert not list(tmp_path.glob("o*"))


# -- kernels -----------------------------------------------------------------------------------------------------------


def test_every_form_of_a_kernel_means_the_same(run, tmp_path: Path) -> None:
    photo = saved(tmp_path / "in.png", picture((31, 40)))
    values = np.round(kernel(4, 5).numpy() * 1000).astype(np.uint8)
    np.save(tmp_path / "k.npy", values)
    np.savez(tmp_path / "one.npz", k=values)
    np.savez(tmp_path / "two.npz", k1=values, k2=values[:2])
    saved(tmp_path / "k.png", values)
    Image.fromarray(np.stack([values] * 3, axis=-1)).save(tmp_path / "grey-as-colour.png")
    np.savetxt(tmp_path / "k.txt", values, header="a comment")
    np.savetxt(tmp_path / "k.csv", values, delimiter=", ", newline=",\n", encoding="utf-8-sig")  # as a spreadsheet may
    np.savetxt(tmp_path / "semicolons.txt", values, delimiter=";")
    forms = (
        "k.npy",
        "one.npz",
        "one.npz:k",
        "two.npz:k1",
        "k.png",
        "grey-as-colour.png",
        "k.txt",
        "k.csv",
        "semicolons.txt",
    )
    for form in forms:
        np.testing.assert_array_equal(read_kernel(str(tmp_path / form)), values)
    results = set()
    for form in ("k.npy", "two.npz:k1"):
        outcome = run("deblur", photo, "--kernel", tmp_path / form, "--out", tmp_path / "o.png", *FEW)
        assert outcome.code == 0, outcome.err
        assert "was divided by that" in " ".join(outcome.out.split())
        results.add((tmp_path / "o.png").read_bytes())
        for name in ("o.png", "o-before-after.png"):
            (tmp_path / name).unlink()
    assert len(results) == 1


BAD_KERNELS = {
    "negative.txt": ("1 2\n-1 3", "kernel has negative entries"),
    "ragged.txt": ("1 2\n1", "line 2: has 1 numbers, the lines before 2"),
    "words.txt": ("1 2\nx 3", "line 2: could not convert"),
    "empty.txt": ("# nothing", "holds no numbers"),
    "nan.txt": ("1 nan", "is nan at index"),
    "zero.txt": ("0 0\n0 0", "kernel is zero everywhere"),
    "large.txt": ("1 " * 50, "larger than the photo (31 x 40"),
    "decimal-commas.txt": ("0,5 0,5\n1,0 0,5", "line 1: '0,5 0,5' has two kinds of separators"),
    "decimal-commas.csv": ("0,5;0,5\n1,0;0,5", "line 1: '0,5;0,5' has two kinds of separators"),
    "gaps.csv": ("1,,2\n,3,4", "line 1: a number is missing"),
    "overflow.txt": ("1e308 1e308\n1e308 -1", "kernel has negative entries"),
    "broken.npy": ("no array", "not an .npy file"),
    "broken.npz": ("no archive", "not an .npz archive"),
    "broken.png": ("no picture", "not a readable PNG or JPEG image"),
}


@pytest.mark.parametrize("name", BAD_KERNELS)
def test_kernels_that_are_refused(run, tmp_path: Path, name: str) -> None:
    content, message = BAD_KERNELS[name]
    (tmp_path / name).write_text(content)
    photo = saved(tmp_path / "in.png", picture((31, 40)))
    outcome = run("deblur", photo, "--kernel", tmp_path / name, "--out", tmp_path / "o.png", *FEW)
    assert outcome.code == 2 and message in outcome.err and outcome.err.count("\n") == 1
    assert not (tmp_path / "o.png").exists()


def test_a_damaged_header_of_an_array_is_explained(run, tmp_path: Path, k: Path) -> None:
    photo = saved(tmp_path / "in.png", picture((31, 40)))
    content = k.read_bytes()
    end = content.index(b"}")
    for damaged in (content[:end] + b"(" + content[end + 1 :], content[:40], content[:-8]):
        k.write_bytes(damaged)
        outcome = run("deblur", photo, "--kernel", k, "--out", tmp_path / "o.png", *FEW)
        assert outcome.code == 2 and "cannot be memory-mapped" in outcome.err and "unexpected" not in outcome.err


def test_archives_name_their_arrays(run, tmp_path: Path) -> None:
    photo = saved(tmp_path / "in.png", picture((31, 40)))
    np.savez(tmp_path / "two.npz", k1=np.ones((3, 3)), k2=np.ones((3, 3, 3)))
    for name, message in (("", "name one: two.npz:NAME, of k1, k2"), (":k3", "no array 'k3'"), (":k2", "one kernel")):
        outcome = run("deblur", photo, "--kernel", f"{tmp_path}/two.npz{name}", "--out", tmp_path / "o.png", *FEW)
        assert outcome.code == 2 and message in outcome.err
    saved(tmp_path / "c.png", picture((5, 5, 3)))
    outcome = run("deblur", photo, "--kernel", tmp_path / "c.png", "--out", tmp_path / "o.png", *FEW)
    assert outcome.code == 2 and "a kernel is grey" in outcome.err


# -- photos ------------------------------------------------------------------------------------------------------------


def test_orientation_is_honoured(run, tmp_path: Path, k: Path) -> None:
    upright = picture((31, 40, 3))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    Image.fromarray(np.rot90(upright).copy()).save(tmp_path / "turned.png", exif=exif)
    saved(tmp_path / "upright.png", upright)
    for name in ("turned", "upright"):
        outcome = run("deblur", tmp_path / f"{name}.png", "--kernel", k, "--out", tmp_path / f"{name}-o.png", *FEW)
        assert outcome.code == 0 and ("turned upright" in outcome.out) == (name == "turned")
    turned, straight = (read_picture(tmp_path / f"{name}-o.png") for name in ("turned", "upright"))
    assert np.array_equal(turned.pixels, straight.pixels) and not turned.turned


def test_the_colour_profile_is_kept(run, tmp_path: Path, k: Path) -> None:
    Image.fromarray(picture((31, 40, 3))).save(tmp_path / "in.jpg", icc_profile=b"a profile")
    assert run("deblur", tmp_path / "in.jpg", "--kernel", k, "--out", tmp_path / "o.png", *FEW).code == 0
    with Image.open(tmp_path / "o.png") as image:
        assert image.info["icc_profile"] == b"a profile" and image.format == "PNG"


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_alpha_is_dropped_where_opaque_and_refused_elsewhere(run, tmp_path: Path, k: Path, kind: type) -> None:
    pixels = picture((31, 40, 3), kind)
    alpha = np.full((31, 40, 1), np.iinfo(kind).max, kind)
    for name, last in (("opaque", alpha[0, 0, 0]), ("clear", 7)):
        alpha[30, 39] = last
        (tmp_path / f"{name}.png").write_bytes(rgba_png(np.concatenate([pixels, alpha], axis=-1)))
    good = run("deblur", tmp_path / "opaque.png", "--kernel", k, "--out", tmp_path / "o.png", *FEW)
    assert good.code == 0 and read_picture(tmp_path / "o.png").pixels.shape == (31, 40, 3)
    assert read_picture(tmp_path / "opaque.png").pixels.tobytes() == pixels.tobytes()
    bad = run("deblur", tmp_path / "clear.png", "--kernel", k, "--out", tmp_path / "p.png", *FEW)
    assert bad.code == 2 and "has transparent pixels; flatten the image" in bad.err


def rgba_png(pixels: np.ndarray) -> bytes:
    """Without filters, four channels."""
    import struct

    depth = 8 * pixels.dtype.itemsize
    rows = pixels.astype(pixels.dtype.newbyteorder(">")).tobytes()
    width = len(rows) // len(pixels)
    raw = b"".join(b"\0" + rows[i : i + width] for i in range(0, len(rows), width))
    header = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], depth, 6, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(raw)), (b"IEND", b""))
    body = (struct.pack(">I", len(d)) + kind + d + struct.pack(">I", zlib.crc32(kind + d)) for kind, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(body)


def test_photos_that_are_refused(run, tmp_path: Path, k: Path) -> None:
    whole = write_png(Picture(picture((31, 40, 3))))
    files = {
        "cut.png": (whole[: len(whole) // 2], "not a readable PNG or JPEG image"),
        "flipped.png": (whole[:60] + bytes([whole[60] ^ 255]) + whole[61:], "not a readable PNG or JPEG image"),
        "empty.png": (b"", "not a readable PNG or JPEG image"),
        "text.jpg": (b"hello", "not a readable PNG or JPEG image"),
        "row.png": (write_png(Picture(picture((1, 40)))), "at least 2 a side"),
    }
    (tmp_path / "one.txt").write_text("1")
    for name, (content, message) in files.items():
        (tmp_path / name).write_bytes(content)
        outcome = run("deblur", tmp_path / name, "--kernel", tmp_path / "one.txt", "--out", tmp_path / "o.png", *FEW)
        assert outcome.code == 2 and message in outcome.err and name in outcome.err + "row.png", outcome.err
    assert "no such file" in run("deblur", tmp_path / "no.png", "--kernel", k, "--out", tmp_path / "o.png").err
    given = (saved(tmp_path / "i.png", picture((9, 9))), "--kernel", tmp_path)
    assert "a directory, not a file" in run("deblur", *given, "--out", tmp_path / "o.png").err
    frames = [Image.fromarray(picture((31, 40))), Image.fromarray(picture((31, 40))[::-1])]
    frames[0].save(tmp_path / "animated.png", save_all=True, append_images=frames[1:])
    assert "is animated" in run("deblur", tmp_path / "animated.png", "--kernel", k, "--out", tmp_path / "o.png").err
    header = whole[:16] + (60000).to_bytes(4, "big") * 2 + whole[24:29]
    (tmp_path / "bomb.png").write_bytes(header + zlib.crc32(header[12:]).to_bytes(4, "big") + whole[33:])
    assert "crop or shrink it" in run("deblur", tmp_path / "bomb.png", "--kernel", k, "--out", tmp_path / "o.png").err
    small = saved(tmp_path / "small.png", picture((4, 40)))
    outcome = run("deblur", small, "--kernel", tmp_path / "one.txt", "--out", tmp_path / "o.png")
    assert outcome.code == 2 and "pass noise" in outcome.err
    assert not list(tmp_path.glob("o*.png"))


def test_a_tiny_photo(run, tmp_path: Path, k: Path) -> None:
    photo = saved(tmp_path / "in.png", picture((5, 5, 3)))
    assert run("deblur", photo, "--kernel", k, "--out", tmp_path / "o.png", *FEW).code == 0


# -- files and options ---------------------------------------------------------------------------------------------------


def test_nothing_is_overwritten(run, tmp_path: Path, k: Path) -> None:
    photo = saved(tmp_path / "in.png", picture((31, 40)))
    for name in ("out.png", "out-before-after.png"):
        (tmp_path / name).write_text("mine")
        outcome = run("deblur", photo, "--kernel", k, "--out", tmp_path / "out.png", *FEW)
        assert outcome.code == 2 and f"{name} exists; choose another with --out" in outcome.err
        assert (tmp_path / name).read_text() == "mine"
        (tmp_path / name).unlink()
    outcome = run("deblur", photo, "--kernel", k, "--out", photo, *FEW)
    assert outcome.code == 2 and "exists" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--out", "o.jpg"), "o.jpg: nothing writes .jpg; end it in .png, .tif"),
        (("--out", "o"), "o: nothing writes files without a suffix"),
        (("--out", "o.png", "--white", "0"), "--white is 0"),
        (("--out", "o.png", "--tile", "0"), "--tile is 0"),
        (("--out", "o.png", "--power", "2"), "--power is 2"),
        (("--out", "o.png", "--power", "0.8", "--prior", "wavelet"), "--power goes with --prior hyper-laplacian"),
        (("--out", "o.png", "--prior", "magic"), "--prior is 'magic'; expected auto, hyper-laplacian, tv or wavelet"),
        (
            ("--out", "o.png", "--gamma", "sRGB"),
            "--gamma is 'sRGB'; did you mean 'srgb'? expected auto, srgb or linear",
        ),
        (("--out", "nowhere/o.png"), "no directory nowhere"),
        (("--out", "o.png", "--noise", "0"), "--noise is 0"),
        (("--out", "o.png", "--noise", "10"), "--noise is 10"),
        (("--out", "o.png", "--iterations", "0"), "--iterations is 0"),
        (("--out", "o.png", "--iterations", "9"), "--iterations goes with --prior tv or wavelet"),
        (("--out", "o.png", "--weights", "none.safetensors"), "none.safetensors is missing"),
        (("--out", "o.png", "--noise", "1e-300", "--prior", "wavelet"), "too small for a penalty"),
        (("--out", "o.png", "--noise", "1e-200", "--prior", "wavelet"), "leaves the range of float64"),
        (("--out", "o.png", "--weights", "in.png"), "in.png is damaged"),
        (("--out", "o.png", "--weights", "."), ". is missing or no file"),
    ],
)
def test_options_out_of_range(run, tmp_path: Path, k: Path, monkeypatch, arguments, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    photo = saved(tmp_path / "in.png", picture((31, 40)))
    outcome = run("deblur", photo, "--kernel", k, *arguments)
    assert outcome.code == 2 and message in outcome.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.png", "k.npy"]


def test_ctrl_c_leaves_no_file_and_a_terminal_sees_progress(tmp_path: Path, k: Path) -> None:
    photo = saved(tmp_path / "in.png", picture((60, 70, 3)))
    arguments = (
        "deblur",
        str(photo),
        "--kernel",
        str(k),
        "--out",
        str(tmp_path / "o.png"),
        "--prior",
        "wavelet",
        "--iterations",
        "100000000",
    )
    master, slave = pty.openpty()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm"}
    command = [sys.executable, "-m", "surefoot.cli", *arguments]
    seen = b""
    deadline = time.monotonic() + 100.0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=slave, env=environment) as process:
        os.close(slave)
        try:
            while b"0/1" not in seen and time.monotonic() < deadline:
                seen += os.read(master, 1000)
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(
                OSError
            ):  # the end of a terminal; one that nobody reads would make the program wait
                while time.monotonic() < deadline and os.read(master, 1000):
                    pass
            assert process.wait(timeout=100) == 130
        finally:
            process.kill()
    os.close(master)
    assert b"0/1" in seen
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.png", "k.npy"]


def test_help_is_complete(run) -> None:
    outcome = run("deblur", "--help")
    assert outcome.code == 0
    for option in (
        "PHOTO",
        "--kernel",
        "--out",
        "--noise",
        "--turn-kernel",
        "--iterations",
        "--weights",
        "--page",
        "--json",
    ):
        assert option in outcome.out
    assert all(name in " ".join(outcome.out.split()) for name in PRIORS)
