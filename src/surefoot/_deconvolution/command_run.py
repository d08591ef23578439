"""What ``train deconvolution`` does."""

from __future__ import annotations

import math
import shlex
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from .._cli import learned
from .._cli.learned import NETWORK
from .._cli.screen import Screen, count
from .._cli.values import at_least_one, inner_inverse
from .._core.io import write_json
from .._learning.run import TrainStatus
from .command import Train
from .learned.comparison import compared
from .learned.network import LearnedDeconvolution
from .learned.provenance import provenance
from .learned.training import train
from .learned.training_data import FREE, NOISE, TILE, TrainingData
from .learned.training_kernels import KERNEL

FILTERS = 32
PROVENANCE = "network.json"
"""Beside the network, where it was trained on pictures that may be passed on."""
LARGEST_SEED = 2**63 - 1 - 3
"""PyTorch takes 64 bits; the comparison counts three further."""
NO_THEOREM = "no theorem covers trained weights; deblur averages with its prior, or leaves that to decide"


def run_train(options: Train, held: ExitStack) -> int:
    """``surefoot train deconvolution``."""
    screen = Screen(silent=options.json or options.quiet)
    directory = Path(options.out)
    _check(options)
    learned.check(options)
    device = _device(options.device)
    data = TrainingData.load(options.data)
    net = _network(options).to(device)
    facts = _facts(options, data, net)
    if options.require_certificate:
        return learned.not_trained(options, NO_THEOREM, {"problem": facts, "certificate": None, "training": None})
    screen.heading("Problem", data.source)
    screen.pairs(
        {
            "crops": f"{count(options.batch)} of {options.crop} x {options.crop} pixels in each step; "
            f"noise {100 * NOISE[0]:g}-{100 * NOISE[1]:g} %",
            "network": f"{options.layers} layers, {net.filters} filters, {count(facts['weights'])} weights, on {device}",
        }
    )
    screen.heading("Uncertified", NO_THEOREM)

    fit = partial(
        train,
        net,
        data,
        options.loss,
        steps=options.epochs,
        minutes=options.minutes,
        batch=options.batch,
        crop=options.crop,
        learning_rate=options.learning_rate,
        seed=options.seed,
        progress=not options.quiet,
    )
    run = learned.train(options, net, fit, held)
    if run.status is TrainStatus.INTERRUPTED:
        return learned.stopped(options, run)
    what = "squared error" if options.loss == "supervised" else "objective"
    if options.data == FREE:
        write_json(directory / PROVENANCE, provenance(asdict(options), run, directory / NETWORK))
    learned.show(screen, run, f": {what} relative to the {net.start} start, on crops that were not trained on")
    rows = compared(net, data, crop=options.crop, seed=options.seed)
    screen.heading("Comparison", "mean PSNR in dB on crops that were not trained on, periodic blur")
    columns = ("noise", *(name for name in rows[0] if name != "noise"))
    screen.table(
        columns,
        [(f"{100 * row['noise']:g} %", *(f"{row[name]:.2f}" for name in columns[1:])) for row in rows],
        numeric=range(1, len(columns)),
    )
    record = {
        "problem": facts,
        "certificate": None,
        "training": {
            **learned.record(run),
            "seconds": run.seconds,
            "validation": [list(pair) for pair in zip(run.validation_epochs, run.validation, strict=True)],
        },
        "comparison": rows,
    }
    learned.outcome(options, run, record, f"{run.epochs:,} epochs, validation loss {run.best:.4g}, uncertified")
    place = shlex.quote(str(directory / NETWORK))
    screen.following(
        "your photograph next", {f"surefoot deblur PHOTO --kernel K --weights {place} --out OUT.png": "sharpen it"}
    )
    return learned.exit_code(run)


def _check(options: Train) -> None:
    """Raise ``ValueError`` for settings that are out of range."""
    for name in ("epochs", "layers", "batch"):
        at_least_one(f"--{name}", getattr(options, name))
    if not 0 <= options.seed <= LARGEST_SEED:
        raise ValueError(f"--seed is {options.seed}; it must be 0 to {LARGEST_SEED}")
    if not KERNEL < options.crop <= TILE:
        raise ValueError(f"--crop is {options.crop}; it must be {KERNEL + 1} to {TILE}")
    if options.filters is not None and options.filters < 0:
        raise ValueError(f"--filters is {options.filters}; it must be at least 0")
    if options.minutes is not None and not 0.0 < options.minutes < math.inf:
        raise ValueError(f"--minutes is {options.minutes:g}; it must be positive and finite")


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros((), device=device)
    except (RuntimeError, AssertionError) as error:
        first = str(error).splitlines()[0]
        raise ValueError(
            f"--device is {name!r}, which cannot be used here ({first}); leave it out for the CPU"
        ) from error
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"--device is {name!r}; it must be cpu or cuda")
    return device


def _network(options: Train) -> LearnedDeconvolution:
    filters = options.filters
    if filters is None:
        filters = FILTERS if options.loss == "supervised" else 0
    return LearnedDeconvolution(options.layers, filters, inverse=inner_inverse(options.inverse), seed=options.seed)


def _facts(options: Train, data: TrainingData, net: LearnedDeconvolution) -> dict[str, Any]:
    """Plain values."""
    return {
        "data": data.source,
        "tiles": len(data.tiles),
        "kernels": len(data.kernels),
        "loss": options.loss,
        "layers": options.layers,
        "filters": net.filters,
        "inverse": options.inverse,
        "weights": sum(p.numel() for p in net.parameters()),
        "seed": options.seed,
    }
