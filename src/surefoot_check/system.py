"""What the checker must be able to read and to bound of one kind of network: a record that the system's folder fills."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .problems import Array, Interval, Problem
from .rigor.bounds import Level
from .statement import Theorem

if TYPE_CHECKING:
    from .descent import Descent

Weights = Mapping[str, Array]


@dataclass(frozen=True, kw_only=True)
class System:
    """One kind of network. Every ``problem`` is one that ``load`` returned, of whatever class that is."""

    name: str
    """The part of its theorems' ids before the slash."""
    theorems: tuple[Theorem, ...]
    directions: Mapping[str, str]
    """"upper" or "lower": the direction in which each published base quantity must err."""
    load: Callable[[object, dict[str, Array], Level], Problem]
    """The problem of a kind from its arrays, at a level; ``FormatError`` where they do not fit together."""
    read_weights: Callable[[Weights, Any, str], dict[str, Array]]
    """The weights among the arrays of the file of that name, validated against the problem."""
    sizes: Callable[[Any, Weights], dict[str, int | bool]]
    """The sizes that a certificate states."""
    base_quantities: Callable[[Any, Weights, Mapping[str, float]], dict[str, Interval]]
    """Rigorous enclosures of the base quantities, given the published ones (some are defined on a published ball)."""
    gap_upper: Callable[[Any, Weights], float]
    """Rigorous upper bound of loss - optimal value at the weights."""
    gap_exact: Callable[[Any, Weights], tuple[Any, Any]]
    """A ball-arithmetic lower bound (``None`` where there is none) and upper bound of it. Slower than ``gap_upper`` and with
    smaller rounding errors; for what that leaves undecided."""
    fixed: tuple[str, ...] = ()
    """Weights that training does not change."""
    optional: frozenset[str] = frozenset()
    """Base quantities that do not exist for every problem; the theorems do without, or fail."""
    measured_from_zero: bool = False
    """Whether gaps are measured from 0, so that the optimal value is published as 0."""
    replay: Callable[[], type[Descent]] | None = None
    """How exact descent is enclosed, imported when it is asked for; ``None`` where it is not."""
