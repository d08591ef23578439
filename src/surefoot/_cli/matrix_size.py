"""The option --size of random matrices."""

from __future__ import annotations

import re


def matrix_size(text: str) -> tuple[int, int]:
    """Rows and columns of ROWSxCOLUMNS; ``ValueError`` for anything else."""
    found = re.fullmatch(r"([1-9][0-9]{0,8})x([1-9][0-9]{0,8})", text)
    if found is None:
        raise ValueError(f"--size is {text!r}; it must be ROWSxCOLUMNS, for example 20x32")
    return int(found[1]), int(found[2])
