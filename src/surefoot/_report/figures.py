"""The plots of a report as figures of matplotlib, for a notebook or a paper."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .._core.certificate import Certificate
from .._core.io import write_atomic
from .._core.run import Run
from .._core.validate import unknown
from . import plots, training
from .canvas import styled
from .facts import Facts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WHAT = ("gap", "steps", "conditions", "training")


def of_run(run: Run, what: str, path: str | Path | None) -> Figure:
    """See ``Run.plot``."""
    if what not in WHAT:
        raise unknown("plot", what, WHAT)
    if what == "conditions":
        return of_certificate(run.certificate, path)
    facts = Facts.of(run)
    if what == "training":
        return _drawn(lambda: _training(facts), path)
    if what == "steps" and facts.stepless:
        raise ValueError(
            f"what is 'steps', and a run of {facts.system.network_name} has steps of its own, of which no number is the step; "
            "plot 'gap' or 'conditions'"
        )
    return _drawn(lambda: plots.draw(facts, what), path)


def of_certificate(certificate: Certificate, path: str | Path | None) -> Figure:
    """See ``Certificate.plot``."""
    return _drawn(lambda: plots.margins_of(certificate), path)


def _training(facts: Facts) -> Figure:
    history = training.history_of(facts)
    if history is None:
        raise ValueError(
            "what is 'training', and this run has none on record; pass one directory to sf.watch(..., directory=) and "
            "then to sf.descend(..., directory=)"
        )
    return training.drawn(history.looks)


def _drawn(draw: Callable[[], Figure], path: str | Path | None) -> Figure:
    """The figure in the style of the reports, written to ``path`` if there is one."""

    def done() -> Figure:
        figure = draw()
        # IPython asks for this where no backend has told it how to show a figure
        setattr(figure, "_repr_png_", partial(_shown, figure))  # noqa: B010 - of this figure alone
        if path is not None:
            _write(figure, Path(path))
        return figure

    return styled(done)


def _shown(figure: Figure) -> tuple[bytes, dict[str, int]]:
    """The picture for a notebook, sharp on fine screens, and its width in points of the page."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=200)
    return buffer.getvalue(), {"width": round(100 * figure.get_figwidth())}


def _write(figure: Figure, path: Path) -> None:
    """Whole, in the format that the name ends with."""
    kinds = figure.canvas.get_supported_filetypes()
    kind = path.suffix.removeprefix(".").lower()
    if kind not in kinds:
        raise ValueError(f"path is {str(path)!r}; end it with .png, .svg or .pdf (known: {', '.join(sorted(kinds))})")
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=160)
    write_atomic(path, buffer.getvalue())
