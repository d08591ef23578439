"""The theorems on learned step sizes: hunts for violations, rigorous gaps, and schedules that follow."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import flint
import mpmath
import numpy as np
import pytest
import step_sizes_reference as reference
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot._core.evaluation import evaluate
from surefoot._core.schedule import gap_at
from surefoot._step_sizes.planner import a_posteriori
from surefoot_check.arrays import FormatError
from surefoot_check.checker import PRECISION
from surefoot_check.rigor.balls import ball
from surefoot_check.rigor.bounds import up
from surefoot_check.rigor.intervals import sum_up
from surefoot_check.statement import converted
from surefoot_check.step_sizes import constants as shared
from surefoot_check.step_sizes import enclosures as step_sizes
from surefoot_check.step_sizes import prox_rate
from surefoot_check.step_sizes.batches import Batch
from surefoot_check.step_sizes.enclosures import load_problem
from surefoot_check.systems import THEOREMS

Array = np.ndarray


KINDS: tuple[str, ...] = reference.KINDS
GUARANTEES = [name for name in THEOREMS if name.startswith("step-sizes/") and THEOREMS[name].provable]


def loaded(kind: str, arrays: dict[str, Array]) -> Batch:
    problem = load_problem(kind, arrays)
    assert isinstance(problem, Batch)
    return problem


# -- rigorous gaps -----------------------------------------------------------------------------------------------------


def exact_gap(kind: str, arrays: dict[str, Array], p: int, x: Array) -> float:
    """F(x) - F(best known point) with 50 digits."""
    with mpmath.workdps(50):

        def value(point: Array) -> Any:
            total = mpmath.mpf(0)
            for i, row in enumerate(arrays["M"][p]):
                image = mpmath.fsum(
                    mpmath.mpf(float(m)) * mpmath.mpf(float(v)) for m, v in zip(row, point, strict=True)
                )
                if kind == "logistic-batch":
                    total += mpmath.log1p(mpmath.exp(-float(arrays["labels"][p][i]) * image))
                else:
                    total += (image - float(arrays["Y"][p][i])) ** 2 / 2
            lam = float(arrays["lam"][p]) if "lam" in arrays else 0.0
            l2 = float(arrays["l2"][p]) if "l2" in arrays else 0.0
            entries = [mpmath.mpf(float(v)) for v in point]
            return total + lam * mpmath.fsum(map(abs, entries)) + l2 * mpmath.fsum(v * v for v in entries) / 2

        return float(value(x) - value(arrays["optimum"][p]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (5, 5)])
@pytest.mark.parametrize("badly", [False, True])
def test_gaps_are_bounded_from_both_sides(kind: str, shape: tuple[int, int], badly: bool) -> None:
    """Tightly, where the witness is: to 1e-9 of the gap and 1e-10 of the initial objective."""
    for seed in range(3):
        arrays = reference.batch(kind, seed, 2, *shape, badly=badly)
        problem = loaded(kind, arrays)
        g = np.random.default_rng(seed)
        for p, distance in product(range(2), (1.0, 1e-3, 1e-7, 0.0)):
            x = arrays["optimum"][p] + distance * g.standard_normal(shape[1])
            truth = exact_gap(kind, arrays, p, x)
            size = reference.Reference(arrays, p).objective(np.zeros(shape[1]))
            upper = problem.gap_bound(p, x)
            low, high = problem.gap_balls(p, x)
            assert truth <= upper
            assert float(low) <= max(truth, 0.0) + 1e-15 * size
            assert truth <= float(high) * (1.0 + 1e-15)
            if badly:  # conditions of 1e6: the witness is not that close to the optimum
                continue
            slack = 1e-9 * truth + 1e-10 * size
            assert upper <= truth + slack
            assert float(high) <= truth + slack
            assert float(low) >= truth - slack


def test_a_wrong_witness_makes_bounds_worse_and_never_false() -> None:
    for kind, seed in product(KINDS, range(8)):
        arrays = reference.batch(kind, seed)
        g = np.random.default_rng(seed)
        wrong = {**arrays, "optimum": arrays["optimum"] + g.standard_normal(arrays["optimum"].shape)}
        good, bad = loaded(kind, arrays), loaded(kind, wrong)
        for p in range(3):
            x = arrays["optimum"][p] + 0.1 * g.standard_normal(6)
            truth = exact_gap(kind, arrays, p, x)
            assert bad.gap_bound(p, x) >= truth
            low, high = bad.gap_balls(p, x)
            assert float(high) >= truth >= float(low)
            assert bad.gap_bound(p, x) >= good.gap_bound(p, x) * (1.0 - 1e-9) - 1e-12


@pytest.mark.parametrize("kind", ["lasso-batch", "logistic-batch"])
def test_dual_points_are_feasible(kind: str) -> None:
    """Within 30 digits, where there is no l2; an infeasible point would give no bound."""
    for seed in range(10):
        arrays = reference.batch(kind, seed, badly=bool(seed % 2))
        if "l2" in arrays:
            arrays["l2"] = np.zeros(3)
        problem: Any = loaded(kind, arrays)
        g = np.random.default_rng(seed)
        for p in range(3):
            point = problem.dual(p, g.standard_normal(6)).point
            signed = point * (arrays["labels"][p] if kind == "logistic-batch" else 1.0)
            with mpmath.workdps(30):
                largest = max(
                    abs(mpmath.fsum(mpmath.mpf(float(m)) * float(t) for m, t in zip(column, signed, strict=True)))
                    for column in arrays["M"][p].T
                )
                assert largest <= float(arrays["lam"][p])
            assert kind == "lasso-batch" or ((point >= 0.0) & (point <= 1.0)).all()


def test_rank_deficient_least_squares_has_a_gap_and_no_rate() -> None:
    """Rows of zeros do not matter; a matrix that is only numerically deficient has no certified eigenvalue."""
    arrays = reference.batch("least-squares-batch", 0)
    arrays["M"][0][2] = 0.0
    arrays = reference.with_minimisers(arrays)
    base = reference.published("least-squares-batch", arrays, reference.weights(arrays, 0.5, 1.5))
    assert base["convexity_ratio"] > 1e-4
    arrays["M"][0][2] = arrays["M"][0][0] + arrays["M"][0][1]
    arrays = reference.with_minimisers(arrays)
    at = reference.weights(arrays, 0.5, 1.5)
    base = reference.published("least-squares-batch", arrays, at)
    assert base["convexity_ratio"] == 0.0
    assert not reference.certificate("step-sizes/rate", "least-squares-batch", arrays, at).holds
    assert reference.certificate("step-sizes/monotone", "least-squares-batch", arrays, at).holds
    problem = loaded("least-squares-batch", arrays)
    truth = exact_gap("least-squares-batch", arrays, 0, np.zeros(6))
    assert truth <= problem.gap_bound(0, np.zeros(6))


def test_matrices_of_zeros_have_no_gap() -> None:
    arrays = reference.batch("least-squares-batch", 0)
    arrays["M"] = np.zeros_like(arrays["M"])
    arrays = reference.with_minimisers(arrays)
    problem = loaded("least-squares-batch", arrays)
    assert problem.gap_bound(0, np.ones(6)) == pytest.approx(0.5 * float(np.sum(arrays["Y"][0] ** 2)))
    at = reference.weights(arrays, 0.5, 1.5)
    at["beta"] = np.ones(3)
    assert reference.certificate("step-sizes/monotone", "least-squares-batch", arrays, at).holds


# -- hunts for violations ----------------------------------------------------------------------------------------------


def adversarial(problem: Any, x: Array, low: float, high: float, beta: float, g: np.random.Generator) -> Array:
    """Of some P in the range, mostly at its ends, the one whose step leaves the largest objective."""
    d = len(x)
    choices = [np.full(d, low), np.full(d, high), g.uniform(low, high, d)]
    choices += [np.where(g.random(d) < 0.5, low, high) for _ in range(6)]
    return max((problem.step(x, P, beta) for P in choices), key=problem.objective)


RANGES = st.tuples(st.floats(0.0, 2.0), st.floats(0.0, 2.0)).map(sorted)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(KINDS), st.integers(0, 10**6), RANGES, st.booleans())
def test_the_objective_never_increases(kind: str, seed: int, interval: list[float], badly: bool) -> None:
    g = np.random.default_rng(seed)
    rows, columns = int(g.integers(1, 6)), int(g.integers(1, 6))
    arrays = reference.batch(kind, seed, 1, rows, columns, badly=badly)
    problem = reference.Reference(arrays, 0)
    x = 10.0 ** g.uniform(-1, 1) * g.standard_normal(columns)
    for _ in range(8):
        after = adversarial(problem, x, interval[0], interval[1], problem.smoothness, g)
        before = problem.objective(x)
        # images of both points, each rounded, and what that is of half the square of a residual
        sizes = [np.abs(problem.M) @ np.abs(point) + np.abs(problem.target) for point in (x, after)]
        rounding = 8.0 * np.finfo(float).eps * sum(map(np.linalg.norm, sizes))
        assert problem.objective(after) <= before * (1.0 + 1e-13) + rounding * (math.sqrt(2.0 * before) + rounding)
        x = after


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(GUARANTEES), st.integers(0, 10**6), RANGES, st.booleans())
def test_adversarial_runs_stay_under_the_bound(theorem: str, seed: int, interval: list[float], badly: bool) -> None:
    g = np.random.default_rng(seed)
    kind = ("lasso-batch", "logistic-batch")[seed % 2] if "prox" in theorem else "least-squares-batch"
    rows, columns = int(g.integers(1, 6)), int(g.integers(1, 6))
    arrays = reference.batch(kind, seed, 2, rows, columns, badly=badly)
    start = 10.0 ** g.uniform(-1, 1) * g.standard_normal((2, columns)) * g.integers(0, 2)
    at = reference.weights(arrays, *interval, x=start)
    made = reference.certificate(theorem, kind, arrays, at)
    if not made.holds:
        assert not (interval[0] > 0.01 and interval[1] < 1.99) or theorem == "step-sizes/rate"
        return
    problems = [reference.Reference(arrays, p) for p in range(2)]
    best = sum(q.objective(w) for q, w in zip(problems, arrays["optimum"], strict=True))
    x = list(start)
    for t in range(1, 13):
        x = [
            adversarial(q, v, interval[0], interval[1], float(b), g)
            for q, v, b in zip(problems, x, at["beta"], strict=True)
        ]
        gap = sum(q.objective(v) for q, v in zip(problems, x, strict=True)) - best
        assert gap <= made.bound(t) * (1.0 + 1e-12) + 1e-13 * best


def test_the_rate_of_least_squares_is_attained() -> None:
    """Singular values 1 and 1/2 and a constant P at an end of the range: the bound is an equality."""
    for low, high, slow in ((0.6, 1.2, 0), (1.0, 1.9, 1)):
        arrays = {"M": np.array([[[0.5, 0.0], [0.0, 1.0]]]), "Y": np.zeros((1, 2)), "optimum": np.zeros((1, 2))}
        start = np.zeros((1, 2))
        start[0, slow] = 1.0
        at = reference.weights(arrays, low, high, x=start, stretch=1.0)
        base = reference.published("least-squares-batch", arrays, at)
        rho = 1.0 - shared.advance(base, low, high)
        x = reference.Reference(arrays, 0).step(start[0], (low, high)[slow], 1.0)
        ratio = float(x @ arrays["M"][0].T @ arrays["M"][0] @ x) / (0.25, 1.0)[slow]
        assert ratio == pytest.approx(rho * rho, rel=1e-7)


def test_the_range_is_sharp() -> None:
    """f = ½x²: beyond 2 and below 0 the objective increases."""
    for P, grows in ((2.0 + 1e-6, True), (-1e-6, True), (2.0, False), (0.0, False)):
        assert ((0.5 * (1.0 - P) ** 2) > 0.5) is grows


def test_the_certified_decrease_of_a_step() -> None:
    """f(x⁺) ≤ f(x) - (1/β)Σ P(1-P/2)g² and F(x⁺) ≤ F(x) - Σ(β/P)(1-P/2)d², with equality for a multiple of the identity."""
    for kind, seed in product(KINDS, range(60)):
        g = np.random.default_rng(seed)
        arrays = reference.batch(kind, seed, 1)
        if seed % 3 == 0:
            arrays["M"] = np.eye(6)[None]
            arrays["Y"] = arrays["labels"] = g.choice([-1.0, 1.0], (1, 6))
            del arrays["labels" if kind != "logistic-batch" else "Y"]
        problem = reference.Reference(arrays, 0)
        x, P, beta = g.standard_normal(6), g.uniform(0.01, 2.0, 6), problem.smoothness
        after = problem.step(x, P, beta)
        if kind == "least-squares-batch":
            claimed = float(np.sum(P * (1.0 - P / 2.0) * problem.gradient(x) ** 2)) / beta
        else:
            claimed = float(np.sum(beta * (1.0 / P - 0.5) * (after - x) ** 2))
        decrease = problem.objective(x) - problem.objective(after)
        assert decrease >= claimed - 1e-12 * problem.objective(x)
        if kind == "least-squares-batch" and seed % 3 == 0:
            assert decrease == pytest.approx(claimed, rel=1e-9)


# -- bounds that follow ------------------------------------------------------------------------------------------------


def quantities(**changes: float) -> dict[str, Any]:
    q: dict[str, Any] = {
        "initial_gap": 7.0,
        "range_low": 0.5,
        "range_high": 1.5,
        "smoothness_ratio": 1.0,
        "convexity_ratio": 0.1,
        "loss_convexity_ratio": 0.0,
        "penalty_convexity_ratio": 0.0,
        "radius_energy": 40.0,
        "proximal": True,
    }
    return {**q, **changes}


PROX = THEOREMS["step-sizes/prox-rate"]


@settings(max_examples=20, deadline=None)
@given(
    st.floats(1e-6, 1.0),
    st.floats(0.0, 1.0),
    st.floats(-12.0, 12.0),
    st.floats(-12.0, 6.0),
    st.sampled_from([0.0, 1e-14, 1e-6, 0.1, 1.0, 10.0]),
    st.sampled_from([0.0, 1e-9, 0.3, 100.0]),
    st.floats(0.5, 1.0),
)
def test_every_schedule_follows_in_balls(
    low: float, span: float, gap: float, energy: float, loss: float, penalty: float, ratio: float
) -> None:
    high = low + span * (1.999 - low)
    q = quantities(range_low=low, range_high=high, initial_gap=10.0**gap, smoothness_ratio=ratio)
    q |= {"radius_energy": 10.0 ** (gap + energy), "convexity_ratio": min(0.1 * ratio, 1e-3 + 0.01 * loss)}
    q |= {"loss_convexity_ratio": min(loss, ratio), "penalty_convexity_ratio": penalty}
    flint.ctx.prec = PRECISION
    for name in GUARANTEES:
        q["proximal"] = "prox" in name
        found, conditions, schedule = evaluate(THEOREMS[name], q)
        assert all(c.certain for c in conditions)
        assert 0 < len(schedule) <= 3000
        exact = {k: ball(v) if isinstance(v, float) else v for k, v in found.items()}
        assert all(c.certain for c in THEOREMS[name].conditions(exact))
        failed = [c for c in THEOREMS[name].obligations(exact, converted(schedule, ball)) if not c.certain]
        assert not failed, (name, failed[0])


@pytest.mark.parametrize("high", [0.9, 1.5, 1.8, 1.99])
@pytest.mark.parametrize("gap", [1e9, 7.0, 1e-3])
def test_the_sublinear_schedule_is_close_to_the_theorem(high: float, gap: float) -> None:
    """For hi ≤ 3/2 and a large initial gap it is 2E/(ω lo (t+3)); never more than 1 % above the theorem's bound."""
    q = quantities(range_high=high, initial_gap=gap)
    _, _, schedule = evaluate(PROX, q)
    omega, part = min(1.0, 2.0 - high), min(2.0 - high, 0.5)
    first = min(gap, 40.0 / (2.0 * omega * 0.5))
    gamma = omega * 4.0 * part * (1.0 - part) * 0.5 / 80.0
    for t in (1, 2, 5, 10, 100, 1000, 10**4, 10**6):
        segment = [s for s in schedule if s.start <= t][-1]
        expected = first / (1.0 + (t - 1) * gamma * first)
        assert expected * (1.0 - 1e-9) <= gap_at(segment, t) <= expected * 1.01
        if high <= 1.5 and gap == 1e9:
            assert expected == pytest.approx(80.0 / (omega * 0.5 * (t + 3)))


