"""Convex quadratic programs over a product of simplices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surefoot_check.rigor.bounds import Array

RIDGE = 1e-13
"""Of the scaled Hessian of a face: along directions without curvature the step then ends at the boundary."""


def minimise(hessian: Array, slope: Array, w: Array) -> Array:
    """A minimiser (K, m) of slope·δ + ½δᵀHδ over δ = w' - w, w' in the product of K simplices, for w in it.

    Newton's method on a face, as in Wolfe's algorithm for a point of least norm: where a step leaves the simplices it ends at
    their boundary and the face loses a vertex; at a minimiser over its face, the vertex of the steepest descent of all joins it.
    The quadratic never increases; rounding is the only error of the last point, which a second call from there removes.

    Args:
        hessian: (K m, K m), symmetric and positive semidefinite.
        slope: (K, m), the gradient at w.
        w: (K, m), the start.
    """
    blocks, m = w.shape
    point, gradient = w.reshape(-1).copy(), slope.reshape(-1).copy()
    free = point > 0.0
    for _ in range(4 * point.size):
        while _newton(hessian, point, gradient, free, m):
            pass
        by_block = gradient.reshape(blocks, m)
        descent = (point.reshape(blocks, m) * by_block).sum(1) - by_block.min(1)
        worst = int(descent.argmax())
        vertex = worst * m + int(by_block[worst].argmin())
        if free[vertex] or not descent[worst] > 0.0:
            break
        free[vertex] = True
    result = point.reshape(blocks, m).clip(min=0.0)
    return result / result.sum(1, keepdims=True)


def _newton(hessian: Array, point: Array, gradient: Array, free: NDArray[np.bool_], m: int) -> bool:
    """A step to the minimiser over the face of the ``free`` vertices, in place; whether it lost a vertex on its way."""
    pivots = np.where(free, point, -1.0).reshape(-1, m).argmax(1) + m * np.arange(len(point) // m)
    moved = free.copy()
    moved[pivots] = False
    index = moved.nonzero()[0]
    if not len(index):
        return False
    against = pivots[index // m]
    # the directions e_i - e_pivot span the face
    reduced = (hessian[index] - hessian[against])[:, index] - (hessian[index] - hessian[against])[:, against]
    slope = gradient[index] - gradient[against]
    curvatures = reduced.diagonal()
    scale = np.sqrt(np.maximum(curvatures, 1e-20 * curvatures.max(initial=0.0) or 1.0))
    scaled = reduced / scale[:, None] / scale + RIDGE * np.eye(len(index))
    step = np.zeros_like(point)
    step[index] = -np.linalg.lstsq(scaled, slope / scale, rcond=None)[0] / scale
    np.subtract.at(step, against, step[index])
    shrinking = step < 0.0
    ratios = np.full_like(point, np.inf)
    with np.errstate(over="ignore"):  # by steps that hardly shrink
        ratios[shrinking] = point[shrinking] / -step[shrinking]
    first = int(ratios.argmin())
    length = min(1.0, ratios[first])
    point += length * step
    gradient += length * (hessian @ step)
    if ratios[first] > 1.0:
        return False
    point[first] = 0.0
    free[first] = False
    return True
