"""Lemma 3, the local theorem and Theorem 3.1: constants on random points of the ball, and runs at the edge of the conditions."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import surefoot as sf
from surefoot._linear_resnet.radius import least_radius
from surefoot_check.linear_resnet import enclosures as rigorous
from surefoot_check.linear_resnet.constants import Constants, Measured, constants
from surefoot_check.rigor.balls import ball
from surefoot_check.statement import Segment, converted
from surefoot_check.systems import THEOREMS

Array = np.ndarray
F64 = torch.float64
ROUND = 1e-12


class Point:
    """A network at some weights, with exact (up to rounding) products; X is (r, d), as stored."""

    def __init__(self, A: Array, B: Array, W: Array, X: Array) -> None:
        self.A, self.B, self.W, self.X = A, B, W, X
        P = W + np.eye(W.shape[1])
        self.P, self.depth = P, len(P)
        self.forward = [A @ X.T]
        for layer in P[:-1]:
            self.forward.append(layer @ self.forward[-1])
        self.backward = [B]
        for layer in P[:0:-1]:
            self.backward.insert(0, self.backward[0] @ layer)

    @property
    def weights(self) -> dict[str, Array]:
        return {"A": self.A, "B": self.B, "W": self.W}

    @property
    def measured(self) -> Measured:
        return rigorous.measure(self.weights, self.X)

    def between(self, i: int, j: int) -> Array:
        """P_{j-1} … P_{i+1}."""
        product = np.eye(len(self.A))
        for layer in self.P[i + 1 : j]:
            product = layer @ product
        return product

    def at(self, change: Array) -> Point:
        return Point(self.A, self.B, self.W + change, self.X)

    def gradient(self, R: Array) -> Array:
        """B_lᵀ R A_lᵀ for the residual R (k, r)."""
        return np.stack([b.T @ R @ a.T for a, b in zip(self.forward, self.backward, strict=True)])

    def second_derivative(self, R: Array, V: Array) -> float:
        """D²gap [V, V] = ‖Ṙ‖² + 2⟨R, R₂⟩."""
        first = sum(b @ v @ a for a, b, v in zip(self.forward, self.backward, V, strict=True))
        second = np.zeros_like(R)
        for i in range(self.depth):
            for j in range(i + 1, self.depth):
                second += self.backward[j] @ V[j] @ self.between(i, j) @ V[i] @ self.forward[i]
        return float((np.asarray(first) ** 2).sum() + 2.0 * (R * second).sum())


def random_point(seed: int, depth: int, r: int = 3, k: int = 2, m: int = 6, start: float = 0.3) -> Point:
    g = np.random.default_rng(seed)
    W = start / math.sqrt(m) * g.standard_normal((depth, m, m))
    return Point(g.standard_normal((m, r)), g.standard_normal((k, m)), W, g.standard_normal((r, r)))


def changes(point: Point, radius: float, g: np.random.Generator) -> list[Array]:
    """Points of the joint ball's surface: random, in one layer, and those that shrink or stretch singular directions most."""
    L, m = point.depth, len(point.A)
    spread = g.standard_normal((L, m, m))
    single = np.zeros((L, m, m))
    single[g.integers(L)] = g.standard_normal((m, m))
    u, _, vt = np.linalg.svd(point.P)
    smallest, largest = (np.einsum("li,lj->lij", u[:, :, i], vt[:, i]) for i in (-1, 0))
    # the least and the largest singular directions of what each layer is applied to
    inward = np.stack([-np.outer(p @ s, s) for p, s in zip(point.P, _directions(point, -1), strict=True)])
    outward = np.stack([np.outer(p @ s, s) for p, s in zip(point.P, _directions(point, 0), strict=True)])
    found = [spread, single, -smallest, largest, inward, outward]
    return [radius * V / math.sqrt((V**2).sum()) for V in found if V.any()]


def _directions(point: Point, which: int) -> list[Array]:
    return [np.linalg.svd(a, full_matrices=False)[0][:, which] for a in point.forward]


def residuals(point: Point, g: np.random.Generator) -> list[Array]:
    """Random, and of rank one along the least singular directions of the first A_l and the last B_l."""
    k, r = len(point.B), len(point.X)
    left = np.linalg.svd(point.backward[0])[0][:, -1]
    right = np.linalg.svd(point.forward[-1], full_matrices=False)[2][-1]
    return [g.standard_normal((k, r)), np.outer(left, right)]


