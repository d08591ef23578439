"""The finishes: steps J⁺r to a fit and |H|⁻¹∇L to a minimum, with a certificate that holds and without one."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from draws import normal
from good_runs import near_a_minimum, nearly_fitted, sequential
from instances.feed_forward import families, with_windows
from torch import Tensor, nn

import surefoot as sf
from surefoot._core.near_a_fit.pseudo_inverse import PseudoInverse, flat, parted
from surefoot._core.registry import descendable_of
from surefoot._feed_forward.directions import hessian, inverse_at, jacobian, newton
from surefoot_check import check
from surefoot_check.verdict import Outcome

F64 = torch.float64


def far_from_a_fit(seed: int = 0) -> tuple[nn.Sequential, sf.SquaredLoss]:
    """A wide network, and targets that its initial weights are far from."""
    net = sequential(nn.Linear(3, 20), nn.Tanh(), nn.Linear(20, 2), seed=seed)
    return net, sf.SquaredLoss(normal(5, 3, seed=seed), normal(5, 2, seed=seed + 1))


def inverse_of(J: Tensor) -> PseudoInverse:
    """That of a matrix."""
    return PseudoInverse(J @ J.T, lambda d: J @ d, lambda x: J.T @ x, lambda: J)


# -- directions --------------------------------------------------------------------------------------------------------


def test_the_jacobian_is_that_of_finite_differences() -> None:
    net, given = nearly_fitted()
    system = descendable_of(net)
    loss = system.problem(net, given)
    at = system.reduced(net, loss)
    J, place = jacobian(loss, at), 0
    for name, weight in at.items():
        for entry in range(0, weight.numel(), 5):
            ends = []
            for h in (1e-5, -1e-5):
                moved = weight.clone()
                moved.reshape(-1)[entry] += h
                ends.append(loss.residual({**at, name: moved}).reshape(-1))
            assert torch.allclose(J[:, place + entry], (ends[0] - ends[1]) / 2e-5, atol=1e-8)
        place += weight.numel()
    assert J.shape == (loss.Y.numel(), place)


@pytest.mark.parametrize("name", ["convolutions", "maxima", "block", "equal rows, two outputs"])
def test_the_jacobian_of_rows_is_that_of_all(name: str) -> None:
    net, X, Y = (with_windows() | families())[name]()
    system = descendable_of(net)
    loss = system.problem(net, sf.SquaredLoss(X, Y))
    at = system.reduced(net, loss)
    whole = torch.func.jacrev(lambda weights: loss.residual(weights).reshape(-1))(at)
    J = jacobian(loss, at)
    assert torch.allclose(J, torch.cat([whole[name].reshape(len(J), -1) for name in at], dim=1), atol=1e-14)
    r = normal(len(J), seed=7)
    assert torch.allclose(inverse_at(loss, at)(r), inverse_of(J)(r), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("condition", [1e0, 1e4, 1e7, 1e10])
def test_the_pseudo_inverse_is_as_accurate_as_the_condition_allows(condition: float) -> None:
    """Not as that of JJᵀ, its square."""
    U, _ = torch.linalg.qr(normal(6, 6, seed=0))
    V, _ = torch.linalg.qr(normal(11, 6, seed=1))
    s = torch.logspace(0.0, -float(torch.tensor(condition).log10()), 6, dtype=F64)
    d = V @ normal(6, seed=2)
    found = inverse_of(U @ torch.diag(s) @ V.T)(U @ (s * (V.T @ d)))
    assert float((found - d).norm()) <= 1e-14 * condition * float(d.norm())


def test_without_full_rank_it_is_the_step_of_least_squares() -> None:
    J, r = normal(4, 7, seed=0), normal(4, seed=1)
    J[3] = J[0]
    assert torch.allclose(inverse_of(J)(r), torch.linalg.pinv(J) @ r, atol=1e-13)


@pytest.mark.parametrize("definite", [True, False])
def test_the_direction_of_newton_takes_eigenvalues_in_absolute_value(definite: bool) -> None:
    Q, _ = torch.linalg.qr(normal(5, 5, seed=0))
    values, g = torch.tensor([3.0, 2.0, 1.0, 0.5, 0.1 if definite else -0.1], dtype=F64), normal(5, seed=1)
    assert torch.allclose(newton(Q @ torch.diag(values) @ Q.T, g), Q @ ((Q.T @ g) / values.abs()), rtol=1e-12)


def test_the_hessian_is_that_of_torch() -> None:
    net, given = near_a_minimum()
    system = descendable_of(net)
    loss = system.problem(net, given)
    at = system.reduced(net, loss)
    expected = torch.autograd.functional.hessian(lambda vector: loss.value(parted(vector, at)), flat(at))
    assert isinstance(expected, Tensor) and torch.allclose(hessian(loss, at), expected, atol=1e-14)


# -- to a fit ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_gauss_newton_goes_to_a_fit_that_is_certified(seed: int) -> None:
    """From where nothing is certified, in a few steps that end quadratically; the fit is that of a certificate then."""
    net, loss = far_from_a_fit(seed)
    assert not sf.certify(net, loss).holds
    run = sf.descend(net, loss, "gauss-newton", tolerance=1e-20, progress=False)
    assert run.status == "converged" and run.iterations <= 12 and not run.certified
    assert all(b < a for a, b in pairwise(run.gaps))
    assert sf.certify(net, loss).holds


def test_gauss_newton_under_a_certificate_is_certified(tmp_path: Path) -> None:
    net, loss = nearly_fitted()
    certificate = sf.certify(net, loss)
    assert certificate.holds
    run = sf.descend(net, loss, "gauss-newton", tolerance=1e-15, certificate=certificate, directory=tmp_path)
    assert run.certified and run.status == "converged" and run.step_sizes == [1.0] * run.iterations
    assert run.iterations <= 3 and run.audit().holds
    assert run.rows[-1]["distance"] <= certificate.quantities["radius"]
    assert check(tmp_path).outcome is Outcome.ACCEPT


def test_a_run_by_gauss_newton_is_resumed(tmp_path: Path) -> None:
    net, loss = far_from_a_fit()
    whole = sf.descend(net, loss, "gauss-newton", 5, 0.0, directory=tmp_path / "whole", progress=False)
    net, _ = far_from_a_fit()
    sf.descend(net, loss, "gauss-newton", 2, 0.0, directory=tmp_path / "parts", progress=False)
    net, _ = far_from_a_fit()
    run = sf.descend(net, loss, "gauss-newton", 5, 0.0, directory=tmp_path / "parts", resume=True, progress=False)
    assert run.gaps == whole.gaps


def test_equal_rows_with_two_targets_are_fitted_as_well_as_they_can_be() -> None:
    net, loss = far_from_a_fit()
    assert loss.samples is not None
    X, Y = loss.samples
    assert isinstance(X, Tensor) and isinstance(Y, Tensor)
    doubled = sf.SquaredLoss(torch.cat([X, X[:1]]), torch.cat([Y, Y[:1] + 1.0]))
    run = sf.descend(net, doubled, "gauss-newton", 30, progress=False)
    assert run.gaps[-1] <= 1e-12 * run.gaps[0]
    # two numbers, each half of 1 away from both of its targets
    assert run.certificate.optimal_value == pytest.approx(0.5, rel=1e-15)


def test_finishes_say_which_loss_they_are_for() -> None:
    net, loss = far_from_a_fit()
    with pytest.raises(TypeError, match=r"steps='newton' needs a training objective.*steps='gauss-newton'"):
        sf.descend(net, loss, "newton", progress=False)
    small = sequential(nn.Linear(3, 1), nn.Tanh(), nn.Linear(1, 2))
    with pytest.raises(ValueError, match=r"here 10 and 8: there is no exact fit; minimise sf\.TorchLoss"):
        sf.descend(small, loss, "gauss-newton", progress=False)
    net, objective = near_a_minimum()
    with pytest.raises(TypeError, match=r"steps='gauss-newton' needs a loss with an exact fit.*steps='newton'"):
        sf.descend(net, objective, "gauss-newton", progress=False)
    linear = sf.nn.LinearResNet.modified_identity(2, 2, 4, 3, 60.0)
    with pytest.raises(ValueError, match="unknown step rule 'gauss-newton'"):
        sf.descend(linear, sf.SquaredLoss(normal(8, 2, seed=0), normal(8, 2, seed=1)), "gauss-newton", progress=False)


# -- to a minimum ------------------------------------------------------------------------------------------------------


def test_newton_goes_to_a_minimum_that_is_certified() -> None:
    net, loss = near_a_minimum(error=1e-2)
    run = sf.descend(net, loss, "newton", tolerance=0.0, progress=False)
    assert run.status == "stalled" and run.iterations <= 8 and run.gaps[-1] < 1e-30 and not run.certified
    assert sf.certify(net, loss).holds


def test_newton_under_a_certificate_is_certified(tmp_path: Path) -> None:
    net, loss = near_a_minimum()
    run = sf.descend(net, loss, "newton", tolerance=1e-12, directory=tmp_path, progress=False)
    assert run.certified and run.audit().holds and run.iterations <= 2
    assert check(tmp_path).outcome is Outcome.ACCEPT
