"""What a certificate says, in words: made of its numbers, so that the text cannot say more than they do."""

from __future__ import annotations

from decimal import ROUND_FLOOR, Decimal
from inspect import signature

from ..text import counted

HYPOTHESES = (
    "The held-out problems and those that the statement is about are drawn independently from one distribution, or are the "
    "beginning of an infinite sequence whose order says nothing: they are exchangeable.",
    "The solver, its settings and the limit were chosen without the held-out problems.",
    "The solver treats every problem by itself: what it does on one does not depend on the others that are solved with it.",
)
"""What nobody can prove from counts. The order test and a shift test can only show that the first one fails."""
GAPS = {
    "optimum": "until F - F* is at most {gap} F*",
    "start": "until F - F* is at most {gap} (F(0) - F*)",
    "nothing": "until F - F* is at most {gap}",
    "user": "by its own count (gap {gap})",
}
"""What a gap is relative to."""
DIGITS = 16
"""Of a sha256 that are said."""


def percent(share: float) -> str:
    """Exactly, as the float is written in decimal: 0.99 is "99 %"."""
    return f"{(100 * Decimal(repr(share))).normalize():f} %"


def percent_below(share: float) -> str:
    """Rounded down to four decimals."""
    return f"{(100 * Decimal(share)).quantize(Decimal('0.0001'), ROUND_FLOOR).normalize():f} %"


def statement(
    *,
    count: int,
    kind: str,
    rows: int | None,
    columns: int | None,
    solver: str,
    solver_sha256: str | None,
    gap: float,
    relative_to: str,
    limit: int,
    coverage: float,
    confidence: float,
    iterations: int | None,
    coverage_at_limit: float,
) -> str:
    """What holds: the statement that was asked for, or the coverage that is proved at the limit, where it does not."""
    size = "" if rows is None or columns is None else f" of {rows} x {columns}"
    made = "" if solver_sha256 is None else f" (sha256 {solver_sha256[:DIGITS]}…)"
    drawn = f"{counted(count, 'held-out problem')} ({kind}{size})"
    needed = f"of {solver}{made} {GAPS[relative_to].format(gap=repr(gap))}"
    if not coverage_at_limit:
        return (
            f"Nothing is proved: none of the {drawn} is solved within {counted(limit, 'iteration')} {needed}. "
            f"{percent(coverage)} were asked for, with confidence {percent(confidence)}."
        )
    if iterations is not None:
        share, within, end = percent(coverage), iterations, f"Counts end at {counted(limit, 'iteration')}."
    else:
        share, within = percent_below(coverage_at_limit), limit
        end = f"Counts end there, and {percent(coverage)} were asked for."
    return (
        f"With confidence {percent(confidence)} over the draw of the {drawn}, at least {share} of the problems of their "
        f"distribution need at most {counted(within, 'iteration')} {needed}. {end}"
    )


SAID = tuple(signature(statement).parameters)
"""The fields of a record that the statement is made of."""
