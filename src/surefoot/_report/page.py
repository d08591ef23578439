"""The page of a report: what is guaranteed first, then the numbers, then the evidence."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping

from surefoot_check.arrays import digest
from surefoot_check.text import chance, counted

from .._core.certificate import Certificate
from .._core.claims import PRACTICAL, Claim, Kind
from .._core.run import Run, large
from .._core.status import RunStatus
from .._core.words import Words
from .checking import checking
from .document import document, foot
from .facts import Facts, gap_of
from .guarantee import guarantee
from .markup import (
    Cell,
    Label,
    Markup,
    code,
    figure,
    folded,
    keys,
    named,
    numeric,
    paragraph,
    section,
    table,
    text,
    verdict,
)
from .wording import (
    SCORES,
    both,
    by_family,
    count,
    fall,
    flat,
    margin,
    number,
    plain,
    relation,
    safe_side,
    share,
    sides,
    symbolic,
)

LAST_OF_FAILED = {
    RunStatus.DIVERGED: "not finite, or above a million times the initial gap",
    RunStatus.COLLAPSED: "where every unit is 0 on every sample; the weights kept are those of the newest checkpoint",
    RunStatus.ILL_POSED: "where the equilibrium may not exist; the weights kept are those of the newest checkpoint",
}
"""What the last recorded gap of a failed run is."""


def page(facts: Facts, drawings: Mapping[str, str], version: str, own: str = "") -> str:
    """The whole report as one HTML document that needs nothing else.

    Args:
        facts: the run.
        drawings: the plots ``gap``, ``conditions`` and, unless the run is stepless, ``steps`` as SVG elements.
        version: of the package, for the foot.
        own: a section of the run's system alone, as markup.
    """
    run = facts.run
    kind = run.certificate.problem.get("kind", "a")
    about = facts.words.problems.get(kind, f"{kind} loss")
    title = f"Run report: {run.certificate.theorem}, {about}, {run.outcome[0]}"
    parts = [
        guarantee(facts),
        _subject(facts),
        _key_numbers(facts),
        _plots(facts, drawings),
        _conditions(facts, drawings),
        own,
        _audit(facts),
        _phases(facts),
        _comparison(facts),
        _quantities(facts),
        _arrays(facts),
        _settings(facts),
        _check(facts),
    ]
    gap = f"Gap: {facts.gap_named[0]} ({number(run.certificate.optimal_value, 6)})."
    return document(title, parts, foot(version, gap))


def _subject(facts: Facts) -> Markup:
    """Data and network in a line each, where the run's settings name them."""
    data = facts.run.config.get("data")
    if not isinstance(data, Mapping):
        return Markup("")
    lines = []
    if isinstance(data.get("data"), str):
        rows, drawn = data.get("train_rows"), data.get("drawn_rows")
        share = f"{number(drawn)} drawn of " if rows and drawn and drawn < rows else ""
        count = f", {share}{number(rows)} rows" if rows else ""
        lines.append(named("Data", data["data"] + count))
    if isinstance(data.get("network"), str):
        lines.append(named("Network", data["network"]))
    labels = (("prepared", "Prepared"), ("merged", "Merged"), ("trained", "Trained"), ("finished", "Finish"))
    for name, label in labels:
        if isinstance(data.get(name), str) and data[name]:
            lines.append(named(label, data[name]))
    return Markup("".join(lines))


def _covered(run: Run) -> str:
    """Whether the theorem speaks of the run's steps."""
    if not run.rule_certified:
        return "not covered by the theorem"
    return "covered by the theorem" if run.certified else "covered where the theorem holds"


def _key_numbers(facts: Facts) -> Markup:
    run = facts.run
    start = facts.in_force[0] if facts.in_force else None
    claim = start.certificate.claim if start else Claim(Kind.NOTHING)
    since = ""
    if start and start.iteration > 0:
        since = f" since the certificate found in iteration {count(start.iteration)}"
    relative = facts.final_gap / facts.initial_gap if facts.initial_gap > 0.0 else math.nan
    reduced = "" if math.isnan(relative) else f"{number(relative, 3)} of the initial gap"
    reduced = LAST_OF_FAILED.get(run.status, reduced)
    items = [
        ("Initial gap", number(facts.initial_gap, towards="up"), ""),
        ("Final gap", number(facts.final_gap), reduced),
        ("Target", number(facts.target, towards="up"), _target(facts)),
        ("Iterations run", count(run.iterations), ""),
        ("Guaranteed iterations", *_guaranteed_iterations(facts, claim)),
        _steps_taken(facts),
        (
            "Guaranteed gap after t iterations" if claim.kind is Kind.SUBLINEAR else "Guaranteed factor of the gap",
            fall(claim) or "none",
            f"in every iteration{since}, at worst" if claim.kind is Kind.RATE and claim.decrease else "",
        ),
        ("Step rule", run.rule, _covered(run)),
        ("Engine", run.engine, facts.words.engines.get(run.engine, "")),
        ("Outcome", *run.outcome),
    ]
    if run.moved is not None:
        items.append(("Weights moved", share(run.moved), "of their norm, from the first to the last"))
    evaluation = run.config.get("evaluation")
    if isinstance(evaluation, Mapping):
        for name, value in evaluation.items():
            label, remark = SCORES.get(str(name), (str(name), "evaluation"))
            items.append((label, plain(value), remark))
    return section("Key numbers", keys(items))


