"""The first iterate of a solve: given, or zeros that are shaped like x or as told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..._core.validate import kind_of, positive_integer
from .packing import Packing, tensors_in

Shape = tuple[int, ...]


def shapes(state_shape: Any) -> Any:
    """``state_shape`` with a tuple for each shape: an integer or a sequence of integers is one, all else holds several.

    Raises:
        TypeError, ValueError: a leaf is no shape; there is none; a size is below 1.
    """
    leaves, structure = pytree.tree_flatten_with_path(state_shape, is_leaf=_is_shape)
    found: list[Shape] = []
    for path, leaf in leaves:
        name = f"state_shape{pytree.keystr(path)}"
        if not _is_shape(leaf):
            raise TypeError(f"{name} is {leaf!r}; pass an integer or a sequence of integers")
        found.append(tuple(positive_integer(name, size) for size in ((leaf,) if isinstance(leaf, Integral) else leaf)))
    if not found:
        raise ValueError(f"state_shape is {state_shape!r}, without a shape; pass at least one")
    return pytree.tree_unflatten(found, structure)


def given(z0: Any, state_shape: Any, batch_dims: int) -> tuple[Packing, Tensor]:
    """z0 packed, without its graph.

    Raises:
        TypeError, ValueError: z0 is no state, or not one of this ``state_shape``.
    """
    packing = Packing(z0, batch_dims)
    if state_shape is not None:
        wanted, structure = pytree.tree_flatten(state_shape, is_leaf=_is_shape)
        if structure != packing.structure:
            raise TypeError(f"z0 is {kind_of(z0)} with the leaves {packing.names}; state_shape is {state_shape}")
        for leaf, name, inside, shape in zip(
            pytree.tree_leaves(z0), packing.names, packing.shapes, wanted, strict=True
        ):
            if inside != shape:
                raise ValueError(
                    f"z0{name} has shape {tuple(leaf.shape)}; after the batch it must be state_shape {shape}"
                )
    return packing, packing.pack(z0).detach()


def zeros(
    x: tuple[Any, ...], kwargs: Mapping[str, Any], parameters: Iterable[Tensor], state_shape: Any, batch_dims: int
) -> tuple[Packing, Tensor]:
    """Zeros with the batch of the first tensor in x; without ``state_shape`` like the first of x that holds a tensor.

    Their dtype is that of the first floating-point tensor in x, then of ``parameters``.

    Raises:
        TypeError, ValueError: there is no tensor, it lacks batch dimensions, or what z0 should be like is no state.
    """
    named = {**{f"x[{i}]": value for i, value in enumerate(x)}, **kwargs}
    like, model = next(((name, value) for name, value in named.items() if tensors_in(value)), ("", None))
    if not like:
        raise ValueError("x has no tensor to take the batch from; pass z0")
    first = tensors_in(model)[0]
    if first.ndim < batch_dims:
        raise ValueError(
            f"the first x has shape {tuple(first.shape)}; it needs {batch_dims} batch dimension(s), or pass z0"
        )
    dtype = next((t.dtype for t in (*tensors_in((x, kwargs)), *parameters) if t.is_floating_point()), first.dtype)

    def of_shape(shape: Shape) -> Tensor:
        return torch.zeros_like(first, dtype=dtype).new_zeros((*first.shape[:batch_dims], *shape))

    def of_leaf(leaf: Tensor) -> Tensor:
        return torch.zeros_like(leaf, dtype=dtype)

    if state_shape is None:
        for path, leaf in pytree.tree_leaves_with_path(model):
            if not isinstance(leaf, Tensor):
                what = f"{like}{pytree.keystr(path)} is {kind_of(leaf)}"
                raise TypeError(f"{what}, and z is to be shaped like {like}; pass state_shape or z0")
        packing = Packing(z0 := pytree.tree_map(of_leaf, model), batch_dims, like)
    else:
        packing = Packing(z0 := pytree.tree_map(of_shape, state_shape, is_leaf=_is_shape), batch_dims)
    return packing, packing.pack(z0).detach()


def _is_shape(value: Any) -> bool:
    if isinstance(value, Integral):
        return True
    plain = isinstance(value, Sequence) and not isinstance(value, str) and not pytree.is_namedtuple_instance(value)
    return plain and all(isinstance(size, Integral) for size in value)
