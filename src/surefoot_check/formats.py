"""The certificates that are no descent's: each format of certificate.json with the function that verifies its directory.

A verifier gets the directory, the record of its certificate.json, as read and believed in nothing, and the level; it adds its
checks and notes to the report, and sets ``report.theorem``. It runs within the time limit and the precision of ``checker.check``,
which answers for ``FormatError``, overflow, memory and time: a verifier raises ``FormatError`` for whatever is malformed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from . import holdout
from .rigor.bounds import Level
from .step_sizes import layers
from .verdict import Report

Verifier = Callable[[Path, Mapping[str, object], Level, Report], None]

VERIFIERS: dict[str, Verifier] = {holdout.FORMAT: holdout.verify, layers.FORMAT: layers.verify}
"""By the format's name."""


def verifier_of(record: Mapping[str, object]) -> Verifier | None:
    """That of the record's format; ``None`` of a descent's certificate, and of what no one knows."""
    name = record.get("format")
    return VERIFIERS.get(name) if isinstance(name, str) else None
