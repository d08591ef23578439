"""The implicit ReLU system on the command line: certify, train, check, report, resume, and what is refused."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import surefoot as sf
from surefoot._implicit.command import Train
from surefoot._implicit.command_samples import quotas

SYSTEM = "implicit"
DIGITS = ["--data", "digits", "--classes", "0,1", "--inputs", "unit", "--samples", "12", "--width", "48"]


@pytest.fixture
def images(tmp_path: Path):
    """Writes 24 images of 3 x 3 pixels, two classes, the last two of each held out; rows may be changed first."""

    def write(name: str = "images", change=lambda rows: None, labelled: bool = True) -> Path:
        rows = np.random.default_rng(2).random((24, 9))
        change(rows)
        arrays = {"images": rows.reshape(24, 3, 3), "split": np.isin(np.arange(24), [10, 11, 22, 23])}
        if labelled:
            arrays["labels"] = np.repeat([0, 1], 12)
        path = tmp_path / f"{name}.npz"
        np.savez(path, **arrays)
        return path

    return write


def small(out: Path, *more: str) -> list[str | Path]:
    """Arguments of a run of a second or so."""
    return ["train", SYSTEM, *DIGITS, "--tolerance", "0.05", *more, "--out", out]


# -- certify -------------------------------------------------------------------------------------------------------


def test_unit_rows_are_certified_before_the_first_step(run) -> None:
    outcome = run("certify", SYSTEM, *DIGITS, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    problem, found = outcome.json["problem"], outcome.json["certificate"]
    assert (found["theorem"], found["status"]) == ("implicit/spectral", "holds")
    expected = {"n": 64, "m": 1, "width": 48, "train_rows": 12, "drawn_rows": 12, "classes": [0, 1], "inputs": "unit"}
    assert {name: problem[name] for name in expected} == expected
    assert problem["contraction"] == pytest.approx(problem["gamma"] * problem["scale"], rel=1e-9)
    assert problem["contraction"] < 1.0
    assert 0.0 < found["iterations_to"]["0.001"] < 5000
    text = run("certify", SYSTEM, *DIGITS).out
    for part in (
        "12 drawn of 288 to train on; 72 held out",
        "1 column: 0 for class 0, 1 for class 1",
        "rows of norm 1 (64 columns)",
        "to 0.001",
        "mass[0] … mass[127]",
    ):
        assert part in text
    assert "mass[5]" not in text


def test_weights_are_those_of_the_library(run, images) -> None:
    outcome = run(
        "certify", SYSTEM, "--data", images(), "--inputs", "unit", "--samples", "1000", "--seed", "3", "--json"
    )
    data = sf.data.load(images()).train()
    assert isinstance(data.X, torch.Tensor)
    X = data.X / data.X.norm(dim=1, keepdim=True)
    assert data.labels is not None
    y = data.labels.double()
    net = sf.nn.ImplicitReLU.certifiable(X, y, 4 * 20, seed=3)
    expected = sf.certify(net, sf.SquaredLoss(X, y))
    assert outcome.json["problem"]["width"] == 80
    assert outcome.json["problem"]["gamma"] == pytest.approx(net.gamma, rel=1e-9)
    assert outcome.json["certificate"]["step_size"] == pytest.approx(expected.step_size, rel=1e-6)


def test_defaults_reach_their_tolerance_within_their_limit(run) -> None:
    record = run("certify", SYSTEM, "--json").json
    assert (record["problem"]["drawn_rows"], record["problem"]["inputs"]) == (100, "standardise")
    assert len(record["problem"]["classes"]) == 10
    limit = Train.__dataclass_fields__["max_iterations"].default
    assert record["certificate"]["iterations_to"]["0.001"] < limit / 5


def test_constant_steps_need_a_number(run, tmp_path: Path) -> None:
    outcome = run(*small(tmp_path / "run", "--steps", "constant"))
    assert outcome.code == 2
    assert "--steps constant lacks its step; give the number itself, for example --steps 0.01" in outcome.err
    assert not (tmp_path / "run").exists()


def test_rows_have_norm_1_with_the_weights_of_the_paper(run, images) -> None:
    data = ["--data", images(), "--gamma", "0.5", "--json"]
    assert run("certify", SYSTEM, *data).json["problem"]["inputs"] == "unit"
    assert run("certify", SYSTEM, *data, "--inputs", "raw").json["problem"]["inputs"] == "raw"


def test_several_classes_are_one_hot_columns(run) -> None:
    options = ["--classes", "3,1,7", "--samples", "15", "--width", "64"]
    outcome = run("certify", SYSTEM, *options)
    assert outcome.code == 0
    assert "3 classes, one-hot" in outcome.out
    record = run("certify", SYSTEM, *options, "--json").json["problem"]
    assert (record["m"], record["classes"]) == (3, [3, 1, 7])


@pytest.mark.usefixtures("without_report")
def test_numbers(run, tmp_path: Path) -> None:
    options = ["--data", "diabetes", "--inputs", "standardise", "--samples", "15", "--width", "60"]
    assert run("certify", SYSTEM, *options).code == 0
    arguments = ["train", SYSTEM, *options, "--tolerance", "0.3", "--out", tmp_path / "run", "--json"]
    record = run(*arguments).json
    assert record["problem"]["targets"] == "numbers"
    assert record["problem"]["available_rows"] == 354
    assert record["evaluation"]["test_rows"] == 88
    assert record["evaluation"]["test_rmse"] > 0.0
    assert "optimum_test_rmse" not in record["evaluation"]


def test_scale_of_the_paper_is_uncertified_and_says_what_to_do(run) -> None:
    outcome = run("certify", SYSTEM, *DIGITS, "--gamma", "0.5")
    assert outcome.code == 1
    assert "γ = 0.5; W ~ N(0, 1/m), A = I, b = 0" in outcome.out
    assert "suggestion: leave out --gamma" in outcome.out
    narrow = run("certify", SYSTEM, *DIGITS[:-1], "13", "--gamma", "0.5")
    assert "use --width 24 or more, and leave out --gamma" in " ".join(narrow.out.split())
    paper = run("certify", SYSTEM, *DIGITS, "--theorem", "implicit/gd")
    assert paper.code == 1
    assert "leave out --theorem: implicit/spectral asks for far less" in paper.out


def test_flow_is_promised_in_time_and_not_trained(run, tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", 1e6 * np.eye(2, 5))
    np.save(tmp_path / "Y.npy", np.array([1.0, -1.0]))
    flow = ["--data", f"{tmp_path / 'X.npy'},{tmp_path / 'Y.npy'}", "--inputs", "raw", "--theorem", "implicit/flow"]
    outcome = run("certify", SYSTEM, *flow, "--gamma", "0.1", "--width", "40")
    assert outcome.code == 0
    assert "guaranteed along the gradient flow" in outcome.out
    assert "first step" not in outcome.out
    refused = run("train", SYSTEM, *flow, "--gamma", "0.1", "--out", tmp_path / "run")
    assert refused.code == 2
    assert "surefoot.gradient_flow" in refused.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--samples", "0"], "--samples is 0; it must be at least 1"),
        (["--seed", "99999999999999999999999"], "--seed is 99999999999999999999999; it must fit into 64 bits"),
        (["--samples", "-3"], "--samples is -3; it must be at least 1"),
        (["--samples", "5"], "--samples is 5, fewer than the 10 classes"),
        (["--width", "0"], "--width is 0; it must be at least 1"),
        (["--gamma", "0"], "--gamma is 0; it must lie strictly between 0 and 1"),
        (["--gamma", "-0.5"], "--gamma is -0.5; it must lie strictly between 0 and 1"),
        (["--gamma", "nan"], "--gamma is nan; it must lie strictly between 0 and 1"),
        (["--gamma", "1"], "gamma ||A|| = 1 with A = I"),
        (["--gamma", "1.5"], "gamma ||A|| = 1.5 with A = I; it must lie strictly between 0 and 1"),
        (["--classes", "0,11"], "no row has label 11; the labels are [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"),
        (["--classes", "0"], "--classes is '0'; name at least two classes"),
        (["--classes", "a,b"], "--classes is 'a,b'; name class labels, separated by commas"),
        (["--targets", "raw"], "digits has class labels but no numbers to fit; use --targets classes"),
        (["--data", "diabetes", "--targets", "classes"], "diabetes has no class labels for --targets classes"),
        (["--data", "diabetes", "--classes", "0,1"], "needs class labels, and this data has none"),
        (["--data", "photos"], "not rows of one table"),
        ([*DIGITS, "--theorem", "two-layer/drift"], "unknown theorem 'two-layer/drift'"),
    ],
)
def test_bad_input_is_one_line_and_code_2(run, arguments: list[str], message: str) -> None:
    outcome = run("certify", SYSTEM, *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("surefoot: error: ")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def test_bad_images(run, images) -> None:
    def spoil(rows: np.ndarray) -> None:
        rows[4, 2] = np.nan

    nan = run("certify", SYSTEM, "--data", images("nan", spoil))
    assert nan.code == 2
    assert "is nan at index [4, 0, 2]" in nan.err
    unlabelled = run("certify", SYSTEM, "--data", images("unlabelled", labelled=False))
    assert unlabelled.code == 2
    assert "has no targets" in unlabelled.err


def test_duplicate_and_zero_rows_are_named_and_merged(run, images) -> None:
    def repeat(rows: np.ndarray) -> None:
        rows[5] = rows[2]
        rows[14] = 3.0 * rows[13]
        rows[7] = 0.0

    data = ["--data", images("repeated", repeat), "--inputs", "unit"]
    refused = run("certify", SYSTEM, *data)
    assert (refused.code, refused.out) == (1, "")
    assert "rows 2, 5 are equal; rows 13, 14 are" in refused.err
    assert "row 7 is all zero" in refused.err
    assert "pass --merge" in refused.err
    record = run("certify", SYSTEM, *data, "--json").json
    assert record["certificate"] is None
    assert record["problem"]["zero_rows"] == 1
    assert "--merge" in record["reason"]
    uncertified = run("certify", SYSTEM, *data, "--gamma", "0.5")
    assert uncertified.code == 1
    assert "beware       rows 2, 5 are equal" in uncertified.out
    assert "suggestion: pass --merge" in uncertified.out
    merged = run("certify", SYSTEM, *data, "--merge")
    assert merged.code == 0
    assert "20 rows became 17" in merged.out


def test_conflicting_duplicates_leave_a_loss(run, images) -> None:
    def contradict(rows: np.ndarray) -> None:
        rows[12] = rows[0]

    outcome = run("certify", SYSTEM, "--data", images("contradicting", contradict), "--inputs", "unit", "--merge")
    assert outcome.code == 0
    assert "leave a loss of 0.25 besides" in outcome.out  # two equal rows with labels 0 and 1


def test_all_rows_zero(run, images) -> None:
    def erase(rows: np.ndarray) -> None:
        rows[:] = 0.0

    outcome = run("certify", SYSTEM, "--data", images("zero", erase), "--inputs", "unit", "--merge")
    assert outcome.code == 2
    assert "all rows of X are all zero" in outcome.err


def test_too_narrow_is_not_trained(run, tmp_path: Path) -> None:
    outcome = run(*small(tmp_path / "run"), "--width", "8")
    assert (outcome.code, outcome.out) == (1, "")
    assert "not trained: --width is 8, below the 12 samples" in outcome.err
    assert "--gamma 0.5 trains without a certificate" in outcome.err
    assert not (tmp_path / "run").exists()


# -- the drawn rows ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "total", "expected"),
    [
        ([50, 50], 10, [5, 5]),
        ([90, 10], 10, [9, 1]),
        ([98, 1, 1], 10, [8, 1, 1]),
        ([3, 2], 10, [3, 2]),
        ([10, 10, 10], 10, [4, 3, 3]),
        ([1000, 1], 1001, [1000, 1]),
    ],
)
def test_quotas(sizes: list[int], total: int, expected: list[int]) -> None:
    assert quotas(sizes, total) == expected


@pytest.mark.usefixtures("without_report")
def test_rows_are_drawn_by_class_and_seed(run, tmp_path: Path) -> None:
    stored = []
    for index, seed in enumerate(("1", "1", "2")):
        out = tmp_path / str(index)
        assert run(*small(out, "--seed", seed, "--max-iterations", "0")).code == 0
        stored.append(sf.Run.load(out).problem)
    train = sf.data.load("digits").classes(0, 1).train()
    assert isinstance(train.X, torch.Tensor)
    known = train.X / train.X.norm(dim=1, keepdim=True)
    assert (stored[0]["X"][:, None] - known).abs().amax(2).min(1).values.max() < 1e-15
    assert stored[0]["Y"].sum() == 6.0
    assert torch.equal(stored[0]["X"], stored[1]["X"])
    assert not torch.equal(stored[0]["X"], stored[2]["X"])


# -- train, check, report ------------------------------------------------------------------------------------------


def test_train_check_and_report(run, tmp_path: Path) -> None:
    out = tmp_path / "run"
    outcome = run(*small(out), "--json")
    assert (outcome.code, outcome.err) == (0, "")
    record = outcome.json
    result = record["result"]
    assert (result["status"], result["certified"], result["rule"]) == ("converged", True, "certified-constant")
    assert result["iterations"] <= result["guaranteed_iterations"]
    assert record["audit"]["holds"] is True
    assert 0.0 < result["feature_movement"] < 1e-4
    assert record["evaluation"]["test_rows"] == 72
    assert record["evaluation"]["test_accuracy"] > 0.9
    saved = sf.Run.load(out)
    net = sf.nn.ImplicitReLU(*(saved.initial[name] for name in ("W", "A", "b")), float(saved.initial["gamma"]))
    norm = float(net.equilibrium(saved.problem["X"]).Z.norm())
    assert result["feature_movement"] == pytest.approx(max(r["feature_movement"] for r in saved.rows) / norm)
    check = run("check", out)
    assert check.code == 0
    assert "outcome: accept" in check.out
    page = (out / "report.html").read_text()
    for part in (
        "Run report: implicit/spectral, squared loss, converged",
        "✓ GUARANTEED",
        "linear readout of random equilibrium features",
        "64 inputs, 1 output",
        "Movement of the features",
        "implicit/gd",
        "mass[0] … [127]",
    ):
        assert part in page
    assert "two-layer" not in page
    assert (out / "plots" / "features.png").stat().st_size > 10_000
    assert run("report", out).out.count("features.png") == 1


@pytest.mark.usefixtures("without_report")
def test_output_for_people(run, tmp_path: Path) -> None:
    outcome = run(*small(tmp_path / "run"))
    assert outcome.code == 0
    for part in (
        "every step certified by implicit/spectral",
        "of their norm",
        "what converged is in effect a linear readout of random equilibrium features",
        "72, never seen in training",
        "nothing is guaranteed of unseen rows",
    ):
        assert part in outcome.out
    quiet = run(*small(tmp_path / "quiet", "--quiet"))
    assert quiet.out.startswith(f"{tmp_path / 'quiet'}: converged, ")
    assert quiet.out.endswith(", certified\n")


@pytest.mark.usefixtures("without_report")
def test_limit_below_the_guarantee_is_announced(run, tmp_path: Path) -> None:
    outcome = run(*small(tmp_path / "few", "--max-iterations", "2"))
    said = " ".join(outcome.out.split())
    assert (
        "the guarantee is for more iterations (" in said and "to a relative gap of 0.05) than the limit of this" in said
    )
    assert "(--max-iterations 2); it usually gets there sooner; --inputs whiten usually needs far fewer" in said
    assert "to go on, --resume with more --max-iterations" in said
    assert "than the limit of this run" not in " ".join(run(*small(tmp_path / "many")).out.split())


def test_uncertified_run_takes_safe_steps(run, tmp_path: Path) -> None:
    gamma = ["--gamma", "0.5", "--max-iterations", "12"]
    refused = run(*small(tmp_path / "run", *gamma, "--require-certificate"))
    assert refused.code == 1
    assert "not trained" in refused.err
    assert "leave out --gamma" in refused.err
    assert not (tmp_path / "run").exists()
    outcome = run(*small(tmp_path / "run", *gamma))
    assert outcome.code == 0
    assert "Uncertified  implicit/spectral gives no guarantee" in outcome.out
    assert "none: this run is uncertified" in outcome.out
    assert "linear readout" not in outcome.out
    gaps = sf.Run.load(tmp_path / "run").gaps
    assert all(after < before for before, after in itertools.pairwise(gaps))
    page = (tmp_path / "run" / "report.html").read_text()
    assert "✗ NOTHING IS GUARANTEED" in page
    assert "this run trained the features, too" in page


MOVING = ["--theorem", "implicit/local", "--data", "digits", "--classes", "0,1", "--samples", "8", "--width", "40"]


@pytest.mark.slow
def test_a_network_is_trained_until_a_fit_is_guaranteed_wherever_its_features_have_gone(run, tmp_path: Path) -> None:
    """Trained by Adam, watched, finished, descended, audited, reported and checked; resumed from where the run began."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    arguments = ["train", SYSTEM, *MOVING, "--optimizer-steps", "40"]
    outcome = run(*arguments, "--out", whole, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    record, result = outcome.json, outcome.json["result"]
    assert (record["certificate"]["theorem"], record["certificate"]["status"]) == ("implicit/local", "holds")
    assert (result["status"], result["certified"], result["rule"]) == ("converged", True, "certified-bb")
    assert record["problem"]["trained"].startswith("40 steps of adam, margin ")
    assert " of gauss-newton, norm of the residual" in record["problem"]["finished"]
    page, looks = (whole / "report.html").read_text(), json.loads((whole / "watch.json").read_text())["looks"]
    assert looks[-1]["holds"] and looks[-1]["moved"][0] > 0.1 and not any(seen["holds"] for seen in looks[:-1])
    assert "the features were trained, too, and the guarantee is about the trained ones" in page
    assert "linear readout" not in page and "not a readout of random features" in page
    assert f"iteration {looks[-1]['iteration']}" in page
    assert run("check", whole).code == 0
    assert run(*arguments, "--max-iterations", "5", "--out", cut, "--quiet").code == 0
    resumed = run("train", SYSTEM, "--out", cut, "--resume", "--max-iterations", "10000", "--json")
    assert resumed.code == 0 and resumed.json["problem"]["finished"] == record["problem"]["finished"]
    assert (cut / "trace.jsonl").read_text() == (whole / "trace.jsonl").read_text()
    certified = run("certify", SYSTEM, *MOVING, "--weights", whole / "initial.safetensors", "--json")
    assert certified.code == 0
    assert certified.json["certificate"]["quantities"] == record["certificate"]["quantities"]


def test_initial_weights_of_a_training_are_not_certified_and_say_what_to_do(run) -> None:
    outcome = run("certify", SYSTEM, *MOVING)
    assert outcome.code == 1 and "train on" in outcome.out and "A ~ N(0, 1/4m)" in outcome.out


def test_gamma_of_weights_in_a_file_is_that_of_their_state_dict(run, tmp_path: Path) -> None:
    net = sf.nn.ImplicitReLU.gaussian(64, 16, 0.2, generator=torch.Generator().manual_seed(0))
    save_file(net.state_dict(), file := tmp_path / "weights.safetensors")
    outcome = run("certify", SYSTEM, *MOVING, "--weights", file, "--json")
    assert outcome.json["problem"]["gamma"] == 0.2
    refused = run("certify", SYSTEM, *MOVING, "--weights", file, "--gamma", "0.3")
    assert refused.code == 2 and "--gamma is 0.3 and that of" in refused.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--optimizer", "adam"), "--optimizer and --finish go with --theorem implicit/local or implicit/exact-fit"),
        ((*MOVING[:2], "--learning-rate", "0"), "--learning-rate is 0.0; it must be a positive number"),
        ((*MOVING[:2], "--optimizer-steps", "0"), "--optimizer-steps is 0; it must be at least 1"),
        ((*MOVING[:2], "--weights", "none.safetensors"), "--weights none.safetensors: no such file"),
    ],
)
def test_bad_options_of_a_training_are_refused(run, tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    outcome = run(*small(tmp_path / "run", *options))
    assert outcome.code == 2 and message in outcome.err


@pytest.mark.parametrize(
    ("gamma", "step", "status", "kept"),
    [
        ("0.5", "3", "ill posed", "where the equilibrium may not exist; the weights kept are those"),
        ("0.1", "1", "collapsed", "where every unit is 0 on every sample; the weights kept are those"),
        ("0.5", "1e9", "diverged", "not finite, or above a million times the initial gap"),
    ],
)
def test_failure_is_code_4(run, tmp_path: Path, gamma: str, step: str, status: str, kept: str) -> None:
    outcome = run(*small(tmp_path / "run", "--gamma", gamma, "--steps", step))
    assert outcome.code == 4
    assert f"Result  {status}" in outcome.out
    assert kept in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.usefixtures("without_report")
def test_resume_gives_the_same_run(run, tmp_path: Path) -> None:
    run(*small(tmp_path / "whole"))
    first = run(*small(tmp_path / "parts", "--max-iterations", "7"))
    assert first.code == 0
    resume = ["train", SYSTEM, "--out", tmp_path / "parts", "--resume"]
    changed = run(*resume, "--samples", "13")
    assert changed.code == 2
    assert "--samples is 13" in changed.err
    assert run(*resume, "--max-iterations", "10000").code == 0
    assert (tmp_path / "parts" / "trace.jsonl").read_text() == (tmp_path / "whole" / "trace.jsonl").read_text()
    assert json.loads((tmp_path / "parts" / "config.json").read_text())["evaluation"]["test_rows"] == 72


def test_list_shows_the_system(run) -> None:
    found = run("list", "--json").json
    assert SYSTEM in [system["name"] for system in found["systems"]]
    assert {"implicit/spectral", "implicit/measured", "implicit/gd", "implicit/flow"} <= {
        theorem["name"] for theorem in found["theorems"]
    }
    rules = {rule["name"]: rule for rule in found["step_rules"] if rule["systems"] == [SYSTEM]}
    assert {"certified-constant", "well-posed"} <= set(rules)
    assert "implicit/spectral" in rules["certified-constant"]["certified_by"]
