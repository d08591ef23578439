"""What ``certify implicit`` and ``train implicit`` build: rows, and a network, which may be trained."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from surefoot_check.implicit import exact_fit

from .._cli.built import Built
from .._cli.errors import NoCertificate
from .._cli.screen import Screen, number
from .._cli.values import at_least_one, check_seed
from .._cli.watched import Finish, check_rate, resumed, trained, weights_of_file
from .._core.io import RunDirectoryError
from .._core.near_a_fit.finish import finish
from .._core.near_a_fit.steps import GaussNewton
from .._core.near_a_fit.training import METHODS, fit
from .._core.refusals import NotCertifiable
from .._core.run import Run
from .._core.samples import SampleLoss
from .._report.training import HARDLY
from .command import GAMMA, Implicit, Train
from .command_samples import load_samples
from .command_samples import shown as shown_of_implicit
from .equilibrium import dead_units
from .near import NEAR_A_FIT
from .network import ImplicitReLU
from .report import MEANING
from .system import ImplicitSystem

LOOKS = 10
"""So many along the training."""


def relative_movement(run: Run) -> float | None:
    """Largest distance of the features to the first ones, per norm of those; ``None`` if that is 0."""
    norm = run.config["data"]["feature_norm"]
    return max(row["feature_movement"] for row in run.measured_rows) / norm if norm > 0.0 else None


def built(options: Implicit) -> Built:
    check_seed(options.seed)
    if options.width is not None:
        at_least_one("--width", options.width)
    if options.gamma is not None and not 0.0 < options.gamma < 1.0:
        below = f", and gamma ||A|| = {options.gamma:g} with A = I" if options.gamma >= 1.0 else ""
        raise ValueError(
            f"--gamma is {options.gamma:g}{below}; it must lie strictly between 0 and 1, so that gamma ||A|| < 1 and the "
            "equilibrium exists"
        )
    unit = options.moving or options.weights is not None or options.gamma is not None
    samples = load_samples(options, unit=unit, seed=options.seed)
    X, Y = samples.table.train.X, samples.table.train.Y
    assert isinstance(X, Tensor) and Y is not None
    (N, d), p = X.shape, Y.shape[1]
    width = options.width if options.width is not None else min(4 * N, 2000)
    if options.width is None and not unit:
        width = max(width, d)
    facts = {**samples.table.facts, "n": d, "m": p, "width": width, "seed": options.seed, "loss": "squared"}
    net, drawn = _network(options, X, Y, width, facts, samples.unmerged)
    equilibrium = net.equilibrium(X)
    facts |= {
        "network": f"z = relu(γ z A + relu(x W)), ŷ = z b; width {net.width:,}, γ = {net.gamma:.4g}; {drawn}",
        "width": net.width,
        "gamma": net.gamma,
        "scale": float(net.A.detach()[0, 0]),
        "contraction": net.gamma * net.norm_A(),
        "dead_units": len(dead_units(equilibrium.Z)),
        "feature_norm": float(torch.linalg.vector_norm(equilibrium.Z)),
    }
    if options.moving:
        faster = f"; --theorem {exact_fit.THEOREM.id} counts Newton steps, of which few suffice"
    elif facts["inputs"] == "whiten":
        faster = "; fewer --samples need fewer"
    else:
        faster = "; --inputs whiten usually needs far fewer"
    advice = _advice(options, N, width, samples.unmerged)
    return Built(net, SampleLoss(X, Y), facts, samples.table, shown_of_implicit(facts), advice, faster)


def _network(
    options: Implicit, X: Tensor, Y: Tensor, width: int, facts: dict[str, Any], unmerged: str
) -> tuple[ImplicitReLU, str]:
    """With the weights of the options, and what these are, for people."""
    (_, d), p = X.shape, Y.shape[1]
    generator, seed = torch.Generator().manual_seed(options.seed), f"b = 0, seed {options.seed}"
    if options.weights is not None:
        return _of_file(Path(options.weights), options.gamma), f"weights of {options.weights}"
    if options.moving:
        gamma = GAMMA if options.gamma is None else options.gamma
        net = ImplicitReLU.gaussian(d, width, gamma, outputs=p, generator=generator)
        return net, f"W ~ N(0, 1/4), A ~ N(0, 1/4m), {seed}"
    if options.gamma is not None:
        net = ImplicitReLU.paper(d, width, options.gamma, outputs=p, generator=generator)
        return net, f"W ~ N(0, 1/m), A = I, {seed}"
    net = _certified_scale(X, Y, width, options.seed, facts, unmerged)
    return net, f"W ~ N(0, β²/m), A = β I, scale β = {float(net.A.detach()[0, 0]):.4g}, {seed}"


def _of_file(path: Path, gamma: float | None) -> ImplicitReLU:
    """The network of a safetensors file."""
    stored = weights_of_file(path)
    missing = [name for name in ("W", "A", "b") if name not in stored]
    if missing:
        raise RunDirectoryError(f"{path}: {missing[0]} is not among {', '.join([*stored][:6])}")
    held = stored.get("gamma", stored.get("_extra_state"))  # of a run, or of a state_dict
    own = gamma if held is None else float(held)
    if own is None:
        raise ValueError(f"{path} has no gamma; give it by --gamma")
    if gamma is not None and gamma != own:
        raise ValueError(f"--gamma is {gamma:g} and that of {path} is {own:g}; leave --gamma out")
    return ImplicitReLU(stored["W"], stored["A"], stored["b"], own)


def _put(net: ImplicitReLU, path: Path) -> None:
    """The weights of a run into a network."""
    stored = weights_of_file(path)
    with torch.no_grad():
        for name, weight in net.named_parameters():
            weight.copy_(stored[name].reshape(weight.shape))


def _certified_scale(X: Tensor, Y: Tensor, width: int, seed: int, facts: dict[str, Any], unmerged: str) -> ImplicitReLU:
    """A network at the scale that makes the theorem hold."""
    if unmerged:
        raise NoCertificate(
            f"{unmerged}. The network is positively homogeneous, so that its features have no full row rank there and no "
            "certificate can hold: pass --merge, which merges such rows and leaves the gradient of the loss as it is",
            facts,
        )
    try:
        return ImplicitReLU.certifiable(X, Y, width, seed=seed)
    except NotCertifiable as error:
        advice = "the options are --width, --samples and --inputs; --gamma 0.5 trains without a certificate"
        raise NoCertificate(f"{error} ({advice})", facts) from error


def _advice(options: Implicit, N: int, width: int, unmerged: str) -> str:
    """Which options to change where the theorem fails."""
    if options.moving:
        return ""
    if unmerged:
        return "pass --merge: no certificate holds with duplicate, parallel or all-zero rows"
    if width < N:
        return f"the features of {N} rows need at least as many units: use --width {2 * N} or more, or fewer --samples"
    if options.theorem not in (None, ImplicitSystem.default_theorem):
        return f"leave out --theorem: {ImplicitSystem.default_theorem} asks for far less"
    if options.gamma is not None:
        wide = f"use --width {2 * N} or more, and " if width < 2 * N else ""
        return (
            f"{wide}leave out --gamma: it and the scale of the weights are then chosen so that the theorem holds before "
            "the first step"
        )
    return ""


def trained_network(options: Train) -> Built:
    """The network after its optimiser and its finish."""
    check_rate(options.learning_rate)
    at_least_one("--optimizer-steps", options.optimizer_steps)
    if not options.moving and not {options.optimizer, options.finish} <= {"auto", "none"}:
        raise ValueError(
            f"--optimizer and --finish go with --theorem {' or '.join(NEAR_A_FIT)}: the others ask for features that stay put"
        )
    prepared = built(options)
    if not options.moving:
        return prepared
    net, shown = prepared.net, shown_of_implicit
    assert isinstance(net, ImplicitReLU)
    if options.resume:
        return resumed(prepared, shown, options.out, partial(_put, net))
    optimizer = {"auto": "adam"}.get(options.optimizer, options.optimizer)
    train = None
    if options.weights is None and optimizer != "none":
        method = METHODS[optimizer]
        rate = method.rate if options.learning_rate is None else options.learning_rate
        every, progress = math.ceil(options.optimizer_steps / LOOKS), not options.quiet
        train = partial(fit, net, prepared.loss, optimizer, rate, options.optimizer_steps, every, progress)
    finishing = None
    if options.finish != "none":
        finishing = Finish(GaussNewton.name, partial(finish, net, prepared.loss, GaussNewton()))
    return trained(prepared, shown, train, optimizer, finishing, GaussNewton.name)


def show(run: Run, screen: Screen) -> None:
    """How far the features moved."""
    first, last = run.rows[0], run.measured_rows[-1]
    moved = relative_movement(run)
    items = {
        "movement": f"at most {number(moved, 3, 'up')} of their norm",
        "contraction": f"γ‖A‖ at most {number(first['contraction'], towards='up')} → {number(last['contraction'], towards='up')}",
    }
    if run.certificate.theorem in NEAR_A_FIT:
        items["movement"] += " in this run"
        items["meaning"] = MEANING
    elif moved is not None and moved < HARDLY:
        what = "what converged" if run.certified else "what was trained"
        items["meaning"] = f"{what} is in effect a linear readout of random equilibrium features"
    screen.heading("Features")
    screen.pairs(items)
