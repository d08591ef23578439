"""A solve in a graph that ``make_fx`` records, for ``torch.func.linearize`` too: one node, as its steps depend on numbers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


def one_node(run: Callable[..., Tensor], again: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """``run(*tensors)``; in a graph that is being recorded, the call ``again(*tensors)``, unless they are constant there.

    ``again`` may be transformed where the graph is run, ``run`` need not be transformable.
    """
    mode = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY)
    if mode is None:
        return run(*tensors)
    from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing, track_tensor_tree  # slow to import

    def solve_equilibrium(*tensors: Tensor) -> Tensor:  # a graph calls what has a name
        return again(*tensors)

    arguments = pytree.tree_map(mode.tracer.unwrap_proxy, tensors)
    with disable_proxy_modes_tracing():
        value = run(*tensors)
    if not any(isinstance(argument, torch.fx.Proxy) for argument in arguments):
        return value
    node = mode.tracer.create_proxy("call_function", solve_equilibrium, arguments, {})
    return track_tensor_tree(value, node, constant=None, tracer=mode.tracer)
