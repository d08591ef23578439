"""The independent checker on runs of total variation: good runs, what is missing, enclosures against exact arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch
from deconvolution_pictures import DOUBLE, kernel, masked, varying
from deconvolution_reference import change, differences, distance_squared, exactly
from hand_made.deconvolution import RUNS, VARIATION
from hypothesis import given, settings
from hypothesis import strategies as st

import surefoot as sf
from surefoot._deconvolution.system import PictureLoss
from surefoot._deconvolution.system import certificate as measured_certificate
from surefoot._deconvolution.total_variation import differences as slopes_of
from surefoot.deconvolution import (
    LADMM,
    TVADMM,
    Blur,
    DeconvolutionProblem,
    PeriodicBlur,
    TotalVariationProblem,
    TVState,
    ValidBlur,
)
from surefoot_check import Outcome, check
from surefoot_check.deconvolution import enclosures as rigorous
from surefoot_check.deconvolution import variation
from surefoot_check.deconvolution.operators import Blur as CheckedBlur
from surefoot_check.rigor.approximation import Approximation
from surefoot_check.rigor.bounds import FAST, Level
from surefoot_check.rigor.exact import EXACT

Array = np.ndarray
TINY: dict[str, Blur] = {
    "periodic": PeriodicBlur(kernel(3, 2), (4, 5)),
    "valid": ValidBlur(kernel(2, 3), (5, 4)),
    "varying, periodic": varying(4, 3, "periodic"),
    "masked, valid": masked(ValidBlur(kernel(2, 3), (5, 4))),
}


def small(blur: Blur, penalty: float = 0.05) -> TotalVariationProblem:
    picture = torch.rand(*blur.range, generator=torch.Generator().manual_seed(2), dtype=DOUBLE)
    return TotalVariationProblem(picture, blur, penalty)


def stored(solver: TVADMM, problem: TotalVariationProblem, state: TVState) -> tuple[dict[str, Array], dict[str, Array]]:
    """The arrays of the problem and of an iterate, as a run directory holds them."""
    arrays = {name: tensor.numpy() for name, tensor in PictureLoss(problem).arrays().items()}
    return arrays, {name: tensor.numpy() for name, tensor in solver.stored(state).items()}


def enclosure(arrays: dict[str, Array], weights: dict[str, Array], level: Level = FAST) -> tuple[float, float]:
    """That of V."""
    problem = rigorous.load_problem(TotalVariationProblem.kind, arrays, level)
    lower, upper = rigorous.gap_exact(problem, rigorous.read_weights(weights, problem, "iterate"))
    return float(lower or 0.0), float(upper)


@pytest.mark.parametrize("name", ["periodic, a kernel for each picture", "valid", "varying, periodic", "masked, valid"])
def test_good_runs_are_accepted(name: str, tmp_path: Path) -> None:
    RUNS[VARIATION + name](tmp_path / "run")
    report = check(tmp_path / "run")
    assert report.outcome is Outcome.ACCEPT, [str(line) for line in report.lines]
    assert sum(line.claim == "L2" for line in report.lines) >= 4


def test_a_run_whose_end_was_deleted_is_accepted_with_a_note(tmp_path: Path) -> None:
    """Of both solvers; the checkpoints prove what they prove, and nothing says how the run ended."""
    for name in ("periodic", VARIATION + "periodic"):
        directory = tmp_path / name
        RUNS[name](directory)
        assert not any("missing" in note for note in check(directory).notes)
        (directory / "final.safetensors").unlink()
        report = check(directory)
        assert report.outcome is Outcome.ACCEPT
        assert any("final.safetensors is missing" in note for note in report.notes)


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("scale", [1.0, 1e-25, 1e40])
@pytest.mark.parametrize("beta", [0.05, 1e-9, 1e8])
def test_the_change_lies_in_its_enclosure(name: str, scale: float, beta: float) -> None:
    """Against 60 digits, from a start of no relation to the problem, for sizes and parameters from tiny to huge."""
    blur, generator = TINY[name], torch.Generator().manual_seed(int(beta) % 97)
    picture = scale * torch.rand(*blur.range, generator=generator, dtype=DOUBLE)
    problem = TotalVariationProblem(picture, blur, min(max(0.3 * scale * min(beta, 1.0), 1e-30), 1e30))
    solver, sizes = TVADMM(beta), (blur.domain, (2, *blur.domain), (2, *blur.domain))
    z, x, mu = (scale * torch.randn(size, generator=generator, dtype=DOUBLE) for size in sizes)
    arrays, iterate = stored(solver, problem, TVState(z, x, beta * mu, slopes_of(z)))
    true = change(arrays, iterate)
    for level in (FAST, EXACT):
        low, high = enclosure(arrays, iterate, level)
        assert low <= true <= high
        assert high - low <= 1e-4 * high


@pytest.mark.parametrize("wrong", [lambda x: 0.0 * x, lambda x: 1.01 * x, lambda x: x + 1.0, lambda x: x * np.nan])
@pytest.mark.parametrize("name", ["periodic", "masked, valid"])
def test_the_fourier_transform_is_not_trusted(
    name: str, wrong: Callable[[Array], Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong witness makes the enclosure wider, and never false."""
    problem, solver = small(TINY[name]), TVADMM(0.5)
    arrays, iterate = stored(solver, problem, solver.start(problem))
    before, right = enclosure(arrays, iterate), CheckedBlur.solved
    monkeypatch.setattr(CheckedBlur, "solved", lambda self, slope, ridge: wrong(right(self, slope, ridge)))
    low, high = enclosure(arrays, iterate)
    assert low <= before[0] <= before[1] <= high
    assert high - low > 1e-6 * before[1]


