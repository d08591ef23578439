"""What training objectives need beyond the squared loss: smooth layers, the rounding of gradients, and what to do next."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surefoot_check.feed_forward.activations import ACTIVATIONS
from surefoot_check.feed_forward.gradient import gradient as exact_gradient
from surefoot_check.feed_forward.network import Objective
from surefoot_check.feed_forward.smooth import SMOOTH

from .._core.validate import kind_of
from .engine import gradient, inner
from .modules import Layer
from .objective import NetworkObjective

ROUNDING = 2.0
"""How much larger the rounding of later gradients may be than that of the first."""
NEIGHBOURS = 8
"""Weights beside the first at which gradients are compared."""
POWER = 20
"""Steps of the power iteration that estimates ‖H‖."""


def require_smooth(layers: Sequence[Layer]) -> None:
    """Raise ``ValueError`` for a layer that is not dense, or an activation without a Lipschitz second derivative."""
    for layer in layers:
        if not layer.plain:
            what = "ends a Residual" if layer.geometry is None else f"is {kind_of(layer.linear)}"
            raise ValueError(
                f"net[{layer.name}] {what}: feed-forward/minimum speaks of Linear "
                "modules alone; feed-forward/local also of these: sf.certify(net, sf.SquaredLoss(X, Y))"
            )
        if layer.code not in SMOOTH:
            raise ValueError(
                f"net[{layer.name}] is followed by {ACTIVATIONS[layer.code].name}, whose second derivative jumps: minima of "
                "regularised networks with kinks lie on kinks, and no theorem here certifies them; use a smooth activation "
                "such as GELU, SiLU or Tanh, or certify an exact fit with sf.SquaredLoss(X, Y)"
            )


def rounding(
    problem: Objective, weights: Mapping[str, np.ndarray], loss: NetworkObjective, at: Mapping[str, Tensor]
) -> float:
    """How far the gradient may be from where exact arithmetic has it: in floats, measured at these weights and at ``NEIGHBOURS``
    whose last digits differ, and by the rounding of weights, which a step leaves."""
    true = exact_gradient(problem, weights)
    generator, eps = torch.Generator().manual_seed(0), torch.finfo(torch.float64).eps
    error = _apart(true, gradient(loss, at))
    for _ in range(NEIGHBOURS):
        signs = {name: torch.randint(-1, 2, W.shape, generator=generator).to(W) for name, W in at.items()}
        beside = {name: W * (1.0 + eps * signs[name]) for name, W in at.items()}
        error = max(error, _apart(true, gradient(loss, beside)))
    return ROUNDING * (error + stiffness(loss, at) * eps * inner(at, at) ** 0.5)


def _apart(true: Mapping[str, Any], computed: Mapping[str, Tensor]) -> float:
    """The distance of a gradient from that in ball arithmetic."""
    pairs = (
        (x, y)
        for name, part in computed.items()
        for x, y in zip(true[name].entries(), part.reshape(-1).tolist(), strict=True)
    )
    return sum(float(x - y) ** 2 for x, y in pairs) ** 0.5


def stiffness(loss: NetworkObjective, at: Mapping[str, Tensor]) -> float:
    """‖H‖, estimated from below by a power iteration."""
    generator, size = torch.Generator().manual_seed(0), 0.0
    leaves = {name: weight.detach().requires_grad_() for name, weight in at.items()}
    v = [torch.randn(W.shape, generator=generator, dtype=W.dtype).to(W.device) for W in leaves.values()]
    with torch.enable_grad():
        slope = torch.autograd.grad(loss.value(leaves), list(leaves.values()), create_graph=True)
        for _ in range(POWER):
            length = sum(float(x.square().sum()) for x in v) ** 0.5
            if not 0.0 < length < math.inf:
                break
            image = torch.autograd.grad(slope, list(leaves.values()), [x / length for x in v], retain_graph=True)
            v, size = list(image), sum(float(x.square().sum()) for x in image) ** 0.5
    return size


def suggestion_for_minimum(loss: NetworkObjective, failed: Sequence[str], quantities: Mapping[str, float]) -> str:
    """How near to a minimum the training has to come, or why the Hessian is singular."""
    if any("positive definite" in name for name in failed):
        more = ""
        if loss.loss.weight_decay == 0.0:
            more = ", with weight_decay > 0, as many weights may change nothing without it"
            if loss.loss.entropy and loss.loss.label_smoothing == 0.0:
                more += ", and where all labels can be learned the minimum is at infinity"
        return f"the weights are near no strict minimum yet (or at a saddle): train on{more}; sf.newton(net, loss) is a finish"
    if failed:
        g0, needed = quantities["g0"], quantities["lambda_min_H"] ** 2 / (2.0 * quantities["lipschitz_H"])
        return (
            f"train on until the norm of the gradient is about {min(needed, g0):.3g} (now {g0:.3g}): sf.newton(net, loss) is "
            "a finish of a few steps; then certify again"
        )
    return ""
