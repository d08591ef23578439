"""What ``certify step-sizes`` and ``train step-sizes`` do."""

from __future__ import annotations

import math
import os
import shlex
import shutil
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from .._cli import learned, training
from .._cli.errors import Exit, message_of
from .._cli.screen import Screen, audit_record, certificate_record, count, number, print_json, suggested
from .._cli.values import at_least_one
from .._core.certificate import Certificate
from .._core.descent import certify, descend
from .._core.io import RunDirectoryError
from .._core.run import Run
from .._core.status import RunStatus
from .._learning.run import TrainRun, TrainStatus
from .._problems import Problems
from .command import Certify, StepSizes, Train
from .command_comparison import comparison_record, show_comparison
from .command_problems import pair
from .network import StepSizeNet
from .training import train as train_network

STAGE = "solving"
"""Where ``train`` writes the run on the fresh problems first, in its directory."""
RANGE = (0.0, 2.0)


def run_certify(options: Certify) -> int:
    """``surefoot certify step-sizes``."""
    screen = Screen(silent=options.json)
    net = _network(options, 1.0)
    problems = options.draw(options.seed)
    certificate = certify(net, problems, options.theorem)
    facts = _facts(options, net, problems)
    _show_problem(screen, facts)
    screen.certificate(certificate, _advice(certificate, net))
    screen.quantities(certificate)
    if options.json:
        print_json({"problem": facts, "certificate": certificate_record(certificate)})
    return Exit.YES if certificate.holds else Exit.NO


def run_train(options: Train, held: ExitStack) -> int:
    """``surefoot train step-sizes``."""
    screen = Screen(silent=options.json or options.quiet)
    directory = Path(options.out)
    _check(options)
    learned.check(options)
    net = _network(options, 1.0 if options.expansion is None else options.expansion)
    problems, fresh = options.draw(options.seed), options.draw(options.seed + 1)
    certificate = certify(net, fresh, options.theorem)
    facts = _facts(options, net, problems)
    _show_problem(screen, facts)
    screen.certificate(certificate, _advice(certificate, net))
    if not certificate.holds:
        failed = "; ".join(str(c) for c in certificate.conditions if not c.holds)
        missing = f"{certificate.theorem} gives no guarantee: {failed}"
        if options.require_certificate:
            reason = f"{missing} ({_advice(certificate, net) or suggested(certificate)})"
            record = {"problem": facts, "certificate": certificate_record(certificate), "result": None}
            return learned.not_trained(options, reason, record)
        screen.heading("Uncertified", missing)
    screen.heading("Training", f"{options.optimizer}, {options.gradient} gradient, up to {options.epochs:,} epochs")

    fit = partial(
        train_network,
        net,
        problems,
        options.optimizer,
        options.gradient,
        options.epochs,
        options.learning_rate,
        iterations=options.iterations,
    )
    trained = learned.train(options, net, fit, held)
    screen.pairs({"ended": f"{trained.status}: {trained.status.text}", **learned.pairs(trained)})
    if trained.status is TrainStatus.INTERRUPTED:
        return learned.stopped(options, trained)
    start = time.monotonic()
    run = _solve(options, net, fresh, certificate, facts)
    if run.status is RunStatus.INTERRUPTED:
        return training.interrupted(options, "on the fresh problems", run.stopped_by)
    _show_result(screen, run, time.monotonic() - start)
    audit = run.audit()
    screen.audit(audit, run.certified)
    comparison = None
    if not run.status.failed:
        comparison = show_comparison(screen, directory, problems, options.iterations, net, fresh)
    kept = training.keep_problem(run, options.keep_problem, screen)
    report = training.write_report(directory, kept)
    verdict = "certified" if run.certified else "uncertified"
    record = {
        "problem": facts,
        "certificate": certificate_record(certificate),
        "training": learned.record(trained),
        "result": {**run.summary(), "status_text": run.status.text},
        "audit": audit_record(audit),
        "comparison": None if comparison is None else comparison_record(comparison),
        "report": str(report),
    }
    line = (
        f"loss {trained.losses[0]:.6g} to {trained.best:.6g}; fresh problems {run.status.value}, {run.iterations} iterations, "
        f"final gap {run.gaps[-1]:.6g}, {verdict}"
    )
    learned.outcome(options, trained, record, line)
    screen.following(f"open {report}", _next(options, run, trained))
    return Exit.FAILED if run.status.failed or trained.status is TrainStatus.DIVERGED else Exit.YES


# -- from options to problems and network ----------------------------------------------------------------------------


def _network(options: StepSizes, expansion: float) -> StepSizeNet:
    """The network to start from."""
    if options.weights is None:
        interval = RANGE if options.range is None else pair(options.range)
        return StepSizeNet.orthogonal(range=interval, expansion=expansion, seed=max(options.seed, 0))
    if options.range is not None:
        raise ValueError("--range is stored with --weights; leave it out")
    try:
        return StepSizeNet.load(options.weights).double()
    except (OSError, RunDirectoryError) as error:
        raise ValueError(f"--weights is {options.weights}: {message_of(error)}") from error


