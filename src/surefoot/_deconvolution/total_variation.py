"""Isotropic total variation: min over z of ½‖Bz - y‖² + λ Σ_i ‖(Dz)_i‖₂, its duality gap, and the ADMM on x = Dz."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import torch
from torch import Tensor

from .._core.brief import brief
from .._core.validate import positive
from .operators import Blur, image_norm, last_axes, multiply
from .problem import DualityGap, ObservedPicture
from .solver import ITERATE, DeconvolutionSolver, Iterate
from .wiener import laplacian

FAINT = 1e-6
"""Of what a blur makes of 1: nothing was observed where it is less."""


def variation_penalty(noise: float) -> float:
    """λ = 0.8 σ^1.5 for white noise of standard deviation σ > 0, intensities 0..1: what restored training photographs best, for σ
    from 0.002 to 0.05.

    Args:
        noise: σ.

    Raises:
        ValueError: a noise that is not a positive number.

    Example:
        >>> f"{sf.deconvolution.variation_penalty(noise=0.01):.1e}"
        '8.0e-04'
    """
    return 0.8 * positive("noise", noise) ** 1.5


def differences(z: Tensor, dimensions: int = 2) -> Tensor:
    """Dz (..., 2, H, W) of z (..., H, W): periodic forward differences down the columns and along the rows.

    Of stacks (..., D, H, W) of 3 dimensions (..., 3, D, H, W), those from plane to plane first.
    """
    return torch.stack([z.roll(-1, axis) - z for axis in last_axes(dimensions)], dim=-dimensions - 1)


def differences_adjoint(x: Tensor, dimensions: int = 2) -> Tensor:
    """Dᵀx (..., H, W) of x (..., 2, H, W)."""
    total = torch.zeros_like(x.select(-dimensions - 1, 0))
    for slopes, axis in zip(x.unbind(-dimensions - 1), last_axes(dimensions), strict=True):
        total += slopes.roll(1, axis) - slopes
    return total


def lengths(x: Tensor, dimensions: int = 2) -> Tensor:
    """‖x_i‖₂ (..., H, W) of each pixel's differences x (..., 2, H, W)."""
    return reduce(torch.hypot, x.unbind(-dimensions - 1))