def worst_direction(point: Point, R: Array) -> Array:
    """The direction of largest D²gap: an eigenvector of the whole Hessian."""
    shape = point.W.shape
    size = math.prod(shape)
    basis = np.eye(size).reshape(size, *shape)
    image = np.stack(
        [sum(b @ v @ a for a, b, v in zip(point.forward, point.backward, V, strict=True)) for V in basis]
    ).reshape(size, -1)
    H = image @ image.T
    for i in range(point.depth):
        for j in range(i + 1, point.depth):
            # 2⟨R, B_j V_j M V_i A_i⟩ as a bilinear form in (V_j, V_i)
            c, d = point.backward[j].T @ R @ point.forward[i].T, point.between(i, j)
            block = np.einsum("ad,bc->abcd", c, d).reshape(shape[1] ** 2, shape[1] ** 2)
            n = shape[1] ** 2
            H[j * n : (j + 1) * n, i * n : (i + 1) * n] += block
            H[i * n : (i + 1) * n, j * n : (j + 1) * n] += block.T
    return np.linalg.eigh(H)[1][:, -1].reshape(shape)


# -- Lemma 3 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2, 6])
@pytest.mark.parametrize("start", [0.0, 0.3, 1.5])
def test_measure_encloses_singular_values_and_norms(depth: int, start: float) -> None:
    for seed in range(4):
        point = random_point(seed, depth, start=start)
        at = point.measured
        for low, high, matrices in (
            (at.a_low, at.a, point.forward),
            (at.b_low, at.b, point.backward),
            (at.p_low, at.p, point.P),
        ):
            for index, matrix in enumerate(matrices):
                s = np.linalg.svd(matrix, compute_uv=False)
                assert low[index] <= s[-1] * (1 + ROUND) and low[index] >= s[-1] - 1e-11 * s[0]
                assert s[0] * (1 - ROUND) <= high[index] <= s[0] * (1 + 1e-11)
        for i in range(depth):
            for j in range(depth):
                exact = np.linalg.norm(point.between(i, j), 2) if i < j else 0.0
                assert exact * (1 - ROUND) <= at.between[i, j] <= exact * 1.05


