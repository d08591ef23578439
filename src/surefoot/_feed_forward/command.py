"""The commands ``certify feed-forward`` and ``train feed-forward``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from tyro.conf import arg

from surefoot_check.feed_forward.activations import ACTIVATIONS

from .._cli.built import Built, Question, at_least_one, check_seed
from .._cli.options import Rows, certify_exits, train_exits
from .._cli.rows import held_out, inputs, load
from .._cli.screen import number
from .._cli.training import Certifying, Training
from .._core.io import RunDirectoryError, read_tensors
from .._core.losses import SquaredLoss
from .modules import BY_CODE, layers_of, weights_of
from .training import fit

NAMES = {ACTIVATIONS[code].name.lower().replace(" ", "-"): code for code in BY_CODE}
"""Codes of activations by their names on the command line."""


@dataclass(frozen=True, kw_only=True)
class FeedForward(Rows, Question):
    """Which rows of which data, which network, which weights, which theorem."""

    system: ClassVar[str] = "feed-forward"
    samples: Annotated[
        int, arg(metavar="INT", help="Rows to fit, drawn from the train rows; all, if there are fewer.")
    ] = 50
    hidden: Annotated[str, arg(metavar="INT[,...]", help="Widths of the hidden layers.")] = "100,100"
    activation: Annotated[
        Literal["tanh", "sigmoid", "softplus", "silu", "gelu", "elu", "relu", "leaky-relu", "hard-tanh"],
        arg(help="What lies behind each hidden layer, with torch's settings."),
    ] = "tanh"
    weights: Annotated[
        str | None,
        arg(
            metavar="FILE",
            help="Weights of the network, a safetensors file of its state_dict, or of a run.",
            help_behavior_hint="(default: torch's initial ones)",
        ),
    ] = None
    seed: Annotated[int, arg(metavar="INT")] = 0
    """Seed of the drawn rows and the initial weights."""
    theorem: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: feed-forward/local)")] = None
    """Theorem to evaluate; `surefoot list` names them."""

    def build(self) -> Built:
        return _built(self)


@certify_exits()
@dataclass(frozen=True, kw_only=True)
class Certify(Certifying, FeedForward):
    """Evaluate a theorem on a plain network, linear layers with an activation between them. Nothing is trained."""


@train_exits()
@dataclass(frozen=True, kw_only=True)
class Train(Training, FeedForward):
    """Train a plain network by an optimiser until an exact fit is guaranteed; then certify, descend to it, audit and evaluate."""

    optimizer: Annotated[
        Literal["adam", "lbfgs", "sgd"],
        arg(help="What trains the network, on all rows, until a fit is guaranteed; not with --weights."),
    ] = "adam"
    learning_rate: Annotated[
        float | None, arg(metavar="FLOAT", help_behavior_hint="(default: 1e-3; lbfgs: 1; sgd: 1e-4)")
    ] = None
    """Its learning rate."""
    optimizer_steps: Annotated[int, arg(metavar="INT", help="Limit on its steps.")] = 10_000

    def build(self) -> Built:
        built = _built(self)
        if self.learning_rate is not None and not 0.0 < self.learning_rate < math.inf:
            raise ValueError(f"--learning-rate is {self.learning_rate}; it must be a positive number")
        at_least_one("--optimizer-steps", self.optimizer_steps)
        assert isinstance(built.net, nn.Sequential)
        if self.resume:  # what was trained before is where the run began
            _put(built.net, Path(self.out) / "initial.safetensors")
        elif self.weights is None:
            done = fit(built.net, built.loss, self.optimizer, self.learning_rate, self.optimizer_steps)
            built.facts["trained"] = f"{done.steps:,} steps of {self.optimizer}, margin {number(done.seen.margin)}"
            return Built(built.net, built.loss, built.facts, built.table, _shown(built.facts))
        return built


def _built(options: FeedForward) -> Built:
    check_seed(options.seed)
    at_least_one("--samples", options.samples)
    table = load(options)
    X, Y = table.train.X, table.train.Y
    assert isinstance(X, Tensor) and Y is not None
    rows = (
        torch.randperm(len(X), generator=torch.Generator().manual_seed(options.seed))[: options.samples].sort().values
    )
    loss = SquaredLoss(X[rows], Y[rows])
    widths = [X.shape[1], *_widths(options.hidden), Y.shape[1]]
    net = _network(widths, options.activation, options.seed)
    if options.weights is not None:
        _put(net, Path(options.weights))
    p = sum(parameter.numel() for parameter in net.parameters())
    facts = {
        **table.facts,
        "drawn_rows": len(rows),
        "n": widths[0],
        "m": widths[-1],
        "loss": "squared",
        "parameters": p,
        "network": f"{'-'.join(map(str, widths))} {options.activation}, {p:,} parameters, "
        + (f"weights of {options.weights}" if options.weights is not None else f"seed {options.seed}"),
        "seed": options.seed,
    }
    return Built(net, loss, facts, table, _shown(facts))


def _widths(text: str) -> list[int]:
    try:
        widths = [int(part) for part in text.split(",")]
    except ValueError:
        widths = []
    if not widths or min(widths) < 1:
        raise ValueError(f"--hidden is {text!r}; give the widths of the hidden layers, for example 100,100")
    return widths


def _network(widths: list[int], activation: str, seed: int) -> nn.Sequential:
    """With torch's initial weights."""
    kind = BY_CODE[NAMES[activation]]
    modules: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for index in range(len(widths) - 1):
            modules += [nn.Linear(widths[index], widths[index + 1], dtype=torch.float64), kind.module()]
    return nn.Sequential(*modules[:-1])


def _put(net: nn.Sequential, path: Path) -> None:
    """The weights of a file into a network: those of its state_dict, or of the files of a run."""
    if path.suffix in (".pt", ".pth", ".bin", ".ckpt"):
        raise ValueError(
            f"{path} may hold a pickle, which is never read; convert it once: import torch; from safetensors.torch import "
            f"save_file; save_file(torch.load({str(path)!r}, weights_only=True), {str(path.with_suffix('.safetensors'))!r})"
        )
    stored, places = read_tensors(path), weights_of(layers_of(net))
    names = dict(zip(places, (name for name, _ in net.named_parameters()), strict=True))
    found: dict[str, Any] = {ours: stored.get(theirs, stored.get(ours)) for ours, theirs in names.items()}
    for name, place in places.items():
        given = found[name]
        if given is None or given.shape != place.shape:
            shape = "is missing" if given is None else f"has shape {tuple(given.shape)}"
            raise RunDirectoryError(
                f"{path}: {names[name]} {shape}, and the network needs {tuple(place.shape)}; "
                "give the --hidden and the data of these weights"
            )
    with torch.no_grad():
        for name, place in places.items():
            place.copy_(found[name])


def _shown(facts: dict[str, Any]) -> dict[str, str]:
    items = {
        "rows": f"{facts['drawn_rows']:,} drawn of {facts['train_rows']:,} to train on{held_out(facts)}",
        "inputs": inputs(facts),
        "targets": f"{facts['m']:,} {facts['targets'] if facts['m'] > 1 else 'number'}",
        "network": facts["network"],
    }
    if "trained" in facts:
        items["trained"] = facts["trained"]
    if facts["prepared"]:
        items["prepared"] = facts["prepared"]
    return items
