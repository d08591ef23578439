"""``certify inverse``, ``train inverse`` and ``train svd``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot._learning.run import TrainStatus
from surefoot.cli import main
from surefoot.nn import LearnedInverse, LearnedSVD

SMALL = ["--size", "4x6", "--count", "5"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished training of an inverse that no test may change."""
    directory = tmp_path_factory.mktemp("inverse") / "run"
    assert main(["train", "inverse", *SMALL, "--epochs", "20", "--out", str(directory), "--quiet"]) == 0
    return directory


@pytest.fixture
def matrices(tmp_path: Path) -> Path:
    path = tmp_path / "A.npy"
    np.save(path, np.random.default_rng(0).standard_normal((10, 3, 5)).astype(np.float32))
    return path


# -- certify inverse -----------------------------------------------------------------------------------------------------


def test_certify(run) -> None:
    arguments = ["certify", "inverse", "--interval", "1e-3,1", "--layers", "4", "--degree", "4"]
    outcome = run(*arguments, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    record = outcome.json
    assert (record["certificate"]["theorem"], record["certificate"]["holds"]) == ("inverse/interval", True)
    # 1/T_256((1+l)/(1-l)), the smallest possible
    assert record["layers"][-1] == pytest.approx(1.8496e-7, rel=1e-3)
    assert len(record["layers"]) == 5
    text = run(*arguments).out
    assert "at most" in text and "1.85e-07" in text
    assert "first step" not in text


def test_certify_ones(run) -> None:
    arguments = ["--coefficients", "ones", "--interval", "0.5,1.5", "--layers", "2", "--degree", "3"]
    assert run("certify", "inverse", *arguments, "--json").json["layers"][-1] == pytest.approx(0.5**9, rel=1e-6)
    failed = run("certify", "inverse", *arguments[:2], "--interval", "0.5,2.5")
    assert failed.code == 1
    assert "the interval must end below 2" in failed.out


def test_certify_writes_what_check_accepts(run, tmp_path: Path) -> None:
    outcome = run("certify", "inverse", "--out", tmp_path / "new")
    assert outcome.code == 0
    assert f"surefoot check {tmp_path / 'new'}" in outcome.out
    assert run("check", tmp_path / "new").code == 0
    again = run("certify", "inverse", "--out", tmp_path / "new")
    assert (again.code, "not an empty directory" in again.err) == (2, True)


def test_certify_trained_weights(run, trained: Path) -> None:
    weights = trained / "net.safetensors"
    net = LearnedInverse.load(weights)
    record = run("certify", "inverse", "--weights", weights, "--json").json
    assert record["network"] == {"layers": 4, "degree": 4, "c0": "gram4", "interval": list(net.interval or ())}
    assert record["certificate"]["holds"] is True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--interval", "1,0.5"], "--interval is '1,0.5'; it must be L,U"),
        (["--interval", "1"], "it must be L,U"),
        (["--layers", "0"], "--layers is 0"),
        (["--degree", "-1"], "--degree is -1"),
        (["--weights", "absent.safetensors"], "--weights is absent.safetensors"),
        (["--weights", "absent.safetensors", "--layers", "3"], "--layers is stored with --weights"),
        (["--theorem", "inverse/nothing"], "unknown theorem"),
    ],
)
def test_bad_options_of_certify(run, arguments: list[str], message: str) -> None:
    outcome = run("certify", "inverse", *arguments)
    assert outcome.code == 2
    assert message in outcome.err


# -- train inverse -------------------------------------------------------------------------------------------------------


def test_train(run, trained: Path) -> None:
    assert {path.name for path in trained.iterdir()} == {
        "settings.json",
        "training",
        "net.safetensors",
        "certificate",
    }
    assert run("check", trained / "certificate").code == 0


def test_train_says_what_training_gained(run, tmp_path: Path, matrices: Path) -> None:
    arguments = ["--matrices", matrices, "--coefficients", "ones", "--layers", "2", "--degree", "3", "--epochs", "200"]
    outcome = run("train", "inverse", *arguments, "--out", tmp_path / "run", "--json")
    assert outcome.code == 0
    record = outcome.json
    assert [record["problem"][name] for name in ("train", "test", "rows", "columns")] == [8, 2, 3, 5]
    assert record["training"]["best_loss"] < record["training"]["initial_loss"]
    assert record["test_loss"]["trained"] < record["test_loss"]["ones"]
    assert (record["network"]["layers"], record["network"]["degree"]) == (2, 3)
    assert record["layers"][-1] < 1.0


