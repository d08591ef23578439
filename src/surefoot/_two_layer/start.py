"""Certifiable weights: a multiple of orthonormal rows, and the multiple ("A certifiable start" in docs/theorems/two-layer.md)."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable

import torch
from torch import Tensor

from .._core.certificate import Certificate
from .._core.losses import LinearMapLoss
from .._core.refusals import NotCertifiable

TARGET = 1e-10
"""Relative gap whose guaranteed count decides."""
LOOSE = 1.05
"""The count may exceed that of an infinite scale by this factor."""
MOVEMENTS = tuple(0.32 / 2**k for k in range(16))
"""Movements of the weights that are tried, relative to their norm; the last stands for an infinite scale."""


def orthonormal_rows(rows: int, width: int, seed: int) -> Tensor:
    """(rows, width) with orthonormal rows, rows ≤ width: the Q of a Gaussian matrix."""
    drawn = torch.randn(width, rows, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.linalg.qr(drawn)[0].T.contiguous()


def movement(loss: LinearMapLoss, scale: float) -> float:
    """‖Z_T − Z_0‖_F/‖Z_0‖_F that training from ``scale`` times orthonormal rows Z_0 ends with, to first order."""
    rank, outputs = loss.reduced.shape
    return float(torch.linalg.matrix_norm(loss.reduced.optimum)) / scale**2 / math.sqrt(2.0 * (rank + outputs))


def scale_for(loss: LinearMapLoss, moved: float) -> float:
    """The scale with that ``movement``; 1 where the weights need not move at all."""
    return math.sqrt(movement(loss, 1.0) / moved) or 1.0


def least_scale(loss: LinearMapLoss, certified: Callable[[float], Certificate]) -> float:
    """The scale of the largest of ``MOVEMENTS`` that has at most ``LOOSE`` times as many guaranteed iterations to ``TARGET`` as
    the last of them.

    Args:
        loss: what is to be learned.
        certified: the certificate of a scale.

    Raises:
        NotCertifiable: no number of iterations is guaranteed at the largest scale.
    """
    scales = [scale_for(loss, moved) for moved in MOVEMENTS]
    limit = certified(scales[-1])
    enough = LOOSE * limit.iterations_to(TARGET)
    if enough == math.inf:
        failed = "; ".join(condition.name for condition in limit.conditions if not condition.holds)
        why = f"fails at every scale: {failed}" if failed else "guarantees no rate"
        advice = limit.suggestion or "name another theorem"
        raise NotCertifiable(f"no scale of the weights is certified: {limit.theorem} {why}; {advice}")
    few = bisect_left(scales[:-1], True, key=lambda scale: certified(scale).iterations_to(TARGET) <= enough)
    return scales[few]
