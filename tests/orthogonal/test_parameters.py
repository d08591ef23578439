"""Parameters of the orthonormal optimisers: convolutions, half precision, several in one group, and resumption."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from surefoot._orthogonal.cayley_steps import defect, tall
from surefoot.optim import CayleyAdam, CayleySGD

F32, F64, BF16, F16 = torch.float32, torch.float64, torch.bfloat16, torch.float16
MAKERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p, **o: CayleySGD(p, lr=0.05, **o),
    "momentum": lambda p, **o: CayleySGD(p, lr=0.02, momentum=0.8, dampening=0.1, **o),
    "nesterov": lambda p, **o: CayleySGD(p, lr=0.02, momentum=0.8, nesterov=True, **o),
    "adam": lambda p, **o: CayleyAdam(p, lr=0.02, **o),
}
every_maker = pytest.mark.parametrize("make", list(MAKERS.values()), ids=list(MAKERS))


def orthonormal(*shape: int, dtype: torch.dtype = F64, seed: int = 0) -> Tensor:
    drawn = torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))
    left, _, right = torch.linalg.svd(drawn, full_matrices=False)
    return (left @ right).to(dtype)


def run(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], steps: int, seed: int = 1) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for p in parameters:
            p.grad = torch.randn(p.shape, dtype=F64, generator=generator).to(p.dtype)
        optimizer.step()


# -- convolutions ----------------------------------------


@every_maker
@pytest.mark.parametrize("shape", [(4, 2, 3, 3), (30, 3, 2, 2), (5, 4, 3)])
@pytest.mark.parametrize("layout", ["contiguous", "channels last"])
def test_the_weight_of_a_convolution_is_one_matrix(
    make: Callable[..., torch.optim.Optimizer], shape: tuple[int, ...], layout: str
) -> None:
    start = orthonormal(shape[0], torch.Size(shape[1:]).numel())
    matrix, weight = nn.Parameter(start.clone()), start.clone().reshape(shape)
    if layout == "channels last" and len(shape) == 4:
        weight = weight.to(memory_format=torch.channels_last)
    weight = nn.Parameter(weight)
    run(make([matrix]), [matrix], 4)
    run(make([weight], flatten=True), [weight], 4)
    torch.testing.assert_close(weight.detach().flatten(1), matrix.detach(), rtol=0.0, atol=1e-14)
    assert defect(tall(weight.detach().flatten(1))) < 1e-13
    assert float((matrix.detach() - start).norm()) > 1e-3


def test_a_convolution_is_trained_from_torch_s_own_orthogonal_weights() -> None:
    layer = nn.Conv2d(3, 8, 2, bias=True, dtype=F64)
    nn.init.orthogonal_(layer.weight)
    groups = [
        {"params": [layer.weight], "flatten": True},
        {"params": layer.bias, "orthonormal": False, "flatten": True},
    ]
    optimizer = CayleySGD(groups, line_search="nonmonotone")
    X, Y = torch.randn(5, 3, 6, 6, dtype=F64), torch.randn(5, 8, 5, 5, dtype=F64)
    losses: list[float] = []

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (layer(X) - Y).square().mean()
        loss.backward()
        losses.append(loss.item())
        return loss

    for _ in range(10):
        optimizer.step(closure)
    assert losses[-1] < losses[0]
    assert defect(tall(layer.weight.detach().flatten(1))) < 1e-14


def test_without_flatten_the_last_two_dimensions_are_the_matrix() -> None:
    batch = nn.Parameter(torch.stack([orthonormal(3, 5, seed=k) for k in range(6)]).reshape(2, 3, 3, 5))
    alone = [nn.Parameter(matrix.clone()) for matrix in batch.detach().flatten(0, 1)]
    optimizer, optimizers = CayleySGD([batch], lr=0.1), [CayleySGD([p], lr=0.1) for p in alone]
    batch.grad = torch.randn(2, 3, 3, 5, dtype=F64)
    for p, gradient in zip(alone, batch.grad.flatten(0, 1), strict=True):
        p.grad = gradient.clone()
    for one in (optimizer, *optimizers):
        one.step()
    torch.testing.assert_close(batch.detach().flatten(0, 1), torch.stack([p.detach() for p in alone]))
    with pytest.raises(ValueError, match="flatten=True"):
        CayleySGD([nn.Conv2d(3, 8, 2).weight])


# -- several parameters ----------------------------------


@every_maker
def test_parameters_of_one_shape_move_together_as_each_alone(make: Callable[..., torch.optim.Optimizer]) -> None:
    """The fourth has no gradient in the first step, so that its count of steps differs; the last has another shape."""
    shapes = [(5, 2)] * 5 + [(2, 6)]
    starts = [orthonormal(*shape, seed=k) for k, shape in enumerate(shapes)]
    joint, alone = ([nn.Parameter(U.clone()) for U in starts] for _ in range(2))
    optimizer, optimizers = make(joint), [make([p]) for p in alone]
    generator = torch.Generator().manual_seed(1)
    for step in range(4):
        for k, (p, q) in enumerate(zip(joint, alone, strict=True)):
            gradient = torch.randn(p.shape, dtype=F64, generator=generator)
            p.grad, q.grad = (None, None) if (step, k) == (0, 3) else (gradient, gradient.clone())
        for one in (optimizer, *optimizers):
            one.step()
    for p, q, one in zip(joint, alone, optimizers, strict=True):
        torch.testing.assert_close(p.detach(), q.detach(), rtol=0.0, atol=1e-14)
        mine, its = optimizer.state[p], one.state[q]
        assert mine.keys() == its.keys()
        for key, value in mine.items():
            torch.testing.assert_close(value, its[key], rtol=1e-10, atol=1e-14)
            # not a view of the whole batch, which checkpoints would hold
            assert not isinstance(value, Tensor) or value.untyped_storage().nbytes() <= value.nbytes


def test_a_bad_gradient_among_several_moves_none() -> None:
    parameters = [nn.Parameter(orthonormal(4, 2, seed=k)) for k in range(3)]
    kept = [p.detach().clone() for p in parameters]
    for p in parameters:
        p.grad = torch.ones(4, 2, dtype=F64)
    parameters[1].grad = torch.full((4, 2), torch.nan, dtype=F64)
    with pytest.raises(FloatingPointError, match="parameter 1 of group 0 is not finite"):
        CayleySGD(parameters, lr=0.1).step()
    assert all(torch.equal(p, before) for p, before in zip(parameters, kept, strict=True))


# -- orthonormality --------------------------------------


@pytest.mark.parametrize("shape", [(6, 2), (4, 4), (3, 8)])
@pytest.mark.parametrize("lr", [1e-3, 0.1, 3.0])
def test_steps_take_away_a_defect(shape: tuple[int, int], lr: float) -> None:
    disturbed = orthonormal(*shape) + 1e-9 * torch.randn(shape, dtype=F64)
    U = nn.Parameter(disturbed)
    assert defect(tall(U.detach())) > 1e-10
    run(CayleySGD([U], lr=lr), [U], 25)
    assert defect(tall(U.detach())) < 1e-14


@pytest.mark.parametrize("shape", [(6, 2), (4, 4)])
def test_a_large_normal_part_of_the_gradient_does_no_harm(shape: tuple[int, int]) -> None:
    """Short steps along gradients whose part normal to the manifold, which moves nothing, is long."""
    U = nn.Parameter(orthonormal(*shape))
    optimizer = CayleySGD([U], lr=0.1)
    S = torch.randn(shape[1], shape[1], dtype=F64)
    for _ in range(100):
        U.grad = 1e4 * (U.detach() @ (S + S.T)) + torch.randn(shape, dtype=F64)
        optimizer.step()
        assert defect(U.detach()) < 1e-13


# -- half precision --------------------------------------


@every_maker
@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("shape", [(12, 4), (4, 2, 3, 3)])
def test_half_precision_is_the_rounding_of_a_run_in_float32(
    make: Callable[..., torch.optim.Optimizer], dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    matrix = orthonormal(shape[0], torch.Size(shape[1:]).numel())
    half = nn.Parameter(matrix.reshape(shape).to(dtype))
    # the nearest orthonormal matrix to what is stored
    left, _, right = torch.linalg.svd(half.detach().flatten(1).double(), full_matrices=False)
    twin = nn.Parameter((left @ right).reshape(shape).float())
    optimizer, other = make([half], flatten=True), make([twin], flatten=True)
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        # steps of 1e-3 or less would be lost in the rounding of bfloat16
        half.grad = (0.02 * torch.randn(shape, dtype=F64, generator=generator)).to(dtype)
        twin.grad = half.grad.float()
        optimizer.step()
        other.step()
        stored = tall(half.detach().flatten(1).float())
        assert defect(stored) <= 2.0 * torch.finfo(dtype).eps * stored.shape[-1] ** 0.5
    master = optimizer.state[half]["master"]
    assert master.dtype == F32
    assert defect(master) < 1e-5
    torch.testing.assert_close(master, tall(twin.detach().flatten(1)), rtol=0.0, atol=2e-5)
    assert torch.equal(tall(half.detach().flatten(1)), master.to(dtype))
    assert float((twin.detach() - matrix.reshape(shape)).norm()) > 1e-3


def test_a_half_precision_parameter_that_was_written_to_starts_anew() -> None:
    p = nn.Parameter(orthonormal(6, 2, dtype=BF16))
    optimizer = CayleySGD([p], lr=1e-9)
    run(optimizer, [p], 1)
    other = orthonormal(6, 2, dtype=BF16, seed=5)
    with torch.no_grad():
        p.copy_(other)
    run(optimizer, [p], 1)
    torch.testing.assert_close(p.detach(), other, rtol=0.0, atol=0.01)
    with torch.no_grad():
        p.fill_(1.0)
    with pytest.raises(ValueError, match="parameter 0 of group 0 has no orthonormal columns"):
        run(optimizer, [p], 1)
    assert bool((p == 1.0).all())


def test_half_precision_is_held_against_what_its_rounding_does() -> None:
    """Reflections I − ⅔J, of which bfloat16 rounds all entries up: with 600 columns the defect is above the root of its unit."""
    reflection = torch.eye(3, dtype=F64) - 2.0 / 3.0
    U = torch.block_diag(*[reflection] * 200)
    stored = U.to(BF16)
    assert defect(stored.float()) > torch.finfo(BF16).eps ** 0.5
    p = nn.Parameter(stored)
    optimizer = CayleySGD([p], lr=1e-9)
    run(optimizer, [p], 1)
    torch.testing.assert_close(optimizer.state[p]["master"].double(), U, rtol=0.0, atol=1e-5)
    with pytest.raises(ValueError, match="no orthonormal columns"):
        CayleySGD([nn.Parameter((1.01 * U).to(BF16))])


# -- resumption ------------------------------------------


@every_maker
@pytest.mark.parametrize("dtype", [F64, F32, BF16])
def test_resumed_is_uninterrupted(make: Callable[..., torch.optim.Optimizer], dtype: torch.dtype) -> None:
    starts = [orthonormal(6, 2), orthonormal(6, 2, seed=1), orthonormal(4, 18, seed=2).reshape(4, 2, 3, 3)]

    def begin() -> tuple[torch.optim.Optimizer, list[nn.Parameter]]:
        parameters = [nn.Parameter(U.to(dtype, copy=True)) for U in starts]
        return make(parameters, flatten=True), parameters

    whole, expected = begin()
    run(whole, expected, 3)
    run(whole, expected, 3, seed=2)
    first, parameters = begin()
    run(first, parameters, 3)
    file = io.BytesIO()
    torch.save({"optimizer": first.state_dict(), "parameters": parameters}, file)
    file.seek(0)
    stored: Any = torch.load(file, weights_only=False)
    second, resumed = begin()
    with torch.no_grad():
        for p, value in zip(resumed, stored["parameters"], strict=True):
            p.copy_(value)
    second.load_state_dict(stored["optimizer"])
    run(second, resumed, 3, seed=2)
    for p, q in zip(resumed, expected, strict=True):
        assert torch.equal(p, q)
        for key, value in whole.state[q].items():
            assert (
                torch.equal(second.state[p][key], value) if isinstance(value, Tensor) else second.state[p][key] == value
            )
