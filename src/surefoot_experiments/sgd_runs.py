"""Many runs of mini-batch SGD at once, from one start, each with batches of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

Batches = Callable[[int], Tensor]
"""The rows (R, B) of an iteration's batches, one of each run."""


class Certified(Protocol):
    """What a certificate of mini-batches says."""

    @property
    def quantities(self) -> Mapping[str, float]:
        """By name."""
        ...

    def bound(self, t: int) -> float:
        """Of the gap after so many iterations."""
        ...


class Iterates(Protocol):
    """R iterates."""

    def step(self, rows: Tensor, h: float) -> None:
        """θ - h J_Sᵀ r_S of each, with its own of the batches (R, B)."""
        ...

    def gaps(self) -> Tensor:
        """½‖r‖² on all rows (R,)."""
        ...

    def distances(self) -> Tensor:
        """From the start (R,)."""
        ...


class Networks:
    """Copies of a network of ``Linear`` layers with biases, and ``Tanh`` or nothing between them; X (N, d), Y (N, k)."""

    def __init__(self, net: nn.Sequential, X: Tensor, Y: Tensor, copies: int) -> None:
        self._X, self._Y = X, Y
        layers = [layer for layer in net if isinstance(layer, nn.Linear)]
        kinds = [isinstance(layer, nn.Tanh) for layer in net if not isinstance(layer, nn.Linear)]
        self._bent = any(kinds)
        if len(kinds) != (len(layers) - 1) * self._bent or not all(kinds):
            raise ValueError(f"net is {net}; give Linear layers, all with Tanh or all with nothing between them")
        self._start = [(layer.weight.detach(), layer.bias.detach()) for layer in layers]
        self._W = [W.expand(copies, *W.shape).clone() for W, _ in self._start]
        self._b = [b.expand(copies, 1, -1).clone() for _, b in self._start]

    def _outputs(self, a: Tensor) -> list[Tensor]:
        """Of each layer, X itself first; (R, rows, width)."""
        found = [a]
        for index, (W, b) in enumerate(zip(self._W, self._b, strict=True), 1):
            z = torch.baddbmm(b, found[-1], W.mT)
            found.append(z.tanh_() if self._bent and index < len(self._W) else z)
        return found

    def step(self, rows: Tensor, h: float) -> None:
        outputs = self._outputs(self._X[rows])
        back = outputs[-1] - self._Y[rows]
        for index in range(len(self._W) - 1, -1, -1):
            W, b, a = self._W[index], self._b[index], outputs[index]
            before = torch.bmm(back, W) if index else back
            if index and self._bent:
                before.mul_(1.0 - a * a)
            W.baddbmm_(back.mT, a, alpha=-h)
            b.sub_(back.sum(dim=1, keepdim=True), alpha=h)
            back = before

    def gaps(self) -> Tensor:
        residual = self._outputs(self._X.expand(len(self._W[0]), -1, -1))[-1] - self._Y
        return 0.5 * residual.square().sum(dim=(1, 2))

    def distances(self) -> Tensor:
        squares = [
            (W - W0).square().sum(dim=(1, 2)) + (b - b0).square().sum(dim=(1, 2))
            for W, b, (W0, b0) in zip(self._W, self._b, self._start, strict=True)
        ]
        return torch.stack(squares).sum(dim=0).sqrt()


@dataclass(frozen=True)
class Outcome:
    """What R runs did, as far as was looked.

    Attributes:
        taken: iterations of each until its gap first was at most the goal; ``None`` if it never was.
        above: runs whose gap was above the bound.
        left: runs that were out of the ball.
        sure_distance: the largest distance from the start of any in the first ``epoch`` iterations, and …
        sure_gap: … the largest gap.
    """

    taken: Sequence[int | None]
    above: int
    left: int
    sure_distance: float
    sure_gap: float


def run(
    iterates: Iterates,
    batches: Batches,
    certificate: Certified,
    goal: float,
    *,
    limit: int,
    every: int = 1,
    to_the_end: bool = False,
) -> Outcome:
    """Take at most ``limit`` of the certificate's steps, until all gaps have been at most the goal unless ``to_the_end``, and
    look at all iterates every so many of them."""
    q, first = certificate.quantities, iterates.gaps()
    taken: list[int | None] = [None] * len(first)
    above = torch.zeros_like(first, dtype=torch.bool)
    left = above.clone()
    surely, largest, t = 0.0, 0.0, 0
    while True:
        if t % every == 0 or t == limit:
            gaps, distances = iterates.gaps(), iterates.distances()
            above |= ~(gaps <= certificate.bound(t))
            left |= ~(distances <= q["ball"])
            if t <= q["epoch"]:
                surely, largest = max(surely, float(distances.max())), max(largest, float(gaps.max()))
            reached = (gaps <= goal).tolist()
            taken = [t if at is None and now else at for at, now in zip(taken, reached, strict=True)]
        if t == limit or not (to_the_end or None in taken):
            return Outcome(taken, int(above.sum()), int(left.sum()), surely, largest)
        iterates.step(batches(t), q["batch_step"])
        t += 1
