"""The sparse deconvolution problem: min over x of ½‖BWᵀx - y‖² + λ‖x‖₁, with a rigorous duality gap."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from .._core.brief import brief, size
from .._core.validate import as_tensor, positive
from .operators import Blur, Shape, held, image_norm, of_pictures
from .wavelets import OrthonormalWavelet

DEFAULT_WAVELET = "sym4"
"""About 0.9 dB above Haar and 0.2 dB above db4 on training photographs; longer filters gained nothing."""


def default_penalty(noise: float) -> float:
    """λ = 2 σ^1.5 for white noise of standard deviation σ > 0, intensities 0..1: what restored training photographs best.

    Args:
        noise: σ.

    Raises:
        ValueError: a noise that is not a positive number, or whose λ is not one in float64.

    Example:
        >>> f"{sf.deconvolution.default_penalty(noise=0.01):.1e}"
        '2.0e-03'
    """
    penalty = 2.0 * positive("noise", noise) ** 1.5
    if penalty == 0.0:
        raise ValueError(
            f"noise is {noise!r}, too small for a penalty in float64; pass that of the picture, such as 0.01"
        )
    return penalty


@dataclass(frozen=True)
class DualityGap:
    """Bounds of the optimal value, one for each image.

    Attributes:
        primal: (...,), float64, the objective at the point, rounded up.
        dual: (...,), float64, a lower bound of the optimal value.

    Both include a bound of the rounding errors of the transforms: the gap is a guarantee, not an estimate.
    """

    primal: Tensor
    dual: Tensor

    __repr__ = brief

    @property
    def gap(self) -> Tensor:
        """Upper bound (...,) of the objective's distance from its optimum."""
        return (self.primal - self.dual).clamp(min=0.0)

    @property
    def relative(self) -> Tensor:
        """The gap over the primal value (...,); 0 where that is 0, NaN where the objective overflows."""
        return torch.where(self.primal == 0.0, 0.0, self.gap / self.primal)


class ObservedPicture(ABC):
    """What all deconvolution problems have: an observed picture y, its blur B, and the weight λ of the prior.

    Args and errors as ``DeconvolutionProblem``.
    """

    kind: str
    """What a run directory calls it."""

    def __init__(self, observed: Any, blur: Blur, penalty: float) -> None:
        of_pictures(blur, f"the problem {self.kind}")
        self.observed = checked_image("observed", observed)
        if self.observed.shape[-2:] != blur.range:
            raise ValueError(
                f"observed has shape {tuple(self.observed.shape)}; this blur makes images (..., {blur.range[0]}, {blur.range[1]})"
            )
        self.blur, self.penalty = blur, positive("penalty", penalty)
        self.observed = blur.seen(self.observed)
        self.pulled_back = blur.adjoint(self.observed)
        """Bᵀy (..., H, W)."""
        # a kernel for each image of fewer pictures: as many problems as kernels, and norms over all of them
        self.observed = self.observed.expand(*self.pulled_back.shape[:-2], *blur.range).contiguous()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(observed {size(self.observed)}, {self.blur!r}, penalty={self.penalty:.6g})"

    @abstractmethod
    def rounding(self) -> float:
        """Relative error, in the 2-norm, granted to the linear map that the prior takes of an image."""

    def extended(self) -> Tensor:
        """The observed images on the latent grid (..., H, W), their border pixels repeated outwards, and filled where nothing was
        seen."""
        return extended(self.observed, self.blur)

    def bounded(self, z: Tensor, moved: Tensor | float = 0.0) -> tuple[Tensor, Tensor]:
        """r = y - Bz (..., h, w) as computed, and an upper bound (...,) of ‖y - Bz‖, float64, also of every z' with
        ‖B(z' - z)‖ at most ``moved``."""
        unit = torch.finfo(z.dtype).eps
        residual = self.observed - self.blur.forward(z)
        size = image_norm(residual)
        error = self.blur.forward_error(image_norm(z)) + moved + unit * (size + image_norm(self.observed))
        return residual, size * (1.0 + (residual.shape[-1] * residual.shape[-2] + 8) * unit) + error


