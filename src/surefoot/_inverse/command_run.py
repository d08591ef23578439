"""What ``certify inverse`` and ``train inverse`` do."""

from __future__ import annotations

import math
import shlex
import shutil
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._cli import learned
from .._cli.errors import Exit, message_of
from .._cli.matrices import Split, load
from .._cli.screen import Screen, certificate_record, number, print_json
from .._cli.values import at_least_one
from .._core.certificate import Certificate
from .._core.descent import certify
from .._core.io import RunDirectoryError, refuse_used
from .._learning.run import TrainStatus
from .command import Certify, Inverse, Train
from .network import LearnedInverse
from .spectra import Spectra
from .training import Objective

CERTIFICATE = "certificate"
"""Directory of ``train inverse``, beside those of the training."""
INTERVAL = (1e-3, 1.0)
LAYERS, DEGREE = 4, 4
RULE = "gram4"
"""For c0: an upper bound of ‖A‖², so that σ²/c0 is at most 1."""
ROOM = 1e-6
"""By this much, relatively, the interval of a training exceeds the measured spectrum."""


def run_certify(options: Certify) -> int:
    """``surefoot certify inverse``."""
    screen = Screen(silent=options.json)
    if options.out is not None:
        refuse_used(Path(options.out))
    interval = None if options.interval is None else _interval(options.interval)
    # an interval that ends below 1 is of a c0 of the user's, which no rule here may stand for
    own = interval is not None and interval[1] < 1.0
    net = _network(options, INTERVAL if interval is None else interval, 1.0 if own else RULE)
    interval = interval or net.interval or INTERVAL
    certificate = certify(net, interval=interval, theorem=options.theorem)
    facts = _facts(net, interval)
    _show(screen, facts, certificate)
    if options.out is not None and certificate.holds:
        net.save_certificate(options.out, interval, certificate.theorem)
        place = shlex.quote(options.out)
        screen.following("", {f"surefoot check {place}": "prove it, independently"})
    if options.json:
        record = {"network": facts, "certificate": certificate_record(certificate)}
        print_json({**record, "layers": _by_layer(net, certificate)})
    return Exit.YES if certificate.holds else Exit.NO


def run_train(options: Train, held: ExitStack) -> int:
    """``surefoot train inverse``."""
    screen = Screen(silent=options.json or options.quiet)
    directory = Path(options.out)
    learned.check(options)
    split = load(options)
    start = _start(options, split)
    spectrum = _spectrum(split.train, start)
    interval = start.interval or spectrum
    net = LearnedInverse(start.coefficients, start.c0, interval=interval)
    screen.heading("Problem", split.facts["data"])
    screen.pairs(
        {
            "matrices": f"{split.facts['rows']} x {split.facts['columns']}",
            "spectrum": f"σ²/c0 from {number(spectrum[0])} to {number(spectrum[1])}; c0 = {net.c0}, a bound of ‖A‖²",
            "layers": f"{net.layers} of degree {net.terms}",
        }
    )

    fit = partial(
        net.fit,
        split.train,
        optimizer=options.optimizer,
        learning_rate=options.learning_rate,
        epochs=options.epochs,
        objective=_objective(options),
    )
    run = learned.train(options, net, fit, held)
    if run.status is TrainStatus.INTERRUPTED:
        return learned.stopped(options, run)
    learned.show(screen, run, ": 1/n Σ ‖AXA − A‖²_F on the matrices trained on")
    spectra, compared = Spectra.of(split.test, net.c0), _compared(split, net)
    losses = {name: spectra.test_loss(C) for name, C in compared.items()}
    worst = {name: spectra.worst(C) for name, C in compared.items()}
    inside = _inside(split.test, net, interval)
    covered = float(inside.double().mean())
    speaks = split.test[inside]
    within = Spectra.of(speaks, net.c0).worst(compared["trained"]) if bool(speaks.any()) else None
    said = "on the matrices that are held out: the test loss 1/n Σ ‖AXA − A‖²_F, and the worst error ‖AA⁺ − AX‖"
    screen.heading("Comparison", said)
    rows = [(name, number(losses[name]), number(worst[name])) for name in compared]
    screen.table(("coefficients", "test loss", "worst error"), rows, numeric=(1, 2))
    certificate = certify(net, interval=interval, theorem=options.theorem)
    facts = _facts(net, interval)
    _show(screen, facts, certificate)
    error = "" if within is None else f"; the worst error of these is {number(within, towards='up')}"
    screen.say(f"  of the held-out matrices {covered:.0%} have their whole spectrum in the interval{error}")
    place = directory / CERTIFICATE
    shutil.rmtree(place, ignore_errors=True)
    if certificate.holds:
        net.save_certificate(place, interval, certificate.theorem)
    record = {
        "problem": split.facts,
        "network": facts,
        "training": learned.record(run),
        "test_loss": losses,
        "test_error": worst,
        "test_matrices_in_interval": covered,
        "test_error_in_interval": within,
        "certificate": certificate_record(certificate),
        "layers": _by_layer(net, certificate),
    }
    verdict = f"worst residual {_worst(net, certificate)}" if certificate.holds else "uncertified"
    learned.outcome(options, run, record, f"test loss {losses['trained']:.6g}, {verdict}")
    following = {f"surefoot check {shlex.quote(str(place))}": "prove the certificate, independently"}
    screen.following("", following if certificate.holds else {})
    missing = options.require_certificate and not certificate.holds
    return learned.exit_code(run) or (Exit.NO if missing else Exit.YES)


