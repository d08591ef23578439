"""A = diag(a) + QB + E with a bound of ‖E‖: the diagonal and a low-rank part, of which products are cheap."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class LowRankModel:
    """Factors of A - diag(A), up to a rest.

    Attributes:
        Q: (m, r).
        B: (r, m).
        Q_norm, B_norm: upper bounds of ‖Q‖ and ‖B‖.
        rest: upper bound of ‖E‖, E = A - diag(A) - QB for the factors as they are stored.
    """

    Q: Tensor
    B: Tensor
    Q_norm: float
    B_norm: float
    rest: float

    @property
    def transposed(self) -> LowRankModel:
        """The model of Aᵀ."""
        return LowRankModel(self.B.mT, self.Q.mT, self.B_norm, self.Q_norm, self.rest)
