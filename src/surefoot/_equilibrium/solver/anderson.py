"""Anderson's method (type II) of each sample, safeguarded, and what it would gain after plain steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_MEMORY = 8  # differences kept
_REGULAR = 10.0  # in units of the rounding of g, relative to the squares of the differences


def cost(samples: int, size: int) -> float:
    """Of a mixed step of that many samples and entries each, in plain ones, by microseconds of one thread.

    A plain step takes 120 and 0.01 for each entry of all samples, as evaluations of cells with some hundred operations an
    entry do. Mixing adds 150 of calls, 0.7 for each sample's linear system, and 0.004 for each entry.
    """
    entries = samples * size
    return 1.0 + (150.0 + 0.7 * samples + 0.004 * entries) / (120.0 + 0.01 * entries)


def part_left(F: Sequence[Tensor]) -> NDArray[np.float64]:
    """(S,): the least ‖aF + bF' + cF''‖/‖F''‖ with a + b + c = 1, of the F of three consecutive steps."""
    earlier, before, last = F
    pairs = ((last, last), (before, before), (earlier, earlier), (last, before), (before, earlier), (last, earlier))
    products = torch.stack([torch.linalg.vecdot(*pair) for pair in pairs]).double().cpu().numpy()
    with np.errstate(all="ignore"):
        first, second, third, near, far, across = products / products[0]
        # the normal equations of the differences F'' − F' and F' − F
        p, q, r = 1.0 - 2.0 * near + second, near - second - across + far, second - 2.0 * far + third
        s, t = 1.0 - near, near - across
        return np.sqrt(np.maximum(first - (r * s * s - 2.0 * q * s * t + p * t * t) / (p * r - q * q), 0.0))


class Anderson:
    """The latest differences of F = g(z) − z and of g, (S, memory, D), with the products of the former (S, memory, memory).

    A mixed iterate is kept only if the residual falls by half of what a plain step promises; else the memory is cleared and
    the plain step is taken, so that at worst every second evaluation is lost.

    Attributes:
        mixing: the samples that mix; the others take plain steps.
        mixed: those whose latest iterate came from mixing.
        allowed: the factor by which a mixed iterate must reduce the residual.
        g: g(z) of the iterates that were kept.
    """

    def __init__(self, z: Tensor, mixing: Tensor, eps: float) -> None:
        samples, size = z.shape
        real = {"dtype": torch.float64, "device": z.device}
        self.mixing = self.mixed = mixing
        self.allowed = torch.ones(samples, **real)
        self.g: Tensor | None = None
        self._F, self._norm = z, torch.full((samples,), torch.inf, **real)
        self._dF = z.new_empty(samples, _MEMORY, size)
        self._dG = z.new_empty(samples, _MEMORY, size)
        self._pair = z.new_empty(samples, 2, size)  # the newest difference of F, and F
        self._gram = torch.zeros(samples, _MEMORY, _MEMORY, **real)
        unit = torch.eye(_MEMORY, **real)
        self._ridge = 1.0 + _REGULAR * eps * unit
        self._tiny = torch.finfo(torch.float64).tiny * unit  # differences that were cleared weigh nothing
        self._products = self._gram[:, :0, :1]  # of F with the differences (S, differences, 1)
        self._count = 0

    def next(self, g: Tensor, F: Tensor, norm: Tensor) -> Tensor:
        """The iterates (S, D) after an evaluation, F = g − z of norm ``norm``."""
        rejected = self.mixed & ~(norm <= self.allowed * self._norm)  # NaN is rejected too
        self.remember(g, F, norm, rejected if bool(rejected.any()) else None)
        # a plain step to NaN stays one, and is a failure
        return self.mix(self.weights(), self.mixing & ~rejected & norm.isfinite())

    def remember(self, g: Tensor, F: Tensor, norm: Tensor, rejected: Tensor | None = None) -> None:
        """Take an evaluation; the rejected are cleared and keep the one before."""
        if self.g is None:
            self.g, self._F, self._norm = g, F, norm
            return
        slot = self._count % _MEMORY
        self._count += 1
        stored = min(self._count, _MEMORY)
        newest = self._pair[:, 0]
        torch.sub(F, self._F, out=newest)
        self._pair[:, 1] = F
        self._dF[:, slot] = newest
        torch.sub(g, self.g, out=self._dG[:, slot])
        if rejected is not None:
            column = rejected[:, None]
            g, F = torch.where(column, self.g, g), torch.where(column, self._F, F)
            norm = torch.where(rejected, self._norm, norm)
            for memory in (self._dF[:, :stored], self._dG[:, :stored], self._gram, self._pair):
                memory[rejected] = 0.0
        products = (self._pair @ self._dF[:, :stored].mT).double()
        self._gram[:, slot, :stored] = self._gram[:, :stored, slot] = products[:, 0]
        self._products = products[:, 1, :, None]
        self.g, self._F, self._norm = g, F, norm

    def weights(self) -> Tensor:
        """(S, differences, 1): the combination of the differences of F that is nearest to F."""
        stored = self._products.shape[1]
        gram = self._gram[:, :stored, :stored] * self._ridge[:stored, :stored] + self._tiny[:stored, :stored]
        return torch.linalg.solve_ex(gram, self._products)[0]

    def mix(self, weights: Tensor, use: Tensor) -> Tensor:
        """The next iterates (S, D): mixed where ``use``, else the plain step."""
        assert self.g is not None
        self.mixed = use
        chosen = torch.where(use[:, None], weights[:, :, 0], 0.0).to(self.g.dtype)
        return torch.baddbmm(self.g[:, None], chosen[:, None], self._dG[:, : chosen.shape[1]], alpha=-1.0)[:, 0]
