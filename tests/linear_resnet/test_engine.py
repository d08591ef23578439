"""The reduced engine against PyTorch's own gradients of the plain module on the raw data."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from torch import Tensor

import surefoot as sf
from surefoot._core.certificate import digests
from surefoot._core.registry import system_of
from surefoot._linear_resnet.engine import SubspaceEngine
from surefoot._linear_resnet.reduction import reduce
from surefoot._linear_resnet.system import LinearResNetSystem

F64 = torch.float64
REL = 1e-9


class Instance(NamedTuple):
    """A network, and the raw data of its loss."""

    net: sf.nn.LinearResNet
    X: Tensor
    Y: Tensor

    @property
    def loss(self) -> sf.SquaredLoss:
        return sf.SquaredLoss(self.X, self.Y)

    def plain(self, W: Tensor) -> tuple[float, Tensor]:
        """Loss and gradient by autograd, at the weights W."""
        net = sf.nn.LinearResNet(self.net.A, self.net.B, W)
        value = 0.5 * (net(self.X) - self.Y).square().sum()
        value.backward()
        assert net.W.grad is not None
        return value.item(), net.W.grad


DATA = ["tall", "duplicated", "few samples", "low rank"]


def build(data: str, d: int, k: int, extra: int, depth: int, start: float, seed: int) -> Instance:
    """``start`` is the size of the initial weights, ``extra`` the width beyond max(d, k)."""
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=F64)

    width = max(d, k) + extra
    net = sf.nn.LinearResNet(normal(width, d), normal(k, width), start / width * normal(depth, width, width))
    samples = max(1, d - 1) if data == "few samples" else 2 * d + 1
    X = normal(samples, d)
    if data == "duplicated":
        X[:, -1] = X[:, 0]
    elif data == "low rank":
        X = X[:, : max(1, d - 1)] @ normal(max(1, d - 1), d)
    return Instance(net, X, normal(samples, k))


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    return build(
        draw(st.sampled_from(DATA)),
        draw(st.integers(1, 4)),
        draw(st.integers(1, 3)),
        draw(st.integers(0, 8)),
        draw(st.integers(1, 5)),
        draw(st.sampled_from([0.0, 0.3, 1.5])),
        draw(st.integers(0, 10_000)),
    )


CORNERS = [
    build("tall", 1, 1, 0, 1, 0.0, 0),  # every size is 1
    build("tall", 1, 1, 6, 3, 0.0, 1),
    build("duplicated", 4, 2, 8, 4, 0.0, 2),  # reduced data and subspace together
    build("few samples", 4, 3, 8, 2, 0.0, 3),
    build("few samples", 4, 1, 0, 5, 1.5, 4),
    build("low rank", 3, 3, 2, 1, 0.3, 5),
]


def relative(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm()) if bool(wanted.any()) else float(found.norm())


def every_corner(test: Any) -> Any:
    for corner in CORNERS:
        test = example(corner)(test)
    return test


@every_corner
@settings(max_examples=25)
@given(instances())
def test_gradients_are_those_of_autograd(case: Instance) -> None:
    _, wanted = case.plain(case.net.W.detach())
    assert relative(system_of(case.net).gradient(case.net, case.loss)["W"], wanted) <= REL


@every_corner
@settings(max_examples=25)
@given(instances())
def test_the_engine_is_gradient_descent_on_the_plain_module(case: Instance) -> None:
    net, loss = case.net, case.loss
    W = net.W.detach().clone()
    start, gradient = case.plain(W)
    gap = start - loss.optimal_value
    assume(gap > 1e-6 * start and bool(gradient.any()))
    eta = 0.2 * gap / float(gradient.square().sum())
    engine = system_of(net).engine(net, loss, "auto")
    assert isinstance(engine, SubspaceEngine)
    for _ in range(6):
        value, gradient = case.plain(W)
        assert engine.iterate.gap + loss.optimal_value == pytest.approx(value, rel=REL, abs=0.0)
        squared = float(gradient.square().sum())
        assert engine.iterate.gradient_squared == pytest.approx(squared, rel=REL, abs=0.0)
        before, trial = gradient, engine.iterate.trial(eta)
        W = W - eta * gradient
        engine.move(eta)
        value, gradient = case.plain(W)
        assert trial + loss.optimal_value == pytest.approx(value, rel=REL, abs=0.0)
        alignment = float((before * gradient).sum())
        # an inner product is rounded relative to the product of the norms, and the next gradient may be the larger one
        assert abs(engine.alignment - alignment) <= REL * float(before.norm() * gradient.norm())
        if value > 1e6 * start:  # the step diverges here, and the norms would soon overflow
            break
    system_of(net).write(net, loss, engine.weights())
    assert relative(net.W.detach(), W) <= REL


@every_corner
@settings(max_examples=25)
@given(instances())
def test_the_reduction_is_exact(case: Instance) -> None:
    loss = case.loss
    reduced = reduce(case.net, loss)
    width, rank, k = case.net.width, loss.reduced.shape[0], loss.shape[1]
    zero = not case.net.W.any()
    q = min(width, rank + k) if zero else width
    assert (tuple(reduced.A.shape), tuple(reduced.B.shape)) == ((q, rank), (k, q))
    assert tuple(reduced.W.shape) == (case.net.depth, q, q)
    small = sf.nn.LinearResNet(reduced.A, reduced.B, reduced.W)
    wanted = case.X @ case.net.end_to_end().detach()
    basis = torch.eye(loss.shape[0], dtype=F64) if loss.basis is None else loss.basis
    assert relative(case.X @ basis @ small.end_to_end().detach(), wanted) <= 1e-11
    # the rest of ‖XU - Y‖² is the optimal value
    rest = case.plain(case.net.W.detach())[0] - loss.optimal_value
    assert loss.reduced.gap(small.end_to_end().detach()) == pytest.approx(rest, rel=1e-9, abs=1e-11 * float(rest + 1))


@pytest.mark.parametrize("corner", range(len(CORNERS)))
def test_descend_puts_the_weights_back_at_full_width(corner: int) -> None:
    case = CORNERS[corner]
    net = sf.nn.LinearResNet(case.net.A, case.net.B, case.net.W)
    loss, start = case.loss, case.net.W.detach().clone()
    run = sf.descend(net, loss, max_iterations=25, tolerance=1e-8, progress=False)
    assert run.gaps[-1] < run.gaps[0]
    value = 0.5 * float((net(case.X) - case.Y).detach().square().sum())
    assert value - loss.optimal_value == pytest.approx(run.gaps[-1], rel=1e-9, abs=1e-12 * value)
    W = start
    for eta in run.step_sizes:
        W = W - eta * case.plain(W)[1]
    # rounding of the steps themselves grows along the run; the final loss above is compared to 1e-9
    assert relative(net.W.detach(), W) <= 1e-8


def test_from_zero_weights_the_rest_of_the_width_is_never_reached() -> None:
    case = build("tall", 3, 2, 9, 4, 0.0, 7)
    Q = reduce(case.net, case.loss).basis
    assert Q is not None and Q.shape == (12, 5)
    sf.descend(case.net, case.loss, max_iterations=20, progress=False)
    W = case.net.W.detach()
    assert float(W.norm()) > 1e-3
    projected = Q @ (Q.T @ W @ Q) @ Q.T
    assert relative(projected, W) <= 1e-14


_certify, _certificates = LinearResNetSystem.certify, {}


def remembered(
    system: LinearResNetSystem, net: Any, loss: Any, theorem: str, step: float | None = None
) -> sf.Certificate:
    """The certificate of the same arrays again: it depends on nothing else, and iterates repeat here."""
    key = (theorem, step, *sorted(digests(loss.reduced.arrays(), system.reduced(net, loss)).items()))
    if key not in _certificates:
        _certificates[key] = _certify(system, net, loss, theorem, step)
    return _certificates[key]


@pytest.mark.parametrize(
    ("rule", "data"),
    [("certified-bb", "tall"), ("certified-bb", "duplicated"), ("smooth", "tall"), ("polyak", "duplicated")],
)
def test_a_resumed_run_is_bit_for_bit_the_uninterrupted_one(
    rule: str, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LinearResNetSystem, "certify", remembered)

    def run(path: Path, iterations: int, resume: bool = False) -> tuple[sf.Run, Tensor]:
        # certified on the way, so that phases are resumed too; from zero weights and from others
        case = build(data, 4, 2, 20, 3, 0.0 if data == "tall" else 0.3, 1)
        result = sf.descend(
            *(case.net, case.loss, rule, iterations),
            tolerance=1e-10,
            certify_every=4,
            directory=path,
            resume=resume,
            progress=False,
        )
        return result, case.net.W.detach()

    whole, weights = run(tmp_path / "whole", 16)
    assert whole.iterations > 8 and whole.adopted
    for stop in (3, 8, 9):
        run(tmp_path / "cut", stop)
        again, found = run(tmp_path / "cut", 16, resume=True)
        assert again.rows == whole.rows and again.status == whole.status
        phases = [[(p.iteration, p.certificate.digest) for p in r.adopted] for r in (again, whole)]
        assert phases[0] == phases[1]
        assert torch.equal(found, weights)
        shutil.rmtree(tmp_path / "cut")


def test_a_loaded_run_has_the_same_weights_and_audit(tmp_path: Path) -> None:
    case = build("duplicated", 4, 2, 12, 3, 0.3, 8)
    run = sf.descend(case.net, case.loss, max_iterations=20, directory=tmp_path / "run", progress=False)
    loaded = sf.Run.load(tmp_path / "run")
    assert loaded.rows == run.rows and str(loaded.audit()) == str(run.audit())
    for name, tensor in run.final.items():
        assert torch.equal(loaded.final[name], tensor)
    assert torch.equal(loaded.network["W"], case.net.W.detach())


@pytest.mark.parametrize("steps", [1e-2, 1e300, "certified-bb"])
def test_overflowing_steps_and_weights_do_not_warn(steps: Any) -> None:
    X = torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scale = 1e-30 if steps == "certified-bb" else 1.0  # Polyak's first trial step then overflows
    usual = sf.nn.LinearResNet.modified_identity(3, 3, 8, 4, 50.0)
    net = sf.nn.LinearResNet(scale * usual.A, scale * usual.B, usual.W)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = sf.descend(net, sf.SquaredLoss(X, -X), steps, 10, progress=False)
    if scale == 1.0:
        assert run.status is sf.RunStatus.DIVERGED
        assert not run.certified and not net.W.any()  # the last good weights
    else:
        assert run.gaps[-1] < run.gaps[0]
