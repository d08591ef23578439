"""Warm starts across batches: fewer evaluations, the same result, the same bounds."""

import pytest
import torch
from torch import Tensor, nn

from surefoot._equilibrium.failures import EquilibriumError
from surefoot._equilibrium.layer import EquilibriumLayer
from surefoot._equilibrium.warm_start import WarmStart

WIDTH, SAMPLES = 6, 12


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


class Cell(nn.Module):
    def __init__(self, dtype=torch.float64) -> None:
        super().__init__()
        W = draw(WIDTH, WIDTH, seed=1, dtype=dtype)
        self.W = nn.Parameter(0.8 * W / torch.linalg.matrix_norm(W, 2))

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        return torch.tanh(z @ self.W + x)


X = draw(SAMPLES, WIDTH)


def pass_over(layer, warm, seed):
    """One epoch in a random order; z and gradient of every sample, and the evaluations."""
    z, evaluations = torch.zeros_like(X), 0
    layer.zero_grad()
    for index in torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(seed)).split(5):
        value = layer(X[index], memory=None if warm is None else warm[index])
        value.pow(3).sum().backward()
        z[index] = value.detach()
        evaluations += layer.info.iterations + layer.backward_info.iterations
    return z, layer.f.W.grad.clone(), evaluations


@pytest.mark.parametrize("dtype", [None, torch.float32])
def test_after_a_small_step_a_warm_epoch_is_cheaper_and_gives_the_same(dtype):
    # mixing in six dimensions is so fast that a start matters little
    layer = EquilibriumLayer(Cell(), contraction=0.81, solver="plain")
    warm = WarmStart(SAMPLES, dtype=dtype, backward=True)
    pass_over(layer, warm, 0)
    with torch.no_grad():
        layer.f.W.mul_(1.0001)
    z, gradient, evaluations = pass_over(layer, warm, 1)
    true, true_gradient, cold = pass_over(layer, None, 1)
    assert evaluations < 0.8 * cold
    assert float((z - true).abs().max()) < 1e-11
    assert float((gradient - true_gradient).abs().max()) < 1e-10


def test_warm_bounds_hold():
    layer, warm = (
        EquilibriumLayer(Cell(), contraction=0.81, tolerance=1e-3, backward_tolerance=1e-3),
        WarmStart(SAMPLES, backward=True),
    )
    for scale in (1.0, 1.01):
        with torch.no_grad():
            layer.f.W.mul_(scale)
        z = layer(X, memory=warm[:])
        (kept,) = torch.autograd.grad(z.sum(), layer.f.W)
    assert layer.info.iterations < 8
    true = EquilibriumLayer(layer.f, contraction=0.81).solve(X).z
    assert ((z.detach() - true).norm(dim=1) <= layer.info.error_bound).all()
    # u = (I − Jᵀ)⁻¹ v at that z, which is what the memory has kept
    J = (1.0 - layer.f(z, X).detach() ** 2)[:, None, :] * layer.f.W.detach()  # ∂z'_j/∂z_i
    u = torch.linalg.solve(torch.eye(WIDTH) - J, torch.ones(SAMPLES, WIDTH, 1, dtype=X.dtype))[..., 0]
    found = 1.0 + WIDTH**0.5 * warm.d.values
    assert ((found - u).norm(dim=1) <= layer.backward_info.error_bound).all()
    assert float((found - u).norm()) > 1e-9  # it is an approximation
    assert kept.isfinite().all()


def test_a_false_contraction_factor_is_refuted_from_a_warm_start_too():
    layer, warm = EquilibriumLayer(Cell(), max_iterations=60), WarmStart(SAMPLES, backward=True)
    layer(X, memory=warm[:]).sum().backward()
    with torch.no_grad():
        layer.f.W.mul_(4.0)
    before = warm.z.values.clone()
    with pytest.raises(EquilibriumError):
        layer(X, memory=warm[:])
    assert torch.equal(warm.z.values[layer.info.failed], before[layer.info.failed])  # failures are not kept
    assert layer.info.failed.any()


def test_the_first_solve_of_a_sample_starts_from_z0():
    layer, warm = EquilibriumLayer(Cell()), WarmStart(SAMPLES, backward=True)
    true = layer.solve(X).z
    layer(X, z0=true, memory=warm[:])
    assert layer.info.iterations <= 3  # of which one measures the contraction
    warm = WarmStart(SAMPLES, backward=True)
    layer(X[:6], memory=warm[:6])
    cold = layer.info.iterations
    layer(X[:6], memory=warm[6:])
    assert layer.info.iterations == cold


