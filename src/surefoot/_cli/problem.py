"""From options to loss and network, and the evaluation on held-out rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .._core.losses import LinearMapLoss, Loss, SquaredLoss
from .._core.samples import SampleLoss
from .._core.softmax import SoftmaxRegression
from .._implicit.equilibrium import dead_units
from .._implicit.network import ImplicitReLU
from .._implicit.scale import NotCertifiable
from .._implicit.system import ImplicitSystem
from .._linear_resnet.network import LinearResNet, sufficient_alpha
from .._two_layer.network import TwoLayerLinear
from . import options as given
from .errors import NoCertificate
from .rows import Table, load
from .samples import load_samples


@dataclass(frozen=True)
class Problem:
    """A problem as built from options.

    Attributes:
        net: the network with its initial weights.
        loss: of the train rows.
        facts: what the certificate will speak of, in plain values.
        table: the rows.
        advice: which options to change where the theorem fails; empty for the certificate's own suggestion.
        faster: which options lower the guaranteed number of iterations, as the end of a sentence.
    """

    net: nn.Module
    loss: Loss
    facts: dict[str, Any]
    table: Table
    advice: str = ""
    faster: str = ""

    def evaluate(self) -> dict[str, float]:
        """Quality of the network on the held-out rows, with that of a linear map's optimum; empty without such rows."""
        held_out = self.table.held_out
        if held_out is None:
            return {}
        X = held_out.X
        assert isinstance(X, Tensor)
        with torch.no_grad():
            outputs = {"": self.net(X).reshape(len(X), -1)}
            if isinstance(self.loss, LinearMapLoss):
                outputs["optimum_"] = X @ self.loss.optimum
        scores: dict[str, float] = {"test_rows": len(X)}
        for prefix, output in outputs.items():
            if self.table.classes is not None:
                assert held_out.labels is not None
                predicted = self.table.predicted(output)
                scores[f"{prefix}test_accuracy"] = float((predicted == held_out.labels).double().mean())
            else:
                assert held_out.Y is not None
                error = output - held_out.Y
                spread = held_out.Y - held_out.Y.mean(0)
                scores[f"{prefix}test_rmse"] = float((error**2).mean().sqrt())
                if float((spread**2).sum()) > 0.0:
                    scores[f"{prefix}test_r2"] = 1.0 - float((error**2).sum() / (spread**2).sum())
        return scores


def build(options: given.TwoLayer | given.LinearResNet | given.Implicit) -> Problem:
    """Load, scale, and set the initial weights.

    Raises:
        ValueError: data that cannot be used this way, or options that contradict each other.
        NoCertificate: weights that are certified from the start were asked for, and there are none.
    """
    if not -(2**63) <= options.seed < 2**64:
        raise ValueError(f"--seed is {options.seed}; it must fit into 64 bits")
    if isinstance(options, given.TwoLayer):
        return _two_layer(options)
    return _linear_resnet(options) if isinstance(options, given.LinearResNet) else _implicit(options)


def _two_layer(options: given.TwoLayer) -> Problem:
    if options.l2 is not None and options.loss != "softmax":
        raise ValueError("--l2 belongs to --loss softmax; leave it out, or choose that loss")
    table = load(options, labels=options.loss == "softmax")
    loss: LinearMapLoss
    if options.loss == "softmax":
        assert table.classes is not None and table.train.labels is not None
        l2 = 1e-3 if options.l2 is None else options.l2
        labels = torch.searchsorted(table.classes, table.train.labels)
        loss = SoftmaxRegression(table.train.X, labels, l2, len(table.classes))
    else:
        loss = SquaredLoss(table.train.X, table.train.Y)
    n, m = loss.shape
    width = options.width if options.width is not None else max(1000, 2 * (n + m))
    at_least_one("--width", width)
    std = options.std if options.std is not None else width**-0.5
    net = TwoLayerLinear.gaussian(n, m, width, std=std, seed=options.seed)
    facts = {
        **_facts(table, loss, options.loss),
        "network": f"X W1 W2ᵀ, width {width:,}, weights N(0, {std:.3g}²), seed {options.seed}",
        "width": width,
        "std": std,
        "seed": options.seed,
    }
    return Problem(net, loss, facts, table)


