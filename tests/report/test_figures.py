"""``Run.plot``, ``Certificate.plot`` and ``Run.report``."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import surefoot as sf
from surefoot._core.registry import system_named
from surefoot._report.wording import symbolic


@pytest.fixture(scope="module")
def run() -> sf.Run:
    """In memory, ten rows."""
    generator = torch.Generator().manual_seed(0)
    X, Y = (torch.randn(40, n, dtype=torch.float64, generator=generator) for n in (4, 2))
    net = sf.nn.TwoLayerLinear.gaussian(4, 2, 30, seed=0)
    return sf.descend(net, sf.SquaredLoss(X, Y), max_iterations=10, progress=False)


def test_a_figure_has_the_run_and_can_be_changed(run: sf.Run) -> None:
    axes = run.plot().axes[0]
    drawn = {line.get_label(): [float(y) for y in line.get_ydata()] for line in axes.lines}
    assert drawn["this run"] == run.gaps
    axes.set_title("changed")
    steps = [float(y) for y in run.plot("steps").axes[0].lines[0].get_ydata()]
    assert steps == run.step_sizes


def test_the_margins_of_a_certificate(run: sf.Run) -> None:
    symbols = system_named(run.certificate.system).words.symbols
    for figure in (run.certificate.plot(), run.plot("conditions")):
        said = " ".join(text.get_text() for text in figure.axes[0].texts)
        assert all(symbolic(condition.name, symbols) in said for condition in run.certificate.conditions)


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")])
def test_a_figure_is_written_in_the_format_of_its_name(name: str, start: bytes, run: sf.Run, tmp_path: Path) -> None:
    run.plot("steps", tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_what_cannot_be_drawn_says_why(run: sf.Run, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown plot 'gaps'; did you mean 'gap'"):
        run.plot("gaps")
    with pytest.raises(ValueError, match=r"pass one directory to sf\.watch"):
        run.plot("training")
    with pytest.raises(ValueError, match=r"end it with \.png"):
        run.plot("gap", tmp_path / "a.docx")
    generator = torch.Generator().manual_seed(0)
    blur = sf.deconvolution.PeriodicBlur(torch.full((3, 3), 1 / 9, dtype=torch.float64), (8, 8))
    observed = blur.forward(torch.rand(8, 8, dtype=torch.float64, generator=generator))
    problem = sf.deconvolution.DeconvolutionProblem(observed, blur, 1e-3)
    other = sf.descend(sf.deconvolution.LADMM(), problem, max_iterations=3, progress=False)
    with pytest.raises(ValueError, match="has steps of its own"):
        other.plot("steps")


def test_the_training_before_a_run(tmp_path: Path) -> None:
    X = torch.tensor([[0.3, -1.0], [1.2, 0.4]], dtype=torch.float64)
    loss = sf.SquaredLoss(X, torch.tensor([1.0, -1.0], dtype=torch.float64))
    model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()
    watch = sf.watch(model, loss, every=20, share=1.0, report=None, directory=tmp_path / "run")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while watch.certified is None and watch.iteration < 200:
        optimizer.zero_grad()
        (model(X)[:, 0] - torch.tensor([1.0, -1.0])).square().sum().backward()
        optimizer.step()
        watch.step()
    run = sf.descend(model, loss, max_iterations=5, directory=tmp_path / "run", progress=False)
    losses = [float(y) for y in run.plot("training").axes[0].lines[0].get_ydata()]
    assert losses == [seen.loss for seen in watch.history]


def test_a_report_of_a_run_in_memory_and_of_a_saved_one(run: sf.Run, tmp_path: Path) -> None:
    with pytest.raises(sf.RunDirectoryError, match=r"in memory only.*run\.report\(directory\)"):
        run.report()
    page = run.report(tmp_path / "run")
    assert page == tmp_path / "run" / "report.html" and "<svg" in page.read_text()
    assert run.directory == tmp_path / "run"  # it is saved there, and the next report goes there
    page.unlink()
    assert run.report() == page and page.exists()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    with pytest.raises(sf.RunDirectoryError, match="not an empty directory"):
        run.report(tmp_path / "taken")