class TotalVariationProblem(ObservedPicture):
    """y = Bz + noise with z of small total variation: min ½‖Bz - y‖² + λ Σ_i ‖(Dz)_i‖₂ (Rudin, Osher, Fatemi 1992).

    D takes periodic forward differences on the latent grid.

    Args:
        observed: y (..., h, w), intensities of about 0..1; leading dimensions are batch and colour.
        blur: B with ``range`` (h, w), of the same dtype and device.
        penalty: λ > 0, such as ``variation_penalty(noise)``.

    Raises:
        TypeError: not an array of floats, or of another dtype or device than the blur.
        ValueError: NaN or infinite pixels, shapes that do not fit, a penalty that is not a positive number, or a blur that takes
            a constant image to 0: it would have no restoration.

    Example:
        >>> from surefoot import deconvolution as dc
        >>> blur = dc.PeriodicBlur(torch.full((3, 3), 1 / 9).double(), (16, 16))
        >>> observed = blur.forward(torch.rand(16, 16).double())
        >>> problem = dc.TotalVariationProblem(observed, blur, penalty=1e-3)
        >>> gap = problem.duality_gap(observed)  # of any picture: how far from the optimum?
        >>> bool(gap.dual <= gap.primal), bool(0 < gap.relative < 1)
        (True, True)
    """

    kind = "total-variation"

    def __init__(self, observed: Any, blur: Blur, penalty: float) -> None:
        super().__init__(observed, blur, penalty)
        self.flat = blur.forward(torch.ones_like(self.pulled_back))
        """B1 (..., h, w)."""
        if not bool((self.flat.abs().amax((-2, -1)) > FAINT).all()):
            raise ValueError("the blur takes a constant image to 0; unmask at least one pixel of every image")

    @cached_property
    def smoothing(self) -> Tensor:
        """The multiplier DᵀD (H, W//2+1)."""
        return laplacian(self.blur.domain, self.observed)

    @property
    def aspect(self) -> float:
        """The longer over the shorter side of a latent image."""
        return max(self.blur.domain) / min(self.blur.domain)

    @cached_property
    def gain(self) -> Tensor:
        """Lower bound (...,) of ‖B1‖/‖1‖, positive; of a float64 problem."""
        pixels = self.blur.domain[0] * self.blur.domain[1]
        norm = image_norm(torch.ones_like(self.pulled_back))
        seen = image_norm(self.flat) * (1.0 - pixels * torch.finfo(torch.float64).eps) - self.blur.forward_error(norm)
        return seen / norm * (1.0 - 1e-14)

    @cached_property
    def _double(self) -> TotalVariationProblem:
        """The same problem in float64."""
        return TotalVariationProblem(self.observed.double(), self.blur.to(torch.float64), self.penalty)

    def rounding(self) -> float:
        """Relative error, in the 2-norm, granted to D and Dᵀ."""
        return 4.0 * torch.finfo(self.observed.dtype).eps

    def objective(self, z: Tensor) -> Tensor:
        """½‖Bz - y‖² + λ Σ_i ‖(Dz)_i‖₂ (...,) for each image; z (..., H, W)."""
        residual = self.blur.forward(z) - self.observed
        return 0.5 * residual.square().sum((-2, -1)) + self.penalty * lengths(differences(z)).sum((-2, -1))

    def duality_gap(self, z: Tensor, multiplier: Tensor | None = None) -> DualityGap:
        """Bounds of the objective at z and of its optimum, from a point of the dual near the residual and the multiplier.

        The dual is: maximise ⟨u, y⟩ - ½‖u‖² subject to Bᵀu = Dᵀp, ‖p_i‖₂ ≤ λ. The point is u = r - B1⟨r, B1⟩/‖B1‖² with
        r = y - Bz, so that Bᵀu has the sum 0, and p = μ + D(DᵀD)⁺(Bᵀu - Dᵀμ), both scaled into the balls. What is left of
        Bᵀu - Dᵀp, which is rounding, counts with a bound of ‖z*‖ (docs/theorems/deconvolution.md, section 7).

        Args:
            z: (..., H, W).
            multiplier: μ (..., 2, H, W), near that of a solution: that of the solver; 0 by default.
        """
        if z.dtype == torch.float32:
            return self._double.duality_gap(z.double(), None if multiplier is None else multiplier.double())
        unit, norm = torch.finfo(z.dtype).eps, image_norm
        terms = (z.shape[-1] * z.shape[-2] + 8) * unit
        residual, misfit = self.bounded(z)
        variation = lengths(differences(z)).sum((-2, -1)) * (1.0 + terms)
        primal = (0.5 * misfit.square() + self.penalty * variation) * (1.0 + 8.0 * unit)
        u = residual - self.flat * _part(residual, self.flat)
        pulled = self.blur.adjoint(u)
        p = torch.zeros_like(differences(pulled)) if multiplier is None else multiplier
        p = p + differences(multiply(_pseudoinverse(self.smoothing), pulled - differences_adjoint(p)))
        # both sides of the constraint as rounded; D itself has norm at most √8
        size, size_p, data = norm(u), norm(lengths(p)), norm(self.observed)
        left = pulled - differences_adjoint(p)
        defect = norm(left) * (1.0 + terms) + self.blur.forward_error(size) + 16.0 * unit * (size_p + norm(pulled))
        largest = lengths(p).amax((-2, -1))
        least = (self.penalty / largest) * (1.0 - 8.0 * unit)
        inner = (u * self.observed).sum((-2, -1))
        scale = (inner / size.square()).clamp(min=0.0).minimum(least)
        scale = torch.where(size > 0.0, scale, 0.0)
        allowance = terms * (scale * size * data + scale.square() * size.square()) + scale * defect * self._reach(
            primal
        )
        dual = scale * inner - 0.5 * (scale * size).square() - allowance
        return DualityGap(primal, dual.clamp(min=0.0))  # the objective is never negative

    def _reach(self, value: Tensor) -> Tensor:
        """Upper bound (...,) of ‖z‖ where the objective is at most ``value``.

        Without its mean z has at most √(0.5 + 0.3a) times its total variation ≤ value/λ, a the ratio of the sides (Lemma 1 of
        docs/theorems/deconvolution.md); and the mean is seen through B1.
        """
        apart = math.sqrt(0.5 + 0.3 * self.aspect) * value / self.penalty
        seen = image_norm(self.observed) + (2.0 * value).sqrt() + self.blur.norm_bound * apart
        return (apart + seen / self.gain) * (1.0 + 1e-12)


@dataclass(frozen=True)
class TVState(Iterate):
    """An iterate of the ADMM for total variation.

    Attributes:
        z: (..., H, W), the latent image.
        x: (..., 2, H, W), its differences.
        multiplier: (..., 2, H, W), of the constraint Dz = x; of length at most λ at each pixel.
        slopes: Dz.
        applications: products with B, Bᵀ or an inverse filter so far, for each image.
    """

    slopes: Tensor

    __repr__ = brief

    @property
    def picture(self) -> Tensor:
        """z."""
        return self.z


