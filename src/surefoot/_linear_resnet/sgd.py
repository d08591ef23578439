"""Minibatch SGD on linear ResNets, and the theorems that speak of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surefoot_check.arrays import digest
from surefoot_check.linear_resnet import enclosures as rigorous
from surefoot_check.linear_resnet.constants import DIRECTIONS
from surefoot_check.rigor.approximation import Approximation
from surefoot_check.rigor.bounds import FAST, frobenius_upper, up

from .._core import checkpoints
from .._core import trace as traces
from .._core.brief import brief
from .._core.callbacks import Callback, Listeners, Start
from .._core.certificate import Condition, publish
from .._core.descent import DIVERGED
from .._core.draws import batch_of
from .._core.interrupts import StopRequest
from .._core.losses import SquaredLoss
from .._core.status import RunStatus
from .._core.validate import (
    as_tensor,
    folder,
    integer,
    kind_of,
    nonnegative,
    positive_integer,
    real,
    require_trained,
    unknown,
)
from .._learning.directory import TrainingDirectory
from . import sgd_theorems as theorems
from .engine import Iterate
from .network import LinearResNet
from .reduction import reduce

SGD_ID, INTERPOLATION_ID = theorems.SGD, theorems.INTERPOLATION
THEOREMS = (SGD_ID, INTERPOLATION_ID)
FORMAT = "surefoot-sgd/1"
"""What config.json of a run says."""


@dataclass(frozen=True)
class SGDGuarantee:
    """What Theorem 3.6 or 3.8 says of one network, data, batch size and number of iterations.

    Attributes:
        theorem: which.
        conditions: the hypotheses with both sides.
        step_size: η of the theorem.
        iterations: T.
        probability: with which the conclusion holds over the choice of minibatches, if the hypotheses hold.
        rate: factor of the bound an iteration.
        quantities: by symbol.
        arrays: sha256 of each array it speaks of.
    """

    theorem: str
    conditions: tuple[Condition, ...]
    step_size: float
    iterations: int
    probability: float
    rate: float
    quantities: Mapping[str, float]
    arrays: Mapping[str, str] = field(default_factory=dict)

    __repr__ = brief

    @property
    def holds(self) -> bool:
        """Whether the hypotheses hold, with the constants of the paper's appendix (docs/theorems/linear-resnet.md)."""
        return all(condition.holds for condition in self.conditions)

    def bound(self, t: int) -> float:
        """Bound of the lowest loss of the iterates up to t; ``inf`` where the theorem says nothing.

        Theorem 3.8: max(2 L0 rate^t, 17 L*) for t ≤ T, and until the loss first is at most 17 L* the bound is one of every
        iterate. Theorem 3.6: L* + ε at t = T.
        """
        if not self.holds or not 0 <= t <= self.iterations:
            return math.inf
        if self.theorem == INTERPOLATION_ID:
            return theorems.linear_bound(self.quantities, self.rate, t)
        return self.quantities["optimal_value"] + self.quantities["target"] if t == self.iterations else math.inf

    def __str__(self) -> str:
        verdict = "hypotheses hold" if self.holds else "a hypothesis fails; nothing is guaranteed"
        lines = [f"{self.theorem}: {verdict}", *(f"  {condition}" for condition in self.conditions)]
        lines.append(f"  step {self.step_size:.6g}, {self.iterations:,} iterations, probability {self.probability:.3g}")
        return "\n".join(lines)


