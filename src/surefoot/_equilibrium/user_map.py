"""A user's map as a function of explicit tensors: only these can be differentiated and transformed inside an operation."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from .captures import Captures
from .contractive import Contractive
from .implicit_function import in_forward_mode
from .packing import Packing, tensors_in

_LOCKS: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()
"""For each module: its parameters are swapped in place while it is evaluated, so that one thread at a time may do so."""
_GUARD = threading.Lock()


class UserMap:
    """(z, *tensors) ↦ f(z, *x, **kwargs), with z and the value packed, and the value checked.

    The tensors are those in x and kwargs, then the parameters and buffers of f, then what else f captures.
    """

    def __init__(
        self, f: Callable[..., Any], packing: Packing, x: tuple[Any, ...], kwargs: Mapping[str, Any], held: list[str]
    ) -> None:
        self.f, self.packing, self.names = f, packing, held
        leaves, self.structure = pytree.tree_flatten((x, dict(kwargs)))
        self.places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        # the tensors come as arguments
        self.leaves = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self.captured: list[Tensor] = []

    def __call__(self, z: Tensor, *tensors: Tensor) -> Tensor:
        leaves = self.leaves.copy()
        count, end = len(self.places), len(self.places) + len(self.names)
        for place, tensor in zip(self.places, tensors[:count], strict=True):
            leaves[place] = tensor
        x, kwargs = pytree.tree_unflatten(leaves, self.structure)
        inference = torch.is_inference_mode_enabled()  # no versions there
        watched = [] if inference else [z, *tensors[:count]]
        versions = [t._version for t in watched]
        state = self.packing.unpack(z.clone() if inference else z)
        given = {id(old): new for old, new in zip(self.captured, tensors[end:], strict=True)}
        same = all(new is old for old, new in zip(self.captured, tensors[end:], strict=True))
        with contextlib.nullcontext() if same else Captures((*tensors_in(state), *tensors), given):
            value = self._evaluate(dict(zip(self.names, tensors[count:end], strict=True)), (state, *x), kwargs)
        for i, (tensor, version) in enumerate(zip(watched, versions, strict=True)):
            if tensor._version != version:
                what = "z" if i == 0 else self._name(self.places[i - 1])
                raise ValueError(
                    f"f changes its argument {what} in place; use operations without underscore, or clone it"
                )
        return self.packing.pack_value(value, z)

    def at(self, *tensors: Tensor) -> Callable[[Tensor], Tensor]:
        """z ↦ f(z, *x) without gradients."""

        def step(z: Tensor) -> Tensor:
            with torch.no_grad():
                return self(z, *tensors)

        return step

    def _evaluate(self, held: dict[str, Tensor], arguments: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if isinstance(self.f, nn.Module):
            with _lock(self.f):
                return torch.func.functional_call(self.f, held, arguments, kwargs)
        return self.f(*arguments, **kwargs)

    def _name(self, place: int) -> str:
        """What the user calls a leaf of x or kwargs: ``x[0]['fine']``."""
        numbered = pytree.tree_unflatten(list(range(len(self.leaves))), self.structure)
        paths = [path for path, _ in pytree.tree_flatten_with_path(numbered)[0]]
        _, first, *inside = paths[place]
        name = str(first.key) if isinstance(first, pytree.MappingKey) else f"x{pytree.keystr((first,))}"
        return name + pytree.keystr(tuple(inside))


def explicit(
    f: Callable[..., Any], packing: Packing, start: Tensor, x: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[UserMap, list[Tensor]]:
    """f as a ``UserMap``, and its tensors; f is evaluated once, at ``start``, to find what it captures.

    Raises:
        ValueError: x or a parameter requires grad but f's value does not.
        TypeError, ValueError: f's value is not like ``start``.
    """
    held: dict[str, Tensor] = {}
    if isinstance(f, nn.Module):
        with _lock(f):
            if isinstance(f, Contractive):
                # once a solve, and an argument, so that gradients reach it as they reach x
                kwargs = {**kwargs, "state_scale": f.scale(packing.unpack(start), *x, **kwargs)}
            held = {**dict(f.named_parameters()), **dict(f.named_buffers())}
    user = UserMap(f, packing, x, kwargs, list(held))
    tensors = [*tensors_in((x, dict(kwargs))), *held.values()]
    transformed = torch._C._are_functorch_transforms_active()
    if not (torch.is_grad_enabled() or transformed or in_forward_mode()):
        return user, tensors
    captures = Captures([start, *tensors])
    with torch.enable_grad(), captures:
        value = user(start, *tensors)
    if not transformed and not value.requires_grad and any(t.requires_grad for t in tensors):
        raise ValueError(
            "x or a parameter of f requires grad, but f(z, *x) does not: f detaches its value, runs under no_grad, or uses "
            "none of them; let f keep the graph, or call the layer under torch.no_grad() if no gradient is wanted"
        )
    user.captured = list(captures.found.values())
    tensors = tensors + user.captured
    if torch._C._len_torch_function_stack():
        # inside another layer's f: that layer replaces what f captures operation by operation, and so sees these too
        with torch.enable_grad():
            tensors = [t.view_as(t) for t in tensors]
    return user, tensors


def _lock(f: nn.Module) -> threading.RLock:
    with _GUARD:
        return _LOCKS.setdefault(f, threading.RLock())
