"""``implicit/exact-fit``: Theorem B of implicit ReLU networks."""

from __future__ import annotations

from ..near_a_fit.exact_fit import ExactFit
from .local import enough


class ImplicitExactFit(ExactFit):
    """Theorem B at the weights of an implicit network."""

    id = "implicit/exact-fit"
    reference = "surefoot, docs/theorems/feed-forward.md, Theorem B, by Lemma 10 of docs/theorems/implicit.md"
    enough = staticmethod(enough)


THEOREM = ImplicitExactFit()
