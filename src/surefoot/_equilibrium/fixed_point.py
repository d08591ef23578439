"""Fixed points z = g(z), sample by sample, to an a-posteriori error bound: plain and safeguarded Anderson iteration.

With a contraction factor q < 1 in the Euclidean norm of a sample, g(z) is within q ‖g(z) − z‖/(1 − q) of the fixed
point; rounding adds ω/(1 − q), where ω bounds the error of one evaluation of g. Without ω the bound is false once the
iteration stagnates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import torch
from torch import Tensor

Solver = Literal["auto", "plain", "anderson"]
SOLVERS: tuple[Solver, ...] = ("auto", "plain", "anderson")

_ROUNDING = 4.0  # ω = 4 eps ‖g(z)‖: a handful of roundings per entry; what f does beyond shows as stagnation
_TRUSTED = 32.0  # a Lipschitz ratio is measured only over steps of at least 32 ω ...
_DISTINCT = 8.0  # ... and where its distance from 1 is at least 8 times what rounding can change
_RATIOS = 5  # latest Lipschitz ratios that make the estimate of q
_STALLED = 10  # evaluations without progress that mean stagnation at the rounding level ...
_STALL_LEVEL = 1e3  # ... where the residual is at most 1e3 eps ‖g(z)‖
_NO_PROGRESS = 50  # evaluations without progress, above that level, that mean that g does not contract
_DIVERGED = 1e6  # growth of the residual over its best value that means the same at once
_FALSE_CLAIM = 1e-3  # relative excess of a measured ratio over the given contraction factor that refutes it
_SMALL = 1e-140  # norms below, and above the inverse, are formed again from scaled entries
_MEMORY = 5  # differences kept by Anderson's method
_WARM_UP = 4  # evaluations before (and between) the decisions of "auto" ...
_SLOW = 12.0  # ... for Anderson where plain iteration contracts but needs more further steps than this

# Codes of a sample; the failures are ordered by severity.
_ACTIVE, _CONVERGED, _STAGNATED, _UNRESOLVED, _NOT_CONTRACTING, _NON_FINITE = 0, 1, 2, 3, 4, 5


class SolveStatus(StrEnum):
    """How a solve ended; the status of a batch is the worst of its samples'."""

    CONVERGED = "converged"
    MAX_ITERATIONS = "max_iterations"
    NOT_CONTRACTING = "not_contracting"
    NON_FINITE = "non_finite"
    TRUNCATED = "truncated"

    @property
    def text(self) -> str:
        """One line for people."""
        return {
            SolveStatus.CONVERGED: "converged",
            SolveStatus.MAX_ITERATIONS: "the tolerance was not reached",
            SolveStatus.NOT_CONTRACTING: "the map was not seen to contract",
            SolveStatus.NON_FINITE: "the map returned NaN or infinity",
            SolveStatus.TRUNCATED: "inexact by choice",
        }[self]


