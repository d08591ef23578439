"""EquilibriumLayer: solves, bounds, statuses, and the failures known from other implementations."""

import copy
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

from surefoot._equilibrium.failures import EquilibriumError, EquilibriumWarning
from surefoot._equilibrium.layer import EquilibriumLayer
from surefoot._equilibrium.solver.fixed_point import SolveStatus


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def scaled(norm, size=5, seed=1):
    W = draw(size, size, seed=seed)
    return norm * W / torch.linalg.matrix_norm(W, 2)


def rotation(size=6, seed=2):
    return torch.linalg.qr(draw(size, size, seed=seed))[0]


def cell(z, x, W):
    return torch.tanh(z @ W + x)


def unroll(f, z, *x, count=300):
    for _ in range(count):
        z = f(z, *x)
    return z


X = draw(4, 5)


def true_gradients(W, f=cell):
    x, W = X.clone().requires_grad_(), W.clone().requires_grad_()
    return torch.autograd.grad(unroll(f, torch.zeros_like(X), x, W).pow(3).sum(), (x, W))


def layer_gradients(layer, W):
    x, W = X.clone().requires_grad_(), W.clone().requires_grad_()
    return torch.autograd.grad(layer(x, W).pow(3).sum(), (x, W))


def assert_close(got, true, tolerance=1e-10):
    for a, b in zip(got, true, strict=True):
        assert float((a - b).detach().abs().max()) <= tolerance


# What other implementations get wrong


@pytest.mark.parametrize("solver", ["auto", "plain", "anderson"])
def test_a_divergent_map_raises(solver):
    layer = EquilibriumLayer(lambda z, x: 2.0 * z + x, solver=solver)
    with pytest.raises(EquilibriumError, match="not seen to contract") as error:
        layer(X)
    assert error.value.info.status is SolveStatus.NOT_CONTRACTING
    assert error.value.info.error_bound.isinf().all()


@pytest.mark.parametrize("solver", ["auto", "plain", "anderson"])
def test_a_map_of_norm_3_gives_an_error_and_no_wrong_gradient(solver):
    W = 3.0 * rotation(5)
    with pytest.raises(EquilibriumError) as error:
        layer_gradients(EquilibriumLayer(cell, solver=solver, max_iterations=100), W)
    assert error.value.info.status in (SolveStatus.NOT_CONTRACTING, SolveStatus.MAX_ITERATIONS)


def test_three_iterations_are_flagged():
    W = scaled(0.8)
    layer = EquilibriumLayer(cell, max_iterations=3, contraction=0.8)
    with pytest.raises(EquilibriumError, match="raise max_iterations") as error:
        layer(X, W)
    assert error.value.info.status is SolveStatus.MAX_ITERATIONS
    z, info = layer.solve(X, W)
    true = unroll(cell, torch.zeros_like(X), X, W)
    assert ((z - true).norm(dim=1) <= info.error_bound).all()
    assert float(info.error_bound.min()) > 1e-3


def test_an_unconverged_backward_is_flagged():
    W = scaled(0.9)
    start = EquilibriumLayer(cell)(X, W)
    x = X.clone().requires_grad_()
    layer = EquilibriumLayer(cell, max_iterations=3, contraction=0.9, tolerance=1e-6)
    loss = layer(x, W, z0=start).sum()
    with pytest.raises(EquilibriumError, match="backward solve") as error:
        loss.backward()
    assert error.value.info is layer.backward_info
    assert layer.backward_info.status is SolveStatus.MAX_ITERATIONS
    assert x.grad is None


def test_the_default_gradient_is_the_true_one():
    W = scaled(0.9)
    layer = EquilibriumLayer(cell)
    true = true_gradients(W)
    assert_close(layer_gradients(layer, W), true)
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    z = EquilibriumLayer(cell)(X, W)
    one_step = torch.autograd.grad(cell(z, x, w), (x, w), 3.0 * z**2)
    assert float((one_step[0] - true[0]).norm() / true[0].norm()) > 0.1  # what a one-step gradient would give