class TVADMM(DeconvolutionSolver[TotalVariationProblem, TVState]):
    """ADMM for total variation, its z-step made exact for every blur by the majorizer M ⪰ BᵀB (equal for periodic blur):

        z⁺ = z - (M + βDᵀD)⁻¹(Bᵀ(Bz - y) + Dᵀ(μ + β(Dz - x)))
        x⁺ = argmin λ Σ_i ‖x_i‖₂ + β/2 ‖x - Dz⁺ - μ/β‖²
        μ⁺ = μ + β(Dz⁺ - x⁺)

    It converges for every β > 0 and every blur, and ``certify`` states how fast (docs/theorems/deconvolution.md, Theorem 2).
    For periodic blur it is the alternating direction method of Wang, Yang, Yin and Zhang (SIAM J. Imaging Sci. 1(3), 2008) with
    multipliers.

    Args:
        beta: β > 0; it changes how fast the method converges, not to what.

    Raises:
        ValueError: a β that is not a positive number.

    Example:
        >>> from surefoot import deconvolution as dc
        >>> sharp = torch.zeros(16, 16).double()
        >>> sharp[4:12, 4:12] = 1.0  # a white square
        >>> blur = dc.PeriodicBlur(torch.full((3, 3), 1 / 9).double(), (16, 16))
        >>> observed = blur.forward(sharp) + 0.01 * torch.randn(16, 16).double()
        >>> problem = dc.TotalVariationProblem(observed, blur, dc.variation_penalty(0.01))
        >>> method = dc.TVADMM()
        >>> solution = method.solve(problem)
        >>> method.certify(problem).holds, bool(solution.gap.relative < 0.05)
        (True, True)
        >>> bool(dc.psnr(solution.image, sharp) - dc.psnr(observed, sharp) > 10)
        True
    """

    problems = TotalVariationProblem

    def __init__(self, beta: float = 0.05) -> None:
        super().__init__()
        self.beta = positive("beta", beta)

    def extra_repr(self) -> str:
        return f"beta={self.beta:g}"

    def parameters_at(self, iteration: int) -> tuple[float]:
        """β."""
        return (self.beta,)

    def start(self, problem: TotalVariationProblem) -> TVState:
        """z₀ = y, its borders repeated where the latent grid is larger, x₀ = 0, μ₀ = 0: the first z-step is then a
        gradient-Wiener restoration with the weight β."""
        z = problem.extended()
        slopes = differences(z)
        return TVState(z, torch.zeros_like(slopes), torch.zeros_like(slopes), slopes)

    def step(self, problem: TotalVariationProblem, state: TVState, iteration: int = 0) -> TVState:
        """The iterate after ``state``."""
        blur, beta = problem.blur, self.beta
        inverse = 1.0 / (blur.majorizer + beta * problem.smoothing)
        if blur.exact_majorizer:
            pull = differences_adjoint(beta * state.x - state.multiplier)
            z, cost = multiply(inverse, problem.pulled_back + pull), 1
        else:
            pull = differences_adjoint(state.multiplier + beta * (state.slopes - state.x))
            z, cost = state.z - multiply(inverse, blur.gram(state.z) - problem.pulled_back + pull), 3
        slopes = differences(z)
        v = slopes + state.multiplier / beta
        # μ⁺ is the part of βv inside the ball of radius λ, x⁺ what sticks out
        inside = v * (problem.penalty / (beta * lengths(v))).clamp(max=1.0).unsqueeze(-3)
        return TVState(z, v - inside, beta * inside, slopes, applications=state.applications + cost)

    def gap(self, problem: TotalVariationProblem, state: TVState) -> DualityGap:
        """Bounds of the objective at z and of its optimum."""
        return problem.duality_gap(state.z, state.multiplier)

    def change(self, problem: TotalVariationProblem, before: TVState, after: TVState, iteration: int = 0) -> Tensor:
        """V = ‖Δz‖²_S + β‖Δx‖² + ‖Δμ‖²/β over the whole batch, S = M - BᵀB: what never increases. For periodic blur S = 0."""
        dz, dx, dm = after.z - before.z, after.x - before.x, after.multiplier - before.multiplier
        total = self.beta * dx.square().sum() + dm.square().sum() / self.beta
        if not problem.blur.exact_majorizer:
            total = total + (dz * problem.blur.majorized(dz)).sum() - problem.blur.forward(dz).square().sum()
        return total

    def scale(self, state: TVState) -> float:
        """β‖x‖² + ‖μ‖²/β + ‖z‖²."""
        others = self.beta * state.x.square().sum() + state.multiplier.square().sum() / self.beta
        return float(others + state.z.square().sum())

    def stored_parameters(self) -> list[float]:
        """β."""
        return [self.beta]

    def extra_state(self, state: TVState) -> dict[str, Tensor]:
        """Nothing: Dz follows from z."""
        return {}

    def restored(
        self, problem: TotalVariationProblem, weights: Mapping[str, Tensor], extra: Mapping[str, Tensor]
    ) -> TVState:
        """The iterate of a checkpoint."""
        z, x, multiplier = (weights[name].clone() for name in ITERATE)
        return TVState(z, x, multiplier, differences(z))


def _pseudoinverse(multiplier: Tensor) -> Tensor:
    """Of a multiplier that is 0 at the frequency 0 alone."""
    inverse = 1.0 / multiplier
    inverse[0, 0] = 0.0
    return inverse


def _part(a: Tensor, b: Tensor) -> Tensor:
    """⟨a, b⟩/‖b‖² (..., 1, 1) for images."""
    return (a * b).sum((-2, -1), keepdim=True) / b.square().sum((-2, -1), keepdim=True)
