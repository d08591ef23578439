"""Claim L2: rigorous bounds of the gap of each stored solution, against what the certificate counts as solved.

F* lies between F(ŵ) - gap(ŵ) and F(ŵ) of the stored witness ŵ, which is never trusted: gap bounds are those of
``step_sizes.batches``, for least squares through the witness's stationarity, else by feasible dual points.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..arrays import FormatError, digest, numbers, read_safetensors
from ..rigor.bounds import Array, Level, down, up
from ..step_sizes.batches import LARGEST, Batch
from ..step_sizes.enclosures import load_problem
from ..text import counted
from ..verdict import Outcome, Report
from .record import MOST_BYTES, PROBLEMS, SOLUTIONS, Record

EXAMPLES = 5
"""Problems that a line names."""


def check_solutions(
    directory: Path, record: Record, solved: np.ndarray, level: Level, report: Report
) -> dict[str, str]:
    """Add the line of claim L2; returns the digests of the arrays. ``solved`` (n,) says of which problems there is a solution."""
    arrays = read_safetensors(directory / PROBLEMS, MOST_BYTES)
    stored = read_safetensors(directory / SOLUTIONS, MOST_BYTES)
    batch = load_problem(record.kind, arrays, level)
    if (batch.count, batch.rows, batch.columns) != (record.count, record.rows, record.columns):
        raise FormatError(f"{PROBLEMS}: the sizes are not those of the certificate")
    if stored.keys() != {"x"}:
        raise FormatError(f"{SOLUTIONS}: holds {', '.join(sorted(stored)) or 'nothing'} instead of x")
    x = numbers(stored["x"], f"{SOLUTIONS}: x", LARGEST, 2)
    if x.shape != (batch.count, batch.columns) or x[~solved].any():
        raise FormatError(f"{SOLUTIONS}: x must have a row for each problem, of zeros where it is not solved")
    _decide(batch, x, record, np.flatnonzero(solved).tolist(), report)
    hashes = {f"problems/{name}": digest(array) for name, array in arrays.items()}
    return hashes | {"solutions/x": digest(x)}


def _decide(batch: Batch, x: Array, record: Record, solved: list[int], report: Report) -> None:
    outcomes: dict[Outcome, list[int]] = {outcome: [] for outcome in Outcome}
    worst = 0.0
    for p in solved:
        outcome, share = _gap(batch, p, x[p], record.gap, record.relative_to)
        outcomes[outcome].append(p)
        worst = max(worst, share)
    accepted = len(outcomes[Outcome.ACCEPT])
    if accepted == len(solved):
        name = f"the gaps of {counted(accepted, 'stored solution')} are at most what the certificate counts as solved"
        report.add("L2", name, Outcome.ACCEPT, f"largest: {worst:.6g} of it")
    for outcome, what in ((Outcome.REJECT, "is too large"), (Outcome.UNDECIDED, "cannot be bounded well enough")):
        if some := outcomes[outcome]:
            names = ", ".join(str(p) for p in some[:EXAMPLES]) + (", …" if len(some) > EXAMPLES else "")
            report.add("L2", f"the gap of {counted(len(some), 'stored solution')} {what}: problem {names}", outcome)


def _gap(batch: Batch, p: int, x: Array, gap: float, relative_to: str) -> tuple[Outcome, float]:
    """The outcome of one problem, and a bound of its gap as a share of the gap that is allowed."""
    least, most = allowed(batch, p, gap, relative_to)
    bound = batch.gap_bound(p, x)
    if bound <= least:
        return Outcome.ACCEPT, up(bound / least) if least > 0.0 else 0.0
    below = down(batch.objective(p, x)[0] - batch.objective(p, batch.optimum[p])[1])
    return (Outcome.REJECT if below > most else Outcome.UNDECIDED), bound


def allowed(batch: Batch, p: int, gap: float, relative_to: str) -> tuple[float, float]:
    """Enclosure of the gap that problem p may have."""
    if relative_to == "nothing":
        return gap, gap
    low, high = batch.objective(p, batch.optimum[p])
    low = max(0.0, down(low - batch.gap_bound(p, batch.optimum[p])))
    if relative_to == "start":
        first = batch.objective(p, np.zeros(batch.columns))
        low, high = max(0.0, down(first[0] - high)), up(first[1] - low)
    return max(0.0, down(gap * low)), up(gap * high)
