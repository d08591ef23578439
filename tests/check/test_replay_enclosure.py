"""The enclosure of exact descent in the replay, against 60-digit arithmetic and plain numpy."""

from __future__ import annotations

from typing import Any

import flint
import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from surefoot_check.descent import FLOOR
from surefoot_check.linear_resnet.replay import LinearResNet
from surefoot_check.rigor.balls import arb_matrix
from surefoot_check.two_layer.enclosures import ENCLOSURES
from surefoot_check.two_layer.replay import TwoLayer

mpmath.mp.dps = 60
DESCENTS = {"two-layer": TwoLayer, "linear-resnet": LinearResNet}


def exact(A: np.ndarray) -> Any:
    return mpmath.matrix(A.tolist())


def norm(*matrices: Any) -> Any:
    return mpmath.sqrt(sum(x * x for M in matrices for x in M))


def midpoints(M: Any) -> Any:
    """A matrix of midpoints, exactly."""
    rows = []
    for row in M.tolist():
        parts = [x.mid().man_exp() for x in row]
        rows.append([mpmath.mpf(int(mantissa)) * mpmath.mpf(2) ** int(exponent) for mantissa, exponent in parts])
    return mpmath.matrix(rows)


def number(x: Any) -> Any:
    mantissa, exponent = x.man_exp()
    return mpmath.mpf(int(mantissa)) * mpmath.mpf(2) ** int(exponent)


def two_layer_step(arrays: dict[str, np.ndarray], Z: list[Any], eta: float) -> tuple[list[Any], Any]:
    """A step of descent in 60 digits, and the gap before it."""
    X, Y = exact(arrays["X"]), exact(arrays["Y"])
    E = X.T * (X * Z[0] * Z[1].T - Y)
    optimum = (X.T * X) ** -1 * X.T * Y
    gap = norm(X * (Z[0] * Z[1].T - optimum)) ** 2 / 2
    return [Z[0] - mpmath.mpf(eta) * E * Z[1], Z[1] - mpmath.mpf(eta) * E.T * Z[0]], gap


def resnet_step(arrays: dict[str, np.ndarray], ends: list[Any], W: list[Any], eta: float) -> tuple[list[Any], Any]:
    (A, B), X, Y = ends, exact(arrays["X"]).T, exact(arrays["Y"]).T
    layers = [mpmath.eye(A.rows) + M for M in W]
    product = A
    for P in layers:
        product = P * product
    residual = B * product * X - Y
    optimum = Y * X.T * (X * X.T) ** -1
    gap = norm((B * product - optimum) * X) ** 2 / 2
    new = []
    for number_, M in enumerate(W):
        before, after = A, B
        for P in layers[:number_]:
            before = P * before
        for P in layers[:number_:-1]:
            after = after * P
        new.append(M - mpmath.mpf(eta) * (after.T * residual * (before * X).T))
    return new, gap


