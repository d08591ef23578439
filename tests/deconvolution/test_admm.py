"""The linearised ADMM: it solves its problem (against an independent method), with the corrected signs only, for every blur."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from deconvolution_pictures import DOUBLE, blurs, kernel, noisy, photos
from torch import Tensor

import surefoot as sf
from surefoot.deconvolution import (
    LADMM,
    Blur,
    DeconvolutionProblem,
    InnerSolution,
    PeriodicBlur,
    State,
    ValidBlur,
    chebyshev,
    conjugate_gradients,
    default_penalty,
    gradient_wiener,
    psnr,
)

BLURS = blurs()
every = pytest.mark.parametrize("blur", BLURS.values(), ids=list(BLURS))


def photo_problem(count: int = 2, size: int = 48, dtype: torch.dtype = DOUBLE) -> tuple[DeconvolutionProblem, Tensor]:
    blur, sharp = PeriodicBlur(kernel(7, 7), (size, size)), photos(count, size)
    observed = noisy(blur, sharp, 0.01).to(dtype)
    return DeconvolutionProblem(observed, blur.to(dtype), default_penalty(0.01)), sharp


def accelerated_gradients(problem: DeconvolutionProblem, iterations: int) -> Tensor:
    """FISTA (Beck and Teboulle 2009) on the same objective: an independent solver."""
    x = point = torch.zeros_like(problem.pulled_back)
    momentum = 1.0
    for _ in range(iterations):
        residual = problem.blur.forward(problem.wavelet.synthesis(point)) - problem.observed
        moved = point - problem.wavelet.analysis(problem.blur.adjoint(residual)) / problem.blur.norm_bound**2
        following = moved.sign() * (moved.abs() - problem.penalty / problem.blur.norm_bound**2).clamp(min=0.0)
        grown = 0.5 * (1.0 + (1.0 + 4.0 * momentum**2) ** 0.5)
        point = following + (momentum - 1.0) / grown * (following - x)
        x, momentum = following, grown
    return x


@every
def test_reaches_the_minimum_that_another_method_finds(blur: Blur) -> None:
    sharp = torch.rand(2, 2, *blur.domain, generator=torch.Generator().manual_seed(5), dtype=DOUBLE)
    problem = DeconvolutionProblem(noisy(blur, sharp, 0.01), blur, 0.05, "db2")
    found = LADMM(0.5).solve(problem, 250, tolerance=0.0)
    reference = problem.objective(accelerated_gradients(problem, 250))
    torch.testing.assert_close(problem.objective(found.state.x), reference, rtol=2e-3, atol=0)
    assert found.iterations == 250
    assert found.image.shape == (2, 2, *blur.range)


def as_printed(solver: LADMM, problem: DeconvolutionProblem, state: State, sign: float, threshold: float) -> State:
    """An iteration of equation (13) with the sign of b_k and the threshold given."""
    pull = state.multiplier + solver.beta * (state.z - state.synthesis)
    z = problem.blur.solve(state.z - solver.alpha * pull + solver.alpha * problem.pulled_back, solver.alpha)
    moved = state.x + sign * solver.gamma * problem.wavelet.analysis(
        state.multiplier + solver.beta * (z - state.synthesis)
    )
    x = moved.sign() * (moved.abs() - threshold).clamp(min=0.0)
    synthesis = problem.wavelet.synthesis(x)
    return State(z, x, state.multiplier + solver.beta * (z - synthesis), synthesis)


def test_the_printed_signs_fail() -> None:
    """Equation (13) as printed: with x - γW(…) the iteration diverges; with the threshold γ/λ it returns a black picture."""
    problem, _ = photo_problem(1)
    solver = LADMM(0.05)
    start = solver.start(problem)
    corrected = printed_sign = printed_threshold = start
    for _ in range(40):
        corrected = as_printed(solver, problem, corrected, 1.0, solver.gamma * problem.penalty)
        printed_sign = as_printed(solver, problem, printed_sign, -1.0, solver.gamma * problem.penalty)
        printed_threshold = as_printed(solver, problem, printed_threshold, 1.0, solver.gamma / problem.penalty)
    reference = start
    for _ in range(40):
        reference = solver.step(problem, reference)
    torch.testing.assert_close(corrected.x, reference.x, rtol=0, atol=1e-12)
    least = float(problem.duality_gap(corrected.x).primal)
    assert float(problem.objective(printed_sign.x)) > 1e6 * least
    assert float(printed_threshold.x.abs().max()) == 0.0


def test_restores_photographs_and_says_how_far_it_is() -> None:
    problem, sharp = photo_problem(2, 96)
    found = LADMM().solve(problem, 100)
    assert found.status is sf.RunStatus.CONVERGED
    assert float(found.gap.relative.max()) <= 1e-2
    before, after = psnr(problem.observed, sharp), psnr(found.image, sharp)
    assert bool((after > before + 3.0).all())


def test_valid_blur_restores_without_ringing_at_the_border() -> None:
    """A photograph is not periodic: the periodic model rings, the valid one is as good at the border as inside."""
    sharp = photos(1, 96)
    blur = ValidBlur(kernel(9, 9), (96, 96))
    observed, truth = noisy(blur, sharp, 0.01), blur.crop(sharp)
    valid = LADMM().solve(DeconvolutionProblem(observed, blur, default_penalty(0.01)), 60).image
    periodic = DeconvolutionProblem(observed, PeriodicBlur(blur.kernel, blur.range), default_penalty(0.01))
    wrapped = LADMM().solve(periodic, 60).image
    strip = (..., slice(0, 8), slice(None))
    assert float(psnr(valid[strip], truth[strip])) > float(psnr(wrapped[strip], truth[strip])) + 3.0
    assert float(psnr(valid, truth)) > float(psnr(observed, truth)) + 1.5


def test_colour_and_batches_are_solved_one_by_one() -> None:
    blur = ValidBlur(kernel(5, 4), (20, 18))
    sharp = torch.rand(2, 3, 20, 18, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)
    observed = noisy(blur, sharp, 0.01)
    together = LADMM().solve(DeconvolutionProblem(observed, blur, 0.01), 20, tolerance=0.0)
    for i in range(2):
        for c in range(3):
            alone = LADMM().solve(DeconvolutionProblem(observed[i, c], blur, 0.01), 20, tolerance=0.0)
            torch.testing.assert_close(together.image[i, c], alone.image, rtol=0, atol=1e-12)
            torch.testing.assert_close(together.gap.relative[i, c], alone.gap.relative, rtol=1e-9, atol=1e-12)


def test_float32_follows_float64() -> None:
    (single, _), (double, _) = photo_problem(2, dtype=torch.float32), photo_problem(2)
    found, exact = (LADMM().solve(p, 30, tolerance=0.0) for p in (single, double))
    assert found.image.dtype == torch.float32
    torch.testing.assert_close(found.image.double(), exact.image, rtol=0, atol=1e-4)


def test_adaptive_parameters_decay_to_their_floor() -> None:
    solver = LADMM(0.05, 20.0, 10.0, adaptive=True)
    assert solver.parameters_at(0) == (20.0, 10.0)
    assert solver.parameters_at(3) == pytest.approx((20.0 * 0.98**3, 10.0 * 0.98**3))
    assert solver.parameters_at(2000) == (1e-4, 1e-4)
    problem, sharp = photo_problem(1)
    found = solver.solve(problem, 60, tolerance=0.0)
    assert float(psnr(found.image, sharp)) > float(psnr(problem.observed, sharp)) + 1.0


@pytest.mark.parametrize("preconditioned", [False, True])
@every
def test_conjugate_gradients_solve_the_inner_system(blur: Blur, preconditioned: bool) -> None:
    right = torch.randn(2, 3, *blur.domain, generator=torch.Generator().manual_seed(2), dtype=DOUBLE)
    found = conjugate_gradients(blur, right, 30.0, tolerance=1e-10, preconditioned=preconditioned)
    residual = 30.0 * blur.gram(found.solution) + found.solution - right
    assert float(residual.norm() / right.norm()) <= 1e-9
    assert bool((found.residual <= 1e-10).all())
    if preconditioned and blur.exact_majorizer:
        assert found.applications == 3  # one iteration


@every
def test_chebyshev_solves_the_inner_system(blur: Blur) -> None:
    right = torch.randn(2, 3, *blur.domain, generator=torch.Generator().manual_seed(2), dtype=DOUBLE)
    found = chebyshev(blur, right, 30.0, tolerance=1e-10)
    residual = 30.0 * blur.gram(found.solution) + found.solution - right
    assert float(residual.norm() / right.norm()) <= 1e-9
    # its rate: ((√κ-1)/(√κ+1))^k with κ = 31, and nothing below machine precision
    assert found.applications <= 2 * 75


def test_inner_solvers_count_and_agree_with_the_exact_step() -> None:
    problem, _ = photo_problem(1)

    def inner(blur: Blur, right: Tensor, alpha: float, start: Tensor) -> InnerSolution:
        return conjugate_gradients(blur, right, alpha, start, tolerance=1e-12)

    exact, iterated = LADMM(), LADMM(inner=inner)
    one = iterated.step(problem, iterated.start(problem))
    torch.testing.assert_close(one.z, exact.step(problem, exact.start(problem)).z, rtol=0, atol=1e-10)
    assert one.applications > 2


def test_a_start_of_ones_own_converges_to_the_same() -> None:
    problem, _ = photo_problem(1, 32)
    solver = LADMM()
    wiener = problem.wavelet.analysis(gradient_wiener(problem.blur, problem.observed, 0.01))
    start = State(*(4 * (wiener,)))
    start = replace(start, z=problem.wavelet.synthesis(wiener), synthesis=problem.wavelet.synthesis(wiener))
    ends = [solver.solve(problem, 300, tolerance=2e-3, start=s) for s in (None, start)]
    assert all(end.status is sf.RunStatus.CONVERGED for end in ends)
    torch.testing.assert_close(*(problem.objective(end.state.x) for end in ends), rtol=2e-3, atol=0)


def test_divergence_is_reported_and_the_start_returned() -> None:
    problem, _ = photo_problem(1, 32)
    found = LADMM(0.05, 20.0, 1e6).solve(problem, 300)
    assert found.status is sf.RunStatus.DIVERGED
    assert bool(found.image.isfinite().all())


@pytest.mark.parametrize("arguments", [{"beta": 0.0}, {"alpha": -1.0}, {"gamma": float("nan")}, {"beta": float("inf")}])
def test_bad_parameters_are_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(arguments))} is"):
        LADMM(**arguments)


def test_bad_solver_arguments_are_refused() -> None:
    problem, _ = photo_problem(1, 32)
    with pytest.raises(ValueError, match="iterations is 0"):
        LADMM().solve(problem, 0)
    with pytest.raises(ValueError, match="tolerance is -1"):
        LADMM().solve(problem, 1, tolerance=-1)
    with pytest.raises(ValueError, match="noise is 0"):
        default_penalty(0)
