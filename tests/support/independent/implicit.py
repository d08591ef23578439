"""Infinite-depth ReLU networks, docs/theorems/implicit.md: Φ = relu(XW), Z = relu(γZA + Φ), r = Zb - Y, loss ½‖r‖²_F.

The equilibrium is found by its pattern of active units: given the pattern it is the solution of a linear system, and a solution
that fits its own pattern is the equilibrium.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import mpmath
import numpy as np
from mpmath import mp, mpf

from .implicit_jacobian import of_jacobian
from .reference import UNIT, Array, Matrix, Reference, exact, frobenius, norm, of_norms, root_of_squares

Arrays = Mapping[str, Array]

NODES = 128
"""Nodes of the hat functions of ``implicit/spectral``."""
ROTATION = 32 * UNIT
"""By what two eigendecompositions may differ, relative to the norm of the matrix."""
ITERATIONS = 2000
"""After so many the checker's own equilibrium ends, converged or not."""
PATTERNS = 100
"""Patterns of active units of a row that are tried."""


def quantities(kind: object, problem: Arrays, weights: Arrays, published: Mapping[str, float]) -> dict[str, Reference]:
    """Those about the equilibrium only where γ‖A‖ < 1; κ and the masses for the published ends of the nodes."""
    X, A, W, b = exact(problem["X"]), exact(weights["A"]), exact(weights["W"]), exact(weights["b"])
    references = {f"norm_{name}": _norm(matrix) for name, matrix in {"X": X, "A": A, "W": W, "b": b}.items()}
    references["gamma"] = Reference(mpf(float(weights["gamma"])))
    references["frobenius_X"] = Reference(frobenius(X), mpf(10) ** -11 * frobenius(X))
    contraction = references["gamma"].value * references["norm_A"].value
    if contraction >= 1:
        return references
    Z = equilibrium(problem, weights)
    r, size = Z * b - exact(problem["Y"]), frobenius(Z)
    error = size * (4096 * UNIT + contraction**ITERATIONS) / (1 - contraction)
    moved = error * frobenius(b) + 4096 * UNIT * (size * frobenius(b) + frobenius(exact(problem["Y"])))
    values, vectors = mpmath.eigsy(Z * Z.T)
    smallest = mp.sqrt(max(min(values), mpf(0))) if Z.cols >= Z.rows else mpf(0)
    references["initial_gap"] = Reference(frobenius(r) ** 2 / 2, frobenius(r) * moved + moved**2)
    references["sigma_min_Z"] = Reference(smallest, of_norms(smallest, size) + error)
    references["norm_Z"] = Reference(norm(Z), of_norms(norm(Z), norm(Z)) + error)
    if "node_min" in published:
        nodes = _Nodes(mpf(published["node_min"]), mpf(published["node_max"]))
        rounding = error * (2 * size + error) + 4096 * UNIT * size**2
        references |= nodes.quantities(list(values), vectors.T * r, rounding, moved)
    if "ball" in published:
        references |= of_jacobian(problem, weights, Z, error, moved, mpf(published["ball"]))
    return references


def gap(kind: object, problem: Arrays, weights: Arrays) -> mpf:
    """The loss, of which the least possible value is 0; without a bound where there may be no equilibrium."""
    if float(weights["gamma"]) * norm(exact(weights["A"])) >= 1:
        return mp.inf
    return frobenius(equilibrium(problem, weights) * exact(weights["b"]) - exact(problem["Y"])) ** 2 / 2


def _norm(matrix: Matrix) -> Reference:
    return Reference(norm(matrix), of_norms(norm(matrix), norm(matrix)))


def equilibrium(problem: Arrays, weights: Arrays) -> Matrix:
    """Z (N, m), to 60 digits at least."""
    A, gamma = exact(weights["A"]), mpf(float(weights["gamma"]))
    Phi = (exact(problem["X"]) * exact(weights["W"])).apply(_relu)
    slope = 1 - gamma * norm(A)
    assert slope > 0, "the equilibrium is defined for gamma |A| < 1"
    return mpmath.matrix([_row(gamma * A, Phi[i, :], slope) for i in range(Phi.rows)])


