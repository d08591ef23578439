"""The independent checker: seconds of a certificate at both levels, and seconds and slack of each bound of a singular value."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from report import Report, Shown, parser

import surefoot as sf
from surefoot_check import Outcome, check
from surefoot_check.rigor.bounds import FAST
from surefoot_check.rigor.exact import EXACT
from surefoot_check.rigor.gram import extreme_bounds, inverse_bound
from surefoot_check.rigor.spectra import singular_value_bounds

CONDITIONS = (10.0, 1e3, 1e6, 1e9)


@dataclass(frozen=True)
class Sizes:
    """Rows and columns of the largest arrays, width of the network of the digits, and repeats at level fast."""

    size: int
    width: int
    repeats: int


FULL, SMOKE = Sizes(1000, 1000, 5), Sizes(60, 100, 1)


def _normal(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def large(sizes: Sizes, directory: Path) -> None:
    """A certified run whose arrays are s × s, s × 10 and s × 1.2 s."""
    size = sizes.size
    X = torch.linalg.qr(_normal(size, size, seed=0))[0] * torch.linspace(1.0, 3.0, size, dtype=torch.float64)
    loss = sf.SquaredLoss(X, _normal(size, 10, seed=1))
    net = sf.nn.TwoLayerLinear.gaussian(size, 10, size * 6 // 5, std=1.0, seed=2)
    _descend(net, loss, directory, 3)


def digits(sizes: Sizes, directory: Path) -> None:
    """Handwritten digits: 61 standardised inputs, ten classes."""
    data = sf.data.load("digits")
    Y = torch.nn.functional.one_hot(data.labels, 10).double()
    X = data.X - data.X.mean(0)
    deviation = X.std(0)
    X = X[:, deviation > 0.0] / deviation[deviation > 0.0]
    loss = sf.SquaredLoss(X, Y)
    net = sf.nn.TwoLayerLinear.gaussian(X.shape[1], 10, sizes.width, std=1.0, seed=0)
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


def with_condition(size: int, condition: float) -> np.ndarray:
    """A square matrix with geometric singular values from 1 to 1/condition."""
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.standard_normal((size, size)))[0] for _ in range(2))
    return left * np.geomspace(1.0, 1.0 / condition, size) @ right


def certificates(report: Report, sizes: Sizes) -> None:
    """Seconds of a check, by run and level."""
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory() as parent:
        for name, make in ((f"{sizes.size} x {sizes.size}", large), ("digits", digits)):
            directory = Path(parent) / name.replace(" ", "")
            make(sizes, directory)
            seconds: list[object] = []
            for level, repeat in (("fast", sizes.repeats), ("exact", 1)):
                spent, outcome = timed(lambda level=level, run=directory: check(run, level).outcome, repeat)
                if outcome is not Outcome.ACCEPT:
                    raise RuntimeError(f"{name} at level {level}: {outcome}")
                seconds.append(spent)
            rows.append([name, *seconds])
    report.table("Check of a run: processor seconds", ("run", "fast", "exact"), rows)


def bounds(report: Report, size: int) -> None:
    """Seconds of both extremes at s × s and how far the lower bound of σ_min is below it, relative to it."""
    rows: list[list[object]] = []
    for condition in CONDITIONS:
        A = with_condition(size, condition)
        value = 1.0 / condition  # within 1e-15 of it, relative to the norm
        lower: dict[str, Callable[[np.ndarray], float]] = {
            "chosen": lambda M: extreme_bounds(M)[0][0],
            "M3": lambda M: float(singular_value_bounds(M)[0][-1]),
            "M4": lambda M: inverse_bound(M, FAST),
            "chosen, exact": lambda M: extreme_bounds(M, EXACT)[0][0],
            "M3, exact": lambda M: float(singular_value_bounds(M, EXACT)[0][-1]),
        }
        for name, bound in lower.items():
            spent, low = timed(lambda b=bound, M=A: b(M))
            rows.append([condition, name, spent, Shown(max(0.0, 1.0 - float(low) / value), "{:.0e}")])
    report.table(
        "Bounds of the smallest singular value",
        ("condition", "bound", "processor s", "slack"),
        rows,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables."""
    report = Report(parser(__doc__), arguments)
    sizes = SMOKE if report.smoke else FULL
    certificates(report, sizes)
    bounds(report, sizes.size)


if __name__ == "__main__":
    main()