@dataclass(frozen=True)
class SolveInfo:
    """What a solve did. Tensors have the shape of the batch dimensions, and are float64 (bool for ``failed``).

    Attributes:
        status: the worst of the samples'.
        iterations: evaluations of the map.
        residual: ‖g(z) − z‖ of each sample, at its last evaluation.
        error_bound: bound on the distance to the fixed point; ``inf`` where the map was not seen to contract.
        contraction: the factor q behind the bound: the given one, else the largest estimate over the batch (NaN: none).
        guaranteed: whether q was given. Then the bound is a guarantee (as far as q is right, and one evaluation rounds by
            no more than 4 eps ‖g(z)‖ or the level where the residual stagnated); else it is an estimate.
        rounding_limited: some bound exceeds the tolerance because the dtype resolves no more.
        failed: the samples that did not converge.
        solver: ``plain`` or ``anderson`` (in ``auto``, whether Anderson's method was needed).
        note: what else was found out about a failure.
    """

    status: SolveStatus
    iterations: int
    residual: Tensor
    error_bound: Tensor
    contraction: float
    guaranteed: bool
    rounding_limited: bool
    failed: Tensor
    solver: str
    note: str = ""

    @property
    def converged(self) -> bool:
        """Whether every sample converged."""
        return self.status is SolveStatus.CONVERGED

    @property
    def exact(self) -> bool:
        """False for a derivative that was asked to be cut short (``PhantomGradient``)."""
        return self.status is not SolveStatus.TRUNCATED

    @property
    def text(self) -> str:
        """One line for people."""
        parts = [self.status.text]
        count = int(self.failed.sum())
        if count:
            first = tuple(int(i) for i in self.failed.nonzero()[0])
            parts.append(f"{count} of {self.failed.numel()} samples failed, the first at index {first}")
        worst, bound = (float(t.max()) if t.numel() else 0.0 for t in (self.residual, self.error_bound))
        kind = "guaranteed" if self.guaranteed else "estimated"
        parts.append(f"{self.iterations} evaluations ({self.solver})")
        parts.append(f"largest residual {worst:.3g}, {kind} error at most {bound:.3g}")
        if math.isnan(self.contraction):
            parts.append("no contraction factor was measured")
        else:
            parts.append(f"{'given' if self.guaranteed else 'estimated'} contraction factor {self.contraction:.4g}")
        if self.rounding_limited:
            parts.append("the tolerance is below what the rounding of the map allows")
        if self.note:
            parts.append(self.note)
        return "; ".join(parts)


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
    """z with z = g(z), and the record; the samples that fail keep their last finite iterate.

    Args:
        g: the map, on tensors of the shape of ``start``; samples (the first ``batch_dims`` dimensions) do not interact.
        start: first iterate (*batch, *state), float64 or float32; not changed.
        contraction: Lipschitz constant q < 1 of g in the Euclidean norm of a sample; None estimates it from the iterates.
        tolerance: wanted bound relative to ‖z‖, per sample; None: by dtype.
        max_iterations: most evaluations of g.
        affine: g(u) = start + J u, as in the backward, so that g(0) is known.
        eps: rounding unit of one evaluation of g, where g computes more coarsely than in the dtype of ``start``; None: that
            of the dtype.
        first: first iterate where it is not ``start``, as in an affine solve that starts warm; not changed.
    """
    eps = torch.finfo(start.dtype).eps if eps is None else eps
    iteration = _Iteration(g, start, batch_dims, contraction, tolerance, solver, affine, eps, first)
    while iteration.count < max_iterations and iteration.unfinished():
        iteration.step()
    return iteration.result()


