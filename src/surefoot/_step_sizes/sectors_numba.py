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
    near = abs(y) <= abs(x)
    top, bottom = (y, x) if near else (-x, y)
    ratio = top / bottom
    size = max(np.float64(abs(ratio)).view(np.int64) - SMALLEST, np.int64(0))
    key = (-size if ratio < 0 else size) + (np.int64(0) if near else QUARTER)
    position = ratio + (4.0 if near else 6.0)
    if bottom < 0:
        position = ratio + (2.0 if not near else 8.0 if key < 0 else 0.0)  # -π and π are one direction, with one key
        key ^= OPPOSITE
    return key, position


@njit(cache=True)
def rings(x, y):
    """``ring`` of many directions."""
    keys, positions = np.empty(x.size, np.int64), np.empty(x.size)
    for i in range(x.size):
        keys[i], positions[i] = ring(x[i], y[i])
    return keys, positions


@njit(cache=True)
def clear(out):
    """Zeros in a matrix; a loop compiles in a fraction of the time that NumPy's slices and functions take."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = 0.0


@njit(cache=True, inline="always")
def inside(start, key, end):
    """Whether ``key`` lies strictly between the two others on the circle."""
    if start < end:
        return start < key < end
    return key > start or key < end


@njit(cache=True)
def later(weights, units, on, a, b, turning, tails):
    """What a second-layer unit gains at each ray, and the sums of that from each ray to the end of its half turn.

    ``units`` are the first-layer units with a row (a, b) that is not 0, sorted by the ray ``on`` where each turns on.
    ``turning`` and ``tails`` (K+1, 4), overwritten, hold x and y of the first half turn, then of the second.
    """
    half = turning.shape[0] - 1
    clear(turning)
    for u in range(units.size):
        k, h = on[u], 0
        if k >= half:
            k, h = k - half, 2
        w = weights[units[u]]
        turning[k, h] += w * a[u]
        turning[k, h + 1] += w * b[u]
    t0, t1, t2, t3 = 0.0, 0.0, 0.0, 0.0  # four sums at once: each waits for its own last addition only
    for u in range(half, -1, -1):
        t0 += turning[u, 0]
        t1 += turning[u, 1]
        t2 += turning[u, 2]
        t3 += turning[u, 3]
        tails[u, 0], tails[u, 1], tails[u, 2], tails[u, 3] = t0, t1, t2, t3


@njit(cache=True, inline="always")
def passed(x, y, turning, tails, u, h):
    """Slopes on ray u of a half turn and in the open sector after it, and what the half turn has gained by then.

    (x, y) is what it had gained before the ray; ``h`` is its first column in ``turning`` and ``tails``: 0 or 2. On the ray
    itself neither the units that turn on there count nor those that turn off.
    """
    rest_x, rest_y = tails[u + 1, 2 - h], tails[u + 1, 3 - h]
    after_x, after_y = x + turning[u, h], y + turning[u, h + 1]
    return x + rest_x, y + rest_y, after_x + rest_x, after_y + rest_y, after_x, after_y


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


@njit(cache=True, inline="always")
def on_ray(x, y, dx, dy, key):
    """Whether a unit with slopes (x, y) is positive on a ray, given as vector and key."""
    side = sign(x, y, dx, dy)
    if side == 0 and (x != 0 or y != 0):
        turns_on = ring(y, -x)[0]
        return inside(turns_on, key, turns_on ^ OPPOSITE)
    return side > 0


@njit(cache=True)
def unclear(x, y, start, end):
    """State of a unit with slopes (x, y) in the open sector between two keys, the key of its switch and the position."""
    if x == 0 and y == 0:
        return 0, start, 0.0
    turns_on, position = ring(y, -x)
    turns_off = turns_on ^ OPPOSITE
    if inside(start, turns_on, end):
        return 2, turns_on, position
    if inside(start, turns_off, end):
        return 3, turns_off, (position + 4 if position < 4 else position - 4)
    return (1 if turns_on == start or inside(turns_on, start, turns_off) else 0), start, 0.0


@njit(cache=True)
def build(W2, W3, units, on, a, b, keys, dx, dy, slopes, states):
    """The switches inside sectors, and how many of the columns are switches.

    ``slopes`` (4K, 2), zeros at first, gets those of the coarse elements, and ``states`` (n2, 4K), also zeros at first, the
    state of every second-layer unit on them: 0 off, 1 on, 2 turns on inside, 3 turns off inside. A switch has key and ray
    before it (int64), position and state (float64), and slopes; it belongs to the next state above 1 in the order of units, then
    of rays u, K+u for u = 0, 1, ...
    """
    rays = keys.size
    half = rays // 2
    turning, tails = np.empty((half + 1, 4)), np.empty((half + 1, 4))
    capacity = 4 * W2.shape[0] + 16
    which, where, step = np.empty((2, capacity), np.int64), np.empty((2, capacity)), np.empty((2, capacity))
    count = 0
    for j in range(W2.shape[0]):
        later(W2[j], units, on, a, b, turning, tails)
        w = W3[j]
        state = states[j]
        firstx, firsty, secondx, secondy = 0.0, 0.0, 0.0, 0.0  # what the half turns have gained before ray u
        for u in range(half):
            for h in range(2):
                s = half * h + u
                n = s + 1 if s + 1 < rays else 0
                if h == 0:
                    x, y, openx, openy, firstx, firsty = passed(firstx, firsty, turning, tails, u, 0)
                else:
                    x, y, openx, openy, secondx, secondy = passed(secondx, secondy, turning, tails, u, 2)
                if on_ray(x, y, dx[s], dy[s], keys[s]):
                    state[2 * s] = 1
                    slopes[2 * s, 0] += w * x
                    slopes[2 * s, 1] += w * y
                # in the open sector after it
                side = sign(openx, openy, dx[s], dy[s])
                if side < 0 and sign(openx, openy, dx[n], dy[n]) < 0:
                    continue
                if not (side > 0 and sign(openx, openy, dx[n], dy[n]) > 0):
                    sector, key, position = unclear(openx, openy, keys[s], keys[n])
                    state[2 * s + 1] = sector
                    if sector == 0:
                        continue
                    if sector > 1:
                        if count == capacity:
                            capacity *= 2
                            which, where, step = grown(which), grown(where), grown(step)
                        which[0, count], which[1, count] = key, s
                        where[0, count], where[1, count] = position, sector
                        step[0, count], step[1, count] = w * openx, w * openy
                        count += 1
                        continue
                state[2 * s + 1] = 1
                slopes[2 * s + 1, 0] += w * openx
                slopes[2 * s + 1, 1] += w * openy
    return which, where, step, count


@njit(cache=True)
def grown(old):
    """``old`` with twice as many columns."""
    new = np.empty((old.shape[0], 2 * old.shape[1]), old.dtype)
    for i in range(old.shape[0]):
        for j in range(old.shape[1]):
            new[i, j] = old[i, j]
    return new


@njit(cache=True)
def spread(slopes, rays, count, switches, turned, step):
    """Slopes on the 2·count fine elements and one of zeros, which the origin gets.

    ``rays`` are the fine positions of the coarse rays and ``count`` at the end; switch i sits at fine boundary ``switches[i]``.
    """
    rows, on, off = np.empty((2 * count + 1, 2)), np.empty((count, 2)), np.empty((count, 2))
    clear(on)
    clear(off)
    rows[2 * count, 0] = rows[2 * count, 1] = 0.0
    for i in range(switches.size):
        into = on if turned[i] == 2 else off
        into[switches[i], 0] += step[0, i]
        into[switches[i], 1] += step[1, i]
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
    starts = np.empty(count + 1, np.int64)
    for i in range(count + 1):
        starts[i] = 0
    for position in positions:
        starts[min(int(position * (count / 8)), count - 1) + 1] += 1
    for i in range(count):
        starts[i + 1] += starts[i]
    return starts


@njit(cache=True, inline="always")
def locate(x, g, keys, starts, guess):
    """Fine element of (x, g), sought first at ``guess``; the last one for the origin and where an input is not finite."""
    if (x == 0 and g == 0) or not (abs(x) < np.inf and abs(g) < np.inf):
        return 2 * keys.size
    key, position = ring(x, g)
    nearby = min(guess >> 1, keys.size - 2)
    if keys[nearby] < key < keys[nearby + 1]:
        return 2 * nearby + 1
    cells = starts.size - 1
    cell = min(int(position * (cells / 8)), cells - 1)
    low, high = starts[cell], starts[cell + 1]
    while high - low > 8:  # few bins hold more than one boundary
        middle = (low + high) // 2
        if keys[middle] <= key:
            low = middle + 1
        else:
            high = middle
    while low < high and keys[low] <= key:
        low += 1
    return 2 * (low - 1) + (keys[low - 1] != key)


@njit(cache=True)
def locate_all(x, g, keys, starts):
    """``locate`` of many points."""
    out = np.empty(x.size, np.int64)
    for i in range(x.size):
        out[i] = locate(x[i], g[i], keys, starts, out[i - 1] if i > 0 else 0)
    return out


@njit(cache=True)
def coarse_sums(sums, rays):
    """Sums over each coarse element; and inside each open sector up to a fine element, and from it on."""
    half = (rays.size - 1) // 2
    coarse, before, after = np.empty((4 * half, 2)), np.empty(sums.shape), np.empty(sums.shape)
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
    return coarse, before, after


@njit(cache=True)
def accumulate(at_ray, prefix, suffix):
    """Of both half turns, x and y: ``prefix``, the sums over the elements before each ray; ``suffix``, which comes with the
    numbers of the open sectors, the sums over the open sector after each ray and all later elements."""
    half = at_ray.shape[0]
    t0, t1, t2, t3 = 0.0, 0.0, 0.0, 0.0
    for u in range(half):
        prefix[u, 0], prefix[u, 1], prefix[u, 2], prefix[u, 3] = t0, t1, t2, t3
        t0 += at_ray[u, 0] + suffix[u, 0]
        t1 += at_ray[u, 1] + suffix[u, 1]
        t2 += at_ray[u, 2] + suffix[u, 2]
        t3 += at_ray[u, 3] + suffix[u, 3]
    t0, t1, t2, t3 = 0.0, 0.0, 0.0, 0.0
    for u in range(half - 1, -1, -1):
        t0 += suffix[u, 0]
        t1 += suffix[u, 1]
        t2 += suffix[u, 2]
        t3 += suffix[u, 3]
        suffix[u, 0], suffix[u, 1], suffix[u, 2], suffix[u, 3] = t0, t1, t2, t3
        t0 += at_ray[u, 0]
        t1 += at_ray[u, 1]
        t2 += at_ray[u, 2]
        t3 += at_ray[u, 3]


@njit(cache=True)
def weight_gradients(sums, W2, W3, units, on, a, b, states, rays, switches, dW1, dW2, dW3):
    """Gradients of W1, W2, W3, added to zeros, from the sums of q·(x, g) over each fine element; O(n1·n2)."""
    half = (rays.size - 1) // 2
    coarse, before, after = coarse_sums(sums, rays)
    turning, tails = np.empty((half + 1, 4)), np.empty((half + 1, 4))
    prefix, suffix, at_ray = np.empty((half, 4)), np.empty((half, 4)), np.empty((half, 4))
    switch = 0
    for j in range(W2.shape[0]):
        later(W2[j], units, on, a, b, turning, tails)
        state = states[j]
        total = 0.0
        firstx, firsty, secondx, secondy = 0.0, 0.0, 0.0, 0.0
        for u in range(half):
            for h in range(2):
                s = half * h + u
                if h == 0:
                    x, y, openx, openy, firstx, firsty = passed(firstx, firsty, turning, tails, u, 0)
                else:
                    x, y, openx, openy, secondx, secondy = passed(secondx, secondy, turning, tails, u, 2)
                rayx, rayy, gx, gy = 0.0, 0.0, 0.0, 0.0
                if state[2 * s] == 1 and (coarse[2 * s, 0] != 0 or coarse[2 * s, 1] != 0):
                    rayx, rayy = coarse[2 * s, 0], coarse[2 * s, 1]
                    total += x * rayx + y * rayy
                sector = state[2 * s + 1]
                if sector == 1 and (coarse[2 * s + 1, 0] != 0 or coarse[2 * s + 1, 1] != 0):
                    gx, gy = coarse[2 * s + 1, 0], coarse[2 * s + 1, 1]
                    total += openx * gx + openy * gy
                elif sector > 1:
                    e = 2 * switches[switch]
                    if sector == 2:
                        gx, gy = after[e + 1, 0], after[e + 1, 1]
                    else:
                        gx, gy = before[e - 1, 0], before[e - 1, 1]
                    switch += 1
                    total += openx * gx + openy * gy
                at_ray[u, 2 * h], at_ray[u, 2 * h + 1] = rayx, rayy
                suffix[u, 2 * h], suffix[u, 2 * h + 1] = gx, gy
        dW3[j] = total
        if W3[j] == 0:
            continue
        accumulate(at_ray, prefix, suffix)
        weights, gradient = W2[j], dW2[j]
        for v in range(units.size):
            # the unit is on from the sector after its ray to the one before the opposite ray
            u, h = on[v], 0
            if u >= half:
                u, h = u - half, 2
            gx = W3[j] * (suffix[u, h] + prefix[u, 2 - h])
            gy = W3[j] * (suffix[u, h + 1] + prefix[u, 3 - h])
            i = units[v]
            gradient[i] = a[v] * gx + b[v] * gy
            dW1[i, 0] += weights[i] * gx
            dW1[i, 1] += weights[i] * gy


@njit(cache=True, fastmath={"contract"})
def add_product(out, coefficients, rows):
    """out += coefficients @ rows."""
    for k in range(rows.shape[0]):
        c = coefficients[k]
        for i in range(out.size):
            out[i] += c * rows[k, i]


@njit(cache=True)
def product(out, coefficients, rows):
    """out = coefficients @ rows."""
    for i in range(out.size):
        out[i] = 0.0
    add_product(out, coefficients, rows)


@njit(cache=True, error_model="numpy")
def unrolled(M, Mt, Y, beta, keys, starts, rows, factor, lo, hi, T, exact, sums):
    """Loss after T steps from 0 on N least-squares problems; adds to ``sums`` those of ∂F/∂z·(x, g) over each fine element.

    M is (N, b, d), Mt (N, d, b), both contiguous; slopes are ``rows`` times ``factor`` squared. The adjoint is that of
    x ← x - (1/β) P(x, g)⊙g with g = Mᵀ(Mx - Y).
    """
    count, b, d = M.shape
    x, g, residual = np.empty(d), np.empty(d), np.empty(b)
    xs, gs, step, slope = np.empty((T, d)), np.empty((T, d)), np.empty((T, d)), np.empty((T, d))
    elements = np.empty((T, d), np.int64)
    adjoint, through = np.empty(d), np.empty(d)
    loss = 0.0
    for p in range(count):
        matrix, transpose = M[p], Mt[p]
        for i in range(d):
            x[i] = 0.0
        inverse = 1 / beta[p]
        for t in range(T + 1):
            for r in range(b):
                residual[r] = -Y[p, r]
            add_product(residual, x, transpose)
            product(g, residual, matrix)
            if t == T:
                break
            for i in range(d):
                e = locate(x[i], g[i], keys, starts, elements[t - 1, i] if t > 0 else 0)
                z = (rows[e, 0] * x[i] + rows[e, 1] * g[i]) * factor * factor
                small = math.exp(-abs(z))
                share = 1 / (1 + small)
                size = lo + (hi - lo) * (share if z >= 0 else small * share)
                xs[t, i], gs[t, i], elements[t, i] = x[i], g[i], e
                step[t, i] = size * inverse
                slope[t, i] = (hi - lo) * inverse * (small * share * share)
                x[i] -= step[t, i] * g[i]
        for r in range(b):
            loss += 0.5 * residual[r] * residual[r]
        for i in range(d):
            adjoint[i] = g[i]
        for t in range(T - 1, -1, -1):
            for i in range(d):
                e = elements[t, i]
                q = -adjoint[i] * gs[t, i] * slope[t, i]
                sums[e, 0] += q * xs[t, i]
                sums[e, 1] += q * gs[t, i]
                through[i] = -step[t, i] * adjoint[i]
                if exact:
                    adjoint[i] += q * rows[e, 0] * factor * factor
                    through[i] += q * rows[e, 1] * factor * factor
            if t == 0:
                break
            product(residual, through, transpose)
            add_product(adjoint, residual, matrix)
    return loss
