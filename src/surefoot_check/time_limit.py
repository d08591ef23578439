"""A limit on the time of a check: work on hostile or very large input ends, and the answer is that it is undecided."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real

LONGEST = 1e9
"""Seconds; more of them timers cannot count everywhere."""
AGAIN = 1.0
"""Seconds after which `TimeUp` is raised again, if Python ignored it: it ignores what is raised in a finaliser."""


class TimeUp(BaseException):
    """The time is up. No ``Exception``, so that nothing on the way takes it for its own."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise `TimeUp` in the body after so many seconds of wall time, or as soon as the one operation of a library that is at work
    then has ended; without ``seconds`` there is no limit.

    Raises:
        ValueError: not a positive number up to `LONGEST`, or this is not the main thread, or there are no timers here.
    """
    if seconds is None:
        yield
        return
    if not isinstance(seconds, Real) or not 0.0 < seconds <= LONGEST:
        raise ValueError(f"the time limit is {seconds!r}; it must be a positive number of seconds, at most {LONGEST:g}")
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        raise ValueError("a time limit needs the main thread of a process on a system with timers (not Windows)")

    def up(number: int, frame: object) -> None:
        raise TimeUp

    before = signal.signal(signal.SIGALRM, up)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
