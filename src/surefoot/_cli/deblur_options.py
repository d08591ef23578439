"""The options of ``deblur``, as a dataclass from which the parser and the help text are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from .options import Flag, Json


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
    iterations: Annotated[int, arg(metavar="INT")] = 25
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
    quiet: Flag = False
    """Print only the outcome."""
    json: Json = False
