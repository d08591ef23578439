"""A layer in a graph of ``torch.compile``: an opaque operation forward and one backward, which run the layer as without it.

A graph holds neither modules nor structures: the operations find the layer by its number, and its arguments are a list of
tensors and a literal with their places. Where that is not possible, the graph breaks and the layer runs between two graphs.
To be imported while a graph is traced, as it imports the compiler.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..cell.user_map import lock_of
from ..derivatives.implicit_function import Kind
from ..solver.records import SolveInfo
from .numbering import LAYERS, Layer

_KEYS = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
_GRAPHS: dict[int, tuple[list[Tensor], list[Tensor]]] = {}
"""By the number in a ticket: the leaves of a state, with their graph, and those of the arguments to which gradients go."""
_TICKETS = itertools.count()


@torch.compiler.disable(
    reason="EquilibriumLayer is one operation of a graph only where f is a module, its arguments are tensors, numbers and "
    "strings in tuples, lists and dictionaries, no memory is passed, and no transform of torch.func is active"
)
def outside(layer: Callable[..., Any], x: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The layer between two graphs."""
    return layer(*x, **kwargs)


@torch.compiler.disable(reason="the record of a solve is no tensor of a graph: read it outside of torch.compile")
def record(records: dict[Kind, SolveInfo], kind: Kind) -> SolveInfo | None:
    """What is in it after the operations that come before."""
    return records.get(kind)


def in_graph(layer: Layer, z0: Any, x: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor] | None:
    """The leaves of z, as an operation of the graph that is being traced; None where it cannot be one.

    Args:
        layer: whose f is a module, or it may capture what the operation would not see.
        z0: first iterate, complete.
        x, kwargs: of tensors, numbers and strings, in tuples, lists and dictionaries.
    """
    f = layer.f
    if not isinstance(f, nn.Module) or torch._C._are_functorch_transforms_active():
        return None
    tensors: list[Tensor] = []
    try:
        structure = _write(z0, tensors)
        states, device = len(tensors), tensors[0].device.type
        call = f"({structure}, {_write(x, tensors)}, {_write(kwargs, tensors)})"
    except _NoLiteral:
        return None
    buffers = [buffer for _, buffer in f.named_buffers()]
    tensors += [*(parameter for _, parameter in f.named_parameters()), *buffers]
    wanted = [torch.is_grad_enabled() and t.requires_grad for t in tensors]
    autocast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    training = len([module for module in f.modules() if module.training]) > 0
    found = _forward(layer.number, call, states, wanted, autocast, training, tensors)
    with torch.no_grad():
        for buffer, after in zip(buffers, found[states + 1 :], strict=False):
            buffer.copy_(after)
    return found[:states]


class _NoLiteral(Exception):
    """A value that cannot be written as one."""


def _write(value: Any, tensors: list[Tensor]) -> str:
    """The literal of a value, where ... stands for a tensor, 0 for an integer and 0.0 for a float, appended to ``tensors``."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return "..."
    if type(value) is tuple:
        return "(" + "".join([_write(part, tensors) + ", " for part in value]) + ")"
    if type(value) is list:
        return "[" + "".join([_write(part, tensors) + ", " for part in value]) + "]"
    if type(value) is dict:
        return "{" + "".join([f"{_write(k, tensors)}: {_write(v, tensors)}, " for k, v in value.items()]) + "}"
    if type(value) in (int, float):  # a tensor, so that other values need no other literal
        tensors.append(torch.tensor(value, dtype=torch.int64 if type(value) is int else torch.float64))
        return "0" if type(value) is int else "0.0"
    if value is None or type(value) in (bool, str):
        return repr(value)
    raise _NoLiteral


def _read(call: str, tensors: Iterator[Tensor]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """z0, x and kwargs."""

    def value(leaf: Any) -> Any:
        if leaf is ...:
            return next(tensors)
        return type(leaf)(next(tensors)) if type(leaf) in (int, float) else leaf

    return pytree.tree_map(value, ast.literal_eval(call))


class _Closed(nn.Module):
    """The layer as a module of its own, whose parameters can be replaced without the hooks of the layer being called again."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: tuple[Any, ...], kwargs: dict[str, Any], z0: Any) -> Any:
        return self.layer.closed(x, kwargs, z0)


