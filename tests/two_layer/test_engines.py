"""Gram space against weight space against PyTorch's own gradients of the plain module."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

import surefoot as sf
from surefoot._core.registry import system_of
from surefoot._two_layer import planner
from surefoot._two_layer.engines import ENGINES, GramEngine, WeightEngine
from surefoot._two_layer.iterate import GRAM_LIMIT
from surefoot._two_layer.system import reduced_weights


def close(expected: Any, rel: float) -> Any:
    """Relative agreement alone; by default pytest would also allow an absolute 1e-12."""
    return pytest.approx(expected, rel=rel, abs=0.0)


class Instance(NamedTuple):
    """A network, its loss, and the same loss as PyTorch sees it on the raw data."""

    net: sf.nn.TwoLayerLinear
    loss: sf.Loss
    data: tuple[Tensor, Tensor]

    def plain_loss(self, net: sf.nn.TwoLayerLinear) -> Tensor:
        first, second = self.data
        if isinstance(self.loss, sf.SquaredLoss):
            return 0.5 * ((net(first) - second) ** 2).sum()
        if isinstance(self.loss, sf.MatrixSensing):
            return 0.5 * (((first * net.end_to_end()).sum((1, 2)) - second) ** 2).sum()
        assert isinstance(self.loss, sf.SoftmaxRegression)
        penalty = 0.5 * self.loss.l2 * (net.end_to_end() ** 2).sum()
        return functional.cross_entropy(net(first), second) + penalty

    def gradients(self, W1: Tensor, W2: Tensor) -> tuple[Tensor, Tensor]:
        """By autograd, at these weights."""
        net = sf.nn.TwoLayerLinear(W1, W2)
        self.plain_loss(net).backward()
        assert net.W1.grad is not None and net.W2.grad is not None
        return net.W1.grad, net.W2.grad


def build(kind: str, n: int, m: int, width: int, std: float, scale: float, seed: int) -> Instance:
    g = torch.Generator().manual_seed(seed)
    net = sf.nn.TwoLayerLinear.gaussian(n, m, width, std, generator=g)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    if kind in ("squared", "squared-deficient"):
        X, Y = scale * normal(2 * n + 1, n), scale * normal(2 * n + 1, m)
        if kind == "squared-deficient":
            rank = max(1, n - 1)
            X = X[:, :rank] @ normal(rank, n)
        return Instance(net, sf.SquaredLoss(X, Y), (X, Y))
    if kind == "softmax":
        X, labels = normal(4 * n, n), torch.arange(4 * n) % m
        return Instance(net, sf.SoftmaxRegression(X, labels, 0.1, m), (X, labels))
    count = n * m + 2 if kind == "sensing" else max(1, n * m - 1)
    A, y = scale * normal(count, n, m), scale * normal(count)
    return Instance(net, sf.MatrixSensing(A, y), (A, y))


KINDS = ["squared", "squared-deficient", "sensing", "sensing-deficient", "softmax"]


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    return build(
        draw(st.sampled_from(KINDS)),
        draw(st.integers(1, 4)),
        draw(st.integers(1, 4)),
        draw(st.integers(1, 8)),
        draw(st.sampled_from([0.3, 1.0, 2.0])),
        draw(st.sampled_from([0.1, 1.0, 10.0])),
        draw(st.integers(0, 10**6)),
    )


def both(instance: Instance) -> tuple[GramEngine, WeightEngine]:
    reduced = reduced_weights(instance.net, instance.loss)
    return GramEngine(instance.loss.reduced, *reduced), WeightEngine(instance.loss.reduced, *reduced)


def sharp_step(engine: GramEngine | WeightEngine) -> float:
    return planner.cubic_root(*engine.iterate.sharp)


COMPARED = ["gap", "gradient_squared", "drift_per_step", "sigma_max_squared", "k0", "k1", "k2", "map_norm"]


@settings(max_examples=60)
@given(instances())
@example(build("squared", 3, 2, 2, 1.0, 1.0, 0))  # width below n
@example(build("squared", 4, 1, 6, 1.0, 1.0, 1))  # m = 1
@example(build("squared", 1, 3, 6, 1.0, 1.0, 2))  # n = 1
@example(build("squared", 2, 2, 1, 1.0, 1.0, 3))  # h = 1
@example(build("sensing-deficient", 2, 3, 7, 1.0, 1.0, 4))
def test_the_engines_follow_the_same_trajectory(instance: Instance) -> None:
    gram, weights = both(instance)
    # below, the gap is the rounding of W: a relative error of 1e-6 needs sqrt(gap) 1e6 times above it
    # (where W* is 0, as with one class, the product W1W2ᵀ rounds at the size of its factors)
    rounding = (
        0.5 * instance.loss.smoothness * (torch.finfo(torch.float64).eps * weights.iterate.sigma_max_squared) ** 2
    )
    lowest = max(1e-18 * gram.iterate.gap, 1e12 * instance.loss.gap_resolution, 1e12 * rounding)
    # below width n + m the path may pass saddles, which magnify any difference of rounding: a few steps only
    few = instance.net.width < sum(instance.loss.shape)
    for _ in range(6 if few else 150):
        if weights.iterate.gap <= lowest:
            break
        a, b = gram.iterate.measurements, weights.iterate.measurements
        for name in COMPARED:
            assert a[name] == close(b[name], 1e-6), name
        if "curvature" in a:  # ‖𝒳C‖/‖E‖, where C = gWᵀg may cancel: against ‖𝒳‖‖W‖‖g‖‖g‖_F/‖E‖
            size = 2.0 * b["k2"] / (2.0 * instance.loss.smoothness * b["gap"]) ** 0.5
            assert a["curvature"] == pytest.approx(b["curvature"], rel=1e-6, abs=1e-6 * size)
        assert a["sigma_min_squared"] == pytest.approx(
            b["sigma_min_squared"], rel=1e-6, abs=1e-14 * b["sigma_max_squared"]
        )
        eta = sharp_step(weights)
        assert sharp_step(gram) == close(eta, 1e-6)
        gram.move(eta)
        weights.move(eta)
        if weights.iterate.gap > lowest:
            size = (b["gradient_squared"] * weights.iterate.gradient_squared) ** 0.5
            assert gram.alignment == pytest.approx(weights.alignment, rel=1e-6, abs=1e-6 * size)
    scale = max(float(layer.abs().max()) for layer in weights.weights().values())
    for name, layer in weights.weights().items():
        torch.testing.assert_close(gram.weights()[name], layer, rtol=0.0, atol=1e-9 * scale)


@pytest.mark.parametrize("width", [3, 40])
def test_the_engines_agree_down_to_1e_18_of_the_initial_gap(width: int) -> None:
    gram, weights = both(build("squared", 3, 3, width, 1.0, 1.0, 5))
    first, lowest = gram.iterate.gap, gram.iterate.gap
    for _ in range(5000):
        eta = sharp_step(weights)
        gram.move(eta)
        weights.move(eta)
        if weights.iterate.gap <= 1e-18 * first:
            break
        lowest = weights.iterate.gap
        assert gram.iterate.gap == close(lowest, 1e-6)
    assert lowest < 1e-17 * first


@settings(max_examples=60)
@given(instances())
def test_gradients_are_those_of_the_plain_module(instance: Instance) -> None:
    net, loss = instance.net, instance.loss
    G1, G2 = instance.gradients(net.W1.detach(), net.W2.detach())
    gradient = system_of(net).gradient(net, loss)
    scale = float(torch.cat([G1, G2]).abs().max())
    torch.testing.assert_close(gradient["W1"], G1, rtol=1e-9, atol=1e-10 * scale)
    torch.testing.assert_close(gradient["W2"], G2, rtol=1e-9, atol=1e-10 * scale)
    for engine in both(instance):
        iterate = engine.iterate
        squared = float((G1**2).sum() + (G2**2).sum())
        assert iterate.gradient_squared == close(squared, 1e-9)
        spectral = float(torch.linalg.matrix_norm(G1, 2) ** 2 + torch.linalg.matrix_norm(G2, 2) ** 2)
        assert iterate.drift_per_step == close(spectral, 1e-9)


@settings(max_examples=60)
@given(instances(), st.floats(-2.0, 0.3))
def test_alignment_is_the_product_of_successive_gradients(instance: Instance, exponent: float) -> None:
    net = instance.net
    W1, W2 = net.W1.detach(), net.W2.detach()
    for engine in both(instance):
        eta = 10.0**exponent * sharp_step(engine)
        G1, G2 = instance.gradients(W1, W2)
        H1, H2 = instance.gradients(W1 - eta * G1, W2 - eta * G2)
        engine.move(eta)
        size = float(((G1**2).sum() + (G2**2).sum()).sqrt() * ((H1**2).sum() + (H2**2).sum()).sqrt())
        assert engine.alignment == pytest.approx(float((G1 * H1).sum() + (G2 * H2).sum()), rel=1e-9, abs=1e-9 * size)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", KINDS)
def test_descent_equals_sgd_on_the_plain_module(kind: str, engine: str) -> None:
    """Ten steps of torch.optim.SGD on the raw data against ``descend``; what never moves stays in place."""
    instance = build(kind, 3, 2, 7, 1.0, 1.0, 11)
    plain = sf.nn.TwoLayerLinear(instance.net.W1.detach(), instance.net.W2.detach())
    eta = 0.5 * sharp_step(both(instance)[1])
    optimiser = torch.optim.SGD(plain.parameters(), lr=eta)
    losses = []
    for _ in range(10):
        optimiser.zero_grad()
        value = instance.plain_loss(plain)
        losses.append(value.item())
        value.backward()
        optimiser.step()
    run = sf.descend(
        instance.net, instance.loss, steps=eta, max_iterations=10, tolerance=0.0, engine=engine, progress=False
    )
    assert run.engine == engine and run.iterations == 10
    assert [gap + instance.loss.optimal_value for gap in run.gaps[:10]] == close(losses, 1e-9)
    torch.testing.assert_close(instance.net.W1, plain.W1, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(instance.net.W2, plain.W2, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("ratio", [1e-2, 1e-5, 1e-6, 1e-7])
def test_tiny_singular_values_come_from_the_weights(ratio: float) -> None:
    """W1 (3, 6) with σ = 1, 0.5 and ``ratio``: the eigenvalues of its Gram lose the square of the last one."""
    g = torch.Generator().manual_seed(3)

    def orthonormal(rows: int, columns: int) -> Tensor:
        return torch.linalg.qr(torch.randn(rows, columns, generator=g, dtype=torch.float64))[0]

    W1 = orthonormal(3, 3) @ torch.diag(torch.tensor([1.0, 0.5, ratio], dtype=torch.float64)) @ orthonormal(6, 3).T
    W2 = 1e-12 * orthonormal(6, 2).T  # hides nothing of λ_min(W1W1ᵀ)
    loss = sf.SquaredLoss(torch.randn(9, 3, generator=g, dtype=torch.float64), torch.randn(9, 2, dtype=torch.float64))
    engine = GramEngine(loss, W1, W2)
    assert engine.iterate.sigma_min_squared == close(ratio * ratio, 1e-6)
    if ratio * ratio < 1e-6 * GRAM_LIMIT:
        raw = float(torch.linalg.eigvalsh(W1 @ W1.T)[0])
        assert raw != close(ratio * ratio, 1e-6)  # what the fall-back is for
    engine.move(1e-3 * sharp_step(engine))
    layers = engine.weights().values()
    assert engine.iterate.sigma_min_squared == close(sum(float(torch.linalg.svdvals(W)[-1]) ** 2 for W in layers), 1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_layer_taller_than_wide_has_no_smallest_singular_value(engine: str) -> None:
    """λ_min(W1W1ᵀ) is 0 for W1 (3, 2), whose last singular value is 1."""
    W1 = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    W2 = torch.tensor([[2.0, 0.0]], dtype=torch.float64)
    loss = sf.SquaredLoss(torch.eye(3, dtype=torch.float64), torch.ones(3, 1, dtype=torch.float64))
    assert ENGINES[engine](loss, W1, W2).iterate.sigma_min_squared == 4.0


@pytest.mark.parametrize(("width", "engine"), [(1, "gram"), (20, "auto")])
def test_runs_that_stay_at_a_saddle_do_not_blow_up(width: int, engine: str) -> None:
    """Weights of rank one end at a saddle, where the recursion of the Gram alone multiplied its rounding errors."""
    for seed in range(6):
        g = torch.Generator().manual_seed(seed)

        def normal(*shape: int, g: torch.Generator = g) -> Tensor:
            return torch.randn(*shape, generator=g, dtype=torch.float64)

        common = normal(1, width)
        net = sf.nn.TwoLayerLinear(normal(3, 1) @ common, normal(3, 1) @ common)
        loss = sf.SquaredLoss(normal(9, 3), normal(9, 3))
        run = sf.descend(net, loss, "sharp", 1500, engine=engine, progress=False)
        assert run.engine == "gram" and run.status is not sf.RunStatus.DIVERGED
        assert run.audit().holds, str(run.audit())


def test_a_checkpoint_of_another_rotation_is_rotated_anew() -> None:
    """The signs of a QR factor depend on the library: the checkpoint's weights decide."""
    instance = build("squared", 3, 2, 9, 1.0, 1.0, 7)
    first, second = both(instance)[0], both(instance)[0]
    for _ in range(3):
        first.move(sharp_step(first))
    weights, state = first.weights(), first.state()
    state["V1"], state["V2"] = -state["V1"], -state["V2"]
    second.restore(weights, state)
    first.move(sharp_step(first))
    second.move(sharp_step(second))
    for name, layer in first.weights().items():
        torch.testing.assert_close(second.weights()[name], layer, rtol=1e-11, atol=1e-12)


def test_unknown_engines_are_named() -> None:
    instance = build("squared", 2, 2, 5, 1.0, 1.0, 0)
    with pytest.raises(ValueError, match=r"unknown engine 'gramm'; did you mean 'gram'\?"):
        sf.descend(instance.net, instance.loss, engine="gramm", progress=False)


def test_auto_takes_the_smaller_space() -> None:
    narrow, wide = build("squared", 3, 2, 4, 1.0, 1.0, 0), build("squared", 3, 2, 5, 1.0, 1.0, 0)
    for instance, expected in ((narrow, "weights"), (wide, "gram")):
        run = sf.descend(instance.net, instance.loss, max_iterations=1, progress=False)
        assert run.engine == expected
