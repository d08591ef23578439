"""Mini-batch SGD near an exact fit: guaranteed iterations beside those of runs, on data that a deep linear ResNet can fit."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from surefoot._core.certificate import Certificate
from surefoot._core.run import Run
from surefoot._core.sgd import certify, descend
from surefoot._core.status import RunStatus
from surefoot._data.loading import load
from surefoot._linear_resnet.network import LinearResNet
from surefoot._linear_resnet.sgd import INTERPOLATION_ID, certify_sgd
from surefoot_check.checker import check
from surefoot_check.verdict import Outcome

from .result import Cell, Experiment, Finding, Progress, Table
from .summaries import median

TARGET = 1e-7
DELTA = 0.01
ALPHAS = (5.0, 8.0, 10.0, 50.0, 15.0, 20.0, 400.0, 100.0, 200.0, 800.0)
"""Scales of the modified identity, in an order of which every third is the quick form."""
BATCHES = (1, 8, 32, 16, 353, 64, 128)
ALPHA, BATCH = 50.0, 32
COLUMNS = ("theorem", "guaranteed", "taken", "guaranteed/taken", "bound kept", "audit violations")


@dataclass(frozen=True)
class Case:
    """One certificate, its runs, and whether the checker accepts it; no runs where it does not hold."""

    certificate: Certificate
    runs: list[Run]
    accepted: bool

    @property
    def guaranteed(self) -> float | None:
        """Iterations to the target."""
        return self.certificate.iterations_to(TARGET) if self.certificate.holds else None

    @property
    def taken(self) -> float | None:
        """Median iterations to the target."""
        return median([run.iterations if run.status is RunStatus.CONVERGED else None for run in self.runs] or [None])

    @property
    def kept(self) -> int:
        """Runs whose every gap lies under the bound."""
        return sum(all(gap <= self.certificate.bound(t) for t, gap in enumerate(run.gaps)) for run in self.runs)

    @property
    def violations(self) -> int:
        """Of what holds whatever the batches."""
        return sum(run.audit().violations for run in self.runs)

    def row(self) -> tuple[Cell, ...]:
        """Its cells under ``COLUMNS``."""
        if not self.runs or not self.guaranteed or not self.taken:
            return "none", None, None, None, None, None
        which = "S" if self.certificate.quantities["fraction"] > 0.0 else "S'"
        kept = f"{self.kept} of {len(self.runs)}"
        return which, self.guaranteed, self.taken, self.guaranteed / self.taken, kept, self.violations


def sgd_local(
    alphas: Sequence[float] = ALPHAS,
    batches: Sequence[int] = BATCHES,
    repeats: int = 20,
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
    depth: int = 10,
) -> Experiment:
    """Diabetes, its rows whitened and its targets projected onto what those can fit, from zero weights of width 11."""
    X, Y = whitened()

    def case(alpha: float, batch: int, rows: Tensor, targets: Tensor) -> Case:
        progress(f"alpha {alpha:g}, batches of {batch}")

        def net() -> LinearResNet:
            return LinearResNet.modified_identity(rows.shape[1], 1, rows.shape[1] + 1, depth, alpha)

        certificate = certify(net(), rows, targets, batch, DELTA, TARGET)
        seeds = range(seed, seed + repeats) if certificate.holds else ()
        runs = [descend(net(), rows, targets, batch, certificate, None, TARGET, s, None, False) for s in seeds]
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "run"
            if runs:
                descend(net(), rows, targets, batch, certificate, 1, 0.0, seed, path, False)
            return Case(certificate, runs, bool(runs) and check(path).outcome is Outcome.ACCEPT)

    def paper(alpha: float) -> bool:
        start = LinearResNet.modified_identity(X.shape[1], 1, X.shape[1] + 1, depth, alpha)
        return certify_sgd(start, X, Y, BATCH, theorem=INTERPOLATION_ID, delta=DELTA).holds

    by_alpha = {alpha: case(alpha, BATCH, X, Y) for alpha in sorted(alphas)}
    by_batch = {batch: case(ALPHA, batch, X, Y) for batch in sorted(batches)}
    equal = case(ALPHA, BATCH, *of_equal_rows(len(X), X.shape[1], float((Y * Y).sum())))
    every = [*by_alpha.values(), *by_batch.values(), equal]
    return Experiment(
        name="linear-resnet/sgd-local",
        title="Mini-batch SGD with a guarantee near what runs take",
        reference="surefoot, docs/theorems/sgd.md, Theorems S and S' (no paper)",
        tables=(
            Table(
                f"batches of {BATCH}, by the scale alpha",
                ("alpha", *COLUMNS, "Theorem 3.8 holds"),
                tuple((alpha, *found.row(), paper(alpha)) for alpha, found in by_alpha.items()),
            ),
            Table(
                f"alpha = {ALPHA:g}, by the batch size",
                ("batch", *COLUMNS),
                tuple((batch, *found.row()) for batch, found in by_batch.items()),
            ),
            Table("rows of equal norm", ("batch", *COLUMNS), ((BATCH, *equal.row()),)),
        ),
        figures=(),
        findings=tuple(_findings(by_alpha, by_batch, every)),
        settings={"N": len(X), "r": X.shape[1], "L": depth, "delta": DELTA, "target": TARGET, "runs": repeats},
    )


def _findings(by_alpha: dict[float, Case], by_batch: dict[int, Case], every: list[Case]) -> list[Finding]:
    found = []
    for name, case, most in (("32", by_alpha.get(ALPHA), 75), ("1", by_batch.get(1), 900)):
        if case is not None and case.guaranteed is not None:
            found.append(
                Finding(
                    f"(Not in a paper: the guarantee is near what runs take, batches of {name}.)",
                    f"guaranteed {case.guaranteed:g}, taken {case.taken:g}",
                    case.guaranteed <= most,
                    f"at most {most} guaranteed iterations are expected",
                )
            )
    runs = sum(len(case.runs) for case in every)
    kept, violations = sum(case.kept for case in every), sum(case.violations for case in every)
    found.append(
        Finding(
            "With probability 1 - delta the gap stays under the bound for all t (Theorems S and S').",
            f"{kept} of {runs} runs kept it; delta = {DELTA:g}",
            kept >= (1.0 - DELTA) * runs,
            "the share of runs against 1 - delta",
        )
    )
    found.append(
        Finding(
            "What holds whatever the batches (Theorem S, (i)).",
            f"{violations} violations in {runs} runs",
            violations == 0,
            "distance and gap of the first T iterates, the step, the batch size",
        )
    )
    hold = [case for case in every if case.certificate.holds]
    accepted = sum(case.accepted for case in hold)
    found.append(
        Finding(
            "The checker accepts every certificate.",
            f"{accepted} of {len(hold)}",
            accepted == len(hold),
            "At level fast, a run of one step.",
        )
    )
    return found


def whitened() -> tuple[Tensor, Tensor]:
    """The training rows of diabetes with XᵀX = N I, and the part of the standardised target that they can fit."""
    data = load("diabetes").train().in_memory()
    X, y = data.X, data.Y
    assert isinstance(X, Tensor) and y is not None
    left, _, _ = torch.linalg.svd(X - X.mean(0), full_matrices=False)
    X, y = left * len(X) ** 0.5, (y - y.mean()) / y.std(correction=0)
    return X, X @ (X.T @ y) / len(X)


def of_equal_rows(samples: int, inputs: int, size: float) -> tuple[Tensor, Tensor]:
    """Rows of a harmonic frame: whitened and of equal norm; targets of one direction, of this sum of squares."""
    angle = 2.0 * torch.pi * torch.arange(samples, dtype=torch.float64) / samples
    waves = [wave(k * angle) for k in range(1, inputs // 2 + 1) for wave in (torch.cos, torch.sin)]
    X = 2.0**0.5 * torch.stack(waves, 1)
    return X, X @ torch.full((inputs, 1), (size / samples / inputs) ** 0.5, dtype=torch.float64)
