"""Polynomials of a matrix with few products (Paterson and Stockmeyer, SIAM J. Comput. 2, 1973)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def block_length(degree: int) -> int:
    """s: powers up to E^s are formed, and blocks of s terms are joined by Horner's rule in E^s; the top one has s+1 terms."""
    return min(range(1, degree + 1), key=lambda s: (s - 1 + -(-degree // s) - 1, s), default=1)


def evaluate(coefficients: Sequence[Tensor | float], E: Tensor) -> Tensor:
    """Σ_j c_j E^j.

    Args:
        coefficients: c_0 … c_d, numbers or scalar tensors.
        E: (..., m, m).

    Returns:
        (..., m, m).
    """
    identity = torch.eye(E.shape[-1], dtype=E.dtype, device=E.device)
    degree = len(coefficients) - 1
    if degree == 0:
        return (coefficients[0] * identity).expand(E.shape)
    s = block_length(degree)
    powers = [identity, E]
    while len(powers) <= s:
        powers.append(powers[-1] @ E)
    blocks = [coefficients[start : start + s] for start in range(0, degree, s)]
    blocks[-1] = coefficients[(len(blocks) - 1) * s :]  # with the top coefficient
    total = _combine(blocks[-1], powers)
    for block in reversed(blocks[:-1]):
        total = torch.add(total @ powers[s], _combine(block, powers))
    return total


def _combine(coefficients: Sequence[Tensor | float], powers: Sequence[Tensor]) -> Tensor:
    """Σ_j c_j powers[j]."""
    total = coefficients[0] * powers[0]
    for c, power in zip(coefficients[1:], powers[1:], strict=False):
        total = total + c * power
    return total
