"""Compiled search for the best weights of the subgame-perfect method."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, error_model="numpy")
def best(K, heights, worth):
    """The best weights y ≥ 0 (N, n) among those that are optimal for a set of positive ones; zero where there are none.

    K is CᵀC (N, n, n); ``heights`` and ``worth`` are b and w (N, n). Each set is solved by Cholesky's factorisation K = LLᵀ: y is
    L⁻ᵀ(L⁻¹b + μL⁻¹w).
    """
    count, n = heights.shape
    found = np.zeros((count, n))
    L, b, w, at = np.empty((n, n)), np.empty(n), np.empty(n), np.empty(n, np.int64)
    for p in range(count):
        most = 0.0
        for chosen in range(1, 1 << n):
            m = 0
            for i in range(n):
                if chosen >> i & 1:
                    at[m] = i
                    m += 1
            admissible = True
            for i in range(m):
                for j in range(i + 1):
                    value = K[p, at[i], at[j]]
                    for k in range(j):
                        value -= L[i, k] * L[j, k]
                    L[i, j] = value / L[j, j] if j < i else np.sqrt(value)
                admissible = admissible and L[i, i] > 0.0
                b[i], w[i] = heights[p, at[i]], worth[p, at[i]]
                for k in range(i):
                    b[i] -= L[i, k] * b[k]
                    w[i] -= L[i, k] * w[k]
                b[i], w[i] = b[i] / L[i, i], w[i] / L[i, i]
            y = b[:m] + np.sqrt((b[:m] ** 2).sum() / (w[:m] ** 2).sum()) * w[:m]
            value = 0.0
            for i in range(m - 1, -1, -1):
                for k in range(i + 1, m):
                    y[i] -= L[k, i] * y[k]
                y[i] /= L[i, i]
                admissible = admissible and 0.0 <= y[i] < np.inf
                value += y[i] * worth[p, at[i]]
            if admissible and value > most:
                most = value
                found[p] = 0.0
                for i in range(m):
                    found[p, at[i]] = y[i]
    return found
