"""What the commands print for people, and how values become JSON for programs."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from surefoot_check.text import chance, visible

from .._core.advice import in_options
from .._core.audit import Audit
from .._core.certificate import Certificate, Condition
from .._core.claims import VACUOUS, Kind
from .._core.io import plain
from .._core.registry import system_named
from .._core.rounding import Towards, of_sides
from .._core.rounding import plain as rounded
from .._core.run import Run
from .._report.wording import MANY, TRAIN_ROWS, by_family, in_terminal, safe_side, share, spare
from . import layout

NUMBERS = re.compile(r"\[\n\s*(?:[-+.\deE]+|null)(?:,\n\s*(?:[-+.\deE]+|null))*\n\s*\]")
"""Lists of numbers in JSON that has a line for each."""
PLAIN_WIDTH = 120
"""Columns where standard output is no terminal, unless COLUMNS says otherwise."""


class Screen:
    """Text and tables on standard output; nothing if ``silent``. Texts may hold names from files: they are made harmless here.

    No word and no number is broken at any width of the terminal, and no line ends in blanks.
    """

    def __init__(self, silent: bool = False) -> None:
        from rich.console import Console

        self.console = Console(quiet=silent, highlight=False)
        if not self.console.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
            self.console = Console(quiet=silent, highlight=False, width=PLAIN_WIDTH)
        self.console.on_broken_pipe = _reader_left

    def _print(self, lines: Iterable[layout.Line]) -> None:
        from rich.text import Text

        for line in lines:
            self.console.print(Text.assemble(*line), soft_wrap=True)  # folded already

    def say(self, text: str, style: str = "") -> None:
        """One paragraph."""
        self._print(layout.paragraph(_harmless(text), self.console.width, style))

    def heading(self, title: str, detail: str = "") -> None:
        """A title with what it is about."""
        tokens = [(word, "bold cyan") for word in layout.words(title)]
        tokens += [(word, "") for word in layout.words(f"  {_harmless(detail)}")]
        self._print([[], *layout.filled(tokens, self.console.width, hanging=layout.INDENT)])

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]], numeric: Iterable[int] = ()) -> None:
        """A table; the columns with these indices are aligned to the right. One too wide for the terminal becomes records."""
        cells = [[(_harmless(cell), _STYLES.get(cell, "")) for cell in row] for row in rows]
        rule = "─" if self.console.encoding.startswith("utf") else "-"
        self._print(layout.table(columns, cells, numeric, self.console.width, rule))

    def pairs(self, items: Mapping[str, str]) -> None:
        """Names and values in two columns."""
        shown = {_harmless(name): _harmless(value) for name, value in items.items()}
        self._print(layout.pairs(shown, self.console.width))

    def following(self, detail: str, commands: Mapping[str, str]) -> None:
        """What to do next: commands, each below what it does and on one line, however long, so that it can be copied."""
        title = [("Next", "bold cyan"), (f"  {_harmless(detail)}" if detail else "", "")]
        self._print([[], title])
        for command, purpose in commands.items():
            said = layout.paragraph(f"{layout.INDENT}# {purpose}", self.console.width, "dim", "# ")
            self._print(said)
            self.command(command)

    def command(self, text: str) -> None:
        """A command on one line, however long, so that it can be copied."""
        self._print([[(f"{layout.INDENT}{_harmless(text)}", "")]])

    def _symbolic(self, name: str, system: str) -> str:
        """The name of an inequality in symbols, where the terminal has them."""
        return in_terminal(name, system_named(system).words.symbols, self.console.encoding)

    # -- parts that several commands share ---------------------------------------------------------------------------

    def problem(self, data: str, shown: Mapping[str, str]) -> None:
        """Data, loss and network."""
        self.heading("Problem", data)
        self.pairs(shown)

    def certificate(self, certificate: Certificate, advice: str = "") -> None:
        """Hypotheses with both sides and margins, and what they guarantee; where they fail, ``advice`` if there is any."""
        self.heading("Certificate", f"{certificate.theorem}: {certificate.status.text}")
        if certificate.why:
            self.say(f"  this theorem, as {certificate.why}")
        rows = []
        for c in certificate.conditions:
            left, right = sides(c)
            name, relation = (self._symbolic(said, certificate.system) for said in (c.name, c.relation))
            rows.append(("holds" if c.holds else "FAILS", name, left, relation, right, margin(c)))
        self.table(("", "hypothesis", "left", "", "right", "margin"), rows, numeric=(2, 4, 5))
        if certificate.holds:
            self.pairs(_guaranteed(certificate))
        if certificate.practical is False:
            why = in_options(certificate.advice, system_named(certificate.system).words.advised)
            self.say(f"  {VACUOUS}: {why}" if why else f"  {VACUOUS}", style="yellow")
        if certificate.cut is not None:
            self.say(f"  reduced: {certificate.cut.text}", style="yellow" if certificate.cut.below else "")
        if certificate.suggestion:
            self.say(f"  suggestion: {advice or suggested(certificate)}", style="yellow")

    def quantities(self, certificate: Certificate) -> None:
        """The theorem's quantities; families of one name in a line."""
        single, families = by_family(certificate.quantities)
        self.heading("Quantities", "what is measured is moved, and rounded, to the safe side; six digits are shown")
        towards = safe_side(certificate.theorem)
        shown = {name: number(value, 6, towards(name)) for name, value in single.items()}
        for name, values in families.items():
            total, most = (number(value, 6, towards(f"{name}[1]")) for value in (sum(values), max(values)))
            text = f"sum {total}, largest {most} (each one with --json)"
            shown[f"{name}[0] … {name}[{len(values) - 1}]"] = text
        self.pairs(shown)

    def audit(self, audit: Audit, certified: bool) -> None:
        """Every inequality along the run, its phases taken together."""
        verdict = "VIOLATED" if audit.violations else audit.verdict
        if audit.violations and audit.incomplete:
            verdict += f"; {audit.incomplete}"
        if not certified:
            verdict += " (an uncertified run claims none of this)"
        self.heading("Audit", f"{audit.theorem}: {verdict}")
        rows = [
            (
                line.verdict,
                self._symbolic(line.name, audit.theorem.split("/")[0]),
                count(line.checked),
                number(line.worst),
                "" if line.at is None else count(line.at),
            )
            for line in audit.lines
        ]
        self.table(("", "inequality left ≤ right", "checked", "worst left/right", "at"), rows, numeric=(2, 3, 4))
        for note in audit.notes:
            self.say(f"  {note}")

    def result(self, run: Run, seconds: float) -> None:
        """How a run ended, against its guarantee."""
        self.heading("Result", in_options(": ".join(run.outcome)))
        tolerance = float(run.config["tolerance"])
        items = {"iterations": f"{count(run.iterations)} with {run.rule} ({run.engine} engine) in {seconds:.2f} s"}
        if run.rows:
            items["gap"] = f"{number(run.gaps[0])} → {number(run.gaps[-1])}"
        if run.moved is not None:
            items["weights moved"] = f"by {share(run.moved)} of their norm"
        items["guarantee"] = "none: this run is uncertified"
        if run.certified:
            bound = run.guaranteed_to(run.target) if tolerance > 0.0 else math.inf
            target = number(run.target, towards="up")
            when = f"within {count(bound)} iterations" if bound else "from the start"
            within = f"; the target of this run, a gap of {target}, {when}" if math.isfinite(bound) else ""
            within += f", with probability {chance(run.probability)} over the batches" if run.probability < 1.0 else ""
            since = f"every step from iteration {run.certified_from:,} on" if run.certified_from else "every step"
            items["guarantee"] = f"{since} certified by {run.certificate.theorem}{within}"
            if run.adopted:
                iterations = [count(phase.iteration) for phase in run.adopted]
                listed = (
                    ", ".join(iterations)
                    if len(iterations) <= 8
                    else f"{', '.join(iterations[:4])}, … {iterations[-1]} ({len(iterations)} times)"
                )
                items["certified again"] = f"and followed from iteration {listed} on"
        self.pairs(items)

    def evaluation(self, scores: Mapping[str, float]) -> None:
        """Quality on the held-out rows."""
        if not scores:
            return
        self.heading("Held-out rows", f"{count(scores['test_rows'])}, never seen in training")
        names = {
            "test_accuracy": "accuracy",
            "test_rmse": "root mean square error (unit of the target)",
            "test_r2": "R²",
        }
        items = {}
        for key, label in names.items():
            if key in scores:
                best = scores.get(f"optimum_{key}")
                compared = "" if best is None else f" (the loss's minimiser: {number(best)})"
                items[label] = f"{number(scores[key])}{compared}"
        self.pairs(items)
        self.say(f"  {TRAIN_ROWS}")


