"""Infinite-depth ReLU networks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from enclosed import Array, Stored, certified

import surefoot as sf
from surefoot._implicit import choices
from surefoot._implicit.choices import measure
from surefoot_check.implicit import exact_fit, local
from surefoot_check.implicit import spectral as implicit_spectral
from surefoot_check.implicit.quantities import enclosed
from surefoot_check.problems import Samples

Arrays = dict[str, Array]


def shared(name: str) -> Callable[..., dict[str, tuple[float, float]]] | None:
    """Where all of them are enclosed."""
    return enclosed


def _drawn(seed: int, N: int = 3, d: int = 3, m: int = 6, p: int = 2, contraction: float = 0.6) -> Arrays:
    g = np.random.default_rng(seed)
    shapes = {"X": (N, d), "Y": (N, p), "W": (d, m), "A": (m, m), "b": (m, p)}
    arrays: Arrays = {name: g.standard_normal(shape) for name, shape in shapes.items()}
    return arrays | _gamma(arrays["A"], contraction)


def _gamma(A: Array, contraction: float) -> Arrays:
    return {"gamma": np.array(contraction / np.linalg.norm(A, 2))}


def _scaled(scale: float) -> Arrays:
    """At a large scale, from b = 0, the theorems hold, that of the paper last."""
    arrays = _drawn(3, p=1)
    arrays |= {"W": arrays["W"] * scale, "A": np.eye(6) * scale, "b": np.zeros((6, 1)), "gamma": np.array(0.3 / scale)}
    return arrays


def _graded() -> Arrays:
    """Rows and units of sizes from 1 to 1e-6."""
    arrays = _drawn(4)
    sizes = 10.0 ** -np.arange(0.0, 6.5, 3.0)
    return arrays | {"X": arrays["X"] * sizes[:, None], "W": arrays["W"] * 10.0 ** -np.arange(6.0)}


def _sized(scale: float, seed: int) -> Arrays:
    """Samples and first weights of this size."""
    return {name: array * scale if name in "XYW" else array for name, array in _drawn(seed).items()}


def _nearly_parallel() -> Arrays:
    """Two rows that differ by 1e-7: the features have a small singular value."""
    arrays = _drawn(5)
    X = arrays["X"].copy()
    X[1] = X[0] + 1e-7 * X[2]
    return arrays | {"X": X}


def _tied() -> Arrays:
    """Multiple singular values everywhere."""
    eye = np.eye(3)
    return {
        "X": eye,
        "Y": np.ones((3, 1)),
        "W": np.hstack([eye, -eye]),
        "A": -np.eye(6),
        "b": np.zeros((6, 1)),
        "gamma": np.array(0.5),
    }


def _nearly_dead() -> Arrays:
    """Units that are active on one row only, and hardly there."""
    arrays = _drawn(6)
    W = -np.abs(arrays["W"])
    X = np.abs(arrays["X"])
    W[:, 0], W[0, 1:4] = [1.0, 1.0, 1.0], 1e-9
    return arrays | {"X": X * np.array([[1.0], [1.0], [-1e-4]]), "W": W, "A": arrays["A"]}


def _kinks() -> Arrays:
    """XW and the argument of relu have entries that are exactly 0."""
    X = np.array([[1.0, -1.0, 0.0], [2.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    W = np.array([[1.0, 1.0, 0.0, 2.0, 0.0, 1.0], [1.0, 0.0, 1.0, 2.0, 0.0, -1.0], [0.0, 1.0, -1.0, 1.0, 0.0, 1.0]])
    A = np.diag([0.0, 0.0, 0.5, 0.0, 1.0, -1.0])
    A[1, 0], A[3, 2] = -1.0, -0.5
    return {"X": X, "Y": np.eye(3)[:, :1], "W": W, "A": A, "b": np.ones((6, 1)) / 8, "gamma": np.array(0.5)}


def _not_converged() -> Arrays:
    """All units are active and A is orthogonal: so near 1, the iteration is far from its end when it is stopped."""
    arrays = {name: np.abs(array) for name, array in _drawn(12).items()}
    return arrays | {"A": np.roll(np.eye(6), 1, axis=1), "gamma": np.array(0.9995)}


def families() -> dict[str, Callable[[], Arrays]]:
    """Samples and weights by name."""
    return {
        "random": lambda: _drawn(0),
        "one output": lambda: _drawn(1, p=1, m=8),
        "large scale": lambda: _scaled(1e1),
        "very large scale": lambda: _scaled(1e7),
        "graded": _graded,
        "nearly parallel rows": _nearly_parallel,
        "tied": _tied,
        "nearly dead units": _nearly_dead,
        "kinks": _kinks,
        "contraction near 1": lambda: _drawn(7, contraction=0.9995),
        "not converged": _not_converged,
        "no contraction": lambda: _drawn(8, contraction=1.0001),
        "too narrow": lambda: _drawn(9, N=4, m=3),
        "tiny": lambda: _sized(1e-9, 10),
        "huge": lambda: _sized(1e9, 11),
    }


def _fitted(seed: int, p: int, error: float, **shape: Any) -> Arrays:
    """Targets that the network nearly fits."""
    arrays = _drawn(seed, p=p, **shape)
    X, W, A, b = (torch.from_numpy(arrays[name]) for name in "XWAb")
    outputs = sf.nn.ImplicitReLU(W, A, b, float(arrays["gamma"]))(X).detach().numpy().reshape(len(X), p)
    return arrays | {"Y": outputs + error * np.random.default_rng(seed).standard_normal((len(X), p))}


def near_a_fit() -> dict[str, Callable[[], Arrays]]:
    """Those of the theorems that speak of a fit nearby."""
    return {
        "near a fit": lambda: _fitted(20, 2, 1e-6),
        "near a fit, one output": lambda: _fitted(21, 1, 1e-5, m=8),
        "near a fit, three outputs": lambda: _fitted(22, 3, 1e-7, N=2),
        "near a fit, contraction near 1": lambda: _fitted(23, 1, 1e-9, contraction=0.99),
        "at a fit": lambda: _fitted(24, 1, 0.0),
    }


def _around(first: float, last: float, values: list[float]) -> Arrays:
    """Samples whose features are orthogonal, of squared norms ``first``, ``values`` and ``last``."""
    m = len(values) + 2
    # Z = Φ + γZ/2 = Φ/(1 - γ/2)
    norms = 0.75 * np.sqrt([first, *values, last])
    return {
        "X": np.diag(norms),
        "Y": np.linspace(1.0, 2.0, m)[:, None],
        "W": np.eye(m),
        "A": np.eye(m) / 2,
        "b": np.zeros((m, 1)),
        "gamma": np.array(0.5),
    }


def _between_nodes(index: int) -> Arrays:
    """Eigenvalues of the features in the middle between two of the 128 nodes, each in the hat functions of both."""
    first, last = 1.0, 1e4
    middles = [first * (last / first) ** ((j + 0.5) / 127) for j in range(1 + 16 * index, min(16 * index + 17, 126), 2)]
    return _around(first, last, middles)


def _measured(arrays: Arrays, nodes: tuple[float, float] | None = None) -> Stored:
    """What a certificate of ``implicit/spectral`` publishes of the arrays, for its own nodes or for given ends of them."""
    problem, weights = ({name: arrays[name] for name in names} for names in (("X", "Y"), ("W", "A", "b", "gamma")))
    with ExitStack() as stack:
        if nodes is not None:
            stack.enter_context(patch.object(choices, "nodes", lambda _: nodes))
        base = measure(Samples(problem["X"], problem["Y"]), weights, implicit_spectral.THEOREM)
    return Stored(implicit_spectral.THEOREM.id, "samples", problem, weights, base)


def instances(theorem: str) -> dict[str, Callable[[], Stored]]:
    """Every family for every theorem; for that of the spectrum, certified in full and as ``sf.certify`` measures it."""

    def make(build: Callable[[], Arrays]) -> Stored:
        arrays = build()
        X, Y, W, A, b = (torch.from_numpy(arrays[name]) for name in "XYWAb")
        return certified(sf.nn.ImplicitReLU(W, A, b, float(arrays["gamma"])), sf.SquaredLoss(X, Y), theorem)

    every = families()
    if theorem in (local.THEOREM.id, exact_fit.THEOREM.id):
        every |= near_a_fit()
    if theorem == exact_fit.THEOREM.id:  # of which but one quantity is not also the other's
        every = {name: build for name, build in every.items() if "fit" in name or name in ("random", "kinks")}
    builders = {name: lambda b=build: make(b) for name, build in every.items()}
    if theorem != implicit_spectral.THEOREM.id:
        return builders
    # evaluating this theorem takes long and changes nothing of what is measured
    quick: dict[str, Callable[[], Stored]] = {
        name: lambda b=build: _measured(b()) for name, build in families().items() if name != "large scale"
    }
    quick |= {f"between nodes, {k}": lambda k=k: _measured(_between_nodes(k)) for k in range(8)}
    quick["narrow nodes"] = lambda: _measured(_around(1.0, 9.0, [2.0, 3.0]), (1.0, 7.0))
    return builders | quick
