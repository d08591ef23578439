"""Training of the coefficients: domains, optimisers, early stop, interruption and resume, files, arguments."""

from __future__ import annotations

import json
import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import surefoot as sf
from surefoot._inverse import training
from surefoot._inverse.spectra import Spectra
from surefoot._learning.directory import BEST
from surefoot._learning.run import TrainStatus

Net = sf.nn.LearnedInverse
DOUBLE = torch.float64


@pytest.fixture
def data(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Training and validation matrices: wide, with entries of variance 1/8."""
    drawn = torch.randn(2, 12, 6, 8, dtype=DOUBLE, generator=generator) / 8**0.5
    return drawn[0], drawn[1]


@pytest.mark.parametrize("objective", ["layers", "last"])
@pytest.mark.parametrize("shape", [(3, 4, 6), (3, 6, 4), (2, 5, 5)])
def test_gradient_is_that_of_the_matrices(objective: str, shape: tuple[int, ...], generator: torch.Generator) -> None:
    A = torch.randn(shape, dtype=DOUBLE, generator=generator)
    A[0, :, 0] = 0.0
    A[1] = A[1, :, :1] @ A[1, :1, :]
    C = 1.0 + 0.1 * torch.randn(3, 4, dtype=DOUBLE, generator=generator)
    last, held = objective == "last", ExitStack()  # one process: nothing is held
    totals = [training._total(Net(C, "gram"), A, domain, last, "A", held) for domain in ("spectral", "matrices")]
    (value, gradient), (other, expected) = (total.value_and_gradient(C) for total in totals)
    assert float(value) == pytest.approx(float(other), rel=1e-12)
    torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-14)
    assert totals[0].measure(C) == pytest.approx(totals[1].measure(C), rel=1e-10)


def test_gradient_is_the_derivative(generator: torch.Generator) -> None:
    A = torch.randn(2, 3, 4, dtype=DOUBLE, generator=generator) / 2
    C = 1.0 + 0.1 * torch.randn(2, 3, dtype=DOUBLE, generator=generator)
    spectra = Spectra.of(A, "svd")
    for last in (False, True):
        _, gradient = spectra.value_and_gradient(C, last)
        for k in range(2):
            for j in range(3):
                step = torch.zeros_like(C)
                step[k, j] = 1e-5
                difference = (
                    spectra.value_and_gradient(C + step, last)[0] - spectra.value_and_gradient(C - step, last)[0]
                )
                assert float(gradient[k, j]) == pytest.approx(difference / 2e-5, rel=1e-6, abs=1e-11)


@pytest.mark.parametrize("c0", ["gram", "svd", 4.0])
def test_spectral_and_matrix_training_agree(c0: Any, data: tuple[Tensor, Tensor]) -> None:
    nets = [Net.ones(3, 4, c0) for _ in range(2)]
    fits = [
        net.fit(*data, epochs=15, domain=domain) for net, domain in zip(nets, ("spectral", "matrices"), strict=True)
    ]
    assert fits[0].losses == pytest.approx(fits[1].losses, rel=1e-9)
    assert fits[0].validation == pytest.approx(fits[1].validation, rel=1e-9)
    # Adam divides by the gradient's size: rounding of a tiny gradient may move a coefficient
    torch.testing.assert_close(nets[0].coefficients, nets[1].coefficients, rtol=1e-6, atol=1e-6)


def test_adam_learns_and_the_best_coefficients_are_kept(data: tuple[Tensor, Tensor]) -> None:
    net = Net.ones(3, 4, "svd")
    fit = net.fit(*data, epochs=150)
    assert fit.status is TrainStatus.FINISHED and fit.epochs == 150
    assert fit.losses[-1] < 0.9 * fit.losses[0]
    assert fit.best == min(fit.validation) < 0.2 * fit.validation[0]
    assert fit.validation[fit.best_epoch] == fit.best
    C = net.coefficients.detach()
    A = data[1]
    X = Net(C, "svd", backward="unroll").unroll(A)[-1].detach()
    assert float((A @ X @ A - A).square().sum() / len(A)) == pytest.approx(fit.best, rel=1e-9)
    assert "150 epochs, loss" in str(fit)
    assert fit.losses[-1] >= net.floor(data[0]).value


def test_the_papers_optimiser_hardly_moves(data: tuple[Tensor, Tensor]) -> None:
    net = Net.ones(3, 4, "svd")
    fit = net.fit(*data, epochs=100, optimizer="sgd")
    assert float((net.coefficients.detach() - 1.0).abs().max()) < 0.01
    assert 0.98 * fit.losses[0] < fit.losses[-1] < fit.losses[0]


def test_tuned_chebyshev_beats_training_from_ones(data: tuple[Tensor, Tensor]) -> None:
    trained = Net.ones(4, 4, "svd")
    fit = trained.fit(*data, epochs=200)
    scalars = [1e-4, 1e-3, 1e-2]
    tuned = min(
        Spectra.of(data[1], "svd").test_loss(Net.chebyshev(4, 4, (lower, 1.0)).coefficients) for lower in scalars
    )
    assert tuned < fit.best


def test_training_from_chebyshev_on_the_last_layer_improves_it(data: tuple[Tensor, Tensor]) -> None:
    net = Net.chebyshev(3, 4, (0.01, 1.0), "svd")
    fit = net.fit(*data, epochs=200, objective="last", learning_rate=1e-3)
    assert fit.best < fit.validation[0]
    assert sf.certify(net).quantities["best_possible"] < sf.certify(net).bound(3)


def test_early_stop(data: tuple[Tensor, Tensor]) -> None:
    net = Net.ones(2, 4, "svd")
    fit = net.fit(*data, epochs=5000, learning_rate=0.3, patience=10)
    assert fit.status is TrainStatus.EARLY_STOPPED
    assert fit.epochs == fit.best_epoch + 10


def test_divergence_keeps_the_best(data: tuple[Tensor, Tensor]) -> None:
    net = Net.ones(6, 8, "svd")
    fit = net.fit(*data, epochs=300, optimizer="sgd", learning_rate=1e12)
    assert fit.status is TrainStatus.DIVERGED and fit.best_epoch == 0
    assert torch.equal(net.coefficients.detach(), torch.ones(6, 8, dtype=DOUBLE))


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_resume_is_exact(optimizer: str, data: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    whole, first, second = (Net.ones(2, 4, "svd") for _ in range(3))
    expected = whole.fit(*data, epochs=24, optimizer=optimizer, learning_rate=0.02)
    first.fit(*data, epochs=10, optimizer=optimizer, learning_rate=0.02, directory=tmp_path / "run")
    for newest in sorted((tmp_path / "run" / "checkpoints").iterdir())[-1:]:
        newest.unlink()  # cut off between two checkpoints
    found = second.fit(
        *data, epochs=24, optimizer=optimizer, learning_rate=0.02, directory=tmp_path / "run", resume=True
    )
    assert found == expected
    assert torch.equal(second.coefficients, whole.coefficients)
    assert torch.equal(Net.load(tmp_path / "run" / BEST).coefficients, whole.coefficients)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["losses"] == list(expected.losses) and result["status"] == "finished"


def test_interruption_leaves_a_checkpoint(
    data: tuple[Tensor, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    original = Spectra.value_and_gradient

    def interrupting(self: Spectra, C: Tensor, last_only: bool = False) -> tuple[float, Tensor]:
        nonlocal calls
        calls += 1
        if calls == 8:
            os.kill(os.getpid(), signal.SIGINT)
        return original(self, C, last_only)

    whole, net = Net.ones(2, 4), Net.ones(2, 4)
    expected = whole.fit(*data, epochs=20)
    with monkeypatch.context() as patched:
        patched.setattr(Spectra, "value_and_gradient", interrupting)
        fit = net.fit(*data, epochs=20, directory=tmp_path / "run")
    assert fit.status is TrainStatus.INTERRUPTED and fit.epochs == 7
    again = Net.ones(2, 4)
    assert again.fit(*data, epochs=20, directory=tmp_path / "run", resume=True) == expected


def test_directories(data: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    run = tmp_path / "run"
    Net.ones(2, 4).fit(*data, epochs=2, directory=run)
    with pytest.raises(sf.RunDirectoryError, match="not an empty directory"):
        Net.ones(2, 4).fit(*data, epochs=2, directory=run)
    with pytest.raises(sf.RunDirectoryError, match="coefficients differ"):
        Net.ones(2, 5).fit(*data, epochs=2, directory=run, resume=True)
    with pytest.raises(sf.RunDirectoryError, match="learning_rate, matrices"):
        Net.ones(2, 4).fit(data[0] * 2, data[1], epochs=2, learning_rate=0.1, directory=run, resume=True)
    with pytest.raises(sf.RunDirectoryError, match="no run to resume"):
        Net.ones(2, 4).fit(*data, epochs=2, directory=tmp_path / "none", resume=True)
    Net.ones(2, 4).save_certificate(tmp_path / "certificate", (0.1, 1.0))
    with pytest.raises(sf.RunDirectoryError, match="no training of a learned inverse"):
        Net.ones(2, 4).fit(*data, epochs=2, directory=tmp_path / "certificate", resume=True)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"optimizer": "adm"}, ValueError, "did you mean 'adam'"),
        ({"learning_rate": -1.0}, ValueError, "learning_rate is -1.0"),
        ({"epochs": -1}, ValueError, "epochs is -1"),
        ({"epochs": 1.5}, ValueError, "epochs is 1.5"),
        ({"patience": 0}, ValueError, "patience is 0"),
        ({"domain": "frequency"}, ValueError, "domain is 'frequency'"),
        ({"objective": "first"}, ValueError, "objective is 'first'"),
        ({"resume": True}, ValueError, "needs the directory"),
        ({"directory": 3}, TypeError, "directory is 3"),
    ],
)
def test_bad_options(options: dict[str, Any], error: type[Exception], match: str, data: tuple[Tensor, Tensor]) -> None:
    net = Net.ones(2, 4)
    with pytest.raises(error, match=match):
        net.fit(*data, **{"epochs": 2, **options})
    assert torch.equal(net.coefficients.detach(), torch.ones(2, 4, dtype=DOUBLE))


@pytest.mark.parametrize(
    ("matrices", "error", "match"),
    [
        (torch.ones(3, 3), ValueError, "matrices has shape"),
        (torch.ones(0, 3, 3), ValueError, "matrices has shape"),
        (torch.zeros(2, 3, 3), ValueError, "all 0"),
        (torch.full((2, 3, 3), 1e200, dtype=DOUBLE), ValueError, "rescale"),
        (torch.full((2, 3, 3), 1e-200, dtype=DOUBLE), ValueError, "rescale"),
        (torch.full((2, 3, 3), float("nan")), ValueError, "matrices has nan"),
        (torch.ones(2, 3, 3, dtype=torch.complex64), TypeError, "matrices has dtype complex64"),
    ],
)
def test_bad_matrices(matrices: Tensor, error: type[Exception], match: str) -> None:
    for call in (Net.ones(2, 4).fit, Net.ones(2, 4).floor):
        with pytest.raises(error, match=match):
            call(matrices)


def test_float32_matrices_train_float64_coefficients(data: tuple[Tensor, Tensor]) -> None:
    net = Net.ones(2, 4)
    fit = net.fit(data[0].float(), data[1].float(), epochs=5)
    assert net.coefficients.dtype == DOUBLE and fit.best < fit.validation[0]
