"""Rules of matrices and convolutions."""

from __future__ import annotations

from torch import Tensor

from ..._core.refusals import NotCertifiable
from .call import Call, Rule, sizes_of
from .norms import convolution_upper, spectral_upper


def linear(call: Call) -> Tensor:
    """‖W‖."""
    z, bias = call.first, call.get(2, "bias")
    W = call.weight(call.get(1, "weight"))
    if z.ndim <= len(call.batch):
        raise call.mixed()
    total = call.constants(z) * spectral_upper(W if W.ndim == 2 else W[None])
    if call.moves(bias):
        total = total + call.constants(bias) * call.spread(bias)
    return total


def matmul(call: Call) -> Tensor:
    """z @ W on the last dimension, W @ z on the one before it."""
    first, second = call.first, call.get(1, "other")
    if call.name.endswith("__rmatmul__"):
        first, second = second, first
    left = call.moves(first)
    z, W = (first, second) if left else (second, first)
    W = call.weight(W)
    if W.ndim > 2:
        raise NotCertifiable(f"{call.name} by a batch of matrices has no rule; use one matrix")
    # of a state that is a vector, both are its last dimension
    if z.ndim - (1 if left or z.ndim == 1 else 2) < len(call.batch):
        raise call.mixed()
    return call.constants(z) * spectral_upper(W if W.ndim == 2 else W[None])


def padding(call: Call, count: int) -> list[int]:
    """Per dimension; of the modes by name whether there is any."""
    given = call.get(4, "padding", 0)
    return [int(given != "valid")] if isinstance(given, str) else sizes_of(given, count)


def convolution(count: int) -> Rule:
    """The rule of so many dimensions: the bound of Lemma 2 of docs/equilibrium.md, transposed or not."""

    def rule(call: Call) -> Tensor:
        z = call.first
        W = call.weight(call.get(1, "weight"))
        transposed = "transpose" in call.name
        stride = sizes_of(call.get(3, "stride", 1), count)
        dilation = sizes_of(call.get(7 if transposed else 5, "dilation", 1), count)
        groups = int(call.get(6, "groups", 1))
        if call.moves(call.get(2, "bias")):
            raise NotCertifiable(f"{call.name} has a bias that depends on z; add it behind the convolution")
        call.maps(z, count)
        torus = call.known.around(z)
        if torus is not None and not transposed and not any(padding(call, count)):
            constants, sizes = torus
            # each position of the torus at most once; steps must go around it evenly to keep phases apart
            once = zip(call.value.shape[-count:], stride, sizes, strict=True)
            if len(sizes) == count and all((places - 1) * step < size for places, step, size in once):
                even = all(size % step == 0 for size, step in zip(sizes, stride, strict=True))
                return constants * convolution_upper(W, stride if even else [1] * count, dilation, groups)
        return call.constants(z) * convolution_upper(W, stride, dilation, groups)

    return rule
