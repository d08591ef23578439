"""Total variation for counts: min over z ≥ 0 of Σ y log(y/m) - y + m + λ Σ_i ‖(Dz)_i‖₂, m = Bz + b, by a primal-dual method."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ..._core.audit import Audit, line
from ..._core.brief import brief
from ..._core.status import RunStatus
from ..._core.validate import nonnegative, positive, positive_integer
from ..operators import Blur, image_norm
from ..problem import DualityGap
from ..total_variation import differences, differences_adjoint, lengths
from ..wiener import laplacian
from .model import Counts

DATA, SLOPES, POSITIVE = 0.1, 0.1, 0.01
"""Dual steps of the data, the slopes and the bound z ≥ 0, times the brightness: fewest iterations on training photographs."""
MARGIN = 1e-8
"""Relative distance of the primal step from the largest one that the step condition admits."""
CHECK_EVERY = 10
"""Iterations between two duality gaps, which cost about one iteration each."""
NEAR, MISFIT, LIGHTER = 0.2, 1.02, 0.7
"""At that relative duality gap the misfit is known; above that discrepancy the default penalty is multiplied by the last."""


def default_count_penalty(level: Tensor) -> Tensor:
    """λ = .6 c^-.7 for a mean of c counts: what restored training photographs of 10 to 5,000 counts best."""
    return 0.6 * level**-0.7


@dataclass(frozen=True)
class PoissonTVSolution:
    """What ``poisson_tv`` returns. Leading dimensions (...,) are those of the observed counts, of one image each.

    Attributes:
        image: (..., h, w), restored counts in the unit of the observed ones, without the background; never negative.
        latent: (..., H, W), the same with what lies beyond the border.
        gap: bounds of the objective at ``latent`` and of its optimum, in events. They include first-order bounds of rounding.
        discrepancy: (...,), the deviance over its expectation were the latent image true.
        penalty: (...,), λ.
        checked: the iterations after which the gap was evaluated.
        relative_gaps: (len(checked), ...), float64, the relative duality gap there.
        changes: the change V from an iterate to the next over all images, which never increases, of each iteration since the
            penalty was chosen.
        iterations: how many.
        applications: products with B, Bᵀ or a Fourier filter for each image.
        status: converged, max_iterations, or diverged (then the images are the start).
        audit: the step condition as measured in each iteration, and that V never increases.
    """

    image: Tensor
    latent: Tensor
    gap: DualityGap
    discrepancy: Tensor
    penalty: Tensor
    checked: tuple[int, ...]
    relative_gaps: Tensor
    changes: Tensor
    iterations: int
    applications: int
    status: RunStatus
    audit: Audit

    __repr__ = brief


def poisson_tv(
    blur: Blur,
    observed: Any,
    penalty: float | None = None,
    iterations: int = 300,
    *,
    gain: float = 1.0,
    background: Any = 0.0,
    tolerance: float = 5e-2,
) -> PoissonTVSolution:
    """Restore counts of small total variation: y/gain ~ Poisson((Bz + b)/gain), z ≥ 0.

    With K = (B, D, I), D periodic forward differences, this is min over z of F₁(Bz) + λ‖Dz‖ + indicator(z ≥ 0), and the method is
    the primal-dual one of Chambolle & Pock (J. Math. Imaging Vis. 40, 2011), preconditioned (Pock & Chambolle, ICCV 2011) by
    steps Σ = (σ₁, σ₂, σ₃) and a Fourier multiplier T with 1/T = (1 + 1e-8)(σ₁M + σ₂DᵀD + σ₃), M ⪰ BᵀB the blur's majorizer:

        z⁺ = z - T Kᵀu,   u⁺ = prox_{ΣF*}(u + ΣK(2z⁺ - z))

    It converges from every start since ‖Σ^½ K T^½‖ < 1. The iteration is a proximal point method in the norm ⟨z, z/T⟩ - 2⟨Kz, u⟩
    + ⟨u, u/Σ⟩, so that the squared change V from an iterate to the next never increases.

    Args:
        blur: B, of pictures or stacks.
        observed: y (..., h, w), or (..., d, h, w) for stacks: counts, not negative, of the dtype and device of the blur.
        penalty: λ > 0. By default it is ``.6 c^-.7`` of the mean count c, in events above the background, which was chosen on
            photographs; it is lowered where the misfit turns out to be above that of the noise, as for points
            on a dark ground.
        iterations: at most so many.
        gain: what one event (photon, electron) adds to y.
        background: b ≥ 0 in the unit of y, a number or an array that broadcasts to y.
        tolerance: relative duality gap of every image at which to end; 0 for all iterations. The default is where
            photographs have settled.

    Returns:
        The restored counts, with bounds of the objective and an audit: see ``PoissonTVSolution``.

    Raises:
        TypeError, ValueError: as ``richardson_lucy``; a penalty that is not a positive number.

    Example:
        >>> from surefoot import deconvolution as dc
        >>> sharp = torch.zeros(16, 16).double()
        >>> sharp[4:12, 4:12] = 1.0  # a white square
        >>> blur = dc.PeriodicBlur(torch.full((3, 3), 1 / 9).double(), (16, 16))
        >>> counts = torch.poisson(100 * blur.forward(sharp) + 10)
        >>> found = dc.poisson_tv(blur, counts, background=10.0)
        >>> found.status.value, bool(found.gap.relative < 0.06), found.audit.holds
        ('converged', True, True)
        >>> before = dc.psnr((counts - 10) / 100, sharp)
        >>> bool(dc.psnr(found.image / 100, sharp) > before + 5)
        True
    """
    model = Counts(blur, observed, gain, background)
    weight = (
        default_count_penalty(model.level) if penalty is None else model.level.new_tensor(positive("penalty", penalty))
    )
    problem = _Problem(model, weight.expand(model.level.shape))
    iterations, tolerance = positive_integer("iterations", iterations), nonnegative("tolerance", tolerance)
    run = _Run(problem)
    start, gaps, checked = run.z, [problem.duality_gap(run.z, run.r, run.q, run.w)], [0]
    status, count = RunStatus.MAX_ITERATIONS, 0
    for count in range(1, iterations + 1):
        run.step()
        if count % CHECK_EVERY and count < iterations:
            continue
        gaps.append(problem.duality_gap(run.z, run.r, run.q, run.w))
        checked.append(count)
        if not bool(run.z.isfinite().all()):
            run.z, status = start, RunStatus.DIVERGED
            gaps[-1] = gaps[0]
            break
        if penalty is None and run.lighten(gaps[-1].relative <= NEAR):
            continue
        if bool((gaps[-1].relative <= tolerance).all()):
            status = RunStatus.CONVERGED
            break
    z = run.z.clamp(min=0.0)
    return PoissonTVSolution(
        blur.crop(z) * model.gain,
        z * model.gain,
        gaps[-1],
        problem.discrepancy(z),
        problem.penalty.flatten(-len(model.axes)).squeeze(-1),
        tuple(checked),
        torch.stack([gap.relative for gap in gaps]),
        torch.tensor(run.changes, dtype=torch.float64),
        count,
        run.applications + 3 * len(checked),
        status,
        _audit(run),
    )


class _Problem:
    """The objective, its maps and its bounds, with a penalty (..., 1, 1) for each image."""

    def __init__(self, model: Counts, penalty: Tensor) -> None:
        self.model, self.penalty = model, penalty
        self.dimensions = len(model.axes)
        self.smoothing = laplacian(model.blur.domain, model.observed)

    def slopes(self, z: Tensor) -> Tensor:
        return differences(z, self.dimensions)

    def pulled(self, p: Tensor, q: Tensor, w: Tensor) -> Tensor:
        """Kᵀ(p, q, w)."""
        return self.model.blur.adjoint(p) + differences_adjoint(q, self.dimensions) + w

    def discrepancy(self, z: Tensor) -> Tensor:
        expected = self.model.expected(z.clamp(min=0.0))
        return self.model.discrepancy(self.model.deviance(z, expected)[0], expected)

    def duality_gap(self, z: Tensor, r: Tensor, q: Tensor, w: Tensor) -> DualityGap:
        """Bounds of the objective at max(z, 0) and of its optimum, from a dual point near (1 - r, q, w), r > 0 and w ≤ 0.

        The dual is: maximise Σ b(1 - r) + y log r subject to Bᵀ1 - Bᵀr + Dᵀq = -w ≥ 0 and ‖q_i‖₂ ≤ λ. The point scales r so that
        both sides of the constraint have the same sum, and moves q by D(DᵀD)⁺ of what is left. Where ‖q_i‖ then exceeds λ by a
        factor 1 + ε, the value bounds the optimum of the penalty (1 + ε)λ, which is at most 1 + ε times that of λ.
        """
        model, n, axes = self.model, self.dimensions, self.model.axes
        if z.dtype == torch.float32:
            return _Problem(model.double(), self.penalty.double()).duality_gap(*(t.double() for t in (z, r, q, w)))
        unit, wide = torch.finfo(z.dtype).eps, model.wide
        z = z.clamp(min=0.0)
        deviance, error = model.deviance(z, model.expected(z))
        weight = self.penalty.amax(axes)
        terms = (z.numel() + 8) * unit
        variation = lengths(self.slopes(z), n).sum(axes)
        primal = (0.5 * (deviance + error) + weight * variation * (1.0 + terms)) * (1.0 + 8.0 * unit)

        pulled, seen = model.blur.adjoint(r), model.seen
        scale = ((seen + w).sum(axes) / pulled.sum(axes)).clamp(min=0.0)
        r, pulled = wide(scale) * r, wide(scale) * pulled
        left = seen - pulled + differences_adjoint(q, n) + w
        inverse = torch.where(self.smoothing > 0.0, 1.0 / self.smoothing, 0.0)
        q = q - self.slopes(model.blur.filtered(inverse, left))
        left = seen - pulled + differences_adjoint(q, n) + w
        excess = (lengths(q, n).amax(axes) / weight).clamp(min=1.0) * (1.0 + 8.0 * unit)
        y, b = model.observed, model.background
        logarithms = y * torch.where(y > 0.0, r, 1.0).log()
        value = (logarithms + b * (1.0 - r)).sum(axes)
        value = value - terms * (logarithms.abs() + b * (1.0 + r)).sum(axes)
        # what is left of the constraint, which is rounding, counts with a bound of the solution's norm
        defect = image_norm(left, axes) * (1.0 + terms) + model.blur.forward_error(image_norm(r, axes))
        sizes = (
            image_norm(seen, axes)
            + image_norm(pulled, axes)
            + image_norm(w, axes)
            + 4.0 * image_norm(q, (-n - 1, *axes))
        )
        value = value - (defect + 8.0 * unit * sizes) * self._reach(primal / weight)
        dual = torch.where(value > 0.0, value / excess, 0.0)  # the objective is never negative
        return DualityGap(primal, torch.where(dual.isfinite(), dual, 0.0))

    def _reach(self, variation: Tensor) -> Tensor:
        """Upper bound (...,) of ‖z*‖ where Σ_i ‖(Dz*)_i‖ is at most ``variation``.

        Without its mean z* has at most a quarter of the longest side times that. At a minimiser z* the derivative along z* is 0,
        so that Σ Bz* ≤ Σ y, which bounds the mean.
        """
        model, axes = self.model, self.model.axes
        seen = model.seen.clamp(min=0.0)
        apart = 0.25 * max(model.blur.domain) * variation
        mean = (model.observed.sum(axes) + image_norm(seen, axes) * apart) / seen.sum(axes)
        pixels = seen[(0,) * (seen.ndim - self.dimensions)].numel()
        return (apart + pixels**0.5 * mean) * (1.0 + 1e-9)


class _Run:
    """The iterates: z (..., H, W), and u = (p, q, w) of Bz, Dz and z ≥ 0."""

    def __init__(self, problem: _Problem) -> None:
        model = problem.model
        self.problem = problem
        self.data, self.turn, self.bound = (step / model.brightness for step in (DATA, SLOPES, POSITIVE))
        self.step_condition = self.data * model.blur.majorizer + self.turn * problem.smoothing + self.bound
        self.filter = 1.0 / ((1.0 + MARGIN) * self.step_condition)
        self.z = model.flat()
        self.p, self.r = torch.zeros_like(model.observed), torch.ones_like(model.observed)
        self.w = torch.zeros_like(self.z)
        self.q = problem.slopes(self.w)
        self._blurred, self._slopes = model.blur.forward(self.z), problem.slopes(self.z)
        self.changes: list[float] = []
        self.measured: list[tuple[float, float, float]] = []
        """⟨Δz, KᵀΣKΔz⟩, ⟨Δz, Δz/T⟩ and an error of each iteration, of the image with the largest ratio."""
        self.errors: list[float] = []
        """Bounds of the rounding error of Σ^½ KΔz, over all images, of each iteration."""
        self.applications = 2

    def step(self) -> None:
        """One iteration of all images."""
        problem, model, n = self.problem, self.problem.model, self.problem.dimensions
        pull = problem.pulled(self.p, self.q, self.w)
        dz = -model.blur.filtered(self.filter, pull)
        z = self.z + dz
        blurred, slopes = model.blur.forward(z), problem.slopes(z)
        db, ds = blurred - self._blurred, slopes - self._slopes
        p, r = _data_step(self.p + self.data * (blurred + db), self.data, model)
        q = self.q + self.turn.unsqueeze(-n - 1) * (slopes + ds)
        q = q * (problem.penalty / lengths(q, n)).clamp(max=1.0).unsqueeze(-n - 1)
        w = (self.w + self.bound * (z + dz)).clamp(max=0.0)
        self._measure(dz, db, ds, (p - self.p, q - self.q, w - self.w), pull)
        self.z, self.p, self.r, self.q, self.w = z, p, r, q, w
        self._blurred, self._slopes = blurred, slopes
        self.applications += 3

    def lighten(self, near: Tensor) -> bool:
        """Lower the penalty of those images ``near`` their optimum that do not fit; if there are any, the method begins anew."""
        heavy = near & (self.problem.discrepancy(self.z) > MISFIT)
        if not bool(heavy.any()):
            return False
        self.problem.penalty = torch.where(self.problem.model.wide(heavy), LIGHTER, 1.0) * self.problem.penalty
        self.changes, self.measured, self.errors = [], [], []
        return True

    def _measure(self, dz: Tensor, db: Tensor, ds: Tensor, du: tuple[Tensor, Tensor, Tensor], pull: Tensor) -> None:
        """V of this step, and both sides of the step condition along Δz."""
        axes, dp, dq, dw = self.problem.model.axes, *du

        def total(image: Tensor) -> Tensor:
            return image.double().sum(axes)

        data, turn, bound = (step.double().amax(axes) for step in (self.data, self.turn, self.bound))
        across = (-len(axes) - 1,)
        own = -total(dz * pull)  # ⟨Δz, Δz/T⟩
        mapped = data * total(db * db) + turn * total((ds * ds).sum(across)) + bound * total(dz * dz)
        mixed = total(db * dp) + total((ds * dq).sum(across)) + total(dz * dw)
        dual = total(dp * dp) / data + total((dq * dq).sum(across)) / turn + total(dw * dw) / bound
        self.changes.append(float((own - 2.0 * mixed + dual).sum()))
        size = image_norm(self.z, axes)
        rounded = torch.finfo(size.dtype).eps * size.double()
        error = 2.0 * data.sqrt() * self.problem.model.blur.forward_error(size).double()
        error = error + (8.0 * turn.sqrt() + 2.0 * bound.sqrt()) * rounded
        self.errors.append(float(error.square().sum().sqrt()))
        worst = (mapped / own.clamp(min=torch.finfo(torch.float64).tiny)).flatten().argmax()
        self.measured.append(
            (float(mapped.flatten()[worst]), float(own.flatten()[worst]), float(error.flatten()[worst]))
        )


def _data_step(a: Tensor, step: Tensor, model: Counts) -> tuple[Tensor, Tensor]:
    """The proximal step p⁺ of σF₁* at a, and r = 1 - p⁺ without cancellation.

    With v = Bz + b it is p⁺ = a - σ(v - b), where v is the root of σv² - (σb + a - 1)v - y = 0 that is not negative.
    """
    y, b = model.observed, model.background
    half = 0.5 * (b + (a - 1.0) / step)
    root = (half * half + y / step).sqrt()
    tiny = torch.finfo(a.dtype).tiny
    v = torch.where(half > 0.0, half + root, (y / step) / (root - half).clamp(min=tiny))
    p = a - step * (v - b)
    return p, torch.where(y > 0.0, y / v.clamp(min=tiny), (1.0 - p).clamp(min=0.0))


def _audit(run: _Run) -> Audit:
    """What the convergence proof uses, as measured along the run, with what its transforms may have rounded."""
    slack = 1.0 + 1e4 * torch.finfo(run.z.dtype).eps

    def allowed(value: float, error: float) -> float:
        return (math.sqrt(max(value, 0.0) * slack) + error) ** 2

    condition = [(i, left, allowed(right, error)) for i, (left, right, error) in enumerate(run.measured, 1)]
    errors = [math.hypot(a, b) for a, b in pairwise(run.errors)]
    changes = [
        (i, after, allowed(before, 2.0 * error))
        for i, ((before, after), error) in enumerate(zip(pairwise(run.changes), errors, strict=True), 2)
    ]
    lines = (
        line("<dz, K'SKdz> <= <dz, dz/T>, the step condition along each step", condition),
        line("the change V of a step <= that of the step before", changes),
    )
    return Audit("deconvolution/poisson-tv", lines, max((error**2 for error in errors), default=0.0))
