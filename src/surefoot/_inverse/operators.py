"""Learned inverses of symmetric positive definite operators that are only known by their products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor

Operator = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class LinearSolution:
    """What ``solve_spd`` found.

    Attributes:
        x: the solution, of the shape of b.
        residual: ‖b - Bx‖/‖b‖ over all entries, measured; 0 for b = 0.
        products: how often B was applied.
    """

    x: Tensor
    residual: float
    products: int


def solve_spd(
    coefficients: Tensor, operator: Operator, b: Tensor, bounds: tuple[float, float], backward: str = "implicit"
) -> LinearSolution:
    """X_K b ≈ B⁻¹b from X_0 = 2I/(λ_min+λ_max), for a symmetric positive definite linear B.

    X_{k+1}v = X_k(Σ_l C_kl (I - BX_k)^l v), so that B is applied L^K - 1 times. The worst ‖(I - BX_K)‖ over the
    spectrum is that of the coefficients on [2λ_min, 2λ_max]/(λ_min+λ_max), for which ``sf.certify`` gives a guarantee;
    Chebyshev coefficients for that interval are the best possible.

    Args:
        coefficients: C (K, L).
        operator: v -> Bv, linear and symmetric on tensors of the shape of b (for more than one b at a time: on each of
        them). b: right-hand side, any shape, real floating point.
        bounds: (λ_min, λ_max), 0 < λ_min ≤ λ_max, of B. Beyond λ_max Chebyshev coefficients explode.
        backward: "implicit": the gradient in b, and in what ``operator`` depends on, is that of B⁻¹b, with one more solve in each
            direction and no stored products; the coefficients get none. "unroll": through all products.

    Raises:
        TypeError: a b that is no real floating-point tensor, or bounds that are no numbers.
        ValueError: bounds that are none.
    """
    if not isinstance(b, Tensor) or not b.dtype.is_floating_point:
        raise TypeError("b must be a real floating-point tensor")
    low, high = _checked_bounds(bounds)
    scale = 2.0 / (low + high)
    count = 0

    def product(v: Tensor) -> Tensor:
        nonlocal count
        count += 1
        image = operator(v)
        if not isinstance(image, Tensor) or image.shape != v.shape:
            raise ValueError(f"operator maps shape {tuple(v.shape)} to {getattr(image, 'shape', type(image).__name__)}")
        return image

    def inverse(C: Tensor, v: Tensor) -> Tensor:
        return _apply(C, product, v, scale)

    if backward == "unroll":
        x = inverse(coefficients.to(b.dtype), b)
    else:
        fixed = coefficients.detach().to(b.dtype)
        with torch.no_grad():
            x = inverse(fixed, b)
        if torch.is_grad_enabled():
            # the value of X_K(b - Bx) is dropped: only its derivative, B⁻¹(db - dB x), is wanted
            defect = b - operator(x)
            if defect.requires_grad:
                x = x + _Derivative.apply(defect, lambda v: inverse(fixed, v))
    with torch.no_grad():
        used = count
        size = torch.linalg.vector_norm(b)
        left = torch.linalg.vector_norm(b - operator(x.detach()))
        residual = float(left / size) if float(size) > 0.0 else 0.0
    return LinearSolution(x, residual, used)


def _apply(C: Tensor, product: Operator, v: Tensor, scale: float) -> Tensor:
    """X_K v: with the last layer's polynomial by Horner's rule in v -> v - B X_{K-1} v."""
    if len(C) == 0:
        return scale * v
    inner, row = C[:-1], C[-1].unbind()
    total = row[-1] * v
    for c in reversed(row[:-1]):
        total = c * v + total - product(_apply(inner, product, total, scale))
    return _apply(inner, product, total, scale)


class _Derivative(torch.autograd.Function):
    """0 with the derivative of the symmetric linear map ``inverse``."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, inverse: Operator) -> Tensor:
        ctx.inverse = inverse
        return torch.zeros_like(v)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        with torch.no_grad():
            return ctx.inverse(grads[0]), None


def _checked_bounds(bounds: Any) -> tuple[float, float]:
    try:
        low, high = bounds
    except (TypeError, ValueError):
        raise TypeError(f"bounds is {bounds!r}; pass two numbers (lambda_min, lambda_max)") from None
    if not all(isinstance(end, Real) and not isinstance(end, bool) for end in (low, high)):
        raise TypeError(f"bounds is {bounds!r}; pass two numbers (lambda_min, lambda_max)")
    if not 0.0 < low <= high < float("inf"):
        raise ValueError(
            f"bounds is ({low}, {high}); it must be 0 < lambda_min <= lambda_max, bounds of the eigenvalues"
        )
    return float(low), float(high)
