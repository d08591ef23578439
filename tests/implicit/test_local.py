"""``implicit/local`` and ``implicit/exact-fit`` in the library: after any training, along runs, watched, and what is said of
failures."""

from __future__ import annotations

import copy
import math
import re
from functools import cache
from pathlib import Path

import pytest
import torch
from draws import normal
from torch import Tensor

import surefoot as sf
from surefoot._core.near_a_fit.finish import finish
from surefoot._core.near_a_fit.steps import GaussNewton
from surefoot_check import Outcome, check

LOCAL, EXACT = "implicit/local", "implicit/exact-fit"
Problem = tuple[sf.nn.ImplicitReLU, sf.SquaredLoss]


def data(outputs: int = 1) -> tuple[Tensor, Tensor]:
    """Five unit rows."""
    X = normal(5, 4, seed=0)
    return X / X.norm(dim=1, keepdim=True), normal(5, outputs, seed=3)


def adam(net: sf.nn.ImplicitReLU, X: Tensor, Y: Tensor, steps: int, watch: sf.Watch | None = None) -> None:
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        (0.5 * (net(X).reshape(Y.shape) - Y).square().sum()).backward()
        optimizer.step()
        if watch is not None:
            watch.step()


@cache
def _trained(outputs: int, finished: bool) -> Problem:
    X, Y = data(outputs)
    net, loss = sf.nn.ImplicitReLU.gaussian(4, 20, outputs=outputs), sf.SquaredLoss(X, Y)
    adam(net, X, Y, 100)
    while finished and not sf.certify(net, loss, LOCAL).holds:
        finish(net, loss, GaussNewton(), 1)
    return net, loss


def trained(outputs: int = 1, finished: bool = True) -> Problem:
    """After Adam, and Gauss-Newton steps until a fit is guaranteed."""
    net, loss = _trained(outputs, finished)
    return copy.deepcopy(net), loss


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("rule", [None, "floor", "gauss-newton"])
def test_descent_from_trained_weights_keeps_every_inequality(rule: str | None, outputs: int) -> None:
    net, loss = trained(outputs)
    certificate = sf.certify(net, loss, LOCAL)
    assert certificate.holds and certificate.rule == "certified-bb" and certificate.radius is not None
    run = sf.descend(net, loss, rule, 5000, 1e-2, certificate=certificate, progress=False)
    assert run.status is sf.RunStatus.CONVERGED and run.certified and run.audit().holds
    assert run.iterations <= certificate.iterations_to(1e-2)
    assert max(row["distance"] for row in run.rows) <= certificate.radius


def test_a_step_of_ones_own_has_a_guarantee_of_its_own() -> None:
    net, loss = trained()
    step = 0.5 * (sf.certify(net, loss, LOCAL).step_size or 0.0)
    certificate = sf.certify(net, loss, LOCAL, step=step)
    assert certificate.holds and certificate.step_size == step
    run = sf.descend(net, loss, step, 5000, 0.1, certificate=certificate, progress=False)
    assert run.certified and run.audit().holds and run.iterations <= certificate.iterations_to(0.1)
    assert not sf.certify(net, loss, LOCAL, step=1.0).holds


def test_an_exact_fit_is_near_where_descent_is_not_yet_guaranteed() -> None:
    net, loss = trained()
    certificate = sf.certify(net, loss, EXACT)
    assert certificate.holds and certificate.rule == "simplified-newton"
    run = sf.descend(net, loss, None, 20, 1e-12, certificate=certificate, progress=False)
    assert run.certified and run.audit().holds and run.iterations <= certificate.iterations_to(1e-12)


@pytest.mark.parametrize("rule", ["certified-constant", "well-posed"])
def test_newtons_step_is_no_step_along_the_gradient(rule: str) -> None:
    net, loss = trained()
    run = sf.descend(net, loss, rule, 3, 0.0, certificate=sf.certify(net, loss, EXACT), progress=False)
    assert run.rows[-1]["gap"] < run.rows[0]["gap"] and not run.certified


