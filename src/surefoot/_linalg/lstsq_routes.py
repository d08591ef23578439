"""The ways to solve least-squares problems, each for a batch, and the choice among them matrix by matrix.

All of them see flat batches A (N, m, n), B (N, m, k) and ridge (N,) of moderate scale, and plain tensors, so they may branch on
data. None forms A⁺. Whether the rank is full is decided by an estimate of ‖A⁻¹‖_F (‖G⁻¹‖_F of the small Gram matrix G): for
random unit vectors v, √n·‖A⁻¹v‖ is close to it, and three of them are solved for along with the columns of B.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .info import Method, Status
from .pinv_routes import STABLE, Tolerances, norm
from .spectral import adjoint, leading

# The largest singular value is estimated from below, to within this factor in practice.
_SAFETY = 1.5
# Vectors whose solutions estimate the norm of an inverse.
_PROBES = 3
# Corrections from a Gram matrix shrink by its condition times eps each; one that shrinks less than this does not converge.
_CONTRACTS = 1e-2
_CORRECTIONS = 3
# Problems of so few operations in all are given to the singular values at once: checks would cost more.
_SMALL = 4_000


@dataclass
class Solved:
    """X (N, n, k), and rank, status, method of each matrix (N,)."""

    X: Tensor
    rank: Tensor
    status: Tensor
    method: Tensor

    def put(self, index: Tensor, part: Solved) -> None:
        """Write the results of the matrices ``index``."""
        for name, value in vars(self).items():
            value[index] = getattr(part, name)


@dataclass
class Problem:
    """min ‖AX − B‖² + ridge‖X‖², over the batch N."""

    A: Tensor
    B: Tensor
    ridge: Tensor
    tolerances: Tolerances

    def __getitem__(self, index: Tensor) -> Problem:
        return Problem(self.A[index], self.B[index], self.ridge[index], self.tolerances[index])

    def full(self, X: Tensor, method: Method) -> Solved:
        """The results of a method that takes every problem to have full rank; with a ridge every unknown is determined."""
        N, m, n = self.A.shape
        zeros = torch.zeros(N, dtype=torch.int64, device=X.device)
        rank = torch.where(self.ridge > 0, n, min(m, n))
        return Solved(X, rank, zeros, torch.full_like(zeros, int(method)))


Attempt = Callable[[Problem], tuple[Tensor, Tensor]]


def solutions(problem: Problem, damping: bool) -> Solved:
    """The solution of least norm, by the cheapest method that is accurate for each matrix; ``damping``: some ridge may be > 0."""
    N, m, n = problem.A.shape
    result = problem.full(problem.A.new_full((N, n, problem.B.shape[-1]), torch.nan), Method.NONE)
    rest = torch.arange(N, device=problem.A.device)
    attempts: list[tuple[Attempt, Method, bool, bool]] = []
    if N * m * n * min(m, n) > _SMALL:
        attempts.append((elimination, Method.LU, True, False) if m == n else (gram, Method.CHOLESKY, True, True))
        if m == n and damping:
            attempts.append((gram, Method.CHOLESKY, False, True))
        attempts.append((qr, Method.QR, True, False))
    for attempt, method, plain, damped in attempts:
        rows = rest if (plain and damped) or not damping else rest[(problem.ridge[rest] > 0) == damped]
        if rows.numel() == 0:
            continue
        part = problem if rows.numel() == N else problem[rows]
        X, good = attempt(part)
        if bool(good.all()) and rows.numel() == N:
            return problem.full(X, method)
        taken = rows[good]
        result.put(taken, problem[taken].full(X[good], method))
        left = torch.ones(N, dtype=torch.bool, device=rest.device)
        left[taken] = False
        rest = rest[left[rest]]
    if rest.numel() == N:
        return decomposition(problem)
    if rest.numel():
        result.put(rest, decomposition(problem[rest]))
    return result


@functools.lru_cache(maxsize=64)
def probes(n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Three unit vectors (n, 3) without a pattern, the same in every call."""
    index = torch.arange(n * _PROBES, dtype=torch.float64, device=device).reshape(n, _PROBES)
    values = torch.sin(1.0 + 7919.0 * torch.frac(index * 0.6180339887498949) + index.square())
    return (values / torch.linalg.vector_norm(values, dim=0)).to(dtype)


def _inverse_norm(solved: Tensor, n: int) -> Tensor:
    """Near ‖M⁻¹‖_F, from the solutions for the probes."""
    return torch.linalg.vector_norm(solved, dim=-2).amax(-1) * math.sqrt(n)


def _largest(A: Tensor) -> Tensor:
    """Near the largest singular value: two steps of the power method, from one vector, since three cost ten times as much."""
    V, H = A @ probes(A.shape[-1], A.dtype, A.device)[:, :1], adjoint(A)
    for _ in range(2):
        V = H @ V
        size = torch.linalg.vector_norm(V, dim=-2, keepdim=True)
        V = A @ (V / torch.where(size > 0, size, 1.0))
    return norm(V)


