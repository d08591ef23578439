"""The width from which on a fit is guaranteed before any training: what a guarantee at the start costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from surefoot._core.certificate import Certificate
from surefoot._core.descent import certify, descend
from surefoot._core.losses import SquaredLoss
from surefoot._core.near_a_fit.features import moved
from surefoot._feed_forward.features import features

from .feed_forward_cases import digits
from .feed_forward_runs import TARGET
from .linear_resnet_certified import first_certified
from .result import Cell, Experiment, Finding, Progress, Table
from .summaries import median

LARGEST = 16_000
"""Of the widths that are tried."""
NEAR = 1.1
"""A width may be so many times the prototype's."""
LAZY = 1e-3
"""Features that move less than this, relatively, hardly move."""


class Scale(NamedTuple):
    """Standard deviation of the weights of the first layer, and the width that a prototype needed."""

    deviation: float
    width: int


SCALES = (Scale(1.0, 7100), Scale(3.0, 1260), Scale(10.0, 630))


def width(
    scales: Sequence[Scale] = SCALES,
    repeats: int = 3,
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
    rows: int = 50,
) -> Experiment:
    """The least width at which ``feed-forward/local`` holds at random weights with a readout of 0, and descent from there."""
    X, Y = digits(rows, classes=False)
    X = X / torch.linalg.vector_norm(X, dim=1, keepdim=True)
    loss = SquaredLoss(X, Y)
    found: dict[Scale, list[tuple[float, float] | None]] = {}
    lines: list[tuple[Cell, ...]] = []
    for scale in scales:
        for repeat in range(repeats):
            progress(f"standard deviation {scale.deviation:g}: seed {seed + repeat}")
            weights = _weights(scale, X.shape[1], seed + repeat)
            least = first_certified(lambda more, W=weights: _certificate(W, rows + more, loss), LARGEST - rows)
            found.setdefault(scale, []).append(
                None if least is None else (rows + least[0], least[1].iterations_to(TARGET))
            )
            if repeat == 0 and least is not None:
                lines.append(_descent(scale, weights, rows + least[0], loss))
    widths = Table(
        "least width",
        ("standard deviation", "certified", "width", "prototype's", "guaranteed"),
        tuple(_row(scale, draws) for scale, draws in found.items()),
    )
    descents = Table(
        "descent",
        ("standard deviation", "width", "guaranteed", "certified-bb steps", "floor steps", "moved", "audit violations"),
        tuple(lines),
    )
    return Experiment(
        name="feed-forward/width",
        title="The width from which on a fit is guaranteed before training",
        reference="surefoot, docs/theorems/feed-forward.md, Theorem A (no paper)",
        tables=(widths, descents),
        figures=(),
        findings=_findings(widths, descents, scales),
        settings={
            "data": f"digits, the first {rows} rows, columns standardised over those rows, then rows of norm 1; parity",
            "network": "one hidden layer of tanh, no biases; W ~ N(0, g²), readout 0",
            "search": f"W is drawn once with {LARGEST} rows, and a network of width m has the first m; m - {rows} is doubled "
            "until the certificate holds, then bisected. It is certified at the width found; that no smaller one would be is "
            "taken for granted",
            "descent": f"seed {seed}, that width, to a gap of {TARGET:g} of the first",
            "repeats": f"{repeats}; medians over them",
        },
    )


def _weights(scale: Scale, inputs: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale.deviation * torch.randn(LARGEST, inputs, dtype=torch.float64, generator=generator)


def _network(weights: Tensor, size: int) -> nn.Sequential:
    inputs = weights.shape[1]
    net = nn.Sequential(
        nn.Linear(inputs, size, bias=False, dtype=torch.float64),
        nn.Tanh(),
        nn.Linear(size, 1, bias=False, dtype=torch.float64),
    )
    with torch.no_grad():
        first, readout = net.parameters()
        first.copy_(weights[:size])
        readout.zero_()
    return net


def _certificate(weights: Tensor, size: int, loss: SquaredLoss) -> Certificate:
    return certify(_network(weights, size), loss)


def _descent(scale: Scale, weights: Tensor, size: int, loss: SquaredLoss) -> tuple[Cell, ...]:
    assert loss.samples is not None
    X = torch.as_tensor(loss.samples[0])
    guaranteed = _certificate(weights, size, loss).iterations_to(TARGET)
    counts: list[int] = []
    violations, change = 0, 0.0
    for rule in ("certified-bb", "floor"):
        net = _network(weights, size)
        start = features(net, X)
        run = descend(net, loss, rule, int(guaranteed), TARGET, progress=False)
        counts.append(run.iterations)
        violations += run.audit().violations
        change = max(change, *moved(start, features(net, X)))
    return scale.deviation, size, guaranteed, *counts, change, violations


def _row(scale: Scale, draws: Sequence[tuple[float, float] | None]) -> tuple[Cell, ...]:
    return (
        scale.deviation,
        f"{sum(draw is not None for draw in draws)} of {len(draws)}",
        median(None if draw is None else draw[0] for draw in draws),
        scale.width,
        median(None if draw is None else draw[1] for draw in draws),
    )


def _findings(widths: Table, descents: Table, scales: Sequence[Scale]) -> tuple[Finding, ...]:
    records, runs = widths.records(), descents.records()
    small = [r for r in records if r["width"] is not None and float(r["width"]) <= NEAR * float(r["prototype's"] or 0)]
    kept = [r for r in runs if not r["audit violations"] and _steps(r) <= float(r["guaranteed"] or 0)]
    largest = max((float(r["moved"] or 0.0) for r in runs), default=0.0)
    return (
        Finding(
            "Before training a width of that found with a prototype is enough.",
            "; ".join(f"{r['width']:.0f} for {r['standard deviation']:g}" for r in records if r["width"] is not None)
            or "no width was",
            len(small) == len(scales),
            f"At most {NEAR:g} times the prototype's, in the median.",
        ),
        Finding(
            "Descent keeps what is guaranteed.",
            f"{len(kept)} of {len(runs)} runs",
            len(kept) == len(runs) if runs else None,
            "Floor steps and certified-bb; every inequality is checked at every step.",
        ),
        Finding(
            "It is lazy: the features do not move, and the readout alone is trained.",
            f"by {largest:.1e}, relatively, at most" if runs else "none was descended from",
            largest <= LAZY if runs else None,
            f"By at most {LAZY:g}. At this width a guarantee says nothing of learnt features; after training it does.",
        ),
    )


def _steps(record: dict[str, Cell]) -> float:
    return max(float(record[name] or 0) for name in ("certified-bb steps", "floor steps"))
