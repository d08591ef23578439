"""A whole photograph: colour, borders, tiles, kernels of any kind, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from deconvolution_pictures import DOUBLE, kernel, noisy
from torch import Tensor

from surefoot._core.status import RunStatus
from surefoot._deconvolution.photo import wavelet_prior
from surefoot._deconvolution.photo.colour import OPPONENT
from surefoot._deconvolution.photo.priors import PRIORS
from surefoot._deconvolution.photo.tiles import spans
from surefoot.deconvolution import LADMM, PeriodicBlur, ValidBlur, aligned_psnr, deblur, default_penalty
from surefoot.deconvolution import DeconvolutionProblem as Problem
from surefoot.nn import LearnedDeconvolution

NOISE = 0.01
proved = partial(deblur, prior="wavelet")
"""With a theorem."""
EVERY_PRIOR = pytest.mark.parametrize("prior", PRIORS)


def colour(rows: int, columns: int, top: int = 180, left: int = 60, which: int = 0) -> Tensor:
    """A patch (3, rows, columns) of one of scikit-learn's photographs."""
    from sklearn.datasets import load_sample_images

    image = torch.from_numpy(load_sample_images().images[which] / 255.0).movedim(-1, 0)
    return image[:, top : top + rows, left : left + columns].contiguous()


def db(error: Tensor) -> float:
    return -10.0 * math.log10(float(error.square().mean()))


@pytest.fixture(scope="module")
def blurred() -> tuple[Tensor, Tensor, Tensor]:
    """Kernel, observed and sharp colour picture of the same size."""
    k = kernel(9, 9)
    sharp = colour(128, 140)
    blur = ValidBlur(k, (128, 140))
    return k, noisy(blur, sharp, NOISE), blur.crop(sharp)


def test_the_gap_of_a_heuristic_is_measured_where_asked(blurred) -> None:
    """That of the wavelet objective at its picture, a bound: above what the certified solver reaches in many iterations."""
    k, observed, _ = blurred
    plain, asked = deblur(observed, k, NOISE), deblur(observed, k, NOISE, gap=True)
    assert plain.gap is None and asked.gap is not None and not asked.certified
    assert proved(observed, k, NOISE, iterations=40).gap < asked.gap < 1.0
    assert bool((plain.image == asked.image).all())


def test_a_colour_photo_gets_sharper_and_says_what_is_guaranteed(blurred) -> None:
    k, observed, sharp = blurred
    found = proved(observed, k, NOISE)
    assert db(found.image - sharp) > db(observed - sharp) + 4.0
    assert found.certified and found.change < 1e-2 and 0.0 < found.gap < 1.0
    assert found.certificates[0].theorem == "deconvolution/ladmm"
    assert found.status is RunStatus.MAX_ITERATIONS and found.iterations == wavelet_prior.ITERATIONS
    assert found.movement < 1.0 / 255.0  # settled
    assert (found.tiles, found.estimated, found.kept, found.notices) == (1, False, None, ())
    assert found.image.dtype == torch.float32 and -0.2 < float(found.image.min()) < float(found.image.max()) < 1.2


@EVERY_PRIOR
def test_the_residual_is_what_the_picture_leaves_unexplained(blurred, prior: str) -> None:
    """Where the kernel lies inside, it is y - k ⊗ image: noise alone for the right kernel."""
    k, observed, _ = blurred
    found = deblur(observed, k, NOISE, prior=prior)
    inner = ValidBlur(k, found.image.shape[-2:])
    again = observed[:, 4:-4, 4:-4] - inner.forward(found.image.double())
    torch.testing.assert_close(found.residual[:, 4:-4, 4:-4].double(), again, atol=1e-5, rtol=0.0)
    assert 0.8 < found.misfit < 1.1


def test_shared_colour_information_is_used(blurred) -> None:
    k, observed, sharp = blurred
    together = deblur(observed, k, NOISE).image
    apart = torch.stack([deblur(one, k, NOISE).image for one in observed])
    assert db(together - sharp) > db(apart - sharp) + 0.3


def test_the_colour_transform_keeps_noise_white() -> None:
    Q = torch.tensor(OPPONENT, dtype=DOUBLE)
    torch.testing.assert_close(Q @ Q.mT, torch.eye(3, dtype=DOUBLE), atol=1e-15, rtol=0.0)


