"""What ``sf.watch`` saw along a training, in memory and beside the run that went on from there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..brief import brief
from ..io import WATCHED, RunDirectoryError, read_json, write_json

FORMAT = "surefoot-watch/1"


@dataclass(frozen=True)
class Seen:
    """One look at the weights.

    Attributes:
        iteration: how often ``step`` had been called.
        loss: of all rows less its least value, in floats; a training objective itself, with its weight decay.
        gap: upper bound of the gap that the theorem speaks of: the squared loss itself, ½‖∇L‖² of a training objective.
        margin: how far from a guarantee, which needs more than 1; 0 where the Jacobian has no full row rank, or the Hessian is
            not positive definite.
        moved: ‖a_l - a_l(0)‖_F/‖a_l(0)‖_F of the features of each hidden layer since the watch began; empty where they are not
            finite.
        holds: whether it was certified.
        seconds: what the look took.
    """

    iteration: int
    loss: float
    gap: float
    margin: float
    moved: tuple[float, ...]
    holds: bool
    seconds: float

    __repr__ = brief


@dataclass(frozen=True)
class History:
    """All looks at one training.

    Attributes:
        theorem: that was evaluated.
        problem: sha256 of the arrays of the problem, by name as in certificates.
        looks: in order.
    """

    theorem: str
    problem: Mapping[str, str]
    looks: Sequence[Seen]

    @property
    def certified(self) -> Seen | None:
        """The first look that was certified."""
        return next((seen for seen in self.looks if seen.holds), None)

    def write(self, directory: Path) -> None:
        """Write ``watch.json``, atomically."""
        looks = [asdict(seen) for seen in self.looks]
        record = {"format": FORMAT, "theorem": self.theorem, "problem": dict(self.problem), "looks": looks}
        write_json(directory / WATCHED, record)

    @classmethod
    def read(cls, directory: Path) -> History | None:
        """What was written there; ``None`` where there is nothing.

        Raises:
            RunDirectoryError: it is damaged, or of another version.
        """
        path = directory / WATCHED
        if not path.exists():
            return None
        record = read_json(path)
        label = record.get("format") if isinstance(record, dict) else None
        if label != FORMAT:
            raise RunDirectoryError(
                f"{path} has format {label!r}; this version reads {FORMAT!r}: use the version that wrote it, or remove the file"
            )
        try:
            looks = [_seen(entry) for entry in record["looks"]]
            return cls(str(record["theorem"]), dict(record["problem"]), looks)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunDirectoryError(f"{path} is damaged ({error!r}); restore it or remove it") from error


def _seen(entry: Mapping[str, Any]) -> Seen:
    loss, gap, margin = (math.inf if entry[name] is None else float(entry[name]) for name in ("loss", "gap", "margin"))
    moved = tuple(float(share) for share in entry["moved"])
    return Seen(int(entry["iteration"]), loss, gap, margin, moved, bool(entry["holds"]), float(entry["seconds"]))
