"""A state of several tensors as one: the solver's iterate, and the variable of every derivative."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..._core.validate import kind_of

_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class Packing:
    """States of the structure of z0: a tensor, or a pytree of tensors with the same batch dimensions.

    A single tensor is not packed and keeps its shape. Several become (*batch, D), so that a sample is one vector, with one
    Euclidean norm. Packed states of float16 and bfloat16 are float32.

    Args:
        z0: the structure; its numbers do not matter.
        batch_dims: how many leading dimensions of each tensor index samples.
        name: what errors call z0.

    Raises:
        TypeError: a leaf is no dense tensor of real numbers, or is in another dtype than the first.
        ValueError: no leaf; or a leaf has too few dimensions, another batch or another device than the first.
    """

    def __init__(self, z0: Any, batch_dims: int, name: str = "z0") -> None:
        paths, self.structure = pytree.tree_flatten_with_path(z0)
        self.single = self.structure.is_leaf()
        self.batch_dims = batch_dims
        self.names = [pytree.keystr(path) for path, _ in paths]
        """Of the leaves, as they are indexed: ``['fine'][0]``."""
        if not paths:
            raise ValueError(f"{name} is {z0!r}, without a tensor; pass at least one")
        for (_, leaf), place in zip(paths, self.names, strict=True):
            _check_leaf(f"{name}{place}", leaf, batch_dims, paths[0][1], f"{name}{self.names[0]}")
        leaves: list[Tensor] = [leaf for _, leaf in paths]
        self.shapes = [tuple(leaf.shape[batch_dims:]) for leaf in leaves]
        self.sizes = [math.prod(shape) for shape in self.shapes]
        self.dtype = leaves[0].dtype
        self.solved = torch.float64 if self.dtype == torch.float64 else torch.float32
        """The dtype of packed states."""

    def pack(self, state: Any) -> Tensor:
        """The tensor of a state of this structure (not checked)."""
        if self.single:
            return state.to(self.solved)
        b = self.batch_dims
        leaves = zip(pytree.tree_leaves(state), self.sizes, strict=True)
        return torch.cat([leaf.reshape(*leaf.shape[:b], size) for leaf, size in leaves], -1).to(self.solved)

    def unpack(self, z: Tensor) -> Any:
        """The state of a tensor, as f takes it: views, or casts, of it."""
        z = z.to(self.dtype)
        if self.single:
            return z
        leaves, end = [], 0
        for shape, size in zip(self.shapes, self.sizes, strict=True):
            leaves.append(z.narrow(-1, end, size).reshape(*z.shape[:-1], *shape))
            end += size
        return pytree.tree_unflatten(leaves, self.structure)

    def pack_value(self, value: Any, z: Tensor, autocast: torch.dtype | None) -> Tensor:
        """The tensor of what f returned for the packed z; under autocast its tensors may be coarser than the state.

        Raises:
            TypeError, ValueError: it is not a state like z.
        """
        dtypes = (self.dtype,) if autocast is None else (self.dtype, autocast, torch.float32)
        if self.single:
            self._check(value, "", z.shape, z.device, dtypes)
            return self.pack(value)
        try:
            leaves = self.structure.flatten_up_to(value)
        except ValueError:
            leaves = []
        if not leaves or not all(isinstance(leaf, Tensor) for leaf in leaves):
            raise TypeError(
                f"f(z, *x) returned {_outline(value)}; it must return a state like z: {_outline(self.unpack(z))}"
            )
        for leaf, name, shape in zip(leaves, self.names, self.shapes, strict=True):
            self._check(leaf, name, (*z.shape[:-1], *shape), z.device, dtypes)
        return self.pack(pytree.tree_unflatten(leaves, self.structure))

    def _check(
        self, value: Any, name: str, shape: tuple[int, ...], device: torch.device, dtypes: tuple[torch.dtype, ...]
    ) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"f(z, *x) returned {_outline(value)}; it must return one tensor like z")
        if value.shape != shape:
            raise ValueError(
                f"f(z, *x){name} has shape {tuple(value.shape)} but z{name} has {tuple(shape)}; they must agree: pass "
                "state_shape or z0 if z is not shaped like the first x"
            )
        if value.dtype not in dtypes:
            raise TypeError(
                f"f(z, *x){name} has dtype {_plain(value.dtype)} but z{name} has {_plain(self.dtype)}; cast x or f so that "
                "they agree, or put autocast around the layer and not into f"
            )
        if value.device != device:
            raise ValueError(
                f"f(z, *x){name} is on {value.device} but z{name} is on {device}; move f and x to one device"
            )


def tensors_in(values: Any) -> list[Tensor]:
    """The tensors of a pytree."""
    return [value for value in pytree.tree_leaves(values) if isinstance(value, Tensor)]


def _check_leaf(name: str, leaf: Any, batch_dims: int, first: Any, first_name: str) -> None:
    """Errors about one tensor of z0; what it must share with the others is held against the first."""
    if not isinstance(leaf, Tensor):
        raise TypeError(f"{name} is {kind_of(leaf)}; pass a tensor")
    if leaf.layout != torch.strided:
        raise TypeError(f"{name} is a sparse tensor; pass x.to_dense()")
    if leaf.ndim < batch_dims:
        raise ValueError(f"{name} has shape {tuple(leaf.shape)}; it needs {batch_dims} batch dimension(s)")
    if leaf.dtype not in _DTYPES:
        raise TypeError(
            f"{name} has dtype {_plain(leaf.dtype)}; a state holds real numbers, in float64, float32, bfloat16 or float16: pass "
            "x.float(), or z0"
        )
    if leaf.shape[:batch_dims] != first.shape[:batch_dims]:
        raise ValueError(
            f"{name} has shape {tuple(leaf.shape)} but {first_name} has {tuple(first.shape)}; the first {batch_dims} "
            "dimension(s), the batch, must agree"
        )
    if leaf.dtype != first.dtype:
        raise TypeError(
            f"{name} has dtype {_plain(leaf.dtype)} but {first_name} has {_plain(first.dtype)}; a state is solved in one "
            "precision, to one bound: cast one of them"
        )
    if leaf.device != first.device:
        raise ValueError(f"{name} is on {leaf.device} but {first_name} is on {first.device}; move them to one device")


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class _Word:
    """A word that ``repr`` shows without quotes."""

    def __init__(self, leaf: object) -> None:
        self.word = "tensor" if isinstance(leaf, Tensor) else kind_of(leaf)

    def __repr__(self) -> str:
        return self.word


def _outline(value: Any) -> str:
    """What a value is, and what it holds: "a tuple (tensor, None)"."""
    if pytree.tree_structure(value).is_leaf():
        return kind_of(value)
    return f"{kind_of(value)} {pytree.tree_map(_Word, value)!r}"
