"""How a descent ends, what it leaves behind, and what it refuses."""

from __future__ import annotations

import math
import os
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from draws import normal
from torch import Tensor

import surefoot as sf
from surefoot._core.descent import DIVERGED
from surefoot._core.io import read_tensors
from surefoot_check.arrays import digest, read_safetensors

F64 = torch.float64
ENGINES = pytest.mark.parametrize("engine", ["gram", "weights"])


X, Y = normal(40, 5), normal(40, 3, seed=1)
DUPLICATED = torch.cat([X, X[:, :2]], 1)


def network(n: int = 5, m: int = 3, width: int = 12) -> sf.nn.TwoLayerLinear:
    return sf.nn.TwoLayerLinear.gaussian(n, m, width)


def descend(net: Any = None, loss: Any = None, steps: Any = None, **options: Any) -> sf.Run:
    return sf.descend(
        network() if net is None else net,
        sf.SquaredLoss(X, Y) if loss is None else loss,
        steps,
        progress=False,
        **options,
    )


@ENGINES
def test_converged_at_the_first_gap_below_the_tolerance(engine: str) -> None:
    loss, net = sf.SquaredLoss(X, Y), network()
    run = descend(net, loss, tolerance=1e-8, engine=engine)
    assert run.status is sf.RunStatus.CONVERGED
    assert run.engine == engine
    assert run.gaps[-1] <= 1e-8 * run.gaps[0] < run.gaps[-2]
    assert run.iterations == len(run.step_sizes) == len(run.gaps) - 1
    assert loss.gap(net.end_to_end().detach()) == pytest.approx(run.gaps[-1], rel=1e-6)
    assert torch.equal(net.W1.detach(), run.final["W1"])
    assert [row["iteration"] for row in run.rows] == list(range(len(run.rows)))
    assert run.certified
    assert run.certified_from == 0
    assert run.audit().holds


@ENGINES
def test_absolute_tolerance_whichever_comes_first(engine: str) -> None:
    run = descend(tolerance=0.0, absolute_tolerance=1e-3, engine=engine)
    assert run.status is sf.RunStatus.CONVERGED
    assert run.gaps[-1] <= 1e-3 < run.gaps[-2]
    assert descend(tolerance=0.9, absolute_tolerance=1e-3, engine=engine).iterations < run.iterations


@ENGINES
def test_no_iterations(engine: str) -> None:
    net = network()
    before = net.W1.detach().clone()
    run = descend(net, max_iterations=0, engine=engine)
    assert (run.status, run.iterations, len(run.gaps)) == (sf.RunStatus.MAX_ITERATIONS, 0, 1)
    # Gram space holds the weights as a product of factors, which rounds
    torch.testing.assert_close(net.W1.detach(), before, rtol=0, atol=0.0 if engine == "weights" else 1e-14)


def test_iteration_limit() -> None:
    run = descend(max_iterations=7, tolerance=0.0)
    assert (run.status, run.iterations) == (sf.RunStatus.MAX_ITERATIONS, 7)


@ENGINES
@pytest.mark.parametrize("x", [X, DUPLICATED])
def test_without_a_tolerance_it_stalls_at_the_rounding_level(engine: str, x: Tensor) -> None:
    loss = sf.SquaredLoss(x, Y)
    run = descend(network(x.shape[1]), loss, tolerance=0.0, max_iterations=5000, engine=engine)
    assert run.status is sf.RunStatus.STALLED
    assert run.gaps[-1] <= run.resolution < run.gaps[-2]
    assert run.audit().holds


def test_an_initial_gap_of_zero_has_converged() -> None:
    # W1 W2ᵀ reproduces the optimum exactly: X is orthonormal, so that nothing is rounded
    loss = sf.SquaredLoss(torch.eye(3, dtype=F64), torch.diag(torch.tensor([1.0, 2.0, 4.0], dtype=F64)))
    net = sf.nn.TwoLayerLinear(loss.optimum, torch.eye(3, dtype=F64))
    run = descend(net, loss)
    assert (run.status, run.gaps) == (sf.RunStatus.CONVERGED, [0.0])