def certify_sgd(
    net: LinearResNet,
    X: Any,
    Y: Any,
    batch_size: int,
    *,
    theorem: str = SGD_ID,
    target: float | None = None,
    delta: float | None = None,
    iterations: int | None = None,
) -> SGDGuarantee:
    """Evaluate an SGD theorem at zero weights. A hypothesis that fails is no error: the result says so.

    Args:
        net: zero weights.
        X, Y: rows are samples, (n, d) and (n, k).
        batch_size: B ≤ n.
        theorem: ``linear-resnet/sgd`` (3.6: the best iterate is within ``target`` of the optimal value) or
            ``linear-resnet/sgd-interpolation`` (3.8: linear rate for all t ≤ ``iterations``, down to 17 times the optimal value,
            which is 0 for data that can be interpolated).
        target: ε of 3.6; by default 1e-2 of the initial gap. Must lie below the initial loss.
        delta: failure probability; at most 1/6 in 3.6 (whose conclusion has probability 1/2), below 1 in 3.8. Default 0.1.
        iterations: T of 3.8 (default 10,000); 3.6 determines it together with the step.

    Raises:
        TypeError, ValueError: bad data, shapes, weights that are not zero, or arguments out of range.
    """
    if theorem not in THEOREMS:
        raise unknown("SGD theorem", theorem, THEOREMS)
    batch_size = positive_integer("batch_size", batch_size)
    X, Y, loss = _data(net, X, Y, batch_size)
    reduced = reduce(net, loss)
    if bool(net.W.any()):
        raise ValueError(
            "net has nonzero weights; the SGD theorems speak of zero initial weights: certify before training"
        )
    limit = 1.0 / 6.0 if theorem == SGD_ID else 1.0
    delta = 0.1 if delta is None else nonnegative("delta", delta)
    if not 0.0 < delta <= limit or delta == 1.0:
        raise ValueError(f"delta is {delta!r}; {theorem} needs 0 < delta {'<= 1/6' if limit < 1.0 else '< 1'}")
    arrays = {name: getattr(reduced, name).cpu().numpy() for name in ("A", "B", "W")}
    problem = rigorous.load_problem("squared", {k: v.cpu().numpy() for k, v in loss.reduced.arrays().items()})
    base = publish(rigorous.base_quantities(problem, arrays, {}), DIRECTIONS)
    gap, optimal_value = base["initial_gap"], _optimal_value_upper(loss, X, Y)
    q: dict[str, float] = {
        **{name: base[name] for name in ("norm_A", "norm_B", "norm_X", "sigma_min_A", "sigma_min_B", "sigma_min_X")},
        "initial_loss": gap + optimal_value,
        "optimal_value": optimal_value,
        "row_norm": max(frobenius_upper(row) for row in X),
        "samples": float(len(X)),
        "batch": float(batch_size),
        "depth": float(net.depth),
        "delta": delta,
    }
    count = 0
    if theorem == SGD_ID:
        q["target"] = 1e-2 * gap if target is None else nonnegative("target", target)
        if not 0.0 < q["target"] < gap:
            raise ValueError(f"target is {target!r}; it must lie strictly between 0 and the initial gap {gap:.6g}")
        probability = 0.5
    else:
        count = positive_integer("iterations", 10_000 if iterations is None else iterations)
        if count < 2.0 * delta:
            raise ValueError(
                f"iterations is {iterations}; {theorem} needs at least 2 delta = {2.0 * delta:g} (docs/errata.md)"
            )
        probability = 1.0 - delta
    conditions = [Condition.of(theorems.interpolation(q))] if theorem == INTERPOLATION_ID else []
    digests = _digests(net, X, Y)
    smallest = min(q["sigma_min_A"], q["sigma_min_B"])
    if not smallest > 0.0:  # then the theorem's step is 0
        conditions.append(Condition("smin(A), smin(B) > 0", smallest, ">", 0.0, False, None))
        return SGDGuarantee(theorem, tuple(conditions), 0.0, 0, probability, 1.0, q, digests)
    conditions.append(Condition.of(theorems.condition(theorem, q)))
    try:
        needed, eta = theorems.fixed_point(q) if theorem == SGD_ID else (count, theorems.step(theorem, q, float(count)))
    except ArithmeticError as error:
        raise ValueError(
            f"{theorem} needs more iterations than float64 can count ({error}); use a larger target, a larger delta, or "
            "fewer iterations"
        ) from error
    return SGDGuarantee(
        theorem, tuple(conditions), eta, int(needed), probability, 1.0 - theorems.rate(q, eta), q, digests
    )


@dataclass(frozen=True)
class SGDRun:
    """A run of SGD.

    Attributes:
        rows: one row of ``iteration``, ``gap`` (full loss minus its optimal value) an iterate, and ``step``.
        status: how it ended.
        optimal_value: L*.
        guarantee: the theorem whose step was taken; ``None`` where the step was a number.
        stopped_by: the signal that interrupted it, if one did.
    """

    rows: list[traces.Row]
    status: RunStatus
    optimal_value: float
    guarantee: SGDGuarantee | None = None
    stopped_by: int | None = None

    __repr__ = brief

    @property
    def certified(self) -> bool:
        """Whether the theorem speaks of every step: its hypotheses hold, its step was taken, at most T times. What it then
        claims has the probability that ``guarantee`` states."""
        return self.guarantee is not None and self.guarantee.holds and self.iterations <= self.guarantee.iterations

    @property
    def gaps(self) -> list[float]:
        """Gap of each iterate of the full loss."""
        return [row["gap"] for row in self.rows]

    @property
    def losses(self) -> list[float]:
        """Full loss of each iterate."""
        return [row["gap"] + self.optimal_value for row in self.rows]

    @property
    def iterations(self) -> int:
        """Number of steps taken."""
        return sum("step" in row for row in self.rows)