def _with_probes(B: Tensor, n: int) -> Tensor:
    """The columns of B and the probes."""
    return torch.cat((B, probes(n, B.dtype, B.device).expand(B.shape[0], n, _PROBES)), -1)


def _full_rank(problem: Problem, largest: Tensor, inverse: Tensor) -> Tensor:
    """Whether the smallest singular value counts, which is at least 1/‖A⁻¹‖_F. NaN compares false."""
    return problem.tolerances.full_rank(_SAFETY * largest.double(), 1.0 / inverse.double())


def elimination(problem: Problem) -> tuple[Tensor, Tensor]:
    """LU with partial pivoting, of square A."""
    A, B = problem.A, problem.B
    n, k = A.shape[-1], B.shape[-1]
    LU, pivots, code = torch.linalg.lu_factor_ex(A)
    both = torch.linalg.lu_solve(LU, pivots, _with_probes(B, n))
    X = both[..., :k]
    inverse = _inverse_norm(both[..., k:], n)
    unstable = norm(B - A @ X) > STABLE * torch.finfo(A.dtype).eps * (norm(A) * norm(X) + norm(B))
    return X, (code == 0) & ~unstable & _full_rank(problem, _largest(A), inverse)


def gram(problem: Problem) -> tuple[Tensor, Tensor]:
    """Cholesky of the small Gram matrix, corrected by residuals of the problem itself until rounding level.

    Forming G costs the square of the condition number; the corrections give it back as long as they shrink.
    """
    A, B, ridge = problem.A, problem.B, problem.ridge.to(problem.A.real.dtype)[:, None, None]
    (m, n), k, H = A.shape[-2:], B.shape[-1], adjoint(A)
    G = H @ A if m > n else A @ H
    largest = norm(G).sqrt()
    damped = bool((ridge > 0).any())
    if damped:
        G.diagonal(dim1=-2, dim2=-1).add_(ridge[..., 0])
    L, code = torch.linalg.cholesky_ex(G)
    both = torch.cholesky_solve(_with_probes(H @ B if m > n else B, min(m, n)), L)
    inverse = _inverse_norm(both[..., k:], min(m, n))
    # of wide A the unknown is z with X = Aᴴz, so that X stays in the row space
    Z = both[..., :k]
    X = Z if m > n else H @ Z
    eps, shrunk = torch.finfo(A.dtype).eps, torch.ones_like(inverse)
    good = code == 0
    for _ in range(_CORRECTIONS):
        r = B - A @ X
        r = H @ r if m > n else r
        D = torch.cholesky_solve(r - ridge * Z if damped else r, L)
        Z = Z + D
        D = D if m > n else H @ D
        X = X + D
        size, change = norm(X), norm(D)
        shrunk = torch.where(size > 0, change / torch.where(size > 0, size, 1.0), 0.0)
        if not bool((good & (shrunk.square() > eps)).any()):
            break
    good = good & (shrunk <= _CONTRACTS)
    return X, good & ((problem.ridge > 0) | _full_rank(problem, largest, inverse.sqrt()))


def qr(problem: Problem) -> tuple[Tensor, Tensor]:
    """A = QR, or Aᴴ = QR of wide A."""
    A, B = problem.A, problem.B
    (m, n), k = A.shape[-2:], B.shape[-1]
    Q, R = torch.linalg.qr(A if m >= n else adjoint(A))
    if m >= n:
        both = torch.linalg.solve_triangular(R, _with_probes(adjoint(Q) @ B, n), upper=True)
        X = both[..., :k]
    else:
        both = torch.linalg.solve_triangular(adjoint(R), _with_probes(B, m), upper=False)
        X = Q @ both[..., :k]
    return X, _full_rank(problem, _largest(R), _inverse_norm(both[..., k:], min(m, n)))


def decomposition(problem: Problem) -> Solved:
    """From the singular values that exceed the tolerances, whatever the ridge."""
    (m, n), ridge = problem.A.shape[-2:], problem.ridge.to(problem.A.real.dtype)
    U, S, Vh = torch.linalg.svd(problem.A, full_matrices=False)
    atol, rtol = (value.reshape(-1, 1) for value in (problem.tolerances.atol, problem.tolerances.rtol))
    kept = torch.maximum(atol, rtol * leading(S)) < S
    filtered = torch.where(kept, S / torch.where(kept, S.square() + ridge[:, None], 1.0), 0.0)
    result = problem.full(adjoint(Vh) @ (filtered.unsqueeze(-1) * (adjoint(U) @ problem.B)), Method.SVD)
    rank = kept.sum(-1)
    result.rank = torch.where(problem.ridge > 0, n, rank)
    deficient = (problem.ridge == 0) & (rank < min(m, n))
    result.status = torch.where(deficient, int(Status.RANK_DEFICIENT), int(Status.OK))
    return result