def _guaranteed_iterations(facts: Facts, claim: Claim) -> tuple[str, str]:
    """The number, and what it is about."""
    if not facts.in_force:
        return "none", "no certificate covers this run"
    if facts.guaranteed_iterations < math.inf:
        useless = facts.guaranteed_iterations > PRACTICAL
        return count(facts.guaranteed_iterations), "to the target" + ("; of no practical use" if useless else "")
    return "none", "the bound does not reach the target" if claim.bounds else "the theorem gives no rate to the target"


def _steps_taken(facts: Facts) -> tuple[str, str, str]:
    """The first step, or what the system says of a method that has steps of its own."""
    run = facts.run
    if facts.words.steps_taken is not None:
        return facts.words.steps_taken(run.rows, run.initial, run.certificate.quantities, number)
    first = number(run.certificate.step_size, towards="down") if run.certificate.step_size else "none"
    return "First step taken", number(run.step_sizes[0]) if run.step_sizes else "none", f"that of the theorem: {first}"


def _target(facts: Facts) -> str:
    if facts.target == facts.run.resolution:
        return "rounding level of float64; the tolerance is below it" if facts.target > 0.0 else "no tolerance set"
    relative = facts.target / facts.initial_gap if facts.initial_gap > 0.0 else math.inf
    return f"gap to reach: {number(relative, 3, 'up')} of the initial one" if relative < math.inf else "gap to reach"


def _conditions(facts: Facts, drawings: Mapping[str, str]) -> Markup:
    certificate = facts.run.certificate
    theorem = facts.theorem
    rows = [
        [
            verdict(c.holds),
            Label(symbolic(c.name, facts.words.symbols), "text"),
            numeric(both(c)[0]),
            relation(c.relation),
            numeric(both(c)[1]),
            Cell(margin(c), "whole"),
        ]
        for c in certificate.conditions
    ]
    caption = (
        "How far each hypothesis is from failing, in powers of ten, with both sides: a disc right of 0 holds, a cross left of it "
        "fails. Beside a zero no ratio is finite: an arrow stands at the end of the axis."
    )
    head = ["verdict", "hypothesis", "#left side", "relation", "#right side", "margin"]
    return section(
        "Hypotheses at the initial weights",
        paragraph(theorem.statement, f"({theorem.reference})", kind="soft"),
        figure(drawings["conditions"], "conditions", caption),
        table(head, rows, f"Hypotheses of {certificate.theorem}"),
    )


def _plots(facts: Facts, drawings: Mapping[str, str]) -> Markup:
    run = facts.run
    covered = (
        "The run's steps are those of its theorem, so that its line must stay under that bound; the other bounds hold "
        "for steps that their theorems allow."
        if facts.in_force
        else "No bound speaks of this run: its steps are not covered by a certificate that holds."
    )
    if not facts.bounds and not run.adopted:
        covered = "There is no guaranteed bound to draw."
    low = f"Rounding alone can cause gaps up to {number(run.resolution, 3)}." if run.resolution > 0.0 else ""
    floor = ""
    if any(phase.certificate.step_size for phase in run.phases if phase.certificate.holds):
        floor = (
            "The dashed line is the step that gives the guaranteed rate at the gap which the guarantee has reached by "
            "then; a rule may take longer steps where the theorem allows it."
        )
    figures = [
        figure(drawings["gap"], "gap", f"Gap at every iterate, on a logarithmic scale. {covered} {low}"),
    ]
    if not facts.stepless:
        figures.append(figure(drawings["steps"], "steps", f"Step sizes taken, on a logarithmic scale. {floor}"))
    return section("Plots", *figures)