def test_every_backward_pass_gives_the_same_gradient():
    W = scaled(0.9)
    x = X.clone().requires_grad_()
    loss = EquilibriumLayer(cell)(x, W).pow(3).sum()
    true = true_gradients(W)[0]
    for _ in range(3):
        assert_close(torch.autograd.grad(loss, x, retain_graph=True), (true,))


def test_two_calls_in_one_graph():
    W = scaled(0.8)
    layer = EquilibriumLayer(cell)

    def twice(solve, x, w):
        return solve(solve(x, w), w).pow(3).sum()

    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    got = torch.autograd.grad(twice(layer, x, w), (x, w))
    true = torch.autograd.grad(twice(lambda x, w: unroll(cell, torch.zeros_like(x), x, w), x, w), (x, w))
    assert_close(got, true)


class Cell(nn.Module):
    def __init__(self, size=5, norm=0.7):
        super().__init__()
        self.W = nn.Parameter(scaled(norm, size))

    def forward(self, z, x):
        return torch.tanh(z @ self.W + x)


@pytest.mark.parametrize("training", [True, False])
def test_gradient_in_eval_and_training(training):
    layer = EquilibriumLayer(Cell()).train(training)
    layer(X).pow(3).sum().backward()
    assert_close((layer.f.W.grad,), true_gradients(layer.f.W.detach())[1:])


@pytest.mark.parametrize("tolerance", [None, 1e-9])
def test_float32_stops_and_the_bound_holds(tolerance):
    W, x = scaled(0.9).float(), X.float()
    layer = EquilibriumLayer(cell, tolerance=tolerance, contraction=0.9)
    z = layer(x, W)
    assert layer.info.converged
    assert layer.info.rounding_limited == (tolerance is not None)
    true = unroll(cell, torch.zeros_like(X), x.double(), W.double())
    error = (z.double() - true).norm(dim=1)
    assert (error <= layer.info.error_bound).all()
    assert (error <= 1e-5 * true.norm(dim=1)).all()


def test_float32_gradient():
    W = scaled(0.9)
    x, w = X.float().requires_grad_(), W.float().requires_grad_()
    got = torch.autograd.grad(EquilibriumLayer(cell)(x, w).pow(3).sum(), (x, w))
    assert_close([g.double() for g in got], true_gradients(w.detach().double()), 1e-3)


def test_the_output_has_a_gradient_exactly_where_it_can():
    layer = EquilibriumLayer(Cell())
    assert layer(X).requires_grad
    layer.requires_grad_(False)
    assert not layer(X).requires_grad
    assert layer(X.clone().requires_grad_()).requires_grad
    with torch.no_grad():
        assert not layer(X.clone().requires_grad_()).requires_grad
    with torch.inference_mode():
        assert torch.equal(layer(X), layer.solve(X).z)
        features = X.clone()
    assert torch.equal(layer(features), layer(X))


def test_double_backward_is_that_of_the_unroll():
    W = scaled(0.8)

    def second(solve):
        x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
        first = torch.autograd.grad(solve(x, w).pow(3).sum(), (x, w), create_graph=True)
        return torch.autograd.grad(sum(g.pow(2).sum() for g in first), (x, w))

    true = second(lambda x, w: unroll(cell, torch.zeros_like(x), x, w))
    assert_close(second(EquilibriumLayer(cell)), true, 1e-9)


def test_gradcheck_and_gradgradcheck():
    arguments = (draw(2, 2).requires_grad_(), scaled(0.5, 2).requires_grad_())
    layer = EquilibriumLayer(cell)
    assert torch.autograd.gradcheck(layer, arguments)
    assert torch.autograd.gradgradcheck(layer, arguments, fast_mode=True)