def _row(B: Matrix, phi: Matrix, slope: mpf) -> list[mpf]:
    """The only z with z = relu(zB + φ): the active units solve z_j = (zB)_j + φ_j, and are those with a positive right side."""
    z, size = phi, frobenius(phi)
    for _ in range(PATTERNS):
        argument = z * B + phi
        image = argument.apply(_relu)
        if frobenius(image - z) <= mpf(10) ** -60 * size * slope:
            return list(image)
        active = [j for j in range(B.cols) if argument[j] > 0]
        system = mpmath.matrix([[(i == j) - B[j, i] for j in active] for i in active])
        solution = mpmath.lu_solve(system, mpmath.matrix([phi[j] for j in active])) if active else []
        z = mpmath.zeros(1, B.cols)
        for j, value in zip(active, solution, strict=True):
            z[j] = value
    raise AssertionError("the pattern of active units was not found")


def _relu(x: mpf) -> mpf:
    return max(x, mpf(0))


@dataclass(frozen=True)
class _Nodes:
    """Geometric nodes from ``first`` to ``last``; a hat function is 1 at its node, 0 at the others, and linear in between."""

    first: mpf
    last: mpf

    @property
    def places(self) -> list[mpf]:
        return [self.first * (self.last / self.first) ** (mpf(j) / (NODES - 1)) for j in range(NODES)]

    def quantities(self, values: list[mpf], components: Matrix, rounding: mpf, moved: mpf) -> dict[str, Reference]:
        """κ = ‖Ĝ - ZZᵀ‖ and the masses rᵀw_j(Ĝ)r, for the Ĝ nearest to ZZᵀ with its spectrum between the ends.

        Args:
            values: eigenvalues of ZZᵀ.
            components: of r along the eigenvectors (N, p).
            rounding: what an enclosure in floats loses of ZZᵀ.
            moved: and of r.
        """
        places = self.places
        inside = [min(max(value, self.first), self.last) for value in values]
        masses = [mpf(0)] * NODES
        for i, value in enumerate(inside):
            square = root_of_squares(components[i, :]) ** 2
            left = max(j for j in range(NODES - 1) if places[j] <= value)
            right_part = (value - places[left]) / (places[left + 1] - places[left])
            masses[left] += (1 - right_part) * square
            masses[left + 1] += right_part * square
        moves = [abs(a - b) for a, b in zip(inside, values, strict=True)]
        # bounded by the Frobenius norm, and published with a factor of 1.5
        references = {"kappa": Reference(max(moves), 1.5 * root_of_squares(moves) - max(moves) + 3 * rounding)}
        for j, (mass, (turned, shifted)) in enumerate(zip(masses, self._movable(masses), strict=True)):
            # any Ĝ that an eigendecomposition in floats finds will do, and the masses published are those of every such Ĝ
            root = mp.sqrt(mass)
            least = max(max(root - turned, mpf(0)) ** 2 - shifted, mpf(0))
            most = (1 + mpf(10) ** -9) * (root + 2 * turned + moved) ** 2 + 2 * shifted
            floor = mpf(10) ** -14 * 3 * mpmath.fsum(masses) / NODES
            references[f"mass[{j}]"] = Reference(least, most - least + floor, contained=False)
        return references

    def _movable(self, masses: list[mpf]) -> list[tuple[mpf, mpf]]:
        """What a perturbation of ZZᵀ by ``ROTATION`` of its norm turns into the roots of the masses from those elsewhere, and
        moves into the masses from the neighbours."""
        places, roots = np.array(self.places, dtype=float), np.sqrt(np.array(masses, dtype=float))
        steps = np.diff(places)
        spacing = np.minimum(np.append(steps, steps[-1]), np.insert(steps, 0, steps[0]))
        delta = float(ROTATION) * places[-1]
        turned = (delta / np.maximum(np.abs(places[:, None] - places), spacing[:, None])) @ roots
        around = np.convolve(roots**2, np.ones(3), mode="same")
        return [(mpf(t), mpf(s)) for t, s in zip(turned, np.minimum(delta / spacing, 1.0) * around, strict=True)]
