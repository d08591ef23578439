"""Certificates in a training loop of one's own: from which iteration on a fit or a minimum is guaranteed, and how far that is
before."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from numbers import Real
from pathlib import Path

from torch import nn

from surefoot_check.text import chance, counted

from ..certificate import Certificate, digests
from ..descent import certify
from ..draws import drawing
from ..io import make_folder, refuse_used
from ..losses import Loss
from ..minibatch import DELTA
from ..registry import SYSTEMS
from ..sgd import stochastic
from ..system import AnyWatchable, Watchable
from ..validate import folder, kind_of, positive_integer
from .features import moved
from .history import History, Seen
from .planner import about_states

FITTED = ("a step in the mean is not too long", "no batch steps too far", "T steps")
"""How the conditions begin that step, growth and epochs are chosen to keep just so."""


class Watch:
    """Evaluates a theorem about states along a training, with any optimiser and any batches.

    Attributes:
        theorem: its id.
        iteration: how often ``step`` was called.
        certified: the first iteration at which an exact fit, or a strict local minimum, was guaranteed; ``None`` before.
        certificate: the newest certificate; ``None`` before the first look.
        history: all looks. One at weights that are not finite has no certificate, an infinite gap and the margin 0; one where
            the equilibrium is lost has an infinite loss and the margin 0.
    """

    def __init__(
        self,
        net: nn.Module,
        loss: Loss,
        every: int,
        share: float,
        report: Callable[[str], object] | None,
        directory: str | Path | None,
        batch: int | None = None,
        delta: float = DELTA,
    ) -> None:
        self.every = positive_integer("every", every)
        if isinstance(share, bool) or not isinstance(share, Real) or not 0.0 < share <= 1.0:
            raise ValueError(f"share is {share!r}; it must be positive and at most 1")
        if report is not None and not callable(report):
            raise TypeError(f"report is {report!r}; pass a function that takes a line of text, or None")
        self._system = watchable_of(net)
        self._problem = self._system.problem(net, loss)
        if batch is not None:
            loss = self._problem = stochastic(net).drawn(net, loss, None, drawing(batch, delta))
        self._system.reduced(net, self._problem)
        self._directory = None if directory is None else _free(folder("directory", directory))
        self._net, self._loss, self._share, self._report = net, loss, float(share), report
        self.theorem = self._system.watched(self._problem).id
        self._features = self._system.features(net, self._problem)
        self.iteration = 0
        self.certified: int | None = None
        self.certificate: Certificate | None = None
        self.history: list[Seen] = []
        self._start, self._spent = time.monotonic(), 0.0

    def __repr__(self) -> str:
        """What it has seen, in a line."""
        margin = "" if self.margin is None else f", margin {self.margin:.3g}"
        found = "not certified yet" if self.certified is None else f"certified from iteration {self.certified} on"
        return f"<Watch by {self.theorem}: {found}, {counted(self.iteration, 'iteration')}{margin}>"

    @property
    def margin(self) -> float | None:
        """How far from a guarantee the newest look was, which needs more than 1: σ0²/(2Λr0), or the margin of the kinks if that
        is less; of a minimum m0²/(2Λ3g0); of mini-batches the least ratio of the sides of a condition. ``None`` before the first
        look."""
        return self.history[-1].margin if self.history else None

    def step(self) -> Certificate | None:
        """Call this once after every step of the optimiser. Every so many calls it looks at the weights, and returns the
        certificate then; a look that would take more than the given share of the time is left out.

        A training that diverged, so that weights are not finite, or whose equilibrium is lost (γ‖A‖ ≥ 1), is no error: the look
        says so, and nothing is guaranteed.

        Raises:
            TypeError, ValueError: as ``sf.certify``, at a look.
            OSError: the history cannot be written.
        """
        self.iteration += 1
        if self.iteration % self.every or not self._affordable():
            return None
        if not all(bool(weight.isfinite().all()) for weight in self._net.parameters()):
            self._keep(Seen(self.iteration, math.inf, math.inf, 0.0, (), False, 0.0))
            return None
        return self.look()

    def look(self) -> Certificate:
        """Look at the weights now, whatever it takes."""
        start = time.monotonic()
        certificate = certify(self._net, self._loss, self.theorem)
        loss = self._system.value(self._net, self._problem)
        shares = moved(self._features, self._system.features(self._net, self._problem))
        seconds = time.monotonic() - start
        self._spent += seconds
        self.certificate = certificate
        gap, found = certificate.initial_gap, margin(certificate)
        first = certificate.holds and self.certified is None
        if first:  # known also where the history cannot be written
            self.certified = self.iteration
        self._keep(Seen(self.iteration, loss, gap, found, shares, certificate.holds, seconds))
        if first and self._report is not None:
            self._report(
                f"surefoot: from iteration {self.iteration} on {self._guaranteed(certificate)} (margin {found:.3g})"
            )
        return certificate

    def save(self, directory: str | Path) -> Path:
        """Write the history into ``watch.json``, where the report of a run in the same directory finds it.

        Raises:
            OSError: it cannot be written.
        """
        path = folder("directory", directory)
        make_folder(path)
        History(self.theorem, digests(self._problem.reduced.arrays(), {}), self.history).write(path)
        return path

    def _keep(self, seen: Seen) -> None:
        self.history.append(seen)
        if self._directory is not None:
            self.save(self._directory)

    def _guaranteed(self, certificate: Certificate) -> str:
        """What is guaranteed, and where, or how probably."""
        point = self._system.words.points[certificate.theorem]
        if certificate.radius is not None:
            return f"{point} is guaranteed within {certificate.radius:.3g} of the weights"
        q = certificate.quantities
        return (
            f"{point} is guaranteed with probability {chance(certificate.probability)}, by SGD with batches of {q['batch']:g} "
            f"and the step {q['batch_step']:.3g} of the loss summed over a batch"
        )

    def _affordable(self) -> bool:
        """Whether one more look like the last would stay within the share of the time."""
        if not self.history or self._share == 1.0:
            return True
        elapsed, last = time.monotonic() - self._start, self.history[-1].seconds
        return self._spent + last <= self._share * (elapsed + last)


def _free(directory: Path) -> Path:
    """The directory, in which a run may start."""
    refuse_used(directory)
    return directory


def margin(certificate: Certificate) -> float:
    """m²/(2Λs) in the terms of the certificate's theorem, or the margin of the kinks if that is less; 0 where m has no positive
    bound. Of mini-batches the least ratio of the sides of a condition that step and epochs do not fit to a limit."""
    q, theorem = certificate.quantities, about_states(certificate.theorem)
    if theorem is None:
        said = [c for c in certificate.conditions if not c.holds or not (c.margin is None or c.name.startswith(FITTED))]
        return min(0.0 if c.margin is None else 10.0**c.margin for c in said)
    if theorem.bend not in q:
        return 0.0
    needed = 2.0 * q[theorem.bend] * q[theorem.start]
    return min(q[theorem.least] ** 2 / needed if needed > 0.0 else math.inf, q.get("kink_margin", math.inf))


def watchable_of(net: object) -> AnyWatchable:
    """The system of a network that can be watched; ``TypeError`` that lists such networks otherwise."""
    known = [system for system in SYSTEMS if isinstance(system, Watchable)]
    for system in known:
        if isinstance(net, system.network):
            return system
    raise TypeError(f"net is {kind_of(net)}; sf.watch takes {' or '.join(s.network_name for s in known)}")


def watch(
    net: nn.Module,
    loss: Loss,
    every: int = 100,
    *,
    batch: int | None = None,
    delta: float = DELTA,
    share: float = 0.1,
    report: Callable[[str], object] | None = print,
    directory: str | Path | None = None,
) -> Watch:
    """Watch the training of a plain or implicit network in a loop of one's own: from which iteration on is an exact fit
    guaranteed, or a strict local minimum of the training objective?

    ``watch.step()`` goes after ``optimizer.step()``. The optimiser may be any, as may the batches: the certificate is about the
    weights, and the loss of all rows.

    Args:
        net: a ``torch.nn.Sequential`` that ``sf.certify`` takes, or ``sf.nn.ImplicitReLU``.
        loss: ``sf.SquaredLoss`` of all rows, or of plain networks ``sf.TorchLoss``, one's own training objective.
        every: look at the weights every so many steps.
        batch: ask about mini-batch SGD with so many rows a batch: from which iteration on is it guaranteed to reach an exact fit,
            with probability 1 - ``delta``?
        delta: of that.
        share: of the time since the start, what looking may take at most; 1 for no limit.
        report: called with a line at the first certified iterate; ``None`` for silence.
        directory: keep the history there, in ``watch.json``, for the report of a run that ``sf.descend`` writes into the same
            directory. Must not exist or be empty.

    Returns:
        The watch: its ``certified`` is the iteration asked for, ``None`` before; ``certificate`` and ``history`` say why.

    Raises:
        TypeError: a network or loss that is not supported; a plain network may be in float32.
        ValueError: an argument out of range, or shapes that do not fit.
        RunDirectoryError: a directory that has a run already.

    Example:
        >>> X, y = torch.randn(5, 3).double(), torch.randn(5).double()
        >>> net = torch.nn.Sequential(
        ...     torch.nn.Linear(3, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
        ... ).double()
        >>> optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
        >>> watch = sf.watch(net, sf.SquaredLoss(X, y), every=50, share=1.0)
        >>> while watch.certified is None and watch.iteration < 2000:
        ...     optimizer.zero_grad()
        ...     (net(X)[:, 0] - y).square().sum().backward()
        ...     optimizer.step()
        ...     _ = watch.step()
        surefoot: from iteration ... on an exact fit is guaranteed within ... of the weights (margin ...)
    """
    return Watch(net, loss, every, share, report, directory, batch, delta)
