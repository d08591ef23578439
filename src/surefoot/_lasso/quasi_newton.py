"""A quadratic model that agrees with MᵀM on the directions seen so far, and its minimisation together with an l1 norm."""

from __future__ import annotations

import torch
from torch import Tensor

from .._problems.batch import soft


class Memory:
    """The last directions, each made orthonormal to those before in the inner product of MᵀM, with images under M and MᵀM.

    With D what is held (as columns) and Z = MᵀMD, so that DᵀZ = I, the model of MᵀM for a diagonal S ≥ 0 is

        B = S - SD(DᵀSD)⁻¹DᵀS + ZZᵀ,

    the BFGS update of S for all directions at once: BD = Z, and B ⪰ 0. MᵀM itself is ZZᵀ plus a matrix that vanishes on D, as
    the rest of B does.

    Args:
        M: (N, b, d), for the sizes, dtype and device.
        capacity: directions kept; the oldest is replaced.
    """

    def __init__(self, M: Tensor, capacity: int) -> None:
        count, rows, columns = M.shape
        self._directions = M.new_zeros(count, capacity, columns)
        self._images = M.new_zeros(count, capacity, rows)
        self._pulled = M.new_zeros(count, capacity, columns)
        self._added = 0

    @property
    def size(self) -> int:
        """Directions held."""
        return min(self._added, self._directions.shape[1])

    def add(self, direction: Tensor, image: Tensor, pulled: Tensor) -> None:
        """Take ``direction`` d (N, d), ``image`` M d (N, b) and ``pulled`` MᵀM d (N, d). Where it depends on those held, or
        vanishes, an empty one takes its place."""
        size, unit = self.size, torch.finfo(direction.dtype).eps
        before = image.norm(dim=1)
        for _ in range(2 if size else 0):  # twice, for orthogonality to rounding
            c = _times(self._images[:, :size], image)
            direction = direction - _combine(c, self._directions[:, :size])
            image = image - _combine(c, self._images[:, :size])
            pulled = pulled - _combine(c, self._pulled[:, :size])
        after = image.norm(dim=1)
        scale = torch.where(after > unit**0.5 * before, 1.0 / after, 0.0)[:, None]
        slot = self._added % self._directions.shape[1]
        self._directions[:, slot] = (scale * direction).nan_to_num(nan=0.0)
        self._images[:, slot] = (scale * image).nan_to_num(nan=0.0)
        self._pulled[:, slot] = (scale * pulled).nan_to_num(nan=0.0)
        self._added += 1

    def model(self, S: Tensor) -> Model:
        """B for the diagonal S (N, d)."""
        size = self.size
        if not size:
            return Model(S, None, None)
        D = self._directions[:, :size]
        SD = S[:, None] * D
        gram = torch.bmm(D, SD.transpose(1, 2))
        diagonal = gram.diagonal(dim1=1, dim2=2)
        shift = torch.where(diagonal > 0.0, 64.0 * size * torch.finfo(S.dtype).eps * diagonal, 1.0)
        factor, info = torch.linalg.cholesky_ex(gram + torch.diag_embed(shift))
        failed = (info != 0)[:, None, None]  # there, B = S + ZZᵀ
        identity = torch.eye(size, dtype=S.dtype, device=S.device)
        U = torch.linalg.solve_triangular(torch.where(failed, identity, factor), SD, upper=False)
        rows = torch.cat([self._pulled[:, :size], torch.where(failed, 0.0, U)], dim=1)
        signs = torch.cat([S.new_ones(size), -S.new_ones(size)])
        return Model(S, rows, signs)


class Model:
    """B = S + Σ sign · row rowᵀ."""

    def __init__(self, S: Tensor, rows: Tensor | None, signs: Tensor | None) -> None:
        self._S, self._rows, self._signs = S, rows, signs

    def times(self, v: Tensor) -> Tensor:
        """B v (N, d)."""
        if self._rows is None or self._signs is None:
            return self._S * v
        return self._S * v + _combine(self._signs * _times(self._rows, v), self._rows)

    def minimise(self, x: Tensor, gradient: Tensor, threshold: Tensor, smoothness: Tensor, steps: int) -> Tensor:
        """d (N, d) close to the minimiser of ⟨g, d⟩ + ½⟨d, Bd⟩ + Σ threshold |x + d|, by accelerated proximal gradient with
        restarts (O'Donoghue and Candès, 2015) from d = 0.

        Args:
            x: (N, d).
            gradient: g (N, d).
            threshold: (N, d).
            smoothness: at least ‖MᵀM‖ (N,), which bounds the part ZZᵀ of B.
            steps: of the iteration; one is exact while no directions are held and S is constant.
        """
        largest = self._S.amax(1) + (0.0 if self._rows is None else smoothness)
        step = (1.0 / largest)[:, None]
        level = step * threshold
        d = y = torch.zeros_like(x)
        tau = torch.ones_like(largest)
        for _ in range(steps):
            new = soft(x + y - step * (gradient + self.times(y)), level) - x
            uphill = ((y - new) * (new - d)).sum(1) > 0.0
            tau = torch.where(uphill, 1.0, tau)
            following = 0.5 * (1.0 + (1.0 + 4.0 * tau.square()).sqrt())
            momentum = torch.where(uphill, 0.0, (tau - 1.0) / following)
            y, d, tau = new + momentum[:, None] * (new - d), new, following
        return d


def _times(rows: Tensor, v: Tensor) -> Tensor:
    """(N, k, d) times (N, d)."""
    return torch.bmm(rows, v.unsqueeze(2)).squeeze(2)


def _combine(c: Tensor, rows: Tensor) -> Tensor:
    """Σ_k c_k rows_k: (N, k) and (N, k, d) to (N, d)."""
    return torch.bmm(c.unsqueeze(1), rows).squeeze(1)