class DeconvolutionProblem(ObservedPicture):
    """y = Bz + noise with z = Wᵀx sparse: min ½‖BWᵀx - y‖² + λ‖x‖₁ (paper, appendix A.1.3).

    Args:
        observed: y (..., h, w), intensities of about 0..1; leading dimensions are batch and colour; 0 takes the place of what a
            ``MaskedBlur`` has not seen.
        blur: B with ``range`` (h, w), of the same dtype and device.
        penalty: λ > 0.
        wavelet: W on the latent grid, or the name of one; by default the symlet with 4 vanishing moments.

    Raises:
        TypeError: not an array of floats, or of another dtype or device than blur and wavelet.
        ValueError: NaN or infinite pixels, shapes that do not fit, or a penalty that is not a positive number.

    Example:
        >>> from surefoot import deconvolution as dc
        >>> blur = dc.PeriodicBlur(torch.full((3, 3), 1 / 9).double(), (16, 16))
        >>> observed = blur.forward(torch.rand(16, 16).double())
        >>> problem = dc.DeconvolutionProblem(observed, blur, penalty=1e-3, wavelet="haar")
        >>> x = problem.wavelet.analysis(observed)  # of any picture: how far from the optimum?
        >>> gap = problem.duality_gap(x)
        >>> bool(gap.dual < problem.objective(x) <= gap.primal), bool(0 < gap.relative < 1)
        (True, True)
    """

    kind = "deconvolution"

    def __init__(
        self, observed: Any, blur: Blur, penalty: float, wavelet: OrthonormalWavelet | str | None = None
    ) -> None:
        super().__init__(observed, blur, penalty)
        if wavelet is None or isinstance(wavelet, str):
            kind, device = self.observed.dtype, self.observed.device
            wavelet = OrthonormalWavelet(blur.domain, wavelet or DEFAULT_WAVELET, dtype=kind, device=device)
        if wavelet.shape != blur.domain:
            raise ValueError(f"wavelet is for images {wavelet.shape}; the latent images of this blur are {blur.domain}")
        if (wavelet.dtype, wavelet.device) != (self.observed.dtype, self.observed.device):
            raise TypeError(
                f"wavelet is {wavelet.dtype} on {wavelet.device}, observed {self.observed.dtype} on {self.observed.device}; use "
                "wavelet.to(...)"
            )
        self.wavelet = wavelet

    @cached_property
    def _double(self) -> DeconvolutionProblem:
        """The same problem in float64."""
        wavelet, blur = self.wavelet.to(torch.float64), self.blur.to(torch.float64)
        return DeconvolutionProblem(self.observed.double(), blur, self.penalty, wavelet)

    def rounding(self) -> float:
        """That of one wavelet transform, in the 2-norm, relative."""
        return self.wavelet.rounding()

    def image(self, x: Tensor) -> Tensor:
        """The restored images (..., h, w) of coefficients x (..., H, W): Wᵀx under the observed picture."""
        return self.blur.crop(self.wavelet.synthesis(x))

    def objective(self, x: Tensor) -> Tensor:
        """½‖BWᵀx - y‖² + λ‖x‖₁ (...,) for each image; x (..., H, W)."""
        residual = self.blur.forward(self.wavelet.synthesis(x)) - self.observed
        return 0.5 * residual.square().sum((-2, -1)) + self.penalty * x.abs().sum((-2, -1))

    def duality_gap(self, x: Tensor, latent: Tensor | None = None) -> DualityGap:
        """Bounds of the objective at x and of its optimum, from the dual point u = r min{1, λ/‖WBᵀr‖_∞}, r = y - BWᵀx.

        The dual is: maximise ⟨u, y⟩ - ½‖u‖² subject to ‖WBᵀu‖_∞ ≤ λ. Evaluated in float64, for the filters of W in float64: the
        sums of a float32 picture are too long to be bounded in float32.

        Args:
            x: (..., H, W).
            latent: Wᵀx where it is known already.
        """
        if x.dtype == torch.float32:
            return self._double.duality_gap(x.double())
        unit, norm = torch.finfo(x.dtype).eps, image_norm
        z = self.wavelet.synthesis(x) if latent is None else latent
        transform = self.wavelet.rounding()
        residual, misfit = self.bounded(z, self.blur.norm_bound * transform * norm(x))
        size, data = norm(residual), norm(self.observed)
        terms = (x.shape[-1] * x.shape[-2] + 8) * unit
        primal = 0.5 * misfit.square() + self.penalty * x.abs().sum((-2, -1)) * (1.0 + terms)
        primal = primal * (1.0 + 4.0 * unit)
        # the computed residual is itself the dual direction: only the constraint must be certain
        slopes = self.wavelet.analysis(self.blur.adjoint(residual))
        largest = slopes.abs().amax((-2, -1)) + self.blur.forward_error(size) + transform * self.blur.norm_bound * size
        scale = (self.penalty / largest).clamp(max=1.0) * (1.0 - 8.0 * unit)
        inner = (residual * self.observed).sum((-2, -1))
        allowance = terms * (scale * size * data + scale.square() * size.square())
        dual = scale * inner - 0.5 * (scale * size).square() - allowance
        return DualityGap(primal, dual.clamp(min=0.0))  # the objective is never negative


def checked_image(name: str, image: Any) -> Tensor:
    """A finite image tensor (..., rows, columns), float32 or float64.

    Raises:
        TypeError: not an array of floats.
        ValueError: fewer than 2 dimensions, empty, on the meta device, or pixels that are NaN or infinite.
    """
    pixels = held(name, as_tensor(name, image))
    if pixels.ndim < 2 or pixels.numel() == 0:
        raise ValueError(f"{name} has shape {tuple(pixels.shape)}; pass a non-empty image (..., rows, columns)")
    bad = ~torch.isfinite(pixels)
    if bool(bad.any()):
        position = tuple(int(i) for i in bad.nonzero()[0])
        raise ValueError(
            f"{name} has {pixels[position].item()} at pixel {position} ({int(bad.sum())} such pixels); fill them in, for example "
            "with the median of their neighbours"
        )
    return pixels


def extended(observed: Tensor, blur: Blur) -> Tensor:
    """Observed images (..., h, w) on the latent grid (..., H, W), their border pixels repeated outwards, and filled where nothing
    was seen."""
    spans = []
    for axis in (-1, -2):
        before = int(blur.crop(_ramp(blur.domain, axis))[0, 0])
        spans += [before, blur.domain[axis] - blur.range[axis] - before]
    filled = blur.filled(observed)
    if not any(spans):
        return filled
    flat = filled.reshape(1, -1, *blur.range)
    return pad(flat, spans, mode="replicate").reshape(*observed.shape[:-2], *blur.domain)


def _ramp(domain: Shape, axis: int) -> Tensor:
    """The index along an axis, as an image."""
    shape = (-1, 1) if axis == -2 else (1, -1)
    return torch.arange(domain[axis]).reshape(shape).expand(domain)
