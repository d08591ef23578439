"""``deconvolution/tv``: the ADMM for isotropic total variation, any blur, any start and any β.

min ½‖Bz - y‖² + λ Σ_i ‖x_i‖₂ subject to Dz = x, D periodic forward differences; w = (z, x, μ),
‖w‖_H² = ‖z‖_S² + β‖x‖² + ‖μ‖²/β, S = M - BᵀB with a majorizer M ⪰ BᵀB, V_t = ‖w_{t+1} - w_t‖_H².

Statement. Let λ > 0, β > 0 and B1 ≠ 0. Then V_t never increases, V_t ≤ D/t for t ≥ 1 with D ≥ ‖w_0 - w*‖_H² for a solution w*,
and w_t converges to a solution. D = s(‖z_0‖ + Z)² + β(‖x_0‖ + R)² + (‖μ_0‖ + λ√N)²/β is known from the data: s ≥ ‖S‖, F ≥ the
optimal value, R = F/λ ≥ ‖x*‖, N pixels, and Z = cR + (‖y‖ + √(2F) + ‖B‖cR)/b ≥ ‖z*‖ with b ≤ ‖B1‖/‖1‖ and c² = 0.5 + 0.3a, a
the ratio of the sides of an image. The gap of the certificate is V_t, whose optimal value is 0.

Reference: docs/theorems/deconvolution.md, Theorem 2; Fazel, Pong, Sun, Tseng (SIAM J. Matrix Anal. 34(3), 2013); He and Yuan
(Numer. Math. 130, 2015) for the rate.
"""

from __future__ import annotations

from ..numbers import Number, Quantities, sqrt
from ..statement import Inequality
from .change import MonotoneChange

DIRECTIONS: dict[str, str] = {
    "initial_gap": "upper",  # V_0
    "beta": "upper",
    "penalty": "lower",  # λ
    "blur_norm": "upper",  # ‖B‖
    "constant_gain": "lower",  # b, the least ‖B1‖/‖1‖ of an image
    "majorizer_excess": "upper",  # ‖S‖ ≤ ‖M - BᵀB‖
    "objective_bound": "upper",  # F, the objective at some point
    "pixels": "upper",  # N, of all images
    "aspect": "upper",  # a, the longer side over the shorter one
    "observed_norm": "upper",  # ‖y‖
    "start_latent": "upper",  # ‖z_0‖
    "start_differences": "upper",  # ‖x_0‖
    "start_multiplier": "upper",  # ‖μ_0‖
}
"""Every base quantity and the direction in which its published value must err."""
RULE = "tv-admm"


class TotalVariationADMM(MonotoneChange):
    """V_t is monotone and at most D/t."""

    id = "deconvolution/tv"
    statement = (
        "For every beta > 0 and every blur the ADMM for total variation converges, the change from iterate to iterate never "
        "increases in the norm of the method, and its square is at most D/t."
    )
    reference = "surefoot, docs/theorems/deconvolution.md, Theorem 2; Fazel et al. 2013; He and Yuan 2015"
    rule = RULE
    base = tuple(DIRECTIONS)
    stands_for_step = "beta"

    def conditions(self, q: Quantities) -> list[Inequality]:
        return [
            Inequality("the penalty is positive: lambda > 0", q["penalty"], ">", 0.0),
            Inequality("beta > 0", q["beta"], ">", 0.0),
            Inequality("the blur sees constants: ||B1|| > 0", q["constant_gain"], ">", 0.0),
        ]

    def distance(self, q: Quantities) -> Number:
        radius = q["objective_bound"] / q["penalty"]
        apart = sqrt(0.5 + 0.3 * q["aspect"]) * radius  # of z* from its mean (Lemma 1)
        mean = (q["observed_norm"] + sqrt(2.0 * q["objective_bound"]) + q["blur_norm"] * apart) / q["constant_gain"]
        latent, differences = q["start_latent"] + apart + mean, q["start_differences"] + radius
        multiplier = q["start_multiplier"] + q["penalty"] * sqrt(q["pixels"])
        z, x, mu = q["majorizer_excess"] * latent * latent, differences * differences, multiplier * multiplier
        return z + q["beta"] * x + mu / q["beta"]


THEOREM = TotalVariationADMM()