def test_measure_where_the_width_is_too_small() -> None:
    """σ_r of an m × r matrix is 0 for m < r, whatever its smallest stored singular value is."""
    at = random_point(0, 3, r=4, k=2, m=3).measured
    assert not at.a_low.any() and at.b_low.all()
    at = random_point(0, 3, r=2, k=4, m=3).measured
    assert at.a_low.all() and not at.b_low.any()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_a_layer_that_maps_everything_to_zero(depth: int) -> None:
    point = random_point(1, depth)
    W = point.W.copy()
    W[depth // 2] = -np.eye(6)
    gone = Point(point.A, point.B, W, point.X)
    for radius in (0.0, 0.1):
        on_ball = constants(gone.measured, radius)
        assert math.isfinite(on_ball.gauss_newton) and math.isfinite(on_ball.bilinear)
        for change in changes(gone, radius, np.random.default_rng(0)) if radius else [np.zeros_like(W)]:
            check_pl(gone.at(change), on_ball, np.random.default_rng(1))


def test_norms_of_matrices_whose_squares_underflow() -> None:
    point = random_point(1, 4)
    W = point.W * 1e-170 - np.eye(6)
    tiny = Point(point.A, point.B, W, point.X)
    at = tiny.measured
    for i, j in ((0, 2), (1, 3), (0, 3)):
        assert at.between[i, j] >= float(np.abs(tiny.between(i, j)).max())


def check_pl(point: Point, on_ball: Constants, g: np.random.Generator) -> None:
    for R in residuals(point, g):
        squared, size = float((point.gradient(R) ** 2).sum()), float((R**2).sum())
        assert squared >= on_ball.pl_constant * size * (1 - ROUND)
        assert squared <= on_ball.gauss_newton * size * (1 + ROUND)


@settings(max_examples=25)
@given(
    st.integers(0, 10_000),
    st.integers(1, 5),
    st.sampled_from([0.0, 0.1, 0.5]),
    st.floats(1e-3, 1.0).map(lambda x: x**2),
)
@example(0, 1, 0.3, 0.5)
@example(0, 6, 0.0, 0.2)
def test_constants_hold_on_the_ball(seed: int, depth: int, start: float, radius: float) -> None:
    """‖∇‖² ≥ 2μ gap and D²gap ≤ Σz² + ‖R‖λ_max(M) for residuals of any size, at the centre and on the sphere."""
    point, g = random_point(seed, depth, m=5, start=start), np.random.default_rng(seed)
    on_ball = constants(point.measured, radius)
    for change in [np.zeros_like(point.W), *changes(point, radius, g)]:
        other = point.at(change)
        check_pl(other, on_ball, g)
        for size in (0.0, 1.0, 100.0):
            R = size * g.standard_normal((2, 3))
            bound = on_ball.gauss_newton + float(np.linalg.norm(R, 2)) * on_ball.bilinear
            for V in (g.standard_normal(other.W.shape), other.gradient(residuals(other, g)[0])):
                assert other.second_derivative(R, V) <= bound * float((V**2).sum()) * (1 + ROUND)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_constants_hold_in_the_worst_direction(depth: int) -> None:
    """The largest eigenvalue of the whole Hessian, at the centre and on the sphere."""
    g = np.random.default_rng(depth)
    point = random_point(depth, depth, m=5)
    tightest = 0.0
    for radius in (1e-3, 0.3):
        on_ball = constants(point.measured, radius)
        for change in changes(point, radius, g):
            other = point.at(change)
            for R in residuals(other, g):
                bound = on_ball.gauss_newton + float(np.linalg.norm(R, 2)) * on_ball.bilinear
                V = worst_direction(other, R)
                value = other.second_derivative(R, V)
                assert value <= bound * (1 + ROUND)
                tightest = max(tightest, value / bound)
    assert tightest > 0.2  # the bound says something


def exact_bilinear(point: Point) -> float:
    """λ_max of the matrix ‖B_j‖‖M_ij‖‖A_i‖."""
    M = np.zeros((point.depth, point.depth))
    for i in range(point.depth):
        for j in range(i + 1, point.depth):
            factors = (point.backward[j], point.between(i, j), point.forward[i])
            M[i, j] = math.prod(float(np.linalg.norm(x, 2)) for x in factors)
    return float(np.linalg.eigvalsh(M + M.T)[-1])


@pytest.mark.parametrize("depth", [1, 3, 5])
def test_the_bilinear_constant_is_an_eigenvalue_at_the_centre_and_a_bound_on_the_ball(depth: int) -> None:
    for seed in range(3):
        point = random_point(seed, depth)
        exact = exact_bilinear(point)
        assert exact * (1 - ROUND) <= constants(point.measured, 0.0).bilinear <= exact * 1.02
        for radius in (0.01, 0.3):
            bound = constants(point.measured, radius).bilinear
            for change in changes(point, radius, np.random.default_rng(seed)):
                assert exact_bilinear(point.at(change)) <= bound * (1 + ROUND)


def test_the_bilinear_constant_of_an_almost_bipartite_matrix() -> None:
    """P_1 = 0: layers 2 and 3 see no input, -λ_max is almost an eigenvalue too, and plain power iteration would oscillate."""
    point = random_point(1, 3)
    W = point.W.copy()
    W[0] = -np.eye(6)
    gone = Point(point.A, point.B, W, point.X)
    exact = exact_bilinear(gone)
    assert exact * (1 - ROUND) <= constants(gone.measured, 0.0).bilinear <= exact * 1.02


def test_the_middle_layer_stretches_the_product_between_its_neighbours() -> None:
    """P = I, 10 I, I: the entry of layers 1 and 3 is most of λ_max, and grows with the middle layer alone."""
    W, stretched = np.zeros((3, 4, 4)), np.zeros((3, 4, 4))
    W[1] = 9.0 * np.eye(4)
    stretched[1, 0, 0] = 0.1
    point = Point(np.eye(4, 2), np.eye(2, 4), W, np.eye(2))
    bound, reached = constants(point.measured, 0.1).bilinear, exact_bilinear(point.at(stretched))
    assert exact_bilinear(point) < reached <= bound < 1.02 * reached


def test_the_second_derivative_is_that_of_autograd() -> None:
    """The formula that the tests above use, against a second derivative of the library's loss."""
    point, g = random_point(3, 4), np.random.default_rng(3)
    R, V = g.standard_normal((2, 3)), torch.from_numpy(g.standard_normal(point.W.shape))
    A, B, W, X = (torch.from_numpy(x) for x in (point.A, point.B, point.W, point.X))
    target = sf.nn.LinearResNet(A, B, W)(X).detach() - torch.from_numpy(R).T

    def gap(t: torch.Tensor) -> torch.Tensor:
        hidden = X @ A.T
        for layer, direction in zip(W, V, strict=True):
            hidden = hidden + hidden @ (layer + t * direction).T
        return 0.5 * (hidden @ B.T - target).square().sum()

    second = torch.autograd.functional.hessian(gap, torch.zeros((), dtype=F64))
    assert point.second_derivative(R, V.numpy()) == pytest.approx(float(torch.as_tensor(second)), rel=1e-10)


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(1, 7), st.sampled_from([0.0, 0.3, 1.0]))
def test_constants_are_monotone_in_the_radius(seed: int, depth: int, start: float) -> None:
    at = random_point(seed, depth, start=start).measured
    found = [constants(at, radius) for radius in (0.0, 1e-6, 1e-3, 0.03, 0.1, 0.3, 1.0, 10.0)]
    for a, b in pairwise(found):
        assert b.pl_constant <= a.pl_constant * (1 + ROUND)
        assert b.gauss_newton >= a.gauss_newton * (1 - ROUND)
        assert b.bilinear >= a.bilinear * (1 - 1e-6)  # an upper bound of an eigenvalue, by a fixed number of iterations
    assert found[0].pl_constant > 0.0 and (depth == 1 or found[-1].pl_constant == 0.0)


