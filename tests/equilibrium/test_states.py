"""EquilibriumLayer with states of several tensors, nested arguments and keyword arguments."""

from collections import OrderedDict
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from surefoot._equilibrium.failures import EquilibriumError
from surefoot._equilibrium.layer import EquilibriumLayer


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


class Scales(NamedTuple):
    fine: Tensor
    coarse: Tensor


A, B, UP, DOWN = (
    0.3 * draw(4, 4, seed=1) / 2,
    0.3 * draw(3, 3, seed=2) / 2,
    0.2 * draw(3, 4, seed=3),
    draw(4, 3, seed=4) / 9,
)
X = draw(5, 4)


def two_scales(fine, coarse, x, A=A, B=B):
    """A vector of 4, and a matrix of 3 x 1, each depending on both."""
    return (
        torch.tanh(fine @ A + coarse[..., 0] @ UP + x),
        (torch.sin(coarse[..., 0] @ B) + fine @ DOWN)[..., None],
    )


SHAPES = (4, (3, 1))
CASES = {
    "tuple": (lambda z, x, *w: two_scales(*z, x, *w), SHAPES),
    "list": (lambda z, x, *w: list(two_scales(*z, x, *w)), [4, (3, 1)]),
    "dict": (
        lambda z, x, *w: dict(zip("ba", reversed(two_scales(z["a"], z["b"], x, *w)), strict=True)),
        {"a": 4, "b": (3, 1)},
    ),
    "ordered": (
        lambda z, x, *w: OrderedDict(zip("ab", two_scales(z["a"], z["b"], x, *w), strict=True)),
        OrderedDict(a=4, b=(3, 1)),
    ),
    "namedtuple": (lambda z, x, *w: Scales(*two_scales(z.fine, z.coarse, x, *w)), Scales(4, (3, 1))),  # type: ignore
    "nested": (
        lambda z, x, *w: (lambda v: {"deep": [v[0], (v[1],)]})(two_scales(z["deep"][0], z["deep"][1][0], x, *w)),
        {"deep": [4, ((3, 1),)]},
    ),
}


def unroll(x, *w, count=60):
    fine, coarse = torch.zeros_like(x), torch.zeros_like(x)[..., :3, None]
    for _ in range(count):
        fine, coarse = two_scales(fine, coarse, x, *w)
    return fine, coarse


def total(state):
    return sum((i + 1) * leaf.pow(3).sum() for i, leaf in enumerate(pytree.tree_leaves(state)))


def assert_close(got, true, tolerance=1e-10):
    for a, b in zip(got, true, strict=True):
        assert a.shape == b.shape
        assert float((a - b).detach().abs().max()) <= tolerance * max(1.0, float(b.detach().abs().max()))


@pytest.mark.parametrize("case", CASES)
def test_every_structure_has_the_values_and_gradients_of_a_long_unroll(case):
    f, shape = CASES[case]
    layer = EquilibriumLayer(f, state_shape=shape)
    leaves = [t.clone().requires_grad_() for t in (X, A, B)]
    z = layer(*leaves)
    assert type(z) is type(f(z, *leaves))
    true = unroll(*leaves)
    assert_close(sorted(pytree.tree_leaves(z), key=lambda t: t.ndim), true)
    by_shape = sum((t.ndim - 1) * t.pow(3).sum() for t in pytree.tree_leaves(z))
    first = torch.autograd.grad(by_shape, leaves, create_graph=True)
    wanted = torch.autograd.grad(total(true), leaves, create_graph=True)
    assert_close(first, wanted)
    second = [torch.autograd.grad(sum(g.pow(2).sum() for g in grads), leaves) for grads in (first, wanted)]
    assert_close(*second, tolerance=1e-9)


def test_z0_gives_the_structure_and_neither_result_nor_gradient():
    layer = EquilibriumLayer(CASES["tuple"][0])
    z0 = (draw(5, 4, seed=8).requires_grad_(), draw(5, 3, 1, seed=9).requires_grad_())
    x = X.clone().requires_grad_()
    z = layer(x, z0=z0)
    assert_close(z, unroll(X))
    _, *none = torch.autograd.grad(total(z), (x, *z0), allow_unused=True)
    assert none == [None, None]
    again = layer.solve(x, z0=z)
    assert again.info.iterations <= 3
    assert isinstance(again.z, tuple)
    assert not any(t.requires_grad for t in again.z)


