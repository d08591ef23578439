"""Below what the training loss cannot fall: the weighted polynomial fit of each layer's residual."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .._core.validate import integer
from .spectra import Spectra

MAX_DEGREE = 256
"""Fits of a higher degree are not made and counted as 0, which is a lower bound."""


@dataclass(frozen=True)
class Floor:
    """A lower bound of the loss (4) for all coefficients, and the constants of the convergence of one layer's training
    to it.

    Attributes:
        value: 1/(2nK) Σ_k of the fits; no training brings the loss below.
        layers: the terms of the sum, of degree L, L², …; 0 where the degree exceeds 256 or reaches the number of
        distinct values. smoothness, strong_convexity: largest and smallest nonzero eigenvalue of the Hessian of the
        loss of one layer from X_0.
    """

    value: float
    layers: tuple[float, ...]
    smoothness: float
    strong_convexity: float


def floor(spectra: Spectra, layers: int, terms: int) -> Floor:
    """The floor of the loss for K layers of L terms.

    The residual after k layers is a polynomial of degree L^k in y = σ²/c0 with the value 1 at 0, so that its part of
    the loss is at least min_q Σ σ²(1 - y q(y))², deg q < L^k. The paper's Theorem 1 says that training reaches every ε
    > 0; it does not reach an ε below this number (docs/theorems/inverse.md, Theorem 5).

    Raises:
        ValueError: layers or terms that are no positive integers.
    """
    layers, terms = integer("layers", layers, 1), integer("terms", terms, 1)
    fits = tuple(_fit(spectra, terms**k) / (2 * spectra.count * layers) for k in range(1, layers + 1))
    eigenvalues = torch.linalg.eigvalsh(_hessian(spectra, terms))
    kept = eigenvalues[eigenvalues > terms * torch.finfo(torch.float64).eps * eigenvalues[-1]]
    return Floor(sum(fits), fits, float(eigenvalues[-1]), float(kept[0]))


def _fit(spectra: Spectra, degree: int) -> float:
    """min over polynomials q of degree < ``degree`` of Σ σ²(1 - y q(y))²; 0 where they can interpolate."""
    y, weight = spectra.relative, spectra.squared.sqrt()
    if degree > MAX_DEGREE or degree >= len(y.unique()):
        return 0.0
    # an orthonormal basis of {weight y q(y)} by Arnoldi's process: powers of y would be numerically dependent
    basis = [weight * y / torch.linalg.vector_norm(weight * y)]
    residual = weight - basis[0] * (basis[0] @ weight)
    for _ in range(degree - 1):
        new = basis[-1] * y
        size = torch.linalg.vector_norm(new)
        for _ in range(2):
            known = torch.stack(basis)
            new = new - known.T @ (known @ new)
        left = torch.linalg.vector_norm(new)
        if float(left) <= 1e-14 * float(size):
            return 0.0
        basis.append(new / left)
        residual = residual - basis[-1] * (basis[-1] @ residual)
    return float(residual.square().sum())


def _hessian(spectra: Spectra, terms: int) -> Tensor:
    """1/n Σ σ² y² v vᵀ, v_l = (1-y)^l: of the loss of one layer in its coefficients."""
    e = 1.0 - spectra.relative
    powers = torch.stack([e**order for order in range(terms)]) * (spectra.squared.sqrt() * spectra.relative)
    return powers @ powers.T / spectra.count
