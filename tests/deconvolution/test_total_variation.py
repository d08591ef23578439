"""Total variation: against an independent solver, the duality gap as a bound from both sides, the theorem's inequalities."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from deconvolution_pictures import DOUBLE, blurs, kernel, noisy, photos
from hypothesis import given, settings
from hypothesis import strategies as st

import surefoot as sf
from surefoot._deconvolution.settling import LEFT
from surefoot._deconvolution.total_variation import differences, differences_adjoint, lengths
from surefoot.deconvolution import (
    TVADMM,
    Blur,
    MaskedBlur,
    PeriodicBlur,
    SpatiallyVaryingBlur,
    TotalVariationProblem,
    TVState,
    ValidBlur,
    deblur,
    variation_penalty,
)

Array = np.ndarray
BLURS = blurs()
every = pytest.mark.parametrize("blur", BLURS.values(), ids=list(BLURS))


def problem(blur: Blur, penalty: float = 0.05, dtype: torch.dtype = DOUBLE) -> TotalVariationProblem:
    """Two pictures of noise: as many edges as pixels."""
    sharp = torch.rand(2, 1, *blur.domain, generator=torch.Generator().manual_seed(5), dtype=DOUBLE)
    return TotalVariationProblem(noisy(blur, sharp, 0.02).to(dtype), blur.to(dtype), penalty)


def random_state(found: TotalVariationProblem, seed: int) -> TVState:
    """A start of no relation to the problem."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(found.pulled_back.shape, generator=generator, dtype=DOUBLE)
    x, mu = (torch.randn(differences(z).shape, generator=generator, dtype=DOUBLE) for _ in range(2))
    return TVState(z, x, mu, differences(z))


# -- against definitions and an independent solver ---------------------------------------------------------------------


