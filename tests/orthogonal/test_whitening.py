"""``sf.nn.Whitening``: the covariance it leaves, gradients at ties, few samples, running statistics, shapes and precisions."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

import surefoot as sf

F64 = torch.float64


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def correlated(samples: int, features: int, seed: int = 0) -> Tensor:
    """Samples with correlations, variances from 1 to 1e-4, and a mean."""
    mixing = draw(features, features, seed=seed + 1) * torch.logspace(0, -2, features, dtype=F64)
    return draw(samples, features, seed=seed) @ mixing.mT + draw(features, seed=seed + 2)


def covariance(y: Tensor) -> Tensor:
    """Of (N, d, ...), biased, as training normalises."""
    rows = y.detach().double().movedim(1, -1).reshape(-1, y.shape[1])
    rows = rows - rows.mean(0)
    return rows.mT @ rows / len(rows)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_the_covariance_is_what_is_stated(dtype: torch.dtype) -> None:
    x = correlated(200, 8).to(dtype)
    y = sf.nn.Whitening(8, eps=1e-4, dtype=dtype)(x).detach()
    C = covariance(x)
    t, values = C.trace() / 8, torch.linalg.eigvalsh(C)
    left = C @ torch.linalg.inv(C + 1e-4 * t * torch.eye(8, dtype=F64))
    condition = float((values[-1] + 1e-4 * t) / (values[0] + 1e-4 * t))
    assert float((covariance(y) - left).abs().max()) <= 8 * condition * torch.finfo(dtype).eps
    assert float(y.mean(0).abs().max()) <= 8 * condition**0.5 * torch.finfo(dtype).eps
    # the map that changes x least is symmetric positive definite: cov(x, y) = C(C + εtI)^-½ is so
    cross = (x.double() - x.double().mean(0)).mT @ y.double() / len(x)
    assert float((cross - cross.mT).abs().max()) <= 8 * condition * torch.finfo(dtype).eps
    assert float(torch.linalg.eigvalsh(cross)[0]) > 0


def test_with_a_tiny_eps_the_covariance_is_the_identity() -> None:
    y = sf.nn.Whitening(8, eps=1e-14, dtype=F64)(correlated(200, 8))
    assert float((covariance(y) - torch.eye(8, dtype=F64)).abs().max()) <= 1e-9


def test_groups_are_whitened_each_by_itself() -> None:
    x = correlated(100, 6)
    y = sf.nn.Whitening(6, groups=2, dtype=F64)(x)
    parts = [sf.nn.Whitening(3, dtype=F64)(part) for part in x.split(3, 1)]
    assert torch.allclose(y, torch.cat(parts, 1), atol=1e-12)


def test_images_are_batches_of_pixels() -> None:
    x = correlated(5 * 4 * 3, 6).reshape(5, 4, 3, 6).movedim(-1, 1)
    layer = sf.nn.Whitening(6, dtype=F64)
    flat = copy.deepcopy(layer)(x.movedim(1, -1).reshape(-1, 6))
    assert torch.allclose(layer(x).movedim(1, -1).reshape(-1, 6), flat, atol=1e-12)
    half = copy.deepcopy(layer).to(torch.bfloat16)
    assert half(x.bfloat16()).dtype is torch.bfloat16
    # rounded statistics are no reason for a negative variance
    assert bool(half.eval()(x.bfloat16()).isfinite().all())


@pytest.mark.parametrize("samples", [2, 4, 12])
def test_gradients_with_few_samples(samples: int) -> None:
    x = draw(samples, 5).requires_grad_()
    assert torch.autograd.gradcheck(sf.nn.Whitening(5, eps=0.1, dtype=F64), x)


def test_gradients_are_right_where_variances_are_tied() -> None:
    """Orthonormal columns: all variances are equal, and torch's route through eigh has no gradient."""
    x = torch.linalg.qr(draw(9, 4)).Q
    x = torch.linalg.qr(x - x.mean(0)).Q.requires_grad_()
    layer = sf.nn.Whitening(4, dtype=F64)
    assert torch.autograd.gradcheck(layer, x)
    centred = x - x.mean(0)
    C = centred.mT @ centred / 9
    L, Q = torch.linalg.eigh(C + 1e-5 * C.trace() / 4 * torch.eye(4, dtype=F64))
    theirs = torch.autograd.grad((centred @ (Q * L.rsqrt()) @ Q.mT).pow(3).sum(), x)[0]
    ours = torch.autograd.grad(layer(x).pow(3).sum(), x)[0]
    assert not torch.allclose(theirs, ours, atol=1e-3)


def test_directions_without_variance_stay_zero() -> None:
    x = correlated(3, 6)
    y = sf.nn.Whitening(6, eps=1e-8, dtype=F64)(x)
    values = torch.linalg.eigvalsh(covariance(y))
    assert float((values - torch.tensor([0.0, 0, 0, 0, 1, 1], dtype=F64)).abs().max()) <= 1e-4
    for dtype in (torch.float32, F64):
        layer = sf.nn.Whitening(6, eps=1e-30, dtype=dtype)
        assert bool(layer(x.to(dtype)).isfinite().all()) and bool(layer.eval()(x.to(dtype)).isfinite().all())
    constant = torch.ones(4, 6, requires_grad=True)
    y = sf.nn.Whitening(6)(constant)
    y.sum().backward()
    assert bool((y == 0).all()) and constant.grad is not None and bool(constant.grad.isfinite().all())


