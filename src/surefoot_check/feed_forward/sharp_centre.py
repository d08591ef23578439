"""What Lemma 3 (``sharp``) asks of a network at the centre of a ball, measured once.

Errors of arrays are added to the magnitudes of their entries, with which all bounds grow.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..rigor.approximation import Approximation
from ..rigor.bounds import Array, Level, array_up, up
from ..rigor.many_norms import CHUNK, spectral_norms, weighted_norms

LEAST = 1e-60
"""Measured numbers are made at least as large, so that no product of a few of them underflows."""
LARGEST = 1 << 34
"""Multiplications up to which products of layers are formed for each row; those of more are bounded by their factors."""
Pair = tuple[int, int]
"""Numbers of two layers, counted from 0; the second is not behind the first."""


def weighted(T: Approximation, w: Approximation) -> Approximation:
    """w_ij T_jip for T (width, N, p) and w (N, width); no entry of w errs by more than its error."""
    largest = float(np.abs(w.value).max(initial=0.0))
    error = up(w.error * T.norm() + largest * T.error, 4)
    return Approximation.rounded(T.value * w.value.T[:, :, None], error, underflow=True)


@dataclass(frozen=True)
class LayerValues:
    """What is known of one layer φ(aWᵀ + 1bᵀ) at the centre, for N rows; ã has a where W is trained, and ones where b is.

    Attributes:
        W: (width, inputs).
        norm: bound of ‖W‖.
        unit: largest norm of a row of W.
        inputs: ã (N, columns).
        rows: bounds (N,) of the norms of the rows of ã.
        moves: 1 where W is trained, else 0.
        slopes: φ'(z) (N, width).
        bends: bounds (N, width) of |φ''(z)|, of which ``third`` is a Lipschitz constant.
        slope: Φ1 of φ.
        bend: Φ2.
        third: Φ3.
        columns: bounds (N, width) of ‖P_le_j‖ for each row; 0 in the last layer.
        back: bounds (N,) of ‖B_l‖ for each row.
    """

    W: Array
    norm: float
    unit: float
    inputs: Approximation
    rows: Array
    moves: float
    slopes: Approximation
    bends: Array
    slope: float
    bend: float
    third: float
    columns: Array
    back: Array


@dataclass(frozen=True)
class Weighted:
    """‖diag_i(w_j)ã‖ for some weights (N,), of which the largest norm counts.

    Attributes:
        norms: bounds of it at the centre, one for each weight.
        largest: their weights' largest (N,).
    """

    norms: Array
    largest: Array

    def drift(self, more: Array, rows: Array, moved: Array) -> float:
        """What is added on a ball, if weights grow by ``more`` (N,), and rows of ã of norms ``rows`` move by ``moved``."""
        return float(np.sqrt(np.square(more * rows + (self.largest + more) * moved).sum()))


def _least(A: Array, operations: int = 1) -> Array:
    return np.maximum(array_up(A, operations), LEAST)


def joined(a: Array, b: Array) -> Array:
    """√(a² + b²)."""
    return np.sqrt(np.square(a) + np.square(b))


class Centre:
    """What holds at the centre; one bound for each row where nothing else is said."""

    def __init__(self, layers: Sequence[LayerValues], level: Level) -> None:
        self.layers, self.level = layers, level
        self.count, self.hidden = len(layers[0].rows), layers[:-1]
        self.pairs = [(index, k) for k in range(len(self.hidden)) for index in range(k + 1, len(self.hidden))]
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            self.rows = [_least(layer.rows) for layer in layers]
            self.back = [_least(layer.back) for layer in layers]
            self.slopes = [_least(np.abs(layer.slopes.value) + layer.slopes.error) for layer in self.hidden]  # by unit
            self.steepest = [slopes.max(axis=1) for slopes in self.slopes]
            self.columns = [_least(layer.columns.max(axis=1)) for layer in self.hidden]
            self.bends = [_least(layer.bends.max(axis=1)) for layer in self.hidden]
            self.gammas = [_least(layer.bends * layer.columns) for layer in self.hidden]  # by unit
            self.reached = self._reached()
            self.squares, self.plain = self._products()
            self.curved = {pair: self._weighted(pair[1], w) for pair, w in self._curving()}
            self.crossed = {pair: self._weighted(pair[1], w) for pair, w in self._crossing()}

    def _weighted(self, k: int, weights: Array) -> Weighted:
        """Of the inputs of layer k, for weights (N, J)."""
        a, largest = self.layers[k].inputs, weights.max(axis=1)
        norms = weighted_norms(weights, a.value, self.level)
        return Weighted(_least(norms + float(largest.max()) * a.error, 2), largest)

    def _curving(self) -> Iterator[tuple[Pair, Array]]:
        """Weights of n² at the centre."""
        for index, gammas in enumerate(self.gammas):
            yield (index, index), gammas
        for pair, squares in self.squares.items():
            yield pair, squares[:, None]

    def _crossing(self) -> Iterator[tuple[Pair, Array]]:
        """Weights of m at the centre, where W of the first layer is trained."""
        for index, back in enumerate(self.back):
            if index and self.layers[index].moves:
                yield (index, index - 1), array_up(back[:, None] * self.slopes[index - 1], 1)
                for k in range(index - 1):
                    yield (index, k), array_up(back * self.plain[index - 1, k], 1)[:, None]

    def _reached(self) -> dict[Pair, Array]:
        """‖F_lk‖, by the norms of its factors."""
        found = {(k, k): np.ones(self.count) for k in range(len(self.hidden))}
        for index, k in self.pairs:
            factor = max(self.layers[index].norm, LEAST) * self.steepest[index - 1]
            found[index, k] = _least(factor * found[index - 1, k], 2)
        return found

    def _products(self) -> tuple[dict[Pair, Array], dict[Pair, Array]]:
        """‖diag(γ_l)^½F_lk‖² and ‖D_lF_lk‖ for k < l < L."""
        squares, plain = {}, {}
        formed = self._multiplications() <= LARGEST
        for index, k in self.pairs:
            reached = self.reached[index, k]
            squares[index, k] = _least(self.gammas[index].max(axis=1) * np.square(reached), 2)
            plain[index, k] = _least(self.steepest[index] * reached)
        for k, here in itertools.product(range(len(self.hidden) if formed else 0), self._parts()):
            for index, F in self._forward(k, here):
                root = self._of_rows(np.sqrt(self.gammas[index][here]), F)
                squares[index, k][here] = np.minimum(squares[index, k][here], _least(root * root))
                norms = self._of_rows(self.slopes[index][here], F)
                plain[index, k][here] = np.minimum(plain[index, k][here], norms)
        return squares, plain

    def _of_rows(self, weights: Array, F: Approximation) -> Array:
        """‖diag(w)F‖ for each of the rows, w (rows, width), each entry of w rounded once."""
        products = weights[:, :, None] * F.value.transpose(1, 0, 2)
        # an entry is rounded twice: by 2u‖diag(w)F‖_F together, at most 2√r u times the norm
        norms = array_up(spectral_norms(products, self.level), 2 * min(products.shape[1:]))
        return _least(norms + weights.max(axis=1) * F.error, 3)

    def _multiplications(self) -> float:
        sizes = [(len(self.layers[index].W), len(self.layers[k].W)) for index, k in self.pairs]
        return 8.0 * self.count * sum(a * b * min(a, b) for a, b in sizes)

    def _parts(self) -> Iterator[slice]:
        """Rows, as many as are held at once."""
        widest = max(len(layer.W) for layer in self.layers)
        step = max(1, CHUNK // (widest * widest))
        return (slice(start, start + step) for start in range(0, self.count, step))

    def _forward(self, k: int, here: slice) -> Iterator[tuple[int, Approximation]]:
        """F_lk of these rows, as (width of l, rows, width of k), for the hidden layers l behind k."""
        F: Approximation | None = None
        for index in range(k + 1, len(self.hidden)):
            layer, before = self.layers[index], self.layers[index - 1].slopes
            slopes = Approximation(before.value[here], before.error)
            if F is None:
                value = layer.W * slopes.value[:, None, :]
                error = Approximation.rounded(value, layer.norm * slopes.error, underflow=True).error
                F = Approximation(value.transpose(1, 0, 2), error)
            else:
                inner = weighted(F, slopes)
                flat = Approximation(inner.value.reshape(len(inner.value), -1), inner.error)
                image = flat.image(layer.W, layer.norm, self.level)
                F = Approximation(image.value.reshape(len(layer.W), *inner.value.shape[1:]), image.error)
            yield index, F
