"""What the product must show on MNIST 0/1 (unit-norm rows, W ~ N(0, 1/m), A = I, b = 0), medians of five seeds."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest
import torch
from torch import Tensor

import surefoot as sf
from surefoot_check import Outcome, check

MNIST = Path(__file__).parents[2].parent / "shared" / "data" / "mnist01.npz"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not MNIST.exists(), reason=f"{MNIST.name} is not beside the repository"),
]


def images(samples: int) -> tuple[Tensor, Tensor]:
    """The first training images of each class."""
    data = sf.data.load(MNIST).train()
    assert isinstance(data.X, Tensor) and data.labels is not None
    chosen = torch.cat([(data.labels == c).nonzero()[: samples // 2, 0] for c in (0, 1)])
    X = data.X[chosen]
    return X / X.norm(dim=1, keepdim=True), data.labels[chosen].double()


@pytest.mark.parametrize(("samples", "width", "most"), [(20, 80, 150), (200, 800, 1500), (1000, 2000, 8000)])
def test_guaranteed_iterations_to_a_thousandth_of_the_loss(samples: int, width: int, most: int) -> None:
    X, y = images(samples)
    counts = []
    for seed in range(5):
        net = sf.nn.ImplicitReLU.certifiable(X, y, width, seed=seed)
        counts.append(sf.certify(net, sf.SquaredLoss(X, y)).iterations_to(1e-3))
    assert median(counts) <= most


@pytest.mark.parametrize(("samples", "width"), [(50, 200), (200, 800)])
def test_full_runs_keep_their_certificates(samples: int, width: int, tmp_path: Path) -> None:
    X, y = images(samples)
    net, loss = sf.nn.ImplicitReLU.certifiable(X, y, width), sf.SquaredLoss(X, y)
    certificate = sf.certify(net, loss)
    run = sf.descend(
        net,
        loss,
        certificate=certificate,
        tolerance=1e-3,
        max_iterations=10_000,
        directory=tmp_path / "run",
        progress=False,
    )
    assert run.status is sf.RunStatus.CONVERGED
    assert run.iterations <= certificate.iterations_to(1e-3)
    audit = run.audit()
    assert audit.holds and audit.violations == 0, str(audit)
    assert check(tmp_path / "run").outcome is Outcome.ACCEPT
