"""The checker: reads a run directory and accepts it, rejects it, or says that it cannot decide.

It recomputes everything from the arrays. L1: the theorem's hypotheses hold for exactly these arrays, and the published
schedule follows from the theorem, in ball arithmetic. L2: every stored checkpoint lies under the guaranteed bound. L3,
on request: the run is exact gradient descent from its start, up to a bounded defect.
It fails closed: a missing, malformed, unknown or inconsistent field is a rejection.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import numpy as np

from .arrays import FormatError, digest, parse_hex, read_safetensors
from .problems import Array, LinearMapProblem, Problem, ball
from .rigor.bounds import FAST, Level, NotFiniteError, self_test
from .rigor.exact import EXACT
from .run_files import (
    FINAL,
    MAX_REPLAYED_BYTES,
    MAX_TRACE_BYTES,
    NO_CLAIM,
    Certificate,
    Checkpoint,
    Heading,
    StoredWeights,
    later_certificates,
    read_problem,
    read_steps,
)
from .statement import Inequality, Theorem
from .system import System
from .systems import with_modules
from .text import visible
from .time_limit import TimeUp, time_limit

PRECISION = 128
"""Bits of the ball arithmetic."""
CONSISTENT = 1e-9
"""Relative agreement asked of published values that are derived from the base quantities."""
LEVELS = {level.name: level for level in (FAST, EXACT)}


class Outcome(StrEnum):
    """The three outcomes; ``exit_code`` is that of the command line."""

    ACCEPT = "accept"
    REJECT = "reject"
    UNDECIDED = "undecided"

    @property
    def exit_code(self) -> int:
        """0 accept, 1 reject, 3 undecided."""
        return {"accept": 0, "reject": 1, "undecided": 3}[self.value]


@dataclass(frozen=True)
class Line:
    """One check: what was claimed, both sides, and the verdict on it; texts are escaped, as they may hold names from files."""

    claim: str
    name: str
    outcome: Outcome
    detail: str = ""

    def __post_init__(self) -> None:
        for text in ("name", "detail"):
            object.__setattr__(self, text, visible(getattr(self, text)))

    def __str__(self) -> str:
        mark = {"accept": "ok", "reject": "REJECT", "undecided": "UNDECIDED"}[self.outcome.value]
        return f"{mark:>9}  {self.claim}  {self.name}" + (f"  [{self.detail}]" if self.detail else "")


@dataclass(frozen=True)
class Phase:
    """A certificate and the iteration from which it is in force, for ever."""

    start: int
    certificate: Certificate

    def bound(self, iteration: int) -> Any:
        """The gap that it guarantees at an iteration of the run, in ball arithmetic."""
        schedule, passed = self.certificate.schedule, iteration - self.start
        segment = schedule[bisect_right(schedule, passed, key=lambda s: s.start) - 1]
        return ball(segment.level) * (1 - ball(segment.decrease)) ** (passed - segment.start)


@dataclass
class Report:
    """All checks of one run directory. ``notes`` say what an accepted run leaves open. Every text is printable as it is."""

    directory: str
    theorem: str = ""
    level: str = FAST.name
    modules: tuple[str, ...] = ()
    """Of other people's systems, named by whoever asked for the check; their code was run."""
    lines: list[Line] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def outcome(self) -> Outcome:
        """Reject if any check rejects, undecided if any is undecided or none was made, else accept."""
        outcomes = {line.outcome for line in self.lines}
        if Outcome.REJECT in outcomes:
            return Outcome.REJECT
        return Outcome.ACCEPT if outcomes == {Outcome.ACCEPT} else Outcome.UNDECIDED

    def add(self, claim: str, name: str, outcome: Outcome, detail: str = "") -> None:
        """Record one check."""
        self.lines.append(Line(claim, name, outcome, detail))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for --json."""
        return {
            "directory": self.directory,
            "theorem": self.theorem,
            "level": self.level,
            "modules": list(self.modules),
            "outcome": self.outcome.value,
            "notes": list(self.notes),
            "checks": [
                {"claim": x.claim, "name": x.name, "outcome": x.outcome.value, "detail": x.detail} for x in self.lines
            ],
        }


def check(
    directory: str | Path,
    level: str = FAST.name,
    data: str | Path | None = None,
    replay: bool = False,
    seconds: float | None = None,
    systems: Sequence[str] = (),
) -> Report:
    """Check the certificates and checkpoints of a run directory.

    Args:
        directory: the run directory.
        level: "fast" trusts numpy's matrix products within their a-priori error, and its exp and log within 8 ulp; "exact"
            trusts FLINT and Python's integers instead, and takes some twenty times as long.
        data: safetensors file of the problem's arrays, of a run that does not hold them: those of large problems. It is mapped,
            never loaded whole, and must not be changed meanwhile.
        replay: also check claim L3: replay exact gradient descent with the steps of trace.jsonl, and compare the stored weights.
            Undecided for systems without a replay.
        seconds: limit on the time; what is not decided then is undecided. Only in the main thread, and not on Windows.
        systems: modules of other people's systems, each with a ``SYSTEM``; their code is run. Nothing in a
            directory can name code.

    Raises:
        ValueError: no such level, a module without a system of its own, ``data`` for a run that holds its arrays, or no
            possible limit.
        NotADirectoryError: there is no such directory.
        FileNotFoundError: there is no such file, or ``data`` is needed.
        RuntimeError: this machine's floating-point arithmetic fails the self-test.
    """
    if level not in LEVELS:
        raise ValueError(f"level is {level!r}; it must be {' or '.join(LEVELS)}")
    known = with_modules(systems)
    path = Path(directory)
    if not path.is_dir():
        raise NotADirectoryError(f"{path} is not a directory; pass the directory of a run")
    if data is not None and not Path(data).is_file():
        raise FileNotFoundError(f"{data} is not a file; pass the safetensors file of the problem's arrays")
    self_test()
    import flint

    report = Report(visible(str(path)), level=level, modules=tuple(visible(name) for name in systems))
    before = flint.ctx.prec
    flint.ctx.prec = PRECISION
    try:
        # what is infinite or no number proves nothing
        with time_limit(seconds), np.errstate(over="ignore", invalid="ignore"):
            _check_run(path, report, LEVELS[level], None if data is None else Path(data), replay, known)
    except FormatError as error:
        report.add("files", str(error), Outcome.REJECT)
    except (NotFiniteError, OverflowError) as error:
        report.add("files", f"bounds of these arrays overflow ({error})", Outcome.UNDECIDED)
    except np.linalg.LinAlgError as error:
        report.add("files", f"LAPACK gave no witness ({error})", Outcome.UNDECIDED)
    except TimeUp:
        report.add(
            "files", f"the check was not finished within the time limit of {seconds:g} seconds", Outcome.UNDECIDED
        )
    except MemoryError as error:
        report.add("files", f"the check needs more memory than there is ({error})", Outcome.UNDECIDED)
    finally:
        flint.ctx.prec = before
    return report


def _check_run(
    path: Path, report: Report, level: Level, data: Path | None, replay: bool, systems: Mapping[str, System]
) -> None:
    inside = path / "certificate"
    if not (path / "certificate.json").exists() and (inside / "certificate.json").exists():
        raise FormatError(f"{path} holds a network, and its certificate lies in a directory of its own: check {inside}")
    first = Heading.read(path / "certificate.json", systems)
    later = later_certificates(path)
    if first.certificate is None and not later:
        raise FormatError(NO_CLAIM)
    report.theorem = first.theorem.id
    arrays, hashes = read_problem(path, data)
    system = first.system
    problem = system.load(first.kind, arrays, level)
    stored = read_safetensors(path / "initial.safetensors")
    initial = system.read_weights(stored, problem, "initial.safetensors")
    if stored.keys() != initial.keys():
        raise FormatError(f"initial.safetensors: holds {', '.join(sorted(stored))} instead of {', '.join(initial)}")
    run = _Run(first.theorem, problem, hashes, later, systems, report)
    if first.certificate is not None:
        run.begin(0, first.certificate, initial)
    else:
        report.add("L1", f"nothing is claimed before iteration {min(later)}", Outcome.ACCEPT)
    weights = StoredWeights(path, system, problem, initial, first.sha256)
    kept = run.follow(weights, keep=replay)
    if replay and report.outcome is Outcome.ACCEPT:
        _check_replay(path, system, problem, arrays, initial, weights.size, kept, run.phases, report)
    _note_what_was_not_checked(system, weights, replay, report)


class _Run:
    """A run's certificates, each in force from the weights on that it speaks of, and stored weights held against all of them."""

    def __init__(
        self,
        theorem: Theorem,
        problem: Problem,
        hashes: Mapping[str, str],
        later: Mapping[int, Path],
        systems: Mapping[str, System],
        report: Report,
    ) -> None:
        self.theorem, self.problem, self.hashes, self.systems, self.report = theorem, problem, hashes, systems, report
        self.later = dict(later)
        self.phases: list[Phase] = []

    def begin(self, start: int, certificate: Certificate, weights: Mapping[str, Array]) -> None:
        """Claim L1 of a certificate for these weights, and that it promises there at most what is promised already."""
        suffix = f" (from iteration {start})" if start else ""
        _check_certificate(certificate, self.problem, self.hashes, weights, self.report, suffix)
        for phase in self.phases:
            name = f"{certificate.name} promises at its start at most what {phase.certificate.name} promises there"
            level = ball(certificate.schedule[0].level)
            _decide(Inequality(name, level, "<=", phase.bound(start)), f"L1{suffix}", self.report)
        self.phases.append(Phase(start, certificate))

    def follow(self, stored: StoredWeights, keep: bool) -> dict[str, Checkpoint]:
        """Claim L2 of all stored weights, and L1 of the later certificates; the weights are returned if they are to be kept."""
        kept: dict[str, Checkpoint] = {}
        lines: list[Line] = []
        newest = 0
        small_enough = stored.size <= MAX_REPLAYED_BYTES
        for name, checkpoint in stored:
            if name != FINAL:
                newest = max(newest, checkpoint.iteration)
                self._begin_at(checkpoint)
            if self.report.outcome is Outcome.REJECT:
                return {}  # of L1: what is promised is not known
            in_force = [phase for phase in self.phases if phase.start <= checkpoint.iteration]
            if in_force and self.report.outcome is Outcome.ACCEPT:
                lines.append(_check_gap(name, checkpoint, in_force, self.problem))
            if keep and small_enough:
                kept[name] = checkpoint
            if name == FINAL and checkpoint.iteration < newest:
                older = "final.safetensors is older than the newest checkpoint; resume the run"
                lines.append(Line("L2", older, Outcome.UNDECIDED))
        for start, file in self.later.items():
            raise FormatError(f"{file.name}: there is no checkpoint of iteration {start} with the weights it speaks of")
        if self.report.outcome is Outcome.ACCEPT:
            self.report.lines += lines
        return kept

    def _begin_at(self, checkpoint: Checkpoint) -> None:
        file = self.later.pop(checkpoint.iteration, None)
        if file is None:
            return
        certificate = Certificate.read(file, self.systems)
        if certificate.theorem is not self.theorem:  # also where the first certificate fails: the report names its own
            raise FormatError(f"{file.name}: is of another theorem than the run")
        self.begin(checkpoint.iteration, certificate, checkpoint.weights)


