"""How much the Jacobian of a network changes on a ball of weights: Lemma 1 of docs/theorems/feed-forward.md.

With w, ω, A, α as below, all on the ball of radius ρ, C_0 = R_0 = 0, E_0 = G_0 = 0 and

    c_l = w_l C_{l-1} + A_{l-1} e_l,   r_l = w_l R_{l-1} + α_{l-1} e_l,   M_l = ω_l E_{l-1} + w_l G_{l-1} + 2 √o C_{l-1} e_lᵀ,
    C_l = Φ1 c_l,   R_l = Φ1 r_l,   E_l = Φ2 r_l c_lᵀ,   G_l = Φ1 M_l,

to which those of layer s are added where its outputs are, J is Λ-Lipschitz on the ball with Λ = λ_max(½(M_L + M_Lᵀ)).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from ..numbers import Number, sqrt


@dataclass(frozen=True)
class LayerBounds:
    """Upper bounds of one layer φ(aWᵀ + 1bᵀ) at the centre of the ball; ã has a where W is trained, and ones where b is."""

    norm: Number
    """‖W‖."""
    column: Number
    """Largest norm of a column of W."""
    inputs: Number
    """‖ã‖."""
    row: Number
    """Largest norm of a row of ã."""
    slope: Number
    """Φ1 of φ."""
    bend: Number
    """Φ2 of φ."""
    moves: Number
    """1 where W is trained, else 0."""
    spread: Number = 1.0
    """√o: in so many windows of a convolution an input lies, at most; 1 of a dense layer."""
    skip: int = -1
    """The layer whose outputs are added to those of this one; negative where none are."""

    def each(self, function: Callable[[Any], Number]) -> LayerBounds:
        """With a function of every bound in its place."""
        names = [field.name for field in fields(self) if field.name != "skip"]
        return replace(self, **{name: function(getattr(self, name)) for name in names})


def norm(vector: Sequence[Number]) -> Number:
    """Euclidean norm."""
    return sqrt(sum((x * x for x in vector[1:]), vector[0] * vector[0]))


Vector = list[Number]
Matrix = list[list[Number]]


@dataclass(frozen=True)
class _Outputs:
    """C, R, E and G of the outputs of a layer."""

    c: Vector
    r: Vector
    squares: Matrix
    rest: Matrix

    def __add__(self, other: _Outputs) -> _Outputs:
        return _Outputs(
            _sum(self.c, other.c),
            _sum(self.r, other.r),
            [_sum(a, b) for a, b in zip(self.squares, other.squares, strict=True)],
            [_sum(a, b) for a, b in zip(self.rest, other.rest, strict=True)],
        )


def _sum(a: Vector, b: Vector) -> Vector:
    return [x + y for x, y in zip(a, b, strict=True)]


def along(layers: Sequence[LayerBounds], radius: Number) -> Iterator[tuple[Vector, Vector, Matrix]]:
    """c_l, r_l and M_l of all layers, one after the other."""
    count = len(layers)
    zeros: Vector = [0.0 * radius] * count
    outputs = [_Outputs(zeros, zeros, [zeros] * count, [zeros] * count)]
    for index, layer in enumerate(layers):
        at, within = outputs[-1], layer.moves * radius
        gain, column = layer.norm + layer.spread * within, layer.column + within
        c, r = [gain * x for x in at.c], [gain * x for x in at.r]
        c[index] = c[index] + layer.inputs + layer.spread * norm(at.c) * within
        r[index] = r[index] + layer.row + layer.spread * norm(at.r) * within
        M = [[column * at.squares[i][j] + gain * at.rest[i][j] for j in range(count)] for i in range(count)]
        for i in range(count):
            M[i][index] = M[i][index] + 2.0 * layer.moves * layer.spread * at.c[i]
        yield c, r, M
        found = _Outputs(
            [layer.slope * x for x in c],
            [layer.slope * x for x in r],
            [[layer.bend * x * y for y in c] for x in r],
            [[layer.slope * x for x in row] for row in M],
        )
        outputs.append(found + outputs[layer.skip] if layer.skip >= 0 else found)


def symmetric(M: Matrix) -> Matrix:
    """½(M + Mᵀ)."""
    return [[0.5 * (M[i][j] + M[j][i]) for j in range(len(M))] for i in range(len(M))]


def symmetric_bend(layers: Sequence[LayerBounds], radius: Number) -> Matrix:
    """½(M_L + M_Lᵀ), whose largest eigenvalue is Λ; its entries are not negative."""
    *_, (_, _, M) = along(layers, radius)
    return symmetric(M)
