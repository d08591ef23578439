"""One layer of a network at the weights: inputs, outputs and slopes for all rows of X, and what the lemmas ask of it."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from ..rigor.approximation import Approximation
from ..rigor.bounds import Array, Level, array_up, up
from ..rigor.gram import cheap_norm, norm_bounds
from ..rigor.intervals import TINY
from .lipschitz import LayerBounds
from .network import LayerKind


class Layer:
    """One layer at the weights: its inputs and pre-activations for all rows of X."""

    def __init__(self, kind: LayerKind, W: Array, b: Array | None, inputs: Approximation, level: Level) -> None:
        self.kind, self.W, self.inputs, self.level = kind, W, inputs, level
        self.norm = norm_bounds(W, level)[1]
        product = inputs.T.image(W, self.norm, level).T
        self.before = product if b is None else product + Approximation(b)

    @cached_property
    def outputs(self) -> Approximation:
        """φ(z)."""
        kind, z = self.kind, self.before
        found = kind.activation.value(z.value, kind.settings, self.level)
        return Approximation(found.value, up(found.error + kind.activation.slope(kind.settings) * z.error, 2))

    @cached_property
    def slopes(self) -> Approximation:
        """φ'(z)."""
        kind, z = self.kind, self.before
        found = kind.activation.derivative(z.value, kind.settings, self.level)
        error = up(found.error + kind.activation.bend(kind.settings) * z.error, 2)
        # the distance is rounded once
        near = sum(int((np.abs(z.value - kink) <= up(z.error)).sum()) for kink in kind.activation.kinks(kind.settings))
        if near:  # on which side of the kink these entries are is not known
            error = up(error + 2.0 * math.sqrt(near) * kind.activation.slope(kind.settings), 4)
        return Approximation(found.value, error)

    @cached_property
    def extended(self) -> Approximation:
        """ã: the inputs where W is trained, and a column of ones where b is."""
        a, kind = self.inputs, self.kind
        parts = ([a.value] if kind.trains_W else []) + ([np.ones((len(a.value), 1))] if kind.trains_b else [])
        return Approximation(np.hstack(parts), a.error) if parts else Approximation(np.zeros((len(a.value), 1)))

    @cached_property
    def row_norms(self) -> Array:
        """Upper bounds of the norms of the rows of ã."""
        return array_up(norms_of_rows(self.extended.value) + self.extended.error, 1)

    @cached_property
    def bounds(self) -> LayerBounds:
        """What the lemma on the change of the Jacobian asks of the layer."""
        a, kind = self.extended, self.kind
        return LayerBounds(
            self.norm,
            float(norms_of_rows(self.W.T).max()),
            up(norm_bounds(a.value, self.level)[1] + a.error),
            float(self.row_norms.max()),
            kind.activation.slope(kind.settings),
            kind.activation.bend(kind.settings),
            float(kind.trains_W),
        )


def norms_of_rows(A: Array) -> Array:
    """Upper bounds of the norms of the rows."""
    return array_up(np.sqrt((A * A).sum(axis=1) + TINY * A.shape[1]), A.shape[1] + 4)


def gram_of(A: Approximation, level: Level) -> Approximation:
    """AAᵀ."""
    G, error = level.signed_gram(A.value)
    return Approximation(G, up(error + A.error * (2.0 * cheap_norm(A.value) + A.error), 5))
