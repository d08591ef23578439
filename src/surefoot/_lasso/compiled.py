"""The compiled LASSO solver: working sets, coordinate descent and conjugate gradients, and the proof of every step.

One problem min ½‖Mx - y‖² + λ‖x‖₁ at a time, its columns as the rows of ``T`` (d, b), entries and y of size 1 at most. Work is
counted in columns: a scalar product with one, or the addition of one, is 1/d of a product with M or Mᵀ. Only ``dot`` and
``add`` may change the order of additions, which no bound of rounding here depends on.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

UNIT = 2.0**-52
"""Twice the unit roundoff."""
TINY = 2.0**-1022
SMALL = 1e-280
"""Columns with less than this for a squared norm are taken as 0 by what proposes steps."""
CYCLES = 20
"""Of coordinate descent and conjugate gradients before a proposal."""
LONGEST = 100
"""Steps of conjugate gradients in a cycle."""
DRIFT = 2.0**-36
"""A residual of which more than this may be wrong is computed afresh."""
SOLVED, ITERATIONS, STALLED = 0, 1, 2

STRICT = njit(cache=True, nogil=True, error_model="numpy")
LOOSE = njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})


@LOOSE
def dot(a, b):
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@LOOSE
def add(out, factor, a):
    for i in range(a.size):
        out[i] += factor * a[i]


@STRICT
def put(out, factor, a):
    """out = factor · a; a loop compiles in a fraction of the time of a slice."""
    for i in range(a.size):
        out[i] = factor * a[i]


@STRICT
def clear(out):
    for i in range(out.size):
        out[i] = 0.0


@STRICT
def soft(x, threshold):
    if x > threshold:
        return x - threshold
    return x + threshold if x < -threshold else 0.0


# ----- what proposes: nothing here need be right


@STRICT
def sweep(T, squares, lam, x, r, chosen):
    """Coordinate descent once through ``chosen``; the decrease, and the work."""
    decrease, work = 0.0, 0
    for j in chosen:
        if squares[j] <= SMALL:
            x[j] = 0.0
            continue
        change = soft(x[j] - dot(T[j], r) / squares[j], lam / squares[j]) - x[j]
        work += 1
        if change != 0.0:
            add(r, change, T[j])
            x[j] += change
            decrease += 0.5 * squares[j] * change * change
            work += 1
    return decrease, work


@STRICT
def nonzeros(chosen, x):
    """Those of ``chosen`` where x is not 0."""
    kept, count = np.empty(chosen.size, np.int64), 0
    for j in chosen:
        if x[j] != 0.0:
            kept[count] = j
            count += 1
    return kept[:count]


@STRICT
def clamped(x, step):
    """x + step, stopped at 0."""
    return 0.0 if (x + step) * x <= 0.0 else x + step


@STRICT
def across(T, lam, x, r, support, p, image, full, kink, hit, slope, curvature):
    """Move along p (image Mp) where the step ``full`` to the minimum of the parabola passes the first kink, at ``kink`` of the
    coordinate ``hit``: to ``full`` with coordinates stopped at 0 if that is lower, else to the kink."""
    trial, gained, work = r.copy(), 0.0, 0
    add(trial, full, image)
    for a in range(support.size):
        j = support[a]
        end = clamped(x[j], full * p[a])
        if end == 0.0:
            add(trial, -(x[j] + full * p[a]), T[j])
            work += 1
        gained += lam * (abs(x[j]) - abs(end))
    gained += 0.5 * (dot(r, r) - dot(trial, trial))
    straight = -kink * (slope + 0.5 * kink * curvature)
    if gained >= straight:
        put(r, 1.0, trial)
        for a in range(support.size):
            x[support[a]] = clamped(x[support[a]], full * p[a])
        return gained, work
    add(r, kink, image)
    for a in range(support.size):
        x[support[a]] += kink * p[a]
    x[support[hit]] = 0.0
    return straight, work


@STRICT
def face(T, squares, lam, x, r, chosen, accuracy):
    """Conjugate gradients over the non-zeros of ``chosen`` with their signs, preconditioned by ``squares``; restarted where
    coordinates become 0. It ends when a step gives less than ``accuracy`` of all the decrease."""
    support = nonzeros(chosen, x)
    p, slopes, image = np.zeros(support.size), np.zeros(support.size), np.zeros(r.size)
    total, work, before = 0.0, 0, math.inf
    for _ in range(LONGEST):
        now = 0.0
        for a in range(support.size):
            j = support[a]
            slopes[a] = dot(T[j], r) + math.copysign(lam, x[j])
            now += slopes[a] * (slopes[a] / squares[j])
        work += support.size
        slope, momentum = 0.0, now / before
        clear(image)
        for a in range(support.size):
            j = support[a]
            p[a] = momentum * p[a] - slopes[a] / squares[j]
            slope += slopes[a] * p[a]
            add(image, p[a], T[j])
        work += support.size
        before = now
        curvature = dot(image, image)
        if not (curvature > 0.0 and slope < 0.0):
            break
        full = -slope / curvature
        kink, hit = full, -1
        for a in range(support.size):
            if p[a] * x[support[a]] < 0.0 and -x[support[a]] / p[a] < kink:
                kink, hit = -x[support[a]] / p[a], a
        if hit < 0:
            add(r, full, image)
            for a in range(support.size):
                x[support[a]] += full * p[a]
            gained = -0.5 * full * slope
        else:
            gained, spent = across(T, lam, x, r, support, p, image, full, kink, hit, slope, curvature)
            work += spent
            support = nonzeros(support, x)
            before = math.inf  # p no longer belongs to these coordinates: momentum 0
            clear(p)
        total += gained
        if not gained > accuracy * total:
            break
    return total, work


@STRICT
def largest(values, rank):
    """The number that ``rank`` ≥ 1 of ``values``, which are reordered, reach or pass: quickselect."""
    low, high = 0, values.size - 1
    while low < high:
        pivot = values[(low + high) // 2]
        a, b = low, high
        while a <= b:
            while values[a] > pivot:
                a += 1
            while values[b] < pivot:
                b -= 1
            if a <= b:
                values[a], values[b] = values[b], values[a]
                a, b = a + 1, b - 1
        if rank - 1 <= b:
            high = b
        elif rank - 1 >= a:
            low = a
        else:
            break
    return values[rank - 1]


@STRICT
def working_set(active, x, g, norms, lam, entering):
    """The non-zeros, and of the others with |g| > λ up to ``entering`` that violate most for the norms of their columns."""
    excess, chosen = np.empty(active.size), np.empty(active.size, np.int64)
    outside = 0
    for j in active:
        if x[j] == 0.0 and abs(g[j]) > lam:
            excess[outside] = (abs(g[j]) - lam) / norms[j]
            outside += 1
    least = largest(excess[:outside], entering) if outside > entering else 0.0
    count = 0
    for j in active:
        if x[j] != 0.0 or (abs(g[j]) > lam and (abs(g[j]) - lam) / norms[j] >= least):
            chosen[count] = j
            count += 1
    return chosen[:count]


@STRICT
def propose(T, squares, lam, x, r, chosen, inner, accuracy, level, stop):
    """Move x over ``chosen`` until a cycle gives less than ``inner`` of all the decrease, or than ``level``; the work."""
    total, work = 0.0, 0
    for _ in range(CYCLES):
        if stop[0]:
            break
        swept, spent = sweep(T, squares, lam, x, r, chosen)
        gained, more = face(T, squares, lam, x, r, chosen, accuracy)
        total += swept + gained
        work += spent + more
        if not swept + gained > max(inner * total, level):
            break
    return work


# ----- what is proved: every rounding error on the safe side


@STRICT
def moved(T, norms, old, new, image):
    """``image`` = M(new - old); a bound of its error, and the work."""
    clear(image)
    size, count = 0.0, 0
    for j in range(old.size):
        if new[j] != old[j]:
            change = new[j] - old[j]
            add(image, change, T[j])
            size += abs(change) * norms[j]
            count += 1
    return (count + 8) * UNIT * size + TINY * image.size * count, count


@STRICT
def two_sum(a, b):
    """The sum as rounded, and what rounding lost."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@STRICT
