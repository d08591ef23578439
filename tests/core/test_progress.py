"""Progress in a notebook: one output that is replaced; the line on a terminal is among the tests of faults."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from surefoot._core import progress


class Shown:
    """Stands for IPython's display: the outputs of a cell, each with the objects that it has shown."""

    def __init__(self) -> None:
        self.outputs: list[list[Any]] = []

    def __call__(self, first: Any, display_id: bool) -> SimpleNamespace:
        assert display_id
        self.outputs.append([first])
        return SimpleNamespace(update=self.outputs[-1].append)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """This process as it were the kernel of a notebook."""
    shown = Shown()
    names = {
        "IPython": {"get_ipython": lambda: SimpleNamespace(kernel=object())},
        "IPython.display": {"display": shown},
    }
    for name, parts in names.items():
        module = ModuleType(name)
        vars(module).update(parts)
        monkeypatch.setitem(sys.modules, name, module)
    return shown


def test_a_notebook_shows_one_output_that_changes(kernel: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, *(0.04 * i for i in range(100))])
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(now)))
    with progress.progress_line(True, 10, 1.0, 1e-4) as show:
        for iteration in range(9):
            show(iteration, 10.0**-iteration, 0.5)
    (seen,) = kernel.outputs
    texts = [repr(cell) for cell in seen]
    assert texts[0].startswith("training 0%") and len(texts) < 9  # fewer than iterations: updated by time
    assert texts[-1] == "training 100%  iteration 8  gap 1.000e-08  step 5.000e-01  0:00:00"
    assert all('<progress value="' in cell._repr_html_() and repr(cell) in cell._repr_html_() for cell in seen)


def test_counts_and_times_in_a_notebook(kernel: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 1.0, 3725.0])
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(now, 3725.0)))
    with progress.counted_line(True, "<problems>", 40) as show:
        show(10)
    cell = kernel.outputs[0][-1]
    assert repr(cell) == "<problems> 25%  10/40  1:02:05" and "&lt;problems&gt;" in cell._repr_html_()


def test_nothing_is_shown_where_it_is_not_wanted_or_not_seen(
    kernel: Shown, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress.progress_line(False, 10, 1.0, 0.1) as show, progress.counted_line(False, "problems", 3) as count:
        show(1, 0.5, 0.1)
        count(1)
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: None)  # loaded, but not running
    with progress.progress_line(True, 10, 1.0, 0.1) as show:
        show(1, 0.5, 0.1)
    assert kernel.outputs == [] and capsys.readouterr() == ("", "")


NOTEBOOK = """
import torch
import surefoot as sf

loss = sf.SquaredLoss(torch.eye(4, dtype=torch.float64), torch.ones(4, 2, dtype=torch.float64))
run = sf.descend(sf.nn.TwoLayerLinear.gaussian(4, 2, 20), loss)
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of what runs the kernel
def test_in_a_real_notebook() -> None:
    """The progress, the tables and the figure, as a kernel sends them."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(text) for text in (NOTEBOOK, "run", "run.certificate", "run.plot()")]
    nbclient.NotebookClient(book, timeout=250, kernel_name="python3").execute()
    progress_cell, *rest = (list(cell["outputs"]) for cell in book.cells)
    (shown,) = progress_cell
    assert 'value="1.0000"' in shown["data"]["text/html"] and "training 100%" in shown["data"]["text/plain"]
    tables = [outputs[0]["data"]["text/html"] for outputs in rest[:2]]
    assert "converged: the gap reached the tolerance" in tables[0] and "two-layer/drift holds" in tables[1]
    assert "image/png" in rest[2][0]["data"]
