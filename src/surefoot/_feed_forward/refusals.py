"""What makes a module another function than its class says, or its weights not weights of its own."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from torch import Tensor, nn


def require_unchanged(module: nn.Module, what: str) -> None:
    """Raise ``ValueError`` where a module may compute what others of its class do not; errors call it ``what``."""
    if module._forward_hooks or module._forward_pre_hooks:
        raise ValueError(f"{what} has hooks, which may change what it computes; remove them")
    replaced = "forward" in vars(module)
    if isinstance(module, nn.Sequential):
        replaced |= type(module).forward is not nn.Sequential.forward
        replaced |= type(module).__call__ is not nn.Module.__call__
    if replaced:
        raise ValueError(f"{what} has a forward of its own, of which nothing is known; use the module as torch has it")


def require_own(parameters: Mapping[str, Tensor]) -> None:
    """Raise ``ValueError`` unless these weights, by the names that errors call them, are parameters with entries, no two the same
    or in the same memory, and one of them is trained."""
    names: dict[int, str] = {}
    places: list[tuple[int, int, str]] = []
    for what, parameter in parameters.items():
        if not isinstance(parameter, nn.Parameter):
            raise ValueError(
                f"{what} is a tensor and no nn.Parameter, so that it may be computed from others; make it one: "
                "nn.Parameter(tensor.detach().clone())"
            )
        if parameter.numel() == 0:
            raise ValueError(f"{what} is empty (shape {tuple(parameter.shape)}); use at least one unit")
        if id(parameter) in names:
            raise ValueError(f"{what} is that of {names[id(parameter)]}; layers that share weights are not supported")
        names[id(parameter)] = what
        if not parameter.is_meta:
            start, end = _memory(parameter)
            if end - start < parameter.numel() * parameter.element_size():
                raise ValueError(f"{what} has entries that share memory, as expand() makes them; clone it first")
            places.append((start, end, what))
    places.sort()
    for (_, end, one), (start, _, other) in pairwise(places):
        if start < end:
            raise ValueError(f"{one} and {other} share memory; layers that share weights are not supported")
    if not any(parameter.requires_grad for parameter in parameters.values()):
        raise ValueError("every weight of net is frozen (requires_grad=False); there is nothing to train")


def _memory(parameter: Tensor) -> tuple[int, int]:
    """Where its entries begin and end."""
    extent = sum((size - 1) * stride for size, stride in zip(parameter.shape, parameter.stride(), strict=True)) + 1
    return parameter.data_ptr(), parameter.data_ptr() + extent * parameter.element_size()