def two_product(a, b):
    """The product as rounded, and what rounding lost (Dekker, 1971)."""
    split = 134217729.0
    top, bottom = split * a, split * b
    a1, b1 = top - (top - a), bottom - (bottom - b)
    a2, b2 = a - a1, b - b1
    product = a * b
    return product, a2 * b2 - (((product - a1 * b1) - a2 * b1) - a1 * b2)


@STRICT
def refined(T, norms, y, x, r):
    """r = Mx - y as if in twice the precision (Ogita, Rump and Oishi, 2005); a bound of its error, and the work."""
    size, count = math.sqrt(dot(y, y)), 0
    low = np.zeros(y.size)
    put(r, -1.0, y)
    for j in range(x.size):
        if x[j] != 0.0:
            size += abs(x[j]) * norms[j]
            count += 1
            for i in range(y.size):
                product, lost = two_product(x[j], T[j, i])
                r[i], rest = two_sum(r[i], product)
                low[i] += lost + rest
    if count == 0:
        return 0.0, 0
    add(r, 1.0, low)
    return UNIT * math.sqrt(dot(r, r)) + ((count + 8) * UNIT) ** 2 * size + TINY * y.size * count, count


@STRICT
def change_bound(old, new, g, errors, lam, image, image_error):
    """Upper bound of F(new) - F(old), from the gradient g at ``old`` with ``errors``: what rounding adds is a share of the step,
    not of F, so that decreases far below the rounding of F can be proved."""
    total, size, allowance, count = 0.0, 0.0, 0.0, 0
    for j in range(old.size):
        if new[j] == old[j]:
            continue
        step = new[j] - old[j]
        if old[j] * new[j] > 0.0:
            term = (g[j] + math.copysign(lam, old[j])) * step
            size += abs(term)
        else:
            term = g[j] * step + lam * (abs(new[j]) - abs(old[j]))
            size += abs(g[j] * step) + lam * (abs(new[j]) + abs(old[j]))
        total += term
        allowance += (errors[j] + 2.0 * UNIT * (abs(g[j]) + lam)) * abs(step)
        count += 1
    squared = 0.5 * (math.sqrt(dot(image, image)) * (1.0 + (image.size + 8) * UNIT) + image_error) ** 2
    allowance += (count + 16) * UNIT * (size + squared) + TINY * (count + image.size)
    return total + squared + allowance * (1.0 + (count + 16) * UNIT)


