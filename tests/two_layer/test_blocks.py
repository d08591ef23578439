"""Theorem B and Corollary D: every claim along exact runs, and the recursion once more in 50 digits."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import flint
import mpmath
import numpy as np
import pytest
from independent import blocks as independent
from mpmath import mpf
from numpy.typing import NDArray

from surefoot_check.two_layer import blocks
from surefoot_check.two_layer.blocks import Problem, State, block, cycle, suprema

Array = NDArray[np.float64]

ABOVE = 1.0 + 1e-12
"""What a norm of floats, computed in floats, may err by, relatively."""
SHARP = 1e-9
"""Relative distance of the bounds from the same recursion without rounding: far above rounding, far below what matters."""


def norm(A: Array) -> float:
    return float(np.linalg.norm(A, 2))


@dataclass(frozen=True)
class Case:
    """Eigenvalues (n,) of XᵀX, minimiser w* (n, m), and weights V1 (n, h), V2 (m, h), all in units of s."""

    lam: Array
    target: Array
    V1: Array
    V2: Array

    @property
    def problem(self) -> Problem:
        return Problem(float(self.lam.min()), float(self.lam.max()), ABOVE * norm(self.target))


@dataclass(frozen=True)
class Point:
    """An iterate of an exact run, and the sums G1, G2 up to it, rounded to floats; ``square`` of ‖Λ^½e‖_F is a ball."""

    square: flint.arb
    w: Array
    e: Array
    K1: Array
    K2: Array
    G1: Array
    G2: Array

    def state(self, gram: bool) -> State:
        """Its numbers, rounded upwards; with Γ = 0, that is G1 and G2 left in the remainders, or as they are."""
        G1, G2 = (self.G1, self.G2) if gram else (0.0 * self.G1, 0.0 * self.G2)
        low, high = (1.0 + 0.5 * sum(float(np.linalg.eigvalsh(K)[i]) for K in (self.K1, self.K2)) for i in (0, -1))
        return State(
            ABOVE * math.sqrt(float(self.square.upper())),
            ABOVE * float(np.linalg.norm(self.e)),
            ABOVE * norm(self.w) + 1e-15,
            ABOVE * norm(self.K1 - 0.5 * self.w @ self.w.T + G1) + 1e-15,
            ABOVE * norm(self.K2 - 0.5 * self.w.T @ self.w + G2) + 1e-15,
            ABOVE * max(norm(G1), norm(G2)),
            low - 1e-14 * (1.0 + high),
            high * ABOVE,
        )


def floats(A: flint.arb_mat) -> Array:
    return np.array([[float(x.mid()) for x in row] for row in A.tolist()])


def exact_run(case: Case, tau: Array, bits: int = 256) -> list[Point]:
    """Gradient descent from ``case``, in balls of that precision."""
    with flint.ctx.workprec(bits):
        V1, V2, target = (flint.arb_mat(A.tolist()) for A in (case.V1, case.V2, case.target))
        lam = [flint.arb(x) for x in case.lam.tolist()]
        n, m = case.target.shape
        one1, one2 = (flint.arb_mat(np.eye(k).tolist()) for k in (n, m))
        G1, G2, points = one1 * 0, one2 * 0, []
        for t in range(len(tau) + 1):
            w = V1 * V2.transpose()
            e = w - target
            square = sum((lam[i] * e[i, j] ** 2 for i in range(n) for j in range(m)), flint.arb(0))
            K1, K2 = V1 * V1.transpose() - one1, V2 * V2.transpose() - one2
            points.append(Point(square, *map(floats, (w, e, K1, K2, G1, G2))))
            if t < len(tau):
                half = flint.arb(float(tau[t])) / 2
                gamma = flint.arb_mat([[half * lam[i] * e[i, j] for j in range(m)] for i in range(n)])
                V1, V2 = V1 - gamma * V2, V2 - gamma.transpose() * V1
                G1, G2 = G1 + gamma * gamma.transpose(), G2 + gamma.transpose() * gamma
        return points


def drawn(rng: np.random.Generator, kind: str) -> Case:
    """Small sizes; weights that are orthonormal rows, near to it, or Gaussian (wide ones are close to a multiple of it)."""
    n, m = (int(k) for k in rng.integers(1, 4, size=2))
    kappa = 10.0 ** rng.uniform(0.0, 2.0)
    lam = np.sort(np.exp(rng.uniform(0.0, math.log(kappa), n)))[::-1].copy()
    target = rng.standard_normal((n, m)) * 10.0 ** rng.uniform(-3.0, -0.5)
    h = n + m + int(rng.integers(0, 4))
    if kind == "gaussian":
        h = 500
        V = rng.standard_normal((n + m, h)) / math.sqrt(h)
    else:
        V = np.linalg.qr(rng.standard_normal((h, n + m)))[0].T
        if kind == "near":
            V = V + 10.0 ** rng.uniform(-4.0, -1.0) * rng.standard_normal(V.shape)
    return Case(lam, target, np.ascontiguousarray(V[:n]), np.ascontiguousarray(V[n:]))


def steps(rng: np.random.Generator, case: Case, count: int) -> Array:
    """Roots of a Chebyshev polynomial in some order, or any."""
    low, high = float(case.lam.min()), float(case.lam.max())
    if rng.uniform() < 0.3:
        return np.exp(rng.uniform(math.log(0.1 / high), math.log(2.0 / high), count))
    angles = np.pi * (rng.permutation(count) + 0.5) / count
    return 1.0 / (0.5 * (high + low) - 0.5 * (high - low) * np.cos(angles))


def below(actual: float, bound: float) -> bool:
    return actual <= bound * ABOVE


def require_claims(point: Point, residual: float, end: State | None) -> None:
    """Every claim of Theorem B about an iterate."""
    if not math.isfinite(residual):
        return
    with flint.ctx.workprec(256):
        assert bool(point.square <= flint.arb(residual) ** 2)  # exactly: where ν = 0 the bound is attained
    if end is None:
        return
    actual = point.state(gram=True)
    names = {f.name for f in fields(State)} - {"lower", "residual"}
    assert [name for name in names if not below(getattr(actual, name), getattr(end, name) + 1e-14)] == []
    assert end.lower <= actual.lower + 1e-13 * (1.0 + actual.upper)


def hunt(seed: int, problems: int, kinds: tuple[str, ...] = ("orthonormal", "near", "gaussian")) -> int:
    """The number of iterates of random problems about which something was claimed, all of it true."""
    rng, claimed = np.random.default_rng(seed), 0
    for index in range(problems):
        case = drawn(rng, kinds[index % len(kinds)])
        tau = steps(rng, case, int(rng.integers(1, 9)))
        points = exact_run(case, tau)
        state = points[0].state(gram=False)
        if not state.lower > 0.0:
            continue
        for t in range(1, len(tau) + 1):
            result = block(case.problem, state, tau[:t])
            require_claims(points[t], float(result.residuals[-1]), result.end)
            claimed += result.end is not None
    return claimed


def test_every_claim_holds_along_exact_runs() -> None:
    assert hunt(0, 30) > 60


@pytest.mark.slow
def test_every_claim_holds_along_many_exact_runs() -> None:
    assert hunt(1, 1500) > 3000


def chained(problem: Problem, state: State, sequences: list[Array]) -> tuple[Array, State]:
    """Block after block: the bounds of all steps, and the last state."""
    residuals = [np.array([state.residual])]
    for tau in sequences:
        result = block(problem, state, tau)
        assert result.end is not None
        residuals.append(result.residuals[1:])
        state = result.end
    return np.concatenate(residuals), state


def test_blocks_go_on_from_where_the_last_one_ended() -> None:
    rng = np.random.default_rng(5)
    for _ in range(6):
        case, tau = chebyshev_case(rng)
        points = exact_run(case, np.tile(tau, 2))
        residuals, end = chained(case.problem, points[0].state(gram=False), [tau, tau[:2], tau[2:]])
        for point, residual in zip(points, residuals, strict=True):
            require_claims(point, float(residual), None)
        require_claims(points[-1], float(residuals[-1]), end)


def test_one_number_and_the_exact_step() -> None:
    """n = m = 1 without drift: from w = 0 the step 1/λ is exact but for ν, and the bound is ν's."""
    case = Case(np.array([4.0]), np.array([[1e-3]]), np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]))
    points = exact_run(case, np.array([0.25]))
    result = block(case.problem, points[0].state(gram=False), np.array([0.25]))
    require_claims(points[1], float(result.residuals[1]), result.end)
    assert float(result.residuals[1]) < 1e-8


