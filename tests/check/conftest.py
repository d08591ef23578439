"""Good run directories, and the tampered corpus made from them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

import surefoot as sf
from surefoot._core.losses import Loss


def _load(name: str) -> ModuleType:
    """A module beside this file; the tests are no package."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


_tamper, _corpus = _load("tamper"), _load("corpus")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each tampering of the corpus."""
    if "tampering" in metafunc.fixturenames:
        metafunc.parametrize("tampering", _corpus.CASES, ids=[case.name for case in _corpus.CASES])


@pytest.fixture(scope="session")
def corpus() -> ModuleType:
    """The tampered runs, by name."""
    return _corpus


@pytest.fixture(scope="session")
def tamper() -> ModuleType:
    """The generator of tampered directories."""
    return _tamper


def _normal(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def squared(n: int, m: int, rank: int | None = None) -> Loss:
    """Squared loss on 20 Gaussian rows; ``rank`` below n makes X rank-deficient."""
    X = _normal(20, n, seed=1)
    if rank is not None:
        X = _normal(20, rank, seed=1) @ _normal(rank, n, seed=2)
    return sf.SquaredLoss(X, _normal(20, m, seed=3))


def sensing(n: int, m: int, measurements: int) -> Loss:
    """Gaussian measurements."""
    return sf.MatrixSensing(_normal(measurements, n, m, seed=4), _normal(measurements, seed=5))


def softmax(n: int, m: int) -> Loss:
    """Softmax regression on 20 Gaussian rows."""
    return sf.SoftmaxRegression(_normal(20, n, seed=6), torch.arange(20) % m, 0.1, classes=m)


LOSSES: dict[str, Callable[..., Loss]] = {"squared": squared, "sensing": sensing, "softmax": softmax}


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
        "sharp": ("sharp", squared(3, 2), None, 30),
    }[name]


@pytest.fixture(scope="session")
def good_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``good_run(name)``: the directory of a run that the checker accepts, made once."""
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            theorem, loss, every, iterations = _good(name)
            net = sf.nn.TwoLayerLinear.gaussian(*loss.shape, 12, std=1.0, seed=0)
            certificate = sf.certify(net, loss, f"two-layer/{theorem}")
            path = tmp_path_factory.mktemp(name) / "run"
            sf.descend(
                net,
                loss,
                certificate=certificate,
                directory=path,
                certify_every=every,
                tolerance=1e-14,
                max_iterations=iterations,
                progress=False,
            )
            made[name] = path
        return made[name]

    return make
