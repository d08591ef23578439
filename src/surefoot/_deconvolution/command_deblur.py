"""The command ``deblur``."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor
from tyro.conf import Positional, arg

from .._cli.built import at_least_one
from .._cli.errors import Exit
from .._cli.options import Flag, Json, Quiet
from .._cli.screen import Screen, certificate_record, count, number, print_json
from .._core.io import write_atomic
from .._core.status import RunStatus
from .._data.kernel_files import read_kernel
from .._data.pictures import Picture, Pixels, quantised, read_picture, write_png
from .network import LearnedDeconvolution
from .photo import Deblurred, deblur

SHOWN = 900
"""Pixels a side of the part of the photo in the picture before/after, at most: as they are, not scaled."""
GREY = 255.0


@dataclass(frozen=True, kw_only=True)
class Deblur:
    """Sharpen a blurred photograph whose blur kernel is known.

    By default with a solver whose convergence theorem is checked (deconvolution/ladmm).

    OUT-before-after.png shows a part of both side by side.

    Exit code: 0 done, 4 nothing finite came out, 130 after Ctrl-C (nothing is written)."""

    photo: Annotated[Positional[str], arg(metavar="PHOTO", help="PNG or JPEG, grey or colour, 8 or 16 bits.")]
    kernel: Annotated[
        str,
        arg(
            metavar="K",
            help="Blur kernel: k.npy, file.npz:NAME, k.png, or a text file with a row of numbers per line. It is divided by its "
            "sum.",
        ),
    ]
    out: Annotated[str, arg(metavar="OUT.png")]
    """PNG to write, as deep as the photo; it must not exist."""
    noise: Annotated[
        float | None,
        arg(
            metavar="FLOAT",
            help="Standard deviation of the noise, where white is 1; more makes the result smoother.",
            help_behavior_hint="(default: estimated from the photo)",
        ),
    ] = None
    turn_kernel: Flag = False
    """Turn the kernel by 180 degrees first, for one that is meant as a correlation."""
    prior: Annotated[
        str,
        arg(
            metavar="NAME",
            help="What is known of sharp photographs: wavelet (with a theorem), or auto, the best by measured quality.",
        ),
    ] = "auto"
    iterations: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: that of the prior)")] = None
    """Iterations of the solver, at most."""
    weights: Annotated[
        str | None,
        arg(
            metavar="FILE",
            help="A trained network, as net.safetensors of `surefoot train deconvolution`. No theorem covers what it proposes; "
            "where that does not explain the photo up to the noise, the solver decides.",
            help_behavior_hint="(default: none)",
        ),
    ] = None
    quiet: Quiet = False
    json: Json = False

    def run(self, held: ExitStack) -> int:
        return _deblur(self)


def _deblur(options: Deblur) -> int:
    """``surefoot deblur``."""
    screen = Screen(silent=options.json or options.quiet)
    out, comparison = _places(options)
    if options.iterations is not None:
        at_least_one("--iterations", options.iterations)
    if options.noise is not None and not 0.0 < options.noise < 1.0:
        raise ValueError(f"--noise is {options.noise:g}; it must be above 0 and below 1, for example 0.01 for 1 %")
    picture = read_picture(Path(options.photo).expanduser())
    kernel = torch.from_numpy(read_kernel(options.kernel))
    if options.turn_kernel:
        kernel = kernel.flip(0, 1)
    net = None if options.weights is None else LearnedDeconvolution.load(Path(options.weights).expanduser())
    photo = torch.from_numpy(picture.intensities())
    with _tiles_done(not options.quiet and not options.json) as progress:
        deblurred = deblur(
            photo,
            kernel,
            options.noise,
            prior=options.prior,
            net=net,
            iterations=options.iterations,
            progress=progress,
        )
    record = _record(options, picture, kernel, deblurred, comparison)
    _show(screen, options, record, deblurred)
    if deblurred.status is RunStatus.DIVERGED:
        print("surefoot: nothing finite came out, so nothing was written", file=sys.stderr)
    else:
        after = quantised(deblurred.image.numpy(), picture.depth)
        content = write_png(Picture(after, picture.profile))
        beside = write_png(Picture(_beside(picture.pixels, after), picture.profile))
        write_atomic(out, content)
        write_atomic(comparison, beside)
    if options.json:
        print_json(record)
    elif options.quiet:
        print(_outcome(out, deblurred))
    return Exit.FAILED if deblurred.status is RunStatus.DIVERGED else Exit.YES


def _places(options: Deblur) -> tuple[Path, Path]:
    """OUT and the picture beside it; ``ValueError`` before any work where they cannot be written."""
    out = Path(options.out).expanduser()
    if out.suffix.lower() != ".png":
        raise ValueError(f"--out is {options.out!r}; it must end in .png, as nothing else is written")
    comparison = out.with_name(f"{out.stem}-before-after.png")
    for path in (out, comparison):
        if path.exists() or path.is_symlink():
            raise ValueError(f"{path} exists; choose another with --out")
    if not out.parent.is_dir():
        raise ValueError(f"--out is {options.out!r}, but there is no directory {out.parent}; make it first")
    if not os.access(out.parent, os.W_OK):
        raise ValueError(f"--out is {options.out!r}, but {out.parent} cannot be written to; choose another directory")
    return out, comparison


@contextlib.contextmanager
def _tiles_done(shown: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A progress line over the tiles, on a terminal."""
    if not shown or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("tiles"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=10) as bar:
        task = bar.add_task("tiles", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _beside(before: Pixels, after: Pixels) -> Pixels:
    """The middle of both pictures with a white line between them."""
    corner = [max(0, (size - SHOWN) // 2) for size in before.shape[:2]]
    part = tuple(slice(start, start + SHOWN) for start in corner)
    line = np.full_like(before[part][:, :4], np.iinfo(before.dtype).max)
    return np.concatenate([before[part], line[:, :4], after[part]], axis=1)


def _record(
    options: Deblur, picture: Picture, kernel: Tensor, deblurred: Deblurred, comparison: Path
) -> dict[str, Any]:
    """Plain values."""
    rows, columns = picture.pixels.shape[:2]
    written = deblurred.status is not RunStatus.DIVERGED
    record: dict[str, Any] = {
        "photo": {
            "file": options.photo,
            "rows": rows,
            "columns": columns,
            "channels": 1 if picture.pixels.ndim == 2 else 3,
            "bits": picture.depth,
            "turned_upright": picture.turned,
        },
        "kernel": {
            "file": options.kernel,
            "rows": kernel.shape[0],
            "columns": kernel.shape[1],
            "notices": list(deblurred.notices),
        },
        "noise": deblurred.noise,
        "noise_estimated": deblurred.estimated,
        "method": deblurred.prior,
        "guarantee": "certified" if deblurred.certified else "uncertified" if deblurred.kept is None else "heuristic",
        "certificate": certificate_record(deblurred.certificates[0]) if deblurred.certificates else None,
        "tiles": deblurred.tiles,
        "tiles_certified": sum(certificate.holds for certificate in deblurred.certificates),
        "status": deblurred.status.value,
        "iterations": deblurred.iterations,
        "relative_duality_gap": deblurred.gap,
        "change_ratio": deblurred.change,
        "movement": deblurred.movement,
        "network_kept": None if deblurred.kept is None else {"kept": deblurred.kept[0], "of": deblurred.kept[1]},
        "applications": deblurred.applications,
        "seconds": deblurred.seconds,
        "out": options.out if written else None,
        "before_after": str(comparison) if written else None,
    }
    return record


def _show(screen: Screen, options: Deblur, record: dict[str, Any], deblurred: Deblurred) -> None:
    photo, kernel = record["photo"], record["kernel"]
    screen.heading("Photo", options.photo)
    kind = "grey" if photo["channels"] == 1 else "colour"
    turned = ", turned upright" if photo["turned_upright"] else ""
    origin = "estimated; --noise if you know better" if deblurred.estimated else "given"
    screen.pairs(
        {
            "size": f"{photo['columns']} x {photo['rows']} pixels, {kind}, {photo['bits']} bits{turned}",
            "kernel": f"{kernel['rows']} rows x {kernel['columns']} columns",
            "noise": f"{number(deblurred.noise, 3)} of white ({origin})",
        }
    )
    for notice in deblurred.notices:
        screen.say(f"  note: {notice}", style="yellow")
    if deblurred.kept is not None:
        _show_network(screen, deblurred)
    else:
        _show_certificate(screen, deblurred)
    items = {
        "seconds": f"{deblurred.seconds:.1f}, {count(deblurred.tiles)} {'tile' if deblurred.tiles == 1 else 'tiles'}"
    }
    if record["out"] is not None:
        items["written"] = record["out"]
        items["before and after"] = record["before_after"]
    screen.heading("Result")
    screen.pairs(items)


def _show_certificate(screen: Screen, deblurred: Deblurred) -> None:
    first = deblurred.certificates[0]
    screen.certificate(first)
    holding = sum(certificate.holds for certificate in deblurred.certificates)
    items = {"iterations": count(deblurred.iterations)}
    if deblurred.tiles > 1:
        items = {"tiles": f"the theorem holds for {holding} of {deblurred.tiles}; the first one is shown"} | items
    assert deblurred.gap is not None
    why = (
        " (with an unknown border this bound closes slowly: docs/theorems/deconvolution.md)"
        if deblurred.gap > 0.05
        else ""
    )
    items["duality gap"] = (
        f"{number(deblurred.gap, 2)} relative: the objective is at most that far from its optimum, guaranteed{why}"
    )
    if deblurred.change is not None and deblurred.movement is not None:
        verdict = "as the theorem says" if deblurred.change <= 1.0 else "AGAINST the theorem"
        items["change"] = f"V fell to {number(deblurred.change, 2)} of its first value, {verdict}"
        items["settled"] = (
            f"the last iteration moved the picture by {number(GREY * deblurred.movement, 2)} of 255 (root mean square)"
        )
    screen.heading("Run", deblurred.status.value.replace("_", " "))
    screen.pairs(items)


def _show_network(screen: Screen, deblurred: Deblurred) -> None:
    assert deblurred.kept is not None
    kept, total = deblurred.kept
    screen.heading("Uncertified", "no theorem covers a trained network; its safeguard is heuristic")
    fallback = (
        ""
        if kept == total
        else f"; the others were restored by L-ADMM in up to {count(deblurred.iterations)} iterations"
    )
    screen.pairs(
        {
            "kept": f"{kept} of {total} proposals (channels of tiles): finite, with a residual inside the noise band{fallback}"
        }
    )


def _outcome(out: Path, deblurred: Deblurred) -> str:
    if deblurred.kept is not None:
        return (
            f"{out}: {deblurred.kept[0]} of {deblurred.kept[1]} proposals of the network kept, heuristic, "
            f"{deblurred.seconds:.1f} s"
        )
    gap = "" if deblurred.gap is None else f", relative duality gap {deblurred.gap:.2g}"
    verdict = "certified" if deblurred.certified else "uncertified"
    return f"{out}: {verdict}, {deblurred.iterations} iterations{gap}, {deblurred.seconds:.1f} s"
