"""Batches of samples, drawn anew at every step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .minibatch import Sampling

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
