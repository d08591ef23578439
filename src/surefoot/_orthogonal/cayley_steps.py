"""Cayley steps on the Stiefel manifold {U : UᴴU = I}, by four ways to apply the inverse.

The step along a direction D is U(t) = (I + tP/2)⁻¹ (I − tP/2) U with P = D Uᴴ − U Dᴴ (equation (6) of the learning-based matrix
inverse paper; Wen and Yin, 2013). With D = ∇f it descends: U′(0) = −PU and the derivative of f(U(t)) at 0 is −½‖P‖²_F. All
functions take U (..., m, r) with m ≥ r and orthonormal columns, D of the same shape, and a real step t; complex ones too.
The steps take P through its ``components``, A (..., r, r) and N (..., m, r).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .._linalg.cayley import cayley

Step = Callable[[Tensor, Tensor, Tensor, float], Tensor]
"""(U, A, N, t) -> U(t)"""
DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
"""What the solvers exist for."""


def tall(matrix: Tensor) -> Tensor:
    """``matrix``, or its adjoint if it is wide: the one whose columns can be orthonormal."""
    rows, columns = matrix.shape[-2:]
    return matrix if rows >= columns else matrix.mH


def components(U: Tensor, D: Tensor) -> tuple[Tensor, Tensor]:
    """A = UᴴD − DᴴU and N = D − U UᴴD, for which P = U A Uᴴ + N Uᴴ − U Nᴴ and PU = U A + N; N is 0 for square U."""
    B = U.mH @ D
    square = U.shape[-2] == U.shape[-1]
    return B - B.mH, torch.zeros_like(D) if square else _plus_product(D, 1.0, U, B, -1.0)


def slope(A: Tensor, N: Tensor) -> float:
    """½‖P‖²_F = ½‖A‖²_F + ‖N‖²_F: how fast f falls at t = 0 when D = ∇f."""
    return 0.5 * squared_norm(A) + squared_norm(N)


def squared_norm(matrix: Tensor) -> float:
    """‖matrix‖²_F over all batch dimensions."""
    return inner(matrix, matrix)


def inner(left: Tensor, right: Tensor) -> float:
    """Re tr(leftᴴ right), summed over all batch dimensions."""
    if left.is_complex():
        left, right = torch.view_as_real(left.resolve_conj()), torch.view_as_real(right.resolve_conj())
    return float(torch.dot(left.reshape(-1), right.reshape(-1)))


def tangent(U: Tensor, A: Tensor, N: Tensor) -> Tensor:
    """U A/2 + N, the nearest tangent vector to D: as a direction it has the same P as D.

    Taking the components of a tangent vector of another point carries it over (a vector transport by projection).
    """
    return U @ (0.5 * A) + N


def reach(dtype: torch.dtype, inverse: str = "reduced") -> float:
    """The largest t‖P‖_F that the steps take: beyond it the identity in I + tP/2 is at the level of rounding of (tP/2)².

    No use of a step is lost: at t‖P‖ = 100 the plane that P turns fastest has turned by 177.7 of its 180 degrees. That is the
    limit of the Chebyshev step, which there takes about 900 products with P².
    """
    return 100.0 if inverse == "chebyshev" else 0.1 / math.sqrt(torch.finfo(dtype).eps)


def defect(U: Tensor) -> float:
    """max over the batch of ‖UᴴU − I‖_F."""
    if U.numel() == 0:
        return 0.0
    return float(torch.linalg.matrix_norm(U.mH @ U - torch.eye(U.shape[-1], dtype=U.dtype, device=U.device)).max())


def move(inverse: str, U: Tensor, A: Tensor, N: Tensor, t: float, correct: bool = True) -> Tensor:
    """U(t) by one of ``STEPS``, orthonormal to rounding if U is so to the root of it.

    Args:
        correct: False leaves out the correction behind the step, for a step that ``corrects_itself``.
    """
    value = STEPS[inverse](U, A, N, t)
    return polar_correction(value) if correct else value


SHORT = 0.5
"""A reduced step with t‖D‖_F up to this corrects itself."""


def corrects_itself(length: float, size: float) -> bool:
    """Whether a reduced step of the length t‖P‖_F with ``size`` = t‖D‖_F leaves a smaller defect than it found."""
    return size <= SHORT or length * (1.0 + size) <= 1.0


def polar_correction(U: Tensor) -> Tensor:
    """One Newton–Schulz step U (3I − UᴴU)/2 towards the orthogonal polar factor: a defect δ becomes ¾δ² + O(δ³)."""
    return _plus_product(U, 1.5, U, U.mH @ U, -0.5)


def velocity(U: Tensor, A: Tensor, N: Tensor) -> Tensor:
    """PU = U A + N, minus the velocity of the curve at t = 0; ‖PU‖²_F = ‖A‖²_F + ‖N‖²_F."""
    return _plus_product(N, 1.0, U, A, 1.0)


def _plus_product(C: Tensor, beta: float, L: Tensor, R: Tensor, alpha: float) -> Tensor:
    """β C + α L R; one call for a matrix or a list of them, since calls, not arithmetic, take the time at small sizes."""
    if C.ndim == 2:
        return torch.addmm(C, L, R, beta=beta, alpha=alpha)
    if C.ndim == 3:
        return torch.baddbmm(C, L, R, beta=beta, alpha=alpha)
    return beta * C + alpha * (L @ R)


def reduced_step(U: Tensor, A: Tensor, N: Tensor, t: float) -> Tensor:
    """By one r×r inverse.

    In the columns of U and N the equation (I + tP/2)(UX + NY) = (I − tP/2)U reads Y = −t(I + X)/2 and (I + M)X = I − M with
    M = tA/2 + t²NᴴN/4. So U(t) = (2U − tN)(I + M)⁻¹ − U. The Hermitian part of M is positive semidefinite, hence
    ‖(I + M)⁻¹‖ ≤ 1: unlike the 2r×2r Woodbury matrix it cannot be ill-conditioned through the choice of the factors.

    I + t²NᴴN/4 is computed as ¾I + YᴴY/4 with Y = U − tN. That is the same for orthonormal U. For U of defect E = UᴴU − I it
    adds E/4, and U(t) = (U + Y)(I + M + E/4)⁻¹ − U has no defect of the first order in E as t → 0: U(I − E/2)ᴴ(I − E/2) = I. So
    short steps take away the defect that rounding left before, without a correction of their own. For longer ones what they
    leave of E grows like t‖P‖ (1 + t‖D‖); measured, they leave at most .6 of it where t‖D‖ ≤ ½.
    """
    Y = torch.add(U, N, alpha=-t)
    M = _plus_product(A, 0.5 * t, Y.mH, Y, 0.25)
    M.diagonal(0, -2, -1).add_(0.75)
    # from the left, which LAPACK does without copies, and with no look at whether M is singular, which takes a synchronisation
    return torch.linalg.solve_ex(M.mT, Y.add_(U).mT)[0].mT.sub_(U)


def woodbury_step(U: Tensor, A: Tensor, N: Tensor, t: float) -> Tensor:
    """By one 2r×2r inverse (Wen and Yin, 2013, Lemma 4): P = L Rᴴ with L = (D, U), R = (U, −D)."""
    D = tangent(U, A, N)
    L, R = torch.cat((D, U), -1), torch.cat((U, -D), -1)
    K = (0.5 * t) * (R.mH @ L)
    K.diagonal(dim1=-2, dim2=-1).add_(1.0)
    return U - t * (L @ torch.linalg.solve(K, R.mH @ U))


def exact_step(U: Tensor, A: Tensor, N: Tensor, t: float) -> Tensor:
    """By one m×m inverse, as the formula is written."""
    outer = tangent(U, A, N) @ U.mH
    return cayley(outer - outer.mH, U, t)


def chebyshev_step(U: Tensor, A: Tensor, N: Tensor, t: float) -> Tensor:
    """By products alone: Chebyshev iteration on (I − t²P²/4) U(t) = (I − tP/2)² U, P applied through its factors.

    P² is negative semidefinite with ‖P‖² ≤ ‖P‖²_F/c, c = 2 for real matrices (the eigenvalues come in pairs) and 1 for complex
    ones, so the spectrum lies in [1, 1 + t²‖P‖²_F/(4c)]. The degree, known in advance, is the least whose Chebyshev bound is
    under the rounding unit. It grows like t‖P‖_F, and rounding is multiplied by up to 1 + t²‖P‖²/4: for short steps where a
    batched solve is slow.
    """
    half = 0.5 * t

    def product(V: Tensor) -> Tensor:
        """(t/2) P V"""
        UV, NV = U.mH @ V, N.mH @ V
        return half * (U @ (A @ UV - NV) + N @ UV)

    pairs = 1.0 if U.is_complex() else 2.0
    squares = (A.abs().square().sum((-2, -1)) + 2.0 * N.abs().square().sum((-2, -1))) * half * half / pairs
    largest = float(squares.max()) if squares.numel() else 0.0
    first = U - product(U)
    residual = first - product(first)
    if largest < torch.finfo(U.dtype).eps:  # also what the recurrence below would divide by
        return residual
    center, radius = 1.0 + largest / 2.0, largest / 2.0
    root = math.sqrt(1.0 + largest)
    factor = (root - 1.0) / (root + 1.0)  # error after k steps: at most 2 factor^k times the solution
    ratio = radius / center
    change = residual / center
    X = torch.zeros_like(U)
    for _ in range(math.ceil(math.log(torch.finfo(U.dtype).eps / 2.0) / math.log(factor))):
        X = X + change
        residual = residual - change + product(product(change))
        following = 1.0 / (2.0 * center / radius - ratio)
        change = following * ratio * change + (2.0 * following / radius) * residual
        ratio = following
    return X


STEPS: dict[str, Step] = {
    "reduced": reduced_step,
    "woodbury": woodbury_step,
    "exact": exact_step,
    "chebyshev": chebyshev_step,
}
"""The ways to apply the inverse, by the name that the optimisers take."""
