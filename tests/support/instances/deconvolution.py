"""Deconvolution of small pictures by both solvers: every kind of blur, and starts of one's own."""

from __future__ import annotations

from collections.abc import Callable

import torch
from deconvolution_pictures import kernel, masked, weights
from enclosed import Stored, certified
from torch import Tensor

from surefoot._deconvolution.admm import State
from surefoot._deconvolution.total_variation import differences
from surefoot._deconvolution.wavelets import OrthonormalWavelet
from surefoot.deconvolution import (
    LADMM,
    TVADMM,
    DeconvolutionProblem,
    PeriodicBlur,
    SpatiallyVaryingBlur,
    TotalVariationProblem,
    TVState,
    ValidBlur,
)

from .arrays import DOUBLE, normal


class Started(LADMM):
    """From a random start, with a multiplier that is not 0."""

    def start(self, problem: DeconvolutionProblem) -> State:
        x, z, mu = (
            0.3 * normal(*problem.observed.shape[:-2], *problem.blur.domain, seed=seed) for seed in (40, 41, 42)
        )
        return State(z, x, mu, problem.wavelet.synthesis(x))


class StartedVariation(TVADMM):
    """The same for total variation."""

    def start(self, problem: TotalVariationProblem) -> TVState:
        lead, domain = problem.observed.shape[:-2], problem.blur.domain
        z, x, mu = (
            0.3 * normal(*lead, *size, seed=40 + i) for i, size in enumerate((domain, (2, *domain), (2, *domain)))
        )
        return TVState(z, x, mu, differences(z))


def picture(*shape: int, scale: float = 1.0) -> Tensor:
    """Intensities of 0 to ``scale``."""
    return scale * torch.rand(*shape, generator=torch.Generator().manual_seed(43), dtype=DOUBLE)


def families() -> dict[str, Callable[[], tuple[LADMM, DeconvolutionProblem]]]:
    """Solvers and problems by name."""
    periodic, valid = PeriodicBlur(kernel(3, 2), (5, 4)), ValidBlur(kernel(2, 3), (4, 5))
    several = PeriodicBlur(torch.stack([kernel(2, 2, 0), kernel(2, 2, 1)]), (4, 4))
    varying = torch.stack([kernel(2, 2, seed) for seed in range(2)])

    def of(solver: LADMM, blur, picture: Tensor, penalty: float = 0.05, wavelet: str = "haar"):
        return solver, DeconvolutionProblem(picture, blur, penalty, wavelet)

    return {
        "periodic": lambda: of(LADMM(0.5), periodic, picture(5, 4)),
        "periodic, long filters": lambda: of(LADMM(0.5), periodic, picture(5, 4), 0.05, "sym4"),
        "two levels, odd picture": lambda: of(
            Started(0.5), PeriodicBlur(kernel(3, 2), (5, 6)), picture(5, 6), 0.05, OrthonormalWavelet((5, 6), "db2", 2)
        ),
        "valid": lambda: of(LADMM(0.5), valid, picture(*valid.range)),
        "varying, periodic": lambda: of(
            LADMM(0.5), SpatiallyVaryingBlur(varying, weights(2, 4, 4), "periodic"), picture(4, 4)
        ),
        "varying, valid": lambda: of(
            LADMM(0.5), SpatiallyVaryingBlur(varying, weights(2, 3, 4), "valid"), picture(3, 4)
        ),
        "a kernel for each picture": lambda: of(LADMM(0.5), several, picture(2, 4, 4)),
        "two pictures": lambda: of(LADMM(1.0), PeriodicBlur(kernel(3, 3), (4, 3)), picture(2, 4, 3)),
        "a start of one's own": lambda: of(Started(0.5), periodic, picture(5, 4)),
        "a start of one's own, valid": lambda: of(Started(0.3, 0.5, 0.7), valid, picture(*valid.range)),
        "other parameters": lambda: of(LADMM(2.0, 0.1, 0.3), periodic, picture(5, 4)),
        "small beta": lambda: of(LADMM(1e-3), periodic, picture(5, 4)),
        "small penalty": lambda: of(LADMM(0.5), valid, picture(*valid.range), 1e-7),
        "large penalty": lambda: of(LADMM(0.5), periodic, picture(5, 4), 30.0),
        "dark": lambda: of(LADMM(0.5), periodic, picture(5, 4, scale=1e-8)),
        "black": lambda: of(LADMM(0.5), periodic, torch.zeros(5, 4, dtype=DOUBLE)),
    }


def variation() -> dict[str, Callable[[], tuple[TVADMM, TotalVariationProblem]]]:
    """The same for total variation."""
    periodic, valid = PeriodicBlur(kernel(3, 2), (5, 4)), ValidBlur(kernel(2, 3), (4, 5))
    several = PeriodicBlur(torch.stack([kernel(2, 2, 0), kernel(2, 2, 1)]), (4, 4))
    varying = torch.stack([kernel(2, 2, seed) for seed in range(2)])

    def of(solver: TVADMM, blur, picture: Tensor, penalty: float = 0.05):
        return solver, TotalVariationProblem(picture, blur, penalty)

    return {
        "periodic": lambda: of(TVADMM(0.5), periodic, picture(5, 4)),
        "valid": lambda: of(TVADMM(0.5), valid, picture(*valid.range)),
        "varying, periodic": lambda: of(
            TVADMM(0.5), SpatiallyVaryingBlur(varying, weights(2, 4, 4), "periodic"), picture(4, 4)
        ),
        "a kernel for each picture": lambda: of(TVADMM(0.5), several, picture(2, 4, 4)),
        "a start of one's own": lambda: of(StartedVariation(0.5), periodic, picture(5, 4)),
        "a start of one's own, valid": lambda: of(StartedVariation(0.3), valid, picture(2, *valid.range)),
        "small beta": lambda: of(TVADMM(1e-3), periodic, picture(5, 4)),
        "small penalty": lambda: of(TVADMM(0.5), valid, picture(*valid.range), 1e-7),
        "black": lambda: of(TVADMM(0.5), periodic, torch.zeros(5, 4, dtype=DOUBLE)),
        "masked": lambda: of(TVADMM(0.5), masked(periodic), picture(5, 4)),
        "one row": lambda: of(TVADMM(0.5), PeriodicBlur(kernel(1, 3), (1, 7)), picture(1, 7)),
    }


def instances(theorem: str) -> dict[str, Callable[[], Stored]]:
    """Every family."""
    built = variation() if theorem == "deconvolution/tv" else families()
    return {name: lambda b=build: certified(*b(), theorem) for name, build in built.items()}
