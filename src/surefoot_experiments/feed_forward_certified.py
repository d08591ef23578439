"""From which step of a stock optimiser on an exact fit is guaranteed, for plain networks on digits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from surefoot._core import charts
from surefoot._core.certificate import Certificate
from surefoot._core.descent import certify, descend
from surefoot._core.losses import SquaredLoss
from surefoot._feed_forward.training import METHODS
from surefoot._feed_forward.watch import margin
from surefoot.data import load

from .result import Cell, Experiment, Finding, Plot, Progress, Table
from .summaries import median

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TARGET = 1e-10
"""Relative gap of the guaranteed counts, from where the certificate holds."""
FALL = 0.7
"""The weights are looked at again once the residual has fallen by this factor."""
RATIO = 1.5
"""A count may be so many times the largest of the targets."""
RADIUS = 0.01
"""Largest distance to the fit, relative to the norm of the weights."""


class Kind(NamedTuple):
    """A network and its training, with what was measured with a prototype: the latest step of three seeds, the largest count."""

    widths: tuple[int, ...]
    activation: type[nn.Module]
    rows: int
    latest: int
    most: float
    optimizer: str = "adam"
    classes: bool = False
    descends: bool = False

    @property
    def label(self) -> str:
        """As in the table."""
        task = "ten classes" if self.classes else "parity"
        widths = ",".join(map(str, self.widths))
        return f"{widths} {self.activation.__name__}, {task}, N = {self.rows}, {self.optimizer}"


QUICK = (
    Kind((50,), nn.Tanh, 50, 500, 2e4, descends=True),
    Kind((100, 100), nn.Tanh, 50, 300, 1.7e4, descends=True),
    Kind((100, 100), nn.Tanh, 50, 60, 5e3, "lbfgs"),
)
NETWORKS = (
    *QUICK,
    Kind((32, 32), nn.Tanh, 100, 1300, 4e5),
    Kind((100, 100), nn.ReLU, 100, 1600, 1e4),
    Kind((100, 100), nn.GELU, 100, 2300, 3e6, classes=True),
    Kind((64, 64, 64), nn.SiLU, 100, 1800, 8e4, descends=True),
)
"""Full-batch training from torch's initial weights."""


@dataclass(frozen=True)
class Draw:
    """One seed: the step at which a fit was guaranteed, if it was; what was guaranteed, and measured, from there."""

    steps: int | None
    guaranteed: float | None = None
    radius: float | None = None
    moved: float | None = None
    executed: int | None = None
    violations: int = 0
    history: list[tuple[int, float, float]] = field(default_factory=list)
    """Step, loss and margin of each look."""


def certified(
    networks: Sequence[Kind] = NETWORKS,
    repeats: int = 3,
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
    limit: int = 5000,
) -> Experiment:
    """Plain training until ``feed-forward/local`` holds, and for some networks certified descent from there."""
    found: list[tuple[Kind, list[Draw]]] = []
    for kind in networks:
        draws: list[Draw] = []
        for repeat in range(repeats):
            progress(f"{kind.label}: seed {seed + repeat}")
            draws.append(_draw(kind, seed + repeat, limit))
        found.append((kind, draws))
    columns = ("network", "certified", "step", "radius/|theta|", "moved", "guaranteed", "executed", "audit violations")
    rows = tuple(_row(kind.label, draws) for kind, draws in found)
    table = Table("guaranteed fits", columns, rows)
    history = found[0][1][0].history
    return Experiment(
        name="feed-forward/certified",
        title="From which step on an exact fit is guaranteed",
        reference="surefoot, docs/theorems/feed-forward.md, Theorem A (no paper)",
        tables=(table,),
        figures=(Plot("margin.png", lambda: draw_margin(networks[0].label, history)),),
        findings=_findings(found),
        settings={
            "data": "digits, the first N rows, columns standardised over those rows (constant ones dropped)",
            "targets": "1 for odd digits and -1 for even ones, or one-hot",
            "loss": "½‖f - Y‖², full batch",
            "initial weights": "torch's, in float64",
            "repeats": f"{repeats}; medians over them",
            "looked at": f"every {METHODS['adam'].calls} steps (lbfgs: {METHODS['lbfgs'].steps}), once the residual is {FALL} "
            "of that at the last look",
            "moved": "the largest ‖a - a(0)‖_F/‖a(0)‖_F of a hidden layer",
            "guaranteed, executed": f"iterations to a gap of {TARGET:g} of that where it was certified",
        },
    )


def data(rows: int, classes: bool) -> tuple[Tensor, Tensor]:
    """The first rows of digits."""
    digits = load("digits")
    assert isinstance(digits.X, Tensor) and digits.labels is not None
    X, labels = digits.X[:rows], digits.labels[:rows]
    spread = X.std(0)
    X = (X - X.mean(0))[:, spread > 0.0] / spread[spread > 0.0]
    if classes:
        return X, nn.functional.one_hot(labels, 10).double()
    return X, torch.where(labels % 2 == 1, 1.0, -1.0).double()[:, None]


def network(kind: Kind, inputs: int, outputs: int, seed: int) -> nn.Sequential:
    """With torch's initial weights."""
    modules: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for width in kind.widths:
            modules += [nn.Linear(inputs, width, dtype=torch.float64), kind.activation()]
            inputs = width
        modules.append(nn.Linear(inputs, outputs, dtype=torch.float64))
    return nn.Sequential(*modules)


