"""Stock training of a plain network, looked at until an exact fit is guaranteed, by itself and with a finish."""

from __future__ import annotations

import copy
import itertools
import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from surefoot._core.certificate import Certificate
from surefoot._core.descent import certify, descend
from surefoot._core.losses import SquaredLoss
from surefoot._core.near_a_fit.features import moved
from surefoot._core.near_a_fit.training import METHODS
from surefoot._core.near_a_fit.watch import margin
from surefoot._feed_forward.features import features
from surefoot_check.checker import check
from surefoot_check.verdict import Outcome

from .feed_forward_cases import Kind

TARGET = 1e-10
"""Relative gap of the guaranteed counts, from where the certificate holds."""
FALL = 0.7
"""The weights are looked at again once the residual has fallen by this factor."""
CLOSE = 1e-3
"""A finish that lowers the residual by less is not certified."""
LONGEST = 1_000_000
"""Iterations of a descent."""


@dataclass(frozen=True)
class Fit:
    """Where an exact fit was guaranteed.

    Attributes:
        step: of the optimiser.
        guaranteed: iterations to ``TARGET``.
        radius: relative to the norm of the weights.
        moved: ‖a - a(0)‖_F/‖a(0)‖_F of each hidden layer.
        accepted: by the checker, at level fast, of a run of one step.
    """

    step: int
    guaranteed: float
    radius: float
    moved: list[float]
    accepted: bool


@dataclass(frozen=True)
class Look:
    """The training at one step; ``margin`` where the weights were looked at."""

    step: int
    loss: float
    moved: list[float]
    margin: float | None = None


@dataclass(frozen=True)
class Draw:
    """One seed: where a fit was guaranteed without a finish, and with one; the iterations that descent from the former took."""

    plain: Fit | None
    finished: Fit | None
    floor: int | None = None
    certified: int | None = None
    violations: int = 0
    history: list[Look] = field(default_factory=list)

    @property
    def looseness(self) -> float | None:
        """How many times the floor steps taken are guaranteed."""
        return None if self.plain is None or not self.floor else self.plain.guaranteed / self.floor

    @classmethod
    def of(cls, result: dict[str, Any]) -> Draw:
        """From plain values."""
        fits = {name: None if result[name] is None else Fit(**result[name]) for name in ("plain", "finished")}
        return cls(**{**result, **fits, "history": [Look(**look) for look in result["history"]]})


def computed_draw(
    kind: Sequence[Any], seed: int, limit: int, steps: int, only_finish: bool, X: Tensor, Y: Tensor
) -> dict[str, Any]:
    """Of one seed, in plain values.

    Args:
        kind: the fields of a ``Kind``.
        seed: of the initial weights and of the order of the rows.
        limit: on the steps of the optimiser.
        steps: of Gauss-Newton, of the finish at most.
        only_finish: end with the first fit that is guaranteed after a finish.
        X, Y: the data.
    """
    return asdict(_Training(Kind(*kind), seed, steps, X, Y).draw(limit, only_finish))


