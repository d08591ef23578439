"""Products of the layers of deep linear ResNets, measured rigorously: the norms from which Lemma 3 makes its constants.

Errors of products accumulate along the layers and are carried with them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..rigor.approximation import Approximation
from ..rigor.balls import ball, float_above, float_below
from ..rigor.bounds import FAST, UNIT_ROUNDOFF, Array, Level, down, up
from ..rigor.gram import norm_at_most, norm_bounds
from ..rigor.intervals import Interval, bounded
from ..rigor.spectra import singular_value_bounds
from .constants import Measured, constants

SQUARINGS = 6
SHARP = 1.04
"""Products of norms that exceed the norm of the product by no more than this are not replaced by measured norms, which exceed
it by as much."""
SQUARES_VANISH = 1e-150
"""Covers matrices whose entries have squares that underflow."""


def _layers(W: Array) -> tuple[Array, Array]:
    """P_l = I + W_l and a bound of the rounding of each, in Frobenius norm."""
    identity = Approximation(np.eye(W.shape[1]))
    layers = [identity + Approximation(layer) for layer in W]
    return np.array([layer.value for layer in layers]), np.array([layer.error for layer in layers])


def end_to_end(weights: Mapping[str, Array], level: Level) -> Approximation:
    """(B P_L … P_1 A)ᵀ (d, k) with its error."""
    product = Approximation(weights["A"])
    for layer, error in zip(*_layers(weights["W"]), strict=True):
        product = product.image(layer, norm_bounds(layer, level)[1], level, float(error))
    product = product.image(weights["B"], norm_bounds(weights["B"], level)[1], level)
    return Approximation(np.ascontiguousarray(product.value.T), product.error)


@dataclass(frozen=True)
class Products:
    """P_l with bounds of their rounding and of their singular values, and all A_l, B_l with their errors."""

    P: Array
    rounding: Array
    p: Array
    p_low: Array
    forward: list[Approximation]
    backward: list[Approximation]

    @classmethod
    def of(cls, weights: Mapping[str, Array], X: Array, level: Level) -> Products:
        """For X, the stored design (r, d): A_1 = A Xᵀ."""
        A, B, W = weights["A"], weights["B"], weights["W"]
        P, rounding = _layers(W)
        depth = len(P)
        p_low, p = _extremes([Approximation(layer, float(e)) for layer, e in zip(P, rounding, strict=True)], level)
        forward, backward = [Approximation(np.ascontiguousarray(X.T)).image(A, math.inf, level)], [Approximation(B.T)]
        for layer in range(depth - 1):
            forward.append(forward[-1].image(P[layer], float(p[layer]), level, float(rounding[layer])))
        for layer in range(depth - 1, 0, -1):
            backward.append(backward[-1].image(P[layer].T, float(p[layer]), level, float(rounding[layer])))
        return cls(P, rounding, p, p_low, forward, [M.T for M in reversed(backward)])


def measure(weights: Mapping[str, Array], X: Array, level: Level = FAST, products: Products | None = None) -> Measured:
    """Bounds of the singular values of all A_l, B_l, P_l and of the norms of all M_ij; X is the stored design (r, d).

    ``products``: of them, if they are known already.
    """
    A, B = weights["A"], weights["B"]
    made = Products.of(weights, X, level) if products is None else products
    (a_low, a), (b_low, b) = (_extremes(matrices, level) for matrices in (made.forward, made.backward))
    # σ_r of an m × r matrix is its last singular value only if m ≥ r; likewise for B_l (k × m)
    if A.shape[0] < X.shape[0]:
        a_low = np.zeros_like(a)
    if B.shape[1] < B.shape[0]:
        b_low = np.zeros_like(b)
    return Measured(a, a_low, b, b_low, made.p, made.p_low, _between(made.P, made.rounding, made.p, level))


def _extremes(matrices: list[Approximation], level: Level) -> tuple[Array, Array]:
    """Lower bounds of the smallest and upper bounds of the largest singular value of each matrix."""
    low, high = np.empty(len(matrices)), np.empty(len(matrices))
    for i, M in enumerate(matrices):
        lower, upper = singular_value_bounds(np.ascontiguousarray(M.value), level)
        low[i], high[i] = max(0.0, down(float(lower[-1]) - M.error)), up(float(upper[0]) + M.error)
    return low, high


def _slack(m: int) -> float:
    """1 + the relative error of the norms of m × m matrices below.

    Each squaring of ``_norms`` errs by γ_m ‖G‖_F² ≤ m γ_m ‖G‖², by as much again because the computed G is not exactly
    symmetric, and the roots halve that each time: 4 m² u in all. A sum of m² squares is within m² u.
    """
    return 1.0 + 1e-9 + 8.0 * UNIT_ROUNDOFF * m * m


def _between(P: Array, rounding: Array, p: Array, level: Level) -> Array:
    """Upper bounds of ‖P_{j-1} … P_{i+1}‖ for i < j: the product of the norms, or a smaller measured norm of the product."""
    result = _products_of_norms(p)
    if len(P) < 3 or not _products_are_sharp(P, result[0, -1]):
        measured = _norms_of_products(P, rounding, p)
        if level is not FAST:
            measured = _confirmed(P, rounding, p, measured, result, level)
        result = np.minimum(result, measured)
    return result


def _confirmed(P: Array, rounding: Array, p: Array, claimed: Array, known: Array, level: Level) -> Array:
    """Upper bounds near ``claimed``, proved by the level's primitives one by one; those above ``known`` are left open."""
    result = np.full_like(claimed, np.inf)
    for i in range(len(P) - 1):
        result[i, i + 1] = 1.0
        product = Approximation(P[i + 1], float(rounding[i + 1]))
        for j in range(i + 2, len(P)):
            if claimed[i, j] < known[i, j]:
                result[i, j] = up(norm_at_most(product.value, float(claimed[i, j]), level) + product.error)
            if j < len(P) - 1:
                product = product.image(P[j], float(p[j]), level, float(rounding[j]))
    return result