@pytest.fixture(scope="module")
def inside() -> tuple[Tensor, Tensor, Tensor, slice, Tensor]:
    """Kernel, blurred and sharp picture, the part that is restored alone, and what comes out of it with a periodic border."""
    k, inner = kernel(9, 9), slice(30, 112)
    large = colour(150, 150, 150, 200, which=1)
    blur = ValidBlur(k, (150, 150))
    observed = noisy(blur, large, NOISE)
    problem = Problem(observed[:, inner, inner].contiguous(), PeriodicBlur(k, (82, 82)), default_penalty(NOISE))
    wrapped = LADMM(wavelet_prior.BETA * problem.penalty).solve(problem, wavelet_prior.ITERATIONS).image.clamp(0.0, 1.0)
    return k, observed, blur.crop(large), inner, wrapped


@pytest.mark.parametrize("name", [*PRIORS, "network"])
def test_borders_do_not_ring(inside, name: str) -> None:
    """The border is restored nearly as well as where the photo goes on, and far better than with a periodic border."""
    method = partial(deblur, net=LearnedDeconvolution.bundled()) if name == "network" else partial(deblur, prior=name)
    (k, observed, sharp, inner, wrapped), edge = inside, 12
    whole = method(observed, k, NOISE).image[:, inner, inner]
    part = observed[:, inner, inner].contiguous()
    found = method(part, k, NOISE).image
    truth = sharp[:, inner, inner]
    border = torch.ones(82, 82, dtype=torch.bool)
    border[edge:-edge, edge:-edge] = False
    known, unknown, periodic = (db((image - truth)[:, border]) for image in (whole, found, wrapped))
    assert unknown > known - 2.2  # part of what a pixel there was spread over is not seen
    assert unknown > periodic + 5.0
    assert db((found - truth)[:, ~border]) > db((whole - truth)[:, ~border]) - 0.2
    assert unknown > db((found - truth)[:, ~border]) - 2.5  # not much worse than the centre


@pytest.mark.parametrize(("prior", "tile"), [("tv", 64), ("tv", 90), ("wavelet", 90)])
def test_tiles_leave_no_seams(blurred, prior: str, tile: int) -> None:
    """Of wavelets in large tiles only: small ones have a level less than the whole, and lose more."""
    k, observed, sharp = blurred
    whole, tiled = (deblur(observed, k, NOISE, prior=prior, iterations=15, tile=size) for size in (512, tile))
    assert tiled.tiles > 3 and len(tiled.certificates) == tiled.tiles and tiled.certified
    assert db(tiled.image - sharp) > db(whole.image - sharp) - 0.25
    # across tile borders nothing jumps: differences of neighbours are those of the picture restored in one piece
    for dim in (-1, -2):
        a, b = (image.diff(dim=dim).square().mean() for image in (whole.image, tiled.image))
        assert abs(float(b / a) - 1.0) < 0.05


@pytest.mark.parametrize(
    ("size", "reach", "tile"), [(1000, 9, 128), (77, 31, 64), (640, 1, 33), (100, 5, 512), (49, 5, 48)]
)
def test_tiles_cover_everything_once(size: int, reach: int, tile: int) -> None:
    total = torch.zeros(size, dtype=DOUBLE)
    for span in spans(size, reach, tile):
        assert float(span.weight.min()) >= 0.0
        total[span.slice] += span.weight
    torch.testing.assert_close(total, torch.ones_like(total), atol=1e-14, rtol=0.0)


def test_tiles_report_their_progress(blurred) -> None:
    k, observed, _ = blurred
    seen: list[tuple[int, int]] = []
    found = deblur(observed[0], k, NOISE, tile=64, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(i, found.tiles) for i in range(found.tiles + 1)]


@EVERY_PRIOR
@pytest.mark.parametrize("shape", [(5, 5), (2, 2), (6, 31), (31, 6), (17, 23)])
def test_small_and_odd_photos(shape: tuple[int, int], prior: str) -> None:
    photo = colour(*shape)
    k = kernel(min(3, shape[0]), min(3, shape[1]))
    for given in (photo, photo[0]):
        found = deblur(given, k, NOISE, prior=prior)
        assert found.image.shape == given.shape and bool(found.image.isfinite().all())
        assert found.certified or prior == "hyper-laplacian"


