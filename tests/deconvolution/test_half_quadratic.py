"""The hyper-Laplacian prior and its half-quadratic solver."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from deconvolution_pictures import DOUBLE, blurs, kernel, noisy, photos

from surefoot._deconvolution.half_quadratic import HyperLaplacian, adjoint_differences, differences, roomier
from surefoot._deconvolution.photo.automatic import automatic_prior
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


def test_total_variation_is_automatic_in_strong_noise_alone() -> None:
    assert automatic_prior(0.01) == automatic_prior(0.05) == "hyper-laplacian"
    assert automatic_prior(0.1) == "tv"


def test_room_for_a_fast_transform_changes_what_is_observed_by_nothing() -> None:
    blur = ValidBlur(kernel(5, 3), (53, 47))  # primes
    z, y = torch.rand(54, 48, dtype=DOUBLE), torch.rand(blur.range, dtype=DOUBLE)
    grown, seen = roomier(blur, y)
    assert grown.domain == (54, 48)
    rows, columns = blur.range
    assert torch.equal(seen[:rows, :columns], y)
    observed = grown.forward(z)
    torch.testing.assert_close(observed[:rows, :columns], blur.forward(z[:53, :47]))
    assert not bool(observed[rows:].any() or observed[:, columns:].any())


def test_differences_and_their_adjoint() -> None:
    z, w = torch.rand(2, 9, 7, dtype=DOUBLE), torch.rand(8, 2, 9, 7, dtype=DOUBLE)
    torch.testing.assert_close((differences(z) * w).sum(), (z * adjoint_differences(w)).sum())
    assert float(differences(torch.ones(5, 6, dtype=DOUBLE)).abs().max()) < 1e-15


def test_audit_fails_where_a_value_rises() -> None:
    blur = PeriodicBlur(kernel(5, 5), (24, 24))
    solution = HyperLaplacian().solve(photos(1, 24), blur, 0.02)
    assert solution.audit()
    risen = solution.values.clone()
    risen[2, 2] = 1.001 * risen[2, 1]
    assert not replace(solution, values=risen).audit()


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
def test_rounding_of_a_flat_picture_is_no_rise(dtype: torch.dtype) -> None:
    blur = ValidBlur.observing(kernel(3, 3), (24, 24)).to(dtype)
    for brightness in (0.187, 0.3, 0.999, 1e3):
        assert HyperLaplacian().solve(torch.full((24, 24), brightness, dtype=dtype), blur, 0.01).audit()
