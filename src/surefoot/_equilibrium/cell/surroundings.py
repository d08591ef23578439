"""What the value of a function depends on though no tensor shows it: autocast, and the generators of random numbers.

Both are kept as the forward found them, for every evaluation of it and of its derivatives. So dropout has one mask for a
forward and its backward, and a map with noise is one map.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

Value = TypeVar("Value")

_TRIES = 20  # of an evaluation, in case that another thread draws at the same time


class Surroundings:
    """Those of the present, for a function on a device.

    The first evaluation moves torch's generators on, as a call of the function would; later ones repeat its numbers and
    leave the generators where they are.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.autocast = autocast_dtype(device)
        self.before: list[Tensor] | None = None
        self.after: list[Tensor] = []
        self.random = True

    def evaluate(self, f: Callable[[], Value]) -> Value:
        """f().

        Raises:
            RuntimeError: it drew other random numbers than the first.
        """
        with self.autocast_dtype():
            if self.before is None:
                before = _states(self.device)
                value = f()
                self.before, self.after = before, _states(self.device)
                self.random = not _same(before, self.after)
                return value
            return self._replay(f, self.before) if self.random else f()

    def _replay(self, f: Callable[[], Value], before: list[Tensor]) -> Value:
        for _ in range(_TRIES):
            outside = _states(self.device)
            _restore(before, self.device)
            try:
                value = f()
                after = _states(self.device)
            finally:
                _restore(outside, self.device)
            if _same(after, before):
                self.random = False  # what was drawn during the first evaluation was so in another thread
                return value
            if _same(after, self.after):
                return value
        raise RuntimeError(
            "f draws more or fewer random numbers than at first: their count must not depend on z, and no other thread may "
            "draw from torch's generators meanwhile; draw them outside and pass them as x, or call eval()"
        )

    def autocast_dtype(self) -> contextlib.AbstractContextManager[object]:
        if self.autocast is None:
            return without_autocast(self.device)
        # a weight that no_grad has put into the cache would have no gradient
        return torch.autocast(self.device.type, dtype=self.autocast, cache_enabled=False)


def without_autocast(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """For derivatives, whose operations compute as those that they belong to, wherever ``backward`` is called."""
    on = autocast_dtype(device) is not None
    return torch.autocast(device.type, enabled=False) if on else contextlib.nullcontext()


def in_forward_mode() -> bool:
    """Whether tensors may carry tangents; ``no_grad`` does not end that."""
    return forward_ad._current_level >= 0 and torch._C._is_fwd_grad_enabled()


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """The dtype to which operations are cast; None without autocast."""
    known = device.type in ("cpu", "cuda") or torch.amp.is_autocast_available(device.type)
    return torch.get_autocast_dtype(device.type) if known and torch.is_autocast_enabled(device.type) else None


def _states(device: torch.device) -> list[Tensor]:
    """Those of the CPU's generator and of the device's."""
    states = [torch.get_rng_state()]
    if device.type not in ("cpu", "meta"):
        states.append(torch.get_device_module(device).get_rng_state(device))
    return states


def _restore(states: list[Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.get_device_module(device).set_rng_state(state, device)


def _same(some: list[Tensor], others: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(some, others, strict=True))
