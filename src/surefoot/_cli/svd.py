"""The command ``train svd``."""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .._core.io import run_directory, write_json
from .._learning.run import TrainStatus
from .._orthogonal.learned_svd import LearnedSVD
from .._orthogonal.svd_accuracy import Accuracy, Decomposition, accuracy, lapack
from . import training
from .errors import Exit
from .inner_inverse import inner_inverse
from .inverse_matrices import Split, load
from .problem import at_least_one
from .screen import Screen, count, number, print_json
from .svd_options import TrainSVD

NETWORK = "net.safetensors"
TRAINING = "training"
"""Files and directories of ``train svd``."""
NO_THEOREM = (
    "no theorem speaks of the learned SVD, so there is nothing to certify; surefoot train svd measures its errors, and "
    "sf.linalg.svd is accurate to rounding"
)


def run_train_svd(options: TrainSVD, held: ExitStack) -> int:
    """``surefoot train svd``."""
    screen = Screen(silent=options.json or options.quiet)
    directory = Path(options.out)
    if options.epochs < 0:
        raise ValueError(f"--epochs is {options.epochs}; it must be at least 0")
    for name, value in (("--layers", options.layers), ("--batch", options.batch)):
        at_least_one(name, value)
    if not 0.0 < options.learning_rate < math.inf:
        raise ValueError(f"--learning-rate is {options.learning_rate:g}; it must be positive and finite")
    if not options.resume:
        training.refuse_existing(directory, "choose another with --out, or go on with what is in it with --resume")
    split = load(options)
    net = _network(options, split)
    if options.require_certificate:
        print(f"surefoot: not trained: {NO_THEOREM}", file=sys.stderr)
        if options.json:
            print_json({"problem": split.facts, "certificate": None, "training": None})
        return Exit.NO
    screen.heading("Problem", split.facts["data"])
    screen.pairs(
        {"matrices": f"{net.rows} x {net.columns}", "network": f"{net.layers} layers, {net.rank} singular values"}
    )
    screen.heading("Uncertified", "no theorem speaks of the learned SVD")
    held.enter_context(run_directory(directory, options.resume))
    stored = {k: v for k, v in dataclasses.asdict(options).items() if k not in training.FREE_ON_RESUME}
    write_json(directory / training.SETTINGS, {"system": options.system, "options": stored, "epochs": options.epochs})
    begin = time.monotonic()
    run = net.fit(
        split.train,
        loss=options.loss,
        iterations=options.epochs,
        batch=options.batch,
        learning_rate=options.learning_rate,
        seed=options.seed,
        directory=directory / TRAINING,
        resume=options.resume and (directory / TRAINING / "config.json").exists(),
    )
    if run.status is TrainStatus.INTERRUPTED:
        return training.interrupted(options, f"after {run.epochs:,} epochs", run.stopped_by)
    net.save(directory / NETWORK)
    screen.heading("Training", f"{run.status}: {run.status.text}")
    screen.pairs(
        {
            "epochs": f"{count(run.epochs)} in {time.monotonic() - begin:.2f} s",
            "loss": f"{number(run.losses[0], 6)} → {number(run.best, 6)} (best, epoch {count(run.best_epoch)})",
        }
    )
    found = _compared(options, net, split)
    screen.heading("Comparison", "largest errors on the matrices that are held out; no theorem bounds those of D-SVD")
    columns = ("method", "seconds a matrix", "residual", "orthogonality", "singular values")
    rows = [(name, *(number(value) for value in asdict(one).values())) for name, one in found.items()]
    screen.table(columns, rows, numeric=(1, 2, 3, 4))
    if options.json:
        print_json(
            {
                "directory": options.out,
                "problem": split.facts,
                "training": {
                    "status": run.status.value,
                    "status_text": run.status.text,
                    "epochs": run.epochs,
                    "initial_loss": run.losses[0],
                    "best_loss": run.best,
                    "best_epoch": run.best_epoch,
                },
                "certificate": None,
                "comparison": {name: asdict(one) for name, one in found.items()},
            }
        )
    elif options.quiet:
        error = found["trained D-SVD"].values
        print(
            f"{options.out}: training {run.status}, loss {run.best:.6g}, singular values off by up to {error:.3g}, uncertified"
        )
    return Exit.FAILED if run.status is TrainStatus.DIVERGED else Exit.YES


def _network(options: TrainSVD, split: Split) -> LearnedSVD:
    rows, columns = split.facts["rows"], split.facts["columns"]
    if options.rank is not None and not 1 <= options.rank <= min(rows, columns):
        raise ValueError(
            f"--rank is {options.rank}; it must be from 1 to {min(rows, columns)} for {rows}x{columns} matrices"
        )
    return LearnedSVD(
        rows,
        columns,
        options.rank,
        layers=options.layers,
        seed=options.seed,
        inverse=inner_inverse(options.inverse) or "exact",
    )


def _compared(options: TrainSVD, net: LearnedSVD, split: Split) -> dict[str, Accuracy]:
    """On the held-out matrices."""
    methods: dict[str, Decomposition] = {
        "torch.linalg.svd": lapack,
        "D-SVD, not trained": _decomposition(_network(options, split)),
        "trained D-SVD": _decomposition(net),
    }
    rank = net.rank

    def leading(method: Decomposition) -> Decomposition:
        def run(M: Any) -> Any:
            U, S, Vh = method(M)
            return U[..., :rank], S[..., :rank], Vh[..., :rank, :]

        return run

    return {name: accuracy(leading(method), split.test) for name, method in methods.items()}


def _decomposition(net: LearnedSVD) -> Decomposition:
    def run(M: Any) -> Any:
        found = net(M)
        return found.U, found.S, found.Vh

    return run
