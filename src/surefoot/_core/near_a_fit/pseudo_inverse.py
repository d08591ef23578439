"""The step J⁺r to the fit of a linear model, in floats: what it is good for is tested where it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

import torch
from torch import Tensor

SWEEPS = 2
"""Of iterative refinement."""
REFINED = 1e-6
"""Relative size of the last correction of it, above which singular values are taken instead."""


def flat(parts: Mapping[str, Tensor]) -> Tensor:
    """All entries (p,), in the order of the names."""
    return torch.cat([part.reshape(-1) for part in parts.values()])


def parted(vector: Tensor, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of ``flat``."""
    parts = vector.split([weight.numel() for weight in like.values()])
    return {name: part.reshape(weight.shape) for part, (name, weight) in zip(parts, like.items(), strict=True)}


class PseudoInverse:
    """J⁺ of J (n, p), n ≤ p: by JJᵀ and iterative refinement; by singular values where the rank is not full, or nearly not.

    Args:
        gram: JJᵀ.
        image: Jd of d (p,).
        pulled: Jᵀx of x (n,).
        matrix: J itself, which is formed only for its singular values.
    """

    def __init__(
        self,
        gram: Tensor,
        image: Callable[[Tensor], Tensor],
        pulled: Callable[[Tensor], Tensor],
        matrix: Callable[[], Tensor],
    ) -> None:
        self._image, self._pulled, self._matrix = image, pulled, matrix
        factor, failed = torch.linalg.cholesky_ex(gram)
        self._factor = None if int(failed) else factor

    @cached_property
    def _by_values(self) -> tuple[Tensor, Tensor, Tensor]:
        U, s, Vh = torch.linalg.svd(self._matrix(), full_matrices=False)
        kept = s > Vh.shape[1] * torch.finfo(s.dtype).eps * s.max()
        return U[:, kept], s[kept], Vh[kept]

    def __call__(self, r: Tensor) -> Tensor:
        """J⁺r (p,): of least norm among those with the least ‖r - Jd‖."""
        if self._factor is not None:
            d = more = self._pulled(self._solved(r))
            for _ in range(SWEEPS):
                more = self._pulled(self._solved(r - self._image(d)))
                d = d + more
            if float(torch.linalg.vector_norm(more)) <= REFINED * float(torch.linalg.vector_norm(d)):
                return d
            self._factor = None
        U, s, Vh = self._by_values
        return Vh.T @ ((U.T @ r) / s)

    def _solved(self, r: Tensor) -> Tensor:
        assert self._factor is not None
        return torch.cholesky_solve(r[:, None], self._factor)[:, 0]
