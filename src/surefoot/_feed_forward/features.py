"""How far the features of a network have moved: what its layers with weights take in, after the first."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .modules import flat


def features(net: nn.Sequential, X: Tensor) -> list[Tensor]:
    """The inputs of every module with weights but the first, for all rows of X, in the dtype of the network."""
    found: list[Tensor] = []
    with torch.no_grad():
        a = X.to(next(net.parameters()).dtype)
        for _, module in flat(net):
            if any(True for _ in module.parameters()):
                found.append(a)
            a = module(a)
    return found[1:]


def moved(before: Sequence[Tensor], after: Sequence[Tensor]) -> tuple[float, ...]:
    """‖a - a_0‖_F/‖a_0‖_F of each of them; 0 where a_0 = 0 has not moved. Empty where one is not finite, as features in float32
    may be."""
    shares = tuple(_relative(start, now) for start, now in zip(before, after, strict=True))
    return shares if all(map(math.isfinite, shares)) else ()


def _relative(start: Tensor, now: Tensor) -> float:
    change, size = (float(torch.linalg.vector_norm(A.double())) for A in (now - start, start))
    return change / size if change > 0.0 and size > 0.0 else change