def test_the_recursion_behind_the_sublinear_bound() -> None:
    """For b ≤ 1/(2ω), what a step takes at least, min(b²/2, b-½ if b > 1), is κb²/2 or more."""
    for omega in np.linspace(0.01, 1.0, 100):
        part = min(omega, 0.5)
        kappa = 4.0 * part * (1.0 - part)
        for b in np.linspace(1e-3, max(1.0 / (2.0 * omega), 1.0), 300):
            taken = b * b / 2.0 if b <= 1.0 else b - 0.5
            if b <= 1.0 / (2.0 * omega):
                assert taken >= kappa * b * b / 2.0 * (1.0 - 1e-12)


def test_worse_constants_never_help() -> None:
    """A bound from constants moved in the safe direction is not smaller."""
    for name in GUARANTEES:
        proximal = "prox" in name
        q = quantities(proximal=proximal, loss_convexity_ratio=0.01, penalty_convexity_ratio=0.02)
        best = evaluate(THEOREMS[name], q)[2]
        for quantity in THEOREMS[name].base:
            factor = 1.2 if shared.DIRECTIONS[quantity] == "upper" else 0.7
            worse = evaluate(THEOREMS[name], {**q, quantity: q[quantity] * factor})[2]
            for t in (0, 1, 3, 30, 3000):
                at = [gap_at([s for s in schedule if s.start <= t][-1], t) for schedule in (best, worse)]
                assert at[1] >= at[0] * (1.0 - 1e-2)