# -- from options to a network ---------------------------------------------------------------------------------------


def _network(options: Inverse, interval: tuple[float, float], c0: str | float = RULE) -> LearnedInverse:
    """The coefficients of the options."""
    if options.weights is not None:
        for name in ("layers", "degree", "coefficients"):
            if getattr(options, name) is not None:
                raise ValueError(f"--{name} is stored with --weights; leave it out")
        try:
            return LearnedInverse.load(options.weights)
        except (OSError, RunDirectoryError) as error:
            raise ValueError(f"--weights is {options.weights}: {message_of(error)}") from error
    layers = LAYERS if options.layers is None else options.layers
    degree = DEGREE if options.degree is None else options.degree
    for name, value in (("--layers", layers), ("--degree", degree)):
        at_least_one(name, value)
    if options.coefficients == "ones":
        return LearnedInverse.ones(layers, degree, c0)
    return LearnedInverse.chebyshev(layers, degree, interval, c0)


def _start(options: Train, split: Split) -> LearnedInverse:
    """What training starts from, with the interval of the options if there is one."""
    if options.interval is not None:
        return _with(_network(options, _interval(options.interval)), _interval(options.interval))
    if options.weights is not None or options.coefficients == "ones":
        return _network(options, INTERVAL)
    lower, _ = _spectrum(split.train, LearnedInverse.ones(1, 1, RULE))
    return _network(options, (min(lower, 0.5), 1.0))


def _with(net: LearnedInverse, interval: tuple[float, float]) -> LearnedInverse:
    return LearnedInverse(net.coefficients, net.c0, interval=interval)


def _objective(options: Train) -> Objective:
    """Chebyshev coefficients, and what was trained from them, let the first layers err so that the last does not; the
    paper's loss (4) counts every layer, and its minimisation from there ruins the last."""
    return "layers" if options.coefficients == "ones" else "last"


def _spectrum(A: Tensor, net: LearnedInverse) -> tuple[float, float]:
    """The interval of the σ²/c0 of matrices, slightly widened."""
    lower, upper = Spectra.of(A, net.c0).interval()
    return lower * (1.0 - ROOM), upper * (1.0 + ROOM)


def _inside(A: Tensor, net: LearnedInverse, interval: tuple[float, float]) -> Tensor:
    """Of which of the matrices the certificate on the interval speaks; (n,), booleans."""

    def inside(matrix: Tensor) -> bool:
        if not bool(matrix.any()):  # for a zero matrix there is nothing to say: its inverse is 0, and exact
            return True
        lower, upper = Spectra.of(matrix[None], net.c0).interval()
        return interval[0] <= lower and upper <= interval[1]

    return torch.tensor([inside(matrix) for matrix in A])


def _interval(text: str) -> tuple[float, float]:
    """L and U."""
    try:
        lower, upper = (float(part) for part in text.split(","))
    except ValueError:
        lower, upper = math.nan, math.nan
    if not 0.0 < lower < upper < math.inf:
        raise ValueError(f"--interval is {text!r}; it must be L,U with 0 < L < U, for example 1e-3,1")
    return lower, upper


# -- what is shown ---------------------------------------------------------------------------------------------------


def _facts(net: LearnedInverse, interval: tuple[float, float]) -> dict[str, Any]:
    return {"layers": net.layers, "degree": net.terms, "c0": net.c0, "interval": list(interval)}


def _show(screen: Screen, facts: dict[str, Any], certificate: Certificate) -> None:
    """The certificate, and the guaranteed error by layer where it holds."""
    low, high = facts["interval"]
    kappa = math.sqrt(high / low)
    screen.heading("Matrices", f"all, of any shape and rank, whose nonzero σ²/c0 lie in [{low:g}, {high:g}]")
    screen.pairs(
        {
            "network": f"{facts['layers']} layers of degree {facts['degree']}",
            "condition": f"≤ {number(kappa, towards='down')}",
        }
    )
    screen.certificate(certificate)
    if certificate.holds:
        rows = [(str(k), number(certificate.bound(k), towards="up")) for k in range(facts["layers"] + 1)]
        screen.heading("Guaranteed", "‖AA⁺ − AX_k‖, the relative error of the inverse, at most")
        screen.table(("layer k", "bound"), rows, numeric=(0, 1))


def _by_layer(net: LearnedInverse, certificate: Certificate) -> list[float] | None:
    """The guaranteed bounds after 0 … K layers."""
    return [certificate.bound(k) for k in range(net.layers + 1)] if certificate.holds else None


def _worst(net: LearnedInverse, certificate: Certificate) -> str:
    return number(certificate.bound(net.layers), towards="up")


def _compared(split: Split, net: LearnedInverse) -> dict[str, Tensor]:
    """The trained coefficients, and the two that need no training."""
    lower = Spectra.of(split.train, net.c0).interval()[0]
    nets = {"ones": LearnedInverse.ones(net.layers, net.terms, net.c0)}
    if isinstance(net.c0, str):
        nets["chebyshev"] = LearnedInverse.chebyshev(net.layers, net.terms, (min(lower, 0.5), 1.0), net.c0)
    nets["trained"] = net
    return {name: other.coefficients.detach() for name, other in nets.items()}
