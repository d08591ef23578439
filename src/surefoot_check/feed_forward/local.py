"""``feed-forward/local``: Theorem A of feed-forward networks (the default)."""

from __future__ import annotations

from ..near_a_fit.local import Local
from ..numbers import Quantities
from ..statement import Inequality


def enough(q: Quantities) -> Inequality:
    """No more outputs than parameters."""
    return Inequality("no more outputs than parameters: N k <= p", q["N"] * q["k"], "<=", q["p"])


class FeedForwardLocal(Local):
    """Theorem A at the weights of a feed-forward network."""

    id = "feed-forward/local"
    reference = "surefoot, docs/theorems/feed-forward.md, Theorem A"
    enough = staticmethod(enough)


THEOREM = FeedForwardLocal()