def test_hypotheses_fail_where_they_must() -> None:
    cases: dict[str, list[dict[str, float]]] = {
        "step-sizes/monotone": [{"range_high": 2.0 + 1e-12}, {"smoothness_ratio": 1.4}, {"proximal": True}],
        "step-sizes/rate": [
            {"range_low": 0.0},
            {"range_high": 2.0},
            {"convexity_ratio": 0.0},
            {"smoothness_ratio": 4.0 / 3.0},
            {"proximal": True},
        ],
        "step-sizes/prox-monotone": [{"range_high": 2.0 + 1e-12}, {"smoothness_ratio": 1.4}, {"proximal": False}],
        "step-sizes/prox-rate": [
            {"range_low": 0.0},
            {"range_high": 2.0},
            {"radius_energy": 0.0},
            {"proximal": False},
        ],
    }
    for name, changes in cases.items():
        right = quantities(proximal="prox" in name)
        assert all(c.certain for c in evaluate(THEOREMS[name], right)[1])
        for change in changes:
            _, conditions, schedule = evaluate(THEOREMS[name], {**right, **change})
            assert [c for c in conditions if not c.certain]
            assert schedule == []


def test_two_is_admitted_without_a_rate() -> None:
    q = quantities(range_low=0.0, range_high=2.0, proximal=False)
    assert all(c.certain for c in evaluate(THEOREMS["step-sizes/monotone"], q)[1])
    assert not all(c.certain for c in evaluate(THEOREMS["step-sizes/rate"], q)[1])