def test_one_layer_has_no_radius_to_pay_for() -> None:
    at = random_point(0, 1).measured
    near, far = constants(at, 0.0), constants(at, 1e6)
    assert near == far and near.bilinear == 0.0
    assert near.pl_constant == pytest.approx((at.a_low[0] * at.b_low[0]) ** 2, rel=1e-8)
    assert near.gauss_newton == pytest.approx((at.a[0] * at.b[0]) ** 2, rel=1e-8)


# -- the least radius --------------------------------------------------------------------------------------------------


def needed(at: Measured, gap: float, gamma: float, radius: float) -> float:
    mu = constants(at, radius).pl_constant
    return 2.0 * math.sqrt(2.0) / (2.0 - gamma) * math.sqrt(gap / mu) if mu > 0.0 else math.inf


@pytest.mark.parametrize("gamma", [0.1, 1.0, 1.6])
@pytest.mark.parametrize("depth", [1, 3, 6])
def test_least_radius_is_feasible_and_close_to_the_least(depth: int, gamma: float) -> None:
    found = 0
    for seed in range(2):
        at = random_point(seed, depth).measured
        for gap in np.logspace(-13, 6, 9):
            radius = least_radius(at, float(gap), gamma)
            least = following = 0.0
            for _ in range(3_000):
                following = needed(at, float(gap), gamma, least)
                if not math.isfinite(following) or following - least <= 1e-12 * following:
                    break
                least = following
            if radius is None:
                # nothing is feasible, up to the 400 iterations of the search close to the edge
                above = [needed(at, float(gap), gamma, x) <= x for x in np.logspace(-6, 2, 60)]
                assert not any(above)
                continue
            found += 1
            assert needed(at, float(gap), gamma, radius) <= radius
            assert following * (1 - 1e-12) <= radius <= following * 1.05
    assert found > 6


def test_no_radius_for_a_large_gap_or_lost_rank() -> None:
    at = random_point(0, 4).measured
    assert least_radius(at, 0.0, 1.0) == 0.0
    assert least_radius(at, 1e6, 1.0) is None
    assert least_radius(random_point(0, 3, r=4, k=2, m=3).measured, 1e-9, 1.0) is None


# -- the local theorem -------------------------------------------------------------------------------------------------


