"""The networks: constructors, forward map, and arguments that are refused."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pytest
import torch
from draws import normal
from torch import Tensor

import surefoot as sf
from surefoot._linear_resnet.network import sufficient_alpha

F64 = torch.float64
ResNet = sf.nn.LinearResNet


def explicit(d: int = 3, k: int = 2, m: int = 5, depth: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    return normal(m, d, seed=1), normal(k, m, seed=2), 0.3 * normal(depth, m, m, seed=3)


# -- forward -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 4])
def test_forward_is_the_formula(depth: int) -> None:
    A, B, W = explicit(depth=depth)
    net, x = ResNet(A, B, W), normal(3, seed=4)
    product = B
    for layer in reversed(W):
        product = product @ (torch.eye(5, dtype=F64) + layer)
    torch.testing.assert_close(net(x[None]).detach()[0], product @ A @ x, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(net.end_to_end().detach(), (product @ A).T, rtol=1e-13, atol=1e-13)
    assert (net.depth, net.width) == (depth, 5)


def test_rows_are_samples() -> None:
    net, X = ResNet(*explicit()), normal(7, 3)
    assert net(X).shape == (7, 2) and net.end_to_end().shape == (3, 2)
    torch.testing.assert_close(net(X), X @ net.end_to_end(), rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(net(X)[2], net(X[2:3])[0], rtol=1e-13, atol=1e-13)


def test_the_standard_network_has_no_skip_connections() -> None:
    A, B, W = explicit()
    X = normal(7, 3)
    wanted = X @ A.T @ W[0].T @ W[1].T @ W[2].T @ W[3].T @ B.T
    torch.testing.assert_close(sf.nn.LinearNet(A, B, W)(X).detach(), wanted, rtol=1e-13, atol=1e-13)
    shifted = sf.nn.LinearNet(A, B, W + torch.eye(5, dtype=F64))
    torch.testing.assert_close(shifted(X), ResNet(A, B, W)(X), rtol=1e-13, atol=1e-13)


def test_only_the_layers_are_trained_and_all_of_the_network_is_saved() -> None:
    net = ResNet(*explicit())
    assert [name for name, _ in net.named_parameters()] == ["W"]
    assert set(net.state_dict()) == {"A", "B", "W"}
    other = ResNet(*(torch.ones_like(t) for t in explicit()))
    other.load_state_dict(net.state_dict())
    X = normal(7, 3)
    assert torch.equal(other(X), net(X))


def test_the_arguments_are_copied() -> None:
    A, B, W = explicit()
    net, X = ResNet(A, B, W), normal(7, 3)
    before = net(X).detach().clone()
    for tensor in (A, B, W):
        tensor.zero_()
    assert torch.equal(net(X).detach(), before)


def test_arrays_lists_and_float32_are_taken_as_float64() -> None:
    A, B, W = explicit()
    X = normal(7, 3)
    for convert in (lambda t: t.numpy(), lambda t: t.tolist(), lambda t: t.float().double()):
        net = ResNet(convert(A), convert(B), convert(W))
        assert net.W.dtype == F64
        torch.testing.assert_close(net(X), ResNet(A, B, W)(X), rtol=1e-6, atol=1e-6)
    single = ResNet(A.float(), B.float(), W.float())
    assert {t.dtype for t in (single.A, single.B, single.W)} == {F64}


# -- constructors ------------------------------------------------------------------------------------------------------


def test_gaussian_transformations() -> None:
    net = ResNet.gaussian(20, 10, 400, 3, seed=5)
    assert (tuple(net.A.shape), tuple(net.B.shape), tuple(net.W.shape)) == ((400, 20), (10, 400), (3, 400, 400))
    assert not net.W.any()
    assert float(net.A.std()) == pytest.approx(400**-0.5, rel=0.05)
    assert float(net.B.std()) == pytest.approx(10**-0.5, rel=0.05)
    unit = ResNet.gaussian(20, 10, 400, 3, "unit", seed=5)
    torch.testing.assert_close(unit.A, net.A * 20.0, rtol=1e-14, atol=0.0)
    torch.testing.assert_close(unit.B, net.B * 10**0.5, rtol=1e-14, atol=0.0)


@pytest.mark.parametrize("kind", [ResNet, sf.nn.LinearNet])
def test_draws_repeat_by_seed_and_by_generator(kind: Any) -> None:
    def state(**source: Any) -> list[Tensor]:
        net = kind.gaussian(3, 2, 6, 2, **source)
        return [net.A, net.B, net.W.detach()]

    first = state(seed=1)
    assert all(torch.equal(a, b) for a, b in zip(first, state(seed=1), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(first, state(generator=torch.Generator().manual_seed(1)), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(state(), state(seed=0), strict=True))
    assert not torch.equal(first[0], state(seed=2)[0])


def test_draws_from_one_generator_differ(generator: torch.Generator) -> None:
    assert not torch.equal(
        ResNet.gaussian(3, 2, 6, 2, generator=generator).A, ResNet.gaussian(3, 2, 6, 2, generator=generator).A
    )


def test_the_standard_network_is_scaled_by_its_width() -> None:
    net = sf.nn.LinearNet.gaussian(20, 10, 200, 3, seed=5)
    assert float(net.A.std()) == pytest.approx(200**-0.5, rel=0.05)
    assert float(net.B.std()) == pytest.approx(10**-0.5, rel=0.05)
    assert float(net.W.detach().std()) == pytest.approx(200**-0.5, rel=0.05)


def test_identity_transformations() -> None:
    net = ResNet.identity(3, 2, 8, 4)
    assert torch.equal(net.A, torch.eye(8, 3, dtype=F64)) and not net.W.any()
    assert torch.equal(net.B, 2.0 * torch.eye(2, 8, dtype=F64))  # sqrt(m/k) = 2
    assert torch.equal(net.end_to_end().detach(), 2.0 * torch.eye(3, 2, dtype=F64))


def test_modified_identity_transformations() -> None:
    net = ResNet.modified_identity(3, 2, 7, 4, 1.5)
    assert torch.equal(net.A, torch.eye(7, 3, dtype=F64)) and not net.W.any()
    assert not (net.B @ net.A).any()
    assert torch.equal(net.B @ net.B.T, 1.5**2 * torch.eye(2, dtype=F64))
    assert not net.end_to_end().detach().any()
    assert ResNet.modified_identity(3, 2, 5, 4).B.max() == 1.0


@pytest.mark.parametrize("columns", [1, 3])
def test_sufficient_alpha_certifies_from_the_start(columns: int) -> None:
    X, Y = normal(20, 3), normal(20, columns, seed=1)
    loss = sf.SquaredLoss(X, Y)
    net = ResNet.modified_identity(3, columns, 9, 5, "sufficient", loss=loss)
    alpha = float(torch.linalg.matrix_norm(net.B, 2))
    reached = X @ torch.linalg.lstsq(X, Y).solution
    needed = 8.0 * math.sqrt(2.0) * math.sqrt(0.5 * float(reached.square().sum())) / float(torch.linalg.svdvals(X)[-1])
    assert needed < alpha < needed * (1.0 + 1e-5)
    assert alpha == pytest.approx(sufficient_alpha(loss), rel=1e-14)
    certificate = sf.certify(net, loss)
    assert certificate.holds and math.isfinite(certificate.iterations_to(1e-6))
    # Corollary 2 asks for α σ_r(X) ≥ 8√2 sqrt(gap): certify evaluates more, and may do with less than this α, never with none
    assert not sf.certify(ResNet.modified_identity(3, columns, 9, 5, 0.01 * alpha), loss).holds


def test_sufficient_alpha_of_rank_deficient_data() -> None:
    X = normal(20, 2) @ normal(2, 4, seed=1)
    loss = sf.SquaredLoss(X, normal(20, 3, seed=2))
    net = ResNet.modified_identity(4, 3, 8, 5, "sufficient", loss=loss)
    assert sf.certify(net, loss).holds


def test_sufficient_alpha_where_the_zero_map_is_optimal() -> None:
    X = normal(20, 3)
    Y = normal(20, 2, seed=1)
    loss = sf.SquaredLoss(X, torch.zeros_like(Y))
    net = ResNet.modified_identity(3, 2, 8, 5, "sufficient", loss=loss)
    assert sf.certify(net, loss).holds


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ResNet, sf.nn.LinearNet])
@pytest.mark.parametrize(
    ("index", "value", "error", "text"),
    [
        (0, torch.ones(4, 3, dtype=F64), ValueError, r"A has shape \(4, 3\).*the same width m"),
        (1, torch.ones(2, 4, dtype=F64), ValueError, r"B \(2, 4\)"),
        (2, torch.ones(3, 4, 4, dtype=F64), ValueError, r"weights \(3, 4, 4\)"),
        (2, torch.ones(3, 5, 4, dtype=F64), ValueError, r"weights \(3, 5, 4\)"),
        (2, torch.ones(5, 5, dtype=F64), ValueError, r"weights has shape \(5, 5\); it must have 3"),
        (0, torch.ones(5, dtype=F64), ValueError, "A has shape"),
        (2, torch.ones(0, 5, 5, dtype=F64), ValueError, "weights is empty"),
        (0, torch.ones(5, 3, dtype=torch.int64), TypeError, "A has dtype int64"),
        (1, torch.ones(2, 5, dtype=torch.float16), TypeError, "B has dtype float16"),
        (2, torch.ones(3, 5, 5, dtype=torch.complex128), TypeError, "weights has dtype complex128"),
        (2, np.ones((3, 5, 5), dtype=bool), TypeError, "weights has dtype"),
        (0, torch.full((5, 3), math.nan, dtype=F64), ValueError, r"A has nan at index \(0, 0\)"),
        (2, torch.full((3, 5, 5), math.inf, dtype=F64), ValueError, "weights has inf"),
        (1, "B", TypeError, "B is a str"),
    ],
)
def test_bad_weights(kind: Any, index: int, value: Any, error: type[Exception], text: str) -> None:
    arguments: list[Any] = list(explicit())
    arguments[index] = value
    with pytest.raises(error, match=text):
        kind(*arguments)


@pytest.mark.parametrize("value", [0, -1, 2.0, True, "3"])
@pytest.mark.parametrize("position", range(4))
def test_bad_sizes(position: int, value: Any) -> None:
    sizes: list[Any] = [3, 2, 8, 4]
    sizes[position] = value
    for make in (ResNet.gaussian, ResNet.identity, ResNet.modified_identity, sf.nn.LinearNet.gaussian):
        with pytest.raises(ValueError, match=f"{('d', 'k', 'width', 'depth')[position]} is {value!r}"):
            make(*sizes)


def test_widths_that_are_too_small() -> None:
    with pytest.raises(ValueError, match=r"width is 4; the modified identity needs at least d \+ k = 5"):
        ResNet.modified_identity(3, 2, 4, 1)
    ResNet.modified_identity(3, 2, 5, 1)
    with pytest.raises(ValueError, match="width is 2; identity transformations need at least max"):
        ResNet.identity(3, 2, 2, 1)
    ResNet.identity(3, 2, 3, 1)


@pytest.mark.parametrize("alpha", [0.0, -1.0, math.nan, math.inf, "enough", None])
def test_bad_alpha(alpha: Any) -> None:
    with pytest.raises(ValueError, match=f"alpha is {alpha!r}; it must be a positive number or 'sufficient'"):
        ResNet.modified_identity(3, 2, 5, 1, alpha)


def test_sufficient_alpha_needs_the_loss() -> None:
    with pytest.raises(ValueError, match="needs the loss"):
        ResNet.modified_identity(3, 2, 5, 1, "sufficient")


def test_bad_scaling_and_two_sources_of_randomness(generator: torch.Generator) -> None:
    with pytest.raises(ValueError, match="scaling is 'he'; it must be 'fan' or 'unit'"):
        ResNet.gaussian(3, 2, 5, 1, "he")  # type: ignore[arg-type]
    for make in (ResNet.gaussian, sf.nn.LinearNet.gaussian):
        with pytest.raises(ValueError, match="not both"):
            make(3, 2, 5, 1, seed=1, generator=generator)


def test_losses_and_networks_that_do_not_fit() -> None:
    net = ResNet(*explicit())
    with pytest.raises(ValueError, match=r"net maps 3 inputs to 2 outputs, the loss has 4 inputs and 2 outputs"):
        sf.certify(net, sf.SquaredLoss(normal(9, 4), normal(9, 2, seed=1)))
    with pytest.raises(TypeError, match=r"linear ResNets take sf\.SquaredLoss"):
        sf.certify(net, sf.SoftmaxRegression(normal(9, 3), torch.arange(9) % 2, 0.1, 2))
    loss = sf.SquaredLoss(normal(9, 3), normal(9, 2, seed=1))
    with pytest.raises(TypeError, match=r"dtype float32; use float64: net.double\(\)"):
        sf.descend(ResNet(*explicit()).float(), loss)
    with torch.no_grad():
        net.W[1, 0, 0] = math.nan
    with pytest.raises(ValueError, match=r"net.W has non-finite entries"):
        sf.certify(net, loss)


def test_zero_data_is_refused() -> None:
    with pytest.raises(ValueError, match="X"):
        sf.SquaredLoss(torch.zeros(9, 3, dtype=F64), normal(9, 2))


def test_unknown_names_suggest_the_nearest() -> None:
    net, loss = ResNet(*explicit()), sf.SquaredLoss(normal(9, 3), normal(9, 2, seed=1))
    with pytest.raises(ValueError, match="did you mean 'linear-resnet/local'"):
        sf.certify(net, loss, "linear-resnet/locale")
    with pytest.raises(ValueError, match="unknown theorem 'two-layer/drift'"):
        sf.certify(net, loss, "two-layer/drift")
    with pytest.raises(ValueError, match="unknown engine 'gram'"):
        sf.descend(net, loss, engine="gram")
    with pytest.raises(ValueError, match="did you mean 'smooth'"):
        sf.descend(net, loss, "smoth")


def test_a_width_below_the_outputs_is_never_certified_and_says_why() -> None:
    net = ResNet.gaussian(3, 4, 2, 3)
    certificate = sf.certify(net, sf.SquaredLoss(normal(9, 3), normal(9, 4, seed=1)))
    assert not certificate.holds and certificate.step_size is None
    assert "width 2 is below max(inputs, outputs)" in certificate.suggestion


def test_sufficient_alpha_of_another_loss_is_refused() -> None:
    loss = sf.SquaredLoss(torch.eye(4, dtype=torch.float64), torch.ones(4, 2, dtype=torch.float64))
    with pytest.raises(ValueError, match="the loss has 4 inputs and 2 outputs; build the network with d=4, k=2"):
        ResNet.modified_identity(3, 2, 9, 1, "sufficient", loss=loss)
    with pytest.raises(TypeError, match="loss is an int"):
        ResNet.modified_identity(3, 2, 9, 1, "sufficient", loss=cast(Any, 3))


@pytest.mark.parametrize("make", [ResNet.gaussian, ResNet.identity, ResNet.modified_identity, sf.nn.LinearNet.gaussian])
def test_a_network_beyond_the_memory_is_refused_before_anything_is_allocated(make: Any) -> None:
    with pytest.raises(ValueError, match=r"width is 1000000000 and depth 2; .* use a smaller width or depth"):
        make(3, 2, 10**9, 2)


@pytest.mark.parametrize("seed", [1.5, "0", True, 2**70])
def test_bad_seed(seed: Any) -> None:
    for make in (ResNet.gaussian, sf.nn.LinearNet.gaussian):
        with pytest.raises(ValueError, match=f"seed is {seed!r}; it must be an integer"):
            make(3, 2, 5, 1, seed=seed)


def test_bad_generator() -> None:
    with pytest.raises(TypeError, match="generator is an int; pass a torch"):
        ResNet.gaussian(3, 2, 5, 1, generator=cast(Any, 3))
