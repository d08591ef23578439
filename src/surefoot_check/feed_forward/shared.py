"""Layers whose weights are shared by all windows of a map, and maxima of windows: what they have in place of a dense layer."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from ..near_a_fit.kinks import WIDEST, fits
from ..rigor.approximation import Approximation
from ..rigor.bounds import UNIT_ROUNDOFF, Array, Level, array_up, frobenius_upper, gamma, up
from ..rigor.gram import gram_of, norm_bounds
from ..rigor.many_norms import norms_of_rows
from .geometry import Geometry, gathered
from .groups import Groups
from .layer import COUNTED, Layer
from .lipschitz import LayerBounds
from .network import LayerKind


def layer_of(
    kind: LayerKind, W: Array | None, b: Array | None, inputs: Approximation, level: Level, before: Layer | None
) -> Layer:
    """The layer of its kind, behind another."""
    if W is None:
        return Maximum(kind, inputs, level, before)
    return (Layer if kind.geometry is None else Convolution)(kind, W, b, inputs, level)


def _geometry(kind: LayerKind) -> Geometry:
    assert kind.geometry is not None
    return kind.geometry


class Convolution(Layer):
    """A convolution: ã has for each row of X a row for each window."""

    @property
    def geometry(self) -> Geometry:
        """Of its windows."""
        return _geometry(self.kind)

    @cached_property
    def spread(self) -> float:
        """√o: the unfolded inputs have at most so many times the norm of the inputs."""
        return up(math.sqrt(self.geometry.overlap))

    @cached_property
    def extended(self) -> Approximation:
        """ã (N, windows, ·): what each window sees where W is trained, and a column of ones where b is."""
        a, kind, shape = self.inputs, self.kind, (len(self.inputs.value), self.geometry.positions, 1)
        parts = [gathered(a.value, self.geometry.patches)] if kind.trains_W else []
        parts += [np.ones(shape)] if kind.trains_b else []
        error = up(self.spread * a.error) if kind.trains_W else 0.0
        return Approximation(np.concatenate(parts, axis=2), error) if parts else Approximation(np.zeros(shape))

    @cached_property
    def row_norms(self) -> Array:
        """Upper bounds of the norms of the blocks of ã, one for each row of X."""
        norms = np.array([norm_bounds(block, self.level)[1] for block in self.extended.value])
        return array_up(norms + self.extended.error, 1)

    @property
    def entry_norms(self) -> Array:
        """Upper bounds of the norms of what each pre-activation sees of ã (N, outputs)."""
        E = self.extended
        norms = norms_of_rows(E.value.reshape(-1, E.value.shape[2])).reshape(E.value.shape[:2])
        return np.tile(array_up(norms + E.error, 1), (1, self.kind.units))

    def gram(self, groups: Groups, back: Approximation) -> Approximation:
        """Its part of JJᵀ, from its block of J (G k, parameters)."""
        return gram_of(self.jacobian(groups, back), self.level)

    def jacobian(self, groups: Groups, back: Approximation) -> Approximation:
        """Its block of J (G k, parameters): unit by unit, the weights, then the bias."""
        E, units, positions = groups.one_of_each(self.extended), self.kind.units, self.geometry.positions
        blocks = back.value.reshape(len(E.value), -1, positions)  # a row for each output and unit
        products = [self.level.product(B, block) for B, block in zip(blocks, E.value, strict=True)]
        largest = [max(frobenius_upper(block) for block in each) for each in (blocks, E.value)]
        rounding = up(math.sqrt(sum(error * error for _, error in products)), len(products) + 4)
        error = up(rounding + largest[0] * E.error + back.error * (largest[1] + E.error), 5)
        return Approximation(
            np.array([C for C, _ in products]).reshape(len(back.value), units * E.value.shape[2]), error
        )


class Maximum(Layer):
    """The largest entry of each window. Where it does not change which entry that is, it is a choice of entries: linear. Among
    entries that are constant it does not matter which is chosen."""

    def __init__(self, kind: LayerKind, inputs: Approximation, level: Level, before: Layer | None) -> None:
        self.kind, self.inputs, self.level, geometry = kind, inputs, level, _geometry(kind)
        self.norm = up(math.sqrt(geometry.overlap))
        self._places = geometry.entries
        seen = gathered(inputs.value, self._places, -np.inf)
        self._winners = seen.argmax(axis=2)
        still = np.zeros(inputs.value.shape, dtype=bool) if before is None else before.still
        self._still = (self._places >= 0) & still[:, self._places]
        self.before = Approximation(seen.max(axis=2), up(self.norm * inputs.error))

    @property
    def _gaps(self) -> Array:
        """By how much the largest entry of each window exceeds every entry (N, outputs, entries); infinite for itself, for what
        does not lie in the map, and between two that are constant."""
        gaps = self.before.value[:, :, None] - gathered(self.inputs.value, self._places, -np.inf)
        np.put_along_axis(gaps, self._winners[:, :, None], np.inf, axis=2)
        return np.where(self._still & self._of_winners(self._still), np.inf, gaps)

    def _of_winners(self, A: np.ndarray) -> np.ndarray:
        """What belongs to the largest entry of each window (N, outputs, 1) of an array (N, outputs, entries)."""
        return np.take_along_axis(A, self._winners[:, :, None], axis=2)

    @cached_property
    def extended(self) -> Approximation:
        """Nothing is trained."""
        return Approximation(np.zeros((len(self.inputs.value), 1)))

    @cached_property
    def bounds(self) -> LayerBounds:
        """What the lemma on the change of the Jacobian asks of the layer."""
        kind = self.kind
        return LayerBounds(
            norm=self.norm,
            column=self.norm,
            inputs=0.0,
            row=0.0,
            slope=kind.activation.slope(kind.settings),
            bend=kind.activation.bend(kind.settings),
            moves=0.0,
            skip=kind.skip,
        )

    def pulled(self, groups: Groups, back: Approximation) -> Approximation:
        """∂f/∂a (G k, inputs) of its inputs a: what belongs to a window goes to its largest entry."""
        inputs, rows = self.kind.inputs, len(back.value)
        k = rows // len(groups.first)
        winners = np.take_along_axis(self._places[None], self._winners[groups.first][:, :, None], axis=2)[:, :, 0]
        places = np.arange(rows)[:, None] * inputs + np.repeat(winners, k, axis=0)
        value = np.bincount(places.ravel(), back.value.ravel(), rows * inputs).astype(np.float64).reshape(rows, inputs)
        size, overlap = back.norm(), _geometry(self.kind).overlap
        # a window whose largest entry is not certain gives what belongs to it to one entry instead of another
        doubt = self._gaps * (1.0 - 4.0 * UNIT_ROUNDOFF) <= 2.0 * self.inputs.error
        most = int(doubt.any(axis=2).sum(axis=1).max(initial=0))
        error = self.norm * (back.error + gamma(overlap) * size) + math.sqrt(2.0 * most) * size
        return Approximation(value, up(error, 8))

    def moved(self, entries: Array, rows: Array, radius: float) -> tuple[Array, Array]:
        """As of a dense layer: a maximum moves by no more than what it is taken of."""
        return gathered(entries, self._places).max(axis=2), self.norm * rows

    def margins(self, entries: Array, moved: Array, radius: float) -> Array:
        """As of a dense layer: also of the lead of the largest entry of each window, into which both have to fit."""
        each = np.where(self._still, 0.0, gathered(entries, self._places))
        both = each + self._of_winners(each)
        gaps = self._gaps
        leads = fits(np.where(np.isinf(gaps), 0.0, gaps), up(2.0 * self.inputs.error), both * radius, COUNTED)
        return np.minimum(np.where(np.isinf(gaps), WIDEST, leads).min(axis=2), super().margins(entries, moved, radius))


def exact_maximum(kind: LayerKind, a: Any) -> Any:
    """The same in ball arithmetic, of the inputs (rows, inputs)."""
    from flint import arb_mat

    found = []
    for row in range(a.nrows()):
        for places in _geometry(kind).entries.tolist():
            inside = [a[row, place] for place in places if place >= 0]
            largest = inside[0]
            for x in inside[1:]:
                largest = largest.max(x)
            found.append(largest)
    return arb_mat(a.nrows(), kind.outputs, found)
