"""The compiled solver on each problem of a batch, in units in which the entries of M, Y and x are at most 1."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from .._learning.proved_decrease import guaranteed
from .._learning.solve_status import SolveStatus
from .._problems.lasso import Lasso

MOST = 1e300
"""Of λ in those units, where the minimiser is 0 from λ = b on."""


@dataclass(frozen=True)
class Runs:
    """All problems; T is the largest number of iterations that one took, and a problem that is done stays where it is.

    Attributes:
        x: (N, d).
        values: F_p(x_t) (T+1, N).
        spent: products (T+1, N).
        bounds: of F_p(x_t) - F_p* (T+1, N).
        gap: bound at x (N,).
        made, accepted: proposals (N,).
        statuses: how each ended.
    """

    x: np.ndarray
    values: np.ndarray
    spent: np.ndarray
    bounds: np.ndarray
    gap: np.ndarray
    made: np.ndarray
    accepted: np.ndarray
    statuses: tuple[SolveStatus, ...]


@np.errstate(over="ignore", under="ignore")
def solve_each(
    problems: Lasso, start: np.ndarray, policy: tuple[float, float, float], iterations: int, tolerance: float
) -> Runs:
    """From ``start`` (N, d) float64, for at most ``iterations`` iterations each; ``policy`` as in ``compiled.solve``."""
    from . import compiled

    count = problems.count
    M, Y = problems.M.detach().cpu(), problems.Y.detach().cpu().double().numpy()
    lam, shared = problems.lam.tolist(), M.stride(0) == 0
    x, columns = np.empty_like(start), np.empty((problems.columns, problems.rows))
    values, spent = np.empty((count, iterations + 1)), np.empty((count, iterations + 1))
    constants = np.zeros((count, iterations))
    taken, how, made, accepted = np.empty((4, count), np.int64)
    gap, levels = np.empty((2, count))
    units = np.empty(count, np.int64)
    exponent = 0
    with _worker() as (pool, stop):
        for p in range(count):
            if p == 0 or not shared:
                exponent = _exponent(max(abs(float(end)) for end in torch.aminmax(M[p])))
                half = -exponent // 2  # the power itself may overflow
                torch.mul(M[p].T.double(), math.ldexp(1.0, half), out=torch.from_numpy(columns))
                columns *= math.ldexp(1.0, -exponent - half)
            units[p] = max(_exponent(float(np.abs(Y[p]).max())), exponent + _exponent(float(np.abs(start[p]).max())))
            x[p] = np.ldexp(start[p], exponent - units[p])
            levels[p] = min(np.ldexp(lam[p], -exponent - units[p]), MOST)
            task = (
                columns,
                np.ldexp(Y[p], -units[p]),
                levels[p],
                x[p],
                *policy,
                tolerance,
                values[p],
                constants[p],
                spent[p],
            )
            taken[p], how[p], gap[p], made[p], accepted[p] = pool.submit(compiled.solve, *task, stop).result()
            x[p] = np.ldexp(x[p], units[p] - exponent)
    most = int(taken.max())
    for rows in (values, spent):
        for p in range(count):
            rows[p, taken[p] + 1 : most + 1] = rows[p, taken[p]]
    rounding = (problems.rows + problems.columns + 32) * np.finfo(np.float64).eps
    first = torch.from_numpy(values[:, 0] * (1.0 + rounding))
    radius = 2.0 * first / torch.from_numpy(levels)
    bounds = guaranteed(first, torch.from_numpy(constants[:, :most].T), radius).numpy()
    return Runs(
        x=x,
        values=np.ldexp(values[:, : most + 1].T, 2 * units),
        spent=spent[:, : most + 1].T.copy(),
        bounds=_scaled_up(bounds, 2 * units),
        gap=_scaled_up(gap, 2 * units),
        made=made,
        accepted=accepted,
        statuses=tuple(
            {compiled.SOLVED: SolveStatus.SOLVED, compiled.STALLED: SolveStatus.STALLED}.get(
                end, SolveStatus.ITERATIONS
            )
            for end in how.tolist()
        ),
    )


@contextmanager
def _worker() -> Iterator[tuple[ThreadPoolExecutor, np.ndarray]]:
    """A thread, so that this one hears of Ctrl-C, and what tells it to stop."""
    stop = np.zeros(1, np.bool_)
    with ThreadPoolExecutor(1) as pool:
        try:
            yield pool, stop
        except BaseException:
            stop[0] = True
            raise


def _scaled_up(values: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """``values`` · 2^``exponents``, not rounded down where that underflows."""
    return np.where(values > 0.0, np.nextafter(np.ldexp(values, exponents), np.inf), values)


def _exponent(size: float) -> int:
    """e with ``size`` < 2^e ≤ 2·``size``; far below every other for 0."""
    return math.frexp(size)[1] if size > 0.0 else -3000
