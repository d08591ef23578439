"""``certify step-sizes`` and ``train step-sizes``."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from surefoot._learning.directory import TrainingDirectory
from surefoot._step_sizes import command
from surefoot.cli import main
from surefoot.nn import StepSizeNet

SYSTEM = "step-sizes"
SMALL = ["--size", "4x6", "--problems", "3"]
SHORT = [*SMALL, "--iterations", "12", "--epochs", "3"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that no test may change."""
    directory = tmp_path_factory.mktemp("steps") / "run"
    assert main(["train", SYSTEM, *SHORT, "--out", str(directory), "--quiet"]) == 0
    return directory


# -- certify ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "theorem"),
    [
        ("least-squares", "step-sizes/monotone"),
        ("lasso", "step-sizes/prox-monotone"),
        ("logistic", "step-sizes/prox-monotone"),
    ],
)
def test_certify(run, problem: str, theorem: str) -> None:
    outcome = run("certify", SYSTEM, *SMALL, "--problem", problem, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    record = outcome.json
    assert (record["certificate"]["theorem"], record["certificate"]["holds"]) == (theorem, True)
    assert [record["problem"][name] for name in ("rows", "columns", "problems")] == [4, 6, 3]
    assert record["problem"]["lam"] == (None if problem == "least-squares" else 0.1)
    text = run("certify", SYSTEM, *SMALL, "--problem", problem).out
    assert "no rate: only that the gap never grows" in text
    assert "first step" not in text


def test_certify_a_rate(run) -> None:
    rate = ["--theorem", "step-sizes/rate"]
    outcome = run("certify", SYSTEM, *SMALL, *rate, "--range", "1,1.95", "--json")
    assert outcome.code == 0
    assert outcome.json["certificate"]["rate"] < 1.0
    assert outcome.json["problem"]["range"] == [1.0, 1.95]
    failed = run("certify", SYSTEM, *SMALL, *rate)
    assert failed.code == 1
    assert "use --range 1,1.95" in failed.out


def test_a_range_beyond_two_has_no_certificate(run) -> None:
    outcome = run("certify", SYSTEM, *SMALL, "--range", "0,2.5")
    assert outcome.code == 1
    assert "use --range 0,2: beyond 2/β nothing is guaranteed" in outcome.out


def test_certify_with_trained_weights(run, trained: Path, tmp_path: Path) -> None:
    outcome = run("certify", SYSTEM, *SMALL, "--weights", trained / "net.safetensors", "--json")
    assert outcome.code == 0
    assert outcome.json["problem"]["widths"] == [2, 2, 1024]
    StepSizeNet.orthogonal((2, 3), (1.0, 1.5)).float().save(tmp_path / "own.safetensors")
    outcome = run("certify", SYSTEM, *SMALL, "--weights", tmp_path / "own.safetensors", "--json")
    assert (outcome.json["problem"]["widths"], outcome.json["problem"]["range"]) == ([2, 3], [1.0, 1.5])


# -- train -----------------------------------------------------------------------------------------------------------


def test_train_writes_a_run_that_check_and_report_take(run, trained: Path) -> None:
    names = {path.name for path in trained.iterdir()}
    assert {"net.safetensors", "training", "config.json", "comparison.txt", "report.html", "plots"} <= names
    assert "solving" not in names
    outcome = run("check", trained, "--json")
    assert (outcome.code, outcome.json["outcome"]) == (0, "accept")
    outcome = run("report", trained)
    assert outcome.out.splitlines()[0] == str(trained / "report.html")
    # one number is no step of all coordinates
    assert {path.name for path in (trained / "plots").iterdir()} == {"gap.png", "conditions.png"}
    outcome = run("report", trained / "training")
    assert outcome.code == 2 and "pass DIR, whose run is that on fresh problems" in outcome.err
    table = (trained / "comparison.txt").read_text()
    assert "StepSizeNet (learned)" in table
    assert "CGLS" in table
    config = json.loads((trained / "config.json").read_text())
    assert (config["system"], config["result"]["iterations"]) == (SYSTEM, 12)


@pytest.mark.parametrize("problem", ["least-squares", "lasso", "logistic"])
def test_train_every_problem(run, problem: str, tmp_path: Path, without_report: None) -> None:
    # large enough that zero solves no LASSO
    options = ["--size", "10x16", "--problems", "3", "--iterations", "12", "--epochs", "3", "--problem", problem]
    if problem != "least-squares":
        options += ["--lam", "0.05"]
    out = tmp_path / "run"
    outcome = run("train", SYSTEM, *options, "--out", out, "--json")
    assert outcome.code == 0
    record = outcome.json
    assert record["training"]["epochs"] == 3
    assert record["training"]["best_loss"] < record["training"]["initial_loss"]
    assert record["audit"]["holds"]
    assert record["result"]["iterations"] == 12
    learned = [row for row in record["comparison"]["methods"] if row["learned"]]
    assert [row["method"] for row in learned] == ["StepSizeNet"]
    # the comparison's gap is a mean over the problems of the certified run, whose gap is their sum
    assert 3.0 * learned[0]["fresh"]["gap"] == pytest.approx(record["result"]["final_gap"], rel=1e-6, abs=1e-12)
    assert run("check", out).code == 0


def test_train_in_words(run, tmp_path: Path, without_report: None) -> None:
    outcome = run("train", SYSTEM, *SHORT, "--out", tmp_path / "run")
    assert outcome.code == 0
    for text in ("Problem", "Training", "every step certified by step-sizes/monotone", "StepSizeNet (learned)", "Next"):
        assert text in outcome.out
    assert re.search(r"running \d+ methods for 12 iterations", outcome.out)
    kept = (tmp_path / "run" / "comparison.txt").read_text()
    assert all(word in outcome.out for word in kept.split()) and "Next" not in kept
    assert "raise max_iterations" not in outcome.out
    assert "sf.learned.LassoSolver" not in outcome.out


def test_next_commands_stand_on_one_line(run, tmp_path: Path, without_report: None) -> None:
    out = tmp_path / "/".join(["a" * 60] * 3) / "run"
    outcome = run("train", SYSTEM, *SHORT, "--problem", "lasso", "--out", out)
    assert outcome.code == 0
    lines = outcome.out[outcome.out.index("\nNext") :].splitlines()
    assert [line for line in lines[1:] if not line.startswith("  # ")] == [
        f"Next  open {out / 'report.html'}",
        f"  surefoot check {out}",
        f"  surefoot train step-sizes --out {out} --resume --epochs 30",
        "  sf.learned.LassoSolver().solve(problems, 100)",
    ]


def test_other_optimizers_and_the_detached_rule(run, tmp_path: Path, without_report: None) -> None:
    options = ["--optimizer", "adam", "--gradient", "detached", "--learning-rate", "0.01", "--expansion", "2"]
    outcome = run("train", SYSTEM, *SHORT, *options, "--out", tmp_path / "run", "--json")
    assert outcome.code == 0
    stored = json.loads((tmp_path / "run" / "training" / "config.json").read_text())
    assert [stored[name] for name in ("optimizer", "gradient", "learning_rate")] == ["adam", "detached", 0.01]


def test_resume_with_more_epochs_is_the_longer_run(run, tmp_path: Path, without_report: None) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert run("train", SYSTEM, *SMALL, "--iterations", "12", "--epochs", "5", "--out", whole).code == 0
    assert run("train", SYSTEM, *SHORT, "--out", parts).code == 0
    outcome = run("train", SYSTEM, "--resume", "--epochs", "5", "--out", parts, "--json")
    assert (outcome.code, outcome.json["training"]["epochs"]) == (0, 5)
    assert (parts / "net.safetensors").read_bytes() == (whole / "net.safetensors").read_bytes()
    assert (parts / "final.safetensors").read_bytes() == (whole / "final.safetensors").read_bytes()
    assert run("check", parts).code == 0


def test_interrupted_training_is_resumed(run, tmp_path: Path, monkeypatch, without_report: None) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert run("train", SYSTEM, *SHORT, "--out", whole).code == 0
    save = TrainingDirectory.save

    def stop(self, checkpoint) -> None:
        save(self, checkpoint)
        if checkpoint.iteration == 0:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingDirectory, "save", stop)
        outcome = run("train", SYSTEM, *SHORT, "--out", parts)
    assert outcome.code == 130
    assert f"resume with: surefoot train step-sizes --out {parts} --resume" in outcome.err
    assert not (parts / "config.json").exists()
    assert run("train", SYSTEM, "--resume", "--out", parts).code == 0
    assert (parts / "net.safetensors").read_bytes() == (whole / "net.safetensors").read_bytes()


