"""What each operation of torch can do to a distance: the rules of ``lipschitz_bound``. docs/equilibrium.md has their proofs.

A rule takes what is known of the tensors, the name and the value of the operation, and its arguments, of which one or more
depend on the state; it gives the constants of the value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from surefoot_check.feed_forward.activations import ACTIVATIONS

from .._core.refusals import NotCertifiable
from .lipschitz_values import Values, mixed, spread
from .operator_norms import convolution_upper, spectral_upper

Rule = Callable[[Values, str, Any, tuple[Any, ...], dict[str, Any]], Tensor]
_LEAST_EPS = 0.01  # of a normalisation: it multiplies by up to 10
_MOST_COPIES = 16  # of an entry in each dimension: 1/16, and what is above it, rounds to float32 from above


def _argument(args: Sequence[Any], kwargs: dict[str, Any], place: int, name: str, default: Any = None) -> Any:
    return args[place] if len(args) > place else kwargs.get(name, default)


# Entry by entry


def _entries(slope: Callable[..., float], *names: str) -> Rule:
    """An activation of this largest slope, given these of its arguments behind the first."""

    def rule(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        z = _argument(args, kwargs, 0, "input")
        given = [_argument(args, kwargs, place, key) for place, key in enumerate(names, 1)]
        if any(isinstance(item, Tensor) for item in given):
            raise NotCertifiable(f"{name} has a tensor as a setting; pass a number")
        factor = slope(*[item for item in given if item is not None])
        _keep(known, name, value, z, factor)
        return known.constants(z) * factor

    return rule


def _keep(known: Values, name: str, value: Any, z: Tensor, factor: float) -> None:
    """In place, other views of z change with it: their constants hold where the factor is at most 1."""
    if value is z and factor > 1.0:
        raise NotCertifiable(f"{name} works in place, where views of its argument change with it; pass inplace=False")


def _activation(code: int) -> Callable[..., float]:
    """The largest slope of an activation of the checker's table, given its settings."""

    def slope(*settings: float) -> float:
        first, second = (*map(float, settings), 0.0, 0.0)[:2]
        return ACTIVATIONS[code].slope((first, second))

    return slope


def _number(value: float) -> Callable[..., float]:
    return lambda *_: value


def _gelu(approximate: str = "none") -> float:
    if approximate != "none":
        raise NotCertifiable(f"GELU with approximate={approximate!r} has no proved constant; use approximate='none'")
    return _activation(5)()