def test_the_bound_is_in_the_norm_of_the_whole_sample():
    norm = float(torch.tensor([[torch.linalg.matrix_norm(M, 2) for M in row] for row in ((A, UP), (DOWN, B))]).norm())
    assert norm < 1.0  # tanh and sin have slope at most 1
    layer = EquilibriumLayer(CASES["dict"][0], state_shape=CASES["dict"][1], tolerance=1e-3, contraction=norm)
    z, info = layer.solve(X)
    assert info.converged and info.guaranteed
    assert info.error_bound.shape == (5,)
    true = unroll(X)
    error = torch.cat([(z["a"] - true[0]).flatten(1), (z["b"] - true[1]).flatten(1)], 1).norm(dim=1)
    assert (error <= info.error_bound).all()
    assert (info.error_bound > 1e-9).all()


def test_gradcheck_against_finite_differences():
    layer = EquilibriumLayer(CASES["namedtuple"][0], state_shape=CASES["namedtuple"][1])
    arguments = [t.clone().requires_grad_() for t in (X[:2], A, B)]

    def flat(*arguments):
        return tuple(layer(*arguments))

    assert torch.autograd.gradcheck(flat, arguments, fast_mode=True)
    assert torch.autograd.gradgradcheck(flat, arguments, fast_mode=True)


def test_transforms():
    layer = EquilibriumLayer(CASES["dict"][0], state_shape=CASES["dict"][1])

    def of(solve):
        return lambda x, A: total(solve(x, A))

    def unrolled(x, A):
        return dict(zip("ab", unroll(x, A), strict=True))

    grads = [torch.func.grad(of(solve), (0, 1))(X, A) for solve in (layer, unrolled)]
    assert_close(*grads)
    jacobians = [torch.func.jacrev(lambda A, s=solve: s(X, A))(A) for solve in (layer, unrolled)]
    assert_close(*(pytree.tree_leaves(j) for j in jacobians))
    value, pull = torch.func.vjp(layer, X)
    assert_close(pull(pytree.tree_map(lambda t: 3.0 * t**2, value)), [torch.func.grad(lambda x: sum(
        t.pow(3).sum() for t in layer(x).values()))(X)])  # fmt: skip
    weights = torch.stack([A, 0.5 * A, -A])
    z = torch.vmap(layer, (None, 0))(X, weights)
    assert layer.info.residual.shape == (3, 5)
    for key in "ab":
        assert_close(z[key], [layer(X, w)[key] for w in weights])
    single = EquilibriumLayer(CASES["dict"][0], state_shape=CASES["dict"][1], batch_dims=0)
    per_sample = torch.vmap(torch.func.grad(of(single), 1), (0, None))(X, A)
    assert_close((per_sample.sum(0),), grads[0][1:])


def test_like_an_x_of_several_tensors():
    x = {"fine": X.clone().requires_grad_(), "coarse": draw(5, 3, 1, seed=7).requires_grad_()}

    def f(z, x):
        fine, coarse = two_scales(z["fine"], z["coarse"], x["fine"])
        return {"fine": fine, "coarse": coarse + x["coarse"]}

    z = EquilibriumLayer(f)(x)
    again = f(z, x)
    assert_close(z.values(), again.values())
    grads = torch.autograd.grad(total(z), list(x.values()))
    assert all(g.abs().min() > 0.0 for g in grads)


def test_gradients_reach_tensors_nested_in_arguments_and_keywords():
    W, bias, gain, mask = 0.2 * draw(4, 4, seed=5), draw(4, seed=6), torch.tensor([0.5]).double(), draw(5, 4) > 0.0

    def f(z, x, *, weights, mask=None, options):
        inside = torch.tanh(z @ weights[0]["W"]) * options["gain"] + weights[1] + x[0]
        return inside if mask is None else torch.where(mask, inside, 0.1 * z + x[1])

    leaves = [t.clone().requires_grad_() for t in (X, 2.0 * X, W, bias, gain)]

    def call(solve):
        a, b, W, bias, gain = leaves
        return solve((a, b), weights=[{"W": W}, bias], mask=mask, options={"gain": gain, "name": "word", "none": None})

    def unrolled(x, **kwargs):
        z = torch.zeros_like(x[0])
        for _ in range(80):
            z = f(z, x, **kwargs)
        return z

    def second(solve):
        first = torch.autograd.grad(call(solve).pow(3).sum(), leaves, create_graph=True)
        return [*first, *torch.autograd.grad(sum(g.pow(2).sum() for g in first), leaves)]

    layer = EquilibriumLayer(f, state_shape=4)
    assert_close(second(layer), second(unrolled), 1e-9)
    layer(leaves[:2], weights=[{"W": W}, bias], options={"gain": gain})  # without the mask


