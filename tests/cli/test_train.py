"""``surefoot train``: the run directory, exit codes, and everything that can interrupt it."""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from programs import Program, wait_until
from sklearn.linear_model import Ridge

import surefoot as sf
from surefoot._core import checkpoints, io
from surefoot_check import Outcome
from surefoot_check import check as check_run

SLOW_STEP = ["--steps", "1e-9", "--max-iterations", "100000000"]


def small(table: Path, out: Path) -> list[str | Path]:
    """Arguments of a run that takes a fraction of a second."""
    return ["train", "two-layer", "--data", table, "--width", "20", "--out", out]


def test_directory_holds_everything(run, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    outcome = run(*small(table, out))
    assert (outcome.code, outcome.err) == (0, "")
    for part in ("Problem", "Certificate", "Result  converged", "Audit", "no violation", "Held-out rows", "Next"):
        assert part in outcome.out
    for name in ("certificate.json", "trace.jsonl", "final.safetensors", "report.html", "plots/gap.png"):
        assert (out / name).is_file()
    config = json.loads((out / "config.json").read_text())
    assert config["options"]["width"] == 20
    assert config["options"]["data"] == str(table)
    assert config["data"]["train_rows"] == 32
    assert config["result"]["status"] == "converged"
    check = run("check", out)
    assert check.code == 0
    assert "outcome: accept" in check.out


@pytest.mark.usefixtures("without_report")
def test_certifiable_start_says_how_far_weights_moved(run, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = ["train", "two-layer", "--data", table, "--start", "certifiable", "--moved", "0.02", "--out", out]
    outcome = run(*arguments)
    assert (outcome.code, outcome.err) == (0, "")
    config = json.loads((out / "config.json").read_text())
    assert config["data"]["width"] == 5
    assert config["data"]["expected_movement"] == pytest.approx(0.02)
    moved = sf.Run.load(out).moved
    assert moved == config["result"]["moved"] == pytest.approx(0.02, rel=0.05)
    assert f"weights moved  by {100 * moved:.3g} % of their norm" in outcome.out
    assert "to move by about 2 % of their norm" in outcome.out


@pytest.mark.usefixtures("without_report")
def test_evaluation_is_that_of_the_final_weights(run, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    scores = run(*small(table, out), "--json").json["evaluation"]
    weights = sf.Run.load(out).final
    test = sf.data.load(table).standardise().centre_targets().test()
    error = test.X @ weights["W1"] @ weights["W2"].T - test.Y
    spread = test.Y - test.Y.mean(0)
    assert scores["test_rows"] == 8
    assert scores["test_rmse"] == pytest.approx(float((error**2).mean().sqrt()), rel=1e-9)
    assert scores["test_r2"] == pytest.approx(1.0 - float((error**2).sum() / (spread**2).sum()), rel=1e-9)
    assert json.loads((out / "config.json").read_text())["evaluation"] == scores


@pytest.mark.usefixtures("without_report")
@pytest.mark.parametrize("system", ["two-layer", "linear-resnet"])
def test_evaluation_adds_the_intercept(run, tmp_path: Path, system: str) -> None:
    X = np.random.default_rng(1).standard_normal((40, 3))
    np.savetxt(
        tmp_path / "far.csv", np.column_stack([X, X @ [1.0, -2.0, 0.5] + 0.1 * X[:, 0] ** 2 + 30.0]), delimiter=","
    )
    raw = ["--inputs", "raw", "--targets", "raw", "--tolerance", "1e-12"]
    command = ["train", system, "--data", tmp_path / "far.csv", "--width", "20", *raw, "--json"]
    plain = run(*command, "--out", tmp_path / "plain").json["evaluation"]
    scores = run(*command, "--out", tmp_path / "run", "--l2", "0.3", "--intercept").json["evaluation"]
    data = sf.data.load(tmp_path / "far.csv")
    train, test = data.train(), data.test()
    model = Ridge(alpha=0.3).fit(train.X.numpy(), train.Y.numpy())
    expected = model.score(test.X.numpy(), test.Y.numpy())
    assert scores["optimum_test_r2"] == pytest.approx(expected, rel=1e-10)
    assert scores["test_r2"] == pytest.approx(expected, rel=1e-4)
    assert scores["test_r2"] > 0.9 and plain["test_r2"] < 0.0
    assert check_run(tmp_path / "run").outcome is Outcome.ACCEPT


@pytest.mark.usefixtures("without_report")
@pytest.mark.parametrize("loss", ["squared", "softmax"])
def test_accuracy_uses_the_labels_of_the_file(run, classes: Path, tmp_path: Path, loss: str) -> None:
    outcome = run(*small(classes, tmp_path / "run"), "--loss", loss, "--tolerance", "1e-3", "--json")
    assert outcome.code == 0
    assert outcome.json["evaluation"] == {"test_rows": 12, "test_accuracy": 1.0, "optimum_test_accuracy": 1.0}


def test_json_alone_on_standard_output(run, table: Path, tmp_path: Path) -> None:
    record = run(*small(table, tmp_path / "run"), "--json").json
    assert record["result"]["status"] == "converged"
    assert record["result"]["certified"] is True
    assert record["result"]["guaranteed_iterations"] >= record["result"]["iterations"]
    assert record["audit"]["holds"] is True
    assert record["certificate"]["holds"] is True
    assert Path(record["report"]).is_file()


@pytest.mark.usefixtures("without_report")
def test_quiet_is_one_line(run, table: Path, tmp_path: Path) -> None:
    outcome = run(*small(table, tmp_path / "run"), "--quiet")
    assert outcome.out.count("\n") == 1
    assert "converged" in outcome.out
    assert ", certified" in outcome.out


@pytest.mark.usefixtures("without_report")
@pytest.mark.parametrize("uncertified", [["--steps", "polyak"], ["--steps", "0.01"]])
def test_uncertified_is_done_and_says_so(run, table: Path, tmp_path: Path, uncertified: list[str]) -> None:
    refused = run(*small(table, tmp_path / "run"), *uncertified, "--require-certificate")
    assert refused.code == 1
    assert "not trained" in refused.err
    assert not (tmp_path / "run").exists()
    outcome = run(*small(table, tmp_path / "run"), *uncertified)
    assert outcome.code == 0
    assert "Uncertified" in outcome.out
    assert "none: this run is uncertified" in outcome.out


@pytest.mark.usefixtures("without_report")
def test_hypothesis_that_fails(run, classes: Path, tmp_path: Path) -> None:
    arguments = ["train", "two-layer", "--data", classes, "--width", "2", "--out", tmp_path / "run"]
    refused = run(*arguments, "--require-certificate", "--json")
    assert refused.code == 1
    assert refused.json["result"] is None
    assert "alpha1 > 0" in refused.err
    outcome = run(*arguments, "--max-iterations", "20", "--steps", "exact-line-search")
    assert outcome.code == 0
    assert "Uncertified  two-layer/drift gives no guarantee: FAILS" in outcome.out


def test_divergence_is_code_4(run, table: Path, tmp_path: Path) -> None:
    outcome = run(*small(table, tmp_path / "run"), "--steps", "1e6")
    assert outcome.code == 4
    assert "diverged" in outcome.out
    assert (tmp_path / "run" / "report.html").is_file()


@pytest.mark.usefixtures("without_report")
def test_certified_again(run, table: Path, tmp_path: Path) -> None:
    outcome = run(*small(table, tmp_path / "run"), "--certify-every", "5")
    assert outcome.code == 0
    assert "certified again" in outcome.out
    assert run("check", tmp_path / "run").code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "certified-b"], "did you mean 'certified-bb'"),
        (["--steps", "-1"], "--steps is -1; a constant step must be a positive number"),
        (["--steps", "nan"], "--steps is nan; a constant step must be a positive number"),
        (["--tolerance", "nan"], "--tolerance is nan"),
        (["--max-iterations", "-1"], "--max-iterations is -1"),
        (["--certify-every", "0"], "--certify-every is 0"),
    ],
)
def test_bad_options(run, table: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    outcome = run(*small(table, tmp_path / "run"), *arguments)
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("system", ["two-layer", "linear-resnet", "implicit", "feed-forward"])
def test_limits_are_read_before_the_data(run, tmp_path: Path, system: str) -> None:
    outcome = run("train", system, "--data", tmp_path / "absent.csv", "--out", tmp_path / "run", "--tolerance", "nan")
    assert outcome.code == 2 and "--tolerance is nan; it must be a finite number" in outcome.err


def test_directory_that_exists_is_left_alone(run, table: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("keep")
    outcome = run(*small(table, tmp_path / "run"))
    assert outcome.code == 2
    assert outcome.out == ""
    assert "--resume" in outcome.err
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]


def test_directory_that_cannot_be_made(run, table: Path) -> None:
    outcome = run(*small(table, table / "run"))  # below a file
    assert outcome.code == 2
    assert "choose a writable place" in outcome.err


@pytest.mark.usefixtures("without_report")
def test_disk_full_keeps_what_was_written(run, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_sync, calls = os.fsync, 0

    def fill(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls > 8:
            raise OSError(errno.ENOSPC, "No space left on device")
        real_sync(handle)

    with monkeypatch.context() as patched:
        patched.setattr(io.os, "fsync", fill)
        outcome = run(*small(table, tmp_path / "run"))
    assert outcome.code == 2
    assert "No space left on device" in outcome.err
    assert "free space" in outcome.err
    assert not [path for path in (tmp_path / "run").rglob("*") if path.name.startswith(".")]
    resumed = run("train", "two-layer", "--out", tmp_path / "run", "--resume", "--json")
    assert resumed.code == 0
    assert resumed.json["result"]["status"] == "converged"


@pytest.mark.usefixtures("without_report")
def test_resume_after_the_limit_gives_the_same_run(run, table: Path, tmp_path: Path) -> None:
    run(*small(table, tmp_path / "whole"))
    first = run(*small(table, tmp_path / "parts"), "--max-iterations", "7")
    assert first.code == 0
    assert "--resume --max-iterations 70" in first.out
    assert "the guarantee is for more iterations" in " ".join(first.out.split()) and "beware" not in first.out
    second = run("train", "two-layer", "--out", tmp_path / "parts", "--resume", "--max-iterations", "10000")
    assert second.code == 0
    assert (tmp_path / "parts" / "trace.jsonl").read_text() == (tmp_path / "whole" / "trace.jsonl").read_text()
    assert json.loads((tmp_path / "parts" / "config.json").read_text())["evaluation"]["test_rows"] == 8


@pytest.mark.usefixtures("without_report")
def test_resume_refuses_what_contradicts(run, table: Path, tmp_path: Path) -> None:
    run(*small(table, tmp_path / "run"), "--max-iterations", "3", "--seed", "4")
    resume = ["train", "two-layer", "--out", tmp_path / "run", "--resume"]
    default = run(*resume, "--seed", "0")  # the program's default, but not this run's
    assert default.code == 2
    assert "--seed is 0, but the run in" in default.err
    assert "was started with 4" in default.err
    assert run(*resume, "--seed", "4", "--width", "20", "--quiet").code == 0
    table.write_text(table.read_text().replace("1", "2", 1))
    changed = run(*resume)
    assert changed.code == 2
    assert "other data" in changed.err


@pytest.mark.usefixtures("without_report")
def test_resume_reads_the_table_as_it_was_read(run, table: Path, tmp_path: Path) -> None:
    lines = table.read_text().splitlines()
    table.write_text("\n".join(["a;b;c;d;e", *(line.replace(",", ";") for line in lines), ";1;1;1;1"]))
    options = ["--target", "b", "--separator", ";", "--missing", "mean"]
    run(*small(table, tmp_path / "run"), *options, "--max-iterations", "3")
    resume = ["train", "two-layer", "--out", tmp_path / "run", "--resume"]
    refused = run(*resume, "--target", "c")
    assert refused.code == 2 and "--target is 'c', but the run in" in refused.err and "started with 'b'" in refused.err
    assert run(*resume, "--max-iterations", "5", "--quiet").code == 0
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert stored["options"]["target"] == "b" and stored["data"]["prepared"].startswith(
        "the target is column 2 ('b'); 1 missing"
    )


def test_resume_without_a_run(run, table: Path, tmp_path: Path) -> None:
    resume = ["train", "two-layer", "--resume", "--out"]
    assert "there is no run to resume" in run(*resume, tmp_path / "absent").err
    assert "config.json" in run(*resume, tmp_path).err
    data = sf.data.load(table).standardise().train()
    loss = sf.SquaredLoss(data.X, data.Y)
    net = sf.nn.TwoLayerLinear.gaussian(4, 1, 20, seed=0)
    sf.descend(net, loss, max_iterations=2, directory=tmp_path / "library", progress=False)
    outcome = run(*resume, tmp_path / "library")
    assert outcome.code == 2
    assert "surefoot.descend" in outcome.err


@pytest.mark.usefixtures("without_report")
@pytest.mark.parametrize("name", ["config.json", "certificate.json", "initial.safetensors", "trace.jsonl"])
def test_resume_of_a_damaged_run(run, table: Path, tmp_path: Path, name: str) -> None:
    run(*small(table, tmp_path / "run"), "--max-iterations", "12")
    file = tmp_path / "run" / name
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    outcome = run("train", "two-layer", "--out", tmp_path / "run", "--resume")
    assert outcome.code == 2
    assert outcome.err.startswith("surefoot: error: ")
    assert outcome.err.count("\n") == 1


@pytest.mark.usefixtures("without_report")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signal_keeps_a_checkpoint(
    run, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    real_save = checkpoints.save

    def save(directory: Path, checkpoint: checkpoints.Checkpoint, certificate: str) -> None:
        real_save(directory, checkpoint, certificate)
        if checkpoint.iteration == 5:
            signal.raise_signal(number)

    run(*small(table, tmp_path / "whole"))
    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "save", save)
        outcome = run(*small(table, tmp_path / "run"))
    assert outcome.code == code
    assert f"resume with: surefoot train two-layer --out {tmp_path / 'run'} --resume" in outcome.err
    resumed = run("train", "two-layer", "--out", tmp_path / "run", "--resume")
    assert resumed.code == 0
    assert (tmp_path / "run" / "trace.jsonl").read_text() == (tmp_path / "whole" / "trace.jsonl").read_text()


@pytest.mark.usefixtures("without_report")
def test_ctrl_c_in_a_process_of_its_own(run, table: Path, tmp_path: Path) -> None:
    arguments = [str(part) for part in small(table, tmp_path / "run")] + SLOW_STEP
    with Program(["-m", "surefoot.cli", *arguments], {}) as program:
        tenth = tmp_path / "run" / "checkpoints" / "000000010.safetensors"
        wait_until(lambda: tenth.exists() or program.poll() is not None)
        program.send_signal(signal.SIGINT)
        program.wait(60.0)
        done = program.result()
    assert done.returncode == 130, done
    assert "Traceback" not in done.stderr
    assert "interrupted after" in done.stderr
    reached = sf.Run.load(tmp_path / "run").iterations
    assert reached >= 10
    resumed = run(
        "train", "two-layer", "--out", tmp_path / "run", "--resume", "--max-iterations", str(reached + 1), "--json"
    )
    assert resumed.code == 0
    assert resumed.json["result"]["iterations"] == reached + 1
