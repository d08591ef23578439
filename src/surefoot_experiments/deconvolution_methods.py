"""The solvers of the deconvolution table, each with its time and its products with the blur."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from surefoot._deconvolution.admm import LADMM
from surefoot._deconvolution.network import LearnedDeconvolution
from surefoot._deconvolution.operators import Blur
from surefoot._deconvolution.problem import DeconvolutionProblem, default_penalty
from surefoot._deconvolution.wiener import gradient_wiener, wiener

BETA = 10.0
"""β over λ: the fastest of 3, 5, 10, 20 and 30 for noise of 1-3 % on training photographs, within a few iterations."""
TOLERANCE = 1e-2
LIMIT = 100
"""Iterations of L-ADMM: with periodic border more than it needs. With an unknown border it does not reach the tolerance in 300,
and its PSNR has settled before; the adaptive variant need not reach it at all."""
RICHARDSON_LUCY = {0.01: 30, 0.02: 15, 0.03: 10}
"""Iterations by noise level: more only raise the noise."""
BLURRED, WIENER, GRADIENT_WIENER = "blurred", "Wiener", "gradient-Wiener"
FIXED, FIXED_SINGLE, ADAPTIVE = "fL-ADMM", "fL-ADMM, float32, no gap", "aL-ADMM"
LEARNED, UNSUPERVISED_WIENER, LUCY = "learned", "scikit-image unsupervised Wiener", "scikit-image Richardson-Lucy"
PEERS = (UNSUPERVISED_WIENER, LUCY)


@dataclass(frozen=True)
class Restored:
    """An image under the observed picture, seconds, and products with B, Bᵀ or an inverse filter (``None``: not counted)."""

    image: Tensor
    seconds: float
    applications: int | None
    iterations: int = 0


def peers() -> tuple[str, ...]:
    """Those of scikit-image, where it can be imported."""
    return PEERS if importlib.util.find_spec("skimage") else ()


def restore_all(
    observed: Tensor, blur: Blur, noise: float, net: LearnedDeconvolution, extra: tuple[str, ...] = ()
) -> dict[str, Restored]:
    """Every solver on one image (h, w), float64; the network in float32."""
    results = {BLURRED: Restored(observed, 0.0, 0)}
    plain = 2 if blur.exact_majorizer else None
    results[WIENER] = _timed(lambda: (blur.crop(wiener(blur, observed, noise)), plain, 0))
    results[GRADIENT_WIENER] = _timed(lambda: (blur.crop(gradient_wiener(blur, observed, noise)), plain, 0))
    problem = DeconvolutionProblem(observed, blur, default_penalty(noise))
    beta = BETA * problem.penalty

    def solved(solver: LADMM) -> tuple[Tensor, int, int]:
        solution = solver.solve(problem, LIMIT, tolerance=TOLERANCE)
        return solution.image, solution.applications, solution.iterations

    results[FIXED] = _timed(lambda: solved(LADMM(beta)))
    results[ADAPTIVE] = _timed(lambda: solved(LADMM(beta, adaptive=True)))
    single, small = observed.float(), blur.to(torch.float32)

    def unchecked() -> tuple[Tensor, int, int]:
        given, solver = DeconvolutionProblem(single, small, problem.penalty), LADMM(beta)
        state = solver.start(given)
        for k in range(results[FIXED].iterations):
            state = solver.step(given, state, k)
        return small.crop(state.synthesis), state.applications, results[FIXED].iterations

    if blur.exact_majorizer:
        results[FIXED_SINGLE] = _timed(unchecked)
    with torch.no_grad():
        results[LEARNED] = _timed(
            lambda: (small.crop(net(single, small, noise)), net.applications(blur), len(net.layers))
        )
    for name in extra:
        results[name] = _timed(lambda name=name: (_peer(name, observed, blur, noise), None, 0))
    return results


def _timed(solve: Callable[[], tuple[Tensor, int | None, int]]) -> Restored:
    begin = time.perf_counter()
    image, applications, iterations = solve()
    return Restored(image.double(), time.perf_counter() - begin, applications, iterations)


def _peer(name: str, observed: Tensor, blur: Blur, noise: float) -> Tensor:
    """scikit-image on the observed picture; a periodic one is continued by its own opposite side first."""
    from skimage import restoration  # pyright: ignore[reportMissingImports]

    kernel = np.asarray(blur.kernel)
    margin = max(kernel.shape) if blur.exact_majorizer else 0
    image = np.pad(observed.numpy(), margin, mode="wrap")
    if name == LUCY:
        count = RICHARDSON_LUCY.get(noise, round(0.3 / noise))
        sharpened = restoration.richardson_lucy(np.maximum(image, 1e-6), kernel, num_iter=max(1, count))
    else:
        sharpened, _ = restoration.unsupervised_wiener(image, kernel, rng=0)
    inside = slice(margin, -margin or None)
    return torch.from_numpy(np.ascontiguousarray(sharpened[inside, inside]))
