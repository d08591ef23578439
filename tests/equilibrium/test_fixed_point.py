"""Solvers of a fixed point on one tensor: bounds under adversity, and what they cost in evaluations."""

import math

import pytest
import torch

from surefoot._equilibrium.solver.fixed_point import SOLVERS, solve
from surefoot._equilibrium.solver.records import SolveStatus


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def run(g, start, *, contraction=None, tolerance=None, most=2000, solver="auto", eps=None):
    return solve(
        g,
        start,
        batch_dims=1,
        contraction=contraction,
        tolerance=tolerance,
        max_iterations=most,
        solver=solver,
        eps=eps,
    )


def linear(W, x):
    """z ↦ zW + x, and its fixed points."""
    return lambda z: z @ W + x, torch.linalg.solve((torch.eye(len(W), dtype=W.dtype) - W).T, x.T).T


def slow_and_fast(norm, size=40, symmetric=True):
    W = draw(size, size, seed=1)
    W = W + W.T if symmetric else W
    return norm * W / torch.linalg.matrix_norm(W, 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_map_that_rounds_coarsely_stops_at_its_own_rounding(dtype, solver):
    W = draw(6, 6, seed=1)
    W, x = (0.5 * W / torch.linalg.matrix_norm(W, 2)).to(dtype), draw(4, 6).to(dtype)

    def g(z):
        return torch.tanh(z.to(dtype) @ W + x).float()

    eps = torch.finfo(dtype).eps
    z, info = run(g, torch.zeros(4, 6), contraction=0.5, most=200, solver=solver, eps=eps)
    assert info.converged and info.rounding_limited
    true = torch.zeros(4, 6, dtype=torch.float64)
    for _ in range(100):
        true = torch.tanh(true @ W.double() + x.double())
    error = (z.double() - true).norm(dim=1)
    assert (error <= info.error_bound).all()
    assert (info.error_bound <= 16 * eps * z.norm(dim=1)).all()


# Bounds


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("q", [0.999, 1.0 - 1e-6, 1.0 - 1e-9])
def test_a_factor_near_1_is_never_taken_lightly(solver, q):
    W = torch.diag(torch.tensor([0.1, 0.5, q], dtype=torch.float64))
    x = draw(3, 3) * torch.tensor([1.0, 1.0, 1.0 - q], dtype=torch.float64)
    g, true = linear(W, x)
    z, info = run(g, torch.zeros_like(x), contraction=q * (1 + 1e-12), tolerance=1e-6, solver=solver)
    error = (z - true).norm(dim=1)
    assert (error <= info.error_bound).all()
    assert info.converged or info.status is SolveStatus.MAX_ITERATIONS


@pytest.mark.parametrize("solver", SOLVERS)
def test_rates_that_change_along_the_way(solver):
    """Fast far from the fixed point and slow near it: a rate that was seen early is no bound."""

    def residual_free(d):
        size = d.norm(dim=1, keepdim=True)
        return d * (0.1 + 0.85 / (1.0 + (1e3 * size) ** 2))

    true = 1.0 + draw(4, 3).abs()
    z, info = run(lambda z: true + residual_free(z - true), torch.zeros_like(true), tolerance=1e-9, solver=solver)
    assert info.converged
    assert ((z - true).norm(dim=1) <= info.error_bound * (1 + 1e-3)).all()
    assert info.contraction == pytest.approx(0.95, abs=1e-3)

    def slow_then_fast(d):
        size = d.norm(dim=1, keepdim=True)
        return d * (0.95 - 0.85 / (1.0 + (10.0 * size) ** 2))

    z, info = run(lambda z: true + slow_then_fast(z - true), torch.zeros_like(true), tolerance=1e-9, solver=solver)
    assert info.converged
    assert ((z - true).norm(dim=1) <= 2.0 * info.error_bound).all()


def test_auto_succeeds_on_maps_far_from_normal_where_plain_steps_do():
    """Mixing finds such fixed points with ratios above 1, which bound nothing; then auto takes it back."""
    converged = 0
    for seed in range(24):
        size = 4 + seed % 9
        rates = 1.6 * torch.rand(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 0.8
        W = torch.triu((1.0 + seed % 4) * draw(size, size, seed=seed), 1) + torch.diag(rates)
        g, true = linear(W, draw(5, size, seed=9))
        _, plain = run(g, torch.zeros_like(true), tolerance=1e-9, solver="plain")
        z, auto = run(g, torch.zeros_like(true), tolerance=1e-9)
        assert auto.converged or not plain.converged
        if auto.converged:
            # q is estimated by a mean where single steps expand, and so is the bound
            assert float(((z - true).norm(dim=1) / true.norm(dim=1)).max()) <= 1e-6
        converged += plain.converged
    assert converged > 12


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    "g",
    [lambda z: 1.0 - z, lambda z: torch.tanh(-2.0 * z), lambda z: 3.5 * z * (1.0 - z), lambda z: z.roll(1, 1)],
    ids=["reflection", "odd", "logistic", "rotation"],
)
def test_cycles_are_no_fixed_points(solver, g):
    z, info = run(g, 0.3 + 0.1 * draw(4, 3).abs(), solver=solver)
    if info.converged:  # mixing may find what is a fixed point in every bit
        assert solver == "anderson" and torch.equal(g(z), z)
        return
    assert info.status is SolveStatus.NOT_CONTRACTING
    assert info.failed.all() and info.error_bound.isinf().all() and z.isfinite().all()


@pytest.mark.parametrize("solver", SOLVERS)
def test_samples_of_very_different_rates(solver):
    rates = torch.tensor([0.0, 0.01, 0.5, 0.7, 0.9, 0.98], dtype=torch.float64)[:, None]
    direction = torch.nn.functional.normalize(draw(6, 7), dim=1)
    x = draw(6, 7, seed=2)

    def g(z):
        along = (z * direction).sum(1, keepdim=True)
        return rates * along * direction + 0.3 * rates * (z - along * direction) + x

    along = (x * direction).sum(1, keepdim=True) * direction
    true = along / (1.0 - rates) + (x - along) / (1.0 - 0.3 * rates)
    z, info = run(g, torch.zeros_like(x), tolerance=1e-8, most=3000, solver=solver)
    assert info.converged
    assert float(((z - true).norm(dim=1) / true.norm(dim=1)).max()) <= 1.01e-8


@pytest.mark.parametrize("solver", SOLVERS)
def test_float32_at_the_edge_of_what_it_resolves(solver):
    W = slow_and_fast(0.999, 10).float()
    x = draw(6, 10).float()
    z, info = run(lambda z: z @ W + x, torch.zeros_like(x), contraction=0.999 * (1 + 1e-5), solver=solver, most=3000)
    true = linear(W.double(), x.double())[1]
    assert ((z.double() - true).norm(dim=1) <= info.error_bound).all()


@pytest.mark.parametrize("solver", SOLVERS)
def test_what_overflows_beside_the_way_is_no_failure(solver):
    W = 0.9 * torch.linalg.qr(draw(6, 6, seed=3))[0]
    x = draw(4, 6)
    g, true = linear(W, x)
    far = 10.0 * true.norm(dim=1).max()

    def fenced(z):
        value = g(z)
        return torch.where(z.norm(dim=1, keepdim=True) < far, value, math.nan)

    z, info = run(fenced, torch.zeros_like(x), solver=solver)
    assert info.converged
    assert float((z - true).abs().max()) <= 1e-9


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("at", [1, 2, 3, 5, 9, 14])
def test_a_sample_that_breaks_leaves_a_finite_iterate_and_the_others_alone(solver, at):
    x, calls = draw(3, 4), []

    def g(z):
        calls.append(None)
        value = 0.7 * torch.sin(z) + x
        if len(calls) >= at:
            value = torch.cat((value[:1] * math.nan, value[1:]))
        return value

    z, info = run(g, torch.zeros_like(x), solver=solver)
    assert info.status is SolveStatus.NON_FINITE
    assert info.failed.tolist() == [True, False, False]
    assert z.isfinite().all() and info.error_bound[1:].isfinite().all()
    assert float((0.7 * torch.sin(z) + x - z)[1:].abs().max()) <= 1e-11


@pytest.mark.parametrize("solver", SOLVERS)
def test_no_samples_and_no_entries(solver):
    for shape in ((0, 3), (2, 0)):
        z, info = run(lambda z: 0.5 * z, torch.zeros(shape), solver=solver)
        assert info.converged and z.shape == shape and info.failed.shape == shape[:1]


# Evaluations


@pytest.mark.parametrize("q", [0.0, 0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-6, 1e-10])
def test_a_sample_is_judged_in_time(q, tolerance):
    """The first evaluation after which the bound holds, or the next one, though most residuals are not looked at."""
    x = torch.ones(1, 3, dtype=torch.float64)
    _, info = run(
        lambda z: q * z + x, torch.zeros_like(x), contraction=q, tolerance=tolerance, most=9999, solver="plain"
    )
    # at evaluation k the residual is q^(k−1) ‖x‖, and ‖g(z)‖ = (1 − q^k)/(1 − q) ‖x‖; the rest is rounding
    needed = next(k for k in range(1, 9999) if q**k <= 0.999 * tolerance * (1 - q**k))
    assert needed - 1 <= info.iterations <= needed + 1


def test_company_changes_no_plain_result():
    rates = torch.linspace(0.05, 0.95, 12, dtype=torch.float64)[:, None]
    x = draw(12, 5) * torch.logspace(-4, 4, 12)[:, None]

    def of(rows):
        return run(lambda z: rates[rows] * torch.sin(z) + x[rows], torch.zeros_like(x[rows]), solver="plain")

    together, info = of(slice(None))
    for i in range(12):
        alone, own = of(slice(i, i + 1))
        assert torch.equal(alone[0], together[i])
        assert float(own.error_bound[0]) == float(info.error_bound[i])


@pytest.mark.parametrize("norm", [0.3, 0.5, 0.8, 0.95, 0.99])
@pytest.mark.parametrize("symmetric", [True, False])
def test_auto_mixes_where_it_pays(norm, symmetric):
    """Mixing helps a symmetric matrix, whose residuals align, and not one of independent entries, at any rate."""
    W, x = slow_and_fast(norm, 60, symmetric), 0.3 * draw(100, 60)

    def g(z):
        return torch.tanh(z @ W + x)

    counts = {name: run(g, torch.zeros_like(x), tolerance=1e-9, solver=name)[1].iterations for name in SOLVERS}
    chosen = run(g, torch.zeros_like(x), tolerance=1e-9)[1].solver
    if not symmetric:
        assert chosen == "plain" and counts["auto"] == counts["plain"]
        assert counts["anderson"] > 0.8 * counts["plain"]  # so that it was right
    else:
        assert counts["auto"] <= counts["plain"]
        if norm >= 0.8:
            assert chosen == "anderson" and counts["auto"] < 0.7 * counts["plain"]


def test_slow_maps_take_few_evaluations():
    W = slow_and_fast(0.99, 100)
    g, true = linear(W, draw(4, 100))
    for solver, most in (("plain", 4000), ("auto", 150), ("anderson", 150)):
        z, info = run(g, torch.zeros_like(true), tolerance=1e-9, solver=solver, most=4000)
        assert info.converged and info.iterations <= most
        assert float(((z - true).norm(dim=1) / true.norm(dim=1)).max()) <= 2e-8
