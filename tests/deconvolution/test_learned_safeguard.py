"""The safeguards: what is returned is as good as the fallback's, whatever the weights."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from deconvolution_pictures import DOUBLE, kernel, noisy, photos
from torch import Tensor

from surefoot._deconvolution.half_quadratic import HyperLaplacian
from surefoot._deconvolution.learned import safeguard
from surefoot._deconvolution.learned.safeguard import continued
from surefoot._deconvolution.masked import MaskedBlur
from surefoot.deconvolution import (
    LADMM,
    DeconvolutionProblem,
    PeriodicBlur,
    ValidBlur,
    default_penalty,
    restore_certified,
    restore_checked,
)
from surefoot.nn import LearnedDeconvolution

NOISE = 0.02
SIZE = 32


def problem(make: type[PeriodicBlur | ValidBlur] = PeriodicBlur, count: int = 3) -> tuple[DeconvolutionProblem, Tensor]:
    blur, sharp = make(kernel(5, 5), (SIZE, SIZE)), photos(count, SIZE)
    return DeconvolutionProblem(noisy(blur, sharp, NOISE), blur, default_penalty(NOISE)), sharp


class Fixed(LearnedDeconvolution):
    """A network that proposes given images."""

    def __init__(self, images: Tensor) -> None:
        super().__init__(1, 0)
        self.images = images
        self.double()

    def forward(self, observed: Tensor, blur: object, noise: object, start: object = None) -> Tensor:
        return self.images


def optimum(given: DeconvolutionProblem) -> tuple[Tensor, Tensor]:
    """The image that solves the problem to 1e-6, and its objectives."""
    found = LADMM(10.0 * given.penalty).solve(given, 4000, tolerance=1e-6)
    return found.state.synthesis, given.objective(found.state.x)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("spread", [0.0, 0.3, 3.0, 1e3, torch.nan])
def test_any_weights_are_certified(seed: int, spread: float) -> None:
    given, _ = problem()
    best = optimum(given)[1]
    net = LearnedDeconvolution(3, 0 if seed % 2 else 4, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in net.parameters():
            p += spread * torch.randn(p.shape, generator=generator)
    found = restore_certified(net, given, NOISE)
    assert found.gap is not None and found.guarantee == "certified"
    assert float(found.gap.relative.max()) <= 1e-2
    assert bool((found.gap.primal <= 1.011 * best).all()) and bool((found.gap.dual <= best * (1.0 + 1e-6)).all())
    # the bound speaks of the image that is returned
    assert torch.allclose(given.objective(given.wavelet.analysis(found.image)), found.gap.primal, rtol=1e-6)


@pytest.mark.parametrize("size", [1e308, 1e306])
def test_a_finite_proposal_whose_objective_overflows_is_not_accepted(size: float) -> None:
    given, _ = problem()
    images, _ = optimum(given)
    images = images.clone()
    images[1] *= size
    found = restore_certified(Fixed(images), given, NOISE)
    assert found.gap is not None
    assert found.accepted.tolist() == [True, False, True]
    assert float(found.gap.relative.max()) <= 1e-2
    assert float(found.image.abs().max()) < 2.0


def test_a_solution_is_accepted_as_it_is() -> None:
    given, _ = problem()
    images = optimum(given)[0]
    found = restore_certified(Fixed(images), given, NOISE)
    assert bool(found.accepted.all()) and found.iterations == 0
    assert torch.allclose(found.image, images, atol=1e-12)


def test_one_bad_proposal_of_three() -> None:
    given, _ = problem()
    images, best = optimum(given)
    images = images.clone()
    images[1, 3, 4] = torch.inf
    found = restore_certified(Fixed(images), given, NOISE)
    assert found.accepted.tolist() == [True, False, True] and found.iterations > 0
    assert torch.equal(found.image[0], given.wavelet.synthesis(given.wavelet.analysis(images[0])))
    assert float(found.gap.primal[1]) <= 1.011 * float(best[1])  # pyright: ignore[reportOptionalMemberAccess]
    assert "2 of 3" in found.text


def test_never_above_the_fallback() -> None:
    """Where no solver may finish: of the proposal and the fallback the lower objective is returned."""
    given, _ = problem()
    images, best = optimum(given)
    near = images + 1e-3 * torch.randn(images.shape, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    found = restore_certified(Fixed(near), given, NOISE, tolerance=0.0, iterations=1)
    assert found.gap is not None
    proposed = given.objective(given.wavelet.analysis(near))
    assert bool((found.gap.primal <= proposed * (1.0 + 1e-9)).all()) and bool(
        (found.gap.primal >= best * (1 - 1e-6)).all()
    )


def test_a_good_proposal_saves_iterations() -> None:
    given, _ = problem()
    images = optimum(given)[0]
    near = images + 2e-3 * torch.randn(images.shape, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    far = torch.zeros_like(images)
    counts = [restore_certified(Fixed(z), given, NOISE, tolerance=1e-3).iterations for z in (near, far)]
    assert 0 < counts[0] < counts[1]


@pytest.mark.parametrize("make", [PeriodicBlur, ValidBlur])
def test_checked_averages_what_explains_the_observation(make: type[PeriodicBlur | ValidBlur]) -> None:
    given, sharp = problem(make)
    fallback = HyperLaplacian().solve(given.observed, given.blur, NOISE).latent
    better = 0.5 * (sharp + fallback)
    found = restore_checked(Fixed(better), given.observed, given.blur, NOISE)
    assert bool(found.accepted.all()) and found.gap is None
    assert torch.equal(found.latent, fallback + safeguard.SHARE * (better - fallback))
    assert torch.equal(found.image, given.blur.crop(found.latent))
    assert torch.allclose(found.residual, torch.ones(3, dtype=DOUBLE), atol=0.4)
    assert found.guarantee == "heuristic" and "heuristic" in found.text


def test_what_was_not_seen_is_continued_by_the_fallback() -> None:
    given, sharp = problem(ValidBlur)
    fallback = sharp + 0.01
    mask = torch.ones(given.blur.range, dtype=torch.bool)
    mask[3:6, 4:9] = False
    for blur in (given.blur, MaskedBlur(given.blur, mask)):
        whole, periodic = continued(blur.seen(given.observed), blur, fallback)
        assert isinstance(periodic, PeriodicBlur) and periodic.range == blur.domain
        expected = periodic.forward(fallback)
        known = torch.zeros(blur.domain, dtype=torch.bool)
        blur.crop(known)[:] = blur.seen(torch.ones(blur.range)) > 0
        torch.testing.assert_close(whole[:, ~known], expected[:, ~known], rtol=0.0, atol=1e-12)
        seen = blur.seen(given.observed)[:, blur.seen(torch.ones(blur.range)) > 0]
        torch.testing.assert_close(blur.crop(whole)[:, blur.crop(known)], seen, rtol=0.0, atol=1e-12)


def ripples(sharp: Tensor) -> Tensor:
    """Of a period of 2 pixels, which a blur hardly shows."""
    rows, columns = (torch.arange(size) for size in sharp.shape)
    return sharp + 0.05 * (-1.0) ** (rows[:, None] + columns)


WRONG: dict[str, Callable[[DeconvolutionProblem, Tensor], Tensor]] = {
    "nan": lambda given, sharp: torch.full_like(sharp[0], torch.nan),
    "infinite": lambda given, sharp: torch.full_like(sharp[0], torch.inf),
    "constant": lambda given, sharp: torch.full_like(sharp[0], float(given.observed[0].mean())),
    "scaled": lambda given, sharp: 1.5 * sharp[0],
    "brighter": lambda given, sharp: sharp[0] + 0.1,
    "blurred": lambda given, sharp: given.blur.forward(given.blur.forward(sharp))[0],
    "moved": lambda given, sharp: sharp[0].roll(1, -1),
    "other scene": lambda given, sharp: sharp[1],
    "fits the noise": lambda given, sharp: given.blur.solve(1e9 * given.pulled_back, 1e9)[0],
    "ringing": lambda given, sharp: ripples(sharp[0]),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_checked_falls_back(wrong: str) -> None:
    """To what is restored without a network, exactly."""
    given, sharp = problem()
    fallback = HyperLaplacian().solve(given.observed, given.blur, NOISE).latent
    images = 0.5 * (sharp + fallback)
    images[0] = WRONG[wrong](given, images)
    found = restore_checked(Fixed(images), given.observed, given.blur, NOISE)
    assert found.accepted.tolist() == [False, True, True]
    assert torch.equal(found.latent[0], fallback[0])
    other = restore_checked(Fixed(images), given.observed, given.blur, NOISE, fallback=fallback + 1e-3)
    assert torch.equal(other.latent[0], fallback[0] + 1e-3)


@pytest.mark.parametrize("spread", [0.3, 3.0, 1e3, torch.nan])
@pytest.mark.parametrize("seed", range(3))
def test_random_weights_are_refused(seed: int, spread: float) -> None:
    given, _ = problem()
    net = LearnedDeconvolution(3, 4, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in net.parameters():
            p += spread * torch.randn(p.shape, generator=generator)
    found = restore_checked(net, given.observed, given.blur, NOISE)
    assert not bool(found.accepted.any())
    assert torch.equal(found.latent, HyperLaplacian().solve(given.observed, given.blur, NOISE).latent)


def test_no_proposal_counts_at_a_noise_that_was_not_trained_for() -> None:
    given, sharp = problem()
    net = Fixed(0.5 * (sharp + HyperLaplacian().solve(given.observed, given.blur, NOISE).latent))
    for limits, accepted in (((0.002, 0.05), True), ((0.002, 0.01), False), ((0.03, 0.05), False)):
        net.noise_range = limits
        found = restore_checked(net, given.observed, given.blur, NOISE)
        assert found.accepted.tolist() == [accepted] * 3


def test_a_fallback_that_is_not_finite_is_not_mixed_in() -> None:
    given, sharp = problem()
    found = restore_checked(Fixed(sharp), given.observed, given.blur, NOISE, fallback=torch.full_like(sharp, torch.nan))
    assert not bool(found.accepted.any())


def test_single_precision_pictures() -> None:
    given, _ = problem()
    net = LearnedDeconvolution(2, 4)
    found = restore_checked(net, given.observed.float(), given.blur.to(torch.float32), NOISE)
    assert found.image.dtype == torch.float32 and bool(found.image.isfinite().all())