def _harmless(text: str) -> str:
    """The text line by line, without what could draw over other lines."""
    return "\n".join(visible(line, len(line)) for line in text.split("\n"))


def _guaranteed(certificate: Certificate) -> dict[str, str]:
    """What a certificate that holds promises."""
    words = system_named(certificate.system).words
    reached = {target: certificate.iterations_to(target) for target in words.targets}
    counts = ", ".join(f"{count(n) if n < math.inf else 'no number'} to {target:g}" for target, n in reached.items())
    claim = certificate.claim
    if claim.kind is Kind.FLOW:
        return {"time": f"{counts} (relative gap), guaranteed along the gradient flow"}
    if claim.kind is Kind.LEVELS:
        return {words.iterations: f"{counts} (relative to {words.initial}), guaranteed"}
    step = number(certificate.step_size, towards="down")
    if words.own_steps is not None:
        items = dict([words.own_steps])
    elif claim.kind is Kind.RATE:
        worst = " at worst" if claim.decrease else ""
        items = {"first step": f"{step} guaranteed; factor of the gap in a step: {claim.factor(8)}{worst}"}
    else:
        items = {"first step": f"{step} guaranteed"}
    if claim.kind is Kind.SUBLINEAR:
        items["bound"] = f"at most {number(claim.constant, towards='up')}/t after t iterations"
    if claim.converges:
        items["iterations"] = f"{counts} (relative gap), guaranteed"
    else:
        items["iterations"] = "no rate: only that the gap never grows"
    if certificate.probability < 1.0:
        items["probability"] = f"{chance(certificate.probability)} over the batches, for all iterations at once"
    if certificate.radius is not None and certificate.theorem in words.points:
        radius = number(certificate.radius, towards="up")
        items["nearby"] = f"{words.points[certificate.theorem]} lies within {radius} of these weights"
    return items


