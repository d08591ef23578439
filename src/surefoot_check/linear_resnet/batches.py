"""What the theorems about mini-batches ask of deep linear ResNets on N rows X (N, d) that can be fitted.

X = QX̃ᵀ with orthonormal columns of Q (N, r) and X̃ (d, r), r = d. The residual is R = (U - Ŵᵀ)X̃ (k, r), that of a batch RQ_Sᵀ.
With z, M, μ of Lemma 3 and 𝒦 = Σ (B_lB_lᵀ)⊗(A_lᵀA_l), A_l for X̃, on a ball of radius ϱ: b² = Σz², Λ = λ_max(M), Λ_B = χΛ,
β² = χ²Σz², ω = min(ω_Q, χ²)Σz², σ(ϱ) = max(√μ, √λ_min(𝒦) - ϱΛ), where χ² = max ‖Q_S‖² over the batches and, ℓ_i = ‖q_i‖² of
the rows, ω_Q = λ_max((B-1)/(N-1) I + (N-B)/(N-1) Σ ℓ_i q_i q_iᵀ). Reference: docs/theorems/sgd.md.

Q is not known exactly. QR gives X = Q̂T + E; put Q' = XT⁻¹ = Q̂ + ET⁻¹ and Q'ᵀQ' = I + F. Then Q = Q'(I+F)^(-½) and X̃ᵀ = (I+F)^½ T:
Q is within ‖ET⁻¹‖ + ‖F‖ of Q̂ (Frobenius), what is measured of A_l for Tᵀ is off by a factor between √(1-‖F‖) and √(1+‖F‖), and
𝒦 by one between 1-‖F‖ and 1+‖F‖; ‖J⁺r‖ is the same with Tᵀ in place of X̃.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from ..arrays import FormatError
from ..minibatch import on_published_balls
from ..problems import Fitted
from ..rigor.approximation import Approximation, least_solution
from ..rigor.batch_norms import largest_norm_square, second_moment
from ..rigor.bounds import UNIT_ROUNDOFF, Array, Level, array_down, array_up, down, frobenius_upper, up, witnesses
from ..rigor.gram import singular_extremes, symmetric_extremes
from ..rigor.intervals import Interval, root_down, sum_up
from .constants import Measured
from .measuring import Products, end_to_end, measure, quantities_on_ball

MOST_ROWS = 2048
"""Rows up to which the products of all pairs are looked at; of more of them the sum of the largest leverages is taken."""
MOST_RESIDUALS = 1024
"""Numbers of a residual kr up to which 𝒦 is made."""
FROM_BELOW = 1.0 - 1e-6
"""The other end of an enclosure that is one by a formula of bounds: it allows for the rounding of another evaluation."""


def gram(A: Approximation, level: Level) -> Approximation:
    """AᵀA, exactly symmetric as computed."""
    value, error = level.signed_gram(np.ascontiguousarray(A.value.T))
    size = frobenius_upper(A.value)
    return Approximation(value, up(error + (2.0 * size + A.error) * A.error, 4))


class Orthonormal:
    """Rows X by orthonormal columns Q, up to an error, and the triangle T.

    Attributes:
        triangle: T (r, r).
        Q: (N, r) with its error.
        off: ‖F‖; infinite where the rank is not certain.
    """

    def __init__(self, X: Array, level: Level) -> None:
        factors = witnesses(np.linalg.qr, X)
        self.level, self.off = level, math.inf
        self.Q, self.triangle = Approximation(X, math.inf), X[: X.shape[1]]
        if factors is None:
            return
        Q, T = (np.ascontiguousarray(factor) for factor in factors)
        least = singular_extremes(T, level)[0][0]
        if not least > 0.0:
            return
        moved = up(level.residual(X, Q, T) / least)
        defect = level.defect(Q)
        off = up(defect + (2.0 * math.sqrt(up(1.0 + defect)) + moved) * moved, 6)
        if off < 0.5:
            self.Q, self.triangle, self.off = Approximation(Q, up(moved + off)), T, off

    @cached_property
    def leverages(self) -> Array:
        """Upper bounds of ℓ_i, at most 1."""
        squares = array_up(np.square(self.Q.value).sum(axis=1) + 1e-300, self.Q.value.shape[1] + 2)
        lengths = array_up(np.sqrt(squares), 1)
        return np.minimum(1.0, array_up((lengths + self.Q.error) ** 2, 3))

    def largest(self, batch: int) -> float:
        """Upper bound of χ²."""
        rows = len(self.leverages)
        if batch == rows or not math.isfinite(self.off):
            return 1.0
        most = min(1.0, sum_up(np.sort(self.leverages)[rows - batch :].tolist()))
        if rows > MOST_ROWS:
            return most
        return min(most, largest_norm_square(gram(self.Q.T, self.level), 1, batch, 1.0, self.level))

    def moment(self, batch: int) -> float:
        """Upper bound of ω_Q."""
        rows, columns = self.Q.value.shape
        if batch == rows or not math.isfinite(self.off):
            return 1.0
        lengths = np.sqrt(np.square(self.Q.value).sum(axis=1))
        # ‖q‖q of a row: its derivative is at most 2‖q‖, and all rows here are of length at most 2
        rounding = up((columns + 8.0) * 2.0 * UNIT_ROUNDOFF * 2.0 * frobenius_upper(self.Q.value))
        scaled = Approximation(self.Q.value * lengths[:, None], up(4.0 * self.Q.error + rounding + 1e-300))
        unit = Approximation(np.eye(columns))
        return second_moment(unit, gram(scaled, self.level), rows, batch, 1.0, self.level)


class Batches:
    """Bounds of one network on one problem."""

    def __init__(self, problem: Fitted, weights: Mapping[str, Array]) -> None:
        self.problem, self.weights, self.level = problem, weights, problem.level
        self.rows = Orthonormal(problem.X, problem.level)
        self._chi: dict[int, tuple[float, float]] = {}

    @cached_property
    def products(self) -> Products:
        """All A_l for T, and B_l."""
        return Products.of(self.weights, self.rows.triangle, self.level)

    @cached_property
    def measured(self) -> Measured:
        """What Lemma 3 asks for."""
        found, off = measure(self.weights, self.rows.triangle, self.level, self.products), self.rows.off
        if not math.isfinite(off):
            return replace(found, a_low=np.zeros_like(found.a_low), a=np.full_like(found.a, np.inf))
        return replace(found, a=array_up(found.a * (1.0 + off), 2), a_low=array_down(found.a_low * (1.0 - off), 2))

    @cached_property
    def kernel(self) -> Approximation | None:
        """𝒦 for T (kr, kr); ``None`` where it is too large."""
        forward, backward = self.products.forward, self.products.backward
        if backward[0].value.shape[0] * forward[0].value.shape[1] > MOST_RESIDUALS:
            return None
        total = None
        for A, B in zip(forward, backward, strict=True):
            G, H = gram(A, self.level), gram(B.T, self.level)
            value = np.asarray(np.kron(H.value, G.value), dtype=np.float64)
            size, other = frobenius_upper(H.value), frobenius_upper(G.value)
            error = up(size * G.error + other * H.error + H.error * G.error + UNIT_ROUNDOFF * size * other + 1e-300, 8)
            part = Approximation(value, error)
            total = part if total is None else total + part
        return total

    @cached_property
    def least(self) -> Interval:
        """Enclosure of σ_0; from below where 𝒦 is too large."""
        by_layers = root_down(self._on_ball(0.0)["pl_constant"][0])
        if self.kernel is None or not math.isfinite(self.rows.off):
            return by_layers, by_layers / FROM_BELOW
        low, high = symmetric_extremes(self.kernel.value, self.level, self.kernel.error)[0]
        low, high = down(low * (1.0 - self.rows.off), 2), up(max(0.0, high) * (1.0 + self.rows.off), 2)
        return max(by_layers, root_down(low)), max(by_layers, up(math.sqrt(high)))

    @cached_property
    def gap(self) -> float:
        """Upper bound of the gap."""
        return self.problem.gap_upper(end_to_end(self.weights, self.level))

    @cached_property
    def newton_step(self) -> float:
        """Upper bound of ‖J⁺r‖; infinite where there is none."""
        sigma = self.least[0]
        if not sigma > 0.0:
            return math.inf
        shortest = up(math.sqrt(up(2.0 * self.gap)) / sigma, 2)
        if self.kernel is None:
            return shortest
        T = self.rows.triangle
        apart = end_to_end(self.weights, self.level) - self.problem.optimum
        residual = apart.image(T, singular_extremes(T, self.level)[1][1], self.level)
        column = Approximation(np.ascontiguousarray(residual.value.T).reshape(-1, 1), residual.error)
        # the least singular value for T is at least that for X̃ by √(1+‖F‖)
        of_triangle = down(sigma * (1.0 - self.rows.off), 2)
        return min(shortest, least_solution(self.kernel, column, of_triangle, self.level))

    def of_batches(self, batch: int) -> tuple[float, float]:
        """Upper bounds of χ² and of min(ω_Q, χ²)."""
        if batch not in self._chi:
            largest = self.rows.largest(batch)
            self._chi[batch] = largest, min(largest, self.rows.moment(batch))
        return self._chi[batch]

    def at_start(self) -> dict[str, Interval]:
        """What depends on no ball."""
        return {
            "initial_gap": (0.0, self.gap),
            "newton_step": (0.0, self.newton_step),
            "sigma_min_J": self.least,
        }

    def on_ball(self, radius: float, batch: int) -> dict[str, Interval]:
        """What depends on a ball and the batch size; ``sigma`` is the least singular value of J there."""
        there = self._on_ball(radius)
        squares, bend = there["gauss_newton"][1], there["bilinear"][1]
        largest, moment = self.of_batches(batch)
        chi, size = up(math.sqrt(largest)), up(math.sqrt(squares))
        by_layers, (low, high) = root_down(there["pl_constant"][0]), self.least
        sigma = max(by_layers, down(low - up(radius * bend)))
        most = max(by_layers / FROM_BELOW, high - radius * bend * FROM_BELOW)
        uppers = {
            "norm_J_ball": size,
            "lipschitz_J": bend,
            "lipschitz_batch": up(chi * bend),
            "norm_batch": up(chi * size),
            "second_moment": up(moment * squares),
        }
        return {**{name: (max(0.0, down(x * FROM_BELOW)), x) for name, x in uppers.items()}, "sigma": (sigma, most)}

    def enclosures(self, published: Mapping[str, float]) -> dict[str, Interval]:
        """Of the base quantities, given the published radii and batch size."""
        found, batch = self.at_start(), published.get("batch", math.nan)
        if not (math.isfinite(batch) and batch == int(batch) and 1 <= batch <= len(self.problem.X)):
            raise FormatError(f"the batch size is {batch}; it must be a whole number from 1 to {len(self.problem.X)}")
        return found | on_published_balls(published, lambda radius: self.on_ball(radius, int(batch)))

    def _on_ball(self, radius: float) -> dict[str, Interval]:
        """μ, Σz², λ_max(M); unbounded where they overflow."""
        nothing = {"pl_constant": (0.0, 0.0), "gauss_newton": (0.0, math.inf), "bilinear": (0.0, math.inf)}
        return nothing | quantities_on_ball(self.measured, radius, self.level)
