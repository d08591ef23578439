"""Several runs on one page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from .io import RunDirectoryError
from .late import late
from .run import Run
from .validate import folder, kind_of


def compare_runs(runs: Sequence[Run | str | Path], path: str | Path) -> Path:
    """Write one page that compares runs: a table with links to their reports, the gaps in one plot with what was guaranteed, and
    the settings that differ.

    ``surefoot report DIR DIR ... --out PAGE`` does the same. Reports that are missing, or older than their runs, are written, and
    every run is checked independently, for at most 20 seconds.

    Args:
        runs: runs that were written, their directories, or directories that hold several.
        path: of the page; its directory is made. Links are relative to it.

    Returns:
        ``path``.

    Raises:
        TypeError: no list of these.
        RunDirectoryError: no run; a run is in memory only; a directory is none, or holds nothing to compare; a run is damaged.
        OSError: a file could not be written; what stood there before is kept.

    Example:
        >>> X = torch.randn(20, 3).double()
        >>> loss = sf.SquaredLoss(X, X.sum(1))
        >>> for width in (8, 16):
        ...     net = sf.nn.TwoLayerLinear.gaussian(*loss.shape, width=width, std=0.5, seed=0)
        ...     run = sf.descend(net, loss, directory=f"runs/width-{width}")
        >>> sf.compare_runs(["runs"], "runs/index.html").name
        'index.html'
    """
    if isinstance(runs, str | Path | Run) or not isinstance(runs, Iterable):
        raise TypeError(f"runs is {kind_of(runs)}; pass a list of runs or directories: [...]")
    return late("surefoot._report.comparison", "write_comparison")([_directory(run) for run in runs], path)


def _directory(run: Run | str | Path) -> str | Path:
    if not isinstance(run, Run):
        return folder("runs", run)
    if run.directory is None:
        raise RunDirectoryError("runs has a run that is in memory only; write it first, by run.save(directory)")
    return run.directory
