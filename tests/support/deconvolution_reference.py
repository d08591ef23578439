"""The solvers of deconvolution from their formulas, with dense matrices in exact or 60-digit arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np

Array = np.ndarray
Number = Callable[[float], Any]
"""Fraction or mpmath.mpf: what makes an exact number of a float."""
DIGITS = 60


def exactly(A: Array, number: Number) -> Array:
    """The array in that arithmetic."""
    return np.array([number(float(a)) for a in A.ravel()] or [], dtype=object).reshape(A.shape)


def convolution(kernel: Array, shape: tuple[int, int], number: Number) -> Array:
    """K as a matrix: (Kz)(p) = Σ_a k(a) z(p - a + centre), indices modulo the shape."""
    rows, columns = shape
    K = np.full((rows * columns, rows * columns), number(0.0), dtype=object)
    for i in range(rows):
        for j in range(columns):
            for a in range(kernel.shape[0]):
                for b in range(kernel.shape[1]):
                    source = (i - a + kernel.shape[0] // 2) % rows, (j - b + kernel.shape[1] // 2) % columns
                    K[i * columns + j, source[0] * columns + source[1]] += number(float(kernel[a, b]))
    return K


def crop(kernel: Array, shape: tuple[int, int], number: Number) -> Array:
    """C as a matrix: the pixels whose value under the convolution takes none from the opposite side."""
    kept = []
    for i in range(shape[0]):
        for j in range(shape[1]):
            sources = [
                (i - a + kernel.shape[0] // 2, j - b + kernel.shape[1] // 2)
                for a in range(kernel.shape[0])
                for b in range(kernel.shape[1])
            ]
            if all(0 <= r < shape[0] and 0 <= c < shape[1] for r, c in sources):
                kept.append(i * shape[1] + j)
    C = np.full((len(kept), shape[0] * shape[1]), number(0.0), dtype=object)
    for row, pixel in enumerate(kept):
        C[row, pixel] = number(1.0)
    return C


def _step(v: list[Any], filters: Array, number: Number) -> list[Any]:
    half, length = len(v) // 2, filters.shape[1]
    bands = []
    for taps in filters:
        bands.append(
            [
                sum((number(float(taps[t])) * v[(2 * i + t) % (2 * half)] for t in range(length)), number(0.0))
                for i in range(half)
            ]
        )
    return [*bands[0], *v[2 * half :], *bands[1]]


def analysis(z: Array, filters: Array, levels: int, number: Number) -> Array:
    """Wz."""
    x = z.copy()
    rows, columns = x.shape
    for _ in range(levels):
        for i in range(rows):
            x[i, :columns] = _step(list(x[i, :columns]), filters, number)
        for j in range(columns):
            x[:rows, j] = _step(list(x[:rows, j]), filters, number)
        rows, columns = (rows + 1) // 2, (columns + 1) // 2
    return x


def wavelet(filters: Array, shape: tuple[int, int], levels: int, number: Number) -> Array:
    """W as a matrix."""
    size = shape[0] * shape[1]
    columns = []
    for pixel in range(size):
        unit = np.full(size, number(0.0), dtype=object)
        unit[pixel] = number(1.0)
        columns.append(analysis(unit.reshape(shape), filters, levels, number).ravel())
    return np.stack(columns, axis=1)


def differences(shape: tuple[int, int], number: Number) -> Array:
    """D as a matrix: down the columns, then along the rows, to the next pixel modulo the shape."""
    rows, columns = shape
    D = np.full((2 * rows * columns, rows * columns), number(0.0), dtype=object)
    for i in range(rows):
        for j in range(columns):
            pixel = i * columns + j
            nexts = ((i + 1) % rows) * columns + j, i * columns + (j + 1) % columns
            for which, following in enumerate(nexts):
                D[which * rows * columns + pixel, following] += number(1.0)
                D[which * rows * columns + pixel, pixel] -= number(1.0)
    return D


def blurs(problem: dict[str, Array], shape: tuple[int, int], number: Number) -> tuple[Array, Array]:
    """B and M of one image as matrices."""
    kernels = problem["kernel"] if problem["kernel"].ndim == 3 else problem["kernel"][None]
    K = [convolution(kernel, shape, number) for kernel in kernels]
    C = identity(shape[0] * shape[1], number) if problem["periodic"][0] else crop(kernels[0], shape, number)
    if "weights" in problem:
        layers = exactly(problem["weights"].reshape(len(K), -1), number)
        B = sum(w[:, None] * (C @ k) for w, k in zip(layers, K, strict=True))
        scales = exactly(problem["scales"], number)
        M = sum(c * (k.T @ k) for c, k in zip(scales, K, strict=True))
    else:
        B, M = C @ K[0], K[0].T @ K[0]
    if "mask" in problem:
        B = exactly(problem["mask"].ravel(), number)[:, None] * B
    return B, M


def operators(problem: dict[str, Array], shape: tuple[int, int], number: Number) -> tuple[Array, Array, Array]:
    """B, M, and W or D of one image as matrices."""
    transform = (
        wavelet(problem["filters"], shape, int(problem["levels"][0]), number)
        if "filters" in problem
        else differences(shape, number)
    )
    return *blurs(problem, shape, number), transform


def identity(size: int, number: Number) -> Array:
    """I."""
    matrix = np.full((size, size), number(0.0), dtype=object)
    np.fill_diagonal(matrix, number(1.0))
    return matrix


def change(problem: dict[str, Array], weights: dict[str, Array]) -> Any:
    """V of one image at the stored iterate, as an mpf of ``DIGITS`` digits."""
    with mpmath.workdps(DIGITS):
        return (_sparse if "filters" in problem else _variation)(problem, weights)


def _variation(problem: dict[str, Array], weights: dict[str, Array]) -> Any:
    number = mpmath.mpf
    B, M, D = operators(problem, weights["z"].shape, number)
    y = exactly(problem["observed"].ravel(), number)
    z, x, mu = (exactly(weights[key].ravel(), number) for key in ("z", "x", "multiplier"))
    beta, radius = number(float(weights["parameters"][0])), number(float(problem["penalty"][0]))
    slope = B.T @ (B @ z - y) + D.T @ (mu + beta * (D @ z - x))
    system = mpmath.matrix((M + beta * (D.T @ D)).tolist())
    dz = np.array(list(mpmath.lu_solve(system, mpmath.matrix([-s for s in slope]))), dtype=object)
    pulled = (beta * (D @ (z + dz)) + mu).reshape(2, -1)
    sizes = [mpmath.sqrt(a * a + b * b) for a, b in pulled.T]
    after = np.array(
        [(v - v * min(number(1), radius / n) if n else v) / beta for v, n in zip(pulled.T, sizes, strict=True)]
    )
    dx = after.T.ravel() - x
    dmu = beta * (D @ (z + dz) - after.T.ravel())
    return dz @ ((M - B.T @ B) @ dz) + beta * (dx @ dx) + dmu @ dmu / beta


def _sparse(problem: dict[str, Array], weights: dict[str, Array]) -> Any:
    number = mpmath.mpf
    B, M, W = operators(problem, weights["z"].shape, number)
    y = exactly(problem["observed"].ravel(), number)
    z, x, mu = (exactly(weights[key].ravel(), number) for key in ("z", "x", "multiplier"))
    alpha, beta, gamma = exactly(weights["parameters"][:3], number)
    threshold = gamma * number(float(problem["penalty"][0]))
    slope = B.T @ (B @ z - y) + mu + beta * (z - W.T @ x)
    eye = identity(len(M), number)
    system = mpmath.matrix((alpha * M + eye).tolist())
    dz = np.array(list(mpmath.lu_solve(system, mpmath.matrix([-alpha * s for s in slope]))), dtype=object)
    moved = x + gamma * (W @ (mu + beta * (z + dz - W.T @ x)))
    after = np.array([mpmath.sign(m) * max(abs(m) - threshold, number(0.0)) for m in moved], dtype=object)
    dmu = beta * (z + dz - W.T @ after)
    S = M - B.T @ B + (1 / alpha - beta) * eye
    dx = after - x
    return dz @ (S @ dz) + dx @ dx / gamma + dmu @ dmu / beta


def distance_squared(exact: Array, computed: Array) -> Fraction:
    """‖exact - computed‖² of Fractions and floats."""
    differences = (a - Fraction(float(b)) for a, b in zip(exact.ravel(), computed.ravel(), strict=True))
    return sum((d * d for d in differences), Fraction(0))
