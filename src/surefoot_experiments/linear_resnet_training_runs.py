"""Runs of transformations and depths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from surefoot._core.losses import SquaredLoss
from surefoot._linear_resnet.network import LinearNet, LinearResNet

from .draws import repeat_generator
from .linear_resnet_instances import (
    OPEN,
    Gaps,
    Network,
    best_step,
    descent,
    opposing_data,
    reached,
    theorem_step,
    unit_step,
)
from .summaries import median

THEOREM, GRID = "Theorem 3.1", "best of the grid"


IDENTITY, MODIFIED, GAUSSIAN = "identity", "modified identity", "Gaussian"


PLATEAU = 1000
"""Identity transformations have left the plateau where the gap is half of what it was after this many iterations."""


@dataclass
class Series:
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


Runs = dict[tuple[str, str], Series]
"""By network and choice of step."""


class Search(TypedDict):
    """Which steps are tried, in multiples of the unit step; iterations by which one is chosen, and those of a run at most."""

    factors: Sequence[float]
    tuning: int
    limit: int


def _both_steps(
    runs: Runs, label: str, net: Network, loss: SquaredLoss, factors: Sequence[float], tuning: int, limit: int
) -> None:
    """Run a network with the theorem's step and with the best of the grid, chosen by runs of ``tuning`` iterations."""
    unit = unit_step(net, loss)
    eta = theorem_step(net, loss)
    runs.setdefault((label, THEOREM), Series()).add(eta / unit, descent(net, loss, eta, limit))
    tuned = best_step(net, loss, unit, factors, min(tuning, limit))
    factor, gaps = tuned.factor, tuned.gaps
    if math.isinf(reached(gaps)) and limit > tuning:
        # a step that looked best after a few iterations may diverge later: then the next smaller one
        for factor in sorted((c for c in factors if c <= tuned.factor), reverse=True):
            gaps = descent(net, loss, factor * unit, limit)
            if gaps[-1] <= gaps[0]:
                break
    runs.setdefault((label, GRID), Series()).add(factor, gaps)


def common_settings(repeats: int, factors: Sequence[float], tuning: int, limit: int) -> dict[str, object]:
    """What the experiments on the gaps have in common, as their reports print it."""
    return {
        **OPEN,
        "repeats": f"{repeats}; numbers are medians over them (open in the paper)",
        "iterations at most": limit,
        "unit step": "1/(L |A|^2 |B|^2 |X|^2)",
        "grid of steps": f"{min(factors):.3g} to {max(factors):.3g} unit steps, {len(factors)} values",
        "choice from the grid": f"fewest iterations to the target, else the smallest gap after {tuning} iterations",
        "Gaussian": "A ~ N(0, 1/m), B ~ N(0, 1/k)",
    }


def transformed(width: int, d: int, depth: int, samples: int, seed: int, repeat: int, search: Search) -> dict[str, Any]:
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
        _both_steps(runs, label, net, loss, **search)
    return {"runs": _plain(runs), "losses": losses}


def _plain(runs: Runs) -> list[list[Any]]:
    """Of one repeat, as messages hold them."""
    return [[*key, series.factors[0], series.gaps[0]] for key, series in runs.items()]


def collected(repeats: Sequence[dict[str, Any]]) -> Runs:
    """The runs of all repeats."""
    runs: Runs = {}
    for label, step, factor, gaps in (run for repeat in repeats for run in repeat["runs"]):
        runs.setdefault((label, step), Series()).add(factor, gaps)
    return runs


def escape(gaps: Gaps) -> float:
    """First iteration at which the gap is half of that at ``PLATEAU``; ``inf`` if there is none or the run ended before."""
    level = 0.5 * gaps[PLATEAU] if len(gaps) > PLATEAU else 0.0
    return next((float(t) for t, gap in enumerate(gaps) if gap < level), math.inf)


def control(seed: int, size: int, noise: float, width: int, depth: int, samples: int, limit: int) -> dict[str, Any]:
    """One of ``_controls``."""
    loss = opposing_data(repeat_generator(seed, 0), d=size, samples=samples, noise=noise)
    net = LinearResNet.identity(size, size, width, depth)
    return {"gaps": descent(net, loss, unit_step(net, loss), limit)}


def deepened(width: int, d: int, depth: int, samples: int, seed: int, repeat: int, search: Search) -> dict[str, Any]:
    """Both networks of one depth in one repeat of ``depths``."""
    generator = repeat_generator(seed, repeat)
    loss = opposing_data(generator, d=d, samples=samples)
    state = generator.get_state()
    residual = LinearResNet.gaussian(d, d, width, depth, generator=generator)
    generator.set_state(state)  # so that both networks have the same A and B
    standard = LinearNet.gaussian(d, d, width, depth, generator=generator)
    runs: Runs = {}
    _both_steps(runs, residual_label(depth), residual, loss, **search)
    _both_steps(runs, standard_label(depth), standard, loss, **search)
    return {"runs": _plain(runs)}


def residual_label(depth: int) -> str:
    """A ResNet by depth."""
    return f"ResNet, L = {depth}"


def standard_label(depth: int) -> str:
    """A standard deep linear network by depth."""
    return f"standard, L = {depth}"
