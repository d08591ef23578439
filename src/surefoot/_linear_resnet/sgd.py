"""Minibatch SGD on linear ResNets, and the theorems that speak of it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from surefoot_check import linear_resnet as rigorous
from surefoot_check.arrays import digest
from surefoot_check.bounds import frobenius_upper
from surefoot_check.problems import Squared, load_problem
from surefoot_check.theorems import linear_resnet_sgd as theorems
from surefoot_check.theorems.linear_resnet import DIRECTIONS

from .._core import checkpoints
from .._core import trace as traces
from .._core.certificate import Condition, publish
from .._core.io import RunDirectoryError, make_directory, read_json, write_json
from .._core.losses import SquaredLoss
from .._core.run import RunStatus
from .._core.validate import nonnegative, positive_integer, real, unknown
from .engine import Iterate
from .network import LinearResNet
from .reduction import reduce

SGD_ID, INTERPOLATION_ID = theorems.SGD, theorems.INTERPOLATION
THEOREMS = (SGD_ID, INTERPOLATION_ID)
FORMAT = "surefoot-sgd/1"


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
    """

    theorem: str
    conditions: tuple[Condition, ...]
    step_size: float
    iterations: int
    probability: float
    rate: float
    quantities: Mapping[str, float]

    @property
    def holds(self) -> bool:
        """Whether the hypotheses hold, with the constants of the paper's appendix (docs/theorems/linear-resnet.md)."""
        return all(condition.holds for condition in self.conditions)

    def bound(self, t: int) -> float:
        """Bound of the loss: 2 L0 rate^t for t ≤ T (Theorem 3.8); L* + ε for the best iterate up to T, at t = T (Theorem 3.6).

        ``inf`` where the theorem says nothing.
        """
        if not self.holds or not 0 <= t <= self.iterations:
            return math.inf
        if self.theorem == INTERPOLATION_ID:
            return 2.0 * self.quantities["initial_loss"] * self.rate**t
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
    """Evaluate an SGD theorem at zero weights.

    Args:
        net: zero weights.
        X, Y: rows are samples, (n, d) and (n, k).
        batch_size: B ≤ n.
        theorem: ``linear-resnet/sgd`` (3.6: the best iterate is within ``target`` of the optimal value) or
            ``linear-resnet/sgd-interpolation`` (3.8: optimal value 0, linear rate for all t ≤ ``iterations``).
        target: ε of 3.6; by default 1e-2 of the initial gap. Must lie below the initial loss.
        delta: failure probability; at most 1/6 in 3.6 (whose conclusion has probability 1/2), below 1 in 3.8. Default 0.1.
        iterations: T of 3.8 (default 10,000); 3.6 determines it together with the step.

    Raises:
        TypeError, ValueError: bad data, shapes, weights that are not zero, or arguments out of range.
    """
    if theorem not in THEOREMS:
        raise unknown("SGD theorem", theorem, THEOREMS)
    X, Y, loss = _data(X, Y, batch_size)
    reduced = reduce(net, loss)
    if bool(net.W.any()):
        raise ValueError("net has nonzero weights; the SGD theorems speak of zero initial weights")
    limit = 1.0 / 6.0 if theorem == SGD_ID else 1.0
    delta = 0.1 if delta is None else delta
    if not 0.0 < delta <= limit or delta == 1.0:
        raise ValueError(f"delta is {delta!r}; {theorem} needs 0 < delta {'<= 1/6' if limit < 1.0 else '< 1'}")
    arrays = {name: getattr(reduced, name).cpu().numpy() for name in ("A", "B", "W")}
    problem = load_problem("squared", {k: v.cpu().numpy() for k, v in loss.reduced.arrays().items()})
    assert isinstance(problem, Squared)
    base = publish(rigorous.base_quantities(problem, arrays, {}), DIRECTIONS)
    gap = base["initial_gap"]
    q: dict[str, float] = {
        **{name: base[name] for name in ("norm_A", "norm_B", "norm_X", "sigma_min_A", "sigma_min_B", "sigma_min_X")},
        "initial_loss": gap + loss.optimal_value,
        "optimal_value": loss.optimal_value,
        "row_norm": max(frobenius_upper(row) for row in X),
        "samples": float(len(X)),
        "batch": float(batch_size),
        "depth": float(net.depth),
        "delta": delta,
    }
    conditions = []
    if theorem == SGD_ID:
        q["target"] = 1e-2 * gap if target is None else nonnegative("target", target)
        if not 0.0 < q["target"] < gap:
            raise ValueError(f"target is {target!r}; it must lie between 0 and the initial gap {gap:.6g}")
        count, eta = theorems.fixed_point(q)
        probability = 0.5
    else:
        if loss.optimal_value > 1e-12 * q["initial_loss"]:
            conditions.append(Condition("the optimal value is 0", loss.optimal_value, "<=", 0.0, False, None))
        count = float(positive_integer("iterations", 10_000 if iterations is None else iterations))
        if count < 2.0 * delta:
            raise ValueError(
                f"iterations is {iterations}; {theorem} needs at least 2 delta = {2.0 * delta:g} (docs/errata.md)"
            )
        eta = theorems.step(theorem, q, count)
        probability = 1.0 - delta
    conditions.append(Condition.of(theorems.condition(theorem, q)))
    return SGDGuarantee(theorem, tuple(conditions), eta, int(count), probability, 1.0 - theorems.rate(q, eta), q)