def suggested(certificate: Certificate) -> str:
    """What would make the theorem hold, in terms of options."""
    return in_options(certificate.suggestion, system_named(certificate.system).words.advised)


def _reader_left() -> None:
    raise BrokenPipeError


_STYLES = {
    "holds": "green",
    "accept": "green",
    "FAILS": "bold red",
    "VIOLATED": "bold red",
    "reject": "bold red",
    "undecided": "yellow",
    "not checked": "dim",
}


def number(value: float | None, digits: int = 4, towards: Towards = "nearest") -> str:
    """A number for people; of what is guaranteed, rounded to the safe side."""
    return "none" if value is None else rounded(value, digits, towards)


def count(value: float) -> str:
    """A count for people."""
    if not math.isfinite(value):
        return "∞"
    return f"{math.ceil(value):,}" if value <= MANY else f"more than {MANY:.0e}".replace("e+0", "e")


def sides(condition: Condition) -> tuple[str, str]:
    """Both sides of a hypothesis, rounded such that the relation reads as it is."""
    left, right = condition.left, condition.right
    digits, *towards = of_sides(left, condition.relation, right, condition.holds)
    return number(left, digits, towards[0]), number(right, digits, towards[1])


def margin(condition: Condition) -> str:
    """How far a hypothesis is from failing, rounded down: the ratio of its sides, or beside a zero their difference."""
    if condition.margin is None:
        left = spare(condition)
        return f"{'' if left < 0.0 else '+'}{number(left, 3, 'down')}"
    if condition.margin >= 6.0:
        return f"×10^{math.floor(10.0 * condition.margin) / 10.0:.1f}"
    return f"×{number(10.0**condition.margin, towards='down')}"


def certificate_record(certificate: Certificate) -> dict[str, Any]:
    """A certificate in plain values; what it guarantees only where it holds (a refuted theorem keeps its claims)."""
    holds, counted = certificate.holds, certificate.claim.of_iterations
    targets = system_named(certificate.system).words.targets
    return {
        "system": certificate.system,
        "theorem": certificate.theorem,
        "status": certificate.status.value,
        "holds": holds,
        "conditions": [
            {
                "name": c.name,
                "left": c.left,
                "relation": c.relation,
                "right": c.right,
                "holds": c.holds,
                "margin": c.margin,
            }
            for c in certificate.conditions
        ],
        "quantities": dict(certificate.quantities),
        "step_size": certificate.step_size if counted else None,
        "rate": certificate.rate if counted else None,
        "iterations_to": {f"{target:g}": certificate.iterations_to(target) if counted else None for target in targets},
        "probability": certificate.probability if holds else None,
        "optimal_value": certificate.optimal_value,
        "rule": certificate.rule,
        "claim": {
            "kind": certificate.claim.kind.value,
            "text": certificate.claim.kind.text,
            "constant": certificate.claim.constant,
        },
        "practical": certificate.practical,
        "advice": certificate.advice,
        "reduced": None if certificate.cut is None else certificate.cut.to_dict(),
        "suggestion": certificate.suggestion,
    }


def audit_record(audit: Audit) -> dict[str, Any]:
    """An audit in plain values."""
    return {
        "theorem": audit.theorem,
        "holds": audit.holds,
        "verdict": audit.verdict,
        "incomplete": audit.incomplete,
        "notes": list(audit.notes),
        "lines": [
            {
                "name": line.name,
                "holds": line.holds,
                "worst": line.worst,
                "at": line.at,
                "first_violation": line.first_violation,
                "checked": line.checked,
                "unchecked": line.unchecked,
            }
            for line in audit.lines
        ],
    }


def print_json(record: Any) -> None:
    """Valid JSON on standard output, lists of numbers on one line; a number that is not finite becomes null."""
    text = json.dumps(plain(record), indent=1, allow_nan=False)
    # a text in it has no line break that would look like one of these
    sys.stdout.write(
        NUMBERS.sub(lambda found: " ".join(found[0].split()).replace("[ ", "[").replace(" ]", "]"), text) + "\n"
    )
