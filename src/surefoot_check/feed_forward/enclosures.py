"""Rigorous enclosures of the base quantities of feed-forward networks on concrete arrays.

The rows of the Jacobian J belong to the outputs of all rows of X, row by row. J is never formed: its Gram matrix is
JJᵀ = Σ_l (B_lB_lᵀ) ∘ (ã_{l-1}ã_{l-1}ᵀ), with B_l = ∂f/∂z_l row by row and ã_{l-1} the inputs of layer l, a column of ones
beside them where it has a bias. Equal rows of X are merged in J and in the residual; Λ and the kinks are those of all rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple
from functools import cached_property
from typing import Any

import numpy as np

from ..rigor.approximation import Approximation
from ..rigor.balls import arb_matrix, ball, frobenius
from ..rigor.bounds import UNIT_ROUNDOFF, Array, array_up, up, witnesses
from ..rigor.gram import symmetric_extremes
from ..rigor.intervals import TINY, Interval, bounded, root_down
from .layer import Layer, gram_of, norms_of_rows
from .lipschitz import LayerBounds, is_below, symmetric_bend
from .network import DEEPEST, Network, moving_kinks

EIGENVALUE = 1e-13
"""Relative distance at which an eigenvalue of a few numbers is tried to be bounded; doubled until it is."""


PRECISION = 128
"""Bits of the ball arithmetic of the bound of Λ."""
WIDEST = 1e300
"""Above every margin."""


class Measured:
    """What the base quantities are computed from; each part is measured once, when it is needed."""

    def __init__(self, problem: Network, weights: Mapping[str, Array]) -> None:
        self.problem, self.weights = problem, weights
        self.layers: list[Layer] = []
        a, every = Approximation(problem.X), {**problem.frozen, **weights}
        for number, kind in enumerate(problem.layers, 1):
            layer = Layer(kind, every[f"W{number}"], every.get(f"b{number}"), a, problem.level)
            self.layers.append(layer)
            if number < len(problem.layers):
                a = layer.outputs

    @cached_property
    def residual(self) -> Approximation:
        """√m(f(x) - ȳ) (G, k) of the G groups of m equal rows x: f(X) - Y where all differ."""
        return self.problem.groups.residual(self.layers[-1].before)

    @cached_property
    def gap(self) -> float:
        """Upper bound of the loss less its least value."""
        norm = self.residual.norm()
        return up(0.5 * norm * norm, 2)

    @cached_property
    def gram(self) -> Approximation:
        """JJᵀ (n, n), n = G k, exactly symmetric."""
        level, k, groups = self.problem.level, self.problem.Y.shape[1], self.problem.groups
        total: Approximation | None = None
        roots = np.repeat(groups.roots.value, k)[:, None]
        back = Approximation(roots * np.tile(np.eye(k), (len(groups.first), 1)), up(k * groups.roots.error))
        for index in reversed(range(len(self.layers))):
            layer = self.layers[index]
            outer = gram_of(groups.one_of_each(layer.extended), level)
            repeated = Approximation(np.repeat(np.repeat(outer.value, k, axis=0), k, axis=1), up(k * outer.error))
            part = gram_of(back, level) * repeated
            total = part if total is None else total + part
            if index > 0:
                back = self._behind(back, layer, self.layers[index - 1])
        assert total is not None
        return total

    def _behind(self, back: Approximation, layer: Layer, before: Layer) -> Approximation:
        """∂f/∂z of the layer before, row by row, from that of the layer."""
        k = self.problem.Y.shape[1]
        of_rows = self.problem.groups.one_of_each(before.slopes)
        slopes = Approximation(np.repeat(of_rows.value, k, axis=0), up(math.sqrt(k) * of_rows.error, 2))
        return back.T.image(layer.W.T, layer.norm, self.problem.level).T * slopes

    @cached_property
    def singular_values(self) -> tuple[Interval, Interval]:
        """Enclosures of σ_n(J), 0 where J has more rows than columns, and of ‖J‖."""
        least, largest = symmetric_extremes(self.gram.value, self.problem.level, self.gram.error)
        roots = ((root_down(low), up(math.sqrt(max(0.0, high)))) for low, high in (least, largest))
        return next(roots), next(roots)

    @cached_property
    def newton_step(self) -> float:
        """Upper bound of ‖J⁺r‖; infinite where there is none.

        With G = JJᵀ and any x, J⁺r = Jᵀx + J⁺(r - Gx), of norm at most √(xᵀGx) + ‖r - Gx‖/σ_n; x = 0 is one.
        """
        sigma, r, level = self.singular_values[0][0], self.residual, self.problem.level
        if not sigma > 0.0:
            return math.inf
        column = Approximation(r.value.reshape(-1, 1), r.error)
        least = up(r.norm() / sigma)
        solved = witnesses(np.linalg.solve, self.gram.value, column.value)
        if solved is None:
            return least
        x = Approximation(solved[0])
        image = x.image(self.gram.value, 0.0, level, moved=self.gram.error)
        square, error = level.product(x.value.T, image.value)
        length = math.sqrt(max(0.0, up(float(square[0, 0]) + error + up(x.norm() * image.error), 3)))
        return min(least, up(up(length) + (column - image).norm() / sigma, 3))

    @cached_property
    def bounds(self) -> list[LayerBounds]:
        """What the lemma on the change of the Jacobian asks of the layers."""
        return [layer.bounds for layer in self.layers]

    def lipschitz(self, radius: float) -> float:
        """Upper bound of Λ on the ball of this radius, in ball arithmetic; infinite where there is none."""
        from flint import ctx

        with ctx.workprec(PRECISION):  # the same for certifier and checker
            return largest_eigenvalue(symmetric_bend(self.in_balls, ball(radius)))

    @property
    def in_balls(self) -> list[LayerBounds]:
        """``bounds`` as balls."""
        return [LayerBounds(*map(ball, astuple(layer))) for layer in self.bounds]

    def kink_margins(self, radius: float) -> list[Array | None]:
        """For each layer whose activation has kinks, lower bounds of how often the change on the ball fits into the distance of
        each pre-activation (N, width) to the nearest kink."""
        found: list[Array | None] = []
        reach = np.zeros(len(self.problem.X))
        slope = 0.0
        for layer, kinks in zip(self.layers, moving_kinks(self.problem), strict=True):
            within = radius * layer.kind.trains_W
            rows, units = layer.row_norms, norms_of_rows(layer.W) + within
            moved = radius * np.sqrt(np.square(np.outer(slope * reach, units)) + np.square(rows)[:, None])
            reach = np.sqrt(np.square(slope * (layer.norm + within) * reach) + np.square(rows))
            slope = layer.kind.activation.slope(layer.kind.settings)
            z = layer.before
            if not kinks:
                found.append(None)
                continue
            distance = (
                np.min([np.abs(z.value - kink) for kink in kinks], axis=0) * (1.0 - 4.0 * UNIT_ROUNDOFF) - z.error
            )
            # all terms are positive, so that relative errors add up: those of at most 8 operations for each layer before
            bound = array_up(moved, 16 * DEEPEST) + TINY
            found.append(np.maximum(distance, 0.0) / bound * (1.0 - 16.0 * UNIT_ROUNDOFF))
        return found

    def kink_margin(self, radius: float) -> Interval:
        """Enclosure of the least of them: 0 is below it where nothing else is known to be."""
        least = min(float(margins.min()) for margins in self.kink_margins(radius) if margins is not None)
        return (least if math.isfinite(least) else 0.0), WIDEST

    def base_quantities(self, quantities: Mapping[str, float]) -> dict[str, Interval]:
        """Enclosures of the base quantities; those of the ball where ``quantities`` has its radius, ``ball``, and
        ``newton_step`` where it has one."""
        least, largest = self.singular_values
        found: dict[str, Interval] = {"initial_gap": (0.0, self.gap), "sigma_min_J": least, "norm_J": largest}
        if "newton_step" in quantities:
            found["newton_step"] = 0.0, self.newton_step
        radius = quantities.get("ball", math.nan)
        if radius >= 0.0:
            found["lipschitz_J"] = 0.0, self.lipschitz(radius)
            if any(moving_kinks(self.problem)):
                found["kink_margin"] = self.kink_margin(radius)
        return bounded(found)


def largest_eigenvalue(S: list[list[Any]]) -> float:
    """Upper bound of the largest eigenvalue of a symmetric matrix of balls, none negative; infinite where there is none."""
    computed = np.array([[float(x) for x in row] for row in S])
    if not np.isfinite(computed).all():
        return math.inf
    if all(x == 0 for row in S for x in row):  # not of ``computed``, in which small ones vanish
        return 0.0
    values = witnesses(np.linalg.eigvalsh, computed)
    if values is None:
        return math.inf
    largest, slack = float(values[0][-1]), EIGENVALUE
    while slack < 1.0:
        bound = up(largest * (1.0 + slack), 2)
        if is_below(S, ball(bound)):
            return bound
        slack *= 2.0
    return math.inf


def gap_exact(problem: Network, weights: Mapping[str, Array]) -> tuple[Any, Any]:
    """Bounds of the loss less its least value in ball arithmetic, from the exact weights."""
    from flint import arb_mat

    a: Any = arb_matrix(problem.X[problem.groups.first])
    every = {**problem.frozen, **weights}
    for number, kind in enumerate(problem.layers, 1):
        z = a * arb_matrix(every[f"W{number}"]).transpose()
        b = every.get(f"b{number}")
        shift = [ball(0.0)] * kind.outputs if b is None else [ball(float(x)) for x in b]
        entries = [
            kind.activation.exact(x + shift[index % kind.outputs], kind.settings) for index, x in enumerate(z.entries())
        ]
        a = arb_mat(len(problem.groups.first), kind.outputs, entries)
    low, high = frobenius(problem.groups.exact_residual(a))
    return (low * low / 2 if low > 0 else None), high * high / 2
