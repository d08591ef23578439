"""The sector table agrees with the dense network: values everywhere, gradients off the boundaries and on exact ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from surefoot._step_sizes.sectors import Table, forward_and_gradient, locate

F64 = torch.float64
Weights = tuple[Tensor, Tensor, Tensor]


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=F64)


def dense(weights: Weights, x: Tensor, g: Tensor) -> Tensor:
    W1, W2, W3 = weights
    return (W3 @ torch.relu(W2 @ torch.relu(W1 @ torch.stack([x, g])))).squeeze(0)


def dense_gradients(weights: Weights, x: Tensor, g: Tensor, q: Tensor) -> tuple[Tensor, ...]:
    """z, then the gradients of Σ q z with respect to W1, W2, W3, then ∂z/∂x, ∂z/∂g."""
    leaves = [v.clone().requires_grad_() for v in weights]
    points = [v.clone().requires_grad_() for v in (x, g)]
    z = dense((leaves[0], leaves[1], leaves[2]), *points)
    return (
        z.detach(),
        *torch.autograd.grad((q * z).sum(), leaves, retain_graph=True),
        *torch.autograd.grad(z.sum(), points),
    )


def scales(weights: Weights, x: Tensor, g: Tensor, q: Tensor) -> tuple[Tensor, ...]:
    """The same quantities with every sum replaced by that of the absolute values, no unit off: what rounding is relative to."""
    W1, W2, W3 = (W.abs() for W in weights)
    v, q = torch.stack([x, g]).abs(), q.abs()
    one = W1 @ v
    two = W2 @ one
    sensitivity = (W3 @ W2).T
    slopes = (W3 @ W2 @ W1).squeeze(0)
    return ((W3 @ two).squeeze(0), sensitivity * (v @ q), W3.T * (one @ q), (two @ q)[None], slopes[0], slopes[1])


def table_gradients(weights: Weights, x: Tensor, g: Tensor, q: Tensor) -> tuple[Tensor, ...]:
    table = Table(*weights)
    return (table.evaluate(x, g), *table.gradient(x, g, q), *table.slopes(x, g))


@st.composite
def integer_networks(draw: st.DrawFn) -> Weights:
    """Small whole numbers: zero rows, parallel, opposite and equal rows, rows on the axes are all common."""
    n1, n2 = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    entries = st.integers(-3, 3)

    def matrix(rows: int, columns: int) -> Tensor:
        return tensor(draw(st.lists(entries, min_size=rows * columns, max_size=rows * columns))).reshape(rows, columns)

    return matrix(n1, 2), matrix(n2, n1), matrix(1, n2)


def boundary_points(weights: Weights) -> Tensor:
    """Whole-number points (2, n) on every boundary: of the first layer, and of the second in each direction's linear piece."""
    W1, W2, _ = weights
    around = torch.cartesian_prod(torch.arange(-4.0, 5, dtype=F64), torch.arange(-4.0, 5, dtype=F64)).T
    active = (W1 @ around > 0).to(F64)  # (n1, n)
    normals = torch.einsum("ji,in,ic->cjn", W2, active, W1).reshape(2, -1)
    normals = torch.cat([W1.T, normals], 1)
    turned = torch.stack([normals[1], -normals[0]])
    return torch.cat([around, turned, -turned], 1)


@settings(max_examples=150, deadline=None)
@given(integer_networks(), st.integers(0, 2**31))
def test_whole_numbers_agree_exactly_on_and_off_all_boundaries(weights: Weights, seed: int) -> None:
    x, g = boundary_points(weights)
    q = torch.randint(-5, 6, x.shape, generator=torch.Generator().manual_seed(seed)).to(F64)
    for found, expected in zip(table_gradients(weights, x, g, q), dense_gradients(weights, x, g, q), strict=True):
        assert torch.equal(found, expected)


