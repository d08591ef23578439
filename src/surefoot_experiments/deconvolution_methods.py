"""The solvers of the deconvolution table, each with its time and its products with the blur."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from surefoot._deconvolution.admm import LADMM
from surefoot._deconvolution.learned.network import LearnedDeconvolution
from surefoot._deconvolution.operators import Blur
from surefoot._deconvolution.photo.priors import PRIORS, Settings, prior
from surefoot._deconvolution.problem import DeconvolutionProblem, default_penalty
from surefoot._deconvolution.wiener import gradient_wiener, wiener

from .deconvolution_peers import restored

BETA = 10.0
"""β over λ: the fastest of 3, 5, 10, 20 and 30 for noise of 1-3 % on training photographs, within a few iterations."""
TOLERANCE = 1e-2
LIMIT = 100
"""Iterations of L-ADMM: with periodic border more than it needs. With an unknown border it does not reach the tolerance in 300,
and its PSNR has settled before; the adaptive variant need not reach it at all."""
BLURRED, WIENER, GRADIENT_WIENER = "blurred", "Wiener", "gradient-Wiener"
FIXED, FIXED_SINGLE, ADAPTIVE = "fL-ADMM", "fL-ADMM, float32, no gap", "aL-ADMM"
D_MINV, LD_MINV = "D-NbD (D-Minv)", "D-NbD (LD-Minv)"
LEARNED = "learned"
NETWORKS = (D_MINV, LD_MINV, LEARNED)
OTHER_PRIORS = {f"{name} prior": name for name in PRIORS if name != "wavelet"}
"""Rows of the priors of ``deblur`` beside the wavelets of L-ADMM, and their names there."""
DEFAULTS = Settings(iterations=None, tolerance=TOLERANCE, power=2.0 / 3.0)


@dataclass(frozen=True)
class Restored:
    """An image under the observed picture, processor seconds, and products with B, Bᵀ or an inverse filter (``None``: not
    counted)."""

    image: Tensor
    seconds: float
    applications: int | None
    iterations: int = 0


def restore_all(
    observed: Tensor, blur: Blur, noise: float, nets: Mapping[str, LearnedDeconvolution], extra: tuple[str, ...] = ()
) -> dict[str, Restored]:
    """Every solver on one image (h, w), float64; the networks, by the names of their rows, in float32."""
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
    for row, name in OTHER_PRIORS.items():
        results[row] = _timed(lambda name=name: by_prior(name, observed, blur, noise))
    for row, net in nets.items():
        results[row] = _timed(lambda net=net: _proposed(net, single, small, noise))
    for name in extra:
        results[name] = _timed(lambda name=name: (_by_peer(name, observed, blur, noise), None, 0))
    return results


def by_prior(name: str, observed: Tensor, blur: Blur, noise: float) -> tuple[Tensor, int, int]:
    """One image (h, w) by a prior of ``deblur`` with its defaults, with the products and iterations that it took."""
    found = prior(name, DEFAULTS).restore(observed[None], blur, noise)
    return blur.crop(found.latent[0]), found.applications, found.iterations


def _proposed(net: LearnedDeconvolution, observed: Tensor, blur: Blur, noise: float) -> tuple[Tensor, int, int]:
    with torch.no_grad():
        image = blur.crop(net(observed, blur, noise))
    return image, net.applications(blur), len(net.layers)


def _by_peer(name: str, observed: Tensor, blur: Blur, noise: float) -> Tensor:
    return torch.from_numpy(restored(name, observed.numpy(), blur.kernel.numpy(), noise, blur.exact_majorizer))


def _timed(solve: Callable[[], tuple[Tensor, int | None, int]]) -> Restored:
    begin = time.process_time()
    image, applications, iterations = solve()
    return Restored(image.double(), time.process_time() - begin, applications, iterations)