def test_a_kernel_as_large_as_the_photo() -> None:
    found = proved(colour(9, 12)[0], kernel(9, 12), NOISE, iterations=5)
    assert bool(found.image.isfinite().all()) and found.certified


def test_a_black_photo_stays_black() -> None:
    found = proved(torch.zeros(12, 12, dtype=DOUBLE), kernel(3, 3), NOISE)
    assert float(found.image.abs().max()) == 0.0 and found.certified


def test_noise_is_estimated() -> None:
    k, sharp = torch.full((5, 5), 0.04, dtype=DOUBLE), colour(110, 110)
    blur = ValidBlur(k, (110, 110))
    observed = noisy(blur, sharp, NOISE)
    found, told = deblur(observed, k), deblur(observed, k, NOISE)
    assert found.estimated and abs(found.noise / NOISE - 1.0) < 0.15
    assert abs(db(found.image - blur.crop(sharp)) - db(told.image - blur.crop(sharp))) < 0.3


def test_a_kernel_is_normalised_and_even_ones_are_explained(blurred) -> None:
    _, observed, _ = blurred
    k = kernel(4, 5)
    plain, scaled = deblur(observed[0], k, NOISE), deblur(observed[0], 7.0 * k, NOISE)
    torch.testing.assert_close(plain.image, scaled.image)
    assert len(plain.notices) == 1 and "4 rows" in plain.notices[0] and "row 3, column 3" in plain.notices[0]
    assert any("sums to 7" in notice for notice in scaled.notices)


def test_an_even_kernel_is_centred_where_the_notice_says() -> None:
    """A kernel with one pixel, at the stated centre, moves nothing."""
    k = torch.zeros(4, 6, dtype=DOUBLE)
    k[2, 3] = 1.0
    photo = colour(40, 40)[0]
    assert db(deblur(photo, k, 1e-3).image - photo) > 45.0


WRONG = {
    "negative": (lambda: -kernel(3, 3), "kernel has negative entries"),
    "larger": (lambda: kernel(21, 3), r"kernel \(21 x 3\) is larger than the photo \(20 x 20"),
    "NaN": (lambda: kernel(3, 3) * math.nan, "kernel"),
    "zero": (lambda: 0.0 * kernel(3, 3), "kernel is zero everywhere"),
    "meta": (lambda: kernel(3, 3).to("meta"), "kernel is on the meta device"),
    "batch": (lambda: torch.stack([kernel(3, 3)] * 3), r"kernel has shape \(3, 3, 3\); pass one kernel"),
}


@pytest.mark.parametrize("name", WRONG)
def test_kernels_that_are_refused(name: str) -> None:
    made, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        deblur(torch.rand(20, 20, dtype=DOUBLE), made(), NOISE)


def test_photos_that_are_refused() -> None:
    photo, k = torch.rand(3, 20, 20, dtype=DOUBLE), kernel(3, 3)
    photo[1, 4, 5] = math.nan
    with pytest.raises(ValueError, match=r"photo has nan at pixel \(1, 4, 5\)"):
        deblur(photo, k, NOISE)
    with pytest.raises(ValueError, match=r"photo has shape \(4, 20, 20\); pass grey \(rows, columns\), or colour"):
        deblur(torch.rand(4, 20, 20), k, NOISE)
    with pytest.raises(ValueError, match="photo has 1 x 30 pixels; at least 2 a side"):
        deblur(torch.rand(1, 30), torch.ones(1, 3) / 3, NOISE)
    for bytes_like in (torch.rand(8, 8) * 255.0, torch.rand(8, 8) - 2.0, torch.rand(8, 8, dtype=DOUBLE) * 1e200):
        with pytest.raises(ValueError, match="divide it by its white, for example 255"):
            deblur(bytes_like, k, NOISE)
    with pytest.raises(ValueError, match="photo is on the meta device"):
        deblur(torch.rand(8, 8, device="meta"), k, NOISE)
    with pytest.raises(TypeError, match="photo has dtype int32"):
        deblur(torch.zeros(8, 8, dtype=torch.int32), k, NOISE)
    with pytest.raises(ValueError, match="photo has 4 x 9 pixels, too few to estimate its noise; pass noise"):
        deblur(torch.rand(4, 9), k)
    for noise in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="noise is"):
            deblur(torch.rand(8, 8), k, noise)


