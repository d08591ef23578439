"""Claim L1: the theorem's hypotheses hold for exactly these arrays, and the published schedule follows from the theorem."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from .arrays import digest, parse_hex
from .problems import Problem
from .rigor.balls import ball
from .rigor.bounds import Array
from .run_files import Certificate
from .statement import Inequality, Segment, converted
from .text import counted
from .verdict import Line, Outcome, Report, digits

CONSISTENT = 1e-9
"""Relative agreement asked of published values that are derived from the base quantities."""
TARGETS = (1e-2, 1e-6, 1e-10)
"""Relative gaps whose guaranteed iterations are said; no check depends on them."""
MOST = 1e15
"""Iterations; larger counts are left out."""


@dataclass
class _Case:
    """A certificate with what it speaks of; ``hashes`` are those of the problem, ``q`` what the formulas take, in balls."""

    certificate: Certificate
    problem: Problem
    hashes: Mapping[str, str]
    weights: Mapping[str, Array]
    claim: str
    report: Report
    sizes: dict[str, int | bool] = field(default_factory=dict)
    needed: list[str] = field(default_factory=list)
    q: dict[str, Any] = field(default_factory=dict)

    def reject(self, name: str, detail: str = "") -> None:
        """Record a rejection."""
        self.report.add(self.claim, name, Outcome.REJECT, detail)


def check_hypotheses(
    certificate: Certificate,
    problem: Problem,
    hashes: Mapping[str, str],
    weights: Mapping[str, Array],
    report: Report,
    suffix: str = "",
) -> None:
    """Claim L1 for one certificate, step by step until something is not accepted."""
    case = _Case(certificate, problem, hashes, weights, f"L1{suffix}", report)
    for step in STEPS:
        step(case)
        if report.outcome is not Outcome.ACCEPT:
            return


def _arrays(case: _Case) -> None:
    """The arrays are those that the certificate names."""
    hashes = {f"problem/{k}": v for k, v in case.hashes.items()}
    hashes |= {f"initial/{k}": digest(v) for k, v in case.weights.items()}
    known = case.certificate.hashes
    if hashes != known:  # also where an array is too many, whatever stands for its hash
        names = hashes.keys() | known.keys()
        differing = sorted(k for k in names if (k in hashes, hashes.get(k)) != (k in known, known.get(k)))
        case.reject(f"the arrays are those of the certificate: {', '.join(differing)} differ")
    else:
        case.report.add(case.claim, "the arrays are those of the certificate (sha256)", Outcome.ACCEPT)


def _sizes(case: _Case) -> None:
    """Kind, sizes and the value that gaps are measured from are those of the arrays."""
    certificate, system = case.certificate, case.certificate.system
    sizes = case.sizes = system.enclosures.sizes(case.problem, case.weights)
    published = certificate.sizes
    if (
        certificate.kind != case.problem.kind
        or published != sizes
        or any(type(published[k]) is not type(v) for k, v in sizes.items())
    ):
        case.reject("sizes and kind of the problem", f"{published} against {sizes}")
    elif system.least is not None:
        low, high = system.least(case.problem)
        if not low <= certificate.optimal_value <= high:
            case.reject(f"gaps are measured from {low:.6g}", f"optimal value {certificate.optimal_value}")


def _base(case: _Case) -> None:
    """The base quantities lie on the safe side of their enclosures; families of one name are one line where all do."""
    certificate, system, report = case.certificate, case.certificate.system, case.report
    enclosures = system.enclosures.base_quantities(case.problem, case.weights, certificate.quantities)
    case.needed = [name for name in certificate.theorem.base if name in enclosures]
    for name in sorted(set(certificate.theorem.base) - set(case.needed) - system.optional):
        report.add(case.claim, f"base quantity {name} has no finite bound for these arrays", Outcome.UNDECIDED)
    for group, members in groupby(case.needed, lambda name: name.partition("[")[0]):
        names = list(members)
        upper = system.directions[names[0]] == "upper"
        checks = [
            _check_base(name, upper, certificate.quantities.get(name), enclosures[name], case.claim) for name in names
        ]
        if len(checks) == 1:
            report.lines.append(checks[0])
        elif all(check.outcome is Outcome.ACCEPT for check in checks):
            name = f"{group}[...] {'>=' if upper else '<='} their rigorous values"
            report.add(case.claim, name, Outcome.ACCEPT, counted(len(checks), "quantity", "quantities"))
        else:
            report.lines += [check for check in checks if check.outcome is not Outcome.ACCEPT]


def _derived(case: _Case) -> None:
    """Choices are published, derived quantities follow from their formulas, and there are no others."""
    certificate, theorem = case.certificate, case.certificate.theorem
    published = certificate.quantities
    chosen = theorem.chosen(published)
    absent = set(chosen) - published.keys()
    if absent:
        case.reject(f"the theorem's choices are published: {', '.join(sorted(absent))} missing")
        return
    case.q = {k: ball(published[k]) for k in (*case.needed, *chosen)} | case.sizes
    derived = theorem.derived(case.q)
    extra = published.keys() - set(case.needed) - derived.keys() - set(chosen)
    if extra:
        case.reject("the published quantities are those of the theorem", ", ".join(sorted(extra)))
        return
    for name, value in derived.items():
        if not _agrees(published.get(name), value):
            case.reject(f"derived quantity {name}", f"recomputed {digits(value)}")
            return
    case.report.add(case.claim, f"{len(derived)} derived quantities agree with their formulas", Outcome.ACCEPT)


def _conditions(case: _Case) -> None:
    """The published conditions are those of the theorem, and certainly hold."""
    conditions = case.certificate.theorem.conditions(case.q)
    if not _same_conditions(case.certificate.conditions, conditions):
        case.reject("the published conditions are those of the theorem")
        return
    for condition in conditions:
        case.report.decide(condition, case.claim)


def _conclusion(case: _Case) -> None:
    """The schedule follows, and what is stated beside it is of the schedule."""
    certificate, report = case.certificate, case.report
    schedule, count = certificate.schedule, 0
    for obligation in certificate.theorem.obligations(case.q, converted(schedule, ball)):
        if not obligation.certain:
            report.decide(obligation, case.claim)
            return
        count += 1
    what = (
        f"the schedule of {counted(len(schedule), 'segment')} follows ({counted(count, 'inequality', 'inequalities')})"
    )
    report.add(case.claim, what, Outcome.ACCEPT)
    stated = (
        certificate.initial_gap == certificate.quantities.get("initial_gap")
        and schedule[0].level == certificate.initial_gap  # relative counts are relative to it
        and certificate.step_size == schedule[0].step
        and all(ball(certificate.rate) >= 1 - ball(segment.decrease) for segment in schedule)
        and certificate.rate <= 1.0
    )
    report.add(
        case.claim,
        "step size, rate and initial gap are those of the schedule",
        Outcome.ACCEPT if stated else Outcome.REJECT,
        f"step {certificate.step_size:.6g}, rate {_near_one(certificate.rate)}{_counts(schedule)}",
    )


STEPS: tuple[Callable[[_Case], None], ...] = (_arrays, _sizes, _base, _derived, _conditions, _conclusion)
"""In this order; each relies on those before."""


def _check_base(name: str, upper: bool, published: float | None, enclosure: tuple[float, float], claim: str) -> Line:
    low, high = enclosure
    if published is None:
        return Line(claim, f"base quantity {name} is missing", Outcome.REJECT)
    if upper:
        safe, wrong, relation = published >= high, published < low, ">="
    else:
        safe, wrong, relation = published <= low, published > high, "<="
    outcome = Outcome.ACCEPT if safe else Outcome.REJECT if wrong else Outcome.UNDECIDED
    return Line(
        claim, f"{name} {relation} its rigorous value", outcome, f"{published:.9g}; enclosure {low:.9g} .. {high:.9g}"
    )


def _same_conditions(published: list[dict[str, object]], conditions: list[Inequality]) -> bool:
    if len(published) != len(conditions):
        return False
    for record, condition in zip(published, conditions, strict=True):
        left, right = parse_hex(record.get("left"), "condition"), parse_hex(record.get("right"), "condition")
        if (
            record.get("name") != condition.name
            or record.get("relation") != condition.relation
            or record.get("holds") is not True
            or not _agrees(left, condition.left, 1e-6)
            or not _agrees(right, condition.right, 1e-6)
            or not _same_margin(record.get("margin"), condition.margin)
        ):
            return False
    return True


def _same_margin(published: object, margin: float | None) -> bool:
    if published is None or margin is None:
        return published is margin
    return abs(parse_hex(published, "margin") - margin) <= 1e-6


def _near_one(rate: float) -> str:
    """A factor with six digits; where it is near 1, those of its distance from 1."""
    return f"{rate:.6g}" if not 0.99 <= rate < 1.0 else f"1 - {1.0 - rate:.6g}"


def _counts(schedule: Sequence[Segment]) -> str:
    """The iterations within which parts of the first gap are certainly reached; nothing of those that are not."""
    counts = [(target, _reached(schedule, ball(schedule[0].level) * ball(target))) for target in TARGETS]
    within = [f"{target:g} within {count:,.0f}" for target, count in counts if count < MOST]
    return f"; relative gap {', '.join(within)} iterations" if within else ""


def _reached(schedule: Sequence[Segment], gap: Any) -> float:
    """The iteration from which the schedule certainly guarantees this gap, in balls; infinite if there is none."""
    for segment in schedule:
        level, fall = ball(segment.level), ball(segment.decrease)
        if level <= gap:
            return segment.start
        if gap > 0.0 and fall > 0.0:
            count = float(((level / gap).log() / -(-fall).log1p()).upper().ceil())
            if segment.count is None or count <= segment.count:
                return segment.start + count
    return math.inf


def _agrees(published: float | None, value: Any, tolerance: float = CONSISTENT) -> bool:
    """Whether a published number is the recomputed one up to rounding."""
    if published is None:
        return False
    exact = float(value)
    return math.isfinite(exact) and abs(published - exact) <= tolerance * abs(exact) + 1e-300
