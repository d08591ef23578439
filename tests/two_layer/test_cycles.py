"""Steps that are repeated for ever, and prescribed steps from weights that are measured: certificates, runs, audits, checks."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import numpy as np
import pytest
from instances.arrays import normal, with_values

import surefoot as sf
from surefoot._two_layer.cycle_plan import Repeated
from surefoot_check import Outcome, check
from surefoot_check.two_layer.blocks import Cycle
from surefoot_check.two_layer.prescribed import CYCLE, STEPS, step_at, steps_of

THEOREM = "two-layer/prescribed"


def problem() -> sf.SquaredLoss:
    """Condition number 4 of XᵀX."""
    X = with_values(8, 3, [2.0, 1.3, 1.0], 4)
    return sf.SquaredLoss(X, X @ normal(3, 2, seed=5) + 0.1 * normal(8, 2, seed=6))


def start(scale: float) -> sf.nn.TwoLayerLinear:
    return sf.nn.TwoLayerLinear.certifiable(problem(), scale=scale)


@pytest.mark.parametrize("level", ["fast", "exact"])
def test_a_run_goes_on_after_its_sequence_and_stays_guaranteed(tmp_path: Path, level: str) -> None:
    net, loss = start(4.0), problem()
    certificate = sf.certify(net, loss, theorem=THEOREM)
    first, cycled = steps_of(certificate.quantities)
    assert certificate.holds and first and cycled
    assert certificate.iterations_to(1e-10) <= len(first)
    count = len(first) + 2 * len(cycled) + 1
    assert math.isfinite(certificate.iterations_to(1e-200)) and certificate.bound(10_000) < 1e-200
    run = sf.descend(
        net, loss, certificate=certificate, max_iterations=count, tolerance=1e-40, directory=tmp_path, progress=False
    )
    assert run.iterations > len(first) + len(cycled)
    assert run.step_sizes[:count] == [step_at(first, cycled, t) for t in range(len(run.step_sizes))]
    assert run.audit().holds
    assert check(tmp_path, level=level, replay=level == "fast").outcome is Outcome.ACCEPT


def test_weights_along_a_run_are_certified_again(tmp_path: Path) -> None:
    """From there on by a cycle alone; those of the first iterates are not near enough."""
    net, loss = start(3.0), problem()
    certificate = sf.certify(net, loss, theorem=THEOREM)
    sf.descend(net, loss, certificate=certificate, max_iterations=8, tolerance=1e-40, progress=False)
    again = sf.certify(net, loss, theorem=THEOREM)
    first, cycled = steps_of(again.quantities)
    assert again.holds and not first and cycled
    run = sf.descend(
        net, loss, certificate=again, max_iterations=12, tolerance=1e-12, directory=tmp_path, progress=False
    )
    assert run.audit().holds and all(gap <= again.bound(t) for t, gap in enumerate(run.gaps))
    assert check(tmp_path).outcome is Outcome.ACCEPT


def test_a_run_adopts_what_guarantees_fewer_iterations(tmp_path: Path) -> None:
    net, loss = start(2.0), problem()
    certificate = sf.certify(net, loss, theorem=THEOREM)
    run = sf.descend(
        net, loss, certificate=certificate, tolerance=1e-18, certify_every=6, directory=tmp_path, progress=False
    )
    assert run.adopted and run.audit().holds
    assert run.adopted[-1].iterations_to(1e-18 * run.gaps[0]) < certificate.iterations_to(1e-18)
    assert check(tmp_path).outcome is Outcome.ACCEPT


def test_gaussian_weights_are_not_certified_and_hear_of_others() -> None:
    loss = problem()
    certificate = sf.certify(sf.nn.TwoLayerLinear.gaussian(3, 2, 40), loss, theorem=THEOREM)
    assert not certificate.holds and "TwoLayerLinear.certifiable" in certificate.suggestion
    assert not set(certificate.quantities) & {STEPS[0], CYCLE[0]}


def test_the_rule_follows_the_cycle_after_a_resumption(tmp_path: Path) -> None:
    loss, net = problem(), start(4.0)
    certificate, whole = sf.certify(net, loss, theorem=THEOREM), copy.deepcopy(net)
    options = {"certificate": certificate, "tolerance": 1e-40, "progress": False}
    expected = sf.descend(whole, loss, max_iterations=14, **options).step_sizes
    sf.descend(net, loss, max_iterations=9, directory=tmp_path, **options)
    resumed = sf.descend(start(4.0), loss, max_iterations=14, directory=tmp_path, resume=True, **options)
    assert resumed.step_sizes == expected


@pytest.mark.parametrize(
    ("factor", "ratio", "count"),
    [(0.5, 0.3, 2), (0.5, 0.25, 2), (0.5, 0.2, 4), (0.5, 0.01, 8), (1.0 - 1e-9, 0.25, 2), (1.0, 0.2, math.inf)],
)
def test_the_count_of_repetitions_is_found_at_once(factor: float, ratio: float, count: float) -> None:
    """Of the parts 1 and .25 of the gap after the two steps of a repetition, …"""
    repeated = Repeated(np.ones(2), Cycle(np.array([1.0, 1.0, 0.5]), factor))
    assert repeated.count_to(ratio) == count


def test_a_repetition_that_hardly_falls_has_a_count() -> None:
    repeated = Repeated(np.ones(2), Cycle(np.array([1.0, 1.0, 0.5]), 1.0 - 1e-12))
    assert repeated.count_to(0.01) == pytest.approx(math.log(25.0) / 1e-12, rel=1e-3)
