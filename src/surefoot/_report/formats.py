"""The reports of directories whose certificate is no descent's, by the format of certificate.json."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from surefoot_check import holdout
from surefoot_check.arrays import FormatError
from surefoot_check.run_files import CERTIFICATE, Content
from surefoot_check.step_sizes import layers

WRITERS: dict[str, str] = {
    holdout.FORMAT: "surefoot._holdout.report",
    layers.FORMAT: "surefoot._layers.report",
}
"""Modules by the format's name: each has ``write(directory)``, which writes report.html and plots, and returns its path."""


def writer_of(directory: Path) -> Callable[[Path], Path] | None:
    """That of the directory's format; ``None`` where no certificate of such a format can be read."""
    try:
        name = Content.read(directory / CERTIFICATE).record.get("format")
    except FormatError:
        return None
    module = WRITERS.get(name) if isinstance(name, str) else None
    return None if module is None else import_module(module).write
