"""What a check says: outcomes, lines with both sides, and the report of a run directory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import Any

from .rigor.bounds import FAST
from .statement import Inequality
from .text import visible


class Outcome(StrEnum):
    """The three outcomes; ``exit_code`` is that of the command line."""

    ACCEPT = "accept"
    REJECT = "reject"
    UNDECIDED = "undecided"

    @property
    def exit_code(self) -> int:
        """0 accept, 1 reject, 3 undecided."""
        return {"accept": 0, "reject": 1, "undecided": 3}[self.value]


@dataclass(frozen=True)
class Line:
    """One check: what was claimed, both sides, and the verdict on it; texts are escaped, as they may hold names from files."""

    claim: str
    name: str
    outcome: Outcome
    detail: str = ""

    def __post_init__(self) -> None:
        for text in ("name", "detail"):
            object.__setattr__(self, text, visible(getattr(self, text)))

    def __str__(self) -> str:
        mark = {"accept": "ok", "reject": "REJECT", "undecided": "UNDECIDED"}[self.outcome.value]
        return f"{mark:>9}  {self.claim}  {self.name}" + (f"  [{self.detail}]" if self.detail else "")


@dataclass
class Report:
    """All checks of one run directory. ``notes`` say what an accepted run leaves open. Every text is printable as it is."""

    directory: str
    theorem: str = ""
    level: str = FAST.name
    modules: tuple[str, ...] = ()
    """Of other people's systems, named by whoever asked for the check; their code was run."""
    itemised: bool = False
    """Whether each line of L2 says something else, so that accepted ones are shown one by one; those of checkpoints are not."""
    lines: list[Line] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def outcome(self) -> Outcome:
        """Reject if any check rejects, undecided if any is undecided or none was made, else accept."""
        outcomes = {line.outcome for line in self.lines}
        if Outcome.REJECT in outcomes:
            return Outcome.REJECT
        return Outcome.ACCEPT if outcomes == {Outcome.ACCEPT} else Outcome.UNDECIDED

    def add(self, claim: str, name: str, outcome: Outcome, detail: str = "") -> None:
        """Record one check."""
        self.lines.append(Line(claim, name, outcome, detail))

    def decide(self, inequality: Inequality, claim: str) -> None:
        """Record the decision on an inequality."""
        self.lines.append(decision(inequality, claim))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for --json."""
        return {
            "directory": self.directory,
            "theorem": self.theorem,
            "level": self.level,
            "modules": list(self.modules),
            "outcome": self.outcome.value,
            "notes": list(self.notes),
            "checks": [
                {"claim": x.claim, "name": x.name, "outcome": x.outcome.value, "detail": x.detail} for x in self.lines
            ],
        }


def decision(inequality: Inequality, claim: str) -> Line:
    """Accept what is certain, reject what is certainly false, leave the rest undecided."""
    if inequality.certain:
        outcome = Outcome.ACCEPT
    elif inequality.opposite.certain:
        outcome = Outcome.REJECT
    else:
        outcome = Outcome.UNDECIDED
    sides = f"{digits(inequality.left)} {inequality.relation} {digits(inequality.right)}"
    margin = inequality.margin
    return Line(claim, inequality.name, outcome, sides + ("" if margin is None else f", margin 10^{margin:.2f}"))


def digits(x: Any) -> str:
    """A number with nine digits."""
    return f"{float(x):.9g}"


def lines(report: Report, verbose: bool = False) -> Iterator[str]:
    """The report as text. Accepted checks of checkpoints and of later certificates are one line each, unless ``verbose``."""
    what = f" ({report.theorem}, level {report.level})" if report.theorem else ""
    code = f", with the code of {', '.join(report.modules)}, which you named" if report.modules else ""
    yield f"surefoot-check: {report.directory}{what}{code}"
    for claim, group in groupby(report.lines, key=lambda line: line.claim):
        members = list(group)
        accepted = sum(line.outcome is Outcome.ACCEPT for line in members)
        short = claim not in ("L1", "L3") and accepted > 1 and not (verbose or report.itemised)
        if short:
            what = "stored weights lie under the guaranteed bound" if claim == "L2" else "checks"
            yield str(Line(claim, f"{accepted} {what}", Outcome.ACCEPT))
        yield from (str(line) for line in members if not (short and line.outcome is Outcome.ACCEPT))
    if report.outcome is Outcome.ACCEPT:
        yield from (f"     note  {note}" for note in report.notes)
    yield f"outcome: {report.outcome.value}"
