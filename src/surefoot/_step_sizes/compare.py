"""A learned method beside the methods without learning, on the problems it was trained on and on fresh ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

import torch
from torch import Tensor

from surefoot_check.step_sizes import constants as shared

from .._core.brief import brief
from .._core.validate import kind_of, positive_integer
from .._lasso.learned_solver import LassoSolver
from .._lasso.lista import UnrolledISTA
from .._layers.network import LayeredSteps
from .._problems import Lasso, LeastSquares, Problems
from .baselines import Trace, names, trace
from .network import StepSizeNet
from .rates import proved_bound
from .smoothness import Smoothness, smoothness_of
from .training_loss import Fresh

LOWEST = torch.finfo(torch.float64).eps ** 2
"""What rounding leaves of a gap, as a part of the first: plots end there."""
SAME = 1e-12
"""Two evaluations of the same iteration differ by less of a gap."""
WIDTH = 100
"""Columns of the text of a comparison."""
HEAD = ("method", "products", "mean F - F*", "proved", "improves", "mean t<=T", "worse")
"""Of its tables."""

Learned = StepSizeNet | LayeredSteps | LassoSolver | UnrolledISTA


@dataclass(frozen=True)
class Measures:
    """What a method reached on one or several sets of problems.

    Improvements are (G - F)/G with F the sum over the problems of a set of the gaps F_p - F_p*, and G that of the reference;
    negative where the method is worse. They are means over the sets.

    Attributes:
        gap: mean of F_p(x_T) - F_p* over all problems.
        improvement: at T.
        mean_improvement: mean over t = 1 … T.
        products: with M or Mᵀ, mean over problems; NaN where they are not known.
        worse: share of all problems where F_p(x_T) is above that of the reference by more than ``resolution`` and
            ``SAME`` of it.
        bound: mean over all problems of the proved bound of F_p(x_T) - F_p*, with the distance to the reference minimiser, and of
            ``resolution``; NaN where nothing is proved. Of a learned method it is what its range of steps guarantees.
        curves: mean gaps by iteration of each set (sets, T+1) float64.
    """

    gap: float
    improvement: float
    mean_improvement: float
    products: float
    worse: float
    bound: float
    curves: Tensor


@dataclass(frozen=True)
class Row:
    """One method.

    Attributes:
        method: its name.
        learned: whether it was learned.
        training: on the problems that were passed.
        fresh: on the fresh sets, if there were any.
    """

    method: str
    learned: bool
    training: Measures
    fresh: Measures | None


@dataclass(frozen=True)
class Comparison:
    """Methods side by side after the same number of iterations; ``table()`` and ``plot(path)`` show them.

    Attributes:
        rows: the reference first, the learned methods last; ``comparison[name]`` is that of a method. A row has ``method``,
            ``learned``, and what was measured on the problems (``training``) and on fresh ones (``fresh``).
        iterations: T.
        left_out: baselines that the problems do not admit, and why.
    """

    rows: tuple[Row, ...]
    iterations: int
    left_out: tuple[str, ...] = ()

    __repr__ = brief

    @property
    def reference(self) -> str:
        """The method that the others are compared with."""
        return self.rows[0].method

    def __contains__(self, method: object) -> bool:
        return any(row.method == method for row in self.rows)

    def __getitem__(self, method: str) -> Row:
        for row in self.rows:
            if row.method == method:
                return row
        raise KeyError(f"no method {method!r}; there are {[row.method for row in self.rows]}")

    def __str__(self) -> str:
        return self.table()

    def table(self) -> str:
        """The rows as text, at most ``WIDTH`` columns unless a name is long: fresh problems first, then those of the training."""
        lines = []
        for title, rows in self.tables():
            lines += [title, *_aligned([HEAD, *rows]), ""]
        return "\n".join(
            [*lines, *(line for note in self.notes() for line in wrap(note, WIDTH, subsequent_indent="  "))]
        )

    def tables(self) -> list[tuple[str, list[list[str]]]]:
        """Title and cells under ``HEAD`` of each table: fresh problems first, then those of the training."""
        parts = [("training problems", [row.training for row in self.rows])]
        fresh = [row.fresh for row in self.rows if row.fresh is not None]
        if fresh:
            parts.insert(0, (_fresh_sets(len(fresh[0].curves)), fresh))
        return [
            (
                f"{title}, T = {self.iterations}",
                [
                    [f"{row.method} (learned)" if row.learned else row.method, *_cells(measured)]
                    for row, measured in zip(self.rows, measures, strict=True)
                ],
            )
            for title, measures in parts
        ]

    def notes(self) -> list[str]:
        """What the columns mean, and what is left out."""
        return [
            "mean F - F* and its proved bound (-: none) are means over the problems, after T iterations.",
            f"improves: by how much F - F*, summed over the problems, is below that of {self.reference} after T iterations; "
            'negative: above it; "3.0 x worse": 3 times that.',
            "mean t<=T: the same, averaged over the iterations t = 1 ... T.",
            f"worse: share of the problems that end above {self.reference}.",
            *(f"left out: {reason}" for reason in self.left_out),
        ]

    def plot(self, path: str | Path) -> None:
        """Mean gap by iteration as a PNG: training problems, and fresh ones with one deviation over the sets.

        Raises:
            OSError: a failed write.
        """
        from .._core.charts import COLOURS, Curve, draw, finish, grid, save

        panels = [("training problems", [row.training for row in self.rows])]
        fresh = [row.fresh for row in self.rows if row.fresh is not None]
        if fresh:
            panels.append((_fresh_sets(len(fresh[0].curves)), fresh))
        figure, axes = grid(1, len(panels), panel=(5.2, 4.2))
        for ax, (title, measures) in zip(axes[0], panels, strict=True):
            start = float(measures[0].curves[:, 0].mean())
            lowest = max(LOWEST * start, math.ulp(0.0))  # zero has no place on a logarithmic axis
            # the learned methods last, with the first colours
            first = len(self.rows) - sum(row.learned for row in self.rows)
            curves = [
                Curve(row.method, COLOURS[(index - first) % len(COLOURS)], measured.curves.clamp(min=lowest).tolist())
                for index, (row, measured) in enumerate(zip(self.rows, measures, strict=True))
            ]
            draw(ax, curves, title=title)
            for index, (line, row) in enumerate(zip(ax.get_lines(), self.rows, strict=True)):
                # baselines of one colour differ in their dashes
                style = "-" if row.learned else "--" if index < len(COLOURS) else ":"
                line.set(linestyle=style, linewidth=2.8 if row.learned else 1.5)
        finish(figure, axes, f"Gap after t iterations, T = {self.iterations}; learned methods solid", "mean F - F*")
        save(figure, path)


def compare(
    problems: Problems,
    iterations: int,
    net: Learned | Mapping[str, Learned] | None = None,
    *,
    fresh: Fresh | Sequence[Problems] = (),
    sets: int = 20,
    baselines: Iterable[str] | None = None,
    smoothness: Smoothness = None,
) -> Comparison:
    """Run every baseline that the problems admit, and the learned methods, from 0; all measured in F - F*.

    Args:
        problems: those that were trained on.
        iterations: T ≥ 1. Methods with a cost other than two products an iteration show it in ``products``.
        net: a trained ``sf.nn.StepSizeNet`` or ``LayeredSteps``, LASSO solver, LISTA, LISTACPSS or ALISTA; or several by name.
        fresh: problems that nothing was trained on: a generator, a function of 0 … ``sets`` - 1 such as
            ``lambda k: LeastSquares.random(32, 20, 32, seed=1000 + k)``, or a sequence of batches.
        sets: fresh sets to draw where ``fresh`` is a function.
        baselines: names out of ``names(problems)``; all of them by default. The first name of that is always the reference.
        smoothness: β of a ``StepSizeNet`` and of ``LayeredSteps``, as in their ``solve``.

    Raises:
        TypeError, ValueError: bad arguments, or a method that does not fit the problems.

    Example:
        >>> problems = sf.learned.LeastSquares.random(4, 6, 8)
        >>> layers = sf.learned.train_layers(problems, 3).net
        >>> found = sf.learned.compare(problems, 3, {"layers": layers}, baselines=["GD 1/β_p"])
        >>> [row.method for row in found.rows], found["layers"].training.gap < found["GD 1/β"].training.gap
        (['GD 1/β', 'GD 1/β_p', 'layers'], True)
    """
    iterations = positive_integer("iterations", iterations)
    if callable(fresh):
        fresh = [fresh(k) for k in range(positive_integer("sets", sets))]
    batches = [problems, *fresh]
    for batch in batches:
        if type(batch) is not type(problems):
            raise TypeError(
                f"fresh holds {type(batch).__name__}, problems are {type(problems).__name__}; pass the same kind"
            )
    common = set.intersection(*(set(names(batch)) for batch in batches))
    admitted = [name for name in names(problems) if name in common]
    chosen = admitted if baselines is None else list(dict.fromkeys([admitted[0], *baselines]))
    learned = _by_name(net)
    if clash := sorted(set(learned) & set(chosen)):
        raise ValueError(f"net has the name {clash[0]!r}, which is that of a baseline; choose another")
    references = [trace(chosen[0], batch, iterations) for batch in batches]
    rows = []
    for name in [*chosen, *learned]:
        if name == chosen[0]:
            traces = references
        elif name in learned:
            traces = [learned_trace(learned[name], batch, iterations, smoothness) for batch in batches]
        else:
            traces = [trace(name, batch, iterations) for batch in batches]
        bounds = [_proved(learned.get(name, name), batch, iterations, smoothness) for batch in batches]
        training = _measures(traces[:1], references[:1], batches[:1], bounds[:1])
        others = _measures(traces[1:], references[1:], batches[1:], bounds[1:]) if len(batches) > 1 else None
        rows.append(Row(name, name in learned, training, others))
    return Comparison(tuple(rows), iterations, _left_out(problems, admitted))


def learned_trace(method: Learned, problems: Problems, iterations: int, smoothness: Smoothness = None) -> Trace:
    """What a learned method does in ``iterations`` iterations, or layers; with fewer layers the last iterate stays.

    Raises:
        TypeError, ValueError: a method that does not fit the problems.
    """
    steps = torch.arange(iterations + 1)
    if isinstance(method, StepSizeNet | LayeredSteps):
        if isinstance(method, LayeredSteps):
            steps = steps.clamp(max=method.layers)
            solution = method.solve(problems, smoothness=smoothness, trajectory=True)
        else:
            solution = method.solve(problems, iterations, smoothness=smoothness, trajectory=True)
        assert solution.trajectory is not None
        return _trace(problems, solution.trajectory[steps], 2.0 * steps.double())
    if isinstance(method, LassoSolver):
        if not isinstance(problems, Lasso):
            raise TypeError(f"problems is {kind_of(problems)}; the solver is for sf.learned.Lasso")
        solution = method.solve(problems, iterations)
        gaps = (solution.objectives.double() - problems.optimal_value).clamp(min=0.0)
        return Trace(solution.solution, gaps, solution.products.double().mean(1))
    with torch.no_grad():
        iterates = method.iterates(method.check(problems).Y)
    steps = steps.clamp(max=method.layers)
    # the learned matrices cost as much as M and Mᵀ or more
    return _trace(problems, torch.stack(iterates)[steps], 2.0 * steps.double())


def _fresh_sets(count: int) -> str:
    return f"{count} fresh set{'s' * (count != 1)}"


def _trace(problems: Problems, iterates: Tensor, products: Tensor) -> Trace:
    gaps = torch.stack([problems.gap(x).clamp(min=0.0) for x in iterates])
    return Trace(iterates[-1], gaps, products)


def _by_name(net: Any) -> dict[str, Learned]:
    if net is None:
        return {}
    named = dict(net) if isinstance(net, Mapping) else {type(net).__name__: net}
    for name, method in named.items():
        if not isinstance(method, Learned):
            raise TypeError(
                f"net {name!r} is {kind_of(method)}; pass a StepSizeNet, LayeredSteps, LISTA, LISTACPSS, ALISTA "
                "or LASSO solver"
            )
    return named


def _proved(method: Learned | str, problems: Problems, iterations: int, smoothness: Smoothness) -> Tensor:
    """Bounds (N,) of F_p(x_T) - F_p* and what rounding may add; NaN where none is known."""
    radius = problems.optimum().norm(dim=1)
    none = torch.full_like(radius, torch.nan)
    if isinstance(method, str):
        bound = proved_bound(method, problems, iterations, radius)
    else:
        bound = _guaranteed(method, problems, iterations, smoothness)
    return none if bound is None else bound + resolution(problems)


def _guaranteed(method: Learned, problems: Problems, iterations: int, smoothness: Smoothness) -> Tensor | None:
    """By ``step-sizes/monotone`` and ``/rate``, for whatever weights."""
    if not isinstance(method, StepSizeNet | LayeredSteps) or not isinstance(problems, LeastSquares):
        return None
    low, high = method.range
    if isinstance(method, LayeredSteps):
        iterations = min(iterations, method.layers)
    beta = smoothness_of(problems, smoothness)
    ratios = torch.stack([problems.smoothness / beta, problems.strong_convexity / beta], 1).tolist()
    parts = [shared.advance({"smoothness_ratio": s, "convexity_ratio": c}, low, high) for s, c in ratios]
    kept = 1.0 - torch.tensor(parts, dtype=torch.float64, device=beta.device)
    if high > 2.0 or bool((kept > 1.0).any()):
        return None
    return problems.gap(problems.start()) * kept ** (2 * iterations)


def _measures(
    traces: Sequence[Trace], references: Sequence[Trace], batches: Sequence[Problems], bounds: Sequence[Tensor]
) -> Measures:
    """Over the sets."""
    improvements, above, finals = [], [], []
    for taken, reference, batch in zip(traces, references, batches, strict=True):
        improvements.append(improvement(taken.gaps.sum(1), reference.gaps.sum(1)))
        above.append(taken.gaps[-1] > reference.gaps[-1] * (1.0 + SAME) + resolution(batch))
        finals.append(taken.gaps[-1])
    ratios = torch.stack(improvements)
    return Measures(
        gap=float(torch.cat(finals).mean()),
        improvement=float(ratios[:, -1].mean()),
        mean_improvement=float(ratios[:, 1:].mean()),
        products=float(torch.stack([taken.products[-1] for taken in traces]).mean()),
        worse=float(torch.cat(above).double().mean()),
        bound=float(torch.cat([*bounds]).mean()),
        curves=torch.stack([taken.gaps.mean(1) for taken in traces]),
    )


def resolution(problems: Problems) -> Tensor:
    """Differences (N,) float64 of gaps that mean nothing: what F_p* is known to, and what minimisers rounded in the dtype of the
    problems differ by."""
    best, unit = problems.optimum(), float(torch.finfo(problems.M.dtype).eps)
    rounding = (problems.rows + problems.columns) * unit * best.norm(dim=1)
    return problems.gap_bound(best) + 0.5 * problems.smoothness * rounding.square()


def improvement(gaps: Tensor, reference: Tensor) -> Tensor:
    """(``reference`` - ``gaps``)/``reference``; 0 where both are 0."""
    return torch.where(gaps == reference, 0.0, (reference - gaps) / reference)


def _left_out(problems: Problems, admitted: Sequence[str]) -> tuple[str, ...]:
    if problems.kind == "least-squares-batch" and "GD 2/(β+β0)" not in admitted:
        missing = "GD 2/(β+β0), strongly convex Nesterov and Chebyshev"
        return (f"{missing}, as β0 > 0 is not certified: a matrix has deficient rank",)
    return ()


def _aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, all but its first column to the right."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in cells]


def _cells(measured: Measures) -> list[str]:
    return [
        "-" if math.isnan(measured.products) else f"{measured.products:.0f}",
        f"{measured.gap:.2e}",
        "-" if math.isnan(measured.bound) else f"{measured.bound:.2e}",
        _change(measured.improvement),
        _change(measured.mean_improvement),
        f"{100.0 * measured.worse:.0f} %",
    ]


def _change(improvement: float) -> str:
    """A percentage, to three digits near 100, where the methods differ; the ratio of the gaps where that is above 2."""
    percent = 100.0 * improvement
    if percent < -100.0:
        ratio = 1.0 - improvement
        return f"{ratio:.1f} x worse" if ratio < 1e3 else f"{ratio:.0e} x worse"
    return f"{percent:.3f} %" if percent > 99.0 else f"{percent:.1f} %"
