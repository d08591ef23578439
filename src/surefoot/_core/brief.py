"""Short texts for people: what an object is and how large, in place of its numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence, Sized
from enum import Enum
from typing import Any

import numpy as np
from torch import Tensor

WIDEST, LONGEST = 60, 300
"""Characters of one value, and of all of them."""
FEW = 4
"""Numbers that are shown all."""


def size(array: Tensor | np.ndarray) -> str:
    """Such as "1438x61", rows first; "1" without dimensions."""
    return "x".join(map(str, array.shape)) or "1"


def shown(value: Any) -> str:
    """One value: an array by dtype and size, a long sequence by its length, a number by six digits."""
    if isinstance(value, Tensor | np.ndarray):
        if value.ndim == 0 and not (isinstance(value, Tensor) and value.is_meta):
            return shown(value.item())
        return f"{str(value.dtype).removeprefix('torch.')} {size(value)}"
    if isinstance(value, Enum | str):
        text = repr(str(value))
    elif isinstance(value, float):
        text = f"{value:.6g}"
    elif isinstance(value, Mapping):
        text = f"{len(value)} of {', '.join(map(str, value))}"
    elif isinstance(value, Sequence):
        few = ", ".join(map(shown, value[:FEW]))
        text = f"({few})" if len(value) <= FEW else f"{len(value)} entries"
    else:
        text = repr(value) if not isinstance(value, Sized) else f"{type(value).__name__} of {len(value)}"
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def brief(self: Any) -> str:
    """The ``__repr__`` of a dataclass or a named tuple: its fields, each as ``shown``."""
    named = dataclasses.is_dataclass(self)
    names = [field.name for field in dataclasses.fields(self) if field.repr] if named else self._fields
    text = ", ".join(f"{name}={shown(getattr(self, name))}" for name in names)
    return f"{type(self).__name__}({text if len(text) <= LONGEST else f'{text[: LONGEST - 1]}…'})"
