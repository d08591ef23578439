"""Numbers over the repeats of a run; ``None`` is what a table has where there is no finite one."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

import torch


def median(values: Iterable[float | None]) -> float | None:
    """The median, ``None`` counting as infinite; ``None`` where it is infinite."""
    value = float(statistics.median(math.inf if value is None else value for value in values))
    return value if math.isfinite(value) else None


def mean(values: Sequence[float]) -> float | None:
    """The mean, ``None`` where a value is infinite."""
    return sum(values) / len(values) if all(map(math.isfinite, values)) else None


def deviation(values: Sequence[float]) -> float | None:
    """The standard deviation (of the repeats themselves, not an estimate), ``None`` where a value is infinite."""
    centre = mean(values)
    return None if centre is None else math.sqrt(sum((v - centre) ** 2 for v in values) / len(values))


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's; ties share the mean rank; 0 where one side is constant."""

    def ranks(values: Sequence[float]) -> list[float]:
        return [sum(v < value for v in values) + 0.5 * (sum(v == value for v in values) - 1) for value in values]

    a, b = torch.tensor(ranks(x), dtype=torch.float64), torch.tensor(ranks(y), dtype=torch.float64)
    a, b = a - a.mean(), b - b.mean()
    size = float(a.norm() * b.norm())
    return float(a @ b) / size if size > 0.0 else 0.0
