"""Audits that must not hold: of runs that failed or were cut off, of what was not checked, of moves that a reduction hides."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from draws import normal
from hypothesis import given, settings
from hypothesis import strategies as st

import surefoot as sf
from surefoot._cli.screen import audit_record
from surefoot._core.audit import AuditLine, audited, each, line, merged
from surefoot._core.registry import system_of

F64 = torch.float64
DEFECT = "each iterate is a gradient step from the one before (relative defect)"


def two_layer(seed: int = 0) -> tuple[Any, Any]:
    loss = sf.SquaredLoss(normal(20, 4, seed=seed), normal(20, 2, seed=seed + 1))
    return sf.nn.TwoLayerLinear.gaussian(4, 2, 12, std=0.5, seed=seed), loss


def resnet(seed: int = 0) -> tuple[Any, Any]:
    loss = sf.SquaredLoss(normal(20, 4, seed=seed), normal(20, 2, seed=seed + 1))
    return sf.nn.LinearResNet.gaussian(4, 2, 8, 3, seed=seed), loss


def implicit(seed: int = 0) -> tuple[Any, Any]:
    loss = sf.SquaredLoss(normal(6, 4, seed=seed), normal(6, 1, seed=seed + 1))
    return sf.nn.ImplicitReLU.paper(4, 40, 0.5, generator=torch.Generator().manual_seed(seed)), loss


MADE: dict[str, Callable[[int], tuple[Any, Any]]] = {"two-layer": two_layer, "resnet": resnet, "implicit": implicit}
made = pytest.mark.parametrize("make", MADE.values(), ids=MADE)


@made
@pytest.mark.parametrize("step", [1e2, 1e50, 1e200])
def test_a_run_that_fails_has_its_last_iterate_on_record_and_no_audit_that_holds(
    make: Callable[[int], tuple[Any, Any]], step: float, tmp_path: Path
) -> None:
    net, loss = make(0)
    run = sf.descend(net, loss, step, directory=tmp_path / "run", progress=False)
    assert run.status.failed
    assert len(run.rows) == run.iterations + 1 and "step" not in run.rows[-1]
    audit = run.audit()
    assert not audit.holds and audit.incomplete == run.status.text
    assert run.status.text in str(audit)
    record = audit_record(audit)
    assert record["holds"] is False and record["incomplete"] == run.status.text
    # the files are strict JSON, and say the same
    text = (tmp_path / "run" / "trace.jsonl").read_text() + (tmp_path / "run" / "config.json").read_text()
    assert "NaN" not in text and "Infinity" not in text
    loaded = sf.Run.load(tmp_path / "run")
    assert str(loaded.audit()) == str(audit)
    assert loaded.gaps == pytest.approx(run.gaps, rel=0.0, abs=0.0, nan_ok=True)


def test_the_first_step_of_a_diverging_run_is_audited() -> None:
    net, loss = two_layer()
    run = sf.descend(net, loss, 10.0, progress=False)
    assert run.status is sf.RunStatus.DIVERGED and run.iterations == 1
    broken = {line.name: line.first_violation for line in run.audit().lines if not line.holds}
    assert broken["the gap never increases"] == 0
    assert all(line.checked for line in run.audit().lines)


def test_a_diverged_run_goes_on_from_its_checkpoint_to_the_same_end(tmp_path: Path) -> None:
    net, loss = two_layer()
    start = {name: value.clone() for name, value in net.state_dict().items()}
    run = sf.descend(net, loss, 10.0, directory=tmp_path / "run", progress=False)
    net.load_state_dict(start)
    again = sf.descend(net, loss, 10.0, directory=tmp_path / "run", resume=True, progress=False)
    assert again.status is sf.RunStatus.DIVERGED
    assert json.dumps(again.rows) == json.dumps(run.rows)


@pytest.mark.parametrize("status", list(sf.RunStatus))
def test_only_a_run_that_came_to_a_proper_end_has_an_audit_that_holds(status: sf.RunStatus) -> None:
    net, loss = two_layer()
    run = dataclasses.replace(sf.descend(net, loss, max_iterations=20, progress=False), status=status)
    proper = {"converged", "max_iterations", "settled", "stalled", "interrupted"}
    assert run.audit().holds == (status.value in proper)


@made
def test_a_run_without_a_step_has_nothing_to_check(make: Callable[[int], tuple[Any, Any]]) -> None:
    net, loss = make(0)
    run = sf.descend(net, loss, 1e-3, max_iterations=0, progress=False)
    assert run.iterations == 0 and run.audit().holds
    assert not any(line.unchecked for line in run.audit().lines)


def test_what_was_not_checked_at_a_step_does_not_hold() -> None:
    net, loss = two_layer()
    run = sf.descend(net, loss, max_iterations=5, progress=False)
    rows: list[dict[str, float]] = [dict(row) for row in run.rows]
    del rows[3]["gradient_squared"], rows[4]["gradient_squared"]
    checks = [("slope", each(rows, "gradient_squared", lambda value: (0.0, value)))]
    audit = audited(run.certificate, rows, checks, run.resolution)
    assert [entry.unchecked for entry in audit.lines] == [
        2,
        0,
    ]  # the steps from 3 and from 4; the last row has none; the bound
    assert audit.violations == 0 and not audit.holds and audit.verdict == "not everything was checked"
    assert "not checked at 2 steps: slope" in str(audit)
    # steps below the rounding noise need no check
    assert audited(run.certificate, rows, [("slope", iter(()))], 10.0 * run.gaps[0]).holds


def test_a_bound_that_bounds_nothing_is_violated() -> None:
    assert not line("x", [(0, 1.0, math.inf)]).holds
    assert not line("x", [(0, math.inf, math.inf)]).holds
    assert not line("x", [(0, 1.0, math.nan)]).holds
    assert line("x", [(0, 1.0, 1.0)]).holds


@settings(max_examples=25, deadline=None)
@given(kind=st.sampled_from(sorted(MADE)), exponent=st.integers(-3, 300), seed=st.integers(0, 5))
def test_no_audit_holds_of_a_run_with_a_bad_status_or_a_gap_that_is_no_number(
    kind: str, exponent: int, seed: int
) -> None:
    net, loss = MADE[kind](seed)
    run = sf.descend(net, loss, 10.0**exponent, max_iterations=5, progress=False)
    audit = run.audit()
    bad = run.status.failed or not all(math.isfinite(gap) for gap in run.gaps)
    rises = any(b > 1.001 * a for a, b in zip(run.gaps, run.gaps[1:], strict=False))
    if bad or (rises and kind != "implicit"):  # of an implicit network without a certificate no theorem says so
        assert not audit.holds, str(audit)
    assert run.status.failed == bool(audit.incomplete)


# -- loops of one's own ------------------------------------------------------------------------------------------------


def loop(net: Any, loss: Any, step: float, steps: int, after: Callable[[], None] = lambda: None) -> sf.Trace:
    """Gradient descent by the system's own gradient of the network's weights."""
    trace, system = sf.Trace(loss), system_of(net)
    for _ in range(steps):
        trace.record(net, step)
        gradient = system.gradient(net, system.problem(net, loss))
        with torch.no_grad():
            for name, value in gradient.items():
                parameter = getattr(net, name)
                parameter.sub_(step * value.reshape(parameter.shape))
        after()
    trace.record(net)
    return trace


def defect(audit: sf.Audit) -> sf.AuditLine:
    return next(line for line in audit.lines if line.name == DEFECT)


@pytest.mark.parametrize("size", [100.0, 1e-6])
def test_a_foreign_move_where_the_data_has_no_say_is_seen(size: float) -> None:
    """Columns x1, x2, x3, x1: a move of W1 along (1, 0, 0, -1) changes no output."""
    X = normal(20, 3)
    loss = sf.SquaredLoss(torch.cat([X, X[:, :1]], 1), normal(20, 2, seed=1))
    assert loss.basis is not None
    hidden = torch.tensor([[1.0], [0.0], [0.0], [-1.0]], dtype=F64)
    audits = []
    for scale in (0.0, size):
        net = sf.nn.TwoLayerLinear.gaussian(4, 2, 12, seed=2)
        certificate = sf.certify(net, loss, theorem="two-layer/constant")
        assert certificate.holds and certificate.step_size is not None

        def push(net: Any = net, scale: float = scale) -> None:
            with torch.no_grad():
                net.W1 += scale * hidden * normal(1, 12, seed=3)

        audits.append(sf.audit(loop(net, loss, certificate.step_size, 6, push), certificate))
    assert audits[0].holds, str(audits[0])
    assert not audits[1].holds and defect(audits[1]).first_violation == 1
    assert [line.name for line in audits[1].lines if not line.holds] == [DEFECT]


def test_a_residual_network_whose_fixed_ends_move_is_seen() -> None:
    net, _ = resnet()
    X = normal(20, 3)
    loss = sf.SquaredLoss(torch.cat([X, X[:, :1]], 1), normal(20, 2, seed=1))
    certificate = sf.certify(net, loss)
    assert defect(sf.audit(loop(net, loss, 1e-4, 4), certificate)).holds
    net, _ = resnet()

    def push() -> None:
        with torch.no_grad():
            net.A += normal(8, 1, seed=3) * torch.tensor([1.0, 0.0, 0.0, -1.0], dtype=F64)

    assert defect(sf.audit(loop(net, loss, 1e-4, 4, push), certificate)).first_violation == 1


def test_a_contraction_that_changes_on_the_way_is_seen() -> None:
    net, loss = implicit()
    certificate = sf.certify(net, loss)

    def push() -> None:
        net.gamma *= 1.0 + 1e-6

    assert defect(sf.audit(loop(net, loss, 1e-3, 3, push), certificate)).first_violation == 1


def test_an_audit_of_what_is_no_trace() -> None:
    net, loss = two_layer()
    certificate = sf.certify(net, loss)
    run = sf.descend(net, loss, certificate=certificate, max_iterations=3, progress=False)
    for other in (run, run.rows, certificate, None):
        with pytest.raises(TypeError, match=r"trace is (None|an? \w+); pass an sf.Trace"):
            sf.audit(other, certificate)  # type: ignore[arg-type]


def test_a_loop_that_diverges_has_no_audit_that_holds() -> None:
    net, loss = two_layer()
    certificate = sf.certify(net, loss)
    trace = sf.Trace(loss)
    trace.record(net, 10.0)
    with torch.no_grad():
        net.W1.fill_(math.nan)
    with pytest.raises(ValueError, match="non-finite"):
        trace.record(net)
    audit = sf.audit(trace, certificate)
    assert not audit.holds and "was not recorded" in audit.verdict


def test_a_residual_network_that_overflows_in_a_loop_of_ones_own() -> None:
    net, loss = resnet()
    certificate = sf.certify(net, loss)
    trace = sf.Trace(loss)
    trace.record(net, 1.0)
    with torch.no_grad():
        net.W.fill_(1e200)
    trace.record(net)
    assert math.isnan(trace.gaps[-1])
    assert not sf.audit(trace, certificate).holds


def test_audit_lines_of_phases_are_taken_together() -> None:
    lines = [
        AuditLine("a", True, 0.5, 2, None, 10),
        AuditLine("b", True, None, None, None, 0),
        AuditLine("a", False, 1.5, 13, 13, 5),
        AuditLine("b", True, 0.1, 11, None, 5),
    ]
    assert merged(lines) == (AuditLine("a", False, 1.5, 13, 13, 15), AuditLine("b", True, 0.1, 11, None, 5))
