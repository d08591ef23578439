"""A trained deconvolution network beside the classical solvers, on crops that it was not trained on."""

from __future__ import annotations

import copy

import torch

from ..admm import LADMM
from ..metrics import psnr
from ..problem import DeconvolutionProblem, default_penalty
from ..wiener import gradient_wiener
from .network import LearnedDeconvolution
from .training_data import TrainingData

COMPARED = 16
"""Crops restored at each noise level."""
LADMM_BETA, LADMM_ITERATIONS = 10.0, 80
"""β over λ where L-ADMM is fastest, and iterations that reach a relative duality gap of about 1e-2."""


def compared(
    net: LearnedDeconvolution, data: TrainingData, *, crop: int = 128, seed: int = 0
) -> list[dict[str, float]]:
    """Mean PSNR at 1, 2 and 3 % noise on the crops that ``train`` keeps for validation, periodic blur.

    L-ADMM takes as many iterations as it usually needs to a relative duality gap of 1e-2.
    """
    net = copy.deepcopy(net).cpu()
    validating = data.split()[1]
    rows: list[dict[str, float]] = []
    for noise in (0.01, 0.02, 0.03):
        batch = validating.draw(COMPARED, crop, torch.Generator().manual_seed(seed + 3), noise=noise)
        problem = DeconvolutionProblem(batch.observed, batch.blur, default_penalty(noise))
        solver = LADMM(LADMM_BETA * problem.penalty)
        with torch.no_grad():
            images = {
                "blurred": batch.observed,
                "gradient-Wiener": gradient_wiener(batch.blur, batch.observed, noise),
                "L-ADMM": solver.solve(problem, LADMM_ITERATIONS, tolerance=0.0).image,
                "learned": net(batch.observed, batch.blur, noise),
            }
        rows.append({"noise": noise, **{name: float(psnr(z, batch.sharp).mean()) for name, z in images.items()}})
    return rows