def test_a_loop_of_ones_own_is_watched() -> None:
    X, Y = data()
    net, loss, said = sf.nn.ImplicitReLU.gaussian(4, 20), sf.SquaredLoss(X, Y), []
    first = net.equilibrium(X).Z
    watch = sf.watch(net, loss, every=30, share=1.0, report=said.append)
    adam(net, X, Y, 60, watch)
    assert watch.theorem == LOCAL and [seen.iteration for seen in watch.history] == [30, 60] and not said
    while watch.certified is None:
        finish(net, loss, GaussNewton(), 1)
        watch.iteration += 1
        watch.look()
    assert len(said) == 1 and f"from iteration {watch.certified} on an exact fit is guaranteed within" in said[0]
    assert watch.certificate == sf.certify(net, loss, LOCAL) and watch.certified <= 63
    share = float(torch.dist(net.equilibrium(X).Z, first) / first.norm())
    assert watch.history[-1].moved == (pytest.approx(share, rel=1e-9),) and share > 0.2
    assert all(seen.holds == (seen.margin > 1.0 + 1e-6) for seen in watch.history)


def test_the_trace_of_a_loop_of_ones_own_is_audited() -> None:
    net, loss = trained()
    certificate, trace = sf.certify(net, loss, LOCAL), sf.Trace(loss)
    assert certificate.step_size is not None and loss.samples is not None
    X, Y = loss.samples
    optimizer = torch.optim.SGD(net.parameters(), certificate.step_size)
    net.tolerance = 1e-14
    for _ in range(4):
        trace.record(net, certificate.step_size)
        optimizer.zero_grad()
        (0.5 * (net(X).reshape(Y.shape) - Y).square().sum()).backward()
        optimizer.step()
    trace.record(net)
    audit = sf.audit(trace, certificate)
    assert audit.holds, audit
    assert trace.rows[0]["distance"] == 0.0 < trace.rows[-1]["distance"]


