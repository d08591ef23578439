"""X_0 = Aᴴ/c0: the scale c0, for which Chebyshev layers need a guaranteed upper bound of ‖A‖²."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from .._linalg import norms
from .._linalg.spectral import adjoint

Rule = Literal["gram", "gram4", "frobenius", "svd"]
RULES: tuple[str, ...] = get_args(Rule)
SVD_ERROR = 16.0
"""What LAPACK's largest singular value is granted, in units of max(m, n) ε: it has no proven constant."""


def scale(A: Tensor, rule: str) -> Tensor:
    """An upper bound of ‖A‖², rounding included, without gradient.

    Args:
        A: (..., m, n), wide or square, of moderate scale.
        rule: "gram": ‖G²‖_F^½, at most m^¼ times ‖A‖², G = AAᴴ; "gram4": ‖G⁴‖_F^¼, at most m^⅛ times; "frobenius":
            ‖A‖_F²; "svd": the computed ‖A‖², with 16 max(m, n) ε for the error of LAPACK.

    Returns:
        (...), float64; 1 for a zero matrix.
    """
    A = A.detach()
    m, n = A.shape[-2:]
    if rule == "svd":
        largest = torch.linalg.matrix_norm(A, 2).double()
        squared = (largest * (1.0 + SVD_ERROR * max(m, n) * torch.finfo(A.dtype).eps)).square()
    elif rule == "frobenius":
        squared = norms.up(norms.frobenius(A).square())
    else:
        gram = _hermitian(A @ adjoint(A))
        total = norms.frobenius(A)
        # λ_max(G) ≤ λ_max(fl G) + ‖G - fl G‖_F, and the Hermitian part of fl G is no farther from G
        error = norms.product_rounding(n, A.dtype) * total.square()
        squared = norms.up(_largest_eigenvalue(gram, 2 if rule == "gram4" else 1) + norms.up(error))
        # products of low precision may have no bound of their error
        squared = torch.fmin(squared, norms.up(total.square()))
    return torch.where(squared > 0.0, squared, 1.0)


def initial(wide: Tensor, c0: float | str, factor: Tensor | None = None) -> Tensor:
    """X_0 = Aᴴ/c0 (..., n, m) of A (..., m, n), m ≤ n. c0 has no gradient.

    Args:
        wide: A.
        c0: a rule, or a number.
        factor: (...), float64, that a number is multiplied by; 1 where it is None.
    """
    if isinstance(c0, str):
        values = scale(wide, c0)
    else:
        values = torch.full(wide.shape[:-2], float(c0), dtype=torch.float64, device=wide.device)
        values = values if factor is None else values * factor
    return over(wide, values)


def squared(scale: Tensor | None) -> Tensor | None:
    """The factor (...) of a c0 for matrices that are multiplied by ``scale`` (..., 1, 1)."""
    return None if scale is None else scale[..., 0, 0].double().square()


def over(wide: Tensor, c0: Tensor) -> Tensor:
    """Aᴴ/c0 (..., n, m) for one c0 (...) for each matrix."""
    return adjoint(wide) / c0.detach().to(wide.real.dtype)[..., None, None]


def _largest_eigenvalue(G: Tensor, squarings: int) -> Tensor:
    """An upper bound of ‖G‖ for Hermitian G by ‖G‖² = ‖G²‖, ``squarings`` times, and ‖·‖_F; with what rounding adds."""
    if squarings == 0:
        return norms.frobenius(G)
    square = _hermitian(G @ G)
    error = norms.product_rounding(G.shape[-1], G.dtype) * norms.frobenius(G).square()
    return norms.up(norms.up(_largest_eigenvalue(square, squarings - 1) + norms.up(error)).sqrt())


def _hermitian(G: Tensor) -> Tensor:
    """The Hermitian part; the bound of the rounding of a product has room for the one rounding of the sum."""
    return (G + adjoint(G)) / 2