class _Iteration:
    """One solve: z (S, D) are the rows of the samples; per-sample numbers are float64 (S,)."""

    def __init__(
        self,
        g: Callable[[Tensor], Tensor],
        start: Tensor,
        batch_dims: int,
        contraction: float | None,
        tolerance: float | None,
        solver: Solver,
        affine: bool,
        eps: float,
        first: Tensor | None,
    ) -> None:
        self.shape, self.batch = start.shape, start.shape[:batch_dims]
        samples = math.prod(self.batch)
        self.g = g
        rows = start.reshape(samples, math.prod(start.shape[batch_dims:])).clone()
        self.z = rows if first is None else first.reshape(rows.shape).clone()
        self.given, self.solver = contraction, solver
        self.tolerance = default_tolerance(start.dtype) if tolerance is None else tolerance
        self.eps = eps
        self.count = 0
        real = {"dtype": torch.float64, "device": start.device}
        self.code = torch.zeros(samples, dtype=torch.int8, device=start.device)
        self.residual = torch.full((samples,), math.inf, **real)
        self.bound = torch.full((samples,), math.inf, **real)
        self.q = torch.full((samples,), math.nan, **real)
        self.best = torch.full((samples,), math.inf, **real)
        self.first = torch.zeros(samples, **real)
        self.limited = torch.zeros(samples, dtype=torch.bool, device=start.device)
        self.waiting = torch.zeros(samples, dtype=torch.int64, device=start.device)
        self.ratios = torch.full((samples, _RATIOS), math.nan, **real)
        # the last evaluation (z, g(z)); of an affine map that at 0 is known
        self.last = (torch.zeros_like(rows), rows) if affine else None
        self.affine = affine
        self.anderson = _Anderson(self.z) if solver != "plain" else None
        mixing = solver == "anderson"
        self.mixing = torch.full((samples,), mixing, device=start.device)
        self.barred = torch.zeros(samples, dtype=torch.bool, device=start.device)  # "auto" stays with plain steps
        self.mixed = torch.zeros(samples, dtype=torch.bool, device=start.device)  # z came from Anderson's method
        self.used_anderson = False

    def unfinished(self) -> bool:
        return bool((self.code == _ACTIVE).any())

    def evaluate(self, z: Tensor) -> Tensor:
        self.count += 1
        return self.g(z.view(self.shape)).reshape(z.shape)

    def step(self) -> None:
        z = self.z
        g = self.evaluate(z)
        residual, size = _norm(g - z), _norm(g)
        rounding = _ROUNDING * self.eps * size
        if self.count == 1:
            self.first = residual.clone()
        self._measure(z, g, rounding)
        if self.count == 1 and not self.affine and self.given is None:
            self._probe(z, g, residual, rounding)
        finite = residual.isfinite() & size.isfinite()
        self.residual = torch.where(self.code == _ACTIVE, residual, self.residual)

        self.q = self._contraction()
        gap = 1.0 - self.q
        bound = torch.where(gap > 0.0, (self.q * residual + rounding) / gap, math.inf)
        # an exact fixed point in every bit needs no factor
        bound = torch.where(self.q.isnan() & (residual == 0.0), rounding, bound)
        # a sample whose fixed point is 0 has no scale of its own: a tiny part of its first residual serves
        wanted = self.tolerance * (size + self.eps**0.5 * self.first)
        # below 2 ω/(1 − q) steps are lost in rounding, which is accepted up to half of the digits
        resolved = torch.minimum(torch.where(gap > 0.0, 2.0 * rounding / gap, 0.0), self.eps**0.5 * size)
        target = torch.maximum(wanted, resolved)
        active = (self.code == _ACTIVE) & finite
        converged = active & (bound <= target)

        improved = residual < self.best
        self.best = torch.where(improved & finite, residual, self.best)
        self.waiting = torch.where(improved, 0, self.waiting + 1)
        at_rounding = (self.best <= _STALL_LEVEL * self.eps * size) & (gap > 0.0)
        stagnated = active & ~converged & at_rounding & (self.waiting >= _STALLED)
        # there the residual itself is rounding
        bound = torch.where(stagnated, (self.q * residual + torch.maximum(rounding, residual)) / gap, bound)
        self.bound = torch.where(active, bound, self.bound)
        self.limited = torch.where(active, (converged | stagnated) & (bound > wanted), self.limited)
        unresolved = stagnated & (bound > torch.maximum(wanted, self.eps**0.5 * size))

        hopeless = (self.waiting >= _NO_PROGRESS) | (residual > _DIVERGED * torch.maximum(self.best, rounding))
        solved = (residual <= rounding) & (gap <= 0.0)  # but without a bound
        hopeless = (hopeless | solved | self._refuted()) & active & ~converged & ~stagnated
        non_finite = (self.code == _ACTIVE) & ~finite & ~self.mixed
        for mask, code in (
            (converged, _CONVERGED),
            (stagnated, _STAGNATED),
            (unresolved, _UNRESOLVED),
            (hopeless, _NOT_CONTRACTING),
            (non_finite, _NON_FINITE),
        ):
            self.code = torch.where(mask, code, self.code)
        self._reopen(residual, rounding, gap, target)

        following = self._next(g, residual, bound, target)
        moving = (self.code == _ACTIVE) | converged | stagnated
        self.last = (z, g)
        self.z = torch.where(moving[:, None], torch.where((converged | stagnated)[:, None], g, following), z)

    def _measure(self, z: Tensor, g: Tensor, rounding: Tensor) -> None:
        """Lipschitz ratio over the last two evaluations, where the step is well above rounding."""
        if self.last is None:
            return
        distance = _norm(z - self.last[0])
        ratio = _norm(g - self.last[1]) / distance
        trusted = (distance > _TRUSTED * rounding) & (distance * (1.0 - ratio).abs() > _DISTINCT * rounding)
        trusted &= ratio.isfinite() & (self.code == _ACTIVE)
        shifted = torch.cat((self.ratios[:, 1:], ratio[:, None]), 1)
        self.ratios = torch.where(trusted[:, None], shifted, self.ratios)

    def _probe(self, z: Tensor, g: Tensor, residual: Tensor, rounding: Tensor) -> None:
        """A start that is already a fixed point shows no ratio: look beside it."""
        blind = residual <= 2.0 * _TRUSTED * rounding
        if not bool(blind.any()):
            return
        entries = torch.arange(z.shape[1], dtype=z.dtype, device=z.device)
        direction = torch.cos(entries * 2.39996)  # the golden angle: no period, all signs
        length = self.eps**0.5 * torch.where(_norm(z) > 0.0, _norm(z), 1.0) / _norm(direction[None])
        beside = z + torch.where(blind, length, 0.0).to(z.dtype)[:, None] * direction
        ratio = _norm(self.evaluate(beside) - g) / _norm(beside - z)
        self.ratios[:, -1] = torch.where(blind & ratio.isfinite(), ratio, self.ratios[:, -1])

    def _contraction(self) -> Tensor:
        if self.given is not None:
            return torch.full_like(self.q, self.given)
        known = ~self.ratios.isnan()
        largest = torch.where(known, self.ratios, 0.0).amax(1)
        count = known.sum(1)
        # a non-normal map contracts in the long run only: the mean over the window shows it
        mean = torch.where(known, self.ratios, 1.0).log().sum(1).div(count.clamp(min=1)).exp()
        estimate = torch.where((largest < 1.0) | (count < _RATIOS), largest, mean)
        return torch.where(count > 0, estimate, math.nan)

    def _refuted(self) -> Tensor:
        """Whether a measured ratio contradicts the given contraction factor."""
        if self.given is None:
            return torch.zeros_like(self.limited)
        # over a step of at least 32 ω, rounding changes a ratio by at most 2/32
        return self.ratios[:, -1] > self.given * (1.0 + _FALSE_CLAIM) + 2.0 / _TRUSTED

    def _reopen(self, residual: Tensor, rounding: Tensor, gap: Tensor, target: Tensor) -> None:
        """Take up finished samples that others have moved, where f couples samples after all."""
        moved = (self.code == _CONVERGED) & ((residual + rounding) / gap > 4.0 * target) & self.unfinished()
        self.code = torch.where(moved, _ACTIVE, self.code)

    def _next(self, g: Tensor, residual: Tensor, bound: Tensor, target: Tensor) -> Tensor:
        if self.anderson is None:
            return g
        if self.solver == "auto":
            # Anderson's method can leave a map that contracts in the long run only, where plain steps converge
            expanding = self.ratios.nan_to_num(nan=0.0).amax(1) >= 1.0
            self.barred = self.barred | (self.mixing & expanding)
            if self.count % _WARM_UP == 0:
                further = (target / bound).log() / self.q.log()
                self.mixing = self.mixing | ((further > _SLOW) & ~expanding)
            self.mixing = self.mixing & ~self.barred
            if not bool(self.mixing.any()):
                self.mixed = torch.zeros_like(self.mixed)
                return g
        allowed = self.q.nan_to_num(nan=1.0).clamp(max=1.0)
        following, self.mixed = self.anderson.next(g, g - self.z, residual, allowed, self.mixed, self.mixing)
        self.used_anderson = self.used_anderson or bool(self.mixed.any())
        return following

    def result(self) -> tuple[Tensor, SolveInfo]:
        code = self.code
        failed = (code != _CONVERGED) & (code != _STAGNATED)
        note = ""
        if bool((code == _NON_FINITE).any()):
            status = SolveStatus.NON_FINITE
        elif bool((code == _NOT_CONTRACTING).any()):
            status = SolveStatus.NOT_CONTRACTING
            if bool((self.residual <= _STALL_LEVEL * self.eps * _norm(self.z))[code == _NOT_CONTRACTING].all()):
                note = "z solves the equation to rounding, but without a bound on its error"
        elif bool(failed.any()):
            status = SolveStatus.MAX_ITERATIONS
            if bool((code == _UNRESOLVED).any()):
                note = "rounding stopped the iteration above the tolerance: use float64 or a larger tolerance"
        else:
            status = SolveStatus.CONVERGED
        known = self.q[~self.q.isnan()]
        factor = self.given if self.given is not None else float(known.max()) if known.numel() else math.nan
        info = SolveInfo(
            status=status,
            iterations=self.count,
            residual=self.residual.view(self.batch),
            error_bound=torch.where(code >= _NOT_CONTRACTING, math.inf, self.bound).view(self.batch),
            contraction=factor,
            guaranteed=self.given is not None,
            rounding_limited=bool(self.limited.any()),
            failed=failed.view(self.batch),
            solver="anderson" if self.used_anderson else "plain",
            note=note,
        )
        return self.z.view(self.shape), info


