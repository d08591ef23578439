"""Claim L3: the recorded run follows exact gradient descent, which lies under the guaranteed bound at every iteration.

Exact descent starts from the stored initial weights and takes the steps of trace.jsonl; ``descent`` encloses it. The replay
begins with as many bits as the growth of its errors costs, begins anew with more where they did not suffice, and needs fewer as
they grow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import flint

from .descent import MOST_BITS, SPARE_BITS, Descent
from .problems import LinearMapProblem
from .rigor.balls import ball
from .rigor.bounds import Array
from .run_files import Checkpoint
from .verdict import digits

TOLERANCE = 1e-6
"""Largest relative defect of stored weights. Honest runs in float64 have some 1e-15 to 1e-11; weights of other steps, of
another iteration or of another run differ by far more."""
FIRST_BITS = 128
"""Precision of the first attempt."""
MAX_WORK = 4 * 10**9
"""Largest number of multiplications of all attempts, in units of 128 bits: some minutes. Beyond it the answer is undecided."""
MAX_ENTRIES = 5 * 10**6
"""Largest number of entries of the problem and of the weights: about a gigabyte as balls."""
OVERHEAD = 10**5
"""What an iteration costs besides, in the same unit."""

Finding = tuple[str, bool | None, str]
"""What was checked, whether it holds (``None``: undecided), and both sides."""


def replay_run(
    kind: type[Descent],
    problem: LinearMapProblem,
    arrays: Mapping[str, Array],
    initial: Mapping[str, Array],
    checkpoints: Mapping[str, Checkpoint],
    steps: Sequence[float],
    bounds: Callable[[int], Iterable[tuple[Any, bool]]],
) -> list[Finding]:
    """Replay a run and compare its stored weights.

    Args:
        kind: how exact descent of the run's system is enclosed.
        arrays, initial: the problem's arrays and the initial weights, as validated by their readers.
        checkpoints: the stored weights by file name.
        steps: of the iterations, positive floats.
        bounds: the guaranteed gaps at an iteration, each with whether its certificate speaks of the initial weights. One of
            weights stored on the way speaks of exact descent up to ``TOLERANCE``; where that is exceeded, nothing is proved.

    Returns:
        What was found; the first that does not hold ends the replay.
    """
    newest = max((c.iteration for c in checkpoints.values()), default=0)
    if newest > len(steps):
        return [(f"trace.jsonl has {len(steps)} steps, and there are weights of iteration {newest}", False, "")]
    if not checkpoints:
        return [("no weights are stored that could be compared", None, "")]
    entries = sum(array.size for array in (*arrays.values(), *initial.values()))
    if entries > MAX_ENTRIES:
        return [(f"exact descent with {entries} numbers", None, f"at most {MAX_ENTRIES} are tried")]
    multiplications = kind.multiplications(arrays, initial, len(steps), len(checkpoints))
    bits, spent = FIRST_BITS, 0
    while True:
        cost = spent + len(steps) * OVERHEAD + multiplications * bits // FIRST_BITS
        if bits > MOST_BITS or cost > MAX_WORK:
            need = f"some {cost:.0e} multiplications; at most {MOST_BITS} bits and {MAX_WORK:.0e} are tried"
            return [(f"exact descent of {len(steps)} steps, which takes {bits} bits or more", None, need)]
        with flint.ctx.workprec(bits):
            descent = kind(problem, initial, bits)
            findings, reached = _follow(descent, checkpoints, steps, bounds, bits)
            narrow = descent.enough_bits() > FIRST_BITS
        if narrow or all(holds is not None for _, holds, _ in findings):
            return findings
        spent += (cost - spent) * (reached + 1) // (len(steps) + 1)
        # errors grow by about as many bits in every step
        bits = min(max(3 * bits // 2, bits * (len(steps) + 1) // (reached + 1) + 2 * SPARE_BITS), 4 * bits)


def _follow(
    descent: Descent,
    checkpoints: Mapping[str, Checkpoint],
    steps: Sequence[float],
    bounds: Callable[[int], Iterable[tuple[Any, bool]]],
    bits: int,
) -> tuple[list[Finding], int]:
    """The findings, and the last iteration that was looked at."""
    stored: dict[int, list[str]] = {}
    for file, checkpoint in checkpoints.items():
        stored.setdefault(checkpoint.iteration, []).append(file)
    end, worst = "", (-math.inf, "", "")
    first: int | None = None  # iteration at which something is guaranteed
    for t in range(len(steps) + 1):
        flint.ctx.prec = min(bits, descent.enough_bits())
        try:
            here = descent.look()
        except OverflowError as error:
            return [(f"exact descent is enclosed after {t} iterations ({bits} bits)", None, str(error))], t
        low, high = descent.gap(here)
        for bound, own in bounds(t):
            if not high <= (bound if own else bound * (1 + ball(TOLERANCE))):
                holds = False if own and low > bound else None
                what = f"exact descent lies under the guaranteed bound after {t} iterations ({bits} bits)"
                return [(what, holds, f"gap {digits(low)} .. {digits(high)}, bound {digits(bound)}")], t
            end = f"at the end {digits(high)} <= {digits(bound)}"
            first = t if first is None else first
        for file in stored.get(t, []):
            for what, near, far, least, most in descent.defects(checkpoints[file].weights):
                if not far <= ball(TOLERANCE) * least:
                    holds = False if near > ball(TOLERANCE) * most else None
                    text = f"{file} is that of exact descent ({bits} bits)"
                    sides = (
                        f"{what}: distance {digits(near)} .. {digits(far)}, allowed {digits(ball(TOLERANCE) * most)}"
                    )
                    return [(text, holds, sides)], t
                worst = max(worst, (float(far / least), what, file))
        if t < len(steps):
            descent.step(here, steps[t])
    defect, what, file = worst
    since = "" if first == 0 else f" from iteration {first} on"
    return [
        (
            f"exact descent, {len(steps)} steps in {bits} bits, lies under the guaranteed bound at each{since}",
            True,
            end,
        ),
        (
            f"{len(checkpoints)} stored weights are those of exact descent",
            True,
            f"largest relative defect {defect:.2g} ({what}, {file}) <= {TOLERANCE:g}",
        ),
    ], len(steps)
