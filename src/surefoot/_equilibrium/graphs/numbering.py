"""Layers by number, by which an operation in a compiled graph finds the layer that it stands for."""

from __future__ import annotations

import itertools
from typing import Any, Protocol
from weakref import WeakValueDictionary


class Layer(Protocol):
    """What operations need of an ``EquilibriumLayer``."""

    f: Any
    number: int

    def closed(self, x: tuple[Any, ...], kwargs: dict[str, Any], z0: Any) -> Any:
        """Its value, where gradients may go to x, kwargs and f alone."""
        ...


LAYERS: WeakValueDictionary[int, Layer] = WeakValueDictionary()
_NUMBERS = itertools.count()


def number_of(layer: Layer) -> int:
    """A new number for this layer, known as long as it lives."""
    number = next(_NUMBERS)
    LAYERS[number] = layer
    return number