def convolution_matrix(taps: Array, domain: tuple[int, int], valid: bool) -> Array:
    """B as a matrix, entry by entry from its definition."""
    (rows, columns), (H, W) = taps.shape, domain
    top, left = (rows - 1 - rows // 2, columns - 1 - columns // 2) if valid else (0, 0)
    h, w = (H - rows + 1, W - columns + 1) if valid else domain
    B = np.zeros((h * w, H * W))
    for i in range(h):
        for j in range(w):
            for a in range(rows):
                for b in range(columns):
                    r, c = (i + top - a + rows // 2) % H, (j + left - b + columns // 2) % W
                    B[i * w + j, r * W + c] += taps[a, b]
    return B


def difference_matrix(domain: tuple[int, int]) -> Array:
    """D as a matrix (2HW, HW)."""
    index = np.arange(domain[0] * domain[1]).reshape(domain)
    identity = np.eye(index.size)
    return np.concatenate([identity[np.roll(index, -1, axis).ravel()] - identity for axis in (0, 1)])


def chambolle_pock(B: Array, y: Array, D: Array, penalty: float, iterations: int) -> tuple[Array, float]:
    """argmin ½‖Bz - y‖² + λ Σ ‖(Dz)_i‖ and its value, by the primal-dual method (J. Math. Imaging Vis. 40, 2011)."""
    step = 0.99 / np.linalg.norm(np.concatenate([B, D]), 2)
    z = ahead = np.zeros(B.shape[1])
    u, p = np.zeros(len(B)), np.zeros((2, B.shape[1]))
    for _ in range(iterations):
        u = (u + step * (B @ ahead - y)) / (1.0 + step)
        p = p + step * (D @ ahead).reshape(2, -1)
        p = p / np.maximum(1.0, np.sqrt((p**2).sum(0)) / penalty)
        new = z - step * (B.T @ u + D.T @ p.ravel())
        z, ahead = new, 2.0 * new - z
    value = 0.5 * ((B @ z - y) ** 2).sum() + penalty * np.sqrt(((D @ z).reshape(2, -1) ** 2).sum(0)).sum()
    return z, float(value)


@pytest.mark.parametrize("valid", [False, True], ids=["periodic", "valid"])
def test_solutions_are_those_of_an_independent_solver(valid: bool) -> None:
    """Chambolle and Pock's method on matrices that are written down from the definitions."""
    taps, domain, penalty = kernel(3, 2), (8, 7), 0.03
    blur = ValidBlur(taps, domain) if valid else PeriodicBlur(taps, domain)
    picture = torch.rand(*blur.range, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)
    B, D = convolution_matrix(taps.numpy(), domain, valid), difference_matrix(domain)
    z, value = chambolle_pock(B, picture.numpy().ravel(), D, penalty, 3000)
    solved = TVADMM(0.1).solve(TotalVariationProblem(picture, blur, penalty), 600, tolerance=1e-6)
    assert float(solved.gap.dual) <= value
    assert float(solved.gap.primal) == pytest.approx(value, rel=2e-6)
    assert float(solved.gap.relative) <= 1e-5
    seen = B @ z - (B @ solved.state.z.numpy().ravel())
    assert np.abs(seen).max() < 1e-3


def test_differences_are_those_of_the_matrix_and_have_their_adjoint() -> None:
    D, generator = difference_matrix((4, 5)), torch.Generator().manual_seed(0)
    z, x = (torch.randn(3, *shape, generator=generator, dtype=DOUBLE) for shape in ((4, 5), (2, 4, 5)))
    assert np.allclose(differences(z).reshape(3, -1).numpy(), z.reshape(3, -1).numpy() @ D.T, atol=1e-15)
    assert np.allclose(differences_adjoint(x).reshape(3, -1).numpy(), x.reshape(3, -1).numpy() @ D, atol=1e-15)


# -- the duality gap ---------------------------------------------------------------------------------------------------


@every
def test_bounds_enclose_the_optimum_and_close(blur: Blur) -> None:
    found = problem(blur)
    near = TVADMM(0.1).solve(found, 600, tolerance=5e-4)
    assert float(near.gap.relative.max()) <= 5e-4
    for scale in (0.0, 0.5, 1.0):
        for multiplier in (None, near.state.multiplier, 3.0 * near.state.multiplier):
            bounds = found.duality_gap(scale * near.state.z, multiplier)
            assert bool((bounds.dual <= near.gap.primal).all())
            assert bool((bounds.primal >= near.gap.dual).all())
            assert bool((bounds.primal >= found.objective(scale * near.state.z)).all())


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_gap_closes_to_rounding_and_not_below(scale: float) -> None:
    """The optimum of a constant picture is known: it is that picture, where the gap must stay above 0 by the rounding."""
    blur = ValidBlur(kernel(5, 3), (12, 10))
    flat = torch.full(blur.range, 0.7 * scale, dtype=DOUBLE)
    found = TotalVariationProblem(flat, blur, 0.05 * scale)
    bounds = found.duality_gap(torch.full(blur.domain, 0.7 * scale, dtype=DOUBLE))
    assert (
        0.0 <= float(bounds.dual) <= float(found.objective(torch.full(blur.domain, 0.7 * scale, dtype=DOUBLE))) + 1e-300
    )
    assert float(bounds.gap) <= 1e-20 * scale**2


def test_what_rounding_leaves_of_the_constraint_counts() -> None:
    """A multiplier of huge length leaves Bᵀu - Dᵀp far from 0: the bound must not exceed the optimum."""
    found = problem(BLURS["valid"])
    optimum = TVADMM(0.1).solve(found, 600, tolerance=1e-5).gap.primal
    generator = torch.Generator().manual_seed(0)
    z = found.extended()
    for size in (1e3, 1e9, 1e15):
        wild = size * torch.randn(differences(z).shape, generator=generator, dtype=DOUBLE)
        bounds = found.duality_gap(z, wild)
        assert bool((bounds.dual <= optimum).all())


def test_float32_bounds_enclose_the_float64_values() -> None:
    blur = PeriodicBlur(kernel(5, 5), (32, 32))
    single = problem(blur, dtype=torch.float32)
    state = TVADMM(0.1).solve(single, 60, tolerance=1e-3).state
    exact = TotalVariationProblem(single.observed.double(), single.blur.to(DOUBLE), single.penalty)
    bounds = single.duality_gap(state.z, state.multiplier)
    assert bool((bounds.primal >= exact.objective(state.z.double())).all())
    assert bool((bounds.dual <= TVADMM(0.1).solve(exact, 300, tolerance=1e-6).gap.primal).all())
    assert float(bounds.relative.max()) <= 1e-2  # as near as in float64


def test_a_blur_that_keeps_no_constants_has_a_gap_that_closes() -> None:
    blur = BLURS["valid"]
    mask = torch.rand(blur.range, generator=torch.Generator().manual_seed(0), dtype=DOUBLE) > 0.2
    found = problem(MaskedBlur(blur, mask))
    solved = TVADMM(0.1).solve(found, 600, tolerance=1e-3)
    assert float(solved.gap.relative.max()) <= 1e-3
    with pytest.raises(ValueError, match="constant image to 0"):
        problem(MaskedBlur(blur, torch.zeros_like(mask)))


# -- the theorem -------------------------------------------------------------------------------------------------------


@given(
    name=st.sampled_from(sorted(BLURS)),
    beta=st.floats(1e-3, 1e2),
    penalty=st.floats(1e-3, 1.0),
    seed=st.integers(0, 1000),
)
@settings(max_examples=25)
def test_the_change_never_increases(name: str, beta: float, penalty: float, seed: int) -> None:
    """From any start, at any β, for every blur."""
    found, solver = problem(BLURS[name], penalty), TVADMM(beta)
    state, before = random_state(found, seed), float("inf")
    for _ in range(12):
        following = solver.step(found, state)
        now = float(solver.change(found, state, following))
        assert now <= before * (1.0 + 1e-9) + 1e-20 * (beta + 1.0 / beta)
        state, before = following, now


@pytest.mark.parametrize("name", ["periodic", "valid", "varying, periodic"])
def test_every_inequality_of_the_proof(name: str) -> None:
    """Fejér monotonicity less the change, and the sum of all changes below ‖w_0 - w*‖², from any start."""
    found, solver = problem(BLURS[name], 0.3), TVADMM(0.5)
    end = solver.start(found)
    for _ in range(600):
        end = solver.step(found, end)
    state, total = random_state(found, 3), 0.0
    distance = first = float(solver.change(found, state, end))
    for t in range(40):
        following = solver.step(found, state)
        moved, new = float(solver.change(found, state, following)), float(solver.change(found, following, end))
        assert new <= distance - (moved if t > 0 else 0.0) + 1e-9 * first
        total += moved if t > 0 else 0.0
        assert total <= first * (1.0 + 1e-9), t
        distance, state = new, following


def test_multipliers_stay_in_their_balls_and_vanish_nowhere_else() -> None:
    """‖μ_i‖ ≤ λ, and μ_i = λx_i/‖x_i‖ where x_i is not 0: μ is a subgradient at x."""
    found, solver = problem(BLURS["valid"], 0.1), TVADMM(0.2)
    state = random_state(found, 0)
    for _ in range(3):
        state = solver.step(found, state)
        assert float(lengths(state.multiplier).max()) <= 0.1 * (1.0 + 1e-14)
        size = lengths(state.x)
        pointing = 0.1 * state.x / size.clamp(min=1e-300).unsqueeze(-3)
        moving = (size > 1e-12).unsqueeze(-3)
        assert float(((state.multiplier - pointing) * moving).abs().max()) < 1e-12
        assert bool(moving.any())


# -- use ---------------------------------------------------------------------------------------------------------------


def test_a_photograph_is_sharpened_to_a_small_gap() -> None:
    blur, sharp = PeriodicBlur(kernel(7, 7), (48, 48)), photos(1, 48)
    observed = noisy(blur, sharp, 0.01)
    solved = TVADMM(0.02).solve(TotalVariationProblem(observed, blur, 1e-3), 100, tolerance=0.02)
    assert float(solved.gap.relative) <= 0.02
    before, after = ((v - sharp).square().mean() for v in (observed, solved.image))
    assert float(after) < 0.7 * float(before)


def test_varying_weights_of_one_kernel_are_that_blur() -> None:
    one = PeriodicBlur(kernel(4, 3), (9, 8))
    same = SpatiallyVaryingBlur(kernel(4, 3)[None], torch.ones(1, 9, 8, dtype=DOUBLE), "periodic")
    first, second = (TVADMM(0.1).solve(problem(blur), 200, tolerance=1e-5) for blur in (one, same))
    assert float((first.image - second.image).abs().max()) < 2e-3
    assert float((first.gap.primal / second.gap.primal - 1.0).abs().max()) < 2e-6


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="beta"):
        TVADMM(0.0)
    with pytest.raises(ValueError, match="penalty"):
        problem(BLURS["periodic"], -1.0)
    with pytest.raises(ValueError, match="observed has shape"):
        TotalVariationProblem(torch.zeros(3, 3, dtype=DOUBLE), BLURS["periodic"], 0.1)


def test_a_photograph_in_colour_gets_the_theorem_on_every_tile_and_stops_when_it_has_settled() -> None:
    """Better than what was seen, with a gap that bounds the objective, and a movement that is measured."""
    taps, sharp = kernel(5, 7), photos(3, 100)
    blurred = PeriodicBlur(taps, (100, 100)).forward(sharp)
    photo = blurred + 0.02 * torch.randn(blurred.shape, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    found = deblur(photo, taps, 0.02, prior="tv", tile=80)
    assert found.tiles == 4 and len(found.certificates) == 4
    assert {certificate.theorem for certificate in found.certificates} == {"deconvolution/tv"}
    assert found.certified and found.status is sf.RunStatus.SETTLED
    assert found.left is not None and found.left <= LEFT
    assert found.gap is not None and 0.0 < found.gap < 1.0
    before, after = ((v.double() - sharp).square().mean() for v in (photo, found.image))
    assert float(after) < 0.6 * float(before)
    longer = deblur(photo, taps, 0.02, prior="tv", iterations=3)
    assert (longer.status, longer.iterations) == (sf.RunStatus.MAX_ITERATIONS, 3)


@pytest.mark.parametrize("noise", [0.0, -1.0, float("nan")])
def test_a_penalty_of_no_noise_is_refused(noise: float) -> None:
    with pytest.raises(ValueError, match="noise"):
        variation_penalty(noise)


@given(
    shape=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(["noise", "half", "square", "stripe", "point"]),
)
@settings(max_examples=60)
def test_lemma_1_bounds_an_image_by_its_total_variation(shape: tuple[int, int], seed: int, kind: str) -> None:
    """‖z - m‖ ≤ √(0.5 + 0.3a) Σ‖(Dz)_i‖, of pictures of noise, edges and points."""
    H, W = shape
    rows, columns = torch.arange(H, dtype=DOUBLE)[:, None], torch.arange(W, dtype=DOUBLE)
    z = {
        "noise": torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE),
        "half": (rows < H / 2) + 0.0 * columns,
        "square": ((rows < H / 2) & (columns < W / 2)).to(DOUBLE),
        "stripe": (columns < 1) + 0.0 * rows,
        "point": ((rows < 1) & (columns < 1)).to(DOUBLE),
    }[kind]
    bound = (0.5 + 0.3 * max(shape) / min(shape)) ** 0.5 * float(lengths(differences(z)).sum())
    assert float((z - z.mean()).norm()) <= bound * (1.0 + 1e-12)
