"""D-SVD: its step against the 90-digit cases, the corrections of the paper, and training."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from surefoot import RunDirectoryError
from surefoot._learning.directory import BEST
from surefoot._learning.run import TrainStatus
from surefoot._orthogonal.learned_svd import LearnedSVD, SVDStatus
from surefoot._orthogonal.svd_losses import layer_losses, spectral_loss, train_inverses
from surefoot._orthogonal.svd_objective import (
    cayley_inverse,
    cayley_step,
    direction,
    guarded_step,
    objective,
    spectral_bound,
)
from surefoot._orthogonal.svd_start import normalised

CASES = Path(__file__).parents[1] / "cases" / "matrix_inverse.json"


def case(name: str) -> dict[str, Any]:
    if not CASES.exists():
        pytest.skip("tests/cases/matrix_inverse.json is absent")
    (found,) = [c for c in json.loads(CASES.read_text())["cases"] if c["id"] == name]
    return found


def tensors(found: dict[str, Any], *names: str) -> list[Tensor]:
    return [torch.tensor(found["inputs"][name], dtype=torch.float64) for name in names]


def gaussian(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def orthonormal(m: int, r: int, seed: int) -> Tensor:
    return torch.linalg.qr(gaussian(m, r, seed=seed))[0]


def value_of(loss: Tensor) -> float:
    return float(loss.detach())


# -- the step --------------------------------------------


def test_derivatives_of_the_objective() -> None:
    found = case("svd_objective_derivatives_3x4_r2")
    M, U, V = tensors(found, "M", "U", "V")
    expected = {k: torch.tensor(v, dtype=torch.float64) for k, v in found["expected"].items()}
    near = {"rtol": found["rtol"], "atol": found["atol"]}
    torch.testing.assert_close(objective(M, U, V), expected["f"], **near)
    for side, (A, X, Y) in {"U": (M, U, V), "V": (M.T, V, U)}.items():
        got = direction(A, X, Y)
        torch.testing.assert_close(got.G, expected[f"G_{side}"], **near)
        torch.testing.assert_close(got.P, expected[f"P_{side}"], **near)
        torch.testing.assert_close(got.slope, expected[f"f1_{side}"], **near)
        torch.testing.assert_close(got.curvature, expected[f"f2_{side}"], **near)
        torch.testing.assert_close(got.slope, -0.5 * got.P.square().sum(), **near)


def test_the_printed_step_ascends_where_the_curvature_is_negative() -> None:
    found = case("svd_negative_curvature_step")
    M, U, V = tensors(found, "M", "U", "V")
    expected = found["expected"]
    at = direction(M, U, V)
    bound = spectral_bound(at.P, copies=2)
    assert float(at.curvature) < 0.0
    assert float(bound) == pytest.approx(expected["norm_P"], rel=1e-10)
    printed = torch.minimum(2.0 / bound, -at.slope / at.curvature)
    guarded = guarded_step(at.slope, at.curvature, bound)
    assert float(printed) == pytest.approx(expected["t_printed"], rel=1e-10)
    assert float(guarded) == pytest.approx(expected["t_guarded"], rel=1e-10)
    before = float(objective(M, U, V))
    for t, name in ((printed, "f_after_printed"), (guarded, "f_after_guarded")):
        after = float(objective(M, cayley_step(at.P, U, t, bound, None), V))
        assert after == pytest.approx(expected[name], rel=1e-10)
        assert (after > before) == (name == "f_after_printed")


def test_derivatives_are_those_of_the_cayley_curve() -> None:
    M, U, V = gaussian(5, 7), orthonormal(5, 3, 1), orthonormal(7, 3, 2)
    at = direction(M, U, V)

    def along(t: Tensor) -> Tensor:
        return objective(M, cayley_step(at.P, U, t, spectral_bound(at.P), None), V)

    zero = torch.zeros((), dtype=torch.float64)
    slope = torch.autograd.functional.jacobian(along, zero)
    curvature = torch.autograd.functional.hessian(along, zero)
    assert isinstance(slope, Tensor) and isinstance(curvature, Tensor)
    torch.testing.assert_close(at.slope, slope)
    torch.testing.assert_close(at.curvature, curvature)


@pytest.mark.parametrize("size", [2, 3, 10, 51])
@pytest.mark.parametrize("copies", [1, 2])
def test_spectral_bound(size: int, copies: int) -> None:
    A = gaussian(20, size, size + 3)
    if copies == 2:
        A = A[..., :size]
        A = A - A.mT
    norms = torch.linalg.matrix_norm(A, 2)
    bound = spectral_bound(A, copies)
    assert bool((bound >= norms).all())
    assert bool((bound <= norms * (size / copies) ** (1.0 / 16.0) * (1.0 + 1e-9)).all())
    wide = spectral_bound(A.mT.float() * 1e30, copies)
    torch.testing.assert_close(wide.double(), bound * 1e30, rtol=1e-4, atol=0.0)
    assert float(spectral_bound(torch.zeros(3, 4))) == 0.0


@pytest.mark.parametrize("radius", [0.1, 1.0])
def test_inner_inverse_of_the_paper_is_exact(radius: float) -> None:
    """K = 6, L = 4 with all ones, for ‖tP/2‖ ≤ 1, as the cap of the step ensures."""
    Q = gaussian(4, 30, 30)
    Q = Q - Q.mT
    Q = radius * Q / torch.linalg.matrix_norm(Q, 2)[:, None, None]
    X = cayley_inverse(Q, torch.full((4,), radius, dtype=torch.float64), torch.ones(6, 4, dtype=torch.float64))
    assert float((X - torch.linalg.inv(torch.eye(30, dtype=torch.float64) + Q)).abs().max()) < 3e-13


# -- the network -----------------------------------------


@pytest.mark.parametrize("inverse", ["exact", (6, 4)])
@pytest.mark.parametrize("shape", [(3, 3), (3, 6), (6, 3), (1, 5)])
def test_it_converges_to_the_svd(shape: tuple[int, int], inverse: Any) -> None:
    r = min(shape)
    U, V = orthonormal(shape[0], r, 1), orthonormal(shape[1], r, 2)
    M = (U * torch.linspace(1.0, 3.0, r, dtype=torch.float64)) @ V.T
    with torch.no_grad():
        found = LearnedSVD(*shape, layers=150, inverse=inverse, tolerance=1e-4)(M)
    assert found.info.ok
    torch.testing.assert_close(found.S, torch.linalg.svdvals(M), rtol=1e-8, atol=0.0)
    torch.testing.assert_close((found.U * found.S) @ found.Vh, M, rtol=0.0, atol=1e-3)
    assert float(found.info.orthogonality) < 1e-12


def test_leading_singular_values() -> None:
    M = (orthonormal(8, 6, 1) * torch.tensor([5.0, 4.0, 1.0, 0.5, 0.2, 0.1])) @ orthonormal(9, 6, 2).T
    with torch.no_grad():
        found = LearnedSVD(8, 9, 2, layers=200, tolerance=1e-3)(M)
    assert found.info.ok
    torch.testing.assert_close(found.S, torch.tensor([5.0, 4.0], dtype=torch.float64), rtol=1e-6, atol=0.0)
    assert (found.U.shape, found.Vh.shape) == ((8, 2), (2, 9))


def test_every_layer_lowers_the_objective() -> None:
    """Learned steps are 0; the guarded step may overshoot where the second-order model is poor, but not by much."""
    M = normalised(gaussian(20, 6, 8, seed=3))
    net = LearnedSVD(6, 8, layers=40, inverse="exact")
    start = net.orthonormal_start(M)
    values = torch.stack([objective(M, *start)] + [objective(M, U, V) for U, V in net.iterates(M, start)]).detach()
    assert bool((values[1:] < values[0]).all())
    assert float((values.diff(dim=0) > 1e-12).double().mean()) < 0.01


def test_a_start_of_the_wrong_determinant_never_reaches_the_minimum() -> None:
    """ "No gap assumption" (section 1 of the paper) needs a start of the right orientation."""
    M = torch.diag(torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64)) / 3.0
    net = LearnedSVD(3, 3, layers=150, inverse="exact")
    U, V = net.orthonormal_start(M)
    assert float(torch.linalg.det(U) * torch.linalg.det(V)) == pytest.approx(1.0)
    flipped = U * torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)
    least = -float(torch.linalg.svdvals(M).sum())
    ends = {}
    with torch.no_grad():
        for name, start in (("right", (U, V)), ("wrong", (flipped, V))):
            for factors in net.iterates(M, start):
                ends[name] = float(objective(M, *factors))
    assert ends["right"] == pytest.approx(least, abs=1e-6)
    assert ends["wrong"] >= least + 2.0 / 3.0 - 1e-9
    # orthonormal_start repairs a given one as well, and never touches those of rectangular or singular matrices
    assert torch.equal(net.orthonormal_start(M, (flipped, V))[0], U)
    singular = M.clone()
    singular[2] = 0.0
    assert torch.equal(net.orthonormal_start(singular, (flipped, V))[0], flipped)


@pytest.mark.parametrize("M", [torch.eye(4), 3.0 * torch.ones(5, 5) - 2.0 * torch.eye(5)], ids=["identity", "signs"])
def test_gradient_of_the_nuclear_norm_at_ties(M: Tensor) -> None:
    """d‖M‖_* = UVᵀ at full rank, whatever the multiplicities."""
    M = M.double().requires_grad_()
    found = LearnedSVD(*M.shape, layers=100)(M)
    (slope,) = torch.autograd.grad(found.S.sum(), M)
    U, _, Vh = torch.linalg.svd(M.detach())
    torch.testing.assert_close(slope, U @ Vh, rtol=0.0, atol=1e-7)


@pytest.mark.parametrize("inverse", ["exact", (6, 4)])
def test_gradcheck(inverse: Any) -> None:
    net = LearnedSVD(3, 4, layers=2, inverse=inverse, backward="unroll")
    M = gaussian(2, 3, 4, seed=1).requires_grad_()
    steps = (0.3 * gaussian(2, 2, seed=2)).requires_grad_()

    def factors(M: Tensor, steps: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.func.functional_call(net, {"steps": steps}, (M,)))[:3]

    assert torch.autograd.gradcheck(factors, (M, steps))


def test_second_derivatives_through_the_inner_inverse_are_refused() -> None:
    net = LearnedSVD(2, 3, layers=1, backward="unroll")
    M = gaussian(2, 3).requires_grad_()
    (slope,) = torch.autograd.grad(net(M).S.sum(), M, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


@pytest.mark.parametrize("factor", [1e-20, 1.0, 1e20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scale(factor: float, dtype: torch.dtype) -> None:
    M = gaussian(4, 5).to(dtype)
    net = LearnedSVD(4, 5, layers=8, dtype=dtype)
    with torch.no_grad():
        one, other = net(M), net(factor * M)
    close: dict[str, Any] = {"rtol": 2e-3, "atol": 2e-3} if dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-9}
    torch.testing.assert_close(other.S / factor, one.S, **close)
    torch.testing.assert_close(other.U, one.U, **close)


def test_a_bad_matrix_does_not_fail_the_others() -> None:
    M = gaussian(3, 4, 5)
    net = LearnedSVD(4, 5, layers=5, backward="unroll")
    expected = net(M)
    M = M.clone()
    M[1, 2, 3] = math.inf
    M.requires_grad_()
    found = net(M)
    assert found.info.status.tolist() == [SVDStatus.NOT_CONVERGED, SVDStatus.NON_FINITE, SVDStatus.NOT_CONVERGED]
    assert bool(found.U[1].isnan().all() and found.S[1].isnan().all() and found.Vh[1].isnan().all())
    for index in (0, 2):
        torch.testing.assert_close(found.U[index], expected.U[index])
    (slope,) = torch.autograd.grad(found.S[0].sum(), M)
    assert bool(slope.isfinite().all())
    assert all(status.text for status in SVDStatus)


def test_batches_and_orders() -> None:
    M = gaussian(2, 3, 4, 5)
    net = LearnedSVD(4, 5, layers=3)
    with torch.no_grad():
        whole, one = net(M), net(M[1, 2].T.contiguous().T)
    assert whole.info.status.shape == (2, 3)
    torch.testing.assert_close(whole.S[1, 2], one.S)
    assert bool((whole.S.diff(dim=-1) <= 0.0).all() and (whole.S >= 0.0).all())
    assert net(M[:0]).U.shape == (0, 3, 4, 4)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((0, 3), {}, "rows is 0"),
        ((3, 3, 4), {}, "rank is 4"),
        ((3, 3), {"layers": -1}, "layers is -1"),
        ((3, 3), {"inverse": (4, 1)}, "inverse order is 1"),
        ((3, 3), {"inverse": "cholesky"}, "inverse is 'cholesky'"),
        ((3, 3), {"tolerance": -1.0}, "tolerance is -1.0"),
        ((3, 3), {"backward": "layers"}, "backward is 'layers'"),
        ((3, 3), {"ties": "ignore"}, "ties is 'ignore'"),
    ],
)
def test_bad_settings(arguments: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LearnedSVD(*arguments, **options)


def test_bad_input() -> None:
    with pytest.raises(TypeError, match=r"dtype is torch\.float16"):
        LearnedSVD(3, 3, dtype=torch.float16)
    net = LearnedSVD(3, 4)
    with pytest.raises(ValueError, match=r"must end in \(3, 4\)"):
        net(gaussian(4, 3))
    with pytest.raises(TypeError, match="convert one of them"):
        net(gaussian(3, 4).float())
    with pytest.raises(TypeError, match="pass a tensor"):
        net([[1.0]])
    eye = torch.eye(3, dtype=torch.float64)
    for start, error, match in (
        ((2.0 * eye, torch.eye(4, 3, dtype=torch.float64)), ValueError, "start U has no orthonormal columns"),
        ((eye, torch.zeros(4, 3, dtype=torch.float64)), ValueError, "start V has no orthonormal columns"),
        ((eye.float(), torch.eye(4, 3, dtype=torch.float64)), TypeError, "start U is torch.float32"),
        (eye, TypeError, "two tensors"),
        ((eye, None), TypeError, "two tensors"),
    ):
        with pytest.raises(error, match=match):
            net(gaussian(3, 4), start)
    with pytest.raises(ValueError, match="start V"):
        net(gaussian(3, 4), (torch.eye(3, dtype=torch.float64), torch.eye(4, dtype=torch.float64)))


def test_save_and_load(tmp_path: Path) -> None:
    net = LearnedSVD(3, 4, 2, layers=3, inverse=(3, 5), seed=4, tolerance=0.5, dtype=torch.float32)
    torch.nn.init.normal_(net.steps)
    net.save(tmp_path / "net.safetensors")
    other = LearnedSVD.load(tmp_path / "net.safetensors")
    M = gaussian(3, 4).float()
    assert torch.equal(net(M).U, other(M).U)
    assert (other.tolerance, str(other)) == (0.5, str(net))
    (tmp_path / "other.safetensors").write_bytes(b"no")
    with pytest.raises(RunDirectoryError):
        LearnedSVD.load(tmp_path / "other.safetensors")


# -- training --------------------------------------------


@pytest.mark.parametrize(
    ("loss", "optimizer", "rate"),
    [("objective", "adam", 0.1), ("objective", "sgd", 3.0), ("singular-values", "adam", 0.1)],
)
def test_training_lowers_the_loss_on_other_matrices(loss: Any, optimizer: Any, rate: float) -> None:
    net = LearnedSVD(4, 6, layers=2, inverse="exact")
    fresh = gaussian(40, 4, 6, seed=7)
    before = value_of(layer_losses(net, fresh, loss))
    run = net.fit(gaussian(40, 4, 6), loss=loss, iterations=20, batch=40, optimizer=optimizer, learning_rate=rate)
    assert run.status is TrainStatus.FINISHED
    assert run.epochs == 20
    assert value_of(layer_losses(net, fresh, loss)) < 0.97 * before
    assert "20 epochs, loss" in str(run)


def test_the_loss_is_that_of_algorithm_3() -> None:
    M = gaussian(3, 4, 6)
    net = LearnedSVD(4, 6, layers=3)
    scaled = normalised(M)
    values = [objective(scaled, U, V) for U, V in net.iterates(scaled, net.orthonormal_start(M))]
    expected = torch.stack(values).mean() + torch.linalg.svdvals(scaled).sum(-1).mean()
    torch.testing.assert_close(layer_losses(net, M), expected)


@pytest.mark.parametrize("inner", [0, 2])
def test_resumed_training_is_the_same(tmp_path: Path, inner: int) -> None:
    M = gaussian(10, 3, 4)
    options: dict[str, Any] = {"batch": 4, "learning_rate": 0.1, "validation": gaussian(5, 3, 4, seed=3), "seed": 2}
    options |= {"inverse_iterations": inner, "inverse_rate": 0.01}
    whole, parts = (LearnedSVD(3, 4, layers=2, inverse=(2, 3)) for _ in range(2))
    expected = whole.fit(M, iterations=9, directory=tmp_path / "whole", **options)
    parts.fit(M, iterations=4, directory=tmp_path / "parts", **options)
    parts = LearnedSVD(3, 4, layers=2, inverse=(2, 3))
    found = parts.fit(M, iterations=9, directory=tmp_path / "parts", resume=True, **options)
    assert found == expected
    assert torch.equal(parts.steps, whole.steps)
    assert torch.equal(parts.coefficients, whole.coefficients)
    assert torch.equal(parts.coefficients, torch.ones_like(parts.coefficients)) == (inner == 0)
    assert torch.equal(LearnedSVD.load(tmp_path / "parts" / BEST).steps, whole.steps)
    with pytest.raises(RunDirectoryError, match="learning_rate"):
        parts.fit(M, iterations=9, directory=tmp_path / "parts", resume=True, **{**options, "learning_rate": 0.2})
    with pytest.raises(RunDirectoryError, match=r"\(network differ\)"):
        other = LearnedSVD(3, 4, layers=2, inverse=(1, 6))  # as many coefficients
        other.fit(M, iterations=9, directory=tmp_path / "parts", resume=True, **options)
    with pytest.raises(RunDirectoryError, match="not an empty directory"):
        parts.fit(M, directory=tmp_path / "parts", **options)


def test_training_stops_early_and_keeps_the_best() -> None:
    net = LearnedSVD(3, 4, layers=2)
    M = gaussian(6, 3, 4)
    first = value_of(layer_losses(net, M))
    run = net.fit(M, iterations=50, optimizer="sgd", learning_rate=1e4, patience=3)
    assert run.status is TrainStatus.EARLY_STOPPED
    assert run.best == min(run.losses)
    assert value_of(layer_losses(net, M)) == pytest.approx(run.best)
    assert run.best <= first


def test_inner_training_is_gradient_descent_on_loss_4() -> None:
    """In the spectral domain; on the matrices themselves the loss is the same."""
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(2, 3, 3, dtype=torch.float64, generator=generator)
    c0 = torch.linalg.matrix_norm(A, 2).square()
    C = 1.0 + 0.1 * torch.randn(2, 4, dtype=torch.float64, generator=generator)
    X, total = A.mT / c0[:, None, None], 0.0
    for row in C:
        E = torch.eye(3, dtype=torch.float64) - A @ X
        X = X @ sum(c * torch.linalg.matrix_power(E, power) for power, c in enumerate(row))
        total += float((A @ X @ A - A).square().sum()) / (2 * 2 * 2)
    assert float(spectral_loss(C, torch.linalg.svdvals(A).square(), c0)) == pytest.approx(total, rel=1e-12)
    # too few layers for an exact inverse: training the coefficients makes it better
    net = LearnedSVD(3, 5, layers=2, inverse=(1, 2))
    M = gaussian(8, 3, 5)
    with torch.no_grad():
        before = float(net(M).info.orthogonality.mean())
        train_inverses(net, M, 100, 0.02)
        after = float(net(M).info.orthogonality.mean())
    assert not torch.equal(net.coefficients, torch.ones_like(net.coefficients))
    assert after < before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "nuclear"}, "loss is 'nuclear'"),
        ({"optimizer": "lbfgs"}, "optimizer is 'lbfgs'"),
        ({"batch": 0}, "batch is 0"),
        ({"resume": True}, "needs the directory"),
        ({"inverse_iterations": 2}, "inverse is exact"),
    ],
)
def test_bad_training_settings(options: Any, message: str) -> None:
    net = LearnedSVD(3, 4, layers=1, inverse="exact")
    with pytest.raises(ValueError, match=message):
        net.fit(gaussian(2, 3, 4), **options)


def test_bad_training_matrices() -> None:
    net = LearnedSVD(3, 4, layers=1)
    bad = gaussian(2, 3, 4)
    bad[1, 0, 0] = math.nan
    with pytest.raises(ValueError, match="matrices has nan"):
        net.fit(bad)
    with pytest.raises(ValueError, match="N of at least 1"):
        net.fit(gaussian(3, 4))
    with pytest.raises(ValueError, match="no layers"):
        LearnedSVD(3, 4, layers=0).fit(gaussian(2, 3, 4))
