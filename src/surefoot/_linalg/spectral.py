"""The factors A = U·diag(S)·Vᴴ of a batch, from LAPACK, or from the Gram matrix where that is faster and accurate.

**Gram route.** For k = min(m, n) rows (a tall A is transposed) let AAᴴ = PΛPᴴ, B = PᴴA and s_i = ‖row i of B‖. Then A =
PB holds to rounding whatever the error of the eigenvectors, so only the rows of B need attention: with Vh = B/s and E =
VhVhᴴ − I, ‖E‖ is about ε(s_1/s_k)² after the squaring. One Newton–Schulz step, Vh ← (I − E/2)Vh, leaves ‖VhVhᴴ − I‖ ≤
‖E‖² and moves P·diag(s)·Vh away from A by at most ‖diag(s)E‖/2. Both numbers are *measured* for each matrix; where
‖E‖²_F > kε or ‖diag(s)E‖_F > 4kεs_1 the matrix goes to LAPACK. By Weyl's inequality the same number bounds the error of
the singular values. LAPACK's own residual is .4kε to kε (Frobenius norm relative to s_1), so an accepted matrix stays
within ten times that.

So the route takes condition numbers up to a few k. Most square matrices are worse, and for those that are not it gains
little: it is for matrices at least half as long again as wide, where it takes 1/3 to 3/4 of LAPACK's time on a CPU
(``benchmarks/linalg.py``). What it would refuse shows early: A has the singular values of the Cholesky factor of AAᴴ, whose
diagonal lies between the extreme ones.

**Ties.** Where singular values agree to rounding any rotation of their singular vectors is as good. LAPACK's own choice
is often aligned with the coordinates (the identity gives U = V = I), and in such a basis a gradient shows only its
diagonal (see ``tied_pairs``). So tied vectors are turned together by one fixed reflection without zero entries, and null
vectors on each side by themselves; A does not notice.
"""

from __future__ import annotations

import math
from operator import sub

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

from . import norms
from .arguments import all_finite, largest_part, refuse_non_finite
from .info import Info, Method, Status

METHODS = ("auto", "svd")
# Condition numbers beyond this many times k are refused in any case.
_HOPELESS = 16.0
# Where it begins to save more than its checks cost.
_ROWS = 24
# So few singular values in all are looked at one by one.
_FEW = 1024


def leading(S: Tensor) -> Tensor:
    """The first of the values S (..., k), which is the largest (..., 1); 0 where there are none."""
    return S[..., :1] if S.shape[-1] else S.new_zeros((*S.shape[:-1], 1))


def rank_tolerance(S: Tensor, m: int, n: int) -> Tensor:
    """max(m, n)·ε·s_1 (..., 1): a singular value of an m×n matrix up to this is 0, as in torch.linalg.matrix_rank."""
    return max(m, n) * torch.finfo(S.dtype).eps * leading(S)


def tie_distance(dtype: torch.dtype, size: int) -> float:
    """(2√size + 6)ε, the error of computed values relative to the largest one, up to which values are tied.

    LAPACK's two values of a complex 2×2 matrix that is a multiple of a unitary one to rounding were 5ε apart. Large matrices
    of single precision have pairs this close by chance: one random matrix in 250 of size 500.
    """
    return (2.0 * math.sqrt(size) + 6.0) * torch.finfo(dtype).eps


def tie_tolerance(S: Tensor, m: int, n: int) -> Tensor:
    """The distance (..., 1) to which the singular values S (..., k) of an m×n matrix are tied."""
    return tie_distance(S.dtype, max(m, n)) * leading(S)


def adjoint(M: Tensor) -> Tensor:
    """Mᴴ, conjugated at once: under ``torch.compile`` a custom operator does not see the lazy conjugation of ``.mH``.

    ``conj_physical`` would do, but it has no rule of its own under ``vmap``.
    """
    return M.mH.resolve_conj() if M.is_complex() else M.mT


