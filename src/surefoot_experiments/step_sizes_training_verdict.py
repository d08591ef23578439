"""What the paper claims of training step sizes, and whether the runs agree."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from surefoot._step_sizes.compare import Comparison

from .result import Finding
from .step_sizes_runs import (
    GD,
    ITERATIONS,
    Run,
    Size,
    best_constant,
    gradient_descent,
    percent,
)
from .step_sizes_training_runs import LEARNED

CLEAR = 0.5
"""The paper's 'around 50 %' improvement."""


def falls_finding(run: Run) -> Finding:
    """The objective falls with training."""
    losses = run.losses
    rises = sum(b > a for a, b in pairwise(losses))
    return Finding(
        "The objective at T falls consistently with training.",
        f"{rises} of {len(losses) - 1} epochs raised it; {losses[0]:.3g} to {losses[-1]:.3g}"
        + (f"; ended: {run.ended}" if run.ended else ""),
        rises <= 0.01 * len(losses) and losses[-1] < losses[0],
        "Agreement means a lower objective at the end, and at most one epoch in a hundred that raises it.",
    )


def half_finding(runs: Sequence[tuple[Size, Run]], epochs: int) -> Finding:
    """The improvement on gradient descent."""
    short = epochs < 50_000
    reached = all(run.last.at_end >= CLEAR for _, run in runs)
    return Finding(
        "Learned step sizes improve on gradient descent by around 50 %.",
        "; ".join(
            f"{size}: {percent(run.last.at_end)} at T, {percent(run.last.mean)} on average, after "
            f"{run.last.epochs:,} epochs"
            for size, run in runs
        ),
        True if reached else None if short else False,
        "Agreement means 50 % or more at T on the training problems."
        + (
            ""
            if reached or not short
            else " The paper trains for 50,000 epochs, so that fewer decide nothing against it."
        ),
    )


def early_finding(run: Run, seed: int) -> Finding:
    """The first iterations against the last."""
    reference = gradient_descent(run.setting.size.problems(seed))
    worst = max(
        (objective / plain, t, mark.epochs)
        for mark in run.marks[1:]
        for t, (objective, plain) in enumerate(zip(mark.objectives, reference, strict=True))
        if t > 0
    )
    small = run.setting.size.columns <= 64
    return Finding(
        "For small problems the first few iterations get worse with training while the last improves."
        if small
        else "The whole trajectory converges stably, though only its end is trained.",
        f"largest objective relative to gradient descent's: {worst[0]:.3g} at t = {worst[1]} after {worst[2]:,} epochs",
        worst[0] > 1.0 + 1e-6 if small else worst[0] < 2.0,
        "Agreement means an objective above that of gradient descent at some iteration."
        if small
        else "Agreement means that no iterate has twice the objective of gradient descent. It never increases: "
        "P <= 2 suffices (step-sizes/monotone).",
    )


def fresh_finding(comparisons: Sequence[tuple[Size, Comparison]]) -> Finding:
    """The same on fresh problems, beside constant steps."""
    texts = []
    for size, comparison in comparisons:
        learned = comparison[LEARNED]
        assert learned.fresh is not None
        best, value = best_constant(comparison)
        texts.append(
            f"{size}: {percent(learned.training.improvement)} in training, {percent(learned.fresh.improvement)} on fresh "
            f"problems ({percent(learned.fresh.worse)} of them worse than gradient descent); {best} {percent(value)}"
        )
    return Finding(
        "(Not in the paper: problems that nothing was trained on, and constant steps.)",
        "; ".join(texts),
        None,
        "On unstructured least squares a learned step size is about a better constant one, which needs no training. Beyond "
        "1.5/beta a constant step depends on how close each problem is to the largest curvature.",
    )


def krylov_finding(comparisons: Sequence[tuple[Size, Comparison]]) -> Finding:
    """Methods that need no training."""
    texts = []
    wanted = ("FISTA", "silver", "OGM", "subgame-perfect", "Chebyshev", "CGLS")
    for size, comparison in comparisons:
        fresh = {name: comparison[name].fresh for name in wanted if name in comparison}
        gaps = {name: value.gap for name, value in fresh.items() if value is not None}
        reference = comparison[GD].fresh
        assert reference is not None
        texts.append(f"{size}: " + ", ".join(f"{name} {gap / reference.gap:.1e}" for name, gap in gaps.items()))
    return Finding(
        "(Not in the paper: accelerated and conjugate gradients, and step schedules without training.)",
        f"mean F - F* on fresh problems relative to gradient descent's, after {ITERATIONS} iterations: "
        + "; ".join(texts),
        None,
        f"The same two products with M or Mᵀ an iteration; schedules for {ITERATIONS} steps. On least squares nothing learned "
        "here comes near CGLS, nor near Chebyshev steps, which know the spectrum's ends.",
    )


def conditions_finding(shortfalls: Sequence[tuple[str, Mapping[str, float]]]) -> Finding:
    """Whether the printed conditions can be met."""
    worst = {label: max(short.values()) for label, short in shortfalls}
    return Finding(
        "The conditions (13) of Theorem 4.7 can be met by the proposed initialisation (section 5).",
        "; ".join(
            f"{label}: short by 10^{math.log10(value):.1f} decades" for label, value in worst.items() if value > 0.0
        ),
        all(value <= 0.0 for value in worst.values()),
        "Agreement means that all of them hold. The printed statement has a counterexample, and with (13d) as its proof needs "
        "it the conditions cannot be met for T >= 2 (step-sizes/as-printed).",
    )


def expansion_finding(shortfalls: Sequence[tuple[Size, float, Mapping[str, float]]]) -> Finding:
    """Whether a larger expansion brings them closer."""
    pairs: dict[str, list[float]] = {}
    for size, _, short in shortfalls:
        pairs.setdefault(str(size), []).append(max(short.values()))
    return Finding(
        "A larger expansion e brings the conditions closer (Lemmas 5.1 to 5.4).",
        "; ".join(
            f"{size}: 10^{math.log10(a):.1f} decades at e = 1, 10^{math.log10(b):.1f} at e = 100"
            for size, (a, b) in pairs.items()
        ),
        all(b < a for a, b in pairs.values()),
        "delta4 has exp(-delta3 Theta_L), and Theta_L grows with e as alpha0 does.",
    )
