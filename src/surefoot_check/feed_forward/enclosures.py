"""Rigorous enclosures of the base quantities of feed-forward networks on concrete arrays.

The rows of the Jacobian J belong to the outputs of all rows of X, row by row. Of dense layers it is never formed: its Gram matrix
is JJᵀ = Σ_l (B_lB_lᵀ) ∘ (ã_{l-1}ã_{l-1}ᵀ), with B_l = ∂f/∂z_l row by row and ã_{l-1} the inputs of layer l, a column of ones
beside them where it has a bias; of a convolution (``shared``) its block is. Equal rows of X are merged in J and in the residual;
Λ and the kinks are those of all rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property, reduce
from operator import add
from typing import Any

import numpy as np

from ..near_a_fit.kinks import least_margin
from ..near_a_fit.measuring import NearAFit
from ..rigor.approximation import Approximation
from ..rigor.balls import arb_matrix, ball, frobenius
from ..rigor.bounds import Array, NotFiniteError, up
from ..rigor.intervals import Interval, bounded
from ..rigor.pivots import PRECISION, largest_eigenvalue
from .batches import Batches
from .groups import Groups
from .layer import Layer
from .lipschitz import LayerBounds, symmetric_bend
from .network import Network, moving_kinks
from .shared import exact_maximum, layer_of
from .sharp import bend_matrix
from .sharp_centre import Centre


class Measured(NearAFit):
    """What the base quantities are computed from; each part is measured once, when it is needed."""

    def __init__(self, problem: Network, weights: Mapping[str, Array]) -> None:
        self.problem, self.weights, self.level = problem, weights, problem.level
        self.layers: list[Layer] = []
        outputs, every = [Approximation(problem.X)], {**problem.frozen, **weights}
        for number, kind in enumerate(problem.layers, 1):
            W, b, before = every.get(f"W{number}"), every.get(f"b{number}"), self.layers[-1] if self.layers else None
            layer = layer_of(kind, W, b, outputs[-1], problem.level, before)
            self.layers.append(layer)
            if number < len(problem.layers):
                outputs.append(layer.outputs + outputs[kind.skip] if kind.skip >= 0 else layer.outputs)

    @cached_property
    def residual(self) -> Approximation:
        """√(cm)(f(x) - ȳ) (G, k) of the G groups of m equal rows x: f(X) - Y where all differ and the loss is no multiple."""
        return self.problem.groups.residual(self.layers[-1].before)

    @cached_property
    def backward(self) -> list[tuple[Approximation, Approximation]]:
        """For each layer ∂f/∂a and ∂f/∂z (G k, outputs), output by output of one row of each group, times √m; those of the last
        are equal."""
        k, groups = self.problem.Y.shape[1], self.problem.groups
        roots = np.repeat(groups.roots.value, k)[:, None]
        ends = Approximation(roots * np.tile(np.eye(k), (len(groups.first), 1)), up(k * groups.roots.error))
        return self.backwards(ends, groups)

    def backwards(self, ends: Approximation, groups: Groups) -> list[tuple[Approximation, Approximation]]:
        """The same of S_if with as many matrices S_i as groups, one below the other in ``ends`` (·, k)."""
        count, each = len(self.layers), len(ends.value) // len(groups.first)
        of_outputs, found = {count: ends}, []
        for number in range(count, 0, -1):
            layer, back = self.layers[number - 1], of_outputs[number]
            if layer.kind.skip > 0:
                _add(of_outputs, layer.kind.skip, back)
            if number < count:
                slopes = groups.one_of_each(layer.slopes)
                repeated = np.repeat(slopes.value, each, axis=0)
                back = back * Approximation(repeated, up(math.sqrt(each) * slopes.error, 2))
            found.insert(0, (of_outputs[number], back))
            if number > 1:
                _add(of_outputs, number - 1, layer.pulled(groups, back))
        return found

    @cached_property
    def gram(self) -> Approximation:
        """JJᵀ (n, n), n = G k, exactly symmetric."""
        parts = (  # two of them are in memory at a time
            layer.gram(self.problem.groups, back)
            for layer, (_, back) in zip(self.layers, self.backward, strict=True)
            if layer.kind.parameters
        )
        return reduce(add, parts)

    @cached_property
    def bounds(self) -> list[LayerBounds]:
        """What the lemma on the change of the Jacobian asks of the layers."""
        return [layer.bounds for layer in self.layers]

    @cached_property
    def centre(self) -> Centre | None:
        """What Lemma 3 asks of the layers; ``None`` where it does not speak of them, or where numbers overflow."""
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                return self.centre_of(self.backward, self.problem.groups) if has_sharper_bound(self.problem) else None
        except NotFiniteError:
            return None

    def centre_of(self, backward: list[tuple[Approximation, Approximation]], groups: Groups) -> Centre:
        """The same of ``backwards``."""
        parts = zip(self.layers, backward, strict=True)
        return Centre([layer.values(groups, *back) for layer, back in parts], self.problem.level)

    def lipschitz(self, radius: float) -> float:
        """Upper bound of Λ on the ball of this radius; infinite where there is none."""
        return min(self.lipschitz_by_layers(radius), self.lipschitz_by_rows(radius))

    def lipschitz_by_layers(self, radius: float) -> float:
        """That of Lemma 1, in ball arithmetic."""
        from flint import ctx

        with ctx.workprec(PRECISION):  # the same for certifier and checker
            bend = largest_eigenvalue(symmetric_bend(self.in_balls, ball(radius)))
        return bend if bend == 0.0 or self.problem.multiple == 1 else up(bend * self.scale)

    @property
    def scale(self) -> float:
        """Upper bound of √c, by which residual and Jacobian are multiplied where the loss is c times the square."""
        multiple = self.problem.multiple
        return 1.0 if multiple == 1 else up(math.sqrt(multiple), 2)

    def lipschitz_by_rows(self, radius: float) -> float:
        """That of Lemma 3; infinite where there is none."""
        return math.inf if self.centre is None else bend(self.centre, radius)

    @property
    def in_balls(self) -> list[LayerBounds]:
        """``bounds`` as balls."""
        return [layer.each(ball) for layer in self.bounds]

    def kink_margins(self, radius: float) -> list[Array | None]:
        """For each layer with kinks, lower bounds of how often the change on the ball fits into the distance of each
        pre-activation (N, width) to the nearest kink."""
        found: list[Array | None] = []
        outputs = [(np.zeros_like(self.problem.X), np.zeros(len(self.problem.X)))]
        for layer, kinked in zip(self.layers, moving_kinks(self.problem), strict=True):
            entries, rows = outputs[-1]
            moved, reach = layer.moved(entries, rows, radius)
            found.append(layer.margins(entries, moved, radius) if kinked else None)
            slope, skip = layer.bounds.slope, layer.kind.skip
            entries, rows = slope * moved, slope * reach
            outputs.append((entries + outputs[skip][0], rows + outputs[skip][1]) if skip >= 0 else (entries, rows))
        return found

    def kink_margin(self, radius: float) -> Interval:
        """Enclosure of the least of them."""
        return least_margin(*(margins for margins in self.kink_margins(radius) if margins is not None))

    def batches(self, size: float) -> Batches | None:
        """Mini-batches of so many rows of X; ``None`` where it has not as many, or equal ones, which are merged in J."""
        samples, k = len(self.problem.X), self.problem.Y.shape[1]
        if not (self.problem.groups.all_differ and 1.0 <= size <= samples and size == math.floor(size)) or samples < 2:
            return None
        return Batches(self.gram, self.singular_values, self.lipschitz, k, int(size), self.problem.level)

    def on_ball(self, radius: float) -> dict[str, Interval]:
        found: dict[str, Interval] = {"lipschitz_J": (0.0, self.lipschitz(radius))}
        return found | ({"kink_margin": self.kink_margin(radius)} if any(moving_kinks(self.problem)) else {})

    def base_quantities(self, quantities: Mapping[str, float]) -> dict[str, Interval]:
        """Those of batches, too, where ``quantities`` has their size, ``batch``."""
        found = super().base_quantities(quantities)
        batches = self.batches(quantities["batch"]) if "batch" in quantities else None
        return found if batches is None else found | bounded(batches.base_quantities(quantities))


def _add(parts: dict[int, Approximation], number: int, part: Approximation) -> None:
    """Add to the part of that number."""
    parts[number] = parts[number] + part if number in parts else part


def bend(centre: Centre, radius: float) -> float:
    """Upper bound of the largest eigenvalue of ``bend_matrix``."""
    from flint import ctx

    with ctx.workprec(PRECISION):
        return largest_eigenvalue([[ball(x) for x in row] for row in bend_matrix(centre, radius).tolist()])


def has_sharper_bound(problem: Network) -> bool:
    """Whether Lemma 3 speaks of all of its layers: plain dense ones, and at least two."""
    return len(problem.layers) > 1 and problem.plain


def gap_exact(problem: Network, weights: Mapping[str, Array]) -> tuple[Any, Any]:
    """Bounds of the loss less its least value in ball arithmetic, from the exact weights."""
    from flint import arb_mat

    outputs: list[Any] = [arb_matrix(problem.X[problem.groups.first])]
    every = {**problem.frozen, **weights}
    for number, kind in enumerate(problem.layers, 1):
        if kind.weighted:
            z = outputs[-1] * arb_matrix(kind.matrix(every[f"W{number}"])).transpose()
        else:
            z = exact_maximum(kind, outputs[-1])
        b = every.get(f"b{number}")
        shift = [ball(0.0)] * kind.outputs if b is None else [ball(float(x)) for x in kind.shift(b)]
        entries = [
            kind.activation.exact(x + shift[index % kind.outputs], kind.settings) for index, x in enumerate(z.entries())
        ]
        a = arb_mat(len(problem.groups.first), kind.outputs, entries)
        outputs.append(a + outputs[kind.skip] if kind.skip >= 0 else a)
    low, high = frobenius(problem.groups.exact_residual(outputs[-1]))
    return (low * low / 2 if low > 0 else None), high * high / 2
