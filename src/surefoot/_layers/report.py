"""The report of a directory of layers: what each layer reached beside constant steps, and one self-contained page."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from surefoot_check.arrays import FormatError
from surefoot_check.rigor.bounds import FAST
from surefoot_check.run_files import CERTIFICATE, Content
from surefoot_check.statement import SLACK
from surefoot_check.step_sizes.layers.files import Stored, read
from surefoot_check.text import counted

from .._core.io import RunDirectoryError
from .._problems import Problems
from .._report.canvas import BOUNDS, DASHES, RUN, iteration_axis, logarithmic, rendered
from .._report.checking import checking
from .._report.document import document, foot
from .._report.markup import (
    Cell,
    Label,
    Markup,
    code,
    figure,
    keys,
    named,
    numeric,
    paragraph,
    scrolling,
    section,
    table,
    text,
    verdict_box,
)
from .._report.wording import count, number, share
from .._report.write import put
from .._step_sizes.command_comparison import TABLE
from .._step_sizes.system import KINDS
from .network import LayeredSteps
from .schedules import course

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = 12
"""Layers that the table has a row for, at most."""
CLAIMS = {
    "L1": (
        "The steps lie in the range in which no layer raises an objective, and the weights are convex combinations.",
        "Of problems with a larger smoothness than the stored beta it says nothing.",
    ),
    "L2": (
        "The stored iterates are those of the layers; their objectives, the gap of each layer, and what constant steps reach, by "
        "rigorous bounds.",
        "It is about the training problems alone, and compares each layer with others from the same iterate.",
    ),
}


def write(directory: Path) -> Path:
    """Write ``plots/layers.png`` and ``report.html``; the path of the latter.

    Raises:
        RunDirectoryError: files that are missing, damaged or of another version.
        OSError: a file could not be written.
    """
    from .. import __version__

    try:
        stored = read(directory, Content.read(directory / CERTIFICATE).record, FAST)
        if not stored.hashes_agree:
            raise FormatError(f"{directory}: the arrays are not those of {CERTIFICATE}")
    except FormatError as error:
        raise RunDirectoryError(str(error)) from error
    courses = _courses(stored)
    start, final = number(stored.conclusion.start), number(stored.conclusion.final, towards="up")
    said = (
        f"The training objective falls from {start} to {final} in {counted(stored.depth, 'layer')}; "
        f"{', '.join(f'{name} leaves {number(values[-1])}' for name, values in courses.items())}. The largest gap of a layer is "
        f"{_share(max(_relative_gaps(stored)))} of what it lowers."
    )
    png, svg = rendered("layers", lambda: draw(stored, courses), "Training objective by layer", said)
    kind = stored.batch.kind.removesuffix("-batch").replace("-", " ")
    data = f"{counted(stored.batch.count, 'problem')} of {kind}, {stored.batch.rows}x{stored.batch.columns}"
    parts = [
        _verdict(stored),
        named("Problems", data),
        _key_numbers(stored),
        _course(svg, stored),
        _layers(stored),
        _comparison(directory),
        _check(directory),
    ]
    said = foot(__version__, "Objectives are sums over the training problems, and bounds.")
    title = f"Layers report: {kind}, {counted(stored.depth, 'layer')}"
    return put(directory, document(title, filter(None, parts), said), {"layers": png})


def _courses(stored: Stored) -> dict[str, list[float]]:
    """Objectives by iteration of what the layers are compared with."""
    parts = {
        name: torch.from_numpy(getattr(stored.batch, name)) for name in stored.batch.dimensions if name != "optimum"
    }
    problems: Problems = cast(Any, KINDS[stored.batch.kind])(parts.pop("M"), **parts)
    inverse = torch.from_numpy(1.0 / stored.beta)[:, None]
    schedule = torch.from_numpy(stored.schedule)
    step = stored.conclusion.step
    courses = {f"constant P = {step:.4g}": course(problems, inverse, torch.full_like(schedule, step))}
    if bool((schedule != step).any()):
        courses["the schedule that training started from"] = course(problems, inverse, schedule)
    return courses


def _objectives(stored: Stored) -> list[float]:
    return [stored.conclusion.start, *(facts.objective for facts in stored.facts)]


def _relative_gaps(stored: Stored) -> list[float]:
    """Of what each layer lowers, which is not negative: at most 1."""
    return [min(1.0, facts.gap / facts.value) if facts.value > 0.0 else 0.0 for facts in stored.facts]


def draw(stored: Stored, courses: dict[str, list[float]]) -> Figure:
    """Two panels: the objective by layer, and what is left between each layer and the best one."""
    from matplotlib.figure import Figure

    curves = {"trained layers": _objectives(stored), **courses}
    figure = Figure(figsize=(7.4, 6.8), layout="constrained")
    above, below = figure.subplots(2, 1)
    for index, ((name, values), colour) in enumerate(zip(curves.items(), (RUN, *BOUNDS), strict=False)):
        style = {"linewidth": 1.6, "linestyle": DASHES[index]} if index else {"linewidth": 2.4}
        above.plot(range(len(values)), values, label=name, color=colour, **style)
    above.set_title("Training objective F")
    logarithmic(above, [value for values in curves.values() for value in values if value > 0.0])
    gaps = _relative_gaps(stored)
    below.plot(
        range(1, len(gaps) + 1), gaps, ".-", color=BOUNDS[2], label="gap of each layer, relative to what it lowers"
    )
    below.set_title("What is left to the best layer")
    logarithmic(below, [gap for gap in gaps if gap > 0.0])
    for axes in (above, below):
        iteration_axis(axes, stored.depth)
        axes.set_xlabel("layers")
    handles = [handle for axes in (above, below) for handle in axes.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside lower left", frameon=False)
    return figure


def _verdict(stored: Stored) -> Markup:
    """What is proved of the training."""
    claim, worst = stored.conclusion, max(_relative_gaps(stored))
    every = "any one P between the ends of the range" if not stored.batch.proximal else "any one P of the grid"
    said = f"F falls from {number(claim.start)} to {number(claim.final, 6, 'up')} in {counted(stored.depth, 'layer')}"
    if claim.final <= claim.constant:
        kind, badge = "ok", "✓ NOT WORSE THAN THE BEST CONSTANT STEP"
        said += f"; {counted(stored.depth, 'step')} with {every} leave at least {number(claim.constant, 6, 'down')}."
    elif claim.final <= claim.constant * (1.0 + SLACK):
        kind, badge = "ok", "✓ NOT WORSE THAN THE BEST CONSTANT STEP, UP TO ROUNDING"
        said += f"; {counted(stored.depth, 'step')} with {every} leave no less, up to a share of {SLACK:g}."
    else:
        kind, badge = "warn", "✗ NOT PROVED TO BE AS GOOD AS THE BEST CONSTANT STEP"
        said += f"; {counted(stored.depth, 'step')} with {every} are only known to leave {number(claim.constant, 6, 'down')}."
    which = "one P in each sector" if not stored.batch.proximal else "one P of the grid in each sector"
    lowered = "the objective after the rest of the schedule" if stored.ahead else "the objective after it"
    gaps = (
        f"Of no layer would another choice of {which} have left {lowered} lower by more than {_share(worst)} of it. Both are "
        "statements about the training problems."
    )
    if stored.trained < stored.depth:
        gaps += f" Trained and kept: {counted(stored.trained, 'layer')} of {stored.depth}; the others are those of the schedule."
    return verdict_box(kind, badge, paragraph(said), paragraph(gaps))


def _share(value: float) -> str:
    """A bound from above of a part of a whole."""
    return number(value, 2, "up") if value < 1e-3 else share(value, "up")


def _key_numbers(stored: Stored) -> Markup:
    claim = stored.conclusion
    better = 1.0 - claim.final / claim.constant if claim.constant > 0.0 else 0.0
    low, high = stored.range
    items = [
        (
            "After the layers",
            number(claim.final, towards="up"),
            f"training objective; {number(claim.start)} at the start",
        ),
        (
            "Best constant step",
            number(claim.constant, towards="down"),
            f"at least, with P = {number(claim.step)} or any other{' of the grid' if stored.batch.proximal else ''}",
        ),
        ("Lower by", share(better, "down"), "than the best constant step") if better > 0.0 else None,
        ("Schedule", number(claim.schedule), "the steps that training started from, the same for all coordinates"),
        ("Largest gap", _share(max(_relative_gaps(stored))), "of a layer, relative to what it lowers"),
        (
            "Layers",
            count(stored.depth),
            f"{stored.weights.shape[1]} sectors, {len(stored.grid)} steps from {low:g} to {high:g}",
        ),
    ]
    return section("Key numbers", keys(item for item in items if item is not None))


def _course(svg: str, stored: Stored) -> Markup:
    caption = (
        "Above: the training objective after each layer, beside constant steps and the schedule. Below: by how much another "
        "choice of steps in the sectors could have lowered what the layer was trained for, at most."
    )
    if stored.ahead:
        caption += (
            " The layers look ahead: each is trained for the objective at the end, so that one in the middle may lie above a "
            "curve that it beats in the end."
        )
    return section("Course", figure(svg, "layers", caption))


def _layers(stored: Stored) -> Markup:
    depth, means = stored.depth, stored.weights @ stored.grid
    shown = sorted({round(k * (depth - 1) / (ROWS - 1)) for k in range(ROWS)})
    rows = []
    for t in shown:
        facts, steps = stored.facts[t], means[t]
        said = "  ".join(f"{P:.2f}" for P in steps[:8]) + ("  …" if len(steps) > 8 else "")
        values = [number(facts.objective, 6, "up"), number(facts.value, 6, "up"), number(facts.lower, 6, "down")]
        values.append(number(facts.gap, 2, "up"))
        rows.append([Label(count(t + 1), "n"), *map(numeric, values), Cell(said, "whole")])
    lowered = "#F at the end" if stored.ahead else "#F after it"
    head = ["#layer", "#F", lowered, "#at least", "#gap", "mean P in each sector"]
    return section("Layers", table(head, rows, "Layers, and what is left to the best choice"))


def _comparison(directory: Path) -> Markup | None:
    """The table of methods that ``train layers`` wrote."""
    file = directory / TABLE
    if not file.exists():
        return None
    try:
        said = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RunDirectoryError(
            f"{file} cannot be read ({error}); remove it, and the report is written without it"
        ) from error
    lines = "\n".join(text(line) for line in said.splitlines())
    return section(
        "Beside other methods",
        paragraph(
            "Gap F - F* after as many iterations, mean over the problems; measured, and not part of the certificate."
        ),
        scrolling(f"<pre>{lines}</pre>", "Methods compared"),
    )


def _check(directory: Path) -> Markup:
    name = directory.resolve().name  # both commands from the directory above
    use = f"{LayeredSteps.__name__}.load({f'{name}/layers.safetensors'!r})"
    claims = [(claim, *said) for claim, said in CLAIMS.items()]
    network = paragraph("The network, in Python:", code(f"sf.nn.{use}"))
    return checking(shlex.quote(name), claims, after=network)
