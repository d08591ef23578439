"""Rigorous upper bounds of norms of torch tensors, on any device, in float64 or float32."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from surefoot_check.rigor.bounds import down, up

from .._linalg.norms import product_roundoff

LANCZOS_STEPS = 40
MARGINS = (1e-9, 1e-7, 1e-5, 1e-3, 3e-2)
"""Relative distances above the estimate of ‖A‖² at which the Cholesky test is tried in turn."""

LOOSE = 0.05
"""Share of 1/γ - ‖A‖ by which the bound of ‖A‖ may be loose while A is trained, as another one costs as much as an evaluation."""


def unit_roundoff(dtype: torch.dtype) -> float:
    """u of float64 or float32 (round to nearest)."""
    return 0.5 * torch.finfo(dtype).eps


@lru_cache(maxsize=1024)  # the same few at every step, where a small network takes milliseconds
def accumulated(terms: int, roundoff: float) -> float:
    """Upper bound of γ_k = ku/(1-ku), the relative error of k rounded operations; infinite from ku = 1 on."""
    product = up(terms * roundoff)
    return up(product / down(1.0 - product), 2) if product < 1.0 else math.inf


def frobenius_upper(A: Tensor) -> float:
    """Upper bound of ‖A‖_F (Euclidean norm of a vector), relative slack about 2⁻⁵² times the number of entries.

    Infinite where an entry is not finite.
    """
    A = A.detach()
    if A.numel() == 0:
        return 0.0
    norm = float(torch.linalg.vector_norm(A, dtype=torch.float64))
    if 2.0**-400 < norm < 2.0**400:
        # Squares that underflow to less than 2⁻¹⁰²² are covered by numel · 2⁻⁵⁰⁰ ≥ √(numel · 2⁻¹⁰²²), relatively negligible.
        return up(up(norm, A.numel() + 2) + A.numel() * 2.0**-500)
    largest = largest_entry(A)
    if largest == 0.0:
        return 0.0
    if not math.isfinite(largest):
        return math.inf
    exponent = math.frexp(largest)[1]
    norm = float(torch.linalg.vector_norm(shift(A.double(), -exponent)))
    return _shift_up(up(up(norm, A.numel() + 2) + A.numel() * 2.0**-500), exponent)


def stacked_upper(norms: Sequence[float]) -> float:
    """Upper bound of the norm of a matrix, Frobenius or spectral, from bounds of those of its blocks of rows; infinite where one
    of them is NaN."""
    norm = math.hypot(*norms)  # within an ulp
    return math.inf if math.isnan(norm) else up(norm, 4)


def largest_entry(A: Tensor) -> float:
    """max |a_ij| of a tensor that is not empty; NaN where an entry is NaN."""
    least, greatest = torch.aminmax(A.detach())
    return float(torch.maximum(-least, greatest))


def row_norms_upper(rows: Tensor) -> Tensor:
    """Upper bounds (N,), float64, of the Euclidean norms of the rows of ``rows`` (N, m), whose entries may carry one rounding.

    Entries are expected in the middle of the dtype's range: the allowance for squares that underflow is √(m · tiny).
    """
    m = rows.shape[1]
    info = torch.finfo(rows.dtype)
    norms = torch.linalg.vector_norm(rows, dim=1).double()
    relative, underflow = _row_norm_allowance(m, unit_roundoff(rows.dtype), info.tiny)
    return norms.mul_(relative).add_(underflow)


@lru_cache(maxsize=1024)
def _row_norm_allowance(m: int, roundoff: float, tiny: float) -> tuple[float, float]:
    return up(1.0 + 2.0 * accumulated(m + 6, roundoff), 4), up(math.sqrt(2.0 * m * tiny), 2)


def matrix_norm_upper(A: Tensor) -> float:
    """Upper bound of ‖A‖_F, A (n, m), from row norms in A's own dtype: no float64 copy, relative slack about m ulps."""
    return up(float(torch.linalg.vector_norm(row_norms_upper(A))), A.shape[0] + 4)


def product_row_errors(X: Tensor, W: Tensor) -> Tensor:
    """Upper bounds (N,), float64, of the row norms of fl(XW) - XW, for X (N, d) and W (d, m): γ_d ‖x_i‖ ‖W‖_F.

    This bounds the rounding of Φ = relu(XW), because relu is exact and 1-Lipschitz.
    """
    d, m = W.shape
    relative = accumulated(d + 2, product_roundoff(X.dtype))
    underflow = up(math.sqrt(m) * (d + 2) * torch.finfo(X.dtype).tiny, 4)
    return row_norms_upper(X).mul_(up(relative * frobenius_upper(W), 4)).add_(underflow)


