"""Layers trained one after the other, each with a certificate of its duality gap: the format ``surefoot-layers/1``."""

from __future__ import annotations

from .verify import verify

__all__ = ["verify"]
