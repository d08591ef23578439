"""The polar factor by matrix products alone, in the precision of the matrix: for optimisers and fast multiplying hardware.

With G = XXᴴ on the small side, X ← (c_0 I + c_1 G + c_2 G² + …)X applies the odd polynomial c_0 x + c_1 x³ + … to the
singular values of X and leaves its singular vectors as they are. The polynomials are those of ``odd_polynomials``, for
singular values in [l, 1]. A singular value of A below l comes out between 0 and 1, a zero as zero: ranks do not rise.

**Scale.** The polynomials explode above 1, so that A is divided by an upper bound of its norm. The first step needs G and
G², and ‖G²‖_F^¼ is such a bound, at most k^⅛ above the norm where ‖A‖_F is up to k^½ above it, k = min(m, n): one or
two steps are saved. What rounding can have taken from it is added, by the bounds for products with accumulation in float32 or
better. The scale is a constant to derivatives; at the exact polar factor they do not depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from . import norms, odd_polynomials
from .arguments import COMPUTED, HALF, double_dtype, isolated, matrix_argument, power_of_two_scale
from .info import Info, Method, Status
from .odd_polynomials import Coefficients, PolarSteps
from .operator import constant, own_precision
from .spectral import adjoint

DEGREES = (3, 5, 7)


def orthogonalize(A: Tensor, *, lower: float = 1e-3, steps: int | None = None, degree: int = 5) -> Tensor:
    """The nearest matrix with orthonormal rows (m ≤ n) or columns (m ≥ n) by products alone, in the precision of A.

    A = Σ s_i u_i v_iᴴ becomes Σ p(s_i) u_i v_iᴴ, p a composition of odd polynomials of the given degree that is as near to 1 as
    can be for s_i in [lower·‖A‖, ‖A‖]: ``orthogonalize_steps`` gives them, and a proved bound of |p − 1| there. Below, p lies
    between 0 and 1: a matrix of deficient rank keeps its rank, and zero stays zero. ``polar`` is for when all singular
    values matter, or H; on a CPU it is about as fast in float32.

    Nothing here looks at values: no synchronisation on a GPU, and every transform of torch applies. The derivative is that of
    the polynomial, with the scale of A held constant. A non-finite matrix gives NaN (``orthogonalize_ex`` says so).

    Args:
        A: (..., m, n). Half precision is multiplied as it is where there are fast products for it, otherwise in float32.
        lower: least singular value that is to become 1, relative to ‖A‖: in (0, 1); it is rounded down to a power of 2^⅛.
        steps: how many polynomials; as many as the precision of A can use if None.
        degree: 3, 5 or 7; (degree + 1)/2 products a step.

    Returns:
        U (..., m, n), of A's dtype.

    Raises:
        TypeError, ValueError: A is no batch of floating-point matrices; another argument is out of its range.

    Source:
        Amsel, Persson, Musco and Gower, The Polar Express (arXiv 2505.16932, 2025), with coefficients computed for ``lower``
        and the precision.

    Example:
        >>> G = torch.randn(8, 4)  # say, the momentum of a weight
        >>> U = sf.linalg.orthogonalize(G)
        >>> torch.allclose(U.T @ U, torch.eye(4), atol=1e-4)
        True
        >>> sf.linalg.orthogonalize(torch.zeros(3, 3)).any()  # no rank is made up
        tensor(False)
    """
    return _orthogonalize(A, lower, steps, degree)[0]


def orthogonalize_ex(
    A: Tensor, *, lower: float = 1e-3, steps: int | None = None, degree: int = 5
) -> tuple[Tensor, Info]:
    """``orthogonalize`` with a record of each matrix.

    ``residual`` is an upper bound of ‖UᴴU − I‖ (‖UUᴴ − I‖ for m < n) of the returned U, rounding included: no singular
    value of U is further from 1. ``status`` is ``NOT_CONVERGED`` where it is above 2δ + δ² + 8εk^¼, δ the proved error of the
    steps, k = min(m, n), and above its own rounding. ``rank`` is k where it is not, otherwise ‖U‖²_F, rounded. No bound of the
    distance to the polar factor of A is given.

    Raises:
        TypeError, ValueError: as ``orthogonalize``.

    Example:
        >>> A = torch.diag_embed(torch.tensor([[1.0, 0.1], [1.0, 1e-9]]))
        >>> U, info = sf.linalg.orthogonalize_ex(A, lower=1e-3)
        >>> info, info.rank.tolist()  # of singular values below lower·‖A‖ not all reach 1
        (Info(1 ok, 1 not_converged, ...), [2, 1])
    """
    U, plan = _orthogonalize(isolated(matrix_argument(A)), lower, steps, degree)
    return U, _info(A.detach(), U.detach(), plan)


def orthogonalize_steps(
    lower: float = 1e-3, dtype: torch.dtype = torch.bfloat16, *, steps: int | None = None, degree: int = 5
) -> PolarSteps:
    """The polynomials for singular values in [lower, 1], for one's own kernels, and the interval that each of them leaves.

    Every interval is widened by 2ε of the dtype before a step; the ends are proved in rational arithmetic, for exact products.

    Args:
        lower: in (0, 1).
        dtype: the precision of the products.
        steps: how many; as many as bring |σ − 1| under 4ε if None.
        degree: 3, 5 or 7.

    Returns:
        ``coefficients``, ``intervals`` and ``error``, the largest |σ − 1| at the end.

    Raises:
        TypeError, ValueError: an argument is out of its range.

    Example:
        >>> steps = sf.linalg.orthogonalize_steps(1e-3, torch.bfloat16)
        >>> len(steps.coefficients), steps.error < 0.0034  # |σ − 1| for every σ in [1e-3, 1]
        (6, True)
    """
    if dtype not in COMPUTED + HALF:
        raise TypeError(f"dtype is {dtype}: choose one of {', '.join(str(d) for d in COMPUTED + HALF)}")
    _check(lower, steps, degree)
    return odd_polynomials.compose(float(lower), torch.finfo(dtype).eps, degree, steps)


def _check(lower: float, steps: int | None, degree: int) -> None:
    if degree not in DEGREES:
        raise ValueError(f"degree is {degree!r}; choose one of {', '.join(map(str, DEGREES))}")
    if isinstance(lower, bool) or not isinstance(lower, int | float):
        raise TypeError(f"lower is {lower!r}: it must be a number between 0 and 1")
    if not 1e-15 <= lower < 1.0:
        raise ValueError(f"lower is {lower}: it must be below 1 and at least 1e-15; it is relative to the norm of A")
    if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int)):
        raise TypeError(f"steps is {steps!r}: it must be an integer, or None for as many as the precision can use")
    if steps is not None and not 1 <= steps <= odd_polynomials.LIMIT:
        raise ValueError(f"steps is {steps}: it must be between 1 and {odd_polynomials.LIMIT}")


@own_precision
def _orthogonalize(A: Tensor, lower: float, steps: int | None, degree: int) -> tuple[Tensor, PolarSteps]:
    matrix_argument(A)
    _check(lower, steps, degree)
    m, n = A.shape[-2:]
    dtype = product_dtype(A.device.type, A.dtype)
    # ‖G²‖_F^¼ is up to k^⅛ above the norm
    eighths = _logarithm(1.0 / lower, 2.0**0.125) + _logarithm(min(m, n), 2.0)
    plan = _plan(eighths, torch.finfo(A.dtype).eps, degree, steps)
    if A.numel() == 0:
        return A.clone(), plan
    X = A.reshape(-1, m, n)
    X = _iterated(*_scaled(X if m <= n else X.mH, dtype), plan.coefficients)
    X = X if m <= n else adjoint(X)
    return X.reshape(A.shape).to(A.dtype), plan


def _logarithm(x: float, base: float) -> int:
    """The least r ≥ 0 with x ≤ base^r, by comparisons: ``torch.compile`` takes them for guards, and r for a constant."""
    r = 0
    while base**r < x:
        r += 1
    return r


@constant
def _plan(eighths: int, eps: float, degree: int, steps: int | None) -> PolarSteps:
    """For singular values from 2^(−eighths/8) on."""
    return odd_polynomials.compose(2.0 ** (-eighths / 8), eps, degree, steps)


@constant
def product_dtype(device: str, dtype: torch.dtype) -> torch.dtype:
    """The precision of the products of matrices of this dtype: float32 for half precision on a processor without such products.

    There torch multiplies half precision up to forty times slower than float32.
    """
    return torch.float32 if device == "cpu" and dtype in HALF and not _multiplied(dtype) else dtype


@cache
def _multiplied(dtype: torch.dtype) -> bool:
    return bool(getattr(torch.ops.mkldnn, f"_is_mkldnn_{'bf16' if dtype is torch.bfloat16 else 'fp16'}_supported")())


def _scaled(A: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """X = A/s (b, k, n) in the precision of the products, s an upper bound of ‖A‖, XXᴴ and its square."""
    k = A.shape[-2]
    wide = A.to(torch.promote_types(A.dtype, torch.float32))
    with torch.no_grad():
        scale = power_of_two_scale(wide, always=True)
        scale = 1.0 if scale is None else scale
        size = norms.frobenius(wide * scale)[:, None, None].to(wide.real.dtype) / k**0.25
        inverse = _inverse(size, wide)
    # ‖X‖_F = k^¼: the diagonal of G² is about 1/k, which half precision neither loses nor overflows
    X = (wide * scale * inverse).to(dtype)
    G = X @ X.mH
    square = G @ G
    with torch.no_grad():
        inverse = _inverse(_norm(X, G, square)[:, None, None], X)
    return X * inverse, G * inverse**2, square * inverse**2 * inverse**2


def _norm(X: Tensor, G: Tensor, square: Tensor) -> Tensor:
    """An upper bound of ‖X‖ from G = fl(XXᴴ) and fl(G²), both rounded to their dtype after accumulation; float64."""
    unit = torch.finfo(X.dtype).eps / 2
    accumulated = torch.float32 if X.dtype in HALF else X.dtype
    total, size = norms.frobenius(X), norms.frobenius(G)
    of_gram = norms.product_rounding(X.shape[-1], accumulated) * total**2 + 2 * unit * size
    of_square = norms.product_rounding(G.shape[-1], accumulated) * size**2
    bound = norms.up(((norms.frobenius(square) * (1 + 2 * unit) + of_square).sqrt() + of_gram).sqrt())
    return torch.fmin(total, bound)


def _inverse(size: Tensor, X: Tensor) -> Tensor:
    """1/size in the real precision of X, 1 where the size is 0."""
    return torch.where(size == 0, 1.0, size).reciprocal().to(X.real.dtype)


def _iterated(X: Tensor, G: Tensor, square: Tensor | None, rows: Sequence[Coefficients]) -> Tensor:
    """All steps on X (b, k, n), with XXᴴ and its square of the first.

    Where n ≥ 2k two steps at a time, apart from the last, are made on G, which is cheaper than X. Half precision has too few
    digits for that: G of the second step, computed from that of the first, may get negative eigenvalues.
    """
    paired = X.dtype in COMPUTED and X.shape[-1] >= 2 * X.shape[-2]
    index = 0
    while index < len(rows):
        if index:
            G, square = X @ X.mH, None
        first, P = rows[index][0], _polynomial(rows[index], G, square)
        index += 1
        if paired and index + 1 < len(rows):
            # p_1(G)G, then p_1(G)Gp_1(G), then p_2p_1 apart from its multiple of I
            G = torch.baddbmm(G, P, G, beta=first)
            second, following = rows[index][0], _polynomial(rows[index], torch.baddbmm(G, G, P, beta=first))
            P = torch.baddbmm(second * P + first * following, following, P)
            first *= second
            index += 1
        X = torch.baddbmm(X, P, X, beta=first)
    return X


def _polynomial(row: Coefficients, G: Tensor, square: Tensor | None = None) -> Tensor:
    """c_1 G + c_2 G² + … by Horner's rule; ``square`` is G² where it is known."""
    *rest, last = row[1:]
    total, factor = G, last
    if square is not None and rest:
        total, factor = rest.pop() * G + last * square, 1.0
    for c in reversed(rest):
        total, factor = torch.baddbmm(G, G, total, beta=c, alpha=factor), 1.0
    return total if factor == 1.0 else factor * total


