"""The independent checker on runs of the linearised ADMM: good runs, and enclosures against exact arithmetic."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from deconvolution_pictures import DOUBLE, kernel, masked, varying, weights
from deconvolution_reference import change, convolution, distance_squared, exactly, wavelet
from hand_made.deconvolution import BLURS, RUNS, in_problem, problem_of, published, remeasured, restated
from hypothesis import given, settings
from hypothesis import strategies as st
from tamper import Change, StoredRun

import surefoot as sf
from surefoot._deconvolution.system import PictureLoss
from surefoot.deconvolution import (
    LADMM,
    Blur,
    DeconvolutionProblem,
    OrthonormalWavelet,
    PeriodicBlur,
    SpatiallyVaryingBlur,
    State,
    ValidBlur,
)
from surefoot_check import Outcome, check
from surefoot_check.arrays import FormatError
from surefoot_check.deconvolution import enclosures as rigorous
from surefoot_check.deconvolution.operators import Blur as CheckedBlur
from surefoot_check.deconvolution.operators import Convolution, Wavelet
from surefoot_check.rigor.approximation import Approximation
from surefoot_check.rigor.bounds import FAST, Level
from surefoot_check.rigor.exact import EXACT

Array = np.ndarray
KIND = DeconvolutionProblem.kind
levels = pytest.mark.parametrize("level", [FAST, EXACT], ids=["fast", "exact"])


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of 20 iterations for each blur."""
    found = {}
    for name in BLURS:
        found[name] = tmp_path_factory.mktemp("good") / "run"
        RUNS[name](found[name])
    return found


@pytest.mark.parametrize("name", BLURS)
@levels
def test_good_runs_are_accepted(good: dict[str, Path], name: str, level: Level) -> None:
    report = check(good[name], level.name)
    assert report.outcome is Outcome.ACCEPT, [str(line) for line in report.lines]
    stored = [line for line in report.lines if line.claim == "L2"]
    assert len(stored) == len(list(good[name].glob("checkpoints/*.safetensors"))) + 1 >= 4


