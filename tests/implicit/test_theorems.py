"""The theorems of implicit networks: values in 50-digit arithmetic, and runs at the edge of the hypotheses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import mpmath
import numpy as np
import pytest

from surefoot._core.evaluation import evaluate
from surefoot._core.plans import PLANS
from surefoot._core.schedule import gap_at
from surefoot._implicit import planner
from surefoot._implicit.near import NEAR_A_FIT
from surefoot_check.implicit import gd, spectral
from surefoot_check.implicit.constants import MASSES, NODES, node_places
from surefoot_check.rigor.balls import ball
from surefoot_check.statement import Schedule, converted

Array = np.ndarray
Values = dict[str, Any]
IMPLICIT = [name for name in PLANS if name.startswith("implicit/") and name not in NEAR_A_FIT]
"""Those of initial weights; those near a fit are in test_local."""
ROUND = 1e-9


# -- tiny networks -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Net:
    """Weights and data; the equilibrium to rounding."""

    X: Array
    Y: Array
    W: Array
    A: Array
    b: Array
    gamma: float

    @property
    def Z(self) -> Array:
        Phi = np.maximum(self.X @ self.W, 0.0)
        Z = Phi
        for _ in range(3000):
            following = np.maximum(self.gamma * Z @ self.A + Phi, 0.0)
            if np.abs(following - Z).max() <= 1e-16 * np.abs(Z).max():
                break
            Z = following
        return Z

    def scaled(self, beta: float) -> Net:
        return replace(self, W=beta * self.W, A=beta * self.A, b=self.b / beta, gamma=self.gamma / beta)

    def gradients(self, Z: Array, r: Array) -> tuple[Array, Array]:
        """Of A and W, with relu'(0) = 0."""
        D = (self.gamma * Z @ self.A + np.maximum(self.X @ self.W, 0.0)) > 0.0
        V = np.zeros_like(Z)
        for _ in range(3000):
            following = D * (r @ self.b.T + self.gamma * V @ self.A.T)
            if np.abs(following - V).max() <= 1e-16 * np.abs(following).max():
                break
            V = following
        return self.gamma * Z.T @ V, self.X.T @ (((self.X @ self.W) > 0.0) * V)


def tiny(seed: int, *, with_b: bool) -> Net:
    """N ≤ 4, m ≤ 8, p ≤ 2, features of full rank."""
    g = np.random.default_rng(seed)
    while True:
        N, d, p = int(g.integers(1, 5)), int(g.integers(2, 4)), int(g.integers(1, 3))
        m = int(g.integers(N + 2, 9))
        A = np.eye(m) if g.random() < 0.3 else g.standard_normal((m, m)) / math.sqrt(m)
        b = g.standard_normal((m, p)) if with_b else np.zeros((m, p))
        q = g.uniform(0.1, 0.7)
        net = Net(
            g.standard_normal((N, d)),
            g.standard_normal((N, p)),
            g.standard_normal((d, m)),
            A,
            b,
            float(q / np.linalg.norm(A, 2)),
        )
        values = np.linalg.svd(net.Z, compute_uv=False)
        if values[-1] > 0.1 * values[0]:
            return net


def base(net: Net, theorem: str) -> Values:
    """Base quantities and given choices, exact up to rounding."""
    Z = net.Z
    r = Z @ net.b - net.Y
    values = np.linalg.svd(Z, compute_uv=False)
    q: Values = {
        "initial_gap": 0.5 * float((r**2).sum()),
        "gamma": net.gamma,
        "norm_X": np.linalg.norm(net.X, 2),
        "frobenius_X": np.linalg.norm(net.X),
        "norm_A": np.linalg.norm(net.A, 2),
        "norm_W": np.linalg.norm(net.W, 2),
        "norm_b": np.linalg.norm(net.b, 2),
        "sigma_min_Z": values[-1],
        "norm_Z": values[0],
    }
    q = {name: float(value) * (1.0 + (-ROUND if name == "sigma_min_Z" else ROUND)) for name, value in q.items()}
    if theorem == "implicit/spectral":
        eigenvalues, U = np.linalg.eigh(Z @ Z.T)
        node_min, node_max = float(eigenvalues[0]), max(float(eigenvalues[-1]), 1.01 * float(eigenvalues[0]))
        squares = ((U.T @ r) ** 2).sum(axis=1)
        q |= {"kappa": 1e-12 * node_max, "node_min": node_min, "node_max": node_max}
        q |= dict(zip(MASSES, masses(eigenvalues, squares, node_min, node_max), strict=True))
    return q


