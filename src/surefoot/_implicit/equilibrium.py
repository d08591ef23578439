"""The equilibrium Z = relu(γZA + Φ) with a rigorous bound of its error.

With q ≥ γ‖A‖, q < 1, the map T(Z) = relu(γZA + Φ) is a q-contraction of every row, so that the error of any point Y is at most
‖T(Y) - Y‖/(1 - q); for the image Z⁺ of Z, computed with a rounding error of at most ω, it is at most (q‖Z⁺ - Z‖ + ω)/(1 - q)
(docs/theorems/implicit.md). The bounds hold for the numbers that are returned, row by row, rounded outwards; they do not
depend on the solver, which only proposes points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from surefoot_check.rigor.bounds import down, up

from .._core.brief import brief
from .._core.validate import nonnegative, positive_integer, unknown
from .finished_rows import FinishedRows
from .norms import frobenius_upper, largest_entry, row_norms_upper, shift
from .solvers import SOLVERS, LowRank, Solver, SolverMemory, SolverProblem

DEFAULT_TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
"""Error of the iteration relative to ‖Z‖_F where none is asked for."""

SMALL_WIDTH = 64
"""Up to this width ``auto`` turns to Newton where the split is slow, beyond it to Anderson."""

PATIENCE = 30
"""Evaluations after which ``auto`` turns from the split or the low-rank model to another solver."""

# The middle of each dtype's range: exponents (least, greatest) of max|Φ| and max|A| that are solved without rescaling.
_RANGE = {torch.float64: (-300, 300), torch.float32: (-20, 40)}
_SLACK = 1.0 + 2.0**-40
"""Covers the roundings of a few operations in float64."""


class EquilibriumStatus(StrEnum):
    """How a call of ``solve`` ended."""

    CONVERGED = "converged"
    MAX_ITERATIONS = "max_iterations"
    LIMITED_BY_ROUNDING = "limited_by_rounding"
    NOT_CONTRACTING = "not_contracting"
    NON_FINITE = "non_finite"

    @property
    def text(self) -> str:
        """One sentence for a reader."""
        return {
            EquilibriumStatus.CONVERGED: "converged: the tolerance was reached",
            EquilibriumStatus.MAX_ITERATIONS: "max_iterations: the tolerance was not reached; the error bound holds all the same",
            EquilibriumStatus.LIMITED_BY_ROUNDING: "limited_by_rounding: the tolerance is below what this dtype can guarantee; "
            "the error bound holds all the same",
            EquilibriumStatus.NOT_CONTRACTING: "not_contracting: γ‖A‖ is not below 1, so there may be no equilibrium or several; "
            "no guarantee, and Z is NaN unless the iteration settled",
            EquilibriumStatus.NON_FINITE: "non_finite: NaN or infinity in the input or on the way; no result",
        }[self]


@dataclass(frozen=True)
class Equilibrium:
    """A computed equilibrium.

    Attributes:
        Z: (N, m); NaN where there is no result.
        iterations: evaluations of the map, the free one at Z = 0 included.
        error: upper bound of ‖Z - Z*‖_F, Z* the exact equilibrium; infinite where there is no guarantee.
        row_errors: (N,) float64, upper bounds of the row norms of Z - Z*.
        status: how it ended.
        solver: the solver that proposed the last point.
    """

    Z: Tensor
    iterations: int
    error: float
    row_errors: Tensor
    status: EquilibriumStatus
    solver: str

    __repr__ = brief


def solve(
    A: Tensor,
    Phi: Tensor,
    gamma: float,
    *,
    norm_A: float,
    solver: str = "auto",
    start: Tensor | None = None,
    tolerance: float | None = None,
    increment: float | None = None,
    max_iterations: int = 1000,
    phi_error: float | Tensor = 0.0,
    memory: SolverMemory | None = None,
) -> Equilibrium:
    """Solve Z = relu(γZA + Φ) to a guaranteed error.

    Args:
        A: (m, m), float64 or float32.
        Phi: (N, m), same dtype and device; N may be 0.
        gamma: γ > 0.
        norm_A: an upper bound of ‖A‖, see ``norms.spectral_norm_upper``. The guarantee rests on it.
        solver: "plain", "anderson", "split", "low_rank", "newton" or "auto". All are safeguarded, row by row, by plain steps.
        start: (N, m), where to start; by default the last result in ``memory``, else zero.
        tolerance: guaranteed error relative to ‖Z‖_F, rounding included. By default 1e-10 (float64) or 1e-5 (float32) for the
            error of the iteration, or down to where rounding stops it; ``error`` adds the rounding of one evaluation.
        increment: stop at ‖T(Z) - Z‖_F ≤ increment instead; with 1e-2, ``solver="plain"`` and ``max_iterations=100`` this
            is the rule of the paper. The bounds are reported all the same.
        max_iterations: limit on the evaluations of the map.
        phi_error: bound of the row norms of the error of Phi: a number for all rows, or (N,).
        memory: what an earlier call of the same problem left; updated. Its Z is the very tensor returned.

    Raises:
        TypeError: a dtype other than float64 and float32, different dtypes or devices, or a tolerance that is no number.
        ValueError: shapes that do not fit, γ ≤ 0, norm_A below a lower bound of ‖A‖, an unknown solver, a bad tolerance.
    """
    A, Phi = A.detach(), Phi.detach()
    _check(A, Phi, gamma, norm_A, start, tolerance, increment)
    positive_integer("max_iterations", max_iterations)
    if solver != "auto" and solver not in SOLVERS:
        raise unknown("solver", solver, [*SOLVERS, "auto"])
    memory = memory if memory is not None else SolverMemory()
    with torch.no_grad():
        return _Solution(A, Phi, gamma, norm_A, solver, tolerance, increment, max_iterations, phi_error, memory).run(
            start
        )


def _check(
    A: Tensor,
    Phi: Tensor,
    gamma: float,
    norm_A: float,
    start: Tensor | None,
    tolerance: float | None,
    increment: float | None,
) -> None:
    if A.dtype not in DEFAULT_TOLERANCE:
        raise TypeError(f"A has dtype {str(A.dtype).removeprefix('torch.')}; use float64 or float32")
    if A.ndim != 2 or A.shape[0] != A.shape[1] or A.numel() == 0:
        raise ValueError(f"A has shape {tuple(A.shape)}; it must be square, with at least one row")
    for name, other in (("Phi", Phi), ("start", start)):
        if other is None:
            continue
        if other.dtype != A.dtype or other.device != A.device:
            raise TypeError(f"{name} is {other.dtype} on {other.device}, A is {A.dtype} on {A.device}; use one of them")
        if other.ndim != 2 or other.shape[1] != A.shape[0] or other.shape[0] != Phi.shape[0]:
            raise ValueError(
                f"{name} has shape {tuple(other.shape)}; with A {tuple(A.shape)} it must be (N, {A.shape[0]})"
            )
    if not 0.0 < gamma < math.inf:
        raise ValueError(f"gamma is {gamma!r}; it must be a positive finite number")
    if not norm_A >= 0.0:
        raise ValueError(f"norm_A is {norm_A!r}; pass an upper bound of the spectral norm of A")
    for name, value in (("tolerance", tolerance), ("increment", increment)):
        if value is not None:
            nonnegative(name, value)


class _Solution:
    """The state of one call of ``solve``."""

    def __init__(
        self,
        A: Tensor,
        Phi: Tensor,
        gamma: float,
        norm_A: float,
        solver: str,
        tolerance: float | None,
        increment: float | None,
        max_iterations: int,
        phi_error: float | Tensor,
        memory: SolverMemory,
    ) -> None:
        self.A, self.Phi, self.gamma = A, Phi, gamma
        self.q = up(gamma * norm_A)
        self.norm_A = norm_A
        self.requested = solver
        self.explicit = tolerance is not None
        self.tolerance = DEFAULT_TOLERANCE[A.dtype] if tolerance is None else tolerance
        self.increment = increment
        self.max_iterations = max_iterations
        self.phi_error = phi_error
        self.memory = memory
        self.iterations = 0
        self.exponent = 0
        self.buffers: tuple[Tensor, ...] = ()

    # -- set-up -------------------------------------------------------------------------------------------------------

    def run(self, start: Tensor | None) -> Equilibrium:
        A, Phi = self.A, self.Phi
        self.memory.model = None
        rows = Phi.shape[0]
        phi_errors = torch.as_tensor(self.phi_error, dtype=torch.float64, device=A.device).expand(rows)
        largest_A = largest_entry(A)
        largest_Phi = largest_entry(Phi) if rows else 0.0
        if not (math.isfinite(largest_A) and math.isfinite(largest_Phi) and bool(phi_errors.isfinite().all())):
            return self._nothing(EquilibriumStatus.NON_FINITE)
        if largest_A > self.norm_A:
            raise ValueError(
                f"norm_A is {self.norm_A!r}, below an entry of A ({largest_A!r}); pass an upper bound of ‖A‖"
            )
        if largest_Phi == 0.0 and self.q < 1.0:
            # Z = 0 is the equilibrium of Φ̂ = 0.
            return self._result(torch.zeros_like(Phi), phi_errors, EquilibriumStatus.CONVERGED, "closed form")
        phi_errors = self._rescale(largest_A, largest_Phi, phi_errors)
        self.problem = SolverProblem(self.A, self.Phi, self.gamma, self.q, phi_errors, self.memory)
        self.solver = self._first_solver()
        # a model of the rescaled A would be of no use to the adjoint
        self.memory.model = self.solver.model if isinstance(self.solver, LowRank) and self.A is A else None
        if start is None and self.memory.Z is not None and self.memory.Z.shape == Phi.shape:
            start = self.memory.Z.to(Phi)
        if start is not None:
            start = shift(start.detach(), -self.exponent) if self.exponent else start.detach()
        return self._iterate(start)

    def _rescale(self, largest_A: float, largest_Phi: float, phi_errors: Tensor) -> Tensor:
        """Bring A and Φ to the middle of the dtype's range by powers of two: relu(2ᵉx) = 2ᵉ relu(x)."""
        least, greatest = _RANGE[self.A.dtype]
        lost = math.sqrt(self.A.shape[0]) * torch.finfo(self.A.dtype).tiny
        exponent = math.frexp(largest_Phi)[1]
        if largest_Phi and not least <= exponent <= greatest:
            self.Phi, self.exponent = shift(self.Phi, -exponent), exponent
            # Entries that become subnormal lose digits, as they may on the way back.
            phi_errors = shift(phi_errors, -exponent) * _SLACK + 2.0 * lost
        exponent = math.frexp(largest_A)[1]
        if largest_A and not -greatest <= exponent <= greatest:
            self.A, self.gamma = shift(self.A, -exponent), math.ldexp(self.gamma, exponent)
        return phi_errors

    def _first_solver(self) -> Solver:
        problem, name = self.problem, self.requested
        if name in ("auto", "split", "low_rank") and not problem.splits:
            name = "plain"  # only where γ‖A‖ ≥ 1
        elif name == "auto":
            # One split step leaves the fraction `rate`; the low-rank model costs about a sixth of an evaluation to make.
            rate = problem.gamma * problem.off_diagonal * float(problem.scale.max())
            name = "low_rank" if self.A.shape[0] > 2 * SMALL_WIDTH and rate > 0.01 else "split"
        return SOLVERS[name](problem, self.memory)

    # -- the iteration ------------------------------------------------------------------------------------------------

    def _iterate(self, start: Tensor | None) -> Equilibrium:
        self._begin(start)
        while True:
            total, size = self._evaluate()
            if not (math.isfinite(total) and math.isfinite(size)):
                if self._restarted():
                    continue
                return self._nothing(
                    EquilibriumStatus.NON_FINITE if self.q < 1.0 else EquilibriumStatus.NOT_CONTRACTING
                )
            status = self._verdict(total, size)
            if status is None and self.iterations >= self.max_iterations:
                status = EquilibriumStatus.MAX_ITERATIONS
            if status is not None:
                Z, _, T, _ = self.buffers
                return self._plain_result(T, Z, self.residuals, status)
            if self.bounded:
                self._set_aside()
            result = self._propose(size)
            if result is not None:
                return result

    def _begin(self, start: Tensor | None) -> None:
        """Work space, the first point, and what is remembered from one evaluation to the next."""
        problem = self.problem
        self.margin = down(1.0 - self.q)
        self.bounded = self.q < 1.0 and self.increment is None  # whether a bound of the error ends the iteration
        self.modelled = self.bounded and self.solver.name in ("split", "low_rank")
        # T(0) = relu(Φ) is free, so where the solver can tell how good its point from there is, it is tried even with a start.
        self.start, self.at_zero = start, start is None or self.modelled
        self.buffers = Z, *_ = tuple(self.memory.take(problem.Phi) for _ in range(4))
        if self.at_zero:
            Z.zero_()
        elif start is not None:
            Z.copy_(start)
        rows, device = Z.shape[0], Z.device
        self.failures = torch.zeros(rows, dtype=torch.int64, device=device)
        self.finished = FinishedRows(problem.Phi)
        self.before = torch.full((rows,), math.inf, dtype=torch.float64, device=device)
        self.accelerated = torch.zeros(rows, dtype=torch.bool, device=device)
        self.reserve = self.whole = 0.0
        # A plain step may leave as much as q of the residual: only without progress for about 1/(1 - q) of them it stands still.
        self.patience = math.ceil(1.0 / self.margin) if self.margin > 0.0 else 0
        self.mark, self.marked = math.inf, 0

    def _evaluate(self) -> tuple[float, float]:
        """P = γZA + Φ, T = relu(P), D = T - Z and the row norms of D; returns ‖D‖_F and ‖T‖_F, that of all rows."""
        Z, P, T, D = self.buffers
        self.iterations += 1
        if self.iterations == 1 and self.at_zero:
            P.copy_(self.problem.Phi)
        else:
            self.problem.product(Z, P)
        torch.clamp_min(P, 0.0, out=T)
        torch.sub(T, Z, out=D)
        self.residuals = row_norms_upper(D)
        size = math.hypot(self.finished.size, float(torch.linalg.vector_norm(T)))
        return float(torch.linalg.vector_norm(self.residuals)), size

    def _restarted(self) -> bool:
        """Whether a start that is not finite is to blame: then from zero again."""
        if self.start is None or self.iterations != (2 if self.modelled else 1):
            return False
        self.buffers[0].zero_()
        self.start, self.at_zero, self.iterations = None, True, 0
        return True

    def _verdict(self, total: float, size: float) -> EquilibriumStatus | None:
        """How the iteration ends at T(Z), if it does, with ‖T(Z) - Z‖_F = ``total`` and ‖T(Z)‖_F = ``size``."""
        if self.increment is not None:
            settled = total <= math.ldexp(self.increment, -self.exponent)
            return EquilibriumStatus.CONVERGED if settled else None
        if self.q >= 1.0:
            return EquilibriumStatus.NOT_CONTRACTING if total <= self.tolerance * size else None
        problem, Z = self.problem, self.buffers[0]
        self.whole = self._allowed(size)
        problem.target = goal = self.finished.left(self.whole)
        if self.q * total <= goal:
            status, self.reserve = self._judge(self.q * self.residuals, problem.rounding(Z), size * self.margin)
            return status
        if total < 0.8 * self.mark:
            self.mark, self.marked = total, self.iterations
        elif self.iterations - self.marked >= self.patience and self.q * total <= float(
            torch.linalg.vector_norm(problem.rounding(Z))
        ):
            return EquilibriumStatus.LIMITED_BY_ROUNDING if self.explicit else EquilibriumStatus.CONVERGED
        return None

    def _allowed(self, size: float) -> float:
        """The defect that all rows may have together."""
        return max(self.tolerance * size * self.margin - self.reserve, 0.0)

    def _set_aside(self) -> None:
        """Iterate without the rows that are accurate enough, once they are many."""
        problem, defects = self.problem, self.q * self.residuals
        done = defects <= 0.3 * self.whole / math.sqrt(self.Phi.shape[0])
        active = self.finished.split(done, self.residuals.shape[0])
        if active is None:
            return
        Z, _, T, _ = self.buffers
        self.finished.store(T, defects, problem.rounding(Z), active)
        problem.select(active)
        self.solver.select(active)
        self.buffers = tuple(buffer[active] for buffer in self.buffers)
        self.residuals, self.before = self.residuals[active], self.before[active]
        self.accelerated, self.failures = self.accelerated[active], self.failures[active]
        problem.target = self.finished.left(self.whole)
        self.mark, self.marked = math.inf, self.iterations

    def _propose(self, size: float) -> Equilibrium | None:
        """Go to the solver's next point, row by row unless it failed there; or return that point where it is the result."""
        Z, P, T, D = self.buffers
        failed = torch.zeros_like(self.accelerated)
        if self.q < 1.0:
            failed = self.accelerated & (self.residuals > self.q * self.before)
        self.failures += failed
        self._change_solver(Z)
        plain = failed | (self.failures >= self.solver.patience)
        fallback = bool(plain.any())
        kept = T[plain] if fallback else T
        Y = self.solver.propose(Z, P, T, D)
        if fallback:
            Y[plain] = kept
        defects = self.solver.defects() if self.bounded else None
        if defects is not None:
            if fallback:
                defects = torch.where(plain, self.q * self.residuals, defects)
            defect = float(torch.linalg.vector_norm(defects))
            result = self._accepted(Y, defects, defect, size)
            if result is not None:
                return result
            if self._start_is_nearer(Y, defect, T if Y is P else P):
                assert self.start is not None
                Y.copy_(self.start)
                plain = torch.ones_like(plain)  # nothing is known of the residual there
        self.accelerated, self.before = ~plain, self.residuals
        self.buffers = (Y, *(buffer for buffer in self.buffers if buffer is not Y))
        return None

    def _accepted(self, Y: Tensor, defects: Tensor, defect: float, size: float) -> Equilibrium | None:
        """Y as the result, where bounds of the row norms of T(Y) - Y show that it is accurate enough."""
        if not defect <= self.problem.target:
            return None
        # T = T(Z) may be larger than Y
        size = min(size, math.hypot(self.finished.size, float(torch.linalg.vector_norm(Y))))
        if not defect <= self.finished.left(self._allowed(size)):
            return None
        rounding = self.solver.defect_rounding()
        status, self.reserve = self._judge(defects, rounding, size * self.margin)
        return None if status is None else self._finish(Y, defects, rounding, status)

    def _start_is_nearer(self, Y: Tensor, defect: float, spare: Tensor) -> bool:
        """Whether the start is as near to Y, proposed from zero, as Y may be to its image."""
        if self.start is None or self.iterations != 1 or self.start.shape != Y.shape:
            return False
        return not float(torch.linalg.vector_norm(torch.sub(self.start, Y, out=spare))) > defect

    def _judge(self, defects: Tensor, rounding: Tensor, scale: float) -> tuple[EquilibriumStatus | None, float]:
        """Status of a point whose defects reach the tolerance, and what to reserve for rounding where it has none yet."""
        if not self.explicit:
            return EquilibriumStatus.CONVERGED, 0.0
        finished = self.finished
        lost = math.hypot(float(torch.linalg.vector_norm(rounding)), finished.lost)
        if (
            math.hypot(float(torch.linalg.vector_norm(defects + rounding)), finished.both) * _SLACK
            <= self.tolerance * scale
        ):
            return EquilibriumStatus.CONVERGED, 0.0
        if lost * _SLACK >= self.tolerance * scale:
            return EquilibriumStatus.LIMITED_BY_ROUNDING, 0.0
        return None, lost * _SLACK

    def _change_solver(self, Z: Tensor) -> None:
        """``auto``: leave the split and its low-rank model where some row fails again and again, or it takes long."""
        if self.requested != "auto" or self.solver.name not in ("split", "low_rank"):
            return
        if self.iterations >= PATIENCE or bool((self.failures >= self.solver.patience).any()):
            name = "newton" if Z.shape[1] <= SMALL_WIDTH else "anderson"
            self.solver = SOLVERS[name](self.problem, self.memory)
            self.failures.zero_()

    # -- results ------------------------------------------------------------------------------------------------------

    def _plain_result(self, T: Tensor, Z: Tensor, residuals: Tensor, status: EquilibriumStatus) -> Equilibrium:
        """T = T(Z) as the result; where γ‖A‖ ≥ 1, without a bound, and NaN unless the iteration settled."""
        if self.q < 1.0:
            return self._finish(T, self.q * residuals, self.problem.rounding(Z), status)
        settled = status is not EquilibriumStatus.MAX_ITERATIONS
        if not settled:
            return self._nothing(EquilibriumStatus.NOT_CONTRACTING)
        errors = torch.full_like(residuals, math.inf)
        return self._result(T, errors, EquilibriumStatus.NOT_CONTRACTING, self.solver.name)

    def _finish(self, Y: Tensor, defects: Tensor, rounding: Tensor, status: EquilibriumStatus) -> Equilibrium:
        Y, defects, rounding = self.finished.whole(Y, defects, rounding)
        return self._result(Y, defects + rounding, status, self.solver.name)

    def _result(self, Y: Tensor, defects: Tensor, status: EquilibriumStatus, solver: str) -> Equilibrium:
        """The equilibrium at Y, given bounds of the row norms of T(Y) - Y (infinite: no guarantee)."""
        errors = defects * up(_SLACK / down(1.0 - self.q), 2) if self.q < 1.0 else defects
        if self.exponent:
            Y = shift(Y, self.exponent)
            lost = math.sqrt(Y.shape[1]) * torch.finfo(Y.dtype).tiny
            errors = shift(errors, self.exponent) * _SLACK + lost
            if not bool(Y.isfinite().all()):
                return self._nothing(EquilibriumStatus.NON_FINITE)
        total = frobenius_upper(errors)
        if self.exponent and self.explicit and status is EquilibriumStatus.CONVERGED:
            # what underflows where the scale is undone can exceed a tolerance that was reached before
            reached = total <= self.tolerance * float(torch.linalg.vector_norm(Y.double())) * (1.0 + 1e-6)
            status = status if reached else EquilibriumStatus.LIMITED_BY_ROUNDING
        self.memory.give(*(buffer for buffer in self.buffers if buffer is not Y))
        self.memory.Z = Y
        return Equilibrium(Y, self.iterations, total, errors, status, solver)

    def _nothing(self, status: EquilibriumStatus) -> Equilibrium:
        errors = torch.full((self.Phi.shape[0],), math.inf, dtype=torch.float64, device=self.Phi.device)
        solver = self.solver.name if hasattr(self, "solver") else self.requested
        return Equilibrium(torch.full_like(self.Phi, math.nan), self.iterations, math.inf, errors, status, solver)


def dead_units(Z: Tensor) -> Tensor:
    """Indices of the units that are 0 on all rows of Z (N, m), int64. They bound the rank of Z by the number of the others."""
    return (Z == 0).all(dim=0).nonzero().flatten()
