"""Batch norms in evaluation mode are affine maps that are not trained."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from draws import normal
from good_runs import sequential
from torch import nn

import surefoot as sf
from surefoot._core.registry import system_of
from surefoot._feed_forward.modules import layers_of, table
from surefoot_check import Outcome, check

X = 2.0 * normal(4, 3, seed=1)


def normed(affine: bool = True) -> nn.Sequential:
    """A batch norm before the first layer, one before an activation and one behind it; statistics of other rows."""
    net = sequential(
        nn.BatchNorm1d(3, affine=False),
        nn.Linear(3, 7),
        nn.BatchNorm1d(7, affine=affine, eps=1e-3),
        nn.Tanh(),
        nn.BatchNorm1d(7, affine=affine),
        nn.Linear(7, 2),
        seed=3,
    )
    net(normal(40, 3, seed=5) + 0.5)
    for module in net:
        if isinstance(module, nn.BatchNorm1d):
            module.requires_grad_(False)
    return net.eval()


@pytest.mark.parametrize("affine", [True, False])
def test_the_loss_is_that_of_the_module(affine: bool) -> None:
    net = normed(affine)
    assert table(layers_of(net))[0].tolist() == [[3, 1, 0], [7, 1, 0], [7, 1, 1], [7, 1, 0], [2, 1, 0]]
    system, Y = system_of(net), normal(4, 2, seed=2)
    loss = system.problem(net, sf.SquaredLoss(X, Y))
    assert set(system.reduced(net, loss)) == {"W2", "b2", "W5", "b5"}
    assert torch.allclose(loss.residual(system.reduced(net, loss)), net(X) - Y, rtol=1e-13, atol=1e-14)
    again, _ = system.rebuild(loss.kind, loss.arrays(), system.reduced(net, loss))
    assert torch.allclose(again(X), net(X), rtol=1e-13, atol=1e-14)


def test_a_run_is_accepted_and_leaves_the_statistics(tmp_path: Path) -> None:
    net = normed()
    before = copy.deepcopy(net)
    loss = sf.SquaredLoss(X, net(X).detach() + 1e-5 * normal(4, 2, seed=4))
    certificate = sf.certify(net, loss)
    assert certificate.holds, certificate
    run = sf.descend(net, loss, max_iterations=20, certificate=certificate, directory=tmp_path, progress=False)
    assert run.audit().holds
    for level in ("fast", "exact"):
        assert check(tmp_path, level).outcome is Outcome.ACCEPT
    trained = {"1.weight", "1.bias", "5.weight", "5.bias"}
    for name, value in net.state_dict().items():
        assert torch.equal(value, before.state_dict()[name]) == (name not in trained)


def test_what_is_not_an_affine_map_is_named() -> None:
    loss = sf.SquaredLoss(X, normal(4, 2, seed=2))
    with pytest.raises(ValueError, match=r"net\[0\], BatchNorm1d, is in training mode, .* call net.eval\(\)"):
        sf.certify(normed().train(), loss)
    with pytest.raises(ValueError, match=r"net\[2\], BatchNorm1d, has scale and shift that are trained; freeze them"):
        sf.certify(normed().requires_grad_(True), loss)
    net = sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 2)).eval()
    with pytest.raises(ValueError, match="has no running statistics; build it with track_running_stats=True"):
        sf.certify(net, loss)
    with pytest.raises(TypeError, match=r"net\[1\], SyncBatchNorm, is not supported"):
        sf.certify(sequential(nn.Linear(3, 4), nn.SyncBatchNorm(4), nn.Linear(4, 2)).eval(), loss)
