"""Deconvolution: sparse coefficients by the linearised ADMM, and total variation by ADMM."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from deconvolution_pictures import DOUBLE, blurs, noisy
from good_runs import few_segments
from tamper import Array, Change, StoredRun, put, reevaluated

import surefoot as sf
from surefoot.deconvolution import LADMM, TVADMM, DeconvolutionProblem, OrthonormalWavelet, TotalVariationProblem
from surefoot_check.deconvolution import SYSTEM
from surefoot_check.deconvolution import enclosures as rigorous
from surefoot_check.deconvolution.sparse import Sparse

BLURS = blurs()

BLURS = blurs()
WAVELETS = dict(zip(BLURS, ("db2", "haar", "sym4", "coif1", "haar", "db5", "sym4", "db2", "db2", "haar"), strict=True))


def problem_of(name: str) -> DeconvolutionProblem:
    """Two pictures, of a penalty at which the start is far from the solution."""
    blur = BLURS[name]
    sharp = torch.rand(2, 1, *blur.domain, generator=torch.Generator().manual_seed(5), dtype=DOUBLE)
    W = OrthonormalWavelet(blur.domain, WAVELETS[name], 2)
    return DeconvolutionProblem(noisy(blur, sharp, 0.02), blur, 0.05, W)


def _make(name: str, path: Path) -> None:
    """A run of 20 iterations."""
    with few_segments():
        sf.descend(LADMM(0.5), problem_of(name), max_iterations=20, tolerance=0.0, directory=path, progress=False)


def _make_variation(name: str, path: Path) -> None:
    """The same of total variation."""
    problem = problem_of(name)
    variation = TotalVariationProblem(problem.observed, problem.blur, 0.05)
    with few_segments():
        sf.descend(TVADMM(0.1), variation, max_iterations=20, tolerance=0.0, directory=path, progress=False)


VARIATION = "total variation, "
"""Of the names of its runs, before that of the blur."""
RUNS: dict[str, Callable[[Path], None]] = {
    **{name: partial(_make, name) for name in BLURS},
    **{VARIATION + name: partial(_make_variation, name) for name in BLURS},
}


def published(run: StoredRun, name: str) -> float:
    return float.fromhex(run.certificate["quantities"][name])


def restated(run: StoredRun, **base: float) -> None:
    """The certificate with other base quantities, everything else recomputed from them."""
    run.certificates["certificate.json"] = reevaluated(run.certificate, base)


def enclosed(run: StoredRun) -> dict[str, tuple[float, float]]:
    """The base quantities of the arrays as they are."""
    problem = rigorous.load_problem(run.certificate["problem"]["kind"], run.arrays["problem.safetensors"])
    weights = rigorous.read_weights(run.weights, problem, "initial.safetensors")
    return rigorous.base_quantities(problem, weights, problem.stored_parameters(weights))


def remeasured(run: StoredRun, but: tuple[str, ...] = ("initial_gap",)) -> None:
    """The certificate with the true base quantities of changed arrays, ``but`` some as they were."""
    true = {k: high * (1.0 + 1e-9) for k, (_, high) in enclosed(run).items()}
    true |= {k: low * (1.0 - 1e-9) for k, (low, _) in enclosed(run).items() if SYSTEM.directions[k] == "lower"}
    problem = rigorous.load_problem(run.certificate["problem"]["kind"], run.arrays["problem.safetensors"])
    true |= problem.stored_parameters(run.weights)
    restated(run, **{k: value for k, value in true.items() if k not in but})


def with_parameters(run: StoredRun, **changed: float) -> None:
    """Other parameters in every file, and in the certificate."""
    order = ("alpha", "beta", "gamma", "adaptive", "inexact")
    for path, arrays in run.arrays.items():
        if path != "problem.safetensors":
            for name, value in changed.items():
                arrays["parameters"][order.index(name)] = value


def in_problem(
    name: str, edit: Callable[[Array], Array], again: bool = True, but: tuple[str, ...] = ("initial_gap",)
) -> Change:
    """A changed array, and, with ``again``, the true base quantities ``but`` some."""

    def apply(run: StoredRun) -> None:
        arrays = run.arrays["problem.safetensors"]
        arrays[name] = edit(arrays[name])
        if again:
            remeasured(run, but)

    return apply


def forged(run: StoredRun) -> None:
    """Everything true of the changed arrays, but for conditions that fail and are said to hold."""
    remeasured(run, ())
    assert not all(condition["holds"] for condition in run.certificate["conditions"])
    for condition in run.certificate["conditions"]:
        condition["holds"] = True


def parameter(**changed: float) -> Change:
    """Another solver in every file, with a certificate of its own."""

    def apply(run: StoredRun) -> None:
        with_parameters(run, **changed)
        for name in changed:
            if name in Sparse.flags:
                run.certificate["problem"][name] = True
        forged(run)

    return apply


def longer_filters(run: StoredRun) -> None:
    run.arrays["problem.safetensors"]["filters"] *= 1.01
    forged(run)


def moved_start(run: StoredRun) -> None:
    run.weights["z"] += 0.1 * np.random.default_rng(0).standard_normal(run.weights["z"].shape)
    remeasured(run)


def segment(index: int, place: int, edit: Callable[[Any], Any]) -> Change:
    def apply(run: StoredRun) -> None:
        entry = run.certificate["conclusion"]["schedule"][index]
        entry[place] = edit(float.fromhex(entry[place])).hex()

    return apply


def earlier(run: StoredRun) -> None:
    """A level of D/t ten per cent sooner."""
    schedule = run.certificate["conclusion"]["schedule"]
    sooner = int(0.9 * schedule[1][0])
    schedule[0][1], schedule[1][1] = sooner, schedule[1][1] + schedule[1][0] - sooner
    schedule[1][0] = sooner


def far_checkpoint(run: StoredRun) -> None:
    arrays = run.arrays[run.checkpoint]
    arrays["x"] = arrays["x"] + 30.0


REJECTED: dict[str, Change] = {
    "penalty published larger than it is": lambda run: restated(run, penalty=published(run, "penalty") * 2.0),
    "alpha beta above 1": parameter(alpha=2.01),
    "gamma too large": parameter(gamma=2.01),
    "alpha changed in the files only": lambda run: with_parameters(run, alpha=1.9),
    "adaptive in the files only": lambda run: with_parameters(run, adaptive=1.0),
    "adaptive everywhere": parameter(adaptive=1.0),
    "inexact in the files only": lambda run: with_parameters(run, inexact=1.0),
    "inexact everywhere": parameter(inexact=1.0),
    "kernel moved": in_problem("kernel", lambda k: np.roll(k, 1, -1)),
    "kernel brighter": in_problem("kernel", lambda k: 1.5 * k),
    "penalty changed": in_problem("penalty", lambda p: 3.0 * p),
    "picture changed": in_problem("observed", lambda y: y[..., ::-1, :].copy()),
    "boundary changed": in_problem("periodic", lambda p: 1 - p, False),
    "start moved": moved_start,
    "filters of a larger norm": in_problem("filters", lambda f: 1.01 * f, False),
    "filters of a larger norm, everything remeasured": longer_filters,
    "filters swapped": in_problem("filters", lambda f: f[::-1].copy()),
    "an optimal value": lambda run: put(run.certificate, ("optimal_value",), (1.0).hex()),
    "a level sooner": earlier,
    "another step": segment(0, 4, lambda step: 0.5 * step),
    "a checkpoint above the bound": far_checkpoint,
    "a negative kernel": in_problem("kernel", lambda k: -k, False),
    "a huge kernel": in_problem("kernel", lambda k: 1e3 * k, False),
    "an empty kernel": in_problem("kernel", lambda k: k[..., :0], False),
    "a kernel of one dimension": in_problem("kernel", np.ravel, False),
    "a kernel larger than the picture": in_problem(
        "kernel", lambda k: np.pad(k, [(0, 0)] * (k.ndim - 1) + [(0, 9)]), False
    ),
    "no levels": in_problem("levels", lambda n: 0 * n, False),
    "many levels": in_problem("levels", lambda n: 60 + n, False),
    "levels as floats": in_problem("levels", lambda n: n.astype(float), False),
    "a third boundary": in_problem("periodic", lambda p: 2 + p, False),
    "filters of odd length": in_problem("filters", lambda f: f[:, :-1].copy(), False),
    "three filters": in_problem("filters", lambda f: np.concatenate([f, f[:1]]), False),
    "long filters": in_problem("filters", lambda f: np.pad(f, ((0, 0), (0, 300))), False),
    "infinite filters": in_problem("filters", lambda f: f + np.inf, False),
    "no penalty": in_problem("penalty", lambda p: 0.0 * p, False),
    "a huge picture": in_problem("observed", lambda y: 1e200 * y, False),
    "a flat picture": in_problem("observed", np.ravel, False),
    "an iterate of another shape": lambda run: put(run.weights, ("x",), run.weights["x"][..., 1:]),
    "parameters of another shape": lambda run: put(run.weights, ("parameters",), run.weights["parameters"][:3]),
    "a flag of a half": lambda run: with_parameters(run, adaptive=0.5),
    "beta of zero": lambda run: with_parameters(run, beta=0.0),
    "beta negative": lambda run: with_parameters(run, beta=-0.5),
}
VARYING: dict[str, Change] = {
    "scales lowered": in_problem("scales", lambda c: c * (1.0 - 1e-9), False),
    "scales missing": lambda run: run.arrays["problem.safetensors"].pop("scales"),
    "weights missing": lambda run: run.arrays["problem.safetensors"].pop("weights"),
    "weights negative": in_problem("weights", lambda w: -w, False),
    "weights of another shape": in_problem("weights", lambda w: w[:, 1:], False),
    "weights reversed": in_problem("weights", lambda w: w[::-1].copy(), False),
    "one kernel": in_problem("kernel", lambda k: k[:1], False),
}
MASKED: dict[str, Change] = {
    "mask turned": in_problem("mask", lambda m: m[::-1].copy(), False),
    "mask turned, everything but the picture remeasured": lambda run: _other_mask(run, lambda m: m[::-1].copy()),
    "mask missing": lambda run: run.arrays["problem.safetensors"].pop("mask"),
    "mask missing, everything but V remeasured": lambda run: _other_mask(run, None),
    "mask of twos": in_problem("mask", lambda m: 2 * m, False),
    "mask as floats": in_problem("mask", lambda m: m.astype(float), False),
    "mask of another shape": in_problem("mask", lambda m: m[1:].copy(), False),
    "a picture where nothing was seen": in_problem("observed", lambda y: y + 0.1, False),
}


def _other_mask(run: StoredRun, edit: Callable[[Array], Array] | None) -> None:
    """Another mask, or none, and a picture that fits to it; the certificate's V of before."""
    arrays = run.arrays["problem.safetensors"]
    mask = arrays.pop("mask")
    if edit is not None:
        arrays["mask"] = edit(mask)
        arrays["observed"] = arrays["observed"] * arrays["mask"]
    remeasured(run)


