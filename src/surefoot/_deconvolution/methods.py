"""What is different about the certificates of the two solvers: their theorems, their arrays, and what is measured in floats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from surefoot_check.deconvolution import ladmm, total_variation
from surefoot_check.deconvolution.change import MonotoneChange
from surefoot_check.deconvolution.pictures import Picture
from surefoot_check.deconvolution.sparse import Sparse
from surefoot_check.deconvolution.variation import Variation
from surefoot_check.rigor.bounds import up

from .admm import LADMM
from .operators import Blur
from .problem import DeconvolutionProblem, ObservedPicture
from .solver import AnySolver
from .total_variation import TVADMM, TotalVariationProblem
from .wavelets import OrthonormalWavelet

N = TypeVar("N", bound=AnySolver)
P = TypeVar("P", bound=ObservedPicture)


class Method(ABC, Generic[N, P]):
    """A solver with its theorem.

    Attributes:
        solver, problem: their classes.
        theorem: of the checker.
        directions: in which the published base quantities of that err.
        checked: its problems in the checker.
    """

    solver: type[N]
    problem: type[P]
    theorem: ClassVar[MonotoneChange]
    directions: ClassVar[Mapping[str, str]]
    checked: ClassVar[type[Picture]]

    def flags(self, net: N) -> dict[str, bool]:
        """What a certificate states of the solver beside its parameters."""
        return {}

    def arrays(self, problem: P) -> dict[str, Tensor]:
        """Of a run directory, beside picture, blur and penalty."""
        return {}

    @abstractmethod
    def constants(self, net: N, problem: P) -> dict[str, float]:
        """The base quantities of problem and parameters alone, but ‖B‖; ``majorizer_excess`` without the largest M."""

    @abstractmethod
    def rebuild(
        self, blur: Blur, arrays: Mapping[str, Tensor], parameters: list[float]
    ) -> tuple[AnySolver, ObservedPicture]:
        """Solver and problem from the arrays of a run directory."""

    def suggestion(self, net: N) -> str:
        """What would make the theorem hold."""
        return ""


class Linearised(Method[LADMM, DeconvolutionProblem]):
    """The linearised ADMM."""

    solver, problem = LADMM, DeconvolutionProblem
    theorem, directions = ladmm.THEOREM, ladmm.DIRECTIONS
    checked = Sparse

    def flags(self, net: LADMM) -> dict[str, bool]:
        return {"adaptive": net.adaptive, "inexact": net.inner is not None}

    def arrays(self, problem: DeconvolutionProblem) -> dict[str, Tensor]:
        """The wavelet by name, filters and levels."""
        return {
            "levels": torch.tensor([problem.wavelet.levels]),
            "wavelet": torch.tensor(list(problem.wavelet.name.encode()), dtype=torch.uint8),
            "filters": problem.wavelet.filters,
        }

    def constants(self, net: LADMM, problem: DeconvolutionProblem) -> dict[str, float]:
        # αβ just above 1 makes the norm a seminorm of no use; the conditions say so
        excess = max(0.0, up(up(1.0 / net.alpha) - net.beta))  # it cancels where alpha is the default
        return {"transform_norm": problem.wavelet.norm_bound, "majorizer_excess": excess}

    def rebuild(
        self, blur: Blur, arrays: Mapping[str, Tensor], parameters: list[float]
    ) -> tuple[LADMM, DeconvolutionProblem]:
        alpha, beta, gamma, adaptive, _ = parameters
        wavelet = OrthonormalWavelet(
            blur.domain, bytes(arrays["wavelet"].tolist()).decode(), int(arrays["levels"]), dtype=blur.kernel.dtype
        )
        problem = DeconvolutionProblem(arrays["observed"], blur, float(arrays["penalty"]), wavelet)
        return LADMM(beta, alpha, gamma, adaptive=bool(adaptive)), problem

    def suggestion(self, net: LADMM) -> str:
        if net.adaptive:
            return "decaying parameters carry no guarantee: use adaptive=False"
        if net.inner is not None:
            return "an iterative inner solver is inexact: leave inner out, the majorized step is exact for every blur"
        return f"use alpha and gamma slightly below 1/beta = {1.0 / net.beta:.6g}, or leave both out"


class VariationMethod(Method[TVADMM, TotalVariationProblem]):
    """The ADMM for total variation."""

    solver, problem = TVADMM, TotalVariationProblem
    theorem, directions = total_variation.THEOREM, total_variation.DIRECTIONS
    checked = Variation

    def constants(self, net: TVADMM, problem: TotalVariationProblem) -> dict[str, float]:
        return {
            "constant_gain": float(problem.gain.min()),
            "pixels": float(problem.pulled_back.numel()),
            "aspect": problem.aspect,
            "observed_norm": float(problem.observed.norm()),
            "majorizer_excess": 0.0,
        }

    def rebuild(
        self, blur: Blur, arrays: Mapping[str, Tensor], parameters: list[float]
    ) -> tuple[TVADMM, TotalVariationProblem]:
        return TVADMM(*parameters), TotalVariationProblem(arrays["observed"], blur, float(arrays["penalty"]))


METHODS: tuple[Method[AnySolver, ObservedPicture], ...] = (Linearised(), VariationMethod())  # pyright: ignore[reportAssignmentType]


def method_of(solver: AnySolver) -> Method[AnySolver, ObservedPicture]:
    """That of a solver."""
    return next(method for method in METHODS if isinstance(solver, method.solver))