class _Training:
    """A network in training."""

    def __init__(self, kind: Kind, seed: int, steps: int, X: Tensor, Y: Tensor) -> None:
        self.kind, self.seed, self.steps, self.X, self.Y = kind, seed, steps, X, Y
        self.net = kind.net(X.shape[1], Y.shape[1], seed)
        self.loss = SquaredLoss(X.double(), Y.double())
        self.start = features(self.net, X)

    def draw(self, limit: int, only_finish: bool) -> Draw:
        plain: Fit | None = None
        finished: Fit | None = None
        history = [Look(0, 0.5 * _residual(self.net, self.X, self.Y) ** 2, self._moved(self.net))]
        seen = math.inf
        for step in itertools.takewhile(lambda step: step <= limit, self._steps()):
            residual = _residual(self.net, self.X, self.Y)
            history.append(Look(step, 0.5 * residual**2, self._moved(self.net)))
            if not residual <= FALL * seen:
                continue
            seen, certificate = residual, certify(self.net, self.loss)
            history[-1] = Look(step, history[-1].loss, history[-1].moved, margin(certificate))
            if certificate.holds:  # and needs no finish
                plain = self._fit(step, self.net, certificate)
                finished = finished or plain
                break
            finished = finished or self._finished(step, certificate, residual)
            if only_finish and finished:
                break
        return Draw(plain, finished, *self._descended(plain is not None and self.kind.descends), history)

    def _steps(self) -> Iterator[int]:
        """Train in place; after every so many steps, how many there have been."""
        method = METHODS[self.kind.optimizer]
        optimizer = method.make(self.net.parameters(), method.rate)
        batches = _batches(self.kind.batch, len(self.X), self.seed)
        for call in itertools.count(1):
            rows = next(batches)

            def closure(rows: Tensor | slice = rows) -> float:
                optimizer.zero_grad()
                value = 0.5 * (self.net(self.X[rows]) - self.Y[rows]).square().sum()
                value.backward()
                return float(value.detach())

            optimizer.step(closure)
            if call * method.steps % method.every == 0:
                yield call * method.steps

    def _moved(self, net: nn.Sequential) -> list[float]:
        return list(moved(self.start, features(net, self.X)))

    def _finished(self, step: int, certificate: Certificate, residual: float) -> Fit | None:
        net = finished(self.net, self.loss, certificate, self.steps)
        X, Y = self.X.double(), self.Y.double()
        if not _residual(net, X, Y) <= CLOSE * residual:
            return None
        after = certify(net, self.loss)
        return self._fit(step, net, after) if after.holds else None

    def _fit(self, step: int, net: nn.Sequential, certificate: Certificate) -> Fit:
        net = copy.deepcopy(net).double()
        size = math.sqrt(sum(float(weight.detach().square().sum()) for weight in net.parameters()))
        assert certificate.radius is not None
        return Fit(
            step,
            certificate.iterations_to(TARGET),
            certificate.radius / size,
            self._moved(net),
            accepted(net, self.loss, certificate),
        )

    def _descended(self, wanted: bool) -> tuple[int | None, int | None, int]:
        """Iterations to ``TARGET`` with floor steps, and with certified Barzilai-Borwein steps; violations in their audits."""
        if not wanted:
            return None, None, 0
        counts: list[int | None] = []
        violations = 0
        for rule in ("floor", "certified-bb"):
            net = copy.deepcopy(self.net).double()
            run = descend(net, self.loss, rule, LONGEST, TARGET, progress=False)
            counts.append(run.iterations if run.gaps[-1] <= TARGET * run.gaps[0] else None)
            violations += run.audit().violations
        return counts[0], counts[1], violations


def finished(net: nn.Sequential, loss: SquaredLoss, certificate: Certificate, steps: int) -> nn.Sequential:
    """A copy in float64 after at most so many Gauss-Newton steps, each halved until it lowers the residual."""
    found = copy.deepcopy(net).double()
    descend(found, loss, "gauss-newton", steps, certificate=certificate, progress=False)
    return found


def accepted(net: nn.Sequential, loss: Any, certificate: Certificate) -> bool:
    """Whether the checker accepts the directory of a run of one step, at level fast."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "run"
        found = copy.deepcopy(net)
        descend(found, loss, max_iterations=1, certificate=certificate, directory=path, progress=False)
        return check(path).outcome is Outcome.ACCEPT


def _residual(net: nn.Sequential, X: Tensor, Y: Tensor) -> float:
    with torch.no_grad():
        return float((net(X) - Y).norm())


def _batches(size: int, rows: int, seed: int) -> Iterator[Tensor | slice]:
    """All rows; or batches of a random order, which is drawn again every epoch, as a DataLoader has them."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        if size:
            yield from torch.randperm(rows, generator=generator).split(size)
        else:
            yield slice(None)
