"""A page of every kind that surefoot writes: reports of all systems, of certificates that are no descent's, of a photograph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import good_runs
import numpy as np
import reported_runs
from deconvolution_pictures import kernel, noisy, photos

from surefoot import _report
from surefoot._data.pictures import Picture, write_png
from surefoot.cli import main
from surefoot.deconvolution import ValidBlur

BATCH = ["--size", "4x8", "--problems", "60"]


def holdout(directory: Path) -> Path:
    """Of FISTA, with a shift."""
    options = ["--coverage", "0.9", "--confidence", "0.95", "--shift", "6x8"]
    assert main(["certify", "holdout", "--solver", "FISTA", *BATCH, *options, "--out", str(directory)]) == 0
    return directory / "report.html"


def layers(directory: Path) -> Path:
    """Three layers for least squares, beside other methods."""
    options = ["--size", "8x12", "--problems", "8", "--layers", "3", "--out", str(directory), "--quiet"]
    assert main(["train", "layers", *options]) == 0
    return directory / "report.html"


def photograph(directory: Path) -> Path:
    """Wider than a narrow screen, with a name that is no markup."""
    directory.mkdir()
    blur = ValidBlur(kernel(5, 5), (64, 84))
    grey = noisy(blur, photos(1, 90)[0, :64, :84].contiguous(), 0.01).clamp(0.0, 1.0).numpy()
    photo, given = directory / "a <b> & c.png", directory / "k.npy"
    photo.write_bytes(write_png(Picture(np.kron(np.rint(255.0 * grey).astype(np.uint8), np.ones((8, 8), np.uint8)))))
    np.save(given, kernel(5, 5).numpy())
    options = ["--gamma", "linear", "--prior", "wavelet", "--noise", "0.01", "--iterations", "3", "--page", "--quiet"]
    assert main(["deblur", str(photo), "--kernel", str(given), "--out", str(directory / "o.png"), *options]) == 0
    return directory / "o.html"


def trained(directory: Path) -> Path:
    """A feed-forward network whose training was watched."""
    table = directory.with_suffix(".csv")
    draws = np.random.default_rng(0).standard_normal((12, 5))
    np.savetxt(table, draws, delimiter=",", header="a,b,c,d,y", comments="")
    options = ["--data", str(table), "--samples", "8", "--hidden", "24", "--out", str(directory), "--quiet"]
    assert main(["train", "feed-forward", *options]) == 0
    return directory / "report.html"


def learned(directory: Path) -> Path:
    """Trained step sizes, and the run that they take."""
    options = ["--problem", "lasso", "--size", "4x8", "--problems", "8", "--epochs", "2", "--out", str(directory)]
    assert main(["train", "step-sizes", *options, "--quiet"]) == 0
    return directory / "report.html"


def _run(make: Callable[[Path], object]) -> Callable[[Path], Path]:
    def page(directory: Path) -> Path:
        make(directory)
        return _report.write(directory)

    return page


NO_RUNS = ("inverse", "step-sizes")
"""Whose good runs are certificates alone."""
PAGES: dict[str, Callable[[Path], Path]] = {
    **{f"good {name}": _run(make) for name, make in good_runs.SYSTEMS.items() if name not in NO_RUNS},
    **{make.__name__: _run(make) for make in reported_runs.RUNS},
    "total variation": _run(good_runs.total_variation),
    "holdout": holdout, "layers": layers, "photograph": photograph, "trained": trained, "learned": learned,
}  # fmt: skip
"""Each writes a page into a directory that is not there yet, and returns its path."""
