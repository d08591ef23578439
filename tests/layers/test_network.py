"""The network: sectors, safety of any weights, files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from surefoot._core.io import RunDirectoryError
from surefoot._layers.sectors import angles, sectors_of
from surefoot.learned import Lasso, LeastSquares, Logistic, Problems, compare
from surefoot.nn import LayeredSteps

ALL = {
    "least squares": lambda: LeastSquares.random(3, 8, 12, seed=1),
    "tall": lambda: LeastSquares(*tall()),
    "lasso": lambda: Lasso.random(3, 8, 12, lam=0.2, seed=2),
    "logistic": lambda: Logistic.random(3, 15, 6, lam=0.3, l2=0.1, seed=3),
}


def tall():
    generator = torch.Generator().manual_seed(4)
    M = torch.randn(2, 9, 4, generator=generator, dtype=torch.float64)
    return M, torch.randn(2, 9, generator=generator, dtype=torch.float64)


def drawn(layers: int = 15, sectors: int = 5, m: int = 4, seed: int = 0, corners: bool = False) -> LayeredSteps:
    """Random weights: mixtures, or single grid points."""
    generator = torch.Generator().manual_seed(seed)
    odds = torch.rand(layers, sectors, m, generator=generator, dtype=torch.float64)
    if corners:
        odds = torch.nn.functional.one_hot(odds.argmax(2), m).double()
    grid = torch.linspace(0.0, 2.0, m, dtype=torch.float64)
    return LayeredSteps(odds / odds.sum(2, keepdim=True), grid)


def test_angles_know_no_scale() -> None:
    generator = torch.Generator().manual_seed(0)
    x, v = torch.randn(2, 200, generator=generator, dtype=torch.float64)
    theta = angles(x, v)
    assert 0.0 <= float(theta.min()) < 0.2 and 1.8 < float(theta.max()) <= 2.0
    torch.testing.assert_close(angles(1e50 * x, 1e50 * v), theta)
    assert torch.equal(angles(-x, -v), theta)
    zero = torch.zeros(1, dtype=torch.float64)
    assert angles(zero, zero).item() == 0.0 and angles(zero, zero - 1.0).item() == 1.0
    edges = torch.tensor([0.5, 1.0], dtype=torch.float64)
    x, v = torch.tensor([[1.0, 1.0, 0.0, 1.0], [0.5, 1.0, 1.0, -1.0]], dtype=torch.float64)
    assert sectors_of(x, v, edges).tolist() == [0, 1, 2, 2]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("corners", [False, True])
def test_no_weights_increase_an_objective(name: str, corners: bool) -> None:
    """Theorem 1 on each problem and layer, up to the rounding of the objective."""
    problems: Problems = ALL[name]()
    for seed in range(3):
        solution = drawn(seed=seed, corners=corners).solve(problems)
        assert solution.objectives.shape == (16, problems.count)
        excess = solution.objectives.diff(dim=0) / solution.objectives[:-1]
        assert float(excess.max()) <= 1e-13
        assert float(solution.lowest.min()) >= 0.0 and float(solution.highest.max()) <= 2.0
        assert solution.products == 31


@pytest.mark.parametrize("name", ["lasso", "logistic"])
def test_mean_of_the_model_decreases(name: str) -> None:
    """Theorem 1 where steps are proximal: F falls by at least ω times the mean of what the models of the single steps fall by."""
    problems: Problems = ALL[name]()
    net = LayeredSteps(drawn(layers=1).weights, torch.linspace(0.3, 1.6, 4))
    beta = problems.smoothness * (1.0 + 1e-8)
    x = 0.3 * torch.randn(
        problems.count, problems.columns, generator=torch.Generator().manual_seed(5), dtype=torch.float64
    )
    value, g = problems.evaluate(x)
    sectors = sectors_of(x, g / beta[:, None], net.boundaries)
    decrease = torch.zeros_like(value)
    for j, P in enumerate(net.grid):
        step = (P / beta)[:, None].expand_as(x)
        y = problems.prox(x - step * g, step)
        shares = net.weights[0][sectors][..., j]
        for i in range(problems.columns):  # h is separable: what one coordinate adds to it
            only = torch.zeros_like(x)
            only[:, i] = 1.0
            h = problems.penalty(y * only) - problems.penalty(x * only)
            move = (y - x)[:, i]
            decrease -= shares[:, i] * (g[:, i] * move + move.square() / (2.0 * step[:, i]) + h)
    after = net.solve(problems, start=x).objectives[-1]
    assert float(decrease.min()) > 0.0
    assert bool((after <= value - 0.4 * decrease * (1.0 - 1e-12)).all())


def test_least_squares_steps_by_the_mean_of_the_grid() -> None:
    problems = ALL["least squares"]()
    net = drawn(layers=1, sectors=1)
    beta = problems.smoothness * (1.0 + 1e-8)
    expected = -(net.steps[0, 0] / beta)[:, None] * problems.gradient(problems.start())
    torch.testing.assert_close(net.solve(problems).solution, expected, rtol=1e-14, atol=0.0)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda net: net.weights[2, 1].mul_(1.001), r"weights\[2, 1\]"),
        (lambda net: net.weights[0, 0].copy_(torch.tensor([-0.5, 0.5, 0.5, 0.5])), r"weights\[0, 0\]"),
        (lambda net: net.weights[0, 3, 0].fill_(float("nan")), r"weights\[0, 3\]"),
        (lambda net: net.grid.mul_(1.1), "grid is"),
        (lambda net: net.boundaries.neg_(), "boundaries is"),
    ],
)
def test_weights_that_left_the_simplices(change, message: str) -> None:
    net = drawn()
    change(net)
    with pytest.raises(ValueError, match=message):
        net.solve(ALL["lasso"]())


def test_refusals() -> None:
    net, problems = drawn(), ALL["lasso"]()
    with pytest.raises(TypeError, match="float32"):
        net.solve(problems.to(dtype=torch.float32))
    with pytest.raises(TypeError, match="problems is"):
        net.solve("problems")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="grid must be"):
        LayeredSteps(net.weights, net.grid[:3])


def test_files_dtypes_and_comparison(tmp_path: Path) -> None:
    problems, net = ALL["lasso"](), drawn(layers=4)
    net.save(tmp_path / "net.safetensors")
    again = LayeredSteps.load(tmp_path / "net.safetensors")
    assert torch.equal(again.solve(problems).solution, net.solve(problems).solution)
    other = drawn(layers=4, seed=9)
    other.load_state_dict(net.state_dict())
    assert torch.equal(other.weights, net.weights)
    single = net.to(torch.float32).solve(problems.to(dtype=torch.float32)).solution
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), again.solve(problems).solution, rtol=1e-4, atol=1e-5)
    table = compare(problems, 6, {"layers": again}, baselines=["FISTA"])
    assert table["layers"].training.products == 8.0  # four layers; the last iterate stays
    (tmp_path / "other.safetensors").write_bytes(b"no network")
    with pytest.raises(RunDirectoryError):
        LayeredSteps.load(tmp_path / "other.safetensors")
