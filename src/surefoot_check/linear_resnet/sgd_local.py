"""``linear-resnet/sgd-local``: mini-batch descent from weights near an exact fit (``minibatch``, Theorems S and S').

Statement. Data X (N, d) that the network can fit, of which every step draws B rows. With the constants of Lemma 3 on balls of the
joint radius ϱ around the weights, and those of batches from the leverages of the rows (``batches``), the theorems hold for the
residual of the reduced data. Reference: docs/theorems/sgd.md.
"""

from __future__ import annotations

from ..minibatch import Minibatch


class SGDLocal(Minibatch):
    """Theorems S and S' for deep linear ResNets."""

    id = "linear-resnet/sgd-local"
    statement = (
        "From weights near an exact fit mini-batch descent converges to a fit at a linear rate, with probability 1 - delta over "
        "the batches."
    )
    reference = "surefoot, docs/theorems/sgd.md"


THEOREM = SGDLocal()
