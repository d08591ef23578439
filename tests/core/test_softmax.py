"""Softmax regression: its constants, its minimiser by both ways, and gaps near and far from it."""

from __future__ import annotations

import math

import pytest
import torch
from draws import normal

import surefoot as sf
from surefoot._core import softmax as softmax_module

F64 = torch.float64


X, LABELS = normal(30, 4), torch.arange(30) % 3


def test_softmax_constants() -> None:
    loss = sf.SoftmaxRegression(X, LABELS, 0.1)
    assert loss.smoothness == pytest.approx(float(torch.linalg.eigvalsh(X.T @ X)[-1]) / 60.0 + 0.1, rel=1e-13)
    assert loss.strong_convexity == 0.1


def test_both_ways_to_the_softmax_minimiser_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    newton = sf.SoftmaxRegression(X, LABELS, 0.01)
    by_newton = newton.optimum
    monkeypatch.setattr(softmax_module, "DENSE_NEWTON", 0)
    lbfgs = sf.SoftmaxRegression(X, LABELS, 0.01)
    # the gradient of the mean over 30 rows, rounded once a product and at a rounded W
    rounding = (
        4.0 * torch.finfo(X.dtype).eps * (float(X.norm()) / 30**0.5 + newton.smoothness * float(by_newton.norm()))
    )
    residuals = [float(loss.gradient(loss.optimum).norm()) for loss in (newton, lbfgs)]
    assert max(residuals) < rounding
    assert float((lbfgs.optimum - by_newton).norm()) <= (sum(residuals) + 2.0 * rounding) / newton.strong_convexity
    assert newton.gap(lbfgs.optimum) <= lbfgs.gap_resolution


@pytest.mark.parametrize(("scale", "l2"), [(1.0, 1e-10), (1e4, 1e-1), (1e4, 1e-9), (1e-4, 1e-6), (1.0, 1e4)])
def test_softmax_minimiser_of_badly_conditioned_problems(scale: float, l2: float) -> None:
    labels = (X[:, 0] > 0).long()  # separable: without the penalty there is no minimiser
    loss = sf.SoftmaxRegression(scale * X, labels, l2)
    residual = float(loss.gradient(loss.optimum).norm())
    assert residual < 1e-13 * max(scale, l2 * float(loss.optimum.norm()), 1.0)
    assert loss.gap_resolution >= residual**2 / (2.0 * l2)


def test_softmax_gap_far_from_the_optimum_does_not_overflow() -> None:
    loss = sf.SoftmaxRegression(1e4 * X, LABELS, 0.1)
    W = normal(4, 3, seed=42)
    gap = loss.gap(W)
    assert math.isfinite(gap)
    assert gap == pytest.approx(loss.value(W) - loss.optimal_value, rel=1e-12)


def test_softmax_without_penalty_has_no_strong_convexity() -> None:
    loss = sf.SoftmaxRegression(X, LABELS, 0.0)
    W = normal(4, 3, seed=43)
    assert loss.strong_convexity == 0.0
    assert loss.optimal_value == 0.0
    assert (
        loss.gap(W)
        == loss.value(W)
        == pytest.approx(float(torch.nn.functional.cross_entropy(X @ W, LABELS)), rel=1e-13)
    )


def test_softmax_classes_may_exceed_the_largest_label() -> None:
    loss = sf.SoftmaxRegression(X, LABELS, 0.1, classes=5)
    assert loss.shape == (4, 5)
    assert float(loss.gradient(loss.optimum).norm()) < 1e-13


def test_labels_that_cannot_be_class_indices_are_refused_before_any_allocation() -> None:
    with pytest.raises(ValueError, match="renumber the labels"):
        sf.SoftmaxRegression(torch.eye(3, dtype=torch.float64), torch.tensor([0, 1, 10**9]), 0.1)
