"""Baselines: they converge to the reference minimisers, at their known rates, at the known cost."""

from __future__ import annotations

import json
import warnings
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot._step_sizes.baselines import (
    cgls,
    fista,
    gradient_descent,
    lsqr,
    names,
    scikit_learn_lasso,
    strongly_convex_nesterov,
    trace,
)
from surefoot._step_sizes.rates import proved_bound
from surefoot._step_sizes.schedules import SCHEDULES
from surefoot.learned import Lasso, LeastSquares, Logistic, Problems, schedule

F64 = torch.float64
CASES = Path(__file__).resolve().parents[2].parent / "shared" / "cases" / "learned_steps.json"


def gaussian(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def well_conditioned(count: int, rows: int, columns: int, seed: int) -> torch.Tensor:
    """(count, rows, columns) with singular values between 1 and 2, so that every method gets somewhere in few iterations."""
    U, _, V = torch.linalg.svd(gaussian(count, rows, columns, seed=seed), full_matrices=False)
    values = torch.linspace(1.0, 2.0, U.shape[2], dtype=F64) * (1.0 + 0.2 * torch.arange(count, dtype=F64))[:, None]
    return U @ (values[:, :, None] * V)


def batch(kind: int, seed: int) -> Problems:
    if kind == 0:
        return LeastSquares(well_conditioned(3, 4, 7, seed), gaussian(3, 4, seed=seed + 1))
    if kind == 1:
        return LeastSquares(well_conditioned(2, 8, 5, seed), gaussian(2, 8, seed=seed + 1))
    if kind == 2:
        return Lasso(well_conditioned(3, 7, 5, seed), gaussian(3, 7, seed=seed + 1), [0.05, 0.3, 1.0])
    if kind == 3:
        return Lasso(well_conditioned(2, 5, 9, seed), gaussian(2, 5, seed=seed + 1), 0.2)
    labels = torch.where(gaussian(2, 9, seed=seed + 1) > 0.0, 1.0, -1.0).to(F64)
    return Logistic(well_conditioned(2, 9, 4, seed), labels, [0.1, 0.0], [0.3, 0.5])


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 4), st.integers(0, 10_000))
def test_every_baseline_converges_to_the_reference_minimum(kind: int, seed: int) -> None:
    problems = batch(kind, seed)
    scale = problems.gap(problems.start()) + problems.optimal_value
    # where no rate is linear, ISTA's β‖x*‖²/(2T) is all that is known of the slowest of them
    known = problems.common_smoothness * (problems.optimum() ** 2).sum(1) / (2.0 * 500)
    allowed = 1e-8 * scale if bool((problems.strong_convexity > 0.0).all()) else known + 1e-8 * scale
    for name in names(problems):
        if name in ("skglm", "GD 1.98/β"):  # compiles for half a minute; needs many iterations
            continue
        # a schedule knows its rate, and need not be faster on strongly convex problems
        iterations, proved = 500, torch.zeros(problems.count, dtype=F64)
        if name in SCHEDULES:
            iterations = 60
            proved = schedule(name, iterations).bound(problems, problems.optimum().norm(dim=1))
        found = trace(name, problems, iterations)
        assert found.gaps.shape == (iterations + 1, problems.count)
        assert bool((found.gaps[-1] <= allowed + proved).all()), name
        expected = problems.gap(found.solution).clamp(min=0.0)
        assert torch.equal(found.gaps[-1], expected), name
        if name != "LogisticSolver":  # its steps differ in cost
            assert found.products.tolist() == [2.0 * t for t in range(iterations + 1)], name


