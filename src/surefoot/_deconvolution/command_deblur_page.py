"""A page about a sharpened photograph: before and after, what is left unexplained, the kernel, what was assumed and certified."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version

import numpy as np
import numpy.typing as npt

from .._cli.screen import count, number
from .._core.certificate import Certificate
from .._data.pictures import Picture
from .._report.document import document
from .._report.markup import (
    Label,
    Markup,
    keys,
    numeric,
    paragraph,
    section,
    table,
    text,
    verdict,
    verdict_box,
)
from .._report.wording import both, relation
from .command_deblur_words import GREY, assumptions, guarantee, outcome, share
from .excerpt import Excerpt
from .photo.deblur import Deblurred
from .report_pictures import enlarged, pair, pictured

RESIDUAL = 4.0
"""Noise levels from grey to black, and to white, in the picture of the residual."""
ENLARGED = 160
"""Pixels a side of the picture of a kernel, at least, where it is that small."""
STYLE = """
:root { --measure: 120rem; }
figure { max-width: none; }
.pair figure { margin: 0; }
img { display: block; max-width: none; }
.pixels img { image-rendering: pixelated; border: 1px solid var(--line); }
"""
"""Pictures at one pixel of the screen for each of theirs; a window that is too narrow scrolls."""
BADGES = {"certified": "ok", "solver": "warn", "heuristic": "warn", "uncertified": "bad"}
TITLES = {
    "certified": "Certified",
    "solver": "Certified solver, picture on its way",
    "heuristic": "Heuristic",
    "uncertified": "Uncertified",
}


def page(source: str, deblurred: Deblurred, excerpt: Excerpt) -> str:
    """The page as one HTML document that needs nothing else.

    Args:
        source: the photograph's name.
        deblurred: what was found.
        excerpt: what is shown of it.
    """
    title = f"{source}, sharpened"
    kind = guarantee(deblurred)
    parts = [
        verdict_box(BADGES[kind], TITLES[kind].upper(), paragraph(outcome(deblurred))),
        _pictures(excerpt),
        section("Key numbers", keys(_numbers(deblurred))),
        section("What was assumed", _list(assumptions(deblurred))),
        _residual(deblurred, excerpt),
        _kernel(deblurred.kernel.cpu().numpy()),
        _theorem(deblurred.certificates),
    ]
    foot = f"surefoot {version('surefoot')}. No number here says how near the picture is to the sharp scene."
    return document(title, parts, foot, STYLE)


def _pictures(excerpt: Excerpt) -> Markup:
    what = "The photograph" if excerpt.whole else "The middle of the photograph"
    return section("Before and after", paragraph(f"{what}, pixel by pixel."), pair(excerpt.before, excerpt.after))


def _numbers(deblurred: Deblurred) -> Iterator[tuple[str, str, str]]:
    origin = "estimated from the photograph" if deblurred.estimated else "as it was given"
    yield "Noise", number(deblurred.noise, 3), f"of white, {origin}"
    yield "Prior", deblurred.prior, ""
    yield "Misfit", number(deblurred.misfit, 3), "residual over noise; clearly above 1: kernel or noise are wrong"
    yield "Iterations", count(deblurred.iterations), f"{count(deblurred.applications)} products with the blur"
    if deblurred.gap is not None:
        objective = "of its objective" if deblurred.certificates else "of the wavelet objective"
        yield "Duality gap", share(deblurred.gap), f"{objective}, a guaranteed bound"
    if deblurred.kept is not None:
        yield "Network", f"{deblurred.kept[0]} of {deblurred.kept[1]}", "proposals kept by the safeguard"
    tiles = "one piece" if deblurred.tiles == 1 else f"{count(deblurred.tiles)} tiles"
    yield "Time", f"{deblurred.seconds:.1f} s", tiles
    if deblurred.movement is not None:
        yield (
            "Last movement",
            f"{number(GREY * deblurred.movement, 2)} of 255",
            "root mean square, in the last iteration",
        )


def _list(lines: Sequence[str]) -> Markup:
    return Markup(f"<ul>{''.join(f'<li>{text(line)}</li>' for line in lines)}</ul>")


def _residual(deblurred: Deblurred, excerpt: Excerpt) -> Markup:
    levels = deblurred.residual[(..., *excerpt.part)].cpu().numpy() / deblurred.noise
    if levels.ndim == 3:
        levels = np.moveaxis(levels, 0, -1)
    grey = np.rint(255.0 * np.clip(0.5 + levels / (2.0 * RESIDUAL), 0.0, 1.0)).astype(np.uint8)
    caption = (
        f"What the photograph has beyond the blurred picture: grey is 0, black and white are {RESIDUAL:g} noise levels. Grain "
        "without pattern is noise; outlines of the scene say that the kernel is wrong or the noise level too large."
    )
    return section("Unexplained", Markup(pictured(Picture(grey), caption)))


def _kernel(kernel: npt.NDArray[np.floating]) -> Markup:
    grey = np.rint(255.0 * kernel / kernel.max()).astype(np.uint8)
    picture, times = enlarged(grey, ENLARGED)
    rows, columns = kernel.shape
    caption = f"{rows} rows x {columns} columns, as it was used; each pixel is shown {times} times as large."
    return section("Kernel", Markup(f'<div class="pixels">{pictured(picture, caption)}</div>'))


def _theorem(certificates: Sequence[Certificate]) -> Markup:
    """The hypotheses of the first tile's theorem."""
    if not certificates:
        return Markup("")
    first = certificates[0]
    holding = sum(certificate.holds for certificate in certificates)
    rows = [
        [
            Label(condition.name, "text"),
            numeric(both(condition)[0]),
            relation(condition.relation),
            numeric(both(condition)[1]),
            verdict(condition.holds),
        ]
        for condition in first.conditions
    ]
    said = (
        f"{first.theorem}: holds for {holding} of {len(certificates)} {'tile' if len(certificates) == 1 else 'tiles'}."
    )
    meaning = "It says that with more iterations the solver comes to the optimum of its objective; nothing of the sharp scene."
    head = ("hypothesis", "#left side", "relation", "#right side", "verdict")
    return section("Theorem", paragraph(said, meaning), table(head, rows, first.theorem))
