"""Certificates in a training loop of one's own: from which iteration on a fit is guaranteed, and how far that is before."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real

from torch import nn

from .._core.certificate import Certificate
from .._core.descent import certify
from .._core.losses import Loss
from .._core.registry import system_of
from .._core.samples import sample_loss
from .._core.validate import positive_integer


@dataclass(frozen=True)
class Seen:
    """One look at the weights.

    Attributes:
        iteration: how often ``step`` had been called.
        gap: upper bound of the loss.
        margin: how far from a guarantee, which needs more than 1; 0 where the Jacobian has no full row rank.
        holds: whether it was certified.
        seconds: what the look took.
    """

    iteration: int
    gap: float
    margin: float
    holds: bool
    seconds: float


class Watch:
    """Evaluates ``feed-forward/local`` along a training, with any optimiser and any batches.

    Attributes:
        iteration: how often ``step`` was called.
        certified: the first iteration at which an exact fit was guaranteed; ``None`` before.
        certificate: the newest certificate; ``None`` before the first look.
        history: all looks. One at weights that are not finite has no certificate, an infinite gap and the margin 0.
    """

    def __init__(
        self,
        net: nn.Sequential,
        loss: Loss,
        every: int,
        share: float,
        report: Callable[[str], object] | None,
    ) -> None:
        self.every = positive_integer("every", every)
        if isinstance(share, bool) or not isinstance(share, Real) or not 0.0 < share <= 1.0:
            raise ValueError(f"share is {share!r}; it must be positive and at most 1")
        if report is not None and not callable(report):
            raise TypeError(f"report is {report!r}; pass a function that takes a line of text, or None")
        system = system_of(net)
        system.reduced(net, system.problem(net, sample_loss(loss)))
        self._net, self._loss, self._share, self._report = net, loss, float(share), report
        self.iteration = 0
        self.certified: int | None = None
        self.certificate: Certificate | None = None
        self.history: list[Seen] = []
        self._start, self._spent = time.monotonic(), 0.0

    @property
    def margin(self) -> float | None:
        """σ0²/(2Λr0) at the newest look, or the margin of the kinks if that is less: how far from a guarantee, which needs more
        than 1. ``None`` before the first look."""
        return self.history[-1].margin if self.history else None

    def step(self) -> Certificate | None:
        """Call this once after every step of the optimiser. Every so many calls it looks at the weights, and returns the
        certificate then; a look that would take more than the given share of the time is left out.

        A training that diverged, so that weights are not finite, is no error: the look says so, and there is no certificate.

        Raises:
            TypeError, ValueError: as ``sf.certify``, at a look.
        """
        self.iteration += 1
        if self.iteration % self.every or not self._affordable():
            return None
        if not all(bool(weight.isfinite().all()) for weight in self._net.parameters()):
            self.history.append(Seen(self.iteration, math.inf, 0.0, False, 0.0))
            return None
        return self.look()

    def look(self) -> Certificate:
        """Look at the weights now, whatever it takes."""
        start = time.monotonic()
        certificate = certify(self._net, self._loss, "feed-forward/local")
        seconds = time.monotonic() - start
        self._spent += seconds
        self.certificate = certificate
        seen = Seen(self.iteration, certificate.initial_gap, margin(certificate), certificate.holds, seconds)
        self.history.append(seen)
        if certificate.holds and self.certified is None:
            self.certified = self.iteration
            if self._report is not None:
                self._report(
                    f"surefoot: from iteration {self.iteration} on an exact fit is guaranteed within "
                    f"{certificate.radius:.3g} of the weights (margin {seen.margin:.3g})"
                )
        return certificate

    def _affordable(self) -> bool:
        """Whether one more look like the last would stay within the share of the time."""
        if not self.history or self._share == 1.0:
            return True
        elapsed, last = time.monotonic() - self._start, self.history[-1].seconds
        return self._spent + last <= self._share * (elapsed + last)


def margin(certificate: Certificate) -> float:
    """σ0²/(2Λr0), or the margin of the kinks if that is less; 0 where σ0 has no positive bound."""
    q = certificate.quantities
    if "lipschitz_J" not in q:
        return 0.0
    needed = 2.0 * q["lipschitz_J"] * q["r0"]
    return min(q["sigma_min_J"] ** 2 / needed if needed > 0.0 else math.inf, q.get("kink_margin", math.inf))


def watch(
    net: nn.Sequential,
    loss: Loss,
    every: int = 100,
    *,
    share: float = 0.1,
    report: Callable[[str], object] | None = print,
) -> Watch:
    """Watch the training of a plain network in a loop of one's own: from which iteration on is an exact fit guaranteed?

    ``watch.step()`` goes after ``optimizer.step()``. The optimiser may be any, as may the batches: the certificate is about the
    weights, and the loss of all rows.

    Args:
        net: a ``torch.nn.Sequential`` that ``sf.certify`` takes.
        loss: ``sf.SquaredLoss`` of all rows.
        every: look at the weights every so many steps.
        share: of the time since the start, what looking may take at most; 1 for no limit.
        report: called with a line at the first certified iterate; ``None`` for silence.

    Raises:
        TypeError: a network or loss that is not supported; the network may be in float32.
        ValueError: an argument out of range, or shapes that do not fit.
    """
    if not isinstance(net, nn.Sequential):
        raise TypeError(f"net is a {type(net).__name__}; sf.watch takes a torch.nn.Sequential")
    return Watch(net, loss, every, share, report)
