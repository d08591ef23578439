"""Methods without learning that a learned one must face, on all problems of a batch at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._core.validate import integer, kind_of, unknown
from .._logistic.solver import LogisticSolver
from .._problems import Problems
from .._problems.batch import proximal_step
from .._problems.lasso import Lasso
from .._problems.least_squares import LeastSquares
from .._problems.logistic import Logistic
from .schedules import SCHEDULES, Schedule

Method = Callable[[Any, int], Iterator[Tensor]]
"""The iterates x_0 = 0, x_1 … (N, d), at least T+1 of them, from the problems it is for and T."""

BY_THE_BATCH = {
    **dict.fromkeys(("GD 1/β", "GD 1.5/β", "GD 1.98/β", "GD 2/(β+β0)"), "GD 1/β_p"),
    "ISTA 1/β": "ISTA 1/β_p",
}
"""Baselines whose steps in one problem depend on the others of its batch, each with one whose steps do not."""


@dataclass(frozen=True)
class Trace:
    """What a method did.

    Attributes:
        solution: x_T (N, d).
        gaps: F_p(x_t) - F_p* (T+1, N) float64, at least 0; measured, at no counted cost.
        products: multiplications with M or Mᵀ until x_t was known (T+1,) float64; NaN where they are not known.
    """

    solution: Tensor
    gaps: Tensor
    products: Tensor


def names(problems: Problems) -> tuple[str, ...]:
    """The baselines that these problems admit, the reference first.

    Least squares: "GD 1/β", "GD 1.5/β", "GD 1.98/β", "GD 2/(β+β0)" with β = max β_p and β0 = min β0_p; "GD 1/β_p"; "Nesterov",
    "FISTA" and "strongly convex Nesterov", with 1/β_p as well; the schedules for T steps; "CGLS"; "LSQR". The three that need
    β0 > 0 are left out where it is not certified.

    LASSO: "ISTA 1/β"; "ISTA 1/β_p", "FISTA" and "restarted FISTA", with 1/β_p; the schedules; in float64 on the CPU "scikit-learn
    Lasso" (sweeps of coordinate descent) and, if installed, "skglm" (iterations of its working set).

    Logistic regression: "ISTA 1/β"; "ISTA 1/β_p" and "FISTA"; the schedules; on the CPU and with a penalty "LogisticSolver".

    Schedules are those of ``SCHEDULES`` that something is proved of on these problems. Another T is another schedule, not the
    same one cut off.
    """
    return tuple(_methods(problems))


def trace(name: str, problems: Problems, iterations: int) -> Trace:
    """``iterations`` iterations of the baseline ``name``, from 0.

    Raises:
        TypeError, ValueError: no baseline of these problems, or iterations not an integer ≥ 0.
    """
    return follow(method(name, problems), problems, iterations)


def method(name: str, problems: Problems) -> Method:
    """The baseline ``name``; ``TypeError``, ``ValueError`` where it is none of these problems."""
    methods = _methods(problems)
    if name not in methods:
        raise unknown("baseline", name, tuple(methods))
    return methods[name]


def follow(method: Method, problems: Problems, iterations: int) -> Trace:
    """The trace of any method."""
    iterations = integer("iterations", iterations, 0)
    before = problems.products
    x, gaps, products = problems.start(), [], []
    for x in islice(method(problems, iterations), iterations + 1):
        products.append(problems.products - before)
        gaps.append(problems.gap(x).clamp(min=0.0))
    spent = torch.tensor(products, dtype=torch.float64)
    return Trace(x, torch.stack(gaps), torch.full_like(spent, torch.nan) if method is skglm_lasso else spent)


def _methods(problems: Problems) -> dict[str, Method]:
    if isinstance(problems, LeastSquares):
        return _least_squares_methods(problems)
    if not isinstance(problems, Lasso | Logistic):
        raise TypeError(f"problems is {kind_of(problems)}; pass sf.learned.LeastSquares, Lasso or Logistic")
    methods: dict[str, Method] = {
        name: partial(gradient_descent, step=step) for name, step in constant_steps(problems).items()
    }
    methods["FISTA"] = fista
    if isinstance(problems, Lasso):
        methods["restarted FISTA"] = partial(fista, restart=True)
    methods |= _schedules(problems)
    if isinstance(problems, Lasso):
        methods["scikit-learn Lasso"] = scikit_learn_lasso
        if find_spec("skglm") is not None:
            methods["skglm"] = skglm_lasso
    elif problems.M.device.type == "cpu" and bool((problems.lam + problems.l2 > 0.0).all()):
        methods["LogisticSolver"] = safeguarded_newton
    return methods


def _least_squares_methods(problems: LeastSquares) -> dict[str, Method]:
    methods: dict[str, Method] = {
        name: partial(gradient_descent, step=step) for name, step in constant_steps(problems).items()
    }
    methods["Nesterov"] = nesterov
    methods["FISTA"] = fista
    if bool((problems.strong_convexity > 0.0).all()):
        methods["strongly convex Nesterov"] = strongly_convex_nesterov
    methods |= _schedules(problems)
    methods["CGLS"] = cgls
    methods["LSQR"] = lsqr
    return methods


def constant_steps(problems: Problems) -> dict[str, Tensor]:
    """The step sizes (N,) float64 of the baselines that take one step size only, by their names."""
    ones, beta = torch.ones_like(problems.smoothness), problems.common_smoothness
    if not isinstance(problems, LeastSquares):
        return {"ISTA 1/β": ones / beta, "ISTA 1/β_p": 1.0 / problems.smoothness}
    steps = {"GD 1/β": ones / beta, "GD 1.5/β": 1.5 * ones / beta, "GD 1.98/β": 1.98 * ones / beta}
    beta0 = float(problems.strong_convexity.min())
    if beta0 > 0.0:
        steps["GD 2/(β+β0)"] = 2.0 * ones / (beta + beta0)
    return steps | {"GD 1/β_p": 1.0 / problems.smoothness}


def _schedules(problems: Problems) -> dict[str, Method]:
    def method(kind: type[Schedule]) -> Method:
        return lambda problems, iterations: kind(iterations).iterates(problems)

    return {name: method(kind) for name, kind in SCHEDULES.items() if kind.refusal(problems) is None}


def gradient_descent(problems: Problems, iterations: int, *, step: Tensor) -> Iterator[Tensor]:
    """Proximal gradient with the step sizes ``step`` (N,); gradient descent on least squares, ISTA on LASSO."""
    x, steps = problems.start(), _steps(problems, step)
    while True:
        yield x
        x = proximal_step(problems, x, problems.gradient(x), steps)


def nesterov(problems: Problems, iterations: int) -> Iterator[Tensor]:
    """Steps 1/β_p with the momentum (t-1)/(t+2) (Su, Boyd and Candès, 2016): F - F* ≤ 2β_p‖x*‖²/(t+1)²."""
    x = y = problems.start()
    steps = _steps(problems, 1.0 / problems.smoothness)
    yield x
    t = 1
    while True:
        new = proximal_step(problems, y, problems.gradient(y), steps)
        yield new
        x, y, t = new, new + t / (t + 3.0) * (new - x), t + 1


def fista(problems: Problems, iterations: int, *, restart: bool = False) -> Iterator[Tensor]:
    """FISTA with 1/β_p (Beck and Teboulle, 2009): F - F* ≤ 2β_p‖x*‖²/(t+1)²; with ``restart``, in each problem where its momentum
    points uphill (O'Donoghue and Candès, 2015)."""
    x = y = problems.start()
    steps = _steps(problems, 1.0 / problems.smoothness)
    tau = x.new_ones(len(x))
    yield x
    while True:
        new = proximal_step(problems, y, problems.gradient(y), steps)
        yield new
        uphill = ((y - new) * (new - x)).sum(1) > 0.0 if restart else torch.zeros_like(tau, dtype=torch.bool)
        tau = torch.where(uphill, 1.0, tau)
        following = 0.5 * (1.0 + (1.0 + 4.0 * tau.square()).sqrt())
        momentum = torch.where(uphill, 0.0, (tau - 1.0) / following)
        x, y, tau = new, new + momentum[:, None] * (new - x), following


def strongly_convex_nesterov(problems: LeastSquares, iterations: int) -> Iterator[Tensor]:
    """Steps 1/β_p with the momentum (√κ-1)/(√κ+1), κ = β_p/β0_p, for β0_p > 0: F - F* falls by 1 - 1/√κ (Nesterov, 2004).

    In the range of Mᵀ, which x does not leave from 0, least squares of any shape is β0_p-strongly convex.
    """
    x = y = problems.start()
    steps = _steps(problems, 1.0 / problems.smoothness)
    root = (problems.smoothness / problems.strong_convexity).sqrt()
    momentum = ((root - 1.0) / (root + 1.0)).to(x)[:, None]
    yield x
    while True:
        new = proximal_step(problems, y, problems.gradient(y), steps)
        yield new
        x, y = new, new + momentum * (new - x)


def cgls(problems: LeastSquares, iterations: int) -> Iterator[Tensor]:
    """Conjugate gradients on MᵀMx = MᵀY (Hestenes and Stiefel, 1952): the least F in the Krylov space of every iteration, and
    exact after as many as M has different singular values; two products each. A problem is left alone as in ``lsqr``."""
    x, r = problems.start(), problems.Y
    yield x
    p = s = problems.adjoint(r)
    squared = s.square().sum(1)
    solved = _Solved(problems)
    while True:
        done = solved(x, r.norm(dim=1), squared.sqrt())
        q = problems.forward(p)
        length = torch.where(done, 0.0, _quotient(squared, q.square().sum(1)))[:, None]
        x, r = x + length * p, r - length * q
        yield x
        s = problems.adjoint(r)
        previous, squared = squared, s.square().sum(1)
        p = s + _quotient(squared, previous)[:, None] * p


def lsqr(problems: LeastSquares, iterations: int) -> Iterator[Tensor]:
    """LSQR (Paige and Saunders, 1982): CGLS in exact arithmetic, by bidiagonalisation; two products each iteration.

    A problem is left alone once ‖Mᵀr‖ ≤ (b+d)u‖M‖‖r‖ or ‖r‖ ≤ u(‖Y‖ + ‖M‖‖x‖), u the unit roundoff: what follows is noise.
    """
    x = problems.start()
    yield x
    solved = _Solved(problems)
    u, size = _normalised(problems.Y)
    v, alpha = _normalised(problems.adjoint(u))
    w, phi, rho = v, size, alpha
    while True:
        u, beta = _normalised(problems.forward(v) - alpha[:, None] * u)
        diagonal = torch.hypot(rho, beta)
        cosine, sine = _quotient(rho, diagonal), _quotient(beta, diagonal)
        # ‖Mᵀr‖ = φ α |c| of the step before, and ρ̄ = -c α there; at first ρ̄ = α
        done = solved(x, phi, phi * rho.abs())
        length = torch.where(done, 0.0, _quotient(cosine * phi, diagonal))
        x = x + length[:, None] * w
        yield x
        phi = torch.where(done, 0.0, sine * phi)
        v, alpha = _normalised(problems.adjoint(u) - beta[:, None] * v)
        w = v - _quotient(sine * alpha, diagonal)[:, None] * w
        rho = -cosine * alpha


def scikit_learn_lasso(problems: Lasso, iterations: int) -> Iterator[Tensor]:
    """Sweeps of scikit-learn's coordinate descent, each of which costs about two products."""
    from warnings import catch_warnings, simplefilter

    from sklearn.linear_model import lasso_path

    x = problems.start()
    yield x
    if iterations == 0:
        return
    paths = []
    with catch_warnings():
        simplefilter("ignore")  # that one sweep does not converge
        for M, y, lam in _arrays(problems):
            # a path of equal α, one sweep for each, goes on from where it was
            alphas = np.full(iterations, lam / len(y))
            options: dict[str, Any] = {"max_iter": 1, "tol": 0.0, "precompute": False, "check_input": False}
            paths.append(lasso_path(M, y, alphas=alphas, **options)[1])  # pyright: ignore[reportArgumentType]
    for sweep in torch.from_numpy(np.stack(paths)).unbind(2):
        problems.products += 2
        yield sweep.to(x)


def skglm_lasso(problems: Lasso, iterations: int) -> Iterator[Tensor]:
    """Iterations of skglm's working set, each of which solves a smaller problem; their cost in products is not known."""
    from warnings import catch_warnings, simplefilter

    from skglm.datafits import Quadratic  # pyright: ignore[reportMissingImports]
    from skglm.penalties import L1  # pyright: ignore[reportMissingImports]
    from skglm.solvers import AndersonCD  # pyright: ignore[reportMissingImports]

    x = problems.start()
    solver = AndersonCD(max_iter=1, tol=1e-14, fit_intercept=False, warm_start=True)
    data = [(M, y, L1(lam / len(y))) for M, y, lam in _arrays(problems)]
    iterates = [np.zeros(problems.columns) for _ in data]
    yield x
    while True:
        with catch_warnings():
            simplefilter("ignore")  # that one iteration does not converge
            for w, (M, y, penalty) in zip(iterates, data, strict=True):
                w[:] = solver.solve(M, y, Quadratic(), penalty, w.copy(), M @ w)[0]
        yield torch.from_numpy(np.stack(iterates)).to(x)


def safeguarded_newton(problems: Logistic, iterations: int) -> Iterator[Tensor]:
    """Iterations of ``LogisticSolver``; a problem that has stalled stays where it is."""
    found = LogisticSolver().solve(problems, iterations, trajectory=True)
    assert found.trajectory is not None
    before, spent = problems.products, found.products.mean(1).ceil().int().tolist()
    for t in range(iterations + 1):
        reached = min(t, len(spent) - 1)
        problems.products = before + spent[reached]
        yield found.trajectory[reached]


def _arrays(problems: Lasso) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
    """M (b, d) by columns, Y (b,) and λ of each problem, in float64."""
    for M, y, lam in zip(problems.M, problems.Y, problems.lam.tolist(), strict=True):
        yield np.asfortranarray(M.double().cpu().numpy()), y.double().cpu().numpy(), lam


def _steps(problems: Problems, step: Tensor) -> Tensor:
    """Step sizes (N,) for every coordinate (N, d), in the problems' dtype."""
    return step.to(problems.M.dtype)[:, None].expand(-1, problems.columns)


class _Solved:
    """Whether a problem is solved to rounding, where its Krylov space ends; then for good."""

    def __init__(self, problems: LeastSquares) -> None:
        self._norm = problems.smoothness.sqrt().to(problems.M)
        self._target = problems.Y.norm(dim=1)
        self._unit = float(torch.finfo(problems.M.dtype).eps)
        self._sum = (problems.rows + problems.columns) * self._unit
        self._done = torch.zeros_like(self._target, dtype=torch.bool)

    def __call__(self, x: Tensor, residual: Tensor, gradient: Tensor) -> Tensor:
        """From x (N, d) and the norms (N,) of Y - Mx and of Mᵀ(Y - Mx)."""
        stationary = gradient <= self._sum * self._norm * residual
        exact = residual <= self._unit * (self._target + self._norm * x.norm(dim=1))
        self._done = self._done | stationary | exact
        return self._done


def _quotient(numerator: Tensor, denominator: Tensor) -> Tensor:
    """The quotient, and 0 where the denominator is 0: the problem is solved."""
    return torch.where(denominator > 0.0, numerator / denominator, 0.0)


def _normalised(vector: Tensor) -> tuple[Tensor, Tensor]:
    """``vector`` (N, n) divided by its norms, and the norms (N,)."""
    norm = vector.norm(dim=1)
    return _quotient(vector, norm[:, None]), norm
