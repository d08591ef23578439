"""Losses on NumPy arrays of the size of W.

Along a run everything but a softmax pass is arithmetic on matrices of a few dozen rows, where a PyTorch call costs several
times the work. The step rules, audits and the Gram engine therefore use these; W comes back from the device once an iteration.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

Array = np.ndarray


class SmallLoss(Protocol):
    """A loss of W (n, m) given as a float64 array."""

    smoothness: float

    def gap(self, W: Array) -> float:
        """ℓ(W) - ℓ*."""
        ...

    def gradient(self, W: Array) -> Array:
        """∇ℓ(W) (n, m)."""
        ...


class SmallQuadratic:
    """½‖𝒳(W - W*)‖² with 𝒳W = design @ W, or design @ vec(W).

    Args:
        design: (r, n), or (r, nm) with ``vectorised``.
        optimum: W* (n, m).
        vectorised: whether 𝒳 acts on vec(W).
        smoothness: K.
    """

    def __init__(self, design: Array, optimum: Array, vectorised: bool, smoothness: float) -> None:
        self.design, self.optimum, self.vectorised, self.smoothness = design, optimum, vectorised, smoothness

    def image(self, W: Array) -> Array:
        """𝒳W."""
        return self.design @ (W.reshape(-1) if self.vectorised else W)

    def gap(self, W: Array) -> float:
        """½‖𝒳(W - W*)‖²."""
        E = self.image(W - self.optimum)
        return 0.5 * float(np.vdot(E, E))

    def gradient(self, W: Array) -> Array:
        """𝒳ᵀ𝒳(W - W*)."""
        return (self.design.T @ self.image(W - self.optimum)).reshape(self.optimum.shape)