def masses(eigenvalues: Array, squares: Array, node_min: float, node_max: float) -> list[float]:
    """Σ_i w_j(λ_i) squares_i, w_j the hat functions of the nodes."""
    places = node_places(node_min, node_max)
    assert places is not None
    return [float(np.interp(eigenvalues, places, hat) @ squares) for hat in np.eye(NODES)]


def at_edge(net: Net, theorem: str, **choices: float) -> tuple[Net, Values, Schedule]:
    """The network scaled to the smallest β at which the theorem holds, to 10 %."""

    def trial(beta: float) -> tuple[Net, Values, Schedule]:
        scaled = net.scaled(beta)
        q = base(scaled, theorem)
        given_choices = {"tau": choices.get("tau", 0.0) * q["sigma_min_Z"] ** 2 / q["norm_Z"]}
        given_choices["delta"] = choices.get("delta", 0.0)
        quantities, _, schedule = evaluate(PLANS[theorem].theorem, {**q, **given_choices})
        return scaled, {**q, **quantities}, schedule

    low, high = 1e-1, 1e6
    while high > 1.1 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if trial(middle)[2] else (middle, high)
    return trial(high)


# -- values ------------------------------------------------------------------------------------------------------------


def example(theorem: str) -> tuple[Values, Schedule]:
    """All quantities of a theorem that holds."""
    beta = 1e5 if theorem in ("implicit/gd", "implicit/flow") else 30.0
    q = base(tiny(3, with_b=False).scaled(beta), theorem)
    choices = {} if beta == 1e5 else {"tau": 1e-3, "delta": 1.01}
    quantities, conditions, schedule = evaluate(PLANS[theorem].theorem, {**q, **choices})
    assert all(c.certain for c in conditions)
    return quantities, schedule


@pytest.mark.parametrize("theorem", IMPLICIT)
def test_what_floats_decide_balls_prove(theorem: str) -> None:
    q, schedule = example(theorem)
    statement = PLANS[theorem].theorem
    exact = {name: ball(value) for name, value in q.items()}
    for name, value in statement.derived(exact).items():
        assert float(value) == pytest.approx(q[name], rel=1e-10)
    assert all(c.certain for c in statement.conditions(exact))
    assert all(o.certain for o in statement.obligations(exact, converted(schedule, ball)))


@pytest.mark.parametrize("theorem", IMPLICIT)
def test_better_claims_are_not_proved(theorem: str) -> None:
    q, schedule = example(theorem)
    statement = PLANS[theorem].theorem
    exact = {name: ball(value) for name, value in q.items()}

    def proved(claims: Schedule) -> bool:
        return all(o.certain for o in statement.obligations(exact, converted(claims, ball)))

    middle = len(schedule) // 2
    changes: list[Callable[[Any], Any]] = [
        lambda s: replace(s, decrease=s.decrease * (1.0 + 1e-6)),
        lambda s: replace(s, level=s.level * (1.0 - 1e-6)),
        lambda s: replace(s, main_step=s.main_step * (1.0 + 1e-12) + 1e-300),
        lambda s: replace(s, other_step=1e-300),
        lambda s: replace(s, start=s.start + 1),
    ]
    for change in changes:
        for index in {0, middle, len(schedule) - 1}:
            claims = [change(s) if i == index else s for i, s in enumerate(schedule)]
            assert not proved(claims), (index, changes.index(change))
    assert not proved(schedule[:-1])
    negative = [name for name in ("f", "rho", "B", "tau", "delta") if name in q]
    for name in negative:
        exact[name] = ball(-1e-30)
        assert not proved(schedule)
        exact[name] = ball(q[name])


