"""Run directories of linear ResNets: good ones are accepted, and none of the tampered ones is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from changes import GoodRun, bumped, check_changed, edit, everywhere, faster, field, once, reevaluate, scaled
from tamper import SCHEDULE, StoredRun, reevaluated

import surefoot as sf
from surefoot_check.checker import Outcome, check, lines

F64 = torch.float64
RUNS = ("local", "start", "gd", "duplicated")


def normal(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def _make(name: str, path: Path) -> None:
    X, Y = normal(30, 3, seed=0), normal(30, 2, seed=1)
    net, every, theorem = sf.nn.LinearResNet.modified_identity(3, 2, 8, 4, 30.0), None, None
    if name == "local":
        every = 6
    elif name == "gd":
        net, theorem = sf.nn.LinearResNet.modified_identity(3, 2, 8, 4, 60.0), "linear-resnet/gd"
    elif name == "start":  # nonzero weights, close to a minimiser, and only one layer wide enough for no reduction
        net = sf.nn.LinearResNet(normal(6, 3, seed=3), normal(2, 6, seed=4), 0.1 * normal(3, 6, 6, seed=5))
        Y = (net(X) + 0.001 * normal(30, 2, seed=6)).detach()
    elif name == "duplicated":
        X = torch.cat([X, X[:, :1]], 1)
        net = sf.nn.LinearResNet.modified_identity(4, 2, 8, 4, 40.0)
    loss = sf.SquaredLoss(X, Y)
    certificate = sf.certify(net, loss, theorem)
    assert certificate.holds
    steps = "smooth" if name in ("local", "start") else None
    sf.descend(
        net, loss, steps, 12, 1e-12, certificate=certificate, certify_every=every, directory=path, progress=False
    )


@pytest.fixture(scope="module")
def good_run(tmp_path_factory: pytest.TempPathFactory) -> GoodRun:
    """``good_run(name)``: the directory of a run that the checker accepts, made once."""
    return once(tmp_path_factory, _make)


def narrower(run: Any) -> None:
    """All arrays one unit narrower: they fit each other, and the sizes in the certificate are stale."""
    everywhere("A", lambda A: A[:-1])(run)
    everywhere("B", lambda B: B[:, :-1])(run)
    everywhere("W", lambda W: W[:, :-1, :-1])(run)


def phase_of_other_weights(run: Any) -> None:
    """A later certificate stays, the checkpoint that it speaks of goes on a step further."""
    name, _ = run.phase
    start = name.removeprefix("certificate-").removesuffix(".json")
    file = f"checkpoints/{start}.safetensors"
    run.arrays[file]["W"] = bumped(run.arrays[file]["W"], 1.0)


def phase_without_checkpoint(run: Any) -> None:
    name, _ = run.phase
    del run.arrays[f"checkpoints/{name.removeprefix('certificate-').removesuffix('.json')}.safetensors"]


def phase_scaled(name: str, factor: float) -> Any:
    def change(run: Any) -> None:
        file, record = run.phase
        value = float.fromhex(record["quantities"][name]) * factor
        run.certificates[file] = reevaluated(record, {name: value})

    return change


LOCAL: dict[str, Any] = {
    "radius smaller": reevaluate({"radius": 1 - 1e-3}),
    "radius much larger": reevaluate({"radius": 1e3}),
    "radius larger, constants those of the smaller": reevaluate({"radius": 1.05}),
    "radius negative": reevaluate({"radius": -1.0}),
    "pl_constant larger by 1e-6": reevaluate(pl_constant=1 + 1e-6),
    "pl_constant twice": reevaluate(pl_constant=2.0),
    "gauss_newton smaller by 1e-6": reevaluate(gauss_newton=1 - 1e-6),
    "gauss_newton half": reevaluate(gauss_newton=0.5),
    "bilinear smaller by 1e-6": reevaluate(bilinear=1 - 1e-6),
    "bilinear 0": reevaluate(bilinear=0.0),
    "initial_gap smaller": reevaluate(initial_gap=1 - 1e-6),
    "pl_constant larger, alone": scaled(("quantities", "pl_constant"), 1 + 1e-6),
    "gauss_newton smaller, alone": scaled(("quantities", "gauss_newton"), 1 - 1e-6),
    "smoothness smaller": scaled(("quantities", "smoothness"), 1 - 1e-6),
    "required_radius smaller": scaled(("quantities", "required_radius"), 1 - 1e-6),
    **{f"gamma {g}, alone": field(("quantities", "gamma"), g.hex()) for g in (0.0, 0.5, 2.0, 3.0, -1.0)},
    **{f"gamma {g}": reevaluate({"gamma": g}) for g in (1.5, 1.9)},  # the radius is that of 1
    "no gamma": lambda run: run.certificate["quantities"].pop("gamma"),
    "no radius": lambda run: run.certificate["quantities"].pop("radius"),
    "no bilinear": lambda run: run.certificate["quantities"].pop("bilinear"),
    "a quantity of the other theorem": field(("quantities", "norm_A"), (1.0).hex()),
    "the other theorem": field(("theorem",), "linear-resnet/gd"),
    "the condition on the ball left out": lambda run: run.certificate["conditions"].pop(),
    "second step": field((*SCHEDULE, 0, 5), (1e-9).hex()),
}
PHASES: dict[str, Any] = {
    "phase of other weights": phase_of_other_weights,
    "phase without its checkpoint": phase_without_checkpoint,
    "phase with a larger pl_constant": phase_scaled("pl_constant", 1 + 1e-6),
    "phase with a smaller gap": phase_scaled("initial_gap", 0.5),
    "phase with a smaller gauss_newton": phase_scaled("gauss_newton", 1 - 1e-6),
}
GD: dict[str, Any] = {
    **{f"{name} smaller": reevaluate(**{name: 1 - 1e-6}) for name in ("norm_A", "norm_B", "norm_X", "initial_gap")},
    **{f"{name} larger": reevaluate(**{name: 1 + 1e-6}) for name in ("sigma_min_A", "sigma_min_B", "sigma_min_X")},
    "initial loss below the gap": reevaluate({"initial_loss": 0.01}),
    "step larger": reevaluate({"initial_step": 1 + 1e-6}),
    "step 0": reevaluate({"initial_step": 0.0}),
    "weights not zero": everywhere("W", lambda W: bumped(W, 1e-9)),
    "weight_norm negative": field(("quantities", "weight_norm"), (-1.0).hex()),
    "radius added": field(("quantities", "radius"), (1.0).hex()),
}
ANY: dict[str, Any] = {
    "initial W changed": edit("initial.safetensors", "W", bumped),
    "A changed everywhere": everywhere("A", lambda A: A * 0.9),
    "B changed everywhere": everywhere("B", lambda B: B * 1.1),
    "A of a checkpoint changed": edit("checkpoint", "A", bumped),
    "B of a checkpoint changed": edit("checkpoint", "B", bumped),
    "W of a checkpoint far off": edit("checkpoint", "W", lambda W: bumped(W, 5.0)),
    "final W far off": edit("final.safetensors", "W", lambda W: bumped(W, 5.0)),
    "A of other shape in a checkpoint": edit("checkpoint", "A", lambda A: A[:-1]),
    "W without a layer everywhere": everywhere("W", lambda W: W[1:]),
    "W of one dimension less": edit("initial.safetensors", "W", lambda W: W[0]),
    "W in float32": edit("initial.safetensors", "W", lambda W: W.astype(np.float32)),
    "W not finite": edit("initial.safetensors", "W", lambda W: bumped(W, np.nan)),
    "W huge": edit("initial.safetensors", "W", lambda W: bumped(W, 1e60)),
    "no W": lambda run: run.weights.pop("W"),
    "an array too many": lambda run: run.weights.update(W1=np.eye(3)),
    "narrower": narrower,
    "data changed": edit("problem.safetensors", "X", lambda X: 0.9 * X),
    "target changed": edit("problem.safetensors", "Y", lambda Y: bumped(Y, 1.0)),
    "witness changed": edit("problem.safetensors", "optimum", lambda V: bumped(V, 0.1)),
    "depth one more": field(("problem", "depth"), 5),
    "width one more": field(("problem", "m"), 6),
    "depth a float": field(("problem", "depth"), 4.0),
    "quadratic 1": field(("problem", "quadratic"), 1),
    "kind sensing": field(("problem", "kind"), "sensing"),
    "another system": field(("system",), "two-layer"),
    "a theorem of another system": field(("theorem",), "two-layer/drift"),
    "first decrease larger": faster(factor=1 + 1e-6),
    "last decrease larger": faster(-1, factor=1 + 1e-6),
    "first step larger": scaled((*SCHEDULE, 0, 4), 1 + 1e-6),
    "first level smaller": scaled((*SCHEDULE, 0, 2), 1 - 1e-6),
    "rate smaller": scaled(("conclusion", "rate"), 1 - 1e-6),
    "step of the conclusion larger": scaled(("conclusion", "step_size"), 1 + 1e-6),
    "no segments": field(SCHEDULE, []),
    "a count too many": field((*SCHEDULE, -1, 1), 10),
}
CASES = [
    *(("local", name, change) for name, change in {**LOCAL, **PHASES, **ANY}.items()),
    *(("start", name, change) for name, change in LOCAL.items() if "initial_gap" not in name),
    *(("gd", name, change) for name, change in {**GD, **ANY}.items()),
]


@pytest.mark.parametrize("name", RUNS)
def test_good_runs_are_accepted(name: str, good_run: GoodRun) -> None:
    report = check(good_run(name))
    assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report))
    assert sum(line.claim == "L2" for line in report.lines) >= 4
    assert len(list(good_run(name).glob("certificate-*.json"))) == (1 if name == "local" else 0)


@pytest.mark.parametrize("name", RUNS)
def test_the_generator_alone_changes_nothing(name: str, good_run: GoodRun, tmp_path: Path) -> None:
    report = check_changed(good_run(name), reevaluate(), tmp_path / "run")
    assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report))


@pytest.mark.parametrize(("name", "case", "change"), CASES, ids=[f"{name}: {case}" for name, case, _ in CASES])
def test_tampered(name: str, case: str, change: Any, good_run: GoodRun, tmp_path: Path) -> None:
    report = check_changed(good_run(name), change, tmp_path / "run")
    assert report.outcome is not Outcome.ACCEPT, "\n".join(lines(report))
    assert [line for line in report.lines if line.outcome is not Outcome.ACCEPT]


@pytest.mark.parametrize("name", ["local", "gd"])
def test_without_new_hashes_any_change_is_rejected(name: str, good_run: GoodRun, tmp_path: Path) -> None:
    for index, (file, key) in enumerate((("initial", "A"), ("initial", "W"), ("problem", "X"), ("problem", "optimum"))):
        run = StoredRun.read(good_run(name))
        run.arrays[f"{file}.safetensors"][key] = bumped(run.arrays[f"{file}.safetensors"][key], 1e-15)
        run.write(tmp_path / str(index))
        assert check(tmp_path / str(index)).outcome is Outcome.REJECT


def test_a_checkpoint_of_another_run(good_run: GoodRun, tmp_path: Path) -> None:
    """With its own seal it is rejected; resealed, its A and B are not those of this run."""
    other, file = StoredRun.read(good_run("gd")), "checkpoints/000000005.safetensors"
    for resealed in (False, True):
        run = StoredRun.read(good_run("local"))
        run.arrays[file] = dict(other.arrays[file])
        if resealed:
            run.seal()
        run.write(tmp_path / str(resealed))
        assert check(tmp_path / str(resealed)).outcome is Outcome.REJECT


def test_an_early_iterate_passed_off_as_a_late_one(good_run: GoodRun, tmp_path: Path) -> None:
    run = StoredRun.read(good_run("local"))
    late, early = (run.arrays[f"checkpoints/{t:09d}.safetensors"] for t in (10, 1))
    late["W"] = early["W"]
    run.seal()
    run.write(tmp_path / "run")
    report = check(tmp_path / "run")
    assert report.outcome is Outcome.REJECT
    assert all("gap after 10 iterations" in line.name for line in report.lines if line.outcome is not Outcome.ACCEPT)


@pytest.mark.parametrize(
    "change",
    [
        reevaluate({"gamma": 0.5}),
        reevaluate(pl_constant=1 - 1e-7, gauss_newton=1 + 1e-6, bilinear=1 + 1e-6, initial_gap=1 + 1e-7),
    ],
)
def test_a_weaker_certificate_is_still_true(change: Any, good_run: GoodRun, tmp_path: Path) -> None:
    report = check_changed(good_run("start"), change, tmp_path / "run")
    assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report))


def test_a_run_that_is_certified_nowhere_claims_nothing(tmp_path: Path) -> None:
    loss = sf.SquaredLoss(normal(30, 3, seed=0), 100.0 * normal(30, 2, seed=1))
    net = sf.nn.LinearResNet.modified_identity(3, 2, 5, 3, 0.1)
    sf.descend(net, loss, max_iterations=3, directory=tmp_path / "run", progress=False)
    report = check(tmp_path / "run")
    assert report.outcome is Outcome.REJECT and "nothing is claimed" in "\n".join(lines(report))


def test_a_run_certified_along_the_way_is_accepted_from_there_on(tmp_path: Path) -> None:
    loss = sf.SquaredLoss(normal(60, 3, seed=0), -normal(60, 3, seed=0) @ torch.eye(3, 2, dtype=torch.float64))
    net = sf.nn.LinearResNet.gaussian(3, 2, 40, 4, seed=1)
    run = sf.descend(net, loss, "smooth", 400, 1e-8, certify_every=5, directory=tmp_path / "run", progress=False)
    assert not run.certificate.holds and run.certified_from is not None and run.certified_from > 0
    report = check(tmp_path / "run")
    assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report))
    assert f"nothing is claimed before iteration {run.certified_from}" in "\n".join(lines(report))
    first = (tmp_path / "run" / "certificate.json").read_text()
    (tmp_path / "run" / "certificate.json").write_text(first.replace('"claims": []', '"claims": ["L1", "L2"]'))
    assert check(tmp_path / "run").outcome is Outcome.REJECT
    (tmp_path / "run" / "certificate.json").write_text(first)
    for file in (tmp_path / "run").glob("certificate-*.json"):
        file.unlink()
    assert "nothing is claimed" in "\n".join(lines(check(tmp_path / "run")))


@pytest.mark.parametrize("level", ["fast", "exact"])
def test_products_that_overflow_are_no_verdict(level: str, good_run: GoodRun, tmp_path: Path) -> None:
    """Nine matrices of entries near 1e50 with the right hashes: nothing is wrong for certain, and no bound is finite."""
    run = StoredRun.read(good_run("local"))
    for weights in (arrays for file, arrays in run.arrays.items() if file != "problem.safetensors"):
        weights["W"] = np.repeat(weights["W"], 2, axis=0) + 9e49
    run.certificate["problem"]["depth"] *= 2
    run.seal()
    run.write(tmp_path / "run")
    report = check(tmp_path / "run", level)
    assert report.outcome is Outcome.UNDECIDED and "overflow" in "\n".join(lines(report)), "\n".join(lines(report))
