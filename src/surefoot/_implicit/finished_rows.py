"""The rows of an equilibrium that are accurate enough and set aside while the others are iterated."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class FinishedRows:
    """Rows that are accurate enough and no longer take part."""

    def __init__(self, Phi: Tensor) -> None:
        self._rows: Tensor | None = None
        self._shape, self._like = Phi.shape, Phi
        self.size = self.defect = self.lost = self.both = 0.0

    def left(self, whole: float) -> float:
        """The defect that the rows that still take part may have, of that of all."""
        return math.sqrt(max((whole - self.defect) * (whole + self.defect), 0.0))  # products overflow to infinity

    def split(self, done: Tensor, active: int) -> Tensor | None:
        """Mask of the rows to keep, or ``None`` while too few are done for the copies to pay."""
        count = int(done.sum())
        return ~done if 2 * count >= active and count < active else None

    def store(self, T: Tensor, defects: Tensor, rounding: Tensor, keep: Tensor) -> None:
        """Set aside all rows of T but those of the mask ``keep``."""
        if self._rows is None:
            self._rows = torch.arange(self._shape[0], device=T.device)
            self._Z = self._like.new_empty(self._shape)
            self._defects = torch.zeros(self._shape[0], dtype=torch.float64, device=T.device)
            self._rounding = torch.zeros_like(self._defects)
        done = self._rows[~keep]
        self._Z[done] = T[~keep]
        self._defects[done], self._rounding[done] = defects[~keep], rounding[~keep]
        self._rows = self._rows[keep]
        self.size = math.hypot(self.size, float(torch.linalg.vector_norm(T[~keep])))
        # Rows that still take part are zero in these two.
        self.defect = float(torch.linalg.vector_norm(self._defects))
        self.lost = float(torch.linalg.vector_norm(self._rounding))
        self.both = float(torch.linalg.vector_norm(self._defects + self._rounding))

    def whole(self, Y: Tensor, defects: Tensor, rounding: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """All rows, given those that took part to the end."""
        if self._rows is None:
            return Y, defects, rounding
        self._Z[self._rows] = Y
        self._defects[self._rows], self._rounding[self._rows] = defects, rounding
        return self._Z, self._defects, self._rounding
