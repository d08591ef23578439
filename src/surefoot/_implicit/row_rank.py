"""Why the features of some samples have no full row rank, without which no theorem holds, and what to do."""

from __future__ import annotations

import torch
from torch import Tensor

from .equilibrium import dead_units

UNEVEN = 1e3
"""Rows whose sizes differ by more than this factor, its square in Z Zᵀ, are to be scaled before anything else is blamed."""
BLAMED = 100.0
"""Two rows are to blame where their features alone have an eigenvalue below this factor times the smallest of all."""


def deficient(X: Tensor, Z: Tensor, smallest: float) -> str:
    """What is wrong with the features Z (N, m) at X (N, d), whose Z Zᵀ has the eigenvalue ``smallest``, and what to do."""
    (N, m), dead = Z.shape, len(dead_units(Z))
    found = (
        f"the features of the {N} samples have no full row rank (smallest eigenvalue of Z Zᵀ: {smallest:.3g}; {dead} of {m} "
        "units are 0 on all samples)"
    )
    lengths = X.abs().amax(dim=1)
    least, greatest = float(lengths.min()), float(lengths.max())
    if greatest > UNEVEN * least:
        return f"{found}: the rows differ in size, by a factor of {greatest / least:.3g}: scale every row to norm 1"
    if N > 1 and dead < m:
        first, second, _ = nearest_rows(X)
        resolved = torch.finfo(Z.dtype).eps * float(Z.square().sum())
        if float(torch.linalg.matrix_norm(Z[[first, second]], -2)) ** 2 <= BLAMED * max(smallest, resolved):
            one, other = (row / torch.linalg.vector_norm(row) for row in X[[first, second]])
            apart = float(torch.linalg.vector_norm(one - other))
            return (
                f"{found}: rows {first} and {second} of X are {apart:.2g} apart once of norm 1; leave one of them out"
            )
    return f"{found}: draw weights of a larger width, 2 N or more, or take fewer or less similar samples"


def nearest_rows(X: Tensor) -> tuple[int, int, float]:
    """The two rows of X (N, d), N at least 2, with the largest cosine, and the cosine."""
    rows = X / torch.linalg.vector_norm(X, dim=1, keepdim=True)
    cosines = (rows @ rows.T).fill_diagonal_(-1.0)
    first, second = divmod(int(cosines.argmax()), len(rows))
    return first, second, float(cosines[first, second])
