"""The table of a certificate."""

from __future__ import annotations

from surefoot_check.holdout.record import Point, Record
from surefoot_check.holdout.statement import HYPOTHESES, percent_below
from surefoot_check.holdout.verify import ORDER_LEVEL
from surefoot_check.text import counted

SHARES = (0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 1.0)
"""Of the held-out problems, at which the table shows the curve."""


def shown(record: Record) -> list[Point]:
    """The first point of the curve at each of ``SHARES``, and that of the rank; its last one where it ends before."""
    wanted = sorted({*(share * record.count for share in SHARES), float(record.rank)})
    first = (next((point for point in record.curve if point.problems >= problems), None) for problems in wanted)
    return list(dict.fromkeys(point for point in first if point is not None)) or [*record.curve[-1:]]


def rank(record: Record) -> str:
    """Which of the counts is that of the claim."""
    if record.iterations is not None:
        return f"count {record.rank:,} of {record.count:,}, in increasing order"
    solved = record.count - record.failures
    return f"{record.rank:,} of {record.count:,} problems must be solved, and {solved:,} are"


def advice(record: Record) -> str:
    """What would help where the certificate fails."""
    within = counted(record.limit, "iteration")
    return f"a larger gap, more iterations (these ended at {within}), another solver, or a smaller coverage"


def table(record: Record) -> str:
    """See ``HoldoutCertificate.table``."""
    lines = [f"{record.status}: {record.statement}", ""]
    if record.iterations is None:
        unsolved = f"{record.failures} of {record.count} problems are not solved"
        lines[1:1] = [f"{unsolved} within {counted(record.limit, 'iteration')}.", f"What would help: {advice(record)}."]
    header = ("iterations", "solved", "coverage at least", "at all counts at once")
    rows: list[tuple[str, ...]] = [header]
    for point in shown(record):
        solved = f"{point.problems} of {record.count}"
        rows.append(
            (f"{point.iterations:,}", solved, percent_below(point.pointwise), percent_below(point.simultaneous))
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    if record.curve:
        lines += ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows] + [""]
    lines += ["It rests on:", *(f"- {text}" for text in HYPOTHESES)]
    order = f"The order of the held-out problems: p = {record.order_test:.3g}"
    if record.order_test < ORDER_LEVEL:
        order += "; their counts depend on it, so that they are not exchangeable: do not rely on the statement"
    return "\n".join([*lines, "", f"{order}."])
