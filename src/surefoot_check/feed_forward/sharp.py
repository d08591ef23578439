"""How much the Jacobian of a network of dense layers changes on a ball of weights: Lemma 3 of docs/theorems/feed-forward.md.

Row by row, at weights θ of the ball, D_l = diag φ'(z_l), P_l = ∂f/∂a_l, B_l = P_lD_l (B_L = I), F_lk = ∂z_l/∂z_k (F_ll = I),
γ_lj = |φ''(z_lj)|‖P_le_j‖; J is Λ-Lipschitz on the ball with the largest eigenvalue Λ of

    Σ_{l<L} n_ln_lᵀ + Σ_{k<l} m_lk(e_le_kᵀ + e_ke_lᵀ),
    n_ll² = max_i‖ã_{l-1,i}‖ max_j‖diag_i(γ_lj)ã_{l-1}‖,   n_lk² = max_i‖ã_{k-1,i}‖ ‖diag_i(‖diag(γ_l)^½F_lk‖²)ã_{k-1}‖,
    m_lk = max_j‖diag_i(‖B_l‖|φ'_kj|)ã_{k-1}‖ for k = l - 1, and else ‖diag_i(‖B_l‖‖D_{l-1}F_{l-1,k}‖)ã_{k-1}‖,

each maximised over the ball; of one hidden layer max_j ½(n_j² + √(n_j⁴ + 4m_j²)), n_j and m_j the terms of its unit j.

What holds at the centre is measured once (``sharp_centre``). What the ball adds takes a few operations with numbers for each row;
nothing is subtracted, so that the relative errors of floats add up.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ..rigor.bounds import Array, array_up
from .sharp_centre import Centre, Pair, joined


def bend_matrix(centre: Centre, radius: float) -> Array:
    """Bounds, not negative, of a symmetric matrix whose largest eigenvalue is Λ on the ball; infinite out of range."""
    operations = 128 * (len(centre.layers) + 1) ** 2 + 4 * centre.count
    with np.errstate(over="raise", under="raise", invalid="raise"):
        try:
            return array_up(Ball(centre, radius).matrix(), operations)
        except FloatingPointError:
            return np.full((1, 1), np.inf)


class Ball:
    """The same on a ball; ``off`` is how far a thing may be from its value at the centre."""

    def __init__(self, centre: Centre, radius: float) -> None:
        self.centre, layers = centre, centre.layers
        self.within = [layer.moves * radius for layer in layers]
        self.moved: list[Array] = []
        """Of the rows of ã."""
        apart: list[Array] = []
        slope, reach = 0.0, np.zeros(centre.count)
        for layer, within, rows in zip(layers, self.within, centre.rows, strict=True):
            self.moved.append(slope * within * reach)
            apart.append(radius * joined(slope * (layer.unit + within) * reach, rows))
            reach = joined(slope * (layer.norm + within) * reach, rows)
            slope = layer.slope
        self.apart = apart[:-1]
        """Of a pre-activation."""
        self.off_slope = [layer.bend * z for layer, z in zip(centre.hidden, self.apart, strict=True)]
        self.steepest = [
            np.minimum(steepest + off, layer.slope)
            for steepest, off, layer in zip(centre.steepest, self.off_slope, centre.hidden, strict=True)
        ]
        self.off_back, self.off_columns = self._backwards()
        self.off_gamma = [
            bends * off + layer.third * z * (columns + off)
            for layer, bends, columns, off, z in zip(
                centre.hidden, centre.bends, centre.columns, self.off_columns, self.apart, strict=True
            )
        ]

    def _backwards(self) -> tuple[list[Array], list[Array]]:
        """Of B of all layers, and of P of the hidden ones."""
        centre = self.centre
        B, P = [np.zeros(centre.count)], []
        for index in reversed(range(len(centre.hidden))):
            norm, within, back = centre.layers[index + 1].norm, self.within[index + 1], centre.back[index + 1]
            P.insert(0, B[0] * (norm + within) + back * within)
            B.insert(0, P[0] * self.steepest[index] + back * norm * self.off_slope[index])
        return B, P

    @cached_property
    def off_reached(self) -> dict[Pair, Array]:
        """Of F."""
        found = {(k, k): np.zeros(self.centre.count) for k in range(len(self.centre.hidden))}
        for index, k in self.centre.pairs:
            before, norm = self._off_inner(found, index - 1, k), self.centre.layers[index].norm
            reached = self.centre.reached[index - 1, k] + found[index - 1, k]
            found[index, k] = self.within[index] * self.steepest[index - 1] * reached + norm * before
        return found

    def _off_inner(self, off: dict[Pair, Array], index: int, k: int) -> Array:
        """Of D_lF_lk."""
        centre = self.centre
        return (
            self.off_slope[index] * (centre.reached[index, k] + off[index, k]) + centre.steepest[index] * off[index, k]
        )

    def _more_curved(self, index: int, k: int) -> Array:
        """By how much the weights of n² grow."""
        more = self.off_gamma[index]
        if index == k:
            return more
        centre = self.centre
        squares = more * np.square(centre.reached[index, k])
        root = np.sqrt(centre.squares[index, k] + squares)
        off = np.sqrt(centre.gammas[index].max(axis=1) + more) * self.off_reached[index, k]
        return squares + 2.0 * root * off + np.square(off)

    def _more_crossed(self, index: int, k: int) -> Array:
        """By how much the weights of m grow."""
        centre, off, back = self.centre, self.off_back[index], self.centre.back[index]
        if k == index - 1:
            return off * self.steepest[k] + back * self.off_slope[k]
        inner = self._off_inner(self.off_reached, index - 1, k)
        return off * (centre.plain[index - 1, k] + inner) + back * inner

    def matrix(self) -> Array:
        """See ``bend_matrix``."""
        centre, size = self.centre, len(self.centre.layers)
        longest = [float(rows.max()) for rows in centre.rows]
        wider = [float(moved.max()) for moved in self.moved]
        curved, off_curved = {}, {}
        for (index, k), at in centre.curved.items():
            drift = at.drift(self._more_curved(index, k), centre.rows[k], self.moved[k])
            curved[index, k] = longest[k] * at.norms
            off_curved[index, k] = wider[k] * float(at.norms.max()) + (longest[k] + wider[k]) * drift
        off_crossed = {
            (index, k): at.drift(self._more_crossed(index, k), centre.rows[k], self.moved[k])
            for (index, k), at in centre.crossed.items()
        }
        if size == 2:  # unit by unit, and the largest eigenvalue of a sum is at most the sum of theirs
            crossed = centre.crossed[1, 0].norms if centre.crossed else np.zeros(1)
            units = 0.5 * (curved[0, 0] + joined(curved[0, 0], 2.0 * crossed))
            return np.full((1, 1), units.max() + off_curved[0, 0] + off_crossed.get((1, 0), 0.0))
        n, M = np.zeros((size, size)), np.zeros((size, size))
        for pair, at in curved.items():
            n[pair] = np.sqrt(at.max() + off_curved[pair])
        for (index, k), at in centre.crossed.items():
            M[index, k] = M[k, index] = at.norms.max() + off_crossed[index, k]
        return M + (n[:, :, None] * n[:, None, :]).sum(axis=0)
