"""The linearised ADMM for sparse deconvolution: docs/theorems/deconvolution.md, with dense matrices for every operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import mpmath
import numpy as np
from deconvolution_reference import change, exactly, identity, operators
from mpmath import mp, mpf

from .reference import UNIT, Array, Reference, frobenius, largest_seen

Arrays = Mapping[str, Array]
ITERATE = ("z", "x", "multiplier")


def images(problem: Arrays, weights: Arrays) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
    """Problem and iterate of each image."""
    lead, size = problem["observed"].shape[:-2], problem["kernel"].shape[-2:]
    shape = weights["z"].shape[-2:]
    pictures = problem["observed"].reshape(-1, *problem["observed"].shape[-2:])
    flat = {key: weights[key].reshape(-1, *shape) for key in ITERATE}
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
    penalty = mpf(float(problem["penalty"][0]))
    alpha, beta, gamma = exactly(weights["parameters"][:3], mpf)
    between = 1 / alpha - beta
    exact_majorizer = bool(problem["periodic"][0]) and "weights" not in problem
    blurs, blurs_seen, excesses, excesses_seen, misfits, objective = [], [], [], [], [], mpf(0)
    W = None
    for image, iterate in images(problem, weights):
        B, M, W = operators(image, iterate["z"].shape, mpf)
        y, z, x = (exactly(array.ravel(), mpf) for array in (image["observed"], iterate["z"], iterate["x"]))
        # no entry is negative: Schur's test by row and column sums; of one kernel both are at most its sum, Young's bound
        sums = B.sum(axis=1).max(), B.sum(axis=0).max()
        blur = sums[0] if "weights" not in problem else mp.sqrt(sums[0] * sums[1])
        blurs.append(blur)
        blurs_seen.append(largest_seen(mpmath.matrix(B.tolist())))
        largest = mpf(0)
        if not exact_majorizer:
            scales, kernels = ([1.0], [image["kernel"]])
            if "weights" in problem:
                scales, kernels = problem["scales"], problem["kernel"]
            largest = mpmath.fsum(
                mpf(float(c)) * exactly(k, mpf).sum() ** 2 for c, k in zip(scales, kernels, strict=True)
            )
        excesses.append(between + largest)
        S = M - B.T @ B + between * identity(len(M), mpf)
        excesses_seen.append(largest_seen(mpmath.matrix(S.tolist())))
        penalised = penalty * sum(abs(x))
        misfit = _norm(B @ z - y) + blur * _norm(z - W.T @ x)
        misfits.append(misfit**2 / 2 + penalised)
        objective += _norm(B @ (W.T @ x) - y) ** 2 / 2 + penalised
    assert W is not None
    size = _norm(exactly(problem["observed"], mpf))
    bound = min(size**2 / 2, mpmath.fsum(misfits)) if size > 0 else mpf(0)
    transform = (1 + filter_defect(problem["filters"])) ** int(problem["levels"][0])
    change_, error = gap(kind, problem, weights), _rounding(problem, weights)
    exactly_stored = {"alpha": alpha, "beta": beta, "gamma": gamma, "penalty": penalty}
    norms = {
        f"start_{name}": _norm(exactly(weights[key], mpf))
        for name, key in (("latent", "z"), ("coefficients", "x"), ("multiplier", "multiplier"))
    }
    return {
        "initial_gap": Reference(change_, 2 * mp.sqrt(change_) * error + error**2),
        "transform_norm": Reference(transform, 4 * UNIT, attained=largest_seen(mpmath.matrix(W.tolist()))),
        "blur_norm": _bound(max(blurs), max(blurs_seen)),
        "majorizer_excess": _bound(max(excesses), max(excesses_seen)),
        "objective_bound": _bound(bound, min(size**2 / 2, objective)),
        **{name: Reference(value) for name, value in exactly_stored.items()},
        **{name: Reference(value, 1e-12 * value) for name, value in norms.items()},
    }


def _bound(value: mpf, attained: mpf) -> Reference:
    return Reference(value, 1e-11 * value, attained=attained * (1 - mpf(10) ** -50))


def _rounding(problem: Arrays, weights: Arrays) -> mpf:
    """Of √V in floats: what is computed has the size of the picture, the iterate and the threshold, in the norm of the method."""
    alpha, beta, gamma = exactly(weights["parameters"][:3], mpf)
    z, x, mu = (_norm(exactly(weights[key], mpf)) for key in ITERATE)
    slope = _norm(exactly(problem["observed"], mpf)) + z + mu + beta * (z + x)
    shrunk = x + gamma * (mu + beta * (z + x)) + gamma * mpf(float(problem["penalty"][0])) * mp.sqrt(weights["x"].size)
    parts = slope * (mp.sqrt(alpha) + 1) + shrunk / mp.sqrt(gamma) + (mu + beta * (z + shrunk)) / mp.sqrt(beta)
    return 65536 * UNIT * parts


def gap(kind: object, problem: Arrays, weights: Arrays) -> mpf:
    return mpmath.fsum(change(image, iterate) for image, iterate in images(problem, weights))
