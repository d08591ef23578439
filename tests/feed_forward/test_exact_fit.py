"""The theorem feed-forward/exact-fit: what it says of random networks, at its sharp example, and where it fails."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from draws import normal
from good_runs import nearly_fitted, sequential
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import surefoot as sf
from surefoot._core.near_a_fit.planner import whole_steps
from surefoot._core.registry import descendable_of
from surefoot._feed_forward.directions import jacobian
from surefoot_check import check
from surefoot_check.feed_forward import enclosures, exact_fit
from surefoot_check.near_a_fit.exact_fit import FASTEST
from surefoot_check.verdict import Outcome

B = "feed-forward/exact-fit"


def drawn(seed: int, error: float) -> tuple[nn.Sequential, sf.SquaredLoss]:
    """A network of two or three layers, with targets that it fits up to the error."""
    draw = np.random.default_rng(seed)
    d, width, k, N = (int(draw.integers(*ends)) for ends in ((1, 4), (4, 9), (1, 3), (1, 4)))
    first, second = ((nn.Tanh, nn.GELU, nn.ReLU, nn.Softplus)[int(draw.integers(4))]() for _ in range(2))
    hidden = [nn.Linear(width, width, bias=False), second] if draw.integers(2) else []
    net = sequential(nn.Linear(d, width), first, *hidden, nn.Linear(width, k), seed=seed)
    X = normal(N, d, seed=seed + 1)
    return net, sf.SquaredLoss(X, net(X).detach() + error * normal(N, k, seed=seed + 2))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from((1e-1, 3e-2, 1e-2, 1e-4, 1e-8)))
def test_no_run_violates_what_is_guaranteed(seed: int, error: float) -> None:
    """The rate of every step, not only the one that is claimed; and Newton's own method stays as near."""
    net, loss = drawn(seed, error)
    certificate = sf.certify(net, loss, B)
    if not certificate.holds:
        return
    q = certificate.quantities
    assert q["newton_step"] <= q["r0"] / q["sigma_min_J"] * (1.0 + 1e-8)
    run = sf.descend(net, loss, max_iterations=60, tolerance=0.0, certificate=certificate, progress=False)
    assert run.rule == "simplified-newton" and run.certified and set(run.step_sizes) <= {1.0}
    assert run.audit().holds, run.audit()
    assert max(row["distance"] for row in run.rows) <= q["radius"] * (1.0 + 1e-9) + 1e-14
    for before, after in pairwise(run.gaps):
        assert math.sqrt(after) <= q["contraction"] * math.sqrt(before) + math.sqrt(run.resolution)


def test_the_iteration_at_its_sharp_example() -> None:
    """f(θ) = σθ - ½Λθ², y at distance δσ: the fit lies at the radius, and the factor is reached in the limit."""
    for delta in (0.1, 0.3, 0.45, 0.4999):
        q: dict[str, Any] = {
            "initial_gap": 0.5 * delta**2,
            "sigma_min_J": 1.0,
            "newton_step": delta,
            "lipschitz_J": 1.0,
        }
        q |= {"ball": 1.0, "N": 1, "k": 1, "p": 1}
        theorem = exact_fit.THEOREM
        assert all(condition.certain for condition in theorem.conditions(q))
        found, segments = theorem.derived(q), whole_steps(theorem, q)
        assert all(o.certain for o in theorem.obligations(q, segments)) and len(segments) == 1
        theta, residual, factor = 0.0, delta, 0.0
        for _ in range(3000):
            theta += residual
            before, residual = residual, delta - theta + 0.5 * theta * theta
            assert abs(residual) <= found["contraction"] * abs(before) + 1e-15
            factor = residual / before if residual > 1e-9 else factor
        assert theta == pytest.approx(found["radius"], rel=1e-6) and theta <= found["radius"] * (1.0 + 1e-12)
        assert factor == pytest.approx(found["contraction"], rel=1e-3)
    assert not all(c.certain for c in exact_fit.THEOREM.conditions({**q, "newton_step": 0.5}))


@pytest.mark.parametrize("seed", range(5))
def test_the_newton_step_is_bounded_tightly(seed: int) -> None:
    net, given = drawn(seed, 0.1)
    system = descendable_of(net)
    loss = system.problem(net, given)
    at = enclosures.Measured(*system._stored(net, loss))  # pyright: ignore[reportAttributeAccessIssue]
    weights = system.reduced(net, loss)
    step = torch.linalg.pinv(jacobian(loss, weights)) @ loss.residual(weights).reshape(-1)
    true = float(torch.linalg.vector_norm(step))
    assert true * (1.0 - 1e-12) <= at.newton_step <= true * (1.0 + 1e-6)
    assert at.newton_step <= math.sqrt(2.0 * at.gap) / at.singular_values[0][0] * (1.0 + 1e-12)


def test_it_holds_where_descent_is_not_guaranteed_and_is_suggested_there(tmp_path: Path) -> None:
    """A residual in a well conditioned direction."""
    net, X = sequential(nn.Linear(3, 20), nn.Tanh(), nn.Linear(20, 2)), normal(5, 3, seed=0)
    loss = sf.SquaredLoss(X, normal(5, 2, seed=1))
    sf.descend(net, loss, "gauss-newton", 1, progress=False)
    local = sf.certify(net, loss)
    assert not local.holds and f"sf.certify(net, loss, '{B}') holds" in local.suggestion
    certificate = sf.certify(net, loss, B)
    assert certificate.holds and certificate.quantities["contraction"] > FASTEST
    run = sf.descend(net, loss, certificate=certificate, tolerance=1e-20, directory=tmp_path, progress=False)
    assert run.status == "converged" and run.audit().holds
    for level in ("fast", "exact"):
        assert check(tmp_path, level=level).outcome is Outcome.ACCEPT


def test_what_is_to_be_done_where_it_fails() -> None:
    net, X = sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1), seed=1), normal(3, 2, seed=1)
    loss = sf.SquaredLoss(X, normal(3, 1, seed=9))
    found = sf.certify(net, loss, B)
    assert not found.holds and "until the norm of the Newton step is about" in found.suggestion
    assert 'steps="gauss-newton"' in found.suggestion and 'steps="gauss-newton"' in sf.certify(net, loss).suggestion
    small = sequential(nn.Linear(2, 1), nn.Tanh(), nn.Linear(1, 2))
    without_rank = sf.certify(small, sf.SquaredLoss(normal(5, 2, seed=1), normal(5, 2, seed=3)), B)
    assert not without_rank.holds and "newton_step" not in without_rank.quantities


def test_other_rules_carry_no_guarantee_under_it() -> None:
    net, loss = nearly_fitted()
    certificate = sf.certify(net, loss, B)
    assert certificate.holds
    run = sf.descend(net, loss, "gauss-newton", certificate=certificate, progress=False)
    assert not run.certified
