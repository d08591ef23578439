"""Counts: after how many iterations each problem is solved, in blocks of bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from .._core.progress import counted_line
from .._core.validate import kind_of
from .._problems import Problems
from . import solvers
from .targets import RelativeTo, Target

BYTES = 1 << 27
"""Of the arrays of a block, and of its iterates if all of them are kept."""
UNSOLVED = -1


@dataclass(frozen=True)
class Counts:
    """Counts (n,) int64, ``UNSOLVED`` where a problem is not solved within the limit; the problems' arrays with their reference
    minimisers, and the solutions (n, d) float64 at the counts, where they are kept."""

    counts: Tensor
    arrays: dict[str, Tensor] | None = None
    solutions: Tensor | None = None


@dataclass(frozen=True)
class Counter:
    """A solver with what it is asked for."""

    solver: Any
    gap: float
    relative_to: RelativeTo | None
    limit: int

    def count(self, problems: Any, *, keep: bool = False, progress: bool = True) -> Counts:
        """Count on a batch of problems, or on each of any objects.

        Raises:
            TypeError, ValueError: a solver or problems that do not fit, or what the solver returned.
        """
        if isinstance(problems, Problems):
            return self._batch(problems, keep, progress)
        if keep:
            raise TypeError("keep_solutions needs a batch sf.learned.Problems; of other problems only counts are kept")
        return Counts(self._each(problems, progress))

    def _each(self, problems: Any, progress: bool) -> Tensor:
        if not isinstance(problems, Iterable) or isinstance(problems, str):
            raise TypeError(
                f"problems is {kind_of(problems)}; pass a batch sf.learned.Problems or a sequence of problems"
            )
        if not callable(self.solver):
            raise TypeError(
                f"solver is {kind_of(self.solver)}; for problems that are no sf.learned.Problems pass a function of one problem "
                "that returns its count"
            )
        every = list(problems)
        counts = []
        with counted_line(progress, "held-out problems", len(every)) as update:
            for index, problem in enumerate(every):
                counts.append(solvers.count_of(self.solver(problem), index, self.limit))
                update(index + 1)
        return torch.tensor(counts, dtype=torch.int64)

    def _batch(self, problems: Problems, keep: bool, progress: bool) -> Counts:
        follow = solvers.follower(self.solver, problems)
        parts: list[Counts] = []
        with counted_line(progress, "held-out problems", problems.count) as update:
            for block, first in _blocks(problems, self.limit):
                target = Target(block, self.gap, self.relative_to, first)
                parts.append(self._block(follow(block, self.limit, self._tolerance), block, target, keep))
                update(first + block.count)
        counts = torch.cat([part.counts for part in parts])
        if not keep:
            return Counts(counts)
        arrays = [part.arrays or {} for part in parts]
        joined = {name: torch.cat([each[name] for each in arrays]) for name in arrays[0]}
        return Counts(counts, joined, torch.cat([part.solutions for part in parts if part.solutions is not None]))

    @property
    def _tolerance(self) -> float:
        """A relative duality gap at which a problem is solved; 0 where there is none."""
        return 0.5 * self.gap if self.relative_to == "optimum" else 0.0

    def _block(self, iterates: Iterator[Tensor], block: Problems, target: Target, keep: bool) -> Counts:
        counts = torch.full((block.count,), UNSOLVED, dtype=torch.int64)
        solutions = torch.zeros(block.count, block.columns, dtype=torch.float64)
        shown = True
        for t, x in enumerate(islice(iterates, self.limit + 1)):
            shown = x.ndim == 2
            reached = (target.reached(x) if shown else target.reached_value(x)).cpu() & (counts == UNSOLVED)
            counts[reached] = t
            if shown:
                solutions[reached] = x.detach().double().cpu()[reached]
            if bool((counts != UNSOLVED).all()):
                break
        if not keep:
            return Counts(counts)
        if not shown:
            solutions = self._again(block, counts)
        return Counts(counts, block.arrays(), solutions)

    def _again(self, block: Problems, counts: Tensor) -> Tensor:
        """The solutions (N, d) of a solver that shows objectives only: those of as many iterations as each problem needs."""
        solutions = torch.zeros(block.count, block.columns, dtype=torch.float64)
        for count in counts[counts != UNSOLVED].unique().tolist():
            index = (counts == count).nonzero().squeeze(1)
            part = block.select(index.to(block.M.device))
            x = self.solver.solve(part, count).solution.double()
            if not bool(Target(part, self.gap, self.relative_to).reached(x).all()):
                raise RuntimeError(
                    f"keep_solutions: after {count} iterations solver.solve has a solution that is not as good as the objective "
                    "that it showed; leave out keep_solutions"
                )
            solutions[index] = x.cpu()
        return solutions


def _blocks(problems: Problems, limit: int) -> Iterator[tuple[Problems, int]]:
    """Parts of the batch, each with the index of its first problem."""
    entry = problems.M.element_size()
    each = entry * (4 * problems.rows * problems.columns + (min(limit, 1000) + 16) * problems.columns)
    size = max(1, BYTES // each)
    if size >= problems.count:
        yield problems, 0  # which keep what was measured of them for the next solver
        return
    for first in range(0, problems.count, size):
        yield problems.select(slice(first, first + size)), first
