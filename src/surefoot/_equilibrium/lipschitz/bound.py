"""A proved Lipschitz constant of a user's map in its state: what each of its operations can do to a distance, multiplied out.

The map is evaluated once, and every operation of torch is seen. Each tensor either depends on the state, with a bound of how far
it moves, sample by sample; or it comes from parameters and buffers alone, or from the arguments too. An operation on the first
kind needs a rule, and a tensor of unknown origin is refused, so that nothing on the way is missed.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils import _pytree as pytree

from ..._core.refusals import NotCertifiable
from ..._core.validate import kind_of
from ..cell.packing import tensors_in
from ..cell.surroundings import autocast_dtype, without_autocast
from ..cell.uncompiled import uncompiled
from .call import Call
from .norms import spectral_upper
from .table import QUERIES, RULES
from .values import FIXED, GIVEN, Values, mixed, version

_ROUNDING = 1.0 + 2.0**-30  # all numbers are made of positive ones, by fewer than 2²⁰ roundings


def lipschitz_bound(f: nn.Module, z: Any, *x: Any, batch_dims: int = 1, **kwargs: Any) -> Tensor:
    """L with ‖f(z, *x) − f(z', *x)‖ ≤ L ‖z − z'‖ for all z, z' of this shape and each sample, in real arithmetic.

    f is evaluated once, to see what it does. L holds for all states, and for all values of x but where f makes numbers or
    branches of them in Python (then for this x). It is differentiable in the parameters of f. Of weights with a random
    mask it is that of the numbers that the next evaluation draws.

    Args:
        f: a module ``f(z, *x, **kwargs)`` of operations that have a rule (docs/equilibrium.md lists them).
        z: a state (*batch, *state), or a pytree of such tensors, whose norm is that of all entries of a sample.
        batch_dims: how many leading dimensions index samples.

    Returns:
        () float64, rounded up.

    Raises:
        NotCertifiable: an operation has no Lipschitz constant, or none is known, or mixes samples; the message names it.
        TypeError: f is no module, or z has no tensor.

    Example:
        >>> class Cell(torch.nn.Module):
        ...     def forward(self, z, x):
        ...         return torch.tanh(0.5 * z + x)
        >>> z = x = torch.zeros(4, 3)
        >>> L = sf.nn.lipschitz_bound(Cell(), z, x).item()  # of each sample, for every z and x
        >>> 0.5 <= L <= 0.5001  # rounded up
        True
    """
    if not isinstance(f, nn.Module):
        raise TypeError(f"f is {kind_of(f)}; pass a module, whose parameters are known")
    leaves, structure = pytree.tree_flatten(z)
    if not leaves or not all(isinstance(leaf, Tensor) for leaf in leaves):
        raise TypeError(f"z is {kind_of(z)}; pass a tensor, or tensors in tuples, lists or dictionaries")
    # objects of their own, so that x may hold the same tensors
    state = [leaf.detach().clone() for leaf in leaves]
    values = Values(state, batch_dims)
    buffers = {name: buffer.clone() for name, buffer in f.named_buffers()}  # f may update running statistics
    for tensors, origin in ((tensors_in((x, kwargs)), GIVEN), ([*f.parameters(), *buffers.values()], FIXED)):
        for tensor in tensors:
            values.stand(tensor, origin)
    arguments = (pytree.tree_unflatten(state, structure), *x)
    with uncompiled(), _same_draws(state[0].device), _Trace(values, state):
        value = torch.func.functional_call(f, buffers, arguments, kwargs)
    rows = [values.constants(tensor) for tensor in tensors_in(value)]
    if not rows:
        raise NotCertifiable(f"f returns {kind_of(value)}; it must return a tensor, or tensors, like z")
    matrix = torch.stack(rows)
    return (matrix.reshape(()) if matrix.numel() == 1 else spectral_upper(matrix)) * _ROUNDING


class _Trace(TorchFunctionMode):
    """Sees every operation of torch, and keeps ``values``."""

    def __init__(self, values: Values, leaves: list[Tensor]) -> None:
        super().__init__()
        self.values = values
        self.unit = _unit(leaves)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = tensors_in((args, kwargs))
        if not any(self.values.moves(tensor) for tensor in tensors):
            origins = [] if func in QUERIES and len(tensors) == 1 else [self.values.known(tensor) for tensor in tensors]
            value = self._value(func, args, kwargs, tensors)
            results = tensors_in(value)
            # of an operation that returns nothing, the arguments are the results
            for tensor in results or tensors:
                self.values.stand(tensor, None if None in origins else max((*origins, FIXED)))  # pyright: ignore
            return value
        if func in QUERIES and sum(self.values.moves(tensor) for tensor in tensors) == 1:
            value = func(*args, **kwargs)
            for tensor in tensors_in(value):
                self.values.stand(tensor, FIXED)
            return value
        return self._moving(func, args, kwargs, tensors)

    def _value(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]) -> Any:
        versions = [version(tensor) for tensor in tensors]
        value = func(*args, **kwargs)
        for tensor, before in zip(tensors, versions, strict=True):
            if version(tensor) != before:
                self.values.changed(tensor)
        return value

    def _moving(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]) -> Any:
        """An operation on a tensor that depends on the state."""
        values, name = self.values, resolve_name(func) or getattr(func, "__name__", str(func))
        if func not in RULES or kwargs.get("out") is not None:
            raise NotCertifiable(
                f"{name} of a tensor that depends on z: no Lipschitz constant of it is known; use other operations, or give the "
                "layer a contraction= of your own"
            )
        args, kwargs = self._apart(args, kwargs)
        tensors = tensors_in((args, kwargs))
        moving = [tensor for tensor in tensors if values.moves(tensor)]
        for tensor in tensors:
            values.constants(tensor)  # where it comes from must be known
        with torch.no_grad():
            value = self._value(func, args, kwargs, tensors)
        counted = values.counting()
        with without_autocast(values.zero.device):
            constants = RULES[func](Call(values, name, value, args, kwargs))
        if not counted.issuperset(map(id, moving)):
            raise NotCertifiable(
                f"{name} has a setting that depends on z: no Lipschitz constant of that is known; use a number"
            )
        for result in tensors_in(value):
            if not result.dtype.is_floating_point:
                raise NotCertifiable(
                    f"{name} makes {result.dtype} of a tensor that depends on z, in jumps; keep real numbers"
                )
            if torch.finfo(result.dtype).eps > self.unit:
                raise NotCertifiable(
                    f"{name} rounds a tensor that depends on z to {result.dtype}, which no bound of a solve allows for; keep the "
                    "dtype of z"
                )
            if result.shape[: len(values.batch)] != values.batch:
                raise mixed(name)
            values.move(result, constants)
        return value

    def _apart(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments, with a tensor of its own for each place of one that moves, so that a rule has to ask for each."""
        seen: set[int] = set()

        def distinct(tensor: Tensor) -> Tensor:
            if id(tensor) in seen and self.values.moves(tensor):
                alias = tensor.detach()
                self.values.move(alias, self.values.constants(tensor))
                return alias
            seen.add(id(tensor))
            return tensor

        return pytree.tree_map_only(Tensor, distinct, (args, kwargs))


def _unit(leaves: list[Tensor]) -> float:
    """The rounding unit of an evaluation: that of the dtypes of the state, and of the autocast around it."""
    dtypes, autocast = {leaf.dtype for leaf in leaves if leaf.is_floating_point()}, autocast_dtype(leaves[0].device)
    if autocast is not None and torch.float64 not in dtypes:
        dtypes.add(autocast)
    return max((torch.finfo(dtype).eps for dtype in dtypes), default=0.0)


def _same_draws(device: torch.device) -> contextlib.AbstractContextManager[None]:
    """Leaves torch's generators as they were, so that the next evaluation draws the same numbers, as of a mask on weights."""
    if device.type in ("cpu", "meta"):
        return torch.random.fork_rng([])
    return torch.random.fork_rng([device], device_type=device.type)
