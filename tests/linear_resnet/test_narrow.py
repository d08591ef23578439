"""A network narrower than its input or output is not certified: its last singular value is not what a theorem means."""

from __future__ import annotations

import pytest

import surefoot as sf


def test_deeper_than_can_be_measured_is_refused() -> None:
    loss = sf.SquaredLoss([[1.0], [2.0]], [[1.0], [0.5]])
    with pytest.raises(ValueError, match="600 layers"):
        sf.certify(sf.nn.LinearResNet.gaussian(1, 1, 2, 600), loss)


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