def at_the_edge(seed: int, depth: int, kind: str, start: float) -> tuple[sf.nn.LinearResNet, sf.SquaredLoss]:
    """A network and data whose gap is the largest that is certified, up to 5 %; all residuals are feasible targets."""
    point, g = random_point(seed, depth, m=8, start=start), np.random.default_rng(seed)
    A, B, W, X = (torch.from_numpy(x) for x in (point.A, point.B, point.W, point.X))
    R = torch.from_numpy(residuals(point, g)[0 if kind == "random" else 1]).T
    net = sf.nn.LinearResNet(A, B, W)
    output = net(X).detach()

    def loss(scale: float) -> sf.SquaredLoss:
        return sf.SquaredLoss(X, output - scale * R)

    low, high = 1e-4, 1e4
    assert sf.certify(net, loss(low)).holds
    if depth == 1:
        return net, loss(1.0)  # always certified
    assert not sf.certify(net, loss(high)).holds
    while high > 1.05 * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if sf.certify(net, loss(middle)).holds else (low, middle)
    return net, loss(low)


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize(("kind", "start"), [("random", 0.0), ("rank one", 0.0), ("random", 0.5), ("rank one", 0.5)])
def test_certified_runs_at_the_edge(depth: int, kind: str, start: float) -> None:
    net, loss = at_the_edge(depth, depth, kind, start)
    certificate = sf.certify(net, loss)
    assert certificate.holds and certificate.step_size is not None
    W = net.W.detach().clone()
    for rule in ("smooth", "certified-bb", certificate.step_size):
        with torch.no_grad():
            net.W.copy_(W)
        run = sf.descend(net, loss, rule, 150, 1e-10, certificate=certificate, progress=False)
        assert all(gap <= certificate.bound(t) * (1 + 1e-12) for t, gap in enumerate(run.gaps))
        audit = run.audit()
        assert audit.holds and len(audit.lines) == 6, str(audit)
        assert run.certified == (
            isinstance(rule, str) or depth == 1
        )  # else the certificate's own steps grow as the gap falls
        moved = float((net.W.detach() - W).norm())
        assert 0.0 < moved <= certificate.quantities["radius"]
        if isinstance(rule, float):
            assert run.step_sizes == [rule] * run.iterations


def test_the_bound_of_smooth_steps_is_reached_within_the_promised_iterations() -> None:
    net, loss = at_the_edge(3, 3, "random", 0.0)
    certificate = sf.certify(net, loss)
    promised = certificate.iterations_to(1e-3)
    run = sf.descend(net, loss, "smooth", int(promised), 1e-3, certificate=certificate, progress=False)
    assert run.status.value == "converged" and run.iterations <= promised


def test_steps_beyond_the_certificate_are_found_by_the_audit() -> None:
    net, loss = at_the_edge(3, 3, "random", 0.0)
    certificate = sf.certify(net, loss)
    assert certificate.step_size is not None
    run = sf.descend(net, loss, 12.0 * certificate.step_size, 30, certificate=certificate, progress=False)
    audit = run.audit()
    assert not audit.holds and not run.certified


def test_along_a_run_the_guarantee_improves() -> None:
    g = torch.Generator().manual_seed(1)
    X = torch.randn(50, 3, generator=g, dtype=F64)
    loss = sf.SquaredLoss(X, torch.randn(50, 2, generator=g, dtype=F64))
    net = sf.nn.LinearResNet.gaussian(3, 2, 60, 6, seed=1)
    run = sf.descend(net, loss, certify_every=2, tolerance=1e-9, progress=False)
    assert run.status.value == "converged" and run.audit().holds and run.certified_from is not None
    target = 1e-9 * run.gaps[0]
    ends = [phase.iterations_to(target) for phase in run.phases]
    assert ends == sorted(ends, reverse=True) and math.isfinite(ends[-1])
    holding = [r.certificate.holds for r in run.recertified]
    assert holding == sorted(holding)  # once certified, always certified
    assert run.iterations <= run.guaranteed_iterations(1e-9)


# -- at W = 0 ----------------------------------------------------------------------------------------------------------


def zero_network(seed: int, scale: float) -> tuple[sf.nn.LinearResNet, sf.SquaredLoss, dict[str, float]]:
    """Random A, B, X and the residual times ``scale``; and J̲, J̄ and sqrt(gap)."""
    point, g = random_point(seed, 4, m=9, start=0.0), np.random.default_rng(seed)
    net = sf.nn.LinearResNet(point.A, point.B, point.W)
    R = scale * g.standard_normal((2, 3))
    loss = sf.SquaredLoss(point.X, net(torch.from_numpy(point.X)).detach().numpy() - R.T)
    s = [np.linalg.svd(M, compute_uv=False) for M in (point.A, point.B, point.X)]
    values = {"low": math.prod(x[-1] for x in s), "high": math.prod(x[0] for x in s)}
    return net, loss, {**values, "root": math.sqrt(0.5 * float((R**2).sum()))}


