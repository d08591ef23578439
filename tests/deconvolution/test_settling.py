"""When a picture has settled: what is projected to be left, and what deblurring says of it."""

from __future__ import annotations

import math

import pytest
import torch
from deconvolution_pictures import DOUBLE, kernel, noisy, photos
from torch import Tensor

from surefoot import RunStatus
from surefoot._deconvolution.photo.wavelet_prior import WaveletPrior, detail_problem
from surefoot._deconvolution.settling import GREY, LEFT, Settling
from surefoot.deconvolution import LADMM, PeriodicBlur, ValidBlur, deblur
from surefoot.deconvolution import OrthonormalWavelet as Wavelet

SMALL = PeriodicBlur(torch.ones(1, 1, dtype=DOUBLE), (8, 8))


def stopped(pictures: list[Tensor], settling: Settling) -> int | None:
    """The iteration at which it says so."""
    return next((i for i, picture in enumerate(pictures, 1) if settling(i, picture)), None)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_what_is_left_of_a_power_law_is_projected(power: float) -> None:
    """Of pictures that approach their limit like t^-p the projection is right, up to the rounding of the iterations."""
    limit, away = torch.rand(8, 8, dtype=DOUBLE), torch.sign(torch.randn(8, 8, dtype=DOUBLE))
    settling, last = Settling(SMALL), 0
    for t in range(1, 200):
        before = settling.left
        settling(t, limit + away * t**-power)
        last = t if settling.left != before else last
    assert last > 100
    assert settling.left == pytest.approx(last**-power, rel=0.2)


def test_it_stops_when_little_is_left_and_not_before() -> None:
    away = torch.ones(8, 8, dtype=DOUBLE)
    end = stopped([away / t**2 for t in range(1, 200)], Settling(SMALL))
    assert end is not None and 1.0 / end**2 <= 1.3 * LEFT < 4.0 / end**2
    assert stopped([away * t for t in range(1, 200)], Settling(SMALL)) is None
    assert stopped([away] * 20, Settling(SMALL)) == 11  # three changes are known, all 0


def test_too_few_pictures_say_nothing() -> None:
    settling = Settling(SMALL)
    assert stopped([torch.zeros(8, 8, dtype=DOUBLE)] * 10, settling) is None and settling.left is None


def test_the_rim_does_not_count() -> None:
    """Beyond the border nothing is known, and the rim settles last."""
    blur = ValidBlur(torch.full((5, 5), 0.04, dtype=DOUBLE), (36, 36))
    settling, still = Settling(blur), torch.zeros(36, 36, dtype=DOUBLE)
    moving = torch.ones(36, 36, dtype=DOUBLE)
    moving[4:-4, 4:-4] = 0.0
    assert stopped([still + t * moving for t in range(1, 20)], settling) == 11


def test_shading_has_no_detail() -> None:
    W, z = Wavelet((45, 37), "sym4"), torch.rand(2, 45, 37, dtype=DOUBLE)
    coarse = W.coarse(z)
    torch.testing.assert_close(W.coarse(coarse), coarse)
    x, y = W.analysis(z), W.analysis(coarse)
    kept = y.abs() > 1e-12
    torch.testing.assert_close(y[kept], x[kept])
    assert 0.0 < float(kept.double().mean()) < 0.2


def psnr(error: Tensor) -> float:
    return -10.0 * math.log10(float(error.square().mean()))


def test_more_iterations_do_not_darken_the_rim() -> None:
    """Weighed against black, what lies beyond the border would go to 0, and the rim of the picture with it."""
    blur = ValidBlur(kernel(15, 15), (72, 72))
    sharp = 0.4 + 0.6 * photos(1, 72)
    observed, truth = noisy(blur, sharp, 0.02), blur.crop(sharp)
    problem, shading = detail_problem(observed, blur, 0.02)
    solver = LADMM(30.0 * problem.penalty)
    few, many = (
        psnr(blur.crop(shading + solver.solve(problem, n, tolerance=0.0).state.synthesis) - truth) for n in (25, 100)
    )
    assert many > few - 0.1


def test_a_settled_picture_is_that_of_a_long_run() -> None:
    blur = ValidBlur(kernel(9, 9), (96, 96))
    sharp = photos(1, 96)
    observed, truth = noisy(blur, sharp, 0.03), blur.crop(sharp)
    found = WaveletPrior(None, 1e-6).restore(observed, blur, 0.03)
    assert found.status is RunStatus.SETTLED and found.left is not None and found.left <= LEFT
    problem, shading = detail_problem(observed, blur, 0.03)
    longer = shading + LADMM(30.0 * problem.penalty).solve(problem, 3 * found.iterations, tolerance=0.0).state.synthesis
    assert abs(psnr(blur.crop(found.latent) - truth) - psnr(blur.crop(longer) - truth)) < 0.1


def test_what_is_left_is_said() -> None:
    k = kernel(9, 9)
    observed = noisy(ValidBlur(k, (72, 72)), photos(1, 72), 0.002)[0]
    few = deblur(observed, k, 0.002, prior="wavelet", iterations=16)
    assert few.status is RunStatus.MAX_ITERATIONS and few.left is not None and few.left > 0.1 * GREY
    assert deblur(observed, k, 0.002, prior="wavelet", iterations=5).left is None