def test_solve_with_trained_weights(run, trained: Path, tmp_path: Path, without_report: None) -> None:
    weights = trained / "net.safetensors"
    outcome = run(
        "train", SYSTEM, *SMALL, "--iterations", "12", "--epochs", "0", "--weights", weights, "--out", tmp_path / "run"
    )
    assert outcome.code == 0
    assert (tmp_path / "run" / "net.safetensors").read_bytes() == weights.read_bytes()
    assert (tmp_path / "run" / "final.safetensors").read_bytes() == (trained / "final.safetensors").read_bytes()


def test_require_certificate(run, tmp_path: Path) -> None:
    out = tmp_path / "run"
    outcome = run("train", SYSTEM, *SHORT, "--range", "0,2.5", "--require-certificate", "--out", out)
    assert outcome.code == 1
    assert "not trained: step-sizes/monotone gives no guarantee" in outcome.err
    assert not out.exists()


def test_a_run_beyond_two_is_uncertified(run, tmp_path: Path, without_report: None) -> None:
    options = [*SMALL, "--iterations", "300", "--epochs", "0", "--range", "2.5,3"]
    outcome = run("train", SYSTEM, *options, "--out", tmp_path / "run")
    assert outcome.code == 4
    assert "none: this run is uncertified" in outcome.out
    assert "surefoot check" not in outcome.out


