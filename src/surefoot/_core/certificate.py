"""The certificate: a theorem evaluated on concrete arrays before training."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from surefoot_check.arrays import digest, parse_hex
from surefoot_check.run_files import FORMAT, FORMATS
from surefoot_check.statement import SLACK, Inequality, Segment
from surefoot_check.text import chance, counted

from . import claims, html
from .claims import Claim, Kind
from .late import late
from .plans import PLANS
from .rounding import of_sides, plain
from .schedule import gap_at, iterations_to
from .statistics import Cut
from .validate import number, positive

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class CertificateStatus(StrEnum):
    """Whether the hypotheses hold for these arrays."""

    HOLDS = "holds"
    FAILS = "fails"
    REFUTED = "refuted"

    @property
    def text(self) -> str:
        """What it means and what to do."""
        return {
            "holds": "every hypothesis holds for these arrays; the bound is guaranteed",
            "fails": "a hypothesis does not hold; training may run, but nothing is guaranteed (see the suggestion)",
            "refuted": "the theorem as stated is false for these shapes (docs/errata.md); use its corrected form",
        }[self.value]


@dataclass(frozen=True)
class Condition:
    """One hypothesis with both sides; ``margin`` is log10 of their ratio (positive: holds), ``None`` beside a zero.

    Example:
        >>> W = 0.1 * torch.eye(2, dtype=torch.float64)
        >>> net, loss = sf.nn.TwoLayerLinear(W, W), sf.SquaredLoss(W, W)
        >>> certificate = sf.certify(net, loss, "two-layer/corrected")
        >>> [condition.name for condition in certificate.conditions if not condition.holds]
        ['imbalance and margin: alpha1 > 0', 'first step: eta0 > 0']
    """

    name: str
    left: float
    relation: str
    right: float
    holds: bool
    margin: float | None

    @classmethod
    def of(cls, inequality: Inequality) -> Condition:
        """From a theorem's inequality in floats."""
        return cls(
            inequality.name,
            float(inequality.left),
            inequality.relation,
            float(inequality.right),
            inequality.certain,
            inequality.margin,
        )

    @property
    def sides(self) -> str:
        """Both sides with the relation that is asked of them."""
        digits, *towards = of_sides(self.left, self.relation, self.right, self.holds, 6)
        return f"{plain(self.left, digits, towards[0])} {self.relation} {plain(self.right, digits, towards[1])}"

    def __str__(self) -> str:
        return f"{'holds' if self.holds else 'FAILS'}: {self.name}  [{self.sides}]"


