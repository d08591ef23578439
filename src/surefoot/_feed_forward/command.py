"""The commands ``certify feed-forward`` and ``train feed-forward``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from tyro.conf import arg

from surefoot_check.feed_forward import exact_fit, minimum

from .._cli.built import Built, Question, at_least_one, check_seed
from .._cli.options import Batched, Rows, certify_exits, train_exits
from .._cli.rows import Table, held_out, inputs, load
from .._cli.screen import Screen, number
from .._cli.training import Certifying, Training
from .._cli.watched import LONGEST, Finish, check_rate, resumed, trained, weights_of_file
from .._core.io import RunDirectoryError
from .._core.losses import Loss, SquaredLoss
from .._core.run import Run
from .drawn import drawn_network
from .loss import NetworkLoss
from .modules import layers_of, weights_of
from .newton import finish as finished
from .objective import NetworkObjective, TorchLoss
from .steps import GaussNewton, Newton
from .system import FeedForwardSystem
from .training import fit

DEFAULTS = {False: (50, "100,100", 10_000), True: (200, "16", 2_000)}
"""Rows, hidden layers and steps of the optimiser: of an exact fit, and of a minimum, whose Hessian has an entry for each two
weights, and to which Newton's method goes from there."""
FINISHES = {rule.name: rule for rule in (GaussNewton, Newton)}
OF_LAYER = re.compile(r"[Wb][0-9]+|[0-9]+\.(weight|bias)")
"""Names of weights in files."""
DECAY = 1e-3
"""Weight decay of mse and cross-entropy by default."""


@dataclass(frozen=True, kw_only=True)
class FeedForward(Batched, Rows, Question):
    """Which rows of which data, which network, which weights, which theorem."""

    system: ClassVar[str] = "feed-forward"
    loss: Annotated[
        Literal["squared", "mse", "cross-entropy"],
        arg(
            help="squared: ½‖f(X) - Y‖², to be fitted exactly. mse, cross-entropy: torch's mean over the rows, with a weight "
            "decay, of which a strict local minimum is sought; mse with a decay of 0 is fitted exactly."
        ),
    ] = "squared"
    weight_decay: Annotated[
        float | None,
        arg(
            metavar="FLOAT",
            help="Adds ½ FLOAT ‖weights and biases‖², as torch's SGD does.",
            help_behavior_hint=f"(default: {DECAY:g} with mse and cross-entropy)",
        ),
    ] = None
    samples: Annotated[
        int | None,
        arg(
            metavar="INT",
            help="Rows to fit, drawn from the train rows; all, if there are fewer.",
            help_behavior_hint=f"(default: {DEFAULTS[False][0]}, or {DEFAULTS[True][0]} with a weight decay)",
        ),
    ] = None
    hidden: Annotated[
        str | None,
        arg(
            metavar="INT[,...]",
            help="Widths of the hidden layers.",
            help_behavior_hint=f"(default: {DEFAULTS[False][1]}, or {DEFAULTS[True][1]} with a weight decay)",
        ),
    ] = None
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
    """Seed of the drawn rows, the initial weights and the batches."""
    theorem: Annotated[
        str | None,
        arg(
            metavar="NAME",
            help="Theorem to evaluate; `surefoot list` names them.",
            help_behavior_hint="(default: feed-forward/local; with --batch feed-forward/sgd, with a weight decay "
            "feed-forward/minimum)",
        ),
    ] = None

    @property
    def decay(self) -> float:
        """The weight decay."""
        given = self.weight_decay
        if given is None:
            return 0.0 if self.loss == "squared" else DECAY
        if self.loss == "squared" and given != 0.0:
            raise ValueError("--weight-decay goes with --loss mse or cross-entropy; --loss squared is fitted exactly")
        if not 0.0 <= given < math.inf:
            raise ValueError(f"--weight-decay is {given}; it must be 0 or a positive number")
        return given

    @property
    def seeks_minimum(self) -> bool:
        """Whether a minimum is sought rather than an exact fit."""
        return self.loss == "cross-entropy" or self.decay > 0.0

    def build(self) -> Built:
        return _built(self)


@certify_exits()
@dataclass(frozen=True, kw_only=True)
class Certify(Certifying, FeedForward):
    """Evaluate a theorem on a plain network, linear layers with an activation between them: is an exact fit near, or, with a
    weight decay, has the training converged to a minimum? Nothing is trained."""


