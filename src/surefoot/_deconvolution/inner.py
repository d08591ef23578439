"""Inner solvers of (αBᵀB + I)z = b where no FFT inverts it: conjugate gradients, plain or FFT-preconditioned, and Chebyshev.

Differences from SciPy's ``cg``: batched, with one step length for each image; the residual is the recurrence's; products with
BᵀB are counted. Sources: Saad, Iterative Methods for Sparse Linear Systems, algorithms 9.1 and 12.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .._core.brief import brief
from .operators import Blur, image_norm

Linear = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class InnerSolution:
    """A solution of an inner system.

    Attributes:
        solution: (..., H, W).
        residual: (...,) relative 2-norm of the last residual.
        applications: products with B and with Bᵀ, and preconditioner solves, for each image.
    """

    solution: Tensor
    residual: Tensor
    applications: int

    __repr__ = brief


def conjugate_gradients(
    blur: Blur,
    right: Tensor,
    alpha: float,
    start: Tensor | None = None,
    *,
    tolerance: float = 1e-6,
    iterations: int = 200,
    preconditioned: bool = False,
) -> InnerSolution:
    """Solve (αBᵀB + I)z = right, until every image's relative residual is at most ``tolerance``.

    Args:
        blur: B.
        right: (..., H, W), of the dtype and device of the blur.
        alpha: α > 0.
        start: (..., H, W), where to begin; by default 0.
        tolerance: of the residual's 2-norm, relative to that of ``right``.
        iterations: at most so many; it stops there without complaint: see ``residual``.
        preconditioned: by the blur's own (αM + I)⁻¹, one FFT pair.

    Returns:
        The solution, its residual and how many products it took.

    Raises:
        TypeError, ValueError: ``right`` is no latent image of the blur.

    Source:
        Saad, Iterative Methods for Sparse Linear Systems, algorithm 9.1.

    Example:
        >>> from surefoot import deconvolution as dc
        >>> blur = dc.ValidBlur(torch.full((3, 3), 1 / 9).double(), (16, 16))  # no FFT solves
        >>> right = torch.rand(16, 16).double()
        >>> found = dc.conjugate_gradients(blur, right, alpha=10.0, preconditioned=True)
        >>> torch.allclose(10.0 * blur.gram(found.solution) + found.solution, right, atol=1e-4)
        True
    """

    def system(z: Tensor) -> Tensor:
        return alpha * blur.gram(z) + z

    precondition: Linear = (lambda r: blur.solve(r, alpha)) if preconditioned else (lambda r: r)
    return solve_spd(system, right, start, precondition, 2 + preconditioned, tolerance, iterations, blur.axes)


def solve_spd(
    system: Linear,
    right: Tensor,
    start: Tensor | None,
    precondition: Linear,
    cost: int,
    tolerance: float,
    iterations: int,
    axes: tuple[int, ...] = (-2, -1),
) -> InnerSolution:
    """Preconditioned conjugate gradients for any symmetric positive definite ``system``; ``cost``: products per iteration;
    ``axes``: those of an image, with one step length for each."""
    z = torch.zeros_like(right) if start is None else start.clone()
    residual = right if start is None else right - system(z)
    applications = 0 if start is None else cost
    scale = image_norm(right, axes)
    direction = torch.zeros_like(right)
    before = _inner(direction, direction, axes)
    for _ in range(iterations):
        if bool((image_norm(residual, axes) <= tolerance * scale).all()):
            break
        gradient = precondition(residual)
        now = _inner(residual, gradient, axes)
        direction = gradient + _ratio(now, before) * direction
        image = system(direction)
        length = _ratio(now, _inner(direction, image, axes))
        z = z + length * direction
        residual = residual - length * image
        before = now
        applications += cost
    return InnerSolution(z, image_norm(residual, axes) / scale.clamp(min=torch.finfo(right.dtype).tiny), applications)


def chebyshev(
    blur: Blur,
    right: Tensor,
    alpha: float,
    start: Tensor | None = None,
    *,
    tolerance: float = 1e-6,
    iterations: int = 200,
) -> InnerSolution:
    """Chebyshev semi-iteration on the spectrum [1, 1 + α‖B‖²], without inner products; arguments, result and errors as
    ``conjugate_gradients``.

    Source:
        Saad, Iterative Methods for Sparse Linear Systems, algorithm 12.1.

    Example:
        >>> from surefoot import deconvolution as dc
        >>> blur = dc.ValidBlur(torch.full((3, 3), 1 / 9).double(), (16, 16))
        >>> right = torch.rand(16, 16).double()
        >>> found = dc.chebyshev(blur, right, alpha=10.0)
        >>> torch.allclose(10.0 * blur.gram(found.solution) + found.solution, right, atol=1e-4)
        True
    """
    low, high = 1.0, 1.0 + alpha * blur.norm_bound**2
    centre, radius = 0.5 * (high + low), 0.5 * (high - low)
    z = torch.zeros_like(right) if start is None else start.clone()
    residual = right if start is None else right - alpha * blur.gram(z) - z
    applications = 0 if start is None else 2
    scale = image_norm(right)
    ratio = radius / centre
    step = residual / centre
    for _ in range(iterations):
        if bool((image_norm(residual) <= tolerance * scale).all()):
            break
        z = z + step
        residual = residual - alpha * blur.gram(step) - step
        applications += 2
        following = 1.0 / (2.0 * centre / radius - ratio)
        step = following * ratio * step + 2.0 * following / radius * residual
        ratio = following
    return InnerSolution(z, image_norm(residual) / scale.clamp(min=torch.finfo(right.dtype).tiny), applications)


def _inner(a: Tensor, b: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The inner product of each image, as (..., 1, 1)."""
    return (a * b).sum(axes, keepdim=True)


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    """a/b, 0 where b is 0: a converged image stays as it is. No gradient is NaN there."""
    zero = b == 0.0
    return torch.where(zero, 0.0, a / torch.where(zero, 1.0, b))
