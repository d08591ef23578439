"""From measured quantities to a certificate: a theorem in floats, and what it takes to hold."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from surefoot_check.statement import Inequality, Schedule, Theorem

from .certificate import Certificate, CertificateStatus, Condition
from .plans import LIMIT, OWN_STEP, PLANS
from .refusals import EXTREME, SCALE


def evaluate(theorem: Theorem, base: Mapping[str, float]) -> tuple[dict[str, float], list[Inequality], Schedule]:
    """A theorem in floats: all quantities, conditions, and the schedule (empty unless every condition holds).

    Of a constant step of one's own, ``OWN_STEP`` in ``base``, that the theorem admits it is a condition, too. It is stated where
    it fails: where it holds, the obligations of the schedule are the proof.

    Raises:
        ValueError: base quantities that are missing, or so large or small that a number of the theorem overflows or vanishes.
    """
    try:
        plan = PLANS[theorem.id]
        asked = {name: step for name, step in base.items() if name == OWN_STEP}
        measured = {name: value for name, value in base.items() if name != OWN_STEP}
        quantities = {**measured, **plan.parameters(base)}
        conditions = theorem.conditions(quantities)
        if asked and plan.largest is not None and all(c.certain for c in conditions):
            limit = Inequality(LIMIT, asked[OWN_STEP], "<=", plan.largest(quantities))
            conditions += [] if limit.certain else [limit]
        schedule = plan.schedule({**quantities, **asked}) if all(c.certain for c in conditions) else []
        return {**quantities, **theorem.derived(quantities)}, conditions, schedule
    except (
        ArithmeticError,
        ValueError,
        KeyError,
    ) as error:  # a quantity that overflowed is left out of the measured ones
        raise ValueError(f"{theorem.id} cannot be evaluated in float64 ({error!r}): {EXTREME}; {SCALE}") from error


def conclude(
    theorem: Theorem,
    quantities: Mapping[str, float],
    conditions: Sequence[Condition],
    schedule: Schedule,
    *,
    problem: Mapping[str, Any],
    arrays: Mapping[str, str],
    optimal_value: float,
    suggestion: str,
) -> Certificate:
    """The certificate of a theorem as evaluated: it holds if every condition does, and every number that it publishes is usable.

    Args:
        theorem: the statement.
        quantities: as ``evaluate`` gives them; the sizes in ``problem`` are left out.
        conditions, schedule: the hypotheses and what follows where all hold.
        problem: kind of the loss, and the sizes.
        arrays: see ``digests``.
        optimal_value: ℓ*.
        suggestion: what would make it hold; dropped where it does.
    """
    if all(condition.holds for condition in conditions):
        unusable = [_impossible(what) for what in _unusable(theorem, quantities, schedule, optimal_value)]
        if unusable:
            conditions, schedule, suggestion = [*conditions, *unusable], [], f"{EXTREME}: {SCALE}"
    holds = all(condition.holds for condition in conditions)
    return Certificate(
        system=theorem.id.split("/")[0],
        theorem=theorem.id,
        version=theorem.version,
        status=CertificateStatus.HOLDS if holds else CertificateStatus.FAILS,
        conditions=tuple(conditions),
        quantities={name: float(value) for name, value in quantities.items() if name not in problem},
        schedule=tuple(schedule),
        optimal_value=optimal_value,
        rule=theorem.rule,
        suggestion="" if holds else suggestion,
        problem=problem,
        arrays=arrays,
        claims=theorem.claims,
    )


def _unusable(
    theorem: Theorem, quantities: Mapping[str, float], schedule: Schedule, optimal_value: float
) -> Iterator[str]:
    """What a published number must be and is not: finite, and of gaps and steps positive."""
    numbers = {**quantities, "optimal_value": optimal_value}
    yield from (f"{name} is a finite number" for name, value in numbers.items() if not math.isfinite(value))
    if not schedule:
        yield "there is a schedule"
    for index, segment in enumerate(schedule):
        where = f"segment {index} of the schedule"
        if not (0.0 <= segment.level < math.inf and 0.0 <= segment.decrease < 1.0 and 0.0 <= segment.step < math.inf):
            yield f"{where}: its gap, decrease and step are finite, not negative, and the decrease is below 1"
            return
        if segment.level < sys.float_info.min and schedule[0].level > 0.0:
            yield f"{where}: its gap does not vanish"
            return
        if theorem.positive_steps and segment.level > 0.0 and segment.step == 0.0:
            yield f"{where}: its step is positive"
            return


def _impossible(name: str) -> Condition:
    return Condition(name, 0.0, ">", 0.0, False, None)