def test_names() -> None:
    assert names(batch(0, 0)) == (
        "GD 1/β",
        "GD 1.5/β",
        "GD 1.98/β",
        "GD 2/(β+β0)",
        "GD 1/β_p",
        "Nesterov",
        "FISTA",
        "strongly convex Nesterov",
        "silver",
        "OGM",
        "subgame-perfect",
        "Chebyshev",
        "CGLS",
        "LSQR",
    )
    expected = ("ISTA 1/β", "ISTA 1/β_p", "FISTA", "restarted FISTA", "silver", "OptISTA", "scikit-learn Lasso")
    assert names(batch(2, 0))[:7] == expected
    assert ("skglm" in names(batch(2, 0))) == (find_spec("skglm") is not None)
    assert names(batch(4, 0)) == ("ISTA 1/β", "ISTA 1/β_p", "FISTA", "silver", "OptISTA", "LogisticSolver")


def test_steps_of_gradient_descent() -> None:
    problems = batch(0, 3)
    beta, beta0 = float(problems.smoothness.max()), float(problems.strong_convexity.min())
    steps = {
        "GD 1/β": torch.full((3,), 1.0 / beta, dtype=F64),
        "GD 1.5/β": torch.full((3,), 1.5 / beta, dtype=F64),
        "GD 1.98/β": torch.full((3,), 1.98 / beta, dtype=F64),
        "GD 2/(β+β0)": torch.full((3,), 2.0 / (beta + beta0), dtype=F64),
        "GD 1/β_p": 1.0 / problems.smoothness,
    }
    for name, step in steps.items():
        x = torch.zeros(3, 7, dtype=F64)
        for _ in range(7):
            residual = torch.einsum("nbd,nd->nb", problems.M, x) - problems.Y
            x = x - step[:, None] * torch.einsum("nbd,nb->nd", problems.M, residual)
        torch.testing.assert_close(trace(name, problems, 7).solution, x, rtol=1e-12, atol=1e-13)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0, 1]))
def test_rates_of_least_squares(seed: int, kind: int) -> None:
    """Upper bounds of each method, and the lower bound that CGLS is for all that combine gradients."""
    problems = batch(kind, seed)
    beta, beta0 = problems.smoothness, problems.strong_convexity
    common, least = float(beta.max()), float(beta0.min())
    t = torch.arange(41, dtype=F64)[:, None]
    distance = problems.optimum().square().sum(1)  # of the minimiser of least norm, which x goes to from 0
    runs = {name: trace(name, problems, 40).gaps for name in names(problems)}
    start = runs["GD 1/β"][0]
    slack = 1e-12 * start
    bounds = {
        "GD 1/β": start * (1.0 - beta0 / common) ** (2.0 * t),
        "GD 1/β_p": start * (1.0 - beta0 / beta) ** (2.0 * t),
        "GD 2/(β+β0)": start * ((common - least) / (common + least)) ** (2.0 * t),
        "Nesterov": 2.0 * beta * distance / (t + 1.0) ** 2,
        "FISTA": 2.0 * beta * distance / (t + 1.0) ** 2,
        "strongly convex Nesterov": (1.0 - (beta0 / beta).sqrt()) ** t * (start + 0.5 * beta0 * distance),
        "CGLS": 4.0 * start * ((beta.sqrt() - beta0.sqrt()) / (beta.sqrt() + beta0.sqrt())) ** (2.0 * t),
    }
    for name, bound in bounds.items():
        assert bool((runs[name] <= bound + slack).all()), name
    for name in names(problems):
        for count in (1, 6, 40):
            bound = proved_bound(name, problems, count, distance.sqrt())
            gaps = trace(name, problems, count).gaps[-1] if name in SCHEDULES else runs[name][count]
            assert bound is not None and bool((gaps <= bound + slack).all()), name
    for name, gaps in runs.items():
        assert bool((gaps >= runs["CGLS"] - slack).all()), f"{name} is below the least in the Krylov space"
    torch.testing.assert_close(runs["LSQR"], runs["CGLS"], rtol=1e-6, atol=1e-12 * float(start.max()))


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([2, 3, 4]))
def test_rates_of_proximal_methods(seed: int, kind: int) -> None:
    problems = batch(kind, seed)
    t = torch.arange(1, 41, dtype=F64)[:, None]
    distance = problems.optimum().square().sum(1)
    resolution = problems.gap_bound(problems.optimum())
    for name, bound in {
        "ISTA 1/β": problems.common_smoothness * distance / (4.0 * t),
        "ISTA 1/β_p": problems.smoothness * distance / (4.0 * t),
        "FISTA": 2.0 * problems.smoothness * distance / (t + 1.0) ** 2,
    }.items():
        listed = proved_bound(name, problems, 40, distance.sqrt())
        assert listed is not None
        torch.testing.assert_close(listed, bound[-1])
        gaps = trace(name, problems, 40).gaps
        assert bool((gaps[1:] <= bound * (1.0 + 1e-6) + resolution).all()), name
        if name != "FISTA":
            assert bool((gaps[1:] <= gaps[:-1] + 1e-14 * (problems.optimal_value + gaps[0])).all()), name


