"""``two-layer/prescribed``: a squared loss, and a sequence of steps that is fixed before training.

Statement. Gradient descent with the prescribed steps η_0, …, η_{T-1} keeps L_t ≤ bound[t] for t ≤ T. Where further r steps are
prescribed that are repeated for ever, L_{T+t} ≤ bound[T+t] for 1 ≤ t ≤ r, and every repetition multiplies these bounds by
``cycle_factor``; else none is taken after the last. The bounds need not fall at every step. They are those of the recursions in
``path``, from weights with ZZᵀ near s²I, Z = [W1; W2], and in ``blocks``, from where that ends, or, with T = 0, from any weights.
Reference: docs/theorems/two-layer-prescribed.md (Theorem A) and two-layer-prescribed-blocks.md (Theorem B, Corollary D; no
counterpart in the paper).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..numbers import Number, Quantities, power_of_complement
from ..statement import Inequality, Schedule, Segment, Theorem, one_each

MAX_STEPS = 1024
STEPS = tuple(f"step[{t}]" for t in range(MAX_STEPS))
BOUNDS = tuple(f"bound[{t}]" for t in range(1, MAX_STEPS + 1))
"""Names of the steps, and of the bounds of the gaps after 1, 2, … of them."""
MAX_CYCLE = 128
"""A block of T steps is checked with some 50 T³ multiplications."""
CYCLE = tuple(f"cycle[{t}]" for t in range(MAX_CYCLE))
"""Names of the steps that are repeated after those."""
FACTOR = "cycle_factor"
DIRECTIONS = {**dict.fromkeys(BOUNDS, "upper"), FACTOR: "upper"}


class Prescribed(Theorem):
    """Theorem A."""

    id = "two-layer/prescribed"
    statement = "With the prescribed steps the gap after t of them is at most bound[t], which is known before training."
    reference = "surefoot, docs/theorems/two-layer-prescribed.md"
    rule = "prescribed"
    positive_steps = False
    base = ("initial_gap", *BOUNDS, FACTOR)
    choices = ("scale",)
    sequences = (STEPS, CYCLE)

    def conditions(self, q: Quantities) -> list[Inequality]:
        first, cycled = map(len, steps_of(q))
        steps, bounds = first + cycled, _count(q, BOUNDS)
        conditions = [
            Inequality("there are prescribed steps", steps, ">", 0),
            Inequality("the gap after every step has a bound", bounds, ">=", steps),
        ]
        if 0 < steps <= bounds:
            last = q[BOUNDS[steps - 1]]
            conditions.append(Inequality("the steps lower the bound: bound[T] < L(0)", last, "<", q["initial_gap"]))
        if cycled:
            factor = q.get(FACTOR, 1.0)
            conditions.append(Inequality("every repetition lowers the bounds: cycle_factor < 1", factor, "<", 1.0))
        return conditions

    def obligations(self, q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
        first, cycled = steps_of(q)
        steps = [*first, *cycled, *(cycled[:1] or [0.0])]
        levelled = [*schedule[:-1], *(replace(last, decrease=0.0) for last in schedule[-1:])] if cycled else schedule
        yield from one_each(
            levelled,
            len(steps) - 1,
            "step",
            level=lambda t: q["initial_gap"] if t == 0 else q[BOUNDS[t - 1]],
            step=lambda t: steps[t],
        )
        if cycled:
            yield from _repeated(q, schedule[-1], len(first), len(cycled))


def _repeated(q: Quantities, last: Segment, first: int, count: int) -> Iterator[Inequality]:
    """The obligations of the endless segment: it lies above the bounds of the first repetition, and falls no faster than they."""
    left = q[FACTOR]
    yield Inequality("the endless segment does not rise", last.decrease, ">=", 0.0)
    yield Inequality("the endless segment stays positive", last.decrease, "<", 1.0)
    for t in range(1, count + 1):
        kept = power_of_complement(last.decrease, t)
        yield Inequality(
            f"repetition, step {t}: level is at least the gap", last.level * kept, ">=", left * q[BOUNDS[first + t - 1]]
        )
    kept = power_of_complement(last.decrease, count)
    yield Inequality("the endless segment falls by at most what a repetition does", kept, ">=", left)


def steps_of(q: Quantities) -> tuple[list[Number], list[Number]]:
    """The published steps: those taken once, and those repeated after them."""
    first, cycled = ([q[name] for name in names[: _count(q, names)]] for names in (STEPS, CYCLE))
    return first, cycled


def step_at(first: list[float], cycled: list[float], t: int) -> float:
    """The step of iteration t."""
    if t < len(first):
        return first[t]
    return cycled[(t - len(first)) % len(cycled)] if cycled else 0.0


def _count(q: Quantities, names: tuple[str, ...]) -> int:
    return next((t for t, name in enumerate(names) if name not in q), len(names))


THEOREM = Prescribed()
