"""Training of the step-size network on the objective that its own iteration reaches."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from contextlib import ExitStack
from numbers import Real
from pathlib import Path
from typing import Any

from torch import Tensor

from surefoot_check.arrays import digest

from .._core.callbacks import Callback
from .._core.validate import as_tensor, kind_of, nonnegative, positive_integer, unknown
from .._learning.fit import Course, fit
from .._learning.optimizers import Optimizer
from .._learning.run import TrainRun
from .._learning.shared_sum import assign, flat
from .._problems import Problems
from .network import StepSizeNet, check_net, check_problems
from .optimizers import LBFGS, OPTIMIZERS, RATES, LineSearch
from .smoothness import Smoothness
from .system import FORMAT
from .training_loss import Fresh, RunLoss
from .unrolled import Gradient


def train(
    net: StepSizeNet,
    problems: Problems,
    optimizer: str = "sgd",
    gradient: Gradient = "exact",
    epochs: int = 1000,
    learning_rate: float | None = None,
    *,
    iterations: int = 100,
    smoothness: Smoothness = None,
    fresh: Fresh | None = None,
    validation: Problems | None = None,
    patience: int | None = None,
    directory: str | Path | None = None,
    resume: bool = False,
    callbacks: Iterable[Callback] = (),
) -> TrainRun:
    """Minimise Σ_p F_p(x_T) over the weights, with x_0 = 0; one step an epoch on all problems. The network is changed in place.
    The ranks of a job share the problems, with the same result up to the rounding of sums.

    Args:
        net: trained in place; at the end it holds the best weights, not the last.
        problems: to train on; with ``fresh``, to validate on unless ``validation`` is given.
        optimizer: "sgd" and "adam" step by ``learning_rate``; "armijo" (gradient descent) and "lbfgs" search along the direction,
            on the loss itself, and need the exact gradient.
        gradient: "exact", or "detached", the paper's rule, which is not the gradient of the loss for two or more iterations.
        epochs: steps, those before a resume included.
        learning_rate: of sgd (default 1e-7, the paper's for expansion 100) and adam (1e-3); first step of armijo and lbfgs (1).
        iterations: T ≥ 1.
        smoothness: β, as in ``StepSizeNet.solve``.
        fresh: other problems each epoch, a function of the epoch. Not with lbfgs, which compares gradients across epochs.
        validation: problems whose loss decides which weights are best.
        patience: stop after this many epochs without a lower validation loss (training loss where there are no such problems).
        directory: write checkpoints and the best network there; must not exist or be empty, unless ``resume``.
        resume: continue from the newest checkpoint, exactly as if the run had not been cut off.
        callbacks: told of every epoch as it comes, and able to stop the training: see ``sf.callbacks``.

    Returns:
        The run. A non-finite loss ends it with status "diverged", Ctrl-C, SIGTERM and SIGHUP with "interrupted".

    Raises:
        TypeError, ValueError: bad arguments, or combinations that are none.
        RunDirectoryError: a directory that exists, that cannot be resumed, or in use by another run.
        OSError: a failed write; checkpoints written before are kept and the network is unchanged.

    Example:
        >>> problems = sf.learned.LeastSquares.random(4, 6, 8)
        >>> net = sf.nn.StepSizeNet.orthogonal(widths=(2, 4), range=(1.0, 1.95))
        >>> run = sf.learned.train(net, problems, "lbfgs", epochs=3, iterations=5)
        >>> run.status.value, run.best < run.losses[0]
        ('finished', True)
    """
    check_net(net)
    check_problems(net, problems)
    iterations = positive_integer("iterations", iterations)
    course = Course.of(epochs, patience, directory, resume, callbacks=callbacks)
    if gradient not in ("exact", "detached"):
        raise ValueError(f"gradient is {gradient!r}; it must be 'exact' or 'detached'")
    method = _optimizer(optimizer, learning_rate, gradient, fresh)
    if fresh is not None and not callable(fresh):
        raise TypeError(f"fresh is {kind_of(fresh)}; pass a function that makes the problems of an epoch")
    if validation is None and fresh is not None:
        validation = problems
    elif validation is not None:
        check_problems(net, validation, "validation")
    settings = {
        "format": FORMAT,
        "optimizer": optimizer,
        "gradient": gradient,
        "learning_rate": method.rate,
        "iterations": iterations,
        "smoothness": _plain(smoothness),
        "fresh": fresh is not None,
        "patience": course.patience,
        "widths": list(net.widths),
        "range": list(net.range),
        "dtype": str(net.weights[0].dtype),
        "problems": _digests(problems),
        "validation": None if validation is None else _digests(validation),
    }
    trained = copy.deepcopy(net)

    def save(path: Path, w: Tensor) -> None:
        assign(trained.weights, w)
        trained.save(path)

    with ExitStack() as held:
        loss = RunLoss(net, problems, iterations, smoothness, fresh, validation, gradient, held)
        files = course.files(settings, "run of sf.learned.train", held)
        best, run = fit(loss, flat(net.weights), method, course, files, save, held)
        assign(net.weights, best)
    return run


def _optimizer(name: str, learning_rate: float | None, gradient: str, fresh: Fresh | None) -> Optimizer:
    if name not in OPTIMIZERS:
        raise unknown("optimizer", name, OPTIMIZERS)
    kind = OPTIMIZERS[name]
    if issubclass(kind, LineSearch) and gradient == "detached":
        raise ValueError(
            f"optimizer {name!r} compares losses along the gradient, and the detached rule is not one; use gradient='exact', "
            "or sgd or adam"
        )
    if kind is LBFGS and fresh is not None:
        raise ValueError(
            f"optimizer {name!r} compares gradients across epochs; with fresh problems use adam, sgd or armijo"
        )
    rate = RATES[name] if learning_rate is None else nonnegative("learning_rate", learning_rate)
    if rate == 0.0:
        raise ValueError("learning_rate is 0; it must be positive")
    return kind(rate)


def _plain(smoothness: Smoothness) -> Any:
    """As config.json holds it."""
    if smoothness is None or isinstance(smoothness, str):
        return smoothness
    return float(smoothness) if isinstance(smoothness, Real) else as_tensor("smoothness", smoothness).tolist()


def _digests(problems: Problems) -> dict[str, str]:
    """sha256 of each array."""
    return {
        "kind": problems.kind,
        **{name: digest(value.cpu().numpy()) for name, value in problems.data().items()},
    }
