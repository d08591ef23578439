"""Checks of tensor arguments; every error names the argument, what was wrong with it, and what to do."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .suggesting import did_you_mean


def kind_of(value: object) -> str:
    """What a value is, as errors say it: "an int", "a Tensor", "an MSELoss", "None", "the class MSELoss".

    Initials are said by the names of their letters: an MSELoss, a BCELoss.
    """
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    initials = name[0].isupper() and name[1:2].isalnum() and not name[1:2].islower()
    return f"{'an' if name[0].upper() in ('AEFHILMNORSX' if initials else 'AEIO') else 'a'} {name}"


def as_tensor(name: str, value: Any) -> Tensor:
    """``value`` as a tensor without a copy where possible: a tensor, an array, or nested lists of floats.

    Raises:
        TypeError: not convertible, sparse, masked, or an integer, half-precision, extended-precision or complex dtype.
    """
    if isinstance(value, Tensor):
        if value.layout != torch.strided:
            raise TypeError(f"{name} is a sparse tensor; pass {name}.to_dense()")
        tensor = value.detach()
    elif isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array; pass {name}.filled(value), or only the rows without masked entries")
    elif isinstance(value, np.ndarray):
        if value.dtype.kind not in "fiucb" or value.dtype.char in "gG":  # the latter are extended precision
            raise TypeError(f"{name} has dtype {value.dtype}; pass real numbers in float64 or float32")
        # torch takes native byte order and no negative strides; read-only memory must not become a writable tensor
        native = value.astype(value.dtype.newbyteorder("="), copy=False)
        copy = not native.flags.writeable or any(stride < 0 for stride in native.strides)
        tensor = torch.from_numpy(native.copy() if copy else native)
    else:
        try:
            array = np.asarray(value)
            if array.dtype.kind not in "fiu":
                raise TypeError(f"its entries have dtype {array.dtype}")
            tensor = torch.from_numpy(array.astype(np.float64))
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(f"{name} is {kind_of(value)}; pass a tensor or an array of floats") from error
    if tensor.dtype not in (torch.float64, torch.float32):
        cast = f"{name}.double()" if isinstance(value, Tensor) else f"{name}.astype('float64')"
        raise TypeError(
            f"{name} has dtype {str(tensor.dtype).removeprefix('torch.')}; pass float64, for example {cast}"
        )
    return tensor


def class_numbers(name: str, value: Any, X: Tensor, what: str = "class indices", each: str = "row of X") -> Tensor:
    """``value`` as int64 (N,) on the device of X (N, ...); that they are not negative is left to be seen. Errors call the
    integers ``what``, and say that there must be one for ``each``.

    Raises:
        TypeError: other than integers.
        ValueError: not one for each row of X.
    """
    if not isinstance(value, Tensor):
        array = np.asarray(value)
        if array.dtype.kind not in "iufcb":
            raise TypeError(f"{name} are of type {array.dtype}; pass {what} 0, 1, ... as int64")
        value = torch.as_tensor(array.astype(np.int64) if array.dtype.kind in "iu" else array)
    holds_numbers(name, value)
    if value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
        raise TypeError(f"{name} have dtype {str(value.dtype).removeprefix('torch.')}; pass {what} as int64")
    if value.ndim != 1 or len(value) != len(X):
        raise ValueError(f"{name} have shape {tuple(value.shape)}; they must be ({len(X)},), one for each {each}")
    return value.long().to(X.device)


def real(name: str, value: Any, dimensions: int) -> Tensor:
    """``value`` as a finite, non-empty float64 tensor with that many dimensions (float32 is converted, exactly).

    Args:
        name: what errors call it.
        value: a tensor, an array, or nested lists of numbers.
        dimensions: how many it must have.

    Raises:
        TypeError: wrong kind or dtype.
        ValueError: wrong number of dimensions, empty, NaN or infinite (the first such position is named).

    Example:
        >>> sf.extending.real("W", np.ones((1, 2), dtype=np.float32), 2)
        tensor([[1., 1.]], dtype=torch.float64)
        >>> sf.extending.real("W", [[1.0, np.nan]], 2)
        Traceback (most recent call last):
        ValueError: W has nan at index (0, 1) (1 such entries); remove or impute these rows
    """
    tensor = as_tensor(name, value)
    if tensor.ndim != dimensions:
        rows = f": pass {name}.flatten(1)" if tensor.ndim > dimensions == 2 else ""
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; it must have {dimensions} dimension(s){rows}")
    if tensor.numel() == 0:
        raise ValueError(f"{name} is empty (shape {tuple(tensor.shape)}); pass at least one row and one column")
    finite(name, tensor)
    return tensor.double()


def finite(name: str, tensor: Tensor, first_row: int = 0) -> None:
    """Raise ``ValueError`` naming the first entry that is NaN or infinite."""
    holds_numbers(name, tensor)
    # one entry makes the sum so; the entries are looked at where the sum is not finite, which takes many times as long
    if bool(tensor.sum().isfinite()):
        return
    bad = ~torch.isfinite(tensor)
    if bad.any():
        position = [int(i) for i in bad.nonzero()[0]]
        value = tensor[tuple(position)].item()
        if position:
            position[0] += first_row
        raise ValueError(
            f"{name} has {value} at index {tuple(position)} ({int(bad.sum())} such entries); remove or impute these rows"
        )


def holds_numbers(name: str, tensor: Tensor) -> None:
    """Raise ``ValueError`` for a tensor on PyTorch's device "meta"."""
    if tensor.is_meta:
        raise ValueError(f"{name} is on the device meta, and has no entries; make it on the cpu or a gpu")


