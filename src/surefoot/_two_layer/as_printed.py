"""``two-layer/as-printed``: Theorem 3.2 / E.1 of the paper with its own α1, which keeps β1 in both roots.

False for n ≠ m: X = I, W1 = [[1,0],[0,0]], W2 = [1,0], W* = [1; .001], η0 = 1e-4 gives L1/L0 = .99980 where it claims .99961
(docs/errata.md). It is evaluated for comparison and never accepted.
"""

from __future__ import annotations

from typing import ClassVar

from surefoot_check.numbers import Number, Quantities
from surefoot_check.two_layer.constants import lower_root
from surefoot_check.two_layer.corrected import Corrected


def alpha1_as_printed(q: Quantities, beta1: Number) -> Number:
    """The paper's α1, which keeps β1 in both roots; not a lower bound of s- when n ≠ m."""
    return lower_root(q["lambda_n"], q["lambda_minus"], beta1) + lower_root(q["lambda_m"], q["lambda_plus"], beta1)


class AsPrinted(Corrected):
    """The paper's Theorem 3.2 as printed."""

    id = "two-layer/as-printed"
    statement = "The same with the printed alpha1, which is false for n != m (docs/errata.md, E.3)."
    reference = (
        "A Local Polyak-Lojasiewicz and Descent Lemma of Gradient Descent for Overparametrized Linear Models, "
        "Theorems 3.2 and E.1"
    )
    provable = False
    _alpha1: ClassVar = staticmethod(alpha1_as_printed)


THEOREM = AsPrinted()
