"""``orthogonalize``: the best polynomials and their proved ranges, and the polar factor by products in every precision."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import surefoot as sf
from surefoot._linalg import odd_polynomials
from surefoot._linalg import orthogonalize as module
from surefoot._linalg.info import Status
from surefoot._linalg.odd_polynomials import image, nearest_to_one
from surefoot._linalg.orthogonalize import orthogonalize, orthogonalize_ex, orthogonalize_steps
from surefoot._linalg.polar import polar
from surefoot_check import Outcome, check
from surefoot_check.inverse.enclosures import Spectrum, base_quantities

F64 = torch.float64


def draw(*shape: int, dtype: torch.dtype = F64, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def with_values(values: list[float], m: int, n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """A of these singular values, and its polar factor."""
    P, Q = (torch.linalg.qr(draw(size, len(values), seed=seed + size)).Q for size in (m, n))
    return (P * torch.tensor(values, dtype=F64)) @ Q.mT, P @ Q.mT


def evaluate(row: tuple[float, ...], x: np.ndarray) -> np.ndarray:
    return sum(c * x ** (2 * j + 1) for j, c in enumerate(row))  # type: ignore[return-value]


@pytest.mark.parametrize("terms", [2, 3, 4])
@pytest.mark.parametrize("lower", [1e-6, 1e-2, 0.5, 0.99])
def test_the_error_alternates_as_that_of_the_best_polynomial_does(terms: int, lower: float) -> None:
    """By Chebyshev's theorem terms + 1 extremes of equal size and alternating sign show that no polynomial is nearer."""
    x = np.linspace(lower, 1.0, 200_001)
    error = evaluate(nearest_to_one(terms, lower, 1.0), x) - 1.0
    largest = np.abs(error).max()
    extremes = np.sign(error[np.abs(error) >= largest * (1 - 1e-6) - 1e-15])
    assert 1 + int((extremes[1:] != extremes[:-1]).sum()) == terms + 1


def test_the_published_first_polynomial_is_found_again() -> None:
    """The Polar Express, list of coefficients: made for [0.02407…, 1], then centred on [1e-3, 1]."""
    row = nearest_to_one(3, 0.02407327424182761, 1.0)
    low, high = image(row, 1e-3, 1.0)
    published = (8.28721201814563, -23.595886519098837, 17.300387312530933)
    assert tuple(c * 2.0 / (low + high) for c in row) == pytest.approx(published, rel=1e-9)


