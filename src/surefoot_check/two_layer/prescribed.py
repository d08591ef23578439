"""``two-layer/prescribed``: a squared loss, and a sequence of steps that is fixed before training.

Statement. From weights with ZZᵀ near s²I, Z = [W1; W2], gradient descent with the prescribed steps η_0, …, η_{T-1} keeps
L_t ≤ bound[t] for t ≤ T, where the bounds are those of the recursion in ``path``. They need not fall at every step. After the
last step none is taken.
Reference: docs/theorems/two-layer-prescribed.md (Theorem A; no counterpart in the paper).
"""

from __future__ import annotations

from collections.abc import Iterator

from ..numbers import Quantities
from ..statement import Inequality, Schedule, Theorem, one_each

MAX_STEPS = 1024
STEPS = tuple(f"step[{t}]" for t in range(MAX_STEPS))
BOUNDS = tuple(f"bound[{t}]" for t in range(1, MAX_STEPS + 1))
"""Names of the steps, and of the bounds of the gaps after 1, 2, … of them."""
DIRECTIONS = dict.fromkeys(BOUNDS, "upper")


class Prescribed(Theorem):
    """Theorem A."""

    id = "two-layer/prescribed"
    statement = "With the prescribed steps the gap after t of them is at most bound[t], which is known before training."
    reference = "surefoot, docs/theorems/two-layer-prescribed.md"
    rule = "prescribed"
    positive_steps = False
    base = ("initial_gap", *BOUNDS)
    choices = ("scale",)
    sequence = STEPS

    def conditions(self, q: Quantities) -> list[Inequality]:
        steps, bounds = _count(q, STEPS), _count(q, BOUNDS)
        conditions = [
            Inequality("there are prescribed steps", steps, ">", 0),
            Inequality("the gap after every step has a bound", bounds, ">=", steps),
        ]
        if 0 < steps <= bounds:
            last = q[BOUNDS[steps - 1]]
            conditions.append(Inequality("the steps lower the bound: bound[T] < L(0)", last, "<", q["initial_gap"]))
        return conditions

    def obligations(self, q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
        steps = _count(q, STEPS)
        yield from one_each(
            schedule,
            steps,
            "step",
            level=lambda t: q["initial_gap"] if t == 0 else q[BOUNDS[t - 1]],
            step=lambda t: 0.0 if t == steps else q[STEPS[t]],
        )


def _count(q: Quantities, names: tuple[str, ...]) -> int:
    return next((t for t, name in enumerate(names) if name not in q), len(names))


THEOREM = Prescribed()
