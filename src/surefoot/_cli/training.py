"""The commands ``certify`` and ``train``."""

from __future__ import annotations

import dataclasses
import math
import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot_check.text import counted

from .._core.certificate import Certificate
from .._core.descent import certify, certify_for, descend
from .._core.io import RunDirectoryError, read_json, refuse_used, run_directory, unused, write_json
from .._core.plans import LIMIT, PLANS
from .._core.registry import descendable_of, system_named
from .._core.run import Run, large
from .._core.status import RunStatus
from .._core.steps import Constant, StepRule
from .._core.system import Recordable
from .._core.validate import integer, nonnegative, positive, positive_integer
from .built import Built
from .errors import Exit, NoCertificate, message_of
from .forms import Certifying, Training
from .options import TrainOptions
from .plugins import program
from .screen import Screen, audit_record, certificate_record, count, print_json, suggested

LIMITS = ("max_iterations", "tolerance", "epochs", "minutes")
FREE_ON_RESUME = {"out", "resume", "keep_problem", "device", "require_certificate", "quiet", "json", *LIMITS}
"""Options of ``train`` that a resumed run need not share with its start."""
SETTINGS = "settings.json"
"""Where a command that trains a learned solver keeps its options; others have them in config.json."""


def interrupted(options: TrainOptions, where: str, stopped_by: int | None) -> int:
    """Say after Ctrl-C, SIGTERM or SIGHUP how to go on; the exit code."""
    hint = f"resume with: {program(options.system)} train {options.system} --out {shlex.quote(options.out)} --resume"
    print(f"surefoot: interrupted {where}; {hint}", file=sys.stderr)
    return Exit.of_signal(stopped_by)


def run_certify(options: Certifying) -> int:
    """``surefoot certify``."""
    if options.step is not None:
        positive("--step", options.step)
    screen = Screen(silent=options.json)
    try:
        built = options.build()
    except NoCertificate as reason:
        return _no_certificate("no certificate", reason, options.json)
    certificate = certify(built.net, built.loss, options.theorem, step=options.step)
    screen.problem(built.facts["data"], built.shown)
    screen.certificate(certificate, _advice(built, certificate))
    if certificate.quantities:
        screen.quantities(certificate)
    if options.json:
        print_json({"problem": built.facts, "certificate": certificate_record(certificate)})
    return Exit.YES if certificate.holds else Exit.NO


def _advice(built: Built, certificate: Certificate) -> str:
    """Which options to change; none where a step is too large and nothing else fails: the certificate says which would do."""
    failed = [condition.name for condition in certificate.conditions if not condition.holds]
    return "" if failed == [LIMIT] else built.advice


def _no_certificate(outcome: str, reason: NoCertificate, as_json: bool) -> Exit:
    """Say why no weights are certified from the start."""
    print(f"surefoot: {outcome}: {message_of(reason)}", file=sys.stderr)
    if as_json:
        print_json({"problem": reason.facts, "certificate": None, "reason": message_of(reason)})
    return Exit.NO


@dataclass(frozen=True)
class Trained:
    """A run with what the command line knows of it."""

    run: Run
    seconds: float
    scores: dict[str, float]
    report: Path | None


def train(options: Training, built: Built, certificate: Certificate, screen: Screen, progress: bool) -> Trained:
    """Descend into a run directory; then print and store audit, evaluation and report (unless it was interrupted)."""
    with run_directory(Path(options.out), options.resume):
        return _train(options, built, certificate, screen, progress)


def _train(options: Training, built: Built, certificate: Certificate, screen: Screen, progress: bool) -> Trained:
    directory = Path(options.out)
    stored = {k: v for k, v in dataclasses.asdict(options).items() if k not in FREE_ON_RESUME}
    if built.keep is not None:
        built.keep(directory)
    start = time.monotonic()
    run = descend(
        built.net,
        built.loss,
        steps=parse_steps(options.steps),
        max_iterations=options.max_iterations,
        tolerance=options.tolerance,
        certificate=certificate,
        certify_every=_certify_every(options, certificate),
        engine=options.engine_name(),
        directory=directory,
        resume=options.resume,
        progress=progress,
        config={"options": stored, "data": built.facts},
    )
    seconds = time.monotonic() - start
    screen.result(run, seconds)
    kept = keep_problem(run, options.keep_problem, screen)
    options.show(run, screen)
    if run.status is RunStatus.INTERRUPTED:
        return Trained(run, seconds, {}, None)
    screen.audit(run.audit(), run.certified)
    scores = {} if run.status.failed else built.evaluate()
    screen.evaluation(scores)
    if scores:
        path = directory / "config.json"
        write_json(path, {**read_json(path), "evaluation": scores})
    return Trained(run, seconds, scores, write_report(directory, kept))


