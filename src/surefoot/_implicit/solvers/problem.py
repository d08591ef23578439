"""The fixed-point problem Z = relu(γZA + Φ) as the solvers see it: products, norms and their rounding."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from surefoot_check.rigor.bounds import up

from ..._core.brief import brief
from ..._linalg.norms import product_roundoff
from ..norms import accumulated, matrix_norm_upper, row_norms_upper
from .model import LowRankModel

COUNT_ROWS = 128
"""Rows whose nonzero entries are counted at a time."""

BUFFERS = 4
"""Matrices of work space that stay between calls."""


@dataclass
class SolverMemory:
    """What one call of ``solve`` leaves for the next; the caller keeps it, one for each network and batch.

    Attributes:
        Z: the last equilibrium (N, m), the start of the next call.
        basis: (r, m), rows that span where A - diag(A) acted strongly, from which the next low-rank factors are found.
        V: the last adjoint (N, m), the start of the next.
        model: of the A of the last call where it made one; valid for that A only.

    Example:
        >>> net, X = sf.nn.ImplicitReLU.gaussian(inputs=3, width=6), torch.randn(5, 3, dtype=torch.float64)
        >>> memory = sf.nn.SolverMemory()
        >>> first = net.equilibrium(X, memory=memory).iterations
        >>> net.equilibrium(X, memory=memory).iterations < first  # the second call starts where the first ended
        True
    """

    Z: Tensor | None = None
    basis: Tensor | None = None
    V: Tensor | None = None
    model: LowRankModel | None = None
    _buffers: list[Tensor] = field(default_factory=list, repr=False)

    __repr__ = brief

    def take(self, like: Tensor) -> Tensor:
        """An uninitialised tensor like this one; one given back by ``give`` where possible, as new pages are slow."""
        for index, buffer in enumerate(self._buffers):
            if buffer.shape == like.shape and buffer.dtype == like.dtype and buffer.device == like.device:
                return self._buffers.pop(index)
        return torch.empty_like(like, memory_format=torch.contiguous_format)

    def give(self, *buffers: Tensor) -> None:
        """Keep work space for the next call (the newest few)."""
        self._buffers = [*buffers, *self._buffers][:BUFFERS]

    def release(self) -> None:
        """Keep no work space, such as between a forward and a backward pass."""
        self._buffers = []


class SolverProblem:
    """One batch of rows of the problem, with entries in the middle of the dtype's range.

    Args:
        A: (m, m).
        Phi: (N, m), the rows that are still being solved.
        gamma: γ > 0.
        q: upper bound of γ‖A‖ (may be 1 or more: then nothing here is a bound of an error).
        phi_errors: (N,) float64, bounds of the row norms of the error of Phi.
        memory: gives work space.
    """

    def __init__(
        self, A: Tensor, Phi: Tensor, gamma: float, q: float, phi_errors: Tensor, memory: SolverMemory
    ) -> None:
        self.A = A
        self.Phi = Phi
        self.gamma = gamma
        self.q = q
        self.phi_errors = phi_errors
        self.memory = memory
        self.phi_norms = row_norms_upper(Phi)
        self._remainder_norm: float | None = None
        self.target = 0.0
        """Defect ‖T(Z) - Z‖_F at which the iteration will stop: solvers do not refine their inner problems beyond it."""

    def select(self, rows: Tensor) -> None:
        """Keep only these rows."""
        self.Phi = self.Phi[rows]
        self.phi_errors = self.phi_errors[rows]
        self.phi_norms = self.phi_norms[rows]

    def product(self, Z: Tensor, out: Tensor) -> Tensor:
        """γZA + Φ into ``out``."""
        return torch.addmm(self.Phi, Z, self.A, alpha=self.gamma, out=out)

    @cached_property
    def diagonal(self) -> Tensor:
        """Diagonal of A (m,)."""
        return self.A.diagonal().clone()

    @cached_property
    def largest_diagonal(self) -> float:
        """max |a_jj|."""
        return float(self.diagonal.abs().max())

    @cached_property
    def scale(self) -> Tensor:
        """1/(1 - γ a_jj) (m,), computed in float64; usable where ``splits``, so in every problem with γ‖A‖ < 1."""
        return (1.0 - self.gamma * self.diagonal.double()).reciprocal_().to(self.A.dtype)

    @property
    def splits(self) -> bool:
        """Whether γ a_jj < 1 for every j."""
        return bool((self.gamma * self.diagonal.double() < 1.0).all())

    def remainder(self) -> Tensor:
        """A copy of R = A - diag(A) in work space; its norm is noted on the way."""
        R = self.memory.take(self.A).copy_(self.A)
        R.fill_diagonal_(0.0)
        self._remainder_norm = matrix_norm_upper(R)
        return R

    @property
    def remainder_frobenius(self) -> float:
        """Upper bound of ‖R‖_F."""
        if self._remainder_norm is None:
            self.memory.give(self.remainder())
        assert self._remainder_norm is not None
        return self._remainder_norm

    @cached_property
    def off_diagonal(self) -> float:
        """Upper bound of ‖R‖: its Frobenius norm, or ‖A‖ + ‖diag(A)‖."""
        return min(self.remainder_frobenius, up(up(self.q / self.gamma) + self.largest_diagonal))

    @cached_property
    def absolute_norm(self) -> float:
        """Upper bound of ‖ |A| ‖: of ‖diag(A)‖ + ‖R‖_F and ‖A‖_F the smaller."""
        return min(matrix_norm_upper(self.A), up(self.largest_diagonal + self.remainder_frobenius))

    def rounding(self, Z: Tensor) -> Tensor:
        """ω (N,), float64: bounds of the row norms of fl(relu(γZA + Φ̂)) - relu(γZA + Φ), relu being exact.

        A sum over at most k nonzero terms z_il a_lj, k the number of nonzeros of row i (adding zeros is exact), and of Φ̂, and the
        roundings of γ and of its multiplication: |error| ≤ γ_{k+3}(γ|Z||A| + |Φ̂|) + underflow; one more u covers entries of A
        that became subnormal in rescaling. A zero row has none.
        """
        m = self.A.shape[0]
        # Block by block: a mask of the size of Z would be new pages each time.
        terms = torch.cat([block.sign().abs_().sum(dim=1) for block in Z.split(COUNT_ROWS)]).double()
        roundoff = product_roundoff(Z.dtype)
        # k u/(1 - k u) for each row; the factor 1 + 2⁻⁴⁰ covers the roundings of these few operations in float64.
        product = (terms + 4.0) * roundoff
        relative = torch.where(product < 1.0, product / (1.0 - product), math.inf)
        size = row_norms_upper(Z) * up(self.gamma * self.absolute_norm) + self.phi_norms
        underflow = up(math.sqrt(m) * torch.finfo(Z.dtype).tiny, 2) * (terms + 4.0)
        omega = torch.where(terms > 0, relative * size + underflow, 0.0) * (1.0 + 2.0**-40)
        return omega + self.phi_errors

    def split_rounding(self, Z: Tensor, Y: Tensor, terms: int, change: Tensor) -> Tensor:
        """Rounding (N,) of y = relu(p - γ a∘z + c)/(1 - γa) seen as the defect of y = relu(p + γ a∘(y - z) + c), plus ω(Z).

        Written as x̂ = (1 - γa) ŷ, |relu(x + γ a ŷ) - ŷ| ≤ |x̂ - x| whatever the signs, so the factor 1/(1 - γa) does not enter.
        ``terms``: further roundings of each term; ``change`` (N,): bounds of the row norms of c.
        """
        relative = accumulated(terms + 10, product_roundoff(Z.dtype))
        diagonal = up(self.gamma * self.largest_diagonal)
        omega = self.rounding(Z)
        size = (
            row_norms_upper(Z) * (self.q + diagonal) + row_norms_upper(Y) * diagonal + self.phi_norms + change + omega
        )
        underflow = up(math.sqrt(2.0 * Z.shape[1]) * (terms + 10) * torch.finfo(Z.dtype).tiny, 4)
        return (size * relative + underflow) * (1.0 + 2.0**-40) + omega
