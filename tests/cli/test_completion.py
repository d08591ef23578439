"""``--loss completion``: tables of row, column and value."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import surefoot as sf


@pytest.fixture
def ratings(tmp_path: Path) -> Path:
    """Half of the entries of a 12 x 8 matrix of rank one and their noise, by numbers with gaps, in no order."""
    rng = np.random.default_rng(0)
    users, items = rng.permutation(1000)[:12], rng.permutation(1000)[:8]
    entries = rng.permutation(96)[:60]
    row, column = entries // 8, entries % 8
    values = 3.0 + np.outer(rng.standard_normal(12), rng.standard_normal(8))[row, column]
    path = tmp_path / "ratings.csv"
    np.savetxt(
        path,
        np.column_stack([users[row], items[column], values]),
        delimiter=",",
        header="user,item,rating",
        comments="",
    )
    return path


@pytest.mark.usefixtures("without_report")
def test_held_out_observations_are_predicted_by_number(run, ratings: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = ["train", "two-layer", "--loss", "completion", "--width", "2", "--data", ratings, "--out", out]
    outcome = run(*arguments, "--max-iterations", "300", "--json")
    assert outcome.code == 0, outcome.err
    scores, final = outcome.json["evaluation"], sf.Run.load(out).final
    table = np.loadtxt(ratings, delimiter=",", skiprows=1)
    row, column = (torch.from_numpy(np.unique(ids, return_inverse=True)[1]) for ids in table[:, :2].T)
    test = sf.data.load(ratings).split
    assert test is not None
    value = torch.from_numpy(table[:, 2])
    error = ((final["W1"][row] * final["W2"][column]).sum(1) + value[~test].mean() - value)[test]
    assert scores["test_rows"] == int(test.sum()) == len(error)
    assert scores["test_rmse"] == pytest.approx(float(error.square().mean().sqrt()), rel=1e-9)
    config = json.loads((out / "config.json").read_text())
    assert config["data"]["loss"] == "completion" and (config["data"]["n"], config["data"]["m"]) == (12, 8)
    assert config["engine"] == "weights"


@pytest.mark.usefixtures("without_report")
def test_a_wide_network_is_certified_and_checked(run, ratings: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = ["--loss", "completion", "--width", "40", "--data", ratings]
    assert run("certify", "two-layer", *arguments).code == 0
    outcome = run("train", "two-layer", *arguments, "--out", out, "--require-certificate")
    assert outcome.code == 0, outcome.err
    assert "12 rows and 8 columns" in outcome.out and "numbers less their mean" in outcome.out
    assert run("check", out).code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--l2", "1"], "--l2 belongs to --loss squared or softmax"),
        (["--intercept"], "--intercept belongs to --loss squared"),
        (["--inputs", "whiten"], "no whitening"),
        (["--targets", "one-hot"], "no one-hot targets"),
        (["--data", "diabetes"], "needs a table of three"),
    ],
)
def test_what_does_not_go_with_it_is_refused(run, ratings: Path, arguments: list[str], message: str) -> None:
    given = arguments if "--data" in arguments else ["--data", str(ratings), *arguments]
    outcome = run("certify", "two-layer", "--loss", "completion", *given)
    assert outcome.code == 2 and message in outcome.err


def test_numbers_that_are_no_whole_ones_are_refused(run, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("1,2,3\n1.5,2,4\n2,1,1\n3,1,2\n")
    outcome = run("certify", "two-layer", "--loss", "completion", "--data", path)
    assert outcome.code == 2 and "the whole numbers that tell rows and columns" in outcome.err