def test_measured_constants_in_50_digits() -> None:
    q, _ = example("implicit/measured")
    with mpmath.workdps(50):
        m: dict[str, Any] = {name: mpmath.mpf(value) for name, value in q.items()}
        sigma, R = m["sigma_min_Z"], mpmath.sqrt(2 * m["initial_gap"])
        contraction = m["gamma"] * (m["norm_A"] + m["rho"])
        s, z = (1 - m["f"]) * sigma, m["norm_Z"] + m["f"] * sigma
        c = (1 + m["delta"]) * (m["gamma"] ** 2 * z**2 + m["norm_X"] ** 2) / (1 - contraction) ** 2
        descent = s**2 - z * m["tau"] - c * m["B"] ** 2
        S = R / descent
        rows = (2 * R / sigma + m["f"] * m["norm_b"] + (m["f"] * sigma + m["tau"]) * S) / (1 - m["f"])
        least = m["norm_b"] + min((z + m["tau"]) * S, rows)
        expected = {"q": contraction, "s": s, "z": z, "c": c, "descent": descent, "S": S}
        assert {name: q[name] for name in expected} == pytest.approx(
            {k: float(v) for k, v in expected.items()}, rel=1e-13
        )
        assert float(c * m["B"] * S) == pytest.approx(q["f"] * float(sigma), rel=3e-7)
        assert float((1 + m["delta"]) * m["gamma"] * z * m["B"] * S / (1 - contraction)) == pytest.approx(
            q["rho"], rel=3e-7
        )
        assert float(least) == pytest.approx(q["B"], rel=3e-7)
        assert q["eta"] * float(s**2 + z**2) == pytest.approx(2.0, rel=1e-8)


def test_spectral_constants_in_50_digits() -> None:
    """P, ν and the levels against sums over all iterations, without blocks."""
    q, schedule = example("implicit/spectral")
    places = node_places(q["node_min"], q["node_max"])
    assert places is not None
    with mpmath.workdps(50):
        m: dict[str, Any] = {name: mpmath.mpf(value) for name, value in q.items()}
        nodes = [(mpmath.mpf(place), m[name]) for place, name in zip(places, MASSES, strict=True) if q[name] > 0.0]
        eta, sigma2, kappa = m["eta"], m["node_min"], m["kappa"]

        def model(k: int) -> Any:
            return mpmath.sqrt(mpmath.fsum(mass * (1 - eta * place) ** (2 * k) for place, mass in nodes))

        horizon = int(q["horizon"])
        values = [model(k) for k in range(horizon + 1)]
        P = eta * mpmath.fsum(values[:-1]) + values[-1] / sigma2
        assert P <= m["P"] <= P * mpmath.mpf("1.002")
        nu = mpmath.sqrt(mpmath.fsum(mass * max(1, eta * place) ** 2 / place for place, mass in nodes))
        assert float(nu) == pytest.approx(q["nu"], rel=1e-13)
        sigma, z0 = mpmath.sqrt(sigma2), mpmath.sqrt(m["node_max"] + kappa)
        shift = m["f"] * sigma
        z = z0 + shift
        contraction = m["gamma"] * (m["norm_A"] + m["rho"])
        c = (1 + m["delta"]) * (m["gamma"] ** 2 * z**2 + m["norm_X"] ** 2) / (1 - contraction) ** 2
        epsilon = (2 * z0 + shift) * shift + c * m["B"] ** 2 + z * m["tau"] + kappa
        S = m["P"] / (1 - epsilon / sigma2)
        B = m["norm_b"] + mpmath.sqrt(1 + kappa / sigma2) * (nu + epsilon / sigma * S) + (shift + m["tau"]) * S
        expected = {"q": contraction, "z": z, "c": c, "epsilon": epsilon, "S": S}
        assert {name: q[name] for name in expected} == pytest.approx(
            {k: float(v) for k, v in expected.items()}, rel=1e-12
        )
        assert float(c * m["B"] * S) == pytest.approx(float(shift), rel=3e-7)
        assert float(B) == pytest.approx(q["B"], rel=3e-7)
        T = mpmath.mpf(0)
        for k in range(horizon):
            bound = bound_at(schedule, k)
            if k > 0:
                assert bound >= (values[k] + T) ** 2 / 2
            T = (1 - eta * (sigma2 - epsilon)) * T + eta * epsilon * values[k]


