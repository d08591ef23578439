"""Learned step sizes through ``certify``, ``descend``, ``audit`` and the checker."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import surefoot as sf
from surefoot._core.status import RunStatus
from surefoot.learned import Lasso, LeastSquares, Logistic, Problems
from surefoot.nn import StepSizeNet
from surefoot_check import Outcome, check

MAKERS = {
    "least-squares": lambda seed: LeastSquares.random(3, 4, 6, seed=seed),
    "lasso": lambda seed: Lasso.random(3, 4, 6, sparsity=0.5, seed=seed),
    "logistic": lambda seed: Logistic.random(3, 8, 4, sparsity=0.5, l2=0.1, seed=seed),
}
MONOTONE = {
    "least-squares": "step-sizes/monotone",
    "lasso": "step-sizes/prox-monotone",
    "logistic": "step-sizes/prox-monotone",
}
RATE = {"least-squares": "step-sizes/rate", "lasso": "step-sizes/prox-rate", "logistic": "step-sizes/prox-rate"}
every_kind = pytest.mark.parametrize("kind", list(MAKERS))


def random_net(low: float = 1.0, high: float = 1.95, seed: int = 0) -> StepSizeNet:
    """Its steps spread over the range."""
    generator = torch.Generator().manual_seed(seed)
    layers = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((3, 2), (5, 3), (1, 5))]
    return StepSizeNet(layers, low, high)


def deficient() -> Any:
    """Two equal columns in the first matrix, which is tall."""
    generator = torch.Generator().manual_seed(3)
    M = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64)
    M[0, :, 1] = M[0, :, 0]
    return LeastSquares(M, torch.randn(2, 5, generator=generator, dtype=torch.float64))


def objective(problems: Problems, x: Tensor) -> float:
    return float(problems.objective(x).sum())


# -- certificates and runs -------------------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("theorems", [MONOTONE, RATE], ids=["monotone", "rate"])
def test_certified_run_is_audited_and_checked(kind: str, theorems: dict[str, str], tmp_path: Path) -> None:
    problems, net = MAKERS[kind](0), random_net()
    before = [W.clone() for W in net.matrices]
    certificate = sf.certify(net, problems, theorems[kind])
    assert (certificate.holds, certificate.theorem) == (True, theorems[kind])
    run = sf.descend(
        net, problems, certificate=certificate, max_iterations=30, tolerance=0.0, directory=tmp_path / "run"
    )
    assert (run.certified, run.iterations, run.rule) == (True, 30, "learned")
    assert run.audit().holds
    bounds = [certificate.bound(t) for t in range(31)]
    assert all(gap <= bound * (1.0 + 1e-9) for gap, bound in zip(run.gaps, bounds, strict=True))
    assert (bounds[30] < bounds[0]) == (theorems is RATE)
    # the run is the solver's own iteration, and leaves the network as it is
    solution = net.solve(problems, 30)
    torch.testing.assert_close(run.final["x"], solution.solution, rtol=0.0, atol=1e-12)
    assert objective(problems, run.final["x"]) == pytest.approx(float(solution.objectives[-1].sum()), abs=1e-12)
    assert all(torch.equal(a, b) for a, b in zip(before, net.matrices, strict=True))
    assert check(tmp_path / "run").outcome is Outcome.ACCEPT


@every_kind
def test_default_theorem_is_the_monotone_one(kind: str) -> None:
    certificate = sf.certify(random_net(0.0, 2.0), MAKERS[kind](1))
    assert (certificate.holds, certificate.theorem) == (True, MONOTONE[kind])
    assert certificate.iterations_to(0.5) == float("inf")


def test_weights_are_no_part_of_the_claim() -> None:
    problems = MAKERS["lasso"](0)
    first, other = (sf.certify(random_net(seed=seed), problems) for seed in (0, 1))
    assert first.digest == other.digest
    assert first.digest != sf.certify(random_net(high=1.9), problems).digest


@every_kind
def test_resumed_run_is_the_uninterrupted_one(kind: str, tmp_path: Path) -> None:
    problems, net = MAKERS[kind](2), random_net()
    whole = sf.descend(net, problems, max_iterations=25, tolerance=0.0)
    sf.descend(net, problems, max_iterations=10, tolerance=0.0, directory=tmp_path / "run")
    run = sf.descend(net, problems, max_iterations=25, tolerance=0.0, directory=tmp_path / "run", resume=True)
    assert run.gaps == whole.gaps
    assert torch.equal(run.final["x"], whole.final["x"])
    assert check(tmp_path / "run").outcome is Outcome.ACCEPT
    with pytest.raises(sf.RunDirectoryError, match="other data, weights or theorem"):
        sf.descend(random_net(high=1.9), problems, directory=tmp_path / "run", resume=True)


@every_kind
def test_loaded_run_can_be_audited(kind: str, tmp_path: Path) -> None:
    run = sf.descend(random_net(), MAKERS[kind](0), max_iterations=5, tolerance=0.0, directory=tmp_path / "run")
    loaded = sf.Run.load(tmp_path / "run")
    assert loaded.gaps == run.gaps
    assert str(loaded.audit()) == str(run.audit())


@every_kind
def test_no_iterations(kind: str, tmp_path: Path) -> None:
    problems = MAKERS[kind](0)
    run = sf.descend(random_net(), problems, max_iterations=0, directory=tmp_path / "run")
    assert (run.iterations, run.status) == (0, RunStatus.MAX_ITERATIONS)
    assert not run.final["x"].any()
    assert run.audit().holds
    assert check(tmp_path / "run").outcome is Outcome.ACCEPT


def test_audit_finds_a_step_outside_the_range_and_a_rise() -> None:
    run = sf.descend(random_net(), MAKERS["least-squares"](0), max_iterations=5, tolerance=0.0)
    for change in ({"highest": 1.96}, {"lowest": 0.99}, {"gap": 2.0 * run.gaps[0]}):
        rows = [dict(row) for row in run.rows]
        rows[2] |= change
        audit = dataclasses.replace(run, rows=rows).audit()
        assert not audit.holds
        assert audit.violations >= 1
    assert run.audit().holds


# -- where nothing, or less, is guaranteed ---------------------------------------------------------------------------


def test_deficient_rank_has_the_monotone_theorem_only(tmp_path: Path) -> None:
    problems, net = deficient(), random_net()
    rate = sf.certify(net, problems, "step-sizes/rate")
    assert not rate.holds
    assert [c.name for c in rate.conditions if not c.holds] == ["the smallest nonzero eigenvalue is certified: c > 0"]
    assert "matrices of full rank" in rate.suggestion
    assert "step-sizes/monotone" in rate.suggestion
    run = sf.descend(net, problems, max_iterations=40, tolerance=0.0, directory=tmp_path / "run")
    assert run.certificate.theorem == "step-sizes/monotone"
    assert run.certified
    assert run.audit().holds
    assert run.gaps[-1] < 0.5 * run.gaps[0]
    assert check(tmp_path / "run").outcome is Outcome.ACCEPT


@every_kind
def test_a_range_beyond_two_is_refused_a_guarantee(kind: str) -> None:
    for theorem in (MONOTONE[kind], RATE[kind]):
        certificate = sf.certify(random_net(0.5, 2.1), MAKERS[kind](0), theorem)
        assert not certificate.holds
        assert "the relative steps are at most 2: hi <= 2" in [c.name for c in certificate.conditions if not c.holds]
        assert "beyond 2/beta, where nothing is guaranteed" in certificate.suggestion


def test_steps_beyond_two_diverge_uncertified(tmp_path: Path) -> None:
    net = StepSizeNet.orthogonal((2, 4), (2.5, 3.0))
    run = sf.descend(net, deficient(), max_iterations=300, directory=tmp_path / "run")
    assert (run.status, run.certified) == (RunStatus.DIVERGED, False)
    assert "the objective never increases" in [line.name for line in run.audit().lines if not line.holds]
    assert check(tmp_path / "run").outcome is Outcome.REJECT


@every_kind
def test_a_rate_needs_steps_bounded_away_from_zero(kind: str) -> None:
    certificate = sf.certify(random_net(0.0, 1.9), MAKERS[kind](0), RATE[kind])
    assert [c.name for c in certificate.conditions if not c.holds] == [
        "the relative steps are bounded away from 0: lo > 0"
    ]
    assert certificate.suggestion


def test_a_rate_with_steps_up_to_two_is_hardly_one() -> None:
    """Solvers divide by slightly more than the smoothness, which leaves that much room below 2."""
    certificate = sf.certify(random_net(1.0, 2.0), MAKERS["least-squares"](0), "step-sizes/rate")
    assert certificate.holds
    assert certificate.rate is not None
    assert 0.0 < 1.0 - certificate.rate < 1e-7


@pytest.mark.parametrize(
    ("kind", "theorem"),
    [("least-squares", "step-sizes/prox-rate"), ("lasso", "step-sizes/rate"), ("logistic", "step-sizes/rate")],
)
def test_a_theorem_on_other_problems_fails(kind: str, theorem: str) -> None:
    certificate = sf.certify(random_net(), MAKERS[kind](0), theorem)
    assert not certificate.holds
    assert "this theorem is about another kind of problems" in certificate.suggestion


# -- errors ----------------------------------------------------------------------------------------------------------


def test_wrong_losses_networks_and_arguments() -> None:
    problems, net = MAKERS["least-squares"](0), random_net()
    with pytest.raises(TypeError, match=r"loss is a SquaredLoss; pass sf\.learned.LeastSquares"):
        sf.certify(net, sf.SquaredLoss(problems.M[0], problems.Y[0][:, None]))
    single = problems.to(dtype=torch.float32)
    with pytest.raises(TypeError, match=r"net is torch\.float64 on cpu, loss are torch\.float32"):
        sf.certify(net, single)
    with pytest.raises(TypeError, match="net is float32; certificates are about float64"):
        sf.certify(random_net().float(), single)
    with pytest.raises(ValueError, match="unknown theorem 'step-sizes/rat'; did you mean 'step-sizes/rate'"):
        sf.certify(net, problems, "step-sizes/rat")
    with pytest.raises(ValueError, match=r"steps is 0\.1; a step-size network takes its own steps"):
        sf.descend(net, problems, steps=0.1)
    with pytest.raises(ValueError, match="unknown engine 'gram'"):
        sf.descend(net, problems, engine="gram")
    with pytest.raises(ValueError, match="certify_every does not apply to learned step sizes"):
        sf.descend(net, problems, certify_every=2, max_iterations=5)
    with pytest.raises(TypeError, match=r"sf\.Trace is for training loops"):
        sf.Trace(problems).record(net, 1.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="certificate"):
        sf.descend(net, problems, certificate=sf.certify(net, MAKERS["least-squares"](1)))


def test_scales_beyond_the_certificates_are_named() -> None:
    problems = MAKERS["least-squares"](0)
    with pytest.raises(
        ValueError, match=r"out of the range of certificates: beta has entries outside .*; rescale the problems"
    ):
        sf.certify(random_net(), LeastSquares(1e-60 * problems.M, 1e-60 * problems.Y))
    with pytest.raises(ValueError, match=r"array 'Y' has entries .* exceed 1e\+40: .*; rescale the problems"):
        sf.certify(random_net(), LeastSquares(problems.M, 1e100 * problems.Y))


def test_a_coarse_minimiser_is_witness_enough(tmp_path: Path) -> None:
    problems = Lasso.random(3, 4, 6, sparsity=0.5, seed=8)
    coarse = problems.optimum(1e-2)
    run = sf.descend(random_net(), problems, max_iterations=3, directory=tmp_path / "run")
    assert run.certified and check(tmp_path / "run").outcome is Outcome.ACCEPT
    assert problems.optimum() is coarse
    assert problems.optimum(1e-9) is not coarse


def test_weights_that_are_not_finite() -> None:
    net = random_net()
    with torch.no_grad():
        net.weights[1][0, 0] = float("nan")
    with pytest.raises(ValueError, match=r"net\.weights\[1\]"):
        sf.certify(net, MAKERS["least-squares"](0))