def keep_problem(run: Run, file: str | None, screen: Screen) -> str | None:
    """Write the problem's arrays into ``file`` where the run directory has no place for them; then the file, else ``None``."""
    if not large(run.problem):
        return None
    if file is not None:
        run.save_problem(file)
    where = f"they are in {file}" if file is not None else "--resume --keep-problem FILE writes them elsewhere"
    screen.say(f"  the problem's arrays are too large for the run directory; {where}")
    return file


def checking(run: Run, out: str, kept: str | None) -> str:
    """The command that checks the run."""
    data = "" if not large(run.problem) else f" --data {shlex.quote(kept or 'FILE')}"
    return f"surefoot check {system_named(run.certificate.system).checked(shlex.quote(out))}{data}"


def write_report(directory: str | Path, data: str | None = None) -> Path:
    """report.html and plots of a run, of which ``data`` has the problem's arrays if the directory does not."""
    from .._report import write

    return write(directory, data)


def _check_limits(options: Training) -> None:
    """``ValueError`` for a limit that no run can have, before anything is loaded or trained."""
    nonnegative("--tolerance", options.tolerance)
    integer("--max-iterations", options.max_iterations, 0)
    if options.certify_every is not None:
        positive_integer("--certify-every", options.certify_every)
    if options.batch is not None and isinstance(parse_steps(options.steps), str):
        raise ValueError(
            f"--steps {options.steps} does not go with --batch, whose steps are constant; give a number, or leave it out for "
            "that of the certificate"
        )


def run_train(options: Training) -> int:
    """``surefoot train``."""
    _check_limits(options)
    screen = Screen(silent=options.json or options.quiet)
    plan = PLANS.get(options.theorem or "")
    if plan is not None and plan.untrainable:
        raise ValueError(f"{options.theorem} {plan.untrainable}")
    system = system_named(options.system)
    if options.certify_every is not None and not isinstance(system, Recordable):
        raise ValueError(system.refusal("certify_every"))
    if not options.resume:
        refuse_used(Path(options.out), resumable=True)
    try:
        built = options.build()
    except NoCertificate as reason:
        return _no_certificate("not trained", reason, options.json)
    certificate = certify_for(built.net, built.loss, options.theorem, parse_steps(options.steps))
    rule = _rule(options, built, certificate)
    screen.problem(built.facts["data"], built.shown)
    screen.certificate(certificate, _advice(built, certificate))
    covered = rule is not None and rule.certifies(certificate)
    missing = _missing_guarantee(certificate, "" if rule is None else rule.name, covered)
    if missing:
        if options.require_certificate:
            advice = _advice(built, certificate) or suggested(certificate)
            hint = f" ({advice})" if advice and not certificate.holds else ""
            print(f"surefoot: not trained: {missing}{hint}", file=sys.stderr)
            if options.json:
                print_json({"problem": built.facts, "certificate": certificate_record(certificate), "result": None})
            return Exit.NO
        if rule is None:
            others = [] if options.batch is not None else descendable_of(built.net).rules
            usual = next((name for name in others if name != Constant.name), "0.01")
            raise ValueError(
                f"{certificate.theorem} does not hold here, so that it gives no constant step; "
                f"choose steps of your own, for example --steps {usual}"
            )
        every = _certify_every(options, certificate)
        again = f"; asked again every {every} iterations" if every and covered else ""
        screen.heading("Uncertified", f"{missing}{again}")
        advice = _advice(built, certificate)
        if advice:
            screen.say(
                f"  what follows is a plain descent, which may be long (Ctrl-C ends it); {advice}", style="yellow"
            )
    elif options.tolerance > 0.0:
        needed = certificate.iterations_to(options.tolerance)
        if options.max_iterations < needed < math.inf:
            screen.say(
                f"  the guarantee is for more iterations ({count(needed)}, to a relative gap of {options.tolerance:g}) than the "
                f"limit of this run (--max-iterations {options.max_iterations:,}); it usually gets there sooner{built.faster}",
            )
    trained = train(options, built, certificate, screen, progress=not options.quiet)
    if options.json:
        print_json(_record(options, built, certificate, trained))
    elif options.quiet:
        run = trained.run
        verdict = "certified" if run.certified else "uncertified"
        if run.certified_from:
            verdict += f" from iteration {run.certified_from} on"
        print(
            f"{options.out}: {run.status.value}, {counted(run.iterations, 'iteration')}, final gap {run.gaps[-1]:.6g}, {verdict}"
        )
    return _conclude(options, trained, screen)


def _conclude(options: Training, trained: Trained, screen: Screen) -> int:
    """Say what comes next; the exit code."""
    run, directory = trained.run, shlex.quote(options.out)
    if run.status is RunStatus.INTERRUPTED:
        return interrupted(options, f"after {counted(run.iterations, 'iteration')}", run.stopped_by)
    following: dict[str, str] = {}
    if run.certified_from is not None:
        following[checking(run, options.out, options.keep_problem)] = "prove certificate and checkpoints, independently"
    if run.status is RunStatus.MAX_ITERATIONS:
        limit = 10 * max(options.max_iterations, 1)
        again = f"{program(options.system)} train {options.system} --out {directory} --resume --max-iterations {limit}"
        following[again] = "go on"
    screen.following(f"open {trained.report}", following)
    # with a guarantee that holds, rounding is all that can stop a run
    stuck = run.status is RunStatus.STALLED and run.certified_from is None and run.gaps[-1] > run.resolution
    return Exit.FAILED if stuck or run.status.failed else Exit.YES


