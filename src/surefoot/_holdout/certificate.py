"""The certificate: its statement, curve and files, and the test of new problems."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from surefoot_check.arrays import FormatError, digest, read_safetensors
from surefoot_check.holdout.record import FORMAT, PROBLEMS, SOLUTIONS, Point, Record, read_counts
from surefoot_check.holdout.statement import HYPOTHESES
from surefoot_check.run_files import CERTIFICATE, Content

from .._core.charts import save
from .._core.io import RunDirectoryError, refuse_used, run_directory, write_atomic, write_tensors
from .._core.validate import folder
from .bounds import coverage_bound
from .counting import Counter, Drawn
from .plot import draw
from .shift import ShiftTest, shift_test
from .solvers import sha256
from .table import table


class HoldoutCertificate:
    """What ``certify_holdout`` found, or ``load`` read.

    Attributes:
        record: the fields of certificate.json.
        counts: of the held-out problems (n,) int64, -1 where one is not solved within the limit.
    """

    def __init__(
        self, record: Record, counts: Tensor, arrays: Mapping[str, Mapping[str, Tensor]], solver: Any = None
    ) -> None:
        self.record, self.counts, self._arrays, self._solver = record, counts, arrays, solver

    @property
    def holds(self) -> bool:
        """Whether the coverage that was asked for is certified: the count of the certificate's rank is within the limit."""
        return self.record.iterations is not None

    @property
    def iterations(self) -> int | None:
        """k: so many iterations are enough for the share ``coverage`` of the problems; ``None`` where the certificate fails."""
        return self.record.iterations

    @property
    def coverage(self) -> float:
        """The share of the distribution's problems that was asked for."""
        return self.record.coverage

    @property
    def confidence(self) -> float:
        """With which the statement holds, over the draw of the held-out problems."""
        return self.record.confidence

    @property
    def statement(self) -> str:
        """What is certified, in one sentence; where the coverage that was asked for is not, what is at the limit."""
        return self.record.statement

    @property
    def hypotheses(self) -> tuple[str, ...]:
        """What the statement rests on, and counts cannot show."""
        return HYPOTHESES

    @property
    def curve(self) -> tuple[Point, ...]:
        """Lower bounds of the coverage at each count that occurs (at 256 of them where there are more)."""
        return self.record.curve

    @property
    def order_test(self) -> float:
        """p-value of the hypothesis that the order of the held-out problems says nothing about their counts: exact, of the first
        half against the second."""
        return self.record.order_test

    def coverage_at(self, iterations: int) -> float:
        """The Clopper-Pearson lower bound of the coverage of this number of iterations, if it was chosen without the counts.

        Raises:
            ValueError: below 0, or more than the limit, beyond which nothing was counted.
        """
        if not 0 <= iterations <= self.record.limit:
            raise ValueError(
                f"iterations is {iterations}; it must lie in 0 .. {self.record.limit}, the limit of the counts"
            )
        solved = int(((self.counts >= 0) & (self.counts <= iterations)).sum())
        return coverage_bound(solved, self.record.count, self.record.confidence)

    def __repr__(self) -> str:
        return f"HoldoutCertificate({self.record.status}: {self.statement})"

    def table(self) -> str:
        """The statement, what it rests on, and the curve at some counts, as text."""
        return table(self.record)

    def plot(self, path: str | Path) -> None:
        """The share of problems solved by iterations, and not solved, with both lower bounds of the coverage, as a PNG.

        Raises:
            OSError: a failed write.
        """
        save(draw(self.record, self.counts.numpy()), path)

    def shift_test(self, problems: Any, solver: Any = None, *, progress: bool = True) -> ShiftTest:
        """Test whether new problems are exchangeable with the held-out ones, by the counts that the solver needs on them.

        Args:
            problems: as those that were held out; nothing may have been chosen with them.
            solver: that of the certificate, where it was loaded from files; the same one by default.
            progress: whether to show a line on a terminal.

        Raises:
            ValueError: no solver, or one whose sha256 is not that of the certificate; no problems.
            TypeError, ValueError: as in ``certify_holdout``.
        """
        solver = self._solver if solver is None else solver
        if solver is None:
            raise ValueError("solver is None, and the certificate was read from files; pass its solver")
        if solver is not self._solver and sha256(solver) != self.record.solver_sha256:
            raise ValueError("solver is not that of the certificate: the sha256 of its parameters differs")
        relative = {"optimum": "optimum", "start": "start"}.get(self.record.relative_to)
        counter = Counter(solver, self.record.gap, relative, self.record.limit)  # pyright: ignore[reportArgumentType]
        drawn = Drawn.of(problems)
        if not drawn.count:
            raise ValueError("problems is empty; pass at least one")
        counts = counter.count(drawn, progress=progress).counts
        return shift_test(self.counts.numpy(), counts.numpy(), self.record.rank, self.record.iterations)

    def save(self, directory: str | Path) -> None:
        """Write a directory that ``surefoot check`` verifies: certificate.json, counts.safetensors, and where solutions are kept
        problems.safetensors and solutions.safetensors. The certificate comes last, so that a directory with one is complete.

        Raises:
            TypeError: no path.
            RunDirectoryError: it exists, and is not an empty directory.
            OSError: it cannot be written.
        """
        path = folder("directory", directory)
        refuse_used(path)
        with run_directory(path, resume=False):
            for name, tensors in self._arrays.items():
                write_tensors(path / f"{name}.safetensors", tensors)
            text = json.dumps(self.record.to_dict(), sort_keys=True, indent=1) + "\n"
            write_atomic(path / CERTIFICATE, text.encode())

    @classmethod
    def load(cls, directory: str | Path) -> HoldoutCertificate:
        """Read what ``save`` wrote. Nothing of it is proved: that is for ``surefoot check``.

        Raises:
            RunDirectoryError: missing, damaged, or a certificate of another format.
        """
        path = folder("directory", directory)
        try:
            content = Content.read(path / CERTIFICATE).record
            if content.get("format") != FORMAT:
                raise FormatError(f"its format is {content.get('format')!r}, not {FORMAT!r}")
            record = Record.of(content)
            counts = read_counts(path, record)
            arrays: dict[str, Mapping[str, Tensor]] = {"counts": {"counts": torch.from_numpy(counts)}}
            if "L2" in record.claims:
                for name in (PROBLEMS, SOLUTIONS):
                    stored = read_safetensors(path / name)
                    arrays[name.removesuffix(".safetensors")] = {k: torch.from_numpy(v) for k, v in stored.items()}
        except FormatError as error:
            raise RunDirectoryError(f"{path} holds no holdout certificate that can be read ({error})") from error
        if digests(arrays) != record.arrays:
            raise RunDirectoryError(f"{path} is damaged: the arrays are not those of the certificate")
        return cls(record, torch.from_numpy(counts), arrays)


def digests(arrays: Mapping[str, Mapping[str, Tensor]]) -> dict[str, str]:
    """The sha256 of every array by "file/name"."""
    every = ((f"{file}/{name}", value) for file, tensors in arrays.items() for name, value in tensors.items())
    return {name: digest(value.numpy()) for name, value in every}
