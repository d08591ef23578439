"""The sharper bound of the change of the Hessian of an objective: never below the truth, and how sharp it is."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from draws import normal
from good_runs import sequential
from independent.feed_forward import Objective as TrueObjective
from independent.feed_forward_sharper import sharper_change
from independent.reference import exact
from mpmath import mp, mpf
from torch import Tensor, nn
from torch.func import jacrev

import surefoot as sf
from surefoot._feed_forward.directions import flat, parted
from surefoot._feed_forward.system import FeedForwardSystem
from surefoot_check.feed_forward.hessian import Curvature
from surefoot_check.feed_forward.network import Objective
from surefoot_check.rigor.bounds import Array

F64 = torch.float64
CASES = {
    "tanh": ([3, 4, 3], nn.Tanh(), "entropy", ()),
    "sigmoid": ([2, 4, 2], nn.Sigmoid(), "squared", ()),
    "softplus": ([2, 3, 3], nn.Softplus(1.5), "entropy", ()),
    "SiLU": ([2, 4, 2], nn.SiLU(), "squared", ()),
    "GELU": ([2, 3, 3], nn.GELU(), "weighted", ()),
    "two hidden layers": ([2, 3, 2, 2], nn.Tanh(), "entropy", ()),
    "two hidden layers, squared": ([2, 2, 3, 1], nn.GELU(), "squared", ()),
    "first layer frozen": ([2, 4, 3], nn.Tanh(), "entropy", ("0.weight", "0.bias")),
    "readout frozen": ([2, 4, 3], nn.SiLU(), "entropy", ("2.weight",)),
    "biases frozen": ([2, 4, 2], nn.Tanh(), "squared", ("0.bias", "2.bias")),
}


class Setting:
    """An objective at weights, as a function of one vector, and what the checker measures of it."""

    def __init__(self, widths: list[int], activation: nn.Module, criterion: str, frozen: tuple[str, ...]) -> None:
        modules = [m for pair in pairwise(widths) for m in (nn.Linear(*pair), activation)]
        net = sequential(*modules[:-1], seed=sum(widths))
        for name, parameter in net.named_parameters():
            parameter.requires_grad_(name not in frozen)
        X, Y = normal(6, widths[0], seed=1), normal(6, widths[-1], seed=2)
        if criterion == "squared":
            loss = sf.TorchLoss(nn.MSELoss(), X, Y, 0.01)
        else:
            weight = torch.linspace(0.5, 2.0, widths[-1], dtype=F64) if criterion == "weighted" else None
            smoothing = 0.1 if criterion == "weighted" else 0.0
            loss = sf.TorchLoss(nn.CrossEntropyLoss(weight, label_smoothing=smoothing), X, Y.argmax(dim=1), 0.01)
        system = FeedForwardSystem()
        problem = system.problem(net, loss)
        weights = system.reduced(net, problem)
        stored, arrays = system.stored_at(problem, weights)
        assert isinstance(stored, Objective)
        self.at = Curvature(stored, arrays)
        self.arrays = {name: tensor.numpy() for name, tensor in problem.arrays().items()}  # pyright: ignore[reportAttributeAccessIssue]
        self.start = flat(weights)
        self.value = lambda vector: problem.value(parted(vector, weights))

    def thirds(self, at: Tensor) -> Array:
        """The third derivative at these weights (p, p, p)."""
        return jacrev(jacrev(jacrev(self.value)))(at).numpy()


def steepest(thirds: Array) -> tuple[float, Array]:
    """A large |T[u, u, u]|, by ascent from four vectors, and its unit vector u."""
    draw = np.random.default_rng(0)
    best = 0.0, np.zeros(len(thirds))
    for _ in range(4):
        u = draw.standard_normal(len(thirds))
        for _ in range(40):
            u /= np.linalg.norm(u)
            best = max(best, (abs(float(thirds @ u @ u @ u)), u.copy()), key=lambda it: it[0])
            u = thirds @ u @ u + 1e-300
    return best


@pytest.mark.parametrize("name", CASES)
def test_no_third_derivative_in_the_ball_exceeds_it(name: str) -> None:
    """At the centre, and on the boundary in the direction in which the objective changes most."""
    setting, radius = Setting(*CASES[name]), 0.03
    at_centre, u = steepest(setting.thirds(setting.start))
    by_rows = [setting.at.rows.bound(r, setting.at.by_layers(r)[1]) for r in (0.0, radius)]
    assert 0.0 < at_centre <= by_rows[0] <= by_rows[1]
    for sign in (-1.0, 1.0):
        assert steepest(setting.thirds(setting.start + sign * radius * torch.from_numpy(u)))[0] <= by_rows[1]


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_smaller_of_the_two(name: str) -> None:
    setting = Setting(*CASES[name])
    for radius in (0.0, 1e-6, 0.1, 1e3):
        by_layers, parts = setting.at.by_layers(radius)
        assert setting.at.lipschitz(radius) == min(by_layers, setting.at.rows.bound(radius, parts))
    if "frozen" not in name:
        assert setting.at.lipschitz(1e-6) < 0.9 * setting.at.by_layers(1e-6)[0]


def test_hessians_of_two_points_of_the_ball() -> None:
    setting, radius = Setting(*CASES["tanh"]), 0.1
    _, u = steepest(setting.thirds(setting.start))
    a, b = (setting.start + sign * radius * torch.from_numpy(u) for sign in (1.0, -0.5))
    change = torch.linalg.matrix_norm(jacrev(jacrev(setting.value))(a) - jacrev(jacrev(setting.value))(b), 2)
    assert float(change) <= setting.at.lipschitz(radius) * float((a - b).norm())


@pytest.mark.parametrize("radius", [0.02, 0.3])
@pytest.mark.parametrize("name", ["GELU", "SiLU", "readout frozen"])
def test_the_bound_of_a_ball_is_that_of_an_independent_definition(name: str, radius: float) -> None:
    """Also of balls that are so large that most of it comes from what the weights may move."""
    setting = Setting(*CASES[name])
    parts = setting.at.by_layers(radius)[1]
    with mp.workdps(30):
        objective = TrueObjective(setting.arrays, {})
        at = objective.at({name: exact(W) for name, W in setting.at.weights.items()})
        true = sharper_change(objective, at, *map(mpf, (radius, parts.row, parts.bend, parts.third)))
        assert true <= setting.at.rows.bound(radius, parts) <= true * (1 + mpf(10) ** -7)


def test_a_ball_on_which_outputs_change_too_much_has_the_first_bound() -> None:
    setting = Setting(*CASES["tanh"])
    assert math.isinf(setting.at.rows.bound(1e3, setting.at.by_layers(1e3)[1]))
