"""The adjoint of the equilibrium, and the gradient of the squared loss with a bound on its error.

With U = γZA + Φ, Φ = relu(XW), D = 1[U > 0], E = 1[XW > 0] and r = Zb - Y, the adjoint is the solution of
V = D ∘ (r bᵀ + γ V Aᵀ), a contraction by q = γ‖A‖ as the equilibrium is; ∂A = γZᵀV, ∂W = Xᵀ(E ∘ V), ∂b = Zᵀr. No matrix
with Nm rows is formed, and the memory does not grow with the iterations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .._linalg.norms import product_roundoff
from .equilibrium import DEFAULT_TOLERANCE, Equilibrium, EquilibriumStatus
from .norms import accumulated, frobenius_upper, row_norms_upper, unit_roundoff
from .solvers import LowRankModel

MAX_ITERATIONS = 10_000
# So many steps that do not improve the defect by (1 + q)/2 end the modelled steps, or show rounding; a plain step promises q.
PATIENCE = 2
INNER_STEPS = 30
MASKED_ROWS = 128
"""Rows to which a mask is applied at a time."""
UNIT_ROUNDOFF = 2.0**-53
# covers the roundings of a few operations of bounds in float64
_SLACK = 1.0 + 2.0**-46


@dataclass(frozen=True)
class LinearSolution:
    """V ≈ D ∘ (C + γVB) (N, m), how many evaluations of the map it took, and how the iteration ended."""

    V: Tensor
    iterations: int
    status: EquilibriumStatus


@dataclass(frozen=True)
class Adjoint:
    """The adjoint V (N, m) with bounds on the error of each row (Proposition 8), float64 (N,).

    ``solver_errors`` go to 0 with the tolerances of the two solvers (up to rounding). ``kink_errors`` do not: they are the
    jump of V between all values of relu' at the entries of U whose sign the accuracy of Z leaves open, 0 where there are none.
    """

    V: Tensor
    iterations: int
    status: EquilibriumStatus
    solver_errors: Tensor
    kink_errors: Tensor

    @property
    def row_errors(self) -> Tensor:
        """Both parts together."""
        return self.solver_errors + self.kink_errors

    @property
    def error(self) -> float:
        """Bound on the Frobenius norm of the error of V."""
        return frobenius_upper(self.row_errors)


@dataclass(frozen=True)
class Bound:
    """Frobenius bound on the error of one gradient: the part of solvers and rounding, and the part of uncertain signs."""

    solver: float
    kink: float

    @property
    def total(self) -> float:
        """Their sum."""
        return self.solver + self.kink


@dataclass(frozen=True)
class Gradient:
    """Gradient of ½‖Zb - Y‖² with its error bounds.

    Attributes:
        W, A, b: the gradients (d, m), (m, m), (m, p).
        W_error, A_error, b_error: their bounds; that of b has no kink part.
        residual: Zb - Y (N, p).
        adjoint: V with its bounds.
        uncertain: entries of U whose sign is not certain.
        uncertain_inputs: entries of XW whose sign is not certain.
        structural: entries of U that are at most 0 whatever the rounding (Lemma 9). At those that are 0 the bounds hold
            for relu'(0) = 0, as where XW = 0 because a row of X or a column of W is; at the uncertain entries they hold for every
            value of relu'(0) in [0, 1].
    """

    W: Tensor
    A: Tensor
    b: Tensor
    W_error: Bound
    A_error: Bound
    b_error: Bound
    residual: Tensor
    adjoint: Adjoint
    uncertain: int
    uncertain_inputs: int
    structural: int


def absolute_norm_upper(M: Tensor) -> float:
    """Upper bound of ‖ |M| ‖, hence of ‖M‖: the smaller of ‖M‖_F and (‖M‖_1 ‖M‖_∞)^½; in O(Nm)."""
    if M.numel() == 0:
        return 0.0
    magnitude = M.abs()
    columns = magnitude.sum(dim=0, dtype=torch.float64).max()
    rows = magnitude.sum(dim=1, dtype=torch.float64).max()
    inflation = 1.0 + (sum(M.shape) + 8) * 2.0**-52
    return min(math.sqrt(float(columns)) * math.sqrt(float(rows)) * inflation, frobenius_upper(M))


def solve_linear(
    B: Tensor,
    active: Tensor,
    C: Tensor,
    gamma: float,
    *,
    norm_B: float,
    start: Tensor | None = None,
    tolerance: float | None = None,
    max_iterations: int = MAX_ITERATIONS,
    model: LowRankModel | None = None,
) -> LinearSolution:
    """V = D ∘ (C + γVB), to ‖V - V*‖_F ≤ tolerance ‖D ∘ C‖_F or, where that is out of reach, to rounding level.

    Steps V' = V + δ, Δ = D ∘ (C + γVB) - V, where δ = Δ + γD ∘ (δM) for M = diag B + QR, the low-rank ``model`` of B where there
    is one, and M = diag B else, while they contract about as fast as the plain step V + Δ is sure to; then plain steps. The last
    step decides: the error of a plain one is at most q‖Δ‖/(1 - q) (Lemma 1, part 1), and at V' the map leaves the defect
    γD ∘ (δ(B - M)) and what the inner iteration left. Three arrays of the size of V are held besides the arguments.

    Args:
        B: (m, m).
        active: D (N, m), bool.
        C: (N, m).
        gamma: γ.
        norm_B: upper bound of ‖B‖.
        start: where to start, such as the solution at nearby weights, unless a step from 0 is as good; 0 otherwise.
        tolerance: 1e-10 in float64 and 1e-5 in float32 where not given.
        max_iterations: evaluations of the map at most, the free one at 0 included.
        model: of B.
    """
    q = gamma * norm_B
    if not q < 1.0:
        return LinearSolution(torch.zeros_like(C), 0, EquilibriumStatus.NOT_CONTRACTING)
    tolerance = DEFAULT_TOLERANCE[C.dtype] if tolerance is None else tolerance
    work = torch.empty_like(C, memory_format=torch.contiguous_format)
    scale = float(torch.linalg.vector_norm(_masked(work.copy_(C), active)))
    if scale == 0.0:
        return LinearSolution(torch.zeros_like(C), 0, EquilibriumStatus.CONVERGED)
    if not math.isfinite(scale):
        return LinearSolution(torch.full_like(C, math.nan), 0, EquilibriumStatus.NON_FINITE)
    allowed = tolerance * scale * (1.0 - q)
    floor = accumulated(B.shape[0] + 9, product_roundoff(C.dtype)) * scale
    floor *= 1.0 + gamma * absolute_norm_upper(B) / (1.0 - q)
    inner = _Inner(B, active, gamma, norm_B, model)
    V = torch.zeros_like(work)
    modelled, slow, best = True, 0, math.inf
    for iteration in range(1, max_iterations + 1):
        if iteration > 1:
            torch.addmm(C, V, B, alpha=gamma, out=work)
            _masked(work, active).sub_(V)
        size = float(torch.linalg.vector_norm(work))
        if not math.isfinite(size):
            return LinearSolution(V, iteration, EquilibriumStatus.NON_FINITE)
        if size <= 0.5 * (1.0 + q) * best:
            best, slow = size, 0
        else:
            slow += 1
        if slow >= PATIENCE and modelled:
            modelled, slow, best = False, 0, size
        defect = q * size
        if modelled and defect > allowed:
            work, defect = inner.solve(work, 0.3 * allowed)
        V.add_(work)
        # plain steps contract by q until rounding prevents it
        if defect <= allowed or (size <= floor and slow >= PATIENCE and not modelled):
            return LinearSolution(V, iteration, EquilibriumStatus.CONVERGED)
        if iteration == 1 and start is not None and start.shape == V.shape:
            # where V is not surely nearer to the solution than the start is to V, the start probably is
            _masked(work.copy_(start), active)
            if float(torch.linalg.vector_norm(torch.sub(work, V, out=inner.spare))) <= defect:
                V.copy_(work)
            best = math.inf
    return LinearSolution(V, max_iterations, EquilibriumStatus.MAX_ITERATIONS)


class _Inner:
    """Solves δ = Δ + γD ∘ (δM) for M = diag B + QR by δ ← Δ' + D ∘ (δQ)R', Δ' = Δ/(1 - γ diag B), R' = γR/(1 - γ diag B)."""

    def __init__(self, B: Tensor, active: Tensor, gamma: float, norm_B: float, model: LowRankModel | None) -> None:
        self._active, self._model, self._gamma = active, model, gamma
        self._step = 1.0 / (1.0 - gamma * B.diagonal())
        self.spare = torch.empty_like(active, dtype=B.dtype, memory_format=torch.contiguous_format)
        if model is None:
            rest = B.clone()
            rest.fill_diagonal_(0.0)
            self._rest = min(frobenius_upper(rest), norm_B + float(B.diagonal().abs().max()))
        else:
            self._rest = model.rest
            self._scaled = (gamma * model.B) * self._step

    def solve(self, delta: Tensor, enough: float) -> tuple[Tensor, float]:
        """δ, and a bound of the defect that it leaves for the whole of B.

        The inner iteration ends at a defect of ``enough``, or of a tenth of what the rest of B leaves anyway. Overwrites Δ and
        ``spare``, one of which becomes δ.
        """
        right = delta.mul_(self._step)
        model, gamma = self._model, self._gamma
        if model is None:
            return right, gamma * self._rest * float(torch.linalg.vector_norm(right))
        used = torch.zeros(1, dtype=right.dtype, device=right.device)
        solution = right
        # the product in this order: with few columns on the right, float64 products take several times as long
        coefficients = torch.mm(model.Q.mT, right.mT).mT
        left = float(torch.linalg.vector_norm(coefficients))
        enough = max(enough, 0.1 * gamma * self._rest * float(torch.linalg.vector_norm(right)))
        for _ in range(INNER_STEPS):
            if left * gamma * model.B_norm <= enough:
                break
            used = coefficients
            solution = _masked(torch.mm(used, self._scaled, out=self.spare), self._active).add_(right)
            coefficients = torch.mm(model.Q.mT, solution.mT).mT
            previous, left = left, float(torch.linalg.vector_norm(coefficients - used))
            if not left < 0.9 * previous:
                break
        defect = gamma * (self._rest * float(torch.linalg.vector_norm(solution)) + left * model.B_norm)
        if solution is not right:
            self.spare = right
        return solution, defect


def _masked(V: Tensor, active: Tensor) -> Tensor:
    """V ← D ∘ V; block by block, because products with a mask of another dtype are slow or need a copy of its size."""
    for rows, mask in zip(V.split(MASKED_ROWS), active.split(MASKED_ROWS), strict=True):
        rows.mul_(mask.to(V.dtype))
    return V


def adjoint(
    A: Tensor,
    active: Tensor,
    residual: Tensor,
    b: Tensor,
    gamma: float,
    *,
    norm_A: float,
    start: Tensor | None = None,
    tolerance: float | None = None,
    max_iterations: int = MAX_ITERATIONS,
    model: LowRankModel | None = None,
    uncertain: Tensor | None = None,
    residual_errors: Tensor | None = None,
) -> Adjoint:
    """V = D ∘ (r bᵀ + γVAᵀ), solved in the dtype of A, with the row bounds of Proposition 8, which are evaluated in float64.

    Row i: ‖v̂_i - v_i‖ ≤ (ϱ_i + ‖b‖e_i + ‖(t̂_i)_{S_i}‖)/(1 - q), t̂_i the right side at v̂_i, ϱ_i its defect on D, e_i the
    error of r_i, S_i the uncertain entries. For p = 1 that is the theorem with V = diag(r)K; its proof needs no p.

    Args:
        A: (m, m).
        active: D (N, m), bool.
        residual: r (N, p).
        b: (m, p).
        gamma: γ.
        norm_A: upper bound of ‖A‖.
        start, tolerance, max_iterations: as for ``solve_linear``.
        model: of A, such as the equilibrium's solver left in its memory.
        uncertain: S (N, m), bool; none by default.
        residual_errors: e (N,), float64; none by default.
    """
    C = residual.double() @ b.double().T
    solution = solve_linear(
        A.T,
        active,
        C.to(A.dtype),
        gamma,
        norm_B=norm_A,
        start=start,
        tolerance=tolerance,
        max_iterations=max_iterations,
        model=None if model is None else model.transposed,
    )
    contraction = _inverse_gap(gamma * norm_A)
    if contraction == math.inf or solution.status is EquilibriumStatus.NON_FINITE:
        unknown = torch.full((len(C),), math.inf, dtype=torch.float64, device=C.device)
        return Adjoint(solution.V, solution.iterations, solution.status, unknown, unknown)
    V, (m, p) = solution.V.double(), b.shape
    right = torch.addmm(C, V, A.double().T, alpha=gamma)
    norm_b = absolute_norm_upper(b)
    size = gamma * absolute_norm_upper(A) * row_norms_upper(V) + norm_b * row_norms_upper(residual)
    omega = accumulated(m + p + 9, UNIT_ROUNDOFF) * size + _underflow(m, m + p)
    kink = torch.zeros_like(omega)
    if uncertain is not None:
        kink = torch.where(uncertain.any(dim=1), row_norms_upper(right * uncertain) * contraction * _SLACK, 0.0)
    # omega twice: the defect is that of the computed right side, and so are the entries on S
    solver = row_norms_upper(right.mul_(active).sub_(V)) + 2.0 * omega
    if residual_errors is not None:
        solver = solver + norm_b * residual_errors
    return Adjoint(solution.V, solution.iterations, solution.status, solver * contraction * _SLACK, kink)


def equilibrium_errors(X: Tensor, W: Tensor, A: Tensor, Z: Tensor, gamma: float, norm_A: float) -> Tensor:
    """Bounds of the row norms of Z - Z* (N,), float64, for the equilibrium Z* of the exact product XW: ‖T(Z) - Z‖/(1 - q).

    The map T is evaluated in float64, so that a float32 solution is not judged by what float32 sums might have lost.
    """
    d, m = W.shape
    Z, Phi = Z.double(), (X.double() @ W.double()).relu_()
    size = gamma * absolute_norm_upper(A) * row_norms_upper(Z) + row_norms_upper(Phi)
    inputs = accumulated(d + 1, UNIT_ROUNDOFF) * absolute_norm_upper(W) * row_norms_upper(X)
    omega = accumulated(m + 5, UNIT_ROUNDOFF) * size + inputs + _underflow(m, m + d)
    defect = torch.addmm(Phi, Z, A.double(), alpha=gamma).relu_().sub_(Z)
    return (row_norms_upper(defect) + omega) * _inverse_gap(gamma * norm_A) * _SLACK


def structural_columns(A: Tensor) -> Tensor:
    """Columns j with A_kj ≤ 0 for all k ≠ j, bool (m,): Z_ij = 0 and U_ij ≤ 0 wherever (XW)_ij ≤ 0 (Lemma 9, γA_jj < 1)."""
    positive = (A > 0).sum(dim=0)
    return positive == (A.diagonal() > 0)


def active_units(A: Tensor, Phi: Tensor, Z: Tensor, gamma: float) -> Tensor:
    """D = 1[γZA + Φ > 0] (N, m) with relu'(0) = 0, 0 at structural zeros whatever the rounding."""
    return (torch.addmm(Phi, Z, A, alpha=gamma) > 0) & ~((Phi == 0) & structural_columns(A))


