"""How far the features of a network have moved."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def moved(before: Sequence[Tensor], after: Sequence[Tensor]) -> tuple[float, ...]:
    """‖a - a_0‖_F/‖a_0‖_F of each of them; 0 where a_0 = 0 has not moved. Empty where one is not finite, as features in float32
    may be."""
    shares = tuple(_relative(start, now) for start, now in zip(before, after, strict=True))
    return shares if all(map(math.isfinite, shares)) else ()


def _relative(start: Tensor, now: Tensor) -> float:
    change, size = (float(torch.linalg.vector_norm(A.double())) for A in (now - start, start))
    return change / size if change > 0.0 and size > 0.0 else change
