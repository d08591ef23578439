"""What is imported when it is called: what a command does, and what stands above the core."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def late(module: str, name: str) -> Callable[..., Any]:
    """A function of a module that is imported now. Such modules import the one that names them, so that none is imported as
    usual."""
    return getattr(import_module(module), name)