# -- a-posteriori products ---------------------------------------------------------------------------------------------


def test_observed_ranges_give_a_bound_between_the_a_priori_one_and_the_run() -> None:
    for seed in range(20):
        kind = "least-squares-batch"
        arrays = reference.batch(kind, seed, 1)
        at = reference.weights(arrays, 0.3, 1.8)
        base = reference.published(kind, arrays, at)
        problem = reference.Reference(arrays, 0)
        best = problem.objective(arrays["optimum"][0])
        g = np.random.default_rng(seed)
        x, lows, highs, gaps = np.zeros(6), [], [], []
        for _ in range(10):
            gaps.append(problem.objective(x) - best)
            P = g.uniform(0.3 + 0.5 * g.random(), 1.8 - 0.5 * g.random(), 6)
            x = problem.step(x, P, float(at["beta"][0]))
            lows.append(float(P.min()))
            highs.append(float(P.max()))
        gaps.append(problem.objective(x) - best)
        factors = a_posteriori(base, lows, highs)
        rho = 1.0 - shared.advance(base, 0.3, 1.8)
        for t, (factor, gap) in enumerate(zip(factors, gaps, strict=True)):
            assert gap <= factor * gaps[0] * (1.0 + 1e-12) + 1e-14 * gaps[0]
            assert factor <= rho ** (2 * t) * (1.0 + 1e-9)