def bound_at(schedule: Schedule, k: int) -> float:
    segment = [s for s in schedule if s.start <= k][-1]
    return gap_at(segment, k)


@pytest.mark.parametrize("theorem", ["implicit/measured", "implicit/spectral"])
@pytest.mark.parametrize("with_b", [False, True])
def test_radii_are_the_least(theorem: str, with_b: bool) -> None:
    """Away from the edge, where the least solution and the largest one merge."""
    net, _, _ = at_edge(tiny(11, with_b=with_b), theorem)
    q = base(net.scaled(2.0), theorem) | {"tau": 0.0, "delta": 0.0}
    q |= PLANS[theorem].parameters(q)
    if theorem == "implicit/measured":
        least, found = planner.least_measured_radii({name: value for name, value in q.items() if name != "eta"})
    else:
        model = spectral.model(q)
        assert model is not None
        least, found = planner.least_radii(q, model)
    assert found
    assert least == (q["f"], q["rho"], q["B"])
    statement = PLANS[theorem].theorem
    for name in ("f", "rho", "B"):
        assert all(c.certain for c in statement.conditions(q))
        assert not all(c.certain for c in statement.conditions({**q, name: q[name] * (1.0 - 10.0 * planner.INFLATION)}))


@pytest.mark.parametrize("theorem", IMPLICIT)
def test_hopeless_networks_fail_with_a_condition(theorem: str) -> None:
    """No full rank; γ‖A‖ = 1; no inputs; no residual is not hopeless."""
    net = tiny(3, with_b=False)
    choices = {"tau": 0.0, "delta": 0.0}
    if theorem != "implicit/spectral":
        q = base(net, theorem)
        q["sigma_min_Z"] = 0.0
        _, conditions, schedule = evaluate(PLANS[theorem].theorem, {**q, **choices})
        assert not schedule
        assert any("rank" in c.name and not c.certain for c in conditions)
    else:
        q = base(net, theorem) | {"node_min": 0.0}
        _, conditions, schedule = evaluate(PLANS[theorem].theorem, {**q, **choices})
        assert not schedule
        assert any("rank" in c.name and not c.certain for c in conditions)
    q = base(net, theorem)
    q["gamma"] = 1.0 / q["norm_A"]
    _, conditions, schedule = evaluate(PLANS[theorem].theorem, {**q, **choices})
    assert not schedule
    assert any("gamma" in c.name and not c.certain for c in conditions)


# -- hunts -------------------------------------------------------------------------------------------------------------

Hidden = Callable[[Net, Array, Array, np.random.Generator], tuple[Array, Array]]


def ascent(net: Net, Z: Array, r: Array, g: np.random.Generator) -> tuple[Array, Array]:
    A, W = net.gradients(Z, r)
    return -A, -W


def descent(net: Net, Z: Array, r: Array, g: np.random.Generator) -> tuple[Array, Array]:
    return net.gradients(Z, r)


def anywhere(net: Net, Z: Array, r: Array, g: np.random.Generator) -> tuple[Array, Array]:
    return g.standard_normal(net.A.shape), g.standard_normal(net.W.shape)


def towards_collapse(net: Net, Z: Array, r: Array, g: np.random.Generator) -> tuple[Array, Array]:
    """Rank one, along the smallest singular vector of the features."""
    U, _, Vt = np.linalg.svd(Z, full_matrices=False)
    return np.outer(Vt[-1], Vt[-1]), np.outer(net.X.T @ U[:, -1], Vt[-1])