def gradient(
    X: Tensor,
    Y: Tensor,
    W: Tensor,
    A: Tensor,
    b: Tensor,
    gamma: float,
    equilibrium: Equilibrium,
    *,
    norm_A: float,
    start: Tensor | None = None,
    tolerance: float | None = None,
    max_iterations: int = MAX_ITERATIONS,
    model: LowRankModel | None = None,
) -> Gradient:
    """Gradient of ½‖Zb - Y‖² at a computed equilibrium, with the bounds of Proposition 8.

    Args:
        X: (N, d).
        Y: (N, p).
        W, A, b: weights (d, m), (m, m), (m, p).
        gamma: γ.
        equilibrium: Z with bounds of the errors of its rows.
        norm_A: upper bound of ‖A‖.
        start, tolerance, max_iterations, model: as for ``adjoint``.
    """
    epsilon = equilibrium.row_errors
    # the bounds, and all but the solution of the equation of V, are computed in float64; the gradients are rounded at the end
    X, Y, W, Z, b = X.double(), Y.double(), W.double(), equilibrium.Z.double(), b.double()
    (N, d), (m, p) = X.shape, b.shape
    XW = X @ W
    signs = _signs(X, W, A.double(), Z, XW, gamma, epsilon)
    residual = Z @ b - Y
    norm_b = absolute_norm_upper(b)
    # fl(Zb) - Zb and the subtraction
    e = norm_b * (epsilon + accumulated(m + 1, UNIT_ROUNDOFF) * row_norms_upper(Z))
    e = (e + 2.0 * UNIT_ROUNDOFF * row_norms_upper(residual) + _underflow(p, m)) * _SLACK
    solved = adjoint(
        A,
        signs.active,
        residual,
        b,
        gamma,
        norm_A=norm_A,
        start=start,
        tolerance=tolerance,
        max_iterations=max_iterations,
        model=model,
        uncertain=signs.uncertain,
        residual_errors=e,
    )
    V = solved.V.double()
    grad_W, grad_A, grad_b = X.T @ (V * (XW > 0)), gamma * (Z.T @ V), Z.T @ residual
    epsilon_Z, norm_Z, norm_X = frobenius_upper(epsilon), absolute_norm_upper(Z), absolute_norm_upper(X)
    V_solver, V_kink = frobenius_upper(solved.solver_errors), frobenius_upper(solved.kink_errors)
    V_size, r_size = frobenius_upper(V), frobenius_upper(residual)
    inputs = frobenius_upper(V * signs.uncertain_inputs)
    products = accumulated(N + 3, UNIT_ROUNDOFF)
    W_solver = norm_X * (V_solver + products * V_size)
    A_solver = epsilon_Z * absolute_norm_upper(V) + (norm_Z + epsilon_Z) * V_solver + products * norm_Z * V_size
    b_solver = epsilon_Z * r_size + (norm_Z + epsilon_Z) * frobenius_upper(e) + products * norm_Z * r_size
    tiny = _underflow(m * max(d, m, p), N)
    u = unit_roundoff(A.dtype) if A.dtype != torch.float64 else 0.0

    def bound(gradient: Tensor, solver: float, kink: float) -> Bound:
        return Bound((solver + tiny + u * frobenius_upper(gradient)) * _SLACK, kink * _SLACK)

    return Gradient(
        W=grad_W.to(A.dtype),
        A=grad_A.to(A.dtype),
        b=grad_b.to(A.dtype),
        W_error=bound(grad_W, W_solver, norm_X * (V_kink + inputs)),
        A_error=bound(grad_A, gamma * A_solver, gamma * (norm_Z + epsilon_Z) * V_kink),
        b_error=bound(grad_b, b_solver, 0.0),
        residual=residual.to(A.dtype),
        adjoint=solved,
        uncertain=int(signs.uncertain.sum()),
        uncertain_inputs=int(signs.uncertain_inputs.sum()),
        structural=int(signs.structural.sum()),
    )