def test_products_are_rounded_up() -> None:
    q = {"smoothness_ratio": 1.0, "convexity_ratio": 1.0 / 3.0}
    lows, highs = [0.1 + 0.01 * t for t in range(50)], [1.0] * 50
    factors = a_posteriori(q, lows, highs)
    with mpmath.workdps(40):
        exact = mpmath.mpf(1)
        for t, low in enumerate(lows):
            exact *= (1 - mpmath.mpf(low) * mpmath.mpf(q["convexity_ratio"])) ** 2
            assert exact <= factors[t + 1] <= exact * (1 + mpmath.mpf(10) ** -11)


@pytest.mark.parametrize(("lows", "highs"), [([0.5], []), ([1.0], [0.5]), ([-0.1], [1.0]), ([1.0], [2.1])])
def test_ranges_that_are_none_are_refused(lows: list[float], highs: list[float]) -> None:
    with pytest.raises(ValueError, match=r"lows has|has the range"):
        a_posteriori({"smoothness_ratio": 1.0, "convexity_ratio": 0.1}, lows, highs)


# -- constants ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(4, 6), (6, 4)])
def test_constants_enclose_their_values(kind: str, shape: tuple[int, int]) -> None:
    for seed in range(5):
        arrays = reference.batch(kind, seed, 3, *shape, badly=bool(seed % 2))
        at = reference.weights(arrays, 0.4, 1.7, stretch=1.3)
        problem = loaded(kind, arrays)
        found = step_sizes.base_quantities(problem, at, {})
        values = [np.linalg.svd(M, compute_uv=False) ** 2 for M in arrays["M"]]
        scale = 0.25 if kind == "logistic-batch" else 1.0
        truth = max(scale * v[0] / b for v, b in zip(values, at["beta"], strict=True))
        assert truth == pytest.approx(1.0 / 1.3)
        assert found["smoothness_ratio"][1] == pytest.approx(truth, rel=1e-6)
        assert found["smoothness_ratio"][0] <= truth * (1 + 1e-14) <= found["smoothness_ratio"][1] * (1 + 2e-14)
        assert (found["range_low"], found["range_high"]) == ((0.4, 0.4), (1.7, 1.7))
        smallest = min(v[-1] / b for v, b in zip(values, at["beta"], strict=True))
        if kind == "least-squares-batch":
            assert found["convexity_ratio"][0] <= smallest * (1 + 1e-12)
            assert found["convexity_ratio"][0] >= smallest * (1 - 1e-5) - 1e-14
            continue
        convex = kind == "lasso-batch" and shape[0] >= shape[1]
        assert found["loss_convexity_ratio"][0] == pytest.approx(smallest if convex else 0.0, rel=1e-3, abs=1e-14)
        l2 = arrays.get("l2", np.zeros(3))
        assert found["penalty_convexity_ratio"][0] == pytest.approx(float((l2 / at["beta"]).min()))
        # R is a bound of every distance within the sublevel set that a run explores
        for p in range(3):
            q = reference.Reference(arrays, p)
            x = at["x"][p]
            radius = step_sizes._radius(problem, p, x)  # type: ignore[arg-type]
            for _ in range(40):
                assert np.linalg.norm(x - arrays["optimum"][p]) <= radius
                x = q.step(x, 1.9, q.smoothness)