def test_near_one_the_best_polynomials_are_those_of_newton_and_schulz() -> None:
    assert odd_polynomials.newton_schulz(2) == (1.5, -0.5)
    assert odd_polynomials.newton_schulz(3) == (1.875, -1.25, 0.375)
    assert orthogonalize_steps(0.5, F64).coefficients[-1] == pytest.approx((1.875, -1.25, 0.375), rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_ranges_enclose_the_values_and_little_more(seed: int) -> None:
    g = np.random.default_rng(seed)
    row, (low, width) = tuple(g.uniform(-30, 30, 2 + seed % 3).tolist()), g.uniform(1e-6, 1.0, 2).tolist()
    bottom, top = image(row, low, low + width)
    values = evaluate(row, np.linspace(low, low + width, 20_001))
    rounding = 1e-15 * sum(abs(c) for c in row) * (low + width) ** 7 + 1e-15
    # the grid misses an extreme by at most |p''| h²/8
    missed = sum(abs(c) * 42 * max(1.0, low + width) ** 5 for c in row) * (width / 20_000) ** 2 / 8
    assert values.min() - missed - rounding <= bottom <= values.min() + rounding
    assert values.max() - rounding <= top <= values.max() + missed + rounding


@pytest.mark.parametrize("degree", [3, 5, 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_stated_error_is_reached_and_not_passed(degree: int, dtype: torch.dtype) -> None:
    plan = orthogonalize_steps(1e-3, dtype, steps=3, degree=degree)
    x = np.geomspace(1e-3, 1.0, 20_001)
    for row, (low, high) in zip(plan.coefficients, plan.intervals[1:], strict=True):
        x = evaluate(row, x)
        assert low <= x.min() and x.max() <= high
    reached = np.abs(x - 1.0).max()
    # half precision widens every interval, which the exact composition does not use up
    assert plan.error * (0.9 if dtype is torch.bfloat16 else 1 - 1e-4) <= reached <= plan.error


def test_the_checker_finds_the_same_errors(tmp_path: Path) -> None:
    plan = orthogonalize_steps(1e-2, F64)
    C = torch.tensor(plan.inverse, dtype=F64)
    net = sf.nn.LearnedInverse(C)
    certificate = sf.certify(net, interval=(1e-4, 1.0))
    net.save_certificate(tmp_path / "certificate", (1e-4, 1.0))
    assert check(tmp_path / "certificate").outcome is Outcome.ACCEPT
    found = base_quantities(Spectrum(np.array([1e-4, 1.0])), {"C": C.numpy()}, {})
    for k, (low, high) in enumerate(plan.intervals[1:-1], 1):
        ours = max(abs(1 - low**2), abs(1 - high**2))
        least, largest = found[f"residual[{k}]"]
        assert largest - least <= 1e-9
        assert ours == pytest.approx(largest, rel=1e-6, abs=1e-12) and ours <= certificate.bound(k) * (1 + 1e-9)


@pytest.mark.parametrize(("lower", "steps"), [(1e-2, 4), (1e-3, 6), (1e-4, 7)])
def test_what_the_reserve_for_rounding_costs(lower: float, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = odd_polynomials.compose(lower, 0.0, 5, steps).error
    monkeypatch.setattr(odd_polynomials, "FLOOR", 0.0)
    best = odd_polynomials.compose.__wrapped__(lower, 0.0, 5, steps).error
    assert 9e-4 < best < taken <= 1.22 * best


def test_below_the_interval_values_stay_between_0_and_the_end() -> None:
    for dtype in (torch.bfloat16, torch.float64):
        plan = orthogonalize_steps(1e-2, dtype)
        x = np.geomspace(1e-12, 1e-2, 1001)
        for row, (_, high) in zip(plan.coefficients, plan.intervals[1:], strict=True):
            x = evaluate(row, x)
            assert (x > 0).all() and (x <= high).all()


@pytest.mark.parametrize("degree", [3, 5, 7])
@pytest.mark.parametrize(("m", "n"), [(12, 12), (12, 30), (30, 12)])
def test_every_singular_value_of_the_interval_becomes_one(m: int, n: int, degree: int) -> None:
    values = [7.0, *np.geomspace(7e-3, 7.0, 11).tolist()]
    A, true = with_values(values, m, n)
    U, info = orthogonalize_ex(A, lower=1e-3, degree=degree)
    assert info.ok and int(info.rank) == 12 and float((U - true).abs().max()) <= 1e-12
    # few steps: within the proved error for the spread that the scale can add
    few = orthogonalize(A, lower=1e-3, steps=4, degree=degree)
    bound = orthogonalize_steps(2.0**-10 / 16**0.125, F64, steps=4, degree=degree).error
    assert 1e-4 < float((torch.linalg.svdvals(few) - 1).abs().max()) <= bound + 1e-12


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.float32, F64, torch.complex64, torch.complex128]
)
@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
def test_precisions_and_scales(dtype: torch.dtype, scale: float) -> None:
    scale = scale if dtype is not torch.float16 else scale ** (1 / 8)
    A = draw(2, 3, 9, 5, dtype=torch.complex128 if dtype.is_complex else F64)
    A = (A * scale).to(dtype)
    U, info = orthogonalize_ex(A)
    wide = A.to(torch.complex128 if dtype.is_complex else F64)
    true, condition = polar(wide).U, float(torch.linalg.cond(wide).max())
    assert U.dtype is dtype and U.shape == A.shape and info.ok and info.method == "products"
    assert float((U - true).abs().max()) <= 4 * condition * torch.finfo(dtype).eps
    defect = torch.linalg.matrix_norm(U.mH.to(wide.dtype) @ U.to(wide.dtype) - torch.eye(5, dtype=wide.dtype), ord=2)
    assert bool((defect <= info.residual).all()) and bool((info.residual <= 3 * defect + 1e-13).all())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(24, 24), (16, 64)])