def _note_what_was_not_checked(system: System, stored: StoredWeights, replay: bool, report: Report) -> None:
    """What an accepted run does not say, so that nobody reads more out of it."""
    if not len(stored):
        report.notes.append("no weights beyond the initial ones are stored: L2 says nothing of this run")
    elif not stored.has_final:
        report.notes.append(
            "final.safetensors is missing: L2 speaks of the checkpoints only, and not of how the run ended"
        )
    if not replay:
        option = "; --replay checks it" if system.replay else f": there is no replay of systems of kind {system.name}"
        report.notes.append(f"L3 not checked{option}")
    report.notes.append("optimal_value is informative and not checked; no claim depends on it")


# -- L1 ----------------------------------------------------------------------------------------------------------------


def _check_certificate(
    certificate: Certificate,
    problem: Problem,
    hashes: Mapping[str, str],
    weights: Mapping[str, Array],
    report: Report,
    suffix: str = "",
) -> None:
    """Claim L1 for one certificate: arrays (``hashes`` are those of the problem), base quantities, conditions, conclusion."""
    claim = f"L1{suffix}"
    found = {f"problem/{k}": v for k, v in hashes.items()}
    found |= {f"initial/{k}": digest(v) for k, v in weights.items()}
    if found != certificate.hashes:
        differing = sorted(
            k for k in found.keys() | certificate.hashes.keys() if found.get(k) != certificate.hashes.get(k)
        )
        report.add(claim, f"the arrays are those of the certificate: {', '.join(differing)} differ", Outcome.REJECT)
        return
    report.add(claim, "the arrays are those of the certificate (sha256)", Outcome.ACCEPT)
    system = certificate.system
    sizes = system.sizes(problem, weights)
    if (
        certificate.kind != problem.kind
        or certificate.sizes != sizes
        or any(type(certificate.sizes[k]) is not type(v) for k, v in sizes.items())
    ):
        report.add(claim, "sizes and kind of the problem", Outcome.REJECT, f"{certificate.sizes} against {sizes}")
        return
    if system.measured_from_zero and certificate.optimal_value != 0.0:
        report.add(claim, "gaps are measured from 0", Outcome.REJECT, f"optimal value {certificate.optimal_value}")
        return
    enclosures = system.base_quantities(problem, weights, certificate.quantities)
    needed = [name for name in certificate.theorem.base if name in enclosures]
    for name in sorted(set(certificate.theorem.base) - set(needed) - system.optional):
        report.add(claim, f"base quantity {name} has no finite bound for these arrays", Outcome.UNDECIDED)
    directions = system.directions
    for group, members in groupby(needed, lambda name: name.partition("[")[0]):
        names = list(members)
        checks = [
            _check_base(name, directions[name] == "upper", certificate.quantities.get(name), enclosures[name], claim)
            for name in names
        ]
        if len(checks) == 1:
            report.lines.append(checks[0])
        elif all(check.outcome is Outcome.ACCEPT for check in checks):
            relation = ">=" if directions[names[0]] == "upper" else "<="
            name = f"{group}[...] {relation} their rigorous values"
            report.add(claim, name, Outcome.ACCEPT, f"{len(checks)} quantities")
        else:
            report.lines += [check for check in checks if check.outcome is not Outcome.ACCEPT]
    if report.outcome is not Outcome.ACCEPT:
        return
    absent = set(certificate.theorem.choices) - certificate.quantities.keys()
    if absent:
        report.add(claim, f"the theorem's choices are published: {', '.join(sorted(absent))} missing", Outcome.REJECT)
        return
    q: dict[str, Any] = {k: ball(v) for k, v in certificate.quantities.items()} | sizes
    derived = certificate.theorem.derived(q)
    extra = certificate.quantities.keys() - set(needed) - derived.keys() - set(certificate.theorem.choices)
    if extra:
        report.add(claim, "the published quantities are those of the theorem", Outcome.REJECT, ", ".join(sorted(extra)))
        return
    for name, value in derived.items():
        if not _agrees(certificate.quantities.get(name), value):
            report.add(claim, f"derived quantity {name}", Outcome.REJECT, f"recomputed {_text(value)}")
            return
    report.add(claim, f"{len(derived)} derived quantities agree with their formulas", Outcome.ACCEPT)
    conditions = certificate.theorem.conditions(q)
    if not _same_conditions(certificate.conditions, conditions):
        report.add(claim, "the published conditions are those of the theorem", Outcome.REJECT)
        return
    for condition in conditions:
        _decide(condition, claim, report)
    if report.outcome is not Outcome.ACCEPT:
        return
    _check_conclusion(certificate, q, claim, report)


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


