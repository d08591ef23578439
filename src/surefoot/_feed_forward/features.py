"""The features of a network: what its layers with weights take in, after the first."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .modules import flat


def features(net: nn.Sequential, X: Tensor) -> list[Tensor]:
    """The inputs of every module with weights but the first, for all rows of X, in the dtype of the network."""
    found: list[Tensor] = []
    with torch.no_grad():
        a = X.to(next(net.parameters()).dtype)
        for _, module in flat(net):
            if any(True for _ in module.parameters()):
                found.append(a)
            a = module(a)
    return found[1:]
