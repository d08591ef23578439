"""What is added to a fixed map, as low-rank adapters are: certified, checked, and the same as training the sum."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from draws import normal

import surefoot as sf
from surefoot_check.arrays import read_safetensors
from surefoot_check.checker import check
from surefoot_check.verdict import Outcome

X, FIXED, LABELS = normal(20, 3, seed=1), normal(3, 2, seed=2), torch.arange(20) % 2


def softmax() -> sf.SoftmaxRegression:
    """With a fixed map, of two classes."""
    return sf.SoftmaxRegression(X, LABELS, 0.1, offset=FIXED)


def test_the_constants_are_those_without_a_fixed_map_and_classes_those_of_it() -> None:
    plain = sf.SoftmaxRegression(X, LABELS, 0.1)
    assert (softmax().smoothness, softmax().strong_convexity) == (plain.smoothness, plain.strong_convexity)
    assert sf.SoftmaxRegression(X, LABELS, 0.1, offset=normal(3, 4)).shape == (3, 4)
    nothing = sf.SoftmaxRegression(X, LABELS, 0.1, offset=torch.zeros(3, 2, dtype=torch.float64))
    torch.testing.assert_close(nothing.optimum, plain.optimum)


def test_a_run_is_that_of_sgd_on_the_sum_of_both_maps() -> None:
    net = sf.nn.TwoLayerLinear.gaussian(3, 2, 7, seed=3)
    W1, W2 = net.W1.detach().clone().requires_grad_(), net.W2.detach().clone().requires_grad_()
    optimiser = torch.optim.SGD([W1, W2], lr=0.01)
    for _ in range(10):
        optimiser.zero_grad()
        W = W1 @ W2.T
        (torch.nn.functional.cross_entropy(X @ (FIXED + W), LABELS) + 0.05 * (W**2).sum()).backward()
        optimiser.step()
    sf.descend(net, softmax(), 0.01, 10, tolerance=0.0, progress=False)
    torch.testing.assert_close(net.W1, W1)
    torch.testing.assert_close(net.W2, W2)


def test_a_certified_run_is_checked_at_both_levels_and_replayed(tmp_path: Path) -> None:
    net = sf.nn.TwoLayerLinear.gaussian(3, 2, 12, seed=3)
    run = sf.descend(net, softmax(), max_iterations=40, directory=tmp_path / "run", progress=False)
    assert run.certified and run.audit().holds and run.certificate.problem["kind"] == "softmax-offset"
    assert check(tmp_path / "run", level="exact").outcome is Outcome.ACCEPT
    report = check(tmp_path / "run", replay=True)
    assert report.outcome is Outcome.ACCEPT and any(line.claim == "L3" for line in report.lines)
    stored = read_safetensors(tmp_path / "run" / "problem.safetensors")
    np.testing.assert_allclose(stored["offset"], (X @ FIXED).numpy(), rtol=1e-14)
    again = sf.certify(net, softmax())
    assert again.arrays["problem/offset"] == run.certificate.arrays["problem/offset"]


@pytest.mark.parametrize(
    ("offset", "kind", "message"),
    [
        (FIXED.T, ValueError, r"offset has shape \(2, 3\); W0 of X \(W0 \+ W\) must have \(3, 2\).*layer.weight.T"),
        (FIXED[0], ValueError, r"offset has shape \(2,\); it must have 2 dimension"),
        (FIXED * float("nan"), ValueError, r"offset has nan at index \(0, 0\)"),
        (FIXED * 1e30, ValueError, r"X @ offset reaches beyond 1e\+20: products would overflow; scale the data"),
        (FIXED.long(), TypeError, r"offset has dtype int64; pass float64"),
        ("W0", TypeError, r"offset is a str; pass a tensor"),
    ],
)
def test_a_map_that_does_not_fit_is_refused(offset: object, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        sf.SoftmaxRegression(X, LABELS, 0.1, 2, offset=offset)