def _check_conclusion(certificate: Certificate, q: Mapping[str, Any], claim: str, report: Report) -> None:
    schedule = certificate.schedule
    last = None
    for count, obligation in enumerate(certificate.theorem.obligations(q, schedule)):
        last = count
        if not obligation.certain:
            _decide(obligation, claim, report)
            return
    report.add(
        claim,
        f"the schedule of {len(schedule)} segments follows ({0 if last is None else last + 1} inequalities)",
        Outcome.ACCEPT,
    )
    stated = (
        certificate.initial_gap == certificate.quantities.get("initial_gap")
        and schedule[0].level == certificate.initial_gap  # relative counts are relative to it
        and certificate.step_size == schedule[0].step
        and all(ball(certificate.rate) >= 1 - ball(segment.decrease) for segment in schedule)
        and certificate.rate <= 1.0
    )
    report.add(
        claim,
        "step size, rate and initial gap are those of the schedule",
        Outcome.ACCEPT if stated else Outcome.REJECT,
        f"step {certificate.step_size:.6g}, rate {certificate.rate:.6g}",
    )


# -- L2 ----------------------------------------------------------------------------------------------------------------


def _check_gap(name: str, checkpoint: Checkpoint, in_force: Sequence[Phase], problem: Problem) -> Line:
    """Claim L2 for one checkpoint: its gap, bounded rigorously, lies under the guaranteed bound of every certificate in force.

    The line is that of the least bound; of one that is broken, if there is one.
    """
    system = in_force[0].certificate.system
    bounds = [(phase.certificate.name, phase.bound(checkpoint.iteration)) for phase in in_force]
    owner, least = min(bounds, key=lambda item: float(item[1].upper()))
    what = f"{name}: gap after {checkpoint.iteration} iterations, by {owner}"
    upper = ball(system.gap_upper(problem, checkpoint.weights))
    if not all(bool(upper <= bound) for _, bound in bounds):
        lower, upper = system.gap_exact(problem, checkpoint.weights)
        if lower is not None and lower > least:
            detail = f"{_text(lower)} > {_text(least)}; the steps did not keep the theorem's conditions"
            return Line("L2", what, Outcome.REJECT, detail)
        if not all(bool(upper <= bound) for _, bound in bounds):  # an upper bound of the gap above it proves nothing
            return Line("L2", what, Outcome.UNDECIDED, f"at most {_text(upper)}, guaranteed {_text(least)}")
    return _decision(Inequality(what, upper, "<=", least), "L2")