def test_a_run_is_certified_along_the_way_and_resumed(tmp_path: Path) -> None:
    """From where nothing holds; distances are measured from where the certificate begins."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"

    def descended(directory: Path, limit: int) -> sf.Run:
        net, loss = trained(finished=False)
        certificate = sf.certify(net, loss, LOCAL)
        assert not certificate.holds
        along = {"certificate": certificate, "certify_every": 1, "directory": directory, "progress": False}
        return sf.descend(net, loss, "gauss-newton", limit, 0.0, resume=directory.exists(), **along)

    run = descended(whole, 14)
    for limit in (run.iterations - 1, 14):
        descended(cut, limit)
    assert run.adopted and run.certified_from and run.audit().holds
    adopted = run.adopted[-1].iteration
    assert run.rows[adopted]["distance"] == 0.0
    for name in ("certificate.json", "initial.safetensors", "final.safetensors", "trace.jsonl"):
        assert (whole / name).read_bytes() == (cut / name).read_bytes(), name
    assert check(whole).outcome is Outcome.ACCEPT


@pytest.mark.parametrize("level", ["fast", "exact"])
def test_the_checker_accepts(level: str, tmp_path: Path) -> None:
    for theorem, rule in ((LOCAL, "certified-bb"), (EXACT, None)):
        net, loss = trained()
        directory = tmp_path / theorem.replace("/", "-")
        certificate = sf.certify(net, loss, theorem)
        sf.descend(net, loss, rule, 20, 1e-3, certificate=certificate, directory=directory, progress=False)
        assert check(directory, level).outcome is Outcome.ACCEPT


# -- what is said of failures ------------------------------------------------------------------------------------------


def test_following_the_suggestion_of_the_default_theorem_ends_with_a_certificate() -> None:
    net, loss = trained(finished=False)
    certificate = sf.certify(net, loss)
    assert certificate.theorem == "implicit/spectral" and not certificate.holds
    assert "sf.certify(net, loss, 'implicit/local')" in certificate.suggestion
    assert 'sf.descend(net, loss, steps="gauss-newton")' in certificate.suggestion
    assert not sf.certify(net, loss, LOCAL).holds
    sf.descend(net, loss, steps="gauss-newton", progress=False)
    assert sf.certify(net, loss, LOCAL).holds


def test_a_kink_that_is_too_near_is_named_with_the_residual_that_will_do() -> None:
    """Where the residual alone would do; at the residual that is said there is a certificate."""
    net, loss = trained()
    X = data()[0]
    f = net(X).detach()[:, None]
    r = torch.nn.functional.normalize(normal(5, 1, seed=4), dim=0)
    q = sf.certify(net, loss, LOCAL).quantities
    size = 0.01 * q["sigma_min_J"] ** 2 / (2.0 * q["lipschitz_J"])
    failed = sf.certify(net, sf.SquaredLoss(X, f + size * r), LOCAL)
    assert [c.name for c in failed.conditions if not c.holds] == [
        "(5): no pre-activation reaches a kink in the ball: margin > 1"
    ]
    assert "train on: nearest to a kink is" in failed.suggestion and "is a finish of a few steps" in failed.suggestion
    found = re.search(r"to it is (\S+) of what may be passed", failed.suggestion)
    assert found is not None
    assert sf.certify(net, sf.SquaredLoss(X, f + 0.99 * float(found[1]) * size * r), LOCAL).holds


def test_a_residual_that_is_too_large_is_said_with_the_size_that_will_do() -> None:
    net, _ = trained()
    X, Y = data()
    failed = sf.certify(net, sf.SquaredLoss(X, 30.0 * Y), LOCAL)
    assert {"residual", "kink"} <= {
        word for c in failed.conditions if not c.holds for word in re.findall(r"\w+", c.name)
    }
    assert "train on with any optimiser, until the norm of the residual is about" in failed.suggestion


def test_without_full_row_rank_or_an_equilibrium_it_says_so() -> None:
    net, loss = trained()
    assert loss.samples is not None
    X, Y = loss.samples
    equal = sf.certify(net, sf.SquaredLoss(X[[0, 0, 1]], Y[[0, 1, 2]]), LOCAL)
    assert not equal.holds and "rows 0, 1 are equal" in equal.suggestion, equal
    with torch.no_grad():
        net.A.mul_(10.0)
    lost = sf.certify(net, loss, LOCAL)
    assert not lost.holds and "gamma |A| is not below 1" in lost.suggestion
    with pytest.raises(sf.nn.NotWellPosed, match="use gamma below"):
        sf.descend(net, loss, "gauss-newton", 1, certificate=lost, progress=False)


def test_a_training_that_loses_the_equilibrium_is_seen_by_a_watch() -> None:
    net, loss = trained()
    watch = sf.watch(net, loss, every=1, share=1.0, report=None)
    with torch.no_grad():
        net.A.mul_(10.0)
    certificate = watch.step()
    assert certificate is not None and not certificate.holds and "gamma |A| is not below 1" in certificate.suggestion
    assert watch.history[-1].loss == math.inf and watch.margin == 0.0
    with torch.no_grad():
        net.A.mul_(0.1)
    found = watch.step()
    assert found is not None and found.holds and watch.history[-1].loss < 1e-6


def test_units_on_their_kinks_are_said_to_stay_there() -> None:
    """At A = I and b = 0, where the Jacobian has full row rank: a smaller residual would not help."""
    X, Y = data()
    A, b = torch.eye(20, dtype=torch.float64), torch.zeros(20, dtype=torch.float64)
    net = sf.nn.ImplicitReLU(normal(4, 20, seed=1), A, b, 0.3)
    failed = sf.certify(net, sf.SquaredLoss(X, Y), LOCAL)
    assert any("row rank" in c.name and c.holds for c in failed.conditions)
    assert "arguments of relu are 0" in failed.suggestion and "residual" not in failed.suggestion


def test_arrays_that_would_fill_the_memory_are_refused() -> None:
    many = torch.arange(1.0, 20001.0, dtype=torch.float64)[:, None]
    one = torch.ones(1, 1, dtype=torch.float64)
    net = sf.nn.ImplicitReLU(one, one, one, 0.5)
    with pytest.raises(ValueError, match=r"the Gram matrix of the Jacobian would have 400,000,000 .*use fewer rows"):
        sf.certify(net, sf.SquaredLoss(many, many), LOCAL)


def test_digits_are_certified_after_their_features_moved() -> None:
    """The cheap form of what must show on MNIST: three of three seeds, at most three steps of the finish."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(n_class=2, return_X_y=True)
    X, y = torch.nn.functional.normalize(torch.tensor(images[:12])), torch.tensor(labels[:12]).double()
    for seed in range(3):
        net = sf.nn.ImplicitReLU.gaussian(64, 48, generator=torch.Generator().manual_seed(seed))
        loss, first = sf.SquaredLoss(X, y), net.equilibrium(X).Z
        adam(net, X, y[:, None], 60)
        moved = float(torch.dist(net.equilibrium(X).Z, first) / first.norm())
        steps = 0
        while not sf.certify(net, loss, LOCAL).holds:
            finish(net, loss, GaussNewton(), 1)
            steps += 1
        assert steps <= 3 and moved >= 0.4
