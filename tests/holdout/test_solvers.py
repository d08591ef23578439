"""Every kind of solver is counted problem by problem, in blocks too; what users' functions return is checked."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import surefoot as sf
from surefoot._holdout import counting
from surefoot._step_sizes import baselines
from surefoot.learned import (
    HoldoutCertificate,
    Lasso,
    LassoSolver,
    LeastSquares,
    Logistic,
    LogisticSolver,
    Problems,
    certify_holdout,
    train_layers,
)
from surefoot_check import Outcome, check

ASKED: dict[str, Any] = {"coverage": 0.7, "confidence": 0.9, "iterations": 200, "progress": False}
"""Seven problems are enough."""


@pytest.fixture(scope="module")
def squares() -> LeastSquares:
    return LeastSquares.random(12, 6, 9, seed=1)


@pytest.fixture(scope="module")
def sparse() -> Lasso:
    return Lasso.random(12, 12, 20, sparsity=0.5, seed=1)


def counted(solver: Any, problems: Problems, relative_to: Any = "start", **more: Any) -> list[int]:
    return certify_holdout(solver, problems, gap=1e-2, relative_to=relative_to, **{**ASKED, **more}).counts.tolist()


def descent(problems: Problems, iterations: int) -> list[Tensor]:
    """Gradient descent with 1/β_p, all iterates."""
    x, beta = problems.start(), problems.smoothness[:, None]
    kept = [x]
    for _ in range(iterations):
        x = x - problems.gradient(x) / beta
        kept.append(x)
    return kept


@dataclass
class Result:
    trajectory: Any = None
    objectives: Any = None
    solution: Any = None


@dataclass
class Solves:
    """A user's solver; ``shows`` says what of."""

    shows: str
    step: float = 1.0

    def solve(self, problems: Problems, iterations: int) -> Result:
        kept = descent(problems, iterations)
        if self.shows == "trajectory":
            return Result(torch.stack(kept))
        if self.shows == "objectives":
            return Result(objectives=torch.stack([problems.objective(x) for x in kept]), solution=kept[-1])
        return Result(solution=kept[-1])


WAYS: dict[str, Callable[[Problems, int], Any]] = {
    "a list": descent,
    "a tensor": lambda problems, iterations: torch.stack(descent(problems, iterations)),
    "an array": lambda problems, iterations: torch.stack(descent(problems, iterations)).numpy(),
    "a generator": lambda problems, iterations: iter(descent(problems, iterations)),
    "more iterates than asked for": lambda problems, iterations: descent(problems, iterations + 9),
}


@pytest.mark.parametrize("way", WAYS)
def test_iterates_are_taken_in_every_form(squares: LeastSquares, way: str) -> None:
    assert counted(WAYS[way], squares) == counted("GD 1/β_p", squares)


@pytest.mark.parametrize("shows", ["trajectory", "objectives"])
def test_an_object_that_solves_is_followed(squares: LeastSquares, shows: str, tmp_path: Path) -> None:
    solver = Solves(shows)
    assert counted(solver, squares) == counted("GD 1/β_p", squares)
    certificate = certify_holdout(solver, squares, gap=1e-2, relative_to="start", keep_solutions=True, **ASKED)
    certificate.save(tmp_path / "c")
    assert check(tmp_path / "c").outcome is Outcome.ACCEPT
    with pytest.raises(TypeError, match="without a trajectory"):
        counted(Solves("nothing"), squares)


def test_what_is_no_solver_of_a_batch_is_named(squares: LeastSquares, sparse: Lasso) -> None:
    with pytest.raises(ValueError, match=r"pass an object, sf.learned.LassoSolver\(\), with problems sf.learned.Lasso"):
        counted("LassoSolver", squares)
    with pytest.raises(ValueError, match="did you mean 'FISTA'") as refused:
        counted("fista", squares)
    assert "GD 1/β," not in str(refused.value)
    with pytest.raises(TypeError, match=r"solver cannot be called as solver\(problems, iterations\)"):
        counted(lambda problems: [], squares)


