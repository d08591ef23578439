"""``feed-forward/sgd``: mini-batch descent from these weights reaches an exact fit, with the stated probability.

Statement. Theorems S and S' of ``minibatch`` with the residual of all rows, of which a sample has the k of its outputs: Λ_B = Λ,
‖C_SJ‖, √ω and the singular values of J at the weights, each moved by Λρ, are bounds on the ball; no activation changes its piece
there.
Reference: docs/theorems/sgd.md.
"""

from __future__ import annotations

from ..minibatch import DIRECTIONS as OF_MINIBATCHES
from ..minibatch import Minibatch
from ..near_a_fit.local import DIRECTIONS as NEAR_A_FIT
from ..near_a_fit.local import without_kinks
from ..numbers import Quantities
from ..statement import Inequality
from .local import enough

DIRECTIONS: dict[str, str] = {**OF_MINIBATCHES, "kink_margin": NEAR_A_FIT["kink_margin"]}
"""Every base quantity and the direction in which its published value must err."""


class FeedForwardSGD(Minibatch):
    """Theorems S and S' at the weights of a feed-forward network."""

    id = "feed-forward/sgd"
    statement = "With probability 1 - delta mini-batch SGD reaches an exact fit nearby, all gaps under the bound."
    reference = "surefoot, docs/theorems/sgd.md, Theorems S and S'"
    base = (*Minibatch.base, "kink_margin")
    samples = "N"

    def conditions(self, q: Quantities) -> list[Inequality]:
        return [enough(q), *super().conditions(q), *without_kinks(q)]


THEOREM = FeedForwardSGD()
