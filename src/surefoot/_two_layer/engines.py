"""The two engines that move an iterate: in Gram space, and in weight space with singular values of the layers.

Gram space (exact, independent of width and rows): with Z = [W1; W2] and S = [[0, g], [gᵀ, 0]] a step is Z' = (I - ηS)Z, so
P = ZZᵀ evolves as (I - ηS)P(I - ηS), and Z(T) = Φ Z(0) with Φ the product of the factors.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from .._core.losses import Loss
from .iterate import Iterate

class WeightEngine:
    """Gradient descent on W1 and W2 themselves."""

    name = "weights"

    def __init__(self, loss: Loss, W1: Tensor, W2: Tensor) -> None:
        self.loss, self.W1, self.W2 = loss, W1.clone(), W2.clone()
        self.iterate = Iterate.of(loss, self.W1, self.W2)
        self.alignment = 0.0

    def move(self, eta: float) -> None:
        """One step of gradient descent; ``alignment`` becomes ⟨∇L, ∇L'⟩ of the iterate left and the one reached."""
        g = self.iterate.gradient
        G1, G2 = g @ self.W2, g.T @ self.W1
        self.W1, self.W2 = self.W1 - eta * G1, self.W2 - eta * G2
        self.iterate = Iterate.of(self.loss, self.W1, self.W2)
        new = self.iterate.gradient
        self.alignment = float((G1 * (new @ self.W2)).sum() + (G2 * (new.T @ self.W1)).sum())

    def weights(self) -> dict[str, Tensor]:
        """W1 (n, h), W2 (m, h)."""
        return {"W1": self.W1, "W2": self.W2}

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint needs beyond the weights."""
        return {"alignment": torch.tensor(self.alignment, dtype=torch.float64)}

    def restore(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint."""
        self.W1, self.W2 = weights["W1"], weights["W2"]
        self.iterate = Iterate.of(self.loss, self.W1, self.W2)
        self.alignment = float(state["alignment"])


class GramEngine:
    """The same iterates in Gram space."""

    name = "gram"

    def __init__(self, loss: Loss, W1: Tensor, W2: Tensor) -> None:
        self.loss, self.n, self.width = loss, W1.shape[0], W1.shape[1]
        self._start = torch.cat([W1, W2])
        self._P = self._start @ self._start.T
        self._factor = torch.eye(len(self._P), dtype=self._P.dtype, device=self._P.device)
        self.alignment = 0.0
        self.iterate = self._look()

    def _look(self) -> Iterate:
        n, P = self.n, self._P
        return Iterate(self.loss, P[:n, :n], P[:n, n:], P[n:, n:], self.width, lambda: tuple(self.weights().values()))

    def _skew(self, g: Tensor) -> Tensor:
        """S."""
        S = torch.zeros_like(self._P)
        S[: self.n, self.n :] = g
        S[self.n :, : self.n] = g.T
        return S

    def move(self, eta: float) -> None:
        """One step of gradient descent; ``alignment`` becomes ⟨∇L, ∇L'⟩ of the iterate left and the one reached."""
        S = self._skew(self.iterate.gradient)
        SP = S @ self._P
        half = self._P - eta * SP
        P = half - eta * (half @ S)
        self._P = 0.5 * (P + P.T)
        self._factor = self._factor - eta * (S @ self._factor)
        self.iterate = self._look()
        # ⟨SZ, S'Z'⟩ = tr(S Z Z'ᵀ S') with Z' = (I - ηS)Z, so Z Z'ᵀ = P(I - ηS)
        cross = SP - eta * (SP @ S)
        self.alignment = float((cross * self._skew(self.iterate.gradient)).sum())

    def weights(self) -> dict[str, Tensor]:
        """W1 (n, h), W2 (m, h): Φ Z(0)."""
        Z = self._factor @ self._start
        return {"W1": Z[: self.n], "W2": Z[self.n :]}

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint needs beyond the weights."""
        return {
            "alignment": torch.tensor(self.alignment, dtype=torch.float64),
            "gram": self._P,
            "factor": self._factor,
        }

    def restore(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint (the start is the one given to the constructor, and the weights follow from it)."""
        self._P, self._factor = state["gram"], state["factor"]
        self.alignment = float(state["alignment"])
        self.iterate = self._look()


ENGINES = {engine.name: engine for engine in (GramEngine, WeightEngine)}
Engine = GramEngine | WeightEngine
