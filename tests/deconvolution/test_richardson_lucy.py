"""Counts and Richardson-Lucy: its steps, its monotone likelihood on every blur, and where it stops."""

from __future__ import annotations

import math

import pytest
import torch
from deconvolution_pictures import DOUBLE, blurs, counted, kernel, photos, stacks
from torch import Tensor

from surefoot import RunStatus
from surefoot._deconvolution.counts.model import Counts, expected_deviance
from surefoot.deconvolution import Blur, PeriodicBlur, ValidBlur, psnr, richardson_lucy

BLURS = blurs() | stacks()


def latent(blur: Blur, peak: float = 50.0, batch: tuple[int, ...] = ()) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return peak * torch.rand(*batch, *blur.domain, generator=generator, dtype=DOUBLE) ** 4


def test_one_step_is_that_of_em() -> None:
    blur, z = ValidBlur(kernel(3, 2), (5, 6)), torch.full((5, 6), 2.0, dtype=DOUBLE)
    B = blur.forward(torch.eye(30, dtype=DOUBLE).reshape(30, 5, 6)).flatten(1).T
    y = counted(blur, latent(blur), 3.0).flatten()
    found = richardson_lucy(blur, y.reshape(blur.range), 1, background=3.0)
    start = max(float(y.mean()) - 3.0, 1e-3 * float(y.mean())) / 2.0
    flat = start * z.flatten()
    expected = flat / (B.T @ torch.ones_like(y)) * (B.T @ (y / (B @ flat + 3.0)))
    torch.testing.assert_close(found.latent.flatten(), expected)
    torch.testing.assert_close(found.image, blur.crop(found.latent))
    m = B @ expected + 3.0
    likelihood = torch.distributions.Poisson(m).log_prob(y).sum()
    best = torch.distributions.Poisson(y.clamp(min=1e-300)).log_prob(y).sum()
    torch.testing.assert_close(found.deviances[-1], 2.0 * (best - likelihood))


@pytest.mark.parametrize("accelerate", [False, True])
@pytest.mark.parametrize("blur", BLURS.values(), ids=list(BLURS))
def test_the_likelihood_never_decreases(blur: Blur, accelerate: bool) -> None:
    batch = (2, 3) if blur.kernel.ndim > len(blur.domain) and isinstance(blur, PeriodicBlur) else (2,)
    y = counted(blur, latent(blur, batch=batch), 1.0)
    found = richardson_lucy(blur, y, 60, background=1.0, discrepancy=0, tolerance=0, accelerate=accelerate)
    assert found.deviances.shape == (61, *batch) and found.iterations == 60
    assert bool((found.deviances.diff(dim=0) <= 1e-9).all()) and found.audit.holds
    assert bool((found.deviances[-1] < 0.9 * found.deviances[0]).all())
    assert found.status is RunStatus.MAX_ITERATIONS
    assert bool((found.image >= 0.0).all())
    assert bool((found.extrapolated > 0).all()) == accelerate


def test_acceleration_reaches_a_higher_likelihood() -> None:
    blur = ValidBlur(kernel(5, 5), (24, 24))
    y = counted(blur, latent(blur, 1000.0))
    plain, fast = (richardson_lucy(blur, y, 40, discrepancy=0, tolerance=0, accelerate=kind) for kind in (False, True))
    assert float(fast.deviances[-1]) < 0.9 * float(plain.deviances[-1])


class NoTranspose(PeriodicBlur):
    """An adjoint that is none."""

    def to_spectrum(self, y: Tensor) -> Tensor:
        return self.spectrum * torch.fft.rfftn(y, dim=self.axes)


def test_the_audit_fails_where_the_adjoint_is_wrong() -> None:
    shifted = torch.zeros(3, 3, dtype=DOUBLE)
    shifted[0, 0], shifted[1, 1] = 0.7, 0.3
    y = counted(PeriodicBlur(shifted, (12, 12)), latent(PeriodicBlur(shifted, (12, 12)), 500.0))
    assert richardson_lucy(PeriodicBlur(shifted, (12, 12)), y, 40, discrepancy=0).audit.holds
    broken = richardson_lucy(NoTranspose(shifted, (12, 12)), y, 40, discrepancy=0)
    assert not broken.audit.holds and broken.audit.lines[0].first_violation is not None
    assert broken.status is RunStatus.DIVERGED and bool(broken.image.isfinite().all())


