"""Deconvolution with a hyper-Laplacian prior by half-quadratic splitting (Krishnan and Fergus, NIPS 2009).

min over z of ½‖Bz - y‖² + λ Σ_j ‖d_j ⊗ z‖ₚᵖ is not convex for p < 1. With auxiliary pictures w_j in place of the derivatives,

    F_β(z, w) = ½‖Bz - y‖² + λ Σ_j (‖w_j‖ₚᵖ + β/2 ‖w_j - d_j ⊗ z‖²)

is lowered in turn over w (exactly, pixel by pixel) and over z (exactly by FFT where BᵀB is a Fourier multiplier; else exactly
for the majorizer M, which amounts to filling what was not observed with what z predicts), while β grows from stage to stage.
What is guaranteed is that F_β falls at each half step of a stage; the whole, with its growing β, is a heuristic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import conv2d, pad

from .._core.status import RunStatus
from .._core.validate import positive
from .operators import Blur, of_pictures
from .problem import checked_image, extended
from .shrinkage import shrink

ROUNDING = 64.0
"""Units in the last place of F_β by which a computed value may rise and still count as not rising."""
FILTERS = (
    ((0.0, 0.0, 0.0), (0.0, -1.0, 1.0), (0.0, 0.0, 0.0)),
    ((0.0, 0.0, 0.0), (0.0, -1.0, 0.0), (0.0, 1.0, 0.0)),
)


@dataclass(frozen=True)
class HalfQuadraticSolution:
    """What the solver returns.

    Attributes:
        image: (..., h, w), the restored image under the observed picture; not clipped to 0..1.
        latent: (..., H, W), on the grid of latent images.
        values: (stages, 2 rounds + 1, ...), float64: F_β of each image before a stage, and after each of its half steps.
        status: max_iterations, or diverged: then something is not finite.
        iterations: z-steps.
        applications: products with B, Bᵀ or an inverse filter for each image.
    """

    image: Tensor
    latent: Tensor
    values: Tensor
    status: RunStatus
    iterations: int
    applications: int

    @property
    def largest_rise(self) -> float:
        """The largest relative rise of F_β at a half step, over all images; at most 0 where it never rose."""
        before, after = self.values[:, :-1], self.values[:, 1:]
        return float(((after - before) / before.clamp(min=torch.finfo(torch.float64).tiny)).max())

    def audit(self) -> bool:
        """Whether F_β fell at each half step of each stage, up to rounding in the dtype of the picture."""
        return self.largest_rise <= ROUNDING * torch.finfo(self.latent.dtype).eps


class HyperLaplacian:
    """The prior Σ_j ‖d_j ⊗ z‖ₚᵖ, and its solver.

    Args:
        power: p in [0.5, 1].

    Raises:
        ValueError: another power.
    """

    def __init__(self, power: float = 2.0 / 3.0) -> None:
        self.power = positive("power", power)
        if not 0.5 <= self.power <= 1.0:
            raise ValueError(f"power is {power!r}; pass a number from 0.5 to 1, such as 2/3")

    def penalty(self, noise: float) -> float:
        """λ for white noise of this standard deviation, intensities of 0..1: what restored training photographs best."""
        return 4e-4 * (noise / 0.01) ** 1.37

    def solve(self, observed: Any, blur: Blur, noise: float) -> HalfQuadraticSolution:
        """Restore images.

        Args:
            observed: y (..., h, w), intensities of about 0..1, of the blur's dtype and device; leading dimensions are batch and
                colour.
            blur: B.
            noise: standard deviation of white noise, positive.

        Raises:
            TypeError, ValueError: not an image of the blur's shape, dtype and device; a noise that is not positive.
        """
        of_pictures(blur, "the hyper-Laplacian prior")
        y = blur.seen(checked_image("observed", observed))
        noise = positive("noise", noise)
        stages = _Stages(y, blur, self.power, self.penalty(noise))
        values: list[Tensor] = []
        rounds = 1 if blur.exact_majorizer else 2
        betas = [2.0 * 2.0**i for i in range(8)]
        for beta in betas:
            values.append(torch.stack(stages.run(beta, rounds)))
        z = stages.z
        finite = bool(torch.isfinite(z).all())
        status = RunStatus.MAX_ITERATIONS if finite else RunStatus.DIVERGED
        count = rounds * len(betas)
        return HalfQuadraticSolution(blur.crop(z), z, torch.stack(values), status, count, stages.applications)


class _Stages:
    """The iteration at a given β, from where the last one ended."""

    def __init__(self, y: Tensor, blur: Blur, power: float, penalty: float) -> None:
        # a kernel for each image of fewer pictures: as many restorations as kernels
        y = y.expand(*blur.adjoint(y).shape[:-2], *blur.range)
        self.y, self.blur, self.power, self.penalty = y, blur, power, penalty
        self.taps = y.new_tensor(FILTERS)[:, None]
        self.reversed = self.taps.flip(-2, -1).transpose(0, 1)
        self.smoothness = self._smoothness(blur)
        self.z = extended(y, blur).clone()
        self.residual = y - blur.forward(self.z)
        self.w = torch.zeros_like(self._derivatives(self.z))
        self.applications = 1

    def _smoothness(self, blur: Blur) -> Tensor:
        """The multiplier Σ_j |d_j|² (H, W//2+1)."""
        impulse = self.y.new_zeros(1, *blur.domain)
        impulse[0, 0, 0] = 1.0
        return torch.fft.rfft2(self._adjoint(self._derivatives(impulse))[0]).real

    def _derivatives(self, z: Tensor) -> Tensor:
        """d_j ⊗ z (n, j, H, W) of z (..., H, W), periodic."""
        return conv2d(pad(z.reshape(-1, 1, *z.shape[-2:]), (1, 1, 1, 1), mode="circular"), self.taps)

    def _adjoint(self, w: Tensor) -> Tensor:
        """Σ_j of the adjoint (n, H, W) of w (n, j, H, W)."""
        return conv2d(pad(w, (1, 1, 1, 1), mode="circular"), self.reversed)[:, 0]

    def run(self, beta: float, rounds: int) -> list[Tensor]:
        """A stage; F_β at its start and after each half step."""
        shape, coupling = self.z.shape, self.penalty * beta
        inverse = 1.0 / (self.blur.majorizer + coupling * self.smoothness)
        v = self._derivatives(self.z)
        values = [self._value(self.w, v, beta)]
        for _ in range(rounds):
            self.w = shrink(v, self.power, beta)
            values.append(self._value(self.w, v, beta))
            right = self.blur.adjoint(self.residual) + coupling * self._adjoint(self.w - v).reshape(shape)
            self.z = self.z + torch.fft.irfft2(inverse * torch.fft.rfft2(right), s=shape[-2:])
            self.residual = self.y - self.blur.forward(self.z)
            v = self._derivatives(self.z)
            values.append(self._value(self.w, v, beta))
            self.applications += 3
        return values

    def _value(self, w: Tensor, v: Tensor, beta: float) -> Tensor:
        """F_β of each image, v the derivatives of z."""
        penalised = w.abs().pow(self.power) + 0.5 * beta * (w - v).square()
        fidelity = 0.5 * self.residual.square().sum((-2, -1), dtype=torch.float64)
        return fidelity + self.penalty * penalised.sum((-3, -2, -1), dtype=torch.float64).reshape(fidelity.shape)