@train_exits()
@dataclass(frozen=True, kw_only=True)
class Train(Training, FeedForward):
    """Train a plain network by an optimiser until an exact fit is guaranteed, or, with a weight decay, to a minimum; then
    certify, descend, audit and evaluate."""

    optimizer: Annotated[
        Literal["auto", "adam", "lbfgs", "sgd"],
        arg(
            help="What trains the network, on all rows, until a fit or a minimum is guaranteed; not with --weights. auto is "
            "lbfgs with a weight decay, else adam."
        ),
    ] = "auto"
    learning_rate: Annotated[
        float | None,
        arg(
            metavar="FLOAT",
            help="Its learning rate.",
            help_behavior_hint="(default: 1e-3; lbfgs: 1; sgd: 1e-4 for the squared loss, which is a sum, and 0.1 for a mean)",
        ),
    ] = None
    optimizer_steps: Annotated[
        int | None,
        arg(
            metavar="INT",
            help="Limit on its steps.",
            help_behavior_hint=f"(default: {DEFAULTS[False][2]}, or {DEFAULTS[True][2]} with a weight decay)",
        ),
    ] = None
    finish: Annotated[
        Literal["auto", "gauss-newton", "newton", "none"],
        arg(
            help=f"What goes on from there, for at most {LONGEST} steps: gauss-newton towards an exact fit, newton towards a "
            "minimum. auto is newton with a weight decay, else none."
        ),
    ] = "auto"

    def build(self) -> Built:
        check_rate(self.learning_rate)
        steps = DEFAULTS[self.seeks_minimum][2] if self.optimizer_steps is None else self.optimizer_steps
        at_least_one("--optimizer-steps", steps)
        built = _built(self)
        net = built.net
        assert isinstance(net, nn.Sequential)
        fits = isinstance(FeedForwardSystem().problem(net, built.loss), NetworkLoss)
        goal = "gauss-newton" if fits else "newton"
        finish = {"auto": "none" if fits else goal}.get(self.finish, self.finish)
        for option, name in (("--finish", finish), ("--steps", self.steps)):
            if name in FINISHES and name != goal:
                raise ValueError(f"{option} {name} does not go with --loss {self.loss}; take {option} {goal}")
        if self.resume:
            return resumed(built, _shown, self.out, partial(_put, net))
        optimizer = {"auto": "lbfgs" if self.seeks_minimum else "adam"}.get(self.optimizer, self.optimizer)
        train = partial(fit, net, built.loss, optimizer, self.learning_rate, steps, progress=not self.quiet)
        finishing = None
        if finish != "none":
            take = partial(finished, net, built.loss, FINISHES[finish]())
            finishing = Finish(finish, take) if fits else Finish(finish, take, "gradient", whole=True)
        return trained(built, _shown, None if self.weights is not None else train, optimizer, finishing, goal)

    def show(self, run: Run, screen: Screen) -> None:
        """How far above its value at the minimum the objective was where the run began."""
        above = run.certificate.quantities.get("loss_gap")
        if above is None or not run.certificate.holds:
            return
        reached = "reached as far as float64 can tell; " if run.gaps and run.gaps[0] <= run.resolution else ""
        screen.say(
            f"  minimum: {reached}the objective of the certified weights is at most {number(above)} above its value there"
        )