def test_resumed_training_of_an_inverse_is_the_same(run, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    command = ["train", "inverse", *SMALL, "--quiet"]
    assert run(*command, "--epochs", "12", "--out", whole).code == 0
    assert run(*command, "--epochs", "5", "--out", parts).code == 0
    assert run("train", "inverse", "--out", parts, "--resume", "--epochs", "12", "--quiet").code == 0
    assert (parts / "net.safetensors").read_bytes() == (whole / "net.safetensors").read_bytes()
    outcome = run("train", "inverse", "--out", parts, "--resume", "--layers", "7")
    assert (outcome.code, "--layers is 7" in outcome.err) == (2, True)


def test_required_certificate(run, tmp_path: Path) -> None:
    command = ["train", "inverse", *SMALL, "--epochs", "0", "--coefficients", "ones", "--interval", "0.1,2.5"]
    assert run(*command, "--out", tmp_path / "one").code == 0
    assert not (tmp_path / "one" / "certificate").exists()
    assert run(*command, "--out", tmp_path / "two", "--require-certificate").code == 1


@pytest.mark.parametrize(("system", "kind"), [("inverse", LearnedInverse), ("svd", LearnedSVD)])
def test_exit_codes_of_training(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str, kind: Any) -> None:
    fit = kind.fit

    def ends(name: str) -> None:
        def ended(*arguments: Any, **options: Any) -> Any:
            found = fit(*arguments, **options)
            object.__setattr__(found, "status", TrainStatus[name])
            return found

        monkeypatch.setattr(kind, "fit", ended)

    command = ["train", system, *SMALL, "--epochs", "1", "--layers", "1"]
    ends("DIVERGED")
    assert run(*command, "--out", tmp_path / "diverged", "--quiet").code == 4
    ends("INTERRUPTED")
    outcome = run(*command, "--out", tmp_path / "stopped")
    assert outcome.code == 130
    assert f"resume with: surefoot train {system} --out" in outcome.err


@pytest.mark.parametrize("system", ["inverse", "svd"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "4"], "--size is '4'"),
        (["--count", "0"], "--count is 0"),
        (["--epochs", "-1"], "--epochs is -1"),
        (["--learning-rate", "0"], "--learning-rate is 0"),
        (["--seed", "-1"], "--seed is -1"),
        (["--matrices", "absent.npy"], "--matrices is absent.npy"),
        (["--matrices", "absent.npy", "--size", "3x4"], "--size is of random matrices"),
    ],
)
def test_bad_options_of_train(run, tmp_path: Path, system: str, arguments: list[str], message: str) -> None:
    outcome = run("train", system, "--out", tmp_path / "run", *arguments)
    assert outcome.code == 2
    assert message in outcome.err
    assert not (tmp_path / "run").exists()


def test_an_interval_that_the_matrices_leave_is_refused(run, tmp_path: Path) -> None:
    """c0 is a bound of ‖A‖² in training, and beyond their interval Chebyshev coefficients explode."""
    outcome = run("train", "inverse", *SMALL, "--interval", "0.1,0.5", "--out", tmp_path / "run")
    assert (outcome.code, "use an interval up to 1" in outcome.err) == (2, True)
    assert not (tmp_path / "run").exists()
    assert run("certify", "inverse", "--interval", "0.1,0.5", "--json").json["network"]["c0"] == 1.0


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones((3, 4)), "shape (3, 4)"),
        (np.ones((1, 3, 4)), "one matrix"),
        (np.full((2, 3, 4), np.nan), "NaN or infinite"),
        (np.ones((2, 3, 4), dtype=complex), "dtype complex128"),
    ],
)
def test_bad_matrices(run, tmp_path: Path, array: np.ndarray, message: str) -> None:
    np.save(tmp_path / "A.npy", array)
    outcome = run("train", "svd", "--out", tmp_path / "run", "--matrices", tmp_path / "A.npy")
    assert (outcome.code, message in outcome.err) == (2, True)