@ENGINES
@pytest.mark.parametrize("x", [X, DUPLICATED])
def test_divergence_puts_the_initial_weights_back(engine: str, x: Tensor) -> None:
    net = network(x.shape[1])
    before = {name: value.clone() for name, value in net.state_dict().items()}
    run = descend(net, sf.SquaredLoss(x, Y), 1.0, engine=engine)
    assert run.status is sf.RunStatus.DIVERGED
    assert not run.certified
    *before_it, last = run.gaps
    assert all(gap <= DIVERGED * run.gaps[0] for gap in before_it) and len(before_it) == run.iterations
    assert not last <= DIVERGED * run.gaps[0]
    for name, value in before.items():
        torch.testing.assert_close(net.state_dict()[name], value, rtol=0, atol=1e-15)
    assert torch.equal(run.final["W2"], before["W2"])


@ENGINES
def test_divergence_keeps_the_last_good_checkpoint(tmp_path: Path, engine: str) -> None:
    net = network()
    run = descend(net, None, 0.03, engine=engine, directory=tmp_path / "run", tolerance=0.0)
    assert run.status is sf.RunStatus.DIVERGED
    kept = sorted((tmp_path / "run" / "checkpoints").iterdir())
    assert kept
    assert torch.equal(net.W1.detach(), run.final["W1"])
    assert all(bool(w.isfinite().all()) for w in run.final.values())
    again = sf.Run.load(tmp_path / "run")
    assert again.status is sf.RunStatus.DIVERGED
    assert torch.equal(again.final["W1"], run.final["W1"])
    # what is kept is stored as of the iteration it is of, and not as of the last step
    stored = {int(read_safetensors(file)["iteration"]): file for file in kept}
    assert again.final_iteration == run.final_iteration == max(stored) < run.iterations
    final = read_safetensors(tmp_path / "run" / "final.safetensors")
    assert int(final["iteration"]) == max(stored)
    assert np.array_equal(final["W1"], read_safetensors(stored[max(stored)])["W1"])


@pytest.mark.parametrize("cut_off", [False, True])
def test_kept_weights_are_stored_as_of_their_iteration(tmp_path: Path, cut_off: bool) -> None:
    net = network()
    if cut_off:  # killed before its end: what a run without final weights is loaded with are the initial ones
        descend(net, None, 1e-3, max_iterations=7, directory=tmp_path / "cut")
        (tmp_path / "cut" / "final.safetensors").unlink()
        run = sf.Run.load(tmp_path / "cut")
    else:
        run = descend(net, None, 1.0)
        assert run.status is sf.RunStatus.DIVERGED
    run.save(tmp_path / "run")
    assert run.iterations > 0 and run.final_iteration == 0
    assert int(read_safetensors(tmp_path / "run" / "final.safetensors")["iteration"]) == 0


class SignalAfter(sf.steps.StepRule):
    """A small constant step that sends this process a signal at one iteration."""

    name = "signal-after"

    def __init__(self, number: int, iteration: int) -> None:
        self.number, self.left = number, iteration

    def step(self, engine: Any) -> float:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), self.number)
        return 1e-4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_after_the_iteration(tmp_path: Path, number: int) -> None:
    before = signal.getsignal(number)
    run = descend(None, None, SignalAfter(number, 17), directory=tmp_path / "run")
    assert (run.status, run.iterations) == (sf.RunStatus.INTERRUPTED, 17)
    assert (tmp_path / "run" / "checkpoints" / "000000017.safetensors").is_file()
    assert sf.Run.load(tmp_path / "run").status is sf.RunStatus.INTERRUPTED
    assert signal.getsignal(number) is before


class Nothing(sf.steps.StepRule):
    """A rule that finds no step."""

    name = "nothing"

    def __init__(self, value: float) -> None:
        self.value = value

    def step(self, engine: Any) -> float:
        return self.value


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_rule_without_a_positive_finite_step_stalls(value: float) -> None:
    run = descend(None, None, Nothing(value))
    assert (run.status, run.iterations) == (sf.RunStatus.STALLED, 0)


@pytest.mark.parametrize("status", list(sf.RunStatus))
def test_every_status_says_what_happened(status: sf.RunStatus) -> None:
    assert len(status.text) > 20


def test_weights_beyond_float64_are_refused_before_the_first_step(tmp_path: Path) -> None:
    net = sf.nn.TwoLayerLinear.gaussian(5, 3, 12, std=1e30)
    with pytest.raises(ValueError, match="can be descended from in float64; scale the data and the weights"):
        descend(net, directory=tmp_path / "run")
    assert not (tmp_path / "run").exists()