@pytest.mark.parametrize("seed", range(4))
def test_the_local_theorem_implies_both_corollaries(seed: int) -> None:
    """At equality in the hypotheses of Theorem 3.1 and of Corollary 2."""
    _, _, q = zero_network(seed, 1.0)
    for root in (q["low"] ** 2 / q["high"] / (4 * math.sqrt(2) * math.e**1.5), q["low"] / (8 * math.sqrt(2))):
        net, loss, _ = zero_network(seed, root / q["root"])
        certificate = sf.certify(net, loss)
        assert certificate.holds
        run = sf.descend(net, loss, certificate=certificate, max_iterations=50, progress=False)
        assert run.audit().holds


@pytest.mark.parametrize("condition", [10.0, 1e4])
@pytest.mark.parametrize("depth", [2, 10])
def test_corollary_2_rests_on_the_product_form_of_w(depth: int, condition: float) -> None:
    """A = B = I, X = diag(1, 1/κ), equality in Corollary 2: with additive deflation a_l - δ_l is 0 on any ball that is needed."""
    X = np.diag([1.0, 1.0 / condition])
    gap = (1.0 - 1e-6) ** 2 / (condition * 8.0 * math.sqrt(2.0)) ** 2
    at = Point(np.eye(2), np.eye(2), np.zeros((depth, 2, 2)), X).measured
    radius = least_radius(at, gap, 1.0)
    assert radius is not None and radius <= 1.0 / (2.0 * math.sqrt(depth))
    additive = replace(at, p_low=np.zeros(depth))
    assert least_radius(additive, gap, 1.0) is None
    assert all(needed(additive, gap, 1.0, candidate) > candidate for candidate in np.logspace(-9, 2, 200))


@pytest.mark.parametrize("depth", [10, 40])
def test_the_product_forms_at_zero_weights_give_the_smoothness_of_the_corollaries(depth: int) -> None:
    """z_l ≤ sqrt(e) J̄ and M_ij ≤ sqrt(e) J̄ on the ball of Corollary 2; the additive forms alone exceed both."""
    point = random_point(depth, depth, start=0.0)
    high = math.prod(float(np.linalg.norm(M, 2)) for M in (point.A, point.B, point.X))
    at, radius = point.measured, 1.0 / (2.0 * math.sqrt(depth))
    on_ball, additive = constants(at, radius), constants(replace(at, p=np.full(depth, np.inf)), radius)
    z_squared, bilinear = depth * math.e * high**2, (depth - 1) * math.sqrt(math.e) * high
    assert on_ball.gauss_newton <= z_squared and on_ball.bilinear <= bilinear
    scale = (at.a[0] * at.b[-1] / high) ** 2  # ‖A X̃‖‖B‖ is below J̄
    assert additive.gauss_newton > scale * z_squared and additive.bilinear > math.sqrt(scale) * bilinear


@pytest.mark.parametrize("seed", range(3))
def test_the_local_rate_at_zero_weights_is_no_worse_than_that_of_the_corollaries(seed: int) -> None:
    _, _, q = zero_network(seed, 1.0)
    low, high = q["low"], q["high"]
    edges = (low**2 / high / (4.0 * math.sqrt(2.0) * math.e**1.5), low / (8.0 * math.sqrt(2.0)))
    for root, share in zip(edges, (math.e, 4.0), strict=True):
        net, loss, _ = zero_network(seed, root * (1.0 - 1e-6) / q["root"])
        K = 4 * high * (math.e * high + math.sqrt(2.0 * math.e) * root)
        rate = sf.certify(net, loss).rate
        assert rate is not None and 1.0 - rate >= 4 * low**2 / share / K


@pytest.mark.parametrize("seed", range(3))
def test_theorem_3_1_at_the_edge(seed: int) -> None:
    _, _, q = zero_network(seed, 1.0)
    edge = q["low"] ** 2 / q["high"] / (4 * math.sqrt(2) * math.e**1.5) / q["root"]
    net, loss, _ = zero_network(seed, edge * (1 + 1e-6))
    assert not sf.certify(net, loss, "linear-resnet/gd").holds
    net, loss, _ = zero_network(seed, edge * (1 - 1e-6))
    certificate = sf.certify(net, loss, "linear-resnet/gd")
    assert certificate.holds and certificate.rule == "constant"
    run = sf.descend(net, loss, certificate=certificate, max_iterations=60, progress=False)
    assert run.certified and run.certified_from == 0 and run.audit().holds
    assert run.step_sizes == [certificate.step_size] * run.iterations
    assert all(gap <= certificate.bound(t) * (1 + 1e-12) for t, gap in enumerate(run.gaps))


