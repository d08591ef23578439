"""Minibatch stochastic gradient descent, with the theorems that speak of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, overload

from torch import nn

from ._core.callbacks import Callback
from ._core.certificate import Certificate
from ._core.run import Run
from ._core.sgd import certify as certify_batches
from ._core.sgd import descend as descend_certified
from ._core.sgd import stochastic
from ._core.validate import positive_integer, unknown
from ._linear_resnet.network import LinearResNet
from ._linear_resnet.sgd import THEOREMS, SGDGuarantee, SGDRun, certify_sgd, descend_sgd
from ._linear_resnet.width import WidthEstimate, width_estimates

__all__ = ["SGDGuarantee", "SGDRun", "WidthEstimate", "certify", "descend", "width_estimates"]


def certify(
    net: nn.Module,
    X: Any,
    Y: Any = None,
    batch_size: int | None = None,
    *,
    theorem: str | None = None,
    target: float | None = None,
    delta: float | None = None,
    iterations: int | None = None,
) -> Certificate | SGDGuarantee:
    """What a theorem says of minibatch SGD on these weights and data. A hypothesis that fails is no error: the result says so.

    ``linear-resnet/sgd-local`` and ``feed-forward/sgd`` speak of weights near an exact fit. Their certificates are written,
    checked and audited like any other; the bound holds for all iterations at once, with ``certificate.probability`` over the
    batches. Theorems 3.6 and 3.8 of the linear ResNet paper (``linear-resnet/sgd``, the default of such networks, and
    ``/sgd-interpolation``) speak of zero weights, and give an ``SGDGuarantee``, of which the checker proves nothing.

    Args:
        net: a network of float64 weights.
        X, Y: rows are samples, (N, d) and (N, k) or (N,); or X is a loss of ``sf`` that has them, and Y is left out.
        batch_size: B ≤ N; batches are drawn without replacement.
        theorem: an id; by default that of the network's system.
        target: near an exact fit the relative gap for which the fewest iterations should be needed, 1e-7 by default; of
            ``linear-resnet/sgd`` ε, an absolute gap.
        delta: probability of failure: 0.01 by default, 0.1 for Theorems 3.6 (at most 1/6) and 3.8.
        iterations: of Theorem 3.8 alone: T, 10,000 by default.

    Returns:
        A certificate, or for linear ResNets an ``SGDGuarantee`` unless ``linear-resnet/sgd-local`` is named.

    Raises:
        TypeError, ValueError: bad data, shapes or arguments.

    Example:
        >>> X = torch.randn(6, 3).double()
        >>> net = torch.nn.Sequential(
        ...     torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
        ... ).double()
        >>> Y = net(X).detach() + 1e-4  # weights near an exact fit, as a training ends
        >>> certificate = sf.sgd.certify(net, X, Y, batch_size=2, delta=0.05)
        >>> certificate.holds, round(certificate.probability, 6), certificate.practical
        (True, 0.95, True)
    """
    batch_size = positive_integer("batch_size", batch_size)
    known = [*(THEOREMS if isinstance(net, LinearResNet) else ()), stochastic(net).of_batches]
    wanted = known[0] if theorem is None else theorem
    if wanted not in known:
        raise unknown("theorem on minibatches", wanted, known)
    if isinstance(net, LinearResNet) and wanted in THEOREMS:
        return certify_sgd(net, X, Y, batch_size, theorem=wanted, target=target, delta=delta, iterations=iterations)
    if iterations is not None:
        raise TypeError(f"iterations is {iterations}; only the theorem {THEOREMS[1]} takes it")
    return certify_batches(net, X, Y, batch_size, delta, target)


@overload
def descend(
    net: nn.Module,
    X: Any,
    Y: Any,
    batch_size: int,
    step: Certificate,
    max_iterations: int | None = None,
    tolerance: float = 0.0,
    *,
    seed: int = 0,
    directory: str | Path | None = None,
    resume: bool = False,
    callbacks: Iterable[Callback] = (),
) -> Run: ...
@overload
def descend(
    net: LinearResNet,
    X: Any,
    Y: Any,
    batch_size: int,
    step: float | SGDGuarantee,
    max_iterations: int | None = None,
    tolerance: float = 0.0,
    *,
    seed: int = 0,
    directory: str | Path | None = None,
    resume: bool = False,
    callbacks: Iterable[Callback] = (),
) -> SGDRun: ...
def descend(
    net: Any,
    X: Any,
    Y: Any,
    batch_size: int,
    step: float | Certificate | SGDGuarantee,
    max_iterations: int | None = None,
    tolerance: float = 0.0,
    *,
    seed: int = 0,
    directory: str | Path | None = None,
    resume: bool = False,
    callbacks: Iterable[Callback] = (),
) -> Run | SGDRun:
    """Minibatch SGD on the network's weights, in place: batches without replacement, gradients scaled by N/B.

    The recorded gap is that of all samples. Ctrl-C, SIGTERM and SIGHUP end a run after the current iteration, with a checkpoint.

    Args:
        net, X, Y, batch_size: as in ``certify``.
        step: a certificate or guarantee of ``certify`` for this network, data and batch size, whose step is taken; for linear
            ResNets also a number, of which no theorem speaks.
        max_iterations: limit, the iterations before a resume included; by default those that are guaranteed for the tolerance
            (for a relative gap of 1e-7 where that is 0), 1000 where ``step`` is a number.
        tolerance: stop at this gap relative to the initial one.
        seed: of the batches; the same seed gives the same run.
        directory: write the run there; must not exist or be empty, unless ``resume``. With a certificate it is a run directory
            that ``surefoot check`` reads.
        resume: continue from the newest checkpoint; ``net`` must hold the initial weights again.
        callbacks: told of every iterate as it comes, and able to stop the run: see ``sf.callbacks``.

    Returns:
        With a certificate a ``Run``: its audit checks what holds whatever the batches. Else an ``SGDRun``.

    Raises:
        TypeError, ValueError: bad data or arguments; a certificate of other arrays.
        RunDirectoryError: a directory that exists, that cannot be resumed, or in use by another run.
        OSError: a failed write; checkpoints written before are kept.

    Example:
        >>> X = torch.randn(6, 3).double()
        >>> net = torch.nn.Sequential(
        ...     torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
        ... ).double()
        >>> Y = net(X).detach() + 1e-4
        >>> certificate = sf.sgd.certify(net, X, Y, batch_size=2)
        >>> run = sf.sgd.descend(net, X, Y, 2, certificate, max_iterations=500, tolerance=1e-2)
        >>> run.status.value, run.audit().holds
        ('converged', True)
    """
    if isinstance(step, Certificate):
        return descend_certified(
            net, X, Y, batch_size, step, max_iterations, tolerance, seed, directory, resume, callbacks
        )
    return descend_sgd(
        net,
        X,
        Y,
        batch_size,
        step,
        max_iterations,
        tolerance,
        seed=seed,
        directory=directory,
        resume=resume,
        callbacks=callbacks,
    )