def _linear_resnet(options: given.LinearResNet) -> Problem:
    transform = options.transform
    for name, value, owner in (
        ("alpha", options.alpha, "modified-identity"),
        ("scaling", options.scaling, "gaussian"),
    ):
        if value is not None and transform != owner:
            raise ValueError(f"--{name} belongs to --transform {owner}; leave it out, or choose that transform")
    at_least_one("--depth", options.depth)
    table = load(options)
    loss = SquaredLoss(table.train.X, table.train.Y)
    d, k = loss.shape
    default = max(1000, 2 * (d + k)) if transform == "gaussian" else d + k
    width = options.width if options.width is not None else default
    at_least_one("--width", width)
    own: dict[str, Any] = {}
    if transform == "gaussian":
        scaling = options.scaling or "fan"
        net = LinearResNet.gaussian(d, k, width, options.depth, scaling, seed=options.seed)
        own = {"scaling": scaling, "seed": options.seed}
        shown = f"gaussian ({scaling}), seed {options.seed}"
    elif transform == "identity":
        net = LinearResNet.identity(d, k, width, options.depth)
        shown = transform
    else:
        alpha = _alpha(options.alpha, loss)
        net = LinearResNet.modified_identity(d, k, width, options.depth, alpha)
        own = {"alpha": alpha}
        shown = f"{transform}, α = {alpha:.6g}"
    facts = {
        **_facts(table, loss, "squared"),
        "network": f"B (I+W_L) … (I+W_1) A x, depth {options.depth:,}, width {width:,}, W = 0; A and B {shown}",
        "depth": options.depth,
        "width": width,
        "transform": transform,
        **own,
    }
    return Problem(net, loss, facts, table)


def _implicit(options: given.Implicit) -> Problem:
    if options.width is not None:
        at_least_one("--width", options.width)
    if options.gamma is not None and not 0.0 < options.gamma < 1.0:
        below = f", and gamma ||A|| = {options.gamma:g} with A = I" if options.gamma >= 1.0 else ""
        raise ValueError(
            f"--gamma is {options.gamma:g}{below}; it must lie strictly between 0 and 1, so that gamma ||A|| < 1 and the "
            "equilibrium exists"
        )
    samples = load_samples(options)
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
    found = net.equilibrium(X)
    weights = "W ~ N(0, 1/m), A = I" if options.gamma is not None else f"W ~ N(0, β²/m), A = β I, scale β = {scale:.4g}"
    facts |= {
        "network": f"z = relu(γ z A + relu(x W)), ŷ = z b; width {width:,}, γ = {net.gamma:.4g}; {weights}, b = 0, "
        f"seed {options.seed}",
        "gamma": net.gamma,
        "scale": scale,
        "contraction": net.gamma * net.norm_A(),
        "dead_units": len(dead_units(found.Z)),
        "feature_norm": float(torch.linalg.vector_norm(found.Z)),
    }
    faster = (
        "; fewer --samples need fewer" if facts["inputs"] == "whiten" else "; --inputs whiten usually needs far fewer"
    )
    advice = _advice(options, N, width, samples.unmerged)
    return Problem(net, SampleLoss(X, Y), facts, samples.table, advice, faster)


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


def _advice(options: given.Implicit, N: int, width: int, unmerged: str) -> str:
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


def _alpha(alpha: str | None, loss: SquaredLoss) -> float:
    """α as a number; any will do where zero weights are optimal already."""
    if alpha is None or alpha == "sufficient":
        return sufficient_alpha(loss) or 1.0
    try:
        return float(alpha)
    except ValueError:
        raise ValueError(f"--alpha is {alpha!r}; it must be a positive number or 'sufficient'") from None


def _facts(table: Table, loss: LinearMapLoss, name: str) -> dict[str, Any]:
    """Of rows and loss: n inputs, m outputs."""
    n, m = loss.shape
    condition = loss.smoothness / loss.strong_convexity if loss.strong_convexity > 0.0 else None
    rank = loss.reduced.shape[0]
    return {**table.facts, "n": n, "m": m, "rank": rank, "loss": name, "condition_number": condition}


def at_least_one(option: str, value: int) -> None:
    """Raise ``ValueError``, with the option as the user types it, for a count below 1."""
    if value < 1:
        raise ValueError(f"{option} is {value}; it must be at least 1")
