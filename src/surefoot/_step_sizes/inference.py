"""The iteration on small problems, compiled: a tenth of the time of one that calls PyTorch for each operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._core.validate import integer
from .._problems import Lasso, LeastSquares, Logistic, Problems
from .sectors import Table, scaled
from .smoothness import Smoothness, smoothness_of
from .unrolled import Solution

LARGEST = 1 << 22
"""Entries of all matrices up to which the compiled products keep up with those of BLAS."""
TABLE = 2_000_000
"""What a table takes at least, in tenths of a nanosecond."""
SMALL = 1 << 20
"""Products of an iteration in the layers of a deeper network up to which compiled code keeps up with BLAS."""


def admits(weights: Sequence[Tensor], problems: Problems) -> bool:
    """Whether ``solve`` is for these finite weights and problems."""
    return (
        (len(weights) in (2, 3) or problems.count * problems.columns * _entries(weights) <= SMALL)
        and type(problems) in (LeastSquares, Lasso, Logistic)
        and problems.M.device.type == "cpu"
        and problems.M.numel() <= LARGEST
    )


def solve(
    weights: Sequence[Tensor],
    limits: tuple[float, float],
    problems: Problems,
    iterations: int,
    start: Any,
    smoothness: Smoothness,
    *,
    trajectory: bool,
) -> Solution:
    """As ``unrolled.solve`` in float64, rounded to the dtype of the problems at the end."""
    from .inference_numba import iterate

    T = integer("iterations", iterations, 0)
    beta = smoothness_of(problems, smoothness)
    first = problems.start(start)
    count, dtype = problems.count, problems.M.dtype
    xs = np.zeros((T + 1 if trajectory else 1, count, problems.columns))
    xs[0] = first.numpy()
    one_for_all = problems.M.stride(0) == 0
    M = np.ascontiguousarray((problems.M[:1] if one_for_all else problems.M).numpy(), dtype=np.float64)
    none = np.zeros(count)
    lam, l2 = (_numbers(getattr(problems, name)) if hasattr(problems, name) else none for name in ("lam", "l2"))
    network = _network(weights, count * problems.columns * T)
    arguments = (_numbers(problems.Y), isinstance(problems, Logistic), lam, l2, _numbers(1.0 / beta))
    measured = iterate(M, M.transpose(0, 2, 1).copy(), *arguments, xs, *network, *limits, T)
    problems.products += 2 * T + 1
    objectives, lowest, highest, iterates = (torch.from_numpy(values).to(dtype) for values in (*measured, xs))
    return Solution(
        solution=iterates[-1],
        objectives=objectives,
        lowest=lowest,
        highest=highest,
        smoothness=beta,
        products=2 * T + 1,
        trajectory=iterates if trajectory else None,
    )


def _network(weights: Sequence[Tensor], points: int) -> tuple[Any, Any, Any, Any, Any, float]:
    """What the kernel takes from ``entries`` to ``factor``: the table where there is one, unless it takes longer than the layers
    at so many points."""
    triple = _two_hidden_layers(weights)
    point = _entries(weights) + 10 * sum(W.shape[0] for W in weights)  # measured, as TABLE
    if triple is not None and points * point > TABLE + 180 * triple[1].numel():
        table = Table(*triple)
        return np.empty(0), np.array([2, 1]), *table.arrays, table.factor
    layers, exponents = zip(*(scaled(W) for W in weights), strict=True)
    widths = np.array([2, *(len(W) for W in weights)])
    none = np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, 2))
    return np.concatenate([W.ravel() for W in layers]), widths, *none, 2.0 ** min(sum(exponents) / 2, 1023.0)


def _two_hidden_layers(weights: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor] | None:
    """The same network with two hidden layers, if it has one or two: of one, the first passes x = relu(x) - relu(-x), and g."""
    if len(weights) == 3:
        return weights[0], weights[1], weights[2]
    if len(weights) == 2:
        signs = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], dtype=weights[0].dtype)
        return signs, weights[0] @ signs.T, weights[1]
    return None


def _entries(weights: Sequence[Tensor]) -> int:
    return sum(W.numel() for W in weights)


def _numbers(values: Tensor) -> np.ndarray:
    return np.ascontiguousarray(values.numpy(), dtype=np.float64)
