"""Networks moved together follow the same iterates as alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import surefoot as sf
from surefoot._linear_resnet.batched import Batch
from surefoot._linear_resnet.engine import Iterate, SubspaceEngine
from surefoot._linear_resnet.reduction import reduce


def start(seed: int, depth: int = 4) -> Iterate:
    g = torch.Generator().manual_seed(seed)
    X = torch.randn(30, 3, generator=g, dtype=torch.float64)
    loss = sf.SquaredLoss(X, torch.randn(30, 2, generator=g, dtype=torch.float64))
    reduced = reduce(sf.nn.LinearResNet.gaussian(3, 2, 12, depth, seed=seed), loss)
    return SubspaceEngine(loss.reduced, reduced.A, reduced.B, reduced.W).iterate


def test_a_batch_of_seeds_and_steps_follows_each_alone() -> None:
    iterates = [start(seed) for seed in range(5)]
    steps = [1e-4, 2e-4, 5e-4, 1e-3, 1e-5]
    batch = Batch(iterates, steps)
    for _ in range(30):
        np.testing.assert_allclose(batch.gaps(), [iterate.gap for iterate in iterates], rtol=1e-10)
        batch.move()
        iterates = [iterate.after(eta) for iterate, eta in zip(iterates, steps, strict=True)]
    for index, iterate in enumerate(iterates):
        np.testing.assert_allclose(batch.W[:, index], iterate.W, rtol=1e-9, atol=1e-13)


def test_batches_of_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="different shapes"):
        Batch([start(0), start(1, depth=5)], [1e-3, 1e-3])
    with pytest.raises(ValueError, match="one step for each"):
        Batch([start(0)], [1e-3, 1e-3])