def descend_sgd(
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
) -> SGDRun:
    """Minibatch SGD on the network's weights, in place: batches without replacement, gradients scaled by n/B.

    It runs in the subspace that zero weights reach, on n-row batches; the recorded gap is that of the full loss.

    Args:
        net, X, Y, batch_size: as in ``certify``.
        step: a number (of which no theorem speaks), or the result of ``certify`` for this network, data and batch size (its
            step, and its iterations unless given).
        max_iterations: limit, the iterations before a resume included; 1000 by default where ``step`` is a number.
        tolerance: stop at this gap relative to the initial one.
        seed: of the batches; the same seed gives the same run.
        directory: write trace and checkpoints there; must not exist or be empty, unless ``resume``.
        resume: continue from the newest checkpoint; ``net`` must hold the initial weights again.
        callbacks: told of every iterate as it comes, and able to stop the run: see ``sf.callbacks``.

    Returns:
        The run; its status says how it ended. Ctrl-C, SIGTERM and SIGHUP end it after the current iteration, with a checkpoint.
        After a divergence the network has the newest checkpoint's weights, without a directory its initial ones.

    Raises:
        TypeError, ValueError: bad data or arguments; a guarantee of other arrays.
        RunDirectoryError: a directory that exists, that cannot be resumed, or in use by another run.
        OSError: a failed write; checkpoints written before are kept.
    """
    batch_size = positive_integer("batch_size", batch_size)
    X, Y, loss = _data(net, X, Y, batch_size)
    guarantee = step if isinstance(step, SGDGuarantee) else None
    if guarantee is not None:
        _require_own(guarantee, _digests(net, X, Y), batch_size)
    eta = guarantee.step_size if guarantee is not None else nonnegative("step", step)
    if eta == 0.0:
        hint = f"; {guarantee.theorem} has no step here, pass a number" if guarantee is not None else ""
        raise ValueError(f"step is 0; it must be a positive number{hint}")
    if max_iterations is None:
        max_iterations = guarantee.iterations if guarantee is not None else 1000
    max_iterations, seed = integer("max_iterations", max_iterations, 0), integer("seed", seed, 0)
    tolerance = nonnegative("tolerance", tolerance)
    listeners = Listeners(callbacks)
    path = None if directory is None else folder("directory", directory)
    if resume and path is None:
        raise ValueError("resume=True needs the directory of the run to resume")
    reduced = reduce(net, loss)
    # batches need the samples themselves: only the width is reduced (A on the original inputs)
    A_full = net.A if reduced.basis is None else reduced.basis.T @ net.A
    A, B, W = (np.array(t.detach().cpu().numpy()) for t in (A_full, reduced.B, reduced.W))
    statistics = loss.small
    inputs, targets = np.ascontiguousarray(statistics.design.T), (statistics.design @ statistics.optimum).T
    settings = {
        "format": FORMAT,
        "batch_size": batch_size,
        "step": eta,
        "seed": seed,
        "arrays": _digests(net, X, Y),
    }
    rows: list[traces.Row] = []
    iteration = 0
    due = checkpoints.Schedule()
    status = RunStatus.RUNNING
    # a divergence has its own status; numpy need not warn of its overflows
    with ExitStack() as held, np.errstate(over="ignore", invalid="ignore"):
        files = None if path is None else _Files(path, settings, torch.from_numpy(W), resume, held)
        if files is not None and files.start is not None:
            iteration, rows = files.start.iteration, files.rows
            W = np.array(files.start.weights["W"].numpy())
        stop = held.enter_context(StopRequest())
        listeners.start(Start(iteration, max_iterations, path, resumed=resume))
        while status is RunStatus.RUNNING:
            gap = Iterate(inputs, targets, A, B, W).gap
            first = rows[0]["gap"] if rows else gap
            # of the loss: with noise, a run that starts near the optimum may well leave it
            if not gap <= DIVERGED * max(first + loss.optimal_value, loss.gap_resolution):
                status = RunStatus.DIVERGED
                break
            if gap <= tolerance * first:
                status = RunStatus.CONVERGED
            elif iteration >= max_iterations:
                status = RunStatus.MAX_ITERATIONS
            elif stop.signal_number is not None or listeners.stopped:
                status = RunStatus.INTERRUPTED
            row: traces.Row = {"iteration": iteration, "gap": gap}
            if status is not RunStatus.RUNNING:
                rows.append(row)
                break
            if files is not None and due.due(iteration):
                files.save(rows, iteration, W)
            rows.append({**row, "step": eta})
            listeners.iteration(rows[-1])
            batch = batch_of(seed, iteration, len(X), batch_size)
            gradient = Iterate(np.ascontiguousarray(X[batch].T), Y[batch].T, A, B, W).gradient
            W = W - (eta * len(X) / batch_size) * gradient
            iteration += 1
        if status is RunStatus.DIVERGED:
            good = None if files is None else files.diverged(rows)
            W = reduced.W.cpu().numpy() if good is None else good
        elif files is not None:
            files.save(rows, iteration, W)
    final = torch.from_numpy(W).to(net.W.device)
    with torch.no_grad():
        net.W.copy_(final if reduced.basis is None else reduced.basis @ final @ reduced.basis.T)
    stopped_by = stop.signal_number if status is RunStatus.INTERRUPTED else None
    run = SGDRun(rows, status, loss.optimal_value, guarantee, stopped_by)
    listeners.end(run, rows[-1], path)
    return run


