"""``svd_lowrank`` and ``svd_lowrank_ex``: the largest singular values by random subspace iteration, with a bound of what is cut.

Let P (m×l) and W (l×n) have nearly orthonormal columns and rows, and PᴴA = diag(s)W + G with a measured G. The l largest singular
values of A are at least those of PᴴA over ‖P‖, and by Ostrowski's and Weyl's inequalities

    σ_i(A) ≥ (s_i(1 − ‖WWᴴ − I‖) − ‖G‖)/(1 + ‖PᴴP − I‖)^½,

so that no matrix of rank k is nearer to A than the root of the sum of squares of these from k + 1 to l.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import norms
from .arguments import all_finite, compute_dtype, double_dtype, matrix_argument, power_of_two_scale, refuse_non_finite
from .info import Info, Method, Status
from .operator import apply, batch_first, may_branch, own_precision, plain_eager
from .spectral import adjoint

_OK, _DEFICIENT, _NON_FINITE = int(Status.OK), int(Status.RANK_DEFICIENT), int(Status.NON_FINITE)


class LowRank(NamedTuple):
    """U·diag(S)·Vh near A, and how near."""

    U: Tensor
    """(..., m, k)"""
    S: Tensor
    """(..., k), descending"""
    Vh: Tensor
    """(..., k, n)"""
    cut: Tensor
    """(...), float64: an upper bound of ‖A − U·diag(S)·Vh‖_F, rounding included"""
    least: Tensor
    """(...), float64: a lower bound of ‖A − M‖_F over all matrices M of rank k"""


def svd_lowrank(
    A: Tensor,
    rank: int,
    *,
    oversampling: int = 10,
    iterations: int = 2,
    generator: torch.Generator | None = None,
) -> LowRank:
    """The ``rank`` largest singular values and their vectors: ``torch.svd_lowrank``, with what was cut and what had to be.

    From ``rank + oversampling`` random vectors by ``iterations`` steps of orthogonalised subspace iteration, and from all
    singular values where that many vectors span everything. The result is random only through the vectors: the same in every
    call, or drawn from ``generator``. Whether it is good enough is not promised but measured: compare ``cut`` with ``least``,
    and take more iterations where they differ. Some of their distance remains where many singular values beyond rank +
    oversampling are not small, since ``least`` does not see these.

    There is no derivative: that of singular vectors involves all that was cut. A backward pass raises NotImplementedError; for
    gradients cut the factors of ``svd``, or pass A.detach().

    Args:
        A: (..., m, n); float16 and bfloat16 are computed in float32.
        rank: from 1 to min(m, n).
        oversampling, iterations: at least 0.
        generator: of the random vectors; None for the same ones in every call.

    Raises:
        torch.linalg.LinAlgError: an entry is infinite or NaN; the message names the matrix (``svd_lowrank_ex`` does not raise).
        TypeError, ValueError: for other arguments.

    Source:
        Halko, Martinsson and Tropp, SIAM Review 53 (2011), algorithms 4.4 and 5.1; the bounds follow from
        Ostrowski's and Weyl's inequalities.

    Example:
        >>> A = torch.randn(40, 3) @ torch.randn(3, 30) + 1e-3 * torch.randn(40, 30)
        >>> low = sf.linalg.svd_lowrank(A, 3)
        >>> bool(low.cut < 1.5 * low.least)  # proved: hardly any M of rank 3 is nearer
        True
    """
    value, finite, *_ = _computed(A, rank, oversampling, iterations, generator)
    if may_branch(finite) and not bool(finite.all()):
        refuse_non_finite(A, "svd_lowrank")
    return value


def svd_lowrank_ex(
    A: Tensor,
    rank: int,
    *,
    oversampling: int = 10,
    iterations: int = 2,
    generator: torch.Generator | None = None,
) -> tuple[LowRank, Info]:
    """``svd_lowrank`` with an ``Info``, and without exceptions for the values of A: a matrix that is not finite has NaN factors.

    ``residual`` is ``cut``/‖A‖_F; ``error_bound`` bounds the spectral norm ‖A − U·diag(S)·Vh‖, which cannot be below the
    singular value number rank + 1; ``rank`` counts the returned singular values above max(m, n)·ε·s_1, ``RANK_DEFICIENT`` where
    not all do; ``condition`` is s_1/s_k; ``iterations`` is 0 where all singular values were computed.

    Raises:
        TypeError, ValueError: as ``svd_lowrank``.

    Example:
        >>> low, info = sf.linalg.svd_lowrank_ex(torch.ones(5, 4), 2)
        >>> info, info.rank.item(), bool(info.residual < 1e-5)
        (Info(rank_deficient, ...), 1, True)
    """
    value, finite, spectral, total, exact = _computed(A, rank, oversampling, iterations, generator)
    S = value.S.detach().double()
    tolerance = max(A.shape[-2:]) * torch.finfo(compute_dtype(A.dtype)).eps * S[..., :1]
    count = (tolerance < S).sum(-1)
    status = torch.where(count == rank, _OK, _DEFICIENT)
    positive = finite & (S[..., -1] > 0)
    whole = torch.zeros_like(count)
    return value, Info(
        status=torch.where(finite, status, _NON_FINITE),
        rank=torch.where(finite, count, 0),
        iterations=whole + (0 if exact else iterations),
        residual=torch.where(finite, torch.where(total > 0, value.cut / total, 0.0), torch.inf),
        error_bound=torch.where(finite, spectral, torch.inf),
        condition=torch.where(positive, S[..., 0] / torch.where(positive, S[..., -1], 1.0), torch.inf),
        method_code=torch.where(finite, int(Method.SVD if exact else Method.ITERATION), int(Method.NONE)),
    )


@own_precision
def _computed(
    A: Tensor, rank: int, oversampling: int, iterations: int, generator: torch.Generator | None
) -> tuple[LowRank, Tensor, Tensor, Tensor, bool]:
    """The value; of each matrix whether it is finite, a bound of the spectral norm of what is cut, ‖A‖_F; whether it is exact."""
    most = min(matrix_argument(A).shape[-2:])
    if not isinstance(rank, int) or not 1 <= rank <= most:
        raise ValueError(f"rank is {rank!r}: it must be an integer from 1 to min(m, n) = {most}")
    for name, number in (("oversampling", oversampling), ("iterations", iterations)):
        if not isinstance(number, int) or number < 0:
            raise ValueError(f"{name} is {number!r}: it must be an integer, at least 0")
    if not (generator is None or isinstance(generator, torch.Generator)):
        raise TypeError(
            f"generator is {generator!r}: it must be a torch.Generator, or None for the same vectors in every call"
        )
    seed = 0 if generator is None else int(torch.randint(2**62, (), generator=generator, device=generator.device))
    count = min(rank + oversampling, most)
    work = A.to(compute_dtype(A.dtype))
    scale = power_of_two_scale(work, always=not may_branch(work))
    scaled = work if scale is None else work * scale
    P, s, W = apply(_LowRank, _CompiledLowRank, scaled, count, iterations, seed)
    S = s[..., :rank] if scale is None else s[..., :rank] / scale[..., 0]
    U, S, Vh = (
        factor.to(dtype) for factor, dtype in ((P[..., :rank], A.dtype), (S, A.real.dtype), (W[..., :rank, :], A.dtype))
    )
    factor = (
        torch.ones(A.shape[:-2], dtype=torch.float64, device=A.device) if scale is None else scale[..., 0, 0].double()
    )
    finite = all_finite(scaled)
    cut, spectral, least = _bounds(*(M.detach() for M in (scaled, U, S.double() * factor[..., None], Vh, P, s, W)))
    total = norms.frobenius(scaled.detach())
    cut, spectral, total = (norms.unscaled(value, factor) for value in (cut, spectral, total))
    least = norms.unscaled(least, factor, lower=True)
    cut, least = (torch.where(finite, value, torch.nan) for value in (cut, least))
    return LowRank(U, S, Vh, cut, least), finite, spectral, total, count == most


def _bounds(
    A: Tensor, U: Tensor, S: Tensor, Vh: Tensor, P: Tensor, s: Tensor, W: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Upper bounds of the Frobenius and the spectral norm of A − U·diag(S)·Vh, a lower bound of the former for any factors."""
    k, wide = S.shape[-1], double_dtype(A.dtype)
    US = U.to(wide) * S.unsqueeze(-2)
    R, error = norms.residual(A.to(wide), US, Vh.to(wide))
    error = norms.up(error + 2.0**-52 * norms.frobenius(US) * norms.frobenius(Vh))
    cut = norms.up(norms.frobenius(R) + error)
    sums = [R.abs().sum(dim).amax(-1) for dim in (-1, -2)]
    spectral = norms.up((sums[0] * sums[1]).sqrt() * (1.0 + sum(A.shape[-2:]) * 2.0**-52) + error)

    identity = torch.eye(s.shape[-1], dtype=A.dtype, device=A.device)
    defect_P, defect_W = norms.defect(identity, adjoint(P), P), norms.defect(identity, W, adjoint(W))
    sW = s.unsqueeze(-1).to(wide) * W.to(wide)
    G = norms.defect(sW, adjoint(P).to(wide), A.to(wide)) + 2.0**-52 * norms.frobenius(sW)
    beyond = s[..., k:].double()
    lower = beyond * (1.0 - norms.up(defect_W)).unsqueeze(-1) - norms.up(G).unsqueeze(-1)
    lower = (lower.clamp(min=0.0).square().sum(-1) / norms.up(1.0 + defect_P)).sqrt() * (1.0 - 2.0**-40)
    return cut, torch.minimum(cut, spectral), lower