@dataclass(frozen=True)
class SGDRun:
    """A run of SGD.

    Attributes:
        rows: one row of ``iteration``, ``gap`` (full loss minus its optimal value) an iterate, and ``step``.
        status: how it ended.
        optimal_value: L*.
    """

    rows: list[traces.Row]
    status: RunStatus
    optimal_value: float

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


def batch_of(seed: int, iteration: int, samples: int, batch_size: int) -> np.ndarray:
    """Indices of the minibatch of an iteration: without replacement, by a generator of its own, so that resuming is exact."""
    return np.random.default_rng([seed, iteration]).choice(samples, batch_size, replace=False)


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
) -> SGDRun:
    """Minibatch SGD on the network's weights, in place: batches without replacement, gradients scaled by n/B.

    It runs in the subspace that zero weights reach, on n-row batches; the recorded gap is that of the full loss.

    Args:
        net, X, Y, batch_size: as in ``certify``.
        step: a number, or the result of ``certify`` (its step, and its iterations unless given).
        max_iterations: limit; 1000 by default where ``step`` is a number.
        tolerance: stop at this gap relative to the initial one.
        seed: of the batches; the same seed gives the same run.
        directory: write trace and checkpoints there; must not exist or be empty, unless ``resume``.
        resume: continue from the newest checkpoint; ``net`` must hold the initial weights again.

    Raises:
        TypeError, ValueError: bad data or arguments.
        RunDirectoryError: a directory that exists, or that cannot be resumed.
    """
    X, Y, loss = _data(X, Y, batch_size)
    eta = step.step_size if isinstance(step, SGDGuarantee) else nonnegative("step", step)
    if eta == 0.0:
        raise ValueError("step is 0; it must be a positive number")
    if max_iterations is None:
        max_iterations = step.iterations if isinstance(step, SGDGuarantee) else 1000
    tolerance = nonnegative("tolerance", tolerance)
    reduced = reduce(net, loss)
    # batches need the samples themselves: only the width is reduced (A on the original inputs)
    A_full = net.A if reduced.basis is None else reduced.basis.T @ net.A
    A, B, W = (np.array(t.detach().cpu().numpy()) for t in (A_full, reduced.B, reduced.W))
    statistics = loss.small
    inputs, targets = np.ascontiguousarray(statistics.design.T), (statistics.design @ statistics.optimum).T
    settings = {"format": FORMAT, "batch_size": batch_size, "step": eta, "seed": seed, "data": [digest(X), digest(Y)]}
    owner = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    path = None if directory is None else Path(directory)
    names = {"W": torch.from_numpy(W)}
    rows: list[traces.Row] = []
    iteration = 0
    if resume:
        if path is None:
            raise ValueError("resume=True needs the directory of the run to resume")
        if read_json(path / "config.json") != settings:
            raise RunDirectoryError(f"the run in {path} has other settings or data; start a run in another directory")
        checkpoint = checkpoints.latest(path, names, owner)
        if checkpoint is not None:
            iteration, W = checkpoint.iteration, np.array(checkpoint.weights["W"].numpy())
            rows = traces.read(path / "trace.jsonl")[:iteration]
    elif path is not None:
        make_directory(path)
        write_json(path / "config.json", settings)

    def save() -> None:
        if path is not None:
            traces.write(path / "trace.jsonl", rows)
            weights = {"W": torch.from_numpy(W)}
            checkpoints.save(path, checkpoints.Checkpoint(iteration, weights, {}, {}, 0), owner)

    due = checkpoints.Schedule()
    while True:
        gap = Iterate(inputs, targets, A, B, W).gap
        first = rows[0]["gap"] if rows else gap
        if not gap <= 1e6 * first:
            status = RunStatus.DIVERGED
            break
        row: traces.Row = {"iteration": iteration, "gap": gap}
        if gap <= tolerance * first or iteration >= max_iterations:
            rows.append(row)
            status = RunStatus.CONVERGED if gap <= tolerance * first else RunStatus.MAX_ITERATIONS
            break
        if due.due(iteration):
            save()
        rows.append({**row, "step": eta})
        batch = batch_of(seed, iteration, len(X), batch_size)
        gradient = Iterate(np.ascontiguousarray(X[batch].T), Y[batch].T, A, B, W).gradient
        W = W - (eta * len(X) / batch_size) * gradient
        iteration += 1
    if status is not RunStatus.DIVERGED:
        save()
        final = torch.from_numpy(W).to(net.W.device)
        with torch.no_grad():
            net.W.copy_(final if reduced.basis is None else reduced.basis @ final @ reduced.basis.T)
    return SGDRun(rows, status, loss.optimal_value)


def _data(X: Any, Y: Any, batch_size: int) -> tuple[np.ndarray, np.ndarray, SquaredLoss]:
    X = real("X", X, 2)
    Y = torch.as_tensor(Y)
    Y = real("Y", Y[:, None] if Y.ndim == 1 else Y, 2)
    positive_integer("batch_size", batch_size)
    if batch_size > len(X):
        raise ValueError(f"batch_size is {batch_size}; batches are drawn without replacement from {len(X)} rows")
    return X.cpu().numpy(), Y.cpu().numpy(), SquaredLoss(X, Y)