def test_huge_and_tiny_entries_of_a_kernel_are_scaled() -> None:
    """Their sum overflows, or is subnormal."""
    k, photo = kernel(3, 3), torch.rand(20, 20, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    usual = proved(photo, k, NOISE, iterations=3).image
    for largest in (1.7e308, 1e-306):
        found = proved(photo, k / k.max() * largest, NOISE, iterations=3)
        assert found.certified and torch.allclose(found.image, usual, atol=1e-6)


@pytest.mark.parametrize(
    ("filters", "prior", "iterations"), [(4, "hyper-laplacian", None), (0, "hyper-laplacian", None), (4, "wavelet", 20)]
)
def test_a_network_is_a_heuristic_with_a_fallback(blurred, filters: int, prior: str, iterations: int | None) -> None:
    k, observed, sharp = blurred
    net, restored = LearnedDeconvolution(2, filters), partial(deblur, prior=prior, iterations=iterations)
    found = restored(observed, k, NOISE, net=net)
    assert not found.certified and found.certificates == () and found.gap is None
    assert found.kept is not None and found.kept[1] == 3
    assert db(found.image - sharp) > db(observed - sharp) + 2.0
    with torch.no_grad():
        for weight in net.parameters():
            weight.fill_(math.nan)
    fallen = restored(observed, k, NOISE, net=net)
    assert fallen.kept == (0, 3) and not fallen.certified and fallen.certificates == ()
    assert torch.equal(fallen.image, restored(observed, k, NOISE).image)


def test_the_bundled_network_sharpens_more() -> None:
    """Along a line, as a moving camera blurs; not on a kernel of random numbers, which it was not trained for."""
    k, sharp = torch.eye(9, dtype=DOUBLE) / 9.0, colour(120, 120, 100, 150, which=1)
    blur = ValidBlur(k, (120, 120))
    observed = noisy(blur, sharp, NOISE)
    images = [deblur(observed, k, NOISE, net=net) for net in (None, LearnedDeconvolution.bundled())]
    assert images[1].kept == (3, 3)
    prior, network = (db(found.image - blur.crop(sharp)) for found in images)
    assert network > prior + 0.15  # a fifth of the mean is the network's


@pytest.mark.parametrize("tile", [512, 64])
def test_divergence_is_said_and_nothing_pretends(blurred, monkeypatch: pytest.MonkeyPatch, tile: int) -> None:
    """Also where it is one tile of many."""
    k, observed, _ = blurred
    step, steps = LADMM.step, 0

    def broken(self, problem, state, iteration=0):
        nonlocal steps
        steps += iteration == 1
        after = step(self, problem, state, iteration)
        return replace(after, x=after.x * math.nan) if steps == iteration == 1 else after

    monkeypatch.setattr(LADMM, "step", broken)
    found = proved(observed, k, NOISE, iterations=5, tile=tile)
    assert found.status is RunStatus.DIVERGED and not found.certified
    assert (found.tiles > 1) == (tile == 64)
    assert bool(found.image.isfinite().all())


def test_real_camera_shake(shared_data: Path) -> None:
    """Photographs that a camera really blurred: sharper than they were, measured against the tripod's picture."""
    pairs, kernels = np.load(shared_data / "levin_real_blur.npz"), np.load(shared_data / "levin_kernels.npz")
    for i, j in ((0, 0), (3, 7)):
        sharp, seen = (torch.from_numpy(pairs[name][i, j] / 65535.0) for name in ("sharp", "blurred"))
        turned = kernels[f"k{j + 1}"][::-1, ::-1].astype(float)
        found = deblur(seen, turned)
        assert found.prior == "hyper-laplacian" and not found.certified
        before, after = (aligned_psnr(image, sharp, border=30, reach=8) for image in (seen, found.image.double()))
        assert after > before + 4.0, (i, j, before, after)