def test_products_of_half_precision(
    dtype: torch.dtype, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on hardware that has them: every product is rounded to half precision."""
    monkeypatch.setattr(module, "product_dtype", lambda device, dtype: dtype)
    values = np.geomspace(1e-2, 1.0, min(shape)).tolist()
    A, _ = with_values(values, *shape)
    A = A.to(dtype)
    U, info = orthogonalize_ex(A, lower=5e-3)
    assert info.ok and U.dtype is dtype
    stated = orthogonalize_steps(2.0**-7.75 / 32**0.125, dtype).error
    assert float((torch.linalg.svdvals(U.double()) - 1).abs().max()) <= stated + 4 * torch.finfo(dtype).eps
    # rounding mixes large singular values into small ones: the factor itself is as far as the least of them allows
    assert float((U.double() - polar(A.double()).U).norm() / min(shape) ** 0.5) <= 16 * torch.finfo(dtype).eps


@pytest.mark.parametrize("k", [3, 20, 60])
def test_the_scale_is_a_bound_of_the_norm_and_near_it(k: int) -> None:
    for dtype in (torch.bfloat16, torch.float32, F64):
        for A in (draw(k, k), torch.eye(k, dtype=F64), torch.ones(k, k + 5, dtype=F64)):
            X, G, square = module._scaled(A[None], dtype)
            norm = float(torch.linalg.matrix_norm(X[0].double(), ord=2))
            assert 0.9 * k**-0.125 <= norm <= 1 + torch.finfo(dtype).eps
            assert torch.allclose(X @ X.mT, G, atol=4 * torch.finfo(dtype).eps)
            assert torch.allclose(G @ G, square, atol=4 * torch.finfo(dtype).eps)


def test_zero_deficient_and_non_finite_matrices_of_a_batch() -> None:
    A = draw(5, 6, 4)
    A[0] = 0.0
    A[1] = A[1, :, :1] @ A[1, :1]
    A[2, 0, 0] = math.nan
    A[3, 0, 0] = math.inf
    U, info = orthogonalize_ex(A)
    assert info.status.tolist() == [Status.NOT_CONVERGED] * 2 + [Status.NON_FINITE] * 2 + [Status.OK]
    assert info.rank.tolist() == [0, 1, 0, 0, 4] and info.residual[2:4].tolist() == [math.inf] * 2
    assert bool((U[0] == 0).all()) and bool(U[2:4].isnan().any(-1).any(-1).all())
    values = torch.linalg.svdvals(U[1])
    assert float((values - torch.tensor([1.0, 0, 0, 0])).abs().max()) < 1e-10
    assert torch.equal(U[4], orthogonalize(A[4:])[0])
    for shape in ((0, 3, 4), (2, 0, 4), (3, 0)):
        assert orthogonalize(torch.zeros(shape)).shape == shape


def test_a_value_below_the_interval_is_reported() -> None:
    A, _ = with_values([1.0, 0.5, 1e-5], 3, 5)
    U, info = orthogonalize_ex(A.float(), lower=0.1)
    least = float(torch.linalg.svdvals(U.double())[-1])
    assert int(info.status) == Status.NOT_CONVERGED and 1e-5 < least < 0.5 and float(info.residual) >= 1 - least**2
    assert orthogonalize_ex(A.float(), lower=1e-6)[1].ok


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_derivatives_and_transforms() -> None:
    A, _ = with_values([3.0, 3.0, 1.0, 0.5], 4, 6)  # with a tie
    A, g = torch.stack((A, 2 * A)), draw(2, 4, 6, seed=3)

    def few(A: torch.Tensor) -> torch.Tensor:
        return orthogonalize(A, lower=0.1)

    assert torch.autograd.gradcheck(few, A.clone().requires_grad_())
    got, true = (torch.func.vjp(f, A)[1](g)[0] for f in (few, lambda A: polar(A).U))
    assert float((got - true).abs().max()) <= 1e-10
    tangent = torch.func.jvp(few, (A,), (g,))[1]
    assert float((tangent - torch.func.jvp(lambda A: polar(A).U, (A,), (g,))[1]).abs().max()) <= 1e-10
    assert torch.allclose(torch.vmap(few, in_dims=2, out_dims=2)(A.movedim(0, 2)), few(A).movedim(0, 2), atol=1e-14)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_compiled_in_single_precision() -> None:
    """Bounds of its rounding look at settings of torch, which a graph cannot."""
    A = draw(2, 4, 6).float()
    compiled = torch.compile(lambda A: orthogonalize_ex(A), fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(A)[0], orthogonalize(A), atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"lower": 0.0}, ValueError, "lower is 0.0: it must be below 1"),
        ({"lower": 1.0}, ValueError, "lower is 1.0"),
        ({"lower": "x"}, TypeError, "lower is 'x'"),
        ({"degree": 4}, ValueError, "degree is 4; choose one of 3, 5, 7"),
        ({"steps": 0}, ValueError, "steps is 0"),
        ({"steps": 2.0}, TypeError, "steps is 2.0"),
    ],
)
def test_errors_name_the_argument(arguments: dict[str, object], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        orthogonalize(torch.eye(2), **arguments)  # type: ignore[arg-type]
    with pytest.raises(error, match=match):
        orthogonalize_steps(**arguments)  # type: ignore[arg-type]


def test_other_dtypes_are_refused() -> None:
    with pytest.raises(TypeError, match=r"A has dtype torch\.int64"):
        orthogonalize(torch.ones(2, 2, dtype=torch.int64))
    with pytest.raises(TypeError, match=r"dtype is torch\.int32: choose one of torch\.float32"):
        orthogonalize_steps(dtype=torch.int32)
