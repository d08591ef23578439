"""Ctrl-C, SIGTERM and SIGHUP end a run between two iterations, so that its checkpoint is consistent."""

from __future__ import annotations

import signal
import threading
from types import FrameType

STOPPING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""Signals that end a run; Windows has no SIGHUP."""


class StopRequest:
    """Within the context, the first SIGINT, SIGTERM or SIGHUP only sets ``signal_number``; a second SIGINT interrupts at once.
    A SIGHUP that is ignored, as ``nohup`` does, stays ignored.

    Outside the main thread, where Python takes no signal handlers, it does nothing.
    """

    signal_number: int | None = None

    def __enter__(self) -> StopRequest:
        self._before = {}
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in STOPPING if not _ignored(number)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.signal_number is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal_number = number


def _ignored(number: int) -> bool:
    """Not so SIGINT, which shells ignore for what they start in the background."""
    return number not in (signal.SIGINT, signal.SIGTERM) and signal.getsignal(number) is signal.SIG_IGN