def test_theorem_3_1_speaks_of_zero_weights_only() -> None:
    net, loss, q = zero_network(0, 1e-6)
    assert sf.certify(net, loss, "linear-resnet/gd").holds
    with torch.no_grad():
        net.W[0, 0, 0] = 1e-12
    certificate = sf.certify(net, loss, "linear-resnet/gd")
    assert not certificate.holds and "start at zero" in str(certificate)
    assert "linear-resnet/local" in certificate.suggestion and sf.certify(net, loss).holds
    assert q["low"] > 0.0


# -- obligations in ball arithmetic ------------------------------------------------------------------------------------


def proof(certificate: sf.Certificate, schedule: list[Segment]) -> bool:
    """Whether every obligation of the schedule is certain at 128 bits."""
    import flint

    before, flint.ctx.prec = flint.ctx.prec, 128
    try:
        sizes = {k: v for k, v in certificate.problem.items() if k != "kind"}
        q: dict[str, Any] = {k: ball(v) for k, v in certificate.quantities.items()} | sizes
        theorem = THEOREMS[certificate.theorem]
        assert all(c.certain for c in theorem.conditions(q))
        return all(o.certain for o in theorem.obligations(q, converted(schedule, ball)))
    finally:
        flint.ctx.prec = before


def certified(theorem: str) -> sf.Certificate:
    net, loss, _ = zero_network(1, 1e-3)
    certificate = sf.certify(net, loss, theorem)
    assert certificate.holds
    return certificate


TAMPERED = {
    "larger first step": (0, {"main_step": 1.0 + 1e-7}),
    "larger decrease": (0, {"decrease": 1.0 + 1e-7}),
    "lower first level": (0, {"level": 1.0 - 1e-7}),
    "larger last decrease": (-1, {"decrease": 1.0 + 1e-7}),
    "another start": (0, {"start": 1}),
    "a second step": (0, {"other_step": 1e-3}),
    "negative decrease": (0, {"decrease": -1.0}),
}


@pytest.mark.parametrize("theorem", ["linear-resnet/local", "linear-resnet/gd"])
@pytest.mark.parametrize("name", TAMPERED)
def test_a_tampered_schedule_is_not_proved(theorem: str, name: str) -> None:
    certificate = certified(theorem)
    schedule = list(certificate.schedule)
    assert proof(certificate, schedule)
    index, change = TAMPERED[name]
    segment = schedule[index]
    for key, value in change.items():
        new = value if key in ("start", "other_step") else getattr(segment, key) * value
        schedule[index] = replace(segment, **{key: new})
    assert not proof(certificate, schedule)


def test_other_tampered_schedules_of_the_local_theorem_are_not_proved() -> None:
    certificate = certified("linear-resnet/local")
    schedule = list(certificate.schedule)
    assert len(schedule) > 3
    count = schedule[1].count
    assert count is not None
    assert not proof(certificate, schedule[:-1])  # no endless segment
    assert not proof(certificate, [schedule[0], *schedule[2:]])
    assert not proof(certificate, [schedule[0], replace(schedule[1], count=count - 1), *schedule[2:]])
    assert not proof(certificate, [schedule[0], replace(schedule[1], level=schedule[2].level), *schedule[2:]])
    assert not proof(certificate, [replace(schedule[0], count=None), *schedule[1:]])


@pytest.mark.parametrize("gamma", [0.0, -0.5, 2.0, 2.5])
def test_gamma_outside_0_to_2_is_not_proved(gamma: float) -> None:
    certificate = certified("linear-resnet/local")
    other = replace(certificate, quantities={**certificate.quantities, "gamma": gamma})
    import flint

    q: dict[str, Any] = {k: flint.arb(v) for k, v in other.quantities.items()} | {"depth": 4}
    obligations = list(THEOREMS[other.theorem].obligations(q, converted(list(other.schedule), ball)))
    assert not all(o.certain for o in obligations)
    assert [o.name for o in obligations if o.name.startswith("gamma") and not o.certain]