def _products_of_norms(p: Array) -> Array:
    """Upper bounds of p_{i+1} … p_{j-1} for i < j."""
    depth = len(p)
    result = np.zeros((depth, depth))
    with np.errstate(over="ignore", invalid="ignore"):
        for j in range(1, depth):
            # from small factors, before large ones, a product may vanish
            result[: j - 1, j] = result[: j - 1, j - 1] * p[j - 1] + SQUARES_VANISH
            result[j - 1, j] = 1.0
    return np.triu(result * (1.0 + 1e-9), 1)


def _products_are_sharp(P: Array, bound: float) -> bool:
    """Whether the product of all inner norms is close to the norm of the product of these layers.

    It then is so for every part of them, as ‖M‖ ≤ ‖left part‖ ‖M_ij‖ ‖right part‖. This saves time and has no part in the
    rigour of the bounds.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        whole = P[1]
        for layer in P[2:-1]:
            whole = layer @ whole
    return bool(np.isfinite(whole).all()) and bound <= SHARP * float(np.linalg.norm(whole, 2))


def _norms_of_products(P: Array, rounding: Array, p: Array) -> Array:
    """Upper bounds of ‖P_{j-1} … P_{i+1}‖ for i < j, measured on products of equal length together; in time L² m³."""
    depth, m = P.shape[0], P.shape[1]
    result = np.zeros((depth, depth))
    for i in range(depth - 1):
        result[i, i + 1] = 1.0
    product, error = P[1:-1], rounding[1:-1]
    slack = _slack(m)
    frobenius = np.sqrt((P**2).sum((1, 2))) * slack + SQUARES_VANISH
    gamma = 2.0 * m * UNIT_ROUNDOFF
    for length in range(1, depth - 1):
        norms = _norms(product) + error
        for i, norm in enumerate(norms):
            result[i, i + length + 1] = norm * slack
        if length + 2 >= depth:
            break
        # the next layer from the left: layer i + length + 1 (0-based) times the product of layers i + 1 … i + length
        left = slice(length + 1, depth - 1)
        shorter, shorter_error = product[:-1], error[:-1]
        size = np.sqrt((shorter**2).sum((1, 2))) * slack + SQUARES_VANISH
        error = (gamma * frobenius[left] * size + p[left] * shorter_error + rounding[left] * size) * (
            1.0 + 1e-6
        ) + 1e-300
        product = P[left] @ shorter
    return result


def _norms(M: Array) -> Array:
    """Upper bounds of the spectral norms of a batch (b, m, m): min(‖(MᵀM)^64‖_F^(1/128), 1 + ‖M - I‖_F)."""
    near_identity = 1.0 + np.sqrt(((M - np.eye(M.shape[1])) ** 2).sum((1, 2)))
    G = M.transpose(0, 2, 1) @ M
    logarithm = np.zeros(len(M))
    weight = 1.0
    for squaring in range(SQUARINGS + 1):
        size = np.sqrt((G**2).sum((1, 2)))
        logarithm += weight * np.log(np.maximum(size, 1e-300))
        if squaring == SQUARINGS:
            break
        G = G / np.maximum(size, 1e-300)[:, None, None]
        G = G @ G
        weight *= 0.5
    return np.minimum(np.exp(0.5 * logarithm), near_identity) * _slack(M.shape[1]) + SQUARES_VANISH


def quantities_on_ball(measured: Measured, radius: float, level: Level = FAST) -> dict[str, Interval]:
    """Enclosures of the constants of Lemma 3, in balls but for level ``fast``; their far ends allow for the rounding of another
    evaluation of it."""
    if level is FAST:
        on_ball = constants(measured, radius)
        mu, gauss_newton, bilinear = map(float, (on_ball.pl_constant, on_ball.gauss_newton, on_ball.bilinear))
    else:
        balls = np.frompyfunc(ball, 1, 1)
        on_ball = constants(Measured(*(balls(bounds) for bounds in vars(measured).values())), ball(radius))
        mu = max(0.0, float_below(on_ball.pl_constant))
        gauss_newton, bilinear = float_above(on_ball.gauss_newton), float_above(ball(0.0) + on_ball.bilinear)
    enclosures = {
        "pl_constant": (mu, mu * (1.0 + 1e-6)),
        "gauss_newton": (gauss_newton * (1.0 - 1e-6), gauss_newton),
        "bilinear": (bilinear * (1.0 - 1e-6), bilinear),
    }
    return bounded(enclosures)
