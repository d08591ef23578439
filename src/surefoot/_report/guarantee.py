"""The first lines of a report: what is guaranteed of this run, in a sentence."""

from __future__ import annotations

import math

from surefoot_check.text import chance

from .._core.claims import PRACTICAL, Kind
from .._core.recertification import Recertification
from .._core.status import RunStatus
from .facts import Facts, gap_of
from .markup import Markup, named, paragraph, text, verdict_box
from .wording import both, count, iterations, number, relation, symbolic


def guarantee(facts: Facts) -> Markup:
    """The verdict: its badge, the sentence with numbers, what the run did, and what would help."""
    if facts.contradicted:
        kind, badge = "bad", "✗ THE RUN BREAKS ITS GUARANTEE"
        parts = [_guaranteed(facts), _broken(facts)]
    elif _impractical(facts):
        kind, badge = "warn", "◐ GUARANTEED, NOT PRACTICAL"
        parts = [_guaranteed(facts)]
    elif facts.in_force:
        later = facts.in_force[0].iteration > 0
        kind, badge = ("warn", "◐ GUARANTEED FROM A LATER ITERATION ON") if later else ("ok", "✓ GUARANTEED")
        parts = [_guaranteed(facts)]
    else:
        kind, badge = "warn", "✗ NOTHING IS GUARANTEED"
        parts = [_nothing(facts)]
    parts.append(paragraph(_outcome(facts)))
    return verdict_box(kind, badge, *parts)


def _guaranteed(facts: Facts) -> Markup:
    run, phase = facts.run, facts.in_force[0]
    certificate = phase.certificate
    first = "Before descent" if facts.trained else "Before the first step"
    since = first if phase.iteration == 0 else f"At iteration {count(phase.iteration)}"
    probability = certificate.probability
    sure = "" if probability == 1.0 else f" with probability {chance(probability)} over the batches"
    by = f"{since}, theorem {certificate.theorem} guarantees{sure} for {facts.words.subject} that"
    own = facts.reaches(phase)
    start = gap_of(certificate) if phase.iteration else facts.initial_gap
    if start <= facts.target:
        gap, target = number(start, towards="up"), number(facts.target, towards="up")
        sentence = f"{by} nothing is left to do: the gap {gap} is within the target {target} already."
    else:
        sentence = f"{by} steps of the rule {run.rule} {_promise(facts, phase, start, own)}."
    best = facts.guaranteed_iterations
    again = f"Certificates taken along the run lower that to {iterations(best)}." if best < own else ""
    before = "" if phase.iteration == 0 else f"Before that nothing was guaranteed: {facts.why_not[0]}."
    return Markup(f"{paragraph(sentence, _near(facts), again, before)}{_use(facts)}{_reduced(facts)}")


def _near(facts: Facts) -> str:
    """What lies how near the certified weights, where the theorem says so."""
    certificate = facts.in_force[0].certificate
    point = facts.words.points.get(certificate.theorem)
    if certificate.radius is None or point is None:
        return ""
    return f"{point[:1].upper()}{point[1:]} lies within {number(certificate.radius, towards='up')} of the certified weights."


def _promise(facts: Facts, phase: Recertification, start: float, own: float) -> str:
    """What the steps do to the gap, by the kind of the claim."""
    claim, target = phase.certificate.claim, number(facts.target, towards="up")
    after = "iterations" if phase.iteration == 0 else "further iterations"
    within = f"within {iterations(own)}" if phase.iteration == 0 else f"by iteration {count(own)}"
    reached = f"bring the gap from {number(start, towards='up')} to {target} {within}"
    match claim.kind:
        case Kind.RATE:
            return reached if own < math.inf else f"lower the gap at a rate that does not reach the target {target}"
        case Kind.SUBLINEAR:
            bound = f"keep the gap at most {number(claim.constant, towards='up')}/t after t {after}"
            return (
                f"{bound}, and so {reached}"
                if own < math.inf
                else f"{bound}; the published schedule ends above the target {target}"
            )
        case Kind.LEVELS:
            last = phase.certificate.schedule[-1]
            most = f"bound the gap by {number(last.level, towards='up')} after {iterations(last.start)}, and no lower"
            return reached if own < math.inf else f"{most}: the target {target} is not reached"
        case _:
            return "never raise the gap; it gives no rate and no number of iterations"


def _impractical(facts: Facts) -> bool:
    """Whether convergence is guaranteed, in more iterations than anybody can run."""
    if not facts.in_force or not facts.in_force[0].certificate.claim.converges:
        return False
    return facts.guaranteed_iterations > PRACTICAL


def _use(facts: Facts) -> Markup:
    """Whether anybody can run so many iterations, and what would lower them."""
    advice = facts.run.certificate.advice
    if not _impractical(facts):
        return Markup("")
    why = [Markup("<b>Why, and what would help:</b>"), facts.advised(advice)] if advice else []
    return paragraph("The bound is true and, at this target, of no practical use.", *why)


def _reduced(facts: Facts) -> Markup:
    """What the reduction of the data dropped."""
    cut, kept = facts.run.certificate.cut, facts.run.config.get("reduced")
    reduced = cut.text if cut is not None else kept if isinstance(kept, str) else ""
    return named("The guarantee speaks of reduced data", f"{reduced}.") if reduced else Markup("")


def _nothing(facts: Facts) -> Markup:
    reason, suggestion = facts.why_not
    failed = [c for c in facts.run.certificate.conditions if not c.holds]
    sides = "".join(
        f"<li>{text(symbolic(c.name, facts.words.symbols))}: the left side is <b>{text(both(c)[0])}</b>, which must be "
        f"{text(relation(c.relation))} the right side, <b>{text(both(c)[1])}</b></li>"
        for c in failed
    )
    if sides:
        theorem = facts.run.certificate.theorem
        parts = [paragraph(f"{theorem} asks for what {facts.words.subject} do not meet:"), Markup(f"<ul>{sides}</ul>")]
    else:
        parts = [paragraph(f"{reason[:1].upper()}{reason[1:]}.")]
    if suggestion:
        parts.append(named("What would help", suggestion))
    return Markup("".join(parts))


def _broken(facts: Facts) -> Markup:
    broken = [line for line in facts.lines if not line.holds]
    first = min(broken, key=lambda line: line.first_violation or 0)
    name = symbolic(first.name, facts.words.symbols)
    return paragraph(
        f"The recorded run violates {len(broken)} of the {len(facts.lines)} audited inequalities, first at iteration "
        f"{count(first.first_violation or 0)}: {name}. Either the files were changed, or rounding matters here, "
        "or the theorem or its code is wrong; please report it."
    )


def _outcome(facts: Facts) -> str:
    run = facts.run
    if run.status is RunStatus.RUNNING:
        done = f"The run has {iterations(run.iterations)} on record and no end: {run.status.text}."
    else:
        done = (
            f"The run ended after {iterations(run.iterations)} with the gap at {number(facts.final_gap)}: "
            f"{run.outcome[1]}."
        )
    if not facts.in_force or facts.contradicted:
        return done
    if not facts.audit.holds:
        return f"{done} The audit does not hold: {facts.audit.incomplete or facts.audit.verdict}."
    checked = max((line.checked for line in facts.lines), default=0)
    if not checked:
        return f"{done} There was nothing to audit."
    return f"{done} The audit of every recorded iteration found no violation."