# -- L3 ----------------------------------------------------------------------------------------------------------------


def _check_replay(
    path: Path,
    system: System,
    problem: Problem,
    arrays: Mapping[str, Array],
    initial: Mapping[str, Array],
    size: int,
    stored: Mapping[str, Checkpoint],
    phases: Sequence[Phase],
    report: Report,
) -> None:
    """Claim L3: exact descent with the recorded steps lies under the guaranteed bounds, and stored weights are its iterates."""
    from .replay import replay_run  # here, as it imports python-flint

    kind = system.replay
    if kind is None or not isinstance(problem, LinearMapProblem):
        report.add("L3", f"there is no replay of systems of kind {system.name}", Outcome.UNDECIDED)
        return
    trace = path / "trace.jsonl"
    if trace.is_file() and trace.stat().st_size > MAX_TRACE_BYTES:
        report.add("L3", f"trace.jsonl has more than {MAX_TRACE_BYTES} bytes: too long for a replay", Outcome.UNDECIDED)
        return
    if size > MAX_REPLAYED_BYTES:
        what = f"stored weights have more than {MAX_REPLAYED_BYTES} bytes: too many for a replay"
        report.add("L3", what, Outcome.UNDECIDED)
        return

    def bounds(iteration: int) -> Iterator[tuple[Any, bool]]:
        for phase in phases:
            if phase.start <= iteration:
                yield phase.bound(iteration), phase.start == 0

    outcomes = {True: Outcome.ACCEPT, False: Outcome.REJECT, None: Outcome.UNDECIDED}
    for name, holds, detail in replay_run(kind(), problem, arrays, initial, stored, read_steps(trace), bounds):
        report.add("L3", name, outcomes[holds], detail)