OTHER_WORDS = ["alpha", "gamma", "adaptive", "inexact", "filters", "levels", "iterate", "parameters", "beta", "flag"]
TRUE_OF_VARIATION = "penalty changed"
"""From x = 0 and a multiplier of 0 the first change is the same for every penalty above β max ‖Dz_i‖."""
OF_VARIATION: dict[str, Change] = {
    **{case: change for case, change in REJECTED.items() if not {*OTHER_WORDS} & {*case.split()}},
    "beta changed in the files only": lambda run: _with_beta(run, 0.2),
    "beta of zero": lambda run: _with_beta(run, 0.0),
    "beta negative": lambda run: _with_beta(run, -0.1),
    "beta published smaller than it is": lambda run: restated(run, beta=0.5 * published(run, "beta")),
    "two parameters": lambda run: put(run.weights, ("parameters",), np.array([0.1, 0.1])),
    "differences along the rows alone": lambda run: put(run.weights, ("x",), run.weights["x"][..., :1, :, :]),
    "more pixels": lambda run: restated(run, pixels=0.5 * published(run, "pixels")),
    "squarer": lambda run: restated(run, aspect=0.9 * published(run, "aspect")),
    "constants that grow": lambda run: restated(run, constant_gain=1.5 * published(run, "constant_gain")),
    "of the kind of sparse coefficients": lambda run: put(run.certificate, ("problem", "kind"), "deconvolution"),
    "multipliers moved": lambda run: _moved_multipliers(run),
}

del OF_VARIATION[TRUE_OF_VARIATION]


def _with_beta(run: StoredRun, beta: float) -> None:
    for path, arrays in run.arrays.items():
        if path != "problem.safetensors":
            arrays["parameters"][0] = beta


def _moved_multipliers(run: StoredRun) -> None:
    run.weights["multiplier"] += 0.1 * np.random.default_rng(0).standard_normal(run.weights["multiplier"].shape)
    remeasured(run)


CASES: dict[str, dict[str, Change]] = {
    "periodic": REJECTED,
    "varying, valid": {**REJECTED, **VARYING},
    "masked, valid": MASKED,
    VARIATION + "valid": OF_VARIATION,
}
