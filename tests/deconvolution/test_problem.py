"""The duality gap is a bound: of the optimum from both sides, in every dtype; and pictures that cannot be used are refused."""

from __future__ import annotations

import pytest
import torch
from deconvolution_pictures import DOUBLE, blurs, kernel, noisy, photos

from surefoot.deconvolution import LADMM, Blur, DeconvolutionProblem, OrthonormalWavelet, PeriodicBlur, ValidBlur

BLURS = {name: blur for name, blur in blurs().items() if "each picture" not in name}
every = pytest.mark.parametrize("blur", BLURS.values(), ids=list(BLURS))


def problem(blur: Blur, penalty: float = 0.1, dtype: torch.dtype = DOUBLE) -> DeconvolutionProblem:
    sharp = torch.rand(2, *blur.domain, generator=torch.Generator().manual_seed(5), dtype=DOUBLE)
    return DeconvolutionProblem(noisy(blur, sharp, 0.01).to(dtype), blur.to(dtype), penalty, "db2")


@every
def test_bounds_enclose_the_optimum_and_close(blur: Blur) -> None:
    found = problem(blur)
    near = LADMM(0.5).solve(found, 400, tolerance=1e-3)
    optimum = near.gap.primal  # at least that, and within 5e-3 of it
    for x in (torch.zeros_like(near.state.x), near.state.x * 0.5, near.state.x):
        bounds = found.duality_gap(x)
        assert bool((bounds.dual <= optimum).all())
        assert bool((bounds.primal >= near.gap.dual).all())
        assert bool((bounds.primal >= found.objective(x)).all())
    assert float(near.gap.relative.max()) <= 5e-3


def test_float32_bounds_enclose_the_float64_values() -> None:
    blur = PeriodicBlur(kernel(5, 5), (32, 32))
    single, double = problem(blur, dtype=torch.float32), problem(blur)
    x = LADMM(0.5).solve(single, 50, tolerance=1e-3).state.x
    exact = DeconvolutionProblem(single.observed.double(), single.blur.to(DOUBLE), single.penalty, double.wavelet)
    bounds = single.duality_gap(x)
    assert bool((bounds.primal >= exact.objective(x.double())).all())
    best = LADMM(0.5).solve(exact, 200, tolerance=1e-6).gap
    assert bool((bounds.dual <= best.primal).all())
    assert float(bounds.relative.max()) <= 1e-3  # as near as in float64
    assert float((bounds.primal / exact.objective(x.double()) - 1.0).max()) < 1e-6


def test_the_gap_says_what_psnr_does_not() -> None:
    """α beyond 1/β: the iteration settles in a cycle away from the optimum, and the gap shows it."""
    blur = PeriodicBlur(kernel(7, 7), (32, 32))
    found = DeconvolutionProblem(noisy(blur, photos(1, 32), 0.01), blur, 2e-3)
    gaps = [
        LADMM(0.05, alpha, gamma).solve(found, 150, tolerance=0.0).gap for alpha, gamma in ((None, None), (60.0, 60.0))
    ]
    assert float(gaps[0].relative) < 1e-2
    assert not float(gaps[1].relative) < 0.1


def test_objective_is_that_of_the_definition() -> None:
    found = problem(PeriodicBlur(kernel(4, 3), (8, 9)))
    x = torch.randn(2, 8, 9, dtype=DOUBLE)
    residual = found.blur.forward(found.wavelet.synthesis(x)) - found.observed
    for i in range(2):
        expected = 0.5 * residual[i].norm() ** 2 + 0.1 * x[i].abs().sum()
        torch.testing.assert_close(found.objective(x)[i], expected)


@pytest.mark.parametrize("size", [(5, 3), (4, 6)])
def test_extended_repeats_the_border(size: tuple[int, int]) -> None:
    blur = ValidBlur(kernel(*size), (16, 14))
    y = torch.rand(2, 3, *blur.range, dtype=DOUBLE)
    extended = DeconvolutionProblem(y, blur, 0.1).extended()
    assert extended.shape == (2, 3, 16, 14)
    assert torch.equal(blur.crop(extended), y)
    assert torch.equal(extended[..., 0, 0], y[..., 0, 0])
    assert torch.equal(extended[..., -1, -1], y[..., -1, -1])


def test_bad_pictures_are_refused() -> None:
    blur = PeriodicBlur(kernel(3, 3), (8, 8))
    picture = torch.rand(8, 8, dtype=DOUBLE)
    for bad in (torch.nan, torch.inf):
        broken = picture.clone()
        broken[2, 3] = bad
        with pytest.raises(ValueError, match=r"at pixel \(2, 3\) \(1 such pixels\)"):
            DeconvolutionProblem(broken, blur, 0.1)
    with pytest.raises(ValueError, match="this blur makes images"):
        DeconvolutionProblem(picture[:7], blur, 0.1)
    with pytest.raises(TypeError, match="dtype uint8"):
        DeconvolutionProblem(torch.zeros(8, 8, dtype=torch.uint8), blur, 0.1)
    with pytest.raises(TypeError, match="float32"):
        DeconvolutionProblem(picture.float(), blur, 0.1)
    for penalty in (0.0, -1.0, torch.nan, torch.inf):
        with pytest.raises(ValueError, match="penalty is"):
            DeconvolutionProblem(picture, blur, penalty)
    with pytest.raises(ValueError, match="wavelet is for images"):
        DeconvolutionProblem(picture, blur, 0.1, OrthonormalWavelet((9, 8)))
    with pytest.raises(TypeError, match=r"wavelet is torch.float32"):
        DeconvolutionProblem(picture, blur, 0.1, OrthonormalWavelet((8, 8), dtype=torch.float32))
