"""Fixed points z = g(z), sample by sample, to an a-posteriori error bound: plain and safeguarded Anderson iteration.

Plain steps cost little beside an evaluation: the residual is measured, and the samples are judged when they are due. What
mixing gains over them depends on more than the rate. Where the residuals of consecutive steps point nearly in orthogonal
directions, as with a matrix of independent entries, it gains nothing at any rate; where they align, as with a symmetric
one, several times. So ``auto`` looks, after a few plain steps, how much of the residual a combination of the latest ones
leaves, and mixes where that pays.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from . import samples as codes
from .anderson import Anderson, cost, part_left
from .records import SolveInfo, SolveStatus
from .samples import Evaluation, Mask, Reals, Samples

Solver = Literal["auto", "plain", "anderson"]
SOLVERS: tuple[Solver, ...] = ("auto", "plain", "anderson")

_ACCEPTED = 0.5  # the bound that rounding may leave in half precision by default, relative to ‖z‖
_EXTREME = 1e-120  # norms of g(z) below, and above the inverse, are formed from scaled entries

_FIRST_LOOK = 4  # evaluations after which "auto" considers mixing ...
_LOOK_AGAIN = 3  # ... and at a judgement after three times as many, ...
_WORTH = 4.0  # ... where there is more to go than four mixed steps cost
_TRAIL = 3  # plain steps that it considers: two differences show both of a pair of eigenvalues ±λ


def default_tolerance(dtype: torch.dtype) -> float:
    """Relative tolerance: 1e-12 in float64, 1e-5 in float32."""
    return 1e-12 if dtype == torch.float64 else 1e-5


def solve(
    g: Callable[[Tensor], Tensor],
    start: Tensor,
    *,
    batch_dims: int,
    contraction: float | None,
    tolerance: float | None,
    max_iterations: int,
    solver: Solver,
    affine: bool = False,
    eps: float | None = None,
    first: Tensor | None = None,
) -> tuple[Tensor, SolveInfo]:
    """z with z = g(z), and the record; the samples that fail keep a finite iterate.

    Args:
        g: the map, on tensors of the shape of ``start``; samples (the first ``batch_dims`` dimensions) do not interact.
        start: first iterate (*batch, *state), float64 or float32; not changed.
        contraction: Lipschitz constant q < 1 of g in the Euclidean norm of a sample; None estimates it from the iterates.
        tolerance: wanted bound relative to ‖z‖, per sample; None: by dtype, or where ``eps`` is that of a half precision, as
            small as rounding allows if that is at most a half.
        max_iterations: most evaluations of g.
        affine: g(u) = start + J u, as in the backward, so that g(0) is known.
        eps: rounding unit of one evaluation of g, where g computes more coarsely than in the dtype of ``start``; None: that
            of the dtype.
        first: first iterate where it is not ``start``, as in an affine solve that starts warm; not changed.
    """
    eps = torch.finfo(start.dtype).eps if eps is None else eps
    coarse, accepted = eps > codes.COARSE, None
    if tolerance is None:
        tolerance, accepted = (eps, _ACCEPTED) if coarse else (default_tolerance(start.dtype), None)
    count, informed = math.prod(start.shape[:batch_dims]), affine or contraction is not None
    samples = Samples(count, contraction, tolerance, eps, accepted, informed)
    iteration = _Iteration(g, start, first, batch_dims, samples, solver, affine, coarse)
    while iteration.count < max_iterations and math.isfinite(samples.next):
        iteration.step(max_iterations)
    return iteration.result()


class _Iteration:
    """One solve: z (S, D) are the rows of the samples."""

    def __init__(
        self,
        g: Callable[[Tensor], Tensor],
        start: Tensor,
        first: Tensor | None,
        batch_dims: int,
        samples: Samples,
        solver: Solver,
        affine: bool,
        coarse: bool,
    ) -> None:
        self.shape, self.batch = start.shape, start.shape[:batch_dims]
        rows = start.reshape(len(samples.code), math.prod(start.shape[batch_dims:]))
        self.g, self.samples = g, samples
        self.z = rows.clone() if first is None else first.reshape(rows.shape).clone()
        self.safe = self.z  # where g was finite, or the start
        self.norm = norm
        self.count = 0
        self.news: list[Evaluation] = []  # since the last judgement
        # the last evaluation (z, g(z)); of an affine map that at 0 is known
        self.last = (torch.zeros_like(rows), rows) if affine else None
        self.exact = rows if affine and coarse else None  # what is added to J u in the dtype of the iterates
        self.before: Tensor | None = None  # its residual, where z is its g(z), but for finished samples
        self.stay: Tensor | None = None  # finished samples (S, 1), if there are any
        self.auto = solver == "auto"
        self.look = _FIRST_LOOK  # the evaluation from which "auto" considers mixing
        self.trail: deque[tuple[Tensor, Tensor, Tensor]] = deque(maxlen=_TRAIL)  # g, F and residual before a look
        self.mixing = np.full(len(samples.code), solver == "anderson")
        self.anderson = Anderson(rows, self._mask(self.mixing), samples.eps) if solver == "anderson" else None
        self.detour = np.zeros(len(samples.code), dtype=bool)  # those of "auto" that mixed ...
        self.origin: Tensor | None = None  # ... and where they began to, for one return
        self.barred = np.zeros(len(samples.code), dtype=bool)  # "auto" stays with plain steps
        self.used_anderson = solver == "anderson"

    def evaluate(self, z: Tensor) -> Tensor:
        self.count += 1
        return self.g(z.view(self.shape)).reshape(z.shape)

    def step(self, most: int) -> None:
        samples, z = self.samples, self.z
        g = self.evaluate(z)
        F = g - z
        if self.count == 1:
            self.norm = _norm_for(g)
        residual = self.norm(F)
        self.news.append(self._measured(z, g, residual))
        if self.count == 1 and self.last is None and samples.given is None:
            self._probe(z, g, residual)
        self.last, self.before = (z, g), None

        looking, ending = self.count == _FIRST_LOOK and self.auto, self.count >= most
        if not (looking or ending or self.count >= samples.next):
            following = self._following(g, F, residual)
            self.z = following if self.stay is None else torch.where(self.stay, z, following)
            return
        mixed = None if self.anderson is None else self.anderson.mixed
        rounded = None if self.exact is None else self.norm(g - self.exact)
        solved, lost = samples.judge(self.count, self.news, self.norm(g), rounded, mixed, looking or ending)
        self.news = []
        reverted = self._direct()
        active = samples.active
        following = g
        if active.any() and not ending:
            following = self._following(g, F, residual)
            if self.auto and self.count >= self.look:
                following = self._consider(following)
        self.stay = None if active.all() else self._mask(~active)[:, None]
        if self.stay is not None:
            if following is not g and solved.any():
                following = torch.where(self._mask(solved)[:, None], g, following)
            standing = ~active & ~solved
            if standing.any():
                following = torch.where(self._mask(standing)[:, None], z, following)
            if lost.any():
                following = torch.where(self._mask(lost)[:, None], self.safe, following)
        if self.origin is not None and reverted.any():
            following = torch.where(self._mask(reverted)[:, None], self.origin, following)
        self.safe = z if self.anderson is None or self.anderson.g is None else self.anderson.g
        self.z = following

    def _mask(self, mask: Reals | Mask) -> Tensor:
        return torch.from_numpy(mask).to(self.z.device)

    def _tensor(self, numbers: Reals | Mask) -> Tensor:
        return self._mask(numbers).view(self.batch)

    def _measured(self, z: Tensor, g: Tensor, residual: Tensor) -> Evaluation:
        if self.before is not None:
            return Evaluation(self.before, residual, residual)
        if self.last is not None:
            return Evaluation(self.norm(z - self.last[0]), self.norm(g - self.last[1]), residual)
        none = torch.full_like(residual, math.nan)
        return Evaluation(none, none, residual)

    def _probe(self, z: Tensor, g: Tensor, residual: Tensor) -> None:
        """A start that is already a fixed point shows no ratio: look beside it."""
        blind = self.samples.blind(residual.cpu().numpy(), self.norm(g).cpu().numpy())
        if not blind.any():
            return
        other = torch.where(self._mask(blind)[:, None], beside(z, self.norm(z), self.samples.eps), z)
        ratio = self.norm(self.evaluate(other) - g) / self.norm(other - z)
        self.samples.probed(ratio.cpu().numpy(), blind)

    def _following(self, g: Tensor, F: Tensor, residual: Tensor) -> Tensor:
        """The next iterates, but for finished samples."""
        if self.auto and self.count > self.look - _TRAIL:
            self.trail.append((g, F, residual))
        if self.anderson is not None:
            return self.anderson.next(g, F, residual)
        self.before = residual
        return g

    def _direct(self) -> Mask:
        """After a judgement: what mixes, and what it has to reach; and which samples go back to where they began to mix.

        Mixing goes along what contracts least. It can leave a map that contracts in the long run only, or find its fixed
        point without a factor that bounds the error, where plain steps show one.
        """
        samples, failed = self.samples, np.zeros_like(self.mixing)
        if self.anderson is None:
            return failed
        if self.auto:
            leaving = self.mixing & samples.expanding
            if samples.given is None:
                failed = self.detour & (samples.code == codes.NOT_CONTRACTING)
            if failed.any():
                samples.revive(failed, self.count)
                self.detour &= ~failed
            if (leaving | failed).any():
                self.barred |= leaving | failed
                self.mixing &= ~self.barred
                self.anderson.mixing = self._mask(self.mixing)
        self.anderson.allowed = torch.from_numpy(0.5 + 0.5 * np.fmin(samples.q, 1.0)).to(self.z.device)
        return failed

    def _consider(self, following: Tensor) -> Tensor:
        """Let the samples mix for which that pays: those whose latest residuals leave a small part of the last one."""
        self.look = _LOOK_AGAIN * self.count
        trail = list(self.trail)
        self.trail.clear()
        samples = self.samples
        # once some mix, that is paid for
        mixed = cost(*self.z.shape) if self.anderson is None else 1.0
        open_to = samples.active & ~samples.expanding & ~self.barred & ~self.mixing
        remaining = np.where(samples.active, samples.remaining, 0.0)
        if not (open_to & (remaining > _WORTH * mixed)).any():
            return following
        with np.errstate(all="ignore"):
            faster = 1.0 + np.log(part_left([F for _, F, _ in trail])) / np.log(samples.rate)
        gain = open_to & (faster > 1.0) & (remaining > 0.0)
        # the slowest sample decides how long the batch takes
        after = np.where(gain, remaining / faster, remaining)
        if not gain.any() or mixed * (1.0 + after.max()) >= remaining.max():
            return following
        anderson = self.anderson
        if anderson is None:
            anderson = Anderson(self.z, self._mask(self.mixing), samples.eps)
            for evaluation in trail:
                anderson.remember(*evaluation)
        self.anderson, self.before, self.used_anderson = anderson, None, True
        self.mixing |= gain
        self.detour |= gain
        self.origin = (
            following if self.origin is None else torch.where(self._mask(gain)[:, None], following, self.origin)
        )
        samples.hasten(self.count)
        anderson.mixing = self._mask(self.mixing)
        return anderson.mix(anderson.weights(), anderson.mixed | self._mask(gain))

    def result(self) -> tuple[Tensor, SolveInfo]:
        samples, code = self.samples, self.samples.code
        failed = (code != codes.CONVERGED) & (code != codes.STAGNATED)
        note = ""
        if (code == codes.NON_FINITE).any():
            status = SolveStatus.NON_FINITE
        elif (code == codes.NOT_CONTRACTING).any():
            status = SolveStatus.NOT_CONTRACTING
            at_rounding = samples.at_rounding(samples.residual, self.norm(self.z).cpu().numpy())
            if at_rounding[code == codes.NOT_CONTRACTING].all():
                note = "z solves the equation to rounding, but without a bound on its error"
        elif failed.any():
            status = SolveStatus.MAX_ITERATIONS
            if (code == codes.UNRESOLVED).any():
                note = "rounding stopped the iteration above the tolerance: use float64 or a larger tolerance"
        else:
            status = SolveStatus.CONVERGED
        known = samples.q[~np.isnan(samples.q)]
        info = SolveInfo(
            status=status,
            iterations=self.count,
            residual=self._tensor(samples.residual),
            error_bound=self._tensor(np.where(code >= codes.NOT_CONTRACTING, math.inf, samples.bound)),
            contraction=samples.given if samples.given is not None else float(known.max()) if len(known) else math.nan,
            guaranteed=samples.given is not None,
            rounding_limited=bool(samples.limited.any()),
            failed=self._tensor(failed),
            solver="anderson" if self.used_anderson else "plain",
            note=note,
        )
        return self.z.view(self.shape), info


def norm(rows: Tensor) -> Tensor:
    """Euclidean norms (S,) in float64."""
    return torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)


def beside(rows: Tensor, norms: Tensor, eps: float) -> Tensor:
    """Points at the distance eps^⅓ from the rows, relative to their norms (1 where that is 0)."""
    entries = torch.arange(rows.shape[1], dtype=rows.dtype, device=rows.device)
    direction = torch.cos(entries * 2.39996)  # the golden angle: no period, all signs
    length = eps ** (1 / 3) * torch.where(norms > 0.0, norms, 1.0) / norm(direction[None])
    return rows + length.to(rows.dtype)[:, None] * direction


def scaled_norm(rows: Tensor) -> Tensor:
    """The same of rows whose squares leave the range of float64."""
    largest = rows.abs().amax(1)
    scale = torch.where((largest > 0.0) & largest.isfinite(), largest, 1.0)
    return scale * torch.linalg.vector_norm(rows / scale[:, None], dim=1)


def _norm_for(rows: Tensor) -> Callable[[Tensor], Tensor]:
    """The cheaper of both that serves rows of the size of these."""
    if rows.dtype != torch.float64:
        return norm
    norms = norm(rows)
    beyond = ~((norms > _EXTREME) & (norms < 1.0 / _EXTREME))
    return scaled_norm if bool(beyond.any()) and bool((rows != 0.0).any(1)[beyond].any()) else norm
