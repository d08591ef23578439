"""The hyper-Laplacian prior and its half-quadratic solver."""

from __future__ import annotations

import pytest
import torch
from deconvolution_pictures import DOUBLE, blurs, kernel, noisy, photos

from surefoot._deconvolution.half_quadratic import HyperLaplacian
from surefoot._deconvolution.shrinkage import shrink, shrunk
from surefoot.deconvolution import Blur, PeriodicBlur, ValidBlur, gradient_wiener, psnr

BLURS = blurs()
POWERS = (0.5, 2.0 / 3.0, 0.8, 1.0)


@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("beta", [0.3, 1.0, 400.0])
def test_shrinkage_minimises_over_all_of_a_fine_grid(power: float, beta: float) -> None:
    v = torch.cat([torch.linspace(-3.0, 3.0, 301, dtype=DOUBLE), torch.tensor([0.0, 1e-300, 50.0], dtype=DOUBLE)])
    w, penalty = shrunk(v, power, beta)
    torch.testing.assert_close(penalty, w.abs() ** power)
    grid = torch.linspace(0.0, 1.0, 4001, dtype=DOUBLE) * v[:, None]  # the minimiser lies between 0 and v

    def value(w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return w.abs() ** power + beta / 2.0 * (w - v).square()

    assert bool((value(w, v) <= value(grid, v[:, None]).amin(-1) * (1.0 + 1e-13)).all())


@pytest.mark.parametrize("power", POWERS)
def test_shrinkage_is_stationary_where_it_is_not_zero(power: float) -> None:
    v = torch.linspace(-9.0, 9.0, 1000, dtype=DOUBLE)
    for dtype, bound in ((DOUBLE, 1e-13), (torch.float32, 2e-5)):
        w = shrink(v.to(dtype), power, 0.7).double()
        kept = w != 0.0
        assert 0 < int(kept.sum()) < len(v)
        force = power * w.abs() ** (power - 1.0) * w.sign() + 0.7 * (w - v.to(dtype).double())
        assert float(force[kept].abs().max()) <= bound


@pytest.mark.parametrize("blur", BLURS.values(), ids=list(BLURS))
@pytest.mark.parametrize("dtype", [DOUBLE, torch.float32])
def test_inner_value_falls_at_each_half_step(blur: Blur, dtype: torch.dtype) -> None:
    blur = blur.to(dtype)
    y = torch.rand(2, 3, *blur.range, generator=torch.Generator().manual_seed(1), dtype=dtype)
    solution = HyperLaplacian().solve(y, blur, 0.02)
    assert solution.image.shape == y.shape
    assert solution.audit()


@pytest.mark.parametrize("kind", [PeriodicBlur, ValidBlur])
def test_restores_photographs_better_than_a_wiener_filter(kind: type[PeriodicBlur] | type[ValidBlur]) -> None:
    sharp = photos(4, 96)
    blur = kind(kernel(7, 7), (96, 96))
    observed, truth = noisy(blur, sharp, 0.01), blur.crop(sharp)
    wiener = psnr(blur.crop(gradient_wiener(blur, observed, 0.01)), truth).mean()
    assert psnr(HyperLaplacian().solve(observed, blur, 0.01).image, truth).mean() > wiener + 0.5


@pytest.mark.parametrize("power", [0.4, 1.1, float("nan")])
def test_other_powers_are_refused(power: float) -> None:
    with pytest.raises(ValueError, match="power is"):
        HyperLaplacian(power)
