"""Directories of certified inverses: good ones are accepted, and none of the tampered ones is."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from changes import GoodRun, check_changed, edit, field, once, reevaluate, scaled
from tamper import SCHEDULE, Record, StoredRun, get, put

import surefoot as sf
from surefoot_check.checker import Outcome, check, lines

DOUBLE = torch.float64


def _trained() -> sf.nn.LearnedInverse:
    generator = torch.Generator().manual_seed(1)
    net = sf.nn.LearnedInverse.chebyshev(3, 4, (0.01, 1.0), "gram")
    net.fit(torch.randn(4, 6, 6, dtype=DOUBLE, generator=generator), epochs=20, objective="last", learning_rate=1e-3)
    return net


RUNS: dict[str, Any] = {
    "chebyshev": lambda path: sf.nn.LearnedInverse.chebyshev(4, 4, (1e-3, 1.0)).save_certificate(path),
    "trained": lambda path: _trained().save_certificate(path),
    "ones": lambda path: sf.nn.LearnedInverse.ones(3, 5).save_certificate(path, (0.2, 1.5)),
    "order": lambda path: sf.nn.LearnedInverse.ones(6, 3).save_certificate(path, (0.02, 1.0), "inverse/order"),
    "one layer": lambda path: sf.nn.LearnedInverse([[1.9, 0.1]]).save_certificate(path, (0.4, 1.0)),
}


@pytest.fixture(scope="module")
def good_run(tmp_path_factory: pytest.TempPathFactory) -> GoodRun:
    """``good_run(name)``: a directory that the checker accepts, made once."""
    return once(tmp_path_factory, lambda name, path: RUNS[name](path))


def layer(index: int, entry: int, value: Any) -> Any:
    """Set an entry of a segment of the schedule."""
    return field((*SCHEDULE, index, entry), value)


def level(index: int, factor: float) -> Any:
    """A smaller guaranteed residual after a layer."""
    return scaled((*SCHEDULE, index, 2), factor)


def without_last_layer(run: StoredRun) -> None:
    """The schedule ends a layer early."""
    schedule = get(run.certificate, SCHEDULE)
    del schedule[-1]
    schedule[-1][1] = None


def one_layer_more(run: StoredRun) -> None:
    """The schedule claims a layer that the net does not have."""
    schedule = get(run.certificate, SCHEDULE)
    schedule[-1][1] = 1
    schedule.append([len(schedule), None, (1e-200).hex(), *schedule[-1][3:]])


def early(run: StoredRun) -> None:
    """The last residual, a layer too early."""
    schedule = get(run.certificate, SCHEDULE)
    schedule[-2][2] = schedule[-1][2]


def drop(key: str, name: str) -> Any:
    """Leave out an entry of an object of the certificate."""

    def change(run: StoredRun) -> None:
        del run.certificate[key][name]

    return change


def changed(name: str, change: Any) -> Any:
    """The array of the problem or of the initial file under another value."""
    return edit(f"{'problem' if name == 'interval' else 'initial'}.safetensors", name, change)


def checkpoint(run: StoredRun) -> None:
    """Coefficients that pass for a checkpoint."""
    run.arrays["checkpoints/000000001.safetensors"] = {
        "C": run.weights["C"],
        "iteration": np.array(1, dtype=np.int64),
    }


def final(run: StoredRun) -> None:
    """Coefficients that pass for the final weights."""
    run.arrays["final.safetensors"] = {"C": run.weights["C"], "iteration": np.array(0, dtype=np.int64)}


def other_theorem(run: StoredRun) -> None:
    """The same numbers in the name of the other theorem."""
    record = run.certificate
    record["theorem"] = "inverse/order" if record["theorem"] == "inverse/interval" else "inverse/interval"


ANY: dict[str, Any] = {
    "interval with a smaller lower end": changed("interval", lambda v: v * [0.9, 1.0]),
    "interval with a larger upper end": changed("interval", lambda v: v * [1.0, 2.2]),
    "interval reversed": changed("interval", lambda v: v[::-1].copy()),
    "interval to 0": changed("interval", lambda v: v * [0.0, 1.0]),
    "interval negative": changed("interval", lambda v: -v[::-1]),
    "interval of one point": changed("interval", lambda v: v[[1, 1]]),
    "interval NaN": changed("interval", lambda v: v * [np.nan, 1.0]),
    "interval infinite": changed("interval", lambda v: v * [1.0, np.inf]),
    "interval of three numbers": changed("interval", lambda v: np.array([*v, 2.0])),
    "interval of float32": changed("interval", lambda v: v.astype(np.float32)),
    "a second array in the problem": lambda run: run.problem.update(A=np.eye(3)),
    "no interval": lambda run: run.problem.pop("interval"),
    "C larger": changed("C", lambda C: 1.01 * C),
    "first coefficient larger": changed("C", lambda C: C + 1e-3 * np.eye(*C.shape)),
    "last row of C doubled": changed("C", lambda C: np.vstack([C[:-1], 2.0 * C[-1:]])),
    "C reversed": changed("C", lambda C: 0.9 * C[::-1, ::-1].copy()),
    "C without a layer": changed("C", lambda C: C[:-1] if len(C) > 1 else C[:, :-1]),
    "C with a layer more": changed("C", lambda C: np.vstack([C, C[-1:]])),
    "C with a term more": changed("C", lambda C: np.hstack([C, 0.0 * C[:, :1]])),
    "C NaN": changed("C", lambda C: C * np.nan),
    "C infinite": changed("C", lambda C: C * np.inf),
    "C huge": changed("C", lambda C: 1e300 * C),
    "C empty": changed("C", lambda C: C[:, :0]),
    "C of one dimension": changed("C", lambda C: C.reshape(-1)),
    "C of 65 layers": changed("C", lambda C: np.ones((65, 2))),
    "C of 65 terms": changed("C", lambda C: np.ones((2, 65))),
    "C of float32": changed("C", lambda C: C.astype(np.float32)),
    "another array beside C": lambda run: run.weights.update(W=np.eye(2)),
    "a published interval that is larger below": reevaluate(lower=0.9),
    "a published interval that is larger above": reevaluate(upper=1.1),
    "a published lower end of another problem": scaled(("quantities", "lower"), 0.5),
    "initial gap smaller": reevaluate(initial_gap=1 - 1e-9),
    "initial gap smaller, alone": scaled(("quantities", "initial_gap"), 0.9),
    "initial gap of the conclusion smaller": scaled(("conclusion", "initial_gap"), 0.9),
    "first level smaller": level(0, 1 - 1e-9),
    "last level smaller": level(-1, 1 - 1e-6),
    "last level tiny": level(-1, 1e-100),
    "last level 0": layer(-1, 2, (0.0).hex()),
    "last level negative": layer(-1, 2, (-1.0).hex()),
    "last level NaN": layer(-1, 2, "nan"),
    "last level infinite": layer(-1, 2, "inf"),
    "a decrease for ever": layer(-1, 3, (0.5).hex()),
    "a decrease in the first layer": layer(0, 3, (0.1).hex()),
    "a step": layer(0, 4, (0.1).hex()),
    "a second step": layer(-1, 5, (1e-9).hex()),
    "rate smaller": field(("conclusion", "rate"), (0.5).hex()),
    "an end": layer(-1, 1, 100),
    "a late start": layer(-1, 0, 90),
    "a layer left out": without_last_layer,
    "a layer too many": one_layer_more,
    "the first layer lasts two": layer(0, 1, 2),
    "no segments": field(SCHEDULE, []),
    "best possible smaller": scaled(("quantities", "best_possible"), 0.5),
    "degree larger": scaled(("quantities", "degree"), 2.0),
    "no degree": drop("quantities", "degree"),
    "no best possible": drop("quantities", "best_possible"),
    "no lower": drop("quantities", "lower"),
    "no initial gap": drop("quantities", "initial_gap"),
    "a quantity too many": field(("quantities", "residual[40]"), (0.1).hex()),
    "K one more": lambda run: put(run.certificate, ("problem", "K"), run.certificate["problem"]["K"] + 1),
    "L one more": lambda run: put(run.certificate, ("problem", "L"), run.certificate["problem"]["L"] + 1),
    "K a float": lambda run: put(run.certificate, ("problem", "K"), float(run.certificate["problem"]["K"])),
    "K true": field(("problem", "K"), True),
    "no K": drop("problem", "K"),
    "kind squared": field(("problem", "kind"), "squared"),
    "kind of nothing": field(("problem", "kind"), None),
    "another optimal value": field(("optimal_value",), (0.1).hex()),
    "claims of iterates": field(("claims",), ["L1", "L2"]),
    "no claims": field(("claims",), []),
    "a condition left out": lambda run: run.certificate["conditions"].pop(),
    "a condition failed": lambda run: put(run.certificate, ("conditions", -1, "holds"), False),
    "a condition with another side": lambda run: put(run.certificate, ("conditions", -1, "left"), (1e-9).hex()),
    "status fails": field(("status",), "fails"),
    "another rule": field(("rule",), "constant"),
    "another version": field(("theorem_version",), 2),
    "the other theorem": other_theorem,
    "the theorem on training": field(("theorem",), "inverse/training"),
    "a theorem of another system": field(("theorem",), "two-layer/drift"),
    "an unknown theorem": field(("theorem",), "inverse/best"),
    "another system": field(("system",), "step-sizes"),
    "a checkpoint": checkpoint,
    "final weights": final,
}
RESIDUAL: dict[str, Any] = {
    "last residual smaller": lambda run: reevaluate(**{last(run.certificate): 1 - 1e-7})(run),
    "last residual a tenth": lambda run: reevaluate(**{last(run.certificate): 0.1})(run),
    "last residual smaller, alone": lambda run: scaled(("quantities", last(run.certificate)), 0.5)(run),
    "no last residual": lambda run: run.certificate["quantities"].pop(last(run.certificate)),
    "first residual smaller": reevaluate(**{"residual[1]": 1 - 1e-7}),
    "no first residual": drop("quantities", "residual[1]"),
    "residual negative": field(("quantities", "residual[1]"), (-1.0).hex()),
}
DEEP: dict[str, Any] = {
    "the last residual a layer early": early,
    "layers exchanged": changed("C", lambda C: C[[1, 0, *range(2, len(C))]]),
}
ORDER: dict[str, Any] = {
    "one coefficient an ulp above 1": changed(
        "C", lambda C: np.where(np.arange(C.size).reshape(C.shape) == 4, 1 + 2**-52, C)
    ),
    "deviation not 0": field(("quantities", "deviation"), (1e-9).hex()),
    "deviation negative": field(("quantities", "deviation"), (-1.0).hex()),
    "no deviation": drop("quantities", "deviation"),
    "second level smaller": level(2, 1 - 1e-6),
}
CASES = [
    *((name, case, change) for name in RUNS for case, change in ANY.items()),
    *((name, case, change) for name in RUNS if name != "order" for case, change in RESIDUAL.items()),
    *((name, case, change) for name in ("chebyshev", "trained") for case, change in DEEP.items()),
    *(("order", case, change) for case, change in ORDER.items()),
]


def last(record: Record) -> str:
    """The residual after the last layer."""
    return f"residual[{record['problem']['K']}]"


@pytest.mark.parametrize("name", RUNS)
def test_good_directories_are_accepted(name: str, good_run: GoodRun) -> None:
    report = check(good_run(name))
    assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report))
    assert {line.claim for line in report.lines} == {"L1"}


@pytest.mark.parametrize("name", RUNS)
def test_the_generator_alone_changes_nothing(name: str, good_run: GoodRun, tmp_path: Path) -> None:
    for index, change in enumerate([lambda run: None, reevaluate()]):
        report = check_changed(good_run(name), change, tmp_path / str(index))
        assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report))


@pytest.mark.parametrize(("name", "case", "change"), CASES, ids=[f"{name}: {case}" for name, case, _ in CASES])
def test_tampered(name: str, case: str, change: Any, good_run: GoodRun, tmp_path: Path) -> None:
    report = check_changed(good_run(name), change, tmp_path / "run")
    assert report.outcome is not Outcome.ACCEPT, "\n".join(lines(report))
    assert [line for line in report.lines if line.outcome is not Outcome.ACCEPT]


@pytest.mark.parametrize("name", RUNS)
def test_without_new_hashes_any_change_is_rejected(name: str, good_run: GoodRun, tmp_path: Path) -> None:
    for index, (file, key) in enumerate([("initial", "C"), ("problem", "interval")]):
        run = StoredRun.read(good_run(name))
        arrays = run.arrays[f"{file}.safetensors"]
        arrays[key] = np.nextafter(arrays[key], np.inf)
        run.write(tmp_path / str(index))
        assert check(tmp_path / str(index)).outcome is Outcome.REJECT


def test_a_weaker_certificate_is_still_true(good_run: GoodRun, tmp_path: Path) -> None:
    weaker = {"residual[4]": 2.0, "residual[2]": 1.01, "initial_gap": 1.0005, "lower": 1.2, "upper": 0.9}
    report = check_changed(good_run("chebyshev"), reevaluate(**weaker), tmp_path / "run")
    assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report))
    # the certificate's interval lies inside the stored one, for which the residuals of all-ones are no larger
    report = check_changed(good_run("ones"), changed("interval", lambda v: v * [1.0, 1.05]), tmp_path / "wider")
    assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report))


def test_missing_and_damaged_files(good_run: GoodRun, tmp_path: Path) -> None:
    for index, name in enumerate(["certificate.json", "problem.safetensors", "initial.safetensors"]):
        for damage in ("missing", "cut", "longer"):
            path = tmp_path / f"{index}-{damage}"
            shutil.copytree(good_run("ones"), path)
            content = (path / name).read_bytes()
            (path / name).unlink()
            if damage != "missing":
                (path / name).write_bytes(content[:-5] if damage == "cut" else content + b"\n{}")
            assert check(path).outcome is Outcome.REJECT


def test_the_checker_needs_neither_torch_nor_surefoot(good_run: GoodRun) -> None:
    code = (
        "import sys; sys.modules['torch'] = sys.modules['surefoot'] = None\n"
        "from surefoot_check.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    for name in ("chebyshev", "order"):
        done = subprocess.run([sys.executable, "-c", code, str(good_run(name))], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "outcome: accept" in done.stdout


def test_hostile_coefficients_are_decided_in_bounded_time(good_run: GoodRun, tmp_path: Path) -> None:
    """64 layers of 64 wild terms: the ranges overflow, or take their limit of boxes; nothing is accepted."""
    random = np.random.default_rng(0)
    for index, C in enumerate([1e30 * random.normal(size=(64, 64)), random.normal(size=(64, 64))]):
        report = check_changed(
            good_run("ones"), changed("C", lambda _, C=C: np.clip(C, -1e30, 1e30)), tmp_path / str(index)
        )
        assert report.outcome is Outcome.REJECT


def test_residuals_without_a_bound_cannot_be_left_out(good_run: GoodRun, tmp_path: Path) -> None:
    def change(run: StoredRun) -> None:
        run.weights["C"] = 1e30 * np.ones_like(run.weights["C"])
        for name in ("residual[1]", "residual[2]", "residual[3]"):
            del run.certificate["quantities"][name]

    report = check_changed(good_run("ones"), change, tmp_path / "run")
    assert report.outcome is Outcome.REJECT


def test_saving_refuses_what_does_not_hold(tmp_path: Path) -> None:
    net = sf.nn.LearnedInverse.ones(2, 4)
    with pytest.raises(ValueError, match="nothing to certify"):
        net.save_certificate(tmp_path / "a", (0.1, 2.5))
    assert not (tmp_path / "a").exists()
    with pytest.raises(ValueError, match="no interval"):
        net.save_certificate(tmp_path / "a")
    net.save_certificate(tmp_path / "b", (0.1, 1.0))
    with pytest.raises(sf.RunDirectoryError, match="not empty"):
        net.save_certificate(tmp_path / "b", (0.1, 1.0))
    with pytest.raises(sf.RunDirectoryError, match="surefoot-inverse/1"):
        sf.Run.load(tmp_path / "b")
