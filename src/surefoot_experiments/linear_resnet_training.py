"""Figure 1: input and output transformations (a, b), and ResNets beside standard deep linear networks (c, d)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from surefoot._core.losses import SquaredLoss
from surefoot._linear_resnet.network import LinearNet, LinearResNet
from surefoot._report import charts

from .draws import repeat_generator
from .finished import Part, kept_all
from .linear_resnet_instances import (
    FACTORS,
    OPEN,
    PAPER,
    TARGET,
    Gaps,
    Network,
    best_step,
    descent,
    opposing_data,
    reached,
    theorem_step,
    unit_step,
)
from .result import Experiment, Finding, Plot, Progress, Table
from .summaries import median

if TYPE_CHECKING:
    from matplotlib.figure import Figure

THEOREM, GRID = "Theorem 3.1", "best of the grid"
IDENTITY, MODIFIED, GAUSSIAN = "identity", "modified identity", "Gaussian"
STUCK = 1e-3
"""A relative gap above this, where the other transformations have long reached the target, counts as being stuck."""
PLATEAU = 1000
"""Identity transformations have left the plateau where the gap is half of what it was after this many iterations."""
SIMILAR = 1.25
"""Iteration counts of several depths within this ratio count as quite similar."""

SINGLE = (
    " One layer is a quadratic problem, where steps above two unit steps diverge; more layers can take larger ones."
)


@dataclass
class _Series:
    """One network under one choice of step, over the repeats; factors are multiples of the unit step."""

    gaps: list[Gaps] = field(default_factory=list)
    factors: list[float] = field(default_factory=list)

    def add(self, factor: float, gaps: Gaps) -> None:
        self.gaps.append(gaps)
        self.factors.append(factor)

    @property
    def relative(self) -> list[Gaps]:
        """Gaps over the initial one."""
        return [[gap / gaps[0] for gap in gaps] for gaps in self.gaps]

    @property
    def counts(self) -> list[float]:
        """Iterations to the target."""
        return [reached(gaps) for gaps in self.gaps]

    @property
    def iterations(self) -> float:
        """Median of the iterations to the target."""
        value = median(self.counts)
        return math.inf if value is None else value

    @property
    def order(self) -> tuple[float, float]:
        """Smaller is faster: iterations, and the last relative gap where the target was not reached."""
        return self.iterations, math.inf if self.final is None else self.final

    @property
    def final(self) -> float | None:
        """Median of the last relative gap."""
        return median([gaps[-1] for gaps in self.relative])


Runs = dict[tuple[str, str], _Series]
"""By network and choice of step."""


def _both_steps(
    runs: Runs, label: str, net: Network, loss: SquaredLoss, factors: Sequence[float], tuning: int, limit: int
) -> None:
    """Run a network with the theorem's step and with the best of the grid, chosen by runs of ``tuning`` iterations."""
    unit = unit_step(net, loss)
    eta = theorem_step(net, loss)
    runs.setdefault((label, THEOREM), _Series()).add(eta / unit, descent(net, loss, eta, limit))
    tuned = best_step(net, loss, unit, factors, min(tuning, limit))
    factor, gaps = tuned.factor, tuned.gaps
    if math.isinf(reached(gaps)) and limit > tuning:
        # a step that looked best after a few iterations may diverge later: then the next smaller one
        for factor in sorted((c for c in factors if c <= tuned.factor), reverse=True):
            gaps = descent(net, loss, factor * unit, limit)
            if gaps[-1] <= gaps[0]:
                break
    runs.setdefault((label, GRID), _Series()).add(factor, gaps)


def _table(runs: Runs) -> Table:
    rows = tuple(
        (label, step, median(s.factors), median(s.counts), s.final, median([float(len(g) - 1) for g in s.gaps]))
        for (label, step), s in runs.items()
    )
    return Table("runs", ("network", "step", "step / unit step", "iterations", "last relative gap", "run for"), rows)


