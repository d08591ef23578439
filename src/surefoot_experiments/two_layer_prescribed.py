"""Guaranteed and taken iterations from certifiable weights on real data, and how lazy the training is that they are of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from surefoot._core.descent import certify, descend
from surefoot._core.losses import LinearMapLoss, SquaredLoss
from surefoot._core.softmax import SoftmaxRegression
from surefoot._data.errors import MissingSourceError
from surefoot._two_layer.network import TwoLayerLinear
from surefoot.data import load

from .feed_forward_cases import TABLES
from .result import Cell, Experiment, Finding, Progress, Table
from .two_layer_instances import DRIFT

PRESCRIBED = "two-layer/prescribed"
BUNDLED = ("digits", "diabetes")
"""Data that scikit-learn has."""
L2 = 0.01
"""Penalty of the softmax loss."""
COLUMNS = (
    "data",
    "κ",
    "scale",
    "weights moved, %",
    "guaranteed",
    "taken",
    "drift",
    "drift, Gaussian",
    "theorem",
    "target",
)


class Case(NamedTuple):
    """A run, in plain values.

    ``data``: a set of ``BUNDLED``, or a table of ``TABLES``. ``moved``: how far the weights shall move, relative to their norm.
    ``most``: the count that is expected to be guaranteed at most, and ``least`` the movement at
    least that is expected with it; ``None`` where nothing is. ``softmax``: of the classes, by the drift theorem.
    """

    data: str
    moved: float
    most: int | None = None
    least: float = 0.0
    softmax: bool = False
    target: float = 1e-10

    @property
    def name(self) -> str:
        """As in the table."""
        return f"{self.data}, softmax" if self.softmax else self.data


CASES = (
    Case("digits", 0.0201, 150, 0.02),
    Case("digits", 0.01),
    Case("digits", 0.006, 75, 0.005),
    Case("diabetes", 0.002),
    Case("yacht", 0.01, 90, 0.002),
    Case("wine", 0.01, 40, 0.002),
    Case("concrete", 0.01, 75, 0.002),
    Case("airfoil", 0.01, 25, 0.002),
    Case("autompg", 0.01, 120, 0.002),
    Case("forest", 0.01),
    Case("digits", 0.0021, 3500, 0.002, softmax=True, target=1e-4),
)


class Row(NamedTuple):
    """What came of a case."""

    case: Case
    condition: float
    scale: float
    moved: float
    guaranteed: float
    taken: float
    drift: float
    gaussian: float
    violations: int


def prescribed(
    cases: Sequence[Case] = CASES,
    width: int = 1000,
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
    data: Path | None = None,
) -> Experiment:
    """Prescribed steps from certifiable weights, beside the drift theorem there and at Gaussian weights of ``width``."""
    if data is not None and not data.is_dir():
        raise MissingSourceError(f"{data} is not a directory; pass the one that holds {TABLES}")
    usable = data is not None and (data / TABLES).is_file()
    used = [case for case in cases if case.data in BUNDLED or usable]
    rows = []
    for case in used:
        progress(f"{case.name}: weights that move by {100.0 * case.moved:g} %")
        rows.append(_row(case, _loss(case, data), width, seed))
    absent = sorted({case.data for case in cases if case not in used})
    left = f"; left out, as --data names no directory that holds {TABLES}: {', '.join(absent)}" if absent else ""
    return Experiment(
        name="two-layer/prescribed",
        title="Iterations guaranteed before training, and taken, from certifiable weights",
        reference="no paper: Theorem A of docs/theorems/two-layer-prescribed.md, and Theorems II and III beside it",
        tables=(Table("guaranteed and taken", COLUMNS, tuple(_cells(row) for row in rows)),),
        figures=(),
        findings=_findings(rows),
        settings={
            "data": f"train rows, columns standardised over them, classes one-hot, targets centred{left}",
            "weights": "a multiple of n + m orthonormal rows, width n + m",
            "weights moved": "‖final − initial‖/‖initial‖, in Frobenius norms",
            "target": "relative gap",
            "drift": f"{DRIFT} at the same weights; Gaussian: at N(0, 1/width), width {width}",
            "softmax": f"penalty {L2:g}, for which {PRESCRIBED} says nothing: {DRIFT}",
        },
    )


def _loss(case: Case, directory: Path | None) -> LinearMapLoss:
    source = case.data if case.data in BUNDLED else f"{directory}/{TABLES}:{case.data}"
    table = load(source).standardise()
    if case.softmax:
        train = table.train()
        assert train.labels is not None
        return SoftmaxRegression(train.X, train.labels, L2)
    train = (table.one_hot() if table.Y is None else table.centre_targets()).train()
    return SquaredLoss(train.X, train.Y)


def _row(case: Case, loss: LinearMapLoss, width: int, seed: int) -> Row:
    theorem = DRIFT if case.softmax else PRESCRIBED
    net = TwoLayerLinear.certifiable(loss, theorem=theorem, moved=case.moved, seed=seed)
    scale = float(net.W1.detach()[0].norm())
    certificate = certify(net, loss, theorem)
    drift = certify(net, loss, DRIFT)
    drawn = TwoLayerLinear.gaussian(*loss.shape, width, std=width**-0.5, seed=seed)
    run = descend(net, loss, certificate=certificate, tolerance=case.target, max_iterations=100_000, progress=False)
    return Row(
        case,
        loss.smoothness / loss.strong_convexity,
        scale,
        math.nan if run.moved is None else run.moved,
        certificate.iterations_to(case.target),
        run.iterations if run.gaps[-1] <= case.target * run.gaps[0] else math.inf,
        drift.iterations_to(case.target),
        certify(drawn, loss, DRIFT).iterations_to(case.target),
        run.audit().violations,
    )


def _cells(row: Row) -> tuple[Cell, ...]:
    counts = (row.guaranteed, row.taken, row.drift, row.gaussian)
    theorem = DRIFT if row.case.softmax else PRESCRIBED
    return (
        row.case.name,
        row.condition,
        row.scale,
        100.0 * row.moved,
        *(value if math.isfinite(value) else None for value in counts),
        theorem.removeprefix("two-layer/"),
        row.case.target,
    )


def _findings(rows: Sequence[Row]) -> tuple[Finding, ...]:
    kept = [row.taken <= row.guaranteed < math.inf and row.violations == 0 for row in rows]
    expected = [row for row in rows if row.case.most is not None]
    met = [row for row in expected if row.guaranteed <= (row.case.most or 0) and row.moved >= row.case.least]
    ours = [row for row in rows if not row.case.softmax and math.isfinite(row.guaranteed)]
    closest = [row.guaranteed / row.taken for row in ours if row.taken]
    fewer = [row.gaussian / row.guaranteed for row in ours if math.isfinite(row.gaussian)]
    return (
        Finding(
            "(Not in the paper: runs take at most as many iterations as were guaranteed before training.)",
            f"{sum(kept)} of {len(rows)} runs, with {sum(row.violations for row in rows)} audit violations",
            all(kept),
            "The steps are those of the certificate, and every inequality of its theorem is checked at every step.",
        ),
        Finding(
            "(Not in the paper: the guarantee is close to what is taken, and its price is lazy training.)",
            f"guaranteed {_span(closest)} times the iterations taken, while the weights moved by "
            f"{_span([100 * row.moved for row in ours])} % of their norm; from Gaussian weights {_span(fewer)} times as many "
            "are guaranteed",
            None,
            "A larger scale guarantees a few iterations less and moves the weights less.",
        ),
        Finding(
            "(Not in the paper: counts that were expected, at movements of the weights that were expected.)",
            "; ".join(
                f"{row.case.name} {row.guaranteed:g} at {100 * row.moved:.3g} % "
                f"(at most {row.case.most:,} at {100 * row.case.least:g} % or more)"
                for row in expected
            ),
            len(met) == len(expected),
            "Set before these runs, from a prototype of the theorem.",
        ),
    )


def _span(values: Sequence[float]) -> str:
    return f"{min(values):.3g} to {max(values):.3g}" if values else "no"
