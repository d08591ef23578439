"""What a deconvolution network proposes is used only where it passes a test; elsewhere a method without training decides."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..._core.brief import brief
from ..admm import LADMM, State
from ..half_quadratic import HyperLaplacian
from ..masked import MaskedBlur
from ..operators import Blur, PeriodicBlur, SpatiallyVaryingBlur
from ..problem import DeconvolutionProblem, DualityGap, checked_image
from .network import LearnedDeconvolution

MISFIT, EXCESS = 1.5, 1.15
"""Largest root mean square residual of a proposal over that of the fallback, and over the larger of that and the noise level, for
``restore_checked``. Of proposals that were better, on real photographs, the first was up to 1.3 and the second below 1."""
SHARE = 0.2
"""Of the network in the mean of the two. Larger shares gain more on simulated noise, and lose on real photographs:
at a quarter one of 96 restorations lost 0.052 dB, at a fifth none more than 0.03."""
ROUGHNESS, POWER = 1.25, 2.0 / 3.0
"""Largest Σ|∇z|ᵖ of a proposal over that of the fallback, and p."""
BETA = 10.0
"""β over λ of the fallback: where it is fastest."""


@dataclass(frozen=True)
class Restoration:
    """A restoration with its safeguard.

    Attributes:
        latent: (..., H, W), on the grid of latent images; not clipped to 0..1.
        image: (..., h, w), under the observed picture.
        accepted: (...,), whether the network's proposal was used, or averaged with the fallback by ``restore_checked``.
        residual: (...,), root mean square of y - Bz over the noise level, of what was returned.
        gap: bounds of the objective at what was returned and of its optimum; ``None`` for a heuristic safeguard.
        guarantee: "certified" or "heuristic".
        iterations: of the fallback; 0 where it was not needed.
        applications: products with B, Bᵀ or an inverse filter, for each image.
    """

    latent: Tensor
    image: Tensor
    accepted: Tensor
    residual: Tensor
    gap: DualityGap | None
    guarantee: str
    iterations: int
    applications: int

    __repr__ = brief

    @property
    def text(self) -> str:
        """What was returned and what that means."""
        total, kept = self.accepted.numel(), int(self.accepted.sum())
        source = f"the network takes part in {kept} of {total} images, the fallback decides the others"
        if self.gap is None:
            return f"{source}; heuristic: its proposals are finite, and hardly rougher or further from the observation"
        worst = float(self.gap.relative.max())
        return (
            f"{source}; certified: every objective is within {worst:.2g} of its optimum, relative, whatever the weights"
        )


def restore_certified(
    net: LearnedDeconvolution,
    problem: DeconvolutionProblem,
    noise: float,
    *,
    tolerance: float = 1e-2,
    iterations: int = 500,
) -> Restoration:
    """Solve a problem to a certified duality gap, with the network's image as a proposal: for nets trained on the objective.

    An image whose proposal has a relative duality gap of at most ``tolerance`` is done. The others go on with fixed L-ADMM, from
    the proposal where its objective is below that of the usual start, else from that: ``deconvolution/ladmm`` holds for every
    start. Of their proposal and the result of L-ADMM the one with the lower objective is returned. So for any weights, non-finite
    ones included, every image has either a relative gap of at most ``tolerance`` or an objective that is not above L-ADMM's own
    result after all ``iterations``; ``gap`` says which gap was reached.

    Args:
        net: its dtype and device may be other than the problem's dtype; the device must be the problem's.
        problem: float64, for a gap that is not lost in rounding.
        noise: the noise level the network is told, a positive number.
        tolerance, iterations: of the relative gap, and of L-ADMM.

    Returns:
        The latent image and its gap, with the guarantee ``certified``: see ``Restoration``.

    Raises:
        TypeError, ValueError: see ``LearnedDeconvolution.forward`` and ``LADMM.solve``.

    Example:
        >>> from surefoot import deconvolution as dc
        >>> sharp = torch.zeros(16, 16).double()
        >>> sharp[4:12, 4:12] = 1.0  # a white square
        >>> blur = dc.PeriodicBlur(torch.full((3, 3), 1 / 9).double(), (16, 16))
        >>> observed = blur.forward(sharp) + 0.01 * torch.randn(16, 16).double()
        >>> net = sf.nn.LearnedDeconvolution(layers=2, filters=0)  # with whatever weights
        >>> problem = dc.DeconvolutionProblem(observed, blur, dc.default_penalty(0.01))
        >>> restored = dc.restore_certified(net, problem, noise=0.01)
        >>> bool(restored.gap.relative <= 0.01), restored.guarantee
        (True, 'certified')
    """
    z, finite = _proposal(net, problem.observed, problem.blur, noise)
    solver = LADMM(BETA * problem.penalty)
    usual = solver.start(problem)
    z = torch.where(finite[..., None, None], z, usual.synthesis)
    x = problem.wavelet.analysis(z)
    gap = problem.duality_gap(x)
    accepted = finite & (gap.relative <= tolerance)
    cost = net.applications(problem.blur) + 2
    count = 0
    if not bool(accepted.all()):
        better = (finite & (gap.primal < problem.objective(usual.x)))[..., None, None]
        # at the optimum the multiplier is Bᵀ(y - Bz)
        pull = problem.pulled_back - problem.blur.gram(z)
        start = State(
            torch.where(better, z, usual.z),
            torch.where(better, x, usual.x),
            torch.where(better, pull, usual.multiplier),
            torch.where(better, z, usual.synthesis),
        )
        solved = solver.solve(problem, iterations, tolerance=tolerance, start=start)
        # of a proposal whose objective overflows both bounds are NaN: no comparison keeps it, and fmax ignores it
        kept = accepted | (finite & (gap.primal < solved.gap.primal))
        x = torch.where(kept[..., None, None], x, solved.state.x)
        gap = DualityGap(torch.where(kept, gap.primal, solved.gap.primal), torch.fmax(gap.dual, solved.gap.dual))
        accepted, count, cost = kept, solved.iterations, cost + solved.applications
    latent = problem.wavelet.synthesis(x)
    residual = _relative_residual(problem.observed, problem.blur, latent, noise)
    return Restoration(latent, problem.blur.crop(latent), accepted, residual, gap, "certified", count, cost)


def restore_checked(
    net: LearnedDeconvolution, observed: Tensor, blur: Blur, noise: float, *, fallback: Tensor | None = None
) -> Restoration:
    """Take the weighted mean of the network's image and a prior's where the two agree on the observation and on how rough the
    picture is, else the prior's: for nets trained against sharp images.

    A proposal passes where it is finite, the network was trained at that noise level, its residual is at most ``MISFIT`` times
    the fallback's and ``EXCESS`` times the larger of that and the noise, and Σ|∇z|ᵖ under the picture is at most ``ROUGHNESS``
    times the fallback's. All are relative to what is known without the network, as no absolute band suits simulated noise and
    real photographs, whose blur is never quite the kernel's. The mean of two images whose errors differ is nearer to the sharp
    one than they are on average. A heuristic: no test of this kind can tell how near an image is to the sharp one.

    Args:
        net: in the dtype of the images, or another; on their device.
        observed: y (..., h, w), intensities of about 0..1.
        blur: B with that range.
        noise: its standard deviation, a positive number.
        fallback: the latent image (..., H, W) to fall back to; by default that of ``HyperLaplacian``.

    Returns:
        The latent image, with the guarantee ``heuristic`` and no gap: see ``Restoration``.

    Raises:
        TypeError, ValueError: see ``LearnedDeconvolution.forward`` and ``HyperLaplacian.solve``.

    Example:
        >>> from surefoot import deconvolution as dc
        >>> sharp = torch.zeros(16, 16).double()
        >>> sharp[4:12, 4:12] = 1.0  # a white square
        >>> blur = dc.PeriodicBlur(torch.full((3, 3), 1 / 9).double(), (16, 16))
        >>> observed = blur.forward(sharp) + 0.01 * torch.randn(16, 16).double()
        >>> net = sf.nn.LearnedDeconvolution.bundled()
        >>> restored = dc.restore_checked(net, observed, blur, noise=0.01)
        >>> bool(dc.psnr(restored.image, sharp) > dc.psnr(observed, sharp) + 10)
        True
        >>> restored.guarantee, bool(restored.accepted)  # a square is no photograph
        ('heuristic', False)
    """
    observed = blur.seen(checked_image("observed", observed))
    count = cost = 0
    if fallback is None:
        solved = HyperLaplacian().solve(observed, blur, noise)
        fallback, count, cost = solved.latent, solved.iterations, solved.applications
    # a fallback that is not finite passes no comparison below, and must not stop the network
    seen, whole = continued(observed, blur, fallback.nan_to_num(0.0, 0.0, 0.0))
    z, finite = _proposal(net, seen, whole, noise)
    misfits = [_relative_residual(observed, blur, image, noise) for image in (z, fallback)]
    accepted = finite & (misfits[0] <= MISFIT * misfits[1]) & net.trained_at(noise)
    accepted &= misfits[0] <= EXCESS * misfits[1].clamp(min=1.0)
    accepted &= _roughness(blur.crop(z)) <= ROUGHNESS * _roughness(blur.crop(fallback))
    image = torch.where(accepted[..., None, None], fallback + SHARE * (z - fallback), fallback)
    residual = _relative_residual(observed, blur, image, noise)
    cost += net.applications(whole) + 4
    return Restoration(image, blur.crop(image), accepted, residual, None, "heuristic", count, cost)


def continued(observed: Tensor, blur: Blur, latent: Tensor) -> tuple[Tensor, Blur]:
    """The picture (..., H, W) with what ``latent`` makes of the pixels that were not seen, and its periodic blur.

    A network then inverts exactly, and begins with a border that whole iterations have found: that is quicker and gains some
    tenths of a decibel. A blur that varies over the picture, or is periodic, and its picture (..., h, w) come back as they are.
    """
    within = blur.blur if isinstance(blur, MaskedBlur) else blur
    if blur.exact_majorizer or isinstance(within, SpatiallyVaryingBlur):
        return observed, blur
    periodic = PeriodicBlur(blur.kernel, blur.domain)
    whole = periodic.forward(latent)
    under = blur.crop(whole)  # a view
    under += observed - blur.seen(under)
    return whole, periodic


def _roughness(image: Tensor) -> Tensor:
    """Σ|∇z|ᵖ (...,) of images (..., h, w): faint ripples count, edges hardly more than that."""
    slopes = [image.diff(dim=axis).abs() for axis in (-2, -1)]
    return sum((slope.pow(POWER).sum((-2, -1)) for slope in slopes), start=image.new_zeros(image.shape[:-2]))


def _proposal(net: LearnedDeconvolution, observed: Tensor, blur: Blur, noise: float) -> tuple[Tensor, Tensor]:
    """The network's latent image in the dtype of ``observed``, 0 where it is not finite, and which images are finite."""
    dtype = net.log_gradient.dtype
    with torch.no_grad():
        z = net(observed.to(dtype), blur.to(dtype), noise).to(observed.dtype)
    finite = z.isfinite().all(-1).all(-1)
    return torch.where(finite[..., None, None], z, 0.0), finite


def _relative_residual(observed: Tensor, blur: Blur, z: Tensor, noise: float) -> Tensor:
    return (observed - blur.forward(z)).square().mean((-2, -1)).sqrt() / noise
