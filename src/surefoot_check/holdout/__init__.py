"""Certificates of how many iterations a solver needs on most problems of a distribution, from counts on held-out ones."""

from __future__ import annotations

from .record import FORMAT
from .verify import verify

__all__ = ["FORMAT", "verify"]
