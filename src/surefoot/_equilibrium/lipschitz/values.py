"""What is known of the tensors in an evaluation of a user's map: how far each moves with the state, or where it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..._core.refusals import NotCertifiable
from ..cell import captures

FIXED, GIVEN = 0, 1
"""Origins of a tensor that does not depend on the state: parameters and buffers alone, or arguments as well."""


class Values:
    """The tensors seen so far; they are held, so that no id is used again.

    Attributes:
        batch: the leading dimensions of the state, which index samples.
        zero: the constants (tensors of the state,), float64, of a tensor that does not move.
    """

    def __init__(self, state: Sequence[Tensor], batch_dims: int) -> None:
        self.batch = state[0].shape[:batch_dims]
        self.zero = torch.zeros(len(state), dtype=torch.float64, device=state[0].device)
        self._moving = {id(t): (t, one) for t, one in zip(state, self.zero.new_ones(len(state)).diag(), strict=True)}
        self._still: dict[int, tuple[Tensor, int]] = {}
        self._around: dict[int, tuple[Tensor, Tensor, tuple[int, ...]]] = {}
        self._counted: set[int] = set()
        self._versions = {id(t): version(t) for t in state}

    def moves(self, value: Any) -> bool:
        """Whether it is a tensor that depends on the state."""
        return id(value) in self._moving

    def constants(self, value: Any) -> Tensor:
        """How far it moves at most, for each tensor of the state that moves by 1; zeros for numbers."""
        if self.moves(value):
            self._counted.add(id(value))
            self._unchanged(value)
            return self._moving[id(value)][1]
        if isinstance(value, Tensor):
            self.origin(value)
        return self.zero

    def known(self, tensor: Tensor) -> int | None:
        """The origin of a tensor that does not move; None where it is not known."""
        origin = self._still.get(id(tensor), (tensor, None))[1]
        if origin is not None:
            self._unchanged(tensor)
        return origin

    def _unchanged(self, tensor: Tensor) -> None:
        if version(tensor) != self._versions[id(tensor)]:
            raise NotCertifiable(
                f"a tensor of shape {tuple(tensor.shape)} was changed in place by what is no operation of torch that can be "
                "seen, such as compiled code; use operations without underscore"
            )

    def changed(self, tensor: Tensor) -> None:
        """An operation that was seen changed it in place, and its views with it."""
        with torch._C.DisableTorchFunction():
            place = tensor.untyped_storage()._cdata
            for other, _ in (*self._moving.values(), *self._still.values()):
                if other.untyped_storage()._cdata == place:
                    self._versions[id(other)] = version(other)

    def origin(self, tensor: Tensor) -> int:
        """The same, or an error."""
        found = self.known(tensor)
        if found is None:
            raise NotCertifiable(
                f"f uses a tensor of shape {tuple(tensor.shape)} that is no parameter or buffer of it, no argument, and not made "
                "of these by operations of torch that can be seen, so that it may depend on z; register it as a buffer, or pass "
                "it as x"
            )
        return found

    def weight(self, value: Any, name: str) -> Tensor:
        """A weight by which the state is multiplied, as float64; an error where it depends on the state or on x."""
        if self.moves(value):
            raise NotCertifiable(
                f"{name} multiplies two tensors that depend on z, which has no Lipschitz constant; keep z in one factor"
            )
        if isinstance(value, Tensor) and self.origin(value) == GIVEN and value.dtype != torch.bool:
            raise NotCertifiable(
                f"{name} multiplies by a tensor that depends on x, so that the constant of a sample would depend on the others; "
                "use parameters or buffers, a boolean mask, or add what depends on x"
            )
        found = torch.as_tensor(value, device=self.zero.device)
        return torch.ones_like(found, dtype=torch.float64) if found.dtype == torch.bool else found.double()

    def move(self, tensor: Tensor, constants: Tensor) -> None:
        """It depends on the state."""
        self._moving[id(tensor)] = (tensor, constants)
        self._versions[id(tensor)] = version(tensor)
        self._still.pop(id(tensor), None)

    def wrap(self, tensor: Tensor, constants: Tensor, sizes: tuple[int, ...]) -> None:
        """It continues maps of these sizes and constants around a torus."""
        self._around[id(tensor)] = (tensor, constants, sizes)

    def around(self, tensor: Tensor) -> tuple[Tensor, tuple[int, ...]] | None:
        """Constants and sizes of the maps that it continues around a torus; None where it does not."""
        found = self._around.get(id(tensor))
        if found is not None:
            self._counted.add(id(tensor))
        return None if found is None else found[1:]

    def counting(self) -> set[int]:
        """The ids of the tensors whose constants are asked for from now on."""
        self._counted = set()
        return self._counted

    def stand(self, tensor: Tensor, origin: int | None) -> None:
        """It does not; None where that is not known."""
        if origin is None:
            self._still.pop(id(tensor), None)
        else:
            self._versions.setdefault(id(tensor), version(tensor))
            self._still[id(tensor)] = (tensor, max(origin, self.known(tensor) or FIXED))


def version(tensor: Tensor) -> int | None:
    """How often it was changed in place; a trace around this one does not see the question."""
    with torch._C.DisableTorchFunction():
        return captures.version(tensor)


def mixed(name: str) -> NotCertifiable:
    """Samples meet."""
    return NotCertifiable(
        f"{name} mixes the leading dimensions of z, which index samples; use it on the others, or pass batch_dims=0 where z is "
        "one sample"
    )