def _settings(repeats: int, limit: int, factors: Sequence[float], tuning: int) -> dict[str, object]:
    return {
        **OPEN,
        "repeats": f"{repeats}; numbers are medians over them (open in the paper)",
        "iterations at most": limit,
        "unit step": "1/(L |A|^2 |B|^2 |X|^2)",
        "grid of steps": f"{min(factors):.3g} to {max(factors):.3g} unit steps, {len(factors)} values",
        "choice from the grid": f"fewest iterations to the target, else the smallest gap after {tuning} iterations",
        "Gaussian": "A ~ N(0, 1/m), B ~ N(0, 1/k)",
    }


def transformations(
    name: str,
    width: int,
    repeats: int = 5,
    limit: int = 50_000,
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
    d: int = 10,
    depth: int = 10,
    samples: int = 1000,
    factors: Sequence[float] = FACTORS,
    tuning: int = 500,
) -> Experiment:
    """Three input and output transformations of a ResNet of the given width, with α = sqrt(m/k) for both identities."""
    common = {"width": width, "d": d, "depth": depth, "samples": samples, "seed": seed}
    common |= {"factors": list(factors), "tuning": tuning, "limit": limit}
    parts = [
        Part(f"width {width}: repeat {repeat + 1} of {repeats}", {}, {**common, "repeat": repeat})
        for repeat in range(repeats)
    ]
    found = kept_all(None, "", parts, transformed, progress)
    runs = _collected(found)
    losses = {label: [one["losses"][label] for one in found] for label in (IDENTITY, MODIFIED, GAUSSIAN)}
    controls = _controls(seed, width, d, depth, samples, limit, progress)
    starts = Table("initial loss", ("network", "initial loss"), tuple((k, median(v)) for k, v in losses.items()))
    return Experiment(
        name=name,
        title=f"Input and output transformations, width {width}",
        reference=f"{PAPER}, section 5.1, Figure 1({name[-1]})",
        tables=(_table(runs), starts, controls),
        figures=(Plot(f"{name.split('/')[1]}-transformations.png", lambda: _draw(runs, f"m = {width}, L = {depth}")),),
        findings=_transformation_findings(runs, losses, controls),
        settings={
            **_settings(repeats, limit, factors, tuning),
            "d = k": d,
            "samples": samples,
            "width": width,
            "depth": depth,
            "scale of B": "sqrt(m/k) for both identities (open in the paper for the modified one)",
        },
    )


def transformed(
    width: int,
    d: int,
    depth: int,
    samples: int,
    seed: int,
    repeat: int,
    factors: Sequence[float],
    tuning: int,
    limit: int,
) -> dict[str, Any]:
    """One repeat of ``transformations``: its runs, and the initial losses."""
    generator = repeat_generator(seed, repeat)
    loss = opposing_data(generator, d=d, samples=samples)
    networks = {
        MODIFIED: LinearResNet.modified_identity(d, d, width, depth, math.sqrt(width / d)),
        GAUSSIAN: LinearResNet.gaussian(d, d, width, depth, generator=generator),
        IDENTITY: LinearResNet.identity(d, d, width, depth),
    }
    runs: Runs = {}
    losses: dict[str, float] = {}
    for label, net in networks.items():
        losses[label] = loss.value(net.end_to_end().detach())
        _both_steps(runs, label, net, loss, factors, tuning, limit)
    return {"runs": _plain(runs), "losses": losses}


def _plain(runs: Runs) -> list[list[Any]]:
    """Of one repeat, as messages hold them."""
    return [[*key, series.factors[0], series.gaps[0]] for key, series in runs.items()]


def _collected(found: Sequence[dict[str, Any]]) -> Runs:
    """The runs of all repeats."""
    runs: Runs = {}
    for label, step, factor, gaps in (one for part in found for one in part["runs"]):
        runs.setdefault((label, step), _Series()).add(factor, gaps)
    return runs


