"""What the paper claims of transformations and depth, and whether the runs agree."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from .linear_resnet_instances import (
    TARGET,
)
from .linear_resnet_training_runs import (
    GAUSSIAN,
    GRID,
    IDENTITY,
    MODIFIED,
    THEOREM,
    Runs,
    Series,
    residual_label,
    standard_label,
)
from .result import Finding, Table
from .summaries import median

STUCK = 1e-3
"""A relative gap above this, where the other transformations have long reached the target, counts as being stuck."""


SIMILAR = 1.25
"""Iteration counts of several depths within this ratio count as quite similar."""


SINGLE = (
    " One layer is a quadratic problem, where steps above two unit steps diverge; more layers can take larger ones."
)


def transformation_findings(runs: Runs, losses: Mapping[str, list[float]], controls: Table) -> tuple[Finding, ...]:
    """Whether transformations order as claimed."""
    others = [runs[label, step].iterations for label in (MODIFIED, GAUSSIAN) for step in (THEOREM, GRID)]
    slowest = max(others)
    stuck = runs[IDENTITY, THEOREM].relative
    reached = [gaps[min(len(gaps) - 1, int(min(slowest, len(gaps) - 1)))] for gaps in stuck]
    final = runs[IDENTITY, THEOREM].final
    modified, random = (runs[label, THEOREM].iterations for label in (MODIFIED, GAUSSIAN))
    tuned = [runs[label, GRID].iterations for label in (MODIFIED, GAUSSIAN)]
    start = {label: median(values) for label, values in losses.items()}
    ends = [
        f"{r['last relative gap']:.2g} for d = {r['d = k']}, noise {r['noise']:g} "
        + ("(never left the plateau)" if left is None else f"(half the plateau after {left:,.0f} iterations)")
        for r, left in zip(controls.records(), controls.column("left the plateau at"), strict=True)
    ]
    return (
        Finding(
            "Gradient descent with the identity transformation gets stuck.",
            f"relative gap {median(reached):.2g} when the slower of the others is at {TARGET:g}"
            + (f", {final:.2g} at the end" if final is not None else ""),
            min(reached) > STUCK,
            f"Agreement means a relative gap above {STUCK:g} in every repeat, with the theorem's step, at the iteration at "
            "which every other run has reached the target.",
        ),
        Finding(
            "(Not in the paper: whether it is stuck for good.)",
            f"relative gap at the end, with the unit step: {'; '.join(ends)}",
            None,
            "For even d the noise breaks the symmetry, and pairs of directions escape one after another, by rotations. Without "
            "noise the layers stay symmetric, and no eigenvalue of their product turns negative; for odd d the determinant of "
            "the product would have to change its sign, so that one direction is left over.",
        ),
        Finding(
            "Modified identity and random transformations converge well.",
            f"iterations to {TARGET:g} with the theorem's step: modified identity {modified:.0f}, Gaussian {random:.0f}; "
            f"with the best of the grid {tuned[0]:.0f} and {tuned[1]:.0f}",
            math.isfinite(slowest),
            "Agreement means that both reach the target with both steps.",
        ),
        Finding(
            "The modified identity is slightly faster, as its initial loss is smaller.",
            f"{random / modified:.1f} times fewer iterations with the theorem's step, {tuned[1] / tuned[0]:.1f} times with the "
            f"best step; initial loss {start[MODIFIED]:,.0f} and {start[GAUSSIAN]:,.0f}",
            modified < random and tuned[0] <= tuned[1],
            "The order is the paper's. The initial loss is only a part of it: a Gaussian A and B have unequal singular values, "
            "the more so the smaller the width.",
        ),
    )


def depth_findings(runs: Runs, layers: Sequence[int]) -> tuple[Finding, ...]:
    """Whether ResNets and standard networks differ by depth as claimed."""
    findings: list[Finding] = []
    residual = {step: [runs[residual_label(depth), step] for depth in layers] for step in (THEOREM, GRID)}
    standard = {step: [runs[standard_label(depth), step] for depth in layers] for step in (THEOREM, GRID)}
    multiple = [s for s, depth in zip(residual[THEOREM], layers, strict=True) if depth > 1]
    counts = [s.iterations for s in multiple]
    findings.append(
        Finding(
            "Depth hardly changes the convergence of ResNets.",
            f"iterations with the theorem's step {_listed(residual[THEOREM], layers)}; with the best step "
            f"{_listed(residual[GRID], layers)}",
            max(counts) <= SIMILAR * min(counts) if math.isfinite(max(counts)) else False,
            f"Agreement means counts within a ratio of {SIMILAR:g} from two layers on, with the theorem's step.",
        )
    )
    for step, series in standard.items():
        findings.append(
            Finding(
                f"Standard networks converge worse as the depth grows ({step}).",
                f"iterations {_listed(series, layers)}",
                all(a.order < b.order for a, b in pairwise(series)),
                "Agreement means that every larger depth needs more iterations, or ends at a larger relative gap where the "
                "target is not reached." + (SINGLE if step == GRID and layers[0] == 1 else ""),
            )
        )
    behind = [
        f"L = {depth} ({step})"
        for step in (THEOREM, GRID)
        for depth, ours, theirs in zip(layers, residual[step], standard[step], strict=True)
        if depth > 1 and not ours.order < theirs.order
    ]
    findings.append(
        Finding(
            "ResNets converge faster than standard networks of the same depth.",
            f"not for {'; '.join(behind)}" if behind else "in every case from two layers on, with both steps",
            not behind,
            "Agreement means fewer iterations to the target, or a smaller gap where neither reaches it, at every depth above "
            "one and with both choices of the step.",
        )
    )
    return tuple(findings)


def _listed(series: Sequence[Series], layers: Sequence[int]) -> str:
    def text(s: Series) -> str:
        return f"{s.iterations:.0f}" if math.isfinite(s.iterations) else f"not reached ({s.final or math.inf:.1g})"

    return ", ".join(f"{text(s)} (L = {depth})" for s, depth in zip(series, layers, strict=True))
