"""From which iteration on convergence is certified, beside Theorem 3.1."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch

from surefoot._core.certificate import Certificate
from surefoot._core.descent import certify, descend
from surefoot._core.losses import SquaredLoss
from surefoot._linear_resnet import planner
from surefoot._linear_resnet.network import LinearResNet, sufficient_alpha
from surefoot_check.linear_resnet import gd as linear_resnet_gd
from surefoot_check.linear_resnet import local as linear_resnet_local

from .draws import repeat_generator
from .linear_resnet_instances import (
    OPEN,
    PAPER,
    TARGET,
    first_iterate,
    opposing_data,
    reached,
    theorem_step,
)
from .linear_resnet_remarks import remarks_findings, widths_table
from .result import Cell, Experiment, Finding, Progress, Table
from .summaries import median

LOCAL, GD = linear_resnet_local.THEOREM.id, linear_resnet_gd.THEOREM.id


class Kind(NamedTuple):
    """A network: width, depth, and α of the modified identity (``None``: Gaussian; "3.1": the smallest for Theorem 3.1)."""

    width: int
    depth: int
    alpha: float | Literal["3.1"] | None = None

    @property
    def label(self) -> str:
        """As in the table."""
        if self.alpha is None:
            name = "Gaussian"
        else:
            name = "modified identity, alpha " + ("of 3.1" if self.alpha == "3.1" else f"{self.alpha:g}")
        return f"{name}, m = {self.width}, L = {self.depth}"

    def network(self, loss: SquaredLoss, generator: torch.Generator) -> LinearResNet:
        """With zero weights."""
        d, k = loss.shape
        if self.alpha is None:
            return LinearResNet.gaussian(d, k, self.width, self.depth, generator=generator)
        alpha = smallest_alpha(loss) * (1.0 + 1e-6) if self.alpha == "3.1" else self.alpha
        return LinearResNet.modified_identity(d, k, self.width, self.depth, alpha)


NETWORKS = (
    Kind(200, 10),
    Kind(40, 10),
    Kind(40, 10, 2.0),
    Kind(40, 10, 27.0),
    Kind(40, 10, "3.1"),
)
DEEP = (Kind(200, 100), *NETWORKS)


@dataclass
class _Series:
    """One network over the repeats."""

    first: list[float] = field(default_factory=list)
    relative: list[float] = field(default_factory=list)
    guaranteed: list[float] = field(default_factory=list)
    executed: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    theorem: list[float] = field(default_factory=list)
    violations: int = 0


def first_certified(certified: Callable[[int], Certificate], last: int) -> tuple[int, Certificate] | None:
    """The first iteration up to ``last`` whose certificate holds: doubling until one does, then bisection.

    Bisection takes for granted that later iterates are certified once one is; the iteration found is certified in any case.
    """
    low, high, certificate = -1, 0, certified(0)
    while not certificate.holds:
        if high == last:
            return None
        low, high = high, min(max(1, 2 * high), last)
        certificate = certified(high)
    while high - low > 1:
        middle = (low + high) // 2
        candidate = certified(middle)
        if candidate.holds:
            high, certificate = middle, candidate
        else:
            low = middle
    return high, certificate


def certified(
    networks: Sequence[Kind] = DEEP,
    repeats: int = 5,
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
    d: int = 10,
    samples: int = 1000,
    limit: int = 5000,
) -> Experiment:
    """Theorem 3.1's step until ``linear-resnet/local`` holds, certified steps from there on; Theorem 3.1 beside it."""
    series: dict[str, _Series] = {}
    smallest: list[float] = []
    sufficient: list[float] = []
    kappas: list[float] = []
    distances: list[float] = []
    for kind in networks:
        progress(f"{kind.label}: {repeats} repeats")
        s = series.setdefault(kind.label, _Series())
        for repeat in range(repeats):
            generator = repeat_generator(seed, repeat)
            loss = opposing_data(generator, d=d, samples=samples)
            if kind is networks[0]:
                sufficient.append(sufficient_alpha(loss))
                smallest.append(smallest_alpha(loss))
                kappas.append(loss.smoothness / loss.strong_convexity)
                distances.append(float(torch.linalg.matrix_norm(loss.optimum - torch.eye(d, dtype=torch.float64))))
            _one_repeat(s, kind.network(loss, generator), loss, limit)
    rows = tuple(_row(label, s, repeats) for label, s in series.items())
    columns = (
        "network",
        "certified in",
        "first certified iteration",
        "relative gap there",
        "guaranteed",
        "executed",
        "executed, 3.1's step",
        "guaranteed by 3.1",
        "audit violations",
    )
    table = Table("certified convergence", columns, rows)
    widths = widths_table(kappas, sorted({kind.depth for kind in networks}), d)
    return Experiment(
        name="linear-resnet/certified",
        title="From which iteration on convergence is certified",
        reference=f"{PAPER}, Theorem 3.1, on the data of section 5",
        tables=(table, widths),
        figures=(),
        findings=(*_findings(table, series, smallest, sufficient), *remarks_findings(widths, distances)),
        settings={
            **OPEN,
            "d = k": d,
            "samples": samples,
            "repeats": f"{repeats}; medians over them",
            "iterations": f"to the relative gap {TARGET:g} of the start, from the start",
            "first certified iteration": "by doubling and bisection",
            "steps": "that of Theorem 3.1 until certified, certified Barzilai-Borwein steps from there on",
        },
    )