def test_the_checker_needs_neither_torch_nor_wavelets(good: dict[str, Path]) -> None:
    """In a process of its own."""
    script = (
        f"import sys, surefoot_check; found = surefoot_check.check({str(good['valid'])!r}); "
        "print(found.outcome.value, *({'torch', 'pywt', 'scipy', 'surefoot'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["accept"]


def test_a_black_picture_is_accepted(tmp_path: Path) -> None:
    """Everything is zero but the bound of the rounding."""
    problem = DeconvolutionProblem(torch.zeros(8, 9, dtype=DOUBLE), PeriodicBlur(kernel(3, 2), (8, 9)), 0.05)
    run = sf.descend(LADMM(), problem, max_iterations=3, tolerance=0.0, directory=tmp_path / "run")
    assert 0.0 < run.certificate.initial_gap < 1e-25
    assert check(tmp_path / "run").outcome is Outcome.ACCEPT


# -- enclosures against exact arithmetic -------------------------------------------------------------------------------

TINY: dict[str, Blur] = {
    "periodic": PeriodicBlur(kernel(3, 2), (4, 5)),
    "valid": ValidBlur(kernel(2, 3), (5, 4)),
    "varying, valid": SpatiallyVaryingBlur(torch.stack([kernel(2, 2, 0), kernel(2, 2, 1)]), weights(2, 3, 3), "valid"),
    "varying, periodic": varying(4, 3, "periodic"),
    "masked, periodic": masked(PeriodicBlur(kernel(3, 2), (4, 5))),
    "masked, valid": masked(ValidBlur(kernel(2, 3), (5, 4))),
}


def stored(solver: LADMM, problem: DeconvolutionProblem, state: State) -> tuple[dict[str, Array], dict[str, Array]]:
    """The arrays of the problem and of an iterate, as a run directory holds them."""
    arrays = {name: tensor.numpy() for name, tensor in PictureLoss(problem).arrays().items()}
    return arrays, {name: tensor.numpy() for name, tensor in solver.stored(state).items()}


def enclosure(arrays: dict[str, Array], weights: dict[str, Array], level: Level) -> tuple[float, float]:
    """That of V."""
    problem = rigorous.load_problem(KIND, arrays, level)
    lower, upper = rigorous.gap_exact(problem, rigorous.read_weights(weights, problem, "iterate"))
    assert float(upper) == rigorous.gap_upper(problem, weights)
    return float(lower or 0.0), float(upper)


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("scale", [1.0, 1e-25, 1e40])
@pytest.mark.parametrize("beta", [0.05, 1e-9, 1e8])
def test_the_change_lies_in_its_enclosure(name: str, scale: float, beta: float) -> None:
    """Against 60 digits, from a start of no relation to the problem, for sizes and parameters from tiny to huge."""
    blur, generator = TINY[name], torch.Generator().manual_seed(int(beta) % 97)
    picture = scale * torch.rand(*blur.range, generator=generator, dtype=DOUBLE)
    problem = DeconvolutionProblem(picture, blur, min(max(0.3 * scale * min(beta, 1.0), 1e-30), 1e30), "db2")
    solver = LADMM(beta, 0.7 / beta, 0.8 / beta)
    z, x, mu = (scale * torch.randn(blur.domain, generator=generator, dtype=DOUBLE) for _ in range(3))
    arrays, iterate = stored(solver, problem, State(z, x, beta * mu, problem.wavelet.synthesis(x)))
    true = change(arrays, iterate)
    for level in (FAST, EXACT):
        low, high = enclosure(arrays, iterate, level)
        assert low <= true <= high
        assert high - low <= 1e-4 * high


@pytest.mark.parametrize("name", TINY)
def test_the_change_lies_in_its_enclosure_along_a_run(name: str) -> None:
    """Where V has fallen to a hundred millionth."""
    blur = TINY[name]
    picture = torch.rand(*blur.range, generator=torch.Generator().manual_seed(2), dtype=DOUBLE)
    problem, solver = DeconvolutionProblem(picture, blur, 0.02, "haar"), LADMM()
    state = solver.start(problem)
    for count in (0, 3, 60):
        for _ in range(count):
            state = solver.step(problem, state)
        arrays, iterate = stored(solver, problem, state)
        true = change(arrays, iterate)
        low, high = enclosure(arrays, iterate, FAST)
        assert low <= true <= high
        assert high - low <= 1e-8 * high + 1e-12 * math.sqrt(high)


@pytest.mark.parametrize("wrong", [lambda x: 0.0 * x, lambda x: 1.01 * x, lambda x: x + 1.0, lambda x: x * np.nan])
@pytest.mark.parametrize("name", ["valid", "varying, periodic"])
def test_the_fourier_transform_is_not_trusted(
    name: str, wrong: Callable[[Array], Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong witness makes the enclosure wider, and never false."""
    blur = TINY[name]
    picture = torch.rand(*blur.range, generator=torch.Generator().manual_seed(2), dtype=DOUBLE)
    problem, solver = DeconvolutionProblem(picture, blur, 0.02, "haar"), LADMM(0.5)
    arrays, iterate = stored(solver, problem, solver.start(problem))
    before = enclosure(arrays, iterate, FAST)
    right = CheckedBlur.solved
    monkeypatch.setattr(CheckedBlur, "solved", lambda self, slope, alpha: wrong(right(self, slope, alpha)))
    low, high = enclosure(arrays, iterate, FAST)
    assert low <= before[0] <= before[1] <= high
    assert high - low > 1e-6 * before[1]


entries = st.one_of(st.just(0.0), st.floats(-1e30, 1e30), st.floats(-1e-290, 1e-290), st.floats(-1.0, 1.0))
sizes = st.tuples(st.integers(2, 7), st.integers(2, 7))


@given(data=st.data(), shape=sizes, size=st.tuples(st.integers(1, 7), st.integers(1, 7)), adjoint=st.booleans())
@settings(max_examples=30)
@levels
def test_convolutions_err_by_no_more_than_they_say(
    level: Level, data: st.DataObject, shape: tuple[int, int], size: tuple[int, int], adjoint: bool
) -> None:
    """Any magnitudes, subnormal numbers included, against rational arithmetic."""
    size = min(size[0], shape[0]), min(size[1], shape[1])
    count = st.lists(entries, min_size=math.prod(shape), max_size=math.prod(shape))
    image = np.array(data.draw(count)).reshape(shape)
    taps = st.lists(st.floats(0.0, 2.0), min_size=math.prod(size), max_size=math.prod(size))
    filled = np.array(data.draw(taps)).reshape(size)
    operator, K = Convolution(filled, level), convolution(filled, shape, Fraction)
    found = (operator.adjoint if adjoint else operator)(Approximation(image))
    exact = (K.T if adjoint else K) @ exactly(image, Fraction).ravel()
    assert distance_squared(exact, found.value) <= Fraction(found.error) ** 2
    assert max(sum(row) for row in K) <= Fraction(operator.norm)


@given(
    data=st.data(),
    shape=st.tuples(st.integers(4, 7), st.integers(4, 7)),
    name=st.sampled_from(["haar", "db3", "coif2"]),
    inverse=st.booleans(),
)
@settings(max_examples=8)
@levels
def test_wavelet_transforms_err_by_no_more_than_they_say(
    level: Level, data: st.DataObject, shape: tuple[int, int], name: str, inverse: bool
) -> None:
    """Odd sizes, and filters longer than the image, against rational arithmetic; the input with an error of its own."""
    count = st.lists(entries, min_size=math.prod(shape), max_size=math.prod(shape))
    image = np.array(data.draw(count)).reshape(shape)
    filters = OrthonormalWavelet(shape, name, 2).filters.numpy()
    operator, W = Wavelet(filters, shape, 2, level), wavelet(filters, shape, 2, Fraction)
    found = (operator.synthesis if inverse else operator.analysis)(Approximation(image, 0.0))
    exact = (W.T if inverse else W) @ exactly(image, Fraction).ravel()
    assert distance_squared(exact, found.value) <= Fraction(found.error) ** 2
    carried = (operator.synthesis if inverse else operator.analysis)(Approximation(image, 1.0))
    assert carried.error >= max(1.0, found.error)


def test_the_norm_of_a_transform_whose_filters_are_not_orthonormal() -> None:
    filters = OrthonormalWavelet((6, 7), "db2", 2).filters.numpy() * 1.1
    low, high = Wavelet(filters, (6, 7), 2, FAST).norm
    W = wavelet(filters, (6, 7), 2, float).astype(float)
    assert low - 1e-12 <= np.linalg.norm(W, 2) <= high + 1e-12  # which is rounded itself
    assert high < 1.1**4 * (1.0 + 1e-12)


def test_large_operators_agree_with_the_transforms_of_the_product() -> None:
    """More than one block in every direction, and of the taps."""
    generator = np.random.default_rng(0)
    taps, image = generator.random((40, 90)), generator.standard_normal((270, 150))
    taps /= taps.sum()
    blur, W = PeriodicBlur(torch.from_numpy(taps), image.shape), OrthonormalWavelet((270, 150), "sym8", 4)
    given_image, tensor = Approximation(image), torch.from_numpy(image)
    K, V = Convolution(taps, FAST), Wavelet(W.filters.numpy(), (270, 150), 4, FAST)
    for found, expected in (
        (K(given_image), blur.forward(tensor)),
        (K.adjoint(given_image), blur.adjoint(tensor)),
        (V.analysis(given_image), W.analysis(tensor)),
        (V.synthesis(given_image), W.synthesis(tensor)),
    ):
        assert np.linalg.norm(found.value - expected.numpy()) <= 1e-12
        assert found.error <= 1e-10


# -- tampered runs -----------------------------------------------------------------------------------------------------


BASE = (
    "initial_gap",
    "transform_norm",
    "blur_norm",
    "majorizer_excess",
    "objective_bound",
    "start_latent",
    "start_coefficients",
)


def tampered(good: Path, change_of: Change, directory: Path) -> Path:
    run = StoredRun.read(good)
    change_of(run)
    run.seal()
    run.write(directory)
    return directory


def test_the_generator_tampers_with_nothing_else(good: dict[str, Path], tmp_path: Path) -> None:
    """Unchanged, and with a weaker claim, the same files are accepted."""
    for count, change_of in enumerate(
        (
            lambda run: None,
            lambda run: restated(run),
            lambda run: restated(run, initial_gap=1.01 * published(run, "initial_gap")),
            lambda run: restated(run, objective_bound=1.01 * published(run, "objective_bound")),
            lambda run: remeasured(run, ()),
            in_problem("scales", lambda c: 1.5 * c, but=()),  # any majorizer will do
        )
    ):
        assert check(tampered(good["varying, valid"], change_of, tmp_path / str(count))).outcome is Outcome.ACCEPT


@pytest.mark.parametrize("name", BASE)
def test_base_quantities_without_slack_are_not_accepted(good: dict[str, Path], tmp_path: Path, name: str) -> None:
    """1e-6 below, with everything else recomputed from them; those that bound something that is not computed leave it open."""
    directory = tampered(
        good["valid"], lambda run: restated(run, **{name: published(run, name) * (1.0 - 1e-6)}), tmp_path / "run"
    )
    known = name in ("initial_gap", "transform_norm", "start_latent", "start_coefficients")
    assert check(directory).outcome is (Outcome.REJECT if known else Outcome.UNDECIDED)


def test_hostile_sizes_are_refused_before_any_work() -> None:
    arrays, _ = stored(LADMM(), problem_of("periodic"), LADMM().start(problem_of("periodic")))
    arrays |= {"levels": np.array([1])}
    for observed, taps in (
        ((1400, 1400), (900, 900)),  # multiplications
        ((5000, 2, 2), (1, 1)),  # images
        ((2, 1 << 21), (1, 1 << 18)),  # a thin picture
        ((1, 1), (1 << 11, 1 << 11)),  # a latent image far larger than the picture
    ):
        hostile = arrays | {"observed": np.zeros(observed), "kernel": np.zeros(taps), "periodic": np.array([0])}
        with pytest.raises(FormatError, match="more than is checked"):
            rigorous.load_problem(KIND, hostile)
