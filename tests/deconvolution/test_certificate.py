"""``deconvolution/ladmm``: the theorem's inequalities in the hunt, its counterexample outside, and certificates of runs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from deconvolution_pictures import DOUBLE, blurs, kernel, noisy, photos
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import surefoot as sf
from surefoot._deconvolution.system import DeconvolutionSystem
from surefoot._deconvolution.system import certificate as measured_certificate
from surefoot.deconvolution import (
    LADMM,
    Blur,
    DeconvolutionProblem,
    InnerSolution,
    OrthonormalWavelet,
    PeriodicBlur,
    State,
    ValidBlur,
    conjugate_gradients,
)

BLURS = blurs()
every = pytest.mark.parametrize("blur", BLURS.values(), ids=list(BLURS))


def small(blur: Blur | None = None, penalty: float = 0.05) -> DeconvolutionProblem:
    blur = blur or PeriodicBlur(kernel(5, 4), (16, 14))
    sharp = torch.rand(2, 1, *blur.domain, generator=torch.Generator().manual_seed(5), dtype=DOUBLE)
    return DeconvolutionProblem(noisy(blur, sharp, 0.02), blur, penalty, "db2")


def changes(solver: LADMM, problem: DeconvolutionProblem, state: State, count: int) -> tuple[Tensor, State]:
    """V_0, ..., V_{count-1} from ``state``, and the last iterate."""
    found = []
    for _ in range(count):
        following = solver.step(problem, state)
        found.append(solver.change(problem, state, following))
        state = following
    return torch.stack(found), state


@given(
    name=st.sampled_from(sorted(BLURS)),
    beta=st.floats(1e-2, 1e2),
    coupling=st.floats(0.01, 1.0),
    other=st.floats(0.01, 1.0),
    penalty=st.floats(1e-3, 1.0),
    seed=st.integers(0, 1000),
)
@settings(max_examples=25)
def test_the_change_never_increases_and_stays_below_the_bound(
    name: str, beta: float, coupling: float, other: float, penalty: float, seed: int
) -> None:
    """From any start, at any admissible parameters, for every blur."""
    problem = small(BLURS[name], penalty)
    solver = LADMM(beta, coupling * (1.0 - 1e-8) / beta, other * (1.0 - 1e-8) / beta)
    generator = torch.Generator().manual_seed(seed)
    z, x, multiplier = (torch.randn(problem.pulled_back.shape, generator=generator, dtype=DOUBLE) for _ in range(3))
    V, _ = changes(solver, problem, State(z, x, multiplier, problem.wavelet.synthesis(x)), 12)
    assert bool((V[1:] <= V[:-1] * (1.0 + 1e-9) + 1e-22).all())
    own, _ = changes(solver, problem, solver.start(problem), 12)
    certificate = sf.certify(solver, problem)
    assert certificate.holds
    assert all(float(v) <= certificate.bound(t) for t, v in enumerate(own))


def solution(problem: DeconvolutionProblem) -> State:
    """A solution (z*, x*, μ*) up to rounding that the tests below can see, by the method itself."""
    solver = LADMM(0.5)
    state = solver.start(problem)
    for _ in range(800):
        state = solver.step(problem, state)
    return state


@pytest.mark.parametrize("name", ["periodic", "valid", "varying, periodic"])
def test_every_inequality_of_the_proof(name: str) -> None:
    """Fejér monotonicity with the correction ‖Δx‖_T², the first step, and the sum of all changes below ‖w_0 - w*‖²."""
    problem = small(BLURS[name], 0.3)
    end = solution(problem)
    solver = LADMM(0.5, 0.6 / 0.5, 0.7 / 0.5)
    state = solver.start(problem)

    def squared(a: State, b: State) -> float:
        return float(solver.change(problem, a, b))

    def correction(a: State, b: State) -> float:
        """‖Δx‖_T², T = 1/γ - βWWᵀ."""
        d = b.x - a.x
        return float(d.square().sum() / solver.gamma - 0.5 * problem.wavelet.synthesis(d).square().sum())

    distance, before, total = squared(state, end), None, 0.0
    first = distance
    for t in range(60):
        following = solver.step(problem, state)
        moved, new = squared(state, following), squared(following, end)
        corrected = new + correction(state, following)
        if before is None:
            assert corrected <= distance * (1.0 + 1e-9)
        else:
            assert corrected <= distance + before - moved + 1e-9 * first
            total += moved
        assert total <= first * (1.0 + 1e-9), t
        distance, before, state = new, correction(state, following), following


def test_the_bound_of_the_distance_from_a_solution_is_above_it() -> None:
    problem = small(penalty=0.3)
    solver, end = LADMM(0.5), solution(problem)
    certificate = sf.certify(solver, problem)
    start = solver.start(problem)
    measured = float(solver.change(problem, start, end))
    assert measured <= certificate.quantities["distance_bound"]
    assert float(end.x.abs().sum()) <= certificate.quantities["objective_bound"] / problem.penalty


def test_outside_the_hypotheses_the_change_grows_and_the_certificate_says_no() -> None:
    problem = small()
    for solver, broken in (
        (LADMM(1.0, 3.0, 3.0), ["alpha beta <= 1", "gamma beta ||W||^2 <= 1"]),
        (LADMM(1.0, 1.0, 2.5), ["gamma beta ||W||^2 <= 1"]),
    ):
        V, _ = changes(solver, problem, solver.start(problem), 60)
        assert bool((V[1:] > V[:-1] * (1.0 + 1e-6)).any())
        certificate = sf.certify(solver, problem)
        assert certificate.status is sf.CertificateStatus.FAILS
        assert [c.name for c in certificate.conditions if not c.holds] == broken
        assert "alpha and gamma slightly below 1/beta" in certificate.suggestion
        assert certificate.bound(3) == math.inf


def test_adaptive_and_inexact_solvers_get_no_certificate() -> None:
    problem = small()

    def inner(blur: Blur, right: Tensor, alpha: float, start: Tensor) -> InnerSolution:
        return conjugate_gradients(blur, right, alpha, start)

    adaptive, inexact = (sf.certify(s, problem) for s in (LADMM(1.0, adaptive=True), LADMM(1.0, inner=inner)))
    assert [c.name for c in adaptive.conditions if not c.holds] == ["the parameters are fixed"]
    assert [c.name for c in inexact.conditions if not c.holds] == ["the z-step is exact"]
    assert "adaptive=False" in adaptive.suggestion
    assert "leave inner out" in inexact.suggestion


def test_a_product_that_rounds_to_1_is_above_1() -> None:
    """The float 0.1 is above a tenth."""
    certificate = sf.certify(LADMM(0.1, 10.0), small())
    assert [c.name for c in certificate.conditions if not c.holds] == ["alpha beta <= 1"]
    assert sf.certify(LADMM(0.5, 2.0), small()).holds


def test_a_bound_beyond_float64_is_refused() -> None:
    y, blur = (
        torch.rand(16, 14, generator=torch.Generator().manual_seed(0), dtype=DOUBLE),
        PeriodicBlur(kernel(5, 4), (16, 14)),
    )
    for scale, penalty in ((1e200, 0.05), (1e150, 0.05), (1.0, 1e-300)):
        problem = DeconvolutionProblem(scale * y, blur, penalty, "db2")
        with pytest.raises(ValueError, match="out of the range of certificates"):
            LADMM().certify(problem)
        with pytest.raises(ValueError, match="leaves the range of float64"):
            measured_certificate(LADMM(), problem, checkable=False)


@every
def test_a_certificate_measured_in_floats_says_the_same(blur: Blur) -> None:
    """Up to the bounds of rounding: what a photograph is sharpened with."""
    problem, solver = small(blur), LADMM(0.5)
    rigorous, measured = solver.certify(problem), measured_certificate(solver, problem, checkable=False)
    assert measured.holds
    assert measured.arrays == rigorous.arrays
    for name, value in rigorous.quantities.items():
        assert measured.quantities[name] == pytest.approx(value, rel=1e-8), name


@pytest.mark.parametrize("name", ["alpha", "beta", "gamma"])
def test_parameters_that_became_negative_are_refused(name: str) -> None:
    solver = LADMM()
    setattr(solver, name, -5.0)
    with pytest.raises(ValueError, match=f"{name} is -5.0"):
        sf.certify(solver, small())


def test_a_certificate_is_not_taken_for_that_of_an_adaptive_or_inexact_solver() -> None:
    problem = small()
    certificate = sf.certify(LADMM(), problem)
    for solver in (LADMM(adaptive=True), LADMM(inner=conjugate_gradients)):
        with pytest.raises(ValueError, match="parameters differ"):
            sf.descend(solver, problem, certificate=certificate, max_iterations=2)


def test_kernels_that_broadcast_make_as_many_problems() -> None:
    """One picture with two kernels: the norms of the certificate are those of both starts."""
    blur = PeriodicBlur(torch.stack([kernel(5, 4), kernel(5, 4).flip(-1)]), (16, 14))
    picture = torch.rand(16, 14, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    one, two = (DeconvolutionProblem(y, blur, 0.05, "db2") for y in (picture, picture.expand(2, -1, -1)))
    assert one.observed.shape == (2, 16, 14)
    assert sf.certify(LADMM(), one).quantities == sf.certify(LADMM(), two).quantities


@pytest.mark.parametrize("seed", range(3))
def test_the_published_first_change_is_above_the_true_one_at_a_tiny_beta(seed: int) -> None:
    """There V_0 is almost the difference of two nearly equal squares; the truth is a sum of positive terms."""
    generator, beta = torch.Generator().manual_seed(seed), 1e-10
    blur = ValidBlur.observing(kernel(5, 5), (16, 16))
    problem = DeconvolutionProblem(torch.rand(16, 16, generator=generator, dtype=DOUBLE), blur, beta / 10.0)
    solver = LADMM(beta)
    start = solver.start(problem)
    after = solver.step(problem, start)
    dz, dx, dm = after.z - start.z, after.x - start.x, after.multiplier - start.multiplier
    hidden = PeriodicBlur(blur.kernel, blur.domain).forward(dz)
    blur.crop(hidden).zero_()
    squares = (hidden.square().sum(), dx.square().sum() / solver.gamma, dm.square().sum() / beta)
    true = float(sum(squares) + (1.0 / solver.alpha - beta) * dz.square().sum())
    assert true <= sf.certify(solver, problem).initial_gap <= 1.02 * true


@every
def test_a_certificate_holds_for_every_blur_and_survives_its_file(blur: Blur) -> None:
    certificate = LADMM(0.5).certify(small(blur))
    assert certificate.holds
    assert sf.Certificate.from_json(certificate.to_json()) == certificate
    assert certificate.bound(10**12) < certificate.bound(0) == certificate.initial_gap
    needed = certificate.iterations_to(1e-3)
    assert certificate.bound(int(needed)) <= 1e-3 * certificate.initial_gap
    with pytest.raises(TypeError, match="float32"):
        single = small(blur)
        LADMM().certify(
            DeconvolutionProblem(single.observed.float(), blur.to(torch.float32), 0.1, single.wavelet.to(torch.float32))
        )


@pytest.mark.parametrize("name", ["periodic", "valid", "varying, valid", "varying, periodic"])
def test_a_run_is_audited_written_and_resumed(name: str, tmp_path: Path) -> None:
    problem = small(BLURS[name])
    solver = LADMM(0.5)
    whole = sf.descend(solver, problem, max_iterations=45, tolerance=0.0)
    assert whole.audit().holds
    assert whole.audit().lines[0].checked == 45
    assert all(row["objective"] > 0.0 and row["duality_gap"] >= 0.0 for row in whole.rows)
    assert whole.rows[-1]["duality_gap"] < whole.rows[0]["duality_gap"]
    part = tmp_path / "run"
    sf.descend(solver, problem, max_iterations=17, tolerance=0.0, directory=part)
    resumed = sf.descend(solver, problem, max_iterations=45, tolerance=0.0, directory=part, resume=True)
    assert resumed.gaps == whole.gaps
    assert all(torch.equal(resumed.final[key], whole.final[key]) for key in whole.final)
    loaded = sf.Run.load(part)
    assert loaded.audit().holds
    assert loaded.certificate == sf.certify(solver, problem)


def test_the_audit_grants_the_rounding_of_a_solution_larger_than_the_picture() -> None:
    """A tiny penalty nearly inverts the blur: V ends at the rounding of iterates 35 times the size of the start."""
    generator = torch.Generator().manual_seed(0)
    flat = torch.rand(3, 3, generator=generator, dtype=DOUBLE)
    picture = torch.rand(12, 12, generator=generator, dtype=DOUBLE)
    problem = DeconvolutionProblem(picture, PeriodicBlur(flat / flat.sum(), (12, 12)), 1e-6)
    run = sf.descend(LADMM(1e-5), problem, max_iterations=200, tolerance=0.0)
    assert run.final["x"].norm() > 20.0 * run.initial["x"].norm()
    assert run.audit().holds
    rounding = max(row["rounding"] for row in run.rows)
    assert rounding > 100.0 * run.resolution
    for rise, granted in ((0.5 * rounding, True), (1e4 * rounding, False)):
        rows = [dict(row) for row in run.rows]
        last = next(i for i, row in enumerate(rows) if row["gap"] < 10.0 * rounding)
        rows[last]["gap"] = rows[last - 1]["gap"] + rise
        lines = DeconvolutionSystem().audit(rows, run.certificate, run.resolution).lines
        assert (lines[0].first_violation is None) == granted


def test_the_audit_finds_a_run_that_breaks_the_theorem() -> None:
    problem = small()
    good = sf.descend(LADMM(1.0), problem, max_iterations=30, tolerance=0.0)
    rows = [dict(row) for row in good.rows]
    rows[20]["gap"] = rows[19]["gap"] * 1.01
    audit = DeconvolutionSystem().audit(rows, good.certificate, good.resolution)
    assert not audit.holds
    assert audit.lines[0].first_violation == 19


def test_wrong_arguments_are_refused() -> None:
    problem = small()
    with pytest.raises(TypeError, match="DeconvolutionProblem"):
        sf.certify(LADMM(), sf.SquaredLoss(torch.ones(2, 2, dtype=DOUBLE), torch.ones(2, 2, dtype=DOUBLE)))
    with pytest.raises(ValueError, match="has its own parameters"):
        sf.descend(LADMM(), problem, steps=0.1)
    with pytest.raises(ValueError, match="certify_every does not apply"):
        sf.descend(LADMM(), problem, certify_every=5)
    with pytest.raises(ValueError, match="unknown engine"):
        sf.descend(LADMM(), problem, engine="gram")


def test_a_valid_photograph_problem_is_certified_and_monotone() -> None:
    blur = ValidBlur(kernel(9, 9), (64, 64))
    problem = DeconvolutionProblem(
        noisy(blur, photos(1, 64), 0.01), blur, 2e-3, OrthonormalWavelet((64, 64), "sym8", 3)
    )
    run = sf.descend(LADMM(), problem, max_iterations=40, tolerance=0.0)
    assert run.certificate.holds
    assert run.audit().holds
