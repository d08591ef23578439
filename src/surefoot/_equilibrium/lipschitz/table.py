"""Which rule an operation of torch has."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from . import entries, linear, places, sums, windows
from .call import Rule


def _table() -> dict[Any, Rule]:
    table: dict[Any, Rule] = {}

    def put(rule: Rule, *functions: Any) -> None:
        for function in functions:
            table[function] = rule

    T = Tensor
    put(entries.sloped(entries.activation(1)), torch.tanh, T.tanh, F.tanh)
    put(entries.sloped(entries.activation(2)), torch.sigmoid, T.sigmoid, F.sigmoid)
    put(entries.sloped(entries.activation(4)), F.silu)
    put(entries.sloped(entries.gelu, "approximate"), F.gelu)
    put(entries.sloped(lambda alpha=1.0: entries.activation(6)(alpha), "alpha"), F.elu)
    put(entries.sloped(entries.activation(7)), torch.relu, T.relu, F.relu, torch.relu_, T.relu_)
    put(entries.sloped(lambda slope=0.01: entries.activation(8)(slope), "negative_slope"), F.leaky_relu)
    put(entries.sloped(entries.number(1.0)), F.hardtanh, F.relu6, F.softsign, F.logsigmoid, F.tanhshrink, F.softshrink)
    put(
        entries.sloped(entries.number(1.0)),
        torch.sin,
        T.sin,
        torch.cos,
        T.cos,
        torch.atan,
        T.atan,
        torch.asinh,
        T.asinh,
    )
    put(entries.sloped(entries.number(1.0)), torch.abs, T.abs, T.__abs__, torch.neg, T.neg, T.__neg__)
    put(entries.sloped(entries.number(1.0 / 6.0 + 2.0**-27)), F.hardsigmoid)  # torch's 1/6 is that of float32
    put(entries.sloped(entries.number(1.1283791670955128)), torch.erf, T.erf)  # 2/√π
    put(entries.sloped(entries.number(1.758099340847377)), F.selu)  # its α times its scale
    put(entries.softplus, F.softplus)
    put(entries.prelu, F.prelu, torch.prelu)
    put(entries.clamp, torch.clamp, T.clamp, torch.clip, T.clip)
    put(entries.clamp, torch.clamp_min, T.clamp_min, torch.clamp_max, T.clamp_max)
    put(entries.dropout, F.dropout, F.dropout1d, F.dropout2d, F.dropout3d)

    put(sums.added, torch.add, T.add, T.__add__, T.__radd__, torch.sub, T.sub, T.__sub__, torch.subtract, T.subtract)
    put(sums.reversed_difference, T.__rsub__, torch.rsub)
    put(sums.product, torch.mul, T.mul, T.__mul__, T.__rmul__, torch.multiply, T.multiply)
    put(sums.quotient, torch.div, T.div, T.__truediv__, torch.true_divide, T.true_divide, torch.divide, T.divide)
    put(sums.extreme, torch.maximum, T.maximum, torch.minimum, T.minimum, torch.max, T.max, torch.min, T.min)
    put(sums.where, torch.where)
    put(sums.masked_fill, T.masked_fill, torch.masked_fill)
    put(sums.lerp, torch.lerp, T.lerp)

    put(linear.linear, F.linear)
    put(linear.matmul, torch.matmul, T.matmul, T.__matmul__, T.__rmatmul__, torch.mm, T.mm, torch.mv, T.mv)
    put(linear.convolution(1), torch.conv1d, F.conv1d, torch.conv_transpose1d, F.conv_transpose1d)
    put(linear.convolution(2), torch.conv2d, F.conv2d, torch.conv_transpose2d, F.conv_transpose2d)
    put(linear.convolution(3), torch.conv3d, F.conv3d, torch.conv_transpose3d, F.conv_transpose3d)
    put(windows.max_pool(1), F.max_pool1d, torch.max_pool1d)
    put(windows.max_pool(2), F.max_pool2d, torch.max_pool2d)
    put(windows.max_pool(3), F.max_pool3d, torch.max_pool3d)
    put(windows.avg_pool(1), F.avg_pool1d)
    put(windows.avg_pool(2), F.avg_pool2d)
    put(windows.avg_pool(3), F.avg_pool3d)
    put(windows.batch_norm, F.batch_norm)
    put(windows.normalised(2, 4), F.layer_norm)
    put(windows.normalised(2, 4), F.group_norm)

    put(places.same, torch.reshape, T.reshape, T.reshape_as, T.view, T.view_as, torch.flatten, T.flatten)
    put(places.same, torch.unflatten, T.unflatten, torch.unsqueeze, T.unsqueeze, torch.squeeze, T.squeeze)
    put(places.same, T.contiguous, T.clone, torch.clone, T.detach, torch.detach, F.pixel_shuffle, F.pixel_unshuffle)
    put(places.cast, T.to, T.float, T.double, T.half, T.bfloat16, T.type_as, T.type)
    put(places.expand, T.expand, T.expand_as, torch.broadcast_to, T.broadcast_to, T.repeat)
    put(places.repeat, torch.repeat_interleave, T.repeat_interleave)
    put(
        places.dims,
        torch.transpose,
        T.transpose,
        torch.swapaxes,
        T.swapaxes,
        torch.movedim,
        T.movedim,
        torch.flip,
        T.flip,
    )
    put(places.permute, torch.permute, T.permute)
    put(places.transposed, *(getattr(T, name).__get__ for name in ("T", "mT")))
    put(places.index, T.__getitem__)
    put(places.along(2), torch.chunk, T.chunk, torch.split, T.split, torch.tensor_split, T.tensor_split)
    put(places.along(1), torch.unbind, T.unbind, torch.narrow, T.narrow, torch.select, T.select)
    put(places.along(2, "dims", None), torch.roll, T.roll)
    put(places.along(1, "dim", None), torch.amax, T.amax, torch.amin, T.amin, torch.logsumexp, T.logsumexp)
    put(places.cat, torch.cat, torch.concat, torch.stack)
    put(places.pad, F.pad)
    put(windows.total, torch.sum, T.sum, torch.mean, T.mean)
    put(windows.softmax, F.softmax, torch.softmax, T.softmax)
    put(places.nearest, F.interpolate)
    return table


RULES = _table()
"""By the function of torch, as ``torch.overrides`` shows it."""
QUERIES = frozenset(
    (
        *(
            getattr(Tensor, name).__get__
            for name in ("shape", "dtype", "device", "ndim", "layout", "requires_grad", "is_cuda")
        ),
        *(
            Tensor.size,
            Tensor.dim,
            Tensor.numel,
            Tensor.stride,
            Tensor.__len__,
            Tensor.is_floating_point,
            Tensor.is_complex,
        ),
        *(torch.is_floating_point, torch.is_complex, torch.numel, Tensor.is_contiguous, Tensor.element_size),
        *(
            torch.zeros_like,
            torch.ones_like,
            torch.full_like,
            torch.rand_like,
            torch.randn_like,
            Tensor.new_zeros,
            Tensor.new_ones,
            Tensor.new_full,
        ),
    )
)
"""What says nothing of the entries of a tensor."""
