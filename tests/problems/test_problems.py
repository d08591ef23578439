"""Batches of problems: values, derivatives, constants, gaps and reference minimisers against independent computations."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import surefoot as sf
from surefoot._problems.batch import proximal_step
from surefoot.learned import Lasso, LeastSquares, Logistic, Problems

F64 = torch.float64
MATRICES = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "matrices"


def batches(seed: int = 0) -> list[Problems]:
    """One batch of each kind and shape."""
    return [
        LeastSquares.random(3, 4, 7, seed=seed),
        LeastSquares.random(2, 9, 5, kind="paper", seed=seed),
        Lasso.random(3, 6, 11, sparsity=0.5, lam=[0.0, 0.05, 0.4], seed=seed),
        Lasso.random(2, 12, 5, sparsity=0.8, lam=0.1, seed=seed),
        Logistic.random(3, 8, 5, lam=[0.0, 0.3, 0.4], l2=[0.5, 0.0, 0.2], seed=seed),
    ]


def point(problems: Problems, seed: int = 1) -> Tensor:
    return torch.randn(problems.count, problems.columns, dtype=F64, generator=torch.Generator().manual_seed(seed))


def objective_by_hand(problems: Problems, p: int, x: np.ndarray) -> float:
    M = problems.M[p].double().numpy()
    if isinstance(problems, Logistic):
        loss = float(np.logaddexp(0.0, -problems.labels[p].numpy() * (M @ x)).sum())
        return loss + float(problems.lam[p]) * float(np.abs(x).sum()) + 0.5 * float(problems.l2[p]) * float(x @ x)
    loss = 0.5 * float(np.square(M @ x - problems.Y[p].double().numpy()).sum())
    return loss + (float(problems.lam[p]) * float(np.abs(x).sum()) if isinstance(problems, Lasso) else 0.0)


@pytest.mark.parametrize("index", range(5))
def test_values_and_derivatives(index: int) -> None:
    problems = batches()[index]
    x = point(problems).requires_grad_()
    by_hand = [objective_by_hand(problems, p, x[p].detach().numpy()) for p in range(problems.count)]
    assert problems.objective(x).tolist() == pytest.approx(by_hand, rel=1e-13)
    smooth = problems.smooth_value(problems.forward(x)).sum()
    (gradient,) = torch.autograd.grad(smooth, x, create_graph=True)
    torch.testing.assert_close(problems.gradient(x.detach()), gradient, rtol=1e-12, atol=1e-13)
    value, same = problems.evaluate(x.detach())
    assert torch.equal(value, problems.objective(x).detach()) and torch.equal(same, problems.gradient(x.detach()))
    v = point(problems, 2)
    (curved,) = torch.autograd.grad((gradient * v).sum(), x)
    found = problems.curvature(v, problems.forward(x.detach()))
    torch.testing.assert_close(found, curved, rtol=1e-11, atol=1e-12)
    kink = problems.penalty_gradient(x.detach())
    if kink is None:
        assert not bool(problems.penalty(x).any())
    else:
        torch.testing.assert_close(kink, torch.autograd.grad(problems.penalty(x).sum(), x)[0], rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("index", range(5))
def test_prox_minimises_and_its_pullback_is_its_derivative(index: int) -> None:
    problems = batches()[index]
    x, step = 2.0 * point(problems), 0.1 + point(problems, 2).abs()
    output = problems.prox(x, step)

    def model(z: Tensor) -> Tensor:
        return problems.penalty(z) + ((z - x).square() / (2.0 * step)).sum(1)

    for size in (1e-1, 1e-3, 1e-5):
        assert bool((model(output + size * point(problems, 3)) >= model(output) - 1e-14).all())
    x, step = x.requires_grad_(), step.requires_grad_()
    cotangent = point(problems, 4)
    of_x, of_step = torch.autograd.grad(
        (problems.prox(x, step) * cotangent).sum(), (x, step), allow_unused=True, materialize_grads=True
    )
    found_x, found_step = problems.prox_pullback(output, step.detach(), cotangent)
    torch.testing.assert_close(found_x, of_x, rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(found_step if found_step is not None else torch.zeros_like(of_step), of_step)


@pytest.mark.parametrize("index", range(5))
def test_constants_are_rigorous_and_tight(index: int) -> None:
    problems = batches()[index]
    factor = 0.25 if isinstance(problems, Logistic) else 1.0
    for p in range(problems.count):
        values = np.linalg.svd(problems.M[p].numpy(), compute_uv=False)
        beta = float(problems.smoothness[p])
        assert factor * values[0] ** 2 <= beta <= factor * values[0] ** 2 * (1.0 + 1e-8)
        found = float(problems.strong_convexity[p])
        if isinstance(problems, LeastSquares):
            assert values[-1] ** 2 * (1.0 - 1e-5) <= found <= values[-1] ** 2
        elif isinstance(problems, Logistic):
            assert found == float(problems.l2[p])
        elif problems.columns > problems.rows:
            assert found == 0.0
        else:
            assert values[-1] ** 2 * (1.0 - 1e-5) <= found <= values[-1] ** 2
    assert problems.common_smoothness == float(problems.smoothness.max())


def test_smoothness_is_no_power_iteration() -> None:
    """Two nearly equal leading singular values: fifty power steps stay below the norm, the bound does not."""
    M = torch.diag(torch.tensor([1.0, 1.0 - 1e-6, 0.5], dtype=F64))[None]
    v = torch.tensor([1e-3, 1.0, 1.0], dtype=F64)
    for _ in range(50):
        v = M[0].T @ (M[0] @ v)
        v = v / v.norm()
    assert float((M[0] @ v).square().sum()) < 1.0
    assert float(LeastSquares(M, torch.ones(1, 3, dtype=F64)).smoothness[0]) >= 1.0


def test_deficient_rank_has_no_rate() -> None:
    M = torch.tensor([[[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]], [[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]]], dtype=F64)
    problems = LeastSquares(M, torch.tensor([[1.0, -1.0], [1.0, 1.0]], dtype=F64))
    assert problems.strong_convexity.tolist() == [0.0, pytest.approx(1.0, rel=1e-6)]
    x = point(problems)
    optimal = 0.5 * (9.0 / 5.0)  # Y = (1, -1) less its projection on (1, 2)
    assert problems.optimal_value[0] == pytest.approx(optimal, rel=1e-12)
    assert problems.gap(x)[0] == pytest.approx(float(problems.objective(x)[0]) - optimal, rel=1e-12)
    assert float(problems.gap_bound(x)[0]) >= float(problems.gap(x)[0])


def reference(problems: Problems, p: int) -> float:
    """A value that F_p takes, near its minimum, from scikit-learn or scipy."""
    from scipy.optimize import minimize  # not above: a second at every collection
    from sklearn.linear_model import Lasso as ScikitLasso

    M = problems.M[p].numpy()
    if isinstance(problems, LeastSquares):
        return objective_by_hand(problems, p, np.linalg.pinv(M) @ problems.Y[p].numpy())
    if isinstance(problems, Lasso) and float(problems.lam[p]) > 0.0:
        model = ScikitLasso(alpha=float(problems.lam[p]) / len(M), fit_intercept=False, tol=1e-14, max_iter=1_000_000)
        return objective_by_hand(problems, p, model.fit(M, problems.Y[p].numpy()).coef_)
    if isinstance(problems, Lasso):
        return objective_by_hand(problems, p, np.linalg.pinv(M) @ problems.Y[p].numpy())
    d = problems.columns

    def split(z: np.ndarray) -> float:
        penalty = float(problems.lam[p]) * float(z.sum())  # x = z+ - z-, smooth in the split variables
        x = z[:d] - z[d:]
        return objective_by_hand(problems, p, x) - float(problems.lam[p]) * float(np.abs(x).sum()) + penalty

    found = minimize(split, np.full(2 * d, 0.1), method="L-BFGS-B", bounds=[(0.0, None)] * (2 * d), tol=1e-14)
    return objective_by_hand(problems, p, found.x[:d] - found.x[d:])


@pytest.mark.parametrize("index", range(5))
def test_reference_minimisers_and_gap_bounds(index: int) -> None:
    problems = batches()[index]
    optimum = problems.optimum(1e-9)
    assert bool(optimum.any(1).all()), "no minimiser is trivial"
    problems.products = 0
    bound = problems.gap_bound(optimum)
    assert bool(
        (bound <= 1e-9 * torch.maximum(problems.optimal_value, 1e-12 * problems.objective(problems.start()))).all()
    )
    assert problems.products == 1, "measurements are not counted"
    for p in range(problems.count):
        other = reference(problems, p)
        value = float(problems.optimal_value[p])
        assert value - float(bound[p]) <= other * (1.0 + 1e-12) + 1e-20
        assert value == pytest.approx(other, rel=1e-5, abs=1e-12)
    for scale in (1e-6, 1e-2, 1.0, 1e3):
        x = optimum + scale * point(problems)
        assert bool((problems.gap_bound(x) >= problems.gap(x)).all())
    assert bool((problems.gap_bound(problems.start()) >= problems.gap(problems.start())).all())


def test_gap_bound_of_single_precision_problems() -> None:
    problems = Lasso.random(2, 6, 11, sparsity=0.5).to(dtype=torch.float32)
    x = problems.start()
    assert problems.gap_bound(x).dtype == F64
    assert bool((problems.gap_bound(x) >= problems.gap(x)).all())
    assert float(problems.gap_bound(problems.optimum()).max()) <= 1e-9


def test_least_squares_gap_does_not_cancel() -> None:
    """F* is 1e12 times the gap here; F - F* would be noise."""
    problems = LeastSquares(torch.tensor([[[1.0], [0.0]]], dtype=F64), torch.tensor([[0.0, 1e3]], dtype=F64))
    x = torch.tensor([[1e-4]], dtype=F64)
    assert float(problems.gap(x)[0]) == pytest.approx(0.5e-8, rel=1e-12)
    assert 0.5e-8 <= float(problems.gap_bound(x)[0]) <= 0.5e-8 * (1.0 + 1e-4)


def test_reference_minimiser_not_reached() -> None:
    with pytest.raises(RuntimeError, match=r"gap bound .* after 3 iterations"):
        Lasso.random(2, 6, 11, sparsity=0.5).optimum(max_iterations=3)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 4), st.sampled_from([2.0, 1.9, 1.0, 0.01]))
def test_steps_in_the_range_never_raise_the_objective(seed: int, index: int, high: float) -> None:
    """Theorems 1.1 and 4.1, with steps chosen at random among the extremes."""
    problems = batches(seed)[index]
    generator = torch.Generator().manual_seed(seed)
    x = point(problems, seed) * 10.0
    for _ in range(6):
        P = torch.randint(0, 2, x.shape, generator=generator).double().clamp(min=1e-3) * high
        g = problems.gradient(x)
        new = proximal_step(problems, x, g, P / problems.smoothness[:, None])
        before, after = problems.objective(x), problems.objective(new)
        decrease = torch.zeros_like(before)
        if isinstance(problems, LeastSquares):
            decrease = (P * (1.0 - 0.5 * P) * g.square()).sum(1) / problems.smoothness
        assert bool((after <= before - decrease + 1e-13 * before).all())
        x = new


def test_a_step_beyond_the_range_can_raise_it() -> None:
    problems = Lasso(torch.ones(1, 1, 1, dtype=F64), torch.zeros(1, 1, dtype=F64), 0.1)
    x = torch.ones(1, 1, dtype=F64)
    new = proximal_step(problems, x, problems.gradient(x), torch.full((1, 1), 2.5, dtype=F64))
    assert new.item() == pytest.approx(-1.25) and float(problems.objective(new)) > float(problems.objective(x))


def test_products_are_counted() -> None:
    problems = LeastSquares.random(3, 4, 6)
    x = problems.start()
    assert problems.products == 0
    problems.gradient(x)
    problems.objective(x)
    problems.evaluate(x)
    problems.adjoint(problems.forward(x))
    assert problems.products == 7


def test_generators() -> None:
    authors, paper = LeastSquares.random(4, 5, 8, seed=3), LeastSquares.random(4, 5, 8, kind="paper", seed=3)
    torch.testing.assert_close(authors.M.norm(dim=1), torch.ones(4, 8, dtype=F64))
    torch.testing.assert_close(authors.M, paper.M / paper.M.norm(dim=1, keepdim=True))
    assert torch.equal(authors.M, LeastSquares.random(4, 5, 8, seed=3).M)
    assert not torch.equal(authors.M, LeastSquares.random(4, 5, 8, seed=4).M)
    assert float(paper.M.std()) == pytest.approx(1.0, abs=0.2)
    assert bool((authors.optimal_value < 1e-25).all()), "Y lies in the range of M"
    lasso = Lasso.random(20, 40, 80, noise=0.0, lam=1e-3, seed=1)
    assert (lasso.count, lasso.rows, lasso.columns) == (20, 40, 80)
    torch.testing.assert_close(lasso.M.norm(dim=1), torch.ones(20, 80, dtype=F64))
    noisy = Lasso.random(20, 40, 80, noise=0.5, lam=1e-3, seed=1)
    assert float((noisy.Y - lasso.Y).std()) == pytest.approx(0.5, rel=0.1)
    dense = Lasso.random(20, 40, 80, sparsity=1.0, noise=0.0, seed=1)
    assert float(lasso.Y.var() / dense.Y.var()) == pytest.approx(0.1, rel=0.3)
    logistic = Logistic.random(3, 50, 4)
    assert set(logistic.labels.unique().tolist()) == {-1.0, 1.0}


def test_one_matrix_for_all(tmp_path: Path) -> None:
    from scipy.io import mmwrite

    matrix = np.random.default_rng(0).normal(size=(7, 3))
    mmwrite(tmp_path / "m.mtx", matrix)
    mmwrite(tmp_path / "m_rhs1.mtx", matrix @ np.ones((3, 1)) + 1.0)
    data = sf.data.load(tmp_path / "m.mtx")
    problems = LeastSquares.from_matrix(data.X, data.Y)
    assert (problems.count, problems.rows, problems.columns) == (1, 7, 3)
    many = LeastSquares.from_matrix(data.X, count=5, seed=2)
    assert many.count == 5 and many.M.untyped_storage().nbytes() == 7 * 3 * 8, "the matrix is kept once"
    assert many.smoothness.tolist() == [pytest.approx(np.linalg.norm(matrix, 2) ** 2, rel=1e-7)] * 5
    assert bool((many.optimal_value < 1e-24).all()), "tall, and Y in the range of M"
    lasso = Lasso.from_matrix(data.X, torch.ones(7, 2, dtype=F64), lam=0.1)
    assert lasso.count == 2 and torch.equal(lasso.M[0], data.X)
    with pytest.raises(ValueError, match="matrix has 7 rows and targets 3"):
        LeastSquares.from_matrix(data.X, np.ones(3))


@pytest.mark.skipif(not MATRICES.is_dir(), reason="the real matrices are not there")
def test_a_real_matrix() -> None:
    data = sf.data.load(MATRICES / "well1033.mtx")
    problems = LeastSquares.from_matrix(data.X, data.Y)
    values = np.linalg.svd(data.X.numpy(), compute_uv=False)
    assert float(problems.smoothness[0]) == pytest.approx(values[0] ** 2, rel=1e-8)
    assert 0.0 < float(problems.strong_convexity[0]) <= values[-1] ** 2
    assert float(problems.optimal_value[0]) > 0.0


def test_copies() -> None:
    problems = Logistic.random(4, 6, 3, lam=[0.0, 0.1, 0.2, 0.3], l2=0.1)
    part = problems.select(torch.tensor([2, 0]))
    assert part.lam.tolist() == [0.2, 0.0] and torch.equal(part.M[1], problems.M[0])
    assert problems.select(slice(1, 2)).count == 1
    single = problems.to(dtype=torch.float32)
    assert single.M.dtype == single.lam.dtype == torch.float32
    stored = single.arrays()
    assert sorted(stored) == ["M", "l2", "labels", "lam", "optimum"]
    assert all(value.dtype == F64 for value in stored.values())
    assert stored["optimum"].shape == (4, 3)
    assert sorted(LeastSquares.random(1, 2, 3).arrays()) == ["M", "Y", "optimum"]


M, Y = torch.ones(2, 3, 4, dtype=F64), torch.ones(2, 3, dtype=F64)


def test_entries_whose_sum_overflows() -> None:
    """Are finite: what is looked at first is their sum."""
    largest = torch.full((1, 3, 2), 0.9 * torch.finfo(torch.float32).max)
    assert LeastSquares(largest, largest[:, :, 0]).count == 1
    with pytest.raises(ValueError, match=r"Y has inf at index \(0, 2\) \(1 such"):
        LeastSquares(largest, torch.tensor([[0.0, 1.0, math.inf]]))
    assert LeastSquares(-largest.tril(), largest[:, :, 0]).count == 1


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: LeastSquares(M[0], Y), ValueError, r"M has shape \(3, 4\); .* pass M\[None\]"),
        (lambda: LeastSquares(M, Y.T), ValueError, r"Y \(3, 2\); Y must be \(2, 3\)"),
        (lambda: LeastSquares(M.mT, Y), ValueError, r"it fits the columns: transpose M"),
        (lambda: LeastSquares(M[:, :0], Y[:, :0]), ValueError, r"M is empty \(shape \(2, 0, 4\)\)"),
        (lambda: LeastSquares(M[:0], Y[:0]), ValueError, "M is empty"),
        (lambda: LeastSquares(M * math.nan, Y), ValueError, r"M has nan at index \(0, 0, 0\)"),
        (lambda: LeastSquares(M, Y * math.inf), ValueError, "Y has inf"),
        (lambda: LeastSquares(M.float(), Y), TypeError, "M is torch.float32 .* Y torch.float64"),
        (lambda: LeastSquares(M.long(), Y), TypeError, "M has dtype int64"),
        (lambda: LeastSquares(torch.stack([M[0], 0 * M[0]]), Y), ValueError, r"M\[1\] is zero"),
        (lambda: LeastSquares(M * 1e-170, Y).smoothness, ValueError, r"M\[0\] has the squared norm .* rescale M"),
        (lambda: LeastSquares(M * 1e170, Y).smoothness, ValueError, r"rescale M"),
        (lambda: LeastSquares.random(0, 3, 4), ValueError, "count is 0"),
        (lambda: LeastSquares.random(2, 3, 4, kind="other"), ValueError, "kind is 'other'"),  # pyright: ignore[reportArgumentType]
        (lambda: LeastSquares.random(2, 3, 4, seed=-1), ValueError, "seed is -1"),
        (lambda: Lasso(M, Y, -0.1), ValueError, "lam is -0.1"),
        (lambda: Lasso(M, Y, [0.1]), ValueError, r"lam has shape \(1,\); pass a number, or one for each of 2 problems"),
        (lambda: Lasso(M, Y, [0.1, -0.1]), ValueError, "lam has a negative entry"),
        (lambda: Lasso(M, Y, "large"), TypeError, "lam is 'large'"),
        (lambda: Lasso.random(2, 3, 4, sparsity=0.0), ValueError, "sparsity is 0.0"),
        (
            lambda: Logistic(M, torch.tensor([[0, 1, 1], [1, 0, 1]])),
            ValueError,
            r"labels has the value 0; .* 2\*labels - 1",
        ),
        (lambda: Logistic(M, Y, l2=math.inf), ValueError, "l2 is inf"),
        (lambda: LeastSquares(M, Y).start(torch.ones(2, 3)), ValueError, r"start has shape \(2, 3\)"),
        (lambda: LeastSquares(M, Y).start(torch.ones(2, 4)), TypeError, "start is torch.float32"),
    ],
)
def test_bad_input(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_a_problem_that_is_solved_at_zero_has_a_reference() -> None:
    """F(0) = 0: the gap bound and what is allowed are both 0."""
    M = torch.eye(3, dtype=torch.float64)[None].repeat(2, 1, 1)
    Y = torch.tensor([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]], dtype=torch.float64)
    problems = Lasso(M, Y, 0.1)
    optimum = problems.optimum()
    assert not bool(optimum[0].any())
    torch.testing.assert_close(optimum[1], Y[1] - 0.1, rtol=0.0, atol=1e-5)


def test_reference_minimisers_of_logistic_regression_at_extreme_scales() -> None:
    """Separable labels, tiny penalties, entries of 1e±70: a search by accelerated steps did not end."""
    p = Logistic.random(2, 6, 4)
    for scale in (1e-70, 1.0, 1e70):
        for lam, l2 in ((0.1 * scale, 0.0), (0.0, 1e-6 * scale * scale)):
            q = Logistic(scale * p.M, p.Y, lam, l2)
            best = q.optimum()
            start = q.objective(q.start())
            assert bool((q.gap_bound(best) <= 1e-10 * q.optimal_value.maximum(1e-12 * start)).all())
    # here the penalty is below the rounding of the gradient, and nothing bounds the gap
    with pytest.raises(RuntimeError, match=r"has gap bound .* after \d{2,5} iterations"):
        Logistic(1e70 * p.M, p.Y, 0.1).optimum()
    with pytest.raises(ValueError, match="problem 0 has lam = 0 and l2 = 0"):
        Logistic(p.M, p.Y).optimum()


def test_a_search_for_a_reference_ends_where_rounding_holds_it() -> None:
    """A penalty of 1e-100 of what would matter: the gap cannot be known, which took 200,000 iterations to say. How many it takes
    now depends on the order of sums."""
    p = Lasso.random(2, 6, 4)
    with pytest.raises(RuntimeError, match=r"has gap bound .* after \d{2,5} iterations"):
        Lasso(1e100 * p.M, p.Y, 0.1).optimum()