def test_without_any_penalty_nothing_bounds_the_iterates() -> None:
    arrays = reference.batch("logistic-batch", 1)
    arrays["lam"], arrays["l2"] = np.zeros(3), np.zeros(3)
    at = reference.weights(arrays, 0.5, 1.5)
    problem = loaded("logistic-batch", arrays)
    assert "radius_energy" not in step_sizes.base_quantities(problem, at, {})
    assert problem.gap_bound(0, at["x"][0]) == pytest.approx(4 * math.log(2.0))  # F* ≥ 0 is all that is known


# -- malformed input ---------------------------------------------------------------------------------------------------


def _broken(name: str, arrays: dict[str, Array]) -> dict[str, Array]:
    changed = {key: value.copy() for key, value in arrays.items()}
    if name == "an array too many":
        changed["extra"] = np.zeros(3)
    elif name == "none of an array":
        del changed["optimum"]
    elif name == "another shape":
        changed["optimum"] = changed["optimum"][:, :-1]
    elif name == "fewer dimensions":
        changed["M"] = changed["M"][0]
    elif name == "float32":
        changed["M"] = changed["M"].astype(np.float32)
    elif name == "nan":
        changed["M"][0, 0, 0] = np.nan
    elif name == "huge":
        changed["M"][0, 0, 0] = 1e41
    elif name == "empty":
        changed["M"] = changed["M"][:0]
    elif name == "negative penalty":
        changed["lam"][0] = -1.0
    elif name == "labels of other values":
        changed["labels"][0, 0] = 0.5
    return changed


