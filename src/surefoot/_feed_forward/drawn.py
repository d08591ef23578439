"""Plain networks as torch draws their weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from surefoot_check.feed_forward.activations import ACTIVATIONS

from .modules import BY_CODE

NAMES = {ACTIVATIONS[code].name.lower().replace(" ", "-"): code for code in BY_CODE}
"""Codes of activations by the names that command line and estimators take."""


def drawn_network(widths: Sequence[int], activation: str, seed: int) -> nn.Sequential:
    """Linear layers of these widths, inputs and outputs included, with an activation between them; float64, torch's initial
    weights."""
    kind = BY_CODE[NAMES[activation]]
    modules: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for index in range(len(widths) - 1):
            modules += [nn.Linear(widths[index], widths[index + 1], dtype=torch.float64), kind.module()]
    return nn.Sequential(*modules[:-1])
