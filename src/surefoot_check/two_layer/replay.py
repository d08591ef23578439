"""Exact descent of a two-layer network, enclosed for the replay of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import flint
import numpy as np
from flint import arb, arb_mat

from ..descent import FLOOR, Descent, Look, multiplications_of_loss
from ..problems import LinearMapProblem
from ..rigor.balls import arb_matrix, ball, frobenius
from ..rigor.bounds import Array, frobenius_upper, up
from ..rigor.gram import norm_at_most


class TwoLayer(Descent):
    """V (n+m, r) in place of Z = [W1; W2] (n+m, h): descent commutes with rotations of the hidden units, which leave the map and
    the Gram matrix as they are.

    Where h > n+m, V is a computed Cholesky factor of ZZᵀ. Any V is within ‖VVᵀ - ZZᵀ‖_*^½ of a rotated Z (Powers and
    Størmer 1970, for the square roots of the two), and the trace norm is at most √(n+m) times the Frobenius norm.
    """

    def __init__(self, problem: LinearMapProblem, weights: Mapping[str, Array], bits: int) -> None:
        super().__init__(problem, weights, bits)
        Z = arb_matrix(np.concatenate([weights["W1"], weights["W2"]]))
        self.radius = arb(0)
        if Z.ncols() > Z.nrows():
            with flint.ctx.workprec(2 * bits + 64):
                G = Z * Z.transpose()
                Z = _cholesky(G, bits)
                difference = frobenius(Z * Z.transpose() - G)[1]
                self.radius = (arb(Z.nrows()).sqrt() * difference).sqrt().upper()
        n, _ = problem.shape
        rows = Z.tolist()
        self.centre = [arb_mat(rows[:n]), arb_mat(rows[n:])]
        self.scale = frobenius(Z)[1]

    def look(self) -> Look:
        V1, V2 = self.centre
        E, low, high = self.loss.at(V1 * V2.transpose())
        floats, e = self.float_ball()
        norms = [ball(up(self._spectral(V) + e)) for V in floats]
        size = sum((norm * norm for norm in norms), arb(0))
        K = ball(self.problem.smoothness()[1])
        # the map is √size-Lipschitz on the ball, and ∇ℓ K-Lipschitz
        steepness, lipschitz = frobenius(E)[1], size.sqrt()
        bend = steepness + K * lipschitz * self.radius
        return Look([E * V2, E.transpose() * V1], steepness * lipschitz, low, high, K * size, bend)

    def _spectral(self, V: Array) -> float:
        """Upper bound of ‖V‖."""
        tall = np.ascontiguousarray(V if V.shape[0] >= V.shape[1] else V.T)
        claim = float(np.linalg.norm(V, 2)) * (1.0 + 1e-6)
        return min(frobenius_upper(V), norm_at_most(tall, claim, self.problem.level))

    def defects(self, weights: Mapping[str, Array]) -> list[tuple[str, Any, Any, Any, Any]]:
        Z = np.concatenate([weights["W1"], weights["W2"]])
        value, error = self.problem.level.product(Z, np.ascontiguousarray(Z.T))
        V = arb_mat([row for M in self.centre for row in M.tolist()])
        n, m = self.problem.shape
        exact = V * V.transpose()
        difference = exact - arb_matrix(value)
        # ‖ZZᵀ - VVᵀ‖_F ≤ 2‖V‖e + e², and a block is no farther
        moved = (2 * frobenius(V)[1] + self.radius) * self.radius
        around, gram = moved + ball(error), frobenius(exact)
        defects: list[tuple[str, Any, Any, Any, Any]] = []
        for name, rows, columns in (("map", slice(n), slice(n, n + m)), ("Gram matrix", slice(None), slice(None))):
            block, apart = (arb_mat([row[columns] for row in M.tolist()[rows]]) for M in (exact, difference))
            (near, far), (least, most) = frobenius(apart), frobenius(block)
            least, most = least + ball(FLOOR) * gram[0] - 2 * moved, most + ball(FLOOR) * gram[1] + 2 * moved
            defects.append((name, near - around, far + around, least, most))
        return defects

    @staticmethod
    def multiplications(arrays: Mapping[str, Array], weights: Mapping[str, Array], steps: int, stored: int) -> int:
        (n, h), m = weights["W1"].shape, len(weights["W2"])
        factor = (n + m) ** 2 * (h + 4 * (n + m)) if h > n + m else 0
        each = multiplications_of_loss(arrays) + 3 * n * m * min(h, n + m)
        return steps * each + stored * (n + m) ** 2 * h + factor


def _cholesky(G: Any, bits: int) -> Any:
    """A matrix L with LLᵀ near G + σI, σ = 4^-bits max G_ii: a witness, made of midpoints."""
    size = G.nrows()
    shift = max(G[i, i].mid() for i in range(size)) * arb(2) ** (-2 * bits)
    L: list[list[Any]] = []
    for i in range(size):
        row: list[Any] = []
        for j in range(i):
            rest = G[i, j] - sum((x * y for x, y in zip(row, L[j], strict=False)), arb(0))
            row.append((rest / L[j][j]).mid())
        rest = G[i, i].mid() + shift - sum((x * x for x in row), arb(0)).mid()
        row.append((rest.max(shift)).sqrt().mid())
        L.append(row)
    return arb_mat([row + [arb(0)] * (size - len(row)) for row in L])
