"""``feed-forward/exact-fit``: Theorem B of feed-forward networks."""

from __future__ import annotations

from ..near_a_fit.exact_fit import ExactFit
from .local import enough


class FeedForwardExactFit(ExactFit):
    """Theorem B at the weights of a feed-forward network."""

    id = "feed-forward/exact-fit"
    reference = "surefoot, docs/theorems/feed-forward.md, Theorem B"
    enough = staticmethod(enough)


THEOREM = FeedForwardExactFit()
