"""What screens say of the learned SVD."""

from __future__ import annotations

from .._core.words import Words

WORDS = Words(
    instead={
        "certify": "no theorem speaks of the learned SVD, so there is nothing to certify; surefoot train svd measures its "
        "errors, and sf.linalg.svd is accurate to rounding"
    }
)
