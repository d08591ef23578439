"""The Jacobian of all outputs, and the finish by Gauss-Newton steps."""

from __future__ import annotations

import pytest
import torch
from draws import normal
from torch import Tensor

import surefoot as sf
from surefoot._core.registry import descendable_of
from surefoot._implicit.engine import Iterate, WeightEngine
from surefoot._implicit.jacobian import Jacobian


def problem(outputs: int, width: int = 12) -> tuple[sf.nn.ImplicitReLU, sf.SquaredLoss]:
    """Five unit rows of four columns, and weights as if trained."""
    X = normal(5, 4, seed=0)
    net = sf.nn.ImplicitReLU.gaussian(4, width, outputs=outputs, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        net.b.copy_(0.3 * normal(*net.b.shape, seed=2))
    return net, sf.SquaredLoss(X / X.norm(dim=1, keepdim=True), normal(5, outputs, seed=3))


def engine(net: sf.nn.ImplicitReLU, loss: sf.SquaredLoss) -> WeightEngine:
    system = descendable_of(net)
    found = system.engine(net, system.problem(net, loss), "auto")
    assert isinstance(found, WeightEngine)
    return found


@pytest.mark.parametrize("outputs", [1, 3])
def test_it_is_that_of_autograd(outputs: int) -> None:
    net, loss = problem(outputs)
    iterate = engine(net, loss).iterate
    assert isinstance(iterate, Iterate)
    J, parameters = Jacobian(iterate), [net.W, net.A, net.b]
    assert loss.samples is not None
    values = net(loss.samples[0]).reshape(-1)
    rows = [torch.autograd.grad(value, parameters, retain_graph=True) for value in values]
    expected = torch.stack([torch.cat([part.reshape(-1) for part in row]) for row in rows])
    assert torch.allclose(J.matrix(), expected, atol=1e-9)
    d, x = normal(expected.shape[1], seed=4), normal(len(expected), seed=5)
    assert torch.allclose(J.image(d), J.matrix() @ d, atol=1e-12)
    assert torch.allclose(J.pulled(x), J.matrix().T @ x, atol=1e-12)
    assert torch.allclose(J.inverse()(x), torch.linalg.pinv(expected) @ x, atol=1e-8)


@pytest.mark.parametrize("outputs", [1, 3])
def test_gauss_newton_goes_to_a_fit_in_a_few_steps(outputs: int) -> None:
    net, loss = problem(outputs, 30)
    run = sf.descend(net, loss, "gauss-newton", 10, 1e-20, progress=False)
    assert run.status is sf.RunStatus.CONVERGED and run.iterations <= 8
    residuals = torch.tensor(run.gaps).sqrt()
    assert float(residuals[-2]) <= 10.0 * float(residuals[-3]) ** 1.5  # better than any linear rate
    assert not any("hidden_A" in row for row in run.rows[1:])  # what is audited of gradient steps


def test_it_says_where_there_is_no_fit() -> None:
    X: Tensor = normal(12, 2, seed=0)
    net = sf.nn.ImplicitReLU.gaussian(2, 2)
    with pytest.raises(ValueError, match=r"needs at most as many outputs .* here 12 and 10; use a larger width"):
        sf.descend(net, sf.SquaredLoss(X, normal(12, seed=1)), "gauss-newton", progress=False)


def test_distances_are_from_the_start_and_from_an_anchor() -> None:
    net, loss = problem(1)
    here = engine(net, loss)
    start = here.iterate.at
    assert here.iterate.measurements["distance"] == 0.0
    after = here.iterate.distance_after(0.01)
    here.move(0.01)
    assert (
        here.iterate.measurements["distance"] == pytest.approx(after) == pytest.approx(here.iterate.at.distance(start))
    )
    here.anchor()
    assert here.iterate.measurements["distance"] == 0.0
    here.move(0.01)
    again = engine(net, loss)
    again.restore(here.weights(), here.state())
    assert again.iterate.measurements == here.iterate.measurements
    assert again.iterate.measurements["distance"] < here.iterate.at.distance(start)
