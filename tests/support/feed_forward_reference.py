"""Feed-forward networks in plain numpy, with the activations that the runs of the corpora have: tanh, leaky ReLU, none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from independent import feed_forward as independent
from independent.feed_forward_sharper import sharper_lipschitz
from independent.reference import exact
from mpmath import mp, mpf

Array = np.ndarray
Arrays = Mapping[str, Array]
TANH, LEAKY = 1, 8
"""Codes in files."""
BENDS = {TANH: 4.0 / 27.0**0.5}
"""Largest second derivatives; others have none between kinks."""
_SHARPER: dict[tuple[object, ...], float] = {}


def norm(A: Array) -> float:
    """Spectral norm."""
    return float(np.linalg.norm(A, 2))


@dataclass(frozen=True)
class Network:
    """A network at weights of which all are trained."""

    problem: Arrays
    weights: Arrays

    @cached_property
    def layers(self) -> list[tuple[Array, Array, Array]]:
        """Of each layer its inputs, with ones where there is a bias; the pre-activations; and W."""
        a, found = self.problem["X"], []
        for number in range(1, len(self.problem["layers"]) + 1):
            W, b = self.weights[f"W{number}"], self.weights.get(f"b{number}")
            z = a @ W.T + (0.0 if b is None else b)
            found.append((a if b is None else np.hstack([a, np.ones((len(a), 1))]), z, W))
            a = self._activated(number, z)
        return found

    def _kind(self, number: int) -> tuple[int, float]:
        """Code, and slope below 0, of an activation."""
        code = int(self.problem["layers"][number - 1, 2])
        assert code in (0, TANH, LEAKY)
        return code, float(self.problem["settings"][number - 1, 0]) if code == LEAKY else 1.0

    def _activated(self, number: int, z: Array) -> Array:
        code, below = self._kind(number)
        return np.tanh(z) if code == TANH else np.where(z > 0.0, z, below * z)

    def _slopes(self, number: int) -> Array:
        (code, below), z = self._kind(number), self.layers[number - 1][1]
        return 1.0 - np.tanh(z) ** 2 if code == TANH else np.where(z > 0.0, 1.0, below)

    @property
    def gap(self) -> float:
        """½‖f - Y‖², or ½‖∇L‖² of a training objective."""
        if "objective" in self.problem:
            return 0.5 * self._gradient_squared()
        return 0.5 * float(np.linalg.norm(self.layers[-1][1] - self.problem["Y"]) ** 2)

    def _gradient_squared(self) -> float:
        decay, mean = self.problem["objective"][0]
        f = self.layers[-1][1]
        if "labels" in self.problem:
            P = np.exp(f - f.max(axis=1, keepdims=True))
            back = P / P.sum(axis=1, keepdims=True) - np.eye(f.shape[1])[self.problem["labels"]]
            back = back / (len(f) if mean else 1.0)
        else:
            back = 2.0 * (f - self.problem["Y"]) / (f.size if mean else 1.0)
        square = 0.0
        for number in range(len(self.layers), 0, -1):
            inputs, _, W = self.layers[number - 1]
            b = self.weights.get(f"b{number}")
            trained = W if b is None else np.hstack([W, b[:, None]])
            square += float(np.square(back.T @ inputs + decay * trained).sum())
            if number > 1:
                back = (back @ W) * self._slopes(number - 1)
        return square

    def quantities(self) -> dict[str, float]:
        """Those that are not of a ball; of a training objective the gap alone."""
        if "objective" in self.problem:
            return {"initial_gap": self.gap}
        k = self.problem["Y"].shape[1]
        n = self.problem["Y"].size
        back, gram = np.tile(np.eye(k), (len(self.problem["X"]), 1)), np.zeros((n, n))
        for number in range(len(self.layers), 0, -1):
            inputs, _, W = self.layers[number - 1]
            gram = gram + (back @ back.T) * np.kron(inputs @ inputs.T, np.ones((k, k)))
            if number > 1:
                back = (back @ W) * np.repeat(self._slopes(number - 1), k, axis=0)
        values = np.linalg.eigvalsh(gram)
        least, largest = float(np.sqrt(max(values[0], 0.0))), float(np.sqrt(values[-1]))
        found = {"initial_gap": self.gap, "sigma_min_J": least, "norm_J": largest}
        if len(gram) > sum(W.size for W in self.weights.values()):
            return found
        r = (self.layers[-1][1] - self.problem["Y"]).reshape(-1)
        return {**found, "newton_step": float(np.sqrt(r @ np.linalg.pinv(gram) @ r))}

    def _sharper(self, radius: float) -> float:
        """Λ row by row; most changes of a run leave its arrays, which are evaluated once."""
        key = radius, *((name, A.tobytes()) for name, A in sorted({**self.problem, **self.weights}.items()))
        if key not in _SHARPER:
            with mp.workdps(30):
                exactly = {name: exact(W) for name, W in self.weights.items()}
                at = independent.Network(self.problem, exactly)
                _SHARPER[key] = float(sharper_lipschitz(at, mpf(radius)))
        return _SHARPER[key]

    def on_ball(self, radius: float) -> dict[str, float]:
        """Λ, and where there are kinks their margin; of a training objective nothing."""
        if "objective" in self.problem:
            return {}
        count = len(self.layers)
        c, r, M, margins = np.zeros(count), np.zeros(count), np.zeros((count, count)), []
        reach, slope, bend = np.zeros(len(self.problem["X"])), 0.0, 0.0
        for index, (inputs, z, W) in enumerate(self.layers):
            rows, unit = np.linalg.norm(inputs, axis=1), np.eye(count)[index]
            gain, column = slope * (norm(W) + radius), float(np.linalg.norm(W, axis=0).max()) + radius
            M = gain * M + column * bend * np.outer(r, c) + 2.0 * slope * np.outer(c, unit)
            A, alpha = (x + slope * float(np.linalg.norm(y)) * radius for x, y in ((norm(inputs), c), (rows.max(), r)))
            c, r = gain * c + A * unit, gain * r + alpha * unit
            code, below = self._kind(index + 1)
            if code == LEAKY:
                steep = np.outer(slope * reach, np.linalg.norm(W, axis=1) + radius)
                margins.append(np.abs(z) / (radius * np.hypot(steep, rows[:, None])))
            reach = np.hypot(gain * reach, rows)
            slope, bend = max(1.0, abs(below)), BENDS.get(code, 0.0)
        first = float(np.linalg.eigvalsh(0.5 * (M + M.T))[-1])
        found = {"lipschitz_J": min(first, self._sharper(radius))}
        return found | ({"kink_margin": float(min(m.min() for m in margins))} if margins else {})
