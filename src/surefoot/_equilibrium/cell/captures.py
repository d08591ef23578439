"""The tensors that a function uses though they are none of its arguments, and what it does to them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor  # pyright: ignore
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from .packing import tensors_in
from .surroundings import in_forward_mode
from .uncompiled import uncompiled


class Captures(TorchFunctionMode):
    """Finds the tracked tensors that f uses though it neither received nor made them; or uses those in ``given`` in their place.

    A captured tensor has to become an argument, or a derivative of a derivative would miss it. Without ``given``, it also
    finds whether f changes untracked ones, and whether it normalises over the batch.
    """

    def __init__(self, known: Sequence[Tensor], given: dict[int, Tensor] | None = None) -> None:
        super().__init__()
        self.known = {id(t): t for t in known}  # with the tensors, so that no id is used again
        self.given = given
        self.found: dict[int, Tensor] = {}
        self.untracked: dict[int, tuple[Tensor, int | None, Tensor | None]] = {}
        self.couples = False
        """Whether f has the batch statistics of a batch norm in it, so that samples depend on each other."""

    def __enter__(self) -> Captures:
        self._outer = contextlib.ExitStack()
        self._outer.enter_context(uncompiled())
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._outer.close()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.given:
            args, kwargs = pytree.tree_map_only(Tensor, self._swap, (args, kwargs))
        norm = func in (torch.nn.functional.batch_norm, torch.nn.functional.instance_norm)
        if func is torch.nn.functional.batch_norm:
            self.couples |= bool(kwargs.get("training", args[5] if len(args) > 5 else False))
        for tensor in _tensors((*args, *kwargs.values())):
            if id(tensor) in self.known:
                continue
            if _tracked(tensor):
                self.found[id(tensor)] = tensor
                if self.given is not None:
                    raise RuntimeError(
                        "f now uses a tensor that it did not use in the forward: what it captures was swapped, for example by "
                        "torch.func.functional_call on the module around it, or it runs an EquilibriumLayer that is not part "
                        "of it; pass such tensors as x, or make f a module that holds them"
                    )
            elif self.given is None and id(tensor) not in self.untracked:
                # norms do not count as a new version what they write into running statistics
                self.untracked[id(tensor)] = tensor, version(tensor), tensor.clone() if norm else None
        value = func(*args, **kwargs)
        self.known.update((id(t), t) for t in _tensors((value,)) if id(t) not in self.found)
        return value

    def check(self) -> None:
        """Refuse a function that keeps a state in what it captures.

        Raises:
            ValueError: it changed a tensor that it captures.
        """
        for tensor, before, copy in self.untracked.values():
            if version(tensor) != before or (copy is not None and not equal(tensor, copy)):
                raise ValueError(
                    f"f changes a tensor of shape {tuple(tensor.shape)} that it captures, such as the running statistics of a "
                    "batch norm in training mode, so that each evaluation would change it; make f a module that has it as a "
                    "buffer (of a submodule), which is then updated once for each forward, or put that into eval()"
                )

    def _swap(self, tensor: Tensor) -> Tensor:
        assert self.given is not None
        return self.given.get(id(tensor), tensor)


def _tensors(values: tuple[Any, ...]) -> list[Tensor]:
    """The tensors in these, and in containers among them; faster than ``tensors_in``, as there are few of the latter."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list, dict)):
            found += tensors_in(value)
    return found


def version(tensor: Tensor) -> int | None:
    """How often a tensor was changed in place, where torch counts that."""
    return None if tensor.is_inference() else tensor._version


def equal(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors of one shape have the same values, inside transforms too."""
    while is_functorch_wrapped_tensor(a):
        a = get_unwrapped(a)
    while is_functorch_wrapped_tensor(b):
        b = get_unwrapped(b)
    return a.shape == b.shape and torch.equal(a, b)


def _tracked(tensor: Tensor) -> bool:
    """Whether autograd, in either mode, or a transform tracks it."""
    if tensor.requires_grad or is_functorch_wrapped_tensor(tensor):
        return True
    return in_forward_mode() and forward_ad.unpack_dual(tensor).tangent is not None
