"""What ``certify feed-forward`` and ``train feed-forward`` build: rows, loss, and a network, which is trained."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from surefoot_check.feed_forward import exact_fit, minimum

from .._cli.built import Built
from .._cli.rows import Table, held_out, inputs, load
from .._cli.screen import Screen, number
from .._cli.values import at_least_one, check_seed
from .._cli.watched import Finish, check_rate, resumed, trained, weights_of_file
from .._core.io import RunDirectoryError
from .._core.losses import Loss, SquaredLoss
from .._core.run import Run
from .command import DEFAULTS, FeedForward, Train
from .drawn import drawn_network
from .loss import NetworkLoss
from .modules import layers_of, weights_of
from .newton import finish as finished
from .objective import NetworkObjective, TorchLoss
from .steps import GaussNewton, Newton
from .system import FeedForwardSystem
from .training import fit

FINISHES = {rule.name: rule for rule in (GaussNewton, Newton)}
OF_LAYER = re.compile(r"[Wb][0-9]+|[0-9]+\.(weight|bias)")
"""Names of weights in files."""


def built(options: FeedForward) -> Built:
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


def trained_network(options: Train) -> Built:
    """The network after its optimiser and its finish."""
    check_rate(options.learning_rate)
    steps = DEFAULTS[options.seeks_minimum][2] if options.optimizer_steps is None else options.optimizer_steps
    at_least_one("--optimizer-steps", steps)
    prepared = built(options)
    net = prepared.net
    assert isinstance(net, nn.Sequential)
    fits = isinstance(FeedForwardSystem().problem(net, prepared.loss), NetworkLoss)
    goal = "gauss-newton" if fits else "newton"
    finish = {"auto": "none" if fits else goal}.get(options.finish, options.finish)
    for option, name in (("--finish", finish), ("--steps", options.steps)):
        if name in FINISHES and name != goal:
            raise ValueError(f"{option} {name} does not go with --loss {options.loss}; take {option} {goal}")
    if options.resume:
        return resumed(prepared, _shown, options.out, partial(_put, net))
    optimizer = {"auto": "lbfgs" if options.seeks_minimum else "adam"}.get(options.optimizer, options.optimizer)
    train = partial(fit, net, prepared.loss, optimizer, options.learning_rate, steps, progress=not options.quiet)
    finishing = None
    if finish != "none":
        take = partial(finished, net, prepared.loss, FINISHES[finish]())
        finishing = Finish(finish, take) if fits else Finish(finish, take, "gradient", whole=True)
    return trained(prepared, _shown, None if options.weights is not None else train, optimizer, finishing, goal)


def show(run: Run, screen: Screen) -> None:
    """How far above its value at the minimum the objective was where the run began."""
    above = run.certificate.quantities.get("loss_gap")
    if above is None or not run.certificate.holds:
        return
    reached = "reached as far as float64 can tell; " if run.gaps and run.gaps[0] <= run.resolution else ""
    most = number(above, towards="up")
    screen.say(f"  minimum: {reached}the objective of the certified weights is at most {most} above its value there")