@STRICT
def model_decrease(active, x, g, errors, lam, beta):
    """Q = Σ max_d {-g d - βd²/2 - λ(|x+d| - |x|)}, and what to add for an upper bound.

    With s the sign of x and G = g + λs a coordinate gives G²/(2β) unless the step passes 0; else what it gains up to 0 and from
    there on, |x|(|G| - β|x|/2) + (|g - βx| - λ)₊²/(2β). A change of ε in g changes it by ε(|d| + ε/(2β)) at most, |d| ≤ |G|/β; so
    does the choice of the wrong formula.
    """
    total, allowance = 0.0, 0.0
    for j in active:
        size = abs(g[j])
        if x[j] == 0.0:
            slope = max(size - lam, 0.0)
            term = slope * (slope / (2.0 * beta))
            if size + errors[j] <= lam * (1.0 - 4.0 * UNIT):
                continue
        else:
            signed = g[j] + math.copysign(lam, x[j])
            slope = abs(signed)
            if signed * x[j] <= 0.0 or slope <= beta * abs(x[j]):
                term = slope * (slope / (2.0 * beta))
            else:
                rest = max(abs(g[j] - beta * x[j]) - lam, 0.0)
                term = abs(x[j]) * (slope - 0.5 * beta * abs(x[j])) + rest * (rest / (2.0 * beta))
        error = errors[j] + 4.0 * UNIT * (size + lam)
        total += term
        allowance += error * (slope + 4.0 * error) / beta
    return total, 2.0 * allowance + (active.size + 32) * UNIT * total + TINY * active.size


