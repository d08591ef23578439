"""Compiled kernels of the sector table: directions on a circle of integers, build, lookup, gradient, unrolled iteration.

A direction is an int64: two bits for the axis it is nearest to, the rest the bits of the ratio of its coordinates. Parallel
vectors have equal keys (a quotient is correctly rounded), the opposite direction is the key with its sign bit flipped, and
the order of the keys is the order of the angles from -π to π. The coarse rays are the directions where a unit of the first
layer switches, with the two directions of the first axis, so that ray 0 has the smallest key; there are 2K of them. Coarse
element 2s is ray s, element 2s+1 the open sector after it. Sums over half a turn are prefix and suffix sums of its two
parts, never differences: a large unit that is off leaves no rounding error behind.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

OPPOSITE = np.int64(-(2**63))
QUARTER = np.int64(2**62)
SMALLEST = np.int64(513 << 52)  # the bits of 2^-510: with smaller ratios taken as 0 four quarters fit into 64 bits
CLEAR = 4 * 2.0**-52  # a scalar product of two pairs above this share of its absolute terms has a certain sign


@njit(cache=True, inline="always")
def ring(x, y):
    """Key of the direction (x, y), finite and not 0, and its position in [0, 8], which does not decrease with the key."""
    if abs(y) <= abs(x):
        ratio = y / x
        key = max(np.float64(abs(ratio)).view(np.int64) - SMALLEST, np.int64(0))
        if ratio < 0:
            key = -key
        if x > 0:
            return key, 4 + ratio
        return key ^ OPPOSITE, (8 + ratio if ratio < 0 else ratio)
    ratio = -x / y
    key = max(np.float64(abs(ratio)).view(np.int64) - SMALLEST, np.int64(0))
    if ratio < 0:
        key = -key
    key += QUARTER
    if y > 0:
        return key, 6 + ratio
    return key ^ OPPOSITE, 2 + ratio


@njit(cache=True)
def rings(x, y):
    """``ring`` of many directions."""
    keys, positions = np.empty(x.size, np.int64), np.empty(x.size)
    for i in range(x.size):
        keys[i], positions[i] = ring(x[i], y[i])
    return keys, positions


@njit(cache=True, inline="always")
def inside(start, key, end):
    """Whether ``key`` lies strictly between the two others on the circle."""
    if start < end:
        return start < key < end
    return key > start or key < end


@njit(cache=True)
def preactivations(weights, units, on, a, b, sums, vx, vy):
    """Slopes (vx, vy) of one second-layer unit on all 4K coarse elements; ``sums`` is scratch of shape (8, K+1).

    ``units`` are the first-layer units with a row (a, b) that is not 0, sorted by the ray ``on`` where each turns on.
    """
    half = sums.shape[1] - 1
    cx, cy = vx, vy  # first the units that turn on at each ray, in place
    cx[: 2 * half] = 0.0
    cy[: 2 * half] = 0.0
    for u in range(units.size):
        w = weights[units[u]]
        cx[on[u]] += w * a[u]
        cy[on[u]] += w * b[u]
    sums[:] = 0.0
    for u in range(half):
        sums[0, u + 1] = sums[0, u] + cx[u]
        sums[1, u + 1] = sums[1, u] + cy[u]
        sums[2, u + 1] = sums[2, u] + cx[half + u]
        sums[3, u + 1] = sums[3, u] + cy[half + u]
    for u in range(half - 1, -1, -1):
        sums[4, u] = sums[4, u + 1] + cx[u]
        sums[5, u] = sums[5, u + 1] + cy[u]
        sums[6, u] = sums[6, u + 1] + cx[half + u]
        sums[7, u] = sums[7, u + 1] + cy[half + u]
    for u in range(half):
        first, second = 2 * u, 2 * (half + u)
        vx[first] = sums[0, u] + sums[6, u + 1]
        vy[first] = sums[1, u] + sums[7, u + 1]
        vx[first + 1] = sums[0, u + 1] + sums[6, u + 1]
        vy[first + 1] = sums[1, u + 1] + sums[7, u + 1]
        vx[second] = sums[2, u] + sums[4, u + 1]
        vy[second] = sums[3, u] + sums[5, u + 1]
        vx[second + 1] = sums[2, u + 1] + sums[4, u + 1]
        vy[second + 1] = sums[3, u + 1] + sums[5, u + 1]


@njit(cache=True, inline="always")
def sign(vx, vy, dx, dy):
    """Sign of the scalar product where rounding cannot change it, else 0."""
    p, q = vx * dx, vy * dy
    margin = CLEAR * (abs(p) + abs(q))
    if p + q > margin:
        return 1
    if p + q < -margin:
        return -1
    return 0


@njit(cache=True)
def build(W2, W3, units, on, a, b, keys, dx, dy):
    """Coarse slopes (4K, 2), state of every second-layer unit on every coarse element, and the switches inside sectors.

    States: 0 off, 1 on, 2 turns on inside, 3 turns off inside. A switch is (key, position, ray before, slopes) and belongs
    to the next state above 1 in the order of the units, then of the elements.
    """
    rays = keys.size
    sums, vx, vy = np.empty((8, rays // 2 + 1)), np.empty(2 * rays), np.empty(2 * rays)
    slopes, states = np.zeros((2 * rays, 2)), np.zeros((W2.shape[0], 2 * rays), np.int8)
    capacity = 4 * W2.shape[0] + 16
    where, which, step = np.empty((2, capacity)), np.empty((2, capacity), np.int64), np.empty((2, capacity))
    count = 0
    for j in range(W2.shape[0]):
        preactivations(W2[j], units, on, a, b, sums, vx, vy)
        signs = sign(vx[0], vy[0], dx[0], dy[0])
        for s in range(rays):
            n = s + 1 if s + 1 < rays else 0
            # on the ray itself
            c = 2 * s
            at = sign(vx[c], vy[c], dx[s], dy[s])
            if at == 0 and (vx[c] != 0 or vy[c] != 0):
                turns_on = ring(vy[c], -vx[c])[0]
                at = 1 if inside(turns_on, keys[s], turns_on ^ OPPOSITE) else -1
            if at > 0:
                states[j, c] = 1
                slopes[c, 0] += W3[j] * vx[c]
                slopes[c, 1] += W3[j] * vy[c]
            # in the open sector after it
            c += 1
            x, y = vx[c], vy[c]
            signs = sign(x, y, dx[s], dy[s])
            ends = sign(x, y, dx[n], dy[n])
            if signs == ends and signs != 0:
                if signs > 0:
                    states[j, c] = 1
                    slopes[c, 0] += W3[j] * x
                    slopes[c, 1] += W3[j] * y
                continue
            if x == 0 and y == 0:
                continue
            turns_on, position = ring(y, -x)
            turns_off = turns_on ^ OPPOSITE
            if inside(keys[s], turns_on, keys[n]):
                states[j, c] = 2
            elif inside(keys[s], turns_off, keys[n]):
                states[j, c] = 3
                position = position + 4 if position < 4 else position - 4
            else:
                if turns_on == keys[s] or inside(turns_on, keys[s], turns_off):
                    states[j, c] = 1
                    slopes[c, 0] += W3[j] * x
                    slopes[c, 1] += W3[j] * y
                continue
            if count == capacity:
                capacity *= 2
                where, which, step = grown(where), grown(which), grown(step)
            which[0, count] = turns_on if states[j, c] == 2 else turns_off
            which[1, count] = s
            where[0, count] = position
            where[1, count] = states[j, c]
            step[0, count] = W3[j] * x
            step[1, count] = W3[j] * y
            count += 1
    return slopes, states, which[:, :count], where[:, :count], step[:, :count]


@njit(cache=True)
def grown(old):
    """``old`` with twice as many columns."""
    new = np.empty((old.shape[0], 2 * old.shape[1]), old.dtype)
    new[:, : old.shape[1]] = old
    return new


@njit(cache=True)
def spread(slopes, rays, count, at, turned, step):
    """Slopes on the 2·count fine elements and one of zeros, which the origin gets.

    ``rays`` are the fine positions of the coarse rays and ``count`` at the end; switch i sits at fine boundary ``at[i]``.
    """
    rows, on, off = np.zeros((2 * count + 1, 2)), np.zeros((count, 2)), np.zeros((count, 2))
    for i in range(at.size):
        into = on if turned[i] == 2 else off
        into[at[i], 0] += step[0, i]
        into[at[i], 1] += step[1, i]
    for s in range(rays.size - 1):
        for axis in range(2):
            total = 0.0
            for m in range(rays[s], rays[s + 1]):
                if m == rays[s]:
                    rows[2 * m, axis] = slopes[2 * s, axis]
                else:
                    rows[2 * m, axis] = slopes[2 * s + 1, axis] + total
                total += on[m, axis]
                rows[2 * m + 1, axis] = slopes[2 * s + 1, axis] + total
            total = 0.0
            for m in range(rays[s + 1] - 1, rays[s], -1):
                rows[2 * m + 1, axis] += total
                rows[2 * m, axis] += total
                total += off[m, axis]
            rows[2 * rays[s] + 1, axis] += total
    return rows


@njit(cache=True)
def bins(positions, count):
    """``starts[i]``: how many boundaries have a position in a bin before bin i of ``count`` equal ones on [0, 8]."""
    starts = np.zeros(count + 1, np.int64)
    for position in positions:
        starts[min(int(position * (count / 8)), count - 1) + 1] += 1
    return np.cumsum(starts)


@njit(cache=True, inline="always")
def locate(x, g, keys, starts):
    """Fine element of (x, g); the last one for the origin and where an input is not finite."""
    if (x == 0 and g == 0) or not (abs(x) < np.inf and abs(g) < np.inf):
        return 2 * keys.size
    key, position = ring(x, g)
    cells = starts.size - 1
    cell = min(int(position * (cells / 8)), cells - 1)
    low, high = starts[cell], starts[cell + 1]
    while low < high:
        middle = (low + high) // 2
        if keys[middle] <= key:
            low = middle + 1
        else:
            high = middle
    return 2 * (low - 1) + (keys[low - 1] != key)


@njit(cache=True)
def locate_all(x, g, keys, starts):
    """``locate`` of many points."""
    out = np.empty(x.size, np.int64)
    for i in range(x.size):
        out[i] = locate(x[i], g[i], keys, starts)
    return out


@njit(cache=True)
def accumulate(sums, at, x, g, q):
    """Add q·(x, g) to the rows ``at`` of ``sums`` (fine elements, 2)."""
    for i in range(x.size):
        sums[at[i], 0] += q[i] * x[i]
        sums[at[i], 1] += q[i] * g[i]


@njit(cache=True)
def weight_gradients(sums, W2, W3, units, on, a, b, states, rays, at):
    """Gradients of W1, W2, W3 from the sums of q·(x, g) over each fine element; O(n1·n2)."""
    half = (rays.size - 1) // 2
    scratch, vx, vy = np.empty((8, half + 1)), np.empty(4 * half), np.empty(4 * half)
    coarse = np.zeros((4 * half, 2))
    before, after = np.zeros_like(sums), np.zeros_like(sums)  # inside each open sector, up to and from a fine element
    for s in range(2 * half):
        start, end = 2 * rays[s], 2 * rays[s + 1]
        for axis in range(2):
            coarse[2 * s, axis] = sums[start, axis]
            total = 0.0
            for e in range(start + 1, end):
                total += sums[e, axis]
                before[e, axis] = total
            coarse[2 * s + 1, axis] = total
            total = 0.0
            for e in range(end - 1, start, -1):
                total += sums[e, axis]
                after[e, axis] = total
    dW1, dW2, dW3 = np.zeros((W1_rows(W2), 2)), np.zeros_like(W2), np.zeros_like(W3)
    # sums over each half of the elements: prefixes, then suffixes, of the first and of the second half
    prefix, suffix = np.zeros((2, 2 * half + 1, 2)), np.zeros((2, 2 * half + 1, 2))
    share = np.empty((4 * half, 2))
    switch = 0
    for j in range(W2.shape[0]):
        preactivations(W2[j], units, on, a, b, scratch, vx, vy)
        total = 0.0
        for c in range(4 * half):
            state = states[j, c]
            gx, gy = 0.0, 0.0
            if state == 1:
                gx, gy = coarse[c, 0], coarse[c, 1]
            elif state == 2:
                e = 2 * at[switch] + 1
                gx, gy = after[e, 0], after[e, 1]
                switch += 1
            elif state == 3:
                e = 2 * at[switch] - 1
                gx, gy = before[e, 0], before[e, 1]
                switch += 1
            share[c, 0], share[c, 1] = gx, gy
            total += vx[c] * gx + vy[c] * gy
        dW3[j] = total
        if W3[j] == 0:
            continue
        for h in range(2):
            for axis in range(2):
                total = 0.0
                for e in range(2 * half):
                    total += share[2 * half * h + e, axis]
                    prefix[h, e + 1, axis] = total
                total = 0.0
                for e in range(2 * half - 1, -1, -1):
                    total += share[2 * half * h + e, axis]
                    suffix[h, e, axis] = total
        for u in range(units.size):
            # the unit is on from the sector after its ray to the one before the opposite ray
            h = 0 if on[u] < half else 1
            k = 2 * (on[u] - half * h)
            gx = W3[j] * (suffix[h, k + 1, 0] + prefix[1 - h, k, 0])
            gy = W3[j] * (suffix[h, k + 1, 1] + prefix[1 - h, k, 1])
            i = units[u]
            dW2[j, i] = a[u] * gx + b[u] * gy
            dW1[i, 0] += W2[j, i] * gx
            dW1[i, 1] += W2[j, i] * gy
    return dW1, dW2, dW3


@njit(cache=True, inline="always")
def W1_rows(W2):
    """Number of first-layer units."""
    return W2.shape[1]


@njit(cache=True)
def unrolled(M, Mt, Y, beta, keys, starts, rows, lo, hi, T, exact):
    """Loss after T steps from 0 on N least-squares problems, and the sums of ∂F/∂z·(x, g) over each fine element.

    M is (N, b, d), Mt (N, d, b), both contiguous. The adjoint is that of x ← x - (1/β) P(x, g)⊙g with g = Mᵀ(Mx - Y).
    """
    count, b, d = M.shape
    sums = np.zeros_like(rows)
    x, g, residual = np.empty(d), np.empty(d), np.empty(b)
    xs, gs, step, slope = np.empty((T, d)), np.empty((T, d)), np.empty((T, d)), np.empty((T, d))
    at = np.empty((T, d), np.int64)
    adjoint, through = np.empty(d), np.empty(d)
    loss = 0.0
    for p in range(count):
        x[:] = 0.0
        for t in range(T + 1):
            for r in range(b):
                residual[r] = -Y[p, r]
            for i in range(d):
                for r in range(b):
                    residual[r] += x[i] * Mt[p, i, r]
            g[:] = 0.0
            for r in range(b):
                for i in range(d):
                    g[i] += residual[r] * M[p, r, i]
            if t == T:
                break
            for i in range(d):
                e = locate(x[i], g[i], keys, starts)
                z = rows[e, 0] * x[i] + rows[e, 1] * g[i]
                small = math.exp(-abs(z))
                size = lo + (hi - lo) * ((1.0 if z >= 0 else small) / (1 + small))
                xs[t, i], gs[t, i], at[t, i] = x[i], g[i], e
                step[t, i] = size / beta[p]
                slope[t, i] = (hi - lo) * small / ((1 + small) * (1 + small)) / beta[p]
                x[i] -= step[t, i] * g[i]
        for r in range(b):
            loss += 0.5 * residual[r] * residual[r]
        adjoint[:] = g
        for t in range(T - 1, -1, -1):
            for i in range(d):
                e = at[t, i]
                q = -adjoint[i] * gs[t, i] * slope[t, i]
                sums[e, 0] += q * xs[t, i]
                sums[e, 1] += q * gs[t, i]
                through[i] = -step[t, i] * adjoint[i]
                if exact:
                    adjoint[i] += q * rows[e, 0]
                    through[i] += q * rows[e, 1]
            if t == 0:
                break
            residual[:] = 0.0
            for i in range(d):
                for r in range(b):
                    residual[r] += through[i] * Mt[p, i, r]
            for r in range(b):
                for i in range(d):
                    adjoint[i] += residual[r] * M[p, r, i]
    return loss, sums
