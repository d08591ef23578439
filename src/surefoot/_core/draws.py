"""Batches of samples, drawn anew at every step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .minibatch import DELTA, Sampling
from .validate import integer, positive

AIM = 1e-7
"""Relative gap whose guaranteed count decides between choices where none is given."""


def batch_of(seed: int, iteration: int, samples: int, batch_size: int) -> np.ndarray:
    """Indices of the batch of an iteration: without replacement, by a generator of its own, so that resuming is exact."""
    return np.random.default_rng([seed, iteration]).choice(samples, batch_size, replace=False)


@dataclass(frozen=True)
class Draws:
    """How batches are drawn from so many samples.

    Attributes:
        sampling: their size, and the probability that a guarantee may fail with.
        aim: relative gap for which a guarantee should need the fewest iterations.
        seed: of the batches of a run.
    """

    samples: int
    sampling: Sampling
    aim: float = AIM
    seed: int = 0

    @property
    def size(self) -> int:
        """B."""
        return self.sampling.size

    def rows(self, iteration: int) -> np.ndarray:
        """Indices of the batch of an iteration."""
        return batch_of(self.seed, iteration, self.samples, self.size)


Drawing = Callable[[int], Draws]
"""The batches that are drawn of so many samples."""


def drawing(batch_size: Any, delta: Any = DELTA, aim: Any = AIM, seed: Any = 0) -> Drawing:
    """Batches of so many samples each, validated where it is known how many samples there are."""
    aim, seed = positive("target", aim), integer("seed", seed, 0)
    return lambda samples: Draws(samples, Sampling.of(batch_size, delta, samples), aim, seed)