entries = st.one_of(st.just(0.0), st.floats(-1e30, 1e30), st.floats(-1e-290, 1e-290), st.floats(-1.0, 1.0))
pictures = st.tuples(st.integers(1, 4), st.integers(1, 4)).flatmap(
    lambda shape: st.lists(entries, min_size=2 * math.prod(shape), max_size=2 * math.prod(shape)).map(
        lambda values: np.array(values).reshape(2, *shape)
    )
)


@given(v=pictures, penalty=st.floats(1e-30, 1e30), beta=st.floats(1e-30, 1e30))
@settings(max_examples=40)
def test_thresholds_err_by_no_more_than_they_say(v: Array, penalty: float, beta: float) -> None:
    """Any magnitudes, subnormal numbers included, against 400 digits."""
    found = variation.shortened(Approximation(v), penalty, beta)
    with mpmath.workdps(400):
        radius, total = mpmath.mpf(penalty) / mpmath.mpf(beta), mpmath.mpf(0)
        for (a, b), (p, q) in zip(v.reshape(2, -1).T.tolist(), found.value.reshape(2, -1).T.tolist(), strict=True):
            size = mpmath.sqrt(mpmath.mpf(a) ** 2 + mpmath.mpf(b) ** 2)
            share = max(0, 1 - radius / size) if size > 0 else mpmath.mpf(0)
            total += (share * a - p) ** 2 + (share * b - q) ** 2
        assert mpmath.sqrt(total) <= found.error
    assert variation.shortened(Approximation(v, 1.0), penalty, beta).error >= max(1.0, found.error)


@given(x=pictures, adjoint=st.booleans())
@settings(max_examples=30)
def test_differences_err_by_no_more_than_they_say(x: Array, adjoint: bool) -> None:
    D = differences(x.shape[1:], Fraction)
    given = Approximation(x) if adjoint else Approximation(x[0])
    found = (variation.differences_adjoint if adjoint else variation.differences)(given)
    exact = (D.T if adjoint else D) @ exactly(given.value, Fraction).ravel()
    assert distance_squared(exact, found.value) <= Fraction(found.error) ** 2


def test_a_theorem_is_of_its_own_problem() -> None:
    problem = small(TINY["periodic"])
    sparse = DeconvolutionProblem(problem.observed, problem.blur, 0.05, "haar")
    with pytest.raises(TypeError, match="TotalVariationProblem"):
        sf.certify(TVADMM(), sparse)
    with pytest.raises(TypeError, match="DeconvolutionProblem"):
        sf.certify(LADMM(), problem)
    with pytest.raises(ValueError, match="does not speak of a TotalVariationProblem; use deconvolution/tv"):
        sf.certify(TVADMM(), problem, "deconvolution/ladmm")


@pytest.mark.parametrize("name", ["periodic", "masked, valid"])
def test_a_run_is_audited_written_and_resumed(name: str, tmp_path: Path) -> None:
    problem, solver = small(TINY[name]), TVADMM(0.2)
    whole = sf.descend(solver, problem, max_iterations=30, tolerance=0.0)
    assert whole.audit().holds and whole.audit().lines[0].checked == 30
    assert whole.rows[-1]["duality_gap"] < whole.rows[0]["duality_gap"]
    part = tmp_path / "run"
    sf.descend(solver, problem, max_iterations=11, tolerance=0.0, directory=part)
    resumed = sf.descend(solver, problem, max_iterations=30, tolerance=0.0, directory=part, resume=True)
    assert resumed.gaps == whole.gaps
    assert all(torch.equal(resumed.final[key], whole.final[key]) for key in whole.final)
    loaded = sf.Run.load(part)
    assert loaded.audit().holds and loaded.certificate == sf.certify(solver, problem)
    net, loss = sf.deconvolution.TVADMM(0.2), problem
    assert measured_certificate(net, loss, checkable=False).arrays == loaded.certificate.arrays


def test_the_bound_of_the_distance_from_a_solution_is_above_it() -> None:
    for name in ("periodic", "masked, valid"):
        problem, solver = small(TINY[name], 0.3), TVADMM(0.5)
        start = end = solver.start(problem)
        for _ in range(600):
            end = solver.step(problem, end)
        certificate = sf.certify(solver, problem)
        assert float(solver.change(problem, start, end)) <= certificate.quantities["distance_bound"]
        assert float(end.z.norm()) <= float(problem._reach(problem.objective(end.z) * (1.0 + 1e-9)).max())
        V, state = [], start
        for _ in range(12):
            following = solver.step(problem, state)
            V.append(float(solver.change(problem, state, following)))
            state = following
        assert all(v <= certificate.bound(t) for t, v in enumerate(V))
