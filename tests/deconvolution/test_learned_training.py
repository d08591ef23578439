"""Training: the data, that the losses fall, that a resumed run is the same run, and what is left behind."""

from __future__ import annotations

import copy
import json
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from surefoot._core import checkpoints
from surefoot._core.io import RunDirectoryError
from surefoot._deconvolution.learned import training, training_data
from surefoot._deconvolution.learned.network import Penalised
from surefoot._deconvolution.learned.training import train
from surefoot._deconvolution.learned.training_data import TILE, TrainingData, embedded, tiled
from surefoot._deconvolution.learned.training_kernels import KERNEL, shake_kernels
from surefoot._learning.run import TrainRun, TrainStatus
from surefoot.deconvolution import DeconvolutionProblem, PeriodicBlur, default_penalty
from surefoot.nn import LearnedDeconvolution

SMALL = {"batch": 2, "crop": 48}


@pytest.fixture(scope="module")
def data() -> TrainingData:
    return TrainingData.load()


def small(filters: int = 4, **options: object) -> LearnedDeconvolution:
    return LearnedDeconvolution(2, filters, **options)  # pyright: ignore[reportArgumentType]


# -- data --------------------------------------------------------------------------------------------------------------


def test_bundled_data(data: TrainingData) -> None:
    assert data.tiles.shape == (12, TILE, TILE) and data.tiles.dtype == torch.uint8
    assert torch.allclose(data.kernels.sum((1, 2)), torch.ones(len(data.kernels)), atol=1e-5)
    assert float(data.kernels.min()) >= 0.0
    used, validating = data.split()
    assert torch.equal(validating.tiles, data.tiles[6:7])
    assert torch.equal(used.tiles, torch.cat([data.tiles[:6], data.tiles[7:]]))


def test_shared_data(shared_data: Path) -> None:
    found = TrainingData.load(shared_data)
    assert found.tiles.shape == (400, TILE, TILE)
    assert len(found.kernels) == 20 * 8 + 360


@pytest.mark.parametrize("valid", [False, True])
def test_a_batch_is_what_its_parts_say(data: TrainingData, valid: bool) -> None:
    drawn = data.draw(6, 60, torch.Generator().manual_seed(0), valid=valid)
    side = 60 - KERNEL + 1 if valid else 60
    assert drawn.sharp.shape == (6, 60, 60) and drawn.observed.shape == (6, side, side)
    noise = drawn.observed - drawn.blur.forward(drawn.sharp)
    spread = noise.square().mean((1, 2)).sqrt() / drawn.noise.flatten()
    assert torch.allclose(spread, torch.ones(6), atol=0.15)
    assert bool(((drawn.noise >= 0.002) & (drawn.noise <= 0.05)).all())
    again = data.draw(6, 60, torch.Generator().manual_seed(0), valid=valid)
    assert torch.equal(again.observed, drawn.observed)


