"""Its part of the tour: a photograph that scikit-learn carries, smeared, and restored by a solver with a certificate."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import torch

from .. import data
from .._cli.errors import Exit
from .._cli.screen import Screen
from .._cli.tour import Stop, Visit, audited, checked, interrupted
from .._core.descent import certify, descend
from .._core.io import read_json, write_atomic, write_json
from .._core.status import RunStatus
from .._data.pictures import Picture, write_png
from .._report import write
from .._report.wording import share
from .admm import LADMM
from .metrics import psnr
from .operators import ValidBlur
from .photo.kernel_makers import motion_kernel
from .problem import DeconvolutionProblem, default_penalty

SIDE, NOISE = 96, 0.01
KERNEL = "motion:9,30"
BLURRED = "blurred.png"


def _visit(directory: Path, screen: Screen) -> Visit:
    photographs: Any = data.load("photos").X
    blur = ValidBlur.observing(motion_kernel(9.0, 30.0), (SIDE, SIDE))
    rows, columns = blur.domain
    scene = photographs["china.jpg"].mean(-1)[120 : 120 + rows, 100 : 100 + columns].contiguous()
    noise = NOISE * torch.randn(SIDE, SIDE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    pixels = (255.0 * (blur.forward(scene) + noise)).round().clamp(0.0, 255.0)
    problem, solver = DeconvolutionProblem(pixels / 255.0, blur, default_penalty(NOISE)), LADMM()
    certificate = certify(solver, problem)
    about = {"data": f"china.jpg of scikit-learn, {SIDE} x {SIDE} pixels, {KERNEL}, noise {NOISE:g}"}
    run = descend(solver, problem, tolerance=1e-6, certificate=certificate, directory=directory, config={"data": about})
    if run.status is RunStatus.INTERRUPTED:
        interrupted(Exit.of_signal(run.stopped_by))
    write_atomic(directory / BLURRED, write_png(Picture(pixels.to(torch.uint8).numpy())))
    last, sharp = run.rows[-1], blur.crop(scene)
    before, after = (float(psnr(picture, sharp)) for picture in (problem.observed, blur.crop(run.final["z"])))
    scores = {"PSNR, observed": f"{before:.1f} dB", "PSNR, restored": f"{after:.1f} dB"}
    write_json(directory / "config.json", {**read_json(directory / "config.json"), "evaluation": scores})
    write(directory)
    lacks = last["duality_gap"] / last["objective"]
    photo = shlex.quote(str(directory / BLURRED))
    restored = shlex.quote(str(directory / "sharp.png"))
    again = f"surefoot deblur {photo} --kernel {KERNEL} --gamma linear --out {restored} --page"
    return Visit(
        guaranteed="the solver converges, and its change never rises",
        happened=f"within {share(lacks, 'up')} of its optimum, proved; PSNR {before:.1f} to {after:.1f} dB",
        audit=audited(run),
        check=checked(directory),
        command=again,
        record={"theorem": certificate.theorem, "iterations": run.iterations, "psnr": after, "psnr_blurred": before},
    )


STOPS = (
    Stop(
        name="deconvolution",
        title="A smeared photograph, restored by a solver with a certificate",
        why="What is proved is how far the objective is from its optimum; never that the picture is the scene.",
        visit=_visit,
    ),
)