def trajectory(
    net: Net, q: Values, hidden: Hidden, largest: bool, seed: int, steps: int
) -> Iterator[tuple[Net, Array, Array]]:
    """The network, its features and residual at every iteration of a sequence that the theorem admits.

    Hidden steps are as large as they may be, or (``largest`` false) those of gradient descent; the output step errs by
    τ‖r‖ against it.
    """
    g = np.random.default_rng(seed)
    eta = q["eta"]
    for _ in range(steps):
        Z = net.Z
        r = Z @ net.b - net.Y
        yield net, Z, r
        size = np.linalg.norm(r)
        if size <= 1e-9 * math.sqrt(2.0 * q["initial_gap"]):
            return
        dA, dW = hidden(net, Z, r, g)
        reach = eta * (1.0 + q["delta"]) * np.linalg.norm(net.b, 2) * size / (1.0 - q["q"])
        if largest:
            dA = dA * (reach * net.gamma * q["z"] / max(np.linalg.norm(dA), 1e-300))
            dW = dW * (reach * np.linalg.norm(net.X, 2) / max(np.linalg.norm(dW), 1e-300))
        else:
            dA, dW = eta * dA, eta * dW
            assert np.linalg.norm(dA) <= reach * net.gamma * q["z"] * (1.0 + ROUND)
        gradient = Z.T @ r
        error = -gradient / np.linalg.norm(gradient) * q["tau"] * size
        net = replace(net, A=net.A - dA, W=net.W - dW, b=net.b - eta * (gradient + error))


def worst_of(
    net: Net, q: Values, schedule: Schedule, states: Iterator[tuple[Net, Array, Array]], factor: float
) -> Array:
    """Largest ratio to its bound of: contraction, drift of Z, ‖b‖, gap, one step; ≤ 1 everywhere."""
    worst = np.zeros(5)
    first = previous = None
    drift = q["f"] * q.get("sigma_min_Z", 0.0) if "sigma" not in q else q["f"] * q["sigma"]
    for k, (now, Z, r) in enumerate(states):
        size = float(np.linalg.norm(r))
        first = Z if first is None else first
        step = 0.0 if previous is None else size / (factor * previous)
        ratios = (
            now.gamma * np.linalg.norm(now.A, 2) / q["q"],
            np.linalg.norm(Z - first) / (drift + 1e-13 * np.linalg.norm(Z)),
            np.linalg.norm(now.b, 2) / q["B"],
            0.5 * size**2 / bound_at(schedule, k),
            step,
        )
        worst = np.maximum(worst, ratios)
        previous = size
    return worst


@pytest.mark.parametrize("theorem", ["implicit/measured", "implicit/spectral"])
@pytest.mark.parametrize("with_b", [False, True])
@pytest.mark.parametrize("hidden", [ascent, descent, anywhere, towards_collapse], ids=lambda f: f.__name__)
def test_no_violation_at_the_edge(theorem: str, with_b: bool, hidden: Hidden) -> None:
    worst = np.zeros(5)
    for seed in range(3):
        net, q, schedule = at_edge(tiny(seed, with_b=with_b), theorem, tau=0.05 * (seed % 2), delta=0.5 * (seed % 3))
        m = q["descent"] if theorem == "implicit/measured" else q["node_min"] - q["epsilon"]
        largest = hidden is not descent
        states = trajectory(net, q, hidden, largest, seed, steps=60)
        worst = np.maximum(worst, worst_of(net, q, schedule, states, 1.0 - q["eta"] * m))
    assert (worst <= 1.0 + 1e-8).all(), worst
    assert worst[2] > 0.3 and worst[3] > 0.9  # the runs come near the bounds: the hunt is not idle


def test_a_step_beyond_the_condition_breaks_the_bound() -> None:
    """Hidden steps 40 times as large as admitted: the hunt sees a violation, so that it can fail."""
    broken = 0
    for seed in range(3):
        net, q, schedule = at_edge(tiny(seed, with_b=True), "implicit/measured")
        states = trajectory(net, {**q, "delta": 39.0}, ascent, True, seed, steps=60)
        worst = worst_of(net, q, schedule, states, 1.0 - q["eta"] * q["descent"])
        broken += bool((worst > 1.01).any())
    assert broken > 0


# -- the paper's theorems ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_b", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_paper_descent_at_its_edge(seed: int, with_b: bool) -> None:
    """Items (i), (ii) and (iii) of Theorem 4.4 for gradient descent."""
    net, q, _ = at_edge(tiny(seed, with_b=with_b), "implicit/gd")
    factor, previous = 1.0 - q["eta"] * q["sigma_min_Z"] ** 2 / 4.0, None
    for _ in range(25):
        Z = net.Z
        r = Z @ net.b - net.Y
        loss = 0.5 * float((r**2).sum())
        assert np.linalg.norm(net.W, 2) <= q["l1"] and np.linalg.norm(net.A, 2) <= q["l2"]
        assert np.linalg.norm(net.b, 2) <= q["l3"]
        assert np.linalg.svd(Z, compute_uv=False)[-1] >= 0.5 * q["sigma_min_Z"]
        if previous is not None:
            assert loss <= factor * previous * (1.0 + 1e-12)
        previous = loss
        A, W = net.gradients(Z, r)
        net = replace(net, A=net.A - q["eta"] * A, W=net.W - q["eta"] * W, b=net.b - q["eta"] * (Z.T @ r))


