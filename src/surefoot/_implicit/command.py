"""The commands ``certify implicit`` and ``train implicit``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor
from tyro.conf import arg

from surefoot_check.implicit import exact_fit

from .._cli.built import Built, Question, at_least_one, check_seed
from .._cli.errors import NoCertificate
from .._cli.options import certify_exits, train_exits
from .._cli.screen import Screen, number
from .._cli.training import Certifying, Training
from .._cli.watched import LONGEST, Finish, check_rate, resumed, trained, weights_of_file
from .._core.io import RunDirectoryError
from .._core.near_a_fit.finish import finish
from .._core.near_a_fit.steps import GaussNewton
from .._core.near_a_fit.training import METHODS, fit
from .._core.refusals import NotCertifiable
from .._core.run import Run
from .._core.samples import SampleLoss
from .._report.training import HARDLY
from .command_samples import Drawn, load_samples
from .command_samples import shown as shown_of_implicit
from .equilibrium import dead_units
from .near import NEAR_A_FIT
from .network import ImplicitReLU
from .report import MEANING
from .system import ImplicitSystem

LOOKS = 10
"""So many along the training."""
GAMMA = 0.3
"""γ by default where features move."""


@dataclass(frozen=True, kw_only=True)
class Implicit(Drawn, Question):
    """Which rows of which data, which initial weights, which theorem."""

    system: ClassVar[str] = "implicit"
    width: Annotated[
        int | None,
        arg(
            metavar="INT",
            help="Width m. Certificates need at least as many units as rows; 2 to 4 times as many do well.",
            help_behavior_hint="(default: 4 x rows but at most 2000; where features stay put at least the inputs)",
        ),
    ] = None
    gamma: Annotated[
        float | None,
        arg(
            metavar="FLOAT",
            help="Weight of the fixed-point equation, below 1: the initial weights are then those of the paper, "
            "W ~ N(0, 1/m), A = I, b = 0, which no theorem covers at usual sizes. Of implicit/local and implicit/exact-fit they "
            "are W ~ N(0, 1/4), A ~ N(0, 1/4m), b = 0, from which features are learned.",
            help_behavior_hint="(default: gamma and the scale of W and A are chosen so that the default theorem holds; of "
            f"implicit/local and implicit/exact-fit {GAMMA:g})",
        ),
    ] = None
    weights: Annotated[
        str | None,
        arg(
            metavar="FILE",
            help="Weights of the network: a safetensors file of its state_dict, or of a run, such as RUN/final.safetensors.",
            help_behavior_hint="(default: drawn)",
        ),
    ] = None
    seed: Annotated[int, arg(metavar="INT")] = 0
    """Seed of the drawn rows and the initial weights."""
    theorem: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: implicit/spectral)")] = None
    """Theorem to evaluate; `surefoot list` names them."""

    @property
    def moving(self) -> bool:
        """Whether the theorem is one of weights whose features have moved."""
        return self.theorem in NEAR_A_FIT

    def build(self) -> Built:
        return _built(self)


@certify_exits("it does not, or no scale of the weights makes it hold")
@dataclass(frozen=True, kw_only=True)
class Certify(Certifying, Implicit):
    """Evaluate a theorem on an infinite-depth ReLU network, z = relu(γzA + relu(xW)), ŷ = zb. Nothing is trained."""


@train_exits("no guarantee (at any scale, or with --require-certificate)", "diverged, collapsed, ill posed or stuck")
@dataclass(frozen=True, kw_only=True)
class Train(Training, Implicit):
    """Certify, train, audit and evaluate an infinite-depth ReLU network, z = relu(γzA + relu(xW)), ŷ = zb."""

    optimizer: Annotated[
        Literal["auto", "adam", "lbfgs", "sgd", "none"],
        arg(
            help="What trains the network, features and all, on all rows, until a fit is guaranteed, with --theorem "
            "implicit/local or implicit/exact-fit; not with --weights. auto is adam with these, else none."
        ),
    ] = "auto"
    learning_rate: Annotated[
        float | None,
        arg(
            metavar="FLOAT",
            help="Its learning rate.",
            help_behavior_hint="(default: 1e-3; lbfgs: 1; sgd: 1e-4)",
        ),
    ] = None
    optimizer_steps: Annotated[int, arg(metavar="INT")] = 200
    """Limit on its steps."""
    finish: Annotated[
        Literal["auto", "gauss-newton", "none"],
        arg(
            help=f"What goes on from there towards an exact fit until one is guaranteed, for at most {LONGEST} steps. auto is "
            "gauss-newton with --theorem implicit/local or implicit/exact-fit, else none."
        ),
    ] = "auto"
    tolerance: Annotated[float, arg(metavar="FLOAT")] = 1e-3
    """Stop at this loss, relative to the initial loss."""

    def build(self) -> Built:
        check_rate(self.learning_rate)
        at_least_one("--optimizer-steps", self.optimizer_steps)
        if not self.moving and not {self.optimizer, self.finish} <= {"auto", "none"}:
            raise ValueError(
                f"--optimizer and --finish go with --theorem {' or '.join(NEAR_A_FIT)}: the others ask for features that stay put"
            )
        built = _built(self)
        if not self.moving:
            return built
        net, shown = built.net, shown_of_implicit
        assert isinstance(net, ImplicitReLU)
        if self.resume:
            return resumed(built, shown, self.out, partial(_put, net))
        optimizer = {"auto": "adam"}.get(self.optimizer, self.optimizer)
        train = None
        if self.weights is None and optimizer != "none":
            method = METHODS[optimizer]
            rate = method.rate if self.learning_rate is None else self.learning_rate
            every, progress = math.ceil(self.optimizer_steps / LOOKS), not self.quiet
            train = partial(fit, net, built.loss, optimizer, rate, self.optimizer_steps, every, progress)
        finishing = None
        if self.finish != "none":
            finishing = Finish(GaussNewton.name, partial(finish, net, built.loss, GaussNewton()))
        return trained(built, shown, train, optimizer, finishing, GaussNewton.name)

    def show(self, run: Run, screen: Screen) -> None:
        """How far the features moved."""
        first, last = run.rows[0], run.measured_rows[-1]
        moved = _relative_movement(run)
        items = {
            "movement": f"at most {number(moved, 3)} of their norm",
            "contraction": f"γ‖A‖ at most {number(first['contraction'])} → {number(last['contraction'])}",
        }
        if run.certificate.theorem in NEAR_A_FIT:
            items["movement"] += " in this run"
            items["meaning"] = MEANING
        elif moved is not None and moved < HARDLY:
            what = "what converged" if run.certified else "what was trained"
            items["meaning"] = f"{what} is in effect a linear readout of random equilibrium features"
        screen.heading("Features")
        screen.pairs(items)

    def measured(self, run: Run) -> dict[str, Any]:
        return {"feature_movement": _relative_movement(run)}


def _relative_movement(run: Run) -> float | None:
    """Largest distance of the features to the first ones, per norm of those; ``None`` if that is 0."""
    norm = run.config["data"]["feature_norm"]
    return max(row["feature_movement"] for row in run.measured_rows) / norm if norm > 0.0 else None


def _built(options: Implicit) -> Built:
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
