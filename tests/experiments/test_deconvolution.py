"""The deconvolution table in settings far smaller than the quick one, and its pieces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from deconvolution_pictures import photos

import surefoot_experiments
from surefoot.deconvolution import PeriodicBlur, ValidBlur, aligned_psnr, psnr
from surefoot.nn import LearnedDeconvolution
from surefoot_experiments import deconvolution_data, deconvolution_methods
from surefoot_experiments import deconvolution_table4 as table
from surefoot_experiments.result import Experiment

TINY: dict[str, Any] = {
    "images": 1,
    "valid": 1,
    "real": 1,
    "kernels": 1,
    "crop": 64,
    "steps": 2,
    "batch": 1,
    "patch": 48,
}


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Experiment, Path]:
    cache = tmp_path_factory.mktemp("cache")
    return table.table4(**TINY, cache=cache), cache


def test_bundled_data_is_labelled_and_disjoint(bundled: tuple[Experiment, Path]) -> None:
    experiment, _ = bundled
    assert "no data folder" in experiment.settings["test data"]
    given = deconvolution_data.load(None, 0)
    assert len(given.images) == len(given.training.tiles) == 6 and given.real == []
    trained = given.training.tiles.double() / 255.0
    assert not any(torch.equal(image, tile) for image in given.images for tile in trained)
    assert not any(bool((k.float() - given.training.kernels).abs().amax((1, 2)).min() < 1e-3) for k in given.kernels)


def test_shared_data_is_disjoint(shared_data: Path) -> None:
    given = deconvolution_data.load(shared_data, 0)
    assert (len(given.images), len(given.kernels), len(given.real)) == (68, 8, 32)
    assert {tuple(image.shape) for image in given.images} == {(321, 481), (481, 321)}
    assert all(float(kernel.sum()) == pytest.approx(1.0, abs=1e-12) for kernel in given.kernels)


def test_real_pairs_follow_their_model(shared_data: Path) -> None:
    """The kernel and the shift explain the photograph far better than the kernel alone, inside a border."""
    for index in (0, 13, 30):
        pair = deconvolution_data.load(shared_data, 0).real[index]
        inside = (slice(30, -30), slice(30, -30))
        modelled = PeriodicBlur(pair.kernel, tuple(pair.sharp.shape)).forward(pair.sharp)
        assert float((modelled - pair.blurred)[inside].square().mean().sqrt()) < 0.02
        unturned = PeriodicBlur(pair.kernel.flip((0, 1)), tuple(pair.sharp.shape)).forward(pair.sharp)
        assert aligned_psnr(modelled, pair.blurred, border=30) > aligned_psnr(unturned, pair.blurred, border=30)


def test_tables(bundled: tuple[Experiment, Path]) -> None:
    experiment, _ = bundled
    for setting in table.SETTINGS:
        records = experiment.table(f"{setting} border").records()
        assert {r["noise"] for r in records} == {"1 %", "2 %", "3 %"}
        for row in records:
            assert 5.0 < float(row["PSNR"]) < 60.0 and 0.0 < float(row["SSIM"]) <= 1.0  # pyright: ignore[reportArgumentType]
            assert row["method"] != "gradient-Wiener" or row["least gain over gradient-Wiener"] == 0.0
            assert row["method"] != "fL-ADMM" or float(row["applications"]) > 0  # pyright: ignore[reportArgumentType]
    ablation = experiment.table("learned network at 2 % noise with D-Minv in place of the exact inverse").records()
    errors = [row["largest |1 - ax|"] for row in ablation]
    assert errors == sorted(errors, reverse=True) and errors[-1] == 0.0  # pyright: ignore[reportArgumentType]
    assert ablation[-2]["PSNR"] == pytest.approx(ablation[-1]["PSNR"], abs=0.05)
    json.dumps(experiment.to_dict(), allow_nan=False)
    assert len(experiment.figures) == 1 and experiment.figures[0].draw() is not None


def test_findings_name_the_goals_and_the_papers_numbers(bundled: tuple[Experiment, Path]) -> None:
    claims = [finding.claim for finding in bundled[0].findings]
    assert sum("our goal" in claim for claim in claims) == 3 + 2 * len(deconvolution_methods.peers())
    assert "1 % noise: fL-ADMM 26.13 dB, aL-ADMM 27.50 dB, learned 30.00 dB" in claims


def test_finished_parts_are_read_again(bundled: tuple[Experiment, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    experiment, cache = bundled

    def fail(*_: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(table, "restore_all", fail)
    monkeypatch.setattr(table, "train", fail)
    assert table.table4(**TINY, cache=cache).tables == experiment.tables


def test_given_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    LearnedDeconvolution(1, 2).save(tmp_path / "mine.safetensors")
    monkeypatch.setattr(table, "train", None)
    settings: dict[str, Any] = TINY | {"valid": 0}
    experiment = table.table4(**settings, weights=tmp_path / "mine.safetensors")
    assert experiment.settings["training"] == "weights from mine.safetensors"


@pytest.mark.parametrize("make", [PeriodicBlur, ValidBlur])
def test_every_solver_restores(make: type[PeriodicBlur | ValidBlur]) -> None:
    given = deconvolution_data.load(None, 0)
    sharp = photos(1, 80)[0]  # with more detail than the flower
    blur = make(given.kernels[1], (80, 80))
    observed = blur.forward(sharp)
    observed = observed + 0.01 * torch.randn(
        observed.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    extra = deconvolution_methods.peers()
    found = deconvolution_methods.restore_all(observed, blur, 0.01, LearnedDeconvolution(1, 0), extra)
    quality = {name: float(psnr(one.image, blur.crop(sharp))) for name, one in found.items()}
    assert set(extra) < set(found)
    for name, value in quality.items():
        assert name == "blurred" or value > quality["blurred"], name
    assert (found["fL-ADMM, float32, no gap"].iterations if make is PeriodicBlur else 0) in (
        0,
        found["fL-ADMM"].iterations,
    )
    assert found["learned"].applications == (4 if make is PeriodicBlur else 38)


def test_peers_are_left_out_where_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert deconvolution_methods.peers() == ()


def test_reproduce_hands_on_data_and_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "deconvolution/table4" in surefoot_experiments.names()
    seen: dict[str, Any] = {}

    def record(**given: Any) -> Experiment:
        seen.update(given)
        return Experiment("deconvolution/table4", "", "", (), (), (), {})

    entry = surefoot_experiments.EXPERIMENTS["deconvolution/table4"]
    monkeypatch.setitem(
        surefoot_experiments.EXPERIMENTS,
        "deconvolution/table4",
        surefoot_experiments._Entry(record, entry.quick, True, True, True),
    )
    surefoot_experiments.reproduce("deconvolution/table4", data=tmp_path, weights=tmp_path / "net", seed=3)
    assert (seen["data"], seen["weights"], seen["seed"], seen["images"]) == (tmp_path, tmp_path / "net", 3, 20)
    with pytest.raises(ValueError, match="takes no trained network"):
        surefoot_experiments.reproduce("two-layer/fig1", weights="net")
