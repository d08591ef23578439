"""What stands above the core and is loaded where somebody asks for it: plots and reports of runs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

REPORTS = "surefoot._report"


def reports(module: str) -> Any:
    """A module of the reports, by name: they import the core."""
    return import_module(f"{REPORTS}.{module}")
