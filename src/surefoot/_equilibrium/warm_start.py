"""Starts of a layer's solves from what they found for the same samples before.

A start changes how many evaluations a solve takes, and neither its bound nor, beyond that bound, its result. The solve of a
backward u = v + Jᵀu begins at v + ‖v‖ d, where d = Jᵀu/‖v‖ is what the last one of the sample added to its v: along a training
gradients shrink faster than they turn.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .._core.validate import positive_integer
from .derivatives.implicit_function import Kind


class _Rows:
    """Rows of a data set (samples, *state), with memory from the first that is kept."""

    def __init__(self, samples: int, dtype: torch.dtype | None, device: torch.device | None) -> None:
        self.dtype, self.device = dtype, device
        with torch.inference_mode(False):  # kept beyond it
            self.known = torch.zeros(samples, dtype=torch.bool)
        self.values: Tensor | None = None

    def at(self, index: Tensor, otherwise: Tensor) -> Tensor:
        """The rows as a tensor like ``otherwise`` (*batch, *state), which has those that are not known."""
        if self.values is None:
            return otherwise
        self._check(otherwise.shape[index.ndim :], self.values)
        rows = self.values[index.to(self.values.device)].to(otherwise)
        known = self.known[index].to(rows.device)
        return torch.where(known.view(*index.shape, *(1,) * (rows.ndim - index.ndim)), rows, otherwise)

    def keep(self, index: Tensor, rows: Tensor) -> None:
        """Take over rows (count, *state) where they are finite in the dtype of the memory."""
        if self.values is None:
            shape = (len(self.known), *rows.shape[1:])
            with torch.inference_mode(False):
                self.values = torch.zeros(shape, dtype=self.dtype or rows.dtype, device=self.device or rows.device)
        self._check(rows.shape[1:], self.values)
        rows = rows.to(self.values)
        finite = rows.reshape(len(rows), math.prod(rows.shape[1:])).isfinite().all(1)
        index = index[finite.cpu()]
        self.values[index.to(self.values.device)] = rows[finite]
        self.known[index] = True

    @staticmethod
    def _check(state: torch.Size, values: Tensor) -> None:
        if state != values.shape[1:]:
            raise ValueError(
                f"the memory holds states of shape {tuple(values.shape[1:])}, but here they have {tuple(state)}; use one "
                "WarmStart for each layer and call its clear() if the state changes its shape"
            )


class WarmStart:
    """The latest equilibria of a layer for the samples of a data set, from which its next solves start.

    ``layer(x, memory=warm[index])`` starts from, and then keeps, the equilibria of the samples with these numbers; its first
    ``backward`` does so with the adjoint where told. Failed samples keep what they had. It is no part of the layer, whose
    ``state_dict`` does not hold it.

    Args:
        samples: size of the data set. Memory: samples × state.
        dtype: of what is kept; default that of the state. A coarser one costs an evaluation or two, and no accuracy.
        device: of what is kept; default that of the state.
        backward: whether backward solves start warm, too, at as much memory again. It pays where both weights and loss change
            little from epoch to epoch, as in the end of a training; with large steps v itself is the better start.

    Example:
        >>> data = torch.randn(100, 3)
        >>> layer = sf.nn.EquilibriumLayer(lambda z, x: torch.tanh(0.5 * z + x), contraction=0.5)
        >>> warm, index = sf.nn.WarmStart(samples=100), torch.tensor([7, 3, 41])
        >>> _ = layer(data[index], memory=warm[index])
        >>> cold = layer.info.iterations
        >>> _ = layer(data[index], memory=warm[index])  # the same rows in the next epoch
        >>> layer.info.iterations < cold
        True
    """

    def __init__(
        self,
        samples: int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        backward: bool = False,
    ) -> None:
        self.samples = positive_integer("samples", samples)
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(f"dtype is {dtype}; pass a real floating-point dtype, such as torch.float32")
        self.dtype, self.device = dtype, None if device is None else torch.device(device)
        self.backward = backward
        self.clear()

    def __repr__(self) -> str:
        known = ", ".join(f"{int(rows.known.sum())} {name}" for name, rows in self._parts())
        return f"WarmStart({self.samples} samples, known: {known}, {self.bytes:,} bytes)"

    def clear(self) -> None:
        """Forget everything: the next solves start from zero."""
        self.z, self.d = (_Rows(self.samples, self.dtype, self.device) for _ in range(2))

    def __getitem__(self, index: Any) -> BatchStart:
        """The memory of a batch, for one call of the layer.

        Args:
            index: numbers of the samples, as in ``torch.arange(samples)[index]``: a tensor of integers shaped like the batch
                dimensions, a list, a slice, or a mask.

        Raises:
            IndexError: a number is out of range.
        """
        where = index.cpu() if isinstance(index, Tensor) else index
        return BatchStart(self, torch.arange(self.samples)[where])

    @property
    def bytes(self) -> int:
        """What is held at present."""
        return sum(rows.values.nbytes for _, rows in self._parts() if rows.values is not None)

    def state_dict(self) -> dict[str, Tensor]:
        """What is held, to go on after a restart."""
        state: dict[str, Tensor] = {}
        for name, rows in self._parts():
            if rows.values is not None:
                state |= {name: rows.values, f"{name}_known": rows.known}
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over what another one's ``state_dict`` gave, in the dtype and on the device of this one.

        Raises:
            ValueError: it is of another number of samples.
        """
        self.clear()
        for name, rows in self._parts():
            if name in state:
                values, known = state[name], state[f"{name}_known"].cpu()
                if len(values) != self.samples:
                    raise ValueError(f"the state is of {len(values)} samples, this memory of {self.samples}")
                rows.keep(known.nonzero()[:, 0], values[known.to(values.device)])

    def _parts(self) -> tuple[tuple[str, _Rows], ...]:
        return ("z", self.z), ("d", self.d)


