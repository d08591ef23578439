"""What the checker must be able to read and to bound of one kind of network: a record that the system's folder fills."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol

from .problems import P
from .rigor.bounds import Array, Level
from .rigor.intervals import Interval
from .statement import Theorem

if TYPE_CHECKING:
    from .descent import Descent

Weights = Mapping[str, Array]


def zero(problem: object) -> Interval:
    """``System.least`` where gaps are measured from 0."""
    return 0.0, 0.0


class Enclosures(Protocol[P]):
    """What is rigorous of one kind of network: the module ``enclosures`` of its folder, or any object with these functions.
    ``linear_maps.LinearMaps`` makes one."""

    @property
    def FIXED(self) -> tuple[str, ...]:
        """Weights that training does not change."""
        ...

    def load_problem(self, kind: object, arrays: Mapping[str, Array], level: Level) -> P:
        """The problem of a kind from its arrays, at a level; ``FormatError`` where they do not fit together."""
        ...

    def read_weights(self, arrays: Weights, problem: P, name: str) -> dict[str, Array]:
        """The weights among the arrays of the file of that name, validated against the problem."""
        ...

    def sizes(self, problem: P, weights: Weights) -> dict[str, int | bool]:
        """The sizes that a certificate states."""
        ...

    def base_quantities(self, problem: P, weights: Weights, quantities: Mapping[str, float]) -> dict[str, Interval]:
        """Enclosures of the base quantities, given the published ones (some are defined on a published ball)."""
        ...

    def gap_upper(self, problem: P, weights: Weights) -> float:
        """Upper bound of loss - optimal value at the weights."""
        ...

    def gap_exact(self, problem: P, weights: Weights) -> tuple[Any, Any]:
        """A ball-arithmetic lower bound (``None`` where there is none) and upper bound of it. Slower than ``gap_upper`` and with
        smaller rounding errors; for what that leaves undecided."""
        ...


@dataclass(frozen=True, kw_only=True)
class System(Generic[P]):
    """One kind of network."""

    name: str
    """The part of its theorems' ids before the slash."""
    theorems: tuple[Theorem, ...]
    directions: Mapping[str, str]
    """"upper" or "lower": the direction in which each published base quantity must err."""
    enclosures: Enclosures[P]
    optional: frozenset[str] = frozenset()
    """Base quantities that do not exist for every problem; the theorems do without, or fail."""
    least: Callable[[P], Interval] | None = None
    """Enclosure of the value that gaps are measured from, which is published as the optimal value; ``None`` where it is not
    checked."""
    replay: Callable[[], type[Descent]] | None = None
    """How exact descent is enclosed, imported when it is asked for; ``None`` where it is not."""
