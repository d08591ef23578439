"""The paper's two networks D-NbD, with D-Minv and with LD-Minv as their inverse, and the inverses side by side."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor

from surefoot._deconvolution.learned.network import LearnedDeconvolution, polynomial_inverse
from surefoot._deconvolution.learned.training import parameters
from surefoot._deconvolution.metrics import psnr
from surefoot._deconvolution.operators import PeriodicBlur, multiply

from .deconvolution_methods import D_MINV, LD_MINV
from .result import Cell, Table

LAYERS, INVERSE = 10, (2, 4)
"""Layers of D-NbD, and layers and order of its inverses: the paper gives neither."""
BATCH, PATCH, RATE = 4, 96, 1e-2
DEPTHS = ((1, 4), (2, 4), (3, 4), (4, 4))
"""Layers and order of D-Minv in place of the exact inverse of a network that was trained with that."""
NOISE = 0.02
REPEATS = 20


def paper_networks() -> dict[str, LearnedDeconvolution]:
    """D-NbD of equation (14), untrained, by the names of its columns in table 4: with wavelet shrinkage, and with coefficients of
    the inverses that are 1, for good (D-Minv) or at the start (LD-Minv)."""
    nets = {name: LearnedDeconvolution(LAYERS, 0, inverse=INVERSE) for name in (D_MINV, LD_MINV)}
    for C in parameters(nets[D_MINV])[1].values():
        C.requires_grad_(False)
    return nets


def inverses(net: LearnedDeconvolution, sharp: Tensor, observed: Tensor, blur: PeriodicBlur) -> Table:
    """The network's PSNR with the exact inverse and with D-Minv of several depths, at ``NOISE``, and what an inverse takes.

    Args:
        net: float32, with exact inverses.
        sharp, observed: (H, W), float32.
        blur: float32.
    """
    alpha = torch.tensor(1.0 / NOISE**2)
    rows: list[tuple[Cell, ...]] = []
    for inverse in (*DEPTHS, None):
        settings: dict[str, Any] = {"wavelet": net.wavelet, "start": net.start}
        other = LearnedDeconvolution(len(net.layers), net.filters, inverse=inverse, **settings)
        other.load_state_dict(net.state_dict(), strict=False)
        with torch.no_grad():
            worst = other.inverse_error(blur, NOISE)
            quality = float(psnr(other(observed, blur, NOISE), sharp))
        took = _milliseconds(_product(blur, observed, alpha, inverse))
        rows.append(
            ("exact, by FFT" if inverse is None else f"K = {inverse[0]}, L = {inverse[1]}", worst, quality, took)
        )
    return Table(
        "learned network at 2 % noise with D-Minv in place of the exact inverse",
        ("inverse", "largest error of ax = 1", "PSNR", "milliseconds of an inverse"),
        tuple(rows),
    )


def _product(blur: PeriodicBlur, right: Tensor, alpha: Tensor, inverse: tuple[int, int] | None) -> Callable[[], Tensor]:
    if inverse is None:
        return lambda: blur.solve(right, alpha)
    ones = torch.ones(inverse)
    return lambda: multiply(polynomial_inverse(alpha * blur.majorizer + 1.0, ones)[-1], right)


def _milliseconds(work: Callable[[], Tensor]) -> float:
    """Median processor time, after one run that is not counted."""
    work()
    times: list[float] = []
    for _ in range(REPEATS):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return 1e3 * median(times)
