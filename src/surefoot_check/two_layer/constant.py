"""``two-layer/constant``: one step size for ever, such as the learning rate of a plain SGD loop.

Statement. Let η̂ be the floor step of the drift theorem at the initial gap L0 (by Theorem I, or by Theorem III for a
quadratic loss) and v its guaranteed decrease there. Gradient descent with the constant step η̂ keeps L_t ≤ (1 - v)^t L0 and
s-(t) ≥ (1-θ)α1 for all t.
Proof. The constants k̂, û, ŝ fall and the cap rises with the gap, so that η̂ stays below the floor step of every later
iterate; below it the step keeps the budget, and the guaranteed decrease at a step η rises as the gap falls.
Reference: docs/theorems/two-layer-drift.md (corollary of Theorems II, 5 and III of the project).
"""

from __future__ import annotations

from collections.abc import Iterator

from ..numbers import Quantities
from ..statement import Inequality, Schedule
from .drift import Drift


class ConstantStep(Drift):
    """The constant-step corollary of Theorem 5."""

    id = "two-layer/constant"
    statement = (
        "Gradient descent with the constant step of the certificate contracts the gap by its rate at every step."
    )
    reference = "surefoot, docs/theorems/two-layer-drift.md"
    rule = "constant"
    constant_steps = True

    def obligations(self, q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
        yield from super().obligations(q, schedule)
        yield Inequality("one segment", len(schedule), "<=", 1)


THEOREM = ConstantStep()
