"""The audit: every inequality of a theorem along a recorded trajectory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from surefoot_check.text import counted

from . import html
from .certificate import Certificate
from .claims import Kind

TOLERANCE = 1e-9
"""Relative slack of an audited inequality between floating-point measurements; rounding reaches about 1e-12."""


@dataclass(frozen=True)
class AuditLine:
    """One inequality left ≤ right checked at every iteration.

    ``worst`` is the largest ratio left/right seen (below 1 is inside; ``None`` if it never applied), ``at`` where;
    ``first_violation`` the first iteration at which it failed; ``unchecked`` the number of steps above rounding noise at which it
    could not be checked, as a measurement is missing.
    """

    name: str
    holds: bool
    worst: float | None
    at: int | None
    first_violation: int | None
    checked: int
    unchecked: int = 0

    @property
    def verdict(self) -> str:
        """``holds``, ``VIOLATED``, or ``not checked``: not at all, or not at every step that needs it."""
        if not self.holds:
            return "VIOLATED"
        return "not checked" if self.unchecked or not self.checked else "holds"

    def __str__(self) -> str:
        seen = f" ({self.seen})" if self.seen else ""
        return f"{self.found}: {self.name}{seen}"

    @property
    def found(self) -> str:
        """The verdict, and where: the first violation, or how many steps are missing."""
        verdict = self.verdict if self.holds else f"{self.verdict} first at iteration {self.first_violation}"
        return verdict + (f" at {counted(self.unchecked, 'step')}" if self.unchecked else "")

    @property
    def seen(self) -> str:
        """How often it was checked, and the worst ratio; empty where it was not."""
        if self.checked == 0:
            return ""
        worst = "" if self.worst is None else f", worst ratio {self.worst:.6g} at iteration {self.at}"
        return f"{counted(self.checked, 'iteration')}{worst}"


@dataclass(frozen=True)
class Audit:
    """All inequalities of a certificate along one trace. ``resolution`` is the gap below which values are rounding noise.

    Example:
        >>> loss = sf.SquaredLoss(np.eye(2), np.eye(2))
        >>> net = sf.nn.TwoLayerLinear.gaussian(2, 2, width=400, std=0.05, seed=0)
        >>> run = sf.descend(net, loss, certificate=sf.certify(net, loss), max_iterations=20)
        >>> audit = run.audit()
        >>> audit.holds, audit.violations
        (True, 0)
    """

    theorem: str
    """Its id."""
    lines: tuple[AuditLine, ...]
    """One for each inequality."""
    resolution: float
    guaranteed: bool = True
    """Whether the certificate holds, and speaks of iterations; otherwise only what holds for every run was checked, and nothing
    was guaranteed."""
    incomplete: str = ""
    """Why no audit of this trace can hold, whatever its rows say: the run failed, or its end is not on record."""
    notes: tuple[str, ...] = ()
    """What explains a violation, and what is none either way: of a bound that holds with some probability, whether this run kept
    it."""

    @property
    def holds(self) -> bool:
        """Whether no inequality was violated, each was checked at every step that needs it, and the run came to a proper end.

        So it is with nothing to check, as in an uncertified run without a step; see ``verdict``.
        """
        return not (self.violations or self.unchecked or self.incomplete)

    @property
    def violations(self) -> int:
        """Number of violated inequalities."""
        return sum(not line.holds for line in self.lines)

    @property
    def unchecked(self) -> int:
        """Number of inequalities that were not checked at every step that needs them."""
        return sum(line.unchecked > 0 for line in self.lines)

    @property
    def verdict(self) -> str:
        """``no violation``, ``violations``, ``not everything was checked``, why the trace is incomplete, or ``nothing could be
        checked``."""
        if self.violations:
            return "violations"
        if self.incomplete:
            return f"does not hold, {self.incomplete}"
        if self.unchecked:
            return "not everything was checked"
        return "no violation" if any(line.checked for line in self.lines) else "nothing could be checked"

    @property
    def _head(self) -> str:
        head = f"audit against {self.theorem}: {self.verdict}"
        if self.violations and self.incomplete:
            head += f", and {self.incomplete}"
        return head + (
            "" if self.guaranteed else " of what holds for every run; the certificate guarantees nothing of it"
        )

    def __repr__(self) -> str:
        """The verdict, in a line."""
        return (
            f"<Audit against {self.theorem}: {self.verdict}, {counted(len(self.lines), 'inequality', 'inequalities')}>"
        )

    def __str__(self) -> str:
        return "\n".join(
            [self._head, *(f"  {line}" for line in self.lines), *(f"  note: {note}" for note in self.notes)]
        )

    def _repr_html_(self) -> str:
        """The same as a table, for notebooks."""
        rows = [(line.found, line.name, line.seen) for line in self.lines]
        notes = [f"note: {note}" for note in self.notes]
        return html.table(self._head, self.holds, ("", "inequality", "checked at"), rows, notes)


def line(name: str, rows: Iterable[tuple[int, float, float]], needed: Set[int] = frozenset()) -> AuditLine:
    """An audit line from (iteration, left, right) for left ≤ right, which the iterations ``needed`` need.

    A violation is a left side above the right one by more than 1e-9 of it, a NaN, or a right side that bounds nothing.
    """
    worst: float | None = None
    worst_iteration: int | None = None
    first: int | None = None
    seen: list[int] = []
    for iteration, left, right in rows:
        seen.append(iteration)
        inside = left <= right * (1.0 + math.copysign(TOLERANCE, right)) and right < math.inf
        if not inside and first is None:
            first = iteration
        ratio = left / right if right > 0.0 else (0.0 if left <= 0.0 else math.inf)
        if math.isnan(left) or not right < math.inf:
            worst, worst_iteration = math.inf, iteration
        elif left > 0.0 and (worst is None or ratio > worst):
            worst, worst_iteration = ratio, iteration
    return AuditLine(name, first is None, worst, worst_iteration, first, len(seen), len(needed - set(seen)))


def merged(lines: Iterable[AuditLine]) -> tuple[AuditLine, ...]:
    """Audit lines of the same inequality, from different phases of a run, as one."""
    by_name: dict[str, AuditLine] = {}
    for part in lines:
        before = by_name.get(part.name)
        if before is None:
            by_name[part.name] = part
            continue
        larger = part if (part.worst is not None and part.worst > (before.worst or 0.0)) else before
        violations = [v for v in (before.first_violation, part.first_violation) if v is not None]
        by_name[part.name] = AuditLine(
            part.name,
            before.holds and part.holds,
            larger.worst,
            larger.at,
            min(violations, default=None),
            before.checked + part.checked,
            before.unchecked + part.unchecked,
        )
    return tuple(by_name.values())


def noise(gap: float, resolution: float) -> float:
    """What rounding can add to a gap: it moves sqrt(gap) by up to sqrt(resolution).

    Args:
        gap: loss minus optimal value, at least 0.
        resolution: the gap that rounding alone can cause at the optimum.

    Example:
        >>> sf.extending.noise(gap=1e-4, resolution=1e-16) > 1e-10  # far above the resolution
        True
    """
    return 2.0 * math.sqrt(gap) * math.sqrt(resolution) + resolution


Rows = list[dict[str, float]]
Lines = Iterator[tuple[int, float, float]]
Check = tuple[str, Lines]
"""What an audit line says, and its (iteration, left, right): of an iterate, or of the step from it."""


GRADIENT_STEP = "each iterate is a gradient step from the one before (relative defect)"
NO_GRADIENT_STEPS = (
    "some updates are no gradient steps of the recorded size, as those of Adam, of momentum or of mini-batches are none, and no "
    "theorem speaks of them; for networks of torch and implicit ones sf.watch(net, loss) certifies states, however reached"
)


class Led(NamedTuple):
    """A ``Check`` of steps whose iterations are those that the steps led to."""

    name: str
    rows: Lines


def audited(certificate: Certificate, trace: Rows, checks: Iterable[Check], resolution: float) -> Audit:
    """The audit of a trace by the checks of a theorem, and by those that do not depend on it: the bound that is claimed, and
    what a recorder of a loop of one's own noted of its steps.

    Each check has something to say of every step above rounding noise: where it says less, a measurement is missing.

    Args:
        certificate: what the trace is held against.
        trace: rows by iteration, each with "iteration", "gap", what the system measured and, where a step was taken, "step".
        checks: pairs of a name and its (iteration, left, right), for left ≤ right, such as ``never_increases`` makes.
        resolution: the gap below which values are rounding noise.

    Example:
        >>> X = torch.eye(2, dtype=torch.float64)
        >>> loss = sf.SquaredLoss(X, X)
        >>> cert = sf.certify(sf.nn.TwoLayerLinear.certifiable(loss), loss)
        >>> trace = [{"iteration": 0, "gap": cert.bound(0), "step": 0.1}]
        >>> trace += [{"iteration": 1, "gap": 0.0}]
        >>> checks = [sf.extending.never_increases(trace, 0.0)]
        >>> sf.extending.audited(cert, trace, checks, resolution=0.0)
        <Audit against two-layer/...: no violation, 2 inequalities>
    """
    steps = [a for a, _ in pairwise(trace) if "step" in a]
    needed = {int(a["iteration"]) for a in steps if math.isinf(resolution) or a["gap"] > resolution}
    led = {t + 1 for t in needed}
    checks = [*checks, *_common_checks(certificate, trace, resolution)]
    lines = tuple(line(*check, led if isinstance(check, Led) else needed) for check in checks)
    foreign = any(found.name == GRADIENT_STEP and not found.holds for found in lines)
    notes = (NO_GRADIENT_STEPS,) if foreign else ()
    return Audit(certificate.theorem, lines, resolution, certificate.claim.of_iterations, notes=notes)


def each(trace: Rows, name: str, sides: Callable[[float], tuple[float, float]]) -> Lines:
    """A check of one measurement at every iterate that has it: of one that diverged only the gap is recorded.

    Args:
        trace: rows by iteration, each with "iteration".
        name: of the measurement.
        sides: from it left and right, for left ≤ right.

    Returns:
        (iteration, left, right), one after the other; with a name before it this is a ``Check``.

    Example:
        >>> trace = [{"iteration": 0, "norm": 0.5}, {"iteration": 1, "norm": 1.5}]
        >>> sides = sf.extending.each(trace, "norm", lambda norm: (norm, 1.0))
        >>> check = "weights stay in the unit ball", sides
        >>> list(sides)  # of each iteration both
        [(0, 0.5, 1.0), (1, 1.5, 1.0)]
    """
    return ((int(r["iteration"]), *sides(r[name])) for r in trace if name in r)


def _common_checks(certificate: Certificate, trace: Rows, resolution: float) -> Iterator[Check]:
    """A refuted theorem keeps its bound, so that an audit shows where a run breaks it; that of a flow is none of iterations, and
    one of some probability none of a single run."""
    if certificate.schedule and certificate.claim.kind is not Kind.FLOW and certificate.probability == 1.0:
        yield under_bound(trace, certificate.bound, resolution)
    if any("defect" in r for r in trace):
        rows = each(trace, "defect", lambda defect: (defect, 1e-10))
        yield Led(GRADIENT_STEP, rows)


def never_increases(trace: Rows, resolution: float, what: str = "gap") -> Check:
    """The check that no step makes the gap larger, which ``what`` calls by name.

    Args:
        trace: rows by iteration, each with "iteration", "gap" and, where a step was taken from it, "step".
        resolution: the gap below which values are rounding noise; a gap may rise by what rounding can add to it (``noise``).
        what: the name.

    Example:
        >>> trace = [{"iteration": 0, "gap": 1.0, "step": 0.1}, {"iteration": 1, "gap": 1.5}]
        >>> what, sides = sf.extending.never_increases(trace, resolution=0.0)
        >>> what, list(sides)  # of each step the gap after and before
        ('the gap never increases', [(0, 1.5, 1.0)])
    """
    steps = ((a, b) for a, b in pairwise(trace) if "step" in a)
    rows = ((int(a["iteration"]), b["gap"], a["gap"] + noise(a["gap"], resolution)) for a, b in steps)
    return f"the {what} never increases", rows


def under_bound(trace: Rows, bound: Callable[[int], float], resolution: float) -> Check:
    """The check that every gap lies under a guaranteed bound."""
    rows = ((int(r["iteration"]), r["gap"], bound(int(r["iteration"])) + noise(r["gap"], resolution)) for r in trace)
    return "the gap stays under the guaranteed bound", rows


def constant_step(trace: Rows, eta: float) -> Check:
    """The check that every step is η.

    Args:
        trace: rows by iteration, each with "iteration" and, where a step was taken from it, "step".
        eta: η, which steps must equal exactly.

    Example:
        >>> trace = [{"iteration": 0, "step": 0.1}, {"iteration": 1, "step": 0.2}]
        >>> what, sides = sf.extending.constant_step(trace, 0.1)
        >>> [(iteration, left <= right) for iteration, left, right in sides]
        [(0, True), (1, False)]
    """
    return "every step is that of the certificate (difference)", each(
        trace, "step", lambda step: (abs(step - eta), 0.0)
    )