# -- without a guarantee -----------------------------------------------------------------------------------------------


def test_a_narrow_network_runs_uncertified_with_a_suggestion() -> None:
    net = network(width=2)
    cert = sf.certify(net, sf.SquaredLoss(X, Y))
    assert cert.status is sf.CertificateStatus.FAILS
    assert "width 2 is below min(n, m) = 3" in cert.suggestion
    run = descend(net, max_iterations=50)
    assert not run.certified
    assert run.certified_from is None
    assert run.guaranteed_iterations(1e-3) == math.inf
    assert run.gaps[-1] < run.gaps[0]


def test_softmax_without_penalty_runs_uncertified_with_a_suggestion() -> None:
    loss = sf.SoftmaxRegression(X, torch.arange(40) % 3, 0.0)
    net = network()
    cert = sf.certify(net, loss)
    assert cert.status is sf.CertificateStatus.FAILS
    assert "use l2 > 0" in cert.suggestion
    run = descend(net, loss, max_iterations=30)
    assert not run.certified
    assert run.gaps[-1] < run.gaps[0]


@pytest.mark.parametrize("given", [1e-4, sf.steps.Constant(1e-4)])
def test_a_constant_step_is_certified_as_such(given: float | sf.steps.StepRule) -> None:
    run = descend(None, None, given, max_iterations=5)
    assert run.certificate.theorem == "two-layer/constant" and run.certificate.step_size == 1e-4
    assert run.certified and run.audit().holds


def test_a_constant_step_is_not_certified_by_a_theorem_that_does_not_speak_of_it() -> None:
    net, loss = network(), sf.SquaredLoss(X, Y)
    certificate = sf.certify(net, loss)
    run = descend(net, loss, 1e-4, max_iterations=5, certificate=certificate)
    assert certificate.holds and run.certificate is certificate and not run.certified


# -- certificates ------------------------------------------------------------------------------------------------------


def test_a_certificate_of_these_arrays_is_used() -> None:
    net, loss = network(), sf.SquaredLoss(X, Y)
    cert = sf.certify(net, loss, "two-layer/sharp")
    assert descend(net, loss, certificate=cert, max_iterations=3).certificate is cert


def test_a_certificate_of_other_arrays_is_refused() -> None:
    net, loss = network(), sf.SquaredLoss(X, Y)
    cert = sf.certify(net, loss)
    with pytest.raises(ValueError, match=r"speaks of other arrays \(problem/X, problem/optimum differ\)"):
        descend(net, sf.SquaredLoss(2 * X, Y), certificate=cert)
    with torch.no_grad():
        net.W1[0, 0] += 1e-12
    with pytest.raises(ValueError, match=r"speaks of other arrays \(initial/W1 differ\); call certify"):
        descend(net, loss, certificate=cert)


@ENGINES
@pytest.mark.parametrize("x", [X, DUPLICATED])
def test_certify_again_along_the_run(tmp_path: Path, engine: str, x: Tensor) -> None:
    net, loss = network(x.shape[1]), sf.SquaredLoss(x, Y)
    run = descend(net, loss, tolerance=1e-8, certify_every=10, engine=engine, directory=tmp_path / "run")
    assert [r.iteration for r in run.recertified] == list(range(10, run.iterations, 10))
    assert run.adopted
    assert [phase.iteration for phase in run.phases] == [0, *(r.iteration for r in run.adopted)]
    guaranteed = [phase.iterations_to(1e-8 * run.gaps[0]) for phase in run.phases]
    assert all(later < earlier for earlier, later in pairwise(guaranteed))
    assert run.guaranteed_iterations(1e-8) == guaranteed[-1]
    assert run.audit().holds
    for phase in run.adopted:
        assert phase.certificate.holds
        stored = read_tensors(tmp_path / "run" / "checkpoints" / f"{phase.iteration:09d}.safetensors")
        for name in ("W1", "W2"):  # the certificate speaks of exactly the stored weights
            assert phase.certificate.arrays[f"initial/{name}"] == digest(stored[name].numpy())
    again = sf.Run.load(tmp_path / "run")
    assert [r.certificate for r in again.adopted] == [r.certificate for r in run.adopted]
    assert [r.iteration for r in again.recertified] == [r.iteration for r in run.recertified]


