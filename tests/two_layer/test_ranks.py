"""What is known of networks narrower than min(n, m)."""

from __future__ import annotations

import pytest
import torch
from draws import normal

import surefoot as sf

X = normal(12, 3, seed=1)
Y = X @ normal(3, 1, seed=2) @ normal(1, 2, seed=3)
DECAY = 0.05


def test_a_realisable_target_is_learned_without_a_certificate() -> None:
    net = sf.nn.TwoLayerLinear.gaussian(3, 2, 1, seed=4)
    run = sf.descend(net, sf.SquaredLoss(X, Y), tolerance=1e-12, progress=False)
    assert run.status is sf.RunStatus.CONVERGED and not run.certified
    assert "not certified, as this theorem needs h >= min(n, m)" in run.certificate.suggestion
    assert "feed-forward/minimum" in run.certificate.suggestion


@pytest.mark.parametrize("width", [1, 2])
def test_with_weight_decay_only_width_1_has_strict_minima(width: int) -> None:
    """From width 2 on, hidden units can be rotated. Here min(n, m) is 3 after a column of targets is added."""
    targets = torch.cat([Y, normal(12, 1, seed=5)], 1)
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(3, width, bias=False), torch.nn.Linear(width, 3, bias=False)).double()
    optimiser = torch.optim.LBFGS(
        plain.parameters(), max_iter=1000, tolerance_grad=1e-12, tolerance_change=0.0, line_search_fn="strong_wolfe"
    )

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        value = ((plain(X) - targets) ** 2).sum() + 0.5 * DECAY * sum((p**2).sum() for p in plain.parameters())
        value.backward()
        return value

    optimiser.step(closure)
    loss = sf.TorchLoss(torch.nn.MSELoss(reduction="sum"), X, targets, weight_decay=DECAY)
    certificate = sf.certify(plain, loss, "feed-forward/minimum")
    assert certificate.holds == (width == 1), str(certificate)
    if width > 1:
        assert any("positive definite" in c.name and not c.holds for c in certificate.conditions)
