"""What a report says is guaranteed of a run, and what is not."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from reported_runs import (
    again,
    certified,
    collinear,
    deconvolution,
    diverged,
    lasso,
    lasso_rate,
    narrow,
    network,
    problem,
    resnet,
    truncated,
    undrawn,
    unregularised,
    words,
)

import surefoot as sf
from surefoot._core.plans import PLANS
from surefoot._report.wording import number, symbolic
from surefoot._two_layer.system import TwoLayerSystem
from surefoot._two_layer.words import WORDS

SYMBOLS = WORDS.symbols


def test_certified_run_states_the_guarantee_with_its_numbers(reports) -> None:
    run, _, page = reports(certified)
    text = words(page)
    assert "✓ GUARANTEED" in text
    guaranteed = run.guaranteed_iterations(1e-8)
    assert f"within {guaranteed:,} iterations" in text
    assert f"The run ended after {run.iterations} iterations" in text
    assert f"from {number(run.gaps[0])} to {number(1e-8 * run.gaps[0])}" in text
    assert "test error 0.0525" in text
    assert "data.name made" in text
    for name, digest in run.certificate.arrays.items():
        assert name in text
        assert digest in text
    assert "differs" not in text
    assert "L1" in text and "L2" in text
    for theorem in PLANS:
        assert (theorem in text) == theorem.startswith("two-layer/")
    for line in run.audit().lines:
        assert symbolic(line.name, SYMBOLS) in text


def test_linear_resnet_certified_from_a_later_iteration_on(reports) -> None:
    run, _, page = reports(resnet)
    text = words(page)
    since = run.certified_from
    assert since is not None and since > 0
    assert "◐ GUARANTEED FROM A LATER ITERATION ON" in text
    assert f"in iteration {since}, at worst" in text
    for theorem in PLANS:
        assert (theorem in text) == theorem.startswith("linear-resnet/")
    for foreign in ("W1", "W2", "imbalance", "small matrices"):
        assert foreign not in text


def test_learned_steps_have_a_range_and_no_first_step(reports) -> None:
    run, _, page = reports(lasso)
    text = words(page)
    assert "Run report: step-sizes/prox-monotone, LASSO problems, " in text
    low, high = (number(end([row[name] for row in run.rows[:-1]])) for end, name in ((min, "lowest"), (max, "highest")))
    assert f"Relative steps P taken {low} … {high} the network's range: 0.5 … 1.5; a step is P/β" in text
    for absent in ("First step taken", "status first step", "Step sizes taken"):
        assert absent not in text
    assert "Guaranteed iterations none the theorem gives no rate to the target" in text
    compared = text[text.index("Theorems compared") : text.index("Quantities Measured")]
    for theorem in PLANS:  # the default theorem stands for its proximal form here
        expected = theorem.startswith("step-sizes/") and theorem != "step-sizes/monotone"
        assert (f" {theorem} " in compared) == expected
    assert re.findall(r"step-sizes/[a-z-]+ (?:this run )?[✓✗]", compared) == [
        "step-sizes/prox-monotone this run ✓",
        "step-sizes/prox-rate ✓",
    ]


def test_rate_that_ends_before_the_target_is_no_promise(reports) -> None:
    run, _, page = reports(lasso_rate)
    text = words(page)
    assert run.certificate.step_size and not math.isfinite(run.guaranteed_iterations(0.0))
    assert "no limit" not in text
    assert "Guaranteed iterations none the" in text


@pytest.mark.parametrize("make", [lasso_rate, deconvolution], ids=lambda make: make.__name__)
def test_sublinear_bound_is_named_and_drawn_as_what_it_is(reports, make: Callable[[Path], sf.Run]) -> None:
    run, _, page = reports(make)
    text = words(page)
    bound = f"{number(run.certificate.claim.constant, towards='up')}/t"
    assert f"keep the gap at most {bound} after t iterations" in text
    assert f"Guaranteed gap after t iterations {bound}" in text
    assert "of no practical use" in text and run.certificate.advice in text
    assert (
        '<section class="verdict warn"' in page and "◐ GUARANTEED, NOT PRACTICAL" in text and "✓ GUARANTEED" not in text
    )
    assert f"{run.certificate.theorem} (followed by this run): at most" in page[page.index("<svg") :]
    for false in ("gives no rate", "no guaranteed bound to draw", "the rate does not", "no rate"):
        assert false not in text[: text.index("Theorems compared")]


def test_reduced_data_and_counts_of_no_practical_use_are_in_the_verdict(tmp_path: Path) -> None:
    run = truncated(tmp_path / "cut")
    text = undrawn(sf.Run.load(run.directory or ""))
    assert run.certificate.cut is not None
    assert f"The guarantee speaks of reduced data: {run.certificate.cut.text}." in text
    assert "1 of 2 directions of the data dropped" in text and "by up to 12.5" in text
    slow = collinear(tmp_path / "slow")
    text = undrawn(sf.Run.load(slow.directory or ""))
    assert slow.certificate.practical is False and "columns 0, 1 of X are nearly collinear" in slow.certificate.advice
    assert f"of no practical use. Why, and what would help: {slow.certificate.advice}" in text
    assert "to the target; of no practical use" in text


def test_hypothesis_that_fails_is_named_with_both_sides_and_what_would_help(reports) -> None:
    run, _, page = reports(narrow)
    text = words(page)
    assert "NOTHING IS GUARANTEED" in text
    failed = [c for c in run.certificate.conditions if not c.holds]
    assert failed
    for condition in failed:
        assert symbolic(condition.name, SYMBOLS) in text
    assert run.certificate.suggestion in text
    assert "there is nothing to accept" in text
    assert "✓ GUARANTEED" not in text


def test_loss_without_strong_convexity_is_told_what_would_help(reports) -> None:
    run, _, page = reports(unregularised)
    assert run.certificate.quantities["strong_convexity"] == 0.0
    text = words(page)
    assert "NOTHING IS GUARANTEED" in text
    assert "μ > 0: the left side is 0 , which must be > the right side, 0" in text
    assert "use l2 > 0" in text


def test_theorem_that_cannot_be_evaluated_is_listed_with_the_reason(reports, monkeypatch) -> None:
    run = reports(certified)[0]
    certify = TwoLayerSystem.certify

    def refuse(self, net, loss, theorem):
        if theorem == "two-layer/sharp":
            raise ValueError("a bound overflows")
        return certify(self, net, loss, theorem)

    monkeypatch.setattr(TwoLayerSystem, "certify", refuse)
    assert "two-layer/sharp a bound overflows not evaluated" in undrawn(run)


def test_later_certificates_are_listed_and_drawn(reports) -> None:
    run, _, page = reports(again)
    text = words(page)
    assert run.adopted
    assert "Certificates along the run" in text
    best = run.guaranteed_iterations(1e-8)
    assert best < run.certificate.iterations_to(1e-8)
    assert f"Certificates taken along the run lower that to {best:,} iterations" in text
    assert f"certified again {len(run.adopted)} times along the run" in page
    assert "from iteration 10:" not in text  # phases are taken together in the audit
    assert "Certificates along the run" not in words(reports(certified)[2])


def test_uncovered_step_rule_is_said_to_be_so(reports) -> None:
    run, _, page = reports(diverged)
    text = words(page)
    assert run.certificate.holds
    assert run.status is sf.RunStatus.DIVERGED
    assert "NOTHING IS GUARANTEED" in text
    assert "'constant', of which the theorem does not speak" in text
    assert "not covered by the theorem" in text
    assert "diverged: the last gap is far above this scale" in page


def test_a_constant_step_above_the_largest_is_said_to_be_so() -> None:
    loss = problem()
    run = sf.descend(network(loss), loss, steps=1.0, progress=False)
    text = undrawn(run)
    assert "the step is at most the largest that the theorem admits" in text
    assert "covered where the theorem holds" in text and "NOTHING IS GUARANTEED" in text


def test_violation_under_a_certificate_comes_first(reports) -> None:
    run = reports(certified)[0]
    rows = [dict(row) for row in run.rows]
    rows[3]["gap"] = 2.0 * rows[0]["gap"]
    text = undrawn(dataclasses.replace(run, rows=rows))
    assert "THE RUN BREAKS ITS GUARANTEE" in text
    assert "first at iteration 2" in text
    assert "✗ violated" in text
