"""What the values of options must be."""

from __future__ import annotations

import re

LONGEST = 50
"""Steps of a finish at most."""


def at_least_one(option: str, value: int) -> None:
    """Raise ``ValueError``, with the option as the user types it, for a count below 1."""
    if value < 1:
        raise ValueError(f"{option} is {value}; it must be at least 1")


def check_seed(seed: int) -> None:
    """Raise ``ValueError`` for a seed that PyTorch does not take."""
    if not -(2**63) <= seed < 2**64:
        raise ValueError(f"--seed is {seed}; it must fit into 64 bits")


def matrix_size(text: str, option: str = "--size") -> tuple[int, int]:
    """Of an option: rows and columns of ROWSxCOLUMNS; ``ValueError`` for anything else."""
    sizes = re.fullmatch(r"([1-9][0-9]{0,8})x([1-9][0-9]{0,8})", text)
    if sizes is None:
        raise ValueError(f"{option} is {text!r}; it must be ROWSxCOLUMNS, for example 20x32")
    return int(sizes[1]), int(sizes[2])


def inner_inverse(text: str) -> tuple[int, int] | None:
    """Of the option --inverse: K and L of a polynomial of products, or ``None`` for exact; ``ValueError`` for anything else."""
    if text == "exact":
        return None
    try:
        layers, degree = (int(part) for part in text.split(","))
    except ValueError:
        layers, degree = 0, 0
    if layers < 1 or degree < 2:
        raise ValueError(f"--inverse is {text!r}; it must be exact, or K,L with K >= 1 and L >= 2, for example 6,4")
    return layers, degree