@pytest.mark.parametrize("momentum", [0.3, None])
def test_running_statistics(momentum: float | None) -> None:
    layer = sf.nn.Whitening(4, momentum=momentum, affine=False, dtype=F64)
    mean, C = torch.zeros(4, dtype=F64), torch.eye(4, dtype=F64)
    for k in range(3):
        x = correlated(20, 4, seed=k)
        layer(x)
        share = momentum or 1 / (k + 1)
        mean, C = mean + share * (x.mean(0) - mean), C + share * (torch.cov(x.mT) - C)
    assert torch.allclose(layer.running_mean[0], mean) and torch.allclose(layer.running_covariance[0], C)
    layer.eval()
    x = correlated(7, 4, seed=9)
    expected = (x - mean) @ sf.linalg.inv_sqrt(C + 1e-5 * C.trace() / 4 * torch.eye(4, dtype=F64))
    assert torch.allclose(layer(x), expected) and torch.allclose(layer(x[:1]), expected[:1])
    other = sf.nn.Whitening(4, momentum=momentum, affine=False, dtype=F64).eval()
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), layer(x)) and int(other.num_batches_tracked) == 3


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e30])
def test_a_batch_that_fails_leaves_the_statistics_as_they_were(bad: float) -> None:
    layer = sf.nn.Whitening(3)
    layer(correlated(8, 3).float())
    before = copy.deepcopy(layer.state_dict())
    x = correlated(8, 3).float()
    x[0, 0] = bad
    with pytest.raises(LinAlgError, match="the covariance of x is not finite"):
        layer(x)
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())
    layer.running_covariance.fill_(math.inf)
    with pytest.raises(LinAlgError, match="that is kept is not finite"):
        layer.eval()(x)


@pytest.mark.parametrize("convert", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_statistics_of_half_precision_do_not_stand_still(dtype: torch.dtype, convert: bool) -> None:
    """In half precision the mean over these batches has a covariance with a negative eigenvalue."""
    layer = sf.nn.Whitening(4, momentum=None, dtype=None if convert else dtype).to(dtype)
    v = torch.tensor([1.0, -0.3, 2.0, 0.7])
    batches = [((draw(64, 1, seed=k).float() * v * (1 + k % 3)) + 3).to(dtype) for k in range(200)]
    for batch in batches:
        layer(batch)
    assert layer.weight is not None and layer.weight.dtype == dtype
    assert layer.running_covariance.dtype == torch.float32
    mean = torch.stack([torch.cov(batch.float().T) for batch in batches]).mean(0)
    torch.testing.assert_close(layer.running_covariance[0], mean, rtol=1e-4, atol=1e-4)
    assert bool(layer.eval()(batches[0]).isfinite().all())


def test_scale_and_shift_are_learned() -> None:
    layer = sf.nn.Whitening(3, dtype=F64)
    x = correlated(10, 3)
    with torch.no_grad():
        y = layer(x)
        layer.weight.copy_(torch.tensor([1.0, 2, 3]))  # type: ignore[union-attr]
        layer.bias.copy_(torch.tensor([0.0, 1, 0]))  # type: ignore[union-attr]
    assert torch.allclose(layer(x), y * torch.tensor([1.0, 2, 3], dtype=F64) + torch.tensor([0.0, 1, 0], dtype=F64))
    assert not list(sf.nn.Whitening(3, affine=False).parameters())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_compiled() -> None:
    layer = sf.nn.Whitening(3, dtype=F64)
    compiled: Any = torch.compile(copy.deepcopy(layer), fullgraph=True, backend="aot_eager")
    x = correlated(6, 3).requires_grad_()
    assert torch.allclose(compiled(x), layer(x), atol=1e-12)
    ours, theirs = (torch.autograd.grad(module(x).pow(3).sum(), x)[0] for module in (layer, compiled))
    assert torch.allclose(ours, theirs, atol=1e-10)
    assert torch.allclose(layer.running_covariance, compiled.running_covariance)


def test_errors_name_the_argument() -> None:
    for arguments, match in (
        ({"groups": 2}, "groups is 2, which does not divide features = 3"),
        ({"momentum": 2.0}, "momentum is 2.0; pass a number in"),
        ({"eps": 0.0}, "eps is 0.0; it must be a positive number"),
    ):
        with pytest.raises(ValueError, match=match):
            sf.nn.Whitening(3, **arguments)  # type: ignore[arg-type]
    layer = sf.nn.Whitening(3)
    with pytest.raises(ValueError, match=r"x has shape \(5, 4\); it must be \(N, 3\)"):
        layer(torch.ones(5, 4))
    with pytest.raises(ValueError, match="x has one sample for each feature"):
        layer(torch.ones(1, 3))
    with pytest.raises(TypeError, match=r"x has dtype torch\.int64"):
        layer(torch.ones(5, 3, dtype=torch.int64))
