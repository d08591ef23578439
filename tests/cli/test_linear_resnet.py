"""The linear ResNet system on the command line: certify, train, check, report, resume, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import surefoot as sf

DATA = Path(__file__).parents[3] / "shared" / "data" / "uci_regression.npz"
SYSTEM = "linear-resnet"


def small(table: Path, out: Path) -> list[str | Path]:
    """Arguments of a run that takes a fraction of a second."""
    return ["train", SYSTEM, "--data", table, "--depth", "3", "--out", out]


def loss_of(table: Path) -> sf.SquaredLoss:
    data = sf.data.load(table).standardise().centre_targets().train()
    return sf.SquaredLoss(data.X, data.Y)


# -- certify -------------------------------------------------------------------------------------------------------


def test_defaults_are_certified_before_the_first_step(run, table: Path) -> None:
    outcome = run("certify", SYSTEM, "--data", table, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    loss = loss_of(table)
    net = sf.nn.LinearResNet.modified_identity(4, 1, 5, 10, "sufficient", loss=loss)
    expected = sf.certify(net, loss)
    found, problem = outcome.json["certificate"], outcome.json["problem"]
    assert found["theorem"] == "linear-resnet/local"
    assert found["quantities"] == dict(expected.quantities)
    assert found["iterations_to"]["1e-06"] == expected.iterations_to(1e-6)
    assert {name: problem[name] for name in ("n", "m", "depth", "width", "transform", "loss")} == {
        "n": 4,
        "m": 1,
        "depth": 10,
        "width": 5,
        "transform": "modified-identity",
        "loss": "squared",
    }
    assert problem["alpha"] == float(net.B[0, 4])
    text = run("certify", SYSTEM, "--data", table).out
    assert "depth 10, width 5" in text
    assert "the path stays in the ball" in text


@pytest.mark.parametrize("scaling", ["fan", "unit"])
def test_gaussian_is_that_of_the_library(run, table: Path, scaling: str) -> None:
    arguments = ["--transform", "gaussian", "--width", "60", "--depth", "2", "--scaling", scaling, "--seed", "3"]
    outcome = run("certify", SYSTEM, "--data", table, *arguments, "--json")
    loss = loss_of(table)
    net = sf.nn.LinearResNet.gaussian(4, 1, 60, 2, scaling, seed=3)
    expected = sf.certify(net, loss)
    assert outcome.code == (0 if expected.holds else 1)
    assert outcome.json["certificate"]["quantities"] == dict(expected.quantities)
    assert {name: outcome.json["problem"][name] for name in ("scaling", "seed")} == {"scaling": scaling, "seed": 3}


def test_default_width_by_transform(run, table: Path) -> None:
    for transform, width in (("identity", 5), ("gaussian", 1000)):
        arguments = ["--data", table, "--depth", "1", "--transform", transform, "--json"]
        assert run("certify", SYSTEM, *arguments).json["problem"]["width"] == width


def test_theorem_of_the_paper(run, table: Path) -> None:
    theorem = ["--theorem", "linear-resnet/gd", "--data", table, "--json"]
    assert run("certify", SYSTEM, *theorem).code == 1
    large = run("certify", SYSTEM, *theorem, "--alpha", "1000")
    assert large.code == 0
    assert large.json["certificate"]["rule"] == "constant"


def test_width_below_the_outputs_fails_with_a_suggestion(run, table: Path) -> None:
    outcome = run("certify", SYSTEM, "--data", table, "--transform", "gaussian", "--width", "3")
    assert outcome.code == 1
    assert "suggestion: width 3 is below max(inputs, outputs): use --width 5 or more" in outcome.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--width", "4"], "needs at least d + k = 5"),
        (["--width", "3", "--transform", "identity"], "at least max(d, k) = 4"),
        (["--width", "0"], "--width is 0"),
        (["--depth", "0"], "--depth is 0"),
        (["--alpha", "sufficent"], "--alpha is 'sufficent'; it must be a positive number or 'sufficient'"),
        (["--alpha", "-1"], "alpha is -1.0"),
        (["--alpha", "nan"], "alpha is nan"),
        (["--alpha", "2", "--transform", "gaussian"], "--alpha belongs to --transform modified-identity"),
        (["--scaling", "unit"], "--scaling belongs to --transform gaussian"),
        (["--theorem", "linear-resnet/locl"], "did you mean 'linear-resnet/local'"),
        (["--theorem", "two-layer/drift"], "unknown theorem 'two-layer/drift'"),
        (["--data", "photos"], "not rows of one table"),
    ],
)
def test_bad_input_is_one_line_and_code_2(run, table: Path, arguments: list[str], message: str) -> None:
    data = [] if "--data" in arguments else ["--data", table]
    outcome = run("certify", SYSTEM, *data, *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("surefoot: error: ")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--transform", "gausian"], "did you mean 'gaussian'? expected modified-identity, identity or gaussian"),
        (["--loss", "softmax"], "--loss"),
        (["--depth", "deep"], "--depth is 'deep'; expected a whole number"),
    ],
)
def test_usage_errors(run, table: Path, arguments: list[str], message: str) -> None:
    outcome = run("certify", SYSTEM, "--data", table, *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err


def test_zero_inputs_and_constant_targets(run, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for name, array in (
        ("zero", np.zeros((20, 3))),
        ("X", random.standard_normal((20, 3))),
        ("Y", random.standard_normal((20, 2))),
        ("constant", np.ones((20, 2))),
    ):
        np.save(tmp_path / f"{name}.npy", array)
    zero = f"{tmp_path / 'zero.npy'},{tmp_path / 'Y.npy'}"
    refused = run("certify", SYSTEM, "--data", zero, "--inputs", "raw")
    assert (refused.code, refused.out) == (2, "")
    assert "X is zero" in refused.err
    assert "every column constant" in run("certify", SYSTEM, "--data", zero).err
    solved = f"{tmp_path / 'X.npy'},{tmp_path / 'constant.npy'}"  # centred: zero weights are optimal
    assert run("certify", SYSTEM, "--data", solved, "--depth", "2").code == 0


# -- train, check, report ------------------------------------------------------------------------------------------


def test_train_check_and_report(run, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    outcome = run(*small(table, out), "--json")
    assert (outcome.code, outcome.err) == (0, "")
    record = outcome.json
    assert record["result"]["status"] == "converged"
    assert record["result"]["certified"] is True
    assert record["result"]["guaranteed_iterations"] >= record["result"]["iterations"]
    assert record["audit"]["holds"] is True
    net = sf.nn.LinearResNet.modified_identity(4, 1, 5, 3, record["problem"]["alpha"])
    loss = loss_of(table)
    sf.descend(net, loss, max_iterations=10_000, tolerance=1e-10, certify_every=10, progress=False)
    test = sf.data.load(table).standardise().centre_targets().test()
    rmse = float(((net(test.X).detach() - test.Y) ** 2).mean().sqrt())
    assert record["evaluation"]["test_rows"] == 8
    assert record["evaluation"]["test_rmse"] == pytest.approx(rmse, rel=1e-9)
    check = run("check", out)
    assert check.code == 0
    assert "outcome: accept" in check.out
    page = (out / "report.html").read_text()
    assert record["result"]["certified_from"] == 0
    assert run("report", out).out.startswith(str(out / "report.html"))
    assert (out / "report.html").read_text() == page
    for part in ("Run report: linear-resnet/local", "✓ GUARANTEED", "Polyak-Łojasiewicz constant on the ball", "ϱ_min"):
        assert part in page
    assert "linear-resnet/gd" in page  # compared
    assert "two-layer" not in page
    assert "W1" not in page[page.index("<main") :]


@pytest.mark.usefixtures("without_report")
def test_classes(run, classes: Path, tmp_path: Path) -> None:
    outcome = run(*small(classes, tmp_path / "run"), "--tolerance", "1e-6", "--json")
    assert outcome.code == 0
    assert outcome.json["problem"]["targets"] == "classes"
    assert outcome.json["evaluation"] == {"test_rows": 12, "test_accuracy": 1.0, "optimum_test_accuracy": 1.0}


@pytest.mark.usefixtures("without_report")
def test_certified_along_the_way(run, table: Path, tmp_path: Path) -> None:
    gaussian = [*small(table, tmp_path / "run"), "--transform", "gaussian", "--width", "40"]
    refused = run(*gaussian, "--require-certificate")
    assert refused.code == 1
    assert "not trained" in refused.err
    assert not (tmp_path / "run").exists()
    outcome = run(*gaussian)
    assert outcome.code == 0
    assert "asked again every 10 iterations" in outcome.out
    since = sf.Run.load(tmp_path / "run").certified_from
    assert since is not None
    assert since > 0
    assert f"every step from iteration {since} on" in outcome.out
    assert outcome.out.count("the gap never increases") == 1  # the phases of the run are taken together
    assert "surefoot check" in outcome.out
    quiet = run(*gaussian, "--out", tmp_path / "quiet", "--quiet")
    assert quiet.out.endswith(f", certified from iteration {since} on\n")
    never = run(*gaussian[:-1], "41", "--certify-every", "None", "--out", tmp_path / "never")
    assert "asked again" not in never.out
    assert "none: this run is uncertified" in never.out


@pytest.mark.usefixtures("without_report")
def test_theorem_of_the_paper_trains_by_its_constant_step(run, table: Path, tmp_path: Path) -> None:
    theorem = ["--theorem", "linear-resnet/gd", "--max-iterations", "20"]
    absent = run(*small(table, tmp_path / "absent"), *theorem)
    assert absent.code == 2
    assert "gives no constant step" in absent.err
    assert not (tmp_path / "absent").exists()
    assert run(*small(table, tmp_path / "absent"), *theorem, "--require-certificate").code == 1
    outcome = run(*small(table, tmp_path / "run"), *theorem, "--alpha", "1000", "--json")
    assert outcome.code == 0
    assert (outcome.json["result"]["rule"], outcome.json["result"]["certified"]) == ("constant", True)
    taken = sf.Run.load(tmp_path / "run")
    assert set(taken.step_sizes) == {outcome.json["certificate"]["step_size"]}
    assert taken.recertified == []
    assert run("check", tmp_path / "run").code == 0


@pytest.mark.usefixtures("without_report")
def test_a_step_above_the_largest_is_certified_later(run, table: Path, tmp_path: Path) -> None:
    step = run("certify", SYSTEM, "--data", table, "--depth", "3", "--json").json["certificate"]["step_size"]
    arguments = [*small(table, tmp_path / "run"), "--steps", str(2.1 * step), "--max-iterations", "20"]
    refused = run(*arguments, "--require-certificate")
    assert refused.code == 1
    outcome = run(*arguments)
    assert outcome.code == 0
    assert "Uncertified  linear-resnet/local gives no guarantee: FAILS: the step is at most the largest" in outcome.out
    assert "asked again every" in outcome.out  # for this step, which the theorem admits once the gap is small
    taken = sf.Run.load(tmp_path / "run")
    assert taken.certified_from and set(taken.step_sizes) == {taken.adopted[0].certificate.step_size}
    assert run("check", tmp_path / "run").code == 0


@pytest.mark.usefixtures("without_report")
def test_divergence_is_code_4(run, table: Path, tmp_path: Path) -> None:
    outcome = run(*small(table, tmp_path / "run"), "--steps", "1e6")
    assert outcome.code == 4
    assert "diverged" in outcome.out


@pytest.mark.usefixtures("without_report")
def test_resume_gives_the_same_run(run, table: Path, tmp_path: Path) -> None:
    gaussian = ["--transform", "gaussian", "--width", "40"]
    run(*small(table, tmp_path / "whole"), *gaussian)
    first = run(*small(table, tmp_path / "parts"), *gaussian, "--max-iterations", "12")
    assert first.code == 0
    hint = [line.split("go on")[0].strip() for line in first.out.partition("\nNext")[2].splitlines()]
    command = f"surefoot train {SYSTEM} --out {tmp_path / 'parts'} --resume --max-iterations 120"
    assert command.replace(" ", "") in "".join(hint).replace(" ", "")  # a long path wraps the line
    resume = ["train", SYSTEM, "--out", tmp_path / "parts", "--resume"]
    changed = run(*resume, "--depth", "4")
    assert changed.code == 2
    assert "--depth is 4" in changed.err
    other = run("train", "two-layer", "--out", tmp_path / "parts", "--resume")
    assert other.code == 2
    assert f"resume with: surefoot train {SYSTEM} --out {tmp_path / 'parts'} --resume" in other.err
    assert run(*resume, "--max-iterations", "10000").code == 0
    assert (tmp_path / "parts" / "trace.jsonl").read_text() == (tmp_path / "whole" / "trace.jsonl").read_text()
    assert json.loads((tmp_path / "parts" / "config.json").read_text())["evaluation"]["test_rows"] == 8


@pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data/uci_regression.npz")
@pytest.mark.usefixtures("without_report")
def test_yacht(run, tmp_path: Path) -> None:
    outcome = run("train", SYSTEM, "--data", f"{DATA}:yacht", "--out", tmp_path / "run", "--json")
    assert outcome.code == 0
    assert outcome.json["problem"]["train_rows"] + outcome.json["problem"]["test_rows"] == 308
    scores = outcome.json["evaluation"]
    assert scores["test_rmse"] == pytest.approx(scores["optimum_test_rmse"], rel=1e-3)


@pytest.mark.usefixtures("without_report")
def test_mini_batches(run, table: Path, tmp_path: Path) -> None:
    arguments = [*small(table, tmp_path / "run"), "--inputs", "whiten", "--alpha", "3000", "--batch", "8", "--json"]
    unfitted = run(*arguments)
    assert unfitted.code == 2 and "does not hold" in unfitted.err
    outcome = run(*arguments, "--project")
    assert outcome.code == 0, outcome.err
    certificate = outcome.json["certificate"]
    assert certificate["theorem"] == "linear-resnet/sgd-local" and certificate["probability"] == 0.99
    assert outcome.json["audit"]["verdict"] == "no violation" and outcome.json["result"]["certified"]
    assert run("check", tmp_path / "run").code == 0
    refused = run(*arguments[:-1], "--project", "--l2", "0.1", "--out", tmp_path / "other")
    assert refused.code == 2 and "leave out --l2" in refused.err
