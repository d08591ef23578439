"""Random draws that the experiments of all systems share."""

from __future__ import annotations

import torch
from torch import Tensor


def repeat_generator(seed: int, repeat: int) -> torch.Generator:
    """The generator of one repeat; it does not depend on how many repeats there are."""
    return torch.Generator().manual_seed(1_000_003 * seed + repeat)


def gaussian(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """Independent N(0, 1) entries in float64."""
    return torch.randn(rows, columns, dtype=torch.float64, generator=generator)
