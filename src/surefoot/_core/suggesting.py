"""The name that was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: object, known: Iterable[str], cutoff: float = 0.4) -> str:
    """A question with the nearest of the known names, with a space at its end; empty where none is near."""
    names = sorted(known)
    close = [each for each in names if each.lower() == str(name).lower()]
    close = close or difflib.get_close_matches(str(name), names, n=1, cutoff=cutoff)
    return f"did you mean {close[0]!r}? " if close else ""
