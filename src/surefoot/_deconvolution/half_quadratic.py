"""Deconvolution with a hyper-Laplacian prior by half-quadratic splitting (Krishnan and Fergus, NIPS 2009).

min over z of ½‖Bz - y‖² + Σ_j λ_j ‖d_j ⊗ z‖ₚᵖ is not convex for p < 1. With auxiliary pictures w_j in place of the differences,

    F_β(z, w) = ½‖Bz - y‖² + Σ_j λ_j (‖w_j‖ₚᵖ + β_j/2 ‖w_j - d_j ⊗ z‖²)

is lowered in turn over w (exactly, pixel by pixel) and over z (exactly by FFT where BᵀB is a Fourier multiplier; else by a few
conjugate gradients, of which the blur's majorizer M is the preconditioner), while β grows from stage to stage.
What is guaranteed is that F_β falls at each half step of a stage; the whole, with its growing β, is a heuristic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from .._core.status import RunStatus
from .._core.validate import positive
from .masked import MaskedBlur
from .operators import Blur, ValidBlur, of_pictures
from .problem import checked_image, extended
from .shrinkage import shrunk, threshold

ROUNDING = 64.0
"""Units in the last place of F_β by which a computed value may rise and still count as not rising."""
CLASSES = (0, 1, 0, 2, 3, 1, 3, 4)
"""Which of SCALES and WEIGHTS belong to the differences (0, 1), (0, 2), (1, 0), … of orders (across, down)."""
SCALES = (1.127, 0.861, 1.819, 1.663, 1.573)
WEIGHTS = (1.264, 0.734, 1.205, 1.44, 1.592)
"""Of the orders (0, 1), (0, 2), (1, 1), (1, 2), (2, 2): the prior is λ Σ_j weight_j ‖scale_j d_j ⊗ z‖ₚᵖ."""
THRESHOLDS = (1.0437, 0.252, 0.1003, 0.0475, 0.0244, 0.0131, 0.0066)
"""Scaled differences below them become 0, stage by stage, at a noise of 0.01."""
NEGLIGIBLE, CLEAN = 2e-4, 0.01
"""A conjugate gradient step that lowers F_β by less than this share of the noise's variance at each pixel is the last of a stage,
less in proportion below a noise of 0.01: further ones change the PSNR of photographs by less than 0.1 dB."""
INNER = 60
"""At most so many conjugate gradient steps in a stage."""


@dataclass(frozen=True)
class HalfQuadraticSolution:
    """What the solver returns.

    Attributes:
        image: (..., h, w), the restored image under the observed picture; not clipped to 0..1.
        latent: (..., H, W), on the grid of latent images.
        values: (stages, 3, ...), float64: F_β of each image before a stage, and after each of its half steps.
        scale: (...), float64: ‖y‖² of each image, against which rounding counts where F_β is nearly 0.
        movements: (stages, ...), root mean square change of each latent image in a stage, in intensities.
        status: max_iterations, or diverged: then something is not finite.
        iterations: stages, each a step over w and one over z.
        applications: products with B, Bᵀ or an inverse filter for each image.
    """

    image: Tensor
    latent: Tensor
    values: Tensor
    scale: Tensor
    movements: Tensor
    status: RunStatus
    iterations: int
    applications: int

    @property
    def largest_rise(self) -> float:
        """The largest relative rise of F_β at a half step, over all images; at most 0 where it never rose.

        A picture that is the same everywhere has F_β = 0, and what is computed is of the order of (ε‖y‖)²: so no value counts
        as smaller than ε‖y‖², ε the unit in the last place.
        """
        before, after = self.values[:, :-1], self.values[:, 1:]
        least = (torch.finfo(self.latent.dtype).eps * self.scale).clamp(min=torch.finfo(torch.float64).tiny)
        return float(((after - before) / before.maximum(least)).max())

    def audit(self) -> bool:
        """Whether F_β fell at each half step of each stage, up to rounding in the dtype of the picture."""
        return self.largest_rise <= ROUNDING * torch.finfo(self.latent.dtype).eps


class HyperLaplacian:
    """The prior Σ_j λ_j ‖d_j ⊗ z‖ₚᵖ, d_j the eight differences of first and second order within 3 x 3 pixels, and its solver.

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
        return 1.1e-4 * math.exp(1.38 * (self.power - 0.7)) * (noise / 0.01) ** 1.71

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
        # a kernel for each image of fewer pictures: as many restorations as kernels
        y = y.expand(*blur.adjoint(y).shape[:-2], *blur.range)
        roomy, seen = roomier(blur, y)
        negligible = NEGLIGIBLE * noise**2 * min(1.0, noise / CLEAN)
        run = _Run(seen, roomy, self.power, self.penalty(noise), negligible)
        values: list[Tensor] = []
        movements: list[Tensor] = []
        for below in THRESHOLDS:
            before = run.z
            beta = (threshold(self.power) / (below * (noise / 0.01) ** 0.22)) ** (2.0 - self.power)
            values.append(torch.stack(run.stage(beta)))
            movements.append((run.z - before).square().mean((-2, -1)).sqrt())
        z = run.z[..., : blur.domain[0], : blur.domain[1]]
        status = RunStatus.MAX_ITERATIONS if bool(torch.isfinite(z).all()) else RunStatus.DIVERGED
        image = blur.crop(z)
        return HalfQuadraticSolution(
            image,
            z,
            torch.stack(values),
            _sums(y.double().square()),
            torch.stack(movements),
            status,
            len(values),
            run.applications,
        )


