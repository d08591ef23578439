"""The report of a run directory: plots and one self-contained HTML page."""

from .write import write

__all__ = ["write"]
