"""What the product must show on MNIST 0/1, unit-norm rows.

From the start (W ~ N(0, 1/m), A = I, b = 0), medians of five seeds; after features have moved, three of three seeds.
"""

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


@pytest.mark.parametrize(
    ("samples", "width", "steps", "least", "counted"),
    [(20, 80, 75, 1.0, True), (50, 200, 25, 0.7, False), (100, 400, 50, 0.0, False)],
)
@pytest.mark.parametrize("seed", range(3))
def test_a_fit_is_guaranteed_after_features_have_moved(
    samples: int, width: int, steps: int, least: float, counted: bool, seed: int
) -> None:
    """Adam from W std .5, A std .5/√m, b = 0, γ = .3, then at most three Gauss-Newton steps.

    Counts of the smallest network: a whole step of the others may end at rounding level; the benchmark shortens it, and counts.
    """
    data, generator = sf.data.load(MNIST).train(), torch.Generator().manual_seed(seed)
    assert isinstance(data.X, Tensor) and data.labels is not None
    drawn = torch.randperm(len(data.X), generator=generator)[:samples]
    X, y = torch.nn.functional.normalize(data.X[drawn].double()), 2.0 * data.labels[drawn].double() - 1.0
    net, loss = sf.nn.ImplicitReLU.gaussian(784, width, generator=generator), sf.SquaredLoss(X, y)
    first, optimizer = net.equilibrium(X).Z, torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        (0.5 * (net(X) - y).square().sum()).backward()
        optimizer.step()
        net.contract_()
    certificate = sf.certify(net, loss, "implicit/local")
    for _ in range(3):
        if certificate.holds:
            break
        sf.descend(net, loss, "gauss-newton", 1, 0.0, progress=False)
        certificate = sf.certify(net, loss, "implicit/local")
    assert certificate.holds, certificate
    assert float(torch.dist(net.equilibrium(X).Z, first) / first.norm()) >= least
    if counted:
        most = int(certificate.iterations_to(1e-2))
        run = sf.descend(net, loss, certificate.step_size, most, 1e-2, certificate=certificate, progress=False)
        assert run.status is sf.RunStatus.CONVERGED and run.certified and run.audit().holds
        assert most <= 20.0 * run.iterations