@dataclass(frozen=True, repr=False)
class Certificate:
    """A theorem's verdict on one network, loss and initial point.

    Attributes:
        system, theorem, version: which statement.
        status: holds / fails / refuted.
        conditions: the hypotheses with both sides.
        quantities: the theorem's quantities by their symbols in ASCII; base quantities carry a slack of 1e-9.
        schedule: the gap that the theorem claims, as segments of constant rate; empty where a hypothesis fails.
        optimal_value: the value that gaps are measured from.
        rule: the step rule the theorem speaks of by default.
        suggestion: what would make it hold; empty where it does.
        problem: kind of the loss, and the sizes.
        arrays: sha256 of each array it speaks of.
        claims: what the checker can prove of it where it holds.
        advice: of a certificate that holds with a count of no practical use: why the count is so large, as measured, and what
            lowers it. Of ``certify``; a run keeps it in config.json.
        cut: what the reduction of the data to its numerical rank dropped; the certificate speaks of what is left. Of ``certify``;
            a run keeps it in config.json.
        why: why it is of this theorem, where none was named and that depends on the problem. Of ``certify``.
        format: of its file.

    Step size, rate, bound and iteration count are guarantees where ``holds``. A refuted theorem keeps its claims, so that an
    audit can show where a run breaks them; they guarantee nothing.

    Example:
        >>> loss = sf.SquaredLoss(np.eye(2), np.eye(2))
        >>> net = sf.nn.TwoLayerLinear.gaussian(2, 2, width=400, std=0.05, seed=0)
        >>> certificate = sf.certify(net, loss)
        >>> certificate.holds, certificate.bound(100) < 1e-3 * certificate.initial_gap
        (True, True)
    """

    system: str
    theorem: str
    version: int
    status: CertificateStatus
    conditions: tuple[Condition, ...]
    quantities: Mapping[str, float]
    schedule: tuple[Segment, ...]
    optimal_value: float
    rule: str
    suggestion: str = ""
    problem: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, str] = field(default_factory=dict)
    claims: tuple[str, ...] = field(default=(), compare=False)
    advice: str = field(default="", compare=False)
    cut: Cut | None = field(default=None, compare=False)
    why: str = field(default="", compare=False)
    format: str = FORMAT

    @property
    def holds(self) -> bool:
        """Whether the guarantee stands."""
        return self.status is CertificateStatus.HOLDS

    @property
    def initial_gap(self) -> float:
        """L(0), rounded up; ``inf`` where it has no finite bound."""
        return self.quantities.get("initial_gap", math.inf)

    @property
    def step_size(self) -> float | None:
        """The first guaranteed (floor) step; ``None`` where a hypothesis fails."""
        return self.schedule[0].step if self.schedule else None

    @property
    def rate(self) -> float | None:
        """Guaranteed factor of the gap in every step, that of the worst, rounded up; ``None`` where a hypothesis fails."""
        if not self.schedule:
            return None
        return min(1.0, math.nextafter(1.0 - min(segment.decrease for segment in self.schedule), math.inf))

    @property
    def radius(self) -> float | None:
        """How far from these weights the point lies at most that descent reaches; ``None`` where the theorem does not say so, or
        a hypothesis fails."""
        locates = self.theorem in PLANS and PLANS[self.theorem].theorem.locates
        return self.quantities["radius"] if self.holds and locates else None

    @property
    def probability(self) -> float:
        """With which the bound holds, for all iterations at once: below 1 over the draws of a theorem about random steps. 1.0 for
        all other theorems."""
        theorem = PLANS[self.theorem].theorem if self.theorem in PLANS else None
        return 1.0 if theorem is None or not self.schedule else float(theorem.probability(self.quantities))

    @property
    def claim(self) -> Claim:
        """What it guarantees about the gap: a rate, a sublinear bound, levels, that it never grows, or nothing."""
        return claims.claim(self.theorem, self.holds, self.schedule, self.quantities)

    @property
    def practical(self) -> bool | None:
        """Whether at most 10⁶ iterations to a relative gap of 10⁻⁶ are guaranteed; ``None`` where no fall to 0 is."""
        if not self.claim.converges or not self.step_size:
            return None
        return self.iterations_to(claims.TARGET) <= claims.PRACTICAL

    def bound(self, t: int) -> float:
        """Guaranteed upper bound on the gap after ``t`` iterations; ``inf`` where a hypothesis fails. Of a theorem about
        the gradient flow, after ``t`` units of time; ``iterations_to`` counts those then.

        Raises:
            TypeError: no number.
            ValueError: a negative ``t``, or NaN.
        """
        if not number("t", t, "a number of iterations") >= 0:
            raise ValueError(f"t is {t}; iterations are counted from 0")
        if not self.schedule:
            return math.inf
        segment = self.segment(t)
        return max(
            gap_at(segment, t), min(segment.level, sys.float_info.min)
        )  # what underflows is not 0, and lies below that

    def segment(self, t: int) -> Segment:
        """The segment of the schedule, which must not be empty, that iteration ``t`` ≥ 0 belongs to."""
        return self.schedule[bisect_right(self.schedule, t, key=lambda segment: segment.start) - 1]

    def iterations_to(self, relative_gap: float) -> float:
        """Iterations after which gap ≤ relative_gap × initial gap is guaranteed; ``inf`` if it never is.

        Raises:
            TypeError, ValueError: a relative_gap that is not a positive number.
        """
        target = positive("relative_gap", relative_gap)
        return iterations_to(self.schedule, target) if self.schedule else math.inf

    def to_json(self) -> str:
        """The certificate file: sorted keys and hexadecimal floats. A quantity without a finite bound is left out; a side of a
        condition that fails is "inf", "-inf" or "nan" then, as ``float.hex`` writes it."""
        record: dict[str, Any] = {
            "format": self.format,
            "system": self.system,
            "theorem": self.theorem,
            "theorem_version": self.version,
            "status": self.status.value,
            "problem": dict(self.problem),
            "arrays": dict(self.arrays),
            "quantities": {k: v.hex() for k, v in self.quantities.items() if math.isfinite(v)},
            "conditions": [
                {
                    "name": c.name,
                    "left": c.left.hex(),
                    "relation": c.relation,
                    "right": c.right.hex(),
                    "holds": c.holds,
                    "margin": None if c.margin is None else c.margin.hex(),
                }
                for c in self.conditions
            ],
            "optimal_value": self.optimal_value.hex(),
            "rule": self.rule,
            "suggestion": self.suggestion,
            "claims": list(self.claims) if self.holds else [],
        }
        if self.schedule and self.rate is not None:
            record["conclusion"] = {
                "initial_gap": self.initial_gap.hex(),
                "step_size": self.schedule[0].step.hex(),
                "rate": self.rate.hex(),
                "schedule": [
                    [
                        s.start,
                        s.count,
                        s.level.hex(),
                        s.decrease.hex(),
                        s.main_step.hex(),
                        s.other_step.hex(),
                    ]
                    for s in self.schedule
                ],
            }
        return json.dumps(record, sort_keys=True, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """Read ``to_json``'s text.

        Raises:
            ValueError: not JSON, another format version, or a missing or malformed field.
        """
        try:
            record = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"the certificate is not valid JSON ({error}); it may have been cut off") from error
        label = record.get("format") if isinstance(record, dict) else None
        if label not in FORMATS:
            raise ValueError(
                f"the certificate has format {label!r}; this version reads {', '.join(FORMATS)}: use the version that wrote it"
            )
        try:
            conclusion = record.get("conclusion", {"schedule": []})
            holds = record["status"] == CertificateStatus.HOLDS
            if holds and not conclusion["schedule"]:
                raise ValueError("it holds, and conclusion has no schedule")
            side = parse_hex if holds else _side
            return cls(
                system=record["system"],
                theorem=record["theorem"],
                version=record["theorem_version"],
                status=CertificateStatus(record["status"]),
                conditions=tuple(
                    Condition(
                        c["name"],
                        side(c["left"], "left"),
                        c["relation"],
                        side(c["right"], "right"),
                        c["holds"],
                        None if c["margin"] is None else parse_hex(c["margin"], "margin"),
                    )
                    for c in record["conditions"]
                ),
                quantities={k: parse_hex(v, k) for k, v in record["quantities"].items()},
                schedule=tuple(
                    Segment(start, count, *(parse_hex(x, "schedule") for x in rest))
                    for start, count, *rest in conclusion["schedule"]
                ),
                optimal_value=parse_hex(record["optimal_value"], "optimal_value"),
                rule=record["rule"],
                suggestion=record["suggestion"],
                problem=record["problem"],
                arrays=record["arrays"],
                claims=tuple(record.get("claims", ())),
                format=label,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"the certificate is malformed ({error!r}); restore the file or certify again") from error

    @property
    def digest(self) -> str:
        """sha256 of the certificate file; checkpoints carry it."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def __repr__(self) -> str:
        """The verdict, in a line."""
        failed = [condition.name for condition in self.conditions if not condition.holds]
        said = self._promise() if self.holds else "; ".join(failed) or self.status.text
        return f"<Certificate of {self.theorem}: {self.status.value}: {said}>"

    def __str__(self) -> str:
        before, after = self._said()
        return "\n".join([self._head, *(f"  {line}" for line in (*before, *map(str, self.conditions), *after))])

    def _repr_html_(self) -> str:
        """The same as a table, for notebooks."""
        before, after = self._said()
        rows = [("holds" if c.holds else "FAILS", c.name, c.sides) for c in self.conditions]
        heads = ("", "hypothesis", "left and right side")
        return html.table(self._head, self.holds, heads, rows, [*before, *after])

    def plot(self, path: str | Path | None = None) -> Figure:
        """The margins of the hypotheses as a chart.

        Args:
            path: write it there, too; its ending says the format: ``.png``, ``.svg`` or ``.pdf``.

        Raises:
            ValueError: a path of another ending.
            OSError: it cannot be written.
        """
        return late("surefoot._report.figures", "of_certificate")(self, path)

    @property
    def _head(self) -> str:
        return f"{self.theorem} {self.status.value}: {self.status.text}"

    def _said(self) -> tuple[list[str], list[str]]:
        """What is said before the conditions, and after them."""
        before = [f"this theorem, as {self.why}"] if self.why else []
        after = []
        if self.holds:
            after.append(self._promise())
        if self.practical is False:
            after.append(f"{claims.VACUOUS}: {self.advice}" if self.advice else claims.VACUOUS)
        if self.cut is not None:
            after.append(f"reduced: {self.cut.text}")
        if self.suggestion:
            after.append(f"suggestion: {self.suggestion}")
        return before, after

    def _promise(self) -> str:
        """The guarantee in a line, rounded to the side on which it holds."""
        sure = self.probability == 1.0
        return ("" if sure else f"with probability {chance(self.probability)} over the batches: ") + self._promised()

    def _promised(self) -> str:
        count = self.iterations_to(1e-10)
        within = "not down to a relative gap of 1e-10"
        if math.isfinite(count):
            of_time = self.claim.kind is Kind.FLOW
            needed = counted(count, "unit of time", "units of time") if of_time else counted(count, "iteration")
            within = f"relative gap 1e-10 within {needed}"
        last = self.schedule[-1]
        step = plain(self.schedule[0].step, towards="down")
        match self.claim.kind:
            case Kind.RATE:
                near = (
                    "" if self.radius is None else f", to a point within {plain(self.radius, 3, 'up')} of these weights"
                )
                which = "constant step" if self.rule == "constant" else "first step"
                return f"{which} {step}, rate {self.claim.factor()}, {within}{near}"
            case Kind.FLOW:
                return f"along the gradient flow, {within}"
            case Kind.SUBLINEAR:
                return f"gap at most {plain(self.claim.constant, towards='up')}/t after t iterations, {within}"
            case Kind.LEVELS:
                return (
                    f"guaranteed gap {plain(last.level, towards='up')} after {counted(last.start, 'iteration')}, "
                    f"{plain(self.initial_gap, towards='up')} at the start"
                    + (f", {within}" if math.isfinite(count) else "")
                )
            case _:
                return f"first step {step}, {self.claim.kind.text}"


def _side(text: object, name: str) -> float:
    """A side of a condition that may have no finite bound."""
    return float(text) if text in ("inf", "-inf", "nan") else parse_hex(text, name)


def require_arrays(certificate: Certificate, hashes: Mapping[str, str]) -> None:
    """Raise ``ValueError`` unless ``hashes`` (sha256 by name) are the arrays that the certificate speaks of."""
    differing = sorted(name for name in hashes if certificate.arrays.get(name) != hashes[name])
    if differing:
        raise ValueError(
            f"the certificate speaks of other arrays ({', '.join(differing)} differ); call certify(net, loss) again"
        )


def publish(
    enclosures: Mapping[str, tuple[float, float]], directions: Mapping[str, str], slack: float = SLACK
) -> dict[str, float]:
    """Base quantities as published: the safe end of each rigorous enclosure, moved outwards by a relative slack.

    Args:
        enclosures: (lower end, upper end) of each quantity, at least 0.
        directions: of each, "lower" or "upper": the end that is safe.
        slack: the relative one.

    Example:
        >>> enclosures = {"smoothness": (3.99, 4.0), "strong_convexity": (1.0, 1.01)}
        >>> directions = {"smoothness": "upper", "strong_convexity": "lower"}
        >>> sf.extending.publish(enclosures, directions, slack=0.25)
        {'smoothness': 5.0, 'strong_convexity': 0.75}
    """
    return {
        name: low * (1.0 - slack) if directions[name] == "lower" else high * (1.0 + slack)
        for name, (low, high) in enclosures.items()
    }


def digests(problem: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> dict[str, str]:
    """sha256 of every array that a certificate speaks of, by name."""
    arrays = {f"problem/{name}": array for name, array in problem.items()}
    arrays |= {f"initial/{name}": array for name, array in weights.items()}
    return {name: digest(array.cpu().numpy()) for name, array in arrays.items()}
