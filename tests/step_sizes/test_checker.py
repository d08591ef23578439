"""Run directories of solvers with learned step sizes: good ones are accepted, and none of the tampered ones is."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from surefoot_check.arrays import digest
from surefoot_check.checker import Outcome, check, lines

GoodRun = Callable[[str], Path]
RUNS = {
    "monotone": ("step-sizes/monotone", "least-squares-batch", 0.0, 2.0),
    "rate": ("step-sizes/rate", "least-squares-batch", 0.9, 1.9),
    "tall": ("step-sizes/rate", "least-squares-batch", 0.9, 1.9),
    "prox-monotone": ("step-sizes/prox-monotone", "lasso-batch", 0.5, 2.0),
    "lasso": ("step-sizes/prox-rate", "lasso-batch", 0.8, 1.6),
    "logistic": ("step-sizes/prox-rate", "logistic-batch", 1.0, 1.5),
}
ITERATIONS = 16


def _load(path: Path) -> ModuleType:
    """A module by its path; the tests are no package."""
    spec = importlib.util.spec_from_file_location(f"step_sizes_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


reference = _load(Path(__file__).with_name("reference.py"))
tamper = _load(Path(__file__).resolve().parents[1] / "check" / "tamper.py")
SCHEDULE: tuple[Any, ...] = tamper.SCHEDULE


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
    reference.directory_of(path, files, made, tamper.safetensors)


@pytest.fixture(scope="module")
def good_run(tmp_path_factory: pytest.TempPathFactory) -> GoodRun:
    """``good_run(name)``: the directory of a run that the checker accepts, made once."""
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name) / "run"
            _make(name, made[name])
        return made[name]

    return make


def seal(run: Any) -> None:
    """Recompute every hash, so that only the mathematics can tell."""
    run.indent = None
    certificate = run.certificate
    certificate["arrays"] = {f"problem/{k}": digest(v) for k, v in run.problem.items()}
    certificate["arrays"] |= {f"initial/{k}": digest(v) for k, v in run.weights.items()}
    owner = np.frombuffer(hashlib.sha256(tamper.encoded(certificate, None)).digest(), dtype=np.uint8)
    for path, arrays in run.arrays.items():
        if path not in ("initial.safetensors", "problem.safetensors"):
            arrays["certificate"] = owner


def reevaluate(**factors: float) -> Any:
    """Published quantities multiplied by factors, and everything else recomputed by the theorem."""

    def change(run: Any) -> None:
        old = run.certificate["quantities"]
        values = {name: float.fromhex(old[name]) * factor for name, factor in factors.items()}
        run.certificates["certificate.json"] = tamper.reevaluated(run.certificate, values)

    return change


def everywhere(name: str, change: Callable[[Any], Any]) -> Any:
    """Change a weight in the initial file and all checkpoints alike."""

    def apply(run: Any) -> None:
        for path, arrays in run.arrays.items():
            if path != "problem.safetensors":
                arrays[name] = change(arrays[name])

    return apply


def edit(path: str, name: str, change: Callable[[Any], Any]) -> Any:
    """Change one array; ``path`` may be "checkpoint": one in the middle."""

    def apply(run: Any) -> None:
        file = run.checkpoint if path == "checkpoint" else path
        run.arrays[file][name] = change(run.arrays[file][name])

    return apply


def put(*path: Any, value: Any) -> Any:
    return lambda run: tamper.put(run.certificate, path, value)


def scaled(*path: Any, factor: float) -> Any:
    return lambda run: tamper.put(
        run.certificate, path, (float.fromhex(tamper.get(run.certificate, path)) * factor).hex()
    )


def bumped(array: Any, by: float = 0.01) -> Any:
    result = array.copy()
    result.flat[0] += by
    return result


def quick(index: int) -> Any:
    """A decrease of one segment that the theorem does not give, with the rate that goes with it."""

    def change(run: Any) -> None:
        segment = tamper.get(run.certificate, SCHEDULE)[index]
        decrease = float.fromhex(segment[3])
        decrease += 1e-6 * (1.0 - decrease)
        segment[3] = decrease.hex()
        if index == 0:
            run.certificate["conclusion"]["rate"] = (1.0 - decrease).hex()

    return change


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
    "N one more": put("problem", "N", value=4),
    "b one more": put("problem", "b", value=5),
    "d a float": put("problem", "d", value=6.0),
    "proximal the other way": lambda run: tamper.put(
        run.certificate, ("problem", "proximal"), not run.certificate["problem"]["proximal"]
    ),
    "proximal 1": lambda run: tamper.put(
        run.certificate, ("problem", "proximal"), int(run.certificate["problem"]["proximal"])
    ),
    "kind squared": put("problem", "kind", value="squared"),
    "another system": put("system", value="two-layer"),
    "a theorem of another system": put("theorem", value="two-layer/drift"),
    "the paper's theorem": put("theorem", value="step-sizes/as-printed"),
    "smoothness_ratio smaller": reevaluate(smoothness_ratio=1 - 1e-6),
    "smoothness_ratio half": reevaluate(smoothness_ratio=0.5),
    "range_high smaller": reevaluate(range_high=1 - 1e-6),
    "initial_gap smaller": reevaluate(initial_gap=1 - 1e-6),
    "initial_gap half": reevaluate(initial_gap=0.5),
    "range_high smaller, alone": scaled("quantities", "range_high", factor=1 - 1e-6),
    "a quantity of another theorem": put("quantities", "norm_A", value=(1.0).hex()),
    "no range_low": lambda run: run.certificate["quantities"].pop("range_low"),
    "the last condition left out": lambda run: run.certificate["conditions"].pop(),
    "first decrease larger": quick(0),
    "last decrease larger": quick(-1),
    "another step": put(*SCHEDULE, 0, 4, value=(0.3).hex()),
    "second step": put(*SCHEDULE, 0, 5, value=(1e-9).hex()),
    "first level smaller": scaled(*SCHEDULE, 0, 2, factor=1 - 1e-6),
    "rate smaller": scaled("conclusion", "rate", factor=1 - 1e-6),
    "no segments": put(*SCHEDULE, value=[]),
    "an end of time": put(*SCHEDULE, -1, 1, value=10),
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
    "derived decrease larger": scaled("quantities", "decrease", factor=1 + 1e-6),
}
LASSO: dict[str, Any] = {
    "radius_energy smaller": reevaluate(radius_energy=1 - 1e-6),
    "radius_energy tiny": reevaluate(radius_energy=1e-3),
    "loss_convexity_ratio positive": lambda run: run.certificates.update(
        {"certificate.json": tamper.reevaluated(run.certificate, {"loss_convexity_ratio": 1e-3})}
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
    run = tamper.StoredRun.read(good_run(name))
    reevaluate()(run)
    seal(run)
    run.write(tmp_path / "run")
    report = check(tmp_path / "run")
    assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report))


@pytest.mark.parametrize(("name", "case", "change"), CASES, ids=[f"{name}: {case}" for name, case, _ in CASES])
def test_tampered(name: str, case: str, change: Any, good_run: GoodRun, tmp_path: Path) -> None:
    run = tamper.StoredRun.read(good_run(name))
    change(run)
    seal(run)
    run.write(tmp_path / "run")
    report = check(tmp_path / "run")
    assert report.outcome is not Outcome.ACCEPT, "\n".join(lines(report))
    assert [line for line in report.lines if line.outcome is not Outcome.ACCEPT]


@pytest.mark.parametrize("name", ["rate", "lasso", "logistic"])
def test_without_new_hashes_any_change_is_rejected(name: str, good_run: GoodRun, tmp_path: Path) -> None:
    keys = (("initial", "x"), ("initial", "beta"), ("initial", "range"), ("problem", "M"), ("problem", "optimum"))
    for index, (file, key) in enumerate(keys):
        run = tamper.StoredRun.read(good_run(name))
        array = run.arrays[f"{file}.safetensors"][key]
        run.arrays[f"{file}.safetensors"][key] = np.nextafter(array, np.inf)
        run.write(tmp_path / str(index))
        assert check(tmp_path / str(index)).outcome is Outcome.REJECT


def test_steps_beyond_the_range_are_found_out(good_run: GoodRun, tmp_path: Path) -> None:
    """A run whose steps were 2.5: its iterates rise above the bound, and the checkpoints show it."""
    run = tamper.StoredRun.read(good_run("rate"))
    arrays, at = run.problem, run.weights
    iterates = reference.run(arrays, {**at, "range": np.array([2.5, 2.5])}, ITERATIONS)
    for path, content in run.arrays.items():
        if "iteration" in content:
            run.arrays[path] = {**content, "x": iterates[int(content["iteration"])]}
    seal(run)
    run.write(tmp_path / "run")
    report = check(tmp_path / "run")
    assert report.outcome is Outcome.REJECT
    assert {line.claim for line in report.lines if line.outcome is not Outcome.ACCEPT} == {"L2"}


def test_a_weaker_certificate_is_still_true(good_run: GoodRun, tmp_path: Path) -> None:
    for name, factors in {
        "rate": {"smoothness_ratio": 1 + 1e-3, "convexity_ratio": 0.5, "initial_gap": 1.1, "range_low": 0.9},
        "lasso": {"smoothness_ratio": 1 + 1e-3, "radius_energy": 2.0, "initial_gap": 1.1, "range_high": 1.01},
    }.items():
        run = tamper.StoredRun.read(good_run(name))
        reevaluate(**factors)(run)
        seal(run)
        run.write(tmp_path / name)
        report = check(tmp_path / name)
        assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report))


def test_a_bound_far_below_the_rounding_of_the_objective(good_run: GoodRun, tmp_path: Path) -> None:
    """F* > 0 here, so that F - F* in floats is noise; through the witness the gap is still certain."""
    run = tamper.StoredRun.read(good_run("tall"))
    t = 250
    late = {**run.final, "x": run.problem["optimum"], "iteration": np.array(t, dtype=np.int64)}
    run.arrays[f"checkpoints/{t:09d}.safetensors"] = late
    del run.arrays["final.safetensors"]
    first = tamper.get(run.certificate, SCHEDULE)[0]
    assert float.fromhex(first[2]) * (1.0 - float.fromhex(first[3])) ** t < 1e-21
    seal(run)
    run.write(tmp_path / "run")
    report = check(tmp_path / "run")
    assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report))
    assert any(line.name == f"{t:09d}.safetensors: gap after {t} iterations" for line in report.lines)