def _features(net: nn.Sequential, X: Tensor) -> list[Tensor]:
    """Outputs of the hidden layers."""
    with torch.no_grad():
        return [nn.Sequential(*list(net.children())[:index])(X) for index in range(2, len(net), 2)]


def _draw(kind: Kind, seed: int, limit: int) -> Draw:
    X, Y = data(kind.rows, kind.classes)
    net, loss = network(kind, X.shape[1], Y.shape[1], seed), SquaredLoss(X, Y)
    start, history = _features(net, X), []
    found = _trained(kind, net, loss, limit, history)
    if found is None:
        return Draw(None, history=history)
    steps, certificate = found
    size = math.sqrt(sum(float(weight.detach().square().sum()) for weight in net.parameters()))
    changes = [float((a - b).norm() / b.norm()) for a, b in zip(_features(net, X), start, strict=True)]
    executed, violations = None, 0
    if kind.descends:
        run = descend(net, loss, max_iterations=100_000, tolerance=TARGET, certificate=certificate, progress=False)
        executed, violations = run.iterations, run.audit().violations
    assert certificate.radius is not None
    return Draw(
        steps, certificate.iterations_to(TARGET), certificate.radius / size, max(changes), executed, violations, history
    )


def _trained(
    kind: Kind, net: nn.Sequential, loss: SquaredLoss, limit: int, history: list[tuple[int, float, float]]
) -> tuple[int, Certificate] | None:
    """Train until a look finds a fit guaranteed: the step, and the certificate."""
    method = METHODS[kind.optimizer]
    optimizer = method.make(net.parameters(), method.rate)
    assert loss.samples is not None
    X, Y = (torch.as_tensor(part) for part in loss.samples)
    seen = math.inf

    def closure() -> float:
        optimizer.zero_grad()
        value = 0.5 * (net(X) - Y).square().sum()
        value.backward()
        return float(value.detach())

    for call in range(1, limit // method.steps + 1):
        optimizer.step(closure)
        if call % method.calls:
            continue
        with torch.no_grad():
            residual = float((net(X) - Y).norm())
        if residual <= FALL * seen:
            seen, certificate = residual, certify(net, loss)
            history.append((call * method.steps, certificate.initial_gap, margin(certificate)))
            if certificate.holds:
                return call * method.steps, certificate
    return None


def _row(label: str, draws: Sequence[Draw]) -> tuple[Cell, ...]:
    executed = [draw.executed for draw in draws if draw.executed is not None]
    return (
        label,
        f"{sum(draw.steps is not None for draw in draws)} of {len(draws)}",
        *(median(getattr(draw, name) for draw in draws) for name in ("steps", "radius", "moved", "guaranteed")),
        median(executed) if executed else None,
        sum(draw.violations for draw in draws) if executed else None,
    )


def _findings(found: Sequence[tuple[Kind, list[Draw]]]) -> tuple[Finding, ...]:
    early = [kind for kind, of in found if (median(draw.steps for draw in of) or math.inf) <= kind.latest]
    few = [kind for kind, of in found if (median(draw.guaranteed for draw in of) or math.inf) <= RATIO * kind.most]
    radii = [draw.radius for _, of in found for draw in of if draw.radius is not None]
    runs = [draw for _, of in found for draw in of if draw.executed is not None]
    loose = [draw.guaranteed / draw.executed for draw in runs if draw.guaranteed and draw.executed]
    kept = sum(1 for draw in runs if draw.violations == 0 and (draw.executed or 0) <= (draw.guaranteed or 0.0))
    return (
        Finding(
            "A fit is guaranteed by the step at which it was with a prototype.",
            f"{len(early)} of {len(found)} networks, in the median; late: "
            + (", ".join(kind.label for kind, _ in found if kind not in early) or "none"),
            len(early) == len(found),
            "The latest step of three seeds.",
        ),
        Finding(
            f"The guaranteed count is at most {RATIO} times the prototype's.",
            f"{len(few)} of {len(found)} networks, in the median",
            len(few) == len(found),
            "The largest count of three seeds.",
        ),
        Finding(
            "The fit lies near.",
            f"within {max(radii):.2g} of the norm of the weights" if radii else "nothing was certified",
            bool(radii) and max(radii) <= RADIUS,
            f"At most {RADIUS:g} of it.",
        ),
        Finding(
            "Descent from there keeps what is guaranteed.",
            f"{kept} of {len(runs)} runs; guaranteed counts are {min(loose):.1f} to {max(loose):.1f} times those executed"
            if loose
            else "none was descended from",
            kept == len(runs) if runs else None,
            "Certified Barzilai-Borwein steps; every inequality is checked at every step.",
        ),
    )


def draw_margin(label: str, history: Sequence[tuple[int, float, float]]) -> Figure:
    """The loss and the margin σ0²/(2Λr0) at each look."""
    figure, axes = charts.grid(1, 2, panel=(4.6, 3.4))
    steps = [step for step, _, _ in history]
    for ax, values, title in (
        (axes[0][0], [gap for _, gap, _ in history], "loss"),
        (axes[0][1], [found for _, _, found in history], "margin (guaranteed above 1)"),
    ):
        ax.plot(steps, values, color=charts.COLOURS[0], marker="o")
        ax.set_yscale("log")
        ax.set_xlabel("step of the optimiser")
        charts.style(ax, title)
    axes[0][1].axhline(1.0, color="black", linewidth=0.8)
    return charts.finish(figure, axes, label, "")
