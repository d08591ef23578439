"""Certificates along the way: one is followed only where it promises at most what is promised already, at every iteration."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import surefoot as sf
from surefoot._core.recertification import Recertification
from surefoot_check import Outcome, check
from surefoot_check.statement import Segment


def problem(seed: int) -> tuple[sf.SquaredLoss, sf.nn.TwoLayerLinear]:
    generator = torch.Generator().manual_seed(seed)
    X, Y = (torch.randn(20, k, generator=generator, dtype=torch.float64) for k in (3, 2))
    return sf.SquaredLoss(X, Y), sf.nn.TwoLayerLinear.gaussian(3, 2, 12, generator=generator)


@pytest.fixture(scope="module")
def plain() -> sf.Certificate:
    loss, net = problem(0)
    return sf.certify(net, loss)


def schedules() -> st.SearchStrategy[list[tuple[int, float, float]]]:
    """Segments as (count, factor at the start, decrease); the level may rise where one begins."""
    segment = st.tuples(st.integers(1, 6), st.sampled_from([1.0, 1.5, 1.0001]), st.sampled_from([0.0, 0.1, 0.5, 0.9]))
    return st.lists(segment, min_size=1, max_size=4)


def phase(plain: sf.Certificate, start: int, level: float, parts: list[tuple[int, float, float]]) -> Recertification:
    segments, iteration = [], 0
    for index, (count, factor, decrease) in enumerate(parts):
        level *= factor
        endless = index + 1 == len(parts)
        segments.append(Segment(iteration, None if endless else count, level, decrease, 0.1))
        level *= (1.0 - decrease) ** count
        iteration += count
    certificate = replace(
        plain, schedule=tuple(segments), quantities={**plain.quantities, "initial_gap": segments[0].level}
    )
    return Recertification(start, certificate)


@given(
    st.integers(0, 5),
    st.sampled_from([0.01, 0.5, 0.999, 1.0, 2.0]),
    schedules(),
    schedules(),
    st.sampled_from([0.0, 1e-6, 0.3]),
)
def test_the_comparison_of_bounds_is_that_of_every_iteration(start, level, mine, theirs, floor) -> None:
    loss, net = problem(0)
    plain = sf.certify(net, loss)
    earlier, later = phase(plain, 0, 1.0, theirs), phase(plain, start, level, mine)
    end = min(earlier.iterations_to(floor), 400) if floor else 400
    compared = range(start, max(start, int(end)) + 1)
    smallest = sys.float_info.min  # no bound goes below it
    everywhere = all(later.bound(t) <= (1.0 - 1e-9) * earlier.bound(t) for t in compared if earlier.bound(t) > smallest)
    if later.promises_at_most(earlier, floor):
        assert everywhere
    elif end < 400:
        assert not everywhere


@pytest.mark.parametrize("seed", range(3))
def test_every_iterate_lies_under_every_certificate_in_force(seed: int, tmp_path: Path) -> None:
    loss, net = problem(seed)
    run = sf.descend(net, loss, tolerance=1e-14, certify_every=2, directory=tmp_path / "run", progress=False)
    assert len(run.adopted) >= 2
    for index, later in enumerate(run.phases):
        for earlier in run.phases[:index]:
            for t in range(later.iteration, run.iterations + 1):
                assert later.bound(t) < earlier.bound(t) or earlier.bound(t) <= run.resolution
    bounded = next(line for line in run.audit().lines if "under the guaranteed bound" in line.name)
    assert bounded.holds and bounded.checked > run.iterations + 1  # of all certificates, each from its start on
    assert check(tmp_path / "run").outcome is Outcome.ACCEPT


def test_a_run_that_breaks_an_earlier_bound_is_found_by_the_audit() -> None:
    loss, net = problem(0)
    run = sf.descend(net, loss, tolerance=1e-14, certify_every=2, progress=False)
    late = run.adopted[-1]
    assert run.audit().holds and len(run.rows) > late.iteration + 1
    above = 2.0 * run.certificate.bound(len(run.rows) - 1)
    weak = replace(
        late.certificate,
        schedule=(Segment(0, None, 10.0 * run.gaps[0], 0.0, 0.1),),
        quantities={**late.certificate.quantities, "initial_gap": 10.0 * run.gaps[0]},
    )
    run.adopted = [Recertification(late.iteration, weak)]
    run.rows[-1] = {**run.rows[-1], "gap": above}
    assert math.isfinite(above) and not run.audit().holds
