"""What the command line puts beside a holdout certificate for its report: nothing that is claimed or checked."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from surefoot_check.holdout.record import LIMIT

from .._core.io import RunDirectoryError, read_json, write_json

CONTEXT = "context.json"


@dataclass(frozen=True)
class Others:
    """The solver on problems of another distribution.

    Attributes:
        name: what they are.
        counts: iterations of each, -1 where it was not solved within the limit.
        p_value: of the shift test.
    """

    name: str
    counts: tuple[int, ...]
    p_value: float


@dataclass(frozen=True)
class Context:
    """Where a certificate comes from, and what stands beside it.

    Attributes:
        data: the held-out problems.
        bound: iterations that a theorem guarantees for every one of them; ``None`` where there is no such theorem.
        theorem: its name; empty without a bound.
        others: the problems that the solver was tried on besides.
    """

    data: str = ""
    bound: int | None = None
    theorem: str = ""
    others: Others | None = None

    def write(self, directory: Path) -> None:
        """Write ``context.json``."""
        write_json(directory / CONTEXT, asdict(self))

    @classmethod
    def read(cls, directory: Path) -> Context:
        """Read it, where there is one.

        Raises:
            RunDirectoryError: it is damaged.
        """
        file = directory / CONTEXT
        if not file.exists():
            return cls()
        try:
            return _typed(read_json(file))
        except (KeyError, TypeError, ValueError) as error:
            raise RunDirectoryError(
                f"{file} is damaged ({error}); remove it, and the report is written without it"
            ) from error


def _typed(record: Any) -> Context:
    others = record["others"]
    context = Context(
        data=str(record["data"]),
        bound=None if record["bound"] is None else int(record["bound"]),
        theorem=str(record["theorem"]),
        others=None
        if others is None
        else Others(str(others["name"]), tuple(int(k) for k in others["counts"]), float(others["p_value"])),
    )
    if context.bound is not None and context.bound < 0:
        raise ValueError(f"bound is {context.bound}")
    if context.others is not None:
        if not context.others.counts or not -1 <= min(context.others.counts) <= max(context.others.counts) <= LIMIT:
            raise ValueError(f"counts must be there, in -1 .. {LIMIT}")
        if not 0.0 <= context.others.p_value <= 1.0:
            raise ValueError(f"p_value is {context.others.p_value}")
    return context