@STRICT
def proximal(active, x, g, lam, beta, out):
    """The proximal gradient step of length 1/β."""
    clear(out)
    for j in active:
        out[j] = soft(x[j] - g[j] / beta, lam / beta)


@STRICT
def gradient(T, norms, active, r, error, g, errors):
    """g = Mᵀr over ``active`` for r with the Euclidean ``error``, bounds of its ``errors``, and of those for r as it is."""
    size = math.sqrt(dot(r, r))
    plain = (r.size + 8) * UNIT * size
    for j in active:
        g[j] = dot(T[j], r)
        errors[j] = norms[j] * (error + plain) + TINY * r.size
    return plain


@STRICT
def duality(active, x, r, error, g, plain, norms, lam):
    """The factor c that makes θ = -cr feasible over ``active``, and an upper bound of the duality gap at x and θ, which is
    ½‖(Mx - y) + θ‖² + Σ(λ|x| - x(Mᵀθ)): no difference of large numbers."""
    largest = 0.0
    for j in active:
        largest = max(largest, abs(g[j]) + plain * norms[j] + TINY * r.size)
    c = 1.0 if largest <= lam else lam / largest * (1.0 - 2.0 * UNIT)
    total, size, allowance, count = 0.0, 0.0, 0.0, 0
    for j in active:
        if x[j] != 0.0:
            count += 1
            total += lam * abs(x[j]) + c * g[j] * x[j]
            size += lam * abs(x[j]) + abs(g[j] * x[j])
            allowance += abs(x[j]) * (plain * norms[j] + TINY * r.size)
    rest = (1.0 - c) * math.sqrt(dot(r, r)) * (1.0 + (r.size + 8) * UNIT) + error
    return c, (max(total, 0.0) + 0.5 * rest * rest + allowance) * (1.0 + 8.0 * UNIT) + (count + 16) * UNIT * size


@STRICT
def screened(active, x, g, plain, norms, lam, c, gap):
    """``active`` without the coordinates that are 0 here and at every minimiser: the gap-safe sphere test (Ndiaye, Fercoq,
    Gramfort and Salmon, 2017). The dual optimum is within √(2·gap) of θ, so that |⟨m_j, θ*⟩| < λ is proved."""
    radius = math.sqrt(2.0 * gap) * (1.0 + 8.0 * UNIT)
    kept = np.empty(active.size, np.int64)
    count = 0
    for j in active:
        reach = c * abs(g[j]) + norms[j] * (radius + plain) + TINY * x.size
        if x[j] != 0.0 or not reach * (1.0 + 16.0 * UNIT) < lam:
            kept[count] = j
            count += 1
    return kept[:count]


@STRICT
def proved(T, norms, active, old, new, g, errors, lam, beta, image):
    """Whether F(new) ≤ F(old) - Q is proved for β; ``image`` = M(new - old), a bound of its error, and the work."""
    image_error, work = moved(T, norms, old, new, image)
    if work == 0:
        return False, image_error, work
    change = change_bound(old, new, g, errors, lam, image, image_error)
    decrease, allowance = model_decrease(active, old, g, errors, lam, beta)
    return change <= -(decrease + allowance), image_error, work


@STRICT
def value(x, r, lam):
    total = 0.0
    for j in range(x.size):
        total += abs(x[j])
    return 0.5 * dot(r, r) + lam * total