def random_problem(seed: int, n: int, m: int) -> tuple[Any, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((n + 2, n)), rng.standard_normal((n + 2, m))
    arrays = {"X": X, "Y": Y, "optimum": np.linalg.lstsq(X, Y, rcond=None)[0]}
    return ENCLOSURES.load_problem("squared", arrays), arrays


def random_weights(system: str, seed: int, n: int, m: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed + 1000)
    if system == "two-layer":  # narrow: the weights themselves are followed
        return {"W1": rng.standard_normal((n, 2)), "W2": rng.standard_normal((m, 2))}
    return {
        "A": rng.standard_normal((3, n)),
        "B": rng.standard_normal((m, 3)),
        "W": 0.4 * rng.standard_normal((3, 3, 3)),
    }


@settings(max_examples=20, deadline=None)
@given(
    system=st.sampled_from(["two-layer", "linear-resnet"]),
    seed=st.integers(0, 10**6),
    sizes=st.sampled_from([(2, 2), (3, 1), (1, 3), (3, 2)]),
    bits=st.sampled_from([24, 64, 128]),
    relative=st.floats(0.05, 4.0),
    start=st.sampled_from([0.0, 1e-9, 1e-4, 1e-2]),
)
# the first two leave the ball without its part b, the third with half of g
@example("linear-resnet", 511871, (1, 3), 64, 1.9068192615730177, 1e-9)
@example("two-layer", 914785, (3, 1), 64, 0.8356128400559178, 1e-9)
@example("two-layer", 957348, (1, 3), 128, 3.3143421139474567, 1e-9)
def test_descent_of_60_digits_stays_in_the_ball(
    system: str, seed: int, sizes: tuple[int, int], bits: int, relative: float, start: float
) -> None:
    """From a start anywhere in a ball of radius ``start``, by steps of ``relative`` over the local smoothness."""
    n, m = sizes
    problem, arrays = random_problem(seed, n, m)
    weights = random_weights(system, seed, n, m)
    names = ("W1", "W2") if system == "two-layer" else ("W",)
    rng = np.random.default_rng(seed)
    Z = [M for name in names for M in (weights[name] if name == "W" else [weights[name]])]
    directions = [rng.standard_normal(M.shape) for M in Z]
    total = np.sqrt(sum((D**2).sum() for D in directions))
    exactly = [exact(M) + mpmath.mpf(start) / mpmath.mpf(total) * exact(D) for M, D in zip(Z, directions, strict=True)]
    ends = [] if system == "two-layer" else [exact(weights[name]) for name in ("A", "B")]
    with flint.ctx.workprec(bits):
        descent = DESCENTS[system](problem, weights, bits)
        descent.radius = flint.arb(start) * flint.arb(1.0 + 1e-12)
        descent.radius = descent.radius.upper()
        for _ in range(6):
            here = descent.look()
            low, high = descent.gap(here)
            distance = norm(*(M - midpoints(N) for M, N in zip(exactly, descent.centre, strict=True)))
            assert distance <= number(descent.radius)
            eta = relative / float(here.gauss_newton + here.bend)
            step = two_layer_step(arrays, exactly, eta) if system == "two-layer" else None
            exactly, gap = step if step is not None else resnet_step(arrays, ends, exactly, eta)
            assert number(low) <= gap <= number(high)
            if not descent.radius < 1.0:
                break
            descent.step(here, eta)


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_a_wide_network_is_replaced_by_a_square_one_with_the_same_gram(rank: int) -> None:
    """Of full rank or not: V is within the radius of a rotation of Z, and Gram matrices follow those of 60 digits."""
    n, m, h = 3, 2, 9
    problem, arrays = random_problem(rank, n, m)
    rng = np.random.default_rng(rank)
    Z = rng.standard_normal((n + m, rank)) @ rng.standard_normal((rank, h))
    exactly = [exact(Z[:n]), exact(Z[n:])]
    with flint.ctx.workprec(128):
        descent = DESCENTS["two-layer"](problem, {"W1": Z[:n], "W2": Z[n:]}, 128)
        assert descent.radius < flint.arb(2) ** -115 and descent.centre[0].ncols() == n + m
        for _ in range(10):
            V = midpoints(flint.arb_mat([row for M in descent.centre for row in M.tolist()]))
            stacked = mpmath.matrix([list(row) for M in exactly for row in M.tolist()])
            e = number(descent.radius)
            assert norm(V * V.T - stacked * stacked.T) <= 2 * norm(V) * e + e * e
            here = descent.look()
            eta = 1.0 / float(here.gauss_newton + here.bend)
            exactly, gap = two_layer_step(arrays, exactly, eta)
            low, high = descent.gap(here)
            assert number(low) <= gap <= number(high)
            assert number(high) - number(low) <= mpmath.mpf(10) ** -25 * gap
            descent.step(here, eta)


def test_distances_of_stored_weights_are_enclosed() -> None:
    problem, _ = random_problem(3, 3, 2)
    weights = random_weights("two-layer", 3, 3, 2)
    stored = {name: W * 1.001 for name, W in weights.items()}
    with flint.ctx.workprec(128):
        descent = DESCENTS["two-layer"](problem, weights, 128)
        defects = {name: rest for name, *rest in descent.defects(stored)}
    Z, S = (np.concatenate([w["W1"], w["W2"]]) for w in (weights, stored))
    gram, other = exact(Z) * exact(Z).T, exact(S) * exact(S).T
    for name, part in (("map", (slice(0, 3), slice(3, 5))), ("Gram matrix", (slice(0, 5), slice(0, 5)))):
        low, high, least, most = (number(x.mid()) for x in defects[name])
        distance = norm(gram[part[0], part[1]] - other[part[0], part[1]])
        size = norm(gram[part[0], part[1]]) + mpmath.mpf(FLOOR) * norm(gram)
        assert (
            low <= distance <= high
            and least <= size * (1 + mpmath.mpf(10) ** -30)
            and size <= most * (1 + mpmath.mpf(10) ** -30)
        )
        assert high / most == pytest.approx(1.001**2 - 1.0, rel=1e-3)


def test_the_gap_of_softmax_and_sensing_is_enclosed() -> None:
    rng = np.random.default_rng(0)
    X, labels = rng.standard_normal((7, 3)), rng.integers(0, 2, 7)
    P = rng.standard_normal((3, 2))
    softmax = {"X": X, "labels": labels, "l2": np.array(0.3), "optimum": np.zeros((3, 2))}
    A = rng.standard_normal((4, 3, 2))
    sensing = {"A": A, "y": rng.standard_normal(4), "optimum": np.zeros((3, 2))}
    for kind, arrays in (("softmax", softmax), ("sensing", sensing)):
        problem = ENCLOSURES.load_problem(kind, arrays)
        for step in range(60):  # Newton-like: gradient descent to a good witness
            loss = problem.exact_loss()
            gradient = loss.at(arb_matrix(arrays["optimum"]))[0]
            floats = np.array([float(x) for x in gradient.entries()]).reshape(3, 2)
            arrays = {**arrays, "optimum": arrays["optimum"] - floats / problem.smoothness()[1]}
            problem = ENCLOSURES.load_problem(kind, arrays)
            assert step < 60
        _, low, high = loss.at(arb_matrix(P))
        least = np.inf
        W = P.copy()
        for _ in range(3000):
            value, floats = plain(kind, arrays, W)
            least = min(least, value)
            W = W - floats / problem.smoothness()[1]
        gap = plain(kind, arrays, P)[0] - least
        assert float(low) - 1e-9 <= gap <= float(high) + 1e-9
        gradient = np.array([float(x) for x in loss.at(arb_matrix(P))[0].entries()]).reshape(3, 2)
        np.testing.assert_allclose(gradient, plain(kind, arrays, P)[1], rtol=1e-12, atol=1e-12)


def plain(kind: str, arrays: dict[str, np.ndarray], W: np.ndarray) -> tuple[float, np.ndarray]:
    """Loss and gradient in numpy."""
    if kind == "sensing":
        residual = np.einsum("kij,ij->k", arrays["A"], W) - arrays["y"]
        return 0.5 * float(residual @ residual), np.einsum("kij,k->ij", arrays["A"], residual)
    X, labels, l2 = arrays["X"], arrays["labels"], float(arrays["l2"])
    logits = X @ W
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    value = -np.log(p[np.arange(len(X)), labels]).mean() + 0.5 * l2 * (W**2).sum()
    p[np.arange(len(X)), labels] -= 1.0
    return float(value), X.T @ p / len(X) + l2 * W
