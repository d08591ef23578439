"""``deconvolution/ladmm``: the linearised ADMM with fixed parameters for sparse deconvolution, any blur and any start.

min ½‖Bz - y‖² + λ‖x‖₁ subject to z = Wᵀx; w = (z, x, μ), ‖w‖_H² = ‖z‖_S² + ‖x‖²/γ + ‖μ‖²/β, S = M - BᵀB + (1/α - β)I with a
majorizer M ⪰ BᵀB, V_t = ‖w_{t+1} - w_t‖_H².

Statement. Let λ > 0, αβ ≤ 1 and γβ‖W‖² ≤ 1. Then V_t never increases, V_t ≤ D/t for t ≥ 1 with D ≥ ‖w_0 - w*‖_H² for a
solution w*, and w_t converges to a solution. D = s(‖z_0‖ + ‖W‖R)² + (‖x_0‖ + R)²/γ + (‖μ_0‖ + ‖B‖ sqrt(2F))²/β is known from
the data: s ≥ ‖S‖, F ≥ the optimal value, R = F/λ ≥ ‖x*‖₁. The gap of the certificate is V_t, whose optimal value is 0.

Reference: docs/theorems/deconvolution.md, Theorem 1; Fazel, Pong, Sun, Tseng (SIAM J. Matrix Anal. 34(3), 2013); He and Yuan
(Numer. Math. 130, 2015) for the rate.
"""

from __future__ import annotations

import math
from fractions import Fraction

from ..numbers import Number, Quantities, sqrt
from ..statement import Inequality
from .change import MonotoneChange

DIRECTIONS: dict[str, str] = {
    "initial_gap": "upper",  # V_0
    "alpha": "upper",
    "beta": "upper",
    "gamma": "upper",
    "penalty": "lower",  # λ
    "transform_norm": "upper",  # ‖W‖
    "blur_norm": "upper",  # ‖B‖
    "majorizer_excess": "upper",  # ‖S‖ ≤ ‖M - BᵀB‖ + 1/α - β
    "objective_bound": "upper",  # F, the objective at some point
    "start_latent": "upper",  # ‖z_0‖
    "start_coefficients": "upper",  # ‖x_0‖
    "start_multiplier": "upper",  # ‖μ_0‖
}
"""Every base quantity and the direction in which its published value must err."""
RULE = "ladmm"


class LinearisedADMM(MonotoneChange):
    """V_t is monotone and at most D/t."""

    id = "deconvolution/ladmm"
    statement = (
        "With fixed alpha beta <= 1 and gamma beta ||W||^2 <= 1 the linearised ADMM converges for every blur, the change from "
        "iterate to iterate never increases in the norm of the method, and its square is at most D/t."
    )
    reference = "surefoot, docs/theorems/deconvolution.md, Theorem 1; Fazel et al. 2013; He and Yuan 2015"
    rule = RULE
    base = tuple(DIRECTIONS)
    stands_for_step = "alpha"

    def conditions(self, q: Quantities) -> list[Inequality]:
        return [
            Inequality("the parameters are fixed", int(q["adaptive"]), "<=", 0),
            Inequality("the z-step is exact", int(q["inexact"]), "<=", 0),
            Inequality("the penalty is positive: lambda > 0", q["penalty"], ">", 0.0),
            Inequality("alpha beta <= 1", product_above(q["alpha"], q["beta"]), "<=", 1.0),
            Inequality("gamma beta ||W||^2 <= 1", q["gamma"] * q["beta"] * q["transform_norm"] ** 2, "<=", 1.0),
        ]

    def distance(self, q: Quantities) -> Number:
        radius = q["objective_bound"] / q["penalty"]
        latent = q["start_latent"] + q["transform_norm"] * radius
        coefficients = q["start_coefficients"] + radius
        multiplier = q["start_multiplier"] + q["blur_norm"] * sqrt(2.0 * q["objective_bound"])
        z, x, mu = q["majorizer_excess"] * latent * latent, coefficients * coefficients, multiplier * multiplier
        return z + x / q["gamma"] + mu / q["beta"]


def product_above(x: Number, y: Number) -> Number:
    """xy, of floats rounded upwards; 10 times the float 0.1 is above 1, and rounded to nearest it is 1."""
    product = x * y
    if not isinstance(product, float):
        return product
    exact = not math.isfinite(product) or Fraction(product) >= Fraction(x) * Fraction(y)
    return product if exact else math.nextafter(product, math.inf)


THEOREM = LinearisedADMM()
