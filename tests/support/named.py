"""Many small cases in one test, of which a failure names the one that failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def named(case: object) -> Iterator[None]:
    """The name of a case beside the traceback of what fails in it."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in the case: {case}")
        raise
