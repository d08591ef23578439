"""The sharper bound of the change of the Jacobian: never below the truth, and where it is how sharp."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from draws import normal
from good_runs import sequential
from independent.feed_forward import Network
from independent.feed_forward_sharper import sharper_lipschitz
from independent.reference import exact
from mpmath import mp, mpf
from torch import Tensor, nn
from torch.func import jacrev

import surefoot as sf
from surefoot._core.registry import system_of
from surefoot._feed_forward import planner
from surefoot._feed_forward.directions import flat, parted
from surefoot_check.feed_forward.enclosures import Measured
from surefoot_check.feed_forward.sharp import bend_matrix
from surefoot_check.rigor import many_norms
from surefoot_check.rigor.bounds import FAST, Array
from surefoot_check.rigor.exact import EXACT
from surefoot_check.rigor.many_norms import spectral_norms, weighted_norms

F64 = torch.float64
ACTIVATIONS = (
    nn.Tanh(),
    nn.Sigmoid(),
    nn.Softplus(1.7),
    nn.SiLU(),
    nn.GELU(),
    nn.ELU(),
    nn.ELU(0.6),
    nn.LeakyReLU(0.3),
    nn.Hardtanh(-0.6, 1.1),
)


class Setting:
    """A network at weights, its outputs as a function of one vector, and what the checker measures of it."""

    def __init__(self, net: nn.Sequential, X: Tensor) -> None:
        system = system_of(net)
        problem = system.problem(net, sf.SquaredLoss(X, 0.0 * net(X).detach()))
        weights = system.reduced(net, problem)
        self.arrays = {name: tensor.numpy() for name, tensor in problem.arrays().items()}
        self.at = Measured(*system.stored_at(problem, weights))  # pyright: ignore[reportAttributeAccessIssue]
        self.start = flat(weights)
        self.outputs = lambda vector: problem.residual(parted(vector, weights)).reshape(-1)

    def bends(self, at: Tensor) -> Array:
        """The second derivative at these weights (n, p, p)."""
        return jacrev(jacrev(self.outputs))(at).numpy()


def steepest(bends: Array, seed: int = 0, steps: int = 30) -> tuple[float, Array]:
    """A large norm of f''[u, u], by ascent from three vectors, and its unit vector u."""
    draw = np.random.default_rng(seed)
    best = 0.0, np.zeros(bends.shape[1])
    for _ in range(3):
        u = draw.standard_normal(bends.shape[1])
        for _ in range(steps):
            u /= np.linalg.norm(u)
            value = bends @ u @ u
            best = max(best, (float(np.linalg.norm(value)), u.copy()), key=lambda it: it[0])
            u = (value @ (bends @ u)) + 1e-300
    return best


def network(activation: nn.Module, depth: int, seed: int) -> nn.Sequential:
    """Of so many layers, some without bias."""
    draw = np.random.default_rng(seed)
    widths = [2, *(int(draw.integers(2, 6)) for _ in range(depth - 1)), int(draw.integers(1, 3))]
    modules: list[nn.Module] = []
    for before, width in itertools.pairwise(widths):
        modules += [nn.Linear(before, width, bias=bool(draw.integers(3))), activation]
    return sequential(*modules[:-1], seed=seed)


def ball_within_kinks(setting: Setting, radius: float) -> float:
    """A radius at most this at which no pre-activation reaches a kink."""
    while min((float(m.min()) for m in setting.at.kink_margins(radius) if m is not None), default=math.inf) <= 1.0:
        radius /= 4.0
    return radius


# -- never below the truth ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [2, 3, 4, 5])
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_no_second_derivative_in_the_ball_exceeds_it(activation: nn.Module, depth: int) -> None:
    """At the centre, and on the boundary in the direction in which the outputs bend most."""
    setting = Setting(network(activation, depth, seed=10 * depth), normal(3, 2, seed=depth))
    radius = ball_within_kinks(setting, 0.05)
    at_centre, u = steepest(setting.bends(setting.start))
    assert at_centre <= setting.at.lipschitz_by_rows(0.0)
    bound = setting.at.lipschitz_by_rows(radius)
    for sign in (-1.0, 1.0):
        assert steepest(setting.bends(setting.start + sign * radius * torch.from_numpy(u)))[0] <= bound


@pytest.mark.parametrize("frozen", [("0.weight",), ("2.weight",), ("2.weight", "2.bias"), ("4.weight",), ("0.bias",)])
def test_frozen_weights_do_not_move(frozen: tuple[str, ...]) -> None:
    net = sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 4), nn.SiLU(), nn.Linear(4, 2), seed=3)
    free = Setting(net, normal(3, 2, seed=3)).at.lipschitz_by_rows(0.01)
    for name, parameter in net.named_parameters():
        parameter.requires_grad_(name not in frozen)
    setting = Setting(net, normal(3, 2, seed=3))
    assert 0.0 < steepest(setting.bends(setting.start))[0] <= setting.at.lipschitz_by_rows(0.0)
    assert setting.at.lipschitz_by_rows(0.01) <= free * (1.0 + 1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_jacobians_of_two_points_of_the_ball(seed: int) -> None:
    """Of which neither is its centre, apart in the direction in which the outputs bend most."""
    setting = Setting(network(ACTIVATIONS[seed], 2 + seed % 3, seed), normal(3, 2, seed=seed))
    radius = 0.1
    u = torch.from_numpy(steepest(setting.bends(setting.start))[1])
    v = torch.randn(u.shape, generator=torch.Generator().manual_seed(seed), dtype=F64)
    v = v / v.norm()
    a, b = setting.start + radius * u, setting.start + 0.5 * radius * (v - u)
    change = torch.linalg.matrix_norm(jacrev(setting.outputs)(a) - jacrev(setting.outputs)(b), 2)
    assert float(change) <= setting.at.lipschitz(radius) * float((a - b).norm())


def test_equal_rows_count_as_often_as_they_are_there() -> None:
    net = sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3), nn.GELU(), nn.Linear(3, 2), seed=5)
    X = normal(3, 2, seed=5)
    once, twice = (Setting(net, rows) for rows in (X, X[[0, 1, 2, 0, 1, 2]]))
    for radius in (0.0, 1e-2):
        bound = math.sqrt(2.0) * once.at.lipschitz_by_rows(radius)
        assert twice.at.lipschitz_by_rows(radius) == pytest.approx(bound, rel=1e-10)
    assert steepest(twice.bends(twice.start))[0] <= twice.at.lipschitz_by_rows(0.0)


# -- how sharp ---------------------------------------------------------------------------------------------------------


def test_the_formula_of_one_hidden_layer() -> None:
    """max_j ½(n_j² + √(n_j⁴ + 4c_j²)) by spectral norms, which powers of Gram matrices exceed a little."""
    X = normal(6, 3, seed=1)
    net = sequential(nn.Linear(3, 7), nn.Tanh(), nn.Linear(7, 2), seed=1)
    W1, b1, W2, _ = (p.detach().numpy() for p in net.parameters())
    x = np.hstack([X.numpy(), np.ones((6, 1))])
    t = np.tanh(X.numpy() @ W1.T + b1)
    longest, found = np.linalg.norm(x, axis=1).max(), []
    for j in range(7):
        gamma = 2.0 * np.abs(t[:, j]) * (1.0 - t[:, j] ** 2) * np.linalg.norm(W2[:, j])
        n = longest * np.linalg.norm(gamma[:, None] * x, 2)
        c = np.linalg.norm((1.0 - t[:, j] ** 2)[:, None] * x, 2)
        found.append(0.5 * (n + math.sqrt(n * n + 4.0 * c * c)))
    assert max(found) <= Setting(net, X).at.lipschitz_by_rows(0.0) <= 1.03 * max(found)


@pytest.mark.parametrize(("depth", "factor"), [(2, 0.9), (3, 0.6), (4, 0.4), (5, 0.2)])
def test_it_gains_more_the_deeper_the_network(depth: int, factor: float) -> None:
    widths = [4, *[12] * (depth - 1), 1]
    modules = [m for pair in itertools.pairwise(widths) for m in (nn.Linear(*pair), nn.GELU())]
    setting = Setting(sequential(*modules[:-1], seed=depth), normal(20, 4, seed=depth))
    assert setting.at.lipschitz(1e-6) <= factor * setting.at.lipschitz_by_layers(1e-6)
    radii = [setting.at.lipschitz(radius) for radius in (0.0, 1e-6, 1e-4, 1e-2, 1.0)]
    assert radii == sorted(radii) and radii[-1] <= setting.at.lipschitz_by_layers(1.0)
    assert radii[1] <= radii[0] * (1.0 + 1e-3)


def test_the_planner_has_the_bound_of_the_checker() -> None:
    setting = Setting(network(nn.SiLU(), 4, 2), normal(4, 2, seed=2))
    bend = planner.lipschitz(setting.at)
    for radius in (0.0, 1e-8, 1e-3, 0.1, 10.0):
        assert bend(radius) == pytest.approx(setting.at.lipschitz(radius), rel=1e-9)


def test_a_ball_beyond_the_range_of_floats_has_the_first_bound() -> None:
    setting = Setting(network(nn.Tanh(), 3, 2), normal(4, 2, seed=2))
    for radius in (1e-200, 1e200):
        assert setting.at.centre is not None and np.isinf(bend_matrix(setting.at.centre, radius)).all()
        assert setting.at.lipschitz(radius) == setting.at.lipschitz_by_layers(radius)


def test_where_the_sharper_bound_overflows_there_is_the_first() -> None:
    """Weights of 1e13 saturate every unit; some power of a norm, or a rounding error times it, is no float any more."""
    net = sequential(*[m for _ in range(6) for m in (nn.Linear(3, 3), nn.Tanh())], nn.Linear(3, 1), seed=1)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(1e13)
    setting = Setting(net, normal(4, 3, seed=2))
    assert setting.at.lipschitz(1e-3) == setting.at.lipschitz_by_layers(1e-3) < math.inf
    assert math.isinf(setting.at.lipschitz_by_rows(1e-3))


def test_products_of_wide_layers_are_bounded_by_their_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    net, X = network(nn.GELU(), 4, 7), normal(4, 2, seed=7)
    formed = Setting(net, X).at.lipschitz(1e-4)
    monkeypatch.setattr("surefoot_check.feed_forward.sharp_centre.LARGEST", 0)
    assert formed <= Setting(net, X).at.lipschitz(1e-4) <= Setting(net, X).at.lipschitz_by_layers(1e-4)


@pytest.mark.parametrize("radius", [0.02, 0.7])
@pytest.mark.parametrize(("activation", "depth"), [(nn.SiLU(), 2), (nn.Tanh(), 4), (nn.ELU(), 3)], ids=str)
def test_the_bound_of_a_ball_is_that_of_an_independent_definition(
    activation: nn.Module, depth: int, radius: float
) -> None:
    """Also of balls that are so large that most of it comes from what the weights may move."""
    setting = Setting(network(activation, depth, seed=depth), normal(2, 2, seed=depth))
    weights = setting.at.weights
    with mp.workdps(30):
        true = sharper_lipschitz(Network(setting.arrays, {name: exact(W) for name, W in weights.items()}), mpf(radius))
        assert true <= setting.at.lipschitz_by_rows(radius) <= true * (1 + mpf(10) ** -7)


# -- many norms at once ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [FAST, EXACT], ids=lambda level: level.name)
@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (3, 7), (7, 3), (6, 6)], ids=str)
def test_many_norms_are_bounded(shape: tuple[int, int], level: object) -> None:
    draw = np.random.default_rng(sum(shape))
    A = draw.standard_normal((12, *shape)) * 10.0 ** draw.integers(-140, 140, 12)[:, None, None]
    A[0], A[1] = 0.0, np.eye(*shape)
    true = np.linalg.norm(A, 2, axis=(1, 2))
    found = spectral_norms(A, level)  # pyright: ignore[reportArgumentType]
    assert (found >= true).all() and (found[1:] <= true[1:] * min(shape) ** (1.0 / 16.0) * (1.0 + 1e-12)).all()
    assert found[0] < 1e-140


@pytest.mark.parametrize("level", [FAST, EXACT], ids=lambda level: level.name)
@pytest.mark.parametrize("largest", [0, 1 << 30])
def test_norms_of_weighted_rows_are_bounded(largest: int, level: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """With powers, and where they would take too long without: then by no more than the better of three cheap norms."""
    monkeypatch.setattr(many_norms, "LARGEST", largest)
    draw = np.random.default_rng(1)
    for scale in (1.0, 1e-100, 1e100) if largest else (1.0, 1e-200, 1e250):
        A, weights = draw.standard_normal((20, 7)) * scale, draw.uniform(0.0, 1.0, (20, 9)) ** 3
        weights[:, 0], weights[:, 1], weights[:, 2] = 0.0, 1.0, np.eye(20)[3]
        parts = weights.T[:, :, None] * (A / scale)
        true = np.linalg.norm(parts, 2, axis=(1, 2))
        found = weighted_norms(weights, A, level) / scale  # pyright: ignore[reportArgumentType]
        assert (found >= true * (1.0 - 1e-14)).all()
        wanted = np.linalg.norm(parts, axis=(1, 2)) if largest == 0 else true * 7.0 ** (1.0 / 16.0)
        assert (found <= wanted * (1.0 + 1e-12) + 1e-40).all()
        if largest == 0:  # equal weights, and one row
            assert (found[1:3] <= true[1:3] * (1.0 + 1e-8)).all()
