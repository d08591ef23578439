"""Which signal asked a run to stop."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def received_signals() -> Iterator[list[int]]:
    """A list that holds, after the context, the numbers of the signals that Python handled within it.

    It works beside whatever handlers are installed: the interpreter itself writes the numbers to a pipe. Outside the
    main thread, where no signal arrives, the list stays empty.
    """
    numbers: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield numbers
        return
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield numbers
    finally:
        signal.set_wakeup_fd(before)
        with contextlib.suppress(BlockingIOError):
            numbers.extend(os.read(reader, 4096))
        os.close(reader)
        os.close(writer)
