"""Rigorous enclosures of the base quantities of infinite-depth ReLU networks on concrete arrays.

Weights W (d, m), A (m, m), b (m, p) and the fixed number gamma, on samples X (N, d), Y (N, p): Φ = relu(XW), Z =
relu(γZA + Φ), outputs Zb, loss ½‖Zb - Y‖²_F, whose optimal value is 0. The equilibrium Z is never known exactly: a
float64 iterate is a witness, and its distance to Z is bounded by the residual of the map and the rounding of it
(Lemma 1 of docs/theorems/implicit.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from ..arrays import FormatError, numbers
from ..problems import LARGEST_PRODUCT, Samples, one_of
from ..rigor.approximation import Approximation
from ..rigor.balls import arb_matrix, ball, frobenius
from ..rigor.bounds import FAST, UNIT_ROUNDOFF, Array, Level, down, frobenius_upper, gamma, up
from ..rigor.gram import cheap_norm, extreme_bounds, gram_of, norm_bounds
from ..rigor.intervals import TINY, Interval, around, bounded
from .constants import MASSES, NODES, node_places

FIXED: tuple[str, ...] = ("gamma",)
SHAPES = {"A": 2, "W": 2, "b": 2, "gamma": 0}
LARGEST = 1e25
"""Largest magnitude of an entry of a weight: four of these and data of up to 1e50 are multiplied, and then squared."""
LIMIT = 2000
"""Evaluations of the map for one equilibrium; what has not converged by then gets a wide enclosure."""


def load_problem(kind: object, arrays: Mapping[str, Array], level: Level = FAST) -> Samples:
    """Inputs and targets."""
    return one_of((Samples,), kind, arrays, level, "implicit networks")


def read_weights(arrays: Mapping[str, Array], problem: Samples, name: str) -> dict[str, Array]:
    """A (m, m), W (d, m), b (m, p), gamma (), float64, of the arrays of the file ``name``."""
    weights = {key: numbers(arrays.get(key), f"{name}: {key}", LARGEST, count) for key, count in SHAPES.items()}
    A, W, b, _ = weights.values()
    m = len(A)
    if A.shape != (m, m) or W.shape != (problem.X.shape[1], m) or b.shape != (m, problem.Y.shape[1]):
        raise FormatError(f"{name}: A, W and b do not fit each other or the problem")
    if len(problem.X) * m > LARGEST_PRODUCT:
        raise FormatError(
            f"{name}: {len(problem.X)} rows of width {m}: at most {LARGEST_PRODUCT} features are computed"
        )
    if not float(weights["gamma"]) > 0.0:
        raise FormatError(f"{name}: gamma is {float(weights['gamma'])}; it must be positive")
    return weights


def sizes(problem: Samples, weights: Mapping[str, Array]) -> dict[str, int | bool]:
    """Samples N, inputs d, width m, outputs p."""
    (N, d), p = problem.X.shape, problem.Y.shape[1]
    return {"N": N, "d": d, "m": len(weights["A"]), "p": p}


def relu(U: Array) -> Array:
    """Exact, and 1-Lipschitz."""
    return np.maximum(U, 0.0)


def rectified(U: Approximation) -> Approximation:
    """The same of an array with its error."""
    return Approximation(relu(U.value), U.error)


def equilibrium(problem: Samples, weights: Mapping[str, Array]) -> Approximation:
    """Z (N, m); the error is infinite where γ‖A‖ < 1 is not certain."""
    A, scale, level = weights["A"], float(weights["gamma"]), problem.level
    q = up(scale * cheap_norm(A))
    if not q < 0.9:
        q = up(scale * norm_bounds(A, level)[1])
    return rectified(argument(A, rectified(driving(problem, weights)), scale, q, relu, level))


def driving(problem: Samples, weights: Mapping[str, Array]) -> Approximation:
    """XW (N, m)."""
    return Approximation(*problem.level.product(problem.X, weights["W"]))


def argument(
    A: Array, offset: Approximation, scale: float, q: float, cut: Callable[[Array], Array], level: Level
) -> Approximation:
    """The solution of U = γ cut(U) A + ``offset``; the error is infinite where q < 1 is not certain.

    Args:
        scale: γ.
        q: upper bound of γ‖A‖.
        cut: of each entry by itself, exact and 1-Lipschitz.
    """
    if not q < 1.0:
        return Approximation(offset.value, math.inf)
    Z = _iterate(A, offset.value, scale, cut)
    product = _times(Z, A, level)
    if not np.isfinite(scale * product.value + offset.value).all():
        return Approximation(offset.value, math.inf)
    found = product.times(scale) + offset
    # the witness is moved by this in one more evaluation, which is itself off by the rounding of the argument
    change = (Approximation(cut(found.value)) - Approximation(Z)).norm()
    return Approximation(found.value, up(up(q * change + found.error, 2) / down(1.0 - q), 2))


def _iterate(A: Array, offset: Array, scale: float, cut: Callable[[Array], Array]) -> Array:
    """A witness of cut(U): the map with its diagonal solved for while that contracts, then the map itself."""
    diagonal = np.diag(A).copy()
    solved = 1.0 - scale * diagonal  # positive: |a_jj| ≤ ‖A‖
    rest = A - np.diag(diagonal)
    Z = cut(offset) / solved
    if not rest.any():
        return Z
    split, last = True, math.inf
    for _ in range(LIMIT):
        following = cut(scale * (Z @ (rest if split else A)) + offset)
        if split:
            following /= solved
        change = float(np.linalg.norm(following - Z))
        Z = following
        if change <= 2.0 * UNIT_ROUNDOFF * float(np.linalg.norm(Z)) or (not split and change >= last):
            break
        if split and change > 0.9 * last:  # it may cycle; the map itself contracts
            split, last = False, math.inf
        else:
            last = change
    return Z


def _times(Z: Array, A: Array, level: Level) -> Approximation:
    """Z A; ‖|Z||A|‖_F ≤ ‖Z‖_F ‖|A|‖."""
    diagonal = np.diag(A)
    if np.count_nonzero(A) == np.count_nonzero(diagonal):
        return Approximation(*level.scaled_columns(Z, diagonal))
    product, error = level.product(Z, A)
    if level is FAST:  # the blocks of the product make its constant at most that of all m terms in any order
        error = min(error, up(gamma(len(A)) * frobenius_upper(Z) * cheap_norm(A) + TINY * Z.size, 4))
    return Approximation(product, error)


def residual(problem: Samples, weights: Mapping[str, Array], Z: Approximation) -> Approximation:
    """Zb - Y (N, p)."""
    b = weights["b"]
    if not b.any():
        return Approximation(-problem.Y)
    outputs, error = problem.level.product(Z.value, b)
    return Approximation(outputs, up(error + Z.error * cheap_norm(b), 2)) - Approximation(problem.Y)


def _vanishes(r: Approximation) -> bool:
    return r.error == 0.0 and not r.value.any()


def gap_upper(problem: Samples, weights: Mapping[str, Array]) -> float:
    """Rigorous upper bound of the loss."""
    return _half_square(residual(problem, weights, equilibrium(problem, weights)))


def _half_square(r: Approximation) -> float:
    norm = r.norm()
    return 0.0 if _vanishes(r) else up(0.5 * norm * norm, 2)


def gap_exact(problem: Samples, weights: Mapping[str, Array]) -> tuple[Any, Any]:
    """Bounds of the loss with the residual of the map in ball arithmetic."""
    from flint import arb_mat

    q = ball(float(weights["gamma"])) * ball(norm_bounds(weights["A"], problem.level)[1])
    if not q < 1:
        return None, float("inf")
    Z = arb_matrix(equilibrium(problem, weights).value)
    A, X, W = arb_matrix(weights["A"]), arb_matrix(problem.X), arb_matrix(weights["W"])
    zero = ball(0.0)
    Phi = [x.max(zero) for x in (X * W).entries()]
    image = [(ball(float(weights["gamma"])) * x + f).max(zero) for x, f in zip((Z * A).entries(), Phi, strict=True)]
    distance = frobenius(Z - arb_mat(Z.nrows(), Z.ncols(), image))[1] / (1 - q)
    moved = (distance * frobenius(arb_matrix(weights["b"]))[1]).upper()
    near, far = frobenius(Z * arb_matrix(weights["b"]) - arb_matrix(problem.Y))
    low, high = near - moved, far + moved
    return (low * low / 2 if low > 0 else None), high * high / 2


class Measured:
    """What the base quantities are computed from; each part is measured once, when it is needed."""

    def __init__(self, problem: Samples, weights: Mapping[str, Array]) -> None:
        self.problem, self.weights = problem, weights

    @cached_property
    def norm_A(self) -> Interval:
        """‖A‖."""
        return norm_bounds(self.weights["A"], self.problem.level)

    @cached_property
    def contraction(self) -> float:
        """Upper bound of γ‖A‖."""
        return up(float(self.weights["gamma"]) * self.norm_A[1])

    @cached_property
    def drive(self) -> Approximation:
        """XW (N, m)."""
        return driving(self.problem, self.weights)

    @cached_property
    def argument(self) -> Approximation:
        """γZA + relu(XW) (N, m), of which relu is Z."""
        offset, scale = rectified(self.drive), float(self.weights["gamma"])
        return argument(self.weights["A"], offset, scale, self.contraction, relu, self.problem.level)

    @cached_property
    def Z(self) -> Approximation:
        """The equilibrium (N, m)."""
        return rectified(self.argument)

    @cached_property
    def residual(self) -> Approximation:
        """Zb - Y (N, p)."""
        return residual(self.problem, self.weights, self.Z)

    @cached_property
    def gram(self) -> Approximation:
        """Z Zᵀ (N, N), exactly symmetric, error included that of Z."""
        return gram_of(self.Z, self.problem.level)

    @cached_property
    def eigenvectors(self) -> tuple[Array, Array]:
        """Witness: eigenvalues (N,), ascending, and eigenvectors (N, N) of the computed Z Zᵀ."""
        values, U = np.linalg.eigh(self.gram.value)
        return values, self.problem.level.witness(U)

    def spectral(self, node_min: float, node_max: float) -> dict[str, Interval]:
        """κ and the masses, for Ĝ = ÛΛÛᵀ: Û the orthogonal polar factor of the computed eigenvectors U, Λ the
        computed eigenvalues moved into [node_min, node_max].

        a ≥ ‖UᵀU - I‖ bounds ‖Û - U‖, so that ‖Ĝ - ZZᵀ‖ ≤ ‖ZZᵀ - UΛUᵀ‖ + a(2+a)node_max, and the components of r along
        Û differ from the computed ones by at most a‖r‖ + (1+a)‖r - r̂‖ + the rounding of the product.
        """
        places = node_places(node_min, node_max)
        values, U = self.eigenvectors
        if places is None or not node_max <= 1e250 or not np.isfinite(U).all():
            return {}
        values, level = np.clip(values, node_min, node_max), self.problem.level
        a = level.defect(U)
        if not a < 0.5:
            return {}
        scaled, rounding = level.scaled_columns(U, values)
        kappa = (
            level.residual(self.gram.value, scaled, np.ascontiguousarray(U.T))
            + 2.0 * rounding
            + self.gram.error
            + a * (2.0 + a) * node_max
        )
        r = self.residual
        C, rounding = level.product(np.ascontiguousarray(U.T), r.value)
        moved = up(a * up(frobenius_upper(r.value) + r.error) + (1.0 + a) * r.error + rounding, 4)
        squares = (C**2).sum(axis=1)
        nodes = np.array(places)
        left = np.clip(np.searchsorted(nodes, values, side="right") - 1, 0, NODES - 2)
        # the difference of neighbouring nodes is exact or rounded once; the weights are within 8 units
        weight = np.clip((values - nodes[left]) / (nodes[left + 1] - nodes[left]), 0.0, 1.0)
        slack = 8.0 * UNIT_ROUNDOFF
        masses = np.zeros(NODES)
        np.add.at(masses, left, (1.0 - weight + slack) * squares)
        np.add.at(masses, left + 1, (weight + slack) * squares)
        relative = 1.0 + (4.0 * len(values) + 2.0 * C.shape[1] + 40.0) * UNIT_ROUNDOFF
        enclosures: dict[str, Interval] = {"kappa": (0.0, up(kappa, 8))}
        if _vanishes(r):
            return enclosures | dict.fromkeys(MASSES, (0.0, 0.0))
        for name, mass in zip(MASSES, masses, strict=True):
            root = up(math.sqrt(up(float(mass) * relative + TINY, 3)) + moved, 2)
            enclosures[name] = (0.0, up(root * root))
        return enclosures

    def base_quantities(self, quantities: Mapping[str, float]) -> dict[str, Interval]:
        """Where ``quantities`` has node_min and node_max, those of ``implicit/spectral`` (its κ and masses); else those of the
        other theorems, which know of Z its extreme singular values only."""
        problem, weights, level = self.problem, self.weights, self.problem.level
        scale = float(weights["gamma"])
        enclosures: dict[str, Interval] = {
            "gamma": (scale, scale),
            "norm_A": self.norm_A,
            "norm_X": norm_bounds(problem.X, level),
            "norm_b": norm_bounds(weights["b"], level),
            "initial_gap": (0.0, _half_square(self.residual)),
        }
        if "node_min" in quantities and "node_max" in quantities:
            return bounded(enclosures | self.spectral(quantities["node_min"], quantities["node_max"]))
        smallest, norm = extreme_bounds(self.Z.value, level)
        enclosures["sigma_min_Z"], enclosures["norm_Z"] = around(smallest, self.Z.error), around(norm, self.Z.error)
        enclosures["norm_W"] = norm_bounds(weights["W"], level)
        enclosures["frobenius_X"] = Approximation(problem.X).bounds()
        return bounded(enclosures)
