"""LASSO in milliseconds of one processor to a relative gap in F, of one problem and of a batch: our solver beside FISTA with
restarts, scikit-learn, celer and skglm.

Each solver takes the loosest tolerance 10^-k of its own with which it is accurate, which is found before; FISTA is stopped by an
oracle, at its first accurate iterate, and gets ‖M‖ for nothing. "certified" has the gap itself for a tolerance, so that the
accuracy is proved and no reference is needed.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from learned_lasso import SMOKE, problems
from report import Report, Shown, parser

from surefoot._lasso.learned_solver import LassoSolver
from surefoot._problems import Lasso
from surefoot_experiments.step_sizes_lasso import LAMBDAS, OURS, TRAINED, TRAINED_FOR

SIZES = ((250, 500), (500, 2000))
GAPS = (1e-4, 1e-8)
PEERS = ("celer", "skglm")
TOLERANCES = tuple(10.0**-k for k in range(1, 13))
BATCH, SEED = 32, 20_000

Array = np.ndarray
Work = Callable[[], Array]
"""Solves the problems of a batch, and returns the solutions (N, d)."""


def fista(M: Array, y: Array, lam: float, beta: float, target: float) -> Array:
    """The first iterate with F at most ``target``; restarted by the gradient (O'Donoghue and Candès, 2015)."""
    x = z = np.zeros(M.shape[1])
    image = z_image = np.zeros_like(y)
    tau, level = 1.0, lam / beta
    for _ in range(100_000):
        v = z - M.T @ (z_image - y) / beta
        new = np.sign(v) * np.maximum(np.abs(v) - level, 0.0)
        new_image = M @ new
        residual = new_image - y
        if 0.5 * residual @ residual + lam * np.abs(new).sum() <= target:
            return new
        if (z - new) @ (new - x) > 0.0:
            z, z_image, tau = new, new_image, 1.0
        else:
            following = 0.5 * (1.0 + (1.0 + 4.0 * tau * tau) ** 0.5)
            weight = (tau - 1.0) / following
            z, z_image, tau = new + weight * (new - x), new_image + weight * (new_image - image), following
        x, image = new, new_image
    raise RuntimeError("FISTA does not get there")


class Timed:
    """The methods on one batch, each at the tolerance that it needs."""

    def __init__(self, report: Report, p: Lasso, gap: float, weights: Sequence[float]) -> None:
        self.p, self.gap = p, gap
        # within a hundredth of the gap, by duality
        self.best = LassoSolver().solve(p, 100_000, tolerance=1e-2 * gap).objectives[-1]
        # peers hold M by columns
        self.data = [
            (np.asfortranarray(M.numpy()), y.numpy(), lam) for M, y, lam in zip(p.M, p.Y, p.lam.tolist(), strict=True)
        ]
        self.works: dict[str, Work] = {
            OURS: self._loosest(partial(self._ours, LassoSolver())),
            "certified": partial(self._ours, LassoSolver(), gap / (1.0 + gap)),
            TRAINED_FOR: self._loosest(partial(self._ours, LassoSolver(weights))),
            "FISTA, restarted": self._fista,
        }
        for name, make in estimators(report).items():
            self.works[name] = self._loosest(partial(self._estimated, make))

    def _ours(self, solver: LassoSolver, tolerance: float) -> Array:
        return solver.solve(self.p, 100_000, tolerance=tolerance).solution.numpy()

    @property
    def _fista(self) -> Work:
        norms = self.p.smoothness.tolist()
        targets = ((1.0 + self.gap) * self.best).tolist()
        return lambda: np.stack(
            [fista(*data, beta, target) for data, beta, target in zip(self.data, norms, targets, strict=True)]
        )

    def _estimated(self, make: Callable[..., Any], tolerance: float) -> Array:
        return np.stack(
            [
                make(alpha=lam / len(y), fit_intercept=False, tol=tolerance, max_iter=100_000).fit(M, y).coef_
                for M, y, lam in self.data
            ]
        )

    def _loosest(self, solve: Callable[[float], Array]) -> Work:
        for tolerance in TOLERANCES:
            if self._accurate(solve(tolerance)):
                return partial(solve, tolerance)
        raise RuntimeError(f"no tolerance down to {TOLERANCES[-1]:g} is accurate")

    def _accurate(self, x: Array) -> bool:
        return bool((self.p.objective(self.p.M.new_tensor(x)) <= (1.0 + self.gap) * self.best).all())

    def seconds(self, repeats: int) -> dict[str, float]:
        """The least time of the processor that each took, in one thread; the methods take turns."""
        least = dict.fromkeys(self.works, float("inf"))
        for _ in range(repeats):
            for name, work in self.works.items():
                begin = time.process_time()
                work()
                least[name] = min(least[name], time.process_time() - begin)
        return least


def estimators(report: Report) -> dict[str, Callable[..., Any]]:
    """Coordinate descents by their name."""
    from sklearn.linear_model import Lasso as ScikitLearn

    found: dict[str, Callable[..., Any]] = {"scikit-learn": ScikitLearn}
    if report.has("celer"):
        from celer import Lasso as Celer  # pyright: ignore[reportMissingImports]

        found["celer"] = Celer
    if report.has("skglm"):
        from skglm import Lasso as Skglm  # pyright: ignore[reportMissingImports]

        found["skglm"] = Skglm
    return found


def rows_of(cases: Iterable[tuple[tuple[str, ...], Timed]], repeats: int) -> tuple[list[str], list[list[object]]]:
    """The names of the methods; and a row for each case, milliseconds a problem."""
    names: list[str] = []
    rows: list[list[object]] = []
    for label, timed in cases:
        names = list(timed.works)
        least = timed.seconds(repeats)
        rows.append([*label, *(Shown(1e3 * least[name] / timed.p.count, "{:.2f}") for name in names)])
        print(*map(str, rows[-1]), flush=True)
    return names, rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    asked = parser(__doc__)
    asked.add_argument("--repeats", type=int, default=3)
    report = Report(asked, arguments, PEERS)
    warnings.simplefilter("ignore")  # that a loose tolerance does not converge
    repeats = 1 if report.smoke else report.options.repeats
    sizes = (SMOKE,) if report.smoke else SIZES
    begin = time.perf_counter()
    LassoSolver().solve(problems("0.1", 1, SMOKE, SEED, "cpu"), 5)
    first = f"the first call, which compiles or loads what is compiled, took {time.perf_counter() - begin:.1f} s"
    cases = (
        (
            (f"{rows}x{columns}", lam, f"{gap:.0e}"),
            Timed(report, problems(lam, 1, (rows, columns), SEED, "cpu"), gap, TRAINED[lam]),
        )
        for rows, columns in sizes
        for lam in LAMBDAS
        for gap in GAPS
    )
    names, rows = rows_of(cases, repeats)
    title = f"LASSO: milliseconds of one processor, least of {repeats}"
    report.table(title, ["size", "λ", "gap", *names], rows, first)
    size, count = sizes[0], 4 if report.smoke else BATCH
    cases = (
        ((lam, f"{gap:.0e}"), Timed(report, problems(lam, count, size, SEED, "cpu"), gap, TRAINED[lam]))
        for lam in LAMBDAS
        for gap in GAPS
    )
    names, rows = rows_of(cases, repeats)
    title = (
        f"LASSO: a batch of {count} of {size[0]}x{size[1]}, milliseconds of one processor a problem, least of {repeats}"
    )
    report.table(title, ["λ", "gap", *names], rows, "the others solve one after the other")


if __name__ == "__main__":
    main()
