"""Networks that no certificate speaks of: narrower than input or output, or deeper than can be measured."""

from __future__ import annotations

from pathlib import Path

import pytest

import surefoot as sf
from surefoot import _report
from surefoot_check import Outcome, check


@pytest.mark.parametrize("theorem", ["linear-resnet/gd", "linear-resnet/local"])
def test_deeper_than_can_be_measured_trains_without_a_guarantee(tmp_path: Path, theorem: str) -> None:
    """513 layers near 0, whose certificate would hold with one layer less, in every other respect."""
    loss = sf.SquaredLoss([[1.0], [2.0]], [[1e-3], [2e-3]])
    net = sf.nn.LinearResNet.modified_identity(1, 1, 2, 513, 1e3)
    assert sf.certify(sf.nn.LinearResNet.modified_identity(1, 1, 2, 4, 1e3), loss, theorem).holds
    certificate = sf.certify(net, loss, theorem)
    assert (
        not certificate.holds
        and certificate.schedule == ()
        and certificate.initial_gap >= loss.gap(net.end_to_end().detach())
    )
    assert [(c.left, c.right) for c in certificate.conditions] == [(513.0, 512.0)]
    assert "at most 512" in str(certificate) and "without a guarantee" in certificate.suggestion
    path = tmp_path / "run"
    run = sf.descend(net, loss, "certified-bb", 20, 1e-6, certificate=certificate, directory=path, progress=False)
    assert run.status is sf.RunStatus.CONVERGED and not run.certified and run.audit().holds
    assert check(path).outcome is not Outcome.ACCEPT
    assert "512" in _report.write(path).read_text()


@pytest.mark.parametrize("theorem", ["linear-resnet/gd", "linear-resnet/local"])
@pytest.mark.parametrize(
    ("A", "B", "Y"),
    [
        ([[1.0, 0.0]], [[1.0]], [[1.0], [0.01]]),  # m = 1 < d = 2: the second input is never seen
        ([[1.0]], [[1.0], [0.0]], [[1.0, 0.01]]),  # m = 1 < k = 2: the second output is never reached
    ],
)
def test_narrow_networks_fail_with_a_suggestion(theorem: str, A: list, B: list, Y: list) -> None:
    X = [[1.0, 0.0], [0.0, 1.0]] if len(A[0]) == 2 else [[1.0]]
    net = sf.nn.LinearResNet(A, B, [[[0.0]], [[0.0]]])
    certificate = sf.certify(net, sf.SquaredLoss(X, Y), theorem)
    assert not certificate.holds and certificate.rate is None
    assert "width" in certificate.suggestion