@st.composite
def real_networks(draw: st.DrawFn) -> tuple[Weights, torch.Generator]:
    """Gaussian entries, with rows scaled by up to 10^±40, copied, turned round or set to 0."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    n1, n2 = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    weights = [torch.randn(shape, generator=generator, dtype=F64) for shape in ((n1, 2), (n2, n1), (1, n2))]
    for W in weights[:2]:
        for row in W:
            kind = draw(st.sampled_from(["plain", "plain", "scaled", "copied", "opposite", "zero"]))
            if kind in ("copied", "opposite"):
                row.copy_(W[draw(st.integers(0, len(W) - 1))] * (1 if kind == "copied" else -1))
            if kind == "scaled":
                row *= 10.0 ** draw(st.integers(-40, 40))
            if kind == "zero":
                row.zero_()
    return (weights[0], weights[1], weights[2]), generator


@settings(max_examples=150, deadline=None)
@given(real_networks(), st.sampled_from([1e-150, 1e-12, 1.0, 1e12, 1e150]))
def test_real_numbers_agree_to_rounding(network: tuple[Weights, torch.Generator], ratio: float) -> None:
    weights, generator = network
    x, g, q = torch.randn(3, 200, generator=generator, dtype=F64)
    x = torch.cat([x * ratio, weights[0][:, 1], tensor([0.0])])  # with points on the boundaries of the first layer
    g = torch.cat([g, -weights[0][:, 0], tensor([0.0])])
    bound = scales(weights, x, g, torch.ones_like(x))[0]
    assert ((Table(*weights).evaluate(x, g) - dense(weights, x, g)).abs() <= 1e-12 * bound).all()
    # gradients where no unit's sign is in the reach of rounding; a unit with the constant value 0 has only one sign
    W1, W2, _ = weights
    one, two = W1 @ torch.stack([x, g]), W2 @ torch.relu(W1 @ torch.stack([x, g]))
    reach = W1.abs() @ torch.stack([x, g]).abs()
    certain = ((one.abs() > 1e-12 * reach) | (reach == 0)).all(0)
    reach = W2.abs() @ torch.relu(one)
    certain &= ((two.abs() > 1e-12 * reach) | (reach == 0)).all(0)
    x, g, q = x[certain], g[certain], q.repeat(2)[: len(certain)][certain]
    found, expected = table_gradients(weights, x, g, q), dense_gradients(weights, x, g, q)
    for a, b, scale in zip(found, expected, scales(weights, x, g, q), strict=True):
        assert ((a - b).abs() <= 1e-12 * scale).all()


def gaussian(n1: int, n2: int, seed: int = 0) -> Weights:
    generator = torch.Generator().manual_seed(seed)
    W1, W2, W3 = (torch.randn(s, generator=generator, dtype=F64) for s in ((n1, 2), (n2, n1), (1, n2)))
    return W1, W2 / n1**0.5, W3 / n2**0.5


def test_wide_networks_agree_to_1e12_relative() -> None:
    for n1, n2 in ((2, 300), (64, 48)):
        weights = gaussian(n1, n2)
        x, g, q = torch.randn(3, 2000, generator=torch.Generator().manual_seed(1), dtype=F64)
        for a, b in zip(table_gradients(weights, x, g, q), dense_gradients(weights, x, g, q), strict=True):
            assert (a - b).norm() <= 1e-13 * b.norm()


def test_a_large_unit_that_is_off_leaves_no_error_behind() -> None:
    W1 = tensor([[1e18, 0.3e18], [0.7e18, 0.1e18], [-1.0, 0.4]])
    weights = W1, tensor([[0.1, 0.3, 0.7], [1.1, -0.3, 0.9]]), tensor([[1.0, 2.0]])
    x, g = tensor([-1.0, -2.0]), tensor([0.1, -0.7])
    np.testing.assert_allclose(Table(*weights).evaluate(x, g), dense(weights, x, g), rtol=1e-14)


def test_powers_of_two_in_the_weights_change_nothing_else() -> None:
    weights = gaussian(5, 7)
    x, g, q = torch.randn(3, 100, generator=torch.Generator().manual_seed(1), dtype=F64)
    powers = 700, -500, -300
    scaled = tuple(torch.ldexp(W, torch.tensor(p)) for W, p in zip(weights, powers, strict=True))
    plain, other = Table(*weights), Table(*scaled)
    total = sum(powers)
    assert torch.equal(torch.ldexp(plain.evaluate(x, g), torch.tensor(total)), other.evaluate(x, g))
    for a, b, p in zip(plain.gradient(x, g, q), other.gradient(x, g, q), powers, strict=True):
        np.testing.assert_array_equal(np.ldexp(a.numpy(), total - p), b)


def test_points_near_an_axis_keep_their_relative_accuracy() -> None:
    weights = tensor([[0.0, 1.0], [1.0, 0.0]]), tensor([[1.0, 0.0]]), tensor([[1.0]])
    tiny = tensor([1e-30, 1e-100, 5e-324])
    np.testing.assert_array_equal(Table(*weights).evaluate(-torch.ones_like(tiny) * 1e-9, tiny)[:2], tiny[:2])


def test_inputs_that_are_not_finite_give_nan_and_the_origin_gives_0() -> None:
    table = Table(*gaussian(3, 4))
    x, g = tensor([math.nan, 1.0, math.inf, -math.inf, 0.0]), tensor([1.0, math.nan, 2.0, math.inf, -0.0])
    z = table.evaluate(x, g)
    assert z[:4].isnan().all() and z[4] == 0
    assert all((slope[4] == 0) for slope in table.slopes(x, g))


@settings(max_examples=60, deadline=None)
@given(integer_networks())
def test_the_search_in_pytorch_finds_the_same_rows(weights: Weights) -> None:
    table = Table(*weights)
    special = tensor([0.0, -0.0, 1.0, -1.0, 5e-324, -5e-324, 1e300, -1e-300, math.inf, math.nan])
    x, g = torch.cat([boundary_points(weights), torch.cartesian_prod(special, special).T], 1)
    assert torch.equal(locate(x, g, table._host.keys), table._find(x, g)[1])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)).filter(any), min_size=2, max_size=30))
def test_keys_are_ordered_as_the_angles_and_equal_for_parallel_vectors(points: list[tuple[int, int]]) -> None:
    from surefoot._step_sizes import sectors_numba as kernels

    x, y = np.array(points, float).T.copy()
    keys, positions = kernels.rings(x, y)
    # the direction of -π comes first
    angles = np.where((y == 0) & (x < 0), -np.pi, np.arctan2(y, x))
    for i in range(len(points)):
        for j in range(len(points)):
            parallel = x[i] * y[j] == y[i] * x[j] and x[i] * x[j] + y[i] * y[j] > 0
            assert (keys[i] == keys[j]) == parallel
            if not parallel:
                assert (keys[i] < keys[j]) == (angles[i] < angles[j])
                assert keys[i] > keys[j] or positions[i] <= positions[j]
    np.testing.assert_array_equal(kernels.rings(-x, -y)[0], keys ^ kernels.OPPOSITE)


def test_dtype_and_shape_are_those_of_the_points_and_gradients_those_of_the_weights() -> None:
    weights = gaussian(3, 4)
    single = tuple(W.float() for W in weights)
    x, g, q = torch.randn(3, 2, 5, 7, generator=torch.Generator().manual_seed(0))
    table = Table(*single)
    assert table.evaluate(x, g).dtype == torch.float32 and table.evaluate(x, g).shape == x.shape
    for gradient, W in zip(table.gradient(x, g, q), single, strict=True):
        assert gradient.dtype == torch.float32 and gradient.shape == W.shape
    assert table.evaluate(x[:0], g[:0]).shape == (0, 5, 7)


def test_many_calls_add_up_and_later_changes_of_the_weights_do_not_reach_the_table() -> None:
    weights = gaussian(4, 9)
    x, g, q = torch.randn(3, 90, generator=torch.Generator().manual_seed(0), dtype=F64)
    expected = dense_gradients(weights, x, g, q)[1:4]
    table = Table(*weights)
    sums = table.accumulator()
    for part in range(3):
        sums.add(*(v[part::3] for v in (x, g, q)))
    for W in weights:
        W += 1
    for a, b in zip(sums.weight_gradients(), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


def unrolled(
    M: Tensor, Y: Tensor, beta: Tensor, weights: Weights, lo: float, hi: float, T: int, exact: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    leaves = [W.clone().requires_grad_() for W in weights]
    x = torch.zeros(M.shape[0], M.shape[2], dtype=M.dtype)
    for _ in range(T):
        g = ((M @ x[..., None] - Y[..., None]).mT @ M).squeeze(1)
        points = [v.flatten() if exact else v.flatten().detach() for v in (x, g)]
        z = dense((leaves[0], leaves[1], leaves[2]), *points).reshape(x.shape)
        x = x - (lo + (hi - lo) * torch.sigmoid(z)) * g / beta[:, None]
    loss = 0.5 * ((M @ x[..., None]).squeeze(-1) - Y).square().sum()
    gradients = torch.autograd.grad(loss, leaves) if loss.requires_grad else tuple(map(torch.zeros_like, leaves))
    return loss.detach(), gradients


def batch(N: int = 3, b: int = 5, d: int = 7, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    M, Y = torch.randn(N, b, d, generator=generator, dtype=F64), torch.randn(N, b, generator=generator, dtype=F64)
    return M, Y, torch.linalg.matrix_norm(M, 2).square()


@pytest.mark.parametrize("gradient", ["exact", "detached"])
@pytest.mark.parametrize(("n1", "n2", "T"), [(1, 1, 3), (2, 40, 12), (6, 5, 1), (16, 8, 25), (2, 3, 0)])
def test_the_unrolled_iteration_agrees_with_autograd(gradient: str, n1: int, n2: int, T: int) -> None:
    for shape in ((3, 5, 7), (2, 9, 4)):
        M, Y, beta = batch(*shape)
        weights = gaussian(n1, n2, seed=n1)
        loss, gradients = forward_and_gradient(M, Y, beta, *weights, 0.2, 1.9, T, gradient)  # pyright: ignore
        expected, autograd = unrolled(M, Y, beta, weights, 0.2, 1.9, T, gradient == "exact")
        assert abs(loss - expected) <= 1e-12 * expected
        for a, b in zip(gradients, autograd, strict=True):
            assert (a - b).norm() <= 1e-11 * b.norm()


def test_the_start_of_training_and_saturated_steps() -> None:
    M, Y, beta = batch()
    W1, W2, W3 = gaussian(3, 6)
    for last in (torch.zeros_like(W3), 1e6 * W3, -1e6 * W3.abs()):
        loss, gradients = forward_and_gradient(M, Y, beta, W1, W2, last, 0.0, 2.0, 5)
        expected, autograd = unrolled(M, Y, beta, (W1, W2, last), 0.0, 2.0, 5, True)
        assert abs(loss - expected) <= 1e-12 * expected
        for a, b in zip(gradients, autograd, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12 * float(b.abs().max()))


def test_the_axis_that_all_points_start_on() -> None:
    """At x = 0 every unit of a first layer that is the identity is on a boundary or off it exactly."""
    M, Y, beta = batch()
    weights = torch.eye(2, dtype=F64), *gaussian(2, 8)[1:]
    loss, gradients = forward_and_gradient(M, Y, beta, *weights, 0.5, 1.5, 4)
    expected, autograd = unrolled(M, Y, beta, weights, 0.5, 1.5, 4, True)
    assert abs(loss - expected) <= 1e-13 * expected
    for a, b in zip(gradients, autograd, strict=True):
        assert (a - b).norm() <= 1e-12 * b.norm()


def test_weights_that_are_not_finite_and_iterates_that_overflow() -> None:
    M, Y, beta = batch()
    W1, W2, W3 = gaussian(2, 3)
    loss, gradients = forward_and_gradient(M, Y, beta, W1, W2 * math.nan, W3, 0.0, 2.0, 3)
    assert math.isnan(loss) and all(G.isnan().all() for G in gradients)
    loss, _ = forward_and_gradient(M, Y, beta * 1e-200, W1, W2, W3, 1.0, 2.0, 9)
    assert not math.isfinite(loss)


def test_bad_arguments_are_named() -> None:
    W1, W2, W3 = gaussian(2, 3)
    x = torch.zeros(4, dtype=F64)
    for weights, message in (
        ((W1.T[:1], W2, W3), r"give \(n1, 2\)"),
        ((W1, W2.T, W3), r"give \(n1, 2\)"),
        ((W1, W2, W3.T), r"give \(n1, 2\)"),
        ((W1[:0], W2[:, :0], W3), "W1 has shape"),
        ((W1, W2.long(), W3), "W2 has dtype"),
        ((W1, W2, W3 * math.inf), "W3 has an entry that is not finite"),
    ):
        with pytest.raises(ValueError, match=message):
            Table(*weights)
    table = Table(W1, W2, W3)
    with pytest.raises(ValueError, match="they must agree"):
        table.evaluate(x, x[:2])
    with pytest.raises(ValueError, match="they must agree"):
        table.slopes(x, x.float())
    with pytest.raises(ValueError, match="q is"):
        table.gradient(x, x, x[:2])
    with pytest.raises(ValueError, match="x has dtype"):
        table.evaluate(x.long(), x.long())
    M, Y, beta = batch()
    for arguments, message in (
        ((M, Y.T, beta, W1, W2, W3, 0.0, 2.0, 3), r"give \(N, b, d\)"),
        ((M, Y, 0 * beta, W1, W2, W3, 0.0, 2.0, 3), "beta has an entry"),
        ((M, Y, beta, W1, W2, W3, 2.0, 1.0, 3), "lo, hi"),
        ((M, Y, beta, W1, W2, W3, 0.0, 2.0, -1), "T is -1"),
        ((M, Y, beta, W1, W2, W3, 0.0, 2.0, 3, "none"), "gradient is 'none'"),
    ):
        with pytest.raises(ValueError, match=message):
            forward_and_gradient(*arguments)


def test_the_compiler_is_imported_only_with_the_first_table() -> None:
    import subprocess
    import sys

    code = "import sys, surefoot._step_sizes.sectors; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
