"""Layers trained one after the other, each to a certified duality gap."""

from __future__ import annotations

from .files import FORMAT
from .verify import verify

__all__ = ["FORMAT", "verify"]