def _softplus(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    z, threshold = _argument(args, kwargs, 0, "input"), float(_argument(args, kwargs, 2, "threshold", 20.0))
    # above the threshold torch returns z: a jump of at most exp(−threshold)/β, beside a value of threshold/β
    if math.exp(-threshold) > threshold * torch.finfo(z.dtype).eps / 2:
        raise NotCertifiable(
            f"{name} jumps by {math.exp(-threshold):.0e} at threshold={threshold:g}, which is more than rounding; pass "
            "threshold=40"
        )
    return known.constants(z)


def _prelu(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    slope = known.weight(_argument(args, kwargs, 1, "weight"), name)
    return known.constants(_argument(args, kwargs, 0, "input")) * slope.abs().amax().clamp(min=1.0)


def _clamp(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Limits that may move: entry by entry the largest change of the three."""
    return _stacked(known, name, value, [*args, *kwargs.values()])


def _dropout(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    z, p = _argument(args, kwargs, 0, "input"), float(_argument(args, kwargs, 1, "p", 0.5))
    training = _argument(args, kwargs, 2, "training", True)
    factor = 1.0 / (1.0 - p) if training and p < 1.0 else 1.0
    _keep(known, name, value, z, factor)
    return known.constants(z) * factor


# Sums and products


def _aligned(known: Values, name: str, value: Tensor, part: Any) -> float:
    """``spread`` of an operand that moves; an error where broadcasting would move its samples to other dimensions."""
    if not known.moves(part):
        return 1.0
    if known.batch and part.ndim != value.ndim:
        raise mixed(name)
    return spread(part, value)


def _sum(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """a + alpha b, and a − alpha b."""
    first, second = _argument(args, kwargs, 0, "input"), _argument(args, kwargs, 1, "other")
    alpha = abs(float(kwargs.get("alpha", 1.0)))
    total = known.zero
    for part, factor in ((first, 1.0), (second, alpha)):
        total = total + known.constants(part) * (factor * _aligned(known, name, value, part))
    return total


def _reversed_difference(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    return _sum(known, name, value, args[:2], kwargs)


def _product(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    first, second = _argument(args, kwargs, 0, "input"), _argument(args, kwargs, 1, "other")
    z, factor = (first, second) if known.moves(first) else (second, first)
    largest = known.weight(factor, name).abs()
    largest = largest.amax() if largest.numel() else largest.sum()
    return known.constants(z) * largest * _aligned(known, name, value, z)


def _quotient(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    z, divisor = _argument(args, kwargs, 0, "input"), _argument(args, kwargs, 1, "other")
    if kwargs.get("rounding_mode") is not None or not known.moves(z):
        raise NotCertifiable(f"{name} rounds, or divides by a tensor that depends on z: no Lipschitz constant")
    least = known.weight(divisor, name).abs()
    least = least.amin() if least.numel() else least.sum() + 1.0
    return known.constants(z) / least * _aligned(known, name, value, z)


def _stacked(known: Values, name: str, value: Any, parts: Sequence[Any]) -> Tensor:
    """Each change of the value is one of those of the parts, which stand side by side."""
    total = known.zero
    for part in parts:
        if known.moves(part):
            total = total + (known.constants(part) * _aligned(known, name, value, part)).square()
    return _root(total)


def _root(squares: Tensor) -> Tensor:
    """√, without the infinite slope at 0."""
    return torch.where(squares > 0.0, torch.where(squares > 0.0, squares, 1.0).sqrt(), squares)


def _extreme(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    second = _argument(args, kwargs, 1, "other")
    if not isinstance(second, Tensor):
        raise NotCertifiable(f"{name} with a dimension has no rule; torch.amax and torch.amin have one")
    return _stacked(known, name, value, [_argument(args, kwargs, 0, "input"), second])


def _where(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    condition, *parts = (
        _argument(args, kwargs, place, key) for place, key in enumerate(("condition", "input", "other"))
    )
    if known.moves(condition):
        raise NotCertifiable(f"{name} chooses by a condition that depends on z, and may jump; use an activation")
    return _stacked(known, name, value, parts)


def _masked_fill(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    mask = _argument(args, kwargs, 1, "mask")
    if known.moves(mask):
        raise NotCertifiable(f"{name} has a mask that depends on z, and may jump; use an activation")
    return _stacked(known, name, value, [args[0], _argument(args, kwargs, 2, "value")])


def _lerp(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    first, second, share = (_argument(args, kwargs, i, key) for i, key in enumerate(("input", "end", "weight")))
    share = known.weight(share, name)
    total = known.zero
    for part, factor in ((first, (1.0 - share).abs().amax()), (second, share.abs().amax())):
        total = total + known.constants(part) * factor * _aligned(known, name, value, part)
    return total


# Linear maps


def _linear(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    z, bias = _argument(args, kwargs, 0, "input"), _argument(args, kwargs, 2, "bias")
    W = known.weight(_argument(args, kwargs, 1, "weight"), name)
    if z.ndim <= len(known.batch):
        raise mixed(name)
    total = known.constants(z) * spectral_upper(W if W.ndim == 2 else W[None])
    if known.moves(bias):
        total = total + known.constants(bias) * _aligned(known, name, value, bias)
    return total


def _matmul(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """z @ W on the last dimension, W @ z on the one before it."""
    first, second = _argument(args, kwargs, 0, "input"), _argument(args, kwargs, 1, "other")
    if name.endswith("__rmatmul__"):
        first, second = second, first
    left = known.moves(first)
    z, W = (first, second) if left else (second, first)
    W = known.weight(W, name)
    if W.ndim > 2:
        raise NotCertifiable(f"{name} by a batch of matrices has no rule; use one matrix")
    # of a state that is a vector, both are its last dimension
    if z.ndim - (1 if left or z.ndim == 1 else 2) < len(known.batch):
        raise mixed(name)
    return known.constants(z) * spectral_upper(W if W.ndim == 2 else W[None])


def _sizes(value: Any, count: int) -> list[int]:
    return (
        [int(value)] * count if isinstance(value, int) else [int(v) for v in value] * (count if len(value) == 1 else 1)
    )


def _maps(known: Values, name: str, z: Tensor, count: int) -> None:
    """Channels and maps of so many dimensions are no samples."""
    if z.ndim - len(known.batch) < count + 1:
        raise mixed(name)


def _padding(args: tuple[Any, ...], kwargs: dict[str, Any], count: int) -> list[int]:
    given = _argument(args, kwargs, 4, "padding", 0)
    return [int(given != "valid")] if isinstance(given, str) else _sizes(given, count)


def _convolution(count: int) -> Rule:
    def rule(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        z = _argument(args, kwargs, 0, "input")
        W = known.weight(_argument(args, kwargs, 1, "weight"), name)
        stride = _sizes(_argument(args, kwargs, 3, "stride", 1), count)
        groups = int(_argument(args, kwargs, 6, "groups", 1))
        if known.moves(_argument(args, kwargs, 2, "bias")):
            raise NotCertifiable(f"{name} has a bias that depends on z; add it behind the convolution")
        _maps(known, name, z, count)
        torus = known.around(z)
        if torus is not None and "transpose" not in name and not any(_padding(args, kwargs, count)):
            constants, sizes = torus
            # each position of the torus at most once; steps must go around it evenly to keep phases apart
            once = zip(value.shape[-count:], stride, sizes, strict=True)
            if len(sizes) == count and all((places - 1) * step < size for places, step, size in once):
                even = all(size % step == 0 for size, step in zip(sizes, stride, strict=True))
                return constants * convolution_upper(W, stride if even else [1] * count, groups)
        return known.constants(z) * convolution_upper(W, stride, groups)

    return rule


# Windows and normalisations


def _windows(
    known: Values, name: str, count: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Tensor, int, int]:
    """z, the entries of a window, and how many windows an entry is in at most."""
    z, kernel = _argument(args, kwargs, 0, "input"), _sizes(_argument(args, kwargs, 1, "kernel_size"), count)
    stride = _argument(args, kwargs, 2, "stride")
    stride = kernel if stride is None or stride == () or stride == [] else _sizes(stride, count)
    _maps(known, name, z, count)
    overlaps = math.prod(-(-size // step) for size, step in zip(kernel, stride, strict=True))
    return z, math.prod(kernel), overlaps


def _max_pool(count: int) -> Rule:
    def rule(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        z, _, overlaps = _windows(known, name, count, args, kwargs)
        if set(_sizes(_argument(args, kwargs, 4, "dilation", 1), count)) != {1} or isinstance(value, tuple):
            raise NotCertifiable(f"{name} with dilation or return_indices has no rule; leave them out")
        return known.constants(z) * math.sqrt(overlaps)

    return rule


def _avg_pool(count: int) -> Rule:
    def rule(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        z, entries, overlaps = _windows(known, name, count, args, kwargs)
        padded = any(_sizes(_argument(args, kwargs, 3, "padding", 0), count))
        ceil, whole = (
            _argument(args, kwargs, 4, "ceil_mode", False),
            _argument(args, kwargs, 5, "count_include_pad", True),
        )
        if ceil or (padded and not whole) or _argument(args, kwargs, 6, "divisor_override") is not None:
            raise NotCertifiable(
                f"{name} has ceil_mode, divisor_override, or padding with count_include_pad=False: no rule; leave them out"
            )
        return known.constants(z) * math.sqrt(overlaps / entries)

    return rule


def _batch_norm(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    z, variance = _argument(args, kwargs, 0, "input"), _argument(args, kwargs, 2, "running_var")
    scale = _argument(args, kwargs, 3, "weight")
    if _argument(args, kwargs, 5, "training", False):
        raise NotCertifiable(
            f"{name} uses statistics of the batch, which couple its samples; put the module into eval mode"
        )
    _maps(known, name, z, 0)
    slope = (known.weight(variance, name) + float(_argument(args, kwargs, 7, "eps", 1e-5))).rsqrt()
    if scale is not None:
        slope = slope * known.weight(scale, name).abs()
    return known.constants(z) * slope.amax()


def _normalised(scale_at: int, eps_at: int) -> Rule:
    """u ↦ u/√(‖u‖²/n + ε) has the slope 1/√ε at 0, and smaller ones elsewhere."""

    def rule(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        z, eps = _argument(args, kwargs, 0, "input"), _argument(args, kwargs, eps_at, "eps", 1e-5)
        if eps is None or eps < _LEAST_EPS:
            raise NotCertifiable(
                f"{name} with eps={eps} has slopes up to 1/√eps, which leaves nothing of the state; pass eps=1, or at least "
                f"{_LEAST_EPS:g}"
            )
        if "layer_norm" in name and z.ndim - len(_argument(args, kwargs, 1, "normalized_shape")) < len(known.batch):
            raise mixed(name)
        if "group_norm" in name and len(known.batch) > 1:
            raise mixed(name)
        scale = _argument(args, kwargs, scale_at, "weight")
        largest = 1.0 if scale is None else known.weight(scale, name).abs().amax()
        return known.constants(z) * largest / math.sqrt(eps)

    return rule


# Moving entries, and reducing dimensions


def _same(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Entries as they are, in the order of their samples, which their shape shows."""
    _looked_at(known, args)
    if value.dtype != args[0].dtype:
        raise NotCertifiable(f"{name} reads numbers as others, by their bits; use .to(dtype)")
    return known.constants(args[0])


def _cast(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Into a dtype that is as fine: what rounds more than an evaluation of z's dtype would falsify the bound of a solve."""
    z = args[0]
    _looked_at(known, args)
    if value.is_floating_point() and torch.finfo(value.dtype).eps > torch.finfo(z.dtype).eps:
        raise NotCertifiable(
            f"{name} rounds a tensor that depends on z from {z.dtype} to {value.dtype}, which no bound of a solve allows for; "
            "keep the dtype of z"
        )
    return known.constants(z)


def _looked_at(known: Values, args: tuple[Any, ...]) -> None:
    """Of the arguments behind the first the operation uses shapes, dtypes and devices alone."""
    for other in args[1:]:
        known.constants(other)


def _expand(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    _looked_at(known, args)
    return known.constants(args[0]) * _aligned(known, name, value, args[0])


def _repeat(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    repeats = _argument(args, kwargs, 1, "repeats")
    if not isinstance(repeats, int):
        raise NotCertifiable(f"{name} with a tensor of repeats has no rule; pass a number")
    _others(known, name, args[0], _argument(args, kwargs, 2, "dim"))
    return known.constants(args[0]) * math.sqrt(repeats)


def _others(known: Values, name: str, z: Tensor, dims: Any) -> list[int]:
    """These dimensions, which must be none of samples."""
    dims = range(z.ndim) if dims is None or dims == () else [dims] if isinstance(dims, int) else dims
    found = [d % z.ndim for d in dims]
    if any(d < len(known.batch) for d in found):
        raise mixed(name)
    return found


def _along(place: int, key: str = "dim", default: Any = 0) -> Rule:
    """Some of the entries, or all in another order along dimensions."""

    def rule(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        _others(known, name, args[0], _argument(args, kwargs, place, key, default))
        return known.constants(args[0])

    return rule


def _dims(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """All arguments are dimensions, which change places or direction."""
    names = [key for key in ("dim0", "dim1", "axis0", "axis1", "source", "destination", "dims") if key in kwargs]
    for dims in (*args[1:], *(kwargs[key] for key in names)):
        _others(known, name, args[0], dims)
    return known.constants(args[0])


def _permute(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    dims = kwargs.get("dims", args[1] if len(args) == 2 and not isinstance(args[1], int) else args[1:])
    if [d % args[0].ndim for d in dims][: len(known.batch)] != list(range(len(known.batch))):
        raise mixed(name)
    return known.constants(args[0])


def _transposed(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """.T and .mT"""
    _others(known, name, args[0], None if ".T." in name else (-2, -1))
    return known.constants(args[0])


def _index(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    z, index = args
    index = index if isinstance(index, tuple) else (index,)
    if not all(item is None or item is Ellipsis or isinstance(item, (int, slice)) for item in index):
        raise NotCertifiable(f"{name} by a tensor or a list may repeat entries: no rule; use slices, or a linear map")
    if Ellipsis in index:
        at = index.index(Ellipsis)
        taken = sum(item is not None for item in index) - 1
        index = (*index[:at], *[slice(None)] * (z.ndim - taken), *index[at + 1 :])
    if any(item != slice(None) for item in index[: len(known.batch)]):
        raise mixed(name)
    return known.constants(z)


def _cat(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    _others(known, name, value, _argument(args, kwargs, 1, "dim", 0))
    total = known.zero
    for part in _argument(args, kwargs, 0, "tensors"):
        total = total + known.constants(part).square()
    return _root(total)


def _pad(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    z, pad = _argument(args, kwargs, 0, "input"), _argument(args, kwargs, 1, "pad")
    mode = _argument(args, kwargs, 2, "mode", "constant")
    if len(pad) // 2 > z.ndim - len(known.batch):
        raise mixed(name)
    copies = 1
    for i, (before, behind) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        before, behind, size = max(before, 0), max(behind, 0), z.shape[-1 - i]
        if mode == "circular":
            copies *= -(-(size + before + behind) // size)
        elif mode == "replicate":
            copies *= 1 + (max(before, behind) if size > 1 else before + behind)
        elif mode == "reflect":
            copies *= 1 + (before > 0) + (behind > 0)
    if mode == "circular":
        known.wrap(value, known.constants(z), tuple(z.shape[-(len(pad) // 2) :]))
    return known.constants(z) * math.sqrt(copies)


def _total(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    z = args[0]
    dims = _others(known, name, z, _argument(args, kwargs, 1, "dim"))
    count = math.prod(z.shape[d] for d in dims)
    return known.constants(z) * (math.sqrt(count) if name.endswith("sum") else 1.0 / math.sqrt(max(count, 1)))


def _softmax(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    z = _argument(args, kwargs, 0, "input")
    _others(known, name, z, _argument(args, kwargs, 1, "dim"))
    return known.constants(z) * 0.5


def _nearest(known: Values, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    z, mode = _argument(args, kwargs, 0, "input"), _argument(args, kwargs, 3, "mode", "nearest")
    times = [new / size for new, size in zip(value.shape[2:], z.shape[2:], strict=True)]
    # torch's float32 index is right for these
    if mode not in ("nearest", "nearest-exact") or any(t not in range(1, _MOST_COPIES + 1) for t in times):
        raise NotCertifiable(
            f"{name} with mode={mode!r} from {tuple(z.shape[2:])} to {tuple(value.shape[2:])} has no rule; use mode='nearest' "
            f"with a whole factor up to {_MOST_COPIES}, or a convolution"
        )
    factor = _argument(args, kwargs, 2, "scale_factor")
    if factor is not None and not all(
        float(f).is_integer() for f in (factor if isinstance(factor, Sequence) else [factor])
    ):
        raise NotCertifiable(f"{name} with scale_factor={factor} has no rule; pass a whole number")
    _maps(known, name, z, z.ndim - 2)
    return known.constants(z) * math.sqrt(math.prod(times))


def _table() -> dict[Any, Rule]:
    table: dict[Any, Rule] = {}

    def put(rule: Rule, *functions: Any) -> None:
        for function in functions:
            table[function] = rule

    T = Tensor
    put(_entries(_activation(1)), torch.tanh, T.tanh, F.tanh)
    put(_entries(_activation(2)), torch.sigmoid, T.sigmoid, F.sigmoid)
    put(_entries(_activation(4)), F.silu)
    put(_entries(_gelu, "approximate"), F.gelu)
    put(_entries(lambda alpha=1.0: _activation(6)(alpha), "alpha"), F.elu)
    put(_entries(_activation(7)), torch.relu, T.relu, F.relu, torch.relu_, T.relu_)
    put(_entries(lambda slope=0.01: _activation(8)(slope), "negative_slope"), F.leaky_relu)
    put(_entries(_number(1.0)), F.hardtanh, F.relu6, F.softsign, F.logsigmoid, F.tanhshrink, F.softshrink)
    put(_entries(_number(1.0)), torch.sin, T.sin, torch.cos, T.cos, torch.atan, T.atan, torch.asinh, T.asinh)
    put(_entries(_number(1.0)), torch.abs, T.abs, T.__abs__, torch.neg, T.neg, T.__neg__)
    put(_entries(_number(1.0 / 6.0 + 2.0**-27)), F.hardsigmoid)  # torch's 1/6 is that of float32
    put(_entries(_number(1.1283791670955128)), torch.erf, T.erf)  # 2/√π
    put(_entries(_number(1.758099340847377)), F.selu)  # its α times its scale
    put(_softplus, F.softplus)
    put(_prelu, F.prelu, torch.prelu)
    put(_clamp, torch.clamp, T.clamp, torch.clip, T.clip)
    put(_clamp, torch.clamp_min, T.clamp_min, torch.clamp_max, T.clamp_max)
    put(_dropout, F.dropout, F.dropout1d, F.dropout2d, F.dropout3d)

    put(_sum, torch.add, T.add, T.__add__, T.__radd__, torch.sub, T.sub, T.__sub__, torch.subtract, T.subtract)
    put(_reversed_difference, T.__rsub__, torch.rsub)
    put(_product, torch.mul, T.mul, T.__mul__, T.__rmul__, torch.multiply, T.multiply)
    put(_quotient, torch.div, T.div, T.__truediv__, torch.true_divide, T.true_divide, torch.divide, T.divide)
    put(_extreme, torch.maximum, T.maximum, torch.minimum, T.minimum, torch.max, T.max, torch.min, T.min)
    put(_where, torch.where)
    put(_masked_fill, T.masked_fill, torch.masked_fill)
    put(_lerp, torch.lerp, T.lerp)

    put(_linear, F.linear)
    put(_matmul, torch.matmul, T.matmul, T.__matmul__, T.__rmatmul__, torch.mm, T.mm, torch.mv, T.mv)
    put(_convolution(1), torch.conv1d, F.conv1d, torch.conv_transpose1d, F.conv_transpose1d)
    put(_convolution(2), torch.conv2d, F.conv2d, torch.conv_transpose2d, F.conv_transpose2d)
    put(_convolution(3), torch.conv3d, F.conv3d, torch.conv_transpose3d, F.conv_transpose3d)
    put(_max_pool(1), F.max_pool1d, torch.max_pool1d)
    put(_max_pool(2), F.max_pool2d, torch.max_pool2d)
    put(_max_pool(3), F.max_pool3d, torch.max_pool3d)
    put(_avg_pool(1), F.avg_pool1d)
    put(_avg_pool(2), F.avg_pool2d)
    put(_avg_pool(3), F.avg_pool3d)
    put(_batch_norm, F.batch_norm)
    put(_normalised(2, 4), F.layer_norm)
    put(_normalised(2, 4), F.group_norm)

    put(_same, torch.reshape, T.reshape, T.reshape_as, T.view, T.view_as, torch.flatten, T.flatten)
    put(_same, torch.unflatten, T.unflatten, torch.unsqueeze, T.unsqueeze, torch.squeeze, T.squeeze)
    put(_same, T.contiguous, T.clone, torch.clone, T.detach, torch.detach, F.pixel_shuffle, F.pixel_unshuffle)
    put(_cast, T.to, T.float, T.double, T.half, T.bfloat16, T.type_as, T.type)
    put(_expand, T.expand, T.expand_as, torch.broadcast_to, T.broadcast_to, T.repeat)
    put(_repeat, torch.repeat_interleave, T.repeat_interleave)
    put(_dims, torch.transpose, T.transpose, torch.swapaxes, T.swapaxes, torch.movedim, T.movedim, torch.flip, T.flip)
    put(_permute, torch.permute, T.permute)
    put(_transposed, *(getattr(T, name).__get__ for name in ("T", "mT")))
    put(_index, T.__getitem__)
    put(_along(2), torch.chunk, T.chunk, torch.split, T.split, torch.tensor_split, T.tensor_split)
    put(_along(1), torch.unbind, T.unbind, torch.narrow, T.narrow, torch.select, T.select)
    put(_along(2, "dims", None), torch.roll, T.roll)
    put(_along(1, "dim", None), torch.amax, T.amax, torch.amin, T.amin, torch.logsumexp, T.logsumexp)
    put(_cat, torch.cat, torch.concat, torch.stack)
    put(_pad, F.pad)
    put(_total, torch.sum, T.sum, torch.mean, T.mean)
    put(_softmax, F.softmax, torch.softmax, T.softmax)
    put(_nearest, F.interpolate)
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
