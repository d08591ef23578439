"""A user's map as a function of explicit tensors: only these can be differentiated and transformed inside an operation."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor  # pyright: ignore
from torch.autograd import forward_ad
from torch.utils import _pytree as pytree

from ..contractive import Contractive
from .captures import Captures, equal, version
from .packing import Packing
from .surroundings import Surroundings, in_forward_mode

_LOCKS: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()
"""For each module: its parameters are swapped in place while it is evaluated, so that one thread at a time may do so."""
_GUARD = threading.Lock()


class UserMap:
    """(z, *tensors) ↦ f(z, *x, **kwargs), with z and the value packed, and the value checked.

    The tensors are those in x and kwargs, then the parameters and buffers of f, then what else f captures. Buffers that f
    changes, such as running statistics, are copied for each evaluation: within a solve they stay what they were.
    """

    def __init__(
        self,
        f: Callable[..., Any],
        packing: Packing,
        x: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        device: torch.device,
    ) -> None:
        self.f, self.packing = f, packing
        self.leaves, self.structure = pytree.tree_flatten((x, dict(kwargs)))
        self.places = [i for i, leaf in enumerate(self.leaves) if isinstance(leaf, Tensor)]
        self.arguments: list[Tensor] = [self.leaves[i] for i in self.places]
        for place in self.places:
            self.leaves[place] = None  # comes as an argument
        self.held: dict[str, Tensor] = {}
        self.buffers: list[str] = []
        self.modes: list[tuple[nn.Module, bool]] = []
        self.lock: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        if isinstance(f, nn.Module):
            self.lock = lock_of(f)
            _refuse_ranks(f)
            with self.lock:
                buffers = dict(f.named_buffers())
                self.held, self.buffers = {**dict(f.named_parameters()), **buffers}, list(buffers)
            self.modes = [(module, module.training) for module in f.modules()]
        self.names = list(self.held)
        self.tensors = [*self.arguments, *self.held.values()]
        self.surroundings = Surroundings(device)
        self.changing: list[str] = []
        self.couples = False
        self.captured: list[Tensor] = []
        self.constants: list[tuple[Tensor, int | None]] = []
        """What else f captures, which has no gradient, with the versions in the forward."""
        self.open = True
        """During the forward; later f may hold other tensors, and its graph alone keeps these."""

    def __call__(self, z: Tensor, *tensors: Tensor) -> Tensor:
        return self._bind(tensors)(z)[0]

    @property
    def eps(self) -> float:
        """The rounding unit of an evaluation; that of the coarsest dtype in it, for the half precisions their unit roundoff."""
        eps = max(torch.finfo(dtype).eps for dtype in self._dtypes())
        return eps if eps == torch.finfo(self.packing.solved).eps else eps / 2

    @property
    def half(self) -> bool:
        """Whether an evaluation overflows where float32 does not."""
        return torch.float16 in self._dtypes()

    def _dtypes(self) -> list[torch.dtype]:
        """In which f computes."""
        autocast = self.surroundings.autocast
        if autocast is None or self.packing.dtype == torch.float64:  # which it leaves alone
            return [self.packing.dtype]
        return [self.packing.dtype, autocast]

    def at(self, *tensors: Tensor) -> Callable[[Tensor], Tensor]:
        """z ↦ f(z, *x) without gradients."""

        evaluate = self._bind(tensors, self._own(tensors))

        def step(z: Tensor) -> Tensor:
            with torch.no_grad():
                return evaluate(z)[0]

        return step

    def discover(self, start: Tensor) -> Tensor:
        """The value at ``start``, from the first evaluation, which finds what f captures, changes and couples.

        Raises:
            ValueError: f changes what it captures, or a buffer that requires grad.
        """
        fresh = {name: _counted(self.held[name]) for name in self.buffers}
        versions = {name: version(buffer) for name, buffer in fresh.items()}
        tensors = [*self.arguments, *(fresh.get(name, held) for name, held in self.held.items())]
        captures = Captures([start, *tensors])
        with captures:
            value, after = self._bind(tensors)(start)
        captures.check()
        changed = {
            name
            for name, buffer in fresh.items()
            if after[name] is not buffer or version(buffer) != versions[name] or not equal(buffer, self.held[name])
        }
        # all of a module's: the first evaluation may have left one as it was by chance, such as a mean of zeros
        owners = {name.rpartition(".")[0] for name in changed}
        self.changing = [name for name in self.buffers if name.rpartition(".")[0] in owners]
        for name in self.changing:
            if self.held[name].requires_grad:
                raise ValueError(
                    f"the buffer {name} of f requires grad, but f changes it; make it a parameter, or detach it"
                )
        self.couples = captures.couples
        self.captured = list(captures.found.values())
        self.constants = [(tensor, before) for tensor, before, _ in captures.untracked.values()]
        kept = {name: self.held[name].clone() for name in self.changing}  # for the backward, as they are now
        self.tensors = [
            *self.arguments,
            *(kept.get(name, held) for name, held in self.held.items()),
            *self.captured,
        ]
        return value

    def finish(self, z: Tensor) -> None:
        """End the forward: update the buffers that f changes, by one evaluation at the fixed point."""
        if self.changing:
            with torch.no_grad(), forward_ad._set_fwd_grad_enabled(False), self.lock:
                after = self._bind(self.tensors)(z.detach())[1]
                for name in self.changing:
                    buffer, updated = self.held[name], after[name]
                    if updated.shape == buffer.shape and updated.dtype == buffer.dtype:
                        buffer.copy_(updated)
                    else:
                        assert isinstance(self.f, nn.Module)
                        owner, _, leaf = name.rpartition(".")
                        setattr(self.f.get_submodule(owner), leaf, updated)
        self.open, self.tensors, self.arguments, self.held = False, [], [], {}

    def _bind(
        self, tensors: Sequence[Tensor], own: bool = False
    ) -> Callable[[Tensor], tuple[Tensor, dict[str, Tensor]]]:
        """The map of z: to the value, and the parameters and buffers after it; ``own``: the tensors are those of f itself."""
        leaves = self.leaves.copy()
        count, end = len(self.places), len(self.places) + len(self.names)
        for place, tensor in zip(self.places, tensors[:count], strict=True):
            leaves[place] = tensor
        x, kwargs = pytree.tree_unflatten(leaves, self.structure)
        nested = any(not child.is_leaf() for group in self.structure.children() for child in group.children())
        bound = dict(zip(self.names, tensors[count:end], strict=True))
        captured = tensors[end:]
        given = dict(zip(map(id, self.captured), captured, strict=True))
        same = own or all(new is old for old, new in zip(self.captured, captured, strict=True))
        inference = torch.is_inference_mode_enabled()  # no versions there
        watched = () if inference else tensors[:count]

        def evaluate(z: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            for tensor, before in self.constants:
                if version(tensor) != before:
                    raise RuntimeError(
                        f"a tensor of shape {tuple(tensor.shape)} that f captures was changed in place after the forward, so "
                        "that a derivative would be that of another map; make it a buffer of f or pass it as x, or change it "
                        "after the backward"
                    )

            def call() -> tuple[Any, dict[str, Tensor]]:
                state = self.packing.unpack(z.clone() if inference else z)
                # containers of their own for each evaluation, which f may change
                arguments, named = pytree.tree_unflatten(leaves, self.structure) if nested else (x, kwargs)
                held = bound.copy()
                for name in self.changing:
                    held[name] = held[name].detach().clone()
                known = () if same else (*pytree.tree_leaves(state), *tensors, *held.values())
                with contextlib.nullcontext() if same else Captures(known, given):
                    if own or not isinstance(self.f, nn.Module):
                        return self.f(state, *arguments, **named), held
                    with _training(self.modes):
                        return torch.func.functional_call(self.f, held, (state, *arguments), named), held

            versions = [] if inference else [version(z), *(version(t) for t in watched)]
            with self.lock:
                value, after = self.surroundings.evaluate(call)
            for i, before in enumerate(versions):
                if version(watched[i - 1] if i else z) != before:
                    what = self._name(self.places[i - 1]) if i else "z"
                    raise ValueError(
                        f"f changes its argument {what} in place; use operations without underscore, or clone it"
                    )
            return self.packing.pack_value(value, z, self.surroundings.autocast), after

        return evaluate

    def _own(self, tensors: Sequence[Tensor]) -> bool:
        """Whether these are the tensors of f, during the forward, so that f can be called as it is."""
        own = (*self.arguments, *self.held.values(), *self.captured)
        return self.open and all(_alike(a, b) for a, b in zip(tensors, own, strict=True))

    def _name(self, place: int) -> str:
        """What the user calls a leaf of x or kwargs: ``x[0]['fine']``."""
        numbered = pytree.tree_unflatten(list(range(len(self.leaves))), self.structure)
        paths = [path for path, _ in pytree.tree_flatten_with_path(numbered)[0]]
        _, first, *inside = paths[place]
        name = str(first.key) if isinstance(first, pytree.MappingKey) else f"x{pytree.keystr((first,))}"
        return name + pytree.keystr(tuple(inside))


def explicit(
    f: Callable[..., Any], packing: Packing, start: Tensor, x: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[UserMap, Tensor]:
    """f as a ``UserMap``, and its value at ``start``, where it was evaluated once: the first step of a solve.

    Raises:
        ValueError: x or a parameter requires grad but f's value does not; f changes an argument or what it captures.
        TypeError, ValueError: f's value is not like ``start``.
    """
    if isinstance(f, Contractive):
        with lock_of(f):
            # an argument, so that gradients reach it as they reach x
            kwargs = f.with_scale(packing.unpack(start), x, kwargs)
    user = UserMap(f, packing, x, kwargs, start.device)
    transformed = torch._C._are_functorch_transforms_active()
    tracked = torch.is_grad_enabled() or transformed or in_forward_mode()
    with torch.set_grad_enabled(tracked):
        value = user.discover(start)
    if tracked and not transformed and not value.requires_grad and any(t.requires_grad for t in user.tensors):
        raise ValueError(
            "x or a parameter of f requires grad, but f(z, *x) does not: f detaches its value, runs under no_grad, or uses "
            "none of them; let f keep the graph, or call the layer under torch.no_grad() if no gradient is wanted"
        )
    if tracked and torch._C._len_torch_function_stack():
        # inside another layer's f: that layer replaces what f captures operation by operation, and so sees these too
        with torch.enable_grad():
            user.tensors = [t.view_as(t) for t in user.tensors]
    value = value.detach()
    return user, torch.where(value.isfinite(), value, start)


def _refuse_ranks(f: nn.Module) -> None:
    """Ranks would wait for each other in evaluations that some of them do not make."""
    shared = torch.distributed.is_available() and torch.distributed.is_initialized()
    if shared and any(isinstance(module, nn.SyncBatchNorm) and module.training for module in f.modules()):
        raise ValueError(
            "f has a SyncBatchNorm in training mode, which makes the ranks wait for each other at every evaluation, but their "
            "solves take different numbers of them; use BatchNorm or GroupNorm in f, or put it into eval()"
        )


@contextlib.contextmanager
def _training(modes: list[tuple[nn.Module, bool]]) -> Iterator[None]:
    """Modules as they were: in a backward they may have been put into ``eval()`` since the forward."""
    moved = [(module, module.training) for module, training in modes if module.training != training]
    for module, training in moved:
        module.training = not training
    try:
        yield
    finally:
        for module, training in moved:
            module.training = training


def _alike(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are the same numbers in memory."""
    if a is b:
        return True
    if is_functorch_wrapped_tensor(a) or is_functorch_wrapped_tensor(b):
        return False
    return (
        a.dtype == b.dtype
        and a.shape == b.shape
        and a.stride() == b.stride()
        and a.storage_offset() == b.storage_offset()
        and a.untyped_storage()._cdata == b.untyped_storage()._cdata
    )


def _counted(buffer: Tensor) -> Tensor:
    """A copy of which torch counts the changes, as it does not of what is made in inference mode."""
    if not torch.is_inference_mode_enabled():
        return buffer.clone()
    with torch.inference_mode(False):
        return buffer.clone()


def lock_of(f: nn.Module) -> threading.RLock:
    """That of a module, made when it is asked for first."""
    with _GUARD:
        return _LOCKS.setdefault(f, threading.RLock())
