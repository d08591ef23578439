"""What ``deblur`` says of a photograph: plain values for programs, words for people."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .._cli.screen import Screen, certificate_record, count, number
from .._core.status import RunStatus
from .._data.pictures import Picture
from .command_deblur_files import Job
from .photo.deblur import Deblurred
from .photo.light import LINEAR, SRGB
from .settling import LEFT

GREY = 255.0
CLOSE = 0.05
"""Largest relative duality gap at which a picture, and not only its solver, is called certified."""


LIGHT = {
    SRGB: "decoded from sRGB to linear light, where a camera blurs (--gamma linear: samples as they are)",
    LINEAR: "samples as they are (--gamma srgb: decoded to linear light)",
}


def guarantee(deblurred: Deblurred) -> str:
    """What is known of a picture, in one word: ``"certified"`` where a theorem holds and the objective is proved to be close to
    its optimum, ``"solver"`` where only the theorem holds, so that the solver would come there, ``"uncertified"`` where it does
    not, and ``"heuristic"`` where there is none."""
    if not deblurred.certificates:
        return "heuristic"
    if not deblurred.certified or deblurred.gap is None:
        return "uncertified"
    return "certified" if deblurred.gap <= CLOSE else "solver"


def outcome(deblurred: Deblurred) -> str:
    """The one line about a photograph that people read."""
    seconds = f"{deblurred.seconds:.1f} s"
    if deblurred.status is RunStatus.DIVERGED:
        return f"diverged, nothing finite came out, {seconds}"
    if deblurred.kept is not None:
        kept, total = deblurred.kept
        return f"heuristic: {kept} of {total} proposals of the network kept, {seconds}"
    cost = f"{count(deblurred.iterations)} iterations, {seconds}"
    kind = guarantee(deblurred)
    if kind == "heuristic":
        return (
            f"heuristic: {deblurred.prior}{_inner(deblurred)}, no theorem covers the whole{_asked(deblurred)}, {cost}"
        )
    if kind == "uncertified":
        return f"uncertified: the theorem's hypotheses fail, {cost}"
    assert deblurred.gap is not None
    if kind == "certified":
        return f"certified: the objective can fall by {share(deblurred.gap)} more at most, {cost}"
    return f"the solver is certified, not this picture: its objective may fall by {share(deblurred.gap)} more, {cost}"


def assumptions(deblurred: Deblurred) -> list[str]:
    """What was taken for granted about a photograph, in sentences."""
    origin = "estimated from the photograph" if deblurred.estimated else "given"
    return [
        "The photograph is a sharp picture, convolved with the kernel, plus noise.",
        f"Light: {LIGHT[deblurred.light]}.",
        f"The noise is white, with standard deviation {number(deblurred.noise, 3)} of white ({origin}).",
        "Nothing is known of what lies beyond the border.",
        *(f"{notice[0].upper()}{notice[1:]}." for notice in deblurred.notices),
    ]


def share(gap: float) -> str:
    """A relative gap, which bounds from above, as a share that does, too."""
    return f"{number(100.0 * gap, 2, 'up')} %"


def record(job: Job, picture: Picture, kernel_name: str, kernel: Tensor, deblurred: Deblurred) -> dict[str, Any]:
    """Plain values."""
    rows, columns = picture.pixels.shape[:2]
    written = deblurred.status is not RunStatus.DIVERGED
    return {
        "photo": {
            "file": job.source,
            "rows": rows,
            "columns": columns,
            "channels": 1 if picture.pixels.ndim == 2 else 3,
            "bits": picture.depth,
            "floats": not picture.whole,
            "white": deblurred.form.white,
            "turned_upright": picture.turned,
        },
        "kernel": {"file": kernel_name, "rows": kernel.shape[-2], "columns": kernel.shape[-1]},
        "light": deblurred.light,
        "notices": list(deblurred.notices),
        "noise": deblurred.noise,
        "noise_estimated": deblurred.estimated,
        "method": deblurred.prior,
        "guarantee": guarantee(deblurred),
        "certificate": certificate_record(deblurred.certificates[0]) if deblurred.certificates else None,
        "tiles": deblurred.tiles,
        "tiles_certified": sum(certificate.holds for certificate in deblurred.certificates),
        "status": deblurred.status.value,
        "iterations": deblurred.iterations,
        "relative_duality_gap": deblurred.gap,
        "change_ratio": deblurred.change,
        "movement": deblurred.movement,
        "inner_values_fell": deblurred.falls,
        "misfit": deblurred.misfit,
        "projected_change_left": deblurred.left,
        "network_kept": None if deblurred.kept is None else {"kept": deblurred.kept[0], "of": deblurred.kept[1]},
        "applications": deblurred.applications,
        "seconds": deblurred.seconds,
        "out": str(job.out) if written else None,
        "before_after": str(job.comparison) if written else None,
        "page": str(job.page) if written and job.page is not None else None,
        "error": None if written else outcome(deblurred),
    }


def show(screen: Screen, values: dict[str, Any], deblurred: Deblurred) -> None:
    """A photograph at length."""
    photo, kernel = values["photo"], values["kernel"]
    screen.heading("Photo", photo["file"])
    kind = "grey" if photo["channels"] == 1 else "colour"
    turned = ", turned upright" if photo["turned_upright"] else ""
    samples = "floats" if photo["floats"] else f"{photo['bits']} bits"
    origin = "estimated; --noise if you know better" if deblurred.estimated else "given"
    screen.pairs(
        {
            "size": f"{photo['columns']} x {photo['rows']} pixels, {kind}, {samples}{turned}",
            "kernel": f"{kernel['rows']} rows x {kernel['columns']} columns",
            "light": LIGHT[deblurred.light],
            "noise": f"{number(deblurred.noise, 3)} of white ({origin})",
            "prior": deblurred.prior,
        }
    )
    for notice in deblurred.notices:
        screen.say(f"  note: {notice}", style="yellow")
    if deblurred.certificates:
        _show_certificate(screen, deblurred)
    else:
        _show_heuristic(screen, deblurred)
    items = {
        "seconds": f"{deblurred.seconds:.1f}, {count(deblurred.tiles)} {'tile' if deblurred.tiles == 1 else 'tiles'}"
    }
    if values["out"] is not None:
        items["residual"] = f"{number(deblurred.misfit, 2)} of the noise (clearly above 1: kernel or noise are wrong)"
        items["written"] = values["out"]
        items["before and after"] = values["before_after"]
        if values["page"] is not None:
            items["page"] = values["page"]
    screen.heading("Result", outcome(deblurred))
    screen.pairs(items)


def _show_certificate(screen: Screen, deblurred: Deblurred) -> None:
    first = deblurred.certificates[0]
    screen.certificate(first)
    holding = sum(certificate.holds for certificate in deblurred.certificates)
    items = {}
    if deblurred.tiles > 1:
        items["tiles"] = f"the theorem holds for {holding} of {deblurred.tiles}; the first one is shown"
    items["what it says"] = (
        "with more iterations the solver comes to the optimum of its objective; nothing of the sharp scene"
    )
    items["iterations"] = count(deblurred.iterations)
    if deblurred.gap is not None:
        items["this picture"] = _where(deblurred.gap)
    if deblurred.change is not None:
        verdict = "as the theorem says" if deblurred.change <= 1.0 else "AGAINST the theorem"
        items["change"] = f"V fell to {number(deblurred.change, 2)} of its first value, {verdict}"
    screen.heading("Run", deblurred.status.value.replace("_", " "))
    screen.pairs(items | settled(deblurred))


def _where(gap: float) -> str:
    bound = number(gap, 2, "up")
    known = f"its objective can fall by {share(gap)} more at most (relative duality gap {bound}, guaranteed)"
    if gap <= CLOSE:
        return known
    return f"{known}: that says little; with an unknown border the bound closes slowly (docs/theorems/deconvolution.md)"


def settled(deblurred: Deblurred) -> dict[str, str]:
    """How far the picture still moved, under its name; nothing where that is not known."""
    if deblurred.movement is None:
        return {}
    moved = f"the last iteration moved the picture by {number(GREY * deblurred.movement, 2)} of 255 (root mean square)"
    if deblurred.left is None:
        return {"settled": f"{moved}; too few iterations to say what is left"}
    still = "has settled" if deblurred.left <= LEFT else "has not settled"
    more = f"about {number(GREY * deblurred.left, 2)} of 255 is still to come without the rim (projected, no bound)"
    return {"settled": f"{moved}; it {still}: {more}"}


def _show_heuristic(screen: Screen, deblurred: Deblurred) -> None:
    if deblurred.kept is None:
        screen.heading("Heuristic", f"no theorem covers the prior {deblurred.prior} as a whole")
        known = (
            {}
            if deblurred.falls is None
            else {"checked": f"at each step, the inner problem's value {_fell(deblurred.falls)}"}
        )
        screen.pairs(known | {"iterations": count(deblurred.iterations)} | settled(deblurred))
    else:
        kept, total = deblurred.kept
        screen.heading("Heuristic", "no theorem covers a trained network; its safeguard is heuristic")
        others = f"; the others were restored in up to {count(deblurred.iterations)} iterations"
        screen.pairs({"kept": f"{kept} of {total} proposals (channels of tiles){'' if kept == total else others}"})
    if deblurred.gap is not None:
        screen.pairs({"wavelet objective": _where(deblurred.gap)})


def _inner(deblurred: Deblurred) -> str:
    """What was checked of a heuristic's inner problems."""
    return "" if deblurred.falls is None else f", each inner value {_fell(deblurred.falls)}"


def _fell(falls: bool) -> str:
    return "fell" if falls else "did NOT fall"


def _asked(deblurred: Deblurred) -> str:
    """The gap of a heuristic's picture, which is computed where it was asked for."""
    if deblurred.gap is None:
        return ""
    return f"; the wavelet objective could fall by {share(deblurred.gap)} more at most"