def roomier(blur: Blur, y: Tensor) -> tuple[Blur, Tensor]:
    """The blur with more room at the far ends of its latent pictures, where a Fourier transform of that size is faster, and what
    it observes; pictures (..., h, w)."""
    from scipy.fft import next_fast_len

    fast: Any = next_fast_len  # its stub promises None
    inside = blur.blur if isinstance(blur, MaskedBlur) else blur
    sizes = tuple(int(fast(size, real=True)) for size in blur.domain)
    if not isinstance(inside, ValidBlur) or sizes == blur.domain:
        return blur, y
    grown = ValidBlur(inside.kernel, sizes)
    rows, columns = blur.range
    mask = torch.zeros(grown.range, dtype=torch.bool, device=y.device)
    mask[:rows, :columns] = blur.mask if isinstance(blur, MaskedBlur) else True
    room = (0, grown.range[1] - columns, 0, grown.range[0] - rows)
    return MaskedBlur(grown, mask), pad(y, room)


class _Run:
    """The iteration, at its last z and w."""

    def __init__(self, y: Tensor, blur: Blur, power: float, penalty: float, negligible: float) -> None:
        # by Parseval sums over frequencies are larger by the number of pixels
        self.negligible = negligible * math.prod(blur.domain) ** 2
        self.y, self.blur, self.power = y, blur, power
        scales, weights = (y.new_tensor([values[j] for j in CLASSES]) for values in (SCALES, WEIGHTS))
        shape = (len(CLASSES), *[1] * y.ndim)
        self.penalties = (penalty * weights * scales**power).reshape(shape)
        self.stiffness = (scales ** (2.0 - power)).reshape(shape)
        impulse = y.new_zeros(blur.domain)
        impulse[0, 0] = 1.0
        self.responses = _power(torch.fft.rfft2(differences(impulse)))
        # how often the half-plane of rfft2 stands for a frequency, in inner products
        self.multiplicity = y.new_full((blur.domain[1] // 2 + 1,), 2.0)
        self.multiplicity[0] = 1.0
        if blur.domain[1] % 2 == 0:
            self.multiplicity[-1] = 1.0
        self.z = extended(y, blur)
        self.transform = torch.fft.rfft2(self.z)
        self.residual = y - blur.from_spectrum(self.transform)
        self.w = torch.zeros_like(differences(self.z))
        self.roughness = _sums(self.w)
        self.applications = 1

    def stage(self, beta: float) -> list[Tensor]:
        """Both half steps at this β; F_β before, between and after."""
        betas = beta * self.stiffness
        coupling = self.penalties * betas
        smoothness = (coupling.flatten()[:, None, None] * self.responses).sum(0)
        v = differences(self.z)
        values = [self._value(self.w - v, betas)]
        self.w, penalty = shrunk(v, self.power, betas)
        self.roughness = _sums(penalty)
        apart = self.w - v
        values.append(self._value(apart, betas))
        pull = torch.fft.rfft2(adjoint_differences(apart.mul_(coupling)))
        self._descend(pull + self.blur.to_spectrum(self.residual), smoothness)
        self.z = torch.fft.irfft2(self.transform, s=self.blur.domain)
        self.residual = self.y - self.blur.from_spectrum(self.transform)
        values.append(self._value(self.w - differences(self.z), betas))
        self.applications += 2
        return values

    def _descend(self, left: Tensor, smoothness: Tensor) -> None:
        """Towards the minimum over z: by ``left`` = -∇F_β, all at once or by conjugate gradients preconditioned with M."""
        inverse = 1.0 / (self.blur.majorizer + smoothness)
        if self.blur.exact_majorizer:
            self.transform = self.transform + inverse * left
            self.applications += 1
            return
        weights = self.multiplicity * inverse
        direction, before = inverse * left, _total(weights * _power(left))
        for _ in range(INNER):
            image = self.blur.to_spectrum(self.blur.from_spectrum(direction)) + smoothness * direction
            steepness = torch.view_as_real(direction).mul(torch.view_as_real(image)).sum(-1)
            # where nothing is left to descend, 0/0
            step = (before / _total(self.multiplicity * steepness)).nan_to_num_(0.0, 0.0, 0.0)
            self.transform = self.transform + step * direction
            self.applications += 3
            if not bool((0.5 * step * before > self.negligible).any()):
                return
            left = left - step * image
            after = _total(weights * _power(left))
            direction = inverse * left + (after / before).nan_to_num_(0.0, 0.0, 0.0) * direction
            before = after

    def _value(self, apart: Tensor, betas: Tensor) -> Tensor:
        """F_β of each image, ``apart`` the difference of w and the differences of z."""
        weights = self.penalties[..., 0, 0]
        prior = weights * (self.roughness + 0.5 * betas[..., 0, 0] * _sums(apart.square()))
        return prior.sum(0) + 0.5 * _sums(self.residual.square())


def _total(products: Tensor) -> Tensor:
    return products.sum((-2, -1), keepdim=True)


def _power(transform: Tensor) -> Tensor:
    """|·|²."""
    return torch.view_as_real(transform).square().sum(-1)


def _sums(image: Tensor) -> Tensor:
    return image.sum(-1).sum(-1, dtype=torch.float64)


def differences(z: Tensor) -> Tensor:
    """d_j ⊗ z (8, ..., H, W) of z (..., H, W), periodic: the cosine basis of 3 x 3 pixels without its constant.

    Its orders (across, down) are (0, 1), (0, 2), (1, 0), …, (2, 2).
    """
    return _orders(_orders(z, -1), -2).transpose(0, 1).flatten(0, 1)[1:]


def adjoint_differences(w: Tensor) -> Tensor:
    """The adjoint (..., H, W) of ``differences`` of w (8, ..., H, W)."""
    constant = w.new_zeros(1, *w.shape[1:])
    grid = torch.cat([constant, w]).unflatten(0, (3, 3))
    return _adjoint_orders(_adjoint_orders(grid.transpose(0, 1), -2), -1)


def _orders(x: Tensor, axis: int) -> Tensor:
    """Mean, first and second difference of three neighbours along an axis, of norm 1; (3, ...)."""
    before, after = x.roll(1, axis), x.roll(-1, axis)
    both = before + after
    mean, bend = (both + x).mul_(1.0 / math.sqrt(3.0)), both.sub_(x, alpha=2.0).mul_(1.0 / math.sqrt(6.0))
    return torch.stack([mean, after.sub_(before).mul_(1.0 / math.sqrt(2.0)), bend])


def _adjoint_orders(orders: Tensor, axis: int) -> Tensor:
    """The adjoint of ``_orders``."""
    mean, slope, bend = orders.unbind(0)
    mean, slope, bend = mean / math.sqrt(3.0), slope / math.sqrt(2.0), bend / math.sqrt(6.0)
    sides = mean + bend
    return mean.sub_(bend, alpha=2.0).add_((sides + slope).roll(1, axis)).add_(sides.sub_(slope).roll(-1, axis))
