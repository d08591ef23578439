"""What a solver is: a rule that proposes the next point from one evaluation of the map."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

from .problem import SolverMemory, SolverProblem


class Solver(ABC):
    """Proposes points; ``solve`` evaluates the map there, bounds the error, and falls back to plain steps row by row.

    Attributes:
        name: as in ``solve(solver=name)``.
        patience: failures of a row (a residual that fell by less than a plain step guarantees) before that row is left to
            plain iterations for good.
    """

    name: ClassVar[str]
    patience: ClassVar[int] = 3

    def __init__(self, problem: SolverProblem, memory: SolverMemory) -> None:
        self.problem = problem
        self.memory = memory

    @abstractmethod
    def propose(self, Z: Tensor, P: Tensor, T: Tensor, D: Tensor) -> Tensor:
        """The next point, from P = γZA + Φ, T = relu(P) and D = T - Z, all (N, m).

        P, T and D may be overwritten, and one of them returned; Z may not.
        """

    def defects(self) -> Tensor | None:
        """Bounds (N,), float64, of the row norms of T(Y) - Y at the point proposed last, apart from ``defect_rounding``.

        ``None`` where nothing useful is known without another evaluation of the map.
        """
        return None

    def defect_rounding(self) -> Tensor:
        """What rounding adds to ``defects`` (N,), float64."""
        raise NotImplementedError

    @abstractmethod
    def select(self, rows: Tensor) -> None:
        """Keep of what is remembered of past points only these rows, or nothing."""