def _certify_every(options: Training, certificate: Certificate) -> int | None:
    """Never where the theorem speaks of the initial weights alone."""
    return options.certify_every if PLANS[certificate.theorem].recertifiable else None


def _rule(options: Training, built: Built, certificate: Certificate) -> StepRule | None:
    """The rule of the options; ``None`` for the constant step of a theorem that does not hold."""
    if options.steps is None and certificate.rule == Constant.name and not certificate.step_size:
        return None
    return descendable_of(built.net).rule(parse_steps(options.steps), certificate)


def _missing_guarantee(certificate: Certificate, rule: str, covered: bool) -> str:
    """Why steps carry no guarantee; empty where they do."""
    if not certificate.holds:
        failed = "; ".join(str(c) for c in certificate.conditions if not c.holds) or certificate.status.text
        return f"{certificate.theorem} gives no guarantee: {failed}"
    if not covered:
        return f"{certificate.theorem} holds, but says nothing of steps by the rule {rule!r}; use {certificate.rule!r}"
    return ""


def _record(options: Training, built: Built, certificate: Certificate, trained: Trained) -> dict[str, Any]:
    run = trained.run
    finished = run.status is not RunStatus.INTERRUPTED
    return {
        "directory": options.out,
        "problem": built.facts,
        "certificate": certificate_record(certificate),
        "result": {
            **run.summary(),
            "certified_from": run.certified_from,
            "status_text": run.outcome[1],
            "guaranteed_iterations": run.guaranteed_iterations(options.tolerance) if options.tolerance > 0.0 else None,
            **options.measured(run),
            "seconds": trained.seconds,
        },
        "audit": audit_record(run.audit()) if finished else None,
        "evaluation": trained.scores or None,
        "report": None if trained.report is None else str(trained.report),
    }


def parse_steps(text: str | None) -> str | float | None:
    """A rule's name, or a number for a constant step."""
    if text is None:
        return None
    if text == Constant.name:
        raise ValueError(f"--steps {text} lacks its step; give the number itself, for example --steps 0.01")
    try:
        step = float(text)
    except ValueError:
        return text
    if not 0.0 < step < math.inf:
        raise ValueError(f"--steps is {text}; a constant step must be a positive number")
    return step


def stored_options(given: TrainOptions) -> TrainOptions:
    """The options with which the run in ``given.out`` was started, with the limits in force there and all switches off.

    Raises:
        RunDirectoryError: no run, one of another system, or one that the command line did not start.
    """
    path = Path(given.out)
    if not path.is_dir():
        raise RunDirectoryError(
            f"{path} is not a directory; there is no run to resume (leave out --resume to start one)"
        )
    if unused(path):
        raise RunDirectoryError(
            f"{path} has no run to resume: there was none, or it was cut off before its first step (config.json is missing); "
            "leave out --resume to start it"
        )
    file = path / (SETTINGS if (path / SETTINGS).exists() else "config.json")
    config = read_json(file)
    options = config.get("options") if isinstance(config, dict) else None
    names = {field.name for field in dataclasses.fields(given)} - FREE_ON_RESUME
    if not isinstance(options, dict):
        raise RunDirectoryError(
            f"the run in {path} was not started by this command; resume it with surefoot.descend(..., resume=True)"
        )
    if config.get("system", given.system) != given.system:
        raise RunDirectoryError(
            f"the run in {path} is of the system {config['system']!r}; "
            f"resume with: {program(str(config['system']))} train {config['system']} --out {shlex.quote(given.out)} --resume"
        )
    if set(options) != names:
        raise RunDirectoryError(f"{file} has the options of another version; resume with the version that wrote it")
    limits = {name: config[name] for name in LIMITS if name in config}
    switches = {"resume": False, "require_certificate": False, "quiet": False, "json": False}
    return dataclasses.replace(given, **options, **limits, **switches)


def refuse_changes(given: TrainOptions, stored: TrainOptions) -> None:
    """Raise ``RunDirectoryError`` where an option contradicts the run to be resumed."""
    for field in dataclasses.fields(given):
        name = field.name
        if name not in FREE_ON_RESUME and getattr(given, name) != getattr(stored, name):
            raise RunDirectoryError(
                f"--{name.replace('_', '-')} is {getattr(given, name)!r}, but the run in {given.out} was started with "
                f"{'its default' if getattr(stored, name) is None else repr(getattr(stored, name))}; leave it out to "
                "resume, or start a run in another directory"
            )