def test_an_exception_names_the_problem() -> None:
    def solver(problem: int) -> int:
        return 10 // abs(problem - 5)

    with pytest.raises(ZeroDivisionError) as raised:
        certify_holdout(solver, range(9), gap=0.1, **ASKED)
    assert raised.value.__notes__ == ["solver(problem) failed on problem 5"]


def test_a_directory_that_is_in_use_is_refused_without_resume(tmp_path: Path) -> None:
    found = certify_holdout(lambda problem: problem, range(9), gap=0.1, **ASKED)
    found.save(tmp_path / "c")
    with pytest.raises(sf.RunDirectoryError, match=r"not an empty directory; choose another .*, or delete it first$"):
        found.save(tmp_path / "c")


def test_the_limit_is_that_of_a_solver_that_ends_before(squares: LeastSquares) -> None:
    layers = sf.nn.LayeredSteps([[[0.5, 0.5]]] * 3, [1.0, 1.9])
    for solver, limit in ((layers, 3), (lambda problems, iterations: descent(problems, 4), 4)):
        found = certify_holdout(solver, squares, gap=1e-9, relative_to="start", **ASKED)
        assert (found.holds, found.record.limit) == (False, limit)
        assert f"within {limit} iterations" in found.statement
        assert f"a larger gap, more iterations (these ended at {limit} iterations), another solver" in found.table()
    assert certify_holdout(layers, squares, gap=0.9, relative_to="start", **ASKED).record.limit == 3