def _built(options: FeedForward) -> Built:
    check_seed(options.seed)
    samples, hidden, _ = DEFAULTS[options.seeks_minimum]
    samples = samples if options.samples is None else options.samples
    at_least_one("--samples", samples)
    classes = options.loss == "cross-entropy"
    table = load(options, options.loss if classes else "")
    drawn = torch.randperm(len(table.train.X), generator=torch.Generator().manual_seed(options.seed))
    rows = drawn[:samples].sort().values
    loss, outputs = _loss(options, table, rows)
    assert isinstance(table.train.X, Tensor)
    widths = [table.train.X.shape[1], *_widths(options.hidden or hidden), outputs]
    net = drawn_network(widths, options.activation, options.seed)
    drawing = options.drawing(options.seed)
    if drawing is not None:
        loss = FeedForwardSystem().drawn(net, loss, None, drawing)
    p = sum(parameter.numel() for parameter in net.parameters())
    minimal = isinstance(FeedForwardSystem().problem(net, loss), NetworkObjective)
    if options.theorem is not None and minimal != (options.theorem == minimum.THEOREM.id):
        other = "squared" if minimal else "mse or cross-entropy, with a weight decay"
        raise ValueError(
            f"--theorem {options.theorem} does not go with --loss {options.loss}; it speaks of --loss {other}"
        )
    if p > Newton.LARGEST and minimal:
        raise ValueError(
            f"--hidden {options.hidden or hidden} makes {p:,} trained numbers, and the Hessian of a minimum is taken of at most "
            f"{Newton.LARGEST:,}; use fewer units"
        )
    if options.weights is not None:
        _put(net, Path(options.weights))
    facts = {
        **table.facts,
        "drawn_rows": len(rows),
        **({} if options.batch is None else {"batch": options.batch}),
        "n": widths[0],
        "m": widths[-1],
        "loss": options.loss,
        "weight_decay": options.decay,
        "parameters": p,
        "network": f"{'-'.join(map(str, widths))} {options.activation}, {p:,} parameters, "
        + (f"weights of {options.weights}" if options.weights is not None else f"seed {options.seed}"),
        "seed": options.seed,
    }
    faster = (
        ""
        if minimal or drawing is not None
        else f"; --theorem {exact_fit.THEOREM.id} counts Newton steps, of which few suffice"
    )
    return Built(net, loss, facts, table, _shown(facts), faster=faster)


def _loss(options: FeedForward, table: Table, rows: Tensor) -> tuple[Loss, int]:
    """The loss of these rows, and the outputs that it takes."""
    X, Y, labels = table.train.X, table.train.Y, table.train.labels
    assert isinstance(X, Tensor)
    if options.loss == "cross-entropy":
        assert table.classes is not None and labels is not None
        numbers = torch.searchsorted(table.classes, labels[rows])
        return TorchLoss(nn.CrossEntropyLoss(), X[rows], numbers, options.decay), len(table.classes)
    assert Y is not None
    if options.loss == "mse":
        return TorchLoss(nn.MSELoss(), X[rows], Y[rows], options.decay), Y.shape[1]
    return SquaredLoss(X[rows], Y[rows]), Y.shape[1]


def _widths(text: str) -> list[int]:
    try:
        widths = [int(part) for part in text.split(",")]
    except ValueError:
        widths = []
    if not widths or min(widths) < 1:
        raise ValueError(f"--hidden is {text!r}; give the widths of the hidden layers, for example 100,100")
    return widths


def _put(net: nn.Sequential, path: Path) -> None:
    """The weights of a file into a network: those of its state_dict, or of the files of a run."""
    stored, places = weights_of_file(path), weights_of(layers_of(net))
    names = dict(zip(places, (name for name, _ in net.named_parameters()), strict=True))
    found: dict[str, Any] = {ours: stored.get(theirs, stored.get(ours)) for ours, theirs in names.items()}
    for name, place in places.items():
        given = found[name]
        if given is None or given.shape != place.shape:
            shape = f"is not among {', '.join([*stored][:6])}" if given is None else f"has shape {tuple(given.shape)}"
            raise RunDirectoryError(
                f"{path}: {names[name]} {shape}, and the network needs {tuple(place.shape)}; "
                "give the --hidden and the data of these weights"
            )
    further = [name for name in stored if OF_LAYER.fullmatch(name) and name not in {*names, *names.values()}]
    if further:
        raise RunDirectoryError(
            f"{path} has {', '.join(further)} beyond the network; give the --hidden of these weights"
        )
    with torch.no_grad():
        for name, place in places.items():
            place.copy_(found[name])


def _shown(facts: dict[str, Any]) -> dict[str, str]:
    decay = f", mean over the rows, weight decay {facts['weight_decay']:g}" if facts["loss"] != "squared" else ""
    batch = f", batches of {facts['batch']:,}" if "batch" in facts else ""
    items = {
        "rows": f"{facts['drawn_rows']:,} drawn of {facts['train_rows']:,} to train on{batch}{held_out(facts)}",
        "inputs": inputs(facts),
        "targets": f"{facts['m']:,} {facts['targets'] if facts['m'] > 1 else 'number'}",
        "loss": f"{facts['loss']}{decay}",
        "network": facts["network"],
    }
    return items | {name: facts[name] for name in ("trained", "finished", "prepared") if facts.get(name)}
