"""Checkpoints of trainings in an earlier layout: a tensor for each parameter, and its moments as torch's Adam has them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..._learning.fit import INNER
from ..._learning.shared_sum import flat

MOMENTS = {"exp_avg": "first", "exp_avg_sq": "second"}
"""Of torch's Adam, and of ours."""


def as_vectors(
    tensors: dict[str, Tensor], weights: Mapping[str, Tensor], coefficients: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """A checkpoint with all parameters in one tensor, the coefficients last; unchanged where it is one.

    Args:
        tensors: by name.
        weights, coefficients: the parameters by name, in their order.

    Raises:
        KeyError: a tensor is missing.
    """
    if "weights" in tensors:
        return tensors
    validation, epoch = tensors["engine.validation"], tensors["iteration"]
    before = validation[:, 0] < epoch.to(validation)
    vectors = {name: tensors[name] for name in ("iteration", "phases", "certificate", "rule.seconds")} | {
        "weights": flat(tensors[name] for name in (*weights, *coefficients)),
        "best": flat(tensors[f"best.{name}"] for name in (*weights, *coefficients)),
        "rule.best": validation[:, 1].min(),
        "rule.best_epoch": tensors["rule.best_step"],
        "engine.losses": validation.new_zeros(0),
        "engine.validation": validation[before, 1],
        "engine.validation_epochs": validation[before, 0].long(),
    }
    # before the first step nothing is remembered
    if "engine.weights.0.step" in tensors:
        still = [torch.zeros_like(value) for value in weights.values()]
        vectors |= _moments(tensors, "weights", "", [], [torch.zeros_like(value) for value in coefficients.values()])
        if coefficients:
            vectors |= _moments(tensors, "inverse", INNER, still, [])
    return vectors


def _moments(
    tensors: Mapping[str, Tensor], optimizer: str, prefix: str, before: list[Tensor], after: list[Tensor]
) -> dict[str, Tensor]:
    """What an optimiser remembers of its parameters, which are stored by number, between zeros for those that it leaves alone."""
    stored = f"engine.{optimizer}."
    count = len({name.split(".")[2] for name in tensors if name.startswith(stored)})
    vectors = {
        f"engine.{prefix}{ours}": flat([*before, *(tensors[f"{stored}{i}.{theirs}"] for i in range(count)), *after])
        for theirs, ours in MOMENTS.items()
    }
    return vectors | {f"engine.{prefix}count": tensors[f"{stored}0.step"].long()}
