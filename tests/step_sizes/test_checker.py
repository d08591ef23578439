"""Run directories of solvers with learned step sizes: good ones are accepted, and none of the tampered ones is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import step_sizes_reference as reference
from changes import GoodRun, bumped, check_changed, edit, everywhere, faster, field, once, reevaluate, scaled
from tamper import SCHEDULE, StoredRun, get, put, reevaluated, safetensors

from surefoot_check.checker import Outcome, check, lines

RUNS = {
    "monotone": ("step-sizes/monotone", "least-squares-batch", 0.0, 2.0),
    "rate": ("step-sizes/rate", "least-squares-batch", 0.9, 1.9),
    "tall": ("step-sizes/rate", "least-squares-batch", 0.9, 1.9),
    "prox-monotone": ("step-sizes/prox-monotone", "lasso-batch", 0.5, 2.0),
    "lasso": ("step-sizes/prox-rate", "lasso-batch", 0.8, 1.6),
    "logistic": ("step-sizes/prox-rate", "logistic-batch", 1.0, 1.5),
}
ITERATIONS = 16


def _make(name: str, path: Path) -> None:
    theorem, kind, low, high = RUNS[name]
    arrays = reference.batch(kind, 5, 3, *((8, 4) if name in ("tall", "logistic") else (4, 6)))
    if name == "logistic":
        arrays["l2"] = np.array([0.5, 0.3, 0.4])
        arrays = reference.with_minimisers(arrays)
    at = reference.weights(arrays, low, high)
    made = reference.certificate(theorem, kind, arrays, at)
    assert made.holds
    files = {"problem.safetensors": arrays, "initial.safetensors": at}
    files |= reference.checkpoints(reference.run(arrays, at, ITERATIONS), at, made, 4)
    reference.directory_of(path, files, made, safetensors)


@pytest.fixture(scope="module")
def good_run(tmp_path_factory: pytest.TempPathFactory) -> GoodRun:
    """``good_run(name)``: the directory of a run that the checker accepts, made once."""
    return once(tmp_path_factory, _make)


def one_problem_fewer(run: Any) -> None:
    """All arrays without their last problem: they fit each other, and the sizes in the certificate are stale."""
    for arrays in run.arrays.values():
        for name in set(arrays) - {"iteration", "certificate", "range"}:
            arrays[name] = arrays[name][:-1]


def early_for_late(run: Any) -> None:
    """The starting point passed off as the last iterate."""
    for path in (f"checkpoints/{ITERATIONS:09d}.safetensors", "final.safetensors"):
        run.arrays[path]["x"] = run.weights["x"]


ANY: dict[str, Any] = {
    "start changed": edit("initial.safetensors", "x", bumped),
    "beta smaller everywhere": everywhere("beta", lambda b: 0.9 * b),
    "beta of one problem smaller everywhere": everywhere("beta", lambda b: bumped(b, -0.5 * b[0])),
    "range beyond 2 everywhere": everywhere("range", lambda r: np.array([r[0], 2.1])),
    "range wider everywhere": everywhere("range", lambda r: np.array([0.5 * r[0], min(2.0, r[1] + 0.05)]) + 1e-9),
    "range wider in a checkpoint": edit("checkpoint", "range", lambda r: np.array([0.0, 2.0 + r[1]])),
    "beta of a checkpoint smaller": edit("checkpoint", "beta", lambda b: 0.9 * b),
    "an iterate far off": edit("checkpoint", "x", lambda x: x + 50.0),
    "final iterate far off": edit("final.safetensors", "x", lambda x: x + 50.0),
    "x of another shape in a checkpoint": edit("checkpoint", "x", lambda x: x[:, :-1]),
    "x in float32": edit("initial.safetensors", "x", lambda x: x.astype(np.float32)),
    "x not finite": edit("checkpoint", "x", lambda x: bumped(x, np.nan)),
    "x huge": edit("checkpoint", "x", lambda x: bumped(x, 1e60)),
    "no x": lambda run: run.weights.pop("x"),
    "no range": lambda run: run.weights.pop("range"),
    "an array too many": lambda run: run.weights.update(W1=np.eye(3)),
    "one problem fewer": one_problem_fewer,
    "matrix larger": edit("problem.safetensors", "M", lambda M: 1.1 * M),
    "matrix changed": edit("problem.safetensors", "M", lambda M: bumped(M, 3.0)),
    "N one more": field(("problem", "N"), 4),
    "b one more": field(("problem", "b"), 5),
    "d a float": field(("problem", "d"), 6.0),
    "proximal the other way": lambda run: put(
        run.certificate, ("problem", "proximal"), not run.certificate["problem"]["proximal"]
    ),
    "proximal 1": lambda run: put(
        run.certificate, ("problem", "proximal"), int(run.certificate["problem"]["proximal"])
    ),
    "kind squared": field(("problem", "kind"), "squared"),
    "another system": field(("system",), "two-layer"),
    "a theorem of another system": field(("theorem",), "two-layer/drift"),
    "the paper's theorem": field(("theorem",), "step-sizes/as-printed"),
    "smoothness_ratio smaller": reevaluate(smoothness_ratio=1 - 1e-6),
    "smoothness_ratio half": reevaluate(smoothness_ratio=0.5),
    "range_high smaller": reevaluate(range_high=1 - 1e-6),
    "initial_gap smaller": reevaluate(initial_gap=1 - 1e-6),
    "initial_gap half": reevaluate(initial_gap=0.5),
    "range_high smaller, alone": scaled(("quantities", "range_high"), 1 - 1e-6),
    "a quantity of another theorem": field(("quantities", "norm_A"), (1.0).hex()),
    "no range_low": lambda run: run.certificate["quantities"].pop("range_low"),
    "the last condition left out": lambda run: run.certificate["conditions"].pop(),
    "first decrease larger": faster(add=1e-6, factor=1 - 1e-6),
    "last decrease larger": faster(-1, add=1e-6, factor=1 - 1e-6),
    "another step": field((*SCHEDULE, 0, 4), (0.3).hex()),
    "second step": field((*SCHEDULE, 0, 5), (1e-9).hex()),
    "first level smaller": scaled((*SCHEDULE, 0, 2), 1 - 1e-6),
    "rate smaller": scaled(("conclusion", "rate"), 1 - 1e-6),
    "no segments": field(SCHEDULE, []),
    "an end of time": field((*SCHEDULE, -1, 1), 10),
}
WITNESS: dict[str, Any] = {"witness far off": edit("problem.safetensors", "optimum", lambda V: V + 30.0)}
RATE: dict[str, Any] = {
    "beta larger everywhere": everywhere("beta", lambda b: 1.5 * b),
    "range_low larger": reevaluate(range_low=1 + 1e-6),
    "the other kind's theorem": lambda run: run.certificate.update(
        theorem="step-sizes/" + ("rate" if "prox" in run.certificate["theorem"] else "prox-rate")
    ),
    "early for late": early_for_late,
}
LEAST_SQUARES: dict[str, Any] = {
    "convexity_ratio larger": reevaluate(convexity_ratio=1 + 1e-6),
    "convexity_ratio twice": reevaluate(convexity_ratio=2.0),
    "target changed": edit("problem.safetensors", "Y", lambda Y: bumped(Y, 5.0)),
    "derived decrease larger": scaled(("quantities", "decrease"), 1 + 1e-6),
}
LASSO: dict[str, Any] = {
    "radius_energy smaller": reevaluate(radius_energy=1 - 1e-6),
    "radius_energy tiny": reevaluate(radius_energy=1e-3),
    "loss_convexity_ratio positive": lambda run: run.certificates.update(
        {"certificate.json": reevaluated(run.certificate, {"loss_convexity_ratio": 1e-3})}
    ),
    "lam smaller": edit("problem.safetensors", "lam", lambda v: 0.5 * v),
    "lam negative": edit("problem.safetensors", "lam", lambda v: -v),
}
LOGISTIC: dict[str, Any] = {
    "penalty_convexity_ratio larger": reevaluate(penalty_convexity_ratio=1 + 1e-6),
    "l2 smaller": edit("problem.safetensors", "l2", lambda v: 0.5 * v),
    "labels flipped": edit("problem.safetensors", "labels", lambda v: -v),
    "labels of other values": edit("problem.safetensors", "labels", lambda v: 2.0 * v),
}
CASES = [
    *(("monotone", name, change) for name, change in ANY.items()),
    *(("rate", name, change) for name, change in {**ANY, **RATE, **LEAST_SQUARES}.items()),
    *(("tall", name, change) for name, change in {**RATE, **WITNESS, **LEAST_SQUARES}.items()),
    *(("prox-monotone", name, change) for name, change in ANY.items()),
    *(("lasso", name, change) for name, change in {**ANY, **RATE, **WITNESS, **LASSO}.items()),
    *(("logistic", name, change) for name, change in {**ANY, **RATE, **WITNESS, **LOGISTIC}.items()),
]


@pytest.mark.parametrize("name", RUNS)
def test_good_runs_are_accepted(name: str, good_run: GoodRun) -> None:
    report = check(good_run(name))
    assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report))
    assert sum(line.claim == "L2" for line in report.lines) == 6


@pytest.mark.parametrize("name", RUNS)
def test_the_generator_alone_changes_nothing(name: str, good_run: GoodRun, tmp_path: Path) -> None:
    report = check_changed(good_run(name), reevaluate(), tmp_path / "run")
    assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report))


@pytest.mark.parametrize(("name", "case", "change"), CASES, ids=[f"{name}: {case}" for name, case, _ in CASES])
def test_tampered(name: str, case: str, change: Any, good_run: GoodRun, tmp_path: Path) -> None:
    report = check_changed(good_run(name), change, tmp_path / "run")
    assert report.outcome is not Outcome.ACCEPT, "\n".join(lines(report))
    assert [line for line in report.lines if line.outcome is not Outcome.ACCEPT]


@pytest.mark.parametrize("name", ["rate", "lasso", "logistic"])
def test_without_new_hashes_any_change_is_rejected(name: str, good_run: GoodRun, tmp_path: Path) -> None:
    keys = (("initial", "x"), ("initial", "beta"), ("initial", "range"), ("problem", "M"), ("problem", "optimum"))
    for index, (file, key) in enumerate(keys):
        run = StoredRun.read(good_run(name))
        array = run.arrays[f"{file}.safetensors"][key]
        run.arrays[f"{file}.safetensors"][key] = np.nextafter(array, np.inf)
        run.write(tmp_path / str(index))
        assert check(tmp_path / str(index)).outcome is Outcome.REJECT


def test_steps_beyond_the_range_are_found_out(good_run: GoodRun, tmp_path: Path) -> None:
    """A run whose steps were 2.5: its iterates rise above the bound, and the checkpoints show it."""
    run = StoredRun.read(good_run("rate"))
    arrays, at = run.problem, run.weights
    iterates = reference.run(arrays, {**at, "range": np.array([2.5, 2.5])}, ITERATIONS)
    for path, content in run.arrays.items():
        if "iteration" in content:
            run.arrays[path] = {**content, "x": iterates[int(content["iteration"])]}
    run.seal()
    run.write(tmp_path / "run")
    report = check(tmp_path / "run")
    assert report.outcome is Outcome.REJECT
    assert {line.claim for line in report.lines if line.outcome is not Outcome.ACCEPT} == {"L2"}


def test_a_weaker_certificate_is_still_true(good_run: GoodRun, tmp_path: Path) -> None:
    for name, factors in {
        "rate": {"smoothness_ratio": 1 + 1e-3, "convexity_ratio": 0.5, "initial_gap": 1.1, "range_low": 0.9},
        "lasso": {"smoothness_ratio": 1 + 1e-3, "radius_energy": 2.0, "initial_gap": 1.1, "range_high": 1.01},
    }.items():
        report = check_changed(good_run(name), reevaluate(**factors), tmp_path / name)
        assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report))


def test_a_bound_far_below_the_rounding_of_the_objective(good_run: GoodRun, tmp_path: Path) -> None:
    """F* > 0 here, so that F - F* in floats is noise; through the witness the gap is still certain."""
    run = StoredRun.read(good_run("tall"))
    t = 250
    late = {**run.final, "x": run.problem["optimum"], "iteration": np.array(t, dtype=np.int64)}
    run.arrays[f"checkpoints/{t:09d}.safetensors"] = late
    del run.arrays["final.safetensors"]
    first = get(run.certificate, SCHEDULE)[0]
    assert float.fromhex(first[2]) * (1.0 - float.fromhex(first[3])) ** t < 1e-21
    run.seal()
    run.write(tmp_path / "run")
    report = check(tmp_path / "run")
    assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report))
    assert any(
        line.name == f"{t:09d}.safetensors: gap after {t} iterations, by certificate.json" for line in report.lines
    )
