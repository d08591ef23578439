"""What a solve knows of each sample: its contraction factor, the bound on its error, and whether it is finished.

With a contraction factor q < 1 in the Euclidean norm of a sample, g(z) is within q ‖g(z) − z‖/(1 − q) of the fixed
point; rounding adds ω/(1 − q), where ω bounds the error of one evaluation of g. Without ω the bound is false once the
iteration stagnates.

A sample is judged when it is due: after most of the evaluations that it should still take by the rate at which its residual
falls. When it is due does not depend on its company. The numbers are on the host, where operations on few of them cost
least, and are fetched in one copy for a judgement.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ROUNDING = 4.0  # ω = 4 eps ‖g(z)‖: a handful of roundings per entry; what f does beyond shows as stagnation
TRUSTED = 32.0  # a Lipschitz ratio is measured only over steps of at least 32 ω ...
DISTINCT = 8.0  # ... and where its distance from 1 is at least 8 times what rounding can change
RATIOS = 5  # latest Lipschitz ratios that make the estimate of q
STALLED = 10  # evaluations without progress that mean stagnation at the rounding level ...
STALL_LEVEL = 1e3  # ... where the residual is at most 1e3 eps ‖g(z)‖, but no more than half of the digits
COARSE = 1e-5  # rounding units above are those of half precisions
RESOLVED, RESOLVED_COARSE = (
    2.0,
    1.25,
)  # ω/(1 − q) that are as good as rounding allows; the latter where every digit counts
NO_PROGRESS = 50  # evaluations without progress, above that level, that mean that g does not contract
DIVERGED = 1e6  # growth of the residual over its best value that means the same at once
FALSE_CLAIM = 1e-3  # relative excess of a measured ratio over the given contraction factor that refutes it
_AHEAD, _MOST = 0.75, 8  # share of the evaluations to go, and most, until a sample is judged again; mixed: ...
_AHEAD_MIXED, _MOST_MIXED = 0.5, 2  # ... as its rate changes from one evaluation to the next

# Codes of a sample; the failures are ordered by severity.
ACTIVE, CONVERGED, STAGNATED, UNRESOLVED, NOT_CONTRACTING, NON_FINITE = 0, 1, 2, 3, 4, 5

Reals = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Evaluation(NamedTuple):
    """Numbers (S,) of one evaluation: ‖z − z'‖ and ‖g(z) − g(z')‖ from the one before (NaN: none), and ‖g(z) − z‖."""

    step: Tensor
    change: Tensor
    residual: Tensor


class Samples:
    """The samples of one solve; arrays (S,).

    Attributes:
        code: one of those above.
        residual, bound: ‖g(z) − z‖ and the bound on the error, at the last evaluation for which the sample was judged.
        q: the contraction factor, given or estimated; NaN where nothing was measured.
        limited: whether the bound exceeds the tolerance because rounding resolves no more.
        rate: the latest residual over the one before.
        remaining: evaluations that plain steps would still take at that rate; 0 where they do not come nearer.
        expanding: whether some latest ratio is at least 1.
        next: the evaluation at which some sample is due; infinite where all are finished.
    """

    def __init__(
        self, count: int, given: float | None, tolerance: float, eps: float, accepted: float | None, informed: bool
    ) -> None:
        self.given, self.tolerance, self.eps = given, tolerance, eps
        self._accepted = eps**0.5 if accepted is None else accepted
        self._resolved = RESOLVED_COARSE if eps > COARSE else RESOLVED
        self.code = np.zeros(count, dtype=np.int8)
        self.residual = np.full(count, math.inf)
        self.bound = np.full(count, math.inf)
        self.q = np.full(count, math.nan if given is None else given)
        self.limited = np.zeros(count, dtype=bool)
        self.rate = np.full(count, math.nan)
        self.remaining = np.zeros(count)
        self.expanding = np.zeros(count, dtype=bool)
        self.next = (1.0 if informed else 2.0) if count else math.inf  # without a ratio there is nothing to judge
        self._first: Reals | None = None
        self._before = np.full(count, math.nan)  # the residual at the last judgement
        self._best = np.full(count, math.inf)
        self._improved = np.zeros(count)  # the evaluation at which the best residual was measured
        self._due = np.ones(count)
        self._steps = self._changes = np.full((RATIOS, count), math.nan)

    @property
    def active(self) -> Mask:
        """Which are not finished."""
        return self.code == ACTIVE

    def rounding(self, size: Reals) -> Reals:
        """ω where ‖g(z)‖ is ``size``."""
        return ROUNDING * self.eps * size

    def blind(self, residual: Reals, size: Reals) -> Mask:
        """Whether a start is so near its fixed point that the next step shows no ratio."""
        return residual <= 2.0 * TRUSTED * self.rounding(size)

    def at_rounding(self, residual: Reals, size: Reals) -> Mask:
        """Whether a residual is at the level where it may stagnate."""
        return residual <= min(STALL_LEVEL * self.eps, self.eps**0.5) * size

    def probed(self, ratio: Reals, blind: Mask) -> None:
        """Take a Lipschitz ratio beside the start as q of the blind samples, until steps show one."""
        self.q = np.where(blind & np.isfinite(ratio), ratio, self.q)

    def judge(
        self,
        count: int,
        news: list[Evaluation],
        size: Tensor,
        rounded: Tensor | None,
        mixed: Tensor | None,
        everyone: bool,
    ) -> tuple[Mask, Mask]:
        """Decide about the samples that are due after evaluation ``count``.

        Args:
            count: evaluations so far.
            news: those since the last judgement.
            size: ‖g(z)‖.
            rounded: norm of what an evaluation rounds with ``eps``, where that is a part of g(z); None: g(z).
            mixed: whether z came from mixing (then NaN is no failure: such a z is taken back); None: nowhere.
            everyone: whether all are due, as the solve ends here, or may change its method.

        Returns:
            Which samples are solved by this evaluation, with g as their result, and which have NaN or infinity.
        """
        rows = [
            *(number for evaluation in news for number in evaluation),
            size,
            size if rounded is None else rounded,
            size if mixed is None else mixed.to(size),
        ]
        *numbers, sizes, parts, came = torch.stack(rows).cpu().numpy()
        steps, changes, residuals = (np.stack(numbers[i::3]) for i in range(3))
        with np.errstate(all="ignore"):
            rounding = self.rounding(parts)
            mask = None if mixed is None else came > 0.0
            return self._judge(count, steps, changes, residuals, sizes, rounding, mask, everyone)

    def _judge(
        self,
        count: int,
        steps: Reals,
        changes: Reals,
        residuals: Reals,
        size: Reals,
        rounding: Reals,
        mixed: Mask | None,
        everyone: bool,
    ) -> tuple[Mask, Mask]:
        residual = residuals[-1]
        finite = np.isfinite(residual + size)
        due = self.active & ((self._due <= count) | ~finite | everyone)
        self._progress(count, residuals)
        self._steps = np.concatenate((self._steps, steps))[-RATIOS:]
        self._changes = np.concatenate((self._changes, changes))[-RATIOS:]
        refuted = self._measure(due, rounding, mixed)

        gap = 1.0 - self.q
        contracts = gap > 0.0
        bound = np.where(contracts, (self.q * residual + rounding) / gap, math.inf)
        # an exact fixed point in every bit needs no factor
        bound = np.where(np.isnan(self.q) & (residual == 0.0), rounding, bound)
        # a sample whose fixed point is 0 has no scale of its own: a tiny part of its first residual serves
        wanted = self.tolerance * (size + self.eps**0.5 * self._first)
        # below so many ω/(1 − q) steps are lost in rounding, which is accepted up to a share of ‖g(z)‖
        accepted = self._accepted * size
        target = np.maximum(wanted, np.where(contracts, np.minimum(self._resolved * rounding / gap, accepted), 0.0))
        usable = due & finite
        solved = usable & (bound <= target)

        self.residual = np.where(due, residual, self.residual)
        self.bound = np.where(usable, bound, self.bound)
        self.limited = np.where(usable, solved & (bound > wanted), self.limited)
        if not self.active.all():
            self._reopen((residual + rounding) / gap > 4.0 * target)
        self.code[solved] = CONVERGED
        lost = due & ~finite if mixed is None else due & ~finite & ~mixed
        self.code[lost] = NON_FINITE

        waiting = count - self._improved
        hopeless = (waiting >= NO_PROGRESS) | (residual > DIVERGED * np.maximum(self._best, rounding)) | refuted
        hopeless |= (residual <= rounding) & (gap <= 0.0)  # but without a bound
        troubled = usable & ~solved & (hopeless | (waiting >= STALLED))
        if troubled.any():
            stalled = troubled & contracts & (waiting >= STALLED) & self.at_rounding(self._best, size)
            # there the residual itself is rounding
            bound = np.where(stalled, (self.q * residual + np.maximum(rounding, residual)) / gap, bound)
            self.bound = np.where(stalled, bound, self.bound)
            self.limited |= stalled & (bound > wanted)
            self.code[stalled] = STAGNATED
            self.code[stalled & (bound > np.maximum(wanted, accepted))] = UNRESOLVED
            self.code[troubled & hopeless & ~stalled] = NOT_CONTRACTING
            solved |= stalled
        self._plan(count, due, bound / target, mixed is not None)
        return solved, lost

    def _progress(self, count: int, residuals: Reals) -> None:
        """The best residual and when it was measured, and the latest rate."""
        if self._first is None:
            self._first = residuals[0]
        both = np.vstack((self._before, residuals))
        self.rate, self._before = both[-1] / both[-2], residuals[-1]
        best = np.fmin.accumulate(np.vstack((self._best, residuals)))
        numbers = np.arange(count - len(residuals) + 1, count + 1)[:, None]
        improved = np.where(best[1:] < best[:-1], numbers, 0).max(0)
        self._best, self._improved = best[-1], np.maximum(self._improved, improved)

    def _measure(self, due: Mask, rounding: Reals, mixed: Mask | None) -> Mask | bool:
        """Estimate q of the samples that are due, from the latest ratios; or whether these contradict the given one."""
        steps, changes = self._steps, self._changes
        ratios = changes / steps
        trusted = (steps > TRUSTED * rounding) & (np.abs(steps - changes) > DISTINCT * rounding) & (ratios < math.inf)
        ratios = np.where(trusted, ratios, 0.0)
        estimate = ratios.max(0)
        self.expanding = estimate >= 1.0
        if self.given is not None:
            # over a step of at least 32 ω, rounding changes a ratio by at most 2/32
            return estimate > self.given * (1.0 + FALSE_CLAIM) + 2.0 / TRUSTED
        if self.expanding.any():
            # a non-normal map contracts in the long run only: the mean over the window shows it
            mean = np.exp(np.log(ratios).mean(0))
            estimate = np.where(self.expanding & trusted.all(0), mean, estimate)
        if mixed is not None:
            # mixing removes from the steps what contracts slowly: what was seen of it before still counts
            estimate = np.where(mixed & (estimate < 1.0) & (self.q < 1.0), np.maximum(estimate, self.q), estimate)
        self.q = np.where(due & trusted.any(0), estimate, self.q)
        return False

    def hasten(self, count: int) -> None:
        """Judge soon after evaluation ``count``, as the method changes."""
        self._due = np.minimum(self._due, count + _MOST_MIXED)
        self.next = min(self.next, count + _MOST_MIXED)

    def revive(self, failed: Mask, count: int) -> None:
        """Take samples that have failed as new, from another iterate."""
        self.code[failed] = ACTIVE
        self._best[failed], self._improved[failed] = math.inf, count
        self._steps[:, failed] = math.nan
        self.q[failed] = math.nan
        self._due[failed] = count + _MOST_MIXED
        self.next = min(self.next, count + _MOST_MIXED)

    def _reopen(self, far: Mask) -> None:
        """Take up finished samples that others have moved, where f couples samples after all."""
        moved = (self.code == CONVERGED) & far
        if moved.any() and self.active.any():
            self.code[moved] = ACTIVE
            self._due[moved] = 0.0
            # they have stood still: what changed their g was not a step of theirs
            self._steps[:, moved] = math.nan

    def _plan(self, count: int, due: Mask, excess: Reals, mixing: bool) -> None:
        """When to judge again, where the bound is ``excess`` times the target."""
        remaining = np.log(excess) / -np.log(self.rate)
        self.remaining = np.where((remaining > 0.0) & (remaining < math.inf), remaining, 0.0)
        share, most = (_AHEAD_MIXED, _MOST_MIXED) if mixing else (_AHEAD, _MOST)
        ahead = np.clip(np.floor(share * self.remaining), 1.0, most)
        self._due = np.where(due, count + ahead, np.maximum(self._due, count + 1))
        self.next = float(self._due[self.active].min(initial=math.inf))
