"""The experiment on feed-forward networks in a setting smaller than the quick one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import nn

import surefoot_experiments
from surefoot_experiments import feed_forward_certified as certified

SMALL = (
    certified.Kind((16,), nn.Tanh, 10, 2000, 1e6, descends=True),
    certified.Kind((16,), nn.Softplus, 10, 2000, 1e6, "lbfgs"),
    certified.Kind((16,), nn.Tanh, 10, 1, 1.0),
)


@pytest.fixture(scope="module")
def experiment() -> surefoot_experiments.Experiment:
    return certified.certified(SMALL, 2)


def test_names() -> None:
    assert [name for name in surefoot_experiments.names() if name.startswith("feed-forward/")] == [
        "feed-forward/certified"
    ]


def test_networks_are_certified_and_keep_their_guarantee(experiment: surefoot_experiments.Experiment) -> None:
    first, second, third = experiment.table("guaranteed fits").records()
    for record in (first, second, third):
        assert record["certified"] == "2 of 2"
        assert isinstance(record["step"], float) and 0.0 < record["step"] < 5000
        assert isinstance(record["moved"], float) and record["moved"] > 0.01
    assert isinstance(first["executed"], float) and isinstance(first["guaranteed"], float)
    assert first["executed"] <= first["guaranteed"] and first["audit violations"] == 0
    assert second["executed"] is None and second["audit violations"] is None
    assert third["step"] == first["step"]


def test_findings_are_decided_by_the_numbers(experiment: surefoot_experiments.Experiment) -> None:
    early, few, near, kept = experiment.findings
    assert early.agrees is False and "2 of 3" in early.measured and SMALL[2].label in early.measured
    assert few.agrees is False and "2 of 3" in few.measured
    assert near.agrees == (float(near.measured.split()[1]) <= certified.RADIUS)
    assert kept.agrees is True and "2 of 2 runs" in kept.measured


def test_what_is_never_certified_is_said() -> None:
    experiment = certified.certified(SMALL[:1], 1, limit=99)
    (record,) = experiment.table("guaranteed fits").records()
    assert record["certified"] == "0 of 1" and record["step"] is None and record["guaranteed"] is None
    assert [finding.agrees for finding in experiment.findings] == [False, False, False, None]


def test_data_and_weights_are_as_stated() -> None:
    X, Y = certified.data(30, classes=False)
    assert torch.allclose(X.mean(0), torch.zeros_like(X[0]), atol=1e-12) and torch.allclose(
        X.std(0), torch.ones_like(X[0])
    )
    assert set(Y.reshape(-1).tolist()) == {-1.0, 1.0}
    assert certified.data(30, classes=True)[1].sum(1).tolist() == [1.0] * 30
    torch.manual_seed(3)
    expected = nn.Linear(X.shape[1], 16, dtype=torch.float64)
    assert torch.equal(certified.network(SMALL[0], X.shape[1], 1, 3)[0].weight, expected.weight)  # pyright: ignore[reportArgumentType]


def test_the_figure_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "feed-forward/certified"
    entry = dataclasses.replace(surefoot_experiments.EXPERIMENTS[name], quick={"networks": SMALL[:1], "repeats": 1})
    monkeypatch.setitem(surefoot_experiments.EXPERIMENTS, name, entry)
    experiment = surefoot_experiments.reproduce(name, directory=tmp_path)
    assert experiment.settings["full"] is False
    assert [path.name for path in tmp_path.glob("*.png")] == ["margin.png"]
