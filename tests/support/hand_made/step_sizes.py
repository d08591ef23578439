"""Solvers with learned step sizes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from changes import bumped, edit, everywhere, field, reevaluate
from tamper import SCHEDULE, Change
from theorem_runs import STEP_SIZES, STEPS, step_sizes

RUNS: dict[str, Callable[[Path], None]] = {name: partial(step_sizes, name) for name in STEP_SIZES}


def one_problem_fewer(run: Any) -> None:
    """All arrays without their last problem: they fit each other, and the sizes in the certificate are stale."""
    for arrays in run.arrays.values():
        for name in set(arrays) - {"iteration", "certificate", "range"}:
            arrays[name] = arrays[name][:-1]


def early_for_late(run: Any) -> None:
    """The starting point passed off as the last iterate."""
    for path in (f"checkpoints/{STEPS:09d}.safetensors", "final.safetensors"):
        run.arrays[path]["x"] = run.weights["x"]


ANY: dict[str, Change] = {
    "start changed": edit("initial.safetensors", "x", bumped),
    "beta smaller everywhere": everywhere("beta", lambda b: 0.9 * b),
    "beta of one problem smaller everywhere": everywhere("beta", lambda b: bumped(b, -0.5 * b[0])),
    "range beyond 2 everywhere": everywhere("range", lambda r: np.array([r[0], 2.1])),
    "range wider everywhere": everywhere("range", lambda r: np.array([0.5 * r[0], min(2.0, r[1] + 0.05)]) + 1e-9),
    "range wider in a checkpoint": edit("checkpoint", "range", lambda r: np.array([0.0, 2.0 + r[1]])),
    "beta of a checkpoint smaller": edit("checkpoint", "beta", lambda b: 0.9 * b),
    "an iterate far off": edit("checkpoint", "x", lambda x: x + 50.0),
    "final iterate far off": edit("final.safetensors", "x", lambda x: x + 50.0),
    "one problem fewer": one_problem_fewer,
    "matrix larger": edit("problem.safetensors", "M", lambda M: 1.1 * M),
    "matrix changed": edit("problem.safetensors", "M", lambda M: bumped(M, 3.0)),
    "another step": field((*SCHEDULE, 0, 4), (0.3).hex()),
}
WITNESS: dict[str, Change] = {"witness far off": edit("problem.safetensors", "optimum", lambda V: V + 30.0)}
RATE: dict[str, Change] = {
    "beta larger everywhere": everywhere("beta", lambda b: 1.5 * b),
    "early for late": early_for_late,
}
LEAST_SQUARES: dict[str, Change] = {
    "target changed": edit("problem.safetensors", "Y", lambda Y: bumped(Y, 5.0)),
}
LASSO: dict[str, Change] = {
    "radius_energy tiny": reevaluate(radius_energy=1e-3),
    "lam smaller": edit("problem.safetensors", "lam", lambda v: 0.5 * v),
    "lam negative": edit("problem.safetensors", "lam", lambda v: -v),
}
LOGISTIC: dict[str, Change] = {
    "l2 smaller": edit("problem.safetensors", "l2", lambda v: 0.5 * v),
    "labels flipped": edit("problem.safetensors", "labels", lambda v: -v),
    "labels of other values": edit("problem.safetensors", "labels", lambda v: 2.0 * v),
}
CASES: dict[str, dict[str, Change]] = {
    "monotone": ANY,
    "rate": {**ANY, **RATE, **LEAST_SQUARES},
    "tall": {**RATE, **WITNESS, **LEAST_SQUARES},
    "prox-monotone": ANY,
    "lasso": {**ANY, **RATE, **WITNESS, **LASSO},
    "logistic": {**ANY, **RATE, **WITNESS, **LOGISTIC},
}
