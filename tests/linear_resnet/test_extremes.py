"""What is at or beyond the range of floats, and arguments of unusual types."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import surefoot as sf
from surefoot import _report


def instance() -> tuple[sf.nn.LinearResNet, sf.SquaredLoss]:
    X = torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return sf.nn.LinearResNet.modified_identity(3, 3, 8, 4, 50.0), sf.SquaredLoss(X, -X)


@pytest.mark.parametrize("steps", [1e300, 1e-300])
def test_a_run_with_a_step_at_the_edge_of_the_floats_has_a_report(tmp_path: Path, steps: float) -> None:
    net, loss = instance()
    run = sf.descend(net, loss, steps, 2, directory=tmp_path / "run", progress=False)
    assert (run.status is sf.RunStatus.DIVERGED) == (steps > 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _report.write(tmp_path / "run").exists()


def test_gradients_that_underflow_allow_no_step_and_violate_nothing() -> None:
    """A and B of 1e-300: the gradient is 1e-600 of the residual, so 0 in floats."""
    usual, loss = instance()
    net = sf.nn.LinearResNet(1e-300 * usual.A, 1e-300 * usual.B, usual.W)
    run = sf.descend(net, loss, max_iterations=10, progress=False)
    assert run.status is sf.RunStatus.STALLED and run.iterations == 0 and not run.certified
    audit = run.audit()
    assert audit.holds and audit.violations == 0 and audit.verdict == "nothing could be checked"
    assert "nothing could be checked" in str(audit)


def test_integers_of_numpy_are_integers(tmp_path: Path) -> None:
    g = torch.Generator().manual_seed(0)
    X = torch.randn(8, 2, generator=g, dtype=torch.float64)
    four: Any = np.int64(4)
    two: Any = np.int32(2)
    made = [sf.nn.LinearResNet.gaussian(2, 2, width, 3, seed=seed) for width, seed in ((4, 4), (four, four))]
    assert torch.equal(made[0].A, made[1].A)
    loss = sf.SquaredLoss(X, X)
    run = sf.descend(made[0], loss, None, four, 0.0, certify_every=two, directory=tmp_path / "gd", progress=False)
    assert run.iterations == 4 and sf.Run.load(tmp_path / "gd").config["certify_every"] == 2
    again = sf.sgd.descend(made[1], X, X, four, 1e-4, four, seed=four, directory=tmp_path / "sgd")
    assert again.iterations == 4
    bad: list[Any] = [np.bool_(True), True, np.float64(4.0), np.array([4, 4])]
    for value in bad:
        with pytest.raises(ValueError, match=r"width is .*; it must be an integer of at least 1"):
            sf.nn.LinearResNet.gaussian(2, 2, value, 3)


@pytest.mark.parametrize("hidden", [False, True])
def test_masked_arrays_are_refused(hidden: bool) -> None:
    X = np.ma.MaskedArray(np.eye(3), mask=np.eye(3, dtype=bool) if hidden else False)
    with pytest.raises(TypeError, match=r"X is a masked array; pass X\.filled"):
        sf.SquaredLoss(X, np.eye(3))
    with pytest.raises(TypeError, match="Y is a masked array"):
        sf.sgd.descend(instance()[0], np.eye(3), X, 3, 1e-3)


@pytest.mark.parametrize("bad", [3, 2.5, b"run", True])
def test_a_directory_that_is_no_path_is_refused(bad: Any) -> None:
    net, loss = instance()
    for call in (
        lambda: sf.descend(net, loss, directory=bad),
        lambda: sf.sgd.descend(net, np.eye(3), np.eye(3), 3, 1e-3, directory=bad),
        lambda: sf.Run.load(bad),
    ):
        with pytest.raises(TypeError, match=r"directory is .*; pass the path of a directory"):
            call()


def test_a_directory_of_sgd_is_named_as_such(tmp_path: Path) -> None:
    net, _ = instance()
    sf.sgd.descend(net, np.eye(3), np.eye(3), 3, 1e-3, 2, directory=tmp_path / "run")
    with pytest.raises(sf.RunDirectoryError, match=r"run of sf\.sgd.*resume=True"):
        sf.Run.load(tmp_path / "run")
