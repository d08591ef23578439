"""What the product must show on the paper's data: X (1000, 10) normal, Y = -X + .1 E, medians of five seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from statistics import median

import pytest
import torch

import surefoot as sf
from surefoot_check import Outcome, check

ResNet = sf.nn.LinearResNet
SEEDS = range(5)


def paper_data(seed: int) -> sf.SquaredLoss:
    g = torch.Generator().manual_seed(seed)
    X = torch.randn(1000, 10, generator=g, dtype=torch.float64)
    return sf.SquaredLoss(X, -X + 0.1 * torch.randn(1000, 10, generator=g, dtype=torch.float64))


def first_certified(width: int, depth: int, seed: int, every: int, iterations: int) -> float:
    """First evaluated iteration that is certified, with Theorem 3.1's step until then, γ/K from there on, and the audit."""
    loss, net = paper_data(seed), ResNet.gaussian(10, 10, width, depth, seed=seed)
    theorem_step = sf.certify(net, loss, "linear-resnet/gd").quantities["initial_step"]
    rule = sf.steps.Smooth(before=theorem_step)
    run = sf.descend(net, loss, rule, iterations, 1e-9, certify_every=every, progress=False)
    assert not run.certificate.holds  # at the start
    audit = run.audit()
    assert audit.holds, str(audit)
    for phase in run.adopted:
        assert math.isfinite(phase.certificate.iterations_to(1e-6))
        for t, gap in enumerate(run.gaps[phase.iteration :]):
            assert gap <= phase.certificate.bound(t) * (1.0 + 1e-9) + run.resolution
    if not run.adopted:
        return math.inf
    assert run.iterations > run.adopted[0].iteration  # something follows it, and it is audited
    assert len(audit.lines) > 1
    return run.adopted[0].iteration


def first_of(values: Iterable[float]) -> float:
    return median(list(values))


def test_gaussian_width_200_depth_10_is_certified_by_iteration_60() -> None:
    assert first_of(first_certified(200, 10, seed, 20, 65) for seed in SEEDS) <= 60


@pytest.mark.slow
def test_gaussian_width_200_depth_100_is_certified_by_iteration_60() -> None:
    assert first_of(first_certified(200, 100, seed, 20, 65) for seed in SEEDS) <= 60


def test_gaussian_width_40_depth_10_is_certified_by_iteration_800() -> None:
    assert first_of(first_certified(40, 10, seed, 400, 810) for seed in SEEDS) <= 800


def test_modified_identity_is_certified_at_the_start_from_alpha_27() -> None:
    promised = []
    for seed in SEEDS:
        loss = paper_data(seed)
        certificate = sf.certify(ResNet.modified_identity(10, 10, 40, 10, 27.0), loss)
        promised.append(certificate.iterations_to(1e-6) if certificate.holds else math.inf)
        assert not sf.certify(ResNet.modified_identity(10, 10, 40, 10, 24.0), loss).holds
    assert first_of(promised) <= 200


def test_modified_identity_with_alpha_73_guarantees_1e_6_within_30_iterations() -> None:
    promised, ours_before_theirs = [], []
    for seed in SEEDS:
        loss, net = paper_data(seed), ResNet.modified_identity(10, 10, 40, 10, 73.2)
        certificate = sf.certify(net, loss)
        assert certificate.holds
        promised.append(certificate.iterations_to(1e-6))
        run = sf.descend(net, loss, certificate=certificate, tolerance=1e-6, progress=False)
        assert run.status.value == "converged" and run.iterations <= promised[-1] and run.audit().holds
        # Theorem 3.1 where it holds at all
        paper = sf.certify(ResNet.modified_identity(10, 10, 40, 10, 80.0), loss, "linear-resnet/gd")
        ours = sf.certify(ResNet.modified_identity(10, 10, 40, 10, 80.0), loss)
        if paper.holds:
            ours_before_theirs.append(paper.iterations_to(1e-6) / ours.iterations_to(1e-6))
    assert first_of(promised) <= 30
    assert first_of(ours_before_theirs) > 4.0


def test_the_default_rule_is_certified_and_faster_than_the_step_of_theorem_3_1() -> None:
    loss, net = paper_data(0), ResNet.gaussian(10, 10, 200, 10, seed=0)
    theorem_step = sf.certify(net, loss, "linear-resnet/gd").quantities["initial_step"]
    ours = sf.descend(net, loss, certify_every=2, tolerance=1e-6, progress=False)
    theirs = sf.descend(ResNet.gaussian(10, 10, 200, 10, seed=0), loss, theorem_step, 500, 1e-6, progress=False)
    assert ours.status.value == theirs.status.value == "converged"
    assert 2 * ours.iterations < theirs.iterations
    assert ours.audit().holds and ours.certified_from is not None and ours.certified_from < ours.iterations


def accepted(net: ResNet, loss: sf.SquaredLoss, directory: Path, every: int | None, limit: int) -> sf.Run:
    """A run with Theorem 3.1's step until it is certified and γ/K from then on; audited, and checked independently."""
    theorem_step = sf.certify(net, loss, "linear-resnet/gd").quantities["initial_step"]
    rule = sf.steps.Smooth(before=theorem_step)
    run = sf.descend(net, loss, rule, limit, 1e-6, certify_every=every, directory=directory, progress=False)
    assert run.certified_from is not None and run.audit().holds, str(run.audit())
    report = check(directory)
    assert report.outcome is Outcome.ACCEPT, [str(line) for line in report.lines if line.outcome is not Outcome.ACCEPT]
    return run


def test_a_certified_gaussian_run_is_accepted_by_the_checker(tmp_path: Path) -> None:
    run = accepted(ResNet.gaussian(10, 10, 200, 10, seed=0), paper_data(0), tmp_path / "run", 20, 200)
    assert 0 < run.certified_from <= 60 and run.status is sf.RunStatus.CONVERGED


@pytest.mark.slow
def test_a_certified_run_of_100_layers_is_accepted_by_the_checker(tmp_path: Path) -> None:
    run = accepted(ResNet.gaussian(10, 10, 200, 100, seed=0), paper_data(0), tmp_path / "run", 20, 200)
    assert 0 < run.certified_from <= 60 and run.status is sf.RunStatus.CONVERGED


def test_certified_runs_of_the_modified_identity_are_accepted_by_the_checker(tmp_path: Path) -> None:
    for index, alpha in enumerate((27.0, 73.2)):
        net, loss = ResNet.modified_identity(10, 10, 40, 10, alpha), paper_data(0)
        run = accepted(net, loss, tmp_path / str(index), None, 200)
        assert run.certified_from == 0 and run.status is sf.RunStatus.CONVERGED
        assert run.iterations <= run.guaranteed_iterations(1e-6)
