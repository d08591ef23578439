"""Lemma 10: the Jacobian of implicit networks, its change on a ball, and kinks, against automatic differentiation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest
import torch
from torch import Tensor

from surefoot_check.implicit import jacobian as module
from surefoot_check.implicit.jacobian import Jacobian
from surefoot_check.problems import Samples
from surefoot_check.rigor.bounds import FAST, Array
from surefoot_check.rigor.exact import EXACT

ROOM = 1.0 + 1e-9
SMALLEST = 1e-5
"""Of balls on which second differences of floats say something."""


@dataclass
class Network:
    """Samples and weights; ``at`` has the pattern of active units of the equilibrium."""

    X: Array
    W: Array
    A: Array
    b: Array
    gamma: float

    @cached_property
    def at(self) -> Jacobian:
        """With targets that are 0."""
        problem = Samples(self.X, np.zeros((len(self.X), self.b.shape[1])))
        return Jacobian(problem, {"W": self.W, "A": self.A, "b": self.b, "gamma": np.array(self.gamma)})

    @property
    def theta(self) -> Tensor:
        """All weights in one vector."""
        return torch.cat([torch.from_numpy(M).flatten() for M in (self.W, self.A, self.b)])

    def parts(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """U and the outputs, on the pieces of the pattern, by elimination."""
        (d, m), p = self.W.shape, self.b.shape[1]
        of_W, of_A, of_b = theta.split([d * m, m * m, m * p])
        W, A, b = of_W.reshape(d, m), of_A.reshape(m, m), of_b.reshape(m, p)
        D, E = (torch.from_numpy(S.astype(float)) for S in (self.at.active, self.at.at.drive.value > 0.0))
        phi = E * (torch.from_numpy(self.X) @ W)
        M = torch.eye(m, dtype=theta.dtype) - self.gamma * D[:, :, None] * A.T
        Z = torch.linalg.solve(M, (D * phi)[:, :, None])[:, :, 0]
        return self.gamma * Z @ A + phi, Z @ b

    def outputs(self, theta: Tensor) -> Tensor:
        """Row by row."""
        return self.parts(theta)[1].flatten()

    def jacobian(self, theta: Tensor) -> Tensor:
        """(N p, parameters)."""
        found = torch.func.jacrev(self.outputs)(theta)
        assert isinstance(found, Tensor)
        return found


def drawn(seed: int, p: int) -> Network:
    """Contractions from 0 to 0.99, sizes of rows and of b from small to large."""
    g = np.random.default_rng(1000 * p + seed)
    N, d, m = (int(x) for x in g.integers(1, 5, size=3) + np.array([0, 0, 2]))
    X, W, A, b = (g.standard_normal(shape) for shape in ((N, d), (d, m), (m, m), (m, p)))
    if seed % 4 == 1:
        A = A + 2.0 * np.outer(g.random(m), g.random(m))  # one large singular value
    X, b = X * 10.0 ** g.uniform(-1, 1, (N, 1)), b * 10.0 ** g.uniform(-2, 1)
    contraction = (0.3, 0.9, 0.6, 0.99)[seed % 4]
    return Network(X, W, A, b, float(contraction / np.linalg.norm(A, 2)))


def fitting(net: Network) -> float:
    """A radius of a ball without kinks, near the largest."""
    radius = 0.3 * (1.0 / net.gamma - net.at.at.norm_A[1])
    for _ in range(60):
        margin = net.at.on_ball(radius)["kink_margin"][0]
        if margin > 1.0:
            break
        radius *= 0.7 * max(margin, 0.1)
    return radius


def ascent(value: Callable[[Tensor], Tensor], start: Tensor, steps: int) -> Tensor:
    """A unit vector at which it is large."""
    u = start / start.norm()
    for _ in range(steps):
        u = u.requires_grad_()
        (slope,) = torch.autograd.grad(value(u), u)
        u = (u.detach() + slope / (slope.norm() + 1e-300)).detach()
        u = u / u.norm()
    return u


def hunted(net: Network, steps: int, seed: int) -> float:
    """The largest share of Λ that is found; everything that the lemma says is asserted."""
    radius = fitting(net)
    ball = net.at.on_ball(radius)
    bend = ball["lipschitz_J"][1]
    if not ball["kink_margin"][0] > 1.0 or radius < SMALLEST:
        return 0.0
    theta = net.theta
    J = net.jacobian(theta)
    exact = (J @ J.T).numpy()
    assert np.linalg.norm(exact - net.at.gram.value) <= net.at.gram.error + 1e-12 * np.linalg.norm(exact)
    for row, P in enumerate(net.at.responses):
        D = np.diag(net.at.active[row].astype(float))
        assert np.linalg.norm(np.linalg.inv(np.eye(len(D)) - net.gamma * D @ net.A.T) @ D, 2) <= P * ROOM
    kinks(net, radius)
    f, g = net.outputs(theta), torch.Generator().manual_seed(seed)

    def second(u: Tensor) -> Tensor:
        return (net.outputs(theta + radius * u) - 2.0 * f + net.outputs(theta - radius * u)).norm() / radius**2

    u = ascent(second, torch.randn(len(theta), generator=g, dtype=theta.dtype), steps)
    rounding = 1e-13 * (1.0 + float(f.norm())) / radius**2
    assert float(second(u)) <= bend * ROOM + rounding
    near, far = theta - radius * u, theta + radius * u
    other = theta + radius * torch.nn.functional.normalize(
        torch.randn(len(theta), generator=g, dtype=theta.dtype), dim=0
    )
    shares = [
        float(torch.linalg.matrix_norm(net.jacobian(a) - net.jacobian(c), 2) / (a - c).norm())
        for a, c in itertools.combinations((theta, near, far, other), 2)
    ]
    assert max(shares) <= bend * ROOM + 1e-12 * float(J.norm()) / radius
    return max(shares) / bend if bend > 0.0 else 0.0


def kinks(net: Network, radius: float) -> None:
    """No entry moves by more than its margin says, in the direction in which it moves most at first."""
    theta, margins = net.theta, net.at.kink_margins(radius)[0]
    U = net.parts(theta)[0].detach()
    slopes = torch.func.jacrev(lambda at: net.parts(at)[0])(theta)
    assert isinstance(slopes, Tensor)
    for i, j in itertools.product(*map(range, U.shape)):
        u = slopes[i, j] / (slopes[i, j].norm() + 1e-300)
        for side in (-1.0, 1.0):
            moved = net.parts(theta + side * radius * u)[0][i, j] - U[i, j]
            assert abs(float(moved)) * margins[i, j] <= abs(float(U[i, j])) * ROOM


@pytest.mark.parametrize("p", [1, 2, 3])
def test_nothing_moves_more_than_the_lemma_says(p: int) -> None:
    shares = [hunted(drawn(seed, p), 8, seed) for seed in range(5)]
    assert max(shares) > 0.6, "the bound is not of the right size"


@pytest.mark.slow
@pytest.mark.parametrize("p", [1, 2, 3])
def test_nothing_moves_more_than_the_lemma_says_of_many(p: int) -> None:
    shares = [hunted(drawn(seed, p), 100, seed) for seed in range(5, 155)]
    assert max(shares) > 0.8 and sum(share > 0.0 for share in shares) > 100


@pytest.mark.parametrize("level", [FAST, EXACT], ids=lambda level: level.name)
def test_signs_that_are_not_certain(level: object) -> None:
    """An entry of U and one of XW that are 0: with either sign of each, JJᵀ is within its error, and no ball is without kinks."""
    X, W = np.array([[1.0, 2.0], [0.5, -1.0]]), np.array([[1.0, 0.5, -1.0], [1.0, 0.25, 0.5]])
    W[:, 1] = [2.0, -1.0]  # of which the first row of X sees 0
    A = np.array([[0.0, 0.5, 0.0], [0.0, 0.0, 0.0], [0.5, 0.0, 0.0]])
    weights = {"W": W, "A": A, "b": np.array([[1.0], [-2.0], [0.5]]), "gamma": np.array(1.0)}
    problem = Samples(X, np.zeros((2, 1)), level)  # type: ignore[arg-type]
    at = Jacobian(problem, weights)
    U, V = at.at.argument.value, at.at.drive.value
    assert V[0, 1] == 0.0 and U[0, 1] > 0.0 and at.kink_margins(1e-9)[1][0, 1] == 0.0
    for driven in (0.0, 1.0):
        E = (V > 0.0).astype(float)
        E[0, 1] = driven
        patterns = [np.diag((row > 0.0).astype(float)) for row in U]
        K = np.array([np.linalg.solve(np.eye(3) - D @ A, D @ weights["b"])[:, 0] for D in patterns])
        Z = at.at.Z.value
        H = (X @ X.T) * ((E * K) @ (E * K).T) + (Z @ Z.T) * (K @ K.T + 1.0)
        assert np.linalg.norm(H - at.gram.value) <= at.gram.error * ROOM


def test_a_unit_on_its_kink() -> None:
    """γZA + relu(XW) is 0 at one entry: JJᵀ with that unit on or off is within its error."""
    X, W = np.array([[1.0], [2.0]]), np.array([[1.0, 0.5]])
    A, b = np.array([[0.0, -0.5], [0.0, 0.0]]), np.array([[1.0], [3.0]])
    at = Jacobian(Samples(X, np.zeros((2, 1))), {"W": W, "A": A, "b": b, "gamma": np.array(1.0)})
    assert (at.at.argument.value[:, 1] == 0.0).all() and at.kink_margins(1e-9)[0].max(axis=0)[1] == 0.0
    for on in itertools.product((0.0, 1.0), repeat=2):
        K = np.array([np.linalg.solve(np.eye(2) - np.diag([1.0, s]) @ A, np.diag([1.0, s]) @ b)[:, 0] for s in on])
        Z = at.at.Z.value
        H = (X @ X.T) * (K @ K.T) + (Z @ Z.T) * (K @ K.T + 1.0)
        assert np.linalg.norm(H - at.gram.value) <= at.gram.error


def test_what_has_no_certificate() -> None:
    net = drawn(3, 2)
    ball = 1.0 / net.gamma - net.at.at.norm_A[0]  # on its boundary the map need not contract
    assert net.at.lipschitz(ball) == math.inf and not any(m.any() for m in net.at.kink_margins(ball))
    assert net.at.base_quantities({"ball": ball})["kink_margin"][0] == 0.0
    expanding = Network(net.X, net.W, net.A, net.b, 1.001 / float(np.linalg.norm(net.A, 2)))
    assert expanding.at.base_quantities({"ball": 1e-6}) == {}
    zero = Network(np.vstack([net.X, np.zeros_like(net.X[:1])]), net.W, net.A, net.b, net.gamma)
    assert zero.at.singular_values[0][0] == 0.0 and zero.at.on_ball(1e-9)["kink_margin"][0] == 0.0
    parallel = Network(np.vstack([net.X, 3.0 * net.X[:1]]), net.W, net.A, net.b, net.gamma)
    assert parallel.at.singular_values[0][0] < 1e-6 * parallel.at.singular_values[1][1]
    many = Network(np.random.default_rng(0).standard_normal((40, 2)), net.W[:2], net.A, net.b, net.gamma)
    assert len(many.X) * 2 > len(many.theta) and many.at.singular_values[0][0] < 1e-6


def test_entries_that_do_not_count_may_lie_on_a_kink() -> None:
    """XW is 0 where the unit is off: nothing depends on it."""
    X, W = np.array([[1.0]]), np.array([[1.0, 0.0]])
    A, b = np.array([[0.0, -0.5], [0.0, 0.0]]), np.array([[1.0], [3.0]])
    at = Jacobian(Samples(X, np.zeros((1, 1))), {"W": W, "A": A, "b": b, "gamma": np.array(1.0)})
    assert at.at.drive.value[0, 1] == 0.0 and at.at.argument.value[0, 1] == -0.5
    assert at.on_ball(1e-3)["kink_margin"][0] > 100.0


def test_one_response_for_all_rows_where_each_would_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    net = drawn(1, 2)
    radius = 1e-3
    sharp = net.at.lipschitz(radius), net.at.kink_margins(radius)[0]
    monkeypatch.setattr(module, "LARGEST", 0)
    plain = Network(net.X, net.W, net.A, net.b, net.gamma).at
    omega = np.linalg.eigvalsh(0.5 * (net.A + net.A.T))[-1]
    assert plain.responses == pytest.approx(np.full(len(net.X), 1.0 / (1.0 - net.gamma * omega)), rel=1e-6)
    assert (plain.responses >= net.at.responses).all() and plain.responses[0] < 9.99
    assert plain.lipschitz(radius) > sharp[0] and (plain.kink_margins(radius)[0] <= sharp[1]).all()
