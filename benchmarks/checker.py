"""The independent checker: seconds of a certificate at both levels, and seconds and slack of each bound of a singular value."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from report import one_thread, table

import surefoot as sf
from surefoot_check import Outcome, check
from surefoot_check.rigor.bounds import FAST
from surefoot_check.rigor.exact import EXACT
from surefoot_check.rigor.gram import extreme_bounds, inverse_bound
from surefoot_check.rigor.spectra import singular_value_bounds

SIZE = 1000
CONDITIONS = (10.0, 1e3, 1e6, 1e9)


def _normal(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def large(directory: Path) -> None:
    """A certified run whose arrays are 1000 × 1000, 1000 × 10 and 1000 × 1200."""
    X = torch.linalg.qr(_normal(SIZE, SIZE, seed=0))[0] * torch.linspace(1.0, 3.0, SIZE, dtype=torch.float64)
    loss = sf.SquaredLoss(X, _normal(SIZE, 10, seed=1))
    net = sf.nn.TwoLayerLinear.gaussian(SIZE, 10, 1200, std=1.0, seed=2)
    _descend(net, loss, directory, 3)


def digits(directory: Path) -> None:
    """Handwritten digits: 61 standardised inputs, ten classes, width 1000."""
    data = sf.data.load("digits")
    Y = torch.nn.functional.one_hot(data.labels, 10).double()
    X = data.X - data.X.mean(0)
    deviation = X.std(0)
    X = X[:, deviation > 0.0] / deviation[deviation > 0.0]
    loss = sf.SquaredLoss(X, Y)
    net = sf.nn.TwoLayerLinear.gaussian(X.shape[1], 10, 1000, std=1.0, seed=0)
    _descend(net, loss, directory, 300)


def _descend(net: sf.nn.TwoLayerLinear, loss: sf.SquaredLoss, directory: Path, iterations: int) -> None:
    certificate = sf.certify(net, loss)
    if not certificate.holds:
        raise RuntimeError(f"the certificate of the benchmark does not hold: {certificate}")
    sf.descend(
        net,
        loss,
        max_iterations=iterations,
        tolerance=1e-10,
        certificate=certificate,
        directory=directory,
        progress=False,
    )


def timed(work: Callable[[], object], repeat: int = 1) -> tuple[float, object]:
    """Processor seconds of the quickest call, and its result: wall time says little on a shared machine."""
    seconds, result = math.inf, None
    for _ in range(repeat):
        start = time.process_time()
        result = work()
        seconds = min(seconds, time.process_time() - start)
    return seconds, result


def with_condition(condition: float) -> np.ndarray:
    """A square matrix with geometric singular values from 1 to 1/condition."""
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.standard_normal((SIZE, SIZE)))[0] for _ in range(2))
    return left * np.geomspace(1.0, 1.0 / condition, SIZE) @ right


def certificates() -> None:
    """Seconds of a check, by run and level."""
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory() as parent:
        for name, make in (("1000 x 1000", large), ("digits", digits)):
            directory = Path(parent) / name.replace(" ", "")
            make(directory)
            seconds: list[object] = []
            for level, repeat in (("fast", 5), ("exact", 1)):
                spent, report = timed(lambda at=level, run=directory: check(run, at), repeat)
                if report.outcome is not Outcome.ACCEPT:
                    raise RuntimeError(f"{name} at level {level}: {report.outcome}")
                seconds.append(spent)
            rows.append([name, *seconds])
    table("Check of a run: processor seconds", ("run", "fast", "exact"), rows)


def bounds() -> None:
    """Seconds of both extremes at 1000 × 1000 and how far the lower bound of σ_min is below it, relative to it."""
    rows: list[list[object]] = []
    for condition in CONDITIONS:
        A = with_condition(condition)
        value = 1.0 / condition  # within 1e-15 of it, relative to the norm
        row: list[object] = [f"{condition:.0e}"]
        for bound in (
            lambda M: extreme_bounds(M)[0][0],
            lambda M: float(singular_value_bounds(M)[0][-1]),
            lambda M: inverse_bound(M, FAST),
            lambda M: extreme_bounds(M, EXACT)[0][0],
            lambda M: float(singular_value_bounds(M, EXACT)[0][-1]),
        ):
            spent, low = timed(lambda b=bound, M=A: b(M))
            row.append(f"{spent:.2f} s, {max(0.0, 1.0 - low / value):.0e}")
        rows.append(row)
    table(
        "Bounds of the smallest singular value: processor seconds, slack",
        ("condition", "chosen", "M3", "M4", "chosen, exact", "M3, exact"),
        rows,
    )


def main() -> None:
    """Print both tables."""
    one_thread()
    certificates()
    bounds()


if __name__ == "__main__":
    main()