def escape(gaps: Gaps) -> float:
    """First iteration at which the gap is half of that at ``PLATEAU``; ``inf`` if there is none or the run ended before."""
    level = 0.5 * gaps[PLATEAU] if len(gaps) > PLATEAU else 0.0
    return next((float(t) for t, gap in enumerate(gaps) if gap < level), math.inf)


def _controls(seed: int, width: int, d: int, depth: int, samples: int, limit: int, progress: Progress) -> Table:
    """The identity transformation without noise, and in an odd dimension: there it has no way out."""
    rows: list[tuple[int, float, float | None, float | None, float]] = []
    common = {"seed": seed, "width": width, "depth": depth, "samples": samples, "limit": limit}
    parts = [
        Part(f"identity, d = {size}, noise {noise:g}", {}, {**common, "size": size, "noise": noise})
        for size, noise in ((d, 0.1), (d, 0.0), (d - 1, 0.1))
    ]
    for part, found in zip(parts, kept_all(None, "", parts, control, progress), strict=True):
        size, noise, gaps = part.arguments["size"], part.arguments["noise"], found["gaps"]
        plateau = gaps[PLATEAU] / gaps[0] if len(gaps) > PLATEAU else None
        rows.append((size, noise, plateau, median([escape(gaps)]), gaps[-1] / gaps[0]))
    columns = ("d = k", "noise", f"relative gap at {PLATEAU}", "left the plateau at", "last relative gap")
    return Table("identity with the unit step", columns, tuple(rows))


def control(seed: int, size: int, noise: float, width: int, depth: int, samples: int, limit: int) -> dict[str, Any]:
    """One of ``_controls``."""
    loss = opposing_data(repeat_generator(seed, 0), d=size, samples=samples, noise=noise)
    net = LinearResNet.identity(size, size, width, depth)
    return {"gaps": descent(net, loss, unit_step(net, loss), limit)}


def _transformation_findings(runs: Runs, losses: Mapping[str, list[float]], controls: Table) -> tuple[Finding, ...]:
    others = [runs[label, step].iterations for label in (MODIFIED, GAUSSIAN) for step in (THEOREM, GRID)]
    slowest = max(others)
    stuck = runs[IDENTITY, THEOREM].relative
    at = [gaps[min(len(gaps) - 1, int(min(slowest, len(gaps) - 1)))] for gaps in stuck]
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
            f"relative gap {median(at):.2g} when the slower of the others is at {TARGET:g}"
            + (f", {final:.2g} at the end" if final is not None else ""),
            min(at) > STUCK,
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


def depths(
    name: str,
    width: int,
    layers: Sequence[int],
    repeats: int = 3,
    limit: int = 1500,
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
    d: int = 10,
    samples: int = 1000,
    factors: Sequence[float] = FACTORS,
    tuning: int = 300,
) -> Experiment:
    """A ResNet beside standard networks of several depths, all with Gaussian A and B of the same distribution."""
    common = {"width": width, "d": d, "samples": samples, "seed": seed}
    common |= {"factors": list(factors), "tuning": tuning, "limit": limit}
    parts = [
        Part(
            f"width {width}, depth {depth}: repeat {repeat + 1} of {repeats}",
            {},
            {**common, "depth": depth, "repeat": repeat},
        )
        for repeat in range(repeats)
        for depth in layers
    ]
    runs = _collected(kept_all(None, "", parts, deepened, progress))
    labels = [_residual(layers[-1]), *map(_standard, layers)]
    shown = {(label, step): runs[label, step] for label in labels for step in (THEOREM, GRID)}
    return Experiment(
        name=name,
        title=f"ResNets and standard deep linear networks, width {width}",
        reference=f"{PAPER}, section 5.2, Figure 1({name[-1]})",
        tables=(_table(runs),),
        figures=(Plot(f"{name.split('/')[1]}-depths.png", lambda: _draw(shown, f"m = {width}")),),
        findings=_depth_findings(runs, layers),
        settings={
            **_settings(repeats, limit, factors, tuning),
            "d = k": d,
            "samples": samples,
            "width": width,
            "depths": list(layers),
            "standard network": "W_l ~ N(0, 1/m), the same A and B, and the formula of Theorem 3.1 with its own initial loss",
        },
    )


