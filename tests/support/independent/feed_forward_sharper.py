"""The sharper bound of the change of a Jacobian, Lemma 3 of docs/theorems/feed-forward.md, row by row in 100 digits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mpmath
from mpmath import mp, mpf

from .reference import Matrix, eigenvalues, norm, root_of_squares

if TYPE_CHECKING:
    from .feed_forward import Network, Objective


def norms_of_rows(A: Matrix) -> list[mpf]:
    """Euclidean norms."""
    return [root_of_squares(A[i, :]) for i in range(A.rows)]


def _sixteenth(A: Matrix) -> mpf:
    """The Schatten norm of order 16, which is what the enclosures take for a spectral norm of one row or one unit."""
    G = A * A.T if A.rows <= A.cols else A.T * A
    return mpmath.fsum(max(v, mpf(0)) ** 8 for v in eigenvalues(G)) ** (mpf(1) / 16)


def _weighted(weights: list[mpf], A: Matrix) -> mpf:
    """The least of the bounds that the enclosures have of the norm of diag(w)A."""
    B = _scaled(weights, A)
    lines = [max(mpmath.fsum(abs(x) for x in S[i, :]) for i in range(S.rows)) for S in (B, B.T)]
    return min(_sixteenth(B), mp.sqrt(lines[0] * lines[1]), max(weights) * norm(A))


def _scaled(weights: list[mpf], A: Matrix) -> Matrix:
    return mpmath.matrix([[w * x for x in A[i, :]] for i, w in enumerate(weights)])


class _Around:
    """Bounds for one row of X, and all weights within the radius: by the number of a layer, or of two.

    Of a thing at θ_0 they have its name, and ``off_`` is how far it may go from there.
    """

    def __init__(self, at: Network, back: list[list[Matrix]], row: int, radius: mpf) -> None:
        count, hidden = len(at.W), range(len(at.W) - 1)
        self.back = [_sixteenth(back[index][row]) for index in range(count)]
        self.inputs = [root_of_squares(a[row, :]) for a in at.inputs]
        self.off_inputs, apart, reach, steepest = [mpf(0)], [], mpf(0), mpf(0)
        within = [radius if weights else mpf(0) for weights, _ in at.trains]
        for index, W in enumerate(at.W):
            apart.append(
                radius
                * root_of_squares([steepest * (max(norms_of_rows(W)) + within[index]) * reach, self.inputs[index]])
            )
            reach = root_of_squares([steepest * (norm(W) + within[index]) * reach, self.inputs[index]])
            activation, settings = at.activations[index]
            steepest = activation.largest_slope(settings)
            moves = index + 1 < count and at.trains[index + 1][0]
            self.off_inputs.append(steepest * radius * reach if moves else mpf(0))
        self.slopes, self.gammas, self.off_gamma, self.off_slope, self.steepest = [], [], [], [], []
        self.off_back = [mpf(0)] * count
        for index in reversed(hidden):
            activation, settings = at.activations[index]
            z = list(at.z[index][row, :])
            slopes = [abs(activation.slope(x, settings)) for x in z]
            bends = [abs(activation.bend(x, settings)) for x in z]
            columns = norms_of_rows((back[index + 1][row] * at.W[index + 1]).T)
            behind, step = self.back[index + 1], within[index + 1]
            off_columns = self.off_back[index + 1] * (norm(at.W[index + 1]) + step) + behind * step
            off_slope = activation.largest_bend(settings) * apart[index]
            steepest = min(max(slopes) + off_slope, activation.largest_slope(settings))
            self.off_back[index] = off_columns * steepest + behind * norm(at.W[index + 1]) * off_slope
            # of ELU, which has no third derivative at 0, that of a function above φ''
            third = (activation.largest_third or activation.largest_bend)(settings)
            self.slopes.insert(0, slopes)
            self.gammas.insert(0, [x * y for x, y in zip(bends, columns, strict=True)])
            self.off_gamma.insert(0, max(bends) * off_columns + third * apart[index] * (max(columns) + off_columns))
            self.off_slope.insert(0, off_slope)
            self.steepest.insert(0, steepest)
        self.squares, self.off_squares, self.plain, self.off_plain = {}, {}, {}, {}
        for k in hidden:
            F, reached, off = mpmath.eye(at.W[k].rows), mpf(1), mpf(0)
            for index in range(k + 1, len(hidden)):
                D, W, before = self.slopes[index - 1], at.W[index], off
                activation, settings = at.activations[index - 1]
                F = W * _scaled([activation.slope(x, settings) for x in at.z[index - 1][row, :]], F)
                off = within[index] * self.steepest[index - 1] * (reached + before)
                off += norm(W) * (self.off_slope[index - 1] * (reached + before) + max(D) * before)
                reached *= norm(W) * max(D)
                gammas, more = self.gammas[index], self.off_gamma[index]
                square = min(_sixteenth(_scaled([mp.sqrt(g) for g in gammas], F)) ** 2, max(gammas) * reached**2)
                off_root = mp.sqrt(max(gammas) + more) * off
                self.squares[index, k] = square
                self.off_squares[index, k] = (mp.sqrt(square + more * reached**2) + off_root) ** 2 - square
                self.plain[index, k] = min(
                    _sixteenth(_scaled(self.slopes[index], F)), max(self.slopes[index]) * reached
                )
                self.off_plain[index, k] = self.off_slope[index] * (reached + off) + max(self.slopes[index]) * off


def _on_the_ball(
    a: Matrix, rows: list[_Around], k: int, weights: list[list[mpf]], off: list[mpf]
) -> tuple[list[mpf], mpf]:
    """‖diag_i(w_ij)ã‖ by unit j at θ_0, and how much it grows; weights by row and unit."""
    found = [_weighted([w[j] for w in weights], a) for j in range(len(weights[0]))]
    drift = [
        more * at.inputs[k] + (max(w) + more) * at.off_inputs[k] for at, w, more in zip(rows, weights, off, strict=True)
    ]
    return found, root_of_squares(drift)


def sharper_lipschitz(at: Network, radius: mpf, roots: list[Matrix] | None = None) -> mpf:
    """Λ of the lemma that goes row by row, of the outputs of each row times its root; 0 of a single layer."""
    count, back = len(at.W), at.back
    if roots is not None:
        back = [[root * B for root, B in zip(roots, of, strict=True)] for of in back]
    rows = [_Around(at, back, i, radius) for i in range(at.X.rows)]
    n, M = mpmath.zeros(count), mpmath.zeros(count)
    longest = [max(row.inputs[k] for row in rows) for k in range(count)]
    moved = [max(row.off_inputs[k] for row in rows) for k in range(count)]
    for index in range(count - 1):
        for k in range(index + 1):
            weights = [row.gammas[index] if k == index else [row.squares[index, k]] for row in rows]
            off = [row.off_gamma[index] if k == index else row.off_squares[index, k] for row in rows]
            curved, more = _on_the_ball(at.inputs[k], rows, k, weights, off)
            added = moved[k] * max(curved) + (longest[k] + moved[k]) * more
            n[index, k] = mp.sqrt(longest[k] * max(curved) + added)
    crossed: list[mpf] = [mpf(0)]
    for index in range(1, count):
        for k in range(index if at.trains[index][0] else 0):
            if k == index - 1:
                weights = [[row.back[index] * slope for slope in row.slopes[k]] for row in rows]
                off = [row.off_back[index] * row.steepest[k] + row.back[index] * row.off_slope[k] for row in rows]
            else:
                weights = [[row.back[index] * row.plain[index - 1, k]] for row in rows]
                off = [
                    row.off_back[index] * (row.plain[index - 1, k] + row.off_plain[index - 1, k])
                    + row.back[index] * row.off_plain[index - 1, k]
                    for row in rows
                ]
            crossed, more = _on_the_ball(at.inputs[k], rows, k, weights, off)
            M[index, k] = M[k, index] = max(crossed) + more
    if count == 2:
        units = [longest[0] * x for x in curved]
        crossed = crossed if len(crossed) == len(units) else [mpf(0)] * len(units)
        largest = max((x + mp.sqrt(x * x + 4 * y * y)) / 2 for x, y in zip(units, crossed, strict=True))
        return largest + added + (more if at.trains[1][0] else 0)
    for index in range(count - 1):
        M += n[index, :].T * n[index, :]
    return max(eigenvalues(M)[0], mpf(0))


def sharper_change(objective: Objective, at: Network, radius: mpf, row: mpf, bend: mpf, third: mpf) -> mpf:
    """Λ_3 of the lemma that goes row by row, with bounds of a row of ḟ, of f̈ and of c g·f⃛ by the one that goes by layers."""
    k, J, rows = at.Y.cols, at.jacobian, range(at.X.rows)
    g, ones = objective.scale * objective.slopes(at), mpmath.ones(at.Y.cols, 1)
    p = [objective.softmax(at)[i, :] if objective.entropy else None for i in rows]
    apart = [mpmath.eye(k) if of is None else mpmath.eye(k) - ones * of for of in p]
    roots = [
        mp.sqrt(objective.scale * mass) * (E if of is None else _scaled([mp.sqrt(x) for x in of], E))
        for mass, of, E in zip(objective.masses, p, apart, strict=True)
    ]
    blocks = [J[i * k : (i + 1) * k, :] for i in rows]
    stacked = mpmath.matrix([x for S, block in zip(roots, blocks, strict=True) for x in (S * block).tolist()])
    farthest = max(norm for E, block in zip(apart, blocks, strict=True) for norm in norms_of_rows(E * block))
    bent, moved = sharper_lipschitz(at, radius, roots), radius * row
    stretched = mp.exp(mp.sqrt(2) * moved / 2) if objective.entropy else mpf(1)
    size = stretched * (norm(stacked) + radius * bent)
    found = 3 * size * stretched * bent + (_of_units(objective, at, g, radius, moved) if len(at.W) == 2 else third)
    return found + (farthest + radius * mp.sqrt(2) * bend + moved * row / 2) * size**2 * objective.entropy


def _of_units(objective: Objective, at: Network, g: Matrix, radius: mpf, moved: mpf) -> mpf:
    """max_j(τ_j + 2/√3 χ_j) of one hidden layer, and what it grows by on the ball."""
    x, V, trained = at.inputs[0], at.W[1], at.trains[1][0]
    activation, settings = at.activations[0]
    assert activation.largest_third is not None
    third, sizes, lengths = activation.largest_third(settings), norms_of_rows(g), norms_of_rows(x)
    step = radius if trained else mpf(0)
    change = objective.scale * max(objective.masses) * (mpf(1) / 2 if objective.entropy else 1) * moved
    share = 2 / mp.sqrt(3) if trained else mpf(0)
    pulled, units = g * V, []
    for j in range(V.cols):
        bends = [abs(activation.bend(z, settings)) for z in at.z[0][:, j]]
        tau = _weighted([mp.sqrt(abs(q) * third) for q in pulled[:, j]], x) ** 2
        chi = _weighted([mp.sqrt(size * b) for size, b in zip(sizes, bends, strict=True)], x) ** 2
        units.append(max(lengths) * tau + share * chi)
    grown = mpf(0)
    for i, (size, length) in enumerate(zip(sizes, lengths, strict=True)):
        bend = max(abs(activation.bend(z, settings)) for z in at.z[0][i, :])
        more = third * ((norm(V) + step) * change + step * size)
        curved = change * bend + (size + change) * third * radius * length
        grown += (max(lengths) * more + share * curved) * length**2
    return max(units) + grown