def test_a_block_that_blows_up_claims_nothing() -> None:
    state = State(1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0)
    for tau in ([1e3] * 4, [1e200] * 4):
        result = block(Problem(1.0, 10.0, 1.0), state, np.array(tau))
        assert result.end is None and result.drift is None
        assert math.isinf(result.residuals[-1]) and result.residuals[0] == 1.0


def test_numbers_at_the_ends_of_the_floats_claim_nothing_false() -> None:
    """Nor do they raise: what is infinite or cancels is no claim."""
    rng = np.random.default_rng(0)
    ends = np.array([0.0, 5e-324, 1e-300, 1e-160, 1e-12, 0.1, 1.0, 10.0, 1e8, 1e160, 1e300, math.inf])
    for _ in range(300):
        numbers = rng.choice(ends, 6).tolist()
        state = State(*numbers, float(rng.choice([1e-300, 0.5, 1.0])), float(rng.choice(ends[6:])))
        low, high = np.sort(rng.choice(ends[1:-1], 2)).tolist()
        tau = rng.choice(ends[1:-1], int(rng.integers(1, 4)))
        problem = Problem(low, high, float(rng.choice(ends)))
        found = cycle(problem, state, tau)
        assert found is None or (0.0 < found.factor < 1.0 and np.isfinite(found.residuals).all())
        assert not np.isnan(block(problem, state, tau).residuals).any()


