"""``train deconvolution``."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from surefoot._deconvolution.learned import comparison, training
from surefoot.cli import main
from surefoot.nn import LearnedDeconvolution

SMALL = ["--batch", "2", "--crop", "48", "--layers", "2", "--filters", "4"]
PSNR = ("blurred", "gradient-Wiener", "L-ADMM", "learned")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison after training is not what is tested."""
    monkeypatch.setattr(comparison, "COMPARED", 2)
    monkeypatch.setattr(comparison, "LADMM_ITERATIONS", 5)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished training that no test may change."""
    directory = tmp_path_factory.mktemp("deconvolution") / "run"
    assert main(["train", "deconvolution", *SMALL, "--epochs", "5", "--out", str(directory), "--quiet"]) == 0
    return directory


@pytest.fixture
def copied(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "copy"))


def weights(directory: Path) -> list[list[float]]:
    net = LearnedDeconvolution.load(directory / "net.safetensors")
    return [value.flatten().tolist() for value in net.state_dict().values()]


def test_training_on_free_pictures_says_where_the_weights_come_from(run, tmp_path: Path) -> None:
    pytest.importorskip("skimage")
    outcome = run(
        "train", "deconvolution", *SMALL, "--data", "free", "--epochs", "1", "--out", tmp_path / "run", "--quiet"
    )
    assert outcome.code == 0
    found = json.loads((tmp_path / "run" / "network.json").read_text())
    assert found["command"].startswith("surefoot train deconvolution --data free ") and "--seed 0" in found["command"]
    assert found["weights_sha256"] == hashlib.sha256((tmp_path / "run" / "net.safetensors").read_bytes()).hexdigest()
    assert len(found["pictures"]) == 11


def test_train(run, tmp_path: Path) -> None:
    outcome = run("train", "deconvolution", *SMALL, "--epochs", "5", "--out", tmp_path / "run", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    record = outcome.json
    assert record["certificate"] is None
    assert (record["training"]["epochs"], record["training"]["status"]) == (5, "finished")
    assert [row["noise"] for row in record["comparison"]] == [0.01, 0.02, 0.03]
    for row in record["comparison"]:
        assert all(10.0 < row[name] < 50.0 for name in PSNR)
    net = LearnedDeconvolution.load(tmp_path / "run" / "net.safetensors")
    assert (len(net.layers), net.filters) == (2, 4)
    assert record["problem"]["weights"] == sum(p.numel() for p in net.parameters())


def test_what_people_see(run, tmp_path: Path) -> None:
    outcome = run("train", "deconvolution", *SMALL, "--epochs", "2", "--out", tmp_path / "run")
    assert outcome.code == 0
    for text in (
        "scikit-learn's two photographs",
        "no theorem covers",
        "relative to the half-quadratic start",
        "1 %",
        "deblur",
    ):
        assert text in outcome.out


def test_resume(run, copied: Path, tmp_path: Path) -> None:
    """On and on is the same as at once, up to the schedule of the learning rate: both are told of ten epochs."""
    at_once = tmp_path / "whole"
    assert run("train", "deconvolution", *SMALL, "--epochs", "10", "--out", at_once, "--quiet").code == 0
    outcome = run("train", "deconvolution", "--out", copied, "--resume", "--epochs", "10", "--json")
    assert outcome.code == 0 and outcome.json["training"]["epochs"] == 10
    assert json.loads((copied / "settings.json").read_text())["epochs"] == 10
    # nothing left to do: the same network
    before = weights(copied)
    assert run("train", "deconvolution", "--out", copied, "--resume", "--quiet").code == 0
    assert weights(copied) == before
    refused = run("train", "deconvolution", "--out", copied, "--resume", "--layers", "3")
    assert refused.code == 2 and "--layers" in refused.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_interrupted(
    run, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    original = training._Task.drawn

    def drawn(self: Any, step: int) -> Any:
        if step == 2:
            signal.raise_signal(number)
        return original(self, step)

    with monkeypatch.context() as patched:
        patched.setattr(training._Task, "drawn", drawn)
        outcome = run("train", "deconvolution", *SMALL, "--epochs", "5", "--out", tmp_path / "run")
    assert outcome.code == code and "interrupted after 2 epochs; resume with" in outcome.err
    assert run("train", "deconvolution", "--out", tmp_path / "run", "--resume", "--quiet").code == 0
    assert weights(tmp_path / "run") == weights(trained)


def test_diverged(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = training._Task.evaluate

    def evaluate(self: Any, batch: Any) -> Any:
        loss, last = original(self, batch)
        return (loss * torch.nan if torch.is_grad_enabled() else loss), last

    monkeypatch.setattr(training._Task, "evaluate", evaluate)
    outcome = run("train", "deconvolution", *SMALL, "--epochs", "30", "--out", tmp_path / "run", "--quiet")
    assert outcome.code == 4 and "diverged" in outcome.out
    assert (tmp_path / "run" / "net.safetensors").exists()


def test_required_certificate(run, tmp_path: Path) -> None:
    outcome = run("train", "deconvolution", "--require-certificate", "--out", tmp_path / "run", "--json")
    assert outcome.code == 1 and "no theorem covers" in outcome.err and outcome.json["training"] is None
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epochs", "0"], "--epochs is 0"),
        (["--batch", "0"], "--batch is 0"),
        (["--layers", "-1"], "--layers is -1"),
        (["--filters", "-1"], "--filters is -1"),
        (["--minutes", "0"], "--minutes is 0"),
        (["--learning-rate", "nan"], "--learning-rate is nan"),
        (["--seed", "-1"], "--seed is -1"),
        (["--seed", "9" * 20], "--seed is 9"),
        (["--crop", "20"], "--crop is 20; it must be 38 to 180"),
        (["--crop", "181"], "--crop is 181"),
        (["--device", "meta"], "--device is 'meta'; it must be cpu or cuda"),
        (["--inverse", "4"], "--inverse is '4'"),
        (["--inverse", "4,1"], "--inverse is '4,1'"),
        (["--device", "abacus"], "--device is 'abacus'"),
        (["--data", "nowhere"], "bsd400_gray180.npz is missing"),
    ],
)
def test_bad_options(run, tmp_path: Path, options: list[str], message: str) -> None:
    outcome = run("train", "deconvolution", "--out", tmp_path / "run", *options)
    assert outcome.code == 2 and message in outcome.err
    assert not (tmp_path / "run").exists()


def test_existing_directory(run, copied: Path) -> None:
    outcome = run("train", "deconvolution", "--out", copied)
    assert outcome.code == 2 and "not an empty directory" in outcome.err
