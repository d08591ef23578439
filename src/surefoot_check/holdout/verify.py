"""The checks of a holdout certificate (docs/theorems/holdout.md).

L1: everything that is published follows from the recorded counts, by binomial tails in ball arithmetic. L2, where problems and
solutions are stored: each solution has the gap that its count is the count to.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..arrays import FormatError, digest
from ..rigor.bounds import Level
from ..text import chance, counted
from ..verdict import Outcome, Report, digits
from . import binomial
from .curve import band_rank, band_ranks, points
from .ranks import order_test
from .record import PROBLEMS, SOLUTIONS, Record, read_counts
from .solutions import check_solutions
from .statement import SAID, percent, statement

ORDER_LEVEL = 0.01
"""An order test below it is said."""


def verify(directory: Path, certificate: Mapping[str, object], level: Level, report: Report) -> None:
    """Check a directory of this format."""
    report.theorem = "holdout"
    record = Record.of(certificate)
    counts = read_counts(directory, record)
    hashes = {"counts/counts": digest(counts)}
    stored = [name for name in (PROBLEMS, SOLUTIONS) if os.path.lexists(directory / name)]
    if "L2" not in record.claims and stored:
        raise FormatError(f"{' and '.join(stored)} lie there, and claims do not say so")
    checks = (_rank, _iterations, _at_limit, _curve, _order)
    for check in checks:
        check(record, counts, report)
    _statement(record, report)
    if "L2" in record.claims:
        hashes |= check_solutions(directory, record, counts >= 0, level, report)
    same = hashes == record.arrays
    report.add("L1", "the arrays are those of the certificate (sha256)", Outcome.ACCEPT if same else Outcome.REJECT)
    if record.status == "fails":
        name = f"nothing is claimed of a coverage of {percent(record.coverage)}: the certificate's status is fails"
        report.add("L1", name, Outcome.REJECT, record.statement)
    _note(record, report)


def _decide(report: Report, holds: bool, name: str, detail: str = "") -> None:
    report.add("L1", name, Outcome.ACCEPT if holds else Outcome.REJECT, detail)


def _rank(record: Record, counts: np.ndarray, report: Report) -> None:
    n, r = record.count, record.rank
    tail = binomial.at_least(r, n, binomial.ball(record.coverage))
    detail = f"P(X >= {r}) = {digits(tail)} <= 1 - {record.confidence!r} for X ~ Bin({n}, {record.coverage!r})"
    sure = r == binomial.rank(n, record.coverage, record.confidence)
    _decide(report, sure, f"rank {r} of {n} is the least that gives the confidence", detail)


def _iterations(record: Record, counts: np.ndarray, report: Report) -> None:
    failures = int((counts < 0).sum())
    ordered = np.sort(counts[counts >= 0])
    k = int(ordered[record.rank - 1]) if record.rank <= len(ordered) else None
    same = (record.failures, record.iterations) == (failures, k)
    same = same and record.status == ("fails" if k is None else "holds")
    found = "is not reached within the limit" if k is None else f"is {k:,}"
    _decide(
        report, same, f"count {record.rank} of {record.count} in increasing order {found}", f"{failures} not solved"
    )


def _at_limit(record: Record, counts: np.ndarray, report: Report) -> None:
    solved = int((counts >= 0).sum())
    value = record.coverage_at_limit
    holds = _proved(value, solved, record.count, record.confidence)
    _decide(report, holds, f"the coverage at the limit of {counted(record.limit, 'iteration')}", f"{value:.9g}")


def _curve(record: Record, counts: np.ndarray, report: Report) -> None:
    published = [(point.iterations, point.problems) for point in record.curve]
    if published != points(counts):
        _decide(report, False, "the points of the curve are those of the counts")
        return
    n, ranks, known = record.count, band_ranks(record.count), dict[tuple[float, int], bool]()
    for point in record.curve:
        rank = band_rank(ranks, point.problems)
        if not _proved(point.pointwise, point.problems, n, record.confidence):
            _decide(report, False, f"the pointwise coverage at {counted(point.iterations, 'iteration')}")
            return
        key = point.simultaneous, rank
        if key not in known:
            known[key] = _proved(point.simultaneous, rank, n, record.confidence, len(ranks))
        if not known[key]:
            _decide(report, False, f"the simultaneous coverage at {counted(point.iterations, 'iteration')}")
            return
    _decide(report, True, f"the curve of {counted(len(published), 'point')}, pointwise and for all at once")


def _order(record: Record, counts: np.ndarray, report: Report) -> None:
    value = order_test(counts)
    same = abs(record.order_test - value) <= binomial.CLOSE * value
    _decide(report, same, "the order test, of the first half against the second", f"p = {value:.6g}")


def _statement(record: Record, report: Report) -> None:
    made = statement(**{name: getattr(record, name) for name in SAID})
    _decide(report, made == record.statement, "the statement is that of the numbers")


def _proved(value: float, m: int, n: int, confidence: float, parts: int = 1) -> bool:
    """Whether a published coverage is proved, and the largest that is."""
    failing = binomial.shared_failing(confidence, parts)
    return binomial.is_proved(value, m, n, failing) and binomial.is_largest(value, m, n, failing)


def _note(record: Record, report: Report) -> None:
    """What an accepted certificate does not say."""
    report.notes.append(record.statement)
    report.notes.append(
        "hypotheses that are not checked, as no counts can show them: problems drawn exchangeably, a solver chosen without "
        "them, that treats each by itself"
    )
    if record.order_test < ORDER_LEVEL:
        report.notes.append(
            f"the counts depend on the order of the problems (p = {chance(record.order_test)}): do not rely on the statement"
        )
    if "L2" not in record.claims:
        report.notes.append("that the counts are those of the solver is not checked: no solutions are stored")
    else:
        report.notes.append(
            "L2 shows that each solution is as good as its count says, not that the solver has it after so many iterations"
        )
