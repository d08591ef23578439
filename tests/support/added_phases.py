"""Certificates along the way that a run did not write, and iterates that break what is promised."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from adding import (
    CONTROLS,
    FINAL,
    Runs,
    case,
    certified,
    changed,
    checkpoint,
    inflated,
    iterated,
    iterations,
    later,
    promised,
    stored,
    violating,
    weights_at,
    with_arrays,
    with_certificate,
    without,
)
from claims import GAP
from every_system import both, owned
from tamper import Change, Tampering, get

from surefoot._core.plans import PLANS
from surefoot_check.systems import SYSTEMS


@iterated
def weaker_phases(system: str, runs: Runs) -> Iterator[Tampering]:
    """A later certificate that promises less, true of its weights, with and without weights that break the first bound after it.

    Refused: a bound that was promised stays in force.
    """
    run = runs.run
    times = iterations(run)
    for t in times:
        for factor in (1.0 + 1e-6, 1.5, 100.0, 1e12):
            record = inflated(run, t, factor)
            yield case(system, f"gap at {t} promised {factor} times", with_certificate(later(t), record))
            for end in sorted({times[-1], times[-1] + 13} - {t}):  # its own weights are those of the certificate
                yield case(
                    system,
                    f"gap at {t} promised {factor} times, final weights of {end} above the first bound",
                    with_certificate(later(t), record),
                    without(checkpoint(end)),
                    with_arrays(FINAL, stored(run, violating(run, end), end)),
                )
    end = times[-1] + 1
    for factor in (1.0, 2.0, 1e9):
        # needs the weights of the start only, and would leave nothing of the first phase
        yield case(
            system,
            f"gap at 0 {factor} times",
            with_certificate(later(0), certified(run, 0, lambda measured, f=factor: measured * f)),
            with_arrays(checkpoint(0), stored(run, run.weights, 0)),
            with_arrays(FINAL, stored(run, violating(run, end), end)),
        )


@iterated
def late_violations(system: str, runs: Runs) -> Iterator[Tampering]:
    """True later certificates, and an iterate that breaks the first bound, or theirs, before, between, or after them.

    Refused: each bound holds for every stored iterate from its start on.
    """
    run = runs.run
    times = iterations(run)
    phases = {t: certified(run, t) for t in times if t}
    first, *_, last = [*phases, *phases]
    for chosen in (phases, {first: phases[first]}, {last: phases[last]}, {}):
        added = [with_certificate(later(t), record) for t, record in chosen.items()]
        name = f"certificates at {', '.join(map(str, chosen)) or 'none'}"
        free = [t for t in range(1, times[-1] + 2) if t not in times]
        for t in (free[0], free[len(free) // 2], free[-1], 10**6, 999_999_999):
            put_in = with_arrays(checkpoint(t), stored(run, violating(run, t), t))
            yield case(system, f"{name}: checkpoint {t} above the first bound", *added, put_in)
        for t in (times[-1] + 1, 10**9, 10**12, 2**63 - 1):
            put_in = with_arrays(FINAL, stored(run, violating(run, t), t))
            yield case(system, f"{name}: final weights of {t} above the first bound", *added, put_in)
        initial = with_arrays(checkpoint(times[-1] + 5), stored(run, violating(run, 10**9), 0))
        yield case(system, f"{name}: weights of iteration 0 in another file", *added, initial)
        other = with_arrays(checkpoint(0), stored(run, weights_at(run, times[-1]), 0))
        yield case(system, f"{name}: other weights as those of the start", *added, other)


@iterated
def true_phases(system: str, runs: Runs) -> Iterator[Tampering]:
    """Later certificates that are true of their weights, one or several, at their measured gap or above, or below it.

    May be accepted: whatever is published there is proved, and what was promised stays. Below the measured gap it is false.
    """
    run = runs.run
    times = iterations(run)
    every = [with_certificate(later(t), certified(run, t)) for t in times]
    yield case(system, "at every checkpoint", *every)
    yield case(system, "at every second checkpoint", *every[::2])
    for t in times:
        for factor in (1.0, 1.01, 1.0 - 1e-9, 0.5):
            record = certified(run, t, lambda measured, f=factor: measured * f)
            yield case(system, f"at {t}, {factor} times the gap", with_certificate(later(t), record))
        equal = certified(run, t, lambda measured, t=t: max(measured, promised(run, t) * (1.0 - 1e-9)))
        yield case(system, f"at {t}, what is promised there", with_certificate(later(t), equal))
        record = certified(run, t, weaker=1.0 + 1e-7)
        yield case(system, f"at {t}, weaker constants", with_certificate(later(t), record))
        value = (float.fromhex(record["optimal_value"]) + 1.0).hex()
        yield case(
            system,
            f"at {t}, another optimal value",
            with_certificate(later(t), changed(record, ("optimal_value",), value)),
        )
    yield case(
        system,
        "the weights of a checkpoint again, as those of a later iteration",
        with_arrays(checkpoint(10**6), stored(run, weights_at(run, times[-1]), 10**6)),
    )
    yield case(
        system,
        "a checkpoint of the start",
        with_arrays(checkpoint(0), stored(run, run.weights, 0)),
    )
    for t in range(times[0], times[-1]):
        if t not in times:  # later weights than their name says lie under its bound
            late = stored(run, weights_at(run, times[-1]), t)
            yield case(system, f"the last weights as those of {t}", with_arrays(checkpoint(t), late))


@iterated
def several_phases(system: str, runs: Runs) -> Iterator[Tampering]:
    """A weak certificate hidden between or behind strong ones.

    Refused: it weakens what one before it promised, whether or not one after it promises that again.
    """
    run = runs.run
    times = iterations(run)
    strong = {t: with_certificate(later(t), certified(run, t)) for t in times}
    weak = {t: with_certificate(later(t), inflated(run, t, 2.0)) for t in times}
    for t in times:
        for u in times:
            if t != u:
                yield case(system, f"strong at {t}, weak at {u}", strong[t], weak[u])
        others = [change for u, change in strong.items() if u != t]
        yield case(system, f"weak at {t} among strong ones", *others, weak[t])
    first, last = times[0], times[-1]
    exchanged = {first: certified(run, last), last: certified(run, first)}
    yield case(system, "two exchanged", *(with_certificate(later(t), r) for t, r in exchanged.items()))
    yield case(system, "the first one again", with_certificate(later(first), copy.deepcopy(run.certificate)))
    all_weak = [with_certificate(later(t), inflated(run, t, 3.0**i)) for i, t in enumerate(times, 1)]
    yield case(system, "weaker and weaker", *all_weak)


ODD = (
    *("", "0", "5", "00000005", "0000000005", "00000000x", "x", "-00000005", "+00000005", "000000005.", "000000005 "),
    *(" 000000005", "000000005-000000005", "000_00005", "0x0000005", "..", "\\..\\5", "000000005.json", "\n00000005"),
    *("00000000\u2075", "000000005\u200b", "00000000\x1b", "\u202e00000005", "000000005\x7f", "\udcff00000000"),
    *("\u0660" * 8 + "\u0665", "\uff10" * 8 + "\uff15"),  # digits of other scripts
)
"""What is no iteration of nine digits."""


def odd_names(system: str, runs: Runs) -> Iterator[Tampering]:
    """A true certificate under a name that is none, or without weights of its iteration.

    Refused: it is not known what it speaks of. The name is shown escaped.
    """
    run = runs.run
    times = [t for t in iterations(run) if t]
    record = certified(run, times[0]) if times and run.certificate["system"] in GAP else copy.deepcopy(run.certificate)
    for name in ODD:
        yield case(system, f"named {later(name)!r}", with_certificate(later(name), record))
    for name in ("certificate.json.json", "certificate .json", "certificate_000000005.json", "certificates.json"):
        yield case(system, f"named {name!r}", with_certificate(name, record))
    free = [t for t in (1, 3, 4, 7, 11, 10**6, 999_999_999) if t not in times]
    for t in free:
        yield case(system, f"at {t} without weights", with_certificate(later(t), record))
    yield case(system, "at 0", with_certificate(later(0), copy.deepcopy(run.certificate)))
    yield case(
        system,
        "at 0, with a checkpoint",
        with_certificate(later(0), copy.deepcopy(run.certificate)),
        with_arrays(checkpoint(0), stored(run, run.weights, 0)),
    )


def foreign_phases(system: str, runs: Runs) -> Iterator[Tampering]:
    """A later certificate of another run, problem, theorem, system or format, or one that claims nothing or something else.

    Refused: every certificate of a directory is one of its run that holds.
    """
    run = runs.run
    times = [t for t in iterations(run) if t]
    of_system = run.certificate["system"]
    t = times[len(times) // 2] if times else 5
    record = certified(run, t) if of_system in GAP else copy.deepcopy(run.certificate)
    for name, other in [("another run", runs.other), *runs.all.items()]:
        if other.certificate != run.certificate:
            theirs = copy.deepcopy(other.certificate)
            yield case(system, f"the certificate of {name}", with_certificate(later(t), theirs))
            arrays = changed(theirs, ("arrays",), record["arrays"])
            yield case(system, f"the certificate of {name} with these hashes", with_certificate(later(t), arrays))
    fields: list[tuple[tuple[Any, ...], Any]] = [
        *((("status",), value) for value in ("fails", "refuted", "HOLDS", "", None, True, CONTROLS)),
        *(
            (("claims",), value)
            for value in ([], ["L1"], ["L2"], ["L2", "L1"], ["L1", "L2", "L3"], "L1L2", None, [CONTROLS])
        ),
        *((("rule",), value) for value in ("", "none", "any", CONTROLS, None, 1)),
        *((("suggestion",), value) for value in ("try harder", CONTROLS, " ", None, ["x"])),
        *((("theorem_version",), value) for value in (0, 2, 10**18, -1, 1.0, "1", True)),
        *((("format",), f"surefoot-certificate/{value}") for value in ("0", "2", "1 ", "1.0", "01", CONTROLS)),
        *((("theorem",), name) for name in PLANS if name != record["theorem"]),
        *((("theorem",), value) for value in (CONTROLS, "", None, [record["theorem"]], record["theorem"].upper())),
        *((("system",), name) for name in SYSTEMS if name != of_system),
        *((("system",), value) for value in (CONTROLS, "", None)),
        *((("problem", "kind"), value) for value in ("squared2", CONTROLS, None, [])),
        *((("optimal_value",), value) for value in ("nan", "inf", None, 0.0, 0, "0x1p+0", CONTROLS)),
    ]
    for path, value in fields:
        if get(record, path) != value or type(get(record, path)) is not type(value):
            where = "/".join(path)
            yield case(system, f"{where} {value!r}", with_certificate(later(t), changed(record, path, value)))
    for key in record["arrays"]:
        other_hash = changed(record, ("arrays", key), "0" * 64)
        yield case(system, f"another hash of {key}", with_certificate(later(t), other_hash))


@iterated
def failing_first(system: str, runs: Runs) -> Iterator[Tampering]:
    """``certificate.json`` fails and claims nothing, and later certificates hold.

    May be accepted: what is claimed begins at the first one that holds, and the report says so.
    """
    run = runs.run
    times = [t for t in iterations(run) if t]
    fails = {**run.certificate, "status": "fails", "claims": []}
    for chosen in (times, times[:1], times[-1:]):
        added = [with_certificate(later(t), certified(run, t)) for t in chosen]
        yield case(
            system, f"fails, holds at {chosen}", owned(both(with_certificate("certificate.json", fails), *added))
        )
    above = [with_certificate(later(times[0]), inflated(run, times[0], 5.0))]
    yield case(system, "fails, weak later", owned(both(with_certificate("certificate.json", fails), *above)))


@iterated
def failing_first_and_more(system: str, runs: Runs) -> Iterator[Tampering]:
    """``certificate.json`` fails, and a later one is weaker than one before it, fails too, or is broken by an iterate.

    Refused: what one that holds promised stays in force.
    """
    run = runs.run
    times = [t for t in iterations(run) if t]
    fails = {**run.certificate, "status": "fails", "claims": []}
    first, last = times[0], times[-1]
    strong, weak = certified(run, first), inflated(run, last, 2.0)
    holds = with_certificate(later(first), strong)
    cases: dict[str, list[Change]] = {
        "then a weaker one": [holds, with_certificate(later(last), weak)],
        "then one that fails": [holds, with_certificate(later(last), {**weak, "status": "fails", "claims": []})],
        "and no other": [],
        "and one at its start": [with_certificate(later(0), copy.deepcopy(run.certificate))],
        "and weights above the later bound": [
            holds,
            with_arrays(FINAL, stored(run, violating(run, last + 1), last + 1)),
        ],
    }
    for status, claimed in (("fails", []), ("refuted", []), ("fails", ["L1"]), ("holds", []), ("", []), (None, None)):
        first_record = {**fails, "status": status, "claims": claimed}
        for name, changes in cases.items():
            change = owned(both(with_certificate("certificate.json", first_record), *changes))
            yield case(system, f"status {status!r}, claims {claimed!r}, {name}", change)
        for what, odd in (("a field more", {**first_record, "note": ""}), ("no rule", {**first_record, "rule": None})):
            if what == "no rule":
                del odd["rule"]
            change = owned(both(with_certificate("certificate.json", odd), holds))
            yield case(system, f"status {status!r}, claims {claimed!r}, {what}, then one that holds", change)
        if (status, claimed) != ("fails", []):
            change = owned(both(with_certificate("certificate.json", first_record), holds))
            yield case(system, f"status {status!r}, claims {claimed!r}, then one that holds", change)


@iterated
def failing_first_of_another(system: str, runs: Runs) -> Iterator[Tampering]:
    """``certificate.json`` fails, and a later one that holds is of another theorem or system, or the other way round.

    Refused: a report names the theorem of ``certificate.json``, and what is proved is by that.
    """
    run = runs.run
    t = next(t for t in iterations(run) if t)
    fails = {**run.certificate, "status": "fails", "claims": []}
    record = certified(run, t)
    for name, theorem in ((name, plan.theorem) for name, plan in PLANS.items()):
        if name == record["theorem"]:
            continue
        named = {
            "theorem": name,
            "system": name.partition("/")[0],
            "claims": list(theorem.claims),
            "rule": theorem.rule,
        }
        theirs = next(
            (copy.deepcopy(r.certificate) for r in runs.all.values() if r.certificate["theorem"] == name), record
        )
        for what, other in (("named", record), ("its own", theirs)):
            made = {**other, **named, "theorem_version": theorem.version, "arrays": record["arrays"]}
            changes = with_certificate("certificate.json", fails), with_certificate(later(t), made)
            yield case(system, f"fails, later {name}, {what}", owned(both(*changes)))
        first = {**fails, **named, "claims": []}
        changes = with_certificate("certificate.json", first), with_certificate(later(t), record)
        yield case(system, f"fails as {name}", owned(both(*changes)))
