"""Evaluations in which compiled functions run as they were written, so that a mode sees their operations.

Without that the compiler would try to trace the mode, fail, and leave the function uncompiled for good.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

import torch

_LOCK = threading.Lock()
_inside = 0
_outer = contextlib.ExitStack()


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """What ``torch.compile`` made of a function is not used; in other threads neither, meanwhile."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    entered = _enter()
    try:
        yield
    finally:
        if entered:
            _leave()


def _enter() -> bool:
    """Whether the compiler could be held off: not where it looks at each frame of this thread itself."""
    global _inside
    with _LOCK:
        if not _inside:
            try:
                stance = torch.compiler.set_stance("force_eager")
            except RuntimeError:
                return False
            _outer.enter_context(stance)
        _inside += 1
        return True


def _leave() -> None:
    global _inside
    with _LOCK:
        _inside -= 1
        if not _inside:
            _outer.close()
