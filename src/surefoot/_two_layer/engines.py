"""The two engines that move an iterate: in Gram space, and in weight space with singular values of the layers.

Gram space (exact, independent of width and rows): a step W1' = W1 - ηgW2, W2' = W2 - ηgᵀW1 changes W1W1ᵀ, W1W2ᵀ and W2W2ᵀ by
expressions in themselves and g, and the weights follow from the start: [W1; W2](T) = Φ [W1; W2](0) with Φ the product of the
factors I - η[[0, g], [gᵀ, 0]].
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from .._core.losses import Loss
from .iterate import OVERFLOWING, Iterate


class WeightEngine:
    """Gradient descent on W1 and W2 themselves."""

    name = "weights"

    def __init__(self, loss: Loss, W1: Tensor, W2: Tensor) -> None:
        self._loss, self._W1, self._W2 = loss, W1.clone(), W2.clone()
        self.iterate = Iterate.of(loss, self._W1, self._W2)
        self.alignment = 0.0

    @OVERFLOWING
    def move(self, eta: float) -> None:
        """One step of gradient descent; ``alignment`` becomes ⟨∇L, ∇L'⟩ of the iterate left and the one reached."""
        before = self.iterate
        g = torch.tensor(
            before.gradient, device=self._W1.device
        )  # a copy: torch's memory is aligned, and products repeat
        self._W1, self._W2 = self._W1 - eta * (g @ self._W2), self._W2 - eta * (g.T @ self._W1)
        self.iterate = Iterate.of(self._loss, self._W1, self._W2)
        self.alignment = alignment(before, eta, self.iterate)

    def weights(self) -> dict[str, Tensor]:
        """W1 (n, h), W2 (m, h)."""
        return {"W1": self._W1, "W2": self._W2}

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint needs beyond the weights."""
        return {"alignment": torch.tensor(self.alignment, dtype=torch.float64)}

    def restore(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint."""
        self._W1, self._W2 = weights["W1"], weights["W2"]
        self.iterate = Iterate.of(self._loss, self._W1, self._W2)
        self.alignment = float(state["alignment"])


class GramEngine:
    """The same iterates in Gram space."""

    name = "gram"

    def __init__(self, loss: Loss, W1: Tensor, W2: Tensor) -> None:
        self._loss, self._W1, self._W2 = loss, W1.clone(), W2.clone()  # the network's own weights may change
        n, m = len(W1), len(W2)
        self._factor1, self._factor2 = np.eye(n, n + m), np.eye(m, n + m, n)
        grams = (W1 @ W1.T, W1 @ W2.T, W2 @ W2.T)
        self.iterate = self._look(*(gram.cpu().numpy() for gram in grams))
        self.alignment = 0.0

    def _look(self, P11: np.ndarray, W: np.ndarray, P22: np.ndarray) -> Iterate:
        return Iterate(self._loss, P11, W, P22, self._W1.shape[1], lambda: tuple(self.weights().values()))

    @OVERFLOWING
    def move(self, eta: float) -> None:
        """One step of gradient descent; ``alignment`` becomes ⟨∇L, ∇L'⟩ of the iterate left and the one reached."""
        at = self.iterate
        g = at.gradient
        gW, Wg = g @ at.W.T, at.W.T @ g
        # P11' = P11 - η(gWᵀ + Wgᵀ) + η² g P22 gᵀ, as M + Mᵀ so that it stays symmetric; likewise P22'
        half1 = 0.5 * at.P11 - eta * (gW - (0.5 * eta) * (at.gP22 @ g.T))
        half2 = 0.5 * at.P22 - eta * (Wg - (0.5 * eta) * (g.T @ at.P11g))
        self._factor1, self._factor2 = (
            self._factor1 - eta * (g @ self._factor2),
            self._factor2 - eta * (g.T @ self._factor1),
        )
        self.iterate = self._look(half1 + half1.T, at.after(eta), half2 + half2.T)
        self.alignment = alignment(at, eta, self.iterate)

    def weights(self) -> dict[str, Tensor]:
        """W1 (n, h), W2 (m, h): Φ times the start."""
        n = len(self._W1)
        start1, start2 = self._W1, self._W2
        result: dict[str, Tensor] = {}
        for name, factor in (("W1", self._factor1), ("W2", self._factor2)):
            phi = torch.tensor(factor, device=start1.device)
            result[name] = phi[:, :n] @ start1 + phi[:, n:] @ start2
        return result

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint needs beyond the weights."""
        arrays = {
            "P11": self.iterate.P11,
            "W": self.iterate.W,
            "P22": self.iterate.P22,
            "factor1": self._factor1,
            "factor2": self._factor2,
        }
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return {"alignment": torch.tensor(self.alignment, dtype=torch.float64), **tensors}

    def restore(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint (the start is the one given to the constructor, and the weights follow from it)."""
        P11, W, P22, self._factor1, self._factor2 = (
            state[name].cpu().numpy() for name in ("P11", "W", "P22", "factor1", "factor2")
        )
        self.iterate = self._look(P11, W, P22)
        self.alignment = float(state["alignment"])


def alignment(before: Iterate, eta: float, after: Iterate) -> float:
    """⟨∇L, ∇L'⟩ across a step η: with ∇L = (gW2, gᵀW1) and W' as above it is ⟨B - 2ηC, g'⟩."""
    return float(np.vdot(before.B - (2.0 * eta) * before.C, after.gradient))


ENGINES = {engine.name: engine for engine in (GramEngine, WeightEngine)}
Engine = GramEngine | WeightEngine
