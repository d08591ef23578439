"""Convolutions and pooling of torch: the geometry of their windows, and what they compute on maps that are stored as rows."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from surefoot_check.feed_forward.geometry import CIRCULAR, CONVOLUTION, MAXIMUM, Geometry

from .fixed import fixed_linear, require_matrix

Shape = tuple[int, ...]
"""Of maps: channels and length, or channels, height and width."""
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d)
MAXIMA = (nn.MaxPool1d, nn.MaxPool2d)
MEANS = (nn.AvgPool1d, nn.AvgPool2d)
MODES = {"zeros": CONVOLUTION, "circular": CIRCULAR}


def dimensions(module: nn.Module) -> int:
    """Directions in which its windows move."""
    return 1 if isinstance(module, (nn.Conv1d, nn.MaxPool1d, nn.AvgPool1d)) else 2


def obstacle(module: Any) -> str:
    """Why a module of these classes is not supported; empty where it is."""
    wanted = {"groups": 1, "ceil_mode": False, "return_indices": False, "divisor_override": None}
    for name, value in wanted.items():
        if getattr(module, name, value) != value:
            return f"has {name}={getattr(module, name)!r}; only {name}={value!r} is supported"
    if _pair(getattr(module, "dilation", 1), dimensions(module), 1) != (1, 1):
        return f"has dilation={module.dilation!r}; only dilation=1 is supported"
    if getattr(module, "padding_mode", "zeros") not in MODES:
        return f"has padding_mode={module.padding_mode!r}; only 'zeros' and 'circular' are supported"
    if not getattr(module, "count_include_pad", True) and module.padding not in (0, (0,), (0, 0)):
        return "leaves its padding out of means; only count_include_pad=True is supported"
    return ""


def geometry_of(module: Any, shape: Shape, what: str) -> Geometry:
    """Of its windows on maps of this shape.

    Raises:
        ValueError: maps of another number of dimensions or channels, or windows that do not fit.
    """
    axes = dimensions(module)
    if len(shape) != axes + 1 or getattr(module, "in_channels", shape[0]) != shape[0]:
        raise ValueError(f"{what} does not take maps of shape {shape} (channels first); they must agree")
    channels, height, width = shape if axes == 2 else (shape[0], 1, shape[1])
    kernel, stride = _pair(module.kernel_size, axes, 1), _pair(module.stride, axes, 1)
    if module.padding == "same":
        before = ((kernel[0] - 1) // 2, (kernel[1] - 1) // 2)
        behind = (kernel[0] - 1 - before[0], kernel[1] - 1 - before[1])
    else:
        before = behind = _pair(0 if module.padding == "valid" else module.padding, axes, 0)
    kind = MAXIMUM if type(module) in MAXIMA else MODES[getattr(module, "padding_mode", "zeros")]
    down, right = (
        (size + first + last - window) // step + 1
        for size, first, last, window, step in zip((height, width), before, behind, kernel, stride, strict=True)
    )
    if min(down, right) < 1:
        raise ValueError(f"{what} has windows of {kernel[0]} x {kernel[1]}, larger than maps of {height} x {width}")
    found = Geometry(kind, channels, height, width, *kernel, *stride, *before, down, right)
    if kind == CIRCULAR and not found.once_around:
        raise ValueError(
            f"{what} has windows that go around maps of {height} x {width} more than once; use less padding"
        )
    return found


def _pair(value: Any, of: int, other: int) -> tuple[int, int]:
    """A setting of a module down and to the right; in one direction ``other`` stands for that down."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,) * of
    return (other, int(values[0])) if of == 1 else (int(values[0]), int(values[1]))


def shape_behind(module: nn.Module, geometry: Geometry, channels: int) -> Shape:
    """Of the maps behind a module."""
    size = (geometry.right,) if dimensions(module) == 1 else (geometry.down, geometry.right)
    return (channels, *size)


def mean_of(geometry: Geometry) -> nn.Linear:
    """The means of windows as a ``Linear`` that is not trained; a share of a window is rounded to float64.

    Raises:
        ValueError: it is too large to hold.
    """
    require_matrix(geometry.channels * geometry.positions, geometry.inputs)
    one = Geometry(CONVOLUTION, 1, *geometry.row[2:])
    share = torch.full((1, one.shared), 1.0 / one.shared, dtype=torch.float64)
    return fixed_linear(torch.block_diag(*[torch.from_numpy(one.matrix(share.numpy()))] * geometry.channels))


@cache
def geometry_in(row: tuple[int, ...]) -> Geometry | None:
    """Of a row of the array."""
    return Geometry.of(row)


def mapped(a: Tensor, g: Geometry, W: Tensor | None, b: Tensor | None) -> Tensor:
    """What a convolution or a maximum makes of maps that are stored as rows, as rows."""
    below = (g.down - 1) * g.stride_down + g.kernel_height - g.above - g.height
    behind = (g.right - 1) * g.stride_right + g.kernel_width - g.left - g.width
    padding = (g.left, max(0, behind), g.above, max(0, below))
    maps, stride = a.reshape(len(a), g.channels, g.height, g.width), (g.stride_down, g.stride_right)
    if g.kind == MAXIMUM:
        found = functional.max_pool2d(
            functional.pad(maps, padding, value=-torch.inf), (g.kernel_height, g.kernel_width), stride
        )
    else:
        assert W is not None
        maps = functional.pad(maps, padding, mode="circular" if g.kind == CIRCULAR else "constant")
        kernel = W.reshape(-1, g.channels, g.kernel_height, g.kernel_width)
        found = functional.conv2d(maps, kernel, b, stride)
    return found.flatten(1)


def module_of(g: Geometry, outputs: int, bias: bool) -> nn.Conv2d | nn.MaxPool2d:
    """A module of this geometry, of so many output channels.

    Raises:
        KeyError: there is none.
    """
    kernel, stride = (g.kernel_height, g.kernel_width), (g.stride_down, g.stride_right)
    if g.kind == MAXIMUM:
        found = [partial(nn.MaxPool2d, kernel, stride, (g.above, g.left))]
    else:
        mode = "circular" if g.kind == CIRCULAR else "zeros"
        make = partial(
            nn.Conv2d, g.channels, outputs, kernel, stride, bias=bias, padding_mode=mode, dtype=torch.float64
        )
        found = [partial(make, (g.above, g.left)), *([partial(make, "same")] if stride == (1, 1) else [])]
    for candidate in found:
        module = candidate()
        if geometry_of(module, (g.channels, g.height, g.width), "the layer") == g:
            return module
    raise KeyError(f"a module of the geometry {g.row}")
