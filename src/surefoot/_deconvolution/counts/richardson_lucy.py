"""Richardson-Lucy: the EM algorithm for counts, y ~ Poisson(Bz + b), whose likelihood never decreases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..._core.audit import Audit, line
from ..._core.brief import brief
from ..._core.status import RunStatus
from ..._core.validate import nonnegative, positive_integer
from ..operators import Blur
from .model import Counts

SHORTEST = 0.1
"""An extrapolation leaves each pixel at least so much of what the EM step made of it."""


@dataclass(frozen=True)
class RichardsonLucySolution:
    """What ``richardson_lucy`` returns. Leading dimensions (...,) are those of the observed counts, of one image each.

    Attributes:
        image: (..., h, w), restored counts in the unit of the observed ones, without the background; never negative.
        latent: (..., H, W), the same with what lies beyond the border.
        deviances: (iterations + 1, ...), float64: 2 Σ y log(y/m) - y + m, m = Bz + b in events, before each iteration and at
            the end. The log-likelihood is a constant less half of it. An image that stopped earlier keeps its last value.
        discrepancy: (...,), the last deviance over its expectation were the latent image true.
        change: (...,), Σ|z⁺ - z| / Σz of the last iteration.
        iterations: the most for an image.
        applications: products with B or Bᵀ for each image.
        extrapolated: (...,), accelerated steps that were kept.
        status: converged where every image reached the discrepancy or settled, else max_iterations; diverged where a likelihood
            became infinite or NaN (counts beyond the dtype, or an operator whose adjoint is none): the images are those before.
        audit: that the likelihood decreased in no iteration, up to the rounding of the transforms.
    """

    image: Tensor
    latent: Tensor
    deviances: Tensor
    discrepancy: Tensor
    change: Tensor
    iterations: int
    applications: int
    extrapolated: Tensor
    status: RunStatus
    audit: Audit

    __repr__ = brief


def richardson_lucy(
    blur: Blur,
    observed: Any,
    iterations: int = 200,
    *,
    gain: float = 1.0,
    background: Any = 0.0,
    discrepancy: float = 1.0,
    tolerance: float = 1e-4,
    accelerate: bool = False,
) -> RichardsonLucySolution:
    """Restore counts by z⁺ = z/(Bᵀ1) ⊙ Bᵀ(y/(Bz + b)), from a constant start, until the misfit is that of the noise.

    Each step maximises a lower bound of the likelihood that touches it at z (Shepp & Vardi, IEEE Trans. Med. Imaging 1, 1982), so
    that the likelihood never decreases, whatever the blur, and all iterations from a positive start converge to a maximum. That
    maximum fits the noise: what restores is to stop early. With the normaliser Bᵀ1 the border may be unknown (``ValidBlur``).

    Iterating ends, for each image, where the deviance is ``discrepancy`` times its expectation under the model (the counts'
    discrepancy principle), or where the picture has settled, or with ``iterations``.

    Args:
        blur: B, of pictures or stacks.
        observed: y (..., h, w), or (..., d, h, w) for stacks: counts, not negative, of the dtype and device of the blur.
        iterations: at most so many.
        gain: what one event (photon, electron) adds to y: y/gain is Poisson distributed. It decides when to stop alone.
        background: b ≥ 0 in the unit of y, a number or an array that broadcasts to y.
        discrepancy: 0 never stops for it.
        tolerance: relative change Σ|z⁺ - z| / Σz of one iteration at which the picture counts as settled; 0 never stops for it.
        accelerate: extrapolate beyond the EM step as Nesterov (1983) does, and keep that where the likelihood did not
            decrease: else the EM step is taken. Monotone as before; that it converges to a maximum is not known.

    Returns:
        The restored counts, with the deviance of each iteration and an audit: see ``RichardsonLucySolution``.

    Raises:
        TypeError: not an array of floats, or of another dtype or device than the blur; iterations that are no integer.
        ValueError: shapes that do not fit, negative or non-finite counts, a gain that is not positive, or a background,
            discrepancy or tolerance that is negative.

    Example:
        >>> from surefoot import deconvolution as dc
        >>> sharp = torch.zeros(16, 16).double()
        >>> sharp[4:12, 4:12] = 1.0  # a white square
        >>> blur = dc.PeriodicBlur(torch.full((3, 3), 1 / 9).double(), (16, 16))
        >>> counts = torch.poisson(100 * blur.forward(sharp) + 10)
        >>> found = dc.richardson_lucy(blur, counts, background=10.0)  # stops at the noise
        >>> found.status.value, found.audit.holds
        ('converged', True)
        >>> before = dc.psnr((counts - 10) / 100, sharp)
        >>> bool(dc.psnr(found.image / 100, sharp) > before + 2)
        True
    """
    model = Counts(blur, observed, gain, background)
    iterations = positive_integer("iterations", iterations)
    discrepancy, tolerance = nonnegative("discrepancy", discrepancy), nonnegative("tolerance", tolerance)
    run = _Run(model, accelerate)
    status = RunStatus.MAX_ITERATIONS
    for _ in range(iterations):
        run.step()
        if run.diverged:
            status = RunStatus.DIVERGED
            break
        run.stop(discrepancy, tolerance)
        if not bool(run.active.any()):
            status = RunStatus.CONVERGED
            break
    latent = run.z * model.gain
    return RichardsonLucySolution(
        blur.crop(latent),
        latent,
        torch.stack(run.deviances),
        model.discrepancy(run.deviances[-1], run.expected),
        run.change,
        len(run.deviances) - 1,
        run.applications,
        run.extrapolated,
        status,
        _audit(run),
    )


class _Run:
    """The iterates, all images at once; those that are no longer active stay as they are."""

    def __init__(self, model: Counts, accelerate: bool) -> None:
        self.model, self.accelerate = model, accelerate
        self.visible = model.seen > model.faint
        self.z = model.flat()
        self.expected = model.expected(self.z)
        deviance, error = model.deviance(self.z, self.expected)
        self.deviances, self.errors = [deviance], [error]
        self.diverged = False
        self.active = torch.ones_like(deviance, dtype=torch.bool)
        self.change = torch.full_like(deviance, torch.inf)
        self.extrapolated = torch.zeros_like(deviance, dtype=torch.int64)
        self.applications = 3  # the normaliser, what is reached, the start
        self._before: Tensor | None = None
        self._steps = torch.zeros_like(deviance)
        """EM steps since the extrapolation began anew."""

    def step(self) -> None:
        """One iteration of every active image."""
        model = self.model
        pulled = model.blur.adjoint(model.ratio(self.expected)).clamp(min=0.0)
        # a latent pixel that nothing shows keeps its value: each pixel's update alone is monotone
        em = torch.where(self.visible, self.z * pulled / model.seen.clamp(min=model.faint), self.z)
        z, far = em, torch.zeros_like(self.active)
        if self.accelerate and self._before is not None:
            reach = model.wide((self._steps - 1.0).clamp(min=0.0) / (self._steps + 2.0)).to(em)
            z, far = (em + reach * (em - self._before)).maximum(SHORTEST * em), self._steps > 1.0
        self._before = em
        expected = model.expected(z)
        deviance, error = model.deviance(z, expected)
        self.applications += 2
        worse = far & ~(deviance <= self.deviances[-1]) & self.active
        if bool(worse.any()):
            z = torch.where(self.model.wide(worse), em, z)
            expected = model.expected(z)
            deviance, error = model.deviance(z, expected)
            self.applications += 1
        self._steps = torch.where(worse, 0.0, self._steps) + 1.0
        self.extrapolated += (far & ~worse & self.active).long()
        self._keep(z, expected, deviance, error)

    def _keep(self, z: Tensor, expected: Tensor, deviance: Tensor, error: Tensor) -> None:
        self.diverged = not bool((deviance.isfinite() | ~self.active).all())
        active, axes = self.model.wide(self.active & deviance.isfinite()), self.model.axes
        total = z.sum(axes).clamp(min=torch.finfo(z.dtype).tiny)
        change = ((z - self.z).abs().sum(axes) / total).double()
        self.change = torch.where(self.active, change, self.change)
        self.z, self.expected = torch.where(active, z, self.z), torch.where(active, expected, self.expected)
        self.deviances.append(torch.where(self.active, deviance, self.deviances[-1]))
        self.errors.append(torch.where(self.active, error, self.errors[-1]))

    def stop(self, discrepancy: float, tolerance: float) -> None:
        """Let go of the images that fit to the noise, or that have settled."""
        reached = self.change <= tolerance if tolerance > 0.0 else torch.zeros_like(self.active)
        if discrepancy > 0.0:
            reached = reached | self.model.fits(self.deviances[-1], self.expected, discrepancy)
        self.active = self.active & ~reached


def _audit(run: _Run) -> Audit:
    """Each deviance against the one before, with what the transforms may have rounded."""
    values = torch.stack(run.deviances).reshape(len(run.deviances), -1)
    errors = torch.stack(run.errors).reshape(values.shape)
    allowed = values[:-1] + errors[:-1] + errors[1:]
    # of several images the one with the largest ratio
    worst = (values[1:] / allowed.clamp(min=torch.finfo(values.dtype).tiny)).argmax(1, keepdim=True)
    left, right = values[1:].gather(1, worst).flatten().tolist(), allowed.gather(1, worst).flatten().tolist()
    rows = [(i, a, b) for i, (a, b) in enumerate(zip(left, right, strict=True), 1)]
    name = "the deviance after an iteration <= the one before"
    return Audit("deconvolution/richardson-lucy", (line(name, rows),), float(errors[-1].max()))
