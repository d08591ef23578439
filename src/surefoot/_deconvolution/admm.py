"""The linearised ADMM for min ½‖Bz - y‖² + λ‖x‖₁ subject to z = Wᵀx (paper, equations (12) and (13), signs corrected)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from .._core.brief import brief
from .._core.validate import positive
from .inner import InnerSolution
from .operators import Blur
from .problem import DeconvolutionProblem, DualityGap
from .solver import ITERATE, DeconvolutionSolver, Iterate

Inner = Callable[[Blur, Tensor, float, Tensor], InnerSolution]
"""Solves (αBᵀB + I)z = right from (blur, right, alpha, start)."""
MARGIN = 1e-8
"""Relative distance of the default α and γ from the largest ones that the theorem admits: beyond the slack of published norms."""
DECAY, LEAST = 0.98, 1e-4
"""Of the adaptive variant (paper, table 4): α_k = max(0.98^k α₀, 1e-4), likewise γ_k."""


@dataclass(frozen=True)
class State(Iterate):
    """An iterate of the linearised ADMM.

    Attributes:
        z: (..., H, W), the latent image.
        x: (..., H, W), its wavelet coefficients.
        multiplier: (..., H, W), of the constraint z = Wᵀx (the paper's bold λ).
        synthesis: Wᵀx.
        applications: products with B, Bᵀ or an inverse filter so far, for each image.
    """

    synthesis: Tensor

    __repr__ = brief

    @property
    def picture(self) -> Tensor:
        """Wᵀx."""
        return self.synthesis


class LADMM(DeconvolutionSolver[DeconvolutionProblem, State]):
    """Linearised ADMM with fixed (fL-ADMM) or decaying (aL-ADMM) parameters.

    One iteration, with M the blur's Fourier majorizer of BᵀB (equal to it for periodic blur, where this is the paper's z-step):

        z⁺ = z - α(αM + I)⁻¹(Bᵀ(Bz - y) + μ + β(z - Wᵀx))
        x⁺ = soft(x + γW(μ + β(z⁺ - Wᵀx)), γλ)
        μ⁺ = μ + β(z⁺ - Wᵀx⁺)

    The paper prints x - γW(…), which diverges, the threshold γ/λ instead of γλ, and BBᵀ (docs/errata.md). With fixed parameters,
    αβ ≤ 1 and γβ‖W‖² ≤ 1 it converges for every blur, and ``certify`` states how fast (docs/theorems/deconvolution.md).

    Args:
        beta: β > 0; it changes how fast the method converges, not to what. The default suits intensities of 0..1.
        alpha: α > 0; by default just below 1/β.
        gamma: γ > 0; by default just below 1/β, for an orthonormal W.
        adaptive: α and γ decay as in the paper's aL-ADMM; nothing is guaranteed then.
        inner: solves (αBᵀB + I)z = right instead of the majorized step, such as ``conjugate_gradients``; then the z-step is
            inexact and nothing is guaranteed.

    Raises:
        ValueError: a parameter that is not a positive number.

    Example:
        >>> from surefoot import deconvolution as dc
        >>> sharp = torch.zeros(16, 16).double()
        >>> sharp[4:12, 4:12] = 1.0  # a white square
        >>> blur = dc.PeriodicBlur(torch.full((3, 3), 1 / 9).double(), (16, 16))
        >>> observed = blur.forward(sharp) + 0.01 * torch.randn(16, 16).double()
        >>> problem = dc.DeconvolutionProblem(observed, blur, dc.default_penalty(0.01))
        >>> method = dc.LADMM()
        >>> solution = method.solve(problem)
        >>> method.certify(problem).holds, bool(solution.gap.relative < 0.05)
        (True, True)
        >>> bool(dc.psnr(solution.image, sharp) - dc.psnr(observed, sharp) > 5)
        True
    """

    problems = DeconvolutionProblem

    def __init__(
        self,
        beta: float = 0.05,
        alpha: float | None = None,
        gamma: float | None = None,
        *,
        adaptive: bool = False,
        inner: Inner | None = None,
    ) -> None:
        super().__init__()
        self.beta = positive("beta", beta)
        self.alpha = positive("alpha", (1.0 - MARGIN) / beta if alpha is None else alpha)
        self.gamma = positive("gamma", (1.0 - MARGIN) / beta if gamma is None else gamma)
        self.adaptive, self.inner = adaptive, inner

    def extra_repr(self) -> str:
        kind = "adaptive" if self.adaptive else "fixed"
        return f"{kind}, alpha={self.alpha:g}, beta={self.beta:g}, gamma={self.gamma:g}"

    def parameters_at(self, iteration: int) -> tuple[float, float]:
        """α_k and γ_k."""
        if not self.adaptive:
            return self.alpha, self.gamma
        decay = DECAY**iteration
        return max(decay * self.alpha, LEAST), max(decay * self.gamma, LEAST)

    def start(self, problem: DeconvolutionProblem) -> State:
        """x₀ = Wy (borders repeated where the latent grid is larger), z₀ = Wᵀx₀, μ₀ = 0."""
        x = problem.wavelet.analysis(problem.extended())
        z = problem.wavelet.synthesis(x)
        return State(z, x, torch.zeros_like(x), z)

    def step(self, problem: DeconvolutionProblem, state: State, iteration: int = 0) -> State:
        """The iterate after ``state``, which is that of ``iteration``."""
        blur, wavelet, beta = problem.blur, problem.wavelet, self.beta
        alpha, gamma = self.parameters_at(iteration)
        pull = state.multiplier + beta * (state.z - state.synthesis)
        if self.inner is not None:
            inner = self.inner(blur, state.z - alpha * pull + alpha * problem.pulled_back, alpha, state.z)
            z, cost = inner.solution, inner.applications
        elif blur.exact_majorizer:
            z, cost = blur.solve(state.z - alpha * pull + alpha * problem.pulled_back, alpha), 1
        else:
            gradient = blur.gram(state.z) - problem.pulled_back
            z, cost = state.z - alpha * blur.solve(gradient + pull, alpha), 3
        x = soft(
            state.x + gamma * wavelet.analysis(state.multiplier + beta * (z - state.synthesis)),
            gamma * problem.penalty,
        )
        synthesis = wavelet.synthesis(x)
        multiplier = state.multiplier + beta * (z - synthesis)
        return State(z, x, multiplier, synthesis, applications=state.applications + cost)

    def gap(self, problem: DeconvolutionProblem, state: State) -> DualityGap:
        """Bounds of the objective at Wᵀx and of its optimum."""
        return problem.duality_gap(state.x, state.synthesis)

    def change(self, problem: DeconvolutionProblem, before: State, after: State, iteration: int = 0) -> Tensor:
        """V = ‖Δz‖²_S + ‖Δx‖²/γ + ‖Δμ‖²/β over the whole batch, S = M - BᵀB + (1/α - β)I: what never increases.

        For periodic blur S = (1/α - β)I. α and γ are those of ``iteration``, that of ``before``.
        """
        alpha, gamma = self.parameters_at(iteration)
        dz, dx, dm = after.z - before.z, after.x - before.x, after.multiplier - before.multiplier
        total = (1.0 / alpha - self.beta) * dz.square().sum()
        if not problem.blur.exact_majorizer:
            total = total + (dz * problem.blur.majorized(dz)).sum() - problem.blur.forward(dz).square().sum()
        return total + dx.square().sum() / gamma + dm.square().sum() / self.beta

    def scale(self, state: State) -> float:
        """‖x‖²/γ + (1/α + β)‖z‖²."""
        z = state.z.square().sum() * (1.0 / self.alpha + self.beta)
        return float(state.x.square().sum() / self.gamma + z)

    def stored_parameters(self) -> list[float]:
        """α, β, γ, whether they decay (0 or 1), and whether there is an inner solver."""
        return [self.alpha, self.beta, self.gamma, float(self.adaptive), float(self.inner is not None)]

    def extra_state(self, state: State) -> dict[str, Tensor]:
        """Wᵀx as it was rounded."""
        return {"synthesis": state.synthesis.clone()}

    def restored(
        self, problem: DeconvolutionProblem, weights: Mapping[str, Tensor], extra: Mapping[str, Tensor]
    ) -> State:
        """The iterate of a checkpoint."""
        z, x, multiplier = (weights[name].clone() for name in ITERATE)
        return State(z, x, multiplier, extra["synthesis"].clone())


def soft(x: Tensor, threshold: float | Tensor) -> Tensor:
    """sgn(x) max(|x| - threshold, 0)."""
    return x.sign() * (x.abs() - threshold).clamp(min=0.0)