def spectral_factors(
    A: Tensor, method: str, full_matrices: bool, refuse: str = ""
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """U, S, Vh of ``A`` (..., m, n), and where the Gram route was used (...); with any strides.

    ``method`` is ``"auto"``, the Gram route where it is faster and its measured errors are acceptable, or ``"svd"``. A matrix
    with a non-finite entry gets NaN factors and does not disturb the others, or an error of the operator ``refuse``.
    """
    *batch, m, n = A.shape
    A = A.detach().resolve_conj()
    count = math.prod(batch)
    gram = torch.zeros(batch, dtype=torch.bool, device=A.device)
    by_gram = method == "auto" and _gram_pays(m, n, A.device)
    few = None if by_gram or not 0 < count * min(m, n) <= _FEW else _few(A, full_matrices)
    if few is not None and few[1]:
        return *few[0], gram
    flat, scale, finite = A if A.ndim == 3 else A.reshape(count, m, n), None, None
    if few is not None:
        U, S, Vh = (factor.reshape(count, *factor.shape[len(batch) :]) for factor in few[0])
    else:
        flat, scale, finite = _scaled(flat)
        if refuse and finite is not None:
            refuse_non_finite(A, refuse)
        if by_gram and A.numel():
            U, S, Vh = _from_gram(flat, gram.view(count), full_matrices)
        else:
            U, S, Vh = torch.linalg.svd(flat, full_matrices=full_matrices)
    U, Vh = _turn_null(*_turn_ties(U, S, Vh), S)
    if scale is not None:
        S = S * scale
    if finite is not None:
        gram = gram & finite.reshape(batch)
        U, S, Vh = (factor.where(finite.view(-1, *[1] * (factor.ndim - 1)), torch.nan) for factor in (U, S, Vh))
    if A.ndim != 3:
        U, S, Vh = (factor.reshape((*batch, *factor.shape[1:])) for factor in (U, S, Vh))
    return U, S, Vh, gram


def _few(A: Tensor, full_matrices: bool) -> tuple[tuple[Tensor, Tensor, Tensor], bool] | None:
    """LAPACK's factors of few matrices, and whether all values are clear of ties and of 0, which Python sees in less time than
    torch; None if a matrix is not finite or not of moderate scale."""
    try:
        U, S, Vh = torch.linalg.svd(A, full_matrices=full_matrices)
    except LinAlgError:
        return None
    size, eps = max(A.shape[-2:]), torch.finfo(S.dtype).eps
    distance = tie_distance(S.dtype, size)
    clear = True
    for values in [S.tolist()] if S.ndim == 1 else S.reshape(-1, S.shape[-1]).tolist():
        largest = values[0]
        # NaN compares false
        if not 2.0**-20 <= largest <= 2.0**20:
            return None
        apart = len(values) == 1 or min(map(sub, values, values[1:])) > distance * largest
        clear = clear and apart and values[-1] > size * eps * largest
    return (U, S, Vh), clear


def _gram_pays(m: int, n: int, device: torch.device) -> bool:
    """Whether the Gram route is likely to be faster: see the module's docstring; on a GPU for every shape.

    By the shape alone, so that a matrix has the same factors in every batch.
    """
    rows, columns = sorted((m, n))
    return (rows >= _ROWS and 2 * columns >= 3 * rows) or device.type != "cpu"


def _scaled(A: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """A flat batch brought to moderate scale, its scales (B, 1), and which matrices are finite (B,); 0 for the others.

    None for what no matrix needs.
    """
    if A.numel() == 0:
        return A, None, None
    largest = largest_part(A)[:, 0, 0]
    least, most = largest.aminmax()
    # NaN compares false
    if float(least) >= 2.0**-20 and float(most) <= 2.0**20:
        return A, None, None
    finite = torch.isfinite(largest)
    # a power of two: exact, and squares neither overflow nor vanish
    scale = torch.ldexp(torch.ones_like(largest), torch.frexp(largest.where(finite & (largest > 0), 1)).exponent - 1)
    return _divided(A, scale[:, None, None]).where(finite[:, None, None], 0), scale[:, None], finite


def _completed(Q: Tensor) -> Tensor:
    """Orthonormal columns completed to a basis."""
    return torch.cat((Q, torch.linalg.qr(Q, mode="complete").Q[..., Q.shape[-1] :]), -1)


def _divided(rows: Tensor, scale: Tensor) -> Tensor:
    """rows / scale, part by part: the quotient of complex numbers is lost where the square of the divisor underflows."""
    if rows.is_complex():
        return torch.view_as_complex(torch.view_as_real(rows) / scale[..., None])
    return rows / scale


def _from_gram(A: Tensor, used: Tensor, full_matrices: bool) -> tuple[Tensor, Tensor, Tensor]:
    """U, S, Vh of a scaled batch (B, m, n), from Gram matrices where these are accurate, which is written to ``used``."""
    if A.shape[-2] > A.shape[-1]:
        U, S, Vh = _from_gram(adjoint(A), used, full_matrices)
        return adjoint(Vh), S, adjoint(U)
    U, S, Vh = _wide_from_gram(A, used)
    return U, S, adjoint(_completed(adjoint(Vh))) if full_matrices and A.shape[-2] < A.shape[-1] else Vh


def _wide_from_gram(rows: Tensor, used: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same of wide matrices (B, k, n), without null vectors."""
    k = rows.shape[-2]
    # in ascending order the eigenvalues of −AAᴴ belong to descending singular values
    negative = torch.baddbmm(rows.new_empty(len(rows), k, k), rows, adjoint(rows), beta=0, alpha=-1)
    factor, code = torch.linalg.cholesky_ex(-negative)
    diagonal = factor.diagonal(dim1=-2, dim2=-1).real
    used.copy_((code == 0) & (diagonal.amax(-1) <= _HOPELESS * k * diagonal.amin(-1)))
    chosen = used.nonzero()[:, 0]
    if len(chosen) == len(rows):
        U, S, Vh, accurate = _eigenvectors(rows, negative)
        used.copy_(accurate)
    else:
        U, S, Vh = negative, diagonal, torch.empty_like(rows)
        if len(chosen):
            U[chosen], S[chosen], Vh[chosen], used[chosen] = _eigenvectors(rows[chosen], negative[chosen])
    refused = (~used).nonzero()[:, 0]
    if len(refused):
        U[refused], S[refused], Vh[refused] = torch.linalg.svd(rows[refused], full_matrices=False)
    return U, S, Vh


def _eigenvectors(rows: Tensor, negative: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """U, S, Vh of wide scaled matrices (B, k, n) from −AAᴴ, and which are accurate (B,)."""
    k, eps = rows.shape[-2], torch.finfo(rows.dtype).eps
    U = torch.linalg.eigh(negative).eigenvectors
    Vh = adjoint(U) @ rows
    sizes = torch.linalg.vector_norm(Vh, dim=-1)
    Vh.div_(sizes.where(sizes > 0, 1).unsqueeze(-1))
    E = Vh @ adjoint(Vh)
    E.diagonal(dim1=-2, dim2=-1).sub_(1)
    errors = torch.linalg.vector_norm(E, dim=-1)
    defect = torch.linalg.vector_norm(errors, dim=-1)
    residual = torch.linalg.vector_norm(sizes * errors, dim=-1)
    accurate = (defect.square() <= k * eps) & (residual <= 4 * k * eps * sizes[:, 0])
    # LAPACK's own defect is about kε
    if bool((accurate & (defect > 2 * k * eps)).any()):
        Vh = torch.baddbmm(Vh, E, Vh, alpha=-0.5)
    # norms of tied rows can be out of order by rounding
    return U, sizes.cummin(-1).values, Vh, accurate


def _turn_ties(U: Tensor, S: Tensor, Vh: Tensor) -> tuple[Tensor, Tensor]:
    """The same factors with the vectors of each group of tied nonzero singular values turned together."""
    k = S.shape[-1]
    m, n = U.shape[-2], Vh.shape[-1]
    if k < 2:
        return U, Vh
    tied = S[:, :-1] - S[:, 1:] <= tie_tolerance(S, m, n)
    if not bool(tied.any()):
        return U, Vh
    turned, reflections = tie_reflections(S, tied & (S[:, 1:] > rank_tolerance(S, m, n)), U.dtype)
    if len(turned):
        U, Vh = U.clone(), Vh.clone()
        U[turned, :, :k] = U[turned, :, :k] @ reflections
        Vh[turned, :k] = adjoint(reflections) @ Vh[turned, :k]
    return U, Vh


def tie_reflections(values: Tensor, tied: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The matrices (of a batch) that have ties, and for each the reflection I − 2vvᴴ/‖v‖² within each group of tied values.

    ``values`` (B, k) are sorted, ``tied`` (B, k − 1) says which neighbours are. (T,), (T, k, k).
    """
    turned = tied.any(-1).nonzero()[:, 0]
    if len(turned) == 0:
        return turned, turned
    tied = torch.nn.functional.pad(tied[turned], (1, 1))
    group = (~tied[:, :-1]).cumsum(-1)
    same = group[:, :, None] == group[:, None, :]
    v = _without_pattern(values.shape[-1], values, dtype) * (tied[:, :-1] | tied[:, 1:])
    size = (same * v.abs().square()[:, None, :]).sum(-1)
    reflections = -2 * same * (v[:, :, None] * v.conj_physical()[:, None, :]) / size.where(size > 0, 1)[..., None]
    reflections.diagonal(dim1=-2, dim2=-1).add_(1)
    return turned, reflections


def _without_pattern(length: int, like: Tensor, dtype: torch.dtype) -> Tensor:
    """Entries between .5 and 1.5; complex ones also turn the phases, without which imaginary parts stay hidden."""
    index = torch.arange(length, device=like.device, dtype=like.dtype)
    v = (0.5 + torch.frac(index * 0.6180339887498949 + 0.3)).to(dtype)
    return v * torch.exp(2j * torch.pi * torch.frac(index * 0.7548776662466927)) if dtype.is_complex else v


def _turn_null(U: Tensor, Vh: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
    """The same factors with the vectors of singular values 0 turned, on each side by itself within the null space."""
    if S.shape[-1] == 0:
        return U, Vh
    zero = rank_tolerance(S, U.shape[-2], Vh.shape[-1]) >= S
    turned = zero[:, -1].nonzero()[:, 0]
    if len(turned):
        U, Vh = U.clone(), Vh.clone()
        U[turned] = _reflected(U[turned], S, zero[turned])
        Vh[turned] = adjoint(_reflected(adjoint(Vh[turned]), S, zero[turned]))
    return U, Vh


def _reflected(Q: Tensor, like: Tensor, zero: Tensor) -> Tensor:
    """Orthonormal columns Q (B, m, l), those of ``zero`` (B, k) and after k reflected in the complement of the others."""
    null = torch.nn.functional.pad(zero, (0, Q.shape[-1] - zero.shape[-1]), value=True).unsqueeze(-2)
    kept = Q.masked_fill(null, 0)
    v = _without_pattern(Q.shape[-2], like, Q.dtype).unsqueeze(-1)
    # twice, because little may be left of v
    for _ in range(2):
        v = v - kept @ (adjoint(kept) @ v)
    size = v.abs().square().sum(-2, keepdim=True)
    return Q - 2 * v @ (adjoint(v) @ Q.masked_fill(~null, 0)) / size.where(size > 0, 1)


def extremes(S: Tensor) -> tuple[Tensor, Tensor]:
    """The largest and the smallest of the values S (..., k), in double precision; 0 where there are none."""
    if S.shape[-1] == 0:
        zero = S.new_zeros(S.shape[:-1], dtype=torch.float64)
        return zero, zero
    return S.double().amax(-1), S.double().amin(-1)


def values_between(S: Tensor, bound: Tensor) -> tuple[Tensor, Tensor]:
    """Upper and lower bounds of the largest and the least singular value, from values (..., k) and a bound of their error."""
    largest, smallest = extremes(S)
    return norms.up(largest + bound), (smallest - bound) * (1.0 - 2.0**-50)


def describe(
    A: Tensor,
    S: Tensor,
    in_range: Tensor,
    gram: Tensor,
    residual: Tensor,
    bound: Tensor,
    between: tuple[Tensor, Tensor] | None = None,
) -> Info:
    """The record of A (..., m, n) with singular values S (..., k), k = min(m, n), of which ``gram`` says how they were computed.

    Args:
        A, S: with the singular values as they were computed, whose precision decides the rank.
        in_range: where the values are finite if A is.
        gram: where the Gram matrix was used.
        residual, bound: of each matrix, infinite or NaN where they are not known.
        between: upper and lower bounds of the largest and the least singular value. The condition number is their quotient
            where the second is positive; elsewhere, and without them, it is s_1/s_k.
    """
    m, n = A.shape[-2:]
    largest, smallest = extremes(S)
    finite = all_finite(A)
    rank = (rank_tolerance(S, m, n) < S).sum(-1)
    status = torch.where(rank == S.shape[-1], int(Status.OK), int(Status.RANK_DEFICIENT))
    status = torch.where(in_range, status, int(Status.OUT_OF_RANGE))
    whole = torch.zeros_like(rank)
    known = finite & (smallest > 0) & (largest < torch.inf)
    condition = largest / torch.where(smallest > 0, smallest, 1.0)
    if between is not None:
        most, least = between
        condition = torch.where(least > 0, norms.up(most / torch.where(least > 0, least, 1.0)), condition)
    return Info(
        status=torch.where(finite, status, int(Status.NON_FINITE)),
        rank=torch.where(finite, rank, whole),
        iterations=whole,
        residual=residual.nan_to_num(nan=torch.inf, posinf=torch.inf),
        error_bound=torch.where(finite, bound, torch.inf).nan_to_num(nan=torch.inf, posinf=torch.inf),
        condition=torch.where(known, condition, torch.inf),
        method_code=torch.where(finite, torch.where(gram, int(Method.GRAM), int(Method.SVD)), int(Method.NONE)),
    )
