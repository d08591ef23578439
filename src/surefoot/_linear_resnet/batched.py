"""Gradient descent with constant steps on many reduced networks of equal shape at once: seeds, or steps of a grid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._core.small_losses import Array
from .engine import Iterate


class Batch:
    """S iterates of equal shape, moved together; each follows exactly the recursion of ``Iterate``.

    Args:
        iterates: the starts.
        steps: their constant steps (S,).

    Raises:
        ValueError: no iterate, another number of steps, or shapes that differ.
    """

    def __init__(self, iterates: Sequence[Iterate], steps: Sequence[float]) -> None:
        if not iterates or len(iterates) != len(steps):
            raise ValueError(
                f"iterates are {len(iterates)} and steps {len(steps)}; pass one step for each of at least one iterate"
            )
        shapes = {(i.inputs.shape, i.targets.shape, i.A.shape, i.B.shape, i.W.shape) for i in iterates}
        if len(shapes) > 1:
            raise ValueError(f"iterates have different shapes {sorted(shapes)}; batch those of equal shape")
        first, self.targets, self.B, W = (
            np.stack(arrays) for arrays in zip(*((i.A @ i.inputs, i.targets, i.B, i.W) for i in iterates), strict=True)
        )
        depth = W.shape[1]
        self.W = np.ascontiguousarray(W.swapaxes(0, 1))  # (L, S, q, q): a layer of all networks is contiguous
        self.steps = np.asarray(steps, dtype=np.float64)[:, None, None]
        self._forward = np.empty((depth + 1, *first.shape))
        self._forward[0] = first
        self._eye = np.eye(W.shape[-1])

    def gaps(self) -> Array:
        """Gaps (S,) of the current iterates."""
        for layer, W in enumerate(self.W):
            np.matmul(W + self._eye, self._forward[layer], out=self._forward[layer + 1])
        self.residual = self.B @ self._forward[-1] - self.targets
        return 0.5 * (self.residual**2).sum((1, 2))

    def move(self) -> None:
        """One step of every network; call ``gaps`` first."""
        backward = self.B
        for layer in range(len(self.W) - 1, -1, -1):
            P = self.W[layer] + self._eye
            gradient = backward.swapaxes(1, 2) @ (self.residual @ self._forward[layer].swapaxes(1, 2))
            self.W[layer] -= self.steps * gradient
            backward = backward @ P
