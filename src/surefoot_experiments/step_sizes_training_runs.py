"""What a training of step sizes is made of, and how far the printed conditions are from holding."""

from __future__ import annotations

import math
from typing import Any

from surefoot._step_sizes.as_printed import layer_quantities, log10, right_sides

from .step_sizes_runs import (
    FORMAT,
    ITERATIONS,
    Setting,
)

LEARNED = "learned"


def about(setting: Setting, sets: int) -> dict[str, Any]:
    """What fixes the numbers of the trained networks."""
    return {
        "problems": "published code: Gaussian M with unit columns, Y = M x̂, x̂ Gaussian",
        "T": ITERATIONS,
        "beta": "the largest of all problems, for learned and constant steps",
        "layers": f"2 -> 2 -> {setting.size.hidden} -> 1, relu, no biases; the first two orthogonal times e, the last 0",
        "e": setting.expansion,
        "learning rate": setting.rate,
        "training": f"{setting.optimizer}, {setting.gradient} gradient of the summed objective; the best network counts",
        "improvement": "(F_GD - F)/F_GD with F the sum over the problems of F - F*, GD with 1/beta",
        "fresh sets": sets,
        "files": FORMAT,
    }


CONDITIONS = ("13a", "13b", "13c", "13d")


POWERS = {"13a": 2.0, "13b": 3.0, "13c": 2.0, "13d": 1.0}


def shortfalls(setting: Setting) -> dict[str, float]:
    """Decades by which α0² (13a, 13c), α0³ (13b) and α0 (13d) are at least too small at the start of training.

    σ_min of the last inner output is at most its Frobenius norm, which stands for it: the true shortfall is larger. C_ℓ = 1.
    """
    problems, net = setting.size.problems(setting.seed), setting.network()
    solution = net.solve(problems, ITERATIONS - 1, smoothness="common").solution
    gradient = problems.gradient(solution)
    inputs, squares = [solution.reshape(-1), gradient.reshape(-1)], 0.0
    W1, W2, _ = net.matrices
    hidden = (W1[:, :1] * inputs[0] + W1[:, 1:] * inputs[1]).relu()
    for block in W2.split(512):
        squares += float((block @ hidden).relu().square().sum())
    norms = [float(W.norm() if not bool(W.any()) else W.svd().S[0]) for W in net.matrices]
    q = {
        "T": float(ITERATIONS),
        "beta": problems.common_smoothness,
        "beta0": float(problems.strong_convexity.min()),
        "norm_X0": 0.0,
        "norm_Y": float(problems.Y.norm()),
        "norm_MtY": float(problems.adjoint(problems.Y).norm()),
        "alpha0": math.sqrt(squares),
        **layer_quantities(norms),
    }
    right = right_sides(q)
    return {name: right[name] - POWERS[name] * log10(q["alpha0"]) for name in CONDITIONS}


def place_in_paper(figure: str) -> str:
    """Where the paper has a figure, such as ``"fig3"``."""
    number = int(figure.removeprefix("fig"))
    return f"Figure {number}" + (" and section 6" if number <= 5 else ", appendix C.1")
