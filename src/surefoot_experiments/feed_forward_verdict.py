"""What the draws say of the targets that a prototype set."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .feed_forward_cases import Kind
from .feed_forward_runs import Draw, Fit
from .result import Finding
from .summaries import median

RATIO = 1.5
"""A count may be so many times the largest of the targets."""
RADIUS = 0.01
"""Largest distance to the fit, relative to the norm of the weights."""
LOOSE = 20.0
"""A guarantee may be so many times what floor steps take."""
Found = Sequence[tuple[Kind, list[Draw]]]


def fit_findings(found: Found) -> tuple[Finding, ...]:
    """Of training without a finish, and with one."""
    draws = [draw for _, of in found for draw in of]
    runs = [draw for kind, of in found if kind.descends for draw in of if draw.plain is not None]
    loose = [draw.looseness for draw in runs if draw.looseness is not None]
    kept = [draw for draw in runs if draw.violations == 0 and _within(draw)]
    return (
        _early(
            "A fit of a network without kinks is guaranteed by the step at which it was with a prototype.",
            [(kind, of) for kind, of in found if not kind.kinked],
            lambda draw: draw.plain,
        ),
        _early("With the finish every network's is.", found, lambda draw: draw.finished),
        _few(found),
        _near([draw.plain for draw in draws] + [draw.finished for draw in draws]),
        _accepted([draw.plain for draw in draws] + [draw.finished for draw in draws]),
        Finding(
            "Descent from there keeps what is guaranteed.",
            f"{len(kept)} of {len(runs)} runs, with floor steps and with certified-bb"
            if runs
            else "none was descended from",
            len(kept) == len(runs) if runs else None,
            "Every inequality is checked at every step.",
        ),
        Finding(
            "Of floor steps not many times too many are guaranteed.",
            f"{min(loose):.1f} to {max(loose):.1f} times those taken" if loose else "none was descended from",
            max(loose) <= LOOSE if loose else None,
            f"At most {LOOSE:g} times.",
        ),
    )


def finish_findings(found: Found) -> tuple[Finding, ...]:
    """Of training with a finish alone."""
    fits = [draw.finished for _, of in found for draw in of]
    return (
        _early(
            "With the finish a fit is guaranteed by the step at which it was with a prototype.",
            found,
            lambda draw: draw.finished,
        ),
        _near(fits),
        _accepted(fits),
    )


def _within(draw: Draw) -> bool:
    assert draw.plain is not None
    return all(count is not None and count <= draw.plain.guaranteed for count in (draw.floor, draw.certified))


def _early(claim: str, found: Found, of: Callable[[Draw], Fit | None]) -> Finding:
    late: list[str] = []
    for kind, draws in found:
        steps = [None if fit is None else fit.step for fit in map(of, draws)]
        if (median(steps) or math.inf) > kind.latest:
            late.append(kind.label)
    return Finding(
        claim,
        f"{len(found) - len(late)} of {len(found)} networks, in the median; late: {'; '.join(late) or 'none'}",
        not late,
        "The latest step of its seeds.",
    )


def _few(found: Found) -> Finding:
    limited = [(kind, kind.most, draws) for kind, draws in found if kind.most is not None]
    many: list[str] = []
    for kind, most, draws in limited:
        fits = [draw.finished if kind.kinked else draw.plain for draw in draws]
        if (median(None if fit is None else fit.guaranteed for fit in fits) or math.inf) > RATIO * most:
            many.append(kind.label)
    return Finding(
        f"The guaranteed count is at most {RATIO} times the prototype's.",
        f"{len(limited) - len(many)} of {len(limited)} networks, in the median; more: {'; '.join(many) or 'none'}",
        not many,
        "The largest count of its seeds; with kinks that after the finish.",
    )


def _near(fits: Sequence[Fit | None]) -> Finding:
    radii = [fit.radius for fit in fits if fit is not None]
    return Finding(
        "The fit lies near.",
        f"within {max(radii):.2g} of the norm of the weights" if radii else "nothing was certified",
        bool(radii) and max(radii) <= RADIUS,
        f"At most {RADIUS:g} of it.",
    )


def _accepted(fits: Sequence[Fit | None]) -> Finding:
    there = [fit for fit in fits if fit is not None]
    return Finding(
        "The checker accepts every certificate.",
        f"{sum(fit.accepted for fit in there)} of {len(there)}",
        all(fit.accepted for fit in there) if there else None,
        "At level fast, a run of one step.",
    )