BROKEN = [
    "an array too many",
    "none of an array",
    "another shape",
    "fewer dimensions",
    "float32",
    "nan",
    "huge",
    "empty",
]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *product(KINDS, BROKEN),
        *product(KINDS[1:], ["negative penalty"]),
        ("logistic-batch", "labels of other values"),
    ],
)
def test_malformed_problems_are_refused(kind: str, name: str) -> None:
    arrays = reference.batch(kind, 0)
    load_problem(kind, arrays)
    with pytest.raises(FormatError):
        load_problem(kind, _broken(name, arrays))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("x", np.zeros((3, 5))),
        ("x", np.full((3, 6), np.inf)),
        ("x", np.full((3, 6), 1e41)),
        ("x", np.zeros((3, 6), dtype=np.float32)),
        ("beta", np.ones(2)),
        ("beta", np.array([1.0, 0.0, 1.0])),
        ("beta", np.array([1.0, -1.0, 1.0])),
        ("beta", np.array([1.0, 1e95, 1.0])),
        ("range", np.array([1.0, 0.5])),
        ("range", np.array([-0.1, 0.5])),
        ("range", np.array([0.1, np.nan])),
        ("range", np.array([0.1, 0.2, 0.3])),
        ("range", None),
    ],
)
def test_malformed_weights_are_refused(key: str, value: Any) -> None:
    arrays = reference.batch("lasso-batch", 0)
    problem = load_problem("lasso-batch", arrays)
    at = reference.weights(arrays, 0.5, 1.5)
    step_sizes.read_weights(at, problem, "test")
    at = {**at, key: value} if value is not None else {k: v for k, v in at.items() if k != key}
    with pytest.raises(FormatError, match="test: "):
        step_sizes.read_weights(at, problem, "test")


def test_networks_of_other_systems_do_not_solve_batches() -> None:
    with pytest.raises(FormatError, match="do not solve a problem of kind 'samples'"):
        load_problem("samples", {"X": np.ones((2, 2)), "Y": np.ones((2, 1))})


def test_sums_are_rounded_up() -> None:
    q = quantities()
    assert prox_rate.first_level(q) == 80.0
    assert sum_up([0.1] * 10) >= up(1.0, 0) - 1e-15
    assert sum_up([1.0, math.inf]) == math.inf
