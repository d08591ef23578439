"""What ``train svd`` does."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import Any

from .._cli import learned
from .._cli.matrices import Split, load
from .._cli.screen import Screen, number
from .._cli.values import at_least_one, inner_inverse
from .._learning.run import TrainStatus
from .command import Train
from .learned_svd import LearnedSVD
from .svd_accuracy import Accuracy, Decomposition, accuracy, decomposition, lapack
from .words import WORDS


def run_train(options: Train, held: ExitStack) -> int:
    """``surefoot train svd``."""
    screen = Screen(silent=options.json or options.quiet)
    for name, value in (("--layers", options.layers), ("--batch", options.batch)):
        at_least_one(name, value)
    learned.check(options)
    split = load(options)
    net = _network(options, split)
    if options.require_certificate:
        return learned.not_trained(
            options, WORDS.instead["certify"], {"problem": split.facts, "certificate": None, "training": None}
        )
    screen.heading("Problem", split.facts["data"])
    screen.pairs(
        {"matrices": f"{net.rows} x {net.columns}", "network": f"{net.layers} layers, {net.rank} singular values"}
    )
    screen.heading("Uncertified", "no theorem speaks of the learned SVD")

    fit = partial(
        net.fit,
        split.train,
        loss=options.loss,
        iterations=options.epochs,
        batch=options.batch,
        learning_rate=options.learning_rate,
        seed=options.seed,
    )
    run = learned.train(options, net, fit, held)
    if run.status is TrainStatus.INTERRUPTED:
        return learned.stopped(options, run)
    learned.show(screen, run)
    compared = _compared(options, net, split)
    screen.heading("Comparison", "largest errors on the matrices that are held out; no theorem bounds those of D-SVD")
    columns = ("method", "seconds a matrix", "residual", "orthogonality", "singular values")
    rows = [(name, *(number(value) for value in asdict(errors).values())) for name, errors in compared.items()]
    screen.table(columns, rows, numeric=(1, 2, 3, 4))
    record = {
        "problem": split.facts,
        "training": learned.record(run),
        "certificate": None,
        "comparison": {name: asdict(errors) for name, errors in compared.items()},
    }
    error = compared["trained D-SVD"].values
    line = f"loss {run.best:.6g}, singular values off by up to {error:.3g}, uncertified"
    learned.outcome(options, run, record, line)
    return learned.exit_code(run)


def _network(options: Train, split: Split) -> LearnedSVD:
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


def _compared(options: Train, net: LearnedSVD, split: Split) -> dict[str, Accuracy]:
    """On the held-out matrices."""
    methods: dict[str, Decomposition] = {
        "torch.linalg.svd": lapack,
        "D-SVD, not trained": decomposition(_network(options, split)),
        "trained D-SVD": decomposition(net),
    }
    rank = net.rank

    def leading(method: Decomposition) -> Decomposition:
        def run(M: Any) -> Any:
            U, S, Vh = method(M)
            return U[..., :rank], S[..., :rank], Vh[..., :rank, :]

        return run

    return {name: accuracy(leading(method), split.test) for name, method in methods.items()}