def chebyshev_case(rng: np.random.Generator) -> tuple[Case, Array]:
    """A small map to learn from weights near orthonormal ones, and six steps that contract."""
    V = np.linalg.qr(rng.standard_normal((5, 5)))[0] + 1e-5 * rng.standard_normal((5, 5))
    case = Case(np.array([20.0, 7.0, 1.0]), 0.02 * rng.standard_normal((3, 2)), V[:3], V[3:])
    roots = 10.5 - 9.5 * np.cos(np.pi * (np.array([5, 2, 3, 0, 4, 1]) + 0.5) / 6)
    return case, 1.0 / roots


def test_a_cycle_is_repeated_for_ever() -> None:
    case, tau = chebyshev_case(np.random.default_rng(3))
    count, T = 6, len(tau)
    points = exact_run(case, np.tile(tau, count), bits=1024)
    for start in (0, T):
        state = points[start].state(gram=False)
        repeated = cycle(case.problem, state, tau)
        assert repeated is not None and 0.0 < repeated.factor < 1.0
        for t, point in enumerate(points[start:]):
            with flint.ctx.workprec(1024):
                bound = flint.arb(float(repeated.residuals[t % T])) * flint.arb(repeated.factor) ** (t // T)
                assert bool(point.square <= bound**2)
        one_by_one, _ = chained(case.problem, state, [tau] * count)
        promised = [repeated.residuals[t % T] * repeated.factor ** (t // T) for t in range(count * T + 1)]
        # the same recursion from worse numbers, but for the points on which the polynomials are bounded
        assert np.all(np.array(promised) >= one_by_one * 0.98)


def hunt_cycles(seed: int, problems: int) -> int:
    """The number of cycles of random problems that were claimed, each true in five repetitions."""
    rng, claimed = np.random.default_rng(seed), 0
    for index in range(problems):
        case = drawn(rng, ("orthonormal", "near", "gaussian")[index % 3])
        tau = steps(rng, case, int(rng.integers(1, 7)))
        state = exact_run(case, tau[:0])[0].state(gram=False)
        found = cycle(case.problem, state, tau) if state.lower > 0.0 else None
        if found is None:
            continue
        claimed += 1
        for t, point in enumerate(exact_run(case, np.tile(tau, 5), bits=1024)):
            with flint.ctx.workprec(1024):
                bound = flint.arb(float(found.residuals[t % len(tau)])) * flint.arb(found.factor) ** (t // len(tau))
                assert bool(point.square <= bound**2)
    return claimed


def test_every_cycle_is_true_along_exact_runs() -> None:
    assert hunt_cycles(0, 40) >= 5


@pytest.mark.slow
def test_many_cycles_are_true_along_exact_runs() -> None:
    assert hunt_cycles(1, 500) >= 60


def test_no_cycle_without_contraction_or_room() -> None:
    case, tau = chebyshev_case(np.random.default_rng(3))
    state = exact_run(case, tau[:0])[0].state(gram=False)
    problem = case.problem
    assert cycle(problem, state, tau) is not None
    assert cycle(problem, state, 3.0 * tau) is None  # grows
    far = exact_run(Case(case.lam, 60.0 * case.target, case.V1, case.V2), tau[:0])[0].state(gram=False)
    assert cycle(Problem(problem.strong_convexity, problem.smoothness, 60.0 * problem.optimum), far, tau) is None


def test_a_cycle_needs_room_for_all_that_its_repetitions_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of what it leaves behind in all is not enough."""
    case, tau = chebyshev_case(np.random.default_rng(3))
    state = exact_run(case, tau[:0])[0].state(gram=False)
    monkeypatch.setattr(blocks, "ROOM", 0.5)
    assert cycle(case.problem, state, tau) is None


# -- the recursion once more, in mpmath ---------------------------------------------------------------------------------


def test_the_recursion_is_the_one_of_the_page() -> None:
    case, tau = chebyshev_case(np.random.default_rng(3))
    constants = (case.problem.strong_convexity, case.problem.smoothness, case.problem.optimum)
    for state in (
        exact_run(case, tau[:0])[0].state(gram=False),
        State(0.3, 0.2, 0.1, 1e-3, 2e-3, 3e-3, 0.95, 1.1),
    ):
        with mpmath.workdps(50):
            exactly = independent.State(*(mpf(getattr(state, f.name)) for f in fields(State)))
            numbers = [mpf(x) for x in tau.tolist()], *map(mpf, constants)
            outcome, result = independent.block(exactly, *numbers), block(case.problem, state, tau)
            assert result.end is not None and result.drift is not None
            for value, exact in zip(result.residuals, outcome.rho, strict=True):
                assert exact <= mpf(float(value)) <= exact * (1 + SHARP)
            for value, exact in zip(vars(result.drift).values(), outcome.drift, strict=True):
                assert exact <= mpf(value) <= exact * (1 + SHARP)
            for f, exact in zip(fields(State), vars(outcome.end).values(), strict=True):
                value, sign = mpf(getattr(result.end, f.name)), -1 if f.name == "lower" else 1
                assert 0 <= sign * (value - exact) <= SHARP * max(1, abs(exact)), f.name


def test_the_cycle_is_the_one_of_the_page() -> None:
    case, tau = chebyshev_case(np.random.default_rng(3))
    state = exact_run(case, tau[:0])[0].state(gram=False)
    tau = 1.0 / (10.5 - 9.5 * np.cos(np.pi * (np.array([3, 1, 2, 0]) + 0.5) / 4))
    result = cycle(case.problem, state, tau)
    assert result is not None
    with mpmath.workdps(50):
        exactly = independent.State(*(mpf(getattr(state, f.name)) for f in fields(State)))
        constants = (case.problem.strong_convexity, case.problem.smoothness, case.problem.optimum)
        rho, c = independent.cycle(exactly, [mpf(x) for x in tau.tolist()], *map(mpf, constants))
        assert c <= mpf(result.factor) <= c * (1 + SHARP)
        for value, exact in zip(result.residuals, rho, strict=True):
            assert exact <= mpf(float(value)) <= exact * (1 + SHARP)


def test_suprema_are_above_every_value_between_the_points() -> None:
    rng = np.random.default_rng(2)
    low, high = 0.7, 23.0
    tau = np.exp(rng.uniform(math.log(0.02), math.log(1.2), 7))
    found = suprema(tau, low, high)
    with mpmath.workdps(40):
        grid = [mpmath.mpf(low) + (mpmath.mpf(high) - low) * k / 399 for k in range(400)]
        for t, j in ((0, 0), (1, 0), (7, 0), (7, 3), (7, 6), (7, 7), (4, 1)):
            values = [abs(mpmath.fprod(1 - mpmath.mpf(float(tau[i])) * x for i in range(j, t))) for x in grid]
            for bounds, power in ((found.plain, 0.0), (found.root, 0.5), (found.linear, 1.0)):
                largest = max(v * x**power for v, x in zip(values, grid, strict=True))
                assert largest <= mpmath.mpf(float(bounds[t, j])) <= 1.03 * largest


def test_what_vanishes_on_the_way_is_not_lost() -> None:
    """Factors 1 - τx of 2^-54, whose product underflows, and then some that are large."""
    third = 1.0 / 3.0
    tau = np.array([third] * 25 + [1e15] * 8)
    with mpmath.workdps(40):
        exact = mpmath.fprod(abs(1 - 3 * mpf(float(x))) for x in tau)
    assert exact > 1e-290 and suprema(tau, 3.0, 3.0).plain[33, 0] >= exact
