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
    assert "its logits X W0 are stored" in str(again)
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


Y = normal(20, 2, seed=4)
OPTIONS: dict[str, dict[str, object]] = {
    "alone": {},
    "a ridge": {"l2": 0.3},
    "weights": {"sample_weight": torch.linspace(0.0, 2.0, 20, dtype=torch.float64)},
    "an intercept": {"intercept": True},
    "everything": {"l2": 0.3, "intercept": True, "sample_weight": torch.linspace(0.5, 2.0, 20, dtype=torch.float64)},
}


@pytest.mark.parametrize("rows", [20, 2], ids=["tall", "two rows"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
def test_the_squared_loss_is_that_of_the_targets_that_remain(options: dict[str, object], rows: int) -> None:
    options = {k: v[-rows:] if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    X_, Y_ = X[-rows:], Y[-rows:]
    loss = sf.SquaredLoss(X_, Y_, offset=FIXED, **options)  # type: ignore[arg-type]
    other = sf.SquaredLoss(X_, Y_ - X_ @ FIXED, **options)  # type: ignore[arg-type]
    assert loss.optimal_value == pytest.approx(other.optimal_value, rel=1e-12, abs=1e-13)
    torch.testing.assert_close(loss.optimum, other.optimum, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(loss.intercept(FIXED), other.intercept(FIXED), rtol=1e-11, atol=1e-11)
    assert loss.value(FIXED) == pytest.approx(other.value(FIXED), rel=1e-12)
    assert (loss.smoothness, loss.strong_convexity) == (other.smoothness, other.strong_convexity)
    assert loss.cut is not None and "the targets left are Y - X W0" in loss.cut.text
    assert other.cut is None or "W0" not in other.cut.text


def test_an_adapter_of_a_trained_map_learns_only_what_is_missing(tmp_path: Path) -> None:
    """Beside the minimiser of other data, the sum of both maps is the minimiser of these."""
    loss, plain = sf.SquaredLoss(X, Y, offset=FIXED), sf.SquaredLoss(X, Y)
    net = sf.nn.TwoLayerLinear.gaussian(3, 2, 12, seed=3)
    run = sf.descend(net, loss, tolerance=1e-12, directory=tmp_path / "run", progress=False)
    assert run.certified and run.audit().holds and "the targets left are Y - X W0" in str(run.certificate)
    assert check(tmp_path / "run").outcome is Outcome.ACCEPT
    torch.testing.assert_close(FIXED + net.end_to_end().detach(), plain.optimum, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="loss has offset, which only networks take that are linear maps"):
        sf.certify(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).double(), loss)


def test_blocks_take_a_fixed_map_too() -> None:
    blocks = [(X[:7], Y[:7]), (X[7:], Y[7:])]
    loss = sf.SquaredLoss.from_blocks(blocks, offset=FIXED)
    torch.testing.assert_close(loss.optimum, sf.SquaredLoss(X, Y, offset=FIXED).optimum)
    with pytest.raises(ValueError, match=r"offset has shape \(2, 3\); W0 of X \(W0 \+ W\) must have \(3, 2\)"):
        sf.SquaredLoss.from_blocks(blocks, offset=FIXED.T)
