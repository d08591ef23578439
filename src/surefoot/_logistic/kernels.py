"""Compiled loops of the logistic solver, for one problem in float64. Sums may be taken in any order: no bound depends on it."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

ANY_ORDER = {"reassoc", "contract", "nsz"}
BLOCK = 8
"""Rows with one logarithm."""


@njit(cache=True, fastmath=ANY_ORDER, error_model="numpy")
def squares(M, columns):
    """Squared norms of the columns of M, added to ``columns``."""
    for i in range(M.shape[0]):
        row = M[i]
        for j in range(row.size):
            columns[j] += row[j] * row[j]


@njit(cache=True, error_model="numpy")
def losses(labels, z, slopes, curvatures):
    """Σ log(1 + exp(-s z)). The first and second derivatives of the loss in z are filled in: ``slopes`` = -sθ and
    ``curvatures`` = θ(1 - θ) for θ = 1/(1 + exp(s z)).

    One logarithm is taken for ``BLOCK`` rows, of the product of their 1 + exp(-|z|), kept as its excess over 1, a sum of terms
    that are not negative: its relative error grows by 3 roundings a row at most.
    """
    loss = excess = 0.0
    for i in range(z.size):
        margin = -labels[i] * z[i]
        small = math.exp(-abs(margin))
        share = 1.0 / (1.0 + small)
        slopes[i] = -labels[i] * (share if margin >= 0.0 else small * share)
        curvatures[i] = small * share * share
        loss += max(margin, 0.0)
        excess += small * (1.0 + excess)
        if i % BLOCK == BLOCK - 1:
            loss += math.log1p(excess)
            excess = 0.0
    return loss + math.log1p(excess)


@njit(cache=True, error_model="numpy")
def loss_change(slopes, change):
    """Σ log(1 + exp(m + δ)) - log(1 + exp(m)) = Σ log(1 + θ(exp(δ) - 1)) for margins m with θ = |slopes| and ``change`` = -s δ;
    the sum of its absolute terms; the square root of that of their squares. Infinite for |δ| > 1, where it is of no use."""
    total = magnitude = square = 0.0
    for i in range(change.size):
        if not abs(change[i]) <= 1.0:
            return np.inf, np.inf, np.inf
        moved = math.copysign(1.0, slopes[i]) * change[i]
        term = math.log1p(abs(slopes[i]) * math.expm1(moved))
        total += term
        magnitude += abs(term)
        square += term * term
    return total, magnitude, math.sqrt(square)


@njit(cache=True, error_model="numpy")
def penalty_change(x, new, lam, l2):
    """λ(‖new‖₁ - ‖x‖₁) + ½μ(‖new‖² - ‖x‖²), and the sum of its absolute terms."""
    total = magnitude = 0.0
    for j in range(x.size):
        step = new[j] - x[j]
        if step != 0.0:
            term = lam * (abs(new[j]) - abs(x[j])) + 0.5 * l2 * step * (new[j] + x[j])
            total += term
            magnitude += lam * abs(step) + 0.5 * l2 * abs(step) * (abs(new[j]) + abs(x[j]))
    return total, magnitude


@njit(cache=True, error_model="numpy")
def duality_gap(labels, z, slopes, x, gradient, c, lam, l2):
    """The duality gap at cθ, θ = |slopes|, as a sum of terms that are not negative, and the sum of the terms that make them up.

    Fenchel's inequality for each row is the divergence of cθ from θ, 0 for c = 1. For v_j = -c ∇_j f it is, for a coordinate,
    λ|x| - x clamp(v, ±λ) + (μ/2)(x - soft(v, λ)/μ)².
    """
    gap = magnitude = 0.0
    less = 1.0 - c
    if less > 0.0:
        for i in range(z.size):
            theta = abs(slopes[i])
            margin = -labels[i] * z[i]
            rest = 1.0 / (1.0 + math.exp(margin))  # 1 - θ
            kept = c * theta * math.log(c)
            lost = math.log1p(less * theta / rest) if margin < 700.0 else margin + math.log(less)
            lost *= rest + less * theta
            gap += kept + lost
            magnitude += lost - kept
    for j in range(x.size):
        v = -c * gradient[j]
        inside = min(max(v, -lam), lam)
        gap += lam * abs(x[j]) - x[j] * inside
        magnitude += 2.0 * lam * abs(x[j])
        if l2 > 0.0:
            off = l2 * x[j] - (v - inside)
            gap += 0.5 * off * off / l2
    return gap, magnitude


@njit(cache=True, error_model="numpy")
def model_decrease(x, gradient, error, norms, beta, lam, l2, unit, tiny, safe):
    """Upper bound of the decrease Q of the model with the constant β at x, whose minimiser goes to ``safe``.

    The errors of the gradient are ``error`` times ``norms``, plus ``tiny``. Q is convex in it with slopes x - y, and y is
    (1/β)-Lipschitz, coordinate by coordinate; so an error ε changes Q by at most ε(|d| + ε/β). The computed minimiser differs
    from the exact one by a few units in the last place of its terms. The model rises by at most 2(β + μ) times its square: where
    one of them is 0, its slope beside 0 is at most β times the difference.
    """
    decrease = magnitude = misplaced = 0.0
    shrink = 1.0 + l2 / beta
    for j in range(x.size):
        v = x[j] - gradient[j] / beta
        over = abs(v) - lam / beta
        y = math.copysign(over, v) / shrink if over > 0.0 else 0.0
        safe[j] = y
        d = y - x[j]
        linear, quadratic = gradient[j] * d, 0.5 * beta * d * d
        one, two = lam * (abs(y) - abs(x[j])), 0.5 * l2 * d * (y + x[j])
        decrease -= linear + quadratic + one + two
        magnitude += abs(linear) + quadratic + abs(one) + 0.5 * l2 * abs(d) * (abs(y) + abs(x[j]))
        off = 8.0 * unit * (abs(x[j]) + (abs(gradient[j]) + lam) / beta)
        misplaced += 2.0 * (beta + l2) * off * off
        wrong = error * norms[j] + tiny
        misplaced += wrong * (abs(d) + 2.0 * wrong / beta)
    allowance = (x.size + 16) * unit * magnitude + misplaced
    return max(decrease, 0.0) + 2.0 * (allowance + tiny * (1.0 + beta + lam + l2))


@njit(cache=True, fastmath=ANY_ORDER, error_model="numpy")
def coordinate_descent(columns, chosen, weights, gradient, x, lam, l2, y, sweeps, share):
    """y close to the minimiser of ⟨g, y - x⟩ + ½ Σ w_i (A(y - x))_i² + λ‖y‖₁ + ½μ‖y‖² over the ``chosen`` coordinates, from x.

    ``columns`` has columns of M as rows, ``chosen`` says which of them are the coordinates. It ends when a sweep lowers the model
    by ``share`` of what the first one did, or after ``sweeps``. Returns how often a column was multiplied by something.
    """
    count, size = chosen.size, weights.size
    image, curvature = np.zeros(size), np.empty(count)
    for j in range(count):
        a, total = columns[chosen[j]], 0.0
        for i in range(size):
            total += weights[i] * a[i] * a[i]
        curvature[j] = total
    first, passes = 0.0, count
    for sweep in range(sweeps):
        lowered = 0.0
        for j in range(count):
            bend = curvature[j] + l2
            if bend <= 0.0:
                continue
            a, slope = columns[chosen[j]], gradient[j]
            passes += 1
            for i in range(size):
                slope += a[i] * image[i]
            v = curvature[j] * y[j] - slope
            over = abs(v) - lam
            new = math.copysign(over, v) / bend if over > 0.0 else 0.0
            step = new - y[j]
            if step != 0.0:
                y[j] = new
                passes += 1
                lowered += bend * step * step
                for i in range(size):
                    image[i] += step * weights[i] * a[i]
        if sweep == 0:
            first = lowered
        if lowered <= share * first:
            break
    return passes


@njit(cache=True, fastmath=ANY_ORDER, error_model="numpy")
def two_loops(steps, changes, products, newest, count, gradient):
    """-H g of L-BFGS (Nocedal and Wright, 2006, algorithm 7.4) for ``count`` ≥ 1 pairs in a ring buffer, the last at ``newest``;
    ``products`` are their scalar products."""
    size, capacity = gradient.size, products.size
    direction, alpha = -gradient, np.empty(count)
    for k in range(count):
        slot = (newest - k) % capacity
        total = 0.0
        for j in range(size):
            total += steps[slot, j] * direction[j]
        alpha[k] = total / products[slot]
        for j in range(size):
            direction[j] -= alpha[k] * changes[slot, j]
    total = 0.0
    for j in range(size):
        total += changes[newest, j] * changes[newest, j]
    scale = products[newest] / total
    for j in range(size):
        direction[j] *= scale
    for k in range(count - 1, -1, -1):
        slot = (newest - k) % capacity
        total = 0.0
        for j in range(size):
            total += changes[slot, j] * direction[j]
        beta = alpha[k] - total / products[slot]
        for j in range(size):
            direction[j] += beta * steps[slot, j]
    return direction