def test_an_uncertified_start_becomes_certified_along_the_run() -> None:
    loss = sf.SquaredLoss(X, Y)
    # balanced layers: no imbalance to count on, and far from the optimum no margin either
    net = sf.nn.TwoLayerLinear(0.1 * torch.linalg.qr(normal(5, 3, seed=5))[0], 0.1 * torch.eye(3, dtype=F64))
    assert not sf.certify(net, loss).holds
    run = descend(net, loss, certify_every=10, tolerance=1e-10)
    assert run.status is sf.RunStatus.CONVERGED
    assert run.certified_from is not None
    assert run.certified_from > 0


# -- save and load -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("directory", [False, True])
def test_a_saved_run_reads_back_equal(tmp_path: Path, directory: bool) -> None:
    run = descend(tolerance=1e-6, certify_every=5, directory=tmp_path / "a" if directory else None)
    again = sf.Run.load(tmp_path / "a" if directory else run.save(tmp_path / "b"))
    assert again.rows == run.rows
    assert again.status is run.status
    assert again.certificate.to_json() == run.certificate.to_json()
    assert (again.rule, again.engine, again.certified, again.resolution) == (
        run.rule,
        run.engine,
        run.certified,
        run.resolution,
    )
    for a, b in ((again.final, run.final), (again.initial, run.initial), (again.problem, run.problem)):
        assert a.keys() == b.keys()
        assert all(torch.equal(a[name], b[name]) for name in a)
    assert str(again.audit()) == str(run.audit())


def test_runs_and_certificates_are_shown_in_a_line() -> None:
    net = sf.nn.TwoLayerLinear.gaussian(5, 3, 200, seed=0)
    run = descend(net, max_iterations=3)
    told = repr(run)
    assert told.startswith("<Run max_iterations: 3 iterations with certified-bb, gap ") and "\n" not in told
    assert told.endswith("certified by two-layer/drift>") and len(told) < 200
    assert repr(run.certificate).startswith("<Certificate of two-layer/drift: holds: first step ")
    narrow = sf.certify(network(width=1), sf.SquaredLoss(X, Y))
    assert repr(narrow).startswith("<Certificate of two-layer/drift: fails: imbalance and margin")
    assert repr(descend(net, steps=0.1, max_iterations=0)).endswith("uncertified>")


def test_certifying_again_without_a_target_goes_on() -> None:
    """Y = 0: the loss alone has no rounding level, the product of the layers has one, and that is what certificates aim at."""
    X = torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    loss = sf.SquaredLoss(X, torch.zeros(20, 2, dtype=torch.float64))
    assert loss.gap_resolution == 0.0
    net = sf.nn.TwoLayerLinear.gaussian(3, 2, 12, seed=1)
    run = sf.descend(net, loss, max_iterations=5, tolerance=0.0, certify_every=2, progress=False)
    assert run.status is sf.RunStatus.MAX_ITERATIONS
    assert [phase.iteration for phase in run.recertified] == [2, 4]
    assert run.resolution > 0.0 and run.audit().holds, str(run.audit())


@pytest.mark.parametrize("theorem", ["linear-resnet/local", "linear-resnet/gd"])
def test_a_step_of_the_callers_own_stays_when_a_new_certificate_is_adopted(theorem: str) -> None:
    X = torch.eye(2, dtype=torch.float64)
    net = sf.nn.LinearResNet.modified_identity(2, 2, 4, 3, 30.0)
    loss, eta = sf.SquaredLoss(X, X), 2e-4
    certificate = sf.certify(net, loss, theorem)
    run = sf.descend(net, loss, eta, 9, 0.0, certificate=certificate, certify_every=3, progress=False)
    assert bool(run.adopted) == (theorem == "linear-resnet/local")  # /gd speaks of zero weights only
    assert run.step_sizes == [eta] * 9 and not run.certified


def test_the_step_of_a_certificate_follows_the_next_certificate() -> None:
    net, loss = network(), sf.SquaredLoss(X, Y)
    certificate = sf.certify(net, loss, "two-layer/constant")
    assert certificate.holds
    run = sf.descend(
        net, loss, max_iterations=9, tolerance=0.0, certificate=certificate, certify_every=3, progress=False
    )
    assert run.adopted and run.certified and run.audit().holds, str(run.audit())
    assert run.step_sizes[-1] == run.adopted[-1].certificate.step_size != certificate.step_size
