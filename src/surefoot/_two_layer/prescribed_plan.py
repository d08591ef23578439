"""Which steps ``two-layer/prescribed`` prescribes: those of ``sequences``, of the degree and in the order for which the fewest
are guaranteed, searched in floats.

Roots of the Chebyshev polynomial on [μ, K], the spectrum of XᵀX, reach a relative gap in the fewest steps where nothing is known
of the coefficients; where the bounds of a longer sequence fall faster on the way, it reaches the gap before its end.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from surefoot_check.numbers import Quantities
from surefoot_check.problems import LinearMapProblem, Squared
from surefoot_check.rigor.bounds import Array
from surefoot_check.rigor.intervals import Interval
from surefoot_check.statement import SLACK, Schedule, Segment
from surefoot_check.two_layer import SYSTEM as CHECKED
from surefoot_check.two_layer.block_enclosures import problem_of, state_of
from surefoot_check.two_layer.blocks import Problem
from surefoot_check.two_layer.path import Path, Start, follow
from surefoot_check.two_layer.path_enclosures import start_of
from surefoot_check.two_layer.prescribed import BOUNDS, CYCLE, FACTOR, MAX_STEPS, STEPS, steps_of

from .._core.certificate import Condition, publish
from .._core.losses import LinearMapLoss
from .._core.system import Measured
from .cycle_plan import best_cycle
from .sequences import chebyshev, chebyshev_count, orders

TARGET = 1e-10
"""Relative gap whose guaranteed count is the least."""
LONGER = 1.6
"""The longest sequence, as a multiple of the number of steps that the Chebyshev bound needs."""
DEGREES = 48
"""Most degrees that are tried."""
HIGHEST = 1.05
"""Orders whose frozen gap rises above this many times its start are left out: their bounds blow up."""
WEIGHT = 2.0
"""Of the sum of the square roots of the relative frozen gaps beside their count, in the estimate of the guaranteed count."""
EFFORT = 1 << 16
"""Pairs of steps of all candidates whose recursion is evaluated; three times as many where none of them reaches the target."""
SPARE = 1e-8
"""Part of ``TARGET`` that a count leaves for the slack of what is published."""
SQUARED = "the loss is squared"
CONTRACTS = "some steps are known to contract from these weights"
WITHIN = f"the spectrum of the data is known, and a relative gap of {TARGET:g} takes at most {MAX_STEPS} steps"
NEAR = 1e-2
"""How far, relatively, ZZᵀ may be from s²I where Theorem A is tried."""
EARLY = (1e-5, 1e-6)
"""Relative gaps from which a cycle may take over."""
LATE = 1.1
"""Multiple of the Chebyshev count beyond which that is tried."""
FINAL = 2
"""Candidates that are evaluated with spectral norms; three times as many where Frobenius norms reach ``TARGET`` with none."""


@dataclass(frozen=True)
class Candidate:
    """A sequence of steps η, the number of them after which the frozen gap is small enough, and an estimate of the guaranteed
    number."""

    steps: Array
    frozen: int
    estimate: float


def plan(start: Start) -> tuple[Array, Path]:
    """The steps η (T,) with the fewest guaranteed to a relative gap of ``TARGET``, as far as the bound falls, and the bounds
    along them; where none is guaranteed to reach it, those with the least bound. None where the spectrum has no lower end, or no
    sequence is short enough."""
    candidates = sorted(_candidates(start), key=lambda it: it.estimate)
    ranked: list[tuple[float, float, Candidate]] = []
    effort, best = EFFORT, math.inf
    for candidate in candidates:
        used = int(min(len(candidate.steps), best))
        left = effort if best < math.inf else effort + 2 * EFFORT
        if candidate.frozen < best and (left > 0 or len(ranked) < FINAL):
            gaps = _relative(follow(start, candidate.steps[:used], spectral=False))
            ranked.append((_count(gaps), float(gaps.min()), candidate))
            effort, best = effort - used * used // 2, min(best, ranked[-1][0])
    ranked.sort(key=lambda it: it[:2])
    finals = [
        (follow(start, candidate.steps), candidate.steps)
        for *_, candidate in ranked[: FINAL if best < math.inf else 3 * FINAL]
    ]
    if not finals:
        return np.zeros(0), follow(start, np.zeros(0))
    path, steps = min(finals, key=lambda it: (_count(_relative(it[0])), _relative(it[0]).min()))
    count = max(1, int(np.argmin(path.gaps)))
    return steps[:count], Path(path.gaps[: count + 1], path.states[: count + 1])


def _relative(path: Path) -> Array:
    """The relative bounds after 0, 1, … steps."""
    return path.gaps / path.gaps[0] if path.gaps[0] < math.inf else path.gaps


def _count(gaps: Array) -> float:
    """The guaranteed count to ``TARGET``."""
    reached = np.flatnonzero(gaps <= TARGET * (1.0 - SPARE))
    return float(reached[0]) if len(reached) else math.inf


def _candidates(start: Start) -> Iterator[Candidate]:
    """Sequences of several degrees and orders whose frozen gap reaches ``TARGET`` and hardly rises."""
    lam, size = start.eigenvalues, float(np.abs(start.rows).max())
    if not 0.0 < size < math.inf:
        return
    weights = lam * ((start.rows / size) ** 2).sum(axis=1)
    low, high, total = float(lam.min()), float(lam.max()), float(weights.sum())
    if not (low > 0.0 and total > 0.0):
        return
    least = chebyshev_count(low, high, TARGET)
    if least > MAX_STEPS:
        return
    most = min(MAX_STEPS, math.ceil(LONGER * least) + 1)
    for degree in np.unique(np.linspace(least, most, DEGREES).astype(int)).tolist():
        steps = chebyshev(degree, low, high)
        for order in orders(degree):
            tau = steps[order]
            with np.errstate(over="ignore", invalid="ignore"):  # such an order rises, and is left out
                P = np.cumprod(1.0 - tau[:, None] * lam, axis=0)
                gaps = (P * P) @ weights / total
            reached = np.flatnonzero(gaps <= TARGET)
            if len(reached) and gaps.max() <= HIGHEST:
                frozen = int(reached[0]) + 1
                yield Candidate(tau / start.step_unit, frozen, frozen + WEIGHT * float(np.sqrt(gaps).sum()))


def schedule(q: Quantities) -> Schedule:
    """A segment for each step, whose level is the bound before it; then the last bound for ever, or a level above those of the
    repeated steps, that falls as fast."""
    first, cycled = steps_of(q)
    steps = [*first, *cycled, *(cycled[:1] or [0.0])]
    levels = [q["initial_gap"], *(q[name] for name in BOUNDS[: len(steps) - 1])]
    segments = [
        Segment(t, 1, float(level), 0.0, float(step))
        for t, (level, step) in enumerate(zip(levels[:-1], steps[:-1], strict=True))
    ]
    level, decrease = levels[-1], 0.0
    if cycled:
        left = q[FACTOR]
        kept = left ** (1.0 / len(cycled)) * (1.0 + SLACK) + sys.float_info.epsilon
        decrease = max(0.0, 1.0 - kept)
        after = (left * bound / (1.0 - decrease) ** t for t, bound in enumerate(levels[len(first) + 1 :], 1))
        level = max(level, *after) * (1.0 + SLACK)
    return [*segments, Segment(len(segments), None, float(level), decrease, float(steps[-1]))]


def measured(problem: LinearMapProblem, weights: Mapping[str, Array], resolution: float) -> Measured:
    """The planned steps, and what is measured for them on arrays as the checker reads them.

    s² is that of orthonormal rows, and of gradient flow from them: (n+m) s⁴ = ‖W1ᵀW1 - W2ᵀW2‖_F². Bounds are so close to the gaps
    of exact descent that the rounding of a run may take it above; ``resolution`` is the gap that it causes at the optimum, and
    its root is added to that of each bound.
    """
    sizes = CHECKED.enclosures.sizes(problem, weights)
    if not isinstance(problem, Squared):
        return Measured({}, sizes, missing=_missing(SQUARED))
    scale = _scale(weights)
    start = start_of(problem, weights, scale)
    first, cycled = (np.zeros(0), np.zeros(0)) if start is None else _steps(problem, weights, scale, start)
    if not len(first) + len(cycled):
        known = problem.strong_convexity()[0] > 0.0 and chebyshev_count(*_ends(problem), TARGET) <= MAX_STEPS
        return Measured({}, sizes, missing=_missing(CONTRACTS if known else WITHIN))
    chosen = {
        "scale": scale,
        **dict(zip(STEPS, first.tolist(), strict=False)),
        **dict(zip(CYCLE, cycled.tolist(), strict=False)),
    }
    enclosures = CHECKED.enclosures.base_quantities(problem, weights, chosen)
    room = math.sqrt(resolution)
    for name in enclosures.keys() & set(BOUNDS):
        low, high = enclosures[name]
        enclosures[name] = low, (math.sqrt(high) + room) ** 2
    return Measured(publish(enclosures, CHECKED.directions), sizes, (chosen,))


def _ends(problem: Squared) -> Interval:
    """μ and K."""
    return problem.strong_convexity()[0], problem.smoothness()[1]


def _scale(weights: Mapping[str, Array]) -> float:
    """s², in floats."""
    W1, W2 = weights["W1"], weights["W2"]
    P, C, N = W1 @ W1.T, W1 @ W2.T, W2 @ W2.T
    imbalance = float((P * P).sum() - 2.0 * (C * C).sum() + (N * N).sum())
    return math.sqrt(max(imbalance, 0.0) / (len(W1) + len(W2)))


def _steps(problem: Squared, weights: Mapping[str, Array], scale: float, start: Start) -> tuple[Array, Array]:
    """The steps η taken once, and those repeated then: from weights near orthonormal ones those of Theorem A, as far as the count
    of both together to ``TARGET`` is the least; from others, or where that bounds nothing, a cycle alone."""
    constants = problem_of(problem, scale, start)
    if max(start.map, start.kernel1, start.kernel2) < NEAR:
        first, path = plan(start)
        gaps = _relative(path)
        options: list[tuple[float, int, Array]] = []
        for t in _handovers(gaps, constants):
            found = best_cycle(constants, path.states[t], TARGET) if t < len(path.states) else None
            if found is not None:
                more = 0 if _count(gaps[: t + 1]) < math.inf else found.count_to(TARGET * (1.0 - SPARE) / gaps[t])
                options.append((t + more, t, found.steps))
        if options:
            _, t, cycled = min(options, key=lambda it: it[:2])
            return first[:t], cycled / start.step_unit
        if gaps[-1] < gaps[0]:
            return first, np.zeros(0)
    found = best_cycle(constants, state_of(problem, weights, scale, start), TARGET)
    return np.zeros(0), np.zeros(0) if found is None else found.steps / start.step_unit


def _handovers(gaps: Array, constants: Problem) -> list[int]:
    """After how many steps of Theorem A a cycle may take over: when ``TARGET`` is reached, or the least bound; and, where that is
    late, when the levels ``EARLY`` are."""
    count = _count(gaps)
    points = {int(min(count, len(gaps) - 1))}
    if count > LATE * chebyshev_count(constants.strong_convexity, constants.smoothness, TARGET):
        points |= {int(np.argmax(gaps <= level)) for level in EARLY if (gaps <= level).any()}
    return sorted(points - {0})


def _missing(what: str) -> Condition:
    return Condition(what, 0.0, ">", 0.0, False, None)


def suggestion(loss: LinearMapLoss, failed: Sequence[str]) -> str:
    """What would make the theorem hold, of whose hypotheses these ``failed``."""
    if SQUARED in failed:
        return "use theorem='two-layer/drift', which needs no squared loss"
    if WITHIN in failed:
        return "standardise or whiten the inputs, or use theorem='two-layer/drift', which needs no sequence of steps"
    n, m = loss.reduced.shape
    size = float(torch.linalg.matrix_norm(loss.optimum, 2))
    return (
        f"start from sf.nn.TwoLayerLinear.certifiable(loss, seed=0): s times {n + m} orthonormal rows [W1; W2], so of a width of "
        f"{n + m} or more, with s² some ten times the norm {size:.3g} of the minimiser; or certify again nearer to it; or use "
        f"theorem='two-layer/drift'"
    )
