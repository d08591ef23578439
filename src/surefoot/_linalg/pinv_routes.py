"""The ways to compute A⁺ of a wide or square matrix, each for a batch, and the choice among them matrix by matrix.

All of them see a flat batch A (B, m, n) with m ≤ n of moderate scale (``pseudoinverse`` sees to that), and plain tensors, so
they may branch on data.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from . import norms
from .info import Method, Status
from .operator import may_branch
from .pinv_iteration import iterate
from .spectral import adjoint

# Refinement squares the residual: from below a tenth two or three steps reach rounding level.
_REFINABLE = 0.1
_REFINEMENTS = 3
# The residual of a stable elimination is a small multiple of eps ‖A‖_F‖X‖_F (of eps ‖B‖_F too, for a right side B).
STABLE = 10.0
# What an iteration calls converged satisfies XAX = X to this part of X: a singular value is not half inverted.
_PROJECTOR = 0.1
# Norms in working precision are good to this factor.
_OUTWARD = 1.01
# Products of so few operations in all cost less than the checks of the faster methods.
SMALL = 20_000


@dataclass
class Computed:
    """X = A⁺ (B, n, m), Y = XᴴX (B, m, m; empty where m = n), and what is known of each matrix, all over the batch B."""

    X: Tensor
    Y: Tensor
    status: Tensor
    rank: Tensor
    iterations: Tensor
    condition: Tensor
    method: Tensor

    @classmethod
    def empty(cls, A: Tensor) -> Computed:
        """Room for the results of A: NaN, rank 0, no method."""
        B, m, n = A.shape
        Y = A.new_full((B, m, m), torch.nan) if m < n else no_gram(A)
        condition = torch.full((B,), torch.inf, dtype=torch.float64, device=A.device)
        return full(A, A.new_full((B, n, m), torch.nan), Y, Method.NONE, condition, rank=0)

    def select(self, index: Tensor) -> Computed:
        """The results of the matrices ``index``."""
        return Computed(**{name: value[index] for name, value in vars(self).items()})

    def put(self, index: Tensor, part: Computed) -> None:
        """Write the results of the matrices ``index``."""
        for name, value in vars(self).items():
            value[index] = getattr(part, name)


@dataclass
class Tolerances:
    """A singular value counts when it exceeds max(atol, rtol σ_1); float64, over the batch B or one for all."""

    atol: Tensor
    rtol: Tensor

    def __getitem__(self, index: Tensor) -> Tolerances:
        return Tolerances(*(value[index] if value.ndim else value for value in (self.atol, self.rtol)))

    def full_rank(self, largest: Tensor, smallest: Tensor) -> Tensor:
        """Whether σ_m counts, from an upper bound of σ_1 and a lower bound of σ_m. NaN compares false."""
        return smallest > _OUTWARD * torch.maximum(self.atol, self.rtol * largest)


def full(A: Tensor, X: Tensor, Y: Tensor, method: Method, condition: Tensor, rank: int | None = None) -> Computed:
    """The results of a method that takes every matrix to have full rank."""
    integers = torch.zeros(A.shape[:-2], dtype=torch.int64, device=A.device)
    return Computed(
        X=X,
        Y=Y,
        status=integers,
        rank=torch.full_like(integers, A.shape[-2] if rank is None else rank),
        iterations=torch.zeros_like(integers),
        condition=condition,
        method=torch.full_like(integers, method),
    )


def no_gram(A: Tensor) -> Tensor:
    """What stands for Y where it is not needed: an empty matrix for each of the batch."""
    return A.new_empty(*A.shape[:-2], 0, 0)


def norm(A: Tensor) -> Tensor:
    """‖A‖_F of each matrix, in working precision."""
    return torch.linalg.vector_norm(A, dim=(-2, -1))


@dataclass
class Attempt:
    """The result of a method that takes every matrix to have full rank, and what decides whether it may: over the batch B."""

    result: Computed
    residual: Tensor
    """‖I − AX‖_F, or its size in practice; infinite where the method broke down"""
    norm_A: Tensor
    norm_X: Tensor

    @classmethod
    def of(
        cls, method: Method, A: Tensor, X: Tensor, Y: Tensor | None, residual: Tensor, norm_A: Tensor, norm_X: Tensor
    ) -> Attempt:
        """The attempt with the condition number that the two norms bound."""
        Y = no_gram(A) if Y is None or A.shape[-2] == A.shape[-1] else Y
        return cls(full(A, X, Y, method, (norm_A * norm_X).double()), residual, norm_A, norm_X)


def lu(A: Tensor) -> Attempt:
    """A⁻¹ of square A by elimination with partial pivoting."""
    X, code = torch.linalg.inv_ex(A)
    norm_A, norm_X = norm(A), norm(X)
    rho = norm(torch.eye(A.shape[-1], dtype=A.dtype, device=A.device) - A @ X)
    # pivots that grow (Wilkinson's matrix) show as a residual beyond that of a stable elimination
    stable = (code == 0) & (rho <= STABLE * torch.finfo(A.dtype).eps * norm_A * norm_X)
    return Attempt.of(Method.LU, A, X, None, torch.where(stable, rho, torch.inf), norm_A, norm_X)


def cholesky(A: Tensor) -> Attempt:
    """X = AᴴG⁻¹, G = AAᴴ, refined.

    Forming G costs the square of the condition number; X + X(I − AX) gives it back as long as the residual is small.
    """
    factor, code = torch.linalg.cholesky_ex(A @ adjoint(A))
    identity = torch.eye(A.shape[-2], dtype=A.dtype, device=A.device)
    failed = code != 0
    if bool(failed.any()):
        # cholesky_inverse raises on a zero of the diagonal
        factor[failed] = identity
    Y = torch.cholesky_inverse(factor)
    X = adjoint(A) @ Y
    norm_A = norm(A)
    # the residual that squares to the rounding error of X, eps κ
    enough = (torch.finfo(A.dtype).eps * norm_A * norm(X)).sqrt()
    for step in range(_REFINEMENTS):
        R = identity - A @ X
        rho = norm(R)
        X = torch.baddbmm(X, X, R)
        Y = torch.baddbmm(Y, Y, R)
        # NaN compares false on both sides
        if step == _REFINEMENTS - 1 or not bool(((rho > enough) & (rho < _REFINABLE)).any()):
            break
    # the residual after the last refinement is about ρ²
    good = ~failed & (rho < _REFINABLE)  # pyright: ignore[reportPossiblyUnboundVariable]
    residual = torch.where(good, rho**2, torch.inf)  # pyright: ignore[reportPossiblyUnboundVariable]
    return Attempt.of(Method.CHOLESKY, A, X, Y, residual, norm_A, norm(X))


def qr(A: Tensor) -> Attempt:
    """Aᴴ = QR, X = QR⁻ᴴ."""
    Q, R = torch.linalg.qr(adjoint(A))
    identity = torch.eye(A.shape[-2], dtype=A.dtype, device=A.device)
    inverse = torch.linalg.solve_triangular(R, identity, upper=True)
    X = Q @ adjoint(inverse)
    norm_A, norm_X = norm(R), norm(inverse)
    residual = norm_A * norm_X * torch.finfo(A.dtype).eps
    return Attempt.of(Method.QR, A, X, inverse @ adjoint(inverse), residual, norm_A, norm_X)


def decomposition(A: Tensor, tolerances: Tolerances, hermitian: bool) -> Computed:
    """A⁺ from the singular values (the eigenvalues of Hermitian A) that exceed the tolerances."""
    m, n = A.shape[-2:]
    if hermitian:
        values, left = torch.linalg.eigh(A)
        sigma = values.abs()
        right, largest = left * values.sgn().unsqueeze(-2), sigma.amax(-1, keepdim=True)
    else:
        left, sigma, right = torch.linalg.svd(A, full_matrices=False)
        right, largest = adjoint(right), sigma[..., :1]
    atol, rtol = (value.unsqueeze(-1) if value.ndim else value for value in (tolerances.atol, tolerances.rtol))
    kept = sigma > torch.maximum(atol, rtol * largest)
    reciprocal = torch.where(kept, sigma.reciprocal(), 0.0)
    half = adjoint(left * reciprocal.unsqueeze(-2))
    rank = kept.sum(-1)
    return Computed(
        X=right @ half,
        Y=adjoint(half) @ half if m < n else no_gram(A),
        status=(rank < m).long() * Status.RANK_DEFICIENT,
        rank=rank,
        iterations=torch.zeros_like(rank),
        condition=(largest.squeeze(-1) * reciprocal.amax(-1)).double(),
        method=torch.full_like(rank, Method.EIGH if hermitian else Method.SVD),
    )


def iteration(A: Tensor, upper: Tensor, ratio: float, order: int, limit: int) -> Computed:
    """The polynomial iteration (``pinv_iteration.iterate``). Any rank, and differentiable as it is written."""
    m, n = A.shape[-2:]
    X, iterations, converged = iterate(A, upper, ratio, order, limit)
    AX = A @ X
    # AX is a projector to within the residual, and the rank its trace
    trace = AX.detach().diagonal(dim1=-2, dim2=-1).sum(-1).real
    rank = torch.where(trace.isfinite(), trace, 0).round().long().clamp(0, m)
    # XAX = X without what has grown outside the range of A: rounding errors, and singular values below those that count
    excess = X - X @ AX
    converged = converged & ~(norm(excess.detach()) > _PROJECTOR * norm(X.detach()))
    deficient = converged & (rank < m)
    if not may_branch(deficient) or bool(deficient.any()):
        X = torch.where(deficient[..., None, None], X - excess, X)
    Y = adjoint(X) @ X
    condition = norm(A.detach()) * norm(X.detach())
    result = full(A, X, Y if m < n else no_gram(A), Method.CHEBYSHEV if ratio else Method.ITERATION, condition.double())
    result.rank = rank
    result.iterations = iterations
    status = torch.where(result.rank == m, Status.OK, Status.RANK_DEFICIENT)
    result.status = torch.where(converged, status, Status.NOT_CONVERGED)
    return result


def pseudoinverse(A: Tensor, tolerances: Tolerances, hermitian: bool, method: str) -> Computed:
    """A⁺ by the named direct method, or by the cheapest that is accurate for each matrix (``"auto"``)."""
    m, n = A.shape[-2:]
    small = method == "auto" and A.shape[0] * m * m * n <= SMALL
    if small or method in ("svd", "eigh"):
        return decomposition(A, tolerances, hermitian)
    result = Computed.empty(A)
    rest = torch.arange(A.shape[0], device=A.device)
    if method == "auto":
        attempts = (lu,) if m == n else (cholesky, qr)
    else:
        attempts = ({"lu": lu, "cholesky": cholesky, "qr": qr}[method],)
    for attempt in attempts:
        part = A if rest.numel() == A.shape[0] else A[rest]
        trial = attempt(part)
        computed, good = trial.result, _verified(part, trial, tolerances[rest])
        if bool(good.all()):
            if rest.numel() == A.shape[0]:
                return computed
            result.put(rest, computed)
            return result
        taken = good.nonzero().squeeze(-1)
        result.put(rest[taken], computed.select(taken))
        rest = rest[~good]
    if method == "auto":
        result.put(rest, decomposition(A[rest], tolerances[rest], hermitian))
    else:
        result.status[rest] = Status.INACCURATE
    return result


def _verified(A: Tensor, trial: Attempt, tolerances: Tolerances) -> Tensor:
    """Whether A certainly has full rank to the tolerances: σ_m ≥ (1 − ρ)/‖X‖ (docs/theorems/inverse.md, Theorem 6)."""
    room = 1.0 - trial.residual
    good = tolerances.full_rank(trial.norm_A, room / trial.norm_X)
    if bool(good.all()):
        return good
    doubtful = (~good & trial.residual.isfinite()).nonzero().squeeze(-1)
    if doubtful.numel():
        # the Frobenius norm exceeds the spectral norm by up to the root of m, the bound by the Gram matrix by its fourth root
        smallest = room[doubtful] / norms.spectral(trial.result.X[doubtful])
        good[doubtful] = tolerances[doubtful].full_rank(norms.spectral(A[doubtful]), smallest)
    return good
