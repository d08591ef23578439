"""The plain iteration."""

from __future__ import annotations

from torch import Tensor

from .base import Solver


class Plain(Solver):
    """Z ← relu(γZA + Φ) (Picard); contracts by γ‖A‖."""

    name = "plain"

    def propose(self, Z: Tensor, P: Tensor, T: Tensor, D: Tensor) -> Tensor:
        return T

    def select(self, rows: Tensor) -> None:
        pass  # nothing is remembered