@STRICT
def solve(T, y, lam, x, entering, inner, accuracy, tolerance, values, constants, spent, stop):
    """Move x (d,) by at most ``len(constants)`` iterations.

    Args:
        T: (d, b).
        y: (b,).
        lam: λ > 0.
        x: (d,), overwritten.
        entering: columns that enter for each non-zero, or for each ten rows or columns.
        inner: share of all its decrease that a cycle of a proposal must give for another.
        accuracy: the same of a step of conjugate gradients.
        tolerance: the share of F that the gap may have in the end, ≥ 0.
        values: F(x_t) (T+1,), filled.
        constants: β_t (T,) of the decrease proved of a step, filled.
        spent: products with M or Mᵀ until F(x_t) was known (T+1,), filled.
        stop: (1,); it ends soon after another thread has put anything but 0 there.

    Returns:
        iterations taken, how it ended, the gap bound, and how many proposals were made and accepted.
    """
    columns, rows = T.shape
    iterations = constants.size
    squares, norms = np.empty(columns), np.empty(columns)
    frobenius, widest = 0.0, 0.0
    for j in range(columns):
        squares[j] = dot(T[j], T[j])
        frobenius, widest = frobenius + squares[j], max(widest, squares[j])
        norms[j] = math.sqrt(squares[j]) * (1.0 + (rows + 8) * UNIT) + math.sqrt(TINY * rows)
    frobenius *= 1.0 + (rows + columns + 8) * UNIT
    beta = (math.sqrt(widest) + math.sqrt(frobenius / rows)) ** 2  # ≤ 4‖M‖²
    r, image, g, errors = np.empty(rows), np.empty(rows), np.zeros(columns), np.zeros(columns)
    error, work = refined(T, norms, y, x, r)
    active = np.arange(columns)
    values[0], spent[0] = value(x, r, lam), work / columns
    t, made, accepted, widened, exact = 0, 0, 0, 1.0, False
    while True:
        plain = gradient(T, norms, active, r, error, g, errors)
        work += active.size
        c, gap = duality(active, x, r, error, g, plain, norms, lam)
        if gap <= tolerance * values[t]:
            return t, SOLVED, gap, made, accepted
        if t == iterations or stop[0]:
            return t, ITERATIONS, gap, made, accepted
        active = screened(active, x, g, plain, norms, lam, c, gap)
        held = nonzeros(active, x).size
        most = max(1.0, widened * entering * max(0.1 * min(rows, columns), held))
        chosen = working_set(active, x, g, norms, lam, int(min(most, columns)))
        w, rw = x.copy(), r.copy()
        level = inner * tolerance * values[t]
        work += propose(T, squares, lam, w, rw, chosen, inner, accuracy, level, stop)
        good, image_error, spent_more = proved(T, norms, active, x, w, g, errors, lam, beta, image)
        work += spent_more
        made += 1
        accepted += good
        widened = max(1.0, 0.5 * widened) if good else min(4.0 * widened, 1e6)
        larger = beta
        while not good and larger <= 2.0 * frobenius:
            proximal(active, x, g, lam, larger, w)
            good, image_error, spent_more = proved(T, norms, active, x, w, g, errors, lam, larger, image)
            work += spent_more
            if not good:
                larger *= 2.0
        if good:
            beta, exact = larger, False
            constants[t] = beta
            put(x, 1.0, w)
            add(r, 1.0, image)
            error += image_error + 2.0 * UNIT * (math.sqrt(dot(r, r)) + math.sqrt(dot(image, image)))
            if error > DRIFT * math.sqrt(dot(r, r)):  # what was large before drowns what is left
                error, spent_more = refined(T, norms, y, x, r)
                work += spent_more
            t += 1
            values[t], spent[t] = min(value(x, r, lam), values[t - 1]), work / columns
        elif exact:
            return t, STALLED, gap, made, accepted
        else:  # once more, with less rounding
            error, spent_more = refined(T, norms, y, x, r)
            work += spent_more
            exact = True