def test_a_module_takes_keywords():
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4, dtype=torch.float64)

        def forward(self, z, x, *, scale=1.0):
            return (scale * torch.tanh(0.3 * self.linear(z[0]) + x), 0.5 * z[1] + z[0].mean(1, keepdim=True))

    torch.manual_seed(0)
    layer = EquilibriumLayer(Cell(), state_shape=(4, (1,)))
    scale = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    z = layer(x=X, scale=scale)
    assert_close(z, layer.f(z, X, scale=scale))
    total(z).backward()
    assert scale.grad is not None and layer.f.linear.weight.grad.any()


def test_a_single_tensor_in_a_tuple_stays_in_it():
    (z,) = EquilibriumLayer(lambda z, x: (0.5 * z[0] + x,), state_shape=((4,),))(X)
    assert_close((z,), (2.0 * X,), 1e-11)


def test_empty_batches_and_empty_leaves():
    layer = EquilibriumLayer(CASES["tuple"][0], state_shape=SHAPES)
    x = torch.zeros(0, 4, dtype=torch.float64, requires_grad=True)
    fine, coarse = layer(x)
    assert fine.shape == (0, 4) and coarse.shape == (0, 3, 1)
    (fine.sum() + coarse.sum()).backward()
    assert x.grad.shape == (0, 4)
    z = EquilibriumLayer(lambda z, x: (0.5 * z[0] + x, z[1]))(X, z0=(X, X.new_zeros(5, 0, 2)))
    assert z[1].shape == (5, 0, 2)
    assert_close(z[:1], (2.0 * X,), 1e-11)


@pytest.mark.parametrize(
    ("z0", "error", "match"),
    [
        ((), ValueError, r"z0 is \(\), without a tensor"),
        ({"a": []}, ValueError, "without a tensor"),
        ((X, None), TypeError, r"z0\[1\] is None; pass a tensor"),
        ({"a": X, "b": 1.0}, TypeError, r"z0\['b'\] is a float; pass a tensor"),
        ((X, X[:3]), ValueError, r"z0\[1\] has shape \(3, 4\) but z0\[0\] has \(5, 4\); the first 1 .* must agree"),
        ((X, torch.tensor(0.0).double()), ValueError, r"z0\[1\] has shape \(\); it needs 1 batch"),
        (
            (X, X.float()),
            TypeError,
            r"z0\[1\] has dtype float32 but z0\[0\] has float64; a state is solved in one precision",
        ),
        ((X, X > 0), TypeError, r"z0\[1\] has dtype bool"),
        ((X, X.to_sparse()), TypeError, r"z0\[1\] is a sparse tensor"),
        ((X, X.to("meta")), ValueError, r"z0\[1\] is on meta but z0\[0\] is on cpu"),
    ],
)
def test_bad_starts_name_the_leaf(z0, error, match):
    with pytest.raises(error, match=match):
        EquilibriumLayer(lambda z, x: z)(X, z0=z0)