@contextlib.contextmanager
def _as_in_eager(autocast: torch.dtype | None, device: torch.device) -> Iterator[None]:
    """Autograd and autocast inside an operation, where torch leaves them out."""
    with torch._C._ForceDispatchKeyGuard(*_KEYS):
        if autocast is None:
            yield
        else:
            with torch.autocast(device.type, dtype=autocast, cache_enabled=False):
                yield


@torch.library.custom_op("surefoot::equilibrium", mutates_args=())
def _forward(
    number: int,
    call: str,
    states: int,
    wanted: list[bool],
    autocast: torch.dtype | None,
    training: bool,
    tensors: list[Tensor],
) -> list[Tensor]:
    """The leaves of z, a ticket for the backward, and in training what becomes of the buffers of f."""
    layer = LAYERS[number]
    with _as_in_eager(autocast, tensors[0].device), torch.set_grad_enabled(any(wanted)):
        # what a graph computes it may overwrite after its last use, and this one is used again in the backward
        leaves = [t.detach().clone().requires_grad_(want) for t, want in zip(tensors, wanted, strict=True)]
        rest = iter(leaves)
        z0, x, kwargs = _read(call, rest)
        parameters = [f"layer.f.{name}" for name, _ in layer.f.named_parameters()]
        buffers = [f"layer.f.{name}" for name, _ in layer.f.named_buffers()]
        held = dict(zip([*parameters, *buffers], rest, strict=True))
        with lock_of(layer.f):
            z = torch.func.functional_call(_Closed(layer), held, (x, kwargs, z0))
    values = pytree.tree_leaves(z)
    ticket = np.array([-1])
    if any(wanted):
        ticket[0] = key = next(_TICKETS)
        _GRAPHS[key] = values, [leaf for leaf, want in zip(leaves, wanted, strict=True) if want]
        weakref.finalize(
            ticket, _GRAPHS.pop, key
        )  # the array lives as long as a tensor on it, so as a backward may come
    after = [held[name].detach() for name in buffers] if training else []
    return [
        *(value.detach().clone(memory_format=torch.contiguous_format) for value in values),
        torch.from_numpy(ticket),
        *after,
    ]


@_forward.register_fake
def _(
    number: int,
    call: str,
    states: int,
    wanted: list[bool],
    autocast: torch.dtype | None,
    training: bool,
    tensors: list[Tensor],
) -> list[Tensor]:
    after = tensors[-len(buffers) :] if training and (buffers := list(LAYERS[number].f.buffers())) else []
    return [*map(_like, tensors[:states]), torch.empty(1, dtype=torch.int64), *map(_like, after)]


def _like(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


@torch.library.custom_op("surefoot::equilibrium_backward", mutates_args=())
def _backward(ticket: Tensor, grads: Sequence[Tensor | None], like: list[Tensor]) -> list[Tensor]:
    """The gradients of the arguments that are shaped like these."""
    values, leaves = _GRAPHS[int(ticket)]
    pairs = [(value, grad) for value, grad in zip(values, grads, strict=True) if grad is not None]
    with _as_in_eager(None, values[0].device):
        found = torch.autograd.grad(
            [value for value, _ in pairs],
            leaves,
            [grad for _, grad in pairs],
            retain_graph=True,
            materialize_grads=True,
        )
    return [grad.clone(memory_format=torch.contiguous_format) for grad in found]  # no two share memory


@_backward.register_fake
def _(ticket: Tensor, grads: Sequence[Tensor | None], like: list[Tensor]) -> list[Tensor]:
    return [_like(t) for t in like]


def _save(ctx: Any, inputs: Any, output: list[Tensor]) -> None:
    _, _, ctx.states, ctx.wanted, _, _, tensors = inputs
    like = [t for t, want in zip(tensors, ctx.wanted, strict=True) if want]
    ctx.save_for_backward(output[ctx.states], *like)


def _differentiate(ctx: Any, grads: list[Tensor | None]) -> Any:
    ticket, *like = ctx.saved_tensors
    found = iter(_backward(ticket, grads[: ctx.states], like))
    return None, None, None, None, None, None, [next(found) if want else None for want in ctx.wanted]


_forward.register_autograd(_differentiate, setup_context=_save)
