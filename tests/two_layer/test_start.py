"""Weights that are certified from the start: a multiple of orthonormal rows, the scale, and how far training moves them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import surefoot as sf
from surefoot._core.losses import LinearMapLoss
from surefoot._two_layer.start import LOOSE, MOVEMENTS, TARGET, movement

certifiable = sf.nn.TwoLayerLinear.certifiable


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def squared(rows: int = 12, n: int = 4, m: int = 2) -> sf.SquaredLoss:
    return sf.SquaredLoss(normal(rows, n), normal(rows, m, seed=1))


def deficient() -> sf.SquaredLoss:
    """Rank 3 of 5 columns, one of which is 0."""
    X = normal(12, 5)
    X[:, 3], X[:, 4] = X[:, 0] - 2.0 * X[:, 1], 0.0
    return sf.SquaredLoss(X, normal(12, 2, seed=1))


LOSSES: dict[str, LinearMapLoss] = {
    "squared": squared(),
    "rank-deficient": deficient(),
    "sensing": sf.MatrixSensing(normal(20, 3, 4), normal(20, seed=1)),
    "sensing, many minimisers": sf.MatrixSensing(normal(8, 3, 4), normal(8, seed=1)),
    "softmax": sf.SoftmaxRegression(normal(30, 3), torch.arange(30) % 4, 0.1, 4),
}


def stacked(net: sf.nn.TwoLayerLinear, loss: LinearMapLoss) -> Tensor:
    """The rows that the theorems speak of."""
    W1 = net.W1.detach()
    return torch.cat([W1 if loss.basis is None else loss.basis.T @ W1, net.W2.detach()])


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("width", [None, 19])
def test_rows_are_orthonormal_times_the_scale(name: str, width: int | None) -> None:
    loss = LOSSES[name]
    net = certifiable(loss, width, scale=1.5)
    assert (net.W1.shape[0], net.W2.shape[0]) == loss.shape
    assert net.width == (sum(loss.shape) if width is None else width)
    rows = stacked(net, loss)
    torch.testing.assert_close(rows @ rows.T, 2.25 * torch.eye(len(rows), dtype=torch.float64), rtol=0.0, atol=1e-13)
    assert (net.W1 != 0).all()  # dense


@pytest.mark.parametrize("name", ["rank-deficient", "sensing, many minimisers", "softmax"])
def test_the_scale_is_the_least_of_about_the_best_count(name: str) -> None:
    loss = LOSSES[name]

    def count(moved: float) -> float:
        return sf.certify(certifiable(loss, moved=moved), loss).iterations_to(TARGET)

    chosen = certifiable(loss)
    moved = movement(loss, float(chosen.W1.detach()[0].norm()))
    best = count(MOVEMENTS[-1])
    assert sf.certify(chosen, loss).iterations_to(TARGET) <= LOOSE * best < math.inf
    assert moved == pytest.approx(MOVEMENTS[0]) or count(2.0 * moved) > LOOSE * best


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("moved", [0.05, 0.005])
def test_weights_move_as_far_as_was_asked_for(name: str, moved: float) -> None:
    loss = LOSSES[name]
    net = certifiable(loss, moved=moved, seed=3)
    before = stacked(net, loss)
    run = sf.descend(net, loss, tolerance=1e-10, max_iterations=3000, progress=False)
    assert run.status.value == "converged"
    assert run.certified
    assert run.moved == pytest.approx(moved, rel=0.05)
    after = stacked(net, loss)
    assert run.moved == pytest.approx(float((after - before).norm() / before.norm()), rel=1e-9)
    assert run.summary()["moved"] == run.moved


def test_the_seed_draws_the_rows() -> None:
    loss = squared()
    first, again, other = (certifiable(loss, scale=1.0, seed=seed).W1 for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)


def test_a_target_of_zero_needs_no_movement() -> None:
    loss = sf.SquaredLoss(normal(9, 3), torch.zeros(9, 2, dtype=torch.float64))
    net = certifiable(loss)
    run = sf.descend(net, loss, progress=False)
    assert sf.certify(net, loss).holds
    assert run.moved == 0.0


@pytest.mark.parametrize(
    ("loss", "given", "message"),
    [
        (squared(), {"scale": 1.0, "moved": 0.1}, "scale or moved, not both"),
        (squared(), {"width": 5}, r"width is 5; .*n \+ m = 6"),
        (squared(), {"scale": 0.0}, "scale is 0.0; it must be a positive number"),
        (squared(), {"moved": -1.0}, "moved is -1.0; it must be a positive share"),
        (squared(), {"seed": 0.5}, "seed is 0.5; it must be an integer"),
        (squared(), {"theorem": "two-layer/dirft"}, "did you mean 'two-layer/drift'"),
    ],
)
def test_bad_arguments(loss: sf.Loss, given: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        certifiable(loss, **given)  # pyright: ignore[reportArgumentType]


def test_no_scale_is_certified() -> None:
    flat = sf.SoftmaxRegression(normal(30, 3), torch.arange(30) % 4, 0.0, 4)
    with pytest.raises(sf.nn.NotCertifiable, match=r"fails at every scale: .*mu > 0; .*use l2 > 0"):
        certifiable(flat)
    with pytest.raises(sf.nn.NotCertifiable, match="two-layer/sharp guarantees no rate"):
        certifiable(squared(), theorem="two-layer/sharp")


@pytest.mark.parametrize("name", ["two-layer", "linear-resnet", "implicit", "feed-forward"])
def test_movement_is_of_the_trained_weights(name: str) -> None:
    """γ of an implicit network, A and B of a ResNet do not count; zero weights have nothing to compare with."""
    loss = squared(6, 3, 1)
    generator = torch.Generator().manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()
    nets: dict[str, torch.nn.Module] = {
        "two-layer": sf.nn.TwoLayerLinear.gaussian(3, 1, 12, seed=0),
        "linear-resnet": sf.nn.LinearResNet.modified_identity(3, 1, 4, 2, 3.0),
        "implicit": sf.nn.ImplicitReLU.paper(3, 8, 0.5, generator=generator),
        "feed-forward": plain,
    }
    run = sf.descend(nets[name], loss, 1e-3, max_iterations=3, progress=False)
    if name == "linear-resnet":
        assert run.moved is None
        return
    assert run.moved is not None
    trained = [weight for weight in run.initial if weight != "gamma"]
    first, last = (torch.cat([at[weight].flatten() for weight in trained]) for at in (run.initial, run.final))
    assert run.moved == pytest.approx(float((last - first).norm() / first.norm()), rel=1e-12)
    assert 0.0 < run.moved < 1.0