def test_crops_are_turned_and_mirrored_pieces_of_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a tile whose pixels are all different in a corner: every orientation occurs, and nothing else."""
    monkeypatch.setattr(training_data, "FAINT", 0.0)
    tile = torch.zeros(1, TILE, TILE, dtype=torch.uint8)
    tile[0, 90, 90:93] = torch.tensor([10, 20, 30], dtype=torch.uint8)
    drawn = TrainingData(tile, shake_kernels(2, torch.Generator().manual_seed(0)), "").draw(
        64, 170, torch.Generator().manual_seed(1)
    )
    directions = set()
    for crop in (drawn.sharp * 255.0).round():
        assert sorted(crop[crop > 0].tolist()) == [10.0, 20.0, 30.0]
        first, last = (crop == 10.0).nonzero()[0], (crop == 30.0).nonzero()[0]
        directions.add(tuple(((last - first) // 2).tolist()))
    assert directions == {(0, 1), (0, -1), (1, 0), (-1, 0)}


def test_kernels_keep_their_centre() -> None:
    for shape in ((5, 5), (4, 7), (KERNEL, KERNEL)):
        kernel = np.random.default_rng(0).random(shape)
        z = torch.rand(1, 50, 50, generator=torch.Generator().manual_seed(1))
        small_one = PeriodicBlur(torch.tensor(kernel / kernel.sum()).float(), (50, 50)).forward(z)
        assert torch.allclose(PeriodicBlur(embedded(kernel), (50, 50)).forward(z), small_one, atol=1e-5)
    with pytest.raises(ValueError, match="at most 37"):
        embedded(np.ones((3, 38)))
    for bad, message in (
        (np.zeros((3, 3)), "zero everywhere"),
        (-np.ones((3, 3)), "negative"),
        (np.ones((2, 3, 3)), "one kernel"),
    ):
        with pytest.raises(ValueError, match=message):
            embedded(bad)


def test_generated_kernels_differ_in_size_and_stay_inside() -> None:
    kernels = shake_kernels(60, torch.Generator().manual_seed(0))
    extents = []
    for kernel in kernels:
        rows = (kernel.sum(1) > 1e-6).nonzero().flatten()
        columns = (kernel.sum(0) > 1e-6).nonzero().flatten()
        extents.append(max(int(rows[-1] - rows[0]), int(columns[-1] - columns[0])))
    assert min(extents) < 14 and 22 < max(extents) < KERNEL


def test_bad_data(tmp_path: Path, data: TrainingData) -> None:
    with pytest.raises(ValueError, match=r"bsd400_gray180\.npz is missing"):
        TrainingData.load(tmp_path)
    (tmp_path / "bsd400_gray180.npz").write_bytes(b"PK")
    with pytest.raises(ValueError, match="cannot be read"):
        TrainingData.load(tmp_path)
    np.savez(tmp_path / "bsd400_gray180.npz", pictures=np.zeros(3))
    np.savez(tmp_path / "csf_kernels.npz", k01=np.ones((3, 3)))
    with pytest.raises(ValueError, match="no array images"):
        TrainingData.load(tmp_path)
    with pytest.raises(ValueError, match="180 x 180"):
        tiled([np.zeros((179, 400), np.uint8)])
    with pytest.raises(ValueError, match="only 1 tile"):
        TrainingData(data.tiles[:1], data.kernels, "").split()
    for size in (37, 181):
        with pytest.raises(ValueError, match=f"size is {size}"):
            data.draw(1, size, torch.Generator())


# -- losses ------------------------------------------------------------------------------------------------------------


def test_objective_is_that_of_the_problem(data: TrainingData) -> None:
    drawn = data.draw(1, 48, torch.Generator().manual_seed(0), noise=0.02)
    z = drawn.sharp
    problem = DeconvolutionProblem(drawn.observed, drawn.blur, default_penalty(0.02))
    found = Penalised(drawn.observed, drawn.blur, drawn.noise, problem.wavelet.name).objective(z)
    assert torch.allclose(found, problem.objective(problem.wavelet.analysis(z)), rtol=1e-5)


@pytest.mark.parametrize(("loss", "filters", "reached"), [("supervised", 8, 1.4), ("objective", 0, 0.932)])
def test_training_beats_the_start(data: TrainingData, loss: str, filters: int, reached: float) -> None:
    """On crops that are not trained on; the loss is relative to the start, and few steps do not beat the half-quadratic one."""
    net = small(filters)
    run = train(net, data, loss, steps=60, learning_rate=1e-2, **SMALL)  # pyright: ignore[reportArgumentType]
    assert run.status is TrainStatus.FINISHED and run.epochs == 60
    assert net.noise_range == (0.002, 0.05)
    assert run.best < reached and run.best < run.validation[0]


def test_algorithm_4_trains_coefficients_on_their_own_loss(data: TrainingData) -> None:
    net = small(0, inverse=(1, 2))
    before = copy.deepcopy(net)
    run = train(net, data, "objective", steps=20, learning_rate=1e-2, **SMALL)  # pyright: ignore[reportArgumentType]
    assert run.best_epoch == 20
    drawn = data.draw(2, 48, torch.Generator().manual_seed(0))
    first = float(before.inverse_loss(drawn.blur, drawn.noise).detach())
    # with the α of before: only the coefficients are compared
    for old, new in zip(before.layers, net.layers, strict=True):
        old.coefficients = new.coefficients
    assert float(before.inverse_loss(drawn.blur, drawn.noise).detach()) < 0.8 * first


# -- runs --------------------------------------------------------------------------------------------------------------


def states(net: LearnedDeconvolution) -> list[list[float]]:
    return [value.flatten().tolist() for value in net.state_dict().values()]


def test_a_resumed_run_is_the_same_run(data: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut off by a signal after three steps, resumed from the checkpoint: the same weights as without."""
    whole = small()
    train(whole, data, steps=8, **SMALL)  # pyright: ignore[reportArgumentType]
    original = training._Task.evaluate
    calls = 0

    def evaluate(self: training._Task, batch: training.Batch) -> tuple[torch.Tensor, torch.Tensor]:
        nonlocal calls
        calls += 1
        if calls == 5:  # the second is of validation
            signal.raise_signal(signal.SIGTERM)
        return original(self, batch)

    monkeypatch.setattr(training._Task, "evaluate", evaluate)
    cut = train(small(), data, steps=8, directory=tmp_path / "run", **SMALL)  # pyright: ignore[reportArgumentType]
    assert (cut.status, cut.epochs, cut.stopped_by) == (TrainStatus.INTERRUPTED, 3, signal.SIGTERM)
    monkeypatch.undo()
    again = small()
    run = train(again, data, steps=8, directory=tmp_path / "run", resume=True, **SMALL)  # pyright: ignore[reportArgumentType]
    assert (run.status, run.epochs) == (TrainStatus.FINISHED, 8)
    assert run.validation_epochs == (0, 8)  # as without the interruption
    assert states(again) == states(whole)
    assert states(LearnedDeconvolution.load(tmp_path / "run" / "best.safetensors")) == states(whole)
    assert json.loads((tmp_path / "run" / "result.json").read_text())["epochs"] == 8


