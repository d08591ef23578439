"""One step of the differentiable SVD: its objective, the search direction, the guarded step size, and the Cayley transform."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._linalg import matrix_polynomial
from .._linalg.cayley import cayley


def off_diagonal(A: Tensor) -> Tensor:
    """A with its main diagonal set to 0 (..., r, r): Dᶜ of equation (7)."""
    return A - torch.diag_embed(A.diagonal(dim1=-2, dim2=-1))


def objective(M: Tensor, U: Tensor, V: Tensor) -> Tensor:
    """½‖Dᶜ(UᵀMV)‖²_F − ⟨M, UVᵀ⟩ (...), equation (7), for M (..., m, n), U (..., m, r), V (..., n, r)."""
    core = U.mT @ M @ V
    off = off_diagonal(core)
    return 0.5 * off.square().sum((-2, -1)) - core.diagonal(dim1=-2, dim2=-1).sum(-1)


class Direction(NamedTuple):
    """The direction of descent of U (that of V is of Mᵀ, with the roles switched).

    Attributes:
        G: gradient ∂f/∂U (..., m, r).
        P: GUᵀ − UGᵀ (..., m, m), skew.
        slope, curvature: f'(0) and f''(0) of t ↦ f(U(t)), equation (11) (...).
    """

    G: Tensor
    P: Tensor
    slope: Tensor
    curvature: Tensor


def direction(M: Tensor, U: Tensor, V: Tensor) -> Direction:
    """Gradient, skew direction and the two derivatives along its Cayley curve, equations (11) and (12)."""
    A = M @ V
    off = off_diagonal(U.mT @ A)
    G = A @ off.mT - A
    outer = G @ U.mT
    # exactly skew: near a stationary point the step is as large as P is small, and would enlarge a defect
    P = outer - outer.mT
    PU, PA = P @ U, P @ A
    turned = off_diagonal(U.mT @ PA)
    slope = _inner(off, turned) + _inner(A, PU)
    # UᵀP² = −(PU)ᵀP, as P is skew
    curvature = turned.square().sum((-2, -1)) - _inner(off, off_diagonal(PU.mT @ PA)) + _inner(PA, PU)
    return Direction(G, P, slope, curvature)


def spectral_bound(A: Tensor, copies: int = 1) -> Tensor:
    """An upper bound of ‖A‖₂ (...) of A (..., m, n), rounding included; smooth where A ≠ 0.

    ‖A‖¹⁶ ≤ ‖(AᵀA)⁴‖²_F / ``copies`` where the largest singular value occurs that often: 2 for a skew matrix, whose singular
    values come in pairs. Too large by a factor of at most (min(m, n)/copies)^(1/16).
    """
    # the scale cancels, it only keeps the powers from overflow
    size = torch.linalg.vector_norm(A, ord=torch.inf, dim=(-2, -1), keepdim=True).detach()
    unit = A / torch.where(size > 0.0, size, 1.0)
    size = size * torch.where(size > 0.0, 1.0, 0.0)
    power = unit.mT @ unit if A.shape[-1] <= A.shape[-2] else unit @ unit.mT
    scale = torch.linalg.vector_norm(power, dim=(-2, -1), keepdim=True)
    scale = torch.where(scale > 0.0, scale, 1.0)
    power = power / scale
    power = power @ power
    power = power @ power
    total = power.square().sum((-2, -1)) / copies
    root = torch.where(total > 0.0, total, 1.0) ** (1.0 / 16.0) * scale[..., 0, 0].sqrt()
    rounding = 1.0 + 8.0 * max(A.shape[-2:]) * torch.finfo(A.dtype).eps
    return torch.where(total > 0.0, root * rounding, 0.0) * size[..., 0, 0]


def guarded_step(slope: Tensor, curvature: Tensor, bound: Tensor, level: float = 0.0) -> Tensor:
    """The step size of (10), corrected (...): min{2/‖P‖, −f'/f''} where f'' > 0, and 2/‖P‖ elsewhere.

    As printed, f'' < 0 gives a negative step, which ascends. Where P is 0 or rounding there is nowhere to go, and the step is 1:
    the cap would turn U by a right angle in an arbitrary direction.

    Args:
        slope, curvature: f'(0) ≤ 0 and f''(0).
        bound: ‖P‖, or an upper bound.
        level: what rounding leaves of ‖P‖ at a stationary point.
    """
    still = bound <= level
    cap = 2.0 / torch.where(still, 2.0, bound)
    convex = curvature > 0.0
    newton = -slope / torch.where(convex, curvature, 1.0)
    step = torch.where(convex, torch.minimum(newton, cap), cap)
    return torch.where(still, 1.0, step)


def cayley_inverse(Q: Tensor, radius: Tensor, coefficients: Tensor) -> Tensor:
    """(I + Q)⁻¹ (..., m, m) for skew Q by LD-Minv, equation (3), without gradients.

    The start is (I + Q)ᵀ/c0 with c0 = 1 + radius²: the squared singular values of I + Q lie between 1 and c0. Layers end early
    once the residual of every matrix is at the level of rounding.

    Args:
        Q: skew (..., m, m).
        radius: an upper bound of ‖Q‖₂ (...).
        coefficients: C (K, L), layer by layer.
    """
    identity = torch.eye(Q.shape[-1], dtype=Q.dtype, device=Q.device)
    A = identity + Q
    X = A.mT / (1.0 + radius.square())[..., None, None]
    level = Q.shape[-1] * torch.finfo(Q.dtype).eps
    for C in coefficients.tolist():
        E = identity - A @ X
        if bool((torch.linalg.vector_norm(E, dim=(-2, -1)) <= level).all()):
            break
        X = X @ matrix_polynomial.evaluate(C, E)
    return X


class CayleySolve(torch.autograd.Function):
    """Z = (I + Q)⁻¹B with the inverse of ``cayley_inverse``; first derivatives by the implicit formula, which keeps one matrix
    instead of every layer's."""

    @staticmethod
    def forward(ctx: Any, Q: Tensor, B: Tensor, radius: Tensor, coefficients: Tensor) -> Tensor:
        X = cayley_inverse(Q, radius, coefficients)
        Z = X @ B
        ctx.save_for_backward(X, Z)
        return Z

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - of the decorator
        X, Z = ctx.saved_tensors
        of_B = X.mT @ grads[0]
        return -of_B @ Z.mT, of_B, None, None


def cayley_step(P: Tensor, U: Tensor, t: Tensor, bound: Tensor, coefficients: Tensor | None) -> Tensor:
    """U(t) = (I + tP/2)⁻¹(I − tP/2)U (..., m, r), equation (6).

    Args:
        P: skew (..., m, m).
        U: (..., m, r).
        t: step sizes (...).
        bound: an upper bound of ‖P‖₂ (...).
        coefficients: of LD-Minv (K, L); ``None`` for an exact solve.
    """
    if coefficients is None:
        return cayley(P, U, t)
    Q = 0.5 * t[..., None, None] * P
    moved = CayleySolve.apply(Q, U - Q @ U, half_turn(t, bound), coefficients)
    assert isinstance(moved, Tensor)
    return moved


def half_turn(t: Tensor, bound: Tensor) -> Tensor:
    """An upper bound of ‖tP/2‖ (...), without gradient."""
    return (0.5 * t * bound).detach().abs()


class Step(NamedTuple):
    """A Cayley step that is about to be taken: P (..., m, m), an upper bound of its norm (...), and the step size t (...)."""

    P: Tensor
    bound: Tensor
    t: Tensor


def step_of(M: Tensor, U: Tensor, V: Tensor, shift: Tensor) -> Step:
    """The step of U in equation (12): the guarded step size plus the learned ``shift``; for V pass (Mᵀ, V, U).

    M (..., m, n) has norm at most 1, so that the rounding of P has a known size.
    """
    skew = direction(M, U, V)
    bound = spectral_bound(skew.P, copies=2)
    level = 8.0 * max(M.shape[-2:]) * torch.finfo(M.dtype).eps
    return Step(skew.P, bound, guarded_step(skew.slope, skew.curvature, bound, level) + shift)


def half_step(M: Tensor, U: Tensor, V: Tensor, shift: Tensor, coefficients: Tensor | None) -> Tensor:
    """U of the next layer (..., m, r), equation (12)."""
    step = step_of(M, U, V, shift)
    return cayley_step(step.P, U, step.t, step.bound, coefficients)


def _inner(A: Tensor, B: Tensor) -> Tensor:
    return (A * B).sum((-2, -1))
