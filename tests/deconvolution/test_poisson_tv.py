"""Total variation for counts: its steps, what the audit measures, and the bounds of its objective."""

from __future__ import annotations

import pytest
import torch
from deconvolution_pictures import DOUBLE, blurs, counted, kernel, photos, stacks
from torch import Tensor

from surefoot import RunStatus
from surefoot._deconvolution.counts.model import Counts
from surefoot._deconvolution.counts.poisson_tv import _data_step, _Problem
from surefoot._deconvolution.total_variation import differences, differences_adjoint, lengths
from surefoot.deconvolution import Blur, PeriodicBlur, ValidBlur, poisson_tv, psnr, richardson_lucy

BLURS = {name: blur for name, blur in (blurs() | stacks()).items() if "each picture" not in name}
every = pytest.mark.parametrize("blur", BLURS.values(), ids=list(BLURS))


def draw(seed: int, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def latent(blur: Blur, peak: float = 50.0) -> Tensor:
    return peak * draw(1, *blur.domain) ** 4


def objective(model: Counts, z: Tensor, penalty: float) -> Tensor:
    """By its definition; what is masked has neither counts nor background."""
    y, m = model.observed, model.blur.forward(z) + model.background
    n = z.ndim
    return (torch.xlogy(y, torch.where(y > 0.0, y / m, 1.0)) - y + m).sum() + penalty * lengths(
        differences(z, n), n
    ).sum()


@pytest.mark.parametrize("shape", [(5, 4), (3, 4, 5)])
def test_differences_of_pictures_and_stacks(shape: tuple[int, ...]) -> None:
    n = len(shape)
    z, x = draw(0, 2, *shape), draw(1, 2, n, *shape)
    slopes = differences(z, n)
    assert slopes.shape == (2, n, *shape)
    for i in range(n):
        torch.testing.assert_close(slopes[:, i], z.roll(-1, i - n) - z)
    torch.testing.assert_close((slopes * x).sum(), (z * differences_adjoint(x, n)).sum())
    torch.testing.assert_close(lengths(x, n), x.square().sum(1).sqrt())


@every
def test_bounds_hold_for_every_picture_and_any_dual_point(blur: Blur) -> None:
    model = Counts(blur, counted(blur, latent(blur), 2.0), 1.0, 2.0)
    problem = _Problem(model, model.level.new_full(model.level.shape, 0.05))
    n = len(blur.domain)
    lowest = torch.inf
    for seed in range(8):
        z = 40.0 * draw(seed, *blur.domain) ** (1 + seed)
        r, q = 2.0 * draw(seed + 100, *blur.range), 0.2 * (draw(seed + 200, n, *blur.domain) - 0.5)
        w = -0.1 * draw(seed + 300, *blur.domain)
        bounds = problem.duality_gap(z, r, q, w)
        exact = objective(model, z, 0.05)
        assert float(exact) <= float(bounds.primal) <= float(exact) * (1.0 + 1e-9)
        lowest = min(lowest, float(exact))
        assert float(bounds.dual) <= lowest
    best = poisson_tv(blur, model.observed, 0.05, 400, background=2.0, tolerance=1e-4)
    assert float(best.gap.dual) <= float(best.gap.primal) < lowest


@every
def test_it_converges_and_the_audit_holds(blur: Blur) -> None:
    y = counted(blur, latent(blur), 2.0)
    found = poisson_tv(blur, y, 0.05, 400, background=2.0, tolerance=1e-3)
    assert found.status is RunStatus.CONVERGED and float(found.gap.relative) <= 1e-3
    assert found.audit.holds and found.audit.lines[0].checked == found.iterations == len(found.changes)
    assert bool((found.changes.diff() <= 1e-9 * found.changes[:-1]).all())
    assert bool((found.latent >= 0.0).all())
    torch.testing.assert_close(found.image, blur.crop(found.latent))
    torch.testing.assert_close(
        objective(Counts(blur, y, 1.0, 2.0), found.latent, 0.05), found.gap.primal, rtol=1e-9, atol=1e-9
    )


def test_a_large_penalty_gives_the_best_constant() -> None:
    blur = PeriodicBlur(kernel(3, 3), (8, 8))
    y = counted(blur, latent(blur), 4.0)
    found = poisson_tv(blur, y, 1e3, 3000, background=4.0, tolerance=1e-8)
    torch.testing.assert_close(found.image, (y.mean() - 4.0).expand(8, 8), rtol=1e-3, atol=0)


def test_a_small_penalty_approaches_the_largest_likelihood() -> None:
    blur = PeriodicBlur(torch.ones(1, 1, dtype=DOUBLE), (6, 7))
    y = counted(blur, latent(blur)) + 1.0
    found = poisson_tv(blur, y, 1e-7, 500, tolerance=0.0)
    torch.testing.assert_close(found.image, y, rtol=1e-4, atol=1e-4)


def test_the_data_step_is_the_proximal_one() -> None:
    blur = PeriodicBlur(kernel(3, 3), (8, 8))
    y = counted(blur, latent(blur, 3.0))  # some of it 0
    assert bool((y == 0.0).any())
    for background in (0.0, 0.5):
        model = Counts(blur, y, 1.0, background)
        a, step = 4.0 * draw(3, 8, 8) - 2.0, torch.tensor(0.3, dtype=DOUBLE)
        p, r = _data_step(a, step, model)
        v = background + (a - p) / step
        assert bool((v >= -1e-14).all()) and bool((p <= 1.0 + 1e-14).all())
        seen = y > 0.0
        torch.testing.assert_close(p[seen], 1.0 - (y / v)[seen])
        torch.testing.assert_close(r, (1.0 - p).clamp(min=0.0), rtol=1e-9, atol=1e-12)
        # without counts the derivative is 1 where v > 0
        inside = ~seen & (v > 1e-9)
        torch.testing.assert_close(p[inside], torch.ones_like(p[inside]))


class Understated(ValidBlur):
    """A blur that claims a majorizer below BᵀB."""

    def __init__(self, kernel: Tensor, shape: tuple[int, ...]) -> None:
        super().__init__(kernel, shape)
        self.majorizer = 0.2 * self.majorizer


def test_the_audit_fails_where_the_step_is_too_large() -> None:
    blur = Understated(kernel(5, 5), (16, 16))
    found = poisson_tv(blur, counted(blur, latent(blur)), 0.001, 30, tolerance=0.0)
    assert not found.audit.holds
    assert found.audit.lines[0].first_violation is not None


def test_images_of_a_batch_have_steps_and_penalties_of_their_own() -> None:
    blur = ValidBlur(kernel(3, 3), (12, 12))
    y = torch.stack([counted(blur, latent(blur, peak)) for peak in (10.0, 2000.0)])
    both = poisson_tv(blur, y, iterations=40, tolerance=0.0)
    for i in range(2):
        alone = poisson_tv(blur, y[i], iterations=40, tolerance=0.0)
        torch.testing.assert_close(both.image[i], alone.image)
        torch.testing.assert_close(both.gap.dual[i], alone.gap.dual)
        assert float(both.penalty[i]) == float(alone.penalty)
    assert both.penalty[0] > 10 * both.penalty[1] and both.relative_gaps.shape == (5, 2)


def test_gain_scales_the_picture_alone() -> None:
    blur = ValidBlur(kernel(5, 5), (20, 20))
    y = counted(blur, latent(blur, 200.0), 4.0)
    one = poisson_tv(blur, y, iterations=30, background=4.0)
    scaled = poisson_tv(blur, 2.5 * y, iterations=30, background=10.0, gain=2.5)
    torch.testing.assert_close(scaled.image, 2.5 * one.image)
    torch.testing.assert_close(scaled.gap.primal, one.gap.primal)


def test_single_precision_is_near_and_has_bounds_in_double() -> None:
    blur = ValidBlur(kernel(5, 5), (24, 24))
    y = counted(blur, latent(blur, 200.0), 4.0)
    double = poisson_tv(blur, y, background=4.0)
    single = poisson_tv(blur.to(torch.float32), y.float(), background=4.0)
    assert single.audit.holds and single.status is double.status is RunStatus.CONVERGED
    assert single.image.dtype == torch.float32 and single.gap.dual.dtype == DOUBLE
    torch.testing.assert_close(single.image.double(), double.image, rtol=1e-2, atol=0.5)


def test_it_restores_photographs_better_than_richardson_lucy() -> None:
    sharp, blur = photos(4, 64), ValidBlur(kernel(7, 7), (64, 64))
    truth = blur.crop(sharp)
    for peak in (20.0, 500.0):
        y = counted(blur, peak * sharp, 2.0)
        tv, rl = poisson_tv(blur, y, background=2.0), richardson_lucy(blur, y, background=2.0)
        assert tv.status is RunStatus.CONVERGED
        # one of the four is fine ornament alone, which total variation flattens
        assert float(psnr(tv.image / peak, truth).mean()) > float(psnr(rl.image / peak, truth).mean()) + 0.5


def test_bad_penalties_are_refused() -> None:
    blur = ValidBlur.observing(kernel(3, 3), (6, 6))
    with pytest.raises(ValueError, match="penalty"):
        poisson_tv(blur, torch.ones(6, 6, dtype=DOUBLE), -1.0)
    with pytest.raises(ValueError, match="negative counts"):
        poisson_tv(blur, -torch.ones(6, 6, dtype=DOUBLE))


def test_the_default_penalty_is_lowered_for_points_on_a_dark_ground() -> None:
    blur = ValidBlur.observing(kernel(5, 5), (32, 32))
    stars = torch.zeros(blur.domain, dtype=DOUBLE)
    stars[4::9, 5::7] = 3000.0
    y = counted(blur, stars, 1.0)
    found = poisson_tv(blur, y, background=1.0, tolerance=0.2)
    assert float(found.penalty) < 0.5 * 0.6 * float(y.mean() - 1.0) ** -0.7
    assert float(found.discrepancy) <= 1.02
    assert found.audit.holds and len(found.changes) < found.iterations
    assert float(poisson_tv(blur, y, 0.02, 20, background=1.0).penalty) == pytest.approx(
        0.02
    )  # what one asks for stays
