"""How much the Hessian of an objective changes on a ball of weights, row by row: Lemma 5 of docs/theorems/feed-forward.md.

With C_i the second derivative of the loss of row i by its outputs f_i, c and the masses in it, g_i the first, p_i the softmax and
e_j unit vectors, H changes by at most T1 + T2 + T3 times as much as the weights,

    T1 = max_ij‖(e_j - p_i)ᵀJ_i‖ λ_max(JᵀCJ),  0 for the squared loss,    T2 = 3 √λ_max(JᵀCJ) Λ_C,
    T3 = max_j (τ_j + 2/√3 χ_j),  τ_j = max_i‖x̃_i‖ ‖diag_i(|(Vᵀg_i)_j|Φ3)^½ x̃‖²,  χ_j = ‖diag_i(‖g_i‖|φ''_ij|)^½ x̃‖²

each maximised over the ball: Λ_C is that of Lemma 3 with C^½f in place of f, T3 that of one hidden layer under W2 = V. Of more
hidden layers it is c G q_L of Lemma 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..rigor.approximation import Approximation
from ..rigor.balls import ball, float_above
from ..rigor.bounds import Array, NotFiniteError, array_up, up
from ..rigor.many_norms import norms_of_rows, weighted_norms
from .enclosures import Measured, bend
from .groups import Groups
from .network import Objective
from .sharp_centre import Centre
from .smooth import bends

MOST = 100.0
"""Of a change of f on the ball for which there is a bound."""
STEEPEST = 2.0 / math.sqrt(3.0)
"""3 times the largest vs² for s² + v² = 1."""
SECOND = {False: 1.0, True: 0.5}
"""By whether the loss of a row is the cross-entropy: a bound of its second derivative, and of how steep the softmax is."""


@dataclass(frozen=True)
class ByLayers:
    """What is taken of Lemma 2, on the ball.

    Attributes:
        row: bound of the norm of a row of ḟ in a direction of norm 1.
        bend: of ‖f̈‖, Λ of Lemma 1.
        third: of c‖g‖‖f⃛‖.
    """

    row: float
    bend: float
    third: float


class RowWise:
    """What holds at the centre, measured once."""

    def __init__(
        self, problem: Objective, at: Measured, outcome: Approximation, slopes: Approximation, largest: float
    ) -> None:
        """Of two layers or more.

        Args:
            outcome: the softmax of f where the loss is a cross-entropy.
            slopes: the g_i (N, k).
            largest: bound of λ_max(JᵀCJ).
        """
        self.problem, self.at, self.outcome, self.slopes, self.largest = problem, at, outcome, slopes, largest
        self.count, self.k = slopes.value.shape
        self.groups = Groups(np.arange(float(self.count))[:, None], problem.Y)  # each row counts for itself

    @cached_property
    def _deviations(self) -> Approximation:
        """I - 1pᵀ for each row (N k, k)."""
        identity = Approximation(np.tile(np.eye(self.k), (self.count, 1)))
        repeated = np.repeat(self.outcome.value, self.k, axis=0)
        return identity - Approximation(repeated, up(math.sqrt(self.k) * self.outcome.error, 2))

    @property
    def _roots(self) -> Approximation:
        """For each row S_i (k, k) with |S_ix|² no less than x·C_ix: c = Q(diag p - ppᵀ) is that of (Q diag p)^½(I - 1pᵀ)."""
        scale, masses = up(float(self.problem.scale)), self.problem.masses
        if not self.problem.entropy:
            return Approximation(up(math.sqrt(scale)) * np.tile(np.eye(self.k), (self.count, 1)))
        weights = scale * (np.maximum(self.outcome.value, 0.0) + self.outcome.error)
        if masses is not None:
            weights = weights * (masses.value + masses.error)
        return self._deviations * Approximation(array_up(np.sqrt(weights), 6).reshape(-1, 1) * np.ones(self.k))

    @cached_property
    def centre(self) -> Centre:
        """Of C^½f."""
        return self.at.centre_of(self.at.backwards(self._roots, self.groups), self.groups)

    @cached_property
    def farthest(self) -> float:
        """max_ij‖(e_j - p_i)ᵀJ_i‖."""
        squares = np.zeros(self.count * self.k)
        for layer, (_, back) in zip(self.at.layers, self.at.backwards(self._deviations, self.groups), strict=True):
            inputs = np.repeat(layer.row_norms, self.k)
            squares += np.square((norms_of_rows(back.value) + back.error) * inputs)
        return up(math.sqrt(float(squares.max())), 8 * len(self.at.layers))

    @cached_property
    def _pulled(self) -> Array:
        """Bounds of |(Vᵀg_i)_j| (N, width)."""
        V = self.at.layers[1]
        found = self.slopes.T.image(V.W.T, V.norm, self.problem.level).T
        return array_up(np.abs(found.value) + found.error, 1)

    @cached_property
    def _sizes(self) -> Array:
        """Bounds of ‖g_i‖ (N,)."""
        return array_up(norms_of_rows(self.slopes.value) + self.slopes.error, 1)

    @cached_property
    def _bends(self) -> tuple[Array, float, float]:
        """Bounds of |φ''| (N, width) of the hidden layer, Φ3, and whether V is trained."""
        first, second = self.at.layers
        found, third = bends(first.kind.activation, first.kind.settings, first.before, self.problem.level)
        return found, third, float(second.kind.trains_W)

    @cached_property
    def _of_units(self) -> float:
        """T3 of one hidden layer."""
        x, level = self.at.layers[0].extended, self.problem.level
        bent, third, moves = self._bends
        squares = []
        for weights in (self._pulled * third, self._sizes[:, None] * bent):
            norms = weighted_norms(array_up(np.sqrt(weights), 2), x.value, level) + math.sqrt(weights.max()) * x.error
            squares.append(array_up(np.square(norms), 6))
        longest = float(self.at.layers[0].row_norms.max())
        return up(float((longest * squares[0] + moves * STEEPEST * squares[1]).max()), 6)

    def _third(self, radius: float, of: ByLayers) -> float:
        """T3: on the ball weights grow, by which a square of a norm grows by at most Σ_i Δw_i‖x̃_i‖²."""
        if len(self.at.layers) > 2:
            return of.third
        V, rows = self.at.layers[1], self.at.layers[0].row_norms
        bent, third, moves = self._bends
        within = radius * moves
        masses = self.problem.largest_mass * up(float(self.problem.scale))
        apart = masses * SECOND[self.problem.entropy] * radius * of.row  # of g_i
        pulled = third * ((V.norm + within) * apart + within * self._sizes)
        curved = apart * bent.max(axis=1) + (self._sizes + apart) * third * radius * rows
        more = float(((rows.max() * pulled + moves * STEEPEST * curved) * np.square(rows)).sum())
        return up(self._of_units + more, 2 * self.count + 16)

    def bound(self, radius: float, of: ByLayers) -> float:
        """Upper bound on the ball of this radius; infinite where there is none, or where numbers overflow."""
        try:
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                return self._bound(radius, of)
        except NotFiniteError:
            return math.inf

    def _bound(self, radius: float, of: ByLayers) -> float:
        """There C is at most exp(τ) times what it is at the centre, τ = √2 max_i‖Δf_i‖, and C^½J moves by no more than Λ_C ρ."""
        apart, entropy = up(radius * of.row), self.problem.entropy
        bent = bend(self.centre, radius)
        if not (math.isfinite(bent) and apart < MOST):
            return math.inf
        stretched = float_above(ball(up(math.sqrt(0.5) * apart, 2)).exp()) if entropy else 1.0  # exp(½τ)
        size = up(stretched * (math.sqrt(self.largest) + radius * bent), 6)
        first = (
            (self.farthest + radius * math.sqrt(2.0) * of.bend + 0.5 * apart * of.row) * size * size if entropy else 0.0
        )
        return up(first + 3.0 * size * stretched * bent + self._third(radius, of), 24)