def deepened(
    width: int,
    d: int,
    depth: int,
    samples: int,
    seed: int,
    repeat: int,
    factors: Sequence[float],
    tuning: int,
    limit: int,
) -> dict[str, Any]:
    """Both networks of one depth in one repeat of ``depths``."""
    generator = repeat_generator(seed, repeat)
    loss = opposing_data(generator, d=d, samples=samples)
    state = generator.get_state()
    residual = LinearResNet.gaussian(d, d, width, depth, generator=generator)
    generator.set_state(state)  # so that both networks have the same A and B
    standard = LinearNet.gaussian(d, d, width, depth, generator=generator)
    runs: Runs = {}
    _both_steps(runs, _residual(depth), residual, loss, factors, tuning, limit)
    _both_steps(runs, _standard(depth), standard, loss, factors, tuning, limit)
    return {"runs": _plain(runs)}


def _residual(depth: int) -> str:
    return f"ResNet, L = {depth}"


def _standard(depth: int) -> str:
    return f"standard, L = {depth}"


def _depth_findings(runs: Runs, layers: Sequence[int]) -> tuple[Finding, ...]:
    found: list[Finding] = []
    residual = {step: [runs[_residual(depth), step] for depth in layers] for step in (THEOREM, GRID)}
    standard = {step: [runs[_standard(depth), step] for depth in layers] for step in (THEOREM, GRID)}
    multiple = [s for s, depth in zip(residual[THEOREM], layers, strict=True) if depth > 1]
    counts = [s.iterations for s in multiple]
    found.append(
        Finding(
            "Depth hardly changes the convergence of ResNets.",
            f"iterations with the theorem's step {_listed(residual[THEOREM], layers)}; with the best step "
            f"{_listed(residual[GRID], layers)}",
            max(counts) <= SIMILAR * min(counts) if math.isfinite(max(counts)) else False,
            f"Agreement means counts within a ratio of {SIMILAR:g} from two layers on, with the theorem's step.",
        )
    )
    for step, series in standard.items():
        found.append(
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
    found.append(
        Finding(
            "ResNets converge faster than standard networks of the same depth.",
            f"not for {'; '.join(behind)}" if behind else "in every case from two layers on, with both steps",
            not behind,
            "Agreement means fewer iterations to the target, or a smaller gap where neither reaches it, at every depth above "
            "one and with both choices of the step.",
        )
    )
    return tuple(found)


def _listed(series: Sequence[_Series], layers: Sequence[int]) -> str:
    def text(s: _Series) -> str:
        return f"{s.iterations:.0f}" if math.isfinite(s.iterations) else f"not reached ({s.final or math.inf:.1g})"

    return ", ".join(f"{text(s)} (L = {depth})" for s, depth in zip(series, layers, strict=True))


def _draw(runs: Runs, title: str) -> Figure:
    figure, axes = charts.grid(1, 2, panel=(4.6, 3.4))
    labels = list(dict.fromkeys(label for label, _ in runs))
    for ax, step in zip(axes[0], (THEOREM, GRID), strict=True):
        curves = [
            charts.Curve(label, colour, runs[label, step].relative)
            for label, colour in zip(labels, charts.COLOURS, strict=False)
        ]
        heading = "step of Theorem 3.1" if step == THEOREM else "best step of a grid"
        charts.draw(ax, curves, title=heading, logarithmic=True)
    return charts.finish(figure, axes, f"Gradient descent, {title}", "relative gap (L(t)-L*)/(L(0)-L*)")