# -- balls -------------------------------------------------------------------------------------------------------------


def _decide(inequality: Inequality, claim: str, report: Report) -> None:
    report.lines.append(_decision(inequality, claim))


def _decision(inequality: Inequality, claim: str) -> Line:
    """Accept what is certain, reject what is certainly false, leave the rest undecided."""
    opposite = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}[inequality.relation]
    if inequality.certain:
        outcome = Outcome.ACCEPT
    elif Inequality("", inequality.left, cast(Any, opposite), inequality.right).certain:
        outcome = Outcome.REJECT
    else:
        outcome = Outcome.UNDECIDED
    sides = f"{_text(inequality.left)} {inequality.relation} {_text(inequality.right)}"
    margin = inequality.margin
    return Line(claim, inequality.name, outcome, sides + ("" if margin is None else f", margin 10^{margin:.2f}"))


def _agrees(published: float | None, value: Any, tolerance: float = CONSISTENT) -> bool:
    """Whether a published number is the recomputed one up to rounding."""
    if published is None:
        return False
    exact = float(value)
    return math.isfinite(exact) and abs(published - exact) <= tolerance * abs(exact) + 1e-300


def _text(x: Any) -> str:
    return f"{float(x):.9g}"


def lines(report: Report, verbose: bool = False) -> Iterator[str]:
    """The report as text. Accepted checks of checkpoints and of later certificates are one line each, unless ``verbose``."""
    what = f" ({report.theorem}, level {report.level})" if report.theorem else ""
    code = f", with the code of {', '.join(report.modules)}, which you named" if report.modules else ""
    yield f"surefoot-check: {report.directory}{what}{code}"
    for claim, group in groupby(report.lines, key=lambda line: line.claim):
        found = list(group)
        accepted = sum(line.outcome is Outcome.ACCEPT for line in found)
        short = claim not in ("L1", "L3") and accepted > 1 and not verbose
        if short:
            what = "stored weights lie under the guaranteed bound" if claim == "L2" else "checks"
            yield str(Line(claim, f"{accepted} {what}", Outcome.ACCEPT))
        yield from (str(line) for line in found if not (short and line.outcome is Outcome.ACCEPT))
    if report.outcome is Outcome.ACCEPT:
        yield from (f"     note  {note}" for note in report.notes)
    yield f"outcome: {report.outcome.value}"
