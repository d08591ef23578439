"""The deconvolution table in settings far smaller than the quick one, and its pieces."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from deconvolution_pictures import photos

import surefoot_experiments
from surefoot._deconvolution.learned.training import parameters
from surefoot._learning.run import TrainRun, TrainStatus
from surefoot.deconvolution import PeriodicBlur, ValidBlur, aligned_psnr, psnr
from surefoot.nn import LearnedDeconvolution
from surefoot_experiments import (
    deconvolution_data,
    deconvolution_findings,
    deconvolution_methods,
    deconvolution_peers,
    deconvolution_steps,
)
from surefoot_experiments import deconvolution_inverses as unrolled
from surefoot_experiments import deconvolution_table4 as table
from surefoot_experiments.deconvolution_methods import (
    ADAPTIVE,
    D_MINV,
    FIXED,
    FIXED_SINGLE,
    GRADIENT_WIENER,
    LD_MINV,
    LEARNED,
)
from surefoot_experiments.result import Experiment, Table

TINY: dict[str, Any] = {
    "images": 1,
    "valid": 1,
    "real": 1,
    "kernels": 1,
    "crop": 64,
    "steps": 2,
    "batch": 1,
    "patch": 48,
    "unrolled": 2,
}


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Experiment, Path]:
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deconvolution_steps, "SHOWN", (20, 60))
        patch.setattr("surefoot._deconvolution.learned.training.VALIDATION", 2)
        return table.table4(**TINY, cache=cache), cache


@pytest.mark.slow
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
    errors = [row["largest error of ax = 1"] for row in ablation]
    assert errors == sorted(errors, reverse=True) and errors[-1] == 0.0  # pyright: ignore[reportArgumentType]
    assert ablation[-2]["PSNR"] == pytest.approx(ablation[-1]["PSNR"], abs=0.05)
    json.dumps(experiment.to_dict(), allow_nan=False)
    assert len(experiment.figures) == 1 and experiment.figures[0].draw() is not None


def test_findings_name_the_goals_and_the_papers_numbers(bundled: tuple[Experiment, Path]) -> None:
    claims = [finding.claim for finding in bundled[0].findings]
    assert sum("our goal" in claim for claim in claims) == 3 + len(deconvolution_peers.peers())
    assert "1 % noise: fL-ADMM 26.13 dB, aL-ADMM 27.50 dB, D-NbD (D-Minv) 28.97 dB, D-NbD (LD-Minv) 30.00 dB" in claims


def measured(**psnr: float) -> list[dict[str, Any]]:
    """Records of one image for each noise level, with the PSNR given by method and that of fL-ADMM for the others."""
    names = (GRADIENT_WIENER, FIXED, FIXED_SINGLE, ADAPTIVE, D_MINV, LD_MINV, LEARNED)
    values = {name: psnr.get(name, 25.0) for name in names}
    same = {"setting": "periodic", "image": 0, "kernel": 0, "seconds": 1.0, "iterations": 700}
    return [
        {**same, "noise": noise, "method": name, "psnr": value}
        for noise in deconvolution_findings.NOISES
        for name, value in values.items()
    ]


@pytest.mark.parametrize("gain", [0.003, 1.4])
def test_the_gain_of_adaptive_steps_is_decided_by_the_numbers(bundled: tuple[Experiment, Path], gain: float) -> None:
    sides = [t for t in bundled[0].tables if t.title.startswith(("learned network", "step sizes"))]
    records = measured(**{ADAPTIVE: 25.0 + gain, LD_MINV: 25.5, D_MINV: 24.0})
    steps, inverses = sides
    found = {f.claim: f for f in deconvolution_findings.findings(records, [], inverses, steps)}
    adaptive = found["aL-ADMM: 1.3 dB above fL-ADMM"]
    assert adaptive.agrees is (gain > 1.3) and ("not reproduced" in adaptive.measured) is not adaptive.agrees
    assert found["fL-ADMM consumes more than 600 iterations"].agrees is True
    assert found["D-NbD (LD-Minv): above D-NbD (D-Minv), by 1.03, .29 and .19 dB"].agrees is True


def test_step_sizes_beyond_the_theorem_diverge_unless_they_decay(bundled: tuple[Experiment, Path]) -> None:
    table = bundled[0].table("step sizes of L-ADMM, 60 iterations, 1 % noise, one image")
    by = {(r["β/λ"], r["αβ"], r["method"]): r for r in table.records()}
    last, reached = deconvolution_steps.LAST, deconvolution_steps.REACHED
    assert by[10.0, 1.5, FIXED][last] is None
    assert by[10.0, 1.5, ADAPTIVE][last] == pytest.approx(by[10.0, 1.0, FIXED][last], abs=0.05)
    assert by[10.0, 1.0, FIXED][reached] < 50  # pyright: ignore[reportOperatorIssue]


def test_an_inverse_by_fft_is_the_fastest(bundled: tuple[Experiment, Path]) -> None:
    """An exact one is a division of the spectrum; every polynomial inverse is evaluated on the spectrum before it is used."""
    ablation = bundled[0].table("learned network at 2 % noise with D-Minv in place of the exact inverse")
    times = {str(row["inverse"]): float(str(row["milliseconds of an inverse"])) for row in ablation.records()}
    assert min(times, key=lambda name: times[name]) == "exact, by FFT"


def test_d_minv_keeps_its_coefficients_and_ld_minv_learns_them() -> None:
    data = deconvolution_data.load(None, 0).training
    for name, net in unrolled.paper_networks().items():
        table.train(net, data, "objective", steps=2, batch=1, crop=48, learning_rate=1e-2)
        moved = max(float((C.detach() - 1.0).abs().max()) for C in parameters(net)[1].values())
        assert (moved > 0.0) is (name == LD_MINV), name


def test_finished_parts_are_read_again(bundled: tuple[Experiment, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    experiment, cache = bundled

    def fail(*_: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(table, "restore_all", fail)
    monkeypatch.setattr(table, "train", fail)
    assert table.table4(**TINY, cache=cache).tables == experiment.tables


def test_given_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    LearnedDeconvolution(1, 2).save(tmp_path / "mine.safetensors")
    trained: list[int] = []

    def train(net: LearnedDeconvolution, *_: Any, **__: Any) -> TrainRun:
        trained.append(net.filters)
        return TrainRun(0, (), (), 0, 0.0, TrainStatus.FINISHED, None, (), 0.0)

    monkeypatch.setattr(table, "train", train)
    monkeypatch.setattr(deconvolution_steps, "SHOWN", (10, 20))
    settings: dict[str, Any] = TINY | {"valid": 0}
    experiment = table.table4(**settings, weights=tmp_path / "mine.safetensors")
    assert experiment.settings["training"] == "weights from mine.safetensors"
    assert trained == [0, 0]  # the paper's two


@pytest.mark.parametrize("make", [PeriodicBlur, ValidBlur])
def test_every_solver_restores(make: type[PeriodicBlur | ValidBlur]) -> None:
    given = deconvolution_data.load(None, 0)
    sharp = photos(1, 80)[0]  # with more detail than the flower
    blur = make(given.kernels[1], (80, 80))
    observed = blur.forward(sharp)
    observed = observed + 0.01 * torch.randn(
        observed.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    extra = deconvolution_peers.peers()
    found = deconvolution_methods.restore_all(observed, blur, 0.01, {"learned": LearnedDeconvolution(1, 0)}, extra)
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
    assert deconvolution_peers.peers() == ()


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


# -- the page and the program ----------------------------

PAGE = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text()
SINGLE = ("never more than", "everywhere")
"""Of findings that take every image, which the page does not hold."""


def page_tables() -> dict[tuple[str, ...], list[list[str]]]:
    """The tables below the command of table 4, up to the next heading, by their columns."""
    found: dict[tuple[str, ...], list[list[str]]] = {}
    below = PAGE.split("surefoot reproduce deconvolution/table4")[1].split("\n###")[0]
    for block in re.findall(r"(?:^\|.*\|\n)+", below, re.MULTILINE):
        head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines())
        found[tuple(head)] = rows
    return found


def value(cell: str) -> Any:
    try:
        return float(cell.replace(",", ""))
    except ValueError:
        return None if cell == "–" else cell


def test_the_page_decides_table_4_by_its_numbers() -> None:
    tables = page_tables()
    by_columns = {head: Table("", head, tuple(tuple(map(value, row)) for row in rows)) for head, rows in tables.items()}
    (periodic,) = (t for t in by_columns.values() if "seconds in the paper" in t.columns)
    (steps,) = (t for t in by_columns.values() if deconvolution_steps.REACHED in t.columns)
    (inverses,) = (t for t in by_columns.values() if "milliseconds of an inverse" in t.columns)
    records = [
        {"setting": "periodic", "noise": float(str(row["noise"]).rstrip(" %")) / 100.0, "image": 0, "kernel": 0}
        | {name: row[name] for name in ("method", "seconds", "iterations")}
        | {"psnr": row["PSNR"]}
        for row in periodic.records()
    ]
    told = {row[0]: row[2] for row in tables["claim", "measured", "", "why"]}
    for finding in deconvolution_findings.findings(records, [], inverses, steps):
        if not any(word in finding.claim for word in SINGLE):
            verdict = {True: "agrees", False: "**differs**", None: "–"}[finding.agrees]
            assert told[finding.claim] == verdict, finding


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_program_prints_the_psnr_of_the_page(shared_data: Path) -> None:
    """To a tenth of a decibel: networks trained anew depend on rounding."""
    found = surefoot_experiments.reproduce("deconvolution/table4", data=shared_data, weights="bundled")
    (told,) = (rows for head, rows in page_tables().items() if "seconds in the paper" in head)
    printed = {(str(row[0]), str(row[1])): row[2] for row in found.table("periodic border").rows}
    for noise, method, quality, *_ in told:
        if (noise, method) in printed or "scikit-image" not in method:
            assert printed[noise, method] == pytest.approx(float(quality), abs=0.1), method
