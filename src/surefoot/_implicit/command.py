"""The commands ``certify implicit`` and ``train implicit``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor
from tyro.conf import arg

from .._cli.built import Built, Question, at_least_one, check_seed
from .._cli.errors import NoCertificate
from .._cli.options import certify_exits, train_exits
from .._cli.screen import Screen, number
from .._cli.training import Certifying, Training
from .._core.refusals import NotCertifiable
from .._core.run import Run
from .._core.samples import SampleLoss
from .command_samples import Drawn, load_samples, shown
from .equilibrium import dead_units
from .network import ImplicitReLU
from .report import HARDLY
from .system import ImplicitSystem


@dataclass(frozen=True, kw_only=True)
class Implicit(Drawn, Question):
    """Which rows of which data, which initial weights, which theorem."""

    system: ClassVar[str] = "implicit"
    width: Annotated[
        int | None,
        arg(
            metavar="INT",
            help="Width m. Certificates need at least as many units as rows; 2 to 4 times as many do well.",
            help_behavior_hint="(default: 4 x rows but at most 2000, and at least the inputs)",
        ),
    ] = None
    gamma: Annotated[
        float | None,
        arg(
            metavar="FLOAT",
            help="Weight of the fixed-point equation, below 1: the initial weights are then those of the paper, "
            "W ~ N(0, 1/m), A = I, b = 0, which no theorem covers at usual sizes.",
            help_behavior_hint="(default: gamma and the scale of W and A are chosen so that the default theorem holds)",
        ),
    ] = None
    seed: Annotated[int, arg(metavar="INT")] = 0
    """Seed of the drawn rows and the initial weights."""
    theorem: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: implicit/spectral)")] = None
    """Theorem to evaluate; `surefoot list` names them."""

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

    steps: Annotated[
        str | None,
        arg(
            metavar="RULE|FLOAT",
            help="Step rule, or a number for a constant step; `surefoot list` names the rules. certified-constant takes "
            "the step of the certificate, and steps that lower the loss (Armijo's rule) while none holds.",
        ),
    ] = "certified-constant"
    tolerance: Annotated[float, arg(metavar="FLOAT")] = 1e-3
    """Stop at this loss, relative to the initial loss."""

    def show(self, run: Run, screen: Screen) -> None:
        """How far the features moved."""
        first, last = run.rows[0], run.measured_rows[-1]
        moved = _relative_movement(run)
        items = {
            "movement": f"at most {number(moved, 3)} of their norm",
            "contraction": f"γ‖A‖ at most {number(first['contraction'])} → {number(last['contraction'])}",
        }
        if moved is not None and moved < HARDLY:
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
    samples = load_samples(options, unit=options.gamma is not None, seed=options.seed)
    X, Y = samples.table.train.X, samples.table.train.Y
    assert isinstance(X, Tensor) and Y is not None
    (N, d), p = X.shape, Y.shape[1]
    width = options.width if options.width is not None else max(min(4 * N, 2000), d)
    facts = {**samples.table.facts, "n": d, "m": p, "width": width, "seed": options.seed, "loss": "squared"}
    if options.gamma is None:
        net = _certified_scale(X, Y, width, options.seed, facts, samples.unmerged)
    else:
        generator = torch.Generator().manual_seed(options.seed)
        net = ImplicitReLU.paper(d, width, options.gamma, outputs=p, generator=generator)
    scale = float(net.A.detach()[0, 0])
    equilibrium = net.equilibrium(X)
    weights = "W ~ N(0, 1/m), A = I" if options.gamma is not None else f"W ~ N(0, β²/m), A = β I, scale β = {scale:.4g}"
    facts |= {
        "network": f"z = relu(γ z A + relu(x W)), ŷ = z b; width {width:,}, γ = {net.gamma:.4g}; {weights}, b = 0, "
        f"seed {options.seed}",
        "gamma": net.gamma,
        "scale": scale,
        "contraction": net.gamma * net.norm_A(),
        "dead_units": len(dead_units(equilibrium.Z)),
        "feature_norm": float(torch.linalg.vector_norm(equilibrium.Z)),
    }
    faster = (
        "; fewer --samples need fewer" if facts["inputs"] == "whiten" else "; --inputs whiten usually needs far fewer"
    )
    advice = _advice(options, N, width, samples.unmerged)
    return Built(net, SampleLoss(X, Y), facts, samples.table, shown(facts), advice, faster)


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
