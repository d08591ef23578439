"""``implicit/local``: Theorem A of implicit ReLU networks, at any iterate, however far the features have moved."""

from __future__ import annotations

from ..near_a_fit.local import Local
from ..numbers import Quantities
from ..statement import Inequality


def enough(q: Quantities) -> Inequality:
    """No more outputs than parameters; p are the outputs of a row."""
    parameters = q["m"] * (q["d"] + q["m"] + q["p"])
    return Inequality("no more outputs than parameters: N p <= m (d + m + p)", q["N"] * q["p"], "<=", parameters)


class ImplicitLocal(Local):
    """Theorem A at the weights of an implicit network."""

    id = "implicit/local"
    reference = "surefoot, docs/theorems/feed-forward.md, Theorem A, by Lemma 10 of docs/theorems/implicit.md"
    enough = staticmethod(enough)


THEOREM = ImplicitLocal()