class BatchStart:
    """The memory of the samples of one batch, for one call of a layer and its first backward."""

    def __init__(self, whole: WarmStart, index: Tensor) -> None:
        self.whole, self.index = whole, index
        self.backward = whole.backward

    def first(self, start: Tensor, batch_dims: int, kind: Kind) -> Tensor | None:
        """Where to start the solve for z, or for u with v = ``start`` (*batch, *state); None: as without a memory.

        Raises:
            ValueError: the batch is of another shape than the index.
        """
        if self.index.shape != start.shape[:batch_dims]:
            raise ValueError(
                f"memory is of samples of shape {tuple(self.index.shape)} but the batch has {tuple(start.shape[:batch_dims])}; "
                "index it with one number for each sample (under vmap a layer takes no memory)"
            )
        if kind == "forward":
            return self.whole.z.at(self.index, start)
        if kind == "backward" and self.backward:
            return start + self._norm(start) * self.whole.d.at(self.index, torch.zeros_like(start))
        return None

    def keep(self, found: Tensor, start: Tensor, failed: Tensor, kind: Kind) -> None:
        """Keep what was found from such a start, where it did not fail."""
        good = ~failed.to(found.device)
        if kind == "forward":
            self.whole.z.keep(self.index[good.cpu()], found[good])
        elif kind == "backward" and self.backward:
            self.whole.d.keep(self.index[good.cpu()], ((found - start) / self._norm(start))[good])
            self.backward = False  # a later one may be that of a derivative

    def _norm(self, rows: Tensor) -> Tensor:
        """Euclidean norms of the samples (*batch, 1, ...)."""
        b = self.index.ndim
        norms = torch.linalg.vector_norm(rows.reshape(*rows.shape[:b], math.prod(rows.shape[b:])), dim=-1)
        return norms.view(*norms.shape, *(1,) * (rows.ndim - b))
