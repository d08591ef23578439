"""Reduction of rows to a triangle: rows a second against XᵀX alone, and accuracy against exact integers."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import mpmath
import numpy as np
import torch
from report import Report, parser
from torch import Tensor

import surefoot as sf

SIZES = ((10, 2, 2_000_000), (50, 10, 400_000), (90, 10, 250_000), (190, 10, 120_000))
"""Columns of X, columns of Y, rows."""
ACCURACY = ((1_000_000, 100), (10_000_000, 700_000))
"""Rows, and rows of a block."""
SMOKE = ((10, 2, 2_000),), ((2_000, 500),)
"""Both, tiny."""
INPUTS, OUTPUTS = 10, 2


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables."""
    report = Report(parser(__doc__), arguments)
    sizes, blocks = SMOKE if report.smoke else (SIZES, ACCURACY)
    report.table(
        "Reduction of rows in memory: processor seconds",
        ("n + m", "rows", "rows a second", "XᵀX alone"),
        [rates(*size) for size in sizes],
    )
    report.table(
        "Relative errors against exact integers, n = 10, m = 2",
        ("rows", "blocks", "K", "μ", "minimiser", "optimal value"),
        [accuracy(*block) for block in blocks],
    )


def rates(n: int, m: int, rows: int) -> tuple[int, int, float, float]:
    """n + m, rows, and rows a second of the reduction and of the product [X Y]ᵀ[X Y]."""
    both = torch.randn(rows, n + m, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    start = time.process_time()
    sf.SquaredLoss(both[:, :n], both[:, n:])
    middle = time.process_time()
    both.T @ both
    return n + m, rows, rows / (middle - start), rows / (time.process_time() - middle)


def accuracy(rows: int, block: int) -> tuple[int, int, float, float, float, float]:
    """Rows, blocks, and the errors of K, μ, the minimiser and the optimal value."""
    gram = np.zeros((INPUTS + OUTPUTS,) * 2)

    def blocks() -> Iterator[tuple[Tensor, Tensor]]:
        generator = np.random.default_rng(0)
        mixture = generator.integers(-1, 2, (INPUTS, OUTPUTS))
        for start in range(0, rows, block):
            count = min(block, rows - start)
            X = generator.integers(-3, 4, (count, INPUTS)).astype(np.float64)
            X[:, 0] += 5
            X[:, 1] += X[:, 0]
            Y = X @ mixture + generator.integers(-4, 5, (count, OUTPUTS))
            both = np.hstack([X, Y])
            gram[:] += both.T @ both  # of integers below 2^53: exact
            yield torch.from_numpy(X), torch.from_numpy(Y)

    loss = sf.SquaredLoss.from_blocks(blocks())
    assert abs(gram).max() < 2.0**53
    with mpmath.workdps(50):
        exact = mpmath.matrix([[int(x) for x in row] for row in gram])
        XX, XY = exact[:INPUTS, :INPUTS], exact[:INPUTS, INPUTS:]
        spectrum = sorted(mpmath.eigsy(XX, eigvals_only=True))
        W: Any = [mpmath.lu_solve(XX, XY[:, j]) for j in range(OUTPUTS)]
        columns = range(INPUTS, INPUTS + OUTPUTS)
        optimal = sum(exact[i, i] - (XY[:, j].T * W[j])[0] for j, i in enumerate(columns)) / 2
        largest = max(abs(x) for column in W for x in column)
        apart = max(abs(float(loss.optimum[i, j]) - W[j][i]) for i in range(INPUTS) for j in range(OUTPUTS))
        errors = (
            abs(loss.smoothness - spectrum[-1]) / spectrum[-1],
            abs(loss.strong_convexity - spectrum[0]) / spectrum[0],
            apart / largest,
            abs(loss.optimal_value - optimal) / optimal,
        )
        numbers = [float(error) for error in errors]
    return rows, math.ceil(rows / block), numbers[0], numbers[1], numbers[2], numbers[3]


if __name__ == "__main__":
    main()
