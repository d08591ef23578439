"""The report of a directory with a holdout certificate: its curve, and one self-contained page."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np

from surefoot_check.holdout.record import Record
from surefoot_check.holdout.statement import HYPOTHESES, percent, percent_below
from surefoot_check.holdout.verify import ORDER_LEVEL
from surefoot_check.text import counted

from .._report.canvas import rendered
from .._report.checking import checking
from .._report.document import document, foot
from .._report.markup import (
    Cell,
    Label,
    Markup,
    code,
    figure,
    folded,
    keys,
    named,
    numeric,
    paragraph,
    section,
    table,
    text,
    verdict_box,
)
from .._report.wording import count, number
from .._report.write import put
from .certificate import HoldoutCertificate
from .plot import draw
from .report_context import Context
from .table import advice, rank, shown

CLAIMS = {
    "L1": (
        "Rank, statement and curve follow from the recorded counts, by binomial tails in ball arithmetic.",
        "That the solver took so many iterations is recorded, and not proved.",
    ),
    "L2": (
        "Every stored solution has the gap that its problem was counted as solved for, by rigorous bounds.",
        "Not that the solver has it after so many iterations.",
    ),
}


def write(directory: Path) -> Path:
    """Write ``plots/curve.png`` and ``report.html``; the path of the latter.

    Raises:
        RunDirectoryError: files that are missing, damaged or of another version.
        OSError: a file could not be written.
    """
    from .. import __version__

    certificate = HoldoutCertificate.load(directory)
    record, counts = certificate.record, certificate.counts.numpy()
    context = Context.read(directory)
    others = {} if context.others is None else {context.others.name: np.array(context.others.counts)}
    png, svg = rendered(
        "curve",
        lambda: draw(record, counts, others, context.bound),
        "Share of problems solved by iteration",
        record.statement,
    )
    parts = [
        _verdict(record),
        named("Problems", context.data) if context.data else "",
        _key_numbers(record, counts, context),
        _rests_on(record, counts, context),
        _curve(record, counts, context, svg),
        _arrays(record),
        _check(record, directory),
    ]
    said = foot(__version__, "Shares that are claimed are rounded down.")
    title = f"Holdout report: {record.solver}, {record.kind.removesuffix('-batch').replace('-', ' ')}"
    return put(directory, document(title, parts, said), {"curve": png})


def _verdict(record: Record) -> Markup:
    """The statement, with what speaks against relying on it."""
    said = [paragraph(record.statement)]
    if record.order_test < ORDER_LEVEL:
        kind, badge = "bad", "✗ THE ORDER OF THE PROBLEMS MATTERS"
        said.append(
            paragraph(
                f"The counts of the first half of the problems differ from those of the second, p = "
                f"{number(record.order_test, 3)}: they are not exchangeable, and what is said of new ones does not follow. "
                "Shuffle problems that were collected in an order; if they were drawn afresh, something drifted."
            )
        )
    elif record.iterations is None:
        kind, badge = "warn", "✗ LESS IS PROVED THAN WAS ASKED FOR"
        said.append(named("What would help", f"{advice(record)}."))
    else:
        kind, badge = "ok", f"✓ GUARANTEED WITH CONFIDENCE {percent(record.confidence)}"
    return verdict_box(kind, badge, *said)


def _key_numbers(record: Record, counts: np.ndarray, context: Context) -> Markup:
    solved = np.sort(counts[counts >= 0])
    claimed = "none" if record.iterations is None else count(record.iterations)
    share = percent_below(record.coverage_at_limit)
    within = f"at least {share} need no more" if record.coverage_at_limit else "nothing is proved"
    items = [
        ("Iterations claimed", claimed, f"on {percent(record.coverage)} of new problems; {rank(record)}"),
        ("Held-out problems", count(record.count), f"{counted(record.failures, 'problem')} not solved"),
        ("Median", count(float(np.median(solved))) if len(solved) else "none", "iterations, of those that were solved"),
        ("Most", count(float(solved[-1])) if len(solved) else "none", "iterations, of those that were solved"),
        ("Limit", count(record.limit), f"iterations; {within}"),
    ]
    if context.bound is not None:
        items.append(
            ("Worst case", count(context.bound), f"iterations, for each of these problems, by {context.theorem}")
        )
    return section("Key numbers", keys(items))


def _rests_on(record: Record, counts: np.ndarray, context: Context) -> Markup:
    """Exchangeability, which is assumed, and what was asked of it."""
    assumed = "".join(f"<li>{text(said)}</li>" for said in HYPOTHESES)
    rows = [_probe("first half against second half of the held-out problems", counts, record.order_test, record)]
    if context.others is not None:
        others = np.array(context.others.counts)
        rows.append(_probe(f"held-out problems against {context.others.name}", others, context.others.p_value, record))
    within = "" if record.iterations is None else f"#within {count(record.iterations)}"
    return section(
        "What the statement rests on",
        Markup(f"<ul>{assumed}</ul>"),
        paragraph(
            "No count can prove exchangeability. A small p-value shows that it fails, a large one shows nothing: the share of "
            "problems that need at most the claimed number of iterations says what a shift has done.",
            kind="soft",
        ),
        table(["compared", "#problems", within or "#solved", "#p-value", "verdict"], rows, "Counts compared"),
    )


def _probe(name: str, counts: np.ndarray, p_value: float, record: Record) -> list[Cell | str]:
    differs = p_value < ORDER_LEVEL
    most = record.limit if record.iterations is None else record.iterations
    share = float(((counts >= 0) & (counts <= most)).mean())
    return [
        Label(name, "text"),
        numeric(count(len(counts))),
        numeric(f"{number(100.0 * share, 4)} %"),
        numeric(number(p_value, 3)),
        Cell("✗ differ", "fail") if differs else Cell("no difference found"),
    ]


def _curve(record: Record, counts: np.ndarray, context: Context, svg: str) -> Markup:
    caption = (
        "The share of the held-out problems that were solved within k iterations, and lower bounds of the share of new ones. "
        "The dashed bound holds with the stated confidence for one k that was chosen in advance; the dotted one for all k at "
        "once, so that k may be read off the curve. The point is what is claimed."
    )
    if context.bound is not None:
        caption += (
            f" By {context.theorem} none of these problems can need more than {count(context.bound)} iterations; new ones with "
            "worse constants can."
        )
    head = ["#iterations k", "#held-out problems solved", "#at least, for this k alone", "#at least, for all k at once"]
    rows = [
        [
            Label(count(point.iterations), "n"),
            numeric(f"{point.problems:,} of {record.count:,}"),
            numeric(percent_below(point.pointwise)),
            numeric(percent_below(point.simultaneous)),
        ]
        for point in shown(record)
    ]
    return section("Curve", figure(svg, "curve", caption), table(head, rows, "The curve in numbers"))


def _arrays(record: Record) -> Markup:
    solver = (
        []
        if record.solver_sha256 is None
        else [[Label("parameters of the solver"), Cell(record.solver_sha256, "hash")]]
    )
    rows = [[Label(code(name)), Cell(value, "hash")] for name, value in record.arrays.items()]
    shown = table(["array", "sha256"], [*solver, *rows], "Arrays of the certificate")
    return section("Arrays", folded(counted(len(solver) + len(rows), "array"), shown))


def _check(record: Record, directory: Path) -> Markup:
    return checking(shlex.quote(directory.resolve().name), [(claim, *CLAIMS[claim]) for claim in record.claims])
