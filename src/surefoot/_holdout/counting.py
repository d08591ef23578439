"""Counts: after how many iterations each problem is solved, in blocks of bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from surefoot_check.holdout.record import MOST, OBJECTS

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
    """Counts (n,) int64, ``UNSOLVED`` where a problem is not solved within the limit; that limit, or the last iteration of a
    solver that ended before; where they are kept, the problems' arrays with their reference minimisers, and the solutions (n, d)
    float64 at the counts."""

    counts: Tensor
    limit: int
    arrays: dict[str, Tensor] | None = None
    solutions: Tensor | None = None


@dataclass(frozen=True)
class Drawn:
    """Problems in the order in which they were drawn: batches, or any other objects."""

    batches: tuple[Problems, ...]
    objects: tuple[Any, ...]

    @classmethod
    def of(cls, problems: Any) -> Drawn:
        """A batch, several of them, or a sequence of other objects; ``TypeError`` for what is none of these."""
        if isinstance(problems, Problems):
            return cls((problems,), ())
        if not isinstance(problems, Iterable) or isinstance(problems, str):
            raise TypeError(
                f"problems is {kind_of(problems)}; pass a batch sf.learned.Problems, or a sequence of batches or of any problems"
            )
        every = tuple(islice(problems, MOST + 1))  # a stream has no end
        batches = tuple(each for each in every if isinstance(each, Problems))
        if not batches:
            return cls((), every)
        if len(batches) < len(every):
            raise TypeError("problems has batches sf.learned.Problems and other objects; pass only one of the two")
        return cls(batches, ())

    @property
    def count(self) -> int:
        """n."""
        return sum(batch.count for batch in self.batches) + len(self.objects)

    @property
    def described(self) -> dict[str, Any]:
        """Kind and sizes, ``None`` where they differ."""
        kinds = sorted({batch.kind for batch in self.batches})
        sizes = {(batch.rows, batch.columns) for batch in self.batches}
        rows, columns = sizes.pop() if len(sizes) == 1 else (None, None)
        return {"kind": " and ".join(kinds) or OBJECTS, "rows": rows, "columns": columns}


@dataclass(frozen=True)
class Counter:
    """A solver with what it is asked for."""

    solver: Any
    gap: float
    relative_to: RelativeTo | None
    limit: int

    def count(self, drawn: Drawn, *, keep: bool = False, progress: bool = True) -> Counts:
        """Count on each problem; solutions are kept of one batch alone.

        Raises:
            TypeError, ValueError: a solver that does not fit, or what it returned.
        """
        if keep and len(drawn.batches) != 1:
            raise TypeError(
                "keep_solutions needs one batch sf.learned.Problems; of other problems only counts are kept"
            )
        with counted_line(progress, "held-out problems", drawn.count) as update:
            if not drawn.batches:
                return Counts(self._each(drawn.objects, update), self.limit)
            first = 0
            parts: list[Counts] = []
            possible = False
            for batch in drawn.batches:
                follow = solvers.follower(self.solver, batch)
                for block in _blocks(batch, solvers.kept(self.solver, self.limit)):
                    target = Target(block, self.gap, self.relative_to, first)
                    possible |= target.possible
                    before = {name: value.clone() for name, value in block.data().items()}
                    parts.append(self._block(follow(block, self.limit, self._tolerance), block, target, keep))
                    _require_unchanged(block, before)
                    first += block.count
                    update(first)
        if not possible and first:
            raise ValueError(
                f"gap is {self.gap:g}, which float64 cannot tell of any of these problems, not even at their reference "
                "minimisers: pass a larger one"
            )
        counts = torch.cat([part.counts for part in parts])
        ends = {part.limit for part in parts if bool((part.counts == UNSOLVED).any())}
        own = ends.pop() if len(ends) == 1 and solvers.has_length(self.solver) else self.limit
        limit = self.limit if bool((counts > own).any()) else own  # a length that depends on the problems is no limit
        if not keep:
            return Counts(counts, limit)
        arrays = [part.arrays or {} for part in parts]
        joined = {name: torch.cat([each[name] for each in arrays]) for name in arrays[0]}
        return Counts(
            counts, limit, joined, torch.cat([part.solutions for part in parts if part.solutions is not None])
        )

    def _each(self, objects: Sequence[Any], update: Callable[[int], None]) -> Tensor:
        if not callable(self.solver):
            raise TypeError(
                f"solver is {kind_of(self.solver)}; for problems that are no sf.learned.Problems pass a function of one problem "
                "that returns its count"
            )
        counts = []
        for index, problem in enumerate(objects):
            try:
                returned = self.solver(problem)
            except Exception as error:
                error.add_note(f"solver(problem) failed on problem {index}")
                raise
            counts.append(solvers.count_of(returned, index, self.limit))
            update(index + 1)
        return torch.tensor(counts, dtype=torch.int64)

    @property
    def _tolerance(self) -> float:
        """A relative duality gap at which a problem is solved; 0 where there is none."""
        return 0.5 * self.gap if self.relative_to == "optimum" else 0.0

    def _block(self, iterates: Iterator[Tensor], block: Problems, target: Target, keep: bool) -> Counts:
        counts = torch.full((block.count,), UNSOLVED, dtype=torch.int64)
        solutions = torch.zeros(block.count, block.columns, dtype=torch.float64)
        shown, t = True, 0
        for t, x in enumerate(islice(iterates, self.limit + 1)):
            shown = x.ndim == 2
            reached = (target.reached(x) if shown else target.reached_value(x)).cpu() & (counts == UNSOLVED)
            counts[reached] = t
            if shown:
                solutions[reached] = x.detach().double().cpu()[reached]
            if bool((counts != UNSOLVED).all()):
                break
        if not keep:
            return Counts(counts, t)
        if not shown:
            solutions = self._again(block, counts)
        return Counts(counts, t, block.arrays(), solutions)

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


def _require_unchanged(block: Problems, before: Mapping[str, Tensor]) -> None:
    """``ValueError`` where the solver wrote into the problems, by which its own iterates are measured."""
    changed = [name for name, value in block.data().items() if not torch.equal(value, before[name])]
    if changed:
        raise ValueError(f"solver has changed the problems' {', '.join(changed)} in place; let it work on a copy")


def _blocks(problems: Problems, iterates: int) -> Iterator[Problems]:
    """Parts of the batch, of which so many iterates are in memory; all of it where it is small, so that what was measured of it
    serves the next solver."""
    entry = problems.M.element_size()
    size = max(1, BYTES // (entry * problems.columns * (4 * problems.rows + 16 + iterates)))
    if size >= problems.count:
        yield problems
        return
    for first in range(0, problems.count, size):
        yield problems.select(slice(first, first + size))
