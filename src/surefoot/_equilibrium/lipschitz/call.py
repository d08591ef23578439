"""One operation on tensors that depend on the state, as a rule sees it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..._core.refusals import NotCertifiable
from .values import Values, mixed


@dataclass(frozen=True)
class Call:
    """``value`` = the function of this name, of these arguments, of which one or more depend on the state.

    Attributes:
        known: what is known of the tensors.
    """

    known: Values
    name: str
    value: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def get(self, place: int, name: str, default: Any = None) -> Any:
        """An argument, by its place or its name; ``axis`` is torch's other name of ``dim``."""
        name = "axis" if name == "dim" and "axis" in self.kwargs else name
        return self.args[place] if len(self.args) > place else self.kwargs.get(name, default)

    @property
    def first(self) -> Any:
        """The first argument."""
        return self.get(0, "input")

    @property
    def batch(self) -> torch.Size:
        """The leading dimensions of the state, which index samples."""
        return self.known.batch

    @property
    def zero(self) -> Tensor:
        """The constants of a tensor that does not move."""
        return self.known.zero

    def moves(self, value: Any) -> bool:
        """Whether it is a tensor that depends on the state."""
        return self.known.moves(value)

    def constants(self, value: Any) -> Tensor:
        """How far it moves, for each tensor of the state."""
        return self.known.constants(value)

    def weight(self, value: Any) -> Tensor:
        """A weight by which the state is multiplied, as float64; an error where it depends on the state or on x."""
        return self.known.weight(value, self.name)

    def mixed(self) -> NotCertifiable:
        """The error that samples meet."""
        return mixed(self.name)

    def spread(self, part: Any) -> float:
        """By how much broadcasting to the value lengthens an operand that moves: the root of how often each entry is there.

        An error where its samples would come to other dimensions.
        """
        if not self.moves(part):
            return 1.0
        if self.batch and part.ndim != self.value.ndim:
            raise self.mixed()
        shape = (*(1,) * (self.value.ndim - part.ndim), *part.shape)
        # sizes that are equal cancel here, as an exported program knows no number of samples
        return math.sqrt(math.prod(new / old for new, old in zip(self.value.shape, shape, strict=True) if new != old))

    def stacked(self, parts: Sequence[Any]) -> Tensor:
        """The constants of a value each of whose changes is one of those of the parts, which stand side by side."""
        total = self.zero
        for part in parts:
            if self.moves(part):
                total = total + (self.constants(part) * self.spread(part)).square()
        return root(total)

    def keep(self, z: Tensor, factor: float) -> None:
        """In place, other views of z change with it: their constants hold where the factor is at most 1."""
        if self.value is z and factor > 1.0:
            raise NotCertifiable(
                f"{self.name} works in place, where views of its argument change with it; pass inplace=False"
            )

    def maps(self, z: Tensor, count: int) -> None:
        """Channels and maps of so many dimensions are no samples."""
        if z.ndim - len(self.batch) < count + 1:
            raise self.mixed()

    def others(self, z: Tensor, dims: Any) -> list[int]:
        """These dimensions, which must be none of samples."""
        dims = [dims] if isinstance(dims, int) else dims or range(z.ndim)  # none are all
        found = [d % z.ndim for d in dims]
        if any(d < len(self.batch) for d in found):
            raise self.mixed()
        return found

    def looked_at(self) -> None:
        """Of the arguments behind the first the operation uses shapes, dtypes and devices alone."""
        for other in self.args[1:]:
            self.constants(other)


Rule = Callable[[Call], Tensor]
"""The constants of the value of an operation."""


def root(squares: Tensor) -> Tensor:
    """√, without the infinite slope at 0."""
    return torch.where(squares > 0.0, torch.where(squares > 0.0, squares, 1.0).sqrt(), squares)


def sizes_of(value: Any, count: int) -> list[int]:
    """A setting of a module in each of its directions."""
    if isinstance(value, int):
        return [value] * count
    return [int(v) for v in value] * (count if len(value) == 1 else 1)
