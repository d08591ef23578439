"""What a certificate says, in words: made of its numbers, so that the text cannot say more than they do."""

from __future__ import annotations

from decimal import ROUND_FLOOR, Decimal

from ..text import counted

HYPOTHESES = (
    "The held-out problems and those that the statement is about are drawn exchangeably: independently from one distribution, or "
    "so that their order says nothing.",
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


def percent(share: float) -> str:
    """Exactly, as the float is written in decimal: 0.99 is "99 %"."""
    return f"{(100 * Decimal(repr(share))).normalize():f} %"


def percent_below(share: float) -> str:
    """Rounded down to four decimals."""
    return f"{(100 * Decimal(share)).quantize(Decimal('0.0001'), ROUND_FLOOR).normalize():f} %"


def statement(
    *,
    problems: int,
    solver: str,
    gap: float,
    relative_to: str,
    limit: int,
    coverage: float,
    confidence: float,
    iterations: int | None,
    coverage_at_limit: float,
) -> str:
    """What holds: the statement that was asked for, or the coverage that is proved at the limit, where it does not."""
    reach = GAPS[relative_to].format(gap=repr(gap))
    beginning = (
        f"With confidence {percent(confidence)} over the draw of the {counted(problems, 'held-out problem')}: at least "
    )
    if iterations is not None:
        share, within, rest = percent(coverage), iterations, ""
    else:
        share, within = percent_below(coverage_at_limit), limit
        rest = f" This is the limit, and less than the {percent(coverage)} that were asked for."
    return (
        f"{beginning}{share} of the problems of their distribution need at most {counted(within, 'iteration')} of {solver} "
        f"{reach}.{rest}"
    )