EARLIER = Path(__file__).parent / "earlier_run"
"""config.json and the third checkpoint of a training of six steps, as they were written when each parameter had its own tensors
there."""


def test_a_checkpoint_of_an_earlier_layout_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what the two optimisers remembered: without that, the weights after three more steps are off by about one step."""
    generator = torch.Generator().manual_seed(0)
    tiles = torch.randint(256, (5, TILE, TILE), dtype=torch.uint8, generator=generator)
    kernels = torch.zeros(2, KERNEL, KERNEL)
    kernels[0, 18, 17:19] = kernels[1, 17:19, 18] = 0.5
    pictures = TrainingData(tiles, kernels, "noise")
    # what that version drew
    monkeypatch.setattr(training_data, "FAINT", 0.0)
    monkeypatch.setattr(training_data, "NOISE", (0.008, 0.032))
    nets = [small(0, inverse=(1, 2)) for _ in range(2)]
    options = {"steps": 6, "batch": 2, "crop": 40, "learning_rate": 1e-2}
    shutil.copytree(EARLIER, tmp_path / "run")
    resumed = train(nets[0], pictures, "objective", directory=tmp_path / "run", resume=True, **options)  # pyright: ignore[reportArgumentType]
    whole = train(nets[1], pictures, "objective", **options)  # pyright: ignore[reportArgumentType]
    assert not list((tmp_path / "run" / "checkpoints").glob("*.damaged"))
    assert resumed.epochs == 6 and resumed.seconds > 0.1
    assert resumed.validation_epochs == whole.validation_epochs == (0, 6)
    assert resumed.best == pytest.approx(whole.best, rel=1e-4)
    for first, second in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        torch.testing.assert_close(first, second, rtol=0.0, atol=1e-4)


def test_minutes_end_a_run(data: TrainingData) -> None:
    run = train(small(), data, steps=10**6, minutes=0.01, **SMALL)  # pyright: ignore[reportArgumentType]
    assert run.status is TrainStatus.OUT_OF_TIME and 0.6 <= run.seconds < 30.0


def test_a_diverged_run_keeps_the_best(data: TrainingData, monkeypatch: pytest.MonkeyPatch) -> None:
    original = training._Task.evaluate

    def evaluate(self: training._Task, batch: training.Batch) -> tuple[torch.Tensor, torch.Tensor]:
        loss, last = original(self, batch)
        return (loss * torch.nan if torch.is_grad_enabled() else loss), last

    monkeypatch.setattr(training._Task, "evaluate", evaluate)
    net = small()
    before = states(net)
    run = train(net, data, steps=30, **SMALL)  # pyright: ignore[reportArgumentType]
    assert run.status is TrainStatus.DIVERGED and run.epochs == 0
    assert states(net) == before


def test_directories(data: TrainingData, tmp_path: Path) -> None:
    path = tmp_path / "run"

    def short(steps: int = 1, *, resume: bool = False, seed: int = 0) -> TrainRun:
        return train(
            small(),
            data,
            steps=steps,
            directory=path,
            resume=resume,
            seed=seed,
            **SMALL,  # pyright: ignore[reportArgumentType]
        )

    with pytest.raises(RunDirectoryError, match="not a directory"):
        short(resume=True)
    short()
    with pytest.raises(RunDirectoryError, match="not an empty directory"):
        short()
    with pytest.raises(RunDirectoryError, match="seed differ"):
        short(resume=True, seed=1)
    for file in (path / "checkpoints").iterdir():
        file.write_bytes(b"")
    with pytest.warns(UserWarning, match="cannot be used"):
        assert short(2, resume=True).epochs == 2
    assert checkpoints.path_of(path, 2).exists()


def test_bad_arguments(data: TrainingData) -> None:
    for options, message in (
        ({"loss": "mse"}, "loss is 'mse'"),
        ({"steps": 0}, "steps"),
        ({"minutes": 0.0}, "minutes"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"crop": 20}, "size is 20"),
        ({"resume": True}, "needs the directory"),
    ):
        with pytest.raises(ValueError, match=message):
            train(small(), data, **options)  # pyright: ignore[reportArgumentType]
