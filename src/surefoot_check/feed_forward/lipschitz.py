"""How much the Jacobian of a network changes on a ball of weights: Lemma 1 of docs/theorems/feed-forward.md.

With w, ω, A, α as below, all on the ball of radius ρ, c_1 = A_0e_1, r_1 = α_0e_1, M_1 = 0 and

    c_l = Φ1 w_l c_{l-1} + A_{l-1} e_l,   r_l = Φ1 w_l r_{l-1} + α_{l-1} e_l,
    M_l = Φ1 w_l M_{l-1} + ω_l Φ2 r_{l-1} c_{l-1}ᵀ + 2 Φ1 c_{l-1} e_lᵀ,

J is Λ-Lipschitz on the ball with Λ = λ_max(½(M_L + M_Lᵀ)).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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


def norm(vector: Sequence[Number]) -> Number:
    """Euclidean norm."""
    return sqrt(sum((x * x for x in vector[1:]), vector[0] * vector[0]))


def along(
    layers: Sequence[LayerBounds], radius: Number
) -> Iterator[tuple[list[Number], list[Number], list[list[Number]]]]:
    """c_l, r_l and M_l of all layers, one after the other."""
    zero: Number = 0.0 * radius
    count, first = len(layers), layers[0]
    c, r = ([x, *[zero] * (count - 1)] for x in (first.inputs, first.row))
    M = [[zero] * count for _ in range(count)]
    yield c, r, M
    for index, (before, layer) in enumerate(itertools.pairwise(layers), 1):
        within = layer.moves * radius
        gain = before.slope * (layer.norm + within)
        curvature = (layer.column + within) * before.bend
        M = [[gain * M[i][j] + curvature * r[i] * c[j] for j in range(count)] for i in range(count)]
        for i in range(count):
            M[i][index] = M[i][index] + 2.0 * layer.moves * before.slope * c[i]
        inputs = layer.inputs + before.slope * norm(c) * within
        row = layer.row + before.slope * norm(r) * within
        c, r = [gain * x for x in c], [gain * x for x in r]
        c[index], r[index] = c[index] + inputs, r[index] + row
        yield c, r, M


def symmetric(M: list[list[Number]]) -> list[list[Number]]:
    """½(M + Mᵀ)."""
    return [[0.5 * (M[i][j] + M[j][i]) for j in range(len(M))] for i in range(len(M))]


def symmetric_bend(layers: Sequence[LayerBounds], radius: Number) -> list[list[Number]]:
    """½(M_L + M_Lᵀ), whose largest eigenvalue is Λ; its entries are not negative."""
    *_, (_, _, M) = along(layers, radius)
    return symmetric(M)


def is_below(S: list[list[Any]], bound: Any) -> bool:
    """Whether the largest eigenvalue of a symmetric matrix is certainly below: bound·I - S has positive pivots."""
    count = len(S)
    rest = [[(bound if i == j else 0.0 * bound) - S[i][j] for j in range(count)] for i in range(count)]
    for k in range(count):
        pivot = rest[k][k]
        if not pivot > 0:
            return False
        for i in range(k + 1, count):
            factor = rest[i][k] / pivot
            for j in range(k + 1, count):
                rest[i][j] = rest[i][j] - factor * rest[k][j]
    return True