@pytest.mark.parametrize("method", [cgls, lsqr])
@pytest.mark.parametrize("shape", [(6, 9), (9, 6), (7, 7)])
def test_krylov_methods_are_exact_after_rank_steps_and_stay(method: object, shape: tuple[int, int]) -> None:
    rows, columns = shape
    problems = LeastSquares(well_conditioned(4, rows, columns, 5), gaussian(4, rows, seed=6))
    gaps = trace("CGLS" if method is cgls else "LSQR", problems, 400).gaps
    rank = min(shape)
    assert bool((gaps[rank] <= 1e-20 * gaps[0]).all())
    assert bool((gaps[rank - 1] > 1e-14 * gaps[0]).any())
    assert bool((gaps[rank:] <= 1e-20 * gaps[0]).all()), "rounding takes over after convergence"


def test_krylov_methods_on_deficient_rank_and_on_a_solved_problem() -> None:
    low = gaussian(2, 8, 2, seed=1) @ gaussian(2, 2, 6, seed=2)
    Y = gaussian(2, 8, seed=3)
    Y[1] = 0.0
    problems = LeastSquares(low, Y)
    assert not {"GD 2/(β+β0)", "strongly convex Nesterov", "Chebyshev"} & set(names(problems))
    for name in ("CGLS", "LSQR"):
        found = trace(name, problems, 60)
        torch.testing.assert_close(found.solution, problems.optimum(), rtol=1e-8, atol=1e-10)
        assert not bool(found.solution[1].any()) and bool(found.gaps[-1].isfinite().all())


def test_lsqr_agrees_with_scipy() -> None:
    from scipy.sparse.linalg import lsqr as scipy_lsqr  # not above: a second at every collection

    problems = LeastSquares.random(3, 12, 8, seed=2)
    problems = LeastSquares(problems.M, gaussian(3, 12, seed=9))
    for steps in (1, 2, 4, 7):
        found = trace("LSQR", problems, steps).solution
        for p in range(3):
            expected = scipy_lsqr(problems.M[p].numpy(), problems.Y[p].numpy(), iter_lim=steps, atol=0.0, btol=0.0)[0]
            torch.testing.assert_close(found[p], torch.from_numpy(expected), rtol=1e-9, atol=1e-11)


