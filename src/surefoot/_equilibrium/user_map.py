"""A user's map as a function of explicit tensors: only these can be differentiated and transformed inside an operation."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor  # pyright: ignore
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from .implicit_function import in_forward_mode

_LOCKS: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()
"""For each module: its parameters are swapped in place while it is evaluated, so that one thread at a time may do so."""
_GUARD = threading.Lock()


class UserMap:
    """(z, *tensors) ↦ f(z, *x), with its value checked.

    The tensors are those in x, then the parameters and buffers of f, then what else f captures.
    """

    def __init__(
        self, f: Callable[..., Tensor], x: tuple[Any, ...], places: list[int], names: list[str], captured: list[Tensor]
    ) -> None:
        self.f, self.places, self.names, self.captured = f, places, names, captured
        self.x = tuple(None if i in places else value for i, value in enumerate(x))  # its tensors come as arguments

    def __call__(self, z: Tensor, *tensors: Tensor) -> Tensor:
        x = list(self.x)
        count, end = len(self.places), len(self.places) + len(self.names)
        for place, tensor in zip(self.places, tensors[:count], strict=True):
            x[place] = tensor
        inference = torch.is_inference_mode_enabled()  # no versions there
        watched = [] if inference else [z, *tensors[:count]]
        versions = [t._version for t in watched]
        argument = z.clone() if inference else z
        given = {id(old): new for old, new in zip(self.captured, tensors[end:], strict=True)}
        same = all(new is old for old, new in zip(self.captured, tensors[end:], strict=True))
        with contextlib.nullcontext() if same else _Captures((argument, *tensors), given):
            value = _call(self.f, dict(zip(self.names, tensors[count:end], strict=True)), argument, x)
        for i, (tensor, version) in enumerate(zip(watched, versions, strict=True)):
            if tensor._version != version:
                what = "z" if i == 0 else f"x[{self.places[i - 1]}]"
                raise ValueError(
                    f"f changes its argument {what} in place; use operations without underscore, or clone it"
                )
        return _like(value, z)

    def at(self, *tensors: Tensor) -> Callable[[Tensor], Tensor]:
        """z ↦ f(z, *x) without gradients."""

        def step(z: Tensor) -> Tensor:
            with torch.no_grad():
                return self(z, *tensors)

        return step


def explicit(f: Callable[..., Tensor], start: Tensor, x: tuple[Any, ...]) -> tuple[UserMap, list[Tensor]]:
    """f as a ``UserMap``, and its tensors; f is evaluated once, at ``start``, to find what it captures.

    Raises:
        ValueError: x or a parameter requires grad but f's value does not.
        TypeError, ValueError: f's value is not like ``start``.
    """
    held: dict[str, Tensor] = {}
    if isinstance(f, nn.Module):
        with _lock(f):
            held = {**dict(f.named_parameters()), **dict(f.named_buffers())}
    places = [i for i, value in enumerate(x) if isinstance(value, Tensor)]
    tensors = [x[i] for i in places] + list(held.values())
    user = UserMap(f, x, places, list(held), [])
    transformed = torch._C._are_functorch_transforms_active()
    if not (torch.is_grad_enabled() or transformed or in_forward_mode()):
        return user, tensors
    captures = _Captures([start, *tensors])
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


def _call(f: Callable[..., Any], held: dict[str, Tensor], z: Tensor, x: list[Any]) -> Any:
    if isinstance(f, nn.Module):
        with _lock(f):
            return torch.func.functional_call(f, held, (z, *x))
    return f(z, *x)


def _lock(f: nn.Module) -> threading.RLock:
    with _GUARD:
        return _LOCKS.setdefault(f, threading.RLock())


def _like(value: Any, z: Tensor) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"f(z, *x) returned a {type(value).__name__}; it must return one tensor like z")
    if value.shape != z.shape:
        raise ValueError(
            f"f(z, *x) has shape {tuple(value.shape)} but z has {tuple(z.shape)}; they must agree: pass state_shape "
            "or z0 if z is not shaped like the first x"
        )
    if value.dtype != z.dtype:
        names = [str(dtype).removeprefix("torch.") for dtype in (value.dtype, z.dtype)]
        raise TypeError(
            f"f(z, *x) has dtype {names[0]} but z has {names[1]}; cast x or f so that they agree, without autocast"
        )
    if value.device != z.device:
        raise ValueError(f"f(z, *x) is on {value.device} but z is on {z.device}; move f and x to one device")
    return value


def _tensors(values: Any) -> list[Tensor]:
    return [value for value in pytree.tree_leaves(values) if isinstance(value, Tensor)]


def _tracked(tensor: Tensor) -> bool:
    """Whether autograd, in either mode, or a transform tracks it."""
    if tensor.requires_grad or is_functorch_wrapped_tensor(tensor):
        return True
    return in_forward_mode() and forward_ad.unpack_dual(tensor).tangent is not None


class _Captures(TorchFunctionMode):
    """Finds the tracked tensors that f uses though it neither received nor made them; or uses those in ``given`` in their place.

    A captured tensor has to become an argument, or a derivative of a derivative would miss it.
    """

    def __init__(self, known: Sequence[Tensor], given: dict[int, Tensor] | None = None) -> None:
        super().__init__()
        self.known = {id(t): t for t in known}  # with the tensors, so that no id is used again
        self.given = given
        self.found: dict[int, Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.given:
            args, kwargs = pytree.tree_map_only(Tensor, self._swap, (args, kwargs))
        for tensor in _tensors((args, kwargs)):
            if id(tensor) not in self.known and _tracked(tensor):
                self.found[id(tensor)] = tensor
                if self.given is not None:
                    raise RuntimeError(
                        "f now uses a tensor that it did not use in the forward: what it captures was swapped, for example by "
                        "torch.func.functional_call on the module around it, or it runs an EquilibriumLayer that is not part "
                        "of it; pass such tensors as x, or make f a module that holds them"
                    )
        value = func(*args, **kwargs)
        self.known.update((id(t), t) for t in _tensors(value) if id(t) not in self.found)
        return value

    def _swap(self, tensor: Tensor) -> Tensor:
        assert self.given is not None
        return self.given.get(id(tensor), tensor)