# -- svd -----------------------------------------------------------------------------------------------------------------


def test_certify_svd_says_that_there_is_no_theorem(run) -> None:
    outcome = run("certify", "svd", "--layers", "3")
    assert (outcome.code, outcome.out) == (2, "")
    assert "no theorem speaks of the learned SVD" in outcome.err


def test_train_svd(run, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    command = ["train", "svd", *SMALL, "--layers", "2", "--rank", "3", "--batch", "4"]
    outcome = run(*command, "--epochs", "3", "--out", directory, "--json")
    assert outcome.code == 0
    record = outcome.json
    assert record["training"]["best_loss"] < record["training"]["initial_loss"]
    assert record["certificate"] is None
    errors = {name: one["values"] for name, one in record["comparison"].items()}
    assert errors["torch.linalg.svd"] < 1e-13 < errors["trained D-SVD"] < 1.0
    net = LearnedSVD.load(directory / "net.safetensors")
    assert (net.rows, net.columns, net.rank, net.layers) == (4, 6, 3, 2)
    text = run("train", "svd", "--out", directory, "--resume", "--epochs", "4").out
    assert "no theorem bounds those of D-SVD" in text
    refused = run(*command, "--out", tmp_path / "other", "--require-certificate")
    assert (refused.code, (tmp_path / "other").exists()) == (1, False)
    assert "not trained: no theorem" in refused.err
    settings = json.loads((directory / "settings.json").read_text())
    assert (settings["system"], settings["epochs"]) == ("svd", 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rank", "5"], "--rank is 5; it must be from 1 to 4"),
        (["--layers", "0"], "--layers is 0"),
        (["--batch", "0"], "--batch is 0"),
        (["--inverse", "6"], "--inverse is '6'"),
    ],
)
def test_bad_options_of_train_svd(run, tmp_path: Path, arguments: list[str], message: str) -> None:
    outcome = run("train", "svd", *SMALL, "--out", tmp_path / "run", *arguments)
    assert (outcome.code, message in outcome.err) == (2, True)
    assert not (tmp_path / "run").exists()


# -- check and report of these directories ---------------------------------------------------------------------------------


def test_report_says_where_to_look(run, trained: Path, tmp_path: Path) -> None:
    outcome = run("report", trained)
    assert (outcome.code, "surefoot train inverse" in outcome.err) == (2, True)
    assert f"surefoot check {trained / 'certificate'}" in outcome.err
    outcome = run("report", trained / "certificate")
    assert (outcome.code, "a certificate and no run to report" in outcome.err) == (2, True)
    assert run("train", "svd", *SMALL, "--epochs", "0", "--layers", "1", "--out", tmp_path / "svd", "--quiet").code == 0
    outcome = run("report", tmp_path / "svd")
    assert (outcome.code, "surefoot train svd" in outcome.err) == (2, True)


def test_check_of_the_network_names_its_certificate(run, trained: Path) -> None:
    outcome = run("check", trained)
    assert (outcome.code, f"check {trained / 'certificate'}" in outcome.out) == (1, True)


def test_training_does_not_ruin_chebyshev_coefficients(run, tmp_path: Path) -> None:
    """The loss (4), of every layer, would: to a test loss of 1e15 here."""
    record = run(
        "train", "inverse", "--size", "20x25", "--seed", "1", "--epochs", "200", "--out", tmp_path / "run", "--json"
    ).json
    assert record["test_loss"]["trained"] <= 1.001 * record["test_loss"]["chebyshev"] < record["test_loss"]["ones"]
    assert record["certificate"]["holds"] is True
    assert record["training"]["best_loss"] <= record["training"]["initial_loss"]


def test_the_share_of_matrices_in_the_interval(run, tmp_path: Path) -> None:
    command = ["train", "inverse", *SMALL, "--epochs", "0", "--coefficients", "ones", "--json"]
    narrow = run(*command, "--interval", "0.9,1", "--out", tmp_path / "narrow").json
    wide = run(*command, "--interval", "1e-12,1", "--out", tmp_path / "wide").json
    assert (narrow["test_matrices_in_interval"], wide["test_matrices_in_interval"]) == (0.0, 1.0)
    assert narrow["test_error_in_interval"] is None and wide["test_error_in_interval"] == wide["test_error"]["trained"]