@dataclass(frozen=True)
class _Signs:
    """D; which entries of U and of XW have no certain sign; and which of U are at most 0 by Lemma 9; bool (N, m)."""

    active: Tensor
    uncertain: Tensor
    uncertain_inputs: Tensor
    structural: Tensor


def _signs(X: Tensor, W: Tensor, A: Tensor, Z: Tensor, XW: Tensor, gamma: float, epsilon: Tensor) -> _Signs:
    m, d = A.shape[0], X.shape[1]
    # where a row of X or a column of W is 0, XW is exactly 0
    nonzero = (X != 0).any(dim=1)[:, None] & (W != 0).any(dim=0)
    XW_error = torch.outer(row_norms_upper(X), row_norms_upper(W.T))
    XW_error.mul_(accumulated(d + 1, UNIT_ROUNDOFF)).add_(_underflow(1, d)).mul_(nonzero)
    uncertain_inputs = (XW.abs() <= XW_error) & nonzero
    structural = (XW + XW_error <= 0) & structural_columns(A)
    Phi, factor = XW.relu(), accumulated(m + 4, UNIT_ROUNDOFF)
    U = torch.addmm(Phi, Z, A, alpha=gamma)
    error = torch.outer(gamma * (epsilon + factor * row_norms_upper(Z)), row_norms_upper(A.T))
    error.add_(Phi, alpha=factor).add_(_underflow(1, m))
    error.add_(XW_error.mul_(XW + XW_error > 0)).mul_(_SLACK)
    return _Signs((U > 0) & ~structural, (U.abs() <= error) & ~structural, uncertain_inputs, structural)


def _underflow(entries: int, terms: int) -> float:
    """Bound on the norm of what underflows in so many sums of products in float64, flushed to zero or not."""
    return math.sqrt(entries) * (terms + 4) * torch.finfo(torch.float64).tiny


def _inverse_gap(q: float) -> float:
    """Upper bound of 1/(1 - q) for q that was rounded once; infinite unless q is certainly below 1."""
    gap = math.nextafter(1.0 - math.nextafter(q, math.inf), 0.0)
    return math.nextafter(1.0 / gap, math.inf) if gap > 0.0 else math.inf
