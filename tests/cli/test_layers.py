"""``train layers``, and the commands that read its directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import surefoot as sf
from surefoot.cli import main

SMALL = ["--size", "8x12", "--problems", "8", "--layers", "3"]


@pytest.mark.parametrize(
    "problem", ["least-squares", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("lasso", "logistic"))]
)
def test_a_directory_is_trained_checked_and_reported(
    problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["train", "layers", "--problem", problem, *SMALL, "--out", str(out), "--json"]) == 0
    record: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert record["status"] == "finished" and record["trained"] == record["layers"] == 3
    assert len(record["objectives"]) == 4 and record["objectives"][-1] <= record["objectives"][0]
    assert record["comparison"]["methods"][-1]["method"] == "LayeredSteps"
    assert main(["check", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outcome"] == "accept"
    before = Path(record["report"]).read_bytes()
    assert main(["report", str(out)]) == 0
    assert Path(record["report"]).read_bytes() == before
    net = sf.nn.LayeredSteps.load(out / "layers.safetensors")
    assert (net.layers, net.sectors) == (3, 4)
    assert json.loads((out / "settings.json").read_text())["options"]["problem"] == problem


def test_what_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    assert main(["train", "layers", *SMALL, "--out", out]) == 0
    shown = capsys.readouterr().out
    assert "best constant step" in shown and "LayeredSteps (learned)" in shown and f"surefoot check {out}" in shown
    assert main(["train", "layers", *SMALL, "--out", out]) == 2
    assert "choose another (--out)" in capsys.readouterr().err
    assert main(["train", "layers", *SMALL, "--out", f"{out} 2", "--quiet"]) == 0
    assert "training finished" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--range", "0,2.5"], "range is (0.0, 2.5)"),
        (["--range", "2"], "--range is '2'"),
        (["--layers", "0"], "layers is 0"),
        (["--sectors", "0"], "sectors is 0"),
        (["--lam", "0.1"], "--lam belongs to"),
        (["--seed", "-1"], "--seed is -1"),
    ],
)
def test_bad_options(options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "layers", *SMALL, "--out", str(tmp_path / "run"), *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
