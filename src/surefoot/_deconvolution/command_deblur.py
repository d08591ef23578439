"""The command ``deblur``."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from .._cli.options import Flag, Json, Quiet
from .._core.late import late


@dataclass(frozen=True, kw_only=True)
class Deblur:
    """Sharpen blurred photographs whose blur kernel is known.

    One photo and a name for what comes out, or photos and folders and a directory, in which all keep their names.

    OUT-before-after.png shows a part of both side by side.

    What is proved is said for each: that its solver comes to the optimum of its objective, how far it is from there, or nothing.

    Exit code: 0 done, 1 some of several photos failed (the others are written), 4 nothing finite came out,
    130 after Ctrl-C (what is done is kept; nothing is half written)."""

    photos: Annotated[
        Positional[tuple[str, ...]],
        arg(
            name="photos",
            metavar="PHOTO ...",
            help="Files or folders: PNG, JPEG, TIFF, FITS, x.npy, file.npz:NAME; grey or colour; 8 or 16 bits or floats.",
            help_behavior_hint="(one or more)",
        ),
    ]
    kernel: Annotated[
        str,
        arg(
            metavar="K",
            help="Blur kernel: k.npy, file.npz:NAME, a grey picture, a text file with a row of numbers per line, or a formula: "
            "motion:9,30 (pixels, degrees), defocus:4 (pixels), gaussian:1.5 (pixels), airy:1.4,0.52,0.065 (one unit of length). "
            "It is divided by its sum, trimmed and centred. An array (R, C, rows, columns) is a grid of kernels, for a blur that "
            "varies over the photo.",
        ),
    ]
    out: Annotated[
        str,
        arg(
            metavar="OUT",
            help="What to write, as deep as the photo: a new file that ends in .png, .tif, .tiff, .npy, .fits, .fit, .fts, or a "
            "directory, which is made. JPEG becomes PNG there.",
        ),
    ]
    noise: Annotated[
        float | None,
        arg(
            metavar="NUMBER",
            help="Standard deviation of the noise, where white is 1; of linear light where --gamma decodes to that. More makes "
            "the result smoother.",
            help_behavior_hint="(default: estimated from the photo)",
        ),
    ] = None
    white: Annotated[
        float | None,
        arg(
            metavar="NUMBER",
            help="The sample that is white. Floats are never clipped, whatever their unit.",
            help_behavior_hint="(default: the largest of 8 or 16 bits; 1 for floats; guessed for those in another unit)",
        ),
    ] = None
    gamma: Annotated[
        Literal["auto", "srgb", "linear"],
        arg(
            help="srgb: samples are decoded to linear light first, where a camera blurs; linear: they are taken as they are, as "
            "for raw data, or a picture that a program blurred; auto: srgb for 8 bits, else linear, with a note where the photo "
            "speaks against that.",
        ),
    ] = "auto"
    turn_kernel: Flag = False
    """Turn the kernel by 180 degrees first, for one that is meant as a correlation."""
    prior: Annotated[
        Literal["auto", "hyper-laplacian", "tv", "wavelet"],
        arg(
            help="What is known of sharp photographs. hyper-laplacian: restored best where it was measured, a heuristic. "
            "tv, wavelet: solvers with a convergence theorem, which is evaluated for every tile. auto: the first, or tv in "
            "strong noise.",
        ),
    ] = "auto"
    power: Annotated[
        float | None,
        arg(
            metavar="NUMBER",
            help="p of the penalty |d|ᵖ of differences d, from 0.5 to 1; it goes with the prior hyper-laplacian.",
            help_behavior_hint="(default: 2/3)",
        ),
    ] = None
    iterations: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: that of the prior)")] = None
    """Iterations of the solver, at most; it goes with the priors tv and wavelet."""
    gap: Annotated[
        bool,
        arg(
            help="Also bound how far the picture of a heuristic is from the optimum of the wavelet objective.",
            help_behavior_hint="",
        ),
    ] = False
    weights: Annotated[
        str | None,
        arg(
            metavar="bundled|FILE",
            help="A trained network beside the prior: 'bundled' for the one that comes with the package, or net.safetensors of "
            "`surefoot train deconvolution`. Its picture is averaged with the prior's; where it fits the photo worse, or is "
            "rougher, the prior decides. No theorem covers it.",
            help_behavior_hint="(default: none)",
        ),
    ] = None
    tile: Annotated[
        int,
        arg(metavar="N", help="Pixels a side of the parts that a large photo is restored in; fewer need less memory."),
    ] = 512
    page: Flag = False
    """Also write OUT.html: before and after, residual, kernel, what was assumed and certified."""
    skip_existing: Flag = False
    """Leave photos out whose OUT exists, to go on with a batch that was interrupted."""
    quiet: Quiet = False
    json: Json = False

    def run(self, held: ExitStack) -> int:
        return late(f"{__package__}.command_deblur_run", "run_deblur")(self)
