"""Modules that are fixed affine maps of rows: each is read as a ``Linear`` that is not trained."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from surefoot_check.feed_forward.geometry import LARGEST_MATRIX


def fixed_linear(scale: Tensor, shift: Tensor | None = None) -> nn.Linear:
    """A ``Linear`` that is not trained, of the matrix ``scale`` (outputs, inputs), or (width,) for a diagonal one.

    Raises:
        ValueError: a diagonal one that is too large to hold.
    """
    if scale.ndim == 1:
        require_matrix(len(scale), len(scale))
    W = torch.diag(scale) if scale.ndim == 1 else scale
    linear = nn.Linear(W.shape[1], W.shape[0], shift is not None, dtype=W.dtype, device=W.device)
    with torch.no_grad():
        linear.weight.copy_(W)
        if shift is not None:
            linear.bias.copy_(shift)
    return linear.requires_grad_(False)


def require_matrix(rows: int, columns: int) -> None:
    """Raise ``ValueError`` where a map of so many numbers to so many is too large to hold as a matrix."""
    if rows * columns > LARGEST_MATRIX:
        raise ValueError(
            f"a fixed map of {columns:,} numbers to {rows:,}, of a mean, a batch norm or beside a block, is a matrix of more "
            f"than {LARGEST_MATRIX:,} entries; take smaller maps"
        )


def batch_norm(module: nn.BatchNorm1d | nn.BatchNorm2d, shape: tuple[int, ...] | None, what: str) -> nn.Linear:
    """A batch norm in evaluation mode: its scale γ/√(variance + eps), rounded to float64, on the diagonal, and its shift.

    Args:
        shape: of the maps that it is behind, of which it scales channels; ``None`` for rows.

    Raises:
        ValueError: one that computes with the statistics of the batch, or whose scale and shift are trained.
    """
    channels, dimensions = (shape[0], len(shape)) if shape else (module.num_features, 1)
    if channels != module.num_features or dimensions not in ((1, 2) if isinstance(module, nn.BatchNorm1d) else (3,)):
        raise ValueError(f"{what} does not take maps of shape {shape}; they must agree")
    if module.training:
        raise ValueError(f"{what} is in training mode, where rows depend on each other; call net.eval()")
    if module.running_mean is None or module.running_var is None:
        raise ValueError(f"{what} has no running statistics; build it with track_running_stats=True")
    if any(parameter.requires_grad for parameter in module.parameters()):
        raise ValueError(
            f"{what} has scale and shift that are trained; freeze them by requires_grad_(False) on this module, or build it "
            "with affine=False"
        )
    scale = (module.running_var.double() + module.eps).rsqrt()
    if module.affine:
        scale = module.weight.detach().double() * scale
    shift = -module.running_mean.double() * scale
    if module.affine:
        shift = shift + module.bias.detach().double()
    each = math.prod(shape[1:]) if shape else 1
    return fixed_linear(scale.repeat_interleave(each), shift.repeat_interleave(each))