def _info(A: Tensor, U: Tensor, plan: PolarSteps) -> Info:
    m, n = A.shape[-2:]
    k = min(m, n)
    V = U.to(double_dtype(U.dtype))
    V = V if m <= n else V.mH
    identity = torch.eye(k, dtype=V.dtype, device=V.device)
    total = norms.frobenius(V)
    rounding = norms.product_rounding(max(n, m), V.dtype) * (total**2 + k**0.5)
    residual = norms.up(norms.spectral(V @ V.mH - identity) + rounding)
    finite = torch.isfinite(A).all(-1).all(-1)
    residual = torch.where(finite, residual, torch.inf).nan_to_num(nan=torch.inf, posinf=torch.inf)
    level = rounding + plan.error * (2.0 + plan.error) + 8.0 * torch.finfo(U.dtype).eps * k**0.25
    converged = residual <= level
    status = torch.where(converged, int(Status.OK), int(Status.NOT_CONVERGED))
    rank = torch.where(converged, k, total.square().nan_to_num(0.0, 0.0).round().to(torch.int64))
    unknown = torch.full_like(residual, torch.inf)
    return Info(
        status=torch.where(finite, status, int(Status.NON_FINITE)),
        rank=torch.where(finite, rank, 0),
        iterations=torch.full_like(rank, len(plan.coefficients)),
        residual=residual,
        error_bound=unknown,
        condition=unknown,
        method_code=torch.where(finite, int(Method.PRODUCTS), int(Method.NONE)),
    )
