"""The checker: reads a run directory and accepts it, rejects it, or says that it cannot decide.

It recomputes everything from the arrays. L1: the theorem's hypotheses hold for exactly these arrays, and the published
schedule follows from the theorem, in ball arithmetic. L2: every stored checkpoint lies under the guaranteed bound. L3,
on request: the run is exact gradient descent from its start, up to a bounded defect.
It fails closed: a missing, malformed, unknown or inconsistent field is a rejection.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .arrays import FormatError, read_safetensors
from .formats import verifier_of
from .hypotheses import check_hypotheses
from .problems import LinearMapProblem, Problem
from .rigor.balls import ball
from .rigor.bounds import FAST, Array, Level, NotFiniteError, self_test
from .rigor.exact import EXACT
from .run_files import (
    CERTIFICATE,
    FINAL,
    MAX_REPLAYED_BYTES,
    MAX_TRACE_BYTES,
    NO_CLAIM,
    Certificate,
    Checkpoint,
    Content,
    Heading,
    StoredWeights,
    later_certificates,
    read_problem,
    read_steps,
    recorded_status,
)
from .statement import Inequality, Theorem
from .system import System
from .systems import with_modules
from .text import chance, counted, visible
from .time_limit import TimeUp, time_limit
from .verdict import Line, Outcome, Report, decision, digits

PRECISION = 128
"""Bits of the ball arithmetic."""
LEVELS = {level.name: level for level in (FAST, EXACT)}


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
        level: "fast" trusts numpy's matrix products within their a-priori error, and its exp, log and tanh within 8 ulp; "exact"
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
    if level not in tuple(LEVELS):
        raise ValueError(f"level is {level!r}; it must be {' or '.join(LEVELS)}")
    known = with_modules(systems)
    if str(directory) == "":
        raise NotADirectoryError("the directory is an empty text; pass the directory of a run, or . for this one")
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
    if not (path / CERTIFICATE).exists() and (inside / CERTIFICATE).exists():
        raise FormatError(f"{path} holds a network, and its certificate lies in a directory of its own: check {inside}")
    content = Content.read(path / CERTIFICATE)
    verifier = verifier_of(content.record)
    if verifier is not None:
        if data is not None:
            raise ValueError(f"{path} holds its arrays itself, if any; leave out --data")
        verifier(path, content.record, level, report)
        if replay:
            report.add("L3", "there is no replay of certificates of this format", Outcome.UNDECIDED)
        return
    first = Heading.of(content, CERTIFICATE, systems)
    later = later_certificates(path)
    if first.certificate is None and not later:
        raise FormatError(NO_CLAIM)
    report.theorem = first.theorem.id
    arrays, hashes = read_problem(path, data)
    system = first.system
    problem = system.enclosures.load_problem(first.kind, arrays, level)
    stored = read_safetensors(path / "initial.safetensors")
    initial = system.enclosures.read_weights(stored, problem, "initial.safetensors")
    if stored.keys() != initial.keys():
        raise FormatError(f"initial.safetensors: holds {', '.join(sorted(stored))} instead of {', '.join(initial)}")
    run = _Run(first.theorem, problem, hashes, later, systems, report)
    if first.certificate is not None:
        run.begin(0, first.certificate, initial)
    else:
        report.add("L1", f"nothing is claimed before iteration {min(later)}", Outcome.ACCEPT)
    weights = StoredWeights(path, system, problem, initial, first.sha256)
    kept = run.follow(weights, keep=replay)
    accepted = report.outcome is Outcome.ACCEPT
    probability = run.probability if accepted else 1.0  # a certificate that is not may lack what it is made of
    if replay and probability < 1.0:
        report.add("L3", "there is no replay of steps on batches that are drawn", Outcome.UNDECIDED)
    elif replay and accepted:
        _check_replay(path, system, problem, arrays, initial, weights.size, kept, run.phases, report)
    if probability < 1.0:
        _note_what_chance_leaves_open(probability, report)
    else:
        _note_what_was_not_checked(system, weights, run.newest, recorded_status(path), replay, report)


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
        self.newest = 0
        """The largest iteration of stored weights."""

    def begin(self, start: int, certificate: Certificate, weights: Mapping[str, Array]) -> None:
        """Claim L1 of a certificate for these weights, and that it promises there at most what is promised already."""
        suffix = f" (from iteration {start})" if start else ""
        check_hypotheses(certificate, self.problem, self.hashes, weights, self.report, suffix)
        for phase in self.phases:
            name = f"{certificate.name} promises at its start at most what {phase.certificate.name} promises there"
            level = ball(certificate.schedule[0].level)
            self.report.decide(Inequality(name, level, "<=", phase.bound(start)), f"L1{suffix}")
        self.phases.append(Phase(start, certificate))

    @property
    def probability(self) -> float:
        """With which all bounds hold, at least: those of a theorem about steps at random are no claims about one run."""
        every = [phase.certificate for phase in self.phases]
        certificates = [
            each for each in every if each.quantities.keys() >= set(each.theorem.choices)
        ]  # or it is rejected
        failing = sum(1.0 - float(each.theorem.probability(each.quantities)) for each in certificates)
        return max(0.0, 1.0 - failing)

    def follow(self, stored: StoredWeights, keep: bool) -> dict[str, Checkpoint]:
        """Claim L2 of all stored weights, and L1 of the later certificates; the weights are returned if they are to be kept."""
        kept: dict[str, Checkpoint] = {}
        lines: list[Line] = []
        small_enough = stored.size <= MAX_REPLAYED_BYTES
        for name, checkpoint in stored:
            if name != FINAL:
                self._begin_at(checkpoint)
            if self.report.outcome is Outcome.REJECT:
                return {}  # of L1: what is promised is not known
            in_force = [phase for phase in self.phases if phase.start <= checkpoint.iteration]
            if in_force and self.report.outcome is Outcome.ACCEPT and self.probability == 1.0:
                lines.append(_check_gap(name, checkpoint, in_force, self.problem))
            if keep and small_enough:
                kept[name] = checkpoint
            if name == FINAL and checkpoint.iteration < self.newest:
                older = "final.safetensors is older than the newest checkpoint; resume the run"
                lines.append(Line("L2", older, Outcome.UNDECIDED))
            self.newest = max(self.newest, checkpoint.iteration)
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


def _note_what_was_not_checked(
    system: System, stored: StoredWeights, newest: int, status: str | None, replay: bool, report: Report
) -> None:
    """What an accepted run does not say, so that nobody reads more out of it."""
    if not len(stored):
        report.notes.append("no weights beyond the initial ones are stored: L2 says nothing of this run")
    elif not stored.has_final:
        report.notes.append(
            "final.safetensors is missing: L2 speaks of the checkpoints only, and not of how the run ended"
        )
    if len(stored):
        how = (
            "does not say how the run ended"
            if status is None
            else f"says that the run ended as '{visible(status, 40)}'"
        )
        report.notes.append(f"L2 speaks of no iteration after {newest}; config.json, which is not checked, {how}")
    if not replay:
        option = "; --replay checks it" if system.replay else f": there is no replay of systems of kind {system.name}"
        report.notes.append(f"L3 not checked{option}")
    if system.least is None:
        report.notes.append("optimal_value is informative and not checked; no claim depends on it")


def _note_what_chance_leaves_open(probability: float, report: Report) -> None:
    """The same of steps at random."""
    report.notes.append(
        f"the bound holds with probability {chance(probability)} over the batches drawn, for all iterations at once: one run "
        "shows neither that it holds nor that it fails, so that neither L2 nor L3 is claimed"
    )


# -- L2 ----------------------------------------------------------------------------------------------------------------


def _check_gap(name: str, checkpoint: Checkpoint, in_force: Sequence[Phase], problem: Problem) -> Line:
    """Claim L2 for one checkpoint: its gap, bounded rigorously, lies under the guaranteed bound of every certificate in force.

    The line is that of the least bound; of one that is broken, if there is one.
    """
    system = in_force[0].certificate.system
    bounds = [(phase.certificate.name, phase.bound(checkpoint.iteration)) for phase in in_force]
    owner, least = min(bounds, key=lambda item: float(item[1].upper()))
    what = f"{name}: gap after {counted(checkpoint.iteration, 'iteration')}, by {owner}"
    upper = ball(system.enclosures.gap_upper(problem, checkpoint.weights))
    if not all(bool(upper <= bound) for _, bound in bounds):
        lower, upper = system.enclosures.gap_exact(problem, checkpoint.weights)
        if lower is not None and lower > least:
            detail = f"{digits(lower)} > {digits(least)}; the steps did not keep the theorem's conditions"
            return Line("L2", what, Outcome.REJECT, detail)
        if not all(bool(upper <= bound) for _, bound in bounds):  # an upper bound of the gap above it proves nothing
            return Line("L2", what, Outcome.UNDECIDED, f"at most {digits(upper)}, guaranteed {digits(least)}")
    return decision(Inequality(what, upper, "<=", least), "L2")


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