# -- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "20"], "--size is '20'; it must be ROWSxCOLUMNS"),
        (["--size", "0x3"], "--size is '0x3'"),
        (["--problems", "0"], "--problems is 0; it must be at least 1"),
        (["--seed", "-1"], "--seed is -1"),
        (["--range", "1"], "--range is '1'; it must be LO,HI"),
        (["--range", "1,1"], "--range is '1,1'"),
        (["--range", "0,nan"], "--range is '0,nan'"),
        (["--lam", "0.1"], "--lam belongs to --problem lasso and logistic"),
        (["--problem", "lasso", "--lam", "0"], "--lam is 0; it must be positive"),
        (["--weights", "absent.safetensors"], "--weights is absent.safetensors: "),
        (["--theorem", "step-sizes/rat"], "did you mean 'step-sizes/rate'"),
    ],
)
def test_bad_input_is_one_line_and_code_2(run, tmp_path: Path, arguments: list[str], message: str) -> None:
    for words in (["certify", SYSTEM], ["train", SYSTEM, "--out", tmp_path / "run"]):
        outcome = run(*words, *arguments)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.startswith("surefoot: error: ")
        assert message in outcome.err
        assert outcome.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--iterations", "0"], "--iterations is 0"),
        (["--epochs", "-1"], "--epochs is -1"),
        (["--learning-rate", "0"], "--learning-rate is 0"),
        (["--expansion", "inf"], "--expansion is inf"),
        (["--gradient", "detached"], "--optimizer lbfgs compares losses along the gradient"),
        (["--weights", "w", "--expansion", "2"], "--expansion is of random initial weights"),
    ],
)
def test_bad_settings_of_training(run, tmp_path: Path, arguments: list[str], message: str) -> None:
    outcome = run("train", SYSTEM, *arguments, "--out", tmp_path / "run")
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert not (tmp_path / "run").exists()


def test_weights_have_their_own_range(run, trained: Path) -> None:
    outcome = run("certify", SYSTEM, "--weights", trained / "net.safetensors", "--range", "0,1")
    assert (outcome.code, outcome.err) == (2, "surefoot: error: --range is stored with --weights; leave it out\n")
    outcome = run("certify", SYSTEM, "--weights", trained / "final.safetensors")
    assert outcome.code == 2
    assert "holds no step-size network" in outcome.err


def test_directories(run, trained: Path, tmp_path: Path) -> None:
    outcome = run("train", SYSTEM, *SHORT, "--out", trained)
    assert outcome.code == 2
    assert "choose another (--out)" in outcome.err
    outcome = run("train", SYSTEM, "--resume", "--out", tmp_path / "absent")
    assert outcome.code == 2
    assert "there is no run to resume" in outcome.err
    outcome = run("train", SYSTEM, "--resume", "--out", trained, "--seed", "7")
    assert outcome.code == 2
    assert "--seed is 7, but the run" in outcome.err
    outcome = run("train", "two-layer", "--resume", "--out", trained)
    assert outcome.code == 2
    assert "is of the system 'step-sizes'" in outcome.err


def test_the_fresh_problems_are_others() -> None:
    options = command.Train(out="run", size="4x6", problems=2)
    first, fresh = (options.draw(seed) for seed in (0, 1))
    assert not bool((first.M == fresh.M).any())
