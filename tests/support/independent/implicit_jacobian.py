"""The Jacobian of implicit networks near an exact fit, docs/theorems/implicit.md: Lemma 10, from explicit matrices.

For row i, D and E the patterns of U = γZA + relu(XW) and of XW, P = (I - γDAᵀ)⁻¹D by elimination; output c has the derivatives
x_ik E_il (Pᵀb_c)_l in W_kl, γz_ik (Pᵀb_c)_l in A_kl and z_ik in b_kc.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import mpmath
import numpy as np
from mpmath import mp, mpf

from .reference import (
    UNIT,
    Array,
    Matrix,
    Reference,
    eigenvalues,
    exact,
    frobenius,
    norm,
    root_of_squares,
    solve,
)

Arrays = Mapping[str, Array]
NORMS = mpf(10) ** -5
"""Relative: norms and singular values of floats, some of them multiplied, divided and squared."""
ROUNDING = 4096 * UNIT


class Network:
    """At weights (W, A, b), with the equilibrium Z there."""

    def __init__(self, X: Matrix, weights: Mapping[str, Matrix], gamma: mpf, Z: Matrix) -> None:
        self.X, self.gamma, self.Z = X, gamma, Z
        self.W, self.A, self.b = (weights[name] for name in ("W", "A", "b"))
        self.XW = X * self.W
        self.U = gamma * Z * self.A + self.XW.apply(lambda x: max(x, mpf(0)))

    @cached_property
    def responses(self) -> list[Matrix]:
        """P of every row."""
        m, found = self.A.rows, []
        for i in range(self.X.rows):
            D = mpmath.diag([mpf(self.U[i, j] > 0) for j in range(m)])
            found.append(solve(mpmath.eye(m) - self.gamma * D * self.A.T, D))
        return found

    @cached_property
    def adjoints(self) -> list[Matrix]:
        """Pᵀb (m, p) of every row."""
        return [P.T * self.b for P in self.responses]

    @cached_property
    def jacobian(self) -> Matrix:
        """(N p, parameters), the parameters W, A and b row by row."""
        rows = []
        for i, K in enumerate(self.adjoints):
            x, z = list(self.X[i, :]), list(self.Z[i, :])
            for c in range(self.b.cols):
                k = list(K[:, c])
                driven = [k[j] if self.XW[i, j] > 0 else mpf(0) for j in range(len(k))]
                of_W = [a * v for a in x for v in driven]
                of_A = [self.gamma * a * v for a in z for v in k]
                of_b = [a if other == c else mpf(0) for a in z for other in range(self.b.cols)]
                rows.append(of_W + of_A + of_b)
        return mpmath.matrix(rows)


def of_jacobian(
    problem: Arrays, weights: Arrays, Z: Matrix, error: mpf, moved: mpf, radius: mpf
) -> dict[str, Reference]:
    """Those of Theorems A and B; ``error`` is what floats lose of Z, ``moved`` of the residual."""
    at = Network(exact(problem["X"]), {name: exact(weights[name]) for name in "WAb"}, mpf(float(weights["gamma"])), Z)
    J, residual = at.jacobian, Z * at.b - exact(problem["Y"])
    values = eigenvalues(J * J.T)
    least, largest = (max(values[-1], mpf(0)) if J.rows <= J.cols else mpf(0)), values[0]
    slope = 1 - at.gamma * norm(at.A)
    unsure = _to_kinks(at, error) <= 4
    lost = of_gram(at, error, slope, unsure)
    below = mp.sqrt(max(least * (1 - NORMS) - lost, mpf(0)))
    found = {
        "sigma_min_J": Reference(mp.sqrt(least), mp.sqrt(least) - below),
        "norm_J": Reference(mp.sqrt(largest), mp.sqrt(largest * (1 + NORMS) + lost) - mp.sqrt(largest)),
    }
    if least > 0:
        x = solve(J * J.T, mpmath.matrix(list(residual)))
        size, apart = frobenius(J.T * x), mp.sqrt(lost) * frobenius(x)
        more = apart + (2 * moved + 2 * lost * frobenius(x)) / below if below > 0 else mp.inf
        found["newton_step"] = Reference(size, NORMS * size + more)
    if at.gamma * (norm(at.A) + radius) >= 1 - ROUNDING:
        found["kink_margin"] = Reference(mpf(0))
        return found
    bend, margin = lipschitz(at, radius), kink_margin(at, radius)
    wider = lipschitz(
        at, radius, mpf(min(at.b.rows, at.b.cols)) ** (mpf(1) / 16)
    )  # norms of K_i by Schatten norms of order 16
    seen = largest_change(at, problem, radius) if margin > 1 and radius > 0 and not unsure else None
    found["lipschitz_J"] = Reference(
        bend, mp.inf if unsure else wider - bend + (NORMS + ROUNDING / slope**4) * wider, attained=seen
    )
    found["kink_margin"] = Reference(margin, NORMS * margin + margin / max(1, _to_kinks(at, error)))
    return found


def of_gram(at: Network, error: mpf, slope: mpf, unsure: bool) -> mpf:
    """What floats lose of JJᵀ: of every factor in it its size times the error of the other."""
    size = frobenius(at.b) * mp.sqrt(at.X.rows) / slope
    of_K = size * (ROUNDING / slope + (1 / slope if unsure else 0))
    of_Z, z, x, p = error, frobenius(at.Z) + error, frobenius(at.X), at.b.cols
    of_products = p * ((x**2 + at.gamma**2 * z**2) * of_K * (2 * size + of_K))
    of_features = p * (at.gamma**2 * size**2 + p) * of_Z * (2 * z + of_Z)
    rounded = ROUNDING * p * ((x**2 + at.gamma**2 * z**2) * size**2 + z**2)
    return 4 * (of_products + of_features + rounded)


def steps(at: Network) -> list[mpf]:
    """√((γ‖z_i‖)² + ‖x_i‖²): how far the argument of row i moves for its own weights."""
    return [
        root_of_squares([at.gamma * root_of_squares(at.Z[i, :]), root_of_squares(at.X[i, :])]) for i in range(at.X.rows)
    ]


def lipschitz(at: Network, radius: mpf, longer: mpf | int = 1) -> mpf:
    """Λ of Lemma 10, of norms of the K_i that are longer by a factor."""
    g, rows = at.gamma, range(at.X.rows)
    pi = [norm(P) if frobenius(P) > 0 else mpf(0) for P in at.responses]
    k = [longer * norm(K) if frobenius(K) > 0 else mpf(0) for K in at.adjoints]

    def weighted(weights: list[mpf], M: Matrix) -> mpf:
        return norm(mpmath.diag(weights) * M) if any(weights) else mpf(0)

    both = [pi[i] * k[i] for i in rows]
    x1, z1, x2, z2 = weighted(pi, at.X), weighted(pi, at.Z), weighted(both, at.X), weighted(both, at.Z)
    tau = 1 / (1 - g * radius * max(pi))
    e = tau * max(pi) * radius * mp.sqrt(1 + (g * max(k)) ** 2)
    delta = radius * tau**2 * max(pi) * mp.sqrt((g * z1) ** 2 + x1**2)
    X1, Z1 = tau * x1, tau * z1 + delta
    X2, Z2 = tau * (x2 + e * x1), tau * (z2 + e * z1) + (max(k) + e) * delta
    M = mpmath.matrix([[0, 0, 0], [2 * g * X2, 2 * g**2 * Z2, 0], [2 * X1, 2 * g * Z1, 0]])
    return max(eigenvalues((M + M.T) / 2)[0], mpf(0))


def _moves(at: Network, radius: mpf) -> list[tuple[mpf, mpf]]:
    """The distance from 0 of every entry that counts, and its change on the ball."""
    found = []
    pi = [norm(P) if frobenius(P) > 0 else mpf(0) for P in at.responses]
    tau = 1 / (1 - at.gamma * radius * max(pi))
    for i, step in enumerate(steps(at)):
        for j in range(at.A.cols):
            column = root_of_squares(at.A[:, j]) + radius
            found.append((abs(at.U[i, j]), radius * step * (1 + at.gamma * tau * pi[i] * column)))
            if at.U[i, j] > 0:
                found.append((abs(at.XW[i, j]), radius * root_of_squares(at.X[i, :])))
    return found


def kink_margin(at: Network, radius: mpf) -> mpf:
    """The least quotient; 0 where nothing moves, on a ball of radius 0."""
    return min(distance / change if change > 0 else mpf(0) for distance, change in _moves(at, radius))


def _to_kinks(at: Network, error: mpf) -> mpf:
    """The least distance from 0 of an entry, XW where it does not count left out, relative to what floats lose of it."""
    lost = 2 * error + ROUNDING * (frobenius(at.XW) + frobenius(at.X) * frobenius(at.W))
    return min(distance for distance, _ in _moves(at, mpf(0))) / lost if lost > 0 else mp.inf


def largest_change(at: Network, problem: Arrays, radius: mpf) -> mpf:
    """‖(J(θ) - J(θ_0))u‖/ρ for a few unit vectors u, θ = θ_0 + ρu; patterns are those of θ_0, and so is the branch of Z."""
    draw, seen = np.random.default_rng(0), mpf(0)
    for _ in range(3):
        step = {
            name: exact(draw.standard_normal((M.rows, M.cols))) for name, M in (("W", at.W), ("A", at.A), ("b", at.b))
        }
        size = root_of_squares([frobenius(S) for S in step.values()])
        moved = {name: M + radius / size * step[name] for name, M in (("W", at.W), ("A", at.A), ("b", at.b))}
        there = Network(at.X, moved, at.gamma, _equilibrium(at, moved))
        u = [x for name in ("W", "A", "b") for x in step[name]]
        seen = max(seen, frobenius((there.jacobian - at.jacobian) * mpmath.matrix(u)) / size / radius)
    return seen


def _equilibrium(at: Network, weights: Mapping[str, Matrix]) -> Matrix:
    """Z at other weights with the same pattern of active units, which the solution must have."""
    rows, phi = [], (at.X * weights["W"]).apply(lambda x: max(x, mpf(0)))
    for i in range(at.X.rows):
        D = mpmath.diag([mpf(at.U[i, j] > 0) for j in range(at.A.cols)])
        z = mpmath.lu_solve(mpmath.eye(at.A.cols) - at.gamma * D * weights["A"].T, D * phi[i, :].T)
        assert all(x >= 0 for x in z), "an entry has left its piece"
        rows.append(list(z))
    return mpmath.matrix(rows)
