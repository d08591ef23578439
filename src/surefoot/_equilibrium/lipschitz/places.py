"""Rules of what moves, repeats or leaves out entries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ..._core.refusals import NotCertifiable
from .call import Call, Rule, root

_MOST_COPIES = 16  # of an entry in each dimension: 1/16, and what is above it, rounds to float32 from above


def same(call: Call) -> Tensor:
    """Entries as they are, in the order of their samples, which their shape shows."""
    call.looked_at()
    if call.value.dtype != call.first.dtype:
        raise NotCertifiable(f"{call.name} reads numbers as others, by their bits; use .to(dtype)")
    return call.constants(call.first)


def cast(call: Call) -> Tensor:
    """Into a dtype, of which the trace of the map sees that it is as fine."""
    call.looked_at()
    return call.constants(call.first)


def expand(call: Call) -> Tensor:
    """√ of how often an entry is repeated."""
    call.looked_at()
    return call.constants(call.first) * call.spread(call.first)


def repeat(call: Call) -> Tensor:
    """√ of how often each entry is repeated."""
    repeats = call.get(1, "repeats")
    if not isinstance(repeats, int):
        raise NotCertifiable(f"{call.name} with a tensor of repeats has no rule; pass a number")
    call.others(call.first, call.get(2, "dim"))
    return call.constants(call.first) * math.sqrt(repeats)


def along(place: int, key: str = "dim", default: Any = 0) -> Rule:
    """Some of the entries, or all in another order along dimensions."""

    def rule(call: Call) -> Tensor:
        call.others(call.first, call.get(place, key, default))
        return call.constants(call.first)

    return rule


def dims(call: Call) -> Tensor:
    """All arguments are dimensions, which change places or direction."""
    names = [key for key in ("dim0", "dim1", "axis0", "axis1", "source", "destination", "dims") if key in call.kwargs]
    for dims in (*call.args[1:], *(call.kwargs[key] for key in names)):
        call.others(call.first, dims)
    return call.constants(call.first)


def permute(call: Call) -> Tensor:
    """1, where the batch stays in front."""
    dims = call.kwargs.get(
        "dims", call.args[1] if len(call.args) == 2 and not isinstance(call.args[1], int) else call.args[1:]
    )
    if [d % call.first.ndim for d in dims][: len(call.batch)] != list(range(len(call.batch))):
        raise call.mixed()
    return call.constants(call.first)


def transposed(call: Call) -> Tensor:
    """.T and .mT"""
    call.others(call.first, None if ".T." in call.name else (-2, -1))
    return call.constants(call.first)


def index(call: Call) -> Tensor:
    """1: what is taken is taken once."""
    z, index = call.args
    index = index if isinstance(index, tuple) else (index,)
    if not all(item is None or item is Ellipsis or isinstance(item, (int, slice)) for item in index):
        raise NotCertifiable(
            f"{call.name} by a tensor or a list may repeat entries: no rule; use slices, or a linear map"
        )
    if Ellipsis in index:
        at = index.index(Ellipsis)
        taken = sum(item is not None for item in index) - 1
        index = (*index[:at], *[slice(None)] * (z.ndim - taken), *index[at + 1 :])
    if any(item != slice(None) for item in index[: len(call.batch)]):
        raise call.mixed()
    return call.constants(z)


def cat(call: Call) -> Tensor:
    """√ of the sum of the squares of the parts' constants."""
    call.others(call.value, call.get(1, "dim", 0))
    total = call.zero
    for part in call.get(0, "tensors"):
        total = total + call.constants(part).square()
    return root(total)


def pad(call: Call) -> Tensor:
    """Constant: 1; else √ of how often an entry can be repeated."""
    z, pad = call.first, call.get(1, "pad")
    mode = call.get(2, "mode", "constant")
    if len(pad) // 2 > z.ndim - len(call.batch):
        raise call.mixed()
    if mode != "constant" and min(pad) < 0:
        raise NotCertifiable(f"{call.name} with mode={mode!r} and a negative padding has no rule; use slices to crop")
    copies = 1
    for i, (before, behind) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        size = z.shape[-1 - i]
        if mode == "circular":
            copies *= -(-(size + before + behind) // size)
        elif mode == "replicate":
            copies *= 1 + (max(before, behind) if size > 1 else before + behind)
        elif mode == "reflect":
            copies *= 1 + (before > 0) + (behind > 0)
    if mode == "circular":
        call.known.wrap(call.value, call.constants(z), tuple(z.shape[-(len(pad) // 2) :]))
    return call.constants(z) * math.sqrt(copies)


def nearest(call: Call) -> Tensor:
    """√ of how often an entry is repeated, by whole factors."""
    z, mode = call.first, call.get(3, "mode", "nearest")
    times = [new / size for new, size in zip(call.value.shape[2:], z.shape[2:], strict=True)]
    # torch's float32 index is right for these
    if mode not in ("nearest", "nearest-exact") or any(t not in range(1, _MOST_COPIES + 1) for t in times):
        raise NotCertifiable(
            f"{call.name} with mode={mode!r} from {tuple(z.shape[2:])} to {tuple(call.value.shape[2:])} has no rule; use "
            f"mode='nearest' with a whole factor up to {_MOST_COPIES}, or a convolution"
        )
    factor = call.get(2, "scale_factor")
    if factor is not None and not all(
        float(f).is_integer() for f in (factor if isinstance(factor, Sequence) else [factor])
    ):
        raise NotCertifiable(f"{call.name} with scale_factor={factor} has no rule; pass a whole number")
    call.maps(z, z.ndim - 2)
    return call.constants(z) * math.sqrt(math.prod(times))
