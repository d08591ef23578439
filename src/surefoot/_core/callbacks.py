"""What a training tells others as it goes: one protocol for descent and for the training of learned solvers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from .brief import brief
from .certificate import Certificate
from .validate import kind_of

Record = Mapping[str, float]
"""Measurements of one iterate by name, among them ``iteration``, and the step or rate that is taken from it."""


@dataclass(frozen=True)
class Start:
    """What a callback is told first.

    Attributes:
        iteration: the first that is reported: 0, or where a resumed run goes on, which is 0 too if it was killed early.
        total: the limit on the iterations.
        directory: of the run, if it has one.
        certificate: of a descent: its ``bound(t)`` is guaranteed where it holds.
        resumed: whether this call goes on with a run that an earlier one began.

    Example:
        >>> class Announce(sf.callbacks.Callback):
        ...     def on_start(self, start):
        ...         print(f"at most {start.total} steps, certified: {start.certificate.holds}")
        >>> loss = sf.SquaredLoss(torch.eye(3).double(), torch.ones(3, 1).double())
        >>> net = sf.nn.TwoLayerLinear.certifiable(loss)
        >>> run = sf.descend(net, loss, callbacks=[Announce()])
        at most 1000 steps, certified: True
    """

    iteration: int
    total: int
    directory: Path | None = None
    certificate: Certificate | None = None
    resumed: bool = False

    __repr__ = brief


@runtime_checkable
class Callback(Protocol):
    """What ``callbacks=[...]`` takes: an object with these three methods. A class that inherits this one has them, doing nothing,
    and needs to write those alone that it uses.

    They are called between two iterations, in the order of the list. On several ranks every one calls its own, and they must
    stop alike.

    Example:
        >>> class StopEarly(sf.callbacks.Callback):
        ...     def on_iteration(self, record):
        ...         return record["gap"] < 1e-3  # True stops the run
        >>> loss = sf.SquaredLoss(torch.eye(3).double(), torch.ones(3, 1).double())
        >>> net = sf.nn.TwoLayerLinear.gaussian(*loss.shape, width=8, std=0.5, seed=0)
        >>> sf.descend(net, loss, callbacks=[StopEarly()]).status.value
        'interrupted'
    """

    def on_start(self, start: Start) -> object:
        """Called once before the first step. An exception ends the call of the training; its directory can be resumed."""

    def on_iteration(self, record: Record) -> object:
        """Called once for every iterate that a step is taken from: with its row of the trace in ``sf.descend``, whose names the
        system gives (``gap``, ``step``, …), and with ``loss``, ``rate`` and, where it is measured, ``validation`` in the training
        of a learned solver. ``record`` is read-only.

        ``True``, that of NumPy or torch too, stops the training after this step: its status is ``interrupted``, and it can be
        resumed. An exception does the
        same: all files are written first, ``on_end`` is called, and then it goes on to the caller.

        A resumed training reports the iterations from ``start.iteration`` on, and no earlier one.
        """

    def on_end(self, run: Any, last: Record) -> object:
        """Called once when all files are written, with the run that the training returns and the measurements of its last
        iterate, from which no step was taken: a resumed run reports that one once it takes a step from it."""


class Listeners:
    """The callbacks of one training.

    Attributes:
        stopped: whether one of them asked for the end, or failed.

    Args:
        callbacks: as a user gave them.

    Raises:
        TypeError: no list, or something without the three methods.
    """

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        if not isinstance(callbacks, Iterable):
            raise TypeError(f"callbacks is {kind_of(callbacks)}; pass a list: callbacks=[...]")
        self._all = tuple(callbacks)
        self.stopped = False
        self._error: Exception | None = None
        for index, callback in enumerate(self._all):
            if isinstance(callback, type) or not isinstance(callback, Callback):
                raise TypeError(
                    f"callbacks[{index}] is {kind_of(callback)}; pass an object with on_start, on_iteration and on_end, such as "
                    "one of a class that inherits sf.callbacks.Callback"
                )

    def __bool__(self) -> bool:
        return bool(self._all)

    def start(self, start: Start) -> None:
        """Before the first step."""
        for callback in self._all:
            callback.on_start(start)

    def iteration(self, record: Record) -> None:
        """Of every iterate that a step is taken from. An exception of a callback is kept until the end."""
        if not self._all:
            return
        shown = MappingProxyType(dict(record))
        for callback in self._all:
            try:
                self.stopped |= _is_true(callback.on_iteration(shown))
            except Exception as error:
                self.stopped, self._error = True, error
                return

    def end(self, run: object, last: Record, directory: Path | None) -> None:
        """After all files, with the last row; raises what a callback raised first, when all have been told."""
        shown = MappingProxyType({} if "step" in last else dict(last))
        if self._error is not None and directory is not None:
            self._error.add_note(f"the training was stopped and kept in {directory}; go on with resume=True")
        for callback in self._all:
            try:
                callback.on_end(run, shown)
            except Exception as error:
                if self._error is None:
                    self._error = error
                elif self._error is not error:
                    self._error.add_note(f"on_end of {type(callback).__name__} failed too: {error!r}")
        if self._error is not None:
            raise self._error


def _is_true(answer: object) -> bool:
    """Whether it is True, also as NumPy and torch have it; nothing else that counts as true is."""
    if isinstance(answer, np.generic | np.ndarray | Tensor):
        return answer.dtype in (np.bool_, torch.bool) and bool(answer.all())
    return answer is True