def test_single_precision_stays_monotone_and_near() -> None:
    blur = ValidBlur(kernel(7, 7), (40, 40))
    y = counted(blur, latent(blur, 300.0), 2.0)
    double = richardson_lucy(blur, y, 30, background=2.0)
    single = richardson_lucy(blur.to(torch.float32), y.float(), 30, background=2.0)
    assert single.audit.holds and single.image.dtype == torch.float32 and single.iterations == double.iterations
    torch.testing.assert_close(single.image.double(), double.image, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("peak", [30.0, 1000.0])
def test_it_stops_where_the_picture_is_nearly_best(peak: float) -> None:
    sharp = photos(2, 64)
    blur = ValidBlur(kernel(7, 7), (64, 64))
    truth = blur.crop(sharp)
    y = counted(blur, peak * sharp, 2.0)
    found = richardson_lucy(blur, y, 100, background=2.0)
    assert found.status is RunStatus.CONVERGED and bool((found.discrepancy <= 1.0).all())
    quality = [
        psnr(richardson_lucy(blur, y, n, background=2.0, discrepancy=0).image / peak, truth)
        for n in (1, 2, 4, 8, 16, 32)
    ]
    stopped = psnr(found.image / peak, truth)
    assert bool((stopped > torch.stack(quality).amax(0) - 1.0).all())
    assert bool((stopped > psnr((y - 2.0) / peak, truth) + 1.0).all())


def test_images_stop_one_by_one_as_if_alone() -> None:
    blur = ValidBlur(kernel(5, 5), (24, 24))
    truth = latent(blur, 1.0)
    y = torch.stack([counted(blur, 20.0 * truth), counted(blur, 5000.0 * truth)])
    both = richardson_lucy(blur, y, 100, accelerate=True)
    for i in range(2):
        alone = richardson_lucy(blur, y[i], 100, accelerate=True)
        torch.testing.assert_close(both.image[i], alone.image)
        assert alone.extrapolated == both.extrapolated[i]
    assert bool((both.deviances[-2] == both.deviances[-1]).any())  # one had stopped


def test_gain_and_background_are_in_the_unit_of_the_counts() -> None:
    blur = ValidBlur(kernel(5, 5), (20, 20))
    y = counted(blur, latent(blur, 200.0), 4.0)
    one = richardson_lucy(blur, y, 20, background=4.0)
    scaled = richardson_lucy(blur, 2.5 * y, 20, gain=2.5, background=torch.full((16, 16), 10.0, dtype=DOUBLE))
    torch.testing.assert_close(scaled.image, 2.5 * one.image)
    torch.testing.assert_close(scaled.discrepancy, one.discrepancy)
    wrong = richardson_lucy(
        blur, 2.5 * y, 20, background=10.0
    )  # 2.5 times the events, as many as the noise says there are not
    assert wrong.iterations > one.iterations


def test_periodic_blur_keeps_the_number_of_counts() -> None:
    blur = PeriodicBlur(kernel(5, 5), (16, 16))
    y = counted(blur, latent(blur))
    found = richardson_lucy(blur, y, 7, discrepancy=0)
    torch.testing.assert_close(found.image.sum(), y.sum())


def test_it_settles_without_noise_and_takes_a_dark_picture() -> None:
    blur = PeriodicBlur(torch.ones(1, 1, dtype=DOUBLE), (8, 8))
    y = latent(blur)
    found = richardson_lucy(blur, y, 50, discrepancy=0)
    assert found.status is RunStatus.CONVERGED and found.iterations == 2 and float(found.change) <= 1e-4
    dark = richardson_lucy(blur, torch.zeros_like(y), 5)
    assert bool((dark.image == 0.0).all()) and dark.audit.holds


def test_unseen_pixels_of_a_kernel_with_an_empty_corner_stay_finite() -> None:
    k = torch.zeros(5, 5, dtype=DOUBLE)
    k[range(5), range(5)] = 0.2
    blur = ValidBlur(k, (16, 16))
    found = richardson_lucy(blur, counted(blur, latent(blur)), 30, discrepancy=0)
    assert bool((Counts(blur, torch.ones(blur.range, dtype=DOUBLE)).seen < 1e-12).any())
    assert bool(found.latent.isfinite().all()) and found.audit.holds


def test_expected_deviance_is_the_mean_of_the_distribution() -> None:
    for mean in (0.02, 0.3, 1.3, 7.0, 29.0, 31.0, 400.0):
        top = int(mean + 20.0 * math.sqrt(mean) + 40.0)
        y = torch.arange(top, dtype=DOUBLE)
        chance = torch.distributions.Poisson(torch.tensor(mean, dtype=DOUBLE)).log_prob(y).exp()
        exact = float((chance * 2.0 * (torch.xlogy(y, y / mean) - y + mean)).sum())
        assert float(expected_deviance(torch.tensor([mean], dtype=DOUBLE))) == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"observed": -torch.ones(6, 6, dtype=DOUBLE)}, ValueError, r"negative counts \(the least is -1\)"),
        ({"observed": torch.ones(6, 7, dtype=DOUBLE)}, ValueError, r"this blur takes \(\.\.\., 6, 6\)"),
        ({"observed": torch.ones(6, 6)}, TypeError, "float32"),
        ({"gain": 0.0}, ValueError, "gain"),
        ({"background": -1.0}, ValueError, "background has negative entries"),
        ({"background": torch.ones(5, dtype=DOUBLE)}, ValueError, r"background has shape \(5,\)"),
        ({"background": math.nan}, ValueError, "background has nan"),
        ({"iterations": 0}, ValueError, "iterations"),
        ({"discrepancy": -1.0}, ValueError, "discrepancy"),
    ],
)
def test_bad_arguments_are_refused(change: dict[str, object], error: type[Exception], message: str) -> None:
    arguments: dict[str, object] = {"observed": torch.ones(6, 6, dtype=DOUBLE)} | change
    with pytest.raises(error, match=message):
        richardson_lucy(ValidBlur.observing(kernel(3, 3), (6, 6)), **arguments)  # type: ignore[arg-type]