# Bounds and statuses


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    ("solver", "q"),
    [("plain", 0.3), ("plain", 0.9), ("auto", 0.3), ("auto", 0.99), ("anderson", 0.9), ("anderson", 0.99)],
)
@pytest.mark.parametrize("given", [True, False])
def test_the_bound_holds_for_each_sample(solver, q, dtype, given):
    A = (q * rotation()).to(dtype)
    x = (draw(5, 6) * torch.logspace(-6, 6, 5)[:, None]).to(dtype)
    layer = EquilibriumLayer(lambda z, x: z @ A + x, contraction=q * (1 + 1e-6) if given else None, solver=solver)
    z, info = layer.solve(x)
    assert info.converged and info.guaranteed is given
    true = torch.linalg.solve((torch.eye(6) - A.double()).T, x.double().T).T
    assert ((z.double() - true).norm(dim=1) <= info.error_bound).all()
    assert (
        info.error_bound <= 10.0 * max(1e-12, 1e-5 * (dtype == torch.float32)) * 4.0 * z.norm(dim=1) / (1 - q)
    ).all()
    assert info.contraction == pytest.approx(q, rel=0.02)


def test_the_backward_bound_holds():
    W, v = scaled(0.9), draw(4, 5, seed=8)
    for tolerance in (1e-2, 1e-10):
        layer = EquilibriumLayer(cell, contraction=0.9, backward_tolerance=tolerance)
        x = X.clone().requires_grad_()
        z = layer(x, W)
        # x enters like a bias, so that dL/dx = (1 − z²) u
        (gradient,) = torch.autograd.grad(z, x, v)
        u = gradient / (1.0 - z.detach() ** 2)
        jacobians = (1.0 - z.detach() ** 2)[:, :, None] * W.T  # (sample, i, j): ∂f_i/∂z_j at z = tanh(zW + x)
        true = torch.linalg.solve(torch.eye(5) - jacobians.mT, v)
        error = (u - true).norm(dim=1)
        assert (error <= layer.backward_info.error_bound + 1e-11).all()
        assert (layer.backward_info.error_bound <= 1.1 * tolerance * true.norm(dim=1)).all()
        assert layer.backward_info.guaranteed


