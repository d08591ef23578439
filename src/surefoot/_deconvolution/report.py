"""The part of a report that is about pictures: the observed, the restored, and how far the objective is from its optimum."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from .._data.pictures import Picture
from .._report.facts import Facts
from .._report.markup import Markup, keys, paragraph, section
from .._report.wording import count, number, share
from .._report.write import Part
from .excerpt import Excerpt
from .report_pictures import enlarged, pair
from .system import DeconvolutionSystem

LEAST = 280
"""Pixels of the longer side on the page, at least."""


def part(facts: Facts) -> Part:
    """The section on the pictures, where the run has the arrays of its problem."""
    run = facts.run
    if not run.problem:
        return Part(Markup(""), {})
    _, loss = DeconvolutionSystem().rebuild(run.certificate.problem["kind"], run.problem, run.initial)
    blur = loss.problem.blur
    before, which = _one(blur.seen(loss.problem.observed), len(blur.domain))
    after, _ = _one(blur.crop(run.final["z"]), len(blur.domain))
    excerpt = Excerpt.of(before, after, 1.0)
    left, times = enlarged(excerpt.before.pixels, LEAST)
    right, _ = enlarged(excerpt.after.pixels, LEAST)
    what = "The whole picture" if excerpt.whole else "The middle of the picture"
    size = "pixel by pixel" if times == 1 else f"each pixel {times} times as large"
    said = f"{what}{which}, {size}; 0 is black and 1 white. The run knows no sharp scene: no bound says how near it is."
    captions = "Observed", f"Restored, after {count(run.final_iteration)} iterations"
    return Part(section("Observed and restored", paragraph(said), pair(left, right, captions), _gap(facts)), {})


def _one(pictures: Tensor, dimensions: int) -> tuple[Picture, str]:
    """The first of several (..., h, w), the middle of a stack (..., d, h, w), and which one it is."""
    planes = pictures.reshape(-1, *pictures.shape[-dimensions:])
    first, which = planes[0], f", the first of {len(planes)}" if len(planes) > 1 else ""
    if dimensions > 2:
        first, which = first[len(first) // 2], f"{which}, plane {len(first) // 2 + 1} of {len(first)}"
    return Picture(first.cpu().numpy().astype(np.float32)), which


def _gap(facts: Facts) -> Markup:
    """What the objective lacks to its optimum, of the last row that has it."""
    measured = [row for row in facts.run.rows if "duality_gap" in row and row.get("objective", 0.0) > 0.0]
    if not measured:
        return Markup("")
    last = measured[-1]
    lacks = share(last["duality_gap"] / last["objective"], "up")
    items = [
        ("Objective", number(last["objective"]), ""),
        ("Duality gap", number(last["duality_gap"], towards="up"), "the objective is at most so far above its optimum"),
        ("Of the objective", lacks, "guaranteed"),
    ]
    return keys(items)