def _audit(facts: Facts) -> Markup:
    rows = [
        [
            Cell(line.verdict) if line.verdict == "not checked" else verdict(line.holds, no="violated"),
            Label(symbolic(line.name, facts.words.symbols), "text"),
            numeric(count(line.checked)),
            numeric("" if line.worst is None else number(line.worst)),
            numeric("" if line.at is None else count(line.at)),
            numeric("none" if line.first_violation is None else count(line.first_violation)),
        ]
        for line in facts.lines
    ]
    note = (
        "Every inequality of the theorem, checked with the recorded measurements. The ratio is left side over right "
        "side: up to 1 it holds (rounding of 10⁻⁹ is allowed)."
    )
    if facts.audit.incomplete:
        note += f" No audit of this run holds: {facts.audit.incomplete}."
    if facts.audit.violations and not facts.in_force:
        note += " The theorem does not cover this run's steps: a violation here contradicts nothing."
    note += "".join(f" {said[:1].upper()}{said[1:]}." for said in facts.audit.notes)
    head = ["verdict", "inequality", "#checks", "#worst ratio", "#at iteration", "#first violation"]
    return section(
        "Audit of the recorded run", paragraph(note, kind="soft"), table(head, rows, "Audit of the recorded run")
    )


def _phases(facts: Facts) -> Markup:
    run = facts.run
    again = {phase.iteration: phase for phase in [*run.recertified, *run.adopted]}
    if not again:
        return Markup("")
    adopted = {phase.iteration for phase in run.adopted}
    rows = []
    for phase in [run.phases[0], *(again[t] for t in sorted(again))]:
        certificate = phase.certificate
        followed = phase.iteration in adopted or phase.iteration == 0
        rows.append(
            [
                Label(count(phase.iteration), "n"),
                verdict(certificate.holds),
                numeric(number(gap_of(certificate), towards="up")),
                numeric(_step(certificate)),
                numeric(fall(certificate.claim)),
                numeric(count(facts.reaches(phase)) if certificate.holds else "none"),
                "yes" if followed and phase in facts.in_force else "no",
            ]
        )
    head = [
        "#iteration",
        "theorem",
        "#gap there",
        "#step",
        "#factor or bound of the gap",
        "#target by iteration",
        "followed",
    ]
    return section(
        "Certificates along the run",
        paragraph(
            f"{run.certificate.theorem} evaluated again at the current weights. The steps follow a new certificate "
            "where it guarantees the target in fewer iterations in total.",
            kind="soft",
        ),
        table(head, rows, "Certificates along the run"),
    )


def _step(certificate: Certificate) -> str:
    """The first step that is guaranteed, rounded down; empty where there is none."""
    step = certificate.step_size if certificate.holds else None
    return number(step, towards="down") if step else ""


def _without_bound(certificate: Certificate) -> str:
    return "no rate" if certificate.claim.kind is Kind.MONOTONE else "none"


def _comparison(facts: Facts) -> Markup:
    rows = []
    for certificate in facts.theorems:
        bound = next((b for b in facts.bounds if certificate.theorem in b.theorems), None)
        rows.append(
            [
                _theorem(
                    certificate.theorem,
                    "this run" if certificate is facts.theorems[0] else _why_not(certificate, facts.words),
                ),
                verdict(certificate.holds, no=certificate.status.value),
                *([] if facts.stepless else [numeric(_step(certificate))]),
                numeric(fall(certificate.claim)),
                numeric(count(bound.iterations) if bound else _without_bound(certificate)),
            ]
        )
    for name, reason in facts.unevaluated.items():
        empty = [numeric("")] * (1 if facts.stepless else 2)
        rows.append([_theorem(name, reason), "not evaluated", *empty, numeric("none")])
    step = [] if facts.stepless else ["#first step"]
    head = ["theorem", "status", *step, "#factor or bound of the gap", "#iterations to the target"]
    note = "Every theorem of this kind of network at the same initial weights. Each speaks of its own step rule."
    return section("Theorems compared", paragraph(note, kind="soft"), table(head, rows, "Theorems compared"))


def _theorem(name: str, remark: str) -> Cell:
    return Label(Markup(f"{code(name)}<br><small>{text(remark)}</small>" if remark else code(name)), "text")


def _why_not(certificate: Certificate, words: Words) -> str:
    """The hypotheses that fail, with both sides; the suggestion where none does."""
    if certificate.holds:
        return ""
    failed = (f"{symbolic(c.name, words.symbols)} ({sides(c)})" for c in certificate.conditions if not c.holds)
    return "; ".join(failed) or certificate.suggestion


