"""Learned step sizes: batches of least squares, LASSO and logistic regression, from any iterate."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import step_sizes_reference as reference
import torch
from enclosed import Array, Stored, stored

Batch = dict[str, Array]
Made = tuple[Batch, Batch]
"""The arrays of the problems, and the weights."""

SMOOTH, PENALISED = ("least-squares-batch",), ("lasso-batch", "logistic-batch")
KINDS = {
    "step-sizes/monotone": SMOOTH,
    "step-sizes/rate": SMOOTH,
    "step-sizes/prox-monotone": PENALISED,
    "step-sizes/prox-rate": PENALISED,
}


def made(M: Array, seed: int, kind: str, lam: float = 0.3, l2: float = 0.05, x: float = 1.0) -> Made:
    """Problems with these matrices, of targets and from an iterate of a common size."""
    g = np.random.default_rng(seed)
    count, rows, columns = M.shape
    targets, start = g.standard_normal((count, rows)), x * g.standard_normal((count, columns))
    arrays: Batch = {"M": M}
    if kind == "logistic-batch":
        arrays |= {"labels": np.where(targets > 0.0, 1.0, -1.0), "l2": np.full(count, l2)}
    else:
        arrays["Y"] = targets
    if kind != "least-squares-batch":
        arrays["lam"] = lam * np.arange(1.0, count + 1.0)
    arrays = reference.with_minimisers(arrays)
    return arrays, reference.weights(arrays, 0.8, 1.9, start)


def normal(*shape: int, seed: int) -> Array:
    """Gaussian entries."""
    return np.random.default_rng(seed).standard_normal(shape)


def scaled(by: float, kind: str) -> Made:
    """Matrix, targets and penalties of one size; the solution has size 1."""
    arrays, _ = made(normal(2, 4, 2, seed=1), 1, kind)
    factors = {"M": by, "Y": by, "lam": by * by, "l2": by * by}
    arrays = reference.with_minimisers({name: value * factors.get(name, 1.0) for name, value in arrays.items()})
    return arrays, reference.weights(arrays, 0.8, 1.9, normal(2, 2, seed=2))


def at_the_minimiser(kind: str) -> Made:
    """A gap that floats hardly see."""
    arrays, weights = made(normal(2, 4, 2, seed=3), 3, kind)
    return arrays, {**weights, "x": arrays["optimum"] + 1e-9}


def kink(kind: str) -> Made:
    """A second coordinate that is 0 at the minimiser with a derivative of exactly lam."""
    arrays = {"M": np.array([[[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]])}
    if kind == "logistic-batch":
        # each label counts ½ at x = 0: the derivatives are ½ and 1
        arrays |= {"labels": np.ones((1, 3)), "l2": np.array([0.25]), "lam": np.array([1.0])}
    else:
        arrays |= {"Y": np.array([[2.0, 0.25, 1.0]])}
    if kind == "lasso-batch":
        arrays["lam"] = np.array([0.5])
    arrays = reference.with_minimisers(arrays)
    return arrays, reference.weights(arrays, 1.0, 1.5, np.array([[0.5, -1.0]]))


def one_beta(kind: str) -> Made:
    """Steps of both problems are measured in the larger constant."""
    arrays, weights = made(normal(2, 3, 2, seed=15), 15, kind)
    return arrays, {**weights, "beta": np.full(2, weights["beta"].max())}


def penalty_alone(kind: str) -> Made:
    """Hardly any loss, so that the bound of the distances by lam is attained."""
    arrays, _ = made(1e-9 * normal(1, 3, 1, seed=4), 4, kind, lam=1.0, l2=0.0)
    if kind != "logistic-batch":
        arrays["Y"] *= 1e-9
    arrays = reference.with_minimisers(arrays)
    return arrays, reference.weights(arrays, 1.0, 1.9, np.array([[3.0]]))


def curvature_alone(kind: str) -> Made:
    """No lam, so that the bound of the distances by the curvature is attained or nearly."""
    return made(1.0 + normal(1, 4, 2, seed=5), 5, kind, lam=0.0, l2=50.0)


def with_zeros(kind: str) -> Made:
    """A row and a column of zeros, and a second problem that is all zeros."""
    M = normal(2, 4, 3, seed=6)
    M[0, 1], M[0, :, 2] = 0.0, 0.0
    arrays, weights = made(M, 6, kind)
    arrays["M"][1], arrays["optimum"][1] = 0.0, 0.0
    return arrays, weights


def deficient(kind: str) -> Made:
    """Two equal columns."""
    M = normal(2, 4, 2, seed=7)
    M[0, :, 1] = M[0, :, 0]
    return made(M, 7, kind)


def poor_witness(kind: str) -> Made:
    """Stored minimisers that are off by a thousandth."""
    arrays, weights = made(normal(2, 4, 2, seed=8), 8, kind)
    return {**arrays, "optimum": arrays["optimum"] * 1.001 + 1e-3}, weights


def families() -> dict[str, Callable[[str], Made]]:
    """Problems and weights by name, for a kind of problems."""
    square = np.diag([1.0, -1.0])[None] * np.array([2.0, 0.5])[:, None, None]
    return {
        "random": lambda kind: made(normal(3, 4, 2, seed=0), 0, kind),
        "wide": lambda kind: made(normal(2, 2, 3, seed=9), 9, kind),
        "one entry": lambda kind: made(normal(1, 1, 1, seed=10), 10, kind),
        "graded columns": lambda kind: made(normal(2, 4, 2, seed=11) * np.array([1.0, 1e-4]), 11, kind),
        "nearly parallel columns": lambda kind: made(
            normal(1, 4, 1, seed=12) + 1e-3 * normal(1, 4, 2, seed=13), 12, kind
        ),
        "tied": lambda kind: made(square, 14, kind),
        "one common beta": one_beta,
        "far from the minimiser": lambda kind: made(normal(2, 4, 2, seed=16), 16, kind, x=1e4),
        "at the minimiser": at_the_minimiser,
        "kink": kink,
        "penalty alone": penalty_alone,
        "curvature alone": curvature_alone,
        "zeros": with_zeros,
        "deficient": deficient,
        "poor witness": poor_witness,
        "tiny": lambda kind: scaled(1e-6, kind),
        "huge": lambda kind: scaled(1e6, kind),
    }


@cache
def built(name: str, kind: str) -> Made:
    """The arrays of a family."""
    return families()[name](kind)


def instances(theorem: str) -> dict[str, Callable[[], Stored]]:
    """Every family for every theorem that is about its kind of problems."""

    def make(name: str, kind: str) -> Stored:
        arrays, weights = built(name, kind)
        certificate = reference.certificate(theorem, kind, arrays, weights)
        return stored(certificate, *({k: torch.from_numpy(v) for k, v in each.items()} for each in (arrays, weights)))

    pairs = [(name, kind) for kind in KINDS.get(theorem, ()) for name in families()]
    return {f"{kind}, {name}": lambda n=name, k=kind: make(n, k) for name, kind in pairs}
