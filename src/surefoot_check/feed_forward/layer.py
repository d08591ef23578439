"""One layer of a network at the weights: inputs, outputs and slopes for all rows of X, and what the lemmas ask of it."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from ..near_a_fit.kinks import WIDEST, fits
from ..rigor.approximation import Approximation
from ..rigor.bounds import Array, Level, array_up, up
from ..rigor.gram import gram_of, norm_bounds
from ..rigor.intervals import TINY
from ..rigor.many_norms import norms_of_rows, spectral_norms
from .groups import Groups
from .lipschitz import LayerBounds
from .network import DEEPEST, LayerKind
from .sharp_centre import LayerValues
from .smooth import bends

COUNTED = 16 * DEEPEST
"""Of bounds of changes, whose terms are all positive, so that relative errors add up: at most 16 operations a layer."""


class Layer:
    """One layer at the weights: its inputs and pre-activations for all rows of X."""

    def __init__(self, kind: LayerKind, W: Array, b: Array | None, inputs: Approximation, level: Level) -> None:
        self.kind, self.W, self.inputs, self.level = kind, kind.matrix(W), inputs, level
        self.norm = norm_bounds(self.W, level)[1]
        product = inputs.T.image(self.W, self.norm, level).T
        self.before = product if b is None else product + Approximation(kind.shift(b))

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

    @property
    def still(self) -> np.ndarray:
        """Which outputs (N, outputs) are constant as long as no pre-activation reaches a kink, as of a ReLU below 0. An array of
        bool."""
        kind, z = self.kind, self.before
        kinks, settings = kind.activation.kinks(kind.settings), kind.settings
        if not kinks or kind.activation.bend(settings) != 0.0 or kind.skip >= 0:
            return np.zeros(z.value.shape, dtype=bool)
        sure = np.min([np.abs(z.value - kink) for kink in kinks], axis=0) > up(2.0 * z.error)
        return sure & (kind.activation.derivative(z.value, settings, self.level).value == 0.0)

    @cached_property
    def spread(self) -> float:
        """√o of shared weights: in so many windows an input lies, at most."""
        return 1.0

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
            norm=self.norm,
            column=float(norms_of_rows(self.W.T).max()),
            inputs=up(norm_bounds(a.value.reshape(-1, a.value.shape[-1]), self.level)[1] + a.error),
            row=float(self.row_norms.max()),
            slope=kind.activation.slope(kind.settings),
            bend=kind.activation.bend(kind.settings),
            moves=float(kind.trains_W),
            spread=self.spread,
            skip=kind.skip,
        )

    def gram(self, groups: Groups, back: Approximation) -> Approximation:
        """Its part of JJᵀ, from ∂f/∂z (G k, outputs), output by output, of one row of each group."""
        k = len(back.value) // len(groups.first)
        outer = gram_of(groups.one_of_each(self.extended), self.level)
        repeated = Approximation(np.repeat(np.repeat(outer.value, k, axis=0), k, axis=1), up(k * outer.error))
        return gram_of(back, self.level) * repeated

    def pulled(self, groups: Groups, back: Approximation) -> Approximation:
        """∂f/∂a (G k, inputs) of its inputs a."""
        return back.T.image(self.W.T, self.norm, self.level).T

    def moved(self, entries: Array, rows: Array, radius: float) -> tuple[Array, Array]:
        """Bounds of how much its pre-activations move on the ball, over the radius: each of them (N, outputs), and the norm of
        those of a row of X (N,). Of relative errors of a few operations.

        Args:
            entries, rows: of its inputs.
        """
        within, bounds = radius * self.kind.trains_W, self.bounds
        steep = np.outer(rows, norms_of_rows(self.W) + within)
        found = np.sqrt(np.square(steep) + np.square(self.entry_norms))
        return found, np.sqrt(np.square((bounds.norm + bounds.spread * within) * rows) + np.square(self.row_norms))

    @property
    def entry_norms(self) -> Array:
        """Upper bounds of the norms of what each pre-activation sees of ã, (N, 1) or (N, outputs)."""
        return self.row_norms[:, None]

    def margins(self, entries: Array, moved: Array, radius: float) -> Array:
        """Lower bounds of how often the change on the ball fits into the distance of each pre-activation to the nearest kink.

        Args:
            entries: bounds of how much its inputs move, over the radius, of relative errors of at most ``COUNTED`` operations.
            moved: the same of pre-activations.
        """
        z, kinks = self.before, self.kind.activation.kinks(self.kind.settings)
        if not kinks:
            return np.full_like(z.value, WIDEST)
        distance = np.min([np.abs(z.value - kink) for kink in kinks], axis=0)
        return fits(distance, z.error, moved * radius, COUNTED)

    def values(self, groups: Groups, behind: Approximation, back: Approximation) -> LayerValues:
        """What the sharper lemma asks of the layer; ∂f/∂a of its outputs and ∂f/∂z (G k, outputs) as in ``Measured.backward``."""
        kind, a, count = self.kind, groups.one_of_each(self.extended), len(groups.first)
        curvature, third = bends(kind.activation, kind.settings, groups.one_of_each(self.before), self.level)
        behind_by_row, back_by_row = (B.value.reshape(count, len(B.value) // count, -1) for B in (behind, back))
        squares = np.square(behind_by_row).sum(axis=1) + TINY * len(behind.value)
        return LayerValues(
            W=self.W,
            norm=self.norm,
            unit=float(norms_of_rows(self.W).max()),
            inputs=a,
            rows=self.row_norms[groups.first],
            moves=float(kind.trains_W),
            slopes=groups.one_of_each(self.slopes),
            bends=curvature,
            slope=kind.activation.slope(kind.settings),
            bend=kind.activation.bend(kind.settings),
            third=third,
            columns=array_up(np.sqrt(squares) + behind.error, behind_by_row.shape[1] + 5),
            back=array_up(spectral_norms(back_by_row, self.level) + back.error, 1),
        )
