"""The solvers of deconvolution: docs/theorems/deconvolution.md, with dense matrices for every operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import mpmath
import numpy as np
from deconvolution_reference import change, exactly, operators
from mpmath import mp, mpf

from .reference import UNIT, Array, Reference, frobenius, largest_seen

Arrays = Mapping[str, Array]
ITERATE = ("z", "x", "multiplier")


def images(problem: Arrays, weights: Arrays) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
    """Problem and iterate of each image."""
    lead, size = problem["observed"].shape[:-2], problem["kernel"].shape[-2:]
    shape, layers = weights["z"].shape[-2:], weights["x"].shape[weights["z"].ndim - 2 : -2]
    pictures = problem["observed"].reshape(-1, *problem["observed"].shape[-2:])
    flat = {key: weights[key].reshape(len(pictures), *(() if key == "z" else layers), *shape) for key in ITERATE}
    kernels = [problem["kernel"]] * len(pictures)
    if "weights" not in problem:
        kernels = list(np.broadcast_to(problem["kernel"], lead + size).reshape(-1, *size))
    for i, (picture, kernel) in enumerate(zip(pictures, kernels, strict=True)):
        iterate = {key: flat[key][i] for key in ITERATE}
        yield {**problem, "observed": picture, "kernel": kernel}, {**iterate, "parameters": weights["parameters"]}


def filter_defect(filters: Array) -> mpf:
    """The largest row sum of |FFᵀ - I|, F the bands of the low-pass and the high-pass filter."""
    rows, length = exactly(filters, mpf), filters.shape[1]
    worst = mpf(0)
    for i, row in enumerate(rows):
        total = mpf(0)
        for j, other in enumerate(rows):
            for shift in range(-length, length + 1, 2):
                inner = mpmath.fsum(row[t] * other[t - shift] for t in range(length) if 0 <= t - shift < length)
                total += abs(inner - (1 if i == j and shift == 0 else 0))
        worst = max(worst, total)
    return worst


def _norm(A: Array) -> mpf:
    return frobenius(A.ravel())


def quantities(kind: object, problem: Arrays, weights: Arrays, published: Mapping[str, float]) -> dict[str, Reference]:
    exact_majorizer = bool(problem["periodic"][0]) and not {"weights", "mask"} & problem.keys()
    blurs, blurs_seen, excesses, excesses_seen, gains = [], [], [], [], []
    for image, iterate in images(problem, weights):
        B, M, _ = operators(image, iterate["z"].shape, mpf)
        # no entry is negative: Schur's test by row and column sums; of one kernel both are at most its sum, Young's bound
        sums = B.sum(axis=1).max(), B.sum(axis=0).max()
        blurs.append(sums[0] if "weights" not in problem else mp.sqrt(sums[0] * sums[1]))
        blurs_seen.append(largest_seen(mpmath.matrix(B.tolist())))
        gains.append(_norm(B.sum(axis=1)) / mp.sqrt(len(M)))
        largest = mpf(0)
        if not exact_majorizer:
            scales, kernels = ([1.0], [image["kernel"]])
            if "weights" in problem:
                scales, kernels = problem["scales"], problem["kernel"]
            largest = mpmath.fsum(
                mpf(float(c)) * exactly(k, mpf).sum() ** 2 for c, k in zip(scales, kernels, strict=True)
            )
        excesses.append(largest)
        excesses_seen.append(largest_seen(mpmath.matrix((M - B.T @ B).tolist())))
    change, error = gap(kind, problem, weights), _rounding(kind, problem, weights)
    found = {
        "initial_gap": Reference(change, 2 * mp.sqrt(change) * error + error**2),
        "blur_norm": _bound(max(blurs), max(blurs_seen)),
        "penalty": Reference(mpf(float(problem["penalty"][0]))),
        **_sizes(weights, ("start_latent", "start_coefficients", "start_multiplier")),
    }
    if kind == "total-variation":
        size = _norm(exactly(problem["observed"], mpf))
        pixels, sides = mpf(weights["z"].size), weights["z"].shape[-2:]
        return found | {
            "beta": Reference(mpf(float(weights["parameters"][0]))),
            "objective_bound": _objective(problem, weights, blurs),
            "majorizer_excess": _bound(max(excesses), max(excesses_seen)),
            "constant_gain": Reference(min(gains), 1e-11),
            "observed_norm": Reference(size, 1e-12 * size),
            "pixels": Reference(pixels),
            "aspect": Reference(mpf(max(sides)) / min(sides), 1e-15),
            **_sizes(weights, ("start_latent", "start_differences", "start_multiplier")),
        }
    alpha, beta, gamma = exactly(weights["parameters"][:3], mpf)
    between = 1 / alpha - beta
    _, iterate = next(images(problem, weights))
    W = operators(dict(problem), iterate["z"].shape, mpf)[2]
    transform = (1 + filter_defect(problem["filters"])) ** int(problem["levels"][0])
    return found | {
        "transform_norm": Reference(transform, 4 * UNIT, attained=largest_seen(mpmath.matrix(W.tolist()))),
        "majorizer_excess": _bound(max(excesses) + between, max(excesses_seen) + between),
        "objective_bound": _objective(problem, weights, blurs),
        **{name: Reference(value) for name, value in (("alpha", alpha), ("beta", beta), ("gamma", gamma))},
    }


def _sizes(weights: Arrays, names: tuple[str, ...]) -> dict[str, Reference]:
    sizes = [_norm(exactly(weights[key], mpf)) for key in ITERATE]
    return {name: Reference(size, 1e-12 * size) for name, size in zip(names, sizes, strict=True)}


def _objective(problem: Arrays, weights: Arrays, blurs: list[mpf]) -> Reference:
    """The objective at the start, or at 0; of sparse coefficients as bounded from B at z."""
    penalty, misfits, objective = mpf(float(problem["penalty"][0])), [], mpf(0)
    for (image, iterate), blur in zip(images(problem, weights), blurs, strict=True):
        B, _, transform = operators(image, iterate["z"].shape, mpf)
        y, z, x = (exactly(array.ravel(), mpf) for array in (image["observed"], iterate["z"], iterate["x"]))
        if "filters" in problem:
            penalised, seen = penalty * sum(abs(x)), transform.T @ x
            misfit = _norm(B @ z - y) + blur * _norm(z - seen)
        else:
            slopes, seen = (transform @ z).reshape(2, -1), z
            penalised = penalty * mpmath.fsum(mp.sqrt(a * a + b * b) for a, b in slopes.T)
            misfit = _norm(B @ z - y)
        misfits.append(misfit**2 / 2 + penalised)
        objective += _norm(B @ seen - y) ** 2 / 2 + penalised
    size = _norm(exactly(problem["observed"], mpf))
    bound = min(size**2 / 2, mpmath.fsum(misfits)) if size > 0 else mpf(0)
    return _bound(bound, min(size**2 / 2, objective))


def _bound(value: mpf, attained: mpf) -> Reference:
    return Reference(value, 1e-11 * value, attained=attained * (1 - mpf(10) ** -50))


def _rounding(kind: object, problem: Arrays, weights: Arrays) -> mpf:
    """Of √V in floats: what is computed has the size of the picture, the iterate and the threshold, in the norm of the method."""
    z, x, mu = (_norm(exactly(weights[key], mpf)) for key in ITERATE)
    y, penalty = _norm(exactly(problem["observed"], mpf)), mpf(float(problem["penalty"][0]))
    if kind == "total-variation":
        beta = mpf(float(weights["parameters"][0]))
        slope = y + z + 3 * mu + 3 * beta * (3 * z + x)
        least = min(
            mpf(1) / 64, 16 * beta / max(weights["z"].shape[-2:]) ** 2
        )  # of M + βDᵀD; gains are above an eighth
        parts = slope / mp.sqrt(least) + mp.sqrt(beta) * (z + x) + mu / mp.sqrt(beta)
        return 65536 * UNIT * parts + mpf(10) ** -160  # underflow
    alpha, beta, gamma = exactly(weights["parameters"][:3], mpf)
    slope = y + z + mu + beta * (z + x)
    shrunk = x + gamma * (mu + beta * (z + x)) + gamma * penalty * mp.sqrt(weights["x"].size)
    parts = slope * (mp.sqrt(alpha) + 1) + shrunk / mp.sqrt(gamma) + (mu + beta * (z + shrunk)) / mp.sqrt(beta)
    return 65536 * UNIT * parts


def gap(kind: object, problem: Arrays, weights: Arrays) -> mpf:
    return mpmath.fsum(change(image, iterate) for image, iterate in images(problem, weights))
