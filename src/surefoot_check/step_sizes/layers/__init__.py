"""Layers trained one after the other, each to a certified duality gap: the format ``surefoot-layers/1``."""

from __future__ import annotations

from .verify import verify

__all__ = ["verify"]
