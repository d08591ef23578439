"""Exact reductions: data to r columns, width to at most r + k (remark 8 of docs/theorems/linear-resnet.md)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .._core.losses import LinearMapLoss, SquaredLoss
from .._core.validate import kind_of, network_weight
from .network import LinearResNet


class Reduced(NamedTuple):
    """The reduced network A (q, r), B (k, q), W (L, q, q), and the basis Q (m, q) of what its weights can reach (``None``: all).

    In the full network W_l = Q Ŵ_l Qᵀ.
    """

    A: Tensor
    B: Tensor
    W: Tensor
    basis: Tensor | None


def reduce(net: LinearResNet, loss: LinearMapLoss, subspace: bool = True) -> Reduced:
    """The network on the reduced data, and in its subspace where the weights are zero (unless not wanted).

    From zero weights gradient descent never leaves span(col(A X̃) + col(Bᵀ)), so that a width of at most r + k is exactly
    equivalent. From other weights only the data is reduced.

    Raises:
        TypeError: a loss other than ``SquaredLoss``, or weights that are not float64.
        ValueError: shapes or devices that do not fit the loss, or non-finite weights.
    """
    if not isinstance(loss, SquaredLoss):
        raise TypeError(f"loss is {kind_of(loss)}; linear ResNets take sf.SquaredLoss")
    A, B, W = net.A, net.B, net.W.detach()
    for name, value in (("A", A), ("B", B), ("W", W)):
        network_weight(f"net.{name}", value)
    loss.require_net(A.shape[1], B.shape[0], A.device, ("d", "k"))
    if loss.basis is not None:
        A = A @ loss.basis
    reachable = A.shape[1] + B.shape[0]
    if not subspace or bool(W.any()) or reachable >= A.shape[0]:
        return Reduced(A, B, W, None)
    # A and A X̃ span the same columns, since X̃ is square and of full rank
    Q = torch.linalg.qr(torch.cat([A, B.T], 1))[0]
    small = torch.zeros(len(W), reachable, reachable, dtype=W.dtype, device=W.device)
    return Reduced(Q.T @ A, B @ Q, small, Q)