def smallest_alpha(loss: SquaredLoss) -> float:
    """The α that Theorem 3.1 needs for the modified identity on this loss."""
    gap = loss.gap(torch.zeros_like(loss.optimum))
    return planner.smallest_alpha(gap, math.sqrt(loss.smoothness), math.sqrt(loss.strong_convexity))


def _one_repeat(s: _Series, net: LinearResNet, loss: SquaredLoss, limit: int) -> None:
    iterates, eta = [first_iterate(net, loss)], theorem_step(net, loss)
    goal = TARGET * iterates[0].gap
    while len(iterates) <= limit and iterates[-1].gap > goal:
        iterates.append(iterates[-1].after(eta))
    gaps = [iterate.gap for iterate in iterates]

    def net_at(iteration: int) -> LinearResNet:
        return LinearResNet(iterates[iteration].A, iterates[iteration].B, iterates[iteration].W)

    s.plain.append(reached(gaps))
    s.theorem.append(certify(net, loss, GD).iterations_to(TARGET))
    earliest = first_certified(lambda t: certify(net_at(t), loss.reduced, LOCAL), len(gaps) - 1)
    if earliest is None:
        for values in (s.first, s.relative, s.guaranteed, s.executed):
            values.append(math.inf)
        return
    first, certificate = earliest
    run = descend(
        net_at(first),
        loss.reduced,
        max_iterations=limit,
        tolerance=0.0,
        absolute_tolerance=goal,
        certificate=certificate,
        progress=False,
    )
    s.first.append(float(first))
    s.relative.append(gaps[first] / gaps[0])
    s.guaranteed.append(first + certificate.iterations_to(min(1.0, goal / certificate.initial_gap)))
    s.executed.append(first + (float(run.iterations) if run.gaps[-1] <= goal else math.inf))
    s.violations += sum(not line.holds for line in run.audit().lines)


def _row(label: str, s: _Series, repeats: int) -> tuple[Cell, ...]:
    count = sum(map(math.isfinite, s.first))
    medians = (median(v) for v in (s.first, s.relative, s.guaranteed, s.executed, s.plain, s.theorem))
    return label, f"{count} of {repeats}", *medians, s.violations


def _findings(
    table: Table, series: Mapping[str, _Series], smallest: list[float], sufficient: list[float]
) -> tuple[Finding, ...]:
    records = table.records()
    held = [str(r["network"]) for r in records if r["guaranteed by 3.1"] is not None]
    ours = [r for r in records if r["first certified iteration"] is not None]
    runs = [run for s in series.values() for run in zip(s.executed, s.guaranteed, strict=True) if math.isfinite(run[1])]
    kept = [executed <= guaranteed for executed, guaranteed in runs]
    violations = sum(int(r["audit violations"] or 0) for r in records)
    factors = [
        float(r["guaranteed by 3.1"]) / float(r["guaranteed"])
        for r in ours
        if r["guaranteed by 3.1"] is not None and r["guaranteed"] is not None
    ]
    return (
        Finding(
            "Theorem 3.1 guarantees global convergence from zero weights where its condition holds.",
            f"it holds for {', '.join(held)}" if held else "it holds for none of these networks",
            None,
            "Its hypothesis can be met by a large alpha (section 4), and asymptotically by width (Corollary 3.4); the "
            "widths of the experiments are far below that.",
        ),
        Finding(
            "(Not in the paper: certified along the trajectory.)",
            f"{len(ours)} of {len(records)} networks are certified, after "
            + ", ".join(f"{r['first certified iteration']:g}" for r in ours)
            + " iterations",
            None,
            "linear-resnet/local is evaluated at the current weights, where the gap is smaller than at the start.",
        ),
        Finding(
            "Certified runs keep their guarantee.",
            f"{sum(kept)} of {len(kept)} certified runs need at most the guaranteed iterations; {violations} audit violations"
            + (f"; 3.1 guarantees {min(factors):.1f} times as many iterations where it holds" if factors else ""),
            all(kept) and violations == 0,
            "Every inequality of the certificate is checked at every step.",
        ),
        Finding(
            "(Not in the paper: how large alpha has to be for a guarantee from the start.)",
            f"Theorem 3.1: {median(smallest):.1f}; linear-resnet/local, in closed form: {median(sufficient):.1f}",
            None,
            "Both for the modified identity on these data; the local theorem needs no condition number.",
        ),
    )
