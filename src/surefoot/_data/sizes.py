"""Limits on what a file may ask for, so that a small one cannot take all memory."""

from __future__ import annotations

from pathlib import Path

from .errors import DataError

ALWAYS = 1 << 30
"""Bytes that any file may expand to."""
EXPANSION = 100
"""Beyond them: as many times its own size. Deflate reaches a thousand on constant data."""


def require_proportion(what: str, expanded: int, stored: int) -> None:
    """Refuse content that expands to more than ``ALWAYS`` bytes and to more than ``EXPANSION`` times what is stored.

    Raises:
        DataError: naming the content by ``what``, with both sizes.
    """
    if expanded > max(ALWAYS, EXPANSION * stored):
        raise DataError(
            f"{what} would take {expanded} bytes in memory, more than {EXPANSION} times the {stored} that are stored; "
            "if this is meant, save it uncompressed and dense, for example as X.npy with numpy.save"
        )


def require_at_most(path: Path, limit: int, what: str) -> None:
    """Refuse a file that is larger than any of its kind.

    Raises:
        DataError: it has more than ``limit`` bytes.
    """
    size = path.stat().st_size
    if size > limit:
        raise DataError(f"{path}: has {size} bytes, and {what} has at most {limit}; check that this is the right file")
