"""Small networks in extended precision (``np.longdouble``), which shares no code with what is tested."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

Long = np.ndarray
"""Of ``np.longdouble``."""
ONE = np.longdouble(1)
STEP = ONE / 10**5
"""Of central differences, which err by its square."""


def long(A: object) -> Long:
    """The array in extended precision."""
    return np.asarray(A, dtype=np.longdouble)


def _sigmoid(z: Long) -> Long:
    return ONE / (ONE + np.exp(-z))


def _density(z: Long) -> Long:
    return np.exp(-z * z / 2) / np.sqrt(2 * long(np.pi) + long(1.2246467991473532e-16) * 2)


def _normal(z: Long) -> Long:
    """½ + density(z)(z + z³/3 + z⁵/15 + ...), of positive terms; where |z| is large, 0 or 1 up to 1e-19."""
    inside = np.clip(z, -9, 9)
    term, total = inside.copy(), inside.copy()
    for n in range(1, 160):
        term = term * inside * inside / (2 * n + 1)
        total = total + term
    return ONE / 2 + _density(inside) * total


@dataclass(frozen=True)
class Activation:
    """φ and φ', and where φ' jumps."""

    value: Callable[[Long], Long]
    slope: Callable[[Long], Long]
    kinks: tuple[float, ...] = ()


def leaky(slope: float) -> Activation:
    """Of this slope below 0."""
    return Activation(lambda z: np.where(z > 0, z, slope * z), lambda z: np.where(z > 0, ONE, long(slope)), (0.0,))


def clipped(low: float, high: float) -> Activation:
    """The identity between these."""
    return Activation(lambda z: np.clip(z, low, high), lambda z: long((z > low) & (z < high)), (low, high))


ACTIVATIONS = {
    "Tanh": Activation(np.tanh, lambda z: 1 - np.tanh(z) ** 2),
    "Sigmoid": Activation(_sigmoid, lambda z: _sigmoid(z) * _sigmoid(-z)),
    "Softplus": Activation(lambda z: np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z))), _sigmoid),
    "SiLU": Activation(lambda z: z * _sigmoid(z), lambda z: _sigmoid(z) * (1 + z * _sigmoid(-z))),
    "GELU": Activation(lambda z: z * _normal(z), lambda z: _normal(z) + z * _density(z)),
    "ELU": Activation(
        lambda z: np.where(z > 0, z, np.expm1(np.minimum(z, 0))), lambda z: np.exp(np.minimum(z, long(0)))
    ),
    "ReLU": leaky(0.0),
    "LeakyReLU": leaky(0.01),
    "Hardtanh": clipped(-1.0, 1.0),
}
"""By the names of torch's modules with their defaults."""


class LongNetwork:
    """Dense layers: outputs (N, k) and Jacobian (N k, p) as functions of all weights in one vector.

    Args:
        X: inputs (N, d).
        shapes: of W (outputs, inputs) and b (outputs,) where there is one, layer by layer, in the order of the vector.
        names: of the activations of all layers but the last.
    """

    def __init__(self, X: Long, shapes: Sequence[tuple[int, ...]], names: Sequence[str]) -> None:
        self.X, self.shapes, self.activations = long(X), shapes, [ACTIVATIONS[name] for name in names]

    def _layers(self, theta: Long) -> list[tuple[Long, Long | None]]:
        found: list[tuple[Long, Long | None]] = []
        place = 0
        for shape in self.shapes:
            part = theta[place : place + int(np.prod(shape))].reshape(shape)
            place += part.size
            if len(shape) == 2:
                found.append((part, None))
            else:
                found[-1] = found[-1][0], part
        return found

    def forward(self, theta: Long) -> tuple[list[Long], list[Long]]:
        """Inputs of all layers and their pre-activations."""
        inputs, before = [self.X], []
        for number, (W, b) in enumerate(self._layers(theta)):
            z = inputs[-1] @ W.T + (0 if b is None else b)
            before.append(z)
            if number < len(self.activations):
                inputs.append(self.activations[number].value(z))
        return inputs, before

    def outputs(self, theta: Long) -> Long:
        """f(X) (N, k)."""
        return self.forward(theta)[1][-1]

    def jacobian(self, theta: Long) -> Long:
        """∂f/∂θ (N k, p)."""
        inputs, before = self.forward(theta)
        N, k = before[-1].shape
        back = np.broadcast_to(np.eye(k, dtype=np.longdouble), (N, k, k))
        parts: list[Long] = []
        layers = self._layers(theta)
        for number in reversed(range(len(layers))):
            W, b = layers[number]
            if b is not None:
                parts.insert(0, back.reshape(N * k, -1))
            parts.insert(0, (back[:, :, :, None] * inputs[number][:, None, None, :]).reshape(N * k, -1))
            if number:
                slopes = self.activations[number - 1].slope(before[number - 1])
                back = (back @ W) * slopes[:, None, :]
        return np.hstack(parts)

    def slope_of(self, theta: Long, number: int, row: int, unit: int) -> Long:
        """The gradient of one pre-activation of the layer of that number, from 0, by all weights."""
        step = STEP * np.eye(len(theta), dtype=np.longdouble)
        return long(
            [(self.forward(theta + s)[1][number] - self.forward(theta - s)[1][number])[row, unit] for s in step]
        )

    def pieces(self, theta: Long) -> list[Long]:
        """For each activation with kinks, how many of them each pre-activation exceeds."""
        _, before = self.forward(theta)
        return [
            sum((long(z > kink) for kink in activation.kinks), np.zeros_like(z))
            for z, activation in zip(before, self.activations, strict=False)
        ]


class LongObjective:
    """c Σ ℓ(f(x), y) + ½ decay ‖θ‖²: ½‖f - y‖² with c = 2, or with labels the cross-entropy with c = 1; a mean divides c."""

    def __init__(self, net: LongNetwork, targets: np.ndarray, decay: float, mean: bool) -> None:
        self.net, self.targets, self.decay, self.entropy = net, targets, long(decay), targets.ndim == 1
        self.scale = long(1 if self.entropy else 2) / (targets.size if mean else 1)

    def _softmax(self, f: Long) -> Long:
        E = np.exp(f - f.max(axis=1, keepdims=True))
        return E / E.sum(axis=1, keepdims=True)

    def value(self, theta: Long) -> Long:
        """L."""
        f = self.net.outputs(theta)
        if self.entropy:
            top = f.max(axis=1)
            loss = (np.log(np.exp(f - top[:, None]).sum(axis=1)) + top - f[np.arange(len(f)), self.targets]).sum()
        else:
            loss = np.square(f - long(self.targets)).sum() / 2
        return self.scale * loss + self.decay * (theta @ theta) / 2

    def gradient(self, theta: Long) -> Long:
        """∇L (p,)."""
        f = self.net.outputs(theta)
        if self.entropy:
            slope = self._softmax(f)
            slope[np.arange(len(f)), self.targets] -= 1
        else:
            slope = f - long(self.targets)
        return self.scale * (slope.reshape(-1) @ self.net.jacobian(theta)) + self.decay * theta

    def hessian(self, theta: Long) -> Long:
        """∇²L (p, p), by central differences."""
        steps = STEP * np.eye(len(theta), dtype=np.longdouble)
        H = np.array([(self.gradient(theta + step) - self.gradient(theta - step)) / (2 * STEP) for step in steps])
        return (H + H.T) / 2
