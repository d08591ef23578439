"""The scale at which D-SVD starts."""

from __future__ import annotations

import torch
from torch import Tensor

from .svd_objective import spectral_bound


def normalised(M: Tensor) -> Tensor:
    """M (..., m, n) over an upper bound of its norm; zero matrices stay as they are."""
    # the largest entry first: the bound, or the product of the two, may leave the range of float32
    size = torch.linalg.vector_norm(M, ord=torch.inf, dim=(-2, -1), keepdim=True).detach()
    M = M / torch.where(size > 0.0, size, 1.0)
    bound = spectral_bound(M)[..., None, None]
    return M / torch.where(bound > 0.0, bound, 1.0)