def _quantities(facts: Facts) -> Markup:
    rows = []
    symbols = facts.words.symbols
    single, families = by_family(facts.run.certificate.quantities)
    towards = safe_side(facts.theorem.id)
    for name, value in single.items():
        symbol, meaning = symbols.get(name, ("", ""))
        rows.append([Label(code(name)), symbol, numeric(number(value, 5, towards(name))), Cell(meaning, "text")])
    for name, values in families.items():
        symbol, meaning = symbols.get(name, ("", ""))
        total = numeric(f"sum {number(sum(values), 5, towards(f'{name}[1]'))}")
        rows.append([Label(code(f"{name}[0] … [{len(values) - 1}]")), symbol, total, Cell(meaning, "text")])
    note = (
        "Measured quantities are rigorous bounds, moved by a relative 10⁻⁹ in the safe direction, and rounded in it here; what "
        "follows from them is rounded to nearest."
    )
    shown = table(["name", "symbol", "#value", "meaning"], rows, "Quantities of the certificate")
    return section(
        "Quantities", paragraph(note, kind="soft"), folded(counted(len(rows), "quantity", "quantities"), shown)
    )


def _arrays(facts: Facts) -> Markup:
    run = facts.run
    stored = {f"problem/{k}": v for k, v in run.problem.items()} | {f"initial/{k}": v for k, v in run.initial.items()}
    rows = []
    for name, published in run.certificate.arrays.items():
        array = stored.get(name)
        if array is None:
            elsewhere = name.startswith("problem/") and not run.problem
            cell = Cell("kept elsewhere", "text") if elsewhere else verdict(False, no="missing")
            rows.append([Label(code(name)), "", cell, Cell(published, "hash")])
            continue
        size = " × ".join(f"{n:,}" for n in array.shape) or "scalar"
        same = digest(array.numpy()) == published
        kind = str(array.dtype).removeprefix("torch.")
        rows.append([Label(code(name)), f"{size} {kind}", verdict(same, "same", "differs"), Cell(published, "hash")])
    note = "The certificate speaks of exactly these arrays, as stored beside it."
    shown = table(["array", "size", "stored file", "sha256"], rows, "Arrays of the certificate")
    return section("Arrays", paragraph(note, kind="soft"), folded(counted(len(rows), "array"), shown))


def _settings(facts: Facts) -> Markup:
    problem = [(f"problem, {name}", value) for name, value in facts.run.certificate.problem.items()]
    entries = [
        *problem,
        *flat({k: v for k, v in facts.run.config.items() if k not in ("evaluation", "advice", "reduced")}),
    ]
    rows = [[Label(name), Cell(plain(value), "text")] for name, value in entries]
    return section("Settings", folded(counted(len(rows), "setting"), table(["setting", "value"], rows, "Settings")))


def _obeys(facts: Facts) -> str:
    """What obeys the bound."""
    probability = facts.run.probability
    if probability == 1.0:
        return f"{facts.words.method} obeys the bound"
    return f"descent on batches that are drawn so obeys the bound with probability {chance(probability)}"


def _check(facts: Facts) -> Markup:
    directory = facts.run.directory
    name = shlex.quote("DIR" if directory is None else directory.resolve().name)
    data = " --data FILE" if not facts.run.problem or large(facts.run.problem) else ""
    holds = any(phase.certificate.holds for phase in facts.run.phases)
    meanings = {
        "L1": (
            f"The hypotheses hold for exactly these arrays, so that {_obeys(facts)}.",
            "It speaks of exact arithmetic; whether this run took such steps is for the audit to say.",
        ),
        "L2": (
            "At every stored checkpoint a rigorous upper bound of the gap lies under the guaranteed bound.",
            f"{counted(len(facts.checkpoints), 'stored checkpoint')}; the iterates between them are not covered.",
        ),
    }
    theorem = facts.theorem
    if not theorem.provable:
        claimed = f"{theorem.id} is evaluated and not proved: the checker accepts no certificate of it."
    elif not holds:
        claimed = (
            "The certificate of the initial weights claims nothing, because its hypotheses do not hold: "
            "there is nothing to accept."
        )
    else:
        claimed = (
            "It recomputes every quantity from the stored arrays in rigorous arithmetic, without PyTorch and without the "
            "code that trained. Trusted are IEEE arithmetic, numpy's matrix products (at level exact FLINT in their place), the "
            "theorems, and the formulas of their quantities, which made the certificate, too: tests compare those with a second "
            "implementation."
        )
    claims = [(name, *meanings[name]) for name in theorem.claims] if holds and theorem.provable else []
    audit = paragraph(
        "The audit above uses the recorded float64 measurements; it is no part of the check.", kind="soft"
    )
    return checking(f"{facts.system.checked(name)}{data}", claims, paragraph(claimed), audit)