def test_a_false_contraction_factor_is_refuted():
    A = 0.9 * rotation()
    layer = EquilibriumLayer(lambda z, x: z @ A + x, contraction=0.5)
    with pytest.raises(EquilibriumError, match=r"contradict the given contraction=0\.5"):
        layer(draw(3, 6))
    # forward along a fast direction the claim stands; the backward sees the slow one
    D = torch.diag(torch.tensor([0.1, 0.9], dtype=torch.float64))
    x = torch.tensor([[1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    layer = EquilibriumLayer(lambda z, x: z @ D + x, contraction=0.5)
    loss = layer(x)[:, 1].sum()
    with pytest.raises(EquilibriumError, match="backward solve"):
        loss.backward()


def test_non_finite_values_are_named():
    with pytest.raises(EquilibriumError, match="NaN or infinity") as error:
        EquilibriumLayer(lambda z, x: 0.5 * z + x)(torch.tensor([[1.0], [float("nan")]], dtype=torch.float64))
    info = error.value.info
    assert info.status is SolveStatus.NON_FINITE
    assert info.failed.tolist() == [False, True]
    assert "1 of 2 samples failed, the first at index (1,)" in info.text


def test_a_map_that_contracts_in_the_long_run_only():
    N = torch.tensor([[0.5, 5.0], [0.0, 0.5]], dtype=torch.float64)
    x = draw(3, 2)
    true = x @ torch.linalg.inv(torch.eye(2) - N)
    for solver in ("auto", "plain"):
        layer = EquilibriumLayer(lambda z, x: z @ N + x, solver=solver)
        assert_close((layer(x),), (true,), 1e-9)
    with pytest.raises(EquilibriumError):
        EquilibriumLayer(lambda z, x: z @ N + x, contraction=0.6)(x)


def test_what_float32_cannot_resolve_is_an_error():
    A = (0.9999 * torch.eye(3)).float()
    layer = EquilibriumLayer(lambda z, x: z @ A + x, contraction=0.9999)
    with pytest.raises(EquilibriumError, match="use float64 or a larger tolerance"):
        layer(torch.ones(2, 3))
    EquilibriumLayer(lambda z, x: z @ A + x, contraction=0.9999, tolerance=0.1)(torch.ones(2, 3))


def test_a_fixed_point_at_the_start_is_checked_beside_it():
    with pytest.raises(EquilibriumError, match="without a bound"):
        EquilibriumLayer(lambda z, x: z)(X)
    layer = EquilibriumLayer(lambda z, x: 0.5 * z + x)
    z = layer(X)
    assert_close((layer(X, z0=z),), (2.0 * X,), 1e-11)
    assert layer.info.iterations <= 3
    assert layer.info.contraction == pytest.approx(0.5, rel=1e-6)


def test_a_fixed_point_at_zero():
    layer = EquilibriumLayer(lambda z, x: 0.5 * torch.sin(z))
    z = layer(X, z0=torch.ones_like(X))
    assert float(z.abs().max()) <= 1e-12


def test_samples_do_not_depend_on_their_company():
    x = draw(6, 3) * torch.logspace(-3, 3, 6)[:, None]

    def f(z, x):
        return 0.8 * torch.sin(z) + x

    z = EquilibriumLayer(f, solver="plain")(x)
    for i in range(6):
        assert torch.equal(EquilibriumLayer(f, solver="plain")(x[i : i + 1]), z[i : i + 1])
    assert torch.equal(EquilibriumLayer(f)(x), EquilibriumLayer(f)(x))


def test_a_map_that_couples_samples_is_still_solved():
    x = torch.cat((torch.zeros(1, 2), torch.ones(3, 2))).double()

    def f(z, x):
        return 0.2 * z + 0.7 * z.roll(1, 0) + x

    true = torch.linalg.solve(torch.eye(4) * 0.8 - 0.7 * torch.eye(4).roll(1, 0), x.float()).double()
    for solver in ("plain", "auto"):
        z, info = EquilibriumLayer(f, solver=solver, batch_dims=0).solve(x)
        assert info.converged
        assert_close((z,), (true,), 1e-4)
    z, info = EquilibriumLayer(f, solver="plain").solve(x)
    assert float((f(z, x) - z).abs().max()) <= 1e-9 or not info.converged


def test_anderson_is_faster_on_slow_maps():
    A = 0.95 * rotation()
    x = draw(4, 6)
    counts = {}
    for solver in ("plain", "auto", "anderson"):
        counts[solver] = EquilibriumLayer(lambda z, x: z @ A + x, solver=solver, max_iterations=5000).solve(x).info
    assert counts["plain"].iterations > 5 * counts["auto"].iterations
    assert counts["auto"].solver == counts["anderson"].solver == "anderson"
    assert counts["plain"].solver == "plain"


def test_noise_of_its_own_is_named():
    generator = torch.Generator().manual_seed(0)
    with pytest.raises(EquilibriumError, match="two values for the same arguments"):
        EquilibriumLayer(lambda z, x: 0.5 * z + torch.randn(4, 5, generator=generator, dtype=z.dtype) + x)(X)


def test_on_failure():
    x = X.clone().requires_grad_()
    layer = EquilibriumLayer(lambda z, x: 1.01 * z + x, on_failure="warn", max_iterations=5)
    with pytest.warns(EquilibriumWarning, match="did not converge"):
        z = layer(x)
    with pytest.warns(EquilibriumWarning, match="backward"):
        z.sum().backward()
    layer = EquilibriumLayer(lambda z, x: 1.01 * z + x, on_failure="return", max_iterations=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(x).sum().backward()
    assert not layer.info.converged and not layer.backward_info.converged


def test_memory_does_not_grow_with_the_iterations():
    def saved(tolerance):
        count = 0

        def pack(tensor):
            nonlocal count
            count += tensor.numel()
            return tensor

        x = X.clone().requires_grad_()
        layer = EquilibriumLayer(cell, tolerance=tolerance, solver="plain")
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            layer(x, scaled(0.9).requires_grad_())
        return count, layer.info.iterations

    (coarse, few), (fine, many) = saved(1e-1), saved(1e-12)
    assert many > 4 * few
    assert coarse == fine


# Shapes and inputs


def test_shapes_several_inputs_and_state_shape():
    U, V = draw(3, 4, seed=5), draw(2, 4, seed=6)
    layer = EquilibriumLayer(
        lambda z, a, b, *, k=0.5: k * torch.cos(z) + (a @ U + b @ V).view(-1, 2, 2), state_shape=(2, 2)
    )
    a, b = draw(5, 3).requires_grad_(), draw(5, 2, seed=7).requires_grad_()
    z = layer(a, b)
    assert z.shape == (5, 2, 2)
    assert layer.info.error_bound.shape == (5,)
    total = z.sum()
    weight = 1.0 / (1.0 + 0.5 * torch.sin(z.detach()))  # dz = weight d(aU + bV)
    assert_close(torch.autograd.grad(total, (a, b)), (weight.flatten(1) @ U.T, weight.flatten(1) @ V.T))
    with pytest.raises(ValueError, match="pass state_shape or z0"):
        EquilibriumLayer(lambda z, a, b: layer.f(torch.zeros(5, 2, 2), a, b))(a, b)
    with pytest.raises(ValueError, match="after the batch it must be state_shape"):
        layer(a, b, z0=torch.zeros(5, 4).double())


def test_arguments_that_are_not_tensors_or_not_real():
    mask = torch.tensor([[True, False, True, False, True]])
    layer = EquilibriumLayer(lambda z, x, mask, factor: torch.where(mask, factor * z, 0.0) + x)
    x = X.clone().requires_grad_()
    layer(x, mask, 0.5).sum().backward()
    assert_close((x.grad,), (torch.where(mask, 2.0, 1.0).expand(4, 5).double(),))


def test_batch_dims():
    x = draw(2, 3, 4)
    layer = EquilibriumLayer(lambda z, x: 0.5 * torch.sin(z) + x, batch_dims=2)
    layer(x)
    assert layer.info.residual.shape == (2, 3)
    layer = EquilibriumLayer(lambda z, x: 0.5 * torch.sin(z) + x, batch_dims=0)
    layer(x[0, 0, 0])
    assert layer.info.residual.shape == ()
    with pytest.raises(ValueError, match="needs 1 batch dimension"):
        EquilibriumLayer(lambda z, x: z)(torch.tensor(1.0))


def test_empty_batch():
    layer = EquilibriumLayer(Cell())
    x = torch.zeros(0, 5, dtype=torch.float64, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad.shape == (0, 5)
    assert not layer.f.W.grad.any()
    assert layer.info.converged


def test_z0_changes_neither_result_nor_gradient_and_is_kept():
    W = scaled(0.7)
    z0 = draw(4, 5, seed=9).requires_grad_()
    before = z0.detach().clone()
    x = X.clone().requires_grad_()
    layer = EquilibriumLayer(cell)
    z = layer(x, W, z0=z0)
    assert_close((z,), (layer(x, W),), 1e-10)
    gradient, none = torch.autograd.grad(z.pow(3).sum(), (x, z0), allow_unused=True)
    assert none is None
    assert_close((gradient,), true_gradients(W)[:1])
    assert torch.equal(z0, before)


def test_a_map_without_z_has_a_gradient():
    x = X.clone().requires_grad_()
    EquilibriumLayer(lambda z, x: 3.0 * x)(x).sum().backward()
    assert_close((x.grad,), (torch.full_like(X, 3.0),))


def add_in_place(z, x):
    return z.mul_(0.5).add_(x)


def change_x(z, x):
    return 0.5 * z + x.mul_(0.5)


@pytest.mark.parametrize(
    ("f", "error", "match"),
    [
        (lambda z, x: (z, x), TypeError, "returned a tuple"),
        (lambda z, x: z[:, :2], ValueError, r"has shape \(4, 2\) but z has \(4, 5\)"),
        (lambda z, x: z.float(), TypeError, "has dtype float32 but z has float64"),
        (add_in_place, ValueError, "changes its argument z in place"),
        (change_x, ValueError, r"changes its argument x\[0\] in place"),
    ],
)
@pytest.mark.parametrize("grad", [True, False])
def test_bad_maps(f, error, match, grad):
    with pytest.raises(error, match=match), torch.set_grad_enabled(grad):
        EquilibriumLayer(f)(X.clone())


def test_a_map_that_detaches_is_refused():
    x = X.clone().requires_grad_()
    layer = EquilibriumLayer(lambda z, x: 0.5 * z.detach() + x.detach())
    with pytest.raises(ValueError, match="requires grad, but f"):
        layer(x)
    with torch.no_grad():
        assert_close((layer(x),), (2.0 * X,), 1e-11)


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64, torch.float8_e5m2])
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(TypeError, match="a state holds real numbers, in float64, float32, bfloat16 or float16"):
        EquilibriumLayer(lambda z, x: z)(torch.ones(2, 2, dtype=dtype))


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"contraction": 1.0}, ValueError, "factor below 1"),
        ({"contraction": "a"}, TypeError, "contraction"),
        ({"solver": "andersen"}, ValueError, "did you mean 'anderson'"),
        ({"on_failure": "ignore"}, ValueError, "on_failure"),
        ({"tolerance": -1.0}, ValueError, "tolerance"),
        ({"backward_tolerance": float("nan")}, ValueError, "backward_tolerance"),
        ({"max_iterations": 0}, ValueError, "max_iterations"),
        ({"batch_dims": -1}, ValueError, "batch_dims"),
        ({"state_shape": (0,)}, ValueError, "state_shape"),
        ({"state_shape": 2.5}, TypeError, "state_shape is 2.5; pass an integer or a sequence"),
        ({"state_shape": "2"}, TypeError, "state_shape is '2'; pass an integer or a sequence"),
    ],
)
def test_bad_options(options, error, match):
    with pytest.raises(error, match=match):
        EquilibriumLayer(cell, **options)