def spectral_norm_upper(A: Tensor) -> float:
    """Rigorous upper bound of the spectral norm ‖A‖, A (m, n) in float64 or float32; computed in float64.

    The least of ‖A‖_F, √(‖A‖₁ ‖A‖_∞) and c', where c² I - AᵀA has a completed Cholesky factorisation: by the backward error
    of that factorisation (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., theorem 10.3; Rump, BIT 46, 2006)
    a completed factorisation RᵀR = M + ΔM of an (n, n) matrix M has ‖ΔM‖ ≤ γ_{n+1} tr(M)/(1 - γ_{n+1}), so that
    ‖A‖² ≤ c² + that + the rounding of forming M. The slack is about 10⁻⁹.

    Returns:
        The bound; infinity where A has an entry that is not finite.

    Raises:
        ValueError: A is not two-dimensional.
    """
    if A.ndim != 2:
        raise ValueError(f"A has shape {tuple(A.shape)}; it must have two dimensions")
    frobenius = frobenius_upper(A)
    if frobenius == 0.0 or not math.isfinite(frobenius) or min(A.shape) == 1:
        return frobenius
    double = A.detach().double()
    exponent = math.frexp(largest_entry(double))[1]
    scaled = shift(double, -exponent)
    magnitudes = scaled.abs()
    # Entries that underflowed in the scaling move a sum by at most (m + n) · 2⁻¹⁰⁷⁴, far below the step of `up`.
    one_norm = up(float(magnitudes.sum(0).max()), A.shape[0] + 1)
    infinity_norm = up(float(magnitudes.sum(1).max()), A.shape[1] + 1)
    mixed = up(math.sqrt(up(one_norm * infinity_norm)))
    return min(frobenius, _shift_up(mixed, exponent), _shift_up(_cholesky_bound(scaled), exponent))


def _cholesky_bound(A: Tensor) -> float:
    """The bound c' of ``spectral_norm_upper`` for a matrix with largest entry in [1/2, 1); infinity where no test succeeds."""
    if A.shape[0] < A.shape[1]:
        A = A.mT
    inner, n = A.shape
    gram = A.mT @ A
    frobenius = frobenius_upper(A)
    # ‖fl(AᵀA) - AᵀA‖ ≤ γ_k ‖A‖_F²; only one triangle is read by Cholesky, so the symmetric part costs at most twice that.
    forming = up(2.0 * accumulated(inner + 1, 2.0**-53) * up(frobenius * frobenius), 4)
    estimate = _largest_eigenvalue(gram)
    factor = accumulated(n + 2, 2.0**-53)
    for margin in MARGINS:
        shift = estimate * (1.0 + margin)
        shifted = gram.neg()
        shifted.diagonal().add_(shift)
        info = torch.linalg.cholesky_ex(shifted).info
        if int(info) == 0:
            # The diagonal was rounded once: u (shift + gram_jj) ≤ 3u shift, gram_jj being below the shift.
            backward = up(factor * up(n * shift) / down(1.0 - factor), 4)
            return up(math.sqrt(up(shift + backward + forming + 2.0**-50 * shift, 8)))
    return math.inf


def _largest_eigenvalue(gram: Tensor) -> float:
    """Estimate, from below, of the largest eigenvalue of a symmetric positive semidefinite matrix (Lanczos, fully
    orthogonalised; noise in a direction that is exhausted only spoils the estimate, not the bound)."""
    n = gram.shape[0]
    if n <= 2 * LANCZOS_STEPS:
        return float(torch.linalg.eigvalsh(gram)[-1])
    generator = torch.Generator().manual_seed(0)
    vector = torch.randn(n, generator=generator, dtype=gram.dtype).to(gram.device)
    basis = gram.new_zeros(n, LANCZOS_STEPS)
    for step in range(LANCZOS_STEPS):
        for _ in range(2):  # Gram-Schmidt, twice is enough
            vector = vector - basis[:, :step] @ (basis[:, :step].mT @ vector)
        basis[:, step] = vector / torch.linalg.vector_norm(vector).clamp_min(1e-300)
        vector = gram @ basis[:, step]
    return float(torch.linalg.eigvalsh(basis.mT @ (gram @ basis))[-1])


class NormWatch:
    """Upper bound of the spectral norm of a matrix that changes a little at a time.

    ‖A‖ ≤ ‖reference‖ + ‖A - reference‖_F, so a step costs one pass over the matrix; the spectral norm is computed again, and
    the reference moved, only once the second term has spent ``slack`` (relative to the first), or where the bound would reach
    a limit that matters to the caller.

    Args:
        A: (m, n), float64 or float32; copied.
        slack: relative looseness that is tolerated before the bound is computed again.
    """

    def __init__(self, A: Tensor, slack: float = 1e-3) -> None:
        self.slack = slack
        self.recomputed = 0
        self._set(A)

    def _set(self, A: Tensor) -> None:
        self._reference = A.detach().clone()
        self._norm = spectral_norm_upper(A)
        self.recomputed += 1

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps; ``restore`` continues from it exactly."""
        return {"reference": self._reference, "norm": torch.tensor(self._norm, dtype=torch.float64)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint."""
        self._reference, self._norm = state["reference"], float(state["norm"])

    def bound(self, A: Tensor, limit: float = math.inf, share: float = 0.0) -> float:
        """Upper bound of ‖A‖ for A of the same shape; infinity where A is not finite.

        With a ``share`` the bound may also be loose by that part of the distance of ‖A‖ from the limit.
        """
        # In float64 the difference of two float32 numbers is rounded once at most, as is that of two float64 numbers.
        moved = up(frobenius_upper(A.detach().double() - self._reference), 2)
        bound = up(self._norm + moved)
        allowed = self.slack * self._norm
        if share > 0.0:
            allowed = max(allowed, share * (limit - self._norm))
        if math.isfinite(moved) and (moved > allowed or bound >= limit) and moved > 0.0:
            self._set(A)
            return self._norm
        return bound


def shift(A: Tensor, exponent: int) -> Tensor:
    """A · 2^exponent in two steps, because 2^exponent itself may overflow; rounded only where the result is subnormal."""
    half = exponent // 2
    return (A * 2.0**half) * 2.0 ** (exponent - half)


def _shift_up(x: float, exponent: int) -> float:
    try:
        return math.nextafter(math.ldexp(x, exponent), math.inf) if exponent else x
    except OverflowError:
        return math.inf