def test_only_the_first_backward_of_a_call_is_kept():
    layer, warm = EquilibriumLayer(Cell()), WarmStart(SAMPLES, backward=True)
    x = X.clone().requires_grad_()
    (first,) = torch.autograd.grad(layer(x, memory=warm[:]).pow(3).sum(), x, create_graph=True)
    kept = warm.d.values.clone()
    (second,) = torch.autograd.grad(first.pow(2).sum(), x)
    assert torch.equal(warm.d.values, kept)
    (plain,) = torch.autograd.grad(layer(x).pow(3).sum(), x, create_graph=True)
    assert float((second - torch.autograd.grad(plain.pow(2).sum(), x)[0]).abs().max()) < 1e-9
    layer(x, memory=warm[:]).pow(3).sum().backward()
    assert layer.backward_info.iterations <= 3


def test_memory_is_bounded_and_can_be_coarse_or_left_out():
    layer = EquilibriumLayer(Cell())
    for options, size in (({}, 8), ({"dtype": torch.bfloat16}, 2), ({"backward": True}, 8 + 8)):
        warm = WarmStart(SAMPLES, **options)
        assert warm.bytes == 0
        for _ in range(2):
            layer(X, memory=warm[:]).sum().backward()
        assert warm.bytes == size * SAMPLES * WIDTH
        warm.clear()
        assert warm.bytes == 0
    assert not any("memory" in name or "warm" in name for name in layer.state_dict())


def test_what_a_memory_shows():
    warm = WarmStart(SAMPLES)
    EquilibriumLayer(Cell())(X[:2], memory=warm[:2])
    assert repr(warm) == f"WarmStart({SAMPLES} samples, known: 2 z, 0 d, {8 * SAMPLES * WIDTH} bytes)"


def test_a_start_that_the_coarse_dtype_cannot_hold_is_left_out():
    layer, warm = EquilibriumLayer(lambda z, x: 0.5 * z + x), WarmStart(2, dtype=torch.float16)
    x = torch.tensor([[1e6], [1.0]], dtype=torch.float64)
    for _ in range(2):
        assert float((layer(x, memory=warm[:]) - 2.0 * x).abs().max()) < 1e-5
    assert warm.z.known.tolist() == [False, True]


def test_a_restart_goes_on_with_the_same_starts(tmp_path):
    layer, warm = EquilibriumLayer(Cell()), WarmStart(SAMPLES, backward=True)
    layer(X[:5], memory=warm[:5]).sum().backward()
    torch.save(warm.state_dict(), tmp_path / "warm.pt")
    again = WarmStart(SAMPLES, backward=True)
    again.load_state_dict(torch.load(tmp_path / "warm.pt"))
    for a, b in ((warm.z, again.z), (warm.d, again.d)):
        assert torch.equal(a.values, b.values)
        assert torch.equal(a.known, b.known)
    again.load_state_dict(WarmStart(SAMPLES, backward=True).state_dict())
    assert again.bytes == 0
    with pytest.raises(ValueError, match="12 samples"):
        WarmStart(3).load_state_dict(warm.state_dict())


@pytest.mark.parametrize("shape", [(), (4, 3)])
def test_any_number_of_batch_dimensions(shape):
    layer, warm = EquilibriumLayer(Cell(), batch_dims=len(shape)), WarmStart(SAMPLES, backward=True)
    index = torch.arange(SAMPLES).flip(0)[: 12 if shape else 1].view(shape)
    for _ in range(2):
        z = layer(X[index], memory=warm[index])
        z.sum().backward()
    assert layer.info.iterations <= 3
    assert layer.backward_info.iterations <= 3
    assert torch.equal(warm.z.values[index], z.detach())


def test_a_sample_may_be_one_number():
    layer, warm = EquilibriumLayer(lambda z, x: 0.5 * z + x), WarmStart(3, backward=True)
    x = torch.tensor([1.0, 2.0, 0.0], dtype=torch.float64, requires_grad=True)
    for _ in range(2):
        layer(x, memory=warm[:]).sum().backward()
    assert layer.backward_info.iterations <= 2


def test_what_is_wrong_is_said():
    layer, warm = EquilibriumLayer(Cell()), WarmStart(SAMPLES, backward=True)
    with pytest.raises(ValueError, match="one number for each sample"):
        layer(X, memory=warm[:3])
    with pytest.raises(ValueError, match="under vmap"):
        torch.vmap(lambda x: layer(x, memory=warm[:3]))(X.view(4, 3, WIDTH))
    with pytest.raises(IndexError):
        warm[SAMPLES]
    layer(X, memory=warm[:])
    with pytest.raises(ValueError, match=r"clear\(\)"):
        EquilibriumLayer(lambda z, x: 0.5 * z + x)(X[:, :3], memory=warm[:])
    with pytest.raises(TypeError, match="floating-point"):
        WarmStart(3, dtype=torch.int64)
    with pytest.raises(ValueError, match="samples"):
        WarmStart(0)


def test_a_memory_outlives_inference_mode():
    layer = EquilibriumLayer(Cell())
    with torch.inference_mode():
        warm = WarmStart(SAMPLES)
        layer(X, memory=warm[:])
    cold = layer.info
    layer(X, memory=warm[:]).sum().backward()
    assert cold is not None and layer.info is not None
    assert layer.info.iterations < cold.iterations // 2
