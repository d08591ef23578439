"""The option --inverse: how the inverse inside a layer is computed."""

from __future__ import annotations


def inner_inverse(text: str) -> tuple[int, int] | None:
    """K and L of a polynomial of products, or ``None`` for exact; ``ValueError`` for anything else."""
    if text == "exact":
        return None
    try:
        layers, degree = (int(part) for part in text.split(","))
    except ValueError:
        layers, degree = 0, 0
    if layers < 1 or degree < 2:
        raise ValueError(f"--inverse is {text!r}; it must be exact, or K,L with K >= 1 and L >= 2, for example 6,4")
    return layers, degree