class _Anderson:
    """Anderson's method (type II) of each sample, safeguarded.

    A mixed iterate is kept only if its residual is at most q times that of the last kept iterate, which a plain step
    achieves where g contracts; else the memory is cleared and the plain step is taken, so that at worst every second
    evaluation is lost.
    """

    def __init__(self, z: Tensor) -> None:
        samples, size = z.shape
        self.dF = z.new_zeros(samples, _MEMORY, size)
        self.dG = z.new_zeros(samples, _MEMORY, size)
        self.g: Tensor | None = None
        self.F = self.norm = z
        self.slot = 0

    def next(
        self, g: Tensor, F: Tensor, norm: Tensor, allowed: Tensor, mixed: Tensor, mixing: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The next iterates (S, D), and which of them are mixed; F = g − z."""
        if self.g is None:
            self.g, self.F, self.norm = g, F, norm
            return g, torch.zeros_like(mixed)
        rejected = (mixed & ~(norm <= allowed * self.norm))[:, None]  # NaN is rejected too
        keep = rejected[..., None]
        self.dF = torch.where(keep, 0.0, self.dF)
        self.dG = torch.where(keep, 0.0, self.dG)
        self.dF[:, self.slot] = torch.where(rejected, 0.0, F - self.F)
        self.dG[:, self.slot] = torch.where(rejected, 0.0, g - self.g)
        self.slot = (self.slot + 1) % _MEMORY
        self.g = torch.where(rejected, self.g, g)
        self.F = torch.where(rejected, self.F, F)
        self.norm = torch.where(rejected[:, 0], self.norm, norm)

        lengths = torch.linalg.vector_norm(self.dF, dim=2, keepdim=True)
        scale = torch.where(lengths > 0.0, lengths, 1.0)
        dF = (self.dF / scale).double()
        gram = dF @ dF.mT + 10.0 * torch.finfo(g.dtype).eps * torch.eye(_MEMORY, dtype=torch.float64, device=g.device)
        weights = torch.linalg.solve_ex(gram, dF @ self.F.double()[..., None])[0].to(g.dtype) / scale
        candidate = self.g - (self.dG.mT @ weights)[..., 0]
        use = mixing & ~rejected[:, 0] & candidate.isfinite().all(1)
        return torch.where(use[:, None], candidate, self.g), use


def _norm(rows: Tensor) -> Tensor:
    """Euclidean norms (S,) in float64, also of rows whose squares leave its range."""
    norms = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    if rows.dtype == torch.float64 and rows.numel() and not bool(((norms > _SMALL) & (norms < 1.0 / _SMALL)).all()):
        largest = rows.abs().amax(1)
        scale = torch.where((largest > 0.0) & largest.isfinite(), largest, 1.0)
        norms = scale * torch.linalg.vector_norm(rows / scale[:, None], dim=1)
    return norms
