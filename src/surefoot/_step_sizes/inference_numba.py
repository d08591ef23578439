"""Compiled iteration of a step-size network on problems that are small."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from .sectors_numba import clear, locate, product


@njit(cache=True, fastmath={"contract", "reassoc"})
def dense(entries, widths, x, g, z):
    """z of the layers at all coordinates of a problem."""
    before, start = np.empty((2, x.size)), 0
    for j in range(x.size):
        before[0, j], before[1, j] = x[j], g[j]
    for layer in range(1, widths.size):
        inputs, outputs = widths[layer - 1], widths[layer]
        after = np.empty((outputs, x.size))
        clear(after)
        for k in range(outputs):
            row, fours = after[k], inputs - inputs % 4
            for i in range(0, fours, 4):  # four at a time: what they are added to is read and written once
                a, b, c, e = entries[start + i], entries[start + i + 1], entries[start + i + 2], entries[start + i + 3]
                for j in range(x.size):
                    row[j] += a * before[i, j] + b * before[i + 1, j] + c * before[i + 2, j] + e * before[i + 3, j]
            for i in range(fours, inputs):
                for j in range(x.size):
                    row[j] += entries[start + i] * before[i, j]
            start += inputs
            if layer < widths.size - 1:
                for j in range(x.size):
                    if row[j] < 0.0:
                        row[j] = 0.0
        before = after
    for j in range(x.size):
        z[j] = before[0, j]


@njit(cache=True, error_model="numpy")
def iterate(M, Mt, Y, logistic, lam, l2, inverse, xs, entries, widths, keys, starts, rows, factor, lo, hi, T):
    """F (T+1, N), and the least and largest P (T, N), of T proximal steps from ``xs[0]``.

    M is (N, b, d), or (1, b, d) for one matrix in all problems, and Mt (N, d, b), both contiguous; ``inverse`` is 1/β (N,).
    ``xs`` gets the iterates: all of them where it is (T+1, N, d), the last one in place of the first where it is (1, N, d).

    ``keys``, ``starts`` and ``rows`` are those of a sector table, or empty: then the layers are evaluated, from the ``entries``
    of W_1, W_2, … in one array, and the ``widths`` 2, n_1, …, 1. The network's output is what they give times ``factor``
    squared; one that is NaN counts as 0.
    """
    count, d = Y.shape[0], M.shape[2]
    objectives, lowest, highest = np.empty((T + 1, count)), np.empty((T, count)), np.empty((T, count))
    g, z, residual, elements = np.empty(d), np.empty(d), np.empty(Y.shape[1]), np.empty(d, np.int64)
    for p in range(count):
        matrix, transpose = M[p if M.shape[0] > 1 else 0], Mt[p if M.shape[0] > 1 else 0]
        x = xs[0, p]
        for t in range(T + 1):
            product(residual, x, transpose)
            loss, size, square = 0.0, 0.0, 0.0
            for r in range(residual.size):
                if logistic:
                    margin = Y[p, r] * residual[r]
                    small = math.exp(-abs(margin))
                    loss += max(-margin, 0.0) + math.log1p(small)
                    residual[r] = -Y[p, r] * ((small if margin >= 0 else 1.0) / (1 + small))
                else:
                    residual[r] -= Y[p, r]
                    loss += 0.5 * residual[r] * residual[r]
            for i in range(d):
                size += abs(x[i])
                square += x[i] * x[i]
            objectives[t, p] = (
                loss + (lam[p] * size if lam[p] > 0 else 0.0) + (0.5 * l2[p] * square if l2[p] > 0 else 0.0)
            )
            if t == T:
                break
            product(g, residual, matrix)
            if keys.size > 0:
                for i in range(d):
                    elements[i] = locate(x[i], g[i], keys, starts, elements[i] if t > 0 else 0)
                    z[i] = rows[elements[i], 0] * x[i] + rows[elements[i], 1] * g[i]
            else:
                dense(entries, widths, x, g, z)
            least, most, new = hi, lo, xs[t + 1 if xs.shape[0] > 1 else 0, p]
            for i in range(d):
                output = z[i] * factor * factor
                if math.isnan(output):
                    output = 0.0
                small = math.exp(-abs(output))
                share = (1.0 if output >= 0 else small) / (1 + small)
                P = min(max(lo + (hi - lo) * share, lo), hi)
                least, most = min(least, P), max(most, P)
                step = P * inverse[p]
                v, threshold = x[i] - step * g[i], step * lam[p]
                new[i] = (v - min(max(v, -threshold), threshold)) / (1 + step * l2[p])
            lowest[t, p], highest[t, p] = least, most
            x = new
    return objectives, lowest, highest
