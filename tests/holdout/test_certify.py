"""Certificates from counts on held-out problems: the counts of every kind of solver, the statement, files, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

import surefoot as sf
from surefoot._core.io import RunDirectoryError
from surefoot.learned import (
    HoldoutCertificate,
    Lasso,
    LeastSquares,
    Logistic,
    Problems,
    certify_holdout,
    problems_needed,
)
from surefoot_check import Outcome, check

ASKED = {"coverage": 0.8, "confidence": 0.9, "iterations": 400, "progress": False}
"""Eleven problems are enough."""


def steps(problems: Problems, iterations: int) -> Iterator[Tensor]:
    """Gradient descent with 1/β_p, as a user would write it."""
    x = problems.start()
    beta = problems.smoothness[:, None]
    for _ in range(iterations + 1):
        yield x
        x = problems.prox(x - problems.gradient(x) / beta, 1.0 / beta.expand_as(x))


@pytest.fixture(scope="module")
def squares() -> LeastSquares:
    return LeastSquares.random(12, 6, 9, seed=1)


def first_counts(problems: Problems, gap: float, relative_to: str | None, limit: int) -> list[int]:
    """T of gradient descent, one problem at a time, from gaps as the batch measures them."""
    counts = []
    for p in range(problems.count):
        one = problems.select(slice(p, p + 1))
        best = float(one.optimal_value)
        scale = {None: 1.0, "optimum": best, "start": float(one.objective(one.start())) - best}[relative_to]
        reached = (t for t, x in enumerate(steps(one, limit)) if float(one.gap(x)) <= gap * scale)
        counts.append(next(reached, -1))
    return counts


@pytest.mark.parametrize("relative_to", ["start", None])
def test_counts_of_least_squares_are_those_of_each_problem(squares: LeastSquares, relative_to: str | None) -> None:
    counts = first_counts(squares, 1e-3, relative_to, 400)
    for solver in ("GD 1/β_p", steps, sf.nn.StepSizeNet.orthogonal((2, 2, 8))):
        certificate = certify_holdout(solver, squares, gap=1e-3, relative_to=relative_to, **ASKED)  # pyright: ignore
        assert certificate.counts.tolist() == counts
        rank = certificate.record.rank
        assert certificate.iterations == sorted(counts)[rank - 1]
    assert certificate.holds and "StepSizeNet" in certificate.statement and "80 %" in certificate.statement


@pytest.mark.parametrize("problems", [Lasso.random(12, 12, 20, seed=1), Logistic.random(12, 12, 6, l2=0.1, seed=1)])
def test_counts_relative_to_the_optimum(problems: Problems) -> None:
    counts = first_counts(problems, 1e-2, "optimum", 400)
    certificate = certify_holdout("ISTA 1/β_p", problems, gap=1e-2, **ASKED)
    assert certificate.counts.tolist() == counts
    assert certify_holdout(steps, problems, gap=1e-2, **ASKED).counts.tolist() == counts


def test_a_saved_certificate_is_accepted_and_loaded(squares: LeastSquares, tmp_path: Path) -> None:
    certificate = certify_holdout("FISTA", squares, gap=1e-3, relative_to="start", keep_solutions=True, **ASKED)
    certificate.save(tmp_path / "c")
    report = check(tmp_path / "c")
    assert report.outcome is Outcome.ACCEPT, [str(line) for line in report.lines]
    assert {line.claim for line in report.lines} == {"L1", "L2"}
    loaded = HoldoutCertificate.load(tmp_path / "c")
    assert loaded.record == certificate.record
    assert loaded.table() == certificate.table()
    with pytest.raises(RunDirectoryError):
        certificate.save(tmp_path / "c")


def test_a_function_of_one_object_counts_it() -> None:
    values = np.random.default_rng(0).integers(0, 50, 30).tolist()
    certificate = certify_holdout(lambda v: v if v < 45 else None, values, gap=0.1, **ASKED)  # pyright: ignore
    assert certificate.counts.tolist() == [v if v < 45 else -1 for v in values]


def test_too_few_problems_are_refused(squares: LeastSquares) -> None:
    assert problems_needed() == 459
    with pytest.raises(ValueError, match="needs at least 459"):
        certify_holdout("FISTA", squares, gap=1e-3, relative_to="start")
