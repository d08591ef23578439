"""Finished parts of experiments, kept in files and read again where all that decides them is the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .._core.io import RunDirectoryError, read_json, write_json

FORMAT = 1
"""Of the files of finished parts; raised whenever the same settings would give other numbers."""


def hashed(key: Mapping[str, Any]) -> str:
    """A name for plain values, in any order: 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]


def kept(
    cache: Path | None, name: str, key: Mapping[str, Any], compute: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """What ``compute`` returns, or what it returned before for the same key: from a file in ``cache`` that is written by rename.

    Args:
        cache: directory; ``None`` keeps nothing.
        name: first part of the file's name.
        key: all that decides the result, in plain values.
        compute: its result in plain values.
    """
    if cache is None:
        return compute()
    whole = {"format": FORMAT, **key}
    path = cache / f"{name}-{hashed(whole)}.json"
    if path.exists():
        try:
            record = read_json(path)
            if record["key"] == whole:
                return record["result"]
        except (RunDirectoryError, KeyError, TypeError):
            pass  # damaged: computed and written again
    result = compute()
    cache.mkdir(parents=True, exist_ok=True)
    write_json(path, {"key": whole, "result": result})
    return result
