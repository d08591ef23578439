"""What certificates claim, what the reduction of the data dropped, and what is said of counts of no practical use."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from draws import normal
from torch import Tensor

import surefoot as sf
from surefoot._cli.screen import certificate_record
from surefoot._core.claims import PRACTICAL, TARGET, Kind, claim
from surefoot._core.conditioning import conditioning
from surefoot._core.io import plain
from surefoot._report import write as report
from surefoot.deconvolution import LADMM, TVADMM, DeconvolutionProblem, PeriodicBlur, TotalVariationProblem
from surefoot_check.statement import Segment

DOUBLE = torch.float64


def two_layer(X: Tensor, Y: Tensor, width: int = 200, std: float | None = None, theorem: str | None = None):
    loss = sf.SquaredLoss(X, Y)
    net = sf.nn.TwoLayerLinear.gaussian(*loss.shape, width, std=width**-0.5 if std is None else std, seed=0)
    return sf.certify(net, loss, theorem)


def picture() -> DeconvolutionProblem:
    blur = PeriodicBlur(torch.full((3, 3), 1.0 / 9.0, dtype=DOUBLE), (16, 16))
    return DeconvolutionProblem(normal(1, 1, 16, 16).abs(), blur, 0.05, "db2")


def lasso(theorem: str, rows: int = 10) -> sf.Certificate:
    net = sf.nn.StepSizeNet.orthogonal((2, 2, 4), range=(0.5, 1.5))
    return sf.certify(net, sf.learned.Lasso.random(2, rows, 20, lam=0.1, seed=0), theorem)


def flow() -> tuple[sf.nn.ImplicitReLU, sf.SquaredLoss, sf.Certificate]:
    X, y = normal(3, 4), normal(3, seed=1).sign()
    X = X / X.norm(dim=1, keepdim=True)
    net, loss = sf.nn.ImplicitReLU.certifiable(X, y, 20, seed=0), sf.SquaredLoss(X, 1e-3 * y)
    return net, loss, sf.certify(net, loss, "implicit/flow")


# -- the kind of claim -------------------------------------------------------------------------------------------------

CLAIMS: dict[str, tuple[Callable[[], sf.Certificate], Kind]] = {
    "two-layer/drift": (lambda: two_layer(normal(30, 4), normal(30, 2, seed=1)), Kind.RATE),
    "two-layer/sharp": (
        lambda: two_layer(normal(30, 4), normal(30, 2, seed=1), theorem="two-layer/sharp"),
        Kind.MONOTONE,
    ),
    "two-layer, narrow": (lambda: two_layer(normal(30, 4), normal(30, 2, seed=1), width=1), Kind.NOTHING),
    "two-layer, refuted": (
        lambda: two_layer(normal(30, 4), normal(30, 2, seed=1), theorem="two-layer/as-printed"),
        Kind.NOTHING,
    ),
    "step-sizes/prox-monotone": (lambda: lasso("step-sizes/prox-monotone"), Kind.MONOTONE),
    "step-sizes/prox-rate, wide": (lambda: lasso("step-sizes/prox-rate"), Kind.SUBLINEAR),
    "step-sizes/prox-rate, tall": (lambda: lasso("step-sizes/prox-rate", 60), Kind.RATE),
    "deconvolution/ladmm": (lambda: sf.certify(LADMM(1.0), picture()), Kind.SUBLINEAR),
    "deconvolution/tv": (
        lambda: sf.certify(TVADMM(1.0), TotalVariationProblem(picture().observed, picture().blur, 0.05)),
        Kind.SUBLINEAR,
    ),
    "inverse/interval": (
        lambda: sf.certify(sf.nn.LearnedInverse.chebyshev(3, 4, (0.1, 1.4)), interval=(0.1, 1.4)),
        Kind.LEVELS,
    ),
    "implicit/flow": (lambda: flow()[2], Kind.FLOW),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_the_kind_of_claim_and_what_follows_from_it(name: str) -> None:
    make, kind = CLAIMS[name]
    certificate = make()
    promise = certificate.claim
    assert promise.kind is kind
    text = str(certificate)
    falls = certificate.bound(10**15) < certificate.bound(0)
    assert promise.bounds == (falls and certificate.holds and kind is not Kind.FLOW)  # of a flow it falls in time
    assert promise.of_iterations == (certificate.holds and kind is not Kind.FLOW)
    assert ("along the gradient flow" in text) == (kind is Kind.FLOW)
    assert promise.converges == (kind in (Kind.RATE, Kind.SUBLINEAR))
    assert ("there is no rate" in text) == (kind is Kind.MONOTONE)
    assert ("/t after t iterations" in text) == (kind is Kind.SUBLINEAR)
    record = json.loads(json.dumps(plain(certificate_record(certificate)), allow_nan=False))
    assert record["claim"]["kind"] == kind.value and record["claim"]["text"] == kind.text
    assert record["practical"] == certificate.practical and record["advice"] == certificate.advice
    assert (certificate.practical is None) == (not promise.converges)


def test_a_theorem_about_the_flow_promises_nothing_of_a_run(tmp_path: Path) -> None:
    net, loss, certificate = flow()
    assert certificate.holds and "units of time" in str(certificate)
    assert not re.search("iteration|step|rate", str(certificate).splitlines()[-1])
    record = certificate_record(certificate)
    assert record["step_size"] is record["rate"] is None and set(record["iterations_to"].values()) == {None}
    run = sf.descend(net, loss, 1e-4, max_iterations=5, certificate=certificate, certify_every=2, progress=False)
    assert not run.certified and not run.adopted
    audit = run.audit()
    assert not audit.guaranteed and [line.name for line in audit.lines] == ["well posed: gamma |A| < 1"]
    assert "guarantees nothing of it" in str(audit)
    run.save(tmp_path / "run")
    page = html.unescape(re.sub(r"<[^>]+>", " ", report(tmp_path / "run").read_text()))
    assert "The theorem implicit/flow speaks of the gradient flow" in page and "steps=None" not in page
    # beside the other theorems, too: it needs no number of iterations
    (row,) = re.findall(r"implicit/flow\s+this run\s+✓ holds(.*?)implicit/", page, flags=re.DOTALL)
    assert row.split("of the flow")[1].split() == ["none"]


@pytest.mark.parametrize("make", [lambda: lasso("step-sizes/prox-rate"), lambda: sf.certify(LADMM(1.0), picture())])
def test_a_sublinear_claim_is_that_of_its_schedule(make: Callable[[], sf.Certificate]) -> None:
    """The schedule follows c/t from above within its stretch, and never the other way round by more than its own resolution."""
    certificate = make()
    c = certificate.claim.constant
    last = certificate.schedule[-1].start
    times = [10**k for k in range(4, 16) if 10**k < last]
    assert len(times) > 3
    for t in times:
        assert certificate.bound(t) <= 1.25 * c / t
    assert certificate.rate == 1.0


def test_a_schedule_that_ends_at_a_level_claims_no_convergence() -> None:
    falling = [Segment(0, 5, 1.0, 0.1), Segment(5, None, 0.6, 0.0)]
    assert claim("two-layer/drift", True, falling, {}).kind is Kind.LEVELS
    assert claim("of another version", True, falling, {}).kind is Kind.LEVELS
    assert claim("two-layer/drift", True, [Segment(0, None, 0.0, 0.0)], {}).kind is Kind.RATE
    assert claim("two-layer/drift", True, [], {}).kind is Kind.NOTHING


# -- reductions --------------------------------------------------------------------------------------------------------


def test_a_direction_that_is_cut_off_is_named_with_what_it_does_to_the_optimal_value(tmp_path: Path) -> None:
    X = torch.tensor([[1.0, 0.0], [0.0, 1e-16], [0.0, 0.0]], dtype=DOUBLE)
    Y = torch.tensor([1.0, 5.0, 0.0], dtype=DOUBLE)
    loss = sf.SquaredLoss(X, Y)
    net = sf.nn.TwoLayerLinear.gaussian(*loss.shape, 20, seed=0)
    certificate = sf.certify(net, loss)
    cut = certificate.cut
    assert certificate.holds and cut is not None
    assert (cut.directions, cut.kept, cut.below) == (2, 1, 1)
    assert cut.largest_dropped == pytest.approx(1e-16) and cut.smallest_kept == pytest.approx(1.0)
    assert cut.largest_dropped <= cut.tolerance < cut.smallest_kept
    assert cut.optimal_loss == pytest.approx(12.5)  # the optimal value of the data as given is 0
    gap = 0.5 * float(((X @ (net.W1 @ net.W2.T).detach() - Y[:, None]) ** 2).sum())
    assert certificate.bound(0) < gap <= certificate.bound(0) + cut.optimal_loss * (1.0 + 1e-9)
    assert "1 of 2 directions of the data dropped" in str(certificate) and "by up to 12.5" in str(certificate)
    record = certificate_record(certificate)
    assert record["reduced"]["optimal_loss"] == cut.optimal_loss and "1 of 2" in record["reduced"]["text"]
    run = sf.descend(net, loss, certificate=certificate, max_iterations=1)
    assert sf.Run.load(run.save(tmp_path / "run")).certificate.cut == cut


def test_what_does_not_occur_in_the_data_changes_nothing() -> None:
    X = torch.cat([normal(20, 3), torch.zeros(20, 2, dtype=DOUBLE)], 1)
    cut = two_layer(X, normal(20, 2, seed=1)).cut
    assert cut is not None and (cut.directions, cut.kept, cut.below, cut.optimal_loss) == (5, 3, 0, 0.0)
    assert cut.text == "2 of 5 directions dropped that do not occur in the data, which changes nothing"
    wide = sf.SquaredLoss(normal(3, 5), normal(3, 2, seed=1)).cut
    assert wide is not None and (wide.kept, wide.below, wide.optimal_loss) == (3, 0, 0.0)
    assert sf.SquaredLoss(normal(20, 3), normal(20, 2)).cut is None


def test_measurements_that_are_cut_off_are_named() -> None:
    A = normal(5, 2, 2)
    A[4] = A[3] * (1.0 + 1e-16)
    assert sf.MatrixSensing(A[:3], normal(3)).cut is None
    repeated = torch.cat([A[:3], A[:1] + 1e-17 * A[1:2]])
    cut = sf.MatrixSensing(repeated, normal(4)).cut
    assert cut is not None and cut.below == 1 and cut.optimal_loss > 0.0


def test_standardising_and_whitening_say_what_they_dropped() -> None:
    X = torch.cat([normal(20, 3), torch.ones(20, 1, dtype=DOUBLE)], 1)
    data = sf.data.Data(X, normal(20, 1, seed=1))
    assert data.notes == () and sf.data.Data(X[:, :3]).standardise().notes == ()
    assert data.standardise().notes == ("standardising dropped 1 of 4 columns, constant on the train rows",)
    (note,) = data.whiten().notes
    assert note.startswith("whitening dropped 1 of 4 directions, whose singular values are at most ")
    assert "within the tolerance" in note and "smallest kept" in note


# -- counts of no practical use ----------------------------------------------------------------------------------------


def intercept() -> tuple[Tensor, Tensor]:
    """A column of 0..100 beside an intercept."""
    t = torch.arange(101, dtype=DOUBLE)
    return torch.stack([torch.ones_like(t), t], 1), (0.3 * t + 2.0 + normal(101))[:, None]


def standardised(X: Tensor, Y: Tensor) -> tuple[Tensor, Tensor]:
    """The varying column standardised, the intercept kept."""
    return torch.stack([X[:, 0], (X[:, 1] - X[:, 1].mean()) / X[:, 1].std()], 1), Y


def collinear() -> tuple[Tensor, Tensor]:
    X = normal(50, 5)
    X[:, 4] = X[:, 3] + 1e-4 * X[:, 4]
    return X, normal(50, 2, seed=1)


def ridge(X: Tensor, Y: Tensor) -> tuple[Tensor, Tensor]:
    size = float(sf.SquaredLoss(X, Y).smoothness) / 1e3
    n, m = X.shape[1], Y.shape[1]
    return torch.cat([X, size**0.5 * torch.eye(n, dtype=DOUBLE)]), torch.cat([Y, torch.zeros(n, m, dtype=DOUBLE)])


def whitened(X: Tensor, Y: Tensor) -> tuple[Tensor, Tensor]:
    data = sf.data.Data(X, Y).whiten()
    assert isinstance(data.X, Tensor)
    return data.X, Y


EASY = normal(50, 5), normal(50, 2, seed=1)

VACUOUS: dict[str, tuple[Callable[[], sf.Certificate], tuple[str, ...], Callable[[], sf.Certificate]]] = {
    "scales of columns": (
        lambda: two_layer(*intercept()),
        ("K/mu = 1.32e+04", "columns 0 and 1 of X have norms 10", "582", "standardise or whiten the inputs"),
        lambda: two_layer(*standardised(*intercept())),
    ),
    "collinear, whitened": (
        lambda: two_layer(*collinear()),
        ("columns 3, 4 of X are nearly collinear", "whiten the inputs"),
        lambda: two_layer(*whitened(*collinear())),
    ),
    "collinear, ridge": (
        lambda: two_layer(*collinear()),
        ("add a ridge",),
        lambda: two_layer(*ridge(*collinear())),
    ),
    "targets, scaled down": (
        lambda: two_layer(EASY[0], 1e4 * EASY[1]),
        ("alpha2/alpha1", "scale the targets down or the weights up"),
        lambda: two_layer(*EASY),
    ),
    "targets, weights scaled up": (
        lambda: two_layer(EASY[0], 1e4 * EASY[1]),
        ("scale the targets down or the weights up",),
        lambda: two_layer(EASY[0], 1e4 * EASY[1], std=3.0),
    ),
    "width": (
        lambda: two_layer(EASY[0], 4.0 * EASY[1], width=7, std=0.05),
        ("use a width of at least 2 (n + m) = 14",),
        lambda: two_layer(EASY[0], 4.0 * EASY[1], width=14, std=0.05),
    ),
}


@pytest.mark.parametrize("name", VACUOUS)
def test_a_count_of_no_practical_use_is_called_so_with_what_helps(name: str) -> None:
    make, phrases, followed = VACUOUS[name]
    certificate = make()
    count = certificate.iterations_to(TARGET)
    assert certificate.holds and certificate.suggestion == ""
    assert certificate.practical is False and PRACTICAL < count < math.inf
    assert all(phrase in certificate.advice for phrase in phrases)
    assert f"of no practical use: {certificate.advice}" in str(certificate)
    better = followed()
    assert better.practical is True and better.advice == ""
    assert better.iterations_to(TARGET) < 0.15 * count
    assert "practical" not in str(better)


def test_advice_of_other_losses_and_systems(tmp_path: Path) -> None:
    X = 1e3 * normal(60, 3)
    soft = sf.SoftmaxRegression(X, (normal(60, seed=1) > 0.0).long(), 1e-4)
    assert "larger l2" in conditioning(soft)
    certificate = sf.certify(sf.nn.TwoLayerLinear.gaussian(*soft.shape, 40, seed=0), soft)
    assert certificate.holds and certificate.practical is False and "larger l2" in certificate.advice
    assert "a larger penalty lowers D" in sf.certify(LADMM(1.0), picture()).advice
    assert "no part of the objective is strongly convex" in lasso("step-sizes/prox-rate").advice
    data = collinear()
    loss = sf.SquaredLoss(data[0], data[1])
    net = sf.nn.LinearResNet.modified_identity(*loss.shape, 7, 3, 1e9)
    deep = sf.certify(net, loss)
    assert deep.holds and deep.practical is False and "columns 3, 4 of X are nearly collinear" in deep.advice
    run = sf.descend(net, loss, certificate=deep, max_iterations=1, progress=False)
    assert sf.Run.load(run.save(tmp_path / "run")).certificate.advice == deep.advice
