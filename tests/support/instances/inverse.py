"""Learned matrix inverses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from enclosed import Array, Stored, stored

import surefoot as sf

Arrays = dict[str, Array]


def _drawn(seed: int, layers: int, terms: int, lower: float, upper: float, spread: float = 0.3) -> Arrays:
    g = np.random.default_rng(seed)
    return {
        "interval": np.array([lower, upper]),
        "C": 1.0 + spread * g.standard_normal((layers, terms)),
    }


def _ones(layers: int, terms: int, lower: float, upper: float) -> Arrays:
    return {"interval": np.array([lower, upper]), "C": np.ones((layers, terms))}


def _chebyshev() -> Arrays:
    """All extremes of a layer are of one size."""
    net = sf.nn.LearnedInverse.chebyshev(3, 3, (0.05, 1.0))
    return {"interval": np.array([0.05, 1.0]), "C": net.coefficients.detach().numpy().copy()}


def families() -> dict[str, Callable[[], Arrays]]:
    """Interval and coefficients by name."""
    return {
        "random": lambda: _drawn(0, 3, 4, 0.05, 1.6),
        "random, one layer": lambda: _drawn(1, 1, 6, 0.3, 1.2),
        "as many layers as may be": lambda: _drawn(7, 64, 2, 0.2, 1.5, 0.1),
        "one term": lambda: _drawn(2, 4, 1, 0.2, 1.1),
        "ones": lambda: _ones(3, 3, 0.1, 1.5),
        "ones, tied ends": lambda: _ones(2, 2, 0.5, 1.5),
        "ones, a kink in the middle": lambda: _ones(4, 3, 0.5, 1.0),
        "nearly ones": lambda: {
            **_ones(2, 3, 0.2, 1.3),
            "C": np.ones((2, 3)) + np.array([[0.0, 0.0, 2.0**-52], [0.0] * 3]),
        },
        "Chebyshev": lambda: _chebyshev(),
        "ill-conditioned": lambda: _ones(6, 4, 1e-9, 1.0),
        "near the end of convergence": lambda: _ones(2, 3, 1e-3, 2.0 - 1e-9),
        "narrow": lambda: _drawn(3, 2, 3, 1.0, 1.03),
        "beyond convergence": lambda: _ones(3, 3, 0.5, 3.0),
        "huge coefficients": lambda: _drawn(4, 3, 3, 0.1, 1.9, 1e6),
        "tiny": lambda: _drawn(5, 2, 3, 1e-14, 1e-12),
        "huge": lambda: _drawn(6, 2, 2, 1e6, 1e9),
    }


def instances(theorem: str) -> dict[str, Callable[[], Stored]]:
    """Every family for every theorem that is certified."""

    def make(build: Callable[[], Arrays]) -> Stored:
        problem, weights = build(), {}
        weights["C"] = problem.pop("C")
        net = sf.nn.LearnedInverse(torch.from_numpy(weights["C"]))
        certificate = sf.certify(net, interval=tuple(problem["interval"].tolist()), theorem=theorem)
        return stored(certificate, *({k: torch.from_numpy(v) for k, v in each.items()} for each in (problem, weights)))

    return {name: lambda b=build: make(b) for name, build in families().items()}
