"""A short form of ``tests/stress/hunt_networks.py``."""

from __future__ import annotations

import hunted_windows
import numpy as np
import pytest
from hunted import Count, hunted
from long_networks import ACTIVATIONS, LongNetwork, long

NETWORKS = 12


def test_no_network_violates_its_certificate() -> None:
    total = Count()
    for seed in range(NETWORKS):
        total += hunted(seed)
    assert total.certified["local"] > NETWORKS / 4 and total.certified["minimum"] > NETWORKS / 8, total
    assert not total.violations, total


def test_no_jacobian_with_windows_changes_more_than_its_bound() -> None:
    total = Count()
    for seed in range(2 * NETWORKS):
        total += hunted_windows.hunted(seed)
    assert total.certified["windows"] > NETWORKS and total.closest["lipschitz_J"] > 0.5, total
    assert not total.violations, total


def test_a_violation_is_counted() -> None:
    count = Count()
    count.at_most("a bound", 1.0, 1.0)
    count.at_most("a bound", 1.0 + 1e-6, 1.0)
    assert count.checks["a bound"] == 2 and len(count.violations) == 1


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_jacobians_are_those_of_differences(name: str) -> None:
    """By a step of 1e-6, which extended precision resolves to 1e-11."""
    draw = np.random.default_rng(1)
    net = LongNetwork(long(draw.standard_normal((3, 2))), [(4, 2), (4,), (3, 4), (2, 3), (2,)], [name, name])
    theta, step = long(draw.standard_normal(32)), long(1e-6)
    J = net.jacobian(theta)
    for place in range(len(theta)):
        there = step * (np.arange(len(theta)) == place)
        change = (net.outputs(theta + there) - net.outputs(theta - there)).reshape(-1) / (2 * step)
        assert np.abs(J[:, place] - change).max() < 1e-9