@pytest.mark.parametrize(
    ("f", "error", "match"),
    [
        (lambda z, x: z["a"], TypeError, r"returned a Tensor; it must return a state like z: a dict \{'a': tensor, 'b': ten"),
        (lambda z, x: (z["a"], z["b"]), TypeError, r"returned a tuple \(tensor, tensor\); it must return a state like z: a d"),
        (lambda z, x: {"a": z["a"]}, TypeError, r"returned a dict \{'a': tensor\}; it must"),
        (lambda z, x: {"a": z["a"], "b": None}, TypeError, r"returned a dict \{'a': tensor, 'b': None\}"),
        (lambda z, x: {"a": z["a"], "b": (z["b"],)}, TypeError, r"returned a dict \{'a': tensor, 'b': \(tensor,\)\}"),
        (lambda z, x: {**z, "b": z["b"][:, :1]}, ValueError, r"f\(z, \*x\)\['b'\] has shape \(5, 1, 1\) but z\['b'\] has \(5, 3"),
        (lambda z, x: {**z, "b": z["b"][:1]}, ValueError, r"f\(z, \*x\)\['b'\] has shape \(1, 3, 1\)"),
        (lambda z, x: {**z, "b": z["b"].float()}, TypeError, r"f\(z, \*x\)\['b'\] has dtype float32 but z\['b'\] has float64"),
        (lambda z, x: {**z, "b": z["b"].to("meta")}, ValueError, r"f\(z, \*x\)\['b'\] is on meta but z\['b'\] is on cpu"),
        (lambda z, x: {**z, "b": z["b"].mul_(0.5)}, ValueError, "f changes its argument z in place"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("grad", [True, False])
def test_bad_values_name_the_leaf(f, error, match, grad):
    with pytest.raises(error, match=match), torch.set_grad_enabled(grad):
        EquilibriumLayer(f, state_shape=CASES["dict"][1])(X)


def test_arguments_changed_in_place_are_named():
    def f(z, x, y, *, mask):
        y["deep"][0].mul_(0.5)
        return 0.5 * z + x

    with pytest.raises(ValueError, match=r"its argument x\[1\]\['deep'\]\[0\] in place"):
        EquilibriumLayer(f)(X, {"deep": [X.clone()]}, mask=X)

    def g(z, x, *, mask):
        mask["now"].zero_()
        return 0.5 * z + x

    with pytest.raises(ValueError, match=r"its argument mask\['now'\] in place"):
        EquilibriumLayer(g)(X, mask={"now": X.clone()})


@pytest.mark.parametrize(
    ("shape", "error", "match"),
    [
        ({"a": 2, "b": "3"}, TypeError, r"state_shape\['b'\] is '3'; pass an integer or a sequence"),
        ((2, (3, None)), TypeError, r"state_shape\[1\]\[1\] is None"),
        ({"a": (2, 0)}, ValueError, r"state_shape\['a'\]"),
        ({}, ValueError, "state_shape is {}, without a shape"),
    ],
)
def test_bad_state_shapes_name_the_leaf(shape, error, match):
    with pytest.raises(error, match=match):
        EquilibriumLayer(lambda z: z, state_shape=shape)


def test_z0_is_held_against_state_shape():
    layer = EquilibriumLayer(CASES["dict"][0], state_shape=CASES["dict"][1])
    with pytest.raises(
        ValueError, match=r"z0\['b'\] has shape \(5, 1, 3\); after the batch it must be state_shape \(3, 1\)"
    ):
        layer(X, z0={"a": X, "b": X.new_zeros(5, 1, 3)})
    with pytest.raises(TypeError, match="z0 is a tuple with the leaves"):
        layer(X, z0=(X, X.new_zeros(5, 3, 1)))


def test_an_x_that_is_no_state_needs_z0():
    with pytest.raises(TypeError, match=r"x\[0\]\[1\] is None"):
        EquilibriumLayer(lambda z, x: 0.5 * z + x[0])((X, None))
    z = EquilibriumLayer(lambda z, x: 0.5 * z + x[0], state_shape=4)((X, None))
    assert_close((z,), (2.0 * X,), 1e-11)
    z = EquilibriumLayer(lambda z, *, bias: 0.5 * z + bias)(bias=X)
    assert_close((z,), (2.0 * X,), 1e-11)


def test_a_failure_in_one_leaf_fails_the_sample():
    def f(z, x):
        return (0.5 * z[0] + x, torch.where(z[0][:, :1] > 1.9, 2.0 * z[1] + 1.0, 0.5 * z[1]))

    x = torch.tensor([[1.0], [0.1]]).double()
    with pytest.raises(EquilibriumError, match=r"1 of 2 samples failed, the first at index \(0,\)"):
        EquilibriumLayer(f, state_shape=((1,), (1,)))(x)


def test_a_state_that_was_not_named_is_suggested_where_f_takes_another() -> None:
    def two(z, x):
        fine, coarse = z
        return 0.5 * fine + x, 0.5 * coarse

    with pytest.raises(ValueError, match="not enough values") as caught:
        EquilibriumLayer(two)(torch.ones(1, 3))
    assert any("pass state_shape or z0" in note for note in caught.value.__notes__)