@pytest.mark.parametrize("seed", range(2))
def test_no_random_choice_of_the_constants_gives_a_larger_step(seed: int) -> None:
    g = np.random.default_rng(seed)
    net, _, _ = at_edge(tiny(seed, with_b=bool(seed % 2)), "implicit/gd")
    q = base(net.scaled(3.0), "implicit/gd")
    chosen = planner.gd_choices(q)
    found = 0
    for spread in (0.1, 1.0, 5.0):
        for _ in range(300):
            C = {name: chosen[name] * math.exp(spread * g.standard_normal()) for name in ("C1", "C2", "C3")}
            if q["gamma"] * (q["norm_A"] + C["C2"]) < 1.0 and all(c.certain for c in gd.hypotheses({**q, **C})):
                found += 1
                assert gd.largest_step({**q, **C}) <= chosen["eta"] * 1.02
    assert found > 0


def test_printed_step_bound_is_the_one_implemented() -> None:
    q, _ = example("implicit/gd")
    l1, l3, g0, Q, F = (q[name] for name in ("l1", "l3", "g0", "Q", "frobenius_X"))
    bar = Q * (Q * l1**-2 + l3**-2) ** -2
    printed = min(4.0 / q["sigma_min_Z"] ** 2, 2.0 * (1.0 - g0) ** 2 * bar * l1**-4 * l3**-2 * F**-2)
    assert gd.largest_step(q) == pytest.approx(printed, rel=1e-12)
    l0 = max(l1 / q["C3"], g0 * l1 * l3 / ((1.0 - g0) * q["C2"] * q["l2"]), l3 / q["C1"])
    left = 8.0 * l0 * F * math.sqrt(2.0 * q["initial_gap"]) / (1.0 - g0)
    assert max(c.left for c in gd.hypotheses(q)[:3]) == pytest.approx(left, rel=1e-12)


@pytest.mark.parametrize("kinks", [False, True])
def test_paper_flow_at_its_edge(kinks: bool) -> None:
    """With A = I the flow starts at kinks: some of the arguments of relu are exactly 0."""
    from scipy.integrate import solve_ivp

    start = tiny(2, with_b=False)
    if kinks:
        start = replace(start, A=np.eye(len(start.A)), gamma=0.4)
        assert (start.gamma * start.Z @ start.A + np.maximum(start.X @ start.W, 0.0) == 0.0).any()
    net, q, _ = at_edge(start, "implicit/flow")
    shapes = [net.A.shape, net.W.shape, net.b.shape]
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]

    def at(theta: Array) -> Net:
        A, W, b = (part.reshape(shape) for part, shape in zip(np.split(theta, ends), shapes, strict=True))
        return replace(net, A=A, W=W, b=b)

    def velocity(t: float, theta: Array) -> Array:
        now = at(theta)
        Z = now.Z
        r = Z @ now.b - now.Y
        A, W = now.gradients(Z, r)
        return -np.concatenate([A.ravel(), W.ravel(), (Z.T @ r).ravel()])

    time = 1.0 / q["sigma_min_Z"] ** 2
    begin = np.concatenate([net.A.ravel(), net.W.ravel(), net.b.ravel()])
    solution = solve_ivp(velocity, (0.0, time), begin, rtol=1e-6, atol=1e-10, t_eval=np.linspace(0.0, time, 5))
    for t, theta in zip(solution.t, solution.y.T, strict=True):
        now = at(theta)
        loss = 0.5 * float(((now.Z @ now.b - now.Y) ** 2).sum())
        assert loss <= math.exp(-0.5 * q["sigma_min_Z"] ** 2 * t) * q["initial_gap"] * (1.0 + 1e-6)
