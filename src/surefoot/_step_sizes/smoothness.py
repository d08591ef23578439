"""Which β a solver divides by."""

from __future__ import annotations

from numbers import Real

import torch
from torch import Tensor

from .._core.validate import as_tensor, finite, nonnegative, unknown
from .._problems import Problems

Smoothness = float | Tensor | str | None
"""Which β solvers divide by: "per-problem", "common", "authors" or numbers, see ``StepSizeNet.solve``."""
AUTHORS = 0.9999
"""The published code steps by .9999/β."""
ROOM = 1.0 + 1e-8
"""β is the bound of the smoothness times this, so that a certificate, whose quantities are published with slack, covers P = 2."""


def smoothness_of(problems: Problems, smoothness: Smoothness) -> Tensor:
    """The β_p (N,) float64 that ``StepSizeNet.solve`` means.

    Raises:
        TypeError, ValueError: no such name, or numbers that are not positive and finite, or of another length.
    """
    if smoothness is None or isinstance(smoothness, str):
        beta = problems.smoothness * ROOM
        if smoothness in (None, "per-problem"):
            return beta
        if smoothness not in ("common", "authors"):
            raise unknown("smoothness", smoothness, ("per-problem", "common", "authors"))
        return beta.max().expand_as(beta) / (AUTHORS if smoothness == "authors" else 1.0)
    beta = as_tensor(
        "smoothness", [nonnegative("smoothness", smoothness)] if isinstance(smoothness, Real) else smoothness
    )
    beta = beta.to(device=problems.M.device, dtype=torch.float64).reshape(-1)
    if len(beta) not in (1, problems.count):
        raise ValueError(
            f"smoothness has {len(beta)} entries; pass a number, or one for each of {problems.count} problems"
        )
    finite("smoothness", beta)
    if not bool((beta > 0.0).all()):
        raise ValueError(f"smoothness is {float(beta.min()):g}; it must be positive: steps are divided by it")
    if float(beta.min()) < torch.finfo(problems.M.dtype).tiny:
        raise ValueError(f"smoothness is {float(beta.min()):g}; its inverse overflows in {problems.M.dtype}: rescale M")
    return beta.expand(problems.count)


def inverse_smoothness(problems: Problems, smoothness: Smoothness) -> Tensor:
    """1/β_p (N, 1) in the problems' dtype."""
    return (1.0 / smoothness_of(problems, smoothness)).to(problems.M.dtype)[:, None]
