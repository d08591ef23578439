"""Lists that the systems of the library fill as soon as they are read, so that an import need not load them all."""

from __future__ import annotations

from importlib import import_module
from typing import Any

LIBRARY = "surefoot.systems"
"""The module that registers them; by name, as it stands above this room."""


class FilledWhenRead:
    """The attribute ``data`` of a ``UserList`` or ``UserDict``, to which every access of such a container comes.

    Python imports a module once, and lets other threads wait until that is done. The thread that imports it reads, on the way,
    what is there already: ``register`` does.
    """

    def __get__(self, container: Any, owner: object = None) -> Any:
        import_module(LIBRARY)
        return container.__dict__["data"]

    def __set__(self, container: Any, content: Any) -> None:
        container.__dict__["data"] = content
