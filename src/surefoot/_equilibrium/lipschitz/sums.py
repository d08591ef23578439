"""Rules of sums, products and choices."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from ..._core.refusals import NotCertifiable
from .call import Call


def added(call: Call) -> Tensor:
    """a + alpha b, and a − alpha b."""
    if len(call.args) > 2:
        raise NotCertifiable(f"{call.name} of three arguments has no rule; pass alpha by its name")
    first, second = call.first, call.get(1, "other")
    alpha = abs(float(call.kwargs.get("alpha", 1.0)))
    total = call.zero
    for part, factor in ((first, 1.0), (second, alpha)):
        total = total + call.constants(part) * (factor * call.spread(part))
    return total


def reversed_difference(call: Call) -> Tensor:
    """b − alpha a"""
    return added(replace(call, args=(call.get(1, "other"), call.first, *call.args[2:])))


def product(call: Call) -> Tensor:
    """The largest entry of the factor that does not depend on z."""
    first, second = call.first, call.get(1, "other")
    z, factor = (first, second) if call.moves(first) else (second, first)
    largest = call.weight(factor).abs()
    largest = largest.amax() if largest.numel() else largest.sum()
    return call.constants(z) * largest * call.spread(z)


def quotient(call: Call) -> Tensor:
    """1 over the least entry of the divisor, which does not depend on z."""
    z, divisor = call.first, call.get(1, "other")
    if call.kwargs.get("rounding_mode") is not None or not call.moves(z):
        raise NotCertifiable(f"{call.name} rounds, or divides by a tensor that depends on z: no Lipschitz constant")
    least = call.weight(divisor).abs()
    least = least.amin() if least.numel() else least.sum() + 1.0
    return call.constants(z) / least * call.spread(z)


def extreme(call: Call) -> Tensor:
    """Entry by entry one of the two: that of both, stacked."""
    second = call.get(1, "other")
    if not isinstance(second, Tensor):
        raise NotCertifiable(f"{call.name} with a dimension has no rule; torch.amax and torch.amin have one")
    return call.stacked([call.first, second])


def where(call: Call) -> Tensor:
    """Entry by entry one of the two, by a condition that does not depend on z."""
    condition, *parts = (call.get(place, key) for place, key in enumerate(("condition", "input", "other")))
    if call.moves(condition):
        raise NotCertifiable(f"{call.name} chooses by a condition that depends on z, and may jump; use an activation")
    return call.stacked(parts)


def masked_fill(call: Call) -> Tensor:
    """Entry by entry what was there, or the value."""
    mask = call.get(1, "mask")
    if call.moves(mask):
        raise NotCertifiable(f"{call.name} has a mask that depends on z, and may jump; use an activation")
    return call.stacked([call.first, call.get(2, "value")])


def lerp(call: Call) -> Tensor:
    """The sum of both, each by its largest share."""
    first, second, share = (call.get(i, key) for i, key in enumerate(("input", "end", "weight")))
    share = call.weight(share)
    total = call.zero
    for part, factor in ((first, (1.0 - share).abs().amax()), (second, share.abs().amax())):
        total = total + call.constants(part) * factor * call.spread(part)
    return total
