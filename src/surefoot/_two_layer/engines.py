"""The engines that move an iterate: in Gram space, and in weight space with singular values of the layers.

Gram space (exact, independent of width and rows): gradient descent on Z = [W1; W2] (n+m, h) commutes with rotations of the
hidden units. With Z = V Qᵀ, Q (h, r) orthonormal and r = min(h, n+m), it runs on V (n+m, r), whose Gram VVᵀ is that of Z. The
recursion of ZZᵀ itself would be as fast, but rounding takes it out of the positive semidefinite matrices of rank h, and near
a saddle that error grows without bound.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from .._core.completion import MatrixCompletion
from .._core.losses import LinearMapLoss
from .entries import EntriesEngine, EntriesIterate
from .iterate import OVERFLOWING, Iterate

LARGEST_GRAM = 1 << 14
"""Largest n + m for which sparse observations are filled up to a matrix: 2 GiB."""
ROTATED = 1e-12
"""Relative difference from which restored weights are not those of the checkpoint, so that the rotation differs."""


class WeightEngine:
    """Gradient descent on W1 and W2 themselves."""

    name = "weights"
    failure = None

    def __init__(self, loss: LinearMapLoss, W1: Tensor, W2: Tensor) -> None:
        self._loss = loss
        self.iterate = Iterate(loss, W1.clone(), W2.clone(), exact=True)
        self.alignment = 0.0

    @OVERFLOWING
    def move(self, eta: float) -> None:
        """One step of gradient descent; ``alignment`` becomes ⟨∇L, ∇L'⟩ of the iterate left and the one reached."""
        before = self.iterate
        self.iterate = before.next(eta)
        self.alignment = alignment(before, eta, self.iterate)

    def weights(self) -> dict[str, Tensor]:
        """W1 (n, h), W2 (m, h)."""
        return {"W1": self.iterate.W1, "W2": self.iterate.W2}

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint needs beyond the weights."""
        return {"alignment": torch.tensor(self.alignment, dtype=torch.float64), **self.iterate.state()}

    def restore(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint."""
        self.iterate = Iterate(self._loss, weights["W1"], weights["W2"], exact=True)
        self.iterate.restore(state)
        self.alignment = float(state["alignment"])


class GramEngine:
    """The same iterates, on layers rotated to width min(h, n+m)."""

    name = "gram"
    failure = None

    def __init__(self, loss: LinearMapLoss, W1: Tensor, W2: Tensor) -> None:
        self._loss = loss
        self._rotate(W1, W2)
        self.alignment = 0.0

    def _rotate(self, W1: Tensor, W2: Tensor) -> None:
        """To the iterate Z = V Qᵀ; Q stays on the device of the weights, ``None`` where they are no wider than V."""
        Z = torch.cat([W1, W2])
        self._rotation: Tensor | None = None
        if Z.shape[1] > Z.shape[0]:
            self._rotation, triangle = torch.linalg.qr(Z.T)
            Z = triangle.T
        V = Z.cpu().numpy()
        self.iterate = Iterate(self._loss, V[: len(W1)].copy(), V[len(W1) :].copy())

    @OVERFLOWING
    def move(self, eta: float) -> None:
        """One step of gradient descent; ``alignment`` becomes ⟨∇L, ∇L'⟩ of the iterate left and the one reached."""
        before = self.iterate
        self.iterate = before.next(eta)
        self.alignment = alignment(before, eta, self.iterate)

    def weights(self) -> dict[str, Tensor]:
        """W1 (n, h), W2 (m, h): V Qᵀ."""
        layers = {"W1": torch.from_numpy(self.iterate.W1), "W2": torch.from_numpy(self.iterate.W2)}
        if self._rotation is None:
            device = self._loss.device
            return {name: V.to(device) for name, V in layers.items()}
        Q = self._rotation
        return {name: V.to(Q.device) @ Q.T for name, V in layers.items()}

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint needs beyond the weights: V (the rotation is that of the constructor's weights)."""
        return {
            "alignment": torch.tensor(self.alignment, dtype=torch.float64),
            "V1": torch.from_numpy(self.iterate.W1),
            "V2": torch.from_numpy(self.iterate.W2),
            **self.iterate.state(),
        }

    def restore(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint, exactly where the rotation comes out as it did then (the same start and LAPACK)."""
        self.iterate = Iterate(self._loss, state["V1"].cpu().numpy(), state["V2"].cpu().numpy())
        scale = max(float(W.abs().max()) for W in weights.values())
        current = self.weights()
        if any(float((current[k] - W.to(current[k].device)).abs().max()) > ROTATED * scale for k, W in weights.items()):
            self._rotate(weights["W1"], weights["W2"])
        self.iterate.restore(state)
        self.alignment = float(state["alignment"])


def alignment(before: Iterate, eta: float, after: Iterate) -> float:
    """⟨∇L, ∇L'⟩ across a step η: with ∇L = (gW2, gᵀW1) and W' as above it is ⟨B - 2ηC, g'⟩."""
    return float(np.vdot(before.B - (2.0 * eta) * before.C, after.gradient))


def engine(loss: LinearMapLoss, W1: Tensor, W2: Tensor, name: str) -> Engine:
    """An engine by name at these weights; in weight space of a few observed entries that for sparse gradients.

    Raises:
        ValueError: Gram space of a few observed entries of a matrix so large that it is not formed.
    """
    if isinstance(loss, MatrixCompletion):
        if name == EntriesEngine.name:
            return EntriesEngine(loss, W1, W2)
        size = sum(loss.shape)
        if size > LARGEST_GRAM:
            raise ValueError(
                f"engine='gram' forms matrices of n + m = {size} rows and columns, {8 * size**2 / 2**30:.3g} GiB each; "
                "use engine='weights', which forms none"
            )
    return ENGINES[name](loss, W1, W2)


def iterate_at(loss: LinearMapLoss, W1: Tensor, W2: Tensor) -> Iterate | EntriesIterate:
    """What is measured at (reduced) weights."""
    return EntriesIterate(loss, W1, W2) if isinstance(loss, MatrixCompletion) else Iterate(loss, W1, W2, exact=True)


ENGINES = {engine.name: engine for engine in (GramEngine, WeightEngine)}
Engine = GramEngine | WeightEngine | EntriesEngine
