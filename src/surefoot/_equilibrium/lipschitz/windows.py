"""Rules of pooling, normalisations and reductions."""

from __future__ import annotations

import math

from torch import Tensor

from ..._core.refusals import NotCertifiable
from .call import Call, Rule, sizes_of

_LEAST_EPS = 0.01  # of a normalisation: it multiplies by up to 10


def windows(call: Call, count: int) -> tuple[Tensor, int, int]:
    """z, the entries of a window, and how many windows an entry is in at most."""
    z, kernel = call.first, sizes_of(call.get(1, "kernel_size"), count)
    stride = call.get(2, "stride")
    stride = kernel if stride is None or stride == () or stride == [] else sizes_of(stride, count)
    call.maps(z, count)
    overlaps = math.prod(-(-size // step) for size, step in zip(kernel, stride, strict=True))
    return z, math.prod(kernel), overlaps


def max_pool(count: int) -> Rule:
    """The rule of so many dimensions: √ of how many windows an entry lies in."""

    def rule(call: Call) -> Tensor:
        z, _, overlaps = windows(call, count)
        if set(sizes_of(call.get(4, "dilation", 1), count)) != {1} or isinstance(call.value, tuple):
            raise NotCertifiable(f"{call.name} with dilation or return_indices has no rule; leave them out")
        return call.constants(z) * math.sqrt(overlaps)

    return rule


def avg_pool(count: int) -> Rule:
    """The rule of so many dimensions: the mean of a window has 1/√entries, and an entry lies in several."""

    def rule(call: Call) -> Tensor:
        z, entries, overlaps = windows(call, count)
        padded = any(sizes_of(call.get(3, "padding", 0), count))
        ceil, whole = call.get(4, "ceil_mode", False), call.get(5, "count_include_pad", True)
        if ceil or (padded and not whole) or call.get(6, "divisor_override") is not None:
            raise NotCertifiable(
                f"{call.name} has ceil_mode, divisor_override, or padding with count_include_pad=False: no rule; leave them out"
            )
        return call.constants(z) * math.sqrt(overlaps / entries)

    return rule


def batch_norm(call: Call) -> Tensor:
    """The largest |scale|/√(variance + ε), of statistics that are not of the batch."""
    z, variance, scale = call.first, call.get(2, "running_var"), call.get(3, "weight")
    if call.get(5, "training", False):
        raise NotCertifiable(
            f"{call.name} uses statistics of the batch, which couple its samples; put the module into eval mode"
        )
    call.maps(z, 0)
    slope = (call.weight(variance) + float(call.get(7, "eps", 1e-5))).rsqrt()
    if scale is not None:
        slope = slope * call.weight(scale).abs()
    return call.constants(z) * slope.amax()


def normalised(scale_at: int, eps_at: int) -> Rule:
    """u ↦ u/√(‖u‖²/n + ε) has the slope 1/√ε at 0, and smaller ones elsewhere."""

    def rule(call: Call) -> Tensor:
        z, eps = call.first, call.get(eps_at, "eps", 1e-5)
        if eps is None or eps < _LEAST_EPS:
            raise NotCertifiable(
                f"{call.name} with eps={eps} has slopes up to 1/√eps, which leaves nothing of the state; pass eps=1, or at least "
                f"{_LEAST_EPS:g}"
            )
        if "layer_norm" in call.name and z.ndim - len(call.get(1, "normalized_shape")) < len(call.batch):
            raise call.mixed()
        if "group_norm" in call.name and len(call.batch) > 1:
            raise call.mixed()
        scale = call.get(scale_at, "weight")
        largest = 1.0 if scale is None else call.weight(scale).abs().amax()
        return call.constants(z) * largest / math.sqrt(eps)

    return rule


def softmax(call: Call) -> Tensor:
    """½: the Jacobian is diag(p) − ppᵀ."""
    z = call.first
    call.others(z, call.get(1, "dim"))
    return call.constants(z) * 0.5


def total(call: Call) -> Tensor:
    """Of n entries √n, of their mean 1/√n."""
    z = call.first
    dims = call.others(z, call.get(1, "dim"))
    count = math.prod(z.shape[d] for d in dims)
    return call.constants(z) * (math.sqrt(count) if call.name.endswith("sum") else 1.0 / math.sqrt(max(count, 1)))