def test_blocks_have_the_counts_of_the_whole(
    squares: LeastSquares, sparse: Lasso, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases: list[tuple[Any, Problems, str]] = [
        ("FISTA", squares, "start"),
        (LassoSolver(), sparse.select(slice(0, 7)), "optimum"),
        ("silver", squares.select(slice(0, 7)), "start"),
    ]
    whole = [counted(*case, iterations=60, keep_solutions=True) for case in cases]
    monkeypatch.setattr(counting, "BYTES", 40_000)
    assert [counted(*case, iterations=60, keep_solutions=True) for case in cases] == whole


def test_several_batches_are_one_draw(squares: LeastSquares) -> None:
    batches = [squares.select(slice(p, p + 1)) for p in range(5)] + [squares.select(slice(5, 12))]
    certificate = certify_holdout("FISTA", batches, gap=1e-2, relative_to="start", **ASKED)
    assert certificate.counts.tolist() == counted("FISTA", squares)
    assert "(least-squares-batch of 6 x 9)" in certificate.statement
    mixed = certify_holdout("FISTA", [squares, LeastSquares.random(4, 3, 5)], gap=1e-2, relative_to="start", **ASKED)
    assert mixed.counts[:12].tolist() == certificate.counts.tolist()
    assert "16 held-out problems (least-squares-batch)" in mixed.statement
    with pytest.raises(TypeError, match="needs one batch"):
        certify_holdout("FISTA", batches, gap=1e-2, relative_to="start", keep_solutions=True, **ASKED)
    with pytest.raises(TypeError, match="pass only one of the two"):
        certify_holdout("FISTA", [squares, 3], gap=1e-2, **ASKED)


def test_the_logistic_solver_and_layers_are_followed(squares: LeastSquares, tmp_path: Path) -> None:
    problems = Logistic.random(9, 10, 4, l2=0.1, seed=1)
    certificate = certify_holdout(LogisticSolver(), problems, gap=1e-6, keep_solutions=True, **ASKED)
    certificate.save(tmp_path / "c")
    assert check(tmp_path / "c").outcome is Outcome.ACCEPT
    assert 0 < (certificate.iterations or 0) < 40
    counts = counted(train_layers(squares, 5, sectors=2).net, squares)
    assert max(counts) <= 5
    assert any(count > 0 for count in counts)


def test_the_lasso_solver_is_counted_by_its_objectives(sparse: Lasso) -> None:
    solution = LassoSolver().solve(sparse, 50)
    gaps = solution.objectives.double() - sparse.optimal_value
    reached = gaps <= 1e-2 * sparse.optimal_value
    assert counted(LassoSolver(), sparse, "optimum") == reached.int().argmax(0).tolist()


def test_layers_end_with_the_last(sparse: Lasso) -> None:
    one = Lasso.from_matrix(
        sparse.M[0], torch.randn(12, 20, generator=torch.Generator().manual_seed(0)).double(), lam=0.1
    )
    net = sf.nn.LISTA(sparse.M[0], layers=3)
    certificate = certify_holdout(net, one, gap=1e-9, **ASKED)
    assert certificate.counts.tolist() == [-1] * 20
    assert not certificate.holds
    assert counted(sf.learned.schedule("silver", 15), one.select(slice(0, 9)), "start", iterations=200)[0] <= 15


def test_a_schedule_is_called_by_its_number_of_steps(squares: LeastSquares) -> None:
    certificate = certify_holdout("silver", squares, gap=1e-1, relative_to="start", **{**ASKED, "iterations": 31})
    assert "silver of 31 steps" in certificate.statement


@pytest.mark.parametrize("name", baselines.BY_THE_BATCH)
def test_steps_that_depend_on_the_batch_are_refused(squares: LeastSquares, sparse: Lasso, name: str) -> None:
    problems = sparse if name.startswith("ISTA") else squares
    with pytest.raises(ValueError, match=re.escape(baselines.BY_THE_BATCH[name])):
        counted(name, problems)
    assert counted(baselines.BY_THE_BATCH[name], problems)


def test_float32_problems_are_measured_in_float64(squares: LeastSquares) -> None:
    single = squares.to(dtype=torch.float32)
    assert counted("GD 1/β_p", single) == pytest.approx(counted("GD 1/β_p", squares), abs=1)


def test_iterates_that_are_no_numbers_solve_nothing(squares: LeastSquares) -> None:
    def diverging(problems: Problems, iterations: int) -> list[Tensor]:
        x = problems.start()
        return [x, x + 1e200, x * torch.nan, x + torch.inf]

    assert counted(diverging, squares) == [-1] * 12


BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "no solver": (3, TypeError, "solver is an int"),
    "a class": (LassoSolver, TypeError, "the class LassoSolver; pass an object of it"),
    "an unknown baseline": ("FISTO", ValueError, "did you mean 'FISTA'"),
    "one matrix": (lambda p, t: torch.zeros(12, 9), ValueError, r"solver\(problems, iterations\) has shape \(12, 9\)"),
    "another shape": (lambda p, t: [torch.zeros(12, 8)], ValueError, "iterate 0 of .* has shape"),
    "integers": (lambda p, t: [torch.zeros(12, 9).int()], TypeError, "iterate 0 of .* has dtype int32"),
    "texts": (lambda p, t: ["x"], TypeError, "iterate 0 of"),
    "nothing": (lambda p, t: None, TypeError, "returned None"),
    "a number": (lambda p, t: 3.0, TypeError, "returned a float"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_solvers_return_is_checked(squares: LeastSquares, name: str) -> None:
    solver, kind, message = BAD[name]
    with pytest.raises(kind, match=message):
        counted(solver, squares)


def in_place(problems: Problems, iterations: int) -> list[Tensor]:
    """The mistake of a list of one tensor."""
    x, kept = problems.start(), []
    for _ in range(iterations):
        x -= problems.gradient(x) / problems.smoothness[:, None]
        kept.append(x)
    return kept


def rescaling(problems: Problems, iterations: int) -> list[Tensor]:
    problems.M.mul_(2.0)
    return descent(problems, iterations)


@dataclass
class Shows:
    """Objectives of a user's own."""

    factor: float

    def solve(self, problems: Problems, *, iterations: int = 5) -> Result:
        kept = descent(problems, iterations)
        return Result(objectives=torch.stack([self.factor * problems.objective(x) for x in kept]))


def test_what_would_count_as_solved_and_is_not_is_refused(squares: LeastSquares, sparse: Lasso) -> None:
    with pytest.raises(ValueError, match="one object 200 times"):
        counted(in_place, squares)
    with pytest.raises(ValueError, match="changed the problems' M in place"):
        counted(rescaling, LeastSquares.random(12, 6, 9, seed=1))
    for factor in (0.5, -1.0, -torch.inf):
        with pytest.raises(ValueError, match=r"objective .* of problem \d+, where F\* is at least"):
            counted(Shows(factor), sparse, "optimum")
    assert counted(Shows(1.0), squares) == counted("GD 1/β_p", squares)  # iterations by keyword only
    with pytest.raises(ValueError, match="float64 cannot tell of any of these problems"):
        certify_holdout("FISTA", sparse, gap=1e-15, relative_to=None, **{**ASKED, "iterations": 3})


@dataclass
class Calls:
    """A solver with a state that is none of its parameters, and an attribute that has no digest."""

    calls: int = 0
    sparse: Any = None

    def solve(self, problems: Problems, iterations: int) -> Result:
        self.calls += 1
        return Result(torch.stack(descent(problems, iterations)))


def test_a_solver_that_counts_its_calls_stays_the_same(squares: LeastSquares, tmp_path: Path) -> None:
    solver = Calls(sparse=torch.eye(2).to_sparse())
    certificate = certify_holdout(solver, squares, gap=1e-2, relative_to="start", **ASKED)
    for _ in range(2):
        assert certificate.shift_test(squares, progress=False).problems == 12
    certificate.save(tmp_path / "c")
    again = HoldoutCertificate.load(tmp_path / "c")
    assert again.shift_test(squares, Calls(), progress=False).problems == 12


@pytest.mark.parametrize("value", [-1, 2.5, True, "3", np.nan, [4]])
def test_counts_of_users_are_checked(value: Any) -> None:
    with pytest.raises(ValueError, match=r"returned for problem 2, .* it must be an integer of at least 0"):
        certify_holdout(lambda p: value if p == 2 else 1, list(range(9)), gap=0.1, **ASKED)
    good = certify_holdout(lambda p: np.int64(7), (f"problem {k}" for k in range(9)), gap=0.1, **ASKED)
    assert good.counts.tolist() == [7] * 9
    late = certify_holdout(lambda p: 201 if p else 0, range(9), gap=0.1, **ASKED)
    assert late.counts.tolist() == [0] + [-1] * 8


ARGUMENTS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "a gap below zero": ({"gap": -1.0}, ValueError, "gap is -1"),
    "no gap": ({"gap": 0}, ValueError, "gap is 0"),
    "a gap that is none": ({"gap": "small"}, TypeError, "gap is 'small'"),
    "hardly any coverage": ({"coverage": 1e-300}, ValueError, "must be at least 1e-06"),
    "hardly any confidence": ({"confidence": 1e-17}, ValueError, "must be at least 1e-06"),
    "a blank name": ({"name": "  "}, ValueError, "name is empty"),
    "full coverage": ({"coverage": 1.0}, ValueError, "coverage is 1"),
    "no confidence": ({"confidence": 0}, ValueError, "confidence is 0"),
    "half an iteration": ({"iterations": 0.5}, ValueError, "iterations is 0.5"),
    "relative to what": ({"relative_to": "first"}, ValueError, "unknown relative_to 'first'"),
    "no name": ({"name": ""}, ValueError, "name is empty"),
    "a number as a name": ({"name": 3}, TypeError, "name is an int"),
    "an optimum of zero": ({"relative_to": "optimum"}, ValueError, "F. is 0 within rounding: pass relative_to='start'"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_are_checked(squares: LeastSquares, name: str) -> None:
    more, kind, message = ARGUMENTS[name]
    with pytest.raises(kind, match=message):
        certify_holdout("FISTA", squares, **{"gap": 0.1, "relative_to": "start", **ASKED, **more})


def test_a_problem_that_is_solved_at_the_start_is_named() -> None:
    problems = Lasso.random(12, 10, 8, lam=1e3, seed=1)
    with pytest.raises(ValueError, match="start of problem 0, as x = 0 is optimal"):
        counted("FISTA", problems)
    assert counted("FISTA", problems, "optimum") == [0] * 12


def test_a_gap_below_rounding_is_refused_at_once(sparse: Lasso) -> None:
    with pytest.raises(ValueError, match=r"gap is 1e-13; relative to F\* it must be at least 2\.8e-12"):
        certify_holdout("FISTA", sparse, gap=1e-13, **ASKED)


def test_other_problems_are_refused(squares: LeastSquares) -> None:
    with pytest.raises(TypeError, match="keep_solutions needs one batch"):
        certify_holdout(lambda p: 1, range(9), gap=0.1, keep_solutions=True, **ASKED)
    with pytest.raises(TypeError, match="problems is an int"):
        certify_holdout(lambda p: 1, 5, gap=0.1, **ASKED)
    with pytest.raises(ValueError, match="at most 1,000,000 are counted"):
        certify_holdout(lambda p: 1, count(), gap=0.1, **ASKED)  # a stream has no end
    with pytest.raises(TypeError, match="for problems that are no"):
        certify_holdout("FISTA", range(9), gap=0.1, **ASKED)
    with pytest.raises(ValueError, match="needs at least 7"):
        certify_holdout(lambda p: 1, iter(range(5)), gap=0.1, **ASKED)


def test_a_shift_is_seen_and_its_absence_is_not(squares: LeastSquares, tmp_path: Path) -> None:
    net = sf.nn.StepSizeNet.orthogonal((2, 2, 4))
    certificate = certify_holdout(net, squares, gap=1e-2, relative_to="start", **ASKED)
    same = certificate.shift_test(LeastSquares.random(20, 6, 9, seed=2), progress=False)
    assert not same.shifted()
    assert "no difference" in str(same)
    certificate.save(tmp_path / "c")
    loaded = HoldoutCertificate.load(tmp_path / "c")
    with pytest.raises(ValueError, match="read from files; pass its solver"):
        loaded.shift_test(squares)
    with pytest.raises(ValueError, match="sha256 of its parameters differs"):
        loaded.shift_test(squares, sf.nn.StepSizeNet.orthogonal((2, 2, 4), seed=1))
    drawn = LeastSquares.random(20, 6, 9, seed=2)
    worse = LeastSquares(drawn.M * torch.logspace(0, -2, 9, dtype=torch.float64), drawn.Y)
    other = loaded.shift_test(worse, net, progress=False)
    assert other.shifted()
    assert "not like the held-out ones" in str(other)
    assert (other.problems, len(other.counts)) == (20, 20)
    assert other.exceeding == int(((other.counts < 0) | (other.counts > certificate.iterations)).sum())  # pyright: ignore


def test_a_curve_that_ends_early_is_shown() -> None:
    certificate = certify_holdout(lambda p: None if p else 3, range(9), gap=0.1, **ASKED)
    assert "1 of 9" in certificate.table()


def test_table_curve_and_plot(squares: LeastSquares, tmp_path: Path) -> None:
    certificate = certify_holdout("FISTA", squares, gap=1e-2, relative_to="start", name="mine", **ASKED)
    assert certificate.table().startswith(f"holds: {certificate.statement}")
    assert "mine" in certificate.table()
    last = certificate.curve[-1]
    assert (last.problems, last.pointwise) == (12, certificate.coverage_at(200))
    assert last.simultaneous < last.pointwise <= 0.1 ** (1 / 12)
    with pytest.raises(ValueError, match=r"0 \.\. 200"):
        certificate.coverage_at(201)
    certificate.plot(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes()[:4] == b"\x89PNG"
    nothing = certify_holdout(lambda p: None, range(9), gap=0.1, **ASKED)
    nothing.plot(tmp_path / "nothing.png")
    assert "9 of 9 problems are not solved" in nothing.table()
    assert "Nothing is proved: none of the 9 held-out problems" in nothing.statement
    assert "at least" not in nothing.table()
