"""Good run directories, and the tampered corpus made from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from changes import GoodRun, once
from draws import normal

import surefoot as sf
from surefoot._core.losses import Loss


def squared(n: int, m: int, rank: int | None = None) -> Loss:
    """Squared loss on 20 Gaussian rows; ``rank`` below n makes X rank-deficient."""
    X = normal(20, n, seed=1)
    if rank is not None:
        X = normal(20, rank, seed=1) @ normal(rank, n, seed=2)
    return sf.SquaredLoss(X, normal(20, m, seed=3))


def sensing(n: int, m: int, measurements: int) -> Loss:
    """Gaussian measurements."""
    return sf.MatrixSensing(normal(measurements, n, m, seed=4), normal(measurements, seed=5))


def softmax(n: int, m: int) -> Loss:
    """Softmax regression on 20 Gaussian rows."""
    return sf.SoftmaxRegression(normal(20, n, seed=6), torch.arange(20) % m, 0.1, classes=m)


def adapted_softmax(n: int, m: int) -> Loss:
    """The same, of what is added to a fixed map."""
    return sf.SoftmaxRegression(normal(20, n, seed=6), torch.arange(20) % m, 0.1, offset=normal(n, m, seed=8))


def completion(n: int, m: int, observations: int) -> Loss:
    """So many observations, of which two are of one entry; the first and the last entries are among them."""
    positions = torch.cat([torch.arange(observations - 1) * (n * m - 1) // (observations - 2), torch.zeros(1)]).long()
    return sf.MatrixCompletion(positions // m, positions % m, normal(observations, seed=7), (n, m))


LOSSES: dict[str, Callable[..., Loss]] = {
    "squared": squared,
    "sensing": sensing,
    "completion": completion,
    "softmax": softmax,
    "softmax-offset": adapted_softmax,
}


@pytest.fixture(scope="session")
def make_loss() -> Callable[..., Loss]:
    """``make_loss(kind, *sizes)``: a loss on seeded data."""
    return lambda kind, *sizes: LOSSES[kind](*sizes)


def _good(name: str) -> tuple[str, Loss, int | None, int]:
    """Theorem, loss, certify_every and iterations of the runs that the corpus is made from."""
    return {
        "drift": ("drift", squared(3, 2), None, 300),
        "phases": ("drift", squared(3, 2), 7, 300),
        "contraction": ("contraction", squared(3, 2), None, 30),
        "constant": ("constant", squared(3, 2), None, 30),
        "corrected": ("corrected", squared(3, 2), None, 30),
        "softmax": ("drift", softmax(3, 2), None, 300),
        "sensing": ("drift", sensing(3, 2, 4), None, 300),
        "completion": ("drift", completion(3, 2, 5), None, 100),
        "sharp": ("sharp", squared(3, 2), None, 30),
    }[name]


def _make(name: str, path: Path) -> None:
    theorem, loss, every, iterations = _good(name)
    net = sf.nn.TwoLayerLinear.gaussian(*loss.shape, 12, std=1.0, seed=0)
    sf.descend(
        net,
        loss,
        certificate=sf.certify(net, loss, f"two-layer/{theorem}"),
        directory=path,
        certify_every=every,
        tolerance=1e-14,
        max_iterations=iterations,
        progress=False,
    )


@pytest.fixture(scope="session")
def good_run(tmp_path_factory: pytest.TempPathFactory) -> GoodRun:
    """``good_run(name)``: the directory of a run that the checker accepts, made once."""
    return once(tmp_path_factory, _make)