def compute(A: Tensor, count: int, iterations: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """P (..., m, l), s (..., l), W (..., l, n) near the l = ``count`` largest singular values and their vectors.

    NaN where A is not finite.
    """
    finite = all_finite(A)[..., None, None]
    A = A.resolve_conj()
    if not bool(finite.all()):
        A = torch.where(finite, A, 0)
    if count == min(A.shape[-2:]):
        P, s, W = torch.linalg.svd(A, full_matrices=False)
    else:
        generator = torch.Generator().manual_seed(seed)
        start = torch.randn(A.shape[-1], count, dtype=torch.float64, generator=generator)
        Q = torch.linalg.qr(A @ start.to(device=A.device, dtype=A.dtype)).Q
        H = adjoint(A)
        for _ in range(iterations):
            Q = torch.linalg.qr(A @ torch.linalg.qr(H @ Q).Q).Q
        left, s, W = torch.linalg.svd(adjoint(Q) @ A, full_matrices=False)
        P = Q @ left
    if not bool(finite.all()):
        P, s, W = P.where(finite, torch.nan), s.where(finite[..., 0], torch.nan), W.where(finite, torch.nan)
    return P, s, W


@torch.library.custom_op("surefoot::svd_lowrank", mutates_args=())
def _kernel(A: Tensor, count: int, iterations: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(output.contiguous() for output in compute(A, count, iterations, seed))  # type: ignore[return-value]


@_kernel.register_fake
def _(A: Tensor, count: int, iterations: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    *batch, m, n = A.shape
    return (
        A.new_empty(*batch, m, count),
        A.new_empty(*batch, count, dtype=A.real.dtype),
        A.new_empty(*batch, count, n),
    )


class _CompiledLowRank(torch.autograd.Function):
    """The kernel, which refuses derivatives."""

    @staticmethod
    def forward(A: Tensor, count: int, iterations: int, seed: int) -> Any:
        return (compute if plain_eager(A) else _kernel)(A, count, iterations, seed)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        _refuse()

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return batch_first(lambda *moved: apply(_LowRank, _CompiledLowRank, *moved), info, in_dims, args)


class _LowRank(_CompiledLowRank):
    """The same in forward mode."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        _refuse()


def _refuse() -> None:
    raise NotImplementedError(
        "svd_lowrank has no derivative, since that of singular vectors involves all that was cut: cut the factors of svd, whose "
        "derivative is exact, or pass A.detach() where they are constants"
    )
