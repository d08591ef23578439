"""The tensors that a function uses though they are none of its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor  # pyright: ignore
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from .implicit_function import in_forward_mode
from .packing import tensors_in


class Captures(TorchFunctionMode):
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
        for tensor in tensors_in((args, kwargs)):
            if id(tensor) not in self.known and _tracked(tensor):
                self.found[id(tensor)] = tensor
                if self.given is not None:
                    raise RuntimeError(
                        "f now uses a tensor that it did not use in the forward: what it captures was swapped, for example by "
                        "torch.func.functional_call on the module around it, or it runs an EquilibriumLayer that is not part "
                        "of it; pass such tensors as x, or make f a module that holds them"
                    )
        value = func(*args, **kwargs)
        self.known.update((id(t), t) for t in tensors_in(value) if id(t) not in self.found)
        return value

    def _swap(self, tensor: Tensor) -> Tensor:
        assert self.given is not None
        return self.given.get(id(tensor), tensor)


def _tracked(tensor: Tensor) -> bool:
    """Whether autograd, in either mode, or a transform tracks it."""
    if tensor.requires_grad or is_functorch_wrapped_tensor(tensor):
        return True
    return in_forward_mode() and forward_ad.unpack_dual(tensor).tangent is not None