class _Files:
    """The run directory of one call of ``descend_sgd``.

    Attributes:
        start: the checkpoint to continue from, if any.
        rows: the trace before it.
    """

    def __init__(self, path: Path, settings: dict[str, Any], W: Tensor, resume: bool, held: ExitStack) -> None:
        self._names = {"W": W}
        self._training = TrainingDirectory(path, settings, "run of sf.sgd", resume, held)
        self._trace = traces.TraceFile(path)
        self.start = self._training.latest(self._names)
        self.rows = self._trace.resume(0 if self.start is None else self.start.iteration)

    def save(self, rows: list[traces.Row], iteration: int, W: np.ndarray) -> None:
        """The rows so far, then a checkpoint before the step at ``iteration``."""
        self._trace.save(rows)
        self._training.save(checkpoints.Checkpoint(iteration, {"W": torch.from_numpy(W)}, {}, {}, 0))

    def diverged(self, rows: list[traces.Row]) -> np.ndarray | None:
        """Store the trace of a run that diverged; the newest checkpoint's weights."""
        self._trace.save(rows)
        checkpoint = self._training.latest(self._names)
        return None if checkpoint is None else checkpoint.weights["W"].numpy()


def _optimal_value_upper(loss: SquaredLoss, X: np.ndarray, Y: np.ndarray) -> float:
    """Rigorous upper bound of L*: the loss at the minimiser found, with the rounding of its evaluation."""
    U = np.ascontiguousarray(loss.optimum.cpu().numpy())
    residual = Approximation(U).image(X, math.inf, FAST) - Approximation(Y)
    return up(0.5 * residual.norm() ** 2, 6)


def _digests(net: LinearResNet, X: np.ndarray, Y: np.ndarray) -> dict[str, str]:
    """sha256 of network and data."""
    network = {name: value.detach().cpu().numpy() for name, value in (("A", net.A), ("B", net.B), ("W", net.W))}
    return {name: digest(np.ascontiguousarray(array)) for name, array in {**network, "X": X, "Y": Y}.items()}


def _require_own(guarantee: SGDGuarantee, digests: Mapping[str, str], batch_size: int) -> None:
    """Raise ``ValueError`` unless the guarantee is of these arrays and this batch size."""
    differing = sorted(name for name in digests if guarantee.arrays.get(name) != digests[name])
    if guarantee.quantities["batch"] != batch_size:
        differing.append("batch_size")
    if differing:
        raise ValueError(
            f"step is a guarantee of another network, data or batch size ({', '.join(differing)} differ); "
            "call sf.sgd.certify(net, X, Y, batch_size) again"
        )


def _data(net: LinearResNet, X: Any, Y: Any, batch_size: int) -> tuple[np.ndarray, np.ndarray, SquaredLoss]:
    if not isinstance(net, LinearResNet):
        raise TypeError(f"net is {kind_of(net)}; sf.sgd trains sf.nn.LinearResNet")
    require_trained(net)
    X = real("X", X, 2)
    Y = as_tensor("Y", Y)
    Y = real("Y", Y[:, None] if Y.ndim == 1 else Y, 2)
    loss = SquaredLoss(X, Y)
    if batch_size > len(X):
        raise ValueError(
            f"batch_size is {batch_size}; batches are drawn without replacement from {len(X)} rows: use at most {len(X)}"
        )
    return X.cpu().numpy(), Y.cpu().numpy(), loss
