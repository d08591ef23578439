"""The step-size network: construction, range, its iteration, and the gradient through it, against autograd and the cases."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from surefoot import RunDirectoryError
from surefoot._problems.batch import proximal_step
from surefoot._step_sizes.network import Dense, Sectors, StepSizeNet, orthogonalised
from surefoot._step_sizes.smoothness import ROOM, inverse_smoothness, smoothness_of
from surefoot._step_sizes.training_loss import training_loss
from surefoot._step_sizes.unrolled import (
    Gradient,
    final_objective,
    final_objective_and_gradient,
)
from surefoot.learned import Lasso, LeastSquares, Logistic, Problems

F64 = torch.float64
with (Path(__file__).resolve().parents[1] / "cases" / "learned_steps.json").open() as _file:
    CASES: dict[str, dict[str, Any]] = {case["name"]: case for case in json.load(_file)["cases"]}
RUNS = [name for name, case in CASES.items() if case["kind"] == "run"]


def array(value: Any) -> Tensor:
    return torch.tensor(value, dtype=F64)


def random_net(widths: tuple[int, ...], seed: int = 0, low: float = 0.0, high: float = 2.0) -> StepSizeNet:
    generator = torch.Generator().manual_seed(seed)
    sizes = (*widths, 1)
    layers = [torch.randn(after, before, generator=generator, dtype=F64) for before, after in pairwise(sizes)]
    return StepSizeNet(layers, low, high)


# ----- the cases


@pytest.mark.parametrize("name", RUNS)
def test_forward_case(name: str) -> None:
    case = CASES[name]
    given_, expect = case["input"], case["expect"]
    tolerance = {"rtol": case["rtol"], "atol": case["atol"]}
    problems = LeastSquares(array(given_["M"]), array(given_["Y"]))
    net = StepSizeNet([array(W) for W in given_["W"]])
    start = array(given_["X0"])
    out = net.solve(problems, given_["T"], start, given_["beta"], trajectory=True)
    torch.testing.assert_close(out.solution, array(expect["X_T"]), **tolerance)
    torch.testing.assert_close(out.objectives.sum(1), array(expect["F_traj"]), **tolerance)
    assert out.trajectory is not None
    for t, key in ((0, "P_first"), (given_["T"] - 1, "P_last")):
        x = out.trajectory[t]
        P = net(x, problems.gradient(x)).detach()
        torch.testing.assert_close(P, array(expect[key]), **tolerance)
        torch.testing.assert_close(P.amin(1), out.lowest[t])
        torch.testing.assert_close(P.amax(1), out.highest[t])
    if "norm_X_T" in expect:
        norm = float(out.solution.norm())
        assert norm == pytest.approx(expect["norm_X_T"], rel=1e-12)
        claimed = float(start.norm()) + 2.0 * given_["T"] / given_["beta"] * float(problems.adjoint(problems.Y).norm())
        assert claimed == pytest.approx(expect["lemma42_bound"]) and norm > claimed, "Lemma 4.2 is false"
        right = math.sqrt(given_["T"] + 1.0) * float(start.norm())  # Corollary 3.2, as Y = 0
        assert right == pytest.approx(expect["corrected_bound"]) and norm <= right


@pytest.mark.parametrize("gradient", ["detached", "exact"])
@pytest.mark.parametrize("name", RUNS)
def test_gradient_case(name: str, gradient: Gradient) -> None:
    case = CASES[name]
    given_, expect = case["input"], case["expect"]
    key = "grad_true" if gradient == "exact" else "grad_detached"
    if key not in expect:
        assert gradient == "exact"
        return
    problems = LeastSquares(array(given_["M"]), array(given_["Y"]))
    net = StepSizeNet([array(W) for W in given_["W"]])
    inverse = inverse_smoothness(problems, given_["beta"])
    value, parts = final_objective_and_gradient(net, problems, given_["T"], inverse, array(given_["X0"]), gradient)
    assert float(value) == pytest.approx(expect["F_T"], rel=case["rtol"], abs=case["atol"])
    for part, wanted in zip(parts, expect[key], strict=True):
        torch.testing.assert_close(part, array(wanted), rtol=case["rtol"], atol=case["atol"])
    if "cos_detached_true" in expect and gradient == "exact":
        _, detached = final_objective_and_gradient(net, problems, given_["T"], inverse, array(given_["X0"]), "detached")
        a, b = (torch.cat([part.reshape(-1) for part in found]) for found in (parts, detached))
        assert float(a @ b / (a.norm() * b.norm())) == pytest.approx(expect["cos_detached_true"], abs=1e-9)


def test_lemma_a3_case() -> None:
    """‖I - diag(P)H‖ exceeds 1, up to √2; on the residual side it is below 1."""
    case = CASES["lemmaA3_norms"]
    M, beta = array(case["input"]["M"]), case["input"]["beta"]
    d = M.shape[1]
    problems = LeastSquares(M.expand(d, *M.shape).contiguous(), torch.zeros(d, len(M), dtype=F64))
    for P, of_x, of_r in zip(case["input"]["P"], case["expect"]["norm_x"], case["expect"]["norm_r"], strict=True):
        basis = torch.eye(d, dtype=F64)
        step = array(P).expand(d, d) / beta
        matrix = proximal_step(problems, basis, problems.gradient(basis), step).T
        norm = float(torch.linalg.matrix_norm(matrix, 2))
        assert norm == pytest.approx(of_x, rel=1e-12)
        assert norm <= math.sqrt(1.0 + float((array(P) - 1.0).abs().max()) ** 2) + 1e-15, "Theorem 3.1"
        residual = torch.eye(len(M), dtype=F64) - M @ (array(P)[:, None] * M.T) / beta
        assert float(torch.linalg.matrix_norm(residual, 2)) == pytest.approx(of_r, rel=1e-12, abs=1e-15)


def test_descent_with_given_steps_case() -> None:
    case = CASES["descent_given_P"]
    given_, expect = case["input"], case["expect"]
    problems = LeastSquares(array(given_["M"]), array(given_["Y"]))
    x, beta = array(given_["X0"]), given_["beta"]
    assert float(problems.smoothness[0]) == pytest.approx(beta, rel=1e-8)
    assert float(problems.strong_convexity[0]) == pytest.approx(expect["beta0"], rel=1e-5)
    values = [float(problems.objective(x))]
    for t, P in enumerate(array(given_["P"])):
        g = problems.gradient(x)
        bound = values[-1] - float((P * (1.0 - 0.5 * P) * g.square()).sum()) / beta
        x = proximal_step(problems, x, g, P[None] / beta)
        values.append(float(problems.objective(x)))
        assert bound == pytest.approx(expect["descent_bound"][t], rel=1e-10)
        assert values[-1] <= bound * (1.0 + 1e-13) and bound <= values[-2]
        least = min(float(P.min()), 2.0 - float(P.max()))
        rate = (1.0 - least * expect["beta0"] / beta) ** 2 * values[-2]
        assert rate == pytest.approx(expect["rate_bound"][t], rel=1e-10) and values[-1] <= rate * (1.0 + 1e-13)
    assert values == pytest.approx(expect["F_traj"], rel=case["rtol"])
    torch.testing.assert_close(x, array(expect["X_T"]), rtol=case["rtol"], atol=case["atol"])


def test_orthogonal_initialisation_case() -> None:
    case = CASES["orthogonal_init"]
    for A, W in zip(case["input"]["A"], case["expect"]["W"], strict=True):
        found = orthogonalised(array(A), case["input"]["e"])
        torch.testing.assert_close(found, array(W), rtol=case["rtol"], atol=case["atol"])


# ----- construction and range


def test_orthogonal_network_starts_at_a_constant_step() -> None:
    net = StepSizeNet.orthogonal((2, 2, 16, 5), (0.5, 1.9), expansion=50.0, seed=1)
    assert net.widths == (2, 2, 16, 5) and net.range == (0.5, 1.9)
    for W in net.matrices[:-1]:
        gram = W.T @ W if W.shape[0] >= W.shape[1] else W @ W.T
        torch.testing.assert_close(gram, 2500.0 * torch.eye(len(gram), dtype=F64), rtol=1e-12, atol=1e-9)
    assert not bool(net.matrices[-1].any())
    x = torch.randn(3, 4, dtype=F64)
    assert torch.equal(net(x, -x).detach(), torch.full_like(x, 1.2))
    same, other = StepSizeNet.orthogonal(seed=1), StepSizeNet.orthogonal(seed=2)
    assert same.widths == (2, 2, 1024) and not torch.equal(same.matrices[0], other.matrices[0])


def test_default_start_is_gradient_descent() -> None:
    problems = LeastSquares.random(3, 5, 8)
    out = StepSizeNet.orthogonal((2, 4, 4)).solve(problems, 6)
    x = problems.start()
    for _ in range(6):
        x = x - problems.gradient(x) / (problems.smoothness * ROOM)[:, None]
    torch.testing.assert_close(out.solution, x, rtol=1e-13, atol=1e-15)


def test_a_deficient_matrix_is_made_orthogonal_too() -> None:
    """A zero column has 0 on the diagonal of R: its sign must not erase the column of Q."""
    W = orthogonalised(array([[1.0, 0.0], [2.0, 0.0], [2.0, 0.0]]))
    torch.testing.assert_close(W.T @ W, torch.eye(2, dtype=F64))


@pytest.mark.parametrize("low, high", [(0.0, 2.0), (0.1, 0.3), (1.5, 1.95), (1e-300, 0.7)])
def test_steps_never_leave_the_range(low: float, high: float) -> None:
    net = random_net((2, 3, 4), low=low, high=high)
    P = net(array([1e308, -1e308, 1e8, 0.0, -3.0]), array([1e300, 1e308, -1e9, 0.0, 7.0])).detach()
    assert float(P.min()) >= low and float(P.max()) <= high
    saturated = net.steps(array([-1e9, 1e9, 0.0]))
    assert saturated.tolist() == [low, high, pytest.approx(0.5 * (low + high))]


def test_steps_are_positively_homogeneous_logits() -> None:
    net = random_net((2, 3, 4))
    x, g = torch.randn(5, dtype=F64), torch.randn(5, dtype=F64)
    torch.testing.assert_close(net.logits(3.0 * x, 3.0 * g), 3.0 * net.logits(x, g))


def test_save_and_load(tmp_path: Path) -> None:
    net = random_net((2, 3, 4), low=0.25, high=1.75).float()
    net.save(tmp_path / "net.safetensors")
    found = StepSizeNet.load(tmp_path / "net.safetensors")
    assert found.range == (0.25, 1.75)
    assert all(
        torch.equal(a, b) and a.dtype == torch.float32 for a, b in zip(found.matrices, net.matrices, strict=True)
    )
    (tmp_path / "broken.safetensors").write_bytes((tmp_path / "net.safetensors").read_bytes()[:50])
    with pytest.raises(RunDirectoryError, match="damaged"):
        StepSizeNet.load(tmp_path / "broken.safetensors")
    with pytest.raises(RunDirectoryError, match="missing"):
        StepSizeNet.load(tmp_path / "none.safetensors")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: StepSizeNet([torch.ones(1, 2)]), ValueError, r"shapes \[\(1, 2\)\]; they must be"),
        (lambda: StepSizeNet([torch.ones(3, 3), torch.ones(1, 3)]), ValueError, "they must be"),
        (lambda: StepSizeNet([torch.ones(3, 2), torch.ones(1, 4)]), ValueError, "they must be"),
        (lambda: StepSizeNet([torch.ones(3, 2), torch.ones(2, 3)]), ValueError, "they must be"),
        (lambda: StepSizeNet([torch.ones(3, 2), torch.full((1, 3), math.nan)]), ValueError, r"weights\[1\] has nan"),
        (lambda: StepSizeNet([torch.ones(3, 2).long(), torch.ones(1, 3)]), TypeError, r"weights\[0\] has dtype int64"),
        (lambda: random_net((2, 3), low=1.0, high=1.0), ValueError, r"range of P is \(1.0, 1.0\)"),
        (lambda: random_net((2, 3), low=-0.5), ValueError, "0 <= low < high"),
        (lambda: random_net((2, 3), high=math.inf), ValueError, "high <= 2 for guarantees"),
        (lambda: StepSizeNet.orthogonal(range=(1.0,)), TypeError, r"pass two numbers \(low, high\)"),  # pyright: ignore[reportArgumentType]
        (lambda: StepSizeNet.orthogonal((3, 4)), ValueError, r"widths is \(3, 4\)"),
        (lambda: StepSizeNet.orthogonal((2,)), ValueError, r"widths is \(2,\)"),
        (lambda: StepSizeNet.orthogonal((2, 0)), ValueError, r"widths\[1\] is 0"),
        (lambda: StepSizeNet.orthogonal(expansion=0.0), ValueError, "expansion is 0.0"),
        (lambda: StepSizeNet.orthogonal(seed=-1), ValueError, "seed is -1"),
    ],
)
def test_bad_construction(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


# ----- the iteration


def kinds(seed: int = 0) -> list[Problems]:
    return [
        LeastSquares.random(3, 4, 6, seed=seed),
        Lasso.random(2, 5, 7, sparsity=0.8, lam=[0.05, 0.2], seed=seed),
        Logistic.random(2, 7, 4, lam=[0.2, 0.0], l2=[0.0, 0.3], seed=seed),
    ]


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 10_000), st.integers(0, 2), st.sampled_from([(2, 5), (2, 2, 7), (2, 3, 4, 3)]), st.floats(0.1, 1e6)
)
def test_any_weights_lower_the_objective(seed: int, index: int, widths: tuple[int, ...], size: float) -> None:
    problems = kinds(seed)[index]
    net = random_net(widths, seed)
    with torch.no_grad():
        for W in net.weights:
            W.mul_(size ** (1.0 / len(widths)))
    out = net.solve(problems, 12)
    before, after = out.objectives[:-1], out.objectives[1:]
    assert bool((after <= before * (1.0 + 1e-12)).all())
    assert (
        bool((out.lowest >= 0.0).all()) and bool((out.highest <= 2.0).all()) and bool((out.lowest <= out.highest).all())
    )


def test_solution_fields() -> None:
    problems = LeastSquares.random(3, 4, 6)
    net = random_net((2, 2, 5))
    out = net.solve(problems, 5, trajectory=True)
    assert out.trajectory is not None and out.trajectory.shape == (6, 3, 6)
    assert out.objectives.shape == (6, 3) and out.lowest.shape == out.highest.shape == (5, 3)
    assert torch.equal(out.trajectory[-1], out.solution) and not bool(out.trajectory[0].any())
    torch.testing.assert_close(out.objectives[3], problems.objective(out.trajectory[3]))
    assert out.products == 11 and not out.solution.requires_grad
    nothing = net.solve(problems, 0, start=out.solution)
    assert torch.equal(nothing.solution, out.solution) and nothing.objectives.shape == (1, 3)
    assert nothing.lowest.shape == (0, 3) and nothing.trajectory is None


def test_smoothness_names() -> None:
    problems = LeastSquares.random(3, 4, 6)
    beta = problems.smoothness * ROOM
    assert torch.equal(smoothness_of(problems, None), beta) and torch.equal(
        smoothness_of(problems, "per-problem"), beta
    )
    assert smoothness_of(problems, "common").tolist() == [float(beta.max())] * 3
    assert smoothness_of(problems, "authors").tolist() == [float(beta.max()) / 0.9999] * 3
    assert smoothness_of(problems, 7).tolist() == [7.0] * 3
    assert smoothness_of(problems, 2.0 * beta).tolist() == (2.0 * beta).tolist()
    out = StepSizeNet.orthogonal((2, 3)).solve(problems, 1, smoothness="common")
    torch.testing.assert_close(out.solution, -problems.gradient(problems.start()) / beta.max())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda n, p: n.solve(p, -1), ValueError, "iterations is -1"),
        (lambda n, p: n.solve(p, 2.5), ValueError, "iterations is 2.5"),
        (lambda n, p: n.solve(p.M, 3), TypeError, "problems is a Tensor; pass sf.learned.LeastSquares"),
        (lambda n, p: n.solve(p, 3, start=torch.ones(3, 5)), ValueError, r"start has shape \(3, 5\)"),
        (lambda n, p: n.solve(p, 3, start=torch.full((3, 6), math.nan, dtype=F64)), ValueError, "start has nan"),
        (lambda n, p: n.solve(p, 3, smoothness="comon"), ValueError, "did you mean 'common'"),
        (lambda n, p: n.solve(p, 3, smoothness=0.0), ValueError, "smoothness is 0; it must be positive"),
        (lambda n, p: n.solve(p, 3, smoothness=torch.ones(2)), ValueError, "smoothness has 2 entries"),
        (
            lambda n, p: n.solve(p.to(dtype=torch.float32), 3),
            TypeError,
            "net is torch.float64 on cpu, problems are torch.float32",
        ),
    ],
)
def test_bad_solve(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(random_net((2, 3, 4)), LeastSquares.random(3, 4, 6))


def test_smoothness_whose_inverse_overflows_is_refused() -> None:
    batch = LeastSquares.random(2, 3, 4)
    with pytest.raises(ValueError, match=r"its inverse overflows in torch\.float64"):
        StepSizeNet.orthogonal((2, 3)).solve(batch, 2, smoothness=1e-320)
    single = batch.to(dtype=torch.float32)
    with pytest.raises(ValueError, match=r"its inverse overflows in torch\.float32"):
        StepSizeNet.orthogonal((2, 3)).float().solve(single, 2, smoothness=1e-40)


def test_non_finite_weights_are_refused() -> None:
    net = random_net((2, 3, 4))
    with torch.no_grad():
        net.weights[1][0, 0] = math.nan
    with pytest.raises(ValueError, match=r"net.weights\[1\] has nan"):
        net.solve(LeastSquares.random(1, 2, 3), 1)


def test_single_precision() -> None:
    problems = Lasso.random(2, 5, 7, sparsity=0.8, lam=0.1)
    net = random_net((2, 3, 4))
    double = net.solve(problems, 5)
    single = net.float().solve(problems.to(dtype=torch.float32), 5)
    assert single.solution.dtype == torch.float32
    torch.testing.assert_close(single.solution.double(), double.solution, rtol=1e-4, atol=1e-5)


# ----- gradients


def degenerate(kind: str, widths: tuple[int, ...], seed: int) -> StepSizeNet:
    """Random weights with what the name says."""
    net = random_net(widths, seed, 0.1, 1.9)
    first, last = net.weights[0], net.weights[-1]
    with torch.no_grad():
        if kind == "zero rows":
            for W in net.weights[:-1]:
                W[0] = 0.0
        elif kind == "parallel rows":
            first[1] = -2.0 * first[0]
        elif kind == "saturated":
            last.mul_(30.0)
        elif kind == "zero last layer":
            last.zero_()
        elif kind == "boundary at x = 0":  # where every run starts
            first[0] = array([1.0, 0.0])
        elif kind == "dead":
            for W in net.weights[1:-1]:
                W.copy_(-W.abs())
    return net


DEGENERATE = ["generic", "zero rows", "parallel rows", "saturated", "zero last layer", "boundary at x = 0", "dead"]


def by_autograd(
    net: StepSizeNet, problems: Problems, iterations: int, inverse: Tensor, start: Tensor, gradient: Gradient
) -> tuple[float, list[Tensor]]:
    """The whole iteration on an autograd tape."""
    x = start
    for _ in range(iterations):
        g = problems.adjoint(problems.outer_gradient(problems.forward(x)))
        z = net.logits(x, g) if gradient == "exact" else net.logits(x.detach(), g.detach())
        span = net.high - net.low  # two forms, since autograd takes 1 - σ, which cancels where σ is near 1
        P = torch.where(z > 0.0, net.high - span * torch.sigmoid(-z), net.low + span * torch.sigmoid(z))
        x = problems.prox(x - P * inverse * g, P * inverse)
    value = problems.objective(x).sum()
    parts = torch.autograd.grad(value, list(net.weights), allow_unused=True, materialize_grads=True)
    return float(value.detach()), list(parts)


def assert_same(found: list[Tensor], wanted: list[Tensor], tolerance: float = 1e-12) -> None:
    scale = math.sqrt(sum(float(part.square().sum()) for part in wanted))
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape and float((a - b).norm()) <= tolerance * scale + 1e-300


@settings(max_examples=120, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(0, 2),
    st.sampled_from(DEGENERATE),
    st.sampled_from([(2, 5), (2, 2, 6), (2, 4, 3), (2, 3, 4, 3)]),
    st.integers(1, 6),
    st.booleans(),
    st.sampled_from(["exact", "detached"]),
)
def test_gradient_equals_autograd(
    seed: int, index: int, kind: str, widths: tuple[int, ...], iterations: int, warm: bool, gradient: Gradient
) -> None:
    problems, net = kinds(seed)[index], degenerate(kind, widths, seed)
    start = torch.randn(problems.count, problems.columns, generator=torch.Generator().manual_seed(seed), dtype=F64)
    start = start if warm else torch.zeros_like(start)
    inverse = inverse_smoothness(problems, "common")
    value, parts = final_objective_and_gradient(net, problems, iterations, inverse, start, gradient)
    wanted_value, wanted = by_autograd(net, problems, iterations, inverse, start, gradient)
    assert float(value) == pytest.approx(wanted_value, rel=1e-13)
    assert_same(parts, wanted)
    assert not value.requires_grad and not any(part.requires_grad for part in parts)
    assert float(final_objective(net, problems, iterations, inverse, start)) == pytest.approx(wanted_value, rel=1e-13)


@pytest.mark.parametrize("gradient", ["exact", "detached"])
@pytest.mark.parametrize("kind", DEGENERATE)
def test_training_loss_is_the_same_on_every_path(kind: str, gradient: Gradient) -> None:
    """Compiled, by table and by layers."""
    problems, net = LeastSquares.random(4, 5, 8), degenerate(kind, (2, 3, 6), 5)
    beta = problems.smoothness
    value, parts = training_loss(net, problems, 15, beta, gradient)
    wanted_value, wanted = by_autograd(net, problems, 15, 1.0 / beta[:, None], problems.start(), gradient)
    assert value == pytest.approx(wanted_value, rel=1e-12)
    assert_same(parts, wanted)


@pytest.mark.parametrize("index", range(3))
def test_exact_gradient_is_a_derivative(index: int) -> None:
    """Central differences of the loss along a random direction; the detached rule is another vector."""
    problems, net = kinds()[index], random_net((2, 3, 4), 1)
    inverse, start = inverse_smoothness(problems, None), problems.start()
    _, parts = final_objective_and_gradient(net, problems, 5, inverse, start, "exact")
    _, other = final_objective_and_gradient(net, problems, 5, inverse, start, "detached")
    direction = [
        torch.randn(W.shape, generator=torch.Generator().manual_seed(i), dtype=F64) for i, W in enumerate(net.weights)
    ]
    values = []
    for sign in (1.0, -1.0):
        moved = StepSizeNet([W + sign * 1e-6 * v for W, v in zip(net.matrices, direction, strict=True)])
        values.append(float(final_objective(moved, problems, 5, inverse, start)))
    slope = sum(float((part * v).sum()) for part, v in zip(parts, direction, strict=True))
    assert slope != 0.0 and (values[0] - values[1]) / 2e-6 == pytest.approx(slope, rel=1e-6)
    detached = sum(float((part * v).sum()) for part, v in zip(other, direction, strict=True))
    assert detached != pytest.approx(slope, rel=1e-4)


def test_table_and_layers_agree() -> None:
    net = random_net((2, 4, 9), 7)
    x, g, q = (torch.randn(50, generator=torch.Generator().manual_seed(i), dtype=F64) for i in range(3))
    table = net.evaluator()
    assert isinstance(table, Sectors) and isinstance(random_net((2, 3)).evaluator(), Dense)
    layers = Dense(net.matrices)
    torch.testing.assert_close(table.evaluate(x, g), layers.evaluate(x, g), rtol=1e-12, atol=1e-12)
    for a, b in zip(table.pullback(x, g, q), layers.pullback(x, g, q), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    assert_same(table.gradients(), layers.gradients())


def test_memory_grows_with_the_iterates_only() -> None:
    """A hundred iterations keep 3 N d numbers each; autograd would keep N d h of every layer."""
    problems, net = LeastSquares.random(8, 20, 32), random_net((2, 4, 8, 8))
    kept: list[int] = []
    inverse = inverse_smoothness(problems, None)

    class Watched(LeastSquares):
        def smooth_value(self, product: Tensor) -> Tensor:  # called once, when the tape is complete
            import gc

            gc.collect()
            tensors = [obj for obj in gc.get_objects() if type(obj) is Tensor and obj.shape == (8, 32)]
            kept.append(len(tensors))
            return super().smooth_value(product)

    watched = Watched(problems.M, problems.Y)
    for iterations in (50, 100):
        final_objective_and_gradient(net, watched, iterations, inverse, watched.start())
    assert kept[1] - kept[0] == 150


def test_large_weights_have_a_finite_gradient() -> None:
    problems, net = kinds()[0], random_net((2, 3, 4))
    with torch.no_grad():
        for W in net.weights:
            W.mul_(1e100)
    value, parts = final_objective_and_gradient(net, problems, 4, inverse_smoothness(problems, None), problems.start())
    assert math.isfinite(float(value)) and all(bool(part.isfinite().all()) for part in parts)
    assert np.isfinite(training_loss(net, problems, 4, problems.smoothness)[0])
