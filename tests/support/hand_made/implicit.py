"""Implicit networks near an exact fit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from changes import bumped, edit, everywhere, faster, field, reevaluate, scaled
from good_runs import nearly_fitted_implicit
from tamper import SCHEDULE, Array, Change, StoredRun

import surefoot as sf


def _descended(theorem: str, seed: int, path: Path) -> None:
    net, loss = nearly_fitted_implicit(seed)
    certificate = sf.certify(net, loss, theorem)
    assert certificate.holds, str(certificate)
    sf.descend(net, loss, max_iterations=12, certificate=certificate, directory=path, progress=False)


RUNS: dict[str, Callable[[Path], None]] = {
    "local": partial(_descended, "implicit/local", 1),
    "near": partial(_descended, "implicit/exact-fit", 2),
}


def without_margin(run: StoredRun) -> None:
    """As if relu had no kink: neither the quantity nor the condition."""
    del run.certificate["quantities"]["kink_margin"]
    run.certificate["conditions"] = [c for c in run.certificate["conditions"] if "kink" not in c["name"]]


def on_a_kink(W: Array) -> Array:
    """A unit that sees 0 on every row."""
    W = W.copy()
    W[:, 0] = 0.0
    return W


BOTH: dict[str, Change] = {
    "ball smaller": reevaluate({"ball": 0.5}),
    "ball much larger": reevaluate({"ball": 1e6}),
    "ball larger, constants those of the smaller": reevaluate({"ball": 1.5}),
    "ball negative": reevaluate({"ball": -1.0}),
    "ball missing": lambda run: run.certificate["quantities"].pop("ball"),
    "radius smaller, alone": scaled(("quantities", "radius"), 1.0 - 1e-6),
    "radius 0, alone": field(("quantities", "radius"), (0.0).hex()),
    "Lipschitz constant smaller": reevaluate(lipschitz_J=1.0 - 1e-6),
    "Lipschitz constant 0": reevaluate(lipschitz_J=0.0),
    "least singular value larger": reevaluate(sigma_min_J=1.0 + 1e-6),
    "gap smaller": reevaluate(initial_gap=1.0 - 1e-6),
    "margin larger": reevaluate(kink_margin=1.0 + 1e-6),
    "margin below 1": reevaluate(kink_margin=1e-9),
    "no kinks": without_margin,
    "gamma larger everywhere": everywhere("gamma", lambda g: 1.01 * g),
    "no contraction": everywhere("gamma", lambda g: 100.0 * g),
    "A changed everywhere": everywhere("A", lambda A: 0.9 * A),
    "a unit on its kink everywhere": everywhere("W", on_a_kink),
    "initial b changed": edit("initial.safetensors", "b", bumped),
    "W of a checkpoint far off": edit("checkpoint", "W", lambda W: bumped(W, 5.0)),
    "final b far off": edit("final.safetensors", "b", lambda b: bumped(b, 5.0)),
    "target changed": edit("problem.safetensors", "Y", lambda Y: bumped(Y, 1.0)),
    "data changed": edit("problem.safetensors", "X", lambda X: 0.9 * X),
    "equal rows": edit("problem.safetensors", "X", lambda X: X[[0, 0, 2]]),
    "a row of zeros": edit("problem.safetensors", "X", lambda X: X * np.array([[1.0], [1.0], [0.0]])),
    "the theorem of features that stay": lambda run: run.certificate.update(theorem="implicit/measured"),
}
CASES: dict[str, dict[str, Change]] = {
    "local": {
        **BOTH,
        "norm smaller": reevaluate(norm_J=1.0 - 1e-6),
        "floor step larger": reevaluate({"eta": 1.0 + 1e-3}),
        "floor step twice": reevaluate({"eta": 2.0}),
        "first step larger": scaled((*SCHEDULE, 0, 4), 1.0 + 1e-6),
        "the theorem of Newton steps": lambda run: run.certificate.update(theorem="implicit/exact-fit"),
    },
    "near": {
        **BOTH,
        "Newton step shorter": reevaluate(newton_step=1.0 - 1e-6),
        "Newton step 0": reevaluate(newton_step=0.0),
        "a contraction that is faster, alone": scaled(("quantities", "contraction"), 1.0 - 1e-6),
        "a decrease beyond the rate": faster(add=1e-2),
        "the theorem of descent": lambda run: run.certificate.update(theorem="implicit/local"),
    },
}
