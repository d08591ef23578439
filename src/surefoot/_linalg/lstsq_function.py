"""The kernel of ``lstsq`` with its derivative.

Let X minimise ‖AX − B‖_F² + λ‖X‖_F², the one of least norm for λ = 0, and let r = B − AX. Let a loss have the gradient g at X,
and let u be the solution of the problem with Aᴴ and g, which is A⁺ᴴg for λ = 0. For λ > 0 let w = (AᴴA + λI)⁻¹g and
z = (AAᴴ + λI)⁻¹B; for λ = 0 let w = A⁺u and z = A⁺ᴴX. Then

    gB = u,   gA = −uXᴴ + rwᴴ + z(g − Aᴴu)ᴴ for λ = 0,   gλ = −Re⟨w, X⟩ = −Re⟨u, z⟩,

and for λ > 0 gA has only one of its last two terms, which are then equal. For λ = 0 these are the derivatives along changes
that keep the rank, and finite. There rwᴴ vanishes for full row rank and z(g − Aᴴu)ᴴ for full column rank, and a term that
vanishes is left out: kept, it would multiply the error. As λ → 0, X tends to the solution of least norm; its gradient at a
deficient rank does not tend to the one along constant rank, since AᴴA + λI knows of no rank.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

from .arguments import first_place, largest_part
from .info import Method, Status
from .lstsq_routes import Problem, solutions
from .operator import apply, batch_first, may_branch, own_precision, plain_eager, refuse_nested_forward
from .pinv_routes import Tolerances

# plain integers: Dynamo takes the comparison of a tensor with an enum member for a constant
_NON_FINITE = int(Status.NON_FINITE)

Outputs = tuple[Tensor, Tensor, Tensor, Tensor]


def compute(A: Tensor, B: Tensor, ridge: Tensor, atol: Tensor, rtol: Tensor, damped: bool) -> Outputs:
    """X, rank, status, method; all arguments have the same batch dimensions. Not ``damped``: every ridge is 0."""
    batch, (m, n), k = A.shape[:-2], A.shape[-2:], B.shape[-1]
    count = math.prod(batch)
    A, B = A.resolve_conj().reshape(count, m, n), B.resolve_conj().reshape(count, m, k)
    ridge, atol, rtol = (value.reshape(count) for value in (ridge, atol, rtol))
    problem = Problem(A, B, ridge, Tolerances(atol, rtol))
    if count * m * n == 0:
        solved = problem.full(A.new_zeros(count, n, k), method=Method.NONE)
    elif all(bool(largest_part(M).isfinite().all()) for M in (A, B) if M.numel()):
        solved = solutions(problem, damped)
    else:
        solved = problem.full(A.new_full((count, n, k), torch.nan), method=Method.NONE)
        finite = A.isfinite().flatten(1).all(-1) & B.isfinite().flatten(1).all(-1)
        solved.status.fill_(_NON_FINITE)
        solved.rank.zero_()
        if bool(finite.any()):
            solved.put(finite, solutions(problem[finite], damped))
    X, rank, status, method = vars(solved).values()
    return X.reshape(*batch, n, k), rank.reshape(batch), status.reshape(batch), method.reshape(batch)


@torch.library.custom_op("surefoot::lstsq", mutates_args=())
def _kernel(
    A: Tensor, B: Tensor, ridge: Tensor, atol: Tensor, rtol: Tensor, damped: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return tuple(output.contiguous() for output in compute(A, B, ridge, atol, rtol, damped))  # type: ignore[return-value]


@_kernel.register_fake
def _(A, B, ridge, atol, rtol, damped):
    batch = A.shape[:-2]
    integers = [A.new_empty(batch, dtype=torch.int64) for _ in range(3)]
    return A.new_empty((*batch, A.shape[-1], B.shape[-1])), *integers


class _CompiledLeastSquares(torch.autograd.Function):
    """The kernel with its derivative in A, B and ridge; the outputs after X are not differentiable."""

    @staticmethod
    def forward(A: Tensor, B: Tensor, ridge: Tensor, atol: Tensor, rtol: Tensor, damped: bool) -> Any:
        eager = plain_eager(A) and plain_eager(B)
        return (compute if eager else _kernel)(A, B, ridge, atol, rtol, damped)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Outputs) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        saved = *inputs[:5], *output[:3]
        ctx.damped = inputs[5]
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if grads[0] is None:
            return (None,) * 6
        at = _Solution(ctx.saved_tensors, ctx.damped, ctx.needs_input_grad[2])
        return *at.gradient(grads[0]), None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return batch_first(least_squares, info, in_dims, args)


class _LeastSquares(_CompiledLeastSquares):
    """The same with forward-mode derivatives."""

    @staticmethod
    @own_precision
    def jvp(ctx: Any, *tangents: Any) -> Any:
        refuse_nested_forward("lstsq")
        at = _Solution(ctx.saved_tensors, ctx.damped, tangents[2] is not None)
        return at.tangent(*tangents[:3]), None, None, None


def least_squares(A: Tensor, B: Tensor, ridge: Tensor, atol: Tensor, rtol: Tensor, damped: bool) -> Outputs:
    """``compute`` with derivatives of any order."""
    return apply(_LeastSquares, _CompiledLeastSquares, A, B, ridge, atol, rtol, damped)


def _refuse_cut(A: Tensor, ridge: Tensor, atol: Tensor, rtol: Tensor) -> None:
    """LinAlgError if the tolerances of a problem with a ridge cut singular values that are not 0 to rounding.

    The derivatives are those of the problem with all of them.
    """
    rounding = max(A.shape[-2:]) * torch.finfo(A.dtype).eps
    asked = (ridge > 0) & ((rtol > rounding) | (atol > rounding * largest_part(A)[..., 0, 0]))
    if not bool(asked.any()):
        return
    s = torch.linalg.svdvals(A).double()
    cut = torch.maximum(atol, rtol * s[..., 0]).unsqueeze(-1)
    lost = asked & ((s <= cut) & (s > rounding * s[..., :1])).any(-1)
    if bool(lost.any()):
        raise LinAlgError(
            f"lstsq: atol or rtol cuts singular values of {first_place(lost)} that are not 0 to rounding; with a ridge, which "
            "damps them, there is no derivative of that: leave out the tolerances, or the ridge"
        )


class _Solution:
    """A solved problem, at which the derivatives of the module's docstring are taken; problems without a value are 0."""

    def __init__(self, saved: tuple[Tensor, ...], damped: bool, by_ridge: bool) -> None:
        A, B, ridge, atol, rtol, X, rank, status = saved
        self.absent = (status == _NON_FINITE)[..., None, None]
        self.A, self.B, self.X = (M.masked_fill(self.absent, 0) for M in (A, B, X))
        self.ridge, self.atol, self.rtol, self.is_damped = ridge, atol, rtol, damped
        self.damped = (ridge > 0)[..., None, None]
        m, n = A.shape[-2:]
        deficient = (rank < min(m, n))[..., None, None] & ~self.damped
        # in batches of which nothing may be known every term is there, masked; otherwise those that do not vanish
        look = may_branch(A)
        if damped and look and A.numel():
            _refuse_cut(self.A.detach(), ridge, atol, rtol)
        some_plain = not damped or not look or bool((ridge == 0).any())
        some_deficient = not look or bool(deficient.any())
        self.needs_w = some_plain and (m > n or some_deficient or (by_ridge and m >= n))
        self.needs_z = some_plain and (m < n or some_deficient or (by_ridge and m < n))
        self.tall, self.by_ridge = m >= n, by_ridge
        # where the terms of w and of z do not vanish
        self.uses_w = ~self.damped & (deficient | (m > n)) | self.damped & self.tall
        self.uses_z = ~self.damped & (deficient | (m < n)) | self.damped & (not self.tall)

    def solve(self, A: Tensor, B: Tensor, ridge: Tensor | None = None) -> Tensor:
        """X of the problem of A and B, with the tolerances of this one, and without a ridge unless it is given."""
        damped = self.is_damped and ridge is not None
        ridge = torch.zeros_like(self.ridge) if ridge is None else ridge
        return least_squares(A, B, ridge, self.atol, self.rtol, damped)[0]

    def through_gram(self, right: Tensor) -> Tensor:
        """(AᴴA + λI)⁻¹ or (AAᴴ + λI)⁻¹, whichever is smaller, times ``right``, where λ > 0; corrected once by the residual."""
        A, H, ridge = self.A, self.A.mH, self.ridge.to(self.A.real.dtype)[..., None, None]
        identity = torch.eye(right.shape[-2], dtype=A.dtype, device=A.device)
        gram = (H @ A if self.tall else A @ H) + ridge * identity
        gram = torch.where(self.damped, gram, identity)
        first = torch.linalg.solve_ex(gram, right)[0]
        product = H @ (A @ first) if self.tall else A @ (H @ first)
        return first + torch.linalg.solve_ex(gram, right - product - ridge * first)[0]

    def either(self, plain: Tensor | None, damped: Tensor | None) -> Tensor | None:
        """What belongs to each problem, without a ridge or with one."""
        if plain is None or damped is None:
            return plain if damped is None else damped
        return torch.where(self.damped, damped, plain)

    @own_precision
    def gradient(self, g: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """The gradients in A, B and the ridge of a loss with gradient g at X."""
        A, X, H = self.A, self.X, self.A.mH
        g = g.masked_fill(self.absent, 0)
        u = self.solve(H, g, self.ridge)
        gA, gridge = -u @ X.mH, None
        w = self.either(
            self.solve(A, u) if self.needs_w else None,
            self.through_gram(g) if self.is_damped and self.tall else None,
        )
        z = self.either(
            self.solve(H, X) if self.needs_z else None,
            self.through_gram(self.B) if self.is_damped and not self.tall else None,
        )
        if w is not None:
            gA = gA + torch.where(self.uses_w, (self.B - A @ X) @ w.mH, 0)
        if z is not None:
            gA = gA + torch.where(self.uses_z, z @ (g - H @ u).mH, 0)
        if self.by_ridge:
            left, right = (w, X) if self.tall else (u, z)
            gridge = -(left.conj() * right).real.sum((-2, -1)).to(self.ridge.dtype)  # type: ignore[union-attr]
        return gA, u, gridge

    def tangent(self, dA: Tensor | None, dB: Tensor | None, dridge: Tensor | None) -> Tensor:
        """The directional derivative of X."""
        A, X, H = self.A, self.X, self.A.mH
        dB = torch.zeros_like(self.B) if dB is None else dB.masked_fill(self.absent, 0)
        dA = torch.zeros_like(A) if dA is None else dA.masked_fill(self.absent, 0)
        result = self.solve(A, dB - dA @ X, self.ridge)
        by_r = dA.mH @ (self.B - A @ X)
        if self.is_damped and self.tall:
            w = self.through_gram(by_r)
            result = result + torch.where(self.uses_w & self.damped, w, 0)
        if self.needs_w:
            w = self.solve(A, self.solve(H, by_r))
            result = result + torch.where(self.uses_w & ~self.damped, w, 0)
        if self.is_damped and not self.tall:
            y = dA.mH @ self.through_gram(self.B)
            result = result + torch.where(self.uses_z & self.damped, y - self.solve(A, A @ y, self.ridge), 0)
        if self.needs_z:
            y = dA.mH @ self.solve(H, X)
            result = result + torch.where(self.uses_z & ~self.damped, y - self.solve(A, A @ y), 0)
        if dridge is None:
            return result
        along = self.solve(A, self.solve(H, X))
        if self.is_damped:
            damped = self.through_gram(X) if self.tall else H @ self.through_gram(self.through_gram(self.B))
            along = torch.where(self.damped, damped, along)
        return result - dridge.to(A.real.dtype)[..., None, None] * along
