"""A report of a run of every theorem says of it what its certificate says, in the words of its system and of no other."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import batches
import good_runs
import pytest
import torch
from draws import normal
from reported_runs import PLOTS, words

import surefoot as sf
from surefoot import _report
from surefoot._core.claims import PRACTICAL, Kind
from surefoot._core.plans import PLANS
from surefoot._core.registry import SYSTEMS, system_named
from surefoot._core.system import Descendable
from surefoot._report.facts import Facts
from surefoot._report.page import page
from surefoot._report.wording import by_family, count, fall, number, safe_side, symbolic
from surefoot.deconvolution import LADMM, TVADMM, DeconvolutionProblem, PeriodicBlur, TotalVariationProblem

ITERATIONS = 8
OF_TRAINING = {"step-sizes/as-printed", "inverse/training"}
"""Evaluated and never of a certificate."""
DESCENDED = [t for s in SYSTEMS if isinstance(s, Descendable) for t in PLANS if t.startswith(f"{s.name}/")]


def _two_layer(theorem: str) -> tuple[Any, Any]:
    eye = torch.eye(3, dtype=torch.float64)
    loss = sf.SquaredLoss(
        eye, normal(3, 3 if theorem in ("two-layer/as-printed", "two-layer/corrected") else 2, seed=2)
    )
    if theorem == "two-layer/prescribed":
        return sf.nn.TwoLayerLinear.certifiable(loss, scale=4.0), loss
    return sf.nn.TwoLayerLinear.gaussian(*loss.shape, 40, std=1.0, seed=0), loss


def _linear_resnet(theorem: str) -> tuple[Any, Any]:
    if theorem == "linear-resnet/sgd-local":
        return batches.fitted(8, 2, 1, 2, 60.0, 4)
    net = sf.nn.LinearResNet.modified_identity(2, 2, 4, 2, 60.0)
    return net, sf.SquaredLoss(normal(8, 2, seed=0), normal(8, 2, seed=1))


def _implicit(theorem: str) -> tuple[Any, Any]:
    if theorem in ("implicit/local", "implicit/exact-fit"):
        return good_runs.nearly_fitted_implicit(1)
    X, y = normal(5, 4, seed=0), normal(5, seed=1).sign()
    X = X / X.norm(dim=1, keepdim=True)
    net = sf.nn.ImplicitReLU.certifiable(X, y, 20, seed=0)
    if theorem in ("implicit/gd", "implicit/flow"):  # the paper's conditions ask for larger weights
        net = sf.nn.ImplicitReLU(1e4 * net.W.detach(), 1e4 * net.A.detach(), net.b.detach(), net.gamma / 1e4)
    return net, sf.SquaredLoss(X, y)


def _feed_forward(theorem: str) -> tuple[Any, Any]:
    if theorem == "feed-forward/sgd":
        return batches.drawn(good_runs.nearly_fitted())
    return good_runs.near_a_minimum() if theorem == "feed-forward/minimum" else good_runs.nearly_fitted()


def _step_sizes(theorem: str) -> tuple[Any, Any]:
    net = sf.nn.StepSizeNet.orthogonal((2, 2, 4), range=(0.5, 1.5))
    kind = sf.learned.Lasso if "prox" in theorem else sf.learned.LeastSquares
    return net, kind.random(2, 4, 5, seed=0)


def _deconvolution(theorem: str) -> tuple[Any, Any]:
    blur = PeriodicBlur(good_runs.kernel(3, 2, 0), (6, 5))
    picture = normal(6, 5, seed=1).abs()
    if theorem == "deconvolution/tv":
        return TVADMM(0.5), TotalVariationProblem(picture, blur, 0.05)
    return LADMM(0.5), DeconvolutionProblem(picture, blur, 0.05)


INSTANCES: dict[str, Callable[[str], tuple[Any, Any]]] = {
    "two-layer": _two_layer,
    "linear-resnet": _linear_resnet,
    "implicit": _implicit,
    "feed-forward": _feed_forward,
    "step-sizes": _step_sizes,
    "deconvolution": _deconvolution,
}


@cache
def reported(theorem: str) -> tuple[sf.Run, Facts, str]:
    """A run of the theorem, and the text of its report without the drawings."""
    net, loss = INSTANCES[theorem.split("/")[0]](theorem)
    certificate = sf.certify(net, loss, theorem)
    steps = 1e-4 if theorem == "implicit/flow" else None  # which has none of its own
    run = sf.descend(net, loss, steps, ITERATIONS, 1e-3, certificate=certificate, progress=False)
    facts = Facts.of(run)
    return run, facts, words(page(facts, dict.fromkeys(PLOTS, ""), "0"))


every = pytest.mark.parametrize("theorem", sorted({*DESCENDED} - OF_TRAINING))


def test_every_theorem_is_reported_or_has_no_run() -> None:
    assert {*PLANS} - {*DESCENDED} == {t for t in PLANS if t.startswith("inverse/")}
    for theorem in OF_TRAINING & {*DESCENDED}:
        with pytest.raises(ValueError, match="proves nothing"):
            reported(theorem)


@every
def test_the_guarantee_is_that_of_the_certificate(theorem: str) -> None:
    run, facts, said = reported(theorem)
    certificate = run.certificate
    assert certificate.theorem == theorem and f"Run report: {theorem}, " in said
    claim = certificate.claim
    if not run.certified:
        assert "NOTHING IS GUARANTEED" in said and "Guaranteed iterations none no certificate covers this run" in said
        return
    name = "Guaranteed gap after t iterations" if claim.kind is Kind.SUBLINEAR else "Guaranteed factor of the gap"
    assert f"{name} {fall(claim)}" in said
    reached = certificate.iterations_to(facts.target / certificate.initial_gap)
    assert f"Guaranteed iterations {count(reached)} " in said
    useless = claim.converges and reached > PRACTICAL
    assert ("◐ GUARANTEED, NOT PRACTICAL" if useless else "✓ GUARANTEED") in said


NUMBER = r"([0-9][0-9,.]*)(?: × 10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?"
DIGITS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def read(said: str, before: str) -> float:
    """The number that stands after these words, read without the code that writes it."""
    match = re.search(re.escape(before) + r" (1 − )?" + NUMBER, said)
    assert match, before
    value = float(match[2].replace(",", "").rstrip(".")) * 10.0 ** int((match[3] or "0").translate(DIGITS))
    return 1.0 - value if match[1] else value


@every
def test_the_numbers_are_those_of_the_certificate_as_a_person_reads_them(theorem: str) -> None:
    run, facts, said = reported(theorem)
    certificate = run.certificate
    assert read(said, "Initial gap") == pytest.approx(run.gaps[0], rel=1e-3)
    if not run.certified:
        return
    if certificate.claim.kind is Kind.RATE:
        falls = [
            1.0 - read(said, "Guaranteed factor of the gap"),
            certificate.claim.decrease or certificate.claim.final,
        ]
        assert falls[0] == pytest.approx(falls[1], rel=1e-3, abs=1e-4 if falls[1] > 0.01 else 0.0)
    if facts.words.own_steps is None:
        assert read(said, "that of the theorem:") == pytest.approx(certificate.schedule[0].step, rel=1e-3)
    if "Guaranteed iterations none" in said:
        assert min(certificate.bound(t) for t in (0, 10**3, 10**6, 10**9)) > facts.target
    else:
        reached = int(read(said, "Guaranteed iterations"))
        assert certificate.bound(reached) <= facts.target * (1.0 + 1e-9)
        assert reached == 0 or certificate.bound(reached - 1) > facts.target * (1.0 - 1e-9)


@every
def test_the_check_promises_what_the_theorem_claims(theorem: str) -> None:
    run, _, said = reported(theorem)
    promised = {name for name in ("L1", "L2", "L3") if f" {name} " in said.split("Check it independently")[1]}
    proved = run.certificate.holds and PLANS[theorem].theorem.provable
    assert promised == (set(PLANS[theorem].theorem.claims) if proved else set())
    assert ("the checker accepts no certificate of it" in said) == (not PLANS[theorem].theorem.provable)


@every
def test_the_quantities_are_those_of_the_certificate_with_their_symbols(theorem: str) -> None:
    run, facts, said = reported(theorem)
    table = said.split(" Quantities Measured quantities")[1].split(" Arrays The certificate")[0]
    single, families = by_family(run.certificate.quantities)
    towards = safe_side(theorem)
    for name, value in single.items():
        symbol, meaning = facts.words.symbols[name]
        assert f" {name} {symbol} {number(value, 5, towards(name))} {meaning} " in f"{table} "
    for name, values in families.items():
        symbol, meaning = facts.words.symbols[name]
        total = number(sum(values), 5, towards(f"{name}[1]"))
        assert f" {name}[0] … [{len(values) - 1}] {symbol} sum {total} {meaning} " in f"{table} "
    known = {meaning for name, (_, meaning) in facts.words.symbols.items() if name not in {*single, *families}}
    shown = {facts.words.symbols[name][1] for name in (*single, *families)}
    assert not [meaning for meaning in known - shown if f" {meaning} " in table]


@every
def test_the_words_are_those_of_the_system_alone(theorem: str) -> None:
    run, facts, said = reported(theorem)
    gap, _ = facts.gap_named
    assert f"Gap: {gap} (" in said
    if run.certificate.holds and PLANS[theorem].theorem.provable:
        chance = f" with probability {run.certificate.probability:g}"
        sure = f"so that {facts.words.method} obeys the bound."
        drawn = f"so that descent on batches that are drawn so obeys the bound{chance}."
        assert (sure if run.certificate.probability == 1.0 else drawn) in said
    for field in ("gap", "method", "subject"):
        others = {getattr(system.words, field) for system in SYSTEMS} - {getattr(facts.words, field)}
        assert not [other for other in others if f"{other} " in said]
    assert ("First step taken" in said) == (facts.words.own_steps is None)


@pytest.mark.parametrize("theorem", sorted(PLANS))
def test_what_a_theorem_measures_and_chooses_has_a_symbol_and_a_meaning(theorem: str) -> None:
    known = system_named(theorem.split("/")[0]).words.symbols
    stated = PLANS[theorem].theorem
    names = {*stated.base, *stated.choices, *(names[0] for names in stated.sequences)}
    assert all(all(known[name.partition("[")[0]]) for name in names)


@pytest.mark.parametrize("theorem", ["inverse/interval", "inverse/order"])
def test_certificates_without_a_run_have_symbols_too(theorem: str) -> None:
    net = (
        sf.nn.LearnedInverse.ones(6, 3)
        if theorem == "inverse/order"
        else sf.nn.LearnedInverse.chebyshev(4, 4, (1e-3, 1.0))
    )
    certificate = sf.certify(net, interval=(0.02, 1.0), theorem=theorem)
    known = system_named(certificate.system).words.symbols
    assert certificate.theorem == theorem
    assert all(
        all(known[name]) for name in {*by_family(certificate.quantities)[0], *by_family(certificate.quantities)[1]}
    )
    for condition in certificate.conditions:
        assert "<=" not in symbolic(condition.name, known)


@every
def test_hypotheses_and_audit_are_in_symbols_and_nothing_is_left_in_ascii(theorem: str) -> None:
    run, facts, said = reported(theorem)
    for name in (*(c.name for c in run.certificate.conditions), *(line.name for line in facts.lines)):
        shown = symbolic(name, facts.words.symbols)
        assert shown in said
        assert not re.search(
            r"<=|>=|\^\d|\b(alpha|beta|gamma|lambda|mu|sigma|rho|eta|theta|kappa|omega|sqrt)\b|\|\w", shown
        ), shown


def test_a_certificate_without_a_run_has_no_report(tmp_path: Path) -> None:
    good_runs.inverse(tmp_path / "inverse")
    with pytest.raises(sf.RunDirectoryError):
        _report.write(tmp_path / "inverse")
