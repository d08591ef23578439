"""How much the Jacobian of an implicit network changes on a ball of weights: Lemma 10 of docs/theorems/implicit.md.

At the centre, for each row i of X: π_i ≥ ‖(I - γD_iAᵀ)⁻¹D_i‖, D_i = 1[u_i > 0], and k_i ≥ ‖K_i‖ of its adjoints; π and k are
the largest. On the ball of radius ρ, as long as no entry that counts reaches a kink,

    τ = 1/(1 - γρπ),   e = τπρ(1 + γ²k²)^½,   δ = ρτ²π((γ‖diag(π_i)Z‖)² + ‖diag(π_i)X‖²)^½,
    x_1 = τ‖diag(π_i)X‖,   z_1 = τ‖diag(π_i)Z‖ + δ,
    x_2 = τ‖diag(k_iπ_i)X‖ + e x_1,   z_2 = τ(‖diag(k_iπ_i)Z‖ + e‖diag(π_i)Z‖) + (k + e)δ,

and J is Λ-Lipschitz with the largest eigenvalue Λ of the matrix of ``symmetric_bend``, whose rows are those of W, A and b.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from ..numbers import Number, sqrt


@dataclass(frozen=True)
class Centre:
    """Upper bounds at the centre of the ball, none negative."""

    gamma: Number
    norm_A: Number
    response: Number
    """π."""
    adjoint: Number
    """k."""
    X: Number
    """‖diag(π_i)X‖."""
    Z: Number
    """‖diag(π_i)Z‖."""
    weighted_X: Number
    """‖diag(k_iπ_i)X‖."""
    weighted_Z: Number
    """‖diag(k_iπ_i)Z‖."""

    def each(self, function: Callable[[Any], Number]) -> Centre:
        """With a function of every bound in its place."""
        return Centre(*(function(getattr(self, field.name)) for field in fields(self)))


def stays_in_range(at: Centre, radius: Number) -> bool:
    """Whether γ‖A‖ < 1 certainly, and γρπ < 1, on the ball."""
    return at.gamma * (at.norm_A + radius) < 1.0 and at.gamma * radius * at.response < 1.0


def stretch(at: Centre, radius: Number) -> Number:
    """τ, where that is in range: on the ball ‖(I - γD_iAᵀ)⁻¹D_i‖ ≤ τπ_i."""
    return 1.0 / (1.0 - at.gamma * radius * at.response)


def symmetric_bend(at: Centre, radius: Number) -> list[list[Number]]:
    """The matrix whose largest eigenvalue is Λ on a ball that is in range; its entries are not negative."""
    g, pi, k, tau = at.gamma, at.response, at.adjoint, stretch(at, radius)
    grown = tau * pi * radius * sqrt(1.0 + g * g * k * k)
    moved = radius * tau * tau * pi * sqrt(g * g * at.Z * at.Z + at.X * at.X)
    x1, z1 = tau * at.X, tau * at.Z + moved
    x2 = tau * at.weighted_X + grown * x1
    z2 = tau * (at.weighted_Z + grown * at.Z) + (k + grown) * moved
    zero = 0.0 * x1
    return [[zero, g * x2, x1], [g * x2, 2.0 * g * g * z2, g * z1], [x1, g * z1, zero]]
