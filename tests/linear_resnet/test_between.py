"""Norms of the products between two layers: measured only where the product of the layers' norms says too little."""

from __future__ import annotations

import numpy as np
import pytest

from surefoot_check.linear_resnet import measuring as rigorous

Array = np.ndarray


def between(W: Array) -> Array:
    m = W.shape[1]
    return rigorous.measure({"A": np.eye(m), "B": np.eye(m), "W": W}, np.eye(m)).between


def exact(W: Array) -> Array:
    depth, m = len(W), W.shape[1]
    result = np.zeros((depth, depth))
    for i in range(depth):
        product = np.eye(m)
        for j in range(i + 1, depth):
            result[i, j] = np.linalg.norm(product, 2)
            product = (W[j] + np.eye(m)) @ product
    return result


def forbidden(P: Array, rounding: Array, p: Array) -> Array:
    raise AssertionError("products were measured")


@pytest.mark.parametrize("size", [0.0, 1e-3, 2.0])
def test_layers_that_stretch_alike_are_not_multiplied(monkeypatch: pytest.MonkeyPatch, size: float) -> None:
    """Symmetric layers with the same first eigenvector: the norms multiply, and L² products would only cost time."""
    monkeypatch.setattr(rigorous, "_norms_of_products", forbidden)
    g = np.random.default_rng(0)
    Q = np.linalg.qr(g.standard_normal((6, 6)))[0]
    scales = [np.append(1.0, g.uniform(0.0, 0.9, 5)) for _ in range(9)]
    W = np.stack([size * Q @ np.diag(scale) @ Q.T for scale in scales])
    found, wanted = between(W), exact(W)
    assert (found >= wanted * (1.0 - 1e-12)).all() and (found <= 1.04 * wanted + 1e-149).all()


@pytest.mark.parametrize("depth", [3, 4, 12])
def test_norms_that_do_not_multiply_are_measured(depth: int) -> None:
    """I + 2uvᵀ with v ⊥ u: the norm of a product grows linearly in its length, the product of the norms exponentially."""
    W = np.zeros((depth, 4, 4))
    W[:, 0, 1] = 2.0
    found, wanted = between(W), exact(W)
    assert (found >= wanted * (1.0 - 1e-12)).all() and (found <= 1.05 * wanted + 1e-149).all()
    if depth == 12:
        assert wanted[0, -1] < 1e-2 * np.linalg.norm(W[0] + np.eye(4), 2) ** 10


def test_products_that_underflow_are_bounded() -> None:
    W = np.stack([1e-200 * np.ones((3, 3)) - np.eye(3)] * 12)
    found = between(W)
    assert (found[np.triu_indices(12, 1)] > 0.0).all() and np.isfinite(found).all()