def test_bad_arguments():
    with pytest.raises(TypeError, match="f is an int"):
        EquilibriumLayer(3)
    with pytest.raises(TypeError, match=r"z0\[0\] is a float; pass a tensor"):
        EquilibriumLayer(cell)(X, z0=[0.0])
    with pytest.raises(ValueError, match="pass z0"):
        EquilibriumLayer(lambda z: z)()


def test_input_that_is_not_finite_or_not_dense_is_named():
    layer = EquilibriumLayer(lambda z, x: 0.5 * z + x)
    with pytest.raises(EquilibriumError, match="look for NaN or infinity in x"):
        layer(X * float("nan"))
    with pytest.raises(TypeError, match=r"is a sparse tensor; pass x.to_dense"):
        layer(X.to_sparse())


def test_threads_share_a_module():
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.W = nn.Parameter(scaled(0.5))

        def forward(self, z, x):
            return cell(z, x, self.W)

    layer = EquilibriumLayer(Cell())
    before = dict(layer.named_parameters())
    W = layer.f.W  # read once: while a thread evaluates the module, its attribute is that thread's
    z = layer(X)
    (expected,) = torch.autograd.grad(z.sum(), W)
    wrong = []

    def work():
        for _ in range(10):
            found = layer(X)
            (grad,) = torch.autograd.grad(found.sum(), W)
            if not (torch.equal(found, z) and torch.equal(grad, expected)):
                wrong.append(grad)

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(work) for _ in range(3)]:
            done.result()
    assert wrong == []
    assert all(p is before[name] and p.requires_grad for name, p in layer.named_parameters())


def test_a_map_without_x():
    target = X.clone().requires_grad_()
    z = EquilibriumLayer(lambda z: 0.5 * z + target)(z0=torch.zeros_like(X))
    z.sum().backward()
    assert_close((target.grad,), (torch.full_like(X, 2.0),))


def test_state_dict_copy_and_repr():
    layer = EquilibriumLayer(Cell(), contraction=0.7)
    layer(X)
    again = copy.deepcopy(layer)
    again.load_state_dict(layer.state_dict())
    assert torch.equal(again(X), layer(X))
    assert list(layer.state_dict()) == ["f.W"]
    assert "contraction=0.7" in repr(layer)
    assert isinstance(layer.solve(X).z, Tensor)