def test_scikit_learn_goes_sweep_by_sweep() -> None:
    from sklearn.linear_model import Lasso as ScikitLasso  # not above: a second at every collection

    problems = Lasso.random(2, 10, 15, sparsity=0.4, lam=[0.05, 0.2], seed=4)
    for steps, x in enumerate(islice(scikit_learn_lasso(problems, 6), 7)):
        for p in range(2):
            model = ScikitLasso(
                alpha=float(problems.lam[p]) / 10,
                fit_intercept=False,
                max_iter=max(steps, 1),
                tol=0.0,
                precompute=False,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                coefficients = model.fit(problems.M[p].numpy(), problems.Y[p].numpy()).coef_
            expected = torch.from_numpy(coefficients) * float(steps > 0)
            torch.testing.assert_close(x[p], expected, rtol=1e-9, atol=1e-12)


def test_restarts_help_and_keep_the_method() -> None:
    problems = Lasso.random(10, 50, 100, seed=3)
    plain, restarted = (trace(name, problems, 150).gaps for name in ("FISTA", "restarted FISTA"))
    assert torch.equal(plain[:3], restarted[:3])
    assert float(restarted[-1].mean()) < 1e-3 * float(plain[-1].mean())


def test_momentum_of_fista_by_hand() -> None:
    """β = 1 and ¼(x-1)² in the second coordinate: y_1 = 0, x_1 = ½, x_2 = ¾, then the momentum (τ_2-1)/τ_3."""
    M = torch.diag(torch.tensor([1.0, 0.5**0.5], dtype=F64))[None]
    problems = LeastSquares(M, M.sum(2))
    x = [float(value[0, 1]) for value in islice(fista(problems, 3), 4)]
    tau2 = 0.5 * (1.0 + 5.0**0.5)
    tau3 = 0.5 * (1.0 + (1.0 + 4.0 * tau2**2) ** 0.5)
    y3 = 0.75 + (tau2 - 1.0) / tau3 * 0.25
    assert x == pytest.approx([0.0, 0.5, 0.75, 0.5 * (y3 + 1.0)], rel=1e-7)


def test_strongly_convex_momentum_needs_the_common_constants_of_each_problem() -> None:
    """For β0 = β the momentum is 0 and one step is exact."""
    problems = LeastSquares(2.0 * torch.eye(3, dtype=F64)[None], torch.ones(1, 3, dtype=F64))
    _, x = islice(strongly_convex_nesterov(problems, 1), 2)
    torch.testing.assert_close(x, torch.full((1, 3), 0.5, dtype=F64), rtol=1e-6, atol=0.0)


def test_single_precision() -> None:
    problems = LeastSquares(well_conditioned(2, 5, 7, 1), gaussian(2, 5, seed=2)).to(dtype=torch.float32)
    for name in names(problems):
        found = trace(name, problems, 60)
        assert found.solution.dtype == torch.float32 and found.gaps.dtype == F64
    assert float(trace("CGLS", problems, 60).gaps[-1].max()) < 1e-11


@pytest.mark.parametrize(
    ("name", "iterations", "error", "message"),
    [
        ("ISTA", 3, ValueError, "baseline"),
        ("GD 1/β", -1, ValueError, "iterations"),
        ("GD 1/β", 1.5, ValueError, "iterations"),
    ],
)
def test_bad_arguments(name: str, iterations: int, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        trace(name, batch(0, 0), iterations)


def test_no_iterations() -> None:
    for kind in range(5):
        problems = batch(kind, 0)
        for name in names(problems):
            found = trace(name, problems, 0)
            assert found.gaps.shape == (1, problems.count) and not bool(found.solution.any()), name


def test_not_problems() -> None:
    with pytest.raises(TypeError, match=r"problems is a str; pass sf\.learned\.LeastSquares"):
        names("M")  # pyright: ignore[reportArgumentType]


@pytest.mark.skipif(find_spec("skglm") is None, reason="skglm is not installed")
def test_skglm_converges() -> None:
    problems = batch(2, 1)
    found = trace("skglm", problems, 20)
    assert bool((found.gaps[-1] <= 1e-10).all()) and bool(found.products.isnan().all())


def test_gradient_descent_of_the_case() -> None:
    """A network with W_L = 0 is gradient descent; the reference values of that case."""
    if not CASES.exists():
        pytest.skip("the reference cases are not beside this repository")
    case = next(case for case in json.loads(CASES.read_text())["cases"] if case["name"] == "gd_at_init")
    given = case["input"]
    problems = LeastSquares(torch.tensor(given["M"], dtype=F64), torch.tensor(given["Y"], dtype=F64))
    step = torch.full((problems.count,), 1.0 / given["beta"], dtype=F64)
    *_, x = islice(gradient_descent(problems, given["T"], step=step), given["T"] + 1)
    expected = torch.tensor(case["expect"]["X_T"], dtype=F64)
    torch.testing.assert_close(x, expected, rtol=case["rtol"], atol=case["atol"])