def _check(options: Train) -> None:
    """Raise ``ValueError`` for settings of the training that are out of range or contradict each other."""
    at_least_one("--iterations", options.iterations)
    if options.expansion is not None and not 0.0 < options.expansion < math.inf:
        raise ValueError(f"--expansion is {options.expansion:g}; it must be positive and finite")
    if options.weights is not None and options.expansion is not None:
        raise ValueError("--expansion is of random initial weights, not of --weights; leave one of them out")
    if options.gradient == "detached" and options.optimizer in ("lbfgs", "armijo"):
        raise ValueError(
            f"--optimizer {options.optimizer} compares losses along the gradient, and --gradient detached is not one; use "
            "--optimizer adam or sgd, or --gradient exact"
        )


# -- training and solving --------------------------------------------------------------------------------------------


def _solve(options: Train, net: StepSizeNet, fresh: Problems, certificate: Certificate, facts: dict[str, Any]) -> Run:
    """The run on the fresh problems, in place of that of an earlier network."""
    directory = Path(options.out)
    stage = directory / STAGE
    shutil.rmtree(stage, ignore_errors=True)
    run = descend(
        net,
        fresh,  # pyright: ignore[reportArgumentType] - a batch of problems stands for its total objective
        max_iterations=options.iterations,
        tolerance=0.0,
        certificate=certificate,
        directory=stage,
        progress=not options.quiet,
        config={"data": facts},
    )
    if run.status is RunStatus.INTERRUPTED:
        return run
    # config.json makes a directory a run: it goes first and comes last
    (directory / "config.json").unlink(missing_ok=True)
    for entry in sorted(stage.iterdir(), key=lambda entry: entry.name == "config.json"):
        target = directory / entry.name
        if target.is_dir():
            shutil.rmtree(target)
        os.replace(entry, target)
    stage.rmdir()
    return run


# -- what is shown ---------------------------------------------------------------------------------------------------


def _facts(options: StepSizes, net: StepSizeNet, problems: Problems) -> dict[str, Any]:
    """Plain values."""
    return {
        **options.described(problems),
        "seed": options.seed,
        "range": list(net.range),
        "widths": list(net.widths),
        "smoothness": problems.common_smoothness,
        "strong_convexity": float(problems.strong_convexity.min()),
    }


def _show_problem(screen: Screen, facts: dict[str, Any]) -> None:
    screen.heading("Problem", facts["data"])
    known = ", in the directions that M sees" if facts["lam"] is None else ""
    known = known if facts["strong_convexity"] > 0.0 else " (so no linear rate is guaranteed)"
    low, high = facts["range"]
    penalty = {} if facts["lam"] is None else {"penalty": f"λ‖x‖₁, λ = {number(facts['lam'])}"}
    screen.pairs(
        penalty
        | {
            "smoothness": f"β = {number(facts['smoothness'], towards='up')} at most",
            "convexity": f"at least {number(facts['strong_convexity'], towards='down')}{known}",
            "network": f"widths {', '.join(map(str, facts['widths']))}; steps from {number(low)}/β to {number(high)}/β",
        }
    )


def _show_result(screen: Screen, run: Run, seconds: float) -> None:
    """A run that takes all its iterations has done what it should."""
    failed = f"{run.status.value.replace('_', ' ')}: {run.status.text}"
    screen.heading("Fresh problems", failed if run.status.failed else "solved with the best network of the training")
    certified = f"every step certified by {run.certificate.theorem}"
    screen.pairs(
        {
            "iterations": f"{count(run.iterations)} in {seconds:.2f} s",
            "gap": f"{number(run.gaps[0])} → {number(run.gaps[-1])} (summed over the problems)",
            "guarantee": certified if run.certified else "none: this run is uncertified",
        }
    )


def _advice(certificate: Certificate, net: StepSizeNet) -> str:
    """Which option makes the theorem hold; empty for the certificate's own suggestion."""
    if certificate.holds:
        return ""
    if net.high > 2.0:
        return f"use --range {net.low:g},2: beyond 2/β nothing is guaranteed"
    if certificate.theorem.endswith("rate") and (net.low == 0.0 or net.high == 2.0):
        return "a rate needs a range inside (0, 2): use --range 1,1.95, or leave out --theorem"
    return ""


def _next(options: Train, run: Run, trained: TrainRun) -> dict[str, str]:
    place = shlex.quote(options.out)
    following = {}
    if run.certified:
        following[training.checking(run, options.out, options.keep_problem)] = (
            "prove certificate and checkpoints, independently"
        )
    if trained.status is TrainStatus.FINISHED:
        more = 10 * max(options.epochs, 1)
        following[f"surefoot train {options.system} --out {place} --resume --epochs {more}"] = "train on"
    if options.problem == "lasso":
        following["sf.learned.LassoSolver().solve(problems, 100)"] = (
            "in Python: a solver for LASSO that needs fewer products"
        )
    return following
