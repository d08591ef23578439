"""Rigorous enclosures of the base quantities of infinite-depth ReLU networks on concrete arrays.

Weights W (d, m), A (m, m), b (m, p) and the fixed number gamma, on samples X (N, d), Y (N, p): Φ = relu(XW), Z =
relu(γZA + Φ), outputs Zb, loss ½‖Zb - Y‖²_F, whose optimal value is 0. The equilibrium Z is never known exactly: a
float64 iterate is a witness, and its distance to Z is bounded by the residual of the map and the rounding of it
(Lemma 1 of docs/theorems/implicit.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..arrays import FormatError
from ..problems import LARGEST_PRODUCT, TINY, ULP, Array, Interval, Problem, Samples, arb_matrix, ball, read_arrays
from ..rigor.bounds import FAST, Level, difference_with_error, down, frobenius_upper, gamma, up
from ..rigor.gram import cheap_norm, extreme_bounds, norm_bounds
from .constants import MASSES, NODES, node_places

FIXED: tuple[str, ...] = ("gamma",)
"""Weights that training does not change."""
LARGEST = 1e25
"""Largest magnitude of an entry of a weight: four of these and data of up to 1e50 are multiplied, and then squared."""
LIMIT = 2000
"""Evaluations of the map for one equilibrium; what has not converged by then gets a wide enclosure."""
MASS_SLACK = 1e-9
KAPPA_SLACK = 1.5
ROTATION = 32.0 * ULP
"""By what two eigendecompositions may differ, relative to the norm of the matrix."""


def read_weights(arrays: Mapping[str, Array], problem: Problem, name: str) -> dict[str, Array]:
    """A (m, m), W (d, m), b (m, p), gamma (), float64, of the arrays of the file ``name``."""
    if not isinstance(problem, Samples):
        raise FormatError(f"{name}: implicit networks do not solve a problem of kind {problem.kind!r}")
    d, p = problem.X.shape[1], problem.Y.shape[1]
    weights = read_arrays(arrays, {"A": (None, None), "W": (d, None), "b": (None, p), "gamma": ()}, name, LARGEST)
    A, W, b, _ = weights.values()
    m = len(A)
    if not A.shape[1] == W.shape[1] == len(b) == m:
        raise FormatError(f"{name}: A, W and b do not fit each other")
    if len(problem.X) * m > LARGEST_PRODUCT:
        raise FormatError(
            f"{name}: {len(problem.X)} rows of width {m}: at most {LARGEST_PRODUCT} features are computed"
        )
    if not float(weights["gamma"]) > 0.0:
        raise FormatError(f"{name}: gamma is {float(weights['gamma'])}; it must be positive")
    return weights


def sizes(problem: Problem, weights: Mapping[str, Array]) -> dict[str, int | bool]:
    """Samples N, inputs d, width m, outputs p."""
    assert isinstance(problem, Samples)
    (N, d), p = problem.X.shape, problem.Y.shape[1]
    return {"N": N, "d": d, "m": len(weights["A"]), "p": p}


@dataclass(frozen=True)
class Enclosed:
    """A matrix known up to ``error`` in Frobenius norm."""

    value: Array
    error: float

    @property
    def vanishes(self) -> bool:
        """Whether it is exactly 0."""
        return self.error == 0.0 and not self.value.any()


def equilibrium(problem: Samples, weights: Mapping[str, Array], norm_A: float | None = None) -> Enclosed:
    """Z (N, m); the error is infinite where γ‖A‖ < 1 is not certain. ``norm_A``: an upper bound of ‖A‖, found if not
    given."""
    A, scale, level = weights["A"], float(weights["gamma"]), problem.level
    features, features_error = level.product(problem.X, weights["W"])
    Phi = np.maximum(features, 0.0)  # relu is exact, and 1-Lipschitz
    q = up(scale * (cheap_norm(A) if norm_A is None else norm_A))
    if norm_A is None and not q < 0.9:
        q = up(scale * norm_bounds(A, level)[1])
    if not q < 1.0:
        return Enclosed(Phi, math.inf)
    Z = _iterate(A, Phi, scale)
    product, product_error = _times(Z, A, level)
    if not np.isfinite(scale * product + Phi).all():
        return Enclosed(Phi, math.inf)
    scaled, scaling_error = level.scaled_columns(product, np.full(product.shape[1], scale))
    argument, adding_error = difference_with_error(scaled, -Phi)
    following = np.maximum(argument, 0.0)
    # ω: the product, its scaling by γ, the sum with Φ, and Φ itself
    rounding = up(scale * product_error + scaling_error + adding_error + features_error, 4)
    moved, moving_error = difference_with_error(following, Z)
    change = up(frobenius_upper(moved) + moving_error)
    return Enclosed(following, up(up(q * change + rounding, 2) / down(1.0 - q), 2))


def _iterate(A: Array, Phi: Array, scale: float) -> Array:
    """A witness of the equilibrium: the map with its diagonal solved for while that contracts, then the map
    itself."""
    diagonal = np.diag(A).copy()
    solved = 1.0 - scale * diagonal  # positive: |a_jj| ≤ ‖A‖
    rest = A - np.diag(diagonal)
    Z = Phi / solved
    if not rest.any():
        return Z
    split, last = True, math.inf
    for _ in range(LIMIT):
        following = np.maximum(scale * (Z @ (rest if split else A)) + Phi, 0.0)
        if split:
            following /= solved
        change = float(np.linalg.norm(following - Z))
        Z = following
        if change <= 2.0 * ULP * float(np.linalg.norm(Z)) or (not split and change >= last):
            break
        if split and change > 0.9 * last:  # it may cycle; the map itself contracts
            split, last = False, math.inf
        else:
            last = change
    return Z


def _times(Z: Array, A: Array, level: Level) -> tuple[Array, float]:
    """Z A and a bound of its error in Frobenius norm; ‖|Z||A|‖_F ≤ ‖Z‖_F ‖|A|‖."""
    diagonal = np.diag(A)
    if np.count_nonzero(A) == np.count_nonzero(diagonal):
        return level.scaled_columns(Z, diagonal)
    product, error = level.product(Z, A)
    if level is not FAST:
        return product, error
    # the blocks of the product make its constant at most that of all m terms in any order
    return product, min(error, up(gamma(len(A)) * frobenius_upper(Z) * cheap_norm(A) + TINY * Z.size, 4))


def residual(problem: Samples, weights: Mapping[str, Array], Z: Enclosed) -> Enclosed:
    """Zb - Y (N, p)."""
    b, level = weights["b"], problem.level
    if not b.any():
        return Enclosed(-problem.Y, 0.0)
    outputs, error = level.product(Z.value, b)
    difference, rounding = difference_with_error(outputs, problem.Y)
    return Enclosed(difference, up(error + rounding + Z.error * cheap_norm(b), 4))


def gap_upper(problem: Problem, weights: Mapping[str, Array]) -> float:
    """Rigorous upper bound of the loss."""
    assert isinstance(problem, Samples)
    return _half_square(residual(problem, weights, equilibrium(problem, weights)))


def _half_square(r: Enclosed) -> float:
    if r.vanishes:
        return 0.0
    norm = up(frobenius_upper(r.value) + r.error)
    return up(0.5 * norm * norm, 2)


def gap_exact(problem: Problem, weights: Mapping[str, Array]) -> tuple[Any, Any]:
    """Bounds of the loss with the residual of the map in ball arithmetic."""
    from flint import arb_mat

    assert isinstance(problem, Samples)
    q = ball(float(weights["gamma"])) * ball(norm_bounds(weights["A"], problem.level)[1])
    if not q < 1:
        return None, float("inf")
    Z = arb_matrix(equilibrium(problem, weights).value)
    A, X, W = arb_matrix(weights["A"]), arb_matrix(problem.X), arb_matrix(weights["W"])
    zero = ball(0.0)
    Phi = [x.max(zero) for x in (X * W).entries()]
    image = [(ball(float(weights["gamma"])) * x + f).max(zero) for x, f in zip((Z * A).entries(), Phi, strict=True)]
    distance = _norm(Z - arb_mat(Z.nrows(), Z.ncols(), image)) / (1 - q)
    moved = (distance * _norm(arb_matrix(weights["b"]))).abs_upper()
    norm = _norm(Z * arb_matrix(weights["b"]) - arb_matrix(problem.Y))
    low, high = norm.abs_lower() - moved, norm.abs_upper() + moved
    return (low * low / 2 if low > 0 else None), high * high / 2


def _norm(A: Any) -> Any:
    """Frobenius norm of an ``arb_mat``; the ball of the sum of squares may reach below zero."""
    total: Any = sum((x * x for x in A.entries()), ball(0.0))
    return total.nonnegative_part().sqrt()


class Measured:
    """What the base quantities are computed from; each part is measured once, when it is needed."""

    def __init__(self, problem: Samples, weights: Mapping[str, Array]) -> None:
        self.problem, self.weights = problem, weights

    @cached_property
    def norm_A(self) -> Interval:
        """‖A‖."""
        return norm_bounds(self.weights["A"], self.problem.level)

    @cached_property
    def Z(self) -> Enclosed:
        """The equilibrium (N, m)."""
        return equilibrium(self.problem, self.weights, self.norm_A[1])

    @cached_property
    def residual(self) -> Enclosed:
        """Zb - Y (N, p)."""
        return residual(self.problem, self.weights, self.Z)

    @cached_property
    def gram(self) -> Enclosed:
        """Z Zᵀ (N, N), exactly symmetric, error included that of Z."""
        Z, level = self.Z.value, self.problem.level
        G, error = level.signed_gram(Z, np.ones(Z.shape[1]))
        return Enclosed(G, up(error + self.Z.error * (2.0 * frobenius_upper(Z) + self.Z.error), 5))

    @cached_property
    def eigenvectors(self) -> tuple[Array, Array]:
        """Witness: eigenvalues (N,), ascending, and eigenvectors (N, N) of the computed Z Zᵀ."""
        values, U = np.linalg.eigh(self.gram.value)
        return values, self.problem.level.witness(U)

    def nodes(self) -> tuple[float, float]:
        """node_min and node_max of ``implicit/spectral``: the ends of the computed spectrum, apart and positive."""
        values = self.eigenvectors[0]
        largest = max(float(values[-1]), 1e-280)
        smallest = max(float(values[0]), 1e-14 * largest)
        return smallest, max(largest, 1.01 * smallest)

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
        slack = 8.0 * ULP
        masses = np.zeros(NODES)
        np.add.at(masses, left, (1.0 - weight + slack) * squares)
        np.add.at(masses, left + 1, (weight + slack) * squares)
        relative = 1.0 + (4.0 * len(values) + 2.0 * C.shape[1] + 40.0) * ULP
        found: dict[str, Interval] = {"kappa": (0.0, up(kappa, 8))}
        if r.vanishes:
            return found | dict.fromkeys(MASSES, (0.0, 0.0))
        for name, mass in zip(MASSES, masses, strict=True):
            root = up(math.sqrt(up(float(mass) * relative + TINY, 3)) + moved, 2)
            found[name] = (0.0, up(root * root))
        return found


def base_quantities(
    problem: Problem,
    weights: Mapping[str, Array],
    quantities: Mapping[str, float],
    measured: Measured | None = None,
) -> dict[str, Interval]:
    """Enclosures of the quantities in ``theorems.implicit.DIRECTIONS``.

    Where ``quantities`` has node_min and node_max, those of ``implicit/spectral`` (its κ and masses); else those of
    the other theorems, which know of Z its extreme singular values only. ``measured`` saves measuring the same
    weights again.
    """
    assert isinstance(problem, Samples)
    at = measured or Measured(problem, weights)
    scale = float(weights["gamma"])
    found: dict[str, Interval] = {
        "gamma": (scale, scale),
        "norm_A": at.norm_A,
        "norm_X": norm_bounds(problem.X, problem.level),
        "norm_b": norm_bounds(weights["b"], problem.level),
        "initial_gap": (0.0, _half_square(at.residual)),
    }
    if "node_min" in quantities and "node_max" in quantities:
        found |= at.spectral(quantities["node_min"], quantities["node_max"])
    else:
        (low, high), (norm_low, norm_high) = extreme_bounds(at.Z.value, problem.level)
        error = at.Z.error
        found["sigma_min_Z"] = max(0.0, down(low - error)), up(high + error)
        found["norm_Z"] = max(0.0, down(norm_low - error)), up(norm_high + error)
        found["norm_W"] = norm_bounds(weights["W"], problem.level)
        frobenius = frobenius_upper(problem.X)
        found["frobenius_X"] = down(frobenius * (1.0 - 1e-12)), frobenius
    return {name: (float(a), float(b)) for name, (a, b) in found.items() if np.isfinite([a, b]).all()}


def widened(enclosures: Mapping[str, Interval], quantities: Mapping[str, float]) -> dict[str, Interval]:
    """The enclosures with κ and the masses moved outwards by what two eigendecompositions of a matrix may differ by.

    A certificate publishes these values, so that a checker on another machine confirms them. Two computed spectra differ
    by a perturbation of norm δ, some units of node_max: it turns components at l_b into those at l_j by δ/|l_j - l_b|, and
    moves weights by δ over the distance of the nodes. Only whether the checker can confirm depends on this estimate.
    """
    wide = dict(enclosures)
    if "kappa" not in wide:
        return wide
    wide["kappa"] = wide["kappa"][0], wide["kappa"][1] * KAPPA_SLACK
    places = node_places(quantities["node_min"], quantities["node_max"])
    assert places is not None  # else there is no κ
    nodes, roots = np.array(places), np.sqrt([wide[name][1] for name in MASSES])
    gaps = np.diff(nodes)
    spacing = np.minimum(np.append(gaps, gaps[-1]), np.insert(gaps, 0, gaps[0]))
    delta = ROTATION * nodes[-1]
    turned = delta * (1.0 / np.maximum(np.abs(nodes[:, None] - nodes), spacing[:, None])) @ roots
    around = np.convolve(roots**2, np.ones(3), mode="same")
    floor = 1e-14 * 2.0 * wide["initial_gap"][1] / NODES
    wider = (1.0 + MASS_SLACK) * (roots + turned) ** 2 + np.minimum(delta / spacing, 1.0) * around + floor
    for name, mass in zip(MASSES, wider, strict=True):
        wide[name] = wide[name][0], float(mass)
    return wide