def network_weight(name: str, W: Tensor) -> None:
    """Refuse a weight, which errors call ``name``, that is not of float64 or not finite.

    Args:
        name: such as "net.W1".
        W: of any shape.

    Raises:
        TypeError: another dtype.
        ValueError: a NaN or infinite entry, or the device meta.

    Example:
        >>> sf.extending.network_weight("net.W1", torch.ones(2, 2))
        Traceback (most recent call last):
        TypeError: net.W1 has dtype float32; use float64: net.double()
    """
    if W.dtype != torch.float64:
        raise TypeError(f"{name} has dtype {str(W.dtype).removeprefix('torch.')}; use float64: net.double()")
    holds_numbers(name, W)
    if not bool(W.isfinite().all()):
        raise ValueError(f"{name} has non-finite entries; use finite weights")


def fits_map(offset: Tensor, shape: tuple[int, int], device: torch.device) -> None:
    """Raise ``ValueError`` for a fixed map W0 that does not fit a loss of this shape on this device."""
    if tuple(offset.shape) != shape:
        raise ValueError(
            f"offset has shape {tuple(offset.shape)}; W0 of X (W0 + W) must have {shape} (inputs, outputs): of a torch.nn.Linear "
            "pass layer.weight.T"
        )
    if offset.device != device:
        raise ValueError(f"offset is on {offset.device} and X on {device}; move one of them")


def require_trained(net: nn.Module) -> None:
    """Raise ``ValueError`` for a frozen weight of a network that is trained as a whole."""
    for name, parameter in net.named_parameters():
        if not parameter.requires_grad:
            raise ValueError(
                f"net.{name} is frozen (requires_grad=False), and what is known of {type(net).__name__} is about descent on all "
                "weights; call net.requires_grad_()"
            )


def positive_integer(name: str, value: Any) -> int:
    """``value``, of any integral type but bool, as an int ≥ 1."""
    return integer(name, value, 1)


def integer(name: str, value: Any, least: int) -> int:
    """``value``, of any integral type but bool, as an int ≥ ``least``."""
    try:
        result = operator.index(value)
    except TypeError:
        result = None
    if result is None or isinstance(value, bool | np.bool_) or result < least:
        raise ValueError(f"{name} is {value!r}; it must be an integer of at least {least}")
    return result


def folder(name: str, value: Any) -> Path:
    """``value``, a string or a path, as a ``Path``; ``TypeError`` for anything else."""
    if not isinstance(value, str | Path):
        raise TypeError(f"{name} is {value!r} ({type(value).__name__}); pass the path of a directory")
    return Path(value)


def number(name: str, value: Any, wanted: str) -> float:
    """``value`` as a float; ``TypeError`` where it is no real number, alone or in a tensor or array without dimensions."""
    scalar = value.item() if isinstance(value, Tensor | np.ndarray) and value.ndim == 0 else value
    if isinstance(scalar, bool) or not isinstance(scalar, Real):
        raise TypeError(f"{name} is {value!r} ({type(value).__name__}); pass {wanted}")
    return float(scalar)


def nonnegative(name: str, value: Any) -> float:
    """``value`` as a finite float ≥ 0; ``TypeError`` where it is no real number, ``ValueError`` where it is out of range."""
    wanted = "a finite number of at least 0"
    result = number(name, value, wanted)
    if not 0.0 <= result < math.inf:
        raise ValueError(f"{name} is {value!r}; it must be {wanted}")
    return result


def positive(name: str, value: Any, wanted: str = "a positive number") -> float:
    """``value`` as a finite float > 0; ``TypeError`` where it is no real number, ``ValueError`` where it is out of range."""
    result = number(name, value, wanted)
    if not 0.0 < result < math.inf:
        raise ValueError(f"{name} is {value!r}; it must be {wanted}")
    return result


def unknown(what: str, name: object, known: Iterable[str]) -> ValueError:
    """The error for a name that is not among ``known``, with the nearest one suggested.

    Args:
        what: what has the name, such as "theorem".
        name: the one that was given.
        known: all that there are.

    Example:
        >>> raise sf.extending.unknown("engine", "wieghts", ["weights", "layers"])
        Traceback (most recent call last):
        ValueError: unknown engine 'wieghts'; did you mean 'weights'? known: layers, weights
    """
    names = sorted(known)
    return ValueError(f"unknown {what} {name!r}; {did_you_mean(name, names)}known: {', '.join(names)}")
