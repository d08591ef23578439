"""The compiled iteration against the one that calls PyTorch; weights of single precision, and extreme ones."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from torch import Tensor

from surefoot._step_sizes import inference, unrolled
from surefoot._step_sizes.network import StepSizeNet
from surefoot._step_sizes.sectors import Table
from surefoot.learned import Lasso, LeastSquares, Logistic, Problems

F64 = torch.float64
DEPTHS = [(2, 5), (2, 4, 3), (2, 4, 3, 5)]
BATCHES: list[Problems] = [
    LeastSquares.random(3, 4, 6),
    Lasso.random(3, 4, 6, sparsity=0.8),
    Logistic.random(3, 5, 6, lam=0.1, l2=0.2),
    LeastSquares.from_matrix(torch.randn(4, 6, dtype=F64, generator=torch.Generator().manual_seed(1)), count=3),
]


def gaussian(widths: tuple[int, ...], size: float = 1.0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [size * torch.randn(b, a, generator=generator, dtype=F64) for a, b in pairwise((*widths, 1))]


@pytest.mark.parametrize("cost", [0, 10**9], ids=["table", "layers"])
@pytest.mark.parametrize("widths", DEPTHS)
@pytest.mark.parametrize("batch", range(len(BATCHES)))
def test_it_is_the_iteration(batch: int, widths: tuple[int, ...], cost: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "TABLE", cost)
    problems, net = BATCHES[batch], StepSizeNet(gaussian(widths), 0.1, 1.9)
    start = torch.randn(3, 6, generator=torch.Generator().manual_seed(2), dtype=F64)
    assert inference.admits(net.matrices, problems)
    found = net.solve(problems, 12, start, trajectory=True)
    expected = unrolled.solve(net, problems, 12, start, None, trajectory=True)
    assert found.trajectory is not None and expected.trajectory is not None
    for name in ("solution", "trajectory", "objectives", "lowest", "highest", "smoothness"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=1e-10, atol=1e-12)
    assert found.products == expected.products == 25
    last = net.solve(problems, 12, start)
    assert torch.equal(last.solution, found.solution) and last.trajectory is None
    assert net.solve(problems, 0).lowest.shape == (0, 3)


def test_larger_problems_and_others_are_left_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(LeastSquares):
        pass

    problems = BATCHES[0]
    assert not inference.admits(gaussian((2, 4)), Own(problems.M, problems.Y))
    assert not inference.admits([torch.empty(9999, 2), torch.empty(9999, 9999), torch.empty(1, 9999)] * 2, problems)
    monkeypatch.setattr(inference, "LARGEST", 71)
    assert not inference.admits(gaussian((2, 4)), problems)


def test_weights_of_single_precision_stay() -> None:
    weights = [W.float() for W in gaussian((2, 4, 3))]
    net = StepSizeNet(weights)
    assert all(torch.equal(a, b) and a.dtype == torch.float32 for a, b in zip(net.matrices, weights, strict=True))
    assert StepSizeNet([W.numpy() for W in weights]).weights[0].dtype == torch.float32
    assert StepSizeNet([weights[0].double(), *weights[1:]]).weights[2].dtype == F64
    matrix = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    for problems in (BATCHES[0].to(dtype=torch.float32), LeastSquares.from_matrix(matrix, torch.ones(4, dtype=F64))):
        out = net.solve(problems, 5)
        assert {out.solution.dtype, out.objectives.dtype, out.lowest.dtype} == {torch.float32}
        assert bool((out.objectives.diff(dim=0) <= 1e-6 * out.objectives[:-1]).all())


@pytest.fixture
def strict() -> Iterator[None]:
    """Whatever warns fails; of numpy also what would be a warning."""
    with warnings.catch_warnings(), np.errstate(over="raise", invalid="raise", divide="raise"):
        warnings.simplefilter("error")
        yield


EXTREMES = [sizes for sizes in product((1.0, 1e-300, 1e300), repeat=3) if sizes != (1.0, 1.0, 1.0)]


@pytest.mark.parametrize("cost", [0, 10**9], ids=["table", "layers"])
def test_extreme_weights_are_no_warning(cost: int, strict: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """z is homogeneous in each weight: beyond the range of float64 every P is at an end of its range, below it in the middle."""
    monkeypatch.setattr(inference, "TABLE", cost)
    problems, plain = BATCHES[0], gaussian((2, 4, 3))
    for sizes in EXTREMES:
        net = StepSizeNet([size * W for size, W in zip(sizes, plain, strict=True)])
        out = net.solve(problems, 1, torch.ones(3, 6, dtype=F64))
        total = sum(round(np.log10(size)) for size in sizes)
        z = StepSizeNet(plain).logits(torch.ones(3, 6, dtype=F64), problems.gradient(torch.ones(3, 6, dtype=F64)))
        limit = 0.0 if total < 0 else float("inf") if total > 0 else 1.0
        expected = net.steps((z * limit).nan_to_num(0.0, 1e9, -1e9)).detach()
        assert torch.allclose(out.lowest[0], expected.amin(1)) and torch.allclose(out.highest[0], expected.amax(1))
        assert bool(out.objectives.isfinite().all()) and float(out.objectives.diff(dim=0).max()) <= 0.0


def test_tables_of_extreme_weights(strict: None) -> None:
    """Values and gradients are those of the plain weights times a power of two, infinite where that overflows."""
    plain = gaussian((2, 4, 3))
    x, g, q = torch.randn(3, 20, generator=torch.Generator().manual_seed(3), dtype=F64)
    value = Table(*plain).evaluate(x, g)
    slopes = Table(*plain).slopes(x, g)
    gradients = Table(*plain).gradient(x, g, q)
    for powers in product((-900, 0, 1000), repeat=3):
        table = Table(*(torch.ldexp(W, torch.tensor(e)) for W, e in zip(plain, powers, strict=True)))
        assert torch.allclose(table.evaluate(x, g), shifted(value, sum(powers)), rtol=1e-12, atol=0.0)
        for found, of_plain in zip(table.slopes(x, g), slopes, strict=True):
            assert torch.allclose(found, shifted(of_plain, sum(powers)), rtol=1e-12, atol=0.0)
        for found, of_plain, power in zip(table.gradient(x, g, q), gradients, powers, strict=True):
            assert torch.allclose(found, shifted(of_plain, sum(powers) - power), rtol=1e-9, atol=0.0)
        # the slopes overflow and values at small points do not
        small = 2.0 ** -max(sum(powers), 0) if sum(powers) <= 1000 else 1.0
        assert torch.allclose(table.evaluate(small * x, small * g), shifted(small * value, sum(powers)), atol=0.0)


def shifted(values: Tensor, power: int) -> Tensor:
    """values · 2^power, rounded once."""
    with np.errstate(over="ignore"):
        return torch.from_numpy(np.ldexp(values.numpy(), power))
